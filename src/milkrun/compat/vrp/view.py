"""`View`: the base class of the entities of a row, which read its buffers and cannot be written.

An attribute is declared by the source of its value: a field of the row, the entity's part of one, the instance that the
row plays, or the configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

if TYPE_CHECKING:
    from milkrun.delivery.truckdrone.world import TruckDrone


class View:
    """One entity of a row, or a part of it; `index` counts entities of a kind."""

    batch: TruckDrone
    row: int
    index: int
    options: ClassVar[dict[str, str]] = {}
    """Attributes that an option of the configuration sets."""
    fields: ClassVar[dict[str, str]] = {}
    """Attributes that a given instance sets."""

    def __init__(self, batch: TruckDrone, row: int, index: int = 0, **parts: Any) -> None:
        self.__dict__.update(batch=batch, row=row, index=index, **parts)

    def __setattr__(self, name: str, value: Any) -> None:
        self._refuse(name)

    def __delattr__(self, name: str) -> None:
        self._refuse(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.index} of row {self.row}>"

    def _refuse(self, name: str) -> NoReturn:
        kind = type(self).__name__
        if name in self.options:
            how = f"it is the option {self.options[name]!r} of TruckDroneConfig"
        elif name in self.fields:
            how = f"give {self.fields[name]!r} in the instance of a reset"
        elif hasattr(self, name):
            how = "only reset() and step() change it"
        else:
            raise AttributeError(f"{kind} has no attribute {name!r}, and takes none: it is a view of row {self.row}")
        raise AttributeError(f"{kind}.{name} cannot be assigned, it is a view of row {self.row}: {how}")

    def _executed(self, agent: int) -> int:
        """The last action of an agent; -1 before the first step."""
        return int(self.batch.executed[self.row, agent]) if self.batch.i[self.row] > 0 else -1


def locked(array: np.ndarray) -> np.ndarray:
    """A read-only view of an array."""
    view = array.view()
    view.flags.writeable = False
    return view


def unless_none(number: Any) -> int | None:
    """An index, or None where the field has -1."""
    return int(number) if number >= 0 else None


def of_row(field: str, read: Callable[[Any], Any]) -> Any:
    """An attribute that reads a field of the row."""
    return property(lambda view: read(getattr(view.batch, field)[view.row]))


def of_entity(field: str, read: Callable[[Any], Any]) -> Any:
    """An attribute that reads the entity's part of a field."""
    return property(lambda view: read(getattr(view.batch, field)[view.row, view.index]))


def of_instance(field: str, read: Callable[[Any], Any]) -> Any:
    """An attribute that reads the entity's part of an instance field; many rows may play one instance."""
    return property(lambda view: read(getattr(view.batch, field)[view.batch.instance_row[view.row], view.index]))


def of_config(option: str, read: Callable[[Any], Any]) -> Any:
    """An attribute that reads an option of the configuration."""
    return property(lambda view: read(getattr(view.batch.config, option)))
