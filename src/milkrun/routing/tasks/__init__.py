"""The independent checkers: stateless costs and validity of finished solutions, one class a problem."""

from milkrun.routing.tasks.base import BaseProblem
from milkrun.routing.tasks.cvrp import CVRP
from milkrun.routing.tasks.tsp import TSP

__all__ = ["CVRP", "TSP", "BaseProblem"]
