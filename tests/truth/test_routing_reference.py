"""The compiled worlds agree with the scalar models of tests/reference and with the checkers of tasks.

The models were written from the rules alone. Every field of every row is compared after every step, on masked and on
wild actions, and must have the same bits. Only the reward under reward="terminal" may differ, by 1e-5 of its size: the
world sums its rewards, the model reads the driven length, each rounded in its own order.
"""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.routing.tasks import CVRP, TSP
from tests.reference.cvrp import CVRPModel
from tests.reference.tsp import TSPModel, distance_table

METRICS = ("euclid", "manhattan", "round", "ceil", "trunc1", "haversine", "matrix")
WILD = (-(2**63), -(2**31), -1, 2**16, 2**31, 2**32, 2**63 - 1)

NODES, ROWS, TURNS = 8, 16, 40
SHARED = ("current_node", "visited", "tour_length", "i", "action_mask", "reward", "terminated", "truncated", "illegal")
FIELDS = {"TSP": (*SHARED, "first_node"), "CVRP": (*SHARED, "load", "trip_length", "trips")}


def places(metric, rng, count):
    """Coordinates on a scale where the metric's rounding shows; degrees for haversine."""
    low, high = {"euclid": (0, 1), "haversine": ((-80, -180), (80, 180)), "trunc1": (0, 5)}.get(metric, (-20, 20))
    return rng.uniform(low, high, (count, NODES, 2)).astype(np.float32)


def matrices(rng, count):
    """Asymmetric, zero diagonal, without triangle inequality."""
    return (rng.random((count, NODES, NODES)) * (1 - np.eye(NODES))).astype(np.float32)


def instances(metric, rng, *, padded, loads=False, limited=False):
    """Half as many instances as rows: two rows on each."""
    count = ROWS // 2
    one = {"instance_row": np.arange(ROWS) % count}
    one |= {"dist": matrices(rng, count)} if metric == "matrix" else {"locs": places(metric, rng, count)}
    one["n_nodes"] = rng.integers(2, NODES + 1, count) if padded else np.full(count, NODES)
    if loads:
        one["demand_units"] = rng.integers(1, 10, (count, NODES))
        one["demand_units"][:, 0] = 0
        one["capacity"] = rng.integers(9, 25, count)
    if limited:
        one["max_length"] = np.array([trip_limit(metric, one, q, rng.uniform(1, 2)) for q in range(count)], np.float32)
    return one


def trip_limit(metric, one, q, slack):
    """Every customer fits a trip of its own, with some slack."""
    d = np.array(distance_table(metric, *((one[k][q] if k in one else None) for k in ("locs", "dist"))))
    return slack * (d[0] + d[:, 0])[: one["n_nodes"][q]].max()


def models(make_model, one, **options):
    """One scalar model a row, each on the instance of its row."""
    return [
        make_model(**{k: v[q] for k, v in {"locs": [None] * ROWS, **one}.items() if k != "instance_row"}, **options)
        for q in one["instance_row"]
    ]


def choose(model, rng, wild):
    """An allowed action, or with the probability `wild` any node, allowed or not, or no node at all."""
    if rng.random() >= wild:
        return int(rng.choice(model.allowed()))
    return int(rng.integers(-1, NODES + 2)) if rng.random() < 0.8 else int(rng.choice(WILD))


def compare(world, rows, close):
    """All fields of all rows are equal to the bit, except those in `close`."""
    kind = type(world).__name__
    for name in FIELDS[kind]:
        ours = getattr(world, name)
        theirs = np.array([getattr(row, name) for row in rows])
        agree = np.isclose(ours, theirs, rtol=1e-5, atol=0) if name in close else ours == theirs
        assert agree.all(), f"{name} of row {np.argwhere(~agree)[0]}: world {ours[~agree]}, model {theirs[~agree]}"
    taken = world.solution()
    for b, row in enumerate(rows):
        assert world.tour_len[b] == len(row.tour)
        assert taken[b, : len(row.tour)].tolist() == row.tour
        assert not taken[b, len(row.tour) :].any()


def walk_along(world_id, make_model, one, seed, *, wild, reward, max_steps, metric, **options):
    """Plays the same actions in both; an ended row restarts on the next turn. Counts the raised flags."""
    num_loc = NODES - (world_id == "milkrun/CVRP-v0")
    settings = {"reward": reward, "metric": metric, **options}
    world = milkrun.make(world_id, num_envs=ROWS, num_loc=num_loc, max_steps=max_steps, **settings)
    world.reset(instance=one)
    rows = models(make_model, one, max_steps=4 * (num_loc + 1) if max_steps == "auto" else max_steps, **settings)
    close = ("reward",) if reward == "terminal" else ()
    compare(world, rows, close)
    rng = np.random.default_rng(seed)
    seen = {"illegal": 0, "terminated": 0, "truncated": 0}
    for _ in range(TURNS):
        actions = [choose(row, rng, wild) for row in rows]
        world.step(np.array(actions))
        for row, action in zip(rows, actions, strict=True):
            if row.finished:
                row.reset()
            else:
                row.step(action)
        compare(world, rows, close)
        for name in seen:
            seen[name] += sum(getattr(row, name) for row in rows)
    return seen


# share of wild actions, reward, max_steps, whether sizes differ
RUNS = [
    (0.0, "dense", "auto", False),
    (0.0, "terminal", 9, True),
    (0.4, "dense", None, True),
    (0.4, "terminal", "auto", False),
    (0.9, "dense", 12, True),
]


@pytest.mark.truth
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("start", ["depot", "free"])
def test_tsp_world_equals_the_scalar_model(start, metric):
    """2 x 7 x 5 runs of 640 turns: 44,800 in all, with ends of both kinds and illegal actions of every kind."""
    total = {"illegal": 0, "terminated": 0, "truncated": 0}
    for seed, (wild, reward, max_steps, padded) in enumerate(RUNS):
        one = instances(metric, np.random.default_rng([seed, METRICS.index(metric)]), padded=padded)
        seen = walk_along(
            "milkrun/TSP-v0",
            TSPModel,
            one,
            seed,
            wild=wild,
            reward=reward,
            max_steps=max_steps,
            metric=metric,
            start=start,
        )
        assert (seen["illegal"] > 0) == (wild > 0)
        total = {name: total[name] + seen[name] for name in total}
    assert total["illegal"] > 300 and total["terminated"] > 150 and total["truncated"] > 10, total


@pytest.mark.truth
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("limited", [False, True])
def test_cvrp_world_equals_the_scalar_model(limited, metric):
    """As above, with and without a trip limit that forbids customers before the truck is full."""
    total = {"illegal": 0, "terminated": 0, "truncated": 0}
    for seed, (wild, reward, max_steps, padded) in enumerate(RUNS):
        rng = np.random.default_rng([seed, METRICS.index(metric), 1])
        one = instances(metric, rng, padded=padded, loads=True, limited=limited)
        seen = walk_along(
            "milkrun/CVRP-v0", CVRPModel, one, seed, wild=wild, reward=reward, max_steps=max_steps, metric=metric
        )
        assert (seen["illegal"] > 0) == (wild > 0)
        total = {name: total[name] + seen[name] for name in total}
    assert total["illegal"] > 300 and total["terminated"] > 100 and total["truncated"] > 10, total


def play_pair(world_id, rows, seed, **options):
    """A random masked episode a row, the same actions under both rewards: the dense world and both sums of rewards."""
    dense, terminal = (
        milkrun.make(world_id, num_envs=rows, seed=seed, reward=reward, autoreset="disabled", **options)
        for reward in ("dense", "terminal")
    )
    earned = np.zeros((2, rows))
    dense.reset()
    terminal.reset()
    live, turn = np.arange(rows), 0
    while len(live):
        actions = dense.sample_actions(seed, turn)[live]
        for world, total in zip((dense, terminal), earned, strict=True):
            world.step(actions, rows=live)
            total[live] += world.reward[live]
        live, turn = np.flatnonzero(~(dense.terminated | dense.truncated)), turn + 1
    assert terminal.terminated.all()
    return dense, *earned


def compare_with_checker(world, paid, paid_at_end, checker, dataset):
    """The checker accepts the episodes, and both returns are its cost."""
    cost, _, _ = checker.get_costs(dataset, world.solution())
    assert world.terminated.all() and not world.illegal.any()
    assert (abs(paid + cost) <= 1e-4 * np.maximum(1, cost)).all()
    assert (abs(paid_at_end + cost) <= 1e-4 * np.maximum(1, cost)).all()
    assert (abs(paid_at_end - paid) <= 1e-4).all()
    assert (abs(world.objective + cost) <= 1e-4 * np.maximum(1, cost)).all()


@pytest.mark.slow
@pytest.mark.truth
@pytest.mark.parametrize("n", [2, 7, 20, 50])
@pytest.mark.parametrize("start", ["depot", "free"])
def test_tsp_return_is_the_checkers_cost(start, n):
    """100,000 random masked episodes in all, 12,500 of each start and size."""
    world, *paid = play_pair("milkrun/TSP-v0", 12_500, seed=n, num_loc=n, start=start)
    compare_with_checker(world, *paid, TSP, {"locs": world.locs})


@pytest.mark.slow
@pytest.mark.truth
@pytest.mark.parametrize("n", [1, 2, 7, 20, 50])
@pytest.mark.parametrize("max_length", [None, 3.0])
def test_cvrp_return_is_the_checkers_cost(max_length, n):
    """100,000 in all; 3.0 is little more than the longest way there and back in the unit square, 2 sqrt 2."""
    world, *paid = play_pair("milkrun/CVRP-v0", 10_000, seed=n, num_loc=n, max_length=max_length)
    dataset = {name: getattr(world, name) for name in ("locs", "demand_units", "capacity")}
    compare_with_checker(world, *paid, CVRP, dataset | ({} if max_length is None else {"max_length": world.max_length}))
