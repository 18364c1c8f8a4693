"""Solvers of the dial-a-ride problem; `methods` has one function for each method."""

from milkrun.solvers.darp.methods import (
    DARPPlan,
    best_insertion,
    improve,
    insertion,
    insertion_batch,
    price_routes,
    solve_exact,
    solve_ortools,
)

__all__ = [
    "DARPPlan",
    "best_insertion",
    "improve",
    "insertion",
    "insertion_batch",
    "price_routes",
    "solve_exact",
    "solve_ortools",
]
