"""The scalar references of VRP, PDP and PCTSP give the numbers of small cases that were enumerated by hand.

Unless a case says otherwise, the depot is at (0, 0) and the customers 1, 2, 3 at (3, 0), (3, 4), (0, 4) want 5 units of
a vehicle with room for 10.
"""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from tests.published import published_file
from tests.reference.pctsp import PCTSP, TSPPath
from tests.reference.pdp import PDP
from tests.reference.vrp import VRP, count_and_best, finished_rows

INF = math.inf
RECTANGLE = [(0, 0), (3, 0), (3, 4), (0, 4)]
TWICE = [(0, 0), *RECTANGLE]
"""Two depots at one place, so the customers are 2, 3, 4."""
PAIRS = [(0, 0), (3, 0), (3, 4), (0, 4), (0, 8)]


def vrp(locs=RECTANGLE, **options):
    rule = {"linehaul": [0] * (len(locs) - 3) + [5, 5, 5], "capacity": 10}
    return VRP(locs, **(rule | options))


EARLY = [(0, 20), (0, 4), (9, 10), (0, 8)]
LATE = [(0, 20), (0, 12), (9, 10), (0, 16)]
SERVED = {"service_time": [0, 1, 1, 1], "capacity": 15}

BY_HAND = {
    "cvrp": ({}, 18, 18),
    "open": ({"open_route": True}, 18, 10),
    "distance limit of 10": ({"distance_limit": 10}, 6, 24),
    "open, distance limit of 7": ({"open_route": True, "distance_limit": 7}, 10, 10),
    "backhaul at 3": ({"linehaul": [0, 5, 5, 0], "backhaul": [0, 0, 0, 5]}, 16, 14),
    "backhaul at 2": ({"linehaul": [0, 5, 0, 5], "backhaul": [0, 0, 5, 0]}, 16, 16),
    "mixed backhaul at 2": ({"linehaul": [0, 5, 0, 5], "backhaul": [0, 0, 5, 0], "backhaul_class": 2}, 22, 14),
    "mixed backhaul at 1": ({"linehaul": [0, 0, 5, 5], "backhaul": [0, 5, 0, 0], "backhaul_class": 2}, 22, 14),
    "both at one stop": ({"linehaul": [0, 5, 3, 2], "backhaul": [0, 2, 4, 6], "backhaul_class": 2}, 16, 18),
    "early windows": ({"time_windows": EARLY, **SERVED}, 10, 18),
    "windows": ({"time_windows": LATE, **SERVED}, 17, 14),
    "windows, duration limit of 17": ({"time_windows": LATE, **SERVED, "duration_limit": 17}, 17, 14),
    "windows, duration limit of 15": ({"time_windows": LATE, **SERVED, "duration_limit": 15}, 16, 18),
    "open, depot closes at 10": ({"time_windows": [(0, 10), *LATE[1:]], **SERVED, "open_route": True}, 17, 10),
    "fleet of 2": ({"vehicles": 2}, 12, 18),
    "no demands, fleet of 2, longest route": ({"linehaul": None, "vehicles": 2, "objective": "max"}, 18, 12),
    "split, equal to no split": ({"split": True}, 18, 18),
    "split, demand 6": ({"linehaul": [0, 6, 6, 6], "capacity": 9, "split": True}, 36, 24),
    "split, demand over capacity": ({"linehaul": [0, 12, 3, 3], "capacity": 9, "split": True}, 48, 20),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_sequences_and_best_cost_of_one_depot(case):
    """The number of finished sequences and the least cost among them."""
    options, count, best = BY_HAND[case]
    assert count_and_best(lambda: vrp(**options)) == (count, pytest.approx(best))


KINDS = {"num_depots": 2}
SEVERAL_DEPOTS = {
    "at (0, 0) and (3, 5)": ({"locs": [(0, 0), (3, 5), *RECTANGLE[1:]]}, 96, 13.1623),
    "with a distance limit of 8": ({"locs": [(0, 0), (3, 5), *RECTANGLE[1:]], "distance_limit": 8}, 16, 13.1623),
    "two kinds of vehicle": ({"locs": TWICE, "fixed_cost": [5, 0], "distance_cost": [1, 2]}, 96, 28),
    "customers of one depot": ({"locs": TWICE, "serves": [0, 0, 0b01, 0b10, 0b11]}, 20, 18),
}


@pytest.mark.parametrize("case", SEVERAL_DEPOTS)
def test_sequences_and_best_cost_of_two_depots(case):
    """The first action chooses a depot, so a sequence has one action more."""
    options, count, best = SEVERAL_DEPOTS[case]
    assert count_and_best(lambda: vrp(**KINDS, **options)) == (count, pytest.approx(best, abs=5e-5))


def test_a_load_between_two_deliveries_counts():
    """5 units picked up at 1 and 10 on board for 2 and 3 make 15: no route has 1 before both of them."""
    rows = finished_rows(vrp(linehaul=[0, 0, 5, 5], backhaul=[0, 5, 0, 0], backhaul_class=2))
    assert {(1, 2, 3, 0), (1, 3, 2, 0)}.isdisjoint(tuple(row.tour) for row in rows)


def test_least_duration_of_a_route():
    """Route 1, 2, 3 takes 17 if it leaves at 1: it drives 14 and serves 3. Leaving at 0 it waits 1."""
    row = vrp(time_windows=LATE, **SERVED)
    for a in (1, 2, 3, 0):
        row.step(a)
    assert (row.route_duration, row.start_early, row.start_late, row.terminated) == (17, 1, 2, True)


def test_an_early_closing_forces_the_vehicle_to_wait():
    """Customer 1 closes at 3, so route 1, 2, 3 leaves at 0, is at customer 2 at 8 and waits until 9: 18 in all."""
    row = vrp(time_windows=[(0, 20), (0, 3), (9, 10), (0, 16)], **SERVED)
    for a in (1, 2, 3, 0):
        row.step(a)
    assert (row.route_duration, row.start_early, row.start_late) == (18, 0, 0)


def test_a_fleet_of_one_leaves_one_customer():
    """Two of three customers fit, and the vehicle may not go home before: six orders."""
    rows = list(finished_rows(vrp(vehicles=1)))
    assert len(rows) == 6 and {row.unserved for row in rows} == {1}
    assert min(-row.earned for row in rows) == pytest.approx(12 + 10)


def test_linehauls_begin_the_routes():
    """With `backhaul_only=False`, customer 3 (backhaul) begins a route only after customers 1 and 2."""
    rows = list(finished_rows(vrp(linehaul=[0, 5, 5, 0], backhaul=[0, 0, 0, 5], backhaul_only=False)))
    alone = [row.tour for row in rows if row.backhaul_only_routes]
    assert sorted(alone) == [[1, 0, 2, 0, 3, 0], [1, 2, 0, 3, 0], [2, 0, 1, 0, 3, 0], [2, 1, 0, 3, 0]]
    assert len(rows) == 10  # and the six in which 3 ends a route that has delivered


def test_a_stop_with_linehaul_and_backhaul_may_begin_a_route():
    """Of a stop that has both, the delivery comes first."""
    row = vrp(linehaul=[0, 5, 5, 0], backhaul=[0, 5, 0, 5], backhaul_class=2, backhaul_only=False)
    assert row.mask() == {1, 2}


def test_rewards_sum_to_the_objective_in_both_forms():
    """Dense rewards pay each leg, with `max` the growth of the longest route; terminal ones all at the end."""
    dense, terminal = vrp(), vrp(reward="terminal")
    assert [dense.step(a) for a in (1, 2, 0, 3, 0)] == [-3, -4, -5, -4, -4]
    assert [terminal.step(a) for a in (1, 2, 0, 3, 0)] == [0, 0, 0, 0, -20]
    longest = vrp(objective="max", vehicles=2)
    assert [longest.step(a) for a in (3, 0, 1, 2, 0)] == [-4, -4, 0, 0, -4]
    alone = vrp(objective="max", vehicles=1)
    assert [alone.step(a) for a in (1, 2, 0)] == [-3, -4, -5 - 10]  # 10 for the customer that is left


def test_an_illegal_action_only_counts():
    """A vehicle at its depot has no way home."""
    row = vrp(max_steps=3)
    assert row.step(0) == 0 and (row.i, row.illegal, row.tour) == (1, True, [])
    row.step(1)
    row.step(1)
    assert row.truncated and not row.terminated and row.mask() == {0}


def test_padding_is_never_allowed():
    """A row of one depot and two customers in a batch of two depots and three customers starts with a vehicle."""
    row = VRP(TWICE, num_depots=2, n_depots=1, n_nodes=4, linehaul=[0, 0, 5, 5, 0], capacity=10)
    assert row.mask() == {2, 3}
    row.step(2)
    assert row.mask() == {0, 3}


def test_a_customer_out_of_reach_is_refused():
    """With a distance limit of 9 customer 2, 5 away, has no vehicle."""
    with pytest.raises(ValueError, match="customer 2 alone"):
        vrp(distance_limit=9)


# --- identities


def costs(**options):
    """The cost of every finished sequence."""
    return {tuple(row.tour): round(-row.earned, 9) for row in finished_rows(vrp(**options))}


def test_splitting_single_units_changes_nothing():
    """Demands of 1 are always delivered whole."""
    one = {"linehaul": [0, 1, 1, 1], "capacity": 2}
    assert costs(split=True, **one) == costs(**one)


def test_open_routes_are_routes_with_a_free_way_home():
    """A matrix whose column of the depot is zero; the limit then bounds the way out only."""
    free = [[math.dist(p, q) * (j > 0) for j, q in enumerate(RECTANGLE)] for p in RECTANGLE]
    closed = costs(dist=free, metric="matrix", distance_limit=7)
    assert closed == costs(open_route=True, distance_limit=7) and len(closed) == 10


def test_limits_of_infinity_change_nothing():
    """Windows [0, inf], limits inf, speed 1, and a duration limit in place of the distance limit."""
    free = {"time_windows": [(0, INF)] * 4, "distance_limit": INF, "duration_limit": INF}
    assert costs(**free) == costs()
    assert costs(duration_limit=10) == costs(distance_limit=10) != costs()


def test_depots_at_one_place_are_one():
    """Each route may then begin at any of them; the costs are those of one depot."""
    several = costs(locs=[(0, 0), *TWICE], num_depots=3)
    renamed = {tuple(j - 2 if j > 2 else 0 for j in plan[1:]): cost for plan, cost in several.items()}
    assert renamed == costs()
    # 6 orders in two routes of 1 + 2 or 2 + 1, and in three: 12 * 3^2 + 6 * 3^3
    assert len(several) == 12 * 9 + 6 * 27


# --- pickups and deliveries


PAIRED = {
    "one vehicle": ({}, 6, 20),
    "fleet of 2": ({"vehicles": 2}, 8, 20),
    "one vehicle of capacity 3": ({"capacity": 3}, 2, 24),
    "windows": (
        {
            "vehicles": 2,
            "time_windows": [(0, 30), (0, 10), (5, 10), (0, 15), (0, 16)],
            "service_time": [0, 1, 1, 1, 1],
        },
        2,
        30,
    ),
}


@pytest.mark.parametrize("case", PAIRED)
def test_sequences_and_best_cost_of_pairs(case):
    """Pickups 1, 2 of 2 and 3 units, deliveries 3, 4."""
    options, count, best = PAIRED[case]
    assert count_and_best(lambda: PDP(PAIRS, demand=[0, 2, 3, -2, -3], **options)) == (count, pytest.approx(best))


def test_plan_is_an_order_of_the_goods_aboard():
    """After both pickups, delivery 3 at (0, 4) comes before 4 at (0, 8): the route ends at 4 + 3 + 4 + 8 + ... = 20."""
    row = PDP(PAIRS, demand=[0, 2, 3, -2, -3])
    row.step(1)
    assert (row.plan, row.load, row.aboard) == ([3], 2, [False, False, False, True, False])
    row.step(2)
    assert (row.plan, row.load) == ([4, 3], 5)  # 7 + 5 + 4 + 4 = 20; 3 first takes 7 + 3 + 4 + 8 = 22
    assert row.mask() == {3, 4}


def on_a_line(search_limit):
    """Pickups at 0, deliveries 4, 5, 6 at 1, -2, 3 that close at 19, 3, 9: the first is 5."""
    places = [0, 0, 0, 0, 1, -2, 3]
    closes = [100, 100, 100, 100, 19, 3, 9]
    row = PDP(
        [(x, 0) for x in places],
        time_windows=[(0, close) for close in closes],
        search_limit=search_limit,
    )
    for a in (1, 2, 3):
        row.step(a)
    return row


def test_windows_order_the_deliveries():
    """Delivery 5 is at 2 from the depot and closes at 3, so all others strand it."""
    row = on_a_line(2000)
    assert row.mask() == {5} and row.plan[0] == 5


@pytest.mark.parametrize("limit", [0, 1, 2, 5])
def test_a_search_that_gives_up_leaves_an_action(limit):
    """The first node of the plan needs no search, so whatever the limit the mask is not empty, and the row ends."""
    stack = [on_a_line(limit)]
    rng = np.random.default_rng(0)
    for _ in range(200):
        stack.append(
            PDP(rng.integers(0, 9, (7, 2)), time_windows=[(0, INF)] + [(0, 22)] * 6, search_limit=limit, vehicles=3)
        )
    gave_up = 0
    for row in stack:
        while not row.finished:
            actions = sorted(row.mask())
            assert actions
            row.step(actions[rng.integers(len(actions))])
        assert row.unserved == 0 and not any(row.aboard)
        gave_up += row.gave_up
    assert gave_up > 0


def test_pairs_without_windows():
    """Windows [0, inf] change nothing."""
    plain, free = (
        {tuple(row.tour) for row in finished_rows(PDP(PAIRS, demand=[0, 2, 3, -2, -3], vehicles=2, **options))}
        for options in ({}, {"time_windows": [(0, INF)] * 5})
    )
    assert plain == free and len(plain) == 8


# --- prizes and paths


def test_prizes_of_a_rectangle():
    """Prizes 1, .4, .6 with 1 required, penalties 2, 1, 5. The best tour has customer 1 alone: 6 + 1 + 5."""

    def build():
        return PCTSP(RECTANGLE, [0, 1, 0.4, 0.6], [0, 2, 1, 5])

    rows = list(finished_rows(build()))
    # 1; 12, 13, 21, 31; 23, 32; and all six orders of three customers
    assert len(rows) == 1 + 4 + 2 + 6
    assert count_and_best(build) == (13, pytest.approx(12))


def test_all_visited_opens_the_depot():
    """Real prizes below the requirement never strand the vehicle, and a visit reveals them."""
    row = PCTSP(RECTANGLE, [0, 1, 1, 1], [0, 1, 1, 1], real_prize=[0, 0.1, 0.2, 0.3])
    assert row.mask() == {1, 2, 3}
    row.step(1)
    assert row.prize == [0, 0.1, 1, 1] and row.mask() == {2, 3}
    row.step(2)
    row.step(3)
    assert row.mask() == {0} and row.collected == pytest.approx(0.6)


def test_nothing_required_allows_the_empty_tour():
    """The tour that stays at the depot pays all penalties."""
    row = PCTSP(RECTANGLE, [0, 1, 1, 1], [0, 1, 2, 3], prize_required=0)
    assert 0 in row.mask() and row.step(0) == -6 and row.terminated


def test_path_ends_at_the_last_node():
    """Four nodes: two orders between the ends. The best is 3 + 4 + 3 along the rectangle."""
    assert count_and_best(lambda: TSPPath(RECTANGLE)) == (2, pytest.approx(10))
    assert {tuple(row.tour) for row in finished_rows(TSPPath(RECTANGLE))} == {(*p, 3) for p in permutations((1, 2))}


# --- small published instances


def section(text: str, name: str) -> np.ndarray:
    """The numbers of a section of a file in VRPLIB's notation; # begins a comment."""
    rows = []
    for line in text.split(f"{name}\n")[1].splitlines():
        if line.startswith("#"):
            continue
        try:
            rows.append([float(x) for x in line.split()])
        except ValueError:
            break
    return np.array(rows)


@pytest.mark.parametrize(("capacity", "count", "best"), [(200, 192, 82.6551), (45, 124, 152.6827)])
def test_small_simultaneous_instance(capacity, count, best):
    """Deliveries and pick-ups at the same stops, as the file says, and with a small vehicle."""
    text = published_file("routing2/small/SmallVRPSPD.vrp").read_text()
    rule = {
        "dist": section(text, "EDGE_WEIGHT_SECTION"),
        "metric": "matrix",
        "linehaul": section(text, "LINEHAUL_SECTION")[:, 1],
        "backhaul": section(text, "BACKHAUL_SECTION")[:, 1],
        "backhaul_class": 2,
        "capacity": capacity,
    }
    assert count_and_best(lambda: VRP(None, **rule)) == (count, pytest.approx(best, abs=5e-5))


def test_small_instance_of_two_depots():
    """Two vehicles at the first depot, one at the second."""
    text = published_file("routing2/small/OkSmallMultipleDepots.txt").read_text()
    rule = {
        "dist": section(text, "EDGE_WEIGHT_SECTION"),
        "metric": "matrix",
        "num_depots": 2,
        "vehicles": [2, 1],
        "linehaul": section(text, "DEMAND_SECTION")[:, 1],
        "capacity": 10,
        "time_windows": section(text, "TIME_WINDOW_SECTION")[:, 1:],
        "service_time": section(text, "SERVICE_TIME_SECTION")[:, 1],
    }
    assert count_and_best(lambda: VRP(None, **rule)) == (54, 6997)
