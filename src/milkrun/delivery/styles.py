"""Chart styles of the activities of truck and drones, shared by both worlds."""

from __future__ import annotations

from milkrun.render.scene import Style

STYLES = {
    "drive": Style("truck drives (\u2192 node)", "ink"),
    "wait": Style("waits", "muted", hatched=True),
    "onboard": Style("drone on board", "grid"),
    "fly_out": Style("drone flies out (\u2192 customer)", 0),
    "wait_open": Style("drone waits for the window", "open", hatched=True),
    "hover": Style("drone hovers", 5),
    "return": Style("drone flies back", 3),
    "crashed": Style("drone crashed", "late"),
    "served": Style("delivered in time", "served"),
    "forced": Style("overridden", "open"),
    "conflict": Style("customer taken by another", "open"),
    "illegal": Style("masked action", "late"),
    "crash": Style("crash", "late"),
}
