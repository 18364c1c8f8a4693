"""The camera of the tracking world equals an independent ray caster: faces, colours, noise, flakes, grey, samples.

Rows of all scenes and weathers are rendered from random poses: a quarter in front of a wall at 0.3 m to 1 mm, a quarter
inside a box, the rest anywhere and at the target; half of them with roll.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from milkrun.core.fields import Role
from milkrun.tracking import TrackingConfig, render, streams
from milkrun.tracking.config import SCENES, WEATHERS
from milkrun.tracking.world import Tracking
from tests.reference import tracking_rays as rays

pytestmark = pytest.mark.truth

BEFORE_WALL, IN_BOX, ANYWHERE, AT_TARGET = range(4)
AS_HELD = {"palette_blended": True, "lamp_dimmed": False}
"""The world's palette includes snow; the gain of a lamp excludes the ambient share."""
VISIBLE = 3
"""Levels of a channel by which pixels may differ: the world rounds colours to float32."""


def build(num_envs: int, seed: int, **options: Any) -> Any:
    config = TrackingConfig(**{"scene": SCENES, "weather": WEATHERS, "noise": False, **options})
    world: Any = Tracking(num_envs, config, seed=seed, autoreset="disabled")
    world.reset()
    return world


def row_of(world: Any, b: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Town and state of a row by field."""
    roles = {f.name: f.role for f in world.fields.values()}
    q = int(world.instance_row[b])
    town = {name: getattr(world, name)[q] for name, role in roles.items() if role is Role.INSTANCE}
    return town, {name: getattr(world, name)[b] for name, role in roles.items() if role is Role.STATE}


def camera_of(world: Any, b: int) -> rays.Camera:
    c = world.config
    numbers = {"size": c.size, "hfov": c.hfov, "camera_px": c.camera_px, "near": c.near, "details": c.details}
    map_of = {"half_extent": c.half_extent, "ground_cell": c.ground_cell}
    return rays.camera_of(row_of(world, b)[1], roll=float(world.roll[b]), **numbers, **map_of, **AS_HELD)


def pose(world: Any, b: int, sort: int, draw: np.random.Generator) -> tuple[np.ndarray, float, float]:
    """Place, yaw and pitch of a camera."""
    yaw = draw.uniform(-math.pi, math.pi)
    if sort == ANYWHERE:
        return np.array([*draw.uniform(-110, 110, 2), draw.uniform(0.5, 40)]), yaw, draw.uniform(-0.3, 1.5)
    if sort == AT_TARGET:
        pitch, far = draw.uniform(0.1, 1.4), draw.uniform(3, 30)
        back = far * np.array([math.cos(yaw) * math.cos(pitch), math.sin(yaw) * math.cos(pitch), -math.sin(pitch)])
        return np.array([*world.veh_pose[b, 0, :2], 0.0]) - back, yaw, pitch
    k = int(draw.integers(world.n_box[b]))
    half, turn = world.box_half[b, k], float(world.box_yaw[b, k])
    local, pitch = draw.uniform(-1, 1, 3) * half, draw.uniform(-1.5, 1.5)
    if sort == BEFORE_WALL:
        axis, sign = int(draw.integers(2)), draw.choice((-1, 1))
        local[axis] = sign * (half[axis] + 10 ** draw.uniform(-3, math.log10(0.3)))
        towards = turn + axis * math.pi / 2 + (math.pi if sign > 0 else 0.0)
        yaw, pitch = towards + draw.uniform(-1.2, 1.2), draw.uniform(-0.5, 1.2)
    at = world.box_pos[b, k] + rays.turned_back(-turn, local)
    at[2] = max(at[2], 0.01)
    return at, yaw, pitch


def compare(frames: int, seed: int) -> tuple[list[int], list[float]]:
    """Returns the differing pixels of each frame, and how many a yaw of 0.004 rad changes; asserts on faces and
    edges."""
    draw = np.random.default_rng(seed)
    world = build(24, seed)
    found, turned = [], []
    for n in range(frames):
        b = int(draw.integers(24))
        world.pos[b], world.yaw[b], world.pitch[b] = pose(world, b, n % 4, draw)
        world.roll[b] = draw.uniform(-math.pi, math.pi) if draw.random() < 0.5 else 0.0
        image, ids, depth = world.shot(b)
        frame = rays.cast(*row_of(world, b), camera_of(world, b))
        assert np.array_equal(ids, frame.ids), f"frame {n} of seed {seed}"
        assert np.allclose(1 / depth, 1 / frame.depth, rtol=1e-5, atol=1e-7)
        differs = pixels(image, frame.image)
        assert not (differs & ~frame.edge).any(), f"frame {n} of seed {seed}"
        found.append(int(differs.sum()))
        if n % 4 >= ANYWHERE:
            camera = camera_of(world, b)
            other = rays.cast(*row_of(world, b), replace(camera, yaw=camera.yaw + 0.004))
            turned.append(int(pixels(image, other.image).sum()))
    return found, turned


def pixels(image: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.abs(image.astype(int) - other.astype(int)).max(axis=0) > VISIBLE


def assert_few_differences(found: list[int], turned: list[float]) -> None:
    """99 of 100 frames are equal, and none differs in more than two pixels; a turned camera changes more."""
    assert np.mean(np.array(found) == 0) >= 0.99 and max(found) <= 2
    assert np.median(turned) > 20


def test_pictures_are_those_of_the_ray_caster():
    """80 poses: all faces the same, colours within 3 levels; a yaw of 0.004 rad more changes more than 20 pixels."""
    assert_few_differences(*compare(80, seed=0))


@pytest.mark.long
def test_two_thousand_pictures_are_those_of_the_ray_caster():
    """500 in front of walls, 500 inside boxes, 1,000 elsewhere, in 240 towns."""
    parts = [compare(200, seed) for seed in range(1, 11)]
    assert_few_differences([n for found, _ in parts for n in found], [n for _, turned in parts for n in turned])


def observed_rows(**options: Any) -> Iterator[tuple[Any, int, np.ndarray]]:
    """Rows of a world after some steps, with their observed pictures."""
    world = build(8, seed=3, **options)
    for turn in range(3):
        world.step(np.arange(8) % 7)
        images = world.observe()["image"]
        for b in range(turn, 8, 3):
            yield world, b, images[b]


def expected(world: Any, b: int, times: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Colour of a row's picture before flakes, noise and rounding, and its edges."""
    town, state = row_of(world, b)
    if times == 1:
        frame = rays.cast(town, state, camera_of(world, b))
        return frame.colour, frame.edge
    return rays.supersampled(town, state, camera_of(world, b), times)


def same(image: np.ndarray, want: np.ndarray, edge: np.ndarray) -> bool:
    """Equal, except for rounding by one level and for two pixels on edges."""
    off = np.abs(image.astype(int) - want.astype(int)).max(axis=0)
    return bool((off[~edge] <= 1).all() and (off > 1).sum() <= 2 and (off > 0).mean() < 0.02)


def test_noise_and_flakes_are_those_of_their_streams():
    """Each pixel of 8 rows in all weathers; the test draws noise and flakes from the same streams."""
    weathers = set()
    for world, b, image in observed_rows(noise=True):
        key, step = tuple(int(k) for k in world.stream[b]), int(world.agent_step[b])
        sigma, density, size = float(world.light[b, 6]), float(world.light[b, 7]), world.config.size
        flakes = rays.flakes(size, density, step, key, streams.FLAKES)
        noise = rays.noise(size, sigma, step, key, streams.FRAME)
        colour, edge = expected(world, b)
        assert same(image, rays.finished(colour, flakes, noise), edge)
        weathers.add(int(world.weather_id[b]))
        assert flakes.any() == (density > 0)
    assert weathers >= {rays.SNOW} and len(weathers) >= 3


def test_noise_on_the_sky_is_exact():
    """The sky has integer levels, so no rounding occurs: every pixel is equal, flakes included."""
    world = build(4, seed=1, weather=("snow", "night"), noise=True)
    world.pos[:, 2], world.pitch[:] = 45.0, -1.0
    images = world.observe()["image"]
    for b in range(4):
        key, size = tuple(int(k) for k in world.stream[b]), world.config.size
        flakes = rays.flakes(size, float(world.light[b, 7]), 0, key, streams.FLAKES)
        noise = rays.noise(size, float(world.light[b, 6]), 0, key, streams.FRAME)
        sky = np.tile(world.sky[b].astype(float), (size, size, 1))
        assert np.array_equal(images[b], rays.finished(sky, flakes, noise))


def test_grey_is_weighted_after_the_samples():
    """channels=1, size 40: 0.299, 0.587, 0.114 of the colours."""
    for world, b, image in observed_rows(channels=1, size=40):
        colour, edge = expected(world, b)
        assert image.shape == (1, 40, 40) and same(image, rays.finished(rays.grey(colour)), edge)


def test_samples_are_averaged():
    """supersample=2: means of 2 x 2 samples, fog before the mean; also at half the size, and without details."""
    for world, b, image in observed_rows(supersample=2, size=42, details=False):
        colour, edge = expected(world, b, times=2)
        assert same(image, rays.finished(colour), edge)


def test_other_sizes_and_sensors():
    """A picture of another size, and a sensor with other angles and an odd size."""
    world = build(6, seed=4, size=33, hfov=1.2, camera_px=(400, 400), start_pitch=(1.0, 1.3))
    for b in range(6):
        for size in (33, 70):
            image, ids, _ = world.shot(b, size=size)
            frame = rays.cast(*row_of(world, b), replace(camera_of(world, b), size=size))
            assert np.array_equal(ids, frame.ids) and not (pixels(image, frame.image) & ~frame.edge).any()


def test_render_shows_given_boxes_as_the_ray_caster_does():
    """Boxes, ground and weather given to `render`, with roll, above and among the boxes."""
    draw = np.random.default_rng(7)
    for n in range(12):
        count = int(draw.integers(1, 40))
        boxes = {
            "pos": np.c_[draw.uniform(-40, 40, (count, 2)), draw.uniform(1, 10, count)],
            "half": draw.uniform(0.3, 6, (count, 3)),
            "yaw": draw.uniform(-4, 4, count),
            "rgb": draw.integers(0, 256, (count, 2, 3), dtype=np.uint8),
            "kind": draw.integers(1, 9, count),
        }
        ground, weather = draw.integers(0, 256, (120, 120), dtype=np.uint8), WEATHERS[n % 4]
        ground[ground & 15 > 12] &= 0xF0
        at, (yaw, pitch, roll) = (*draw.uniform(-30, 30, 2), draw.uniform(0.5, 30)), draw.uniform(-1.4, 1.4, 3)
        image, ids, _ = render(at, yaw, pitch, roll, boxes, ground, weather, size=64)
        town, state = given(boxes, ground, weather)
        camera = rays.Camera(at, yaw, pitch, roll, size=64, ground_cell=2.0, **AS_HELD)
        frame = rays.cast(town, state, camera)
        assert np.array_equal(ids, frame.ids)
        differs = pixels(image, frame.image)
        assert differs.sum() <= 2 and not (differs & ~frame.edge).any()


def given(boxes: dict[str, Any], ground: np.ndarray, weather: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same as the fields of a row without vehicles."""
    from milkrun.tracking.rendering import weather as fields

    town = {f"box_{name}": boxes[name] for name in boxes} | {"n_box": len(boxes["pos"]), "ground": ground}
    return town, fields(weather) | {"n_veh": 0, "veh_pose": np.zeros((1, 3)), "veh_on": np.zeros(1, bool)}
