"""The names of the variants of vehicle routing, and the mixtures that draw one for each row.

A name lists what is switched on: md (several depots), o (open routes), b or mb (backhauls, classical or mixed), l
(limit of a route's length), tw (time windows). All are off in `cvrp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

CLASSICAL, MIXED = 1, 2
"""Classes of backhauls: no linehaul after a backhaul in a route, or any order."""


class Attributes(NamedTuple):
    """The probability of each attribute in a drawn row."""

    depots: float = 0.0
    open: float = 0.0
    backhaul: float = 0.0
    mixed: float = 0.0
    """that backhauls are of class 2"""
    limit: float = 0.0
    windows: float = 0.0
    single: int = 0
    """0: independent draws; else at most one of the first `single` of SINGLE"""


SINGLE = ("", "open", "backhaul", "limit", "windows", "open and windows")
"""What a row of `single_feat` has; the first five of them, or all six."""


def variant_name(depots: bool, open_route: bool, backhaul: int, limit: bool, windows: bool) -> str:
    """The name of a variant; `backhaul` is 0, CLASSICAL or MIXED."""
    parts = ["o" if open_route else "", "vrp", ("", "b", "mb")[backhaul], "l" if limit else "", "tw" if windows else ""]
    name = "".join(parts)
    return ("md" if depots else "") + ("cvrp" if name == "vrp" else name)


def _named() -> Mapping[str, Attributes]:
    named = {}
    for depots, windows, limit, backhaul, open_route in product((0, 1), (0, 1), (0, 1), (0, 1, 2), (0, 1)):
        name = variant_name(bool(depots), bool(open_route), backhaul, bool(limit), bool(windows))
        named[name] = Attributes(
            float(depots),
            float(open_route),
            float(backhaul > 0),
            float(backhaul == MIXED),
            float(limit),
            float(windows),
        )
    return named


VARIANTS: Mapping[str, Attributes] = _named()
"""The 48 variants by their names."""
MIXTURES: Mapping[str, Attributes] = {
    "all16": Attributes(0.0, 0.5, 0.5, 0.0, 0.5, 0.5),
    "all24": Attributes(0.0, 0.5, 0.5, 0.5, 0.5, 0.5),
    "all48": Attributes(0.5, 0.5, 0.5, 0.5, 0.5, 0.5),
    "single_feat": Attributes(single=5),
    "single_feat_otw": Attributes(single=6),
}
