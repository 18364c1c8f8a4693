"""A trained network as a policy: at each step, in plans, in worlds of other sizes; refused where it does not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import milkrun
from milkrun.core.errors import ConfigError
from milkrun.core.features import derive
from milkrun.learn.network import Network, Sizes
from milkrun.learn.policy import Decoding, NetworkPolicy, is_symmetric, why_no_plans
from milkrun.solvers import evaluate
from milkrun.solvers.policies import split_names
from tests.learn.tools import WORLDS


def made(world_id, rows=12, *, autoreset="disabled", seed=4, **options):
    given = {**WORLDS.get(world_id, {}), **options}
    return milkrun.make(world_id, rows, seed=seed, threads=1, autoreset=autoreset, **given)


def network_of(world_id, **options):
    """An untrained network: its choices differ from node to node."""
    world = made(world_id, 1, **options)
    features = derive(world)
    sizes = Sizes(**features.widths(world), width=16, heads=2, layers=1)
    return Network(sizes, torch.Generator().manual_seed(3)), features


def returns(world, policy):
    return evaluate(world, policy, world.num_envs, seed=9).returns


@pytest.mark.parametrize("world_id", WORLDS)
def test_a_row_alone_gets_the_same_actions(world_id):
    """Of 12 rows and of each of them alone; products of other shapes round otherwise, so two scores within 1e-5 may
    change places. Probabilities are exp(score) up to a factor."""
    network, features = network_of(world_id)
    world, policy = made(world_id), NetworkPolicy(network, features, "greedy")
    world.reset()
    single = [
        milkrun.make(world_id, 1, seed=4, first_row=b, threads=1, autoreset="disabled", **WORLDS[world_id])
        for b in range(12)
    ]
    alone = [NetworkPolicy(network, features, "greedy") for _ in single]
    for one in single:
        one.reset()
    compared = 0
    while len(live := np.flatnonzero(~world.done)):
        actions, scores = policy(world), np.log(policy.scores(world) + 1e-30)
        for b in live:
            (action,) = alone[b](single[b])
            assert action == actions[b] or abs(scores[b, action] - scores[b, actions[b]]) <= 1e-5
            single[b].step(actions[[b]])
            compared += 1
        world.step(actions[live], rows=live)
    assert compared > 24


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("decode", ["greedy", "sample", "starts"])
def test_every_autoreset_plays_the_same_episodes(decode, autoreset):
    """Twelve rows, three episodes each, to the bit."""
    network, features = network_of("milkrun/CVRP-v0")
    world = made("milkrun/CVRP-v0", autoreset=autoreset)
    expected = evaluate(made("milkrun/CVRP-v0"), NetworkPolicy(network, features, decode), 36, seed=9).returns
    found = evaluate(world, NetworkPolicy(network, features, decode), 36, seed=9).returns
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("decode", ["starts", "sample=6", "starts,x8", "sample=3,x8"])
def test_plans_are_never_worse_than_greedy(decode):
    """On every row, since greedy is one of the copies."""
    network, features = network_of("milkrun/CVRP-v0")
    greedy = returns(made("milkrun/CVRP-v0"), NetworkPolicy(network, features, "greedy"))
    planned = returns(made("milkrun/CVRP-v0"), NetworkPolicy(network, features, decode))
    assert (planned >= greedy - 1e-5).all() and planned.mean() > greedy.mean()


def test_plans_are_made_for_rows_that_are_reset_in_the_middle():
    """A reset row gets the plan of its new instance; others keep theirs."""
    network, features = network_of("milkrun/TSP-v0")
    policy, world = NetworkPolicy(network, features, "starts"), made("milkrun/TSP-v0", 4)
    world.reset(seed=1)
    for _ in range(3):
        world.step(policy(world))
    world.reset([2])
    while not world.done.all():
        actions, live = policy(world), np.flatnonzero(~world.done)
        world.step(actions[live], rows=live)
    assert not world.illegal.any() and world.terminated.all()


def test_a_row_in_the_middle_of_an_episode_is_continued_greedily():
    """A policy that plans takes over rows that another policy has begun."""
    network, features = network_of("milkrun/CVRP-v0")
    world = made("milkrun/CVRP-v0", 4)
    world.reset(seed=1)
    world.step(world.sample_actions())
    expected = NetworkPolicy(network, features, "greedy")(world)
    assert NetworkPolicy(network, features, "starts")(world).tolist() == expected.tolist()


def test_scores_are_the_probabilities_of_allowed_actions():
    """They sum to 1, and closed actions have none."""
    network, features = network_of("milkrun/VRPP-v0")
    world = made("milkrun/VRPP-v0", 5)
    world.reset()
    scores = NetworkPolicy(network, features).scores(world)
    assert scores.shape == world.action_mask.shape
    assert np.allclose(scores.sum(1), 1, atol=1e-5) and (scores[~world.action_mask] == 0).all()


@pytest.mark.parametrize("decode", ["greedy", "sample"])
def test_a_row_with_one_open_action_takes_it(decode):
    """Whatever the network scores: whole episodes of a CVRP, where a full truck may only go home."""
    network, features = network_of("milkrun/CVRP-v0")
    world, policy = made("milkrun/CVRP-v0", capacity=10), NetworkPolicy(network, features, decode)
    world.reset()
    forced = 0
    while len(live := np.flatnonzero(~world.done)):
        actions, mask = policy(world), world.action_mask.copy()
        for b in live[mask[live].sum(1) == 1]:
            assert mask[b, actions[b]]
            forced += 1
        world.step(actions[live], rows=live)
    assert forced >= 12


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_network_that_is_not_finite_is_refused(value):
    """One weight is enough; the error names its tensor."""
    network, features = network_of("milkrun/CVRP-v0")
    with torch.no_grad():
        network.kvl.weight[3, 2] = value
    with pytest.raises(ConfigError, match=r"kvl\.weight of the network is not finite"):
        NetworkPolicy(network, features)


def test_drawn_actions_repeat_by_seed():
    """The draws belong to row, episode and step, as those of a random policy."""
    network, features = network_of("milkrun/CVRP-v0")
    first, again, other = (
        returns(made("milkrun/CVRP-v0"), NetworkPolicy(network, features, "sample", seed)) for seed in (1, 1, 2)
    )
    assert first.tolist() == again.tolist() and first.tolist() != other.tolist()


def test_plans_are_refused_where_a_copy_is_not_the_truth():
    """SCWCVRP hides the real waste; the CVRP hides and draws nothing."""
    assert why_no_plans(made("milkrun/CVRP-v0", 1)) == ""
    assert "hides 'real_waste'" in why_no_plans(made("milkrun/SCWCVRP-v0", 1, num_loc=6))
    network, features = network_of("milkrun/SCWCVRP-v0", num_loc=6)
    world = made("milkrun/SCWCVRP-v0", 2, num_loc=6)
    world.reset()
    with pytest.raises(ConfigError, match="take greedy or sample"):
        NetworkPolicy(network, features, "starts")(world)
    assert NetworkPolicy(network, features)(world).shape == (2,)  # greedy by default


def test_symmetry_is_tried():
    """The square of the CVRP has it, also with manhattan distances; the places of DARP are no unit square."""
    for world_id, options, expected in (
        ("milkrun/CVRP-v0", {}, True),
        ("milkrun/CVRP-v0", {"metric": "manhattan"}, True),
        ("milkrun/DARP-v0", {}, False),
    ):
        world = made(world_id, 1, **options)
        assert is_symmetric(world, derive(world)) is expected, (world_id, options)


def test_a_world_without_its_fields_is_refused():
    """A policy of the VRPP reads prizes, which the CVRP does not have."""
    network, features = network_of("milkrun/VRPP-v0")
    world = made("milkrun/CVRP-v0", 2)
    world.reset()
    with pytest.raises(ConfigError, match="'prize'"):
        NetworkPolicy(network, features, "greedy")(world)


@pytest.mark.parametrize("text", ["", "best", "sample=0.5", "sample=99999", "starts,sample=3", "x8,x9"])
def test_unknown_decodings_are_refused(text):
    """With those that there are."""
    with pytest.raises(ConfigError, match="decode="):
        Decoding.parse(text)


def test_names_with_decodings_are_split():
    """The comma before x8 belongs to the name."""
    text = "nearest, a/best.safetensors:starts,x8,b.safetensors:sample=4,x8 ,savings"
    assert split_names(text) == ["nearest", "a/best.safetensors:starts,x8", "b.safetensors:sample=4,x8", "savings"]
