"""Picking from clutter: episodes of highest first, compared with plain SAPIEN; the cost of a step, a reset and a row.

Two threads move 256 rows. Wall-clock rates are valid on idle cores only. The table also has the rate per CPU-second,
which depends less on the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import milkrun
from milkrun.clutter import bank
from milkrun.clutter.model import parking
from milkrun.clutter.observations import observe
from milkrun.clutter.options import BASE, RIM, ClutterConfig
from milkrun.core.kernels import kernel
from milkrun.solvers.clutter import highest

from .peers.apart import run_script
from .timing import Table, clock, median_time, no_garbage_collection

CLUTTER = "milkrun/Clutter-v0"
THREADS = 2
BARS = {
    "default": "promised 420, goal 600",
    "fast": "promised 480, goal 700",
    "small_scene": "promised 900, goal 1100",
    "large_scene": "promised 200, goal 350",
    "loose_scene": "promised 1000, goal 1300",
}
AGAINST_SAPIEN = {"default": "promised 2.2, goal 5", "loose_scene": "promised 3.5, goal 5"}
MACRO = (
    "timestep",
    "substeps",
    "tick",
    "tray_friction",
    "object_friction",
    "approach",
    "cup_speed",
    "descend_ticks",
    "grip_ticks",
    "weld_timeconst",
    "weld_torquescale",
    "lift_acc",
    "lift_ticks",
    "clearance",
    "rest_speed",
    "rest_spin",
    "rest_ticks",
    "settle_max",
)
"""Options that SAPIEN's macro needs."""


class Sizes(NamedTuple):
    """Amounts of work: rounds and their turns; turns of a single row; processor seconds, scenes and stretches of
    SAPIEN, in turn with ours; settled scenes, and those of worlds without a shipped bank; repeats of short parts."""

    rows: int = 256
    rounds: int = 7
    turns: int = 4
    single_turns: int = 60
    seconds: float = 15.0
    scenes: int = 64
    stretches: int = 5
    made: int = 256
    bank: int = 64
    repeats: int = 9
    min_seconds: float = 0.2

    @property
    def timing(self) -> dict[str, Any]:
        return {"repeats": self.repeats, "min_seconds": self.min_seconds}


FULL = Sizes()
QUICK = Sizes(
    rounds=5, turns=2, single_turns=20, seconds=4.5, stretches=3, made=32, bank=16, repeats=5, min_seconds=0.03
)


class Pace(NamedTuple):
    """Picks per second, and per second of processor time."""

    wall: float
    cpu: float

    def whole(self, by: str, threads: int = THREADS) -> float:
        """The rate of the machine; by processor time that of threads that never wait for a core."""
        return threads * self.cpu if by == "cpu" else self.wall


class Episodes:
    """A world whose rows are evenly spread over their episodes, since full piles cost more than nearly empty ones."""

    def __init__(self, preset: str, rows: int, threads: int = THREADS, **options: Any) -> None:
        self.world = milkrun.make(CLUTTER, rows, preset=preset, seed=0, threads=threads, **options)
        self.world.reset()
        turns = self.world.config.max_episode_steps_discrete + 1  # one of them resets
        for k in range(1, turns):
            ahead = np.flatnonzero(np.arange(rows) % turns >= k)
            if len(ahead):
                self.world.step(highest(self.world)[ahead], rows=ahead)
        self.play(1)

    def play(self, turns: int) -> int:
        """Play and observe this many steps of all rows; returns the picks. Finished rows are reset instead."""
        world, picks = self.world, 0
        for _ in range(turns):
            picks += world.num_envs - int(np.count_nonzero(world.done))
            world.step(highest(world))
            world.observe()
        return picks


class OneRow:
    """A single environment of Gymnasium."""

    def __init__(self) -> None:
        self.env = milkrun.make(CLUTTER, api="gymnasium")
        self.env.reset(seed=0)
        self.play(1)

    def play(self, turns: int) -> int:
        for _ in range(turns):
            ended = self.env.step(int(highest(self.env.world)[0]))
            if ended[2] or ended[3]:
                self.env.reset()
        return turns


def paces(*played: Any, rounds: int, turns: int) -> list[Pace]:
    """Medians of worlds that play in turn, so that a busy moment affects all of them."""
    found: list[list[Pace]] = [[] for _ in played]
    with no_garbage_collection():
        for _ in range(rounds):
            for own, one in zip(found, played, strict=True):
                wall, cpu = time.perf_counter(), time.process_time()
                picks = one.play(turns)
                own.append(Pace(picks / (time.perf_counter() - wall), picks / (time.process_time() - cpu)))
    return [middle(own) for own in found]


def middle(found: list[Pace]) -> Pace:
    """The median of each clock."""
    return Pace(*(statistics.median(rates) for rates in zip(*found, strict=True)))


# -- the table --------------------------------------------------------------------------------------------------------


class _Results:
    """The table and its promises."""

    def __init__(self, options: argparse.Namespace, sizes: Sizes) -> None:
        title = f"Picking from clutter ({sizes.rows} rows, {THREADS} threads, highest first, picks/s unless said)"
        columns = [
            "measured",
            "milkrun",
            "a CPU-second",
            "peer",
            "peer, a CPU-second",
            "ratio",
            "ratio a core",
            "promised",
        ]
        self.table = Table(title, columns)
        self.promised = {}
        self.options = options
        self.sizes = sizes

    def rate(
        self,
        measured: str,
        ours: Pace,
        peer: Pace | None = None,
        promise: str | None = None,
        threads: tuple[int, int] = (THREADS, THREADS),
        by: str | None = None,
    ) -> None:
        """Add rates; a promise applies to the ratio, or to the rate if there is no peer. `by` overrides the clock."""
        by = by or self.options.clock
        cells: dict[str, Any] = {"milkrun": ours.wall, "a CPU-second": ours.cpu}
        value = ours.whole(by, threads[0])
        if peer is not None:
            value /= peer.whole(by, threads[1])
            cells |= {
                "peer": peer.wall,
                "peer, a CPU-second": peer.cpu,
                "ratio": value,
                "ratio a core": ours.cpu / peer.cpu,
            }
        self._add(measured, cells, value, promise)

    def cost(self, measured: str, value: float, promise: str | None = None) -> None:
        """Add a number that is no rate of picks."""
        self._add(measured, {"milkrun": value}, value, promise)

    def _add(self, measured: str, cells: dict[str, Any], value: float, promise: str | None) -> None:
        self.table.add(measured=measured, promised=(promise or "").removeprefix("promised "), **cells)
        if promise is not None:
            self.promised[f"Clutter, {measured} ({promise})"] = value
        print(f"{measured}: " + ", ".join(f"{name} {x:.4g}" for name, x in cells.items()), flush=True)


def clutter_table(options: argparse.Namespace, sizes: Sizes | None = None) -> tuple[Table, dict[str, float]]:
    """Rates of all presets, of SAPIEN, without sleep, without canonical rows; shares of a step; resets, memory."""
    results, load = _Results(options, sizes or (QUICK if options.quick else FULL)), os.getloadavg()[0]
    _add_presets(results)
    theirs = _add_sapien(results)
    _add_one_row(results)
    _add_shares(results, theirs)
    _add_costs(results)
    results.table.notes |= {
        "a CPU-second": "the rate of a second of processor time, all threads added up",
        "ratio": f"of wall-clock rates; with --clock cpu, but for that of threads, of CPU rates, ours times {THREADS} "
        "against SAPIEN's one thread",
        "load": f"{load:.1f} when the table was begun, {os.getloadavg()[0]:.1f} when it was done; idle is 0",
    }
    return results.table, results.promised


def _add_presets(results: _Results) -> None:
    rows, how = results.sizes.rows, {"rounds": results.sizes.rounds, "turns": results.sizes.turns}
    unslept = {"sleep": False, "bank_size": results.sizes.bank}  # other physics: its scenes are made here
    variants: list[dict[str, Any]] = [{}, unslept, {"canonical": False}, {"threads": 1}]
    dense, awake, free, alone = paces(*(Episodes("default", rows, **one) for one in variants), **how)
    results.rate("default", dense, promise=BARS["default"])
    results.rate("default, sleep (peer: sleep off)", dense, awake)
    results.rate("default, canonical (peer: canonical off)", dense, free)
    results.rate("default, 2 threads (peer: 1 thread)", dense, alone, by="wall")
    for preset in ("fast", "small_scene", "large_scene"):
        results.rate(preset, *paces(Episodes(preset, rows), **how), promise=BARS[preset])
    loose, awake = paces(*(Episodes("loose_scene", rows, **one) for one in variants[:2]), **how)
    results.rate("loose_scene", loose, promise=BARS["loose_scene"])
    results.rate("loose_scene, sleep (peer: sleep off)", loose, awake, "promised 1.5, goal 3")


def _add_one_row(results: _Results) -> None:
    how = {"rounds": results.sizes.rounds, "turns": results.sizes.single_turns}
    gymnasium, world = paces(OneRow(), Episodes("default", 1, threads=1), **how)
    results.rate("default, 1 row through Gymnasium (peer: World of 1 row)", gymnasium, world, threads=(1, 1))


def _add_sapien(results: _Results) -> float | None:
    """The same poses and the same macro in one process; the table has the reason if SAPIEN cannot run.

    Both play in turn, stretch by stretch, so that a busy minute affects both. Returns SAPIEN's substeps per pick of the
    default preset.
    """
    sizes, substeps = results.sizes, None
    for preset, promise in AGAINST_SAPIEN.items():
        measured, played = f"{preset} (peer: SAPIEN, one process)", Episodes(preset, sizes.rows)
        ours: list[Pace] = []
        theirs: list[dict[str, float]] = []
        report: dict[str, Any] | str = ""
        for stretch in range(sizes.stretches):
            ours += paces(played, rounds=1, turns=sizes.turns)
            scenes = slice(stretch, sizes.scenes, sizes.stretches)
            report = run_sapien(preset, scenes, sizes.seconds / sizes.stretches)
            if isinstance(report, str):
                break
            theirs.append(report[preset])
        pace = middle(ours)
        if isinstance(report, str):
            results.table.add(measured=measured, milkrun=pace.wall, peer=report, **{"a CPU-second": pace.cpu})
            print(f"{measured}: {report}", flush=True)
            continue
        peer = middle([Pace(found["wall"], found["cpu"]) for found in theirs])
        results.rate(measured, pace, peer, promise, threads=(THREADS, 1))
        if preset == "default":
            substeps = statistics.median(found["substeps"] for found in theirs)
    return substeps


def run_sapien(preset: str, scenes: slice, seconds: float) -> dict[str, Any] | str:
    """Picks per second of raw SAPIEN on these scenes of a preset, or "skipped: " and the reason."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scenes.json"
        file.write_text(json.dumps({preset: task_of(preset, scenes)}))
        return run_script("sapien", "sapien_picks.py", str(file), "--seconds", str(seconds))


def task_of(preset: str, scenes: slice) -> dict[str, Any]:
    """The input of SAPIEN's script: floor and tray as boxes (half extents, place), objects, poses, options."""
    config = ClutterConfig.build(preset)
    half, wall = config.side / 2, config.wall
    boxes = [[[5.0, 5.0, 1.0], [0.0, 0.0, -1.0]], [[half + RIM, half + RIM, BASE / 2], [0.0, 0.0, BASE / 2]]]
    for at in (-half - RIM / 2, half + RIM / 2):
        boxes.append([[RIM / 2, half + RIM, wall / 2], [at, 0.0, BASE + wall / 2]])
        boxes.append([[half, RIM / 2, wall / 2], [0.0, at, BASE + wall / 2]])
    return {
        "boxes": boxes,
        "half": [[extent / 2 for extent in t.size] for t in config.types],
        "mass": [t.mass for t in config.types],
        "parking": parking(config),
        "home": config.home_pos,
        "drop": config.drop,
        "attempts": config.max_episode_steps_discrete,
        "poses": bank.load(config).poses[scenes].tolist(),
        **{name: getattr(config, name) for name in MACRO},
    }


# -- parts of a step --------------------------------------------------------------------------------------------------


class _TimedEngine:
    """Wrapper of a world's engine that measures time and counts substeps."""

    def __init__(self, engine: Any, timed: Callable[[str, Any], Any]) -> None:
        self._engine = engine
        self.substeps = 0
        self._rollout = timed("rollout", engine.rollout)
        self.reset = timed("place", engine.reset)

    def rollout(self, nstep: int, control: Any, spec: int, record: Any, ids: np.ndarray, out: Any) -> Any:
        self.substeps += nstep * len(ids)
        return self._rollout(nstep, control, spec, record, ids, out)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def shares(played: Episodes, turns: int, threads: int = 1) -> dict[str, float]:
    """Shares of the time of steps, and `substeps` per pick.

    `kernels` (observation, mask, reward, stages, resets), `rollout` (the physics), `place` (rows set from their fields)
    and `rest` (Python). The engine's time is divided by `threads`, since processor time adds them up.
    """
    world = played.world
    spent = dict.fromkeys(("kernels", "rollout", "place", "step"), 0.0)

    def timed(name: str, call: Any) -> Any:
        def run(*arguments: Any, **named: Any) -> Any:
            before = clock()
            try:
                return call(*arguments, **named)
            finally:
                spent[name] += clock() - before

        return run

    engine = world.engine
    world.engine = counted = _TimedEngine(engine, timed)
    world._run = timed("kernels", world._run)
    world.step = timed("step", world.step)
    try:
        with no_garbage_collection():
            picks, actions = 0, highest(world)
            for _ in range(turns):
                before = spent["kernels"]
                picks += world.num_envs - int(np.count_nonzero(world.done))
                world.step(actions)
                within = spent["kernels"] - before
                actions = highest(world)
                spent["kernels"] = before + within  # the policy's time does not count
    finally:
        world.engine = engine
        del world._run, world.step
    engines = spent["rollout"] + spent["place"]
    rest = spent["step"] - spent["kernels"] - engines
    whole = spent["step"] - engines + engines / threads
    parts = {"kernels": spent["kernels"], "rollout": spent["rollout"] / threads, "place": spent["place"] / threads}
    found = {name: seconds / whole for name, seconds in {**parts, "rest": rest}.items()}
    return {**found, "substeps": counted.substeps / picks}


def _add_shares(results: _Results, theirs: float | None) -> None:
    sizes, threads = results.sizes, THREADS if results.options.clock == "cpu" else 1
    found = shares(Episodes("default", sizes.rows), sizes.rounds * sizes.turns, threads)
    results.cost(
        "default, kernels (observation, mask, reward, stages): % of a step",
        100 * found["kernels"],
        "promised at most 10, goal 6",
    )
    for name, label in (("rollout", "physics"), ("place", "rows put to sleep or reset"), ("rest", "Python")):
        results.cost(f"default, {label}: % of a step", 100 * found[name])
    results.table.add(measured="default: substeps a pick (peer: SAPIEN)", milkrun=found["substeps"], peer=theirs)


# -- resets, maps, memory, scenes -------------------------------------------------------------------------------------


@kernel
def see_maps(w, b, _, __):
    observe(w, b)
    return True


def _add_costs(results: _Results) -> None:
    rows, some, timing = results.sizes.rows, min(32, results.sizes.rows), results.sizes.timing
    results.cost(
        f"reset of {some} rows of {rows}: us a row",
        reset_microseconds(rows, some, **timing),
        "promised at most 20, goal 13",
    )
    results.cost(
        "32x32 height and segmentation: images/s", images_per_second(rows, **timing), "promised 4000, goal 5000"
    )
    fresh = in_a_fresh_process(rows)
    results.cost("memory a row, 12 objects: MB", fresh["row"], "promised at most 0.5, goal 0.4")
    results.cost("shipped scenes, loaded: s", fresh["load"], "promised at most 0.1, goal 0.05")
    results.cost("256 default scenes, made: s", seconds_to_settle(results.sizes.made), "promised at most 25, goal 12")


def reset_microseconds(rows: int, some: int, repeats: int, **_: Any) -> float:
    """Microseconds per row to reset some rows that are asleep after a pick."""
    world = milkrun.make(CLUTTER, rows, seed=0, threads=THREADS)
    world.reset()
    chosen = np.arange(0, rows, rows // some)[:some]
    spent = []
    with no_garbage_collection():
        for _turn in range(1 + 3 * repeats):
            world.step(highest(world)[chosen], rows=chosen)
            before = clock()
            world.reset(rows=chosen)
            spent.append(clock() - before)
    return 1e6 * statistics.median(spent[1:]) / some


def images_per_second(rows: int, **timing: Any) -> float:
    """Images per second of full piles, the slowest ones; an image is both maps."""
    world = milkrun.make(CLUTTER, rows, seed=0, maps=True)
    world.reset()
    return rows / median_time(lambda: world.map_rows(see_maps, bool), **timing)


FRESH = """
import json, sys, time
import milkrun
from milkrun.clutter import bank
from milkrun.clutter.options import ClutterConfig

def resident():
    with open("/proc/self/statm") as f:
        return 4096 * int(f.read().split()[1])

def world(rows):
    made = milkrun.make("milkrun/Clutter-v0", rows, seed=0, threads=2)
    made.reset()
    for turn in range(2):
        made.step(made.sample_actions(0, turn))
    return made

config, before = ClutterConfig(), time.perf_counter()
bank.load(config)
load, rows = time.perf_counter() - before, int(sys.argv[1])
small = world(8)
before = resident()
large = world(rows)
print(json.dumps({"load": load, "row": (resident() - before) / rows / 1e6}))
"""


def in_a_fresh_process(rows: int) -> dict[str, float]:
    """Seconds to load the shipped scenes, and memory per row of a process in MB (Linux)."""
    command = [sys.executable, "-c", FRESH, str(rows)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def seconds_to_settle(scenes: int) -> float:
    """Seconds to settle 256 default scenes, extrapolated from fewer, which settle together."""
    before = clock()
    bank.settled(ClutterConfig(), range(scenes))
    return (clock() - before) * 256 / scenes
