"""Cordeau's format of problems with several depots: `m n t`, t lines `D Q`, n customers and t depots.

A line of a customer is `i x y service demand`, then how often it is visited and by which depots; a depot is `i x y`.
Each depot has m vehicles of capacity Q whose routes last D at most, service included; 0 is no limit. Distances are not
rounded, and a unit of distance takes a unit of time. Some copies begin with the type 2.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import numpy as np

from milkrun.core.files import REAL
from milkrun.routing.instances.fleets import MOST_DEPOTS, MOST_UNITS
from milkrun.routing.instances.instance import Instance
from milkrun.routing.instances.precision import guarded
from milkrun.routing.instances.text import Line, Text

MAX_NODES = 10_001
LI_LIM = 9  # columns of the format of Li and Lim, whose first line has three numbers too
TYPE = "2"  # several depots, in the numbers of this collection


def looks_like(text: Text) -> bool:
    """True if the first line has three numbers, or four with the type, and the next line is no customer."""
    lines = iter(text.filled())
    first, second = next(lines, None), next(lines, None)
    if first is None or len(first.words) not in (3, 4) or not all(REAL.fullmatch(w) for w in first.words):
        return False
    return second is None or len(second.words) < LI_LIM


def parse(text: Text) -> Instance:
    lines = list(text.filled())
    head = lines[0]
    if len(head.words) == 4 and head.words[0] != TYPE:
        raise text.fault(head.number, None, f"type {head.words[0]} is not supported; supported: {TYPE}, several depots")
    vehicles = text.whole(head.words[-3], head.number, None, 1, MAX_NODES)
    n = text.whole(head.words[-2], head.number, None, 1, MAX_NODES - 1)
    t = text.whole(head.words[-1], head.number, None, 1, MOST_DEPOTS)
    if len(lines) != 1 + n + 2 * t:
        said = f"{len(lines) - 1} lines below the first; {n} customers and {t} depots have {n + 2 * t}"
        raise text.fault(lines[-1].number, None, said)
    if len(lines[-1].words) < 4:  # zeros follow the last depot's place: it is complete
        text.refuse_a_cut_line(None)
    limits = np.array([_limits(text, line) for line in lines[1 : 1 + t]])
    customers = [_customer(text, line, k, t) for k, line in enumerate(lines[1 + t : 1 + t + n], start=1)]
    depots = [_depot(text, line, k) for k, line in enumerate(lines[1 + t + n :], start=n + 1)]
    table = np.array([*depots, *customers])
    demand = table[:, 3].astype(np.int64)
    capacity = np.where(limits[:, 1] > 0, limits[:, 1], max(1, int(demand.sum()))).astype(np.int64)
    for line, units in zip(lines[1 + t :], demand[t:].tolist(), strict=False):
        if units > capacity.max():
            raise text.fault(line.number, None, f"a demand of {units} is over the capacity {capacity.max()}")
    fields: dict[str, Any] = {"linehaul": demand, "capacity": capacity}
    if (limits[:, 0] > 0).any():  # service counts against the limit; without a limit it has no effect
        fields["duration_limit"] = np.where(limits[:, 0] > 0, limits[:, 0], np.inf)
        fields["service_time"] = table[:, 2]
    stated = {
        "name": PurePath(text.file).stem,
        "kind": "MDVRP",
        "n": n,
        "metric": "euclid",
        "vehicles": vehicles * t,
        "vehicle_depots": tuple(k for k in range(t) for _ in range(vehicles)) if t > 1 else (),
        "fleet": "enforce",
        "fields": fields,
    }
    return guarded(text, stated, table[:, :2])


def _limits(text: Text, line: Line) -> tuple[float, int]:
    """Longest route and capacity of a depot's vehicles."""
    if len(line.words) != 2:
        raise text.fault(line.number, None, f"{len(line.words)} words; the line of a depot's limits has 2: D Q")
    longest = text.real(line.words[0], line.number, None, 0.0)
    return longest, text.whole(line.words[1], line.number, None, 0, MOST_UNITS)


def _customer(text: Text, line: Line, number: int, depots: int) -> tuple[float, float, float, float]:
    """Place, service time and demand."""
    words = line.words
    if len(words) < 5:
        raise text.fault(line.number, None, f"{len(words)} words; a customer has at least 5: i x y service demand")
    _check_number(text, line, number)
    if len(words) > 5:
        visits = [text.whole(word, line.number, None, 0, 2**MOST_DEPOTS) for word in words[5:]]
        if visits[0] != 1 or visits[1:] != [depots, *(2**k for k in range(depots))]:
            # Copies with two depots list them as 1 and 2, which are also their bits.
            said = f"{' '.join(words[5:])}: one visit, by any of the {depots} depots, is supported"
            raise text.fault(line.number, None, said)
    x, y = (text.real(word, line.number, None) for word in words[1:3])
    service = text.real(words[3], line.number, None, 0.0)
    return x, y, service, text.whole(words[4], line.number, None, 0, MOST_UNITS)


def _depot(text: Text, line: Line, number: int) -> tuple[float, float, float, float]:
    """The place; service and demand must be 0."""
    if len(line.words) < 3:
        raise text.fault(line.number, None, f"{len(line.words)} words; a depot has at least 3: i x y")
    _check_number(text, line, number)
    x, y, *others = (text.real(word, line.number, None) for word in line.words[1:])
    if any(others):
        raise text.fault(line.number, None, "a depot has its place only: what follows must be 0")
    return x, y, 0.0, 0.0


def _check_number(text: Text, line: Line, number: int) -> None:
    if text.whole(line.words[0], line.number, None, 0, MAX_NODES + MOST_DEPOTS) != number:
        raise text.fault(line.number, None, f"node {line.words[0]} where node {number} must follow")
