"""The commands on dial-a-ride: solve a file in its own numbers, play and compare policies under both rules."""

from __future__ import annotations

import json

import pytest

import milkrun
from milkrun.cli.solve_families import in_file, play_darp
from milkrun.core.errors import MilkrunError
from milkrun.routing.instances import cordeau
from milkrun.solvers import evaluate, policies_for
from tests.published import published_file

PNG = b"\x89PNG\r\n\x1a\n"
ONE = """1 1 100 1 20
0 0 0 0 0 0 100
1 3 0 0 1 0 100
2 10 0 0 -1 50 60
3 0 0 0 0 0 100
"""
THREE = """2 3 100 2 25
0 0 0 0 0 0 120
1 2 3 1 1 0 1440
2 -4 1 1 1 10 25
3 6 -6 1 1 30 45
4 8 -1 1 -1 20 35
5 5 5 1 -1 0 1440
6 -3 -5 1 -1 0 1440
7 0 0 0 0 0 120
"""


@pytest.fixture
def file(tmp_path):
    """Writes a file and gives its path."""

    def write(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def row(output, start):
    """The words of the line with this beginning."""
    return next(line for line in output.splitlines() if line.strip().startswith(start)).split()


def test_solve_by_all_plans_gives_the_best_in_the_numbers_of_the_file(call, file, tmp_path):
    """Nodes 3,1,4,2,5,6 of cost 41.032918 are 2 1 5 4 3 6 in a file of three requests; one vehicle stays."""
    code, out, err = call("solve", file("three.txt", THREE), "--method", "exact", "--out", tmp_path, "--best", 40)
    assert (code, err) == (0, "")
    assert row(out, "distance") == ["distance", "41.03", "(optimal)"] and row(out, "served")[1:] == ["3", "of", "3"]
    assert row(out, "gap")[1:] == ["2.58", "%"] and "yes, by checker and world" in out
    assert sorted(line.partition(": ")[2] for line in out.splitlines() if line.startswith("vehicle")) == [
        "2 1 5 4 3 6",
        "stays",
    ]
    figures = json.loads((tmp_path / "three_exact.json").read_text())
    assert figures["distance"] == figures["cost"] == pytest.approx(41.032918, abs=1e-6)
    assert (
        sorted(figures["routes"]) == [[], [2, 1, 5, 4, 3, 6]] and figures["optimal"] is True and figures["served"] == 3
    )
    assert figures["gap_percent"] == pytest.approx(100 * (41.032918 - 40) / 40, abs=1e-5)
    assert (tmp_path / "three_exact.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ("options", "method"), [(("--iterations", 20), "improve"), (("--method", "insertion"), "insertion")]
)
def test_solve_of_one_request(call, file, tmp_path, options, method):
    """There, on and back is 20, the ride 20; without a method it is improved, without a best value there is no gap."""
    code, out, _ = call("solve", file("one.txt", ONE), "--out", tmp_path, *options)
    assert code == 0
    assert row(out, "method")[1] == f"{method}," and row(out, "distance")[1] == "20.00"
    assert row(out, "longest ride")[2] == "20.00" and "vehicle 1: 1 2\n" in out
    assert not any(line.strip().startswith("gap") for line in out.splitlines())
    figures = json.loads((tmp_path / f"one_{method}.json").read_text())
    assert (figures["routes"], figures["best_known"], figures["optimal"], figures["file"]) == (
        [[1, 2]],
        None,
        False,
        "one.txt",
    )


def test_solve_names_the_requests_left_out(call, file, tmp_path):
    """Two riders at one time at both ends of the town and one car: one is served, and the output says so."""
    text = """1 2 60 1 30
0 0 0 0 0 0 60
1 10 0 0 1 10 12
2 -10 0 0 1 10 12
3 10 5 0 -1 0 60
4 -10 5 0 -1 0 60
5 0 0 0 0 0 60
"""
    code, out, _ = call("solve", file("town.txt", text), "--method", "insertion", "--best", 50, "--out", tmp_path)
    assert code == 0 and row(out, "served")[1:] == ["1", "of", "2"] and "but not all are served" in out
    figures = json.loads((tmp_path / "town_insertion.json").read_text())
    assert figures["distance"] == pytest.approx(15 + 125**0.5) and figures["cost"] == pytest.approx(215 + 125**0.5)


def test_solve_says_what_is_wrong_in_one_line(call, file, tmp_path):
    """A method of other files, an unknown one, too many requests for all plans, a line that does not parse."""
    three = file("three.txt", THREE)
    for method, message in (
        ("savings", "is not for DARP; DARP has insertion, improve, ortools, exact"),
        ("improv", "did you mean 'improve'"),
    ):
        code, _, err = call("solve", three, "--method", method, "--out", tmp_path)
        assert code == 2 and message in err and err.count("\n") == 1
    code, _, err = call("solve", file("cut.txt", THREE.replace("45\n", "\n")), "--out", tmp_path)
    assert code == 2 and "cut.txt, line 5: 6 words" in err and err.count("\n") == 1
    four = THREE.replace("2 3 100", "2 4 100").splitlines()
    lines = [
        four[0],
        *four[1:5],
        "4 1 1 1 1 0 1440",
        *(f"{k + 1}{line[1:]}" for k, line in enumerate(four[5:8], 4)),
        "8 2 2 1 -1 0 1440",
        "9 0 0 0 0 0 120",
    ]
    code, _, err = call("solve", file("four.txt", "\n".join(lines)), "--method", "exact", "--out", tmp_path)
    assert code == 2 and "4 requests" in err and err.count("\n") == 1


def test_nodes_in_the_numbers_of_a_file():
    """Of three requests, nodes 1 to 6 are 1, 4, 2, 5, 3, 6."""
    assert in_file([1, 2, 3, 4, 5, 6], 3) == [1, 4, 2, 5, 3, 6]


def test_a_cost_that_the_world_does_not_confirm_is_a_fault(file):
    """Actions 1, 2, 0 cost 20, not 21."""
    instance = cordeau.load(file("one.txt", ONE))
    assert play_darp(instance, [1, 2, 0], 20.0).terminated[0]
    with pytest.raises(MilkrunError, match="cost 21 to the checker, 20 to the world"):
        play_darp(instance, [1, 2, 0], 21.0)


def test_solve_a2_16(call, tmp_path):
    """The insertion of the reference table, 316.24 with all served, is 7.47 % over the optimum."""
    source = published_file("darp/a2-16.txt")
    code, out, _ = call("solve", source, "--method", "insertion", "--best", 294.25, "--out", tmp_path)
    assert code == 0 and row(out, "served")[1:] == ["16", "of", "16"]
    assert row(out, "distance")[1] == "316.24" and row(out, "gap")[1] == "7.47"
    routes = json.loads((tmp_path / "a2-16_insertion.json").read_text())["routes"]
    assert sorted(node for route in routes for node in route) == list(range(1, 33))


@pytest.mark.parametrize("preset", ["default", "published"])
def test_run_draws_the_best_and_the_median(call, tmp_path, preset):
    """Under both rules, with the returns of `evaluate`."""
    code, _, _ = call(
        "run",
        "milkrun/DARP-v0",
        "--policy",
        "soonest",
        "--num-envs",
        16,
        "--preset",
        preset,
        "--seed",
        5,
        "--out",
        tmp_path,
    )
    assert code == 0
    figures = json.loads((tmp_path / "DARP-v0_soonest.json").read_text())
    world = milkrun.make("milkrun/DARP-v0", 16, preset=preset)
    result = evaluate(world, policies_for("milkrun/DARP-v0")["soonest"](5), 16, seed=5)
    assert figures["mean"] == pytest.approx(result.mean, abs=1e-12)
    assert figures["best"]["return"] == pytest.approx(max(result.returns), abs=1e-12)
    assert (tmp_path / "DARP-v0_soonest.png").read_bytes().startswith(PNG)


def test_eval_puts_soonest_before_random(call, tmp_path):
    """It is better on nearly every instance."""
    code, out, _ = call("eval", "DARP-v0", "--policies", "random,soonest", "--instances", 100, "--out", tmp_path)
    assert code == 0
    figures = json.loads((tmp_path / "DARP-v0_eval.json").read_text())["policies"]
    assert [p["policy"] for p in figures] == ["soonest", "random"] and figures[0]["best_share"] > 0.9
    assert row(out, "soonest")[1] == f"{figures[0]['mean']:.4f}"
