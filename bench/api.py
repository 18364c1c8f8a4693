"""What each binding adds to a step: microseconds over `World.step`, one thread, recorded random-masked actions.

CVRP-50 for libraries of single agents, TruckDrone (3 agents) for those of several. No row ends within the recorded
steps, and the rewards of every contestant are compared with the world's.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import milkrun

from .timing import Table, clock, no_garbage_collection

BATCHES = (1, 64, 1024)
STEPS = 40
WORLDS = {
    "CVRP-50": ("milkrun/CVRP-v0", {"num_loc": 50}),
    "TruckDrone": ("milkrun/TruckDrone-v0", {}),
}

NO_COPY_SHARE = {("milkrun/CVRP-v0", 64): 1.3, ("milkrun/CVRP-v0", 1024): 1.05}
"""Largest promised ratio of a step through Gymnasium without copies to `World.step`."""

Step = Callable[[Any], Any]


class Binding:
    """Plays the recorded actions; `begin` resets, `step` plays one and returns the rewards.

    `goal` is the target of added microseconds per step, `share` the target of its ratio to the world's own step.
    """

    def __init__(
        self,
        begin: Callable[[], object],
        step: Step,
        actions: list[Any],
        goal: float | None = None,
        share: float | None = None,
    ) -> None:
        self.begin = begin
        self.step = step
        self.actions = actions
        self.goal = goal
        self.share = share

    def play(self, first: int, last: int) -> float:
        before = clock()
        for joint in self.actions[first:last]:
            self.step(joint)
        return clock() - before

    def check(self, rewards: np.ndarray) -> None:
        self.begin()
        for joint in self.actions:
            found = self.step(joint)
        np.testing.assert_allclose(np.asarray(found, np.float64).reshape(rewards.shape), rewards, rtol=1e-6)


def copying(observation: Any) -> float:
    """Microseconds to copy an observation at 8 GB/s."""
    single = [observation] if not isinstance(observation, tuple) else observation
    parts = observation.values() if isinstance(observation, dict) else single
    return sum(part.nbytes for part in parts) / 8e3


def recorded(id: str, rows: int, options: dict[str, Any]) -> tuple[Binding, list[np.ndarray], np.ndarray]:
    """The world itself, its actions, and the rewards of the last step."""
    world = milkrun.make(id, rows, seed=1, threads=1, **options)
    world.reset()
    actions = []
    for turn in range(STEPS):
        actions.append(world.sample_actions(0, turn))
        world.step(actions[-1])
    assert not world.done.any(), "a row ended: record fewer steps"

    def step(joint: np.ndarray) -> np.ndarray:
        world.step(joint)
        return world.reward

    return Binding(lambda: world.reset(seed=1), step, actions), actions, world.reward.copy()


def bindings(id: str, rows: int, options: dict[str, Any], actions: list[np.ndarray]) -> dict[str, Binding]:
    """The bindings of this world, by the name of their column."""
    made: dict[str, Any] = {"threads": 1, **options}
    found: dict[str, Binding] = {}
    for label, copy in (("gymnasium", True), ("gymnasium, no copy", False)):
        vector = milkrun.make(id, rows, api="gymnasium", seed_rule="row", copy=copy, **made)
        goal = 10 + copying(vector.reset()[0]) if copy else 2 if rows <= 64 else None
        share = None if copy else NO_COPY_SHARE.get((id, rows))
        found[label] = Binding(lambda e=vector: e.reset(seed=1), lambda a, e=vector: e.step(a)[1], actions, goal, share)
    for label, layout in (("SB3", "dict"), ("SB3, flat", "flat")):
        rows_of = milkrun.make(id, rows, api="sb3", seed_rule="row", layout=layout, **made)
        found[label] = Binding(
            lambda e=rows_of: (e.seed(1), e.reset()),
            lambda a, e=rows_of: e.step(a)[1],
            actions,
            20 + copying(rows_of.reset()),
        )
    if id == WORLDS["CVRP-50"][0]:
        found["TorchRL"] = _torchrl(id, rows, options, actions)
        venv = milkrun.make(id, rows, api="tianshou", seed_rule="row", **made)
        found["tianshou"] = Binding(
            lambda: (venv.seed(1), venv.reset()), lambda a: venv.step(a)[1], actions, 20 + 0.5 * rows
        )
        return found
    team = milkrun.make(id, rows, api="mappo", **made)
    found["MAPPO"] = Binding(
        lambda: (team.seed(1), team.reset()), lambda a: team.step(a)[2][:, 0, 0], actions, 20 + copying(team.reset())
    )
    if rows == 1:
        alone = milkrun.make(id, api="pettingzoo", **options)
        joint = [dict(zip(alone.possible_agents, a[0].tolist(), strict=True)) for a in actions]
        found["PettingZoo"] = Binding(lambda: alone.reset(seed=1), lambda a: alone.step(a)[1]["truck_0"], joint, 40)
    return found


def sync_ratio(rows: int = 64, rounds: int = 5) -> float:
    """Speed of a vector environment over Gymnasium's SyncVectorEnv of as many single ones, CVRP-50."""
    from gymnasium.vector import SyncVectorEnv

    from milkrun.api.gymnasium import MilkrunEnv

    id, options = WORLDS["CVRP-50"]
    ours = milkrun.make(id, rows, api="gymnasium", threads=1, **options)
    others = SyncVectorEnv([lambda: MilkrunEnv(id, **options)] * rows)
    ours.reset(seed=1)
    actions = []
    for turn in range(STEPS):
        actions.append(ours.world.sample_actions(0, turn))
        rewards = ours.step(actions[-1])[1]
    native, one_by_one = (
        Binding(partial(env.reset, seed=1), lambda a, e=env: e.step(a)[1], actions) for env in (ours, others)
    )
    one_by_one.check(rewards)
    with no_garbage_collection():
        return statistics.median(_stretch(one_by_one, 2) / (_stretch(native, 20) / 10) for _ in range(rounds + 1))


def _torchrl(id: str, rows: int, options: dict[str, Any], actions: list[np.ndarray]) -> Binding:
    import torch

    torch.set_num_threads(1)
    env = milkrun.make(id, rows, api="torchrl", threads=1, **options)
    last: dict[str, Any] = {}

    def begin() -> None:
        env.set_seed(1)
        last["td"] = env.reset()

    def step(action: Any) -> np.ndarray:
        following = env.step(last["td"].set("action", action))["next"]
        last["td"] = following.exclude("reward")
        return following["reward"].numpy()

    return Binding(begin, step, [torch.from_numpy(a) for a in actions])


def measured(raw: Binding, found: dict[str, Binding], pairs: int) -> tuple[float, dict[str, float]]:
    """Microseconds of the world's step, and those that each binding adds.

    Both play stretches of some milliseconds in turn, and the median of the differences counts, so that a slow moment of
    the machine affects both.
    """
    base, added = [], {}
    with no_garbage_collection():
        for name, binding in found.items():
            both = raw, binding
            for one in both:
                _stretch(one, 2)
            episodes = max(1, round(2e-3 / _stretch(raw, 1)))
            spent = [[_stretch(one, episodes) for one in both] for _ in range(pairs)]
            base += [1e6 * own / (episodes * STEPS) for own, _ in spent]
            added[name] = 1e6 * statistics.median(other - own for own, other in spent) / (episodes * STEPS)
    return statistics.median(base), added


def _stretch(binding: Binding, episodes: int) -> float:
    """Seconds in the steps of some episodes, resets left out."""
    spent = 0.0
    for _ in range(episodes):
        binding.begin()
        spent += binding.play(0, STEPS)
    return spent


COLUMNS = ("gymnasium", "gymnasium, no copy", "TorchRL", "SB3", "SB3, flat", "tianshou", "MAPPO", "PettingZoo")


def api_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Microseconds that each binding adds, and the goals."""
    table = Table(
        "What a binding adds to a step, microseconds (one thread, no row ends)",
        ["world", "rows", "World.step", *COLUMNS],
        notes={"gymnasium, SB3": "dict layout unless said; results are copies", "TorchRL": "functional"},
    )
    pairs = 30 if options.quick else 100
    promised: dict[str, float] = {}
    for label, (id, config) in WORLDS.items():
        for rows in BATCHES:
            raw, actions, rewards = recorded(id, rows, config)
            found = bindings(id, rows, config, actions)
            for binding in found.values():
                binding.check(rewards)
            base, added = measured(raw, found, pairs)
            for name, binding in found.items():
                if binding.goal is not None:
                    promised[f"{label}, {rows} rows, {name}: us added (at most {binding.goal:.0f})"] = added[name]
                if binding.share is not None:
                    times = f"{label}, {rows} rows, {name} / World.step (at most {binding.share})"
                    promised[times] = (base + added[name]) / base
            table.add(**{"world": label, "rows": rows, "World.step": base, **added})
            print(f"{label} {rows}: {base:.3g} us, " + ", ".join(f"{k} +{v:.3g}" for k, v in added.items()), flush=True)
    promised["VectorEnv / SyncVectorEnv of the same environments, 64 rows of CVRP-50 (30)"] = sync_ratio()
    return table, promised
