"""The checker of the dial-a-ride problem: prices finished routes and names every rule that they break.

Node 0 is the depot, request r is picked up at node 2r+1 and dropped off at node 2r+2. The cost is the distance of
all routes plus a penalty for every unvisited node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import BadSolution, ConfigError, ShapeError, did_you_mean
from milkrun.routing.darp.task.cases import Case, of_dataset, of_instance
from milkrun.routing.darp.task.replay import Log, Routes, Violation, assign, check_classic, drive_deadlines, drive_plan
from milkrun.routing.darp.task.schedule import earliest
from milkrun.routing.darp.windows import TIME_EPS
from milkrun.routing.instances.darp import DARPInstance
from milkrun.routing.tasks.base import WEIGHTS, BaseProblem
from milkrun.routing.tasks.dataset import like, to_numpy

TOL = 2 * TIME_EPS


@dataclass(frozen=True)
class DARPReport:
    """The result of checking routes. Lists have an entry for each route, in the given order."""

    feasible: bool
    violations: list[Violation]
    cost: float
    """distance plus penalty, whether feasible or not"""
    distance: float
    unvisited: int
    """nodes that were not visited"""
    unserved: int
    """requests not both picked up and dropped off: counted and priced, no violation"""
    vehicles: int
    """routes that are not empty"""
    schedule: list[tuple[float, ...] | None]
    """start times, departure and return included; None if there are none, () for a vehicle that stays"""
    ride_times: list[dict[int, float]]
    """from the end of service at the pickup to the start of service at the dropoff, by request"""
    waiting: list[float]
    """time of a route that is neither travel nor service; nan without a schedule"""
    duration: list[float]
    """from leaving the depot to being back; nan without a schedule"""


class DARPProblem:
    """Rule `classic`: windows, service, ride and duration limits; `deadlines`: deadlines only, in integers."""

    plan_axes: ClassVar[int] = 2

    @staticmethod
    def schedule(
        instance: DARPInstance, route: Sequence[int], tol: float = TOL, *, speed: float | None = None
    ) -> tuple[float, ...] | None:
        """The earliest start times of one route under `classic`, departure and return included, or None.

        A pickup is delayed only as far as a ride limit needs it. If no schedule keeps the limits exactly, each may be
        exceeded by `tol`.
        """
        case = of_instance(instance, "classic", speed)
        nodes = _as_route(route)
        if any(not 0 < node < case.num_nodes for node in nodes):
            raise BadSolution(f"{instance.name}: route {nodes} has a node that is not within 1..{case.num_nodes - 1}")
        return earliest(case, [0, *nodes, 0], tol)

    @staticmethod
    def check(
        instance: DARPInstance,
        routes: Routes,
        rule: str = "classic",
        tol: float = TOL,
        *,
        speed: float | None = None,
        penalty_unvisited: float = 100.0,
    ) -> DARPReport:
        """Checks routes of nodes without the depot; route k belongs to vehicle k and may be empty.

        `tol` is the tolerance of time limits of `classic`; `deadlines` uses integers. The default speed is 1 under
        `classic` and 25 under `deadlines`.
        """
        case = of_instance(instance, rule, speed)
        driven = [_as_route(route) for route in routes]
        log = drive_deadlines(case, driven) if rule == "deadlines" else check_classic(case, driven, tol)
        return _report(case, driven, log, _price(penalty_unvisited))

    @staticmethod
    def get_costs(
        dataset: Any,
        pi: Any,
        cw_dict: Mapping[str, float] | None = None,
        *,
        rule: str = "classic",
        penalty_unvisited: float = 100.0,
        speed: float | None = None,
        metric: str | None = None,
        max_onboard: int | None = None,
        tol: float = TOL,
        on_violation: str = "raise",
    ) -> tuple[Any, dict[str, Any], None]:
        """Cost (B,) of plans `pi` (B, L), routes joined by 0 and padded with 0; the raw amounts; and None.

        Under `classic` a plan does not name the vehicle of a route, since vehicles that fit no request are skipped.
        Each route, in order, goes to the first later vehicle with enough seats: if any order-preserving choice of
        vehicles fits, this one does. A 0 at the depot leaves a vehicle unused in favour of one of another capacity.
        A plan may stop early; the requests left cost the penalty. `max_onboard` limits the requests aboard.

        Under `deadlines` route k belongs to vehicle k, and a plan is a whole episode: a 0 at the depot, even padding,
        requires that no request fits or that the day is over. A row that breaks a rule raises `BadSolution`, or costs
        inf with `on_violation="inf"`.
        """
        if on_violation not in ("raise", "inf"):
            raise ConfigError(f"on_violation is {on_violation!r}, allowed are 'raise' and 'inf'")
        for key in cw_dict or {}:
            if key not in WEIGHTS:
                raise ConfigError(f"cost weight {key!r} is unknown{did_you_mean(key, WEIGHTS)}")
        plan = to_numpy(pi)
        if plan.ndim != 2 or plan.dtype.kind not in "iu":
            raise ShapeError(f"pi has shape {plan.shape} and dtype {plan.dtype}, expected (B, L) integers")
        rows, case_of = of_dataset(dataset, len(plan), rule, speed, metric)
        weight, price = (cw_dict or {}).get("length", 1.0), _price(penalty_unvisited)
        cost = np.zeros(len(plan))
        parts = {name: np.zeros(len(plan), np.int64) for name in ("unvisited", "unserved", "vehicles")}
        amounts: dict[str, NDArray[Any]] = {"distance": np.zeros(len(plan)), **parts}
        case, known = None, -1
        for b, q in enumerate(rows.tolist()):
            if case is None or q != known:
                case, known = case_of(q), q
            routes = DARPProblem.actions_to_routes(plan[b])
            if rule == "deadlines":
                log = drive_plan(case, routes)
            else:
                routes, idle = assign(case, routes, tol)
                log = check_classic(case, routes, tol, max_onboard)
                log.violations = idle + log.violations
            report = _report(case, routes, log, price)
            if report.violations and on_violation == "raise":
                raise BadSolution(f"row {b}: {report.violations[0]}")
            for name, amount in amounts.items():
                amount[b] = getattr(report, name)
            paid = weight * report.distance + price * report.unvisited
            cost[b] = np.inf if report.violations else paid
        return like(pi, cost), {name: like(pi, amount) for name, amount in amounts.items()}, None

    @staticmethod
    def validate_tours(pi: Any) -> bool:
        """True if `pi` (..., L) holds integers >= 0, no customer twice, each dropoff after its pickup in one route.

        0, the depot, separates routes and may recur.
        """
        if not BaseProblem.validate_tours(pi):
            return False
        plan = to_numpy(pi)
        return all(
            node % 2 == 1 or node - 1 in route[:position]
            for row in (plan.reshape(-1, plan.shape[-1]) if plan.size else [])
            for route in DARPProblem.actions_to_routes(row)
            for position, node in enumerate(route)
        )

    @staticmethod
    def actions_to_routes(actions: Any) -> list[list[int]]:
        """The routes of one plan (L,), cut at the zeros; two in a row make an empty route, trailing ones none."""
        routes: list[list[int]] = [[]]
        for node in _as_route(to_numpy(actions)):
            if node:
                routes[-1].append(node)
            else:
                routes.append([])
        while routes and not routes[-1]:
            routes.pop()
        return routes

    @staticmethod
    def routes_to_actions(routes: Routes, n: int, numbering: str = "file") -> NDArray[np.int64]:
        """The plan (L,) that drives these routes of an instance with `n` requests: joined by 0, and 0 at the end.

        Numbering `file`: i is a pickup and n+i its dropoff, as in Cordeau's files; `node`: 2i-1 and 2i, as in this
        package. An empty route takes no action: with equal vehicles it does not matter which one stays.
        """
        if numbering not in ("file", "node"):
            raise ConfigError(f"numbering is {numbering!r}, allowed are 'file' and 'node'")
        plan: list[int] = []
        for k, route in enumerate(routes):
            nodes = _as_route(route)
            if strange := [node for node in nodes if not 0 < node <= 2 * n]:
                raise BadSolution(f"route {k}: node {strange[0]} does not exist, nodes are 1..{2 * n}")
            if numbering == "file":
                nodes = [2 * i - 1 if i <= n else 2 * (i - n) for i in nodes]
            if nodes:
                plan += [*nodes, 0]
        return np.array(plan, np.int64)


def _report(case: Case, routes: Routes, log: Log, penalty: float) -> DARPReport:
    unvisited = case.num_nodes - 1 - len(log.visited)
    return DARPReport(
        feasible=not log.violations,
        violations=log.violations,
        cost=log.distance + penalty * unvisited,
        distance=log.distance,
        unvisited=unvisited,
        unserved=case.num_nodes // 2 - len(log.served),
        vehicles=sum(1 for route in routes if route),
        schedule=log.schedule,
        ride_times=log.ride_times,
        waiting=log.waiting,
        duration=log.duration,
    )


def _price(penalty: float) -> float:
    if not 0 <= penalty < np.inf:
        raise ConfigError(f"penalty_unvisited is {penalty}, must be finite and >= 0")
    return penalty


def _as_route(route: Any) -> list[int]:
    nodes = np.asarray(route)
    if nodes.ndim != 1 or (nodes.size and nodes.dtype.kind not in "iu"):
        raise ShapeError(f"a route is a list of node numbers, not {nodes.dtype} of shape {nodes.shape}")
    listed: list[int] = nodes.tolist()
    return listed
