"""The format of Li and Lim: pickups and deliveries in pairs with time windows.

The first line is `vehicles capacity speed`; a line of a node, the depot first, is `i x y demand open close service
pickup delivery`, where a pickup names its delivery and a delivery its pickup. Distances are not rounded. The speed has
no meaning: published files have 0 or 1 there, and a unit of distance takes a unit of time. The world's deliveries
follow its pickups, so the instance keeps the number in the file of each node.
"""

from __future__ import annotations

from pathlib import PurePath

import numpy as np

from milkrun.core.files import REAL
from milkrun.routing.instances.instance import Instance
from milkrun.routing.instances.precision import guarded
from milkrun.routing.instances.text import Line, Text
from milkrun.routing.instances.tsplib import MAX_NODES, MOST

COLUMNS = 9
SECTION = None


def looks_like(text: Text) -> bool:
    """True if the first line has three numbers and the second one nine words."""
    lines = iter(text.filled())
    first, second = next(lines, None), next(lines, None)
    if first is None or second is None or len(first.words) != 3 or len(second.words) != COLUMNS:
        return False
    return all(REAL.fullmatch(w) for w in first.words)


def parse(text: Text) -> Instance:
    head, *lines = text.filled()
    vehicles = text.whole(head.words[0], head.number, SECTION, 1, MOST)
    capacity = text.whole(head.words[1], head.number, SECTION, 1, MOST)
    text.real(head.words[2], head.number, SECTION, 0.0)
    if not 3 <= len(lines) <= MAX_NODES or len(lines) % 2 == 0:
        raise text.fault(lines[-1].number, SECTION, f"{len(lines)} nodes; a depot and pairs up to {MAX_NODES} are read")
    if len(lines[-1].words) != COLUMNS:
        text.refuse_a_cut_line(SECTION)
    rows = [_node(text, line, k, len(lines) - 1) for k, line in enumerate(lines)]
    table, partner = np.array([row[:6] for row in rows]), [row[6] for row in rows]
    pickups = _pickups(text, lines, table[:, 2], partner, capacity)
    order = [0, *pickups, *(partner[j] for j in pickups)]
    table = table[order]
    fields = {
        "demand": table[:, 2].astype(np.int64),
        "capacity": capacity,
        "vehicles": len(pickups),
        "time_windows": table[:, 3:5],
        "service_time": table[:, 5],
    }
    stated = {
        "name": PurePath(text.file).stem,
        "kind": "PDPTW",
        "n": len(order) - 1,
        "metric": "euclid",
        "vehicles": vehicles,
        "numbers": tuple(order),
        "fields": fields,
    }
    return guarded(text, stated, table[:, :2])


def _node(text: Text, line: Line, k: int, n: int) -> tuple[float, float, int, float, float, float, int]:
    """x, y, demand, open, close, service and the other node of the pair, 0 for the depot."""
    if len(line.words) != COLUMNS:
        raise text.fault(line.number, SECTION, f"{len(line.words)} words; a line of a node has {COLUMNS}")
    if text.whole(line.words[0], line.number, SECTION, 0, n) != k:
        raise text.fault(line.number, SECTION, f"node {line.words[0]} stands in the place of node {k}")
    x, y = (text.real(w, line.number, SECTION) for w in line.words[1:3])
    demand = text.whole(line.words[3], line.number, SECTION, -MOST, MOST)
    opens, closes, service = (text.real(w, line.number, SECTION, 0.0) for w in line.words[4:7])
    pickup, delivery = (text.whole(w, line.number, SECTION, 0, n) for w in line.words[7:])
    if closes < opens:
        raise text.fault(line.number, SECTION, f"the window closes at {closes:g}, before it opens at {opens:g}")
    if k == 0 and (demand or service or pickup or delivery):
        raise text.fault(line.number, SECTION, "the depot has no demand, service time, pickup or delivery")
    if k and (pickup == 0) == (delivery == 0):
        raise text.fault(line.number, SECTION, f"node {k} must name its pickup or its delivery, and 0")
    return x, y, demand, opens, closes, service, pickup or delivery


def _pickups(text: Text, lines: list[Line], demand: np.ndarray, partner: list[int], capacity: int) -> list[int]:
    """The pickups in the order of the file, each with a delivery of its own."""
    found = []
    for k, line in enumerate(lines[1:], start=1):
        other = partner[k]
        if partner[other] != k or other == k:
            raise text.fault(line.number, SECTION, f"node {k} names node {other}, which does not name node {k}")
        if (line.words[7] == "0") == (lines[other].words[7] == "0"):
            raise text.fault(line.number, SECTION, f"nodes {k} and {other} are no pickup and delivery")
        if text.whole(line.words[8], line.number, SECTION, 0, MOST) == 0:
            continue
        found.append(k)
        if not 0 < demand[k] <= capacity:
            raise text.fault(
                line.number, SECTION, f"a pickup of {demand[k]:g} is not within 1..{capacity}, the capacity"
            )
        if demand[k] + demand[other] != 0:
            raise text.fault(
                line.number, SECTION, f"node {k} loads {demand[k]:g}, node {other} unloads {-demand[other]:g}"
            )
    return found
