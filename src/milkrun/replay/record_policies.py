"""Plays policies and records their episodes: `record` in one world, `compare` several on the same instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from milkrun.core.arguments import Rows, check_count, check_seed
from milkrun.core.errors import ConfigError, shown
from milkrun.core.registry import make, world_spec
from milkrun.render.recorder import EpisodeRecorder
from milkrun.replay.episode import Episode
from milkrun.solvers.evaluate import check_player, rollout
from milkrun.solvers.named import choose_player
from milkrun.solvers.policies import Factory, Policy, split_names

MOST = 3  # policies side by side


def record(
    world: Any, policy: Policy | str, rows: Rows = (0,), *, name: str = "", max_steps: int | None = None
) -> list[Episode]:
    """Play from the present state of the world until every row has ended; returns the episodes of `rows`.

    If the policy has a method `scores(world) -> (B, A)`, the scores are recorded too.
    """
    policy = check_player(world, policy)
    recorder = EpisodeRecorder(world, rows, policy=name)

    def play(_: Any) -> np.ndarray:
        if hasattr(policy, "scores"):
            recorder.note_scores(policy.scores(world))
        return policy(world)

    rollout(recorder, play, max_steps)  # type: ignore[arg-type]
    return [Episode.of(recording) for recording in recorder.episodes()]


def compare(
    id: str,
    policies: Sequence[str],
    *,
    rows: Sequence[int] = (0,),
    seed: int = 0,
    episode: int = 0,
    preset: str | None = None,
    threads: int | None = None,
    **config: Any,
) -> list[list[Episode]]:
    """A list per row that holds an episode of each policy, all on the same instance.

    Each name is a policy of the world or a method of `solve`, whose solution is then played.
    """
    if isinstance(policies, str):  # a text would be iterated by characters
        policies = split_names(policies)
    check_names(policies)
    seed, episode = check_seed(seed), check_count("episode", episode, 0)
    if not np.iterable(rows):
        raise ConfigError(f"rows={shown(rows)}: must be a list of row numbers")
    spec = world_spec(id)
    factories = {name: choose_player(spec.id, name)[1] for name in policies}
    made = {"seed": seed, "preset": preset, "threads": threads, **config}
    return [[_record_row(spec.id, name, factories[name], row, episode, made) for name in policies] for row in rows]


def check_names(names: Sequence[str]) -> None:
    """Raise ConfigError unless these policies can be shown side by side."""
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"policies must be a list of names, not {shown(names)}")
    if not 1 <= len(names) <= MOST:
        raise ConfigError(f"{len(names)} policies: 1 to {MOST} are allowed")
    if twice := [name for k, name in enumerate(names) if name in names[:k]]:
        raise ConfigError(f"the policy {shown(twice[0])} is given twice")


def _record_row(id: str, name: str, factory: Factory, row: int, episode: int, made: dict[str, Any]) -> Episode:
    world = make(id, 1, first_row=row, autoreset="disabled", **made)
    for _ in range(episode + 1):
        world.reset()
    return record(world, factory(made["seed"]), name=name)[0]
