"""The few private names of tensordict that make small batches fast, each with a public fallback.

`MILKRUN_PUBLIC_TD=1` selects the public API; results are the same. No other file of Milkrun uses private names of
tensordict: when a release changes them, this file is the only one to change.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDict

_new: Any = object.__new__
_has_set_str = hasattr(TensorDict, "_set_str")
_empty = TensorDict({}, [])
_has_entries = isinstance(getattr(_empty, "_tensordict", None), dict)
_is_known = {*vars(_empty)} == {
    "_tensordict",
    "_batch_size",
    "_device",
    "_td_dim_names",
}  # all attributes


def private() -> bool:
    """Whether the private shortcuts exist and are enabled."""
    return _is_known and _has_set_str and _has_entries and os.environ.get("MILKRUN_PUBLIC_TD") != "1"


_PRIVATE = private()
_CPU = torch.device("cpu")


def make_td(source: dict[str, Any], batch_size: torch.Size, device: torch.device | None) -> TensorDict:
    """A TensorDict of tensors (or TensorDicts) that are known to fit. It takes ownership of `source`."""
    if _PRIVATE:
        td: TensorDict = _new(TensorDict)  # a constructor would validate each entry again
        td._tensordict = source
        td._batch_size = batch_size
        td._device = device
        td._td_dim_names = None
        return td
    return TensorDict(source, batch_size=batch_size, device=device)


def put(td: TensorDict, key: str, value: Any) -> None:
    """td[key] = value without the checks of a public set."""
    if _PRIVATE and type(td) is TensorDict and not td.is_locked:
        td._tensordict[key] = value
    elif _PRIVATE:
        td._set_str(key, value, validated=True, inplace=False, non_blocking=False)
    else:
        td.set(key, value)


def step_plain(step: Callable[..., tuple[dict[str, Any], dict[str, Any]]], raises: bool, td: Any) -> TensorDict | None:
    """td with td["next"] set, on the CPU. If td is not a plain unlocked TensorDict with "hidden" and without "next" and
    "_step", a no-op that returns None. `step(root, hidden, batch, action, raises)` returns the entries of the next root
    and of its "hidden".

    Small functions are inlined by hand: with few rows their calls would double the time of a step.
    """
    if not _PRIVATE or type(td) is not TensorDict or td.is_locked:
        return None
    root, batch = td._tensordict, td._batch_size
    nested = root.get("hidden")
    if type(nested) is not TensorDict or "next" in root or "_step" in root:
        return None
    fresh, kept = step(root, nested._tensordict, batch, root.get("action"), raises)
    hidden: TensorDict = _new(TensorDict)
    hidden._tensordict = kept
    hidden._batch_size = batch
    hidden._device = _CPU
    hidden._td_dim_names = None
    fresh["hidden"] = hidden
    following: TensorDict = _new(TensorDict)
    following._tensordict = fresh
    following._batch_size = batch
    following._device = _CPU
    following._td_dim_names = None
    root["next"] = following
    return td


def entries(td: Any) -> Mapping[str, Any]:
    """The entries of the first level, read-only."""
    if _PRIVATE and type(td) is TensorDict:
        return td._tensordict
    return dict(td.items())


def is_plain(td: Any) -> bool:
    """A TensorDict proper (no subclass, no lazy stack) without names for its dimensions."""
    if type(td) is not TensorDict:
        return False
    if _PRIVATE and hasattr(td, "_has_names"):
        return not td._has_names()
    return all(name is None for name in td.names)
