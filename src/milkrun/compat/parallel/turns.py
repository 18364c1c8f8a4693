"""One turn of environments that know nothing of each other: each is asked to step or to begin anew, and answers.

`Threads` plays any environment, each in a thread of its own for life; `Links` plays those that answer from elsewhere,
all of which are asked before the first is waited for. `OneByOne` keeps either on one beat (Gymnasium's NEXT_STEP): on
the turn after an end an environment is reset, not stepped.
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

Turn = tuple[Any, np.ndarray, np.ndarray, np.ndarray]
"""states, rewards float64, terminated, truncated: what a turn of all environments gives."""


class Answer(NamedTuple):
    """What one environment says after a step or a reset."""

    obs: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Asks(Protocol):
    """A way to play a turn: an answer or the exception of each environment, after all have finished."""

    def check_seeds(self) -> None: ...

    def ask(self, actions: Sequence[Any], seeds: Sequence[int | None]) -> list[Answer | Exception]: ...

    def resume(self) -> list[Answer | Exception] | None: ...

    def close(self) -> list[Exception | None]: ...


class Threads:
    """Environments with `reset` and `step`, classic or Gymnasium. Each is only ever touched by its own thread."""

    def __init__(self, envs: Sequence[Any]) -> None:
        self._envs = envs
        self._seeding = [_seeding(env) for env in envs]
        self._threads = [CallThread(f"Envs-{i}") for i in range(len(envs))]
        self._calls: list[Call] = []  # of the last turn

    def check_seeds(self) -> None:
        if None in self._seeding:
            which = self._seeding.index(None)
            raise ConfigError(f"item {which} takes no seed, neither reset(seed=...) nor seed(...)")

    def ask(self, actions: Sequence[Any], seeds: Sequence[int | None]) -> list[Answer | Exception]:
        self._calls = [Call(partial(self._play, *one)) for one in zip(range(len(actions)), actions, seeds)]
        return self._made(self._calls)

    def resume(self) -> list[Answer | Exception] | None:
        """The answers of the last turn, also if it was interrupted."""
        return self._made(self._calls) if self._calls else None

    def close(self) -> list[Exception | None]:
        self._calls = []
        closed = self._made([Call(partial(_close, env)) for env in self._envs])
        for thread in self._threads:
            thread.end()
        return closed

    def _made(self, calls: Sequence[Call]) -> list[Any]:
        """What each call returns, or the exception it ended with."""
        for thread, call in zip(self._threads, calls):
            thread.put(call)
        return [call.result.result() for call in calls]

    def _play(self, i: int, action: Any, seed: int | None) -> Answer:
        env = self._envs[i]
        if action is not RESET:
            return played(env.step(action), env)
        if seed is None:
            return begun(env.reset(), env)
        if self._seeding[i] == "reset":
            return begun(env.reset(seed=seed), env)
        env.seed(seed)
        return begun(env.reset(), env)


class Call:
    """A call and what came of it. It is made once, however often it is asked for."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function: Callable[[], Any] | None = function
        self.result: Future[Any] = Future()

    def make(self) -> None:
        """Makes it, unless that was done."""
        function, self._function = self._function, None  # which holds the environment, and the result may be kept
        if function is None:
            return
        try:
            self.result.set_result(_kept(function))
        except BaseException as e:
            self.result.set_exception(e)


class CallThread:
    """A thread that makes one call after another. It ends with this object; the interpreter leaves without waiting for
    it, since an environment may hang."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=_work, args=(self._calls,), name=name, daemon=True)
        self._thread.start()
        weakref.finalize(self, self._calls.put, None)

    def put(self, call: Call) -> None:
        """Lets the call begin when those before it are done."""
        self._calls.put(call)

    def end(self) -> None:
        """Waits until all calls are done."""
        self._calls.put(None)
        self._thread.join()


class Links:
    """Environments that answer from elsewhere: `send(action)` asks for a step and `send(None)`, with a seed
    `send(None, seed=s)`, for a new episode; `receive()` waits for what `step` or `reset` would have returned. One that
    has `check(action)` may raise there what it would at `send`: then nobody is asked, and nobody waits for who was
    not."""

    def __init__(self, envs: Sequence[Any]) -> None:
        self._envs = envs
        self._owed: list[int] = []  # those asked and not yet answered, if a turn was interrupted

    def check_seeds(self) -> None:
        """A link that takes none says so itself."""

    def ask(self, actions: Sequence[Any], seeds: Sequence[int | None]) -> list[Answer | Exception]:
        # What an interrupted turn left on the way comes first: it is no answer to this one.
        while self._owed:
            _kept(self._envs[self._owed.pop()].receive)
        answers: list[Any] = [_kept(partial(_check, env, action)) for env, action in zip(self._envs, actions)]
        if any(answers):
            return answers
        for i, (env, action, seed) in enumerate(zip(self._envs, actions, seeds)):
            self._owed.append(i)  # before it is: an interrupt may come right after
            answers[i] = _kept(partial(_send, env, action, seed))
            if answers[i] is not None:
                self._owed.remove(i)
        for i, (env, action) in enumerate(zip(self._envs, actions)):
            if answers[i] is None:
                answers[i] = _kept(partial(_received, env, action is RESET))
                self._owed.remove(i)
        return answers

    def resume(self) -> None:
        """What goes on elsewhere when a turn is interrupted is not known here."""

    def close(self) -> list[Exception | None]:
        return [_kept(partial(_close, env)) for env in self._envs]


class OneByOne:
    """Environments on one beat, played like a batch. After a failure it asks for a reset: not all have moved. A turn
    that was interrupted is finished by the next call, where that can be done."""

    def __init__(self, way: Asks, count: int) -> None:
        self._way, self.num_envs = way, count
        self._due = np.zeros(count, bool)
        self._whole, self._failed = True, False
        self._infos: list[dict[str, Any]] = []

    def reset(self, seed: int | Sequence[int] | None) -> Any:
        """Begins an episode everywhere, whatever was due; the states."""
        seeds = _seeds(seed, self.num_envs)
        if seed is not None:
            self._way.check_seeds()
        return self._turn([RESET] * self.num_envs, seeds, "reset")[0]

    def step(self, actions: Sequence[Any]) -> Turn:
        """A step of each, or the reset that is due."""
        if not self._whole:
            self._finish()
        asked = [RESET if due else action for due, action in zip(self._due, actions)]
        return self._turn(asked, [None] * self.num_envs, "step")

    def infos(self) -> list[dict[str, Any]]:
        """What each said beside the last turn."""
        return self._infos

    def close(self) -> None:
        _raise_first(self._way.close(), "close")

    def _turn(self, actions: Sequence[Any], seeds: Sequence[int | None], command: str) -> Turn:
        self._whole = self._failed = False
        return self._taken_in(self._way.ask(actions, seeds), command)

    def _finish(self) -> None:
        """The end of a turn that was interrupted; its results are nobody's."""
        answers = None if self._failed else self._way.resume()
        if answers is None:
            raise ResetNeeded("an environment failed in the last turn, or an interrupt came: reset before the next one")
        self._taken_in(answers, "step")

    def _taken_in(self, answers: Sequence[Any], command: str) -> Turn:
        self._failed = any(isinstance(answer, Exception) for answer in answers)
        _raise_first(answers, command)
        obs, rewards, terminated, truncated, infos = zip(*answers)
        states, ends = stacked(obs), (np.array(terminated, bool), np.array(truncated, bool))
        turn = states, np.array(rewards, np.float64), *ends
        self._infos, self._due, self._whole = list(infos), ends[0] | ends[1], True
        return turn

    def due(self) -> np.ndarray:
        """Those whose next turn is a reset."""
        if not self._whole and not self._failed:
            self._finish()
        return self._due


def begun(result: Any, env: Any) -> Answer:
    """What `reset` of an environment returned."""
    obs, info = read_reset(result, env)
    return Answer(obs, 0.0, False, False, info)


def played(result: Any, env: Any) -> Answer:
    """What `step` of an environment returned."""
    return Answer(*read_step(result, env))


def stacked(observations: Sequence[Any]) -> Any:
    """Observations of one structure as arrays with a first axis of environments; a dict or tuple of such."""
    first = observations[0]
    if isinstance(first, dict):
        for i, obs in enumerate(observations):
            if not isinstance(obs, dict) or obs.keys() != first.keys():
                raise ShapeError(f"item {i} shows other things than item 0")
        return {key: stacked([obs[key] for obs in observations]) for key in first}
    if isinstance(first, tuple):
        if any(not isinstance(obs, tuple) or len(obs) != len(first) for obs in observations):
            raise ShapeError("items show tuples of different lengths")
        return tuple(stacked(parts) for parts in zip(*observations))
    arrays = [np.asarray(obs) for obs in observations]
    for i, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ShapeError(f"item {i} shows the shape {array.shape}, item 0 {arrays[0].shape}")
    return np.stack(arrays)


def _seeds(seed: int | Sequence[int] | None, count: int) -> Sequence[int | None]:
    """The seed of each: of an int the one, its followers for the others."""
    if seed is None:
        return [None] * count
    # here, since it brings numba, which other people's environments can do without
    from milkrun.core.arguments import check_seed, is_list

    if not is_list(seed):
        first = check_seed(seed)
        return [check_seed(first + i) for i in range(count)]
    seeds = [check_seed(one) for one in seed]  # type: ignore[union-attr]
    if len(seeds) != count:
        raise ShapeError(f"{len(seeds)} seeds for {count} environments")
    return seeds


def _work(calls: SimpleQueue[Any]) -> None:
    while (call := calls.get()) is not None:
        call.make()
        del call  # whose result would be held while this thread waits


def _kept(call: Callable[[], Any]) -> Any:
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


def _received(env: Any, is_reset: bool) -> Answer:
    result = env.receive()
    return begun(result, env) if is_reset else played(result, env)


def _close(env: Any) -> None:
    close = getattr(env, "close", None)
    if callable(close):
        close()


def _seeding(env: Any) -> str | None:
    """How an environment is seeded: "reset", "seed" or not at all."""
    if "seed" in reset_takes(env):
        return "reset"
    return "seed" if callable(getattr(env, "seed", None)) else None


def _raise_first(answers: Sequence[Any], command: str) -> None:
    """The first failure of a turn, if there is any, as a sentence with its index."""
    failed = [i for i, answer in enumerate(answers) if isinstance(answer, Exception)]
    if not failed:
        return
    error = answers[failed[0]]
    text = f"item {failed[0]} failed at its {command}: {''.join(traceback.format_exception_only(error)).strip()}"
    if others := failed[1:]:
        text += f" (so did {', '.join(map(str, others))})"
    trace = "".join(traceback.format_exception(error))
    raise WorkerError(text, index=failed[0], command=command, remote_traceback=trace) from error
