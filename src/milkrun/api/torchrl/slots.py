"""Slot: one field of a world as it stands in a TensorDict: its key, dtype and shape there, its place in the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from milkrun.core.errors import ShapeError
from milkrun.core.fields import Field, Role
from milkrun.core.world import World

DTYPES = {
    np.dtype(np.bool_): torch.bool, np.dtype(np.uint8): torch.uint8, np.dtype(np.int8): torch.int8,
    np.dtype(np.int16): torch.int16, np.dtype(np.int32): torch.int32, np.dtype(np.int64): torch.int64,
    np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64,
}  # fmt: skip

FLAGS = ("terminated", "truncated")


class Slot:
    """One field as the stepper handles it: its key in the TensorDict, its shape there, its place in the table."""

    __slots__ = ("column", "dtype", "field", "name", "root", "shape", "where")

    def __init__(self, f: Field, world: World) -> None:
        self.field, self.name, self.dtype = f, f.name, DTYPES[f.dtype]
        self.where = world._launcher_layout.slots[f.name]
        self.shape = f.shape(world.sizes)
        self.column = f.column or f.name in (*FLAGS, "reward")
        self.root = f in world.observed or f.role is Role.MASK or f.name in (*FLAGS, "reward")

    @property
    def key(self) -> str | tuple[str, str]:
        """Its key in a TensorDict: what no agent may see, or need not, is nested under "hidden"."""
        return self.name if self.root else ("hidden", self.name)

    def tail(self) -> tuple[int, ...]:
        """The shape behind the batch in a TensorDict."""
        return self.shape or ((1,) if self.column else ())

    def misfit(self, tensor: Any, expected: torch.Size) -> ShapeError:
        """The sentence about a tensor that cannot be this field."""
        if tensor is None:
            return ShapeError(f"the TensorDict lacks {self.key!r}")
        return ShapeError(f"{self.key!r} must be {self.dtype} of shape {tuple(expected)} on the cpu, "
                          f"not {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}")
