"""Instances of the TSP with drone by one method of `plans`: what `solve` and the command line lead to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from milkrun.core.errors import ConfigError, ShapeError
from milkrun.delivery.instances.tspd import TSPDInstance
from milkrun.delivery.tspd.log import actions_of
from milkrun.delivery.tspd.task import tspd_cost
from milkrun.solvers.solve import Job, Solution
from milkrun.solvers.tspd.plans import Plan, exact, partition, truck_only

EXACT_UP_TO = 12  # nodes


def solve_job(job: Job) -> Solution:
    """Every method of the TSP with drone; which they are, the class of the world says. Actions are those of a world as
    large as the largest instance."""
    several = isinstance(job.instances, Sequence)
    rows: list[TSPDInstance] = list(job.instances) if several else [job.instances]
    if not rows or not all(isinstance(one, TSPDInstance) for one in rows):
        raise ShapeError("instances of TSPD are a TSPDInstance or a list of them")
    for name in job.config:
        raise ConfigError(f"{name}={job.config[name]!r}: the solvers of TSPD have no options, an instance says it all")
    nodes = max(one.num_nodes for one in rows)
    plans = []
    with job.bar(len(rows)) as advance:
        for one in rows:
            plans.append(plan_by(one, job.method))
            if advance is not None:
                advance(1)
    taken = [[action for operation in plan.operations for action in actions_of(operation, nodes)] for plan in plans]
    actions = np.zeros((len(rows), max(1, *map(len, taken))), np.int32)
    for b, row in enumerate(taken):
        actions[b, : len(row)] = row
    cost = [tspd_cost(one, plan.operations) for one, plan in zip(rows, plans, strict=True)]
    return Solution(actions, np.array(cost), np.full(len(rows), job.method == "exact"))


def default_method(instance: TSPDInstance) -> str:
    """The best that takes seconds."""
    return "exact" if instance.num_nodes <= EXACT_UP_TO else "partition"


def plan_by(instance: TSPDInstance, method: str) -> Plan:
    """The plan of a method; `partition` goes along the truck's own tour."""
    if method == "exact":
        return exact(instance, max_nodes=EXACT_UP_TO)
    tour = truck_only(instance)
    return tour if method == "truck_only" else partition(instance, [op.start for op in tour.operations])
