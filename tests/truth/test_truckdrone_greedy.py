"""The greedy policy equals recorded greedy episodes of the independent model, and its definition in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import milkrun
from milkrun.solvers.delivery import greedy, parked
from tests.truth.test_truckdrone_traces import episodes, preset_of

pytestmark = pytest.mark.truth


@pytest.mark.parametrize("episode", [e for e in episodes() if e["play"] == "greedy"], ids=lambda e: e["name"])
def test_greedy_plays_the_recorded_episodes(episode: Any):
    """Every joint action of both recorded episodes."""
    options = {"preset": preset_of(episode), "autoreset": "disabled", **episode["config"]}
    world = milkrun.make("milkrun/TruckDrone-v0", 1, **options)
    world.reset(instance={name: np.asarray(value)[None] for name, value in episode["instance"].items()})
    for said in episode["steps"]:
        assert greedy(world)[0].tolist() == said["a"]
        world.step(np.array([said["a"]]))
    assert world.done[0]


def trees(rows: int, count: int) -> np.ndarray:
    """Random roads without a cycle, often with long detours."""
    rng, road = np.random.default_rng(1), np.repeat(np.eye(count, dtype=bool)[None], rows, axis=0)
    for row in road:
        for n in range(1, count):
            before = int(rng.integers(n))
            row[n, before] = row[before, n] = True
    return road


def by_definition(world: Any, b: int, moves: bool) -> list[int]:
    """Greedy action of one row, from its description."""
    places, truck = world.customer_pos[b], world.truck_pos[b]
    picked: list[int] = []
    said = []
    for d in range(world.sizes["D"]):
        mask, own = world.drone_mask[b, d], int(world.carrying[b, d])
        open_ones = [c for c in range(len(places)) if mask[2 + c] and c not in picked]
        if world.status[b, d] in (0, 3):
            action = 0
        elif own >= 0 and mask[2 + own]:
            action = 2 + own
        elif own < 0 and open_ones:
            action = 2 + min(open_ones, key=lambda c, d=d: (np.linalg.norm(places[c] - world.drone_pos[b, d]), c))
        else:
            action = int(mask[1])
        said.append(action)
        picked += [action - 2] if action >= 2 else []
    held = [int(c) for c, status in zip(world.carrying[b], world.status[b], strict=True) if status != 3]
    free = [c for c in range(len(places)) if not world.served[b, c] and c not in held and c not in picked]
    n = world.sizes["N"]
    homewards = moves and world.config.end == "depot" and world.served[b].all()
    if homewards and world.truck_node[b] != 0:
        return [1 + (first_leg(world, b, 0) if world.config.road_graph else 0), *said]
    if not free:
        return [0, *said]
    for d in range(world.sizes["D"]):
        if world.truck_mask[b, 0, 1 + n + d] and world.battery[b, d] >= 0.8:
            return [1 + n + d, *said]
    goal = min(free, key=lambda c: (np.linalg.norm(places[c] - truck), c))
    node = min(range(n), key=lambda j: (np.linalg.norm(world.route_nodes[b, j] - places[goal]), j))
    if not moves or world.truck_node[b] == node:
        return [0, *said]
    return [1 + (first_leg(world, b, node) if world.config.road_graph else node), *said]


def first_leg(world: Any, b: int, goal: int) -> int:
    """The next node on the shortest path by road, by all-pairs shortest paths (Floyd-Warshall)."""
    nodes, road = world.route_nodes[b], world.road[b]
    far = np.where(road, np.linalg.norm(nodes[:, None] - nodes, axis=-1), np.inf)
    for k in range(len(nodes)):
        far = np.minimum(far, far[:, k, None] + far[k])
    on = [n for n in np.flatnonzero(world.truck_mask[b, 0, 1 : 1 + len(nodes)]) if n != world.truck_node[b]]
    way = [np.linalg.norm(nodes[n] - world.truck_pos[b]) + far[n, goal] for n in on]
    return int(next(n for n, long in zip(on, way, strict=True) if long <= min(way) + 1e-9))


TWISTS = [
    {"preset": "default"},
    {"preset": "published"},
    {"road_graph": True},
    {"end": "depot"},
    {"end": "depot", "road_graph": True},
]


@pytest.mark.parametrize("options", TWISTS, ids=str)
@pytest.mark.parametrize("policy", [greedy, parked])
def test_greedy_is_its_definition(options: dict[str, Any], policy: Any):
    """32 episodes of three drones and seven customers, every action; roads also as trees."""
    world = milkrun.make(
        "milkrun/TruckDrone-v0", 32, seed=4, autoreset="disabled", num_drones=3, num_customers=7, **options
    )
    world.reset()
    if world.sizes["R"]:
        names = ("customer_pos", "demand", "tw_start", "tw_end", "route_nodes", "road")
        instance = {name: getattr(world, name).copy() for name in names}
        instance["road"][16:] = trees(16, 6)
        world.reset(instance=instance)
    live = np.arange(32)
    while len(live):
        actions = policy(world)
        for b in live:
            assert actions[b].tolist() == by_definition(world, int(b), policy is greedy)
        world.step(actions[live], rows=live)
        live = live[~world.done[live]]
