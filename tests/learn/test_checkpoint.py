"""Checkpoints: what is written is read back; a damaged or hostile file is refused by BadCheckpoint and nothing else."""

from __future__ import annotations

import json
import os
import pickle

import numpy as np
import pytest
import torch
from safetensors import torch as safetensors

import milkrun
from milkrun import learn
from milkrun.core.errors import BadCheckpoint, MilkrunError, RegistryError
from milkrun.learn import checkpoint
from milkrun.learn.policy import NetworkPolicy
from milkrun.learn.trained import load, read_run
from tests.learn.tools import SMALL


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "cvrp5"
    learn.train("milkrun/CVRP-v0", steps=6, every=3, out=path, **SMALL)
    return path


def parts(raw):
    """Header (as JSON) and body of a safetensors file."""
    length = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def joined(header, body):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def with_about(raw, change):
    """The file with a changed description."""
    header, body = parts(raw)
    about = json.loads(header["__metadata__"]["milkrun"])
    change(about)
    header["__metadata__"]["milkrun"] = json.dumps(about)
    return joined(header, body)


def actions_of(policy):
    world = milkrun.make("milkrun/CVRP-v0", 8, num_loc=5, seed=3, autoreset="disabled")
    world.reset()
    return policy(world).tolist()


def refused(tmp_path, raw, reader=load):
    path = tmp_path / "mutated.safetensors"
    path.write_bytes(raw)
    with pytest.raises(BadCheckpoint) as caught:
        reader(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_the_policy_is_read_back(folder):
    """`last` has the weights of the last step; its policy acts like the network of the run that continues from it."""
    about, state = read_run(folder / "last.safetensors")
    assert (about["step"], about["world"], about["config"]["num_loc"]) == (6, "milkrun/CVRP-v0", 5)
    expected = actions_of(NetworkPolicy(state.network, state.features, "greedy"))
    assert actions_of(load(folder / "last.safetensors", "greedy")) == expected


def test_the_written_files_are_whole_and_alone(folder):
    """No draft stays behind, and curve.csv has a line for each evaluation."""
    names = sorted(p.name for p in folder.iterdir() if not p.name.startswith("events"))
    assert names == ["best.safetensors", "curve.csv", "curve.png", "last.safetensors", "run.json"]
    assert len((folder / "curve.csv").read_text().splitlines()) == 3


MUTATIONS = {
    "a longer width": (lambda a: a["sizes"].update(width=32), "expected F32"),
    "a width of 10^12": (lambda a: a["sizes"].update(width=10**12), "width"),
    "heads that do not divide": (lambda a: a["sizes"].update(heads=3), "divisible"),
    "a text for a number": (lambda a: a["sizes"].update(layers="1"), "layers"),
    "a hidden field": (lambda a: a["features"].update(numbers=["stream"]), "stream"),
    "a field of no world": (lambda a: a["features"].update(nodes=["locs", "nothing"]), "nothing"),
    "an infinite scale": (lambda a: a["features"]["scale"].update(load=[0.0, float("inf")]), "scale"),
    "a newer format": (lambda a: a.update(format=2), "format 2"),
    "another kind": (lambda a: a.update(kind="program"), "kind"),
    "no options": (lambda a: a.pop("features"), "description"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_changed_description_is_refused(name, folder, tmp_path):
    """The sentence names what is wrong."""
    change, said = MUTATIONS[name]
    assert said in refused(tmp_path, with_about((folder / "best.safetensors").read_bytes(), change))


@pytest.mark.parametrize("change", [{"heads": 1}, {"layers": 2}, {"baseline": "rollout"}], ids=str)
def test_a_run_whose_options_are_of_another_network_is_refused(change, folder, tmp_path):
    """The tensors fit the sizes, but the run that continues would build another network."""
    raw = with_about((folder / "last.safetensors").read_bytes(), lambda a: a["options"].update(change))
    assert "different networks" in refused(tmp_path, raw, read_run)


def test_an_unknown_world_or_option_is_refused_by_its_own_error(folder, tmp_path):
    """As everywhere else in the library."""
    path, raw = tmp_path / "p.safetensors", (folder / "best.safetensors").read_bytes()
    path.write_bytes(with_about(raw, lambda a: a.update(world="milkrun/Nothing-v0")))
    with pytest.raises(RegistryError):
        load(path)
    path.write_bytes(with_about(raw, lambda a: a["config"].update(num_trees=3)))
    with pytest.raises(MilkrunError, match="num_trees"):
        load(path)


def test_weights_that_are_not_finite_are_refused(folder, tmp_path):
    """One NaN among the weights."""
    raw = bytearray((folder / "best.safetensors").read_bytes())
    raw[-4:] = np.float32(np.nan).tobytes()
    assert "not finite" in refused(tmp_path, bytes(raw))


def test_other_files_are_refused(tmp_path):
    """A pickle, a torch archive, an empty file, a folder, a missing file, a safetensors file of another library."""
    torch.save({"a": torch.zeros(3)}, tmp_path / "archive")
    refused(tmp_path, (tmp_path / "archive").read_bytes())
    refused(tmp_path, pickle.dumps({"kind": "policy"}))
    refused(tmp_path, b"")
    refused(tmp_path, (10**12).to_bytes(8, "little") + b"{}")
    assert "metadata" in refused(tmp_path, safetensors.save({"a": torch.zeros(3)}))
    for path in (tmp_path, tmp_path / "missing.safetensors"):
        with pytest.raises(BadCheckpoint):
            load(path)
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(BadCheckpoint, match="regular"):
        load(tmp_path / "pipe.safetensors")


@pytest.mark.parametrize("name", ["best", "last"])
@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_mutated_files_are_refused_or_give_a_policy(count, name, folder, tmp_path):
    """Truncated, with flipped bytes in header and body, with bytes cut out or put in."""
    raw, path = (folder / f"{name}.safetensors").read_bytes(), tmp_path / "mutated.safetensors"
    length = int.from_bytes(raw[:8], "little")
    read = 0
    for case in range(count):
        rng = np.random.default_rng([case, count])
        mutated = bytearray(raw)
        how = rng.integers(4)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(8 + length if how < 3 else len(raw)))
            if how == 0:
                mutated = mutated[:at]
            elif how == 1 and at < len(mutated):
                mutated[at] ^= 1 << int(rng.integers(8))
            elif how == 2:
                mutated[at:at] = rng.bytes(int(rng.integers(1, 9)))
            elif at < len(mutated):
                mutated[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(mutated))
        try:
            policy = load(path)
        except MilkrunError:
            continue
        read += 1
        assert len(actions_of(policy)) == 8
    assert read < count


def test_a_failed_write_leaves_the_old_file(folder, tmp_path, monkeypatch):
    """A full disk: the old content stays, and no draft."""
    path = tmp_path / "kept"
    checkpoint.write_file(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadCheckpoint, match="No space left"):
        checkpoint.write_file(path, b"new")
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["kept"]
