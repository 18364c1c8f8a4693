"""OR-Tools' routing library as a back end of `solve`: cheapest insertion, then guided local search."""

from __future__ import annotations

from typing import Any

from milkrun.core.errors import missing_extra
from milkrun.solvers.integers import FAR, Whole, complete, in_whole_numbers, without_choice
from milkrun.solvers.problem import Problem

LONGEST = 10**12  # milliseconds that OR-Tools takes
BRANCHES, BRANCHES_AT_LEAST = 100, 10_000


def solve_one(
    problem: Problem, b: int, time_limit: float, seed: int, iterations: int | None = None
) -> tuple[list[int], bool]:
    """Actions for instance b, and whether they are proven optimal (only if there is no choice).

    Guided local search is deterministic, so `seed` has no effect. The search ends after `time_limit` seconds, or after
    `iterations` solutions if given.
    """
    try:
        from ortools.constraint_solver import pywrapcp
        from ortools.constraint_solver import routing_enums_pb2 as enums
    except ImportError:
        raise missing_extra("ortools", "solvers") from None
    whole = in_whole_numbers(problem, b)
    if (answer := without_choice(problem, b, whole)) is not None:
        return answer
    customers = len(whole.nodes) - 1
    manager = pywrapcp.RoutingIndexManager(customers + 1, whole.vehicles, 0)
    routing = pywrapcp.RoutingModel(manager)
    state_rules(routing, manager, whole)
    search = pywrapcp.DefaultRoutingSearchParameters()
    search.first_solution_strategy = enums.FirstSolutionStrategy.PARALLEL_CHEAPEST_INSERTION
    search.local_search_metaheuristic = enums.LocalSearchMetaheuristic.GUIDED_LOCAL_SEARCH
    limit_search(routing, search, time_limit, iterations)
    found = routing.SolveWithParameters(search)
    trips = [] if found is None else [trip_of(routing, manager, found, whole, k) for k in range(whole.vehicles)]
    return complete(problem, b, trips), False


def limit_search(routing: Any, search: Any, seconds: float, solutions: int | None) -> None:
    """Limits a search by solutions if given, else by seconds.

    Branches are limited too, since a search without further solutions keeps branching, about ten times for a solution.
    """
    if solutions is None:
        search.time_limit.FromMilliseconds(max(1, min(round(1000 * seconds), LONGEST)))
        return
    search.solution_limit = solutions
    routing.AddSearchMonitor(routing.solver().BranchesLimit(BRANCHES * solutions + BRANCHES_AT_LEAST))


def state_rules(routing: Any, manager: Any, whole: Whole) -> None:
    """Adds lengths, limits, windows and optional customers to the model."""
    leg = routing.RegisterTransitMatrix((whole.price * whole.dist).tolist())
    routing.SetArcCostEvaluatorOfAllVehicles(leg)
    for k, (load, capacity) in enumerate(zip(whole.loads, whole.capacity)):
        weight = routing.RegisterUnaryTransitVector(load.tolist())
        routing.AddDimension(weight, 0, capacity, True, f"load {k}")
    if whole.max_length is not None:
        way = routing.RegisterTransitMatrix(whole.dist.tolist())
        routing.AddDimension(way, 0, whole.max_length, True, "length")
    if whole.opens is not None and whole.closes is not None and whole.service is not None:
        time = routing.RegisterTransitMatrix((whole.dist + whole.service[:, None]).tolist())
        routing.AddDimension(time, FAR, int(whole.closes[0]), True, "time")
        clock = routing.GetDimensionOrDie("time")
        for j in range(1, len(whole.nodes)):
            clock.CumulVar(manager.NodeToIndex(j)).SetRange(int(whole.opens[j]), int(whole.closes[j]))
    for j in range(1, len(whole.nodes)):
        if not whole.required[j]:
            routing.AddDisjunction([manager.NodeToIndex(j)], int(whole.prize[j]))


def trip_of(routing: Any, manager: Any, found: Any, whole: Whole, vehicle: int) -> list[int]:
    """The customers of one vehicle in order."""
    trip: list[int] = []
    index = found.Value(routing.NextVar(routing.Start(vehicle)))
    while not routing.IsEnd(index):
        trip.append(whole.nodes[manager.IndexToNode(index)])
        index = found.Value(routing.NextVar(index))
    return trip
