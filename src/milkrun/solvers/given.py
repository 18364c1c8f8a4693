"""Reads the caller's instances of routing worlds, with a world of the size of their arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import ConfigError, ShapeError
from milkrun.core.instances import as_array, read_instances
from milkrun.core.registry import make
from milkrun.routing.instances import Instance


def read_given(spec: Any, instances: Any, config: dict[str, Any]) -> tuple[Any, dict[str, NDArray[Any]]]:
    """A world of the right size and the instances as its checked fields."""
    cls = spec.load()
    if isinstance(instances, Instance):
        instances = instances.for_world(spec.id)
        config = {**instances.config, **config}
        instances = {name: np.asarray(value)[None] for name, value in instances.arrays().items()}
    if not hasattr(instances, "keys"):
        raise ShapeError(f"instances are a mapping of names to arrays or an Instance, not a {type(instances).__name__}")
    given = {str(k): as_array(str(k), instances[k]) for k in list(instances.keys()) if instances[k] is not None}
    if {"prize", "waste", "demand_units"} & set(given):
        given.pop("demand", None)  # generators return the same array under both names
    matrix = given.get("dist", given.get("dist_matrix"))
    places = given.get("locs") if matrix is None else matrix
    if places is None or places.ndim != 3:
        raise ShapeError("the instances need `locs` (B, n, 2) or `dist` (B, n, n), the instance first")
    if len(places) == 0 or np.shape(given.get("instance_row", [0])) == (0,):
        raise ShapeError("there is no instance to solve: the batch has 0 rows")
    config = {**cls.options_for(given if matrix is None else {**given, "dist": matrix}), **config}
    windowed = {"time_windows", "start_time"} & set(given)
    if windowed and "time_windows" in cls.Config.__dataclass_fields__:
        config.setdefault("time_windows", True)
    if "service_time" in given and "service_times" in cls.Config.__dataclass_fields__:
        config.setdefault("service_times", True)
    world = make(spec.id, num_envs=1, **config)
    owner = given.get("instance_row")
    arrays, played = read_instances(world, given, len(places) if owner is None else np.size(owner))
    _refuse_contradictions(world.config, given, config)  # after the reader, which validates shapes and values
    if played is not None:
        arrays = {name: array[played] for name, array in arrays.items()}
    return world, arrays


def _refuse_contradictions(config: Any, given: dict[str, NDArray[Any]], said: dict[str, Any]) -> None:
    """Refuses options that contradict fields of the instances.

    Capacity, length limit and bin size of an instance override the options. Automatic weights use the option.
    """
    said = {**type(config).presets.get(said.get("preset", ""), {}), **said}
    said = {config.synonyms.get(name, name): value for name, value in said.items()}
    for name in ("capacity", "max_length", "max_waste"):
        values = given.get(name, given.get("vehicle_cap") if name == "capacity" else None)
        option = getattr(config, name, None)
        if values is None or values.dtype.kind not in "fiu" or option is None or isinstance(option, str):
            continue
        values = np.atleast_1d(values)  # one number for all instances
        exact = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
        other = values.astype(exact) != np.asarray(option, exact)
        if not other.any():
            continue
        row, value = int(np.argwhere(other)[0][0]), values[other][0]
        automatic = [w for w in ("length_weight", "overflow_weight") if getattr(config, w, None) == "auto"]
        if name in said:
            raise ConfigError(
                f"{name} = {said[name]!r}: instance {row} has {name} = {value}, which overrides the option: "
                "omit the option or the field"
            )
        if name == "max_waste" and automatic:
            raise ConfigError(
                f"instance {row} has max_waste = {value}, but the option max_waste is {option!r}, and "
                f"{automatic[0]} = 'auto' depends on it: give max_waste={value}, or the weight"
            )
