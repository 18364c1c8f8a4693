"""Milkrun on recorded episodes: `World.step`, Gymnasium, TorchRL in each way of stepping, and the RL4CO drop-in.

Each contestant has `start()` (untimed) and `play(first, last)` (returns the seconds of the steps alone), as the peers
have. `World.step` is first compared with the recorded lengths.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import milkrun

from .episodes import Episodes
from .timing import clock, step_time

IDS = {"tsp": "milkrun/TSP-v0", "cvrp": "milkrun/CVRP-v0"}


def instance_of(e: Episodes) -> dict[str, np.ndarray]:
    """The recorded instances under Milkrun's field names."""
    if e.name == "tsp":
        return {"locs": e.locs}
    return {"locs": e.locs, "demand_units": e.demand, "capacity": e.capacity}


class _Contestant:
    """Base class: the episode and its timing."""

    def __init__(self, episodes: Episodes) -> None:
        self.episodes = episodes

    def start(self) -> None:
        raise NotImplementedError

    def play(self, first: int, last: int) -> float:
        raise NotImplementedError

    def seconds(self, *, repeats: int = 7, min_seconds: float = 0.1) -> float:
        """Seconds per call for the whole batch."""
        return step_time(self.start, self.play, self.episodes.live_steps, repeats=repeats, min_seconds=min_seconds)


class Stepped(_Contestant):
    """`World.step` on the world's own arrays."""

    def __init__(self, episodes: Episodes, threads: int = 1) -> None:
        super().__init__(episodes)
        self.world = milkrun.make(
            IDS[episodes.name], episodes.batch, num_loc=episodes.num_loc, autoreset="next_step", threads=threads
        )
        self.start()
        for t in range(len(episodes.actions)):
            live = np.flatnonzero(t < episodes.length)
            self.world.step(episodes.actions[t][live], rows=live)
        np.testing.assert_allclose(-self.world.objective, episodes.tour_length, rtol=1e-5)

    def start(self) -> None:
        self.world.reset(instance=instance_of(self.episodes))

    def play(self, first: int, last: int) -> float:
        step, actions = self.world.step, self.episodes.actions
        before = clock()
        for t in range(first, last):
            step(actions[t])
        return clock() - before


class Gymnasium(_Contestant):
    """`MilkrunVectorEnv.step` with its default copies, or without."""

    def __init__(self, episodes: Episodes, copy: bool = True) -> None:
        super().__init__(episodes)
        from milkrun.api.gymnasium import MilkrunVectorEnv

        self.env = MilkrunVectorEnv(episodes.batch, IDS[episodes.name], num_loc=episodes.num_loc, copy=copy, threads=1)
        self.start()

    def start(self) -> None:
        self.env.reset(seed=0, options={"instance": instance_of(self.episodes)})

    def play(self, first: int, last: int) -> float:
        step, actions = self.env.step, self.episodes.actions
        before = clock()
        for t in range(first, last):
            step(actions[t])
        return clock() - before


class TorchRL(_Contestant):
    """`env.step(td)["next"]` with all checks; setting the action is not timed, as for RL4CO.

    `stepping` and `copy` are the options of the environment: functional, in place with copies, in place with views. A
    result is dropped once the next one exists, and freeing it is timed.
    """

    def __init__(self, episodes: Episodes, *, stepping: str = "functional", copy: bool = True) -> None:
        super().__init__(episodes)
        self.options: dict[str, Any] = {} if stepping == "functional" else {"stepping": stepping, "copy": copy}
        import torch
        from tensordict import TensorDict

        torch.set_num_threads(1)
        milkrun.set_num_threads(1)
        self.env = self.make_env()
        arrays = {k: torch.from_numpy(v) for k, v in self.layout().items()}
        self.instance = TensorDict(arrays, batch_size=[episodes.batch])
        self.actions = [torch.from_numpy(a) for a in episodes.actions]
        self.start()

    def make_env(self) -> Any:
        e = self.episodes
        return milkrun.make(IDS[e.name], e.batch, api="torchrl", num_loc=e.num_loc, **self.options)

    def layout(self) -> dict[str, np.ndarray]:
        return instance_of(self.episodes)

    def start(self) -> None:
        self.td = self.env.reset(self.instance.clone(recurse=False))

    def play(self, first: int, last: int) -> float:
        td, step, spent = self.td, self.env.step, 0.0
        self.td = None  # it would reference all later results, each by the "next" of the one before
        for action in self.actions[first:last]:
            td.set("action", action)
            before = clock()
            td = step(td)["next"]
            spent += clock() - before
        self.td = td
        return spent


class RL4CODropIn(TorchRL):
    """`milkrun.api.rl4co`: Milkrun's kernels with RL4CO's keys."""

    def make_env(self) -> Any:
        from milkrun.api.rl4co import CVRPEnv, TSPEnv

        env = {"tsp": TSPEnv, "cvrp": CVRPEnv}[self.episodes.name]
        return env(generator_params={"num_loc": self.episodes.num_loc}, check_solution=False)

    def layout(self) -> dict[str, np.ndarray]:
        e = self.episodes
        if e.name == "tsp":
            return {"locs": e.locs}
        capacity = e.capacity[:, None].astype(np.float32)
        return {
            "locs": e.locs[:, 1:].copy(),
            "depot": e.locs[:, 0].copy(),
            "capacity": capacity,
            "demand": e.demand[:, 1:].astype(np.float32) / capacity,
        }


def rollout_rate(name: str, num_loc: int, rows: int, *, repeats: int = 15) -> tuple[float, float]:
    """Row-steps per second of whole random rollouts, and their mean return.

    A rollout is a reset that draws new instances and one native call that samples and steps, as Jumanji's is a reset
    and one compiled loop. Steps of finished rows do not count.
    """
    from milkrun.core.sampling import random_step

    world = milkrun.make(IDS[name], rows, num_loc=num_loc, autoreset="disabled", seed=1, threads=1)
    world.reset()
    world.play_out(random_step)
    rates, returns = [], []
    for _ in range(repeats):
        before = clock()
        world.reset()
        steps = world.play_out(random_step)
        rates.append(steps / (clock() - before))
        returns.append(float(world.objective.mean()))
    return float(np.median(rates)), float(np.mean(returns))
