"""Stochastic dynamic waste collection: the same bins day after day, filling up each night.

Observations: `locs`, `n_nodes`, `max_waste`, `capacity`, `fill_mean`, `fill_std`, `day`, `must_go`, `current_node`,
    `visited`, `expected_waste`, `revealed`, `load`, `collected`, `failures`, `overflows`, `lost`, `tour_length`,
    `trip_length`, `i`. Hidden: `real_waste`, `daily_fill`, `sensor_noise`.
Actions: the node to go to, Discrete(num_loc + 1); 0 is the depot; choosing it at the depot ends the day.
Mask: as in the SCWCVRP; the rule `must_go` selects the mandatory bins each morning.
Night: every bin grows by its fill of the day; waste beyond `max_waste` is lost, and full bins overflow.
Ends: terminated after `horizon` days.
Reward: as in the SCWCVRP within a day; the end of a day costs overflow_weight for each bin that the night fills and
    lost_weight for the waste lost.
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
from milkrun.render.scene import Chart, Heat, Scene
from milkrun.routing.generators.fills import FILL_ALIASES, FILL_LAWS, LEVEL, MUST_GO_LAWS, NONE, RANDOM, SERVICE_LEVEL
from milkrun.routing.generators.laws import MUST
from milkrun.routing.generators.waste import generate_days as generate
from milkrun.routing.scwcvrp import Recourse, RecourseConfig, ends_or_opens, mark_expected, retrace, serve
from milkrun.routing.trips import count_must_go, drive, set_out, unload
from milkrun.routing.trips import fault as truck_fault
from milkrun.routing.wcvrp import FULL

DAYS_OVER = 3
"""A fault of a loaded state."""


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
    daily_scale: float = option(
        0.2, "scale of a day's fill by a level law (uniform, beta, constant, dist)", low=0, high=1
    )
    sensor_sigma: float = option(0.0, "spread of the morning's measurements; 0 = exact", low=0, high=10)
    lost_weight: float = option(0.0, "cost of a unit of waste lost", low=0, high=1e30)
    must_go: str = option(
        "none",
        "mandatory each morning: level: over must_go_level; lookahead: filled by the mean of a day; "
        "service_level: by the mean + must_go_k deviations",
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
    generator = "milkrun.routing.generators:SDWCVRPGenerator"
    run_details = "milkrun.cli.details:DAYS"
    levels = "initial_waste"
    priced = {**Recourse.priced, "daily_fill": "lost_weight"}
    customer_fields = ("initial_waste", "daily_fill", "sensor_noise", "fill_mean", "fill_std")

    usual = {**Recourse.usual, "fill_law": FILL_LAWS.index("gamma3"), "must_go_law": MUST_GO_LAWS.index("none")}
    daily_scale = constant(float64)
    sensor_sigma = constant(float64)
    lost_weight = constant(float64)
    must_go_k = constant(float64)

    initial_waste = instance(float32, "N", low=0, observed=False, doc="level of each bin on the first morning")
    daily_fill = instance(float32, "T", "N", low=0, hidden=True, doc="fill of each bin by each day")
    sensor_noise = instance(float32, "Z", "N", low=0, hidden=True, doc="factor of each morning's measurement")
    fill_mean = instance(float32, "N", low=0, doc="mean of a day's fill")
    fill_std = instance(float32, "N", low=0, doc="standard deviation of a day's fill")
    real_waste = state(float32, "N", low=0, hidden=True, doc="real level of each bin")
    must_go = state(bool_, "N", doc="mandatory today")
    day = state(int32, low=0, high="T", column=True, doc="days done")
    overflows = state(int32, low=0, doc="bins that the nights have filled")
    lost = state(float32, low=0, doc="waste lost to overflow")
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
        """Mandatory bins change each morning, so the task does not check them."""
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
        """The nodes of today; after the end, of the last day."""
        today = min(int(self.day[row]), self.config.horizon - 1)
        return [0, *self.tour[row, today, : self.tour_len[row, today]].tolist()]

    def must_go_of(self, row: int) -> np.ndarray:
        return self.must_go[row]

    def waste_of(self, row: int) -> np.ndarray:
        return self.real_waste[row]

    def levels_at_start(self, row: int) -> np.ndarray:
        """The levels of this morning, found by replaying the days before."""
        q = self.instance_row[row]
        levels, most, room = self.initial_waste[q].copy(), float(self.max_waste[q]), float(self.capacity[q])
        for t in range(min(int(self.day[row]), self.config.horizon - 1)):
            retrace(self.tour[row, t, : self.tour_len[row, t]].tolist(), levels, room, self.recourse)
            levels = np.minimum(levels + self.daily_fill[q, t].astype(np.float64), most).astype(np.float32)
        return levels

    chart_fields = ("day", "real_waste")

    def scene(self, row: int) -> Scene:
        s = super().scene(row)
        # The picture shows the route of one day, these figures the sums of all days.
        sums = {f"{name}, all days": value for name, value in s.figures.items()}
        s.figures = {"day": float(self.day[row]), **sums}
        s.figure("level of all bins", self.real_waste[row].sum())
        return s

    def chart(self, row: int, frames: Mapping[str, np.ndarray]) -> Chart:
        """The levels of all bins, each morning and at the end."""
        q, day = self.instance_row[row], frames["day"].astype(np.int64)
        # `day` never decreases, so this finds the first frame of each day. An unfinished day shows its last frame too.
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
    # `measure` adds those of each morning, including the first.
    w.skipped[b] = 0
    w.missed_must_go[b] = 0
    measure(w, b, q)
    mark(w, b)


@kernel(inline=True)
def step(w, b, action):
    q = w.instance_row[b]
    if w.day[b] >= w.T:  # `fault` refuses it, but the caller may have written it into the arrays
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
    if ends_or_opens(w, b, q, b, was_out):
        paid += pass_night(w, b, q)
    w.reward[b] = paid


@kernel
def pass_night(w, b, q):
    """Ends the day: bins fill and overflow, and the next morning begins; returns the reward."""
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
    """The morning: measures all bins and selects the mandatory ones."""
    n = w.n_nodes[q]
    size = np.float64(w.max_waste[q])
    for j in range(w.N):
        level = np.float64(w.real_waste[b, j])
        if w.Z > 0:
            level = min(size, level * w.sensor_noise[q, w.day[b], j])
        w.expected_waste[b, j] = level
        w.must_go[b, j] = 0 < j < n and is_mandatory(w, b, q, j, size)
    w.skipped[b] += n - 1
    w.missed_must_go[b] += count_must_go(w, b, w.must_go, b)


@kernel
def is_mandatory(w, b, q, j, size):
    """The rule `must_go`: True if this bin is mandatory today."""
    if w.must_go_law == NONE:
        return False
    if w.must_go_law == RANDOM:
        # One draw for each day and bin, independent of earlier actions.
        return uniform(row_stream(w, b, MUST), w.day[b] * w.N + j) < w.must_go_rate
    level = np.float64(w.expected_waste[b, j])
    if w.must_go_law == LEVEL:
        return level >= w.must_go_level * size
    spread = w.must_go_k * w.fill_std[q, j] if w.must_go_law == SERVICE_LEVEL else 0.0
    return level + w.fill_mean[q, j] + spread >= size


@kernel
def mark(w, b):
    mark_expected(w, b, w.instance_row[b], b)


@kernel
def fault(w, b):
    """The rule that a loaded state breaks, 0 if none."""
    code = truck_fault(w, b)
    if code == 0 and w.day[b] >= w.T and not (w.terminated[b] or w.truncated[b]):
        code = DAYS_OVER
    return code


SDWCVRP.bind(generate=generate, reset=reset, step=step, fault=fault, derive_mask=mark)

__all__ = ["SDWCVRP", "SDWCVRPConfig", "generate", "reset", "step"]
