"""TSPLIB95 and its relatives: TSP, ATSP, CVRP, PCVRPTW and VRPB problems in `KEY : value` lines and sections.

The rounding of CVRP distances depends on the set of the file, not on its text: A, B, E, F, M, P and X round as EUC_2D
specifies; CMT, Golden, tai and Li do not. Prize-collecting files with windows use tenths, rounded down.
"""

from __future__ import annotations

import math
import re
from pathlib import PurePath
from typing import Any

import numpy as np

from milkrun.routing.instances import precision, weights
from milkrun.routing.instances.instance import Instance
from milkrun.routing.instances.text import Page, Text, number_in

MAX_NODES = 10_001  # limit of the worlds: 10 000 customers and the depot
MOST = 2**30
UNROUNDED = re.compile(r"(CMT|Golden|tai|Li)[_-]?\d", re.IGNORECASE)
# Words in between must not match again; otherwise a comment of one repeated word would take quadratic time.
BEST = re.compile(
    r"(?:optimal|best)(?:(?!optimal|best)[\w ])*:\s*(\d+(?:\.\d+)?)|^(\d+(?:\.\d+)?)$", re.IGNORECASE | re.MULTILINE
)
"""`Optimal value: 784`, `Best value: 784`, or a comment that is a number"""

PLACES = ("NODE_COORD_SECTION", "EDGE_WEIGHT_SECTION", "DISPLAY_DATA_SECTION")
SECTIONS = {
    "TSP": ("FIXED_EDGES_SECTION",),
    "ATSP": (),
    "CVRP": ("DEMAND_SECTION", "DEPOT_SECTION"),
    "PCVRPTW": ("DEMAND_SECTION", "DEPOT_SECTION", "TIME_WINDOW_SECTION", "PRIZE_SECTION"),
    "VRPB": ("DEMAND_SECTION", "DEPOT_SECTION", "BACKHAUL_SECTION"),
}
COMMON = (
    "NAME",
    "TYPE",
    "COMMENT",
    "DIMENSION",
    "EDGE_WEIGHT_TYPE",
    "EDGE_WEIGHT_FORMAT",
    "DISPLAY_DATA_TYPE",
    "NODE_COORD_TYPE",
)
KEYS = {
    "TSP": (),
    "ATSP": (),
    "CVRP": ("CAPACITY", "VEHICLES", "DISTANCE", "SERVICE_TIME"),
    "PCVRPTW": ("CAPACITY", "VEHICLES", "SERVICE_TIME"),
    "VRPB": ("CAPACITY", "VEHICLES"),
}
TENTHS = 10.0


def parse(text: Text) -> Instance:
    """The problem of a text of any TYPE."""
    every_key = {*COMMON, *(key for keys in KEYS.values() for key in keys)}
    every_section = {*PLACES, *(name for names in SECTIONS.values() for name in names)}
    page = Page(text, every_key, every_section)
    kind = page.word("TYPE", SECTIONS)
    page.only((*COMMON, *KEYS[kind]), (*PLACES, *SECTIONS[kind]), kind)
    nodes = page.whole("DIMENSION", 2, MAX_NODES)
    name = page.entries.get("NAME", ("", 0))[0] or PurePath(text.file).stem
    stated: dict[str, Any] = {"name": name, "kind": kind, "n": nodes - int(kind not in ("TSP", "ATSP"))}
    stated |= {"best": number_in(page.comment, BEST), **_measure(page, kind, name)}
    places = _places(page, stated["edge"], nodes)
    if "VEHICLES" in page.entries:
        stated["vehicles"] = page.whole("VEHICLES", 1, MOST)
    if "FIXED_EDGES_SECTION" in page.sections:
        stated["fixed_edges"] = _fixed_edges(page, nodes)
    if kind in ("CVRP", "PCVRPTW", "VRPB"):
        _check_depot(page, nodes)
        stated |= {"CVRP": _cvrp, "PCVRPTW": _pcvrptw, "VRPB": _vrpb}[kind](page, nodes)
    return precision.guarded(text, stated, places)


def _measure(page: Page, kind: str, name: str) -> dict[str, Any]:
    """The distance law: `metric`, `edge`, `scale`."""
    edge = page.word("EDGE_WEIGHT_TYPE", (*weights.LAWS, "EXPLICIT"))
    if kind == "PCVRPTW":
        if edge != "EUC_2D":
            raise page.text.fault(page.entries["EDGE_WEIGHT_TYPE"][1], "EDGE_WEIGHT_TYPE", "PCVRPTW needs EUC_2D")
        return {"metric": "trunc1", "edge": edge, "scale": TENTHS}
    if kind == "CVRP" and edge == "EUC_2D" and UNROUNDED.match(name):
        return {"metric": "euclid", "edge": edge}
    return {"metric": {"EUC_2D": "round", "CEIL_2D": "ceil"}.get(edge, "matrix"), "edge": edge}


def _places(page: Page, edge: str, nodes: int) -> weights.Floats | precision.Matrix:
    """The coordinates of the nodes, or the explicit distances with display coordinates."""
    if edge == "EXPLICIT":
        shown = next((s for s in ("NODE_COORD_SECTION", "DISPLAY_DATA_SECTION") if s in page.sections), None)
        locs = None if shown is None else _coordinates(page, shown, nodes)
        return precision.Matrix(_explicit(page, nodes), locs)
    if "EDGE_WEIGHT_SECTION" in page.sections:
        start = page.starts["EDGE_WEIGHT_SECTION"]
        raise page.text.fault(start, "EDGE_WEIGHT_SECTION", f"contradicts EDGE_WEIGHT_TYPE {edge}")
    return _coordinates(page, "NODE_COORD_SECTION", nodes)


def _coordinates(page: Page, section: str, nodes: int) -> weights.Floats:
    return np.array([place for _, place in page.table(section, nodes, 2, -math.inf)])


def _explicit(page: Page, nodes: int) -> weights.Floats:
    form = page.word("EDGE_WEIGHT_FORMAT", weights.FORMATS)
    numbers = page.stream("EDGE_WEIGHT_SECTION", 0.0)
    if len(numbers) != (wanted := weights.cells(form, nodes)):
        lines = page.lines("EDGE_WEIGHT_SECTION")
        last = lines[-1].number if lines else page.starts["EDGE_WEIGHT_SECTION"]
        said = f"{len(numbers)} numbers; {form} of DIMENSION {nodes} has {wanted}"
        raise page.text.fault(last, "EDGE_WEIGHT_SECTION", said)
    return weights.explicit(form, nodes, numbers)


def _fixed_edges(page: Page, nodes: int) -> tuple[tuple[int, int], ...]:
    """Pairs of nodes up to a -1, counted from 0."""
    section = "FIXED_EDGES_SECTION"
    words = [(word, line.number) for line in page.lines(section) for word in line.words]
    if not words or words.pop()[0] != "-1":
        raise page.text.fault(page.starts[section], section, "no -1 marks the end of the edges")
    ends = [page.text.whole(word, line, section, 1, nodes) - 1 for word, line in words]
    edges = tuple(zip(ends[::2], ends[1::2]))
    if len(ends) % 2 or any(i == j for i, j in edges):
        raise page.text.fault(page.starts[section], section, "an edge is two nodes that differ")
    return edges


def _check_depot(page: Page, nodes: int) -> None:
    section = "DEPOT_SECTION"
    words = [(word, line.number) for line in page.lines(section) for word in line.words]
    if words and words[-1][0] == "-1":
        words.pop()
    if len(words) != 1:
        raise page.text.fault(page.starts[section], section, f"{len(words)} depots; only one is supported")
    word, line = words[0]
    if page.text.whole(word, line, section, 1, nodes) != 1:
        raise page.text.fault(line, section, f"the depot is node {word}; only node 1 is supported")


def _column(page: Page, section: str, nodes: int, low: int, high: int) -> np.ndarray:
    """A whole number for each node: 0 at the depot, low..high at customers."""
    column = np.zeros(nodes, np.int64)
    for j, (line, (value,)) in enumerate(page.table(section, nodes, 1, 0.0)):
        if j == 0 and value != 0:
            raise page.text.fault(line, section, f"the depot has {value:g}, it must be 0")
        if value != math.floor(value) or (j > 0 and not low <= value <= high):
            raise page.text.fault(line, section, f"{value:.10g} is not a whole number within {low}..{high}")
        column[j] = int(value)
    return column


def _cvrp(page: Page, nodes: int) -> dict[str, Any]:
    capacity = page.whole("CAPACITY", 1, MOST)
    limit = page.real("DISTANCE", math.inf, 0.0)
    service = page.real("SERVICE_TIME", 0.0, 0.0)
    demand = _column(page, "DEMAND_SECTION", nodes, 1, capacity)
    fields = {"demand_units": demand, "capacity": capacity, "max_length": limit}
    if not service or math.isinf(limit):  # service counts against the limit; without a limit it has no effect
        return {"fields": fields}
    return {"fields": {**fields, "service_time": service * (np.arange(nodes) > 0)}}


def _pcvrptw(page: Page, nodes: int) -> dict[str, Any]:
    capacity = page.whole("CAPACITY", 1, MOST)
    service = page.tenths("SERVICE_TIME", 0.0)
    prizes = page.table("PRIZE_SECTION", nodes, 1, 0.0, tenths=True)
    windows = page.table("TIME_WINDOW_SECTION", nodes, 2, 0.0, tenths=True)
    for line, (opens, closes) in windows:
        if closes < opens:
            said = f"closes at {closes / TENTHS:g} before it opens at {opens / TENTHS:g}"
            raise page.text.fault(line, "TIME_WINDOW_SECTION", said)
    line, (prize,) = prizes[0]
    if prize != 0:
        raise page.text.fault(line, "PRIZE_SECTION", f"the depot has {prize / TENTHS:g}, it must be 0")
    if windows[0][1][0] != 0:
        raise page.text.fault(windows[0][0], "TIME_WINDOW_SECTION", "the depot must open at 0")
    return {
        "fields": {
            "prize": np.array([prize for _, (prize,) in prizes]),
            "weight": _column(page, "DEMAND_SECTION", nodes, 0, capacity).astype(np.float64),
            "capacity": float(capacity),
            "must_go": np.zeros(nodes, np.bool_),
            "max_length": math.inf,
            "time_windows": np.array([pair for _, pair in windows]),
            "service_time": service * (np.arange(nodes) > 0),
        }
    }


def _vrpb(page: Page, nodes: int) -> dict[str, Any]:
    capacity = page.whole("CAPACITY", 1, MOST)
    linehaul = _column(page, "DEMAND_SECTION", nodes, 0, capacity)
    backhaul = _column(page, "BACKHAUL_SECTION", nodes, 0, capacity)
    for j, (line, _) in enumerate(page.table("BACKHAUL_SECTION", nodes, 1, 0.0)):
        if j > 0 and bool(linehaul[j]) == bool(backhaul[j]):
            raise page.text.fault(line, "BACKHAUL_SECTION", f"node {j + 1} must have a demand there or here, not both")
    return {"fields": {"demand_linehaul": linehaul, "demand_backhaul": backhaul, "capacity": capacity}}
