"""A film has a picture of every step, and the GIF shows what was rendered."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
from PIL import Image

import milkrun
from milkrun.core.errors import MissingExtra
from milkrun.replay import animation
from milkrun.replay.animation import Film, palette_of, photograph_palette, stride
from milkrun.replay.tracking import FlightFilm
from milkrun.solvers import policies_for, rollout


class Slides:
    """A world whose row shows a bar that grows by a pixel a step, and ends after so many steps."""

    def __init__(self, length, colours=2):
        self.length = length
        self.colours = colours
        self.i, self.terminated, self.truncated = (np.zeros(2, kind) for kind in (int, bool, bool))

    def step(self, actions, rows=None):
        self.i[1] += 1
        self.terminated[1] = self.i[1] == self.length

    def render(self, row):
        picture = np.zeros((16, 64, 3), np.uint8)
        picture[..., 1] = np.arange(1024).reshape(16, 64) % self.colours
        picture[8, : self.i[row]] = (200, 30, 40)
        return picture


def gif(path):
    """(pictures, their durations in ms)."""
    image = Image.open(path)
    frames, times = [], []
    for k in range(image.n_frames):
        image.seek(k)
        frames.append(np.asarray(image.convert("RGB")))
        times.append(image.info["duration"])
    return frames, times


@pytest.fixture(scope="module")
def filmed(tmp_path_factory):
    """An episode of greedy: the film, the pictures before and after it, its steps, and the file."""
    world = milkrun.make("milkrun/TruckDrone-v0", 2, seed=1, autoreset="disabled")
    world.reset()
    first, film = world.render(1), Film(world, row=1)
    policy = policies_for("TruckDrone-v0")["greedy"](0)
    rollout(film, lambda _: policy(world))
    path = tmp_path_factory.mktemp("film") / "film.gif"
    film.save(path)
    return film, first, world.render(1), int(world.i[1]), path


def test_a_film_has_the_start_and_every_step(filmed):
    """Steps + 1 pictures, although the other row of the world plays longer or shorter; the ends are the renders."""
    film, first, last, steps, _ = filmed
    frames = list(film.frames())
    assert len(film) == len(frames) == steps + 1
    assert (frames[0] == first).all() and (frames[-1] == last).all()


def test_the_gif_shows_every_picture(filmed):
    """As many pictures as the film; only blends at edges may differ, slightly. Below 1.5 MB."""
    film, *_, path = filmed
    frames, _ = gif(path)
    assert len(frames) == len(film) and path.stat().st_size < 1.5e6
    for shown, taken in zip(frames, film.frames(), strict=True):
        off = abs(shown.astype(int) - taken).max(axis=2)
        assert off.max() <= 12 and (off > 0).mean() < 0.005


def test_up_to_256_colours_the_gif_is_exact(tmp_path):
    """255 greens and a red; the first picture lasts 0.6 s, the others 0.09 s, the last 2.5 s."""
    film = Film(Slides(5, colours=255), row=1)
    for _ in range(5):
        film.step([0])
    film.save(tmp_path / "a.gif")
    frames, times = gif(tmp_path / "a.gif")
    assert times == [600, 90, 90, 90, 90, 2500]
    for shown, k in zip(frames, range(6), strict=True):
        world = Slides(5, colours=255)
        world.i[1] = k
        assert (shown == world.render(1)).all()


def test_a_film_of_one_picture(tmp_path):
    """Nothing was played: a GIF of one picture."""
    film = Film(Slides(5), row=1)
    film.save(tmp_path / "a.gif")
    frames, _ = gif(tmp_path / "a.gif")
    assert len(frames) == 1 and (frames[0] == Slides(5).render(1)).all()


def test_a_long_episode_is_filmed_every_few_steps_and_at_its_end():
    """Every fourth of ten steps: 0, 4, 8 and 10."""
    film = Film(Slides(10), row=1, every=4)
    for _ in range(10):
        film.step([0])
    assert [int((frame == (200, 30, 40)).all(axis=2).sum()) for frame in film.frames()] == [0, 4, 8, 10]


@pytest.mark.parametrize(("steps", "every"), [(0, 1), (200, 1), (398, 1), (399, 2), (10**6, 2513)])
def test_no_film_is_longer_than_400_pictures(steps, every):
    """The start, every n-th step, the end."""
    assert stride(steps) == every
    assert 2 + (steps - 1) // every <= animation.MOST_FRAMES


def test_a_palette_keeps_the_common_colours_and_spreads_the_rest():
    """300 greys, three of them common: these are kept, and none is farther than one grey from a kept one."""
    greys = np.arange(300, dtype=np.int32) * 0x000100 % 0x10000 + (np.arange(300, dtype=np.int32) // 256)
    counts = np.where(np.isin(np.arange(300), [7, 77, 177]), 51, 1)
    palette = palette_of(greys, counts)
    assert len(palette) == 256 and (np.diff(palette) > 0).all()
    assert set(greys[[7, 77, 177]].tolist()) <= set(palette.tolist())
    rgb = animation._unpacked(greys).astype(int)[:, None] - animation._unpacked(palette).astype(int)
    assert (rgb**2).sum(axis=2).min(axis=1).max() == 1


def photographs(count=24, noise=3.0):
    """A camera that pans over soft colours with noise of 3 of 255, next to a plan in which a dot moves."""
    y, x = np.mgrid[:96, : 96 + 4 * count]
    ground = np.stack([90 + 60 * np.sin(x / 25), 120 + 50 * np.cos(y / 20), 60 + y], axis=-1)
    ground[(x // 30 + y // 24) % 2 == 0] *= 0.7
    rng, taken = np.random.default_rng(0), []
    for k in range(count):
        seen = ground[:, 4 * k : 4 * k + 96] + rng.normal(0, noise, (96, 96, 3))
        plan = np.full((96, 96, 3), 245, np.uint8)
        plan[20:60, 20:22] = 0
        plan[40:44, 2 * k : 2 * k + 4] = (200, 30, 40)
        taken.append(np.concatenate([np.clip(seen, 0, 255).astype(np.uint8), plan], axis=1))
    return taken


class Camera(Slides):
    """A world whose row shows one photograph after another."""

    def __init__(self, taken):
        super().__init__(len(taken) - 1)
        self.taken = taken

    def render(self, row):
        return self.taken[self.i[row]]


@pytest.mark.parametrize(("scale", "most"), [(1, 120_000), (2, 40_000)])
def test_photographs_make_a_small_gif(tmp_path, scale, most):
    """Some 8,000 new colours a picture: each is shown with little error, in a fifth of a byte a pixel. Changes by the
    camera's noise alone take no room."""
    taken = photographs()
    film = Film(Camera(taken), row=1, scale=scale)
    for _ in taken[1:]:
        film.step([0])
    assert sum(map(len, film._changes)) < 0.6 * sum(picture.nbytes for picture in film.frames())
    film.save(tmp_path / "a.gif")
    frames, _ = gif(tmp_path / "a.gif")
    assert len(frames) == len(taken) and (tmp_path / "a.gif").stat().st_size < most
    for shown, kept in zip(frames, film.frames(), strict=True):
        off = abs(shown.astype(int) - kept).max(axis=2)
        assert off.mean() < 8 and np.quantile(off, 0.99) <= 24
        assert (shown[:, -10:] == shown[0, -1]).all() and abs(shown[0, -1].astype(int) - 245).max() <= 4


def test_a_film_may_be_halved():
    """Each pixel is the mean of four, what is left over at the edge is cut off."""
    picture = np.zeros((5, 4, 3), np.uint8)
    picture[:2, :2, 0] = [[10, 20], [30, 42]]
    picture[2:4, 2:] = 255
    (halved,) = Film(Camera([picture]), row=1, scale=2).frames()
    assert halved[..., 0].tolist() == [[26, 0], [0, 255]] and halved[..., 1].tolist() == [[0, 0], [0, 255]]


def test_the_palette_of_photographs_has_few_colours_near_to_all():
    """32 greys in 8 places, four each over at most 25: none is farther than 13; as many places as colours keep all."""
    counts = np.zeros(32**3, np.int64)
    counts[[k * (1024 + 32 + 1) for k in range(32)]] = 100
    kept = photograph_palette(counts, 8)[:, 0].astype(int)
    greys = animation.FIVE_BITS[counts > 0][:, 0]
    assert len(kept) == 8 and abs(greys[:, None] - kept).min(axis=1).max() <= 13
    assert sorted(photograph_palette(counts, 64)[:, 0].tolist()) == greys.tolist()


def test_without_pillow_the_extra_is_named(monkeypatch):
    """The error of every optional package."""
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "milkrun.replay.animation")
    with pytest.raises(MissingExtra, match=r"needs pillow.*\.\[cli\]"):
        importlib.import_module("milkrun.replay.animation")


def test_a_film_is_as_fast_as_the_flight():
    """Of every fifth of 125 steps a second a picture stands 40 ms; of every step the 20 ms that browsers keep to."""
    world = milkrun.make("milkrun/Tracking-v0", 2, seed=5, size=16)
    world.reset()
    film = FlightFilm(world, every=5)
    assert film.step_ms == 40 and FlightFilm(film.world).step_ms == 20
