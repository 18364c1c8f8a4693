"""States in and out of a world: `state_dict`, `load_state_dict`, and the checks of states that come from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from milkrun.core.arguments import Rows
from milkrun.core.episodes import Episodes
from milkrun.core.fields import Role
from milkrun.core.instances import Given, check_saved, read_saved, refuse_fault, refuse_where
from milkrun.core.memory import address_of
from milkrun.core.record import INSTANCES, ROWS


class Saving(Episodes):
    """Rows that are saved and loaded."""

    terminated: Any  # declared by World
    truncated: Any
    faults: ClassVar[Mapping[int, tuple[str, str]]] = {}
    """Meanings of the codes of the kernel `fault`: a field, and the rule that it breaks, in which `{capacity}` stands
    for the value of that field."""

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        """Hook for rules between the state of rows and the instances they play, both with the row first; raises
        BadInstance. Shapes, dtypes and bounds have been validated."""

    def rows_written(self, rows: np.ndarray) -> None:
        """Hook after the fields of these rows were written from outside, for engines that keep a copy of them."""

    def state_dict(self, rows: Rows = None) -> dict[str, np.ndarray]:
        """Copies of all that the named rows are, enough to continue them bit for bit."""
        chosen = self._rows(rows)
        self._refuse_interrupted(chosen)
        kept = self._with_role(Role.STATE, Role.MASK, Role.VIEW, Role.KEY)
        saved = {f.name: getattr(self, f.name)[chosen] for f in kept}
        if rows is None:
            saved |= {f.name: getattr(self, f.name).copy() for f in self._with_role(Role.INSTANCE)}
        else:
            saved |= {f.name: getattr(self, f.name)[self.instance_row[chosen]] for f in self._with_role(Role.INSTANCE)}
            saved["instance_row"] = np.arange(len(chosen), dtype=np.int32)
        return saved

    def load_state_dict(self, saved: Mapping[str, np.ndarray], rows: Rows = None) -> None:
        """Puts rows back to what `state_dict` saved of as many rows."""
        self._check_open()
        chosen = self._rows(rows)
        arrays, given = read_saved(self, saved, len(chosen))
        check_saved(self, self._as_next_step_reads(arrays), given, known=self._plays(given, chosen))
        self._changing = chosen
        self._adopt(given, chosen, whole=rows is None)
        self.write_rows(arrays, chosen)

    def write_rows(self, arrays: Mapping[str, np.ndarray], rows: np.ndarray) -> None:
        """Overwrites fields of rows with values that have been validated."""
        self._changing = rows
        for name, array in arrays.items():
            getattr(self, name)[rows] = array
        self.rows_written(rows)
        self._some_ended = True
        self._outdate(rows)
        self._set_playable(rows)
        self._changing = None

    def check_own_states(self) -> None:
        """Raises BadInstance if this world would refuse its own rows: see `check_states` and `faults`."""
        fields = self._with_role(Role.STATE, Role.MASK, Role.VIEW, Role.KEY, Role.INSTANCE)
        self.check_states({f.name: self._field_of_rows(f.name) for f in fields if f.name != "instance_row"})
        found = self._launcher.first_fault(self._table_address, self._all_address, self.num_envs)
        if found is not None:
            refuse_fault(self, *found, lambda name: self._field_of_rows(name)[found[0]])
        if self._mask is not None:
            self._refuse_mask(self._table.copy(), self.action_mask, self.terminated | self.truncated)

    def refuse_faults(self, arrays: Mapping[str, np.ndarray], given: Given) -> None:
        """Runs the kernels `fault` and `derive_mask` on rows in the caller's memory, before a world adopts them; raises
        BadInstance for an impossible state and for a mask that contradicts its state."""
        owner, order, table = given.instance_row, np.arange(len(arrays["i"])), self._table.copy()
        table[ROWS], table[INSTANCES] = len(order), len(next(iter(given.arrays.values()), order))
        # Fields that are not put here (constants, scratch) stay the world's own.
        for name, array in {**arrays, **given.arrays, "instance_row": owner}.items():
            self._launcher_layout.put(table, name, array)
        found = self._launcher.first_fault(address_of(table), address_of(order), len(order))
        if found is not None:
            row, code = found
            plays = {**arrays, **{name: array[owner] for name, array in given.arrays.items()}}
            refuse_fault(self, row, code, lambda name: plays[name][row])
        if self._mask is not None:
            self._refuse_mask(table, arrays["action_mask"], arrays["terminated"] | arrays["truncated"])

    def _refuse_mask(self, table: np.ndarray, mask: np.ndarray, ended: np.ndarray) -> None:
        """Compares the masks of live rows with those that the kernel `derive_mask` writes; changes the table. A world
        without that kernel accepts every mask."""
        marker = self.marker()
        if marker is None:
            return
        derived, live = mask.copy(), np.flatnonzero(~ended)
        self._launcher_layout.put(table, "action_mask", derived)
        marker.serial(address_of(table), address_of(live), 0, len(live), 0)
        wrong = derived != mask
        refuse_where("action_mask", mask, wrong & mask, "the state does not allow this action")
        refuse_where("action_mask", mask, wrong, "the state allows this action")

    def _as_next_step_reads(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Saved rows as the next step reads them. Under same_step the flags describe the episode before: the row has
        begun the next one, and must be playable."""
        if self._mode != 2:
            return arrays
        ended = arrays["terminated"] | arrays["truncated"]
        refuse_where(
            "i",
            arrays["i"],
            ended & (arrays["i"] > 0),
            "the episode is over, and a world with autoreset='same_step' begins the next one in the step that ends one",
        )
        return {**arrays, "terminated": np.zeros_like(ended), "truncated": np.zeros_like(ended)}

    def _plays(self, given: Given, rows: np.ndarray) -> bool:
        """Whether these rows play exactly these instances, which then need no second validation."""
        here, there = self.instance_row[rows], given.instance_row
        return all((array[there] == getattr(self, name)[here]).all() for name, array in given.arrays.items())

    def _field_of_rows(self, name: str) -> np.ndarray:
        """A field with the row first: of an instance field, the instance that each row plays."""
        array: np.ndarray = getattr(self, name)
        return array[self.instance_row] if self.fields[name].role is Role.INSTANCE else array
