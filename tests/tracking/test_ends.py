"""Ends: reasons, exact steps, rewards and reports; refused saved states."""

import warnings

import numpy as np
import pytest

from milkrun.core.errors import BadInstance
from milkrun.solvers import evaluate
from milkrun.tracking.config import REASONS, TrackingConfig
from tests.tracking.flights import FORWARD, LEFT, RIGHT, STOP, TURN_LEFT, hover, make, over, play, stand, straight


def reasons(world):
    return [REASONS[code] for code in world.reason]


def to_the_end(world, action, most=1000):
    for turn in range(1, most):
        world.step(np.full(world.num_envs, action))
        if world.done.all():
            return turn
    raise AssertionError("no end")


def test_a_target_out_of_the_window_is_lost_at_step_26():
    """More than 100 sim steps in a row: 104, so the 26th agent step, when the first 100 sim steps are over too."""
    world = straight()
    stand(world, (60.0, 0.0, 0.0))
    hover(world, (0.0, 0.0, 20.0))
    assert to_the_end(world, STOP) == 26
    assert reasons(world) == ["lost"] and world.lost_steps[0] == 104
    assert world.terminated[0] and not world.truncated[0]
    assert world.CR[0] == 0 and world.TSR[0] == 0


def test_a_step_with_the_target_in_the_window_resets_the_count():
    world = straight()
    over(world)
    play(world, STOP, 40)
    world.veh_pose[:, 0, 0] = 60.0
    assert to_the_end(world, STOP) == 26 and world.agent_step[0] == 66
    assert world.TSR[0] == pytest.approx(40 / 375)


def test_a_tracker_that_never_loses_it_is_truncated_at_375():
    world = straight()
    over(world)
    assert to_the_end(world, STOP) == 375
    assert reasons(world) == ["time"] and world.truncated[0] and not world.terminated[0]
    assert world.sim_step[0] == 1500 and world.TSR[0] == 1 and world.CR[0] == pytest.approx(374.748487, abs=1e-6)


def test_max_steps_also_ends_by_time():
    world = straight(2, max_steps=7)
    over(world)
    world.veh_pose[1, 0, 0] = 60.0
    assert to_the_end(world, STOP) == 7
    assert reasons(world) == ["time"] * 2 and world.truncated.all() and not world.terminated.any()


def test_a_limit_that_is_no_multiple_of_an_agent_step_is_met_by_the_step_that_reaches_it():
    world = straight(max_sim_steps=10)
    over(world)
    assert to_the_end(world, STOP) == 3 and world.sim_step[0] == 12 and world.TSR[0] == 1


def test_contact_ends_an_episode_at_any_time_and_cuts_the_step_short():
    """Without a filter a drone 1.005 m above the ground falls 1 cm a sim step: below 0.4 m at the 61st, the first of
    agent step 16. The target under it stays in the window; the reward of a crash is 0 all the same."""
    world = straight(1, action_mode="velocity", filter_hz=0)
    over(world, 1.5, 1.005)
    for turn in range(1, 17):
        world.step(np.array([(0, 0, -1, 0)], np.float32))
        assert world.done[0] == (turn == 16)
    assert reasons(world) == ["crash"] and world.crash[0] and world.terminated[0]
    assert world.sim_step[0] == 61 and world.pos[0, 2] == pytest.approx(0.395)
    assert world.reward_exact[0] == 0 and world.r_d[0] == 1 and world.TSR[0] == pytest.approx(16 / 375)


def test_a_step_cut_short_counts_as_many_lost_sim_steps_as_were_flown():
    world = straight(1, action_mode="velocity", filter_hz=0)
    over(world, height=1.005)
    world.veh_pose[:, 0, 0] = 300.0
    for _ in range(16):
        world.step(np.array([(0, 0, -1, 0)], np.float32))
    assert world.sim_step[0] == 61 and world.lost_steps[0] == 61


@pytest.mark.parametrize(
    ("options", "height", "reason"),
    [
        ({"done_height": (2.0, 19.0)}, 20.0, "height"),
        ({"done_height": (21.0, 50.0)}, 20.0, "height"),
        ({"wind_mean": (10.0, 0.0), "done_drift": 1.0, "no_reward_done": 10**6}, 20.0, "drift"),
        ({"wind_mean": (10.0, 0.0), "done_speed": 9.0}, 20.0, "speed"),
    ],
)
def test_other_physical_ends_wait_for_the_first_100_sim_steps(options, height, reason):
    """They hold from the start (drift from sim step 51 on), and end the episode at sim step 100, agent step 25."""
    world = straight(**options)
    over(world, height=height)
    assert to_the_end(world, STOP) == 25
    assert reasons(world) == [reason] and world.sim_step[0] == 100 and world.terminated[0] and not world.truncated[0]


def test_a_fast_turn_ends_an_episode():
    world = straight(ccw=-6.0, done_yaw_rate=5.9, init_no_done=0)
    over(world)
    to_the_end(world, TURN_LEFT)
    assert reasons(world) == ["yaw_rate"] and world.yaw_rate[0] > 5.9 and world.sim_step[0] < 60


def test_the_lowest_code_wins():
    """Too high and too fast, lost and out of time, at one moment."""
    world = straight(done_height=(2.0, 19.0), wind_mean=(10.0, 0.0), done_speed=9.0)
    over(world)
    to_the_end(world, STOP)
    assert reasons(world) == ["height"]
    world = straight(max_sim_steps=104)
    over(world)
    world.veh_pose[:, 0, 0] = 60.0
    assert to_the_end(world, STOP) == 26 and reasons(world) == ["lost"] and not world.truncated[0]


def test_the_published_dvat_ends_out_of_range():
    """Beyond 0.6 of the first distance along the optical axis: 25 m, so within 15."""
    world = straight(preset="dvat", action_mode="discrete", frame_stack=0, no_reward_done=10**6, init_no_done=0)
    over(world, height=20.0)
    for _ in range(200):
        world.step([FORWARD if world.rel[0, 0] > 0 else STOP])
        if world.done[0]:
            break
    away = np.linalg.norm(world.rel[0, :3])
    assert not world.done[0] and away > 0.6 * world.d_ref[0]  # right above it is still 19 m
    world.pos[:, 2] = 10.0
    world.step([STOP])
    assert reasons(world) == ["range"] and world.terminated[0] and world.reward_exact[0] == -10


def test_a_target_that_drives_off_the_map_truncates():
    world = straight(1, no_reward_done=10**6, max_sim_steps=10**6, seed=5)
    gone = to_the_end(world, STOP, 6000)
    assert reasons(world) == ["target_gone"] and world.truncated[0] and not world.terminated[0]
    assert not world.veh_on[0, 0] and gone == world.agent_step[0]


@pytest.mark.parametrize(("shift", "last"), [(0.0, 20.9993293), (60.0, -20.0)])
def test_the_end_pays_by_the_last_reward(shift, last):
    world = straight(end_reward=True)
    over(world)
    world.veh_pose[:, 0, 0] = shift
    to_the_end(world, STOP)
    assert world.reward_exact[0] == pytest.approx(last, abs=1e-7)
    assert world.objective[0] == pytest.approx(last + (374 * 0.9993293 if shift == 0 else 0), abs=1e-4)


def test_only_the_default_reward_pays_the_end():
    """The others warn that the option has no effect; the default does not warn."""
    with pytest.warns(UserWarning, match="end_reward = True changes nothing with reward = 'D-VAT'"):
        TrackingConfig.from_dat({"end_reward": True, "RewardType": "DVAT"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        straight(end_reward=True)
    with pytest.warns(UserWarning, match="end_reward = True changes nothing with reward = 'E2E'"):
        world = straight(end_reward=True, reward="E2E", max_sim_steps=8)
    over(world)
    to_the_end(world, STOP)
    assert world.reward_exact[0] == pytest.approx(1)


def test_e2e_and_dvat_on_a_crash():
    for reward, paid in (("E2E", -1), ("D-VAT", -10)):
        world = straight(reward=reward, reward_scale=0.5)
        over(world, height=0.39)
        world.step([STOP])
        assert reasons(world) == ["crash"] and world.reward_exact[0] == 0.5 * paid


def test_tsr_counts_all_steps_of_all_episodes():
    """Three episodes with the target in the window for 375, 0 and 75 steps: 1, 0 and 0.2, so 0.4 on average."""
    world = straight(3)
    turns = np.zeros(3, int)

    def policy(w):
        start = w.agent_step == 0
        if start.any():
            over(w)
        turns[:] = w.agent_step
        w.veh_pose[:, 0, 0] = np.where(turns < (375, 0, 75), 0.0, 60.0)
        return np.full(3, STOP)

    result = evaluate(world, policy, episodes=3, seed=0)
    assert result.lengths.tolist() == [375, 26, 101]
    assert result.kpis["TSR"].tolist() == pytest.approx([1, 0, 0.2])
    assert result.kpis["TSR"].mean() == pytest.approx(0.4)
    assert result.kpis["time"].tolist() == [1, 0, 0] and result.kpis["lost"].tolist() == [0, 1, 1]
    assert result.kpis["CR"][2] == pytest.approx(75 * 0.9993293, abs=1e-6)


def test_a_new_episode_forgets_the_last():
    world = make(8, seed=3)
    play(world, LEFT, 8)
    world.reset()
    for name in (
        "vel",
        "acc",
        "yaw_rate",
        "cmd",
        "filt",
        "wind",
        "d_ref",
        "sim_step",
        "agent_step",
        "lost_steps",
        "crash",
        "cr_sum",
        "tsr_sum",
        "CR",
        "TSR",
        "reason",
        "veh_rate",
    ):
        assert not getattr(world, name).any(), name
    assert np.array_equal(world.cmd_pos, world.pos) and not world.rel[:, 3:].any()
    assert np.array_equal(world.target_kind, world.veh_kind[:, 0]) and world.action_mask.all()


# -- states from outside ------------------------------------------------------------------------------------


def changed(saved, name, write):
    array = np.array(saved[name])
    write(array)
    return {**saved, name: array}


FAULTS = {
    "an edge too high": ("veh_edge", lambda a: a.__setitem__((0, 1), 159), "veh_edge: names an edge"),
    "no successor": ("veh_to", lambda a: a.__setitem__((0, 0), a[0, 0] ^ 1), "veh_to: must be an edge that follows"),
    "beyond the edge": ("veh_s", lambda a: a.__setitem__((0, 2), 500.0), "veh_s: lies beyond"),
    "a junction of no vehicle": ("node_owner", lambda a: a.__setitem__((0, 60), 0), "node_owner: names a vehicle"),
    "the horizon": ("pitch", lambda a: a.__setitem__(0, 0.3), "pitch = 0.3: the picture would reach the horizon"),
    "underground": ("pos", lambda a: a.__setitem__((0, 2), -1.0), "pos: the drone"),
    "two suns": ("light", lambda a: a.__setitem__((0, 4), 1.9), "light: must be a gain"),
    "a lost sim step": ("sim_step", lambda a: a.__setitem__(0, 39), "sim_step = 39: must be agent_step times"),
    "too many lost": ("lost_steps", lambda a: a.__setitem__(0, 41), "sim_step = 40: must be agent_step times"),
    "a rich sum": ("cr_sum", lambda a: a.__setitem__(0, 11.0), "tsr_sum = .*: and cr_sum"),
    "a car too many": ("n_veh", lambda a: a.__setitem__(0, 3), "veh_on: a vehicle behind n_veh"),
    "a future picture": ("past", lambda a: a.__setitem__((0, 1, 4), 11.0), "past: must have whole agent steps"),
    "not a number": ("vel", lambda a: a.__setitem__((0, 0), np.nan), "vel"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_an_impossible_state_is_refused(case):
    name, write, message = FAULTS[case]
    world = make(1, seed=2, frame_stack=2)
    play(world, STOP, 10)
    saved = world.state_dict()
    world.load_state_dict(saved)
    with pytest.raises(BadInstance, match=message):
        world.load_state_dict(changed(saved, name, write))


def test_a_row_that_is_out_of_time_has_ended():
    world = make(1, seed=2, max_sim_steps=40)
    play(world, STOP, 9)
    saved = world.state_dict()
    for name, value in (("sim_step", 40), ("agent_step", 10)):
        saved = changed(saved, name, lambda a, value=value: a.__setitem__(0, value))
    with pytest.raises(BadInstance, match="sim_step = 40: has reached max_sim_steps"):
        world.load_state_dict(saved)


@pytest.mark.parametrize("options", [{}, {"curriculum": "straight"}, {"frame_stack": 2, "scene": "village"}])
def test_no_reachable_state_is_refused(options):
    world = make(4, seed=6, max_sim_steps=400, **options)
    rng = np.random.default_rng(0)
    for _ in range(40):
        for _ in range(5):
            if world.done.any():
                world.reset(np.flatnonzero(world.done))
            world.step(rng.choice([FORWARD, LEFT, RIGHT, TURN_LEFT, STOP, 9], 4))
        world.load_state_dict(world.state_dict())
