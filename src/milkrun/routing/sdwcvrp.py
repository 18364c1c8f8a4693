"""Stochastic dynamic waste collection: the same bins day after day, filling up each night.

Observations: `locs`, `n_nodes`, `max_waste`, `capacity`, `fill_mean`, `fill_std`, `day`, `must_go`, `current_node`,
    `visited`, `expected_waste`, `revealed`, `load`, `collected`, `failures`, `overflows`, `lost`, `tour_length`,
    `trip_length`, `i`. Not seen: `real_waste`, `daily_fill`, `sensor_noise`.
Actions: the node to go to, Discrete(num_loc + 1); 0 is the depot; choosing it at the depot ends the day.
Mask: as in the SCWCVRP; mandatory bins are named anew each morning by the rule `must_go`.
Night: every bin grows by its fill of the day; what is over `max_waste` is lost, and full bins overflow.
Ends: terminated after `horizon` days.
Reward: as in the SCWCVRP within a day; the end of the day pays overflow_weight for each bin that the night fills up and
    lost_weight for what ran over.
References: Ramos, de Morais, Barbosa-Povoa 2018 (smart waste collection); Coelho, Cordeau, Laporte 2014 (inventory
    routing, days and nights).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from milkrun.core.config import option
from milkrun.core.errors import ConfigError
from milkrun.core.fields import bool_, constant, float32, float64, instance, int16, int32, state
from milkrun.core.kernels import kernel
from milkrun.core.rng import row_stream, uniform
from milkrun.core.scene import Chart, Heat, Scene
from milkrun.routing.generators.fills import FILL_ALIASES, FILL_LAWS, LEVEL, MUST_GO_LAWS, NONE, RANDOM, SERVICE_LEVEL
from milkrun.routing.generators.laws import MUST
from milkrun.routing.generators.sdwcvrp import generate
from milkrun.routing.scwcvrp import Recourse, RecourseConfig, retrace, serve
from milkrun.routing.trips import (
    any_customer,
    count_must_go,
    drive,
    ends_tour,
    free_room,
    mark_allowed,
    set_out,
    unload,
)
from milkrun.routing.trips import fault as truck_fault
from milkrun.routing.wcvrp import FULL

DAYS_OVER = 3
"""What may be wrong with a state from outside."""


@dataclass(frozen=True, kw_only=True)
class SDWCVRPConfig(RecourseConfig):
    """Options of the SDWCVRP."""

    presets: ClassVar[Any] = {
        **RecourseConfig.presets,
        "week": {"horizon": 7},
        "month": {"horizon": 30},
        "single_day": {"horizon": 1},
    }

    max_steps: int | str | None = option(
        "auto",
        "steps until a row is truncated; auto = 4 (num_loc + 1) horizon; None = no limit",
        low=1,
        words=("auto",),
    )
    horizon: int = option(7, "days of an episode", low=1, high=1000)
    fill_distribution: str = option(
        "gamma3", "how bins fill in a day, or a level law times daily_scale", choices=(*FILL_LAWS, *FILL_ALIASES)
    )
    daily_scale: float = option(0.2, "what a day adds under a level law (uniform, beta, constant, dist)", low=0, high=1)
    sensor_sigma: float = option(0.0, "spread of the morning's measurements; 0 = they are right", low=0, high=10)
    lost_weight: float = option(0.0, "price of a unit of waste that ran over", low=0, high=1e30)
    must_go: str = option(
        "none",
        "bins named each morning: level: over must_go_level; lookahead: the mean of a day fills them; "
        "service_level: a day of mean + must_go_k deviations does",
        choices=MUST_GO_LAWS,
    )
    must_go_k: float = option(1.0, "deviations of the rule service_level", low=0, high=100)

    def largest_rewards(self) -> dict[str, float]:
        lost = f"lost_weight = {self.lost_weight:g} times max_waste"
        return {**super().largest_rewards(), lost: self.lost_weight * self.max_waste}


class SDWCVRP(Recourse):
    """Stochastic dynamic waste collection: plan each day for the days that follow."""

    id = "milkrun/SDWCVRP-v0"
    Config = SDWCVRPConfig
    config: SDWCVRPConfig
    task = "milkrun.routing.tasks:SDWCVRP"
    generator = "milkrun.routing.generators.sdwcvrp:SDWCVRPGenerator"
    run_details = "milkrun.cli.details:DAYS"
    levels = "initial_waste"
    priced = {**Recourse.priced, "daily_fill": "lost_weight"}
    customer_fields = ("initial_waste", "daily_fill", "sensor_noise", "fill_mean", "fill_std")

    usual = {**Recourse.usual, "fill_law": FILL_LAWS.index("gamma3"), "must_go_law": MUST_GO_LAWS.index("none")}
    daily_scale = constant(float64)
    sensor_sigma = constant(float64)
    lost_weight = constant(float64)
    must_go_k = constant(float64)

    initial_waste = instance(float32, "N", low=0, observed=False, doc="in each bin on the first morning")
    daily_fill = instance(float32, "T", "N", low=0, hidden=True, doc="what each day adds to each bin")
    sensor_noise = instance(float32, "Z", "N", low=0, hidden=True, doc="factor of each morning's measurement")
    fill_mean = instance(float32, "N", low=0, doc="mean of what a day adds")
    fill_std = instance(float32, "N", low=0, doc="standard deviation of what a day adds")
    real_waste = state(float32, "N", low=0, hidden=True, doc="what each bin really holds")
    must_go = state(bool_, "N", doc="mandatory today")
    day = state(int32, low=0, high="T", column=True, doc="days done")
    overflows = state(int32, low=0, doc="bins that nights have filled up")
    lost = state(float32, low=0, doc="waste that ran over")
    tour = state(int16, "T", "A", tally=True, doc="the legal actions of each day; only with record")
    tour_len = state(int32, "T", low=0, tally=True, doc="how many legal actions each day took")

    faults = {
        **Recourse.faults,
        DAYS_OVER: ("day", "the last day is over, but the row is neither terminated nor truncated"),
    }

    @classmethod
    def size_of(cls, config: Any) -> dict[str, int]:
        days = config.horizon
        return {**super().size_of(config), "T": days, "Z": days if config.sensor_sigma > 0 else 0}

    @classmethod
    def auto_max_steps(cls, config: Any) -> int:
        return super().auto_max_steps(config) * config.horizon

    @classmethod
    def task_options(cls, config: Any) -> dict[str, Any]:
        """Which bins must go is said anew each morning, so the task does not judge it."""
        options = super().task_options(config)
        del options["must_go_reserve"]
        return options

    @classmethod
    def task_weights(cls, config: Any) -> dict[str, float]:
        return {**super().task_weights(config), "lost": config.lost_weight}

    def solution(self) -> np.ndarray:
        """(B, T, L) the legal actions of each row and day, padded with 0: the `pi` of the tasks."""
        if not self.config.record:
            raise ConfigError("solution() needs record=True")
        length = min(int(self.tour_len.max(initial=0)), self.tour.shape[2])
        taken = self.tour[:, :, :length].astype(np.int32)
        taken[np.arange(length) >= self.tour_len[:, :, None]] = 0
        return taken

    def taken(self, row: int) -> list[int]:
        days = zip(self.tour[row], self.tour_len[row].tolist(), strict=True)
        return [action for tour, count in days for action in tour[:count].tolist()]

    def path(self, row: int) -> list[int]:
        """The nodes of today, or of the last day once it is over."""
        today = min(int(self.day[row]), self.config.horizon - 1)
        return [0, *self.tour[row, today, : self.tour_len[row, today]].tolist()]

    def must_go_of(self, row: int) -> np.ndarray:
        return self.must_go[row]

    def waste_of(self, row: int) -> np.ndarray:
        return self.real_waste[row]

    def levels_at_start(self, row: int) -> np.ndarray:
        """Of today: the days before are driven again, and their nights pass."""
        q = self.instance_row[row]
        levels, most, room = self.initial_waste[q].copy(), float(self.max_waste[q]), float(self.capacity[q])
        for t in range(min(int(self.day[row]), self.config.horizon - 1)):
            retrace(self.tour[row, t, : self.tour_len[row, t]].tolist(), levels, room, self.recourse)
            levels = np.minimum(levels + self.daily_fill[q, t].astype(np.float64), most).astype(np.float32)
        return levels

    chart_fields = ("day", "real_waste")

    def scene(self, row: int) -> Scene:
        s = super().scene(row)
        # The picture has the route of one day, while these numbers sum all of them.
        sums = {f"{name}, all days": value for name, value in s.figures.items()}
        s.figures = {"day": float(self.day[row]), **sums}
        s.figure("level of all bins", self.real_waste[row].sum())
        return s

    def chart(self, row: int, frames: Mapping[str, np.ndarray]) -> Chart:
        """The levels of all bins each morning, and at the end."""
        q, day = self.instance_row[row], frames["day"].astype(np.int64)
        # Days never go back, so this finds the first frame of each. A day that has not ended shows its last frame too.
        first = np.searchsorted(day, np.arange(day[0], day[-1] + 1))
        if day[-1] < self.config.horizon and len(day) - 1 not in first:
            first = np.append(first, len(day) - 1)
        levels = frames["real_waste"][first, 1 : self.n_nodes[q]].T / self.max_waste[q]
        return Chart((), (), heat=Heat("level of each bin, morning by morning", levels, first.tolist()), unit="step")


@kernel
def reset(w, b):
    q = w.instance_row[b]
    set_out(w, b)
    for t in range(w.T):
        w.tour_len[b, t] = 0
        for k in range(w.A):
            w.tour[b, t, k] = 0
    for j in range(w.N):
        w.real_waste[b, j] = w.initial_waste[q, j]
        w.revealed[b, j] = False
    w.failures[b] = 0
    w.overflows[b] = 0
    w.lost[b] = 0
    w.day[b] = 0
    # `measure` adds those of each morning, of the first one too.
    w.skipped[b] = 0
    w.missed_must_go[b] = 0
    measure(w, b, q)
    mark(w, b)


@kernel(inline=True)
def step(w, b, action):
    q = w.instance_row[b]
    if w.day[b] >= w.T:  # refused by `fault`, unless numpy wrote it into what the last step gave
        w.day[b] = w.T - 1
    today = w.day[b]
    if w.tour_len[b, today] < w.A:
        w.tour[b, today, w.tour_len[b, today]] = action
    w.tour_len[b, today] += 1
    was_out = w.current_node[b] != 0 or action != 0
    if action != 0:
        paid = serve(w, b, q, action, w.real_waste, b, w.must_go, b)
        if w.visited[b, action]:
            w.real_waste[b, action] = 0
            w.expected_waste[b, action] = 0
    else:
        paid = -w.beta * drive(w, b, q, 0)
    home = w.current_node[b] == 0
    ends = home and ends_tour(w, b, was_out)
    if not ends:
        mark(w, b)
        ends = home and not any_customer(w, b)
    if ends:
        paid += pass_night(w, b, q)
    w.reward[b] = paid


@kernel
def pass_night(w, b, q):
    """Ends the day: bins fill up and run over, a new morning dawns. What that pays."""
    n = w.n_nodes[q]
    size = np.float64(w.max_waste[q])
    spilt = 0.0
    full = 0
    for j in range(1, n):
        level = np.float64(w.real_waste[b, j]) + w.daily_fill[q, w.day[b], j]
        spilt += max(level - size, 0.0)
        w.real_waste[b, j] = min(level, size)
        full += w.real_waste[b, j] >= size * FULL
    for j in range(w.N):
        w.visited[b, j] = False
        w.revealed[b, j] = False
    w.lost[b] = w.lost[b] + spilt
    w.overflows[b] += full
    w.day[b] += 1
    unload(w, b)
    if w.day[b] == w.T:
        w.terminated[b] = True
    else:
        measure(w, b, q)
        mark(w, b)
    return -w.overflow_price * full - w.lost_weight * spilt


@kernel
def measure(w, b, q):
    """The morning: what the sensors say, and which bins that makes mandatory."""
    n = w.n_nodes[q]
    size = np.float64(w.max_waste[q])
    for j in range(w.N):
        level = np.float64(w.real_waste[b, j])
        if w.Z > 0:
            level = min(size, level * w.sensor_noise[q, w.day[b], j])
        w.expected_waste[b, j] = level
        w.must_go[b, j] = 0 < j < n and names(w, b, q, j, size)
    w.skipped[b] += n - 1
    w.missed_must_go[b] += count_must_go(w, b, w.must_go, b)


@kernel
def names(w, b, q, j, size):
    """The rule `must_go`: is this bin mandatory today?"""
    if w.must_go_law == NONE:
        return False
    if w.must_go_law == RANDOM:
        # A draw of its own for each day and bin: what was done before does not change it.
        return uniform(row_stream(w, b, MUST), w.day[b] * w.N + j) < w.must_go_rate
    level = np.float64(w.expected_waste[b, j])
    if w.must_go_law == LEVEL:
        return level >= w.must_go_level * size
    spread = w.must_go_k * w.fill_std[q, j] if w.must_go_law == SERVICE_LEVEL else 0.0
    return level + w.fill_mean[q, j] + spread >= size


@kernel
def mark(w, b):
    q = w.instance_row[b]
    mark_allowed(w, b, w.expected_waste, b, w.must_go, b, free_room(w, b, q))


@kernel
def fault(w, b):
    """Which rule a state from outside breaks, 0 if none."""
    code = truck_fault(w, b)
    if code == 0 and w.day[b] >= w.T and not (w.terminated[b] or w.truncated[b]):
        code = DAYS_OVER
    return code


SDWCVRP.bind(generate=generate, reset=reset, step=step, fault=fault, derive_mask=mark)

__all__ = ["SDWCVRP", "SDWCVRPConfig", "generate", "reset", "step"]
