"""A world on an engine keeps the whole contract: a turn in two parts, beginnings, copies, forks, failures."""

from __future__ import annotations

import copy
import os
import pickle
import signal

import numpy as np
import pytest

import milkrun
from milkrun.core.engine import EngineWorld
from milkrun.core.errors import Closed, ConfigError, KernelFault, ResetNeeded
from milkrun.core.fields import float32, int64, view
from milkrun.core.kernels import kernel
from milkrun.routing.cvrp import CVRP
from tests.core import toy_engine
from tests.core.toy_engine import LEFT, RIGHT, WAIT, Sled, SledConfig, homing
from tests.core.toys import rows_of


def sleds(rows: int = 4, seed: int = 3, **given: object) -> Sled:
    world = Sled(rows, SledConfig(max_steps=12), seed=seed, **given)  # type: ignore[arg-type]
    world.reset()
    return world


def played(world: Sled, turns: int, seed: int = 0) -> None:
    for turn in range(turns):
        world.step(world.sample_actions(seed, turn))


# -- a turn -----------------------------------------------------------------------------------------------------------


def test_a_step_is_command_engine_outcome():
    """Four ticks of 0.1 s under a push of 1: speed .1, .19, .271, .3439 and the sum of a tenth of each."""
    world = sleds(2, autoreset="disabled")
    world.reset(instance={"flag": [1.0, -1.0]})
    world.step([RIGHT, WAIT])
    place = 0.1 * (0.1 + 0.19 + 0.271 + 0.3439)
    assert world.motion[0].tolist() == pytest.approx([place, 0.3439, 0.0])
    assert world.reward.tolist() == pytest.approx([-(1 - place), -1.0])
    assert world.far.tolist() == pytest.approx([1 - place, 1.0])
    assert world.pushed.tolist() == [1, 0] and world.i.tolist() == [1, 1]
    assert world.engine.calls == 4


@kernel
def sled_observe(w, b):
    w.track[b, 0] = w.motion[b, 0]
    w.looks[b] += 1


class FilmedSled(Sled):
    """A sled whose place is shown on demand; `looks` counts how often."""

    track = view(float32, 1, primary=True, on_demand=True)
    looks = view(int64, on_demand=True)


FilmedSled.bind(observe=sled_observe)


def test_views_on_demand_follow_the_rows_that_the_engine_moved():
    """Steps of some rows, saved rows and resets outdate only the views of these rows."""
    world = FilmedSled(3, SledConfig(max_steps=3), seed=3)
    world.reset(instance={"flag": [2.0, 2.0, 2.0]})
    world.observe()
    saved = world.state_dict()
    world.step([RIGHT], rows=[1])
    assert world.observe()["track"][:, 0].tolist() == world.motion[:, 0].astype(np.float32).tolist()
    assert world.looks.tolist() == [1, 2, 1] and world.track[1, 0] > 0
    world.load_state_dict({name: array[:1] for name, array in saved.items()}, rows=[1])
    world.observe()
    assert world.looks.tolist() == [1, 3, 1] and world.track[1, 0] == 0
    for _ in range(4):  # the third step is cut off, the fourth begins a new episode
        world.step([RIGHT], rows=[2])
        world.observe()
    assert world.looks.tolist() == [1, 3, 5] and world.track[2, 0] == 0


def test_refused_rows_are_not_commanded():
    """An illegal action counts as a step and is flagged; the world's own `settle` leaves the row as it was."""
    world = sleds(2, autoreset="disabled")
    world.step([7, RIGHT])
    assert world.illegal.tolist() == [True, False] and world.i.tolist() == [1, 1]
    assert world.motion[0].tolist() == [0.0, 0.0, 0.0] and world.motion[1, 1] > 0
    assert world.reward[0] == 0 and world.fuel[0] == 1


def test_only_the_rows_that_play_are_advanced():
    """Under NEXT_STEP the turn of an ended row is its reset: the engine moves the others alone."""
    world = sleds(3, autoreset="next_step")
    world.reset(instance={"flag": [0.1, 2.0, -2.0]})
    world.step([WAIT, RIGHT, LEFT])  # row 0 stands within reach of its flag
    assert world.terminated.tolist() == [True, False, False]
    moved, episode = world.motion[1:, 0].copy(), world.stream[:, 2].copy()
    world.step([RIGHT, RIGHT, LEFT])
    assert world.motion[0].tolist() == [0.0, 0.0, 0.0] and (world.motion[1:, 0] != moved).all()
    assert (world.stream[:, 2] - episode).tolist() == [1, 0, 0] and world.reward[0] == 0


def test_views_are_up_to_date_after_a_reset():
    """Views are made after the engine has received the new rows."""
    world = sleds(5)
    assert (world.far == abs(world.flag)).all()


def test_a_world_without_an_engine_has_one_kernel_entry_for_a_step():
    """A world with an engine has two halves instead, and no functional step."""
    whole, cut = CVRP._launcher_for(False)[1], Sled._launcher_for(False)[1]
    assert hasattr(whole, "step") and hasattr(whole, "step_from") and not hasattr(whole, "command")
    assert hasattr(cut, "command") and hasattr(cut, "outcome") and not hasattr(cut, "step_from")


# -- the rest of the contract -----------------------------------------------------------------------------------------


def test_check_world_finds_nothing():
    """Rows alone, saving, autoreset, threads, interpreted play: all rules of the contract."""
    assert milkrun.check_world(Sled(8, SledConfig(max_steps=12), seed=5), turns=20) == []


def test_check_world_finds_an_engine_with_state_outside_the_fields(monkeypatch):
    """With friction that depends on the engine's own memory, a saved row goes on differently."""
    plain = type(Sled(1).engine)._move

    def sticky(self, rows):
        plain(self, rows)
        self.state[rows, 0] += 1e-3 * (self.still[rows] > 4)

    monkeypatch.setattr(type(Sled(1).engine), "_move", sticky)
    monkeypatch.setattr(Sled, "advance", lambda self, rows: [self.engine.tick(rows) for _ in range(4)])
    found = milkrun.check_world(Sled(8, SledConfig(max_steps=12), seed=5), turns=20)
    assert found and found[0].field in ("motion", "far", "reward")


def test_play_out_plays_every_row_to_its_end():
    """Turn by turn the same as stepping by the same policy."""
    world, by_hand = sleds(6, autoreset="disabled"), sleds(6, autoreset="disabled")
    steps = world.play_out(homing)
    count = 0
    while not by_hand.done.all():
        live = np.flatnonzero(~by_hand.done)
        count += len(live)
        by_hand.step(np.where(by_hand.motion[live, 0] < by_hand.flag[live], RIGHT, LEFT), rows=live)
    assert steps == count and world.done.all()
    assert (world.objective == by_hand.objective).all() and (world.i == by_hand.i).all()


def test_map_rows_of_some_rows():
    """The values of the rows named, in their order."""

    @kernel
    def pushes(w, b, x, y):
        return w.pushed[b] + x

    world = sleds(4)
    world.step([RIGHT, WAIT, LEFT, WAIT])
    assert world.map_rows(pushes, x=10, rows=np.array([2, 1])).tolist() == [11, 10]
    assert world.map_rows(pushes).tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("way", [copy.deepcopy, lambda world: pickle.loads(pickle.dumps(world))])
def test_a_copy_has_an_engine_of_its_own(way):
    """It goes on to the bit, and neither moves the other."""
    world = sleds(5)
    played(world, 3)
    twin = way(world)
    assert twin.engine is not world.engine and np.shares_memory(twin.motion, twin.engine.memory)
    before = rows_of(world)
    played(twin, 4, seed=9)
    assert rows_of(world) == before
    played(world, 4, seed=9)
    assert rows_of(world) == rows_of(twin)


def test_loading_a_state_updates_the_engine():
    """load_state_dict writes the engine's rows too: later steps are equal to the bit."""
    world = sleds(5)
    played(world, 4)
    other = sleds(2, seed=8)
    played(other, 2)
    other.engine.still[:] = 3
    other.load_state_dict(world.state_dict(rows=[1, 3]))
    assert (other.engine.still == 0).all()
    for actions in ([RIGHT, LEFT], [LEFT, LEFT], [WAIT, RIGHT]):
        world.step(actions, rows=[1, 3])
        other.step(actions)
    assert (world.motion[[1, 3]] == other.motion).all() and (world.reward[[1, 3]] == other.reward).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_makes_an_engine_of_its_own():
    """The engine's threads are not in the child: using or ending the parent's would wait for ever."""
    world, twin = sleds(6, threads=2), sleds(6, threads=2)
    played(world, 2)
    played(twin, 2)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # nothing but the world runs here; an alarm ends a child that hangs
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(120)
        played(world, 3, seed=4)
        fine = world.engine.pool is None
        del world
        os.write(write, b"." if fine else b"?")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0 and os.read(read, 1) == b"."
    os.close(read)
    os.close(write)
    played(world, 3, seed=4)
    played(twin, 3, seed=4)
    assert rows_of(world) == rows_of(twin)


# -- what can go wrong ------------------------------------------------------------------------------------------------


def test_rows_that_the_engine_lost_must_be_reset():
    """An error of the engine reaches the caller; its rows are refused until they are reset, the others go on."""
    world = sleds(4, autoreset="disabled")
    world.engine.breaks = True
    with pytest.raises(ConnectionError):
        world.step([RIGHT, LEFT], rows=[0, 2])
    world.engine.breaks = False
    with pytest.raises(ResetNeeded, match="reset rows 0, 2 first: an interrupt or an error"):
        world.step([WAIT] * 4)
    world.step([RIGHT, RIGHT], rows=[1, 3])
    world.reset(rows=[0, 2])
    world.step([WAIT] * 4)
    assert world.i.tolist() == [1, 2, 1, 2]


def test_a_closed_world_has_released_its_engine():
    """Also after a copy of the closed one."""
    world = sleds()
    world.close()
    assert world.engine is None
    twin = pickle.loads(pickle.dumps(world))
    with pytest.raises(Closed):
        twin.step([WAIT] * 4)


def test_a_world_without_settle_is_refused():
    """The error says what to write."""

    class Half(EngineWorld):
        action = Sled.action

    with pytest.raises(ConfigError, match=r"Half has no kernel 'settle'.*Half.bind"):
        Half(1)


@pytest.mark.parametrize("method", ["connect", "place", "advance"])
def test_a_missing_method_is_named(method):
    """The error says what each of the three is for."""
    with pytest.raises(ConfigError, match=rf"Sled must say .*{method}\("):
        getattr(EngineWorld, method)(*([Sled(1)] if method == "connect" else [Sled(1), np.arange(1)]))


@kernel
def shutting_settle(w, b):
    toy_engine.settle(w, b)
    for a in range(3):
        w.action_mask[b, a] = False


def test_a_settle_that_leaves_a_row_nothing_to_do_is_a_fault():
    """With debug=True, by the name of the kernel that has the last word of a turn."""
    shut = type("Shut", (Sled,), {"__module__": __name__})
    shut.bind(settle=shutting_settle)
    world = shut(2, seed=0, debug=True)
    world.reset()
    with pytest.raises(KernelFault, match=r"^shutting_settle \(test_engine\.py:\d+\), row 0: it leaves action_mask "):
        world.step([1, 1])
