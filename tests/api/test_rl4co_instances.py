"""Constructor arguments and instances of the RL4CO environments: validation, generators, settings, seeds, copies."""

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
from rl4co.envs.routing import CVRPEnv as TheirCVRPEnv
from rl4co.envs.routing import CVRPGenerator as TheirCVRPGenerator
from rl4co.utils.decoding import random_policy, rollout
from tensordict import TensorDict

import milkrun
from milkrun import scale
from milkrun.api.rl4co import CVRPEnv, TSPEnv
from milkrun.core.errors import BadInstance, ConfigError, FormatError, MissingExtra, ShapeError
from milkrun.routing import generators, tasks
from tests import published
from tests.api.rl4co_tools import ENVS, play, same, square, started
from tests.routing.test_instance_faults import CVRP


@pytest.mark.parametrize(
    ("demand", "capacity", "units", "truck"),
    [
        ((0.3, 0.9 / 3, 1.0), 30.0, [9, 9, 30], 30),
        ((0.3, 0.25, 1.0), 30.0, [300_000_000, 250_000_000, 1_000_000_000], 1_000_010_000),
        ((0.3, 0.25, 1.0), float("nan"), [300_000_000, 250_000_000, 1_000_000_000], 1_000_010_000),
    ],
)
def test_shares_become_whole_units(demand, capacity, units, truck):
    """Shares of a truck that are whole units are counted in them, others in billionths, with RL4CO's tolerance."""
    td = CVRPEnv(generator_params={"num_loc": 3}, seed=0).reset(square(demand, capacity))
    got = td["_w", "demand_units"][0].tolist()
    assert got[0] == 0 and np.allclose(got[1:], units, rtol=1e-7, atol=0)
    assert td["_w", "capacity"].tolist() == [[truck]]


def test_sixty_sixtieths_fill_a_truck_and_no_more():
    """Without a capacity to count by, sixty customers of 1/60 fit one trip, and a 61st does not."""
    data = TensorDict(
        {
            "locs": torch.zeros(1, 61, 2),
            "depot": torch.ones(1, 2),
            "demand": torch.full((1, 61), 1 / 60),
            "capacity": torch.full((1, 1), torch.nan),
        },
        batch_size=[1],
    )
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


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"demand": torch.tensor([[0.5, 0.5, 0.5], [0.5, torch.nan, 0.5]])}, BadInstance, "row 1: demand"),
        ({"demand": torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.5, 5.0]])}, BadInstance, r"row 1: demand\[2\] = 5.0"),
        ({"demand": torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.0, 0.5]])}, BadInstance, "row 1: demand"),
        ({"demand": torch.full((2, 4), 0.5)}, ShapeError, r"demand must have the shape \(2, 3\)"),
        ({"depot": torch.full((2, 2), torch.inf)}, BadInstance, "row 0: locs"),
    ],
)
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


@pytest.mark.parametrize(
    ("env", "keywords", "words"),
    [
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
    ],
)
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
    assert not copied(env)._steppers  # they hold addresses of the original's memory


@pytest.mark.parametrize("name", ENVS)
def test_a_dataset_is_loaded_as_the_instances_that_the_world_draws(name, tmp_path):
    """Folder and file; instance 3 is what row 3 draws first, demand in the same units."""
    id, places = f"milkrun/{name.upper()}-v0", {"num_loc": 4}
    folder = scale.generate(id, 5, tmp_path / "d", 7, config=places, on="local", shard_rows=3)
    world = milkrun.make(id, 5, seed=7, **places)
    world.reset()
    env = ENVS[name](data_dir=str(tmp_path), val_file="d", generator_params={"num_loc": 4})
    td = env.reset(env.load_data(folder))
    assert torch.equal(td["locs"], torch.from_numpy(world.locs))
    assert len(env.dataset(phase="val")) == 5 and len(env.load_data(folder / "data-000001.npz")) == 2
    if name == "cvrp":
        assert torch.equal(td["_w", "demand_units"], torch.from_numpy(world.demand_units))
        assert td["capacity"].flatten().tolist() == world.capacity.tolist()
    rewards = rollout(env, td, random_policy)[0]
    assert rewards.shape == (5,) and (rewards < 0).all()


def test_a_file_of_rl4co_is_loaded_as_rl4co_does(tmp_path):
    """Arrays of RL4CO's own writer: demand in units with a capacity becomes the same shares."""
    written = {
        "depot": np.zeros((2, 2), np.float32),
        "locs": np.full((2, 3, 2), 0.5, np.float32),
        "demand": np.array([[1, 9, 4], [2, 2, 2]], np.float32),
        "capacity": np.full(2, 20, np.float32),
    }
    np.savez(tmp_path / "vrp.npz", **written)
    ours, theirs = CVRPEnv.load_data(tmp_path / "vrp.npz"), TheirCVRPEnv.load_data(tmp_path / "vrp.npz")
    for key in ("locs", "depot", "demand"):
        assert torch.equal(ours[key], theirs[key])
    assert CVRPEnv().reset(ours)["_w", "demand_units"].tolist() == [[0, 1, 9, 4], [0, 2, 2, 2]]
    np.savez(tmp_path / "shares.npz", **{**written, "demand": written["demand"] / 20})
    with pytest.raises(FormatError, match=r"shares\.npz: demand must be whole units"):
        CVRPEnv.load_data(tmp_path / "shares.npz")


def test_a_file_of_the_literature_is_loaded(tmp_path):
    """Trips 1 and 2, 3 round the box of 3 x 4: 3 + 3 + 5 + 3 + 4. The tour of the TSP file: 14."""
    (tmp_path / "square.vrp").write_text(CVRP)
    env = CVRPEnv(generator_params={"num_loc": 3})
    td = env.reset(env.load_data(tmp_path / "square.vrp"))
    assert env.get_reward(play(env, td, 1, 0, 2, 3, 0), torch.tensor([[1, 0, 2, 3, 0]])).tolist() == [-18]
    tsp = CVRP[: CVRP.index("DEMAND_SECTION")].replace("TYPE : CVRP", "TYPE : TSP").replace("CAPACITY : 10\n", "")
    (tmp_path / "square.tsp").write_text(tsp + "EOF\n")
    env = TSPEnv()
    td = env.reset(env.load_data(tmp_path / "square.tsp"))
    assert env.get_reward(td, torch.tensor([[0, 1, 2, 3]])).tolist() == [-14]


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("tsplib/fri26.tsp", ConfigError, "is measured by 'matrix'"),
        ("cvrplib/A-n32-k5.vrp", ConfigError, "A-n32-k5.vrp: milkrun/TSP-v0 plays no CVRP file"),
        ("absent.npz", FormatError, "absent.npz: cannot be read: No such file"),
        ("absent.tsp", FormatError, "absent.tsp: cannot be read: No such file"),
    ],
)
def test_a_file_that_rl4co_cannot_play_is_refused(name, error, words):
    """Before any TensorDict is made of it."""
    with pytest.raises(error, match=words):
        TSPEnv.load_data(published.KEPT / "routing" / name)


def test_fields_that_rl4co_has_not_are_refused(tmp_path):
    """A limit of the trips' length would be forgotten."""
    folder = scale.generate("milkrun/CVRP-v0", 2, tmp_path / "d", config={"num_loc": 4, "max_length": 5.0}, on="local")
    with pytest.raises(ConfigError, match="max_length; CVRPEnv reads locs, demand_units, capacity"):
        CVRPEnv.load_data(folder)


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


def test_without_rl4co_the_import_says_what_to_install(monkeypatch):
    """MissingExtra names the extra."""
    for module in [m for m in sys.modules if m.startswith("milkrun.api.rl4co")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "rl4co", None)
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[rl4co\]"'):
        importlib.import_module("milkrun.api.rl4co")
