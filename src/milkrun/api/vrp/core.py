"""The entities of a row, `World.of(batch, row)`: truck, drones, customers, with the attributes of the public code.

They are views: each attribute is looked up in the row's buffers when asked for, arrays are read-only and follow the
world. Nothing can be assigned; what looks like a setting is an option of the configuration, and the error names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from milkrun.api.vrp.view import View, locked, unless_none
from milkrun.delivery.truckdrone.flight import DELIVER, HOVER, MOVE, RETURN

if TYPE_CHECKING:
    from milkrun.delivery.truckdrone.world import TruckDrone

STATUS = ("onboard", "flying", "returning", "crashed")


class TruckState(View):
    """Where the truck is and where it goes."""

    @property
    def p_pos(self) -> np.ndarray:
        return locked(self.batch.truck_pos[self.row])

    @property
    def p_vel(self) -> np.ndarray:
        return locked(self.batch.truck_vel[self.row])

    @property
    def current_node(self) -> int | None:
        return unless_none(self.batch.truck_node[self.row])

    @property
    def target_node(self) -> int | None:
        return unless_none(self.batch.truck_target[self.row])


class TruckAction(View):
    """What the truck did last beside driving. `move_target` is obsolete: `TruckState.target_node` says it."""

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
        kind_done, d = divmod(self._executed(0) - MOVE - sizes["N"], sizes["D"])
        return d if kind_done == kind else None


class Truck(View):
    """The truck."""

    state: TruckState
    action: TruckAction
    options = {"max_speed": "truck_speed", "drone_capacity": "drone_capacity"}

    def __init__(self, batch: TruckDrone, row: int) -> None:
        super().__init__(batch, row, state=TruckState(batch, row), action=TruckAction(batch, row))

    @property
    def name(self) -> str:
        return "truck_0"

    @property
    def max_speed(self) -> float:
        return float(self.batch.config.truck_speed)

    @property
    def drone_capacity(self) -> int:
        return int(self.batch.config.drone_capacity)

    @property
    def distance_traveled_this_step(self) -> float:
        return float(self.batch.truck_step_dist[self.row])


class DroneState(View):
    """Where a drone is, its battery and its parcel."""

    @property
    def p_pos(self) -> np.ndarray:
        return self._array("drone_pos")

    @property
    def p_vel(self) -> np.ndarray:
        return self._array("drone_vel")

    @property
    def battery(self) -> float:
        return float(self.batch.battery[self.row, self.index])

    @property
    def carrying_package(self) -> int | None:
        return unless_none(self.batch.carrying[self.row, self.index])

    @property
    def status(self) -> str:
        return STATUS[self.batch.status[self.row, self.index]]

    @property
    def target_pos(self) -> np.ndarray | None:
        return self._array("target_pos") if self.batch.has_target[self.row, self.index] else None


class DroneAction(View):
    """What a drone did last."""

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

    def __init__(self, batch: TruckDrone, row: int, index: int) -> None:
        parts = {"state": DroneState(batch, row, index), "action": DroneAction(batch, row, index)}
        super().__init__(batch, row, index, **parts)

    @property
    def name(self) -> str:
        return f"drone_{self.index}"

    @property
    def max_speed(self) -> float:
        return float(self.batch.config.drone_speed)

    @property
    def max_battery(self) -> float:
        return 1.0

    @property
    def battery_consumption_rate(self) -> float:
        return float(self.batch.config.battery_rate)

    @property
    def battery_used_this_step(self) -> float:
        return float(self.batch.battery_used[self.row, self.index])

    @property
    def forced_return_this_step(self) -> bool:
        return bool(self.batch.forced[self.row, self.index])


class CustomerState(View):
    """A customer's place, window and parcel."""

    fields = {
        "p_pos": "customer_pos", "demand": "demand", "time_window_start": "tw_start", "time_window_end": "tw_end",
    }  # fmt: skip

    @property
    def p_pos(self) -> np.ndarray:
        return locked(self._given("customer_pos"))

    @property
    def served(self) -> bool:
        return bool(self.batch.served[self.row, self.index])

    @property
    def demand(self) -> float:
        return float(self._given("demand"))

    @property
    def time_window_start(self) -> int:
        return int(self._given("tw_start"))

    @property
    def time_window_end(self) -> int:
        return int(self._given("tw_end"))

    @property
    def arrival_step(self) -> int | None:
        return unless_none(self.batch.arrival_step[self.row, self.index])


class Customer(View):
    """A customer."""

    state: CustomerState

    def __init__(self, batch: TruckDrone, row: int, index: int) -> None:
        super().__init__(batch, row, index, state=CustomerState(batch, row, index))

    @property
    def name(self) -> str:
        return f"customer_{self.index}"

    @property
    def just_served_this_step(self) -> bool:
        return bool(self.batch.just_served[self.row, self.index])


class World(View):
    """All entities of a row. `batch` is the world whose row this is."""

    truck: Truck
    drones: list[Drone]
    customers: list[Customer]
    options = {
        "drones": "num_drones", "customers": "num_customers", "route_nodes": "num_route_nodes", "dt": "dt",
        "world_length": "episode_length", "delivery_threshold": "delivery_threshold",
        "recovery_threshold": "recovery_threshold", "num_agents": "num_drones",
    }  # fmt: skip

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
    def dt(self) -> float:
        return float(self.batch.config.dt)

    @property
    def world_length(self) -> int:
        return int(self.batch.config.episode_length)

    @property
    def world_step(self) -> int:
        return int(self.batch.i[self.row])

    @property
    def bounds(self) -> np.ndarray:
        return locked(np.array([-1.0, 1.0]))

    @property
    def delivery_threshold(self) -> float:
        return float(self.batch.config.delivery_threshold)

    @property
    def recovery_threshold(self) -> float:
        return float(self.batch.config.recovery_threshold)
