"""The reference models against numbers worked out by hand.

The square: depot (0,0), then (3,0), (3,4), (0,4). Distances 0-1 3, 0-2 5, 0-3 4, 1-2 4, 1-3 5, 2-3 3.
"""

import math

import pytest

from .cvrp import CVRPModel, fits
from .tsp import TSPModel, enumerate_sequences, f32

SQUARE = [(0, 0), (3, 0), (3, 4), (0, 4)]


def check(model, **expected):
    """Every field named must have the value given; `allowed` and `visited` are given as the nodes that are True."""
    actual = {name: getattr(model, name) for name in expected if name not in ("allowed", "visited")}
    if "allowed" in expected:
        actual["allowed"] = model.allowed()
    if "visited" in expected:
        actual["visited"] = [j for j, seen in enumerate(model.visited) if seen]
    assert actual == expected


def play(model, actions):
    """Step through the actions and return the rewards."""
    rewards = []
    for action in actions:
        model.step(action)
        assert not model.illegal
        rewards.append(model.reward)
    return rewards


def snapshot(model):
    return {name: value for name, value in vars(model).items() if name != "d"}


def test_tsp_depot_episode_field_by_field():
    """Round the square: 3 + 4 + 3 + 4; node 0 opens last and ends."""
    m = TSPModel(SQUARE)
    check(m, current_node=0, first_node=0, visited=[0], allowed=[1, 2, 3], tour_length=0, reward=0, i=0, tour=[])
    assert not hasattr(m, "trips") and not hasattr(m, "trip_length")
    m.step(1)
    check(m, current_node=1, first_node=0, visited=[0, 1], allowed=[2, 3], tour_length=3, reward=-3, i=1, tour=[1])
    m.step(2)
    check(m, current_node=2, visited=[0, 1, 2], allowed=[3], tour_length=7, reward=-4, i=2, terminated=False)
    m.step(3)
    check(m, current_node=3, visited=[0, 1, 2, 3], allowed=[0], tour_length=10, reward=-3, i=3, terminated=False)
    m.step(0)
    check(m, current_node=0, visited=[0, 1, 2, 3], allowed=[0], tour_length=14, reward=-4, i=4, tour=[1, 2, 3, 0])
    check(m, terminated=True, truncated=False, illegal=False)


def test_tsp_free_episode_field_by_field():
    """Start at 2, the first leg is free of charge, the fourth action pays 0-3 and 3-2: 4 + 3."""
    m = TSPModel(SQUARE, start="free")
    check(m, current_node=0, first_node=0, visited=[], allowed=[0, 1, 2, 3], tour_length=0)
    m.step(2)
    check(m, current_node=2, first_node=2, visited=[2], allowed=[0, 1, 3], tour_length=0, reward=0, i=1, tour=[2])
    m.step(1)
    check(m, current_node=1, first_node=2, visited=[1, 2], allowed=[0, 3], tour_length=4, reward=-4, i=2)
    m.step(0)
    check(m, current_node=0, first_node=2, visited=[0, 1, 2], allowed=[3], tour_length=7, reward=-3, terminated=False)
    m.step(3)
    check(m, current_node=3, first_node=2, visited=[0, 1, 2, 3], allowed=[0], tour_length=14, reward=-7)
    check(m, tour=[2, 1, 0, 3], i=4, terminated=True, truncated=False)


@pytest.mark.parametrize(("start", "count"), [("depot", 6), ("free", 24)])
@pytest.mark.parametrize("reward", ["dense", "terminal"])
def test_tsp_square_enumerated(start, count, reward):
    """The best is -14; 3! orders from the depot, 4! with a free start."""
    assert enumerate_sequences(lambda: TSPModel(SQUARE, start=start, reward=reward)) == (count, -14)


def test_tsp_illegal_actions_only_count():
    """The way home too early, a visited node and indices out of range change only i; a free start stays open."""
    m = TSPModel(SQUARE)
    m.step(1)
    before = snapshot(m)
    for k, action in enumerate([0, 1, -1, 4, 2**40], start=2):
        m.step(action)
        assert snapshot(m) == {**before, "i": k, "reward": 0, "illegal": True}
    m.step(2)
    check(m, i=7, illegal=False, reward=-4, tour=[1, 2])
    m = TSPModel(SQUARE, start="free")
    m.step(9)
    check(m, i=1, illegal=True, first_node=0, visited=[], allowed=[0, 1, 2, 3])
    m.step(3)
    check(m, i=2, illegal=False, first_node=3, visited=[3], reward=0, tour_length=0)


def test_tsp_truncates_at_max_steps_counting_illegal_ones():
    """Two legs and an illegal step, in any order, are three steps; a tour complete at max_steps is not truncated."""
    for actions, reward in [((1, 1, 2), -4), ((1, 2, 2), 0)]:
        m = TSPModel(SQUARE, max_steps=3)
        for action in actions:
            m.step(action)
        check(m, truncated=True, terminated=False, i=3, tour_length=7, reward=reward, allowed=[0], tour=[1, 2])
    m = TSPModel(SQUARE, max_steps=4)
    play(m, [1, 2, 3, 0])
    check(m, terminated=True, truncated=False)


def test_step_on_a_finished_row_changes_only_the_reward():
    """Reward 0, all else stays; reset starts again."""
    for m in (TSPModel(SQUARE, max_steps=1), TSPModel(SQUARE[:2]), CVRPModel(SQUARE[:2], [0, 1], 1)):
        play(m, m.allowed()[:1])
        while not m.finished:
            play(m, [0])
        before = snapshot(m)
        assert before["reward"] < 0
        for action in (0, 1, 7):
            m.step(action)
            assert snapshot(m) == {**before, "reward": 0}
        m.reset()
        check(m, terminated=False, truncated=False, i=0, tour=[], tour_length=0, allowed=list(range(1, m.n_nodes)))


def test_terminal_reward_pays_once():
    """The same sum as dense, all on the step that ends the row: full tour, max_steps, illegal step at max_steps."""
    assert play(TSPModel(SQUARE, reward="terminal"), [1, 2, 3, 0]) == [0, 0, 0, -14]
    assert play(TSPModel(SQUARE, start="free", reward="terminal"), [2, 1, 0, 3]) == [0, 0, 0, -14]
    assert play(TSPModel(SQUARE, reward="terminal", max_steps=2), [1, 2]) == [0, -7]
    m = TSPModel(SQUARE, reward="terminal", max_steps=2)
    play(m, [1])
    m.step(1)
    check(m, illegal=True, truncated=True, reward=-3)


@pytest.mark.parametrize(("start", "rewards"), [("depot", [-5, -4, -3]), ("free", [0, -4, -8])])
def test_tsp_padding_is_no_node(start, rewards):
    """Nodes 3 and 4 do not exist: never allowed, never visited, and the tour ends without them."""
    m = TSPModel([*SQUARE, (100, 100)], start=start, n_nodes=3)
    assert m.allowed() == ([1, 2] if start == "depot" else [0, 1, 2])
    m.step(3)
    check(m, illegal=True, reward=0)
    assert play(m, [2, 1, 0]) == rewards
    check(m, terminated=True, visited=[0, 1, 2], allowed=[0], tour_length=12)


def test_tsp_asymmetric_matrix_reads_row_to_column():
    """0-1-2-0 is 1 + 2 + 3, the other way 10 + 30 + 20; a free start finds each direction three times."""
    dist = [[0, 1, 10], [20, 0, 2], [3, 30, 0]]
    assert play(TSPModel(None, metric="matrix", dist=dist), [1, 2, 0]) == [-1, -2, -3]
    assert play(TSPModel(None, metric="matrix", dist=dist), [2, 1, 0]) == [-10, -30, -20]
    assert play(TSPModel(None, start="free", metric="matrix", dist=dist), [1, 2, 0]) == [0, -2, -4]
    assert enumerate_sequences(lambda: TSPModel(None, start="free", metric="matrix", dist=dist)) == (6, -6)


def test_legs_are_float64_until_stored():
    """1 plus a leg of 2**-24 (1 + 2**-27) rounds up to 1 + 2**-23; a leg rounded to float32 first would be lost."""
    m = TSPModel([(0, 1), (0, 0), (2**-24, 2**-37)])
    play(m, [1, 2])
    assert m.tour_length == 1 + 2**-23
    assert m.reward == -(2**-24)


@pytest.mark.parametrize(
    ("metric", "lengths"),
    [("euclid", (2.5, f32(2**0.5), 5)), ("manhattan", (3.5, 2, 7)), ("round", (3, 1, 5)), ("ceil", (3, 2, 5))]
    + [("trunc1", (25, 14, 50))],
)
def test_metrics(metric, lengths):
    """(1.5, 2) is 2.5 away and rounds up, never to the even 2; (1, 1) is 1.414 away; (3, 4) exactly 5."""
    for point, length in zip([(1.5, 2), (1, 1), (3, 4)], lengths):
        assert play(TSPModel([(0, 0), point], metric=metric), [1, 0]) == [-length, -length]


def test_coordinates_are_float32_before_the_distance():
    """0.7 is stored as 0.69999999, so trunc1 gives 6 and not 7."""
    assert play(TSPModel([(0, 0), (0.7, 0)], metric="trunc1"), [1]) == [-6]


@pytest.mark.parametrize(
    ("p", "q", "km"),
    [((38.7223, -9.1393), (41.1579, -8.6291), 274.296), ((0, 0), (0, 1), 111.195), ((0, 30), (90, 0), 10007.557)],
)
def test_haversine_kilometres(p, q, km):
    """Places as (latitude, longitude); from the equator to the pole is R pi / 2 from any longitude."""
    assert play(TSPModel([p, q], metric="haversine"), [1, 0]) == pytest.approx([-km, -km], abs=1e-3)


def cvrp(**kw):
    return CVRPModel(SQUARE, **{"demand_units": [0, 5, 5, 5], "capacity": 10, **kw})


def test_cvrp_episode_field_by_field():
    """Trips 2-3 and 1: 5 + 3 + 4 and 3 + 3, the optimum 18."""
    m = cvrp()
    check(m, current_node=0, visited=[], allowed=[1, 2, 3], load=0, trips=0, trip_length=0, tour_length=0, i=0, tour=[])
    m.step(2)
    check(m, current_node=2, visited=[2], allowed=[0, 1, 3], load=5, trips=0, trip_length=5, tour_length=5, reward=-5)
    m.step(3)
    check(m, current_node=3, visited=[2, 3], allowed=[0], load=10, trips=0, trip_length=8, tour_length=8, reward=-3)
    m.step(0)
    check(m, current_node=0, visited=[2, 3], allowed=[1], load=0, trips=1, trip_length=0, tour_length=12, reward=-4)
    m.step(1)
    check(m, current_node=1, visited=[1, 2, 3], allowed=[0], load=5, trips=1, trip_length=3, tour_length=15, reward=-3)
    assert not m.terminated
    m.step(0)
    check(m, current_node=0, visited=[1, 2, 3], allowed=[0], load=0, trips=2, trip_length=0, tour_length=18, reward=-3)
    check(m, terminated=True, truncated=False, illegal=False, i=5, tour=[2, 3, 0, 1, 0])


@pytest.mark.parametrize(
    ("kw", "count", "best"),
    [
        ({}, 18, -18),  # 3! orders, cut into trips of at most two in 3 ways
        ({"reward": "terminal"}, 18, -18),
        ({"capacity": 15}, 24, -14),  # and the trip of three
        ({"capacity": 5}, 6, -24),  # 6 + 10 + 8, each alone
        ({"demand_units": [0, 4, 5, 6]}, 14, -20),  # 2 and 3 together are 11: trips 1-2 and 3
        ({"capacity": 15, "max_length": 14}, 20, -14),  # of the six trips of three 1-2-3, 3-2-1; others 16, 18
        ({"capacity": 15, "max_length": 12}, 18, -18),  # every pair is a trip of 12, and 12 fits 12
        ({"max_length": 11.9999}, 18, -18),  # within the tolerance of 1.2e-4
        ({"max_length": 11.9998}, 6, -24),
        ({"max_length": 10}, 6, -24),  # customer 2 alone is a trip of 10
        ({"capacity": 15, "max_steps": 4}, 6, -14),  # only the trips of three are home by then
    ],
)
def test_cvrp_square_enumerated(kw, count, best):
    """Number of complete masked sequences and the best return, counted by hand."""
    assert enumerate_sequences(lambda: cvrp(**kw)) == (count, best)


def test_cvrp_max_length_looks_home_from_the_next_stop():
    """After 1-2 (7 so far) customer 3 would make 7 + 3 + 4 = 14 > 12: only home is left; a new trip starts at 0."""
    m = cvrp(capacity=15, max_length=12)
    for action, trip_length, allowed in [(1, 3, [0, 2, 3]), (2, 7, [0]), (0, 0, [3])]:
        play(m, [action])
        check(m, trip_length=trip_length, allowed=allowed)


def test_fits_is_exact_on_whole_numbers_at_any_scale():
    """1e-5 of 120000 would be 1.2: the cap of 0.5 refuses one unit too much."""
    assert fits(12, 12) and fits(120000, 120000) and fits(0.500009, 0.5) and fits(1e30, math.inf)
    assert not fits(120001, 120000) and not fits(0.500011, 0.5)
    big = [(10000 * x, 10000 * y) for x, y in SQUARE]
    assert enumerate_sequences(lambda: CVRPModel(big, [0, 5, 5, 5], 10, max_length=120000)) == (18, -180000)
    assert enumerate_sequences(lambda: CVRPModel(big, [0, 5, 5, 5], 10, max_length=119999)) == (6, -240000)
    m = CVRPModel(SQUARE, [0, 500000, 500001, 500000], 1000000)
    play(m, [1])
    assert m.allowed() == [0, 3]


def test_cvrp_asymmetric_matrix_limits_one_direction():
    """0-1-2-0 is 1 + 3 + 2 = 6 and fits 8; 0-2-1-0 is 2 + 4 + 5 = 11 and does not."""
    m = CVRPModel(None, [0, 1, 1], 2, metric="matrix", dist=[[0, 1, 2], [5, 0, 3], [2, 4, 0]], max_length=8)
    assert enumerate_sequences(lambda: m) == (3, -6)
    play(m, [2])
    assert m.allowed() == [0]
    assert play(m, [0, 1, 0]) == [-2, -1, -5]


def test_cvrp_illegal_actions_only_count():
    """Depot at the depot, a visited customer, one over capacity and indices out of range leave all but i as it was."""
    m = cvrp()
    m.step(0)
    check(m, illegal=True, i=1, trips=0, reward=0, terminated=False, allowed=[1, 2, 3])
    play(m, [1, 2])
    before = snapshot(m)
    for k, action in enumerate([1, 3, -1, 4], start=4):
        m.step(action)
        assert snapshot(m) == {**before, "i": k, "reward": 0, "illegal": True}


def test_cvrp_truncation_leaves_the_tour_open():
    """Two steps: 3 and 4 driven, no leg home, load kept."""
    m = cvrp(max_steps=2)
    assert play(m, [1, 2]) == [-3, -4]
    check(m, truncated=True, terminated=False, allowed=[0], tour_length=7, trip_length=7, load=10, trips=0)
    assert play(cvrp(max_steps=3, reward="terminal"), [1, 0, 2]) == [0, 0, -11]


def test_cvrp_padding_is_no_customer():
    """n_nodes 3 is the depot and customers 1, 2; the row ends without 3, whose data mean nothing."""
    m = cvrp(n_nodes=3, demand_units=[0, 5, 5, 99])
    check(m, allowed=[1, 2])
    m.step(3)
    check(m, illegal=True)
    assert play(m, [1, 2, 0]) == [-3, -4, -5]
    check(m, terminated=True, visited=[1, 2], trips=1, tour_length=12)


def test_customer_at_the_depot_still_needs_its_trip():
    """Legs of 0: the customer is served and the return counts as a trip."""
    m = CVRPModel([(1, 1), (1, 1)], [0, 1], 1)
    assert play(m, [1, 0]) == [0, 0]
    check(m, terminated=True, trips=1, tour_length=0, visited=[1])


def test_stranded_customers_are_refused():
    """Demand 5 over capacity 4; customer 2 is 10 there and back."""
    for kw in ({"capacity": 4}, {"max_length": 9.9}):
        with pytest.raises(ValueError, match="cannot be served"):
            cvrp(**kw)
