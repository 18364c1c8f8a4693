"""The routing worlds: the cost of a step compared with CVRP, and with C and RL4CO where they have the world."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import milkrun

from .peers import c_kernel
from .timing import Table, clock, step_time

NUM_LOC = 50
ROWS = (1024, 4096)
WORLDS = ("CVRP", "TSP", "VRPP", "CVRPP", "WCVRP", "CWCVRP", "SCWCVRP", "SDWCVRP", "TSPKopt")


class Recorded:
    """A world and recorded actions until a row ends: random customers, the depot only if no customer is allowed."""

    def __init__(self, name: str, rows: int, num_loc: int = NUM_LOC, steps: int = 400, **options: Any) -> None:
        self.world = milkrun.make(
            f"milkrun/{name}-v0", rows, seed=0, num_loc=num_loc, autoreset="disabled", threads=1, **options
        )
        self.world.reset(seed=0)
        rng = np.random.default_rng(0)
        taken = []
        while len(taken) < steps:
            mask = self.world.action_mask.copy()
            mask[mask[:, 1:].any(axis=1), 0] = False
            taken.append(np.where(mask, rng.random(mask.shape, np.float32), -1).argmax(axis=1))
            self.world.step(taken[-1])
            if (self.world.terminated | self.world.truncated).any():
                break
        self.actions = np.array(taken)

    def start(self) -> None:
        self.world.reset(seed=0)

    def play(self, first: int, last: int) -> float:
        step, actions = self.world.step, self.actions
        before = clock()
        for t in range(first, last):
            step(actions[t])
        return clock() - before

    def seconds(self, **timing: Any) -> float:
        """Seconds per step of the whole batch."""
        return step_time(self.start, self.play, len(self.actions), **timing)


def family_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Nanoseconds per row and step of every world at n = 50, and the promises."""
    table = Table(
        f"Every routing world in place (n = {NUM_LOC}, one thread, random customers; Kopt n = 100)",
        [
            "world",
            "rows",
            "us a step",
            "ns a row",
            "million row-steps/s",
            "of CVRP's speed",
            "share of C",
            "RL4CO us",
            "/ RL4CO",
            "bytes a row",
        ],
        notes={"of CVRP's speed": "CVRP of the same rows in this run = 1", "share of C": "time of C / time in place"},
    )
    timing = {"repeats": 5, "min_seconds": 0.03} if options.quick else {"repeats": 9, "min_seconds": 0.1}
    promised: dict[str, float] = {}
    for rows in ROWS:
        cvrp = 0.0
        for name in WORLDS:
            played = Recorded(name, rows, 100 if name == "TSPKopt" else NUM_LOC, 100 if name == "TSPKopt" else 400)
            seconds = played.seconds(**timing)
            cvrp = seconds if name == "CVRP" else cvrp
            rate = rows / seconds
            cells: dict[str, Any] = {
                "world": name,
                "rows": rows,
                "us a step": 1e6 * seconds,
                "ns a row": 1e9 * seconds / rows,
                "million row-steps/s": rate / 1e6,
                "of CVRP's speed": cvrp / seconds,
                "bytes a row": played.world.bytes_per_row,
            }
            if name == "CWCVRP" and c_kernel.available():
                from .peers.c_waste import WasteC

                share = WasteC(played.world, played.actions).seconds(**timing) / seconds
                cells["share of C"] = share
                promised[f"CWCVRP, share of C, {rows:,} rows (promised 0.5)"] = share
            if name == "TSPKopt" and rows == 1024:
                theirs = kopt_of_rl4co(rows, 100, timing)
                cells |= {"RL4CO us": 1e6 * theirs, "/ RL4CO": theirs / seconds}
                promised["TSPKopt n = 100 / RL4CO TSPkoptEnv, 1,024 rows (promised 10)"] = theirs / seconds
            if rows == 4096 and name not in ("TSP", "CVRP", "TSPKopt"):
                promised[f"{name}, million row-steps/s at 4,096 rows (promised 1.5)"] = rate / 1e6
            if rows == 1024 and name in ("VRPP", "WCVRP", "CWCVRP", "SCWCVRP", "SDWCVRP"):
                promised[f"{name} / CVRP's speed, 1,024 rows (promised 0.4)"] = cvrp / seconds
            table.add(**cells)
            print(f"{name} {rows}: {1e9 * seconds / rows:.0f} ns a row", flush=True)
    return table, promised


def kopt_of_rl4co(rows: int, n: int, timing: dict[str, Any]) -> float:
    """RL4CO's own k-opt environment with random pairs of different nodes, seconds a step."""
    import torch
    from rl4co.envs import TSPkoptEnv

    torch.set_num_threads(1)
    env = TSPkoptEnv(generator_params={"num_loc": n}, k_max=2, check_solution=False)
    instance = env.generator([rows])
    pairs = [torch.stack(torch.unbind(torch.rand(rows, n).topk(2).indices, 1), 1) for _ in range(20)]
    box: dict[str, Any] = {}

    def start() -> None:
        box["td"] = env.reset(instance.clone())

    def play(first: int, last: int) -> float:
        spent = 0.0
        for t in range(first, last):
            td = box["td"].set("action", pairs[t % len(pairs)])
            before = clock()
            box["td"] = env.step(td)["next"]
            spent += clock() - before
        return spent

    with torch.inference_mode():
        return step_time(start, play, 20, **timing)
