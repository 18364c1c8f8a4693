"""Solvers, policies without training, and the evaluation of policies."""

from milkrun.solvers.evaluate import Result, evaluate, rollout
from milkrun.solvers.policies import Factory, Policy, add_policy, greedy, nearest, policies_for, random_policy, soonest
from milkrun.solvers.rolling import RollingHorizon
from milkrun.solvers.solve import WORLDS, Job, Solution, solve

__all__ = [
    "WORLDS",
    "Factory",
    "Job",
    "Policy",
    "Result",
    "RollingHorizon",
    "Solution",
    "add_policy",
    "evaluate",
    "greedy",
    "nearest",
    "policies_for",
    "random_policy",
    "rollout",
    "solve",
    "soonest",
]
