"""The arrays of a world, the table through which kernels access them, and running compiled code over rows.

Every declared field gets its memory here, once, and keeps it.
Only instance arrays may be replaced, when the number of instances changes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from ctypes import addressof, c_char
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from milkrun.core.actions import Action
from milkrun.core.config import Config
from milkrun.core.errors import ConfigError, did_you_mean
from milkrun.core.fields import Field, Role, declared_fields
from milkrun.core.hooks import bind, kernels_of, playable, require_kernel
from milkrun.core.instances import Given
from milkrun.core.interrupts import undisturbed
from milkrun.core.launcher import NO_LIMIT, Launcher, build_launcher, build_marker, build_player, build_row_map
from milkrun.core.record import INSTANCES, RecordLayout
from milkrun.core.threads import Entry, chunks_for

MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
ATTRIBUTES = frozenset(
    "num_envs config seed first_row autoreset illegal_rule threads debug sizes groups observed final final_rows spec "
    "instance_version".split()
)
"""Instance attributes of every world; no field may have these names."""
ADDRESSES = frozenset("_launcher_layout _launcher _table _table_address _all_address _actions_address".split())
"""Attributes that a copy of a world must not share with it, since kernels write to these addresses."""

_BUFFER: Any = c_char.from_buffer
SLOT_ALIGNMENT = 128
"""Bytes of two cache lines: the alignment of each thread's work space."""


class Memory:
    """Memory of the fields, for `num_envs` rows."""

    Config: ClassVar[type] = Config
    action: ClassVar[Action]
    usual: ClassVar[Mapping[str, int]] = {}
    """Usual values of constants that choose among laws of instances. Worlds with these values do not compile the other
    laws. Sizes that are 0 by default are added."""
    parallel_from: ClassVar[int] = 1024  # rows from which several threads are faster; measured for cheap steps
    fields: ClassVar[dict[str, Field]] = {}

    num_envs: int
    config: Any
    threads: int | None
    debug: bool | str  # as `arguments.read_debug` returns it
    given: Any  # these three fields are declared by World
    instance_row: Any
    stream: Any
    instance_version: int  # goes up when instances are given, and when their arrays are replaced
    action_mask: Any  # declared by every world whose actions are not a box; else absent, or of size 0

    _launchers: ClassVar[dict[bool | str, tuple[RecordLayout, Launcher]]] = {}  # by the value of `debug`
    _row_maps: ClassVar[dict[Any, Entry]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {name for name, value in vars(cls).items() if isinstance(value, Field)}
        taken = own & ATTRIBUTES
        for base in cls.__mro__[1:]:
            taken |= {name for name in own & set(vars(base)) if not isinstance(vars(base)[name], Field)}
        for name in sorted(taken):
            raise ConfigError(f"{cls.__name__} declares a field {name!r}: that name is a part of every World")
        cls.fields = declared_fields(cls)
        cls._launchers = {}
        cls._row_maps = {}

    @classmethod
    def bind(cls, **kernels: Any) -> None:
        """Sets the kernels of this class, in one statement below them: `Van.bind(generate=generate, ...)`. Others are
        inherited. `core/hooks.py` lists the hooks."""
        bind(cls, kernels)

    @classmethod
    def size_of(cls, config: Any) -> dict[str, int]:
        """The value of each named dimension under a configuration; 0 disables fields."""
        return {}

    @classmethod
    def variant(cls, config: Any) -> Any:
        """The class for a configuration, where one id stands for several classes with different fields or kernels."""
        return cls

    def constants(self) -> dict[str, Any]:
        """Values of the declared constants; those not named here are read from options of the same name."""
        return {}

    @classmethod
    def auto_max_steps(cls, config: Any) -> int:
        """The step limit behind max_steps="auto"."""
        raise ConfigError(f"{cls.__name__} has no automatic max_steps: give a number or None")

    def allocate(self, field: Field, shape: tuple[int, ...]) -> np.ndarray:
        """Allocates a field; a world on foreign memory returns views of it for fields declared `strided`."""
        return np.zeros(shape, field.dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ADDRESSES}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Gives the kernels of a copy its own memory, also in another process."""
        vars(self).update(state)
        self._find_kernels()
        for name in self.fields:
            if name in state:
                self._launcher_layout.put(self._table, name, state[name])

    @property
    def num_instances(self) -> int:
        """Rows of the instance fields; fewer than `num_envs` where rows share instances."""
        return self._num_instances

    @property
    def bytes_per_row(self) -> float:
        """Bytes of all fields, divided by the number of rows."""
        return sum(getattr(self, f.name).nbytes for f in self.fields.values() if f.per_row) / self.num_envs

    def map_rows(
        self, function: Any, dtype: Any = np.int64, x: int = 0, y: int = 0, rows: np.ndarray | None = None
    ) -> np.ndarray:
        """The values of function(w, b, x, y), a @kernel, in every row or in the named ones (int64). Policies, reports
        and the work between two calls of an engine are made of it."""
        key = function, np.dtype(dtype), self.debug
        entry = self._row_maps.get(key)
        if entry is None:
            require_kernel("map_rows", function, ("w", "b", "x", "y"))
            entry = build_row_map(self._launcher_layout, function, np.dtype(dtype), debug=self.debug)
            self._row_maps[key] = entry
        rows = self._all if rows is None else rows
        out = np.empty(len(rows), dtype)
        self._run(entry, rows, address_of(out), int(x), int(y))
        return out

    def _player(self, choose: Any) -> Entry:
        key = choose, self.debug
        entry = self._row_maps.get(key)
        if entry is None:
            kernels = kernels_of(type(self))
            entry = build_player(self._launcher_layout, self.action, kernels, choose, debug=self.debug)
            self._row_maps[key] = entry
        return entry

    def marker(self) -> Entry | None:
        """The compiled hook `derive_mask` (table, rows), None for a world without it."""
        mark = kernels_of(type(self)).get("derive_mask")
        if mark is None:
            return None
        key = mark, self.debug
        if key not in self._row_maps:
            self._row_maps[key] = build_marker(self._launcher_layout, mark, debug=self.debug)
        return self._row_maps[key]

    @classmethod
    def _launcher_for(cls, debug: bool | str) -> tuple[RecordLayout, Launcher]:
        if debug not in cls._launchers:
            cls._launchers[debug] = cls._build(debug)
        return cls._launchers[debug]

    @classmethod
    def _build(cls, debug: bool | str) -> tuple[RecordLayout, Launcher]:
        sizes = cls.size_of(cls.Config())
        if clash := sorted(set(sizes) & set(cls.fields)):
            raise ConfigError(f"{cls.__name__} has a size and a field of the same name: {', '.join(clash)}")
        layout = RecordLayout(cls.fields, list(sizes), cls.__name__)
        usual = {**cls.usual, **{name: 0 for name, size in sizes.items() if size == 0}} if cls.usual else {}
        return layout, build_launcher(layout, cls.action, playable(cls), {} if debug else usual, debug=debug)

    @cached_property
    def _row_bytes(self) -> int:
        fields = [f for f in self.fields.values() if f.per_row and not f.on_demand]
        return sum(f.dtype.itemsize * math.prod(f.shape(self.sizes)) for f in fields)

    def check_memory(self, rows: int) -> None:
        """Raises ConfigError for more rows than the machine has memory for; called before any is allocated."""
        needed = rows * self._row_bytes
        if needed > MEMORY:
            raise ConfigError(
                f"{rows} rows of {self._row_bytes:,} bytes need {needed / 1e9:,.0f} GB, and this machine "
                f"has {MEMORY / 1e9:,.0f} GB: take fewer rows (num_envs, batch_size)"
            )

    def _allocate(self) -> None:
        self.check_memory(self.num_envs)
        self._all = np.arange(self.num_envs, dtype=np.int64)
        self._actions = np.zeros((self.num_envs, *self.action.shape(self.sizes)), self.action.dtype)
        self._num_instances = self._scratch_slots = 0
        self._some_given = False  # a row may play a given instance; only a hint that saves looking
        self.instance_version = 0
        self._find_kernels()
        for f in self.fields.values():
            f.bounds(self.sizes)  # raises for a bound that names no size
        per_row = [f for f in self.fields.values() if f.per_row and f.role is not Role.INSTANCE]
        self._allocate_fields(per_row, self.num_envs)
        self._resize_instances(self.num_envs)
        self.instance_row[:] = self._all
        choices = self.action.nvec(self.sizes)
        if choices and ("action_mask" not in self.fields or self.action_mask.shape[1:] != (sum(choices),)):
            raise ConfigError(f"{type(self).__name__}: action_mask must have one entry for each of {choices} choices")
        for name, number in self._numbers().items():
            if number is None:
                raise ConfigError(
                    f"{type(self).__name__}: the constant {name!r} has no value: give the "
                    f"configuration an option {name!r}, or name it in constants()"
                )
            f = self.fields[name]
            if f.dims:
                number = np.ascontiguousarray(number, f.dtype)
                if number.shape != f.shape(self.sizes):
                    raise ConfigError(
                        f"{type(self).__name__}: the constant {name!r} has the shape {number.shape}, "
                        f"not {f.shape(self.sizes)}"
                    )
            setattr(self, name, number)
            self._launcher_layout.put(self._table, name, number)
        self._grow_scratch(1)

    def _find_kernels(self) -> None:
        """Finds the code that runs, and makes a table with the sizes; fields are added when they are allocated."""
        self._launcher_layout, self._launcher = self._launcher_for(self.debug)
        self._table = self._launcher_layout.table(self.num_envs, self._num_instances, self.sizes)
        self._table_address = address_of(self._table)
        self._all_address = address_of(self._all)
        self._actions_address = address_of(self._actions)

    def _numbers(self) -> dict[str, Any]:
        """The value of every declared constant."""
        limit = self.config.max_steps
        if limit == "auto":
            limit = self.auto_max_steps(self.config)
        declared = [f.name for f in self.fields.values() if f.role is Role.CONSTANT]
        numbers: dict[str, Any] = {name: getattr(self.config, name, None) for name in declared}
        numbers["max_steps"] = NO_LIMIT if limit is None else limit
        numbers["reward_at_end"] = getattr(self.config, "reward", "dense") == "terminal"
        named = self.constants()
        for name in named:
            if name not in numbers:
                raise ConfigError(
                    f"{type(self).__name__}.constants() names {name!r}, which is no declared constant"
                    f"{did_you_mean(name, declared)}"
                )
        return numbers | named

    def _allocate_fields(self, fields: list[Field], rows: int) -> None:
        self._put_arrays({f.name: self._allocated(f, rows) for f in fields})

    def _put_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        """Makes these arrays the memory of fields. An interrupt in between would free memory that the table still
        names, and kernels would write there."""
        with undisturbed():
            for name, array in arrays.items():
                setattr(self, name, array)
                self._launcher_layout.put(self._table, name, array)

    def _allocated(self, f: Field, rows: int) -> np.ndarray:
        shape = (rows, *f.shape(self.sizes))
        array = self.allocate(f, shape)
        if array.dtype != f.dtype or array.shape != shape or not (f.strided or array.flags.c_contiguous):
            wanted = f"{f.dtype} {shape}" + ("" if f.strided else ", contiguous (or declared strided)")
            raise ConfigError(
                f"allocate gave {f.name} as {array.dtype} {array.shape}, strides {array.strides}; it must be {wanted}"
            )
        return array

    def _resize_instances(self, count: int) -> None:
        if self._num_instances == count:
            return
        self._allocate_fields(self._with_role(Role.INSTANCE), count)
        self._num_instances = count
        self._table[INSTANCES] = count
        self.instance_version += 1

    def _grow_scratch(self, slots: int) -> None:
        if slots > self._scratch_slots:
            fields = self._with_role(Role.SCRATCH)
            self._put_arrays({f.name: padded_slots(f.dtype, slots, f.shape(self.sizes)) for f in fields})
            self._scratch_slots = slots

    def _with_role(self, *roles: Role) -> list[Field]:
        return [f for f in self.fields.values() if f.role in roles and not f.on_demand]

    def _chunks(self, rows: int) -> int:
        chunks = chunks_for(rows, self.parallel_from, self.threads)
        if chunks > self._scratch_slots:
            self._grow_scratch(chunks)
        return chunks

    def _may_spread(self) -> bool:
        """Whether a call of all rows may run in several threads."""
        return self.threads != 1 and self.num_envs >= (self.parallel_from if self.threads is None else 2)

    def _run(self, entry: Entry, rows: np.ndarray, *args: int) -> int:
        n = len(rows)
        chunks = 1 if n < self.parallel_from and self.threads is None else self._chunks(n)
        return entry.run((self._table_address, address_of(rows), *args), n, chunks)

    def _adopt(self, given: Given, rows: np.ndarray, *, whole: bool) -> None:
        """Writes validated instances: a whole reset may share instance rows; a partial one gives each row its own.

        An interrupt in between would leave rows that play an instance which does not exist.
        """
        with undisturbed():
            arrays, owner = given
            target: Any = rows
            if whole:
                shared = owner is not None and arrays
                self._resize_instances(len(next(iter(arrays.values()))) if shared else self.num_envs)
                self.instance_row[:] = self._all if owner is None else owner
                target = slice(None)
            else:
                if self.num_instances != self.num_envs or (self.instance_row != self._all).any():
                    self._unshare()
                if owner is not None:
                    arrays = {name: array[owner] for name, array in arrays.items()}
            for name, array in arrays.items():
                getattr(self, name)[target] = array
            self.given[rows] = self._some_given = True
            self.instance_version += 1

    def _unshare(self) -> None:
        """Gives every row an instance row of its own."""
        # Copies, before the arrays that they are taken from are replaced.
        own = {f.name: getattr(self, f.name)[self.instance_row] for f in self._with_role(Role.INSTANCE)}
        self._resize_instances(self.num_envs)
        for name, array in own.items():
            getattr(self, name)[:] = array
        self.instance_row[:] = self._all

    def _forget_given(self) -> None:
        """Gives every row an instance row of its own, to be drawn."""
        if self._some_given or self.num_instances != self.num_envs:
            with undisturbed():
                self._resize_instances(self.num_envs)
                self.given[:] = False
                self._some_given = False
                self.instance_row[:] = self._all
                self.instance_version += 1

    def _undo_of_draw(self, rows: np.ndarray) -> Callable[[], None]:
        """A function that restores the keys of these rows and all that `_forget_given` and a draw change."""
        keys, owned = self.stream[rows], self.instance_row[rows]
        # Arrays of another length are replaced and not written to, so the values of these rows are all that is needed.
        arrays = {f.name: getattr(self, f.name) for f in self._with_role(Role.INSTANCE)}
        values = {name: array[owned] for name, array in arrays.items()}
        given, instance_row = self.given.copy(), self.instance_row.copy()
        some_given, count = self._some_given, self._num_instances

        def undo() -> None:
            with undisturbed():
                self._put_arrays(arrays)
                for name, array in arrays.items():
                    array[owned] = values[name]
                self.stream[rows] = keys
                self.given[:] = given
                self.instance_row[:] = instance_row
                self._some_given = some_given
                self._num_instances = count
                self._table[INSTANCES] = count
                self.instance_version += 1

        return undo

    sizes: dict[str, int]


def padded_slots(dtype: np.dtype, slots: int, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros of (slots, *shape), padded against false sharing between threads: no two slots touch the same pair of cache
    lines, since processors prefetch the neighbour of a line."""
    inner = np.empty(shape, dtype)
    width = -(-max(inner.nbytes, 1) // SLOT_ALIGNMENT) * SLOT_ALIGNMENT
    # One more slot leaves room to begin at a multiple of SLOT_ALIGNMENT.
    memory = np.zeros((slots + 1) * width, np.uint8)
    start = -address_of(memory) % SLOT_ALIGNMENT
    return np.ndarray((slots, *shape), dtype, memory, start, (width, *inner.strides))


def address_of(array: np.ndarray) -> int:
    """The address of an array."""
    try:
        return addressof(_BUFFER(array))  # four times as fast as the array interface
    except (TypeError, ValueError, BufferError):  # the array is read-only, empty or not contiguous
        return int(array.__array_interface__["data"][0])
