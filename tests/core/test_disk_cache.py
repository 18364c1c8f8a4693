"""The cache of compiled code: what is ours is used, what is not is neither read nor written, and nothing that lies in
it or happens to it stops a world. A `process` here is a module loaded anew: it asks the disk as a new process does."""

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
STRANGER = 54321


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path) -> Path:
    """A cache folder that is not there yet; no warning has been given."""
    monkeypatch.setenv("MILKRUN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(disk_cache, "_warned", False)
    return tmp_path / "cache"


def process(factor: int = 2) -> tuple[bool, list[str]]:
    """Runs a compiled function in what is as good as a new process: (whether it was found on disk, warnings)."""
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


class Crime:
    """Leaves a trace where it is unpickled."""

    def __init__(self, scene: Path) -> None:
        self.scene = scene

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.scene),)


def poison(file: Path, scene: Path) -> None:
    """Puts code into a file of the cache, checksum and all, as somebody can who may write it."""
    payload = pickle.dumps(Crime(scene))
    file.write_bytes(disk_cache.FORMAT + disk_cache._checksum(KEYS[file.name], payload) + payload)


KEYS: dict[str, bytes] = {}


@pytest.fixture(autouse=True)
def keys(monkeypatch) -> None:
    """Remembers what each file stands for."""
    ask = disk_cache.DiskCache._file

    def remembered(self: Any, *args: Any) -> tuple[str, bytes]:
        name, key = ask(self, *args)
        KEYS[name] = key
        return name, key

    monkeypatch.setattr(disk_cache.DiskCache, "_file", remembered)


# -- what is ours --------------------------------------------------------------------------------------------------


def test_the_second_process_finds_what_the_first_has_compiled(folder):
    """In a folder and a file that are for us alone."""
    assert process() == (False, [])
    assert process() == (True, [])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(only(folder).stat().st_mode) == 0o600


def test_our_own_link_is_followed(folder, tmp_path):
    """The cache may stand on another disk, also through links that lead on and back."""
    (tmp_path / "far" / "away").mkdir(parents=True, mode=0o700)
    (tmp_path / "near").symlink_to("far/away")
    folder.symlink_to(tmp_path / "near" / ".." / "away")
    assert process() == (False, [])
    assert process() == (True, [])
    assert only(tmp_path / "far" / "away").name.endswith(".code")


def test_a_filled_cache_that_is_read_only_is_used(folder):
    """What is there is loaded; what is not is compiled, kept nowhere, and told once."""
    process()
    folder.chmod(0o555)
    try:
        assert process() == (True, [])
        found, heard = process(factor=3)
        assert not found and len(heard) == 1 and f"{folder} is read-only" in heard[0]
        assert len(list(folder.iterdir())) == 1
    finally:
        folder.chmod(0o700)


# -- what is not ---------------------------------------------------------------------------------------------------


def refused(folder: Path, tmp_path: Path, reason: str) -> None:
    """The file in it would run code if it were unpickled: it is not; nothing is written; one warning says why."""
    scene = tmp_path / "scene"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    found, heard = process()
    assert not found
    assert not scene.exists()
    assert len(heard) == 1 and reason in heard[0] and "MILKRUN_CACHE_DIR" in heard[0]
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_poison_is_poison(folder, tmp_path):
    """The crime of these tests works where the folder is ours: so it can be seen that it was prevented elsewhere."""
    process()
    poison(only(folder), tmp_path / "scene")
    process()
    assert (tmp_path / "scene").exists()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o720, 0o702])
def test_a_folder_that_others_may_write_is_not_used(folder, tmp_path, mode):
    """Nor is it repaired: what lies in it may be anybody's."""
    process()
    poison(only(folder), tmp_path / "scene")
    folder.chmod(mode)
    refused(folder, tmp_path, f"can be written by others (mode {mode:o})")


@AS_ROOT
def test_a_folder_of_somebody_else_is_not_used(folder, tmp_path):
    """However private it looks."""
    process()
    poison(only(folder), tmp_path / "scene")
    os.chown(folder, STRANGER, STRANGER)
    refused(folder, tmp_path, f"belongs to user {STRANGER}")


def test_a_folder_is_not_ours_for_its_name(folder, tmp_path, monkeypatch):
    """The same for a user who is not root: here it is us who have become somebody else."""
    process()
    poison(only(folder), tmp_path / "scene")
    if os.geteuid() == 0:
        os.chown(folder, STRANGER, STRANGER)
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER + 1)
    refused(folder, tmp_path, "belongs to user")


@AS_ROOT
@pytest.mark.parametrize("above", [False, True])
def test_a_link_of_somebody_else_is_not_followed(folder, tmp_path, monkeypatch, above):
    """Neither where the folder should be nor above it; not even to a folder that is ours."""
    process()
    poison(only(folder), tmp_path / "scene")
    link = tmp_path / "link"
    link.symlink_to(tmp_path if above else folder)
    os.lchown(link, STRANGER, STRANGER)
    monkeypatch.setenv("MILKRUN_CACHE_DIR", str(link / "cache" if above else link))
    refused(folder, tmp_path, f"{link} is a symbolic link of user {STRANGER}")


def test_links_in_a_circle_are_no_folder(folder):
    """One warning, and the world works."""
    folder.symlink_to(folder)
    found, heard = process()
    assert not found and len(heard) == 1


@AS_ROOT
def test_a_file_of_somebody_else_is_not_read(folder, tmp_path):
    """In a folder of ours, from a time when it was open; it is replaced."""
    process()
    poison(only(folder), tmp_path / "scene")
    os.chown(only(folder), STRANGER, STRANGER)
    found, heard = process()
    assert not found and len(heard) == 1 and f"belongs to user {STRANGER}" in heard[0]
    assert not (tmp_path / "scene").exists()
    assert process() == (True, [])


def test_a_file_that_others_may_write_is_not_read(folder, tmp_path):
    """It is replaced by one that is ours alone."""
    process()
    poison(only(folder), tmp_path / "scene")
    only(folder).chmod(0o666)
    found, heard = process()
    assert not found and len(heard) == 1 and "can be written by others" in heard[0]
    assert not (tmp_path / "scene").exists()
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
def test_a_damaged_file_is_compiled_anew_and_mended(folder, damage: Callable[[bytes], bytes]):
    """In silence, once."""
    process()
    file = only(folder)
    file.write_bytes(damage(file.read_bytes()))
    assert process() == (False, [])
    assert process() == (True, [])


def test_the_code_of_another_function_is_not_run_for_this_one(folder):
    """Whole, ours, and under a wrong name: twice is not three times."""
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
    """Full, over quota, or mounted to be read: the world works, and one warning tells it."""
    create = os.open

    def refuse(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number))
        return create(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    found, heard = process()
    assert not found and len(heard) == 1 and os.strerror(number) in heard[0]
    assert list(folder.iterdir()) == []


def test_a_disk_that_is_full_in_the_midst_of_a_file_keeps_nothing(folder):
    """The system lets us write 1,000 bytes and no more: no part of a file stays."""
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
    """Where the cache is for a user with such a HOME, whom the system knows under /users/ann."""
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


@pytest.mark.parametrize("home", [None, "", "here"])
def test_without_a_home_the_system_is_asked(monkeypatch, home):
    """HOME unset, empty or relative."""
    assert at_home(monkeypatch, home) == "/users/ann/.cache/milkrun"


def test_without_any_home_nothing_is_kept_and_no_folder_is_called_tilde(monkeypatch, tmp_path):
    """A user in a container whom the system does not know."""
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
def test_a_place_that_cannot_be_does_no_harm(tmp_path, monkeypatch, place):
    """Below a file; a name that no system takes."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MILKRUN_CACHE_DIR", str(tmp_path / place))
    found, heard = process()
    assert not found and len(heard) == 1


def test_a_folder_that_is_deleted_is_made_again(folder):
    """To clear the cache is to delete it, also while a process runs."""
    process()
    only(folder).unlink()
    folder.rmdir()
    assert process() == (False, [])
    assert process() == (True, [])
