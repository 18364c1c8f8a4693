"""The Ray connection of a call: a local Ray that the call starts and stops, or a running cluster that it joins.

A local Ray listens on loopback, has no dashboard, and keeps its logs in a temporary folder that is removed with it.
Its processes end with the process that started them, also when that is killed: Ray takes care of this.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from milkrun.core.errors import ConfigError, ScaleError, missing_extra
from milkrun.core.interrupts import undisturbed
from milkrun.scale.lock import Lock

FOLDER_PREFIX = "milkrun-ray-"
LOCK = "caller.lock"
LONGEST_ROOT = 45  # characters of a folder below which the path of a Unix socket is still legal
CONNECT_SECONDS = 5.0
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}

# Ray's switch between one machine (loopback) and clusters. Ray reads it once, when it is imported.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
LOCAL_RAY = {**LOOPBACK, "RAY_worker_niceness": "0"}  # by default workers have a lower priority than their caller


def import_ray() -> Any:
    """Imports Ray in its mode for one machine, unless the program has imported it before."""
    try:
        with _environment(LOOPBACK):
            import ray
    except ImportError as e:
        raise missing_extra(str(e.name), "scale") from e
    return ray


@contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """Connects this process to Ray for the time of the block. An existing connection is used and left open."""
    ray = import_ray()
    if address is not None and (not isinstance(address, str) or not address):
        raise ConfigError(f"address={address!r}: must be None (a Ray of this call), 'auto' or 'host:port'")
    if ray.is_initialized():
        current = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", current):
            raise ConfigError(
                f"address={address!r}: this process is connected to the Ray at {current}; ray.shutdown() leaves it"
            )
        yield
        return
    with _local_ray(ray) if address is None else _joined(ray, address):
        yield


@contextmanager
def _local_ray(ray: Any) -> Iterator[None]:
    _remove_abandoned(Path(_temporary_root()))
    folder = tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, dir=_temporary_root(), ignore_cleanup_errors=True)
    lock = Lock(Path(folder.name) / LOCK)  # held while the caller lives
    with folder:
        try:
            lock.acquire()
            try:
                # Interrupted in between, Ray would leave processes that it cannot stop.
                with _environment(LOCAL_RAY), undisturbed():
                    ray.init("local", include_dashboard=False, _temp_dir=folder.name, **QUIET)
            except (OSError, RuntimeError, ValueError) as e:
                raise ScaleError(f"a Ray on this machine did not start: {_first_line(e)}") from e
            _warn_of_open_ports(ray)
            yield
        finally:
            ray.shutdown(wait_for_processes=True)
            lock.release()


def _remove_abandoned(root: Path) -> None:
    """Removes the folders of callers that were killed: those whose lock is free."""
    for path in root.glob(f"{FOLDER_PREFIX}*/{LOCK}"):
        if path.stat().st_uid == os.getuid():
            lock = Lock(path)
            with suppress(ConfigError, OSError):
                lock.acquire()
                shutil.rmtree(path.parent, ignore_errors=True)
                lock.release()


def _warn_of_open_ports(ray: Any) -> None:
    """A program that has imported Ray before decides where Ray listens."""
    host = ray.get_runtime_context().gcs_address.rpartition(":")[0]
    if not host.startswith("127.") and host not in ("localhost", "[::1]"):
        warnings.warn(
            f"the Ray of this call listens on {host}, which other machines may reach: set "
            f"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 before `import ray`",
            UserWarning,
            stacklevel=2,
        )


@contextmanager
def _joined(ray: Any, address: str) -> Iterator[None]:
    if address != "auto":
        _check_reachable(address)
    try:
        ray.init(address=address, **QUIET)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as e:
        hint = ": `ray start --head` starts one" if address == "auto" else ""
        raise ScaleError(f"address={address!r}: no Ray cluster answers there{hint} ({_first_line(e)})") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets those variables that are not set yet, for the time of the block."""
    added = [name for name in variables if name not in os.environ]
    try:
        os.environ.update({name: variables[name] for name in added})
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _check_reachable(address: str) -> None:
    """Raises if nothing listens at the address: Ray itself would retry for minutes."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("ray://")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"address={address!r}: must be None (a Ray of this call), 'auto' or 'host:port'")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as e:
        raise ScaleError(
            f"address={address!r}: nothing listens there ({e.strerror or e}): `ray start --head` starts a "
            "cluster and prints its address"
        ) from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _temporary_root() -> str:
    """The system's folder for temporary files; /tmp where its path is too long for Ray's sockets."""
    root = tempfile.gettempdir()
    return root if len(root) <= LONGEST_ROOT else "/tmp"
