"""The checker of the waste truck that empties at the depot and leaves again, as often as it likes."""

from __future__ import annotations

from milkrun.routing.tasks.wcvrp import WCVRP


class CWCVRP(WCVRP):
    """WCVRP on several trips."""

    modes = {**WCVRP.modes, "trips": ("multi", "single")}
    length_weight = 0.55
