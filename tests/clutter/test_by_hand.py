"""The clutter world compared with numbers computed by hand: stages, rewards, ends, observations.

A flat sugar box measures 89 x 175 mm and is 38 mm high. With one such box the tray is 1.15 x .175 = .20125 wide, so the
cup drops objects at (0, .300625, .45).
"""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="needs milkrun[clutter]")

from milkrun.clutter import register_object_type

from .trays import SUGAR, UPRIGHT, heavy, laid, made, on_floor

IDLE, CARRY = 0, 5
SUCCESS, DROPPED = 1, 2
ROOM = {"tray_side": 0.5}
LONG = 0.175  # along x for a flat sugar box; .089 along y, .038 high
TICK = 0.02  # s


def near(value, tolerance=1e-6):
    return pytest.approx(value, rel=0, abs=tolerance)


def step(world, action):
    """The reward of an action."""
    world.step(np.array([action], float if isinstance(action, tuple) else int))
    return float(world.reward[0])


def pair(**options):
    """Two flat sugar boxes far from each other."""
    return laid(on_floor(SUGAR, y=-0.15), on_floor(SUGAR, y=0.15), **ROOM, **options)


def stacked(share):
    """A flat box, and another on top that covers this fraction of it from the right."""
    return laid(on_floor(SUGAR), on_floor(SUGAR, x=(1 - share) * LONG, over=0.038), **ROOM)


def test_lengths_of_the_stages():
    """45 ticks of .01 m from .6 to .158, 25 down, 5 to grip, 5 to lift, 47 over .4629 m, 5 to release, 0 to settle.

    The lift ends at .058 + 4 x .1^2 = .098, so the path to the drop is (.300625, .352).
    """
    world, stages = laid(on_floor(SUGAR), step_mode="tick"), []
    while not world.done[0]:
        reward = step(world, 0)
        stages.append(int(world.env_stage[0]))
    assert [stages.index(stage) + 1 for stage in range(2, 7)] == [45, 70, 75, 80, 127]
    assert (world.tick_count[0], world.env_stage[0], world.settle_tick[0]) == (132, IDLE, 52)
    assert reward == near(1 + 2 - 0.01 * 132 * TICK)
    assert world.cup_pos[0] == near([0, 0.300625, 0.45])


def test_the_cup_moves_straight():
    """After 9 of 45 ticks the cup has covered a fifth of its path; it does not move in GRIP; LIFT rises by 4 t^2."""
    world = laid(on_floor(SUGAR), step_mode="tick")
    for _ in range(9):
        step(world, 0)
    assert world.cup_pos[0] == near([0, 0, 0.6 - 0.442 / 5])
    for _ in range(66):
        step(world, 0)
    assert world.cup_pos[0] == near([0, 0, 0.058]) and world.is_suction_active[0]
    for _ in range(2):
        step(world, 0)
    assert world.cup_pos[0] == near([0, 0, 0.058 + 4 * 0.04**2])
    assert (world.current_suction_object[0], world.lift_from[0]) == (0, near(0.058))


def lifted(world):
    """Ticks until object 0 has cleared the pile."""
    step(world, 0)
    while world.env_stage[0] != CARRY:
        step(world, 0)
    return int(world.tick_count[0])


def tower(name, height):
    """A thin box of this height, of half a kilogram."""
    register_object_type(name, "box", (0.05, 0.05, height), 0.5)
    return name


def test_a_neighbour_delays_clearance():
    """A lift ends when the object's bottom passes the top of the others: a neighbour .105 high costs five more ticks.

    A weld of time constant .02 without the cup's speed follows 4t^2 as 4t^2 - .32t + .0098, plus a substep at its
    speed: .089 after nine ticks, .114 after ten. The bottom must rise by .095.
    """
    post = tower("post-105", 0.105)
    poses = on_floor(SUGAR), [0, 0.15, 0.02 + 0.105 / 2, *UPRIGHT]
    world = laid(*poses, box_objects=(SUGAR, post), step_mode="tick", **ROOM)
    assert lifted(world) == 45 + 25 + 5 + 10
    assert world.grasped[0].tolist() == [True, False]


def test_a_lift_ends_after_thirteen_ticks():
    """Next to a very high neighbour the object is out after ceil(.25/.02) ticks."""
    post = tower("post-500", 0.5)
    poses = on_floor(SUGAR), [0, 0.15, 0.02 + 0.25, *UPRIGHT]
    world = laid(*poses, box_objects=(SUGAR, post), step_mode="tick", tray_side=0.6)
    assert lifted(world) == 45 + 25 + 5 + 13


def test_a_drop_is_charged_and_may_be_retried():
    """A drop costs .5 and its time; the object stays in play with one failure; the fifteenth attempt ends it."""
    kind = heavy(SUGAR, 2.5)
    world = laid(on_floor(SUGAR), box_objects=(kind,), max_episode_steps_discrete=15)
    for attempt in range(1, 16):
        reward = step(world, 0)
        assert reward == near(-0.5 - 0.01 * world.last_ticks[0] * TICK)
        assert (world.fails[0].tolist(), world.step_count[0]) == ([attempt], attempt)
        assert world.terminated[0] == (attempt == 15)
    assert not world.success[0] and world.objective[0] == near(-7.5 - 0.01 * TICK * world.tick_count[0])
    assert world.log_result[0].tolist() == [DROPPED] * 15 and world.log_ticks[0].sum() == world.tick_count[0]
    assert world.log_load[0] == near(np.full(15, 0.940 * 2.5 * 17.81 / 40), 0.0167)


def test_small_movements_are_no_disturbance():
    """A neighbour that stops within 2 mm of its place is not disturbed, but its movement is logged."""
    world = laid(on_floor(SUGAR, y=-0.15), on_floor(SUGAR, y=0.15, over=0.001), **ROOM)
    reward = step(world, 0)
    assert 0 < world.last_displacement[0, 1] < 0.002
    assert world.last_disturbance[0] == 0
    assert reward == near(1 - 0.01 * world.last_ticks[0] * TICK)


def test_clearing_is_rewarded_and_ends_the_episode():
    """Two picks clear the tray: 1 + 1 + 2 less time; the figures follow."""
    world = pair()
    for action in (1, 0):
        step(world, action)
    assert world.terminated[0] and world.success[0] and world.grasp_order[0].tolist() == [1, 0]
    assert world.objective[0] == near(4 - 0.01 * TICK * world.tick_count[0])
    assert world.picks_per_hour[0] == near(7200 / (world.tick_count[0] * TICK), 1e-3)
    assert (world.percent_cleared[0], world.grasp_success[0], world.action_efficiency[0]) == (1, 1, 1)


def test_parked_objects_are_hidden():
    """Of a picked object the views only have its size, its state and its mass."""
    world = pair(step_mode="tick")
    lifted(world)
    seen = world.objects[0, 0]
    assert seen[3:14].tolist() == [0] * 11 and seen[17:25].tolist() == [0] * 8
    assert seen[14:17].tolist() == [0, 1, 0]
    assert seen[[0, 1, 2, 25]] == near([0.19, 0.445, 0.875, 0.514])
    while world.env_stage[0] != IDLE:
        step(world, 0)
    assert (world.exposed[0, 0], world.top[0, 0], world.action_mask[0].tolist()) == (0, 0, [False, True])


def test_ticks_run_out():
    """In tick mode the row is truncated at max_ticks, in pick mode never."""
    world = pair(step_mode="tick", max_ticks=10)
    for _ in range(10):
        step(world, 0)
    assert world.truncated[0] and not world.terminated[0]
    whole = pair(max_ticks=10)
    step(whole, 0)
    assert not whole.done[0]


def test_observations_at_the_start():
    """The numbers of one flat box at (.05, -.1) in a tray of .5, and of its row."""
    world = laid(on_floor(SUGAR, x=0.05, y=-0.1), suction_force=30, max_episode_steps_discrete=15, **ROOM)
    place, columns = [0.2, -0.4, 0.039 / 0.3], [0, 0, -1, 0, 1, 0]
    seen = [1, 0.015575 / 0.02, 0, 0, 0.058 / 0.3, 0, 1, 0]
    expected = [0.19, 0.445, 0.875, *place, *columns, 0, 0, 1, 0, 0, *seen, 0.514]
    assert world.objects[0, 0] == near(np.array(expected))
    assert world.globals[0] == near(np.array([0, 0, 1, 0, 0, 0, 0.75, 0, 0, 0, 0, 1.2]))


def test_a_covered_middle_moves_the_grip():
    """With two thirds covered only the samples at -2/3 of the half length are left; the middle one is nearest."""
    world = stacked(2 / 3)
    assert world.cover[0, 0] == near([1 / 3, 2 / 3])
    assert world.grip_point[0, 0] == near([-2 / 3 * LONG / 2, 0, 0.058])
    assert world.grip_offset[0, 0] == near(LONG / 3)


def test_a_fully_covered_object_is_not_reachable():
    """A box directly on top of another hides it: the lower one has no grip point and is not allowed, the upper one
    is."""
    world = stacked(1)
    assert world.exposed[0].tolist() == [0, 1]
    assert world.reachable[0].tolist() == world.action_mask[0].tolist() == [False, True]
    assert world.grip_point[0, 0].tolist() == [0, 0, 0]
    assert world.objects[0, 0, 22] == 1


def test_a_tilted_box_shows_two_faces():
    """Turned by 30 degrees about y, a box shows its top by cos 30 and one side by sin 30."""
    angle = math.pi / 12
    world = laid([0, 0, 0.2, math.cos(angle), 0, math.sin(angle), 0])
    assert world.exposed_area[0, 0] == near(0.089 * 0.175 / 2 + 0.038 * 0.089 * math.sqrt(0.75))
    assert world.top[0, 0] == near(0.2 + 0.0875 * math.sqrt(0.75) + 0.019 / 2)


def holding(**options):
    """The cup has moved down from .6 to the box, 2 mm above its top at .058, and gripped it."""
    world = laid(on_floor(SUGAR), use_discrete_action=False, **options)
    for _ in range(28):
        step(world, (0, 0, -1, -1))
    assert world.cup_pos[0] == near([0, 0, 0.060])
    step(world, (0, 0, 0, 1))
    assert world.current_suction_object[0] == 0 and world.cup_pos[0] == near([0, 0, 0.058])
    return world


def test_a_moved_cup_stays_within_its_box():
    """A tick moves it by at most .02 along each axis, never beyond .6 aside or .8 up."""
    world = laid(on_floor(SUGAR), use_discrete_action=False)
    step(world, (1, -0.5, 0, -1))
    assert world.cup_pos[0] == near([0.02, -0.01, 0.6])
    for _ in range(40):
        step(world, (1, 0, 1, -1))
    assert world.cup_pos[0] == near([0.6, -0.01, 0.8])
    assert (world.step_count[0], world.tick_count[0], world.env_stage[0]) == (0, 41, IDLE)


def test_release_at_the_drop_is_success():
    """A release within .03 of the drop position is a success; the pile settles in a tick; the reward is 1 + 2 less
    time."""
    world = holding()
    started = int(world.ticks_at_choice[0])
    for _ in range(25):
        step(world, (0, 0, 0.8, 1))
    while world.cup_pos[0, 1] < 0.29:
        step(world, (0, 0.5, 0, 1))
    assert world.cup_pos[0] == near([0, 0.29, 0.458])
    reward = step(world, (0, 0, 0, -1))
    assert world.last_result[0] == SUCCESS and world.terminated[0] and world.success[0]
    assert reward == near(3 - 0.01 * TICK * (world.tick_count[0] - started))


def test_release_elsewhere_drops():
    """A release anywhere else drops the object; the attempt ends when it is at rest."""
    world = holding()
    for _ in range(5):
        step(world, (0, 0, 0.5, 1))
    reward = step(world, (0, 0, 0, -1))
    while world.step_count[0] == 0:
        reward = step(world, (0, 0, 0, -1))
    assert (world.last_result[0], world.fails[0].tolist(), world.step_count[0]) == (DROPPED, [1], 1)
    assert reward == near(-0.5 - 0.01 * TICK * world.last_ticks[0])


def test_a_jerk_breaks_the_hold():
    """Pulling at 1 m/s from rest needs more than 10 N for half a kilogram: the object falls."""
    world = holding(suction_force=10)
    step(world, (0, 0, 1, 1))
    assert world.current_suction_object[0] == -1 and world.pick_load[0] > 1


@pytest.mark.parametrize("number", [1.01, math.nan, -math.inf])
def test_moves_out_of_range_are_illegal(number):
    """The cup and its suction do not change, and the tick runs."""
    world = holding()
    place, ticks = world.cup_pos[0].tolist(), int(world.tick_count[0])
    step(world, (0, 0, number, -1))
    assert world.illegal[0] and world.cup_pos[0].tolist() == place and world.is_suction_active[0]
    assert (world.tick_count[0], world.step_count[0]) == (ticks + 1, 0)


def test_sizes_of_the_presets():
    """The tray is .24, .30 and .36 wide for 6, 12 and 18 objects; a state row has 32N + 20 numbers."""
    for n, side in ((2, 0.24), (4, 0.3), (6, 0.36)):
        world = made(1, num_objects_per_type=n)
        assert (world.sizes["N"], world.config.side) == (3 * n, near(side, 1e-12))
        assert world.physics.shape == (1, 32 * 3 * n + 20)
