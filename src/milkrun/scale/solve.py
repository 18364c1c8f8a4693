"""`solve` on a cluster: one instance per task, with the result of `milkrun.solvers.solve` for that instance alone."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from milkrun.core.arguments import check_count, check_seconds, check_seed
from milkrun.core.errors import ConfigError, ShapeError
from milkrun.core.instances import as_array, owners_of
from milkrun.core.registry import named_world
from milkrun.routing.instances import read
from milkrun.scale.driver import Arrays, Job, JobOptions, run
from milkrun.scale.shard_store import ShardStore
from milkrun.scale.work import solve_instance
from milkrun.solvers.solve import Solution, check_method


def solve(
    world_name: str,
    instances: Any,
    method: str | None = None,
    time_limit: float = 1.0,
    seed: int = 0,
    *,
    rule: str | None = None,
    iterations: int | None = None,
    address: str | None = None,
    keep: Any = None,
    retries: int = 5,
    cpus_per_shard: float = 1,
    progress: bool | None = None,
    **config: Any,
) -> Solution:
    """Solves instances of a world on Ray, one per task.

    `instances` are paths of files, results of `milkrun.routing.instances.read`, a list of either, or a dict of arrays
    whose first axis is the instance. `keep` and the arguments after it are those of `evaluate`, all others those of
    `milkrun.solvers.solve`. The caller reads the files, so the workers need none. `actions` are padded with 0.
    """
    spec = named_world(world_name)
    method = check_method(spec, method)
    each = _split(instances)
    options = JobOptions.validate(address, retries, cpus_per_shard, 1, progress)
    keywords = {
        "method": method,
        "time_limit": check_seconds("time_limit", time_limit),
        "seed": check_seed(seed),
        "rule": rule,
        "iterations": None if iterations is None else check_count("iterations", iterations, 1),
        **config,
    }
    store = None
    if keep is not None:
        plain_keywords = {
            name: value.item() if isinstance(value, np.generic) else value for name, value in keywords.items()
        }
        plain = (bool, int, float, str, list, tuple, type(None))
        if strange := [name for name, value in plain_keywords.items() if not isinstance(value, plain)]:
            raise ConfigError(
                f"{strange[0]}={plain_keywords[strange[0]]!r} cannot be written into the manifest of keep={keep!r}"
            )
        sums = hashlib.sha256("".join(_checksum(one) for one in each).encode()).hexdigest()
        key = {"kind": "solve", "world": spec.id, **plain_keywords, "instances": len(each), "sha256": sums}
        store = ShardStore(keep, key)
    found: dict[int, Arrays] = {}

    def is_result(k: int, arrays: Arrays) -> bool:
        shapes = {name: arrays[name].shape for name in ("cost", "optimal") if name in arrays}
        return shapes == {"cost": (1,), "optimal": (1,)} and "actions" in arrays and arrays["actions"].ndim == 1

    run(
        Job(
            f"{spec.name} by {method}",
            len(each),
            lambda k: (solve_instance, (spec.id, each[k], k, keywords)),
            is_result,
            found.__setitem__,
            lambda k: 1,
            "instances",
        ),
        options,
        store,
    )
    actions = np.zeros((len(each), max(len(one["actions"]) for one in found.values())), np.int32)
    for k, one in found.items():
        actions[k, : len(one["actions"])] = one["actions"]
    cost, optimal = (np.concatenate([found[k][name] for k in range(len(each))]) for name in ("cost", "optimal"))
    return Solution(actions, cost, optimal)


def _split(instances: Any) -> list[Any]:
    """The instances of a call as a list, each in a form that `solvers.solve` takes."""
    if hasattr(instances, "keys"):
        return _rows(
            {
                str(name): as_array(str(name), instances[name])
                for name in list(instances.keys())
                if instances[name] is not None
            }
        )
    several = list(instances) if isinstance(instances, Sequence) and not isinstance(instances, str) else [instances]
    if not several:
        raise ShapeError("there is no instance to solve: the list is empty")
    return [read(one) if isinstance(one, (str, os.PathLike)) else one for one in several]


def _rows(arrays: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """One dict for each instance of a batch. Values that all share (a number, a single row) are not split."""
    owner = arrays.pop("instance_row", None)
    most = max((len(values) for values in arrays.values() if values.ndim), default=0)
    rows = range(most) if owner is None else owners_of(owner, len(np.atleast_1d(owner)), most).tolist()
    if not len(rows):
        raise ShapeError("there is no instance to solve: the batch has 0 rows")
    return [
        {
            name: values if values.ndim == 0 or len(values) != most else values[b : b + 1]
            for name, values in arrays.items()
        }
        for b in rows
    ]


def _checksum(instance: Any) -> str:
    """The SHA-256 of all values of an instance."""
    if dataclasses.is_dataclass(instance):
        instance = {f.name: getattr(instance, f.name) for f in dataclasses.fields(instance)}
    total = hashlib.sha256()
    for name, value in sorted(_flat("", instance)):
        total.update(name.encode())
        total.update(np.ascontiguousarray(value).tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return total.hexdigest()


def _flat(name: str, value: Any) -> list[tuple[str, Any]]:
    if hasattr(value, "items"):
        return [pair for key, inner in value.items() for pair in _flat(f"{name}.{key}", inner)]
    return [(name, value)]
