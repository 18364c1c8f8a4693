"""What the limits of a dial-a-ride request leave of its time windows, and whether a vehicle could serve it at all.

Stated once, for numbers and for arrays alike: kernels compile these functions, readers of instances call them on whole
batches. They are plain Python, so that whoever only reads an instance needs no compiler.
"""

from __future__ import annotations

from typing import Any

import numpy as np

TIME_EPS = 1e-4
"""By how much a limit in time may be exceeded."""

FAULTS = ("capacity", "ride", "duration", "window")
"""What `faults_alone` answers for. A window is the last to blame: the other limits narrow it."""


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
    """The windows of a pickup and of its dropoff (opening, closing; opening, closing) without the parts that no
    schedule can use: a vehicle comes from the depot and goes back within the day, and the windows of the two are at
    least the direct way and at most the ride limit apart. `stop_*` are service times; `out`, `direct` and `home` the
    travel times from the depot, between the two, and back."""
    # In this order one round is enough: where the direct way is within the ride limit, a second changes nothing.
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
    """Which limits, in the order of `FAULTS`, keep a vehicle that does nothing else from serving a request."""
    alone = out + stop_p + direct + stop_d + home
    late = (tight[0] > tight[1] + TIME_EPS) | (tight[2] > tight[3] + TIME_EPS)
    return riders > seats, direct > ride + TIME_EPS, alone > duration + TIME_EPS, late
