"""Reference answers: policies without training, exact solvers for tiny sizes, and how to judge a policy."""

from milkrun.solvers.evaluate import Result, evaluate, rollout
from milkrun.solvers.policies import Factory, Policy, add_policy, nearest, policies_for, random_policy

__all__ = [
    "Factory",
    "Policy",
    "Result",
    "add_policy",
    "evaluate",
    "nearest",
    "policies_for",
    "random_policy",
    "rollout",
]
