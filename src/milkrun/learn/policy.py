"""A trained network as a policy: `policy(world)` returns one action a row.

`greedy` and `sample` decide at each step. The other decodings plan whole episodes: they play copies of a row in another
world, and the best plan is handed out step by step.

    starts     a greedy copy for each first action, and one that is free to choose it
    sample=K   a greedy copy and K - 1 sampled ones
    x8         these in each of the eight symmetries of the square

A plan needs a world whose steps draw nothing and hide nothing: there a played copy is the truth.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from milkrun.core.errors import ConfigError
from milkrun.core.features import GROUPS, Features
from milkrun.core.fields import Role
from milkrun.core.instances import instances_of
from milkrun.core.sampling import chance
from milkrun.learn.checkpoint import name_of_infinite
from milkrun.learn.network import Inputs, Network, Tables, each_table
from milkrun.learn.reinforce import Player, sample_entry

TRIED = 16  # instances of a trial of symmetry, or of draws in a step
AGREE = 1e-4  # the largest relative difference of returns of mirrored instances
PLANNED = 8192  # copies that are played at once
MOST_SAMPLES = 4096


@dataclass(frozen=True)
class Decoding:
    """How actions are chosen: at each step, or by a plan of several copies."""

    starts: bool = False
    samples: int = 0  # 0: greedy; 1: draws; more: a plan
    mirrors: bool = False

    @property
    def plans(self) -> bool:
        return self.starts or self.samples > 1 or self.mirrors

    @classmethod
    def parse(cls, text: str) -> Decoding:
        """Reads "greedy", "sample", "sample=16", "starts", "starts,x8" or "sample=16,x8"."""
        parts = [part.strip() for part in text.split(",")]
        starts, mirrors = "starts" in parts, "x8" in parts
        rest = [part for part in parts if part not in ("starts", "x8", "greedy")]
        found = [re.fullmatch(r"sample(?:=(\d{1,6}))?", part) for part in rest]
        if len(rest) > 1 or not all(found) or (starts and rest):
            raise ConfigError(
                f"decode={text!r}: must be greedy, sample, sample=K or starts; x8 may follow, as in 'starts,x8'"
            )
        samples = int(found[0][1] or 1) if found and found[0] else 0
        if samples > MOST_SAMPLES:
            raise ConfigError(f"decode={text!r}: at most {MOST_SAMPLES} samples")
        return cls(starts, samples, mirrors)


class NetworkPolicy:
    """The policy of a network for worlds with these features."""

    def __init__(self, network: Network, features: Features, decode: str | None = None, seed: int = 0) -> None:
        if name := name_of_infinite(network):
            raise ConfigError(f"{name} of the network is not finite")
        self.network = network.eval()
        self.features = features
        self.device = next(network.parameters()).device
        self.decode, self.seed = decode, seed
        self._decoding: Decoding | None = None if decode is None else Decoding.parse(decode)
        self._world: Any = None
        self._keys = np.zeros((0, 3), np.int64)  # of the episodes whose tables or plans are known
        self._instances = -1
        self._tables: Tables | None = None  # of each row
        self._plans = np.zeros((0, 0), np.int64)
        self._planned = np.zeros(0, bool)

    def seeded(self, seed: int) -> NetworkPolicy:
        """The same network with another seed of its draws."""
        return NetworkPolicy(self.network, self.features, self.decode, seed)

    def forget(self) -> None:
        """Forgets tables and plans, because the weights have changed. What was found out about the world stays."""
        self.network.eval()
        self._instances = -1

    @torch.no_grad()
    def __call__(self, world: Any) -> np.ndarray:
        decoding = self._get_ready(world)
        begun = (world.stream != self._keys).any(1)
        if world.instance_version != self._instances:
            begun[:] = True
        if begun.any():
            self._begin(world, np.flatnonzero(begun), decoding)
        if not decoding.plans:
            return self._decide(world, np.arange(world.num_envs), decoding)
        width = self._plans.shape[1]
        actions = (
            self._plans[np.arange(world.num_envs), np.minimum(world.i, max(width - 1, 0))] if width else world.i * 0
        )
        if not self._planned.all():  # rows in the middle of an episode that began without this policy
            rows = np.flatnonzero(~self._planned)
            actions[rows] = self._decide(world, rows, Decoding())
        return actions

    def _get_ready(self, world: Any) -> Decoding:
        """The decoding for this world; forgets another one."""
        if self._world is not world:
            check_fields(self.features, world, self.network)
            self._world, self._instances, self._tables = world, -1, None
            self._keys = np.full((world.num_envs, 3), -1, np.int64)
            self._plans = np.zeros((world.num_envs, 0), np.int64)
            self._planned = np.zeros(world.num_envs, bool)
            if self._decoding is None or self._decoding.plans:
                why = why_no_plans(world)
                if self._decoding is not None and why:
                    raise ConfigError(f"decode={self.decode!r} plans whole episodes, but {why}: take greedy or sample")
                if self._decoding is not None and self._decoding.mirrors and not is_symmetric(world, self.features):
                    raise ConfigError(f"decode={self.decode!r}: {type(world).__name__} has no symmetry of the square")
            if self.decode is None:
                self._decoding = Decoding(starts=type(world).policy_starts and not why)
        assert self._decoding is not None
        return self._decoding

    def _begin(self, world: Any, rows: np.ndarray, decoding: Decoding) -> None:
        """Makes the plans, or the tables, of rows with another episode."""
        at_start = rows[world.i[rows] == 0] if decoding.plans else rows[:0]
        self._planned[rows] = False
        self._planned[at_start] = True
        if len(at_start):
            plans = make_plans(self.network, self.features, world, at_start, decoding, seed=self.seed)
            wider = max(0, plans.shape[1] - self._plans.shape[1])
            self._plans = np.pad(self._plans, ((0, 0), (0, wider)))
            self._plans[at_start] = np.pad(plans, ((0, 0), (0, self._plans.shape[1] - plans.shape[1])))
        if rest := len(rows) - len(at_start):
            of = np.setdiff1d(rows, at_start) if rest < len(rows) else rows
            nodes = self.features.read_nodes(world, world.instance_row[of])
            tables = self.network.encode(torch.from_numpy(nodes).to(self.device))
            if self._tables is None:
                shape = world.num_envs
                self._tables = each_table(tables, lambda t: t.new_zeros(shape, *t.shape[1:]))
            index = torch.from_numpy(of)
            for known, new in zip(self._tables, tables, strict=True):
                known[index] = new
        self._keys[rows] = world.stream[rows]
        self._instances = world.instance_version

    def _decide(self, world: Any, rows: np.ndarray, decoding: Decoding) -> np.ndarray:
        """The actions of these rows at this step."""
        assert self._tables is not None
        scores = self._scores(world)[rows]
        if not decoding.samples:
            chosen: np.ndarray = scores.argmax(-1).cpu().numpy()
            return chosen
        u = torch.from_numpy(chance(world, self.seed, None, 0)[rows])
        drawn: np.ndarray = sample_entry(scores.double().softmax(-1).cpu(), u).numpy()
        return drawn

    def _scores(self, world: Any) -> torch.Tensor:
        """(R, N) scores of all rows now."""
        assert self._tables is not None
        return self.network.scores(self._tables, read_rows(self.features, world, self.device))[:, 0]

    @torch.no_grad()
    def scores(self, world: Any) -> np.ndarray:
        """(R, N) the probability of each action now, for pages."""
        decoding = self._get_ready(world)
        plain = Decoding(samples=decoding.samples and 1)
        begun = np.flatnonzero((world.stream != self._keys).any(1) | (world.instance_version != self._instances))
        if len(begun) or self._tables is None:
            self._begin(world, np.arange(world.num_envs) if self._tables is None else begun, plain)
        probability: np.ndarray = self._scores(world).softmax(-1).cpu().numpy()
        return probability


def read_rows(features: Features, world: Any, device: Any) -> Inputs:
    """What a network reads of all rows now, one query a row."""

    def one(array: np.ndarray | None) -> torch.Tensor | None:
        return None if array is None else torch.from_numpy(array).to(device)[:, None]

    features.observe(world)
    places = [torch.from_numpy(place).to(device)[:, None] for place in features.read_places(world)]
    mask = torch.from_numpy(world.action_mask.copy()).to(device)[:, None]
    return Inputs(places, one(features.read_numbers(world)), one(features.read_changing(world)), mask)


def check_fields(features: Features, world: Any, network: Network) -> None:
    """Raises ConfigError unless the network fits the fields of this world."""
    wanted = {name: group for group in GROUPS for name in getattr(features, group)}
    for name, group in wanted.items():
        f = world.fields.get(name)
        if f is None or 0 in f.shape(world.sizes) or f.hidden:
            raise ConfigError(f"the policy reads {name!r} ({group}), which {type(world).__name__} does not show")
    found = features.widths(world)
    sizes = network.sizes
    expected = {"nodes": sizes.nodes, "places": sizes.places, "numbers": sizes.numbers, "changing": sizes.changing}
    if found != expected:
        raise ConfigError(f"the policy reads {expected} numbers, but {type(world).__name__} shows {found}")


# -- plans ------------------------------------------------------------------------------------------------------------


def make_plans(
    network: Network, features: Features, world: Any, rows: np.ndarray, decoding: Decoding, *, seed: int = 0
) -> np.ndarray:
    """(len(rows), L) the best plan for the instance of each row, padded with 0."""
    entries = world.action_mask.shape[1]
    each = decoding.samples or (entries + 1 if decoding.starts else 1)
    mirrors = 8 if decoding.mirrors else 1
    size = max(1, PLANNED // each)
    plans = []
    for k in range(0, len(rows), size):
        chosen = rows[k : k + size]
        player = Player(
            world, features, len(chosen), each, seed=seed, starts=decoding.starts, device=network_device(network)
        )
        given = instances_of(world, chosen)
        best, actions = np.full(len(chosen), -np.inf), np.zeros((len(chosen), 0), np.int64)
        for mirror in range(mirrors):
            player.begin(mirrored(given, features, mirror))
            player.noise.manual_seed(seed * 8 + mirror)
            tables = network.encode(player.nodes())
            returns, records = player.play(network, tables, greedy=not decoding.samples, greedy_row=True)
            top = returns.cpu().numpy()
            winner = top.argmax(1)
            here = np.arange(len(chosen))
            better = top[here, winner] > best
            found = np.stack([record.action.cpu().numpy() for record in records], 2)[here, winner]
            actions = _wider(actions, found.shape[1])
            actions[better] = _wider(found, actions.shape[1])[better]
            best = np.maximum(best, top[here, winner])
        plans.append(actions)
    width = max(plan.shape[1] for plan in plans)
    return np.concatenate([_wider(plan, width) for plan in plans])


def _wider(plans: np.ndarray, width: int) -> np.ndarray:
    return np.pad(plans, ((0, 0), (0, max(0, width - plans.shape[1]))))


def network_device(network: Network) -> torch.device:
    return next(network.parameters()).device


def plane_of(features: Features, world: Any) -> str:
    """The node feature that may be places in a plane: (AXIS, 2) floats; empty without one."""
    fields = (world.fields[name] for name in features.nodes)
    return next((f.name for f in fields if f.dims[1:] == (2,) and f.dtype.kind == "f"), "")


def mirrored(given: Mapping[str, np.ndarray], features: Features, mirror: int) -> dict[str, np.ndarray]:
    """The instances in one of the eight symmetries of the unit square; 0 is the identity."""
    found = dict(given)
    if mirror:
        for name in features.nodes:
            array = given[name]
            if array.ndim == 3 and array.shape[2] == 2 and array.dtype.kind == "f":
                x, y = array[..., 0], array[..., 1]
                a, b = (1 - x if mirror & 1 else x), (1 - y if mirror & 2 else y)
                found[name] = np.stack((b, a) if mirror & 4 else (a, b), -1).astype(array.dtype)
                break
    return found


def is_symmetric(world: Any, features: Features) -> bool:
    """Whether the same random actions give the same masks and returns on mirrored instances. Tried, not declared."""
    name = plane_of(features, world)
    if not name:
        return False
    cls, config = type(world), world.config
    plain = cls(TRIED, config, seed=1, autoreset="disabled", threads=1)
    plain.reset()
    given = instances_of(plain)
    places = given[name]
    if places.min() < 0 or places.max() > 1:
        return False
    images = [cls(TRIED, config, seed=1, autoreset="disabled", threads=1) for _ in range(8)]
    for mirror, image in enumerate(images):
        image.reset(instance=mirrored(given, features, mirror))
    return _same_play(plain, images)


def why_no_plans(world: Any) -> str:
    """Why a played copy of a row may differ from the row; empty if it cannot."""
    hidden = [
        f.name
        for f in world.fields.values()
        if f.hidden and f.role in (Role.INSTANCE, Role.STATE) and getattr(world, f.name).size
    ]
    if hidden:
        return f"{type(world).__name__} hides {hidden[0]!r} from its agent"
    cls, config = type(world), world.config
    plain, other = (cls(TRIED, config, seed=s, autoreset="disabled", threads=1) for s in (1, 2))
    plain.reset()
    other.reset(instance=instances_of(plain))
    return "" if _same_play(plain, [other]) else f"a step of {type(world).__name__} draws random numbers"


def _same_play(plain: Any, others: list[Any]) -> bool:
    """Whether random actions give the same masks and returns in all worlds."""
    live = np.arange(TRIED)
    while len(live):
        if any((other.action_mask[live] != plain.action_mask[live]).any() for other in others):
            return False
        actions = plain.sample_actions(1)[live]
        for one in (plain, *others):
            one.step(actions, rows=live)
        if any((other.done[live] != plain.done[live]).any() for other in others):
            return False
        live = live[~plain.done[live]]
    scale = np.maximum(1.0, np.abs(plain.objective))
    return all(bool((np.abs(other.objective - plain.objective) <= AGREE * scale).all()) for other in others)
