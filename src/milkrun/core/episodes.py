"""How the rows of a world begin their episodes: instances drawn or given, resets, autoreset, and interrupted calls.

A call that changes rows stores them in `_changing` first and clears it last. If an interrupt or an error ends the call
in between, these rows need a reset; until then every use of them raises ResetNeeded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from milkrun.core.arguments import Rows, name_rows, read_rows
from milkrun.core.errors import Closed, ResetNeeded
from milkrun.core.fields import Field, Role
from milkrun.core.instances import read_instances
from milkrun.core.launcher import DUE
from milkrun.core.memory import Memory

SET_BY_STEP = ("reward", "terminated", "truncated", "done", "illegal")
"""Under SAME_STEP these fields describe the step that ended an episode, not the episode begun in the same step."""


class Episodes(Memory):
    """Rows that begin, end and begin again."""

    figure_fields: ClassVar[tuple[str, ...]] = ()  # fields that `figures` reads of an ended row, also steps, objective
    amends_instances: bool = False  # `place_instances` or `amend_instances` is defined: slow, for callable laws
    draws_may_fail: ClassVar[bool] = False  # the compiled law of instances may find none, and `_draw_rows` then raises

    i: Any  # these three fields are declared by World
    done: Any
    stream: Any
    observed: list[Field]
    _mask: Field | None
    final: dict[str, np.ndarray]
    final_rows: np.ndarray
    _playable: np.ndarray  # rows that have an episode
    _ready: bool  # all rows are playable, the world is open, and the step is compiled
    _changing: np.ndarray | None  # the rows of a call under way
    _interrupted: bool  # rows that are not playable were in a call that did not finish
    _closed: bool
    _mode: int
    _some_ended: bool
    _all_stale: bool  # views on demand: outdated in every row, whatever `_stale` says
    _stale: np.ndarray  # ... in these rows

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        """Hook that turns other layouts of a given instance into this world's instance fields, and fills in defaults of
        absent ones."""
        return values

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        """Hook for rules between the fields of given instances; raises BadInstance. Shapes, dtypes and bounds have been
        validated."""

    def place_instances(self, rows: np.ndarray) -> None:
        """Hook before the kernel `generate`, which finds in the instance fields what this method puts there."""

    def amend_instances(self, rows: np.ndarray) -> None:
        """Hook after the kernel `generate`; raises BadInstance to refuse the drawn instances."""

    @property
    def info_fields(self) -> list[Field]:
        """The fields of `info` in bindings: the objective, the steps and the views that are not observed."""
        views = [f for f in self.fields.values() if f.role is Role.VIEW and not f.observed and not f.on_demand]
        return [self.fields["objective"], self.fields["i"], *(f for f in views if f.name not in ("reward", "done"))]

    # -- beginning episodes -------------------------------------------------------------------------------------

    def begin_episodes(
        self,
        keys: np.ndarray,
        rows: Rows = None,
        instance: Mapping[str, Any] | None = None,
        *,
        redraw: bool = False,
    ) -> None:
        """Begins the episodes with these stream keys (seed, row, episode) in the named rows; `reset` is the usual way.

        `redraw`: rows that play given instances draw new ones, as all rows do when `rows` is None.
        """
        self._begin_episodes(self._rows(rows), keys, instance, whole=rows is None, redraw=redraw)

    def _begin_episodes(
        self, chosen: np.ndarray, keys: np.ndarray, instance: Any, *, whole: bool, redraw: bool = False
    ) -> None:
        """Where a law refuses to draw, the rows stay as they were."""
        self._check_open()
        if instance is not None:
            given = read_instances(self, instance, len(chosen))
            self._changing = chosen
            self._adopt(given, chosen, whole=whole)
            self.stream[chosen] = keys
        else:
            undo = self._undo_of_draw(chosen) if self.amends_instances or self.draws_may_fail else None
            self._changing = chosen
            try:
                if whole:
                    self._forget_given()
                elif redraw:
                    self.given[chosen] = False
                self.stream[chosen] = keys
                self._draw(chosen)
            except BaseException:
                if undo is not None:
                    undo()
                    self._changing = None
                raise
        self._start_episodes(chosen)
        self._set_playable(chosen)
        self._changing = None

    def _begin(self, rows: np.ndarray) -> None:
        """Draws the instances of rows whose keys are set, and puts their states at the start."""
        self._draw(rows)
        self._start_episodes(rows)

    def _draw(self, rows: np.ndarray) -> None:
        drawn = rows[~self.given[rows]] if self._some_given else rows
        if len(drawn):
            self._draw_rows(drawn)

    def _draw_rows(self, rows: np.ndarray) -> None:
        """Draws the instances of these rows."""
        if self.amends_instances:
            self.place_instances(rows)
        self._run(self._launcher.generate(self._table), rows)
        if self.amends_instances:
            self.amend_instances(rows)

    def _start_episodes(self, rows: np.ndarray) -> None:
        self._run(self._launcher.restart, rows)
        self._outdate(rows)

    def _begin_due(self, chosen: np.ndarray) -> None:
        """NEXT_STEP: begins the next episode of the rows that had ended before this step."""
        due = (self.i == DUE).nonzero()[0] if chosen is self._all else chosen[self.i[chosen] == DUE]
        self.stream[due, 2] += 1
        self._begin(due)

    def _begin_ended(self, rows: np.ndarray) -> None:
        """SAME_STEP: keeps the last values of the rows that have ended in `final`, and begins their next episode."""
        if self._launcher.observe is not None:
            self._run(self._launcher.observe, rows)
        kept = [*self.observed, *self.info_fields]
        if self._mask is not None:
            kept.append(self._mask)
        kept += [self.fields[name] for name in self.figure_fields]
        played = self.instance_row[rows]
        self.final = {f.name: getattr(self, f.name)[played if f.role is Role.INSTANCE else rows] for f in kept}
        self.final_rows = rows
        of_step = {name: getattr(self, name)[rows] for name in SET_BY_STEP}
        self.stream[rows, 2] += 1
        self._begin(rows)
        for name, values in of_step.items():
            getattr(self, name)[rows] = values

    # -- what can be played -------------------------------------------------------------------------------------

    def refuse_unready(self, rows: np.ndarray | slice = slice(None)) -> None:
        """Raises unless the world is open and these rows have an episode."""
        self._refuse_interrupted(rows)
        if not (self._ready or self._playable[rows].all()):
            raise ResetNeeded(f"{type(self).__name__} is used before the first reset()")

    def _refuse_interrupted(self, rows: np.ndarray | slice = slice(None)) -> None:
        """Raises if the world is closed, or if one of these rows was in a call that did not finish."""
        self._check_open()
        if self._interrupted and not self._playable[rows].all():
            lost = self._all[rows][~self._playable[rows]]
            raise ResetNeeded(f"reset {name_rows(lost)} first: an interrupt or an error ended a call that changed them")

    def _check_open(self) -> None:
        """Raises if the world is closed. The rows of a call that did not finish lose their episode."""
        if self._closed:
            raise Closed(f"this {type(self).__name__} has been closed")
        if self._changing is not None:
            self._playable[self._changing] = False
            self._interrupted = True
            self._ready = False
            self._changing = None

    def _set_playable(self, rows: np.ndarray) -> None:
        if not self._ready:
            self._playable[rows] = True
            self._interrupted = self._interrupted and not self._playable.all()

    # -- rows and views on demand -------------------------------------------------------------------------------

    def own_rows(self, first: int, last: int | None = None) -> np.ndarray:
        """The rows first..last-1, or one row, as a slice of the world's own array. Methods take it for `rows` without
        validation, which saves microseconds where single rows are played."""
        return self._all[first : first + 1 if last is None else last]

    def _rows(self, rows: Rows) -> np.ndarray:
        if rows is None:
            return self._all
        # A slice of the world's own numbers is in range and names no row twice.
        if type(rows) is np.ndarray and rows.base is self._all and rows.dtype == np.int64 and rows.ndim == 1:
            return np.ascontiguousarray(rows)
        return read_rows(rows, self.num_envs)

    def _outdate(self, rows: np.ndarray) -> None:
        """Marks the views on demand of these rows as outdated."""
        if rows is self._all:
            self._all_stale = True
        elif not self._all_stale and self._launcher.observe is not None:
            self._stale[rows] = True

    def _update_views(self, rows: np.ndarray) -> None:
        """Computes the outdated views on demand of these rows. The marks are cleared last, so an interrupt only costs a
        second computation."""
        if self._all_stale:
            self._stale[:] = True
            self._all_stale = False
        due = rows[self._stale[rows]]
        if len(due):
            self._run(self._launcher.observe, due)  # type: ignore[arg-type]
            self._stale[due] = False
