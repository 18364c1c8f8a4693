"""Generators as makers of TensorDicts, and how environments call generators of any kind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict

import milkrun
from milkrun import scale
from milkrun.api.torchrl import CVRPEnv, TSPEnv
from milkrun.api.torchrl.generators import GENERATOR_REGISTRY, CVRPGenerator, TSPGenerator, get_generator
from milkrun.core.errors import ConfigError, ShapeError
from milkrun.routing import generators as core
from tests.api.torchrl_tools import assert_same, random_policy
from tests.published import published_file
from tests.routing.test_instance_faults import CVRP


def test_instances_are_those_of_the_numpy_generators():
    """Instance i of seed s is that of milkrun.routing.generators, its demand as a share of the vehicle."""
    arrays = core.CVRPGenerator(num_loc=7, capacity=25).generate([2, 3], seed=4, first=5, episode=1)
    td = get_generator("cvrp", num_loc=7, capacity=25).generate([2, 3], seed=4, first=5, episode=1)
    assert td.batch_size == (2, 3) and td.device == torch.device("cpu")
    assert np.array_equal(td["locs"].numpy(), arrays["locs"]) and np.array_equal(td["depot"].numpy(), arrays["depot"])
    assert td["demand"].dtype == td["capacity"].dtype == torch.float32
    assert torch.equal(td["capacity"], torch.full((2, 3, 1), 25.0))
    assert np.array_equal((td["demand"] * 25).round().int().numpy(), arrays["demand_units"])
    places = core.TSPGenerator(num_loc=7).generate(3)
    assert np.array_equal(TSPGenerator(num_loc=7).generate(batch_size=3)["locs"].numpy(), places["locs"])


def test_files_become_instances_that_reset_takes(tmp_path):
    """A dataset, a file of RL4CO with demand in units, a CVRPLIB file by its own metric: 18 for trips 1 and 2, 3."""
    folder = scale.generate("milkrun/CVRP-v0", 4, tmp_path / "d", 7, config={"num_loc": 3}, on="local")
    env = CVRPEnv(num_loc=3)
    td = env.reset(env.load_data(folder))
    assert td.batch_size == (4,)
    for name, array in milkrun.read_dataset(folder).items():
        assert np.array_equal(env.reader.find(td, name).numpy().reshape(array.shape), array)
    arrays = {"depot": np.zeros((1, 2)), "locs": np.ones((1, 3, 2)), "demand": np.array([[1, 9, 4]]), "capacity": [20]}
    np.savez(tmp_path / "rl4co.npz", **arrays)
    assert env.reset(env.load_data(tmp_path / "rl4co.npz"))["demand_units"].tolist() == [[0, 1, 9, 4]]
    (tmp_path / "square.vrp").write_text(CVRP)
    env = CVRPEnv(num_loc=3, metric="round")
    td = env.reset(env.load_data(str(tmp_path / "square.vrp")))
    assert env.get_reward(td, torch.tensor([[1, 0, 2, 3, 0]])).tolist() == [-18]


def test_a_file_needs_an_environment_of_its_rules(tmp_path):
    """Lengths that are not rounded are those of another problem; so is a TSP."""
    (tmp_path / "square.vrp").write_text(CVRP)
    with pytest.raises(ConfigError, match="with num_loc=3, metric='round'; this one has num_loc=5"):
        CVRPEnv(num_loc=5).load_data(tmp_path / "square.vrp")
    with pytest.raises(ConfigError, match=r"square\.vrp: milkrun/TSP-v0 plays no CVRP file"):
        TSPEnv().load_data(tmp_path / "square.vrp")
    with pytest.raises(ConfigError, match=r"a2-16\.txt: a dial-a-ride file; from_instances"):
        TSPEnv().load_data(published_file("darp/a2-16.txt"))


def test_generators_continue_without_a_seed():
    """Repeated calls give fresh instances; instance 5 of seed 7 is the same alone and in a batch."""
    gen = get_generator("tsp", num_loc=6, seed=7)
    first, second = gen.generate(3), gen(3)
    assert gen.position == 6 and not torch.equal(first["locs"], second["locs"])
    whole = get_generator("tsp", num_loc=6).generate(6, seed=7)
    assert torch.equal(torch.cat([first, second])["locs"], whole["locs"])
    assert torch.equal(gen.generate(1, seed=7, first=5)["locs"][0], whole["locs"][5])
    assert (gen.num_loc, gen.min_loc, gen.max_loc, gen.loc_distribution) == (6, 0.0, 1.0, "uniform")


def test_the_registry_names_them():
    """It has every name of the numpy registry; a name or an option it does not know is refused with the nearest."""
    assert GENERATOR_REGISTRY.keys() == core.GENERATOR_REGISTRY.keys()
    for name, made_by in GENERATOR_REGISTRY.items():
        assert issubclass(made_by, core.GENERATOR_REGISTRY[name]) and get_generator(name).problem == name
    assert {get_generator(name).problem for name in ("TSP", "tsp-v0", "milkrun/TSP-v0")} == {"tsp"}
    assert GENERATOR_REGISTRY["tsp"] is TSPGenerator and GENERATOR_REGISTRY["cvrp"] is CVRPGenerator
    with pytest.raises(ConfigError, match="no generator 'cvpr'; did you mean 'cvrp'"):
        get_generator("cvpr")
    with pytest.raises(ConfigError, match="no option 'num_lox'; did you mean 'num_loc'"):
        get_generator("tsp", num_lox=3)
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="device='cuda': no CUDA device"):
            get_generator("tsp", device="cuda")


@pytest.mark.parametrize("stepping", ["functional", "inplace"])
def test_our_generator_is_used_together_with_a_configuration(stepping):
    """The generator's demands are 1 unit each, the configuration's up to 9; a generator of another size is refused."""
    gen = CVRPGenerator(num_loc=6, max_demand=1)
    env = CVRPEnv(gen, batch_size=[4], seed=2, config={"num_loc": 6}, stepping=stepping)
    alone = CVRPEnv(gen, batch_size=[4], seed=2, stepping=stepping).reset()
    td = env.reset()
    assert torch.equal(td["locs"], alone["locs"]) and td["demand_units"][:, 1:].eq(1).all()
    td["_reset"] = torch.tensor([[True], [False], [True], [False]])
    assert env.reset(td)["demand_units"][:, 1:].eq(1).all()
    with pytest.raises(ShapeError, match=r"locs must have the shape \(4, 21, 2\), not \(4, 7, 2\)"):
        CVRPEnv(gen, batch_size=[4], preset="n20", stepping=stepping).reset()


def test_our_generators_are_called_by_key_whatever_their_own_seed():
    """An environment with one of our generators plays what it would draw itself, and takes its options."""
    given = CVRPEnv(CVRPGenerator(num_loc=4, loc_distribution="clustered", seed=55), batch_size=[3], seed=2)
    drawn = CVRPEnv(batch_size=[3], num_loc=4, loc_distribution="clustered", seed=2)
    for _ in range(2):
        assert_same(given.reset(), drawn.reset())
    assert given.generator.position == 0
    plain = CVRPEnv(core.CVRPGenerator(num_loc=4, loc_distribution="clustered"), batch_size=[3], seed=2)
    assert torch.equal(plain.reset()["locs"], CVRPEnv(drawn.generator, batch_size=[3], seed=2).reset()["locs"])


class Ring(CVRPGenerator):
    """Customers on a circle, turned by the row and the episode."""

    def _generate_locations(self, count, seed, first, episode):
        turn = 0.1 * (first + np.arange(count))[:, None] + 0.01 * episode
        angle = turn + 2 * np.pi * np.arange(self.num_loc) / self.num_loc
        return np.stack([np.cos(angle), np.sin(angle)], -1)


def test_hooks_are_called_for_the_rows_that_begin():
    """A generator with its own hook is called for exactly the keys of the rows, also in partial resets."""
    env = CVRPEnv(Ring(num_loc=4), batch_size=[5], seed=2)

    def turned(row, episode):
        angle = torch.tensor(0.1 * row + 0.01 * episode, dtype=torch.float64)
        return torch.stack([torch.cos(angle), torch.sin(angle)]).float()

    td = env.reset()
    no_rows, some, others = [0, 0, 0, 0, 0], [1, 1, 0, 1, 0], [1, 1, 1, 0, 0]
    for again, episodes in ((no_rows, [0, 0, 0, 0, 0]), (some, [1, 1, 0, 1, 0]), (others, [2, 2, 1, 1, 0])):
        td = env.reset(td.set("_reset", torch.tensor(again, dtype=torch.bool)[:, None]))
        for b, episode in enumerate(episodes):
            assert torch.allclose(td["locs"][b, 1], turned(b, episode), atol=1e-6)
        assert td["hidden", "stream"].tolist() == [[2, b, e] for b, e in enumerate(episodes)]


class External:
    """An external generator; it records how many instances each call requests."""

    num_loc = 4

    def __init__(self):
        self.counts = []

    def __call__(self, batch_size):
        self.counts.append(batch_size)
        locs = torch.full((batch_size, 4, 2), float(len(self.counts))) + torch.arange(4.0)[:, None]
        return TensorDict({"locs": locs}, [batch_size])


def test_external_generators_make_one_instance_for_each_row_that_begins():
    """Any object with generate(b) or a call is called for the rows that begin, and its num_loc is used."""
    external = External()
    env = TSPEnv(external, batch_size=[2, 3], seed=2)
    td = env.reset()
    assert env.config.num_loc == 4 and (td["locs"][..., 0, 0] == 1).all()
    td["_reset"] = torch.tensor([[True, False, False], [False, True, False]])
    td = env.reset(td)
    assert external.counts == [6, 2]
    assert td["locs"][..., 0, 0].tolist() == [[2, 1, 1], [1, 2, 1]]
    assert env.rollout(4, policy=random_policy(env))["next", "done"][..., -1, 0].all()


@pytest.mark.parametrize("made", [TensorDict({"locs": torch.zeros(2, 4, 2)}, [2]), [1, 2, 3]])
def test_instances_of_external_generators_are_checked(made):
    """The wrong number of instances, or no TensorDict at all, is a ShapeError that names the generator."""
    env = TSPEnv(lambda batch_size: made, num_loc=4, seed=2)
    with pytest.raises(ShapeError, match="function"):
        env.reset(batch_size=3)
