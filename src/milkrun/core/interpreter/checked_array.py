"""Arrays of interpreted kernels: numpy's memory, with every access checked.

An index must be in range and not negative, and a value must fit the type. A row may access only its own state and its
own instance, `generate` alone writes an instance, and scratch is written before it is read. A part of an array
(`w.locs[q]`, `w.tour[b, :n]`) is checked in the same way and remembers its origin.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from milkrun.core.interpreter.faults import fault
from milkrun.core.interpreter.scalars import as_scalar

NO_ROWS, ROW, INSTANCE = 0, 1, 2
"""What the first axis counts: no rows, rows, instance rows."""
WRITABLE, GENERATE_ONLY, CONSTANT, READ_ONLY = 0, 1, 2, 3
"""Which kernels may write: all, `generate` alone, none, none while `fault` validates a state."""

_ENDS = {kind: (int(np.iinfo(kind).min), int(np.iinfo(kind).max)) for kind in "i1 i2 i4 i8 u1 u2 u4 u8".split()}


class ActiveRow:
    """The row that is played, the instance row it plays, and whether `generate` runs."""

    __slots__ = ("generating", "own", "row")

    def __init__(self) -> None:
        self.row: int | None = None
        self.own: tuple[int | None, int | None, int | None] = (None, None, None)  # by NO_ROWS, ROW, INSTANCE
        self.generating = False


class CheckedArray:
    """An array that kernels read and write."""

    __slots__ = ("_access", "_active", "_axis", "_data", "_name", "_origin", "_written", "ndim", "shape")
    __array_ufunc__ = None  # a numpy number beside a whole row: `_refuse_arithmetic` below

    def __init__(
        self,
        data: np.ndarray,
        name: str,
        active: ActiveRow,
        *,
        axis: int = NO_ROWS,
        access: int = WRITABLE,
        written: np.ndarray | None = None,
        origin: tuple[CheckedArray, tuple[Any, ...]] | None = None,
    ) -> None:
        self._data = data
        self._name = name
        self._active = active
        self._axis = axis
        self._access = access
        self._written = written
        self._origin = origin  # the array that this is a part of, and its index there
        self.shape = data.shape
        self.ndim = data.ndim

    # -- reading --------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        key, single = self._resolve(index)
        self._check_row(key, "reads")
        return self._element(key) if single else self._part(key)

    def _element(self, key: tuple[int, ...]) -> Any:
        if self._written is not None and not self._written[key]:
            raise fault(
                f"{self._at(key)} is scratch that this row has not written yet: its value is left over from "
                f"another row",
                field=self._name,
            )
        return as_scalar(self._data[key])

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(self.shape[0]))

    @property
    def size(self) -> int:
        return int(self._data.size)

    @property
    def dtype(self) -> np.dtype:
        return self._data.dtype

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self._data, dtype)

    @property
    def flat(self) -> Iterator[Any]:
        """The elements in C order."""
        return (self[key] for key in np.ndindex(*self.shape))

    def __getattr__(self, name: str) -> Any:
        """The attributes and methods of numpy's arrays that give a number: sum, mean, argmax and more."""
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"arrays have no {name!r}")
        shown = f"{self.label}.{name}"
        found = getattr(self.read_whole(), name)
        if not callable(found):
            return self.as_scalar(found, shown)
        return lambda *args, **named: self.as_scalar(found(*args, **named), f"{shown}()")

    def as_scalar(self, value: Any, shown: str) -> Any:
        """A number computed from this array; integers of every type become Python's."""
        if isinstance(value, np.ndarray):
            raise fault(f"{shown} makes an array: kernels allocate nothing; write a loop", field=self._name)
        return as_scalar(value.item() if isinstance(value, np.integer) else value)

    def read_whole(self) -> np.ndarray:
        """All elements, read-only; refused if one of them must not be read."""
        if self._axis:
            self._check_row((slice(None),), "reads")
        if self._written is not None and not self._written.all():
            self._element(tuple(np.argwhere(~self._written)[0].tolist()))
        data = self._data.view()
        data.flags.writeable = False
        return data

    def __float__(self) -> float:
        raise fault(f"it uses the whole row {self.label} as a number: write a loop", field=self._name)

    __int__ = __float__

    def __repr__(self) -> str:
        return f"{self.label} = {self._data!r}"

    def __str__(self) -> str:
        return str(self._data)

    # -- writing --------------------------------------------------------------------------------------------------

    def __setitem__(self, index: Any, value: Any) -> None:
        key, single = self._resolve(index)
        self._check_row(key, "writes")
        self._check_access(key)
        if not single:
            self._part(key).assign(value)
            return
        self._data[key] = self._fitted(value, key)
        if self._written is not None:
            self._written[key] = True

    def fill(self, value: Any) -> None:
        self[...] = value

    def assign(self, value: Any) -> None:
        """Writes one number to all elements, or an array of the same shape."""
        if isinstance(value, CheckedArray):
            if value.shape != self.shape:
                raise fault(
                    f"{self.label} has the shape {self.shape}, what is written there {value.shape}", field=self._name
                )
        for key in np.ndindex(*self.shape):
            self[key] = value[key] if isinstance(value, CheckedArray) else value

    # -- checks ---------------------------------------------------------------------------------------------------

    def _resolve(self, index: Any) -> tuple[tuple[Any, ...], bool]:
        """The index as a tuple of ints and slices, all in range, and whether it is that of a single element."""
        key = index if type(index) is tuple else (index,)
        if len(key) == self.ndim:
            for k, extent in zip(key, self.shape):
                if type(k) is not int or not 0 <= k < extent:
                    break
            else:
                return key, True
        key = self._indices(key)
        return key, len(key) == self.ndim and slice not in map(type, key)

    def _indices(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """The index as Python's ints and slices; refused unless each is in range."""
        if len(key) > len(self.shape):
            raise fault(f"{self.label} has {len(self.shape)} axes and got {len(key)} indices", field=self._name)
        clean: list[Any] = []
        if key[-1:] == (Ellipsis,):
            key = (*key[:-1], *(slice(None) for _ in range(len(self.shape) - len(key) + 1)))
        for k, extent in zip(key, self.shape):
            if isinstance(k, slice):
                if any(end is not None and end < 0 for end in (k.start, k.stop, k.step)):
                    raise fault(
                        f"{self._at(key)}: a slice that counts from the end, of shape {self.shape}", field=self._name
                    )
                clean.append(slice(*(None if end is None else int(end) for end in (k.start, k.stop, k.step))))
                continue
            if not isinstance(k, (int, np.integer, np.bool_)):
                raise fault(f"{self._at(key)}: an index must be a whole number, not {_shown(k)}", field=self._name)
            if k < 0:
                raise fault(
                    f"{self._at(key)}: the index {int(k)} is negative; the shape is {self.shape}", field=self._name
                )
            if k >= extent:
                raise fault(
                    f"{self._at(key)}: the index {int(k)} is out of range; the shape is {self.shape}", field=self._name
                )
            clean.append(int(k))
        return tuple(clean)

    def _check_row(self, key: tuple[Any, ...], verb: str) -> None:
        own = self._active.own[self._axis]
        if not self._axis or key[0] == own or self._active.row is None:
            return
        kind = "row" if self._axis == ROW else "instance row"
        raise fault(f"it {verb} {self._at(key)}, but plays {kind} {own}: rows are independent", field=self._name)

    def _check_access(self, key: tuple[Any, ...]) -> None:
        if self._access == CONSTANT:
            raise fault(f"it writes {self._at(key)}, a constant of the configuration", field=self._name)
        if self._access == READ_ONLY:
            raise fault(f"it writes {self._at(key)}, but `fault` only reads a state", field=self._name)
        if self._access == GENERATE_ONLY and self._active.row is not None and not self._active.generating:
            raise fault(f"it writes {self._at(key)}, which only generate may write", field=self._name)

    def _fitted(self, value: Any, key: tuple[Any, ...]) -> Any:
        """The value in the array's type; refused if it does not fit."""
        dtype = self._data.dtype
        if dtype.kind == "f":
            number = float(value)
            held = dtype.type(number)
            if math.isinf(held) and not math.isinf(number):
                raise fault(f"{self._at(key)} = {number!r} does not fit {dtype}", field=self._name)
            return held
        if dtype.kind == "b":
            if isinstance(value, int) and value in (-1, -2):
                raise fault(
                    f"{self._at(key)} = {int(value)}, which Python makes of the ~ of a bool: write `not`",
                    field=self._name,
                )
            return bool(value)
        if isinstance(value, (float, np.floating)):
            if not value.is_integer():  # nan and inf included; compiled code would truncate silently
                cut = "; int(...) would cut it off" if math.isfinite(value) else ""
                raise fault(
                    f"{self._at(key)} = {float(value)!r}: no whole number, as its type {dtype} needs{cut}",
                    field=self._name,
                )
        whole, (low, high) = int(value), _ENDS[dtype.str[1:]]
        if not low <= whole <= high:
            raise fault(f"{self._at(key)} = {whole} does not fit {dtype} ({low}..{high})", field=self._name)
        return whole

    # -- parts ----------------------------------------------------------------------------------------------------

    def _part(self, key: tuple[Any, ...]) -> CheckedArray:
        axis = self._axis if type(key[0]) is slice else NO_ROWS
        written = None if self._written is None else self._written[key]
        return CheckedArray(
            self._data[key],
            self._name,
            self._active,
            axis=axis,
            access=self._access,
            written=written,
            origin=(self, key),
        )

    @property
    def label(self) -> str:
        return self._name if self._origin is None else self._origin[0]._at(self._origin[1])

    def _at(self, key: tuple[Any, ...]) -> str:
        return f"{self.label}[{', '.join(_shown(k) for k in key)}]"

    # -- for the intrinsics of core/kernels ------------------------------------------------------------------------

    def take_rows(self, source: CheckedArray, first: int, count: int) -> None:
        """Copies rows from another array of the same shape, unchecked."""
        self._data[first : first + count] = source._data[first : first + count]

    def clear_row(self, row: Any) -> None:
        """Writes 0 to all elements at an index of the first axis."""
        key = self._indices((row,))
        self._check_row(key, "writes")
        self._check_access(key)
        self._data[key] = 0
        if self._written is not None:
            self._written[key] = True


_OPERATIONS = "add sub mul truediv floordiv mod pow lshift rshift and or xor matmul".split()
_OF_ROWS = [f"__{side}{name}__" for name in _OPERATIONS for side in ("", "r", "i")]
_OF_ROWS += [f"__{name}__" for name in "eq ne lt le gt ge neg pos invert abs".split()]


def _refuse_arithmetic(self: CheckedArray, *others: Any) -> Any:
    raise fault(
        f"it computes with the whole row {self.label}: kernels have no arithmetic on whole rows, write a loop",
        field=self._name,
    )


for _name in _OF_ROWS:  # comparisons too: Python would return a bool, numba allocate an array
    setattr(CheckedArray, _name, _refuse_arithmetic)
CheckedArray.__hash__ = object.__hash__  # type: ignore[method-assign]


def _shown(k: Any) -> str:
    if isinstance(k, slice):
        return f"{'' if k.start is None else k.start}:{'' if k.stop is None else k.stop}"
    return str(k) if isinstance(k, np.generic) else repr(k)


class _At:
    """Memory at an address, for numpy."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...] | None) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": dtype.str,
            "strides": strides,
            "version": 3,
        }


def memory_at(
    address: int, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...] | None = None
) -> np.ndarray:
    """A numpy array over the memory at an address."""
    return np.asarray(_At(address, shape, dtype, strides))
