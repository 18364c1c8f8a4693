"""A recorder does not change its world, records the same episodes under every autoreset mode, and gives reasons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import milkrun
from milkrun.core.actions import discrete
from milkrun.core.config import Config
from milkrun.core.errors import ConfigError, ResetNeeded
from milkrun.core.fields import bool_, float32, instance, int64, mask, state
from milkrun.core.kernels import kernel
from milkrun.core.world import World
from milkrun.render.recorder import OVER, EpisodeRecorder
from milkrun.render.scene import Bar, Chart, Scene

MODES = ("disabled", "next_step", "same_step")


@kernel
def generate(w, b):
    for j in range(w.N):
        w.places[w.instance_row[b], j, 0] = j
        w.places[w.instance_row[b], j, 1] = j * j


@kernel
def reset(w, b):
    w.here[b] = 0
    for j in range(w.N):
        w.seen[b, j] = j == 0
        w.action_mask[b, j] = j > 0


@kernel
def step(w, b, action):
    w.here[b] = action
    w.walked[b] += 1
    w.seen[b, action] = True
    w.action_mask[b, action] = False
    w.reward[b] = -action
    left = 0
    for j in range(w.N):
        left += w.action_mask[b, j]
    w.terminated[b] = left == 0


@dataclass(frozen=True, kw_only=True)
class PlainConfig(Config):
    """No options."""


class Walk(World):
    """Four places to visit once each; defines no scene."""

    Config = PlainConfig
    action = discrete("N")
    places = instance(float32, "N", 2)
    here = state(int64, index="N")
    seen = state(bool_, "N")
    walked = state(int64)
    action_mask = mask("N")

    @classmethod
    def size_of(cls, config):
        return {"N": 4}

    def why_illegal(self, row, action):
        return f"place {action} has been seen"


Walk.bind(generate=generate, reset=reset, step=step)


def walk(cls=Walk, **options):
    """Interpreted, to save compile time."""
    world = cls(1, seed=1, autoreset="disabled", debug=True, **options)
    world.reset()
    return world


def lowest(world):
    return world.action_mask.argmax(axis=1)


def test_a_world_of_fields_alone_has_points_a_vehicle_and_figures():
    """The field of places, the index into them, the flags as colours, the remaining number, and the names."""
    recorder = EpisodeRecorder(walk())
    for action in (2, 1, 3):
        recorder.step([action])
    (r,) = recorder.episodes()
    last = r.scenes[-1]
    assert last.marks["places"].attributes["xy"].tolist() == [[0, 0], [1, 1], [2, 4], [3, 9]]
    assert [s.marks["here"].attributes["xy"].tolist() for s in r.scenes] == [[0, 0], [2, 4], [1, 1], [3, 9]]
    assert r.scenes[1].marks["places"].attributes["colour"].tolist() == [3, 0, 3, 0]
    assert r.header["names"] == [["places 0", "places 1", "places 2", "places 3"]] and r.header["agents"] == ["agent"]
    assert [s.figures["walked"] for s in r.scenes] == [0, 1, 2, 3]
    assert (r.rewards, r.objectives, r.end) == ([-2, -1, -3], [0, -2, -3, -6], "terminated")
    assert [m.tolist() for m in r.masks[:2]] == [[False, True, True, True], [False, True, False, True]]
    assert r.mask_reasons[1] == ["place 0 has been seen", "", "place 2 has been seen", ""] and set(
        r.mask_reasons[3]
    ) == {"", OVER}


def test_a_chart_of_an_unknown_field_is_refused():
    """Raised when recording begins, with the closest name; the same for a field of the caller."""

    class Charted(Walk):
        chart_fields = ("walkd",)

    with pytest.raises(ConfigError, match="Charted: chart_fields names 'walkd', which is no field; did you mean 'walk"):
        EpisodeRecorder(walk(Charted))
    with pytest.raises(ConfigError, match=r"^fields names 'sen', which is no field; did you mean 'seen'"):
        EpisodeRecorder(walk(), fields=("sen",))


@pytest.mark.parametrize(
    ("chart", "said"),
    [
        (
            lambda self, row, frames: Chart(("walker",), (Bar("wlker", "walks", 0, 1),)),
            r"Bar\(.*the lanes are 'walker'",
        ),
        (lambda self, row, frames: [1, 2], "it must be a Chart or None, not a list"),
    ],
    ids=["lane", "list"],
)
def test_an_invalid_chart_names_its_world_and_step(chart, said):
    """As for a scene."""
    recorder = EpisodeRecorder(walk(type("Charted", (Walk,), {"chart": chart})))
    recorder.step([2])
    with pytest.raises(ConfigError, match=rf"^Charted, chart of step 1: {said}"):
        recorder.episodes()


def test_a_world_that_draws_is_shown_by_its_picture():
    """The result of `render` is the image of every frame."""

    class Drawn(Walk):
        def draw(self, row, canvas):
            canvas.caption(f"at {self.here[row]}")

    world = walk(Drawn)
    recorder = EpisodeRecorder(world)
    before = world.render(0)
    recorder.step([2])
    (r,) = recorder.episodes()
    assert (r.scenes[0].images["picture"] == before).all() and (r.scenes[1].images["picture"] == world.render(0)).all()
    assert not r.scenes[0].marks and r.scenes[1].figures == {"walked": 1}


def test_an_illegal_step_keeps_the_reason_of_before():
    """Place 2 twice: the second time it had been visited. An action out of range has its own reason."""
    recorder = EpisodeRecorder(walk())
    for action in (2, 2, 7):
        recorder.step([action])
    (r,) = recorder.episodes()
    assert r.illegal == [False, True, True]
    assert r.illegal_reasons == [(1, 0, "place 2 has been seen"), (2, 0, "7 is not one of its 4 actions")]


@pytest.mark.parametrize(
    ("reasons", "all_recorded", "requested_recorded"),
    [("auto", True, True), ("all", True, True), ("requested", False, True), ("none", False, False)],
)
def test_reasons_are_kept_as_configured(reasons, all_recorded, requested_recorded):
    """Of every masked action, of those that were played, or none."""
    recorder = EpisodeRecorder(walk(), reasons=reasons)
    recorder.step([0])
    (r,) = recorder.episodes()
    assert (r.mask_reasons is not None) == all_recorded and bool(r.illegal_reasons) == requested_recorded


def test_too_many_reasons_are_left_out(monkeypatch):
    """Under "auto" from the frame on at which frames times actions exceed the limit; "all" keeps them."""
    monkeypatch.setattr("milkrun.render.recorder.MOST_REASONS", 8)
    kept = {}
    for reasons in ("auto", "all"):
        recorder = EpisodeRecorder(walk(), reasons=reasons)
        recorder.step([1])
        kept[reasons, 1] = recorder.episodes()[0].mask_reasons is not None
        recorder.step([2])
        kept[reasons, 2] = recorder.episodes()[0].mask_reasons is not None
    assert kept == {("auto", 1): True, ("auto", 2): False, ("all", 1): True, ("all", 2): True}


def test_scores_are_those_of_the_steps_they_were_noted_before():
    """A step that raises drops its scores."""
    recorder = EpisodeRecorder(walk())
    recorder.note_scores([[0, 1, 2, 3]])
    with pytest.raises(milkrun.core.errors.ShapeError):
        recorder.step([[1, 2]])
    recorder.note_scores([[3, 2, 1, 0]])
    recorder.step([1])
    (r,) = recorder.episodes()
    assert [s.tolist() for s in r.scores] == [[3, 2, 1, 0]]


@pytest.mark.parametrize("scores", [None, 3, "many", [0, 1, 2, 3], [[0, 1, 2]], [[0, 1, 2, 3]] * 2, [[0, 1, 2, 3j]]])
def test_scores_are_a_number_an_action_of_every_row(scores):
    """Another shape would assign scores to wrong actions."""
    recorder = EpisodeRecorder(walk())
    with pytest.raises(milkrun.core.errors.ShapeError, match=r"scores must be numbers of shape \(1, 4\)"):
        recorder.note_scores(scores)


def test_only_a_world_is_recorded():
    """The error names the type."""
    with pytest.raises(ConfigError, match=r"an EpisodeRecorder records a world as milkrun\.make returns it, not a int"):
        EpisodeRecorder(3)


def test_unknown_rows_and_worlds_without_a_reset_are_refused():
    """The error of `reset(rows)`, and ResetNeeded."""
    with pytest.raises(milkrun.core.errors.MilkrunError, match="5"):
        EpisodeRecorder(walk(), [5])
    with pytest.raises(ResetNeeded):
        EpisodeRecorder(Walk(1, debug=True))
    with pytest.raises(ConfigError, match="reasons='some'"):
        EpisodeRecorder(walk(), reasons="some")


def changing(second):
    """A world whose second scene is made by `second`."""

    class Changing(Walk):
        def scene(self, row):
            scene = Scene((0, 0), (3, 9))
            if self.i[row] == 0:
                scene.points("nodes", self.places[0], text=lambda: ["a", "b", "c", "d"])
            else:
                second(scene, self.places[0])
            return scene

    recorder = EpisodeRecorder(walk(Changing))
    recorder.step([1])


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (lambda s, xy: None, "mark 'nodes' is missing"),
        (lambda s, xy: s.points("other", xy), "mark 'nodes' is missing"),
        (lambda s, xy: s.vehicle("nodes", xy[0]), "mark 'nodes' is vehicle, before it was points"),
        (lambda s, xy: s.points("nodes", xy[:2], text=["a", "b"]), r"mark 'nodes', xy: the shape \(2, 2\), before"),
        (lambda s, xy: s.points("nodes", xy), "mark 'nodes' has no text any more"),
        (
            lambda s, xy: s.points("nodes", xy, action=[0, 1, 2, 4]),
            r"mark 'nodes', action: 0\.\.4 is not within -1\.\.3",
        ),
    ],
)
def test_a_scene_that_changes_its_marks_is_refused(second, why):
    """The error names world, step, mark and attribute."""
    with pytest.raises(ConfigError, match=f"Changing, scene of step [01]: {why}"):
        changing(second)


def played(mode, rows=3, steps=30):
    world = milkrun.make("milkrun/CVRP-v0", rows, seed=4, num_loc=5, autoreset=mode)
    world.reset()
    recorder = EpisodeRecorder(world, [2, 0])
    for _ in range(steps):
        if mode == "disabled" and world.done.any():
            world.reset(np.flatnonzero(world.done))
        recorder.step(lowest(world))
    return recorder


def test_episodes_are_the_same_under_every_autoreset():
    """Whether rows wait, restart on their next turn or at once: the first two episodes of both rows, scene by scene."""
    logs = []
    for mode in MODES:
        episodes = [r for r in played(mode).episodes() if r.number < 2]
        assert [(r.world_row, r.number) for r in episodes] == [(0, 0), (0, 1), (2, 0), (2, 1)]
        logs.append(episodes)
    for one, two, three in zip(*logs, strict=True):
        for other in (two, three):
            assert (one.header, one.rewards, one.objectives, one.mask_reasons, one.end) == (
                other.header,
                other.rewards,
                other.objectives,
                other.mask_reasons,
                other.end,
            )
            assert np.array_equal(one.masks, other.masks) and one.actions == other.actions
            for a, b in zip(one.scenes, other.scenes, strict=True):
                assert (a.figures, a.gauges) == (b.figures, b.gauges)
                assert a.marks["tour"].attributes["stops"].tolist() == b.marks["tour"].attributes["stops"].tolist()


@pytest.mark.parametrize("mode", MODES)
def test_recording_changes_nothing(mode):
    """All arrays of a recorded world equal those of an unrecorded one, bit for bit."""
    watched = played(mode).world
    world = milkrun.make("milkrun/CVRP-v0", 3, seed=4, num_loc=5, autoreset=mode)
    world.reset()
    for _ in range(30):
        if mode == "disabled" and world.done.any():
            world.reset(np.flatnonzero(world.done))
        world.step(lowest(world))
    mine, other = watched.state_dict(), world.state_dict()
    assert all(np.array_equal(mine[name], other[name]) for name in other)


def test_a_reset_in_between_begins_an_episode():
    """The unfinished episode stays, without an end."""
    recorder = played("disabled", steps=2)
    recorder.world.reset()
    recorder.step(lowest(recorder.world))
    steps = [(r.world_row, r.number, r.steps, r.end) for r in recorder.episodes()]
    assert steps == [(0, 0, 2, ""), (0, 1, 1, ""), (2, 0, 2, ""), (2, 1, 1, "")]
