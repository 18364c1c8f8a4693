"""The compiled heuristics over a batch: which construction and which moves make a method, and their launch.

One entry serves every method and world; it takes a table of addresses, as the launchers of the worlds do, so numba's
disk cache serves it in the next process and a change of any kernel compiles it anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit, prange, types
from numpy.typing import NDArray

from milkrun.core.errors import ConfigError
from milkrun.core.kernels import KERNEL_OPTIONS, Entry, array_at, chunks_for, compile_module, kernel
from milkrun.routing.distance import METRICS
from milkrun.solvers.construct import CHEAPEST, FARTHEST, RULES, insertion, nearest_neighbour, savings
from milkrun.solvers.improve import JOIN, LEAVE, OR_OPT, RELOCATE, SWAP, TWO_OPT, descend
from milkrun.solvers.problem import Problem
from milkrun.solvers.tours import LENGTH, Work, required_served, set_distances, value, write_plan

METHODS = ("nearest", "insertion", "2opt", "oropt", "ls", "savings")
BY_NEAREST, BY_INSERTION, BY_TWO_OPT, BY_OR_OPT, BY_ALL, BY_SAVINGS = range(6)
STARTS = 4
FROM_ALL, FROM_GREEDY, FROM_NEAREST, FROM_SAVINGS = range(STARTS)
CHOOSE = 1 << JOIN | 1 << LEAVE
EVERYTHING = 1 << TWO_OPT | 1 << OR_OPT | 1 << RELOCATE | 1 << SWAP | CHOOSE
BLOCKS = 50  # pieces in which progress is told


def run_heuristic(
    problem: Problem, method: str, *, rule: str | None = None, workers: int = 1,
    progress: Callable[[int], object] | None = None,
) -> NDArray[np.int32]:  # fmt: skip
    """(B, P) plans: trips, each closed by 0. `progress` is called with the number of instances just done."""
    if problem.windows is not None:
        raise ConfigError(f"method={method!r} does not know time windows; 'pyvrp' and 'exact' do")
    if rule is not None and rule not in RULES:
        raise ConfigError(f"rule={rule!r}: allowed are {', '.join(RULES)}")
    batch, nodes = len(problem), problem.nodes
    kept = _arrays(problem, METHODS.index(method), rule)
    sizes = _scratch_sizes(nodes, savings=method in ("savings", "ls") and problem.multi)
    done = 0
    block = max(1, -(-batch // BLOCKS)) if progress is not None else max(batch, 1)
    while done < batch:
        count = min(block, batch - done)
        chunks = chunks_for(count, 0, workers)
        scratch = {name: np.zeros((chunks, *shape), dtype) for name, (dtype, shape) in sizes.items()}
        table = np.array([a.ctypes.data for a in (*kept.values(), *scratch.values())], np.int64)
        _entry().run((table.ctypes.data, nodes, batch, scratch["keys"].shape[1], done), count, chunks)
        done += count
        if progress is not None:
            progress(count)
    plans: NDArray[np.int32] = kept["plan"]
    return plans


@kernel
def solve_row(w, b, method, rule):
    """Every start of the method, each followed by the method's moves; the best of them stands."""
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
        again, now = required_served(w, b), value(w, b)
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
    """Insertion begins with everybody in and, where customers are optional, again with those that pay at once; the
    local search tries in addition savings where trips are many, nearest neighbour where there is only one."""
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


def _arrays(problem: Problem, method: int, rule: str | None) -> dict[str, Any]:
    """Everything about the instances, in the order of `_SHAPES`."""
    batch, nodes = len(problem), problem.nodes
    everyone = np.arange(nodes) < problem.n_nodes[:, None]
    every_one_required = bool((problem.required[:, 1:] | ~everyone[:, 1:]).all())
    chosen = RULES.index(rule) if rule is not None else FARTHEST if every_one_required else CHEAPEST
    metric = METRICS.index(problem.metric)
    numbers = np.array([metric, problem.multi, problem.reserves, problem.circular, method, chosen])
    price = problem.beta
    if price == 0:  # length is free: of plans worth the same the shorter one, which leaves room under max_length
        price = 1e-6 * max(float(problem.gain.max(initial=0.0)), 1e-6) / max(problem.side, 1e-30)
    nothing = np.zeros((1, 1, 1), np.float32)
    return {
        "numbers": numbers.astype(np.int64),
        "price": np.array([price]),
        "locs": nothing if problem.locs is None else np.ascontiguousarray(problem.locs, np.float32),
        "dist": nothing if problem.dist is None else np.ascontiguousarray(problem.dist, np.float32),
        "n_nodes": np.ascontiguousarray(problem.n_nodes, np.int32),
        "gain": np.ascontiguousarray(problem.gain, np.float64),
        "weight": np.ascontiguousarray(problem.weight, np.float64),
        "required": np.ascontiguousarray(problem.required, np.bool_),
        "capacity": np.ascontiguousarray(problem.capacity, np.float64),
        "max_length": np.ascontiguousarray(problem.max_length, np.float64),
        "plan": np.zeros((batch, 2 * nodes + 4), np.int32),
    }


def _scratch_sizes(nodes: int, savings: bool) -> dict[str, tuple[type, tuple[int, ...]]]:
    plan, pairs = 2 * nodes + 4, nodes * nodes if savings else 1
    return {
        "d": (np.float64, (nodes, nodes)), "seq": (np.int32, (plan,)), "best": (np.int32, (plan,)),
        "other": (np.int32, (plan,)), "trip": (np.int32, (plan,)), "ahead": (np.float64, (plan,)),
        "back": (np.float64, (plan,)), "load": (np.float64, (plan,)), "length": (np.float64, (plan,)),
        "served": (np.bool_, (nodes,)), "near": (np.float64, (nodes,)), "wanted": (np.bool_, (nodes,)),
        "keys": (np.float64, (pairs,)), "pairs": (np.int64, (pairs,)), "links": (np.int32, (4, nodes)),
        "count": (np.int64, (3,)), "amount": (np.float64, (2,)),
    }  # fmt: skip


_TEXT = """# Written by milkrun.solvers.heuristics; the folder's name is a hash of this and of the kernels.

@njit(**OPTIONS)
def solve_rows_range(table, N, B, S, offset, lo, hi, slot):
    t = array_at(table, (28,), None, int64)
    k = array_at(t[0], (6,), None, int64)
    price = array_at(t[1], (1,), None, float64)
    P = 2 * N + 4
    w = Work(
        N, k[0], k[1], k[2], k[3], price[0],
        array_at(t[2], (B, N, 2), None, float32), array_at(t[3], (B, N, N), None, float32),
        array_at(t[4], (B,), None, int32), array_at(t[5], (B, N), None, float64),
        array_at(t[6], (B, N), None, float64), array_at(t[7], (B, N), None, boolean),
        array_at(t[8], (B,), None, float64), array_at(t[9], (B,), None, float64),
        array_at(t[10], (B, P), None, int32),
        array_at(t[11] + 8 * N * N * slot, (N, N), None, float64),
        array_at(t[12] + 4 * P * slot, (P,), None, int32), array_at(t[13] + 4 * P * slot, (P,), None, int32),
        array_at(t[14] + 4 * P * slot, (P,), None, int32), array_at(t[15] + 4 * P * slot, (P,), None, int32),
        array_at(t[16] + 8 * P * slot, (P,), None, float64), array_at(t[17] + 8 * P * slot, (P,), None, float64),
        array_at(t[18] + 8 * P * slot, (P,), None, float64), array_at(t[19] + 8 * P * slot, (P,), None, float64),
        array_at(t[20] + N * slot, (N,), None, boolean), array_at(t[21] + 8 * N * slot, (N,), None, float64),
        array_at(t[22] + N * slot, (N,), None, boolean), array_at(t[23] + 8 * S * slot, (S,), None, float64),
        array_at(t[24] + 8 * S * slot, (S,), None, int64), array_at(t[25] + 16 * N * slot, (4, N), None, int32),
        array_at(t[26] + 24 * slot, (3,), None, int64), array_at(t[27] + 16 * slot, (2,), None, float64),
    )
    for b in range(offset + lo, offset + hi):
        solve_row(w, b, k[4], k[5])
    return 0


@njit(cache=True, **OPTIONS)
def solve_rows(table, N, B, S, offset, n):
    return solve_rows_range(table, N, B, S, offset, 0, n, 0)


@njit(cache=True, parallel=True, nogil=True, error_model="numpy")
def solve_rows_parallel(table, N, B, S, offset, n, chunks):
    total = 0
    for c in prange(chunks):
        total += solve_rows_range(table, N, B, S, offset, c * n // chunks, (c + 1) * n // chunks, c)
    return total
"""


@lru_cache(maxsize=1)
def _entry() -> Entry:
    names = {
        "Work": Work, "solve_row": solve_row, "array_at": array_at, "njit": njit, "prange": prange,
        "OPTIONS": KERNEL_OPTIONS,
        **{n: getattr(types, n) for n in ("int32", "int64", "float32", "float64", "boolean")},
    }  # fmt: skip
    return Entry(compile_module("solvers", _TEXT, names), "solve_rows")
