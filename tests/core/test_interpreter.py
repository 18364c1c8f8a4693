"""Interpreted kernels: they compute what compiled ones do, and name the place where a kernel goes wrong."""

from __future__ import annotations

import copy
import math
import pickle
import sys
from math import floor, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import milkrun
from milkrun.core.actions import discrete
from milkrun.core.check.bench import TOLERANCE, choose, differences
from milkrun.core.config import Config
from milkrun.core.errors import ConfigError, IllegalAction, KernelFault
from milkrun.core.fields import (
    bool_,
    constant,
    float32,
    float64,
    instance,
    int16,
    int32,
    int64,
    mask,
    scratch,
    state,
    uint8,
    view,
)
from milkrun.core.kernels import clear_row, eight_flags, fetch, kernel, lowest_bit
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
    w.real[b, 32], w.real[b, 33], w.real[b, 34], w.real[b, 35] = x // y, x % y, 7 // x, x % 3
    w.real[b, 36], w.real[b, 37], w.real[b, 38], w.real[b, 39] = f**2, f**5, x**3, x**6
    w.real[b, 40], w.real[b, 41], w.real[b, 42] = x ** (i & 7), f ** (i & 7), abs(x) ** 0.3
    w.real[b, 43], w.real[b, 44], w.real[b, 45] = min(f, g) * f, max(f, x) * f, min(f, 1) * f
    w.real[b, 46], w.real[b, 47], w.real[b, 48] = -max(0, x), -min(i, x), max(f, 0.0) * f
    w.real[b, 49], w.real[b, 50], w.real[b, 51] = abs(f) * g, abs(x), abs(i) / 7
    w.real[b, 52], w.real[b, 53], w.real[b, 54] = np.float64(f) * g, np.float32(x) * f, np.float32(0.1) * f
    w.real[b, 55], w.real[b, 56], w.real[b, 57] = float(f) * f, (x < y) + f, (f if p else g) * g
    w.real[b, 58], w.real[b, 59], w.real[b, 60] = 1 / float(f * 0), 2.0**y, round(x, 1)
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
    w.whole[b, 21], w.whole[b, 22], w.whole[b, 23] = (
        np.int64(u >> np.uint64(7)),
        np.int64(u << np.uint64(5)),
        np.int64(~u),
    )
    w.whole[b, 24], w.whole[b, 25] = np.int64(-u), np.int64(u // np.uint64(d))
    w.whole[b, 26] = np.int64(u % np.uint64(d))
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
    w.real[b, 30], w.real[b, 31], w.real[b, 32] = np.square(f), np.cbrt(x), np.deg2rad(f)
    w.real[b, 33], w.real[b, 34], w.real[b, 35] = np.sign(x), math.log(w.t[b, 0]), sqrt(x) + floor(f)
    w.whole[b, 0], w.whole[b, 1], w.whole[b, 2] = math.isnan(math.sqrt(x)), np.isfinite(f), math.floor(x)
    w.whole[b, 3], w.whole[b, 4], w.whole[b, 5] = math.ceil(f), int(x), math.trunc(x)
    w.whole[b, 6], w.whole[b, 7], w.whole[b, 8] = np.int64(f), round(x), np.sign(w.i[b, 0])
    w.whole[b, 9], w.whole[b, 10] = math.gcd(w.i[b, 0], w.i[b, 1]), np.signbit(x)
    return 0


@kernel
def use_whole_arrays(w, b, _, __):
    """Sums, means and flags of a row, slices that are filled, loops over elements."""
    w.real[b, 0], w.real[b, 1], w.real[b, 2] = w.f[b].sum(), np.sum(w.x[b]), w.x[b].mean()
    w.real[b, 10], w.real[b, 11], w.real[b, 12] = w.f[b].mean(), np.mean(w.f[b]) * w.f[b, 0], w.i[b].mean()
    w.real[b, 13], w.real[b, 14], w.real[b, 15] = w.t[b].mean(), w.flags[b].mean(), w.f[b, 1:].mean()
    w.real[b, 16], w.real[b, 17], w.real[b, 18] = w.f[b].prod(), w.x[b].var(), np.std(w.x[b])
    w.real[b, 19], w.real[b, 20] = w.real[b, 10:16].sum(), np.nansum(w.f[b])
    w.whole[b, 11], w.whole[b, 12], w.whole[b, 13] = w.t[b].sum() - 300, np.sum(w.flags[b]), w.i[b].prod()
    w.whole[b, 14], w.whole[b, 15], w.whole[b, 16] = w.x[b].argmin(), np.argmax(w.f[b]), np.any(w.t[b])
    w.whole[b, 17], w.whole[b, 18] = w.f[b].nbytes, w.x[b, :1].argmax()
    w.whole[b, 0], w.whole[b, 1], w.whole[b, 2] = w.flags[b].any(), w.flags[b].all(), w.flags[b, 2:7].argmax()
    w.single[b].fill(w.x[b, 0] > 0)
    w.real[b, 5:9] = 7
    w.whole[b, 3:9] = w.s[b]
    for k, flag in enumerate(w.flags[b]):
        w.whole[b, 9] += k * flag
    for flag, kept in zip(w.flags[b, 1:], w.flags[b, :5]):
        w.whole[b, 10] += flag and not kept
    return len(w.flags[b]) + w.flags.shape[1] + w.f[b].size


@kernel
def mix_words(w, b, _, __):
    """uint64 wraps around, with literals too."""
    u, v = np.uint64(w.i[b, 0]), np.uint64(w.i[b, 1])
    product = (u * np.uint64(0x9E3779B97F4A7C15)) ^ (v << np.uint64(33))
    product = (product ^ (product >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    w.whole[b, 0], w.whole[b, 1] = np.int64(product >> np.uint64(11)), np.int64(product & np.uint64(1023))
    w.real[b, 0], w.real[b, 1] = np.float64(product >> np.uint64(11)) * 2.0**-53, np.float64(product)
    return np.int64(product)


@kernel
def count_comparisons(w, b, _, __):
    """Results of comparisons are numbers 0 and 1 in sums, differences, products and shifts."""
    f, g, x, y, n = w.f[b, 0], w.f[b, 1], w.x[b, 0], w.x[b, 1], w.n[b]
    w.whole[b, 0] = (f < g) + (x < y) + (f <= x)
    w.whole[b, 1] = (f < g) - (x < y)
    w.whole[b, 2] = -(x < y)
    w.whole[b, 3] = 3 - (f == g)
    w.whole[b, 4] = (x > y) * (f != g) * 5
    w.whole[b, 5] = (x >= y) << 3
    w.whole[b, 6] = np.int64(np.uint64(7) >> np.uint64(1 + (x < y)))
    w.whole[b, 7] = (n + (x < y)) // 2
    w.whole[b, 8] = (not (x < y)) + (not (f < g)) + (x == y)
    w.real[b, 0] = (x < y) / 2
    return (x < y) + (f < g)


SINGLE = st.floats(-50, 50, width=32) | st.integers(-5, 5).map(float)
DOUBLE = st.floats(-50, 50) | st.integers(-5, 5).map(float)
WHOLE = st.integers(-(2**31), 2**31) | st.integers(-9, 9)
OPERANDS = st.fixed_dictionaries(
    {
        "f": st.tuples(SINGLE, SINGLE),
        "x": st.tuples(DOUBLE, DOUBLE),
        "i": st.tuples(WHOLE, WHOLE),
        "n": st.integers(1 - 2**31, 2**31 - 1),
        "s": st.integers(1 - 2**15, 2**15 - 1),
        "t": st.tuples(st.integers(0, 255), st.integers(0, 255)),
        "p": st.tuples(st.booleans(), st.booleans()),
        "flags": st.lists(st.booleans(), min_size=11, max_size=11),
    }
)


def compare_both_ways(function: Any, operands: dict[str, Any]) -> None:
    """The kernel compiled and interpreted leaves equal whole numbers, and floats that are equal in six digits."""
    worlds = Numbers(1, seed=0, debug=False), Numbers(1, seed=0, debug=True)
    results = []
    for world in worlds:
        for name, value in operands.items():
            getattr(world, name)[0] = value
        results.append(world.map_rows(function).tolist())
    assert results[0] == results[1]
    assert worlds[0].whole.tolist() == worlds[1].whole.tolist()
    for name in ("real", "single"):
        # One rounding to float32 is 6e-8 of the larger operand, which is below 2**31 + 50 here or equal to a factor.
        np.testing.assert_allclose(getattr(worlds[1], name), getattr(worlds[0], name), 1e-6, 1e-6)


KERNELS = [mix_types, count_types, mix_words, count_comparisons, call_functions, use_whole_arrays]


@pytest.mark.parametrize("function", KERNELS, ids=lambda k: k.py_func.__name__)
@given(operands=OPERANDS)
@settings(max_examples=60, deadline=None)
def test_interpreted_numbers_are_those_of_compiled_code(function, operands):
    """Operations of every two number types, literals included."""
    compare_both_ways(function, operands)


# -- faults -------------------------------------------------------------------------------------------------------


class Desk(World):
    """A field of every role."""

    Config = Config
    action = discrete(2)
    price = constant(float64, doc="a number that kernels read")
    table = constant(int32, 3, doc="numbers that kernels read")
    pile = scratch(float64, 4, doc="work space")
    locs = instance(float32, "N", 2, doc="places")
    tour = state(int16, "N", doc="a record")
    load = state(int32, doc="a count")
    length = state(float32, doc="a sum")
    action_mask = mask(2)

    @classmethod
    def size_of(cls, config: Config) -> dict[str, int]:
        return {"N": 5}

    def constants(self) -> dict[str, Any]:
        return {"price": 2.5, "table": [4, 5, 6]}


@kernel
def draw_desk(w, b):
    w.locs[w.instance_row[b], 0, 0] = b


@kernel
def tidy_desk(w, b):
    w.load[b] = 0
    w.action_mask[b, 1] = True


Desk.bind(generate=draw_desk, reset=tidy_desk, step=no_step)


@kernel
def beyond_the_end(w, b, _, __):
    w.tour[b, w.N] = 1


@kernel
def before_the_start(w, b, _, __):
    return w.tour[b, w.load[b] - 1]


@kernel
def in_a_part(w, b, _, __):
    return w.locs[b][3][2]


@kernel
def in_a_slice(w, b, _, __):
    return w.tour[b, 1:4][3]


@kernel
def by_a_float(w, b, _, __):
    return w.tour[b, w.price]


@kernel
def nan_to_count(w, b, _, __):
    w.load[b] = w.length[b] / w.length[b]


@kernel
def half_to_count(w, b, _, __):
    w.load[b] = 5 / 2


@kernel
def half_cut_off(w, b, _, __):
    w.load[b] = int(5 / 2) + 1.0
    return w.load[b]


@kernel
def nan_by_hand(w, b, _, __):
    return np.int64(w.length[b] / 0)


@kernel
def too_wide(w, b, _, __):
    w.tour[b, 2] = 40_000


@kernel
def too_large(w, b, _, __):
    w.length[b] = 1e39


@kernel
def writes_instance(w, b, _, __):
    w.locs[b, 0, 1] = 0.5


@kernel
def writes_key(w, b, _, __):
    w.stream[b, 2] += 1


@kernel
def writes_constant(w, b, _, __):
    w.table[1] = 0


@kernel
def writes_other_row(w, b, _, __):
    w.load[1 - b] = 1


@kernel
def reads_other_row(w, b, _, __):
    return w.load[b + 1]


@kernel
def reads_other_instance(w, b, _, __):
    return w.locs[b + 1, 0, 0] > 0


@kernel
def reads_left_over_scratch(w, b, _, __):
    w.pile[0] = 1.0
    return w.pile[0] + w.pile[1] > 0


@kernel
def divides_by_zero(w, b, _, __):
    return 7 // w.load[b]


@kernel
def takes_many_rows(w, b, _, __):
    return w.load[0:2][0]


@kernel
def inverts_a_bool(w, b, _, __):
    w.action_mask[b, 1] = ~w.action_mask[b, 0]


@kernel
def clears_instance(w, b, _, __):
    clear_row(w.locs, w.instance_row[b])


@kernel
def clears_other_row(w, b, _, __):
    clear_row(w.tour, 1 - b)


@kernel
def clears_beyond_the_end(w, b, _, __):
    clear_row(w.pile, 4)


@kernel
def too_many_indices(w, b, _, __):
    return w.load[b, 0]


@kernel
def copies_a_row(w, b, _, __):
    return w.tour[b].copy()[0]


@kernel
def sorts_a_row(w, b, _, __):
    return np.sort(w.tour[b, 1:])[0]


@kernel
def sums_all_rows(w, b, _, __):
    return np.sum(w.load)


@kernel
def sums_left_over_scratch(w, b, _, __):
    return w.pile.sum() > 0


NO_ARRAYS = "makes an array: kernels allocate nothing; write a loop"
FAULTS = [
    (beyond_the_end, "tour", "tour[0, 5]: the index 5 is out of range; the shape is (2, 5)"),
    (before_the_start, "tour", "tour[0, -1]: the index -1 is negative; the shape is (2, 5)"),
    (in_a_part, "locs", "locs[0][3][2]: the index 2 is out of range; the shape is (2,)"),
    (in_a_slice, "tour", "tour[0, 1:4][3]: the index 3 is out of range; the shape is (3,)"),
    (by_a_float, "tour", "tour[0, 2.5]: an index must be a whole number, not 2.5"),
    (nan_to_count, "load", "load[0] = nan: no whole number, as its type int32 needs"),
    (half_to_count, "load", "load[0] = 2.5: no whole number, as its type int32 needs; int(...) would cut it off"),
    (nan_by_hand, "", f"nan cannot become int64 ({-(2**63)}..{2**63 - 1})"),
    (too_wide, "tour", "tour[0, 2] = 40000 does not fit int16 (-32768..32767)"),
    (too_large, "length", "length[0] = 1e+39 does not fit float32"),
    (writes_instance, "locs", "it writes locs[0, 0, 1], which only generate may write"),
    (writes_key, "stream", "it writes stream[0, 2], which only generate may write"),
    (writes_constant, "table", "it writes table[1], a constant of the configuration"),
    (writes_other_row, "load", "it writes load[1], but plays row 0: rows are independent"),
    (reads_other_row, "load", "it reads load[1], but plays row 0: rows are independent"),
    (reads_other_instance, "locs", "it reads locs[1, 0, 0], but plays instance row 0: rows are independent"),
    (takes_many_rows, "load", "it reads load[0:2], but plays row 0: rows are independent"),
    (too_many_indices, "load", "load has 1 axes and got 2 indices"),
    (inverts_a_bool, "action_mask", "action_mask[0, 1] = -1, which Python makes of the ~ of a bool: write `not`"),
    (clears_instance, "locs", "it writes locs[0], which only generate may write"),
    (clears_other_row, "tour", "it writes tour[1], but plays row 0: rows are independent"),
    (clears_beyond_the_end, "pile", "pile[4]: the index 4 is out of range; the shape is (4,)"),
    (divides_by_zero, "", "a whole number is divided by 0"),
    (copies_a_row, "tour", f"tour[0].copy() {NO_ARRAYS}"),
    (sorts_a_row, "tour", f"np.sort() of the whole row tour[0, 1:] {NO_ARRAYS}"),
    (sums_all_rows, "load", "it reads load[:], but plays row 0: rows are independent"),
    (
        sums_left_over_scratch,
        "pile",
        "pile[0] is scratch that this row has not written yet: its value is left over from another row",
    ),
]


@pytest.mark.parametrize(("function", "field", "reason"), FAULTS, ids=[k.py_func.__name__ for k, *_ in FAULTS])
def test_a_fault_names_kernel_line_row_and_index(function, field, reason):
    """Each wrong access of an interpreted kernel is one sentence, at the line where it stands."""
    world = Desk(2, seed=0, debug=True)
    world.reset()
    with pytest.raises(KernelFault) as caught:
        world.map_rows(function)
    code = function.py_func.__code__
    assert str(caught.value) == f"{code.co_name} (test_interpreter.py:{code.co_firstlineno + 2}), row 0: {reason}"
    assert (caught.value.field, caught.value.row, caught.value.reason) == (field, 0, reason)


@pytest.mark.parametrize("debug", [False, True])
def test_a_fraction_that_is_cut_off_by_hand_may_be_kept(debug):
    """int(5 / 2) + 1.0 is 3.0, a whole number."""
    world = Desk(2, seed=0, debug=debug)
    world.reset()
    assert world.map_rows(half_cut_off).tolist() == [3, 3]


def test_scratch_of_another_row_is_not_read():
    """An element that this row wrote may be read, one that an earlier row wrote may not."""
    world = Desk(2, seed=0, debug=True)
    world.reset()
    with pytest.raises(KernelFault, match=r"row 0: pile\[1\] is scratch that this row has not written yet"):
        world.map_rows(reads_left_over_scratch)


class Slate(World):
    """Arrays of one, two and three axes, full of ones when an episode begins; `nothing` has no elements."""

    Config = Config
    action = discrete(2)
    places = instance(float32, "N", 2)
    page = scratch(float64, 2, 3)
    count = state(int32)
    grid = state(float64, 2, "N")
    image = view(uint8, "N", 3)
    lamps = state(bool_, "N")
    nothing = state(int16, "Z")
    action_mask = mask(2)

    @classmethod
    def size_of(cls, config: Config) -> dict[str, int]:
        return {"N": 5, "Z": 0}


@kernel
def draw_slate(w, b):
    clear_row(w.places, w.instance_row[b])
    w.places[w.instance_row[b], 1, 1] = 1.0


@kernel
def fill_slate(w, b):
    w.count[b] = 1
    for i in range(w.N):
        w.lamps[b, i] = True
        for k in range(3):
            w.image[b, i, k] = 255
        for k in range(2):
            w.grid[b, k, i] = -1.5
    for k in range(2):
        w.action_mask[b, k] = True


@kernel
def wipe_slate(w, b, action):
    if action == 1:
        clear_row(w.count, b)
        clear_row(w.grid, b)
        clear_row(w.image, b)
        clear_row(w.lamps, b)
        clear_row(w.nothing, b)
    else:
        clear_row(w.page, 1)
        clear_row(w.grid[b], 1)
        w.grid[b, 1, 0] = w.page[1, 0] + w.page[1, 2]


Slate.bind(generate=draw_slate, reset=fill_slate, step=wipe_slate)


@pytest.mark.parametrize("debug", [False, True])
def test_clear_row_makes_a_row_zero(debug):
    """In rows of no, one and two axes, in a part and in scratch, which counts as written; other rows stay."""
    world = Slate(3, seed=0, debug=debug)
    world.places[:] = 9
    world.reset()
    assert world.places.sum((1, 2)).tolist() == [1, 1, 1] and (world.places[:, 1, 1] == 1).all()
    world.step([1, 0], rows=[1, 2])
    assert world.count.tolist() == [1, 0, 1] and world.lamps.sum(1).tolist() == [5, 0, 5]
    assert world.grid.sum(2).tolist() == [[-7.5, -7.5], [0, 0], [-7.5, 0]]
    assert world.image.sum((1, 2)).tolist() == [15 * 255, 0, 15 * 255]


@kernel
def clear_place(w, b, _, __):
    clear_row(w.place, b)


def test_clear_row_refuses_gaps():
    """Rows of a field in foreign memory are not one block of bytes."""
    world = toys.Borrowed(2, seed=1)
    with pytest.raises(ConfigError, match="clear_row takes a C-ordered array"):
        world.map_rows(clear_place)


@kernel
def misspells(w, b, _, __):
    return w.lenght[b]


def test_a_misspelt_field_offers_the_one_that_was_meant():
    """The world, the name, the nearest field, file and line."""
    world = Desk(1, seed=0, debug=True)
    world.reset()
    line = misspells.py_func.__code__.co_firstlineno + 2
    said = f"Desk has no field 'lenght': did you mean 'length'? (test_interpreter.py:{line})"
    with pytest.raises(KernelFault) as caught:
        world.map_rows(misspells)
    assert str(caught.value) == said


def test_a_fault_is_found_in_what_a_kernel_calls():
    """The kernel named is the one whose line it is, not the one that called it."""
    world = Desk(1, seed=0, debug=True)
    world.reset()
    with pytest.raises(KernelFault, match=r"^beyond_the_end \(test_interpreter"):
        world.map_rows(calls_another)


@kernel
def calls_another(w, b, x, y):
    beyond_the_end(w, b, x, y)
    return 0


# -- how it runs --------------------------------------------------------------------------------------------------


def test_breakpoints_and_tracers_see_the_lines_of_a_kernel():
    """The code that runs has the kernel's own file and lines, so tracers see them in their order."""
    world = Desk(1, seed=0, debug=True)
    seen = []

    def trace(frame, event, _):
        if frame.f_code.co_name == "tidy_desk" and event == "line":
            seen.append((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        world.reset()
    finally:
        sys.settrace(before)
    first = tidy_desk.py_func.__code__.co_firstlineno + 2
    assert seen == [(__file__, first), (__file__, first + 1)]


def test_the_environment_decides_by_default(monkeypatch):
    """MILKRUN_DEBUG sets the mode of worlds without a `debug` of their own; other values are refused by name."""
    for value, debug in ("1", True), ("bounds", "bounds"), ("0", False), ("", False):
        monkeypatch.setenv("MILKRUN_DEBUG", value)
        assert Desk(1).debug == debug and not Desk(1, debug=False).debug and Desk(1, debug=True).debug is True
    monkeypatch.setenv("MILKRUN_DEBUG", "yes")
    with pytest.raises(ConfigError, match="MILKRUN_DEBUG='yes': must be 0, 1 or bounds"):
        Desk(1)
    with pytest.raises(ConfigError, match="debug='on': must be True, 'bounds' or False"):
        Desk(1, debug="on")


@pytest.mark.parametrize("toy", [toys.Sorter, toys.Lantern, toys.Convoy, toys.Turnstile, toys.Glider, toys.Drifter])
def test_toys_play_alike_both_ways(toy):
    """Scratch, views on demand, groups of agents, own legality and box actions: all fields after every step."""
    options = {"config": toy.Config(length=20)} if toy is toys.Sorter else {}
    worlds = [toy(3, seed=4, debug=debug, **options) for debug in (False, True)]
    rng = np.random.default_rng(0)
    for world in worlds:
        world.reset()
    for turn in range(30):
        actions = choose(worlds[0], rng, 0.2)
        for world in worlds:
            world.step(actions)
            world.observe()
        assert list(differences(*worlds, f"in turn {turn}, interpreted", on_demand=True, tolerance=TOLERANCE)) == []


def test_a_copy_of_an_interpreted_world_is_interpreted():
    """deepcopy and pickle keep the mode, and the copy plays on alone."""
    world = toys.Turnstile(2, seed=4, debug=True)
    world.reset()
    for twin in (copy.deepcopy(world), pickle.loads(pickle.dumps(world))):
        assert twin.debug
        twin.step(np.zeros(2, np.int64))
        assert twin.i.tolist() == [1, 1] and world.i.tolist() == [0, 0]


def test_illegal_actions_are_refused_by_interpreted_legality():
    """illegal="raise" calls the kernels through the same entry."""
    world = milkrun.make("milkrun/TSP-v0", 2, seed=1, num_loc=4, illegal="raise", debug=True)
    world.reset()
    with pytest.raises(IllegalAction, match="row 1: action 9"):
        world.step(np.array([1, 9]))


def test_several_threads_are_one_when_interpreted():
    """`threads` changes nothing: rows are played one after the other."""
    worlds = [toys.Sorter(4, toys.SorterConfig(length=8), seed=1, debug=True, threads=n) for n in (1, 2)]
    for world in worlds:
        world.reset()
        world.step(world.sample_actions(5))
    assert list(differences(*worlds, "on two threads")) == []


# -- masks --------------------------------------------------------------------------------------------------------


@kernel
def shutting_reset(w, b):
    toys.lantern_reset(w, b)
    if b == 2:
        for j in range(3):
            w.action_mask[b, j] = False


@kernel
def shutting_step(w, b, action):
    w.lit[b] += action
    for j in range(3):
        w.action_mask[b, j] = w.lit[b] == 0


@kernel
def shutting_idle(w, b, action):
    for j in range(3):
        w.action_mask[b, j] = False


@kernel
def shutting_drone(w, b, action):
    toys.convoy_step(w, b, action)
    w.action_mask[b, 6] = w.action_mask[b, 7] = False


def dark(base: type[World] = toys.Lantern, **kernels: Any) -> World:
    cls = type("Dark", (base,), {"__module__": __name__})
    cls.bind(**kernels)
    return cls(3, seed=0, debug=True)


def leaving(kernel_: Any, part: str, row: int, step: int) -> str:
    code = kernel_.py_func.__code__
    place = rf"{code.co_name} \(test_interpreter\.py:{code.co_firstlineno}\), row {row}"
    return rf"^{place}: it leaves {part} all False at step {step} of a row that has not ended: allow an action, or end "


def test_a_reset_that_leaves_a_row_no_action_is_a_fault():
    """Kernel, row and step are named: rows 0 and 1 may act, row 2 may not."""
    with pytest.raises(KernelFault, match=leaving(shutting_reset, "action_mask", 2, 0)) as met:
        dark(reset=shutting_reset).reset()
    assert (met.value.row, met.value.field) == (2, "action_mask")


def test_a_step_that_leaves_a_row_no_action_is_a_fault():
    """Two steps without a lamp are fine; the first lamp shuts the mask of row 1 at step 3."""
    world = dark(step=shutting_step)
    world.reset()
    world.step([0, 0, 0])
    world.step([0, 0, 0])
    with pytest.raises(KernelFault, match=leaving(shutting_step, "action_mask", 1, 3)):
        world.step([0, 1, 0])


def test_an_illegal_action_that_shuts_the_mask_is_the_fault_of_idle():
    """It was `idle` that ran, not `step`."""
    world = dark(idle=shutting_idle)
    world.reset()
    with pytest.raises(KernelFault, match=leaving(shutting_idle, "action_mask", 0, 1)):
        world.step([9, 0, 0])


def test_an_agent_without_an_action_is_named():
    """The truck and a drone may act, the other drone may not."""
    world = dark(toys.Convoy, step=shutting_drone)
    world.reset(instance={"home": [[0, 0, 0]] * 3})
    with pytest.raises(KernelFault, match=leaving(shutting_drone, r"action_mask\[6:8\], of agent 2,", 0, 1)):
        world.step([[1, 0, 0]] * 3)


def test_a_mask_that_was_shut_from_outside_is_no_fault():
    """Python code has shut it; check_world finds that, and no kernel is named."""
    world = dark(step=toys.lantern_step)
    world.reset()
    world.action_mask[:] = False
    world.step([0, 0, 0])
    assert world.illegal.all()
