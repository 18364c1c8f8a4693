"""A pick and its ticks one by one are the same episode."""

from __future__ import annotations

import numpy as np
import pytest

from .trays import CANS, bits, differing, tray

BY_CALL = {"i", "reward", "objective", "stirred", "last_disturbance", "last_ticks", "last_lost", "last_displacement"}
"""Fields that depend on the number of calls."""


def same_picks(rows: int, picks: int, **options) -> int:
    """Plays the same choices by picks and by ticks; returns the number of failed picks."""
    whole, ticks = tray(rows, **options), tray(rows, step_mode="tick", max_ticks=10**6, **options)
    for turn in range(picks):
        live = np.flatnonzero(~whole.done)
        if not len(live):
            break
        actions = whole.sample_actions(2, turn)
        whole.step(actions[live], rows=live)
        paid, busy = np.zeros(rows), live
        while len(busy):
            ticks.step(actions[busy], rows=busy)
            paid[busy] += ticks.reward[busy]
            busy = busy[ticks.env_busy[busy]]
        for b in range(rows):
            found = differing(bits(whole, b, set(whole.fields) - BY_CALL), bits(ticks, b))
            assert found == [], f"row {b}, pick {turn}: {found}"
        assert (paid[live] == whole.reward[live]).all()
    return int((whole.log_result == 2).sum())


@pytest.mark.parametrize(
    "options",
    [{}, {"canonical": False, **CANS}, {"settle_max": 4, "suction_force": 14}, {"timestep": 0.01, "substeps": 2}],
    ids=["boxes", "cans", "unsettled", "fast"],
)
def test_ticks_make_up_a_pick(options):
    """The same choices give equal bits and equal rewards, though rows finish at different ticks."""
    same_picks(4, 5, num_objects_per_type=2, **options)


def test_drops_are_the_same_by_ticks():
    """A weak cup: some of these picks fail."""
    assert same_picks(4, 3, num_objects_per_type=2, suction_force=12) >= 2


@pytest.mark.long
def test_a_hundred_picks_by_ticks():
    """Eight full trays, fifteen attempts each, drops among them."""
    assert same_picks(8, 15, num_objects_per_type=4, max_episode_steps_discrete=15, bank_size=16) >= 5


def test_a_busy_row_reads_no_action():
    """During a pick any action is legal and ignored, and the mask allows all."""
    one, other = tray(1, step_mode="tick"), tray(1, step_mode="tick")
    for turn in range(60):
        one.step([0 if turn == 0 else 2])
        other.step([0 if turn == 0 else -77])
        assert not other.illegal[0] and (not one.env_busy[0] or one.action_mask[0].all())
        assert differing(bits(one, 0), bits(other, 0)) == []
