"""`Workers`: environments in processes of their own, one command a worker and call.

What comes back does not depend on how it travelled: observations of spaces that are arrays are stacked, through shared
memory or not; all else comes as a list with one entry a worker.
"""

from __future__ import annotations

import pickle
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import wraps
from numbers import Real
from types import TracebackType
from typing import Any, Concatenate, Literal, NoReturn, ParamSpec, TypeVar

import numpy as np

from milkrun.api._remote import Absent, call_method
from milkrun.api.foreign import makers
from milkrun.api.workers.commands import (
    Command,
    application,
    command,
    pack,
    read_options,
    read_seeds,
    resets,
    steps,
)
from milkrun.api.workers.crew import FAILED_SECONDS, Crew
from milkrun.api.workers.memory import Slots, is_arrays, map_memory, open_memory, size_of
from milkrun.api.workers.worker import AsItCame, Failure, Hello, Start
from milkrun.core.errors import Closed, ConfigError, ResetNeeded, ShapeError

Ids = int | Sequence[int] | np.ndarray | None
Turn = tuple[Any, np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]
Resets = Sequence[bool] | np.ndarray | Literal["due"] | None
Given = ParamSpec("Given")
Result = TypeVar("Result")


def _one_thread(
    method: Callable[Concatenate[Workers, Given], Result],
) -> Callable[Concatenate[Workers, Given], Result]:
    """Refuses a second thread while the first is inside: it would take answers that are not its own. A turn that is
    interrupted inside is finished by the next call."""

    @wraps(method)
    def alone(self: Workers, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        inside = False
        try:
            inside = self._inside.acquire(blocking=False)
            if not inside:
                raise ConfigError("another thread is waiting for this pool: only one may use it at a time")
            return method(self, *args, **kwargs)
        except BaseException as e:
            if not isinstance(e, Exception) and self._crew.turn is not None:
                self._crew.turn.interrupted = True
            raise
        finally:
            if inside:
                self._inside.release()

    return alone


class Workers:
    """A process for each environment: Gymnasium's, classic ones with four results, ones of several agents.

    env_fns: functions of no arguments that make an environment each; they travel by cloudpickle.
    start_method: "forkserver" (None, where there is one), "spawn" or "fork".
    shared_memory: False sends observations through the pipes.
    timeout: seconds a call may take; None: as long as it takes. Making the environments is not limited.

    `ids` names the workers of a call, all by default; results stand in its order and are never changed by a later call.
    A worker that dies or raises is a `WorkerError`, one that is late a `WorkerTimeout`; both close the pool. An
    interrupt does not: the turn that it met is finished before the next call begins, and its results are dropped.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        start_method: str | None = None,
        shared_memory: bool = True,
        timeout: float | None = None,
    ) -> None:
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, Real) or not timeout > 0):
            raise ConfigError(f"timeout={timeout!r}: must be a number of seconds above 0, or None")
        packed = [pack(i, fn) for i, fn in enumerate(makers(env_fns))]
        self.timeout = timeout
        self._masks: list[np.ndarray | None] = [None] * len(packed)
        self._outdated: set[int] = set()  # whose masks a call may have changed
        self._inside = threading.RLock()
        self._all = list(range(len(packed)))
        self._begun = [False] * len(packed)
        self.ended = [False] * len(packed)
        """Which environments have ended an episode and not begun another."""
        self.starts: list[dict[str, Any]] = [{} for _ in packed]
        """The info of the last reset of each."""
        self._crew = Crew(packed, start_method)
        weakref.finalize(self, self._crew.end, "was forgotten")
        try:
            self._hello: list[Hello] = self._crew.greet()
            self._slots, self._shared = self._furnish(bool(shared_memory))
        except BaseException:
            self._crew.end("was not started", FAILED_SECONDS)
            raise

    @property
    def observation_spaces(self) -> list[Any]:
        """The observation space of each environment, as it says; None if it does not."""
        return [hello.observation_space for hello in self._hello]

    @property
    def action_spaces(self) -> list[Any]:
        """The action space of each environment, as it says; None if it does not."""
        return [hello.action_space for hello in self._hello]

    @property
    def masks(self) -> list[np.ndarray | None]:
        """What each environment allows: bool, never all False; None if it has no masks. They came with the last turn;
        after a `call` the environment is asked anew, unless it tells masks in its infos alone."""
        self.settle()
        if self._outdated and not self.under_way and not self._crew.ended:
            self._ask(dict.fromkeys(sorted(self._outdated), command("mask")))
        return self._masks

    @property
    def under_way(self) -> bool:
        """A turn has been sent and not yet received."""
        return self._crew.turn is not None

    @property
    def turns(self) -> int:
        """How often these environments were asked for something."""
        return self._crew.turns

    @property
    def pids(self) -> list[int]:
        """The process id of each worker."""
        return list(self._crew.pids)

    @_one_thread
    def reset(self, ids: Ids = None, seeds: Any = None, options: Any = None) -> tuple[Any, list[dict[str, Any]]]:
        """Begins an episode in these environments: observations and infos.

        seeds: an int s gives worker i the seed s + i; a list has one (or None) for each worker named.
        options: a dict for all, or a list with one (or None) for each worker named.
        """
        chosen = self.named(ids)
        given = read_seeds(chosen, seeds, self._hello), read_options(chosen, options, self._hello)
        self.check_open()
        # The answers of a turn under way come first, and would be taken for those of the reset.
        if self.under_way:
            self._hear()
            self._crew.turn = None
        commands = resets(chosen, *given)
        self._dispatch(commands)
        answers: list[Start] = self._hear()
        started = self._observations(commands, answers), [dict(answer.info) for answer in answers]
        self._crew.turn = None
        return started

    @_one_thread
    def step(self, actions: Sequence[Any] | np.ndarray, ids: Ids = None, *, reset: Resets = None) -> Turn | list[Any]:
        """One turn of these environments: observations, rewards, terminated, truncated, infos.

        reset: True for each worker named that shall be reset instead, or "due": those that have `ended`. Of these the
        reward is 0.0, both flags are False, and the info, that of the reset, has `reset_turn`.
        Environments of several agents, whose `step` returns lists: a list of what each returned, unchanged.
        """
        self._send(actions, ids, reset)
        return self._receive()

    @_one_thread
    def send(self, actions: Sequence[Any] | np.ndarray, ids: Ids = None, *, reset: Resets = None) -> None:
        """Lets the turn of `step` begin; the environments play while the caller does something else."""
        self._send(actions, ids, reset)

    def _send(self, actions: Sequence[Any] | np.ndarray, ids: Ids, reset: Resets) -> None:
        chosen = self.named(ids)
        try:
            count = len(actions)
        except TypeError:
            raise ShapeError(f"actions={actions!r}: must have one for each of {len(chosen)} workers") from None
        if count != len(chosen):
            raise ShapeError(f"{count} actions for {len(chosen)} workers")
        self.settle()
        commands = steps(chosen, actions)
        if reset is not None:
            asked = [self.ended[i] for i in chosen] if isinstance(reset, str) else reset
            if due := [i for i, is_due in zip(chosen, asked) if is_due]:
                commands |= resets(due, [None] * len(due), [None] * len(due))
        if early := [i for i, one in commands.items() if one.name == "step" and not self._begun[i]]:
            raise ResetNeeded(f"step before the first reset of worker {', '.join(map(str, early))}")
        self._dispatch(commands)

    @_one_thread
    def receive(self) -> Turn | list[Any]:
        """What the turn that was sent came to; as `step`."""
        return self._receive()

    def _receive(self) -> Turn | list[Any]:
        self.check_open()
        turn = self._crew.turn
        if turn is None:
            raise ShapeError("no turn is under way: its actions must be sent, as step_async() does, before step_wait()")
        answers = self._hear()
        if any(isinstance(answer, AsItCame) for answer in answers):
            came = [answer.result if isinstance(answer, AsItCame) else tuple(answer)[:2] for answer in answers]
            self._crew.turn = None
            return came
        obs = self._observations(turn.commands, answers)
        ends = [(0.0, False, False) if isinstance(answer, Start) else answer[1:4] for answer in answers]
        rewards, terminated, truncated = zip(*ends)
        infos = [{**one.info, "reset_turn": True} if isinstance(one, Start) else one.info for one in answers]
        flags = np.array(terminated, bool), np.array(truncated, bool)
        self._crew.turn = None
        return obs, np.array(rewards, np.float64), *flags, infos

    def call(self, name: str | Callable[..., Any], *args: Any, ids: Ids = None, **kwargs: Any) -> list[Any]:
        """Of each environment named, what its method returns or its attribute is, also one behind wrappers.

        name: instead, a function, which is called with the environment and the arguments.
        """
        if not isinstance(name, str):
            called = getattr(name, "__name__", type(name).__name__)
            return self.ask(application(f"call {called}", name, args, kwargs), ids)
        found = self.ask(application(f"call {name}", call_method, (name, args, kwargs), {}), ids)
        if lacking := [i for i, one in zip(self.named(ids), found) if one is Absent]:
            raise AttributeError(f"worker {', '.join(map(str, lacking))}: the environment has no {name!r}")
        return found

    def ask(self, question: Command, ids: Ids = None) -> list[Any]:
        """What each environment named answers to an `application` of a function."""
        return [answer.result for answer in self._ask(dict.fromkeys(self.named(ids), question))]

    def settle(self) -> None:
        """Finishes a turn that was interrupted; its results are nobody's."""
        if self._crew.turn is not None and self._crew.turn.interrupted and not self._crew.ended:
            self._hear()
            self._crew.turn = None

    def close(self) -> None:
        """Closes the environments and ends their processes; a second call does nothing."""
        self._crew.end("is closed")
        self._slots = None

    def named(self, ids: Ids) -> list[int]:
        """The workers that `ids` names."""
        if ids is None:
            return self._all
        try:
            array = np.asarray(ids)
        except Exception as e:
            raise ShapeError(f"ids: not an array: {e}") from None
        if array.dtype == np.bool_ or not np.issubdtype(array.dtype, np.integer) or array.ndim > 1 or not array.size:
            raise ShapeError(f"ids={ids!r}: must be an index of a worker, a list of such, or None")
        chosen: list[int] = array.reshape(-1).tolist()
        if len(set(chosen)) != len(chosen) or min(chosen) < 0 or max(chosen) >= len(self):
            raise ShapeError(f"ids={chosen}: must be different indices in 0..{len(self) - 1}")
        return chosen

    def check_open(self) -> None:
        """Raises Closed, with the reason, if the pool is closed."""
        if self._crew.ended:
            raise Closed(f"this pool of {len(self)} workers {self._crew.ended}")

    def __len__(self) -> int:
        return len(self._all)

    def __reduce__(self) -> NoReturn:
        raise ConfigError("a pool of processes cannot be copied or pickled: make another")

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _furnish(self, shared: bool) -> tuple[Slots | None, bool]:
        """Where observations lie, and whether the workers write there themselves."""
        space, *others = self.observation_spaces
        if not is_arrays(space) or any(other != space for other in others):
            return None, False
        if not shared:
            return Slots(space, len(self)), False
        fd = open_memory(size_of(space, len(self)))
        attach = Command("attach", pickle.dumps(("attach", (space, len(self)))), fd)
        try:
            self._crew.ask(dict.fromkeys(self._all, attach))
        finally:
            # Also where a worker has failed: it closes the descriptor.
            memory = map_memory(fd)
        return Slots(space, len(self), memory), True

    @_one_thread
    def _ask(self, commands: dict[int, Command]) -> list[Any]:
        self._dispatch(commands)
        answers = self._hear()
        self._crew.turn = None
        return answers

    def _dispatch(self, commands: dict[int, Command]) -> None:
        self.check_open()
        self.settle()
        if self.under_way:
            raise ConfigError("a turn is under way: its results must be taken before anything else is asked")
        try:
            self._crew.send(commands)
        except Exception:
            self.close()
            raise

    def _hear(self) -> list[Any]:
        """The answers to the turn under way; what they tell of the environments is taken in."""
        turn = self._crew.turn
        assert turn is not None
        try:
            answers = self._crew.collect(self.timeout)
        except Exception:
            self.close()
            raise
        for (i, asked), answer in zip(turn.commands.items(), answers):
            self._take_in(i, asked.name, answer)
        return answers

    def _take_in(self, i: int, asked: str, answer: Any) -> None:
        """What an answer says of its environment; read twice, it is the same."""
        if isinstance(answer, AsItCame):
            if asked == "mask":
                self._masks[i] = answer.result
                self._outdated.discard(i)
            elif asked != "step" and self._begun[i] and self._hello[i].tells_masks:
                self._outdated.add(i)
            return
        self._masks[i], self._begun[i] = answer.mask, True
        self._outdated.discard(i)
        if isinstance(answer, Start):
            self.ended[i], self.starts[i] = False, answer.info
        else:
            self.ended[i] = answer.terminated or answer.truncated
        if self._slots is not None and not self._shared:
            try:
                self._slots.write(i, answer.obs)
            except ShapeError as e:
                error = self._crew.failure(i, asked, Failure(f"ShapeError: {e}", ""))
                self._crew.fail(error)
                raise error from e

    def _observations(self, commands: dict[int, Command], answers: list[Any]) -> Any:
        """What these environments show."""
        if self._slots is None:
            return [answer.obs for answer in answers]
        return self._slots.read(None if list(commands) == self._all else list(commands))
