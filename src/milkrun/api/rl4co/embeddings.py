"""RL4CO's three embeddings for any NodeEnv, over what `milkrun.core.features` derives from the fields of its world.

    env = milkrun.make("milkrun/WCVRP-v0", api="rl4co", num_loc=20)
    init, context, dynamic = embeddings(env, embed_dim=128)

The modules compute from a TensorDict the numbers that `Features` reads of a world. They are independent of the
environment; shifts and factors are buffers, so a saved policy keeps the scales that it was trained with.
Shapes: *B batch dimensions (B instances; B, S with S starts), N nodes, D = embed_dim.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from rl4co.models.nn.env_embeddings.dynamic import StaticEmbedding
from tensordict import TensorDict
from torch import nn

from milkrun.api.rl4co.node_env import NodeEnv
from milkrun.core.arguments import check_count
from milkrun.core.errors import ConfigError
from milkrun.core.features import Features, choices, derive


def embeddings(env: Any, embed_dim: int = 128) -> tuple[nn.Module, nn.Module, nn.Module]:
    """`init_embedding`, `context_embedding` and `dynamic_embedding` for RL4CO's AttentionModelPolicy; the last one is
    RL4CO's StaticEmbedding if no feature of a node changes. `print(milkrun.core.features.derive(env.torchrl.template))`
    shows the features."""
    if not isinstance(env, NodeEnv):
        raise ConfigError(
            f"env is a {type(env).__name__}: must be a NodeEnv, of milkrun.make(..., api='rl4co'); TSPEnv and CVRPEnv "
            "have RL4CO's keys, which RL4CO's own embeddings read"
        )
    check_count("embed_dim", embed_dim, 1)
    world = env.torchrl.template
    features = derive(world)
    changes = features.changing or features.matrices
    return (
        InitEmbedding(features, world, embed_dim),
        ContextEmbedding(features, world, embed_dim),
        DynamicEmbedding(features, world, embed_dim) if changes else StaticEmbedding(),
    )


class Columns(nn.Module):
    """Some fields of a TensorDict as scaled columns (*B, ..., columns). `axes` of their axes are kept as they are: 0 of
    numbers, 1 of features of a node, 2 of matrices."""

    shift: torch.Tensor
    factor: torch.Tensor

    def __init__(self, features: Features, world: Any, names: tuple[str, ...], axes: int) -> None:
        super().__init__()
        self.axes = axes
        self.limits = {name for name in names if world.fields[name].limit}
        self.one_hot = {name: 0 if axes else choices(world.fields[name], world.sizes) for name in names}
        scales = []
        for name, width in self.one_hot.items():
            columns = width or int(np.prod(world.fields[name].shape(world.sizes)[axes:]))
            scales += [features.scale.get(name, (0.0, 1.0))] * columns
        shift, factor = torch.tensor(scales, dtype=torch.float32).reshape(-1, 2).unbind(1)
        self.register_buffer("shift", shift.clone())
        self.register_buffer("factor", factor.clone())

    def forward(self, td: TensorDict) -> torch.Tensor:
        shape = (*td.batch_size, *(_nodes(td) for _ in range(self.axes)))
        parts = [torch.zeros((*shape, 0), device=self.shift.device)]
        for name, width in self.one_hot.items():
            value = _field(td, name).reshape(*shape, -1)
            if name in self.limits:  # as `without_limits` of the features
                value = torch.where(value.isfinite(), value, 0.0)
            parts.append((value == torch.arange(width, device=value.device) if width else value).float())
        return (torch.cat(parts, -1) - self.shift) * self.factor


class InitEmbedding(nn.Module):
    """(*B, N, D): a linear map of the node features."""

    def __init__(self, features: Features, world: Any, embed_dim: int) -> None:
        super().__init__()
        self.columns = Columns(features, world, features.nodes, 1)
        self.matrices = Columns(features, world, features.matrices, 2)
        self.flag = features.flag
        self.project = nn.Linear(features.widths(world)["nodes"], embed_dim)

    def read(self, td: TensorDict) -> torch.Tensor:
        """`Features.read_nodes`: (*B, N, F)."""
        columns, matrices = self.columns(td), self.matrices(td)
        summaries = (matrices.mean(-2), matrices.amin(-2), matrices.mean(-3), matrices.amin(-3))
        parts = [columns, torch.stack(summaries, -1).flatten(-2)]
        if self.flag or not sum(part.shape[-1] for part in parts):
            flag = torch.zeros((*columns.shape[:-1], 1), device=columns.device)
            flag[..., : self.flag, :] = 1
            parts.append(flag)
        return torch.cat(parts, -1)

    def forward(self, td: TensorDict) -> torch.Tensor:
        return self.project(self.read(td))


class ContextEmbedding(nn.Module):
    """(*B, D): a linear map of the embeddings of the places and of the numbers. Nowhere has a learned embedding."""

    def __init__(self, features: Features, world: Any, embed_dim: int) -> None:
        super().__init__()
        self.places = features.places
        self.numbers = Columns(features, world, features.numbers, 0)
        width = features.widths(world)
        self.nowhere = nn.Parameter(torch.empty(width["places"], embed_dim).uniform_(-1, 1) / embed_dim**0.5)
        self.project = nn.Linear(width["places"] * embed_dim + width["numbers"], embed_dim, bias=False)

    def read(self, td: TensorDict) -> tuple[list[torch.Tensor], torch.Tensor]:
        """`Features.read_places` and `Features.read_numbers`: (*B) each, (*B, M)."""
        return _places(td, self.places), self.numbers(td)

    def forward(self, node_embeddings: torch.Tensor, td: TensorDict) -> torch.Tensor:
        places, numbers = self.read(td)
        rows, nodes, width = node_embeddings.shape
        parts = []
        for place, nowhere in zip(places, self.nowhere, strict=True):
            known = place < nodes
            index = torch.where(known, place, 0).reshape(rows, -1, 1).expand(-1, -1, width)
            here = node_embeddings.gather(1, index).reshape(*place.shape, width)
            parts.append(torch.where(known.unsqueeze(-1), here, nowhere))
        return self.project(torch.cat([*parts, numbers], -1))


class DynamicEmbedding(nn.Module):
    """Three linear maps of the changing features, each (*B, N, D): they are added to the keys and values of the glimpse
    and to the keys of the logits."""

    def __init__(self, features: Features, world: Any, embed_dim: int) -> None:
        super().__init__()
        self.columns = Columns(features, world, features.changing, 1)
        self.matrices = Columns(features, world, features.matrices, 2)
        self.places = features.places
        self.project = nn.Linear(features.widths(world)["changing"], 3 * embed_dim, bias=False)

    def read(self, td: TensorDict) -> torch.Tensor:
        """`Features.read_changing`: (*B, N, X)."""
        columns, matrices, nodes = self.columns(td), self.matrices(td), _nodes(td)
        rows = []
        for place in _places(td, self.places):
            known = (place < nodes)[..., None, None]
            index = torch.where(known, place[..., None, None], 0).unsqueeze(-1).expand_as(matrices[..., :1, :, :])
            rows.append(torch.where(known, matrices.gather(-3, index).squeeze(-3), 0.0))
        return torch.cat([columns, torch.stack(rows, -1).flatten(-2)], -1)

    def forward(self, td: TensorDict) -> tuple[torch.Tensor, ...]:
        return self.project(self.read(td)).chunk(3, dim=-1)


def _nodes(td: TensorDict) -> int:
    return int(td["action_mask"].shape[-1])


def _places(td: TensorDict, names: tuple[str, ...]) -> list[torch.Tensor]:
    """The places of a TensorDict: int64 (*B) each, N for nowhere."""
    nowhere = torch.full(td.batch_size, _nodes(td), device=td["action_mask"].device)
    begun = _field(td, "i").reshape(td.batch_size) > 0
    found = [_field(td, name).reshape(td.batch_size).long() for name in names]
    return [torch.where(begun & (place >= 0), place, nowhere) for place in found] or [nowhere]


def _field(td: TensorDict, name: str) -> torch.Tensor:
    """A field of the world: fields that agents do not observe are under "hidden"."""
    value = td.get(name, None)
    return td["hidden", name] if value is None else value
