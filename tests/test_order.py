"""The files that are named as the longest are there."""

from pathlib import Path

from tests.order import LONGEST


def test_every_long_file_exists_and_is_named_once():
    """A file that was renamed would silently lose its place."""
    assert [name for name in LONGEST if not (Path(__file__).parent / f"{name}.py").exists()] == []
    assert len(set(LONGEST)) == len(LONGEST)
