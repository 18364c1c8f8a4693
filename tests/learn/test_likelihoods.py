"""All recorded steps scored at once equal a step-by-step rollout with autograd: likelihoods and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from milkrun.learn import reinforce
from milkrun.learn.network import each_table
from milkrun.learn.reinforce import backward, log_likelihood, stack
from tests.learn.tools import WORLDS, doubled, gradients, network_of, player_of, step_by_step, world_of

CASES = [(name, starts) for name in WORLDS for starts in (False, True)]


def played(world_id, starts):
    player = player_of(world_of(world_id), starts=starts)
    network = network_of(player)
    nodes = player.nodes()
    returns, records = player.play(network, network.encode(nodes))
    return network, nodes, returns, records


@pytest.mark.parametrize(("world_id", "starts"), CASES)
def test_scored_at_once_equals_step_by_step_in_float64(world_id, starts):
    """Log-probabilities to 1e-10, gradients to 1e-6 of the largest one."""
    network, nodes, returns, records = played(world_id, starts)
    network, records = network.double(), [doubled(record) for record in records]
    advantage = (returns - returns.mean(1, keepdim=True)).double()

    tables = network.encode(nodes.double())
    slow = step_by_step(network, tables, records)
    (-(advantage * slow).sum()).backward()
    expected = gradients(network)

    network.zero_grad()
    tables, choices = network.encode(nodes.double()), stack(records)
    fast, _ = log_likelihood(network, each_table(tables, torch.Tensor.detach), choices.record)
    sums = torch.zeros_like(advantage).scatter_add_(1, choices.row, fast * choices.kept)
    assert torch.allclose(sums, slow.detach(), rtol=1e-10, atol=1e-10)
    backward(network, tables, choices, advantage)
    found = gradients(network)
    largest = max(g.abs().max() for g in expected.values())
    assert found.keys() == expected.keys()
    for name, g in expected.items():
        assert (found[name] - g).abs().max() <= 1e-6 * largest, name


@pytest.mark.parametrize("world_id", WORLDS)
def test_float32_is_close_to_float64(world_id):
    """Relative to 1e-5, as training computes."""
    network, nodes, _, records = played(world_id, True)
    choices = stack(records)
    with torch.no_grad():
        single, _ = log_likelihood(network, network.encode(nodes), choices.record)
        network = network.double()
        double, _ = log_likelihood(network, network.encode(nodes.double()), doubled(choices.record))
    close = torch.isclose(single.double(), double, rtol=1e-5, atol=2e-5)
    assert bool(close[choices.kept].all())


@pytest.mark.parametrize("chunk", [64, 10**6])
def test_chunks_change_no_gradient(chunk, monkeypatch):
    """64 queries at once, or all."""
    network, nodes, returns, records = played("milkrun/CVRP-v0", True)
    advantage = returns - returns.mean(1, keepdim=True)
    backward(network, network.encode(nodes), stack(records), advantage, entropy=0.01)
    expected = gradients(network)
    monkeypatch.setattr(reinforce, "CHUNK", chunk)
    network.zero_grad()
    backward(network, network.encode(nodes), stack(records), advantage, entropy=0.01)
    largest = max(g.abs().max() for g in expected.values())
    for name, g in gradients(network).items():
        assert (g - expected[name]).abs().max() <= 1e-6 * largest, name


def test_gradients_equal_finite_differences():
    """Central differences of the loss by five weights of each tensor, in float64."""
    network, nodes, returns, records = played("milkrun/SDWCVRP-v0", False)
    network, nodes, records = network.double(), nodes.double(), [doubled(record) for record in records]
    choices = stack(records)
    advantage = (returns - returns.mean(1, keepdim=True)).double()
    weight = -advantage.gather(1, choices.row) * choices.kept

    def loss():
        with torch.no_grad():
            chosen, _ = log_likelihood(network, network.encode(nodes), choices.record)
            return float((chosen * weight).sum())

    backward(network, network.encode(nodes), choices, advantage)
    rng, step = np.random.default_rng(0), 1e-5
    for name, p in network.named_parameters():
        flat, g = p.data.view(-1), p.grad.view(-1)
        for k in rng.choice(len(flat), min(5, len(flat)), replace=False).tolist():
            kept = flat[k].item()
            flat[k] = kept + step
            above = loss()
            flat[k] = kept - step
            slope = (above - loss()) / (2 * step)
            flat[k] = kept
            assert slope == pytest.approx(g[k].item(), rel=1e-5, abs=1e-6), (name, k)
