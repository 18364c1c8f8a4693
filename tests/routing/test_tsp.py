"""The TSP world by hand: each field after each step, both starts, metrics, padding, limits, and refusals.

Most tests play a rectangle: node 0 at (0, 0), then (3, 0), (3, 4), (0, 4). Distances 0-1 3, 0-2 5, 0-3 4, 1-2 4,
1-3 5, 2-3 3.
"""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadInstance, ConfigError, IllegalAction, ShapeError
from milkrun.solvers.policies import nearest
from tests.states import check_play

RECTANGLE = np.array([[0, 0], [3, 0], [3, 4], [0, 4]], np.float32)


def tsp(locs=RECTANGLE, dist=None, n_nodes=None, **options):
    """One row on a given instance, at its start; an ended row does not change."""
    given = {"locs": locs, "dist": dist, "n_nodes": n_nodes}
    given = {name: np.asarray(value)[None] for name, value in given.items() if value is not None}
    num_loc = len(locs if dist is None else dist)
    if dist is not None:
        given.pop("locs")
        options["metric"] = "matrix"
    world = milkrun.make("milkrun/TSP-v0", num_envs=1, num_loc=num_loc, autoreset="disabled", **options)
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


def test_episode_from_the_depot_field_by_field():
    """Around the rectangle, 3 + 4 + 3 + 4; node 0 is allowed last and ends the episode."""
    w = tsp()
    check(w, current_node=0, first_node=0, visited=[0], action_mask=[1, 2, 3], tour_length=0, reward=0, i=0, tour=[])
    w.step([1])
    check(w, current_node=1, first_node=0, visited=[0, 1], action_mask=[2, 3], tour_length=3, reward=-3, i=1, tour=[1])
    w.step([2])
    check(w, current_node=2, visited=[0, 1, 2], action_mask=[3], tour_length=7, reward=-4, i=2, objective=-7)
    w.step([3])
    check(w, current_node=3, visited=[0, 1, 2, 3], action_mask=[0], tour_length=10, reward=-3, terminated=False)
    w.step([0])
    check(w, current_node=0, visited=[0, 1, 2, 3], action_mask=[0], tour_length=14, reward=-4, i=4, tour=[1, 2, 3, 0])
    check(w, terminated=True, truncated=False, illegal=False, objective=-14)


def test_episode_from_a_free_start_field_by_field():
    """Start at 2 without cost; the fourth action costs 0-3 and the way back 3-2."""
    w = tsp(start="free")
    check(w, current_node=0, first_node=0, visited=[], action_mask=[0, 1, 2, 3], tour_length=0, i=0)
    w.step([2])
    check(w, current_node=2, first_node=2, visited=[2], action_mask=[0, 1, 3], tour_length=0, reward=0, i=1, tour=[2])
    w.step([1])
    check(w, current_node=1, first_node=2, visited=[1, 2], action_mask=[0, 3], tour_length=4, reward=-4, i=2)
    w.step([0])
    check(w, current_node=0, first_node=2, visited=[0, 1, 2], action_mask=[3], tour_length=7, reward=-3, i=3)
    check(w, terminated=False)
    w.step([3])
    check(w, current_node=3, first_node=2, visited=[0, 1, 2, 3], action_mask=[0], tour_length=14, reward=-7)
    check(w, terminated=True, truncated=False, i=4, tour=[2, 1, 0, 3], objective=-14)


@pytest.mark.parametrize(("start", "actions", "rewards"), [("depot", (1, 0), [-5, -5]), ("free", (1, 0), [0, -10])])
def test_two_nodes(start, actions, rewards):
    """There and back; with a free start both legs count for the second action."""
    w = tsp([[0, 0], [3, 4]], start=start)
    assert play(w, *actions) == rewards
    check(w, terminated=True, tour_length=10)


def test_terminal_reward_pays_all_at_the_end():
    """Only the last step has a reward, at home or at the step limit."""
    assert play(tsp(reward="terminal"), 1, 2, 3, 0) == [0, 0, 0, -14]
    assert play(tsp(reward="terminal", start="free"), 2, 1, 0, 3) == [0, 0, 0, -14]
    assert play(tsp(reward="terminal", max_steps=2), 1, 2) == [0, -7]


@pytest.mark.parametrize("action", [0, 1, -1, 4, 2**40, -(2**40)])
def test_illegal_action_only_counts(action):
    """The way home too early, a visited node, invalid nodes: only i, reward and the flag change."""
    w = tsp()
    play(w, 1)
    before = w.state_dict()
    w.step([action])
    after = w.state_dict()
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {"i", "reward", "illegal"}
    check(w, i=2, reward=0, illegal=True)
    play(w, 2)
    check(w, i=3, tour=[1, 2])


@pytest.mark.parametrize(
    ("start", "action", "reason"),
    [("depot", 0, "closed until"), ("depot", 1, "visited"), ("free", 1, "visited"), ("depot", 4, "out of range 0..3")],
)
def test_illegal_action_raises_with_its_reason(start, action, reason):
    """illegal="raise" names row, action and reason, and changes nothing."""
    w = tsp(start=start, illegal="raise")
    play(w, 1)
    with pytest.raises(IllegalAction, match=rf"row 0: action {action}: .*{reason}"):
        w.step([action])
    check(w, i=1, tour=[1])


def test_truncates_at_max_steps():
    """Illegal steps count; a tour complete on its last step is terminated, not truncated. auto is 4 (n + 1)."""
    w = tsp(max_steps=3)
    play(w, 1)
    w.step([1])
    check(w, truncated=False)
    w.step([2])
    check(w, truncated=True, terminated=False, i=3, tour_length=7, reward=-4, action_mask=[0])
    w = tsp(max_steps=4)
    play(w, 1, 2, 3, 0)
    check(w, terminated=True, truncated=False)
    w = tsp()
    for step in range(20):
        check(w, truncated=False, i=step)
        w.step([0])
    check(w, truncated=True, i=20)


@pytest.mark.parametrize(("start", "rewards"), [("depot", [-5, -4, -3]), ("free", [0, -4, -8])])
def test_padding_is_no_node(start, rewards):
    """With n_nodes = 3 nodes 3 and 4 are never allowed, and the tour ends without them."""
    w = tsp([*RECTANGLE, [100, 100]], n_nodes=3, start=start)
    check(w, action_mask=[1, 2] if start == "depot" else [0, 1, 2])
    w.step([3])
    check(w, illegal=True)
    assert play(w, 2, 1, 0) == rewards
    check(w, terminated=True, visited=[0, 1, 2], tour_length=12, tour=[2, 1, 0])


def test_matrix_is_read_from_row_to_column():
    """0-1-2-0 is 1 + 2 + 3, the reverse 10 + 30 + 20."""
    dist = [[0, 1, 10], [20, 0, 2], [3, 30, 0]]
    assert play(tsp(dist=dist), 1, 2, 0) == [-1, -2, -3]
    assert play(tsp(dist=dist), 2, 1, 0) == [-10, -30, -20]
    assert play(tsp(dist=dist, start="free"), 1, 2, 0) == [0, -2, -4]


@pytest.mark.parametrize(
    ("metric", "lengths"),
    [
        ("euclid", (2.5, np.float32(2**0.5), 5)),
        ("manhattan", (3.5, 2, 7)),
        ("round", (3, 1, 5)),
        ("ceil", (3, 2, 5)),
        ("trunc1", (25, 14, 50)),
    ],
)
def test_metric(metric, lengths):
    """(1.5, 2) has distance 2.5 and rounds up, never to the even 2; (1, 1) has 1.414, (3, 4) exactly 5."""
    for point, length in zip([(1.5, 2), (1, 1), (3, 4)], lengths, strict=True):
        assert play(tsp([[0, 0], point], metric=metric), 1, 0) == [-length, -length]


@pytest.mark.parametrize(
    ("p", "q", "km"),
    [((38.7223, -9.1393), (41.1579, -8.6291), 274.296), ((0, 0), (0, 1), 111.195), ((0, 30), (90, 0), 10007.557)],
)
def test_haversine_kilometres(p, q, km):
    """Lisbon to Porto, one degree on the equator, equator to pole; symmetric."""
    there, back = play(tsp([p, q], metric="haversine"), 1, 0)
    assert there == back == pytest.approx(-km, abs=1e-3)


def test_legs_are_float64_until_stored():
    """1 and a leg of 2**-24 (1 + 2**-27) round up to 1 + 2**-23; a leg rounded to float32 first would be lost."""
    w = tsp([[0, 1], [0, 0], [2**-24, 2**-37]])
    play(w, 1, 2)
    check(w, tour_length=1 + 2**-23, reward=-(2**-24))


def test_solution_is_padded_with_0():
    """Rows after 1, 2 and 3 actions; without a record there is no solution."""
    w = milkrun.make("milkrun/TSP-v0", num_envs=3, seed=1, num_loc=5)
    w.reset()
    for action, rows in ((4, [0, 1, 2]), (2, [1, 2]), (1, [2])):
        w.step(np.full(len(rows), action), rows=rows)
    assert w.solution().tolist() == [[4, 0, 0], [4, 2, 0], [4, 2, 1]]
    w = milkrun.make("milkrun/TSP-v0", num_envs=1, record=False)
    w.reset()
    with pytest.raises(ConfigError, match="record"):
        w.solution()


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"locs": [[0, 0], [np.nan, 0]]}, BadInstance, r"row 0: locs\[1, 0\] = nan"),
        ({"locs": [[0, 0], [0, np.inf]]}, BadInstance, r"row 0: locs\[1, 1\] = inf"),
        ({"locs": [[0, 0], [1, 1]], "n_nodes": 1}, BadInstance, "n_nodes = 1: must be >= 2"),
        ({"locs": [[0, 0], [1, 1]], "n_nodes": 3}, BadInstance, "n_nodes = 3: must be <= 2"),
        ({"dist": [[0, 1], [-1, 0]]}, BadInstance, r"dist\[1, 0\] = -1.0: must be >= 0"),
        ({"dist": [[0, 1], [1, 2]]}, BadInstance, "diagonal"),
        ({"locs": [[0, 0, 0], [1, 1, 1]]}, ShapeError, r"\(1, 2, 2\)"),
    ],
)
def test_wrong_instances_are_refused(wrong, error, said):
    """The message has the place and the rule."""
    with pytest.raises(error, match=said):
        tsp(**wrong)


def roll_out(world):
    """The actions of the nearest neighbour, all rows to their end."""
    while not world.terminated.all():
        world.step(nearest(world))
    return world.solution()


def test_scaling_the_places_scales_the_lengths():
    """By 4 only the exponent changes; by 1000 to the precision of the sum."""
    locs = np.random.default_rng(1).random((30, 2)).astype(np.float32)
    one, four, thousand = (tsp(s * locs) for s in (1, 4, 1000))
    plans = [roll_out(w).tolist() for w in (one, four, thousand)]
    assert plans[0] == plans[1] == plans[2]
    assert four.tour_length == 4 * one.tour_length
    assert thousand.tour_length == pytest.approx(1000 * one.tour_length, rel=1e-6)


def test_relabelling_the_nodes_relabels_the_tour():
    """Node j becomes label[j]; node 0 stays the start of the tour."""
    rng = np.random.default_rng(2)
    locs = rng.random((30, 2)).astype(np.float32)
    label = np.concatenate([[0], 1 + rng.permutation(29)])
    moved = np.empty_like(locs)
    moved[label] = locs
    first, second = tsp(locs), tsp(moved)
    assert label[roll_out(first)].tolist() == roll_out(second).tolist()
    assert first.tour_length == second.tour_length


@pytest.mark.parametrize("options", [{}, {"action_mode": "node"}, {"moves": "3opt"}, {"metric": "trunc1"}], ids=str)
def test_costs_of_a_long_improvement_are_those_of_its_tours(options):
    """2,000 moves, one in ten of them any number: every state is accepted, though costs are rounded in each step."""
    world = milkrun.make("milkrun/TSPKopt-v0", 4, seed=1, num_loc=9, max_steps=5_000, autoreset="disabled", **options)
    world.reset()
    check_play(world, turns=2_000, wild=0.1)


def test_padding_in_an_initial_tour_is_refused():
    """4 of 6 nodes: 4 and 5 follow the tour, each at its own position, also in the best one."""
    world = milkrun.make("milkrun/TSPKopt-v0", 1, seed=1, num_loc=6)
    world.reset(instance={"locs": np.random.default_rng(1).random((1, 6, 2)), "n_nodes": [4]})
    saved = world.state_dict()
    world.load_state_dict(saved)
    tour = np.array([[0, 4, 1, 2, 3, 5]])
    for name in ("tour", "best_tour"):
        wrong = {**saved, name: tour.astype(np.int32)}
        if name == "tour":
            wrong["pos"] = np.argsort(tour, axis=1).astype(np.int32)
        with pytest.raises(BadInstance, match=rf"row 0: {name}\[4\] = 3: padding follows the tour"):
            world.load_state_dict(wrong)
