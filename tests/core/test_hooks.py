"""The kernels of a class: those it bound, else those of its base; every ambiguity is refused by name."""

from __future__ import annotations

import sys
import types

import pytest

from milkrun.core.actions import discrete
from milkrun.core.errors import ConfigError
from milkrun.core.fields import instance, int32, mask, state
from milkrun.core.hooks import kernels_of
from milkrun.core.kernels import kernel
from milkrun.core.world import World


class Counter(World):
    """Counts by what its step adds."""

    action = discrete(2)
    start = instance(int32)
    count = state(int32)
    action_mask = mask(2)


@kernel
def draw(w, b):
    w.start[w.instance_row[b]] = 0


@kernel
def begin(w, b):
    w.count[b] = 0
    for a in range(2):
        w.action_mask[b, a] = True


@kernel
def add_one(w, b, action):
    w.count[b] += 1


@kernel
def add_ten(w, b, action):
    w.count[b] += 10


Counter.bind(generate=draw, reset=begin, step=add_one)


class Tens(Counter):
    """Another world of the same file, with a step of its own."""


Tens.bind(step=add_ten)


class Derived(Tens):
    """Binds nothing."""


def counted(cls: type[World]) -> int:
    world = cls(1, seed=0)
    world.reset()
    world.step([0])
    return int(world.count[0])


def test_two_worlds_of_one_file_play_their_own_steps():
    """One adds one, the other ten; a class that binds nothing plays as its base does."""
    assert [counted(cls) for cls in (Counter, Tens, Derived)] == [1, 10, 10]


def test_a_world_without_a_kernel_says_what_to_write():
    """The error has the missing statement."""
    bare = type("Bare", (World,), {"action": discrete(2), "action_mask": mask(2), "__module__": "elsewhere"})
    with pytest.raises(ConfigError, match=r"Bare has no kernel 'generate': write Bare\.bind\(generate="):
        bare(1)


def test_an_unbound_kernel_is_refused():
    """With a `step` that a subclass forgot to bind, the base's rules would stay in force without notice."""
    module = types.ModuleType("forgetful")
    exec("from milkrun.core.kernels import kernel\n@kernel\ndef step(w, b, action):\n    pass\n", vars(module))
    sys.modules["forgetful"] = module
    try:
        derived = type("Forgetful", (Counter,), {"__module__": "forgetful"})
        with pytest.raises(ConfigError, match=r"no class plays the kernel 'step' .*: write Forgetful\.bind\(step"):
            derived(1)
    finally:
        del sys.modules["forgetful"]


def test_bases_that_disagree_are_refused():
    """A class of two bases with steps of their own must say which it plays."""
    other = type("Other", (Counter,), {})
    other.bind(step=add_one)
    both = type("Both", (Tens, other), {})
    with pytest.raises(ConfigError, match="Both inherits the kernel 'step' from Tens and from Other"):
        kernels_of(both)
    both.bind(step=add_ten)
    assert counted(both) == 10


@pytest.mark.parametrize(
    ("kernels", "sentence"),
    [
        ({"stepp": add_one}, "there is no kernel 'stepp'; did you mean 'step'"),
        ({"step": len}, "is not a @kernel"),
        ({"step": begin}, r"test_hooks.py:\d+ takes 2 parameters, not \(w, b, action\)"),
    ],
)
def test_a_wrong_statement_is_refused_in_a_sentence(kernels, sentence):
    """An unknown hook, a plain function, a kernel of other parameters."""
    fresh = type("Fresh", (Counter,), {})
    with pytest.raises(ConfigError, match=sentence):
        fresh.bind(**kernels)


def test_bound_kernels_are_final():
    """A second kernel for one hook is refused, and so is a binding after the first world of the class."""
    fresh = type("Fresh", (Counter,), {})
    fresh.bind(step=add_ten)
    with pytest.raises(ConfigError, match="Fresh has bound 'step' already"):
        fresh.bind(step=add_one)
    counted(fresh)
    with pytest.raises(ConfigError, match="comes too late: a Fresh has been made already"):
        fresh.bind(idle=add_one)
