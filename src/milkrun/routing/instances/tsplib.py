"""TSPLIB95 and its relatives, VRPLIB and OPLib: problems in `KEY : value` lines and sections.

The rounding of CVRP distances depends on the set of the file, not on its text: A, B, E, F, M, P and X round as EUC_2D
specifies; CMT, Golden, tai and Li do not. Files with windows and one depot use tenths, rounded down; those with several
depots round thousandths. Mixed fleets are not rounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import numpy as np

from milkrun.routing.instances import fleets, precision, weights
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
VISITS = ("DEMAND_SECTION", "DEPOT_SECTION")
SECTIONS = {
    "TSP": ("FIXED_EDGES_SECTION",),
    "ATSP": (),
    "CVRP": VISITS,
    "VRPTW": (*VISITS, "TIME_WINDOW_SECTION", "SERVICE_TIME_SECTION"),
    "PCVRPTW": (*VISITS, "TIME_WINDOW_SECTION", "PRIZE_SECTION"),
    "VRPB": (*VISITS, "BACKHAUL_SECTION"),
    "VRPSPD": ("LINEHAUL_SECTION", "BACKHAUL_SECTION", "DEPOT_SECTION"),
    "MDVRPTW": (*VISITS, "TIME_WINDOW_SECTION", "SERVICE_TIME_SECTION", "VEHICLES_DEPOT_SECTION"),
    "HFVRP": (*VISITS, *fleets.SECTIONS),
    "OP": ("NODE_SCORE_SECTION", "DEPOT_SECTION"),
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
    "VRPTW": ("CAPACITY", "VEHICLES", "SERVICE_TIME"),
    "PCVRPTW": ("CAPACITY", "VEHICLES", "SERVICE_TIME"),
    "VRPB": ("CAPACITY", "VEHICLES"),
    "VRPSPD": ("CAPACITY", "VEHICLES"),
    "MDVRPTW": ("CAPACITY", "VEHICLES", "SERVICE_TIME", "VEHICLES_MAX_DURATION"),
    "HFVRP": ("CAPACITY", "VEHICLES"),
    "OP": ("COST_LIMIT",),
}
MEASURES = {
    "VRPTW": ("trunc1", 10.0),
    "PCVRPTW": ("trunc1", 10.0),
    "MDVRPTW": ("matrix", 1000.0),
    "HFVRP": ("euclid", 1.0),
}
"""Metric and scale of the kinds in which EUC_2D is not rounded to whole units."""
TENTHS = 10.0
POWERS = {1.0: 0, TENTHS: 1, 1000.0: 3}
"""By scale, the power of ten."""


def parse(text: Text) -> Instance:
    """The problem of a text of any TYPE."""
    every_key = {*COMMON, *(key for keys in KEYS.values() for key in keys)}
    every_section = {*PLACES, *(name for names in SECTIONS.values() for name in names)}
    page = Page(text, every_key, every_section)
    kind = _kind(page)
    page.only((*COMMON, *KEYS[kind]), (*PLACES, *SECTIONS[kind]), kind)
    nodes = page.whole("DIMENSION", 2, MAX_NODES)
    name = page.entries.get("NAME", ("", 0))[0] or PurePath(text.file).stem
    stated: dict[str, Any] = {"name": name, "kind": NAMED.get(kind, kind), "n": nodes - int(kind not in TOURS)}
    stated |= {"best": number_in(page.comment, BEST), **_measure(page, kind, name)}
    places = _places(page, stated["edge"], nodes)
    if "VEHICLES" in page.entries:
        stated["vehicles"] = page.whole("VEHICLES", 1, MOST)
    if "FIXED_EDGES_SECTION" in page.sections:
        stated["fixed_edges"] = _fixed_edges(page, nodes)
    if kind in FLEETS:
        return _with_fleet(page, kind, stated, places, nodes)
    if kind not in TOURS:
        if kind != "VRPSPD" or "DEPOT_SECTION" in page.sections:
            _check_depot(page, nodes)
        stated |= PARSERS[kind](page, nodes)
    return precision.guarded(text, stated, places)


def _kind(page: Page) -> str:
    """The TYPE; PyVRP's small files with several depots state none."""
    if "TYPE" not in page.entries and "VEHICLES_DEPOT_SECTION" in page.sections:
        return "MDVRPTW"
    return page.word("TYPE", SECTIONS)


def _measure(page: Page, kind: str, name: str) -> dict[str, Any]:
    """The distance law: `metric`, `edge`, `scale`."""
    edge = page.word("EDGE_WEIGHT_TYPE", (*weights.LAWS, "EXPLICIT"))
    if kind in MEASURES and not (edge == "EXPLICIT" and kind in FLEETS):
        if edge != "EUC_2D":
            raise page.text.fault(page.entries["EDGE_WEIGHT_TYPE"][1], "EDGE_WEIGHT_TYPE", f"{kind} needs EUC_2D")
        metric, scale = MEASURES[kind]
        return {"metric": metric, "edge": edge, "scale": scale}
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


def _column(page: Page, section: str, nodes: int, low: int, high: int, depots: int = 1) -> np.ndarray:
    """A whole number for each node: 0 at the depots, low..high at customers."""
    column = np.zeros(nodes, np.int64)
    for j, (line, (value,)) in enumerate(page.table(section, nodes, 1, 0.0)):
        if j < depots and value != 0:
            raise page.text.fault(line, section, f"the depot has {value:g}, it must be 0")
        if value != math.floor(value) or (j >= depots and not low <= value <= high):
            raise page.text.fault(line, section, f"{value:.10g} is not a whole number within {low}..{high}")
        column[j] = int(value)
    return column


def _reals(page: Page, section: str, nodes: int, power: int, depots: int = 1) -> weights.Floats:
    """A number for each node, times 10 to a power: 0 at the depots."""
    column = page.table(section, nodes, 1, 0.0, power)
    for line, (value,) in column[:depots]:
        if value != 0:
            raise page.text.fault(line, section, f"the depot has {value / 10**power:g}, it must be 0")
    return np.array([value for _, (value,) in column])


def _windows(page: Page, nodes: int, power: int) -> weights.Floats:
    """The windows (N, 2) times 10 to a power."""
    windows = page.table("TIME_WINDOW_SECTION", nodes, 2, 0.0, power)
    for line, (opens, closes) in windows:
        if closes < opens:
            said = f"closes at {closes / 10**power:g} before it opens at {opens / 10**power:g}"
            raise page.text.fault(line, "TIME_WINDOW_SECTION", said)
    return np.array([pair for _, pair in windows])


def _service(page: Page, nodes: int, power: int, depots: int = 1) -> weights.Floats:
    """The service times times 10 to a power: one for all customers, or one for each."""
    if "SERVICE_TIME_SECTION" not in page.sections:
        return np.where(np.arange(nodes) < depots, 0.0, page.scaled("SERVICE_TIME", 0.0, power))
    if "SERVICE_TIME" in page.entries:
        number = page.entries["SERVICE_TIME"][1]
        raise page.text.fault(number, "SERVICE_TIME", "contradicts SERVICE_TIME_SECTION: give one of them")
    return _reals(page, "SERVICE_TIME_SECTION", nodes, power, depots)


def _cvrp(page: Page, nodes: int) -> dict[str, Any]:
    capacity = page.whole("CAPACITY", 1, MOST)
    limit = page.real("DISTANCE", math.inf, 0.0)
    service = page.real("SERVICE_TIME", 0.0, 0.0)
    demand = _column(page, "DEMAND_SECTION", nodes, 1, capacity)
    fields = {"demand_units": demand, "capacity": capacity, "max_length": limit}
    if not service or math.isinf(limit):  # service counts against the limit; without a limit it has no effect
        return {"fields": fields}
    return {"fields": {**fields, "service_time": service * (np.arange(nodes) > 0)}}


def _vrptw(page: Page, nodes: int) -> dict[str, Any]:
    capacity = page.whole("CAPACITY", 1, MOST)
    return {
        "fields": {
            "linehaul": _column(page, "DEMAND_SECTION", nodes, 0, capacity),
            "capacity": capacity,
            "time_windows": _day_from_0(page, _windows(page, nodes, 1)),
            "service_time": _service(page, nodes, 1),
        }
    }


def _pcvrptw(page: Page, nodes: int) -> dict[str, Any]:
    capacity = page.whole("CAPACITY", 1, MOST)
    return {
        "fields": {
            "prize": _reals(page, "PRIZE_SECTION", nodes, 1),
            "weight": _column(page, "DEMAND_SECTION", nodes, 0, capacity).astype(np.float64),
            "capacity": float(capacity),
            "must_go": np.zeros(nodes, np.bool_),
            "max_length": math.inf,
            "time_windows": _day_from_0(page, _windows(page, nodes, 1)),
            "service_time": _service(page, nodes, 1),
        }
    }


def _day_from_0(page: Page, windows: weights.Floats) -> weights.Floats:
    if windows[0, 0] != 0:
        line = page.table("TIME_WINDOW_SECTION", len(windows), 2, 0.0)[0][0]
        raise page.text.fault(line, "TIME_WINDOW_SECTION", "the depot must open at 0")
    return windows


def _vrpb(page: Page, nodes: int) -> dict[str, Any]:
    capacity = page.whole("CAPACITY", 1, MOST)
    linehaul = _column(page, "DEMAND_SECTION", nodes, 0, capacity)
    backhaul = _column(page, "BACKHAUL_SECTION", nodes, 0, capacity)
    for j, (line, _) in enumerate(page.table("BACKHAUL_SECTION", nodes, 1, 0.0)):
        if j > 0 and bool(linehaul[j]) == bool(backhaul[j]):
            raise page.text.fault(line, "BACKHAUL_SECTION", f"node {j + 1} must have a demand there or here, not both")
    return {"fields": {"linehaul": linehaul, "backhaul": backhaul, "backhaul_class": 1, "capacity": capacity}}


def _vrpspd(page: Page, nodes: int) -> dict[str, Any]:
    capacity = page.whole("CAPACITY", 1, MOST)
    amounts = {name: _column(page, f"{name.upper()}_SECTION", nodes, 0, capacity) for name in ("linehaul", "backhaul")}
    return {"fields": {**amounts, "backhaul_class": 2, "capacity": capacity}}


def _op(page: Page, nodes: int) -> dict[str, Any]:
    """Orienteering: the score of the depot counts, but is no choice."""
    page.lines("NODE_SCORE_SECTION")
    scores = np.array([score for _, (score,) in page.table("NODE_SCORE_SECTION", nodes, 1, 0.0)])
    if "COST_LIMIT" not in page.entries:
        raise page.text.fault(None, "COST_LIMIT", "this key is missing")
    return {
        "depot_score": float(scores[0]),
        "fields": {
            "prize": scores * (np.arange(nodes) > 0),
            "must_go": np.zeros(nodes, np.bool_),
            "max_length": page.real("COST_LIMIT", math.inf, 0.0),
        },
    }


def _with_fleet(
    page: Page, kind: str, stated: dict[str, Any], places: weights.Floats | precision.Matrix, nodes: int
) -> Instance:
    """The instance of a kind whose vehicles have depots, capacities or costs of their own."""
    power = POWERS[stated.get("scale", 1.0)]
    fleet = fleets.parse(page, nodes, power)
    depots, order = fleet.places, fleet.order(nodes)
    demand = _column(page, "DEMAND_SECTION", nodes, 0, int(fleet.fields["capacity"].max()), depots)
    fields: dict[str, Any] = {"linehaul": demand[order], **fleet.fields}
    if kind == "MDVRPTW":
        fields |= {
            "time_windows": _windows(page, nodes, power)[order],
            "service_time": _service(page, nodes, power, depots)[order],
        }
    if isinstance(places, precision.Matrix):
        locs = None if places.locs is None else places.locs[order]
        places = precision.Matrix(places.dist[np.ix_(order, order)], locs)
    elif power:
        places = precision.Matrix(weights.THOUSANDTHS.matrix(places[order]), places[order])
    else:
        places = places[order]
    stated |= {
        "n": nodes - depots,
        "fields": fields,
        "vehicle_depots": fleet.vehicle_depots,
        "first_customer": depots,
        "fleet": "enforce",
    }
    return precision.guarded(page.text, stated, places)


TOURS = ("TSP", "ATSP")
FLEETS = ("MDVRPTW", "HFVRP")
NAMED = {"VRPTW": "CVRPTW"}
"""Kinds that are called otherwise than their TYPE: that of Solomon's files too."""
PARSERS: dict[str, Callable[[Page, int], dict[str, Any]]] = {
    "CVRP": _cvrp,
    "VRPTW": _vrptw,
    "PCVRPTW": _pcvrptw,
    "VRPB": _vrpb,
    "VRPSPD": _vrpspd,
    "OP": _op,
}
