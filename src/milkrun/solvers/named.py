"""Players of a world by name: its policies, and the methods of `solve`, whose plans are played."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

import numpy as np

from milkrun.core.arguments import check_seed
from milkrun.core.errors import ConfigError, did_you_mean
from milkrun.core.instances import instances_of
from milkrun.core.registry import world_spec
from milkrun.solvers.policies import Factory, policies_for, policy_file
from milkrun.solvers.solve import solve


def players_of(world_id: str, time_limit: float = 1.0) -> dict[str, Factory]:
    """Name -> factory(seed) -> policy: the policies of a world, then the methods of `solve` whose plans it can play. A
    name that is both is the policy. `time_limit` is that of `solve`: seconds for each instance, of search methods."""
    cls = world_spec(world_id).load()
    methods = cls.solvers if cls.plans_are_actions else {}
    return {**{name: partial(SolverPolicy, name, time_limit=time_limit) for name in methods}, **policies_for(world_id)}


def choose_player(world_id: str, name: str | None = None, time_limit: float = 1.0) -> tuple[str, Factory]:
    """A policy or method by its name, or a trained policy by its file; by default the first heuristic of the world,
    else random."""
    spec = world_spec(world_id)
    if name is not None and (factory := policy_file(name)):
        return name, factory
    if name is None:
        name = next((n for n in policies_for(spec.id) if n != "random"), "random")
    known = players_of(spec.id, time_limit)
    if name in known:
        return name, known[name]
    if name in spec.load().solvers:
        raise ConfigError(
            f"{name!r} returns solutions of {spec.id}, not actions, and cannot be played; solve() of "
            "milkrun.solvers returns them"
        )
    raise ConfigError(
        f"{spec.id} has no policy or method {name!r}{did_you_mean(str(name), known)}; it has {', '.join(known)}"
    )


class SolverPolicy:
    """A policy that plays the plans of a method of `solve`, solving the instance of each row that begins an episode."""

    def __init__(self, method: str, seed: int = 0, time_limit: float = 1.0) -> None:
        self.method = method
        self.seed = check_seed(seed)
        self.time_limit = time_limit
        self._solved: list[bytes] = []  # digests of the solved instances
        self._plans = np.zeros((0, 0), np.int32)

    def __call__(self, world: Any) -> np.ndarray:
        if len(self._solved) != world.num_envs:
            self._solved = [b""] * world.num_envs
            self._plans = np.zeros((world.num_envs, 0), np.int32)
        begun = np.flatnonzero(world.i == 0)
        if len(begun):
            self._plan(world, begun)
        rows, width = np.arange(world.num_envs), self._plans.shape[1]
        planned = self._plans[rows, np.minimum(world.i, width - 1)]
        return np.where(world.i < width, planned, 0)

    def _plan(self, world: Any, rows: np.ndarray) -> None:
        """Solves the instances of rows without a plan."""
        played = instances_of(world, rows)
        digests = [
            hashlib.sha256(b"".join(array[k].tobytes() for array in played.values())).digest() for k in range(len(rows))
        ]
        new = np.array([digest != self._solved[b] for b, digest in zip(rows.tolist(), digests, strict=True)])
        if not new.any():
            return
        if self.method not in type(world).solvers:
            raise ConfigError(f"{type(world).__name__} has no method {self.method!r}")
        options = world.config.as_dict()
        if world.solver_options is not None:
            options = {name: options[name] for name in world.solver_options if options[name] is not None}
        given = {name: array[new] for name, array in played.items()}
        plans = solve(world.id, given, self.method, self.time_limit, self.seed, **options).actions
        wider = max(0, plans.shape[1] - self._plans.shape[1])
        self._plans = np.pad(self._plans, ((0, 0), (0, wider)))
        self._plans[rows[new]] = np.pad(plans, ((0, 0), (0, self._plans.shape[1] - plans.shape[1])))
        for b, digest in zip(rows.tolist(), digests, strict=True):
            self._solved[b] = digest
