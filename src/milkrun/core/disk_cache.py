"""Compiled code on disk: one file a function, in one folder, which is used only if nobody else can have written there.

Machine code is loaded by unpickling, so whoever can write a file of the cache can run code as its reader. Hence folder
and files must belong to us (or to root, as in a container image) and be writable by nobody else. A checksum, which is
looked at before anything is unpickled, tells damaged files and those of other functions. What cannot be used is
compiled, what cannot be written is not kept: a cache never stops a world.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import pwd
import secrets
import stat
import warnings
from contextlib import suppress
from typing import Any

from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

FORMAT = b"milkrun compiled code 1\n"
SAFE_LINKS = 40
"""As many symbolic links the system itself follows on one way."""

_warned = False


class DiskCache(NullCache):
    """What numba asks for the compiled code of one function, and gives it to. Files are replaced whole, so processes
    may start on an empty folder at once."""

    def __init__(self, name: str, fingerprint: str) -> None:
        self._name, self._fingerprint = name, fingerprint

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
        except Exception:  # whole and ours, but of a numba that was changed by hand
            return None

    def save_overload(self, sig: Any, compiled: Any) -> None:
        if compiled.library.has_dynamic_globals:  # addresses of this process
            return
        name, key = self._file(sig, compiled.codegen)
        keep(name, key, dumps(compiled._reduce()))

    def _file(self, sig: Any, codegen: Any) -> tuple[str, bytes]:
        """The file of a signature on this kind of processor, and all that its contents depend on."""
        key = repr((self._name, self._fingerprint, sig, codegen.magic_tuple())).encode()
        return f"{self._name}.{hashlib.sha256(key).hexdigest()[:12]}.code", key


def find(name: str, key: bytes) -> bytes | None:
    """What `keep` wrote under this name and key; None where there is nothing that is whole and to be trusted."""
    try:
        content = _content(name)
    except FileNotFoundError:
        return None
    except OSError as e:
        _not_used(str(e))
        return None
    start = len(FORMAT) + hashlib.sha256().digest_size
    payload = content[start:]
    return payload if content[:start] == FORMAT + _checksum(key, payload) else None


def keep(name: str, key: bytes, payload: bytes) -> None:
    """Writes a file of the cache; where that cannot be, nothing is kept."""
    try:
        _write(name, FORMAT + _checksum(key, payload) + payload)
    except OSError as e:
        _not_used(str(e))


def cache_root() -> str | None:
    """The folder of compiled code: MILKRUN_CACHE_DIR, else `milkrun` in the user's cache; None if there is no home."""
    if given := os.environ.get("MILKRUN_CACHE_DIR"):
        return _expanded(given)
    base = _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    if base is None or not os.path.isabs(base):  # the XDG rules: a relative path is none
        base = _expanded("~/.cache")
    return None if base is None else os.path.join(base, "milkrun")


def _expanded(path: str) -> str | None:
    """With the home folder for a leading ~; None if nobody knows it."""
    if not path.startswith("~"):
        return path
    user, slash, rest = path[1:].partition("/")
    home = os.environ.get("HOME", "") if not user else ""
    if not os.path.isabs(home):
        try:
            home = (pwd.getpwnam(user) if user else pwd.getpwuid(os.geteuid())).pw_dir
        except KeyError:
            return None
    return home.rstrip("/") + slash + rest if os.path.isabs(home) else None


def _checksum(key: bytes, payload: bytes) -> bytes:
    # The key is hashed first: so no part of a payload can pass for the end of a key.
    return hashlib.sha256(hashlib.sha256(key).digest() + payload).digest()


def _content(name: str) -> bytes:
    folder = _open_folder(create=False)
    try:
        # NONBLOCK: a pipe put there under this name would make the opening wait for ever.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(file, "rb") as opened:
            _refuse_strangers(name, os.fstat(file))
            return opened.read()
    finally:
        os.close(folder)


def _write(name: str, content: bytes) -> None:
    folder = _open_folder(create=True)
    try:
        found = os.fstat(folder)
        if found.st_uid != os.geteuid() or not found.st_mode & stat.S_IWUSR:  # root could write, and may not
            raise PermissionError(f"{cache_root()} is read-only")
        draft = f".{name}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            # No fsync: what a crash cuts off fails its checksum, and is compiled anew.
            with os.fdopen(os.open(draft, flags, 0o600, dir_fd=folder), "wb") as opened:
                opened.write(content)
            os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=folder)
            raise
    finally:
        os.close(folder)


def _open_folder(create: bool) -> int:
    """The folder, opened: what is looked at and what is used are the same, whatever is renamed meanwhile. So it does
    not matter who else may write in the folders above it."""
    root = cache_root()
    if root is None:
        raise PermissionError("there is no home folder")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(_without_links(os.path.join(os.getcwd(), root), create), flags)
    try:
        _refuse_strangers(root, os.fstat(folder))
    except OSError:
        os.close(folder)
        raise
    return folder


def _without_links(path: str, create: bool) -> str:
    """Where a path leads, by links of our own and of root only; missing folders are made, for us alone."""
    here, ahead, links = "/", path.split("/")[::-1], 0
    while ahead:
        part = ahead.pop()
        if part in ("", "."):
            continue
        there = os.path.dirname(here) if part == ".." else os.path.join(here, part)
        try:
            found = os.lstat(there)
        except FileNotFoundError:
            if not create:
                raise
            with suppress(FileExistsError):
                os.mkdir(there, 0o700)
            found = os.lstat(there)
        if not stat.S_ISLNK(found.st_mode):
            here = there
            continue
        links += 1
        if found.st_uid not in (0, os.geteuid()) or links > SAFE_LINKS:
            raise PermissionError(f"{there} is a symbolic link of user {found.st_uid}")
        target = os.readlink(there)
        here = "/" if target.startswith("/") else here
        ahead += target.split("/")[::-1]
    return here


def _refuse_strangers(name: str, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise PermissionError(f"{name} belongs to user {found.st_uid}, not to us")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{name} can be written by others (mode {stat.S_IMODE(found.st_mode):o})")


def _not_used(reason: str) -> None:
    """One warning a process: every function would repeat it."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"the cache of compiled code is not used: {reason}. All works, but what is not found there is "
            f"compiled by every process; MILKRUN_CACHE_DIR names another folder",
            UserWarning,
            stacklevel=2,
        )
