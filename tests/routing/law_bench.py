"""Worlds, laws and metrics for the tests of laws, and independently computed distances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import milkrun
from milkrun.routing.generators import get_generator
from tests.reference.tsp import distance_table
from tests.routing.map_files import put

WORLDS = ("TSP", "TSPKopt", "CVRP", "VRPP", "CVRPP", "WCVRP", "CWCVRP", "SCWCVRP", "SDWCVRP")
METRICS = ("euclid", "manhattan", "round", "ceil", "trunc1", "haversine", "matrix")
ROWS, CUSTOMERS = 6, 7

BINS = [f"b{k}" for k in range(1, 9)]
LONG = "id,kind,x,y\nyard,depot,0,0\n" + "".join(f"{b},bin,{5 * k},{k % 2 / 10}\n" for k, b in enumerate(BINS, 1))
"""A village of 40 km by 100 m: a square of equal area has a side of 2 km."""
ONE_WAY = "\n".join(
    [
        ",".join(["km", "yard", *BINS]),
        *(
            ",".join([a, *("0" if a == b else "200" if b == "yard" else "50" for b in ["yard", *BINS])])
            for a in ["yard", *BINS]
        ),
    ]
)
"""Its roads: 50 km from any node to a bin, 200 km home."""


def faraway(rng: np.random.Generator, n: int) -> np.ndarray:
    """A law as a function: places in the square 10..12, outside of the box."""
    return 10 + 2 * rng.random((n, 2))


def maps_in(folder: Any) -> Any:
    """A folder with the village `long`, and `oneway`, the same with roads."""
    put(put(folder, "long.csv", LONG), "oneway.csv", LONG)
    return put(folder, "oneway.dist.csv", ONE_WAY)


def places(folder: Any) -> Iterator[dict[str, Any]]:
    """Every law of places with every metric that it supports."""
    for law in ("uniform", "normal", "clustered", "mixed", faraway):
        for metric in METRICS:
            yield {"loc_distribution": law, "metric": metric}
    for metric in ("euclid", "haversine", "matrix"):
        yield {"map_name": "synthetic-town", "metric": metric}
    for name in ("long", "oneway"):
        yield {"map_name": name, "map_path": str(folder), "metric": "matrix"}
    yield {"min_loc": -0.05, "max_loc": 0.05, "metric": "ceil"}  # every leg is longer than the box


def begun(name: str, **options: Any) -> Any:
    """A world at the start of its first episodes."""
    options = {"autoreset": "disabled", "num_loc": CUSTOMERS, **options}
    world = milkrun.make(f"milkrun/{name}-v0", num_envs=ROWS, seed=11, **options)
    world.reset()
    return world


def ways(world: Any) -> np.ndarray:
    """(B, N, N) distances by the scalar reference, from the places and the matrix of the world."""
    metric = world.config.metric
    tables = [distance_table(metric, locs.tolist(), dist) for locs, dist in zip(world.locs, world.dist, strict=True)]
    return np.array(tables)


def shares(world: Any) -> np.ndarray:
    """(B, n) 1 + floor(99 d(0, j) / far) of the customers: the law `dist`."""
    out = ways(world)[:, 0, 1:]
    far = out.max(axis=1, keepdims=True)
    return np.where(far > 0, 1 + np.floor(99 * out / np.where(far > 0, far, 1)), 1)


def hooked(problem: str, depots: bool = True, **options: Any) -> Any:
    """A generator that places customers in the square 10..12 and depots at (20, 20) by its hooks."""
    kind = type(get_generator(problem, num_loc=CUSTOMERS))

    class Elsewhere(kind):  # type: ignore[misc, valid-type]
        def _generate_locations(self, count: int, seed: int, first: int, episode: int) -> np.ndarray:
            rngs = (np.random.default_rng((seed, first + k, episode)) for k in range(count))
            return np.stack([faraway(rng, self.num_loc) for rng in rngs])

        def _generate_depot(self, count: int, seed: int, first: int, episode: int) -> np.ndarray | None:
            return np.full((count, 2), 20.0) if depots else None

    return Elsewhere(problem=problem, num_loc=CUSTOMERS, **options)
