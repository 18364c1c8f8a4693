"""Ensures that an instance in single precision plays exactly as its file states.

Distances are computed from places only if single precision gives each one to the last digit; else a matrix is used.
Whole numbers that single precision cannot hold, and sums beyond its range of whole numbers, are refused.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from milkrun.routing.instances.instance import Instance
from milkrun.routing.instances.text import Text
from milkrun.routing.instances.weights import EUCLID, LAWS, TRUNC1, Floats
from milkrun.routing.tasks.base import TOL

WHOLE = 2.0**24
"""Single precision represents every whole number up to this."""
WORLD_METRICS = ("euclid", "round", "ceil", "trunc1")
"""Metrics that the worlds implement."""


UNITS = {10.0: " tenths", 1000.0: " thousandths"}


class Matrix(NamedTuple):
    """Explicit distances of a file."""

    dist: Floats
    locs: Floats | None
    """display coordinates of the nodes"""


def guarded(text: Text, stated: dict[str, Any], places: Floats | Matrix) -> Instance:
    """Builds and checks the instance; `locs` and `dist` come from the places (N, 2)."""
    if isinstance(places, Matrix):
        locs, dist, longest = places.locs, places.dist, float(places.dist.max())
    else:
        locs, dist = places, None
        law = {"euclid": EUCLID, "trunc1": TRUNC1}.get(stated["metric"]) or LAWS[stated["edge"]]
        if stated["metric"] not in WORLD_METRICS or not law.survives_float32(places, TOL):
            dist = law.matrix(places)
        corners = np.stack([locs.min(axis=0), locs.max(axis=0)])
        # Rounded up, as each of the n + 1 legs of a trip may be.
        across = math.ceil(stated.get("scale", 1.0) * EUCLID.measure(*corners))
        longest = float(across if dist is None else dist.max())
    if dist is not None and stated["metric"] != "euclid":
        _refuse_lost(text, "the distance", dist, f"from node {{}} to node {{}}, counted from 0, in {stated['edge']}")
    instance = Instance(**stated, locs=locs, dist=dist)
    _refuse_sums(text, instance, longest)
    return instance


def _refuse_lost(text: Text, what: str, values: Floats, where: str) -> None:
    with np.errstate(over="ignore"):
        kept = values.astype(np.float32)
    lost = (np.abs(values) > WHOLE) & (kept != values)
    if lost.any():
        at = tuple(int(k) for k in np.argwhere(lost)[0])
        raise text.fault(
            None,
            None,
            f"{what} {where.format(*at)} is {values[at]:.10g}: single precision, which the "
            f"worlds keep, holds whole numbers up to {WHOLE:.0f}",
        )


def _refuse_sums(text: Text, instance: Instance, longest: float) -> None:
    """Load, length and clock of a trip are summed in single precision, so their largest values must fit."""
    fields, legs = instance.fields, (instance.n + 1) * longest
    can_come_to = {}
    if "weight" in fields:
        can_come_to["the load of a trip"] = min(fields["capacity"], float(fields["weight"].sum()))
    if math.isfinite(fields.get("max_length", math.inf)):
        service = float(np.sum(fields.get("service_time", 0.0)))
        can_come_to["the length of a trip"] = min(fields["max_length"], legs + service)
    if "prize" in fields:
        _refuse_lost(text, "the prize", fields["prize"], "of node {}, counted from 0,")
    service = float(np.sum(fields.get("service_time", 0.0)))
    if "time_windows" in fields:
        windows, depots = fields["time_windows"], instance.num_depots
        day = float(windows[:depots, 1].max())
        can_come_to["the time of a trip"] = min(day, float(windows[:, 0].max()) + legs + service)
    elif "duration_limit" in fields:
        longest_day = float(np.max(fields["duration_limit"], where=np.isfinite(fields["duration_limit"]), initial=0.0))
        can_come_to["the time of a trip"] = min(longest_day, legs + service)
    for what, most in can_come_to.items():
        if most > WHOLE:
            unit = UNITS.get(instance.scale, "") if "load" not in what else ""
            raise text.fault(
                None,
                None,
                f"{what} can come to {most:.10g}{unit}: single precision, in which the worlds "
                f"count, holds whole numbers up to {WHOLE:.0f}",
            )
