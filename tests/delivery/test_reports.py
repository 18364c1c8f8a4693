"""Figures of truck-and-drone episodes: by hand, in other units, around resets; and replayed episodes."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadSolution, ConfigError, ShapeError
from milkrun.delivery import TruckDroneConfig, kpis, replay
from tests.delivery.truckdrone_logs import WORKED_PUBLISHED, WORKED_SOUND, instance_of, log_of, on_line, played

NAMES = [
    "makespan",
    "served",
    "on_time",
    "lateness",
    "lateness_max",
    "energy",
    "truck_distance",
    "drone_distance",
    "sorties",
    "aborted",
    "forced_onsets",
    "crashes",
    "truck_wait",
    "drone_wait",
    "onboard_steps",
    "illegal",
    "conflicts",
    "objective",
]


def figures(*values):
    return pytest.approx(dict(zip(NAMES, values, strict=True)), abs=1e-12)


def test_worked_episodes():
    """Published: .001 + .5 * .01 of battery, 5 + 100 - 4 * .1 - .01 * .006. Sound: .02 to hover, .5 * .4 * 1.4 out, 4 *
    .028 at the door, .4 * .4 home: .572; 5 + 20 - 10 * .1 - .5 * .572."""
    assert replay(*WORKED_PUBLISHED)[0] == figures(4, 1, 1, 0, 0, 0.006, 0, 0.5, 1, 0, 0, 0, 4, 1, 0, 0, 0, 104.59994)
    assert replay(*WORKED_SOUND)[0] == figures(10, 1, 1, 0, 0, 0.572, 0, 0.9, 1, 0, 0, 0, 10, 5, 0, 0, 0, 23.714)


def test_late_deliveries():
    """Windows closed at 0, served in steps 2 and 3: 5 late in total, 3 at most. Energy .02 + 2 * .2 * .4 * 1.25."""
    config = TruckDroneConfig(num_drones=1, num_customers=2, pickup="air", end="served")
    found, _ = replay(config, on_line(0.2, 0.4, demand=0.5, window=(0, 0)), [[7, 0], [0, 2], [0, 3]])
    pays = 2 * 5 + 20 - 3 * 0.1 - 0.5 * 0.22 - 5 * 0.1
    assert found == figures(3, 2, 0, 5, 3, 0.22, 0, 0.4, 1, 0, 0, 0, 3, 1, 0, 0, 0, pays)


def test_names_keep_their_order():
    """As documented; the scaled ones follow, and the figures are copies."""
    world = milkrun.make("milkrun/TruckDrone-v0", 3, seed=1)
    world.reset()
    found = kpis(world, {"wh_per_battery": 1, "km_per_unit": 1, "seconds_per_step": 1})
    assert list(found)[: len(NAMES)] == NAMES
    assert set(found) - set(NAMES) == {
        "energy_wh",
        "truck_distance_km",
        "drone_distance_km",
        "makespan_s",
        "lateness_s",
        "lateness_max_s",
        "truck_wait_s",
        "drone_wait_s",
        "onboard_steps_s",
    }
    found["makespan"] += 7
    found["objective"] += 7
    assert world.i.tolist() == [0, 0, 0] and world.objective.tolist() == [0, 0, 0]


def test_other_units():
    """The sound episode in a city: 5 km for a unit, half a minute for a step, drones of 160 Wh."""
    config, instance, actions = WORKED_SOUND
    world = milkrun.make("milkrun/TruckDrone-v0", 1, config=config, autoreset="disabled")
    world.reset(instance={name: [value] for name, value in instance.items()})
    for joint in actions:
        world.step([joint])
    found = kpis(world, {"km_per_unit": 5, "seconds_per_step": 30.0, "wh_per_battery": np.float32(160)})
    assert found["drone_distance_km"] == pytest.approx([4.5]) and found["truck_distance_km"] == [0]
    assert found["makespan_s"] == [300] and found["drone_wait_s"] == [150] and found["truck_wait_s"] == [300]
    assert found["energy_wh"] == pytest.approx([91.52])


@pytest.mark.parametrize(
    ("scale", "sentence"),
    [
        ({"km_per_units": 1}, "no key 'km_per_units'; did you mean 'km_per_unit'"),
        ({"km_per_unit": -1}, r"scale\['km_per_unit'\] = -1: must be a number >= 0"),
        ({"km_per_unit": float("nan")}, "must be a number"),
        ({"wh_per_battery": float("inf")}, "must be a number"),
        ({"seconds_per_step": "3"}, "must be a number"),
        ({"seconds_per_step": True}, "must be a number"),
    ],
)
def test_an_invalid_scale_is_refused(scale, sentence):
    """By key and value."""
    world = milkrun.make("milkrun/TruckDrone-v0", 1, seed=1)
    world.reset()
    with pytest.raises(ConfigError, match=sentence):
        kpis(world, scale)


def test_figures_around_a_reset():
    """Truncated after 3 steps: a row keeps its figures until its reset turn; same_step has the new episode
    immediately."""
    waiting = milkrun.make("milkrun/TruckDrone-v0", 2, seed=1, max_steps=3)
    prompt = milkrun.make("milkrun/TruckDrone-v0", 2, seed=1, max_steps=3, autoreset="same_step")
    for world in (waiting, prompt):
        world.reset()
        for _ in range(3):
            world.step(np.zeros((2, 3), np.int64))
    assert kpis(waiting)["makespan"].tolist() == [3, 3] and kpis(waiting)["onboard_steps"].tolist() == [6, 6]
    assert kpis(waiting)["objective"] == pytest.approx([-60.3, -60.3])
    assert kpis(prompt)["makespan"].tolist() == [0, 0] and kpis(prompt)["onboard_steps"].tolist() == [0, 0]
    waiting.step(np.zeros((2, 3), np.int64))
    assert kpis(waiting)["makespan"].tolist() == [0, 0] and kpis(waiting)["objective"].tolist() == [0, 0]


@pytest.mark.parametrize("twist", ["published, thirsty", "default", "off, thirsty"])
def test_a_replay_equals_the_recording(twist):
    """The actions of random episodes, masked ones included, on their instances: same figures, same events."""
    recorder, taken = played(twist, False)
    for row in range(3):
        found, events = replay(recorder.config, instance_of(recorder, row), taken[row])
        assert found == {name: figure[row] for name, figure in kpis(recorder).items()}
        mine = log_of(recorder, row)
        mine["row"] = 0
        assert events.tolist() == mine.tolist()


def test_a_replay_may_stop_early():
    """After the delivery, before the way home."""
    config, instance, actions = WORKED_SOUND
    found, events = replay(config, instance, actions[:8])
    assert found["makespan"] == 8 and found["served"] == 1 and events["kind"][-1] == "served"
    assert replay(config, instance, np.zeros((0, 2), np.int64))[1].tolist() == []


def test_an_invalid_replay_is_refused():
    """Actions after the end, or of other agents; fields with a row axis."""
    config, instance, actions = WORKED_SOUND
    with pytest.raises(BadSolution, match="ended after 10 steps, but there are actions for 11"):
        replay(config, instance, [*actions, [0, 0]])
    for wrong in ([[0, 0, 0]], [0, 0], [[0.0, 0.0]], []):
        with pytest.raises(ShapeError, match=r"actions must be integers of shape \(steps, 2\)"):
            replay(config, instance, wrong)
    with pytest.raises(ShapeError, match="customer_pos"):
        replay(config, {name: [value] for name, value in instance.items()}, actions)
