"""Which checker of which library has passed which world: a pytest plugin that writes the table of docs/conformance.md.

A test that lets another library judge a world is marked with that library's distribution and the name of the checker,
`@pytest.mark.conformance("gymnasium", "check_env")`. The world is the test's parameter `id`, or the marker's `world`.
`make conformance` runs the marked tests with this plugin. The table says what the run saw, and a run in which anything
failed writes none.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

import milkrun

PART = re.compile(r"(?<=<!-- conformance -->\n).*?(?=<!-- end -->)", re.DOTALL)
MARKER = re.compile(r'pytest\.mark\.conformance\(\s*"([^"]+)",\s*"([^"]+)"')
PASSED, NOT_ASKED = "pass", "–"

Row = tuple[str, str, str]
"""Distribution, version, checker."""
Table = dict[Row, dict[str, str]]
"""What stands below each world's id in each row."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--conformance-table", type=Path, metavar="PAGE", help="write the table into this page")
    group.addoption("--conformance-keep", action="store_true", help="keep the rows of other versions that it has")


def pytest_configure(config: pytest.Config) -> None:
    page = config.getoption("--conformance-table")
    if page is not None and not hasattr(config, "workerinput"):  # under xdist the main process alone writes
        config.pluginmanager.register(Recorder(page, config.getoption("--conformance-keep")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each marked test carries what it is about, also from another process."""
    worlds = set(milkrun.list_worlds())
    for item in items:
        for mark in item.iter_markers("conformance"):
            package, checker = mark.args
            world = mark.kwargs.get("world") or item.callspec.params["id"]
            if world in worlds:
                item.user_properties.append(("conformance", [package, version(package), checker, world]))


class Recorder:
    """Gathers what marked tests came to and writes the page at the end."""

    def __init__(self, page: Path, keep: bool) -> None:
        self.page, self.keep = page, keep
        self.seen: Table = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            for name, value in report.user_properties:
                if name == "conformance":
                    *row, world = value
                    self.seen.setdefault(tuple(row), {})[world] = PASSED

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus != pytest.ExitCode.OK:
            return
        text = self.page.read_text()
        run = {row[:2] for row in self.seen}
        kept = {row: cells for row, cells in read(text).items() if self.keep and row[:2] not in run}
        self.page.write_text(PART.sub(lambda _: f"\n{write(kept | self.seen)}\n", text))


def write(table: Table) -> str:
    """As Markdown: a row a checker, a column a world."""
    names = {id: milkrun.world_spec(id).name for id in milkrun.list_worlds()}
    heads = [f"[{name}](worlds/{name.lower()}.md)" for name in names.values()]
    lines = [f"| library | checker | {' | '.join(heads)} |", "|---|---|" + "---|" * len(heads)]
    for (package, number, checker), cells in sorted(table.items()):
        said = [cells.get(id, NOT_ASKED) for id in names]
        lines.append(f"| {package} {number} | {checker} | {' | '.join(said)} |")
    return "\n".join(lines) + "\n"


def read(text: str) -> Table:
    """The table of a page."""
    part = PART.search(text)
    lines = [line.strip("| ").split(" | ") for line in part[0].splitlines() if line.startswith("| ")] if part else []
    ids = {milkrun.world_spec(id).name: id for id in milkrun.list_worlds()}
    columns = [ids.get(name) for name in re.findall(r"\[(\w+)\]", " ".join(lines[0]))] if lines else []
    table: Table = {}
    for library, checker, *said in lines[1:]:
        package, number = library.split()
        table[package, number, checker] = {id: word for id, word in zip(columns, said) if id and word != NOT_ASKED}
    return table
