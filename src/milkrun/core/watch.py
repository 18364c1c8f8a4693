"""A world that is looked at before and after every step, for those who film, count or record what others play."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from milkrun.core.arguments import Rows


class Watched:
    """Step it instead of the world; all else is the world's."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def __getattr__(self, name: str) -> Any:
        if name == "world":  # not there yet, as in a copy being made
            raise AttributeError(name)
        return getattr(self.world, name)

    def step(self, actions: Any, rows: Rows = None) -> None:
        """As the world's own; these rows are seen before and after it."""
        self.before(actions, rows)
        self.world.step(actions, rows)
        self.after(rows)

    def step_frames(self, actions: Any, rows: Rows = None) -> Iterator[Any]:
        """The same, with a stop wherever the world has a frame to show."""
        self.before(actions, rows)
        yield from self.world.step_frames(actions, rows)
        self.after(rows)

    def before(self, actions: Any, rows: Rows) -> None:
        """For subclasses: what is done before a step of these rows."""

    def after(self, rows: Rows) -> None:
        """For subclasses: what is done after a step of these rows."""


class LookedAt(Watched):
    """A world whose agents look at it after each step, for those who measure what that takes."""

    def after(self, rows: Rows) -> None:
        self.world.observe(rows)
