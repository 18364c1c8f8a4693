"""SubprocVecEnv_TS: any environments, each in a process of its own, as a tianshou vector environment.

A step sends each process that is named exactly one command: a step, or, on the turn after an end, the reset; then
`infos[i]["reset_turn"]` is True. Masks come back with the observations, in one `Batch` with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from tianshou.data import Batch

from milkrun.api import _remote as remote
from milkrun.api.foreign import makers
from milkrun.api.tianshou.venv import Ids, StepResult, Venv, in_array
from milkrun.api.workers import Aligned, Workers
from milkrun.core.arguments import check_seed, is_list
from milkrun.core.errors import Closed, ConfigError, ShapeError


class SubprocVecEnv_TS(Venv):
    """A process for each environment: Gymnasium's, or classic ones with four results.

    env_fns: functions of no arguments that make an environment each; they travel by cloudpickle.
    wait_num, timeout: of tianshou's asynchronous kind, which lockstep excludes; only their defaults are allowed.
    share_memory: True sends observations through shared memory instead of pipes.
    context: the start method of processes: "forkserver" (None, where there is one), "spawn" or "fork".

    On a reset turn the action is ignored, the reward 0.0, terminated and truncated are False, and the observation is
    the new episode's first. An explicit `reset` begins an episode at once, so a caller that resets ended rows, as
    tianshou's `Collector` does, gets no reset turn.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        wait_num: int | None = None,
        timeout: float | None = None,
        share_memory: bool = False,
        context: str | None = None,
    ) -> None:
        env_fns = makers(env_fns)
        if wait_num not in (None, len(env_fns)):
            raise ConfigError(f"wait_num={wait_num!r}: all {len(env_fns)} environments move in lockstep")
        if timeout is not None:
            raise ConfigError(f"timeout={timeout!r}: environments move in lockstep, so each step waits for all")
        self.pool = Aligned(Workers(env_fns, context, share_memory))
        super().__init__(len(self.pool))
        workers = self.pool.workers
        self._spaces = {"action_space": workers.action_spaces, "observation_space": workers.observation_spaces}
        if any(_has_tuple(space) for space in workers.observation_spaces):
            self.close()
            raise ConfigError("tianshou has no tuples in observations: use a Dict or an array")
        self._seeds: list[int | None] = [None] * self.env_num  # of each environment's next explicit reset

    def reset(self, env_id: Ids = None, *, seed: Any = None, options: Any = None) -> tuple[Any, np.ndarray]:  # type: ignore[override]
        """Begins an episode in the named environments, also where a reset was due.

        seed: an int s gives environment i the seed s + i; a list has one (or None) for each that is named.
        options: a dict for all, or a list with one (or None) for each that is named.
        """
        chosen = self.pool.workers.indices(env_id)
        if seed is None and any(self._seeds[i] is not None for i in chosen):
            seed = [self._seeds[i] for i in chosen]
        obs, infos = self.pool.reset(env_id, seed, options)
        for i in chosen:
            self._seeds[i] = None  # a seed is for one reset
        return self._with_masks(obs, chosen), _with_ids(infos, chosen)

    def step(self, action: Any, id: Ids = None) -> StepResult:
        """Plays a turn of the named environments: a step, or the reset that is due."""
        if action is None:
            raise ShapeError("action=None is for asynchronous environments; these move in lockstep")
        chosen = self.pool.workers.indices(id)
        given = action.numpy(force=True) if hasattr(action, "numpy") else action
        obs, rewards, terminated, truncated, infos = self.pool.step(given, id)
        return self._with_masks(obs, chosen), rewards, terminated, truncated, _with_ids(infos, chosen)

    def seed(self, seed: Any = None) -> list[list[int] | None]:
        """Sets the seeds of the next `reset`: an int gives environment i seed + i, a list each its own. Action spaces
        are seeded too."""
        self._assert_is_not_closed()
        if seed is None:
            seeds: list[int | None] = [None] * self.env_num
        else:
            given = seed if is_list(seed) else range(check_seed(seed), seed + self.env_num)
            seeds = [None if one is None else check_seed(one) for one in given]
        if len(seeds) != self.env_num:
            raise ShapeError(f"{len(seeds)} seeds for {self.env_num} environments")
        self._seeds = seeds
        for space, one in zip(self._spaces["action_space"], seeds):
            if space is not None:
                space.seed(one)
        return [None if one is None else [one] for one in seeds]

    def get_env_attr(self, key: str, id: Ids = None) -> list[Any]:
        """Reads an attribute of each environment named, also one behind wrappers; None where there is none."""
        if key in self._spaces:
            return [self._spaces[key][i] for i in self.pool.workers.indices(id)]
        found = self.pool.workers.apply(f"get_env_attr {key}", remote.look_up, key, ids=id)
        return [None if value is remote.Absent else value for value in found]

    def set_env_attr(self, key: str, value: Any, id: Ids = None) -> None:
        """Sets an attribute of each environment named, below its wrappers."""
        self.pool.workers.apply(f"set_env_attr {key}", remote.put_inside, key, value, ids=id)

    def render(self, **kwargs: Any) -> list[Any]:
        """Renders each environment."""
        return self.pool.workers.call("render", **kwargs)

    def close(self) -> None:
        """Closes the environments and ends their processes. Idempotent."""
        self.pool.close()
        self.is_closed = True

    def _assert_is_not_closed(self) -> None:
        if self.is_closed:
            raise Closed(f"this {type(self).__name__} has been closed")

    def _with_masks(self, obs: Any, chosen: list[int]) -> Any:
        """Observations as tianshou takes them, with masks if all of these environments have them."""
        if isinstance(obs, list):
            seen: Any = np.empty(len(obs), object)
            seen[:] = obs
        else:
            seen = Batch(obs) if isinstance(obs, dict) else obs
        known = self.pool.masks
        masks = [known[i] for i in chosen]
        shapes = {None if mask is None else mask.shape for mask in masks}
        return seen if len(shapes) > 1 or None in shapes else Batch(obs=seen, mask=np.stack(masks))  # type: ignore[arg-type]


SubprocVectorEnv_TS = SubprocVecEnv_TS


def _with_ids(infos: list[dict[str, Any]], chosen: list[int]) -> np.ndarray:
    for info, i in zip(infos, chosen):
        info["env_id"] = i
    return in_array(infos)


def _has_tuple(space: Any) -> bool:
    if isinstance(space, spaces.Dict):
        return any(map(_has_tuple, space.spaces.values()))
    return isinstance(space, spaces.Tuple)
