"""Runs the compiled heuristics on a batch: constructions and moves of each method.

One entry serves all methods and worlds. Like those of the worlds it takes a table of addresses, so the disk cache keeps
it until a kernel changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import ConfigError
from milkrun.core.fields import Role
from milkrun.core.kernels import kernel
from milkrun.core.launcher import build_loop
from milkrun.core.threads import Entry, chunks_for
from milkrun.routing.distance import METRICS
from milkrun.solvers.construct import CHEAPEST, FARTHEST, RULES, insertion, nearest_neighbour, savings
from milkrun.solvers.drive import can_be_driven, drive
from milkrun.solvers.improve import JOIN, LEAVE, OR_OPT, RELOCATE, SWAP, TWO_OPT, descend
from milkrun.solvers.problem import Problem
from milkrun.solvers.tours import LAYOUT, LENGTH, WORK, required_served, set_distances, value, write_plan

METHODS = ("nearest", "insertion", "2opt", "oropt", "ls", "savings")
BY_NEAREST, BY_INSERTION, BY_TWO_OPT, BY_OR_OPT, BY_ALL, BY_SAVINGS = range(6)
STARTS = 4
FROM_ALL, FROM_GREEDY, FROM_NEAREST, FROM_SAVINGS = range(STARTS)
CHOOSE = 1 << JOIN | 1 << LEAVE
EVERYTHING = 1 << TWO_OPT | 1 << OR_OPT | 1 << RELOCATE | 1 << SWAP | CHOOSE
BLOCKS = 50  # parts after which progress is reported


def run_heuristic(
    problem: Problem,
    method: str,
    *,
    rule: str | None = None,
    workers: int = 1,
    progress: Callable[[int], object] | None = None,
) -> NDArray[np.int32]:
    """(B, P) plans: trips, each closed by 0. `progress` is called with the number of newly solved instances."""
    if problem.windows is not None:
        raise ConfigError(f"method={method!r} does not support time windows; 'pyvrp' and 'exact' do")
    if rule is not None and rule not in RULES:
        raise ConfigError(f"rule={rule!r}: allowed are {', '.join(RULES)}")
    problem = problem.with_stops_in_the_legs()
    batch, nodes = len(problem), problem.nodes
    pairs = nodes * nodes if method in ("savings", "ls") and problem.multi else 1
    sizes = {
        "N": nodes,
        "L": 0 if problem.locs is None else nodes,
        "M": 0 if problem.dist is None else nodes,
        "P": 2 * nodes + 4,
        "S": pairs,
    }
    chosen = RULES.index(rule) if rule is not None else FARTHEST if _all_required(problem) else CHEAPEST
    done = 0
    block = max(1, -(-batch // BLOCKS)) if progress is not None else max(batch, 1)
    chunks = chunks_for(block, 0, workers)
    table, kept = LAYOUT.fill(batch, sizes, _numbers(problem) | _arrays(problem), chunks)
    while done < batch:
        count = min(block, batch - done)
        _entry().run((table.ctypes.data, METHODS.index(method), chosen, done), count, min(chunks, count))
        done += count
        if progress is not None:
            progress(count)
    plans: NDArray[np.int32] = kept["plan"]
    return plans


@kernel
def solve_next(w, r, method, rule, done):
    solve_row(w, done + r, method, rule)


@kernel
def solve_row(w, b, method, rule):
    """Runs every start of the method with its moves and keeps the best plan."""
    set_distances(w, b)
    optional = False
    for j in range(1, w.n_nodes[b]):
        optional |= not w.required[b, j]
    kept, served, worth = 0, -1, -np.inf
    for start in range(STARTS):
        if not is_start(start, method, optional, w.multi):
            continue
        if start == FROM_NEAREST:
            nearest_neighbour(w, b)
        elif start == FROM_SAVINGS:
            savings(w, b)
        else:
            insertion(w, b, rule, start == FROM_GREEDY)
        descend(w, b, moves_of(method))
        if not can_be_driven(w, b):
            drive(w, b)
        again, now = required_served(w, b), value(w, b)
        # required customers precede value: a plan that serves more of them wins at any cost
        if again > served or (again == served and now > worth):
            kept, served, worth = w.count[LENGTH], again, now
            for p in range(kept):
                w.best[p] = w.seq[p]
    for p in range(kept):
        w.seq[p] = w.best[p]
    w.count[LENGTH] = kept
    write_plan(w, b)


@kernel
def is_start(start, method, optional, multi):
    """Insertion starts with all customers, and if some are optional also with those that pay.

    The local search also starts from savings with several trips, from nearest neighbour with one.
    """
    if method == BY_SAVINGS:
        return start == FROM_SAVINGS
    if method in (BY_INSERTION, BY_ALL):
        if start == FROM_ALL or (start == FROM_GREEDY and optional):
            return True
        return method == BY_ALL and start == (FROM_SAVINGS if multi else FROM_NEAREST)
    return start == FROM_NEAREST


@kernel
def moves_of(method):
    if method == BY_TWO_OPT:
        return 1 << TWO_OPT | CHOOSE
    if method == BY_OR_OPT:
        return 1 << OR_OPT | CHOOSE
    return EVERYTHING if method == BY_ALL else 1 << LEAVE


def _numbers(problem: Problem) -> dict[str, Any]:
    price = problem.beta
    if price == 0:  # length is free: prefers the shorter of equal plans, which helps with max_length
        price = 1e-6 * max(float(problem.gain.max(initial=0.0)), 1e-6) / max(problem.side, 1e-30)
    return {
        "metric": METRICS.index(problem.metric),
        "multi": problem.multi,
        "reserves": problem.reserves,
        "circular": problem.circular,
        "price": price,
    }


def _arrays(problem: Problem) -> dict[str, Any]:
    given = {f.name: getattr(problem, f.name, None) for f in WORK.values() if f.role is Role.INSTANCE}
    return {name: array for name, array in given.items() if array is not None}


def _all_required(problem: Problem) -> bool:
    there = np.arange(problem.nodes) < problem.n_nodes[:, None]
    return bool((problem.required[:, 1:] | ~there[:, 1:]).all())


@lru_cache(maxsize=1)
def _entry() -> Entry:
    return build_loop(LAYOUT, solve_next)
