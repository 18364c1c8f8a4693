"""Reads instances from a TensorDict: their keys, their layout, and the arrays for a World.

Fields are at the root or, if agents do not observe them, under "hidden". Other layouts (a separate depot, RL4CO's
shares of a vehicle, other names of a field) are recognised by their keys; the world converts them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from milkrun.api._td import entries
from milkrun.core.errors import ShapeError
from milkrun.core.world import World

LEVELS = ("waste", "expected0", "initial_waste")

LAYOUT_KEYS = {
    "depot": (),
    "dist_matrix": ("dist",),
    "demand": ("demand_units", "prize", *LEVELS),
    "current_waste": LEVELS,
    "expected_waste": ("expected0",),
    "vehicle_cap": ("capacity",),
    "capacity": ("prize",),
    "start_time": ("time_windows",),
    "end_time": ("time_windows",),
}
"""Keys of other layouts, and the fields that they replace: a world without these fields does not know the key, and if
one of them is present the key is ignored. (An infinite `capacity` comes with the prizes of an unlimited truck.)"""


class InstanceReader:
    """Finds the instance fields of one world in TensorDicts."""

    def __init__(self, world: World, names: list[str]) -> None:
        self.names = names
        self._nodes = world.sizes.get("N")
        self._scalars = {name for name in names if not world.fields[name].dims}
        self._scalars |= {name for name in ("capacity", "vehicle_cap") if name not in names}
        always = ("depot", "dist_matrix")
        self._keys = [
            key
            for key, fields in LAYOUT_KEYS.items()
            if key not in names and (key in always or not {*fields}.isdisjoint(names))
        ]

    def find(self, td: TensorDictBase, key: str) -> torch.Tensor | None:
        """The entry of a key, at the root or under "hidden"."""
        root = entries(td)
        value = root.get(key)
        if value is None and "hidden" in root:
            value = entries(root["hidden"]).get(key)
        return value

    def is_in(self, td: TensorDictBase) -> bool:
        """Whether `td` holds an instance, or a part of one."""
        return any(self.find(td, key) is not None for key in (*self.names, *self._keys))

    def layout(self, td: TensorDictBase) -> list[str]:
        """The keys of another layout in `td`; none if all fields are present."""
        if all(self.find(td, name) is not None for name in self.names) and not self._lacks_depot(td):
            return []
        return [key for key in self._keys if key in entries(td)]

    def _lacks_depot(self, td: TensorDictBase) -> bool:
        """Whether `locs` has no depot, which is a separate entry."""
        root = entries(td)
        return "depot" in root and "locs" in root and root["locs"].shape[-2] + 1 == self._nodes

    def tensors(self, td: TensorDictBase) -> dict[str, torch.Tensor]:
        """The instance in `td`, in its own layout."""
        found = {name: self.find(td, name) for name in self.names}
        for key in self.layout(td):
            if all(found.get(name) is None for name in LAYOUT_KEYS[key]):
                found[key] = self.find(td, key)
        return {key: value for key, value in found.items() if value is not None}

    def arrays(self, td: TensorDictBase) -> dict[str, np.ndarray]:
        """The instance with one row axis; the last axis of (*batch, 1) is removed from scalar fields."""
        rows, arrays = td.batch_size.numel(), {}
        if self.find(td, "instance_row") is not None:
            raise ShapeError(
                "'instance_row': every row of a TensorDict holds the instance that it plays; index or "
                "expand the TensorDict instead"
            )
        for key, value in self.tensors(td).items():
            if not isinstance(value, torch.Tensor) or value.is_meta:
                raise ShapeError(f"{key!r} must be a tensor with values, not a {getattr(value, 'device', type(value))}")
            array = value.reshape(rows, *value.shape[td.batch_dims :]).numpy(force=True)
            arrays[key] = array[:, 0] if key in self._scalars and array.shape[1:] == (1,) else array
        return arrays


def as_given(given: torch.Tensor | None, copied: torch.Tensor) -> torch.Tensor:
    """The given tensor, if the world did not convert it and it is contiguous up to expanded batch dimensions."""
    if given is None or given.dtype is not copied.dtype or given.shape != copied.shape or given.device != copied.device:
        return copied
    index: Any = tuple(
        0 if stride == 0 and size > 1 else slice(None) for stride, size in zip(given.stride(), given.shape, strict=True)
    )
    return given.detach() if given[index].is_contiguous() else copied
