"""Solvers of the TSP with drone: plans by hand, and independent enumerations."""

from __future__ import annotations

import dataclasses
from itertools import pairwise, permutations, product

import numpy as np
import pytest

from milkrun.core.errors import BadSolution, ConfigError, ShapeError
from milkrun.delivery.instances import EPS, Operation, TSPDInstance
from milkrun.delivery.tasks import tspd_cost
from milkrun.delivery.tspd import TSPD
from milkrun.solvers import solve
from milkrun.solvers.tspd import exact, partition, truck_only


def places(n, seed, **limits):
    return TSPDInstance.of_places(f"places {seed}", np.random.default_rng(seed).uniform(0, 100, (n, 2)), **limits)


def crooked(n, seed, restricted=False):
    """Independent random costs: they are asymmetric, and a detour may be a shortcut."""
    draw = np.random.default_rng(seed)
    off = 1 - np.eye(n)
    truck, drone = draw.integers(1, 30, (n, n)) * off, draw.integers(1, 20, (n, n)) * off
    free = np.zeros(n, np.bool_)
    limit = float(draw.integers(5, 30)) if restricted else np.inf
    no_visit, forbid = (draw.random(n) < 0.25, draw.random(n) < 0.2) if restricted else (free, free)
    return TSPDInstance(f"crooked {seed}", np.zeros((n, 2)), truck, drone, limit, no_visit, forbid)


def best_by_play(instance):
    """The least makespan over all sequences of DRIVE, LAUNCH and JOIN, played action by action."""
    n = instance.num_nodes
    everyone, best = frozenset(range(n)), [np.inf]

    def meets(launch, fly, w):
        flight = instance.c_drone[launch, fly] + instance.c_drone[fly, w]
        return not instance.forbid[w] and flight <= instance.max_fly + EPS

    def aboard(truck, covered, clock):
        if clock >= best[0]:
            return
        if covered == everyone:
            best[0] = min(best[0], clock + instance.c_truck[truck, 0])
        for j in everyone - covered:
            aboard(j, covered | {j}, clock + instance.c_truck[truck, j])
            if not (instance.no_visit[j] or instance.forbid[j] or instance.forbid[truck]):
                airborne(truck, covered | {j}, clock, truck, j, 0.0)

    def airborne(truck, covered, clock, launch, fly, leg):
        if clock + leg >= best[0]:
            return
        if meets(launch, fly, truck):
            join(truck, covered, clock, launch, fly, leg)
        for j in everyone - {fly, truck}:
            drive = leg + instance.c_truck[truck, j]
            if j not in covered:
                airborne(j, covered | {j}, clock, launch, fly, drive)
            elif meets(launch, fly, j):
                join(j, covered, clock, launch, fly, drive)

    def join(truck, covered, clock, launch, fly, leg):
        flight = instance.c_drone[launch, fly] + instance.c_drone[fly, truck]
        aboard(truck, covered, clock + max(leg, flight))

    aboard(0, frozenset({0}), 0.0)
    return best[0]


def best_split(instance, tour):
    """The least makespan over all splits of a tour, with a drone node or none in each piece."""
    stops, n = [*tour, 0], len(tour)
    best = np.inf
    for cuts in product((False, True), repeat=n - 1):
        ends = [0, *(p for p, cut in enumerate(cuts, start=1) if cut), n]
        choices = [[-1] if j == i + 1 else list(range(i + 1, j)) for i, j in pairwise(ends)]
        for drone in product(*choices):
            plan = []
            for (i, j), k in zip(pairwise(ends), drone, strict=True):
                by_truck = tuple(stops[p] for p in range(i + 1, j) if p != k)
                plan.append(Operation(stops[i], stops[j], -1 if k < 0 else stops[k], by_truck))
            try:
                best = min(best, tspd_cost(instance, plan))
            except BadSolution:
                continue
    return best


# --- exact


def test_truck_and_drone_go_in_opposite_directions():
    """Nodes 2 to the right and 4 to the left: the truck drives 4, the drone flies 8 at half the price."""
    line = TSPDInstance.of_places("line", [[0, 0], [2, 0], [-4, 0]])
    assert exact(line) == ((Operation(0, 0, 2, (1,)),), 4.0)


def test_without_range_the_truck_does_all():
    """12 there and back; with a range of 2 the drone takes the near node and 8 remain, with 4 the far one."""
    line = TSPDInstance.of_places("line", [[0, 0], [2, 0], [-4, 0]])
    assert [exact(dataclasses.replace(line, max_fly=x)).cost for x in (1.9, 2.0, 3.9, 4.0)] == [12, 8, 8, 4]


def test_the_truck_may_wait_where_it_is():
    """The far node is off the road and expensive to fly to from elsewhere: out, the drone there and back, home."""
    away = 50.0
    truck = np.array([[0, 1, away], [1, 0, away], [away, away, 0]])
    drone = np.array([[0, 1, 9], [1, 0, 3], [9, 2, 0]])
    no = np.zeros(3, np.bool_)
    instance = TSPDInstance("stub", np.zeros((3, 2)), truck, drone, np.inf, no, no)
    assert exact(instance) == ((Operation(0, 1), Operation(1, 1, 2), Operation(1, 0)), 7.0)


def test_meeting_at_a_covered_node():
    """The drone's only cheap path is 1 -> 2 -> 0 and 0 -> 3 -> 0: it meets the truck twice at the depot."""
    truck = np.array([[0, 1, 9, 9], [1, 0, 9, 9], [9, 9, 0, 9], [9, 9, 9, 0.0]])
    drone = np.full((4, 4), 9.0)
    np.fill_diagonal(drone, 0)
    drone[1, 2] = drone[2, 0] = drone[0, 3] = drone[3, 0] = 0.5
    no = np.zeros(4, np.bool_)
    instance = TSPDInstance("star", np.zeros((4, 2)), truck, drone, np.inf, no, no)
    found = exact(instance)
    assert found.cost == tspd_cost(instance, found.operations) == 3
    assert sorted(found.operations) == [(0, 0, 3, ()), (0, 1, -1, ()), (1, 0, 2, ())]


@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize(("n", "seeds"), [(2, 10), (3, 50), (4, 200), (5, 60)])
def test_exact_equals_playing_every_sequence(n, seeds, restricted):
    """Costs are integers, so they are exactly equal; the checker accepts the plan."""
    for seed in range(seeds):
        instance = crooked(n, seed, restricted)
        operations, cost = exact(instance)
        assert cost == best_by_play(instance), instance.name
        assert tspd_cost(instance, operations) == cost


def test_exact_equals_playing_every_sequence_in_the_plane():
    """Euclidean costs, with and without an active limit."""
    for seed, limit in product(range(4), (np.inf, 40.0)):
        instance = places(5, seed, max_fly=limit)
        assert exact(instance).cost == pytest.approx(best_by_play(instance), abs=1e-9)


def test_a_detour_may_return_to_the_meeting_node():
    """From the depot only node 1 is near, and node 2 only from 1; the only meeting node is 1: 0, 1, 2, 1, 0."""
    truck = np.array([[0, 1, 9, 9], [1, 0, 1, 9], [9, 1, 0, 9], [9, 9, 9, 0.0]])
    drone = np.array([[0, 9, 9, 1], [9, 0, 9, 9], [9, 9, 0, 9], [9, 2, 9, 0.0]])
    no = np.zeros(4, np.bool_)
    instance = TSPDInstance("back", np.zeros((4, 2)), truck, drone, np.inf, no, no)
    assert exact(instance) == ((Operation(0, 1, 3, (1, 2)), Operation(1, 0)), 4.0)


def test_too_many_nodes_are_refused():
    """12 are allowed, 13 only by option."""
    assert exact(places(12, 0)).cost < truck_only(places(12, 0)).cost
    with pytest.raises(ConfigError, match="places 0: 13 nodes are too many to solve exactly: max_nodes=12"):
        exact(places(13, 0))
    with pytest.raises(ConfigError, match="max_nodes=4"):
        exact(places(5, 0), max_nodes=4)


# --- truck_only


def test_a_small_tour_is_the_shortest_of_all():
    """Over all 120 orders of five customers, costs by direction."""
    for seed in range(10):
        instance = crooked(6, seed)
        tours = [(0, *order, 0) for order in permutations(range(1, 6))]
        shortest = min(sum(instance.c_truck[i, j] for i, j in pairwise(tour)) for tour in tours)
        operations, cost = truck_only(instance)
        assert cost == shortest == tspd_cost(instance, operations)
        assert all(op.fly == -1 and not op.internal for op in operations)


def test_places_on_a_ring_are_visited_around_it():
    """A tour without crossings is the only local optimum of 2-opt: 20 sides of 2 sin(pi / 20)."""
    turn = np.random.default_rng(3).permutation(20) * 2 * np.pi / 20
    ring = TSPDInstance.of_places("ring", np.stack([np.cos(turn), np.sin(turn)], axis=1))
    assert truck_only(ring).cost == pytest.approx(40 * np.sin(np.pi / 20), abs=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_a_large_tour_is_improved_by_reversals(seed):
    """Also with asymmetric costs: the tour is that of a steepest descent that computes every reversed tour in full."""
    n = 20
    roads = np.rint(places(n, seed).c_truck) + np.random.default_rng(seed).integers(0, 15, (n, n)) * (1 - np.eye(n))
    instance = dataclasses.replace(places(n, seed), c_truck=roads)

    def length(order):
        return sum(instance.c_truck[i, j] for i, j in pairwise([*order, 0]))

    tour = [0]
    while len(tour) < n:
        tour.append(min(set(range(n)) - set(tour), key=lambda j: (instance.c_truck[tour[-1], j], j)))
    better = tour
    while better is not None:
        tour = better
        turned = [tour[:i] + tour[i:j][::-1] + tour[j:] for i in range(1, n - 1) for j in range(i + 2, n + 1)]
        better = min((t for t in turned if length(t) < length(tour)), key=length, default=None)
    operations, cost = truck_only(instance)
    assert [op.start for op in operations] == tour
    assert cost == length(tour) == tspd_cost(instance, operations)


def test_a_tour_starts_with_the_nearest_neighbours():
    """One step around costs 1 and any other 5, so no move improves the tour."""
    n = 14
    around = np.where((np.arange(n)[None] - np.arange(n)[:, None]) % n == 1, 1.0, 5.0) * (1 - np.eye(n))
    instance = dataclasses.replace(crooked(n, 0), c_truck=around)
    assert truck_only(instance) == (tuple(Operation(i, (i + 1) % n) for i in range(n)), 14.0)


# --- partition


def test_a_tour_is_split_by_hand():
    """Around a rectangle of 3 by 4 the truck drives the diagonal of 5 twice, and the drone serves a corner each time in
    3.5. If it may not serve the last corner, the truck drives 5 + 3 + 4."""
    rectangle = TSPDInstance.of_places("rectangle", [[0, 0], [3, 0], [3, 4], [0, 4]])
    operations, cost = partition(rectangle, [0, 1, 2, 3])
    assert cost == 10
    assert operations == (Operation(0, 2, 1), Operation(2, 0, 3))
    grounded = dataclasses.replace(rectangle, no_visit=np.arange(4) == 3)
    assert partition(grounded, [0, 1, 2, 3]).cost == 12


@pytest.mark.parametrize("restricted", [False, True])
def test_a_split_is_the_best_of_all(restricted):
    """Every split and every choice of drone nodes, by the checker's cost."""
    for seed in range(12):
        instance = crooked(6, seed, restricted)
        tour = [0, *(1 + np.random.default_rng(seed).permutation(5)).tolist()]
        operations, cost = partition(instance, tour)
        assert cost == best_split(instance, tour), instance.name
        assert tspd_cost(instance, operations) == cost


def test_optimum_split_and_tour_are_in_order():
    """The optimum is at most a split of the truck's tour, which is at most the tour."""
    for seed in range(10):
        instance = places(9, seed)
        tour = truck_only(instance)
        split = partition(instance, [op.start for op in tour.operations])
        assert exact(instance).cost <= split.cost < tour.cost


def test_a_large_tour_is_split():
    """200 places; the checker finds the same cost."""
    instance = places(200, 1, max_fly=30.0, no_visit=[5, 7], forbid=[9])
    tour = truck_only(instance)
    operations, cost = partition(instance, [op.start for op in tour.operations])
    assert tspd_cost(instance, operations) == pytest.approx(cost, abs=1e-9)
    assert cost < tour.cost


@pytest.mark.parametrize("tour", [[1, 0, 2], [0, 1], [0, 1, 1], [0, 1, 2, 0], []])
def test_an_invalid_tour_is_refused(tour):
    """A tour has each node once, the depot first."""
    with pytest.raises(BadSolution, match=r"each of 0\.\.2 once and 0 first"):
        partition(places(3, 0), tour)


def test_exact_has_a_maximum_size_and_requires_an_instance():
    """For any max_nodes: 25 nodes would take gigabytes; a dict is no instance."""
    with pytest.raises(ConfigError, match="17 nodes are too many to solve exactly: max_nodes=30, at most 16"):
        exact(places(17, 0), max_nodes=30)
    for method in (exact, truck_only, lambda given: partition(given, [0, 1])):
        with pytest.raises(ShapeError, match="an instance is a TSPDInstance, not a dict"):
            method({"locs": np.zeros((2, 2))})


def test_actions_of_solve_play_at_their_reported_cost():
    """Two instances of different size, in a world of the larger size; no method beats the exact one."""
    rows = [places(6, 1), places(5, 2)]
    costs = {}
    for method in TSPD.solvers:
        found = solve("TSPD", rows, method)
        world = TSPD.from_instances(rows, autoreset="disabled", illegal="raise")
        for k in range(found.actions.shape[1]):
            live = np.flatnonzero(~world.terminated)
            if len(live):
                world.step(found.actions[live, k], rows=live)
        assert world.terminated.all() and (world.objective == -found.cost).all()
        assert (found.optimal == (method == "exact")).all()
        costs[method] = found.cost
    assert (costs["exact"] <= costs["partition"]).all() and (costs["partition"] <= costs["truck_only"]).all()
    assert (solve("TSPD", rows[0]).cost == costs["partition"][:1]).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: solve("TSPD", {"locs": np.zeros((1, 5, 2))}), "the instances lack c_truck, c_drone, no_visit"),
        (lambda: solve("TSPD", [3]), "a TSPDInstance, a list of them, or a mapping"),
        (lambda: solve("TSPD", [places(5, 1)], alpha=2.0), "alpha=2.0: the solvers of TSPD have no options"),
        (
            lambda: solve("TSPD", [places(5, 1)], "savings"),
            "method='savings' is not for TSPD; TSPD has exact, partition",
        ),
    ],
)
def test_invalid_calls_of_solve_are_refused(call, sentence):
    """With a message."""
    with pytest.raises((ConfigError, ShapeError), match=sentence):
        call()
