"""The processes of a pool: how they are started, spoken to, waited for and ended, so that none is ever left behind.

The parent waits on pipes and on process sentinels alike, so a death is noticed at once, also that of a worker that was
asked for nothing. After any failure all processes are ended: what an environment was about to do is not known.
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
from milkrun.api.workers.wire import receive, send
from milkrun.api.workers.worker import Failure, unpack, work
from milkrun.core.errors import Closed, ConfigError, WorkerError, WorkerTimeout

CLOSE_SECONDS = 5.0  # for environments to finish their turn and close
FAILED_SECONDS = 0.5  # the same when one has failed: the error shall not wait for the others
TERMINATE_SECONDS = 1.0
GLANCE_SECONDS = 1.0  # how often processes are looked at whose pipe and sentinel a grandchild may hold open
UNGUARDED = (
    "; perhaps the script, which each worker imports, makes its pool in the open: it must do it below "
    "`if __name__ == \"__main__\":`"
)


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
        self._all = selectors.DefaultSelector()
        self._until: dict[int, selectors.BaseSelector] = {}
        _crews.add(self)
        try:
            for i, one in enumerate(packed):
                self._start(context, i, one)
        except BaseException:
            self.end("was not started", FAILED_SECONDS)
            raise

    def ask(self, commands: Mapping[int, Command], timeout: float | None) -> list[Any]:
        """Sends each of these workers its command and returns their answers, in this order."""
        self.send(commands)
        return self.hear(commands, timeout)

    def send(self, commands: Mapping[int, Command]) -> None:
        """Sends each of these workers its command; `hear` must follow."""
        try:
            for i, command in commands.items():
                try:
                    send(self.connections[i].fileno(), command.packed)
                    if command.descriptor is not None:
                        send_descriptor(self.connections[i], command.descriptor)
                except OSError:
                    raise self.death(i, command.name) from None
        except BaseException as e:
            self.fail(e)
            raise

    def hear(self, commands: Mapping[int, Command], timeout: float | None) -> list[Any]:
        """The answers to what was sent, in this order."""
        try:
            return self._receive({i: command.name for i, command in commands.items()}, timeout)
        except BaseException as e:
            self.fail(e)
            raise

    def greet(self) -> list[Any]:
        """What each worker tells when its environment is made, however long that takes."""
        try:
            return self._receive(dict.fromkeys(range(len(self.processes)), "start"), None)
        except BaseException as e:
            self.fail(e)
            raise

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
            index=i, pid=self.pids[i], command=command, remote_traceback=failure.remote_traceback,
        )  # fmt: skip

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

    def _receive(self, asked: dict[int, str], timeout: float | None) -> list[Any]:
        answers: dict[int, Any] = dict.fromkeys(asked)
        out = dict(asked)
        deadline = None if timeout is None else time.monotonic() + timeout
        while out:
            left = GLANCE_SECONDS if deadline is None else deadline - time.monotonic()
            self._wait_for(next(reversed(out)), max(0.0, min(left, GLANCE_SECONDS)))
            events = self._all.select(0)
            for is_death, i in sorted(key.data for key, _ in events):  # a last word is heard before a death
                if is_death:
                    raise self.death(i, asked.get(i, "idle"))
                try:
                    answer = unpack(receive(self.connections[i].fileno()))
                except (EOFError, OSError):
                    raise self.death(i, asked.get(i, "idle")) from None
                if isinstance(answer, Failure):
                    raise self.failure(i, asked[i], answer)
                answers[i] = answer
                del out[i]
            if not events:
                for i, command in out.items():
                    if self.processes[i].exitcode is not None:
                        raise self.death(i, command)
                if deadline is not None and time.monotonic() >= deadline:
                    raise _late(out, timeout)
        return list(answers.values())

    def _wait_for(self, i: int, seconds: float) -> None:
        """Until this worker has spoken or any has died. To be woken costs more than all else in a turn, so the parent
        sleeps until the one that was asked last is ready, when the others mostly are too."""
        until = self._until.get(i)
        if until is None:
            until = self._until[i] = selectors.DefaultSelector()
            until.register(self.connections[i], selectors.EVENT_READ)
            for process in self.processes:
                until.register(process.sentinel, selectors.EVENT_READ)
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
