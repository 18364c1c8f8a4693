"""Dataset folders from elsewhere: only regular files of the folder are read, none larger unpacked than packed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile

import numpy as np
import pytest

import milkrun
from milkrun import scale
from milkrun.core.dataset import arrays_of
from milkrun.core.errors import ConfigError, FormatError, MilkrunError


@pytest.fixture
def folder(tmp_path):
    """Two shards of two CVRP instances each."""
    made = scale.generate(
        "milkrun/CVRP-v0", 4, tmp_path / "made", 3, config={"num_loc": 5}, on="local", shard_rows=2, progress=False
    )
    assert len(list(scale.instances(made))) == 2
    return made


def test_a_dataset_is_read_whole(folder):
    """A folder as its files joined, a file as it is: what the rows of a world with that seed draw first."""
    world = milkrun.make("milkrun/CVRP-v0", 4, seed=3, num_loc=5)
    world.reset()
    whole, second = milkrun.read_dataset(folder), milkrun.read_dataset(str(folder / "data-000001.npz"))
    assert set(whole) == set(second) == {"locs", "n_nodes", "demand_units", "capacity", "max_length"}
    for name, array in whole.items():
        assert np.array_equal(array, getattr(world, name)) and np.array_equal(array[2:], second[name])
    world.reset(instance=whole)


@pytest.mark.parametrize(
    ("write", "error", "words"),
    [
        (lambda path: None, FormatError, "x: cannot be read: No such file"),
        (lambda path: path.mkdir(), ConfigError, r"manifest\.json: cannot be read"),
        (lambda path: path.write_text("words"), FormatError, "x: is no npz file of arrays"),
        (lambda path: save(path, locs=np.zeros((2, 3)), capacity=np.zeros(3)), FormatError, r"as many .*\(2, 3\)"),
        (lambda path: save(path, capacity=np.array(3)), FormatError, "as many instances"),
        (lambda path: save(path), FormatError, "found no array"),
        (lambda path: save(path, locs=np.array([None])), FormatError, "is no npz file of arrays"),
    ],
)
def test_invalid_datasets_are_refused(tmp_path, write, error, words):
    """Missing, empty, of another kind, of unequal lengths, or with objects, which would have to be executed."""
    write(tmp_path / "x")
    with pytest.raises(error, match=words):
        milkrun.read_dataset(tmp_path / "x")


def save(path, **arrays):
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def edit(folder, change):
    manifest = folder / "manifest.json"
    entries = json.loads(manifest.read_text())
    change(entries["shards"])
    manifest.write_text(json.dumps(entries))


@pytest.mark.parametrize("absolute", [False, True])
def test_a_manifest_names_no_file_elsewhere(folder, absolute):
    """A shard outside the folder is not read, even with the right checksum."""
    outside = folder.parent / "x.npz"
    outside.write_bytes((folder / "data-000001.npz").read_bytes())
    name = str(outside) if absolute else "../x.npz"
    edit(folder, lambda shards: shards.update({name: shards.pop("data-000001.npz")}))
    with pytest.raises(FormatError, match=r"does not list data-000001\.npz"):
        list(scale.instances(folder))


def test_a_manifest_does_not_reorder_shards(folder):
    """Names that sort otherwise are no shards of the dataset."""
    first = (folder / "data-000000.npz").read_bytes()
    (folder / "z.npz").write_bytes(first)
    edit(folder, lambda shards: shards.update({"z.npz": shards.pop("data-000000.npz")}))
    with pytest.raises(FormatError, match=r"does not list data-000000\.npz"):
        list(scale.instances(folder))


def test_a_shard_of_another_size_is_refused(folder):
    """One instance instead of two, under its right checksum."""
    file = folder / "data-000001.npz"
    with np.load(file) as saved:
        fewer = {name: saved[name][:1] for name in saved.files}
    np.savez(file, **fewer)
    edit(folder, lambda shards: shards.update({file.name: hashlib.sha256(file.read_bytes()).hexdigest()}))
    with pytest.raises(FormatError, match="does not hold 2 instances"):
        list(scale.instances(folder))


def put_pipe(path):
    os.mkfifo(path)


def put_link(path):
    path.symlink_to(path.with_name("data-000000.npz"))


def put_device(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("put", "message"),
    [
        (put_pipe, "is no regular file"),
        (put_link, "is a link"),
        (put_device, "is a link"),
        (os.mkdir, "Is a directory"),
        (lambda path: None, "cannot be read: No such file"),
    ],
)
@pytest.mark.parametrize("name", ["data-000001.npz", "manifest.json"])
def test_a_special_file_is_refused_at_once(folder, put, message, name):
    """A pipe without a writer would hang, a device would never end."""
    (folder / name).unlink()
    put(folder / name)
    with pytest.raises(MilkrunError, match=message):
        list(scale.instances(folder))


def bomb() -> bytes:
    """2 MB that unpack to 2 GB would be this, a thousand times as long."""
    content = io.BytesIO()
    np.savez_compressed(content, locs=np.zeros((2, 6, 20_000), np.float32))
    return content.getvalue()


def overlapping() -> bytes:
    """Two entries of a directory over the same bytes of the file."""
    content = io.BytesIO()
    np.savez(content, locs=np.zeros(10_000))
    with zipfile.ZipFile(content, "a") as packed:
        again = packed.infolist()[0]
        packed.filelist += [again] * 9
        packed.writestr("last", b"")  # so that the directory is written again
    return content.getvalue()


@pytest.mark.parametrize("raw", [bomb(), overlapping()], ids=["compressed", "overlapping"])
def test_a_file_that_unpacks_to_more_than_its_size_is_refused(folder, raw):
    """Before anything is unpacked, whatever the manifest has of it."""
    assert sum(entry.file_size for entry in zipfile.ZipFile(io.BytesIO(raw)).infolist()) > len(raw)
    assert arrays_of(raw) is None
    (folder / "data-000001.npz").write_bytes(raw)
    edit(folder, lambda shards: shards.update({"data-000001.npz": hashlib.sha256(raw).hexdigest()}))
    shards = scale.instances(folder)
    assert set(next(shards)) >= {"locs", "demand_units"}
    with pytest.raises(FormatError, match="is not what the manifest says"):
        next(shards)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"shards": ' * 50_000, '{"seed": ' + "1" * 5_000 + "}"])
def test_a_manifest_that_json_readers_fail_on_is_refused(folder, text):
    """Endless nesting, a number of 5,000 digits: a sentence that names the file."""
    (folder / "manifest.json").write_text(text)
    with pytest.raises(ConfigError, match=r"manifest\.json is damaged"):
        list(scale.instances(folder))
