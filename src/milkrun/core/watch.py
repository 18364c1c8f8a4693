"""Base class of recorders: hooks before and after each step of a world."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from milkrun.core.arguments import Rows


class Watched:
    """A wrapper to be stepped instead of the world; it has all other attributes of the world."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def __getattr__(self, name: str) -> Any:
        if name == "world":  # absent while a copy is made
            raise AttributeError(name)
        return getattr(self.world, name)

    def step(self, actions: Any, rows: Rows = None) -> None:
        """`World.step`, between the two hooks."""
        self.before(actions, rows)
        self.world.step(actions, rows)
        self.after(rows)

    def step_frames(self, actions: Any, rows: Rows = None) -> Iterator[Any]:
        """`World.step_frames`, between the two hooks."""
        self.before(actions, rows)
        yield from self.world.step_frames(actions, rows)
        self.after(rows)

    def before(self, actions: Any, rows: Rows) -> None:
        """Hook before a step of these rows."""

    def after(self, rows: Rows) -> None:
        """Hook after a step of these rows."""


class LookedAt(Watched):
    """Observes the stepped rows after each step, to measure the cost of observing."""

    def after(self, rows: Rows) -> None:
        self.world.observe(rows)
