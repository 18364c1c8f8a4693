"""Worlds and players for the tests of training."""

from __future__ import annotations

import torch

import milkrun
from milkrun.core.features import derive
from milkrun.learn.network import Inputs, Network, Sizes
from milkrun.learn.reinforce import Player, Record

WORLDS = {
    "milkrun/TSP-v0": {"num_loc": 7, "start": "free"},
    "milkrun/CVRP-v0": {"num_loc": 8},
    "milkrun/VRPP-v0": {"num_loc": 8},
    "milkrun/SDWCVRP-v0": {"num_loc": 6, "horizon": 2},
    "milkrun/DARP-v0": {"num_requests": 4, "num_agents": 2},
}
INSTANCES, ROWS = 20, 4
SMALL = {
    "num_loc": 5,
    "width": 16,
    "heads": 2,
    "layers": 1,
    "batch": 4,
    "rows_each": 4,
    "threads": 1,
    "progress": False,
}
"""Arguments of `learn.train` for a CVRP in a second."""


def world_of(world_id, **options):
    return milkrun.make(world_id, 1, seed=0, threads=1, autoreset="disabled", **{**WORLDS.get(world_id, {}), **options})


def player_of(world, *, starts=False, instances=INSTANCES, rows=ROWS, seed=5, features=None):
    player = Player(world, features or derive(world), instances, rows, seed=seed, starts=starts)
    player.draw(0)
    return player


def network_of(player, *, seed=1, norm="instance", **sizes):
    widths = player.features.widths(player.world)
    small = {"width": 16, "heads": 4, "layers": 2, "norm": norm, **sizes}
    return Network(Sizes(**widths, **small), torch.Generator().manual_seed(seed))


def doubled(record):
    """A record with numbers in float64."""
    x = record.inputs
    numbers = None if x.numbers is None else x.numbers.double()
    changing = None if x.changing is None else x.changing.double()
    return Record(Inputs(x.places, numbers, changing, x.mask), record.action)


def step_by_step(network, tables, records):
    """The log-probability of each row's actions (B, S), step by step with autograd; a step without a choice adds 0."""
    total = 0
    for inputs, action in records:
        log_p = network.scores(tables, inputs).log_softmax(-1)
        chosen = log_p.gather(2, action[..., None]).squeeze(-1)
        total = total + torch.where(inputs.mask.sum(-1) > 1, chosen, 0.0)
    return total


def gradients(network):
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
