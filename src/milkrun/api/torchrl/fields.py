"""The fields of a world in a TensorDict: key, dtype and shape, and the place in the kernels' table."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from milkrun.core.errors import ConfigError, ShapeError
from milkrun.core.fields import Field, Role, raw_fields
from milkrun.core.world import World

DTYPES = {
    np.dtype(np.bool_): torch.bool,
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.int8): torch.int8,
    np.dtype(np.int16): torch.int16,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
}

FLAGS = ("terminated", "truncated")
RESULTS = ("reward", "done")  # outputs of a step besides the state
COLUMNS = (*FLAGS, *RESULTS)  # (*batch, 1), as TorchRL has them


def shown_fields(world: World, features: bool) -> list[Field]:
    """The fields at the root of a TensorDict: the observed ones. Of a world with features: the raw fields, and with
    `features` the features too."""
    made = [f for f in world.observed if f.feature]
    if features and not made:
        raise ConfigError(f"features=True: {type(world).__name__} has none besides its fields")
    return [*raw_fields(world.fields, world.sizes), *(made if features else ())] if made else world.observed


class Slot:
    """One field of a TensorDict. Fields that agents do not observe are under "hidden", also the joint mask of a
    team."""

    __slots__ = ("column", "dtype", "field", "name", "root", "shape", "where")

    def __init__(self, f: Field, world: World, shown: list[Field]) -> None:
        self.field = f
        self.name = f.name
        self.dtype = DTYPES[f.dtype]
        self.where = world._launcher_layout.slots[f.name]
        self.shape = f.shape(world.sizes)
        self.column = f.column or f.name in COLUMNS
        self.root = f in shown or f.name in COLUMNS or (f.role is Role.MASK and not world.groups)

    @property
    def key(self) -> str | tuple[str, str]:
        """Its key in a TensorDict."""
        return self.name if self.root else ("hidden", self.name)

    def tail(self) -> tuple[int, ...]:
        """The shape behind the batch in a TensorDict."""
        return self.shape or ((1,) if self.column else ())

    def checked(self, tensor: Any, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
        """The tensor, validated for kernels."""
        if (
            not isinstance(tensor, torch.Tensor)
            or tensor.dtype is not dtype
            or tensor.shape != shape
            or not tensor.is_cpu
            or tensor.layout is not torch.strided
            or (not tensor.data_ptr() and tensor.numel())
        ):
            raise self.misfit(tensor, shape)
        return tensor

    def misfit(self, tensor: Any, expected: torch.Size, device: Any = "cpu") -> ShapeError:
        """The error for a tensor that cannot be this field."""
        if tensor is None:
            return ShapeError(f"the TensorDict lacks {self.key!r}")
        if not isinstance(tensor, torch.Tensor):
            return ShapeError(f"{self.key!r} must be a tensor, not a {type(tensor).__name__}")
        if tensor.layout is not torch.strided:
            return ShapeError(f"{self.key!r} must be a plain tensor, not {tensor.layout}")
        if tensor.is_cpu and tensor.numel() and not tensor.data_ptr():
            return ShapeError(f"{self.key!r} has no memory: its storage was emptied")
        return ShapeError(
            f"{self.key!r} must be {self.dtype} of shape {tuple(expected)} on {device}, "
            f"not {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}"
        )
