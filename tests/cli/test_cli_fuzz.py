"""Wrong command lines: an exit code and one line that says what is wrong, never a traceback."""

import numpy as np
import pytest

COMMANDS = ["list", "info", "run", "eval", "dataset", "bench", "check", "demo", "", "fly", "--version"]
IDS = ["tsp", "milkrun/TSP-v0", "TSP-v9", "tps", "", "milkrun/", "../x", "TSP-v0 ", "CVRP-v0", "\x00", "[bold]", "é"]
OPTIONS = [
    "--num-envs",
    "--policy",
    "--policies",
    "--episodes",
    "--instances",
    "--seed",
    "--preset",
    "--set",
    "--out",
    "--family",
    "--seconds",
    "--threads",
    "--size",
    "--fly",
    "-x",
]
VALUES = [
    "2",
    "0",
    "-1",
    "1.5",
    "nan",
    "",
    "x",
    "random",
    "nearest,random",
    ",",
    "num_loc=4",
    "num_loc=four",
    "num_loc=-3",
    "num_loc",
    "=3",
    "num_loc=",
    "a=b=c",
    "num_loc=nan",
    "num_loc=1e400",
    "metric=[red]",
    "seed=3",
    "api=sb3",
    "num_envs=3",
    "max_steps=99999999999999999999",
    "max_steps=0",
    "99999999999999999999",
    "n20",
    "routing",
    "\x00",
    "/proc/none/x",
    "num_loc=(1,2)",
    "num_loc=true",
    "loc_distribution=[]",
    "é=1",
    "%s",
]
COSTLY = {"--num-envs", "--episodes", "--instances", "--seconds"}
"""A count that is allowed here makes work, so it is small or refused."""


def some_line(rng, folder):
    """A command, mostly nearly right; it plays a handful of tiny episodes if it is."""
    command = COMMANDS[int(rng.integers(len(COMMANDS)))]
    line = [command] if command else []
    if command in ("info", "run", "eval", "bench", "check") and rng.random() < 0.95:
        line.append(IDS[int(rng.integers(len(IDS)))])
    for _ in range(int(rng.integers(1, 4))):
        option = OPTIONS[int(rng.integers(len(OPTIONS)))]
        value = VALUES[int(rng.integers(len(VALUES)))]
        if option in COSTLY and value.lstrip("0").isdigit():
            value = "2"
        line += [option, value] if rng.random() < 0.95 else [option]
    small = {
        "run": ["--num-envs", "2", "--set", "num_loc=4"],
        "eval": ["--instances", "2", "--set", "num_loc=4"],
        "check": ["--num-envs", "2", "--set", "num_loc=4"],
    }
    line = line[:2] + small.get(command, []) + line[2:]
    return [*line, "--out", str(folder)] if command in ("run", "eval") and "--out" not in line else line


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.long)])
def test_a_wrong_line_is_reported_in_a_sentence(call, tmp_path, monkeypatch, count):
    """Exit codes 0, 1 and 2; one line that begins with "error: " if it is not 0; demo and bench never get to work."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("milkrun.cli.demo.play_in_processes", _no_work)
    monkeypatch.setattr("milkrun.cli.bench.speed", _no_work)
    rng = np.random.default_rng(count)
    wrong = 0
    for _ in range(count):
        line = some_line(rng, tmp_path)
        try:
            code, out, err = call(*line)
        except _Work:
            continue
        except Exception as e:
            raise AssertionError(f"milkrun {line} raised {e!r}") from e
        assert code in (0, 1, 2), line
        assert "Traceback" not in out + err, line
        if code:
            wrong += 1
            errors = [one for one in err.splitlines() if one.startswith("error: ")]
            assert (len(errors) == 1 and len(errors[0]) > 12) or "finding" in out, (line, out, err)
    assert wrong > count / 3


def test_a_full_memory_is_reported_in_a_line(call, monkeypatch):
    """A billion rows may fit nowhere: what could not be had, and exit code 1."""

    def fail(*args):
        raise MemoryError("(9, 9), int16")

    monkeypatch.setattr("milkrun.check_world", fail)
    assert call("check", "milkrun/TSP-v0", "--num-envs", 2) == (1, "", "error: not enough memory: (9, 9), int16\n")


class _Work(Exception):
    pass


def _no_work(*args, **kwargs):
    raise _Work
