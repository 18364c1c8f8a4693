"""docs/from-dat.md shows the original's lines, and the same lines running here."""

import json
import re

from milkrun.tracking.files import PACKAGED
from tests.docs.test_docs import FROM_DAT, blocks

PLACES = re.compile(r"^(from|import) |entry_point=")
"""Lines that may differ: where a name comes from."""


def plain(line: str) -> str:
    """A line of code without what the formatter decides: spaces and the kind of quotes."""
    return re.sub(r"\s", "", line).replace("'", '"')


def test_only_import_paths_differ():
    """Every other line of a block "as it was" stands, in order, in the program below it."""
    page = FROM_DAT.read_text()
    programs = blocks(FROM_DAT, "python")
    pairs = 0
    for first, was in blocks(FROM_DAT, "text"):
        above = "\n".join(page.splitlines()[:first]).rpartition("\n\n")[0].rpartition("\n\n")[2]
        if not above.startswith("As it was"):
            continue
        runs = [
            plain(line.partition("  #")[0].strip().removeprefix("played = "))
            for line in next(block for start, block in programs if start > first)
        ]
        kept = [plain(line) for line in was if line.strip() and not PLACES.match(line.strip())]
        found = iter(runs)
        assert kept and all(line in found for line in kept), was
        pairs += 1
    assert pairs == 6


def test_the_file_shown_is_the_one_that_is_packaged():
    """The page shows the file that is loaded by default."""
    shown = next("\n".join(block) for _, block in blocks(FROM_DAT, "text") if block[0] == "{")
    assert json.loads(shown) == json.loads(PACKAGED.read_text())


def test_all_differences_are_there():
    """Numbered from 1 to 23, each with both sides and a reason."""
    table = FROM_DAT.read_text().partition("## The 23 differences")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if re.match(r"\| \d", line)]
    assert [int(row[0]) for row in rows] == list(range(1, 24))
    assert all(len(row) == 4 and all(row) for row in rows)
