"""The independent checkers: stateless costs and validity of finished solutions, one class a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.routing.darp.task.checker import DARPProblem, DARPReport
    from milkrun.routing.tasks.base import BaseProblem
    from milkrun.routing.tasks.cvrp import CVRP
    from milkrun.routing.tasks.cvrpp import CVRPP
    from milkrun.routing.tasks.cwcvrp import CWCVRP
    from milkrun.routing.tasks.scwcvrp import SCWCVRP
    from milkrun.routing.tasks.sdwcvrp import SDWCVRP
    from milkrun.routing.tasks.tsp import TSP
    from milkrun.routing.tasks.vrpp import VRPP
    from milkrun.routing.tasks.wcvrp import WCVRP
    from milkrun.routing.tasks.weights import default_weights

__getattr__ = lazy(__name__, {
    "BaseProblem": ".base",
    "CVRP": ".cvrp",
    "CVRPP": ".cvrpp",
    "CWCVRP": ".cwcvrp",
    "DARPProblem": "milkrun.routing.darp.task.checker",
    "DARPReport": "milkrun.routing.darp.task.checker",
    "SCWCVRP": ".scwcvrp",
    "SDWCVRP": ".sdwcvrp",
    "TSP": ".tsp",
    "VRPP": ".vrpp",
    "WCVRP": ".wcvrp",
    "default_weights": ".weights",
})  # fmt: skip

__all__ = [
    "CVRP", "CVRPP", "CWCVRP", "SCWCVRP", "SDWCVRP", "TSP", "VRPP", "WCVRP", "BaseProblem", "DARPProblem", "DARPReport",
    "default_weights",
]  # fmt: skip
