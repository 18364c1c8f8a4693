"""Dial-a-ride, compared with a vectorised torch version of the rule by deadlines, with OR-Tools, and with itself."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import milkrun
from tests.published import published_file

from .family import Recorded
from .timing import Table, clock, median_time, set_clock, step_time

ID = "milkrun/DARP-v0"
TARGETS = {1: 20, 64: 30, 1024: 6, 8192: 5}


class WholeEpisodes:
    """Random legal episodes from reset to end; finished rows are not stepped."""

    def __init__(self, rows: int, threads: int = 1, **options: Any) -> None:
        self.world = milkrun.make(ID, rows, seed=0, autoreset="disabled", threads=threads, **options)
        self.world.reset(seed=0)
        self.calls: list[tuple[np.ndarray, np.ndarray]] = []
        while len(live := np.flatnonzero(~self.world.done)):
            actions = self.world.sample_actions(1, len(self.calls))[live]
            self.calls.append((live, actions))
            self.world.step(actions, rows=live)
        self.row_steps = sum(len(live) for live, _ in self.calls)

    def start(self) -> None:
        self.world.reset(seed=0)

    def play(self, first: int, last: int) -> float:
        step = self.world.step
        before = clock()
        for live, actions in self.calls[first:last]:
            step(actions, rows=live)
        return clock() - before

    def seconds(self, **timing: Any) -> float:
        """Seconds per row and step."""
        whole = step_time(self.start, self.play, len(self.calls), **timing)
        return whole * len(self.calls) / self.row_steps


def darp_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Steps under both rules, threads, TensorDicts, insertion, shared instances."""
    from .peers.darp_torch import StepDARPTorch

    table = Table("Dial-a-ride (one thread unless said)", ["measured", "milkrun", "peer", "ratio", "promised"])
    timing = {"repeats": 5, "min_seconds": 0.03} if options.quick else {"repeats": 9, "min_seconds": 0.15}
    promised: dict[str, float] = {}

    def put(measured: str, ours: float, peer: float | None, target: str) -> None:
        ratio = None if peer is None else peer / ours
        table.add(measured=measured, milkrun=ours, peer=peer, ratio=ratio, promised=target.removeprefix("promised "))
        name = measured if ratio is None else f"{measured.partition(':')[0]}, ratio to the peer"
        promised[f"DARP, {name} ({target})"] = ours if ratio is None else ratio

    for rows, target in TARGETS.items():
        played = Recorded("DARP", rows, 20, preset="published")
        instance = {name: getattr(played.world, name) for name in ("locs", "demand", "capacity", "time_windows")}
        peer = StepDARPTorch(instance, played.actions).seconds(**timing)
        put(
            f"rule by deadlines, 10 requests, {rows:,} rows: us a step (peer: torch)",
            1e6 * played.seconds(**timing),
            1e6 * peer,
            f"promised {target}",
        )
    sixteen = Recorded("DARP", 1024, 32, preset="published")
    instance = {name: getattr(sixteen.world, name) for name in ("locs", "demand", "capacity", "time_windows")}
    peer = 1e9 * StepDARPTorch(instance, sixteen.actions).seconds(**timing) / 1024
    base = 1e9 * WholeEpisodes(1024).seconds(**timing)
    put(
        "classic rule, exact masks, 16 requests, 1,024 rows: ns a row (peer: torch, rule by deadlines)",
        base,
        peer,
        "promised 1.5",
    )
    larger = {"48 requests, 4 vehicles": {"num_requests": 48, "num_agents": 4}, "style b": {"style": "b"}}
    for label, more in larger.items():
        ours = 1e9 * WholeEpisodes(1024, **more).seconds(**timing)
        put(f"classic rule, {label}: ns a row (peer: 16 requests, style a)", ours, base, "promised 0.33 or more")
    rate = 1e-6 / WholeEpisodes(1024, num_requests=24, num_agents=3).seconds(**timing)
    put("classic rule, 24 requests: million row-steps/s", rate, None, "promised 0.3")
    played = Recorded("DARP", 1024, 20, preset="published")
    put("rule by deadlines, 10 requests: million row-steps/s", 1024e-6 / played.seconds(**timing), None, "promised 1")
    set_clock("wall")  # processor time adds the threads up
    one, two = (1e9 * WholeEpisodes(8192, threads=k).seconds(**timing) for k in (1, 2))
    set_clock(options.clock)
    put("classic rule, 8,192 rows, 2 threads: ns a row (peer: 1 thread)", two, one, "promised 1.6")
    put(
        "classic rule, 1,024 rows: us of a TensorDict step (peer: World.step)",
        1e6 * _functional(timing),
        1e-3 * 1024 * base,
        "reported",
    )
    _add_insertion(put)
    _add_memory(put)
    return table, promised


def _functional(timing: dict[str, Any]) -> float:
    """Seconds of a functional step of 1,024 rows, finished rows included, over the first ten steps."""
    import torch

    from milkrun.api.torchrl import DARPEnv

    torch.set_num_threads(1)
    env = DARPEnv(threads=1, seed=0)
    first = env.reset(batch_size=[1024])
    box: dict[str, Any] = {}

    def start() -> None:
        box["td"] = first

    def play(begin: int, end: int) -> float:
        spent = 0.0
        for _ in range(begin, end):
            td = box["td"].copy().set("action", env.sample_actions(box["td"]))
            before = clock()
            box["td"] = env.step(td)["next"]
            spent += clock() - before
        return spent

    return step_time(start, play, 10, **timing)


def _add_insertion(put: Any) -> None:
    from milkrun.routing.instances import cordeau
    from milkrun.solvers.darp import insertion

    for name in ("a4-48", "a6-72", "b8-64"):
        instance = cordeau.load(published_file(f"darp/{name}.txt"))
        insertion(instance)
        ours = 1e3 * median_time(lambda given=instance: insertion(given), repeats=5, min_seconds=0.05)
        theirs = 1e3 * median_time(lambda given=instance: _first_solution(given), repeats=3, min_seconds=0.05)
        put(f"insertion, {name}: ms (peer: OR-Tools, the same first solution)", ours, theirs, "promised 5")


def _first_solution(instance: Any) -> Any:
    from milkrun.solvers.darp.ortools import Model

    return Model(instance, 1000, 100.0, 1.0).search(60, None, 1)


def _add_memory(put: Any) -> None:
    from milkrun.core.fields import Role
    from milkrun.routing import DARP

    drawn = milkrun.make(ID, 256, seed=0)
    drawn.reset()
    names = [f.name for f in drawn.fields.values() if f.role is Role.INSTANCE and f.name != "dist"]
    given = {name: getattr(drawn, name) for name in names if name not in ("n_nodes", "tight_open", "tight_close")}
    shared = DARP.from_instances([{name: array[q] for name, array in given.items()} for q in range(256)], repeat=64)

    def memory(world: Any) -> float:
        return sum(getattr(world, name).nbytes for name in names) / 2**20

    put("256 instances x 64 starts: MiB of instances (peer: copied)", memory(shared), 64 * memory(drawn), "promised 32")
    for preset in ("default", "published"):
        put(f"bytes a row, preset {preset}", milkrun.make(ID, 1024, preset=preset).bytes_per_row, None, "stated")
