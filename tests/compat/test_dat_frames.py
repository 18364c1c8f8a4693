"""process_frame: size, channels, order of axes and scale of a network's input."""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.compat.dat import general_env, process_frame
from milkrun.compat.dat.frames import form_of, normalise
from milkrun.core.errors import ConfigError, ShapeError
from milkrun.tracking import LunarLanderConfig, TrackingConfig

SECTION = {"State_size": 84, "State_channel": 3, "Norm_Type": 0}


def form(**changed):
    return TrackingConfig(**{"size": 16, **changed})


def test_red_stays_red():
    """Channel means exactly 1, 0, 0: axes are transposed, not reshaped."""
    red = np.zeros((240, 320, 3), np.uint8)
    red[..., 0] = 255
    state = process_frame(red, SECTION)
    assert state.shape == (3, 84, 84) and state.dtype == np.float32
    assert state.mean(axis=(1, 2)).tolist() == [1.0, 0.0, 0.0]


def test_rows_and_columns_stay_where_they_are():
    """A bright pixel in row 3, column 5 stays there in each channel."""
    image = np.zeros((16, 16, 3), np.uint8)
    image[3, 5] = (255, 51, 0)
    state = process_frame(image, form())
    assert np.argwhere(state).tolist() == [[0, 3, 5], [1, 3, 5]]
    assert state[:, 3, 5].tolist() == [1.0, np.float32(0.2), 0.0]


def test_a_pixel_is_the_mean_of_its_area():
    """At half size: of four pixels. From 24 to 16: 1.5 pixels a side, (100 + 0/2)/1.5 = 66.67, rounded."""
    image = np.zeros((32, 32, 1), np.uint8)
    image[0, 0], image[0, 1], image[1, 0], image[1, 1] = 10, 20, 30, 41
    assert process_frame(image, form(channels=1, norm=None))[0, 0, 0] == 25  # 25.25
    wide = np.zeros((24, 24), np.uint8)
    wide[:, 0] = 100
    assert process_frame(wide, form(channels=1, norm=None))[0, 0, :2].tolist() == [67, 0]
    wide[:, 0], wide[:, 1] = 0, 100
    assert process_frame(wide, form(channels=1, norm=None))[0, 0, :3].tolist() == [33, 33, 0]


def test_every_size_keeps_the_mean():
    """The mean of a picture is that of its state, up to rounding a pixel, also for sizes that do not divide."""
    image = np.random.default_rng(0).integers(0, 256, (400, 600, 3), dtype=np.uint8)
    for size in (16, 84, 97):
        state = process_frame(image, form(size=size, norm=None))
        np.testing.assert_allclose(state.mean(axis=(1, 2)), image.mean(axis=(0, 1)), atol=0.3)


def test_a_picture_of_the_right_size_is_unchanged():
    """Every byte value, processed twice."""
    image = np.arange(768, dtype=np.uint32).astype(np.uint8).reshape(16, 16, 3)
    state = process_frame(image, form(norm=None))
    np.testing.assert_array_equal(state, image.transpose(2, 0, 1))
    np.testing.assert_array_equal(process_frame(state.transpose(1, 2, 0), form(norm=None)), state)


def test_grey_weighs_the_channels():
    """0.299, 0.587, 0.114; a grey picture for an RGB network is repeated."""
    image = np.zeros((16, 16, 3), np.uint8)
    image[0, :3] = [(200, 0, 0), (0, 200, 0), (0, 0, 200)]
    assert process_frame(image, form(channels=1, norm=None))[0, 0, :3].tolist() == [60, 117, 23]
    state = process_frame(np.full((16, 16), 9, np.uint8), form(norm=None))
    assert state.shape == (3, 16, 16) and (state == 9).all()


@pytest.mark.parametrize(
    ("norm", "by_hand"), [(0, lambda v: v / np.float32(255)), (1, lambda v: (v - np.float32(128)) / np.float32(128))]
)
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_all_bytes_are_scaled_exactly(norm, by_hand, chunks):
    """Equal to numpy's division in float32, to the bit, on any number of threads."""
    pixels = np.arange(256, dtype=np.uint8).repeat(5).reshape(4, -1, 4)
    assert normalise(pixels, norm, chunks).tobytes() == by_hand(pixels.astype(np.float32)).tobytes()
    assert normalise(pixels[:, ::2], norm).tobytes() == by_hand(pixels[:, ::2].astype(np.float32)).tobytes()


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((16, 16, 3)),
        np.zeros((16, 16, 4), np.uint8),
        np.zeros(5, np.uint8),
        np.zeros((0, 16, 3), np.uint8),
        None,
    ],
)
def test_an_invalid_picture_is_refused(image):
    """The message names dtype and shape."""
    with pytest.raises(ShapeError, match=r"image: .*must be uint8"):
        process_frame(image, SECTION)


def test_forms_come_from_every_configuration():
    """The world's, LunarLander's, a section of either; a whole file is refused, as is something else."""
    assert form_of(SECTION) == form_of(TrackingConfig())
    assert form_of({"Need_render": 1, "Action_dim": 4, **SECTION}) == form_of(LunarLanderConfig())
    with pytest.raises(ConfigError, match="holds the sections Benchmark"):
        form_of({"Benchmark": SECTION})
    with pytest.raises(ConfigError, match=r"State_size: .*size = 8"):
        form_of({"State_size": 8})
    with pytest.raises(ConfigError, match="not a int"):
        form_of(84)


@pytest.mark.parametrize("env_id", ["LunarLander", "LunarLander-v2", "LunarLander-v3"])
def test_lunar_lander_is_seen_as_pictures(env_id):
    """Gymnasium's, whose rendering the section requests; the picture is the current one for any given state."""
    pytest.importorskip("Box2D")
    pytest.importorskip("pygame")
    env, process = general_env(env_id, {"Need_render": 1, "State_size": 40, "State_channel": 1}, 1, 0)
    state, _ = env.reset(seed=3)
    seen = process(state, env)
    assert seen.shape == (1, 40, 40) and 0 < seen.mean() < 1
    np.testing.assert_array_equal(seen, process(env.render()))
    env.close()
    plain, process = general_env(env_id, {"Need_render": 0}, 1, 0)
    assert plain.render_mode is None and process(np.zeros((84, 84, 3), np.uint8), plain).shape == (3, 84, 84)
    plain.close()


def test_lunar_lander_is_seeded():
    """By seed and environment: the same two give the same episodes, without a seed at the reset."""
    pytest.importorskip("Box2D")
    pytest.importorskip("pygame")

    def starts(row, seed):
        env, _ = general_env("LunarLander", {"Need_render": 0}, 2, row, seed=seed)
        found = [env.reset()[0].tolist() for _ in range(2)]
        env.close()
        return found

    one = starts(0, 5)
    assert one == starts(0, 5) and one[0] != one[1]
    assert one[0] not in (starts(1, 5)[0], starts(0, 6)[0], starts(0, None)[0])
    with pytest.raises(ConfigError, match="seed -1"):
        starts(0, -1)
