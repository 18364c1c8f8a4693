"""No binding changes arrays that it has returned, or the random state of the process.

Each way to play is a generator of the results of its calls, with the number of episodes that ended in each.
"""

import gc
import random
import tracemalloc
import zlib
from argparse import Namespace
from functools import partial

import numpy as np
import pytest
import torch
from tensordict import TensorDictBase

import milkrun
from milkrun.api.gymnasium import MilkrunEnv, MilkrunVectorEnv
from milkrun.api.rl4co import CVRPEnv
from milkrun.api.sb3 import Async_SubprocVecEnv
from milkrun.api.tianshou import SubprocVecEnv_TS
from milkrun.compat.dat import Envs, handles
from milkrun.compat.vrp.env_wrappers import VRPDummyVecEnv
from milkrun.compat.vrp.VRP_env import VRPEnv
from tests.api.tianshou_tools import plain
from tests.api.torchrl_tools import global_states, leaves
from tests.truth.binding_players import PLAYERS
from tests.truth.test_cross_binding import TEAM
from tests.truth.test_gymnasium_conformance import arrays_in

pytestmark = pytest.mark.truth
CVRP, TRUCK_DRONE = "milkrun/CVRP-v0", "milkrun/TruckDrone-v0"
SMALL = {CVRP: {"num_loc": 4}, TRUCK_DRONE: TEAM}
SEED = 4


def first_allowed(masks, turn):
    """The first and the last allowed action of each mask, alternately."""
    masks = np.asarray(masks).astype(bool)
    return masks.argmax(1) if turn % 2 else masks.shape[1] - 1 - masks[:, ::-1].argmax(1)


def played(player_class, id):
    """A batch, or a row, of a binding; its actions come from a separate World."""
    rows = 1 if player_class.one_row else 5
    player = player_class(id, rows, SEED, SMALL[id])
    world = milkrun.make(id, rows, seed=SEED, autoreset="disabled", **SMALL[id])
    world.reset()
    yield player.begin(), 0, player.world
    turn = 0
    while True:
        actions = world.sample_actions(1, turn)
        world.step(actions)
        yield player.turn(actions).handed, int(world.done.sum()), player.world
        if world.done.any():
            world.reset(world.done.copy())
        turn += 1


def next_step_rows(id):
    env = MilkrunVectorEnv(5, id, **SMALL[id])
    yield env.reset(seed=SEED), 0, env.world
    turn = 0
    while True:
        handed = env.step(env.world.sample_actions(1, turn))
        yield handed, int((handed[2] | handed[3]).sum()), env.world
        turn += 1


def handles_of_a_world(id):
    world = milkrun.make(id, 5, **SMALL[id])
    with Envs(5, handles(world)) as envs:
        yield envs.reset(seed=SEED), 0, world
        turn = 0
        while True:
            handed = (*envs.step(world.sample_actions(1, turn)), envs.terminated, envs.truncated, envs.infos)
            yield handed, int(handed[2].sum()), world
            turn += 1


def envs_in_threads(id):
    items = [MilkrunEnv(id, layout="flat", **SMALL[id]) for _ in range(3)]
    with Envs(3, items) as envs:
        yield envs.reset(seed=SEED), 0, None
        turn = 0
        while True:
            actions = first_allowed([item.action_masks() for item in items], turn)
            handed = (*envs.step(actions), envs.terminated, envs.truncated, envs.infos)
            yield handed, int(handed[2].sum()), None
            turn += 1


def sb3_processes(id):
    env = Async_SubprocVecEnv([partial(MilkrunEnv, id, **SMALL[id])] * 2, "fork")
    try:
        env.seed(SEED)
        yield (env.reset(), env.reset_infos), 0, None
        turn = 0
        while True:
            masks = env.env_method("action_masks")
            handed = env.step(first_allowed(masks, turn))
            yield (handed, masks, env.reset_infos), int(handed[2].sum()), None
            turn += 1
    finally:
        env.close()


def tianshou_processes(id):
    env = SubprocVecEnv_TS([partial(MilkrunEnv, id, **SMALL[id])] * 2, context="fork", share_memory=True)
    try:
        env.seed(SEED)
        handed = env.reset()
        turn = 0
        yield plain(handed), 0, None
        while True:
            handed = env.step(first_allowed(handed[0].mask, turn))
            yield plain(handed), int((handed[2] | handed[3]).sum()), None
            turn += 1
    finally:
        env.close()


def rl4co(id):
    env = CVRPEnv(generator_params={"num_loc": 4}, seed=SEED)
    while True:
        td = env.reset(batch_size=[5])
        yield td.clone(recurse=False), 0, None
        while not td["done"].all():
            td["action"] = torch.from_numpy(first_allowed(td["action_mask"], int(td["visited"].sum())))
            td = env.step(td)["next"]
            yield td.clone(recurse=False), 0, None
        yield td, 5, None


def list_environments(id):
    """The published list interface of truck and drones, whose arguments determine the seed."""
    env = VRPDummyVecEnv([partial(VRPEnv, Namespace(seed=SEED + i, episode_length=12)) for i in range(3)])
    yield (env.reset(), env.reset_infos), 0, None
    idle = np.zeros((3, len(env.action_space), 1), int)
    while True:
        handed = env.step(idle)
        yield handed, int(np.all(handed[2], 1).sum()), None


WAYS = {(player.__name__, id): partial(played, player, id) for player in PLAYERS for id in SMALL}
WAYS |= {
    (way.__name__, CVRP): partial(way, CVRP)
    for way in (next_step_rows, handles_of_a_world, envs_in_threads, sb3_processes, tianshou_processes, rl4co)
}
WAYS[list_environments.__name__, TRUCK_DRONE] = partial(list_environments, TRUCK_DRONE)
by_way = pytest.mark.parametrize("way", WAYS.values(), ids=["-".join(key) for key in WAYS])


def arrays_of(handed):
    """Every array in the result of a call; tensors as arrays on the same memory."""
    if isinstance(handed, TensorDictBase):
        return [tensor.numpy() for tensor in leaves(handed).values()]
    return list(arrays_in(handed))


@by_way
def test_returned_arrays_are_never_changed(way):
    """Returned arrays keep their bytes through 100 ends and the following episodes, and share no memory with the world
    inside."""
    handed, sums, ends = [], [], 0
    calls = way()
    while ends < 100:
        returned, ended, world = next(calls)
        fresh = arrays_of(returned)
        handed += fresh
        sums += [zlib.crc32(array.tobytes()) for array in fresh]
        ends += ended
    for _ in range(20):
        returned, _, world = next(calls)
    if world is not None:
        memory = [getattr(world, name) for name, field in world.fields.items() if field.per_row]
        assert not any(np.shares_memory(a, m) for a in arrays_of(returned) for m in memory if m.size)
    calls.close()
    assert len(handed) > 300
    assert [zlib.crc32(array.tobytes()) for array in handed] == sums


@by_way
def test_global_random_state_is_neither_read_nor_written(way):
    """100 calls, with ends, under two seeds of numpy, torch and Python: the same bytes, and unchanged states."""
    kept = np.random.get_state(), random.getstate()
    outputs = []
    try:
        with torch.random.fork_rng(devices=[]):
            for s in (1, 2):
                np.random.seed(s)
                random.seed(s)
                torch.manual_seed(s)
                before, calls, ends = global_states(), way(), 0
                outputs.append([])
                for _ in range(100):
                    returned, ended, _ = next(calls)
                    outputs[-1] += [array.tobytes() for array in arrays_of(returned)]
                    ends += ended
                calls.close()
                assert global_states() == before
                assert ends >= 2
    finally:
        np.random.set_state(kept[0])
        random.setstate(kept[1])
    assert outputs[0] == outputs[1]


@pytest.mark.long
@by_way
def test_calls_leave_no_memory_behind(way):
    """2,000 calls, after 3,000 before them, make Python and numpy hold less than 20 kB more."""
    calls, marks = way(), []
    for _ in range(1_000):
        next(calls)
    tracemalloc.start()
    for _ in range(2):
        for _ in range(2_000):
            next(calls)
        gc.collect()
        marks.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    calls.close()
    assert marks[1] - marks[0] < 20_000
