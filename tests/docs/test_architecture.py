"""The table of files on the architecture page: every file of core once."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "src" / "milkrun" / "core"


def test_every_file_of_core_stands_in_the_table_once():
    """Each file has one line; of a package the table names the folder."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("## The files of `core`")[2]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [name for cell in cells for name in re.findall(r"`([\w/.]+)`", cell)]
    files = [path.name for path in CORE.glob("*.py") if path.name != "__init__.py"]
    assert sorted(named) == sorted([*files, *(f"{path.parent.name}/" for path in CORE.glob("*/__init__.py"))])
