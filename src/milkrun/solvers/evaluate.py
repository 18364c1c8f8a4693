"""How good is a policy: `evaluate` plays a fixed set of episodes, `rollout` plays every row to its end.

Playing until enough episodes have ended would count short ones too often. Here the episodes are numbered before the
first step: row r plays the numbers r, r + B, r + 2B, ... in turn, so which ones count does not depend on their length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from milkrun.core.arguments import check_count
from milkrun.core.errors import ConfigError
from milkrun.core.world import World
from milkrun.solvers.policies import Policy

Z95 = 1.959963984540054  # 95 % of a normal distribution lie within so many standard deviations


@dataclass(frozen=True, eq=False)
class Result:
    """The episodes of an evaluation. Number k is episode k // rows of row k % rows."""

    returns: np.ndarray  # (episodes,) float64, sums of rewards
    lengths: np.ndarray  # (episodes,) int64, steps
    truncated: np.ndarray  # (episodes,) bool, cut off by the step limit
    rows: int  # rows of the world
    kpis: dict[str, np.ndarray] = field(default_factory=dict)  # (episodes,), the world's own figures of merit

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
        """Of the mean."""
        return self.std / math.sqrt(self.episodes)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean, by the normal approximation."""
        return self.mean - Z95 * self.standard_error, self.mean + Z95 * self.standard_error

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
        """The figures as plain numbers, ready for JSON; None where one episode says nothing."""
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
        return f"{self.mean:.4f} +- {Z95 * self.standard_error:.4f} (95 %) over {self.episodes} episodes"


def evaluate(
    world: World, policy: Policy, episodes: int, seed: int = 0, *, progress: Callable[[int], object] | None = None
) -> Result:
    """Plays exactly `episodes` episodes from a reset with `seed`, as many in each row; where they do not divide evenly
    the last rows play one fewer (none at all where there are fewer episodes than rows).

    Works under every autoreset mode and keeps given instances. A row never waits for another, so its episodes are the
    same in a batch of any size. `progress` is called with the number of episodes that have just ended.
    """
    episodes = check_count("episodes", episodes, 1)
    check_player(world, policy)
    rows = world.num_envs
    restarts_itself = world.autoreset == "same_step"
    returns, lengths = np.empty(episodes), np.empty(episodes, np.int64)
    truncated = np.empty(episodes, bool)
    kpis: dict[str, np.ndarray] = {}
    kept = {"objective", "i", *world.figure_fields}
    number = np.arange(rows)  # of the episode that each row plays
    world.reset(number, seed=seed)
    live = number[number < episodes].copy()
    while len(live):
        ended = _turn(world, policy, live)
        if not len(ended):
            continue
        last = world.final if restarts_itself else {name: getattr(world, name)[ended] for name in kept}
        k = number[ended]
        returns[k], lengths[k], truncated[k] = last["objective"], last["i"], world.truncated[ended]
        for name, values in world.figures(last).items():
            kpis.setdefault(name, np.empty(episodes, values.dtype))[k] = values
        number[ended] += rows
        live = live[number[live] < episodes]
        again = ended[number[ended] < episodes]
        if len(again) and not restarts_itself:
            world.reset(again)
        if progress is not None:
            progress(len(ended))
    return Result(returns, lengths, truncated, rows, kpis)


def rollout(world: World, policy: Policy, max_steps: int | None = None) -> int:
    """Plays on from where the world stands until every row has ended, or for `max_steps` turns; returns the steps done,
    summed over the rows. A row that has ended is not stepped again, under any autoreset mode."""
    check_player(world, policy)
    if max_steps is not None:
        max_steps = check_count("max_steps", max_steps, 0)
    live = np.arange(world.num_envs)
    if world.autoreset != "same_step":  # there the flags tell of the episode before
        live = live[~(world.terminated | world.truncated)]
    steps = turns = 0
    while len(live) and (max_steps is None or turns < max_steps):
        ended = _turn(world, policy, live)
        steps += len(live)
        turns += 1
        if len(ended):
            live = live[~(world.terminated | world.truncated)[live]]
    return steps


def check_player(world: Any, policy: Any) -> None:
    """Raises ConfigError unless this is a world and something that may play it."""
    if not hasattr(world, "num_envs") or not hasattr(world, "autoreset"):
        raise ConfigError(f"what is played is a world, as milkrun.make gives it, not a {type(world).__name__}")
    if not callable(policy):
        raise ConfigError(f"a policy is a function of a world that gives its actions, not a {type(policy).__name__}")


def _turn(world: World, policy: Policy, live: np.ndarray) -> np.ndarray:
    """One step of the live rows; those that ended with it."""
    actions = policy(world)
    if len(live) == world.num_envs:
        world.step(actions)
    else:
        world.step(actions[live], rows=live)
    return live[(world.terminated | world.truncated)[live]]
