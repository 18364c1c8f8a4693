"""Starts simulators for the environments of this process: one for each address, shared, ended with its last user.

A simulator is a child process, `python -m milkrun simulate`. It ends by itself when this process dies.
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
from milkrun.tracking.link.wire import MAX_ENVS

MINUTE = 60.0
GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""
LINES = 5
"""Lines of a simulator's stderr in an error."""

Place = tuple[str, int, str | None]
_running: dict[tuple[int, Place], Simulator] = {}
"""By process id and requested place."""
_lock = threading.RLock()
_compiled: set[str] = set()


def share(config: TrackingConfig, host: str, port: int, row: int) -> Simulator | None:
    """Adds a user to the simulator of this process at `host` and `port`; `ensure` starts it.

    None if another process has environment 0 and starts it.
    """
    # A named port has one simulator, which refuses a wrong token; each token has a free port of its own.
    place = "127.0.0.1" if host == "localhost" else host, port, config.token_file if port == 0 else None
    key = os.getpid(), place
    if key not in _running and row != 0 and port != 0:
        return None
    _compile(config)
    with _lock:
        simulator = _running.get(key)
        if simulator is None:
            simulator = _running[key] = Simulator(place, host, config)
        simulator.users += 1
        return simulator


def _compile(config: TrackingConfig) -> None:
    """Compiles the code of a simulator into the cache, so that `delay` only covers loading it."""
    from milkrun.tracking.link.group import compile_code  # the world, which clients of a running simulator do not need

    with _lock:
        if config.action_mode not in _compiled:
            with listening(_log_compiling()):
                compile_code(config)
            _compiled.add(config.action_mode)


class Simulator:
    """A child process and the number of its users."""

    def __init__(self, place: Place, host: str, config: TrackingConfig) -> None:
        self._place = place
        self._host = host
        self._token_file = config.token_file
        self._max_restarts = config.max_restarts
        self.port = place[1]
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
        """Its state, as a part of error messages."""
        if self._process is None:
            return "was not started"
        code = self._process.poll()
        return "runs" if code is None else f"ended with the exit code {code}{self._last_lines()}"

    def ensure(self, deadline: float) -> None:
        """Starts it, or restarts it if it died, at most `max_restarts` times a minute. Raises LinkError."""
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
        """The id of the current process."""
        return None if self._process is None else self._process.pid

    def kill(self, pid: int | None) -> None:
        """Kills the process if it is still the current one."""
        with _lock:
            if self._process is not None and self._process.pid == pid:
                self._process.kill()
                self._process.wait()

    def release(self) -> None:
        """Removes a user; the last one ends the process."""
        with _lock:
            self.users -= 1
            if self.users <= 0:
                _running.pop((os.getpid(), self._place), None)
                self._end()

    def _start(self, deadline: float) -> None:
        self._end()
        # Room for the largest group, since the number of environments is not known yet. No idle timeout, since the
        # simulator ends with its last user or with this process.
        command = [
            sys.executable,
            "-m",
            "milkrun",
            "simulate",
            "--host",
            self._host,
            "--port",
            str(self._place[1]),
            "--parent-pid",
            str(os.getpid()),
            "--idle-timeout",
            "0",
            "--max-envs",
            str(MAX_ENVS),
        ]
        if self._token_file is not None:
            command += ["--token-file", self._token_file]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
        try:
            # A session of its own, so that Ctrl-C in a terminal reaches this process only.
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
        """Waits for the ready line and returns its port."""
        output = b""
        pipe: IO[bytes] = process.stdout  # type: ignore[assignment]
        with pipe, selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            while b"\n" not in output:
                left = deadline - time.monotonic()
                if left <= 0 or not ready.select(left):
                    raise LinkTimeout(
                        f"{self._name} was not ready within the option delay; on a "
                        f"busy machine a larger one helps{self._last_lines()}"
                    )
                chunk = os.read(pipe.fileno(), 4096)
                if not chunk:
                    process.wait()
                    raise LinkError(f"{self._name} {self.state}")
                output += chunk
        try:
            return int(json.loads(output.split(b"\n")[0])["port"])
        except (ValueError, KeyError, TypeError):
            raise LinkError(f"{self._name} said {output[:100]!r} instead of its port") from None

    def _last_lines(self) -> str:
        """The last lines of its stderr, as a part of error messages."""
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
    """The environment of this process, so that the child finds the same Milkrun and its idle threads sleep."""
    env = {"OMP_WAIT_POLICY": "passive", **os.environ}
    root = Path(__file__).resolve().parents[3]
    if root.name not in ("site-packages", "dist-packages"):
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(root), env.get("PYTHONPATH"))))
    return env


def _log_compiling() -> Callable[[bool], None]:
    """A listener that logs the first compilation."""
    announced = False

    def log(busy: bool) -> None:
        nonlocal announced
        if busy and not announced:
            announced = True
            logging.getLogger("milkrun").info("preparing the code of the simulator: once, some 20 s")

    return log
