"""The kernel `fault`: loaded states whose values are within bounds but inconsistent are refused before play."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import milkrun
from milkrun.core.check import check_world
from milkrun.core.errors import BadInstance, KernelFault
from milkrun.core.kernels import kernel
from milkrun.core.world import World
from tests import small
from tests.core.stack import TOO_FULL, Stack


@kernel
def fault_by_tally(w, b):
    return w.seen[b, 0] > 9


@kernel
def fault_by_view(w, b):
    return w.top[b] > 9


@kernel
def fault_that_writes(w, b):
    w.height[b] = 0
    return 0


@kernel
def fault_of_nothing(w, b):
    w.height[b]


@kernel
def fault_of_own_play(w, b):
    return TOO_FULL if w.height[b] == 1 else 0


def with_fault(function: Any, **attributes: Any) -> type[World]:
    """The stack with another kernel `fault`."""
    cls = type("Judged", (Stack,), {"__module__": __name__, "__doc__": "A stack.", **attributes})
    cls.bind(fault=function)
    return cls


def played(debug: bool = False) -> Stack:
    world = Stack(3, seed=0, debug=debug)
    world.reset()
    world.step([0, 1, 2])
    return world


CASES = {
    "full": ("height", 1, 3, r"row 1: height = 3: over the room 3, or full and not terminated"),
    "over": ("height", 0, 4, r"row 0: height = 4: over the room 2"),
    "gap": ("crate", (2, 0), 0, r"row 2: crate: has gaps"),
    "instance": ("room", 2, 1, r"row 2: height = 1: over the room 1"),
}


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("some", [False, True], ids=["all rows", "some rows"])
@pytest.mark.parametrize("case", CASES)
def test_a_state_whose_values_do_not_go_together_is_not_loaded(case: str, some: bool, debug: bool) -> None:
    """Every value is within its bounds; row, field, value and rule are named, and the world is as it was."""
    name, at, value, said = CASES[case]
    world = played(debug)
    saved = world.state_dict()
    world.load_state_dict(saved)
    changed = {key: array.copy() for key, array in saved.items()}
    changed[name][at] = value
    with pytest.raises(BadInstance, match=said):
        world.load_state_dict(changed, rows=[2, 1, 0] if some else None)
    assert all((array == saved[key]).all() for key, array in world.state_dict().items())


def test_a_row_of_shared_instances_is_checked_against_its_own() -> None:
    """Rows 0 and 2 play one instance of two places, row 1 another of four: three crates are too many for row 2."""
    world = Stack(3, seed=0)
    world.reset(instance={"room": [2, 4], "instance_row": [0, 1, 0]})
    world.step([0, 0, 0])
    saved = world.state_dict()
    saved["height"][:] = [1, 3, 3]
    saved["crate"][1:, :3] = 1
    with pytest.raises(BadInstance, match="row 2: height = 3: over the room 2"):
        world.load_state_dict(saved)
    saved["height"][2], saved["crate"][2, 1:] = 1, 0
    world.load_state_dict(saved)
    assert world.height.tolist() == [1, 3, 1]


def test_an_undeclared_fault_number_is_reported() -> None:
    """An entry of `faults` is missing."""
    world = with_fault(fault_of_own_play, faults={})(2, seed=0)
    world.reset()
    world.step([0, 0])
    message = re.escape(
        "row 0: its state is impossible: the kernel `fault` returns 1, which Judged.faults does not list"
        ": write faults = {1: (field, rule), ...}"
    )
    with pytest.raises(BadInstance, match=message):
        world.load_state_dict(world.state_dict())


def test_check_world_finds_an_undeclared_fault_number() -> None:
    """Without any refused state: the checker reads the number and its line in the kernel's source."""
    (finding,) = check_world(with_fault(fault_of_own_play, faults={}))
    assert re.fullmatch(
        r"faults_described: fault_of_own_play \(test_fault\.py:\d+\) returns 1, which Judged\.faults does not list: "
        r"write faults = \{1: \(field, rule\), \.\.\.\}",
        str(finding),
    )


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (fault_by_tally, "it reads seen, a tally: TensorDicts do not carry it"),
        (fault_by_view, "it reads top, a view: TensorDicts do not carry it"),
        (fault_that_writes, r"it writes height\[0\], but `fault` only reads a state"),
        (fault_of_nothing, "it gives None: a whole number is needed, 0 where nothing is wrong"),
    ],
)
def test_an_invalid_fault_kernel_is_found_when_interpreted(function: Any, said: str) -> None:
    """By `debug=True`, with kernel and line, and by check_world."""
    cls = with_fault(function)
    world = cls(2, seed=0, debug=True)
    world.reset()
    with pytest.raises(KernelFault, match=rf"{function.py_func.__name__} \(test_fault\.py:\d+\), row 0: {said}"):
        world.load_state_dict(world.state_dict())
    (finding,) = check_world(cls)
    assert finding.rule == "accesses_checked"


def test_a_world_that_refuses_its_own_play_is_found() -> None:
    """A row with one crate is refused, but every episode has one."""
    (finding,) = check_world(with_fault(fault_of_own_play))
    assert str(finding).startswith("takes_own_states: refuses a state of its own play: row ")


def test_the_stack_is_sound() -> None:
    """What the cases above break."""
    assert check_world(Stack) == []


@pytest.mark.parametrize("debug", [False, True])
def test_every_world_accepts_its_own_states(debug: bool) -> None:
    """The kernels `fault` of the library's worlds return 0 in play."""
    for id in milkrun.list_worlds():
        world = milkrun.make(id, 1 if debug else 4, seed=1, debug=debug, **small.options(id))
        world.reset()
        for turn in range(3 if debug else small.turns(id, 40)):
            world.check_own_states()
            world.step(world.sample_actions(0, turn))


# -- instances in a saved state ------------------------------------------------------------------------------------


def test_instances_of_a_saved_state_are_checked() -> None:
    """A demand over the capacity: as in a reset the row and the field are named, and the world is as it was."""
    world = milkrun.make("milkrun/CVRP-v0", 3, seed=0, num_loc=5)
    world.reset()
    saved = world.state_dict()
    for rows in (None, [0, 1, 2]):
        broken = {**saved, "demand_units": saved["demand_units"].copy()}
        broken["demand_units"][1, 2] = 10**6
        with pytest.raises(BadInstance, match=r"row 1: demand_units\[2\] = 1000000: over the capacity"):
            world.load_state_dict(broken, rows)
        assert all(np.array_equal(array, saved[name]) for name, array in world.state_dict().items())


def test_instances_that_a_world_plays_already_are_not_checked_again() -> None:
    """A search goes back and forth between states of one instance; `check_instances` may be slow."""
    checked = []

    class Recording(Stack):
        """A stack that records its calls."""

        def check_instances(self, arrays):
            checked.append(arrays["room"].tolist())

    world, other = Recording(2, seed=0), Recording(2, seed=0)
    world.reset(instance={"room": [2, 3]})
    other.reset()
    checked.clear()
    world.load_state_dict(world.state_dict())
    assert checked == []
    other.load_state_dict({**world.state_dict(), "room": np.array([4, 3], np.int32)})
    assert checked == [[4, 3]]
