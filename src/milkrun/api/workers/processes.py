"""Starts, messages and stops worker processes.

The parent waits for connections and for process sentinels together, so it notices a death at once, also that of an idle
worker. After any failure it stops all processes, since the state of the environments is unknown. An interrupt while it
waits is no failure: no message is cut, and `awaited` says which replies are outstanding.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import selectors
import signal
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from milkrun.api.workers.shared import send_descriptor
from milkrun.api.workers.worker import RAISED, Reply, run_worker
from milkrun.core.errors import Closed, ConfigError, WorkerError, WorkerTimeout
from milkrun.core.interrupts import KEYBOARD, undisturbed

CLOSE_SECONDS = 5.0  # for environments to finish their step and close
FAILED_SECONDS = 0.5  # the same after a failure or an interrupt
TERMINATE_SECONDS = 1.0
POLL_SECONDS = 1.0  # a grandchild may hold a connection and a sentinel open, so exit codes are polled as well
UNGUARDED = (
    "; perhaps the script, which each worker imports, makes its pool in the open: it must do it below "
    '`if __name__ == "__main__":`'
)


class Command(NamedTuple):
    """A message to a worker, pickled, and the name of the command in errors."""

    name: str
    packed: bytes


class WorkerProcesses:
    """One process for each pickled function that makes an environment."""

    def __init__(self, packed: Sequence[bytes], start_method: str | None) -> None:
        methods = multiprocessing.get_all_start_methods()
        if start_method is None:
            start_method = "forkserver" if "forkserver" in methods else "spawn"
        if start_method not in methods:
            raise ConfigError(f"start_method={start_method!r}: must be None or one of {', '.join(methods)}")
        context: Any = multiprocessing.get_context(start_method)
        self.pids: list[int] = []
        self.awaited: dict[int, str] = {}
        """Workers that have not replied yet, and the command that each was sent."""
        self.closed_because = ""
        self._owner = os.getpid()
        self._processes: list[BaseProcess] = []
        self._connections: list[Connection] = []
        self._selector = selectors.DefaultSelector()
        _open.add(self)
        try:
            for i, one in enumerate(packed):
                self._start(context, i, one)
        except BaseException:
            self.stop("was not started", FAILED_SECONDS)
            raise

    def send(self, commands: Mapping[int, Command], descriptor: int | None = None) -> None:
        """Sends each of these workers a command, and an open file after it. `receive` returns the replies."""
        with undisturbed(KEYBOARD):  # a message that is cut makes a connection unusable
            try:
                for i, command in commands.items():
                    self.awaited[i] = command.name
                    try:
                        self._connections[i].send_bytes(command.packed)
                        if descriptor is not None:
                            send_descriptor(self._connections[i], descriptor)
                    except OSError:
                        raise self._death(i) from None
            except BaseException as e:
                self._fail(e)
                raise

    def receive(self, timeout: float | None = None) -> dict[int, Reply]:
        """Waits until no reply is outstanding. Returns the replies by worker."""
        replies: dict[int, Reply] = {}
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.awaited:
            seconds = POLL_SECONDS if deadline is None else min(POLL_SECONDS, max(0.0, deadline - time.monotonic()))
            try:
                events = self._selector.select(seconds)
            except Exception as e:  # another thread has closed the selector
                self._fail(e)
                raise
            with undisturbed(KEYBOARD):
                try:
                    self._read(sorted(key.data for key, _ in events), replies)
                    if not events:
                        self._check_late(deadline, timeout)
                except BaseException as e:
                    self._fail(e)
                    raise
        return replies

    def stop(self, reason: str, seconds: float = CLOSE_SECONDS) -> None:
        """Closes the connections, waits, terminates, kills. Idempotent; no-op in a forked copy."""
        if self.closed_because or os.getpid() != self._owner:
            return
        self.closed_because = reason
        _open.discard(self)
        try:
            self._close_descriptors()
            _join(self._processes, seconds)
        finally:  # also after an interrupt
            for stop in (BaseProcess.terminate, BaseProcess.kill):
                alive = [process for process in self._processes if process.is_alive()]
                for process in alive:
                    stop(process)
                _join(alive, TERMINATE_SECONDS)
        for process in self._processes:
            if not process.is_alive():
                process.close()

    def _start(self, context: Any, i: int, packed: bytes) -> None:
        ours, theirs = context.Pipe()
        self._connections.append(ours)
        process = context.Process(target=run_worker, args=(theirs, i, packed), name=f"milkrun-worker-{i}", daemon=True)
        try:
            process.start()
        finally:
            theirs.close()
        self._processes.append(process)
        self.pids.append(process.pid)
        self.awaited[i] = "start"
        self._selector.register(ours, selectors.EVENT_READ, (0, i))
        self._selector.register(process.sentinel, selectors.EVENT_READ, (1, i))

    def _read(self, ready: list[tuple[int, int]], replies: dict[int, Reply]) -> None:
        """Reads the replies that have come; the last reply of a worker is read before its death is reported."""
        for is_sentinel, i in ready:
            if is_sentinel or i not in self.awaited:  # an idle worker sends nothing: its connection was closed
                raise self._death(i)
            try:
                reply: Reply = pickle.loads(self._connections[i].recv_bytes())
            except (EOFError, OSError):
                raise self._death(i) from None
            if reply[0] == RAISED:
                raise self._failure(i, *reply[1])
            replies[i] = reply
            del self.awaited[i]

    def _check_late(self, deadline: float | None, timeout: float | None) -> None:
        for i in self.awaited:
            if self._processes[i].exitcode is not None:
                raise self._death(i)
        if deadline is not None and time.monotonic() >= deadline:
            raise _late(self.awaited, timeout)

    def _fail(self, error: BaseException) -> None:
        """Stops all processes because of this error. If another thread has stopped them before, raises Closed."""
        if self.closed_because and isinstance(error, Exception):
            raise Closed(f"this pool of {len(self.pids)} workers {self.closed_because}") from None
        self.stop(f"was closed by {type(error).__name__}: {str(error).partition(chr(10))[0]}", FAILED_SECONDS)

    def _death(self, i: int) -> WorkerError:
        """The error for a worker that has ended."""
        process, command = self._processes[i], self.awaited.get(i, "idle")
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
        if command == "start" and code == 1:  # an interpreter whose script has raised exits with 1
            text += UNGUARDED
        return WorkerError(text, index=i, pid=self.pids[i], exit_code=code, command=command)

    def _failure(self, i: int, summary: str, remote_traceback: str) -> WorkerError:
        """The error for a worker whose environment raised."""
        command = self.awaited[i]
        return WorkerError(
            f"worker {i} (process {self.pids[i]}) raised {summary} {_while(command)}\n\n{remote_traceback}",
            index=i,
            pid=self.pids[i],
            command=command,
            remote_traceback=remote_traceback,
        )

    def _close_descriptors(self) -> None:
        self._selector.close()
        for connection in self._connections:
            connection.close()

    def disown(self) -> None:
        """In a forked child: closes its copies, since a worker reads the end of its connection only when the last
        process that holds the other end is gone."""
        self.closed_because = "belongs to the process that made it"
        self._close_descriptors()


_open: weakref.WeakSet[WorkerProcesses] = weakref.WeakSet()


@atexit.register  # registered after multiprocessing's own function, so it runs before that terminates all children
def _stop_all() -> None:
    for processes in list(_open):
        processes.stop("was closed at exit")


def _disown_all() -> None:
    for processes in list(_open):
        processes.disown()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)


def _join(processes: Iterable[BaseProcess], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))


def _late(awaited: Mapping[int, str], timeout: float | None) -> WorkerTimeout:
    indices, command = sorted(awaited), next(iter(awaited.values()))
    workers = f"worker {indices[0]}" if len(indices) == 1 else f"workers {', '.join(map(str, indices))}"
    return WorkerTimeout(f"{workers} did not answer {command!r} in {timeout} s", indices=indices, command=command)


def _while(command: str) -> str:
    return "while idle" if command == "idle" else f"while answering {command!r}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
