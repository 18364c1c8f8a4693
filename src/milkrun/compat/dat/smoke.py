"""Smoke tests: short runs of the benchmark through gym, Stable-Baselines3 and tianshou, as in the original.

Each returns `steps`, `episodes` (those that ended) and `mean_reward` of a step. Configuration and seed are those of
`make_env`.
"""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from milkrun.api import BENCHMARK_ID
from milkrun.compat.dat.constructors import make_env
from milkrun.core.arguments import check_count
from milkrun.core.errors import missing_extra

SMALLEST_CNN = 36
"""The smallest side in pixels that the convolutions of Stable-Baselines3 accept."""


class Tally:
    """Counts steps, ends and rewards."""

    def __init__(self) -> None:
        self.steps = self.episodes = 0
        self.paid = 0.0

    def add(self, rewards: Any, dones: Any) -> None:
        self.steps += np.size(rewards)
        self.episodes += int(np.count_nonzero(dones))
        self.paid += float(np.sum(rewards))

    def result(self) -> dict[str, Any]:
        mean = self.paid / self.steps if self.steps else 0.0
        return {"steps": self.steps, "episodes": self.episodes, "mean_reward": mean}


def gym_test(steps: int = 10000, **options: Any) -> dict[str, Any]:
    """Plays random actions in one classic environment: that of the package gym for the registered id, or, if gym is
    absent or cannot make it, UAV_VAT itself."""
    count = check_count("steps", steps, 1)
    env = (None if options else _of_gym()) or make_env(1, 0, **options)()
    draw, tally = np.random.default_rng(0), Tally()
    env.reset()
    for _ in range(count):
        action = draw.uniform(-1, 1, 4) if env.action_space.shape else draw.integers(env.action_space.n)
        _, reward, done, _ = env.step(action)
        tally.add(reward, done)
        if done:
            env.reset()
    env.close()
    return tally.result()


def stableparallel_test(n_envs: int = 16, gym: bool = True, steps: int = 2048, **options: Any) -> dict[str, Any]:
    """Trains Stable-Baselines3's PPO for this many steps, or a few more, on environments in processes. Reset turns are
    not counted."""
    count, total = check_count("n_envs", n_envs, 1), check_count("steps", steps, 1)
    try:
        from stable_baselines3 import PPO
        from stable_baselines3.common.callbacks import BaseCallback
    except ImportError as e:
        raise missing_extra("stable-baselines3", "sb3") from e
    from milkrun.api.sb3 import Async_SubprocVecEnv

    tally = Tally()

    class Counts(BaseCallback):
        def _on_step(self) -> bool:
            played = np.array(["reset_turn" not in info for info in self.locals["infos"]])
            tally.add(self.locals["rewards"][played], self.locals["dones"][played])
            return True

    env = Async_SubprocVecEnv([make_env(count, i, gym, **options) for i in range(count)])
    try:
        turns = max(2, -(-total // count))
        turns += _divisor(turns * count) == 1  # PPO takes no batches of one
        policy, how = policy_for(env.observation_space)
        learner = PPO(
            policy, env, n_steps=turns, batch_size=_divisor(turns * count), n_epochs=1, device="cpu", policy_kwargs=how
        )
        learner.learn(turns * count, callback=Counts())
    finally:
        env.close()
    return tally.result()


def test_tianshou_env(args: Any = None, **options: Any) -> dict[str, Any]:
    """Collects random actions with tianshou from environments in processes. `args`, if any, may have
    `n_envs` (4) and `steps` (1000)."""
    try:
        from tianshou.algorithm.algorithm_base import RandomActionPolicy
        from tianshou.data import VectorReplayBuffer
    except ImportError as e:
        raise missing_extra("tianshou", "tianshou") from e
    from milkrun.api.tianshou import SubprocVecEnv_TS, TS_Collector

    count = check_count("n_envs", getattr(args, "n_envs", 4), 1)
    steps = check_count("steps", getattr(args, "steps", 1000), 1)
    env = SubprocVecEnv_TS([make_env(count, i, gym=False, **options) for i in range(count)])
    try:
        buffer = VectorReplayBuffer(count * (-(-steps // count) + 1), count, ignore_obs_next=True)
        collector = TS_Collector(RandomActionPolicy(env.action_space[0]), env, buffer)
        stats = collector.collect(n_step=steps, random=True, reset_before_collect=True)
        tally = Tally()
        tally.add(np.asarray(buffer.rew), ())
        tally.steps = int(stats.n_collected_steps)
        tally.episodes = int(stats.n_collected_episodes)
    finally:
        env.close()
    return tally.result()


test_tianshou_env.__test__ = False  # type: ignore[attr-defined]  # else pytest collects it


def policy_for(space: Any) -> tuple[str, dict[str, Any]]:
    """The policy of Stable-Baselines3 for such states, and its options: states are normalised already."""
    if len(space.shape) == 3 and space.shape[-1] >= SMALLEST_CNN:
        return "CnnPolicy", {} if space.dtype == np.uint8 else {"normalize_images": False}
    return "MlpPolicy", {}


def _of_gym() -> Any:
    """Makes the environment with gym, if that returns one of the classic kind; else prints why and returns None."""
    try:
        make = import_module("gym").make
        # gym's checker uses numpy.bool8, which numpy 2 has removed; gym before 0.24 has no checker.
        checked = "disable_env_checker" in signature(make).parameters
        env = make(BENCHMARK_ID, **({"disable_env_checker": True} if checked else {}))
        state = env.reset()
        if isinstance(state, tuple):
            raise TypeError("its reset returns more than the state")
    except Exception as e:
        print(f"gym_test: the package gym does not make {BENCHMARK_ID} ({e}): UAV_VAT is made without it", flush=True)
        return None
    return env


def _divisor(n: int, most: int = 64) -> int:
    """The largest divisor of n up to `most`."""
    return next(k for k in range(min(n, most), 0, -1) if n % k == 0)
