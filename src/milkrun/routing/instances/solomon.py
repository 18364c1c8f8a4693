"""Solomon's format: vehicle routing with time windows, as VEHICLE and CUSTOMER tables under a name.

All amounts are in tenths with distances rounded down, as the exact solvers of these files use them: windows and service
times are multiplied by ten, the metric is `trunc1`, and published values are divided by ten.
"""

from __future__ import annotations

import numpy as np

from milkrun.routing.instances.instance import Instance
from milkrun.routing.instances.precision import guarded
from milkrun.routing.instances.text import Line, Text
from milkrun.routing.instances.tsplib import MAX_NODES, MOST, TENTHS
from milkrun.routing.instances.weights import Floats

COLUMNS = 7  # customer, x, y, demand, ready time, due date, service time


def looks_like(text: Text) -> bool:
    """True if the second line that is not blank is VEHICLE, after a name of one line."""
    lines = iter(text.filled())
    next(lines, None)
    second = next(lines, None)
    return second is not None and second.words == ["VEHICLE"]


def parse(text: Text) -> Instance:
    lines = list(text.filled())
    name = " ".join(lines[0].words)
    heads = {line.words[0]: k for k, line in enumerate(lines) if line.words in (["VEHICLE"], ["CUSTOMER"])}
    if "CUSTOMER" not in heads or heads["CUSTOMER"] != 4:
        raise text.fault(
            lines[min(4, len(lines) - 1)].number,
            "VEHICLE",
            "after NUMBER, CAPACITY and their values the line CUSTOMER must follow",
        )
    fleet = lines[3]
    if len(fleet.words) != 2:
        raise text.fault(fleet.number, "VEHICLE", f"{len(fleet.words)} words; this line has NUMBER and CAPACITY")
    vehicles = text.whole(fleet.words[0], fleet.number, "VEHICLE", 1, MOST)
    capacity = text.whole(fleet.words[1], fleet.number, "VEHICLE", 1, MOST)
    if len(lines) == 5 or not lines[5].words[0].upper().startswith("CUST"):
        raise text.fault(lines[4].number, "CUSTOMER", "the heads of the columns must follow: CUST NO., XCOORD. ...")
    table = _customers(text, lines[6:], lines[4].number, capacity)
    fields = {
        "linehaul": table[:, 2].astype(np.int64),
        "capacity": capacity,
        "time_windows": table[:, 3:5],
        "service_time": table[:, 5],
    }
    stated = {
        "name": name,
        "kind": "CVRPTW",
        "n": len(table) - 1,
        "scale": TENTHS,
        "metric": "trunc1",
        "edge": "EUC_2D",
        "vehicles": vehicles,
        "fields": fields,
    }
    return guarded(text, stated, table[:, :2])


def _customers(text: Text, lines: list[Line], start: int, capacity: int) -> Floats:
    """The table by node: x, y, demand, and in tenths ready time, due date, service time."""
    if not 2 <= len(lines) <= MAX_NODES:
        raise text.fault(start, "CUSTOMER", f"{len(lines)} lines; a depot and 1..{MAX_NODES - 1} customers are read")
    _refuse_a_cut_line(text, lines)
    rows: dict[int, tuple[int, list[float]]] = {}
    for line in lines:
        if len(line.words) != COLUMNS:
            raise text.fault(line.number, "CUSTOMER", f"{len(line.words)} words; a line has {COLUMNS}")
        node = text.whole(line.words[0], line.number, "CUSTOMER", 0, len(lines) - 1)
        if node in rows:
            raise text.fault(line.number, "CUSTOMER", f"customer {node} is also in line {rows[node][0]}")
        places = [text.real(w, line.number, "CUSTOMER") for w in line.words[1:3]]
        demand = text.whole(line.words[3], line.number, "CUSTOMER", 0, MOST)
        times = [text.tenths(w, line.number, "CUSTOMER", 0.0) for w in line.words[4:]]
        rows[node] = line.number, [*places, demand, *times]
        _check(text, line.number, node, rows[node][1], capacity)
    return np.array([rows[node][1] for node in range(len(rows))])


def _refuse_a_cut_line(text: Text, lines: list[Line]) -> None:
    """A last line without a line end is complete if it has all columns and the common width of the others, if any."""
    if text.lines[-1].strip():
        width = {len(text.lines[line.number - 1].rstrip()) for line in lines[:-1]}
        if len(lines[-1].words) != COLUMNS or (len(width) == 1 and len(text.lines[-1].rstrip()) not in width):
            text.refuse_a_cut_line("CUSTOMER")


def _check(text: Text, line: int, node: int, row: list[float], capacity: int) -> None:
    demand, ready, due, service = row[2:]
    if demand > capacity:
        raise text.fault(line, "CUSTOMER", f"a demand of {demand:g} is over the capacity {capacity}")
    if due < ready:
        raise text.fault(line, "CUSTOMER", f"the due date {due / TENTHS:g} is before the ready time {ready / TENTHS:g}")
    if node == 0 and (demand or ready or service):
        raise text.fault(line, "CUSTOMER", "the depot must have demand 0, ready time 0 and service time 0")
