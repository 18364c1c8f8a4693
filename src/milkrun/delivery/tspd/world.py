"""Travelling salesperson with a drone: a truck drives a tour while its drone serves customers and rejoins it.

Observations: `locs`, `c_truck`, `c_drone`, `no_visit`, `forbid`, `fly_on`, `n_nodes`, `truck`, `launch`, `fly`,
    `truck_leg`, `clock`, `covered`, `left`, `must_join`, `steps`, `i` (and `max_fly` if there is a limit).
Actions: Discrete(2N + 1) for N nodes, the depot included: j < N drives the truck to j, N + k launches the drone to k,
    2N lets it join the truck.
Mask: with the drone aboard the uncovered nodes, by truck, or by drone if it can rejoin within `max_fly`, and the depot
    when all is covered; with the drone out, uncovered nodes, covered ones where it can join, and the join.
Ends: terminated with the drone aboard, the truck at the depot and every node covered, after at most 3N legal actions.
Reward: minus the time that passes, driving and waiting in the truck's cost units; the return is minus the makespan.
References: Agatz, Bouman, Schmidt 2018 (the problem, the laws); Bouman, Agatz, Schmidt 2018 (exact plans).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from milkrun.core.actions import discrete
from milkrun.core.fields import bool_, constant, float64, instance, int16, int32, int64, mask, state, view
from milkrun.core.kernels import fetch, kernel
from milkrun.core.world import World
from milkrun.delivery.instances.tspd import EPS, Operation, TSPDInstance
from milkrun.delivery.tspd import log, picture, reasons, reports
from milkrun.delivery.tspd.config import TSPDConfig
from milkrun.delivery.tspd.generator import LAWS, generate
from milkrun.delivery.tspd.instances import check_instance, check_state, fill_in, world_of
from milkrun.render.scene import Chart, Scene

HALF_OUT, NO_JOIN, MISCOUNTED, TOO_LONG = range(1, 5)
"""Faults of a loaded state."""


class TSPD(World):
    """Travelling salesperson with a drone."""

    id = "milkrun/TSPD-v0"
    is_cost = True
    Config = TSPDConfig
    config: TSPDConfig
    task = "milkrun.delivery.tasks:TSPDProblem"
    policies = {"partition": "milkrun.solvers.tspd.policy:PartitionPolicy"}
    solvers = dict.fromkeys(("exact", "partition", "truck_only"), "milkrun.solvers.tspd.rows:solve_job")
    solver_options = ()
    default_solver = "partition"
    figure = "milkrun.replay.flights:figure_of_flights"
    run_details = "milkrun.cli.details:DELIVERY_PLAN"
    action = discrete("choices")

    law = constant(int64)
    alpha = constant(float64)
    fly_limit = constant(float64)

    locs = instance(float64, "N", 2, doc="coordinates; node 0 is the depot")
    c_truck = instance(float64, "N", "N", low=0, doc="cost of the truck, row -> column")
    c_drone = instance(float64, "N", "N", low=0, doc="cost of the drone, row -> column")
    max_fly = instance(float64, low=0, limit=True, doc="largest cost of both legs of a flight together")
    no_visit = instance(bool_, "N", doc="the drone may not serve the node")
    forbid = instance(bool_, "N", doc="the drone may not launch, join or serve here; padding too")
    fly_on = instance(float64, "N", low=0, doc="least `c_drone` from here to another node where the drone may join")
    n_nodes = instance(int32, low=2, high="N", doc="true node count; higher indices are padding")

    truck = state(int64, index="N", doc="node of the truck")
    launch = state(int64, low=-1, high="last node", doc="node where the drone left the truck; -1 = aboard")
    fly = state(int64, low=-1, high="last node", doc="node that the drone serves; -1 = aboard")
    truck_leg = state(float64, low=0, doc="truck cost since the drone left")
    clock = state(float64, low=0, doc="time passed, in cost units")
    covered = state(bool_, "N", doc="nodes served or being served; the depot and padding too")
    left = state(int64, low=0, high="last node", doc="nodes not covered")
    must_join = state(bool_, doc="the truck is at a covered node to recover the drone")
    steps = state(int64, low=0, high="A", doc="legal actions taken")

    ops = state(
        int64,
        "O",
        3,
        low=-1,
        high="last node",
        tally=True,
        doc="operations done: start, end, node of the drone (-1 = none); -1 beyond",
    )
    # An action is 2 N at most, and N <= 1000: int16 holds it.
    plan = state(int16, "A", low=-1, tally=True, doc="the legal actions taken; -1 beyond")
    num_ops = state(int32, low=0, tally=True, doc="operations done")
    by_drone = state(int32, low=0, tally=True, doc="nodes that the drone serves")
    truck_drive = state(float64, low=0, tally=True, doc="driven by the truck")
    truck_wait = state(float64, low=0, tally=True, doc="waited by the truck")
    drone_fly = state(float64, low=0, tally=True, doc="flown by the drone in operations done")
    drone_wait = state(float64, low=0, tally=True, doc="waited by the drone off the truck")

    reward_exact = view(float64, doc="the reward of the last step before it is rounded to float32")
    action_mask = mask("choices")

    faults = {
        HALF_OUT: ("launch", "must be -1 if and only if fly is, which is {fly}"),
        NO_JOIN: ("fly", "the drone cannot join the truck within max_fly = {max_fly}"),
        MISCOUNTED: ("left", "must be the number of nodes that are not covered"),
        TOO_LONG: ("steps", "is more than an episode can have"),
    }

    @classmethod
    def size_of(cls, config: TSPDConfig) -> dict[str, int]:
        n = config.num_nodes
        # A: each of N - 1 nodes takes at most three actions (launch, drive to a covered node, join), and the return one
        # more. O: each operation but a last return covers a node, so there are at most N.
        return {"N": n, "last node": n - 1, "O": 2 * n, "A": 3 * n, "choices": 2 * n + 1}

    @classmethod
    def auto_max_steps(cls, config: TSPDConfig) -> int:
        return 3 * config.num_nodes

    def constants(self) -> dict[str, Any]:
        return {"law": LAWS.index(self.config.law), "fly_limit": self.config.max_fly}

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        return fill_in(self, values)

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        check_instance(self, arrays)

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        """Checks rules between fields of loaded states; raises BadInstance."""
        check_state(arrays)

    @classmethod
    def from_instances(cls, instances: Sequence[TSPDInstance | Mapping[str, Any]], repeat: int = 1, **make: Any) -> Any:
        """A world that plays these instances (dicts without a row axis), each in `repeat` rows without a copy.

        The largest instance sets the sizes; smaller ones are padded, with their true size in `n_nodes`. Row r plays
        instance r // repeat. The world is already reset.
        """
        return world_of(cls, instances, repeat, make)

    @classmethod
    def replay(
        cls, instance: TSPDInstance | Mapping[str, Any], operations: Iterable[Any]
    ) -> tuple[dict[str, float], list[log.Event]]:
        """Plays a whole plan, operations (start, end, fly, internal), through mask and step: (kpis, events)."""
        return reports.replay(cls, instance, operations)

    def solution(self) -> np.ndarray:
        """(B, 3N) the legal actions taken by each row, padded with 0: the `pi` of the task."""
        return np.maximum(self.plan, 0).astype(np.int64)

    def operations(self, row: int = 0) -> list[Operation]:
        """The completed operations of a row: (start, end, fly, internal), with fly -1 if the drone stayed aboard."""
        return log.operations(self, row)

    def events(self, row: int = 0) -> list[log.Event]:
        """The bars of a Gantt chart of truck and drone, without gaps for each."""
        self.check_row(row)
        return log.events(self, row)

    figure_fields = ("truck_drive", "truck_wait", "drone_fly", "drone_wait", "by_drone", "num_ops")

    def figures(self, last: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        same = {name: last[name] for name in self.figure_fields[:-1]}
        return {"makespan": -last["objective"], **same, "operations": last["num_ops"]}

    def kpis(self, row: int = 0) -> dict[str, float]:
        """The figures of a row by name."""
        self.check_row(row)
        return reports.kpis(self, row)

    def why_illegal(self, row: int, action: int) -> str:
        return reasons.why_illegal(self, row, action)

    def action_name(self, agent: int, action: int) -> str:
        """The name of an action: a drive, a launch or a recovery."""
        kind, node = divmod(action, self.sizes["N"])
        place = f"node {node}" if node else "the depot"
        return ("drive to ", "send the drone to ")[kind] + place if kind < 2 else "take up the drone"

    def scene(self, row: int) -> Scene:
        self.check_row(row)
        return picture.scene(self, row)

    chart_fields = ("clock",)

    def chart(self, row: int, frames: Mapping[str, np.ndarray]) -> Chart:
        return log.chart_of_events(self.events(row), frames["clock"])


@kernel(inline=True)
def may_join(w, b, q, j):
    """True if the flying drone may join at node j."""
    # Only for a flying drone: aboard, `launch` and `fly` are -1, and compiled code does not check indices.
    flight = w.c_drone[q, w.launch[b], w.fly[b]] + w.c_drone[q, w.fly[b], j]
    return (not w.forbid[q, j]) & (flight <= w.max_fly[q] + EPS)


# Loops over nodes have no branches, so that they vectorise; conditions on the row are tested before them.


@kernel(inline=True)
def open_drives(w, b):
    """Drone aboard: the truck may drive to uncovered nodes, and to the depot at the end."""
    drives, covered = w.action_mask[b, : w.N], w.covered[b]
    # `reset` marks the depot and padding as covered, so the loop closes them without n_nodes.
    for j in range(w.N):
        drives[j] = not covered[j]
    drives[0] = w.left[b] == 0


@kernel(inline=True)
def open_launches(w, b, q):
    """Drone aboard: the nodes it may serve from here. It can always join somewhere afterwards."""
    here = w.truck[b]
    launches, covered, no_visit, forbid = (w.action_mask[b, w.N : 2 * w.N], w.covered[b], w.no_visit[q], w.forbid[q])
    grounded = forbid[here]
    for k in range(w.N):
        launches[k] = not (grounded | covered[k] | no_visit[k] | forbid[k])
    if w.max_fly[q] < math.inf:
        # The flight there and on to the nearest node where it may join. The instance stores that second leg (`fly_on`),
        # so that a launch needs one addition for each node instead of a search. The sum equals that of `may_join` at
        # the nearest node bit by bit, and the truck can drive to any node but k: so a launched drone can always join.
        out, on, limit = w.c_drone[q, here], w.fly_on[q], w.max_fly[q] + EPS
        for k in range(w.N):
            launches[k] &= out[k] + on[k] <= limit


@kernel(inline=True)
def open_ways_out(w, b, q):
    """Drone out: uncovered nodes, since it can join later, and covered ones if it can join there."""
    drives, covered, forbid = w.action_mask[b, : w.N], w.covered[b], w.forbid[q]
    for j in range(w.N):
        # padding is both covered and forbidden, so it stays closed
        drives[j] = not (covered[j] & forbid[j])
    if w.max_fly[q] < math.inf:
        out, on, limit = w.c_drone[q, w.launch[b], w.fly[b]], w.c_drone[q, w.fly[b]], w.max_fly[q] + EPS
        for j in range(w.N):
            drives[j] &= (not covered[j]) | (out + on[j] <= limit)
    drives[w.fly[b]] = False
    drives[w.truck[b]] = False


@kernel
def mark(w, b):
    """The mask from the state alone; `drive`, `launch_drone` and `join` update the parts that change."""
    q = w.instance_row[b]
    if w.fly[b] < 0:
        open_aboard(w, b, q)
        return
    open_ways_out(w, b, q)
    if w.must_join[b]:
        close(w, b, 0, w.N)
    close(w, b, w.N, 2 * w.N)
    w.action_mask[b, 2 * w.N] = may_join(w, b, q, w.truck[b])


@kernel(inline=True)
def open_aboard(w, b, q):
    open_drives(w, b)
    open_launches(w, b, q)
    w.action_mask[b, 2 * w.N] = False


@kernel(inline=True)
def close(w, b, first, last):
    for a in range(first, last):
        w.action_mask[b, a] = False


@kernel
def reset(w, b):
    q = w.instance_row[b]
    w.truck[b] = 0
    w.clock[b] = 0.0
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
    take_aboard(w, b, q)


@kernel(inline=True)
def legal(w, b, action):
    """By the mask; a join also needs a flying drone, since it reads `launch` and `fly`."""
    allowed = action >= 0 and action <= 2 * w.N and w.action_mask[b, action]
    return allowed and (action < 2 * w.N or w.fly[b] >= 0)


@kernel(inline=True)
def step(w, b, action):
    q = w.instance_row[b]
    # Play never fills the record (see `size_of`); play under a wrong mask might.
    if w.steps[b] < w.A:
        w.plan[b, w.steps[b]] = action
    w.steps[b] += 1
    if action == 2 * w.N:
        join(w, b, q)
    elif action >= w.N:
        launch_drone(w, b, q, action - w.N)
    else:
        drive(w, b, q, action)


@kernel(inline=True)
def drive(w, b, q, j):
    """The truck drives to j; only the parts of the mask that can change are written.

    With the drone aboard these are j, now covered, and the depot, which opens at the end. Launches depend on the node
    of the truck only through `forbid` and the flight limit. With the drone out, the previous node opens again if the
    drone may join there, and after a covered node only the join is open.
    """
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
        w.terminated[b] = j == 0  # the depot is open at the end only
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
def launch_drone(w, b, q, k):
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
    """Truck and drone meet; the first to arrive waits for the other."""
    here, launch, k = w.truck[b], w.launch[b], w.fly[b]
    flight = w.c_drone[q, launch, k] + w.c_drone[q, k, here]
    # the clock includes the truck's drives; only the excess of the flight is added
    wait = max(0.0, flight - w.truck_leg[b])
    w.clock[b] += wait
    w.truck_wait[b] += wait
    w.drone_fly[b] += flight
    w.drone_wait[b] += max(0.0, w.truck_leg[b] - flight)
    w.reward_exact[b] = -wait
    write_down(w, b, launch, here, k)
    w.terminated[b] = (here == 0) & (w.left[b] == 0)
    take_aboard(w, b, q)


@kernel(inline=True)
def take_aboard(w, b, q):
    """Puts the drone aboard and opens drives and launches."""
    w.launch[b] = -1
    w.fly[b] = -1
    w.truck_leg[b] = 0.0
    w.must_join[b] = False
    open_aboard(w, b, q)


@kernel(inline=True)
def write_down(w, b, start, end, fly):
    # `num_ops` of a loaded state may be O already: then the operation is counted but not stored.
    o = w.num_ops[b]
    if o < w.O:
        w.ops[b, o, 0] = start
        w.ops[b, o, 1] = end
        w.ops[b, o, 2] = fly
    w.num_ops[b] += 1


@kernel(inline=True)
def prefetch(w, b, action):
    """Prefetches the memory of a step while earlier rows are played."""
    q = w.instance_row[b]
    fetch(w.c_truck[q], w.truck[b], action)
    # -1 of a drone aboard is harmless here: a prefetch of an invalid address has no effect
    fetch(w.c_drone[q], w.launch[b], w.fly[b])
    fetch(w.c_drone[q], w.fly[b], w.truck[b])
    fetch(w.plan, b, w.steps[b])
    fetch(w.ops, b, w.num_ops[b])
    fetch(w.action_mask, b, 0)


@kernel
def fault(w, b):
    """The rule that a loaded state breaks, 0 if none: the counts must be right, and the flight of a drone that is out
    must be valid."""
    uncovered = 0
    for j in range(w.N):
        uncovered += not w.covered[b, j]
    if uncovered != w.left[b]:
        return MISCOUNTED
    if w.steps[b] >= w.A:  # see `size_of`
        return TOO_LONG
    q, k = w.instance_row[b], w.fly[b]
    if (k >= 0) != (w.launch[b] >= 0):
        return HALF_OUT
    if k < 0:
        return 0
    reachable = w.c_drone[q, w.launch[b], k] + w.fly_on[q, k] <= w.max_fly[q] + EPS
    return 0 if reachable and (not w.must_join[b] or may_join(w, b, q, w.truck[b])) else NO_JOIN


TSPD.bind(generate=generate, reset=reset, step=step, legal=legal, prefetch=prefetch, derive_mask=mark, fault=fault)

__all__ = ["TSPD", "TSPDConfig", "generate", "reset", "step"]
