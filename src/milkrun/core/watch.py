"""A world that shows itself after every step, for those who film or count what others play."""

from __future__ import annotations

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
        """As the world's own; then these rows are seen."""
        self.world.step(actions, rows)
        self.see(rows)

    def see(self, rows: Rows) -> None:
        """For subclasses: what is done after a step of these rows."""


class LookedAt(Watched):
    """A world whose agents look at it after each step, for those who measure what that takes."""

    def see(self, rows: Rows) -> None:
        self.world.observe(rows)
