"""What the first use of a world costs: processor seconds in fresh processes with an empty cache, one after another."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

import milkrun

from .timing import Table

QUICK = tuple(f"milkrun/{name}-v0" for name in ("TSP", "CVRP", "DARP", "TruckDrone", "Tracking"))
FIRST_STEP = ("draw", "reset", "sample", "step")
PARTS = (*FIRST_STEP, "observe", "threads")

FIRST_USE = """
import json, sys, time
import milkrun
spent = {}
def timed(part, call):
    began = time.process_time()
    result = call()
    spent[part] = time.process_time() - began
    return result
world = milkrun.make(sys.argv[1], 64, seed=1, threads=1)
timed("draw", world.draw_instances)
timed("reset", world.reset)
actions = timed("sample", world.sample_actions)
timed("step", lambda: world.step(actions))
if any(field.on_demand for field in world.observed):
    timed("observe", world.observe)
world.threads = 2
timed("threads", lambda: (world.reset(), world.step(actions)))
print(json.dumps(spent))
"""


def compiling_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Seconds until the first step is done, by part, and the seconds that threads add."""
    table = Table(
        "The first use of a world with nothing compiled, processor seconds",
        ["world", "first step", *PARTS],
        notes={
            "first step": "draw + reset + sample + step",
            "observe": "the first observation, of worlds with fields on demand",
            "threads": "the first reset and step on two threads, after those on one",
        },
    )
    slowest = 0.0
    for id in QUICK if options.quick else milkrun.list_worlds():
        spent = first_use(id)
        first_step = sum(spent[part] for part in FIRST_STEP)
        slowest = max(slowest, first_step)
        table.add(world=id, **{"first step": first_step}, **spent)
        print(f"{id}: {first_step:.3g} s", flush=True)
    return table, {"first step with nothing compiled, slowest world: s": slowest}


def first_use(id: str) -> dict[str, float]:
    """Processor seconds by part, measured in a process of its own with an empty cache."""
    with tempfile.TemporaryDirectory() as empty:
        env = {**os.environ, "MILKRUN_CACHE_DIR": empty}
        done = subprocess.run([sys.executable, "-c", FIRST_USE, id], env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    spent: dict[str, float] = json.loads(done.stdout)
    return spent
