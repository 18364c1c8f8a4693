"""What the TorchRL tests share: comparing TensorDicts bit by bit, and playing them with the environment's own draws."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

import milkrun
from tests.small import SMALL, functional

EVERY_WORLD = [id for id in milkrun.list_worlds() if id.startswith("milkrun/")]
WORLDS = [id for id in EVERY_WORLD if milkrun.world_spec(id).agents == "single" and functional(id)]

PLACES = {"milkrun/Tracking-v0": ("hidden", "node_xy")}
"""Where a TensorDict holds the places of an instance, if not under "locs": in what no agent may see."""


def places_in(td: TensorDictBase, id: str) -> tuple[torch.Tensor, str]:
    """The places of instances, and the field of the world that has them."""
    key = PLACES.get(id, "locs")
    return td[key], key if isinstance(key, str) else key[-1]


SHORT = {"milkrun/TSPKopt-v0": {"max_steps": 8}, "milkrun/SDWCVRP-v0": {"horizon": 1}}
"""Options that make the long episodes short."""


def small(id: str) -> dict[str, Any]:
    """Options for six places and a depot, and for small instances of worlds without places to visit."""
    return {"num_nodes": 7} if id == "milkrun/TSPD-v0" else SMALL.get(id, {"num_loc": 6})


def leaves(td: TensorDictBase) -> dict[Any, torch.Tensor]:
    return dict(td.items(include_nested=True, leaves_only=True))


def bits(tensor: torch.Tensor) -> bytes:
    return np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes()


def checksums(td: TensorDictBase) -> dict[Any, bytes]:
    """The bits of every leaf."""
    return {key: bits(value) for key, value in leaves(td).items()}


def assert_same(a: TensorDictBase, b: TensorDictBase) -> None:
    """The same keys, shapes, dtypes and bits."""
    left, right = leaves(a), leaves(b)
    assert left.keys() == right.keys()
    assert a.batch_size == b.batch_size
    for key, value in left.items():
        other = right[key]
        assert (value.shape, value.dtype) == (other.shape, other.dtype), key
        assert bits(value) == bits(other), key


def started(env: Any, steps: int, batch: Any = None) -> TensorDictBase:
    """A TensorDict some random steps into its episodes, with the next actions drawn."""
    td = env.reset(batch_size=batch)
    for _ in range(steps):
        td = env.step(td.set("action", env.sample_actions(td)))["next"].exclude("reward")
    return td.set("action", env.sample_actions(td))


def global_states() -> tuple[Any, ...]:
    """The states of the generators that no test may change: torch's, numpy's, Python's."""
    name, keys, *place = np.random.get_state()
    return torch.get_rng_state().tolist(), name, keys.tolist(), place, random.getstate()


def random_policy(env: Any) -> Any:
    """Draws among the allowed actions."""
    return lambda td: td.set("action", env.sample_actions(td))
