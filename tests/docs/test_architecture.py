"""The table of files on the architecture page: every file of core once."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_file_of_core_stands_in_the_table_once():
    """Two rows for a file are two descriptions to keep; a file without one is found by chance."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"^\| `([\w/]+\.py)` \|", text.partition("## The files of `core`")[2], flags=re.MULTILINE)
    core = ROOT / "src" / "milkrun" / "core"
    there = {path.name for path in core.glob("*.py")} - {"__init__.py"}
    there |= {f"check/{path.name}" for path in (core / "check").glob("*.py")} - {"check/__init__.py"}
    assert sorted(named) == sorted(there)
