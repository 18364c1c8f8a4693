"""The record `w` that kernels read and write: one address in compiled code, an attribute for each field in the source.

`w` is a pointer to a world's table of int64 words. `w.load` is lowered to the array that the table describes in that
field's slot. The words never change during a call and are marked as invariant, so the compiler hoists them out of
loops. (A NamedTuple of forty arrays would pass three hundred scalars to every kernel, and compile for minutes.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype

from milkrun.core.fields import Field, Role

ROWS, INSTANCES = 0, 1  # the first two words of a table
WORD = ir.IntType(64)


class RecordLayout:
    """The index of each size, address and number in a world's table."""

    def __init__(self, fields: dict[str, Field], size_names: list[str], owner: str = "the record") -> None:
        self.fields = fields
        self.owner = owner  # the class whose fields these are, for error messages
        self.sizes = {name: 2 + k for k, name in enumerate(size_names)}
        self.slots: dict[str, int] = {}
        width = 2 + len(self.sizes)
        for f in fields.values():
            self.slots[f.name] = width
            width += 1 + (len(f.dims) + 1 if f.strided else 0) + (f.role is Role.SCRATCH)
        self.width = width
        self.text = (
            "; ".join(
                f"{f.name} {f.role.value} {f.dtype} {f.dims} {f.strided} {self.slots[f.name]}" for f in fields.values()
            )
            + f"; {self.sizes}"
        )

    def table(self, rows: int, instances: int, sizes: dict[str, int]) -> np.ndarray:
        """A new table with its sizes."""
        table = np.zeros(self.width, np.int64)
        table[ROWS], table[INSTANCES] = rows, instances
        for name, slot in self.sizes.items():
            table[slot] = sizes[name]
        return table

    def word_of(self, name: str) -> int:
        """The index of a size or a number in the table."""
        return self.sizes[name] if name in self.sizes else self.slots[name]

    def fill(
        self, batch: int, sizes: dict[str, int], given: Mapping[str, Any], chunks: int = 1
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The table of a batch of rows for kernels outside a world, and its arrays, which must outlive the table.
        Fields that are not given are zero; each of `chunks` threads has its own scratch."""
        table = self.table(batch, batch, sizes)
        kept: dict[str, np.ndarray] = {}
        for f in self.fields.values():
            if f.role is Role.CONSTANT and not f.dims:
                self.put(table, f.name, given.get(f.name, 0))
                continue
            if f.name in given:
                kept[f.name] = np.ascontiguousarray(given[f.name], f.dtype)
            else:
                kept[f.name] = np.zeros((chunks if f.role is Role.SCRATCH else batch, *f.shape(sizes)), f.dtype)
            self.put(table, f.name, kept[f.name])
        return table, kept

    def has(self, attribute: str) -> bool:
        return attribute in self.fields or attribute in self.sizes

    def put(self, table: np.ndarray, name: str, value: Any) -> None:
        """Writes an array's address (and strides, if declared strided) or a constant into the table."""
        f, slot = self.fields[name], self.slots[name]
        if f.role is Role.CONSTANT and not f.dims:
            table[slot : slot + 1].view(np.float64 if f.dtype.kind == "f" else np.int64)[0] = value
            return
        table[slot] = value.__array_interface__["data"][0]
        if f.strided:
            table[slot + 1 : slot + 1 + value.ndim] = value.strides
        elif f.role is Role.SCRATCH:
            table[slot + 1] = value.strides[0]


class RecordType(types.Type):
    """The compiler's type of `w`: two words, the table's address and the thread's scratch slot."""

    def __init__(self, layout: RecordLayout, known: Mapping[str, int] | None = None) -> None:
        """The numbers in `known` have these values in every table: code for other values may be pruned."""
        self.layout = layout
        self.known = dict(known or {})
        # For numba types with equal names are equal: worlds with equal layouts share compiled code.
        text = layout.text + (f"; {sorted(self.known.items())}" if known else "")
        super().__init__(name=f"Record({hashlib.sha256(text.encode()).hexdigest()[:16]})")

    def type_of(self, attribute: str) -> types.Type | None:
        f = self.layout.fields.get(attribute)
        if f is None:
            return types.int64 if attribute in self.layout.sizes else None
        if f.role is Role.CONSTANT and not f.dims:
            return types.float64 if f.dtype.kind == "f" else types.int64
        return types.Array(from_dtype(f.dtype), len(f.dims) + f.per_row, "A" if f.strided else "C")


@register_model(RecordType)
class RecordModel(models.StructModel):
    def __init__(self, manager: Any, record: RecordType) -> None:
        super().__init__(manager, record, [("table", types.int64), ("slot", types.int64)])


@infer_getattr
class RecordAttributes(AttributeTemplate):
    key = RecordType

    def generic_resolve(self, record: RecordType, attribute: str) -> types.Type | None:
        return record.type_of(attribute)


@lower_getattr_generic(RecordType)
def lower_attribute(context: Any, builder: Any, record: RecordType, value: Any, attribute: str) -> Any:
    """Lowers the read of a field to its array or number."""
    return Words(context, builder, record, value).read(attribute)


class Words:
    """The words of a record's table, in code that is being lowered."""

    def __init__(self, context: Any, builder: Any, record: RecordType, value: Any) -> None:
        self.context = context
        self.builder = builder
        self.record = record
        self.layout = record.layout
        self.slot = builder.extract_value(value, 1)
        self.table = builder.inttoptr(builder.extract_value(value, 0), WORD.as_pointer())
        self._read_at: dict[tuple[Any, int], Any] = {}

    def read(self, attribute: str) -> Any:
        """A field's array, or a number."""
        builder, layout = self.builder, self.layout
        if attribute in layout.sizes:
            return self._word(layout.sizes[attribute])
        f = layout.fields[attribute]
        if f.role is Role.CONSTANT and not f.dims:
            word = self._word(layout.slots[attribute])
            return builder.bitcast(word, ir.DoubleType()) if f.dtype.kind == "f" else word
        array_type: Any = self.record.type_of(attribute)
        itemsize = self.context.get_constant(types.intp, f.dtype.itemsize)
        shape = self._shape(f)
        if f.strided:
            strides = self._strides(f, len(shape))
        else:
            strides = [itemsize]
            for extent in reversed(shape[1:]):
                strides.insert(0, builder.mul(strides[0], extent))
        array = make_array(array_type)(self.context, builder)
        populate_array(
            array, data=self._start(f), shape=shape, strides=strides, itemsize=itemsize, meminfo=None, parent=None
        )
        return array._getvalue()

    def element(self, attribute: str, indices: list[Any]) -> Any:
        """The address of an element of a field, which takes a fifth of the code of its array. Indices are not negative:
        interpreted kernels refuse such an index."""
        f, builder = self.layout.fields[attribute], self.builder
        start = self._start(f)
        if f.strided:
            steps = [builder.mul(i, s) for i, s in zip(indices, self._strides(f, len(indices)), strict=True)]
            offset = steps[0]
            for step in steps[1:]:
                offset = builder.add(offset, step)
            return cgutils.pointer_add(builder, start, offset)
        # An address needs all extents but the first. In a field with rows the first is the number of rows, and dims
        # holds the others; in a field without rows dims holds the first, too.
        place = indices[0]
        for index, size in zip(indices[1:], f.dims[len(f.dims) + 1 - len(indices) :], strict=True):
            place = builder.add(builder.mul(place, self._size(size)), index)
        return builder.gep(start, [place])

    def _word(self, place: int) -> Any:
        """A word of the table, read once in each basic block."""
        key = self.builder.block, place
        if key not in self._read_at:
            read = self.builder.load(self.builder.gep(self.table, [WORD(place)]))
            read.set_metadata("invariant.load", self.builder.module.add_metadata([]))
            self._read_at[key] = read
        return self._read_at[key]

    def _size(self, size: str | int) -> Any:
        return self._word(self.layout.sizes[size]) if isinstance(size, str) else WORD(size)

    def _shape(self, f: Field) -> list[Any]:
        rows = [self._word(INSTANCES if f.role is Role.INSTANCE else ROWS)] if f.per_row else []
        return rows + [self._size(d) for d in f.dims]

    def _strides(self, f: Field, axes: int) -> list[Any]:
        return [self._word(self.layout.slots[f.name] + 1 + k) for k in range(axes)]

    def _start(self, f: Field) -> Any:
        """The address of a field's first element; in scratch, of the thread's own part."""
        place = self.layout.slots[f.name]
        address = self._word(place)
        if f.role is Role.SCRATCH:
            address = self.builder.add(address, self.builder.mul(self.slot, self._word(place + 1)))
        kind: Any = self.record.type_of(f.name)
        return self.builder.inttoptr(address, self.context.get_data_type(kind.dtype).as_pointer())


LOWERING = (lower_attribute, *(f for f in vars(Words).values() if callable(f)))
"""The functions that compiled code depends on besides kernels, for the fingerprint of the cache."""


def record_at(layout: RecordLayout, known: Mapping[str, int] | None = None) -> Any:
    """The intrinsic (table address, scratch slot) -> w for a layout."""
    record = RecordType(layout, known)

    @intrinsic
    def make_record(typingctx, table, slot):
        def codegen(context, builder, signature, args):
            proxy = cgutils.create_struct_proxy(record)(context, builder)
            proxy.table, proxy.slot = args
            return proxy._getvalue()

        return record(types.int64, types.int64), codegen

    return make_record
