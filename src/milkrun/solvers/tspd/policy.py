"""The policy `partition` of the TSP with drone: every row follows the best split of the truck-only tour.

The plan is made when a row begins an episode, which takes some milliseconds. The latest plans are cached.
"""

from __future__ import annotations

import weakref
from functools import lru_cache
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError, ResetNeeded
from milkrun.delivery.instances.tspd import TSPDInstance
from milkrun.delivery.tspd.log import actions_of
from milkrun.solvers.tspd.plans import TSPDPlan, partition, truck_only
from milkrun.solvers.tspd.rows import without_padding

KEPT = 4096  # plans


class PartitionPolicy:
    """Follows a plan for each row; ended rows get action 0."""

    def __init__(self) -> None:
        self._world: Any = lambda: None
        self._actions = np.zeros((0, 0), np.int64)
        self._begun = np.zeros((0, 3), np.int64)  # stream keys of the planned episodes

    def __call__(self, world: Any) -> np.ndarray:
        if "c_drone" not in world.fields:
            raise ConfigError(f"partition is a policy of the TSP with drone, not of {type(world).__name__}")
        if self._world() is not world:
            self._world = weakref.ref(world)
            self._actions = np.full(world.plan.shape, -1, np.int64)
            self._begun = np.full_like(world.stream, -1)
        live = ~(world.terminated | world.truncated) | (world.autoreset == "same_step")
        # a given instance may change under the same key; recomputing is cheap, since `plan_of` caches
        new = world.given | (self._begun != world.stream).any(axis=1)
        for b in np.flatnonzero(live & (world.steps == 0) & new).tolist():
            actions = [a for op in plan_of(instance_of(world, b)).operations for a in actions_of(op, world.sizes["N"])]
            self._actions[b] = [*actions, *[-1] * (self._actions.shape[1] - len(actions))]
            self._begun[b] = world.stream[b]
        taken = np.arange(self._actions.shape[1]) < world.steps[:, None]
        strayed = live & ((self._actions != world.plan) & taken).any(axis=1)
        if strayed.any():
            raise ResetNeeded(f"row {strayed.argmax()} is in an episode that does not follow its plan: reset it")
        next_one = np.minimum(world.steps, self._actions.shape[1] - 1)
        return np.where(live, self._actions[np.arange(world.num_envs), next_one], 0)


@lru_cache(maxsize=KEPT)
def plan_of(instance: TSPDInstance) -> TSPDPlan:
    """The best split of the truck-only tour."""
    return partition(instance, [op.start for op in truck_only(instance).operations])


def instance_of(world: Any, row: int) -> TSPDInstance:
    """The instance of a row of a TSPD world, without padding."""
    q = world.instance_row[row]
    fields = {name: getattr(world, name) for name in ("locs", "c_truck", "c_drone", "no_visit", "forbid", "max_fly")}
    return without_padding(f"row {row}", fields, q, int(world.n_nodes[q]))
