"""Episodes of drone tracking: films with the path of the drone, and figures of their ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from milkrun.core.arguments import Rows
from milkrun.replay.animation import LEAST_MS, Film, Picture
from milkrun.replay.figures import in_a_row
from milkrun.tracking.config import REASONS
from milkrun.tracking.picture import render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class FlightFilm(Film):
    """A film in real time that also shows the path of the drone."""

    def __init__(self, world: Any, row: int = 0, every: int = 1, scale: int = 1) -> None:
        self.path = [world.pos[row, :2].copy()]
        super().__init__(world, row, every, scale)

    def after_step(self, rows: Rows) -> None:
        self.path.append(self.world.pos[self.row, :2].copy())
        super().after_step(rows)

    @property
    def step_ms(self) -> int:
        return max(LEAST_MS, round(1000 * self.every / self.world.render_fps))

    def picture(self) -> Picture:
        return render(self.world, self.row, np.array(self.path))


def figure_of_views(pictures: Sequence[tuple[Any, int, str]], title: str = "") -> Figure:
    """The camera beside the view from above, with the result of each episode."""

    def paint(axes: Axes, world: Any, row: int) -> str:
        axes.imshow(world.render(row))
        reason = REASONS[int(world.reason[row])] or "none"
        return (
            f"CR {world.CR[row]:.1f}, TSR {world.TSR[row]:.3f}, {int(world.agent_step[row])} steps, "
            f"end: {reason.replace('_', ' ')}"
        )

    return in_a_row(pictures, title, paint, side=9.0, height=0.62, upright=True)
