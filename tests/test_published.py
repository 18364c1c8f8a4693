"""The published files are here, whole and unchanged, each with its source named; larger sets may lie elsewhere."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter

import pytest

from tests.published import KEPT, checksums, count_up, published_file, published_files

SIZES = {
    "darp": 27,
    "delivery/traces": 2,
    "delivery/tspd/restricted/maxradius": 6,
    "delivery/tspd/restricted/novisit": 8,
    "delivery/tspd/uniform": 151,
    "delivery/tspd/uniform/solutions": 200,
    "routing/atsp": 2,
    "routing/cvrplib": 44,
    "routing/pcvrptw": 4,
    "routing/solomon": 58,
    "routing/tsplib": 32,
    "routing/vrpb": 4,
    "routing2": 1,
    "routing2/hfvrp": 8,
    "routing2/mdvrp": 22,
    "routing2/mdvrptw": 2,
    "routing2/small": 2,
}
"""Files in each folder, as SOURCES.md counts them."""
ROOT = KEPT.parents[1]


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch):
    """Whatever folder the run itself was given, these tests name their own."""
    monkeypatch.delenv("MILKRUN_DATA", raising=False)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder that MILKRUN_DATA names, with another copy of one file and a file of a larger set."""
    for name in ("routing/tsplib/eil51.tsp", "routing/tsplib/pla33810.tsp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("NAME : other\n")
    monkeypatch.setenv("MILKRUN_DATA", str(tmp_path))
    return tmp_path


def test_the_files_are_those_listed_byte_by_byte():
    """None is missing, added or changed, by a conversion of line ends for one. On purpose? python -m tests.published"""
    assert count_up() == checksums()
    assert Counter(name.rpartition("/")[0] for name in checksums()) == SIZES


@pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="needs git, and a clone")
def test_line_ends_survive_git():
    """No setting of a user makes git convert them."""
    names = ["tests/data/routing/solomon/C101.txt", "tests/data/darp/a2-16.txt"]
    printed = subprocess.run(
        ["git", "check-attr", "text", *names], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert printed.stdout.splitlines() == [f"{name}: text: unset" for name in names]


def test_every_folder_has_its_source():
    """A row of the table in SOURCES.md, and data under a share-alike licence comes with its text."""
    text = (KEPT / "SOURCES.md").read_text()
    for folder in SIZES:
        assert f"\n| `{folder.partition('/uniform')[0].partition('/restricted')[0]}`" in text, folder
    assert "CC BY-SA 4.0" in (KEPT / "delivery" / "tspd" / "LICENSE.md").read_text()


def test_nothing_large_is_kept_here():
    """Sets of more than 2 MB are for MILKRUN_DATA."""
    assert sum((KEPT / name).stat().st_size for name in checksums()) < 2_000_000


def test_without_a_folder_named_files_come_from_the_repository(monkeypatch):
    """An empty name is none."""
    monkeypatch.setenv("MILKRUN_DATA", "")
    assert published_file("darp/a2-16.txt") == KEPT / "darp" / "a2-16.txt"
    assert [path.name for path in published_files("routing/atsp/*")] == ["br17.atsp", "ftv33.atsp"]


def test_the_folder_named_is_looked_in_first(elsewhere):
    """File by file: what it lacks comes from the repository."""
    assert published_file("routing/tsplib/eil51.tsp") == elsewhere / "routing/tsplib/eil51.tsp"
    assert published_file("routing/tsplib/eil101.tsp") == KEPT / "routing/tsplib/eil101.tsp"
    found = {path.name: path for path in published_files("routing/tsplib/*.tsp")}
    assert len(found) == 17
    assert {name for name, path in found.items() if elsewhere in path.parents} == {"eil51.tsp", "pla33810.tsp"}


def test_a_file_of_the_repository_that_is_missing_is_an_error(tmp_path, monkeypatch):
    """Also where it is one of many."""
    monkeypatch.setattr("tests.published.KEPT", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"tests/data/darp/a2-16\.txt is missing"):
        published_file("darp/a2-16.txt")
    with pytest.raises(FileNotFoundError, match=r"tests/data/routing/atsp/br17\.atsp is missing"):
        published_files("routing/atsp/*")


@pytest.mark.parametrize("look", [published_file, published_files])
def test_a_larger_set_that_is_not_here_skips_the_test(look):
    """The reason names the file and where to put it."""
    with pytest.raises(pytest.skip.Exception, match=r"no routing/tsplib/pla85900\.tsp: .* MILKRUN_DATA"):
        look("routing/tsplib/pla85900.tsp")


def test_a_folder_that_does_not_exist_is_refused(monkeypatch):
    """A typing error does not pass for the repository's own files."""
    monkeypatch.setenv("MILKRUN_DATA", "/no/such/folder")
    with pytest.raises(NotADirectoryError, match="'/no/such/folder' is no folder"):
        published_file("darp/a2-16.txt")
