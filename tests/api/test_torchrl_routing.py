"""The routing worlds as TorchRL environments: all their options, what is hidden, rewards by the tasks, k-opt moves."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.envs import EnvBase
from torchrl.envs.utils import check_env_specs

import milkrun
from milkrun.api import torchrl as api
from milkrun.api.torchrl import BatchMixin, OpsMixin, RL4COEnvBase, TSPkoptEnv, env_class
from milkrun.api.torchrl.generators import GENERATOR_REGISTRY, get_generator
from milkrun.core.errors import BadSolution, ConfigError, ShapeError
from tests.api.torchrl_tools import assert_same, bits, checksums, leaves, random_policy, started

NAMES = (
    "TSPEnv",
    "TSPkoptEnv",
    "CVRPEnv",
    "PDPEnv",
    "PCTSPEnv",
    "VRPEnv",
    "VRPPEnv",
    "CVRPPEnv",
    "WCVRPEnv",
    "CWCVRPEnv",
    "SCWCVRPEnv",
    "SDWCVRPEnv",
    "DARPEnv",
)
VARIANTS = [
    ("TSPkopt", {"max_steps": 9}),
    ("TSPkopt", {"max_steps": 9, "action_mode": "node", "reward_mode": "current", "init": "greedy"}),
    ("TSPkopt", {"max_steps": 9, "moves": "3opt", "metric": "matrix"}),
    ("PDP", {"preset": "mdcpdp"}),
    ("PDP", {"time_windows": True, "limits": True, "vehicles": 2, "search_limit": 1}),
    ("VRP", {"variant": "all48"}),
    ("VRP", {"preset": "svrp"}),
    ("VRPP", {"time_windows": True, "trips": "multi"}),
    ("VRPP", {"length_weight": 2.5, "prize_weight": 0.5, "reward": "terminal"}),
    ("CVRPP", {"weight_law": "units", "trips": "multi", "max_length": 3.0}),
    ("CVRPP", {"time_windows": True, "capacity": 150}),
    ("WCVRP", {"must_go": "level", "max_waste": 100.0, "must_go_reserve": False}),
    ("SCWCVRP", {"sigma": 0.9, "recourse": "round_trip", "failure_weight": 3.0}),
    ("SCWCVRP", {"sigma": 0.9, "trips": "single", "overflow_weight": 2.0}),
    ("SDWCVRP", {"horizon": 2, "sensor_sigma": 0.4, "lost_weight": 0.7, "must_go": "lookahead"}),
    ("SDWCVRP", {"horizon": 2, "recourse": "round_trip", "must_go": "random", "reward": "terminal"}),
    ("DARP", {"style": "b", "num_agents": 1}),
    ("DARP", {"rule": "deadlines", "num_agents": 2}),
]
HIDDEN = {"real_waste", "daily_fill", "sensor_noise", "initial_waste", "expected0"}

variants = pytest.mark.parametrize(
    ("name", "options"), VARIANTS, ids=lambda given: given if isinstance(given, str) else "-".join(given)
)


def made(name, options, **keywords):
    return getattr(api, f"{name}Env")(num_loc=6, **options, **keywords)


@pytest.mark.parametrize("name", NAMES)
def test_every_class_has_its_name_and_passes_the_checker(name):
    """The seed's class names; specs hold, and 300 random steps with automatic resets stay in them."""
    cls = getattr(api, name)
    assert cls.__name__ == name and env_class(cls.fixed_id) is cls and name in api.__all__
    env = cls(batch_size=[2], num_loc=6, seed=1, **({"max_steps": 20} if name == "TSPkoptEnv" else {}))
    check_env_specs(env, break_when_any_done="both")
    rolled = env.rollout(300, policy=random_policy(env), break_when_any_done=False)
    assert rolled.batch_size == (2, 300) and rolled["next", "done"].sum() >= 4
    assert env.observation_spec.is_in(rolled[:, -1].select(*env.observation_spec.keys(True, True)))


@pytest.mark.parametrize("stepping", ["functional", "inplace"])
@variants
def test_rows_are_those_of_the_world_with_every_option(name, options, stepping):
    """Two episodes of five rows: all fields, rewards and ends have the bits of a World with the same keys."""
    env = made(name, options, batch_size=5, stepping=stepping, seed=11)
    world = milkrun.make(env.world_id, 5, seed=11, autoreset="disabled", config=env.config)
    world.reset()
    td, episodes = env.reset(), np.zeros(5, int)
    names = [s.name for s in (*env._stepper.instance, *env._stepper.carried)]
    while episodes.min() < 2:
        td["action"] = env.sample_actions(td)
        world.step(td["action"].numpy())
        stepped, td = env.step_and_maybe_reset(td)
        following = stepped["next"]
        assert not world.illegal.any()
        for field in (*names, "reward", "stream"):
            mine = following.get(field, following["hidden"].get(field, None))
            assert bits(mine.reshape(-1)) == getattr(world, field).tobytes(), field
        ended = world.terminated | world.truncated
        episodes += ended
        if ended.any():
            world.reset(ended)


@variants
def test_a_clone_is_stepped_alone(name, options):
    """Stepping a clone leaves every bit of the original, which then steps to the same result."""
    env = made(name, options, seed=4)
    td = started(env, 2, batch=6)
    before, clone = checksums(td), td.clone()
    there = env.step(clone)["next"]
    assert checksums(td) == before
    assert_same(env.step(td)["next"], there)


@variants
def test_rewards_of_solutions_follow_the_configuration(name, options):
    """get_reward of an episode's actions is the sum of its rewards under any weights, trips and recourse."""
    env = made(name, options, batch_size=[40], seed=8)
    rolled = env.rollout(120, policy=random_policy(env), break_when_all_done=True)
    done = rolled["next", "done"][..., 0]
    live = torch.cat([torch.ones_like(done[:, :1]), ~done[:, :-1]], -1)
    returns = (rolled["next", "reward"][..., 0] * live).sum(-1)
    assert done[:, -1].all()
    assert torch.allclose(env.get_reward(rolled[:, 0], rolled["action"] * live), returns, rtol=1e-4, atol=1e-4)


def test_many_days_may_come_by_day():
    """SDWCVRP takes (B, days, L) from anywhere, the actions one after another only from the reset, and nothing else."""
    env = api.SDWCVRPEnv(batch_size=[3], num_loc=5, horizon=2, seed=3)
    td = env.reset()
    days = torch.tensor([[[1, 2, 0, 0], [0, 0, 0, 0]]]).expand(3, 2, 4)
    whole = torch.tensor([[1, 2, 0, 0, 0]]).expand(3, 5)
    worth = env.get_reward(td, days)
    assert torch.allclose(worth, env.get_reward(td, whole))
    later = env.step(td.set("action", whole[:, 0]))["next"]
    assert torch.equal(env.get_reward(later, days), worth)
    with pytest.raises(ShapeError, match="need the TensorDict of their reset"):
        env.get_reward(later, whole)
    with pytest.raises(ShapeError, match=r"\(3, 'T'\)"):
        api.CVRPEnv(num_loc=5).get_reward(api.CVRPEnv(num_loc=5).reset(batch_size=3), days)


@pytest.mark.parametrize("problem", list(GENERATOR_REGISTRY))
def test_instances_of_a_generator_are_those_that_a_world_draws(problem):
    """reset(generator's TensorDict) is the reset of an environment with that seed, and so is reset(its reset)."""
    cls = next(getattr(api, n) for n in NAMES if n.lower() == f"{problem.replace('_', '')}env")
    gen = get_generator(problem, num_loc=6, device="cpu")
    drawn = cls(batch_size=[5], num_loc=6, seed=7).reset()
    data = gen.generate(5, seed=7)
    given = cls(batch_size=[5], num_loc=6, seed=7).reset(data)
    assert_same(given, drawn)
    assert_same(cls(batch_size=[5], num_loc=6, seed=7).reset(drawn), drawn)
    env = cls(batch_size=[5], num_loc=6, seed=7)
    assert env.generator.problem == problem and type(env.generator) is GENERATOR_REGISTRY[problem]
    assert_same(env.generator.generate(5, seed=7), data)
    assert_same(cls(gen, batch_size=[5], seed=7).reset(), drawn)
    assert cls(gen, seed=7)._draws  # by the world's own kernel


def test_a_generator_of_a_related_world_is_used():
    """WCVRP instances played by CWCVRP: the generator's laws and rows, not the world's own."""
    gen = get_generator("wcvrp", num_loc=6, fill_distribution="constant", fill_value=0.25)
    td = api.CWCVRPEnv(gen, batch_size=[3], seed=5).reset()
    assert torch.equal(td["waste"][:, 1:], torch.full((3, 6), 0.25))
    assert torch.equal(td["locs"][:, 1:], gen.generate(3, seed=5)["locs"])


@pytest.mark.parametrize("stepping", ["functional", "inplace"])
@pytest.mark.parametrize("name", ["SCWCVRP", "SDWCVRP"])
def test_what_no_agent_may_see_is_hidden(name, stepping):
    """real_waste, daily_fill and their like stand under "hidden" only: after resets of any kind, steps and rollouts."""
    options = {"sensor_sigma": 0.2, "horizon": 2} if name == "SDWCVRP" else {}
    env = made(name, options, batch_size=[3], seed=2, stepping=stepping)
    gen = get_generator(name.lower(), num_loc=6, **options)
    data = gen.generate(3)
    assert "real_waste" in data or "daily_fill" in data
    shown = [env.reset(), env.reset(data), env.reset(TensorDict({}, [3]))]
    stepped, onward = env.step_and_maybe_reset(started(env, 1))
    shown += [stepped, stepped["next"], onward, env.rollout(9, policy=random_policy(env), break_when_any_done=False)]
    for td in shown:
        assert HIDDEN.isdisjoint(td.keys())
        assert ("hidden", "real_waste") in td.keys(True)
    assert HIDDEN.isdisjoint(env.observation_spec.keys())


def test_the_columns_of_the_contract():
    """(B, 1): current_node, i, capacity, max_waste, current_load, day; (B,): tour_length and what was collected."""
    td = api.SDWCVRPEnv(num_loc=4).reset(batch_size=3)
    for key in ("current_node", "i", "capacity", "vehicle_cap", "max_waste", "load", "current_load", "day"):
        assert td[key].shape == (3, 1), key
    for key in ("tour_length", "collected_waste", "failures"):
        assert td[key].shape == (3,), key
    td = api.CVRPPEnv(num_loc=4).reset(batch_size=3)
    assert td["capacity"].shape == td["current_load"].shape == (3, 1) and td["collected_profit"].shape == (3,)
    assert td["demand"].shape == (3, 5) and td["current_node"].dtype == torch.int64


def test_the_examples_of_the_seed():
    """Its generators and tasks with only the import path changed."""
    from milkrun.api.torchrl.generators import GENERATOR_REGISTRY, get_generator
    from milkrun.routing.tasks import VRPP, BaseProblem

    gen = get_generator("wcvrp", num_loc=50, device="cpu", fill_distribution="gamma")
    data = gen.generate(128)
    assert isinstance(data, TensorDict) and data.batch_size == (128,) and data["locs"].shape == (128, 50, 2)
    td = get_generator("vrpp").generate(batch_size=128)
    assert {"locs", "depot", "demand", "capacity"} <= set(td.keys()) and torch.isinf(td["capacity"]).all()
    assert "time_windows" in get_generator("vrpp", time_windows=True).generate(2)
    assert {"vrpp", "cvrpp", "wcvrp", "tsp", "scwcvrp"} <= GENERATOR_REGISTRY.keys()
    pi = torch.tensor([[3, 1, 2]]).expand(128, 3)
    cost, parts, none = VRPP.get_costs(td, pi, {"length": 0.1})
    assert none is None and BaseProblem.validate_tours(pi)
    assert torch.allclose(parts["profit"], td["demand"][:, :3].double().sum(1))
    assert torch.allclose(cost, 0.1 * parts["length"] - parts["profit"])
    assert torch.allclose(BaseProblem.get_tour_length(td, pi, dist_matrix=None), parts["length"])


def test_the_contract_of_the_seed():
    """RL4COEnvBase(BatchMixin, OpsMixin, EnvBase) with its constructor; reset, step, seeds and masks as it says."""
    assert RL4COEnvBase.__mro__[1:3] == (BatchMixin, OpsMixin) and RL4COEnvBase.__bases__[-1] is EnvBase
    wanted = ["generator", "generator_params", "device", "batch_size"]
    for name in NAMES:
        assert list(inspect.signature(getattr(api, name).__init__).parameters)[1:5] == wanted, name
    assert list(inspect.signature(RL4COEnvBase.__init__).parameters)[1:5] == wanted
    env = api.VRPPEnv(None, {"num_loc": 7}, "cpu", 3)
    assert env.batch_size == torch.Size([3]) and env.config.num_loc == 7
    env.batch_size = [2, 2]
    assert env.reset().batch_size == (2, 2) and env.reset(batch_size=64).batch_size == (64,)
    env._set_seed(5)
    td = env.reset(batch_size=4)
    assert not td["visited"].any() and env.get_action_mask(td).dtype == torch.bool
    td["action"] = torch.tensor([1, 2, 3, 0])
    after = env.step(td)["next"]
    assert after["current_node"].flatten().tolist() == [1, 2, 3, 0] and after["done"].flatten().tolist()[3]
    assert not env.get_action_mask(after)[0, 1]
    with pytest.raises(ConfigError, match="did you mean 'num_loc'"):
        api.WCVRPEnv(num_lco=5)


# -- k-opt ----------------------------------------------------------------------------------------------------------

SQUARE = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]])
CROSSED = 2 + 2 * 2**0.5


@pytest.mark.parametrize("n_nodes", [None, 5])
def test_three_opt_moves_are_drawn_whole(n_nodes):
    """Every draw is legal, all five kinds of moves occur, padding is never named; the spec counts 5 n^3 actions."""
    env = TSPkoptEnv(num_loc=6, moves="3opt", seed=1, illegal="raise")
    assert env.action_spec.space.n == 5 * 6**3
    td = env.reset(batch_size=400)
    if n_nodes:
        td = env.reset(td.set("n_nodes", torch.full((400,), n_nodes, dtype=torch.int32)))
    drawn = env.sample_actions(td)
    assert drawn.shape == (400,) and set((drawn // 6**3).tolist()) == {0, 1, 2, 3, 4}
    for power in range(3):
        assert (drawn // 6**power % 6).max() < (n_nodes or 6)
    env.step(td.set("action", drawn))  # illegal="raise": refuses what is not legal
    two = TSPkoptEnv(num_loc=6)
    assert two.action_spec.space.n == 36


@pytest.mark.parametrize("mode", ["best", "current"])
def test_solutions_of_kopt(mode):
    """The unit square crossed (2 + 2 sqrt 2) and round (4): solutions, costs, rewards, and a jump to a given tour."""
    env = TSPkoptEnv(num_loc=4, init="identity", reward_mode=mode)
    td = env.reset(TensorDict({"locs": SQUARE}, [1]))
    assert env.get_current_solution(td).tolist() == [[0, 1, 2, 3]] and td["cost_current"].item() == 4.0
    before = checksums(td)
    crossed = env.step_to_solution(td, torch.tensor([[2, 1, 3, 0]]))
    assert checksums(td) == before
    assert env.get_current_solution(crossed).tolist() == [[0, 2, 1, 3]]
    assert crossed["pos"].tolist() == [[0, 2, 1, 3]]
    assert crossed["solution"] is crossed["tour"] and crossed["i"].item() == 0
    assert crossed["cost_current"].item() == pytest.approx(CROSSED) and crossed["cost_best"].item() == 4.0
    assert crossed["reward"].item() == pytest.approx(0.0 if mode == "best" else 4.0 - CROSSED)
    assert env.get_best_solution(crossed).tolist() == [[0, 1, 2, 3]]
    back = env.step(crossed.exclude("reward").set("action", torch.tensor([2])))["next"]  # (0, 2): reverse 2, 1
    assert back["tour"].tolist() == [[0, 1, 2, 3]] and back["cost_current"].item() == pytest.approx(4.0)
    for wrong in ([[0, 1, 1, 3]], [[0, 1, 2, 4]]):
        with pytest.raises(BadSolution, match="row 0: the first 4 entries are no tour"):
            env.step_to_solution(td, torch.tensor(wrong))
    with pytest.raises(ShapeError, match=r"'solution' must be torch\.int64"):
        env.step_to_solution(td, torch.zeros(1, 4))
    with pytest.raises(ConfigError, match="no start nodes"):
        env.get_num_starts(td)


def test_a_jump_is_what_the_moves_would_have_made():
    """step_to_solution(tour after a move) has the tour, places, cost and mask of that move, also with padding."""
    env = TSPkoptEnv(num_loc=7, action_mode="node", seed=3)
    td = env.reset(batch_size=50)
    nodes = torch.full((50,), 7, dtype=torch.int32)
    nodes[::2] = 5
    td = env.reset(td.set("n_nodes", nodes))
    moved = env.step(td.copy().set("action", env.sample_actions(td)))["next"]
    jumped = env.step_to_solution(td, moved["tour"])
    for key in ("tour", "pos", "best_tour", "action_mask"):
        assert torch.equal(jumped[key], moved[key]), key
    for key in ("cost_current", "cost_best", "reward"):
        assert torch.allclose(jumped[key], moved[key], atol=1e-5), key
    assert leaves(jumped).keys() == leaves(moved).keys()
