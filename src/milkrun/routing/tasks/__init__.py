"""The independent checkers: costs and validity of finished solutions, one stateless class for each problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milkrun.core.errors import ConfigError, did_you_mean
from milkrun.core.lazy import lazy
from milkrun.core.references import refer
from milkrun.core.registry import each_world

if TYPE_CHECKING:
    from milkrun.routing.darp.task.checker import DARPProblem as DARPProblem
    from milkrun.routing.darp.task.checker import DARPReport as DARPReport
    from milkrun.routing.tasks.base import BaseProblem as BaseProblem
    from milkrun.routing.tasks.pdp import PDP as PDP
    from milkrun.routing.tasks.prizes import OP as OP
    from milkrun.routing.tasks.prizes import PCTSP as PCTSP
    from milkrun.routing.tasks.profits import CVRPP as CVRPP
    from milkrun.routing.tasks.profits import VRPP as VRPP
    from milkrun.routing.tasks.tours import CVRP as CVRP
    from milkrun.routing.tasks.tours import TSP as TSP
    from milkrun.routing.tasks.vrp import VRP as VRP
    from milkrun.routing.tasks.waste import CWCVRP as CWCVRP
    from milkrun.routing.tasks.waste import SCWCVRP as SCWCVRP
    from milkrun.routing.tasks.waste import SDWCVRP as SDWCVRP
    from milkrun.routing.tasks.waste import WCVRP as WCVRP

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        ".base": "BaseProblem",
        ".pdp": "PDP",
        ".prizes": "OP PCTSP",
        ".profits": "CVRPP VRPP",
        ".tours": "CVRP TSP",
        ".vrp": "VRP",
        ".waste": "CWCVRP SCWCVRP SDWCVRP WCVRP",
        "milkrun.routing.darp.task.checker": "DARPProblem DARPReport",
    },
)


def default_weights(name: str, n: int, side: float = 1.0, max_waste: Any = 1.0) -> dict[str, Any]:
    """The objective weights of a problem by its short name, for `n` customers in a box of this side.

    `max_waste` may be an array.
    """
    tasks = {spec.problem: refer(world, "task") for spec, world in each_world() if world.task}
    known = {problem: task for problem, task in tasks.items() if hasattr(task, "default_weights")}
    if name.lower() not in known:
        raise ConfigError(f"problem {name!r} is unknown{did_you_mean(name.lower(), known)}")
    weights: dict[str, Any] = known[name.lower()].default_weights(n, side, max_waste)
    return weights


__all__ += ["default_weights"]
