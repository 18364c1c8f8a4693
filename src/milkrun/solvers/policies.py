"""Policies that need no training, compiled: what every learned one is measured against.

A policy is called with a world and returns one action a row, `actions = policy(world)`. Which ones a world has is asked
by its id, `policies_for("milkrun/CVRP-v0")`, so the command line and the demo know every world without naming one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from milkrun.core.errors import RegistryError
from milkrun.core.kernels import kernel
from milkrun.core.registry import world_spec
from milkrun.core.world import World
from milkrun.routing.distance import travel

Policy: TypeAlias = Callable[[World], np.ndarray]
Factory: TypeAlias = Callable[[int], Policy]


@dataclass
class RandomPolicy:
    """Uniform among the allowed actions; each call is the next turn of the stream of `seed`."""

    seed: int = 0
    turn: int = field(default=0, init=False)

    def __call__(self, world: World) -> np.ndarray:
        actions = world.sample_actions(self.seed, self.turn)
        self.turn += 1
        return actions


def random_policy(seed: int = 0) -> RandomPolicy:
    """A fresh random policy: the same seed draws the same actions in the same worlds."""
    return RandomPolicy(seed)


def nearest(world: Any) -> np.ndarray:
    """In routing: the nearest allowed customer, ties to the lower index; the depot only where none is allowed."""
    return world.map_rows(nearest_allowed, np.int64, int(world.depot_apart))


@kernel
def nearest_allowed(w, b, first, _):
    """Among the nodes from `first` on. Without a depot a free tour starts at node 0: the vehicle stands there."""
    q = w.instance_row[b]
    here = w.current_node[b]
    best, shortest = 0, math.inf
    for j in range(first, w.N):
        if w.action_mask[b, j]:
            distance = travel(w, q, here, j)
            if distance < shortest:
                best, shortest = j, distance
    return best


_policies: dict[str, dict[str, Factory]] = {"routing": {"nearest": lambda seed: nearest}}
"""By family, or by the id of a world that shall not have those of its family."""


def policies_for(world_id: str) -> dict[str, Factory]:
    """Name -> factory(seed) -> policy: "random" first, then the world's heuristics, the one to beat before others."""
    spec = world_spec(world_id)
    return {"random": random_policy, **_policies.get(spec.id, _policies.get(spec.family, {}))}


def add_policy(owner: str, name: str, factory: Factory) -> None:
    """Makes a policy known by name: to a whole family, or by its full id to one world, which then has its own only."""
    if name == "random":
        raise RegistryError("the policy 'random' is every world's and cannot be replaced")
    _policies.setdefault(owner, {})[name] = factory
