"""Travelling salesperson: visit every node once and come back.

Observations: `locs`, `n_nodes`, `first_node`, `current_node`, `visited`, `tour_length`, `i` (and `dist` with a matrix).
Actions: the node to go to, Discrete(num_loc).
Mask: nodes not yet visited. With start="depot" the tour starts at node 0, which opens again as the last stop;
    with start="free" the first action picks the start, and the last action also drives the leg home.
Ends: terminated after as many actions as there are nodes.
Reward: minus the distance driven; the return is minus the length of the tour.
References: Kool, van Hoof, Welling 2019 (instances, nearest neighbour); Kwon et al. 2020 (free starts).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from milkrun.core.actions import discrete
from milkrun.core.config import option
from milkrun.core.fields import constant, int32, int64, mask, state
from milkrun.core.instances import refuse_where
from milkrun.core.kernels import kernel
from milkrun.routing.base import HEURISTICS, SOLVER
from milkrun.routing.distance import travel
from milkrun.routing.generators.tours import generate_tsp as generate
from milkrun.routing.vehicle import (
    ON_PADDING,
    Routing,
    RoutingConfig,
    check_costs,
    clear_record,
    is_on_padding,
    write_down,
)

STARTS = ("depot", "free")
FREE = 1
TOUR_OVER = 3
"""A fault of a loaded state."""


@dataclass(frozen=True, kw_only=True)
class TSPConfig(RoutingConfig):
    """Options of the TSP."""

    presets: ClassVar[Any] = {**RoutingConfig.presets, "pomo": {"start": "free"}}

    num_loc: int = option(20, "nodes", low=2, high=10_000)
    start: str = option("depot", "depot: start at node 0; free: the first action picks the start", choices=STARTS)


class TSP(Routing):
    """Travelling salesperson: visit every node once and come back."""

    id = "milkrun/TSP-v0"
    is_cost = True
    Config = TSPConfig
    config: TSPConfig
    task = "milkrun.routing.tasks:TSP"
    generator = "milkrun.routing.generators:TSPGenerator"
    solvers = dict.fromkeys((*HEURISTICS, "exact", "pyvrp", "ortools"), SOLVER)
    file_kinds = {"TSP": {}, "ATSP": {}}
    environments = {"rl4co": "milkrun.api.rl4co.envs:TSPEnv"}
    action = discrete("N")
    depot_apart = False
    policy_sees = {"nodes": ("locs",), "places": ("first_node", "current_node")}

    start = constant(int64)
    first_node = state(int64, index="N", doc="where the tour starts")
    tour_len = state(int32, low=0, high="N", observed=False, doc="legal actions taken: the tour ends by it")
    action_mask = mask("N")

    faults = {
        **Routing.faults,
        TOUR_OVER: ("tour_len", "n_nodes is {n_nodes}, so the tour is over, but neither terminated nor truncated"),
    }

    @classmethod
    def size_of(cls, config: TSPConfig) -> dict[str, int]:
        return {**cls.space(config), "A": config.num_loc if config.record else 0}

    def constants(self) -> dict[str, Any]:
        return {**super().constants(), "start": STARTS.index(self.config.start)}

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        """The tour ends by its count, so the count of a live row must be right."""
        super().check_states(arrays)
        check_costs(arrays)
        live, count = ~(arrays["terminated"] | arrays["truncated"]), arrays["visited"].sum(axis=1)
        wrong = live & (arrays["tour_len"] != count - (self.start != FREE))
        refuse_where("tour_len", arrays["tour_len"], wrong, "must be the nodes visited, but for a depot at the start")

    def path(self, row: int) -> list[int]:
        nodes = super().path(row)
        if self.start == FREE:
            # A free tour begins with its first action, not at node 0; its last action also drives home.
            nodes = nodes[1:] + nodes[1:2] * int(self.terminated[row])
        return nodes

    def why_illegal(self, row: int, action: int) -> str:
        if not 0 <= action < self.n_nodes[self.instance_row[row]]:
            return f"out of range 0..{self.n_nodes[self.instance_row[row]] - 1}"
        return "closed until all other nodes are visited" if action == 0 and self.start != FREE else "visited"


@kernel
def reset(w, b):
    for j in range(w.N):
        w.visited[b, j] = False
    w.visited[b, 0] = w.start != FREE
    w.current_node[b] = 0
    w.first_node[b] = 0
    w.tour_length[b] = 0
    clear_record(w, b)
    mark(w, b)


@kernel(inline=True)
def step(w, b, action):
    n = w.n_nodes[w.instance_row[b]]
    leg = drive(w, b, action)
    w.reward[b] = -leg
    w.tour_length[b] = w.tour_length[b] + leg
    w.current_node[b] = action
    w.visited[b, action] = True
    write_down(w, b, action)
    w.terminated[b] = w.tour_len[b] == n
    w.action_mask[b, action] = False  # nothing else changes, so the cost of a step does not depend on the size
    if w.start != FREE:
        w.action_mask[b, 0] = w.tour_len[b] == n - 1


@kernel
def mark(w, b):
    """Opens the unvisited nodes; a tour from the depot may end there after all others."""
    n = w.n_nodes[w.instance_row[b]]
    for j in range(w.N):
        w.action_mask[b, j] = (not w.visited[b, j]) & (j < n)
    if w.start != FREE:
        w.action_mask[b, 0] = w.tour_len[b] == n - 1


@kernel(inline=True)
def drive(w, b, action):
    """The distance of this action: 0 to a free start; the last stop of a free tour adds the leg home."""
    # `tour_len` does not count this action yet: `step` writes it down afterwards.
    q = w.instance_row[b]
    if w.start != FREE:
        return travel(w, q, w.current_node[b], action)
    if w.tour_len[b] == 0:
        w.first_node[b] = action
        return 0.0
    leg = travel(w, q, w.current_node[b], action)
    if w.tour_len[b] == w.n_nodes[q] - 1:
        leg += travel(w, q, action, w.first_node[b])
    return leg


@kernel
def fault(w, b):
    """The rule that a loaded state breaks, 0 if none."""
    if is_on_padding(w, b):
        return ON_PADDING
    # `step` ends a tour when its count equals n; a live row beyond n would never end.
    over = w.tour_len[b] >= w.n_nodes[w.instance_row[b]]
    return TOUR_OVER if over and not (w.terminated[b] or w.truncated[b]) else 0


TSP.bind(generate=generate, reset=reset, step=step, derive_mask=mark, fault=fault)

__all__ = ["TSP", "TSPConfig", "generate", "reset", "step"]
