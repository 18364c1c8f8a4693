"""Defaults and checks of given instances and loaded states of the TSP with a drone, for whole batches.

Shapes, types and bounds are already checked; here are the defaults of missing fields and the rules between fields. With
a state that breaks one, a kernel would read a nonexistent node or count nodes wrongly. Every state of play passes,
illegal actions or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from milkrun.core.errors import ShapeError, did_you_mean
from milkrun.core.fields import Role
from milkrun.core.instances import as_array, padded, refuse_where
from milkrun.core.registry import make
from milkrun.delivery.instances.tspd import DEAREST, LARGEST, TSPDInstance

Arrays = Mapping[str, np.ndarray]


# -- instances ---------------------------------------------------------------------------------------------------------


def fill_in(world: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Adds the missing fields of given instances; misshapen fields are refused later."""
    # A given `fly_on` is recomputed: a value too low would open launches without a possible join.
    values = {name: array for name, array in values.items() if name != "fly_on"}
    rows, nodes = len(next(iter(values.values()), ())), world.sizes["N"]
    if "locs" not in values and "c_truck" in values and "c_drone" in values:
        values["locs"] = np.zeros((rows, nodes, 2))  # costs alone are a valid instance
    values.setdefault("n_nodes", np.full(rows, nodes, np.int32))
    values.setdefault("max_fly", np.full(rows, world.config.max_fly))
    values.setdefault("no_visit", np.zeros((rows, nodes), bool))
    values.setdefault("forbid", np.zeros((rows, nodes), bool))
    if "locs" in values and values["locs"].ndim != 3:
        raise ShapeError(f"locs must have the shape (rows, {nodes}, 2), not {values['locs'].shape}")
    if "locs" in values and _fits(world, "locs", values["locs"], rows, "fiu"):
        with np.errstate(invalid="ignore", over="ignore"):
            # the operations of `price` in the generator, in the same order, so that costs agree bit by bit
            legs = values["locs"][:, :, None].astype(np.float64) - values["locs"][:, None]
            way = np.sqrt(legs[..., 0] * legs[..., 0] + legs[..., 1] * legs[..., 1])
        values.setdefault("c_truck", way)
        values.setdefault("c_drone", (1.0 / world.config.alpha) * way)
    if _fits(world, "n_nodes", values["n_nodes"], rows, "iu") and _fits(world, "forbid", values["forbid"], rows, "b"):
        # padding is forbidden, so that loops over all N nodes need no test for it
        values["forbid"] = values["forbid"] | (np.arange(nodes) >= values["n_nodes"][:, None])
    values["fly_on"] = _fly_on(world, values, rows)
    return values


def _fly_on(world: Any, values: Arrays, rows: int) -> np.ndarray:
    """The least cost from each node to another one that is not forbidden, or 0 if there is none."""
    nodes = world.sizes["N"]
    if "c_drone" not in values or not (
        _fits(world, "c_drone", values["c_drone"], rows, "fiu") and _fits(world, "forbid", values["forbid"], rows, "b")
    ):
        return np.zeros((rows, nodes))
    shut = values["forbid"][:, None, :] | np.eye(nodes, dtype=bool)
    # nan, inf and negative costs are refused later as c_drone; here `fly_on` must only stay valid
    least: np.ndarray = np.where(shut, np.inf, np.nan_to_num(values["c_drone"], posinf=np.inf)).min(axis=2)
    return np.where(np.isfinite(least), np.maximum(least, 0.0), 0.0)


def _fits(world: Any, name: str, array: np.ndarray, rows: int, kinds: str) -> bool:
    return array.dtype.kind in kinds and array.shape == (rows, *world.fields[name].shape(world.sizes))


def check_instance(world: Any, arrays: Arrays) -> None:
    """Checks the diagonal and the size of costs, and `fly_on`."""
    for name in ("c_truck", "c_drone"):
        diagonal = arrays[name] * np.eye(world.sizes["N"])
        refuse_where(name, diagonal, diagonal != 0, "the cost from a node to itself is 0")
    refuse_where("locs", arrays["locs"], np.abs(arrays["locs"]) > LARGEST, f"must be within -{LARGEST:g}..{LARGEST:g}")
    for name in ("c_truck", "c_drone"):
        refuse_where(name, arrays[name], arrays[name] > DEAREST, f"must be <= {DEAREST:g}")
    least = _fly_on(world, arrays, len(arrays["c_drone"]))
    wrong = arrays["fly_on"] != least
    right = f"{least[wrong][0]:g}" if wrong.any() else ""
    refuse_where("fly_on", arrays["fly_on"], wrong, f"must be {right}, the least c_drone to another node")


def world_of(
    cls: Any, instances: Sequence[TSPDInstance | Mapping[str, Any]], repeat: int, keywords: dict[str, Any]
) -> Any:
    """A world of this class that plays these instances; `keywords` are those of `make`."""
    if not instances:
        raise ShapeError("from_instances needs at least one instance")
    rows = [_arrays(cls, k, one) for k, one in enumerate(instances)]
    for one in rows:
        for name in sorted(set(one) ^ set(rows[0])):
            raise ShapeError(f"{name!r} is given in some instances and not in others")
    nodes = [len(one["locs" if "locs" in one else "c_truck"]) for one in rows]
    world: Any = make(cls.id, num_envs=len(rows) * repeat, **{"num_nodes": max(nodes), **keywords})
    batch = {name: np.stack([padded(world, name, one[name]) for one in rows]) for name in rows[0]}
    batch.setdefault("n_nodes", np.array(nodes, np.int32))
    world.reset(instance={**batch, "instance_row": np.arange(len(rows) * repeat) // repeat})
    return world


def _arrays(cls: Any, k: int, one: Any) -> dict[str, np.ndarray]:
    """The fields of one instance, with shapes checked against its number of nodes."""
    if isinstance(one, TSPDInstance):
        return {name: array[0] for name, array in one.fields().items()}
    if not isinstance(one, Mapping) or not ("locs" in one or {"c_truck", "c_drone"} <= set(one)):
        raise ShapeError(
            f"instance {k} must be a TSPDInstance or a mapping with `locs`, or with `c_truck` and `c_drone`"
        )
    arrays = {name: as_array(name, value) for name, value in one.items()}
    known = {name: f for name, f in cls.fields.items() if f.role is Role.INSTANCE}
    places = arrays["locs" if "locs" in arrays else "c_truck"]
    for name, array in arrays.items():
        if name not in known:
            raise ShapeError(f"instance {k}: {cls.__name__} has no instance field {name!r}{did_you_mean(name, known)}")
        wanted = known[name].shape({"N": places.shape[0] if places.ndim else 0})
        if array.shape != wanted:
            raise ShapeError(f"instance {k}: {name} has the shape {array.shape}, not {wanted}")
    return arrays


# -- states ------------------------------------------------------------------------------------------------------------


def check_state(arrays: Arrays) -> None:
    """Checks rules that hold in all play, also of ended rows; the kernel `fault` checks those that protect indices."""
    _check_vehicles(arrays)
    _check_record(arrays)


def _check_vehicles(arrays: Arrays) -> None:
    """Checks the nodes of truck and drone, and the covered ones."""
    truck, launch, fly, covered = (arrays[name] for name in ("truck", "launch", "fly", "covered"))
    nodes, row, n, out = covered.shape[1], np.arange(len(truck)), arrays["n_nodes"], fly >= 0
    for name, place in (("truck", truck), ("launch", launch), ("fly", fly)):
        refuse_where(name, place, place >= n, "is no node of this instance")
    refuse_where("fly", fly, out & (fly == launch), "is where the drone was launched")
    refuse_where("fly", fly, fly == 0, "the depot is covered from the start")
    kept = (np.arange(nodes) == 0) | (np.arange(nodes) >= n[:, None])
    refuse_where("covered", covered, ~covered & kept, "the depot and padding are covered from the start")
    for name, place in (("truck", truck), ("launch", launch), ("fly", fly)):
        # -1 reads the last column, which `place >= 0` excludes; place >= n is refused above
        refuse_where(name, place, (place >= 0) & ~covered[row, place], "is a node that is not covered")
    left = arrays["left"]
    refuse_where("left", left, left != (~covered).sum(axis=1), "must be the nodes not covered")
    refuse_where("must_join", arrays["must_join"], arrays["must_join"] & ~out, "the drone is aboard")
    leg, clock = arrays["truck_leg"], arrays["clock"]
    refuse_where("truck_leg", leg, ~out & (leg != 0), "must be 0 with the drone aboard")
    refuse_where("truck_leg", leg, leg > clock * (1 + 1e-9), "is more than the time that has passed")
    most = 6 * nodes * DEAREST  # of 3 N actions, a drive costs one leg and a join two
    refuse_where("clock", clock, clock > most, f"must be <= {most:g}")
    objective = arrays["objective"]
    wrong = np.abs(objective + clock) > 1e-9 * np.maximum(1.0, clock)
    refuse_where("objective", objective, wrong, "must be minus the clock")


def _check_record(arrays: Arrays) -> None:
    """Checks the recorded actions: alternating launches and joins, matching the counts. A record may be absent."""
    if "plan" not in arrays or "ops" not in arrays:
        return
    plan, steps, fly = arrays["plan"].astype(np.int64), arrays["steps"], arrays["fly"]
    nodes, longest = arrays["covered"].shape[1], plan.shape[1]
    refuse_where("steps", steps, steps > longest, f"must be <= {longest}")
    taken = np.arange(longest) < steps[:, None]
    wrong = np.where(taken, (plan < 0) | (plan > 2 * nodes), plan != -1)
    refuse_where("plan", plan, wrong, f"must be 0..{2 * nodes} up to steps = {int(steps.max(initial=0))}, then -1")
    sent, back = (plan >= nodes) & (plan < 2 * nodes), plan == 2 * nodes
    out = np.cumsum(sent, axis=1) - np.cumsum(back, axis=1)
    refuse_where("plan", plan, (out < 0) | (out > 1), "launches and joins must alternate")
    airborne = sent.sum(axis=1) - back.sum(axis=1)
    refuse_where("fly", fly, (fly >= 0) != (airborne == 1), "does not fit the launches and joins of the plan")
    by_drone, done = arrays["by_drone"], arrays["num_ops"]
    refuse_where("by_drone", by_drone, by_drone != sent.sum(axis=1), "must be the launches of the plan")
    refuse_where("num_ops", done, done > arrays["ops"].shape[1], f"must be <= {arrays['ops'].shape[1]}")
