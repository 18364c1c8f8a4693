"""Flight: the filter on the commands, motion, wind, contact with boxes, and the numbers that describe it."""

import numpy as np
import pytest
from scipy.signal import butter

from milkrun.core.check.bench import TOLERANCE, first_difference
from milkrun.core.kernels import kernel
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.sight import clearance, hidden, wrap
from tests.tracking.flights import FORWARD, LEFT, STOP, TURN_LEFT, TURN_RIGHT, hover, make, over, play, stand, straight


def test_the_filter_is_the_butterworth_of_scipy():
    """20 Hz at 500 Hz; the original's own formula puts the corner elsewhere."""
    b0, a1, a2 = TrackingConfig().filter_numbers()
    b, a = butter(2, 20, fs=500)
    assert np.allclose((b0, 2 * b0, b0, a1, a2), (*b, *a[1:]), rtol=0, atol=1e-15)
    assert np.allclose((b0, a1, a2), (0.0133592000, -1.6474599811, 0.7008967812), rtol=0, atol=5e-11)
    coded = TrackingConfig(filter_design="as_coded").filter_numbers()
    assert np.allclose(coded, (0.0445267459, -1.3207910690, 0.4988980525), rtol=0, atol=5e-11)


@pytest.mark.parametrize(("design", "way"), [("bilinear", 7.552214), ("as_coded", 7.774921)])
def test_forward_for_a_fifth_of_a_second(design, way):
    """25 agent steps at 40 m/s lag behind the 8 m of an ideal drone; after 25 stops it reaches them."""
    world = straight(2, filter_design=design, init_no_done=10**6)
    over(world)
    world.yaw[1] = 0.5 * np.pi
    start = world.pos.copy()
    play(world, FORWARD, 25)
    assert np.allclose(world.pos - start, [(way, 0, 0), (0, way, 0)], rtol=0, atol=1e-6)
    play(world, STOP, 25)
    assert np.allclose(world.pos - start, [(8, 0, 0), (0, 8, 0)], rtol=0, atol=1e-6)


def test_turning_left_is_counter_clockwise():
    """One second at 2 rad/s, and time for the filter to settle."""
    world = straight(2, init_no_done=10**6)
    over(world)
    world.yaw[:] = 0.0, 3.0
    for _ in range(125):
        world.step([TURN_LEFT, TURN_LEFT])
    play(world, STOP, 25)
    assert np.allclose(world.yaw, (2, 5 - 2 * np.pi), rtol=0, atol=1e-6)
    play(world, TURN_RIGHT, 125)
    play(world, STOP, 25)
    assert np.allclose(world.yaw, (0, 3), rtol=0, atol=1e-6)


def test_without_a_filter_a_command_is_the_velocity():
    world = straight(filter_hz=0, init_no_done=10**6)
    over(world)
    start = world.pos.copy()
    play(world, LEFT, 1)
    assert np.allclose(world.pos - start, (0, 0.32, 0), atol=1e-12)
    assert np.allclose(world.vel, (0, 40, 0)) and np.allclose(world.acc, 0)
    assert world.cmd.tolist() == [[0, 40, 0, 0]]


def test_every_action_has_its_direction():
    """At yaw 90 degrees forward is +y and left is -x: 40 m/s is 8 cm a sim step, 2 rad/s is 0.004 rad."""
    world = straight(7, filter_hz=0, control_hz=500)
    over(world)
    world.yaw[:] = 0.5 * np.pi
    start = world.pos.copy()
    world.step(np.arange(7))
    moved = [(0, 0.08, 0), (0, -0.08, 0), (-0.08, 0, 0), (0.08, 0, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0)]
    assert np.allclose(world.pos - start, moved, rtol=0, atol=1e-12)
    assert np.allclose(world.yaw - 0.5 * np.pi, [0, 0, 0, 0, 0.004, -0.004, 0], rtol=0, atol=1e-12)
    assert np.allclose(world.vel[LEFT], (-40, 0, 0)) and np.allclose(world.acc[LEFT], (-20_000, 0, 0))


def test_six_actions_have_no_stop():
    world = straight(action_dim=6)
    assert world.action_mask.shape == (1, 6) and world.action_mask.all()
    world.step([6])
    assert world.illegal.all()


def test_an_illegal_action_flies_as_stop_and_time_runs_on():
    world = straight(3)
    over(world)
    for _ in range(3):
        world.step([STOP, 7, -1])
    assert world.illegal.tolist() == [False, True, True]
    assert np.ptp(world.pos, axis=0).max() == 0 and world.sim_step.tolist() == [12, 12, 12]
    assert np.ptp(world.reward_exact) == 0 and world.agent_step.tolist() == [3, 3, 3]


def test_a_steady_wind_carries_the_drone_off_its_command():
    """5 m/s along x for a fifth of a second; the commanded position does not change."""
    world = straight(wind_mean=(5.0, 0.0))
    over(world)
    start = world.pos.copy()
    play(world, STOP, 25)
    assert np.allclose(world.pos - start, (1, 0, 0), atol=1e-9)
    assert np.array_equal(world.cmd_pos, start) and np.allclose(world.vel, (5, 0, 0))


def test_gusts_have_the_given_spread_and_memory():
    """200 rows for 3 s: standard deviation 2 within 10 %, and after 0.2 s of tau 0.2 s a correlation near 1/e."""
    world = straight(200, wind_sigma=2.0, wind_tau=0.2, init_no_done=10**6, seed=3)
    over(world)
    seen = []
    for _ in range(370):
        world.step(np.full(200, STOP))
        seen.append(world.wind.copy())
    seen = np.array(seen)[100:]
    assert abs(seen.std() - 2) < 0.1 and abs(seen.mean()) < 0.1
    alike = (seen[25:] * seen[:-25]).mean() / (seen**2).mean()
    assert abs(alike - np.exp(-1)) < 0.05


def test_velocity_mode_flies_four_numbers():
    """Half of 40, 40, 5 m/s and of 2 rad/s; values outside -1..1 fly as stop."""
    world = straight(4, action_mode="velocity", filter_hz=0, init_no_done=10**6)
    over(world)
    actions = np.array([(0.5, 0, 0.5, 0), (0, -0.5, 0, 0.5), (1.5, 0, 0, 0), (np.nan, 0, 0, 0)], np.float32)
    start = world.pos.copy()
    world.step(actions)
    assert np.allclose(world.vel, [(20, 0, 2.5), (0, -20, 0), (0, 0, 0), (0, 0, 0)], atol=0.2)
    assert np.allclose(world.pos - start, 0.008 * world.vel, atol=1e-3)
    assert world.yaw_rate.tolist() == [0, 1, 0, 0]
    assert world.illegal.tolist() == [False, False, True, True] and (world.sim_step == 4).all()


def test_angles_stay_in_their_range():
    @kernel
    def wrapped(w, b, x, y):
        return wrap(x * 1e-3 + y * np.pi)

    world = straight()
    for milli in range(-20000, 20000, 617):
        angle = world.map_rows(wrapped, np.float64, x=milli)[0]
        assert -np.pi < angle <= np.pi and abs(np.exp(1j * angle) - np.exp(1e-3j * milli)) < 1e-12
    for half_turns in range(-9, 10):
        angle = world.map_rows(wrapped, np.float64, y=half_turns)[0]
        assert angle == (np.pi if half_turns % 2 else 0.0) or abs(angle) < 4e-15 or abs(abs(angle) - np.pi) < 4e-15
        assert -np.pi < angle <= np.pi


# -- boxes --------------------------------------------------------------------------------------------------


@kernel
def clear_of_boxes(w, b, x, y):
    return clearance(w, w.instance_row[b], w.pos[b, 0], w.pos[b, 1], w.pos[b, 2])


@kernel
def sees_no_target(w, b, x, y):
    q = w.instance_row[b]
    return hidden(w, q, w.pos[b, 0], w.pos[b, 1], w.pos[b, 2], w.rel[b, 0], w.rel[b, 1], w.rel[b, 2])


def boxed(rng, rows, boxes, **options):
    """A town of random boxes, the same in all rows."""
    world = make(rows, **options)
    town = {name: np.array(getattr(world, name)[:1]) for name, f in world.fields.items() if f.role.value == "instance"}
    for name in ("box_pos", "box_half", "box_yaw", "box_cs", "box_rgb", "box_kind"):
        town[name][:] = 0
    town["n_box"][:] = boxes
    town["box_half"][0, :boxes] = rng.uniform(0.3, 6, (boxes, 3))
    town["box_pos"][0, :boxes] = rng.uniform((-40, -40, 0), (40, 40, 15), (boxes, 3))
    town["box_yaw"][0, :boxes] = yaw = rng.uniform(-4, 4, boxes)
    town["box_cs"][0, :boxes] = np.stack([np.cos(yaw), np.sin(yaw)], -1)
    town["tallest"][:] = (town["box_pos"] + town["box_half"])[0, :boxes, 2].max()
    town["town_key"][:] = -1
    world.reset(instance={**town, "instance_row": np.zeros(rows, np.int64)})
    return world


def in_axes_of(world, points):
    """Points (..., 3) in the axes of every box of row 0: (..., boxes, 3)."""
    n = world.n_box[0]
    off = np.asarray(points)[..., None, :] - world.box_pos[0, :n]
    c, s = np.cos(world.box_yaw[0, :n]), np.sin(world.box_yaw[0, :n])
    return np.stack([c * off[..., 0] + s * off[..., 1], c * off[..., 1] - s * off[..., 0], off[..., 2]], -1)


def test_clearance_is_the_distance_to_the_nearest_box():
    """Compared with the distance to the nearest point of each box, by clipping to its sides."""
    rng = np.random.default_rng(5)
    world = boxed(rng, 200, 25)
    world.pos[:] = rng.uniform((-45, -45, 0), (45, 45, 25), (200, 3))
    inside = in_axes_of(world, world.pos)
    half = world.box_half[0, :25]
    apart = np.linalg.norm(inside - np.clip(inside, -half, half), axis=-1).min(axis=-1)
    assert np.allclose(world.map_rows(clear_of_boxes, np.float64), apart, atol=1e-12)
    assert 5 < (apart == 0).sum() < 100


def test_a_box_hides_what_is_behind_it():
    """Compared with 1,000 points along each line of sight; lines that only graze a box are left out."""
    rng = np.random.default_rng(6)
    world = boxed(rng, 200, 25)
    world.pos[:] = rng.uniform((-45, -45, 0), (45, 45, 25), (200, 3))
    world.rel[:, :3] = rng.uniform((-45, -45, 0), (45, 45, 3), (200, 3))
    along = np.linspace(0, 1, 1001)[:, None]
    depth = np.empty(200)
    for b in range(200):
        points = in_axes_of(world, world.pos[b] + along * (world.rel[b, :3] - world.pos[b]))
        depth[b] = (world.box_half[0, :25] - np.abs(points)).min(axis=-1).max()
    clear = np.abs(depth) > 0.05
    found = world.map_rows(sees_no_target, np.bool_)
    assert np.array_equal(found[clear], depth[clear] > 0)
    assert clear.sum() > 150 and 30 < found.sum() < 170


def test_a_drone_touches_a_box_at_forty_centimetres():
    """Compared with a check of every position: the kernel skips steps only if contact is impossible."""
    rng = np.random.default_rng(7)
    world = boxed(rng, 64, 60, control_hz=500, init_no_done=10**6, max_sim_steps=10**6)
    stand(world, (300.0, 0.0, 0.0))
    world.pos[:] = rng.uniform((-40, -40, 1), (40, 40, 12), (64, 3))
    half = world.box_half[0, :60]

    def apart():
        inside = in_axes_of(world, world.pos)
        return np.linalg.norm(inside - np.clip(inside, -half, half), axis=-1).min(axis=-1)

    rows = np.flatnonzero(apart() > 0.5)
    heading = rng.integers(0, 4, 64)
    touched = np.zeros(64, bool)
    for _ in range(300):
        world.step(heading[rows], rows=rows)
        near = apart()[rows] < 0.4
        assert np.array_equal(world.terminated[rows], near) and np.array_equal(world.crash[rows], near)
        touched[rows] = near
        rows = rows[~near]
    assert touched.sum() > 15 and len(rows) > 5
    assert (world.reason[touched] == 1).all()


# -- RewardParams -------------------------------------------------------------------------------------------


def test_params_are_rebuilt_from_the_two_poses():
    """Entries 39..57 follow from the poses 7..38 of this step and of the two before it, a sim step apart."""
    world = make(16, control_hz=500, reward_params=True, critic=True, seed=4)
    rng = np.random.default_rng(0)
    seen = [world.reward_params.copy()]
    for _ in range(60):
        world.step(rng.integers(0, 7, 16))
        seen.append(world.reward_params.copy())
    p = np.array(seen)
    assert np.array_equal(p[-1][:, 49:58], world.critic)
    camera, target = p[..., 7:23].reshape(-1, 16, 4, 4), p[..., 23:39].reshape(-1, 16, 4, 4)
    assert np.allclose(camera[..., :3, :3] @ np.swapaxes(camera[..., :3, :3], -1, -2), np.eye(3), atol=1e-12)
    forward, place = camera[..., :3, 0], camera[..., :3, 3]
    centre = place - forward * (place[..., 2:] / forward[..., 2:])
    assert np.abs(p[..., 39:42] - centre).max() < 1e-9
    assert np.abs(p[..., 42:45] - target[..., :3, 3]).max() < 1e-9
    assert np.abs(p[..., 45:48] - place).max() < 1e-9
    yaw = np.arctan2(-camera[..., 0, 1], camera[..., 1, 1])
    heading = np.arctan2(target[..., 1, 0], target[..., 0, 0])
    assert np.abs(np.angle(np.exp(1j * (heading - yaw - p[..., 48])))).max() < 1e-9
    off = target[..., :3, 3] - place
    c, s = np.cos(yaw), np.sin(yaw)
    there = np.stack([c * off[..., 0] + s * off[..., 1], c * off[..., 1] - s * off[..., 0], off[..., 2]], -1)
    assert np.abs(p[..., 49:52] - there).max() < 1e-9
    speed = np.diff(there, axis=0, prepend=there[:1]) * 500
    assert np.abs(p[..., 52:55] - speed).max() < 1e-9
    assert np.abs(p[..., 55:58] - np.diff(speed, axis=0, prepend=0 * speed[:1]) * 500).max() < 1e-7  # 500^2 ulps
    assert np.allclose(p[..., 3], 386.2743, atol=5e-5)
    assert np.array_equal(p[0, :, 52:58], np.zeros((16, 6)))


def test_the_motion_of_the_target_is_classified():
    world = straight(4, reward_params=True)
    over(world)
    world.veh_v[:, 0] = 0.4, 0.6, 0.4, 0.6
    world.step(np.full(4, STOP))
    assert world.reward_params[:, 59].tolist() == [0, 1, 0, 1]
    turning = make(200, "dat", scene="lake", reward_params=True, seed=2)
    named = set()
    for _ in range(100):
        rows = np.flatnonzero(~turning.done)
        turning.step(np.full(len(rows), STOP), rows=rows)
        live = ~turning.done
        rate, speed, motion = turning.veh_rate[live], turning.veh_v[live, 0], turning.reward_params[live, 59]
        expected = np.where(rate > 0.05, 2, np.where(rate < -0.05, 3, np.where(speed < 0.5, 0, 1)))
        assert np.array_equal(motion, expected)
        named |= set(motion)
    assert named >= {1, 2, 3}


def test_params_of_a_hovering_drone_by_hand():
    """Camera at (0, 0, 20), pitch 1; the target stands 14 m ahead and 1 m to the left."""
    world = straight(reward_params=True)
    stand(world, (14.0, 1.0, 0.0))
    hover(world, (0.0, 0.0, 20.0))
    world.start[:, 1] = 0.0
    play(world, STOP, 2)  # in the second step `rel` has stood still for three sim steps
    p = world.reward_params[0]
    c, s = np.cos(1), np.sin(1)
    assert np.allclose(p[:7], (320, 240, 0.785398, 386.2743, 1, 20, 0), rtol=0, atol=1e-4)
    assert np.allclose(p[7:23], (c, 0, s, 0, 0, 1, 0, 0, -s, 0, c, 20, 0, 0, 0, 1), rtol=0, atol=1e-12)
    assert np.allclose(p[23:39], (1, 0, 0, 14, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1), rtol=0, atol=1e-12)
    assert np.allclose(p[39:48], (12.841852, 0, 0, 14, 1, 0, 0, 0, 20), rtol=0, atol=1e-6)
    assert np.allclose(p[48:], (0, 14, 1, -20, 0, 0, 0, 0, 0, 0, 0, 0), rtol=0, atol=1e-9)


@pytest.mark.parametrize("side", [-1, 1])
def test_visible_needs_the_full_picture_only(side):
    """Straight ahead the picture ends at 20 / tan(1 -+ atan(0.75 tan(hfov / 2))) metres."""
    half = np.arctan(np.tan(0.785398 / 2) * 0.75)
    edge = 20 / np.tan(1 - side * half)
    world = straight(2)
    stand(world)
    hover(world, (0.0, 0.0, 20.0))
    world.veh_pose[:, 0, 0] = edge - 0.01 * side, edge + 0.01 * side
    world.step([STOP] * 2)
    assert world.visible.tolist() == [True, False]


def test_a_target_behind_a_wall_is_in_the_picture_but_not_visible():
    world = boxed(np.random.default_rng(0), 3, 1, occlusion="zero")
    q = world.instance_row[0]
    over(world, 1.0, 20.0)
    world.pos[2, 0] -= 30.0
    world.box_half[q, 0], world.box_pos[q, 0] = (0.2, 3.0, 8.0), (-3.0, 0.0, 8.0)
    world.box_cs[q, 0], world.box_yaw[q, 0] = (1.0, 0.0), 0.0
    world.pos[1] = 0, 0, 20
    world.pitch[1] = 1.5
    world.step([STOP] * 3)
    assert world.visible.tolist() == [False, True, False]
    assert world.gauge[0] < 1e-9 and world.r_c[0] == 0 and world.r_d[0] == 0 and world.r_c[1] > 0.5


@pytest.mark.parametrize(
    ("centre", "half", "yaw", "hidden"),
    [
        ((8.0, 0.0, 4.0), (0.5, 3.0, 4.0), 0.0, True),
        ((8.0, 0.0, 3.5), (0.5, 3.0, 3.5), 0.0, True),
        ((8.0, 0.0, 3.0), (0.5, 3.0, 3.0), 0.0, False),
        ((8.0, 2.0, 4.0), (0.5, 3.0, 4.0), np.pi / 2, False),
    ],
)
def test_a_wall_hides_the_target_by_its_height_and_turn(centre, half, yaw, hidden):
    """The line of sight from 20 m up to 12.84 m ahead is 7.54 m up at x = 8, and 6.76 m behind the wall at x = 8.5."""
    wall = {"box_pos": [[centre]], "box_half": [[half]], "box_yaw": [[yaw]]}
    road = {"node_xy": [[[-110, 50.0], [110, 50.0]]], "edge": [[[0, 1], [1, 0]]]}
    for occlusion, paid in (("ignore", 1.0), ("zero", 0.0 if hidden else 1.0)):
        world = straight(occlusion=occlusion)
        world.reset(instance={**road, **wall})
        stand(world, (20 / np.tan(1), 0.0, 0.0))
        hover(world, (0.0, 0.0, 20.0))
        world.step([STOP])
        assert (bool(world.visible[0]), world.r_d[0]) == (not hidden, paid)


# -- the same in plain Python, and pictures of the past -----------------------------------------------------


@pytest.mark.parametrize("mode", ["discrete", "velocity"])
def test_interpreted_and_compiled_play_are_equal(mode):
    options = {
        "action_mode": mode,
        "frame_stack": 2,
        "max_sim_steps": 60,
        "wind_sigma": 1.0,
        "reward_params": True,
        "weather": ("day", "snow", "foggy"),
        "preset": "dvat" if mode == "velocity" else None,
    }
    worlds = [make(2, debug=debug, seed=9, **options) for debug in (False, True)]
    rng = np.random.default_rng(1)
    for _ in range(6):
        action = rng.integers(0, 8, 2) if mode == "discrete" else rng.uniform(-1.1, 1.1, (2, 4)).astype(np.float32)
        for world in worlds:
            world.step(action)
        for name, f in worlds[0].fields.items():
            if f.per_row and not f.on_demand:
                fast, slow = (np.asarray(getattr(world, name)) for world in worlds)
                assert first_difference(name, fast, slow, TOLERANCE) is None


def test_the_past_holds_the_last_moments_oldest_first():
    world = make(2, frame_stack=3, max_vehicles=4)

    def moment():
        cars = np.concatenate([world.veh_pose, world.veh_on[..., None]], 2).reshape(2, -1)
        return np.concatenate([world.pos, world.yaw[:, None], world.agent_step[:, None], cars], 1)

    seen = [moment()] * 3
    assert np.array_equal(world.past, np.stack(seen, 1))
    for _ in range(5):
        world.step([FORWARD, TURN_LEFT])
        seen = [*seen[1:], moment()]
        assert np.array_equal(world.past, np.stack(seen, 1))


def test_a_car_that_drove_off_is_still_in_the_pictures_of_before():
    """The stacked pictures equal the single pictures, also if a car vanishes at the end of its road."""
    options = {
        "curriculum": "straight",
        "control_hz": 20,
        "max_sim_steps": 4000,
        "no_reward_done": 10**6,
        "done_drift": 1e6,
        "start_height": (49.0, 49.0),
        "start_pitch": (1.38, 1.38),
        "hfov": 2.4,
        "camera_px": (240, 240),
        "size": 32,
        "noise": False,
    }
    stacked, single = (make(4, seed=3, frame_stack=stack, **options) for stack in (3, 0))
    seen = [single.observe()["image"].copy()] * 3
    vanished = 0
    while not single.done.any():
        before = single.veh_on.copy()
        for world in (stacked, single):
            world.step([STOP] * 4)
        vanished += int((before & ~single.veh_on).sum())
        seen = [*seen[1:], single.observe()["image"].copy()]
        assert np.array_equal(stacked.observe()["frames"], np.stack(seen, 1))
    assert vanished > 0


def test_hovering_changes_nothing_but_time():
    world = straight()
    over(world)
    hover(world, world.pos.copy(), 0.3, 1.2)
    before = world.pos.copy()
    play(world, STOP, 5)
    assert np.array_equal(world.pos, before) and world.yaw[0] == 0.3 and not world.vel.any() and not world.acc.any()
