"""RL4CO's environments, stepped as its users step them.

Timed is `env.step(td)["next"]` only: the next state with its mask. RL4CO's step puts new tensors into the given
TensorDict and never writes into old ones, so nothing is cloned. Excluded in RL4CO's favour: the policy (actions are
recorded), setting the action (`td.set`), resets, and the reward, which RL4CO computes once per episode in `get_reward`
and Milkrun in every step. It runs in inference mode.
"""

import numpy as np
import torch
from rl4co.envs import CVRPEnv, TSPEnv
from tensordict import TensorDict

from ..episodes import Episodes, Name, record_random_episodes
from ..timing import clock, median_time, step_time

ENVIRONMENTS = {"tsp": TSPEnv, "cvrp": CVRPEnv}


def make_env(name: Name, num_loc: int) -> TSPEnv | CVRPEnv:
    """RL4CO's environment with the settings of its benchmark, without the check of the finished solution."""
    return ENVIRONMENTS[name](generator_params={"num_loc": num_loc}, check_solution=False)


class StepRL4CO:
    """RL4CO on recorded episodes: `StepRL4CO("cvrp", 50, 1024).seconds()` is the cost of a call for 1024 rows."""

    def __init__(
        self, name: Name, num_loc: int, batch: int, *, episodes: Episodes | None = None, threads: int = 1
    ) -> None:
        torch.set_num_threads(threads)
        self.episodes = episodes or record_random_episodes(name, num_loc, batch, seed=0)
        self.env = make_env(name, num_loc)
        self.instance = self._in_their_layout(self.episodes)
        self.actions = [torch.from_numpy(a) for a in self.episodes.actions]
        self.start()
        self._check()

    @torch.inference_mode()
    def start(self) -> None:
        """Reset to the beginning of the recorded episode."""
        # TorchRL's reset writes the fresh state into the TensorDict it is given.
        self.td = self.env.reset(self.instance.clone(recurse=False))

    @torch.inference_mode()
    def play(self, first: int, last: int) -> float:
        """Play the recorded steps first..last-1; the seconds spent in `env.step`."""
        td, step, spent = self.td, self.env.step, 0.0
        for action in self.actions[first:last]:
            td.set("action", action)
            before = clock()
            td = step(td)["next"]
            spent += clock() - before
        self.td = td
        return spent

    def seconds(self, *, repeats: int = 7, min_seconds: float = 0.1) -> float:
        """Seconds per call of `env.step` for the whole batch."""
        return step_time(self.start, self.play, self.episodes.live_steps, repeats=repeats, min_seconds=min_seconds)

    @torch.inference_mode()
    def _check(self) -> None:
        """Check that RL4CO's mask allows the recorded actions, and that they have the same end and cost there."""
        for action, before_end in zip(self.actions, self._live(), strict=True):
            allowed = self.td["action_mask"].gather(1, action[:, None])[:, 0].numpy()
            assert allowed[before_end].all(), "a recorded action is not allowed in RL4CO"
            self.td.set("action", action)
            self.td = self.env.step(self.td)["next"]
        assert bool(self.td["done"].all()), "a recorded episode does not end in RL4CO"
        reward = self.env.get_reward(self.td, torch.stack(self.actions, 1)).numpy()
        np.testing.assert_allclose(-reward, self.episodes.tour_length, rtol=1e-5)

    def _live(self) -> list[np.ndarray]:
        return [t < self.episodes.length for t in range(len(self.actions))]

    @staticmethod
    def _in_their_layout(e: Episodes) -> TensorDict:
        if e.name == "tsp":
            return TensorDict({"locs": torch.from_numpy(e.locs)}, batch_size=[e.batch])
        capacity = torch.from_numpy(e.capacity[:, None].astype(np.float32))
        return TensorDict(
            {
                "locs": torch.from_numpy(e.locs[:, 1:].copy()),
                "depot": torch.from_numpy(e.locs[:, 0].copy()),
                "demand": torch.from_numpy(e.demand[:, 1:].astype(np.float32)) / capacity,
                "capacity": capacity,
            },
            batch_size=[e.batch],
        )


def generator_rate(name: Name, num_loc: int, batch: int, *, threads: int = 1) -> float:
    """Instances per second of RL4CO's generator, `batch` at a time."""
    torch.set_num_threads(threads)
    generator = make_env(name, num_loc).generator
    return batch / median_time(lambda: generator(batch_size=[batch]))
