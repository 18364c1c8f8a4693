"""Rewards: the window on the ground, E2E and D-VAT, by their published numbers; plain functions equal the kernels."""

import numpy as np
import pytest

from milkrun.core.kernels import kernel
from milkrun.tracking import rewards
from milkrun.tracking.sight import gauge
from tests.tracking.flights import SMALL, STOP, hover, make, stand, straight

HFOV = 0.785398
TAN = np.tan(HFOV / 2)


@kernel
def gauge_of(w, b, x, y):
    """For a window of x millionths of the picture; y: index of the result."""
    found = gauge(w, w.pos[b, 0], w.pos[b, 1], w.pos[b, 2], w.yaw[b], w.pitch[b], x * 1e-6, w.rel[b, 0], w.rel[b, 1])
    return found[y]


def rotated(yaw, pitch, ray):
    """A ray of the camera (forward, left, up) in the world, for arrays of angles."""
    f, left, up = ray
    level, rise = f * np.cos(pitch) + up * np.sin(pitch), up * np.cos(pitch) - f * np.sin(pitch)
    return np.stack([level * np.cos(yaw) - left * np.sin(yaw), level * np.sin(yaw) + left * np.cos(yaw), rise], -1)


def ground_point(pos, ray):
    return (pos - ray * (pos[..., 2:] / ray[..., 2:]))[..., :2]


def by_intersection(pos, yaw, pitch, share, target):
    """The gauge by a ray from the middle of the window through the target to one of its sides."""
    middle = ground_point(pos, rotated(yaw, pitch, (1, 0, 0)))
    corners = [
        ground_point(pos, rotated(yaw, pitch, (1, i * share * TAN, j * share * TAN * 0.75)))
        for i, j in ((1, 1), (1, -1), (-1, -1), (-1, 1))
    ]
    way = target - middle
    meets = np.full(len(pos), np.inf)
    for p, q in zip(corners, corners[1:] + corners[:1]):
        side, off = q - p, p - middle
        det = way[:, 0] * side[:, 1] - way[:, 1] * side[:, 0]
        with np.errstate(all="ignore"):
            t = (off[:, 0] * side[:, 1] - off[:, 1] * side[:, 0]) / det
            u = (off[:, 0] * way[:, 1] - off[:, 1] * way[:, 0]) / det
        meets = np.where((t > 0) & (u >= -1e-9) & (u <= 1 + 1e-9), np.minimum(meets, t), meets)
    return 1 / meets


def test_the_window_on_the_ground():
    """Corners and middle for a camera at (0, 0, 20), pitch 1, range 0.7: each corner has gauge 1, the middle 0."""
    world = straight(5)
    hover(world, (0.0, 0.0, 20.0))
    corners = [(19.981066, 8.009921), (19.981066, -8.009921), (7.452072, 6.047125), (7.452072, -6.047125)]
    world.rel[:, :2] = [*corners, (12.841852, 0)]
    found = world.map_rows(gauge_of, np.float64, x=700_000)
    assert np.allclose(found, [1, 1, 1, 1, 0], rtol=0, atol=2e-7)
    assert np.allclose(world.map_rows(gauge_of, np.float64, x=700_000, y=1), 12.841852, atol=5e-7)
    assert np.allclose(world.map_rows(gauge_of, np.float64, x=700_000, y=2), 0, atol=1e-12)


@pytest.mark.parametrize(
    ("pos", "pitch", "yaw", "target", "share", "x", "r_c"),
    [
        ((0, 0, 20), 1.0, 0.0, (14, 1), 0.7, 0.162223430, 0.982046127),
        ((3, -2, 22), 1.37, 0.5, (8, 2), 0.7, 0.350607009, 0.798849768),
        ((10, 5, 13), 0.6, -2.0, (4, -14), 0.7, 0.339501398, 0.818611019),
        ((0, 0, 22), 1.37, 0.0, (8, 0), 1.0, 0.463554758, 0.549384214),
    ],
)
def test_view_rewards_by_hand(pos, pitch, yaw, target, share, x, r_c):
    world = straight(1, view_range=share, reward_params=True)
    stand(world, (*target, 0.0))
    hover(world, pos, yaw, pitch)
    world.step([STOP])
    assert world.gauge[0] == pytest.approx(x, abs=1e-9) and world.r_c[0] == pytest.approx(r_c, abs=1e-9)
    assert world.r_d[0] == 1 and world.visible[0] and world.reward_exact[0] == world.r_c[0]
    assert rewards.gauge(world.reward_params, view_range=share)[0] == pytest.approx(x, abs=1e-9)


def test_a_target_in_the_middle_pays_tanh_4():
    """So a whole episode is worth 374.748487 at most."""
    world = straight(1)
    stand(world, (20 / np.tan(1.0), 0.0, 0.0))
    hover(world, (0.0, 0.0, 20.0))
    world.step([STOP])
    assert world.r_c[0] == pytest.approx(0.999329300, abs=1e-9)
    assert 375 * world.r_c[0] == pytest.approx(374.748487, abs=1e-6)


def test_the_gauge_follows_a_ray_to_the_window():
    """20,000 random cameras, windows and targets; the plain function of the params agrees too."""
    rng = np.random.default_rng(11)
    world = straight(500, seed=2, max_boxes=1, max_vehicles=1)
    for _ in range(40):
        share = int(rng.integers(50_000, 1_000_001))
        world.pos[:] = rng.uniform((-100, -100, 2), (100, 100, 50), (500, 3))
        world.yaw[:], world.pitch[:] = rng.uniform(-np.pi, np.pi, 500), rng.uniform(0.5, 1.5, 500)
        ahead = world.pos[:, 2] / np.tan(world.pitch)
        aim = world.pos[:, :2] + ahead[:, None] * np.stack([np.cos(world.yaw), np.sin(world.yaw)], -1)
        world.rel[:, :2] = aim + rng.normal(0, 8, (500, 2))
        found = world.map_rows(gauge_of, np.float64, x=share)
        args = (world.pos, world.yaw, world.pitch, share * 1e-6, world.rel[:, :2])
        assert np.allclose(found, by_intersection(*args), rtol=1e-9, atol=1e-9)
        params = np.zeros((500, 60))
        params[:, 0:3] = 320, 240, HFOV
        pose = np.zeros((500, 4, 4))
        for k, axis in enumerate(np.eye(3)):
            pose[:, :3, k] = rotated(world.yaw, world.pitch, axis)
        pose[:, :3, 3] = world.pos
        params[:, 7:23], params[:, 42:44] = pose.reshape(-1, 16), world.rel[:, :2]
        assert np.allclose(rewards.gauge(params, view_range=share * 1e-6), found, rtol=1e-9, atol=1e-9)


def params_of(x=0.0, y=0.0, z=0.0, w=0.0, v=(0, 0, 0), pitch=0.0):
    p = np.zeros(60)
    p[2], p[4], p[48], p[49:52], p[52:55] = HFOV, pitch, w, (x, y, z), v
    return p


def test_e2e_by_hand():
    near, far = params_of(12, 1, w=0.1), params_of(20, -8, w=1.2)
    assert rewards.e2e(near, 11) == pytest.approx(0.588217198, abs=1e-9)
    assert rewards.e2e(far, 11) == -1
    assert rewards.e2e(far, 11, constants="as_published") == pytest.approx(-3.393730496, abs=1e-9)
    near[58] = 1
    assert rewards.e2e(near, 11) == -1 and rewards.e2e(near, 11, scale=2.0) == -2


def test_dvat_by_hand():
    """As published with the camera level, so that its axes are the drone's; |u| = 1 is full speed ahead."""
    for (x, y), paid in {(11.5, 1): 0.730340302, (11, -3): 0.685408557, (12.2, 0): 0}.items():
        assert rewards.dvat(params_of(x, y), 11) == pytest.approx(paid, abs=1e-9)
    published = params_of(24.3, 1.5, -0.8, v=(1, 2, 2))
    paid = rewards.dvat(published, 24, (40, 0, 0, 0), constants="as_published")
    assert paid == pytest.approx(0.314653309, abs=1e-9)
    for away in (params_of(14, 0), params_of(145, 0)):
        assert rewards.dvat(away, 24, constants="as_published") == -10
        assert rewards.out_of_range(away, 24)
    assert rewards.dvat(params_of(0, 1), 0.5) == 0
    assert rewards.dvat(params_of(0, 0), 0.5) == pytest.approx(0.5 ** (1 / 3))


@pytest.mark.parametrize(
    ("options", "d_ref"),
    [
        ({"reward": "E2E"}, 14.0),
        ({"reward": "DVAT"}, 14.0),
        ({"reward": "E2E", "constants": "as_published"}, 12.841852),
        ({"reward": "D-VAT", "constants": "as_published"}, 24.393652),
    ],
)
def test_the_first_step_sets_the_reference_distance(options, d_ref):
    """As coded the distance ahead; as published E2E uses the middle of the picture, D-VAT the depth of (14, 1, 0)."""
    world = straight(1, **options)
    stand(world, (14.0, 1.0, 0.0))
    hover(world, (0.0, 0.0, 20.0))
    world.step([STOP])
    assert world.d_ref[0] == pytest.approx(d_ref, abs=1e-6)
    if options == {"reward": "E2E"}:
        assert world.reward_exact[0] == pytest.approx(1 - 1 / 9)  # 1 m aside
    world.veh_pose[:, 0, 0] = 16.0
    world.step([STOP])
    assert world.d_ref[0] == pytest.approx(d_ref, abs=1e-6)


def test_distance_by_hand():
    p = params_of()
    p[42:44] = 3, 4
    assert rewards.distance(p) == pytest.approx(0.151716, abs=1e-6)  # 1 - tanh(1.25)
    p[42:44] = 1, 2
    assert rewards.distance(p) == pytest.approx(1 - np.tanh(0.01 * 5**1.5))
    assert rewards.distance(p, mode="discrete") == 1
    p[42:44] = 0, 7
    assert rewards.distance(p) == 0 and rewards.distance(p, mode="discrete") == 0


KINDS = {
    "default": ({}, lambda p, w: rewards.view(p)),
    "discrete, scaled": (
        {"reward_mode": "discrete", "reward_scale": 2.5, "view_range": 0.9},
        lambda p, w: rewards.view(p, mode="discrete", view_range=0.9, scale=2.5),
    ),
    "hidden": (
        {"occlusion": "zero", "scene": "downtown"},
        lambda p, w: rewards.view(p, occlusion="zero", visible=w.visible),
    ),
    "distance": ({"reward_kind": "distance"}, lambda p, w: rewards.distance(p)),
    "metres, 0 and 1": (
        {"reward_kind": "distance", "reward_mode": "discrete", "distance_range": 4.0},
        lambda p, w: rewards.distance(p, mode="discrete", distance_range=4.0),
    ),
    "E2E": ({"reward": "E2E"}, lambda p, w: rewards.e2e(p, w.d_ref)),
    "E2E, published": (
        {"reward": "E2E", "constants": "as_published"},
        lambda p, w: rewards.e2e(p, w.d_ref, constants="as_published"),
    ),
    "D-VAT": ({"reward": "DVAT"}, lambda p, w: rewards.dvat(p, w.d_ref)),
    "D-VAT, published": (
        {"preset": "dvat", "frame_stack": 0, "action_mode": "discrete", "done_speed": 1e9},
        lambda p, w: rewards.dvat(p, w.d_ref, w.cmd, constants="as_published"),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_equals_the_plain_function(kind):
    """Random flights of low drones, crashes among them."""
    options, plain = KINDS[kind]
    world = make(
        48,
        seed=8,
        **{
            "reward_params": True,
            "start_height": (3.0, 22.0),
            "init_no_done": 10**6,
            "max_sim_steps": 10**6,
            **options,
        },
    )
    first = world.reward_params.copy()
    assert np.array_equal(world.reward_exact, np.zeros(48))
    rng, paid = np.random.default_rng(1), []
    heading = rng.integers(0, 4, 48)
    for turn in range(60):
        rows = np.flatnonzero(~world.done)
        actions = np.where(rng.random(48) < 0.7, heading, rng.integers(0, 7, 48))
        world.step(actions[rows], rows=rows)
        if turn == 0:
            constants = world.config.constants
            d_ref = rewards.reference(world.reward_params, reward=world.config.reward, constants=constants)
            assert np.allclose(world.d_ref, d_ref, rtol=1e-14)
        expected = plain(world.reward_params, world)
        assert np.allclose(world.reward_exact[rows], expected[rows], rtol=1e-12, atol=1e-12)
        r_c, r_d = rewards.scores(
            world.reward_params,
            view_range=world.config.view_range,
            occlusion=world.config.occlusion,
            visible=world.visible,
        )
        assert np.allclose(world.r_c[rows], r_c[rows], rtol=0, atol=1e-12)
        assert np.array_equal(world.r_d[rows], r_d[rows])
        paid += world.reward_exact[rows].tolist()
    assert not np.array_equal(first, world.reward_params) and len(set(paid)) > 1
    assert world.crash.any() and np.array_equal(world.crash, world.reward_params[:, 58] == 1)


def test_params_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="60 numbers along their last axis"):
        rewards.view(np.zeros((4, 61)))


def test_many_params_at_once_are_paid_one_by_one():
    world = make(6, seed=1, reward_params=True, **{k: v for k, v in SMALL.items() if k == "size"})
    stack = world.reward_params.reshape(2, 3, 60)
    assert np.array_equal(rewards.view(stack), rewards.view(world.reward_params).reshape(2, 3))
    assert np.array_equal(rewards.dvat(stack, 11.0), rewards.dvat(world.reward_params, 11.0).reshape(2, 3))
