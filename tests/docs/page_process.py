"""Runs programs in forks of this process, which has loaded the large packages.

Started by test_docs.py. Each line of standard input is a JSON list: the working folder, the file for the program's
output, its arguments. The reply is a line with its exit code. This process loads nothing of Milkrun and starts no
compute threads: compiling rl4co's local search would, so it stays Python.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import runpy
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec

LARGE = ("gymnasium", "scipy", "matplotlib.pyplot", "torch", "torchrl.envs", "torchrl.objectives", "rl4co.envs")


def play(folder: str, output: str, arguments: list[str]) -> None:
    """A script, or a module after -m, as the main program."""
    out = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(folder)
    sys.path[0] = folder
    warnings.filterwarnings("error", category=DeprecationWarning, module="__main__")
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    from numba import config

    before, config.DISABLE_JIT = config.DISABLE_JIT, 1
    for name in LARGE:
        if find_spec(name.partition(".")[0]) is not None:
            import_module(name)
    config.DISABLE_JIT = before
    gc.freeze()  # the forks do not scan, hence not copy, these objects
    for line in sys.stdin:
        program = multiprocessing.get_context("fork").Process(target=play, args=json.loads(line))
        program.start()
        program.join()
        print(program.exitcode, flush=True)
