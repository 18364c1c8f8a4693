"""One policy in one world: play its episodes, draw the best and the median one, say it in numbers. `run` and `demo`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import milkrun
from milkrun.cli import clutter, delivery, tracking
from milkrun.cli.output import as_it_is
from milkrun.cli.replay import file_name
from milkrun.core.clock import Clock
from milkrun.core.errors import ConfigError, did_you_mean
from milkrun.core.registry import WorldSpec, world_spec
from milkrun.core.world import World
from milkrun.replay.figures import save, side_by_side
from milkrun.solvers import Factory, evaluate, policies_for, rollout


def choose_policy(world_id: str, name: str | None) -> tuple[str, Factory]:
    """The named policy; without a name the world's first heuristic, random where it has none."""
    known = policies_for(world_id)
    if name is None:
        name = next((n for n in known if n != "random"), "random")
    if name not in known:
        raise ConfigError(f"{world_id} has no policy {name!r}{did_you_mean(name, known)}")
    return name, known[name]


def file_stem(spec: WorldSpec, policy: str) -> str:
    return f"{file_name(spec.id)}_{policy}"


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

    `in_detail`: of a world of truck and drones or of clutter the median episode's log, chart and film are written too.
    """
    spec = world_spec(world_id)
    name, factory = choose_policy(spec.id, policy)
    make = partial(
        milkrun.make, spec.id, preset=preset, config=settings or {}, seed=seed, autoreset="disabled", threads=threads,
        debug=debug,
    )  # fmt: skip
    world = make(num_envs)
    clock = Clock()
    result = evaluate(world, factory(seed), episodes, seed, progress=progress)
    seconds = clock.seconds

    shown = {}
    pictures = []
    kind = kind_of(world)
    for label, number in (("best", result.best), ("median", result.median)):
        row, episode = result.where(number)
        value, steps = float(result.returns[number]), int(result.lengths[number])
        shown[label] = {"row": row, "episode": episode, "return": value, "steps": steps}
        heading = f"{label} of {episodes:,} episodes (row {row}, episode {episode})"
        film_of = steps if in_detail and label == "median" else None
        watch = partial(kind.recorded, film_of=film_of) if kind else as_it_is
        pictures.append((replay(make, factory, seed, row, episode, watch), 0, heading))
    picture = out / f"{file_stem(spec, name)}.png"
    save(side_by_side(pictures, title=f"{spec.id}, policy {name}, mean return {result.mean:.3f}"), picture)
    more: dict[str, Any] = {}
    if "daily_fill" in world.fields and world.config.record:
        more = simulate(make, factory, seed, min(num_envs, episodes), pictures[1][0], picture.with_suffix(""))
    elif in_detail and kind:
        title = f"{spec.id}, policy {name}: the median episode"
        row, episode = result.where(result.median)

        def again(changes: Mapping[str, Any]) -> World:
            return begun(partial(make, config={**(settings or {}), **changes}), row, episode)

        more["files"] = kind.write_episode(pictures[1][0], picture.with_suffix(""), title, again)
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


def kind_of(world: World) -> Any:
    """Who writes more of an episode than its picture, by what the world has; None: nobody."""
    if "grasp_order" in world.fields:
        return clutter
    if "veh_pose" in world.fields:
        return tracking
    return delivery if "by_drone" in world.fields or {"truck_pos", "drone_pos"} <= set(world.fields) else None


def simulate(
    make: Callable[..., World], factory: Factory, seed: int, rows: int, shown: World, stem: Path
) -> dict[str, Any]:
    """The days of a waste simulation: means over the rows, and a figure of one row."""
    from milkrun.replay.days import days_of, figure_of_days

    world = make(rows)
    world.reset()
    rollout(world, factory(seed))
    days = days_of(world)
    figure = stem.with_name(f"{stem.name}_days.png")
    save(figure_of_days(shown, 0, "The median episode, day by day"), figure)
    names = ("overflows", "failures", "waste", "length", "profit")
    means = {name: getattr(days, name).mean(0).tolist() for name in names}
    units = {"waste": days.waste_unit, "length": days.length_unit, "profit": days.profit_unit}
    return {"days": means, "units": units, "days_picture": figure.name, "days_rows": rows}


def replay(
    make: Callable[..., World], factory: Factory, seed: int, row: int, episode: int,
    watch: Callable[[World], Any] = as_it_is,
) -> Any:  # fmt: skip
    """A world of one row that has just ended that episode, as `watch` has seen it; rows are the same bits in a batch of
    any size."""
    world, policy = begun(make, row, episode), factory(seed)
    watched = watch(world)
    rollout(watched, lambda _: policy(world))
    return watched


def begun(make: Callable[..., World], row: int, episode: int) -> World:
    """A world of one row that stands at the start of that episode."""
    world = make(1, first_row=row)
    for _ in range(episode + 1):
        world.reset()
    return world
