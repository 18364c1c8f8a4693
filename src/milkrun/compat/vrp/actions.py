"""Joint actions in the forms of trainers: for each agent an integer, an array of one, or a one-hot vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from milkrun.core.actions import action_array
from milkrun.core.errors import ShapeError

QUICK = frozenset((int, np.int64))


def read_actions(given: Any, choices: Sequence[int], names: Sequence[str], out: np.ndarray) -> None:
    """Writes the action of each agent into `out`. The world checks whether it is legal."""
    try:
        count = len(given)
    except TypeError:
        raise ShapeError(f"actions must be a list with one for each of {', '.join(names)}, not {given!r}") from None
    if count != len(names):
        raise ShapeError(f"{count} actions for {len(names)} agents: {', '.join(names)}")
    for k, action in enumerate(given):
        if type(action) not in QUICK:
            action = _number(action, choices[k], names[k])
        try:
            out[k] = action
        except OverflowError:
            raise ShapeError(f"{names[k]}: {action} is no 64-bit integer") from None


def _number(action: Any, choices: int, name: str) -> int:
    given = action_array(name, action)
    if given.shape in ((), (1,)) and given.dtype.kind in "iu":
        return int(given.item())
    if given.shape == (choices,) and given.dtype.kind in "biuf":
        chosen = int(given.argmax())
        if given[chosen] == 1 and np.count_nonzero(given) == 1:
            return chosen
        raise ShapeError(f"{name}: a one-hot action has a single 1 and 0 elsewhere, not {given.tolist()}")
    raise ShapeError(f"{name}: the action must be an integer or one-hot ({choices},), not {given.dtype} {given.shape}")
