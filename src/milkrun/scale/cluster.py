"""The Ray of a call: one on this machine that it starts and stops, or a running cluster that it joins and leaves.

A Ray of our own speaks to this machine alone (loopback), shows no dashboard and has a temporary folder of its own,
which is gone with it; folders of callers that were killed are cleared away by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from milkrun.core.errors import ConfigError, ScaleError, missing_extra

LOOPBACK = "127.0.0.1"
PREFIX = "milkrun-ray-"
IN_USE = "in-use"
AUTH = "RAY_AUTH_MODE"  # set by Ray itself when it starts one of our own
SET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""What a Ray of our own is told: to report nothing to anybody, and to work as eagerly as its caller would."""
REACH_SECONDS = 5.0
LONGEST = 45  # characters of a folder below which a Unix socket's path still fits


def import_ray() -> Any:
    try:
        import ray
    except ImportError as e:
        raise missing_extra(str(e.name), "scale") from e
    return ray


@contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """Within it this process is connected to Ray. A connection that is there already is used, and left as it is."""
    ray = import_ray()
    if address is not None and (not isinstance(address, str) or not address):
        raise ConfigError(f"address={address!r}: must be None (a Ray of this call), 'auto' or 'host:port'")
    if ray.is_initialized():
        there = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", there):
            raise ConfigError(
                f"address={address!r}: this process is connected to the Ray at {there}; ray.shutdown() leaves it"
            )
        yield
        return
    with _own(ray) if address is None else _joined(ray, address):
        yield


@contextmanager
def _own(ray: Any) -> Iterator[None]:
    _clear_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_root()))
    held = os.open(folder / "new", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    os.rename(folder / "new", folder / IN_USE)  # which is locked from its first moment on
    unset = [name for name in (AUTH, *SET) if name not in os.environ]
    try:
        os.environ.update({name: value for name, value in SET.items() if name in unset})
        try:
            with _loopback_stays(ray):
                ray.init("local", include_dashboard=False, _node_ip_address=LOOPBACK, _temp_dir=str(folder), **_QUIET)
        except (OSError, RuntimeError, ValueError) as e:
            raise ScaleError(f"a Ray on this machine did not start: {_first_line(e)}") from e
        yield
    finally:
        # Before the shutdown: afterwards parents are gone by which their children are found.
        started = _processes_of(folder)
        try:
            with contextlib.suppress(Exception):  # half started: its processes are known
                _shut_down(ray)
        finally:
            _end(started)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)
            for name in unset:
                os.environ.pop(name, None)
            with contextlib.suppress(Exception):
                ray._raylet.Config.initialize("")  # Ray remembers who it asked for a token


@contextmanager
def _loopback_stays(ray: Any) -> Iterator[None]:
    """`ray.init` replaces a loopback address by one that others can reach, and then listens to everybody. Without that
    replacement all of its processes listen on loopback alone, as `ray start --node-ip-address=127.0.0.1` has them, and
    a Ray that was started so is found."""
    services = ray._private.services
    replace = services.resolve_ip_for_localhost
    services.resolve_ip_for_localhost = lambda host: host
    try:
        yield
    finally:
        services.resolve_ip_for_localhost = replace


@contextmanager
def _joined(ray: Any, address: str) -> Iterator[None]:
    if address != "auto":
        _reach(address)
    try:
        with _loopback_stays(ray):
            ray.init(address=address, **_QUIET)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as e:
        hint = ": `ray start --head` starts one" if address == "auto" else ""
        raise ScaleError(f"address={address!r}: no Ray cluster answers there{hint} ({_first_line(e)})") from None
    try:
        yield
    finally:
        ray.shutdown()


_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


def _reach(address: str) -> None:
    """Refuses an address at which nobody listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("ray://")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"address={address!r}: must be None (a Ray of this call), 'auto' or 'host:port'")
    try:
        socket.create_connection((host, int(port)), timeout=REACH_SECONDS).close()
    except OSError as e:
        raise ScaleError(
            f"address={address!r}: nobody listens there ({e.strerror or e}): `ray start --head` starts a "
            "cluster and prints its address"
        ) from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _root() -> str:
    """Where temporary folders go: as Python says, unless a socket's path would be too long for the system there."""
    said = tempfile.gettempdir()
    return said if len(said) <= LONGEST else "/tmp"


def _clear_abandoned() -> None:
    """Removes the folders of callers that were killed: nobody holds their lock."""
    for folder in Path(_root()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            # A folder that another caller is just making has no such file yet, and is left alone.
            file = os.open(folder / IN_USE, os.O_RDWR)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _end(_processes_of(folder))
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(file)


def _shut_down(ray: Any) -> None:
    """`ray.shutdown()` of a Ray of our own, in a third of a second: it gives its raylet more than one to take leave,
    and there is nobody to take leave of."""
    node = ray._private.worker._global_node
    if node is not None:
        at_once = type(node).kill_all_processes
        node.kill_all_processes = lambda check_alive=True, allow_graceful=False, wait=False: at_once(
            node, check_alive, False, wait
        )
    ray.shutdown()


Process = tuple[int, str]
"""number and time of its start: numbers are used again"""


def _processes_of(folder: Path) -> set[Process]:
    """What runs for a temporary folder of ours: whom Ray gave it as the value of an option, and their descendants."""
    found: set[Process] = set()
    children: dict[int, list[Process]] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                status = _status(int(entry.name))
                process = int(entry.name), status[19]
                children.setdefault(int(status[1]), []).append(process)
                if f"={folder}/".encode() in (entry / "cmdline").read_bytes():
                    found.add(process)
    waiting = list(found)
    while waiting:
        below = [child for child in children.get(waiting.pop()[0], ()) if child not in found]
        found.update(below)
        waiting += below
    return found


def _end(processes: set[Process]) -> None:
    """Ends those that still run, by their numbers, and waits until they have."""
    until = time.monotonic() + 2.0
    while (left := {process for process in processes if _runs(process)}) and time.monotonic() < until:
        for pid, _ in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _runs(process: Process) -> bool:
    try:
        status = _status(process[0])
    except OSError:
        return False
    return status[19] == process[1] and status[0] != "Z"


def _status(pid: int) -> list[str]:
    """The words of /proc/PID/stat from the state on: its parent is [1], the time of its start [19]."""
    # The name of a process stands in brackets before the rest, and may itself have spaces and brackets.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
