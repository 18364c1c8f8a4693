"""Files of the TSP with drone, as in the collection TSP-D-Instances of P. Bouman: instances, and plans for them.

A file is a stream of words with comments in `/* */`, also across lines. The comments call the first two numbers of an
instance "speed", but they are costs per distance: .5 is twice as fast. The flight limit is in drone cost, not distance.
"""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from milkrun.core.errors import BadInstance, ConfigError, FormatError, did_you_mean
from milkrun.core.files import REAL, WHOLE, decoded, read_bytes, short
from milkrun.delivery.instances.tspd import LARGEST, NO_FLY, Operation, Solution, TSPDInstance, distances

COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
OPERATION_COST = re.compile(r"\s*operation cost\s*:\s*(\S+)\s*", re.IGNORECASE)
TOTAL_COST = re.compile(r"\s*total cost\s*:\s*(\S+)\s*", re.IGNORECASE)
DIRECTIVES = ("#MAXFLY", "#NOVISIT", "#FORBID")
MAX_NODES = 10_001


class Word(NamedTuple):
    """A word or the text of a comment, with its line and its offset in the file."""

    text: str
    line: int
    at: int


def load_tspd(path: str | os.PathLike[str]) -> TSPDInstance:
    """The instance in a file; one that does not parse is a FormatError with file, line and word."""
    page = _Page(path)
    directives = page.directives()
    truck, drone = (page.real(page.take(f"the {vehicle}'s cost per distance"), 0.0) for vehicle in ("truck", "drone"))
    count = page.take("the number of nodes")
    n = page.whole(count, 2, MAX_NODES)
    locs = np.zeros((n, 2))
    for i in range(n):
        for axis, letter in enumerate("xy"):
            locs[i, axis] = page.real(page.take(f"the {letter} of node {i}", count))
        page.take(f"the name of node {i}", count)
    page.finish(count)
    max_fly, listed = _restrictions(page, directives, n)
    try:
        return TSPDInstance.of_places(
            page.path.stem, locs, truck, drone, max_fly=max_fly, no_visit=listed["#NOVISIT"], forbid=listed["#FORBID"]
        )
    except BadInstance as e:  # places far apart at a high cost per distance
        raise FormatError(f"{page.path}: {e}") from None


def write_tspd(instance: TSPDInstance, path: str | os.PathLike[str]) -> None:
    """Writes an instance; its costs must be a factor times the distance."""
    way = distances(instance.locs)
    for name in ("truck", "drone"):
        factor = getattr(instance, f"{name}_factor")
        if factor is None or not np.array_equal(factor * way, getattr(instance, f"c_{name}")):
            raise ConfigError(
                f"{instance.name}: c_{name} is not {name}_factor times the distance, and the files hold no other costs"
            )
    lines = [] if math.isinf(instance.max_fly) else [f"#MAXFLY {instance.max_fly!r}"]
    lines += [f"#NOVISIT {i}" for i in np.flatnonzero(instance.no_visit)]
    lines += [f"#FORBID {i}" for i in np.flatnonzero(instance.forbid)]
    lines += ["/*Cost per distance of the Truck*/", repr(instance.truck_factor)]
    lines += ["/*Cost per distance of the Drone*/", repr(instance.drone_factor)]
    lines += ["/*Number of Nodes*/", str(instance.num_nodes), "/*The Depot*/"]
    for i, (x, y) in enumerate(instance.locs.tolist()):
        lines += ["/*The Locations (x_coor y_coor name)*/"] if i == 1 else []
        lines += [f"{x!r} {y!r} {f'loc{i}' if i else 'depot'}"]
    _write(path, lines)


def load_tspd_solution(path: str | os.PathLike[str], *, nodes: int | None = None) -> Solution:
    """The plan in a file without empty operations, and its costs if comments state them.

    A plan does not state the number of nodes; without `nodes` the highest node in it counts. The form of the plan is
    checked here (FormatError), its validity for an instance by `milkrun.delivery.tasks.check_operations`.
    """
    page = _Page(path)
    if page.commands:
        raise page.fault(page.commands[0][0], "is a directive, which has no meaning in a plan")
    count = page.take("the number of operations")
    high = (MAX_NODES if nodes is None else nodes) - 1
    plan = _OperationList(page)
    for k in range(page.whole(count, 0, 2 * MAX_NODES)):
        start, end = (page.take(f"the {which} of operation {k}", count) for which in ("start", "end"))
        fly = page.take(f"the drone node of operation {k}", count)
        inside = page.take(f"the number of internal nodes of operation {k}", count)
        size = page.whole(inside, 0, MAX_NODES)
        internal = [page.take(f"an internal node of operation {k}", inside) for _ in range(size)]
        plan.add(start, end, fly, internal, high)
    page.finish(count)
    plan.finish(nodes)
    total = next((page.real(c) for c in page.values_in_comments(TOTAL_COST)), None)
    return Solution(tuple(plan.operations), plan.costs(), total)


def write_tspd_solution(solution: Solution, path: str | os.PathLike[str]) -> None:
    """Writes a plan, with the costs of its operations and the total if known."""
    operations = solution.operations
    lines = ["/* Number of Operations */", str(len(operations)), "/* List of Operations. */"]
    lines += ["/* Start\tEnd\tFly\t#Internal\tLocations...*/"]
    for k, (start, end, fly, internal) in enumerate(operations):
        cost = "" if solution.op_costs is None else f"\t/* Operation cost : {float(solution.op_costs[k])!r}*/"
        lines += ["\t".join(map(str, (start, end, fly, len(internal), *internal))) + cost]
    lines += [] if solution.total is None else [f"/* Total cost : {float(solution.total)!r} */"]
    _write(path, lines)


def _write(path: str | os.PathLike[str], lines: Iterable[str]) -> None:
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _restrictions(page: _Page, directives: list[list[Word]], n: int) -> tuple[float, dict[str, list[int]]]:
    """The limit of a flight, and the nodes listed under each other directive."""
    limit: Word | None = None
    listed: dict[str, list[int]] = {name: [] for name in DIRECTIVES}
    for name, value in directives:
        if name.text != "#MAXFLY":
            listed[name.text].append(page.whole(value, 0, n - 1))
        elif limit is not None:
            raise page.fault(name, f"is given a second time; the first is in line {limit.line}")
        else:
            limit = value
    if limit is None or limit.text == "Infinity":
        return math.inf, listed
    return page.real(limit, 0.0), listed


class _OperationList:
    """The operations read so far, and the rules of every plan."""

    def __init__(self, page: _Page) -> None:
        self.page = page
        self.operations: list[Operation] = []
        self.ends: list[int] = []  # words read when an operation was complete
        self.place = 0
        self.last: Word | None = None
        self.covered = {0}
        self.flown: dict[int, int] = {}

    def add(self, start: Word, end: Word, fly: Word, internal: list[Word], high: int) -> None:
        page = self.page
        s, e = (page.whole(word, 0, high) for word in (start, end))
        f = page.whole(fly, NO_FLY, high) or NO_FLY  # 0 means the same: the depot needs no drone
        through = tuple(page.whole(word, 0, high) for word in internal)
        if s != self.place:
            where = "the plan starts at 0" if self.last is None else f"the operation before ended at {self.place}"
            raise page.fault(start, f"does not chain: {where}")
        if f in self.flown:
            raise page.fault(fly, f"is covered twice by the drone, the first time in line {self.flown[f]}")
        self.place = e
        self.last = end
        if f == NO_FLY and s == e and not through:
            return
        self.operations.append(Operation(s, e, f, through))
        self.ends.append(page.read)
        self.covered.update(through, (e,))
        if f != NO_FLY:
            self.flown[f] = fly.line
            self.covered.add(f)

    def finish(self, nodes: int | None) -> None:
        if self.last is None or not self.operations:
            raise self.page.fault(None, "the plan has no operation that covers a node")
        if self.place != 0:
            raise self.page.fault(self.last, "is where the plan ends, which must be 0")
        for node in range(max(self.covered) + 1 if nodes is None else nodes):
            if node not in self.covered:
                raise self.page.fault(None, f"the plan ends with node {node} uncovered")

    def costs(self) -> tuple[float, ...] | None:
        """The costs in the comments after the operations; None unless all have one."""
        # A comment belongs to the operation that was complete after as many words as precede the comment.
        at = [word.at for word in self.page.words]
        costs = {bisect_left(at, comment.at): comment for comment in self.page.values_in_comments(OPERATION_COST)}
        if any(end not in costs for end in self.ends):
            return None
        return tuple(self.page.real(costs[end]) for end in self.ends)


class _Page:
    """The words of a file in order, with parsers that report faults by word."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        text = decoded(read_bytes(path))
        # Comments are replaced by blanks of the same length, so that offsets in `plain` and `text` agree.
        closed = text.rfind("*/") + 2  # after it each "/*" would search to the end of the file
        plain = COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text[:closed]) + text[closed:]
        self.starts = [0, *(found.end() for found in re.finditer("\n", plain))]
        self.words: list[Word] = []
        self.commands: list[list[Word]] = []
        for start, line in zip(self.starts, plain.split("\n"), strict=True):
            found = [self._word(word[0], start + word.start()) for word in re.finditer(r"\S+", line)]
            if found and found[0].text.startswith("#"):
                self.commands.append(found)
            else:
                self.words += found
        self.comments = [self._word(comment[1], comment.start()) for comment in COMMENT.finditer(text, 0, closed)]
        self.read = 0
        for word in self.words:
            if word.text.startswith("/*"):
                raise self.fault(word, "opens a comment that never closes")

    def _word(self, text: str, at: int) -> Word:
        return Word(text, bisect_right(self.starts, at), at)

    def fault(self, word: Word | None, sentence: str) -> FormatError:
        """The error for a word, or for the end of the file."""
        if word is None:
            end = self.words[-1].line if self.words else len(self.starts)
            return FormatError(f"{self.path}, line {end}: {sentence}")
        return FormatError(f"{self.path}, line {word.line}: {short(word.text)} {sentence}")

    def take(self, what: str, count: Word | None = None) -> Word:
        """The next word, described by `what`; `count` is the word that requires it."""
        if self.read == len(self.words):
            counted = "" if count is None else f"; line {count.line} counts {count.text!r}"
            raise self.fault(None, f"the file ends before {what}{counted}")
        self.read += 1
        return self.words[self.read - 1]

    def finish(self, count: Word) -> None:
        if self.read < len(self.words):
            raise self.fault(self.words[self.read], f"is left over; line {count.line} counts {count.text!r}")

    def directives(self) -> list[list[Word]]:
        """The lines that begin with #: a name and a value each."""
        for words in self.commands:
            name = words[0]
            if name.text not in DIRECTIVES:
                raise self.fault(name, f"is no directive{did_you_mean(name.text, DIRECTIVES)}")
            if len(words) == 1:
                raise self.fault(name, "has no value")
            if len(words) > 2:
                raise self.fault(words[2], f"is left over; {name.text} has one value")
            # A last line without a line end may be truncated: `#MAXFLY 150` may have become `#MAXFLY 15`.
            if name.line == len(self.starts):
                raise self.fault(words[1], "may be cut: the file stops within the line")
        return self.commands

    def values_in_comments(self, pattern: re.Pattern[str]) -> list[Word]:
        """The values in comments that match this pattern."""
        found = [(pattern.fullmatch(comment.text), comment) for comment in self.comments]
        return [comment._replace(text=match[1]) for match, comment in found if match]

    def real(self, word: Word, low: float = -LARGEST) -> float:
        if REAL.fullmatch(word.text) is None:
            raise self.fault(word, "is not a number")
        value = float(word.text)
        if not low <= value <= LARGEST:
            raise self.fault(word, f"is not within {low:g}..{LARGEST:g}")
        return value

    def whole(self, word: Word, low: int, high: int) -> int:
        if WHOLE.fullmatch(word.text) is None:
            raise self.fault(word, "is not a whole number")
        # no number here has 18 digits, and int() raises a ValueError on thousands of digits
        if len(word.text) > 18 or not low <= int(word.text) <= high:
            raise self.fault(word, f"is not within {low}..{high}")
        return int(word.text)
