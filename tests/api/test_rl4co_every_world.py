"""NodeEnv and its embeddings: every world whose action is a node, under RL4CO's policies and trainers.

The drop-in classes of TSP and CVRP have tests of their own, in test_rl4co.py.
"""

from __future__ import annotations

import copy
import importlib
import pickle
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch

pytest.importorskip("rl4co", reason="needs rl4co")

from rl4co.data.transforms import StateAugmentation
from rl4co.envs.common.base import RL4COEnvBase
from rl4co.models import POMO, AttentionModel, AttentionModelPolicy
from rl4co.models.nn.env_embeddings.dynamic import StaticEmbedding
from rl4co.utils.decoding import random_policy, rollout
from rl4co.utils.ops import batchify
from rl4co.utils.trainer import RL4COTrainer

import milkrun
from milkrun.api.rl4co import CVRPEnv, NodeEnv, embeddings
from milkrun.core import registry
from milkrun.core.actions import discrete
from milkrun.core.check.rules import task_of
from milkrun.core.config import Config, option
from milkrun.core.errors import BadSolution, ConfigError, IllegalAction, ShapeError
from milkrun.core.features import derive
from milkrun.core.fields import float32, instance, int32, mask, state
from milkrun.core.kernels import kernel
from milkrun.core.rng import integers, row_stream, uniform
from milkrun.core.world import World
from tests.docs.test_add_a_world import of_the_file

OURS = [f"milkrun/{name}-v0" for name in "VRPP CVRPP WCVRP CWCVRP SCWCVRP SDWCVRP DARP VRP".split()]
VRP = "milkrun/VRP-v0"
VAN, FERRY = "example/Van-v0", "example/Ferry-v0"
SMALL = {
    VAN: {"preset": "small"},
    FERRY: {},
    "milkrun/DARP-v0": {"num_requests": 4},
    VRP: {"variant": "all48", "num_loc": 6},
}
LEGS, WEATHER = 1, 2


@dataclass(frozen=True, kw_only=True)
class FerryConfig(Config):
    ports: int = option(5, "ports", low=2)


class Ferry(World):
    """Leave for each port once. It has what no world of the library has: a matrix of legs, one of three weathers, and a
    place before the first step."""

    Config = FerryConfig
    action = discrete("N")

    legs = instance(float32, "N", "N", low=0, doc="hours from row to column")
    weather = instance(int32, index="W", doc="0..2")
    port = state(int32, index="N", doc="where it is, once it has left")
    waiting = state(int32, "N", low=0, doc="hours that a port has waited")
    action_mask = mask("N")

    @classmethod
    def size_of(cls, config):
        return {"N": config.ports, "W": 3}


@kernel
def ferry_generate(w, b):
    q = w.instance_row[b]
    for i in range(w.N):
        for j in range(w.N):
            w.legs[q, i, j] = uniform(row_stream(w, b, LEGS), i * w.N + j)
    w.weather[q] = integers(row_stream(w, b, WEATHER), 0, 0, 3)


@kernel
def ferry_reset(w, b):
    w.port[b] = 0
    for j in range(w.N):
        w.waiting[b, j] = 0
        w.action_mask[b, j] = True


@kernel
def ferry_step(w, b, action):
    if w.i[b] > 0:
        w.reward[b] = -w.legs[w.instance_row[b], w.port[b], action]
    w.port[b] = action
    w.action_mask[b, action] = False
    ended = True
    for j in range(w.N):
        w.waiting[b, j] += w.action_mask[b, j]
        ended &= not w.action_mask[b, j]
    w.terminated[b] = ended


Ferry.bind(generate=ferry_generate, reset=ferry_reset, step=ferry_step)


@pytest.fixture(scope="module", autouse=True)
def users_worlds(tmp_path_factory):
    """Registers the Van of docs/add-a-world.md, and the ferry."""
    folder = tmp_path_factory.mktemp("van")
    (folder / "van.py").write_text(of_the_file())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_worlds", dict(registry._worlds))
        patch.syspath_prepend(folder)
        milkrun.register(VAN, importlib.import_module("van").Van, gymnasium=False, force=True)
        milkrun.register(FERRY, Ferry, gymnasium=False)
        yield


def made(id, rows=3, **options):
    return milkrun.make(id, rows, api="rl4co", seed=5, **{**SMALL.get(id, {}), **options})


def world_of(id, rows=3, **options):
    """A world that records its solutions."""
    return milkrun.make(id, rows, seed=5, autoreset="disabled", **{**SMALL.get(id, {}), **options})


def policy_for(env, **options):
    """An attention model with random weights."""
    init, context, dynamic = embeddings(env, embed_dim=16)
    return AttentionModelPolicy(
        env_name=env.name,
        embed_dim=16,
        num_heads=2,
        num_encoder_layers=1,
        feedforward_hidden=16,
        init_embedding=init,
        context_embedding=context,
        dynamic_embedding=dynamic,
        **options,
    )


def step(env, td, actions):
    return env.step(td.set("action", torch.as_tensor(actions, dtype=torch.int64)))["next"]


@pytest.mark.parametrize("id", [*OURS, VAN, FERRY])
def test_the_embeddings_read_what_features_reads_of_a_world(id):
    """Along random episodes, to the bit; means over a matrix are summed in another order."""
    env, world = made(id), world_of(id)
    init, context, dynamic = embeddings(env, embed_dim=8)
    td, features = env.reset(), derive(world)
    world.reset()
    static = isinstance(dynamic, StaticEmbedding)
    assert static is (features.read_changing(world) is None)
    close = {"rtol": 0, "atol": 1e-6 if features.matrices else 0}
    np.testing.assert_allclose(init.read(td), features.read_nodes(world), **close)
    while True:
        features.observe(world)
        places, numbers = context.read(td)
        expected = features.read_numbers(world)
        assert [p.tolist() for p in places] == [p.tolist() for p in features.read_places(world)]
        assert numbers.shape[1] == 0 if expected is None else np.array_equal(numbers, expected)
        assert static or np.array_equal(dynamic.read(td), features.read_changing(world))
        assert np.array_equal(td["action_mask"], world.action_mask)
        if world.done.all():
            break
        actions = world.sample_actions(1)
        td, live = step(env, td, actions), np.flatnonzero(~world.done)
        world.step(actions[live], rows=live)


def test_the_ferry_is_read_by_hand():
    """Two ports: legs 0, 3 and 1, 0; weather 2; it leaves for port 1, and port 0 waits an hour."""
    env = made(FERRY, rows=1, ports=2)
    init, context, dynamic = embeddings(env, embed_dim=8)
    for module in (init.matrices, dynamic.matrices, dynamic.columns):  # as if nothing were scaled
        module.shift.zero_()
        module.factor.fill_(1)
    td = env.reset()
    td["legs"] = torch.tensor([[[0.0, 3.0], [1.0, 0.0]]])
    td["weather"] = torch.tensor([2], dtype=torch.int32)
    assert init.read(td).tolist() == [[[1.5, 0, 0.5, 0, 1], [0.5, 0, 1.5, 0, 0]]]
    assert context.read(td)[0][0].tolist() == [2] and context.read(td)[1].tolist() == [[0, 0, 1]]
    assert dynamic.read(td).tolist() == [[[0, 0], [0, 0]]]
    td = step(env, td, [1])
    assert context.read(td)[0][0].tolist() == [1] and dynamic.read(td).tolist() == [[[1, 1], [0, 0]]]


@pytest.mark.parametrize("starts", [0, 3])
@pytest.mark.parametrize("id", [*OURS, VAN, FERRY])
def test_a_policy_plays_legal_episodes_at_their_true_return(id, starts):
    """Its rewards are those of a World that replays the actions, and minus the costs of the task."""
    env = made(id)
    td = env.reset()
    torch.manual_seed(0)
    words = {"decode_type": "multistart_sampling", "num_starts": starts} if starts else {"decode_type": "sampling"}
    out = policy_for(env)(td.clone(), env, **words)
    copies = batchify(td, starts) if starts else td
    rewards, actions = out["reward"], out["actions"].numpy()
    assert rewards.shape == (len(copies),) and torch.isfinite(out["log_likelihood"]).all()
    assert not starts or out["actions"][:, 0].tolist() == env.select_start_nodes(td, starts).tolist()
    env.check_solution_validity(copies, out["actions"])

    world = world_of(id, len(copies))
    world.reset(instance=env.torchrl.reader.arrays(copies))
    returns = np.zeros(len(copies))
    for action in actions.T:
        live = np.flatnonzero(~world.done)
        assert world.action_mask[live, action[live]].all()
        world.step(action[live], rows=live)
        returns[live] += world.reward[live]
    assert world.done.all()
    np.testing.assert_allclose(rewards, returns, rtol=1e-6)
    if world.task:
        np.testing.assert_allclose(
            rewards, -np.asarray(task_of(type(world), world.config)(world)), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("id", [*OURS, VAN, FERRY])
def test_gradients_reach_all_parameters(id):
    """Of the three embeddings, by a REINFORCE loss."""
    env = made(id, rows=8)
    torch.manual_seed(0)
    policy = policy_for(env)
    out = policy(env.reset(), env, phase="train")
    (out["log_likelihood"] * out["reward"]).sum().backward()
    parts = (policy.encoder.init_embedding, policy.decoder.context_embedding, policy.decoder.dynamic_embedding)
    assert [name for part in parts for name, p in part.named_parameters() if not p.grad.abs().sum() > 0] == []


@pytest.mark.parametrize("id", ["milkrun/VRPP-v0", "milkrun/SDWCVRP-v0"])
def test_rl4cos_trainer_runs_both_models(id, tmp_path):
    """Two epochs of the attention model with its rollout baseline, and of POMO with eight augmentations; without and
    with changing features."""
    env = made(id, num_loc=5)
    sizes = dict(batch_size=4, train_data_size=8, val_data_size=4)
    models = AttentionModel(env, policy_for(env), baseline="rollout", **sizes), POMO(env, policy_for(env), **sizes)
    for model in models:
        before = copy.deepcopy(model.policy.state_dict())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Lightning: few workers, no GPU
            trainer = RL4COTrainer(
                max_epochs=2, accelerator="cpu", logger=None, default_root_dir=tmp_path, enable_progress_bar=False
            )
            trainer.fit(model)
        after = model.policy.state_dict()
        changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
        assert "decoder.context_embedding.project.weight" in changed
        assert "encoder.init_embedding.columns.shift" not in changed
        assert np.isfinite(float(trainer.callback_metrics["val/reward"]))


def test_an_augmented_tensordict_is_played_as_augmented():
    """Mirrored and turned coordinates have the same lengths; doubled ones do not."""
    env = made("milkrun/WCVRP-v0", num_loc=5)
    td = env.reset()
    rewards, _, actions = rollout(env, td.clone(), random_policy)
    mirrored = StateAugmentation(num_augment=8, augment_fn="dihedral8")(td)
    torch.testing.assert_close(env.get_reward(mirrored, actions.repeat(8, 1)), rewards.repeat(8))
    assert not torch.equal(mirrored["locs"][3:6], td["locs"])
    td["locs"] = 2 * td["locs"]
    assert not torch.allclose(env.get_reward(td, actions), rewards)


def test_seeds_are_those_of_a_world():
    """The first batch is that of `World(seed=5)`, from row 2 on; the second one and other seeds differ."""
    env, world = made("milkrun/WCVRP-v0", first_row=2, num_loc=6), world_of("milkrun/WCVRP-v0", 5, num_loc=6)
    world.reset()
    state = torch.get_rng_state()
    first, second = env.reset(), env.reset()
    assert np.array_equal(first["waste"], world.waste[2:]) and not torch.equal(first["waste"], second["waste"])
    env.set_seed(5)
    assert torch.equal(env.reset()["waste"], first["waste"]) and torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(milkrun.make("milkrun/WCVRP-v0", 3, api="rl4co", num_loc=6).reset()["waste"], first["waste"])
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert torch.equal(twin.reset()["waste"], second["waste"])


def test_a_row_of_a_dataset_determines_its_episode():
    """RL4CO's datasets split batches into rows and stack them again; hidden fields and streams are among their keys."""
    env = made("milkrun/SDWCVRP-v0", num_loc=4)
    data = env.dataset([6])
    rows = data.add_key("extra", torch.arange(6.0))
    td = env.reset(rows.collate_fn([rows[k] for k in (4, 1)]))
    again = env.reset(rows.collate_fn([rows[k] for k in (1, 4)]))
    assert td["extra"].tolist() == [4, 1] and not {"daily_fill", "stream"} & set(td.keys())
    for key in ("stream", "daily_fill", "real_waste"):
        assert torch.equal(td["hidden", key], again["hidden", key].flip(0))
    rewards, final, actions = rollout(env, td.clone(), random_policy)
    assert torch.equal(env.get_reward(again, actions.flip(0)), rewards.flip(0))
    assert torch.equal(env.reset(final)["hidden", "real_waste"], td["hidden", "real_waste"])


def test_rewards_are_those_of_the_actions_in_any_state():
    """`get_reward` plays from the beginning; an action that is not allowed changes nothing, and a check refuses it."""
    env = made(VAN, rows=2)
    td = env.reset()
    worth = td["value"]
    actions = torch.tensor([[1, 0], [2, 0]])
    expected = [worth[0, 1], worth[1, 2]]
    final = step(env, step(env, td.clone(), [3, 3]), [0, 0])
    for state_of in (td, final):
        assert env.get_reward(state_of, actions).tolist() == expected
        assert env.get_reward(state_of, torch.tensor([[1, 1, 0], [2, 0, 0]])).tolist() == expected
    with pytest.raises(BadSolution, match="row 0: step 1: its action is not allowed"):
        env.get_reward(td, torch.tensor([[1, 1, 0], [2, 0, 0]]), check_solution=True)
    with pytest.raises(BadSolution, match="row 1: its episode has not ended after 2 actions"):
        made(VAN, rows=2, check_solution=True).get_reward(td, torch.tensor([[1, 0], [2, 3]]))
    with pytest.raises(ShapeError, match=r"actions must have the shape \(2, 'T'\), not \(3, 1\)"):
        env.get_reward(td, torch.zeros(3, 1, dtype=torch.int64))
    with pytest.raises(IllegalAction, match="row 1: action 9"):
        strict = made(VAN, rows=2, illegal="raise")
        step(strict, strict.reset(), [1, 9])


def test_a_step_changes_neither_its_tensordict_nor_a_tensor():
    """Other keys stay; a locked TensorDict can be stepped; a reset of the result leaves it alone, too."""
    env = made("milkrun/WCVRP-v0")
    td = env.reset().set("extra", torch.arange(3)).set("action", torch.ones(3, dtype=torch.int64)).lock_()
    before = td.clone()
    after = env.step(td)["next"]
    assert after["visited"][:, 1].all() and after["extra"].tolist() == [0, 1, 2]
    hidden = after["hidden"]
    assert not env.reset(after)["visited"][:, 1].any()
    assert after["visited"][:, 1].all() and after["hidden"] is hidden and "next" not in set(td.keys())
    assert all(torch.equal(td[key], before[key]) for key in before.keys(True, True))


def test_start_nodes_are_the_allowed_first_actions():
    """Without the door; a row with fewer repeats them, and a row with none begins at the door. In the DARP the first
    action is a pickup."""
    env = made(VAN, rows=3)
    td = env.reset()
    td["action_mask"] = torch.tensor(
        [[1, 0, 1, 1, 0, 1, 0], [1, 0, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0, 0]], dtype=torch.bool
    )
    assert env.get_num_starts(td) == 3
    assert env.select_start_nodes(td, 4).reshape(4, 3).T.tolist() == [[2, 3, 5, 2], [4, 4, 4, 4], [0, 0, 0, 0]]
    assert env.get_num_starts(td[2:]) == 1
    darp = made("milkrun/DARP-v0", rows=1)
    td = darp.reset()
    assert (td["demand"][0, darp.select_start_nodes(td, darp.get_num_starts(td))] > 0).all()
    assert made(VAN).generator.num_loc == 6 and made("milkrun/VRPP-v0", num_loc=7).generator.num_loc == 7


def test_a_row_with_several_depots_starts_at_each_of_them():
    """Its first action chooses one of three depots; a row with one depot starts at customers 3..6."""
    env = made(VRP, rows=8, num_loc=4)
    td = env.reset()
    depots = td["n_depots"].tolist()
    assert set(depots) == {1, 3} and env.generator.num_loc == 4 and env.get_num_starts(td) == 4
    starts = env.select_start_nodes(td, 4).reshape(4, 8).T.tolist()
    assert starts == [[0, 1, 2, 0] if n == 3 else [3, 4, 5, 6] for n in depots]
    init = embeddings(env, embed_dim=8)[0]
    assert init.read(td)[..., -1].tolist() == [[1, 1, 1, 0, 0, 0, 0]] * 8
    assert init.read(td).isfinite().all() and td["time_windows"].isinf().any()


def test_specs_describe_what_reset_gives():
    """Every declared key is there with its shape and dtype."""
    env = made("milkrun/DARP-v0", rows=2)
    td = env.reset()
    assert isinstance(env, NodeEnv) and isinstance(env, RL4COEnvBase) and env.name == "darp" and env.batch_size == (2,)
    assert {"nodes", "vehicle"} <= set(td.keys())
    specs = {**dict(env.observation_spec.items(True, True)), **dict(env.full_done_spec.items())}
    assert {key: (td[key].shape, td[key].dtype) for key in specs} == {k: (s.shape, s.dtype) for k, s in specs.items()}


def test_files_are_loaded_as_by_torchrl(tmp_path):
    """A dataset of Milkrun has no random streams, which a reset adds."""
    scale = pytest.importorskip("milkrun.scale")
    scale.generate("milkrun/WCVRP-v0", 4, tmp_path / "bins", seed=3, on="local", config={"num_loc": 5})
    env = made("milkrun/WCVRP-v0", num_loc=5, val_file="bins", data_dir=str(tmp_path))
    data = env.dataset(phase="val")
    td = env.reset(data.collate_fn([data[k] for k in range(4)]))
    assert td["waste"].shape == (4, 6) and td["hidden", "stream"].shape == (4, 3)


@pytest.mark.parametrize(
    ("id", "options", "words"),
    [
        ("milkrun/TruckDrone-v0", {}, "milkrun/TruckDrone-v0 has no RL4CO environment, because several agents act"),
        ("milkrun/TSPKopt-v0", {}, "no field describes the entries of the axis 'A'"),
        ("milkrun/WCVRP-v0", {"num_locs": 5}, "did you mean 'num_loc'"),
        ("milkrun/WCVRP-v0", {"stepping": "inplace"}, "stepping"),
        ("milkrun/WCVRP-v0", {"illegal": "ignore"}, "illegal"),
        ("milkrun/WCVRP-v0", {"seed": -1}, "seed"),
        ("milkrun/WCVRP-v0", {"autoreset": "never"}, "autoreset"),
    ],
)
def test_what_cannot_be_made_is_refused(id, options, words):
    """By a sentence."""
    with pytest.raises(ConfigError, match=words):
        milkrun.make(id, 2, api="rl4co", **options)


def test_embeddings_refuse_other_environments():
    """RL4CO's own embeddings read the keys of the drop-in classes."""
    with pytest.raises(ConfigError, match="env is a CVRPEnv: must be a NodeEnv"):
        embeddings(CVRPEnv(generator_params={"num_loc": 5}))
    with pytest.raises(ConfigError, match="embed_dim"):
        embeddings(made("milkrun/VRPP-v0"), embed_dim=0)
    with pytest.raises(ShapeError, match="stream"):
        env = made("milkrun/VRPP-v0")
        env.get_reward(env.generator(3).exclude("stream"), torch.zeros(3, 1, dtype=torch.int64))
