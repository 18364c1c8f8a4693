"""Async_SubprocVecEnv: environments in processes of their own as one Stable-Baselines3 `VecEnv`, stepped and reset in
lockstep.

Every call sends each worker exactly one command, a step or a reset, so no environment waits for the reset of another.
The price: SB3 stores the reset turn as one transition an episode, of reward 0 and an action that was not played. A
learner that can should drop the rows whose info has `reset_turn`. `autoreset_mode="same_step"` has no such turns;
neither has `SB3VecEnv`, for worlds of this library.
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
from milkrun.core.arguments import autoreset_name, check_seed, is_list
from milkrun.core.errors import ConfigError, ResetNeeded, ShapeError, missing_extra

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as e:
    raise missing_extra(str(e.name), "sb3") from e

Info = dict[str, Any]
StepResult = tuple[Any, np.ndarray, np.ndarray, list[Info]]


class EarlyReset(NamedTuple):
    """A first reset that was made before `reset` was called: its lists of seeds and options, and its result."""

    seeds: Any
    options: Any
    result: Any


class Async_SubprocVecEnv(VecEnv):
    """A process for each environment: Gymnasium's, or classic ones with four results.

    env_fns, start_method, shared_memory, timeout: as in `milkrun.api.workers.Workers`, errors included.
    autoreset_mode: NEXT_STEP, where the turn after an end is the reset: its action is ignored, its reward 0.0, done is
    False, its info that of the reset with `reset_turn` True; the observation of the step that ended an episode is its
    last one. SAME_STEP, the mode of SB3, where it is the next episode's first, at the cost of a second command.

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
        self._early: EarlyReset | None = None
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
        """Begins an episode in every environment, with the seeds and options set since the last reset."""
        seeds, options, early = self._seeds, self._options, self._early
        try:
            # Compared by identity: `seed` and `set_options` put other lists in their place.
            if early is not None and early.seeds is seeds and early.options is options:
                self.workers.check_open()
                obs, infos = early.result
            else:
                obs, infos = self._pool.reset(seeds=seeds, options=options)
        except Exception:
            self._clear_reset()
            raise
        self._clear_reset()
        self._fresh = False
        self.reset_infos = infos
        return obs

    def _clear_reset(self) -> None:
        """Seeds, options and an early reset are for one reset."""
        self._early = None
        self._reset_seeds()
        self._reset_options()

    def step_async(self, actions: Any) -> None:
        """Starts a turn; the environments play while the caller does something else."""
        self._check_reset()
        self._pool.send(actions)

    def step_wait(self) -> StepResult:
        """Waits for the turn that was started."""
        return self._read_turn(self._pool.receive())

    def step(self, actions: Any) -> StepResult:
        """Plays a turn. A subclass that overrides `step_async` or `step_wait` gets both calls."""
        cls, own = type(self), Async_SubprocVecEnv
        if cls.step_wait is not own.step_wait or cls.step_async is not own.step_async:
            return super().step(actions)
        self._check_reset()
        return self._read_turn(self._pool.step(actions))

    def _check_reset(self) -> None:
        if self._early is not None:
            raise ResetNeeded("step before the first reset")
        if self._restarts and any(self.workers.ended) and not self.workers.under_way:
            raise ResetNeeded("an interrupt met the step that ended an episode: reset() before the next one")

    def _read_turn(self, result: Any) -> StepResult:
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
        self.reset_infos = [*map(dict, self.workers.reset_infos)]
        return obs, rewards, dones, infos

    def close(self) -> None:
        """Closes the environments and ends their processes. Idempotent."""
        self.workers.close()

    def has_attr(self, attr_name: str) -> bool:
        """Whether every environment has the attribute. Masks in infos count as `action_masks`. Before the first reset
        only a reset can tell, so it is made early, and the next `reset` returns its result."""
        if attr_name == "action_masks" and self._has_masks():
            return True
        if all(self._apply(None, "has_attr", remote.has, attr_name)):
            return True
        if attr_name == "action_masks" and self._fresh and self._early is None:
            seeds, options = self._seeds, self._options
            self._early = EarlyReset(seeds, options, self._pool.reset(seeds=seeds, options=options))
            return self._has_masks()
        return False

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Reads the attribute of each environment, also one behind wrappers."""
        found = self._apply(indices, "get_attr", remote.look_up, attr_name)
        if attr_name == "render_mode":  # a classic environment has none, which SB3 would warn of
            return [None if value is remote.Absent else value for value in found]
        return _check_present(found, attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Sets the attribute of each environment, in the wrapper that has it."""
        self._outdate_early_reset()
        self._apply(indices, "set_attr", remote.put, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Calls a method of each environment. `action_masks` came with the last turn, so it sends no command, except
        after `set_attr` and other calls."""
        if method_name == "action_masks" and not method_args and not method_kwargs:
            masks = self.workers.masks
            known = [masks[i] for i in self._ids(indices)]
            if known and all(mask is not None for mask in known):
                return [mask.copy() for mask in known if mask is not None]
        self._outdate_early_reset()
        called = self._apply(indices, "env_method", remote.call_method, method_name, method_args, method_kwargs)
        return _check_present(called, method_name)

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """Whether each environment is of this class or wraps one that is."""
        name = wrapper_class.__qualname__
        return self._apply(indices, "env_is_wrapped", remote.is_wrapped, name, wrapper_class.__module__)

    def get_images(self) -> list[np.ndarray | None]:
        """Renders each environment, if they were made with render_mode="rgb_array"; else a list of None."""
        return self.env_method("render") if self.render_mode == "rgb_array" else [None] * self.num_envs

    def _ids(self, indices: Any) -> list[int]:
        ids: list[int] = read_indices(indices, self.num_envs).tolist()
        return ids

    def _apply(self, indices: Any, verb: str, function: Callable[..., Any], name: str, *args: Any) -> list[Any]:
        ids = self._ids(indices)
        return self.workers.apply(f"{verb} {name}", function, name, *args, ids=ids) if ids else []

    def _has_masks(self) -> bool:
        return all(mask is not None for mask in self.workers.masks)

    def _outdate_early_reset(self) -> None:
        """Makes `reset` repeat an early reset, since the call that follows may change its result."""
        if self._early is not None:
            # Not None: until `reset` is called a step must be refused.
            self._early = EarlyReset(None, None, None)


ASYNC_SubprocVecEnv = Async_SubprocVecEnv


def _common(name: str, spaces: list[Any]) -> Any:
    """Returns the space that all environments have."""
    for i, space in enumerate(spaces):
        if space is None:
            raise ConfigError(f"worker {i}: its environment has no {name}")
        if space != spaces[0]:
            raise ConfigError(f"worker {i}: its {name} is {space}, that of worker 0 is {spaces[0]}")
    return spaces[0]


def _check_present(found: list[Any], name: str) -> list[Any]:
    if any(value is remote.Absent for value in found):
        raise AttributeError(f"the environments have no {name!r}")
    return found


def _row(obs: Any, i: int) -> Any:
    """Copies the observation of one environment."""
    if isinstance(obs, dict):
        return {key: _row(part, i) for key, part in obs.items()}
    if isinstance(obs, tuple):
        return tuple(_row(part, i) for part in obs)
    return obs[i].copy() if isinstance(obs, np.ndarray) else obs[i]


def _put_row(obs: Any, i: int, other: Any, k: int) -> None:
    """Writes row k of the other observations into row i."""
    if isinstance(obs, (dict, tuple)):
        for key in obs if isinstance(obs, dict) else range(len(obs)):
            _put_row(obs[key], i, other[key], k)
    else:
        obs[i] = other[k]
