"""SB3VecEnv: every number is the World's own, infos are those of SB3's own vector environment, nothing is aliased."""

import copy
import pickle

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

import milkrun
from milkrun.api._spaces import Observer
from milkrun.api.gymnasium import MilkrunEnv, MilkrunVectorEnv
from milkrun.api.sb3 import SB3VecEnv
from milkrun.core.errors import ConfigError, ResetNeeded
from milkrun.core.layouts import layouts
from milkrun.routing.tsp import TSP
from milkrun.solvers import evaluate
from tests import small
from tests.core.toys import Convoy, Drifter, Glider, Lantern
from tests.truth.test_gymnasium_conformance import WORLDS, arrays_in, assert_same

CVRP = "milkrun/CVRP-v0"
DARP = "milkrun/DARP-v0"
TRUCK_DRONE = "milkrun/TruckDrone-v0"
SHORT = {"milkrun/SDWCVRP-v0": {"horizon": 2}, TRUCK_DRONE: {"max_steps": 30}, **small.SMALL}


def cvrp(num_envs=4, **options):
    return SB3VecEnv(CVRP, num_envs, **{"num_loc": 5, "seed": 3, **options})


def checksums(value):
    return [array.tobytes() for array in arrays_in(value)]


@pytest.mark.parametrize("id", WORLDS)
def test_every_bit_is_the_worlds(id):
    """Seven rows over three episodes each equal a World of the same streams: observations, rewards, ends and final
    observations."""
    options = SHORT.get(id, {})
    env = SB3VecEnv(id, 7, seed_rule="row", layout="dict", **options)
    world = milkrun.make(id, 7, seed=11, autoreset="same_step", **options)
    assert env.seed(11) == [11] * 7
    shown = MilkrunVectorEnv(7, world=world, layout="dict", autoreset_mode="same_step")
    obs, expected = env.reset(), shown.reset()[0]
    ends = np.zeros(7, int)
    for t in range(5000):
        assert_same(obs, expected)
        actions = world.sample_actions(2, t)
        obs, rewards, dones, infos = env.step(actions)
        expected, *_, shown_infos = shown.step(actions)
        assert_same([rewards, dones], [world.reward, world.terminated | world.truncated])
        assert (type(infos), len(infos)) == (list, 7)
        for b in np.flatnonzero(dones):
            assert_same(infos[b]["terminal_observation"], shown_infos["final_obs"][b])
            assert infos[b]["objective"] == shown_infos["final_info"]["objective"][b]
            assert infos[b]["episode_steps"] == shown_infos["final_info"]["episode_steps"][b]
            assert infos[b]["TimeLimit.truncated"] is bool(world.truncated[b] and not world.terminated[b])
        assert all("terminal_observation" not in infos[b] for b in np.flatnonzero(~dones))
        ends += dones
        if (ends >= 3).all():
            break
    assert (ends >= 3).all()
    assert_same(env.world.state_dict(), world.state_dict())


@pytest.mark.parametrize(
    ("id", "layout", "options"),
    [
        (CVRP, "dict", {"num_loc": 5}),
        (CVRP, "flat", {"num_loc": 5, "max_steps": 4}),
        (DARP, "dict", {}),
        (TRUCK_DRONE, "flat", {"max_steps": 12}),
    ],
)
def test_fresh_infos_are_those_of_sb3s_own_vector_environment(id, layout, options):
    """150 steps, some illegal, of a DummyVecEnv of monitored rows: all that is returned, and reset_infos."""
    ours = SB3VecEnv(id, 3, layout=layout, infos="fresh", **options)
    theirs = DummyVecEnv([lambda: Monitor(MilkrunEnv(id, layout=layout, **options))] * 3)
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    assert ours.seed(5) == theirs.seed(5) == [5, 6, 7]
    assert_same(ours.reset(), theirs.reset())
    assert_same(ours.reset_infos, theirs.reset_infos)
    generator, ends, illegal = np.random.default_rng(1), 0, 0
    for t in range(150):
        actions = ours.world.sample_actions(3, t)
        if t % 7 == 0:
            choices = ours.world.action.nvec(ours.world.sizes)
            actions = generator.integers(0, choices, (3, len(choices))).reshape(actions.shape)
        obs, rewards, dones, infos = ours.step(actions)
        obs2, rewards2, dones2, infos2 = theirs.step(actions)
        assert_same([obs, rewards, dones], [obs2, rewards2, dones2])
        for mine, other in zip(infos, infos2):
            episode, episode2 = mine.pop("episode", None), other.pop("episode", None)
            assert (episode is None) == (episode2 is None)
            if episode is not None:
                assert episode["l"] == episode2["l"]
                assert episode["r"] == pytest.approx(episode2["r"], rel=1e-6)  # it sums float32
                ends += 1
            illegal += mine["illegal"]
            assert_same(mine, other)
        assert_same(ours.reset_infos, theirs.reset_infos)
    assert ends >= 6 and illegal >= 3


@pytest.mark.parametrize("id", WORLDS)
def test_a_world_observes_in_every_layout_what_the_environment_shows(id):
    """Key for key and bit for bit, at the start and after each step; a flat observation is the caller's own."""
    options = SHORT.get(id, {})
    for layout in layouts(milkrun.make(id, 1, **options)):
        env = SB3VecEnv(id, 3, layout=layout, seed=4, **options)
        obs = env.reset()
        for t in range(4):
            seen = env.world.observe(layout=layout)
            assert_same(obs, seen)
            if layout == "flat":
                assert seen.dtype == np.float32 and seen.flags.owndata
            obs = env.step(env.world.sample_actions(2, t))[0]


def test_a_world_observes_the_instances_that_its_rows_share():
    """Two rows of one instance see it alike, as a binding shows it to them."""
    cities = {"locs": np.array([[0, 0], [0, 3], [4, 3]], float)}
    world = TSP.from_instances([cities, {"locs": 2 * cities["locs"]}], 2, autoreset="same_step")
    flat = world.observe(layout="flat")
    shown = Observer(world, "flat")
    shown.refresh()
    assert_same(flat, shown.live)
    assert flat[:, :6].tolist() == [[0, 0, 0, 3, 4, 3]] * 2 + [[0, 0, 0, 6, 8, 6]] * 2
    with pytest.raises(ConfigError, match="TSP has no layout 'flatt'; did you mean 'flat'"):
        world.observe(layout="flatt")


@pytest.mark.parametrize(("layout", "policy"), [("flat", "MlpPolicy"), ("dict", "MultiInputPolicy")])
def test_a_policy_of_sb3_is_evaluated_as_a_policy_of_a_world(layout, policy):
    """A MaskablePPO as it was initialised: `evaluate` gives the returns that its episodes in the environment have."""
    maskable = pytest.importorskip("sb3_contrib")
    masks_of = pytest.importorskip("sb3_contrib.common.maskable.utils").get_action_masks
    env = SB3VecEnv(CVRP, 8, num_loc=5, layout=layout, seed=3, seed_rule="row")
    model = maskable.MaskablePPO(policy, env, n_steps=8, seed=1, device="cpu")
    env.seed(9)
    obs, returns = env.reset(), np.zeros(8)
    live = np.ones(8, bool)
    while live.any():
        obs, rewards, dones, _ = env.step(model.predict(obs, action_masks=masks_of(env), deterministic=True)[0])
        returns += np.where(live, rewards, 0)
        live &= ~dones

    def play(world):
        return model.predict(world.observe(layout=layout), action_masks=world.action_mask, deterministic=True)[0]

    result = evaluate(milkrun.make(CVRP, 8, num_loc=5), play, 8, seed=9)
    np.testing.assert_allclose(result.returns, returns, rtol=1e-6)
    assert not result.illegal.any() and len(set(result.returns)) == 8


def test_infos_distinguish_truncation_from_termination():
    """Five customers and max_steps 5: infos of truncated rows are marked and have the last observation; those of
    complete rows are not marked."""
    env = cvrp(8, max_steps=5)
    vector = MilkrunVectorEnv(8, CVRP, num_loc=5, max_steps=5, autoreset_mode="same_step")
    env.seed(40)
    env.reset()
    vector.reset(seed=40)
    cut = 0
    for t in range(60):
        actions = env.world.sample_actions(1, t)
        _, _, dones, infos = env.step(actions)
        *_, terminated, truncated, vector_infos = vector.step(actions)
        assert (dones == (terminated | truncated)).all()
        for b in np.flatnonzero(dones):
            assert_same(infos[b]["terminal_observation"], vector_infos["final_obs"][b])
            assert infos[b]["TimeLimit.truncated"] is bool(truncated[b] and not terminated[b])
        cut += (truncated & ~terminated).sum()
    assert cut >= 50
    whole = cvrp(8)
    whole.reset()
    ended = [i for t in range(30) for i in whole.step(whole.world.sample_actions(1, t))[3] if "episode" in i]
    assert len(ended) >= 16 and not any(info["TimeLimit.truncated"] for info in ended)


def test_rows_without_events_share_one_info():
    """Row 1 takes a masked action and has its own info; the other rows share one read-only object."""
    env = cvrp()
    env.reset()
    actions = env.world.sample_actions(1, 0)
    actions[1] = 0
    _, _, dones, infos = env.step(actions)
    assert not dones.any()
    assert infos[0] is infos[2] is infos[3] and infos[0] == {"illegal": False, "TimeLimit.truncated": False}
    assert infos[1] == {"illegal": True, "TimeLimit.truncated": False}
    infos[1]["mine"] = 1
    writes = [
        lambda d: d.__setitem__("a", 1),
        lambda d: d.__delitem__("illegal"),
        lambda d: d.update(a=1),
        lambda d: d.setdefault("a", 1),
        lambda d: d.pop("illegal"),
        lambda d: d.popitem(),
        lambda d: d.clear(),
        lambda d: d.__ior__({"a": 1}),
    ]
    for write in writes:
        with pytest.raises(TypeError, match='infos="fresh"'):
            write(infos[0])
    assert infos[0] == {"illegal": False, "TimeLimit.truncated": False}
    with pytest.raises(KeyError, match=r"^'action_mask' is not in an info that many rows share: infos="):
        infos[0]["action_mask"]
    for plain in (infos[0].copy(), copy.copy(infos[0]), copy.deepcopy(infos[0]), pickle.loads(pickle.dumps(infos[0]))):
        assert type(plain) is dict and plain == infos[0]
        plain["a"] = 1
    *_, fresh = env.step(env.world.sample_actions(1, 1))
    assert fresh[0] is infos[0] and fresh[1] is infos[0]


def test_an_illegal_action_brings_its_reason_in_a_world_that_has_reasons():
    """Dial-a-ride: the depot at once is not allowed; the number of the reason is the world's."""
    env = SB3VecEnv(DARP, 2, seed=1)
    env.reset()
    actions = env.world.sample_actions(1, 0)
    actions[1] = int(np.flatnonzero(~env.world.action_mask[1])[0])
    infos = env.step(actions)[3]
    assert infos[1]["illegal"] is True and infos[1]["illegal_reason"] == env.world.illegal_reason[1] > 0


@pytest.mark.parametrize("infos", ["shared", "fresh"])
@pytest.mark.parametrize("layout", ["dict", "flat"])
def test_returned_arrays_never_change(infos, layout):
    """Observations, rewards, dones, infos and masks of every call keep their bytes through 60 steps and a reset."""
    env = cvrp(3, infos=infos, layout=layout)
    kept = [env.reset()]
    for t in range(60):
        kept.append(env.step(env.world.sample_actions(1, t)))
        kept.append(env.env_method("action_masks"))
        kept.append(copy.copy(env.reset_infos))
        if t == 30:
            before = [checksums(one) for one in kept]
            held = list(kept)
    env.reset()
    assert [checksums(one) for one in held] == before
    written = env.step(env.world.sample_actions(9, 0))
    state = checksums(env.world.state_dict())
    for array in arrays_in([written[:3], env.env_method("action_masks"), env.get_attr("action_mask"), env.reset_infos]):
        array[...] = 0
    assert checksums(env.world.state_dict()) == state


def test_masks_are_of_the_observation_that_was_returned():
    """200 steps with ends: `action_masks` is the mask in the observation, never empty, by any way of naming rows."""
    env = cvrp(5)
    obs, ends = env.reset(), 0
    assert env.has_attr("action_masks")
    for t in range(200):
        masks = np.stack(env.env_method("action_masks"))
        assert masks.dtype == bool and masks.any(1).all()
        assert (masks == obs["action_mask"]).all()
        obs, _, dones, _ = env.step(env.world.sample_actions(1, t))
        ends += dones.sum()
    assert ends > 50
    everyone = env.env_method("action_masks")
    assert_same(env.env_method("action_masks", indices=[3, 1]), [everyone[3], everyone[1]])
    assert_same(env.env_method("action_masks", indices=2), [everyone[2]])


def test_a_reset_info_is_of_the_episode_that_began():
    """Waste collection, where some days may end at once and others not: after an end `reset_infos` is the new one's."""
    env = SB3VecEnv("milkrun/WCVRP-v0", 16, seed=1)
    env.reset()
    began = set()
    for t in range(100):
        obs, _, dones, _ = env.step(env.world.sample_actions(1, t))
        for b in np.flatnonzero(dones):
            mask = env.reset_infos[b]["action_mask"]
            assert_same(mask, obs["action_mask"][b])
            began.add(mask.tobytes())
    assert len(began) == 2


@pytest.mark.parametrize("world_class", [Glider, Drifter])
def test_a_world_of_numbers_has_no_masks(world_class):
    """Glider's actions are a Box; SB3 plays them, and `has_attr` reports that there are no masks."""
    env = SB3VecEnv(world_class(2, seed=1, autoreset="same_step"))
    assert env.action_space == spaces.Box(-1, 1, (2,), np.float32)
    assert not env.has_attr("action_masks")
    with pytest.raises(AttributeError, match="action_masks"):
        env.env_method("action_masks")
    env.reset()
    ends = sum(env.step(np.ones((2, 2), np.float32))[2].sum() for _ in range(10))
    assert ends >= 4


def test_several_agents_are_one_joint_view():
    """Convoy of a truck and two drones: 4 x 2 x 2 choices; the flat vector is truck, drones and state in a row."""
    env = SB3VecEnv(Convoy(3, seed=1, autoreset="same_step"), layout="flat")
    assert env.action_space == spaces.MultiDiscrete([4, 2, 2])
    obs = env.reset()
    at = env.world.at
    assert_same(obs, np.concatenate([at[:, :1], at[:, 1:], at], 1).astype(np.float32))
    before = at.copy()
    obs, rewards, _, _ = env.step(np.array([[1, 0, 1], [0, 0, 0], [2, 1, 1]]))
    assert rewards.tolist() == [2, 0, 4]
    assert (obs[:, 3:] - before).tolist() == [[1, 0, 1], [0, 0, 0], [2, 1, 1]]


def test_an_image_world_shows_its_view():
    """Lantern's own layout is its picture; fresh infos bring the mask and what the picture leaves out."""
    env = SB3VecEnv(Lantern(2, seed=1, autoreset="same_step"), infos="fresh")
    obs = env.reset()
    assert env.world.looks.tolist() == [1, 1]
    assert layouts(env.world)[0] == "view" and obs.dtype == np.uint8 and (obs[:, 0, 0] == env.world.goal).all()
    obs, _, _, infos = env.step(np.array([1, 1]))
    assert (obs[:, 0, 0] == 10 * env.world.lit + env.world.goal).all()
    assert infos[0]["action_mask"].tolist() == env.world.action_mask[0].tolist()


def test_functions_that_make_environments_are_refused():
    """SB3's own vector environments take them; the error names the class that does so here."""
    with pytest.raises(ConfigError, match="environments are for Async_SubprocVecEnv"):
        SB3VecEnv([lambda: None])


def test_a_refused_reset_keeps_the_seed():
    """The next reset begins the episode that the refused one would have begun."""
    env, twin = (SB3VecEnv("milkrun/TSP-v0", 2, num_loc=5) for _ in range(2))
    env.seed(3)
    env.set_options({"foo": 1})
    with pytest.raises(ConfigError, match="foo"):
        env.reset()
    twin.seed(3)
    assert_same(env.reset(), twin.reset())


def test_masks_before_the_first_reset_are_refused():
    """They would be empty."""
    env = SB3VecEnv("milkrun/TSP-v0", 2, num_loc=5)
    with pytest.raises(ResetNeeded, match="before the first reset"):
        env.env_method("action_masks")
    env.reset()
    assert all(mask.any() for mask in env.env_method("action_masks"))
