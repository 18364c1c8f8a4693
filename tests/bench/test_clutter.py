"""The clutter benchmark times picks without resets, gives its peer the same macro, and its parts of a step add up."""

import json
import re
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mujoco")

from bench import clutter
from bench.clutter import Episodes, Pace, Sizes, clutter_table, shares, task_of

OPTIONS = Namespace(quick=True, clock="wall")
TINY = Sizes(
    rows=2,
    rounds=1,
    turns=1,
    single_turns=2,
    seconds=0.1,
    scenes=2,
    stretches=2,
    made=2,
    bank=2,
    repeats=1,
    min_seconds=1e-3,
)
SAPIEN = {preset: {"wall": 10.0, "cpu": 20.0, "substeps": 50.0} for preset in ("default", "loose_scene")}


@pytest.fixture
def sapien(tmp_path, monkeypatch):
    """A stub of SAPIEN that returns at once."""
    python = tmp_path / ".venv-sapien" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho '{json.dumps(SAPIEN)}'\n")
    python.chmod(0o755)
    monkeypatch.chdir(tmp_path)


def test_only_picks_are_counted_and_rows_stand_at_all_points_of_an_episode():
    """A call that ends a pick says how long it took; one that resets the row says 0."""
    played = Episodes("small_scene", 9, threads=1)
    assert len(set(played.world.step_count)) >= 6
    counted = [(played.play(1), np.count_nonzero(played.world.last_ticks)) for _ in range(4)]
    assert [own for own, _ in counted] == [ticks for _, ticks in counted]
    assert min(own for own, _ in counted) < 9


def test_the_parts_of_a_step_add_up_and_timing_them_changes_nothing():
    """The same picks as in an untimed world."""
    timed, plain = (Episodes("small_scene", 3, threads=1) for _ in range(2))
    found = shares(timed, 2)
    plain.play(2)
    assert sum(found[name] for name in ("kernels", "rollout", "place", "rest")) == pytest.approx(1)
    assert min(found.values()) > 0 and found["substeps"] > 3
    np.testing.assert_array_equal(timed.world.physics, plain.world.physics)
    assert "step" not in vars(timed.world) and type(timed.world.engine) is type(plain.world.engine)


@pytest.mark.long
def test_a_whole_table(sapien):
    """Tiny: every promise has a finite number, ratios are to the peer's rates."""
    table, promised = clutter_table(OPTIONS, TINY)
    rows = {row["measured"]: row for row in table.rows}
    assert len(promised) == 14 and all(np.isfinite(value) and value > 0 for value in promised.values())
    for preset, theirs in SAPIEN.items():
        row = rows[f"{preset} (peer: SAPIEN, one process)"]
        assert row["ratio"] == pytest.approx(row["milkrun"] / theirs["wall"])
        assert row["ratio a core"] == pytest.approx(row["a CPU-second"] / theirs["cpu"])
        assert (row["peer"], row["peer, a CPU-second"]) == (theirs["wall"], theirs["cpu"])


def test_sapien_and_we_play_in_turns(monkeypatch):
    """Each stretch of ours is followed by one of SAPIEN, on its share of the scenes and of the seconds."""
    calls: list[object] = []
    monkeypatch.setattr(clutter, "paces", lambda played, **how: calls.append("ours") or [Pace(8.0, 4.0)])

    def answer(preset, scenes, seconds):
        calls.append((preset, list(range(5))[scenes], seconds))
        return {preset: {"wall": float(len(calls)), "cpu": 2.0, "substeps": 50.0}}

    monkeypatch.setattr(clutter, "run_sapien", answer)
    results = clutter._Results(OPTIONS, TINY._replace(scenes=5, stretches=3, seconds=6.0))
    assert clutter._add_sapien(results) == 50.0
    assert calls[:6] == [
        "ours",
        ("default", [0, 3], 2.0),
        "ours",
        ("default", [1, 4], 2.0),
        "ours",
        ("default", [2], 2.0),
    ]
    assert results.table.rows[0]["peer"] == 4.0 and results.table.rows[0]["ratio"] == 2.0  # 2, 4 and 6 picks a second


def test_without_sapien_the_table_says_why(tmp_path, monkeypatch):
    """The rows stay, without promises."""
    monkeypatch.chdir(tmp_path)
    results = clutter._Results(OPTIONS, TINY)
    clutter._add_sapien(results)
    assert [row["peer"] for row in results.table.rows] == [
        "skipped: .venv-sapien/bin/python is not there (make bench builds it)"
    ] * 2
    assert not results.promised
    assert "skipped" in "\n".join(results.table.lines())


def test_processor_time_counts_for_each_thread():
    """With --clock cpu a rate is that of as many idle cores as threads."""
    pace = Pace(wall=7.0, cpu=5.0)
    assert pace.whole("wall") == 7.0
    assert pace.whole("cpu") == 10.0
    assert pace.whole("cpu", threads=1) == 5.0


def test_sapien_gets_all_that_its_macro_reads():
    """Its script does not import ours: the keys that it reads are those of a task."""
    script = Path(clutter.__file__).parent / "peers" / "sapien_picks.py"
    read = set(re.findall(r'task\["(\w+)"\]', script.read_text()))
    task = task_of("default", slice(2))
    assert read == set(task)
    assert np.array(task["poses"]).shape == (2, 12, 7) == (2, *np.array(task["parking"]).shape)
    inner = min(abs(at[0]) - half[0] for half, at in task["boxes"] if at[0])
    assert abs(np.array(task["poses"])[..., :2]).max() < inner
