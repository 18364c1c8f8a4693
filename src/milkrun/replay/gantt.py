"""Who does what when in a delivery world, as a Gantt chart: a lane for each machine, the customers' windows below.

`chart_of_log` reads the log of a world of steps, `chart_of_events` that of the TSP with drone; both become the same
`Chart`, which `figure_of_chart` draws.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke

from milkrun.core.canvas import CUSTOMER, GRID, INK, LATE, OPEN, PALETTE, PAPER, SERVED, Colour
from milkrun.delivery.truckdrone.log import Recorder
from milkrun.delivery.tspd.log import Event
from milkrun.replay.figures import DPI, rgb

WIDTH = 11.0  # inches
LANE, WINDOW = 0.42, 0.24  # inches of a machine's lane and of a customer's
MOST_WINDOWS = 40  # customers that have a lane each; of more the windows are left out
SMALL = 7.0  # points of what stands in bars
DOT = 11.0  # points across a delivery
HATCH = "////"


@dataclass(frozen=True)
class Style:
    """How a kind of bar is drawn."""

    words: str
    colour: Colour
    hatched: bool = False


STYLES = {
    "drive": Style("truck drives (\u2192 node)", INK),
    "wait": Style("waits", CUSTOMER, hatched=True),
    "onboard": Style("drone on board", GRID),
    "fly_out": Style("drone flies out (\u2192 customer)", PALETTE[0]),
    "wait_open": Style("drone waits for the window", OPEN, hatched=True),
    "hover": Style("drone hovers", PALETTE[5]),
    "return": Style("drone flies back", PALETTE[3]),
    "crashed": Style("drone crashed", LATE),
}
MARKS = {"forced": ("overridden", "D", OPEN), "conflict": ("customer taken by another", "P", OPEN),
         "illegal": ("masked action", "x", LATE), "crash": ("crash", "X", LATE)}  # fmt: skip


@dataclass(frozen=True)
class Bar:
    lane: str
    kind: str
    t0: float
    t1: float
    label: str = ""


@dataclass(frozen=True)
class Mark:
    """Something that takes no time; a delivery has the customer as its label."""

    lane: str
    kind: str
    t: float
    label: str = ""


@dataclass(frozen=True)
class Window:
    """When a customer wants the parcel, and when it came by whom; `arrival` is None where it never did."""

    customer: int
    opens: float
    closes: float
    arrival: float | None = None
    by: str = ""

    @property
    def late(self) -> float:
        return 0.0 if self.arrival is None else max(0.0, self.arrival - self.closes)


@dataclass(frozen=True)
class Chart:
    """What is drawn. `lanes` are in order, from above."""

    lanes: tuple[str, ...]
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...] = ()
    windows: tuple[Window, ...] = ()
    unit: str = "step"
    end: float = 0.0


def chart_of_log(log: Recorder, row: int = 0) -> Chart:
    """The episode that a watched row plays or has just ended."""
    bars, events = (_last_episode(kept, row) for kept in (log.gantt(), log.events()))
    lanes = tuple(name for group in log.groups.values() for name in group)
    goal = {"drive", "fly_out"}
    shown = [
        Bar(str(b["agent"]), str(b["kind"]), float(b["t0"]), float(b["t1"]),
            f"\u2192{b['ref']}" if b["kind"] in goal and b["ref"] >= 0 else "")
        for b in bars
    ]  # fmt: skip
    served = {int(e["ref"]): e for e in events if e["kind"] == "served"}
    marks = [Mark(str(e["agent"]), str(e["kind"]), float(e["t0"])) for e in events if e["kind"] in MARKS]
    marks += [Mark(str(e["agent"]), "served", float(e["t0"]), str(c)) for c, e in served.items()]
    q = log.instance_row[row]
    windows = []
    for c, (opens, closes) in enumerate(zip(log.tw_start[q].tolist(), log.tw_end[q].tolist(), strict=True)):
        e = served.get(c)
        got = (None, "") if e is None else (float(e["t0"]), str(e["agent"]))
        windows.append(Window(c, opens, closes, *got))
    return Chart(lanes, tuple(shown), tuple(marks), tuple(windows), "step", float(log.i[row]))


def chart_of_events(events: Iterable[Event]) -> Chart:
    """What truck and drone of a TSP with drone did; the numbers are nodes."""
    bars, flying = [], False
    for agent, kind, t0, t1, _, node in events:
        flying = kind == "fly" and not flying  # a flight has two legs: out to the customer, and back
        shown = {"aboard": "onboard", "fly": "fly_out" if flying else "return"}.get(kind, kind)
        bars.append(Bar(agent, shown, t0, t1, f"\u2192{node}" if kind in ("drive", "fly") else ""))
    end = max((bar.t1 for bar in bars), default=0.0)
    return Chart(("truck", "drone"), tuple(bars), unit="time, in cost units", end=end)


def figure_of_chart(chart: Chart, title: str = "") -> Figure:
    """The chart with its legend."""
    windows = chart.windows if len(chart.windows) <= MOST_WINDOWS else ()
    height = LANE * len(chart.lanes) + WINDOW * len(windows)
    figure = Figure(figsize=(WIDTH, height + 1.5), dpi=DPI, facecolor=rgb(PAPER), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=12, fontweight="bold", color=rgb(INK))
    axes = figure.subplots()
    end = chart.end or 1.0
    places = {lane: (k + 0.5) * LANE for k, lane in enumerate(chart.lanes)}
    top = LANE * len(chart.lanes) + (0.1 if windows else 0.0)
    rows = [top + (k + 0.5) * WINDOW for k in range(len(windows))]
    axes.set(xlim=(0, end * 1.015), ylim=(height + (0.12 if windows else 0.02), -0.02))
    axes.set_yticks([*places.values(), *rows], [*places, *(f"customer {w.customer}" for w in windows)])
    axes.set_xlabel(chart.unit, fontsize=8, color=rgb(INK))
    axes.grid(axis="x", color=rgb(GRID), linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, colors=rgb(INK))
    axes.tick_params(axis="y", length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(rgb(CUSTOMER))
    delivered = {(mark.lane, mark.t) for mark in chart.marks if mark.kind == "served"}
    for bar in chart.bars:
        _paint_bar(axes, bar, places[bar.lane])
        if (bar.lane, bar.t1) not in delivered:  # there the mark says the customer
            _paint_label(axes, bar, places[bar.lane], end, hidden=DOT / 2 * ((bar.lane, bar.t0) in delivered))
    late = {w.customer for w in chart.windows if w.late > 0}
    for mark in chart.marks:
        _paint_mark(axes, mark, places[mark.lane], mark.kind == "served" and int(mark.label) in late)
    for window, y in zip(windows, rows, strict=True):
        _paint_window(axes, window, y, end)
    _legend(figure, chart, bool(windows))
    return figure


def _last_episode(kept: np.ndarray, row: int) -> np.ndarray:
    mine = kept[kept["row"] == row]
    return mine[mine["episode"] == mine["episode"].max(initial=-1)]


def _face(style: Style) -> dict[str, Any]:
    colour = rgb(style.colour)
    if style.hatched:
        return {"facecolor": rgb(PAPER), "edgecolor": colour, "hatch": HATCH, "linewidth": 0.6}
    return {"facecolor": colour, "edgecolor": rgb(PAPER), "linewidth": 0.6}


def _paint_bar(axes: Axes, bar: Bar, y: float) -> None:
    style, half = STYLES[bar.kind], 0.36 * LANE
    axes.add_patch(Rectangle((bar.t0, y - half), bar.t1 - bar.t0, 2 * half, zorder=2, **_face(style)))


def _paint_label(axes: Axes, bar: Bar, y: float, end: float, hidden: float) -> None:
    """In the middle of what is seen of the bar: `hidden` points of it, on the left, are not. None without room."""
    point = end / (72 * (WIDTH - 1.2))
    start = bar.t0 + hidden * point
    if bar.label and bar.t1 - start > 0.68 * SMALL * len(bar.label) * point:
        axes.text((start + bar.t1) / 2, y, bar.label, fontsize=SMALL, color=rgb(PAPER), ha="center",
                  va="center_baseline", zorder=3, clip_on=True)  # fmt: skip


def _paint_mark(axes: Axes, mark: Mark, y: float, late: bool) -> None:
    if mark.kind != "served":
        _, shape, colour = MARKS[mark.kind]
        axes.plot([mark.t], [y - 0.42 * LANE], marker=shape, color=rgb(colour), markersize=5, mec=rgb(INK), mew=0.6,
                  zorder=4, clip_on=False)  # fmt: skip
        return
    axes.plot([mark.t], [y], marker="o", color=rgb(LATE if late else SERVED), markersize=DOT, mec=rgb(PAPER), mew=0.8,
              zorder=4, clip_on=False)  # fmt: skip
    axes.text(mark.t, y, mark.label, fontsize=SMALL, color=rgb(PAPER), ha="center", va="center_baseline", zorder=5,
              fontweight="bold")  # fmt: skip


def _paint_window(axes: Axes, window: Window, y: float, end: float) -> None:
    half = 0.26 * WINDOW
    opens, closes = min(window.opens, end), min(window.closes, end)
    axes.add_patch(Rectangle((opens, y - half), closes - opens, 2 * half, facecolor=rgb(OPEN), alpha=0.45, lw=0,
                             zorder=2))  # fmt: skip
    sharp = [t for t in (window.opens, window.closes) if t <= end]
    axes.vlines(sharp, y - 1.6 * half, y + 1.6 * half, color=rgb(INK), linewidth=0.9, zorder=3)
    if window.arrival is None:
        axes.text(end, y, "not served ", fontsize=SMALL, color=rgb(LATE), ha="right", va="center_baseline", zorder=4)
        return
    colour = rgb(LATE if window.late > 0 else SERVED)
    if window.late > 0:
        axes.hlines(y, window.closes, window.arrival, color=colour, linewidth=1.2, linestyle=(0, (2, 1)), zorder=3)
    axes.plot([window.arrival], [y], marker="o", color=colour, markersize=6, mec=rgb(PAPER), mew=0.6, zorder=4,
              clip_on=False)  # fmt: skip
    words = f"{window.by}, {window.late:g} late" if window.late > 0 else window.by
    left = window.arrival > 0.85 * end
    ground = {"facecolor": rgb(PAPER), "linewidth": 0, "pad": 0.6} if window.late > 0 else None  # over the dashes
    axes.annotate(words, (window.arrival, y), xytext=(-6 if left else 6, 0), textcoords="offset points",
                  fontsize=SMALL - 0.5, color=rgb(INK), ha="right" if left else "left", va="center", zorder=4,
                  bbox=ground, path_effects=[withStroke(linewidth=2, foreground=rgb(PAPER))])  # fmt: skip


def _legend(figure: Figure, chart: Chart, windows: bool) -> None:
    kinds = {bar.kind for bar in chart.bars}
    handles: list[Any] = [Patch(**_face(style)) for kind, style in STYLES.items() if kind in kinds]
    names = [style.words for kind, style in STYLES.items() if kind in kinds]

    def add(name: str, **how: Any) -> None:
        handles.append(Line2D([], [], linestyle="", **how))
        names.append(name)

    late = {w.customer for w in chart.windows if w.late > 0}
    served = {w.customer for w in chart.windows if w.arrival is not None}
    if served - late:
        add("delivered in time", marker="o", color=rgb(SERVED), markersize=8)
    if late:
        add("delivered late", marker="o", color=rgb(LATE), markersize=8)
    if windows:
        handles.append(Patch(facecolor=rgb(OPEN), alpha=0.45))
        names.append("time window")
    for kind, (words, shape, colour) in MARKS.items():
        if any(mark.kind == kind for mark in chart.marks):
            add(words, marker=shape, color=rgb(colour), mec=rgb(INK), mew=0.6, markersize=5)
    figure.legend(handles, names, loc="outside lower center", ncols=min(5, len(names)), fontsize=8, frameon=False,
                  handlelength=1.8, columnspacing=1.4)  # fmt: skip
