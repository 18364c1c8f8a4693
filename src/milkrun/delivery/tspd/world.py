"""Travelling salesperson with a drone: a truck drives a tour, its drone serves customers meanwhile, both meet again.

Observations: `locs`, `c_truck`, `c_drone`, `no_visit`, `forbid`, `fly_on`, `n_nodes`, `truck`, `launch`, `fly`,
    `truck_leg`, `clock`, `covered`, `left`, `must_join`, `steps`, `i` (and `max_fly` where there is a limit).
Actions: Discrete(2N + 1) for N nodes, the depot included: j < N drives the truck to j, N + k launches the drone to k,
    2N lets it join the truck.
Mask: with the drone aboard the nodes not covered, by truck or by drone if it could come back within `max_fly`, and the
    depot when all is covered; with the drone out, nodes not covered, covered ones where it could join, and the join.
Ends: terminated with the drone aboard, the truck at the depot and every node covered, after at most 3N legal actions.
Reward: minus the time that passes, driving and waiting in the truck's cost units; the return is minus the makespan.
References: Agatz, Bouman, Schmidt 2018 (the problem, the laws); Bouman, Agatz, Schmidt 2018 (exact plans).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from milkrun.core.actions import discrete
from milkrun.core.canvas import CUSTOMER, DEPOT, INK, PALETTE, SERVED, Canvas
from milkrun.core.fields import bool_, float64, int16, int32, int64, mask, state, view
from milkrun.core.kernels import fetch, kernel
from milkrun.delivery.instances.tspd import EPS, Operation, TSPDInstance
from milkrun.delivery.tspd import log
from milkrun.delivery.tspd.config import TSPDConfig
from milkrun.delivery.tspd.generator import generate
from milkrun.delivery.tspd.instances import TSPDDoor
from milkrun.delivery.tspd.states import check_machines, check_mask, check_record


class TSPD(TSPDDoor):
    """Travelling salesperson with a drone."""

    id = "milkrun/TSPD-v0"
    task = "milkrun.delivery.tasks:TSPDProblem"
    action = discrete("choices")

    truck = state(int64, index="N", doc="node of the truck")
    launch = state(int64, low=-1, high="last node", doc="where the drone left the truck; -1 = it is aboard")
    fly = state(int64, low=-1, high="last node", doc="node that the drone serves; -1 = it is aboard")
    truck_leg = state(float64, low=0, doc="driven since the drone left")
    clock = state(float64, low=0, doc="time passed, in cost units")
    covered = state(bool_, "N", doc="nodes served or on the drone's way; the depot and padding too")
    left = state(int64, low=0, doc="nodes not covered")
    must_join = state(bool_, doc="the truck is back at a covered node to take the drone up")
    steps = state(int64, low=0, doc="legal actions taken")

    ops = state(
        int64, "O", 3, low=-1, high="last node", observed=False, tally=True,
        doc="operations done: start, end, node of the drone (-1 = none); -1 beyond",
    )  # fmt: skip
    plan = state(int16, "A", low=-1, observed=False, tally=True, doc="the legal actions taken; -1 beyond")
    num_ops = state(int32, low=0, observed=False, tally=True, doc="operations done")
    by_drone = state(int32, low=0, observed=False, tally=True, doc="nodes that the drone serves")
    truck_drive = state(float64, low=0, observed=False, tally=True, doc="driven by the truck")
    truck_wait = state(float64, low=0, observed=False, tally=True, doc="waited by the truck")
    drone_fly = state(float64, low=0, observed=False, tally=True, doc="flown by the drone in operations done")
    drone_wait = state(float64, low=0, observed=False, tally=True, doc="waited by the drone, away from the truck")

    reward_exact = view(float64, doc="the reward of the last step before it is rounded to float32")
    action_mask = mask("choices")

    def solution(self) -> np.ndarray:
        """(B, 3N) the legal actions taken by each row, padded with 0: what its task prices."""
        return np.maximum(self.plan, 0).astype(np.int64)

    def operations(self, row: int = 0) -> list[Operation]:
        """The operations that a row has done: (start, end, fly, internal), fly -1 where the truck went alone."""
        return log.operations(self, row)

    def events(self, row: int = 0) -> list[log.Event]:
        """What truck and drone did when, as the rows of a Gantt chart: each machine's follow without a gap."""
        return log.events(self, row)

    figure_fields = ("truck_drive", "truck_wait", "drone_fly", "drone_wait", "by_drone", "num_ops")

    def figures(self, told: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        *names, operations = self.figure_fields
        return {"makespan": -told["objective"], **{name: told[name] for name in names}, "operations": told[operations]}

    def kpis(self, row: int = 0) -> dict[str, float]:
        """The figures of a row by name."""
        return log.kpis(self, row)

    @classmethod
    def replay(
        cls, instance: TSPDInstance | Mapping[str, Any], operations: Iterable[Any]
    ) -> tuple[dict[str, float], list[log.Event]]:
        """Plays a whole plan, operations (start, end, fly, internal), through mask and step: (kpis, events)."""
        return log.replay(cls, instance, operations)

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        """Rules between the fields of rows (B first, instances of each row among them) that every play keeps; raises
        BadInstance. Shapes, dtypes and bounds have been checked."""
        self.check_instances(arrays)
        check_machines(arrays)
        check_mask(arrays)
        check_record(arrays)

    def why_illegal(self, row: int, action: int) -> str:
        return log.why_illegal(self, row, action)

    def draw(self, row: int, canvas: Canvas) -> None:
        """Nodes, the truck's way so far, the drone's flights in another colour, the depot as a square."""
        q = self.instance_row[row]
        nodes = self.locs[q, : self.n_nodes[q]]
        canvas.fit(nodes.min(0), nodes.max(0))
        canvas.caption(f"TSPD  clock {float(self.clock[row]):.3f}  step {int(self.i[row])}")
        way, flights = log.paths(self, row)
        for flight in flights:
            canvas.polyline(nodes[flight], PALETTE[1], 1.5, arrow=True)
        canvas.polyline(nodes[way], PALETTE[0], 2.5)
        canvas.discs(nodes, 4.0, [SERVED if done else CUSTOMER for done in self.covered[row, : len(nodes)]])
        canvas.square(nodes[0], 6.0, DEPOT)
        canvas.disc(nodes[self.truck[row]], 2.0, INK)


@kernel(inline=True)
def may_join(w, b, q, j):
    """The drone, on its way, may be taken up at node j."""
    flight = w.c_drone[q, w.launch[b], w.fly[b]] + w.c_drone[q, w.fly[b], j]
    return (not w.forbid[q, j]) & (flight <= w.max_fly[q] + EPS)


@kernel(inline=True)
def open_drives(w, b):
    """Drone aboard: the truck may go wherever nobody was, and home at the end."""
    drives, covered = w.action_mask[b, : w.N], w.covered[b]
    for j in range(w.N):
        drives[j] = not covered[j]
    drives[0] = w.left[b] == 0


@kernel(inline=True)
def open_launches(w, b, q):
    """Drone aboard: where it may go from here. Some node is left where it can join, so no play ends with it out."""
    here = w.truck[b]
    launches, covered, no_visit, forbid = (
        w.action_mask[b, w.N : 2 * w.N], w.covered[b], w.no_visit[q], w.forbid[q]
    )  # fmt: skip
    grounded = forbid[here]
    for k in range(w.N):
        launches[k] = not (grounded | covered[k] | no_visit[k] | forbid[k])
    if w.max_fly[q] < math.inf:
        out, on, limit = w.c_drone[q, here], w.fly_on[q], w.max_fly[q] + EPS
        for k in range(w.N):
            launches[k] &= out[k] + on[k] <= limit


@kernel(inline=True)
def open_ways_out(w, b, q):
    """Drone out: nodes not covered, since it can join beyond them, and covered ones if it can join there."""
    drives, covered, forbid = w.action_mask[b, : w.N], w.covered[b], w.forbid[q]
    for j in range(w.N):
        drives[j] = not (covered[j] & forbid[j])
    if w.max_fly[q] < math.inf:
        out, on, limit = w.c_drone[q, w.launch[b], w.fly[b]], w.c_drone[q, w.fly[b]], w.max_fly[q] + EPS
        for j in range(w.N):
            drives[j] &= (not covered[j]) | (out + on[j] <= limit)
    drives[w.fly[b]] = False
    drives[w.truck[b]] = False


@kernel(inline=True)
def close(w, b, first, last):
    for a in range(first, last):
        w.action_mask[b, a] = False


@kernel
def reset(w, b):
    q = w.instance_row[b]
    w.truck[b] = 0
    w.launch[b] = -1
    w.fly[b] = -1
    w.truck_leg[b] = 0.0
    w.clock[b] = 0.0
    w.must_join[b] = False
    w.left[b] = w.n_nodes[q] - 1
    w.steps[b] = 0
    for j in range(w.N):
        w.covered[b, j] = (j == 0) | (j >= w.n_nodes[q])
    for o in range(w.O):
        for part in range(3):
            w.ops[b, o, part] = -1
    for s in range(w.A):
        w.plan[b, s] = -1
    w.num_ops[b] = 0
    w.by_drone[b] = 0
    w.truck_drive[b] = 0.0
    w.truck_wait[b] = 0.0
    w.drone_fly[b] = 0.0
    w.drone_wait[b] = 0.0
    open_drives(w, b)
    open_launches(w, b, q)
    w.action_mask[b, 2 * w.N] = False


@kernel(inline=True)
def step(w, b, action):
    q = w.instance_row[b]
    if w.steps[b] < w.A:
        w.plan[b, w.steps[b]] = action
    w.steps[b] += 1
    if action == 2 * w.N:
        join(w, b, q)
    elif action >= w.N:
        send_out(w, b, q, action - w.N)
    else:
        drive(w, b, q, action)


@kernel(inline=True)
def drive(w, b, q, j):
    """The truck goes to j. Only the parts of the mask are written that this can change."""
    here = w.truck[b]
    way = w.c_truck[q, here, j]
    again = w.covered[b, j]
    w.clock[b] += way
    w.truck_drive[b] += way
    w.reward_exact[b] = -way
    w.covered[b, j] = True
    w.left[b] -= not again
    w.truck[b] = j
    w.action_mask[b, j] = False
    if w.fly[b] < 0:
        write_down(w, b, here, j, -1)
        w.terminated[b] = j == 0  # which is open at the very end only
        w.action_mask[b, 0] = w.left[b] == 0
        w.action_mask[b, w.N + j] = False
        if (w.max_fly[q] < math.inf) | (w.forbid[q, here] != w.forbid[q, j]):
            open_launches(w, b, q)
    else:
        w.truck_leg[b] += way
        w.must_join[b] = again
        w.action_mask[b, here] = may_join(w, b, q, here)
        w.action_mask[b, 2 * w.N] = may_join(w, b, q, j)
        if again:
            close(w, b, 0, w.N)


@kernel(inline=True)
def send_out(w, b, q, k):
    w.launch[b] = w.truck[b]
    w.fly[b] = k
    w.covered[b, k] = True
    w.left[b] -= 1
    w.by_drone[b] += 1
    open_ways_out(w, b, q)
    close(w, b, w.N, 2 * w.N)
    w.action_mask[b, 2 * w.N] = may_join(w, b, q, w.truck[b])


@kernel(inline=True)
def join(w, b, q):
    """Who came first waits for the other."""
    here, launch, k = w.truck[b], w.launch[b], w.fly[b]
    flight = w.c_drone[q, launch, k] + w.c_drone[q, k, here]
    wait = max(0.0, flight - w.truck_leg[b])
    w.clock[b] += wait
    w.truck_wait[b] += wait
    w.drone_fly[b] += flight
    w.drone_wait[b] += max(0.0, w.truck_leg[b] - flight)
    w.reward_exact[b] = -wait
    write_down(w, b, launch, here, k)
    w.launch[b] = -1
    w.fly[b] = -1
    w.truck_leg[b] = 0.0
    w.must_join[b] = False
    w.terminated[b] = (here == 0) & (w.left[b] == 0)
    open_drives(w, b)
    open_launches(w, b, q)
    w.action_mask[b, 2 * w.N] = False


@kernel(inline=True)
def write_down(w, b, start, end, fly):
    o = w.num_ops[b]
    if o < w.O:
        w.ops[b, o, 0] = start
        w.ops[b, o, 1] = end
        w.ops[b, o, 2] = fly
    w.num_ops[b] += 1


@kernel(inline=True)
def prefetch(w, b, action):
    """The places in memory that a step looks up."""
    q = w.instance_row[b]
    fetch(w.c_truck[q], w.truck[b], action)
    fetch(w.c_drone[q], w.launch[b], w.fly[b])
    fetch(w.c_drone[q], w.fly[b], w.truck[b])
    fetch(w.plan, b, w.steps[b])
    fetch(w.ops, b, w.num_ops[b])
    fetch(w.action_mask, b, 0)


TSPD.bind(generate=generate, reset=reset, step=step, prefetch=prefetch)

__all__ = ["TSPD", "TSPDConfig", "generate", "reset", "step"]
