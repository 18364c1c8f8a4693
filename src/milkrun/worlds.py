"""The worlds of this library, registered by name: nothing of them is imported here."""

from __future__ import annotations

from milkrun.core.registry import register

_ROUTING_PRESETS = ("n20", "n50", "n100")


def register_all() -> None:
    """Called once by `import milkrun`."""
    register(
        "milkrun/TSP-v0", "milkrun.routing.tsp:TSP", family="routing", title="Travelling salesperson",
        presets=(*_ROUTING_PRESETS, "pomo"),
    )  # fmt: skip
    register(
        "milkrun/CVRP-v0", "milkrun.routing.cvrp:CVRP", family="routing", title="Capacitated vehicle routing",
        presets=(*_ROUTING_PRESETS, "kool20", "kool50", "kool100"),
    )  # fmt: skip
    register(
        "milkrun/TSPKopt-v0", "milkrun.routing.tsp_kopt:TSPKopt", family="routing", title="TSP by improvement",
        presets=_ROUTING_PRESETS,
    )  # fmt: skip
    for name, title, presets in (
        ("VRPP", "Vehicle routing with profits", ("published",)),
        ("CVRPP", "Capacitated routing with profits", ()),
        ("WCVRP", "Waste collection, one truckload", ("cf90",)),
        ("CWCVRP", "Waste collection, many trips", ()),
        ("SCWCVRP", "Waste collection, uncertain", ()),
        ("SDWCVRP", "Waste collection, day after day", ("week", "month", "single_day")),
    ):
        register(
            f"milkrun/{name}-v0", f"milkrun.routing.{name.lower()}:{name}", family="routing", title=title,
            presets=(*_ROUTING_PRESETS, *presets),
        )  # fmt: skip
    register(
        "milkrun/DARP-v0", "milkrun.routing.darp.world:DARP", family="routing", title="Dial-a-ride",
        presets=("default", "classic", "classic-b", "published"),
    )  # fmt: skip
    register(
        "milkrun/TruckDrone-v0", "milkrun.delivery.truckdrone.world:TruckDrone", family="delivery",
        title="Truck and drones", agents="multi", action="multi", presets=("default", "seed"),
    )  # fmt: skip
    register(
        "milkrun/TSPD-v0", "milkrun.delivery.tspd.world:TSPD", family="delivery", title="TSP with drone",
        presets=("alpha1", "alpha2", "alpha3"),
    )  # fmt: skip
