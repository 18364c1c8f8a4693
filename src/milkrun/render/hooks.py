"""Hooks before and after each step of a world: the base of recorders, films and benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from milkrun.core.arguments import Rows


class StepHooks:
    """A wrapper of a world that is stepped in its place and calls the hooks; all other attributes are the world's."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def __getattr__(self, name: str) -> Any:
        if name == "world":  # not set yet while a copy is being made
            raise AttributeError(name)
        return getattr(self.world, name)

    def step(self, actions: Any, rows: Rows = None) -> None:
        """Same as `World.step`, between the two hooks."""
        self.before_step(actions, rows)
        self.world.step(actions, rows)
        self.after_step(rows)

    def step_frames(self, actions: Any, rows: Rows = None) -> Iterator[Any]:
        """Same as `World.step_frames`, between the two hooks."""
        self.before_step(actions, rows)
        yield from self.world.step_frames(actions, rows)
        self.after_step(rows)

    def before_step(self, actions: Any, rows: Rows) -> None:
        """Hook of subclasses: runs before a step of these rows."""

    def after_step(self, rows: Rows) -> None:
        """Hook of subclasses: runs after a step of these rows."""
