"""The clutter reference with a cup that is moved by hand: holding, banking, dropping; no world takes part."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="needs milkrun[clutter]")

from .clutter_motion import ClutterMotionRow
from .clutter_physics import norm
from .clutter_scenes import on_tray
from .clutter_state import DROPPED, IDLE, LIFT, SETTLE, SUCCESS

SUGAR = "004_sugar_box"


def near(value, tolerance=1e-6):
    return pytest.approx(value, rel=0, abs=tolerance)


def row_of_one(**options):
    row = ClutterMotionRow({"box_objects": (SUGAR,), "num_objects_per_type": 1} | options)
    row.reset(np.array([on_tray(SUGAR)]))
    return row


def holding(**options):
    """The cup has gone down from .6 to the box, 2 mm above its top at .058, and took hold of it."""
    row = row_of_one(**options)
    for _ in range(28):
        row.step((0, 0, -1, -1))
    assert row.cup_pos == near((0, 0, 0.060))
    row.step((0, 0, 0, 1))
    assert (row.env_stage, row.current_suction_object, row.cup_pos) == (LIFT, 0, near((0, 0, 0.058)))
    return row


def test_the_cup_moves_within_its_box():
    """A tick moves it by at most .02 along each axis, never beyond .6 aside or .8 up."""
    row = row_of_one()
    row.step((1, -0.5, 0, -1))
    assert row.cup_pos == near((0.02, -0.01, 0.6))
    for _ in range(40):
        row.step((1, 0, 1, -1))
    assert row.cup_pos == near((0.6, -0.01, 0.8))
    assert (row.step_count, row.tick_count, row.env_stage) == (0, 41, IDLE)


def test_holding_still_reads_the_weight():
    """An object that hangs still for a second pulls with m g, to one per cent."""
    row, heard = holding(), []
    for _ in range(10):
        row.step((0, 0, 0.5, 1))
    run = row.engine.run

    def noted(path):
        forces, fault = run(path)
        heard.append(sum(norm(force) for force in forces) / len(forces))
        return forces, fault

    row.engine.run = noted
    for _ in range(50):
        row.step((0, 0, 0, 1))
    assert heard[25:] == pytest.approx([0.514 * 9.81] * 25, rel=0.01)


def test_release_at_the_drop_banks():
    """Letting go within .03 of the drop position is success; the pile settles in a tick; 1 + 2 less time is paid."""
    row = holding()
    started = row.ticks_at_choice
    for _ in range(25):
        row.step((0, 0, 0.8, 1))
    while row.cup_pos[1] < 0.29:
        row.step((0, 0.5, 0, 1))
    assert row.cup_pos == near((0, 0.29, 0.458))
    reward = row.step((0, 0, 0, -1))
    assert (row.last_result, row.terminated, row.success) == (SUCCESS, True, True)
    assert reward == near(3 - 0.0002 * (row.tick_count - started))


def test_release_elsewhere_drops():
    """Letting go anywhere else lets the object fall; the attempt ends when it lies still."""
    row = holding()
    for _ in range(5):
        row.step((0, 0, 0.5, 1))
    row.step((0, 0, 0, -1))
    assert (row.env_stage, row.result) == (SETTLE, DROPPED)
    while row.env_stage == SETTLE:
        reward = row.step((0, 0, 0, -1))
    assert (row.last_result, row.fails, row.step_count) == (DROPPED, [1], 1)
    assert reward == near(-0.5 - 0.0002 * row.last_ticks)
    assert row.centre(0)[2] == near(0.039, 1e-3)


def test_a_jerk_breaks_the_hold():
    """Pulling at 1 m/s from rest needs more than 10 N for half a kilogram: the object falls."""
    row = holding(suction_force=10)
    row.step((0, 0, 1, 1))
    assert (row.env_stage, row.result, row.current_suction_object) == (SETTLE, DROPPED, -1)
    assert row.pick_load > 1


@pytest.mark.parametrize("number", [1.01, math.nan, -math.inf])
def test_numbers_out_of_range_are_illegal(number):
    """The cup and its suction stay as they are, and the tick runs."""
    row = holding()
    place, ticks = row.cup_pos, row.tick_count
    row.step((0, 0, number, -1))
    assert (row.illegal, row.cup_pos, row.is_suction_active) == (True, place, True)
    assert (row.tick_count, row.step_count) == (ticks + 1, 0)
