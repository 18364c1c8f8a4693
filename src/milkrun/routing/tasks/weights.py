"""What the objectives weigh unless somebody says otherwise, so that good tours skip about half of the customers."""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError, did_you_mean

LENGTH = {"vrpp": 60.0, "cvrpp": 40.0, "wcvrp": 0.6, "cwcvrp": 0.55, "scwcvrp": 0.55, "sdwcvrp": 0.55}
STOCHASTIC = ("scwcvrp", "sdwcvrp")


def default_weights(name: str, n: int, side: float = 1.0, max_waste: Any = 1.0) -> dict[str, Any]:
    """The weights of problem `name` with `n` customers in a box of this side; `max_waste` may be an array.

    A leg's length shrinks with sqrt(n), so the weight of length grows with it. Waste is weighed in its own unit,
    therefore whatever is set against it grows with `max_waste`.
    """
    key = name.lower()
    if key in ("tsp", "cvrp"):
        return {"length": 1.0}
    if key not in LENGTH:
        raise ConfigError(f"problem {name!r} is unknown{did_you_mean(key, ['tsp', 'cvrp', *LENGTH])}")
    length = LENGTH[key] * np.sqrt(n) / side
    if key in ("vrpp", "cvrpp"):
        return {"prize": 1.0, "length": length}
    weights = {"waste": 1.0, "length": length * max_waste, "overflow": 10.0 * max_waste}
    if key in STOCHASTIC:
        weights["failure"] = 1.0
    if key == "sdwcvrp":
        weights["lost"] = 0.0
    return weights
