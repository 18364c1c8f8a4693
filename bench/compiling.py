"""What the first use of a world costs: its kernels as parts of their entries, beside numba's own way of compiling each
one with all that it calls. Processor seconds in fresh processes with an empty cache, one after another.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

import milkrun

from .timing import Table

QUICK = ("milkrun/CVRP-v0", "milkrun/WCVRP-v0")

FIRST_USE = """
import sys, time
from numba import njit
from milkrun.core import kernels
id, way = sys.argv[1:]
if way == "numba":
    def plain(function=None, *, inline=False):
        if function is None:
            return lambda f: plain(f, inline=inline)
        return njit(forceinline=inline, no_cfunc_wrapper=True, **kernels.KERNEL_OPTIONS)(function)
    kernels.kernel = plain
import milkrun
began = time.process_time()
world = milkrun.make(id, 64, seed=1, threads=1)
world.reset()
world.step(world.sample_actions())
one = time.process_time() - began
world.threads = 2
world.reset()
world.step(world.sample_actions())
from milkrun.core.rng import stream
print(one, time.process_time() - began - one, type(stream) is kernels.Kernel)
"""


def compiling_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Seconds until the first step is done, and what threads add to them."""
    table = Table(
        "The first reset and step of a world with nothing compiled, processor seconds",
        ["world", "milkrun", "threads added", "as numba comes", "ratio"],
        notes={"threads added": "the first reset and step on two threads, after those on one"},
    )
    ratios = []
    for id in QUICK if options.quick else milkrun.list_worlds():
        (ours, threaded), (theirs, _) = _first_use(id, "parts"), _first_use(id, "numba")
        ratios.append(theirs / ours)
        table.add(world=id, milkrun=ours, ratio=ratios[-1], **{"threads added": threaded, "as numba comes": theirs})
        print(f"{id}: {ours:.3g} s, threads {threaded:.3g} s more, as numba comes {theirs:.3g} s", flush=True)
    return table, {"first use / as numba comes, worst world": min(ratios)}


def _first_use(id: str, way: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as empty:
        env = {**os.environ, "MILKRUN_CACHE_DIR": empty}
        done = subprocess.run([sys.executable, "-c", FIRST_USE, id, way], env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    one, two, parts = done.stdout.split()
    assert (parts == "True") == (way == "parts"), "the kernels were not made in the way that was asked for"
    return float(one), float(two)
