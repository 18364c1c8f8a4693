"""What the commands print, write and exit with."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import milkrun
from milkrun.cli.app import app
from milkrun.cli.bench import needs_observe, speed
from milkrun.cli.details import Details
from milkrun.cli.output import read_value
from milkrun.cli.play import details_of, replay
from milkrun.core import registry
from milkrun.core.errors import BadInstance, RegistryError
from milkrun.solvers import evaluate, nearest, policies_for, random_policy
from tests.core.toys import Lantern, LanternConfig

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def more_worlds(monkeypatch):
    """Registrations of a test end with it."""
    monkeypatch.setattr(registry, "_worlds", dict(registry._worlds))


def cells(output, start):
    """The words of the table row with this beginning."""
    return next(line for line in output.splitlines() if line.strip().startswith(start)).split()


def test_list_has_a_line_for_each_world_with_its_problem(call):
    """The default CVRP has 20 customers and a depot: 21 actions. No table has more lines than worlds and its head."""
    code, out, err = call("list")
    assert (code, err) == (0, "")
    head, _, *lines = out.splitlines()
    assert head.split() == ["id", "problem", "action"]
    assert [line.split()[0] for line in lines] == milkrun.list_worlds()
    assert cells(out, "milkrun/CVRP-v0") == ["milkrun/CVRP-v0", "Capacitated", "vehicle", "routing", "Discrete(21)"]


@pytest.mark.parametrize("command", ["info", "run", "check", "replay"])
def test_an_unknown_world_may_be_one_that_no_package_registers(call, command):
    """The error of a new world says how the command line finds it."""
    code, _, err = call(command, "example/Elevator-v0")
    assert code == 2 and err.startswith("error: no world 'example/Elevator-v0'") and err.count("\n") == 1
    assert err.endswith(" (packages register their worlds by the entry point milkrun.worlds: docs/add-a-world.md)\n")


def test_list_of_an_unknown_family_offers_the_right_one(call):
    """Usage error."""
    assert call("list", "--family", "routin") == (2, "", "error: no family 'routin'; did you mean 'routing'?\n")


def test_info_shows_fields_options_bounds_and_presets(call):
    """Values of the CVRP's declarations."""
    code, out, _ = call("info", "milkrun/CVRP-v0")
    assert code == 0
    assert cells(out, "demand_units")[:4] == ["demand_units", "int32", "(N)", "instance"]
    assert "units to collect; 0 at the depot (>= 0)" in out
    assert cells(out, "num_loc")[:4] == ["num_loc", "20", "int,", "1..10000"]
    assert "int | auto | None, >= 1" in out
    assert "euclid | manhattan | round" in out
    assert cells(out, "kool50") == ["kool50", "num_loc=50,", "capacity=40"]
    assert "Policies: random, nearest" in out
    assert "N = 21" in out


def test_a_short_id_is_noted_in_one_line(call):
    """The warning of the registry, without file and line number."""
    code, out, err = call("info", "tsp")
    assert code == 0 and out.startswith("milkrun/TSP-v0")
    assert err == "note: 'tsp' names no version: milkrun/TSP-v0 is used\n"


def test_run_writes_the_results_of_evaluate(call, tmp_path):
    """Each number of the JSON equals a fresh evaluation with the same seed, bit for bit."""
    code, out, err = call(
        "run",
        "CVRP-v0",
        "--num-envs",
        6,
        "--episodes",
        20,
        "--seed",
        3,
        "--policy",
        "nearest",
        "--preset",
        "n50",
        "--set",
        "num_loc=5",
        "--set",
        "capacity=12",
        "--out",
        tmp_path / "new" / "folder",
    )
    assert (code, err) == (0, "")
    files = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert files == ["CVRP-v0_nearest.json", "CVRP-v0_nearest.png"]
    assert (tmp_path / "new" / "folder" / "CVRP-v0_nearest.png").read_bytes().startswith(PNG)
    written = json.loads((tmp_path / "new" / "folder" / "CVRP-v0_nearest.json").read_text())

    world = milkrun.make("milkrun/CVRP-v0", num_envs=6, num_loc=5, capacity=12)
    result = evaluate(world, nearest, 20, seed=3)
    for name, value in result.summary().items():
        assert written[name] == value
    row, episode = result.where(result.best)
    assert written["best"] == {
        "row": row,
        "episode": episode,
        "return": result.returns.max(),
        "steps": int(result.lengths[result.best]),
    }
    assert written["median"]["return"] == sorted(result.returns)[9]
    assert written["config"] == world.config.as_dict()
    assert (written["world"], written["policy"], written["seed"], written["num_envs"], written["preset"]) == (
        "milkrun/CVRP-v0",
        "nearest",
        3,
        6,
        "n50",
    )
    assert written["milkrun"] == milkrun.__version__
    assert f"{result.mean:.4f}" in out and "20 in 6 rows" in out


def test_run_takes_the_heuristic_and_one_episode_a_row_by_default(call, tmp_path):
    """One row plays one episode, whose spread is unknown: null in the JSON."""
    code, out, _ = call("run", "milkrun/TSP-v0", "--num-envs", 1, "--set", "num_loc=6", "--out", tmp_path)
    written = json.loads((tmp_path / "TSP-v0_nearest.json").read_text())
    assert code == 0 and "1 in 1 rows" in out
    assert written["episodes"] == 1 and written["std"] is None
    assert written["mean"] == evaluate(milkrun.make("milkrun/TSP-v0", num_loc=6), nearest, 1, seed=0).mean


def test_run_debug_interprets_and_says_the_same(call, tmp_path, monkeypatch):
    """--debug makes interpreted worlds, and the figures are those of compiled ones."""
    made = []
    make = milkrun.make
    monkeypatch.setattr(milkrun, "make", lambda *args, **named: made.append(make(*args, **named)) or made[-1])
    code, _, err = call("run", "TSP-v0", "--num-envs", 2, "--set", "num_loc=5", "--debug", "--out", tmp_path)
    monkeypatch.undo()
    written = json.loads((tmp_path / "TSP-v0_nearest.json").read_text())
    assert (code, err) == (0, "") and made and all(world.debug for world in made)
    assert written["mean"] == evaluate(milkrun.make("milkrun/TSP-v0", 2, num_loc=5), nearest, 2, seed=0).mean


@pytest.mark.parametrize("world_id", milkrun.list_worlds())
def test_the_picture_is_of_the_very_episode(world_id):
    """A row replayed alone ends a later episode of a batch with the same return, random draws included."""
    result = evaluate(milkrun.make(world_id, 5), random_policy(7), 15, seed=7)
    row, episode = result.where(13)
    assert (row, episode) == (3, 2)

    def make(rows, first_row):
        return milkrun.make(world_id, rows, first_row=first_row, seed=7, autoreset="disabled")

    world = replay(make, policies_for(world_id)["random"], 7, row, episode)
    assert world.objective[0] == result.returns[13] and world.i[0] == result.lengths[13]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["info", "milkrun/CVRQ-v0"], "did you mean 'milkrun/CVRP-v0'"),
        (["run", "CVRP-v0", "--policy", "neerest"], "has no policy or method 'neerest'; did you mean 'nearest'?"),
        (["run", "CVRP-v0", "--set", "num_lok=5"], "has no option 'num_lok'; did you mean 'num_loc'"),
        (["run", "CVRP-v0", "--set", "num_loc=0"], "num_loc = 0: must be in 1..10000"),
        (["run", "CVRP-v0", "--set", "num_loc"], "--set 'num_loc': must read KEY=VALUE"),
        (["run", "CVRP-v0", "--set", "seed=1"], "has no option 'seed'"),
        (["run", "CVRP-v0", "--preset", "n51"], "has no preset 'n51'; did you mean 'n50'"),
        (["run", "CVRP-v0", "--num-envs", "0"], "'--num-envs'"),
        (["run", "CVRP-v0", "--nomber", "3"], "--nomber"),
        (["run"], "'ID' (see milkrun run --help)"),
        (["rum"], "'rum'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(call, tmp_path, monkeypatch, arguments, sentence):
    """On stderr, without a traceback; nothing is printed or played."""
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and sentence in err and err.count("\n") == 1


MAP = ["CVRP-v0", "--set", "map_name=town", "--set", "map_path={absent}"]
FILES_OF = {
    "solve": ["solve", "{absent}.vrp"],
    "solve on ray": ["solve", "{absent}.vrp", "--on", "ray"],
    "replay": ["replay", "{absent}.json"],
    "report": ["report", "{absent}"],
    "simulate": ["simulate", "--token-file", "{absent}"],
    "train": ["train", "--resume", "{absent}"],
    "a trained policy": ["run", "CVRP-v0", "--policy", "{absent}.safetensors"],
    "dataset": ["dataset", *MAP, "--instances", "2", "--out", "{out}"],
    **{command: [command, *MAP] for command in ("run", "eval", "check", "bench")},
}
"""Of each command a line that names a file which is not there. `list`, `info` and `demo` take none."""


@pytest.mark.parametrize("line", FILES_OF.values(), ids=FILES_OF)
def test_a_file_that_is_not_there_is_wrong_usage_of_every_command(call, tmp_path, monkeypatch, line):
    """One line that names the file, and exit code 2, whatever reads it."""
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*(str(word).format(absent=tmp_path / "absent", out=tmp_path / "out") for word in line))
    assert (code, out) == (2, "") and "absent" in err and err.startswith("error: ") and err.count("\n") == 1


def test_commands_that_take_files_are_all_known_to_the_test_above():
    """A new command is added to one of the two lists."""
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert names == {line[0] for line in FILES_OF.values()} | {"list", "info", "demo"}


@pytest.mark.parametrize("name", sorted({line[0] for line in FILES_OF.values()} | {"list", "info", "demo"}))
def test_every_command_has_help(call, name):
    """Its first line of usage, and exit code 0."""
    code, out, err = call(name, "--help")
    assert (code, err) == (0, "") and out.startswith(f"Usage: milkrun {name} ")


def test_a_failure_of_our_family_is_one_line_and_exit_code_1(call, tmp_path, monkeypatch):
    """Anything but a wrong id or option is no wrong usage."""

    def refuse(*_, **__):
        raise BadInstance("row 0: locs: must be finite")

    monkeypatch.setattr("milkrun.cli.play.evaluate", refuse)
    code, out, err = call("run", "TSP-v0", "--num-envs", 2, "--out", tmp_path)
    assert (code, out, err) == (1, "", "error: row 0: locs: must be finite\n")


def test_an_output_folder_that_cannot_be_is_refused(call, tmp_path):
    """A file stands in its place."""
    (tmp_path / "file").write_text("")
    code, _, err = call("run", "TSP-v0", "--out", tmp_path / "file")
    assert code == 2 and err.startswith("error: cannot write into") and "file" in err


def test_values_of_set_are_read_as_numbers_and_words():
    """All else is text."""
    read = [read_value(v) for v in ("5", "-2.5", "1e3", "true", "False", "none", "euclid", "inf")]
    assert read == [5, -2.5, 1000.0, True, False, None, "euclid", float("inf")]
    assert [type(v) for v in read[:3]] == [int, float, float]


def test_check_prints_findings_and_exits_with_1(call, monkeypatch):
    """Each finding is a line; the world named is the one checked."""
    seen = []

    def check_world(world):
        seen.append(world)
        return ["reward does not sum to the objective", "mask of row 3 is all False"]

    monkeypatch.setitem(vars(milkrun), "check_world", check_world)
    code, out, _ = call("check", "CVRP-v0", "--set", "num_loc=5", "--num-envs", 3)
    assert code == 1
    assert out.splitlines() == [
        "finding: reward does not sum to the objective",
        "finding: mask of row 3 is all False",
        "milkrun/CVRP-v0: 2 findings",
    ]
    assert (seen[0].id, seen[0].num_envs, seen[0].config.num_loc) == ("milkrun/CVRP-v0", 3, 5)


def test_check_finds_nothing_in_our_own_world(call):
    """With the real checker."""
    assert call("check", "milkrun/TSP-v0", "--set", "num_loc=5") == (0, "milkrun/TSP-v0: no findings\n", "")


def test_bench_prints_a_speed_for_each_batch_size(call):
    """Rows, steps/s, microseconds a call (their product is the rows) and the speed with the policy, which is lower."""
    code, out, _ = call("bench", "TSP-v0", "--num-envs", 2, "--num-envs", 300, "--seconds", 0)
    assert code == 0
    lines = [line.split() for line in out.splitlines() if line.strip().startswith("milkrun/TSP-v0")]
    assert [int(line[1]) for line in lines] == [2, 300]
    for _, rows, alone, microseconds, together in lines:
        alone, microseconds, together = (float(x.replace(",", "")) for x in (alone, microseconds, together))
        assert alone * microseconds * 1e-6 == pytest.approx(int(rows), rel=0.1)
        assert 0 < together < alone


def test_bench_leaves_out_what_needs_too_much_memory(call, more_worlds):
    """512 x 512 pixels a row: 8,192 rows are above 1 GB and left out, 1,024 are not; all are painted."""
    lantern = "tests/Lantern-v0"
    milkrun.register(lantern, Lantern, gymnasium=False)
    code, out, _ = call("bench", lantern, "--seconds", 0, "--set", "side=512", "--set", "max_steps=2")
    lines = [line.split() for line in out.splitlines() if line.strip().startswith(lantern)]
    assert code == 0 and [line[:4] for line in lines[:3]] == [
        [f"{lantern},", "with", "observe()", rows] for rows in ("1", "64", "1,024")
    ]
    assert lines[3] == [lantern, "8,192", "left", "out:", "2.1", "GB"]


def test_bench_paints_the_picture_after_each_step_if_agents_see_it():
    """A picture on demand is painted once a step of a row; an additional view is not."""
    world = Lantern(3, LanternConfig(max_steps=2, longest=900), seed=1, autoreset="disabled")
    speed(world, random_policy(0), 0)
    assert world.looks.tolist() == [1, 1, 1]  # a rollout of which 0 seconds leave one step
    assert needs_observe(world) and not needs_observe(milkrun.make("milkrun/DARP-v0"))


COUNTED = Details(
    headlines=("lamps",),
    files={"list": "the rows that were played"},
    of_rows=lambda make, factory, seed, rows, shown, stem: {"rows_again": rows},
    write_episode=lambda shown, stem, title, again: {"list": f"{stem.name}_{shown.num_envs}.txt"},
    show=lambda summary, folder: print(f"again {summary['rows_again']}"),
)


def test_run_shows_the_details_that_a_class_names(call, more_worlds, tmp_path, monkeypatch):
    """Any world has returns and a picture only, until its class names more details; no command depends on the world."""
    lantern = "tests/Lantern-v0"
    milkrun.register(lantern, Lantern, gymnasium=False)
    monkeypatch.setattr(Lantern, "figures", lambda world, ended: {"lamps": ended["objective"]})
    said = []
    for details in ("", f"{__name__}:COUNTED"):
        monkeypatch.setattr(Lantern, "run_details", details)
        code, out, _ = call("run", lantern, "--num-envs", 2, "--policy", "random", "--out", tmp_path)
        assert code == 0
        said.append(out)
    new = ("mean lamps", "again 2", "_1.txt  the rows that were played")
    assert [[words in out for words in new] for out in said] == [[False] * 3, [True] * 3]
    monkeypatch.setattr(Lantern, "run_details", f"{__name__}:COUNTET")
    with pytest.raises(RegistryError, match="did you mean 'COUNTED'"):
        details_of(Lantern)


def test_demo_plays_every_world_and_prints_its_folder(call, tmp_path):
    """One row a world whose returns are those of `evaluate`; a picture for each policy; all in summary.json."""
    code, out, _ = call("demo", "--out", tmp_path, "--num-envs", 20, "--seed", 2)
    assert code == 0
    assert f"Look into {tmp_path}" in out
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert list(summary) == milkrun.list_worlds()
    for world_id, world in summary.items():
        assert list(world["policies"]) == list(policies_for(world_id))[:2]
        assert world["steps_per_second"] > 0
        for name, played in world["policies"].items():
            result = evaluate(milkrun.make(world_id, 20), policies_for(world_id)[name](2), 20, seed=2)
            assert played["mean"] == result.mean
            assert f"{result.mean:.3f}" in cells(out, world_id)
            assert (tmp_path / played["picture"]).read_bytes().startswith(PNG)
    assert cells(out, "milkrun/CVRP-v0")[1] == "20" and cells(out, "milkrun/CVRP-v0")[-1] == "nearest"
    assert all((tmp_path / world["page"]).read_text().startswith("<!doctype html>") for world in summary.values())
    assert "CVRP-v0_replay.html" in (tmp_path / "index.html").read_text()
    assert out.splitlines()[-1].startswith(f"Open {tmp_path / 'index.html'}")


def test_demo_shows_a_failure_and_exits_with_1(call, tmp_path, monkeypatch, more_worlds):
    """The other worlds are played all the same."""
    monkeypatch.setattr(registry, "_worlds", {"milkrun/TSP-v0": registry._worlds["milkrun/TSP-v0"]})
    milkrun.register("tests/Broken-v0", "json:NoSuchWorld", gymnasium=False)
    code, out, err = call("demo", "--out", tmp_path, "--num-envs", 4)
    assert code == 1
    assert "failed: RegistryError: tests/Broken-v0: json:NoSuchWorld is not a World class" in out
    assert err == "failed: tests/Broken-v0; `milkrun run ID` shows where\n"
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert "failed" in summary["tests/Broken-v0"] and summary["milkrun/TSP-v0"]["policies"]["nearest"]["mean"] < 0


def test_demo_leaves_out_a_world_whose_extra_is_absent(call, tmp_path, monkeypatch, more_worlds):
    """That is no failure: it says what to install. Without pages there is no index.html either."""
    monkeypatch.setattr(registry, "_worlds", {"milkrun/TSP-v0": registry._worlds["milkrun/TSP-v0"]})
    milkrun.register("tests/Heavy-v0", "no_such_engine:World", extras=("clutter",), gymnasium=False)
    code, out, _ = call("demo", "--out", tmp_path, "--num-envs", 4, "--no-pages")
    assert code == 0 and not list(tmp_path.glob("*.html")) and "index.html" not in out
    assert "skipped: this needs no_such_engine" in out and 'pip install -e ".[clutter]"' in out
    assert call("list")[1].count("this needs no_such_engine") == 1


def test_without_a_command_the_help_is_printed(call):
    """With examples, as --help; each command has its own."""
    code, out, err = call()
    assert (code, err) == (0, "") and out == call("--help")[1]
    assert "milkrun run CVRP-v0 --num-envs 512 --policy nearest --set num_loc=50\n" in out
    for command in ("list", "info", "run", "bench", "check", "demo", "replay", "report"):
        code, out, _ = call(command, "--help")
        assert code == 0 and f"Usage: milkrun {command}" in out and "Examples:\n" in out


def test_version(call):
    """The package's."""
    assert call("--version") == (0, f"milkrun {milkrun.__version__}\n", "")


def test_help_in_a_fresh_process_imports_nothing_slow():
    """Neither numba nor matplotlib nor torch; `python -m milkrun` is the same command."""
    code = (
        "import runpy, sys; sys.argv = ['milkrun', '--help']\n"
        "try: runpy.run_module('milkrun', run_name='__main__')\n"
        "except SystemExit as e: print('exit', e.code)\n"
        "print(sorted({'numba', 'matplotlib', 'torch', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: milkrun [OPTIONS] COMMAND")
    assert done.stdout.splitlines()[-2:] == ["exit 0", "[]"]
