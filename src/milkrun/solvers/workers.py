"""Solvers of other people, one instance at a time, in this process or in several.

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
from milkrun.solvers.problem import Problem

Plan = list[int]


def solve_each(
    problem: Problem, method: str, time_limit: float, seed: int, iterations: int | None, workers: int,
    progress: Callable[[int], object] | None,
) -> list[Plan]:  # fmt: skip
    """A plan for each instance: trips, each closed by 0."""
    batch = len(problem)
    plans: list[Plan] = [[]] * batch
    tasks = [(method, time_limit, seed, iterations)] * batch

    def here(b: int) -> None:
        plans[b] = solve_one((problem.rows([b]), *tasks[b]))

    if min(workers, batch) <= 1:
        for b in range(batch):
            here(b)
            if progress is not None:
                progress(1)
        return plans

    waiting = iter(range(batch))

    def serve() -> None:
        with subprocess.Popen(
            [sys.executable, "-c", "from milkrun.solvers.workers import main; main()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        ) as process:  # fmt: skip
            assert process.stdin is not None and process.stdout is not None
            for b in waiting:
                try:
                    pickle.dump((problem.rows([b]), *tasks[b]), process.stdin)
                    process.stdin.flush()
                    answer = pickle.load(process.stdout)
                except (EOFError, OSError) as e:
                    raise WorkerError(f"the process that solved instance {b} by {method} died") from e
                if isinstance(answer, Exception):
                    raise answer
                plans[b] = answer
                if progress is not None:
                    progress(1)
            process.stdin.close()

    with ThreadPoolExecutor(min(workers, batch)) as threads:
        for future in [threads.submit(serve) for _ in range(min(workers, batch))]:
            future.result()
    return plans


def solve_one(task: Any) -> Plan:
    """One instance by the package that the method names."""
    problem, method, time_limit, seed, iterations = task
    solver = importlib.import_module(f"milkrun.solvers.{method}")
    actions, _ = solver.solve_one(problem, 0, time_limit, seed, iterations)
    return [*actions, 0]


def main() -> None:
    """The life of a worker; what it would print must not mix with its answers."""
    answers, sys.stdout = os.fdopen(os.dup(1), "wb"), sys.stderr
    while True:
        try:
            task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: Any = solve_one(task)
        except Exception as e:
            answer = e
        pickle.dump(answer, answers)
        answers.flush()
