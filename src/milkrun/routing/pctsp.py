"""Prize-collecting TSP: collect enough prizes on one tour; pay its length and a penalty for each customer left out.

Observations: `locs`, `n_nodes`, `prize`, `penalty`, `prize_required`, `current_node`, `visited`, `tour_length`,
    `collected`, `penalty_left`, `i` (and `dist` with a matrix; `known_prize` with stochastic).
Actions: the node to go to, Discrete(num_loc + 1); 0 is the depot.
Mask: customers not yet visited; the depot once `prize_required` is collected, or all customers are visited.
Ends: terminated on the return to the depot.
Reward: minus the length of each leg; on the return minus the penalties of the customers left out.
References: Balas 1989 (the problem); Kool, van Hoof, Welling 2019 (instances; stochastic prizes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from milkrun.core.actions import discrete
from milkrun.core.config import option
from milkrun.core.fields import constant, float32, float64, instance, int64, mask, state
from milkrun.core.instances import refuse_where
from milkrun.core.kernels import kernel
from milkrun.render.scene import Scene
from milkrun.routing.distance import TOL, travel
from milkrun.routing.generators.laws import DEPOT_TYPES
from milkrun.routing.generators.prizes import generate
from milkrun.routing.vehicle import Routing, RoutingConfig, clear_record, write_down

SIZES = (20, 50, 100)
SPAN = {20: 2.0, 50: 3.0, 100: 4.0}
"""Expected lengths of tours by number of customers (Kool et al.); between them the nearest, ties to the smaller."""


@dataclass(frozen=True, kw_only=True)
class PCTSPConfig(RoutingConfig):
    """Options of the PCTSP."""

    presets: ClassVar[Any] = {
        **RoutingConfig.presets,
        **{f"spctsp{n}": {"num_loc": n, "stochastic": True} for n in SIZES},
    }

    depot_type: str = option("random", "place of the depot", choices=DEPOT_TYPES)
    stochastic: bool = option(False, "the prize of a visit differs from the expected one, and is known afterwards")
    prize_required: float = option(1.0, "prizes that the tour must collect", low=0, high=1e9)
    penalty_factor: float = option(3.0, "scale of the penalties drawn", low=0, high=1e9)

    @property
    def largest_penalty(self) -> float:
        """The largest penalty drawn, in the unit of length."""
        span = SPAN[min(SIZES, key=lambda n: (abs(n - self.num_loc), n))]
        return self.penalty_factor * span * self.side / self.num_loc


class PCTSP(Routing):
    """Collect enough prizes on one tour; pay its length and a penalty for each customer left out."""

    id = "milkrun/PCTSP-v0"
    is_cost = True
    Config = PCTSPConfig
    config: PCTSPConfig
    task = "milkrun.routing.tasks:PCTSP"
    generator = "milkrun.routing.generators:PCTSPGenerator"
    policies: ClassVar[Any] = {"thrifty": "milkrun.solvers.policies:thrifty", **Routing.policies}
    default_solver = ""
    action = discrete("N")
    customer_fields = ("prize", "penalty", "real_prize")
    usual = {**Routing.usual, "depot_law": DEPOT_TYPES.index("random")}

    depot_law = constant(int64)
    largest_penalty = constant(float64)
    required = constant(float64)

    prize = instance(float32, "N", low=0, doc="expected prize of a visit; 0 at the depot")
    real_prize = instance(float32, "uncertain", low=0, hidden=True, doc="what a visit collects; only with stochastic")
    penalty = instance(float32, "N", low=0, doc="cost of a customer that is left out; 0 at the depot")
    prize_required = instance(float32, low=0, doc="prizes that the tour must collect")
    known_prize = state(
        float32,
        "uncertain",
        low=0,
        doc="collected prize of visited customers, expected of others; only with stochastic",
    )
    collected = state(float32, low=0, doc="prizes collected so far")
    penalty_left = state(float32, low=0, doc="penalties of the customers not visited")
    action_mask = mask("N", remade=True)

    @classmethod
    def size_of(cls, config: PCTSPConfig) -> dict[str, int]:
        nodes = config.num_loc + 1
        return {
            **cls.space(config),
            "A": nodes if config.record else 0,
            "uncertain": nodes if config.stochastic else 0,
        }

    def constants(self) -> dict[str, Any]:
        return {**super().constants(), "depot_law": self.depot_code(), "required": self.config.prize_required}

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        values = super().arrange_instances(values)
        rows = len(values["n_nodes"])
        values.setdefault("prize_required", np.full(rows, self.required, np.float32))
        if self.sizes["uncertain"] and "prize" in values:
            values.setdefault("real_prize", values["prize"])
        return values

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_instances(arrays)
        at_depot = np.eye(1, self.sizes["N"], dtype=bool)
        for name in ("prize", "penalty", "real_prize"):
            if name in arrays and arrays[name].size:
                refuse_where(name, arrays[name], at_depot & (arrays[name] != 0), "the depot has none")

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_states(arrays)
        refuse_where("visited", arrays["visited"][:, :1], arrays["visited"][:, :1], "the depot is never visited")

    def scene(self, row: int) -> Scene:
        self.check_row(row)
        q = self.instance_row[row]
        prize, penalty = self.prize[q].tolist(), self.penalty[q].tolist()
        words = [f"prize {a:.3g}, penalty {b:.3g}" for a, b in zip(prize, penalty, strict=True)]
        s = self.scene_of_nodes(row, "customers", self.prize[q], lambda: words)
        s.gauge("prizes", self.collected[row], self.prize_required[q])
        s.figure("penalties left", self.penalty_left[row])
        return s

    def why_illegal(self, row: int, action: int) -> str:
        q = self.instance_row[row]
        if not 0 <= action < self.n_nodes[q]:
            return f"out of range 0..{self.n_nodes[q] - 1}"
        if action:
            return "visited"
        return f"collected {self.collected[row]:.4g} of the {self.prize_required[q]:.4g} required"


@kernel
def reset(w, b):
    q = w.instance_row[b]
    left = 0.0
    for j in range(w.N):
        w.visited[b, j] = False
    for j in range(1, w.n_nodes[q]):
        left += w.penalty[q, j]
    for j in range(w.uncertain):
        w.known_prize[b, j] = w.prize[q, j]
    w.penalty_left[b] = left
    w.current_node[b] = 0
    w.tour_length[b] = 0
    w.collected[b] = 0
    clear_record(w, b)
    mark_allowed(w, b)


@kernel(inline=True)
def step(w, b, action):
    q = w.instance_row[b]
    leg = travel(w, q, w.current_node[b], action)
    w.reward[b] = -leg
    w.tour_length[b] = w.tour_length[b] + leg
    w.current_node[b] = action
    if action == 0:
        w.reward[b] = -leg - w.penalty_left[b]
        w.terminated[b] = True
    else:
        w.collected[b] = np.float64(w.collected[b]) + prize_of_visit(w, b, q, action)
        w.penalty_left[b] = max(0.0, np.float64(w.penalty_left[b]) - w.penalty[q, action])
        w.visited[b, action] = True
    write_down(w, b, action)
    mark_allowed(w, b)


@kernel(inline=True)
def prize_of_visit(w, b, q, j):
    """The prize that a visit collects, which is known from then on."""
    if w.uncertain == 0:
        return np.float64(w.prize[q, j])
    w.known_prize[b, j] = w.real_prize[q, j]
    return np.float64(w.real_prize[q, j])


@kernel(inline=True)
def mark_allowed(w, b):
    q = w.instance_row[b]
    n = w.n_nodes[q]
    left = False
    for j in range(1, n):
        is_open = not w.visited[b, j]
        w.action_mask[b, j] = is_open
        left |= is_open
    for j in range(n, w.N):
        w.action_mask[b, j] = False
    w.action_mask[b, 0] = (not left) or w.collected[b] >= w.prize_required[q] - TOL


PCTSP.bind(generate=generate, reset=reset, step=step, derive_mask=mark_allowed)
