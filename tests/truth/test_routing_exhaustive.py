"""All masked action sequences of small worlds, enumerated by the worlds.

Their best return must be the optimum of `solvers.exact`. The sequences must be exactly the canonical ones that the
checker accepts: the mask neither allows an invalid sequence nor forbids a valid one. Canonical sequences have no empty
trips and the depot once at the end; the checker also accepts other forms.
"""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

import milkrun
from milkrun.core.fields import Role
from milkrun.routing.tasks import CVRP, TSP
from milkrun.routing.tasks.distances import distance_matrix
from milkrun.solvers.exact import brute_force_tsp, exact_cvrp, held_karp

RECTANGLE = np.array([[[0, 0], [3, 0], [3, 4], [0, 4]]], np.float32)
pytestmark = pytest.mark.truth


def enumerate_all(world_id, instance, **options):
    """Follows every allowed action of every row. Returns the instance, actions and return of each complete sequence.

    Breadth first: one world holds the rows of one depth and is branched into the world of the next depth. All share the
    instances.
    """
    world = milkrun.make(world_id, num_envs=len(next(iter(instance.values()))), autoreset="disabled", **options)
    world.reset(instance=instance)
    per_row = [f.name for f in world.fields.values() if f.role in (Role.STATE, Role.MASK, Role.VIEW, Role.KEY)]
    owner, actions, returns = [], [], []
    while True:
        live = ~(world.terminated | world.truncated)
        assert not world.truncated.any()
        assert world.action_mask[live].any(axis=1).all()
        owner.append(world.instance_row[~live])
        taken = world.solution()[~live]
        actions.append(np.pad(taken, ((0, 0), (0, world.sizes["A"] - taken.shape[1]))))
        returns.append(world.objective[~live])
        parent, action = np.nonzero(world.action_mask & live[:, None])
        if not len(parent):
            return np.concatenate(owner), np.concatenate(actions), np.concatenate(returns)
        saved = {name: a[parent] if name in per_row else a for name, a in world.state_dict().items()}
        world = milkrun.make(world_id, num_envs=len(parent), autoreset="disabled", **options)
        world.load_state_dict(saved)
        world.step(action)
        assert not world.illegal.any()


def sequences_of(owner, actions):
    """Each sequence with its instance as one number, in order; equal arrays are equal sets without repetition."""
    base = int(actions.max(initial=0)) + 1
    code = owner.astype(np.int64)
    for column in actions.T:
        code = code * base + column
    return np.sort(code)


def closed_matrix(rng, count, nodes):
    """Asymmetric, with the triangle inequality: a detour never shortens a trip, so the mask may reserve the way
    home."""
    d = rng.random((count, nodes, nodes)) * (1 - np.eye(nodes))
    for k in range(nodes):
        d = np.minimum(d, d[:, :, k, None] + d[:, None, k, :])
    return d.astype(np.float32)


def places(rng, count, nodes, metric):
    """The instance fields of the distances, and the distance matrices for the exact solvers."""
    if metric == "matrix":
        d = closed_matrix(rng, count, nodes)
        return {"dist": d}, d.astype(float)
    locs = rng.random((count, nodes, 2)).astype(np.float32)
    return {"locs": locs}, distance_matrix(locs, metric)


def tours_of(n, width, start):
    """Every order of nodes 0..n-1, padded with 0; from the depot, node 0 comes last."""
    orders = [order for order in permutations(range(n)) if start == "free" or order[-1] == 0]
    return np.pad(np.array(orders), ((0, 0), (0, width - n)))


def plans_of(n, width):
    """Every order of customers 1..n with every choice of returns, closed by the depot, padded with 0."""
    orders = np.array(list(permutations(range(1, n + 1))))
    plans = []
    for returns in product((0, 1), repeat=n - 1):
        plan = np.zeros((len(orders), width), np.int64)
        plan[:, np.arange(n) + np.cumsum((0, *returns))] = orders
        plans.append(plan)
    return np.concatenate(plans)


# -- TSP ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "count"), [("depot", 6), ("free", 24)])
def test_tsp_rectangle_by_hand(start, count):
    """3! orders from the depot, 4! with a free start; the perimeter of the rectangle is 14."""
    _, tours, returns = enumerate_all("milkrun/TSP-v0", {"locs": RECTANGLE}, num_loc=4, start=start)
    assert (len(tours), returns.max()) == (count, -14)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["depot", "free"])
@pytest.mark.parametrize("metric", ["euclid", "matrix"])
def test_tsp_all_sequences(metric, start):
    """200 instances of 2 to 7 nodes in one padded batch."""
    count, most = 200, 7
    rng = np.random.default_rng(7)
    where, d = places(rng, count, most, metric)
    n_nodes = rng.integers(2, most + 1, count)
    owner, tours, returns = enumerate_all(
        "milkrun/TSP-v0", {**where, "n_nodes": n_nodes}, num_loc=most, start=start, metric=metric
    )
    wanted = {n: tours_of(n, most, start) for n in range(2, most + 1)}
    valid = np.concatenate([wanted[n] for n in n_nodes])
    valid_owner = np.repeat(np.arange(count), [len(wanted[n]) for n in n_nodes])
    assert TSP.check({**where, "n_nodes": n_nodes, "instance_row": valid_owner}, valid)[0].all()
    np.testing.assert_array_equal(sequences_of(owner, tours), sequences_of(valid_owner, valid))

    best = np.full(count, -np.inf)
    np.maximum.at(best, owner, returns)
    for q, n in enumerate(n_nodes):
        optimum, _ = held_karp(d[q, :n, :n])
        assert optimum == pytest.approx(brute_force_tsp(d[q, :n, :n])[0], rel=1e-12)
        assert best[q] == pytest.approx(-optimum, abs=1e-4), f"instance {q}"


# -- CVRP -----------------------------------------------------------------------------------------------------------


def cvrp_instances(rng, count, customers, metric, limited, fewest=1):
    """Up to `customers` customers each, trucks of 9 to 24 units; the limit leaves room for a detour or two."""
    where, d = places(rng, count, customers + 1, metric)
    n_nodes = rng.integers(fewest + 1, customers + 2, count)
    demand = rng.integers(1, 10, (count, customers + 1))
    demand[:, 0] = 0
    instance = {**where, "n_nodes": n_nodes, "demand_units": demand, "capacity": rng.integers(9, 25, count)}
    real = np.arange(customers + 1) < n_nodes[:, None]
    alone = np.where(real, d[:, 0] + d[:, :, 0], 0).max(axis=1)
    slack = rng.uniform(1, 1.6, count) if limited else np.inf
    instance["max_length"] = (alone * slack).astype(np.float32)
    return instance, d


def is_valid(instance, owner, plans):
    """Whether the checker accepts each plan (`check` would also format a reason for each invalid one)."""
    return np.isfinite(CVRP.get_costs({**instance, "instance_row": owner}, plans, on_violation="inf")[0])


@pytest.mark.parametrize(
    ("demand", "capacity", "max_length", "count", "best"),
    [
        ((5, 5, 5), 10, np.inf, 18, -18),  # 3! orders, cut into trips of one or two in 3 ways
        ((5, 5, 5), 15, np.inf, 24, -14),  # and the trip of three
        ((5, 5, 5), 5, np.inf, 6, -24),  # each alone: 6 + 10 + 8
        ((4, 5, 6), 10, np.inf, 14, -20),  # 2 and 3 together are 11: trips 1-2 and 3
        ((5, 5, 5), 15, 14, 20, -14),  # of the six trips of three 1-2-3, 3-2-1; the others are 16 and 18 long
        ((5, 5, 5), 15, 12, 18, -18),  # every pair is a trip of 12, which fits 12
        ((5, 5, 5), 10, 11.9999, 18, -18),  # within the tolerance of 1.2e-4
        ((5, 5, 5), 10, 11.9998, 6, -24),
        ((5, 5, 5), 10, 10, 6, -24),  # customer 2 alone is a trip of 10
    ],
)
def test_cvrp_rectangle_by_hand(demand, capacity, max_length, count, best):
    """Three customers on the rectangle: number of sequences and best return."""
    instance = {"locs": RECTANGLE, "demand_units": [[0, *demand]], "capacity": [capacity], "max_length": [max_length]}
    instance = {name: np.array(value) for name, value in instance.items()}
    _, plans, returns = enumerate_all("milkrun/CVRP-v0", instance, num_loc=3)
    assert (len(plans), returns.max()) == (count, best)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "fewest", "most", "metric", "limited"),
    [
        (200, 1, 5, "euclid", False),
        (200, 1, 5, "euclid", True),
        (200, 1, 5, "matrix", False),
        (200, 1, 5, "matrix", True),
        (1, 7, 7, "euclid", False),
    ],
)
def test_cvrp_all_sequences(count, fewest, most, metric, limited):
    """200 instances of 1 to 5 customers in one padded batch; one of 7 customers."""
    instance, d = cvrp_instances(np.random.default_rng(5), count, most, metric, limited, fewest)
    owner, plans, returns = enumerate_all("milkrun/CVRP-v0", instance, num_loc=most, metric=metric)

    wanted = {n: plans_of(n, plans.shape[1]) for n in range(fewest, most + 1)}
    customers = instance["n_nodes"] - 1
    candidates = np.concatenate([wanted[n] for n in customers])
    candidate_owner = np.repeat(np.arange(count), [len(wanted[n]) for n in customers])
    valid = is_valid(instance, candidate_owner, candidates)
    assert 0.05 < valid.mean() < 0.95
    np.testing.assert_array_equal(sequences_of(owner, plans), sequences_of(candidate_owner[valid], candidates[valid]))

    best = np.full(count, -np.inf)
    np.maximum.at(best, owner, returns)
    for q, n in enumerate(instance["n_nodes"]):
        limits = instance["capacity"][q], instance["max_length"][q]
        optimum, _ = exact_cvrp(d[q, :n, :n], instance["demand_units"][q, :n], *limits)
        assert best[q] == pytest.approx(-optimum, abs=1e-4), f"instance {q}"


def test_cvrp_sequences_among_all_words():
    """All 4^6 words over the nodes of up to 3 customers are tried, not only words in the form of a plan."""
    count = 40
    instance, _ = cvrp_instances(np.random.default_rng(3), count, 3, "euclid", limited=True)
    owner, plans, _ = enumerate_all("milkrun/CVRP-v0", instance, num_loc=3)

    words = np.array([word for word in product(range(4), repeat=6) if is_canonical(word)])
    every = np.pad(np.tile(words, (count, 1)), ((0, 0), (0, plans.shape[1] - 6)))
    every_owner = np.repeat(np.arange(count), len(words))
    valid = is_valid(instance, every_owner, every)
    np.testing.assert_array_equal(sequences_of(owner, plans), sequences_of(every_owner[valid], every[valid]))


def is_canonical(word):
    """The depot neither first nor twice in a row, and last; what follows is padding."""
    written = "".join(map(str, word)).rstrip("0") + "0"
    return len(written) <= len(word) and not written.startswith("0") and "00" not in written
