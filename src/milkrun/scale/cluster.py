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
            raise ConfigError(f"address={address!r}: this process is connected to the Ray at {there}; ray.shutdown() "
                              "leaves it")  # fmt: skip
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
    before = {name: os.environ.get(name) for name in _SET}
    try:
        os.environ.update({name: value for name, value in _SET.items() if before[name] is None})
        with _loopback_stays(ray):
            ray.init("local", include_dashboard=False, _node_ip_address=LOOPBACK, _temp_dir=str(folder), **_QUIET)
        yield
    finally:
        try:
            with contextlib.suppress(Exception):  # half started: its processes are found below
                ray.shutdown()
        finally:
            _end_processes(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)
            for name in (name for name, value in before.items() if value is None):
                os.environ.pop(name, None)


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
_SET = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
"""What a Ray of our own is told by the environment: only who has this user's token is let in, and nothing is reported
to anybody."""


def _reach(address: str) -> None:
    """Refuses an address at which nobody listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("ray://")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"address={address!r}: must be None (a Ray of this call), 'auto' or 'host:port'")
    try:
        socket.create_connection((host, int(port)), timeout=REACH_SECONDS).close()
    except OSError as e:
        raise ScaleError(f"address={address!r}: nobody listens there ({e.strerror or e}): `ray start --head` starts a "
                         "cluster and prints its address") from None  # fmt: skip


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
            file = os.open(folder / IN_USE, os.O_RDWR)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _end_processes(folder)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(file)


def _end_processes(folder: Path) -> None:
    """Ends what still runs for a temporary folder of ours, by process number: Ray gives it to all that it starts, as
    the value of an option."""
    until = time.monotonic() + 2.0
    while (left := _running_in(folder)) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _running_in(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if f"={folder}/".encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found
