"""Fields as spaces, on toy worlds that have what routing has not: agents in groups, numbers as actions, an image."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv

import milkrun
from milkrun.api._spaces import Observer, field_space
from milkrun.api.gymnasium import MilkrunEnv, MilkrunVectorEnv
from milkrun.core.actions import agents, box
from milkrun.core.errors import ConfigError
from milkrun.core.fields import bool_, float32, float64, int16, int32, int64, mask, state, uint8, view
from milkrun.core.kernels import kernel
from milkrun.core.layouts import layouts
from milkrun.core.world import World
from tests.core.toys import Drifter, Glider, Lantern
from tests.truth.test_gymnasium_conformance import assert_same_step


@kernel
def draw_nothing(w, b):
    pass


@kernel
def yard_reset(w, b):
    w.moved[b] = 0
    yard_look(w, b)


@kernel
def yard_step(w, b, action):
    w.moved[b] += 1 + action[0]
    w.reward[b] = action[1] - action[2]
    w.terminated[b] = w.moved[b] >= 6
    yard_look(w, b)


@kernel
def yard_look(w, b):
    w.truck_obs[b, 0, 0] = w.moved[b]
    w.truck_obs[b, 0, 1] = -1
    for d in range(w.D):
        w.drone_obs[b, d, 0] = 10 * d + w.moved[b]
    w.state[b, 0] = 100 + w.moved[b]
    for j in range(3 + 2 * w.D):
        w.action_mask[b, j] = True
    w.action_mask[b, 2] = w.moved[b] != 2


class Yard(World):
    """A truck with three actions and two drones with two; the third of the truck is closed at moved = 2."""

    id = "test/Yard-v0"
    action = agents(truck=(1, 3), drone=("D", 2))

    moved = state(int64, low=0)
    truck_obs = view(float32, 1, 2, observed=True)
    drone_obs = view(float32, "D", 1, observed=True)
    action_mask = mask("M")
    state = view(float32, 1, observed=True)

    @classmethod
    def size_of(cls, config):
        return {"D": 2, "M": 7}


Yard.bind(generate=draw_nothing, reset=yard_reset, step=yard_step)


@kernel
def field_reset(w, b):
    w.x[b] = 0.25
    w.turns[b] = 0


@kernel
def field_step(w, b, action):
    w.x[b] += action[0] / 4
    w.turns[b] += 1
    w.reward[b] = action[1]
    w.bumped[b] = w.x[b] > 1
    w.terminated[b] = w.turns[b] == 3


@kernel
def field_observe(w, b):
    for j in range(4):
        w.image[b, 0, j] = 255 if j <= 4 * w.x[b] else 0
    w.place[b] = w.x[b]
    w.phase[b] = w.turns[b]


class Meadow(World):
    """Two numbers as action, an image computed on demand, a float64 and a narrow index."""

    id = "test/Meadow-v0"
    action = box(2)

    x = state(float64, low=-9, high=9)
    turns = state(int64, low=0)
    image = view(uint8, 1, 4, primary=True, on_demand=True)
    place = view(float64, observed=True, on_demand=True, low=-9, high=9)
    phase = view(int16, index="P", observed=True, on_demand=True)
    bumped = view(bool_, doc="left the meadow on the last step")

    @classmethod
    def size_of(cls, config):
        return {"P": 4}


Meadow.bind(generate=draw_nothing, reset=field_reset, step=field_step, observe=field_observe)


def env_of(cls, **options):
    return MilkrunEnv(world=cls(1, autoreset="disabled"), **options)


CASES = [(Yard, "dict"), (Yard, "flat"), (Meadow, "view"), (Meadow, "dict"), (Meadow, "flat")]


@pytest.mark.parametrize(("cls", "layout"), CASES)
@pytest.mark.filterwarnings("error")
def test_toy_worlds_pass_gymnasiums_checker(cls, layout):
    """Spaces, dtypes and determinism of agents in groups, of boxes and of images."""
    check_env(env_of(cls, layout=layout), skip_render_check=True, skip_close_check=True)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize(("cls", "layout"), CASES)
def test_toy_worlds_equal_sync_vector_env(cls, layout, mode):
    """What holds for routing holds for agents, boxes and images: the batch is the single rows."""
    autoreset = {"NextStep": "next_step", "SameStep": "same_step", "Disabled": "disabled"}[mode]
    ours = MilkrunVectorEnv(3, world=cls(3, autoreset=autoreset), layout=layout, autoreset_mode=mode)
    sync = SyncVectorEnv([lambda: env_of(cls, layout=layout)] * 3, autoreset_mode=mode)
    ours.reset(seed=5)
    sync.reset(seed=5)
    ours.action_space.seed(3)
    for _ in range(40):
        done = assert_same_step(ours, sync, ours.action_space.sample())
        if mode == "Disabled" and done.any():
            ours.reset(options={"reset_mask": done})
            sync.reset(options={"reset_mask": done})


def test_groups_are_shown_by_name_and_masks_one_after_another():
    """truck (1, 2), drone (2, 1), state (1,), 3 + 2 + 2 mask entries; actions 3, 2, 2."""
    env = env_of(Yard)
    assert env.action_space == spaces.MultiDiscrete([3, 2, 2])
    assert {k: s.shape for k, s in env.observation_space.items()} == {
        "truck": (1, 2),
        "drone": (2, 1),
        "action_mask": (7,),
        "state": (1,),
    }
    env.reset()
    obs, reward, *_ = env.step(np.array([1, 1, 0]))
    assert reward == 1
    assert obs["truck"].tolist() == [[2, -1]]
    assert obs["drone"].tolist() == [[2], [12]]
    assert obs["state"].tolist() == [102]
    assert obs["action_mask"].tolist() == [1, 1, 0, 1, 1, 1, 1]
    assert env.action_masks().tolist() == [True, True, False, True, True, True, True]


def test_finished_agents_may_do_action_0_each():
    """moved = 6 ends the row: one allowed action an agent, the first."""
    env = env_of(Yard, layout="flat")
    env.reset()
    env.step([2, 0, 0])
    obs, _, terminated, _, info = env.step([2, 0, 0])
    assert terminated
    assert info["action_mask"].tolist() == [1, 0, 0, 1, 0, 1, 0]
    assert obs.tolist() == [6, -1, 6, 16, 106]


@pytest.mark.parametrize("layout", ["dict", "flat"])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_a_mask_of_size_0_is_in_no_space_and_no_info(mode, layout):
    """As if it were not declared, in what a reset, a step and an end return."""
    for cls in (Glider, Drifter):
        env = MilkrunVectorEnv(2, world=cls(2, autoreset=mode), autoreset_mode=mode, layout=layout)
        shown = [env.reset(seed=3, options={"instance": {"wind": [1.0, 0.0]}})]
        shown += [env.step(np.ones((2, 2), np.float32)) for _ in range(2)]
        keys = [sorted({*turn[-1], *turn[-1].get("final_info", ())}) for turn in shown]
        if cls is Glider:
            wanted, space = keys, env.single_observation_space
    assert keys == wanted and env.single_observation_space == space and env.world.done.tolist() == [True, False]
    with pytest.raises(ConfigError, match="no action mask"):
        env.action_masks()


@pytest.mark.parametrize("layout", ["view", "dict", "flat"])
def test_a_turn_paints_each_image_once(layout):
    """None is painted before the first reset; a row that ends in the same step is painted at its end and after its
    reset."""
    for mode, ends in (("next_step", 1), ("same_step", 2)):
        world = Lantern(2, seed=1, autoreset=mode)
        env = MilkrunVectorEnv(2, world=world, layout=layout, autoreset_mode=mode)
        assert world.looks.tolist() == [0, 0]
        env.reset(options={"instance": {"goal": [2, 5]}})
        env.step([1, 1])
        assert world.looks.tolist() == [2, 2]
        env.step([1, 1])
        assert world.done.tolist() == [True, False] and world.looks.tolist() == [2 + ends, 3]


def test_view_layout_is_the_image_and_the_rest_is_info():
    """x = 0.25 + 1/4 lights three of four pixels; place and phase are not part of the view and are in the info."""
    env = env_of(Meadow)
    assert layouts(env.world) == ("view", "dict", "flat")
    assert env.observation_space == spaces.Box(0, 255, (1, 4), np.uint8)
    assert env.action_space == spaces.Box(-1, 1, (2,), np.float32)
    obs, info = env.reset()
    assert obs.tolist() == [[255, 255, 0, 0]]
    assert set(info) == {"place", "phase"}
    obs, reward, _, _, info = env.step(np.array([1, 0.5]))
    assert (obs.tolist(), reward) == ([[255, 255, 255, 0]], 0.5)
    assert (info["place"].tolist(), info["place"].dtype) == ([0.5], np.float32)
    assert (info["phase"], info["illegal"]) == (1, False)
    assert "bumped" not in info
    env.step(np.array([0, 2.0]))
    *_, terminated, _, info = env.step(np.array([1, np.nan]))
    assert (terminated, info["illegal"]) == (False, True)
    env.step(np.ones(2))
    *_, terminated, _, info = env.step(np.ones(2))
    assert terminated
    assert {k: info[k] for k in ("bumped", "episode_steps", "objective")} == {
        "bumped": False,
        "episode_steps": 5,
        "objective": 2.5,
    }
    with pytest.raises(ConfigError, match="no action mask"):
        env.action_masks()


def test_flat_layout_is_the_fields_in_order_with_choices_one_hot():
    """Four pixels, the place, then phase 2 of 4 one-hot."""
    env = env_of(Meadow, layout="flat")
    env.reset()
    env.step(np.zeros(2, np.float32))
    obs, *_ = env.step(np.zeros(2, np.float32))
    assert obs.tolist() == [255, 255, 0, 0, 0.25, 0, 0, 1, 0]
    assert env.world.observe(layout="flat").tolist() == [obs.tolist()]
    assert env.observation_space.low.tolist() == [0, 0, 0, 0, -9, 0, 0, 0, 0]
    assert env.observation_space.high.tolist() == [255, 255, 255, 255, 9, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("field", "space"),
    [
        (state(float32, "N", 2), spaces.Box(-1e9, 1e9, (5, 2), np.float32)),
        (state(float64, low=0), spaces.Box(0, 1e9, (1,), np.float32)),
        (state(bool_, "N"), spaces.Box(0, 1, (5,), np.int8)),
        (state(bool_), spaces.Box(0, 1, (1,), np.int8)),
        (state(int16, index="N"), spaces.Discrete(5)),
        (state(int64, 3, index="N"), spaces.Box(0, 4, (3,), np.int64)),
        (state(int32, low=2, high="N"), spaces.Box(2, 5, (1,), np.int32)),
        (state(int32, low=5, high="N"), spaces.Box(5, 6, (1,), np.int32)),
        (state(uint8, 4), spaces.Box(0, 255, (4,), np.uint8)),
        (state(int64), spaces.Box(-(2**62), 2**62, (1,), np.int64)),
    ],
)
@pytest.mark.filterwarnings("error")
def test_field_becomes_space(field, space):
    """The table of the contract, N = 5: finite bounds, low < high, scalars (1,), choices Discrete."""
    found = field_space(field, {"N": 5})
    assert found == space
    assert found.contains(found.sample())


def test_a_limit_is_observed_only_where_there_is_one():
    """An infinite max_length would be outside of every finite space."""
    with_limit = Observer(milkrun.make("milkrun/CVRP-v0", max_length=3.0)).single_space
    without = Observer(milkrun.make("milkrun/CVRP-v0")).single_space
    assert set(with_limit) - set(without) == {"max_length"}
    assert "max_length" in MilkrunEnv("milkrun/CVRP-v0", max_length=3.0).reset(seed=1)[0]


def test_hidden_and_switched_off_fields_are_not_observed():
    """No matrix, no record, no stream keys; declaration order, the mask last."""
    assert list(Observer(milkrun.make("milkrun/TSP-v0")).single_space) == [
        "locs",
        "n_nodes",
        "current_node",
        "visited",
        "tour_length",
        "first_node",
        "i",
        "action_mask",
    ]


def test_an_unknown_layout_is_refused():
    """TSP has no image."""
    with pytest.raises(ConfigError, match="no layout 'view'"):
        MilkrunEnv("milkrun/TSP-v0", layout="view")
