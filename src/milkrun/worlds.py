"""Registers the worlds of this library, without importing them. Their classes name their solvers, policies and figures
(`core/references.py`)."""

from __future__ import annotations

from milkrun.core.registry import register

WORLDS = (
    ("TSP", "milkrun.routing.tsp:TSP", "Travelling salesperson"),
    ("CVRP", "milkrun.routing.cvrp:CVRP", "Capacitated vehicle routing"),
    ("TSPKopt", "milkrun.routing.tsp_kopt:TSPKopt", "TSP by improvement"),
    ("VRP", "milkrun.routing.vrp.world:VRP", "Vehicle routing, 48 variants"),
    ("PDP", "milkrun.routing.pdp.world:PDP", "Pickup and delivery in pairs"),
    ("PCTSP", "milkrun.routing.pctsp:PCTSP", "Prize-collecting TSP"),
    ("VRPP", "milkrun.routing.vrpp:VRPP", "Vehicle routing with profits"),
    ("CVRPP", "milkrun.routing.cvrpp:CVRPP", "Capacitated routing with profits"),
    ("WCVRP", "milkrun.routing.wcvrp:WCVRP", "Waste collection, one truckload"),
    ("CWCVRP", "milkrun.routing.cwcvrp:CWCVRP", "Waste collection, many trips"),
    ("SCWCVRP", "milkrun.routing.scwcvrp:SCWCVRP", "Waste collection, uncertain"),
    ("SDWCVRP", "milkrun.routing.sdwcvrp:SDWCVRP", "Waste collection, day after day"),
    ("DARP", "milkrun.routing.darp.world:DARP", "Dial-a-ride"),
    ("TruckDrone", "milkrun.delivery.truckdrone.world:TruckDrone", "Truck and drones"),
    ("TSPD", "milkrun.delivery.tspd.world:TSPD", "TSP with drone"),
    ("Clutter", "milkrun.clutter.world:Clutter", "Picking from clutter"),
    ("Tracking", "milkrun.tracking.world:Tracking", "Drone tracking by camera"),
)
"""Name, class and title of each world; its family is its package."""
EXTRAS = {"clutter": ("clutter",)}
"""Extras that the worlds of a family need."""


def register_all() -> None:
    """Called once by `import milkrun`."""
    for name, entry_point, title in WORLDS:
        family = entry_point.split(".")[1]
        register(f"milkrun/{name}-v0", entry_point, family=family, title=title, extras=EXTRAS.get(family, ()))
