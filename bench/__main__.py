"""All benchmarks in one run: Milkrun, RL4CO, Jumanji, VMAS, SAPIEN, MuJoCo and C. Medians, equal threads, ratios.

python -m bench [--quick] [--clock cpu] [--out bench/results]
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import milkrun

from .api import api_table
from .clutter import clutter_table
from .compiling import compiling_table
from .contestants import Gymnasium, RL4CODropIn, Stepped, TorchRL, rollout_rate
from .darp import darp_table
from .delivery import delivery_table
from .episodes import record_random_episodes
from .family import family_table
from .learn import trained_table, training_table
from .peers import c_kernel
from .peers.apart import report_of
from .policy_rollout import policy_rollout_table
from .replay import replay_table
from .scale import scale_table
from .timing import Table, clock, median_time, set_clock, step_times
from .tracking import tracking_table
from .vrp import vrp_table
from .workers import workers_table

NUM_LOC = 50
BATCHES = (1, 64, 1024, 8192)
WORLDS = ("tsp", "cvrp")


def steps_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Microseconds per call of every contestant in every cell, and the promised ratios."""
    from .peers.rl4co import StepRL4CO

    table = Table(
        "One step of the whole batch, microseconds (n = 50, one thread, recorded random episodes)",
        [
            "world",
            "rows",
            "World.step",
            "gymnasium",
            "gym. no copy",
            "torchrl",
            "torchrl in place",
            "torchrl views",
            "rl4co drop-in",
            "RL4CO 0.7.0",
            "C",
            "World.step / RL4CO",
            "torchrl / RL4CO",
            "torchrl in place / RL4CO",
            "torchrl views / RL4CO",
            "rl4co drop-in / RL4CO",
            "share of C",
            "ns a row",
        ],
        notes={
            "ratios": "how many times faster than the peer; share of C = time of C / time of World.step",
            "torchrl": "functional; in place: stepping='inplace' with copies; views: the same with copy=False",
            "order": "all play an episode in turn, then the next",
        },
    )
    timing: Any = {"repeats": 5, "min_seconds": 0.03} if options.quick else {"repeats": 9, "min_seconds": 0.15}
    with_c = c_kernel.available()
    compared = ("World.step", "torchrl", "torchrl in place", "torchrl views", "rl4co drop-in")
    ratios: dict[str, list[float]] = {label: [] for label in (*compared, "C")}
    for name in WORLDS:
        for batch in BATCHES:
            episodes = record_random_episodes(name, NUM_LOC, batch, seed=batch)
            contestants: dict[str, Any] = {
                "World.step": Stepped(episodes),
                "C": c_kernel.StepC(name, NUM_LOC, batch, episodes=episodes) if with_c else None,
                "gymnasium": Gymnasium(episodes),
                "gym. no copy": Gymnasium(episodes, copy=False),
                "torchrl": TorchRL(episodes),
                "torchrl in place": TorchRL(episodes, stepping="inplace"),
                "torchrl views": TorchRL(episodes, stepping="inplace", copy=False),
                "rl4co drop-in": RL4CODropIn(episodes),
                "RL4CO 0.7.0": StepRL4CO(name, NUM_LOC, batch, episodes=episodes),
            }
            parts = {k: (c.start, c.play, episodes.live_steps) for k, c in contestants.items() if c is not None}
            us = {label: 1e6 * seconds for label, seconds in step_times(parts, **timing).items()}
            peer = us["RL4CO 0.7.0"]
            for label in compared:
                ratios[label].append(peer / us[label])
            if name == "cvrp" and batch == 1024:
                functional = peer / us["torchrl"]
            share = us["C"] / us["World.step"] if with_c else None
            if share is not None and batch >= 1024:
                ratios["C"].append(share)
            cells: dict[str, Any] = {"world": name, "rows": batch, **us, "share of C": share}
            cells |= {f"{k} / RL4CO": ratios[k][-1] for k in compared}
            table.add(**cells, **{"ns a row": 1e3 * us["World.step"] / batch})
            print(f"{name} {batch}: " + ", ".join(f"{k} {v:.3g} us" for k, v in us.items()), flush=True)
    views = {name: min(row["torchrl views / RL4CO"] for row in table.rows if row["world"] == name) for name in WORLDS}
    promised = {
        "World.step / RL4CO, geometric mean (promised 10, goal 15)": _geometric_mean(ratios["World.step"]),
        "World.step / RL4CO, worst cell (promised 2)": min(ratios["World.step"]),
        "TorchRL, functional / RL4CO, geometric mean": _geometric_mean(ratios["torchrl"]),
        "TorchRL, functional / RL4CO, cvrp, 1,024 rows (promised 2)": functional,
        "TorchRL, in place with views / RL4CO, tsp, worst cell": views["tsp"],
        "TorchRL, in place with views / RL4CO, cvrp, worst cell (promised 4)": views["cvrp"],
        "RL4CO drop-in / RL4CO, geometric mean": _geometric_mean(ratios["rl4co drop-in"]),
    }
    if ratios["C"]:
        promised["share of C at 1,024 and more rows, worst cell (promised 0.5)"] = min(ratios["C"])
    return table, promised


def rollouts_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Whole random rollouts at 1,024 rows, Milkrun and Jumanji, which has its own virtual environment."""
    table = Table(
        "Whole random rollouts, million row-steps a second (n = 50, 1,024 rows, one thread)",
        [
            "world",
            "milkrun",
            "return",
            "Jumanji's own sampler",
            "Jumanji, fastest sampler",
            "ratio to own",
            "ratio to fastest",
        ],
        notes={"jumanji": "own = jax.random.categorical, as in its random agent; fastest = the best of three of ours"},
    )
    promised: dict[str, float] = {}
    repeats = "7" if options.quick else "25"
    theirs = report_of("jumanji", "jumanji_rollout.py", "--clock", options.clock, "--repeats", repeats)
    for name in WORLDS:
        rate, mean_return = rollout_rate(name, NUM_LOC, 1024, repeats=7 if options.quick else 25)
        cells: dict[str, Any] = {"world": name, "milkrun": rate / 1e6, "return": mean_return}
        if theirs is not None:
            own, fastest = theirs["samplers"][name]["categorical"], theirs[name]
            cells |= {
                "Jumanji's own sampler": own / 1e6,
                "Jumanji, fastest sampler": fastest / 1e6,
                "ratio to own": rate / own,
                "ratio to fastest": rate / fastest,
            }
            promised[f"rollouts of {name} / Jumanji with its own sampler"] = rate / own
            promised[f"rollouts of {name} / Jumanji with the fastest sampler (promised 2.5, goal 4)"] = rate / fastest
        table.add(**cells)
    return table, promised


def own_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Generators, threads and memory."""
    from .peers.rl4co import generator_rate

    table = Table("Generators, threads, memory", ["measured", "milkrun", "peer", "ratio"])
    promised: dict[str, float] = {}
    for name in WORLDS:
        world = milkrun.make(f"milkrun/{name.upper()}-v0", 1024, num_loc=NUM_LOC, threads=1, seed=0)
        rate = 1024 / median_time(world.draw_instances)
        peer = generator_rate(name, NUM_LOC, 1024)
        table.add(
            measured=f"{name}: instances/s (peer: RL4CO), 1,024 at a time", milkrun=rate, peer=peer, ratio=rate / peer
        )
        promised[f"generator of {name} / RL4CO (promised 1)"] = rate / peer
        episodes = record_random_episodes(name, NUM_LOC, 8192, seed=1)
        set_clock("wall")  # processor time adds the threads up
        played = {str(k): Stepped(episodes, threads=k) for k in (1, 2)}
        one, two = step_times({k: (w.start, w.play, episodes.live_steps) for k, w in played.items()}).values()
        bound = c_kernel.two_halves(name, NUM_LOC, 8192) if c_kernel.available() else None
        set_clock(options.clock)
        table.add(
            measured=f"{name}: us a step of 8,192 rows, 2 threads (peer: 1 thread)",
            milkrun=1e6 * two,
            peer=1e6 * one,
            ratio=one / two,
        )
        table.add(
            measured=f"{name}: 2 threads / 1 thread at 8,192 rows (peer: C, two halves that never wait)",
            milkrun=one / two,
            peer=bound,
            ratio=one / two / bound if bound else None,
        )
        promised[f"2 threads / 1 thread, {name}, 8,192 rows (promised 1.6)"] = one / two
        table.add(measured=f"{name}: bytes a row, instance and state", milkrun=world.bytes_per_row)
    return table, promised


def _geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


TABLES = {
    "steps": steps_table,
    "policy_rollout": policy_rollout_table,
    "rollouts": rollouts_table,
    "family": family_table,
    "vrp": vrp_table,
    "darp": darp_table,
    "delivery": delivery_table,
    "clutter": clutter_table,
    "tracking": tracking_table,
    "api": api_table,
    "workers": workers_table,
    "scale": scale_table,
    "training": training_table,
    "trained": trained_table,
    "compiling": compiling_table,
    "replay": replay_table,
    "own": own_table,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats: a rough check, no result")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu on a shared machine")
    parser.add_argument("--only", action="append", choices=[*TABLES], help="only this table; may be repeated")
    parser.add_argument("--out", default="out/bench", help="folder for the tables")
    options = parser.parse_args()
    set_clock(options.clock)
    began = clock()
    promised: dict[str, float] = {}
    for stem in options.only or TABLES:
        table, found = TABLES[stem](options)
        table.print()
        table.save(Path(options.out) / stem)
        promised |= found
    summary = Table("What was promised and what was reached", ["promise", "reached"])
    for promise, reached in promised.items():
        summary.add(promise=promise, reached=reached)
    summary.print()
    print(*summary.save(Path(options.out) / "summary"), f"{clock() - began:.0f} s", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
