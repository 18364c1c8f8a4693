"""Helpers for the tests of the solvers: instances with all kinds of constraints, and plans played in the worlds."""

from __future__ import annotations

import numpy as np

import milkrun
from milkrun.routing.generators import get_generator
from milkrun.routing.tasks.distances import distance_matrix

COMMON = ("nearest", "insertion", "2opt", "oropt", "ls")
METHODS = {
    "TSP": COMMON,
    "CVRP": (*COMMON, "savings"),
    "VRPP": COMMON,
    "CVRPP": COMMON,
    "WCVRP": COMMON,
    "CWCVRP": (*COMMON, "savings"),
}


def drawn(name, n, count, seed=5, **options):
    """Instances of our generator, every array under a single name."""
    made = get_generator(name.lower(), num_loc=n, **options).generate(count, seed=seed)
    made.pop("demand", None)
    return made


def padded(name, n, count, seed=5):
    """Sizes from two nodes up, padded to the same width."""
    sizes = np.random.default_rng([seed, n]).integers(2, n + (name != "TSP") + 1, count)
    return {**drawn(name, n, count, seed), "n_nodes": sizes.astype(np.int32)}


def bounded(name, n, count, seed=5):
    """Trips of limited length (CVRP: with all customers in reach), a third of the customers mandatory."""
    made, rng = drawn(name, n, count, seed), np.random.default_rng([seed, n])
    if name == "CVRP":
        alone = 2 * np.sqrt(((made["locs"] - made["depot"][:, None]) ** 2).sum(-1)).max(axis=1)
        return {**made, "max_length": (1.1 * alone).astype(np.float32)}
    made["must_go"] = rng.random((count, n)) < 0.3
    return {**made, "max_length": rng.uniform(0.8, 2.5, count).astype(np.float32)}


def asymmetric(name, n, count, seed=5):
    """Asymmetric distances: independent random integers, then closed under the triangle inequality."""
    made, rng = drawn(name, n, count, seed), np.random.default_rng([seed, n, 1])
    nodes = n + (name != "TSP")
    d = rng.integers(1, 1000, (count, nodes, nodes)) * (1 - np.eye(nodes, dtype=np.int64))
    for k in range(nodes):
        d = np.minimum(d, d[:, :, k : k + 1] + d[:, k : k + 1, :])
    whole = {key: value for key, value in made.items() if key not in ("locs", "depot")}
    for key, value in whole.items():
        if value.ndim == 2 and value.shape[1] == n and name != "TSP":
            whole[key] = np.pad(value, ((0, 0), (1, 0)))
    return {**whole, "dist": (d / 500.0).astype(np.float32)}


def crooked(name, n, count, seed=5):
    """Independent random integer distances, so that detours may be shortcuts, and trips of limited length. A third of
    the customers is mandatory (except in the CVRP, where all are in reach)."""
    made, rng = asymmetric(name, n, count, seed), np.random.default_rng([seed, n, 2])
    d = rng.integers(1, 100, (count, n + 1, n + 1)) * (1 - np.eye(n + 1, dtype=np.int64))
    alone = (d[:, 0] + d[:, :, 0])[:, 1:]
    limit = alone.max(axis=1) if name == "CVRP" else np.median(alone, axis=1) + rng.integers(0, 60, count)
    if name != "CVRP":
        made["must_go"] = np.pad(rng.random((count, n)) < 0.3, ((0, 0), (1, 0)))
    scale = np.float32(2**-6)
    return {**made, "dist": scale * d.astype(np.float32), "max_length": scale * np.floor(limit).astype(np.float32)}


def matrix_of(made):
    """(B, N, N) straight-line distances, a depot comes first."""
    locs = made["locs"].astype(np.float64)
    if "depot" in made:
        locs = np.concatenate([made["depot"].astype(np.float64)[:, None], locs], axis=1)
    return distance_matrix(locs)


def play(name, instances, actions, **config):
    """The objective of each row. Every action must be allowed; a row ends with its plan, or by staying at the depot."""
    width = instances["dist"].shape[1] if "dist" in instances else instances["locs"].shape[1]
    n = width - (name != "TSP" and "depot" not in instances)
    if "dist" in instances:
        config = {"metric": "matrix", **config}
    world = milkrun.make(
        f"milkrun/{name}-v0",
        num_envs=len(actions),
        num_loc=n,
        illegal="raise",
        autoreset="disabled",
        max_steps=None,
        **config,
    )
    world.reset(instance=instances)
    for turn in range(actions.shape[1] + 2):
        live = np.flatnonzero(~world.terminated)
        if not len(live):
            break
        now = actions[:, turn] if turn < actions.shape[1] else np.zeros(len(actions), np.int64)
        world.step(now[live].astype(np.int64), rows=live)
    assert world.terminated.all()
    played = world.solution()
    for row, plan in enumerate(actions):
        assert [a for a in played[row] if a] == [a for a in plan if a]
    return world.objective.copy()
