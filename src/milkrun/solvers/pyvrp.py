"""PyVRP as a back end of `solve`: hybrid search for every problem that has trips, prizes, loads, limits or windows."""

from __future__ import annotations

from typing import Any

from milkrun.core.errors import missing_extra
from milkrun.solvers.integers import Whole, complete, in_whole_numbers, without_choice
from milkrun.solvers.problem import Problem

PATIENCE = 100  # iterations without improvement, for each customer, after which the search stops


def solve_one(
    problem: Problem, b: int, time_limit: float, seed: int, iterations: int | None = None
) -> tuple[list[int], bool]:
    """Actions for instance b, and whether they are proven optimal (only if there is no choice).

    The search ends after `time_limit` seconds, or after `iterations` if given, or earlier without improvement.
    """
    try:
        from pyvrp.stop import MaxIterations, MaxRuntime, MultipleCriteria, NoImprovement
    except ImportError:
        raise missing_extra("pyvrp", "solvers") from None
    whole = in_whole_numbers(problem, b)
    if (answer := without_choice(problem, b, whole)) is not None:
        return answer
    customers = len(whole.nodes) - 1
    end = MaxRuntime(time_limit) if iterations is None else MaxIterations(iterations)
    stop = MultipleCriteria([end, NoImprovement(PATIENCE * customers)])
    found = model_of(whole).solve(stop, seed=seed % 2**32, collect_stats=False, display=False).best
    # a search may end without a feasible plan; `complete` then adds the mandatory customers of dropped routes
    kept = [route for route in found.routes() if route.is_feasible()]
    trips = [[whole.nodes[1 + visit.idx] for visit in route if visit.is_client()] for route in kept]
    return complete(problem, b, trips), False


def model_of(whole: Whole) -> Any:
    """The PyVRP model of an instance: one vehicle for each trip, which leaves the depot at time 0."""
    from pyvrp import Model

    timed = whole.closes is not None
    model = Model()
    places = [model.add_location(0, 0) for _ in whole.nodes]
    for i, here in enumerate(places):
        for j, there in enumerate(places):
            leg = int(whole.dist[i, j])
            model.add_edge(here, there, leg, leg if timed else 0)
    depot = model.add_depot(places[0], **window_of(whole, 0))
    for j in range(1, len(places)):
        pickup = [int(load[j]) for load in whole.loads]
        required = bool(whole.required[j])
        prize = 0 if required else int(whole.prize[j])
        model.add_client(places[j], pickup=pickup, prize=prize, required=required, **window_of(whole, j))
    limit: dict[str, Any] = {} if whole.max_length is None else {"max_distance": whole.max_length}
    model.add_vehicle_type(
        whole.vehicles, whole.capacity, start_depot=depot, end_depot=depot, unit_distance_cost=whole.price, **limit
    )
    return model


def window_of(whole: Whole, j: int) -> dict[str, Any]:
    """The window and the service time of a node; empty without time windows."""
    if whole.opens is None or whole.closes is None or whole.service is None:
        return {}
    return {"tw_early": int(whole.opens[j]), "tw_late": int(whole.closes[j]), "service_duration": int(whole.service[j])}
