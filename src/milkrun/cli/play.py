"""Plays the episodes of one policy, draws the best and the median one, and summarises them, for `run` and `demo`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import milkrun
from milkrun.cli.details import Details
from milkrun.cli.output import unwatched
from milkrun.cli.replay import world_stem
from milkrun.core.clock import Clock
from milkrun.core.files import file_name
from milkrun.core.references import refer
from milkrun.core.registry import WorldSpec, world_spec
from milkrun.core.world import World
from milkrun.replay.figures import save, side_by_side
from milkrun.solvers import Factory, evaluate, rollout
from milkrun.solvers.named import choose_player


def file_stem(spec: WorldSpec, policy: str) -> str:
    return f"{world_stem(spec.id)}_{file_name(policy)}"


def play(
    world_id: str,
    policy: str | None,
    out: Path,
    *,
    num_envs: int,
    episodes: int,
    seed: int,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    threads: int | None = None,
    debug: bool | None = None,
    progress: Callable[[int], object] | None = None,
    in_detail: bool = True,
) -> dict[str, Any]:
    """Plays the episodes, writes the picture into `out`, returns the summary.

    `in_detail`: also writes the details of the median episode that the world defines: log, chart, film.
    """
    spec = world_spec(world_id)
    name, factory = choose_player(spec.id, policy)
    make = partial(
        milkrun.make,
        spec.id,
        preset=preset,
        config=settings or {},
        seed=seed,
        autoreset="disabled",
        threads=threads,
        debug=debug,
    )
    world = make(num_envs)
    clock = Clock()
    result = evaluate(world, factory(seed), episodes, seed, progress=progress)
    seconds = clock.seconds

    shown = {}
    pictures = []
    details = details_of(type(world))
    for label, number in (("best", result.best), ("median", result.median)):
        row, episode = result.where(number)
        value, steps = float(result.returns[number]), int(result.lengths[number])
        shown[label] = {"row": row, "episode": episode, "return": value, "steps": steps}
        heading = f"{label} of {episodes:,} episodes (row {row}, episode {episode})"
        film_of = steps if in_detail and label == "median" else None
        watch = partial(details.recorded, film_of=film_of) if details.recorded else unwatched
        pictures.append((replay(make, factory, seed, row, episode, watch), 0, heading))
    picture = out / f"{file_stem(spec, name)}.png"
    save(side_by_side(pictures, title=f"{spec.id}, policy {name}, mean return {result.mean:.3f}"), picture)
    more: dict[str, Any] = {}
    if details.of_rows:
        more = details.of_rows(make, factory, seed, min(num_envs, episodes), pictures[1][0], picture.with_suffix(""))
    if in_detail and details.write_episode:
        title = f"{spec.id}, policy {name}: the median episode"
        row, episode = result.where(result.median)

        def again(changes: Mapping[str, Any]) -> World:
            return at_start(partial(make, config={**(settings or {}), **changes}), row, episode)

        more["files"] = details.write_episode(pictures[1][0], picture.with_suffix(""), title, again)
    return {
        "world": spec.id,
        "policy": name,
        "num_envs": num_envs,
        "seed": seed,
        "preset": preset,
        "config": world.config.as_dict(),
        **result.summary(),
        **shown,
        "seconds": seconds,
        "steps_per_second": float(result.lengths.sum() / seconds),
        "picture": picture.name,
        **more,
        "milkrun": milkrun.__version__,
    }


def details_of(cls: type[World]) -> Details:
    """The details that the class of a world defines."""
    return refer(cls, "run_details") if cls.run_details else Details()


def replay(
    make: Callable[..., World],
    factory: Factory,
    seed: int,
    row: int,
    episode: int,
    watch: Callable[[World], Any] = unwatched,
) -> Any:
    """Plays an episode again, in a world of one row, and returns the watched world. Rows have the same bits in a batch
    of any size."""
    world, policy = at_start(make, row, episode), factory(seed)
    watched = watch(world)
    rollout(watched, lambda _: policy(world))
    return watched


def at_start(make: Callable[..., World], row: int, episode: int) -> World:
    """A world of one row at the start of an episode."""
    world = make(1, first_row=row)
    # Draws depend only on the number of resets, so earlier episodes need not be played.
    for _ in range(episode + 1):
        world.reset()
    return world
