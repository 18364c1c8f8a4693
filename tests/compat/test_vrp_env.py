"""The list API of truck and drones: all numbers are those of the row, across ends and seeds, without shared memory."""

import re
from argparse import Namespace

import numpy as np
import pytest

import milkrun
from milkrun.compat.vrp.core import World
from milkrun.compat.vrp.environment import MultiAgentVRPEnv
from milkrun.compat.vrp.VRP_env import VRPEnv
from milkrun.core.errors import Closed, ConfigError, ResetNeeded

TRUCK_DRONE = "milkrun/TruckDrone-v0"
KEYS = [
    "available_actions",
    "customers_served",
    "executed_action",
    "forced",
    "illegal",
    "policy_id",
    "share_obs",
    "time_step",
    "total_customers",
]

EXAMPLE = """
from argparse import Namespace
from milkrun.compat.vrp.VRP_env import VRPEnv

# 创建配置
args = Namespace(
    scenario_name='truck_drone_basic',
    num_drones=2,
    num_customers=3,
    num_route_nodes=5,
    episode_length=200,
    delivery_threshold=0.05,
    recovery_threshold=0.1
)

# 创建环境
env = VRPEnv(args)

# 查看空间信息
print(f"Agent 数量: {env.n}")
print(f"动作空间: {env.action_space}")
print(f"观测空间: {[s.shape for s in env.observation_space]}")
print(f"共享观测空间: {env.share_observation_space[0].shape}")

# 运行一个 episode
obs_n = env.reset()
for step in range(200):
    # 随机动作
    actions = [space.sample() for space in env.action_space]
    obs_n, reward_n, done_n, info_n = env.step(actions)

    if all(done_n):
        print(f"Episode 在第 {step} 步结束")
        break

env.close()
"""


def row(preset="published", seed=5, **options):
    """A world of one row that only the test steps."""
    return milkrun.make(TRUCK_DRONE, 1, preset=preset, seed=seed, autoreset="disabled", **options)


def straight_line(seed=0):
    """One drone, one customer half a unit to the east, available all day: a row for calculations by hand."""
    env = VRPEnv(Namespace(num_drones=1, num_customers=1, seed=seed))
    env.world.batch.reset(
        instance={"customer_pos": [[[0.5, 0.0]]], "demand": [[1.0]], "tw_start": [[0]], "tw_end": [[200]]}
    )
    return env


def seen_by(world, agent):
    """The observation of an agent of row 0, padded as the specification requires."""
    own = world.truck_obs[0, 0] if agent == 0 else world.drone_obs[0, agent - 1]
    width = max(world.truck_obs.shape[-1], world.drone_obs.shape[-1])
    return np.concatenate([own, np.zeros(width - len(own), np.float32)])


def mask_of(world, agent):
    own = world.truck_mask[0, 0] if agent == 0 else world.drone_mask[0, agent - 1]
    return own.astype(np.float32)


def assert_bits(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def assert_row(world, obs_n, reward_n, done_n, info_n):
    """Compares the result of a step with the fields of row 0."""
    agents = world.sizes["A"]
    assert [len(x) for x in (obs_n, reward_n, done_n, info_n)] == [agents] * 4
    assert reward_n == [[world.reward_exact[0]]] * agents and type(reward_n[0][0]) is float
    assert done_n == [bool(world.terminated[0] or world.truncated[0])] * agents and type(done_n[0]) is bool
    forced = [False, *world.forced[0].tolist()]
    for a in range(agents):
        info = info_n[a]
        assert sorted(info) == KEYS
        assert_bits(obs_n[a], seen_by(world, a))
        assert_bits(info["available_actions"], mask_of(world, a))
        assert_bits(info["share_obs"], world.state[0])
        said = {key: info[key] for key in KEYS if key not in ("available_actions", "share_obs")}
        assert said == {
            "customers_served": int(world.served[0].sum()),
            "executed_action": int(world.executed[0, a]),
            "forced": forced[a],
            "illegal": bool(world.illegal_agents[0, a]),
            "policy_id": min(a, 1),
            "time_step": int(world.i[0]),
            "total_customers": world.sizes["C"],
        }


def test_the_usage_example_runs_and_prints_its_numbers(capsys):
    """Only the import line is changed: 3 agents, Discrete(10), (5), (5), observations of 38, a state of 34."""
    exec(EXAMPLE, {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "Agent 数量: 3",
        "动作空间: [Discrete(10), Discrete(5), Discrete(5)]",
        "观测空间: [(38,), (38,), (38,)]",
        "共享观测空间: (34,)",
    ]
    ended = re.fullmatch(r"Episode 在第 (\d+) 步结束", lines[4])
    assert ended and int(ended[1]) <= 199 and len(lines) == 5


SETTINGS = {
    "seed": {},
    "published, five drones": {"num_drones": 5, "num_customers": 4, "num_route_nodes": 3, "episode_length": 30},
    "published, wide reach": {"delivery_threshold": 0.3, "recovery_threshold": 0.4, "episode_length": 25},
    "default": {"preset": "default", "episode_length": 40},
}


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("masked", [True, False])
def test_two_hundred_random_steps_are_a_row_of_the_world(options, masked):
    """Observations, masks, shared observations, rewards, ends and infos to the bit, through several episodes."""
    env, world = VRPEnv(Namespace(seed=5, **options)), row(**options)
    rng = np.random.default_rng(len(options) + masked)
    ends = 0
    for step in range(200):
        if step == 0 or world.done[0]:
            obs_n = env.reset()
            world.reset()
            for a in range(env.n):
                assert_bits(obs_n[a], seen_by(world, a))
                assert_bits(env.available_actions()[a], mask_of(world, a))
            assert_bits(env.share_obs(), world.state[0])
        actions = [int(rng.integers(space.n)) for space in env.action_space]
        if masked:
            actions = world.sample_actions(3, step)[0].tolist()
        result = env.step(actions)
        world.step([actions])
        assert_row(world, *result)
        assert (env.current_step, env.world_length) == (world.i[0], world.config.episode_length)
        ends += all(result[2])
    assert ends >= 1


def test_a_delivery_by_hand():
    """Release, then three flights of .2 towards .5: 5 + 100 - .1 - .01 * .001 on arrival, the battery .001 a hover."""
    env = straight_line()
    rewards, masks = [], []
    for actions in ([6, 0], [0, 2], [0, 2], [0, 2]):
        _, reward_n, done_n, info_n = env.step(actions)
        rewards.append(reward_n[0][0])
        masks.append(["".join(str(int(x)) for x in info["available_actions"]) for info in info_n])
    assert rewards == pytest.approx([-0.10001, -0.10002, -0.10002, 104.89999], abs=1e-12)
    assert masks[0] == ["11111101", "111"] and masks[1] == ["11111100", "101"]
    assert done_n == [True, True]
    assert masks[3] == ["10000000", "100"]
    assert [info["customers_served"] for info in info_n] == [1, 1]


def test_only_its_drone_gets_the_flag_of_a_forced_return():
    """Published rules: a battery of .001 does not bring a drone home from .3, so DELIVER becomes RETURN."""
    env = straight_line()
    env.step([6, 0])
    env.step([0, 2])
    env.world.batch.battery[0, 0] = 0.001
    *_, info_n = env.step([0, 2])
    assert [info["forced"] for info in info_n] == [False, True]
    assert info_n[1]["executed_action"] == 1


def test_unknown_attributes_of_a_namespace_are_ignored():
    """Forty attributes that are not ours have no effect; ours do."""
    foreign = {f"trainer_option_{k}": k for k in range(38)} | {"num_envs": 8, "illegal": "raise"}
    assert len(foreign) == 40
    env = VRPEnv(Namespace(**foreign, num_drones=1, num_customers=4, num_route_nodes=3, episode_length=50, seed=9))
    plain = VRPEnv(Namespace(num_drones=1, num_customers=4, num_route_nodes=3, episode_length=50, seed=9))
    assert [space.n for space in env.action_space] == [6, 6]
    assert (env.n, env.world_length) == (2, 50)
    for a, b in zip(env.reset(), plain.reset()):
        assert_bits(a, b)


def test_absent_attributes_come_from_the_preset():
    """An empty Namespace is the preset "published"; "default" has its own sizes and weights."""
    assert milkrun.delivery.VRPEnv is VRPEnv
    env, default = VRPEnv(Namespace()), VRPEnv(Namespace(preset="default"))
    assert env.world.batch.config == row().config
    assert env.world.batch.stream[0].tolist() == [0, 0, -1]
    assert default.world.batch.config == row("default").config
    assert (default.scenario.completion_bonus, env.scenario.completion_bonus) == (20.0, 100.0)


def test_roads_are_switched_on_by_a_flag():
    """Under "default" the truck may then only go to neighbours of the depot; False, as set by parsers, means no
    roads."""
    roads = VRPEnv(Namespace(preset="default", num_route_nodes=9, road_graph=True))
    roads.reset()
    batch = roads.world.batch
    open_nodes = roads.available_actions()[0][1:10]
    assert batch.config.road_graph and open_nodes.tolist() == batch.road[0, 0].astype(np.float32).tolist()
    assert 1 < open_nodes.sum()
    assert VRPEnv(Namespace(road_graph=False)).world.batch.config == row().config


def test_spaces_and_widths():
    """Published: unbounded boxes as in the public code; default: finite ones, which contain all observations."""
    env, default = VRPEnv(Namespace()), VRPEnv(Namespace(preset="default"))
    assert (env.max_obs_dim, env.raw_obs_dims) == (38, [38, 33, 33])
    assert all(np.isinf(box.low).all() and np.isinf(box.high).all() for box in env.observation_space)
    assert all(np.isinf(box.low).all() for box in env.share_observation_space)
    assert (default.max_obs_dim, default.raw_obs_dims) == (90, [90, 80, 80])
    assert [box.shape for box in default.share_observation_space] == [(87,)] * 3
    for obs, box in zip(default.reset(), default.observation_space):
        assert np.isfinite(box.high).all() and obs in box and box.dtype == np.float32
    assert default.share_obs() in default.share_observation_space[0]


def test_a_finished_or_unbegun_episode_is_not_stepped():
    """ResetNeeded before the first reset and after an end, until a reset."""
    env = VRPEnv(Namespace(episode_length=3))
    with pytest.raises(ResetNeeded):
        env.step([0, 0, 0])
    env.reset()
    assert [env.step([0, 0, 0])[2] for _ in range(3)] == [[False] * 3, [False] * 3, [True] * 3]
    with pytest.raises(ResetNeeded, match="row 0"):
        env.step([0, 0, 0])
    env.reset()
    assert env.step([0, 0, 0])[2] == [False] * 3
    env.close()
    with pytest.raises(Closed):
        env.step([0, 0, 0])


def test_seeds_are_streams():
    """`args.seed` = s starts with (s, 0, 0), further resets count episodes, `seed` applies to the next reset."""
    env, other = VRPEnv(Namespace(seed=4)), VRPEnv(Namespace(seed=4))
    first, second = env.reset(), env.reset()
    assert env.world.batch.stream[0].tolist() == [4, 0, 1]
    assert not np.array_equal(first[0], second[0])
    other.seed(11)
    other.seed(4)
    for a, b in zip(first, other.reset()):
        assert_bits(a, b)
    other.seed(11)
    other.step([0, 0, 0])
    assert other.world.batch.stream[0].tolist() == [4, 0, 0]
    other.reset()
    assert other.world.batch.stream[0].tolist() == [11, 0, 0]
    other.seed(None)
    other.reset()
    assert other.world.batch.stream[0].tolist() == [11, 0, 1]
    for bad in (-1, 1.5, 2**63):
        with pytest.raises(ConfigError):
            env.seed(bad)
    with pytest.raises(ConfigError):
        VRPEnv(Namespace(seed="one"))


def test_returned_arrays_belong_to_the_caller():
    """No array of a call shares memory with another one, with the world, or with the result of a later call."""
    env = VRPEnv(Namespace(seed=1))
    handed = list(env.reset()) + env.available_actions() + [env.share_obs()]
    for actions in ([6, 0, 0], [7, 2, 0], [1, 2, 3]):
        obs_n, _, _, info_n = env.step(actions)
        handed += obs_n
        handed += [info[key] for info in info_n for key in ("available_actions", "share_obs")]
    before = [array.copy() for array in handed]
    for k, array in enumerate(handed):
        assert array.flags.writeable
        assert not any(np.shares_memory(array, other) for other in handed[:k])
    world = env.world.batch
    for name in ("truck_obs", "drone_obs", "state", "action_mask"):
        assert not any(np.shares_memory(array, getattr(world, name)) for array in handed)
    env.step([2, 2, 2])
    env.reset()
    assert all(np.array_equal(a, b) for a, b in zip(handed, before))
    expected = env.observations()
    for array in handed:
        array[:] = 7
    assert all(np.array_equal(a, b) for a, b in zip(env.observations(), expected))


def test_a_row_of_a_larger_world_plays_alone():
    """An environment on row 1 of three: the others do not change, and its numbers are those of that row."""
    batch = milkrun.make(TRUCK_DRONE, 3, preset="published", seed=5, autoreset="disabled", max_steps=4)
    batch.reset()
    env = MultiAgentVRPEnv(World.of(batch, 1))
    alone = milkrun.make(TRUCK_DRONE, 1, preset="published", seed=5, first_row=1, autoreset="disabled", max_steps=4)
    alone.reset()
    for actions in ([6, 0, 0], [7, 2, 0], [1, 2, 3], [2, 1, 3]):
        result = env.step(actions)
        alone.step([actions])
        assert_row(alone, *result)
    assert batch.i.tolist() == [0, 4, 0] and result[2] == [True] * 3
    env.reset()
    assert batch.i.tolist() == [0, 0, 0] and batch.stream[:, 2].tolist() == [0, 1, 0]
    with pytest.raises(ConfigError, match="disabled"):
        MultiAgentVRPEnv(World.of(milkrun.make(TRUCK_DRONE, 2, preset="published")))


def test_render_prints_a_line_for_each_entity(capsys):
    """Truck, drone and customer after the delivery by hand; the error on another mode names it."""
    env = straight_line()
    for actions in ([6, 0], [1, 2], [1, 2], [1, 2]):
        env.step(actions)
    env.render()
    assert capsys.readouterr().out.splitlines() == [
        "step 4 truck_0 at (0.300, 0.000) node 0 bound for 0",
        "drone_0 flying at (0.500, 0.000) battery 0.994 carrying None",
        "customer_0 at (0.500, 0.000) window [0, 200] served at step 4",
    ]
    assert env.render("rgb_array").shape == (512, 512, 3)
    with pytest.raises(ConfigError, match="ansi"):
        env.render("ansi")
