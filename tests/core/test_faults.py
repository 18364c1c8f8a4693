"""Faults of a kernel's author: each is a sentence with a name, a file and a line, not numba's pages."""

from __future__ import annotations

import inspect
import random
import re

import numpy as np
import pytest
from numba.core.errors import NumbaError

from milkrun.core.errors import ConfigError, KernelFault, KernelRefused
from milkrun.core.fields import int32, state
from milkrun.core.kernels import kernel
from tests.core import toys
from tests.core.toys import Lantern


@kernel
def misspelt_field(w, b, action):
    w.lit[b] += action
    w.rewrad[b] = action  # the fault


@kernel
def forgotten_constant(w, b, action):
    w.lit[b] += w.brightness * action  # the fault


def doubled(x):
    return 2 * x


@kernel
def plain_function(w, b, action):
    w.lit[b] += doubled(action)  # the fault


@kernel
def allocation(w, b, action):
    page = np.zeros(3)  # the fault
    w.lit[b] = page[0]


@kernel  # the fault
def unknown_name(w, b, action):
    w.lit[b] += STEP_OF_A_LAMP  # noqa: F821


@kernel
def deep_inside(w, b):
    w.lit[b] = w.gaol[w.instance_row[b]]  # the fault


@kernel
def calls_the_culprit(w, b, action):
    deep_inside(w, b)


@kernel
def no_such_operation(w, b, action):
    w.lit[b] = action.many  # the fault


SENTENCES = [
    (misspelt_field, misspelt_field, "Broken has no field 'rewrad': did you mean 'reward'? ({})"),
    (forgotten_constant, forgotten_constant, "Broken has no field 'brightness'... ({})"),
    (
        plain_function,
        plain_function,
        "a kernel does not compile ({}): it calls 'doubled', which is a plain function: decorate it with @kernel...",
    ),
    (
        allocation,
        allocation,
        "a kernel does not compile ({}): it allocates memory, which a kernel must not: write a loop, or declare...",
    ),
    (unknown_name, unknown_name, "a kernel does not compile ({}): name 'STEP_OF_A_LAMP' is not defined..."),
    (calls_the_culprit, deep_inside, "Broken has no field 'gaol': did you mean 'goal'? ({})"),
]


def broken(step, debug=False, **attributes) -> Lantern:
    """A lantern world with another step, reset."""
    cls = type("Broken", (Lantern,), {"__module__": __name__, **attributes})
    cls.bind(step=step)
    world = cls(1, seed=0, debug=debug)
    world.reset()
    return world


def place_of(function) -> str:
    lines, first = inspect.getsourcelines(function.py_func)
    return f"test_faults.py:{first + next(k for k, line in enumerate(lines) if '# the fault' in line)}"


@pytest.mark.parametrize(("step", "culprit", "sentence"), SENTENCES, ids=[s.py_func.__name__ for s, _, _ in SENTENCES])
def test_a_fault_of_a_kernel_is_a_sentence(step, culprit, sentence):
    """The sentence has the fault, its file and line; the compiler's message is its cause."""
    world = broken(step)
    with pytest.raises(ConfigError) as met:
        world.step([1])
    wanted = re.escape(sentence.format(place_of(culprit))).replace(r"\.\.\.", ".*")
    assert re.fullmatch(wanted, str(met.value)), str(met.value)
    assert met.value.__cause__ is not None


def test_any_other_fault_names_the_line_and_keeps_the_compilers_words():
    """It is one line with a place, and the compiler's message is its cause."""
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
    """Not the line of the caller, nor the compiler's trace, nor its colours."""
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
    """A second try raises the same error: no partial result is cached."""
    world = broken(misspelt_field)
    said = []
    for _ in range(2):
        with pytest.raises(ConfigError) as met:
            world.step([1])
        said.append(str(met.value))
    assert said[0] == said[1]


def test_an_undeclared_constant_is_refused():
    """constants() of a world may name its declared constants only."""

    class Dim(Lantern):
        def constants(self):
            return {"longestt": 4}

    with pytest.raises(ConfigError, match=r"Dim\.constants\(\) names 'longestt', .*; did you mean 'longest'\?"):
        Dim(1, seed=0)


# -- random numbers that belong to no row ------------------------------------------------------------------------------

GENERATOR = np.random.default_rng(0)
randint = random.randint


@kernel
def draws_by_numpy(w, b, action):
    w.lit[b] = np.random.randint(0, 3)  # the fault


@kernel
def draws_by_python(w, b, action):
    w.lit[b] = int(
        3 * random.random()  # the fault
    )


@kernel
def draws_by_a_generator(w, b, action):
    w.lit[b] = GENERATOR.normal()  # the fault


@kernel
def draws_by_a_function(w, b, action):
    w.lit[b] = randint(0, 2)  # the fault


@kernel
def calls_a_drawing_kernel(w, b, action):
    draws_by_numpy(w, b, action)


OWN = "rows have streams of their own; draw from row_stream(w, b, PURPOSE) with a function of milkrun.core.rng"
DRAWS = [
    (draws_by_numpy, draws_by_numpy, "np.random.randint"),
    (draws_by_python, draws_by_python, "random.random"),
    (draws_by_a_generator, draws_by_a_generator, "GENERATOR.normal"),
    (draws_by_a_function, draws_by_a_function, "randint"),
    (calls_a_drawing_kernel, draws_by_numpy, "np.random.randint"),
]


@pytest.mark.parametrize("debug", [False, True], ids=["compiled", "debug"])
@pytest.mark.parametrize(("step", "culprit", "used"), DRAWS, ids=[s.py_func.__name__ for s, _, _ in DRAWS])
def test_a_kernel_that_draws_from_a_foreign_generator_is_refused(step, culprit, used, debug):
    """When the world is made, and each time: the generator, its place, and what to use instead."""
    for _ in range(2):
        with pytest.raises(KernelRefused) as met:
            broken(step, debug)
        name = culprit.py_func.__name__
        assert str(met.value) == f"the kernel {name!r} draws from {used} ({place_of(culprit)}): {OWN}"


def test_a_generator_is_refused_without_a_source():
    """A kernel typed at a prompt has no source to name the line of."""
    names = {"kernel": kernel, "np": np}
    exec("@kernel\ndef draws(w, b, action):\n    w.lit[b] = np.random.randint(0, 3)", names)
    with pytest.raises(
        KernelRefused, match=r"'draws' draws from a generator of numpy or Python \(<string>\): rows have"
    ):
        broken(names["draws"])


@kernel
def chance_of_a_row(w, b, x, y):
    return w.lit[b] + np.random.randint(3)  # the fault


def test_a_row_map_that_draws_from_a_foreign_generator_is_refused():
    """A policy is a kernel like any other."""
    with pytest.raises(
        KernelRefused, match=r"'chance_of_a_row' draws from np\.random\.randint \(test_faults\.py:\d+\)"
    ):
        broken(toys.lantern_step).map_rows(chance_of_a_row)


@kernel
def reads_a_field_called_random(w, b, action):
    w.lit[b] = np.sqrt(w.random[b, 0])


@pytest.mark.parametrize("debug", [False, True], ids=["compiled", "debug"])
def test_a_field_may_be_called_random(debug):
    """Only an attribute of numpy is numpy's."""
    world = broken(reads_a_field_called_random, debug, random=state(int32, 4))
    world.random[:] = 9
    world.step([1])
    assert world.lit[0] == 3


# -- arithmetic on whole rows ------------------------------------------------------------------------------------------


@kernel
def counts_by_rows(w, b, action):
    count_stages(w, b)


@kernel
def count_stages(w, b):
    w.lit[b] = (w.stage[b] == 1).sum()  # the fault


@kernel
def doubles_a_row(w, b, action):
    row = w.stage[b, 1:]
    w.lit[b] = (2 * row).sum()  # the fault


@kernel
def raises_a_row(w, b, action):
    w.stage[b] += action  # the fault


@kernel
def root_of_a_row(w, b, action):
    w.lit[b] = np.sqrt(w.stage[b]).sum()  # the fault


ROWS = [
    (counts_by_rows, count_stages),
    (doubles_a_row, doubles_a_row),
    (raises_a_row, raises_a_row),
    (root_of_a_row, root_of_a_row),
]


@pytest.mark.parametrize("step", [step for step, _ in ROWS], ids=[step.py_func.__name__ for step, _ in ROWS])
def test_arithmetic_on_whole_rows_does_not_compile(step):
    """It would allocate an array: the place and what to do instead."""
    world = broken(step, stage=state(int32, 4))
    with pytest.raises(KernelRefused, match=r"\(test_faults\.py:\d+\): it allocates memory, .*: write a loop"):
        world.step([1])


@pytest.mark.parametrize(("step", "culprit"), ROWS, ids=[step.py_func.__name__ for step, _ in ROWS])
def test_arithmetic_on_whole_rows_is_a_fault(step, culprit):
    """The same with debug=True, where Python would compare an array with a number and say False."""
    world = broken(step, debug=True, stage=state(int32, 4))
    with pytest.raises(KernelFault, match=r"the whole row stage\[0.*write a loop") as met:
        world.step([1])
    assert met.value.place == f"{culprit.py_func.__name__} ({place_of(culprit)})" and met.value.field == "stage"


@kernel
def sums_a_row(w, b, action):
    w.lit[b] = w.stage[b].sum() + np.sum(w.stage[b, 1:]) + w.stage[b].shape[0]


@pytest.mark.parametrize("debug", [False, True], ids=["compiled", "debug"])
def test_sums_of_whole_rows_stay(debug):
    """They allocate nothing: 0 + 1 + 2 + 3, then 1 + 2 + 3, and 4 elements."""
    world = broken(sums_a_row, debug, stage=state(int32, 4))
    world.stage[0] = range(4)
    world.step([1])
    assert world.lit[0] == 16
