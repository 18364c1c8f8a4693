"""Reports of an episode of the TSP with a drone: operations, Gantt chart, figures; and replayed plans.

The plans by hand are on a line; see `tspd_by_hand`.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from milkrun.core.errors import BadSolution
from milkrun.delivery.instances import TSPDInstance
from milkrun.delivery.tspd import TSPD
from milkrun.delivery.tspd.truck_tour import tour_cost, truck_tour
from tests.delivery.tspd_by_hand import begun, drawn, instance_of, line, play, walk


def test_operations_chart_and_figures_of_a_plan():
    """L3 D1 J D2 D0: an operation with the drone until 25, two legs without until 55; the truck alone would need 60."""
    world = begun(line())
    play(world, "L3 D1 J D2 D0")
    assert world.operations() == [(0, 1, 3, ()), (1, 2, -1, ()), (2, 0, -1, ())]
    assert world.ops[0, :4].tolist() == [[0, 1, 3], [1, 2, -1], [2, 0, -1], [-1, -1, -1]]
    assert world.events() == [
        ("truck", "drive", 0, 10, 0, 1),
        ("truck", "wait", 10, 25, 1, 1),
        ("truck", "drive", 25, 35, 1, 2),
        ("truck", "drive", 35, 55, 2, 0),
        ("drone", "fly", 0, 15, 0, 3),
        ("drone", "fly", 15, 25, 3, 1),
        ("drone", "aboard", 25, 55, 1, 0),
    ]
    assert world.kpis() == {
        "makespan": 55,
        "truck_drive": 40,
        "truck_wait": 15,
        "drone_fly": 25,
        "drone_wait": 0,
        "operations": 3,
        "by_drone": 1,
        "by_truck": 2,
        "truck_only": 60,
        "saving": 1 - 55 / 60,
    }


def test_a_waiting_drone_is_in_the_chart():
    """L1 D2 D3 J: out until 5, at node 3 at 15, join at 30; the stop at 2 is internal."""
    world = begun(line())
    play(world, "L1 D2 D3 J")
    assert world.operations() == [(0, 3, 1, (2,))]
    assert [e[1:4] for e in world.events() if e.agent == "drone"] == [("fly", 0, 5), ("fly", 5, 15), ("wait", 15, 30)]


def test_gantt_rows_tile_the_makespan():
    """For truck and drone in 100 random episodes; the figures are those of the chart."""
    world = walk(drawn(100, num_nodes=9))
    assert world.terminated.all()
    for row in range(100):
        kpis, chart = world.kpis(row), world.events(row)
        for agent in ("truck", "drone"):
            bars = [e for e in chart if e.agent == agent]
            assert [e.t0 for e in bars] == [0.0, *(e.t1 for e in bars[:-1])]
            assert bars[-1].t1 == kpis["makespan"] and all(e.t0 <= e.t1 for e in bars)
            assert [e.start for e in bars] == [0, *(e.end for e in bars[:-1])] and bars[-1].end == 0
        for figure, found in (
            ("truck_drive", ("truck", "drive")),
            ("truck_wait", ("truck", "wait")),
            ("drone_fly", ("drone", "fly")),
            ("drone_wait", ("drone", "wait")),
        ):
            assert kpis[figure] == pytest.approx(sum(e.t1 - e.t0 for e in chart if e[:2] == found), abs=1e-9)
        assert kpis["makespan"] == -world.objective[row] == pytest.approx(kpis["truck_drive"] + kpis["truck_wait"])
        assert kpis["by_drone"] + kpis["by_truck"] == 8
        assert kpis["operations"] == len(world.operations(row))
        assert kpis["saving"] == 1 - kpis["makespan"] / kpis["truck_only"]


def test_a_replay_of_an_episode_equals_it():
    """Operations of random episodes passed to `replay`: the same figures, chart and actions."""
    world = walk(drawn(20, num_nodes=7, max_fly=40.0))
    for row in range(20):
        assert TSPD.replay(instance_of(world, row), world.operations(row)) == (world.kpis(row), world.events(row))


def test_the_tour_of_the_truck_alone():
    """By all orders of 6 customers with asymmetric costs; beyond 13 nodes no reversal improves the tour."""
    rng = np.random.default_rng(5)
    for _ in range(5):
        cost = rng.uniform(1, 9, (7, 7)) * (1 - np.eye(7))
        best = min(tour_cost(cost, [0, *order]) for order in permutations(range(1, 7)))
        assert tour_cost(cost, truck_tour(cost)) == pytest.approx(best)
    cost = rng.uniform(1, 9, (16, 16)) * (1 - np.eye(16))
    tour = truck_tour(cost)
    assert sorted(tour) == list(range(16)) and tour[0] == 0
    turned = [tour[:i] + tour[i : j + 1][::-1] + tour[j + 1 :] for i in range(1, 16) for j in range(i, 16)]
    assert min(tour_cost(cost, other) for other in turned) > tour_cost(cost, tour) - 1e-9


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ([(0, 1, 3, ()), (2, 0, -1, ())], "operation 1 (2, 0, -1, ()): starts at 2, but the truck is at 1"),
        ([(0, 1, 3, ())], "the plan leaves node 2 uncovered"),
        ([(0, 1, 3, ()), (1, 2, -1, ())], "the plan ends at node 2, not at the depot"),
        ([(0, 1, 3, (2,)), (1, 0, -1, ()), (0, 1, -1, ())], "home already"),
        ([(0, 1, -1, ()), (1, 2, 1, ())], "operation 1 (1, 2, 1, ()): LAUNCH_1: covered"),
        ([(0, 1, -1, (2,)), (1, 2, -1, ())], "operation 1 (1, 2, -1, ()): DRIVE_2: covered"),
        ([(0, 4, -1, ())], "operation 0 (0, 4, -1, ()): there is no node 4, only 0..3"),
        ([(0, 1, -2, ())], "there is no node -2"),
        ([(0, 1, -1)], "operation 0 is (0, 1, -1), not (start, end, fly, internal)"),
        ([(0, 1.0, -1, ())], "1.0 is not a node"),
        ([7], "operation 0 is 7, not (start, end, fly, internal)"),
    ],
)
def test_an_invalid_plan_is_refused(plan, sentence):
    """The message has the index of the first operation at fault."""
    with pytest.raises(BadSolution) as caught:
        TSPD.replay(line(), plan)
    assert sentence in str(caught.value)


def test_a_plan_must_keep_the_range():
    """The flight 0-3-0 costs 30."""
    plan = [(0, 0, 3, ()), (0, 0, -1, (1, 2))]
    assert TSPD.replay(line(max_fly=30), plan)[0]["makespan"] == 30 + 40
    with pytest.raises(BadSolution, match="JOIN: the flight to 0 would cost 30, over max_fly = 29"):
        TSPD.replay(line(max_fly=29), plan)


def test_an_end_already_reached_by_the_truck_is_not_driven_to_again():
    """The last internal node may be the end: world and checker find 40, out to 20 and back at cost 1."""
    from milkrun.delivery.instances.tspd import TSPDInstance
    from milkrun.delivery.tasks import tspd_cost

    places = TSPDInstance.of_places("line", [[0, 0], [10, 0], [20, 0], [30, 0]])
    plan = [(0, 0, 3, (1, 2, 0))]
    assert TSPD.replay(places, plan)[0]["makespan"] == tspd_cost(places, plan) == 40


@pytest.mark.timeout(60)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e8, 1e9])
def test_the_tour_of_the_truck_ends_at_every_scale(scale):
    """Places on a grid have ties, whose gains are rounding errors that grow with the costs."""
    places = np.random.default_rng(4).integers(0, 100, (30, 2)) * scale
    cost = np.hypot(*(places[:, None] - places).transpose(2, 0, 1))
    assert sorted(truck_tour(cost)) == list(range(30))


def test_equal_instances_have_equal_hashes():
    """A cost of -0.0 equals a cost of 0."""
    costs = np.array([[0.0, 0.0], [1.0, 0.0]])
    signed = np.array([[0.0, -0.0], [1.0, 0.0]])
    some = np.zeros(2, bool)
    first, second = (TSPDInstance("x", np.zeros((2, 2)), one, one, np.inf, some, some) for one in (costs, signed))
    assert first == second and hash(first) == hash(second)
