"""Solves instances of the TSP with drone by a method of `plans`, for `solve` and the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError, ShapeError
from milkrun.core.instances import as_array
from milkrun.delivery.instances.tspd import TSPDInstance
from milkrun.delivery.tspd.log import actions_of
from milkrun.delivery.tspd.task import tspd_cost
from milkrun.solvers.solve import Job, Solution
from milkrun.solvers.tspd.plans import TSPDPlan, exact, partition, truck_only

EXACT_UP_TO = 12  # nodes


def solve_job(job: Job) -> Solution:
    """Runs any method of the TSP with drone named by the world class."""
    rows, nodes = rows_of(job.instances)
    for name in job.config:
        raise ConfigError(f"{name}={job.config[name]!r}: the solvers of TSPD have no options")
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


def rows_of(instances: Any) -> tuple[list[TSPDInstance], int]:
    """The instances and the number of nodes of their world, which defines the actions.

    `instances` is one instance, several, or the fields of a batch with the instance first. The number of nodes is that
    of the fields, padding included, or of the largest instance."""
    if hasattr(instances, "keys"):
        fields = {str(name): as_array(str(name), instances[name]) for name in list(instances.keys())}
        needed = ("locs", "c_truck", "c_drone", "no_visit", "forbid", "max_fly", "n_nodes")
        if missing := [name for name in needed if name not in fields]:
            raise ShapeError(f"the instances lack {', '.join(missing)}")
        counts = fields["n_nodes"].reshape(-1).tolist()
        several = [without_padding(f"instance {b}", fields, b, n) for b, n in enumerate(counts)]
        return several, fields["locs"].shape[1]
    rows = list(instances) if isinstance(instances, Sequence) else [instances]
    if not rows or not all(isinstance(one, TSPDInstance) for one in rows):
        raise ShapeError("instances of TSPD are a TSPDInstance, a list of them, or a mapping of fields to arrays")
    return rows, max(one.num_nodes for one in rows)


def without_padding(name: str, fields: Mapping[str, np.ndarray], b: int, n: int) -> TSPDInstance:
    """Instance b, with n nodes, from the fields of a world."""
    costs = {name: fields[name][b, :n, :n] for name in ("c_truck", "c_drone")}
    nodes = {name: fields[name][b, :n] for name in ("locs", "no_visit", "forbid")}
    return TSPDInstance.of_row(name, {**costs, **nodes, "max_fly": fields["max_fly"][b]})


def default_method(instance: TSPDInstance) -> str:
    """The best method that takes seconds."""
    return "exact" if instance.num_nodes <= EXACT_UP_TO else "partition"


def plan_by(instance: TSPDInstance, method: str) -> TSPDPlan:
    """The plan of a method; `partition` splits the tour of `truck_only`."""
    if method == "exact":
        return exact(instance, max_nodes=EXACT_UP_TO)
    tour = truck_only(instance)
    return tour if method == "truck_only" else partition(instance, [op.start for op in tour.operations])
