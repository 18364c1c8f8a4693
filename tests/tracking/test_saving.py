"""Saved, copied, pickled and forked worlds continue to the bit; impossible states are refused."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import zlib

import numpy as np
import pytest

from milkrun.core.errors import BadInstance, ShapeError
from milkrun.tracking.tables import SUN_X, SUN_Z

from .rows import KINDS, differing, live, play, ready, whole


def pickled(world):
    return pickle.loads(pickle.dumps(world))


def checksums(world) -> list[int]:
    return [zlib.crc32(b"".join(row.values())) for row in whole(world)]


@pytest.mark.parametrize("kind", KINDS)
def test_restored_rows_play_the_same(kind):
    """Steps after a restore repeat the same bits, for all rows and for rows moved to other indices."""
    world = ready(6, kind)
    play(world, 3)
    saved = world.state_dict()
    play(world, 9)
    after = whole(world)
    world.load_state_dict(saved)
    play(world, 9)
    assert [differing(*pair) for pair in zip(after, whole(world), strict=True)] == [[]] * 6
    assert world.agent_step.max() > 6

    other = ready(4, kind, seed=99)
    play(other, 1)
    before_load = whole(other)
    other.load_state_dict(ready_rows(saved, [5, 2]), rows=[1, 3])
    for b in (1, 3):
        while b in live(other):
            play(other, 1)
    moved = whole(other)
    assert differing(moved[1], after[5]) == differing(moved[3], after[2]) == []
    assert before_load[0]["ground"] == moved[0]["ground"]


def ready_rows(saved, rows):
    """Some of the rows of a saved state."""
    return {name: array[rows] for name, array in saved.items()} | {"instance_row": np.arange(len(rows))}


def test_a_restored_row_has_its_old_picture():
    """A row that was observed, stepped and restored has its old picture, not the last one rendered."""
    world = ready(3)
    before = world.observe()["image"].copy()
    saved = world.state_dict()
    play(world, 6)
    assert (world.observe()["image"] != before).any()
    world.load_state_dict(saved)
    assert (world.observe()["image"] == before).all()


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize("kind", KINDS)
def test_copies_continue_equally(copied, kind):
    """A world on two threads and its copy play the same, independently of each other."""
    world = ready(5, kind, threads=2)
    play(world, 2)
    other = copied(world)
    before = whole(world)
    assert whole(other) == before
    play(other, 10)
    assert whole(world) == before
    play(world, 10)
    assert [differing(*pair) for pair in zip(whole(world), whole(other), strict=True)] == [[]] * 5


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_copies_of_rows_on_one_town_continue_equally(copied):
    """The rows still share one town, and the copy has its own."""
    world = ready(5)
    world.reset(instance={**world.town(2), "instance_row": np.zeros(5, int)})
    play(world, 2)
    other = copied(world)
    assert other.num_instances == 1 and not np.shares_memory(other.ground, world.ground)
    for one in (world, other):
        play(one, 10)
    assert whole(world) == whole(other)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_continues_equally():
    """The child of a world on two threads plays the same bits and ends by itself."""
    world = ready(5, threads=2)
    play(world, 2)
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(120)  # if it hangs
        try:
            play(world, 6)
            os.write(into, pickle.dumps(checksums(world)))
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as read:
        received = read.read()
    os.waitpid(child, 0)
    play(world, 6)
    assert received and pickle.loads(received) == checksums(world)


# -- impossible states ----------------------------------------------------------------------------------------------


def at(name, *index, value):
    """A fault in row 2: one value of one field."""

    def spoil(saved):
        saved[name][(2, *index)] = value

    return spoil


def vanish(saved):
    """A car that has left the map holds a junction."""
    saved["veh_on"][2, 1] = False
    saved["node_owner"][2, 0] = 1


def absent(saved):
    """The last of six cars, of which this row has five."""
    saved["veh_on"][2, 5], saved["n_veh"][2], saved["node_owner"][2, 0] = False, 5, 5


def beyond(saved):
    """A position beyond the end of an edge."""
    saved["veh_turning"][2, 0] = False
    saved["veh_s"][2, 0] = 1e4


def no_way(saved):
    """The way back, though others are possible."""
    saved["veh_to"][2, 0] = saved["veh_edge"][2, 0] ^ 1


def low_sun(saved):
    saved["light"][2, SUN_X : SUN_Z + 1] = 1.0, 0.0, 0.0


FAULTS = {
    "an edge that is not there": (at("veh_edge", 0, value=159), "row 2: veh_edge: names an edge that this town does"),
    "a turn that is none": (no_way, "row 2: veh_to: must be an edge that follows veh_edge"),
    "beyond its edge": (beyond, "row 2: veh_s: lies beyond the straight part"),
    "a holder that is not there": (absent, "row 2: node_owner: names a vehicle that is not there"),
    "a holder of a node that is not there": (at("node_owner", 63, value=0), "row 2: node_owner: .* holds a node"),
    "a holder that has left": (vanish, "row 2: node_owner: names a vehicle that is not there"),
    "a car behind their number": (at("n_veh", value=2), "row 2: veh_on: a vehicle behind n_veh cannot"),
    "a look at the horizon": (at("pitch", value=0.3), "row 2: pitch = 0.3: the picture would reach the horizon"),
    "a drone under the ground": (at("pos", 2, value=-1.0), "row 2: pos: .* must be above the ground"),
    "a sun of any length": (at("light", SUN_Z, value=3.0), "row 2: light: .* a sun of length 1"),
    "a sun at the horizon": (low_sun, "row 2: light: .* a sun of length 1 and at least 0.05 high"),
    "light that takes away": (at("light", 0, value=-1.0), "row 2: light: must be a gain of 0 or more"),
    "more flakes than pixels": (at("light", 7, value=1.5), "row 2: light: .* a share of flakes in 0..1"),
    "clocks that differ": (at("sim_step", value=13), "row 2: sim_step = 13: must be agent_step times the sim steps"),
    "another count of steps": (at("i", value=5), "row 2: sim_step = 12: .* agent_step the same as i"),
    "lost for longer than it flies": (at("lost_steps", value=40), "row 2: sim_step = 12: .* lost_steps no more than"),
    "more reward than steps": (at("cr_sum", value=4.0), "row 2: tsr_sum = .*: and cr_sum cannot be more than the"),
    "a vehicle of no kind": (at("veh_kind", 0, value=8), r"row 2: veh_kind\[0\] = 8: must be <= 7"),
    "a weather of no kind": (at("weather_id", value=4), "row 2: weather_id = 4: must be <= 3"),
    "more vehicles than there is room for": (at("n_veh", value=7), "row 2: n_veh = 7: must be <= 6"),
    "an edge below 0": (at("veh_to", 3, value=-1), r"row 2: veh_to\[3\] = -1: must be >= 0"),
    "a place that is no number": (at("pos", 0, value=np.nan), r"row 2: pos\[0\] = nan: must be finite"),
    "a place beyond all maps": (at("pos", 0, value=1e9), r"row 2: pos\[0\] = 1000000000.0: must be <= 100000000.0"),
    "a yaw of many turns": (at("yaw", value=7.0), "row 2: yaw = 7.0: must be <= 3.14159"),
    "a filter that overflows": (at("filt", 3, 0, value=1e300), r"row 2: filt\[3, 0\] = 1e\+300: must be <="),
    "a car faster than sound": (at("veh_v", 1, value=1e4), r"row 2: veh_v\[1\] = 10000.0: must be <= 1000.0"),
    "nothing to do": (at("action_mask", value=False), "row 2: action_mask is all False"),
    "a stream below 0": (at("stream", 0, value=-1), r"row 2: stream\[0\] = -1: must be >= 0"),
}


@pytest.fixture(scope="module")
def flown():
    """Four rows, three steps (12 sim steps) after their start."""
    world = ready(4)
    play(world, 3)
    assert (world.agent_step == 3).all()
    return world


@pytest.mark.parametrize("fault", FAULTS)
def test_an_impossible_state_is_refused(flown, fault):
    """The message names row, field and rule, and the world is unchanged."""
    saved, before = flown.state_dict(), whole(flown)
    spoil, sentence = FAULTS[fault]
    spoil(saved)
    with pytest.raises(BadInstance, match=sentence):
        flown.load_state_dict(saved)
    assert whole(flown) == before


@pytest.mark.parametrize(("step", "ok"), [(3.0, True), (2.5, False), (4.0, False), (-1.0, False)])
def test_past_moments_must_be_earlier_agent_steps(step, ok):
    """Whole agent steps, none after the current one."""
    world = ready(4, "stacked")
    play(world, 3)
    saved = world.state_dict()
    saved["past"][1, 2, 4] = step
    if ok:
        world.load_state_dict(saved)
    else:
        with pytest.raises(BadInstance, match="row 1: past: must have whole agent steps"):
            world.load_state_dict(saved)


def test_a_row_past_its_time_is_refused(flown):
    """48 sim steps are the limit of these episodes."""
    saved = flown.state_dict()
    saved["agent_step"][0] = saved["i"][0] = 12
    saved["sim_step"][0] = 48
    with pytest.raises(BadInstance, match="row 0: sim_step = 48: has reached max_sim_steps"):
        flown.load_state_dict(saved)


def test_an_ended_row_is_restored_unchanged():
    """Its drone may be at a position impossible in flight, and its mask allows only index 0."""
    world = ready(3)
    while len(live(world)):
        play(world, 1)
    before = whole(world)
    world.load_state_dict(world.state_dict())
    assert whole(world) == before and world.action_mask.sum(1).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"max_vehicles": 5}, r"veh_kind must have the shape \(4, 5\), not \(4, 6\)"),
        ({"ground_cell": 2.0}, r"ground must have the shape \(4, 120, 120\)"),
        ({"action_mode": "velocity"}, r"action_mask must have the shape \(4, 0\)"),
    ],
)
def test_states_of_other_sizes_are_refused(flown, other, sentence):
    """The message names the required shape."""
    with pytest.raises(ShapeError, match=sentence):
        ready(4, **other).load_state_dict(flown.state_dict())


def test_a_clock_of_another_frequency_is_refused(flown):
    """At 250 Hz an agent step has two sim steps, not four."""
    with pytest.raises(BadInstance, match="row 0: sim_step = 12: must be agent_step times"):
        ready(4, control_hz=250).load_state_dict(flown.state_dict())


def test_an_invalid_saved_state_is_refused(flown):
    """No mapping, a missing field, a field of another type."""
    saved = flown.state_dict()
    with pytest.raises(ShapeError, match="a saved state is a mapping"):
        flown.load_state_dict([1])
    with pytest.raises(ShapeError, match="the saved state lacks 'veh_pose'"):
        flown.load_state_dict({name: array for name, array in saved.items() if name != "veh_pose"})
    with pytest.raises(ShapeError, match="veh_edge must be int16"):
        flown.load_state_dict({**saved, "veh_edge": saved["veh_edge"].astype(float)})
