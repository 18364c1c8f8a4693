"""OR-Tools' routing library as a back end of `solve`: cheapest insertion, then guided local search until time is up."""

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
    """Actions for instance b and whether nothing is better, which is known only where there is nothing to choose.

    Guided local search draws no random numbers, so `seed` has no effect. The search ends at `time_limit` seconds or,
    if `iterations` are given, after so many solutions, whatever the time.
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
    """Ends a search after so many solutions, if given, else so many seconds. A search that finds none any more makes
    branches still, some ten to a solution."""
    if solutions is None:
        search.time_limit.FromMilliseconds(max(1, min(round(1000 * seconds), LONGEST)))
        return
    search.solution_limit = solutions
    routing.AddSearchMonitor(routing.solver().BranchesLimit(BRANCHES * solutions + BRANCHES_AT_LEAST))


def state_rules(routing: Any, manager: Any, whole: Whole) -> None:
    """Length, limits, windows and who may be left out."""
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
