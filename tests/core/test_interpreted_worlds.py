"""Every world plays alike interpreted and compiled: resets, steps, illegal actions, views, policies."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import milkrun
from milkrun.api import BINDINGS
from milkrun.core.check.bench import TOLERANCE, choose, differences
from milkrun.core.errors import ConfigError, MilkrunError
from milkrun.core.launcher import NO_LIMIT
from milkrun.core.registry import world_spec
from milkrun.core.sampling import random_step
from milkrun.core.world import World
from milkrun.solvers import policies_for
from tests.small import turns

TWO_OBJECTS = {
    "box_objects": ("004_sugar_box", "005_tomato_soup_can"),
    "num_objects_per_type": 1,
    "ray_samples": 2,
    "bank_size": 2,
}
COARSE = {"size": 16, "ground_cell": 10.0, "max_sim_steps": 40, "max_vehicles": 3}
CHOICES: dict[str, list[dict[str, Any]]] = {
    "CVRP": [
        {"num_loc": 8, "metric": "round", "max_loc": 100.0, "depot_type": "center", "max_length": 500.0},
        {"num_loc": 7, "metric": "matrix", "loc_distribution": "clustered", "reward": "terminal", "record": False},
        {"num_loc": 6, "metric": "haversine", "service_times": True, "max_length": 400.0, "depot_type": "corner"},
        {"num_loc": 9, "metric": "ceil", "loc_distribution": "mixed", "max_loc": 10.0, "depot_type": "customer"},
    ],
    "CVRPP": [
        {"num_loc": 7, "trips": "multi", "time_windows": True, "weight_law": "units"},
        {"num_loc": 6, "prize_distribution": "continuous", "weight_law": "one", "metric": "manhattan"},
    ],
    "CWCVRP": [
        {"num_loc": 7, "fill_distribution": "beta", "must_go": "level"},
        {"num_loc": 6, "fill_distribution": "rm_like", "trips": "single", "max_length": 3.0},
    ],
    "Clutter": [{**TWO_OBJECTS, "max_episode_steps_discrete": 2}, {**TWO_OBJECTS, "step_mode": "tick"}],
    "DARP": [
        {"num_requests": 5, "num_agents": 2, "metric": "matrix"},
        {"num_requests": 5, "num_agents": 2, "preset": "classic-b"},
        {"num_requests": 6, "num_agents": 2, "preset": "published"},
    ],
    "PCTSP": [{"num_loc": 7, "stochastic": True}, {"num_loc": 6, "metric": "matrix", "prize_required": 0.5}],
    "PDP": [
        {"num_loc": 6, "preset": "mdcpdp"},
        {"num_loc": 6, "preset": "mpdp", "metric": "matrix"},
        {"num_loc": 8, "limits": True, "time_windows": True, "fleet_costs": True, "search_limit": 1, "vehicles": 3},
    ],
    "SCWCVRP": [
        {"num_loc": 7, "recourse": "round_trip", "noise_distribution": "truncnorm"},
        {"num_loc": 6, "sigma": 0.0, "metric": "trunc1", "max_loc": 10.0},
    ],
    "SDWCVRP": [
        {"num_loc": 6, "horizon": 3, "must_go": "lookahead", "sensor_sigma": 0.1},
        {"num_loc": 5, "horizon": 2, "must_go": "service_level", "fill_distribution": "dist", "lost_weight": 0.5},
    ],
    "TSP": [
        {"num_loc": 9, "start": "free", "metric": "round", "max_loc": 50.0},
        {"num_loc": 8, "metric": "matrix", "loc_distribution": "normal", "reward": "terminal"},
    ],
    "TSPD": [{"num_nodes": 7, "law": "doublecenter"}, {"num_nodes": 6, "max_fly": 60.0, "alpha": 1.0, "max_steps": 30}],
    "TSPKopt": [
        {"num_loc": 9, "moves": "3opt", "init": "greedy", "reward_mode": "current"},
        {"num_loc": 8, "action_mode": "node", "init": "identity", "metric": "round", "max_loc": 100.0},
    ],
    "Tracking": [COARSE, {**COARSE, "curriculum": "straight", "other_state": True, "cloud": True, "lidar_points": 8}],
    "TruckDrone": [
        {"num_customers": 3, "num_route_nodes": 3, "obs": "v1", "pickup": "air", "tw_law": "band", "end": "depot"},
        {"num_customers": 3, "preset": "published"},
        {"num_customers": 2, "num_route_nodes": 4, "road_graph": True, "battery_rule": "off", "early": "ignore"},
    ],
    "VRP": [
        {"num_loc": 6, "variant": "all48"},
        {"num_loc": 5, "preset": "svrp"},
        {"num_loc": 5, "preset": "sdvrp", "metric": "matrix"},
        {"num_loc": 5, "variant": "vrpbtw", "law": "mvmoe", "vehicles": 2, "backhaul_only": False, "metric": "round"},
    ],
    "VRPP": [
        {"num_loc": 8, "trips": "multi", "prize_distribution": "dist", "max_length": 3.0},
        {"num_loc": 7, "time_windows": True, "metric": "matrix"},
    ],
    "WCVRP": [
        {"num_loc": 7, "fill_distribution": "fdf_like", "trips": "multi", "must_go": "none"},
        {"num_loc": 6, "fill_distribution": "constant", "capacity": 2.0},
    ],
}
"""Options besides the defaults that use other kernels."""


def name_of(id: str) -> str:
    return world_spec(id).name


def test_every_world_is_here():
    """A new world needs its options here."""
    assert {name_of(id) for id in milkrun.list_worlds()} == set(CHOICES)


CASES = [(id, options) for id in milkrun.list_worlds() for options in CHOICES[name_of(id)]]


@pytest.mark.parametrize(("id", "options"), CASES, ids=lambda case: case if isinstance(case, str) else "")
def test_interpreted_and_compiled_play_are_alike(id, options):
    """All fields after every call of a play with illegal actions and autoreset; draws; every policy; `play_out`."""
    play_both_ways(id, 2, turns(id, 24, 12), options)


def play_both_ways(id: str, rows: int, turns: int, options: dict[str, Any]) -> None:
    worlds = [milkrun.make(id, rows, seed=11, debug=debug, **options) for debug in (True, False)]
    interpreted, compiled = worlds
    rng = np.random.default_rng(5)
    for world in worlds:
        world.reset()
    same(worlds, "after a reset")
    for turn in range(turns):
        actions = choose(compiled, rng, 0.2)
        for world in worlds:
            world.step(actions)
            if turn % 4 == 0:
                world.observe()
        same(worlds, f"in turn {turn}", on_demand=turn % 4 == 0)
    for seed, turn in ((0, 0), (3, 99)):
        drawn = [world.sample_actions(seed, turn) for world in worlds]
        assert np.allclose(*drawn, TOLERANCE, TOLERANCE)
    for name, factory in policies_for(id).items():
        for world in worlds:
            world.reset(seed=2)
        for _ in range(3):
            try:
                chosen = [np.asarray(factory(0)(world)) for world in worlds]
            except MilkrunError:  # a policy for another configuration
                break
            assert np.allclose(*chosen, TOLERANCE, TOLERANCE), name
            for world, actions in zip(worlds, chosen):
                world.step(actions)
        same(worlds, f"by the policy {name}")
    if compiled.action.kind == "discrete" and compiled.max_steps != NO_LIMIT and compiled.mask_lists_all:
        for world in worlds:
            world.reset(seed=3)
        assert interpreted.play_out(random_step, 7) == compiled.play_out(random_step, 7) > 0
        same(worlds, "after play_out")


def same(worlds: list[World], when: str, *, on_demand: bool = False) -> None:
    """Whole numbers and flags are equal in every field, floats within the tolerance of check_world."""
    assert list(differences(*worlds, f"compiled, {when}", on_demand=on_demand, tolerance=TOLERANCE)) == []


# -- bindings -----------------------------------------------------------------------------------------------------


PACKAGES = {"sb3": "stable_baselines3", "rllib": "ray", "mappo": "numpy"}
"""The package of a binding, where the name differs."""
ONE_ROW = ("pettingzoo", "rllib")


@pytest.mark.parametrize(("api", "options"), [*((name, {}) for name in BINDINGS), ("torchrl", {"stepping": "inplace"})])
def test_bindings_hand_debug_on(api, options, monkeypatch):
    """Every world behind an environment has the `debug` given to `make`: some worlds are made at the first reset, or in
    a copy."""
    pytest.importorskip(PACKAGES.get(api, api))
    made = []
    begin = World.__init__

    def noted(world, *args, **kwargs):
        begin(world, *args, **kwargs)
        made.append((type(world).__name__, world.debug))

    monkeypatch.setattr(World, "__init__", noted)
    for debug in (True, "bounds", False):
        made.clear()
        rows = None if api in ONE_ROW else 2
        env = milkrun.make("milkrun/TSP-v0", rows, api=api, num_loc=4, seed=0, debug=debug, **options)
        for one in (env, copy.deepcopy(env)):
            one.reset()
        played = [entry for entry in made if api != "rl4co" or entry[0] != "TSP"]  # RL4CO's generator draws apart
        assert {interpreted for _, interpreted in played} == {debug}, made


def test_functional_steps_are_alike():
    """TorchRL's functional steps run the same interpreted kernels."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchrl")
    ends = []
    for debug in (True, False):
        env = milkrun.make("milkrun/CVRP-v0", 3, api="torchrl", num_loc=6, seed=3, debug=debug)
        torch.manual_seed(0)
        td = env.reset()
        for _ in range(12):
            td = env.step(env.rand_action(td))["next"]
        ends.append(td)
    names = list(ends[0].keys(True, True))
    assert "action_mask" in names
    for name in names:
        torch.testing.assert_close(ends[0][name], ends[1][name])


# -- every choice of every option ---------------------------------------------------------------------------------


def one_change(id: str) -> Iterator[dict[str, Any]]:
    """The defaults, every preset, and every choice that differs from the defaults in one option."""
    config = world_spec(id).load().Config
    yield {}
    for preset in config.presets:
        yield {"preset": preset}
    for f in dataclasses.fields(config):
        choices = f.metadata.get("choices") or ((True, False) if isinstance(f.default, bool) else ())
        for choice in choices:
            if choice != f.default:
                yield {f.name: choice}


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("id", milkrun.list_worlds())
def test_every_choice_plays_alike(id):
    """The same for each value of each option that has a list of them; a choice that needs files is left out."""
    played = 0
    for options in one_change(id):
        try:
            milkrun.make(id, 2, debug=True, **options)
        except ConfigError:
            continue
        play_both_ways(id, 2, 40, options)
        played += 1
    assert played > 1
