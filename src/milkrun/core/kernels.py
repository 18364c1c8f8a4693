"""`@kernel`: plain scalar functions of one row as compiled code, and intrinsics for what Python lacks."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cache, cached_property
from inspect import signature
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.compiler import Compiler
from numba.core.errors import NumbaTypeError
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from milkrun.core.interpreter.checked_array import ActiveRow, CheckedArray, memory_at

KERNEL_OPTIONS: dict[str, Any] = {"_nrt": False, "error_model": "numpy", "nogil": True}
"""Kernels allocate nothing, so numba's reference counting is off (a third faster); x/0 follows IEEE."""

TRIED = (0, 61), (0, 68)
"""The first and the last version of numba for which kernels are tested as parts."""


def kernel(function: Callable[..., Any] | None = None, *, inline: bool = False) -> Any:
    """Compiles a plain scalar function of one row. It may call other kernels and must not allocate.

    `inline=True` forces inlining into its callers: for small kernels in the innermost loops.
    """
    if function is None:
        return lambda f: kernel(f, inline=inline)
    options = {"nopython": True, "forceinline": inline, "no_cfunc_wrapper": True}
    return Kernel(function, targetoptions={**options, **KERNEL_OPTIONS})


class Kernel(CPUDispatcher):
    """A function that compiled code calls.

    It is compiled as a part of the entries that run it (`core/parts.py`), which halves their compile time
    (`python -m bench --only compiling`), or as an ordinary function of numba where `part_compiler` is None. One version
    serves all integer types: numba would compile one for each constant and each width of an argument.
    """

    def __init__(
        self, function: Callable[..., Any], locals: Any = None, targetoptions: Any = None, compiler: Any = None
    ) -> None:
        compiler = compiler or part_compiler()
        self.is_part = compiler is not None
        options = {**(targetoptions or {}), "no_cpython_wrapper": self.is_part}
        super().__init__(function, locals or {}, options, compiler or Compiler)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Calls it from Python, at the prompt or in a test, through a compiled function."""
        given = signature(self.py_func).bind(*args, **named)
        given.apply_defaults()
        return self._from_python(*given.args)

    @cached_property
    def _from_python(self) -> Any:
        inner = self
        return njit(error_model="numpy")(lambda *args: inner(*args))

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return super().get_call_template([_plain(a) for a in args], {name: _plain(a) for name, a in kws.items()})

    def add_overload(self, compiled: Any) -> None:
        """A part is registered for compiled callers only: it has no machine code that Python could call."""
        if self.is_part:
            self.overloads[tuple(compiled.signature.args)] = compiled
        else:
            super().add_overload(compiled)


def _plain(kind: types.Type) -> types.Type:
    """The type a kernel is compiled for: int64 for all integers that fit."""
    kind = types.unliteral(kind)
    # uint64 is left alone: as int64 its shifts, divisions and comparisons would have a sign.
    return types.int64 if isinstance(kind, types.Integer) and kind.bitwidth < 64 else kind


@cache
def part_compiler() -> type | None:
    """The compiler of parts, or None: then kernels are ordinary functions of numba, and only compiling is slower.

    It is None with MILKRUN_PLAIN_NJIT=1, where a class of numba is missing, and where, in a version that is not in
    TRIED, a small kernel fails as a part.
    """
    if os.environ.get("MILKRUN_PLAIN_NJIT", "0") != "0":
        return None
    try:
        from milkrun.core.parts import PartCompiler

        if not TRIED[0] <= numba.version_info.short <= TRIED[1]:
            _try_out(PartCompiler)
        return PartCompiler
    except Exception as e:
        logging.getLogger("milkrun").info(
            "numba %s: kernels are compiled as ordinary functions (%s)", numba.__version__, e
        )
        return None


def _try_out(compiler: type) -> None:
    """Raises if a small kernel compiled as a part gives a wrong result."""
    part = Kernel(lambda x, y: x + 2 * y, targetoptions={"nopython": True, **KERNEL_OPTIONS}, compiler=compiler)
    if njit(**KERNEL_OPTIONS)(lambda x: part(x, 3) * part(x, 1))(4) != 60:
        raise ArithmeticError("a part computes a wrong result")


IN_PYTHON: dict[Any, Callable[..., Any]] = {}
"""The Python version of each intrinsic below, for interpreted kernels (`core.interpreter`)."""


def in_python(intrinsic_: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the Python version of an intrinsic."""
    return lambda function: IN_PYTHON.setdefault(intrinsic_, function)


@intrinsic
def array_at(typingctx, address, shape, strides, dtype):
    """The array of `shape` at an address; `strides` in bytes, or None for C order."""
    contiguous = isinstance(strides, types.NoneType)
    array_type = types.Array(dtype.dtype, len(shape), "C" if contiguous else "A")

    def codegen(context, builder, signature, args):
        element = context.get_data_type(array_type.dtype)
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(element))
        extents = cgutils.unpack_tuple(builder, args[1])
        if contiguous:
            steps = [itemsize]
            for extent in reversed(extents[1:]):
                steps.insert(0, builder.mul(steps[0], extent))
        else:
            steps = cgutils.unpack_tuple(builder, args[2])
        array = make_array(array_type)(context, builder)
        data = builder.inttoptr(args[0], element.as_pointer())
        populate_array(array, data=data, shape=extents, strides=steps, itemsize=itemsize, meminfo=None, parent=None)
        return array._getvalue()

    return array_type(address, shape, strides, dtype), codegen


@in_python(array_at)
def _array_at(address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: Any) -> CheckedArray:
    return CheckedArray(memory_at(address, shape, np.dtype(dtype), strides), "array", ActiveRow())


@intrinsic
def copy_rows(typingctx, target, source, first, count):
    """Copies rows first .. first + count - 1 between two C-ordered arrays as one block of bytes."""

    def codegen(context, builder, signature, args):
        addresses = []
        for array_type, value in zip(signature.args[:2], args[:2]):
            array = make_array(array_type)(context, builder, value)
            width = cgutils.unpack_tuple(builder, array.strides)[0]
            start = builder.ptrtoint(array.data, width.type)
            address = builder.add(start, builder.mul(args[2], width))
            addresses.append(builder.inttoptr(address, cgutils.voidptr_t))
        # Both are the same field in two tables of equal sizes, so a row has `width` bytes in each.
        cgutils.raw_memcpy(builder, addresses[0], addresses[1], builder.mul(width, args[3]), 1)
        return context.get_dummy_value()

    return types.void(target, source, types.int64, types.int64), codegen


@in_python(copy_rows)
def _copy_rows(target: CheckedArray, source: CheckedArray, first: int, count: int) -> None:
    target.take_rows(source, first, count)


@intrinsic
def clear_row(typingctx, array, row):
    """Sets every byte of array[row] of a C-ordered array to 0, in a fraction of a loop's time."""
    if not isinstance(array, types.Array) or array.layout != "C":
        raise NumbaTypeError("clear_row takes a C-ordered array, which a field declared strided is not")

    def codegen(context, builder, signature, args):
        found = make_array(signature.args[0])(context, builder, args[0])
        width = cgutils.unpack_tuple(builder, found.strides)[0]
        address = builder.add(builder.ptrtoint(found.data, width.type), builder.mul(args[1], width))
        cgutils.memset(builder, builder.inttoptr(address, cgutils.voidptr_t), width, 0)
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


@in_python(clear_row)
def _clear_row(array: CheckedArray, row: int) -> None:
    array.clear_row(row)


@intrinsic
def eight_flags(typingctx, flags, row, first):
    """flags[row, first:first + 8] of a C-ordered array of booleans as one uint64, the first in its lowest byte."""

    def codegen(context, builder, signature, args):
        array = make_array(signature.args[0])(context, builder, args[0])
        width = cgutils.unpack_tuple(builder, array.strides)[0]
        start = builder.ptrtoint(array.data, width.type)
        address = builder.add(builder.add(start, builder.mul(args[1], width)), args[2])
        word = builder.load(builder.inttoptr(address, context.get_value_type(types.uint64).as_pointer()))
        # The eight flags may begin at any byte; LLVM would assume an address that is a multiple of 8.
        word.align = 1
        return word

    return types.uint64(flags, types.int64, types.int64), codegen


@in_python(eight_flags)
def _eight_flags(flags: CheckedArray, row: int, first: int) -> np.uint64:
    return np.uint64(sum(flags[row, first + k] << (8 * k) for k in range(8)))


@intrinsic
def fetch(typingctx, array, row, column):
    """Prefetches the cache line of array[row, column]; an index out of range is harmless."""

    def codegen(context, builder, signature, args):
        found = make_array(signature.args[0])(context, builder, args[0])
        width, step = cgutils.unpack_tuple(builder, found.strides)[:2]
        address = builder.ptrtoint(found.data, width.type)
        for index, stride in ((args[1], width), (args[2], step)):
            address = builder.add(address, builder.mul(index, stride))
        number = context.get_value_type(types.int32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # 0: for reading; 3: into all levels of the cache; 1: data, not instructions.
        builder.call(prefetch, [builder.inttoptr(address, cgutils.voidptr_t), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), codegen


@in_python(fetch)
def _fetch(array: CheckedArray, row: int, column: int) -> None:
    """A no-op: prefetching changes no value."""


@intrinsic
def lowest_bit(typingctx, word):
    """The index of the lowest bit set in a uint64 that is not 0."""

    def codegen(context, builder, signature, args):
        # True: the word is never 0, so LLVM needs no branch for it.
        return builder.cttz(args[0], context.get_constant(types.boolean, True))

    return types.int64(types.uint64), codegen


@in_python(lowest_bit)
def _lowest_bit(word: int) -> int:
    return (int(word) & -int(word)).bit_length() - 1


@intrinsic
def call_at(typingctx, address, numbers):
    """Calls the compiled function at an address, which takes a tuple of int64 and returns an int64."""

    def codegen(context, builder, signature, args):
        word = context.get_value_type(types.int64)
        kind = ir.FunctionType(word, [word] * len(signature.args[1]))
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), cgutils.unpack_tuple(builder, args[1]))

    return types.int64(types.int64, numbers), codegen
