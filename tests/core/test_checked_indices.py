"""debug="bounds": compiled kernels with checked indices play the same rows, and refuse an index beyond an array."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import milkrun
from milkrun.core import rng
from milkrun.core.check.bench import choose, differences
from milkrun.core.errors import KernelFault, KernelRefused
from milkrun.core.kernels import kernel
from tests.core import toys


@kernel
def put(places, k, value):
    places[k] = value


@kernel
def writes_far(w, b, action):
    w.lit[b + 1_000_000 * action] = 1


@kernel
def calls_the_culprit(w, b, action):
    put(w.lit, b + 1_000_000 * action, 1)


@kernel
def reads_far_in_a_part(w, b, action):
    w.lit[b] = w.image[b][action * 1_000_000, 0]


@kernel
def draws_far(w, b, action):
    rng.permutation(rng.row_stream(w, b, 9), w.lit[b : b + 1])
    rng.shuffle_from(rng.row_stream(w, b, 9), w.lit[b : b + 1], -2 * action)


@kernel
def counts_from_the_end(w, b, action):
    w.lit[action - 2] = 7


def lantern(step, rows=2, **options):
    cls = type("Broken", (toys.Lantern,), {"__module__": __name__})
    cls.bind(step=step)
    world = cls(rows, seed=0, debug="bounds", **options)
    world.reset()
    return world


@pytest.mark.parametrize(
    "step", [writes_far, calls_the_culprit, reads_far_in_a_part], ids=lambda step: step.py_func.__name__
)
def test_an_index_beyond_an_array_is_refused(step):
    """In the kernel itself, in one that it calls with an array, and in a part of a field; action 0 is in range."""
    world = lantern(step)
    world.step([0, 0])
    with pytest.raises(
        KernelFault, match=r"^Broken: .* in step_rows; .* debug=True, which names kernel, line"
    ) as caught:
        world.step([0, 1])
    assert isinstance(caught.value.__cause__, IndexError)


def test_kernels_reached_through_a_module_are_checked():
    """`rng.shuffle_from` leaves an array of one element where its first position is below 0."""
    world = lantern(draws_far)
    world.step([0, 0])
    with pytest.raises(KernelFault, match="in step_rows"):
        world.step([0, 1])


def test_a_negative_index_counts_from_the_end():
    """As in Python: row -2 of two rows is the first, which docs/add-a-world.md says."""
    world = lantern(counts_from_the_end)
    world.step([0, 0])
    assert world.lit[0] == 7


def test_more_rows_than_one_thread_takes_run_on_one():
    """An error must reach Python, which it cannot from a parallel loop."""
    world = lantern(writes_far, rows=4096, threads=2)
    with pytest.raises(KernelFault):
        world.step(np.ones(4096, np.int64))


@pytest.mark.parametrize("toy", [toys.Sorter, toys.Lantern, toys.Convoy, toys.Turnstile, toys.Glider, toys.Drifter])
def test_toys_play_the_same_bits(toy):
    """Scratch, views on demand, groups of agents, own legality and box actions: all fields after every step."""
    worlds = [toy(3, seed=4, debug=debug) for debug in (False, "bounds")]
    random = np.random.default_rng(0)
    for world in worlds:
        world.reset()
    for turn in range(30):
        actions = choose(worlds[0], random, 0.2)
        for world in worlds:
            world.step(actions)
            world.observe()
        assert list(differences(*worlds, f"in turn {turn}, with checked indices", on_demand=True)) == []


def test_a_copy_keeps_the_mode():
    """deepcopy and pickle."""
    world = milkrun.make("milkrun/TSP-v0", 2, seed=1, num_loc=4, debug="bounds")
    world.reset()
    for twin in (copy.deepcopy(world), pickle.loads(pickle.dumps(world))):
        assert twin.debug == "bounds"
        twin.step(twin.sample_actions(3))
        assert twin.i.tolist() == [1, 1]


@kernel
def misspells(w, b, action):
    w.lit[b] = w.rewrad[b]


def test_a_kernel_that_does_not_compile_is_refused():
    """With the sentence of ordinary play."""
    with pytest.raises(KernelRefused, match=r"Broken has no field 'rewrad': did you mean 'reward'\? \(test_checked"):
        lantern(misspells).step([0, 0])
