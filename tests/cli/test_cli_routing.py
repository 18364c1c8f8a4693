"""The commands of the routing family: solve a file, compare policies, play a week of waste collection."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import milkrun
from milkrun.core.instances import instances_of
from milkrun.routing.instances import read, read_solution, replay
from milkrun.solvers import add_policy, evaluate, policies, policies_for, solve
from tests.cli.test_cli_darp import ONE
from tests.cli.test_cli_delivery import TRIANGLE
from tests.routing.instance_files import HFVRP, MDVRP, MDVRPTW
from tests.routing.instance_files import SOLOMON as FLEET
from tests.routing.test_instance_faults import CVRP

PNG = b"\x89PNG\r\n\x1a\n"
SQUARE = CVRP.replace("A-n4-k2", "square")


def row(output, start):
    """The words of the table row with this beginning."""
    return next(line for line in output.splitlines() if line.strip().startswith(start)).split()


def test_solve_prints_the_cost_of_the_file_and_writes_its_solution(call, tmp_path):
    """Three customers of 5 on a truck of 10: two trips, of 18 in all; the best known cost of 18 is in the same
    folder."""
    (tmp_path / "square.vrp").write_text(SQUARE)
    (tmp_path / "square.sol").write_text("Route #1: 1 2\nRoute #2: 3\nCost 18\n")
    code, out, _ = call("solve", tmp_path / "square.vrp", "--method", "exact", "--out", tmp_path / "out")
    assert code == 0
    assert "yes, by checker and world" in out
    written = read_solution(tmp_path / "out" / "square_exact.sol")
    assert written.cost == 18 and sorted(sorted(route) for route in written.routes) in ([[1, 2], [3]], [[1], [2, 3]])
    assert row(out, "gap")[1] == "0.00" and row(out, "routes")[1] == "2"
    assert (tmp_path / "out" / "square_exact.png").read_bytes().startswith(PNG)
    figures = json.loads((tmp_path / "out" / "square_exact.json").read_text())
    assert figures["cost"] == 18 and figures["gap_percent"] == 0 and figures["optimal"] is True
    assert figures["routes"] == [list(route) for route in written.routes]


CORE = "file kind n method cost valid best_known gap_percent optimal seconds compile_seconds seed".split()


@pytest.mark.parametrize(
    ("name", "text", "kind", "more"),
    [
        ("square.vrp", SQUARE, "CVRP", ["routes"]),
        ("one.txt", ONE, "DARP", ["distance", "served", "routes", "longest_ride"]),
        ("triangle.txt", TRIANGLE, "TSPD", ["makespan", "truck_only", "saving", "operations", "kpis"]),
    ],
)
def test_the_figures_of_all_families_have_the_same_core(call, tmp_path, name, text, kind, more):
    """Each adds its own entries; the table has the same rows for value, gap and validity."""
    (tmp_path / name).write_text(text)
    code, out, _ = call("solve", tmp_path / name, "--method", "exact", "--best", 10, "--seed", 3, "--out", tmp_path)
    assert code == 0 and row(out, "best known")[2] == "10" and row(out, "valid")[1] == "yes,"
    figures = json.loads((tmp_path / f"{Path(name).stem}_exact.json").read_text())
    assert sorted(figures) == sorted(CORE + more)
    assert (figures["file"], figures["kind"], figures["seed"], figures["valid"]) == (name, kind, 3, True)
    assert row(out, "gap")[1] == f"{figures['gap_percent']:.2f}"


def test_a_tour_is_written_in_the_numbers_of_its_file(call, tmp_path):
    """Nodes of TSPLIB files count from 1."""
    nodes = "1 0 0\n2 0 4\n3 3 4\n"
    head = "NAME : three\nTYPE : TSP\nDIMENSION : 3\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n"
    (tmp_path / "three.tsp").write_text(f"{head}{nodes}EOF\n")
    assert call("solve", tmp_path / "three.tsp", "--out", tmp_path)[0] == 0
    figures = json.loads((tmp_path / "three_ls.json").read_text())
    assert figures["cost"] == 12 and sorted(figures["routes"][0]) == [1, 2, 3] and figures["routes"][0][0] == 1


@pytest.mark.parametrize("world", ["Elevator-v0", "milkrun/CVRP-v0", "cvrp"])
def test_solve_of_a_world_says_that_it_takes_files(call, world):
    """A world instead of a file, registered or not: what solves worlds is named."""
    code, _, err = call("solve", world)
    assert code == 2 and err == (
        f"error: milkrun solve takes files, and there is no file {world!r}; of a world, `milkrun replay {world} "
        "--policies METHOD` drives what a method finds, and solve() of milkrun.solvers solves its instances in Python\n"
    )


def test_solve_says_what_is_wrong_in_one_line(call, tmp_path):
    """An unknown method, a file that does not parse."""
    (tmp_path / "square.vrp").write_text(SQUARE)
    code, _, err = call("solve", tmp_path / "square.vrp", "--method", "saving", "--out", tmp_path)
    assert code == 2 and "'savings'" in err and err.count("\n") == 1
    (tmp_path / "cut.vrp").write_text(SQUARE[:120])
    code, _, err = call("solve", tmp_path / "cut.vrp", "--out", tmp_path)
    assert code == 2 and "cut.vrp" in err and err.count("\n") == 1


def test_eval_compares_policies_on_the_same_instances(call, tmp_path):
    """Means are those of `evaluate`; the better policy stands first, and nearly always has the best answer."""
    code, out, _ = call(
        "eval",
        "TSP-v0",
        "--policies",
        "random,nearest",
        "--instances",
        60,
        "--seed",
        3,
        "--set",
        "num_loc=12",
        "--out",
        tmp_path,
    )
    assert code == 0
    figures = {p["policy"]: p for p in json.loads((tmp_path / "TSP-v0_eval.json").read_text())["policies"]}
    for name in ("random", "nearest"):
        world = milkrun.make("milkrun/TSP-v0", 60, num_loc=12)
        result = evaluate(world, policies_for("milkrun/TSP-v0")[name](3), 60, seed=3)
        assert figures[name]["mean"] == pytest.approx(result.mean, abs=1e-12)
        assert row(out, name)[1] == f"{result.mean:.4f}"
    assert list(figures) == ["nearest", "random"]
    assert figures["nearest"]["gap"] < 0.05 < figures["random"]["gap"] and figures["nearest"]["best_share"] > 0.9


def test_eval_puts_methods_and_policies_into_one_table(call, tmp_path):
    """Means are those of `evaluate` by the same names; pyvrp's search ends after the time that was given."""
    arguments = ["--policies", "nearest,savings,pyvrp", "--instances", 4, "--seed", 3, "--time-limit", 0.01]
    code, out, _ = call("eval", "CVRP-v0", *arguments, "--set", "num_loc=8", "--out", tmp_path)
    assert code == 0
    figures = {p["policy"]: p for p in json.loads((tmp_path / "CVRP-v0_eval.json").read_text())["policies"]}
    for name in ("nearest", "savings"):
        result = evaluate(milkrun.make("milkrun/CVRP-v0", 4, num_loc=8), name, 4, seed=3)
        assert figures[name]["mean"] == pytest.approx(result.mean, abs=1e-12)
        assert row(out, name)[1] == f"{result.mean:.4f}"
    assert set(figures) == {"nearest", "savings", "pyvrp"} and figures["pyvrp"]["best_share"] > 0


def test_eval_hands_its_time_limit_to_the_method(call, monkeypatch):
    """Seconds an instance; 1 where none is given."""
    seen = []

    def answer(world_id, instances, method, time_limit, seed, **options):
        seen.append((method, time_limit))
        return solve(world_id, instances, "nearest", time_limit, seed, **options)

    monkeypatch.setattr("milkrun.solvers.named.solve", answer)
    arguments = ["eval", "CVRP-v0", "--policies", "savings", "--instances", 2, "--set", "num_loc=4"]
    assert call(*arguments, "--time-limit", 0.25)[0] == call(*arguments)[0] == 0
    assert seen == [("savings", 0.25), ("savings", 1.0)]


def test_run_plays_a_method(call, tmp_path):
    """What savings plans is driven, and returns minus what it costs."""
    arguments = ["--policy", "savings", "--num-envs", 3, "--set", "num_loc=6", "--seed", 5]
    code, _, _ = call("run", "CVRP-v0", *arguments, "--out", tmp_path)
    figures = json.loads((tmp_path / "CVRP-v0_savings.json").read_text())
    world = milkrun.make("milkrun/CVRP-v0", 3, seed=5, num_loc=6)
    world.reset()
    assert code == 0 and figures["illegal"] == 0
    assert figures["mean"] == pytest.approx(-solve("CVRP", instances_of(world), "savings").cost.mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["eval", "CVRP-v0", "--policies", "random,random"], "the policy 'random' is named twice"),
        (["eval", "CVRP-v0", "--policies", "nearest,savings, nearest"], "the policy 'nearest' is named twice"),
        (["eval", "TSPKopt-v0", "--policies", "exact"], "'exact' returns solutions of milkrun/TSPKopt-v0, not actions"),
        (["run", "TSPKopt-v0", "--policy", "exact"], "'exact' returns solutions of milkrun/TSPKopt-v0, not actions"),
        (["eval", "CVRP-v0", "--time-limit", 1, "--page"], "does not go with --page"),
        (["eval", "CVRP-v0", "--time-limit", 1, "--on", "ray"], "does not go with --on ray"),
    ],
)
def test_players_that_make_no_table_are_refused(call, tmp_path, monkeypatch, line, message):
    """Before anything is played, in one line."""
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*line)
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("command", ["eval", "run"])
def test_invalid_actions_of_a_policy_are_reported_with_its_mean(call, tmp_path, monkeypatch, command):
    """A policy that chooses an invalid node has the best mean, and the reason is printed next to it. For a policy that
    plays by the rules nothing is printed."""
    monkeypatch.setattr(policies, "_added", {})
    add_policy("milkrun/TSP-v0", "stubborn", lambda seed: lambda world: np.full(world.num_envs, 99))
    arguments = [command, "TSP-v0", "--num-envs", 3, "--episodes", 6, "--set", "num_loc=5", "--set", "max_steps=5"]
    code, out, _ = call(*arguments, "--policy", "stubborn", "--out", tmp_path)
    assert code == 0
    if command == "eval":
        assert "stubborn: 100.0 % of the steps illegal, 100.0 % of the episodes truncated." in out
    else:
        assert "6 episodes, 100.0 %" in out and "30 steps, 100.0 %" in out
    code, out, _ = call(*arguments, "--policy", "nearest", "--out", tmp_path)
    assert code == 0 and "illegal" not in out and "truncated" not in out


def test_eval_refuses_an_unknown_policy(call):
    """Usage error that offers the right one."""
    code, _, err = call("eval", "TSP-v0", "--policies", "nearset")
    assert code == 2 and "'nearest'" in err


def test_run_of_many_days_prints_them(call, tmp_path):
    """A line a day and one for all: overflows, bins, length, and a profit that sums to the mean return."""
    code, out, _ = call(
        "run",
        "SDWCVRP-v0",
        "--num-envs",
        8,
        "--policy",
        "greedy",
        "--set",
        "horizon=3",
        "--set",
        "num_loc=8",
        "--out",
        tmp_path,
    )
    assert code == 0
    summary = json.loads((tmp_path / "SDWCVRP-v0_greedy.json").read_text())
    days = summary["days"]
    assert [len(days[name]) for name in ("overflows", "waste", "length", "profit")] == [3, 3, 3, 3]
    assert sum(days["profit"]) == pytest.approx(summary["mean"], abs=1e-4)
    assert float(row(out, "2 ")[3]) == pytest.approx(days["waste"][1], abs=0.006)
    assert (tmp_path / "SDWCVRP-v0_greedy_days.png").read_bytes().startswith(PNG)


def test_run_on_a_map_counts_kilograms_and_euros(call, tmp_path):
    """Glass of the synthetic town: kg and km, EUR = 0.0756 a kg - 1 a km."""
    code, out, _ = call(
        "run",
        "SDWCVRP-v0",
        "--num-envs",
        8,
        "--policy",
        "greedy",
        "--set",
        "map_name=synthetic-town",
        "--set",
        "stream=glass",
        "--set",
        "num_loc=50",
        "--set",
        "horizon=6",
        "--set",
        "must_go=lookahead",
        "--out",
        tmp_path,
    )
    assert code == 0 and "kg/km" in out and "EUR" in out
    days = json.loads((tmp_path / "SDWCVRP-v0_greedy.json").read_text())["days"]
    for kg, km, eur in zip(days["waste"], days["length"], days["profit"], strict=True):
        assert eur == pytest.approx(0.0756 * kg - km, abs=1e-6)
    assert sum(days["waste"]) > 0


SOLOMON = """101

VEHICLE
NUMBER     CAPACITY
  2         10

CUSTOMER
CUST NO.   XCOORD.   YCOORD.   DEMAND   READY TIME   DUE DATE   SERVICE TIME

    0      0         0         0        0            1000       0
    1      3         4         5        0            1000       10
    2      6         8         5        0            1000       10
"""


@pytest.mark.parametrize(("name", "text"), [("m.txt", MDVRP), ("d.vrp", MDVRPTW), ("h.vrp", HFVRP), ("t.txt", FLEET)])
def test_solve_of_several_depots_and_fleets(call, tmp_path, name, text):
    """The written solution replays to the printed cost: route k is driven by vehicle k of the file."""
    (tmp_path / name).write_text(text)
    code, out, _ = call("solve", tmp_path / name, "--iterations", 20, "--page", "--out", tmp_path / "out")
    assert code == 0 and row(out, "valid")[1] == "yes,"
    figures = json.loads(next((tmp_path / "out").glob("*_pyvrp.json")).read_text())
    written = read_solution(next((tmp_path / "out").glob("*.sol")))
    assert replay(read(tmp_path / name), written) == (pytest.approx(figures["cost"]), True, None)
    assert row(out, "routes")[1] == str(sum(map(bool, written.routes)))
    assert next((tmp_path / "out").glob("*.png")).read_bytes().startswith(PNG)


def test_solve_takes_the_first_world_that_has_the_method(call, tmp_path):
    """Solomon's files play in the VRP, which has pyvrp and the policy nearest, and in the CVRPP, which has exact."""
    (tmp_path / "101.txt").write_text(SOLOMON)
    for method in ("pyvrp", "nearest", "exact"):
        options = ["--method", method, "--iterations", 20, "--out", tmp_path / method]
        code, _, _ = call("solve", tmp_path / "101.txt", *options)
        assert code == 0
        assert json.loads((tmp_path / method / f"101_{method}.json").read_text())["cost"] == 20


def test_a_folder_prints_costs_as_the_files_have_them(call, tmp_path):
    """Solomon's file, named by a number: 20 there and back, not 200 tenths; the best known is 20 too."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "101.txt").write_text(SOLOMON)
    (folder / "101.sol").write_text("Route #1: 1 2\nCost 20\n")
    (folder / "square.vrp").write_text(SQUARE)
    options = ["--iterations", 20, "--out", tmp_path / "out"]
    code, _, _ = call("solve", folder, "--method", "pyvrp", *options)
    assert code == 0
    figures = {line["file"]: line for line in json.loads((tmp_path / "out" / "files_solved.json").read_text())["files"]}
    assert (figures["101.txt"]["cost"], figures["101.txt"]["gap_percent"], figures["square.vrp"]["cost"]) == (20, 0, 18)
    code, _, err = call("solve", folder, "--best", 20, *options)
    assert code == 2 and err == "error: --best is of one file, solved on this machine\n"
    (tmp_path / "out" / "101_pyvrp.json").mkdir()
    code, _, err = call("solve", folder / "101.txt", "--method", "pyvrp", *options)
    assert code == 2 and "cannot write" in err and "Is a directory" in err
