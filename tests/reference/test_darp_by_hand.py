"""The dial-a-ride references against published optima and numbers worked out by hand; no world takes part.

File ids: 0 and 2n+1 the depot, i a pickup, n+i its dropoff.
"""

from __future__ import annotations

import copy
import csv
import json
from itertools import pairwise

import numpy as np
import pytest

from tests.published import published_file

from .darp import DARPModel
from .darp_deadlines import DARPDeadlinesModel, distance32

# Sum over the replay of the published optimum of (legal actions, indices of the legal nodes).
REPLAYS = {
    "a2-16": (119, 1553), "a2-24": (217, 4761), "a3-18": (143, 2358), "a3-30": (287, 8538), "a4-16": (135, 1991),
    "b2-16": (115, 1926), "b2-24": (239, 5405), "b3-18": (147, 2284), "b3-30": (361, 10344), "b4-16": (127, 1584),
    "b4-32": (392, 10784),
}  # fmt: skip
LEGAL_A2_16 = [16, 2, 1, 1, 13, 2, 9, 1, 7, 2, 1, 1, 1, 10, 2, 1, 1, 9, 2, 2, 1, 7, 1, 6, 1, 5, 3, 2, 1, 3, 1, 2, 1, 1]


def benchmark(name, **options):
    """The model of a file, and the node of each file id."""
    text = published_file(f"darp/{name}.txt").read_text()
    header, *lines = [line.split() for line in text.splitlines() if line.strip()]
    vehicles, n, duration, seats, ride = (int(x) for x in header)
    rows = np.array(lines[: 2 * n + 1], float)
    node = [0, *(2 * i - 1 for i in range(1, n + 1)), *(2 * i for i in range(1, n + 1))]
    by_node = np.empty_like(rows)
    by_node[node] = rows
    x, y, service, load, opens, closes = by_node.T[1:]
    model = DARPModel(
        np.stack([x, y], 1), load, [seats] * vehicles, opens, closes, service, [ride] * n, duration, **options
    )
    return model, node


def published(name):
    return json.loads(published_file("darp/solutions.json").read_text())[name]["routes"]


def actions_of(routes, node):
    return [a for route in routes for a in [*(node[j] for j in route), 0]]


def alone(ride=20.0, **options):
    """From (3,0) at leisure to (10,0) between 50 and 60."""
    return DARPModel([(0, 0), (3, 0), (10, 0)], [0, 1, -1], [1], [0, 0, 50], [100, 100, 60], [0, 0, 0], [ride], 100,
                     **options)  # fmt: skip


def two_on_a_line(ride, **options):
    """(1,0)->(10,0) and (-5,0)->(2,0), two seats, windows that bind nobody."""
    return DARPModel([(0, 0), (1, 0), (10, 0), (-5, 0), (2, 0)], [0, 1, -1, 1, -1], [2], [0] * 5, [100] * 5, [0] * 5,
                     [ride] * 2, 100, **options)  # fmt: skip


def three(vehicles, **options):
    """Three requests with a window at one end each, stops of 1, rides of at most 25, two seats a vehicle."""
    locs = [(0, 0), (2, 3), (8, -1), (-4, 1), (5, 5), (6, -6), (-3, -5)]
    opens, closes = [0, 0, 20, 10, 0, 30, 0], [120, 1440, 35, 25, 1440, 45, 1440]
    return DARPModel(
        locs, [0, 1, -1, 1, -1, 1, -1], [2] * vehicles, opens, closes, [0] + [1] * 6, [25] * 3, 100, **options
    )


def seed_trace(**options):
    """Two requests and two vehicles of five seats, deadlines of 48, 10, 13, 12 and 5 hours at speed 25."""
    locs = [(0, 0), (30, 40), (60, 80), (0, 50), (100, 0)]
    return DARPDeadlinesModel(locs, [0, 2, -2, 1, -1], [5, 5], [48, 10, 13, 12, 5], **options)


def episodes(model, taken=(), paid=0.0):
    """Every legal episode from here: (actions, what they paid, model at its end)."""
    if model.finished:
        yield taken, paid, model
        return
    for action in model.allowed():
        after = copy.copy(model)
        after.step(action)
        yield from episodes(after, (*taken, action), paid + after.reward_exact)


@pytest.mark.truth
@pytest.mark.parametrize("name", REPLAYS)
def test_published_optimum_replays_with_the_known_masks(name):
    """Each action is legal, the last one ends, both judges allow the counted nodes at each step."""
    with published_file("darp/best_known.csv").open() as lines:
        best = {row["name"]: float(row["value"]) for row in csv.DictReader(lines)}[name]
    model, node = benchmark(name)
    assert model.allowed() == list(range(1, model.num_nodes, 2))
    counts, indices, paid = [], 0, 0.0
    for action in actions_of(published(name), node):
        assert not model.finished and action in model.allowed()
        assert model.mask_by_schedule(-1e-3) == model.mask_by_schedule(1e-3) == model.action_mask
        counts.append(len(model.allowed()))
        indices += sum(model.allowed())
        model.step(action)
        paid += model.reward_exact
    assert model.terminated and model.unvisited == 0 and all(model.vehicle_finished)
    assert paid == pytest.approx(-model.cost, abs=1e-9)
    assert model.cost == pytest.approx(best, abs=0.006)
    assert (sum(counts), indices) == REPLAYS[name]
    assert name != "a2-16" or counts == LEGAL_A2_16


@pytest.mark.truth
def test_serving_as_early_as_possible_breaks_30_of_32_feasible_routes():
    """Leaving at 0 without delaying a pickup breaks the ride limit on almost every published route."""
    routes = broken = 0
    for name in REPLAYS:
        model, node = benchmark(name)
        for route in published(name):
            path = [0, *(node[j] for j in route), 0]
            assert model.schedule(path) is not None
            start = {0: 0.0}
            for i, j in pairwise(path[:-1]):
                start[j] = max(model.window_open[j], start[i] + model.service_time[i] + model.t[i][j])
            rides = [start[j] - start[j - 1] - model.service_time[j - 1] for j in start if j > 0 and j % 2 == 0]
            routes, broken = routes + 1, broken + (max(rides) > model.max_ride_time[0] + 1e-3)
    assert (routes, broken) == (32, 30)


@pytest.mark.truth
def test_clock_along_the_first_route_of_a2_16():
    """The earliest start at each node, the latest departure, and who is aboard after file node 16."""
    model, node = benchmark("a2-16")
    assert [model.tight_open[node[1]], model.tight_close[node[1]]] == pytest.approx([369, 399.729], abs=1e-3)
    assert [model.tight_open[node[17]], model.tight_close[node[17]]] == pytest.approx([402, 417], abs=1e-3)
    assert [model.tight_open[node[10]], model.tight_close[node[10]]] == pytest.approx([32, 47], abs=1e-3)
    assert [model.tight_open[node[26]], model.tight_close[node[26]]] == pytest.approx([42.054, 80], abs=1e-3)
    clock = []
    for j in published("a2-16")[0]:
        model.step(node[j])
        clock.append(model.current_time)
        assert model.departure_latest == pytest.approx(44.390, abs=1e-3)
        if j == 16:
            assert model.onboard == [6, 15, -1, -1, -1, -1, -1, -1]
            assert model.onboard_latest[:3] == pytest.approx([373.046, 381, 0], abs=1e-3)
            assert model.onboard_elapsed[:3] == pytest.approx([7.954, 0, 0], abs=1e-3)
    known = [32, 49, 62.131, 82, 160, 165.2, 180, 199.959, 367, 374.954, 400, 413.492]
    assert clock == pytest.approx(known, abs=1e-3)


def test_pickup_is_delayed_for_the_ride_limit():
    """50 - 20 = 30 is the earliest pickup though it is 3 away; the way home ends the episode."""
    model = alone()
    assert model.tight_open == [0, 30, 50] and model.tight_close == [100, 53, 60]
    seen = []
    for action in (1, 2, 0):
        assert model.allowed() == [action]
        model.step(action)
        seen.append((model.reward, model.current_time))
    assert [reward for reward, _ in seen] == [-3, -7, -10]
    assert [clock for _, clock in seen[:2]] == [30, 50]
    assert model.terminated and model.cost == 20 and model.vehicles_used == 1
    assert model.schedule([0, 1, 2, 0]) == [0, 30, 50, 60]


def test_speed_divides_times_and_not_distances():
    """At speed 0.5 the 7 between the two last 14, so the pickup may start at 60 - 14 = 46 at the latest."""
    model = alone(speed=0.5)
    assert model.tight_close == [100, 46, 60] and model.d[1][2] == 7
    model.step(1)
    assert model.reward == -3 and model.current_time == 30 and model.route_elapsed == 6


@pytest.mark.parametrize(("ride", "legal"), [(21, [2, 3]), (20.9, [2])])
def test_second_pickup_must_leave_a_way_to_set_both_down(ride, legal):
    """1 -> -5 -> 2 -> 10 keeps the first rider aboard for 6 + 7 + 8 = 21."""
    model = two_on_a_line(ride)
    model.step(1)
    assert model.allowed() == legal
    assert [j for j, allowed in enumerate(model.mask_by_schedule()) if allowed] == legal


@pytest.mark.parametrize(("vehicles", "number", "complete"), [(2, 26, 20), (1, 15, 4)])
@pytest.mark.parametrize("reward", ["dense", "terminal"])
def test_all_legal_episodes_of_three_requests(vehicles, number, complete, reward):
    """How many there are, how many serve all, the best and the mean, by following every allowed action."""
    ends = list(episodes(three(vehicles, reward=reward)))
    assert len(ends) == number
    assert sum(model.unserved == 0 for _, _, model in ends) == complete
    assert all(model.terminated and not model.riding for _, _, model in ends)
    assert [paid for _, paid, _ in ends] == pytest.approx([-model.cost for _, _, model in ends], abs=1e-9)
    actions, _, best = min(ends, key=lambda end: end[2].cost)
    assert best.cost == pytest.approx(41.032918, abs=1e-6)
    assert actions == (3, 1, 4, 2, 5, 6, 0)
    if vehicles == 2:
        assert {len(taken) for taken, _, _ in ends} == {6, 7, 8}
        assert np.mean([model.cost for _, _, model in ends]) == pytest.approx(98.198511, abs=1e-6)


def test_seed_trace_to_the_emergency_exit():
    """Riders stranded twice, the self-loop of the last vehicle ends, one node is left."""
    model = seed_trace()
    known = [  # action, then vehicle, time, load, legal
        (3, 0, 2, 1, [1]), (1, 0, 3, 3, [2]), (2, 0, 5, 1, [0]), (0, 1, 0, 0, [0]),
    ]  # fmt: skip
    assert model.allowed() == [1, 3]
    for action, vehicle, time, load, legal in known:
        model.step(action)
        assert (model.current_agent, model.current_time, model.current_load) == (vehicle, time, load)
        assert model.allowed() == legal and model.reward == 0 and not model.finished
    model.step(0)
    assert model.terminated and model.unvisited == 1 and model.vehicle_finished == [True, False]
    assert model.total_distance == pytest.approx(231.6228, abs=1e-4)
    assert model.reward == pytest.approx(-331.6228, abs=1e-4)


@pytest.mark.parametrize(("miles", "hours"), [(62.5, 2), (37.5, 2), (12.5, 0), (87.5, 4)])
def test_seed_travel_time_rounds_half_to_even(miles, hours):
    """62.5/25 = 2.5 gives 2 and 37.5/25 = 1.5 gives 2."""
    model = DARPDeadlinesModel([(0, 0), (miles, 0), (0, 1)], [0, 1, -1], [5], [48, 30, 30])
    assert model.t[0][1] == hours
    assert distance32((0, 0), (miles, 0)) == miles


def test_seed_mask_is_never_empty_before_the_first_step():
    """Where nobody can be reached in time the depot is allowed at once, and ends."""
    model = DARPDeadlinesModel([(0, 0), (100, 0), (0, 1)], [0, 1, -1], [5], [48, 3, 30])
    assert model.allowed() == [0]
    model.step(0)
    assert model.terminated and model.reward == -200


def test_every_reason_of_the_classic_rule():
    """The first that applies; a refused action only counts a step."""
    model = three(2)
    reasons = {action: model.illegal_reason(action) for action in (-1, 0, 1, 2, 7)}
    assert reasons == {-1: 1, 0: 5, 1: 0, 2: 3, 7: 1}
    model.step(5)
    assert model.tight_close[1] == pytest.approx(35 - 1 - 52**0.5)
    assert model.current_time == 30 and model.illegal_reason(1) == 8
    model.reset()
    model.step(3)
    model.step(1)
    assert [model.illegal_reason(action) for action in (3, 0, 5)] == [2, 4, 6]
    before = dict(vars(model))
    model.step(5)
    assert vars(model) == {**before, "i": 3, "reason": 6, "reward": 0, "reward_exact": 0}
    for options, reason in (({"ride": 20.9}, 9), ({"ride": 21, "max_onboard": 1}, 7)):
        line = two_on_a_line(**options)
        line.step(1)
        assert line.illegal_reason(3) == reason


def test_every_reason_of_the_seed_rule():
    """1 to 6 and 8; 5 of 5 seats are taken where the second pickup asks for one more."""
    model = seed_trace(speed=100.0)
    assert [model.illegal_reason(action) for action in (5, -1, 0, 2, 1)] == [1, 1, 5, 3, 0]
    model.step(1)
    assert [model.illegal_reason(action) for action in (1, 0, 4, 2)] == [2, 4, 3, 0]
    full = DARPDeadlinesModel([(0, 0)] * 5, [0, 5, -5, 1, -1], [5], [48] * 5)
    full.step(1)
    assert full.illegal_reason(3) == 6
    assert (
        DARPDeadlinesModel(
            [(0, 0), (100, 0), (0, 0), (9, 0), (0, 0)], [0, 1, -1, 1, -1], [5], [9, 3, 9, 9, 9]
        ).illegal_reason(1)
        == 8
    )


def test_ended_rows_are_frozen_and_truncation_charges_no_penalty():
    """Two refused actions of two cut the row; a further step pays nothing and changes nothing."""
    model = alone(max_steps=2)
    model.step(0)
    model.step(2)
    assert model.truncated and not model.terminated and model.reward == 0 and model.allowed() == [0]
    before = dict(vars(model))
    model.step(0)
    assert vars(model) == before
