"""The farthest place that a law can draw, against which a trip limit is checked before drawing.

The range of a law that is a function is unknown; `CVRP.amend_instances` checks its draws row by row instead.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from milkrun.routing.distance import METRICS, great_circle, leg


def farthest_drawn(config: Any) -> tuple[float, str]:
    """The round trip to the farthest place that the law can draw, and a description of that place."""
    if config.map_name is not None:
        return _on_map(config)
    low, high = float(np.float32(config.min_loc)), float(np.float32(config.max_loc))  # as places are stored
    middle = float(np.float32(0.5 * (config.min_loc + config.max_loc)))
    start = middle if config.depot_type == "center" else low
    if config.metric == "haversine":
        return 2 * _on_globe(config.depot_type, low, middle, high), "from the depot across the box"
    metric = METRICS.index("euclid" if config.metric == "matrix" else config.metric)  # a matrix is drawn of the places
    # All these metrics grow with both differences, so the farthest place is a corner of the box. Two corners are
    # tried, since rounding to float32 may have moved the middle towards one of them.
    way = max(leg.py_func(metric, start, start, high, high), leg.py_func(metric, start, start, low, low))
    return 2 * way, "from the depot across the box"


def _on_map(config: Any) -> tuple[float, str]:
    found = config.map
    if config.metric == "matrix" and found.dist is not None:
        roads = found.dist.astype(np.float32).astype(float)
        ways = roads[0] + roads[:, 0]
    else:
        metric = METRICS.index("haversine" if config.metric == "haversine" else "euclid")
        places = (found.degrees if config.metric == "haversine" else found.locs).astype(np.float32).astype(float)
        ways = np.array([2 * leg.py_func(metric, *places[0], *place) for place in places])
    j = int(ways.argmax())
    return float(ways[j]), f"to the bin {found.ids[j]!r} of the map {found.name!r}"


def _on_globe(depot_type: str, low: float, middle: float, high: float) -> float:
    """The longest great circle from a depot of this type; not always between corners, as meridians converge."""
    # The box has the same ends in both coordinates. Between two latitudes the way grows with the difference of
    # longitudes up to 180 degrees, which no box exceeds: so that difference is fixed at its largest, and only latitudes
    # vary.
    east = high - middle if depot_type == "center" else high - low
    starts = {"center": [middle], "corner": [low]}.get(depot_type, [low, high])
    tried = [(a, b) for a in starts for b in (low, high, _opposite(a, east)) if low <= b <= high]
    # Where both ends are free, the two slopes vanish together at the equator alone; else one end is at an edge.
    if depot_type not in ("center", "corner") and low <= 0.0 <= high:
        tried.append((0.0, 0.0))
    return max(great_circle.py_func(a, 0.0, b, east) for a, b in tried)


def _opposite(latitude: float, east: float) -> float:
    """The latitude farthest from this one on a meridian `east` degrees away; may lie beyond a pole.

    The cosine of the distance, sin a sin b + cos a cos b cos east, is a sinusoid in b: this is its minimum.
    """
    a = math.radians(latitude)
    return math.degrees(math.atan2(-math.sin(a), -math.cos(a) * math.cos(math.radians(east))))
