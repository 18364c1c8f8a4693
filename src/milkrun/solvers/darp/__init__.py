"""Solvers of the dial-a-ride problem: one function a method (`methods`), over what the other files build."""

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
