"""Tightened time windows of dial-a-ride requests, and whether a vehicle could serve a request alone.

The functions take numbers or arrays: kernels compile them, readers of instances call them on whole batches. As plain
Python they need no compiler.
"""

from __future__ import annotations

from typing import Any

import numpy as np

TIME_EPS = 1e-4
"""Tolerance of a limit in time."""

FAULTS = ("capacity", "ride", "duration", "window")
"""The faults that `faults_alone` returns. `window` comes last, since the other limits narrow the windows."""


def tightened(
    opens_p: Any,
    closes_p: Any,
    opens_d: Any,
    closes_d: Any,
    day_opens: Any,
    day_closes: Any,
    stop_p: Any,
    stop_d: Any,
    ride: Any,
    out: Any,
    direct: Any,
    home: Any,
) -> tuple[Any, Any, Any, Any]:
    """The windows of a pickup and its dropoff (opening, closing; opening, closing) without parts that no schedule uses.

    The vehicle comes from the depot and returns within the day. The two services are at least the direct travel time
    and at most the ride limit apart. `stop_*` are service times; `out`, `direct` and `home` are the travel times from
    the depot, between the two nodes, and back.
    """
    # In this order one pass is enough: if the direct travel time is within the ride limit, a second changes nothing.
    tight_open_p = np.maximum(np.maximum(opens_p, day_opens + out), opens_d - stop_p - ride)
    tight_close_d = np.minimum(np.minimum(closes_d, day_closes - stop_d - home), closes_p + stop_p + ride)
    tight_close_p = np.minimum(closes_p, tight_close_d - stop_p - direct)
    tight_open_d = np.maximum(opens_d, tight_open_p + stop_p + direct)
    return tight_open_p, tight_close_p, tight_open_d, tight_close_d


def faults_alone(
    tight: tuple[Any, Any, Any, Any],
    riders: Any,
    seats: Any,
    stop_p: Any,
    stop_d: Any,
    ride: Any,
    out: Any,
    direct: Any,
    home: Any,
    duration: Any,
) -> tuple[Any, Any, Any, Any]:
    """Flags, in the order of `FAULTS`, of the limits that forbid serving a request alone."""
    alone = out + stop_p + direct + stop_d + home
    late = (tight[0] > tight[1] + TIME_EPS) | (tight[2] > tight[3] + TIME_EPS)
    return riders > seats, direct > ride + TIME_EPS, alone > duration + TIME_EPS, late
