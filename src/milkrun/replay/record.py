"""Recording policies: `record` plays the rows of a world to their end, `compare` several on the same instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from milkrun.core.arguments import Rows, check_count, check_seed
from milkrun.core.errors import ConfigError, did_you_mean, shown
from milkrun.core.instances import instances_of
from milkrun.core.recorder import EpisodeRecorder
from milkrun.core.registry import make, world_spec
from milkrun.replay.episode import Episode
from milkrun.solvers.evaluate import check_player, rollout
from milkrun.solvers.policies import Policy, policies_for
from milkrun.solvers.solve import solve

MOST = 3  # policies side by side


def record(
    world: Any, policy: Policy, rows: Rows = (0,), *, name: str = "", max_steps: int | None = None
) -> list[Episode]:  # fmt: skip
    """Plays on from where the world stands until every row has ended; the episodes of these rows.

    A policy with a method `scores(world) -> (B, A)` has them recorded.
    """
    check_player(world, policy)
    recorder = EpisodeRecorder(world, rows, policy=name)

    def play(_: Any) -> np.ndarray:
        if hasattr(policy, "scores"):
            recorder.note_scores(policy.scores(world))
        return policy(world)

    rollout(recorder, play, max_steps)  # type: ignore[arg-type]
    return [Episode.of(recording) for recording in recorder.episodes()]


def compare(
    id: str, policies: Sequence[str], *, rows: Sequence[int] = (0,), seed: int = 0, episode: int = 0,
    preset: str | None = None, threads: int | None = None, **config: Any,
) -> list[list[Episode]]:  # fmt: skip
    """A list for each row, in it an episode of each policy, all on the same instance.

    A name that is no policy of the world but a method of `solve` is solved, and the plan driven.
    """
    if isinstance(policies, str):  # else its letters would be taken for policies
        policies = policies.split(",")
    check_names(policies)
    seed, episode = check_seed(seed), check_count("episode", episode, 0)
    if not np.iterable(rows):
        raise ConfigError(f"rows={shown(rows)}: must be a list of row numbers")
    spec = world_spec(id)
    known, methods = policies_for(spec.id), spec.load().solvers
    for name in policies:
        if name not in known and name not in methods:
            raise ConfigError(f"{spec.id} has no policy or method {name!r}{did_you_mean(name, {*known, *methods})}")
    made = {"seed": seed, "preset": preset, "threads": threads, **config}
    return [[_played(spec.id, name, known, row, episode, made) for name in policies] for row in rows]


def check_names(names: Sequence[str]) -> None:
    """Raises ConfigError unless these policies can stand side by side."""
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"policies are a list of names, not {shown(names)}")
    if not 1 <= len(names) <= MOST:
        raise ConfigError(f"{len(names)} policies: 1 to {MOST} stand side by side")
    if twice := [name for k, name in enumerate(names) if name in names[:k]]:
        raise ConfigError(f"the policy {shown(twice[0])} is named twice")


def _played(id: str, name: str, known: Any, row: int, episode: int, made: dict[str, Any]) -> Episode:
    world = make(id, 1, first_row=row, autoreset="disabled", **made)
    for _ in range(episode + 1):
        world.reset()
    policy = known[name](made["seed"]) if name in known else planned(world, name, made["seed"])
    return record(world, policy, name=name)[0]


def planned(world: Any, method: str, seed: int = 0) -> Policy:
    """A policy that drives what a method of `solve` answers to the instances of a world that has just been reset."""
    plan = solve(world.id, instances_of(world), method, seed=seed, **world.config.as_dict()).actions

    def drive(played: Any) -> np.ndarray:
        done = np.minimum(played.i, plan.shape[1] - 1)
        actions: np.ndarray = plan[np.arange(len(plan)), done]
        return np.where(played.i < plan.shape[1], actions, 0)

    return drive
