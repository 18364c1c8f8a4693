"""`milkrun bench`: measures the speed of the worlds on this machine. `make bench` compares it with other libraries."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import typer

from milkrun.cli.output import PRESET, SETTINGS, console, read_settings, table
from milkrun.core.clock import Clock

if TYPE_CHECKING:
    import numpy as np

    from milkrun.core.arguments import Rows
    from milkrun.core.world import World
    from milkrun.solvers import Policy

MOST_BYTES = 1e9
"""Larger batches are left out, unless `--num-envs` names them."""
WITH_OBSERVE = ", with observe()"
"""Suffix of a world that is observed after each step."""


def bench(
    id: str | None = typer.Argument(None, metavar="[ID]", help="A world; all of them without it.", show_default=False),
    rows: list[int] = typer.Option(
        [],
        "--num-envs",
        min=1,
        show_default="1, 64, 1024, 8192; of slow worlds fewer, none above 1 GB",
        help="Batch sizes; may be repeated.",
    ),
    threads: int | None = typer.Option(None, "--threads", min=1, help="Threads (default: as a world decides)."),
    seconds: float = typer.Option(0.5, "--seconds", min=0.0, help="Time spent on each batch size."),
    preset: str | None = PRESET,
    settings: list[str] = SETTINGS,
) -> None:
    """Measure steps per second at several batch sizes.

    Plays whole random episodes, at most --seconds of each. A step is one step of one row. The figures are medians over
    episodes without compile time and resets. A world whose observation is made on demand (a picture) is observed after
    each step, and its line says so. `make bench` in the repository compares with other libraries.

    \b
    Examples:
      milkrun bench
      milkrun bench CVRP-v0 --preset n50 --num-envs 1024 --threads 1
    """
    import milkrun
    from milkrun.core.registry import list_worlds, world_spec
    from milkrun.solvers import random_policy

    options = read_settings(settings)
    shown = table(
        "",
        "world",
        "rows",
        "steps/s",
        "µs a call",
        "steps/s with the random policy",
        right=("rows", "steps/s", "µs a call", "steps/s with the random policy"),
    )
    for world_id in [world_spec(id).id] if id is not None else list_worlds():
        most, bytes_per_row = 8 * world_spec(world_id).load().demo_rows, 0.0
        for count in rows or [n for n in (1, 64, 1024, 8192) if n <= most]:
            # Known from the smaller batch before. The first batch, of a single row, is always measured.
            if not rows and count * bytes_per_row > MOST_BYTES:
                shown.add_row(world_id, f"{count:,}", "left out:", f"{count * bytes_per_row / 1e9:,.1f} GB", "")
                continue
            world = milkrun.make(
                world_id, count, preset=preset, config=options, seed=0, autoreset="disabled", threads=threads
            )
            bytes_per_row = world.bytes_per_row
            alone, together = speed(world, random_policy(0), seconds)
            name = world_id + WITH_OBSERVE * needs_observe(world)
            shown.add_row(name, f"{count:,}", f"{alone:,.0f}", f"{1e6 * count / alone:,.1f}", f"{together:,.0f}")
    console().print(shown)


class TimedPolicy:
    """A policy that sums up its own time."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.seconds = 0.0

    def __call__(self, world: World) -> np.ndarray:
        clock = Clock()
        actions = self.policy(world)
        self.seconds += clock.seconds
        return actions


def needs_observe(world: World) -> bool:
    """Whether observations are made on demand: then a step without observe() is not what an agent pays for."""
    return any(f.primary and f.on_demand for f in world.observed)


def speed(world: World, policy: Policy, seconds: float) -> tuple[float, float]:
    """Steps per second without and with the policy: medians over whole rollouts, the first of which warms up. A rollout
    that takes longer than `seconds` is cut off and is the only one."""
    from milkrun.render.hooks import StepHooks

    class Observed(StepHooks):
        def after_step(self, rows: Rows) -> None:
            self.world.observe(rows)

    played: Any = Observed(world) if needs_observe(world) else world
    found: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(found) < 2 or time.perf_counter() < end:
        world.reset()
        whole, alone_once, together_once = _timed_rollout(played, policy, seconds)
        found.append((alone_once, together_once))
        if not whole:
            break
    alone, together = zip(*(found[1:] or found), strict=True)
    return statistics.median(alone), statistics.median(together)


def _timed_rollout(played: Any, policy: Policy, seconds: float) -> tuple[bool, float, float]:
    """Whether the rollout ended in that time, and steps per second without and with the policy, without compile time.
    It is played in pieces of doubled length, so that reading the clock costs nothing."""
    from milkrun.solvers import rollout

    timed_policy, clock, steps, turns = TimedPolicy(policy), Clock(), 0, 1
    while True:
        more = rollout(played, timed_policy, turns)
        steps, turns, spent = steps + more, 2 * turns, clock.seconds
        if not more or spent > seconds:
            return not more, steps / (spent - timed_policy.seconds), steps / spent
