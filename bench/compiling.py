"""What the first use of a world costs: its kernels as parts of their entries, beside numba's own way of compiling each
one with all that it calls. Processor seconds in fresh processes with an empty cache, one after another.
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
import ast, gc, inspect, json, sys, textwrap, time
import milkrun
from milkrun.core.kernels import Kernel, part_compiler
spent = {}
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
timed("observe", world.observe)
kernels = [k for k in gc.get_objects() if isinstance(k, Kernel) and k.overloads]
def statements(kernel):
    tree = ast.parse(textwrap.dedent(inspect.getsource(kernel.py_func)))
    return sum(isinstance(node, ast.stmt) for node in ast.walk(tree)) - 1
spent["versions"] = sum(len(k.overloads) for k in kernels)
spent["statements"] = sum(len(k.overloads) * statements(k) for k in kernels)
spent["parts"] = part_compiler() is not None
world.threads = 2
timed("threads", lambda: (world.reset(), world.step(actions)))
print(json.dumps(spent))
"""


def compiling_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Seconds until the first step is done, entry by entry, and what threads add to them."""
    table = Table(
        "The first use of a world with nothing compiled, processor seconds",
        ["world", "first step", *PARTS, "versions", "statements", "as numba comes", "ratio"],
        notes={
            "first step": "draw + restart + sample + step, as `make`, `reset`, `step` call for them",
            "observe": "a world without views on demand compiles nothing for it",
            "threads": "the first reset and step on two threads, after those on one",
            "versions, statements": "of kernels, as often as they were translated",
        },
    )
    ratios = []
    for id in QUICK if options.quick else milkrun.list_worlds():
        ours, theirs = _first_use(id, plain=False), _first_use(id, plain=True)
        ratios.append(_first_step(theirs) / _first_step(ours))
        cells = {name: ours[name] for name in (*PARTS, "versions", "statements")}
        table.add(world=id, ratio=ratios[-1],
                  **{"first step": _first_step(ours), "as numba comes": _first_step(theirs), **cells})
        print(f"{id}: {_first_step(ours):.3g} s, as numba comes {_first_step(theirs):.3g} s", flush=True)
    return table, {"first use / as numba comes, worst world": min(ratios)}


def _first_step(spent: dict[str, Any]) -> float:
    return float(sum(spent[name] for name in PARTS[:4]))


def _first_use(id: str, plain: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as empty:
        env = {**os.environ, "MILKRUN_CACHE_DIR": empty, "MILKRUN_PLAIN_NJIT": str(int(plain))}
        done = subprocess.run([sys.executable, "-c", FIRST_USE, id], env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    spent: dict[str, Any] = json.loads(done.stdout)
    assert spent["parts"] != plain, "the kernels were not made in the way that was asked for"
    return spent
