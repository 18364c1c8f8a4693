"""Async_SubprocVecEnv: environments in processes of their own as one Stable-Baselines3 `VecEnv`, steps and resets on
one beat.

Every call sends each worker exactly one command, a step or a reset, so no environment waits for another one's reset.
The price: SB3 stores the reset turn as one transition an episode, of reward 0 and an action that nobody played. A
learner that can should drop the rows whose info has `reset_turn`; `autoreset_mode="same_step"` has no such turns; for
worlds of this library there is `SB3VecEnv`, which has none either.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from milkrun.api import _remote as remote
from milkrun.api._binding import read_indices
from milkrun.api.workers import Aligned, Workers
from milkrun.api.workers.commands import application
from milkrun.core.arguments import autoreset_name, check_seed, is_list
from milkrun.core.errors import ConfigError, ResetNeeded, ShapeError, missing_extra

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as e:
    raise missing_extra(str(e.name), "sb3") from e

Info = dict[str, Any]
Turn = tuple[Any, np.ndarray, np.ndarray, list[Info]]


class Ahead(NamedTuple):
    """A first reset that was made before it was asked for: the very lists of seeds and options, and what came of it."""

    seeds: Any
    options: Any
    begun: Any


class Async_SubprocVecEnv(VecEnv):
    """A process for each environment: Gymnasium's, or classic ones with four results.

    env_fns, start_method, shared_memory, timeout: as `milkrun.api.workers.Workers` has them, errors included.
    autoreset_mode: NEXT_STEP, where the turn after an end is the reset: its action is ignored, its reward 0.0, done is
    False, its info that of the reset with `reset_turn` True; the observation of the step that ended an episode is its
    last one. SAME_STEP, SB3's own, where that observation is the next episode's first, at the cost of a second command.

    In both, the info of the step that ended an episode has `terminal_observation` and `TimeLimit.truncated`.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        start_method: str | None = None,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        shared_memory: bool = True,
        timeout: float | None = None,
    ) -> None:
        mode = autoreset_name(autoreset_mode)
        if mode == "disabled":
            raise ConfigError("autoreset_mode='disabled': Stable-Baselines3 never resets single environments")
        self.workers = Workers(env_fns, start_method, shared_memory, timeout)
        self._restarts = mode == "same_step"  # else the pool does, on the turn after an end
        self._pool: Aligned | Workers = self.workers if self._restarts else Aligned(self.workers)
        self._fresh = True  # nothing has been reset yet
        self._ahead: Ahead | None = None
        try:
            seen = _common("observation_space", self.workers.observation_spaces)
            done = _common("action_space", self.workers.action_spaces)
            super().__init__(len(self.workers), seen, done)
        except BaseException:
            self.workers.close()
            raise

    def seed(self, seed: Any = None) -> Sequence[int | None]:
        """The seeds of the next reset: an int s gives worker i the seed s + i, a list each its own; None draws one."""
        if seed is None:
            seed = secrets.randbits(31)  # not from numpy's generator, which is the caller's; some take no more bits
        if not is_list(seed):
            seed = range(check_seed(seed), check_seed(seed) + self.num_envs)
        if len(seed) != self.num_envs:
            raise ShapeError(f"{len(seed)} seeds for {self.num_envs} workers: a list has one each")
        self._seeds = [check_seed(s) for s in seed]
        return list(self._seeds)

    def reset(self) -> Any:
        """Begins an episode in every environment, whatever was due, with the seeds and options set since the last."""
        seeds, options, ahead, before = self._seeds, self._options, self._ahead, self.workers.turns
        try:
            # The very lists: `seed` and `set_options` put others in their place, and it must be made again.
            if ahead is not None and ahead.seeds is seeds and ahead.options is options:
                self.workers.check_open()
                obs, infos = ahead.begun
            else:
                obs, infos = self._pool.reset(seeds=seeds, options=options)
            self._use_up()
        except BaseException as e:
            if isinstance(e, Exception) or self.workers.turns > before:
                self._use_up()
            raise
        self._fresh, self.reset_infos = False, infos
        return obs

    def _use_up(self) -> None:
        """Seeds, options and what was made ahead are for one reset."""
        self._ahead = None
        self._reset_seeds()
        self._reset_options()

    def step_async(self, actions: Any) -> None:
        """Lets a turn begin: the environments play while the caller does something else."""
        self._get_ready()
        self._pool.send(actions)

    def step_wait(self) -> Turn:
        """What the turn came to."""
        return self._taken_in(self._pool.receive())

    def step(self, actions: Any) -> Turn:
        """Both in one, unless a subclass has its say in one of them."""
        cls, own = type(self), Async_SubprocVecEnv
        if cls.step_wait is not own.step_wait or cls.step_async is not own.step_async:
            return super().step(actions)
        self._get_ready()
        return self._taken_in(self._pool.step(actions))

    def _get_ready(self) -> None:
        if self._ahead is not None:
            raise ResetNeeded("step before the first reset")
        if self._restarts:
            self.workers.settle()
            if any(self.workers.ended) and not self.workers.under_way:  # the step that ended them was interrupted
                self.workers.reset(np.flatnonzero(self.workers.ended))

    def _taken_in(self, result: Any) -> Turn:
        if isinstance(result, list):
            raise ConfigError("Async_SubprocVecEnv is for one agent an environment: this one's step returns lists")
        obs, rewards, terminated, truncated, infos = result
        dones = terminated | truncated
        for i, info in enumerate(infos):
            info["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
        ended = np.flatnonzero(dones).tolist()
        for i in ended:
            infos[i]["terminal_observation"] = _row(obs, i)
        if ended and self._restarts:
            begun, _ = self.workers.reset(ended)
            for k, i in enumerate(ended):
                _put_row(obs, i, begun, k)
        self.reset_infos = [*map(dict, self.workers.starts)]
        return obs, rewards, dones, infos

    def close(self) -> None:
        """Closes the environments and ends their processes; a second call does nothing."""
        self.workers.close()

    def has_attr(self, attr_name: str) -> bool:
        """Whether every environment has the attribute; masks that come in infos count as `action_masks`, which before
        the first reset only a reset tells: it is made, and is what the next `reset` returns."""
        if attr_name == "action_masks" and self._has_masks():
            return True
        if all(self._ask(None, "has_attr", remote.has, attr_name)):
            return True
        if attr_name == "action_masks" and self._fresh and self._ahead is None:
            seeds, options = self._seeds, self._options
            self._ahead = Ahead(seeds, options, self._pool.reset(seeds=seeds, options=options))
            return self._has_masks()
        return False

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The attribute of each environment, also one behind wrappers."""
        found = self._ask(indices, "get_attr", remote.look_up, attr_name)
        if attr_name == "render_mode":  # a classic environment has none, which SB3 would warn of
            return [None if value is remote.Absent else value for value in found]
        return _present(found, attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Sets the attribute of each environment where it stands, be it behind wrappers."""
        self._forget()
        self._ask(indices, "set_attr", remote.put, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """What a method of each environment returns; `action_masks` came with the last turn and asks nobody, but after
        `set_attr` and the like."""
        if method_name == "action_masks" and not method_args and not method_kwargs:
            masks = self.workers.masks
            known = [masks[i] for i in self._ids(indices)]
            if known and all(mask is not None for mask in known):
                return [mask.copy() for mask in known if mask is not None]
        self._forget()
        called = self._ask(indices, "env_method", remote.call_method, method_name, method_args, method_kwargs)
        return _present(called, method_name)

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """Whether each environment is, or wraps, one of this class."""
        name = wrapper_class.__qualname__
        return self._ask(indices, "env_is_wrapped", remote.is_wrapped, name, wrapper_class.__module__)

    def get_images(self) -> list[np.ndarray | None]:
        """The picture of each environment, if they were made with render_mode="rgb_array"."""
        return self.env_method("render") if self.render_mode == "rgb_array" else [None] * self.num_envs

    def _ids(self, indices: Any) -> list[int]:
        ids: list[int] = read_indices(indices, self.num_envs).tolist()
        return ids

    def _ask(self, indices: Any, verb: str, question: Callable[..., Any], name: str, *args: Any) -> list[Any]:
        ids = self._ids(indices)
        return self.workers.ask(application(f"{verb} {name}", question, (name, *args), {}), ids) if ids else []

    def _has_masks(self) -> bool:
        return all(mask is not None for mask in self.workers.masks)

    def _forget(self) -> None:
        """A reset made ahead is made again: what is asked now may change what it would come to."""
        if self._ahead is not None:
            # Not None: until `reset` is called a step must be refused.
            self._ahead = Ahead(None, None, None)


ASYNC_SubprocVecEnv = Async_SubprocVecEnv


def _common(name: str, spaces: list[Any]) -> Any:
    """The space that all environments have."""
    for i, space in enumerate(spaces):
        if space is None:
            raise ConfigError(f"worker {i}: its environment tells no {name}")
        if space != spaces[0]:
            raise ConfigError(f"worker {i}: its {name} is {space}, that of worker 0 is {spaces[0]}")
    return spaces[0]


def _present(found: list[Any], name: str) -> list[Any]:
    if any(value is remote.Absent for value in found):
        raise AttributeError(f"the environments have no {name!r}")
    return found


def _row(obs: Any, i: int) -> Any:
    """The observation of one environment, a copy."""
    if isinstance(obs, dict):
        return {key: _row(part, i) for key, part in obs.items()}
    if isinstance(obs, tuple):
        return tuple(_row(part, i) for part in obs)
    return obs[i].copy() if isinstance(obs, np.ndarray) else obs[i]


def _put_row(obs: Any, i: int, other: Any, k: int) -> None:
    """Puts row k of the other observations into row i."""
    if isinstance(obs, (dict, tuple)):
        for key in obs if isinstance(obs, dict) else range(len(obs)):
            _put_row(obs[key], i, other[key], k)
    else:
        obs[i] = other[k]
