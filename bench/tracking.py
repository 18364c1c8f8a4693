"""Drone tracking: steps with pictures in every scene and with many boxes, and pictures compared with MuJoCo's.

Also the costs of a step, a reset, a thread, the first picture and a row. Wall-clock rates are valid on idle cores only;
the table also has the rate per CPU-second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import milkrun
from milkrun.api.workers import Workers
from milkrun.compat.dat import GE, Envs, general_env, make_env
from milkrun.solvers.tracking import servo
from milkrun.tracking.rendering import shot
from milkrun.tracking.tables import BODY, CABIN, CABIN_SHARE, FLOOR, GLASS, LENGTH, SCENES, SUN, WIDTH

from .timing import Table, median_time, no_garbage_collection

TRACKING = "milkrun/Tracking-v0"
CROWD = {"start_pitch": (0.6, 0.6), "start_height": (22.0, 22.0)}
"""The smallest pitch at the largest start height: the picture shows the ground from 18 to 70 m ahead."""
NEAREST, FARTHEST = 18.0, 70.0
COUNTS = (40, 160)
"""Numbers of boxes of the pictures compared with MuJoCo, including the two of the target."""
OWN = 2
QUALITIES = {"as it comes": 1, "large faces, 1 sample": 1, "large faces, 4 samples": 2}
"""Qualities of MuJoCo's picture, with the `supersample` of ours for the comparison."""
PICTURES = {(160, "as it comes"): "promised 5, goal 15", (160, "large faces, 1 sample"): "none promised"}
FULL_STEPS = "promised 6000, goal 10000"
CROWDED_STEPS = "promised 3000, goal 5000"


class Sizes(NamedTuple):
    """Amounts of work: rows; rounds and their turns; scenes and processor seconds of MuJoCo for each number of boxes;
    fresh processes; repeats of short measurements; options that make a world small, for tests."""

    rows: int = 64
    rounds: int = 9
    turns: int = 40
    scenes: int = 8
    seconds: float = 10.0
    processes: int = 5
    repeats: int = 9
    min_seconds: float = 0.1
    options: dict[str, Any] = {}

    @property
    def timing(self) -> dict[str, Any]:
        return {"repeats": self.repeats, "min_seconds": self.min_seconds}


FULL = Sizes()
QUICK = Sizes(rounds=3, turns=10, scenes=4, seconds=2.0, processes=3, repeats=3, min_seconds=0.03)


class Pace(NamedTuple):
    """A rate per second, and per second of processor time."""

    wall: float
    cpu: float

    def by(self, clock: str) -> float:
        return self.cpu if clock == "cpu" else self.wall


class Paces(NamedTuple):
    """Rates of steps of live rows with pictures, of steps without (in turns without resets), and of pictures."""

    whole: Pace
    step: Pace
    picture: Pace


# -- flights ----------------------------------------------------------------------------------------------------------


def world_of(sizes: Sizes, threads: int = 1, **options: Any) -> Any:
    """A world of the preset `dat`, by default by day in citystreet, after its first reset."""
    world = milkrun.make(TRACKING, sizes.rows, preset="dat", seed=0, threads=threads, **{**sizes.options, **options})
    world.reset()
    return world


class Flight:
    """Drones that follow their targets by the policy `servo`, so that episodes are as long as with a trained policy.

    Choosing actions is not timed. Resets of finished rows are timed but are no steps. `begin` is an optional state at
    which every round starts.
    """

    def __init__(self, world: Any, begin: dict[str, np.ndarray] | None = None) -> None:
        self.world = world
        self.begin = begin

    def play(self, turns: int, with_pictures: bool = True) -> Paces:
        world, live, stepped = self.world, 0, 0
        step, calm, picture = np.zeros(2), np.zeros(2), np.zeros(2)
        if self.begin is not None:
            world.load_state_dict(self.begin)
        for _ in range(turns):
            actions, alive = servo(world), world.num_envs - int(np.count_nonzero(world.done))
            times = [_now()]
            world.step(actions)
            times.append(_now())
            if with_pictures:
                world.observe()
            times.append(_now())
            stepping, rendering = np.diff(times, axis=0)
            step, picture, live = step + stepping, picture + rendering, live + alive
            if alive == world.num_envs:
                calm, stepped = calm + stepping, stepped + alive
        pictures = turns * world.num_envs if with_pictures else 0
        return Paces(_pace(live, step + picture), _pace(stepped, calm), _pace(pictures, picture))


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _pace(count: int, seconds: np.ndarray) -> Pace:
    """A rate, NaN for a count of 0."""
    return Pace(*(count / seconds if count else np.full(2, np.nan)).tolist())


def stagger(world: Any) -> Any:
    """Spread the rows of a world evenly over their episodes, so that all rounds have equally many resets."""
    turns = world.config.max_agent_steps
    ahead_of = np.arange(world.num_envs) * turns // world.num_envs
    for k in range(turns):
        ahead = np.flatnonzero(ahead_of > k)
        if len(ahead):
            world.step(servo(world)[ahead], rows=ahead)
    return world


def crowded(sizes: Sizes, boxes: int, **options: Any) -> Flight:
    """Flights with this many static boxes in front of each camera, all below the drone, all with windows.

    Rounds start with the episode: in 40 turns a drone flies some metres, and the boxes stay in its picture.
    """
    world = world_of(sizes, **CROWD, **options)
    rng, rows = np.random.default_rng(0), sizes.rows
    begin = world.state_dict()
    c, s, height = np.cos(begin["yaw"])[:, None], np.sin(begin["yaw"])[:, None], begin["pos"][:, 2:]
    pitch = begin["pitch"][:, None]
    ahead = rng.uniform(NEAREST, FARTHEST, (rows, boxes))
    depth = ahead * np.cos(pitch) + height * np.sin(pitch)
    aside = rng.uniform(-0.9, 0.9, (rows, boxes)) * world.config.tan_h * depth
    half = rng.uniform((0.5, 0.5, 0.5), (1.5, 1.5, 4.0), (rows, boxes, 3))
    yaw = rng.uniform(-np.pi, np.pi, (rows, boxes))
    x, y = begin["pos"][:, :1] + c * ahead - s * aside, begin["pos"][:, 1:2] + s * ahead + c * aside
    crowd = {
        "box_pos": np.stack([x, y, half[..., 2]], -1),
        "box_half": half,
        "box_yaw": yaw,
        "box_cs": np.stack([np.cos(yaw), np.sin(yaw)], -1),
        "box_kind": np.ones((rows, boxes)),
        "box_rgb": rng.integers(40, 240, (rows, boxes, 2, 3)),
    }
    for name, given in crowd.items():
        begin[name] = np.zeros_like(begin[name])
        begin[name][:, :boxes] = given
    begin |= {"n_box": np.full(rows, boxes), "tallest": 2 * half[..., 2].max(1)}
    begin |= {"town_key": np.full((rows, 3), -1), "given": np.ones(rows, bool)}
    flight = Flight(world, begin)
    world.load_state_dict(begin)
    return flight


def paces(*flights: Flight, rounds: int, turns: int, with_pictures: bool = True) -> list[Paces]:
    """Medians of flights that play in turn, so that a busy moment affects all of them."""
    found: list[list[Paces]] = [[] for _ in flights]
    for flight in flights:
        flight.play(1)
    with no_garbage_collection():
        for _ in range(rounds):
            for own, flight in zip(found, flights, strict=True):
                own.append(flight.play(turns, with_pictures))
    return [Paces(*(_median(part) for part in zip(*own, strict=True))) for own in found]


def _median(measured: tuple[Pace, ...]) -> Pace:
    counted = [one for one in measured if np.isfinite(one.wall)]
    return Pace(*np.median(counted, axis=0).tolist()) if counted else measured[0]


# -- the table --------------------------------------------------------------------------------------------------------


class _Results:
    """The table and its promises."""

    def __init__(self, options: argparse.Namespace, sizes: Sizes) -> None:
        title = f"Drone tracking ({sizes.rows} rows, by default one thread and rates per second)"
        columns = [
            "measured",
            "milkrun",
            "a CPU-second",
            "step, us",
            "picture, us",
            "peer",
            "peer, a CPU-second",
            "ratio",
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
        by: str | None = None,
        **cells: float,
    ) -> None:
        """Add rates; a promise applies to the ratio, or to the rate if there is no peer. `by` overrides the clock."""
        by = by or self.options.clock
        value = ours.by(by)
        shown: dict[str, Any] = {"milkrun": ours.wall, "a CPU-second": ours.cpu, **cells}
        if peer is not None:
            value /= peer.by(by)
            shown |= {"peer": peer.wall, "peer, a CPU-second": peer.cpu, "ratio": value}
        self._add(measured, shown, value, promise)

    def steps(self, measured: str, found: Paces, promise: str | None = None) -> None:
        """Add whole steps, and the times of their two parts."""
        by = self.options.clock
        parts = {"step, us": 1e6 / found.step.by(by), "picture, us": 1e6 / found.picture.by(by)}
        self.rate(measured, found.whole, promise=promise, **parts)

    def cost(self, measured: str, value: float, promise: str | None = None) -> None:
        """Add a number that is no rate."""
        self._add(measured, {"milkrun": value}, value, promise)

    def promise(self, what: str, value: float) -> None:
        self.promised[f"Tracking, {what}"] = value

    def _add(self, measured: str, cells: dict[str, Any], value: float, promise: str | None) -> None:
        self.table.add(measured=measured, promised=(promise or "").removeprefix("promised "), **cells)
        if promise is not None:
            self.promise(f"{measured} ({promise})", value)
        print(f"{measured}: " + ", ".join(f"{name} {x:.4g}" for name, x in cells.items()), flush=True)


def tracking_table(options: argparse.Namespace, sizes: Sizes | None = None) -> tuple[Table, dict[str, float]]:
    """Steps of all scenes and of crowds, pictures compared with MuJoCo's, steps without a picture, resets, threads,
    the original's classes, the first picture, memory."""
    results, load = _Results(options, sizes or (QUICK if options.quick else FULL)), os.getloadavg()[0]
    _add_scenes(results)
    _add_crowds(results)
    _add_pictures(results)
    _add_threads(results)
    _add_benchmark(results)
    _add_fresh(results)
    link_rows(results)
    results.table.notes |= {
        "a CPU-second": "the rate of a second of processor time",
        "step, picture": "microseconds per row of the two parts of a whole step, by the chosen clock",
        "MuJoCo": "its picture is antialiased (4 samples a pixel; not so with 1 sample) and plain; ours has ground "
        "pattern, windows, a car's shadow, noise and, not here by day, fog, and is antialiased with 2x2",
        "load": f"{load:.1f} when the table was begun, {os.getloadavg()[0]:.1f} when it was done; idle is 0",
    }
    return results.table, results.promised


def _how(sizes: Sizes) -> dict[str, int]:
    return {"rounds": sizes.rounds, "turns": sizes.turns}


def _add_scenes(results: _Results) -> None:
    """Whole steps, steps without pictures and resets of every scene; promises apply to the worst."""
    sizes, by = results.sizes, results.options.clock
    flights = [Flight(stagger(world_of(sizes, scene=scene))) for scene in SCENES]
    whole = paces(*flights, **_how(sizes))
    for scene, found in zip(SCENES, whole, strict=True):
        results.steps(f"whole steps, {scene}", found)
    results.promise(f"whole steps/s a core, worst of six scenes ({FULL_STEPS})", min(p.whole.by(by) for p in whole))
    blind = paces(*flights, **_how(sizes), with_pictures=False)
    for scene, found in zip(SCENES, blind, strict=True):
        results.rate(f"steps without a picture, {scene}", found.step)
    results.promise(
        "steps/s without a picture, worst of six scenes (promised 60000)", min(p.step.by(by) for p in blind)
    )
    worst = 0.0
    for scene, flight in zip(SCENES, flights, strict=True):
        milliseconds = 1e3 * median_time(flight.world.reset, **sizes.timing) / sizes.rows
        results.cost(f"reset with a new town, {scene}: ms a row", milliseconds)
        worst = max(worst, milliseconds)
    results.promise("reset with a new town: ms a row, worst of six scenes (promised at most 1.5)", worst)


def _add_crowds(results: _Results) -> None:
    weathers = ("day", "foggy")
    flights = [crowded(results.sizes, 160, weather=weather) for weather in weathers]
    for weather, found in zip(weathers, paces(*flights, **_how(results.sizes)), strict=True):
        results.steps(f"whole steps, 160 boxes crowded, {weather}", found, CROWDED_STEPS)


def _add_threads(results: _Results) -> None:
    one, two = (Flight(stagger(world_of(results.sizes, threads=k))) for k in (1, 2))
    found = paces(two, one, **_how(results.sizes))
    results.rate(
        "whole steps, 2 threads (peer: 1 thread), ratio by the wall",
        *(p.whole for p in found),
        promise="promised 1.7, goal 1.9",
        by="wall",
    )


# -- the original's classes -------------------------------------------------------------------------------------------


class Play:
    """Steps of an environment or of a batch by recorded actions, from the same start in every round.

    `begin()` and resets are not timed; `turn(action)` returns whether the episode is over.
    """

    def __init__(self, begin: Any, turn: Any, rows: int = 1) -> None:
        self.begin = begin
        self.turn = turn
        self.rows = rows

    def play(self, actions: Any) -> Pace:
        spent = np.zeros(2)
        self.begin()
        for action in actions:
            before = _now()
            over = self.turn(action)
            spent += np.subtract(_now(), before)
            if over:
                self.begin()
        return _pace(self.rows * len(actions), spent)


def plays(*players: Play, rounds: int, actions: Any) -> list[Pace]:
    """Medians of players that play in turn."""
    for player in players:
        player.play(actions)
    with no_garbage_collection():
        found = [[player.play(actions) for player in players] for _ in range(rounds)]
    return [_median(tuple(own)) for own in zip(*found, strict=True)]


def _section(sizes: Sizes, **options: Any) -> dict[str, Any]:
    """Options of `dat` for the original's classes, including RewardParams."""
    return {**sizes.options, "RewardParams": True, **options}


def envs_plays(sizes: Sizes, **options: Any) -> tuple[Play, Play]:
    """`Envs` over all rows of a world, with their states, and the same world stepped and observed."""
    envs = Envs(num_envs=sizes.rows, env_list=GE(sizes.rows, _section(sizes, **options), seed=0))
    peer = milkrun.make(TRACKING, sizes.rows, seed=0, threads=1, config=_section(sizes))
    envs.env_list[0].batch.world.threads = 1

    def turn(actions: Any) -> bool:
        envs.step(actions)
        return False

    def peer_turn(actions: Any) -> bool:
        peer.step(actions)
        peer.observe()
        return False

    return (
        Play(lambda: envs.reset(seed=0), turn, sizes.rows),
        Play(lambda: peer.reset(seed=list(range(sizes.rows))), peer_turn, sizes.rows),
    )


def single_plays(sizes: Sizes) -> tuple[Play, Play, Play]:
    """One handle among all rows stepped alone, one environment alone, and a world of one row."""
    handles = GE(sizes.rows, _section(sizes), seed=0)
    for one in handles:
        one.reset()
    handle = handles[sizes.rows // 2]
    lone, _ = general_env("Benchmark", _section(sizes), 1, 0, seed=0)
    peer = milkrun.make(TRACKING, 1, seed=0, threads=1, config=_section(sizes))

    def turn(action: int) -> bool:
        peer.step(np.array([action]))
        peer.observe()
        return bool(peer.done[0])

    return (
        Play(lambda: handle.reset(seed=0), lambda action: handle.step(action)[2]),
        Play(lambda: lone.reset(seed=0), lambda action: lone.step(action)[2]),
        Play(lambda: peer.reset(seed=[0]), turn),
    )


def recorded(sizes: Sizes, rows: int, turns: int) -> np.ndarray:
    """Actions of `servo` from the start of all players, (turns, rows)."""
    world = milkrun.make(TRACKING, rows, threads=1, config=_section(sizes))
    world.reset(seed=list(range(rows)))
    actions = []
    for _ in range(turns):
        actions.append(servo(world))
        world.step(actions[-1])
    return np.array(actions)


def first_state(options: dict[str, Any]) -> Pace:
    """Seconds to start a worker process and get its first state, and its processor seconds."""
    before, children = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    pool = Workers([make_env(1, 0, gym=False, conf_path=options)], "spawn")
    pool.reset()
    wall = time.perf_counter() - before
    pool.close()
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Pace(wall, spent.ru_utime + spent.ru_stime - children.ru_utime - children.ru_stime)


def _add_benchmark(results: _Results) -> None:
    """The cost of the original's classes compared with their world."""
    sizes, rounds = results.sizes, results.sizes.rounds
    turns = recorded(sizes, sizes.rows, sizes.turns)
    found = plays(*envs_plays(sizes), rounds=rounds, actions=turns)
    results.rate(
        "Envs over GE, normalised states (peer: step and observe of the world)",
        *found,
        promise="promised 0.8, goal 0.9",
    )
    with tempfile.TemporaryDirectory() as folder:
        found = plays(*envs_plays(sizes, verbose=True, log_dir=folder), rounds=rounds, actions=turns)
    results.rate("the same with a line of log a step", *found)
    steps = recorded(sizes, 1, 5 * sizes.turns)[:, 0].tolist()
    handle, lone, peer = plays(*single_plays(sizes), rounds=rounds, actions=steps)
    results.rate(
        "one handle among the rows, stepped alone (peer: a world of one row)",
        handle,
        peer,
        promise="promised 0.5, goal 0.8",
    )
    results.rate("BenchEnv_Multi alone", lone, promise="promised 4000, goal 7000")
    first_state(_section(sizes))
    seconds = [first_state(_section(sizes)) for _ in range(sizes.processes)]
    spent = _median(tuple(seconds)).by(results.options.clock)
    results.cost("first state of a worker process, kernels on disk: s", spent, "promised at most 3, goal 1.5")


# -- pictures and MuJoCo's ---------------------------------------------------------------------------------------------


def _add_pictures(results: _Results) -> None:
    """The same boxes, poses and size; the table has the reason if MuJoCo cannot run."""
    sizes = results.sizes
    flights = {
        (count, n): crowded(sizes, count - OWN, max_vehicles=1, supersample=n) for count in COUNTS for n in (1, 2)
    }
    found = dict(zip(flights, paces(*flights.values(), **_how(sizes)), strict=True))
    task = {
        str(count): [scene_of(flights[count, 1].world, row) for row in range(min(sizes.scenes, sizes.rows))]
        for count in COUNTS
    }
    answer = run_osmesa(task, flights[COUNTS[0], 1].world.config.size, sizes.seconds)
    for count in COUNTS:
        for way, n in QUALITIES.items():
            ours, own = found[count, n].picture, "1 sample" if n == 1 else "2x2 samples"
            measured = f"pictures alone, {count} boxes, {own} (peer: MuJoCo on OSMesa, {way})"
            if isinstance(answer, str):
                results.table.add(measured=measured, milkrun=ours.wall, peer=answer, **{"a CPU-second": ours.cpu})
                print(f"{measured}: {answer}", flush=True)
                continue
            theirs = answer[str(count)][way]
            promise = PICTURES.get((count, way))
            results.rate(measured, ours, Pace(theirs["wall"], theirs["cpu"]), promise)
    if not isinstance(answer, str):
        same = min(theirs["same"] for count in COUNTS for theirs in answer[str(count)].values())
        results.cost("pixels that show the same box in MuJoCo's picture as in ours: %", 100 * same)


def run_osmesa(scenes: dict[str, list[dict[str, Any]]], size: int, seconds: float) -> dict[str, Any] | str:
    """Frames per second of MuJoCo by number of boxes and samples, or "skipped" and the reason."""
    script = Path(__file__).parent / "peers" / "mujoco_frames.py"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scenes.json"
        file.write_text(json.dumps({"size": size, "scenes": scenes}))
        command = [sys.executable, str(script), str(file), "--seconds", str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return f"skipped, it needs mujoco and OSMesa (Debian: libosmesa6): {lines[-1] if lines else done.returncode}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def scene_of(world: Any, row: int) -> dict[str, Any]:
    """The input of MuJoCo's script: static boxes, then those of vehicles, the camera, and the box at each pixel of our
    picture."""
    q, pitch, yaw = int(world.instance_row[row]), float(world.pitch[row]), float(world.yaw[row])
    n = int(world.n_box[q])
    boxes = [
        _box(world.box_pos[q, k], world.box_half[q, k], world.box_yaw[q, k], world.box_rgb[q, k, 0]) for k in range(n)
    ]
    for v in range(int(world.n_veh[row])):
        x, y, heading = world.veh_pose[row, v]
        size = world.kinds[int(world.veh_kind[row, v])]
        length, width, body, cabin = (0.5 * size[name] for name in (LENGTH, WIDTH, BODY, CABIN))
        boxes.append(_box((x, y, FLOOR + body), (length, width, body), heading, world.veh_rgb[row, v]))
        boxes.append(
            _box((x, y, FLOOR + 2 * body + cabin), (length * size[CABIN_SHARE], 0.9 * width, cabin), heading, GLASS)
        )
    ids = shot(world, row)[1].astype(int)
    seen, cars = np.where(ids >= 0, ids // 8, ids), world.sizes["K"]
    c, s = np.cos(yaw), np.sin(yaw)
    return {
        "boxes": boxes,
        "pos": world.pos[row].tolist(),
        "right": [s, -c, 0.0],
        "up": [np.sin(pitch) * c, np.sin(pitch) * s, np.cos(pitch)],
        "tan_h": world.config.tan_h,
        "tan_v": world.config.tan_v,
        "sun": list(SUN),
        "extent": world.config.half_extent,
        "seen": np.where(seen >= cars, seen - cars + n, seen).tolist(),
    }


def _box(pos: Any, half: Any, yaw: Any, rgb: Any) -> dict[str, Any]:
    return {"pos": [*map(float, pos)], "half": [*map(float, half)], "yaw": float(yaw), "rgb": [*map(float, rgb)]}


# -- fresh processes --------------------------------------------------------------------------------------------------

FRESH = """
import time
began = time.perf_counter(), time.process_time()
import json, sys
import milkrun
imported = time.perf_counter(), time.process_time()

def resident():
    with open("/proc/self/statm") as f:
        return 4096 * int(f.read().split()[1])

def world(rows, shared=None):
    made = milkrun.make("milkrun/Tracking-v0", rows, seed=0, threads=1, **json.loads(sys.argv[2]))
    if shared is None:
        made.reset()
    else:
        made.reset(instance={**shared, "instance_row": [0] * rows})
    made.observe()
    return made

def grown(*arguments):
    before = resident()
    made = world(*arguments)
    return (resident() - before) / made.num_envs / 1e3, made.bytes_per_row / 1e3

one, rows = world(1), int(sys.argv[1])
seen = time.perf_counter(), time.process_time()
names = "import", "image"
found = {name: b[0] - a[0] for name, a, b in zip(names, (began, imported), (imported, seen))}
found |= {name + ", CPU": b[1] - a[1] for name, a, b in zip(names, (began, imported), (imported, seen))}
if rows:
    world(1, one.town(0))
    found["own, resident"], found["own"] = grown(rows)
    found["shared, resident"], found["shared"] = grown(rows, one.town(0))
print(json.dumps(found))
"""


def in_a_fresh_process(rows: int, **options: Any) -> dict[str, float]:
    """Seconds to import milkrun and to the first picture.

    With rows, also the memory per row in kB of the process (Linux) and of the fields, with own towns and a shared one.
    """
    command = [sys.executable, "-c", FRESH, str(rows), json.dumps(options)]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # as under make
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def _add_fresh(results: _Results) -> None:
    """Times of fresh processes; the first one may compile and does not count."""
    sizes, suffix = results.sizes, ", CPU" if results.options.clock == "cpu" else ""
    memory = in_a_fresh_process(sizes.rows, **sizes.options)
    found = [in_a_fresh_process(0, **sizes.options) for _ in range(sizes.processes)]
    imports, image = (statistics.median(one[name + suffix] for one in found) for name in ("import", "image"))
    results.cost("import milkrun: s", imports)
    results.cost("first picture after import milkrun, kernels on disk: s", image, "promised at most 3")
    for name, label in (("own", "a town each"), ("shared", "all on one town")):
        results.cost(f"memory a row, {label}, fields: kB", memory[name])
        results.cost(f"memory a row, {label}, growth of the process: kB", memory[f"{name}, resident"])


# -- remote simulators ------------------------------------------------------------------------------------------------


LINKED = 16
"""Environments of one process, each with a simulator in another process on this machine."""


def link_rows(results: _Results) -> None:
    """Steps with pictures through the link, compared with the same rows in this process with copied pictures.

    All requests of a turn are sent before the first reply is read. Both sides wait for the slowest environment, so only
    wall-clock rates are reported. Both sides compute with one thread.
    """
    from milkrun.tracking.config import TrackingConfig
    from milkrun.tracking.link.client import Link

    sizes = results.sizes
    config = TrackingConfig.build(auto_start=True, port=0, delay=600.0, **sizes.options)
    with _one_thread_in_children():
        links = [Link(config, seed=0, row=row, count=LINKED) for row in range(LINKED)]
    world = milkrun.make(TRACKING, LINKED, seed=0, config=sizes.options, autoreset="disabled", threads=1)
    try:
        found = [(_linked_pace(links, sizes.turns), _pace_here(world, sizes.turns)) for _ in range(sizes.rounds + 1)]
    finally:
        for link in links:
            link.close()
    there, here = (_median(paces) for paces in zip(*found[1:]))  # the first round warms up
    results.rate(
        f"whole steps, {LINKED} environments through the link (CPU: the client's; peer: in this process)",
        there,
        here,
        by="wall",
    )
    results.promise(f"env steps/s through the link, {LINKED} environments (promised 1000, goal 3000)", there.wall)
    results.cost("link: ms that it adds to an env step", 1e3 * (1 / there.wall - 1 / here.wall), "promised at most 0.4")


@contextlib.contextmanager
def _one_thread_in_children() -> Iterator[None]:
    """Processes started within this context compute with one thread."""
    before = os.environ.get("MILKRUN_NUM_THREADS")
    os.environ["MILKRUN_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["MILKRUN_NUM_THREADS"]
        else:
            os.environ["MILKRUN_NUM_THREADS"] = before


def _linked_pace(links: list[Any], turns: int) -> Pace:
    """Env steps per second, and per CPU-second of the client."""
    for link in links:
        link.ask_reset()
    states, stepped, start = [link.answer() for link in links], 0, _now()
    for _ in range(turns):
        for link, state in zip(links, states):
            if state.done:
                link.ask_reset()
            else:
                link.ask_step(6)
                stepped += 1
        states = [link.answer() for link in links]
    return _pace(stepped, np.subtract(_now(), start))


def _pace_here(world: Any, turns: int) -> Pace:
    """The same for a world in this process."""
    world.reset()
    stepped, start = 0, _now()
    for _ in range(turns):
        ended, live = np.flatnonzero(world.done), np.flatnonzero(~world.done)
        if len(ended):
            world.reset(ended)
        if len(live):
            world.step(np.full(len(live), 6), live)
        world.observe()
        [image.copy() for image in world.image]
        stepped += len(live)
    return _pace(stepped, np.subtract(_now(), start))
