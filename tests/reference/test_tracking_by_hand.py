"""The tracking references against published numbers and numbers worked out by hand; no world takes part.

The towns are a straight road, a crossing, a bend and a grid, drawn here; the random numbers are given.
"""

from __future__ import annotations

import math
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

from . import tracking as model
from . import tracking_sight as sight
from . import tracking_traffic as traffic

DEFAULTS = {
    "action_dim": 7, "forward": 40, "backward": -40, "left": 40, "right": -40, "cw": 2, "ccw": -2, "control_hz": 125,
    "filter_hz": 20, "filter_design": "bilinear", "wind_mean": (0, 0), "wind_sigma": 0, "wind_tau": 2.0,
    "action_mode": "discrete", "camera_px": (320, 240), "hfov": 0.785398, "max_sim_steps": 1500, "init_no_done": 100,
    "no_reward_done": 100, "max_steps": None, "reward": "default", "reward_mode": "continuous", "reward_kind": "view",
    "done_range": {"height": (2, 50), "drift": 50, "speed": 10000, "yaw_rate": 6.283, "roll": 1.22, "pitch": 1.22},
    "view_range": 0.7, "view_scale": 4, "cut_off": 0.001, "distance_range": 7, "distance_scale": 0.01,
    "constants": "as_coded", "reward_scale": 1.0, "occlusion": "ignore", "end_reward": False,
    "end_reward_list": (-20, 20), "halt_rate": 0.0,
}  # fmt: skip
FORWARD, BACKWARD, LEFT, RIGHT, TURN_LEFT, TURN_RIGHT, STOP = range(7)
ROAD = traffic.road_fields([(-2000, 0), (2000, 0)], [(0, 1)], 4.0, open_ends=(0, 1))  # lane of edge 0: y = -2
SEDAN, BUS = traffic.KINDS.index("sedan"), traffic.KINDS.index("bus")


def near(value, tolerance=1e-9):
    return pytest.approx(value, rel=0, abs=tolerance)


def options(**changes):
    assert changes.keys() <= DEFAULTS.keys()
    return SimpleNamespace(**(DEFAULTS | changes))


class Given:
    """Random numbers by hand: the same for every vehicle."""

    def __init__(self, turn=0.0, gap=math.inf, length=0.0, gust=0.0):
        self.numbers = turn, gap, length, gust

    def turn(self, v, n):
        return self.numbers[0]

    def halt_gap(self, k):
        return self.numbers[1]

    def halt_length(self, k):
        return self.numbers[2]

    def gust(self, sim_step, axis):
        return self.numbers[3]


class Random(Given):
    def __init__(self, seed):
        self.seed = seed

    def turn(self, v, n):
        return float(np.random.default_rng([self.seed, v, n]).random())


def row(town, vehicles, pos=(0, 0, 20), yaw=0.0, pitch=1.0, draws=None):
    """A start state; a vehicle is (edge, metres on its straight part, speed, wanted speed, kind)."""
    count = len(vehicles)
    edge, s, v, v0, kind = ([vehicle[i] for vehicle in vehicles] for i in range(5))
    state = {
        "pitch": pitch,
        "start": np.array([pos[2], 0.0, 0.0, 0.0]),
        "n_veh": count,
        "veh_kind": np.array(kind),
        "veh_v0": np.array(v0, float),
        "veh_on": np.ones(count, bool),
        "pos": np.array(pos, float),
        "yaw": yaw,
        "vel": np.zeros(3),
        "acc": np.zeros(3),
        "yaw_rate": 0.0,
        "cmd": np.zeros(4),
        "cmd_pos": np.array(pos, float),
        "filt": np.zeros((4, 4)),
        "wind": np.zeros(2),
        "veh_edge": np.array(edge),
        "veh_to": np.zeros(count, int),
        "veh_turning": np.zeros(count, bool),
        "veh_s": np.array(s, float),
        "veh_v": np.array(v, float),
        "veh_curve": np.zeros(count),
        "veh_pose": np.zeros((count, 3)),
        "veh_rate": 0.0,
        "veh_draws": np.zeros(count, int),
        "node_owner": np.full(town["n_node"], -1),
        "halts": 0,
        "next_halt": math.inf,
        "halt_left": 0.0,
        "rel": np.zeros(9),
        "d_ref": 0.0,
        "sim_step": 0,
        "agent_step": 0,
        "lost": 0,
        "crash": False,
        "cr_sum": 0.0,
        "tsr_sum": 0.0,
    }
    for k in range(count):
        traffic.enter(town, state, draws or Given(), k, edge[k])
        state["veh_pose"][k] = traffic.pose(town, state, k)
    state["rel"][:3] = sight.target_in_drone_frame(state)
    return state


def standing_at(x, y, **drone):
    """A drone and a target that stands at (x, y) on a road without end."""
    town = traffic.road_fields([(-1000, y + 2), (1000, y + 2)], [(0, 1)], 4.0, open_ends=(0, 1))
    return town, row(town, [(0, x + 1000, 0.0, 0.0, SEDAN)], **drone)


def boxes(town, *given):
    """The town with static boxes (centre, half sizes, yaw)."""
    pos, half, yaw = zip(*given, strict=True)
    return town | {
        "n_box": len(given),
        "box_pos": np.array(pos, float),
        "box_half": np.array(half, float),
        "box_yaw": np.array(yaw, float),
    }


def play(town, state, config, actions, draws=None):
    """The rows of one agent step after another, until the end of the episode."""
    rows = []
    for action in actions:
        state = model.step(town, state, config, draws or Given(), action)
        rows.append(state)
        if state["reason"]:
            break
    return rows


# Flight


def test_the_filter_is_the_butterworth_of_scipy():
    """At 20 Hz of 500 the coefficients are those of scipy.signal.butter(2, 20, fs=500)."""
    assert model.filter_coefficients(20) == near((0.0133592000, -1.6474599811, 0.7008967812), 1e-10)


def test_the_filter_as_coded_has_a_wider_band():
    """Without the tangent the three numbers are those that the original flies with."""
    assert model.filter_coefficients(20, "as_coded") == near((0.0445267459, -1.3207910690, 0.4988980525), 1e-10)


@pytest.mark.parametrize(("design", "way"), [("bilinear", 7.552214), ("as_coded", 7.774921)])
def test_a_fifth_of_a_second_forward(design, way):
    """25 agent steps of 40 m/s lag behind 8 m by the filter's delay, and 25 stops make up for it."""
    town, state = standing_at(12, 0)
    rows = play(town, state, options(filter_design=design, no_reward_done=1000), [FORWARD] * 25 + [STOP] * 25)
    assert rows[24]["pos"] == near((way, 0, 20), 1e-6)
    assert rows[49]["pos"] == near((8, 0, 20), 1e-6)
    assert rows[49]["cmd_pos"] == near((8, 0, 20), 1e-6)


def test_action_4_turns_the_nose_to_the_left():
    """2 rad/s for a second, then stops: yaw +2."""
    town, state = standing_at(12, 0)
    rows = play(town, state, options(no_reward_done=10000), [TURN_LEFT] * 125 + [STOP] * 25)
    assert rows[-1]["yaw"] == near(2, 1e-6)


def test_every_action_has_its_direction():
    """At yaw 90 degrees forward is +y and left is -x; action 5 turns right; a seventh of six actions is a stop."""
    town, state = standing_at(0, 0, yaw=math.pi / 2)
    config = options(filter_hz=0, control_hz=500)
    ends = {a: model.step(town, state, config, Given(), a) for a in range(7)}
    moved = {a: ends[a]["pos"] - state["pos"] for a in range(7)}
    assert moved[FORWARD] == near((0, 0.08, 0)) and moved[BACKWARD] == near((0, -0.08, 0))
    assert moved[LEFT] == near((-0.08, 0, 0)) and moved[RIGHT] == near((0.08, 0, 0))
    assert ends[TURN_RIGHT]["yaw"] == near(math.pi / 2 - 0.004) and moved[STOP] == near((0, 0, 0))
    assert ends[LEFT]["vel"] == near((-40, 0, 0)) and ends[LEFT]["acc"] == near((-20000, 0, 0), 1e-6)
    six = options(filter_hz=0, action_dim=6)
    assert model.step(town, state, six, Given(), 6)["pos"] == near(state["pos"])


def test_velocity_actions_are_shares_of_the_limits():
    """(1, -0.5, 1, 0.5) flies 40 forward, 20 to the right, 5 up and turns left at 1 rad/s; beyond 1 is a stop."""
    config = options(action_mode="velocity")
    assert model.command(config, (1, -0.5, 1, 0.5)) == near((40, -20, 5, 1))
    assert model.command(config, (1.1, 0, 0, 0)) == near((0, 0, 0, 0))


def test_a_gust_drifts_the_drone_but_not_its_command():
    """Mean 3 and sigma 1 with a draw of 1: the first gust is 3 dt/tau + sqrt(2 dt/tau) = 0.003 + 0.0447213595."""
    town, state = standing_at(12, 0)
    config = options(wind_mean=(3, 0), wind_sigma=1.0, control_hz=500)
    after = model.step(town, state, config, Given(gust=1.0), STOP)
    assert after["wind"] == near((0.003 + 0.044721359550, 0.044721359550))
    assert after["pos"] == near((0.047721359550 / 500, 0.044721359550 / 500, 20))
    assert after["cmd_pos"] == near((0, 0, 20))


# View


def test_the_window_on_the_ground():
    """Camera 20 m up, pitch 1, 0.7 of the picture: the far side is longer and further from the centre."""
    centre, corners = sight.window((0, 0, 20), 0.0, 1.0, options(), 0.7)
    assert centre == near((12.841852, 0), 1e-6)
    assert corners[:2] == near(np.array([(19.981066, 8.009921), (19.981066, -8.009921)]), 1e-6)
    assert corners[2:] == near(np.array([(7.452072, -6.047125), (7.452072, 6.047125)]), 1e-6)


@pytest.mark.parametrize(
    ("pos", "pitch", "yaw", "target", "scale", "x", "r_c"),
    [
        ((0, 0, 20), 1.0, 0.0, (14, 1), 0.7, 0.162223430, 0.982046127),
        ((3, -2, 22), 1.37, 0.5, (8, 2), 0.7, 0.350607009, 0.798849768),
        ((10, 5, 13), 0.6, -2.0, (4, -14), 0.7, 0.339501398, 0.818611019),
        ((0, 0, 22), 1.37, 0.0, (8, 0), 1.0, 0.463554758, 0.549384214),
    ],
)
def test_the_gauge_of_published_cases(pos, pitch, yaw, target, scale, x, r_c):
    """Four cameras and targets with their gauge and continuous reward."""
    found = sight.gauge(target, *sight.window(pos, yaw, pitch, options(), scale))
    assert found == near(x)
    assert sight.view(found, 4) == near((r_c, 1.0))


def test_the_best_reward_is_tanh_4():
    """A target at the centre of the window earns 0.9993293, 375 times 374.748487."""
    centre, corners = sight.window((0, 0, 20), 0.3, 1.0, options(), 0.7)
    best = sight.view(sight.gauge(centre, centre, corners), 4)[0]
    assert best == near(0.999329300) and 375 * best == near(374.748487, 1e-6)


def test_outside_the_window_nothing_is_paid():
    """Twice as far out as the edge the gauge is 2."""
    centre, corners = sight.window((0, 0, 20), 0.0, 1.0, options(), 0.7)
    assert sight.gauge(centre + 2 * (corners[0] - centre), centre, corners) == near(2)
    assert sight.view(2.0, 4) == (0, 0) and sight.view(1.0, 4) == (0, 0)


def test_the_ray_agrees_with_the_four_half_planes():
    """4,000 random cameras and targets: the gauge is the largest n(t-c)/n(p-c) over the sides of the window."""
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(4_000):
        scale = rng.uniform(0.2, 1)
        centre, corners = sight.window(
            rng.uniform((-99, -99, 2), (99, 99, 50)),
            rng.uniform(-math.pi, math.pi),
            rng.uniform(0.5, 1.5),
            options(),
            scale,
        )
        target = centre + rng.normal(size=2) * rng.choice([0.1, 5, 50])
        sides = np.roll(corners, -1, axis=0) - corners
        normals = np.column_stack([sides[:, 1], -sides[:, 0]])
        shares = normals @ (target - centre) / np.sum(normals * (corners - centre), axis=1)
        found = sight.gauge(target, centre, corners)
        worst = max(worst, abs(found - shares.max()) / max(1.0, found))
    assert worst < 1e-9


def test_a_box_hides_the_target():
    """A wall between drone and target takes the sight; with occlusion "zero" also the reward, else only the flag."""
    town, state = standing_at(12.841852, 0)
    walled = boxes(town, ((8, 0, 4), (0.5, 3, 4), 0.0))  # the line is 7.54 m up at x = 8
    aside = boxes(town, ((8, 0, 3.5), (0.5, 3, 3.5), 0.0))  # ... and 6.76 m up behind it, at x = 8.5
    turned = boxes(town, ((8, 2, 4), (0.5, 3, 4), math.pi / 2))
    assert model.reset_views(town, state, options())["visible"]
    assert not model.reset_views(walled, state, options())["visible"]
    assert not model.reset_views(aside, state, options())["visible"]
    assert model.reset_views(turned, state, options())["visible"]
    assert model.reset_views(walled, state, options())["r_d"] == 1
    hidden = model.reset_views(walled, state, options(occlusion="zero"))
    assert (hidden["r_c"], hidden["r_d"]) == (0, 0)


def test_visible_needs_the_full_picture_only():
    """Straight ahead the picture ends at 20/tan(1 + atan(0.3106601)) and 20/tan(1 - atan(0.3106601)) metres."""
    half = math.atan(math.tan(0.785398 / 2) * 0.75)
    low, high = 20 / math.tan(1 + half), 20 / math.tan(1 - half)
    seen = [model.reset_views(*standing_at(x, 0), options())["visible"] for x in (low - 0.01, low + 0.01)]
    assert seen == [False, True]
    seen = [model.reset_views(*standing_at(x, 0), options())["visible"] for x in (high - 0.01, high + 0.01)]
    assert seen == [True, False]


def test_the_distance_reward():
    """At 2 m of 7 it is 1 - tanh 0.08 = 0.920170; at 5 m tanh 1.25 takes 0.848284; at 7 nothing is left."""
    assert sight.distance(2, 7, 0.01) == near((0.920170231, 1.0))
    assert sight.distance(5, 7, 0.01) == near((0.151716360, 1.0))
    assert sight.distance(7, 7, 0.01) == (0, 0)


# E2E and D-VAT


def test_e2e_of_published_cases():
    """As coded it is cut at -1; as published it is not."""
    assert sight.e2e(12, 1, 0.1, 11, 0.785398, "as_coded") == near(0.588217198)
    assert sight.e2e(20, -8, 1.2, 11, 0.785398, "as_coded") == -1
    assert sight.e2e(20, -8, 1.2, 11, 0.785398, "as_published") == near(-3.393730496)


def test_dvat_of_published_cases():
    """As coded it needs the distance within 1 m and the target within the picture."""
    assert sight.dvat(11.5, 1, 11, 0.785398) == near(0.730340302)
    assert sight.dvat(11, -3, 11, 0.785398) == near(0.685408557)
    assert sight.dvat(12.2, 0, 11, 0.785398) == 0
    assert sight.dvat(0, 2, 0.5, 0.785398) == 0  # the angle is a right one
    assert sight.dvat(0, 0, 0.5, 0.785398) == near(0.5 ** (1 / 3))


def test_dvat_as_published():
    """Three axes and the two penalties."""
    assert sight.dvat_published((24.3, 1.5, -0.8), 24, 0.785398, 3, 1) == near(0.314653309)


def test_the_reference_distance_is_set_by_the_first_agent_step():
    """E2E and D-VAT as coded aim at the first distance ahead; published E2E at the centre of the picture."""
    town, state = standing_at(14, 1)
    first = {reward: play(town, state, options(reward=reward), [FORWARD, FORWARD]) for reward in ("E2E", "DVAT")}
    for rows in first.values():
        assert rows[0]["d_ref"] == near(14 - rows[0]["pos"][0]) == near(rows[1]["d_ref"])
    assert first["E2E"][0]["reward_exact"] == near(1 - 1 / 9)  # y = 1
    published = play(town, state, options(reward="E2E", constants="as_published"), [STOP])[0]
    assert published["d_ref"] == near(12.841852, 1e-6)
    camera = play(town, state, options(reward="D-VAT", constants="as_published"), [STOP])[0]
    assert camera["d_ref"] == near(24.393652, 1e-6)  # the depth of the ground point (14, 1, 0)


def test_published_dvat_ends_out_of_range():
    """Beyond 0.6 d or 6 d the episode ends with -10, but not before sim step 100."""
    town, state = standing_at(12, 0)
    state["d_ref"] = 100.0
    config = options(reward="D-VAT", constants="as_published")
    early = play(town, state | {"agent_step": 5, "sim_step": 20}, config, [STOP])[0]
    late = play(town, state | {"agent_step": 25, "sim_step": 100}, config, [STOP])[0]
    assert (early["reason"], late["reason"], late["terminated"]) == (0, model.RANGE, True)
    assert late["reward_exact"] == -10


# RewardParams


def test_reward_params_of_a_start():
    """Camera of the first case: focal length 386.2743, target 14 m ahead, 1 m left and 20 m below the drone."""
    town, state = standing_at(14, 1)
    p = model.reset_views(town, state, options())["reward_params"]
    c, s = math.cos(1), math.sin(1)
    assert p.shape == (60,)
    assert p[:7] == near((320, 240, 0.785398, 386.2743, 1, 20, 0), 1e-4)
    assert p[7:23] == near((c, 0, s, 0, 0, 1, 0, 0, -s, 0, c, 20, 0, 0, 0, 1))
    assert p[23:39] == near((1, 0, 0, 14, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1))
    assert p[39:48] == near((12.841852, 0, 0, 14, 1, 0, 0, 0, 20), 1e-6)
    assert p[48:] == near((0, 14, 1, -20, 0, 0, 0, 0, 0, 0, 0, 0))
    assert sight.target_in_camera_frame(p)[0] == near(24.393652, 1e-6)


def rebuilt(poses):
    """RewardParams 39..57 from three (camera, target) poses, the last one first."""
    camera, target = poses[0]
    forward, place = camera[:3, 0], camera[:3, 3]
    heading = math.atan2(target[1, 0], target[0, 0]) - math.atan2(camera[1, 0], camera[0, 0])
    rel = []
    for eye, goal in poses:
        left = eye[:3, 1]
        x, y, z = goal[:3, 3] - eye[:3, 3]
        rel.append(np.array([x * left[1] - y * left[0], x * left[0] + y * left[1], z]))
    speed, before = (rel[0] - rel[1]) / 0.002, (rel[1] - rel[2]) / 0.002
    return [
        *(place - forward * place[2] / forward[2]),
        *target[:3, 3],
        *place,
        math.atan2(math.sin(heading), math.cos(heading)),
        *rel[0],
        *speed,
        *(speed - before) / 0.002,
    ]


def test_reward_params_follow_from_the_two_poses():
    """39..57 are rebuilt from 7..38 of the last three sim steps; quotients carry the rounding of 1/dt and 1/dt^2."""
    town = corner_town()
    state = row(town, [(0, 80.0, 8.0, 12.0, SEDAN)], pos=(70, -20, 18), yaw=1.2, pitch=0.9)
    config = options(control_hz=500, init_no_done=10000)
    tolerance = np.array([1e-9] * 16 + [1e-7] * 3)
    poses, motions = [], set()
    for n in range(1200):
        state = model.step(town, state, config, Given(), (FORWARD, TURN_RIGHT, LEFT, TURN_LEFT)[n // 50 % 4])
        p = state["reward_params"]
        poses = [(p[7:23].reshape(4, 4), p[23:39].reshape(4, 4)), *poses[:2]]
        if n >= 2:
            assert (np.abs(p[39:58] - rebuilt(poses)) <= tolerance).all()
        motions.add(int(p[59]))
    assert motions == {1, 2}  # straight on, then the left bend


# Ends and metrics


def test_a_lost_target_ends_at_agent_step_26():
    """100 sim steps without reward are allowed, so 25 agent steps of 4 pass and the 26th ends."""
    town, state = standing_at(40, 0)
    rows = play(town, state, options(), [STOP] * 375)
    assert len(rows) == 26 and [r["lost"] for r in rows[-2:]] == [100, 104]
    assert (rows[-1]["reason"], rows[-1]["terminated"], rows[-1]["truncated"]) == (model.LOST, True, False)
    assert rows[-1]["TSR"] == 0 and rows[-1]["visible"] is False


def test_a_perfect_tracker_ends_at_375():
    """A target that stays in the middle: truncated by the time, CR 374.748487 and TSR 1."""
    town, state = standing_at(20 / math.tan(1), 0)
    rows = play(town, state, options(), [STOP] * 400)
    assert len(rows) == 375 and rows[-1]["sim_step"] == 1500
    assert (rows[-1]["reason"], rows[-1]["terminated"], rows[-1]["truncated"]) == (model.TIME, False, True)
    assert rows[-1]["CR"] == near(374.748487, 1e-6) and rows[-1]["TSR"] == near(1)


def test_the_servo_keeps_a_moving_target():
    """A drone that flies towards the aim point holds a car at 10 m/s for the whole episode."""
    state = row(ROAD, [(0, 2000.0, 10.0, 10.0, SEDAN)], pos=(-20 / math.tan(1), -2, 20))
    rows = [state]
    while not rows[-1].get("reason"):
        error = rows[-1]["rel"][0] + 0.02 * rows[-1]["rel"][3] - 20 / math.tan(1)
        action = FORWARD if error > 0.16 else BACKWARD if error < -0.16 else STOP
        rows.append(model.step(ROAD, rows[-1], options(), Given(), action))
    assert len(rows) == 376 and rows[-1]["truncated"] and rows[-1]["TSR"] == 1 and rows[-1]["CR"] > 365


def test_contact_ends_before_sim_step_100():
    """A wall 1.4 m ahead is 1.0 m away; 40 m/s reach it long before step 100, and the sub-steps stop there."""
    town, state = standing_at(12, 0)
    walled = boxes(town, ((2.4, 0, 20), (1, 5, 5), 0.0))
    rows = play(walled, state, options(), [FORWARD] * 25)
    last = rows[-1]
    assert (last["reason"], last["terminated"], last["crash"]) == (model.CRASH, True, True)
    assert last["sim_step"] < 100 and 1.0 < last["pos"][0] < 1.08
    assert last["reward_exact"] == 0 and last["reward_params"][58] == 1
    assert play(walled, state, options(reward="E2E"), [FORWARD] * 25)[-1]["reward_exact"] == -1
    assert play(walled, state, options(reward="D-VAT", reward_scale=2), [FORWARD] * 25)[-1]["reward_exact"] == -20


def test_the_ground_is_solid():
    """Below 0.4 m the drone has crashed, also at sim step 1."""
    town, state = standing_at(0.3, 0, pos=(0, 0, 0.39))
    assert play(town, state, options(), [STOP])[0]["reason"] == model.CRASH


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pos": np.array([0, 0, 1.9])}, model.HEIGHT),
        ({"pos": np.array([0, 0, 50.1])}, model.HEIGHT),
        ({"cmd_pos": np.array([30, 40.1, 20])}, model.DRIFT),
        ({"wind": np.array([10001.0, 0])}, model.SPEED),
        ({"filt": np.array([[0] * 4] * 3 + [[6.4] * 4])}, model.YAW_RATE),
        ({"veh_on": np.array([False])}, model.TARGET_GONE),
    ],
)
def test_other_ends_wait_for_sim_step_100(change, reason):
    """Each of them holds at sim step 50 without effect and ends the episode at sim step 100."""
    town, state = standing_at(12, 0)
    config = options(wind_tau=1e9, done_range=DEFAULTS["done_range"] | {"drift": 50 if reason != model.SPEED else 1e9})
    early = play(town, state | change | {"sim_step": 50}, config, [STOP])[0]
    late = play(town, state | change | {"sim_step": 99}, config, [STOP])[0]
    assert (early["reason"], early["sim_step"]) == (0, 54)
    assert late["reason"] == reason
    assert late["truncated"] == (reason == model.TARGET_GONE) != late["terminated"]


def test_the_lowest_code_wins():
    """Lost and out of time at once is lost: terminated, not truncated."""
    town, state = standing_at(40, 0)
    last = play(town, state | {"lost": 97, "sim_step": 1496}, options(), [STOP])[0]
    assert (last["reason"], last["terminated"], last["truncated"]) == (model.LOST, True, False)


def test_max_steps_truncates():
    """The contract's limit of three agent steps ends with the reason time."""
    town, state = standing_at(12, 0)
    rows = play(town, state, options(max_steps=3), [STOP] * 9)
    assert len(rows) == 3 and rows[-1]["reason"] == model.TIME and rows[-1]["truncated"]


@pytest.mark.parametrize(("x", "last"), [(40, -20.0), (20 / math.tan(1), 20.999329300)])
def test_the_end_reward_follows_the_last_reward(x, last):
    """-20 where the target was lost, +20 on top where it was held; never before the end."""
    town, state = standing_at(x, 0)
    rows = play(town, state, options(end_reward=True, max_sim_steps=200), [STOP] * 375)
    assert rows[-1]["reward_exact"] == near(last) and rows[-2]["reward_exact"] == near(last % 20)
    assert play(town, state, options(end_reward=True, max_steps=1, reward="E2E"), [STOP])[0]["reward_exact"] <= 1


def test_the_success_rate_counts_steps_after_the_end():
    """Episodes with 375, 0 and 75 good steps: (1 + 0 + 0.2) / 3 = 0.4."""
    held = play(*standing_at(20 / math.tan(1), 0), options(), [STOP] * 375)
    never = play(*standing_at(40, 0), options(), [STOP] * 375)
    town, state = standing_at(20 / math.tan(1), 0)
    seen = play(town, state, options(), [STOP] * 75)
    away = seen[-1] | {"veh_s": seen[-1]["veh_s"] + 100}
    lost = play(town, away, options(), [STOP] * 300)
    assert (len(seen), len(lost), lost[-1]["reason"]) == (75, 26, model.LOST)
    assert np.mean([rows[-1]["TSR"] for rows in (held, never, lost)]) == near(0.4)


def test_a_step_leaves_its_inputs_alone():
    """The given arrays are the same after it."""
    town, state = standing_at(12, 0)
    before = model.copied(state)
    model.step(town, state, options(), Given(), FORWARD)
    assert all(np.array_equal(state[name], before[name]) for name in state)


# Traffic


@pytest.mark.parametrize(
    ("v", "v0", "gap", "dv", "found"),
    [
        (10, 15, 20, 2, 0.268689625),
        (10, 15, math.inf, 0, 2.407407407),
        (0, 12, 30, 0, 2.986666667),
        (12, 14, 15, -1.5, -1.159233285),
        (10, 15, 3, 5, -9.0),
        (10, 0, 30, 0, -4.0),
    ],
)
def test_idm_of_published_cases(v, v0, gap, dv, found):
    """Four accelerations, the hardest braking, and the braking of a halt."""
    assert traffic.idm(v, v0, gap, dv) == near(found)


def test_two_cars_find_their_gap():
    """Behind a car at 10 m/s one that wants 15 settles at 14 / sqrt(1 - (10/15)^4) = 15.628376558 m in 30 s."""
    state = row(ROAD, [(0, 100.0, 10.0, 15.0, SEDAN), (0, 140.0, 10.0, 10.0, SEDAN)])
    for _ in range(15_000):
        traffic.drive(ROAD, state, options(), Given())
    assert state["veh_v"] == near((10, 10), 1e-3)
    assert state["veh_s"][1] - state["veh_s"][0] - 4.6 == near(15.628376558, 0.001)


def corner_town():
    """Four roads, among them a bend of 0.4 rad to the left at the end of edge 0, 100 m along the x axis."""
    c, s = math.cos(0.4), math.sin(0.4)
    return traffic.road_fields(
        [(0, 0), (100, 0), (100 + 80 * c, 80 * s), (0, 200)], [(0, 1), (1, 2), (2, 3), (3, 0)], 4.0
    )


def crossing():
    """Arms of 100 m to the west, east, south and north; edges 0, 2, 4, 6 lead in, 1, 3, 5, 7 out, where cars vanish."""
    nodes = [(0, 0), (-100, 0), (100, 0), (0, -100), (0, 100)]
    return traffic.road_fields(nodes, [(1, 0), (2, 0), (3, 0), (4, 0)], 4.0, open_ends=(1, 2, 3, 4))


def grid(nodes=3, spacing=55.0, half=5.0):
    """A square of square blocks."""
    place = {(i, j): n for n, (i, j) in enumerate(np.ndindex(nodes, nodes))}
    roads = [(n, place[to]) for (i, j), n in place.items() for to in ((i + 1, j), (i, j + 1)) if to in place]
    return traffic.road_fields([(i * spacing, j * spacing) for i, j in place], roads, half)


EAST, SOUTH, NORTH = 0.0, 0.5, 0.75  # uniform numbers that send a car from the west there


def test_zones_of_nodes():
    """A bend has 2 m, a right angle half + 2, a narrow angle (half + 1) / tan(t/2), a short road 0.4 of its length."""
    bend = corner_town()
    assert list(bend["guarded"]) == [True, False, True, True]
    assert bend["edge_cut"][0] == near((6, 2)) and bend["edge_cut"][1] == near((2, 6))
    assert crossing()["edge_cut"][0] == near((0, 6))
    narrow = traffic.road_fields([(0, 0), (100, 0), (100, 50), (-18, -24)], [(0, 1), (0, 2), (0, 3)], 4.0)
    assert narrow["edge_cut"][0][0] == near(21.180339887)  # tan(atan(0.5) / 2) = sqrt 5 - 2
    assert narrow["edge_cut"][4][0] == near(12)


def test_a_bend_is_driven_along_its_curve():
    """The curve begins 2 m before the node, ends 2 m after it, and its tangents are those of the two lanes."""
    town = corner_town()
    curve, c, s = traffic.curve_over(town, 0, 2, 2.0), math.cos(0.4), math.sin(0.4)
    assert curve.p0 == near((98, -2)) and curve.p2 == near((100 + 2 * c + 2 * s, 2 * s - 2 * c))
    assert curve.p1 == near((100 + 2 * math.tan(0.2), -2))  # where lanes 2 m right of the centre lines meet
    assert math.atan2(*curve.slope(0)[::-1]) == near(0) and math.atan2(*curve.slope(1)[::-1]) == near(0.4)
    assert traffic.turning_speed(town, 0, 2) == near(math.sqrt(4 * 100 / 0.4))


def test_the_length_of_a_curve():
    """The parabola from (0,0) over (1,0) to (1,1): sqrt 2 (asinh 1 + sqrt 2) / 2 = 1.623225240; cars are 0.1 % off."""
    curve = traffic.Curve(*(np.array(p, float) for p in ((0, 0), (1, 0), (1, 1))))
    assert curve.true_length() == near(1.623225240) and curve.length() == near(1.623225240, 0.0016)
    assert curve.at(0.5) == near((0.75, 0.25)) and curve.pace(0.5) == near(math.sqrt(2))


def test_parallel_lanes_meet_halfway():
    """Straight over a crossing the middle point of the curve is the middle between its ends."""
    curve = traffic.curve_over(crossing(), 0, 3, 2.0)
    assert curve.p0 == near((-6, -2)) and curve.p1 == near((0, -2)) and curve.p2 == near((6, -2))
    assert curve.length() == near(12)


def test_straight_on_is_drawn_half_of_the_time():
    """Out of the west: east 0.5, south and north 0.25 each; nobody turns back; without a straight way equal shares."""
    town = crossing()
    assert traffic.successors(town, 0) == [3, 5, 7] and traffic.way_weights(town, 0) == [0.5, 0.25, 0.25]
    assert [traffic.choose_way(town, 0, u) for u in (0, 0.49, EAST, SOUTH, 0.74, NORTH, 0.999)] == [3, 3, 3, 5, 5, 7, 7]
    fork = traffic.road_fields([(0, 0), (-9, 0), (0, 9), (0, -9)], [(1, 0), (2, 0), (3, 0)], 1.0)
    assert traffic.way_weights(fork, 0) == [0.5, 0.5]
    assert traffic.way_weights(corner_town(), 0) == [1.0]
    back = fork | {"edge_next": np.array([[1, 3, 5, 0, 0, 0]] * 6), "edge_ways": np.array([3] * 6)}
    assert traffic.way_weights(back, 0) == [0.0, 0.5, 0.5]
    assert traffic.way_weights(back | {"edge_ways": np.array([1] * 6)}, 0) == [1.0]


def test_a_turn_slows_a_car_down():
    """R = 6 / tan 45 degrees = 6 m gives sqrt 24; 10 m before its front sqrt(24 + 80); straight on nothing."""
    town = crossing()
    for turn, speed in ((NORTH, math.sqrt(104)), (EAST, 15.0)):
        state = row(town, [(0, 81.7, 9.0, 15.0, SEDAN)], draws=Given(turn))
        assert traffic.wanted_speed(town, state, traffic.path_ahead(town, state, 0), 0) == near(speed)
    state |= {"veh_turning": np.array([True]), "veh_to": np.array([7]), "veh_s": np.array([0.5])}
    assert traffic.wanted_speed(town, state, traffic.path_ahead(town, state, 0), 0) == near(math.sqrt(24))


def drive(town, state, steps, draws, **changes):
    """The states after each of some sim steps."""
    rows = []
    for _ in range(steps):
        state = model.copied(state)
        traffic.drive(town, state, options(**changes), draws)
        state["sim_step"] += 1
        rows.append(state)
    return rows


def test_a_junction_is_held_from_the_braking_distance_until_the_rear_has_left():
    """At 8 m/s it is asked for 8 + 5 m before the line and free when the car is half its length past the zone."""
    town = crossing()
    far, close = (row(town, [(0, 94 - 2.3 - d, 8.0, 8.0, SEDAN)]) for d in (13.01, 12.99))
    assert drive(town, far, 1, Given())[0]["node_owner"][0] == -1
    rows = drive(town, close, 2000, Given())
    assert rows[0]["node_owner"][0] == 0
    held = [r for r in rows if r["node_owner"][0] == 0]
    after = rows[len(held)]
    assert held == rows[: len(held)] and held[-1]["veh_s"][0] < 2.3 <= after["veh_s"][0] < 2.32
    assert after["veh_edge"][0] == 3 and after["veh_v"][0] == near(8, 0.01)
    assert after["veh_pose"][0] == near((6 + after["veh_s"][0], -2, 0))


def test_the_lower_index_goes_first():
    """Two cars as far from the crossing: the second waits, its front never over the line, and then follows."""
    town = crossing()
    state = row(town, [(4, 80.0, 8.0, 8.0, SEDAN), (0, 80.0, 8.0, 8.0, SEDAN)])
    rows = drive(town, state, 5000, Given())
    owners = [int(r["node_owner"][0]) for r in rows]
    assert [o for n, o in enumerate(owners) if n == 0 or o != owners[n - 1]] == [0, -1, 1, -1]
    assert owners.count(-1) == 1 + owners[::-1].index(1)  # free for one sim step only, then after the second car
    assert max(r["veh_s"][1] for r, o in zip(rows, owners) if o == 0) <= 94 - 2.3
    assert list(rows[-1]["veh_edge"]) == [1, 3]  # from the south to the west, from the west to the east


def test_a_full_exit_keeps_the_junction_closed():
    """A car that stands on the exit leaves 6.5 m where 4.6 + 2 are needed; 10 cm more and the junction is given."""
    town = crossing()
    for place, owner in ((6.5 + 2.3, -1), (6.61 + 2.3, 0)):
        state = row(town, [(0, 88.0, 0.0, 10.0, SEDAN), (3, place, 0.0, 0.0, SEDAN)])
        assert drive(town, state, 1, Given())[0]["node_owner"][0] == owner


def test_a_closed_junction_stops_a_car_before_its_line():
    """The obstacle is 0.5 m before the line, so a car rests with its front 2 + 0.5 m before that."""
    town = crossing()
    state = row(town, [(0, 70.0, 6.0, 10.0, SEDAN), (3, 5.0, 0.0, 0.0, SEDAN)])
    rows = drive(town, state, 5000, Given())
    assert 94 - 2.3 - rows[-1]["veh_s"][0] == near(2.5, 0.1) and rows[-1]["veh_v"][0] < 0.1
    assert all(r["node_owner"][0] == -1 for r in rows)


def test_a_leader_is_seen_through_a_bend():
    """98 - 6 m of the first road, the curve and 10 m of the second lie between a car and the one round the bend."""
    town = corner_town()
    state = row(town, [(0, 60.0, 9.0, 9.0, SEDAN), (2, 10.0, 9.0, 9.0, BUS)])
    path = traffic.path_ahead(town, state, 0)
    ((found, j),) = traffic.leaders(state, path, 0)
    assert j == 1 and found == near(92 - 60 + traffic.curve_over(town, 0, 2, 2.0).length() + 10)
    gap = found - 2.3 - 6
    assert traffic.acceleration(town, state, path, 0) == near(traffic.idm(9, 9, gap, 0))


def test_a_car_that_turns_off_is_still_a_leader():
    """Its rear is on the lane while it turns, whatever its direction."""
    town = crossing()
    state = row(town, [(0, 80.0, 8.0, 8.0, SEDAN), (0, 93.0, 4.0, 8.0, BUS)])
    state["veh_to"][1], state["veh_turning"][1], state["veh_s"][1] = 7, True, 0.25
    state["veh_curve"][1] = traffic.curve_over(town, 0, 7, 2.0).length()
    ((found, _),) = traffic.leaders(state, traffic.path_ahead(town, state, 0), 0)
    assert found == near(14 + 0.25 * state["veh_curve"][1])


def test_a_halt_brakes_with_4():
    """After 1 s the target goes 4 m/s slower, 1.25 s after the start of the halt it speeds up again."""
    state = row(ROAD, [(0, 2000.0, 10.0, 10.0, SEDAN)]) | {"next_halt": 0.1}
    rows = drive(ROAD, state, 800, Given(gap=100.0, length=0.5), halt_rate=0.1)
    assert [rows[n]["veh_v"][0] for n in (49, 50, 549)] == near((10, 10 - 4 / 500, 6))
    speeds = [r["veh_v"][0] for r in rows]
    assert speeds.index(min(speeds)) == 50 + 625 - 1 and min(speeds) == near(5)
    assert (rows[-1]["halts"], rows[-1]["halt_left"]) == (1, 0) and rows[-1]["next_halt"] == near(101.35)


def test_a_car_vanishes_at_the_end_of_a_straight_road():
    """1 m before the end at 10 m/s: gone after 0.1 s, and the episode is truncated once ends count."""
    state = row(ROAD, [(0, 3999.0, 10.0, 10.0, SEDAN)], pos=(1999 - 20 / math.tan(1), -2, 20))
    rows = play(ROAD, state, options(), [STOP] * 99)
    assert [bool(r["veh_on"][0]) for r in rows[11:14]] == [True, False, False]
    assert (len(rows), rows[-1]["reason"], rows[-1]["truncated"]) == (25, model.TARGET_GONE, True)


def test_a_pedestrian_walks_beside_the_road():
    """5 m right of the centre line, past closed junctions and through the sight of a car that does not brake."""
    town = crossing()
    walker, car = (0, 90.0, 1.5, 1.5, traffic.PEDESTRIAN), (0, 60.0, 9.0, 9.0, SEDAN)
    state = row(town, [walker, car])
    assert state["veh_pose"][0] == near((-10, -5, 0))
    assert not list(traffic.leaders(state, traffic.path_ahead(town, state, 1), 1))
    state["node_owner"][0] = 1
    last = drive(town, state, 1500, Given())[-1]
    assert last["veh_turning"][0] and last["veh_pose"][0] == near((-5.5, -5, 0))


def corners_of(state, k):
    """The rectangle of a car."""
    x, y, heading = state["veh_pose"][k]
    half = np.array([traffic.LENGTHS[state["veh_kind"][k]], traffic.WIDTHS[state["veh_kind"][k]]]) / 2
    turn = np.array([[math.cos(heading), -math.sin(heading)], [math.sin(heading), math.cos(heading)]])
    return (np.array([(1, 1), (1, -1), (-1, -1), (-1, 1)]) * half) @ turn.T + (x, y), turn.T


def overlap(state, k, j):
    """No axis of either rectangle separates the two."""
    (a, axes), (b, others) = corners_of(state, k), corners_of(state, j)
    lines = [*axes, *others]
    return all(max(a @ n) >= min(b @ n) and max(b @ n) >= min(a @ n) for n in lines)


def test_cars_in_a_grid_keep_the_rules():
    """Ten cars for 6 s: no two overlap, no line is crossed without its junction, no speed is above the wanted one."""
    town, rng = grid(), np.random.default_rng(0)
    vehicles = []
    for e in rng.choice(town["n_edge"], 10, replace=False):
        kind = int(rng.choice(7))
        half, end = traffic.LENGTHS[kind] / 2, traffic.straight_length(town, e)
        s, v0 = rng.uniform(half, end - half), rng.uniform(8, 16)
        vehicles.append((int(e), s, min(v0, 2 * math.sqrt(end - s - half)) * rng.uniform(0.5, 0.9), v0, kind))
    draws = Random(0)
    state = row(town, vehicles, draws=draws)
    for n in range(3000):
        traffic.drive(town, state, options(), draws)
        assert (state["veh_v"] >= 0).all() and (state["veh_v"] <= state["veh_v0"] + 0.1).all()
        for k, e in enumerate(state["veh_edge"]):
            front = state["veh_s"][k] + traffic.half_length(state, k)
            over = state["veh_turning"][k] or front > traffic.straight_length(town, e) + 1e-9
            assert not over or state["node_owner"][town["edge"][e][1]] == k
        assert n % 25 or not any(overlap(state, k, j) for k, j in combinations(range(10), 2))
    assert (state["veh_draws"] > 1).sum() >= 5  # half of them have crossed a junction
