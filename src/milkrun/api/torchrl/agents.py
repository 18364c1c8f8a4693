"""Worlds of several agents in TorchRL: observation, mask, action and reward of a group are nested under its name.

Kernels have one joint mask and one joint action. The joint mask is under "hidden", and the groups show parts of it; a
view `<group>_obs` of the world is the observation of the group, and a view `state` that of a critic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torchrl.data import Binary, Categorical, Composite, TensorSpec, Unbounded, UnboundedContinuous

from milkrun.api._agents import Group, groups_of
from milkrun.api._td import entries, make_td
from milkrun.api.torchrl.checks import Tensors, checked_action
from milkrun.core.world import World


class Groups:
    """The groups of a world, in declaration order."""

    def __init__(self, world: World) -> None:
        self.all = groups_of(world)
        self.names = tuple(world.groups)

    def split(self, root: dict[str, Any], hidden: Tensors, batch: torch.Size, device: torch.device) -> dict[str, Any]:
        """The root with the groups in place of their views; the reward of all is the reward of each."""
        shown, mask = dict(root), hidden["action_mask"]
        *strides, last = mask.stride()
        offset, reward = mask.storage_offset(), shown.pop("reward", None)
        if reward is not None:
            reward = reward.unsqueeze(-2)
        for group in self.all:
            team = _team(group, batch)
            part = (*team, group.choices), (*strides, group.choices * last, last), offset + group.mask.start * last
            own = {"action_mask": mask.as_strided(*part)}  # narrow and view in one call, in a quarter of the time
            if (seen := shown.pop(_view(group), None)) is not None:
                own["observation"] = seen
            if reward is not None:
                # A copy, since in an expanded tensor all agents would share one element.
                own["reward"] = reward if team[-1] == 1 else reward.expand(*team, 1).contiguous()
            shown[group.name] = make_td(own, team, device)
        return shown

    def fields(self, root: Tensors) -> dict[str, Any]:
        """The root with the views of the groups under their field names."""
        found = {name: value for name, value in root.items() if name not in self.names}
        for group in self.all:
            if group.name in root and "observation" in (own := entries(root[group.name])):
                found[_view(group)] = own["observation"]
        return found

    def joint_action(self, root: Tensors, batch: torch.Size) -> torch.Tensor:
        """(*batch, agents) of the groups' actions."""
        acts = []
        for group in self.all:
            act = entries(root[group.name]).get("action") if group.name in root else None
            acts.append(checked_action(act, torch.int64, _team(group, batch), (group.name, "action")))
        return torch.cat(acts, -1)

    def sample(self, mask: torch.Tensor, sampler: np.random.Generator, device: torch.device) -> dict[str, Any]:
        """An allowed action for every agent, uniformly, from the joint mask (*batch, M)."""
        batch = mask.shape[:-1]
        acts = {}
        for group in self.all:
            allowed = mask[..., group.mask].reshape(*_team(group, batch), group.choices)
            # The largest of independent uniform draws is at each allowed action with the same probability. Draws are >=
            # 0, so -1 is never the largest if an action is allowed.
            noise = torch.from_numpy(sampler.random(tuple(allowed.shape), np.float32))
            chosen = torch.where(allowed.cpu(), noise, -1.0).argmax(-1).to(device)
            acts[group.name] = make_td({"action": chosen}, _team(group, batch), device)
        return acts

    def specs(self, seen: Composite, batch: torch.Size, device: torch.device) -> tuple[TensorSpec, TensorSpec]:
        """Adds the groups to the observation spec; returns the specs of actions and rewards."""
        actions, rewards = Composite(shape=batch, device=device), Composite(shape=batch, device=device)
        for group in self.all:
            team = _team(group, batch)
            own = Composite(shape=team, device=device)
            own["action_mask"] = Binary(shape=(*team, group.choices), dtype=torch.bool, device=device)
            if _view(group) in seen.keys():  # noqa: SIM118 (a Composite is no dict)
                view = seen[_view(group)]
                own["observation"] = Unbounded(shape=view.shape, dtype=view.dtype, device=device)
                del seen[_view(group)]
            seen[group.name] = own
            act = Categorical(group.choices, shape=team, dtype=torch.int64, device=device)
            actions[group.name] = Composite({"action": act}, shape=team, device=device)
            pay = UnboundedContinuous(shape=(*team, 1), dtype=torch.float32, device=device)
            rewards[group.name] = Composite({"reward": pay}, shape=team, device=device)
        return actions, rewards


def _team(group: Group, batch: torch.Size) -> torch.Size:
    return torch.Size((*batch, len(group.members)))


def _view(group: Group) -> str:
    return f"{group.name}_obs"
