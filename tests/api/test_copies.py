"""Copies and pickles of worlds and their bindings: they continue independently from the same state."""

import copy
import pickle
import subprocess
import sys
from argparse import Namespace
from functools import partial

import gymnasium
import numpy as np
import pytest

import milkrun
from milkrun.compat.parallel.rows import handles
from milkrun.compat.vrp.env_wrappers import VRPDummyVecEnv
from milkrun.compat.vrp.VRP_env import VRPEnv
from tests.truth.test_gymnasium_conformance import assert_same

WAYS = {"deepcopy": copy.deepcopy, "pickle": lambda env: pickle.loads(pickle.dumps(env))}
TEAM = "milkrun/TruckDrone-v0"
IDLE = {"truck_0": 0, "drone_0": 0, "drone_1": 0}


class WorldAlone:
    """A world with the methods of the bindings."""

    def __init__(self, world):
        self.world = world

    def reset(self):
        self.world.reset()

    def step(self, actions):
        self.world.step(actions)
        return [{key: array.copy() for key, array in self.world.observe().items()}, self.world.reward.copy()]


def cvrp(**options):
    return milkrun.make("milkrun/CVRP-v0", seed=5, num_loc=6, **options)


ENVS = {
    "World": (lambda: WorldAlone(cvrp(num_envs=3)), np.array([1, 2, 3])),
    "World, same_step": (lambda: WorldAlone(cvrp(num_envs=3, autoreset="same_step")), np.array([1, 2, 3])),
    "World, views": (lambda: WorldAlone(milkrun.make(TEAM, 2, seed=5)), np.zeros((2, 3), int)),
    "Gymnasium, dict": (lambda: cvrp(api="gymnasium"), 1),
    "Gymnasium, flat": (lambda: cvrp(api="gymnasium", layout="flat"), 1),
    "Gymnasium, wrapped": (lambda: gymnasium.make("milkrun/TSP-v0", num_loc=5, seed=5), 1),
    "VectorEnv": (lambda: cvrp(num_envs=3, api="gymnasium"), np.array([1, 2, 3])),
    "VectorEnv, flat": (lambda: cvrp(num_envs=3, api="gymnasium", layout="flat"), np.array([1, 2, 3])),
    "VectorEnv, no copy": (lambda: cvrp(num_envs=3, api="gymnasium", copy=False), np.array([1, 2, 3])),
    "SB3": (lambda: cvrp(num_envs=3, api="sb3"), np.array([1, 2, 3])),
    "SB3, flat": (lambda: cvrp(num_envs=3, api="sb3", layout="flat"), np.array([1, 2, 3])),
    "SB3, fresh infos": (lambda: cvrp(num_envs=3, api="sb3", infos="fresh"), np.array([1, 2, 3])),
    "tianshou": (lambda: cvrp(num_envs=3, api="tianshou"), np.array([1, 2, 3])),
    "tianshou, dict": (lambda: cvrp(num_envs=3, api="tianshou", layout="dict"), np.array([1, 2, 3])),
    "MAPPO": (lambda: milkrun.make(TEAM, 2, api="mappo", seed=5), np.zeros((2, 3), int)),
    "PettingZoo": (lambda: milkrun.make(TEAM, api="pettingzoo", seed=5), IDLE),
    "RLlib": (lambda: milkrun.make(TEAM, api="rllib", seed=5), IDLE),
    "a row": (lambda: handles(cvrp(num_envs=2))[1], 1),
    "VRPEnv": (lambda: VRPEnv(Namespace(seed=5)), [0, 0, 0]),
    "VRPDummyVecEnv": (lambda: VRPDummyVecEnv([partial(VRPEnv, Namespace(seed=5))] * 2), np.zeros((2, 3), int)),
}


def plain(result):
    """Copies of what a step returned, in dicts, lists and arrays."""
    if isinstance(result, np.ndarray) and result.dtype != object:
        return result.copy()
    if hasattr(result, "items"):
        return {key: plain(value) for key, value in result.items() if key != "t"}
    if isinstance(result, (list, tuple, np.ndarray)) or type(result).__module__.startswith("milkrun"):
        return [plain(part) for part in result]
    return result


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ENVS)
def test_a_copy_goes_on_alone(name, way):
    """It returns what the original would have, and neither moves the other."""
    make, action = ENVS[name]
    env, twin = make(), make()
    for one in (env, twin):
        one.reset()
        one.step(action)
    other = WAYS[way](env)
    for _ in range(3):
        assert_same(plain(other.step(action)), plain(twin.step(action)))
    del other
    again, fresh = WAYS[way](twin), make()
    fresh.reset()
    fresh.step(action)
    for _ in range(3):
        assert_same(plain(env.step(action)), plain(fresh.step(action)))
    again.reset()
    env.reset(), fresh.reset()
    assert_same(plain(env.step(action)), plain(fresh.step(action)))


def test_a_pickle_is_played_in_another_process(tmp_path):
    """The memory travels; the kernels are found there."""
    world = cvrp(num_envs=4)
    world.reset()
    world.step(np.array([1, 2, 3, 4]))
    path = tmp_path / "world"
    path.write_bytes(pickle.dumps(world))
    script = (
        "import pickle, sys, numpy as np\n"
        "world = pickle.loads(open(sys.argv[1], 'rb').read())\n"
        "world.step(np.array([2, 3, 4, 5]))\n"
        "print(world.reward.tolist(), world.i.tolist())\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    ).stdout
    world.step(np.array([2, 3, 4, 5]))
    assert printed == f"{world.reward.tolist()} {world.i.tolist()}\n"


@pytest.mark.parametrize("api", ["gymnasium", "sb3", "tianshou"])
@pytest.mark.parametrize("layout", ["dict", "flat"])
def test_a_loaded_state_is_observed(api, layout):
    """Its instance is observed too, though the episode number does not change."""
    first, second = (milkrun.make("milkrun/TSP-v0", 2, api=api, layout=layout, num_loc=5, seed=s) for s in (1, 2))
    for env in (first, second):
        env.reset()
    second.world.load_state_dict(first.world.state_dict())
    assert_same(plain(second.step(np.array([1, 1]))), plain(first.step(np.array([1, 1]))))


def test_shared_given_instances_are_loaded_too():
    """Loading replaces their arrays by arrays of fewer rows."""
    first, second = (milkrun.make("milkrun/TSP-v0", 2, api="gymnasium", num_loc=3, seed=s) for s in (1, 2))
    locs = np.array([[[0.1, 0.1], [0.9, 0.1], [0.5, 0.8]]], np.float32)
    first.world.reset(instance={"locs": locs, "instance_row": np.zeros(2, int)})
    second.reset()
    second.world.load_state_dict(first.world.state_dict())
    obs = second.step(np.array([1, 1]))[0]
    np.testing.assert_array_equal(obs["locs"], locs.repeat(2, axis=0))
