"""The cost of the first use of a world: kernels as parts of their entries, compared with plain `njit`, where numba
compiles each kernel with all its callees. Processor seconds in fresh processes with an empty cache, one after another.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import milkrun

from .timing import Table

QUICK = ("milkrun/CVRP-v0", "milkrun/WCVRP-v0")
PARTS = ("draw", "restart", "sample", "step", "observe", "threads")

FIRST_USE = """
import gc, json, sys, time
from numba.core import ir, typed_passes
import milkrun
from milkrun.core.kernels import Kernel, part_compiler
spent = {"statements": 0}
lower = typed_passes.BaseNativeLowering.run_pass
def counted(self, state):
    for block in state.func_ir.blocks.values():
        spent["statements"] += sum(not isinstance(statement, ir.Del) for statement in block.body)
    return lower(self, state)
typed_passes.BaseNativeLowering.run_pass = counted
def timed(label, call):
    began = time.process_time()
    result = call()
    spent[label] = time.process_time() - began
    return result
world = milkrun.make(sys.argv[1], 64, seed=1, threads=1)
timed("draw", world.draw_instances)
timed("restart", world.reset)
actions = timed("sample", world.sample_actions)
timed("step", lambda: world.step(actions))
if world._launcher.observe is not None:
    timed("observe", world.observe)
kernels = [k for k in gc.get_objects() if isinstance(k, Kernel) and k.overloads]
spent["versions"] = sum(len(k.overloads) for k in kernels)
spent["parts"] = part_compiler() is not None
typed_passes.BaseNativeLowering.run_pass = lower
world.threads = 2
timed("threads", lambda: (world.reset(), world.step(actions)))
print(json.dumps(spent))
"""


def compiling_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Seconds until the first step is done, entry by entry, and the cost of threads."""
    table = Table(
        "The first use of a world with nothing compiled, processor seconds",
        ["world", "first step", *PARTS, "versions", "statements", "as numba comes", "ratio"],
        notes={
            "first step": "draw + restart + sample + step, as `make`, `reset`, `step` call for them",
            "observe": "the first observation, of worlds with views on demand",
            "threads": "the first reset and step on two threads, after those on one",
            "versions": "of kernels, as often as they were translated",
            "statements": "numba's, of all functions translated up to the first observation; they do not depend on the "
            "machine or its load",
        },
    )
    ratios = []
    for id in QUICK if options.quick else milkrun.list_worlds():
        ours, theirs = first_use(id, plain=False), first_use(id, plain=True)
        ratios.append(_first_step(theirs) / _first_step(ours))
        cells = {name: ours.get(name) for name in (*PARTS, "versions", "statements")}
        table.add(
            world=id,
            ratio=ratios[-1],
            **{"first step": _first_step(ours), "as numba comes": _first_step(theirs), **cells},
        )
        print(
            f"{id}: {_first_step(ours):.3g} s, {ours['statements']:,} statements, "
            f"as numba comes {_first_step(theirs):.3g} s, {theirs['statements']:,} statements",
            flush=True,
        )
    return table, {"first use / as numba comes, worst world": min(ratios)}


def _first_step(spent: dict[str, Any]) -> float:
    return float(sum(spent[name] for name in PARTS[:4]))


def first_use(id: str, plain: bool) -> dict[str, Any]:
    """Seconds by part, versions and statements, of a process of its own with an empty cache."""
    with tempfile.TemporaryDirectory() as empty:
        env = {**os.environ, "MILKRUN_CACHE_DIR": empty, "MILKRUN_PLAIN_NJIT": str(int(plain))}
        done = subprocess.run([sys.executable, "-c", FIRST_USE, id], env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    spent: dict[str, Any] = json.loads(done.stdout)
    assert spent["parts"] != plain, "the kernels were not compiled in the requested way"
    return spent
