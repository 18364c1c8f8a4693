"""The vehicles of VRPLIB files in which they differ: by depot, capacity, costs or limit of duration.

Vehicles that are alike become one depot: a depot is a place with one kind of vehicle. Costs are in hundredths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.routing.instances.text import Page

SECTIONS = ("CAPACITY_SECTION", "VEHICLES_FIXED_COST_SECTION", "VEHICLES_UNIT_DISTANCE_COST_SECTION")
MOST_DEPOTS = 63  # a depot is a bit of an int64
MOST_VEHICLES = 100_000
MOST_UNITS = 2**30
HIGHEST_COST = 1e9
HUNDREDTHS = 100.0

DEPOT, CAPACITY, FIXED_COST, UNIT_COST, DURATION = range(5)
"""The columns of a table of vehicles."""


@dataclass(frozen=True)
class Fleet:
    """The vehicles of a file, those that are alike as one depot."""

    places: int
    """places of depots in the file, its first nodes"""
    kinds: NDArray[np.float64]
    """(K, 5), a kind of vehicle each: place of the depot, capacity, costs, limit of duration"""
    vehicle_depots: tuple[int, ...]
    """the kind of each vehicle"""
    fields: dict[str, Any]
    """the fields of the depots"""

    def order(self, nodes: int) -> NDArray[np.int64]:
        """For each node of the instance the node of the file, from 0."""
        return np.concatenate([self.kinds[:, DEPOT].astype(np.int64), np.arange(self.places, nodes)])


def parse(page: Page, nodes: int, power: int) -> Fleet:
    """The fleet of a page; times are multiplied by 10 to the `power`."""
    places = _depots(page, nodes)
    count = page.whole("VEHICLES", 1, MOST_VEHICLES)
    vehicles = np.zeros((count, 5))
    vehicles[:, UNIT_COST] = HUNDREDTHS
    vehicles[:, DURATION] = np.inf
    if places > 1 or "VEHICLES_DEPOT_SECTION" in page.sections:
        vehicles[:, DEPOT] = _whole(page, "VEHICLES_DEPOT_SECTION", count, 1, places) - 1
    if "CAPACITY_SECTION" in page.sections:
        if "CAPACITY" in page.entries:
            raise page.text.fault(page.entries["CAPACITY"][1], "CAPACITY", "contradicts CAPACITY_SECTION")
        vehicles[:, CAPACITY] = _whole(page, "CAPACITY_SECTION", count, 1, MOST_UNITS)
    else:
        vehicles[:, CAPACITY] = page.whole("CAPACITY", 1, MOST_UNITS)
    for column, section in ((FIXED_COST, SECTIONS[1]), (UNIT_COST, SECTIONS[2])):
        if section in page.sections:
            vehicles[:, column] = _costs(page, section, count)
    if "VEHICLES_MAX_DURATION" in page.entries:
        vehicles[:, DURATION] = page.scaled("VEHICLES_MAX_DURATION", 0.0, power)
    kinds, kind = np.unique(vehicles, axis=0, return_inverse=True)
    if len(kinds) > MOST_DEPOTS:
        said = f"{len(kinds)} kinds of vehicles, counted at each depot; at most {MOST_DEPOTS} are supported"
        raise page.text.fault(page.entries["VEHICLES"][1], "VEHICLES", said)
    fields: dict[str, Any] = {"capacity": kinds[:, CAPACITY].astype(np.int64)}
    if any(section in page.sections for section in SECTIONS[1:]):
        fields["fixed_cost"] = kinds[:, FIXED_COST] / HUNDREDTHS
        fields["distance_cost"] = kinds[:, UNIT_COST] / HUNDREDTHS
    if np.isfinite(kinds[:, DURATION]).any():
        fields["duration_limit"] = kinds[:, DURATION]
    return Fleet(places, kinds, tuple(int(k) for k in kind.ravel()), fields)


def _depots(page: Page, nodes: int) -> int:
    """The number of depots, which are the first nodes."""
    section = "DEPOT_SECTION"
    words = [(word, line.number) for line in page.lines(section) for word in line.words]
    if words and words[-1][0] == "-1":
        words.pop()
    if not words or len(words) >= nodes:
        raise page.text.fault(
            page.starts[section], section, f"{len(words)} depots; of {nodes} nodes 1..{nodes - 1} may be depots"
        )
    for k, (word, line) in enumerate(words, start=1):
        if page.text.whole(word, line, section, 1, nodes) != k:
            raise page.text.fault(line, section, f"depot {k} is node {word}; depots are the first nodes, in order")
    return len(words)


def _whole(page: Page, section: str, count: int, low: int, high: int) -> NDArray[np.float64]:
    """A whole number for each vehicle."""
    found = page.table(section, count, 1, 0.0, key="VEHICLES")
    for line, (value,) in found:
        if value != np.floor(value) or not low <= value <= high:
            raise page.text.fault(line, section, f"{value:.10g} is not a whole number within {low}..{high}")
    return np.array([value for _, (value,) in found])


def _costs(page: Page, section: str, count: int) -> NDArray[np.float64]:
    """A cost for each vehicle."""
    found = page.table(section, count, 1, 0.0, key="VEHICLES")
    for line, (value,) in found:
        if value > HIGHEST_COST:
            raise page.text.fault(line, section, f"{value:g} is too large: at most {HIGHEST_COST:g}")
    return np.array([value for _, (value,) in found])
