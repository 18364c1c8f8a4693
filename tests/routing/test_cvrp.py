"""The CVRP world by hand: each field after each step, the limits of capacity and trips, padding, refusals.

Most tests play a rectangle: depot (0, 0), customers (3, 0), (3, 4), (0, 4) with demands 5, 5, 5 and trucks of 10.
Distances 0-1 3, 0-2 5, 0-3 4, 1-2 4, 1-3 5, 2-3 3.
"""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadInstance, ConfigError, IllegalAction
from milkrun.solvers.policies import nearest

RECTANGLE = np.array([[0, 0], [3, 0], [3, 4], [0, 4]], np.float32)
INSTANCE = {"locs": RECTANGLE, "demand_units": [0, 5, 5, 5], "capacity": 10}
OPTIONS = ("metric", "reward", "max_steps", "illegal")


def cvrp(**changes):
    """One row on the rectangle with some changes, at its start; an ended row does not change."""
    options = {name: changes.pop(name) for name in OPTIONS if name in changes}
    given = {name: np.asarray(value)[None] for name, value in {**INSTANCE, **changes}.items()}
    if "dist" in given:
        given.pop("locs")
        options["metric"] = "matrix"
    num_loc = given["demand_units"].shape[1] - 1
    world = milkrun.make("milkrun/CVRP-v0", num_envs=1, num_loc=num_loc, autoreset="disabled", **options)
    world.reset(instance=given)
    return world


def play(world, *actions):
    """The rewards of these actions, none of them illegal."""
    rewards = []
    for action in actions:
        world.step(np.array([action]))
        assert not world.illegal[0]
        rewards.append(float(world.reward[0]))
    return rewards


def check(world, **expected):
    """Compares fields of row 0; masks and `visited` as the True nodes, `tour` as the taken actions."""
    actual = {}
    for name in expected:
        value = world.solution()[0, : world.tour_len[0]] if name == "tour" else getattr(world, name)[0]
        if value.ndim and value.dtype == np.bool_:
            value = np.flatnonzero(value)
        actual[name] = value.tolist()
    assert actual == expected


def test_episode_field_by_field():
    """Trips 2-3 and 1: 5 + 3 + 4 and 3 + 3, the optimum 18."""
    w = cvrp()
    check(w, current_node=0, visited=[], action_mask=[1, 2, 3], load=0, trips=0, trip_length=0, tour_length=0, i=0)
    w.step([2])
    check(w, current_node=2, visited=[2], action_mask=[0, 1, 3], load=5, trip_length=5, tour_length=5, reward=-5, i=1)
    w.step([3])
    check(w, current_node=3, visited=[2, 3], action_mask=[0], load=10, trip_length=8, tour_length=8, reward=-3, trips=0)
    w.step([0])
    check(w, current_node=0, visited=[2, 3], action_mask=[1], load=0, trip_length=0, tour_length=12, reward=-4, trips=1)
    w.step([1])
    check(w, current_node=1, visited=[1, 2, 3], action_mask=[0], load=5, trip_length=3, tour_length=15, reward=-3)
    check(w, trips=1, terminated=False, objective=-15)
    w.step([0])
    check(w, current_node=0, visited=[1, 2, 3], action_mask=[0], load=0, trip_length=0, tour_length=18, reward=-3)
    check(w, trips=2, terminated=True, truncated=False, illegal=False, i=5, tour=[2, 3, 0, 1, 0], objective=-18)


@pytest.mark.parametrize(
    ("demand", "capacity", "allowed"),
    [
        ([0, 5, 5, 5], 10, [0, 2, 3]),
        ([0, 5, 5, 6], 10, [0, 2]),
        ([0, 5, 5, 5], 9, [0]),
        ([0, 500_000, 500_001, 500_000], 1_000_000, [0, 3]),
        ([0, 2**29, 2**29 + 1, 2**29], 2**30, [0, 3]),
        ([0, 1, 2**31 - 1, 2**31 - 2], 2**31 - 1, [0, 3]),
    ],
)
def test_mask_at_the_limit_of_capacity(demand, capacity, allowed):
    """After customer 1 a demand that exactly fills the truck is allowed, one unit more is not, at any scale."""
    w = cvrp(demand_units=demand, capacity=capacity)
    play(w, 1)
    check(w, action_mask=allowed)


@pytest.mark.parametrize(
    ("scale", "max_length", "allowed"),
    [
        (1, 12, [0, 2, 3]),  # every pair is a trip of 12
        (1, 11.9999, [0, 2, 3]),  # within the tolerance of 1e-5 of the limit
        (1, 11.9998, [0]),
        (1 / 16, 0.749991, [0, 2, 3]),  # below 1 the tolerance is 1e-5
        (1 / 16, 0.749989, [0]),
        (10_000, 120_000, [0, 2, 3]),
        (10_000, 119_999, [0]),  # 1e-5 of the limit would be 1.2; the tolerance is below 0.5
    ],
)
def test_mask_at_the_trip_limit(scale, max_length, allowed):
    """After customer 1 another one is allowed if the trip over it and home is within the limit."""
    w = cvrp(locs=scale * RECTANGLE, max_length=np.float32(max_length))
    play(w, 1)
    check(w, action_mask=allowed)


def test_trip_limit_restarts_at_the_depot():
    """Limit 12: after 1-2 (7 so far) customer 3 would make 14; after the return it is allowed again."""
    w = cvrp(capacity=15, max_length=np.float32(12))
    for action, trip_length, allowed in ((1, 3, [0, 2, 3]), (2, 7, [0]), (0, 0, [3])):
        play(w, action)
        check(w, trip_length=trip_length, action_mask=allowed)


def test_trip_limit_may_forbid_one_direction():
    """0-1-2-0 is 1 + 3 + 2 = 6 and fits 8; 0-2-1-0 is 2 + 4 + 5 = 11 and does not."""
    dist = [[0, 1, 2], [5, 0, 3], [2, 4, 0]]
    w = cvrp(dist=dist, demand_units=[0, 1, 1], capacity=2, max_length=np.float32(8))
    assert play(w, 1, 2, 0) == [-1, -3, -2]
    w = cvrp(dist=dist, demand_units=[0, 1, 1], capacity=2, max_length=np.float32(8))
    play(w, 2)
    check(w, action_mask=[0])


@pytest.mark.parametrize("metric", ["euclid", "manhattan", "round", "ceil", "trunc1", "haversine", "matrix"])
def test_customer_out_of_reach_is_refused(metric):
    """Customer 2 alone is a trip of 2 d(0, 2); a limit just above is valid, one just below is an error that names
    it."""
    alone = {"euclid": 10, "manhattan": 14, "round": 10, "ceil": 10, "trunc1": 100, "haversine": 1111.6, "matrix": 10}
    places = {"locs": RECTANGLE, "metric": metric}
    if metric == "matrix":
        places = {"dist": [[0, 1, 4, 1], [1, 0, 1, 1], [6, 1, 0, 1], [1, 1, 1, 0]]}
    w = cvrp(**places, max_length=np.float32(1.001 * alone[metric]))
    check(w, action_mask=[1, 2, 3])
    with pytest.raises(BadInstance, match=r"row 0: customer 2: .* over max_length"):
        cvrp(**places, max_length=np.float32(0.999 * alone[metric]))


@pytest.mark.parametrize("action", [1, 3, -1, 4, 2**40])
def test_illegal_action_only_counts(action):
    """A visited customer, one over capacity, invalid nodes: only i, reward and the flag change."""
    w = cvrp()
    play(w, 1, 2)
    before = w.state_dict()
    w.step([action])
    after = w.state_dict()
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {"i", "reward", "illegal"}
    check(w, i=3, reward=0, illegal=True)


def test_depot_is_masked_at_the_depot():
    """There are no empty trips."""
    w = cvrp()
    w.step([0])
    check(w, illegal=True, i=1, trips=0, terminated=False, action_mask=[1, 2, 3])


@pytest.mark.parametrize(
    ("played", "action", "reason"),
    [
        ((), 0, "the truck is at the depot"),
        ((1,), 1, "visited"),
        ((1, 2), 3, "over capacity: 10 [+] 5 > 10"),
        ((), 4, r"out of range 0\.\.3"),
        ((2,), 1, "too long: the trip would be over 11"),
    ],
)
def test_illegal_action_raises_with_its_reason(played, action, reason):
    """illegal="raise" names row, action and reason, and changes nothing."""
    w = cvrp(illegal="raise", **({"max_length": np.float32(11)} if "long" in reason else {}))
    play(w, *played)
    with pytest.raises(IllegalAction, match=f"row 0: action {action}: {reason}"):
        w.step([action])
    check(w, i=len(played))


def test_truncation_leaves_the_tour_open():
    """Two steps: 3 and 4 driven, no leg home, the load stays; terminal charges the driven length. auto is 4 (n + 1)."""
    w = cvrp(max_steps=2)
    assert play(w, 1, 2) == [-3, -4]
    check(w, truncated=True, terminated=False, action_mask=[0], tour_length=7, trip_length=7, load=10, trips=0)
    assert play(cvrp(max_steps=3, reward="terminal"), 1, 0, 2) == [0, 0, -11]
    w = cvrp()
    for step in range(16):
        check(w, truncated=False, i=step)
        w.step([0])
    check(w, truncated=True, i=16)


def test_terminal_reward_pays_all_at_the_end():
    """The optimum of 18 on the last step."""
    assert play(cvrp(reward="terminal"), 2, 3, 0, 1, 0) == [0, 0, 0, 0, -18]


def test_padding_is_no_customer():
    """With n_nodes = 3 customer 3 does not exist, for any demand; the row ends without it."""
    w = cvrp(n_nodes=3, demand_units=[0, 5, 5, 99])
    check(w, action_mask=[1, 2])
    w.step([3])
    check(w, illegal=True)
    assert play(w, 1, 2, 0) == [-3, -4, -5]
    check(w, terminated=True, visited=[1, 2], trips=1, tour_length=12)


def test_one_customer():
    """There and back; also at the depot's place, which still requires a trip."""
    w = cvrp(locs=RECTANGLE[:2], demand_units=[0, 1])
    assert play(w, 1, 0) == [-3, -3]
    w = cvrp(locs=[[1, 1], [1, 1]], demand_units=[0, 1])
    assert play(w, 1, 0) == [0, 0]
    check(w, terminated=True, trips=1, tour_length=0, visited=[1])


def test_depot_may_be_given_separately():
    """`depot` with customers-only arrays is the same instance."""
    apart = {"depot": RECTANGLE[None, 0], "locs": RECTANGLE[None, 1:], "demand_units": [[5, 5, 5]], "capacity": [10]}
    world = milkrun.make("milkrun/CVRP-v0", num_envs=1, num_loc=3)
    world.reset(instance=apart)
    assert world.locs[0].tolist() == RECTANGLE.tolist()
    assert world.demand_units[0].tolist() == [0, 5, 5, 5]
    assert play(world, 2, 3, 0, 1, 0) == [-5, -3, -4, -3, -3]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"demand_units": [0, 5, 11, 5]}, r"demand_units\[2\] = 11: over the capacity 10"),
        ({"demand_units": [0, 5, -1, 5]}, r"demand_units\[2\] = -1: must be >= 0"),
        ({"demand_units": [0, 5, 0, 5]}, r"demand_units\[2\] = 0: must be 1..capacity"),
        ({"demand_units": [1, 5, 5, 5]}, r"demand_units\[0\] = 1: the depot's is 0"),
        ({"capacity": 0}, "capacity = 0: must be >= 1"),
        ({"max_length": np.float32(np.nan)}, "max_length = nan"),
    ],
)
def test_wrong_instances_are_refused(wrong, said):
    """The message has the place and the rule."""
    with pytest.raises(BadInstance, match=f"row 0: {said}"):
        cvrp(**wrong)


@pytest.mark.parametrize(("n", "capacity"), [(20, 30), (50, 40), (100, 50), (12, 20), (13, 25), (35, 33), (5000, 150)])
def test_capacity_follows_the_literature(n, capacity):
    """The listed size, else the nearest; 35 lies between 30 and 40 and uses the smaller."""
    world = milkrun.make("milkrun/CVRP-v0", num_envs=1, num_loc=n)
    world.reset(seed=0)
    assert world.capacity[0] == capacity


def test_capacity_below_the_largest_demand_is_refused():
    """A customer of 9 would fit no truck of 8; vehicle_cap is a synonym."""
    with pytest.raises(ConfigError, match="capacity = 8 is below max_demand = 9"):
        milkrun.make("milkrun/CVRP-v0", num_envs=1, vehicle_cap=8)


def roll_out(world):
    """The actions of the nearest neighbour, to the end."""
    while not world.terminated.all():
        world.step(nearest(world))
    return world.solution()


def drawn(rng, n):
    demand = np.concatenate([[0], rng.integers(1, 10, n)])
    return {"locs": rng.random((n + 1, 2)).astype(np.float32), "demand_units": demand, "capacity": 30}


def test_scaling_the_places_scales_the_lengths():
    """By 4 only the exponent changes, with the trip limit scaled too; by 1000 to the precision of the sum."""
    one = {**drawn(np.random.default_rng(1), 30), "max_length": np.float32(3)}
    worlds = [cvrp(**{**one, "locs": s * one["locs"], "max_length": s * one["max_length"]}) for s in (1, 4, 1000)]
    plans = [roll_out(w).tolist() for w in worlds]
    assert plans[0] == plans[1] == plans[2]
    assert worlds[1].tour_length == 4 * worlds[0].tour_length
    assert worlds[2].tour_length == pytest.approx(1000 * worlds[0].tour_length, rel=1e-6)


def test_relabelling_the_customers_relabels_the_plan():
    """Customer j becomes label[j]; the depot stays 0."""
    rng = np.random.default_rng(2)
    one = drawn(rng, 30)
    label = np.concatenate([[0], 1 + rng.permutation(30)])
    other = {"locs": np.empty_like(one["locs"]), "demand_units": np.empty_like(one["demand_units"]), "capacity": 30}
    for name in ("locs", "demand_units"):
        other[name][label] = one[name]
    first, second = cvrp(**one), cvrp(**other)
    assert label[roll_out(first)].tolist() == roll_out(second).tolist()
    assert first.tour_length == second.tour_length


@pytest.mark.parametrize(("metric", "unit"), [("round", 1), ("ceil", 1), ("trunc1", 10)])
def test_a_leg_too_long_for_64_bits_does_not_overflow(metric, unit):
    """From (0, 0) to (0, 3e20) and back is 6e20, and 2**63 is 9.2e18."""
    world = milkrun.make("milkrun/CVRP-v0", 1, num_loc=1, metric=metric, autoreset="disabled")
    instance = {"locs": [[[0, 0], [0, 3e20]]], "demand_units": [[0, 1]], "capacity": [5]}
    world.reset(instance=instance)
    world.step([1])
    world.step([0])
    assert world.objective[0] == pytest.approx(-6e20 * unit, rel=1e-6)


def test_an_invalid_latitude_is_refused():
    """Given or from a function; beyond 90 degrees the haversine has no meaning and its root may be of a negative
    number."""
    instance = {"locs": [[[0, 0], [90.5, 100]]], "demand_units": [[0, 1]], "capacity": [5]}
    with pytest.raises(BadInstance, match=r"row 0: locs\[1, 0\] = 90\.5: a latitude lies within -90\.\.90"):
        milkrun.make("milkrun/CVRP-v0", 1, num_loc=1, metric="haversine").reset(instance=instance)
    law = {"metric": "haversine", "loc_distribution": lambda rng, n: np.full((n, 2), 100.0)}
    with pytest.raises(ConfigError, match=r"gave the latitude 100\.0: under metric='haversine' it must lie "):
        milkrun.make("milkrun/TSP-v0", 1, num_loc=4, **law).reset()
    milkrun.make("milkrun/TSP-v0", 1, num_loc=4, metric="haversine").reset(instance={"locs": [[[89, 170]] * 4]})
