"""Environments that share nothing, stepped in lockstep: on the turn after an end an environment is reset, not stepped
(Gymnasium's NEXT_STEP).

`Threads` plays any environment, each in a thread of its own; `Links` plays those that reply from elsewhere and sends
to all of them before it waits for the first. `Lockstep` plays either like a batch.
"""

from __future__ import annotations

import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

import numpy as np

from milkrun.api.foreign import read_reset, read_step, reset_takes
from milkrun.core.errors import ConfigError, ResetNeeded, ShapeError, WorkerError

RESET = object()
"""In the place of an action: begin an episode."""

StepResult = tuple[Any, np.ndarray, np.ndarray, np.ndarray]
"""states, rewards float64, terminated, truncated of all environments."""


class Reply(NamedTuple):
    """What one environment returns for a step or a reset."""

    obs: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Players(Protocol):
    """A way to play a turn: a reply or an exception of each environment, after all have finished."""

    def check_seeds(self) -> None: ...

    def play(self, actions: Sequence[Any], seeds: Sequence[int | None]) -> list[Reply | Exception]: ...

    def close(self) -> list[Exception | None]: ...


class Threads:
    """Environments with `reset` and `step`, classic or Gymnasium. Only its own thread touches an environment."""

    def __init__(self, envs: Sequence[Any]) -> None:
        self._envs = envs
        self._seeding = [_seeding(env) for env in envs]
        self._threads = [EnvThread(f"Envs-{i}") for i in range(len(envs))]

    def check_seeds(self) -> None:
        if None in self._seeding:
            which = self._seeding.index(None)
            raise ConfigError(f"item {which} takes no seed, neither reset(seed=...) nor seed(...)")

    def play(self, actions: Sequence[Any], seeds: Sequence[int | None]) -> list[Reply | Exception]:
        return self._run([partial(self._play, *one) for one in zip(range(len(actions)), actions, seeds)])

    def close(self) -> list[Exception | None]:
        closed = self._run([partial(_close, env) for env in self._envs])
        for thread in self._threads:
            thread.end()
        return closed

    def _run(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Makes a call in each thread. Returns results and exceptions."""
        futures = [thread.submit(call) for thread, call in zip(self._threads, calls)]
        return [_catch(future.result) for future in futures]

    def _play(self, i: int, action: Any, seed: int | None) -> Reply:
        env = self._envs[i]
        if action is not RESET:
            return _step_reply(env.step(action), env)
        if seed is None:
            return _reset_reply(env.reset(), env)
        if self._seeding[i] == "reset":
            return _reset_reply(env.reset(seed=seed), env)
        env.seed(seed)
        return _reset_reply(env.reset(), env)


class EnvThread:
    """A thread that makes one call after another. It ends with this object. It is a daemon, so the interpreter exits
    even if an environment hangs."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=_make_calls, args=(self._calls,), name=name, daemon=True)
        self._thread.start()
        weakref.finalize(self, self._calls.put, None)

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Queues a call and returns its future."""
        future: Future[Any] = Future()
        self._calls.put((future, function))
        return future

    def end(self) -> None:
        """Waits until all calls are done."""
        self._calls.put(None)
        self._thread.join()


class Links:
    """Environments that reply from elsewhere: `send(action)` starts a step and `send(None)`, with a seed
    `send(None, seed=s)`, an episode; `receive()` waits for what `step` or `reset` would have returned. One with
    `check(action)` may raise there what it would raise at `send`; then no link is sent anything."""

    def __init__(self, envs: Sequence[Any]) -> None:
        self._envs = envs
        self._awaited: list[int] = []  # sent and not yet received; some are left after an interrupt

    def check_seeds(self) -> None:
        """No-op: a link that takes no seed raises by itself."""

    def play(self, actions: Sequence[Any], seeds: Sequence[int | None]) -> list[Reply | Exception]:
        while self._awaited:  # replies to an interrupted turn are not replies to this one
            _catch(self._envs[self._awaited.pop()].receive)
        replies: list[Any] = [_catch(partial(_check, env, action)) for env, action in zip(self._envs, actions)]
        if any(replies):
            return replies
        for i, (env, action, seed) in enumerate(zip(self._envs, actions, seeds)):
            self._awaited.append(i)  # before it is sent: an interrupt may come right after
            replies[i] = _catch(partial(_send, env, action, seed))
            if replies[i] is not None:
                self._awaited.remove(i)
        for i, (env, action) in enumerate(zip(self._envs, actions)):
            if replies[i] is None:
                replies[i] = _catch(partial(_receive, env, action is RESET))
                self._awaited.remove(i)
        return replies

    def close(self) -> list[Exception | None]:
        return [_catch(partial(_close, env)) for env in self._envs]


class Lockstep:
    """Environments played like a batch. After a failure or an interrupt not all have moved, so a step raises
    ResetNeeded."""

    def __init__(self, players: Players, count: int) -> None:
        self._players = players
        self.num_envs = count
        self._due = np.zeros(count, bool)
        self._is_complete = True
        self._infos: list[dict[str, Any]] = []

    def reset(self, seed: int | Sequence[int] | None) -> Any:
        """Begins an episode in every environment. Returns the states."""
        seeds = _read_seeds(seed, self.num_envs)
        if seed is not None:
            self._players.check_seeds()
        return self._play([RESET] * self.num_envs, seeds, "reset")[0]

    def step(self, actions: Sequence[Any]) -> StepResult:
        """Steps each environment, or resets it where that is due."""
        if not self._is_complete:
            raise ResetNeeded("an environment failed in the last turn, or an interrupt came: reset before the next one")
        resets = [RESET if due else action for due, action in zip(self._due, actions)]
        return self._play(resets, [None] * self.num_envs, "step")

    def infos(self) -> list[dict[str, Any]]:
        """The infos of the last turn."""
        return self._infos

    def due(self) -> np.ndarray:
        """Environments whose next turn is a reset."""
        return self._due

    def close(self) -> None:
        _raise_first(self._players.close(), "close")

    def _play(self, actions: Sequence[Any], seeds: Sequence[int | None], command: str) -> StepResult:
        self._is_complete = False
        replies = self._players.play(actions, seeds)
        _raise_first(replies, command)
        obs, rewards, terminated, truncated, infos = zip(*replies)
        states, ends = stack(obs), (np.array(terminated, bool), np.array(truncated, bool))
        result = states, np.array(rewards, np.float64), *ends
        self._infos = list(infos)
        self._due = ends[0] | ends[1]
        self._is_complete = True
        return result


def _reset_reply(result: Any, env: Any) -> Reply:
    obs, info = read_reset(result, env)
    return Reply(obs, 0.0, False, False, info)


def _step_reply(result: Any, env: Any) -> Reply:
    return Reply(*read_step(result, env))


def stack(observations: Sequence[Any]) -> Any:
    """Stacks observations of one structure: arrays with a first axis of environments, or a dict or tuple of such."""
    first = observations[0]
    if isinstance(first, dict):
        for i, obs in enumerate(observations):
            if not isinstance(obs, dict) or obs.keys() != first.keys():
                raise ShapeError(f"item {i} has other keys than item 0")
        return {key: stack([obs[key] for obs in observations]) for key in first}
    if isinstance(first, tuple):
        if any(not isinstance(obs, tuple) or len(obs) != len(first) for obs in observations):
            raise ShapeError("items have tuples of different lengths")
        return tuple(stack(parts) for parts in zip(*observations))
    arrays = [np.asarray(obs) for obs in observations]
    for i, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ShapeError(f"item {i} has the shape {array.shape}, item 0 {arrays[0].shape}")
    return np.stack(arrays)


def _read_seeds(seed: int | Sequence[int] | None, count: int) -> Sequence[int | None]:
    """A seed for each: of an int s environment i has s + i."""
    if seed is None:
        return [None] * count
    # imported here: it imports numba, which other environments do not need
    from milkrun.core.arguments import check_seed, is_list

    if not is_list(seed):
        first = check_seed(seed)
        return [check_seed(first + i) for i in range(count)]
    seeds = [check_seed(one) for one in seed]  # type: ignore[union-attr]
    if len(seeds) != count:
        raise ShapeError(f"{len(seeds)} seeds for {count} environments")
    return seeds


def _make_calls(calls: SimpleQueue[Any]) -> None:
    while (call := calls.get()) is not None:
        future, function = call
        try:
            future.set_result(function())
        except BaseException as e:
            future.set_exception(e)
        del call, future, function  # else the last result would be held while this thread waits


def _catch(call: Callable[[], Any]) -> Any:
    """Makes a call; returns an exception instead of raising it."""
    try:
        return call()
    except Exception as e:
        return e


def _check(env: Any, action: Any) -> None:
    check = getattr(env, "check", None)
    if action is not RESET and callable(check):
        check(action)


def _send(env: Any, action: Any, seed: int | None) -> None:
    if action is not RESET:
        env.send(action)
    elif seed is None:
        env.send(None)
    else:
        env.send(None, seed=seed)


def _receive(env: Any, is_reset: bool) -> Reply:
    result = env.receive()
    return _reset_reply(result, env) if is_reset else _step_reply(result, env)


def _close(env: Any) -> None:
    close = getattr(env, "close", None)
    if callable(close):
        close()


def _seeding(env: Any) -> str | None:
    """How an environment is seeded: "reset", "seed" or not at all."""
    if "seed" in reset_takes(env):
        return "reset"
    return "seed" if callable(getattr(env, "seed", None)) else None


def _raise_first(replies: Sequence[Any], command: str) -> None:
    """Raises the first failure of a turn as a WorkerError that names its index."""
    failed = [i for i, reply in enumerate(replies) if isinstance(reply, Exception)]
    if not failed:
        return
    error = replies[failed[0]]
    text = f"item {failed[0]} failed at its {command}: {''.join(traceback.format_exception_only(error)).strip()}"
    if others := failed[1:]:
        text += f" (so did {', '.join(map(str, others))})"
    trace = "".join(traceback.format_exception(error))
    raise WorkerError(text, index=failed[0], command=command, remote_traceback=trace) from error
