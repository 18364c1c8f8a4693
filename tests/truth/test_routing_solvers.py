"""Solutions of PyVRP and OR-Tools replay in the worlds: legal at every step, at the solver's cost, never below the
optimum.

Instances are integer distance matrices, so nothing is rounded and costs must be equal.
"""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.routing.generators import get_generator
from milkrun.routing.tasks import CVRP, TSP
from milkrun.routing.tasks.distances import distance_matrix
from milkrun.solvers.exact import exact_cvrp, held_karp

SCALE = 10_000

pytestmark = pytest.mark.truth


def whole_distances(locs):
    return np.round(SCALE * distance_matrix(locs)).astype(np.int64)


def cvrp_instance(n, index, slack=None):
    """An instance of our generator, in whole ten-thousandths; trips are limited to `slack` times the longest way there
    and back."""
    made = get_generator("cvrp", num_loc=n).generate(1, seed=11, first=index)
    locs = np.concatenate([made["depot"][:, None], made["locs"]], axis=1)
    demand = np.pad(made["demand_units"], ((0, 0), (1, 0)))
    d = whole_distances(locs)
    limit = {} if slack is None else {"max_length": np.floor(slack * (d[:, 0] + d[:, :, 0]).max(axis=1))}
    return {"dist": d, "demand_units": demand, "capacity": made["capacity"], **limit}


def tsp_instance(n, index, symmetric=True):
    """As above; or independent random integers, asymmetric."""
    if symmetric:
        return {"dist": whole_distances(get_generator("tsp", num_loc=n).generate(1, seed=12, first=index)["locs"])}
    d = np.random.default_rng([n, index]).integers(1, SCALE, (1, n, n))
    return {"dist": d * (1 - np.eye(n, dtype=np.int64))}


def replay(world_id, instance, actions, **options):
    """The cost of these actions; an illegal one raises, and only the last one ends the episode."""
    n = instance["dist"].shape[1] - (world_id == "milkrun/CVRP-v0")
    settings = {"metric": "matrix", "illegal": "raise", "autoreset": "disabled", **options}
    world = milkrun.make(world_id, num_envs=1, num_loc=n, **settings)
    world.reset(instance=instance)
    paid = 0.0
    for action in actions:
        assert not world.terminated[0]
        world.step(np.array([action]))
        paid -= float(world.reward[0])
    assert world.terminated[0]
    assert world.solution()[0].tolist() == list(actions)
    assert world.tour_length[0] == paid
    return paid


def solve_with_pyvrp(instance, iterations):
    """Cost and actions: each route's customers (PyVRP counts clients from 0), then the depot."""
    pyvrp = pytest.importorskip("pyvrp", reason="needs the extra 'solvers'")
    from pyvrp.stop import MaxIterations

    dist, demand = instance["dist"][0], instance["demand_units"][0]
    model = pyvrp.Model()
    places = [model.add_location(x=0, y=0) for _ in demand]
    model.add_depot(places[0])
    for place, units in zip(places[1:], demand[1:], strict=True):
        model.add_client(place, delivery=int(units))
    limit = {"max_distance": int(instance["max_length"][0])} if "max_length" in instance else {}
    model.add_vehicle_type(num_available=len(demand) - 1, capacity=int(instance["capacity"][0]), **limit)
    for i, j in np.ndindex(dist.shape):
        model.add_edge(places[i], places[j], distance=int(dist[i, j]))
    result = model.solve(stop=MaxIterations(iterations), seed=1, display=False)
    assert result.is_feasible()
    routes = [[stop.idx + 1 for stop in route if stop.is_client()] for route in result.best.routes()]
    return result.cost(), [node for route in routes for node in (*route, 0)]


def solve_with_ortools(dist):
    """Cost and tour from node 0."""
    pywrapcp = pytest.importorskip("ortools.constraint_solver.pywrapcp", reason="needs the extra 'solvers'")
    from ortools.constraint_solver import routing_enums_pb2 as enums

    manager = pywrapcp.RoutingIndexManager(len(dist), 1, 0)
    routing = pywrapcp.RoutingModel(manager)
    leg = routing.RegisterTransitMatrix(dist.tolist())
    routing.SetArcCostEvaluatorOfAllVehicles(leg)
    search = pywrapcp.DefaultRoutingSearchParameters()
    search.first_solution_strategy = enums.FirstSolutionStrategy.PATH_CHEAPEST_ARC
    found = routing.SolveWithParameters(search)
    tour, index = [], routing.Start(0)
    while not routing.IsEnd(index):
        tour.append(manager.IndexToNode(index))
        index = found.Value(routing.NextVar(index))
    return found.ObjectiveValue(), tour


@pytest.mark.parametrize("slack", [None, 1.1, 1.0])
def test_pyvrp_plan_replays_to_its_cost(slack):
    """CVRP-20 without and with a limit of the trips."""
    for index in range(5):
        instance = cvrp_instance(20, index, slack)
        cost, actions = solve_with_pyvrp(instance, iterations=100)
        assert replay("milkrun/CVRP-v0", instance, actions) == cost
        assert CVRP.get_costs(instance, np.array([actions]))[0].item() == cost


@pytest.mark.parametrize("slack", [None, 1.1])
@pytest.mark.parametrize("n", [6, 9, 12])
def test_pyvrp_is_never_better_than_the_optimum(n, slack):
    """PyVRP reaches the optimum on such small instances; the exact plan also replays to it."""
    for index in range(2):
        instance = cvrp_instance(n, index, slack)
        limits = instance["capacity"][0], instance.get("max_length", [np.inf])[0]
        optimum, plan = exact_cvrp(instance["dist"][0], instance["demand_units"][0], *limits)
        cost, actions = solve_with_pyvrp(instance, iterations=300)
        assert cost == optimum
        assert replay("milkrun/CVRP-v0", instance, actions) == replay("milkrun/CVRP-v0", instance, plan) == optimum


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("n", [5, 12, 20, 50])
def test_ortools_tour_replays_to_its_cost(n, symmetric):
    """From the depot, and with a free start from any node; up to 12 nodes never better than the optimum."""
    for index in range(3):
        instance = tsp_instance(n, index, symmetric)
        cost, tour = solve_with_ortools(instance["dist"][0])
        assert replay("milkrun/TSP-v0", instance, [*tour[1:], 0]) == cost
        for first in (0, n // 2, n - 1):
            assert replay("milkrun/TSP-v0", instance, tour[first:] + tour[:first], start="free") == cost
        assert TSP.get_costs(instance, np.array([tour]))[0].item() == cost
        if n <= 12:
            optimum, best = held_karp(instance["dist"][0])
            assert replay("milkrun/TSP-v0", instance, [*best[1:], 0]) == optimum <= cost
