"""Random episodes, recorded once and played by every contestant.

Instances, actions and tour lengths come from plain numpy, independent of Milkrun, RL4CO and the C kernels. So all
contestants do the same work, and each can be compared with these lengths.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Name = Literal["tsp", "cvrp"]

# truck sizes and demands of the literature (Kool et al. 2019)
CAPACITY = {10: 20, 20: 30, 50: 40, 100: 50}
MAX_DEMAND = 9


@dataclass(frozen=True)
class Episodes:
    """B instances and one random episode on each. N nodes: TSP num_loc, CVRP num_loc + 1, node 0 the depot or start."""

    name: Name
    num_loc: int
    locs: NDArray[np.float32]  # (B, N, 2), uniform in the unit square
    demand: NDArray[np.int32]  # (B, N), 0 at the depot; TSP all 0
    capacity: NDArray[np.int32]  # (B,)
    actions: NDArray[np.int64]  # (T, B), allowed on live rows; 0 on finished ones
    length: NDArray[np.int64]  # (B,), steps until the row is finished
    tour_length: NDArray[np.float64]  # (B,), of the whole episode

    @property
    def batch(self) -> int:
        return self.actions.shape[1]

    @property
    def live_steps(self) -> int:
        """Steps in which every row is live; only these are timed."""
        return int(self.length.min())


def record_random_episodes(name: Name, num_loc: int, batch: int, seed: int) -> Episodes:
    """Draw instances and play uniformly random allowed actions; TSP starts at node 0 and returns there."""
    rng = np.random.default_rng(seed)
    nodes = num_loc + (name == "cvrp")
    locs = rng.random((batch, nodes, 2), dtype=np.float32)
    demand = np.zeros((batch, nodes), np.int32)
    capacity = np.zeros(batch, np.int32)
    if name == "tsp":
        actions = _random_tours(rng, batch, nodes)
        length = np.full(batch, nodes)
    else:
        demand[:, 1:] = rng.integers(1, MAX_DEMAND, size=(batch, num_loc), endpoint=True)
        capacity[:] = CAPACITY[num_loc]
        actions, length = _random_trips(rng, demand, capacity)
    return Episodes(name, num_loc, locs, demand, capacity, actions, length, _tour_length(locs, actions))


def _random_tours(rng: np.random.Generator, batch: int, nodes: int) -> NDArray[np.int64]:
    order = rng.permuted(np.tile(np.arange(1, nodes), (batch, 1)), axis=1)
    return np.ascontiguousarray(np.hstack([order, np.zeros((batch, 1), np.int64)]).T)


def _random_trips(
    rng: np.random.Generator, demand: NDArray[np.int32], capacity: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    batch, nodes = demand.shape
    rows = np.arange(batch)
    unserved = np.ones((batch, nodes), bool)
    unserved[:, 0] = False
    current = np.zeros(batch, np.int64)
    load = np.zeros(batch, np.int32)
    length = np.zeros(batch, np.int64)
    actions = []
    while (live := unserved.any(axis=1) | (current != 0)).any():
        allowed = unserved & (load[:, None] + demand <= capacity[:, None])
        allowed[:, 0] = (current != 0) | ~live
        action = np.where(allowed, rng.random((batch, nodes), dtype=np.float32), -1.0).argmax(axis=1)
        load = np.where(action == 0, 0, load + demand[rows, action])
        unserved[rows, action] = False
        current = action
        length += live
        actions.append(action)
    return np.array(actions), length


def _tour_length(locs: NDArray[np.float32], actions: NDArray[np.int64]) -> NDArray[np.float64]:
    rows = np.arange(len(locs))
    stops = np.vstack([np.zeros((1, len(locs)), np.int64), actions])
    legs = np.diff(locs.astype(np.float64)[rows, stops], axis=0)
    return np.hypot(legs[..., 0], legs[..., 1]).sum(axis=0)
