"""The RL4CO environments by themselves: keys worked out by hand, TensorDict operations, instances at the door, seeds.

The comparison with RL4CO's own environments is in tests/truth.
"""

from __future__ import annotations

import copy
import importlib
import pickle
import random
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("rl4co", reason="needs rl4co")

from rl4co.envs.common.base import RL4COEnvBase
from rl4co.envs.routing import CVRPGenerator as TheirCVRPGenerator
from rl4co.utils.decoding import random_policy, rollout
from rl4co.utils.ops import batchify, gather_by_index, unbatchify, unbatchify_and_gather
from tensordict import TensorDict

import milkrun
from milkrun.api import _td
from milkrun.api.rl4co import CVRPEnv, TSPEnv
from milkrun.core.errors import BadInstance, BadSolution, ConfigError, IllegalAction, MissingExtra, ShapeError
from milkrun.routing import generators, tasks

ENVS = {"tsp": TSPEnv, "cvrp": CVRPEnv}
SQUARE = [[3.0, 0.0], [3.0, 4.0], [0.0, 4.0]]


def square(demand=(0.5, 0.5, 0.5), capacity=10.0, rows=1):
    """Depot (0,0), customers at the other corners of a 3 x 4 box."""
    one = {
        "locs": torch.tensor([SQUARE]), "depot": torch.zeros(1, 2), "demand": torch.tensor([demand]),
        "capacity": torch.tensor([[capacity]]),
    }  # fmt: skip
    return TensorDict({k: v.repeat(rows, *[1] * (v.ndim - 1)) for k, v in one.items()}, batch_size=[rows])


def play(env, td, *actions):
    for action in actions:
        td.set("action", torch.as_tensor(action).expand(td.batch_size).clone())
        td = env.step(td)["next"]
    return td


def started(name, rows=6, num_loc=5):
    """An environment and a batch some steps into random episodes, each row at its own place."""
    env = ENVS[name](generator_params={"num_loc": num_loc}, seed=11)
    td = env.reset(batch_size=[rows])
    for turn in range(3):
        allowed = td["action_mask"].nonzero()
        action = torch.stack([nodes[(turn + b) % len(nodes), 1] for b in range(rows)
                              for nodes in [allowed[allowed[:, 0] == b]]])  # fmt: skip
        td.set("action", action)
        td = env.step(td)["next"]
    td.set("action", td["action_mask"].int().argmax(-1))
    return env, td


def leaves(td):
    return {key: value.clone() for key, value in td.items(True, True)}


def same(a, b):
    assert set(a.keys(True, True)) == set(b.keys(True, True))
    return all(torch.equal(value, b[key]) for key, value in a.items(True, True))


def shown(td, *keys):
    return [td[key].tolist() for key in keys]


def test_cvrp_keys_by_hand():
    """Half a truck each: after two customers only the depot is open; [1, 0, 2, 3, 0] drives 3+3 + 5+3+4 = 18."""
    env = CVRPEnv(generator_params={"num_loc": 3}, seed=0)
    td = env.reset(square())
    keys = ("current_node", "used_capacity", "vehicle_capacity", "visited", "action_mask", "done")
    assert td["locs"].tolist() == [[[0, 0], *SQUARE]]
    assert shown(td, *keys) == [[[0]], [[0]], [[1]], [[0, 0, 0, 0]], [[False, True, True, True]], [[False]]]
    td = play(env, td, 1)
    assert shown(td, *keys) == [[[1]], [[0.5]], [[1]], [[0, 1, 0, 0]], [[True, False, True, True]], [[False]]]
    td = play(env, td, 0)
    assert shown(td, *keys) == [[[0]], [[0]], [[1]], [[1, 1, 0, 0]], [[False, False, True, True]], [[False]]]
    td = play(env, td, 2, 3)
    assert shown(td, *keys) == [[[3]], [[1.0]], [[1]], [[1, 1, 1, 1]], [[True, False, False, False]], [[False]]]
    td = play(env, td, 0)
    assert shown(td, "done", "terminated", "reward") == [[[True]], [[True]], [[0.0]]]
    assert env.get_reward(td, torch.tensor([[1, 0, 2, 3, 0]])).tolist() == [-18.0]
    assert td["visited"].dtype == torch.uint8 and td["demand"].tolist() == [[0.5, 0.5, 0.5]]


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


@pytest.mark.parametrize(("demand", "capacity", "units", "truck"), [
    ((0.3, 0.9 / 3, 1.0), 30.0, [9, 9, 30], 30),
    ((0.3, 0.25, 1.0), 30.0, [300_000_000, 250_000_000, 1_000_000_000], 1_000_010_000),
    ((0.3, 0.25, 1.0), float("nan"), [300_000_000, 250_000_000, 1_000_000_000], 1_000_010_000),
])  # fmt: skip
def test_shares_become_whole_units(demand, capacity, units, truck):
    """Shares of a truck that are whole units are counted in them, others in billionths, with RL4CO's tolerance."""
    td = CVRPEnv(generator_params={"num_loc": 3}, seed=0).reset(square(demand, capacity))
    got = td["_w", "demand_units"][0].tolist()
    assert got[0] == 0 and np.allclose(got[1:], units, rtol=1e-7, atol=0)
    assert td["_w", "capacity"].tolist() == [[truck]]


def test_sixty_sixtieths_fill_a_truck_and_no_more():
    """Without a capacity to count by, sixty customers of 1/60 fit one trip, and a 61st does not."""
    data = TensorDict({"locs": torch.zeros(1, 61, 2), "depot": torch.ones(1, 2), "demand": torch.full((1, 61), 1 / 60),
                       "capacity": torch.full((1, 1), torch.nan)}, batch_size=[1])  # fmt: skip
    env = CVRPEnv(generator_params={"num_loc": 61}, seed=0)
    td = play(env, env.reset(data), *range(1, 60))
    assert td["action_mask"][0, [60, 61]].tolist() == [True, True]
    td = play(env, td, 60)
    assert td["action_mask"][0].nonzero().tolist() == [[0]]


def test_a_missing_capacity_is_the_generators():
    """RL4CO's data may lack `capacity`: a third is 10 of the 30 units of 20 customers."""
    env = CVRPEnv(generator_params={"num_loc": 20}, seed=0)
    td = env.reset(square((1 / 3, 1 / 30, 0.9)).exclude("capacity"))
    assert td["_w", "demand_units"].tolist() == [[0, 10, 1, 27]] and td["_w", "capacity"].tolist() == [[30]]


@pytest.mark.parametrize(("change", "error", "words"), [
    ({"demand": torch.tensor([[0.5, 0.5, 0.5], [0.5, torch.nan, 0.5]])}, BadInstance, "row 1: demand"),
    ({"demand": torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.5, 1.2]])}, BadInstance, "row 1: demand"),
    ({"demand": torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.0, 0.5]])}, BadInstance, "row 1: demand"),
    ({"demand": torch.full((2, 4), 0.5)}, ShapeError, r"demand must have the shape \(2, 3\)"),
    ({"depot": torch.full((2, 2), torch.inf)}, BadInstance, "row 0: locs"),
])  # fmt: skip
def test_bad_instances_are_refused_at_reset(change, error, words):
    """Shares that are no number, too much or nothing, wrong shapes, infinite places: row and field are named."""
    env = CVRPEnv(generator_params={"num_loc": 3}, seed=0)
    with pytest.raises(error, match=words):
        env.reset(square(rows=2).update(change))


def test_missing_keys_are_named():
    """A TensorDict without depot cannot be reset, one that was never reset cannot be stepped."""
    env = CVRPEnv(generator_params={"num_loc": 3}, seed=0)
    with pytest.raises(ShapeError, match="lacks 'depot'"):
        env.reset(square().exclude("depot"))
    with pytest.raises(ShapeError, match="lacks '_w'"):
        env.step(square())
    with pytest.raises(ShapeError, match="lacks 'action'"):
        env.step(env.reset(square()))


def test_a_reset_of_a_reset_begins_again():
    """Resetting what reset returned plays the same instances from the start, the depot not joined twice."""
    env = CVRPEnv(generator_params={"num_loc": 3}, seed=0)
    first = env.reset(square()).clone()
    again = env.reset(play(env, first.clone(), 1, 2).exclude("action"))
    assert same(again, first)


def test_instances_of_another_size_than_the_generators():
    """An environment of 20 customers plays an instance of 3, and a batch of no dimension."""
    env = CVRPEnv(generator_params={"num_loc": 20}, seed=0)
    td = play(env, env.reset(square()[0]), 1, 0, 2, 3, 0)
    assert td.batch_size == () and td["done"].tolist() == [True]


def test_generator_draws_what_the_world_draws():
    """The first call gives the instances of rows 0..3 of seed 7, the next those of rows 4 and 5, in RL4CO's layout."""
    env = CVRPEnv(generator_params={"num_loc": 20, "capacity": 25.0, "max_demand": 5}, seed=7)
    world = milkrun.make("milkrun/CVRP-v0", 6, seed=7, num_loc=20, capacity=25, max_demand=4)
    world.reset()
    drawn = torch.cat([env.generator([4]), env.generator(2)])
    assert np.array_equal(drawn["depot"], world.locs[:, 0]) and np.array_equal(drawn["locs"], world.locs[:, 1:])
    assert np.array_equal(drawn["demand"], world.demand_units[:, 1:].astype(np.float32) / np.float32(25))
    assert drawn["capacity"].tolist() == [[25.0]] * 6
    env.set_seed(7)
    assert same(env.generator([6]), drawn)


def test_uniform_is_the_law_by_either_name():
    """RL4CO names the law by a word or by torch's class; the box is honoured."""
    for law in ("uniform", torch.distributions.Uniform):
        params = {"num_loc": 50, "min_loc": 2.0, "max_loc": 3.0, "loc_distribution": law}
        locs = TSPEnv(generator_params=params, seed=0).generator([100])["locs"]
        assert 2 <= locs.min() < 2.01 and 2.99 < locs.max() <= 3


@pytest.mark.parametrize(("env", "keywords", "words"), [
    (TSPEnv, {"generator_params": {"num_locs": 20}}, "did you mean 'num_loc'"),
    (TSPEnv, {"generator_params": {"capacity": 20}}, "generator_params has no 'capacity'"),
    (CVRPEnv, {"generator_params": {"loc_distribution": "cluster"}}, "loc_distribution = 'cluster'"),
    (CVRPEnv, {"generator_params": {"vehicle_capacity": 2.0}}, "vehicle_capacity = 2.0: must be 1"),
    (CVRPEnv, {"generator_params": {"min_demand": 2}}, "min_demand = 2: must be 1"),
    (CVRPEnv, {"generator_params": {"capacity": 30.5}}, "capacity = 30.5"),
    (CVRPEnv, {"generator": TheirCVRPGenerator(vehicle_capacity=2.0)}, "vehicle_capacity = 2.0: must be 1"),
    (CVRPEnv, {"generator": 5}, "generator must be callable"),
    (CVRPEnv, {"generator": TheirCVRPGenerator(), "generator_params": {"num_loc": 5}}, "either generator or"),
    (CVRPEnv, {"check_solutions": True}, "did you mean 'check_solution'"),
    (CVRPEnv, {"illegal": "ignore"}, "illegal='ignore'"),
    (CVRPEnv, {"seed": -1}, "seed -1"),
])  # fmt: skip
def test_unknown_settings_are_refused(env, keywords, words):
    """What RL4CO would log or swallow is a ConfigError that names the key."""
    with pytest.raises(ConfigError, match=words):
        env(**keywords)


def test_make_gives_the_environment_in_milkruns_words():
    """Row i of a `first_row=2` environment is row i + 2 of the seed; options of the laws are the world's."""
    env = milkrun.make("milkrun/CVRP-v0", 3, api="rl4co", seed=5, first_row=2, num_loc=8, depot_type="center")
    td = env.reset()
    expected = generators.get_generator("cvrp", num_loc=8, depot_type="center").generate(3, seed=5, first=2)
    assert isinstance(env, CVRPEnv) and isinstance(env, RL4COEnvBase) and env.name == "cvrp"
    assert np.array_equal(td["locs"][:, 1:], expected["locs"]) and td["locs"][:, 0].tolist() == [[0.5, 0.5]] * 3
    assert isinstance(milkrun.make("milkrun/TSP-v0", api="rl4co", num_loc=8), TSPEnv)


@pytest.mark.parametrize(("option", "value"), [("metric", "manhattan"), ("max_length", 3.0), ("reward", "terminal")])
def test_make_refuses_what_rl4co_cannot_say(option, value):
    """Metrics, trip limits and dense rewards have no place in RL4CO's layout."""
    with pytest.raises(ConfigError, match=f"{option} = {value!r}"):
        milkrun.make("milkrun/CVRP-v0", api="rl4co", **{option: value})


@pytest.mark.parametrize("name", ENVS)
def test_no_global_random_state_is_touched(name):
    """Making, seeding, drawing, stepping, copying and pickling leave torch, numpy and `random` as they were."""
    torch.manual_seed(1)  # RL4CO's own constructor would draw from this state and set it
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    env = ENVS[name](generator_params={"num_loc": 5})
    env.set_seed(3)
    play(env, env.reset(batch_size=[4]), 1)
    pickle.loads(pickle.dumps(copy.deepcopy(env)))
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[2]
    assert np.array_equal(np.random.get_state()[1], states[1])


@pytest.mark.parametrize("name", ENVS)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_step_and_draw_alike(name, copied):
    """A deep copy (Lightning makes one) and a pickled one draw the next instances and step to the same bits."""
    env, td = started(name)
    twin = copied(env)
    assert same(twin.step(td.clone())["next"], env.step(td.clone())["next"])
    assert same(twin.reset(batch_size=[3]), env.reset(batch_size=[3]))


def test_a_given_generator_keeps_its_seed():
    """A Milkrun generator goes on from where it stands, unless the environment is given a seed of its own."""
    def laws():
        made = generators.get_generator("tsp", num_loc=5, seed=9)
        made.generate(2)
        return made

    expected = generators.get_generator("tsp", num_loc=5).generate(3, seed=9, first=2)
    assert np.array_equal(TSPEnv(laws()).reset(batch_size=[3])["locs"], expected["locs"])
    expected = generators.get_generator("tsp", num_loc=5).generate(3, seed=4)
    assert np.array_equal(TSPEnv(laws(), seed=4).reset(batch_size=[3])["locs"], expected["locs"])


def test_rl4cos_generator_is_taken_as_it_is():
    """RL4CO's own generator objects serve; a random episode on them passes the checker and costs what the task says."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        env = CVRPEnv(generator=TheirCVRPGenerator(num_loc=10))
        reward, td, actions = rollout(env, env.reset(batch_size=[32]), random_policy)
    assert env.generator.num_loc == 10 and td["_w", "capacity"].unique().tolist() == [20]
    cost, _, _ = tasks.CVRP.get_costs({"locs": td["locs"], "demand": td["demand"]}, actions)
    torch.testing.assert_close(-reward.double(), cost, rtol=1e-5, atol=0)


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
        torch.tensor([[1, 0, 2, 3, 0], [1, 0, 2, 3, 0]]), torch.tensor([[3, 2, 0, 1], [2, 1, 0, 3]]),
        torch.tensor([False, True]),
    )  # fmt: skip
    assert new.tolist() == [[1, 0, 2, 3, 0], [2, 1, 0, 3, 0]]


def test_gathering_rows_keeps_the_units():
    """RL4CO's gather_by_index over a batch of starts takes the units of demand along."""
    env = CVRPEnv(generator_params={"num_loc": 3}, seed=0)
    td = unbatchify(batchify(env.reset(torch.cat([square(), square((0.3, 0.2, 0.1))])), 2), 2)
    taken = gather_by_index(td, torch.tensor([1, 0]))
    assert taken["_w", "demand_units"].tolist() == [[0, 5, 5, 5], [0, 3, 2, 1]]


def test_without_rl4co_the_import_says_what_to_install(monkeypatch):
    """MissingExtra names the extra."""
    for module in [m for m in sys.modules if m.startswith("milkrun.api.rl4co")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "rl4co", None)
    with pytest.raises(MissingExtra, match=r'pip install "milkrun\[rl4co\]"'):
        importlib.import_module("milkrun.api.rl4co")
