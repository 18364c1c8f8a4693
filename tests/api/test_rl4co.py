"""The RL4CO environments: keys worked out by hand, TensorDict operations, the methods that trainers call.

Instances, settings and seeds are in test_rl4co_instances.py; the comparison with RL4CO's own environments is in
tests/truth.
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("rl4co", reason="needs rl4co")

from rl4co.utils.ops import batchify, gather_by_index, unbatchify, unbatchify_and_gather
from tensordict import TensorDict

from milkrun.api import _td
from milkrun.api.rl4co import CVRPEnv, TSPEnv
from milkrun.core.errors import BadSolution, IllegalAction
from milkrun.routing import tasks
from tests.api.rl4co_tools import ENVS, SQUARE, leaves, play, same, shown, square, started


def test_cvrp_keys_by_hand():
    """Shares 1/2, 1/4, 3/4: the last fits no truck with the first; trips 1 and 2, 3 drive 3+3 + 5+3+4 = 18."""
    env = CVRPEnv(generator_params={"num_loc": 3}, seed=0)
    td = env.reset(square((0.5, 0.25, 0.75), 8.0))
    keys = ("current_node", "used_capacity", "vehicle_capacity", "visited", "action_mask", "done")
    assert td["locs"].tolist() == [[[0, 0], *SQUARE]]
    assert shown(td, *keys) == [[[0]], [[0]], [[1]], [[0, 0, 0, 0]], [[False, True, True, True]], [[False]]]
    td = play(env, td, 1)
    assert shown(td, *keys) == [[[1]], [[0.5]], [[1]], [[0, 1, 0, 0]], [[True, False, True, False]], [[False]]]
    td = play(env, td, 0)
    assert shown(td, *keys) == [[[0]], [[0]], [[1]], [[1, 1, 0, 0]], [[False, False, True, True]], [[False]]]
    td = play(env, td, 2)
    assert shown(td, *keys) == [[[2]], [[0.25]], [[1]], [[1, 1, 1, 0]], [[True, False, False, True]], [[False]]]
    td = play(env, td, 3)
    assert shown(td, *keys) == [[[3]], [[1.0]], [[1]], [[1, 1, 1, 1]], [[True, False, False, False]], [[False]]]
    td = play(env, td, 0)
    assert shown(td, "done", "terminated", "reward") == [[[True]], [[True]], [[0.0]]]
    assert td["visited"].dtype == torch.uint8 and td["demand"].tolist() == [[0.5, 0.25, 0.75]]
    for actions in ([1, 0, 2, 3, 0], [1, 0, 2, 3], [0, 1, 0, 2, 3, 0, 0]):
        assert env.get_reward(td, torch.tensor([actions])).tolist() == [-18.0]


def test_tsp_keys_by_hand():
    """The first action picks the start; the tour 2, 3, 0, 1 round the box drives 14."""
    env = TSPEnv(generator_params={"num_loc": 4}, seed=0)
    td = env.reset(TensorDict({"locs": torch.tensor([[[0.0, 0.0], *SQUARE]])}, batch_size=[1]))
    keys = ("first_node", "current_node", "i", "action_mask", "done")
    assert shown(td, *keys) == [[0], [0], [[0]], [[True, True, True, True]], [[False]]]
    td = play(env, td, 2)
    assert shown(td, *keys) == [[2], [2], [[1]], [[True, True, False, True]], [[False]]]
    td = play(env, td, 3, 0)
    assert shown(td, *keys) == [[2], [0], [[3]], [[False, True, False, False]], [[False]]]
    td = play(env, td, 1)
    assert shown(td, "first_node", "current_node", "i", "done", "reward") == [[2], [1], [[4]], [[True]], [[0.0]]]
    assert env.get_reward(td, torch.tensor([[2, 3, 0, 1]])).tolist() == [-14.0]


@pytest.mark.parametrize("name", ENVS)
def test_tensordict_operations_keep_both_halves_in_step(name):
    """A clone, a permutation, a repetition, a regrouping and a stored copy step to the same rows as the original."""
    env, td = started(name)
    before = td.clone()
    after = env.step(td.clone())["next"]
    order = torch.tensor([4, 1, 1, 5, 0])
    assert same(env.step(before[order])["next"], after[order])
    assert same(env.step(batchify(before, 3))["next"], batchify(after, 3))
    assert same(env.step(unbatchify(batchify(before, 3), 3))["next"], after.unsqueeze(1).expand(6, 3))
    best = torch.tensor([2, 0, 1, 1, 2, 0])
    assert same(unbatchify_and_gather(batchify(after, 3), best, 3), after)
    assert same(env.step(before.reshape(2, 3))["next"], after.reshape(2, 3))
    assert same(env.step(torch.stack(list(before.unbind(0))))["next"], after)
    assert not same(after, before)


@pytest.mark.parametrize("name", ENVS)
def test_step_returns_the_tensordict_and_writes_into_no_tensor(name):
    """As in RL4CO the entries are replaced; what was read before keeps its values, and other keys stay."""
    env, td = started(name)
    td.set("extra", torch.arange(6))
    tensors, values = dict(td.items(True, True)), leaves(td)
    after = env.step(td)["next"]
    assert after is td
    assert all(torch.equal(tensors[key], values[key]) for key in values)
    assert after["extra"].tolist() == [0, 1, 2, 3, 4, 5]
    assert not torch.equal(after["action_mask"], values["action_mask"])


@pytest.mark.parametrize("name", ENVS)
def test_torchrl_mode_and_locked_tensordicts_leave_the_root_alone(name):
    """With `_torchrl_mode` the next state stands under "next"; a locked TensorDict is stepped in a copy."""
    env, td = started(name)
    before = td.clone()
    after = env.step(td.clone())["next"]
    other = ENVS[name](generator_params={"num_loc": 5}, _torchrl_mode=True)
    out = other.step(before.clone())
    assert same(out["next"], after) and same(out.exclude("next"), before)
    locked = before.clone().lock_()
    assert same(env.step(locked)["next"], after) and same(locked, before)


@pytest.mark.parametrize("name", ENVS)
def test_the_public_way_of_tensordict_gives_the_same_bits(name, monkeypatch):
    """Without tensordict's private names (MILKRUN_PUBLIC_TD=1) a step is the same."""
    env, td = started(name)
    expected = env.step(td.clone())["next"]
    monkeypatch.setattr(_td, "_PRIVATE", False)
    assert same(env.step(td.clone())["next"], expected)


@pytest.mark.parametrize("name", ENVS)
def test_specs_describe_what_reset_gives(name):
    """Every spec'd key is in the TensorDict with that shape and dtype, those under "_w" too."""
    env = ENVS[name](generator_params={"num_loc": 5}, batch_size=[3], seed=1)
    td = env.reset()
    specs = {**dict(env.observation_spec.items(True, True)), **dict(env.full_done_spec.items())}
    specs["reward"] = env.reward_spec
    assert {key: (td[key].shape, td[key].dtype) for key in specs} == {k: (s.shape, s.dtype) for k, s in specs.items()}
    assert {key[0] for key in specs if isinstance(key, tuple)} == {"_w"}
    assert env.action_spec.is_in(td["action_mask"].int().argmax(-1))


def test_an_augmented_tensordict_is_played_as_augmented():
    """The kernel and the reward read `locs` at the root: twice the coordinates, twice the tour."""
    env = TSPEnv(generator_params={"num_loc": 5}, seed=3)
    td = env.reset(batch_size=[4])
    td.set("locs", 2 * td["locs"])
    actions = torch.arange(5).expand(4, 5)
    expected = tasks.TSP.get_costs({"locs": td["locs"]}, actions)[0]
    td = play(env, td, 0, 1, 2, 3, 4)
    torch.testing.assert_close(-env.get_reward(td, actions).double(), expected, rtol=1e-5, atol=0)


def test_wrong_solutions_are_named():
    """The checker names row and rule; `check_solution=False` and an environment made so let it pass."""
    env = CVRPEnv(generator_params={"num_loc": 3}, seed=0)
    td = env.reset(square(rows=2))
    wrong = torch.tensor([[1, 0, 2, 3, 0], [1, 2, 3, 0, 0]])
    with pytest.raises(BadSolution, match=r"row 1: trip 1 carries 1\.5"):
        env.get_reward(td, wrong)
    with pytest.raises(BadSolution, match="row 0: customer 3 is never visited"):
        CVRPEnv.check_solution_validity(td, torch.tensor([[1, 2, 0], [1, 2, 0]]))
    assert env.get_reward(td, wrong, check_solution=False).tolist() == [-18.0, -14.0]
    tsp = TSPEnv(generator_params={"num_loc": 4}, check_solution=True)
    with pytest.raises(BadSolution, match="row 0: node 1 is visited 2 times"):
        tsp.get_reward(tsp.reset(batch_size=[1]), torch.tensor([[0, 1, 1, 2]]))


def test_an_illegal_action_changes_nothing_or_raises():
    """Depot to depot is no move: the row stays, its neighbour goes on; with "raise" row and reason are named."""
    env = CVRPEnv(generator_params={"num_loc": 3}, seed=0)
    td = env.reset(square(rows=2))
    before = td.clone()
    td = play(env, td, torch.tensor([0, 2]))
    assert same(td[0].exclude("action"), before[0]) and td["current_node"].tolist() == [[0], [2]]
    strict = CVRPEnv(generator_params={"num_loc": 3}, seed=0, illegal="raise")
    with pytest.raises(IllegalAction, match="row 1: action 2"):
        play(strict, td, torch.tensor([1, 2]))


def test_finished_rows_wait_for_the_others():
    """A row that has ended offers the depot alone and stays as it is while another row goes on."""
    env = CVRPEnv(generator_params={"num_loc": 3}, seed=0)
    td = env.reset(torch.cat([square(), square((0.3, 0.3, 0.3))]))
    td = play(env, td, torch.tensor([1, 1]), torch.tensor([0, 2]), torch.tensor([2, 3]), torch.tensor([3, 0]))
    assert td["done"].tolist() == [[False], [True]] and td["action_mask"][1].tolist() == [True, False, False, False]
    ended = td[1].clone()
    td = play(env, td, 0)
    assert same(td[1].exclude("action"), ended.exclude("action")) and td["done"].tolist() == [[True], [True]]


def test_starts_are_every_customer_start_major():
    """POMO's starts: customers 1, 2, 3 of a CVRP, nodes 0..3 of a TSP, all rows of one start together."""
    cvrp, tsp = CVRPEnv(generator_params={"num_loc": 3}, seed=0), TSPEnv(generator_params={"num_loc": 4}, seed=0)
    td = cvrp.reset(square(rows=2))
    assert cvrp.get_num_starts(td) == 3 and cvrp.select_start_nodes(td, 3).tolist() == [1, 1, 2, 2, 3, 3]
    td = tsp.reset(batch_size=[2])
    assert tsp.get_num_starts(td) == 4 and tsp.select_start_nodes(td, 4).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_trainers_find_dataset_and_replacement():
    """`dataset` serves rows with an extra key; shorter CVRP solutions are padded when they replace longer ones."""
    env = CVRPEnv(generator_params={"num_loc": 3}, seed=0)
    data = env.dataset(5, phase="train").add_key("extra", torch.arange(5))
    batch = data.collate_fn([data[k] for k in (4, 1)])
    assert len(data) == 5 and batch["extra"].tolist() == [4, 1]
    assert env.reset(batch)["locs"].shape == (2, 4, 2)
    new = env.replace_selected_actions(
        torch.tensor([[1, 0, 2, 3, 0], [1, 0, 2, 3, 0]]),
        torch.tensor([[3, 2, 0, 1], [2, 1, 0, 3]]),
        torch.tensor([False, True]),
    )
    assert new.tolist() == [[1, 0, 2, 3, 0], [2, 1, 0, 3, 0]]


def test_gathering_rows_keeps_the_units():
    """RL4CO's gather_by_index over a batch of starts takes the units of demand along."""
    env = CVRPEnv(generator_params={"num_loc": 3}, seed=0)
    td = unbatchify(batchify(env.reset(torch.cat([square(), square((0.3, 0.2, 0.1))])), 2), 2)
    taken = gather_by_index(td, torch.tensor([1, 0]))
    assert taken["_w", "demand_units"].tolist() == [[0, 5, 5, 5], [0, 3, 2, 1]]
