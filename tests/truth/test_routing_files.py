"""Published solutions of TSPLIB and CVRPLIB replay to their published value, to the last digit, in world and
checker."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from milkrun.routing.cvrp import CVRP
from milkrun.routing.instances import read, read_solution, replay, write, write_solution
from milkrun.routing.tasks.distances import distance_matrix
from milkrun.solvers import solve
from tests.published import published_file, published_files

pytestmark = pytest.mark.truth

TSPLIB = {
    "a280": 2579,
    "att48": 10628,
    "bayg29": 1610,
    "berlin52": 7542,
    "ch150": 6528,
    "eil101": 629,
    "eil51": 426,
    "fri26": 937,
    "gr96": 55209,
    "kroA100": 21282,
    "lin105": 14379,
    "pr1002": 259045,
    "pr76": 108159,
    "rd100": 7910,
    "st70": 675,
    "ulysses16": 6859,
}
ROUNDED = {
    "A-n32-k5": 784,
    "B-n31-k5": 672,
    "E-n13-k4": 247,
    "F-n72-k4": 237,
    "M-n101-k10": 820,
    "P-n16-k8": 450,
    "X-n101-k25": 27591,
    "X-n110-k13": 14971,
    "X-n120-k6": 13332,
    "X-n129-k18": 28940,
    "X-n139-k10": 13590,
    "X-n148-k46": 43448,
    "X-n157-k13": 16876,
    "X-n167-k10": 20557,
    "X-n176-k26": 47812,
    "X-n186-k15": 24145,
    "X-n195-k51": 44225,
    "X-n204-k19": 19565,
    "X-n303-k21": 21736,
    "X-n502-k39": 69226,
    "X-n1001-k43": 72355,
}
LARGER = {"tsp225": 3916}
"""In the folder given by MILKRUN_DATA."""
VRPB = {"X-n536-50-k49": 54534, "X-n561-66-k28": 34343}


def tsplib(name):
    """Instance and optimal tour."""
    tour = read_solution(published_file(f"routing/tsplib/{name}.opt.tour")).routes[0]
    return read(published_file(f"routing/tsplib/{name}.tsp")), tour


def cvrplib(name, folder="cvrplib"):
    """Instance and published solution."""
    stem = f"routing/{folder}/{name}"
    return read(published_file(f"{stem}.vrp")), read_solution(published_file(f"{stem}.sol"))


def with_fields(instance, **fields):
    return dataclasses.replace(instance, fields={**instance.fields, **fields})


def play(world, plans):
    """Plays each plan in its own row; returns the costs."""
    paid = np.zeros(len(plans))
    for turn in range(max(map(len, plans))):
        live = np.array([row for row, plan in enumerate(plans) if turn < len(plan)])
        assert not world.terminated[live].any()
        world.step(np.array([plans[row][turn] for row in live]), rows=live)
        paid[live] -= world.reward[live]
    assert world.terminated.all()
    return paid


@pytest.mark.parametrize(("name", "optimum"), (TSPLIB | LARGER).items())
def test_tsplib_tour_replays(name, optimum):
    """In a world with a free start from the file's first node, in the checker, and in a world that starts at node 0."""
    instance, tour = tsplib(name)
    assert replay(instance, [tour]) == (optimum, True, None)
    start = tour.index(0)
    from_depot = instance.world(illegal="raise", autoreset="disabled")
    assert play(from_depot, [tour[start + 1 :] + tour[: start + 1]]) == from_depot.tour_length == optimum


@pytest.mark.parametrize("name", TSPLIB)
def test_a_tour_without_its_last_stop_is_refused(name):
    """World and checker refuse it, and also a tour that visits a node twice."""
    instance, tour = tsplib(name)
    assert replay(instance, [tour[:-1]]) == (np.inf, False, f"node {tour[-1]} is never visited")
    cost, valid, reason = replay(instance, [(*tour[:-1], tour[0])])
    assert (cost, valid, reason) == (np.inf, False, f"node {tour[0]} is visited 2 times")


@pytest.mark.parametrize(("name", "optimum"), ROUNDED.items())
def test_cvrplib_routes_replay(name, optimum):
    """With a capacity one unit below the largest load they do not."""
    instance, solution = cvrplib(name)
    assert replay(instance, solution) == (optimum, True, None)
    assert solution.cost == optimum
    fullest = max(instance.fields["demand_units"][list(route)].sum() for route in solution.routes)
    assert fullest <= instance.fields["capacity"]
    cost, valid, reason = replay(with_fields(instance, capacity=int(fullest) - 1), solution)
    assert (cost, valid) == (np.inf, False)
    assert f"carries {fullest}, capacity {fullest - 1}" in reason


def test_all_cvrplib_files_in_one_padded_batch():
    """20 files of 16 to 1001 nodes in one batch, each row of its own size."""
    names = [name for name in ROUNDED if name != "E-n13-k4"]
    instances, solutions = zip(*map(cvrplib, names), strict=True)
    plans = [[j for route in solution.routes for j in (*route, 0)] for solution in solutions]
    options = {"metric": "round", "illegal": "raise", "autoreset": "disabled"}
    world = CVRP.from_instances([instance.arrays() for instance in instances], **options)
    paid = play(world, plans)
    assert world.sizes["N"] == 1001
    assert paid.tolist() == world.tour_length.tolist() == [ROUNDED[name] for name in names]


def test_cmt6_replays_unrounded_within_its_trip_limit():
    """555.43; each of the 50 stops takes 10 of a trip's 200, and a limit just below the longest trip is broken."""
    instance, solution = cvrplib("CMT6")
    cost, valid, _ = replay(instance, solution)
    assert valid
    assert cost == pytest.approx(555.43, abs=0.005)
    assert (instance.service, instance.fields["max_length"], instance.metric) == (10, 200, "euclid")
    d = distance_matrix(instance.locs)
    walks = [[0, *route, 0] for route in solution.routes]
    longest = max(sum(d[i, j] for i, j in pairwise(walk)) + 10 * (len(walk) - 2) for walk in walks)
    assert longest <= 200
    shorter = with_fields(instance, max_length=longest - 0.01)
    assert replay(shorter, solution)[1] is False


def test_the_cost_of_a_solver_is_the_published_one():
    """Also of CMT6, which has 500 of service: the length of the routes, and the best known value within the
    iterations."""
    instance, _ = cvrplib("CMT6")
    found = solve("CVRP", instance, "pyvrp", iterations=300)
    assert found.cost[0] == instance.published(-found.cost[0])
    assert 555.42 < found.cost[0] < 560
    trips = np.split(found.actions[0], np.flatnonzero(found.actions[0] == 0))
    routes = [trip[trip > 0].tolist() for trip in trips if (trip > 0).any()]
    assert replay(instance, routes)[0] == pytest.approx(found.cost[0], rel=1e-6)


@pytest.mark.parametrize(("name", "optimum"), VRPB.items())
def test_vrpb_files_are_read(name, optimum):
    """The route lengths sum to the published value, linehaul comes first."""
    instance, solution = cvrplib(name, "vrpb")
    d = distance_matrix(instance.locs, "round")
    assert sum(d[i, j] for route in solution.routes for i, j in pairwise([0, *route, 0])) == optimum == instance.best
    out, back = instance.fields["linehaul"], instance.fields["backhaul"]
    for route in map(list, solution.routes):
        assert max(out[route].sum(), back[route].sum()) <= instance.fields["capacity"]
        assert (np.diff((back[route] > 0).astype(int)) >= 0).all()


@pytest.mark.parametrize(("name", "n"), [("br17", 17), ("ftv33", 34)])
def test_atsp_files_are_read(name, n):
    """The matrix of br17 has 3 from node 1 to 2 and 5 from 1 to 3; both files are asymmetric with an empty diagonal."""
    instance = read(published_file(f"routing/atsp/{name}.atsp"))
    assert (instance.kind, instance.n, instance.dist.shape) == ("ATSP", n, (n, n))
    assert not instance.dist.diagonal().any()
    assert not np.array_equal(instance.dist, instance.dist.T)
    if name == "br17":
        assert instance.dist[0, :6].tolist() == [0, 3, 5, 48, 48, 8]


def test_every_file_is_written_and_read_back_equal(tmp_path):
    """All kinds, and their solutions."""
    every = published_files("routing/*/*")
    files = [p for p in every if p.suffix in (".tsp", ".atsp", ".vrp", ".txt")]
    assert {read(p).kind for p in files} == {"TSP", "ATSP", "CVRP", "CVRPTW", "PCVRPTW", "VRPB"}
    for path in files:
        instance = read(path)
        write(instance, tmp_path / path.name)
        assert read(tmp_path / path.name) == instance, path.name
    for path in every:
        if path.suffix in (".sol", ".tour"):
            solution = read_solution(path)
            write_solution(tmp_path / path.name, solution.routes, solution.cost)
            assert read_solution(tmp_path / path.name) == solution, path.name
