"""The truck-and-drones world on roads equals the scalar model of `tests/reference`.

Every output of every transition is compared, as in `test_truckdrone_reference`, and also the edge. The truck mostly
repeats its last action: with a new random action in every step it would reach no other node. The tests count arrivals,
turns and stops between nodes, so that a comparison of standing trucks does not pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadInstance, ConfigError, IllegalAction, MilkrunError, ShapeError
from tests.reference.truckdrone import truck_drone
from tests.reference.truckdrone_presets import ONBOARD, ring
from tests.reference.truckdrone_roads import checked
from tests.reference.truckdrone_state import TruckDroneModel
from tests.truth.test_truckdrone_reference import agree, differences

ID = "milkrun/TruckDrone-v0"
INSTANCE = ("customer_pos", "demand", "tw_start", "tw_end", "route_nodes", "road")
SIZES = [(2, 3, 5), (1, 1, 2), (3, 7, 6), (4, 10, 9)]


def joined(nodes: int, pairs: Any) -> np.ndarray:
    road = np.eye(nodes, dtype=bool)
    for u, v in pairs:
        road[u, v] = road[v, u] = True
    return road


def a_path(nodes: int, rng: np.random.Generator) -> np.ndarray:
    return joined(nodes, ((u, u + 1) for u in range(nodes - 1)))


def a_ring(nodes: int, rng: np.random.Generator) -> np.ndarray:
    return joined(nodes, ((u, (u + 1) % nodes) for u in range(nodes)))


def a_star(nodes: int, rng: np.random.Generator) -> np.ndarray:
    return joined(nodes, ((0, u) for u in range(nodes)))


def all_pairs(nodes: int, rng: np.random.Generator) -> np.ndarray:
    return np.ones((nodes, nodes), bool)


def at_random(nodes: int, rng: np.random.Generator) -> np.ndarray:
    """A random tree, and every other road with a probability of one in five."""
    tree = [(u, int(rng.integers(u))) for u in range(1, nodes)]
    return joined(nodes, [*tree, *zip(*np.nonzero(rng.random((nodes, nodes)) < 0.2), strict=True)])


GRAPHS: list[Callable[[int, np.random.Generator], np.ndarray]] = [a_path, a_ring, a_star, all_pairs, at_random]
TWISTS: list[dict[str, Any]] = [
    {},
    {"end": "depot", "battery_rate": 0.2, "truck_speed": 1.5},
    {"truck_speed": 1.9, "pickup": "air", "reserve": False, "episode_length": 120},
    {"obs": "v1", "battery_rule": "off", "battery_rate": 0.7, "truck_speed": 2.5},
    {"drone_speed": 1.3, "episode_length": 60, "time_limit_terminal": True, "end": "depot"},
]


def instances(rng: np.random.Generator, rows: int, customers: int, nodes: int, length: int, graph: Any) -> dict:
    """One instance a row: half of them on the ring with its depot, half on nodes anywhere around the depot."""
    start = rng.integers(0, length // 2, (rows, customers))
    places = rng.uniform(-1, 1, (rows, nodes, 2))
    places[:, 0] = 0.0
    places[::2] = ring(nodes, 0.6, True)
    return {
        "customer_pos": rng.uniform(-0.8, 0.8, (rows, customers, 2)),
        "demand": rng.uniform(0.3, 1.0, (rows, customers)),
        "tw_start": start,
        "tw_end": start + rng.integers(0, length - length // 2 + 1, (rows, customers)),
        "route_nodes": places,
        "road": np.stack([graph(nodes, rng) for _ in range(rows)]),
    }


def build(world: Any, row: int, changes: dict[str, Any]) -> TruckDroneModel:
    config = {name: value for name, value in changes.items() if name not in ("num_customers", "drone_capacity")}
    played = world.instance_row[row]
    return truck_drone("default", {name: getattr(world, name)[played] for name in INSTANCE}, **config)


def same(world: Any, models: list[TruckDroneModel], rows: list[int]) -> bool:
    return agree(world, models, rows) and world.truck_edge[rows].tolist() == [list(models[b].truck_edge) for b in rows]


def events(was: tuple[int, int, list[int]], m: TruckDroneModel) -> list[str]:
    """Events of the truck in a step that began at this node, with this target, with drones of this status."""
    node, target, status = was
    seen = []
    if m.truck_node not in (-1, node):
        seen.append("passed to another node" if node != -1 else "arrived")
    if node != -1 and m.truck_node == -1:
        seen.append("left")
    if node == m.truck_node == -1:
        seen.append("stopped" if m.truck_target == -1 else "turned" if -1 < target != m.truck_target else "rolled")
    home = any(now == ONBOARD != then for now, then in zip(m.status, status, strict=True))
    if home and m.truck_node == -1:
        seen.append("recovered between nodes")
    if m.illegal[0]:
        seen.append("refused")
    return seen


def play(size: tuple[int, int, int], twist: dict[str, Any], masked: bool, transitions: int, graph: Any) -> Counter:
    """Compares `transitions` transitions; returns their number and the events. `graph` None: the world's own roads."""
    drones, customers, nodes = size
    changes = {"num_drones": drones, "num_customers": customers, "num_route_nodes": nodes, "depot_node": True} | twist
    changes |= {"road_graph": True, "drone_capacity": drones}
    rows, seen, episode = min(64, max(8, transitions // 60)), Counter(), 0
    world = milkrun.make(ID, rows, autoreset="disabled", **changes)
    rng = np.random.default_rng(drones + 10 * masked)
    choices = world.action.nvec(world.sizes)
    while seen["compared"] < transitions:
        given = None
        if graph is not None:
            given = instances(rng, rows, customers, nodes, changes.get("episode_length", 200), graph)
        world.reset(seed=1000 + episode, instance=given)
        models = [build(world, b, changes) for b in range(rows)]
        episode += 1
        live, turn = list(range(rows)), 0
        assert same(world, models, live)
        while live and seen["compared"] < transitions:
            if masked:
                actions = world.sample_actions(episode, turn)[live]
            else:
                actions = np.stack([rng.integers(-1, n + 1, len(live)) for n in choices], axis=1)
            target = world.truck_target[live]
            actions[:, 0] = np.where((target >= 0) & (rng.random(len(live)) < 0.7), 1 + target, actions[:, 0])
            turn += 1
            before = [(models[b].truck_node, models[b].truck_target, list(models[b].status)) for b in live]
            world.step(actions, rows=live)
            for joint, b in zip(actions.tolist(), live, strict=True):
                models[b].step(joint)
            if not same(world, models, live):
                wrong = {
                    b: (found, world.truck_edge[b], models[b].truck_edge)
                    for b in live
                    if (found := differences(world, b, models[b])) or not same(world, models, [b])
                }
                raise AssertionError((size, twist, masked, episode, turn, wrong))
            seen["compared"] += len(live)
            for was, b in zip(before, live, strict=True):
                seen.update(events(was, models[b]))
            live = [b for b in live if not models[b].done]
    return seen


def seen_enough(seen: Counter, masked: bool) -> bool:
    wanted = {"arrived", "left", "stopped", "turned", "rolled", "recovered between nodes"}
    return wanted <= set(seen) and ("refused" in seen) != masked


MASKED = pytest.mark.parametrize("masked", [True, False], ids=["masked", "unmasked"])
BY_GRAPH = pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.__name__)


@MASKED
@BY_GRAPH
def test_every_output_on_roads_equals_the_scalar_model(graph: Any, masked: bool):
    """Five kinds of roads, each with two sizes and two sets of options, 1,050 transitions each: 21,000 in all."""
    at = GRAPHS.index(graph)
    seen: Counter = Counter()
    for size, twist in ((SIZES[at % 3], TWISTS[at]), (SIZES[(at + 1) % 3], TWISTS[(at + 1) % 5])):
        seen += play(size, twist, masked, 1_050, graph)
    assert seen["compared"] >= 2_100
    assert seen_enough(seen, masked), seen


@pytest.mark.long
@MASKED
@pytest.mark.parametrize("twist", TWISTS, ids=lambda twist: "-".join(twist) or "plain")
@BY_GRAPH
def test_a_million_transitions_on_roads_equal_the_scalar_model(graph: Any, twist: dict[str, Any], masked: bool):
    """50 cases of four sizes, 5,000 transitions each."""
    seen: Counter = Counter()
    for size in SIZES:
        seen += play(size, twist, masked, 5_000, graph)
    assert seen["compared"] >= 1_000_000 / 50
    assert seen_enough(seen, masked), seen


@MASKED
def test_a_reset_without_roads_is_refused_or_draws_connected_roads(masked: bool):
    """Roads are part of the instance: a reset without roads is refused by name, or draws a connected graph."""
    try:
        seen = play((2, 3, 5), {}, masked, 600, None)
    except MilkrunError as error:
        assert "road" in str(error)
    else:
        assert seen["compared"] >= 600


def alone(road: Any, **fields: Any) -> dict[str, Any]:
    """One row of three nodes on a line and one customer."""
    places = [[[0.0, 0.0], [0.3, 0.0], [0.6, 0.0]]]
    customer = {"customer_pos": [[[0.5, 0.5]]], "demand": [[0.8]], "tw_start": [[0]], "tw_end": [[99]]}
    return customer | {"route_nodes": places, "road": [road]} | fields


def three(**changes: Any) -> Any:
    sizes = {"num_drones": 1, "num_customers": 1, "num_route_nodes": 3, "depot_node": True}
    return milkrun.make(ID, 1, **{"autoreset": "disabled", "road_graph": True} | sizes | changes)


LINE = [[1, 1, 0], [1, 1, 1], [0, 1, 1]]


@pytest.mark.parametrize(
    ("road", "error"),
    [
        ([[1, 1, 0], [1, 1, 0], [0, 0, 1]], BadInstance),
        ([[1, 1, 0], [1, 0, 1], [0, 1, 1]], BadInstance),
        ([[1, 1], [1, 1]], ShapeError),
    ],
    ids=["an island", "a node without itself", "two nodes of three"],
)
def test_bad_roads_leave_the_world_as_it_was(road: Any, error: type[MilkrunError]):
    """The error names the field; the previous roads are kept."""
    world = three()
    world.reset(seed=1, instance=alone(np.array(LINE, bool)))
    with pytest.raises(error, match="road"):
        world.reset(seed=1, instance=alone(np.array(road, bool)))
    assert checked(world.road[0], 3, True) == np.array(LINE, bool).tolist()
    assert world.truck_edge[0].tolist() == [0, 0]


def test_roads_need_a_depot_and_the_sound_rules():
    """A key that contradicts another is refused by name."""
    with pytest.raises(ConfigError, match="road_graph"):
        three(depot_node=False)
    with pytest.raises(ConfigError, match="road_graph"):
        milkrun.make(ID, 1, preset="published", road_graph=True)


def test_without_the_option_there_are_no_roads():
    """Both fields exist and are empty."""
    world = three(road_graph=False)
    world.reset(seed=1)
    assert (world.road.size, world.truck_edge.size) == (0, 0)


def test_a_move_without_a_road_is_refused_by_its_name():
    """MOVE_2 from the depot of a line of three."""
    world = three(illegal="raise")
    world.reset(seed=1, instance=alone(np.array(LINE, bool)))
    with pytest.raises(IllegalAction, match="MOVE_2"):
        world.step([[3, 0]])
    assert world.truck_node[0] == 0
