"""Runs solvers of single instances in this process or in worker processes.

A worker is a new interpreter that reads problems from its standard input and writes results to its standard output. A
fork would inherit locks of missing threads, and a spawned child of `multiprocessing` would rerun the caller's script.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from milkrun.core.errors import WorkerError

SolvedInstance = tuple[list[int], bool]
"""actions, and whether they are proven optimal"""


def solve_each(
    method: str,
    task: Callable[[int], tuple[Any, ...]],
    batch: int,
    workers: int,
    progress: Callable[[int], object] | None,
) -> list[SolvedInstance]:
    """The result for each instance b, by the `solve_one` of the method's module with the arguments `task(b)`."""
    results: list[SolvedInstance] = [([], False)] * batch

    if min(workers, batch) <= 1:
        for b in range(batch):
            results[b] = solve_one(method, task(b))
            if progress is not None:
                progress(1)
        return results

    # All threads share one iterator, whose next() is atomic in the interpreter, so each number is taken once.
    waiting = iter(range(batch))

    def serve() -> None:
        with subprocess.Popen(
            [sys.executable, "-c", "from milkrun.solvers.workers import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # the worker has the import path of this process, including folders added at run time
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            for b in waiting:
                try:
                    pickle.dump((method, task(b)), process.stdin)
                    process.stdin.flush()
                    result = pickle.load(process.stdout)
                except (EOFError, OSError, pickle.UnpicklingError) as e:
                    raise WorkerError(f"the process that solved instance {b} by {method} died") from e
                if isinstance(result, Exception):
                    raise result
                results[b] = result
                if progress is not None:
                    progress(1)
            process.stdin.close()

    with ThreadPoolExecutor(min(workers, batch)) as threads:
        for future in [threads.submit(serve) for _ in range(min(workers, batch))]:
            future.result()
    return results


def solve_one(method: str, task: tuple[Any, ...]) -> SolvedInstance:
    """One instance by the module that the method names."""
    result: SolvedInstance = importlib.import_module(f"milkrun.solvers.{method}").solve_one(*task)
    return result


def main() -> None:
    """Runs a worker. Its prints go to standard error, so that they do not mix with its results."""
    output, sys.stdout = os.fdopen(os.dup(1), "wb"), sys.stderr
    os.dup2(2, 1)  # also prints of native code
    while True:
        try:
            task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            result: Any = solve_one(*task)
        except Exception as e:
            result = e
        pickle.dump(result, output)
        output.flush()
