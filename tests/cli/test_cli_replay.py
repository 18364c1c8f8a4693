"""The commands that write pages: what they print, what stands in the file, and what they refuse."""

from __future__ import annotations

import json
import re

import pytest

import milkrun
from milkrun.cli.evaluate import instances_for_page
from milkrun.replay.episode import Episode
from milkrun.solvers import evaluate, policies_for
from tests.cli.test_cli_darp import ONE
from tests.cli.test_cli_delivery import TRIANGLE

CVRP = ["CVRP-v0", "--set", "num_loc=6", "--seed", 4]
SQUARE = """NAME: square
TYPE: TSP
DIMENSION: 4
EDGE_WEIGHT_TYPE: EUC_2D
NODE_COORD_SECTION
1 0 0
2 10 10
3 10 0
4 0 10
EOF
"""
MATRIX = """NAME: matrix
TYPE: TSP
DIMENSION: 3
EDGE_WEIGHT_TYPE: EXPLICIT
EDGE_WEIGHT_FORMAT: FULL_MATRIX
EDGE_WEIGHT_SECTION
0 1 2
1 0 3
2 3 0
EOF
"""


def page_of(path):
    """The data that a page holds: its title, and the episodes of each instance."""
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text())[1])
    return data["title"], [[Episode(figures) for figures in group["episodes"]] for group in data["groups"]]


def test_replay_writes_a_page_of_policies_and_methods_on_the_rows_named(call, tmp_path):
    """Two rows, a policy and a method of `solve` on each; the returns are those of the episodes and are printed."""
    code, out, err = call(
        "replay", *CVRP, "--policies", "nearest,savings", "--rows", "2,0", "--json", "--out", tmp_path
    )
    assert (code, err) == (0, "")
    _, groups = page_of(tmp_path / "CVRP-v0_replay.html")
    assert [[(e.policy, e.data["row"]) for e in group] for group in groups] == [
        [("nearest", 2), ("savings", 2)],
        [("nearest", 0), ("savings", 0)],
    ]
    world = milkrun.make("milkrun/CVRP-v0", 3, seed=4, num_loc=6)
    returns = evaluate(world, policies_for("CVRP-v0")["nearest"](4), 3, seed=4).returns
    assert [group[0].objective for group in groups] == [returns[2], returns[0]]
    assert f"{returns[2]:.4f}" in out and "CVRP-v0_replay.html" in out.splitlines()[-1]

    files = [tmp_path / f"CVRP-v0_replay_{name}_{row}.json" for row in (2, 0) for name in ("nearest", "savings")]
    code, _, _ = call("replay", *files, "--out", tmp_path)
    assert code == 0 and page_of(tmp_path / "saved_replay.html")[1] == groups


def test_a_return_that_may_be_near_zero_has_differences_and_no_shares(call, tmp_path):
    """Profits: "4747.0 % behind" of a return near 0 says nothing, the difference does."""
    code, out, _ = call("replay", "VRPP-v0", "--policies", "random,greedy", "--rows", "1", "--out", tmp_path)
    (group,) = page_of(tmp_path / "VRPP-v0_replay.html")[1]
    first, second = (one.objective for one in group)
    assert code == 0 and f"{abs(first - second):.4f}" in out and "%" not in out
    _, out, _ = call("replay", *CVRP, "--policies", "random,nearest", "--out", tmp_path)
    first, second = (one.objective for one in page_of(tmp_path / "CVRP-v0_replay.html")[1][0])
    assert f"{100 * (second - first) / -second:.1f} %" in out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--policies", "nearest,savings,insertion,ls"], "4 policies: 1 to 3 are allowed"),
        (["--policies", ""], "has no policy or method ''"),
        (["--policies", "nearest,nearest"], "the policy 'nearest' is given twice"),
        (["--policies", "savinks"], "has no policy or method 'savinks'; did you mean 'savings'?"),
        (["--rows", "0,0"], "--rows '0,0': must be different numbers >= 0, separated by commas"),
        (["--rows", "-1"], "--rows '-1': must be different numbers"),
        (["TSP-v0"], "one world, or files that end in .json: not 'CVRP-v0', 'TSP-v0'"),
    ],
)
def test_replay_refuses_in_a_sentence_and_writes_nothing(call, tmp_path, options, sentence):
    """Usage errors; no page is written, not even in part."""
    code, out, err = call("replay", *CVRP, *options, "--out", tmp_path)
    assert (code, out) == (2, "") and err.startswith("error: ") and sentence in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read"),
        ("[1, 2", "JSON"),
        ('{"format": "other", "version": 1}', "'other'"),
        ('{"format": "milkrun-episode", "version": 2}', "version"),
    ],
)
def test_replay_of_a_file_that_is_no_episode_names_it(call, tmp_path, content, sentence):
    """Absent, not JSON, another format, another version: the file and what was found."""
    file = tmp_path / "some.json"
    if content is not None:
        file.write_text(content)
    code, _, err = call("replay", file, "--out", tmp_path)
    assert code != 0 and "some.json" in err and sentence in err
    assert not list(tmp_path.glob("*.html"))


def test_run_writes_a_page_of_its_best_and_median_episodes(call, tmp_path):
    """Rows and returns on the page are those of the summary."""
    code, out, _ = call("run", *CVRP, "--num-envs", 2, "--episodes", 6, "--page", "--out", tmp_path)
    figures = json.loads((tmp_path / "CVRP-v0_nearest.json").read_text())
    _, groups = page_of(tmp_path / "CVRP-v0_nearest_replay.html")
    wanted = {(figures[k]["row"], figures[k]["episode"], figures[k]["return"]) for k in ("best", "median")}
    assert code == 0 and len(groups) == 2 and "CVRP-v0_nearest_replay.html" in out
    assert {(e.data["row"], e.data["episode"], e.objective) for (e,) in groups} == wanted


def test_eval_writes_a_page_of_the_instance_where_policies_differ_most(call, tmp_path):
    """The first group has the largest difference of all twelve instances, the other the one of rank 6."""
    code, out, _ = call(
        "eval", *CVRP, "--policies", "random,nearest", "--instances", 12, "--num-envs", 5, "--page", "--out", tmp_path
    )
    _, groups = page_of(tmp_path / "CVRP-v0_eval_replay.html")
    world = milkrun.make("milkrun/CVRP-v0", 5, num_loc=6)
    returns = [evaluate(world, policies_for("CVRP-v0")[name](4), 12, seed=4).returns for name in ("nearest", "random")]
    apart = sorted(abs(returns[0] - returns[1]), reverse=True)
    assert code == 0 and "where they differ most" in out and "_eval.json" in out
    assert [[e.policy for e in group] for group in groups] == [["nearest", "random"]] * 2
    assert [abs(a.objective - b.objective) for a, b in groups] == [apart[0], apart[6]]


def test_an_eval_of_one_policy_shows_its_best_and_its_median():
    """Nothing differs there, so the ranking is that of the returns."""
    result = evaluate(milkrun.make("milkrun/TSP-v0", 2, num_loc=5), policies_for("TSP-v0")["nearest"](0), 5)
    assert instances_for_page([result]) == [result.where(result.best), result.where(result.median)]


@pytest.mark.parametrize(
    ("name", "text", "method", "world", "objective"),
    [
        ("square.tsp", SQUARE, "2opt", "milkrun/TSP-v0", -40.0),
        ("one.txt", ONE, "insertion", "milkrun/DARP-v0", -20.0),
        ("triangle.txt", TRIANGLE, "exact", "milkrun/TSPD-v0", -10.0),
    ],
    ids=["routing", "dial-a-ride", "truck and drone"],
)
def test_solve_drives_its_answer_on_a_page(call, tmp_path, name, text, method, world, objective):
    """Around a square of side 10 it is 40; there, on and back of one ride 20; the truck drives 10 while the drone flies
    6."""
    (tmp_path / name).write_text(text)
    code, out, err = call("solve", tmp_path / name, "--method", method, "--page", "--out", tmp_path)
    assert (code, err) == (0, ""), err
    (written,) = tmp_path.glob(f"*_{method}_replay.html")
    title, [[driven]] = page_of(written)
    assert (driven.world, driven.policy, driven.data["end"]) == (world, method, "terminated")
    assert driven.objective == pytest.approx(objective, rel=1e-9)
    assert written.name in out and title.startswith(f"{name.partition('.')[0]}, {method}: ")
    subtitle = json.loads(re.search(r'"subtitle": *(".*?")', written.read_text())[1])
    assert subtitle == f"{world.removeprefix('milkrun/')} · {name}"  # no seed made it


def test_solve_refuses_a_page_without_places_or_with_many_answers(call, tmp_path):
    """A file of distances alone has no places; a folder has no one answer."""
    (tmp_path / "matrix.tsp").write_text(MATRIX)
    code, _, err = call("solve", tmp_path / "matrix.tsp", "--page", "--out", tmp_path / "out")
    assert code == 2 and "matrix.tsp has distances but no coordinates" in err
    code, _, err = call("solve", tmp_path, "--page", "--out", tmp_path / "out")
    assert code == 2 and "--page is of one file" in err and not (tmp_path / "out").exists()


def test_report_writes_index_html_into_the_folder_it_read(call, tmp_path):
    """The table of an evaluation becomes a page; the error of a missing folder names it."""
    call("eval", *CVRP, "--policies", "random,nearest", "--instances", 2, "--out", tmp_path)
    code, out, err = call("report", tmp_path)
    assert (code, err) == (0, "") and "index.html" in out
    assert "nearest" in (tmp_path / "index.html").read_text()
    code, _, err = call("report", tmp_path / "nowhere")
    assert code == 2 and "nowhere" in err


def test_saved_episodes_of_one_name_are_all_written(call, tmp_path):
    """The same policy and row under two seeds: two files, with two returns."""
    for seed in (4, 5):
        call("replay", *CVRP[:3], "--seed", seed, "--policies", "nearest", "--json", "--out", tmp_path / str(seed))
    files = [tmp_path / str(seed) / "CVRP-v0_replay_nearest_0.json" for seed in (4, 5)]
    code, _, _ = call("replay", *files, "--json", "--out", tmp_path / "both")
    assert code == 0
    written = sorted((tmp_path / "both").glob("*.json"))
    assert [Episode.load(f).objective for f in written] == [Episode.load(f).objective for f in files]
