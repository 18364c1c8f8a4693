"""Fields as TorchRL specs, and specs from a TensorDict for worlds in torch alone.

Every field that a step reads is in both the observation spec and the state spec: TorchRL takes a key of the state spec
alone from the root instead of "next", so rollouts would step a stale state. The two flags are in the done spec and the
state spec.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from tensordict import TensorDictBase
from torchrl.data import Binary, Bounded, Categorical, Composite, TensorSpec, Unbounded, UnboundedContinuous

from milkrun.api.torchrl.agents import Groups
from milkrun.api.torchrl.fields import FLAGS, Slot
from milkrun.api.torchrl.functional import Stepper
from milkrun.core.fields import Role
from milkrun.core.world import World


class Specs(NamedTuple):
    """The specs of an environment."""

    observation: Composite
    state: Composite
    action: TensorSpec
    reward: TensorSpec
    done: Composite


def specs_of_world(stepper: Stepper, groups: Groups | None, batch: torch.Size, device: torch.device) -> Specs:
    """The specs of a compiled world, from its fields."""
    seen = Composite(shape=batch, device=device)
    hidden = Composite(shape=batch, device=device)
    for slot in (*stepper.instance, *stepper.carried, *stepper.views):
        if slot.name not in FLAGS:
            (seen if slot.root else hidden)[slot.name] = field_spec(slot, stepper.world, batch, device)
    hidden["stream"] = field_spec(stepper.stream, stepper.world, batch, device)
    seen["hidden"] = hidden
    state = seen.clone()
    for slot in stepper.views:
        del state[slot.key]
    # After the state spec was copied: synonyms are outputs only, so they are no part of it.
    for alias, name in stepper.synonyms:
        seen[alias] = seen[name].clone()
    if groups is not None:
        action, reward = groups.specs(seen, batch, device)
        return _complete(seen, state, action, batch, device)._replace(reward=reward)
    return _complete(seen, state, action_spec(stepper.world, batch, device), batch, device)


def specs_of_td(td: TensorDictBase, actions: int, batch: torch.Size, device: torch.device) -> Specs:
    """The specs of a world in torch alone, from one of its TensorDicts (one batch dimension) with flags and mask."""
    seen = Composite(shape=batch, device=device)
    for key, value in td.items(include_nested=True, leaves_only=True):
        if key not in (*FLAGS, "done", "reward"):
            seen[key] = _tensor_spec(value.dtype, torch.Size((*batch, *value.shape[1:])), device)
    action = Categorical(actions, shape=batch, dtype=torch.int64, device=device)
    return _complete(seen, seen.clone(), action, batch, device)


def action_spec(world: World, batch: torch.Size, device: torch.device) -> TensorSpec:
    """The actions of a single agent."""
    if world.action.kind == "box":
        shape = torch.Size((*batch, *world.action.shape(world.sizes)))
        return Bounded(-1.0, 1.0, shape=shape, dtype=torch.float32, device=device)
    return Categorical(world.num_actions, shape=batch, dtype=torch.int64, device=device)


def field_spec(slot: Slot, world: World, batch: torch.Size, device: torch.device) -> TensorSpec:
    """The values of a field."""
    f, shape = slot.field, torch.Size((*batch, *slot.tail()))
    low, high = f.bounds(world.sizes)
    if f.role is Role.MASK or slot.dtype is torch.bool or f.limit or (low is None and high is None):
        return _tensor_spec(slot.dtype, shape, device)
    span = torch.finfo(slot.dtype) if slot.dtype.is_floating_point else torch.iinfo(slot.dtype)
    low, high = span.min if low is None else low, span.max if high is None else high
    return Bounded(low, high, shape=shape, dtype=slot.dtype, device=device)


def _tensor_spec(dtype: torch.dtype, shape: torch.Size, device: torch.device) -> TensorSpec:
    """Any values of a dtype and shape."""
    if dtype is torch.bool:
        return Binary(shape=shape, dtype=torch.bool, device=device)
    if not dtype.is_floating_point:
        span = torch.iinfo(dtype)
        return Bounded(span.min, span.max, shape=shape, dtype=dtype, device=device)
    return Unbounded(shape=shape, dtype=dtype, device=device)


def _complete(seen: Composite, state: Composite, action: TensorSpec, batch: torch.Size, device: torch.device) -> Specs:
    column = torch.Size((*batch, 1))

    def flag() -> TensorSpec:
        return Categorical(2, shape=column, dtype=torch.bool, device=device)

    for name in FLAGS:
        state[name] = flag()
    reward = UnboundedContinuous(shape=column, dtype=torch.float32, device=device)
    done = Composite({name: flag() for name in ("done", *FLAGS)}, shape=batch, device=device)
    return Specs(seen, state, action, reward, done)
