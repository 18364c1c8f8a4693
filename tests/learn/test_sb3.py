"""PPO by Stable-Baselines3: what its files hold, how its policies play, how its runs end."""

from __future__ import annotations

import json
import signal
import sys
from importlib import import_module

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import FlattenExtractor, NatureCNN

import milkrun
from milkrun import learn
from milkrun.core import registry
from milkrun.core.errors import BadCheckpoint, ConfigError, MissingExtra, TrainingError
from milkrun.learn import checkpoint, run, sb3, sb3_policy
from milkrun.learn import trained as files
from milkrun.solvers import evaluate
from tests import small
from tests.core.toys import Glider

TEAM, CAMERA, PILE, BOX = "milkrun/TruckDrone-v0", small.TRACKING, small.CLUTTER, "test/PPOGlider-v0"


class PPOGlider(Glider):
    id = BOX


WORLDS = {
    TEAM: {"num_customers": 2, "num_route_nodes": 4, "episode_length": 20},
    CAMERA: small.options(CAMERA),
    PILE: small.options(PILE),
    BOX: {"max_steps": 8},
}
KEPT = ("kind", "plan", "references", "curve", "recent", "counts")
LENGTH = 32  # longer than an episode of any of them


@pytest.fixture(scope="module", autouse=True)
def own_world():
    """A world whose action is numbers, registered for these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_worlds", dict(registry._worlds))
        milkrun.register(BOX, PPOGlider, family="tests", gymnasium=False)
        yield


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def world_of(id, rows=1, **options):
    return milkrun.make(id, rows, seed=3, threads=1, autoreset="disabled", **{**WORLDS[id], **options})


def new_run(id, *, steps=3, **options):
    return sb3.PPORun(world_of(id), sb3.Options(steps, rows=4, length=LENGTH, width=32, seed=1, **options))


@pytest.fixture(scope="module")
def trained():
    """A run of each world after two updates."""
    found = {id: new_run(id) for id in WORLDS}
    for state in found.values():
        state.train_step()
        state.train_step()
    return found


def write_policy(state, path):
    checkpoint.write(path, state.describe(kind="policy"), state.weights())
    return path


def states_of(id, rows=32, steps=4):
    """Rows in the middle of their episodes."""
    world = world_of(id, rows)
    world.reset(seed=7)
    for k in range(steps):
        world.step(world.sample_actions(k))
        world.reset(np.flatnonzero(world.done))
    return world


def predict(state, world):
    """The actions of Stable-Baselines3's own model, on observations that its own VecNormalize has scaled."""
    seen = state.rows.normalize_obs(world.observe(layout=state.policy().layout))
    masks = {"action_masks": world.action_mask} if sb3_policy.is_masked(world) else {}
    return state.model.predict(seen, deterministic=True, **masks)[0]


def parts(seen):
    return seen.values() if isinstance(seen, dict) else [seen]


# -- what is trained ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "algorithm", "layout"),
    [(TEAM, MaskablePPO, "dict"), (CAMERA, MaskablePPO, "view"), (PILE, MaskablePPO, "dict"), (BOX, PPO, "dict")],
)
def test_the_declarations_choose_the_algorithm(trained, id, algorithm, layout):
    """Masks take MaskablePPO, numbers as actions PPO; a picture is read as it is."""
    assert type(trained[id].model) is algorithm and trained[id].policy().layout == layout


def test_small_pictures_have_no_convolutions(trained):
    """Nature's first convolutions need 36 pixels; the camera has 16."""
    assert isinstance(trained[CAMERA].model.policy.features_extractor, FlattenExtractor)
    space = trained[CAMERA].rows.observation_space
    large = Box(0, 255, (space.shape[0], 36, 36), np.uint8)
    assert sb3_policy.network_options(large, [32])["features_extractor_class"] is NatureCNN


@pytest.mark.parametrize("id", WORLDS)
def test_truncated_rows_carry_their_last_observation(id):
    """The value of a truncated row's last state continues its return, so the state must be in its info, scaled."""
    state = new_run(id)
    state.rows.reset()
    cut = 0
    for k in range(2 * LENGTH):
        world = state.rows.venv.world
        seen, _, done, infos = state.rows.step(world.sample_actions(k))
        for b in np.flatnonzero(done):
            last = infos[b]["terminal_observation"]
            now = {k: x[b] for k, x in seen.items()} if isinstance(seen, dict) else seen[b]
            assert [np.shape(x) for x in parts(last)] == [np.shape(x) for x in parts(now)]
            assert infos[b]["TimeLimit.truncated"] == (world.truncated[b] and not world.terminated[b])
            cut += infos[b]["TimeLimit.truncated"]
            if state.policy().layout == "dict":
                assert all(
                    np.abs(last[key]).max() <= sb3_policy.CLIP
                    for key in sb3_policy.scaled_keys(state.rows.observation_space)
                )
    assert cut > 0 or id == PILE  # attempts of a pile end by termination


def test_an_update_counts_the_episodes_that_ended():
    """Episodes of 20 steps: 4 rows of 32 steps end one each, of 64 steps three."""
    state = new_run(TEAM)
    assert state.train_step().returns.shape == (4,) and state.train_step().returns.shape == (8,)
    assert state.episodes == 12


def test_training_leaves_the_global_generators_alone(trained):
    """Stable-Baselines3 draws from torch's and numpy's global generators; a step restores both."""
    before, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()
    new_run(BOX).train_step()
    assert torch.equal(before, torch.get_rng_state()) and (numbers == np.random.get_state()[1]).all()


def test_the_learning_rate_falls_to_zero():
    """The first of 4 updates has the whole rate, the last a quarter of it."""
    state = new_run(BOX, steps=4, lr=1e-3)
    rates = [(state.train_step(), state.model.policy.optimizer.param_groups[0]["lr"])[1] for _ in range(4)]
    assert rates == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4])


def test_a_mask_that_does_not_list_all_actions_is_refused():
    """An action of 3-opt is more than its mask."""
    with pytest.raises(ConfigError, match="mask does not list all actions"):
        learn.train("milkrun/TSPKopt-v0", moves="3opt", algorithm="ppo", steps=1, progress=False)


def test_a_missing_package_names_its_extra(monkeypatch):
    """As the binding does."""
    monkeypatch.delitem(sys.modules, "milkrun.learn.sb3")
    monkeypatch.delitem(sys.modules, "milkrun.learn.sb3_policy")
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    with pytest.raises(MissingExtra, match=r"\[sb3\]"):
        import_module("milkrun.learn.sb3")


# -- policies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", WORLDS)
def test_a_policy_read_back_acts_as_the_model(trained, id, tmp_path):
    """On the same observations it chooses exactly what Stable-Baselines3's `predict` chooses, in the quick worlds in
    12,000 states."""
    policy = learn.load(write_policy(trained[id], tmp_path / "p.safetensors"))
    for steps in (0, 2, 5):
        world = states_of(id, rows=4000 if id in (TEAM, BOX) else 32, steps=steps)
        np.testing.assert_array_equal(policy(world), predict(trained[id], world))


@pytest.mark.parametrize("id", [TEAM, PILE, BOX])
def test_observations_are_scaled_as_by_vec_normalize(trained, id, tmp_path):
    """To 1e-6, clipped at 10."""
    policy = learn.load(write_policy(trained[id], tmp_path / "p.safetensors"))
    seen = states_of(id).observe(layout="dict")
    key = sb3_policy.scaled_keys(trained[id].rows.observation_space)[0]
    seen[key] = np.concatenate([np.full_like(seen[key][:1], 1e9), seen[key][1:]])
    expected, found = trained[id].rows.normalize_obs(seen), policy.normalise(seen)
    assert list(found) == list(expected) and (found[key][0] == 10).all()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("decode", ["greedy", "sample"])
@pytest.mark.parametrize("id", [TEAM, CAMERA, PILE])
def test_masked_actions_are_never_chosen(trained, id, decode, tmp_path):
    """Whole episodes without an illegal step."""
    policy = learn.load(write_policy(trained[id], tmp_path / "p.safetensors"), decode)
    assert evaluate(world_of(id, 16), policy, 32, seed=2).illegal.sum() == 0


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_million_drawn_actions_are_legal(trained):
    """Of all agents of the team; an illegal one of any agent counts as a step."""
    state = trained[TEAM]
    policy = sb3.PPOPolicy(state.model.policy, state.policy().scales, "sample")
    played = evaluate(world_of(TEAM, 2048), policy, 30 * 2048, seed=2)
    agents = len(state.model.action_space.nvec)
    assert agents * played.lengths.sum() >= 1_000_000 and played.illegal.sum() == 0


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_team_is_learned():
    """3 million steps of the default TruckDrone: the last 500 training episodes reach 25 on average, where random play
    stays below -30 and the heuristic `greedy` reaches about 35."""
    world = milkrun.make(TEAM, 1, seed=0, threads=1, autoreset="disabled")
    played = sb3.ROWS * sb3.Options(1).length
    state = sb3.PPORun(world, sb3.default_options(world, 3_000_000 // played, rows=None, lr=None, seed=0))
    returns = torch.cat([state.train_step().returns for _ in range(state.options.steps)])
    assert float(returns[-500:].mean()) >= 25


@pytest.mark.parametrize("id", [TEAM, BOX])
def test_samples_depend_on_seed_and_row_alone(trained, id, tmp_path):
    """Not on the size of the batch, nor on what was drawn before; another seed draws others."""
    path = write_policy(trained[id], tmp_path / "p.safetensors")
    one, other = learn.load(path, "sample", seed=1), learn.load(path, "sample", seed=2)
    world, few = states_of(id, rows=32, steps=0), states_of(id, rows=8, steps=0)
    drawn = one(world)
    np.testing.assert_array_equal(drawn, one(world))
    np.testing.assert_allclose(drawn[:8], one(few), rtol=1e-5)
    assert (drawn != other(world)).any()
    np.testing.assert_array_equal(one.seeded(2)(world), other(world))


def test_samples_follow_the_distribution(trained):
    """The first agent's choices in 4,096 rows at one state: each share within 5 standard errors of its probability."""
    state = trained[TEAM]
    policy = sb3.PPOPolicy(state.model.policy, state.policy().scales, "sample")
    world = world_of(TEAM, 4096)
    world.reset(seed=7)
    seen = policy.normalise(world.observe(layout="dict"))
    with torch.no_grad():
        network = state.model.policy
        found = network.get_distribution(network.obs_to_tensor(seen)[0], action_masks=world.action_mask)
    p = found.distributions[0].probs.double().numpy()
    share = np.eye(p.shape[1])[policy(world)[:, 0]]
    error = np.sqrt((p * (1 - p)).sum(0)) / len(p)
    assert (np.abs(share.mean(0) - p.mean(0)) <= 5 * error + 1e-12).all()


def test_plans_are_refused(trained, tmp_path):
    """PPO decides at each step."""
    path = write_policy(trained[TEAM], tmp_path / "p.safetensors")
    for decode in ("starts", "sample=4", "starts,x8"):
        with pytest.raises(ConfigError, match="plans whole episodes"):
            learn.load(path, decode)


def test_a_world_of_another_size_is_refused(trained, tmp_path):
    """The network reads a fixed number of inputs."""
    policy = learn.load(write_policy(trained[TEAM], tmp_path / "p.safetensors"))
    world = world_of(TEAM, 2, num_customers=3)
    world.reset(seed=0)
    with pytest.raises(ConfigError, match="the policy reads"):
        policy(world)


# -- files ----------------------------------------------------------------------------------------------------------


def test_damaged_files_are_refused(trained, tmp_path):
    """Truncated, with a flipped bit in the header, or with more bytes."""
    path = write_policy(trained[TEAM], tmp_path / "p.safetensors")
    raw = path.read_bytes()
    flipped = raw[:20] + bytes([raw[20] ^ 1]) + raw[21:]
    for damaged in (raw[:-1], raw[: len(raw) // 2], raw + b"0", flipped, b""):
        path.write_bytes(damaged)
        with pytest.raises(BadCheckpoint):
            learn.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"step": -1},
        {"step": 10**6},
        {"episodes": 0.5},
        {"options": {"steps": 3}},
        *({"options": {"width": 10**12}}, {"options": {"layers": 17}}, {"options": {"rows": 2**16, "length": 2**16}}),
        {"options": {"gamma": 2.0}},
        {"options": {"width": 33}},
    ],
    ids=str,
)
def test_a_description_that_makes_no_sense_is_refused(trained, change, tmp_path):
    """Before any tensor is read."""
    state = trained[TEAM]
    about = state.describe(kind="policy")
    if "options" in change and len(change["options"]) == 1 and "steps" in change["options"]:
        about["options"] = change["options"]
    elif "options" in change:
        about["options"] |= change["options"]
    else:
        about |= change
    checkpoint.write(tmp_path / "p.safetensors", about, state.weights())
    with pytest.raises(BadCheckpoint):
        learn.load(tmp_path / "p.safetensors")


def test_too_large_observations_are_refused(trained, tmp_path, monkeypatch):
    """The camera's picture has 768 bytes; a limit of 100 is for training and for files."""
    path = write_policy(trained[CAMERA], tmp_path / "p.safetensors")
    monkeypatch.setattr(sb3_policy, "MOST_INPUTS", 100)
    with pytest.raises(ConfigError, match="PPO takes at most 100"):
        sb3.default_options(world_of(CAMERA), 1, rows=None, lr=None, seed=0)
    with pytest.raises(ConfigError, match="PPO takes at most 100"):
        learn.load(path)


def test_a_negative_variance_is_refused(trained, tmp_path, monkeypatch):
    """Its root would be no number. Milkrun writes no such file."""
    state, path = trained[TEAM], tmp_path / "p.safetensors"
    weights = state.weights()
    weights["observation.truck.var"] = -weights["observation.truck.var"]
    with pytest.raises(BadCheckpoint, match="negative"):
        checkpoint.write(path, state.describe(kind="policy"), weights)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "check_values", lambda *_: None)
        checkpoint.write(path, state.describe(kind="policy"), weights)
    with pytest.raises(BadCheckpoint, match="negative"):
        learn.load(path)


# -- runs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", WORLDS)
def test_a_run_writes_its_folder_and_continues(id, tmp_path):
    """The files of every run; a run from them has the same tensors, and goes on to its last step."""
    done = learn.train(id, steps=2, every=1, batch=4, threads=1, out=tmp_path, progress=False, **WORLDS[id])
    assert done.ended == "" and [row["step"] for row in done.curve] == [1, 2] and done.references
    assert {"last.safetensors", "best.safetensors", "curve.csv", "run.json"} <= {p.name for p in tmp_path.iterdir()}
    assert json.loads((tmp_path / "run.json").read_text())["options"]["rows"] == 4
    assert done.policy(states_of(id, rows=3)).shape[0] == 3
    about, state = files.read_run(tmp_path / "last.safetensors")
    again = tmp_path / "again.safetensors"
    checkpoint.write(
        again,
        state.describe(**{k: about[k] for k in KEPT}),
        state.tensors(),
    )
    assert again.read_bytes() == (tmp_path / "last.safetensors").read_bytes()
    assert learn.resume(tmp_path, progress=False).step == 2


def test_an_interrupt_ends_the_update_and_keeps_the_files(tmp_path):
    """SIGINT and SIGTERM in the third update of 50: it ends, the run is written, and continues from there."""
    state = new_run(TEAM, steps=50)
    update = state.train_step

    def interrupted():
        if state.step == 2:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
        return update()

    state.train_step = interrupted
    plan = {"every": 2, "threads": 1, "device": "cpu"}
    before = signal.getsignal(signal.SIGINT)
    done = run.loop(learn.Run(tmp_path, TEAM, steps=50), state, plan, None)
    assert done.ended == "interrupted" and done.step == 3 and signal.getsignal(signal.SIGINT) is before
    assert learn.load(tmp_path / "best.safetensors") is not None
    about, again = files.read_run(tmp_path / "last.safetensors")
    assert again.step == 3 and about["curve"] == done.curve
    for name, values in state.tensors().items():
        assert torch.equal(values, again.tensors()[name]), name
    again.train_step()
    assert again.step == 4


def test_weights_that_are_not_finite_end_a_run():
    """The step and the tensor are named."""
    state = new_run(BOX, steps=2, lr=1e30)
    with pytest.raises(TrainingError, match="not finite"):
        for _ in range(2):
            state.train_step()
