"""Baselines for picking from clutter: `highest`, `exposed`, `lowest`, and `oracle`, which simulates every pick.

Each is a policy, `actions = policy(world)`, with one object for each row. Rules prefer objects with fewer failures, so
that they do not retry a jammed object forever; ties go to the lower number.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from milkrun.clutter.options import WEIGHTS
from milkrun.clutter.stages import IDLE
from milkrun.core.kernels import kernel
from milkrun.solvers.policies import require_fields

AT_ONCE = 256
"""Picks that the oracle simulates at once; a row of the engine takes a third of a megabyte."""


def highest(world: Any) -> np.ndarray:
    """The allowed object with the highest top."""
    return _choose(world, "highest", choose_highest)


def exposed(world: Any) -> np.ndarray:
    """The allowed object with the largest visible share of its upper surface; then the highest."""
    return _choose(world, "exposed", choose_exposed)


def lowest(world: Any) -> np.ndarray:
    """The allowed object with the lowest top: a baseline for the wrong order."""
    return _choose(world, "lowest", choose_lowest)


def _choose(world: Any, name: str, rule: Any) -> np.ndarray:
    _refuse_others(name, world)
    return world.map_rows(rule, np.int64)


def _refuse_others(name: str, world: Any) -> None:
    require_fields(name, world, "picking from clutter", "action_mask", "fails", "top", "exposed")


@kernel
def choose_highest(w, b, _, __):
    return choose_by_top(w, b, 1)


@kernel
def choose_lowest(w, b, _, __):
    return choose_by_top(w, b, -1)


@kernel
def choose_by_top(w, b, sign):
    best = -1
    for i in range(w.N):
        if w.action_mask[b, i] and (best < 0 or precedes(w, b, i, best, sign * w.top[b, i], sign * w.top[b, best])):
            best = i
    return max(best, 0)


@kernel
def choose_exposed(w, b, _, __):
    best = -1
    for i in range(w.N):
        if w.action_mask[b, i]:
            if best < 0 or precedes(w, b, i, best, w.exposed[b, i], w.exposed[b, best]):
                best = i
            elif w.fails[b, i] == w.fails[b, best] and w.exposed[b, i] == w.exposed[b, best]:
                if w.top[b, i] > w.top[b, best]:
                    best = i
    return max(best, 0)


@kernel(inline=True)
def precedes(w, b, i, best, worth, of_best):
    """True for fewer failures, or as many and a larger value."""
    return w.fails[b, i] < w.fails[b, best] or (w.fails[b, i] == w.fails[b, best] and worth > of_best)


class Oracle:
    """Simulates every allowed pick in a copy of the row and takes the one with the highest default reward.

    Ties go to the higher object. Copies continue rows bit by bit, so it is exact one pick ahead, but not for the whole
    order. With `canonical=False` copies continue rows only approximately.
    """

    def __init__(self) -> None:
        self._copies: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def __call__(self, world: Any) -> np.ndarray:
        _refuse_others("oracle", world)
        actions = highest(world)
        ended = (world.terminated | world.truncated) & (world.autoreset != "same_step")
        rows = np.flatnonzero(~ended & (world.env_stage == IDLE) & (world.action_mask.sum(1) > 1))
        if not len(rows):
            return actions
        row, target = np.nonzero(world.action_mask[rows])
        reward = self._rewards(world, world.state_dict(rows), row, target)
        order = np.lexsort((target, -world.top[rows[row], target], -reward, row))  # best first within each row
        # `row[order]` ascends, so the first entry of each row is its best pick; every row has one
        first = order[np.searchsorted(row[order], np.arange(len(rows)))]
        actions[rows] = target[first]
        return actions

    def _rewards(self, world: Any, saved: dict[str, np.ndarray], row: np.ndarray, target: np.ndarray) -> np.ndarray:
        """The reward of each pick of object `target` in the saved row `row`."""
        saved["terminated"][:] = saved["truncated"][:] = False  # same_step: the flags belong to the episode before
        copy = self._copy(world)
        found = np.empty(len(row))
        for k in range(0, len(row), copy.num_envs):
            tried = slice(k, k + copy.num_envs)
            used = np.arange(len(row[tried]))
            part = {name: values[row[tried]] for name, values in saved.items()}
            copy.load_state_dict({**part, "instance_row": used}, used)
            copy.step(target[tried], rows=used)
            found[tried] = copy.reward[used]
        return found

    def _copy(self, world: Any) -> Any:
        """A world for simulated picks, with a whole pick in each step."""
        if world not in self._copies:
            by_default = {"rewards": "default", **{f"reward_{name}": None for name in WEIGHTS}}
            config = world.config.replace(step_mode="pick", **by_default)
            size = min(world.num_envs * world.sizes["N"], AT_ONCE)
            copy = type(world)(size, config, seed=0, autoreset="disabled", threads=world.threads)
            copy.reset()
            self._copies[world] = copy
        return self._copies[world]


oracle = Oracle()

__all__ = ["Oracle", "exposed", "highest", "lowest", "oracle"]
