"""The files that are named are there, and the small environment has what its files ask for."""

import re

import pytest

from tests.order import IN_BOTH, LONGEST, TESTS, runs_in


@pytest.mark.parametrize("names", [LONGEST, IN_BOTH])
def test_every_file_named_exists_and_is_named_once(names):
    """A file that was renamed would silently lose its place."""
    assert [name for name in names if not (TESTS / f"{name}.py").exists()] == []
    assert len(set(names)) == len(names)


def test_no_test_is_skipped_for_want_of_a_package_in_the_small_environment():
    """Its files ask for nothing that the Makefile does not put there."""
    installed = {"mujoco", "msgpack", "scipy"}
    for path in TESTS.rglob("*.py"):
        if path.name.startswith("test_") and runs_in(path) == {"small"}:
            assert set(re.findall(r"importorskip\(\W*(\w+)", path.read_text())) <= installed, path


@pytest.mark.parametrize(
    "name, where",
    [
        ("core/test_world", "small"),
        ("core/test_processes", "large"),
        ("truth/test_rl4co_parity", "large"),
        ("tracking/test_link_server", "large"),
    ],
)
def test_where_a_file_runs(name, where):
    """Numpy alone: small. Tests of loaded modules, files that name torch, and files with such helpers: large."""
    assert runs_in(TESTS / f"{name}.py") == {where}
