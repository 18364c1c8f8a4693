"""Reads instances from files for environments of TensorDicts: datasets, and files of the literature."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from milkrun.core.dataset import read_dataset
from milkrun.core.errors import ConfigError, FormatError
from milkrun.core.files import name_of
from milkrun.core.registry import world_spec
from milkrun.routing.instances import Instance, read

LITERATURE = (".vrp", ".tsp", ".atsp", ".txt")


def load_instances(path: str | os.PathLike[str], world_id: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The instances of a world in a file, by field, the instance first, and the options that the world needs for them.
    A dataset (a folder, an npz file of Milkrun or RL4CO) has no options."""
    name, world = Path(name_of(path)), world_spec(world_id).load()
    if name.suffix.lower() not in LITERATURE:
        arrays = read_dataset(name)
        of_rl4co = {"depot", "demand", "capacity"} <= arrays.keys() and "demand_units" in world.fields
        return in_units(name, arrays) if of_rl4co else arrays, {}
    instance = read(name)
    if not isinstance(instance, Instance):
        raise ConfigError(f"{name.name}: a dial-a-ride file; from_instances of milkrun.routing.darp.DARP plays it")
    if instance.kind not in world.file_kinds:
        raise ConfigError(f"{name.name}: {world_id} plays no {instance.kind} file")
    instance = instance.for_world(world_id)
    arrays = {field: np.array(value)[None] for field, value in instance.arrays().items()}
    return arrays, {**world.options_for(arrays), **instance.config}


def in_units(name: Path, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The fields of a CVRP file of RL4CO, in which the depot is separate and the demand of customers is in units."""
    given = {**arrays}
    depot, locs, demand = given.pop("depot"), given["locs"], given.pop("demand")
    if (demand != np.rint(demand)).any():
        raise FormatError(f"{name}: demand must be whole units of the capacity beside it, as RL4CO writes them")
    given["locs"] = np.concatenate([depot[:, None], locs], axis=1)
    given["demand_units"] = np.pad(demand, ((0, 0), (1, 0))).astype(np.int32)
    given["capacity"] = given["capacity"].reshape(-1).astype(np.int32)
    return given
