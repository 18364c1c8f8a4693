"""The checker of the truck-and-drones world: returns by hand, refusals, and agreement with the world."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadSolution
from milkrun.delivery import kpis, replay
from milkrun.delivery.tasks import check_episode, truckdrone_return
from tests.delivery.truckdrone_logs import (
    TWISTS,
    WORKED_PUBLISHED,
    WORKED_SOUND,
    complete,
    instance_of,
    log_of,
    on_line,
    played,
)

ZERO = {"makespan": 0, "served": 0, "energy": 0.0, "lateness": 0, "forced_onsets": 0, "crashes": 0}


def test_returns_by_hand():
    """Of 6 customers: 4 served 7 steps late in 200 steps with 8 batteries, 2 overrides, 1 crash; and all, in 50."""
    config = milkrun.make("milkrun/TruckDrone-v0", 1).config
    poor = {"makespan": 200, "served": 4, "energy": 8.0, "lateness": 7, "forced_onsets": 2, "crashes": 1}
    assert truckdrone_return(poor, config) == pytest.approx(-20 + 20 - 4 - 0.7 - 1 - 10 - 2 * 10)
    good = {**ZERO, "makespan": 50, "served": 6, "energy": 3.0}
    assert truckdrone_return(good, config) == pytest.approx(-5 + 30 - 1.5 + 20)
    both = {name: np.array([poor[name], good[name]]) for name in ZERO}
    assert truckdrone_return(both, config) == pytest.approx([-35.7, 43.5])


def test_returns_by_hand_under_published_rules():
    """Of 3 customers: neither lateness nor crashes are charged; all served is complete, also in the last step."""
    config = milkrun.make("milkrun/TruckDrone-v0", 1, preset="published").config
    poor = {"makespan": 30, "served": 1, "energy": 2.0, "lateness": 7, "forced_onsets": 4, "crashes": 2}
    assert truckdrone_return(poor, config) == pytest.approx(-3 + 5 - 0.02 - 2 - 2 * 20)
    good = {**ZERO, "makespan": 200, "served": 3}
    assert truckdrone_return(good, config) == pytest.approx(-20 + 15 + 100)


def test_completed_by_the_last_step():
    """The figures do not show that the drone landed in step 10 of 10; `complete` and the log do."""
    config, instance, actions = WORKED_SOUND
    config = config.replace(max_steps=10)
    figures_found, events = replay(config, instance, actions)
    assert truckdrone_return(figures_found, config) == pytest.approx(3.714)
    assert truckdrone_return(figures_found, config, complete=True) == pytest.approx(23.714)
    assert figures_found["objective"] == pytest.approx(23.714)
    assert check_episode(instance, config, events) == pytest.approx(figures_found, abs=1e-12)


def test_a_lost_parcel_ends_the_episode():
    """The only one, in step 2, the other drone on board: .2 for time, 1.02 batteries, a crash, no delivery."""
    config = WORKED_SOUND[0].replace(num_drones=2, battery_rule="off", battery_rate=4.0)
    instance = on_line(0.5, demand=0.5)
    figures_found, events = replay(config, instance, [[7, 0, 0], [0, 2, 0]])
    assert figures_found["objective"] == pytest.approx(-0.2 - 0.5 * 1.02 - 10 - 10)
    assert check_episode(instance, config, events) == pytest.approx(figures_found, abs=1e-12)


def test_worked_logs_are_valid():
    """Their figures equal the kernel's, also for an unfinished episode."""
    for config, instance, actions in (WORKED_PUBLISHED, WORKED_SOUND):
        for steps in range(1, len(actions) + 1):
            figures_found, events = replay(config, instance, actions[:steps])
            assert check_episode(instance, config, events) == pytest.approx(figures_found, abs=1e-12)


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize("twist", TWISTS)
def test_logs_of_random_episodes_are_valid(twist, masked):
    """The checker finds no fault, and its sums equal the kernel's figures, objective included."""
    recorder, _ = played(twist, masked)
    figures_found = kpis(recorder)
    assert truckdrone_return(figures_found, recorder.config, complete(recorder)) == pytest.approx(
        recorder.objective, abs=1e-9
    )
    for row in range(recorder.num_envs):
        found = check_episode(instance_of(recorder, row), recorder.config, log_of(recorder, row))
        assert list(found) == list(figures_found)
        for name, figure in found.items():
            assert abs(figure - figures_found[name][row]) <= 1e-9, (name, row)


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize("twist", TWISTS)
def test_invariants_hold_in_every_step(twist, masked):
    """64 episodes, from the fields alone: charge is bounded, no agent exceeds its speed, served stays served, and a
    reserved parcel is at one place. At the end the return follows from the figures."""
    world = milkrun.make("milkrun/TruckDrone-v0", 64, autoreset="disabled", seed=11, **TWISTS[twist])
    world.reset()
    rng, choices, k = np.random.default_rng(2), world.action.nvec(world.sizes), world.config
    sound = k.rules == "sound"
    gain = k.recovery_charge + k.charge_rate * k.dt if sound else 0.2
    charged = np.zeros_like(world.battery)
    used = np.zeros_like(world.battery)
    names = ("battery", "drone_pos", "truck_pos", "status", "served")
    for turn in range(k.limit):
        live = np.flatnonzero(~world.done)
        if not len(live):
            break
        was = {name: getattr(world, name)[live] for name in names}
        actions = world.sample_actions(3, turn)[live]
        if not masked:
            drawn = np.stack([rng.integers(0, n, len(live)) for n in choices], axis=1)
            actions = np.where(rng.random((len(live), 1)) < 0.7, drawn, actions)
        world.step(actions, rows=live)
        now = {name: getattr(world, name)[live] for name in names}
        put_in = now["battery"] - was["battery"] + world.battery_used[live]
        fell = (now["status"] == 3) & (was["status"] != 3)
        used[live] += world.battery_used[live] - np.where(fell, put_in, 0)  # a crash: more than available
        charged[live] += np.where(fell, 0, put_in)
        aboard = now["status"] == 0  # under published rules also release and landing in one step
        assert (put_in >= -1e-12).all()
        assert (put_in[~aboard & ~fell] <= 1e-12).all()
        assert (put_in[aboard] <= gain + world.battery_used[live][aboard] + 1e-12).all()
        moved = np.linalg.norm(now["drone_pos"] - was["drone_pos"], axis=-1)
        airborne = (now["status"] != 0) & (was["status"] != 0)
        assert (moved[airborne] <= k.drone_speed * k.dt + 1e-9).all()
        drove = np.linalg.norm(now["truck_pos"] - was["truck_pos"], axis=-1)
        assert (drove <= k.truck_speed * k.dt + 1e-9).all()
        assert (now["served"] >= was["served"]).all()
        if sound and k.reserve:
            held = world.carrying[:, :, None] == np.arange(world.sizes["C"])
            wrecked = (held & (world.status == 3)[:, :, None]).sum(1)
            assert (held.sum(1) + world.served <= 1).all() and (wrecked == world.lost).all()
    assert world.done.all()
    assert 1 + charged - used == pytest.approx(world.battery, abs=1e-9)
    assert truckdrone_return(kpis(world), k, complete(world)) == pytest.approx(world.objective, abs=1e-9)


def changed(events, of, nth=0, **values):
    """The log with one event changed."""
    forged = events.copy()
    at = np.flatnonzero(events["kind"] == of)[nth]
    for name, value in values.items():
        forged[name][at] = value
    return forged


def doubled(events, kind):
    at = np.flatnonzero(events["kind"] == kind)[0]
    return np.insert(events, at, events[at])


def without(events, kind, nth=0):
    return np.delete(events, np.flatnonzero(events["kind"] == kind)[nth])


FORGERIES = [
    (lambda e: doubled(e, "served"), "drone_0 served at 8: is served twice"),
    (lambda e: doubled(e, "load"), "drone_0 load at 1: cannot take a parcel"),
    (lambda e: doubled(e, "release"), "drone_0 release at 0: is out already"),
    (lambda e: without(e, "release"), "drone_0 hover at 0: is onboard"),
    (lambda e: without(e, "load"), "drone_0 fly_out at 1: no parcel"),
    (lambda e: without(e, "wait_open"), "drone_0 wait_open at 5: does not follow the event before"),
    (lambda e: without(e, "wait"), "drone_0 hover at 0: comes before the truck's step"),
    (lambda e: changed(e, "wait", x1=0.1), "truck_0 wait at 0: moves"),
    (lambda e: changed(e, "fly_out", x1=0.3), "drone_0 fly_out at 1: is faster than 0.2 a step"),
    (lambda e: changed(e, "fly_out", x1=0.1), "drone_0 fly_out at 1: does not lead where it should"),
    (lambda e: changed(e, "fly_out", y0=0.1), "drone_0 fly_out at 1: begins at another place"),
    (lambda e: changed(e, "fly_out", energy=0.08), "drone_0 fly_out at 1: costs 0.08, not 0.112"),
    (lambda e: changed(e, "wait_open", energy=0.02), "drone_0 wait_open at 4: costs 0.02, not 0.028"),
    (lambda e: changed(e, "landed", energy=-0.1), "drone_0 landed at 10: costs -0.1, not 0"),
    (lambda e: changed(e, "landed", ref=0), "drone_0 landed at 10: the parcel is -1, not 0"),
    (lambda e: changed(e, "landed", x1=0.1), "drone_0 landed at 10: does not end on the truck"),
    (lambda e: changed(e, "served", x1=0.1), "drone_0 served at 8: is not at the customer's place"),
    (lambda e: changed(e, "served", energy=0.1), "drone_0 served at 8: costs nothing"),
    (lambda e: changed(e, "served", kind="crash"), "drone_0 crash at 8: nothing crashed it"),
    (lambda e: changed(e, "hover", t1=3), "drone_0 hover at 0: is a step"),
    (lambda e: changed(e, "load", t1=3), "drone_0 load at 1: is a moment"),
    (lambda e: changed(e, "load", agent="drone_1"), "drone_1 load at 1: there is no such agent"),
    (lambda e: changed(e, "wait", row=3), "holds one episode of one row"),
    (lambda e: e[:0], "holds one episode of one row"),
    (lambda e: e[:-2], "the log of drone_0 ends at 9, the truck's at 10"),
]


@pytest.mark.parametrize(("forge", "sentence"), FORGERIES, ids=[sentence for _, sentence in FORGERIES])
def test_a_forged_log_is_detected(forge, sentence):
    """The worked sound episode, with one change."""
    config, instance, actions = WORKED_SOUND
    _, events = replay(config, instance, actions)
    with pytest.raises(BadSolution) as caught:
        check_episode(instance, config, forge(events))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "place", "sentence"),
    [
        ({}, {"tw_start": [9]}, "drone_0 served at 8: comes before the window opens"),
        ({"delivery_threshold": 0.01}, {"customer_pos": [[0.45, 0.0]]}, "drone_0 fly_out at 3: does not lead"),
        ({"recovery_threshold": 0.09}, {}, "drone_0 landed at 10: is too far from the truck"),
        ({"recovery_charge": 0.1}, {}, "drone_0 landed at 10: costs 0, not -0.1"),
        ({"hover_rate": 0.3}, {}, "drone_0 hover at 0: costs 0.02, not 0.03"),
        ({"drone_speed": 1.5}, {}, "drone_0 fly_out at 1: is faster than 0.15 a step"),
        ({"num_drones": 2}, {}, "the log of drone_1 ends at 0, the truck's at 10"),
    ],
)
def test_a_log_of_other_rules_is_detected(changes, place, sentence):
    """The worked sound episode, checked with another configuration or instance."""
    config, instance, actions = WORKED_SOUND
    _, events = replay(config, instance, actions)
    with pytest.raises(BadSolution) as caught:
        check_episode({**instance, **place}, config.replace(**changes), events)
    assert sentence in str(caught.value)


def test_a_parcel_in_two_drones_is_detected():
    """Two drones load parcel 0 with shared parcels; with reserved parcels this is invalid."""
    config = WORKED_SOUND[0].replace(num_drones=2, reserve=False)
    _, events = replay(config, on_line(0.5), [[7, 0, 0], [8, 0, 0], [0, 2, 2]])
    assert check_episode(on_line(0.5), config, events)["served"] == 0
    with pytest.raises(BadSolution, match="drone_1 load at 2: another drone has it"):
        check_episode(on_line(0.5), config.replace(reserve=True), events)
