"""The commands on truck and drones: a film, a chart and the log of a run, and TSP-D files solved."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path

import pytest
from PIL import Image

import milkrun
from milkrun.cli.output import read_settings
from milkrun.cli.play import play
from milkrun.cli.solve_families import in_words, is_tspd_file, play_tspd
from milkrun.core.errors import MilkrunError
from milkrun.delivery import kpis
from milkrun.delivery.instances import Operation, load_tspd, load_tspd_solution
from milkrun.delivery.tasks import tspd_cost
from milkrun.solvers import evaluate, policies_for, rollout
from tests.published import published_file

PNG = b"\x89PNG\r\n\x1a\n"
TRIANGLE = """/*The speed of the Truck*/
1.0
/*The speed of the Drone*/
0.5
/*Number of Nodes*/
3
/*The Depot*/
0.0 0.0 depot
/*The Locations (x_coor y_coor name)*/
3.0 4.0 loc1
6.0 0.0 loc2
"""
PLAN = """/* Number of Operations */
1
0 0 2 1 1
"""


@pytest.fixture
def file(tmp_path):
    """Writes a file and gives its path."""

    def write(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def row(output, start):
    """The words of the line with this beginning, without these."""
    line = next(line.strip() for line in output.splitlines() if line.strip().startswith(start))
    return line.removeprefix(start).split()


def spans(path, length):
    """The time of each agent in a log, checked to follow without a gap from 0."""
    lanes = defaultdict(list)
    with path.open() as lines:
        for line in csv.DictReader(lines):
            if float(line["t1"]) > float(line["t0"]):
                lanes[line["agent"]].append((float(line["t0"]), float(line["t1"])))
    for lane in lanes.values():
        assert lane[0][0] == 0 and lane[-1][1] == pytest.approx(length, abs=1e-9)
        assert [t0 for t0, _ in lane[1:]] == [t1 for _, t1 in lane[:-1]]
    return lanes


def test_run_of_truck_and_drones_writes_chart_log_and_film(call, tmp_path):
    """All of the median episode: a picture a step and one before, lanes that tile, the deliveries that were made."""
    code, out, _ = call("run", "TruckDrone-v0", "--num-envs", 9, "--seed", 3, "--out", tmp_path)
    assert code == 0
    summary = json.loads((tmp_path / "TruckDrone-v0_greedy.json").read_text())
    steps = summary["median"]["steps"]
    assert summary["files"] == {
        kind: f"TruckDrone-v0_greedy_{ending}"
        for kind, ending in (("gantt", "gantt.png"), ("log", "log.csv"), ("film", "film.gif"))
    }
    assert Image.open(tmp_path / summary["files"]["film"]).n_frames == steps + 1
    assert (tmp_path / summary["files"]["gantt"]).read_bytes().startswith(PNG)
    assert (tmp_path / "TruckDrone-v0_greedy.png").read_bytes().startswith(PNG)
    log = tmp_path / summary["files"]["log"]
    assert set(spans(log, steps)) == {"truck_0", "drone_0", "drone_1"}
    with log.open() as lines:
        served = {int(line["ref"]) for line in csv.DictReader(lines) if line["kind"] == "served"}
    world = milkrun.make("milkrun/TruckDrone-v0", 1, seed=3, first_row=summary["median"]["row"], autoreset="disabled")
    world.reset()
    rollout(world, policies_for("TruckDrone-v0")["greedy"](3))
    assert served == set(world.served[0].nonzero()[0].tolist()) and len(served) >= 5
    for name in summary["files"].values():
        assert f"{tmp_path / name}  " in out


def test_run_prints_the_mean_figures_of_all_episodes(call, tmp_path):
    """20 episodes in 8 rows: two of each row, a third of the first four; the figures of each as it ended."""
    code, out, _ = call("run", "TruckDrone-v0", "--num-envs", 8, "--episodes", 20, "--out", tmp_path)
    assert code == 0
    mean = json.loads((tmp_path / "TruckDrone-v0_greedy.json").read_text())["kpis"]
    world = milkrun.make("milkrun/TruckDrone-v0", 8, seed=0, autoreset="disabled")
    found = defaultdict(list)
    for rows in (8, 8, 4):
        world.reset()
        rollout(world, policies_for("TruckDrone-v0")["greedy"](0))
        for name, values in kpis(world).items():
            found[name] += values[:rows].tolist()
    names = ["served", "on_time", "lateness", "energy", "truck_distance", "drone_distance", "sorties", "makespan"]
    assert list(mean) == list(found)
    for name in found:
        assert mean[name][0] == pytest.approx(sum(found[name]) / 20, rel=1e-12)
    for name in names:
        assert row(out, f"mean {name.replace('_', ' ')}") == [f"{mean[name][0]:.3f}"]


def test_the_demo_writes_no_film(tmp_path):
    """Without detail only the picture is written; the mean figures are there all the same."""
    summary = play("milkrun/TruckDrone-v0", "parked", tmp_path, num_envs=3, episodes=3, seed=0, in_detail=False)
    assert [path.name for path in tmp_path.iterdir()] == ["TruckDrone-v0_parked.png"]
    assert "files" not in summary and summary["kpis"]["truck_distance"] == [0, 0]


def test_run_of_the_tsp_with_drone(call, tmp_path):
    """Its heuristic is `partition`; the log of the median tiles the makespan, which is minus the return."""
    code, out, _ = call("run", "TSPD-v0", "--num-envs", 6, "--set", "num_nodes=7", "--out", tmp_path)
    assert code == 0
    summary = json.loads((tmp_path / "TSPD-v0_partition.json").read_text())
    assert list(summary["files"]) == ["gantt", "log"] and not list(tmp_path.glob("*.gif"))
    assert set(spans(tmp_path / summary["files"]["log"], -summary["median"]["return"])) == {"truck", "drone"}
    assert (tmp_path / summary["files"]["gantt"]).read_bytes().startswith(PNG)
    assert summary["kpis"]["makespan"][0] == pytest.approx(-summary["mean"], rel=1e-12)
    assert row(out, "mean makespan") == [f"{-summary['mean']:.3f}"]
    world = milkrun.make("milkrun/TSPD-v0", 6, num_nodes=7)
    random = evaluate(world, policies_for("TSPD-v0")["random"](0), 60)
    assert summary["mean"] > random.mean


def test_solve_gives_the_best_plan(call, file, tmp_path):
    """Legs 5, 5, 6: the truck alone needs 16; it drives 0-1-0 in 10 while the drone needs 6 for 0-2-0: 37.5 % saved."""
    code, out, err = call("solve", file("triangle.txt", TRIANGLE), "--best", 8, "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    assert row(out, "makespan") == ["10.000000", "(optimal)"] and row(out, "truck only") == ["16.000000"]
    assert row(out, "saving") == ["37.50", "%"] and row(out, "gap") == ["25.00", "%"]
    assert "operation 1: truck 0 1 0, drone 0 2 0, cost 10.000000\n" in out and "yes, by checker and world" in out
    figures = json.loads((tmp_path / "out" / "triangle_exact.json").read_text())
    assert figures["operations"] == [{"start": 0, "end": 0, "fly": 2, "internal": [1], "cost": 10.0}]
    assert (figures["makespan"], figures["truck_only"], figures["saving"]) == (10, 16, 0.375)
    assert figures["kpis"]["drone_wait"] == 4 and figures["optimal"] is True
    plan = load_tspd_solution(tmp_path / "out" / "triangle_exact.txt", nodes=3)
    assert plan.operations == (Operation(0, 0, 2, (1,)),) and plan.total == 10
    for name in ("triangle_exact.png", "triangle_exact_gantt.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(PNG)


@pytest.mark.parametrize(("method", "makespan", "operations"), [("partition", 10, 1), ("truck_only", 16, 3)])
def test_solve_by_other_methods(call, file, tmp_path, method, makespan, operations):
    """Along the tour 0-1-2 the same plan is found; without the drone there is nothing to save, and no proof of it."""
    code, out, _ = call("solve", file("triangle.txt", TRIANGLE), "--method", method, "--out", tmp_path)
    assert code == 0 and row(out, "makespan") == [f"{makespan:.6f}"] and row(out, "operations") == [str(operations)]
    assert row(out, "saving") == [f"{100 * (1 - makespan / 16):.2f}", "%"]


def test_beyond_12_nodes_the_tour_is_split(call, file, tmp_path):
    """13 nodes on a line: `partition` by default, and `exact` is refused."""
    places = "".join(f"{10 * k} 0 loc{k}\n" for k in range(13))
    line = file("line.txt", f"1 \n1 \n13\n{places}")
    code, out, _ = call("solve", line, "--out", tmp_path)
    assert code == 0 and row(out, "method")[0] == "partition," and row(out, "truck only") == ["240.000000"]
    code, _, err = call("solve", line, "--method", "exact", "--out", tmp_path)
    assert code == 2 and "13 nodes are too many to solve exactly" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("plan.txt", PLAN, "plan.txt: this is a plan; what can be solved are instances"),
        (
            "short.txt",
            TRIANGLE.replace("6.0 0.0 loc2\n", ""),
            "short.txt, line 10: the file ends before the x of node 2",
        ),
        ("word.txt", TRIANGLE.replace("0.5", "fast"), "word.txt, line 4: 'fast' is not a number"),
        ("open.txt", "/* never closed\n1\n", "opens a comment that never closes"),
        ("other.txt", "#CAPACITY 3\n" + TRIANGLE, "'#CAPACITY' is no directive"),
    ],
)
def test_solve_says_what_is_wrong_with_a_file(call, file, tmp_path, name, text, message):
    """One line, with the file, the line and the word."""
    code, _, err = call("solve", file(name, text), "--out", tmp_path)
    assert code == 2 and message in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("savings", "is not for TSPD; TSPD has exact, partition, truck_only"),
        ("partiton", "did you mean 'partition'"),
    ],
)
def test_solve_says_which_methods_there_are(call, file, tmp_path, method, message):
    """A method of other files, and an unknown one."""
    code, _, err = call("solve", file("triangle.txt", TRIANGLE), "--method", method, "--out", tmp_path)
    assert code == 2 and message in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        (TRIANGLE, True),
        ("#MAXFLY 3\n1\n.5\n2\n0 0 a\n1 1 b\n", True),
        ("\r\n1.0\r\n0.5\r\n", True),
        ("\ufeff/* a */ 1\n", True),
        ("1 1 100 1 20\n0 0 0 0 0 0 100\n", False),
        ("NAME : x\nTYPE : TSP\n", False),
        ("C101\n\nVEHICLE\n", False),
        ("", False),
    ],
)
def test_tsp_d_files_are_distinguished_from_others(file, text, ours):
    """They begin with a comment, a directive or one number; Cordeau's with five, Solomon's and TSPLIB's with words."""
    assert is_tspd_file(file("any", text)) is ours
    assert is_tspd_file(Path("no such file")) is False


def test_a_makespan_that_the_world_does_not_confirm_is_a_fault(file):
    """The plan takes 10, not 11."""
    instance = load_tspd(file("triangle.txt", TRIANGLE))
    assert play_tspd(instance, [Operation(0, 0, 2, (1,))], 10.0).terminated[0]
    with pytest.raises(MilkrunError, match="11 to the solver, 10 to the checker, 10 to the world"):
        play_tspd(instance, [Operation(0, 0, 2, (1,))], 11.0)


def test_operations_in_words():
    """The truck's way and the drone's; a truck may wait where it is."""
    assert in_words(Operation(0, 4, 2, (3, 1))) == "truck 0 3 1 4, drone 0 2 4"
    assert in_words(Operation(4, 0)) == "truck 4 0"
    assert in_words(Operation(4, 4, 2)) == "truck waits at 4, drone 4 2 4"


def test_solve_uniform_1_n5(call, tmp_path):
    """The published optimum is 158.65169431234995; the plan that is written costs as much to the checker."""
    source = published_file("delivery/tspd/uniform/uniform-1-n5.txt")
    code, out, _ = call("solve", source, "--best", 158.65169431234995, "--out", tmp_path)
    assert code == 0 and row(out, "makespan")[0] == "158.651694" and row(out, "gap") == ["0.00", "%"]
    plan = load_tspd_solution(tmp_path / "uniform-1-n5_exact.txt", nodes=5)
    assert tspd_cost(load_tspd(source), plan.operations) == pytest.approx(158.65169431234995, abs=1e-9)
    assert plan.total == pytest.approx(158.65169431234995, abs=1e-9)


def test_an_option_of_two_numbers_is_set_with_a_comma():
    """With or without brackets; words with commas stay text."""
    assert read_settings(["tw_width=0.1,0.2", "a=[1, 2]", "b=x,y"]) == {"tw_width": (0.1, 0.2), "a": (1, 2), "b": "x,y"}


@pytest.mark.parametrize("strange", ["\n", "/* ", " "])
def test_detecting_the_kind_of_a_file_takes_no_quadratic_time(tmp_path, strange):
    """Line ends, comments that never close or blanks behind a number: hours, if each were tried against all others."""
    file = tmp_path / "strange.txt"
    file.write_text("1\n" + strange * 500_000)
    assert is_tspd_file(file)
