"""The attention model (Kool, van Hoof, Welling 2019; Kwon et al. 2020) over the features of a world.

An encoder reads the nodes of an instance once. Each step makes a query from places and numbers, attends to the open
nodes, and scores them. Shapes: B instances, N nodes, Q queries an instance, D = width, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLOSED = -1e9  # added to the score of an entry that is not allowed
CLIP = 10.0  # scores are CLIP * tanh(...)
WRITTEN_OUT = 128  # keys up to which attention is written out on a CPU
ONE_DNN = 16  # instances from which oneDNN multiplies


@dataclass(frozen=True)
class Sizes:
    """What determines the shapes of all parameters."""

    nodes: int
    places: int = 1
    numbers: int = 0
    changing: int = 0
    width: int = 128
    heads: int = 8
    layers: int = 3
    norm: str = "instance"  # over the nodes of an instance, or over the "batch"


class Linear(nn.Linear):
    """nn.Linear; on a CPU a 1x1 convolution with the channels last.

    torch multiplies float32 matrices by MKL, which on AMD processors uses half of the vector units; convolutions go to
    oneDNN, which uses all of them, at the same precision. The choice depends on device and shape alone. Below ONE_DNN
    instances torch does not use oneDNN, and rounds differently.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cpu or x.dim() != 3 or x.size(0) < ONE_DNN or x.dtype != torch.float32:
            return super().forward(x)
        image = x.unsqueeze(2).permute(0, 3, 1, 2)
        return F.conv2d(image, self.weight[:, :, None, None], self.bias).permute(0, 2, 3, 1).squeeze(2)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Attention of heads (B, H, Q, c) to (B, H, N, c). On a CPU the fused function is slower for few keys."""
    if not q.is_cpu or k.size(2) > WRITTEN_OUT:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    scores = torch.matmul(q * q.size(-1) ** -0.5, k.transpose(2, 3))
    return torch.matmul((scores if bias is None else scores + bias).softmax(-1), v)


class Norm(nn.Module):
    """Normalises (B, N, D) over the nodes of each instance (POMO), or over the batch (attention model)."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        if kind == "batch":
            self.batch = nn.BatchNorm1d(width)
        else:
            self.weight = nn.Parameter(torch.ones(width))
            self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "batch":
            return self.batch(x.reshape(-1, x.size(-1))).view_as(x)
        x = x - x.mean(1, keepdim=True)
        return torch.addcmul(self.bias, x, torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5) * self.weight)


class Layer(nn.Module):
    """One layer of the encoder: attention, then two linear maps at each node, both with a residual."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        d = sizes.width
        self.heads = sizes.heads
        self.qkv, self.out = Linear(d, 3 * d), Linear(d, d)
        self.norm1, self.norm2 = Norm(d, sizes.norm), Norm(d, sizes.norm)
        self.ff1, self.ff2 = Linear(d, 4 * d), Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        attended = attend(q, k, v).transpose(1, 2).reshape(b, n, d)
        # In place where autograd allows: new memory costs more than the sums.
        x = self.norm1(self.out(attended).add_(x))
        return self.norm2(self.ff2(F.relu_(self.ff1(x))).add_(x))


class Tables(NamedTuple):
    """What an instance offers to all queries. Another network may have its own NamedTuple of tensors, the instances
    first."""

    keys: Tensor  # (B, H, N, D/H)
    values: Tensor  # (B, H, N, D/H)
    scores: Tensor  # (B, D, N)
    places: Tensor  # (B, A, N + 1, D): the part of a query for each place; entry N is nowhere


def each_table(tables: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """The same tables of other tensors."""
    return type(tables)(*(function(t) for t in tables))


class Inputs(NamedTuple):
    """What a query reads of its row."""

    places: Sequence[Tensor]  # (B, Q) int64 each
    numbers: Tensor | None  # (B, Q, M)
    changing: Tensor | None  # (B, Q, N, X)
    mask: Tensor  # (B, Q, N) bool


class Network(nn.Module):
    """Encoder, query and scores. Another module may take its place in `train`, `resume` and `load`: it has this
    constructor, `sizes`, `encode` and `scores`."""

    def __init__(self, sizes: Sizes, generator: torch.Generator | None = None) -> None:
        """Initial weights have the distribution of torch's; with a generator they depend on it alone."""
        super().__init__()
        self.sizes = sizes
        with torch.random.fork_rng(devices=[]):  # torch's modules draw from the global generator
            self._make(sizes)
        self.initialise(generator)

    def _make(self, sizes: Sizes) -> None:
        d, x = sizes.width, sizes.changing
        self.embed = nn.Linear(sizes.nodes, d)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))
        self.kvl = Linear(d, 3 * d, bias=False)
        self.places = Linear(d, sizes.places * d, bias=False)
        self.nowhere = nn.Parameter(torch.empty(sizes.places, d))
        self.numbers = nn.Linear(sizes.numbers, d, bias=False) if sizes.numbers else None
        self.graph = nn.Linear(d, d, bias=False)
        self.project = nn.Linear(d, d, bias=False)
        self.bias_heads = nn.Linear(x, sizes.heads, bias=False) if x else None
        self.changing = nn.Linear(d, x, bias=False) if x else None

    def initialise(self, generator: torch.Generator | None) -> None:
        """The distribution of torch's linear layers: uniform in +-1/sqrt(inputs)."""
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, nn.Linear):
                    bound = 1 / math.sqrt(module.in_features)
                    for p in (module.weight, module.bias):
                        if p is not None:
                            p.uniform_(-bound, bound, generator=generator)
            bound = 1 / math.sqrt(self.sizes.width)
            self.nowhere.uniform_(-bound, bound, generator=generator)

    def encode(self, nodes: Tensor) -> Tables:
        """(B, N, F) -> the tables."""
        h = self.embed(nodes)
        for layer in self.layers:
            h = layer(h)
        b, n, d = h.shape
        k, v, score_keys = self.kvl(h).view(b, n, 3, d).unbind(2)
        # The output projection of the attention is applied to the keys, once, instead of to each query.
        scores = (score_keys @ (self.project.weight / math.sqrt(d))).transpose(1, 2)
        places = self.places(h).view(b, n, self.sizes.places, d).transpose(1, 2)
        places = torch.cat([places, self.nowhere.expand(b, -1, -1)[:, :, None]], 2)
        # The mean of all nodes is part of each query: it is added to the first place.
        first = places[:, :1] + self.graph(h.mean(1))[:, None, None]
        places = torch.cat([first, places[:, 1:]], 1)
        return Tables(self._split(k), self._split(v), scores.contiguous(), places)

    def _split(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        return x.reshape(b, n, self.sizes.heads, -1).transpose(1, 2).contiguous()

    def query(self, tables: Tables, places: Sequence[Tensor], numbers: Tensor | None) -> Tensor:
        """(B, Q, D)."""
        b, a, rest, d = tables.places.shape
        flat = tables.places.reshape(-1, d)
        first = torch.arange(b, device=flat.device)[:, None] * (a * rest)
        q = flat.index_select(0, (places[0] + first).view(-1))
        for k in range(1, a):
            q = q + flat.index_select(0, (places[k] + first + k * rest).view(-1))
        q = q.view(b, -1, d)
        return q if numbers is None or self.numbers is None else q + self.numbers(numbers)

    def scores(self, tables: Tables, inputs: Inputs) -> Tensor:
        """(B, Q, N): the scores of all entries; those that are not allowed are near CLOSED."""
        q = self.query(tables, inputs.places, inputs.numbers)
        b, n_queries, d = q.shape
        # By arithmetic: masked_fill takes ten times as long.
        closed = (inputs.mask.to(q.dtype) - 1) * -CLOSED
        bias = closed[:, None]
        if inputs.changing is not None and self.bias_heads is not None:
            bias = bias + self.bias_heads(inputs.changing).permute(0, 3, 1, 2)
        heads = q.view(b, n_queries, self.sizes.heads, -1).transpose(1, 2)
        glimpse = attend(heads, tables.keys, tables.values, bias).transpose(1, 2).reshape(b, n_queries, d)
        scores = torch.bmm(glimpse, tables.scores)
        if inputs.changing is not None and self.changing is not None:
            scores = scores + (inputs.changing @ self.changing(glimpse)[..., None]).squeeze(-1)
        return CLIP * torch.tanh(scores) + closed


NetworkClass = Callable[..., Any]
"""Makes a network of `Sizes` and, for its initial weights, an optional generator: `Network` or a class of yours."""
