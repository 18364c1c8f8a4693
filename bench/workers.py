"""Environments in processes: Milkrun's workers, SB3's SubprocVecEnv and Gymnasium's AsyncVectorEnv.

All have the same environments, number of workers and start method, and play in turn. The environments return ready
pictures, so that only the transfer of actions and observations is timed.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import gymnasium
import numpy as np

from milkrun.api.workers import Aligned, Workers

from .timing import Table, clock, no_garbage_collection, set_clock

COUNT = 4
SHAPES = ((84, 84, 3), (4,))
START_METHOD = "forkserver"
TURNS = 20


class Pictures(gymnasium.Env[np.ndarray, int]):
    """Returns one of eight random pictures per step; an episode has 200 steps."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, shape, np.float32)
        self.action_space = gymnasium.spaces.Discrete(4)
        self._shown = np.random.default_rng(0).random((8, *shape), np.float32)
        self._t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self._t = 0
        return self._shown[0], {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._t += 1
        return self._shown[self._t % 8], 1.0, self._t % 200 == 0, False, {}


class _Maker:
    """A picklable function without arguments."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __call__(self) -> Pictures:
        return Pictures(self.shape)


def contestants(shape: tuple[int, ...]) -> dict[str, Any]:
    """Contestants by name, each reset once. All copy what they return."""
    from stable_baselines3.common.vec_env import SubprocVecEnv

    makers = [_Maker(shape)] * COUNT
    made: dict[str, Any] = {
        "milkrun": Aligned(Workers(makers, START_METHOD)),
        "milkrun, pipes": Aligned(Workers(makers, START_METHOD, shared_memory=False)),
        "SB3": SubprocVecEnv(makers, start_method=START_METHOD),
        "Gymnasium": gymnasium.vector.AsyncVectorEnv(makers, context=START_METHOD),
    }
    for env in made.values():
        env.reset()
    return made


def workers_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """Microseconds per turn of four workers, and the ratio to SB3's throughput."""
    table = Table(
        f"A turn of {COUNT} environments in processes, microseconds ({START_METHOD}, float32 observations)",
        ["observation", "milkrun", "milkrun, pipes", "SB3", "Gymnasium", "/ SB3", "/ Gymnasium"],
        notes={
            "turn": "step all, wait for all, observations copied: Aligned, SubprocVecEnv, AsyncVectorEnv",
            "ratios": f"medians over rounds of {TURNS} turns each",
        },
    )
    rounds = 60 if options.quick else 300
    promised: dict[str, float] = {}
    set_clock("wall")  # the work is done in other processes
    for shape in SHAPES:
        name = "x".join(map(str, shape))
        seconds = _play(contestants(shape), rounds)
        us = {rival: 1e6 * statistics.median(taken) / TURNS for rival, taken in seconds.items()}
        ratios = {f"/ {peer}": _ratio(seconds[peer], seconds["milkrun"]) for peer in ("SB3", "Gymnasium")}
        table.add(observation=name, **us, **ratios)
        if shape == SHAPES[0]:
            promised[f"{COUNT} workers, {name} float32 / SB3's SubprocVecEnv (promised 1.5)"] = ratios["/ SB3"]
        print(f"workers {name}: " + ", ".join(f"{k} {v:.3g} us" for k, v in us.items()), flush=True)
    set_clock(options.clock)
    return table, promised


def _play(rivals: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contestant in every round; rounds are short, so that a busy moment affects all of them."""
    actions = np.zeros(COUNT, np.int64)
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    try:
        with no_garbage_collection():
            for _ in range(rounds + 1):
                for name, env in rivals.items():
                    before = clock()
                    for _turn in range(TURNS):
                        env.step(actions)
                    seconds[name].append(clock() - before)
    finally:
        for env in rivals.values():
            env.close()
    return {name: taken[1:] for name, taken in seconds.items()}


def _ratio(theirs: list[float], ours: list[float]) -> float:
    """The median over the rounds of the ratio of times."""
    return statistics.median(a / b for a, b in zip(theirs, ours, strict=True))
