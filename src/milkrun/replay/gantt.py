"""The chart of an episode as a figure: a lane for each machine, the customers' windows below.

Worlds return their `Chart`; `chart_of_log` makes one from a recorder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke

from milkrun.render.canvas import CUSTOMER, GRID, INK, LATE, OPEN, PAPER, SERVED, coloured
from milkrun.render.recorder import EpisodeRecorder
from milkrun.render.scene import Bar, Chart, Mark, Style, Window, colour_code
from milkrun.replay.figures import LATE_MARKERS, empty_figure, leave_inside, rgb

WIDTH = 11.0  # inches
LANE, WINDOW = 0.42, 0.24  # inches of a machine's lane and of a customer's
MOST_WINDOWS = 40  # with more customers windows are left out
SMALL = 7.0  # points, font size in bars
DOT = 11.0  # points across a delivery
HATCH = "////"
SIGN: dict[str, Any] = {"zorder": 4, "clip_on": False}
INSIDE: dict[str, Any] = {"fontsize": SMALL, "color": rgb(PAPER), "ha": "center", "va": "center_baseline"}
MARKERS = {"forced": "D", "conflict": "P", "illegal": "x", "crash": "X", "left": "x"}
"""Shapes of marks by kind; a delivery is a dot with the number of the customer."""


def chart_of_log(log: EpisodeRecorder, row: int = 0) -> Chart:
    """The chart of the last episode of a recorded row."""
    last = [recording for recording in log.episodes() if recording.world_row == row][-1]
    chart: Chart = log.world.chart(row, last.fields(log.world.chart_fields))
    return chart


def figure_of_chart(chart: Chart, title: str = "") -> Figure:
    """The chart with its legend."""
    figure = empty_figure(WIDTH, height_of(chart) + 1.5, title)
    paint_chart(figure.subplots(), chart)
    chart_legend(figure, [chart])
    return figure


def height_of(chart: Chart) -> float:
    """Height of the lanes and windows in inches."""
    return LANE * len(chart.lanes) + WINDOW * len(_windows(chart))


def paint_chart(axes: Axes, chart: Chart) -> None:
    """Lanes with their bars and marks, below them the windows."""
    windows, height = _windows(chart), height_of(chart)
    end = chart.end or 1.0
    places = {lane: (k + 0.5) * LANE for k, lane in enumerate(chart.lanes)}
    top = LANE * len(chart.lanes) + (0.1 if windows else 0.0)
    rows = [top + (k + 0.5) * WINDOW for k in range(len(windows))]
    axes.set(xlim=(0, end * 1.015), ylim=(height + (0.12 if windows else 0.02), -0.02))
    axes.set_yticks([*places.values(), *rows], [*places, *(w.name for w in windows)])
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
        y, style = places[bar.lane], _face(chart.kinds[bar.kind])
        axes.add_patch(Rectangle((bar.t0, y - 0.36 * LANE), bar.t1 - bar.t0, 0.72 * LANE, zorder=2, **style))
        if (bar.lane, bar.t1) not in delivered:  # else the mark names the customer
            _paint_label(axes, bar, y, end, hidden=DOT / 2 * ((bar.lane, bar.t0) in delivered))
    late = {(w.by, w.arrival) for w in chart.windows if w.late > 0}
    for mark in chart.marks:
        _paint_mark(axes, mark, places[mark.lane], chart.kinds[mark.kind], (mark.lane, mark.t) in late)
    for window, y in zip(windows, rows, strict=True):
        _paint_window(axes, window, y, end)
    leave_inside(axes)


def _windows(chart: Chart) -> tuple[Window, ...]:
    return chart.windows if len(chart.windows) <= MOST_WINDOWS else ()


def _face(style: Style) -> dict[str, Any]:
    colour = rgb(coloured(colour_code(style.colour)))
    if style.hatched:
        return {"facecolor": rgb(PAPER), "edgecolor": colour, "hatch": HATCH, "linewidth": 0.6}
    return {"facecolor": colour, "edgecolor": rgb(PAPER), "linewidth": 0.6}


def _sign(kind: str, style: Style) -> dict[str, Any]:
    colour = rgb(coloured(colour_code(style.colour)))
    return {"marker": MARKERS.get(kind, "D"), "color": colour, "markersize": 5, "mec": rgb(INK), "mew": 0.6}


def _stop(late: bool) -> Any:
    """The marker of a served customer: late differs in shape too."""
    return LATE_MARKERS["disc"] if late else "o"


def _paint_label(axes: Axes, bar: Bar, y: float, end: float, hidden: float) -> None:
    """Write the label in the middle of the bar, except its first `hidden` points; skip it if it does not fit."""
    point = end / (72 * (WIDTH - 1.2))
    start = bar.t0 + hidden * point
    if bar.label and bar.t1 - start > 0.68 * SMALL * len(bar.label) * point:
        axes.text((start + bar.t1) / 2, y, bar.label, zorder=3, clip_on=True, **INSIDE)


def _paint_mark(axes: Axes, mark: Mark, y: float, style: Style, late: bool) -> None:
    if not mark.label:
        axes.plot([mark.t], [y - 0.42 * LANE], **_sign(mark.kind, style), **SIGN)
        return
    colour = rgb(LATE if late else SERVED)
    axes.plot([mark.t], [y], marker=_stop(late), color=colour, markersize=DOT, mec=rgb(PAPER), mew=0.8, **SIGN)
    axes.text(mark.t, y, mark.label, fontweight="bold", zorder=5, **INSIDE)


def _paint_window(axes: Axes, window: Window, y: float, end: float) -> None:
    half = 0.26 * WINDOW
    opens, closes = min(max(window.opens, 0.0), end), min(window.closes, end)
    axes.add_patch(
        Rectangle((opens, y - half), closes - opens, 2 * half, facecolor=rgb(OPEN), alpha=0.45, lw=0, zorder=2)
    )
    sharp = [t for t in (window.opens, window.closes) if 0 <= t <= end]
    axes.vlines(sharp, y - 1.6 * half, y + 1.6 * half, color=rgb(INK), linewidth=0.9, zorder=3)
    if window.arrival is None:
        axes.text(end, y, "not served ", fontsize=SMALL, color=rgb(LATE), ha="right", va="center_baseline", zorder=4)
        return
    colour = rgb(LATE if window.late > 0 else SERVED)
    if window.late > 0:
        axes.hlines(y, window.closes, window.arrival, color=colour, linewidth=1.2, linestyle=(0, (2, 1)), zorder=3)
    stop = _stop(window.late > 0)
    axes.plot([window.arrival], [y], marker=stop, color=colour, markersize=6, mec=rgb(PAPER), mew=0.6, **SIGN)
    words = f"{window.by}, {window.late:g} late" if window.late > 0 else window.by
    left = window.arrival > 0.85 * end
    ground = {"facecolor": rgb(PAPER), "linewidth": 0, "pad": 0.6} if window.late > 0 else None  # over the dashes
    axes.annotate(
        words,
        (window.arrival, y),
        xytext=(-6 if left else 6, 0),
        textcoords="offset points",
        fontsize=SMALL - 0.5,
        color=rgb(INK),
        ha="right" if left else "left",
        va="center",
        zorder=4,
        bbox=ground,
        path_effects=[withStroke(linewidth=2, foreground=rgb(PAPER))],
    )


def chart_legend(figure: Figure, charts: Sequence[Chart], more: Sequence[tuple[Any, str]] = ()) -> None:
    """The legend of bars and marks, after the entries of `more`."""
    entries: dict[str, Any] = {name: handle for handle, name in more}
    for chart in charts:
        used = {bar.kind for bar in chart.bars}
        entries |= {style.words: Patch(**_face(style)) for kind, style in chart.kinds.items() if kind in used}
        came = [w.late > 0 for w in chart.windows if w.arrival is not None]
        done = "delivered " if any(mark.kind == "served" for mark in chart.marks) else ""
        if not all(came):
            in_time = Line2D([], [], linestyle="", marker=_stop(False), color=rgb(SERVED), markersize=8)
            entries[f"{done}in time"] = in_time
        if any(came):
            entries[f"{done}late"] = Line2D([], [], linestyle="", marker=_stop(True), color=rgb(LATE), markersize=8)
        if _windows(chart):
            entries["time window"] = Patch(facecolor=rgb(OPEN), alpha=0.45)
        for kind, style in chart.kinds.items():
            if any(mark.kind == kind and not mark.label for mark in chart.marks):
                entries[style.words] = Line2D([], [], linestyle="", **_sign(kind, style))
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="outside lower center",
        ncols=min(5, len(entries)),
        fontsize=8,
        frameon=False,
        handlelength=1.8,
        columnspacing=1.4,
    )
