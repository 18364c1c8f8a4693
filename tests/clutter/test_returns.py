"""Returns of episodes: the sum of rewards, from the log alone, and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from milkrun.clutter import clutter_return
from milkrun.clutter.stages import CARRY

from .trays import CANS, SUGAR, laid, on_floor, tray

ROW_OF_TWO = {"tray_side": 0.5}


@pytest.mark.parametrize(
    "options",
    [
        {"num_objects_per_type": 2},
        {"suction_force": 12},
        {"rewards": "published", **CANS},
        {"step_mode": "tick"},
        {"reward_time": 1.0, "reward_lost": 3.0, "lift_acc": 60.0, "suction_force": 500.0, "num_objects_per_type": 2},
    ],
    ids=["boxes", "weak", "published", "ticks", "thrown"],
)
def test_the_return_follows_from_the_log(options):
    """Rewards of an episode, illegal attempts among them, sum to the checker's return of its events."""
    world = tray(4, **options)
    paid, turn = np.zeros(4), 0
    while not world.done.all() and turn < 500:
        live = np.flatnonzero(~world.done)
        actions = world.sample_actions(5, turn)
        if turn == 1:
            actions[0] = 99
        world.step(actions[live], rows=live)
        paid[live] += world.reward[live]
        turn += 1
    for b in range(4):
        assert paid[b] == pytest.approx(clutter_return(world.events(b), world.config), abs=1e-5)
        assert world.objective[b] == pytest.approx(paid[b], abs=1e-5)
        assert len(world.events(b)) == world.step_count[b]


def test_published_clearing_of_twelve():
    """3 for each of 12 objects and 15 for all: 51. The objects lie side by side, so no pick fails."""
    poses = [on_floor(SUGAR, x=x, y=y) for x in (-0.3, -0.1, 0.1, 0.3) for y in (-0.15, 0.0, 0.15)]
    world = laid(*poses, tray_side=0.9, rewards="published", max_episode_steps_discrete=12)
    total = 0.0
    for i in range(12):
        world.step([i])
        total += float(world.reward[0])
    assert total == 51 and world.success[0] and world.terminated[0]
    assert clutter_return(world.events(0), world.config) == 51
    assert world.grasp_order[0].tolist() == list(range(12))


def test_a_faultless_pick_by_hand():
    """1 less a hundredth a second: the way to the box and to the drop, 25 ticks down, 5 grip, 5 lift, 5 release; 2 for
    clearing."""
    world = laid(on_floor(SUGAR))
    world.step([0])
    lifted = world.lift_from[0] + 4 * 0.1**2  # after five ticks of 20 ms under 8 m/s2
    above = math.ceil((0.6 - 0.158) / 0.01 - 1e-9)
    carry = math.ceil(math.dist((0, 0, lifted), (0, world.half_side + 0.2, 0.45)) / 0.01 - 1e-9)
    ticks = above + 25 + 5 + 5 + carry + 5
    assert world.last_ticks[0] == ticks == world.tick_count[0]
    assert world.reward[0] == pytest.approx(1 - 0.01 * ticks * 0.02 + 2, abs=1e-6)
    assert world.picks_per_hour[0] == pytest.approx(3600 / (ticks * 0.02), rel=1e-6)


def test_a_blocked_pick_is_charged():
    """The lower of two stacked boxes: .25 for a blocked target, and the displacement of the upper one."""
    world = laid(on_floor(SUGAR), on_floor(SUGAR, x=0.175 * 2 / 3, over=0.0381), **ROW_OF_TWO)
    world.step([0])
    event = world.events(0)[0]
    assert event["blocked"] and event["target"] == 0 and event["displacement"][1] > 0.01
    success = event["result"] == "success"
    expected = (1 if success else -0.5) - 0.25 - 2 * min(event["displacement"][1], 0.5) - 0.01 * 0.02 * event["ticks"]
    assert world.reward[0] == pytest.approx(expected, abs=1e-6)
    assert world.last_disturbance[0] == pytest.approx(event["displacement"][1]) and world.blocked_share[0] == 1


@pytest.mark.parametrize("objects", [1, 2])
def test_a_pick_that_fails_while_its_object_is_carried_is_no_success(objects):
    """The physics fails after the lift: world and log give no reward for the object, nor for clearing."""
    world = laid(*[on_floor(SUGAR, y=y) for y in (0.12, -0.12)[:objects]], step_mode="tick", **ROW_OF_TWO)
    while world.env_stage[0] != CARRY:
        world.step([0])
    assert world.grasped[0].tolist() == [True, False][:objects]
    world.obj_vel[0, 0, 0] = np.nan
    world.step([0])
    assert world.truncated[0] and [event["result"] for event in world.events(0)] == ["physics_error"]
    assert world.reward[0] == pytest.approx(-0.01 * 0.02 * world.tick_count[0], abs=1e-6)
    assert world.objective[0] == pytest.approx(clutter_return(world.events(0), world.config), abs=1e-6)
    assert not world.grasped.any() and (world.grasp_order == -1).all()
    assert not world.success[0] and world.percent_cleared[0] == world.grasp_success[0] == 0
    world.load_state_dict(world.state_dict())
