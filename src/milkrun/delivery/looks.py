"""How what truck and drones do looks in a chart: one table for both worlds."""

from __future__ import annotations

from milkrun.core.scene import Look

LOOKS = {
    "drive": Look("truck drives (\u2192 node)", "ink"),
    "wait": Look("waits", "muted", hatched=True),
    "onboard": Look("drone on board", "grid"),
    "fly_out": Look("drone flies out (\u2192 customer)", 0),
    "wait_open": Look("drone waits for the window", "open", hatched=True),
    "hover": Look("drone hovers", 5),
    "return": Look("drone flies back", 3),
    "crashed": Look("drone crashed", "late"),
    "served": Look("delivered in time", "served"),
    "forced": Look("overridden", "open"),
    "conflict": Look("customer taken by another", "open"),
    "illegal": Look("masked action", "late"),
    "crash": Look("crash", "late"),
}
