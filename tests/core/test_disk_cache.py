"""The cache of compiled code: own files are used, foreign ones neither read nor written, and its errors are ignored.

A `process` here is a module that is loaded again: it reads the disk as a new process does."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import stat
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from numba import njit

from milkrun.core import disk_cache
from milkrun.core.cache import compile_module
from milkrun.core.disk_cache import cache_root
from milkrun.core.kernels import KERNEL_OPTIONS
from milkrun.core.threads import Entry

DOUBLE = "@njit(**OPTIONS)\ndef double(lo, hi, slot):\n    return {factor} * hi\n"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
OTHER_USER = 54321


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path) -> Path:
    """A cache folder that does not exist yet; no warning was issued."""
    monkeypatch.setenv("MILKRUN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(disk_cache, "_warned", False)
    return tmp_path / "cache"


def process(factor: int = 2) -> tuple[bool, list[str]]:
    """Runs a compiled function as a new process would: (whether it was found on disk, warnings)."""
    for name in [n for n in sys.modules if n.startswith("milkrun_launcher_kept_")]:
        del sys.modules[name]
    module = compile_module("kept", DOUBLE.format(factor=factor), {"njit": njit, "OPTIONS": KERNEL_OPTIONS})
    disk_cache._warned = False
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert Entry(module.double).run((), 21, 1) == 21 * factor
    return bool(module.double.stats.cache_hits), [str(w.message) for w in heard]


def only(folder: Path) -> Path:
    """The one file in a folder, drafts counted."""
    (file,) = folder.iterdir()
    return file


class Planted:
    """Creates a folder when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


def plant(file: Path, trace: Path) -> None:
    """Puts code into a cache file, with a valid checksum, as another user with write access could."""
    payload = pickle.dumps(Planted(trace))
    file.write_bytes(disk_cache.FORMAT + disk_cache._checksum(KEYS[file.name], payload) + payload)


KEYS: dict[str, bytes] = {}


@pytest.fixture(autouse=True)
def keys(monkeypatch) -> None:
    """Records the key of each file."""
    ask = disk_cache.DiskCache._file

    def remembered(self: Any, *args: Any) -> tuple[str, bytes]:
        name, key = ask(self, *args)
        KEYS[name] = key
        return name, key

    monkeypatch.setattr(disk_cache.DiskCache, "_file", remembered)


# -- own files -----------------------------------------------------------------------------------------------------


def test_the_second_process_finds_what_the_first_has_compiled(folder):
    """In a folder and a file that only their owner may read and write."""
    assert process() == (False, [])
    assert process() == (True, [])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(only(folder).stat().st_mode) == 0o600


def test_our_own_link_is_followed(folder, tmp_path):
    """The cache may be on another disk, also through several links."""
    (tmp_path / "far" / "away").mkdir(parents=True, mode=0o700)
    (tmp_path / "near").symlink_to("far/away")
    folder.symlink_to(tmp_path / "near" / ".." / "away")
    assert process() == (False, [])
    assert process() == (True, [])
    assert only(tmp_path / "far" / "away").name.endswith(".code")


def test_a_filled_cache_that_is_read_only_is_used(folder):
    """What it holds is loaded; other code is compiled and not kept, with one warning."""
    process()
    folder.chmod(0o555)
    try:
        assert process() == (True, [])
        found, heard = process(factor=3)
        assert not found and len(heard) == 1 and f"{folder} is read-only" in heard[0]
        assert len(list(folder.iterdir())) == 1
    finally:
        folder.chmod(0o700)


# -- foreign files -------------------------------------------------------------------------------------------------


def refused(folder: Path, tmp_path: Path, reason: str) -> None:
    """The planted file is not unpickled, nothing is written, and one warning gives the reason."""
    trace = tmp_path / "trace"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    found, heard = process()
    assert not found
    assert not trace.exists()
    assert len(heard) == 1 and reason in heard[0] and "MILKRUN_CACHE_DIR" in heard[0]
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_planted_code_runs_in_an_own_folder(folder, tmp_path):
    """The control experiment: without a reason to refuse it, the planted code runs."""
    process()
    plant(only(folder), tmp_path / "trace")
    process()
    assert (tmp_path / "trace").exists()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o720, 0o702])
def test_a_folder_that_others_may_write_is_not_used(folder, tmp_path, mode):
    """Nor are its permissions repaired: its files may be foreign."""
    process()
    plant(only(folder), tmp_path / "trace")
    folder.chmod(mode)
    refused(folder, tmp_path, f"can be written by others (mode {mode:o})")


@AS_ROOT
def test_a_folder_of_another_user_is_not_used(folder, tmp_path):
    """Even with the mode 0700."""
    process()
    plant(only(folder), tmp_path / "trace")
    os.chown(folder, OTHER_USER, OTHER_USER)
    refused(folder, tmp_path, f"belongs to user {OTHER_USER}")


def test_a_folder_is_not_ours_for_its_name(folder, tmp_path, monkeypatch):
    """The same for a user other than root: here the effective user changes."""
    process()
    plant(only(folder), tmp_path / "trace")
    if os.geteuid() == 0:
        os.chown(folder, OTHER_USER, OTHER_USER)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER_USER + 1)
    refused(folder, tmp_path, "belongs to user")


def test_links_in_a_circle_are_no_folder(folder):
    """One warning, and the world works."""
    folder.symlink_to(folder)
    found, heard = process()
    assert not found and len(heard) == 1


@AS_ROOT
def test_a_file_of_another_user_is_not_read(folder, tmp_path):
    """In an own folder, from a time when others could write there; it is replaced."""
    process()
    plant(only(folder), tmp_path / "trace")
    os.chown(only(folder), OTHER_USER, OTHER_USER)
    found, heard = process()
    assert not found and len(heard) == 1 and f"belongs to user {OTHER_USER}" in heard[0]
    assert not (tmp_path / "trace").exists()
    assert process() == (True, [])


def test_a_file_that_others_may_write_is_not_read(folder, tmp_path):
    """It is replaced by one that only its owner can write."""
    process()
    plant(only(folder), tmp_path / "trace")
    only(folder).chmod(0o666)
    found, heard = process()
    assert not found and len(heard) == 1 and "can be written by others" in heard[0]
    assert not (tmp_path / "trace").exists()
    assert process() == (True, [])


def test_a_link_in_the_place_of_a_file_is_not_followed(folder, tmp_path):
    """It is replaced, not written through."""
    process()
    file, elsewhere = only(folder), tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    poisoned = elsewhere.read_bytes()
    assert process()[0] is False
    assert elsewhere.read_bytes() == poisoned
    assert process() == (True, [])


# -- damage --------------------------------------------------------------------------------------------------------


def flipped(content: bytes) -> bytes:
    return content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:30],
        lambda content: b"garbage" * 1000,
        lambda content: content + b"x",
        lambda content: disk_cache.FORMAT + pickle.dumps({}),
        flipped,
    ],
    ids=["empty", "cut", "head", "garbage", "longer", "headed", "flipped"],
)
def test_a_damaged_file_is_compiled_again_and_replaced(folder, damage: Callable[[bytes], bytes]):
    """Without a warning."""
    process()
    file = only(folder)
    file.write_bytes(damage(file.read_bytes()))
    assert process() == (False, [])
    assert process() == (True, [])


def test_the_code_of_another_function_is_not_run_for_this_one(folder):
    """An intact own file under a wrong name is not used."""
    process(factor=3)
    three = only(folder)
    content = three.read_bytes()
    three.unlink()
    process()
    only(folder).write_bytes(content)
    assert process() == (False, [])


def test_a_folder_in_the_place_of_a_file_does_no_harm(folder):
    """It cannot be read nor replaced: one warning."""
    process()
    file = only(folder)
    file.unlink()
    file.mkdir()
    found, heard = process()
    assert not found and len(heard) == 1


# -- no room -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_takes_no_file_does_no_harm(folder, monkeypatch, number):
    """Full, over quota, or mounted read-only: the world works, with one warning."""
    create = os.open

    def refuse(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number))
        return create(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    found, heard = process()
    assert not found and len(heard) == 1 and os.strerror(number) in heard[0]
    assert list(folder.iterdir()) == []


def test_a_disk_that_is_full_within_a_file_keeps_nothing(folder):
    """With a limit of 1,000 bytes a file no part of one stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        found, heard = process()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not found and len(heard) == 1 and os.strerror(errno.EFBIG) in heard[0]
    assert list(folder.iterdir()) == []
    assert process() == (False, [])


# -- where it is ---------------------------------------------------------------------------------------------------


def at_home(monkeypatch: pytest.MonkeyPatch, home: str | None, **named: str) -> str | None:
    """The cache folder of a user with such a HOME; the home folder by the system's user database is /users/ann."""
    import pwd

    entry = pwd.struct_passwd(("ann", "x", 1, 1, "", "/users/ann", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry)
    for name in ("MILKRUN_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**named, **({} if home is None else {"HOME": home})}.items():
        monkeypatch.setenv(name, value)
    return cache_root()


def test_the_place_of_the_cache(monkeypatch):
    """MILKRUN_CACHE_DIR, else XDG_CACHE_HOME if it is absolute, else ~/.cache; ~ is the home folder in each of them."""
    assert at_home(monkeypatch, "/home/bo") == "/home/bo/.cache/milkrun"
    assert at_home(monkeypatch, "/home/bo", XDG_CACHE_HOME="/far") == "/far/milkrun"
    assert at_home(monkeypatch, "/home/bo", XDG_CACHE_HOME="~/far") == "/home/bo/far/milkrun"
    assert at_home(monkeypatch, "/home/bo", XDG_CACHE_HOME="far") == "/home/bo/.cache/milkrun"
    assert at_home(monkeypatch, "/home/bo", MILKRUN_CACHE_DIR="~/mine", XDG_CACHE_HOME="/far") == "/home/bo/mine"
    assert at_home(monkeypatch, "/home/bo", MILKRUN_CACHE_DIR="~") == "/home/bo"


def test_without_the_variable_home_the_user_database_is_read(monkeypatch):
    """HOME is unset, as in some services."""
    assert at_home(monkeypatch, None) == "/users/ann/.cache/milkrun"


def test_without_any_home_nothing_is_kept_and_no_folder_is_called_tilde(monkeypatch, tmp_path):
    """A user id in a container that the user database does not have."""
    import pwd

    def unknown(_: Any) -> Any:
        raise KeyError

    monkeypatch.chdir(tmp_path)
    for name in (None, "MILKRUN_CACHE_DIR", "XDG_CACHE_HOME"):
        at_home(monkeypatch, None, **({} if name is None else {name: "~/mine"}))
        monkeypatch.setattr(pwd, "getpwuid", unknown)
        found, heard = process()
        assert not found and len(heard) == 1 and "there is no home folder" in heard[0]
    monkeypatch.setenv("MILKRUN_CACHE_DIR", "~nobody-of-this-name/mine")
    assert process()[0] is False
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["file/cache", "x" * 300])
def test_an_impossible_path_does_no_harm(tmp_path, monkeypatch, place):
    """Below a file; a name that no system takes."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MILKRUN_CACHE_DIR", str(tmp_path / place))
    found, heard = process()
    assert not found and len(heard) == 1


def test_a_deleted_folder_is_made_again(folder):
    """The cache is cleared by deleting it, also while a process runs."""
    process()
    only(folder).unlink()
    folder.rmdir()
    assert process() == (False, [])
    assert process() == (True, [])
