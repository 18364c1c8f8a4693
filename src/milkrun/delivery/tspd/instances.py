"""Instances of the TSP with a drone at the door: fields, defaults, padding, what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from milkrun.core.errors import ShapeError, did_you_mean
from milkrun.core.fields import Role, bool_, constant, float64, instance, int32, int64
from milkrun.core.instances import as_array, refuse
from milkrun.core.world import World
from milkrun.delivery.instances.tspd import DEAREST, LARGEST, TSPDInstance
from milkrun.delivery.tspd.config import TSPDConfig
from milkrun.delivery.tspd.generator import LAWS


class TSPDDoor(World):
    """The instance fields, and how instances come in."""

    Config = TSPDConfig
    config: TSPDConfig

    law = constant(int64)
    alpha = constant(float64)
    fly_limit = constant(float64)

    locs = instance(float64, "N", 2, doc="coordinates; node 0 is the depot")
    c_truck = instance(float64, "N", "N", low=0, doc="cost of the truck, row -> column")
    c_drone = instance(float64, "N", "N", low=0, doc="cost of the drone, row -> column")
    max_fly = instance(float64, low=0, limit=True, doc="most that both legs of a flight may cost together")
    no_visit = instance(bool_, "N", doc="the drone may not serve it")
    forbid = instance(bool_, "N", doc="the drone may not be launched, join or serve here; padding too")
    fly_on = instance(float64, "N", low=0, doc="least `c_drone` from here to another node where the drone may join")
    n_nodes = instance(int32, low=2, high="N", doc="true node count; higher indices are padding")

    @classmethod
    def size_of(cls, config: TSPDConfig) -> dict[str, int]:
        n = config.num_nodes
        return {"N": n, "last node": n - 1, "O": 2 * n, "A": 3 * n, "choices": 2 * n + 1}

    @classmethod
    def auto_max_steps(cls, config: TSPDConfig) -> int:
        return 3 * config.num_nodes

    def constants(self) -> dict[str, Any]:
        return {"law": LAWS.index(self.config.law), "fly_limit": self.config.max_fly}

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        """Fills in what is absent; where a field is misshapen, the door says so afterwards."""
        values = {name: array for name, array in values.items() if name != "fly_on"}
        rows, nodes = len(next(iter(values.values()), ())), self.sizes["N"]
        if "locs" not in values and "c_truck" in values and "c_drone" in values:
            values["locs"] = np.zeros((rows, nodes, 2))  # costs alone are an instance too
        values.setdefault("n_nodes", np.full(rows, nodes, np.int32))
        values.setdefault("max_fly", np.full(rows, self.config.max_fly))
        values.setdefault("no_visit", np.zeros((rows, nodes), bool))
        values.setdefault("forbid", np.zeros((rows, nodes), bool))
        if "locs" in values and values["locs"].ndim != 3:
            raise ShapeError(f"locs must have the shape (rows, {nodes}, 2), not {values['locs'].shape}")
        if "locs" in values and self._fits("locs", values["locs"], rows, "fiu"):
            with np.errstate(invalid="ignore", over="ignore"):
                legs = values["locs"][:, :, None].astype(np.float64) - values["locs"][:, None]
                way = np.sqrt(legs[..., 0] * legs[..., 0] + legs[..., 1] * legs[..., 1])
            values.setdefault("c_truck", way)
            values.setdefault("c_drone", (1.0 / self.config.alpha) * way)
        if self._fits("n_nodes", values["n_nodes"], rows, "iu") and self._fits("forbid", values["forbid"], rows, "b"):
            values["forbid"] = values["forbid"] | (np.arange(nodes) >= values["n_nodes"][:, None])
        values["fly_on"] = self._fly_on(values, rows)
        return values

    def _fly_on(self, values: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """The least cost from each node to another that is not forbidden; 0 where there is none: nobody launches."""
        nodes = self.sizes["N"]
        if "c_drone" not in values or not (
            self._fits("c_drone", values["c_drone"], rows, "fiu") and self._fits("forbid", values["forbid"], rows, "b")
        ):
            return np.zeros((rows, nodes))
        shut = values["forbid"][:, None, :] | np.eye(nodes, dtype=bool)
        least: np.ndarray = np.where(shut, np.inf, np.nan_to_num(values["c_drone"], posinf=np.inf)).min(axis=2)
        return np.where(np.isfinite(least), np.maximum(least, 0.0), 0.0)

    def _fits(self, name: str, array: np.ndarray, rows: int, kinds: str) -> bool:
        return array.dtype.kind in kinds and array.shape == (rows, *self.fields[name].shape(self.sizes))

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        for name in ("c_truck", "c_drone"):
            diagonal = arrays[name] * np.eye(self.sizes["N"])
            if diagonal.any():
                refuse(name, diagonal, diagonal != 0, "the way from a node to itself costs 0")
        if (wrong := np.abs(arrays["locs"]) > LARGEST).any():
            refuse("locs", arrays["locs"], wrong, f"must be within -{LARGEST:g}..{LARGEST:g}")
        for name in ("c_truck", "c_drone"):
            if (wrong := arrays[name] > DEAREST).any():
                refuse(name, arrays[name], wrong, f"must be <= {DEAREST:g}")
        least = self._fly_on(arrays, len(arrays["c_drone"]))
        if (wrong := arrays["fly_on"] != least).any():
            refuse("fly_on", arrays["fly_on"], wrong, f"must be {least[wrong][0]:g}, the least c_drone to another node")

    @classmethod
    def from_instances(cls, instances: Sequence[TSPDInstance | Mapping[str, Any]], repeat: int = 1, **make: Any) -> Any:
        """A world that plays these instances (dicts without a row axis), each in `repeat` rows without a copy.

        Sizes come from the largest; smaller ones are padded and their true size kept in `n_nodes`. Row r plays
        instance r // repeat. The world is reset and ready.
        """
        from milkrun.core.registry import make as make_world

        if not instances:
            raise ShapeError("from_instances needs at least one instance")
        rows = [cls._arrays(k, one) for k, one in enumerate(instances)]
        for one in rows:
            for name in sorted(set(one) ^ set(rows[0])):
                raise ShapeError(f"{name!r} is given in some instances and not in others")
        nodes = [len(one["locs" if "locs" in one else "c_truck"]) for one in rows]
        make.setdefault("num_nodes", max(nodes))
        world = make_world(cls.id, num_envs=len(rows) * repeat, **make)
        batch = {name: np.stack([_padded(one[name], world, name) for one in rows]) for name in rows[0]}
        batch.setdefault("n_nodes", np.array(nodes, np.int32))
        world.reset(instance={**batch, "instance_row": np.arange(len(rows) * repeat) // repeat})
        return world

    @classmethod
    def _arrays(cls, k: int, one: Any) -> dict[str, np.ndarray]:
        """The fields of one instance, each of the shape that its number of nodes asks for."""
        if isinstance(one, TSPDInstance):
            return {name: array[0] for name, array in one.fields().items()}
        if not isinstance(one, Mapping) or not ("locs" in one or {"c_truck", "c_drone"} <= set(one)):
            raise ShapeError(f"instance {k} must be a TSPDInstance or a mapping with `locs`, or with `c_truck` and "
                             "`c_drone`")  # fmt: skip
        arrays = {name: as_array(name, value) for name, value in one.items()}
        known = {name: f for name, f in cls.fields.items() if f.role is Role.INSTANCE}
        places = arrays["locs" if "locs" in arrays else "c_truck"]
        for name, array in arrays.items():
            if name not in known:
                raise ShapeError(f"instance {k}: {cls.__name__} has no instance field {name!r}"
                                 f"{did_you_mean(name, known)}")  # fmt: skip
            wanted = known[name].shape({"N": places.shape[0] if places.ndim else 0})
            if array.shape != wanted:
                raise ShapeError(f"instance {k}: {name} has the shape {array.shape}, not {wanted}")
        return arrays


def _padded(array: np.ndarray, world: World, name: str) -> np.ndarray:
    shape = world.fields[name].shape(world.sizes)
    if any(have > want for have, want in zip(array.shape, shape, strict=True)):
        raise ShapeError(f"{name} of an instance has the shape {array.shape}; at most {shape} fits")
    padded = np.zeros(shape, array.dtype)
    padded[tuple(slice(size) for size in array.shape)] = array
    return padded
