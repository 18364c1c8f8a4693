"""InstanceRecord: a problem as data, which files are read into and worlds play."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import BadInstance, ShapeError

KINDS = {np.float32: "fiu", np.float64: "fiu", np.int64: "iu", np.bool_: "b"}


@dataclass(frozen=True, eq=False)
class InstanceRecord:
    """What instances of all kinds have. Arrays are copies that cannot be written to."""

    name: str

    def __eq__(self, other: object) -> bool:
        """The same problem, whatever its name."""
        if not isinstance(other, type(self)):
            return NotImplemented
        names = [f.name for f in dataclasses.fields(self) if f.name != "name"]
        return all(np.array_equal(getattr(self, a), getattr(other, a)) for a in names)

    def _keep(self, name: str, dtype: type[np.generic], shape: tuple[int, ...]) -> NDArray[Any]:
        """Puts a copy in the place of the array that was given."""
        given = np.asarray(getattr(self, name))
        if given.shape != shape or given.dtype.kind not in KINDS[dtype]:
            raise ShapeError(
                f"{self.name}: {name} has shape {given.shape} and dtype {given.dtype}, "
                f"expected {shape} of {dtype.__name__}"
            )
        with np.errstate(over="ignore"):
            kept = np.array(given, dtype)
        kept.flags.writeable = False
        object.__setattr__(self, name, kept)
        return kept

    def _keep_number(self, name: str) -> None:
        value = getattr(self, name)
        if np.shape(value) != () or np.asarray(value).dtype.kind not in "fiu":
            raise ShapeError(f"{self.name}: {name} is {value!r}, expected one number")
        object.__setattr__(self, name, float(value))

    def _refuse(self, name: str, wrong: NDArray[np.bool_], rule: str, what: str = "node") -> None:
        if wrong.any():
            at = tuple(int(k) for k in np.argwhere(wrong)[0])
            value = getattr(self, name)[at].tolist()
            raise BadInstance(f"{self.name}: {what} {', '.join(map(str, at))}: {name} is {value}, {rule}")
