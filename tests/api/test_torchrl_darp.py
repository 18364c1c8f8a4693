"""Dial-a-ride in TorchRL: the calls of the first requirement, recomputed masks, layouts, features, batches of any
shape."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.envs.utils import check_env_specs

import milkrun
from milkrun.api.torchrl import DARPEnv
from milkrun.api.torchrl.generators import DARPGenerator, get_generator
from milkrun.core.errors import BadSolution, ConfigError, ShapeError
from milkrun.routing import generators as core
from tests.api.torchrl_tools import assert_same

KEYS = {
    "locs",
    "current_node",
    "current_agent",
    "current_time",
    "current_load",
    "visited",
    "picked_up_by_current",
    "vehicle_finished",
    "total_distance",
    "time_windows",
    "demand",
    "capacity",
    "i",
    "action_mask",
    "done",
    "reward",
}
TRACE = {
    "locs": torch.tensor([[[0, 0], [30, 40], [60, 80], [0, 50], [100, 0]]], dtype=torch.float32),
    "demand": torch.tensor([[0, 2, -2, 1, -1]]),
    "time_windows": torch.tensor([[48, 10, 13, 12, 5]]),
    "capacity": torch.tensor([[5, 5]]),
}


def play(env, td):
    taken = []
    while not td["done"].all():
        td["action"] = env.sample_actions(td)
        taken.append(td["action"])
        td = env.step(td)["next"]
    return td, torch.stack(taken, -1)


def test_the_example_of_the_first_requirement():
    """Five vehicles, ten requests, actions by multinomial, the reward -(distance + 100 for each node not visited)."""
    sizes = {"num_loc": 20, "num_agents": 5}
    env = DARPEnv(generator_params=sizes, penalty_unvisited=100.0, preset="published", seed=3)
    td, acts, paid = env.reset(batch_size=[3]), [], 0.0
    torch.manual_seed(0)
    while not td["done"].all():
        td["action"] = td["action_mask"].float().multinomial(1).squeeze(-1)
        acts.append(td["action"])
        td = env.step(td)["next"]
        paid = paid + td["reward"].squeeze(-1)
    assert set(td.keys()) >= KEYS and td["locs"].shape == (3, 21, 2) and td["capacity"].shape == (3, 5)
    reward = env.get_reward(td, torch.stack(acts, -1))
    expected = -(td["total_distance"] + 100.0 * (~td["visited"][:, 1:]).sum(-1))
    assert torch.equal(reward, expected) and torch.equal(paid, expected)
    assert env.generator.vehicle_speed == 25.0 and env.penalty_unvisited == 100.0


def test_the_trace_of_the_first_requirement_by_hand():
    """Two requests, two vehicles: legal sets, clock and load at every step; one node is left: -(231.6228 + 100)."""
    env = DARPEnv(preset="published", num_requests=2, num_agents=2)
    td = env.reset(TensorDict(TRACE, [1]))
    steps = [(3, {1, 3}, 2, 1), (1, {1}, 3, 3), (2, {2}, 5, 1), (0, {0}, 0, 0), (0, {0}, 0, 0)]
    for action, legal, time, load in steps:
        assert set(td["action_mask"][0].nonzero()[:, 0].tolist()) == legal
        td["action"] = torch.tensor([action])
        td = env.step(td)["next"]
        assert (td["current_time"].item(), td["current_load"].item()) == (time, load)
    assert td["terminated"].item() and td["current_agent"].item() == 1
    plan = torch.tensor([[3, 1, 2, 0, 0]])
    assert env.get_reward(td, plan).item() == pytest.approx(-331.6228, abs=1e-4)
    started = env.reset(TensorDict(TRACE, [1]))
    assert env.get_reward(started, plan).item() == pytest.approx(-331.6228, abs=1e-4)  # by the task, from the actions


def test_the_next_available_vehicle_is_the_first_that_is_not_finished():
    """-1 where all are."""
    finished = torch.tensor([[True, False, False], [False, True, False], [True, True, True]])
    assert DARPEnv._get_next_available_vehicle(finished, 3, torch.tensor([[0], [1], [2]])).tolist() == [1, 0, -1]


@pytest.mark.parametrize("preset", ["classic", "classic-b", "published"])
@pytest.mark.parametrize("features", [False, True])
def test_specs_hold(preset, features):
    """TorchRL's checker, with and without the features of the numpy side."""
    env = DARPEnv(preset=preset, batch_size=[3], features=features, num_requests=5)
    check_env_specs(env, break_when_any_done="both")
    assert ("nodes" in set(env.observation_spec.keys())) == features


@pytest.mark.parametrize("preset", ["classic", "published"])
def test_features_are_those_of_the_numpy_side(preset):
    """`nodes` and `vehicle` of both are the same bits, at the reset and along a play."""
    env = DARPEnv(preset=preset, features=True, batch_size=[4], seed=5)
    world = milkrun.make("milkrun/DARP-v0", 4, preset=preset, seed=5, autoreset="disabled")
    world.reset()
    td = env.reset()
    for _ in range(8):
        seen = world.observe()
        assert set(seen) == {"nodes", "vehicle", "action_mask"}
        for name, array in seen.items():
            assert np.array_equal(td[name].numpy(), array), name
        td["action"] = env.sample_actions(td)
        world.step(td["action"].numpy())
        td = env.step(td)["next"]
    with pytest.raises(ConfigError, match="CVRP has none"):
        milkrun.make("milkrun/CVRP-v0", 2, api="torchrl", features=True)


@pytest.mark.parametrize("preset", ["classic", "classic-b", "published"])
def test_masks_are_computed_from_the_state(preset):
    """`_get_action_mask` gives the mask of any state, even one that no step reached, and writes nothing."""
    env = DARPEnv(preset=preset, num_requests=6, seed=1)
    td = env.reset(batch_size=[5])
    for _ in range(6):
        before = td.clone()
        assert torch.equal(env._get_action_mask(td), td["action_mask"]) and torch.equal(
            env.get_action_mask(td), td["action_mask"]
        )
        assert_same(td, before)
        td["action"] = env.sample_actions(td)
        td = env.step(td)["next"]
    fresh = env.reset(batch_size=[5])
    fresh["visited"][:, [1, 2]] = True
    mask = env._get_action_mask(fresh.exclude("action_mask"))
    assert not mask[:, 1].any() and torch.equal(mask[:, 3:], fresh["action_mask"][:, 3:])


def test_plans_that_break_a_rule_are_refused_with_row_and_rule():
    """The second row drops before it picks up."""
    env = DARPEnv(num_requests=4, seed=2)
    td, actions = play(env, start := env.reset(batch_size=[2]))
    env.check_solution_validity(td, actions)
    wrong = actions.clone()
    wrong[1] = 0
    wrong[1, :2] = torch.tensor([2, 1])
    with pytest.raises(BadSolution, match=r"row 1: .*precedence"):
        env.check_solution_validity(start, wrong)
    with pytest.raises(ShapeError, match=r"batch \(2,\)"):
        env.check_solution_validity(start, wrong[:1])


def test_actions_may_have_a_column():
    """(*batch, 1) is (*batch,)."""
    env = DARPEnv(num_requests=4, seed=2)
    td = env.reset(batch_size=[3])
    action = env.sample_actions(td)
    one, other = (env.step(td.copy().set("action", a))["next"] for a in (action, action[:, None]))
    assert_same(one, other)


def test_the_depot_may_come_apart():
    """`depot`, and places, riders and deadlines of the other nodes, as RL4CO's generators lay them out."""
    env = DARPEnv(preset="published", num_requests=2, num_agents=2)
    apart = {
        "depot": TRACE["locs"][:, 0],
        "locs": TRACE["locs"][:, 1:],
        "demand": TRACE["demand"][:, 1:],
        "time_windows": TRACE["time_windows"][:, 1:],
        "capacity": TRACE["capacity"],
    }
    td, whole = env.reset(TensorDict(apart, [1])), env.reset(TensorDict(TRACE, [1]))
    for key in ("locs", "demand", "time_windows", "capacity", "action_mask"):
        assert torch.equal(td[key], whole[key]), key


@pytest.mark.parametrize("preset", ["classic", "published"])
def test_a_batch_of_batches_steps_as_its_rows(preset):
    """[B, S] by expansion, by clone, and flattened: the same bits; the expanded instance is not copied."""
    env = DARPEnv(preset=preset, num_requests=5, seed=4)
    td = env.reset(batch_size=[3])
    wide = td.unsqueeze(1).expand(3, 4)
    for _ in range(7):
        action = env.sample_actions(wide)
        flat = wide.reshape(-1).clone()
        after = env.step(wide.copy().set("action", action))["next"]
        assert_same(env.step(wide.clone().set("action", action))["next"], after)
        assert_same(env.step(flat.set("action", action.reshape(-1)))["next"].reshape(3, 4), after)
        assert after["locs"].untyped_storage().nbytes() == td["locs"].untyped_storage().nbytes()
        wide = after.exclude("reward")


@pytest.mark.parametrize("preset", ["classic", "published"])
def test_stepping_in_place_is_stepping_by_tensordict(preset):
    """Whole episodes with resets between, bit for bit."""
    one, two = (
        DARPEnv(preset=preset, num_requests=4, batch_size=[3], seed=6, stepping=s) for s in ("functional", "inplace")
    )
    a, b = one.reset(), two.reset()
    for _ in range(40):
        assert_same(a, b)
        action = one.sample_actions(a)
        a = one.step_and_maybe_reset(a.set("action", action))[1]
        b = two.step_and_maybe_reset(b.set("action", action))[1]


def test_generators_go_by_their_law():
    """`law` names the rule; an environment plays what its generator draws."""
    assert get_generator("darp", num_loc=20).config.num_requests == 10
    drawn = DARPGenerator(law="deadlines", num_loc=8, seed=3)
    env = DARPEnv(generator=drawn, seed=9)
    td = env.reset(batch_size=[2])
    assert env.config.rule == "deadlines" and td["time_windows"].dtype == torch.int64
    data = drawn.generate(2, seed=9)
    assert torch.equal(td["locs"], data["locs"]) and torch.equal(td["demand"], data["demand"])


@pytest.mark.parametrize("preset", ["classic", "published"])
@pytest.mark.parametrize("empty", [(), [], torch.Size([])], ids=repr)
def test_an_empty_batch_size_is_one_instance_without_a_row(preset, empty):
    """The first of a batch, from the numpy generator and the one of tensors, and in an environment."""
    first = core.get_generator("darp", preset=preset).generate(2, seed=7)
    alone = core.get_generator("darp", preset=preset).generate(empty, seed=7)
    tensors = DARPGenerator(preset=preset).generate(empty, seed=7)
    assert tensors.batch_size == torch.Size([])
    for name, array in first.items():
        np.testing.assert_array_equal(alone[name], array[0])
        np.testing.assert_array_equal(tensors[name].numpy(), array[0])
    env = DARPEnv(preset=preset, seed=7)
    td = env.reset(TensorDict(dict(tensors.items()), []))
    assert td.batch_size == torch.Size([]) and torch.equal(td["locs"], tensors["locs"])
    td, _ = play(env, td)
    assert td["done"].all()


def test_an_idle_vehicle_is_refused():
    """A pickup is reachable from the depot, so the vehicle may not stay there: the error names row, place and rule."""
    env = DARPEnv(generator_params={"num_loc": 4, "num_agents": 2}, preset="published", seed=3)
    td = env.reset(TensorDict(TRACE, [1]))
    assert td["action_mask"].tolist() == [[False, True, False, True, False]]
    with pytest.raises(BadSolution, match="row 0: vehicle 0, position 0, node 0: idle by 1"):
        env.check_solution_validity(td, torch.tensor([[0]]))
    env.check_solution_validity(td, torch.tensor([[3, 1, 2, 0, 0]]))
