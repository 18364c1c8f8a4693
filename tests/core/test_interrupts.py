"""Ctrl-C and other signals: a call is done whole or not at all, wherever an interrupt strikes.

The tests call for SIGINT before one bytecode of a call after the other, in all files of ours that it runs through;
those marked long leave none out.
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
from milkrun.core import episodes, interrupts, launcher, memory, sampling, threads, world
from milkrun.core.errors import ConfigError, ResetNeeded
from milkrun.core.interrupts import undisturbed
from milkrun.core.kernels import kernel
from milkrun.core.world import World
from tests.core.toys import Convoy, Lantern, rows_of

pytestmark = pytest.mark.usefixtures("interrupts")

OURS = {m.__file__ for m in (world, episodes, memory, threads, interrupts, launcher, sampling)}


def interrupted(call: Callable[[], Any], at: int) -> tuple[bool, int]:
    """Makes a call and asks for SIGINT before its bytecode number `at`: (whether it came out, bytecodes counted)."""
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


def shown(world: World) -> Any:
    """All that a user can see of a world."""
    final = {name: array.tobytes() for name, array in world.final.items()}
    return rows_of(world), final, world.final_rows.tolist(), world.seed, world.num_instances


def strike_everywhere(start: World, call: Callable[[World], Any], stride: int = 1) -> int:
    """Interrupts a call on copies of a world, before each `stride`-th bytecode; returns how often. After each interrupt
    the world is as before the call or as after it, and plays on as others do."""
    done = copy.deepcopy(start)
    call(done)
    before, after = shown(start), shown(done)
    assert before != after
    play_on(done)
    later = shown(done)
    at = came = 0
    while True:
        at += stride
        struck = copy.deepcopy(start)
        out, count = interrupted(lambda world=struck: call(world), at)
        if count < at:
            return came
        assert out, f"the interrupt before bytecode {at} was lost"
        came += 1
        seen = shown(struck)
        assert seen in (before, after), f"half a call: interrupted before bytecode {at}"
        if seen == before:
            call(struck)
        play_on(struck)
        assert shown(struck) == later, f"went on otherwise after an interrupt before bytecode {at}"


def play_on(world: World) -> None:
    for turn in range(2):
        world.step(world.sample_actions(5, turn))
    world.observe()


def about_to_end(world: World) -> tuple[World, Any]:
    """The world before a step in which a row ends (or begins anew, one step later), and the actions of that step."""
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


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.long), 7])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("name", ["Lantern", "Convoy", "CVRP", "TruckDrone"])
def test_a_step_in_which_rows_end_is_done_whole_or_not_at_all(name, mode, stride):
    """Interrupted anywhere: no row plays on after its end, none is paid twice, none loses its last observation."""
    start, actions = about_to_end(MAKE[name](mode))
    assert strike_everywhere(start, lambda world: world.step(actions), stride) > 100 // stride


def test_a_step_in_which_no_row_ends_is_done_whole_or_not_at_all():
    """Also the one after an end in the same step, which clears what the ended rows showed last."""
    start, actions = about_to_end(MAKE["Lantern"]("same_step"))
    start.step(actions)
    assert len(start.final_rows)
    assert strike_everywhere(start, lambda world: world.step(np.zeros(3, np.int64))) > 20


def test_a_parallel_step_is_done_whole_or_not_at_all():
    """Two threads, whose scratch is laid anew meanwhile."""
    start, actions = about_to_end(MAKE["Lantern"]("same_step"))
    start.threads = 2
    assert strike_everywhere(start, lambda world: world.step(actions), 101) > 5


@pytest.mark.parametrize("how", ["plain", "seeded", "some rows", "given", "shared", "drawn again", "first"])
def test_a_reset_is_done_whole_or_not_at_all(how):
    """Drawn or given instances, own or shared, before and after: adopted, keyed and begun together."""
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
    assert strike_everywhere(start, call, stride=3) > 20


def test_loading_is_done_whole_or_not_at_all():
    """What was saved shares instances, the world it comes into does not."""
    kept = Lantern(3, seed=5)
    kept.reset(instance={"goal": [9, 8], "instance_row": [0, 1, 0]})
    kept.step([1, 2, 1])
    saved = kept.state_dict()
    start = Lantern(3, seed=2)
    start.reset()
    assert strike_everywhere(start, lambda world: world.load_state_dict(saved), stride=3) > 20


@kernel
def light_one(w, b, x, i):
    return 1


def test_playing_out_is_done_whole_or_not_at_all():
    """The steps of all rows are one compiled call."""
    start = Lantern(3, config=Lantern.Config(max_steps=40), seed=2)
    start.reset()
    assert strike_everywhere(start, lambda world: world.play_out(light_one), stride=3) > 20


def test_an_exception_of_any_handler_waits():
    """An alarm that raises something else, in the midst of a step: it comes out, and the step is whole."""
    start, actions = about_to_end(MAKE["Lantern"]("same_step"))
    done = copy.deepcopy(start)
    done.step(actions)

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
    assert shown(start) == shown(done)


# -- laws that may be what was interrupted ---------------------------------------------------------------------------


class Fickle(Lantern):
    """Its instances are amended by a callable, as those of a location law are."""

    amends_instances = True
    refuses: BaseException | None = None
    asked = 0

    def amend_instances(self, rows: np.ndarray) -> None:
        self.asked += 1
        if self.refuses is not None:
            raise self.refuses
        self.goal[self.instance_row[rows]] = 3 + self.stream[rows, 2]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ConfigError("no such place")], ids=["interrupt", "error"])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_a_law_that_was_interrupted_is_asked_again_by_the_next_call(mode, error):
    """It is not run again at once, since it may never end; the rows that wait for it play only when it answers."""
    world, calm = (Fickle(2, seed=0, autoreset=mode) for _ in range(2))
    for w in (world, calm):
        w.reset()
        w.step([2, 1])
        if mode == "next_step":
            w.step([1, 1])
    world.refuses = error
    asked = world.asked
    for _ in range(2):
        with pytest.raises(type(error)):
            world.step([1, 1])
    assert world.asked == asked + 2
    world.refuses = None
    calm.step([1, 1])
    assert rows_of(world) == rows_of(calm)
    assert world.final_rows.tolist() == calm.final_rows.tolist()


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_an_interrupt_before_the_law_does_not_run_it(mode, monkeypatch):
    """It strikes when the compiled step is done: the law is asked by the next call, where it can be interrupted."""
    world, calm = (Fickle(2, seed=0, autoreset=mode) for _ in range(2))
    for w in (world, calm):
        w.reset()
        w.step([2, 1])
        if mode == "next_step":
            w.step([1, 1])
    asked, record = world.asked, "_record_ended" if mode == "same_step" else "_record_due"
    whole = getattr(world, record)

    def strike(rows: np.ndarray) -> None:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)
        whole(rows)

    monkeypatch.setattr(world, record, strike)
    with pytest.raises(KeyboardInterrupt):
        world.step([1, 1])
    assert world.asked == asked
    calm.step([1, 1])
    assert rows_of(world) == rows_of(calm)
    assert world.asked == asked + 1


def test_a_reset_lets_a_failed_beginning_go():
    """A world whose law failed is not stuck: its rows are begun anew, by another episode."""
    world = Fickle(2, seed=0)
    world.refuses = ConfigError("no such place")
    with pytest.raises(ConfigError):
        world.reset()
    with pytest.raises(ResetNeeded):
        world.step([1, 1])
    world.refuses = None
    world.reset(seed=4)
    assert world.stream[:, 0].tolist() == [4, 4]
    world.step([1, 1])
    assert world.lit.tolist() == [1, 1]


# -- compiling ---------------------------------------------------------------------------------------------------------


def fresh(k: int) -> Any:
    """A kernel that nobody has compiled yet."""

    @kernel
    def score(w, b, x, y):
        return w.lit[b] * k + x + y

    return score


@pytest.mark.parametrize(
    ("where", "k"),
    [("<module>", 10), ("run_pass", 20), ("_object_compiled_hook", 30), ("save_overload", 40), ("_write", 50)],
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
