"""Compares the tracking world with its scalar reference: rows and draws in the reference's format, and differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from milkrun.core import rng
from milkrun.core.fields import Role
from milkrun.tracking import TrackingConfig, streams
from milkrun.tracking.world import Tracking
from tests.reference import tracking as model

Row = dict[str, Any]

SMALL: dict[str, Any] = {"size": 16, "ground_cell": 2.0, "reward_params": True}
"""Small rows: picture and ground have no influence on a step."""
FINE = 1e-9
COARSE = {"acc": 1e-6, "rel": 1e-6, "reward_params": 1e-6, "critic": 1e-6}
"""Tolerances of second difference quotients, relative to 1 + their size: positions are rounded at 1e-14, and dividing
by dt squared makes 4e-9 to 1e-7 of that. All other entries are compared to 1e-9."""
QUOTIENTS = {"acc": slice(0, 3), "rel": slice(6, 9), "reward_params": slice(55, 58), "critic": slice(6, 9)}
NOT_COMPARED = ("roll", "i", "objective")
"""State that is not part of the rules of a step: fields of the core, and the roll of pictures outside of play."""
VIEWS = ("reward_exact", "r_c", "r_d", "gauge", "visible", "CR", "TSR", "reason", "terminated", "truncated")


def options_of(config: TrackingConfig) -> SimpleNamespace:
    """The options under the reference's names."""
    fields = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    limits = {name: fields[f"done_{name}"] for name in ("height", "drift", "speed", "yaw_rate")}
    if not isinstance(fields["max_steps"], int):
        fields["max_steps"] = None
    return SimpleNamespace(**fields, done_range=limits)


class RowDraws:
    """The random numbers of a row, from its own streams."""

    def __init__(self, key: tuple[int, int, int], vehicles: int, halt_rate: float) -> None:
        self.vehicles, self.rate = vehicles, halt_rate
        names = ("TURNS", "HALTS", "HALT_TIMES", "WIND")
        self.turns, self.halts, self.times, self.wind = (rng.stream(*key, getattr(streams, name)) for name in names)

    def turn(self, v: int, n: int) -> float:
        return float(rng.uniform(self.turns, n * self.vehicles + v))

    def halt_gap(self, k: int) -> float:
        return float(rng.exponential(self.halts, k, 1 / self.rate))

    def halt_length(self, k: int) -> float:
        return float(rng.uniform(self.times, k))

    def gust(self, sim_step: int, axis: int) -> float:
        return float(rng.normal(self.wind, 2 * sim_step + axis))


def wide(array: Any) -> Any:
    """A copy; integers as int64, which sums do not overflow."""
    array = np.array(array)
    return array.astype(np.int64) if array.dtype.kind in "iu" else array


class Comparison:
    """A world, and the reference's results for its rows."""

    def __init__(self, num_envs: int, preset: str | None = None, *, seed: int = 0, **options: Any) -> None:
        self.config = TrackingConfig.build(preset=preset, **{**SMALL, **options})
        self.options = options_of(self.config)
        self.world: Any = Tracking.variant(self.config)(num_envs, self.config, seed=seed, autoreset="disabled")
        self.world.reset()
        fields = self.world.fields.values()
        self.instance_names = [f.name for f in fields if f.role is Role.INSTANCE and f.name != "ground"]
        self.state_names = [f.name for f in fields if f.role is Role.STATE and f.name not in NOT_COMPARED]
        self.towns: dict[int, Row] = {}
        self.compared, self.worst = 0, 0.0

    def town(self, b: int) -> Row:
        q = int(self.world.instance_row[b])
        if q not in self.towns:
            self.towns[q] = {name: wide(getattr(self.world, name)[q]) for name in self.instance_names}
        return self.towns[q]

    def state(self, b: int) -> Row:
        """State of a row in the reference's format: `lost`, and -1 for the next edge where a road ends."""
        state = {name: wide(getattr(self.world, name)[b]) for name in self.state_names}
        state["lost"] = state.pop("lost_steps")
        state["veh_to"] = np.where(self.town(b)["edge_ways"][state["veh_edge"]] == 0, -1, state["veh_to"])
        return state

    def draws(self, b: int) -> RowDraws:
        key = tuple(int(x) for x in self.world.stream[b])
        return RowDraws(key, self.world.sizes["V"], self.config.halt_rate)  # type: ignore[arg-type]

    def actual(self, b: int) -> Row:
        """All values of a row that a step of the reference returns."""
        views = {name: wide(getattr(self.world, name)[b]) for name in VIEWS}
        for name in ("reward_params", "critic"):
            if getattr(self.world, name).shape[1]:
                views[name] = getattr(self.world, name)[b].copy()
        return self.state(b) | views

    def expected(self, b: int, state: Row, action: Any) -> Row:
        found = model.step(self.town(b), state, self.options, self.draws(b), action)
        return found | {"critic": found["rel"]}

    def playing(self) -> np.ndarray:
        return np.flatnonzero(~(self.world.terminated | self.world.truncated))

    def step(self, actions: np.ndarray, compares: bool = True) -> Iterator[str]:
        """Steps all live rows; yields a message for each number that differs from the reference.

        Rows that end in this step are always compared.
        """
        rows = self.playing()
        before = {b: self.state(b) for b in rows}
        self.world.step(actions[rows], rows=rows)
        lasts = self.playing()
        for b in rows:
            if compares or b not in lasts:
                self.compared += 1
                yield from self.differences(b, self.expected(b, before[b], actions[b]))

    def start_differences(self, b: int) -> Iterator[str]:
        """Differences of the views after a reset."""
        wanted = model.reset_views(self.town(b), self.state(b), self.options)
        yield from self.differences(b, self.actual(b) | wanted)

    def differences(self, b: int, want: Row) -> Iterator[str]:
        for name, have in self.actual(b).items():
            wanted = np.asarray(want[name])
            if have.dtype.kind == "f":
                gap = np.abs(have - wanted)
                if name in QUOTIENTS:
                    part = QUOTIENTS[name]
                    coarse = gap[part] / (1 + np.abs(wanted[part]))
                    gap[part] = np.where(coarse <= COARSE[name], 0.0, coarse)
                off = float(gap.max(initial=0.0))
                self.worst = max(self.worst, off)
                same = off <= FINE
            else:
                same = np.array_equal(have, wanted)
            if not same:
                where = np.argwhere(np.asarray(np.abs(have.astype(float) - wanted) > FINE)).tolist()[:4]
                at = f"row {b} step {int(self.world.agent_step[b])} {name}{where}"
                yield f"{at}: {have.tolist()} not {wanted.tolist()}"
