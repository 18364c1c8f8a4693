"""A truck on roads: episodes by hand, refusals, drawn roads, and that a truck is never stuck."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform

import milkrun
from milkrun.compat.vrp.core import World
from milkrun.compat.vrp.environment import MultiAgentVRPEnv
from milkrun.core.errors import BadInstance, BadSolution, ConfigError, IllegalAction, ShapeError
from milkrun.delivery import TruckDroneConfig, replay
from milkrun.delivery.tasks import check_episode
from milkrun.delivery.truckdrone.generator import roads_between, route_ring
from milkrun.render.canvas import GRID, PAPER
from tests.delivery.test_picture import pixel

STAY, RELEASE = 0, 5
NODES = [[0.0, 0.0], [0.3, 0.0], [0.3, 0.4], [0.0, 0.4]]
"""The corners of a rectangle; MOVE_n is 1 + n."""


def roads(*pairs: tuple[int, int], count: int = 4) -> list[list[bool]]:
    road = np.eye(count, dtype=bool)
    for i, j in pairs:
        road[i, j] = road[j, i] = True
    return road.tolist()


LINE = roads((0, 1), (1, 2), (2, 3))
ALONE = TruckDroneConfig(num_drones=1, num_customers=1, num_route_nodes=4, road_graph=True)
INSTANCE = {
    "customer_pos": [[0.5, 0.0]],
    "demand": [0.8],
    "tw_start": [0],
    "tw_end": [200],
    "route_nodes": NODES,
    "road": LINE,
}


def given_rows(**changes: Any) -> dict[str, Any]:
    return {name: [value] for name, value in {**INSTANCE, **changes}.items() if value is not None}


def begun(config: TruckDroneConfig = ALONE, **options: Any) -> Any:
    world = milkrun.make("milkrun/TruckDrone-v0", 1, config=config, autoreset="disabled", **options)
    world.reset(instance=given_rows())
    return world


def moves(world: Any, row: int = 0) -> list[int]:
    """The nodes that the mask allows as targets."""
    return np.flatnonzero(world.truck_mask[row, 0, 1 : 1 + world.sizes["N"]]).tolist()


def test_the_truck_drives_from_node_to_node_along_roads():
    """0 - 1 - 2 - 3 in a line: from 0 to 2 it takes three steps to 1 and four more; between nodes it may turn back."""
    world = begun()
    found = []
    for action in [2, 2, 2, 3, STAY, 2, 3, 3, 3, 3]:
        found.append((moves(world), world.truck_edge[0].tolist(), int(world.truck_node[0])))
        world.step([[action, 0]])
        assert not world.illegal[0]
    assert found == [
        ([0, 1], [0, 0], 0),  # at the depot: MOVE_0 changes nothing
        ([0, 1], [0, 1], -1), ([0, 1], [0, 1], -1),
        ([0, 1, 2], [1, 1], 1),
        ([1, 2], [1, 2], -1), ([1, 2], [1, 2], -1),  # stopped between 1 and 2
        ([0, 1, 2], [1, 1], 1),  # turned back
        ([1, 2], [1, 2], -1), ([1, 2], [1, 2], -1), ([1, 2], [1, 2], -1),
    ]  # fmt: skip
    assert (moves(world), world.truck_edge[0].tolist(), int(world.truck_node[0])) == ([1, 2, 3], [2, 2], 2)
    assert np.allclose(world.truck_pos[0], NODES[2], rtol=0, atol=1e-12)


def test_a_move_off_the_roads_is_a_stop():
    """MOVE_2 from 0, then on the way from 0 to 1: masked, flagged, and the truck does not move."""
    world = begun()
    for action, done, place in [(3, STAY, 0.0), (2, 2, 0.1), (3, STAY, 0.1), (RELEASE, RELEASE, 0.1), (2, 2, 0.2)]:
        world.step([[action, 0]])
        assert world.illegal_agents[0].tolist() == [action != done, False] and world.executed[0, 0] == done
        assert world.truck_pos[0].tolist() == pytest.approx([place, 0.0])
    assert world.truck_edge[0].tolist() == [0, 1]


def test_a_truck_that_releases_keeps_driving():
    """As without roads: the target stays during RELEASE and RECOVER."""
    world = begun()
    for action in (2, RELEASE, 6):
        world.step([[action, 0]])
    assert world.truck_node[0] == 1 and world.truck_edge[0].tolist() == [1, 1] and not world.illegal[0]


def test_the_reason_names_node_or_road():
    """With illegal="raise"."""
    world = begun(illegal="raise")
    with pytest.raises(IllegalAction, match="truck_0: MOVE_3: no road leads there from node 0"):
        world.step([[4, 0]])
    world.step([[2, 0]])
    with pytest.raises(IllegalAction, match="truck_0: MOVE_2: it is on the road between nodes 0 and 1"):
        world.step([[3, 0]])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depot_node": False}, "road_graph = True: needs depot_node=True"),
        ({"rules": "published"}, "road_graph = True: no option of the rules 'published'"),
        ({"num_route_nodes": 1}, "num_route_nodes = 1: with a depot node at least 2"),
    ],
)
def test_roads_need_a_depot_and_the_sound_rules(options: dict[str, Any], words: str):
    """The message has the key and the value."""
    with pytest.raises(ConfigError, match=words):
        TruckDroneConfig(road_graph=True, **options)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"road": None}, ShapeError, "the instance lacks 'road'"),
        ({"road": [[True] * 4] * 3}, ShapeError, r"road must have the shape \(1, 4, 4\), not \(1, 3, 4\)"),
        ({"road": np.array(LINE).astype(int)}, ShapeError, "road must be bool; int64 would lose information"),
        ({"road": np.array(LINE) & (np.arange(4) != 2)}, BadInstance, r"row 0: road\[2, 2\] = False: a node"),
        ({"road": np.triu(LINE)}, BadInstance, r"row 0: road\[0, 1\] = True: a road leads both ways"),
        ({"road": roads((0, 1), (2, 3))}, BadInstance, r"row 0: road\[0, 2\] = False: no way by road leads from"),
        (
            {"route_nodes": [[0.1, 0.0], *NODES[1:]]},
            BadInstance,
            r"row 0: route_nodes\[0, 0\] = 0.1: with road_graph node 0 is the depot at \(0, 0\)",
        ),
    ],
)
def test_bad_roads_leave_the_world_as_it_was(changes: dict[str, Any], error: type, words: str):
    """The message names row, field, index and value."""
    world = begun()
    before = {name: value.tobytes() for name, value in world.state_dict().items()}
    with pytest.raises(error, match=words):
        world.reset(instance=given_rows(**changes))
    assert {name: value.tobytes() for name, value in world.state_dict().items()} == before


def test_roads_without_the_option_are_refused():
    """A world without roads does not use them."""
    world = milkrun.make("milkrun/TruckDrone-v0", 1, config=ALONE.replace(road_graph=False), autoreset="disabled")
    with pytest.raises(ShapeError, match="has no instance field 'road'"):
        world.reset(instance=given_rows())


def test_given_roads_on_the_circle():
    """Nodes may be left out: they lie on the circle, and the roads are the given ones."""
    world = milkrun.make("milkrun/TruckDrone-v0", 1, config=ALONE, autoreset="disabled")
    world.reset(instance=given_rows(route_nodes=None))
    assert world.route_nodes[0].tolist() == route_ring(4, 0.6, True).tolist() and moves(world) == [0, 1]


def joined(road: np.ndarray) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in np.argwhere(np.triu(road, 1))}


def test_drawn_roads_by_hand():
    """One node: a single road. Two opposite ones: through the depot. Three: a star, since the depot lies in every
    circle around two of them. Four and more: spokes and rim; with four the depot is on the circles, not inside."""
    spokes = [{(0, n) for n in range(1, count)} for count in range(7)]
    for count in (2, 3, 4):
        assert joined(roads_between(route_ring(count, 0.6, True))) == spokes[count]
    for count in (5, 6):
        rim = {(n, n + 1) for n in range(1, count - 1)} | {(1, count - 1)}
        assert joined(roads_between(route_ring(count, 0.6, True))) == spokes[count] | rim
    world = milkrun.make("milkrun/TruckDrone-v0", 3, road_graph=True, seed=1)
    world.reset()
    assert (world.road == roads_between(route_ring(6, 0.6, True))).all() and world.road.shape == (3, 6, 6)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**31), count=st.integers(1, 30), grid=st.booleans())
def test_roads_between_any_nodes_hold_a_shortest_tree(seed: int, count: int, grid: bool):
    """The roads connect all nodes over legs no longer than those of scipy's minimum spanning tree. Nodes on a grid have
    many ties and may coincide."""
    rng = np.random.default_rng(seed)
    nodes = rng.integers(-3, 4, (count, 2)) / 4 if grid else rng.uniform(-1, 1, (count, 2))
    road = roads_between(nodes)
    assert road.diagonal().all() and (road == road.T).all()
    far = squareform(pdist(nodes)) + 1e-3 * (1 - np.eye(count))  # zero means no edge to scipy
    tree = minimum_spanning_tree(far).sum()
    by_road = minimum_spanning_tree(np.where(road, far, 0)).tocoo()
    assert by_road.nnz == count - 1 and by_road.sum() == pytest.approx(tree)


def maps(draw: Any, count: int) -> np.ndarray:
    """A connected road map: a line, a star, a ring, or a random tree with additional roads."""
    kind = draw(st.sampled_from(["line", "star", "ring", "tree"]))
    road = np.eye(count, dtype=bool)
    for n in range(1, count):
        before = {"line": n - 1, "ring": n - 1, "star": 0}.get(kind, draw(st.integers(0, n - 1)))
        road[n, before] = road[before, n] = True
    if kind == "ring":
        road[0, -1] = road[-1, 0] = True
    if kind == "tree":
        for i, j in draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=4)):
            road[i, j] = road[j, i] = True
    order = np.r_[0, 1 + np.array(draw(st.permutations(range(count - 1))), int)] if kind != "star" else np.arange(count)
    return road[np.ix_(order, order)]


@st.composite
def road_instances(draw: Any) -> tuple[int, dict[str, Any]]:
    count, rows = draw(st.integers(2, 7)), 6
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    nodes = rng.uniform(-1, 1, (rows, count, 2))
    nodes[:, 0] = 0.0
    if draw(st.booleans()):
        nodes[:, -1] = nodes[:, count // 2]  # two nodes at one place
    road = np.stack([maps(draw, count) for _ in range(rows)])
    fixed = {"demand": np.full((rows, 2), 0.5), "tw_start": np.zeros((rows, 2), int), "tw_end": np.full((rows, 2), 99)}
    return count, {"customer_pos": rng.uniform(-0.8, 0.8, (rows, 2, 2)), **fixed, "route_nodes": nodes, "road": road}


def on_its_road(world: Any, b: int) -> bool:
    (ax, ay), (bx, by) = world.route_nodes[b, world.truck_edge[b]]
    x, y = world.truck_pos[b]
    whole, parts = np.hypot(bx - ax, by - ay), np.hypot(x - ax, y - ay) + np.hypot(bx - x, by - y)
    return bool(parts - whole <= 1e-6)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(road_instances(), st.integers(0, 2**31), st.sampled_from([0.0, 0.7, 1.0, 1.9]), st.booleans())
def test_a_truck_is_always_on_a_road_and_never_stuck(drawn: Any, seed: int, speed: float, wild: bool):
    """Random maps, masked play or any numbers. STAY is allowed, the allowed roads are those of the truck's place, and
    the truck stays on them. At the end it reaches every node by allowed actions."""
    count, instance = drawn
    world = milkrun.make(
        "milkrun/TruckDrone-v0",
        6,
        road_graph=True,
        num_route_nodes=count,
        num_customers=2,
        truck_speed=speed,
        autoreset="disabled",
        episode_length=10**6,
        illegal="noop",
    )
    world.reset(instance=instance)
    rng = np.random.default_rng(seed)
    road, nodes = instance["road"], instance["route_nodes"]

    def play(actions: np.ndarray) -> None:
        was = world.truck_edge.copy()
        live = np.flatnonzero(~world.done)
        world.step(actions[live], rows=live)
        for b in live[~world.done[live]]:
            (u, v), may = world.truck_edge[b].tolist(), moves(world, b)
            assert world.truck_mask[b, 0, 0] and road[b, u, v] and on_its_road(world, b)
            assert may == (np.flatnonzero(road[b, u]).tolist() if u == v else sorted((u, v)))
            assert world.truck_node[b] == (u if u == v else -1)
            if was[b, 0] != was[b, 1] and u != v:
                assert was[b].tolist() == [u, v], "the truck changed roads between nodes"

    for turn in range(40):
        play(rng.integers(-2, 20, (6, 3)) if wild else world.sample_actions(seed, turn))
    if speed == 0:
        assert (world.truck_pos == 0).all()
        return
    hops = np.where(road, 1.0, np.inf)
    for k in range(count):
        hops = np.minimum(hops, hops[:, :, k, None] + hops[:, None, k])
    for goal in range(count):
        for _ in range(int(60 * count / speed)):
            arrived = (world.truck_node == goal) | world.done
            if arrived.all():
                break
            actions = np.zeros((6, 3), int)
            for b in np.flatnonzero(~arrived):
                onward = [n for n in moves(world, b) if n != world.truck_node[b]]
                actions[b, 0] = 1 + min(onward, key=lambda n, b=b: (n != goal) and hops[b, n, goal])
            play(actions)
        assert ((world.truck_node == goal) | world.done).all(), "an unreachable node"
        there = ~world.done
        assert np.abs(world.truck_pos - nodes[:, goal])[there].max(initial=0) <= 1e-6


def test_the_checker_finds_a_truck_off_the_roads():
    """A valid log on a line is invalid with other roads, and also if it leaves a road or waits at another node."""
    plan = [[2, 0], [2, 0], [2, 0], [3, 0], [2, 0], [3, 0]]
    found, events = replay(ALONE, INSTANCE, plan)
    assert check_episode(INSTANCE, ALONE, events) == pytest.approx(found, abs=1e-12)
    elsewhere = {**INSTANCE, "road": roads((0, 1), (0, 2), (0, 3))}
    with pytest.raises(BadSolution, match="truck_0 drive at 3: no road leads from node 1 to node 2"):
        check_episode(elsewhere, ALONE, events)
    anywhere = {name: value for name, value in INSTANCE.items() if name != "road"}
    _, free = replay(ALONE.replace(road_graph=False), anywhere, [[2, 0], [4, 0]])
    with pytest.raises(BadSolution, match="truck_0 drive at 1: no road leads from the one between 0 and 1 to node 3"):
        check_episode(INSTANCE, ALONE, free)
    _, waits = replay(ALONE, INSTANCE, [[STAY, 0]])
    waits["ref"][0] = 1
    with pytest.raises(BadSolution, match="truck_0 wait at 0: is not at node 1"):
        check_episode(INSTANCE, ALONE, waits)


def test_roads_are_drawn_and_others_are_not():
    """The middle between 1 and 2 is on a road of the line, the middle between 0 and 3 is not; without the option
    neither."""
    world = begun()
    assert pixel(world, (0.3, 0.2)) == GRID and pixel(world, (0.0, 0.2)) == PAPER
    world.road[0] = roads((0, 1), (0, 3), (0, 2))
    assert pixel(world, (0.3, 0.2)) == PAPER and pixel(world, (0.0, 0.2)) == GRID


def test_the_list_interface_plays_on_roads():
    """Entities and masks of a row with roads."""
    env = MultiAgentVRPEnv(World.of(begun(), 0))
    assert env.available_actions()[0].tolist() == [1, 1, 1, 0, 0, 1, 0]
    _, _, _, infos = env.step([2, 0])
    assert env.world.truck.state.current_node is None and env.world.truck.state.target_node == 1
    assert infos[0]["available_actions"].tolist() == [1, 1, 1, 0, 0, 1, 0]


def test_torchrl_steps_on_roads_without_a_world():
    """Functional stepping has roads and the truck's edge in the TensorDict: masks equal those of the world."""
    pytest.importorskip("torchrl")
    options = {"road_graph": True, "episode_length": 25, "seed": 6}
    env = milkrun.make("milkrun/TruckDrone-v0", 5, api="torchrl", stepping="functional", **options)
    world = milkrun.make("milkrun/TruckDrone-v0", 5, autoreset="disabled", **options)
    td = env.reset()
    world.reset()
    for turn in range(24):
        assert td["truck", "action_mask"].numpy().tobytes() == np.ascontiguousarray(world.truck_mask).tobytes()
        assert (td["hidden", "truck_edge"].numpy() == world.truck_edge).all()
        actions = world.sample_actions(1, turn)
        td["truck", "action"], td["drone", "action"] = (torch_of(part) for part in (actions[:, :1], actions[:, 1:]))
        world.step(actions)
        td = env.step(td)["next"]
    assert (world.truck_edge[:, 0] != world.truck_edge[:, 1]).any()


def torch_of(actions: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(actions))


def test_observations_have_the_same_length_with_roads():
    """Roads are visible in the mask only; the vectors equal those of a world without roads."""
    plain, bound = (milkrun.make("milkrun/TruckDrone-v0", 4, road_graph=on, seed=2) for on in (False, True))
    for world in (plain, bound):
        world.reset()
    for name in ("truck_obs", "drone_obs", "state", "customer_pos", "demand", "tw_start", "tw_end"):
        assert getattr(plain, name).tobytes() == getattr(bound, name).tobytes(), name
