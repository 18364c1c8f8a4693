"""Stepping with a small policy in TorchRL: `env.rollout`, and the plain loop that users of RL4CO write.

CVRP-50 with the same instances and a policy of three linear layers that samples a masked categorical. No row ends
within the steps. A rollout keeps every step, so views (`copy=False`), which the next call overwrites, play in the loop
only. So does RL4CO, whose `step` returns no TensorDict for `env.rollout`.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch

from .contestants import TorchRL
from .episodes import Episodes, record_random_episodes
from .timing import Table, clock, no_garbage_collection

NUM_LOC, WIDTH, STEPS = 50, 128, 40
BATCHES = (1, 64, 1024, 8192)
KEYS = {
    "milkrun": ("locs", "demand_units", "visited", "load"),
    "rl4co": ("locs", "demand", "visited", "used_capacity"),
}


class Policy(torch.nn.Module):
    """Samples an allowed action from the flattened entries `keys` of a TensorDict."""

    def __init__(self, keys: tuple[str, ...], td: Any) -> None:
        super().__init__()
        self.keys = keys
        actions = td["action_mask"].shape[-1]
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(self.features(td).shape[-1], WIDTH),
            torch.nn.ReLU(),
            torch.nn.Linear(WIDTH, WIDTH),
            torch.nn.ReLU(),
            torch.nn.Linear(WIDTH, actions),
        )

    def features(self, td: Any) -> torch.Tensor:
        return torch.cat([td[key].reshape(td.batch_size[0], -1).float() for key in self.keys], dim=-1)

    @torch.no_grad()
    def forward(self, td: Any) -> Any:
        logits = self.layers(self.features(td)).masked_fill(~td["action_mask"], -1e9)
        return td.set("action", torch.distributions.Categorical(logits=logits).sample())


class Played:
    """An environment with a policy for it; `play` returns the seconds of STEPS steps, without the reset."""

    def __init__(self, env: Any, instance: Any, keys: tuple[str, ...]) -> None:
        self.env = env
        self.instance = instance
        self.policy = Policy(keys, self.start())

    def start(self) -> Any:
        return self.env.reset(self.instance.clone(recurse=False))

    def play(self) -> float:
        raise NotImplementedError


class Rollout(Played):
    """`env.rollout`."""

    def play(self) -> float:
        td = self.start()
        before = clock()
        steps = self.env.rollout(STEPS, self.policy, auto_reset=False, tensordict=td).shape[-1]
        spent = clock() - before
        assert steps == STEPS, "a row ended: play fewer steps"
        return spent


class Loop(Played):
    """Policy and `env.step` in turn; each result is dropped for the next."""

    def play(self) -> float:
        td = self.start()
        before = clock()
        for _ in range(STEPS):
            td = self.env.step(self.policy(td))["next"]
        return clock() - before


def contestants(episodes: Episodes) -> dict[str, Played]:
    """The contestants on the recorded instances, by the name of their column."""
    from .peers.rl4co import StepRL4CO

    functional = TorchRL(episodes)
    in_place = TorchRL(episodes, stepping="inplace")
    views = TorchRL(episodes, stepping="inplace", copy=False)
    rl4co = StepRL4CO(episodes.name, NUM_LOC, episodes.batch, episodes=episodes)
    return {
        "rollout, functional": Rollout(functional.env, functional.instance, KEYS["milkrun"]),
        "rollout, in place": Rollout(in_place.env, in_place.instance, KEYS["milkrun"]),
        "loop, functional": Loop(functional.env, functional.instance, KEYS["milkrun"]),
        "loop, views": Loop(views.env, views.instance, KEYS["milkrun"]),
        "loop, RL4CO 0.7.0": Loop(rl4co.env, rl4co.instance, KEYS["rl4co"]),
    }


COLUMNS = ("rollout, functional", "rollout, in place", "loop, functional", "loop, views", "loop, RL4CO 0.7.0")


def policy_rollout_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Microseconds per step, policy included."""
    table = Table(
        f"Steps with a small policy in TorchRL, microseconds (CVRP-{NUM_LOC}, one thread, MLP of width {WIDTH})",
        ["rows", *COLUMNS, "functional / RL4CO", "views / RL4CO"],
        notes={"order": "all play in turn, then again; medians", "ratios": "of the loops: times as fast as RL4CO"},
    )
    torch.set_num_threads(1)
    repeats = 5 if options.quick else 25
    promised: dict[str, float] = {}
    for batch in BATCHES:
        played = contestants(record_random_episodes("cvrp", NUM_LOC, batch, seed=batch))
        seconds: dict[str, list[float]] = {name: [] for name in played}
        with no_garbage_collection():
            for k in range(repeats + 1):
                for name, one in played.items():
                    torch.manual_seed(k)
                    seconds[name].append(one.play())
        us = {name: 1e6 * statistics.median(spent[1:]) / STEPS for name, spent in seconds.items()}
        ratios = {f"{name} / RL4CO": us[COLUMNS[-1]] / us[f"loop, {name}"] for name in ("functional", "views")}
        promised |= {f"Steps with a small policy, {name}, {batch:,} rows": ratio for name, ratio in ratios.items()}
        table.add(rows=batch, **us, **ratios)
        print(f"with a policy, {batch} rows: " + ", ".join(f"{k} {v:.3g} us" for k, v in us.items()), flush=True)
    return table, promised
