"""TorchRL and RL4CO use the same laws: places first, then the values that depend on them; an empty batch size is one
row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from milkrun.api.torchrl import CVRPEnv, VRPPEnv, WCVRPEnv
from milkrun.api.torchrl.generators import GENERATOR_REGISTRY, get_generator
from milkrun.core.errors import BadInstance
from tests.routing.law_bench import CUSTOMERS, faraway, hooked


@pytest.mark.parametrize("stepping", ["functional", "inplace"])
@pytest.mark.parametrize("by", ["function", "hook"])
def test_prizes_and_fills_follow_the_places_that_are_played(stepping, by):
    """1 + floor(99 d / far), also in rows that begin a new episode."""
    for env_class, problem, key, option in (
        (VRPPEnv, "vrpp", "prize", "prize_distribution"),
        (WCVRPEnv, "wcvrp", "waste", "fill_distribution"),
    ):
        options = {"batch_size": [4], "seed": 5, "stepping": stepping}
        if by == "hook":
            env = env_class(hooked(problem, **{option: "dist"}), length_weight=0.1, **options)
        else:
            env = env_class(**options, num_loc=CUSTOMERS, loc_distribution=faraway, **{option: "dist"})
        td = env.reset()
        for again in ([False] * 4, [True, False, True, False]):
            td = env.reset(td.set("_reset", torch.tensor(again)[:, None]))
            nodes = td["locs"].double()
            assert (nodes[:, 1:] >= 10).all()
            way = (nodes[:, 1:] - nodes[:, :1]).norm(dim=-1)
            share = 1 + torch.floor(99 * way / way.amax(1, keepdim=True))
            assert torch.allclose(td[key][:, 1:].double(), share if key == "prize" else share / 100)


@pytest.mark.parametrize("stepping", ["functional", "inplace"])
def test_customers_out_of_reach_are_refused(stepping):
    """The places come from a function or from hooks."""
    options = {"batch_size": [2], "seed": 5, "stepping": stepping}
    with pytest.raises(BadInstance, match=r"row 0: customer 1: there and back .* over max_length = 20"):
        CVRPEnv(**options, num_loc=CUSTOMERS, loc_distribution=faraway, max_length=20.0).reset()
    with pytest.raises(BadInstance, match=r"row 0: customer 1: there and back .* over max_length = 20"):
        CVRPEnv(hooked("cvrp", max_length=20.0), **options).reset()
    td = CVRPEnv(hooked("cvrp", max_length=29.0), **options).reset()
    assert td["action_mask"][:, 1:].all()
    assert (td["max_length"] == 29).all()


@pytest.mark.parametrize("problem", GENERATOR_REGISTRY)
def test_tensor_generators_take_an_empty_batch_size(problem):
    """One instance without a batch axis, the first of the seed."""
    first = get_generator(problem).generate(1, seed=5)
    for size in ((), [], torch.Size([])):
        one = get_generator(problem).generate(size, seed=5)
        assert one.batch_size == ()
        assert set(one.keys()) == set(first.keys())
        assert all(torch.equal(one[name], first[name][0]) for name in first.keys())  # noqa: SIM118


@pytest.mark.parametrize("name", ["TSP", "CVRP"])
def test_rl4co_resets_an_empty_batch(name):
    """One row without a batch axis, which plays to its end as the first of a batch does."""
    rl4co = pytest.importorskip("milkrun.api.rl4co", reason="needs rl4co")
    env = getattr(rl4co, f"{name}Env")(generator_params={"num_loc": 5}, seed=3)
    batch = getattr(rl4co, f"{name}Env")(generator_params={"num_loc": 5}, seed=3).reset(batch_size=[1])
    td = env.reset(batch_size=[])
    assert td.batch_size == ()
    while True:
        assert torch.equal(td["locs"], batch["locs"][0])
        assert torch.equal(td["action_mask"], batch["action_mask"][0])
        if td["done"].all():
            break
        action = torch.tensor(int(np.flatnonzero(td["action_mask"].numpy())[-1]))
        td = env.step(td.set("action", action))["next"]
        batch = env.step(batch.set("action", action[None]))["next"]
    assert batch["done"].all()
