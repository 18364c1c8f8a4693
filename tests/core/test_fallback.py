"""Kernels without internal classes of numba: the fallback is automatic, and its rows are equal to the bit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import milkrun
from milkrun.core import kernels
from tests.core.toys import rows_of

PLAY = """
import sys
{before}
import milkrun
from milkrun.core.kernels import part_compiler
from tests.core.toys import rows_of
world = milkrun.make("milkrun/TSP-v0", num_envs=16, seed=11, num_loc=5, threads=1)
world.reset()
for turn in range(20):
    world.step(world.sample_actions(5, turn))
print(part_compiler() is None, rows_of(world))
"""
ANOTHER_NUMBA = "import numba.core.codegen as codegen; del codegen.JITCodeLibrary"


def output(code: str, **env: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_a_numba_with_other_classes_plays_the_same_rows():
    """Where a class of numba is missing, kernels are ordinary functions: every field of every row is the same."""
    world = milkrun.make("milkrun/TSP-v0", num_envs=16, seed=11, num_loc=5, threads=1)
    world.reset()
    for turn in range(20):
        world.step(world.sample_actions(5, turn))
    assert kernels.part_compiler() is not None
    assert output(PLAY.format(before=ANOTHER_NUMBA)) == f"True {rows_of(world)}"


def test_the_environment_selects_ordinary_functions():
    """MILKRUN_PLAIN_NJIT=1 makes no parts, and a kernel called from Python computes the same."""
    code = """
from milkrun.core.kernels import kernel, part_compiler
@kernel
def f(x, y):
    return x + 2 * y
print(part_compiler(), f.is_part, f(4, 3))
"""
    assert output(code, MILKRUN_PLAIN_NJIT="1") == "None False 10"


def test_parts_are_tried_in_an_untested_version_of_numba(monkeypatch):
    """Parts are used if a small kernel works as a part."""
    from milkrun.core.parts import PartCompiler

    monkeypatch.setattr(kernels, "TRIED", ((0, 1), (0, 2)))
    kernels.part_compiler.cache_clear()
    try:
        assert kernels.part_compiler() is PartCompiler
        kernels.part_compiler.cache_clear()
        monkeypatch.setattr(PartCompiler, "define_pipelines", lambda self: [])
        assert kernels.part_compiler() is None
    finally:
        monkeypatch.undo()
        kernels.part_compiler.cache_clear()


def test_one_version_serves_all_whole_numbers():
    """A constant, an int32 and an int64 argument use the same compiled version; a bool uses its own."""
    import numpy as np
    from numba import njit, types

    @kernels.kernel
    def twice(x):
        return 2 * x

    @njit(**kernels.KERNEL_OPTIONS)
    def three(narrow, wide, flag):
        return twice(7) + twice(narrow) + twice(wide) + twice(flag)

    assert three(np.int32(2), 3, True) == 26
    assert list(twice.overloads) == [(types.int64,), (types.boolean,)]


@pytest.mark.parametrize("id", milkrun.list_worlds())
def test_a_default_world_draws_as_usual(id):
    """The default configuration has the values that its class states as usual, so a first use compiles no other law."""
    world = milkrun.make(id, 1, seed=0)
    launcher = world._launcher
    assert launcher.generate(world._table) is launcher._generate_usual
    assert bool(world.usual) == (launcher._generate_usual is not launcher._generate)
