"""`Envs`: n environments as one, for a training loop over arrays.

It takes objects with `reset` and `step` and plays each kind the fastest way. Handles of a batch (they have `batch`, one
object for all, and `row`) are played in one call of it. Links (they have `send` and `receive`, see `Links`) all get
their request before it waits for the first. Any other environment, classic or Gymnasium, has a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from milkrun.compat.parallel.lockstep import Links, Lockstep, Threads
from milkrun.compat.parallel.returns import Returns
from milkrun.core.errors import Closed, ConfigError, ResetNeeded, ShapeError


class Envs:
    """Environments in lockstep: `states = reset()`, `states, rewards, done = step(actions)`, with a first axis of n.

    The turn after an end is a reset turn (NEXT_STEP): its action is ignored, its reward 0.0, its done False, its state
    the new episode's first. An environment that raises is a WorkerError with its index, after the others have finished
    the turn; `reset()` begins again. The environments are played through this object only, which also closes them.

    num_envs: how many.
    env_list: as many environments; or in its place `env_mk`, a function called that often with `*env_mk_args`.
    logs_show: of how many environments, the first ones, the returns of finished episodes are written to `rewards.csv`
        in `logs_dir` and, where torch and tensorboard are installed, for TensorBoard. True is one.

    After each call `terminated`, `truncated` and `reset_turn` are bool (n,), and `infos` has a dict for each: the
    environment's own, on a reset turn `reset_turn`, and on the last turn of an episode `terminal_observation` and
    `TimeLimit.truncated`. `observation_space` and `action_space` are those of one environment.
    """

    terminated: np.ndarray
    truncated: np.ndarray
    reset_turn: np.ndarray
    _infos: list[dict[str, Any]] | None

    def __init__(
        self,
        num_envs: int,
        env_list: Sequence[Any] | None = None,
        logs_show: bool | int = False,
        *,
        env_mk: Callable[..., Any] | None = None,
        env_mk_args: Sequence[Any] = (),
        logs_dir: str | Path = ".",
    ) -> None:
        if not _is_count(num_envs) or num_envs < 1:
            raise ConfigError(f"num_envs={num_envs!r}: must be an integer >= 1")
        if (env_list is None) == (env_mk is None):
            raise ConfigError("give either env_list or env_mk")
        logged = int(logs_show) if isinstance(logs_show, (bool, np.bool_)) else logs_show
        if not _is_count(logged) or not 0 <= logged <= num_envs:
            raise ConfigError(f"logs_show={logs_show!r}: must be a bool or a count of environments in 0..{num_envs}")
        if env_mk is not None and not callable(env_mk):
            raise ConfigError(f"env_mk={env_mk!r}: must be a function that makes an environment")
        if env_list is not None and not isinstance(env_list, Iterable):
            raise ConfigError(f"env_list is a {type(env_list).__name__}: must be a list of {num_envs} environments")
        items = [env_mk(*env_mk_args) for _ in range(num_envs)] if env_mk is not None else list(env_list or ())
        _check_items(items, num_envs)
        self.num_envs = int(num_envs)
        self.env_list = items
        self.observation_space = getattr(items[0], "observation_space", None)
        self.action_space = getattr(items[0], "action_space", None)
        self._batch = _batch_of(items)
        self._returns = Returns(logged, Path(logs_dir)) if logged else None
        self._closed = self._begun = False
        self._last_states: Any = None
        self._clear()

    def reset(self, seed: int | Sequence[int] | None = None) -> Any:
        """Begins an episode in every environment. Returns the states.

        seed: an int seeds environment i with seed + i; a list has one each.
        """
        self._check_open()
        states = self._batch.reset(seed)
        self._clear()
        self._begun = True
        if self._returns is not None:
            self._returns.begin()
        return states

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        """Plays a turn; `actions` has an entry each. Returns states, rewards float64 (n,), done bool (n,)."""
        self._check_open()
        if not self._begun:
            raise ResetNeeded("Envs is stepped before its first reset()")
        given = actions if isinstance(actions, (list, tuple, np.ndarray)) else _as_array(actions)
        if (isinstance(given, np.ndarray) and given.ndim == 0) or len(given) != self.num_envs:
            raise ShapeError(f"actions must have one for each of the {self.num_envs} environments")
        due = self._batch.due()
        self._infos = None
        states, rewards, terminated, truncated = self._batch.step(given)
        self.terminated = terminated
        self.truncated = truncated
        self.reset_turn = due
        done = terminated | truncated
        self._last_states = _copy_rows(states, done) if done.any() else None
        if self._returns is not None:
            self._returns.add(rewards, done, due)
        return states, rewards, done

    @property
    def infos(self) -> list[dict[str, Any]]:
        """The infos of the last turn, made lazily."""
        self._check_open()
        if self._infos is None:
            self._infos = infos = self._batch.infos()
            for i in np.flatnonzero(self.reset_turn):
                infos[i]["reset_turn"] = True
            for k, i in enumerate(np.flatnonzero(self.terminated | self.truncated)):
                infos[i]["terminal_observation"] = _copy_rows(self._last_states, k)
                infos[i]["TimeLimit.truncated"] = bool(self.truncated[i] and not self.terminated[i])
        return self._infos

    def close(self) -> None:
        """Closes the environments and ends their threads. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._returns is not None:
            self._returns.close()
        self._batch.close()

    def __len__(self) -> int:
        return self.num_envs

    def __enter__(self) -> Envs:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"these {self.num_envs} environments are closed")

    def _clear(self) -> None:
        self.terminated, self.truncated, self.reset_turn = (np.zeros(self.num_envs, bool) for _ in range(3))
        self._infos = None
        self._last_states = None


def _check_items(items: list[Any], num_envs: int) -> None:
    if len(items) != num_envs:
        raise ShapeError(f"env_list has {len(items)} environments, num_envs is {num_envs}")
    first: dict[int, int] = {}
    for i, item in enumerate(items):
        if not _has(item, "reset", "step") and not _has(item, "send", "receive"):
            raise ConfigError(f"item {i} is a {type(item).__name__}: it lacks reset and step, and send and receive")
        if first.setdefault(id(item), i) != i:
            raise ShapeError(f"items {first[id(item)]} and {i} are one environment: each must be its own")


def _batch_of(items: list[Any]) -> Any:
    """The object that plays a turn of these items: `reset(seed)`, `step(actions)`, `infos()`, `close()`."""
    shared = [item.batch if hasattr(item, "batch") and hasattr(item, "row") else None for item in items]
    first, count = shared[0], len(items)
    if first is not None and all(batch is first for batch in shared):
        rows = [item.row for item in items]
        if rows != list(range(first.num_envs)):
            raise ShapeError(f"the handles must be all {first.num_envs} rows of their world in order, not rows {rows}")
        return first
    if any(batch is not None and batch is other for i, batch in enumerate(shared) for other in shared[:i]):
        raise ShapeError("handles of one world must come alone, all its rows in order")
    if all(_has(item, "send", "receive") for item in items):
        return Lockstep(Links(items), count)
    for i, item in enumerate(items):
        if not _has(item, "reset", "step"):
            raise ConfigError(
                f"item {i} is a link without reset and step, which it needs when other items are not links"
            )
    return Lockstep(Threads(items), count)


def _has(item: Any, *names: str) -> bool:
    return all(callable(getattr(item, name, None)) for name in names)


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _as_array(actions: Any) -> np.ndarray:
    try:
        return np.asarray(actions)
    except Exception as e:
        raise ShapeError(f"actions: not an array: {e}") from None


def _copy_rows(states: Any, index: Any) -> Any:
    """A copy of the states of some environments, or of one."""
    if isinstance(states, dict):
        return {key: _copy_rows(part, index) for key, part in states.items()}
    if isinstance(states, tuple):
        return tuple(_copy_rows(part, index) for part in states)
    return states[index].copy()
