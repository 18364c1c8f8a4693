"""`milkrun bench`: quick speed of the worlds on this machine. The comparison with peers is `make bench`."""

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
"""Of a batch that nobody has asked for by its number of rows."""
LOOKED_AT = ", with observe()"
"""What stands behind the name of a world that is looked at after each step."""


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

    Whole random episodes, one that takes longer than --seconds cut off; a step is one step of one row. Medians over
    episodes, compile time and resets left out. A world whose observation is made on demand, as a picture is, is looked
    at after each step, and its line says so. The comparison with other libraries is `make bench` in the repository.

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
            # Known from the smaller batch before. The first one, of a single row, is always measured.
            if not rows and count * bytes_per_row > MOST_BYTES:
                shown.add_row(world_id, f"{count:,}", "left out:", f"{count * bytes_per_row / 1e9:,.1f} GB", "")
                continue
            world = milkrun.make(
                world_id, count, preset=preset, config=options, seed=0, autoreset="disabled", threads=threads
            )
            bytes_per_row = world.bytes_per_row
            alone, together = speed(world, random_policy(0), seconds)
            name = world_id + LOOKED_AT * looks_at(world)
            shown.add_row(name, f"{count:,}", f"{alone:,.0f}", f"{1e6 * count / alone:,.1f}", f"{together:,.0f}")
    console().print(shown)


class Clocked:
    """A policy that adds up the time it takes."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.seconds = 0.0

    def __call__(self, world: World) -> np.ndarray:
        clock = Clock()
        actions = self.policy(world)
        self.seconds += clock.seconds
        return actions


def looks_at(world: World) -> bool:
    """Whether what agents see is made on demand: then a step without a look is not what they pay for."""
    return any(f.primary and f.on_demand for f in world.observed)


def speed(world: World, policy: Policy, seconds: float) -> tuple[float, float]:
    """Steps per second of the world alone and together with the policy: medians over whole rollouts. One that takes
    longer than so many seconds is cut off there, and is the only one; else the first warms up."""
    from milkrun.render.hooks import StepHooks

    class Observed(StepHooks):
        def after_step(self, rows: Rows) -> None:
            self.world.observe(rows)

    played: Any = Observed(world) if looks_at(world) else world
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
    """Whether it came to its end in that time, and steps per second without and with the policy, the compiler's time
    left out. It is played in pieces of doubled length, so that looking at the clock costs nothing."""
    from milkrun.solvers import rollout

    clocked, clock, steps, turns = Clocked(policy), Clock(), 0, 1
    while True:
        more = rollout(played, clocked, turns)
        steps, turns, spent = steps + more, 2 * turns, clock.seconds
        if not more or spent > seconds:
            return not more, steps / (spent - clocked.seconds), steps / spent
