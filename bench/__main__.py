"""Compares Milkrun with RL4CO, Jumanji, VMAS, SAPIEN, MuJoCo and C in one run: equal threads, medians, ratios.

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
from .contestants import Gymnasium, InPlace, RL4CODropIn, TorchRL, TorchRLInPlace, rollout_rate
from .darp import darp_table
from .delivery import delivery_table
from .episodes import record_random_episodes
from .family import family_table
from .peers import c_kernel
from .peers.apart import report_of
from .replay import replay_table
from .scale import scale_table
from .timing import Table, clock, median_time, set_clock, step_times
from .tracking import tracking_table
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
            "in place",
            "gymnasium",
            "gym. no copy",
            "torchrl",
            "torchrl, kept",
            "torchrl in place",
            "rl4co view",
            "RL4CO 0.7.0",
            "C",
            "in place / RL4CO",
            "torchrl / RL4CO",
            "torchrl, kept / RL4CO",
            "torchrl in place / RL4CO",
            "rl4co view / RL4CO",
            "share of C",
            "ns a row",
        ],
        notes={
            "ratios": "how many times faster than the peer; share of C = time of C / time in place",
            "torchrl": "functional, each result dropped for the next; kept: all of an episode held, as in a collector",
            "torchrl in place": 'stepping="inplace", copy=False: results are views of the world\'s memory',
            "order": "all play an episode in turn, then the next",
        },
    )
    timing: Any = {"repeats": 5, "min_seconds": 0.03} if options.quick else {"repeats": 9, "min_seconds": 0.15}
    with_c = c_kernel.available()
    compared = ("in place", "torchrl", "torchrl, kept", "torchrl in place", "rl4co view")
    ratios: dict[str, list[float]] = {label: [] for label in (*compared, "C")}
    functional: dict[str, float] = {}
    for name in WORLDS:
        for batch in BATCHES:
            episodes = record_random_episodes(name, NUM_LOC, batch, seed=batch)
            contestants: dict[str, Any] = {
                "in place": InPlace(episodes),
                "C": c_kernel.StepC(name, NUM_LOC, batch, episodes=episodes) if with_c else None,
                "gymnasium": Gymnasium(episodes),
                "gym. no copy": Gymnasium(episodes, copy=False),
                "torchrl": TorchRL(episodes),
                "torchrl, kept": TorchRL(episodes, keeps=True),
                "torchrl in place": TorchRLInPlace(episodes),
                "rl4co view": RL4CODropIn(episodes),
                "RL4CO 0.7.0": StepRL4CO(name, NUM_LOC, batch, episodes=episodes),
            }
            parts = {k: (c.start, c.play, episodes.live_steps) for k, c in contestants.items() if c is not None}
            us = {label: 1e6 * seconds for label, seconds in step_times(parts, **timing).items()}
            peer = us["RL4CO 0.7.0"]
            for label in compared:
                ratios[label].append(peer / us[label])
            for label, loop in (("torchrl", "results dropped"), ("torchrl, kept", "results kept")):
                if name == "cvrp" and batch == 1:
                    functional[f"TensorDict API / RL4CO, cvrp, 1 row, {loop} (promised 5)"] = peer / us[label]
            if name == "cvrp" and batch <= 1024:
                functional[f"TorchRL in place / RL4CO, cvrp, {batch:,} rows (promised 4)"] = (
                    peer / us["torchrl in place"]
                )
            share = us["C"] / us["in place"] if with_c else None
            if share is not None and batch >= 1024:
                ratios["C"].append(share)
            cells: dict[str, Any] = {"world": name, "rows": batch, **us, "share of C": share}
            cells |= {f"{k} / RL4CO": ratios[k][-1] for k in compared}
            table.add(**cells, **{"ns a row": 1e3 * us["in place"] / batch})
            print(f"{name} {batch}: " + ", ".join(f"{k} {v:.3g} us" for k, v in us.items()), flush=True)
    promised = {
        "in place / RL4CO, geometric mean (promised 10, goal 15)": _geometric_mean(ratios["in place"]),
        "in place / RL4CO, worst cell (promised 2)": min(ratios["in place"]),
        "TensorDict API / RL4CO, geometric mean (promised 4, goal 6)": _geometric_mean(ratios["torchrl"]),
        "RL4CO view / RL4CO, geometric mean": _geometric_mean(ratios["rl4co view"]),
        **functional,
    }
    if ratios["C"]:
        promised["share of C at 1,024 and more rows, worst cell (promised 0.5)"] = min(ratios["C"])
    return table, promised


def rollouts_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Whole random rollouts at 1,024 rows, compared with Jumanji in its own virtual environment."""
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
        notes={
            "jumanji": "own = jax.random.categorical, as in its random agent; fastest = the best of three written here"
        },
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
    """Generators, threads, memory: compared with RL4CO, with one thread, or with nothing."""
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
        played = {str(k): InPlace(episodes, threads=k) for k in (1, 2)}  # in turns
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
    "rollouts": rollouts_table,
    "family": family_table,
    "darp": darp_table,
    "delivery": delivery_table,
    "clutter": clutter_table,
    "tracking": tracking_table,
    "api": api_table,
    "workers": workers_table,
    "scale": scale_table,
    "compiling": compiling_table,
    "replay": replay_table,
    "own": own_table,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats: a quick check, not a result")
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="cpu: processor time, for a machine under load"
    )
    parser.add_argument("--only", action="append", choices=[*TABLES], help="this table; may be given several times")
    parser.add_argument("--out", default="out/bench", help="folder of the saved tables")
    options = parser.parse_args()
    set_clock(options.clock)
    began = clock()
    promised: dict[str, float] = {}
    for stem in options.only or TABLES:
        table, found = TABLES[stem](options)
        table.print()
        table.save(Path(options.out) / stem)
        promised |= found
    summary = Table("Promised and reached", ["promise", "reached"])
    for promise, reached in promised.items():
        summary.add(promise=promise, reached=reached)
    summary.print()
    print(*summary.save(Path(options.out) / "summary"), f"{clock() - began:.0f} s", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
