"""What every solver is given: a batch of instances in one plain form, whatever world they come from.

A solver sees distances, what a customer brings and weighs, and the limits; not fields, metrics or weights. `read` makes
this of a world's instances, and `milkrun.solvers.solve` hands the answer back in the world's own terms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Problem(NamedTuple):
    """B instances of up to N nodes, node 0 the depot (TSP: where the tour starts). Serve customers, maximise
    sum of `gain` - `beta` * length."""

    dist: Floats  # (B, N, N), row from, column to
    n_nodes: NDArray[np.int64]  # (B,), nodes beyond are padding
    gain: Floats  # (B, N), weighted: prize, or waste plus the overflow it spares; 0 where everyone is served
    weight: Floats  # (B, N), 0 where nothing is limited
    capacity: Floats  # (B,), inf = none
    max_length: Floats  # (B,), of one trip, inf = none
    required: NDArray[np.bool_]  # (B, N), must be served: all in TSP and CVRP, the must-go customers elsewhere
    beta: float  # price of a unit of length; 1 in TSP and CVRP
    multi: bool  # a return empties the truck; False = one trip
    closed: bool  # no depot: one tour over all nodes (TSP)
    windows: Floats | None  # (B, N, 2) earliest and latest arrival
    service: Floats | None  # (B, N) time of a stop, with windows
    speed: Floats | None  # (B,) with windows
