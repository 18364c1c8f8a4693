"""Training beside RL4CO: the same attention model, batch and update, in turn in one process.

A step of either draws instances, plays them, computes the likelihoods and updates the weights. RL4CO runs as its model
classes do, without the overhead of its trainer: its own policy, decoding and environment. `pomo` plays a row from each
start (Milkrun one more, which is free to choose); `rollout` compares one row with a greedy copy of the network.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

import milkrun
from milkrun.core.features import derive
from milkrun.learn.policy import NetworkPolicy
from milkrun.learn.process import computing
from milkrun.learn.reinforce import Options, Reinforce
from milkrun.solvers import rollout

from .episodes import Name
from .timing import Table, clock, median_time, set_clock

RATE = 1e-4


class Cell(NamedTuple):
    name: Name
    num_loc: int
    baseline: str
    batch: int


CELLS = (
    Cell("tsp", 20, "rollout", 512),
    Cell("tsp", 20, "pomo", 64),
    Cell("cvrp", 20, "rollout", 512),
    Cell("cvrp", 20, "pomo", 64),
    Cell("tsp", 50, "rollout", 256),
    Cell("tsp", 50, "pomo", 16),
    Cell("cvrp", 50, "rollout", 256),
    Cell("cvrp", 50, "pomo", 16),
)


def new_milkrun(cell: Cell, threads: int = 1) -> Reinforce:
    """Milkrun's training state for a cell."""
    settings: dict[str, Any] = {"start": "free"} if cell.name == "tsp" else {}
    world = milkrun.make(
        f"milkrun/{cell.name.upper()}-v0", 1, num_loc=cell.num_loc, seed=0, threads=threads, **settings
    )
    options = Options(
        10**6,
        baseline="rollout" if cell.baseline == "rollout" else "shared",
        batch=cell.batch,
        rows_each=cell.num_loc + 1,
        lr=RATE,
    )
    return Reinforce(world, derive(world), options)


def seconds_of(step: Any) -> float:
    before = clock()
    step()
    return clock() - before


def training_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Training steps of both in turn, one thread."""
    table = Table(
        "Training steps of the attention model, instances a second (one thread)",
        ["cell", "batch", "milkrun", "RL4CO 0.7.0", "ratio", "least", "most", "load"],
        notes={
            "cell": "pomo: a row from each start; rollout: one row and a greedy copy of the network",
            "order": "a step of RL4CO, two of Milkrun, in turn; medians; least and most: ratios of single rounds",
        },
    )
    from .peers.rl4co_training import TrainRL4CO

    ratios = []
    for cell in CELLS:
        ours, theirs = new_milkrun(cell), TrainRL4CO(*cell)
        torch.set_num_threads(1)
        ours.train_step(), theirs.train_step()
        milkrun_s, rl4co_s = [], []
        for _ in range(2 if options.quick else 5):
            rl4co_s.append(seconds_of(theirs.train_step))
            milkrun_s.append(statistics.mean(seconds_of(ours.train_step) for _ in range(2)))
        one, other = statistics.median(milkrun_s), statistics.median(rl4co_s)
        rounds = [b / a for a, b in zip(milkrun_s, rl4co_s, strict=True)]
        ratios.append(other / one)
        table.add(
            cell=f"{cell.name.upper()}-{cell.num_loc}, {cell.baseline}",
            batch=cell.batch,
            **{"milkrun": cell.batch / one, "RL4CO 0.7.0": cell.batch / other, "ratio": other / one},
            least=min(rounds),
            most=max(rounds),
            load=os.getloadavg()[0],
        )
        print(*table.lines()[-1:], flush=True)
    return table, {
        "training step / RL4CO, geometric mean (promised 2, goal 3)": math.exp(statistics.mean(map(math.log, ratios))),
        "training step / RL4CO, worst cell (promised 1.6, goal 2)": min(ratios),
    }


def trained_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Greedy decoding of 1,024 rows, a second thread, and the time to a first step."""
    table = Table("Trained policies, threads, first step", ["measured", "milkrun", "peer", "ratio", "promised"])
    from .peers.rl4co_training import TrainRL4CO

    cell = Cell("cvrp", 50, "pomo", 1024)
    state, theirs = new_milkrun(cell), TrainRL4CO(cell.name, cell.num_loc, cell.baseline, cell.batch)
    torch.set_num_threads(1)
    world = milkrun.make("milkrun/CVRP-v0", cell.batch, num_loc=cell.num_loc, threads=1, seed=5)
    policy = NetworkPolicy(state.network, state.features, "greedy")
    theirs.policy.eval()

    def play_theirs() -> None:
        with torch.inference_mode():
            theirs.policy(theirs.env.reset(batch_size=[cell.batch]), theirs.env, decode_type="greedy")

    def play_ours() -> None:
        world.reset()
        rollout(world, policy)

    repeats = 3 if options.quick else 7
    one = cell.batch / median_time(play_ours, repeats=repeats)
    other = cell.batch / median_time(play_theirs, repeats=repeats)
    table.add(
        measured="greedy policy, CVRP-50, 1,024 rows: episodes/s (peer: RL4CO)",
        milkrun=one,
        peer=other,
        ratio=one / other,
        promised="1.5, goal 3",
    )
    before = "cpu" if clock is time.process_time else "wall"
    set_clock("wall")  # processor time adds the threads up
    rates = {}
    for threads in (1, 2):
        with computing(threads):
            state = new_milkrun(CELLS[3], threads)
            rates[threads] = CELLS[3].batch / median_time(state.train_step, repeats=repeats, min_seconds=1.0)
    table.add(
        measured="training, CVRP-20 pomo, 2 threads: instances/s (peer: 1 thread)",
        milkrun=rates[2],
        peer=rates[1],
        ratio=rates[2] / rates[1],
        promised="1.3, goal 1.7",
    )
    set_clock(before)
    first = statistics.median(seconds_to_first_step() for _ in range(3))
    table.add(measured="`milkrun train CVRP-v0` to the end of the first step: s", milkrun=first, promised="6, goal 3")
    return table, {
        "greedy policy / RL4CO, CVRP-50, 1,024 rows (promised 1.5, goal 3)": one / other,
        "training, 2 threads / 1 thread, CVRP-20 (promised 1.3, goal 1.7)": rates[2] / rates[1],
        "seconds to the first step (promised 6, goal 3)": first,
    }


def seconds_to_first_step() -> float:
    """Seconds from the start of the command to the line after its first step."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "milkrun", "train", "CVRP-v0", "--steps", "2", "--every", "1"]
        start = time.perf_counter()
        with subprocess.Popen(
            [*command, "--out", str(Path(folder) / "run")], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if line.startswith("step 1/"):
                    return time.perf_counter() - start
    raise RuntimeError("the command ended without a step")
