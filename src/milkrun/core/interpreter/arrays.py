"""Arrays of interpreted kernels: numpy's memory, with every access checked.

An index must be in range and not negative, a value must fit the type, a row may touch only its own state and its own
instance, an instance is written by `generate` alone, and scratch is read after it was written. A part of an array
(`w.locs[q]`, `w.tour[b, :n]`) is checked in the same way and knows what it is a part of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from milkrun.core.interpreter.asked import asked
from milkrun.core.interpreter.faults import fault
from milkrun.core.interpreter.numbers import Float32, Float64, Short, UInt8, UInt16, UInt32, UInt64, rounded

FREE, ROW, INSTANCE = 0, 1, 2
"""Whose the first axis is: nobody's, the rows', the instance rows'."""
OPEN, GENERATED, CONSTANT, LOOKED_AT = 0, 1, 2, 3
"""Who may write: every kernel, `generate` alone, nobody, nobody while a state is judged by `fault`."""

_READ: dict[str, Callable[[Any], Any] | None] = {
    "b1": None,
    "i1": Short,
    "i2": Short,
    "i4": None,
    "i8": None,
    "u1": UInt8,
    "u2": UInt16,
    "u4": UInt32,
    "u8": UInt64,
    "f4": Float32,
    "f8": Float64,
}
_ENDS = {kind: (int(np.iinfo(kind).min), int(np.iinfo(kind).max)) for kind in _READ if kind[0] in "iu"}


class Turn:
    """What is being played: the row, the instance row it plays, and whether its instance is being drawn."""

    __slots__ = ("generating", "own", "row")

    def __init__(self) -> None:
        self.row: int | None = None
        self.own: tuple[int | None, int | None, int | None] = (None, None, None)  # by FREE, ROW, INSTANCE
        self.generating = False


class Array:
    """An array that kernels read and write."""

    __slots__ = ("_access", "_axis", "_data", "_name", "_origin", "_read", "_turn", "_written", "ndim", "shape")

    def __init__(
        self,
        data: np.ndarray,
        name: str,
        turn: Turn,
        *,
        axis: int = FREE,
        access: int = OPEN,
        written: np.ndarray | None = None,
        origin: tuple[Array, tuple[Any, ...]] | None = None,
    ) -> None:
        self._data, self._name, self._turn = data, name, turn
        self._axis, self._access, self._written = axis, access, written
        self._origin = origin  # the array that this is a part of, and which
        self.shape, self.ndim = data.shape, data.ndim
        self._read = _READ[data.dtype.str[1:]]

    # -- reading --------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        key = index if type(index) is tuple else (index,)
        # Nearly all accesses are plain ints in range. All else, bools and other subclasses of int too, goes the slow
        # way, which tells what is wrong.
        if len(key) == self.ndim:
            for k, extent in zip(key, self.shape):
                if type(k) is not int or not 0 <= k < extent:
                    break
            else:
                return self._element(key)
        key = self._indices(key)
        if len(key) == self.ndim and slice not in map(type, key):
            return self._element(key)
        if self._axis and key[0] != self._turn.own[self._axis]:
            self._check_row(key, "reads")
        return self._part(key)

    def _element(self, key: tuple[int, ...]) -> Any:
        if self._axis and key[0] != self._turn.own[self._axis]:
            self._check_row(key, "reads")
        if self._written is not None and not self._written[key]:
            raise fault(
                f"{self._at(key)} is scratch that this row has not written yet: its value is left over from "
                f"another row",
                field=self._name,
            )
        value = self._data.item(*key)
        return value if self._read is None else self._read(value)

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
        """What numpy's arrays have and this one has not: sum, mean, argmax and more."""
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"arrays have no {name!r}")
        shown = f"{self._label}.{name}"
        if callable(getattr(np.ndarray, name)):
            call = partial(asked, f"{{}}.{name}({{}})", f"{shown}()", self._name)
            return lambda *args, **named: call(self.whole(), *args, **named)
        return asked(f"{{}}.{name}", shown, self._name, self.whole())

    def whole(self) -> np.ndarray:
        """All elements to be looked at; refused where one could not be read."""
        if self._axis:
            self._check_row((slice(None),), "reads")
        if self._written is not None and not self._written.all():
            self._element(tuple(np.argwhere(~self._written)[0].tolist()))
        data = self._data.view()
        data.flags.writeable = False
        return data

    def __float__(self) -> float:
        raise fault(f"it takes the whole row {self._label} for a number: write a loop", field=self._name)

    __int__ = __float__

    def __repr__(self) -> str:
        return f"{self._label} = {self._data!r}"

    def __str__(self) -> str:
        return str(self._data)

    # -- writing --------------------------------------------------------------------------------------------------

    def __setitem__(self, index: Any, value: Any) -> None:
        key = index if type(index) is tuple else (index,)
        plain = len(key) == self.ndim
        if plain:
            for k, extent in zip(key, self.shape):
                if type(k) is not int or not 0 <= k < extent:
                    plain = False
                    break
        if not plain:
            key = self._indices(key)
            plain = len(key) == self.ndim and slice not in map(type, key)
        if self._axis and key[0] != self._turn.own[self._axis]:
            self._check_row(key, "writes")
        if self._access:
            self._check_access(key)
        if not plain:
            self._part(key).assign(value)
            return
        self._data[key] = self._fitted(value, key)
        if self._written is not None:
            self._written[key] = True

    def fill(self, value: Any) -> None:
        """All elements."""
        self[...] = value

    def assign(self, value: Any) -> None:
        """All elements: of one number, or of an array of the same shape."""
        if isinstance(value, Array):
            if value.shape != self.shape:
                raise fault(
                    f"{self._label} has the shape {self.shape}, what is written there {value.shape}", field=self._name
                )
            for key in np.ndindex(*self.shape):
                self[key] = value[key]
        else:
            for key in np.ndindex(*self.shape):
                self[key] = value

    # -- checks ---------------------------------------------------------------------------------------------------

    def _indices(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """The index as Python's integers and slices; refused unless every one is in range."""
        if len(key) > len(self.shape):
            raise fault(f"{self._label} has {len(self.shape)} axes and was given {len(key)} indices", field=self._name)
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
            if not isinstance(k, (int, np.integer)):
                raise fault(f"{self._at(key)}: an index must be a whole number, not {k!r}", field=self._name)
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
        if self._turn.row is None:
            return
        own, kind = self._turn.own[self._axis], "row" if self._axis == ROW else "instance row"
        raise fault(f"it {verb} {self._at(key)}, but plays {kind} {own}: rows are independent", field=self._name)

    def _check_access(self, key: tuple[Any, ...]) -> None:
        if self._access == CONSTANT:
            raise fault(f"it writes {self._at(key)}, a constant of the configuration", field=self._name)
        if self._access == LOOKED_AT:
            raise fault(f"it writes {self._at(key)}, but `fault` only looks at a state", field=self._name)
        if self._turn.row is not None and not self._turn.generating:
            raise fault(f"it writes {self._at(key)}, which only generate may write", field=self._name)

    def _fitted(self, value: Any, key: tuple[Any, ...]) -> Any:
        """The value as the array's type holds it; refused if it cannot."""
        dtype = self._data.dtype
        if dtype.kind == "f":
            number = float(value)
            if dtype.itemsize == 4:
                held = rounded(number)
                if math.isinf(held) and not math.isinf(number):
                    raise fault(f"{self._at(key)} = {number!r} does not fit float32", field=self._name)
                return held
            return number
        if dtype.kind == "b":
            if value in (-1, -2) and isinstance(value, int):
                raise fault(
                    f"{self._at(key)} = {int(value)}, which Python makes of the ~ of a bool: write `not`",
                    field=self._name,
                )
            return bool(value)
        if isinstance(value, float):
            if not value.is_integer():  # neither are nan and inf; compiled code would cut off in silence
                cut = "; int(...) would cut it off" if math.isfinite(value) else ""
                raise fault(
                    f"{self._at(key)} = {float(value)!r}: no whole number, as its type {dtype} needs{cut}",
                    field=self._name,
                )
            value = int(value)
        low, high = _ENDS[dtype.str[1:]]
        if not low <= value <= high:
            raise fault(f"{self._at(key)} = {int(value)} does not fit {dtype} ({low}..{high})", field=self._name)
        return int(value)

    # -- parts ----------------------------------------------------------------------------------------------------

    def _part(self, key: tuple[Any, ...]) -> Array:
        axis = self._axis if type(key[0]) is slice else FREE
        written = None if self._written is None else self._written[key]
        return Array(
            self._data[key], self._name, self._turn, axis=axis, access=self._access, written=written, origin=(self, key)
        )

    @property
    def _label(self) -> str:
        return self._name if self._origin is None else self._origin[0]._at(self._origin[1])

    def _at(self, key: tuple[Any, ...]) -> str:
        return f"{self._label}[{', '.join(_shown(k) for k in key)}]"

    # -- what words of compiled code do ---------------------------------------------------------------------------

    def take_rows(self, source: Array, first: int, count: int) -> None:
        """Rows of another array of the same shape, as they are."""
        self._data[first : first + count] = source._data[first : first + count]

    def clear_row(self, row: Any) -> None:
        """All that stands behind an index of the first axis is written: 0."""
        key = self._indices((row,))
        if self._axis and key[0] != self._turn.own[self._axis]:
            self._check_row(key, "writes")
        if self._access:
            self._check_access(key)
        self._data[key] = 0
        if self._written is not None:
            self._written[key] = True


_OPERATIONS = "add sub mul truediv floordiv mod pow lshift rshift and or xor matmul".split()
_OF_ROWS = [f"__{side}{name}__" for name in _OPERATIONS for side in ("", "r", "i")]
_OF_ROWS += [f"__{name}__" for name in "eq ne lt le gt ge neg pos invert abs".split()]


def _refuse_arithmetic(self: Array, *others: Any) -> Any:
    raise fault(
        f"it computes with the whole row {self._label}: kernels have no arithmetic on whole rows, write a loop",
        field=self._name,
    )


for _name in _OF_ROWS:  # Python compares anything; numba would allocate what comes of it
    setattr(Array, _name, _refuse_arithmetic)
Array.__hash__ = object.__hash__  # type: ignore[method-assign]


def _shown(k: Any) -> str:
    if isinstance(k, slice):
        return f"{'' if k.start is None else k.start}:{'' if k.stop is None else k.stop}"
    return str(int(k)) if isinstance(k, (int, np.integer)) else repr(k)


class _At:
    """Memory at an address, as numpy asks for it."""

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
    """The array of numpy at an address."""
    return np.asarray(_At(address, shape, dtype, strides))
