"""Simulators started for the environments of this process: one an address, shared, and ended with the last of them.

A simulator is a child process, `python -m milkrun simulate`. It leaves by itself when this process dies.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO

from milkrun.core.clock import listening
from milkrun.core.errors import LinkError, LinkTimeout
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.link.address import HERE, Address
from milkrun.tracking.link.groups import compile_code
from milkrun.tracking.link.wire import MOST_ENVS

MINUTE = 60.0
GRACE = 2.0
"""Seconds that a simulator has to leave by itself."""
LINES = 5
"""Of what a simulator said, in an error."""

Place = tuple[str, int, str | None]
_running: dict[tuple[int, Place], Simulator] = {}
"""By process and what was asked for."""
_lock = threading.RLock()
_compiled: set[str] = set()


def share(config: TrackingConfig, address: Address, row: int) -> Simulator | None:
    """The simulator of this process at an address, one user more; it is started by `ensure`. None: another process has
    the environment 0, and starts it."""
    here = os.getpid(), _place(config, address)
    if here not in _running and row != 0 and address.port != 0:
        return None
    _compile(config)
    with _lock:
        simulator = _running.get(here)
        if simulator is None:
            simulator = _running[here] = Simulator(address, config)
        simulator.users += 1
        return simulator


def _place(config: TrackingConfig, address: Address) -> Place:
    """What environments share a simulator by. At a port that they name there can only be one, and who has another token
    is told so; free ports are as many as there are tokens."""
    host = HERE if address.host == "localhost" else address.host
    return host, address.port, config.token_file if address.port == 0 else None


def _compile(config: TrackingConfig) -> None:
    """Has the code that a simulator will need compiled, so that starting one takes no longer than loading it."""
    with _lock:
        if config.action_mode not in _compiled:
            with listening(_tell_compiling()):
                compile_code(config)
            _compiled.add(config.action_mode)


class Simulator:
    """A child process and those who use it."""

    def __init__(self, address: Address, config: TrackingConfig) -> None:
        self._place = _place(config, address)
        self._asked_port, self._host = address.port, address.host
        self._token_file, self._max_restarts = config.token_file, config.max_restarts
        self.port = address.port
        self.users = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._restarts: deque[float] = deque()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def _name(self) -> str:
        return f"the simulator at {self._host}:{self.port}, started by this process,"

    @property
    def state(self) -> str:
        """How it is, for an error sentence."""
        if self._process is None:
            return "was not started"
        code = self._process.poll()
        return "runs" if code is None else f"ended with the exit code {code}{self._last_words()}"

    def ensure(self, deadline: float) -> None:
        """Starts it, or starts it again if it died, at most so often a minute. Raises LinkError."""
        with _lock:
            if self.alive:
                return
            if self._process is not None:
                now = time.monotonic()
                while self._restarts and now - self._restarts[0] > MINUTE:
                    self._restarts.popleft()
                if len(self._restarts) >= self._max_restarts:
                    raise LinkError(
                        f"{self._name} {self.state}. It was started again {len(self._restarts)} times "
                        "within a minute, and is not once more (option max_restarts)"
                    )
                self._restarts.append(now)
                logging.getLogger("milkrun").warning("%s %s; it is started again", self._name, self.state)
            self._start(deadline)

    @property
    def pid(self) -> int | None:
        """Of the process that it is now."""
        return None if self._process is None else self._process.pid

    def kill(self, pid: int | None) -> None:
        """Ends the process that says nothing any more, unless another has taken its place since."""
        with _lock:
            if self._process is not None and self._process.pid == pid:
                self._process.kill()
                self._process.wait()

    def release(self) -> None:
        """One user less; the last one ends it."""
        with _lock:
            self.users -= 1
            if self.users <= 0:
                _running.pop((os.getpid(), self._place), None)
                self._end()

    def _start(self, deadline: float) -> None:
        self._end()
        # Room for the largest group: how many environments it is for is known only when they come. No idle timeout: it
        # ends with the last of them, or with this process.
        command = [
            sys.executable,
            "-m",
            "milkrun",
            "simulate",
            "--host",
            self._host,
            "--port",
            str(self._asked_port),
            "--parent-pid",
            str(os.getpid()),
            "--idle-timeout",
            "0",
            "--max-envs",
            str(MOST_ENVS),
        ]
        if self._token_file is not None:
            command += ["--token-file", self._token_file]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
        try:
            # a session of its own: Ctrl-C in a terminal is for the one who trains
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=_environment(),
                start_new_session=True,
            )
        except OSError as e:
            raise LinkError(f"cannot start a simulator ({' '.join(command)}): {e.strerror or e}") from None
        try:
            self.port = self._read_port(self._process, deadline)
        except BaseException:
            self.kill(self.pid)
            raise

    def _read_port(self, process: subprocess.Popen[bytes], deadline: float) -> int:
        """Waits for the line that says that it is ready."""
        said = b""
        pipe: IO[bytes] = process.stdout  # type: ignore[assignment]
        with pipe, selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            while b"\n" not in said:
                left = deadline - time.monotonic()
                if left <= 0 or not ready.select(left):
                    raise LinkTimeout(
                        f"{self._name} was not ready within the option delay; on a "
                        f"busy machine a larger one helps{self._last_words()}"
                    )
                some = os.read(pipe.fileno(), 4096)
                if not some:
                    process.wait()
                    raise LinkError(f"{self._name} {self.state}")
                said += some
        try:
            return int(json.loads(said.split(b"\n")[0])["port"])
        except (ValueError, KeyError, TypeError):
            raise LinkError(f"{self._name} said {said[:100]!r} instead of its port") from None

    def _last_words(self) -> str:
        """The end of what it wrote on stderr."""
        if self._log is None:
            return ""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 4096))
        lines = self._log.read().decode(errors="replace").strip().splitlines()[-LINES:]
        return f": {' | '.join(lines)}" if lines else ""

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(GRACE)
                except subprocess.TimeoutExpired:
                    process.kill()
            process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None


def _environment() -> dict[str, str]:
    """That of this process; the child finds the same Milkrun, and its threads sleep while they have no work."""
    env = {"OMP_WAIT_POLICY": "passive", **os.environ}
    root = Path(__file__).resolve().parents[3]
    if root.name not in ("site-packages", "dist-packages"):
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(root), env.get("PYTHONPATH"))))
    return env


def _tell_compiling() -> Callable[[bool], None]:
    announced = False

    def tell(busy: bool) -> None:
        nonlocal announced
        if busy and not announced:
            announced = True
            logging.getLogger("milkrun").info("preparing the code of the simulator: once, some 20 s")

    return tell
