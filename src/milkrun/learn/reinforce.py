"""REINFORCE over an attention model, in one file: play without gradients, then score all steps at once.

A training step draws B instances and plays S rows on each. Playing records what the network read and chose. Then the
recorded steps are scored together, with gradients. The advantage of a row is its return less a baseline:

    shared   the mean return of the rows of its instance (POMO: Kwon et al. 2020)
    rollout  the return of a greedy copy of the network from before (attention model: Kool, van Hoof, Welling 2019)

A step is a function of the options and its number: instances are episode k of the drawing world, the noise is a
generator seeded by (seed, k). So a run continues to the same bits from weights and optimiser state.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from milkrun.core.arguments import check_count
from milkrun.core.errors import ConfigError, TrainingError
from milkrun.core.features import MOST_STEPS, Features
from milkrun.core.fields import Role
from milkrun.core.launcher import NO_LIMIT
from milkrun.learn.checkpoint import load_moments, moments_of, part
from milkrun.learn.network import Inputs, Network, NetworkClass, Sizes, Tables, each_table

CHUNK = 2048  # queries that are scored at once, so that intermediate results fit the CPU cache
SEED_OF_TRAINING = 10**6  # added to the seed, so that no evaluation with a small seed sees an instance of the training
T95 = 1.6449  # one-sided 5 % of the normal distribution: a t-test of thousands of pairs
ROUND = 10_240  # fresh instances of the test that replaces the greedy baseline
JUDGED = 512  # of these are played at once, at least
WARM_UP = 0.02  # share of the steps in which the learning rate rises
LOWEST_RATE = 0.02  # share of the learning rate at the end
BASELINES = ("shared", "rollout")
FEWEST_ROWS, MOST_ROWS = 16, 65  # of an instance, by default


class Record(NamedTuple):
    """One step of all rows, or many steps of each instance: what the network read, and the actions (B, Q)."""

    inputs: Inputs
    action: Tensor


class Player:
    """B instances with S rows on each: a world draws the instances, another plays the rows."""

    def __init__(
        self,
        world: Any,
        features: Features,
        instances: int,
        rows_each: int,
        *,
        seed: int,
        starts: bool,
        device: Any = "cpu",
    ) -> None:
        cls, config, threads = type(world), world.config, world.threads
        self.features, self.device, self.starts, self.seed = features, device, starts, seed
        self.instances, self.rows_each = instances, rows_each
        self.drawn = cls(instances, config, seed=seed, autoreset="disabled", threads=threads)
        self.world = cls(instances * rows_each, config, seed=seed, autoreset="disabled", threads=threads)
        self.owner = np.repeat(np.arange(instances, dtype=np.int32), rows_each)
        self.noise = torch.Generator()

    def draw(self, number: int) -> None:
        """Draws the instances of this number, and seeds the noise of their play."""
        self.drawn.draw_instances(number)
        self.noise.manual_seed((self.seed * 1_000_003 + number) % 2**63)
        self.begin({f.name: getattr(self.drawn, f.name) for f in self.drawn.fields.values() if f.role is Role.INSTANCE})

    def begin(self, instance: Mapping[str, Any] | None = None) -> None:
        """Puts the rows at the start: of these instances (B, ...), or again of those that they play."""
        if instance is not None:
            self.given = {name: array for name, array in instance.items() if array.size}
        self.world.reset(instance={**self.given, "instance_row": self.owner})

    def nodes(self) -> Tensor:
        return torch.from_numpy(self.features.read_nodes(self.world)).to(self.device)

    def read(self, mask: Tensor) -> Inputs:
        """What the network reads of all rows now, (B, S, ...)."""
        self.features.observe(self.world)
        numbers, changing = self.features.read_numbers(self.world), self.features.read_changing(self.world)
        places = [self._batched(place) for place in self.features.read_places(self.world)]
        return Inputs(
            places,
            None if numbers is None else self._batched(numbers),
            None if changing is None else self._batched(changing),
            mask.to(self.device),
        )

    def _batched(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor.view(self.instances, self.rows_each, *tensor.shape[1:]).to(self.device)

    @torch.no_grad()
    def play(
        self, network: Network, tables: Tables, *, greedy: bool = False, greedy_row: bool = False
    ) -> tuple[Tensor, list[Record]]:
        """Plays all rows to their end; returns (B, S) and the steps. `greedy_row`: the last row of each instance is
        greedy in any case."""
        world, tables = self.world, each_table(tables, Tensor.detach)
        allowed = torch.from_numpy(world.action_mask).view(self.instances, self.rows_each, -1)  # the world's memory
        records: list[Record] = []
        while not world.done.all():
            if len(records) == MOST_STEPS and world.max_steps == NO_LIMIT:
                raise TrainingError(f"an episode of {MOST_STEPS:,} steps has not ended: set max_steps")
            mask = allowed.clone()
            if self.starts and not records:
                give_starts(mask)
            inputs = self.read(mask)
            scores = network.scores(tables, inputs)
            action = scores.argmax(-1) if greedy else self.sample(scores)
            if greedy_row:
                action[:, -1] = scores[:, -1].argmax(-1)
            records.append(Record(inputs, action))
            chosen = action.view(-1).cpu().numpy()
            if world.done.any():
                live = np.flatnonzero(~world.done)
                world.step(chosen[live], rows=live)
            else:
                world.step(chosen)
        returns = world.objective.reshape(self.instances, self.rows_each)
        return torch.from_numpy(returns.astype(np.float32)).to(self.device), records

    def sample(self, scores: Tensor) -> Tensor:
        """One action a row, by one random number each."""
        u = torch.rand(scores.shape[:-1], generator=self.noise, dtype=scores.dtype).to(scores.device)
        return sample_entry(scores.softmax(-1), u)


def sample_entry(probabilities: Tensor, u: Tensor) -> Tensor:
    """The entry that a number u in [0, 1) falls on, by the inverse of the distribution function. The factor keeps a
    number of almost 1 below the last step of the function, so that no closed entry is chosen."""
    below = probabilities.cumsum(-1)
    return (below <= u[..., None] * below[..., -1:] * (1 - 1e-6)).sum(-1)


def give_starts(mask: Tensor) -> None:
    """POMO: of S rows of an instance, row s < S - 1 may take its s-th allowed first action alone. The last row is free,
    so that the first step is learned, too."""
    given = mask[:, :-1]
    order = given.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    number = torch.arange(given.shape[1]).expand(given.shape[:2]) % given.sum(-1)
    given.copy_(torch.zeros_like(given).scatter_(2, order.gather(2, number[..., None]), True))


# -- scoring the recorded steps ---------------------------------------------------------------------------------------


class Choices(NamedTuple):
    """The recorded steps that were a choice, (B, Q): row of each, and whether it is more than padding."""

    record: Record
    row: Tensor
    kept: Tensor


def stack(records: list[Record]) -> Choices:
    """Sorts the steps with more than one open action to the front of each instance, and cuts the rest."""

    def join(parts: list[Tensor]) -> Tensor:
        return torch.stack(parts, 1).flatten(1, 2)

    def take(parts: list[Tensor]) -> Tensor:
        x = join(parts)
        index = order.view(*order.shape, *[1] * (x.dim() - 2))
        return x.gather(1, index.expand(-1, -1, *x.shape[2:]))

    inputs = [record.inputs for record in records]
    is_choice = join([x.mask for x in inputs]).sum(-1) > 1
    count = is_choice.sum(1)
    most = int(count.max())
    order = is_choice.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :most]
    stacked = Inputs(
        [take([x.places[a] for x in inputs]) for a in range(len(inputs[0].places))],
        None if inputs[0].numbers is None else take([x.numbers for x in inputs if x.numbers is not None]),
        None if inputs[0].changing is None else take([x.changing for x in inputs if x.changing is not None]),
        take([x.mask for x in inputs]),
    )
    action = take([record.action for record in records])
    kept = torch.arange(most, device=count.device)[None] < count[:, None]
    return Choices(Record(stacked, action), order % records[0].action.shape[1], kept)


def log_likelihood(network: Network, tables: Tables, record: Record) -> tuple[Tensor, Tensor]:
    """The log-probabilities of the actions (B, Q) and of all entries (B, Q, N)."""
    log_p = network.scores(tables, record.inputs).log_softmax(-1)
    return log_p.gather(2, record.action[..., None]).squeeze(-1), log_p


def backward(network: Network, tables: Tables, choices: Choices, advantage: Tensor, entropy: float = 0.0) -> None:
    """Adds the gradients of -sum(advantage * log-likelihood) - entropy * sum(entropies). Chunks of queries go back to
    copies of the tables; then the encoder goes back once."""
    record, kept = choices.record, choices.kept
    weight = -advantage.gather(1, choices.row) * kept
    many, queries = weight.shape
    size = max(1, CHUNK // max(queries, 1))
    gradients = []
    for b in range(0, many, size):
        # Own leaves for each chunk: slices of one leaf would make a zero tensor of its size each.
        cut = type(tables)(*(t.detach()[b : b + size].requires_grad_() for t in tables))
        for c in range(0, queries, CHUNK):
            rows, columns = slice(b, b + size), slice(c, c + CHUNK)
            chosen, log_p = log_likelihood(network, cut, _part(record, rows, columns))
            loss = (chosen * weight[rows, columns]).sum()
            if entropy:
                loss = loss + entropy * ((log_p.exp() * log_p).sum(-1) * kept[rows, columns]).sum()
            loss.backward()
        gradients.append([t.grad if t.grad is not None else torch.zeros_like(t) for t in cut])
    torch.autograd.backward(list(tables), [torch.cat(parts) for parts in zip(*gradients, strict=True)])


def _part(record: Record, rows: slice, columns: slice) -> Record:
    x = record.inputs
    inputs = Inputs(
        [place[rows, columns] for place in x.places],
        None if x.numbers is None else x.numbers[rows, columns],
        None if x.changing is None else x.changing[rows, columns],
        x.mask[rows, columns],
    )
    return Record(inputs, record.action[rows, columns])


# -- the algorithm ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    steps: int
    """training steps"""
    baseline: str = "shared"
    """shared (several rows an instance) or rollout (a greedy copy of the network)"""
    batch: int = 32
    """instances a step"""
    rows_each: int = 16
    """rows an instance; 1 with the rollout baseline"""
    starts: bool = True
    """the rows of an instance get different first actions"""
    lr: float = 5e-4
    """the highest learning rate"""
    layers: int = 3
    width: int = 128
    heads: int = 8
    entropy: float = 0.0
    """weight of the entropy in the loss"""
    seed: int = 0


def default_options(
    world: Any,
    steps: int,
    *,
    baseline: str = "shared",
    batch: int | None = None,
    rows_each: int | None = None,
    starts: bool = True,
    lr: float | None = None,
    layers: int = 3,
    width: int = 128,
    heads: int = 8,
    entropy: float = 0.0,
    seed: int = 0,
) -> Options:
    """The options that worked for this baseline and number of nodes, where none are given."""
    if baseline not in BASELINES:
        raise ConfigError(f"baseline={baseline!r}: must be one of {', '.join(BASELINES)}")
    rollout = baseline == "rollout"
    rows = min(max(world.sizes[world.action.n] + 1, FEWEST_ROWS), MOST_ROWS)
    options = Options(
        steps=steps,
        baseline=baseline,
        batch=batch or (512 if rollout else 32),
        rows_each=check_count("rows_each", rows if rows_each is None else rows_each, 1),
        starts=starts,
        lr=lr or (1e-4 if rollout else 5e-4),
        layers=check_count("layers", layers, 1, 16),
        width=check_count("width", width, 8, 1024),
        heads=check_count("heads", heads, 1, 64),
        entropy=entropy,
        seed=seed,
    )
    if options.width % options.heads:
        raise ConfigError(f"width={options.width} is not divisible by heads={options.heads}")
    return options


class Outcome(NamedTuple):
    """What a training step shows."""

    returns: Tensor  # of the rows that ended, (B, S) or (E,)
    truncated: int  # of these rows
    gradient: float | None  # norm before clipping, if the algorithm reports one


class Reinforce:
    """The state of a run, and its steps."""

    def __init__(
        self, world: Any, features: Features, options: Options, device: str = "cpu", network: NetworkClass = Network
    ) -> None:
        self.world, self.features, self.options, self.device = world, features, options, device
        rollout = options.baseline == "rollout"
        self.sizes = Sizes(
            **features.widths(world),
            width=options.width,
            heads=options.heads,
            layers=options.layers,
            norm="batch" if rollout else "instance",
        )
        self.network = network(self.sizes, torch.Generator().manual_seed(options.seed)).to(device)
        self.player = Player(
            world,
            features,
            options.batch,
            1 if rollout else options.rows_each,
            seed=options.seed + SEED_OF_TRAINING,
            starts=options.starts and not rollout,
            device=device,
        )
        self.optimiser = torch.optim.AdamW(self.network.parameters(), options.lr, weight_decay=0.0, fused=True)
        self.step = 0
        self.baseline = copy.deepcopy(self.network).eval() if rollout else None

    def train_step(self) -> Outcome:
        """Draws, plays, scores, updates."""
        options, player, network = self.options, self.player, self.network
        network.train()
        self.set_rate()
        player.draw(self.step)
        nodes = player.nodes()
        if self.baseline is not None:
            with torch.no_grad():
                expected, _ = player.play(self.baseline, self.baseline.encode(nodes), greedy=True)
            player.begin()
        tables = network.encode(nodes)
        returns, records = player.play(network, tables)
        if self.baseline is not None:
            advantage = returns - expected
        else:
            advantage = returns - returns.mean(1, keepdim=True)
            advantage = advantage / (advantage.std() + 1e-8)  # the unit of the reward vanishes
        self.optimiser.zero_grad(set_to_none=True)
        backward(network, tables, stack(records), advantage / returns.numel(), options.entropy / returns.numel())
        norm = float(torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0))
        if not math.isfinite(norm):
            raise TrainingError(f"step {self.step}, seed {options.seed}: the gradient is not finite")
        self.optimiser.step()
        self.step += 1
        world = player.world
        return Outcome(returns, int(world.truncated.sum()), norm)

    def set_rate(self) -> None:
        """Rises in a straight line, then falls by a cosine."""
        done = self.step / self.options.steps
        fall = LOWEST_RATE + (1 - LOWEST_RATE) * (1 + math.cos(math.pi * done)) / 2
        for group in self.optimiser.param_groups:
            group["lr"] = self.options.lr * min(1.0, max(done, 1 / self.options.steps) / WARM_UP) * fall

    def renew_baseline(self, number: int) -> bool:
        """Replaces the greedy baseline if the network is better on fresh instances, by a paired t-test at 5 %."""
        if self.baseline is None:
            return False
        batch, differences = max(self.options.batch, min(ROUND, JUDGED)), []
        self.network.eval()
        judge = Player(
            self.world,
            self.features,
            batch,
            1,
            seed=self.options.seed + 2 * SEED_OF_TRAINING,
            starts=False,
            device=self.device,
        )
        rounds = math.ceil(ROUND / batch)
        for k in range(rounds):
            judge.draw(number * rounds + k)
            nodes = judge.nodes()
            with torch.no_grad():
                new, _ = judge.play(self.network, self.network.encode(nodes), greedy=True)
                judge.begin()
                old, _ = judge.play(self.baseline, self.baseline.encode(nodes), greedy=True)
            differences.append((new - old).double())
        d = torch.cat(differences).view(-1)
        better = bool(d.mean() > T95 * d.std() / math.sqrt(len(d)))
        if better:
            self.baseline.load_state_dict(self.network.state_dict())
        return better

    # -- in and out of a checkpoint -------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Weights, moments of the optimiser, and the baseline: with the step's number all that a run is."""
        found = {f"network.{name}": t for name, t in self.network.state_dict().items()}
        found |= moments_of(self.network, self.optimiser)
        if self.baseline is not None:
            found |= {f"baseline.{name}": t for name, t in self.baseline.state_dict().items()}
        return found

    def load_tensors(self, found: Mapping[str, Tensor], step: int) -> None:
        """Continues from the `tensors` of this step."""
        self.network.load_state_dict(part(found, "network."))
        if self.baseline is not None:
            self.baseline.load_state_dict(part(found, "baseline."))
        load_moments(self.network, self.optimiser, found, step)
        self.step = step
