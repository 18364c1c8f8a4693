"""The entities of a row, `World.of(batch, row)`: truck, drones, customers, with the attributes of the public code.

They are views: each attribute is read from the row's buffers on access; arrays are read-only and follow the world.
Nothing can be assigned: settings are options of the configuration, and the error names the option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from milkrun.compat.vrp.view import View, locked, of_config, of_entity, of_instance, of_row, unless_none
from milkrun.delivery.truckdrone.flight import DELIVER, HOVER, MOVE, RETURN

if TYPE_CHECKING:
    from milkrun.delivery.truckdrone.world import TruckDrone

STATUS = ("onboard", "flying", "returning", "crashed")


class TruckState(View):
    """Place and target of the truck."""

    p_pos: np.ndarray = of_row("truck_pos", locked)
    p_vel: np.ndarray = of_row("truck_vel", locked)
    current_node: int | None = of_row("truck_node", unless_none)
    target_node: int | None = of_row("truck_target", unless_none)


class TruckAction(View):
    """The last action of the truck except driving. `move_target` is obsolete: see `TruckState.target_node`."""

    @property
    def move_target(self) -> None:
        return None

    @property
    def release_drone(self) -> int | None:
        return self._drone(0)

    @property
    def recover_drone(self) -> int | None:
        return self._drone(1)

    def _drone(self, kind: int) -> int | None:
        sizes = self.batch.sizes
        # From MOVE on come the nodes, then a release for each drone, then a recovery for each. Any action before
        # these gives a negative kind, as does -1, no action yet.
        kind_done, d = divmod(self._executed(0) - MOVE - sizes["N"], sizes["D"])
        return d if kind_done == kind else None


class Truck(View):
    """The truck."""

    state: TruckState
    action: TruckAction
    options = {"max_speed": "truck_speed", "drone_capacity": "drone_capacity"}

    max_speed: float = of_config("truck_speed", float)
    drone_capacity: int = of_config("drone_capacity", int)
    distance_traveled_this_step: float = of_row("truck_step_dist", float)

    def __init__(self, batch: TruckDrone, row: int) -> None:
        super().__init__(batch, row, state=TruckState(batch, row), action=TruckAction(batch, row))

    @property
    def name(self) -> str:
        return "truck_0"


class DroneState(View):
    """Place, battery and parcel of a drone."""

    p_pos: np.ndarray = of_entity("drone_pos", locked)
    p_vel: np.ndarray = of_entity("drone_vel", locked)
    battery: float = of_entity("battery", float)
    carrying_package: int | None = of_entity("carrying", unless_none)
    status: str = of_entity("status", STATUS.__getitem__)

    @property
    def target_pos(self) -> np.ndarray | None:
        place = self.batch.target_pos[self.row, self.index]
        return locked(place) if self.batch.has_target[self.row, self.index] else None


class DroneAction(View):
    """The last action of a drone."""

    @property
    def target_customer(self) -> int | None:
        c = self._executed(1 + self.index) - DELIVER
        return c if c >= 0 else None

    @property
    def return_to_truck(self) -> bool:
        return self._executed(1 + self.index) == RETURN

    @property
    def hover(self) -> bool:
        return self._executed(1 + self.index) == HOVER


class Drone(View):
    """A drone."""

    state: DroneState
    action: DroneAction
    options = {"max_speed": "drone_speed", "battery_consumption_rate": "battery_rate"}

    max_speed: float = of_config("drone_speed", float)
    battery_consumption_rate: float = of_config("battery_rate", float)
    battery_used_this_step: float = of_entity("battery_used", float)
    forced_return_this_step: bool = of_entity("forced", bool)

    def __init__(self, batch: TruckDrone, row: int, index: int) -> None:
        parts = {"state": DroneState(batch, row, index), "action": DroneAction(batch, row, index)}
        super().__init__(batch, row, index, **parts)

    @property
    def name(self) -> str:
        return f"drone_{self.index}"

    @property
    def max_battery(self) -> float:
        return 1.0


class CustomerState(View):
    """A customer's place, window and parcel."""

    fields = {
        "p_pos": "customer_pos",
        "demand": "demand",
        "time_window_start": "tw_start",
        "time_window_end": "tw_end",
    }

    p_pos: np.ndarray = of_instance("customer_pos", locked)
    served: bool = of_entity("served", bool)
    demand: float = of_instance("demand", float)
    time_window_start: int = of_instance("tw_start", int)
    time_window_end: int = of_instance("tw_end", int)
    arrival_step: int | None = of_entity("arrival_step", unless_none)


class Customer(View):
    """A customer."""

    state: CustomerState
    just_served_this_step: bool = of_entity("just_served", bool)

    def __init__(self, batch: TruckDrone, row: int, index: int) -> None:
        super().__init__(batch, row, index, state=CustomerState(batch, row, index))

    @property
    def name(self) -> str:
        return f"customer_{self.index}"


class World(View):
    """All entities of a row. `batch` is the world whose row this is."""

    truck: Truck
    drones: list[Drone]
    customers: list[Customer]
    options = {
        "drones": "num_drones",
        "customers": "num_customers",
        "route_nodes": "num_route_nodes",
        "dt": "dt",
        "world_length": "episode_length",
        "delivery_threshold": "delivery_threshold",
        "recovery_threshold": "recovery_threshold",
        "num_agents": "num_drones",
    }

    dt: float = of_config("dt", float)
    world_length: int = of_config("episode_length", int)
    world_step: int = of_row("i", int)
    delivery_threshold: float = of_config("delivery_threshold", float)
    recovery_threshold: float = of_config("recovery_threshold", float)

    @classmethod
    def of(cls, batch: TruckDrone, row: int = 0) -> World:
        """The entities of a row of a world."""
        row = range(batch.num_envs)[row]
        drones = [Drone(batch, row, d) for d in range(batch.sizes["D"])]
        customers = [Customer(batch, row, c) for c in range(batch.sizes["C"])]
        return cls(batch, row, truck=Truck(batch, row), drones=drones, customers=customers)

    @property
    def route_nodes(self) -> list[np.ndarray]:
        return [locked(node) for node in self.batch.route_nodes[self.batch.instance_row[self.row]]]

    @property
    def policy_agents(self) -> list[Truck | Drone]:
        """The truck, then the drones."""
        return [self.truck, *self.drones]

    @property
    def entities(self) -> list[Truck | Drone | Customer]:
        """The agents, then the customers."""
        return [self.truck, *self.drones, *self.customers]

    @property
    def num_agents(self) -> int:
        return 1 + len(self.drones)

    @property
    def dim_p(self) -> int:
        return 2

    @property
    def bounds(self) -> np.ndarray:
        return locked(np.array([-1.0, 1.0]))
