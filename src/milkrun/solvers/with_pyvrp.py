"""PyVRP: hybrid search for vehicle routing with optional clients (Wouda, Lan, Kool 2024).

Whole numbers throughout: lengths and prizes in millionths of the box's side, weights in millionths of a bin unless they
are whole already. Prizes are divided by the price of length, so PyVRP's cost is length plus prizes left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyvrp
from pyvrp.stop import MaxIterations, MaxRuntime, MultipleCriteria

from milkrun.solvers.problem import Problem

MILLION = 1_000_000


def solve(problem: Problem, time_limit: float, seed: int, iterations: int | None) -> list[int] | None:
    """The plan for the one instance of `problem`, None if none was found that keeps every limit."""
    n = int(problem.n_nodes[0])
    if n == 2 and problem.required[0, 1]:
        return [1, 0]
    stops: list[Any] = [MaxRuntime(time_limit)]
    if iterations is not None:
        stops.append(MaxIterations(iterations))
    result = pyvrp.solve(model(problem), MultipleCriteria(stops), seed=seed % 2**32, collect_stats=False, display=False)
    if not result.is_feasible():
        return None
    trips = [[visit.idx + 1 for visit in route if visit.is_client()] for route in result.best.routes()]
    return [node for trip in trips if trip for node in (*trip, 0)]


def model(problem: Problem) -> pyvrp.ProblemData:
    """Of the one instance of `problem`."""
    n = int(problem.n_nodes[0])
    d, gain, required = problem.distances(0), problem.gain[0, :n], problem.required[0, :n]
    scale = scale_of(d, gain, problem)
    legs = np.rint(scale * d).astype(np.int64)
    if problem.beta > 0:
        prize = np.rint(scale * gain / problem.beta).astype(np.int64)
    else:
        prize = np.rint(MILLION * gain / max(float(gain.max()), 1e-30)).astype(np.int64)
    weight, capacity = loads(problem, n)
    limits: dict[str, Any] = {}
    if capacity is not None:
        limits["capacity"] = [capacity]
    if np.isfinite(problem.max_length[0]):
        limits["max_distance"] = int(np.floor(scale * problem.max_length[0]))
    clock, depot = times(problem, d, scale)
    clients = [
        pyvrp.Client(
            location=j, prize=0 if required[j] else int(prize[j]), required=bool(required[j]),
            **({"delivery": [int(weight[j])]} if capacity is not None else {}), **clock["clients"][j],
        )
        for j in range(1, n)
    ]  # fmt: skip
    vehicle = pyvrp.VehicleType(
        num_available=n - 1 if problem.multi else 1, unit_distance_cost=int(problem.beta > 0), **limits
    )
    return pyvrp.ProblemData(
        [pyvrp.Location(x=0, y=0) for _ in range(n)], clients, [pyvrp.Depot(location=0, **depot)], [vehicle],
        [legs], [clock["legs"]],
    )  # fmt: skip


def scale_of(d: Any, gain: Any, problem: Problem) -> float:
    """1 where all is whole already, and otherwise a million to the side of the box."""
    worth = gain / problem.beta if problem.beta > 0 else gain
    whole = all((values == np.rint(values)).all() for values in (d, worth))
    return 1.0 if whole and problem.windows is None and problem.beta > 0 else MILLION / problem.side


def loads(problem: Problem, n: int) -> tuple[Any, int | None]:
    """Weights rounded up and the capacity rounded down: what fits here fits there."""
    weight, capacity = problem.weight[0, :n], float(problem.capacity[0])
    if not np.isfinite(capacity):
        return weight, None
    if (weight == np.rint(weight)).all():
        return weight.astype(np.int64), int(np.floor(capacity))
    unit = MILLION / problem.unit
    return np.ceil(unit * weight).astype(np.int64), int(np.floor(unit * capacity))


def times(problem: Problem, d: Any, scale: float) -> tuple[dict[str, Any], dict[str, int]]:
    """Durations rounded up, windows inwards, in the scale of the lengths; without windows time stands still."""
    n = len(d)
    if problem.windows is None or problem.service is None or problem.speed is None:
        return {"legs": np.zeros((n, n), np.int64), "clients": [{}] * n}, {}
    whole = all((x == np.rint(x)).all() for x in (d / problem.speed[0], problem.windows[0], problem.service[0]))
    scale = 1.0 if whole else scale
    longest = 2**40
    legs = np.ceil(scale * d / problem.speed[0] - 1e-6).astype(np.int64)
    early = np.ceil(scale * problem.windows[0, :n, 0] - 1e-6).astype(np.int64)
    late = np.floor(np.minimum(scale * problem.windows[0, :n, 1], longest) + 1e-6).astype(np.int64)
    late = np.maximum(early, late)
    service = np.ceil(scale * problem.service[0, :n] - 1e-6).astype(np.int64)
    clients = [
        {"tw_early": int(early[j]), "tw_late": int(late[j]), "service_duration": int(service[j])} for j in range(n)
    ]
    return {"legs": legs, "clients": clients}, {"tw_early": int(early[0]), "tw_late": int(late[0])}
