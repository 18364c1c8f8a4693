"""The start of an episode: the drone's pose, the weather, the presets."""

import numpy as np
import pytest

from milkrun.tracking import tables
from milkrun.tracking.config import TrackingConfig
from tests.tracking.flights import hover, make, stand, straight
from tests.tracking.test_flight import boxed

ROWS = 400


def fallbacks(world):
    """Rows with the fallback start: pitch 1.38, 22 m up, directly behind the target."""
    return (world.pitch == 1.38) & (world.start == (22, 0, 0, 0)).all(axis=1)


def in_picture(world):
    """Positions of the targets' centres in the picture, right and up, -1..1 inside."""
    off = np.concatenate([world.veh_pose[:, 0, :2], np.zeros((world.num_envs, 1))], 1) - world.pos
    c, s = np.cos(world.yaw), np.sin(world.yaw)
    ahead, left = c * off[:, 0] + s * off[:, 1], c * off[:, 1] - s * off[:, 0]
    cp, sp = np.cos(world.pitch), np.sin(world.pitch)
    depth, up = cp * ahead - sp * off[:, 2], sp * ahead + cp * off[:, 2]
    return -left / depth / world.config.tan_h, up / depth / world.config.tan_v


@pytest.mark.parametrize("scene", tables.SCENES)
def test_the_start_law(scene):
    """Ranges; the target is in the picture, clear of boxes and visible; the fallback start is rare."""
    world = make(ROWS, seed=5, scene=scene)
    sure = fallbacks(world)
    assert sure.mean() < 0.01
    drawn = ~sure
    pitch, (height, direction, long, lat) = world.pitch[drawn], world.start[drawn].T
    for values, low, high in (
        (pitch, 0.6, 1.38),
        (height, 13, 22),
        (direction, -np.pi, np.pi),
        (abs(long), 2.5, 4.5),
        (abs(lat), 2.5, 4.5),
    ):
        assert low <= values.min() < low + 0.1 * (high - low) and high - 0.1 * (high - low) < values.max() <= high
    for values in (long, lat, direction):
        assert 0.35 < (values > 0).mean() < 0.65
    right, up = in_picture(world)
    assert np.abs(right).max() <= 1 and np.abs(up).max() <= 1
    assert world.visible[drawn].all()
    apart = np.full(ROWS, np.inf)
    for b in range(ROWS):
        n = world.n_box[b]
        off = world.pos[b] - world.box_pos[b, :n]
        c, s = np.cos(world.box_yaw[b, :n]), np.sin(world.box_yaw[b, :n])
        inside = np.stack([c * off[:, 0] + s * off[:, 1], c * off[:, 1] - s * off[:, 0], off[:, 2]], -1)
        half = world.box_half[b, :n]
        apart[b] = np.linalg.norm(inside - np.clip(inside, -half, half), axis=-1).min()
    assert (apart[drawn] >= 1.5 - 1e-9).all()


def test_the_drone_starts_at_the_drawn_pose():
    """Behind the target by h / tan(pitch) along its yaw, shifted by the biases."""
    world = make(50, seed=1)
    yaw = world.veh_pose[:, 0, 2] + world.start[:, 1]
    assert np.abs(np.exp(1j * yaw) - np.exp(1j * world.yaw)).max() < 1e-12
    ahead = world.start[:, 2] - world.start[:, 0] / np.tan(world.pitch)
    place = world.veh_pose[:, 0, 0] + 1j * world.veh_pose[:, 0, 1]
    place = place + np.exp(1j * yaw) * (ahead + 1j * world.start[:, 3])
    assert np.allclose(world.pos[:, 0] + 1j * world.pos[:, 1], place, atol=1e-9)
    assert np.array_equal(world.pos[:, 2], world.start[:, 0])
    assert (np.abs(world.yaw) <= np.pi).all()


def test_an_invisible_target_gets_the_fallback_start():
    """A lid over the whole map, above the cars and below the drones."""
    world = boxed(np.random.default_rng(0), 4, 1)
    town = {name: np.array(getattr(world, name)[:1]) for name, f in world.fields.items() if f.role.value == "instance"}
    town["box_half"][0, 0], town["box_pos"][0, 0] = (200.0, 200.0, 0.5), (0.0, 0.0, 8.0)
    town["tallest"][:] = 8.5
    world.reset(instance={**town, "instance_row": np.zeros(4, np.int64)})
    assert fallbacks(world).all() and not world.visible.any() and not world.crash.any()


def test_most_starts_have_the_target_in_the_window():
    """The biases put about a tenth outside of the window of 0.7; these are kept."""
    world = make(1000, seed=2, scene="desert")
    assert 0.03 < (world.gauge >= 1).mean() < 0.2


def test_the_start_of_the_original_config_file():
    world = make(20, "dat_repo", seed=3, scene="desert")
    assert (world.pitch == 1.37).all() and (world.start == (22, 0, 0, 0)).all()
    assert np.allclose(np.angle(np.exp(1j * (world.yaw - world.veh_pose[:, 0, 2]))), 0, atol=1e-12)
    assert np.abs(world.gauge).max() < 1e-9
    config = world.config
    assert (config.reward_mode, config.view_range, config.no_reward_done) == ("discrete", 1.0, 10000)


@pytest.mark.parametrize(
    ("preset", "kind", "stack"), [("dvat", "TrackingVelocity", 3), ("aot", "Tracking", 0), ("published", "Tracking", 0)]
)
def test_presets_play(preset, kind, stack):
    world = make(2, preset)
    assert type(world).__name__ == kind and world.past.shape[1] == stack
    assert world.reward_params.shape[1] == (60 if preset == "published" else 0)
    assert world.critic.shape[1] == (9 if preset == "dvat" else 0)
    world.step(np.zeros((2, 4), np.float32) if kind == "TrackingVelocity" else [6, 6])
    assert world.agent_step.tolist() == [1, 1] and (world.d_ref > 5).all()


# -- weather ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weather", "gain", "ambient", "sky", "sigma", "flakes", "sight"),
    [
        ("day", 1.0, 0.45, (170, 200, 235), 2, 0, None),
        ("night", 0.32, 0.75, (12, 14, 24), 4, 0, None),
        ("foggy", 0.85, 0.75, (190, 195, 200), 2, 0, (100, 300)),
        ("snow", 0.95, 0.65, (215, 220, 228), 3, 0.01, (250, 600)),
    ],
)
def test_weathers(weather, gain, ambient, sky, sigma, flakes, sight):
    world = straight(100, weather=weather, seed=1)
    assert (world.weather_id == tables.WEATHERS.index(weather)).all() and (world.sky == sky).all()
    assert (world.light[:, [0, 1, 6, 7]] == (gain, ambient, sigma, flakes)).all()
    assert np.allclose(world.light[:, 2:5], np.array((0.3, 0.5, 0.81)) / np.sqrt(0.09 + 0.25 + 0.6561), atol=1e-15)
    if sight is None:
        assert not world.light[:, 5].any()
    else:
        seen = 3.912 / world.light[:, 5]
        span = sight[1] - sight[0]
        assert sight[0] <= seen.min() < sight[0] + 0.1 * span and sight[1] - 0.1 * span < seen.max() <= sight[1]


def test_a_list_of_weathers_is_drawn_from_each_episode():
    world = straight(300, weather=("day", "snow", "foggy"), seed=1)
    assert set(world.weather_id) == {0, 2, 3}
    assert np.bincount(world.weather_id).min(where=[True, False, True, True], initial=999) > 70
    before = world.weather_id.copy()
    world.reset()
    assert not np.array_equal(world.weather_id, before)


def test_without_jitter_the_palette_is_the_list_of_colours():
    """In snow asphalt, markings and dirt are 0.35 white, other ground 0.7; halves are rounded up."""
    world = straight(scene="lake", palette_jitter=0.0)
    assert world.palette[0, 0].tolist() == [96, 140, 80] and world.palette[0, 1].tolist() == [70, 70, 74]
    assert np.array_equal(world.palette[0, 1:13], tables.MATERIALS[1:13]) and not world.palette[0, 13:].any()
    snow = straight(scene="lake", palette_jitter=0.0, weather="snow")
    assert snow.palette[0, 0].tolist() == [207, 221, 203]  # 96 + 0.7 * 159 = 207.3, 140 + 80.5, 80 + 122.5
    assert snow.palette[0, 1].tolist() == [135, 135, 137]  # 70 + 0.35 * 185 = 134.75, 74 + 63.35
    assert snow.palette[0, 7].tolist() == [180, 164, 145]  # 140 + 40.25, 115 + 49, 85 + 59.5
    assert snow.palette[0, 4].tolist() == [205, 219, 200]  # 88 + 116.9, 135 + 84, 70 + 129.5


def test_each_material_is_brighter_or_darker_by_one_factor():
    world = straight(200, seed=4)
    shares = world.palette[:, 1:13] / tables.MATERIALS[1:13]
    free = (world.palette[:, 1:13] < 255).all(axis=-1)
    slack = 0.51 / tables.MATERIALS[1:13].min(axis=-1)
    assert (np.ptp(shares, axis=-1)[free] <= 2 * np.broadcast_to(slack, free.shape)[free]).all()
    kerb = shares[:, 2].mean(axis=-1)
    assert kerb.min() < 0.87 and kerb.max() > 1.13 and 0.84 < kerb.min() and kerb.max() < 1.16
    assert abs(np.corrcoef(shares[:, 2, 0], shares[:, 3, 0])[0, 1]) < 0.25


def test_the_fallback_start_never_shows_the_horizon():
    """A tall picture whose half height, 5.6, is more than tan(1.38) = 5.2: it starts at the steepest allowed pitch."""
    config = TrackingConfig(camera_px=(100, 1350), start_pitch=(1.45, 1.46))
    assert config.tan_v > np.tan(1.38)
    world = make(8, camera_px=(100, 1350), start_pitch=(1.45, 1.46), start_long=(0, 0), start_lat=(60.0, 60.0))
    assert (world.pitch == 1.46).all() and np.isfinite(world.gauge).all()
    stand(world)
    hover(world, (0.0, 0.0, 20.0), 0.0, 1.46)
    world.step(np.full(8, 6))
    assert np.isfinite(world.gauge).all() and (world.r_c > 0).all()
