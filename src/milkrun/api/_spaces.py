"""Fields as Gymnasium spaces, and a world's memory as Gymnasium observations.

`action_space` and `field_space` define the spaces of all fields. An `Observer` binds a world to a layout: it has the
space of one row, and arrays that are views of the world's memory wherever dtype and shape allow. The numpy bindings
(Gymnasium, PettingZoo, SB3, tianshou, RLlib) use it and declare no shapes themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from milkrun.core.fields import Field, Role, bool_, mask_field
from milkrun.core.layouts import (
    Observed,
    check_layout,
    entries,
    flat,
    is_choice,
    lay_out,
    show,
    split_entries,
    width_of,
)
from milkrun.core.world import World

UNBOUNDED = 1e9
"""The bound of float fields that declare none, since Gymnasium's checker requires finite spaces."""

UNBOUND = -1
"""An `instance_version` that no world has."""

Sizes = dict[str, int]
Arrays = dict[str, np.ndarray]


def action_space(world: World) -> spaces.Space[Any]:
    """The actions of one row: Discrete, for several agents the joint MultiDiscrete, or numbers in [-1, 1]."""
    choices = world.action.nvec(world.sizes)
    if world.action.kind == "discrete":
        return spaces.Discrete(choices[0])
    if world.action.kind == "multi":
        return spaces.MultiDiscrete(choices)
    return spaces.Box(-1, 1, world.action.shape(world.sizes), np.float32)


def field_space(f: Field, sizes: Sizes) -> spaces.Space[Any]:
    """The values of one row of a field."""
    if is_choice(f):
        return spaces.Discrete(sizes[str(f.index)])
    number: Any = {"b": np.int8, "f": np.float32}.get(f.dtype.kind, f.dtype.type)
    low, high = _bounds(f, sizes)
    return spaces.Box(number(low), number(high), f.shape(sizes) or (1,), number)


class Follower:
    """An object with views of a world's memory. In a copy or pickle of both, it follows the copied world.

    `_found` names the attributes that `_bind` finds in the world: views of its arrays and calls of their methods.
    """

    world: World
    _found: ClassVar[tuple[str, ...]] = ()
    _bound_version = UNBOUND

    @property
    def moved(self) -> bool:
        """Whether `bind` must run again: instances were put in, as `World.load_state_dict` does, or an interrupt ended
        `_restart` or `bind`."""
        return self._bound_version != self.world.instance_version

    def bind(self) -> None:
        """Finds the arrays of the world again."""
        self._bound_version = UNBOUND
        version = self.world.instance_version
        self._bind()
        self._bound_version = version

    def _bind(self) -> None:
        """The part of `bind` that subclasses define."""

    def _restart(self, rows: Any = None, *, keys: np.ndarray | None = None, **given: Any) -> None:
        """`World.reset`, or `World.begin_episodes` where stream keys are given, and then `bind`."""
        self._bound_version = UNBOUND
        if keys is None:
            self.world.reset(rows, **given)
        else:
            self.world.begin_episodes(keys, rows, **given)
        self.bind()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self._found}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.bind()


class Observer(Follower):
    """The observation of a world in one layout.

    `live` is the observation of all rows, and `aside` has the fields that the layout leaves to `info`; both follow the
    world's memory. `bind` must be called after a reset and when `moved`; then `refresh` before they are read, unless
    `steady`: then all arrays are views.
    """

    live: Observed
    aside: Arrays
    steady: bool
    _found = ("live", "aside", "_casts", "_fills", "_lasting", "_episodes")

    def __init__(self, world: World, layout: str | None = None) -> None:
        self.layout = check_layout(world, layout)
        self.world = world
        self.mask = mask_field(world.fields, world.sizes)
        self._looks = any(f.on_demand for f in entries(world).values())
        self._seen, self._aside = split_entries(world, self.layout)
        self.bind()

    @property
    def single_space(self) -> spaces.Space[Any]:
        """The observations of one row."""
        each = [(key, field_space(f, self.world.sizes)) for key, f in self._seen.items()]
        if self.layout == "dict":
            return spaces.Dict(each)
        if self.layout == "view":
            return each[0][1]
        ends = [_flat_bounds(f, self.world.sizes) for f in self._seen.values()]
        return spaces.Box(np.concatenate([low for low, _ in ends]), np.concatenate([high for _, high in ends]))

    def _bind(self) -> None:
        """Finds the arrays again; shared instances are copied, one a row."""
        world = self.world
        shared = not np.array_equal(world.instance_row, np.arange(world.num_instances))
        raw: Arrays = {}
        for f in (*self._seen.values(), *self._aside.values()):
            raw[f.name] = getattr(world, f.name)
            # A copy, valid until other instances are given, which `moved` detects.
            if shared and f.role is Role.INSTANCE:
                raw[f.name] = raw[f.name][world.instance_row]
        self._casts: list[tuple[np.ndarray, np.ndarray]] = []
        self.aside = self._follow(self._aside, raw)
        if self.layout == "flat":
            self.live, fills = flat(self._seen, raw, world.sizes, world.num_envs)
        else:
            parts = self._follow(self._seen, raw)
            self.live, fills = parts if self.layout == "dict" else next(iter(parts.values())), []
        self._fills = [fill for f, fill in zip(self._seen.values(), fills) if f.role is not Role.INSTANCE]
        self._lasting = [fill for f, fill in zip(self._seen.values(), fills) if f.role is Role.INSTANCE]
        self._episodes = world.stream[:, 2]  # a row whose number changes has begun an episode
        self._begun = self._episodes.tobytes()
        for fill in self._lasting:
            fill.all()
        self.steady = not (self._looks or self._casts or fills)

    def refresh(self, rows: np.ndarray | None = None) -> None:
        """Updates the arrays that are not the world's own memory, of all rows or at least of these (int64)."""
        if self._looks:
            self.world.observe(rows)
        for target, source in self._casts:
            if rows is None:
                np.copyto(target, source, casting="unsafe")
            else:
                target[rows] = source[rows]
        for fill in self._fills:
            if rows is None:
                fill.all()
            else:
                fill.some(rows)
        if self._lasting and (begun := self._episodes.tobytes()) != self._begun:
            new = np.flatnonzero(np.frombuffer(begun, np.int64) != np.frombuffer(self._begun, np.int64))
            for fill in self._lasting:
                fill.some(new)
            self._begun = begun

    def of(self, arrays: Mapping[str, np.ndarray], count: int) -> Observed:
        """The observation of rows outside the world, by field name (`world.final`)."""
        return lay_out(self.world, self.layout, self._seen, arrays, count)

    def rows_of(self, arrays: Mapping[str, np.ndarray], count: int) -> list[Any]:
        """The same, one row at a time."""
        seen = self.of(arrays, count)
        if isinstance(seen, dict):
            return [{key: array[r] for key, array in seen.items()} for r in range(count)]
        return list(seen)

    def aside_of(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """The `info` of rows outside the world, by field name: the mask, and the fields that the layout left out."""
        shown = dict(self._aside)
        if self.mask is not None:
            shown["action_mask"] = self.mask
        return {key: show(f, arrays[f.name]) for key, f in shown.items()}

    def _follow(self, fields: dict[str, Field], raw: Mapping[str, np.ndarray]) -> Arrays:
        shown = {key: show(f, raw[f.name]) for key, f in fields.items()}
        for key, f in fields.items():
            if not np.may_share_memory(shown[key], raw[f.name]):
                self._casts.append((shown[key], raw[f.name].reshape(shown[key].shape)))
        return shown


def _bounds(f: Field, sizes: Sizes) -> tuple[float, float]:
    """Finite, low < high. Integers that declare none have their dtype's; of 64 bits half: Gymnasium adds to it."""
    if f.dtype == bool_:
        return 0, 1
    if f.dtype.kind == "f":
        widest: tuple[float, float] = -UNBOUNDED, UNBOUNDED
    else:
        span = np.iinfo(f.dtype)
        widest = max(int(span.min), -(2**62)), min(int(span.max), 2**62)
    low, high = (wide if bound is None else bound for bound, wide in zip(f.bounds(sizes), widest))
    return low, high if low < high else low + 1


def _flat_bounds(f: Field, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    low, high = (0, 1) if is_choice(f) else _bounds(f, sizes)
    width = width_of(f, sizes)
    return np.full(width, low, np.float32), np.full(width, high, np.float32)
