"""Solves many dial-a-ride instances by one method, in this process or in worker processes, for `solve`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.arguments import check_number
from milkrun.core.errors import ConfigError, ShapeError, did_you_mean
from milkrun.core.instances import as_array, owners_of
from milkrun.routing.darp.task.checker import DARPProblem
from milkrun.routing.instances.darp import DARPInstance
from milkrun.solvers import workers
from milkrun.solvers.darp import methods
from milkrun.solvers.darp.construct import ORDERS
from milkrun.solvers.darp.methods import DARPPlan
from milkrun.solvers.solve import Job, Solution

OPTIONS = ("speed", "penalty_unvisited")
AXES = {"locs": (3,), "dist": (3,), "n_nodes": (1, 2), "max_route_duration": (1, 2)}
NODES = ("locs", "demand", "time_windows", "window_open", "service_time")


def solve_job(job: Job) -> Solution:
    """Runs any method of dial-a-ride named by the world class."""
    rows = rows_of(job.instances)
    with job.bar(len(rows)) as advance:
        return Solution(
            *solve_rows(
                rows, job.method, job.time_limit, job.seed, job.workers, job.iterations, job.rule, job.config, advance
            )
        )


def solve_rows(
    rows: Sequence[DARPInstance],
    method: str,
    time_limit: float,
    seed: int,
    cores: int,
    iterations: int | None,
    order: str | None,
    options: Mapping[str, Any],
    progress: Callable[[int], object] | None,
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.bool_]]:
    """Actions (B, L), costs (B,) by the checker, and flags of proven optimality (B,)."""
    for name in options:
        if name not in OPTIONS:
            hint = did_you_mean(name, OPTIONS)
            raise ConfigError(f"{name}={options[name]!r} is no option of the solvers of DARP{hint}")
        check_number(name, options[name])
    if iterations is not None and method not in ("improve", "ortools"):
        raise ConfigError(
            f"iterations={iterations}: of the methods of DARP 'improve' and 'ortools' count them, not {method!r}"
        )
    task = (method, time_limit, seed, iterations, order, dict(options))
    found = workers.solve_each("darp.rows", lambda b: (rows[b], *task), len(rows), cores, progress)
    actions = np.zeros((len(rows), max(1, *(len(plan) for plan, _ in found))), np.int32)
    for b, (plan, _) in enumerate(found):
        actions[b, : len(plan)] = plan
    costs = [cost_of(one, plan, options) for one, (plan, _) in zip(rows, found, strict=True)]
    return actions, np.array(costs), np.array([proven for _, proven in found])


def solve_one(
    instance: DARPInstance,
    method: str,
    time_limit: float,
    seed: int,
    iterations: int | None,
    order: str | None,
    options: dict[str, Any],
) -> tuple[list[int], bool]:
    """The actions for one instance, and whether they are proven optimal."""
    plan = plan_by(instance, method, time_limit, seed, iterations, order, options)
    return actions_of(instance, plan.routes, options.get("speed", 1.0)), method == "exact"


def plan_by(
    instance: DARPInstance,
    method: str,
    seconds: float = 10.0,
    seed: int = 0,
    iterations: int | None = None,
    order: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> DARPPlan:
    """The plan of a method for one instance; `insertion` without an order tries both."""
    rules = dict(options or {})
    if method == "improve":
        return methods.improve(instance, None, seconds, seed, iterations, **rules)
    if method == "ortools":
        return methods.solve_ortools(instance, seconds, iterations=iterations, **rules)
    if method == "exact":
        return methods.solve_exact(instance, **rules)
    return methods.best_insertion(instance, ORDERS if order is None else (order,), **rules)


def actions_of(instance: DARPInstance, routes: Sequence[Sequence[int]], speed: float = 1.0) -> list[int]:
    """Routes as actions of the world.

    A vehicle without a route takes no action if equal vehicles follow, or if it fits no request and the world skips it.
    If a later vehicle has another capacity, it stays by a 0.
    """
    seats, alone = instance.capacity.tolist(), instance.unservable(speed)
    left = {r: int(instance.demand[2 * r + 1]) for r in range(instance.num_requests) if r not in alone}
    used = max((k for k, route in enumerate(routes) if route), default=-1)
    actions: list[int] = []
    for k, route in enumerate(routes[: used + 1]):
        if route or (any(c != seats[k] for c in seats[k + 1 :]) and any(load <= seats[k] for load in left.values())):
            actions += [*route, 0]
        for node in route:
            left.pop((node - 1) // 2, None)
    return actions


def cost_of(instance: DARPInstance, actions: Sequence[int], options: Mapping[str, Any]) -> float:
    """The checker's cost of actions."""
    # an empty list would become an array of floats, which the checker refuses
    cost, _, _ = DARPProblem.get_costs(instance.fields(), np.array([actions or [0]]), **options)
    return float(cost[0])


def rows_of(instances: Any) -> list[DARPInstance]:
    """One instance, several, or the fields of a batch under the names of the world, the instance first."""
    if isinstance(instances, DARPInstance):
        return [instances]
    if hasattr(instances, "keys"):
        return _of_fields(
            {
                str(name): as_array(str(name), instances[name])
                for name in list(instances.keys())
                if instances[name] is not None
            }
        )
    rows = list(instances) if isinstance(instances, Sequence) else []
    if not rows or not all(isinstance(one, DARPInstance) for one in rows):
        raise ShapeError("instances of DARP are a DARPInstance, a list of them, or a mapping of fields to arrays")
    return rows


def _of_fields(fields: dict[str, NDArray[Any]]) -> list[DARPInstance]:
    needed = (*NODES, "capacity", "max_ride_time", "max_route_duration")
    if missing := [name for name in needed if name not in fields]:
        raise ShapeError(f"the instances lack {', '.join(missing)}")
    known = {name: fields[name] for name in (*needed, "dist", "n_nodes") if name in fields}
    batch = fields["locs"].shape[:1]
    for name, array in known.items():
        if array.ndim not in AXES.get(name, (2,)) or array.shape[:1] != batch or batch == (0,):
            raise ShapeError(
                f"{name} has the shape {array.shape}; the fields of a batch have the instance first, at "
                f"least one and as many as locs {fields['locs'].shape}"
            )
        if array.dtype.kind not in "fiub":
            raise ShapeError(f"{name} is of dtype {array.dtype}, expected numbers")
    rows = range(batch[0])
    if "instance_row" in fields:
        owner = fields["instance_row"]
        rows = owners_of(owner, np.size(owner), batch[0]).tolist()
        if not rows:
            raise ShapeError("there is no instance to solve: the batch has 0 rows")
    return [DARPInstance.of_row(f"instance {b}", {name: array[b] for name, array in known.items()}) for b in rows]
