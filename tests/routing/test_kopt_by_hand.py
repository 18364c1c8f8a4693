"""The k-opt world compared with tours by hand; the rectangle has sides of 3 and 4."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.kernels import kernel
from milkrun.routing.tasks.distances import distance_matrix
from milkrun.routing.tsp_kopt import mark
from tests.routing.rows import SQUARE

HEXAGON = [(2, 0), (1, 2), (-1, 2), (-2, 0), (-1, -2), (1, -2)]


@kernel
def write_mask(w, b, _, __):
    mark(w, b)
    return 0


class KoptRow:
    """A row of the k-opt world at a given tour. An attribute is the field of that row."""

    def __init__(self, locs, tour, dist=None, n_nodes=None, **options):
        size = len(locs if dist is None else dist)
        instance = {"n_nodes": np.array([n_nodes or size])}
        if dist is None:
            instance["locs"] = np.array([locs], np.float32)
        else:
            instance["dist"], options["metric"] = np.array([dist], np.float32), "matrix"
        options = {"init": "identity", "max_steps": None, "autoreset": "disabled", **options}
        self.world = milkrun.make("milkrun/TSPKopt-v0", 1, num_loc=size, **options)
        self.world.reset(instance=instance)
        whole = [*tour, *range(len(tour), size)]
        self.world.tour[0] = self.world.best_tour[0] = whole
        self.world.pos[0] = np.argsort(whole)
        lengths = distance_matrix(instance["locs"][0]) if dist is None else np.array(dist)
        self.world.cost_current[0] = self.world.cost_best[0] = lengths[tour, np.roll(tour, -1)].sum()
        self.world.map_rows(write_mask, np.int64)

    def __getattr__(self, name):
        return getattr(self.world, name)[0].tolist()

    def step(self, action):
        self.world.step(np.array([action]))

    def allowed(self):
        return np.flatnonzero(self.world.action_mask[0]).tolist()


def pairs(row):
    return [divmod(index, row.world.sizes["N"]) for index in row.allowed()]


def letters(m, i, j, k):
    """The tour after the 3-opt move (m, i, j, k) on 0..7."""
    model = KoptRow([(x, 0) for x in range(8)], list(range(8)), moves="3opt")
    model.step((m, i, j, k))
    assert not model.illegal
    return model.tour


def test_two_moves_of_the_crossed_square():
    """0,2,1,3 is 18 long and has two legal moves, (0,2) to 14 and (1,3) to 16."""
    m = KoptRow(SQUARE, [0, 2, 1, 3])
    assert (m.cost_current, m.cost_best, pairs(m)) == (18, 18, [(0, 2), (1, 3)])
    m.step((0, 2))
    assert (m.tour, m.pos, m.cost_current, m.reward) == ([0, 1, 2, 3], [0, 1, 2, 3], 14, 4)
    m = KoptRow(SQUARE, [0, 2, 1, 3])
    m.step(1 * 4 + 3)
    assert (m.tour, m.pos, m.cost_current, m.reward) == ([0, 2, 3, 1], [0, 3, 1, 2], 16, 2)


def test_best_reward_is_never_negative_and_current_is_the_drop():
    """18 to 14 and back: `best` gives 4 then 0 and keeps the tour of 14, `current` gives 4 then -4."""
    best, current = (KoptRow(SQUARE, [0, 2, 1, 3], reward_mode=mode) for mode in ("best", "current"))
    rewards = []
    for _ in range(2):
        best.step((0, 2))
        current.step((0, 2))
        rewards.append((best.reward, current.reward))
    assert rewards == [(4, 4), (0, -4)]
    assert (best.tour, best.cost_current, best.best_tour, best.cost_best) == ([0, 2, 1, 3], 18, [0, 1, 2, 3], 14)


@pytest.mark.parametrize("n", [4, 5, 6, 9])
def test_number_of_legal_moves(n):
    """n(n-3)/2 by position; by node every move twice, as a path and as its complement."""
    locs = [(x, x * x) for x in range(n)]
    assert len(KoptRow(locs, list(range(n))).allowed()) == n * (n - 3) // 2
    assert len(KoptRow(locs, list(range(n)), action_mode="node").allowed()) == n * (n - 3)
    assert len(KoptRow(locs, list(range(n)), moves="3opt").allowed()) == (n - 1) * (n - 2) // 2


@pytest.mark.parametrize(
    ("action", "tour"),
    [
        ((4, 2), [0, 2, 3, 4, 1, 5]),
        ((3, 2), [0, 4, 2, 3, 1, 5]),
        ((5, 4), [0, 5, 3, 2, 1, 4]),
        ((1, 0), [0, 5, 1, 4, 3, 2]),
        ((2, 0), [0, 5, 1, 2, 4, 3]),
    ],
)
def test_node_moves_reverse_the_path_forward_and_turn_zero_to_the_front(action, tour):
    """Of 0,4,3,2,1,5: the path from 5 forward to 4 is 5,0,4, so the result is 4,0,5,3,2,1, which from 0 is
    0,5,3,2,1,4."""
    m = KoptRow(HEXAGON, [0, 4, 3, 2, 1, 5], action_mode="node")
    m.step(action)
    assert (m.illegal, m.tour) == (False, tour)


def test_node_mask_follows_the_tour():
    """In 0,2,1,4,3 a path of two or three nodes leads from 2 to 1 or 4, and across the end from 3 to 0 or 2."""
    m = KoptRow(HEXAGON[:5], [0, 2, 1, 4, 3], action_mode="node")
    assert [(u, v) for u, v in pairs(m) if u in (2, 3)] == [(2, 1), (2, 4), (3, 0), (3, 2)]
    m.step((2, 1))
    assert [(u, v) for u, v in pairs(m) if u in (2, 3)] == [(2, 3), (2, 4), (3, 0), (3, 1)]


def test_node_paths_of_one_and_of_almost_all_are_masked():
    """A path of 1, n-1 or n nodes changes no cycle: masked; the step counts and changes nothing."""
    m = KoptRow(HEXAGON, list(range(6)), action_mode="node")
    for action in ((2, 2), (0, 4), (1, 0), (6, 1), (-1, 2)):
        m.step(action)
        assert (m.illegal, m.tour, m.reward) == (True, list(range(6)), 0)
    assert m.i == 5


def test_three_opt_reconnections():
    """Prefix 0 1, A = 2 3 4, B = 5 6, rest 7: B A, B A^R, B^R A, A^R B^R; m = 0 reverses A for any k."""
    assert letters(1, 1, 4, 6) == [0, 1, 5, 6, 2, 3, 4, 7]
    assert letters(2, 1, 4, 6) == [0, 1, 5, 6, 4, 3, 2, 7]
    assert letters(3, 1, 4, 6) == [0, 1, 6, 5, 2, 3, 4, 7]
    assert letters(4, 1, 4, 6) == [0, 1, 4, 3, 2, 6, 5, 7]
    assert letters(0, 1, 4, 0) == [0, 1, 4, 3, 2, 5, 6, 7]


def test_three_opt_legality():
    """i < j < k <= n-1; m = 0 needs two nodes to reverse; there is no fifth reconnection; no move keeps the cycle."""
    m = KoptRow(HEXAGON, list(range(6)), moves="3opt")
    for action in ((1, 2, 2, 3), (1, 0, 2, 2), (1, 0, 2, 6), (1, -1, 2, 3), (0, 1, 2, 3), (0, 1, 5, 5), (5, 0, 2, 4)):
        m.step(action)
        assert m.illegal
    # B A' = 5 4321 and B' A = 5432 1 reverse the cycle; A' B' = 1 2 is unchanged.
    for action in ((2, 0, 4, 5), (3, 0, 1, 5), (4, 0, 1, 2)):
        m.step(action)
        assert m.illegal
    for action in ((1, 0, 1, 5), (4, 0, 2, 3), (0, 1, 3, 4)):
        m.step(action)
        assert not m.illegal


def test_illegal_pairs_change_nothing():
    """Neighbours, the pair (0, n-1), a reversed pair and indices beyond the mask are masked."""
    m = KoptRow(SQUARE, [0, 2, 1, 3])
    for action in ((0, 1), (0, 3), (2, 0), 16, -1):
        m.step(action)
        assert (m.illegal, m.tour, m.cost_current, m.reward) == (True, [0, 2, 1, 3], 18, 0)
    assert m.i == 5


def test_ends_by_truncation_only():
    """After max_steps, illegal ones included, only index 0 is allowed."""
    m = KoptRow(SQUARE, [0, 2, 1, 3], max_steps=2)
    m.step((0, 1))
    m.step((0, 2))
    assert (m.truncated, m.terminated, m.allowed(), m.reward) == (True, False, [0], 4)
    assert (m.i, m.tour) == (2, [0, 1, 2, 3])


def test_reversed_arcs_cost_their_own_direction():
    """Forward arcs cost 1, backward arcs 10: reversing 1,2 turns 0-1-2-3-0 (4) into 0-2-1-3-0 (1 + 10 + 1 + 1)."""
    dist = [[0, 1, 1, 9], [9, 0, 1, 1], [9, 10, 0, 1], [1, 9, 9, 0]]
    m = KoptRow(None, [0, 1, 2, 3], dist=dist, reward_mode="current")
    assert m.cost_current == 4
    m.step((0, 2))
    assert (m.cost_current, m.cost_best, m.reward) == (13, 4, -9)


def test_equal_cost_keeps_the_older_best():
    """All arcs cost 1: the tour changes, the best tour is the first one."""
    dist = [[float(a != b) for b in range(4)] for a in range(4)]
    m = KoptRow(None, [0, 1, 2, 3], dist=dist)
    m.step((0, 2))
    assert (m.tour, m.best_tour, m.reward) == ([0, 2, 1, 3], [0, 1, 2, 3], 0)


def test_padding_stays_at_the_end():
    """Four real nodes of six: two legal moves, indexed in a row of six; the padding keeps its positions."""
    m = KoptRow([*SQUARE, (9, 9), (8, 8)], [0, 2, 1, 3], n_nodes=4)
    assert (m.allowed(), m.cost_current, m.tour) == ([0 * 6 + 2, 1 * 6 + 3], 18, [0, 2, 1, 3, 4, 5])
    m.step(2)
    assert (m.tour, m.cost_current) == ([0, 1, 2, 3, 4, 5], 14)


def test_nearest_neighbour_takes_the_lower_index_on_a_tie():
    """From 0 nodes 1 and 2 are equally near."""
    dist = np.array([[[0, 1, 1, 5], [1, 0, 4, 2], [1, 4, 0, 3], [5, 2, 3, 0]]], np.float32)
    world = milkrun.make("milkrun/TSPKopt-v0", 1, num_loc=4, init="greedy", metric="matrix")
    world.reset(instance={"dist": dist})
    assert world.tour[0].tolist() == [0, 1, 3, 2]
