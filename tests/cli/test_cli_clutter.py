"""`milkrun run` of picking from clutter: pictures, the events and a film of the median episode."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from PIL import Image

import milkrun
from milkrun.clutter import CATALOGUE, Clutter
from milkrun.clutter.stages import CARRY
from milkrun.render.canvas import Canvas
from milkrun.render.painter import paint_legend
from milkrun.render.top_view import bodies_of, rasterise_bodies
from milkrun.replay.clutter import CELL, HEAD, Picks, draw_scene, film_of, sheet_of_worlds
from milkrun.solvers import rollout
from milkrun.solvers.clutter import highest, lowest

ID = "milkrun/Clutter-v0"
SMALL = {"preset": "small_scene", "split": "test"}
SHORT = {**SMALL, "max_episode_steps_discrete": 2}
pytestmark = pytest.mark.filterwarnings("ignore:max_episode_steps_discrete = 2 attempts cannot clear")


def test_run_writes_picture_events_and_film(call, tmp_path):
    """All of the median episode: a line an attempt, and a film whose last picture is the end of the episode."""
    code, out, _ = call(
        "run",
        "Clutter-v0",
        "--num-envs",
        3,
        "--preset",
        "small_scene",
        "--set",
        "split=test",
        "--set",
        "max_episode_steps_discrete=2",
        "--out",
        tmp_path,
    )
    assert code == 0
    stem = "Clutter-v0_highest"
    summary = json.loads((tmp_path / f"{stem}.json").read_text())
    assert summary["files"] == {"log": f"{stem}_log.csv", "film": f"{stem}_film.gif"}
    assert "mean percent cleared" in out and "a film of the median episode" in out
    median = summary["median"]
    world = milkrun.make(ID, 1, first_row=median["row"], autoreset="disabled", **SHORT)
    world.reset(seed=0)
    rollout(world, highest)
    assert float(world.objective[0]) == median["return"]
    with (tmp_path / f"{stem}_log.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(int(line["target"]), line["result"]) for line in lines] == [
        (event["target"], event["result"]) for event in world.events(0)
    ]
    assert lines[0]["type"] in world.config.box_objects and "moved_5" in lines[0]
    with Image.open(tmp_path / f"{stem}_film.gif") as film:
        film.seek(film.n_frames - 1)
        last = np.asarray(film.convert("RGB")).astype(int)
    assert abs(last - world.render(0)).max() <= 40  # a film has 256 colours
    assert (tmp_path / f"{stem}.png").read_bytes().startswith(b"\x89PNG")


def test_demo_writes_no_film(tmp_path):
    from milkrun.cli.play import play

    summary = play(
        ID,
        "random",
        tmp_path,
        num_envs=2,
        episodes=2,
        seed=0,
        settings={"split": "test"},
        preset="small_scene",
        in_detail=False,
    )
    assert "files" not in summary and [file.suffix for file in tmp_path.iterdir()] == [".png"]


def test_a_film_plays_the_same_bits():
    """The attempts of an episode of picks, again a tick a step: the pile ends as it did."""
    world = milkrun.make(ID, 1, autoreset="disabled", **SHORT)
    world.reset(seed=4)
    watched = Picks(world)
    rollout(watched, lambda _: highest(world))
    again = milkrun.make(ID, 1, autoreset="disabled", step_mode="tick", **SHORT)
    again.reset(seed=4)
    film = film_of(again, watched.targets)
    assert watched.targets == [event["target"] for event in world.events(0)]
    assert np.array_equal(world.physics, again.physics) and world.objective[0] == pytest.approx(again.objective[0])
    assert len(watched.targets) < len(film) <= 400


def test_a_sheet_has_a_cell_for_each_attempt_and_the_end():
    """Six attempts and the empty tray, four in a line, under the legend."""
    world = milkrun.make(ID, 1, autoreset="disabled", **SMALL)
    world.reset(seed=4)
    watched = Picks(world)
    rollout(watched, lambda _: highest(world))
    cells = len(watched.targets) + 1
    assert watched.sheet().shape == (HEAD + -(-cells // 4) * (HEAD + CELL), 4 * CELL, 3)


def test_a_sheet_says_which_objects_were_lost(monkeypatch):
    """A cup that holds everything and pulls hard throws neighbours out of the tray."""
    world = milkrun.make(ID, 1, autoreset="disabled", suction_force=500, lift_acc=40)
    world.reset(seed=0)
    watched, said = Picks(world), []
    rollout(watched, lambda _: lowest(world))
    monkeypatch.setattr("milkrun.replay.clutter.sheet_of", lambda scenes, heads: said.extend(heads) or scenes[0])
    watched.sheet()
    gone = np.flatnonzero(world.lost[0]).tolist()
    assert gone and sorted(i for lost in watched.losses for i in lost) == gone
    assert [len(lost) for lost in watched.losses] == [event["lost"] for event in world.events(0)]
    for lost, (head, red) in zip(watched.losses, said, strict=False):
        few = f", loses {' '.join(map(str, lost))}"
        assert not lost or (red and head.endswith(few if len(lost) < 4 else f", {len(lost)} lost"))
    assert said[-1] == (f"the end: 0 left, {len(gone)} lost", True)


def test_a_sheet_of_worlds_has_a_line_for_each():
    worlds = {}
    for preset in ("small_scene", "loose_scene"):
        worlds[preset] = milkrun.make(ID, 2, preset=preset, split="test")
        worlds[preset].reset(seed=0)
    assert sheet_of_worlds(worlds, 2).shape == (2 * (HEAD + CELL), 2 * CELL, 3)


def test_a_line_of_attempts_shows_each_apart():
    """Twenty attempts, as many as the largest preset has, and what is lost: white between any two."""
    world = milkrun.make(ID, 1, preset="large_scene", split="test")
    world.reset(seed=0)
    world.records[0], world.log_result[0] = 20, np.arange(20) % 2 + 1
    world.log_target[0], world.lost[0, :12] = np.arange(20) % 18, True
    tallies = world.scene(0).tallies
    assert [words for words, _, _ in tallies] == [*(str(k % 18) for k in range(20)), *map(str, range(12))]
    assert [shape for _, _, shape in tallies] == [*["disc", "ring"] * 10, *["square"] * 12]
    pixels, legend = world.render(0), world.scene(0).legends + world.scene(0).tally_legends
    assert [words for words, _, _ in world.scene(0).tally_legends] == ["tried, in order: out", "not out", "lost"]
    bottom = 512 - 17 * paint_legend(Canvas(), legend)
    line = (pixels[bottom - 18 : bottom - 6] != 255).any((0, 2))
    assert (np.diff(line.astype(int)) == 1).sum() == 32


def test_what_the_cup_carries_is_shown_whole():
    """On its way to the drop it is held at the edge, below the caption: all of a disc of 13 pixels and its edge."""
    world = milkrun.make(ID, 1, **SMALL)
    world.reset(seed=0)
    world.grasped[0, 0] = True
    world.obj_pose[0, 0, :3] = 1.3, -0.5, 0.09  # where MuJoCo keeps what is out
    empty = world.render(0)
    world.env_stage[0], world.current_suction_object[0], world.cup_pos[0] = CARRY, 0, (0, 0.4, 0.45)
    changed = (world.render(0) != empty).any(2)[25:]  # below the caption
    assert changed.sum() == pytest.approx(np.pi * 13.5**2, rel=0.03)


def test_a_legend_of_many_types_takes_several_lines():
    """All eleven types of the catalogue do not fit side by side: nothing is cut off."""
    types = tuple(CATALOGUE)[:11]  # without types that other tests have registered
    world = Clutter(1, Clutter.Config(box_objects=types, num_objects_per_type=1, bank_size=1))
    world.reset(seed=0)
    entries, canvas = world.scene(0).legends[:11], Canvas(1200, 100)
    assert paint_legend(canvas, entries, size=2) == 2 and len(entries) == 11
    assert (canvas.pixels[:, -4:] == 255).all() and (canvas.pixels[45:65] != 255).any()


def test_what_lies_on_top_is_seen():
    """A picture shows of every pixel what the rays of the world's own map meet there."""
    world = milkrun.make(
        ID,
        1,
        maps=True,
        map_size=64,
        box_objects=("004_sugar_box", "005_tomato_soup_can"),
        num_objects_per_type=2,
        bank_size=1,
    )
    world.reset(seed=0)
    world.observe()
    canvas, half = Canvas(64, 64), world.config.side / 2
    canvas.fit((-half, -half), (half, half), margin=0)
    seen = rasterise_bodies(canvas, [body for body in bodies_of(world.scene(0)) if body.label], 0.02)
    assert np.array_equal(seen.body, world.segmentation[0])
    met = seen.body >= 0
    assert seen.z[met] == pytest.approx(world.height[0][met] * 0.3, abs=1e-6)


@pytest.mark.parametrize("mode", [{"use_discrete_action": False}, {"step_mode": "tick"}])
def test_every_way_of_acting_is_shown(mode, tmp_path):
    """Also a cup that is moved by hand, of which there is a log but no film, and steps that are ticks."""
    from milkrun.cli.play import play

    settings = {"max_ticks": 60, **mode}
    summary = play(ID, "random", tmp_path, num_envs=2, episodes=2, seed=0, settings=settings, preset="small_scene")
    assert set(summary["files"]) == ({"log"} if "use_discrete_action" in mode else {"log", "film"})


def test_a_scene_marks_its_target():
    """The outline of the target is the only red there is."""
    world = Clutter(1, Clutter.Config.preset("small_scene").replace(split="test"))
    world.reset(seed=0)
    red = (204, 51, 51)
    assert not (draw_scene(world, 0, 200) == red).all(2).any()
    assert (draw_scene(world, 0, 200, target=int(highest(world)[0])) == red).all(2).sum() > 50
