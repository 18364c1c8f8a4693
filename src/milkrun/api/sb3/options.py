"""What `set_options` says of the next reset: the instances that rows play instead of drawn ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from milkrun.api._binding import read_options
from milkrun.core.errors import ConfigError, ShapeError
from milkrun.core.instances import as_array


def read_instances(options: Sequence[dict[str, Any]], rows: int) -> dict[str, np.ndarray] | None:
    """The instances that the options of a reset name, each once, and which of them each row plays."""
    if not isinstance(options, Sequence) or isinstance(options, str):
        raise ConfigError(f"options={options!r}: must be a dict for all rows, or a list with one a row")
    if len(options) != rows:
        raise ShapeError(f"{len(options)} options for {rows} rows: a list has one a row")
    read = [read_options(given, ("instance",)) for given in options]
    each = [given["instance"] for given in read if "instance" in given]
    if not each:
        return None
    if len(each) != rows:
        raise ConfigError(f"{len(each)} of {rows} rows are given an instance: give one to all or to none")
    different = {id(one): one for one in each}
    stacked = _stack([*different.values()])
    place = {known: k for k, known in enumerate(different)}
    return {**stacked, "instance_row": np.array([place[id(one)] for one in each])}


def _stack(instances: list[Any]) -> dict[str, np.ndarray]:
    first = instances[0]
    for one in instances:
        if not hasattr(one, "keys"):
            raise ShapeError(f"an instance is a mapping of field names to arrays, not a {type(one).__name__}")
        if set(one.keys()) != set(first.keys()):
            raise ShapeError(f"instances of different fields: {sorted(first.keys())} and {sorted(one.keys())}")
    stacked: dict[str, np.ndarray] = {}
    for name in list(first.keys()):
        arrays = [as_array(name, one[name]) for one in instances]
        if len({array.shape for array in arrays}) > 1:
            raise ShapeError(f"instances whose {name!r} differ in shape: {arrays[0].shape} is the first")
        stacked[str(name)] = np.stack(arrays)
    return stacked
