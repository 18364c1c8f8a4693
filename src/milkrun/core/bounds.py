"""Validates declared bounds with compiled code, in the memory that a table of addresses describes.

Kernels use field values as indices, so memory that comes from outside (a caller's tensors) is validated before they
run. One compiled function serves every field of every world: the rules are a table too, one line a field. The row and
value that break a rule are found afterwards, by the slower functions of `instances`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numba import njit, types

from milkrun.core.cache import compile_module
from milkrun.core.fields import Field, Role
from milkrun.core.kernels import KERNEL_OPTIONS, array_at, eight_flags
from milkrun.core.record import INSTANCES, ROWS, RecordLayout
from milkrun.core.threads import Entry

KINDS = ("int8", "int16", "int32", "int64", "uint8", "float32", "float64")
MASK = len(KINDS)
WIDTH = 8  # numbers in a line


class Bounds:
    """The rules of some fields, in their order; booleans and numbers without a rule are left out. `choices` is the
    number of actions of each agent: in a live row every agent needs an allowed one."""

    def __init__(
        self, layout: RecordLayout, fields: Sequence[Field], sizes: dict[str, int], choices: Sequence[int] = ()
    ) -> None:
        starts = np.cumsum([0, *choices])
        lines: list[tuple[Field, tuple[int, ...] | None]] = []
        for f in fields:
            if f.role is Role.MASK:
                whole = _line(f, layout, sizes)
                parts = zip(starts.tolist(), choices, strict=False)
                lines += [(f, None if whole is None else (*whole, first, many)) for first, many in parts]
            else:
                lines.append((f, _line(f, layout, sizes)))
        self.fields = [f for f, line in lines if line is not None]
        self._lines = np.array([line for _, line in lines if line is not None], np.int64).reshape(-1, WIDTH)
        self._checker = _checker()
        self._address = int(self._lines.__array_interface__["data"][0])

    def __len__(self) -> int:
        return len(self.fields)

    def first_broken(self, table: int, count: int) -> Field | None:
        """The first of the first `count` fields that breaks its rule somewhere in the rows at the addresses of a
        table."""
        broken = self._checker.serial(table, self._address, count)
        return None if broken < 0 else self.fields[broken]


def has_rule(f: Field) -> bool:
    """Whether the declaration of a field restricts its values; floats, for example, must be finite."""
    return f.role is Role.MASK or f.dtype.kind == "f" or f.index is not None or not (f.low is None and f.high is None)


def may_index(f: Field) -> bool:
    """Whether kernels may use a field's values as indices: integers with a bound, also a lower one alone."""
    return f.dtype.kind in "iu" and has_rule(f)


def _line(f: Field, layout: RecordLayout, sizes: dict[str, int]) -> tuple[int, ...] | None:
    """A line of the rule table: word of the field, kind, numbers a row, the bits of the bounds (of a mask the words of
    the flags `terminated` and `truncated`), word that counts the rows; then the part of a row: first number, count."""
    each = math.prod(f.shape(sizes))
    where, rows = layout.slots[f.name], INSTANCES if f.role is Role.INSTANCE else ROWS
    if not has_rule(f) or not each or (f.dtype == np.bool_ and f.role is not Role.MASK):
        return None
    if f.role is Role.MASK:
        return where, MASK, each, layout.slots["terminated"], layout.slots["truncated"], rows
    low, high = f.bounds(sizes)
    # Where no bound is declared, that of the dtype: it refuses infinities, unless the field has a limit.
    span: Any = np.finfo(f.dtype) if f.dtype.kind == "f" else np.iinfo(f.dtype)
    least = span.min if low is None else max(low, span.min)
    most = math.inf if f.limit and high is None else span.max if high is None else min(high, span.max)
    if f.limit and low is None:
        least = -math.inf
    ends = np.array([least, most], np.float64 if f.dtype.kind == "f" else np.int64).view(np.int64)
    return where, KINDS.index(f.dtype.name), each, int(ends[0]), int(ends[1]), rows, 0, each


@cache
def _checker() -> Entry:
    branches = ""
    for k, name in enumerate(KINDS):
        ends = "float64" if name.startswith("f") else "int64"
        branches += _BRANCH.format(kind=k, name=name, width=WIDTH, ends=ends)
    names = {
        "njit": njit,
        "OPTIONS": KERNEL_OPTIONS,
        "array_at": array_at,
        "eight_flags": eight_flags,
        "boolean": types.boolean,
        "uint64": types.uint64,
        **{name: getattr(types, name) for name in KINDS},
    }
    text = _TEXT.format(branches=branches, mask=MASK, width=WIDTH)
    return Entry(compile_module("bounds", text, names).first_broken)


_TEXT = """# Written by milkrun.core.bounds; the module's name is a hash of this.

@njit(**OPTIONS)
def first_broken(table, rules, count):
    rule = array_at(rules, (count, {width}), None, int64)
    words = array_at(table, (1024,), None, int64)
    for k in range(count):
        address, each, rows = words[rule[k, 0]], rule[k, 2], words[rule[k, 5]]
        n = each * rows
        wrong = int32(0)
        if rule[k, 1] == {mask}:
            flags = array_at(address, (rows, each), None, boolean)
            terminated = array_at(words[rule[k, 3]], (rows,), None, boolean)
            truncated = array_at(words[rule[k, 4]], (rows,), None, boolean)
            for b in range(rows):
                some = terminated[b] or truncated[b]
                j = rule[k, 6]
                last = j + rule[k, 7]
                while j + 8 <= last and not some:  # eight at a time: most rows are decided by the first few
                    some = eight_flags(flags, b, j) != 0
                    j += 8
                while j < last and not some:
                    some = flags[b, j]
                    j += 1
                wrong |= int32(not some)
{branches}
        if wrong:
            return k
    return -1
"""

# The comparisons accept values between the ends, so a NaN is refused. Without a branch and with an unsigned index the
# loop is vectorised: a signed index may count from the end, so its elements would be read one by one. Bounds are
# rounded to the field's type, as numpy rounds a Python number that it compares with an array, so
# `instances.check_values` agrees.
_BRANCH = """
        elif rule[k, 1] == {kind}:
            x{kind} = array_at(address, (n,), None, {name})
            ends{kind} = array_at(rules + 8 * ({width} * k + 3), (2,), None, {ends})
            least{kind}, most{kind} = {name}(ends{kind}[0]), {name}(ends{kind}[1])
            for j in range(n):
                y{kind} = x{kind}[uint64(j)]
                wrong |= int32(not ((y{kind} >= least{kind}) & (y{kind} <= most{kind})))
"""
