"""The entities of a row: attributes are the values of the row's buffers, and are read-only."""

from argparse import Namespace

import numpy as np
import pytest

import milkrun
from milkrun.compat.vrp.core import (
    Customer,
    CustomerState,
    Drone,
    DroneAction,
    DroneState,
    Truck,
    TruckAction,
    TruckState,
    World,
)
from milkrun.compat.vrp.VRP_env import VRPEnv

TRUCK_DRONE = "milkrun/TruckDrone-v0"
WEST_EAST = {
    "customer_pos": [[[-0.5, 0.0], [0.0, 0.45]]],
    "demand": [[0.75, 0.5]],
    "tw_start": [[3, 0]],
    "tw_end": [[90, 150]],
}


def two_drones(**options):
    """Two drones, a customer .5 to the west and one .45 to the north, the first node .6 to the east."""
    env = VRPEnv(Namespace(num_drones=2, num_customers=2, **options))
    env.world.batch.reset(instance=WEST_EAST)
    return env


def drone_facts(drone):
    own, did = drone.state, drone.action
    return {
        "p_pos": own.p_pos.tolist(),
        "p_vel": own.p_vel.tolist(),
        "battery": own.battery,
        "status": own.status,
        "carrying": own.carrying_package,
        "target_pos": None if own.target_pos is None else own.target_pos.tolist(),
        "did": (did.target_customer, did.return_to_truck, did.hover),
        "step": (drone.battery_used_this_step, drone.forced_return_this_step),
    }


def test_settings_are_those_of_the_row():
    """The numbers of the specification, and those changed by the configuration."""
    world = two_drones(episode_length=150, delivery_threshold=0.07, recovery_threshold=0.2).world
    assert (world.dim_p, world.dt, world.world_length, world.num_agents) == (2, 0.1, 150, 3)
    assert (world.delivery_threshold, world.recovery_threshold) == (0.07, 0.2)
    assert world.bounds.tolist() == [-1.0, 1.0]
    assert (world.truck.max_speed, world.truck.drone_capacity) == (1.0, 3)
    drone = world.drones[1]
    assert (drone.max_speed, drone.max_battery, drone.battery_consumption_rate) == (2.0, 1.0, 0.01)
    angles = 2 * np.pi * np.arange(5) / 5
    assert np.allclose(world.route_nodes, 0.6 * np.stack([np.cos(angles), np.sin(angles)], 1), atol=1e-15)
    other = milkrun.make(TRUCK_DRONE, 1, preset="default", dt=0.2, truck_speed=0.5, drone_capacity=4, battery_rate=0.3)
    slow = World.of(other)
    assert (slow.dt, slow.truck.max_speed, slow.truck.drone_capacity) == (0.2, 0.5, 4)
    assert slow.drones[0].battery_consumption_rate == 0.3


def test_entities_stand_in_a_fixed_order():
    """The truck, the drones, the customers: always the same objects, with the class names of the public code."""
    env = two_drones()
    world = env.world
    assert env.agents == world.policy_agents == [world.truck, *world.drones]
    assert [type(x) for x in world.entities] == [Truck, Drone, Drone, Customer, Customer]
    assert [x.name for x in world.entities] == ["truck_0", "drone_0", "drone_1", "customer_0", "customer_1"]
    assert world.drones[0] is env.agents[1]
    assert (type(world.truck.state), type(world.truck.action)) == (TruckState, TruckAction)
    assert (type(world.drones[0].state), type(world.drones[0].action)) == (DroneState, DroneAction)
    assert type(world.customers[0].state) is CustomerState


def test_a_fresh_row_has_done_nothing():
    """After a reset: all on board in the middle, no customer served, no action; under the published rules this is node
    0."""
    world = two_drones().world
    truck = world.truck
    assert (truck.state.p_pos.tolist(), truck.state.p_vel.tolist()) == ([0.0, 0.0], [0.0, 0.0])
    assert (truck.state.current_node, truck.state.target_node) == (0, None)
    assert (truck.action.move_target, truck.action.release_drone, truck.action.recover_drone) == (None, None, None)
    assert (world.world_step, truck.distance_traveled_this_step) == (0, 0.0)
    for drone in world.drones:
        assert drone_facts(drone) == {
            "p_pos": [0.0, 0.0],
            "p_vel": [0.0, 0.0],
            "battery": 1.0,
            "status": "onboard",
            "carrying": None,
            "target_pos": None,
            "did": (None, False, False),
            "step": (0.0, False),
        }
    west, north = (customer.state for customer in world.customers)
    assert (west.p_pos.tolist(), west.served, west.demand, west.arrival_step) == ([-0.5, 0.0], False, 0.75, None)
    assert (west.time_window_start, west.time_window_end) == (3, 90)
    assert (north.p_pos.tolist(), north.time_window_start, north.time_window_end) == ([0.0, 0.45], 0, 150)


def test_an_episode_by_hand():
    """Drone 0 is released while the truck drives east and flies .2 a step to the west; drone 1 stays on board."""
    env = two_drones()
    world, truck, (flier, passenger) = env.world, env.world.truck, env.world.drones
    env.step([1, 0, 0])
    assert truck.state.p_pos.tolist() == pytest.approx([0.1, 0.0], abs=1e-15)
    assert truck.state.p_vel.tolist() == pytest.approx([1.0, 0.0], abs=1e-12)
    assert (truck.state.target_node, truck.state.current_node, truck.action.release_drone) == (0, 0, None)
    assert truck.distance_traveled_this_step == pytest.approx(0.1, abs=1e-15)
    assert flier.state.p_pos.tolist() == truck.state.p_pos.tolist()
    assert flier.action.hover and not flier.action.return_to_truck

    env.step([6, 0, 0])
    assert (truck.action.release_drone, truck.action.recover_drone) == (0, None)
    assert (flier.state.status, passenger.state.status) == ("flying", "onboard")
    assert (flier.state.battery, flier.battery_used_this_step) == (0.999, 0.001)

    env.step([0, 2, 0])
    facts = drone_facts(flier)
    assert facts["p_pos"] == pytest.approx([-0.1, 0.0], abs=1e-15)
    assert facts["p_vel"] == pytest.approx([-2.0, 0.0], abs=1e-12)
    assert (facts["carrying"], facts["target_pos"], facts["status"]) == (0, [-0.5, 0.0], "flying")
    assert facts["did"] == (0, False, False)
    assert facts["step"] == (pytest.approx(0.002, abs=1e-15), False)
    assert truck.state.target_node is None

    env.step([0, 2, 0])
    env.step([0, 2, 0])
    west = world.customers[0]
    assert (west.state.served, west.state.arrival_step, west.just_served_this_step) == (True, 5, True)
    assert (flier.state.carrying_package, flier.state.target_pos) == (None, None)
    env.step([0, 1, 0])
    assert (west.just_served_this_step, flier.state.status) == (False, "returning")
    assert flier.action.return_to_truck and not flier.action.hover
    assert world.world_step == env.current_step == 6


def test_a_recovery_and_a_crash_are_shown():
    """RECOVER_1 next to the truck; a drone with an empty battery in the air is a wreck; a forced return is flagged."""
    env = two_drones()
    flier, other = env.world.drones
    env.step([7, 0, 0])
    env.step([9, 0, 0])
    assert (env.world.truck.action.recover_drone, env.world.truck.action.release_drone) == (1, None)
    assert other.state.status == "onboard"
    env.step([6, 0, 0])
    env.step([0, 2, 0])
    env.world.batch.battery[0, 0] = 0.001
    env.step([0, 2, 0])
    assert (flier.state.status, flier.forced_return_this_step, flier.state.battery) == ("onboard", True, 0.2)
    env.step([6, 2, 0])
    env.step([0, 2, 0])
    env.step([0, 2, 0])
    env.world.batch.battery[0, 0] = 1e-9
    env.step([0, 2, 0])
    assert (flier.state.status, flier.state.battery) == ("crashed", 0.0)


def test_arrays_are_the_rows_own_and_read_only():
    """They are views of the buffers, so they show a step; writing is refused."""
    env = two_drones()
    world, batch = env.world, env.world.batch
    on = {
        "truck_pos": world.truck.state.p_pos,
        "truck_vel": world.truck.state.p_vel,
        "drone_pos": world.drones[1].state.p_pos,
        "drone_vel": world.drones[1].state.p_vel,
        "customer_pos": world.customers[1].state.p_pos,
        "route_nodes": world.route_nodes[2],
    }
    for name, array in on.items():
        assert np.shares_memory(array, getattr(batch, name)), name
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 3.0
    env.step([1, 0, 0])
    assert on["truck_pos"].tolist() == on["drone_pos"].tolist() == pytest.approx([0.1, 0.0], abs=1e-15)
    with pytest.raises(ValueError, match="read-only"):
        world.bounds[0] = 0.0


def test_rows_that_share_an_instance_show_it():
    """Three rows on one given instance: each view shows the customers, and moves independently."""
    batch = milkrun.make(TRUCK_DRONE, 3, preset="published", num_customers=2, seed=1)
    batch.reset()
    views = [World.of(batch, b) for b in range(3)]
    batch.reset(instance={**WEST_EAST, "instance_row": [0, 0, 0]})
    batch.step(np.array([[1, 0, 0], [0, 0, 0], [6, 0, 0]]))
    assert batch.num_instances == 1
    assert [view.customers[0].state.p_pos.tolist() for view in views] == [[-0.5, 0.0]] * 3
    assert [view.customers[1].state.demand for view in views] == [0.5] * 3
    assert [view.truck.state.p_pos[0] for view in views] == pytest.approx([0.1, 0.0, 0.0], abs=1e-15)
    assert [view.truck.action.release_drone for view in views] == [None, None, 0]
    assert [view.drones[0].state.status for view in views] == ["onboard", "onboard", "flying"]
    assert World.of(batch, -1).row == 2
    with pytest.raises(IndexError):
        World.of(batch, 3)


def test_nodes_are_those_of_the_rows_instance():
    """Two given instances, the second with nodes at half the distance, played by rows 1 and 0."""
    batch = milkrun.make(TRUCK_DRONE, 2, preset="published", num_customers=2)
    both = {name: values * 2 for name, values in WEST_EAST.items()}
    batch.reset(instance={**both, "route_nodes": [batch.ring, batch.ring / 2], "instance_row": [1, 0]})
    assert [World.of(batch, b).route_nodes[0].tolist() for b in range(2)] == [[0.3, 0.0], [0.6, 0.0]]


def test_between_nodes_there_is_no_node():
    """Sound rules: the truck leaves the depot, node 0, and is at no node until it arrives."""
    world = World.of(milkrun.make(TRUCK_DRONE, 1, preset="default", seed=1))
    world.batch.reset()
    assert world.truck.state.current_node == 0
    for _ in range(6):
        world.batch.step(np.array([[2, 0, 0]]))
        seen = world.truck.state.current_node, world.truck.state.target_node
        assert seen == ((None, 1) if world.world_step < 6 else (1, None))


ASSIGNMENTS = {
    "dt": (lambda w: w, "'dt' of TruckDroneConfig"),
    "world_length": (lambda w: w, "'episode_length'"),
    "delivery_threshold": (lambda w: w, "'delivery_threshold'"),
    "recovery_threshold": (lambda w: w, "'recovery_threshold'"),
    "drones": (lambda w: w, "'num_drones'"),
    "customers": (lambda w: w, "'num_customers'"),
    "route_nodes": (lambda w: w, "'num_route_nodes'"),
    "world_step": (lambda w: w, r"reset\(\) and step\(\)"),
    "truck": (lambda w: w, r"reset\(\) and step\(\)"),
    "speed": (lambda w: w, "World has no attribute 'speed'"),
    "max_speed": (lambda w: w.truck, "'truck_speed'"),
    "drone_capacity": (lambda w: w.truck, "'drone_capacity'"),
    "target_node": (lambda w: w.truck.state, r"TruckState.target_node .* step\(\)"),
    "release_drone": (lambda w: w.truck.action, r"TruckAction.release_drone .* step\(\)"),
    "battery_consumption_rate": (lambda w: w.drones[0], "'battery_rate'"),
    "battery": (lambda w: w.drones[0].state, r"DroneState.battery .* step\(\)"),
    "hover": (lambda w: w.drones[0].action, r"DroneAction.hover .* step\(\)"),
    "just_served_this_step": (lambda w: w.customers[0], r"step\(\)"),
    "p_pos": (lambda w: w.customers[0].state, "'customer_pos' in the instance"),
    "demand": (lambda w: w.customers[0].state, "'demand' in the instance"),
    "time_window_end": (lambda w: w.customers[0].state, "'tw_end' in the instance"),
}


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_assignment_is_refused_and_names_the_alternative(name):
    """The AttributeError names the option, the instance field, or the calls that change it; also for `del`."""
    find, sentence = ASSIGNMENTS[name]
    entity = find(two_drones().world)
    before = getattr(entity, name, None)
    with pytest.raises(AttributeError, match=sentence):
        setattr(entity, name, 1)
    with pytest.raises(AttributeError, match=sentence):
        delattr(entity, name)
    after = getattr(entity, name, None)
    assert np.array_equal(before, after) if isinstance(before, np.ndarray) else str(before) == str(after)


def test_drones_speed_names_its_own_option():
    """`max_speed` of a drone is another option than that of the truck."""
    with pytest.raises(AttributeError, match="'drone_speed'"):
        two_drones().world.drones[0].max_speed = 3.0
