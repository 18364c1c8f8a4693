"""Faults of a kernel's author: each is a sentence that names the thing, the file and the line, not pages of numba."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
from numba.core.errors import NumbaError

from milkrun.core.errors import ConfigError
from milkrun.core.kernels import kernel
from tests.core.toys import Lantern


@kernel
def misspelt_field(w, b, action):
    w.lit[b] += action
    w.rewrad[b] = action  # the fault


@kernel
def forgotten_constant(w, b, action):
    w.lit[b] += w.brightness * action  # the fault


@kernel
def brightness(w, b, factor):
    return w.lit[b] * factor


@kernel
def too_few_values(w, b, action):
    w.lit[b] = brightness(w, b)  # the fault


def doubled(x):
    return 2 * x


@kernel
def plain_function(w, b, action):
    w.lit[b] += doubled(action)  # the fault


@kernel
def allocation(w, b, action):
    page = np.zeros(w.side)  # the fault
    w.lit[b] = page[0]


@kernel
def list_inside(w, b, action):
    page = [action, action]  # the fault
    w.lit[b] = page[0]


@kernel
def unknown_name(w, b, action):
    w.lit[b] += STEP_OF_A_LAMP  # noqa: F821  # the fault


@kernel
def deep_inside(w, b):
    w.lit[b] = w.gaol[w.instance_row[b]]  # the fault


@kernel
def calls_the_culprit(w, b, action):
    deep_inside(w, b)


@kernel
def no_such_operation(w, b, action):
    w.lit[b] = w.action_mask @ w.lit  # the fault


SENTENCES = [
    (misspelt_field, misspelt_field, "Broken has no field 'rewrad': did you mean 'reward'? ({})"),
    (forgotten_constant, forgotten_constant, "Broken has no field 'brightness'... ({})"),
    (too_few_values, too_few_values,
     "the kernel 'too_few_values' gives brightness 2 values, which takes (w, b, factor) ({})"),
    (plain_function, plain_function,
     "the kernel 'plain_function' calls doubled, a plain Python function: mark it @kernel ({})"),
    (allocation, allocation,
     "the kernel 'allocation' allocates memory by np.zeros, which it must not: declare a scratch field for it ({})"),
    (list_inside, list_inside,
     "the kernel 'list_inside' allocates a list, which it must not: declare a scratch field for it ({})"),
    (unknown_name, unknown_name,
     "the kernel 'unknown_name' names 'STEP_OF_A_LAMP', which is defined nowhere... ({})"),
    (calls_the_culprit, deep_inside, "Broken has no field 'gaol': did you mean 'goal'? ({})"),
]  # fmt: skip


def broken(step) -> Lantern:
    """A lantern world with another step, reset."""
    cls = type("Broken", (Lantern,), {"__module__": __name__})
    cls.bind(step=step)
    world = cls(1, seed=0)
    world.reset()
    return world


def place_of(function) -> str:
    lines, first = inspect.getsourcelines(function.py_func)
    return f"test_faults.py:{first + next(k for k, line in enumerate(lines) if '# the fault' in line)}"


@pytest.mark.parametrize(("step", "culprit", "sentence"), SENTENCES, ids=[s.py_func.__name__ for s, _, _ in SENTENCES])
def test_a_fault_of_a_kernel_is_a_sentence(step, culprit, sentence):
    """The sentence says what, in which file and line; what the compiler said is its cause."""
    world = broken(step)
    with pytest.raises(ConfigError) as met:
        world.step([1])
    wanted = re.escape(sentence.format(place_of(culprit))).replace(r"\.\.\.", ".*")
    assert re.fullmatch(wanted, str(met.value)), str(met.value)
    assert met.value.__cause__ is not None


def test_any_other_fault_names_the_line_and_keeps_the_compilers_words():
    """What nobody foresaw is still one line with a place, and the whole text is the cause."""
    world = broken(no_such_operation)
    with pytest.raises(ConfigError) as met:
        world.step([1])
    assert "does not compile" in str(met.value) and place_of(no_such_operation) in str(met.value)
    assert "\n" not in str(met.value) and len(str(met.value)) < 300
    assert isinstance(met.value.__cause__, NumbaError)


@kernel
def too_many_indices(w, b, action):
    count_up(w, b)


@kernel
def count_up(w, b):
    w.lit[b, 0] += 1  # the fault


def test_the_innermost_line_and_the_compilers_own_reason_are_given():
    """Not the line of the caller, nor the way the compiler took to the fault, nor its colours."""
    with pytest.raises(ConfigError) as met:
        broken(too_many_indices).step([1])
    assert str(met.value).startswith(f"a kernel does not compile ({place_of(count_up)}): cannot index array(")
    assert "with 2 indices" in str(met.value) and "\x1b" not in str(met.value)


def test_a_row_map_of_no_kernel_is_refused_by_name():
    """A plain function, and a kernel of other parameters."""
    world = broken(plain_function)
    with pytest.raises(ConfigError, match=r"map_rows: doubled \(test_faults.py:\d+\) is not a @kernel"):
        world.map_rows(doubled)
    with pytest.raises(ConfigError, match=r"map_rows: test_faults.py:\d+ takes 3 parameters, not \(w, b, x, y\)"):
        world.map_rows(plain_function)


def test_a_world_with_a_broken_kernel_is_refused_again():
    """A second try says the same: nothing half made is kept."""
    world = broken(misspelt_field)
    said = []
    for _ in range(2):
        with pytest.raises(ConfigError) as met:
            world.step([1])
        said.append(str(met.value))
    assert said[0] == said[1]


def test_a_constant_that_nobody_declared_is_refused():
    """constants() of a world may name its declared constants only."""

    class Dim(Lantern):
        def constants(self):
            return {"longestt": 4}

    with pytest.raises(ConfigError, match=r"Dim\.constants\(\) names 'longestt', .*; did you mean 'longest'\?"):
        Dim(1, seed=0)
