"""Compiled baselines for the truck-and-drones world: `greedy`, `parked` (greedy with a parked truck), `lookahead`.

Each is a policy, `actions = policy(world)` of shape (B, 1 + drones). The world is deterministic, so the values compared
by `lookahead` are exact: it is never worse than greedy on the same instance.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError
from milkrun.core.kernels import kernel
from milkrun.core.lazy import lazy
from milkrun.delivery.truckdrone.flight import (
    AT_DEPOT,
    CRASHED,
    DELIVER,
    EPS,
    HOVER,
    MOVE,
    ONBOARD,
    RETURN,
    STAY,
    distance,
)

READY = 0.8
"""The least battery at which greedy launches a drone."""
BETTER = 1e-9
"""The least gain for which an action replaces another."""


def greedy(world: Any) -> np.ndarray:
    """Drones deliver the nearest allowed parcel; the truck launches them and drives towards the nearest free customer.

    Its target is the node nearest to that customer, by the shortest path if there are roads. If episodes end at the
    depot, it returns there when all are served.
    """
    return _advice(world, 0)


def parked(world: Any) -> np.ndarray:
    """Greedy with a parked truck: a baseline for the value of driving."""
    return _advice(world, 1)


def _advice(world: Any, stays: int) -> np.ndarray:
    if not hasattr(world, "advice"):
        raise ConfigError(f"this is a policy of the truck-and-drones world, not of {type(world).__name__}")
    world.map_rows(advise, np.int64, stays)
    return world.advice.copy()


@kernel
def advise(w, b, stays, _):
    """Writes the greedy actions of a row into `advice`."""
    q = w.instance_row[b]
    # Drones first and in order: each avoids the choices of earlier ones, and the truck reads all of them.
    for d in range(w.D):
        w.advice[b, 1 + d] = advise_drone(w, b, q, d)
    w.advice[b, 0] = advise_truck(w, b, q, stays)
    return 0


@kernel
def advise_drone(w, b, q, d):
    first = w.T + d * w.K
    own = w.carrying[b, d]
    if w.status[b, d] in (ONBOARD, CRASHED):
        return HOVER
    if own >= 0:
        if w.action_mask[b, first + DELIVER + own]:
            return DELIVER + own
    else:
        best, shortest = -1, math.inf
        for c in range(w.C):
            if w.action_mask[b, first + DELIVER + c] and not chosen(w, b, d, c):
                way = distance(
                    w.drone_pos[b, d, 0], w.drone_pos[b, d, 1], w.customer_pos[q, c, 0], w.customer_pos[q, c, 1]
                )
                if way < shortest:
                    best, shortest = c, way
        if best >= 0:
            return DELIVER + best
    return RETURN if w.action_mask[b, first + RETURN] else HOVER


@kernel
def chosen(w, b, before, c):
    """True if a drone before this one was advised to deliver to c."""
    for d in range(before):
        if w.advice[b, 1 + d] == DELIVER + c:
            return True
    return False


@kernel
def advise_truck(w, b, q, stays):
    nearest, shortest = -1, math.inf
    for c in range(w.C):
        free = not w.served[b, c] and not chosen(w, b, w.D, c)
        for d in range(w.D):
            free = free and (w.carrying[b, d] != c or w.status[b, d] == CRASHED)
        if free:
            way = distance(w.truck_pos[b, 0], w.truck_pos[b, 1], w.customer_pos[q, c, 0], w.customer_pos[q, c, 1])
            if way < shortest:
                nearest, shortest = c, way
    if nearest < 0:
        homewards = w.end == AT_DEPOT and w.customers_served[b] == w.C and not stays
        return drive_to(w, b, q, 0) if homewards else STAY
    for d in range(w.D):
        if w.action_mask[b, MOVE + w.N + d] and w.battery[b, d] >= READY:
            return MOVE + w.N + d
    if stays:
        return STAY
    node, shortest = 0, math.inf
    for n in range(w.N):
        way = distance(
            w.route_nodes[q, n, 0], w.route_nodes[q, n, 1], w.customer_pos[q, nearest, 0], w.customer_pos[q, nearest, 1]
        )
        if way < shortest:
            node, shortest = n, way
    return drive_to(w, b, q, node)


@kernel
def drive_to(w, b, q, node):
    if w.truck_node[b] == node:
        return STAY
    return MOVE + (next_node(w, b, q, node) if w.R else node)


@kernel
def next_node(w, b, q, goal):
    """With road_graph: the first node on the shortest path to the goal, ties to the lower index."""
    measure_ways(w, q, goal)
    first, shortest = goal, math.inf
    for n in range(w.N):
        # the truck's own node is open too (the diagonal of `road`), but is no progress
        if w.action_mask[b, MOVE + n] and n != w.truck_node[b]:
            way = w.way_left[n] + distance(
                w.truck_pos[b, 0], w.truck_pos[b, 1], w.route_nodes[q, n, 0], w.route_nodes[q, n, 1]
            )
            if way < shortest - EPS:
                first, shortest = n, way
    return first


@kernel
def measure_ways(w, q, goal):
    """Writes the road distances from all nodes to the goal to `way_left` (Dijkstra)."""
    for n in range(w.N):
        # From the goal outwards: roads are symmetric, so distances from and to the goal are equal.
        w.way_left[n] = 0.0 if n == goal else math.inf
        w.settled[n] = False
    for _ in range(w.N):
        near = -1
        for n in range(w.N):
            if not w.settled[n] and (near < 0 or w.way_left[n] < w.way_left[near]):
                near = n
        w.settled[near] = True
        for n in range(w.N):
            if w.road[q, near, n]:
                leg = distance(
                    w.route_nodes[q, near, 0], w.route_nodes[q, near, 1], w.route_nodes[q, n, 0], w.route_nodes[q, n, 1]
                )
                w.way_left[n] = min(w.way_left[n], w.way_left[near] + leg)


class Lookahead:
    """One-step look-ahead: the value of an action is the return of playing it now and greedy afterwards, to the end.

    Starting from the greedy joint action, the truck's STAY, MOVE and RELEASE are tried in index order, then all allowed
    actions of each drone in turn, with the others as chosen so far. Better actions are kept. `truck_stays` keeps the
    truck parked, in the trials too.
    """

    def __init__(self, truck_stays: bool = False) -> None:
        self.truck_stays = int(truck_stays)
        self._stages: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def __call__(self, world: Any) -> np.ndarray:
        actions = _advice(world, self.truck_stays)
        ended = (world.terminated | world.truncated) & (world.autoreset != "same_step")
        rows = np.flatnonzero(~ended)
        if len(rows):
            self._improve(world, rows, actions)
        return actions

    def _improve(self, world: Any, rows: np.ndarray, actions: np.ndarray) -> None:
        saved = world.state_dict(rows)
        saved["terminated"][:] = saved["truncated"][:] = False  # same_step: the flags belong to the episode before
        nodes, drones = world.sizes["N"], world.sizes["D"]
        moves = [] if self.truck_stays else range(MOVE, MOVE + nodes)
        tried = [STAY, *moves, *range(MOVE + nodes, MOVE + nodes + drones)]
        best = self._values(world, saved, actions[rows][:, None])[:, 0]
        allowed = [world.truck_mask[rows, 0][:, tried], *world.drone_mask[rows].swapaxes(0, 1)]
        for agent, may in enumerate(allowed):
            choices = np.array(tried) if agent == 0 else np.arange(world.sizes["K"])
            joint = np.repeat(actions[rows][:, None], len(choices), axis=1)
            # the current choice replaces a masked action, whose value is discarded below
            joint[:, :, agent] = np.where(may, choices, joint[:, :, agent])
            values = np.where(may, self._values(world, saved, joint), -np.inf)
            for k, action in enumerate(choices):
                better = values[:, k] > best + BETTER
                actions[rows[better], agent] = action
                best[better] = values[better, k]

    def _values(self, world: Any, saved: dict[str, np.ndarray], joint: np.ndarray) -> np.ndarray:
        """(rows, choices): the return of each joint action (rows, choices, agents), then greedy to the end."""
        rows, choices = joint.shape[:2]
        stage = self._stage(world, choices)
        used = np.arange(rows * choices)
        stage.load_state_dict(
            {
                name: np.repeat(value, choices, axis=0) if name != "instance_row" else used
                for name, value in saved.items()
            },
            used,
        )
        stage.step(joint.reshape(rows * choices, -1), rows=used)
        stage.play_out(advise, self.truck_stays)
        return stage.objective[used].reshape(rows, choices).copy()

    def _stage(self, world: Any, choices: int) -> Any:
        """A world for trials, of the size of the largest one."""
        stages = self._stages.setdefault(world, {})
        if choices not in stages:
            size = world.num_envs * choices
            stage = type(world)(size, world.config, seed=0, autoreset="disabled", threads=world.threads)
            stage.reset()
            # `play_out` plays every live row, so unused rows must have ended
            stage.play_out(advise, self.truck_stays)
            stages[choices] = stage
        return stages[choices]


lookahead = Lookahead()
"""`Lookahead` with a truck that drives."""

# Imported lazily, since that module refers to these policies.
__getattr__, __dir__, __all__ = lazy(__name__, {"milkrun.solvers.policies": "random_policy"})
__all__ += ["Lookahead", "greedy", "lookahead", "parked"]
