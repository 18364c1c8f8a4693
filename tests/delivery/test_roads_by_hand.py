"""The truck on roads, in the truck-and-drones world, compared with numbers by hand.

Mostly a line of three nodes, 0 at (0,0), 1 at (.25,0), 2 at (.6,0): from an end the truck can only drive to the middle.
The truck drives .1 a step. Its actions are STAY, MOVE_0 to MOVE_2, RELEASE, RECOVER; a drone has HOVER, RETURN,
DELIVER_0.
"""

from __future__ import annotations

import pytest

from tests.delivery.truckdrone_row import FLYING, ONBOARD, Row, bits, near, near_pairs, play

LINE = [(0.0, 0.0), (0.25, 0.0), (0.6, 0.0)]
STAY, MOVE_0, MOVE_1, MOVE_2, RELEASE, RECOVER = range(6)


def path(nodes):
    """Roads only from each node to the next."""
    return [[abs(u - v) <= 1 for v in range(nodes)] for u in range(nodes)]


def on_roads(nodes=LINE, road=None, customers=((0.0, 0.9),), **changes):
    n = len(customers)
    instance = {"customer_pos": customers, "demand": [0.8] * n, "tw_start": [0] * n, "tw_end": [200] * n}
    instance |= {"route_nodes": nodes, "road": path(len(nodes)) if road is None else road}
    config = {"num_drones": 1, "num_route_nodes": len(nodes), "road_graph": True} | changes
    return Row("default", instance, **config)


def between(x=0.1, edge=(0, 1), target=-1, **changes):
    """The truck stands or drives at (x, 0), its drone on board."""
    model = on_roads(**changes)
    model.put(truck_pos=(x, 0.0), drone_pos=[(x, 0.0)], truck_node=-1, truck_edge=edge, truck_target=target)
    return model


def place(model):
    """Node, target, edge."""
    return model.truck_node, model.truck_target, list(model.truck_edge)


def test_a_row_starts_at_the_depot():
    """Node 0, without a target, on the edge (0,0)."""
    assert place(on_roads()) == (0, -1, [0, 0])


@pytest.mark.parametrize(("node", "mask"), [(0, "1110"), (1, "1111"), (2, "1011")])
def test_from_a_node_the_truck_goes_to_its_neighbours(node, mask):
    """STAY, its own node and those one road away."""
    model = on_roads()
    model.put(truck_pos=LINE[node], drone_pos=[LINE[node]], truck_node=node, truck_edge=(node, node))
    assert bits(model.truck_mask) == mask + "10"


@pytest.mark.parametrize(("edge", "mask"), [((0, 1), "1110"), ((1, 0), "1110"), ((1, 2), "1011"), ((2, 1), "1011")])
def test_between_two_nodes_the_truck_goes_to_either(edge, mask):
    """Forward and back, though node 1 has a third neighbour; the rest of the mask is unchanged."""
    assert bits(between(0.3, edge).truck_mask) == mask + "10"


def test_leaving_a_node_is_entering_an_edge():
    """0, .1, .2 on the way to .25: no node, the same target, the edge in its driving direction."""
    model = play(on_roads(), (MOVE_1, 0))
    assert (place(model), model.truck_pos, model.truck_vel) == ((-1, 1, [0, 1]), near((0.1, 0)), near((1, 0)))
    play(model, (MOVE_1, 0))
    assert (place(model), model.truck_pos) == ((-1, 1, [0, 1]), near((0.2, 0)))


def test_a_step_longer_than_the_rest_of_the_edge_ends_at_the_node():
    """.1 + .1 + .05: the rest of the third step is not driven on the next road, and its speed is .5."""
    model = play(on_roads(), *[(MOVE_1, 0)] * 3)
    assert (place(model), model.truck_pos, model.truck_vel) == ((1, -1, [1, 1]), near((0.25, 0)), near((0.5, 0)))
    assert (model.truck_step_dist, model.kpis()["truck_distance"]) == (near(0.05), near(0.25))
    assert bits(model.truck_mask) == "111110"
    play(model, (MOVE_2, 0))
    assert (place(model), model.truck_pos) == ((-1, 2, [1, 2]), near((0.35, 0)))


def test_arriving_exactly_at_a_node():
    """Node 1 at .2 is reached in exactly two steps: at the node in the second, at full speed, and the third is free."""
    model = play(on_roads([(0.0, 0.0), (0.2, 0.0), (0.6, 0.0)]), *[(MOVE_1, 0)] * 2)
    assert (place(model), model.truck_pos, model.truck_vel) == ((1, -1, [1, 1]), near((0.2, 0)), near((1, 0)))
    play(model, (MOVE_1, 0))
    assert (place(model), model.truck_vel, model.truck_step_dist) == ((1, -1, [1, 1]), (0, 0), 0)
    assert model.illegal == [False, False]


def test_turning_back_on_an_edge():
    """Out to .2, back to .1 on the same edge, out to .2 again, back through .1 to the depot: .6 driven in six steps."""
    model = play(on_roads(), (MOVE_1, 0), (MOVE_1, 0), (MOVE_0, 0))
    assert (place(model), model.truck_pos, model.truck_vel) == ((-1, 0, [0, 1]), near((0.1, 0)), near((-1, 0)))
    play(model, (MOVE_1, 0))
    assert (place(model), model.truck_pos) == ((-1, 1, [0, 1]), near((0.2, 0)))
    play(model, (MOVE_0, 0), (MOVE_0, 0))
    assert (place(model), model.truck_pos) == ((0, -1, [0, 0]), near((0, 0)))
    assert (model.kpis()["truck_distance"], model.kpis()["illegal"]) == (near(0.6), 0)


def test_stopping_between_two_nodes():
    """STAY at .1: no speed, no target, the same edge; then both ends are allowed."""
    model = play(on_roads(), (MOVE_1, 0), (STAY, 0))
    assert (place(model), model.truck_vel, bits(model.truck_mask)) == ((-1, -1, [0, 1]), (0, 0), "111010")
    assert model.kpis()["truck_wait"] == 1
    assert place(play(model, (MOVE_0, 0))) == (0, -1, [0, 0])


def test_a_node_without_a_direct_road_is_masked():
    """MOVE_2 from node 0 is STAY, also on the edge (0,1), where it stops a driving truck at .1: -.1 each."""
    model = play(on_roads(), (MOVE_2, 0))
    assert (model.executed, model.illegal, place(model)) == ([STAY, 0], [True, False], (0, -1, [0, 0]))
    assert model.reward_exact == near(-0.1)
    play(model, (MOVE_1, 0), (MOVE_2, 0))
    assert (model.illegal, place(model), model.truck_pos) == ([True, False], (-1, -1, [0, 1]), near((0.1, 0)))
    assert model.kpis()["illegal"] == 2


def test_a_truck_that_releases_and_recovers_keeps_driving():
    """Release at .1 of the edge (0,1), recovery at .2 from .1 behind, both on the way to node 1 at .25."""
    model = play(on_roads(), (MOVE_1, 0), (RELEASE, 0))
    assert (place(model), model.truck_pos, model.drone_pos) == ((-1, 1, [0, 1]), near((0.2, 0)), near_pairs((0.1, 0)))
    assert bits(model.truck_mask) == "111001"
    play(model, (RECOVER, 0))
    assert (place(model), model.drone_pos, model.status) == ((1, -1, [1, 1]), near_pairs((0.25, 0)), [ONBOARD])


def test_a_drone_returns_between_two_nodes():
    """The drone at .6 flies home to a truck that drives from .2 to .3 on the road from 0 to .35, then turns back.

    Towards the truck's old place, .2, it flies .2: at .4 it is .2 away and not home (.08 spent). Then to .3: .1, home
    at .92 - .04, and the truck turns back and carries it to .2. On board it is charged .03 in the next step.
    """
    model = between(0.2, (0, 1), 1, nodes=[(0.0, 0.0), (0.35, 0.0), (0.7, 0.0)])
    model.put(drone_pos=[(0.6, 0.0)], status=[FLYING])
    play(model, (MOVE_1, 1))
    assert (model.drone_pos, model.battery, model.truck_pos) == (near_pairs((0.4, 0)), near([0.92]), near((0.3, 0)))
    play(model, (MOVE_0, 1))
    assert (model.status, model.drone_pos, model.battery) == ([ONBOARD], near_pairs((0.2, 0)), near([0.88]))
    assert (place(model), model.truck_pos, model.reward_exact) == ((-1, 0, [0, 1]), near((0.2, 0)), near(-0.12))
    play(model, (STAY, 0))
    assert (place(model), model.battery) == ((-1, -1, [0, 1]), near([0.91]))


def test_two_nodes_at_one_place_are_one_step_apart():
    """Nodes 0 and 1 both at (0,0): MOVE_1 arrives at node 1 without driving, and node 2 is then allowed."""
    model = play(on_roads([(0.0, 0.0), (0.0, 0.0), (0.6, 0.0)]), (MOVE_1, 0))
    assert (place(model), model.truck_step_dist, bits(model.truck_mask)) == ((1, -1, [1, 1]), 0, "111110")


def test_an_episode_ends_only_with_the_truck_at_the_depot():
    """All served, the drone on board, the truck at .15: one step to .05, one more to the depot."""
    model = between(0.15, (0, 1), end="depot")
    model.put(served=[True], arrival_step=[1])
    play(model, (MOVE_0, 0))
    assert (model.terminated, place(model)) == (False, (-1, 0, [0, 1]))
    play(model, (MOVE_0, 0))
    assert (model.terminated, place(model), model.reward_exact) == (True, (0, -1, [0, 0]), near(19.9))
    assert bits(model.truck_mask) == "100000"


def test_a_row_that_ended_between_two_nodes_stays():
    """The limit of three steps is reached at .1: only STAY is allowed, and the edge is still set."""
    model = play(on_roads(max_steps=3), (MOVE_1, 0), (STAY, 0), (STAY, 0))
    assert (model.truncated, bits(model.truck_mask), place(model)) == (True, "100000", (-1, -1, [0, 1]))


@pytest.mark.parametrize("obs", ["v1", "v2"])
def test_roads_are_visible_only_in_the_mask(obs):
    """All observations of a truck at .1 on the edge (0,1) equal those without roads at the same place."""
    model = between(0.1, (0, 1), 1, obs=obs)
    instance = {name: getattr(model, name) for name in ("customer_pos", "demand", "tw_start", "tw_end", "route_nodes")}
    free = Row("default", instance, num_drones=1, num_route_nodes=3, obs=obs)
    free.put(truck_pos=(0.1, 0.0), drone_pos=[(0.1, 0.0)], truck_node=-1, truck_target=1)
    assert model.truck_obs == free.truck_obs
    assert (model.drone_obs, model.state) == (free.drone_obs, free.state)
    assert (bits(model.truck_mask), bits(free.truck_mask)) == ("111010", "111110")
