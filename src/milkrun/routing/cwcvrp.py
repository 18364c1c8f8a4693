"""Capacitated waste collection: the WCVRP with a smaller truck that returns to the depot to empty.

Observations, Actions, Mask, Reward: as in the WCVRP, with the same kernels.
Ends: by choosing the depot at the depot, or on a return after which no bin is open (trips="multi", the default here).
References: Ramos, de Morais, Barbosa-Povoa 2018 (smart waste collection routing).
"""

from __future__ import annotations

from dataclasses import dataclass

from milkrun.core.config import option
from milkrun.routing.base import HEURISTICS, SOLVER
from milkrun.routing.collect import TRIPS
from milkrun.routing.wcvrp import WCVRP, WasteConfig


@dataclass(frozen=True, kw_only=True)
class CWCVRPConfig(WasteConfig):
    """Options of the CWCVRP."""

    trips: str = option("multi", "single: the first return ends the tour; multi: it empties the truck", choices=TRIPS)


class CWCVRP(WCVRP):
    """Capacitated waste collection: a small truck that returns to empty as often as it pays."""

    id = "milkrun/CWCVRP-v0"
    Config = CWCVRPConfig
    config: CWCVRPConfig
    task = "milkrun.routing.tasks:CWCVRP"
    solvers = dict.fromkeys((*HEURISTICS, "savings", "exact", "pyvrp"), SOLVER)
