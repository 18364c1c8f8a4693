"""Runs: resumed to the same bits, interrupted and killed without loss, refused or stopped with a sentence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from typing import NamedTuple

import numpy as np
import pytest
import torch

import milkrun
from milkrun import learn
from milkrun.core.errors import BadCheckpoint, ConfigError, TrainingError
from milkrun.learn import policy as policies
from milkrun.learn import run as runs
from milkrun.learn.policy import NetworkPolicy, why_no_plans
from milkrun.learn.trained import read_run
from milkrun.solvers import evaluate
from tests.learn.tools import SMALL


def weights(folder):
    _, state = read_run(folder / "last.safetensors")
    return {name: t.numpy().tobytes() for name, t in state.tensors().items()}


def curve(folder):
    """The CSV without its column of seconds."""
    return [line.split(",")[:1] + line.split(",")[2:] for line in (folder / "curve.csv").read_text().splitlines()]


def stop_after(step, monkeypatch):
    """Raises SIGINT in the given training step."""
    plain = runs.ReinforceRun.train_step

    def train_step(self):
        if self.step == step:
            signal.raise_signal(signal.SIGINT)
        return plain(self)

    monkeypatch.setattr(runs, "estimate", lambda *_: 1.0)  # which trains a few steps, too
    monkeypatch.setattr(runs.ReinforceRun, "train_step", train_step)


@pytest.mark.parametrize("baseline", ["shared", "rollout"])
def test_an_interrupted_run_resumes_to_the_same_bits(baseline, tmp_path, monkeypatch, interrupts):
    """Weights, moments and curve of 12 steps, and of 12 steps that are interrupted in the eighth."""
    options = {**SMALL, "baseline": baseline, "steps": 12, "every": 4}
    monkeypatch.setattr("milkrun.learn.reinforce.ROUND", 16)
    whole = learn.train("milkrun/CVRP-v0", out=tmp_path / "whole", **options)
    assert whole.ended == "" and whole.step == 12
    with monkeypatch.context() as patch:
        stop_after(7, patch)
        cut = learn.train("milkrun/CVRP-v0", out=tmp_path / "cut", **options)
    assert (cut.ended, cut.step) == ("interrupted", 8)
    resumed = learn.resume(tmp_path / "cut", progress=False)
    assert resumed.step == 12 and resumed.ended == ""
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert curve(tmp_path / "cut") == curve(tmp_path / "whole")


COMMAND = [sys.executable, "-m", "milkrun", "train"]
FLAGS = "--set num_loc=5 --width 16 --heads 2 --layers 1 --batch 4 --rows-each 4 --threads 1 --every 5".split()


def started(folder, steps):
    return subprocess.Popen(
        [*COMMAND, "CVRP-v0", *FLAGS, "--steps", str(steps), "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(folder, evaluations):
    path = folder / "curve.csv"
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if path.exists() and len(path.read_text().splitlines()) > evaluations:
            return
        time.sleep(0.02)
    raise AssertionError("no evaluation in time")


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_a_killed_run_resumes_to_the_same_weights(kills, tmp_path):
    """SIGKILL at moments in between, then to the end: the weights of an undisturbed run."""
    steps = 60
    folder = tmp_path / "killed"
    process = started(folder, steps)
    for kill in range(kills):
        wait_for(folder, 1)
        time.sleep(0.05 * kill)
        process.kill()
        process.wait()
        process.communicate()
        process = subprocess.Popen([*COMMAND, "--resume", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, err = process.communicate()
    assert process.returncode == 0, err
    whole = learn.train("milkrun/CVRP-v0", steps=steps, every=5, out=tmp_path / "whole", **SMALL)
    assert whole.step == steps
    assert weights(folder) == weights(tmp_path / "whole")


def test_ctrl_c_ends_the_command_with_130_and_says_how_to_go_on(tmp_path):
    """SIGINT to the process: files are whole, one line has the command that continues."""
    process = started(tmp_path / "run", 100_000)
    wait_for(tmp_path / "run", 1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert f"continue with: milkrun train --resume {tmp_path / 'run'}" in out
    about, state = read_run(tmp_path / "run" / "last.safetensors")
    assert 0 < state.step < 100_000 and about["curve"]


def test_sigterm_is_an_interrupt_too(tmp_path, monkeypatch):
    """As sent by batch systems."""
    plain = runs.ReinforceRun.train_step

    def train_step(self):
        if self.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(self)

    monkeypatch.setattr(runs, "estimate", lambda *_: 1.0)
    monkeypatch.setattr(runs.ReinforceRun, "train_step", train_step)
    run = learn.train("milkrun/CVRP-v0", steps=50, every=25, out=tmp_path / "run", **SMALL)
    assert run.ended == "interrupted" and run.step < 50


@pytest.mark.parametrize("where", ["milkrun.learn.run.judge", "milkrun.learn.checkpoint.write_file"])
def test_an_interrupt_in_an_evaluation_or_a_write_keeps_whole_files(where, tmp_path, monkeypatch):
    """SIGINT while step 4 is evaluated or written: the run ends behind that step, and its files can be read."""
    module, _, name = where.rpartition(".")
    plain, folder = getattr(import_module(module), name), tmp_path / "run"

    def interrupted(*given):
        if (folder / "last.safetensors").exists():  # of step 2
            monkeypatch.setattr(where, plain)
            signal.raise_signal(signal.SIGINT)
        return plain(*given)

    monkeypatch.setattr(where, interrupted)
    run = learn.train("milkrun/CVRP-v0", steps=50, every=2, out=folder, **SMALL)
    assert (run.ended, run.step) == ("interrupted", 4)
    about, state = read_run(folder / "last.safetensors")
    assert state.step == 4 and len(about["curve"]) == 2 and learn.load(folder / "best.safetensors") is not None


@pytest.mark.parametrize("broken", ["a gradient", "a weight"])
def test_values_that_are_not_finite_end_the_run_and_are_not_written(broken, tmp_path, monkeypatch):
    """In the fourth step; the error names step and seed, and the files are those of the second."""
    plain = runs.ReinforceRun.train_step

    def train_step(self):
        if self.step == 3 and broken == "a gradient":
            self.network.kvl.weight.data[:] = np.nan
        outcome = plain(self)
        if self.step == 4:
            self.network.kvl.weight.data[:] = np.inf
        return outcome

    monkeypatch.setattr(runs, "estimate", lambda *_: 1.0)
    monkeypatch.setattr(runs.ReinforceRun, "train_step", train_step)
    said = "step 3, seed 0: the gradient" if broken == "a gradient" else "step 4, seed 0: kvl.weight"
    with pytest.raises(TrainingError, match=f"{said} is not finite"):
        learn.train("milkrun/CVRP-v0", steps=50, every=2, out=tmp_path / "run", **SMALL)
    assert read_run(tmp_path / "run" / "last.safetensors")[1].step == 2


def test_collapse_ends_the_run_with_a_sentence(tmp_path, monkeypatch):
    """Rows whose returns never differ have nothing to learn from."""
    monkeypatch.setattr(runs, "FLAT", 3)
    monkeypatch.setattr(runs, "_is_flat", lambda returns: True)
    run = learn.train("milkrun/CVRP-v0", steps=50, every=25, out=tmp_path / "run", **SMALL)
    assert run.step == 3 and run.ended.startswith("collapsed") and "--starts yes" in run.ended


def test_a_run_describes_itself(tmp_path):
    """run.json has options, references and features; the Run has curve, gap and policy."""
    run = learn.train("milkrun/VRPP-v0", steps=4, every=2, out=tmp_path / "run", **SMALL)
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["world"] == "milkrun/VRPP-v0" and about["options"]["steps"] == 4
    assert set(about["references"]) >= {"random", "greedy"}
    assert [row["step"] for row in run.curve] == [2, 4] and run.gap == run.curve[-1]["gap"]
    assert run.best == max(row["held_out"] for row in run.curve)
    world = milkrun.make("milkrun/VRPP-v0", 4, num_loc=5, seed=1)
    world.reset()
    assert run.policy(world).shape == (4,)


def test_a_run_finds_out_once_whether_plans_are_allowed(tmp_path, monkeypatch):
    """Three evaluations, one trial; the policy of a later step plays by the later weights."""
    trials = []
    monkeypatch.setattr(policies, "why_no_plans", lambda world: trials.append(world) or why_no_plans(world))
    learn.train("milkrun/CVRP-v0", steps=6, every=2, out=tmp_path / "run", **SMALL)
    assert len(trials) == 1
    _, state = read_run(tmp_path / "run" / "last.safetensors")
    world = milkrun.make("milkrun/CVRP-v0", 16, num_loc=5, seed=1, autoreset="disabled")
    before = evaluate(world, state.policy(), 16).returns
    with torch.no_grad():
        for p in state.network.parameters():
            p.neg_()
    after = evaluate(world, state.policy(), 16).returns
    assert (after != before).any()
    assert after.tolist() == evaluate(world, NetworkPolicy(state.network, state.features), 16).returns.tolist()


REFUSED = {
    "minutes and steps": ({"minutes": 1, "steps": 5}, "minutes or steps"),
    "no budget": ({"steps": 0}, "steps"),
    "no time": ({"minutes": 0}, "minutes"),
    "an unknown algorithm": ({"algorithm": "dqn"}, "'reinforce' or 'ppo'"),
    "an unknown baseline": ({"steps": 3, "baseline": "critic"}, "shared, rollout"),
    "heads that do not divide": ({"steps": 3, "heads": 5}, "divisible"),
    "unknown starts": ({"steps": 3, "starts": "maybe"}, "yes, no or try"),
    "an unknown device": ({"steps": 3, "device": "toaster"}, "toaster"),
    "an unknown option": ({"steps": 3, "num_trees": 3}, "num_trees"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_refused(case, tmp_path):
    """Before anything is trained."""
    given, said = REFUSED[case]
    with pytest.raises(ConfigError, match=said):
        learn.train("milkrun/CVRP-v0", out=tmp_path / "run", **{**SMALL, **given})


def test_reinforce_is_refused_where_it_does_not_fit():
    """With the reason."""
    with pytest.raises(ConfigError, match="several agents act"):
        learn.train("milkrun/TruckDrone-v0", algorithm="reinforce", steps=3, progress=False)


def test_options_of_reinforce_are_refused_for_ppo(tmp_path):
    """Instead of being ignored."""
    with pytest.raises(ConfigError, match="width is an option of reinforce"):
        learn.train("milkrun/TruckDrone-v0", steps=3, width=64, out=tmp_path / "run", progress=False)


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    """And a folder without one is not resumed."""
    learn.train("milkrun/CVRP-v0", steps=2, out=tmp_path / "run", **SMALL)
    with pytest.raises(ConfigError, match="holds a run"):
        learn.train("milkrun/CVRP-v0", steps=2, out=tmp_path / "run", **SMALL)
    with pytest.raises(BadCheckpoint, match=r"last\.safetensors"):
        learn.resume(tmp_path / "nothing", progress=False)


def test_nothing_global_is_seeded_or_left_changed(tmp_path):
    """Torch's generator, its number of threads and its precision are as before."""
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    learn.train("milkrun/CVRP-v0", steps=2, out=tmp_path / "run", **SMALL)
    assert torch.equal(torch.get_rng_state(), before) and torch.get_num_threads() == threads


def test_a_lower_precision_of_the_process_changes_no_bit(tmp_path):
    """RL4CO's trainer lowers the precision of products for the whole process."""
    learn.train("milkrun/CVRP-v0", steps=3, out=tmp_path / "one", **SMALL)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        learn.train("milkrun/CVRP-v0", steps=3, out=tmp_path / "two", **SMALL)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert weights(tmp_path / "one") == weights(tmp_path / "two")


class Linear(torch.nn.Module):
    """Scores that are a linear function of the node features."""

    def __init__(self, sizes, generator=None):
        super().__init__()
        self.sizes = sizes
        self.weight = torch.nn.Parameter(torch.empty(sizes.nodes).uniform_(-1, 1, generator=generator))

    def encode(self, nodes):
        return OwnTables(nodes @ self.weight)

    def scores(self, tables, inputs):
        return (tables.score[:, None] + 0 * inputs.mask).masked_fill(~inputs.mask, -1e9)


class OwnTables(NamedTuple):
    score: torch.Tensor


def test_another_network_trains_resumes_and_loads(tmp_path, monkeypatch):
    """Its file has its own tensors, so it cannot be read as the attention model."""
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        learn.train("milkrun/CVRP-v0", out=tmp_path, **{**SMALL, "steps": 6, "network": Linear})
    run = learn.resume(tmp_path, network=Linear, progress=False)
    network = run.policy.network
    assert run.step == 6 and isinstance(network, Linear) and network.weight.shape == (network.sizes.nodes,)
    with pytest.raises(BadCheckpoint, match="lacks the tensor"):
        learn.load(tmp_path / "best.safetensors")
    with pytest.raises(ConfigError, match="network is an option of reinforce"):
        learn.train("milkrun/TruckDrone-v0", steps=1, network=Linear)
