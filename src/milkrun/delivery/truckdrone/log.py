"""The event log of the truck-and-drones world: agent, kind, times, places and energy of each event.

`step_events` derives the events of a step from the fields before and after it. `Recorder` steps a world and records the
events of selected rows; `chart` draws those of an episode.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from milkrun.core.arguments import Rows
from milkrun.core.files import write_csv
from milkrun.delivery.styles import STYLES
from milkrun.delivery.truckdrone.flight import CRASHED, DELIVER, HOVER, MOVE, NEAR, ONBOARD, RETURN
from milkrun.render.recorder import EpisodeRecorder, agent_names
from milkrun.render.scene import Bar, Chart, Mark, Window

EVENT = np.dtype(
    [
        ("row", np.int64),
        ("episode", np.int64),
        ("agent", "U16"),
        ("kind", "U9"),
        ("t0", np.int64),
        ("t1", np.int64),
        ("x0", np.float64),
        ("y0", np.float64),
        ("x1", np.float64),
        ("y1", np.float64),
        ("ref", np.int64),
        ("energy", np.float64),
    ]
)
INTERVALS = ("drive", "wait", "onboard", "hover", "fly_out", "wait_open", "return", "crashed")
POINTS = ("release", "recover", "load", "served", "landed", "forced", "conflict", "illegal", "crash")
CHARTED = ["agent", "kind", "t0", "t1", "ref"]

FIELDS = (
    "i",
    "truck_pos",
    "truck_node",
    "truck_target",
    "truck_step_dist",
    "drone_pos",
    "battery",
    "carrying",
    "status",
    "forced_phase",
    "executed",
    "illegal_agents",
    "forced",
    "conflict",
    "battery_used",
    "customer_pos",
)
"""The fields that are compared before and after a step."""

Place = list[float]
StepEvent = tuple[int, str, int, int, Place, Place, int, float]
"""agent, kind, t0, t1, from, to, ref, energy"""


class Recorder(EpisodeRecorder):
    """Wraps a world and logs some of its rows; it is stepped in place of the world.

    A step that does not continue the previous one of its row begins an episode; `episode` counts them from 0.
    """

    def __init__(self, world: Any, rows: Rows = (0,)) -> None:
        super().__init__(world, rows, fields=FIELDS, scenes=False)

    def events(self) -> np.ndarray:
        """The events by row and episode, in order of time: an array of `EVENT`.

        Times are steps: a step is an interval of each agent from t to t + 1. Commands (release, recover, load, forced,
        conflict, illegal) are at t, results (landed, crash, served) at t + 1. `ref` is the target or node of the truck;
        the customer flown to, loaded, contended for or served; at a recovery, landing or crash the customer of the
        parcel on board; else -1. Recoveries and landings lead from the drone's place to the truck's, deliveries to the
        customer's. `energy` is taken from the battery; negative if charged, at a crash the missing energy. Over a
        drone's log it sums to 1 - battery. `forced` marks fined overrides: each step under published rules, once for
        each phase under sound rules.
        """
        kept = [events_of(self.world, r.fields(FIELDS), r.world_row, r.number) for r in self.episodes()]
        return np.concatenate([np.zeros(0, EVENT), *kept])

    def gantt(self) -> np.ndarray:
        """The intervals by agent, with equal neighbours merged; those of an agent tile the episode."""
        return bars_of(self.world, self.events())

    def to_csv(self, path: str | Path) -> None:
        """Writes the events as CSV with a header."""
        write_csv(path, EVENT.names or (), self.events().tolist())

    def to_json(self, path: str | Path) -> None:
        """Writes the events as a list of JSON objects."""
        listed = [dict(zip(EVENT.names or (), event, strict=True)) for event in self.events().tolist()]
        Path(path).write_text(json.dumps(listed, indent=0) + "\n")


def events_of(world: Any, frames: Mapping[str, np.ndarray], row: int = 0, episode: int = 0) -> np.ndarray:
    """The events of an episode from the FIELDS in `frames`, as an array of `EVENT`."""
    agents = _agents(world)
    moments = [
        SimpleNamespace(**dict(zip(FIELDS, values, strict=True)))
        for values in zip(*(frames[name].tolist() for name in FIELDS), strict=True)
    ]
    return np.array(
        [
            (row, episode, agents[agent], kind, t0, t1, *start, *end, ref, energy)
            for was, now, given in zip(moments, moments[1:], frames["action"], strict=False)
            for agent, kind, t0, t1, start, end, ref, energy in step_events(world, was, now, given)
        ],
        EVENT,
    )


def bars_of(world: Any, events: np.ndarray) -> np.ndarray:
    """The intervals among events by agent, with equal neighbours merged."""
    bars, agents = events[np.isin(events["kind"], INTERVALS)], _agents(world)
    if not len(bars):
        return bars
    agent = np.array([agents.index(name) for name in bars["agent"]])
    # The row is the primary key, last for lexsort. The sort is stable, so events of an agent stay in order of time.
    bars = bars[np.lexsort((agent, bars["episode"], bars["row"]))]
    same = bars[["row", "episode", "agent", "kind", "ref"]]
    first = np.flatnonzero(np.append(True, same[1:] != same[:-1]))
    merged, last = bars[first], np.append(first[1:], len(bars)) - 1
    for name in ("t1", "x1", "y1"):
        merged[name] = bars[name][last]
    merged["energy"] = np.add.reduceat(bars["energy"], first)
    return merged


def chart(world: Any, row: int, frames: Mapping[str, np.ndarray]) -> Chart:
    """A lane for each agent, and the customers' windows with their deliveries."""
    events, lane = events_of(world, frames), dict(zip(_agents(world), agent_names(world), strict=True))
    bars, marks, came = list[Bar](), list[Mark](), dict[int, tuple[float, str]]()
    for agent, kind, t0, t1, ref in bars_of(world, events)[CHARTED].tolist():
        goal = f"\u2192{ref}" if kind in ("drive", "fly_out") and ref >= 0 else ""
        bars.append(Bar(lane[agent], kind, float(t0), float(t1), goal))
    for agent, kind, t0, _, ref in events[np.isin(events["kind"], POINTS)][CHARTED].tolist():
        if kind == "served":
            came[ref] = float(t0), lane[agent]
        if kind in STYLES:
            marks.append(Mark(lane[agent], kind, float(t0), str(ref) if kind == "served" else ""))
    q = world.instance_row[row]
    bounds = zip(world.tw_start[q].tolist(), world.tw_end[q].tolist(), strict=True)
    windows = [Window(f"customer {c}", *span, *came.get(c, ())) for c, span in enumerate(bounds)]
    kinds = {kind: style for kind, style in STYLES.items() if kind in events["kind"]}
    return Chart(tuple(lane.values()), tuple(bars), tuple(marks), tuple(windows), clock=frames["i"], kinds=kinds)


def _agents(world: Any) -> list[str]:
    return [name for group in world.groups.values() for name in group]


class DroneStep:
    """The changes of a drone in a step."""

    def __init__(self, world: Any, d: int, was: SimpleNamespace, now: SimpleNamespace) -> None:
        order = now.executed[0] - MOVE - world.sizes["N"]
        self.action = now.executed[1 + d]
        self.parcel = was.carrying[d]
        aboard, ends_aboard = was.status[d] == ONBOARD, now.status[d] == ONBOARD
        called = order == world.sizes["D"] + d and not aboard
        self.released = order == d and aboard
        # A recovery sets the action to HOVER. With RETURN it failed, and the drone landed by itself.
        self.recovered = called and ends_aboard and self.action != RETURN
        self.wreck = was.status[d] == CRASHED and not self.recovered
        self.onboard = self.recovered or (aboard and not self.released)
        self.airborne = not self.wreck and not self.onboard
        self.landed = self.airborne and ends_aboard
        self.crashed = self.airborne and now.status[d] == CRASHED
        self.loads = self.airborne and self.action >= DELIVER and self.parcel < 0
        self.holds = self.action - DELIVER if self.loads else self.parcel
        # boarding also removes the parcel, but then the action is HOVER or RETURN
        self.serves = self.action >= DELIVER and self.holds >= 0 and now.carrying[d] < 0


def step_events(world: Any, was: SimpleNamespace, now: SimpleNamespace, given: Any) -> Iterator[StepEvent]:
    """The events of a step of one row: commands, then an interval of each agent, then results."""
    t = was.i
    steps = [DroneStep(world, d, was, now) for d in range(world.sizes["D"])]
    places = [was.truck_pos, *was.drone_pos]
    for agent, wrong in enumerate(now.illegal_agents):
        if wrong:
            yield agent, "illegal", t, t, places[agent], places[agent], -1, 0.0
    for d, step in enumerate(steps):
        yield from _commands(world, d, step, was, now, int(given[1 + d]))
    drives = now.truck_step_dist > 0
    # a truck that arrives has no target; its node was the target
    bound = now.truck_target if drives and now.truck_target >= 0 else now.truck_node
    yield 0, "drive" if drives else "wait", t, t + 1, was.truck_pos, now.truck_pos, bound, 0.0
    ends = [_interval(world, d, step, was, now) for d, step in enumerate(steps)]
    yield from ends
    for d, step in enumerate(steps):
        here, there = ends[d][5], now.drone_pos[d]
        left = was.battery[d] - now.battery_used[d]
        if step.landed:
            yield 1 + d, "landed", t + 1, t + 1, here, there, step.parcel, left - now.battery[d]
        if step.crashed:
            yield 1 + d, "crash", t + 1, t + 1, there, there, step.holds, left - now.battery[d]
        if step.serves:
            c = step.action - DELIVER
            yield 1 + d, "served", t + 1, t + 1, there, was.customer_pos[c], c, 0.0


def _commands(
    world: Any, d: int, step: DroneStep, was: SimpleNamespace, now: SimpleNamespace, given: int
) -> Iterator[StepEvent]:
    t, here = was.i, was.drone_pos[d]
    # the published rules have no phase, so each forced step is an event
    if now.forced[d] and not was.forced_phase[d]:
        yield 1 + d, "forced", t, t, here, here, -1, 0.0
    if step.released:
        yield 1 + d, "release", t, t, here, here, -1, 0.0
    if step.recovered:
        charged = was.battery[d] - _boarded(world, was.battery[d])
        yield 1 + d, "recover", t, t, here, was.truck_pos, step.parcel, charged
    if now.conflict[d]:
        yield 1 + d, "conflict", t, t, here, here, given - DELIVER, 0.0
    if step.loads:
        yield 1 + d, "load", t, t, here, here, step.action - DELIVER, 0.0


def _interval(world: Any, d: int, step: DroneStep, was: SimpleNamespace, now: SimpleNamespace) -> StepEvent:
    t, start, end = was.i, was.drone_pos[d], now.drone_pos[d]
    energy, ref = now.battery_used[d], -1
    if step.wreck:
        kind = "crashed"
    elif step.onboard:
        kind, start = "onboard", was.truck_pos
        battery = _boarded(world, was.battery[d]) if step.recovered else was.battery[d]
        energy = battery - now.battery[d]
    elif step.action == HOVER:
        kind = "hover"
    elif step.action == RETURN:
        kind = "return"
        end = _towards(start, was.truck_pos, world.drone_stride) if step.landed else end
    else:
        kind, ref = "fly_out" if start != end else "wait_open", step.action - DELIVER
    return 1 + d, kind, t, t + 1, start, end, ref, energy


def _boarded(world: Any, battery: float) -> float:
    return min(1.0, battery + float(world.boarding_charge))


def _towards(start: Place, goal: Place, stride: float) -> Place:
    """The place of a drone before it landed, which no field stores."""
    dx, dy = goal[0] - start[0], goal[1] - start[1]
    way = math.sqrt(dx * dx + dy * dy)
    s = min(float(stride), way)
    return [start[0] + dx / way * s, start[1] + dy / way * s] if way > NEAR else start
