"""The processes of a pool: how they are started, spoken to, waited for and ended, so that none is ever left behind.

The parent waits on pipes and on process sentinels alike, so a death is noticed at once, also that of a worker that was
asked for nothing. After any failure all processes are ended: what an environment was about to do is not known.

An interrupt is no failure. What was asked is written down in a `Turn` before the first word of it is sent, and stays
there until its answers have been used; who was interrupted meanwhile goes on where it stopped, and no answer is ever
taken for that of another turn.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import selectors
import signal
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from milkrun.api.workers.commands import Command
from milkrun.api.workers.memory import send_descriptor
from milkrun.api.workers.wire import Incoming, Outgoing, send
from milkrun.api.workers.worker import Failure, unpack, work
from milkrun.core.errors import Closed, ConfigError, WorkerError, WorkerTimeout
from milkrun.core.interrupts import KEYBOARD, undisturbed

CLOSE_SECONDS = 5.0  # for environments to finish their turn and close
FAILED_SECONDS = 0.5  # the same when one has failed: the error shall not wait for the others
TERMINATE_SECONDS = 1.0
GLANCE_SECONDS = 1.0  # how often processes are looked at whose pipe and sentinel a grandchild may hold open
UNGUARDED = (
    "; perhaps the script, which each worker imports, makes its pool in the open: it must do it below "
    '`if __name__ == "__main__":`'
)


class Turn:
    """What was asked of some workers, and how far it has come.

    interrupted: an interrupt came before its answers were used, so they are nobody's.
    """

    def __init__(self, commands: Mapping[int, Command]) -> None:
        self.commands = dict(commands)
        self.unsent = {i: Outgoing(one.packed) for i, one in commands.items()}
        self.unanswered = {i: Incoming() for i in commands}
        self.answers: dict[int, Any] = dict.fromkeys(commands)
        self.interrupted = False

    def name_of(self, i: int) -> str:
        """What worker i was asked for."""
        return self.commands[i].name if i in self.commands else "idle"


class Crew:
    """One process for each packed function that makes an environment."""

    def __init__(self, packed: Sequence[bytes], start_method: str | None) -> None:
        methods = multiprocessing.get_all_start_methods()
        if start_method is None:
            start_method = "forkserver" if "forkserver" in methods else "spawn"
        if start_method not in methods:
            raise ConfigError(f"start_method={start_method!r}: must be None or one of {', '.join(methods)}")
        context: Any = multiprocessing.get_context(start_method)
        self.owner = os.getpid()
        self.processes: list[BaseProcess] = []
        self.connections: list[Connection] = []
        self.pids: list[int] = []
        self.ended = ""
        self.turn: Turn | None = None
        self.turns = 0
        self._all = selectors.DefaultSelector()
        self._until: dict[int, selectors.BaseSelector] = {}
        _crews.add(self)
        try:
            for i, one in enumerate(packed):
                self._start(context, i, one)
        except BaseException:
            self.end("was not started", FAILED_SECONDS)
            raise

    def ask(self, commands: Mapping[int, Command]) -> list[Any]:
        """Sends each of these workers its command and returns their answers, in this order, however long that takes."""
        self.send(commands)
        answers = self.collect(None)
        self.turn = None
        return answers

    def send(self, commands: Mapping[int, Command]) -> None:
        """Sends each of these workers its command; `collect` must follow, and then `turn` be forgotten."""
        turn = Turn(commands)
        self.turn, self.turns = turn, self.turns + 1
        try:
            self._post(turn)
        except Exception as e:
            self.fail(e)
            raise

    def collect(self, timeout: float | None) -> list[Any]:
        """The answers to what was sent, in the order of its commands; asked again, the same."""
        assert self.turn is not None
        try:
            if self.turn.unsent:
                self._post(self.turn)
            self._receive(self.turn, timeout)
        except Exception as e:
            self.fail(e)
            raise
        return list(self.turn.answers.values())

    def greet(self) -> list[Any]:
        """What each worker tells when its environment is made, however long that takes."""
        turn = Turn({i: Command("start", b"") for i in range(len(self.processes))})
        try:
            self._receive(turn, None)
        except BaseException as e:
            self.fail(e)
            raise
        return list(turn.answers.values())

    def fail(self, error: BaseException) -> None:
        """Ends all processes because of this error, unless it came of another thread's ending them: that is Closed."""
        if self.ended and isinstance(error, Exception):
            raise Closed(f"this pool of {len(self.pids)} workers {self.ended}") from None
        self.end(f"was closed by {type(error).__name__}: {str(error).partition(chr(10))[0]}", FAILED_SECONDS)

    def end(self, reason: str, seconds: float = CLOSE_SECONDS) -> None:
        """Asks all processes to close, waits, terminates, kills. Only the first call counts, and only the owner's."""
        if self.ended or os.getpid() != self.owner:
            return
        self.ended = reason
        if self.turn is not None and self.turn.interrupted:
            seconds = FAILED_SECONDS  # whoever interrupted it does not want to wait
        self.turn = None
        _crews.discard(self)
        self._close_selectors()
        for connection in self.connections:
            try:
                os.set_blocking(connection.fileno(), False)
                send(connection.fileno(), b"")
            except OSError:
                pass  # dead, or too busy to read: it will meet the closed pipe
            connection.close()
        _join(self.processes, seconds)
        for stop in ("terminate", "kill"):
            left = [process for process in self.processes if process.is_alive()]
            for process in left:
                getattr(process, stop)()
            _join(left, TERMINATE_SECONDS)
        for process in self.processes:
            if not process.is_alive():
                process.close()

    def death(self, i: int, command: str) -> WorkerError:
        """The error that tells how worker i ended."""
        process = self.processes[i]
        if process.exitcode is None:
            process.join(TERMINATE_SECONDS)
        code = process.exitcode
        if code is None:
            how = "closed its pipe"
        elif code < 0:
            how = f"was killed by signal {-code} ({_signal_name(-code)})"
        else:
            how = f"ended with exit code {code}"
        text = f"worker {i} (process {self.pids[i]}) {how} {_while(command)}"
        if command == "start" and code == 1:  # how an interpreter ends whose script has raised
            text += UNGUARDED
        return WorkerError(text, index=i, pid=self.pids[i], exit_code=code, command=command)

    def failure(self, i: int, command: str, failure: Failure) -> WorkerError:
        """The error that tells what the environment of worker i raised."""
        text = f"worker {i} (process {self.pids[i]}) raised {failure.summary} {_while(command)}"
        return WorkerError(
            f"{text}\n\n{failure.remote_traceback}" if failure.remote_traceback else text,
            index=i,
            pid=self.pids[i],
            command=command,
            remote_traceback=failure.remote_traceback,
        )

    def _start(self, context: Any, i: int, packed: bytes) -> None:
        ours, theirs = context.Pipe()
        self.connections.append(ours)
        process = context.Process(target=work, args=(theirs, i, packed), name=f"milkrun-worker-{i}", daemon=True)
        try:
            process.start()
        finally:
            theirs.close()
        self.processes.append(process)
        self.pids.append(process.pid)
        self._all.register(ours, selectors.EVENT_READ, (0, i))
        self._all.register(process.sentinel, selectors.EVENT_READ, (1, i))

    def _post(self, turn: Turn) -> None:
        """Sends what has not been sent."""
        with undisturbed(KEYBOARD):
            for i, message in list(turn.unsent.items()):
                try:
                    message.write(self.connections[i].fileno())
                    descriptor = turn.commands[i].descriptor
                    if descriptor is not None:
                        send_descriptor(self.connections[i], descriptor)
                except OSError:
                    raise self.death(i, turn.name_of(i)) from None
                del turn.unsent[i]

    def _receive(self, turn: Turn, timeout: float | None) -> None:
        """Waits for the answers that have not come."""
        out = turn.unanswered
        for i in [i for i, message in out.items() if message.begun]:
            self._take(turn, i)
        deadline = None if timeout is None else time.monotonic() + timeout
        while out:
            left = GLANCE_SECONDS if deadline is None else deadline - time.monotonic()
            self._wait_for(next(reversed(out)), max(0.0, min(left, GLANCE_SECONDS)))
            events = self._all.select(0)
            with undisturbed(KEYBOARD):
                for is_death, i in sorted(key.data for key, _ in events):  # a last word is read before a death
                    # Who was asked for nothing has nothing to say: its pipe can be read because it was closed.
                    if is_death or i not in out:
                        raise self.death(i, turn.name_of(i))
                    self._take(turn, i)
            if not events:
                for i in out:
                    if self.processes[i].exitcode is not None:
                        raise self.death(i, turn.name_of(i))
                if deadline is not None and time.monotonic() >= deadline:
                    raise _late({i: turn.name_of(i) for i in out}, timeout)

    def _take(self, turn: Turn, i: int) -> None:
        """Reads the answer of worker i."""
        try:
            answer = unpack(turn.unanswered[i].read(self.connections[i].fileno()))
        except (EOFError, OSError):
            raise self.death(i, turn.name_of(i)) from None
        if isinstance(answer, Failure):
            raise self.failure(i, turn.name_of(i), answer)
        turn.answers[i] = answer
        del turn.unanswered[i]

    def _wait_for(self, i: int, seconds: float) -> None:
        """Until this worker has spoken or any has died. To be woken costs more than all else in a turn, so the parent
        sleeps until the one that was asked last is ready, when the others mostly are too."""
        until = self._until.get(i)
        if until is None:
            until = selectors.DefaultSelector()
            until.register(self.connections[i], selectors.EVENT_READ)
            for process in self.processes:
                until.register(process.sentinel, selectors.EVENT_READ)
            self._until[i] = until
        until.select(seconds)

    def _close_selectors(self) -> None:
        for selector in (self._all, *self._until.values()):
            selector.close()


_crews: weakref.WeakSet[Crew] = weakref.WeakSet()


@atexit.register  # after multiprocessing's own, so before it: environments are closed, not terminated
def _end_all() -> None:
    for crew in list(_crews):
        crew.end("was closed at exit")


def _after_fork_in_child() -> None:
    """A child, ours or the user's, drops the parent's ends of all pipes: a worker sees its pipe closed when the last
    process that holds the other end is gone."""
    for crew in list(_crews):
        crew.ended = "belongs to the process that made it"
        crew._close_selectors()
        for connection in crew.connections:
            connection.close()
    _crews.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _join(processes: Iterable[BaseProcess], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))


def _late(out: dict[int, str], timeout: float | None) -> WorkerTimeout:
    indices, command = sorted(out), next(iter(out.values()))
    who = f"worker {indices[0]}" if len(indices) == 1 else f"workers {', '.join(map(str, indices))}"
    return WorkerTimeout(f"{who} did not answer {command!r} in {timeout} s", indices=indices, command=command)


def _while(command: str) -> str:
    return "while idle" if command == "idle" else f"while answering {command!r}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
