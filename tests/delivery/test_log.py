"""The event log of the truck-and-drones world: episodes by hand, and invariants of random ones."""

from __future__ import annotations

import copy
import csv
import json

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import IllegalAction, MilkrunError, ResetNeeded
from milkrun.delivery import Recorder, TruckDroneConfig, kpis, replay
from milkrun.delivery.truckdrone.log import EVENT, INTERVALS, POINTS
from tests.delivery.truckdrone_logs import TWISTS, WORKED_PUBLISHED, WORKED_SOUND, brief, on_line, played

ALONE = TruckDroneConfig(num_drones=1, num_customers=1)
"""RELEASE_0 is 7, RECOVER_0 is 8, MOVE_1, to (.6, 0), is 2; DELIVER_0 is 2."""


def worked(config, instance, actions):
    """A recorder after these steps."""
    recorder = Recorder(milkrun.make("milkrun/TruckDrone-v0", 1, config=config, autoreset="disabled"))
    recorder.reset(instance={name: [value] for name, value in instance.items()})
    for joint in actions:
        recorder.step([joint])
    return recorder


def points(events):
    return [found for found in brief(events) if found[2] == found[3]]


def test_worked_sound_episode():
    """Loaded at 1, three steps out, four at the door until the window opens at 8, two home, landed from (.1, 0)."""
    recorder = worked(*WORKED_SOUND)
    events = recorder.events()
    assert points(events) == [
        ("drone_0", "release", 0, 0, -1),
        ("drone_0", "load", 1, 1, 0),
        ("drone_0", "served", 8, 8, 0),
        ("drone_0", "landed", 10, 10, -1),
    ]
    assert brief(recorder.gantt()) == [
        ("truck_0", "wait", 0, 10, 0),
        ("drone_0", "hover", 0, 1, -1),
        ("drone_0", "fly_out", 1, 4, 0),
        ("drone_0", "wait_open", 4, 8, 0),
        ("drone_0", "return", 8, 10, -1),
    ]
    bars = recorder.gantt()
    assert bars["energy"] == pytest.approx([0, 0.02, 0.28, 0.112, 0.16])
    assert bars["x0"] == pytest.approx([0, 0, 0, 0.5, 0.5]) and bars["x1"] == pytest.approx([0, 0, 0.5, 0.5, 0.1])
    landing = events[-1]
    assert (landing["x0"], landing["x1"], landing["energy"]) == pytest.approx((0.1, 0, 0))
    flown = events[events["kind"] == "fly_out"]
    assert flown["energy"] == pytest.approx([0.112, 0.112, 0.056]) and flown["x1"] == pytest.approx([0.2, 0.4, 0.5])


def test_worked_published_episode():
    """The truck is at node 0 by the published rules; the flight costs .002, .002, .001."""
    recorder = worked(*WORKED_PUBLISHED)
    assert points(recorder.events()) == [
        ("drone_0", "release", 0, 0, -1),
        ("drone_0", "load", 1, 1, 0),
        ("drone_0", "served", 4, 4, 0),
    ]
    bars = recorder.gantt()
    assert brief(bars) == [
        ("truck_0", "wait", 0, 4, 0),
        ("drone_0", "hover", 0, 1, -1),
        ("drone_0", "fly_out", 1, 4, 0),
    ]
    assert bars["energy"] == pytest.approx([0, 0.001, 0.005])


def test_a_recovered_drone_returns_its_parcel():
    """The drone flies to .2, the truck follows to .1, recovers it there and drives on to .2; it is charged .03 on the
    way."""
    recorder = worked(ALONE, on_line(0.5), [[7, 0], [2, 2], [8, 0]])
    events = recorder.events()
    recovery, ride = events[events["kind"] == "recover"][0], events[-1]
    assert recovery[["agent", "t0", "t1", "ref"]].tolist() == ("drone_0", 2, 2, 0)
    assert recovery[["x0", "y0", "x1", "y1", "energy"]].tolist() == pytest.approx((0.2, 0, 0.1, 0, 0))
    assert ride[["agent", "kind", "t0", "t1"]].tolist() == ("drone_0", "onboard", 2, 3)
    assert ride[["x0", "x1", "energy"]].tolist() == pytest.approx((0.1, 0.2, -0.03))
    assert brief(recorder.gantt())[:2] == [("truck_0", "wait", 0, 1, 0), ("truck_0", "drive", 1, 3, 1)]
    assert kpis(recorder)["aborted"] == [1]


def test_the_charge_of_a_recovery_is_logged():
    """recovery_charge .05 at the recovery, .03 on board: .868 becomes .948."""
    recorder = worked(ALONE.replace(recovery_charge=0.05), on_line(0.5), [[7, 0], [2, 2], [8, 0]])
    events = recorder.events()
    assert events["energy"][events["kind"] == "recover"] == pytest.approx([-0.05])
    assert events["energy"][events["kind"] == "onboard"] == pytest.approx([-0.03])
    assert recorder.battery[0] == pytest.approx([0.948])


def test_a_crash():
    """A flight that costs 1 (.2 * 4 * 1.25) on a battery of .98: .02 are missing; the parcel stays in the wreck."""
    config = ALONE.replace(battery_rule="off", battery_rate=4.0, num_customers=2)
    recorder = worked(config, on_line(0.5, 0.6, demand=0.5), [[7, 0], [0, 2]])
    crash = recorder.events()[-1:]
    assert brief(crash) == [("drone_0", "crash", 2, 2, 0)]
    assert (crash["x0"][0], crash["energy"][0]) == pytest.approx((0.2, -0.02))
    assert recorder.gantt()["energy"] == pytest.approx([0, 0.02, 1.0])


def test_a_wreck_stays_in_the_log():
    """Of two drones one crashes in step 2, the other stays on board."""
    config = ALONE.replace(battery_rule="off", battery_rate=4.0, num_customers=2, num_drones=2)
    recorder = worked(config, on_line(0.5, 0.6, demand=0.5), [[7, 0, 0], [0, 2, 0], [0, 0, 0], [0, 0, 0]])
    assert brief(recorder.gantt())[1:] == [
        ("drone_0", "hover", 0, 1, -1),
        ("drone_0", "fly_out", 1, 2, 0),
        ("drone_0", "crashed", 2, 4, -1),
        ("drone_1", "onboard", 0, 4, -1),
    ]


def test_bars_of_different_goals_are_separate():
    """Two steps towards node 1 at (.6, 0), one towards node 0, the depot; the drone on board has one bar."""
    recorder = worked(ALONE, on_line(0.5), [[2, 0], [2, 0], [1, 0]])
    bars = recorder.gantt()
    assert brief(bars) == [
        ("truck_0", "drive", 0, 2, 1),
        ("truck_0", "drive", 2, 3, 0),
        ("drone_0", "onboard", 0, 3, -1),
    ]
    assert bars["x1"] == pytest.approx([0.2, 0.1, 0.1])


def test_conflict_and_illegal():
    """Both drones choose customer 0: the second hovers. A drone on board cannot deliver, and is flagged at 0."""
    config = TruckDroneConfig(num_drones=2, num_customers=1)
    _, events = replay(config, on_line(0.5), [[7, 0, 2], [8, 0, 0], [0, 2, 2]])
    assert points(events) == [
        ("drone_1", "illegal", 0, 0, -1),
        ("drone_0", "release", 0, 0, -1),
        ("drone_1", "release", 1, 1, -1),
        ("drone_0", "load", 2, 2, 0),
        ("drone_1", "conflict", 2, 2, 0),
    ]
    assert brief(events)[-2:] == [("drone_0", "fly_out", 2, 3, 0), ("drone_1", "hover", 2, 3, -1)]


def test_forced_under_published_rules():
    """Rate .8: at .6 the battery of .519 is below .576, at .4 .359 below .384; at .2 .199 is sufficient again."""
    config = TruckDroneConfig(rules="published", num_drones=1, num_customers=1, battery_rate=0.8)
    _, events = replay(config, on_line(1.0), [[6, 0]] + [[0, 2]] * 6)
    assert [found for found in points(events) if found[1] == "forced"] == [
        ("drone_0", "forced", 4, 4, -1),
        ("drone_0", "forced", 5, 5, -1),
    ]
    assert [e[1] for e in brief(events) if e[0] == "drone_0" and e[2] < e[3]] == [
        "hover",
        "fly_out",
        "fly_out",
        "fly_out",
        "return",
        "return",
        "fly_out",
    ]


def test_forced_under_sound_rules_is_logged_once():
    """Three steps out (.644 left at .6) the drone may only hover, twice (.588). Then, as the truck flees, the battery
    equals the need of the worst way home in each step. The drone is overridden from 6 until it lands at 10, with one
    penalty."""
    config = ALONE.replace(num_route_nodes=5)
    recorder = worked(config, on_line(0.9), [[6, 0], *[[0, 2]] * 5, *[[4, 2]] * 4])
    events = recorder.events()
    assert points(events)[2:] == [
        *[("drone_0", "illegal", t, t, -1) for t in (4, 5, 6)],
        ("drone_0", "forced", 6, 6, -1),
        *[("drone_0", "illegal", t, t, -1) for t in (7, 8, 9)],
        ("drone_0", "landed", 10, 10, 0),
    ]
    landing = events[-1]
    assert (landing["x0"], landing["x1"]) == pytest.approx((-0.2, -0.4))
    assert recorder.battery[0] == pytest.approx([0.588 - 4 * 0.112]) and kpis(recorder)["forced_onsets"] == [1]


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize("twist", TWISTS)
def test_gantt_tiles_the_episode(twist, masked):
    """For every agent in 8 random episodes: a bar begins at the end of the last event, and differs from the previous
    one. The energy of the bars is that of the events."""
    recorder, taken = played(twist, masked)
    bars, events = recorder.gantt(), recorder.events()
    assert set(bars["kind"]) <= set(INTERVALS) and set(events["kind"]) <= {*INTERVALS, *POINTS}
    assert bars["energy"].sum() == pytest.approx(events["energy"][np.isin(events["kind"], INTERVALS)].sum())
    for row in range(recorder.num_envs):
        for agent in [name for group in recorder.groups.values() for name in group]:
            own = bars[(bars["row"] == row) & (bars["agent"] == agent)]
            assert [0, *own["t1"].tolist()] == [*own["t0"].tolist(), len(taken[row])]
            assert (own["t0"] < own["t1"]).all() and len(taken[row]) == recorder.i[row]
            assert not ((own["kind"][1:] == own["kind"][:-1]) & (own["ref"][1:] == own["ref"][:-1])).any()
            way = events[(events["row"] == row) & (events["agent"] == agent) & (events["kind"] != "served")]
            assert (way["x0"][1:] == way["x1"][:-1]).all() and (way["y0"][1:] == way["y1"][:-1]).all()
            assert (np.diff(way["t0"]) >= 0).all()


@pytest.mark.parametrize("twist", TWISTS)
def test_energies_add_up_to_the_battery(twist):
    """1 + charged - used = battery, for every drone."""
    recorder, _ = played(twist, False)
    events = recorder.events()
    for row in range(recorder.num_envs):
        for d in range(recorder.sizes["D"]):
            own = events[(events["row"] == row) & (events["agent"] == f"drone_{d}")]
            assert 1 - own["energy"].sum() == pytest.approx(recorder.battery[row, d], abs=1e-12)


def steady(world):
    """Actions that depend only on the mask and the step of each row."""
    masks = [world.truck_mask[:, 0], *world.drone_mask.swapaxes(0, 1)]
    chosen = [[np.flatnonzero(row)[(7 * i + 3) % row.sum()] for row, i in zip(mask, world.i)] for mask in masks]
    return np.array(chosen).T


def test_episodes_are_separate_under_every_autoreset():
    """The same three episodes of two rows, whether rows wait, restart on their next turn or immediately."""
    logs = []
    for mode in ("disabled", "next_step", "same_step"):
        world = milkrun.make("milkrun/TruckDrone-v0", 3, preset="published", seed=4, max_steps=25, autoreset=mode)
        recorder = Recorder(world, [2, 0])
        recorder.reset()
        for _ in range(90):
            if mode == "disabled" and recorder.done.any():
                recorder.reset(np.flatnonzero(recorder.done))
            recorder.step(steady(recorder))
        events = recorder.events()
        assert set(events["row"]) == {0, 2}
        logs.append(events[events["episode"] < 3])
    assert {tuple(pair) for pair in logs[0][["row", "episode"]].tolist()} == {(r, e) for r in (0, 2) for e in range(3)}
    assert logs[0].tolist() == logs[1].tolist() == logs[2].tolist()


def test_an_unrecorded_reset_starts_an_episode():
    """A reset of the world itself, or a jump of its clock: the log does not merge episodes."""
    config, instance, actions = WORKED_SOUND
    recorder = worked(config, instance, actions[:3])
    saved = recorder.state_dict()
    recorder.world.reset()
    recorder.step([actions[0]])
    recorder.load_state_dict(saved)
    recorder.step([actions[3]])
    events = recorder.events()
    begun = [events["t0"][events["episode"] == k].min() for k in range(3)]
    assert begun == [0, 0, 3] and events["episode"].max() == 2


def test_files_keep_the_events(tmp_path):
    """CSV and JSON to the last digit."""
    recorder, _ = played("default", False)
    recorder.to_csv(tmp_path / "log.csv")
    recorder.to_json(tmp_path / "log.json")
    events = recorder.events()
    with (tmp_path / "log.csv").open(newline="") as file:
        names, *lines = csv.reader(file)
    assert tuple(names) == EVENT.names
    read = [tuple(np.array(text, EVENT[name]).item() for name, text in zip(names, line)) for line in lines]
    assert read == events.tolist()
    found = json.loads((tmp_path / "log.json").read_text())
    assert [tuple(event[name] for name in EVENT.names) for event in found] == events.tolist()


def test_nothing_recorded():
    """Empty tables, and files without events."""
    recorder = Recorder(milkrun.make("milkrun/TruckDrone-v0", 1))
    assert recorder.events().dtype == recorder.gantt().dtype == EVENT
    assert len(recorder.events()) == len(recorder.gantt()) == 0
    with pytest.raises(ResetNeeded):
        recorder.step([[0, 0, 0]])


def test_a_refused_step_is_not_logged():
    """illegal="raise" changes no row."""
    recorder = Recorder(milkrun.make("milkrun/TruckDrone-v0", 2, seed=1, illegal="raise"), [0, 1])
    recorder.reset()
    with pytest.raises(IllegalAction):
        recorder.step([[0, 0, 0], [0, 2, 0]])
    assert len(recorder.events()) == 0
    recorder.step([[0, 0, 0]], rows=[1])
    assert set(recorder.events()["row"]) == {1} and len(recorder.events()) == 3


def test_other_attributes_are_those_of_the_world():
    """Attributes, an independent copy, invalid rows."""
    world = milkrun.make("milkrun/TruckDrone-v0", 2, seed=1)
    recorder = Recorder(world)
    recorder.reset()
    assert recorder.truck_mask.base is world.truck_mask.base and recorder.num_envs == 2
    assert copy.copy(recorder).world is world
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = recorder.no_such_thing
    with pytest.raises(MilkrunError, match="5"):
        Recorder(world, [5])
