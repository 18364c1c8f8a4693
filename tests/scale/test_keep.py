"""The folder of finished shards: which files are trusted, which folders are refused, and the lock."""

from __future__ import annotations

import errno
import json
import os
import pickle
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from milkrun import scale
from milkrun.core.errors import ConfigError, FormatError, ScaleError
from milkrun.core.references import refer
from milkrun.routing.cvrp import CVRP
from milkrun.scale.shard_store import ShardStore
from milkrun.solvers import solve

KEY = {"kind": "test", "seed": 1, "config": {"num_loc": 5, "side": 1.0}}
SHARDS = 5


def content(k):
    return {"returns": np.arange(40.0) + k, "lengths": np.arange(40) * k}


def opened(folder, **changes):
    return ShardStore(folder, {**KEY, **changes})


@pytest.fixture
def folder(tmp_path):
    """Five finished shards."""
    with opened(tmp_path / "kept") as kept:
        for k in range(SHARDS):
            kept.store(k, content(k))
    return tmp_path / "kept"


def test_what_is_stored_is_loaded(folder):
    """In a second call, to the bit. The manifest has key and checksums, and the folder has no other file."""
    with opened(folder) as kept:
        for k in range(SHARDS):
            assert all(np.array_equal(values, content(k)[name]) for name, values in kept.load(k).items())
    entries = json.loads((folder / "manifest.json").read_text())
    assert entries["seed"] == 1 and entries["format"] == 1 and len(entries["shards"]) == SHARDS
    assert len(list(folder.iterdir())) == SHARDS + 1
    subprocess.run(
        ["sha256sum", "--status", "-c"],
        cwd=folder,
        check=True,
        text=True,
        input="".join(f"{sum}  {name}\n" for name, sum in entries["shards"].items()),
    )


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def damages(folder):
    """Fifty ways to damage a file of a shard."""
    path = folder / "shard-000002.npz"
    raw = path.read_bytes()
    rng = np.random.default_rng(0)
    for cut in np.linspace(0, len(raw) - 1, 15).astype(int):
        yield "cut", raw[:cut]
    for at in rng.integers(0, len(raw), 25):
        flipped = bytearray(raw)
        flipped[at] ^= 1 << int(rng.integers(8))
        yield f"flip {at}", bytes(flipped)
    for other in (0, 1, 3, 4):
        yield "another shard", (folder / f"shard-00000{other}.npz").read_bytes()
    trap = folder.parent / "trap"
    np.savez(folder.parent / "pickled.npz", returns=np.array([Trap(trap)], object), allow_pickle=True)
    yield "pickle inside", (folder.parent / "pickled.npz").read_bytes()
    yield "pickle", pickle.dumps(Trap(trap))
    with zipfile.ZipFile(folder.parent / "empty.zip", "w"):
        pass
    yield "empty zip", (folder.parent / "empty.zip").read_bytes()
    yield "longer", raw + b"\0"
    yield "text", b"no zip at all"
    yield "zeros", bytes(len(raw))


def test_no_damaged_shard_is_trusted(folder):
    """Each of the fifty is seen as missing, the others stay, nothing in it is executed; stored again, it is back."""
    ways = list(damages(folder))
    assert len(ways) == 50
    for how, raw in ways:
        (folder / "shard-000002.npz").write_bytes(raw)
        with opened(folder) as kept:
            assert [k for k in range(SHARDS) if kept.load(k) is None] == [2], how
            kept.store(2, content(2))
            assert kept.load(2) is not None
    assert not (folder.parent / "trap").exists()


def test_a_shard_that_the_manifest_was_made_to_trust_is_still_not_executed(folder):
    """A pickle with the right checksum: no arrays, so it is computed again."""
    import hashlib

    trap = folder.parent / "trap"
    np.savez(folder / "shard-000002.npz", returns=np.array([Trap(trap)], object), allow_pickle=True)
    entries = json.loads((folder / "manifest.json").read_text())
    raw = (folder / "shard-000002.npz").read_bytes()
    entries["shards"]["shard-000002.npz"] = hashlib.sha256(raw).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(entries))
    with opened(folder) as kept:
        assert kept.load(2) is None
    assert not trap.exists()


def test_other_work_is_refused_with_every_difference(folder):
    """Nested entries by their path."""
    with pytest.raises(ConfigError) as caught, opened(folder, seed=2, config={"num_loc": 6, "side": 1.0}):
        pass
    assert "config.num_loc is 5 there and 6 here; seed is 1 there and 2 here" in str(caught.value)
    with opened(folder):
        pass  # and the lock is free again


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"shards": 3}', "\0\xff"])
def test_a_damaged_manifest_is_refused_by_name(folder, text):
    """Without it no shard can be trusted."""
    (folder / "manifest.json").write_text(text)
    with pytest.raises(ConfigError, match=r"manifest\.json"), opened(folder):
        pass


def test_shards_of_a_killed_caller_count(folder):
    """Those in its list of checksums, whose last line may be incomplete; incomplete files are removed."""
    entries = json.loads((folder / "manifest.json").read_text())
    sums = dict(entries["shards"])
    lines = [f"{sums[name]}  {name}" for name in sorted(sums)]
    (folder / "manifest.json").write_text(json.dumps({**entries, "shards": {}}))
    (folder / "shards.sha256").write_text("\n".join(lines[:3]) + "\n" + lines[3][:30])
    (folder / ".shard-000004.npz.0123.part").write_bytes(b"half")
    with opened(folder) as kept:
        assert [k for k in range(SHARDS) if kept.load(k) is not None] == [0, 1, 2]
    assert not list(folder.glob("*.part")) and not (folder / "shards.sha256").exists()


def test_a_second_caller_is_refused_and_a_dead_one_is_not_waited_for(folder):
    """By process and machine; the lock of a process that died is taken over, that of another machine is not."""
    with opened(folder), pytest.raises(ConfigError, match=f"in use by process {os.getpid()} on"), opened(folder):
        pass
    holder = f"""
import sys
from milkrun.scale.shard_store import ShardStore
ShardStore({str(folder)!r}, {KEY!r}).__enter__()
print("held", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match=f"in use by process {process.pid} on"), opened(folder):
            pass
        process.kill()
    assert json.loads((folder / "lock").read_text()) == {"pid": process.pid, "host": socket.gethostname()}
    with opened(folder) as kept:
        assert kept.load(0) is not None
    (folder / "lock").write_text('{"pid": 1, "host": "elsewhere"}')
    with pytest.raises(ConfigError, match=r"process 1 on elsewhere.*remove the file"), opened(folder):
        pass


def test_a_full_disk_is_named_and_finished_shards_stay(folder, monkeypatch):
    """The third write fails: an error with the file, no half file, and the first two count."""
    for path in folder.glob("shard-*"):
        path.unlink()
    real, calls = os.replace, []

    def full(draft, path):
        calls.append(path)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(draft, path)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ScaleError, match=r"shard-000002\.npz: cannot be written: No space"), opened(folder) as kept:
        for k in range(SHARDS):
            kept.store(k, content(k))
    assert not list(folder.glob("*.part"))
    with opened(folder) as kept:
        assert [k for k in range(SHARDS) if kept.load(k) is not None] == [0, 1]


def test_a_folder_with_other_files_is_refused(tmp_path):
    """It has files but no manifest; a file is no folder; one that cannot be written is named."""
    (tmp_path / "thesis.tex").write_text("do not touch")
    for path, words in (
        (tmp_path, "thesis.tex"),
        (tmp_path / "thesis.tex", "is a file"),
        (Path("/proc/nowhere"), "cannot be written"),
    ):
        with pytest.raises(ConfigError, match=words), opened(path):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_dataset_is_solved_priced_and_played_as_it_is(tmp_path):
    """Instances from files go to a solver, to the checker and into a world; what is damaged or not whole is refused."""
    out = scale.generate("milkrun/CVRP-v0", 10, tmp_path / "data", 3, config={"num_loc": 6}, shard_rows=4, on="local")
    shards = list(scale.instances(out))
    assert [len(part["locs"]) for part in shards] == [4, 4, 2]
    found = solve("CVRP", shards[1], "ls")
    costs, *_ = refer(CVRP, "task").get_costs(shards[1], found.actions)
    assert np.allclose(costs, found.cost)
    world = CVRP(4, CVRP.Config(num_loc=6), seed=3, first_row=4)
    world.reset()
    drawn = world.locs.copy()
    world.reset(instance=shards[1])
    assert np.array_equal(world.locs, drawn)
    manifest = out / "manifest.json"
    entries = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**entries, "shards": dict(list(entries["shards"].items())[:2])}))
    with pytest.raises(ConfigError, match="has 2 of 3 shards: the call that was stopped completes it"):
        list(scale.instances(out))
    manifest.write_text(json.dumps(entries))
    (out / "data-000001.npz").write_bytes(b"")
    with pytest.raises(FormatError, match=r"data-000001\.npz is not what the manifest says"):
        list(scale.instances(out))
    scale.generate("milkrun/CVRP-v0", 10, out, 3, config={"num_loc": 6}, shard_rows=4, on="local")
    assert np.array_equal(list(scale.instances(out))[1]["locs"], shards[1]["locs"])
