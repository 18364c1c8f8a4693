"""The k-opt world equals the scalar model of tests/reference, which cuts and joins lists by the rules.

Tours, positions, masks and flags must be equal; costs and rewards agree to 1e-5 (the model measures whole tours, the
world sums changes).
"""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.routing.tasks import TSP
from tests.reference.tsp_kopt import KoptModel, nearest_neighbour_tour

NODES, ROWS, LIMIT, TURNS = 8, 12, 30, 70


def instances(rng, metric):
    one = {"n_nodes": rng.integers(4, NODES + 1, ROWS)}
    if metric == "matrix":
        one["dist"] = (rng.random((ROWS, NODES, NODES)) * (1 - np.eye(NODES))).astype(np.float32)
    else:
        one["locs"] = rng.random((ROWS, NODES, 2)).astype(np.float32)
    return one


def model(world, one, b):
    """A model at the tour that the row starts with."""
    c = world.config
    locs, dist = (one[key][b] if key in one else None for key in ("locs", "dist"))
    return KoptModel(
        locs, world.tour[b].tolist(), c.moves, c.action_mode, c.reward_mode, c.metric, dist, one["n_nodes"][b], LIMIT
    )


def compare(world, b, row):
    assert world.tour[b].tolist() == list(row.tour)
    assert world.pos[b].tolist() == list(row.pos)
    assert world.best_tour[b].tolist() == list(row.best_tour)
    assert world.action_mask[b].tolist() == list(row.action_mask)
    assert world.truncated[b] == row.truncated and not world.terminated[b]
    for name in ("cost_current", "cost_best", "reward"):
        assert getattr(world, name)[b] == pytest.approx(getattr(row, name), abs=2e-5), name


@pytest.mark.truth
@pytest.mark.parametrize("metric", ["euclid", "matrix"])
@pytest.mark.parametrize("reward_mode", ["best", "current"])
@pytest.mark.parametrize(("moves", "mode"), [("2opt", "position"), ("2opt", "node"), ("3opt", "position")])
def test_moves_equal_the_scalar_model(moves, mode, reward_mode, metric):
    """Three starts of 840 turns each, a third of them with any action, across truncations; sizes differ."""
    illegal = 0
    for seed, init in enumerate(("random", "greedy", "identity")):
        rng = np.random.default_rng(seed)
        one = instances(rng, metric)
        world = milkrun.make(
            "milkrun/TSPKopt-v0",
            ROWS,
            num_loc=NODES,
            moves=moves,
            action_mode=mode,
            metric=metric,
            reward_mode=reward_mode,
            init=init,
            max_steps=LIMIT,
        )
        world.reset(instance=one)
        rows = [model(world, one, b) for b in range(ROWS)]
        if init == "greedy":
            for row in rows:
                assert row.tour[: row.n_nodes] == nearest_neighbour_tour(row.d, row.n_nodes)
        for turn in range(TURNS):
            move = world.decode(world.sample_actions(seed, turn))
            wild = rng.random(ROWS) < 1 / 3
            move = np.where(wild[:, None], rng.integers(-1, NODES + 1, move.shape), move)
            world.step(move)
            for b in range(ROWS):
                if rows[b].truncated:
                    rows[b] = model(world, one, b)
                else:
                    rows[b].step(tuple(move[b].tolist()))
                    assert world.illegal[b] == rows[b].illegal
                    illegal += rows[b].illegal
                compare(world, b, rows[b])
    assert illegal > 200


@pytest.mark.truth
@pytest.mark.parametrize("metric", ["euclid", "matrix"])
@pytest.mark.parametrize(("moves", "mode"), [("2opt", "position"), ("2opt", "node"), ("3opt", "position")])
def test_thousand_moves_keep_a_tour_and_its_cost(moves, mode, metric):
    """After 1,000 random legal moves of 64 rows the tour is a permutation with 0 first and the cost is the task's."""
    n = 30
    world = milkrun.make(
        "milkrun/TSPKopt-v0", 64, seed=5, num_loc=n, moves=moves, action_mode=mode, metric=metric, max_steps=None
    )
    world.reset()
    if metric == "matrix":
        rng = np.random.default_rng(0)
        world.reset(instance={"dist": (rng.random((64, n, n)) * (1 - np.eye(n))).astype(np.float32)})
    first = world.cost_current.copy()
    paid = np.zeros(64)
    for turn in range(1000):
        world.step(world.sample_actions(1, turn))
        paid += world.reward
    assert not world.illegal.any()
    assert (np.sort(world.tour, axis=1) == np.arange(n)).all() and (world.tour[:, 0] == 0).all()
    assert (np.take_along_axis(world.pos, world.tour.astype(np.int64), 1) == np.arange(n)).all()
    data = {"dist": world.dist} if metric == "matrix" else {"locs": world.locs}
    for tour, cost in ((world.tour, world.cost_current), (world.best_tour, world.cost_best)):
        np.testing.assert_allclose(TSP.get_costs(data, tour.astype(np.int64), metric=metric)[0], cost, atol=1e-4)
    np.testing.assert_allclose(paid, first - world.cost_best, atol=1e-4)


@pytest.mark.truth
def test_kopt_by_hand():
    """Tour 0, 2, 1, 3 of the corners of a 3 x 4 rectangle costs 18; (0, 2) makes it 14, (1, 3) 16; two legal moves."""
    corners = np.array([[[0, 0], [3, 0], [3, 4], [0, 4]]], np.float32)
    for move, cost in (((0, 2), 14), ((1, 3), 16)):
        world = milkrun.make("milkrun/TSPKopt-v0", 1, num_loc=4, init="identity", autoreset="disabled")
        world.reset(instance={"locs": corners[:, [0, 2, 1, 3]]})
        assert world.cost_current == 18 and world.action_mask.sum() == 2
        world.step(np.array([move]))
        assert world.cost_current == cost and world.reward == 18 - cost
