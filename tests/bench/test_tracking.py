"""The tracking benchmark counts steps of live rows, puts boxes in front of cameras, and gives its peer the same."""

import importlib.util
import json
import re
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from bench import tracking
from bench.tracking import COUNTS, OWN, QUALITIES, Flight, Pace, Sizes, crowded, scene_of, stagger, world_of

OPTIONS = Namespace(quick=True, clock="cpu")
TINY = Sizes(
    rows=2,
    rounds=1,
    turns=2,
    scenes=1,
    seconds=0.01,
    processes=1,
    repeats=1,
    min_seconds=1e-3,
    options={"ground_cell": 2.0, "size": 32, "max_sim_steps": 60},
)
SCRIPT = Path(tracking.__file__).parent / "peers" / "mujoco_frames.py"


def at(rows):
    return TINY._replace(rows=rows)


def answer(scenes, size, seconds):
    """A stub of MuJoCo that returns at once."""
    return {count: {way: {"wall": 10.0, "cpu": 20.0, "same": 1.0} for way in QUALITIES} for count in scenes}


def test_rows_stand_at_all_points_of_an_episode_and_only_live_ones_count():
    """Five rows of 15 steps end in turn, three steps after one another; a turn that resets a row has four steps."""
    world = stagger(world_of(at(5), max_sim_steps=60, curriculum="straight_mono"))
    assert world.agent_step.tolist() == [0, 3, 6, 9, 12]
    counted, step = [], world.step

    def counting(actions):
        before = world.agent_step.copy()
        step(actions)
        counted.append(int(np.count_nonzero(world.agent_step > before)))

    world.step = counting
    paces = Flight(world).play(6)
    assert sum(counted) == 29 and min(counted) == 4
    spent = {name: n / getattr(paces, name).cpu for name, n in (("whole", 29), ("step", 25), ("picture", 30))}
    assert spent["whole"] >= spent["step"] + spent["picture"]  # more by the turn that resets


def test_without_pictures_none_is_made():
    """The image stays as it was, and no rate is given for it."""
    world = world_of(TINY)
    world.observe()
    before = world.image.copy()
    paces = Flight(world).play(3, with_pictures=False)
    np.testing.assert_array_equal(world.image, before)
    assert np.isnan(paces.picture.cpu) and paces.whole.cpu <= paces.step.cpu


def test_a_crowd_stands_before_every_camera_and_every_round_begins_there():
    """All boxes are in the picture's cone, within 70 m, below the drone; most can be seen; no row ends."""
    flight = crowded(at(3), 160)
    world = flight.world
    assert world.n_box.tolist() == [160] * 3 and world.tallest.max() < 9 < world.pos[:, 2].min()
    for row in range(3):
        assert not world.terminated[row]
        way = world.box_pos[row, :160, :2] - world.pos[row, :2]
        assert np.hypot(*way.T).max() < 80
        seen = np.unique(scene_of(world, row)["seen"])
        assert np.count_nonzero(seen >= 0) > 60
    starts = []
    for _ in range(2):
        flight.play(2)
        starts.append((world.pos.copy(), world.agent_step.tolist()))
        assert not world.done.any()
    assert starts[0][1] == starts[1][1] == [2] * 3
    np.testing.assert_array_equal(starts[0][0], starts[1][0])


def test_the_peer_gets_all_that_it_reads_and_no_more():
    """Its script does not import ours: the keys that it reads are those of a scene."""
    text = SCRIPT.read_text()
    read = set(re.findall(r'scene\["(\w+)"\]', text))
    scene = scene_of(crowded(TINY, COUNTS[0] - OWN, max_vehicles=1).world, 1)
    assert read == set(scene)
    assert set(re.findall(r'box\["(\w+)"\]', text)) == set(scene["boxes"][0])
    assert len(scene["boxes"]) == COUNTS[0] and np.array(scene["seen"]).shape == (32, 32)
    assert set(QUALITIES) == set(re.findall(r'"([\w ,]+)": \(\d, \d\)', text))


@pytest.mark.long
def test_a_whole_table(monkeypatch):
    """Tiny: every promise has a finite number, ratios are to the peer's rates by the chosen clock."""
    monkeypatch.setattr(tracking, "run_osmesa", answer)
    monkeypatch.setattr(tracking, "first_state", lambda options: Pace(wall=2.0, cpu=1.5))
    table, promised = tracking.tracking_table(OPTIONS, TINY)
    assert len(promised) == 15 and all(map(np.isfinite, promised.values()))
    assert all(value > 0 for name, value in promised.items() if "adds" not in name)  # a difference, of two turns
    rows = {row["measured"]: row for row in table.rows}
    name = "pictures alone, 160 boxes, 1 sample (peer: MuJoCo on OSMesa, as it comes)"
    assert rows[name]["ratio"] == pytest.approx(rows[name]["a CPU-second"] / 20)
    assert promised[f"Tracking, {name} (promised 5, goal 15)"] == rows[name]["ratio"]
    whole = [row["a CPU-second"] for name, row in rows.items() if re.fullmatch(r"whole steps, \w+", name)]
    assert len(whole) == 6
    assert promised["Tracking, whole steps/s a core, worst of six scenes (promised 6000, goal 10000)"] == min(whole)
    own, shared = (
        rows[f"memory a row, {label}, fields: kB"]["milkrun"] for label in ("a town each", "all on one town")
    )
    assert rows["first state of a worker process, kernels on disk: s"]["milkrun"] == 1.5
    assert own - shared > 120 * 120 / 1e3 / 2  # half of the ground at least, two rows share one
    json.dumps(table.rows)


def test_without_osmesa_the_table_says_why(monkeypatch):
    """The rows stay, without promises."""
    monkeypatch.setattr(tracking, "run_osmesa", lambda *given: "skipped: not here")
    results = tracking._Results(OPTIONS, TINY)
    tracking._add_pictures(results)
    assert [row["peer"] for row in results.table.rows] == ["skipped: not here"] * 6
    assert all(row["milkrun"] > 0 for row in results.table.rows) and not results.promised


def test_a_peer_that_fails_is_skipped_with_its_last_words():
    """An invalid scene, in place of a missing library."""
    reason = tracking.run_osmesa({"40": [{}]}, 32, 0.01)
    assert reason.startswith("skipped, it needs") and len(reason) > 60


def test_mujoco_sees_the_same_boxes():
    """With OSMesa: at the same pose nearly every pixel shows the same box as in our picture."""
    if importlib.util.find_spec("mujoco") is None:
        pytest.skip("mujoco is not installed")
    world = crowded(TINY, 38, max_vehicles=1, size=84).world
    found = tracking.run_osmesa({"40": [scene_of(world, row) for row in range(2)]}, 84, 0.03)
    if isinstance(found, str):
        pytest.skip(found)
    for theirs in found["40"].values():
        assert theirs["same"] > 0.99 and theirs["cpu"] > 0


def test_rates_follow_the_clock():
    """With --clock cpu promises use processor time."""
    assert Pace(wall=7.0, cpu=5.0).by("wall") == 7.0
    assert Pace(wall=7.0, cpu=5.0).by("cpu") == 5.0
