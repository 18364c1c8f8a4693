"""The fields of an instance under the names of a world that is not the first of its kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from milkrun.core.errors import BadInstance

VRP, CVRPP = "milkrun/VRP-v0", "milkrun/CVRPP-v0"
WITH_FLEETS = (VRP, "milkrun/PDP-v0")
"""The worlds that limit the number of vehicles."""
HEAVIEST = 2.0**24
"""Single precision, in which the CVRPP adds weights, represents every whole number up to this."""


def cvrp_as_vrp(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A CVRP for the VRP: a limit with service is one of duration."""
    limit = "duration_limit" if "service_time" in fields else "distance_limit"
    found = {"linehaul": fields["demand_units"], "capacity": fields["capacity"]}
    if math.isfinite(fields["max_length"]):
        found[limit] = fields["max_length"]
    if "service_time" in fields:
        found["service_time"] = fields["service_time"]
    return found


def vrptw_as_cvrpp(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A VRPTW for the CVRPP: every customer is mandatory and has no prize."""
    weight = fields["linehaul"].astype(np.float64)
    if (load := min(float(fields["capacity"]), float(weight.sum()))) > HEAVIEST:
        raise BadInstance(f"the load of a trip can come to {load:.10g}; {CVRPP} holds whole numbers to {HEAVIEST:.0f}")
    return {
        "prize": np.zeros(len(weight)),
        "weight": weight,
        "capacity": float(fields["capacity"]),
        "must_go": np.arange(len(weight)) > 0,
        "max_length": math.inf,
        "time_windows": fields["time_windows"],
        "service_time": fields["service_time"],
    }


TRANSLATIONS: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    ("CVRP", VRP): cvrp_as_vrp,
    ("CVRPTW", CVRPP): vrptw_as_cvrpp,
}
"""By kind of file and world."""
