"""Sampling follows the network's probabilities and never takes a closed action."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import milkrun
from milkrun.learn.network import CLOSED, Linear, attend
from milkrun.learn.reinforce import Options, Player, Reinforce, backward, give_starts, stack
from tests.learn.tools import gradients, network_of, player_of, world_of


class Dice(Player):
    """A player without a world, for its `sample` alone."""

    def __init__(self, seed):
        self.noise = torch.Generator().manual_seed(seed)


def test_draws_follow_the_probabilities():
    """A million draws of one state: chi-square below the 99.99 % quantile of 6 degrees of freedom, 27.86."""
    scores = torch.tensor([0.3, -1.0, CLOSED, 2.0, 0.0, -0.5, 1.2, -2.0])
    drawn = Dice(3).sample(scores.expand(1000, 1000, 8))
    counts = torch.bincount(drawn.view(-1), minlength=8).double()
    expected = scores.double().softmax(-1) * 1_000_000
    assert counts[2] == 0
    open_ = expected > 0
    assert float(((counts - expected)[open_] ** 2 / expected[open_]).sum()) < 27.86


def test_no_closed_action_in_ten_million_draws():
    """Also where one probability is 1 - 1e-7, and where the last entries are closed."""
    dice = Dice(4)
    sharp = torch.full((8,), CLOSED)
    sharp[2], sharp[5] = 16.1, 0.0  # exp(-16.1) = 1e-7
    for scores in (sharp, torch.tensor([0.0, 0.0, CLOSED, CLOSED]), torch.tensor([CLOSED, 0.0])):
        for _ in range(4):
            drawn = dice.sample(scores.expand(1000, 1000, len(scores)))
            assert bool((scores[drawn] > CLOSED / 2).all())


def test_given_starts_are_the_allowed_actions_in_order():
    """Rows 0..3 of an instance with actions 1, 3 and 4 open take 1, 3, 4, 1; the last row keeps its mask."""
    mask = torch.tensor([[[False, True, False, True, True]] * 5])
    give_starts(mask)
    assert mask[0, :4].nonzero()[:, 1].tolist() == [1, 3, 4, 1]
    assert mask[0, 4].tolist() == [False, True, False, True, True]


@pytest.mark.parametrize("shape", [(16, 21), (32, 7), (3, 21)])
def test_linear_equals_torchs(shape):
    """As a convolution and below 16 instances: values to 1e-5, gradients too."""
    torch.manual_seed(0)
    ours = Linear(24, 40)
    theirs = torch.nn.Linear(24, 40)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(*shape, 24)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    out, expected = ours(a), theirs(b)
    assert torch.allclose(out, expected, atol=1e-5)
    out.square().sum().backward()
    expected.square().sum().backward()
    for found, g in ((a.grad, b.grad), (ours.weight.grad, theirs.weight.grad), (ours.bias.grad, theirs.bias.grad)):
        assert (found - g).abs().max() <= 1e-5 * g.abs().max()


@pytest.mark.parametrize("keys", [9, 130])
def test_attention_equals_torchs(keys):
    """With a bias, below and above the number of keys from which the fused function runs."""
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 4, 5, 8), torch.randn(3, 4, keys, 8), torch.randn(3, 4, keys, 8)
    bias = torch.randn(3, 4, 5, keys)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    assert torch.allclose(attend(q, k, v, bias), expected, atol=1e-5)


def plans_of_four():
    """Every order of nodes of a TSP-4 with a free start."""
    return list(itertools.permutations(range(4)))


@pytest.mark.parametrize("baseline", ["shared", "none"])
def test_gradients_of_reinforce_equal_the_exact_one(baseline):
    """TSP-4 with all 24 plans: the mean of 25,000 sampled gradients is within 4.5 standard errors in every weight.

    The shared baseline over the S rows of an instance shrinks the gradient by (S - 1) / S."""
    rows = 10
    world = world_of("milkrun/TSP-v0", num_loc=4, start="free")
    exact = player_of(world, instances=1, rows=24)
    network = network_of(exact, width=8, heads=2, layers=1).double()
    nodes = exact.nodes().double()

    probability, returns = all_plans(network, exact, nodes)
    network.zero_grad()
    (-(probability * returns).sum()).backward()
    expected = torch.cat([g.view(-1) for g in gradients(network).values()])
    factor = (rows - 1) / rows if baseline == "shared" else 1.0

    sampled = player_of(world, instances=1, rows=rows)
    total, squares, count = 0.0, 0.0, 2500
    for k in range(count):
        sampled.noise.manual_seed(k)
        sampled.begin()
        tables = network.encode(nodes)
        got, records = sampled.play(network, tables)
        got = got.double()
        advantage = got - got.mean(1, keepdim=True) if baseline == "shared" else got - 2.0
        network.zero_grad()
        backward(network, tables, stack(records), advantage / rows)
        g = torch.cat([g.view(-1) for g in gradients(network).values()])
        total, squares = total + g, squares + g * g
    mean = total / count
    error = ((squares / count - mean**2).clamp_min(0) / count).sqrt()
    assert bool(((mean - factor * expected).abs() <= 4.5 * error + 1e-9).all())
    assert float(expected.abs().max()) > 20 * float(error.mean())  # the test can fail


def all_plans(network, player, nodes):
    """The probability (with gradients) and the return of each plan of the only instance."""
    tables = network.encode(nodes)
    player.begin()
    world = player.world
    plans = torch.tensor(plans_of_four())
    log_p = 0.0
    for step in range(4):
        inputs = player.read(torch.from_numpy(world.action_mask).view(1, 24, -1).clone())
        chosen = network.scores(tables, inputs).log_softmax(-1)[0].gather(1, plans[:, step, None]).squeeze(1)
        log_p = log_p + chosen
        world.step(plans[:, step].numpy())
    return log_p.exp(), torch.from_numpy(world.objective.copy())


def test_the_probabilities_of_all_plans_sum_to_one():
    """The sum over 24 plans of a TSP-4."""
    player = player_of(world_of("milkrun/TSP-v0", num_loc=4, start="free"), instances=1, rows=24)
    network = network_of(player).double()
    probability, _ = all_plans(network, player, player.nodes().double())
    assert float(probability.detach().sum()) == pytest.approx(1.0, abs=1e-12)


def test_a_step_is_a_function_of_its_number():
    """Two runs of the same options have the same weights, bit for bit; another seed has others."""
    world = milkrun.make("milkrun/CVRP-v0", 1, num_loc=6, threads=1, autoreset="disabled")
    from milkrun.core.features import derive

    features = derive(world)

    def weights(seed):
        run = Reinforce(world, features, Options(steps=4, batch=4, rows_each=4, width=16, heads=2, layers=1, seed=seed))
        for _ in range(4):
            run.train_step()
        return np.concatenate([p.detach().numpy().ravel() for p in run.network.parameters()])

    first = weights(0)
    assert first.tobytes() == weights(0).tobytes()
    assert not math.isclose(float(np.abs(first - weights(1)).max()), 0.0)
