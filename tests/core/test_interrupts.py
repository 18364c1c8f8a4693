"""Ctrl-C and other signals: after an interrupted call a world is as before it, as after it, or requires a reset.

The tests raise SIGINT before one bytecode of a call after the other, in all files of ours that it runs through; those
marked long leave none out.
"""

from __future__ import annotations

import copy
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import milkrun
from milkrun.core import episodes, interrupts, launcher, memory, sampling, saving, threads, world
from milkrun.core.errors import ConfigError, ResetNeeded
from milkrun.core.interrupts import undisturbed
from milkrun.core.kernels import kernel
from milkrun.core.world import World
from tests.core.toys import Convoy, Lantern, rows_of

pytestmark = pytest.mark.usefixtures("interrupts")

OURS = {m.__file__ for m in (world, episodes, saving, memory, threads, interrupts, launcher, sampling)}


def interrupted(call: Callable[[], Any], at: int) -> tuple[bool, int]:
    """Makes a call and raises SIGINT before its bytecode number `at`: (whether it came out, bytecodes counted)."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in OURS:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            count += 1
            if count == at:
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True, count
    finally:
        sys.settrace(before)
    return False, count


def seen_of(world: World) -> Any:
    """All rows of a world, and what it keeps of rows that ended."""
    final = {name: array.tobytes() for name, array in world.final.items()}
    return rows_of(world), final, world.final_rows.tolist(), world.num_instances


def strike_everywhere(start: World, call: Callable[[World], Any], stride: int = 1) -> dict[str, int]:
    """Interrupts a call on copies of a world, before each `stride`-th bytecode: how often the world was as before it,
    as after it, and in need of a reset. In all cases its memory is sound, and it plays on as others do."""
    done = copy.deepcopy(start)
    call(done)
    before, after = seen_of(start), seen_of(done)
    assert before != after
    found = {"before": 0, "after": 0, "reset": 0}
    at = 0
    while True:
        at += stride
        struck = copy.deepcopy(start)
        out, count = interrupted(lambda world=struck: call(world), at)
        if count < at:
            return found
        assert out, f"the interrupt before bytecode {at} was lost"
        assert_sound(struck)
        try:
            struck.observe()
        except ResetNeeded:
            found["reset"] += 1
            assert_requires_a_reset(struck)
        else:
            seen = seen_of(struck)
            assert seen in (before, after), f"half a call: interrupted before bytecode {at}"
            found["before" if seen == before else "after"] += 1
        struck.reset(seed=123)
        fresh = copy.deepcopy(start)
        fresh.reset(seed=123)
        play_on(struck)
        play_on(fresh)
        assert rows_of(struck) == rows_of(fresh), f"plays otherwise after an interrupt before bytecode {at}"


def assert_sound(world: World) -> None:
    """Rows play instances that exist, and the table of the kernels names the arrays that Python sees."""
    assert 0 <= world.instance_row.min() and world.instance_row.max() < world.num_instances
    expected = world._launcher_layout.table(world.num_envs, world.num_instances, world.sizes)
    for name in world.fields:
        world._launcher_layout.put(expected, name, getattr(world, name))
    assert np.array_equal(expected, world._table)


def assert_requires_a_reset(world: World) -> None:
    """Every use of all rows raises, also the second time."""
    saved = fresh_saved(world)
    zeros = np.zeros((world.num_envs, *world.action.shape(world.sizes)), world.action.dtype)
    for use in (lambda: world.step(zeros), world.state_dict, world.sample_actions, world.refuse_unready):
        with pytest.raises(ResetNeeded, match="an interrupt or an error ended a call"):
            use()
    loaded = copy.deepcopy(world)
    loaded.load_state_dict(saved)
    play_on(loaded)


def fresh_saved(world: World) -> dict[str, np.ndarray]:
    other = type(world)(world.num_envs, world.config, seed=4, autoreset=world.autoreset)
    other.reset()
    return other.state_dict()


def play_on(world: World) -> None:
    for turn in range(2):
        world.step(world.sample_actions(5, turn))
    world.observe()


def about_to_end(world: World) -> tuple[World, Any]:
    """The world before a step in which a row ends (or begins its next episode, one step later), and the actions of that
    step."""
    world.reset()
    for turn in range(4000):
        actions = world.sample_actions(3, turn)
        ahead = copy.deepcopy(world)
        ahead.step(actions)
        if world.autoreset == "same_step":
            if len(ahead.final_rows) and len(world.final_rows) == 0:
                return world, actions
        elif (ahead.stream != world.stream).any():
            return world, actions
        world = ahead
    raise AssertionError("no row ended")


MAKE: dict[str, Callable[[str], World]] = {
    "Lantern": lambda mode: Lantern(3, seed=2, autoreset=mode),
    "Convoy": lambda mode: Convoy(2, seed=0, autoreset=mode),
    "CVRP": lambda mode: milkrun.make("milkrun/CVRP-v0", num_envs=4, seed=1, num_loc=5, autoreset=mode),
    "TruckDrone": lambda mode: milkrun.make("milkrun/TruckDrone-v0", num_envs=3, seed=1, max_steps=6, autoreset=mode),
}


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.long), 13])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("name", ["Lantern", "Convoy", "CVRP", "TruckDrone"])
def test_an_interrupted_step_in_which_rows_end(name, mode, stride):
    """Interrupted anywhere: no row plays on after its end, and none is half begun."""
    start, actions = about_to_end(MAKE[name](mode))
    found = strike_everywhere(start, lambda world: world.step(actions), stride)
    assert found["before"] and found["reset"]


def test_an_interrupted_step_in_which_no_row_ends():
    """Also the one after an end in the same step, which clears what the ended rows showed last."""
    start, actions = about_to_end(MAKE["Lantern"]("same_step"))
    start.step(actions)
    assert len(start.final_rows)
    found = strike_everywhere(start, lambda world: world.step(np.zeros(3, np.int64)))
    assert found["before"] and found["after"] and found["reset"]


def test_an_interrupted_step_by_two_threads():
    """Their scratch memory is allocated meanwhile."""
    start, actions = about_to_end(MAKE["Lantern"]("same_step"))
    start.threads = 2
    strike_everywhere(start, lambda world: world.step(actions), 101)


@pytest.mark.parametrize("how", ["plain", "seeded", "some rows", "given", "shared", "drawn again", "first"])
def test_an_interrupted_reset(how):
    """Drawn or given instances, own or shared, before and after."""
    start = Lantern(3, seed=2)
    if how != "first":
        shared = {"goal": [9, 8], "instance_row": [0, 1, 0]}
        start.reset(instance=shared if how in ("drawn again", "some rows") else None)
        start.step([1, 2, 1])
    call: Callable[[World], Any] = {
        "plain": lambda world: world.reset(),
        "seeded": lambda world: world.reset(seed=77),
        "some rows": lambda world: world.reset(rows=[2], instance={"goal": [4]}),
        "given": lambda world: world.reset(instance={"goal": [7, 6, 5]}),
        "shared": lambda world: world.reset(instance={"goal": [7], "instance_row": [0, 0, 0]}),
        "drawn again": lambda world: world.reset(),
        "first": lambda world: world.reset(),
    }[how]
    strike_everywhere(start, call, stride=3)


def test_an_interrupted_load():
    """The saved rows share instances, those of the world do not."""
    kept = Lantern(3, seed=5)
    kept.reset(instance={"goal": [9, 8], "instance_row": [0, 1, 0]})
    kept.step([1, 2, 1])
    saved = kept.state_dict()
    start = Lantern(3, seed=2)
    start.reset()
    found = strike_everywhere(start, lambda world: world.load_state_dict(saved), stride=3)
    assert found["before"] and found["reset"]


@kernel
def light_one(w, b, x, i):
    return 1


def test_interrupted_playing_out_is_done_whole_or_not_at_all():
    """The steps of all rows are one compiled call."""
    start = Lantern(3, config=Lantern.Config(max_steps=40), seed=2)
    start.reset()
    assert not strike_everywhere(start, lambda world: world.play_out(light_one), stride=3)["reset"]


def test_only_the_rows_of_an_interrupted_call_need_a_reset(monkeypatch):
    """Other rows are saved and played on; after a reset of each interrupted row the world is usable again."""
    world, calm = Lantern(3, seed=2), Lantern(3, seed=2)
    for w in (world, calm):
        w.reset()
    whole = world._play

    def strike(*args: Any) -> int:
        whole(*args)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal was lost")

    monkeypatch.setattr(world, "_play", strike)
    with pytest.raises(KeyboardInterrupt):
        world.step([1, 1], rows=[0, 2])
    monkeypatch.undo()
    with pytest.raises(ResetNeeded, match="reset rows 0, 2 first"):
        world.step([1, 1, 1])
    for w in (world, calm):
        w.step([1], rows=[1])
    saved, expected = (w.state_dict(rows=[1]) for w in (world, calm))
    assert all(np.array_equal(saved[name], expected[name]) for name in saved)
    world.reset(rows=[0])
    with pytest.raises(ResetNeeded, match="reset row 2 first"):
        world.observe()
    world.reset(rows=[2])
    play_on(world)


def test_an_exception_of_any_handler_is_an_interrupt():
    """An alarm that raises another exception in mid-step: the exception propagates, and the rows require a reset."""
    start, actions = about_to_end(MAKE["Lantern"]("same_step"))

    def ring(number: int, frame: Any) -> None:
        raise TimeoutError("too late")

    before = signal.signal(signal.SIGALRM, ring)
    begin = start._begin
    try:
        start._begin = lambda rows: (signal.raise_signal(signal.SIGALRM), begin(rows))  # type: ignore[method-assign]
        with pytest.raises(TimeoutError, match="too late"):
            start.step(actions)
        del start._begin
    finally:
        signal.signal(signal.SIGALRM, before)
    assert_requires_a_reset(start)
    start.reset()
    play_on(start)


# -- laws written in Python -----------------------------------------------------------------------------------------


class Fickle(Lantern):
    """Its instances are amended by a callable, as those of a location law are."""

    amends_instances = True
    refuses: BaseException | None = None

    def amend_instances(self, rows: np.ndarray) -> None:
        self.goal[self.instance_row[rows]] = 3 + self.stream[rows, 2]
        if self.refuses is not None:
            raise self.refuses


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ConfigError("no such place")], ids=["interrupt", "error"])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_rows_whose_law_ends_a_step_need_a_reset(mode, error):
    """The law of the next episode is interrupted or refuses when the step has been played."""
    world = Fickle(2, seed=0, autoreset=mode)
    world.reset()
    world.step([2, 1])
    if mode == "next_step":
        world.step([1, 1])
    world.refuses = error
    with pytest.raises(type(error)):
        world.step([1, 1])
    world.refuses = None
    with pytest.raises(ResetNeeded, match="reset rows 0, 1 first"):
        world.step([1, 1])
    world.reset()
    play_on(world)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ConfigError("no such place")], ids=["interrupt", "error"])
@pytest.mark.parametrize("given", [False, True])
def test_a_reset_whose_law_ends_it_changes_nothing(given, error):
    """Interrupted or refused, the rows play on with the instances that they have, drawn or given."""
    world = Fickle(2, seed=0)
    world.reset(instance={"goal": [7], "instance_row": [0, 0]} if given else None)
    world.step([1, 1])
    before = seen_of(world)
    world.refuses = error
    for how in ({}, {"seed": 9}, {"rows": [1]}):
        if given and "rows" in how:
            continue  # rows that play given instances draw none
        with pytest.raises(type(error)):
            world.reset(**how)
        assert seen_of(world) == before
        assert_sound(world)
    world.step([1, 1])
    world.refuses = None
    world.reset()
    assert world.goal.tolist() == [4, 4] and not world.given.any()


def test_an_interrupted_law_leaves_the_reset_undone_or_requires_another():
    """At every bytecode of a reset that calls a Python law."""
    start = Fickle(3, seed=2)
    start.reset(instance={"goal": [9, 8], "instance_row": [0, 1, 0]})
    start.step([1, 2, 1])
    found = strike_everywhere(start, lambda world: world.reset(), stride=3)
    assert found["before"] and found["reset"]


def test_a_world_whose_first_reset_failed_still_needs_one():
    """A law that refuses the first reset leaves nothing to be stepped."""
    world = Fickle(2, seed=0)
    world.refuses = ConfigError("no such place")
    with pytest.raises(ConfigError):
        world.reset()
    with pytest.raises(ResetNeeded, match="before the first reset"):
        world.step([1, 1])
    world.refuses = None
    world.reset(seed=4)
    assert world.stream[:, 0].tolist() == [4, 4]
    world.step([1, 1])
    assert world.lit.tolist() == [1, 1]


# -- compiling ---------------------------------------------------------------------------------------------------------


def fresh(k: int) -> Any:
    """A kernel that is not compiled yet."""

    @kernel
    def score(w, b, x, y):
        return w.lit[b] * k + x + y

    return score


@pytest.mark.parametrize(
    ("where", "k"),
    [("<module>", 10), ("run_pass", 20), ("_object_compiled_hook", 30), ("save_overload", 40), ("keep", 50)],
)
def test_an_interrupt_while_compiling_comes_out_and_the_next_use_works(where, k, monkeypatch, tmp_path):
    """Also inside a callback of the compiler, which would swallow it, and in the text of a launcher, half of which
    would stay behind."""
    monkeypatch.setenv("MILKRUN_CACHE_DIR", str(tmp_path / "cache"))
    world = Lantern(2, seed=0)
    world.reset()
    world.step([1, 2])
    score = fresh(k)
    struck: list[str] = []

    def trace(frame: Any, event: str, argument: Any) -> Any:
        module = str(frame.f_globals.get("__name__"))
        if not struck and frame.f_code.co_name == where and module.startswith(("milkrun", "numba")):
            struck.append(module)
            signal.raise_signal(signal.SIGINT)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            world.map_rows(score, np.int64, 3, 4)
    finally:
        sys.settrace(before)
    assert struck
    assert world.map_rows(score, np.int64, 3, 4).tolist() == [k + 7, 2 * k + 7]


# -- undisturbed -------------------------------------------------------------------------------------------------------


def test_signals_wait_until_the_end():
    """All that were called for are delivered, and every handler is back in its place."""
    heard: list[str] = []
    mine = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append("usr1"))
    try:
        handler = signal.getsignal(signal.SIGUSR1)
        with pytest.raises(KeyboardInterrupt), undisturbed():
            with undisturbed():
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGUSR1)
            heard.append("end")
        assert heard == ["end", "usr1"]
        assert signal.getsignal(signal.SIGUSR1) is handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGUSR1, mine)


def test_other_threads_are_left_alone():
    """They run no handlers; a signal reaches the main thread while one of them is at work undisturbed."""
    inside, over = threading.Event(), threading.Event()

    def work() -> None:
        with undisturbed():
            inside.set()
            over.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(60)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        over.wait(60)
    over.set()
    thread.join()


def test_only_the_named_signals_wait():
    """With Ctrl-C alone named, the handler of another signal runs at once and Ctrl-C at the end."""
    heard: list[str] = []
    mine = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append("usr1"))
    try:
        with pytest.raises(KeyboardInterrupt), undisturbed(interrupts.KEYBOARD):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGUSR1)
            heard.append("end")
        assert heard == ["usr1", "end"]
    finally:
        signal.signal(signal.SIGUSR1, mine)
