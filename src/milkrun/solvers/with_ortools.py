"""OR-Tools: guided local search of its routing library, for tours and trips that serve everybody."""

from __future__ import annotations

import numpy as np
from ortools.constraint_solver import pywrapcp
from ortools.constraint_solver import routing_enums_pb2 as enums

from milkrun.solvers.problem import Problem

MILLION = 1_000_000


def solve(problem: Problem, time_limit: float, seed: int, iterations: int | None) -> list[int] | None:
    """The plan for the one instance of `problem`, None if none was found. The search has no dice: `seed` is unused."""
    n = int(problem.n_nodes[0])
    d = problem.distances(0)
    scale = 1.0 if (d == np.rint(d)).all() else MILLION / problem.side
    vehicles = n - 1 if problem.multi else 1
    manager = pywrapcp.RoutingIndexManager(n, vehicles, 0)
    routing = pywrapcp.RoutingModel(manager)
    legs = routing.RegisterTransitMatrix(np.rint(scale * d).astype(np.int64).tolist())
    routing.SetArcCostEvaluatorOfAllVehicles(legs)
    if np.isfinite(problem.capacity[0]):
        units = routing.RegisterUnaryTransitVector(problem.weight[0, :n].astype(np.int64).tolist())
        routing.AddDimension(units, 0, int(problem.capacity[0]), True, "load")
    if np.isfinite(problem.max_length[0]):
        routing.AddDimension(legs, 0, int(np.floor(scale * problem.max_length[0])), True, "length")

    search = pywrapcp.DefaultRoutingSearchParameters()
    search.first_solution_strategy = (
        enums.FirstSolutionStrategy.SAVINGS if problem.multi else enums.FirstSolutionStrategy.PATH_CHEAPEST_ARC
    )
    search.local_search_metaheuristic = enums.LocalSearchMetaheuristic.GUIDED_LOCAL_SEARCH
    search.time_limit.FromMilliseconds(max(1, round(1000 * time_limit)))
    if iterations is not None:
        search.solution_limit = iterations
    found = routing.SolveWithParameters(search)
    if found is None:
        return None
    plan: list[int] = []
    for vehicle in range(vehicles):
        index = found.Value(routing.NextVar(routing.Start(vehicle)))
        trip = []
        while not routing.IsEnd(index):
            trip.append(manager.IndexToNode(index))
            index = found.Value(routing.NextVar(index))
        plan += [*trip, 0] if trip else []
    return plan
