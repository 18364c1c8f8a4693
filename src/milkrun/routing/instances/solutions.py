"""Solutions in files: CVRPLIB's `Route #1: ...` lines, TSPLIB's tours, Cordeau's routes of depots, OPLib's tours.

Customers have the numbers of the file, from 1; the nodes of a tour count from 1 in the file and from 0 here.
"""

from __future__ import annotations

import contextlib
import difflib
import operator
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from milkrun.core.errors import ShapeError
from milkrun.core.files import REAL, as_written, name_of, write_bytes
from milkrun.routing.instances.text import LARGEST, Line, Page, Text, number_in

MOST = 10_001
# As in `text`, no two repetitions in a row match the same characters.
ROUTE = re.compile(r"\s*route(?:\s*#)?\s*\d+\s*:(.*)", re.IGNORECASE)
COST = re.compile(r"\s*cost(?:\s*:)?\s*(\S+)\s*", re.IGNORECASE)
LENGTH = re.compile(r"\((?:\s*length)?\s*(\d+(?:\.\d+)?)\s*\)|length(?:\s*:)?\s*(\d+(?:\.\d+)?)", re.IGNORECASE)
TOUR_KEYS = ("NAME", "TYPE", "COMMENT", "DIMENSION")
SCORE_KEYS = (*TOUR_KEYS, "COST_LIMIT", "ROUTE_NODES", "ROUTE_SCORE", "ROUTE_COST")
BEFORE_CUSTOMERS = 5  # depot, vehicle, length, load, depot at the end


@dataclass(frozen=True)
class Solution:
    """Routes of customers without the depot; a tour is one route that includes node 0."""

    routes: tuple[tuple[int, ...], ...]
    cost: float | None = None
    """as stated in the file; in orienteering the score"""
    depots: tuple[int, ...] | None = None
    """the depot of each route, from 0, if the file states it"""
    ends: tuple[int, ...] | None = None
    """the depot at which each route ends, from 0, if the file states it"""


def read_solution(path: str | os.PathLike[str]) -> Solution:
    """The routes of a `.sol` or `.res` file or the tour of a `.tour` file."""
    text = Text.load(path)
    heads = {line.words[0].rstrip(":").upper() for line in text.filled()}
    if "TOUR_SECTION" in heads:
        return _tour(text)
    if "NODE_SEQUENCE_SECTION" in heads:
        return _orienteering(text)
    return _routes_of_depots(text) if _starts_with_numbers(text) else _routes(text)


def write_solution(path: str | os.PathLike[str], routes: Iterable[Sequence[int]], cost: float | None = None) -> None:
    """Writes routes as CVRPLIB does, or a tour as TSPLIB does if the name ends in `.tour`."""
    plan = read_routes(routes)
    tour = name_of(path).endswith(".tour")
    if cost is not None and not _is_number(cost):
        raise ShapeError(f"cost is {cost!r}, expected a finite number, or None")
    if tour and len(plan) != 1:
        raise ShapeError(f"a tour is one route, not {len(plan)}")
    if low := [j for route in plan for j in route if j < (0 if tour else 1)]:
        raise ShapeError(f"a route has node {low[0]}; {'nodes count from 0' if tour else 'customers count from 1'}")
    lines = _tour_lines(Path(path).name, plan[0], cost) if tour else _route_lines(plan, cost)
    write_bytes(path, "".join(f"{line}\n" for line in lines).encode())


def read_routes(routes: Any) -> tuple[tuple[int, ...], ...]:
    """Routes as tuples of whole numbers, from any kind of sequence."""
    if isinstance(routes, (str, bytes, Mapping)) or not isinstance(routes, Iterable):
        raise ShapeError(f"routes are lists of node numbers, one a route, not a {type(routes).__name__}")
    plan = []
    for k, route in enumerate(routes, start=1):
        if isinstance(route, (str, bytes, Mapping)) or not isinstance(route, Iterable):
            raise ShapeError(f"route {k} is a {type(route).__name__}, expected a list of node numbers")
        plan.append(tuple(_node(node, k) for node in route))
    return tuple(plan)


def _node(value: Any, route: int) -> int:
    if not isinstance(value, (bool, np.bool_)):
        with contextlib.suppress(TypeError):
            return operator.index(value)
    raise ShapeError(f"route {route} has {value!r}, which is not a node number")


def _is_number(value: Any) -> bool:
    plain = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return plain and -LARGEST <= value <= LARGEST


def _route_lines(plan: tuple[tuple[int, ...], ...], cost: float | None) -> list[str]:
    lines = [f"Route #{k}: {' '.join(map(str, route))}" for k, route in enumerate(plan, start=1)]
    return lines if cost is None else [*lines, f"Cost {as_written(cost)}"]


def _tour_lines(name: str, tour: tuple[int, ...], cost: float | None) -> list[str]:
    length = [] if cost is None else [f"COMMENT : Length {as_written(cost)}"]
    head = [f"NAME : {name}", *length, "TYPE : TOUR", f"DIMENSION : {len(tour)}", "TOUR_SECTION"]
    return [*head, *(str(j + 1) for j in tour), "-1", "EOF"]


def _routes(text: Text) -> Solution:
    routes: list[tuple[int, ...]] = []
    cost: float | None = None
    for line in text.filled():
        raw = text.lines[line.number - 1]
        if not routes and _is_heading(line):
            continue
        if found := ROUTE.fullmatch(raw):
            if cost is not None:
                raise text.fault(line.number, "Route", "a route after the cost")
            routes.append(tuple(text.whole(w, line.number, "Route", 1, MOST) for w in found[1].split()))
        elif found := COST.fullmatch(raw):
            if cost is not None:
                raise text.fault(line.number, "Cost", "a second cost")
            cost = text.real(found[1], line.number, "Cost")
        else:
            raise text.fault(line.number, None, "neither `Route #k: customers` nor `Cost value`")
    if not routes:
        raise text.fault(None, "Route", "the file has no route")
    if cost is None:
        text.refuse_a_cut_line("Route")
    return Solution(tuple(routes), cost)


def _is_heading(line: Line) -> bool:
    """True for a line of text above the routes; a misspelt `Route` or `Cost` is none."""
    word = line.words[0].rstrip(":#0123456789").lower()
    return word[:1].isalpha() and not difflib.get_close_matches(word, ("route", "cost"), n=1, cutoff=0.7)


def _tour(text: Text) -> Solution:
    section = "TOUR_SECTION"
    page = Page(text, TOUR_KEYS, (section,))
    words = [(word, line.number) for line in page.lines(section) for word in line.words]
    ends = next((k for k, (word, _) in enumerate(words) if word == "-1"), len(words))
    if any(word != "-1" for word, _ in words[ends:]):
        raise text.fault(words[ends][1], section, "more follows the -1 that ends the tour")
    tour = tuple(text.whole(word, line, section, 1, MOST) - 1 for word, line in words[:ends])
    if "DIMENSION" in page.entries and len(tour) != (nodes := page.whole("DIMENSION", 1, MOST)):
        last = words[-1][1] if words else page.starts[section]
        raise text.fault(last, section, f"{len(tour)} nodes, but DIMENSION is {nodes}")
    if ends == len(words) and "DIMENSION" not in page.entries:
        raise text.fault(page.starts[section], section, "neither -1 nor DIMENSION marks the end of the tour")
    return Solution((tour,), number_in(page.comment, LENGTH))


def _starts_with_numbers(text: Text) -> bool:
    """True for Cordeau's solutions: two lines with a number each, then a line that begins with several."""
    lines = [line.words for _, line in zip(range(3), text.filled())]
    numbers = all(REAL.fullmatch(word) for words in lines for word in words[:2])
    return len(lines) > 1 and numbers and [len(words) for words in lines[:2]] == [1, 1]


def _routes_of_depots(text: Text) -> Solution:
    """A threshold, the value, then a line a route: depot, vehicle, length, load, depot at the end, customers.

    Nothing marks the end: if it is missing, the replay names a customer that is not served.
    """
    lines = list(text.filled())
    cost = text.real(lines[1].words[0], lines[1].number, "Cost")
    if len(lines) == 2:
        raise text.fault(None, "Route", "the file has no route")
    routes, depots = [], []
    for line in lines[2:]:
        if len(line.words) <= BEFORE_CUSTOMERS:
            said = "a route has more than 5: depot, vehicle, length, load, depot at the end, customers"
            raise text.fault(line.number, "Route", f"{len(line.words)} words; {said}")
        start, _, end = (text.whole(line.words[k], line.number, "Route", 1, MOST) for k in (0, 1, 4))
        for word in line.words[2:4]:
            text.real(word, line.number, "Route", 0.0)
        routes.append(tuple(text.whole(w, line.number, "Route", 1, MOST) for w in line.words[BEFORE_CUSTOMERS:]))
        depots.append((start - 1, end - 1))
    starts, ends = zip(*depots, strict=True)
    return Solution(tuple(routes), cost, starts, ends)


def _orienteering(text: Text) -> Solution:
    """OPLib's tour, which begins with node 1, the depot; customers count from 1 after it, as in CVRPLIB."""
    section = "NODE_SEQUENCE_SECTION"
    page = Page(text, SCORE_KEYS, (section, "DEPOT_SECTION"))
    words = [(word, line.number) for line in page.lines(section) for word in line.words]
    if not words or words.pop()[0] != "-1":
        raise text.fault(page.starts[section], section, "no -1 marks the end of the tour")
    nodes = [text.whole(word, line, section, 1, MOST) - 1 for word, line in words]
    if not nodes or nodes[0] != 0:
        raise text.fault(page.starts[section], section, "the tour does not begin with node 1, the depot")
    if "ROUTE_NODES" in page.entries and len(nodes) != (count := page.whole("ROUTE_NODES", 1, MOST)):
        raise text.fault(words[-1][1], section, f"{len(nodes)} nodes, but ROUTE_NODES is {count}")
    if 0 in nodes[1:]:
        raise text.fault(page.starts[section], section, "the tour visits node 1, the depot, twice")
    score = page.real("ROUTE_SCORE", 0.0, 0.0) if "ROUTE_SCORE" in page.entries else None
    return Solution((tuple(nodes[1:]),), score)
