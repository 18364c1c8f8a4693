"""The dial-a-ride worlds equal the scalar models of tests/reference, which were written from the rules alone.

Every field of every row is compared after every step, on masked and on wild actions, and must have the same bits; so
must the features. The model of the rule `classic` also computes its masks a second time: by Bellman-Ford over all
orders of the dropoffs on the raw windows, if no limit is nearer than a thousandth.
"""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from bench.peers.darp_torch import DARPTorch
from tests.reference.darp import DARPModel
from tests.reference.darp_deadlines import DARPDeadlinesModel

ROWS = 16
BOTH = (
    "current_node",
    "current_agent",
    "current_time",
    "current_load",
    "visited",
    "picked_up_by_current",
    "vehicle_finished",
    "total_distance",
    "i",
    "action_mask",
    "terminated",
    "truncated",
    "illegal",
    "illegal_reason",
    "vehicles_used",
    "reward_exact",
    "reward",
)
CLASSIC = (
    *BOTH,
    "onboard",
    "onboard_latest",
    "onboard_elapsed",
    "departure_latest",
    "route_elapsed",
    "tight_open",
    "tight_close",
)
INSTANCE = (
    "locs",
    "demand",
    "capacity",
    "window_open",
    "time_windows",
    "service_time",
    "max_ride_time",
    "max_route_duration",
)

CASES = {
    "style a": {"num_requests": 8},
    "style b": {"num_requests": 8, "style": "b"},
    "three cars": {"num_requests": 7, "num_agents": 3, "max_duration": 200, "penalty_unvisited": 7.5},
    "slow": {"num_requests": 6, "speed": 0.8, "max_ride": 40, "max_duration": 300},
    "two aboard": {"num_requests": 8, "num_agents": 1, "style": "b", "max_onboard": 2, "vehicle_capacity": 12},
    "terminal": {"num_requests": 5, "reward": "terminal"},
    "truncated": {"num_requests": 5, "max_steps": 6},
    "no windows": {"num_requests": 6, "window_width": 400, "vehicle_capacity": 5, "max_ride": 60},
}


def compare(world, models, fields, turn):
    """A message on the first field and row in which a world and its models differ."""
    for name in fields:
        shared = world.fields[name].role.value == "instance"
        for b, model in enumerate(models):
            seen = getattr(world, name)[world.instance_row[b] if shared else b]
            expected = getattr(model, {"illegal_reason": "reason"}.get(name, name))
            same = np.isclose(seen, expected, rtol=1e-12) if name == "reward_exact" else np.array_equal(seen, expected)
            if not same:  # the legs may be summed in another order
                return f"turn {turn}, row {b}: {name} is {seen}, the model has {expected}"
    return None


def play(world, models, fields, rng, wild, turns=90, second_opinion=None):
    """Plays rows and models by the same actions until all have ended, comparing each turn."""
    assert compare(world, models, fields, "reset") is None
    for turn in range(turns):
        if second_opinion is not None:
            second_opinion(world, models)
        live = np.flatnonzero(~(world.terminated | world.truncated))
        if not len(live):
            return
        actions = world.sample_actions(int(rng.integers(1 << 30)), turn)
        strange = rng.random(len(actions)) < wild
        actions[strange] = rng.integers(-2, world.sizes["N"] + 2, strange.sum())
        world.step(actions[live], rows=live)
        for b in live:
            models[b].step(int(actions[b]))
            if models[b].truncated and models[b].reward_mode == "terminal":
                models[b].reward = models[b].reward_exact = float(world.objective[b])  # the core pays for the route
        assert (found := compare(world, models, fields, turn)) is None, found
        seen = world.observe()
        for b in live:
            for name in ("nodes", "vehicle"):
                assert np.array_equal(seen[name][b], np.array(getattr(models[b], name), np.float32)), (turn, b, name)
    raise AssertionError("rows were still running")


def classic_models(world, **options):
    def model(b):
        q = world.instance_row[b]
        given = {name: getattr(world, name)[q] for name in INSTANCE}
        config = world.config
        return DARPModel(
            **given,
            dist=world.dist[q] if world.sizes["M"] else None,
            n_nodes=int(world.n_nodes[q]),
            penalty=config.penalty_unvisited,
            speed=config.speed,
            max_onboard=config.max_onboard,
            reward=config.reward,
            max_steps=world.max_steps,
            **options,
        )

    return [model(b) for b in range(world.num_envs)]


def by_schedule(world, models):
    """Compares masks with those of all orders of the dropoffs by Bellman-Ford, where no limit is near."""
    for b, model in enumerate(models):
        if not model.finished:
            strict, loose = model.mask_by_schedule(-1e-3), model.mask_by_schedule(1e-3)
            if strict == loose:
                assert world.action_mask[b].tolist() == loose


@pytest.mark.parametrize("wild", [0.0, 0.2])
@pytest.mark.parametrize("case", CASES)
def test_classic_is_the_scalar_model_bit_for_bit(case, wild):
    """Fields, both masks, features, rewards and reasons, on random instances."""
    world = milkrun.make("milkrun/DARP-v0", ROWS, seed=3, autoreset="disabled", threads=1, **CASES[case])
    world.reset()
    second_opinion = by_schedule if wild == 0 else None
    play(world, classic_models(world), CLASSIC, np.random.default_rng(4), wild, second_opinion=second_opinion)


@pytest.mark.parametrize("wild", [0.0, 0.2])
def test_classic_on_odd_instances_is_the_scalar_model(wild):
    """Padding, fleets of different vehicles, infinite limits, a matrix without triangle inequality, shared rows."""
    rng = np.random.default_rng(11)
    given = []
    for _ in range(8):
        requests, vehicles = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        n = 2 * requests + 1
        load = rng.integers(1, 4, requests)
        dist = rng.uniform(1, 20, (n, n)) * (1 - np.eye(n))
        given.append(
            {
                "locs": rng.uniform(-5, 5, (n, 2)).astype(np.float32),
                "dist": dist,
                "demand": np.concatenate([[0], np.stack([load, -load], 1).ravel()]),
                "capacity": np.maximum(rng.integers(1, 6, vehicles), load.max() * (np.arange(vehicles) == 0)),
                "window_open": np.zeros(n),
                "time_windows": np.where(rng.random(n) < 0.5, np.inf, 200.0),
                "service_time": np.where(np.arange(n) > 0, rng.uniform(0, 3, n), 0.0),
                "max_ride_time": np.where(rng.random(requests) < 0.3, np.inf, rng.uniform(25, 60, requests)),
                "max_route_duration": np.array(rng.choice([200.0, np.inf])),
            }
        )
        given[-1]["time_windows"][0] = 300.0
    from milkrun.routing.darp import DARP

    world = DARP.from_instances(given, repeat=3, seed=5, autoreset="disabled", threads=1)
    play(world, classic_models(world), CLASSIC, rng, wild, second_opinion=by_schedule if wild == 0 else None)


@pytest.mark.parametrize("wild", [0.0, 0.2])
@pytest.mark.parametrize("options", [{}, {"num_requests": 4, "num_agents": 2}, {"num_loc": 30, "max_steps": 17}])
def test_by_deadlines_is_the_scalar_model_bit_for_bit(options, wild):
    """Fields, masks, features, rewards and reasons of the rule `deadlines`."""
    world = milkrun.make(
        "milkrun/DARP-v0", ROWS, preset="published", seed=3, autoreset="disabled", threads=1, **options
    )
    world.reset()
    models = [
        DARPDeadlinesModel(
            world.locs[b], world.demand[b], world.capacity[b], world.time_windows[b], max_steps=int(world.max_steps)
        )
        for b in range(ROWS)
    ]
    play(world, models, BOTH, np.random.default_rng(5), wild)


AT_LEAST = {5: 200_000, 10: 400_000, 25: 750_000}  # transitions compared; more than a million in all


@pytest.mark.truth
@pytest.mark.parametrize("requests", AT_LEAST)
def test_the_rule_by_deadlines_is_the_first_requirement_in_torch(requests):
    """20,000 random legal episodes equal the vectorised restatement of the published snippets. State and mask of every
    live row are compared at every step; rows with a travel time within 1e-4 of a half are left out."""
    import torch

    rows = 20_000
    world = milkrun.make(
        "milkrun/DARP-v0",
        rows,
        preset="published",
        num_requests=requests,
        seed=requests,
        autoreset="disabled",
        threads=1,
    )
    world.reset()
    places = world.locs.astype(np.float64)
    near = np.zeros(rows, bool)
    for j in range(world.sizes["N"]):
        quotient = np.sqrt(((places - places[:, j : j + 1]) ** 2).sum(-1)) / 25.0
        near |= (np.abs(quotient % 1.0 - 0.5) < 1e-4).any(axis=1)
    kept = np.flatnonzero(~near)
    env = DARPTorch()
    torch_state = env.reset({k: getattr(world, k) for k in ("locs", "demand", "capacity", "time_windows")})
    transitions, turn = 0, 0
    while not world.done[kept].all():
        live = np.flatnonzero(~world.done)
        actions = world.sample_actions(7, turn)
        transitions += int((~world.done[kept]).sum())
        torch_state = env.step(torch_state, torch.from_numpy(np.where(world.done, 0, actions)))
        world.step(actions[live], rows=live)
        turn += 1
        for name in ("current_node", "current_agent", "current_time", "current_load"):
            assert np.array_equal(getattr(world, name)[kept], torch_state[name][kept, 0].numpy()), name
        for name in ("visited", "picked_up_by_current", "vehicle_finished", "action_mask"):
            assert np.array_equal(getattr(world, name)[kept], torch_state[name][kept].numpy()), name
        assert np.array_equal(world.done[kept], torch_state["done"][kept, 0].numpy())
        assert np.allclose(world.total_distance[kept], torch_state["total_distance"][kept].numpy(), rtol=0, atol=1e-3)
    assert np.allclose(world.objective[kept], env.get_reward(torch_state)[kept].numpy(), rtol=0, atol=2e-3)
    assert len(kept) > 0.75 * rows and transitions > AT_LEAST[requests]
