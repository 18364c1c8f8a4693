"""How the rows of a world begin their episodes: instances drawn or given, autoreset, and what an interrupt leaves.

Python runs a signal's handler between any two bytecodes, so Ctrl-C may strike between the parts of a beginning. All of
them are written down first (`Beginning`), in such a way that they can be done again from their start: a reset or a step
is done whole or not at all.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

import numpy as np

from milkrun.core.arguments import Rows, read_rows
from milkrun.core.errors import Closed
from milkrun.core.fields import Field, Role
from milkrun.core.interrupts import undisturbed
from milkrun.core.launcher import DUE
from milkrun.core.memory import Memory
from milkrun.core.record import INSTANCES

Beginning = tuple[np.ndarray, np.ndarray, dict[str, Any], dict[str, Any]]
"""Episodes that begin, so that an interrupted beginning can be done again: the rows, what their streams become, the
fields that tell of the step before and not of the new episode, what becomes of the world's own attributes."""


class Episodes(Memory):
    """Rows that begin, end and begin again."""

    figure_fields: ClassVar[tuple[str, ...]] = ()  # what `figures` reads of an ended row, beside steps and objective
    amends_instances: bool = False  # Python has a say in what is drawn: slow, for laws given as a callable

    i: Any  # these three fields are declared by World
    done: Any
    stream: Any
    observed: list[Field]
    _mask: Field | None
    final: dict[str, np.ndarray]
    final_rows: np.ndarray
    _beginning: Beginning | None
    _all_fresh: bool
    _closed: bool
    _mode: int
    _all_stale: bool  # views on demand: outdated in every row, whatever `_stale` says
    _stale: np.ndarray  # ... in these rows

    def place_instances(self, rows: np.ndarray) -> None:
        """Python's say before the kernel `generate`, which finds in the instance fields what is put there."""

    def amend_instances(self, rows: np.ndarray) -> None:
        """Python's say on what the kernel has drawn; raises BadInstance to refuse it."""

    @property
    def info_fields(self) -> list[Field]:
        """What a binding tells in `info`: the objective, the steps and the views that are not observed."""
        views = [f for f in self.fields.values() if f.role is Role.VIEW and not f.observed and not f.on_demand]
        return [self.fields["objective"], self.fields["i"], *(f for f in views if f.name not in ("reward", "done"))]

    def _begin(self, rows: np.ndarray) -> None:
        drawn = rows[~self.given[rows]] if self._some_given else rows
        if len(drawn):
            self._draw_rows(drawn)
        self._run(self._launcher.restart, rows)
        self._outdate(rows)

    def _outdate(self, rows: np.ndarray) -> None:
        """What views on demand show of these rows is no longer so."""
        if rows is self._all:
            self._all_stale = True
        elif not self._all_stale and self._launcher.observe is not None:
            self._stale[rows] = True

    def _make_views(self, rows: np.ndarray) -> None:
        """Brings the views on demand of these rows up to date, where they are not. A row counts as outdated until its
        views are made, so an interrupt costs another look and no more."""
        if self._all_stale:
            self._stale[:] = True
            self._all_stale = False
        due = rows[self._stale[rows]]
        if len(due):
            self._run(self._launcher.observe, due)  # type: ignore[arg-type]
            self._stale[due] = False

    def _draw_rows(self, rows: np.ndarray) -> None:
        """Draws the instances of these rows; if Python refuses, they keep those that they have."""
        if not self.amends_instances:
            self._run(self._launcher.generate(self._table), rows)
            return
        drawn, owned = self._with_role(Role.INSTANCE), self.instance_row[rows]
        before = [getattr(self, f.name)[owned] for f in drawn]
        try:
            self.place_instances(rows)
            self._run(self._launcher.generate(self._table), rows)
            self.amend_instances(rows)
        except BaseException:
            for f, array in zip(drawn, before, strict=True):
                getattr(self, f.name)[owned] = array
            raise

    def _begin_recorded(self) -> None:
        """Begins the episodes on record. Nothing here reads what it has written: interrupted, it is done again from its
        start, and the record goes last."""
        rows, keys, told, attributes = self._beginning  # type: ignore[misc]
        self.stream[rows] = keys
        self._begin(rows)
        if told:  # of a step before, or of a reset
            for name, values in told.items():
                getattr(self, name)[rows] = values
            vars(self).update(attributes)
        self._beginning, self._ready = None, self._all_fresh

    def _record_due(self, chosen: np.ndarray) -> None:
        """NEXT_STEP: the turn of rows that had ended is the reset of their next episode."""
        due = (self.i == DUE).nonzero()[0] if chosen is self._all else chosen[self.i[chosen] == DUE]
        keys = self.stream.take(due, 0)
        keys[:, 2] += 1
        self._ready, self._beginning = False, (due, keys, {}, {})

    def _record_ended(self, rows: np.ndarray) -> None:
        """SAME_STEP: what the ended rows showed last is kept, and their next episode begins."""
        if self._launcher.observe is not None:
            self._run(self._launcher.observe, rows)
        kept = [*self.observed, *self.info_fields]
        if self._mask is not None:
            kept.append(self._mask)
        kept += [self.fields[name] for name in self.figure_fields]
        played = self.instance_row[rows]
        final = {f.name: getattr(self, f.name)[played if f.role is Role.INSTANCE else rows] for f in kept}
        told = {name: getattr(self, name)[rows] for name in ("reward", "terminated", "truncated", "done", "illegal")}
        keys = self.stream.take(rows, 0)
        keys[:, 2] += 1
        self._ready, self._beginning = False, (rows, keys, told, {"final": final, "final_rows": rows})

    def _complete(self, stepped: np.ndarray | None = None) -> None:
        """After an interrupt or an error in the midst of a step or a reset: does what is left of it, undisturbed.

        What a step left undone shows in the rows: their next episode is due, or they have ended after a step or more
        (a row that begins anew in the same step keeps the flags of its end, but has made none). A law of the user's is
        not asked again here, it may be what was interrupted: the next call begins with it.
        """
        with undisturbed():
            if stepped is not None and self._beginning is None:
                self._some_ended = True
                if self._mode == 1 and (self.i[stepped] == DUE).any():
                    self._record_due(stepped)
                elif self._mode == 2:
                    ended = stepped[self.done[stepped] & (self.i[stepped] > 0)]
                    if len(ended):
                        self._record_ended(ended)
                    elif not self.done[stepped].any():
                        self.final, self.final_rows = {}, self.final_rows[:0]
            if self._beginning is not None and not self.amends_instances:
                with suppress(Exception):  # the first error is on its way already
                    self._begin_recorded()

    def _settle(self, rows: Rows) -> np.ndarray:
        """The named rows, before they are given something else: an unfinished beginning of theirs is let go, that of
        others is finished first."""
        if self._closed:
            self._open()
        chosen = self._rows(rows)
        if self._beginning is not None:
            begun, keys = self._beginning[:2]
            if np.isin(begun, chosen).all():
                # What is let go has used its number: a reset without a seed counts on from it.
                self.stream[begun] = keys
            else:
                self._open()
        return chosen

    def _change_instances(self, given: Any, rows: np.ndarray, whole: bool) -> None:
        if given is not None:
            self._adopt(given, rows, whole=whole)
            return
        self._lay_instances(self.num_envs)
        self.given[:] = False
        self._some_given = False
        self.instance_row[:] = self._all

    def _instances_kept(self) -> dict[str, Any]:
        """What `_change_instances` drops, to put it back where a law refuses to draw. Arrays of another count are
        replaced and not written to, so they need no copy; `_draw_rows` puts values back itself."""
        own = {f.name: getattr(self, f.name) for f in self._with_role(Role.INSTANCE)}
        return {
            **own,
            "given": self.given.copy(),
            "instance_row": self.instance_row.copy(),
            "_some_given": self._some_given,
            "_num_instances": self._num_instances,
        }

    def _put_back_instances(self, kept: dict[str, Any]) -> None:
        """Undoes `_change_instances`."""
        for name in ("given", "instance_row"):
            getattr(self, name)[:] = kept.pop(name)
        vars(self).update(kept)
        self._table[INSTANCES] = self._num_instances
        for f in self._with_role(Role.INSTANCE):
            self._launcher_layout.put(self._table, f.name, kept[f.name])
        self.laid += 1

    def _open(self) -> None:
        if self._closed:
            raise Closed(f"this {type(self).__name__} has been closed")
        if self._beginning is not None:
            self._begin_recorded()

    def own_rows(self, first: int, last: int | None = None) -> np.ndarray:
        """The numbers of the rows first..last-1, or of one: a slice of the world's own, which its methods take for
        `rows` without looking at each. For whoever plays single rows in microseconds."""
        return self._all[first : first + 1 if last is None else last]

    def _rows(self, rows: Rows) -> np.ndarray:
        if rows is None:
            return self._all
        # A slice of the world's own numbers is in range and names no row twice.
        if type(rows) is np.ndarray and rows.base is self._all and rows.dtype == np.int64 and rows.ndim == 1:
            return np.ascontiguousarray(rows)
        return read_rows(rows, self.num_envs)
