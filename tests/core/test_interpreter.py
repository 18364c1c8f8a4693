"""Interpreted kernels: they compute the bits that compiled ones do, and say where a kernel goes wrong."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milkrun.core import fields
from milkrun.core.actions import discrete
from milkrun.core.config import Config
from milkrun.core.errors import ConfigError, KernelFault
from milkrun.core.fields import bool_, float32, float64, instance, int16, int32, int64, mask, scratch, state, uint8, view
from milkrun.core.kernels import eight_flags, fetch, kernel, lowest_bit
from milkrun.core.world import World
from tests.core import toys

# -- numbers ------------------------------------------------------------------------------------------------------


class Numbers(World):
    """Operands of every type, and room for what kernels make of them."""

    Config = Config
    action = discrete(1)
    f = instance(float32, 2)
    x = instance(float64, 2)
    i = instance(int64, 2)
    n = instance(int32)
    s = instance(int16)
    t = instance(uint8, 2)
    p = instance(bool_, 2)
    flags = instance(bool_, 11)
    real = view(float64, 64)
    whole = view(int64, 64)
    single = view(float32, 8)
    action_mask = mask(1)

    def constants(self) -> dict[str, Any]:
        return {"max_steps": 1}


@kernel
def nothing(w, b):
    pass


@kernel
def no_step(w, b, action):
    pass


Numbers.bind(generate=nothing, reset=nothing, step=no_step)


@kernel
def mix_types(w, b, _, __):
    """Sums, products and quotients of every two types, with literals too."""
    f, g, x, y = w.f[b, 0], w.f[b, 1], w.x[b, 0], w.x[b, 1]
    i, n, s, t, p = w.i[b, 0], w.n[b], w.s[b], w.t[b, 0], w.p[b, 0]
    w.real[b, 0], w.real[b, 1], w.real[b, 2], w.real[b, 3] = f + g, f - g, f * g, f / g
    w.real[b, 4], w.real[b, 5], w.real[b, 6], w.real[b, 7] = f + 0.1, 0.1 - f, f * 3, 3 / f
    w.real[b, 8], w.real[b, 9], w.real[b, 10], w.real[b, 11] = f + x, x - f, f * x, x / f
    w.real[b, 12], w.real[b, 13], w.real[b, 14], w.real[b, 15] = f + i, i - f, f * n, n / f
    w.real[b, 16], w.real[b, 17], w.real[b, 18], w.real[b, 19] = f * s, s / f, f * t, p * f
    w.real[b, 20], w.real[b, 21], w.real[b, 22], w.real[b, 23] = x + y, x - y, x * y, x / y
    w.real[b, 24], w.real[b, 25], w.real[b, 26], w.real[b, 27] = x + 1, 1 - x, x * i, i / x
    w.real[b, 28], w.real[b, 29], w.real[b, 30], w.real[b, 31] = x * p, x * s, -f * f, -x / y
    w.real[b, 32], w.real[b, 33], w.real[b, 34], w.real[b, 35] = f // g, f % g, x // y, x % y
    w.real[b, 36], w.real[b, 37], w.real[b, 38], w.real[b, 39] = f // 0.3, x % 3, 7 // x, 7 % f
    w.real[b, 40], w.real[b, 41], w.real[b, 42], w.real[b, 43] = f**2, f**5, x**3, x**6
    w.real[b, 44], w.real[b, 45], w.real[b, 46] = x ** (i & 15), f ** (i & 7), abs(x) ** 0.3
    w.real[b, 47], w.real[b, 48], w.real[b, 49] = min(f, g) * f, max(f, x) * f, min(f, 1) * f
    w.real[b, 50], w.real[b, 51], w.real[b, 52] = -max(0, x), -min(i, x), max(f, 0.0) * f
    w.real[b, 53], w.real[b, 54], w.real[b, 55] = abs(f) * g, abs(x), abs(i) / 7
    w.real[b, 56], w.real[b, 57], w.real[b, 58] = np.float64(f) * g, np.float32(x) * f, np.float32(0.1) * f
    w.real[b, 59], w.real[b, 60], w.real[b, 61] = float(f) * f, (x < y) + f, (f if p else g) * g
    w.single[b, 0], w.single[b, 1], w.single[b, 2], w.single[b, 3] = f, f + g, f * g, f + 0.1
    return 0


@kernel
def count_types(w, b, _, __):
    """Whole numbers of every type: divisions, remainders, bits, conversions that wrap around."""
    i, j, n, s, t, p, o = w.i[b, 0], w.i[b, 1], w.n[b], w.s[b], w.t[b, 0], w.p[b, 0], w.p[b, 1]
    u, v, d = np.uint64(i), np.uint64(j), j if j != 0 else 1
    w.whole[b, 0], w.whole[b, 1], w.whole[b, 2], w.whole[b, 3] = i + j, i - j, i // d, i % d
    w.whole[b, 4], w.whole[b, 5], w.whole[b, 6], w.whole[b, 7] = i & j, i | j, i ^ j, ~i
    w.whole[b, 8], w.whole[b, 9], w.whole[b, 10], w.whole[b, 11] = i >> 3, n * s, p + o, p + t
    w.whole[b, 12], w.whole[b, 13], w.whole[b, 14] = np.int32(i), np.int16(i), np.int8(i)
    w.whole[b, 15], w.whole[b, 16], w.whole[b, 17] = np.uint8(i), np.int64(u), np.int64(u * v)
    w.whole[b, 18], w.whole[b, 19], w.whole[b, 20] = np.int64(u + v), np.int64(u - v), np.int64(u ^ v)
    w.whole[b, 21], w.whole[b, 22], w.whole[b, 23] = np.int64(u >> np.uint64(7)), np.int64(u << 5), np.int64(~u)
    w.whole[b, 24], w.whole[b, 25], w.whole[b, 26] = np.int64(-u), np.int64(u // np.uint64(d)), np.int64(u % np.uint64(d))
    w.whole[b, 27], w.whole[b, 28], w.whole[b, 29] = u < v, p & o, p | (i < j)
    w.whole[b, 30], w.whole[b, 31], w.whole[b, 32] = min(i, n), max(s, t), abs(n)
    w.whole[b, 33], w.whole[b, 34] = np.int64(w.t[b, 0] - w.t[b, 1]), t - s
    w.whole[b, 35], w.whole[b, 36] = lowest_bit(u | np.uint64(1 << 40)), np.int64(eight_flags(w.flags, b, 3))
    total = np.uint64(0)
    for k in range(np.uint64(i & 3)):
        total += k * np.uint64(5)
    w.whole[b, 37] = np.int64(total)
    w.whole[b, 38], w.whole[b, 39] = i == w.x[b, 0], -p
    w.real[b, 0], w.real[b, 1], w.real[b, 2], w.real[b, 3] = i / d, np.float64(u), u * 0.5, np.float32(n)
    fetch(w.flags, b, 1_000_000)
    return np.int64(u % np.uint64(1000))


@kernel
def call_functions(w, b, _, __):
    """`math` and `np` of float32 and float64, also where Python would raise."""
    f, g, x, y = w.f[b, 0], w.f[b, 1], w.x[b, 0], w.x[b, 1]
    w.real[b, 0], w.real[b, 1], w.real[b, 2], w.real[b, 3] = math.sqrt(x), math.exp(x), math.log(x), math.sin(x)
    w.real[b, 4], w.real[b, 5], w.real[b, 6], w.real[b, 7] = math.cos(x), math.asin(x), math.erfc(x), math.log1p(x)
    w.real[b, 8], w.real[b, 9], w.real[b, 10], w.real[b, 11] = math.sqrt(f), math.exp(f), math.log(f), math.sin(f)
    w.real[b, 12], w.real[b, 13], w.real[b, 14] = math.radians(x), math.hypot(x, y), math.atan2(x, y)
    w.real[b, 15], w.real[b, 16], w.real[b, 17] = np.sqrt(x), np.log(x), np.rint(x)
    w.real[b, 18], w.real[b, 19], w.real[b, 20] = np.floor(x), np.abs(f), np.nextafter(x, np.inf)
    w.real[b, 21], w.real[b, 22], w.real[b, 23] = np.minimum(x, y), np.maximum(f, g), math.tan(x)
    w.real[b, 24], w.real[b, 25], w.real[b, 26] = math.hypot(f, g), math.acos(x), np.exp(f) * f
    w.real[b, 27], w.real[b, 28], w.real[b, 29] = math.sqrt(w.i[b, 0]), math.tanh(x), math.pow(x, y)
    w.whole[b, 0], w.whole[b, 1] = math.isnan(x), np.isfinite(f)
    if abs(x) < 1e15 and abs(f) < 1e15:
        w.whole[b, 2], w.whole[b, 3], w.whole[b, 4] = math.floor(x), math.ceil(f), int(x)
        w.whole[b, 5], w.whole[b, 6], w.whole[b, 7] = np.int64(f), round(x), math.trunc(x)
    return 0


SINGLE = st.floats(width=32) | st.floats(-100, 100, width=32) | st.integers(-5, 5).map(float)
DOUBLE = st.floats() | st.floats(-100, 100) | st.integers(-5, 5).map(float)
WHOLE = st.integers(-(2**31), 2**31) | st.integers(-9, 9)
OPERANDS = st.fixed_dictionaries({
    "f": st.tuples(SINGLE, SINGLE), "x": st.tuples(DOUBLE, DOUBLE), "i": st.tuples(WHOLE, WHOLE),
    "n": st.integers(1 - 2**31, 2**31 - 1), "s": st.integers(-(2**15), 2**15 - 1),
    "t": st.tuples(st.integers(0, 255), st.integers(0, 255)), "p": st.tuples(st.booleans(), st.booleans()),
    "flags": st.lists(st.booleans(), min_size=11, max_size=11),
})  # fmt: skip


def both_ways(function: Any, operands: dict[str, Any]) -> None:
    """The kernel compiled and interpreted leaves the same bits, and the same number."""
    worlds = Numbers(1, seed=0, debug=False), Numbers(1, seed=0, debug=True)
    answers = []
    for world in worlds:
        for name, value in operands.items():
            getattr(world, name)[0] = value
        answers.append(world.map_rows(function).tolist())
    assert answers[0] == answers[1]
    for name in ("real", "whole", "single"):
        compiled, interpreted = (getattr(world, name)[0] for world in worlds)
        nan = np.isnan(compiled) & np.isnan(interpreted)  # the bits of a NaN mean nothing
        assert np.where(nan, 0, compiled).tobytes() == np.where(nan, 0, interpreted).tobytes(), (
            name, np.flatnonzero((compiled != interpreted) & ~nan), compiled, interpreted,
        )  # fmt: skip


@pytest.mark.parametrize("function", [mix_types, count_types, call_functions], ids=lambda k: k.py_func.__name__)
@given(operands=OPERANDS)
@settings(max_examples=60, deadline=None)
def test_numbers_have_the_bits_of_compiled_code(function, operands):
    """Every operation of every two number types, literals included, gives the same bits both ways."""
    both_ways(function, operands)
