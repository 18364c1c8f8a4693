"""Episodes of drone tracking as figures: the last picture of each, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from milkrun.replay.figures import in_a_row
from milkrun.tracking.config import REASONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def figure_of_flights(pictures: Sequence[tuple[Any, int, str]], title: str = "") -> Figure:
    """The camera beside the view from above, and what came of the episode."""

    def paint(axes: Axes, world: Any, row: int) -> str:
        axes.imshow(world.render(row))
        reason = REASONS[int(world.reason[row])] or "it goes on"
        return (f"CR {world.CR[row]:.1f}, TSR {world.TSR[row]:.3f}, {int(world.agent_step[row])} steps, "
                f"end: {reason.replace('_', ' ')}")  # fmt: skip

    return in_a_row(pictures, title, paint, side=9.0, height=0.62, upright=True)
