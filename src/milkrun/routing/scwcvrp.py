"""Stochastic waste collection: the truck knows expected levels and learns the real level at each bin.

Observations: `locs`, `n_nodes`, `max_waste`, `capacity`, `must_go`, `current_node`, `visited`, `expected_waste`,
    `revealed`, `load`, `collected`, `failures`, `tour_length`, `trip_length`, `i` (and `dist` with a matrix,
    `max_length` where given). Hidden: `real_waste`.
Actions: the node to go to, Discrete(num_loc + 1); 0 is the depot.
Mask: as in the CWCVRP, by the expected waste.
Failure: a bin holds more than the room left. recourse="return": the truck returns and empties;
    the bin stays full, now known. "round_trip": it fills up, empties at the depot and comes back for the rest.
Ends: as in the CWCVRP.
Reward: as in the CWCVRP on the real waste; each failure also costs failure_weight.
References: Gendreau, Laporte, Seguin 1996 (stochastic demands, recourse).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from milkrun.core.config import option
from milkrun.core.fields import bool_, constant, float32, float64, instance, int32, int64, state
from milkrun.core.kernels import kernel
from milkrun.routing.collect import TRIPS
from milkrun.routing.distance import fits, travel
from milkrun.routing.generators.waste import NOISE_LAWS
from milkrun.routing.generators.waste import generate_uncertain as generate
from milkrun.routing.trips import any_customer, begin_tour, drive, ends_tour, free_room, mark_allowed, take, unload
from milkrun.routing.vehicle import write_down
from milkrun.routing.wcvrp import Waste, WasteConfig, count_full

RECOURSES = ("return", "round_trip")
RETURN = 0


@dataclass(frozen=True, kw_only=True)
class RecourseConfig(WasteConfig):
    """Options of the worlds in which a service may fail."""

    trips: str = option("multi", "single: the first return ends the tour; multi: it empties the truck", choices=TRIPS)
    failure_weight: float = option(1.0, "cost of a failed service", low=0, high=1e30)
    recourse: str = option("return", "action of a truck that cannot take a whole bin", choices=RECOURSES)


@dataclass(frozen=True, kw_only=True)
class SCWCVRPConfig(RecourseConfig):
    """Options of the SCWCVRP."""

    noise_distribution: str = option("lognormal", "law of the real waste around the expected", choices=NOISE_LAWS)
    mu: float = option(1.0, "mean of the real waste, as a multiple of the expected", low=0, high=1e6)
    sigma: float = option(0.3, "spread: of the logarithm (lognormal), or in bins (truncnorm)", low=0, high=1e3)


class Recourse(Waste):
    """The worlds in which a service may fail."""

    Config = RecourseConfig
    config: RecourseConfig
    policies = {**Waste.policies, "rolling": "milkrun.solvers.rolling:RollingHorizon"}
    solvers: ClassVar[Any] = {}  # solvers need known levels; the policy `rolling` calls them day by day
    levels = "expected0"
    synonyms = {**Waste.synonyms, "demand": "expected_waste", "current_waste": "expected_waste"}

    recourse = constant(int64)
    failure_weight = constant(float64)

    expected_waste = state(float32, "N", low=0, doc="expected level of each bin, the real one where known")
    revealed = state(bool_, "N", doc="bins whose real level is known")
    failures = state(int32, low=0, doc="services that failed")

    @classmethod
    def record_size(cls, config: Any) -> int:
        # A bin takes at most three actions: one that fails, one that empties it, one return. It fails only once, since
        # the mask then uses its real level.
        return 3 * config.num_loc + 2 if config.record else 0

    def constants(self) -> dict[str, Any]:
        return {**super().constants(), "recourse": RECOURSES.index(self.config.recourse)}

    @classmethod
    def task_options(cls, config: Any) -> dict[str, Any]:
        return {**super().task_options(config), "recourse": config.recourse}

    @classmethod
    def task_weights(cls, config: Any) -> dict[str, float]:
        return {**super().task_weights(config), "failure": config.failure_weight}

    def weight_of(self, row: int, node: int) -> float:
        return float(self.expected_waste[row, node])

    def driven(self, row: int) -> list[int]:
        """The path with the returns of failed services, under `round_trip` also back to the bin."""
        capacity = float(self.capacity[self.instance_row[row]])
        return [0, *retrace(self.path(row)[1:], self.levels_at_start(row), capacity, self.recourse)]

    def emptied(self, row: int) -> np.ndarray:
        """The bins that `path` empties; needs record=True."""
        levels, actions = self.levels_at_start(row), self.path(row)[1:]
        retrace(actions, levels, float(self.capacity[self.instance_row[row]]), self.recourse)
        done = np.zeros(len(levels), bool)
        done[actions] = levels[actions] == 0
        return done

    def levels_at_start(self, row: int) -> np.ndarray:
        """The level of each bin before `path`."""
        raise NotImplementedError("each world has its own")


def retrace(actions: list[int], levels: np.ndarray, capacity: float, recourse: int) -> list[int]:
    """The nodes that these actions drive to, by the rules of `serve`; emptied bins become 0 in `levels`."""
    nodes, load = [], 0.0
    for j in actions:
        nodes.append(j)
        waste = float(levels[j])
        fails = j != 0 and not fits.py_func(load + waste, capacity)
        if fails:
            nodes += [0] if recourse == RETURN else [0, j]
        if j == 0 or (fails and recourse == RETURN):
            load = 0.0
        else:
            load = float(np.float32(load + (waste - capacity if fails else waste)))
            levels[j] = 0.0
    return nodes


class SCWCVRP(Recourse):
    """Stochastic waste collection: real levels are learnt at the bin, and a service may fail."""

    id = "milkrun/SCWCVRP-v0"
    Config = SCWCVRPConfig
    config: SCWCVRPConfig
    task = "milkrun.routing.tasks:SCWCVRP"
    generator = "milkrun.routing.generators:SCWCVRPGenerator"
    customer_fields = ("expected0", "real_waste", "must_go")

    usual = {**Recourse.usual, "noise_law": NOISE_LAWS.index("lognormal")}
    noise_law = constant(int64)
    mu = constant(float64)
    sigma = constant(float64)

    expected0 = instance(float32, "N", low=0, observed=False, doc="expected waste before the first stop")
    real_waste = instance(float32, "N", low=0, hidden=True, doc="real level of each bin")
    overflows = state(int32, low=0, tally=True, doc="full bins left, counted at the end")

    def waste_of(self, row: int) -> np.ndarray:
        return self.real_waste[self.instance_row[row]]

    def levels_at_start(self, row: int) -> np.ndarray:
        return self.waste_of(row).copy()

    def constants(self) -> dict[str, Any]:
        return {**super().constants(), "noise_law": NOISE_LAWS.index(self.config.noise_distribution)}

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        if "expected_waste" in values:
            values.setdefault("expected0", values["expected_waste"])
            del values["expected_waste"]
        return super().arrange_instances(values)


@kernel
def reset(w, b):
    q = w.instance_row[b]
    begin_tour(w, b)
    for j in range(w.N):
        w.expected_waste[b, j] = w.expected0[q, j]
        w.revealed[b, j] = False
    w.failures[b] = 0
    w.overflows[b] = 0
    mark(w, b)


@kernel(inline=True)
def step(w, b, action):
    q = w.instance_row[b]
    # A failed service may return the truck within this step; it still counts as out.
    was_out = w.current_node[b] != 0 or action != 0
    write_down(w, b, action)
    paid = serve(w, b, q, action, w.real_waste, q, w.must_go, q) if action != 0 else -w.beta * drive(w, b, q, 0)
    if ends_or_opens(w, b, q, q, was_out):
        full = count_full(w, b, w.real_waste, q)
        w.overflows[b] = full
        paid -= w.overflow_price * full
        w.terminated[b] = True
    w.reward[b] = paid


@kernel(inline=True)
def ends_or_opens(w, b, q, s, was_out):
    """After an action: True if it ends the tour, else the mask is set. `s` is the row of `must_go`."""
    home = w.current_node[b] == 0
    if home and ends_tour(w, b, was_out):
        return True
    mark_expected(w, b, q, s)
    return home and not any_customer(w, b)


@kernel(inline=True)
def mark_expected(w, b, q, s):
    """The mask by the expected waste; `s` is the row of `must_go`."""
    mark_allowed(w, b, w.expected_waste, b, w.must_go, s, free_room(w, b, q))


@kernel
def mark(w, b):
    q = w.instance_row[b]
    mark_expected(w, b, q, q)


@kernel
def serve(w, b, q, node, real, r, must, s):
    """Drives to a bin and empties it, or fails and applies the recourse; returns the reward."""
    waste, load, room = np.float64(real[r, node]), np.float64(w.load[b]), np.float64(w.capacity[q])
    way = travel(w, q, w.current_node[b], node)
    fails = not fits(load + waste, room)
    gain = waste
    w.expected_waste[b, node] = waste
    w.revealed[b, node] = True
    w.current_node[b] = node
    if not fails:
        w.trip_length[b] = w.trip_length[b] + way
        take(w, b, node, waste, waste, must[s, node])
    else:
        w.failures[b] += 1
        way += travel(w, q, node, 0)
        if w.recourse == RETURN:
            gain = 0.0
            w.current_node[b] = 0
            unload(w, b)
        else:
            w.trips[b] += 1
            again = travel(w, q, 0, node)
            way += again
            # The truck fills up and empties at the depot, then comes back for load + waste - capacity.
            take(w, b, node, waste, waste - room, must[s, node])
            w.trip_length[b] = again
    w.tour_length[b] = w.tour_length[b] + way
    w.length[b] = w.tour_length[b]
    return w.gain_weight * gain - w.beta * way - w.failure_weight * fails


Recourse.bind(generate=generate, reset=reset, step=step, derive_mask=mark)

__all__ = [
    "SCWCVRP",
    "Recourse",
    "RecourseConfig",
    "SCWCVRPConfig",
    "ends_or_opens",
    "generate",
    "mark_expected",
    "reset",
    "serve",
    "step",
]
