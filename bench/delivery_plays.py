"""Delivery worlds on recorded random-masked episodes, in every form: world, lists, TorchRL.

Actions are recorded once and replayed from the same reset seed, so that sampling is not timed. Each form is first
compared with the rewards of the recording. A rate counts the steps of live rows: a turn in which a row is reset takes
time but is no step.

A form has `start()`, which is not timed, `play(first, last)`, which returns the seconds of these turns, `steps`, the
turns of its recording, and `row_steps`, the steps of live rows in them.
"""

from __future__ import annotations

from argparse import Namespace
from itertools import pairwise
from typing import Any

import numpy as np

import milkrun

from .timing import clock, no_garbage_collection

TRUCK = "milkrun/TruckDrone-v0"
STEPS = 201  # the longest episode and the turn that resets it
PIECES = 20


def rates(*forms: Any, repeats: int) -> list[float]:
    """Steps of live rows per second of each form.

    Forms play in turn, so that a busy moment affects all of them. A recording is cut into pieces, and each counts with
    its median over the repeats.
    """
    with no_garbage_collection():
        for form in forms:
            form.start()
            form.play(0, form.steps)
        seconds = np.empty((len(forms), repeats, PIECES))
        for r in range(repeats):
            for k, form in enumerate(forms):
                cuts = [form.steps * piece // PIECES for piece in range(PIECES + 1)]
                form.start()
                seconds[k, r] = [form.play(first, last) for first, last in pairwise(cuts)]
    return [form.row_steps / own.sum() for form, own in zip(forms, np.median(seconds, axis=1), strict=True)]


class Recorded:
    """`World.step`; finished rows are reset by the next step."""

    def __init__(self, world_id: str, rows: int, steps: int = STEPS, threads: int = 1, **options: Any) -> None:
        self.world = milkrun.make(world_id, rows, seed=0, autoreset="next_step", threads=threads, **options)
        self.start()
        self.steps = steps
        self.row_steps = 0
        taken = []
        illegal = 0
        for turn in range(steps):
            self.row_steps += int(np.count_nonzero(~self.world.done))
            taken.append(self.world.sample_actions(1, turn))
            self.world.step(taken[-1])
            illegal += int(self.world.illegal.any())
        self.actions = np.array(taken)
        ended = self.world.state_dict()
        self.start()
        self.play(0, steps)
        again = self.world.state_dict()
        assert not illegal, "a recorded action is not allowed"
        assert all(np.array_equal(again[name], ended[name], equal_nan=True) for name in ended), "the replay differs"

    def start(self) -> None:
        self.world.reset(seed=0)

    def play(self, first: int, last: int) -> float:
        step, actions = self.world.step, self.actions
        before = clock()
        for t in range(first, last):
            step(actions[t])
        return clock() - before


class Restarted:
    """`World.step` only: finished rows are reset between steps, untimed, so that every row is live in every step."""

    def __init__(self, rows: int, steps: int, **options: Any) -> None:
        self.world = milkrun.make(TRUCK, rows, seed=0, autoreset="disabled", threads=1, **options)
        self.start()
        self.steps = steps
        self.row_steps = rows * steps
        taken = []
        self.returned = 0.0
        for turn in range(steps):
            taken.append(self.world.sample_actions(1, turn))
            self._step(taken[-1])
            self.returned += float(self.world.reward.sum(dtype=np.float64))
            self._restart()
        self.actions = np.array(taken)

    def start(self) -> None:
        self.world.reset(seed=0)

    def play(self, first: int, last: int) -> float:
        spent = 0.0
        for t in range(first, last):
            spent += self._step(self.actions[t])
            self._restart()
        return spent

    def _step(self, actions: np.ndarray) -> float:
        before = clock()
        self.world.step(actions)
        return clock() - before

    def _restart(self) -> None:
        ended = np.flatnonzero(self.world.done)
        if len(ended):
            self.world.reset(rows=ended)


class TorchRL:
    """The same episodes by `env.step(td)`, two groups; setting the actions is not timed.

    `copy=False`: in place with views. `with_resets`: `env.step_and_maybe_reset(td)` instead, with timed resets.
    """

    def __init__(
        self, recorded: Restarted, stepping: str, with_resets: bool = False, copy: bool = True, **options: Any
    ) -> None:
        import torch

        torch.set_num_threads(1)
        self.steps = recorded.steps
        self.row_steps = recorded.row_steps
        self.with_resets = with_resets
        rows = recorded.world.num_envs
        ways = {"stepping": stepping, "copy": copy}
        self.env = milkrun.make(TRUCK, rows, api="torchrl", seed=0, threads=1, **ways, **options)
        both = torch.from_numpy(recorded.actions)
        self.actions = [(joint[:, :1].contiguous(), joint[:, 1:].contiguous()) for joint in both]
        self.start()
        self.returned = 0.0
        self.play(0, self.steps, count=True)
        np.testing.assert_allclose(self.returned, recorded.returned, rtol=1e-9)

    def start(self) -> None:
        self.env.set_seed(0)
        self.td = self.env.reset()

    def play(self, first: int, last: int, count: bool = False) -> float:
        td, env, spent = self.td, self.env, 0.0
        for truck, drones in self.actions[first:last]:
            td.set(("truck", "action"), truck)
            td.set(("drone", "action"), drones)
            before = clock()
            out, following = env.step_and_maybe_reset(td) if self.with_resets else (env.step(td), None)
            spent += clock() - before
            if count:
                self.returned += float(out["next", "truck", "reward"].double().sum())
            td = env.maybe_reset(out["next"]) if following is None else following
        self.td = td
        return spent


class _OneRow:
    """One row of the preset "published" with actions as lists; timed, with a reset after each episode."""

    def __init__(self, steps: int) -> None:
        world = milkrun.make(TRUCK, 1, preset="published", seed=0, autoreset="disabled", threads=1)
        world.reset(seed=0)
        self.instances = [self._instance(world)]
        self.turns: list[list[int]] = []
        self.steps = self.row_steps = steps
        returned = 0.0
        for turn in range(steps):
            actions = world.sample_actions(1, turn)
            self.turns.append(actions[0].tolist())
            world.step(actions)
            returned += float(world.reward_exact[0])
            if world.done[0]:
                world.reset()
                self.instances.append(self._instance(world))
        self.returned = 0.0
        self.start()
        self.play(0, steps)
        np.testing.assert_allclose(self.returned, returned, rtol=1e-9)

    @staticmethod
    def _instance(world: Any) -> dict[str, Any]:
        names = ("customer_pos", "demand", "tw_start", "tw_end", "route_nodes")
        return {name: getattr(world, name)[0].copy() for name in names}

    def start(self) -> None:
        raise NotImplementedError

    def play(self, first: int, last: int) -> float:
        raise NotImplementedError


class ScalarModel(_OneRow):
    """The plain Python model of the tests, with all observations of the world; instances are drawn beforehand."""

    def start(self) -> None:
        self.episode = -1
        self._begin()

    def _begin(self) -> None:
        from tests.reference.truckdrone import truck_drone

        self.episode += 1
        self.model = truck_drone("published", self.instances[self.episode])
        self._see()

    def _see(self) -> tuple[Any, ...]:
        model = self.model
        return model.truck_obs(), model.drone_obs(), model.state(), model.action_mask

    def play(self, first: int, last: int) -> float:
        before = clock()
        for actions in self.turns[first:last]:
            self.model.step(actions)
            self.returned += self.model.reward_exact
            self._see()
            if self.model.done:
                self._begin()
        return clock() - before


class ListEnv(_OneRow):
    """`VRPEnv`: lists of actions in, lists of observations, rewards, dones and infos out."""

    def __init__(self, steps: int) -> None:
        from milkrun.compat.vrp.VRP_env import VRPEnv

        self.env = VRPEnv(Namespace(seed=0))
        super().__init__(steps)

    def start(self) -> None:
        self.env.seed(0)
        self.env.reset()

    def play(self, first: int, last: int) -> float:
        env = self.env
        before = clock()
        for actions in self.turns[first:last]:
            _, rewards, dones, _ = env.step(actions)
            self.returned += rewards[0][0]
            if dones[0]:
                env.reset()
        return clock() - before
