"""Runs programs, each in a process of its own that need not load the large packages again: a fork of this one.

Started by test_docs.py. Each line of standard input is a JSON list: the folder to run in, the file that takes what the
program says, its arguments. The answer is a line with its exit code. Nothing of Milkrun is loaded here, and nothing
starts threads which compute: compiling rl4co's local search would, so it stays Python.
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


def play(folder: str, said: str, arguments: list[str]) -> None:
    """A script, or a module after -m, as the main program."""
    out = os.open(said, os.O_WRONLY | os.O_CREAT)
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
    gc.freeze()  # what is here already is not looked at, hence not copied, in the forks
    for line in sys.stdin:
        program = multiprocessing.get_context("fork").Process(target=play, args=json.loads(line))
        program.start()
        program.join()
        print(program.exitcode, flush=True)
