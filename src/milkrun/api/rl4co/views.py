"""The TSP and the CVRP with the fields of RL4CO: its names, dtypes and shapes, declared as in any world.

The rules are those of the worlds; the additional fields are written by the same compiled step, so RL4CO's keys need no
tensor operations. Fields that neither RL4CO shows nor a rule reads are tallies, which functional stepping drops.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from milkrun.core.errors import ShapeError
from milkrun.core.fields import bool_, float32, instance, int64, state, uint8
from milkrun.core.instances import refuse
from milkrun.core.kernels import kernel
from milkrun.routing.cvrp import CVRP
from milkrun.routing.cvrp import reset as begin
from milkrun.routing.cvrp import step as drive
from milkrun.routing.tsp import TSP

WHOLE = 1e-3
"""Demand times capacity this near to whole numbers is counted in units."""
FINE = 10**9
SLACK = FINE // 10**5
"""Other demand is counted in billionths of a truck, whose capacity is larger by 1e-5, RL4CO's own tolerance."""


class TSPView(TSP):
    """The TSP of RL4CO: the first action picks the start."""

    shown: ClassVar[tuple[str, ...]] = ("locs", "first_node", "current_node", "i", "action_mask")

    current_node = state(int64, index="N", doc="the node visited last")
    visited = state(bool_, "N", tally=True)
    tour_length = state(float32, tally=True)
    truncated = state(bool_, tally=True)

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        return super().arrange_instances({"locs": values["locs"]})


@kernel
def keep_mask(w, b):  # type: ignore[no-untyped-def]
    """RL4CO's TSP has no `visited`: the mask itself is that state, so there is nothing to derive it from."""


TSPView.bind(derive_mask=keep_mask)


@kernel
def reset_cvrp(w, b):  # type: ignore[no-untyped-def]
    begin(w, b)
    w.used_capacity[b] = 0


@kernel
def step_cvrp(w, b, action):  # type: ignore[no-untyped-def]
    drive(w, b, action)
    if action == 0:
        w.used_capacity[b] = 0
        w.visited[b, 0] = True
    else:
        w.used_capacity[b] += w.demand[w.instance_row[b], action - 1]


class CVRPView(CVRP):
    """The CVRP of RL4CO: demand as shares of a truck, besides the units that the rules use."""

    shown: ClassVar[tuple[str, ...]] = (
        "locs",
        "demand",
        "vehicle_capacity",
        "current_node",
        "used_capacity",
        "visited",
        "action_mask",
    )

    demand = instance(float32, "C", low=0, doc="of the customers, as shares of a truck")
    vehicle_capacity = instance(float32, column=True, doc="1: a whole truck")
    used_capacity = state(float32, column=True, doc="share of the truck in use")
    visited = state(uint8, "N", doc="nodes done; the depot once a trip has ended")
    i = state(int64, tally=True)
    tour_length = state(float32, tally=True)
    trip_length = state(float32, tally=True)
    truncated = state(bool_, tally=True)

    @classmethod
    def size_of(cls, config: Any) -> dict[str, int]:
        return {**super().size_of(config), "C": config.num_loc}

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        """From RL4CO's layout: `locs` (depot first), `demand` (B, n), `capacity` (B,) or (B, 1), NaN if unknown."""
        demand, expected = np.asarray(values["demand"], np.float32), (len(values["locs"]), self.sizes["C"])
        if demand.shape != expected:
            raise ShapeError(f"demand must have the shape {expected}, not {demand.shape}")
        units, capacity = whole_units(demand, values["capacity"])
        return super().arrange_instances(
            {
                "locs": values["locs"],
                "demand": demand,
                "vehicle_capacity": np.ones(len(demand), np.float32),
                "demand_units": np.pad(units, ((0, 0), (1, 0))),
                "capacity": capacity,
            }
        )


def whole_units(demand: np.ndarray, capacity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Demand (B, n), given as shares, in whole units, and the capacity of a truck in units (B,)."""
    if not np.isfinite(demand).all():
        refuse("demand", demand, ~np.isfinite(demand), "must be finite")
    if (demand > 1 + 1e-5).any():
        refuse("demand", demand, demand > 1 + 1e-5, "a share of the truck is at most 1")
    shares = demand.astype(np.float64)
    trucks = capacity.astype(np.float64).reshape(len(demand))
    with np.errstate(invalid="ignore"):
        counts = shares * trucks[:, None]
        # An unknown capacity is NaN and fails every comparison: such rows are counted in billionths.
        whole = np.abs(trucks - np.rint(trucks)) <= WHOLE
        whole &= (np.abs(counts - np.rint(counts)) <= WHOLE).all(axis=1) & (trucks >= 1) & (trucks < FINE)
    units = np.where(whole[:, None], counts, shares * FINE)
    return np.rint(units).astype(np.int32), np.rint(np.where(whole, trucks, FINE + SLACK)).astype(np.int32)


CVRPView.bind(reset=reset_cvrp, step=step_cvrp)
