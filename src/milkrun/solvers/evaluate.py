"""Evaluates policies: `evaluate` plays a fixed set of episodes, `rollout` plays every row to its end.

Stopping after a number of ended episodes would favour short ones. Here episodes are numbered before the first step: row
r plays the numbers r, r + B, r + 2B, ..., so the selection does not depend on their length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from milkrun.core.arguments import check_count
from milkrun.core.errors import ConfigError, IllegalAction
from milkrun.core.launcher import NO_LIMIT
from milkrun.core.world import World
from milkrun.solvers.named import choose_player
from milkrun.solvers.policies import Policy

PATIENCE = 10_000  # successive steps with illegal actions only, after which a play without max_steps is stopped
MOST_STEPS = 100_000  # of an episode without max_steps; a CVRP of 10,000 customers has at most 20,000
Z95 = 1.959963984540054  # standard deviations that contain 95 % of a normal distribution


@dataclass(frozen=True, eq=False)
class Result:
    """The episodes of an evaluation. Number k is episode k // rows of row k % rows."""

    returns: np.ndarray  # (episodes,) float64, sums of rewards
    lengths: np.ndarray  # (episodes,) int64, steps
    truncated: np.ndarray  # (episodes,) bool, cut off by the step limit
    rows: int  # rows of the world
    kpis: dict[str, np.ndarray] = field(default_factory=dict)  # (episodes,), the world's own figures of merit
    illegal: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # (episodes,) steps not allowed

    @property
    def episodes(self) -> int:
        return len(self.returns)

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the returns (n - 1); nan for a single episode."""
        return float(self.returns.std(ddof=1)) if self.episodes > 1 else math.nan

    @property
    def standard_error(self) -> float:
        """The standard error of the mean."""
        return self.std / math.sqrt(self.episodes)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean, by the normal approximation."""
        return self.mean - Z95 * self.standard_error, self.mean + Z95 * self.standard_error

    @property
    def illegal_share(self) -> float:
        """The share of illegal steps. They have no effect, so low costs may mean that little was done."""
        return float(self.illegal.sum() / max(self.lengths.sum(), 1))

    @property
    def truncated_share(self) -> float:
        """The share of truncated episodes."""
        return float(self.truncated.mean())

    @property
    def reservations(self) -> str:
        """Caveats of the mean: the shares of illegal steps and truncated episodes; empty if both are 0."""
        shares = {"of the steps illegal": self.illegal_share, "of the episodes truncated": self.truncated_share}
        return ", ".join(f"{_percent(share)} {what}" for what, share in shares.items() if share)

    @property
    def best(self) -> int:
        """The number of the episode with the highest return, the first of several."""
        return int(self.returns.argmax())

    @property
    def median(self) -> int:
        """The number of the episode in the middle of the ranking (the lower of two)."""
        return int(np.argsort(self.returns, kind="stable")[(self.episodes - 1) // 2])

    def where(self, number: int) -> tuple[int, int]:
        """(row, episode) of an episode's number."""
        return number % self.rows, number // self.rows

    def summary(self) -> dict[str, Any]:
        """The figures as plain numbers for JSON; None if undefined for one episode."""
        low, high = self.interval
        figures = {
            "episodes": self.episodes,
            "mean": self.mean,
            "std": self.std,
            "standard_error": self.standard_error,
            "interval_low": low,
            "interval_high": high,
            "lowest": float(self.returns.min()),
            "highest": float(self.returns.max()),
            "mean_length": float(self.lengths.mean()),
            "steps": int(self.lengths.sum()),
            "truncated": int(self.truncated.sum()),
            "illegal": int(self.illegal.sum()),
        }
        plain: dict[str, Any] = {k: None if isinstance(x, float) and math.isnan(x) else x for k, x in figures.items()}
        if self.kpis:
            plain["kpis"] = {name: list(self.kpi(name)) for name in self.kpis}
        return plain

    def kpi(self, name: str) -> tuple[float, float]:
        """Mean and standard error of one of the world's own figures; of a single episode the error is 0."""
        values = self.kpis[name].astype(np.float64)
        spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        return float(values.mean()), spread / math.sqrt(len(values))

    def __str__(self) -> str:
        text = f"{self.mean:.4f} +- {Z95 * self.standard_error:.4f} (95 %) over {self.episodes} episodes"
        return f"{text}; {self.reservations}" if self.reservations else text


def _percent(share: float) -> str:
    """Formats a positive share so that it never reads as 0."""
    return "less than 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"


def evaluate(
    world: World, policy: Policy | str, episodes: int, seed: int = 0, *, progress: Callable[[int], object] | None = None
) -> Result:
    """Plays exactly `episodes` episodes from a reset with `seed`, divided evenly among the rows.

    If they do not divide evenly, the last rows play one fewer. All autoreset modes are supported, and given instances
    are kept. A row never waits for another, so its episodes are the same in a batch of any size. `progress` is called
    with the number of newly ended episodes. In a world without max_steps a policy with nothing but illegal steps raises
    IllegalAction after 10,000 steps, and an episode of more than 100,000 steps ConfigError. `policy` may be the name of
    a policy, or of a method of `solve` whose plans the world can play.
    """
    episodes = check_count("episodes", episodes, 1)
    policy = check_player(world, policy, seed)
    rows = world.num_envs
    restarts_itself = world.autoreset == "same_step"
    returns, lengths = np.empty(episodes), np.empty(episodes, np.int64)
    truncated, illegal = np.empty(episodes, bool), np.empty(episodes, np.int64)
    kpis: dict[str, np.ndarray] = {}
    kept = {"objective", "i", *world.figure_fields}
    number = np.arange(rows)  # number of the current episode of each row
    world.reset(number, seed=seed)
    live = number[number < episodes].copy()
    stepper = _Stepper(world, policy)
    while len(live):
        ended = stepper.step(live)
        if not len(ended):
            continue
        # under same_step the fields are already those of the next episode; `final` has the last ones of ended rows
        last = world.final if restarts_itself else {name: getattr(world, name)[ended] for name in kept}
        k = number[ended]
        returns[k], lengths[k], truncated[k] = last["objective"], last["i"], world.truncated[ended]
        illegal[k], stepper.num_illegal[ended] = stepper.num_illegal[ended], 0
        for name, values in world.figures(last).items():
            kpis.setdefault(name, np.empty(episodes, values.dtype))[k] = values
        number[ended] += rows
        live = live[number[live] < episodes]
        again = ended[number[ended] < episodes]
        if len(again) and not restarts_itself:
            world.reset(again)
        if progress is not None:
            progress(len(ended))
    return Result(returns, lengths, truncated, rows, kpis, illegal)


def rollout(world: World, policy: Policy | str, max_steps: int | None = None) -> int:
    """Continues a world until every row has ended, or for `max_steps` steps; returns the steps summed over rows.

    Ended rows are not stepped again, under any autoreset mode. Without `max_steps`, an endless play is stopped as in
    `evaluate`.
    """
    policy = check_player(world, policy)
    if max_steps is not None:
        max_steps = check_count("max_steps", max_steps, 0)
    live = np.arange(world.num_envs)
    if world.autoreset != "same_step":  # there the flags belong to the episode before
        live = live[~(world.terminated | world.truncated)]
    steps, made = 0, 0
    stepper = _Stepper(world, policy, endless=max_steps is None)
    while len(live) and (max_steps is None or made < max_steps):
        ended = stepper.step(live)
        steps += len(live)
        made += 1
        if len(ended):
            live = live[~(world.terminated | world.truncated)[live]]
    return steps


def check_player(world: Any, policy: Any, seed: int = 0) -> Policy:
    """Validates a policy, or finds it by its name; ConfigError if it cannot play this world."""
    if not hasattr(world, "num_envs") or not hasattr(world, "autoreset"):
        raise ConfigError(f"a world is expected, as from milkrun.make, not a {type(world).__name__}")
    if isinstance(policy, str):
        found: Policy = choose_player(world.id, policy)[1](seed)
        return found
    if not callable(policy):
        raise ConfigError(f"a policy is a function of a world that returns its actions, not a {type(policy).__name__}")
    return policy


class _Stepper:
    """Steps the live rows by a policy, counts illegal steps, and detects a play that would never end."""

    def __init__(self, world: World, policy: Policy, endless: bool = True) -> None:
        self.world = world
        self.policy = policy
        self.num_illegal = np.zeros(world.num_envs, np.int64)  # illegal steps in each row's episode
        self._endless = endless and int(world.max_steps) == NO_LIMIT
        self._stuck = 0  # successive steps in which no row moved

    def step(self, live: np.ndarray) -> np.ndarray:
        """Steps the live rows; returns those that ended."""
        world = self.world
        actions = self.policy(world)
        if len(live) == world.num_envs:
            world.step(actions)
        else:
            world.step(actions[live], rows=live)
        if np.count_nonzero(world.illegal):  # quicker than any()
            wrong = world.illegal[live]
            self.num_illegal[live] += wrong
            self._stuck = self._stuck + 1 if wrong.all() else 0
            if self._endless and self._stuck >= PATIENCE:
                self._give_up(int(live[0]), actions)
        else:
            self._stuck = 0
        if self._endless and world.i[live].max() > MOST_STEPS:
            row = live[world.i[live].argmax()]
            raise ConfigError(f"the episode of row {row} has not ended after {MOST_STEPS:,} steps: set max_steps")
        return live[(world.terminated | world.truncated)[live]]

    def _give_up(self, row: int, actions: Any) -> NoReturn:
        action = np.asarray(actions[row]).tolist()
        raise IllegalAction(
            f"the policy has made nothing but illegal steps for {PATIENCE:,} steps, and without max_steps they would "
            f"never end; row {row}: action {action}: {self.world.why_illegal(row, action)}"
        )
