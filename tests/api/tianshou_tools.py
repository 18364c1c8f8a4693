"""Policies for the tests of the tianshou binding, and what makes two results comparable to the bit."""

import numpy as np
import torch
from tianshou.algorithm.algorithm_base import Policy
from tianshou.data import Batch


class Lowest(Policy):
    """Takes the lowest action that the mask allows, 0 without a mask: the same whatever the batch."""

    def forward(self, batch, state=None, **kwargs):
        mask = batch.obs.get("mask") if isinstance(batch.obs, Batch) else None
        return Batch(act=np.zeros(len(batch.obs), int) if mask is None else mask.argmax(1))


class Counter(Policy):
    """Acts on its hidden state alone, the number of turns since the episode began."""

    def forward(self, batch, state=None, **kwargs):
        turns = torch.zeros(len(batch.obs), 1) if state is None else state
        return Batch(act=turns[:, 0].numpy().astype(int), state=turns + 1)


def lowest(venv):
    return Lowest(action_space=venv.action_space[0])


def plain(value):
    """What a call returned, with tianshou's batches as dicts."""
    if isinstance(value, Batch):
        return {key: plain(value[key]) for key in sorted(value.get_keys())}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)) or getattr(value, "dtype", np.dtype(float)).hasobject:
        return [plain(item) for item in value]
    return value
