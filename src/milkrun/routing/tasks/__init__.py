"""The independent checkers: stateless costs and validity of finished solutions, one class a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.routing.darp.task.checker import DARPProblem as DARPProblem
    from milkrun.routing.darp.task.checker import DARPReport as DARPReport
    from milkrun.routing.tasks.base import BaseProblem as BaseProblem
    from milkrun.routing.tasks.cvrp import CVRP as CVRP
    from milkrun.routing.tasks.cvrpp import CVRPP as CVRPP
    from milkrun.routing.tasks.cwcvrp import CWCVRP as CWCVRP
    from milkrun.routing.tasks.scwcvrp import SCWCVRP as SCWCVRP
    from milkrun.routing.tasks.sdwcvrp import SDWCVRP as SDWCVRP
    from milkrun.routing.tasks.tsp import TSP as TSP
    from milkrun.routing.tasks.vrpp import VRPP as VRPP
    from milkrun.routing.tasks.wcvrp import WCVRP as WCVRP
    from milkrun.routing.tasks.weights import default_weights as default_weights

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        ".base": "BaseProblem",
        ".cvrp": "CVRP",
        ".cvrpp": "CVRPP",
        ".cwcvrp": "CWCVRP",
        ".scwcvrp": "SCWCVRP",
        ".sdwcvrp": "SDWCVRP",
        ".tsp": "TSP",
        ".vrpp": "VRPP",
        ".wcvrp": "WCVRP",
        ".weights": "default_weights",
        "milkrun.routing.darp.task.checker": "DARPProblem DARPReport",
    },
)
