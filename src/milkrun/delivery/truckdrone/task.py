"""The checker of the truck-and-drones world: the return of an episode by its figures, and the validity of its log.

It is written from the rules alone and reads figures, logs, instances and configurations. It shares no code with the
world.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from milkrun.core.errors import BadSolution

if TYPE_CHECKING:
    from milkrun.delivery.truckdrone.config import TruckDroneConfig

TOL = 1e-9
NEAR = 1e-6
PUBLISHED_HOVER, PUBLISHED_CHARGE = 0.001, 0.2

Place = tuple[float, float]


def truckdrone_return(kpis: Mapping[str, Any], config: TruckDroneConfig, complete: Any = None) -> Any:
    """The return of finished episodes from their figures, of any shape.

    The figures do not show how an episode ended. Without `complete`, an episode counts as complete if all customers are
    served and, if `end` requires more, steps were left. Two cases differ: an episode completed by its last step, and
    one under `end="depot"` with all customers served and all drones crashed.
    """
    served, customers = np.asarray(kpis["served"]), config.num_customers
    if complete is None:
        complete = (served == customers) & ((config.end in (None, "served")) | (kpis["makespan"] < config.limit))
    fine = _number(config.incomplete_penalty) * (customers - served)
    return _step_rewards(kpis, config) + np.where(complete, _number(config.completion_bonus), -fine)


def _step_rewards(kpis: Mapping[str, Any], config: TruckDroneConfig) -> Any:
    """The rewards of the steps of an episode, without its end."""
    return (
        config.delivery_bonus * kpis["served"]
        - config.time_penalty * kpis["makespan"]
        - _number(config.energy_cost) * kpis["energy"]
        - config.forced_return_penalty * kpis["forced_onsets"]
        - _number(config.late_penalty) * kpis["lateness"]
        - _number(config.crash_penalty) * kpis["crashes"]
    )


def check_episode(instance: Mapping[str, Any], config: TruckDroneConfig, events: np.ndarray) -> dict[str, float]:
    """Checks the log of one whole episode, as `Recorder.events` returns it; `instance` has no row axis.

    Raises BadSolution at the first event that breaks a rule visible in the log: times, places and speeds, batteries,
    parcels, deliveries. Returns the figures of the log, including the objective.
    """
    if len({(int(row), int(episode)) for row, episode in zip(events["row"], events["episode"], strict=True)}) != 1:
        raise BadSolution("a log to be checked holds one episode of one row")
    log = _Log(instance, config)
    for event in events:
        log.read(event)
    return log.figures()


class _Drone:
    def __init__(self) -> None:
        self.clock = 0
        self.place: Place = (0.0, 0.0)
        self.status = "onboard"
        self.battery = 1.0
        self.parcel = -1
        self.last = ""  # kind of its last interval
        self.drained = False  # that interval may have emptied the battery


class _Log:
    """The state of the world as a log shows it, updated by every event."""

    def __init__(self, instance: Mapping[str, Any], config: TruckDroneConfig) -> None:
        self.config = config
        self.sound = config.rules == "sound"
        self.customers = [(float(x), float(y)) for x, y in instance["customer_pos"]]
        self.demand = instance["demand"]
        self.opens = instance["tw_start"]
        self.closes = instance["tw_end"]
        self.nodes = [(float(x), float(y)) for x, y in instance.get("route_nodes", _ring(config))]
        self.drones = {f"drone_{d}": _Drone() for d in range(config.num_drones)}
        self.clock = 0
        self.truck = (0.0, 0.0)
        self.truck_was = (0.0, 0.0)
        self.at_node = -1
        self.road: Any = instance["road"] if config.road_graph else None
        self.between = (0, 0)  # the ends of the truck's road, or its node twice
        self.arrival: dict[int, int] = {}
        names = ("energy", "truck_distance", "drone_distance")
        self.amounts = dict.fromkeys(names, 0.0)
        self.count: dict[str, int] = {}

    def read(self, event: Any) -> None:
        agent, kind = str(event["agent"]), str(event["kind"])
        self.where = f"{agent} {kind} at {event['t0']}"
        start, end = (float(event["x0"]), float(event["y0"])), (float(event["x1"]), float(event["y1"]))
        lasts, ref, energy = int(event["t1"] - event["t0"]), int(event["ref"]), float(event["energy"])
        drone = self.drones.get(agent)
        self.need(agent == "truck_0" or drone is not None, "there is no such agent")
        self.need(event["t0"] == (drone.clock if drone else self.clock), "does not follow the event before")
        self.need(_far(start, drone.place if drone else self.truck) <= TOL, "begins at another place")
        self.count[kind] = self.count.get(kind, 0) + 1
        if kind in ("illegal", "forced", "conflict"):
            self.need(lasts == 0 and _far(start, end) == 0 and energy == 0, "is a moment")
        elif drone is None:
            self.need(lasts == 1 and energy == 0, "is a step")
            self.drive(kind, start, end, ref)
        elif kind in ("onboard", "hover", "fly_out", "wait_open", "return", "crashed"):
            self.need(lasts == 1, "is a step")
            self.need(drone.clock + 1 == self.clock, "comes before the truck's step")
            self.move(drone, kind, start, end, ref, energy)
            drone.last = kind
            drone.clock = drone.clock + 1
            drone.place = end
        else:
            self.need(lasts == 0, "is a moment")
            self.act(drone, kind, end, ref, energy)
            drone.battery -= energy
            drone.drained = False

    def need(self, holds: Any, rule: str) -> None:
        if not holds:
            raise BadSolution(f"{self.where}: {rule}")

    def drive(self, kind: str, start: Place, end: Place, ref: int) -> None:
        stride = self.config.truck_speed * self.config.dt
        if kind == "drive":
            self.heads(start, end, self.nodes[ref], stride)
            self.at_node = ref if _far(end, self.nodes[ref]) < NEAR else -1
        else:
            self.need(kind == "wait" and start == end, "moves")
            self.at_node = ref
        if self.road is not None:
            self.keep_to_the_road(kind, end, ref)
        self.amounts["truck_distance"] += _far(start, end)
        self.truck_was = start
        self.truck = end
        self.clock = self.clock + 1

    def keep_to_the_road(self, kind: str, end: Place, ref: int) -> None:
        """Checks that the truck leaves a node by a road, and a road at one of its ends."""
        u, v = self.between
        if kind == "wait" and ref == -1:
            return
        known = bool(self.road[u][ref]) if u == v else ref in (u, v)
        where = f"from node {u}" if u == v else f"from the one between {u} and {v}"
        self.need(known, f"no road leads {where} to node {ref}")
        there = _far(end, self.nodes[ref]) <= NEAR
        self.need(there or kind == "drive", f"is not at node {ref}")
        if there:
            self.between = (ref, ref)
        elif u == v:
            self.between = (u, ref)

    def heads(self, start: Place, end: Place, goal: Place, stride: float) -> None:
        """Checks a step straight towards a goal: a stride, or the remaining distance."""
        self.need(_far(start, end) <= stride + TOL, f"is faster than {stride:g} a step")
        # At most a stride from the start and a full stride nearer to the goal: by the triangle inequality the step is
        # straight, so the direction needs no extra test.
        left = max(0.0, _far(start, goal) - stride)
        self.need(abs(_far(end, goal) - left) <= NEAR, "does not lead where it should")

    def move(self, drone: _Drone, kind: str, start: Place, end: Place, ref: int, energy: float) -> None:
        status = {"onboard": "onboard", "crashed": "wreck"}.get(kind, "air")
        self.need(drone.status == status, f"is {drone.status}")
        way = _far(start, end)
        if kind == "onboard":
            self.need(end == self.truck, "leaves the truck")
            rate = _number(self.config.charge_rate) * self.config.dt if self.sound else 0.0
            self.costs(energy, -min(rate, 1.0 - drone.battery))
        elif kind in ("fly_out", "return"):
            self.need(kind == "return" or drone.parcel == ref or (not self.sound and drone.parcel >= 0), "no parcel")
            # Drones fly first and aim at the truck's previous place; in the log the truck's step precedes theirs.
            goal = self.customers[ref] if kind == "fly_out" else self.truck_was
            self.heads(start, end, goal, self.stride())
            self.costs(energy, way * _number(self.config.battery_rate) * self.weight(drone))
        else:
            self.need(way == 0.0, "moves")
            hover = PUBLISHED_HOVER * (kind == "hover")
            if self.sound:
                hover = _number(self.config.hover_rate) * self.config.dt
            self.costs(energy, hover * self.weight(drone) * (kind != "crashed"))
        drone.battery -= energy
        drone.drained = drone.battery <= TOL and (energy > 0 if self.sound else way > 0)
        if status == "air":
            self.amounts["energy"] += energy
            self.amounts["drone_distance"] += way
            self.count["still"] = self.count.get("still", 0) + (way == 0.0)
        self.need(drone.battery <= 1 + TOL, "overcharges the battery")

    def act(self, drone: _Drone, kind: str, end: Place, ref: int, energy: float) -> None:
        if kind == "release":
            self.need(drone.status == "onboard", "is out already")
            drone.status = "air"
        elif kind in ("recover", "landed"):
            self.board(drone, kind, end, ref, energy)
        elif kind == "load":
            self.load(drone, ref)
        elif kind == "served":
            self.serve(drone, end, ref)
        else:
            self.need(kind == "crash" and drone.status == "air" and drone.drained, "nothing crashed it")
            self.need(ref == drone.parcel, f"the parcel is {drone.parcel}, not {ref}")
            self.costs(energy, drone.battery)
            drone.status = "wreck"
            return
        self.need(kind in ("recover", "landed") or energy == 0, "costs nothing")
        self.need(kind in ("recover", "landed", "served") or _far(drone.place, end) == 0, "moves")

    def board(self, drone: _Drone, kind: str, end: Place, ref: int, energy: float) -> None:
        self.need(drone.status == "air" or (drone.status == "wreck" and not self.sound and kind == "recover"), "cannot")
        self.need(kind == "recover" or drone.last == "return", "did not return")
        # a recovery is a command and precedes the truck's step, a landing follows it
        near = self.truck if kind == "recover" else self.truck_was
        self.need(_far(drone.place, near) <= self.config.recovery_threshold + TOL, "is too far from the truck")
        self.need(end == self.truck, "does not end on the truck")
        self.need(ref == drone.parcel, f"the parcel is {drone.parcel}, not {ref}")
        charge = _number(self.config.recovery_charge) if self.sound else PUBLISHED_CHARGE
        # a battery that ran out on the last stride was set to 0 before boarding charged it
        before = 0.0 if kind == "landed" and drone.drained else drone.battery
        self.costs(energy, drone.battery - min(1.0, before + charge))
        self.count["aborted"] = self.count.get("aborted", 0) + (drone.parcel >= 0)
        drone.status = "onboard"
        drone.place = end
        drone.parcel = -1 if self.sound else drone.parcel

    def load(self, drone: _Drone, ref: int) -> None:
        self.need(drone.status == "air" and drone.parcel == -1, "cannot take a parcel")
        if self.sound:
            holders = [other.status for other in self.drones.values() if other.parcel == ref]
            self.need(ref not in self.arrival, "the customer has it")
            self.need("wreck" not in holders, "lies in a wreck")
            self.need(not self.config.reserve or not holders, "another drone has it")
            in_reach = _far(drone.place, self.truck) <= self.config.recovery_threshold + TOL
            self.need(self.config.pickup == "air" or in_reach, "is too far from the truck")
        drone.parcel = ref

    def serve(self, drone: _Drone, end: Place, ref: int) -> None:
        self.need(ref not in self.arrival, "is served twice")
        self.need(drone.parcel == ref or (drone.parcel >= 0 and not self.sound), "does not have the parcel")
        self.need(drone.status == "air" or not self.sound, f"is {drone.status}")
        self.need(end == self.customers[ref], "is not at the customer's place")
        self.need(_far(drone.place, end) <= self.config.delivery_threshold + TOL, "is too far from the customer")
        self.need(self.config.early != "wait" or drone.clock >= self.opens[ref], "comes before the window opens")
        self.arrival[ref] = drone.clock
        drone.parcel = -1

    def stride(self) -> float:
        return self.config.drone_speed * self.config.dt

    def weight(self, drone: _Drone) -> float:
        """The factor of energy under load."""
        parcel = float(self.demand[drone.parcel]) if drone.parcel >= 0 else 0.0
        return 1.0 + _number(self.config.payload_factor) * parcel

    def costs(self, energy: float, right: float) -> None:
        self.need(abs(energy - right) <= TOL, f"costs {energy:.12g}, not {right:.12g}")

    def figures(self) -> dict[str, float]:
        for name, drone in self.drones.items():
            if drone.clock != self.clock:
                raise BadSolution(f"the log of {name} ends at {drone.clock}, the truck's at {self.clock}")
        late = [max(0, t - int(self.closes[c])) for c, t in self.arrival.items()]
        found = {
            "makespan": self.clock,
            "served": len(late),
            "on_time": late.count(0),
            "lateness": sum(late),
            "lateness_max": max(late, default=0),
            **self.amounts,
        }
        kinds = {
            "sorties": "release",
            "aborted": "aborted",
            "forced_onsets": "forced",
            "crashes": "crash",
            "truck_wait": "wait",
            "drone_wait": "still",
            "onboard_steps": "onboard",
            "illegal": "illegal",
            "conflicts": "conflict",
        }
        found |= {name: self.count.get(kind, 0) for name, kind in kinds.items()}
        complete, over = self.ending()
        pays = truckdrone_return(found, self.config, complete) if over else _step_rewards(found, self.config)
        return {**found, "objective": float(pays)}

    def ending(self) -> tuple[bool, bool]:
        """(complete, over) of the episode."""
        drones, end = list(self.drones.values()), self.config.end or "served"
        landed = all(drone.status != "air" for drone in drones)
        home = end == "served" or (landed and (end == "returned" or self.at_node == 0))
        lost = {drone.parcel for drone in drones if drone.status == "wreck"}
        settled = all(c in self.arrival or c in lost for c in range(len(self.customers)))
        complete = len(self.arrival) == len(self.customers) and home
        wrecked = all(drone.status == "wreck" for drone in drones)
        return complete, complete or wrecked or self.clock >= self.config.limit or (self.sound and settled and home)


def _ring(config: TruckDroneConfig) -> list[Place]:
    count = int(config.num_route_nodes or 0) - bool(config.depot_node)
    turns = [2 * math.pi * k / count for k in range(count)]
    ring = [(config.route_radius * math.cos(turn), config.route_radius * math.sin(turn)) for turn in turns]
    return [(0.0, 0.0), *ring] if config.depot_node else ring


def _far(a: Place, b: Place) -> float:
    return math.hypot(a[0] - b[0], a[1] - b[1])


def _number(option: float | None) -> float:
    """The option, or 0 if the rules do not have it."""
    return option or 0.0
