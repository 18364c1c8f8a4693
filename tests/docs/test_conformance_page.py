"""The conformance page holds the table that `make conformance` writes, for the worlds and checkers there are now."""

import re
import subprocess
import sys
from importlib.metadata import version
from types import SimpleNamespace

import pytest

import milkrun
from tests import conformance
from tests.docs.generated import ROOT

PAGE = (ROOT / "docs" / "conformance.md").read_text()
TABLE = conformance.read(PAGE)
WORLDS = milkrun.list_worlds()
FOR_TEAMS = {"check_marl_grouping", "check_multiagent_environments"}
SAMPLED = {"equals AsyncVectorEnv", "RecordEpisodeStatistics", "NormalizeObservation", "DictInfoToList"}
"""Checkers of how a binding returns its rows, which is the same code for every world."""
OF_ONE = {f"{checker} of UAVVAT-v0" for checker in ("check_env", "PPO.learn", "Collector")}
"""Checkers of classes that are built on one world, Tracking."""


def test_the_page_is_what_the_writer_writes():
    """Reading and writing the table again changes nothing: every world has a column, and no other has."""
    assert conformance.PART.sub(lambda _: f"\n{conformance.write(TABLE)}\n", PAGE) == PAGE


def test_every_marked_checker_has_a_row():
    """And no row is of a checker that no test has. If not: make conformance."""
    marked = set()
    for path in (ROOT / "tests" / "truth").glob("*_conformance.py"):
        marked |= set(conformance.MARKER.findall(path.read_text()))
    assert marked == {(package, checker) for package, _, checker in TABLE}
    assert ("gymnasium", "check_env") in marked


def test_versions_are_those_that_are_installed():
    """The pinned ones, and Gymnasium's newest too."""
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    newest = re.search(r"^NEWEST := gymnasium==(\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    numbers = {(package, number) for package, number, _ in TABLE}
    assert numbers == {(package, pins[package]) for package, _ in numbers} | {("gymnasium", newest)}


@pytest.mark.parametrize("row", TABLE, ids=" ".join)
def test_a_checker_has_run_on_every_world_it_is_for(row):
    """Checkers of teams: all worlds of several agents; of a sample: at least one world; others: every world."""
    passed = {id for id, word in TABLE[row].items() if word == conformance.PASSED}
    assert len(passed) == len(TABLE[row])
    if row[2] in SAMPLED:
        assert passed
    elif row[2] in OF_ONE:
        assert passed == {"milkrun/Tracking-v0"}
    elif row[2] in FOR_TEAMS:
        assert passed == {id for id in WORLDS if milkrun.world_spec(id).agents == "multi"}
    else:
        assert passed == set(WORLDS)


PAGE_BEFORE = """words
<!-- conformance -->

| library | checker | [CVRP](worlds/cvrp.md) | [TSP](worlds/tsp.md) | [Gone](worlds/gone.md) |
|---|---|---|---|---|
| pytest 0.1 | old | pass | – | pass |
| pytest 0.2 | looks | pass | pass | pass |

<!-- end -->
more
"""
OLD, STALE = ("pytest", "0.1", "old"), ("pytest", "0.2", "looks")


def report(world, outcome="passed", when="call"):
    properties = [("conformance", ["pytest", "0.2", "looks", world])]
    return SimpleNamespace(user_properties=properties, when=when, passed=outcome == "passed")


@pytest.mark.parametrize("keep", [True, False])
def test_a_run_replaces_the_rows_of_its_versions(tmp_path, keep):
    """Results that did not pass again go, and so does a removed world; rows of other versions stay with `keep`."""
    page = tmp_path / "page.md"
    page.write_text(PAGE_BEFORE)
    recorder = conformance.Recorder(page, keep)
    recorder.pytest_runtest_logreport(report("milkrun/TSP-v0"))
    recorder.pytest_runtest_logreport(report("milkrun/CVRP-v0", "skipped"))
    recorder.pytest_runtest_logreport(report("milkrun/DARP-v0", when="setup"))
    recorder.pytest_sessionfinish(1)
    assert page.read_text() == PAGE_BEFORE
    recorder.pytest_sessionfinish(0)
    kept = {OLD: {"milkrun/CVRP-v0": "pass"}} if keep else {}
    assert conformance.read(page.read_text()) == {STALE: {"milkrun/TSP-v0": "pass"}, **kept}
    assert page.read_text().startswith("words\n<!-- conformance -->\n\n| library | checker | [CVRP]")
    assert page.read_text().endswith(" |\n\n<!-- end -->\nmore\n")


CASES = """
import pytest

@pytest.mark.conformance("pytest", "looks")
@pytest.mark.parametrize("id", ["milkrun/TSP-v0", "milkrun/CVRP-v0", "convoy"])
def test_looks(id):
    if id == "milkrun/CVRP-v0":
        pytest.skip("not today")

@pytest.mark.conformance("pytest", "counts", world="milkrun/DARP-v0")
def test_counts():
    pass

def test_unmarked():
    pass
"""


@pytest.mark.slow
def test_marks_reach_the_table_from_another_process(tmp_path):
    """The world is the parameter or the marker's; another parameter has no column, and a skipped test no pass."""
    (tmp_path / "test_cases.py").write_text(CASES)
    page = tmp_path / "page.md"
    page.write_text(PAGE_BEFORE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(ROOT / "pyproject.toml"),
        "-p",
        "tests.conformance",
        "-n",
        "1",
        "-p",
        "no:cacheprovider",
        "--conformance-table",
        str(page),
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    assert conformance.read(page.read_text()) == {
        ("pytest", version("pytest"), "counts"): {"milkrun/DARP-v0": "pass"},
        ("pytest", version("pytest"), "looks"): {"milkrun/TSP-v0": "pass"},
    }
