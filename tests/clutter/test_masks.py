"""Allowed actions, and the effect of illegal ones."""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.clutter import Clutter, ClutterConfig
from milkrun.core.errors import IllegalAction

from .trays import CANS, SUGAR, bits, differing, laid, on_floor, tray

COUNTED = """i step_count last_result records log_target log_result log_blocked log_lost log_ticks log_load log_shift
reward objective illegal action_efficiency globals last_disturbance last_ticks last_lost last_displacement stirred
action_mask""".split()
"""Fields that an illegal action may change: counts, the log, the last result, the mask of a row that ends."""


def check_counts(world) -> None:
    """Invariants of every row after every call."""
    live = ~world.done
    assert world.action_mask.any(1).all() and (world.step_count <= world.sizes["T"]).all()
    assert not (world.grasped & world.lost).any()
    playing = ~world.grasped & ~world.lost
    assert (world.action_mask[live & ~world.env_busy] <= playing[live & ~world.env_busy]).all()
    ended = world.action_mask[~live]
    assert ended[:, 0].all() and not ended[:, 1:].any()
    assert np.isfinite(world.physics).all() and all(np.isfinite(a).all() for a in world.observe().values())
    assert world.obj_pose[..., 2][playing].min(initial=1.0) > -0.005
    assert ((world.grasp_order >= 0) == world.grasped).all()
    assert np.array_equal(np.sort(world.grasp_order, 1)[:, ::-1].max(1) + 1, world.grasped.sum(1))


@pytest.mark.parametrize("options", [{}, CANS, {"suction_force": 12}], ids=["boxes", "cans", "weak"])
def test_masked_picks_keep_their_counts(options):
    """Random allowed picks: none is illegal, no object has two states, no row is without an action."""
    world = tray(8, num_objects_per_type=2, max_episode_steps_discrete=8, autoreset="next_step", **options)
    for turn in range(8):
        world.step(world.sample_actions(1, turn))
        assert not world.illegal.any()
        check_counts(world)


@pytest.mark.long
@pytest.mark.parametrize("preset", ["default", "large_scene", "small_scene", "loose_scene", "fast"])
def test_two_thousand_masked_picks_of_a_preset(preset):
    """The same for the presets, 2 000 picks each."""
    world = Clutter(64, ClutterConfig.preset(preset), seed=1, autoreset="next_step")
    world.reset()
    picks = turn = 0
    while picks < 2000:
        begins = world.done.copy()
        world.step(world.sample_actions(1, turn))
        picks, turn = picks + int((~begins).sum()), turn + 1
        assert not world.illegal.any()
        check_counts(world)


def test_refused_actions_change_nothing_else():
    """Every masked or invalid action is flagged, counted and charged; the pile is unchanged."""
    world = tray(6, num_objects_per_type=2, max_episode_steps_discrete=30)
    rng = np.random.default_rng(1)
    refused = 0
    for turn in range(12):
        actions = rng.integers(-2, 8, 6)
        if turn % 3 == 0:
            actions = world.sample_actions(3, turn)
        allowed = [0 <= a < 6 and bool(world.action_mask[b, a]) for b, a in enumerate(actions)]
        live, before = ~world.done, [bits(world, b) for b in range(6)]
        if not live.any():
            break
        world.step(actions[live], rows=np.flatnonzero(live))
        for b in np.flatnonzero(live):
            assert world.illegal[b] == (not allowed[b])
            if not allowed[b]:
                refused += 1
                assert set(differing(before[b], bits(world, b))) <= {*COUNTED}
                assert world.reward[b] == -0.5 and world.last_result[b] == 3
                n = world.records[b] - 1
                assert world.log_result[b, n] == 3 and world.log_ticks[b, n] == 0 and not world.log_shift[b, n].any()
    assert refused >= 10


def test_the_last_attempt_may_be_illegal():
    """Illegal actions also use up attempts, and the last one ends the episode."""
    world = laid(on_floor(SUGAR), max_episode_steps_discrete=2)
    world.step([5])
    assert not world.done[0] and world.step_count[0] == 1
    world.step([-1])
    assert world.terminated[0] and not world.success[0] and world.step_count[0] == 2


def test_clearing_on_the_last_attempt_is_success():
    """The one object on the one attempt."""
    world = laid(on_floor(SUGAR), max_episode_steps_discrete=1)
    world.step([0])
    assert world.terminated[0] and world.success[0] and world.percent_cleared[0] == 1


@pytest.mark.parametrize(("action", "reason"), [(0, "out already"), (7, "objects are 0..1"), (-1, "objects are 0..1")])
def test_illegal_actions_are_named(action, reason):
    """With illegal='raise': row, action, reason; nothing changes."""
    world = laid(on_floor(SUGAR, y=-0.12), on_floor(SUGAR, y=0.12), tray_side=0.5, illegal="raise")
    world.step([0])
    before = bits(world, 0)
    with pytest.raises(IllegalAction, match=reason):
        world.step([action])
    assert differing(before, bits(world, 0)) == []
