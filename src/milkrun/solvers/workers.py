"""Solvers that take one instance at a time, run in this process or in several.

A worker is a fresh interpreter that reads problems from its standard input and writes plans to its standard output. It
shares nothing with this process: a fork would inherit locks of threads that are not there, and a spawned child of
`multiprocessing` would run the caller's script again.
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

Answer = tuple[list[int], bool]
"""actions, and whether nothing is better"""


def solve_each(
    method: str,
    task: Callable[[int], tuple[Any, ...]],
    batch: int,
    workers: int,
    progress: Callable[[int], object] | None,
) -> list[Answer]:
    """An answer for each instance b, by the `solve_one` of the method's module with the arguments `task(b)`."""
    answers: list[Answer] = [([], False)] * batch

    if min(workers, batch) <= 1:
        for b in range(batch):
            answers[b] = solve_one(method, task(b))
            if progress is not None:
                progress(1)
        return answers

    # One iterator for all threads: its next() is a single step for the interpreter, so each number is taken once.
    waiting = iter(range(batch))

    def serve() -> None:
        with subprocess.Popen(
            [sys.executable, "-c", "from milkrun.solvers.workers import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # the worker finds modules where this process does, also in folders added at run time
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            for b in waiting:
                try:
                    pickle.dump((method, task(b)), process.stdin)
                    process.stdin.flush()
                    answer = pickle.load(process.stdout)
                except (EOFError, OSError, pickle.UnpicklingError) as e:
                    raise WorkerError(f"the process that solved instance {b} by {method} died") from e
                if isinstance(answer, Exception):
                    raise answer
                answers[b] = answer
                if progress is not None:
                    progress(1)
            process.stdin.close()

    with ThreadPoolExecutor(min(workers, batch)) as threads:
        for future in [threads.submit(serve) for _ in range(min(workers, batch))]:
            future.result()
    return answers


def solve_one(method: str, task: tuple[Any, ...]) -> Answer:
    """One instance by the module that the method names."""
    answer: Answer = importlib.import_module(f"milkrun.solvers.{method}").solve_one(*task)
    return answer


def main() -> None:
    """The life of a worker; what it would print must not mix with its answers."""
    answers, sys.stdout = os.fdopen(os.dup(1), "wb"), sys.stderr
    os.dup2(2, 1)  # also of what is no Python
    while True:
        try:
            task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: Any = solve_one(*task)
        except Exception as e:
            answer = e
        pickle.dump(answer, answers)
        answers.flush()
