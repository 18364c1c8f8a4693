"""No mutated TensorDict ends the process, and none is stepped silently from an impossible state.

The cases run in a separate process (`fuzz_tensordicts` describes the mutations and the expected results). A process
that dies is restarted after the case that killed it. `python -m tests.truth.fuzz_tensordicts SEED CASE+1 ID@CASE`
repeats that case.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import milkrun
from tests.small import functional

SEED = 14
FUNCTIONAL = [id for id in milkrun.list_worlds() if functional(id)]


def fuzz(worlds: list[str], cases: int, enough: int) -> tuple[dict[str, int], list[str]]:
    """Returns the number of cases played of each world, and the faults. A world is dropped after `enough` deaths."""
    root, package = Path(__file__).resolve().parents[2], Path(milkrun.__path__[0]).parent
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), str(root)])}
    left, played, wrong = {world: 0 for world in worlds}, dict.fromkeys(worlds, 0), []
    deaths = dict.fromkeys(worlds, 0)
    while left:
        command = [sys.executable, "-m", "tests.truth.fuzz_tensordicts", str(SEED), str(cases)]
        command += [f"{world}@{first}" for world, first in left.items()]
        run = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)
        last = None
        for line in map(json.loads, run.stdout.splitlines()):
            if "done" in line:
                left.pop(line["world"])
            elif "wrong" in line:
                wrong.append(f"{line['world']} case {line['case']} ({line['what']}): {line['wrong']}")
            else:
                played[line["world"]] += 1
                last = line
        if run.returncode == 0:
            break
        hung = "Timeout" in run.stderr
        if last is None or not (hung or run.returncode < 0):
            raise AssertionError(f"the fuzz itself failed: {run.stderr}")
        world, how = last["world"], "did not end" if hung else f"died of signal {-run.returncode}"
        wrong.append(f"{world} case {last['case']} ({last['what']}): the process {how}")
        deaths[world] += 1
        if world in left:
            left[world] = last["case"] + 1
        if world in left and deaths[world] == enough:
            wrong.append(f"{world}: {enough} deaths, the rest is not played")
            left.pop(world)
    return played, wrong


def report(wrong: list[str]) -> str:
    shown = "\n".join(wrong[:40])
    return f"seed {SEED}, {len(wrong)} faults, the first of them:\n{shown}"


def test_a_hundred_mutated_tensordicts_of_every_world():
    """Refused by a message that names the field, or stepped like fresh copies of the same numbers."""
    worlds = FUNCTIONAL
    played, wrong = fuzz(worlds, 100, enough=1)
    assert not wrong, report(wrong)
    assert played == dict.fromkeys(worlds, 100)


@pytest.mark.long
@pytest.mark.parametrize("world", FUNCTIONAL)
def test_ten_thousand_mutated_tensordicts(world: str):
    """The same, ten thousand of each world."""
    played, wrong = fuzz([world], 10_000, enough=10)
    assert not wrong, report(wrong)
    assert played == {world: 10_000}
