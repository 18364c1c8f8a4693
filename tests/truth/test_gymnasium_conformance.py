"""Conformance with Gymnasium: its checker, SyncVectorEnv, AsyncVectorEnv and vector wrappers."""

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList, NormalizeObservation, RecordEpisodeStatistics

import milkrun
from milkrun.api.gymnasium import MilkrunEnv, MilkrunVectorEnv
from milkrun.core.errors import MissingExtra
from milkrun.core.layouts import layouts
from tests import small

pytestmark = pytest.mark.truth


def installed(id):
    try:
        return bool(milkrun.world_spec(id).load())
    except MissingExtra:
        return False


WORLDS = [id for id in milkrun.list_worlds() if installed(id)]
EVERY_LAYOUT = [(id, layout) for id in WORLDS for layout in layouts(milkrun.make(id))]
MODES = ["NextStep", "SameStep", "Disabled"]
CVRP = "milkrun/CVRP-v0"
DEALT = {CVRP: {"num_loc": 5}, "milkrun/TruckDrone-v0": {"num_customers": 2, "num_route_nodes": 3, "episode_length": 8}}
"""One agent and a team, for tests of vectorization, whose code is the same for every world."""
SHORT = {"milkrun/SDWCVRP-v0": {"horizon": 2}, **small.SMALL}  # options for several ends in 300 random steps


def assert_same(ours, theirs):
    """Equal to the bit, dtype included; dicts, lists and object arrays entry by entry."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            assert_same(ours[key], theirs[key])
    elif isinstance(theirs, (list, tuple)) or getattr(theirs, "dtype", np.dtype(float)).hasobject:
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other)
    elif theirs is None:
        assert ours is None
    else:
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert ours.tobytes() == theirs.tobytes()


def arrays_in(value):
    """Every array in the result of a call, at any depth."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)) or getattr(value, "dtype", np.dtype(float)).hasobject:
        for item in value:
            yield from arrays_in(item)
    elif isinstance(value, np.ndarray):
        yield value


def assert_same_infos(ours, theirs):
    """The flagged rows of each key are equal; entries of other rows and keys without any row are ignored."""
    companions = {key: rows for key, rows in (*theirs.items(), *ours.items()) if key.startswith("_")}
    no_rows = np.zeros_like(next(iter(companions.values()), np.zeros(0, bool)))
    for key in {k.removeprefix("_") for k in companions}:
        rows = ours.get(f"_{key}", no_rows)
        assert rows.tolist() == theirs.get(f"_{key}", no_rows).tolist(), key
        if not rows.any():
            continue
        if isinstance(theirs[key], dict):
            assert_same_infos(ours[key], theirs[key])
        else:
            mine, other = ours[key][rows], theirs[key][rows]
            assert_same(mine.astype(other.dtype) if mine.dtype != object else mine, other)


def assert_same_step(ours, theirs, actions):
    """Both play the actions; returns the rows that ended. Gymnasium's rewards are our float32 as float64."""
    obs, reward, terminated, truncated, infos = ours.step(actions)
    obs2, reward2, terminated2, truncated2, infos2 = theirs.step(actions)
    assert_same(obs, obs2)
    assert reward.dtype == np.float32
    assert_same((reward.astype(np.float64), terminated, truncated), (reward2, terminated2, truncated2))
    assert_same_infos(infos, infos2)
    return terminated | truncated


@pytest.mark.parametrize(("id", "layout"), EVERY_LAYOUT)
@pytest.mark.filterwarnings("error")
@pytest.mark.conformance("gymnasium", "check_env")
def test_check_env(id, layout):
    """Gymnasium's checker passes without a warning."""
    check_env(gymnasium.make(id, layout=layout, disable_env_checker=True).unwrapped)


@pytest.mark.filterwarnings("error")
@pytest.mark.conformance("gymnasium", "check_env of UAVVAT-v0", world="milkrun/Tracking-v0")
@pytest.mark.parametrize("norm", [0, 1, None])
def test_check_env_of_the_tracking_benchmark(norm):
    """The checker also accepts the original's id, whose states are normalised or bytes."""
    section = {"size": 16, "ground_cell": 10.0, "max_sim_steps": 48, "max_vehicles": 4, "Norm_Type": norm}
    check_env(gymnasium.make("UAVVAT-v0", conf_path=section, disable_env_checker=True).unwrapped)


@pytest.mark.filterwarnings("error")
def test_check_env_where_an_id_has_two_worlds():
    """Dial-a-ride under the rule `deadlines` has other fields and kernels."""
    env = gymnasium.make("milkrun/DARP-v0", preset="published", disable_env_checker=True).unwrapped
    assert env.observation_space["nodes"].shape == (21, 14)
    check_env(env)


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("id", "layout"), EVERY_LAYOUT)
@pytest.mark.conformance("gymnasium", "equals SyncVectorEnv")
def test_vector_env_equals_sync_vector_env(id, layout, mode, masked):
    """Five rows, 300 steps (few of a slow world): observations, rewards, ends, infos, final_obs and final_info to the
    bit."""
    options = SHORT.get(id, {})
    ours = MilkrunVectorEnv(5, id, layout=layout, autoreset_mode=mode, **options)
    sync = SyncVectorEnv([lambda: MilkrunEnv(id, layout=layout, **options)] * 5, autoreset_mode=mode)
    assert ours.single_observation_space == sync.single_observation_space
    assert ours.observation_space == sync.observation_space
    assert ours.action_space == sync.action_space
    obs, infos = ours.reset(seed=7)
    obs2, infos2 = sync.reset(seed=7)
    assert_same(obs, obs2)
    assert_same_infos(infos, infos2)
    ours.action_space.seed(1)
    ends = 0
    for t in range(small.turns(id, 300)):
        done = assert_same_step(ours, sync, ours.world.sample_actions(3, t) if masked else ours.action_space.sample())
        ends += done.sum()
        if mode == "Disabled" and done.any():
            obs, infos = ours.reset(options={"reset_mask": done})
            obs2, infos2 = sync.reset(options={"reset_mask": done})
            assert_same(obs, obs2)
            assert_same(infos["action_mask"][done], infos2["action_mask"][done])
    assert ends >= 5


@pytest.mark.parametrize("id", DEALT)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.conformance("gymnasium", "equals AsyncVectorEnv")
def test_vector_env_equals_async_vector_env(mode, id):
    """Two rows in two processes; waits are bounded, so a child that hangs fails the test."""
    ours = MilkrunVectorEnv(2, id, autoreset_mode=mode, **DEALT[id])
    others = AsyncVectorEnv([lambda: MilkrunEnv(id, **DEALT[id])] * 2, autoreset_mode=mode)
    try:
        obs, infos = ours.reset(seed=7)
        others.reset_async(seed=7)
        obs2, infos2 = others.reset_wait(timeout=60)
        assert_same(obs, obs2)
        assert_same_infos(infos, infos2)
        for t in range(40):
            done = assert_same_step(ours, others, ours.world.sample_actions(3, t))
            if mode == "Disabled" and done.any():
                assert_same(ours.reset(options={"reset_mask": done})[0], others.reset(options={"reset_mask": done})[0])
    finally:
        others.close(terminate=True)


def wrapped_pair(wrapper, mode, id, **options):
    """The wrapper around ours and around a SyncVectorEnv of the same rows, both reset with seed 9."""
    options |= DEALT[id]
    ours = wrapper(MilkrunVectorEnv(4, id, autoreset_mode=mode, **options))
    sync = wrapper(SyncVectorEnv([lambda: MilkrunEnv(id, **options)] * 4, autoreset_mode=mode))
    return ours, sync, ours.reset(seed=9), sync.reset(seed=9)


@pytest.mark.parametrize("id", DEALT)
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.conformance("gymnasium", "RecordEpisodeStatistics")
def test_record_episode_statistics_equals_sync(mode, id):
    """Returns and lengths equal those recorded from a SyncVectorEnv."""
    ours, sync, *_ = wrapped_pair(RecordEpisodeStatistics, mode, id)
    for t in range(60):
        actions = ours.unwrapped.world.sample_actions(2, t)
        infos, infos2 = ours.step(actions)[-1], sync.step(actions)[-1]
        assert ("episode" in infos) == ("episode" in infos2)
        for key in ("r", "l") if "episode" in infos else ():
            assert_same(infos["episode"][key], infos2["episode"][key])
    assert ours.episode_count == sync.episode_count >= 12


@pytest.mark.parametrize("id", DEALT)
@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
def test_record_episode_statistics_equals_objective(mode, id):
    """The recorder's sums are our objective and episode_steps. (Not in SAME_STEP, where it drops first rewards.) Team
    rewards are float64; 8 rewards below 20 lose at most 1e-5 as float32."""
    env = RecordEpisodeStatistics(MilkrunVectorEnv(4, id, autoreset_mode=mode, **DEALT[id]))
    env.reset(seed=9)
    for t in range(60):
        *_, terminated, truncated, infos = env.step(env.unwrapped.world.sample_actions(2, t))
        done = terminated | truncated
        if done.any():
            lost = 0 if id == CVRP else 1e-5
            assert np.allclose(infos["episode"]["r"][done], infos["objective"][done], rtol=0, atol=lost)
            assert_same(infos["episode"]["l"][done], infos["episode_steps"][done])
            if mode == "Disabled":
                env.reset(options={"reset_mask": done})
    assert env.episode_count >= 12


@pytest.mark.parametrize("id", DEALT)
@pytest.mark.conformance("gymnasium", "NormalizeObservation")
def test_normalize_observation(id):
    """The running mean over 50 steps of the flat layout; every number is finite."""
    ours, sync, (obs, _), (obs2, _) = wrapped_pair(NormalizeObservation, "NextStep", id, layout="flat")
    assert_same(obs, obs2)
    for t in range(50):
        actions = ours.unwrapped.world.sample_actions(2, t)
        obs, obs2 = ours.step(actions)[0], sync.step(actions)[0]
        assert np.isfinite(obs).all()
        assert_same(obs, obs2)


@pytest.mark.parametrize("id", DEALT)
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.conformance("gymnasium", "DictInfoToList")
def test_dict_info_to_list(mode, id):
    """One dict a row, with exactly the keys of that row."""
    ours, sync, *_ = wrapped_pair(DictInfoToList, mode, id)
    seen = set()
    for t in range(40):
        actions = ours.unwrapped.world.sample_actions(2, t)
        infos, infos2 = ours.step(actions)[-1], sync.step(actions)[-1]
        for mine, other in zip(infos, infos2):
            assert_same(mine, other)
            seen |= mine.keys()
    at_ends = {"objective", "episode_steps"} if mode == "NextStep" else {"final_obs", "final_info"}
    assert seen >= {"action_mask", "illegal"} | at_ends
    assert id != CVRP or seen == {"action_mask", "illegal"} | at_ends


def test_gymnasium_finds_worlds_by_module_and_id():
    """ "milkrun:milkrun/CVRP-v0" in a process that has not imported milkrun; make and make_vec; no warning."""
    script = (
        "import gymnasium, sys; assert 'milkrun' not in sys.modules\n"
        "env = gymnasium.make('milkrun:milkrun/CVRP-v0', num_loc=6)\n"
        "obs, info = env.reset(seed=1); env.step(env.action_space.sample(info['action_mask']))\n"
        "vec = gymnasium.make_vec('milkrun:milkrun/CVRP-v0', num_envs=3, num_loc=6, autoreset_mode='same_step')\n"
        "vec.reset(seed=1); vec.step(vec.action_space.sample())\n"
        "print(type(env.unwrapped).__name__, type(vec).__name__, vec.metadata['autoreset_mode'].name, vec.spec.id)\n"
        "assert 'torch' not in sys.modules\n"
    )
    path = os.pathsep.join([str(Path(milkrun.__path__[0]).parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.stderr == ""
    assert done.stdout == "MilkrunEnv MilkrunVectorEnv SAME_STEP milkrun/CVRP-v0\n"


@pytest.mark.parametrize("id", WORLDS)
@pytest.mark.parametrize("vectorization_mode", ["vector_entry_point", "sync", None])
@pytest.mark.conformance("gymnasium", "make_vec")
def test_make_vec(id, vectorization_mode):
    """All ways of make_vec give the same rows; ours is the default."""
    vec = gymnasium.make_vec(id, num_envs=3, vectorization_mode=vectorization_mode)
    assert isinstance(vec.unwrapped, MilkrunVectorEnv) == (vectorization_mode != "sync")
    direct = MilkrunVectorEnv(3, id)
    assert_same(vec.reset(seed=2)[0], direct.reset(seed=2)[0])
