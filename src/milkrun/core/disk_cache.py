"""Compiled code on disk: one file a function, in a folder that only its owner can write.

Machine code is loaded by unpickling, so write access to a cache file is the right to run code as its reader. Hence
folder and files must belong to the user (or to root, as in a container image) and be writable by no other user. A
checksum, verified before anything is unpickled, detects damaged and misplaced files. Cache errors are ignored.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import secrets
import stat
import warnings
from contextlib import suppress
from typing import Any

from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps

FORMAT = b"milkrun compiled code 1\n"

_warned = False


class CachedFunction(CPUDispatcher):
    """A function as `njit` makes it, whose machine code is kept in a `DiskCache`."""

    def __init__(self, function: Any, options: dict[str, Any], fingerprint: str, name: str) -> None:
        super().__init__(function, {}, {"nopython": True, **options})
        self._cache = DiskCache(name, fingerprint)


class DiskCache(NullCache):
    """Numba's interface to the compiled code of one function. Files are replaced atomically, so processes may share an
    empty folder from the start."""

    def __init__(self, name: str, fingerprint: str) -> None:
        self._name = name
        self._fingerprint = fingerprint

    @property
    def cache_path(self) -> str | None:
        return cache_root()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        found = find(*self._file(sig, target_context.codegen()))
        if found is None:
            return None
        try:
            return CompileResult._rebuild(target_context, *pickle.loads(found))
        except Exception:  # a valid file, but of a numba that was modified
            return None

    def save_overload(self, sig: Any, compiled: Any) -> None:
        if compiled.library.has_dynamic_globals:  # addresses of this process
            return
        name, key = self._file(sig, compiled.codegen)
        keep(name, key, dumps(compiled._reduce()))

    def _file(self, sig: Any, codegen: Any) -> tuple[str, bytes]:
        """The file name for a signature on this kind of processor, and the key of all that its contents depend on."""
        key = repr((self._name, self._fingerprint, sig, codegen.magic_tuple())).encode()
        return f"{self._name}.{hashlib.sha256(key).hexdigest()[:12]}.code", key


def find(name: str, key: bytes) -> bytes | None:
    """The payload that `keep` wrote under this name and key; None if there is no intact, trusted file."""
    try:
        folder = _open_folder()
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        finally:
            os.close(folder)
        with os.fdopen(file, "rb") as opened:
            _refuse_foreign(name, os.fstat(file))
            content = opened.read()
    except FileNotFoundError:
        return None
    except OSError as e:
        _warn_once(str(e))
        return None
    start = len(FORMAT) + hashlib.sha256().digest_size
    payload = content[start:]
    return payload if content[:start] == FORMAT + _checksum(key, payload) else None


def keep(name: str, key: bytes, payload: bytes) -> None:
    """Writes a file of the cache; errors are ignored."""
    try:
        if root := cache_root():
            os.makedirs(root, 0o700, exist_ok=True)
        folder = _open_folder()
        try:
            _replace(folder, name, FORMAT + _checksum(key, payload) + payload)
        finally:
            os.close(folder)
    except OSError as e:
        _warn_once(str(e))


def cache_root() -> str | None:
    """The folder of compiled code: MILKRUN_CACHE_DIR, else `milkrun` in the user's cache; None without a home."""
    if given := os.environ.get("MILKRUN_CACHE_DIR"):
        root = os.path.expanduser(given)
        return None if root.startswith("~") else root
    base = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    if not os.path.isabs(base):  # the XDG specification: ignore relative paths
        base = os.path.expanduser("~/.cache")
    return os.path.join(base, "milkrun") if os.path.isabs(base) else None


def _checksum(key: bytes, payload: bytes) -> bytes:
    # The key is hashed first, so that key and payload cannot be confused at their border.
    return hashlib.sha256(hashlib.sha256(key).digest() + payload).digest()


def _open_folder() -> int:
    """The folder, opened: what is checked and what is used stay the same, even if the path is renamed meanwhile."""
    if (root := cache_root()) is None:
        raise PermissionError("there is no home folder")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _refuse_foreign(root, os.fstat(folder))
    except OSError:
        os.close(folder)
        raise
    return folder


def _replace(folder: int, name: str, content: bytes) -> None:
    if not os.fstat(folder).st_mode & stat.S_IWUSR:  # root could write nevertheless
        raise PermissionError(f"{cache_root()} is read-only")
    draft = f".{name}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        # No fsync: a file that a crash truncates fails its checksum.
        with os.fdopen(os.open(draft, flags, 0o600, dir_fd=folder), "wb") as opened:
            opened.write(content)
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise


def _refuse_foreign(name: str, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise PermissionError(f"{name} belongs to user {found.st_uid}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{name} can be written by others (mode {stat.S_IMODE(found.st_mode):o})")


def _warn_once(reason: str) -> None:
    """One warning a process: every function would repeat it."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"the cache of compiled code is not used: {reason}. Every process compiles what is missing there; "
            f"MILKRUN_CACHE_DIR names another folder",
            UserWarning,
            stacklevel=2,
        )
