"""The dial-a-ride solvers: insertion compared with a plain scan and published runs, searches with the optima."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadSolution, ConfigError, MissingExtra
from milkrun.routing.darp.windows import TIME_EPS
from milkrun.routing.instances import DARPInstance
from milkrun.routing.tasks import DARPProblem
from milkrun.solvers import solve
from milkrun.solvers.darp import best_insertion, improve, insertion, insertion_batch, price_routes, solve_ortools
from milkrun.solvers.darp.ortools import Model
from tests.solvers.darp_cases import BEST, drawn, file, table, three_requests

LISTED = table("insertion")
ORDERS = ("cheapest", "deadline")


def scanned(instance, order, speed=1.0):
    """Insertion by trying every position of every open request, with the checker's schedule for each route."""
    d, routes = instance.distances(), [[] for _ in instance.capacity]

    def length(route):
        return d[[0, *route], [*route, 0]].sum()

    def fits(route, seats):
        loads = np.cumsum(instance.demand[route])
        return loads.max() <= seats and DARPProblem.schedule(instance, route, TIME_EPS, speed=speed) is not None

    def best_of(requests):
        best, chosen = np.inf, None
        for r in requests:
            for k, route in enumerate(routes):
                for a in range(len(route) + 1):
                    for b in range(a, len(route) + 1):
                        longer = [*route[:a], 2 * r + 1, *route[a:b], 2 * r + 2, *route[b:]]
                        cost = length(longer) - length(route)
                        if cost < best - 1e-9 and fits(longer, instance.capacity[k]):
                            best, chosen = cost, (r, k, longer)
        return chosen

    def soonest(r):
        closes = instance.time_windows
        ride = instance.service_time[2 * r + 1] + d[2 * r + 1, 2 * r + 2] / speed
        return min(closes[2 * r + 1], closes[2 * r + 2] - ride)

    open_requests = sorted(range(instance.num_requests), key=soonest)
    if order == "deadline":
        for r in open_requests:
            if found := best_of([r]):
                routes[found[1]] = found[2]
        return routes
    open_requests.sort()
    while found := best_of(open_requests):
        open_requests.remove(found[0])
        routes[found[1]] = found[2]
    return routes


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("crooked", [False, True])
def test_insertion_is_the_plain_scan(order, crooked):
    """Node by node on twelve random instances: any fleet, with and without ride limits, asymmetric distances."""
    for seed in range(12):
        instance, speed = drawn(seed, 6, 1 + seed % 3, crooked=crooked), (1.0, 1.5)[seed % 2]
        assert insertion(instance, order, speed) == scanned(instance, order, speed), instance.name


def test_ties_go_to_the_first():
    """Two equal requests and two equal vehicles: request 0 first, in vehicle 0, and request 1 is inserted before it."""
    instance = three_requests(2)
    twins = replace(
        instance,
        locs=np.array([[0, 0], [3, 0], [10, 0], [3, 0], [10, 0]], np.float32),
        demand=[0, 1, -1, 1, -1],
        time_windows=[120.0, 99, 99, 99, 99],
        window_open=[0.0] * 5,
        service_time=[0.0] * 5,
        max_ride_time=[25.0] * 2,
    )
    assert insertion(twins, "cheapest") == [[3, 1, 4, 2], []]
    assert insertion(twins, "deadline") == [[3, 1, 4, 2], []]


@pytest.mark.truth
@pytest.mark.parametrize("line", LISTED, ids=[line["name"] for line in LISTED])
def test_insertion_as_listed(line):
    """Distance and unserved requests on the 24 files equal those of an independent program, in both orders."""
    instance = file(line["name"])
    for order in ORDERS:
        plan = price_routes(instance, insertion(instance, order))
        assert plan.distance == pytest.approx(float(line[f"{order}_distance"]), abs=0.01)
        assert plan.unserved == int(line[f"{order}_unserved"])
        assert plan.unserved or plan.cost >= BEST[line["name"]] - 0.01


@pytest.mark.truth
@pytest.mark.parametrize("name", ["a2-16", "b3-18", "a4-48"])
def test_cheapest_insertion_is_the_first_solution_of_ortools(name):
    """PARALLEL_CHEAPEST_INSERTION, vehicle by vehicle, stopped at its first solution."""
    pytest.importorskip("ortools.constraint_solver.pywrapcp", reason="needs the extra 'solvers'")
    instance = file(name)
    assert Model(instance, 1000, 100.0, 1.0).search(30, None, solutions=1) == insertion(instance, "cheapest")


def batch_of(instances, rows, **config):
    """The fields of a world of `instances` that insertion_batch reads, padded to the largest."""
    nodes, fleet = max(len(i.locs) for i in instances), max(i.num_agents for i in instances)

    def padded(name, size):
        arrays = [np.asarray(getattr(i, name)) for i in instances]
        return np.stack([np.pad(a, [(0, size - len(a))] + [(0, 0)] * (a.ndim - 1)) for a in arrays])

    each = {name: padded(name, nodes) for name in ("locs", "demand", "time_windows", "window_open", "service_time")}
    return SimpleNamespace(
        **each,
        capacity=padded("capacity", fleet),
        max_ride_time=padded("max_ride_time", nodes // 2),
        max_route_duration=np.array([[i.max_route_duration] for i in instances]),
        n_nodes=np.array([len(i.locs) for i in instances], np.int32),
        instance_row=np.array(rows, np.int32),
        config=SimpleNamespace(**{"metric": "euclid", "speed": 1.0, "max_onboard": 8, **config}),
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_a_batch_gets_the_routes_of_its_instances(threads):
    """Instances of three sizes and fleets in one padded batch, every row with its own instance."""
    instances = [drawn(seed, 4 + seed % 3, 1 + seed % 3) for seed in range(9)]
    rows = [0, 8, 8, 3, 1, 1, 7, 2, 6, 5]  # no row plays 4
    for order in ORDERS:
        found = insertion_batch(batch_of(instances, rows), order, threads=threads)
        for routes, k in zip(found, rows, strict=True):
            alone = insertion(instances[k], order)
            assert routes == alone + [[]] * (3 - len(alone))


def test_a_batch_keeps_the_limit_of_requests_aboard():
    """Of the equal requests of `test_ties_go_to_the_first` only one at a time with `max_onboard` 1."""
    twins = replace(
        three_requests(1),
        locs=np.array([[0, 0], [3, 0], [10, 0], [3, 0], [10, 0]], np.float32),
        demand=[0, 1, -1, 1, -1],
        time_windows=[120.0, 99, 99, 99, 99],
        window_open=[0.0] * 5,
        service_time=[0.0] * 5,
        max_ride_time=[25.0] * 2,
    )
    assert insertion_batch(batch_of([twins], [0])) == [[[3, 1, 4, 2]]]
    assert insertion_batch(batch_of([twins], [0], max_onboard=1)) == [[[3, 4, 1, 2]]]


def test_a_world_drives_the_routes_of_its_batch():
    """32 rows of the world's own law, the last 12 with instances of others: every action is legal, the return is the
    cost."""
    world = milkrun.make("milkrun/DARP-v0", num_envs=32, seed=7, autoreset="disabled", illegal="raise")
    world.reset()
    names = (
        "locs",
        "demand",
        "capacity",
        "time_windows",
        "window_open",
        "service_time",
        "max_ride_time",
        "max_route_duration",
    )
    fields = {name: np.array(getattr(world, name))[:20] for name in names}
    rows = np.append(np.arange(20), np.arange(12) * 19 % 20).astype(np.int32)
    world.reset(instance={**fields, "instance_row": rows})
    found = insertion_batch(world, "deadline")
    plans = [DARPProblem.routes_to_actions(routes, 16, "node") for routes in found]
    for turn in range(max(map(len, plans))):
        live = np.array([b for b, plan in enumerate(plans) if turn < len(plan)])
        world.step(np.array([plans[b][turn] for b in live]), rows=live)
    for b, routes in enumerate(found):
        one = DARPInstance(name=f"row {b}", **{name: array[rows[b]] for name, array in fields.items()})
        assert routes == insertion(one, "deadline")
        assert -world.objective[b] == pytest.approx(price_routes(one, routes).cost, rel=1e-6)
    assert world.terminated.all()


def test_rows_of_an_instance_share_no_list():
    """Changing the routes of one row leaves the others unchanged."""
    one, two = insertion_batch(batch_of([three_requests(1)], [0, 0]))
    one[0].clear()
    assert two[0]


def test_the_search_is_deterministic_and_depends_on_the_seed():
    """Same seed and iterations, same routes, for any time; three other seeds do not all give these routes."""
    instance = drawn(6, 24, 5)
    first = improve(instance, iterations=250, seed=3)
    assert improve(instance, iterations=250, seed=3, seconds=1e-9) == first
    few = [improve(instance, iterations=10, seed=seed).routes for seed in (3, 4, 5, 6)]
    assert any(routes != few[0] for routes in few)


def test_the_search_never_returns_worse_than_its_start():
    """From a random plan, from the empty plan, and from the best plan, which does not change."""
    for seed in range(6):
        instance = drawn(seed, 10, 3)
        start = best_insertion(instance)
        for routes in (start.routes, []):
            plan = improve(instance, routes, iterations=5, seed=seed)
            assert plan.cost <= price_routes(instance, routes).cost
            assert plan == price_routes(instance, plan.routes)
    best = three_requests(1)
    assert improve(best, [[3, 1, 4, 2, 5, 6]], iterations=50).routes == [[3, 1, 4, 2, 5, 6]]


def test_the_search_serves_requests_left_out_by_insertion():
    """Over ten random instances fewer requests stay unserved than after insertion, at a penalty of 200."""
    instances = [drawn(seed, 10, 2) for seed in range(10)]
    before = [best_insertion(instance) for instance in instances]
    after = [improve(instance, iterations=500) for instance in instances]
    assert sum(plan.unserved for plan in after) < sum(plan.unserved for plan in before)
    assert all(b.cost <= a.cost for a, b in zip(before, after, strict=True))


def test_the_search_supports_detours_that_are_shortcuts():
    """With random distances, a route may need a stop to be in time; removals must check it."""
    for seed in range(12):
        instance = drawn(seed, 9, 2, crooked=True)
        plan = improve(instance, iterations=400, seed=seed)
        assert plan == price_routes(instance, plan.routes)
        assert plan.cost <= best_insertion(instance).cost


def test_the_search_respects_the_penalty():
    """With a penalty of 0 no request is served, also from a plan that serves all."""
    plan = improve(three_requests(1), [[3, 1, 4, 2, 5, 6]], iterations=200, penalty_unvisited=0.0)
    assert (plan.routes, plan.cost) == ([[]], 0.0)


@pytest.mark.truth
@pytest.mark.parametrize("name", ["a2-16", "b4-16", "a4-32"])
def test_the_search_comes_close_to_the_published_best(name):
    """All served, within 5 % after 5000 iterations, and not below the best."""
    plan = improve(file(name), iterations=5000)
    assert plan.unserved == 0
    assert BEST[name] - 0.01 <= plan.cost <= 1.05 * BEST[name]


@pytest.mark.truth
@pytest.mark.long
def test_ortools_comes_close_to_the_published_best():
    """b4-32 after 2000 solutions: all served, within 5 %, not below the best."""
    pytest.importorskip("ortools.constraint_solver.pywrapcp", reason="needs the extra 'solvers'")
    plan = solve_ortools(file("b4-32"), iterations=2000)
    assert plan.unserved == 0
    assert BEST["b4-32"] - 0.01 <= plan.cost <= 1.05 * BEST["b4-32"]


def test_ortools_never_returns_worse_than_its_start():
    """For any time limit, also at a resolution of half a time unit."""
    pytest.importorskip("ortools.constraint_solver.pywrapcp", reason="needs the extra 'solvers'")
    for seed in range(6):
        instance = drawn(seed, 8, 2)
        for scale in (2, 1000):
            plan = solve_ortools(instance, 0.01, scale=scale)
            assert plan.cost <= best_insertion(instance).cost
            assert plan == price_routes(instance, plan.routes)


@pytest.mark.parametrize("method", ["insertion", "improve", "ortools"])
def test_no_method_is_worse_than_the_empty_plan(method):
    """16 unserved requests of a2-16 at .1 a node cost 3.2; also OR-Tools without time for a better solution."""
    instance = file("a2-16")
    more = {} if method == "insertion" else {"iterations": 5}
    for rule in (None, "deadline") if method == "insertion" else (None,):
        found = solve("DARP", instance, method, penalty_unvisited=0.1, rule=rule, **more)
        assert found.cost[0] == pytest.approx(3.2)
        assert not found.actions.any()


def test_ortools_without_a_warm_start():
    """Its own first solution and the search find the best plan of three requests."""
    pytest.importorskip("ortools.constraint_solver.pywrapcp", reason="needs the extra 'solvers'")
    assert solve_ortools(three_requests(2), warm_start=False, iterations=300).cost == pytest.approx(41.032918, abs=1e-6)


def test_without_the_package_the_extra_is_named(monkeypatch):
    """pip install -e ".[solvers]"."""
    monkeypatch.setitem(sys.modules, "ortools.constraint_solver", None)
    with pytest.raises(MissingExtra, match=r"ortools.*\.\[solvers\]"):
        solve_ortools(three_requests(1), iterations=1)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda i: insertion(i, "soonest"), ConfigError, "'soonest'.*'cheapest' and 'deadline'"),
        (lambda i: insertion(i, speed=0.0), ConfigError, "speed is 0.0"),
        (lambda i: improve(i, seconds=0), ConfigError, "seconds is 0"),
        (lambda i: improve(i, iterations=0), ConfigError, "iterations is 0"),
        (lambda i: improve(i, seed=-1), ConfigError, "seed is -1"),
        (lambda i: improve(i, [[2, 1]]), BadSolution, "three.*precedence"),
        (lambda i: improve(i, [[], [1, 2]]), BadSolution, "three.*fleet"),
        (lambda i: solve_ortools(i, seconds=-1), ConfigError, "seconds is -1"),
        (lambda i: solve_ortools(i, scale=0), ConfigError, "scale is 0"),
        (lambda i: solve_ortools(i, scale=10**15), ConfigError, "scale=1000000000000000 numbers reach"),
        (lambda i: insertion_batch(SimpleNamespace(locs=i.locs)), ConfigError, "needs the rule 'classic'"),
    ],
)
def test_invalid_calls_are_refused(call, error, words):
    """Each message has the given value."""
    with pytest.raises(error, match=words):
        call(three_requests(1))
