"""Fields as Gymnasium spaces, and a world's memory as Gymnasium observations: the one place that knows both.

`action_space` and `field_space` are the contract's table of spaces. An `Observer` binds a world to a layout: it holds
the space of one row and arrays that follow the world's memory, without a copy wherever dtype and shape allow. The
numpy-side bindings (Gymnasium, PettingZoo, SB3, tianshou, RLlib) show worlds through it and write no shape themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from milkrun.core.errors import ConfigError, did_you_mean
from milkrun.core.fields import Field, Role, bool_, float32, int8, int64, is_finite, mask_field
from milkrun.core.world import World

UNBOUNDED = 1e9
"""A float field that declares no bound has this one: Gymnasium's checker asks for finite spaces."""

LOST = -1
"""For the number of times that a world's instances were laid: none that a world has."""

Sizes = dict[str, int]
Arrays = dict[str, np.ndarray]
Observed = np.ndarray | Arrays


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
    if _is_choice(f):
        return spaces.Discrete(sizes[str(f.index)])
    number: Any = {"b": np.int8, "f": np.float32}.get(f.dtype.kind, f.dtype.type)
    low, high = _bounds(f, sizes)
    return spaces.Box(number(low), number(high), f.shape(sizes) or (1,), number)


def layouts(world: World) -> tuple[str, ...]:
    """The layouts a world has; the first is its own default."""
    if any(f.primary for f in world.observed):
        return "view", "dict", "flat"
    return "dict", "flat"


def show(f: Field, array: np.ndarray) -> np.ndarray:
    """Rows of a field as its space wants them: bool as int8, a scalar as (1,), a choice as int64, floats as float32."""
    if _is_choice(f):
        return array.astype(int64, copy=False)
    if array.ndim == 1:
        array = array[:, None]
    kind = f.dtype.kind
    return array.view(int8) if kind == "b" else array.astype(float32, copy=False) if kind == "f" else array


class Follower:
    """What follows a world's memory, and follows the copy's in a copy or pickle of both.

    `_found` names the attributes that `_bind` finds in the world: views of its arrays and calls of their methods.

    An interrupt may fall between any two lines. So whatever a follower knows of its world it either reads off the
    world when it needs it, or knows to be out of date before the world moves: until `bind` is through, `moved` is True.
    """

    world: World
    _found: ClassVar[tuple[str, ...]] = ()
    _laid = LOST

    @property
    def moved(self) -> bool:
        """What was found may stand elsewhere: instances were put in, as `World.load_state_dict` does, or a reset was
        interrupted."""
        return self._laid != self.world.laid

    def bind(self) -> None:
        """Finds anew what follows the world."""
        self._laid = LOST
        laid = self.world.laid
        self._bind()
        self._laid = laid

    def _bind(self) -> None:
        """The same, for subclasses to say."""

    def _restart(self, rows: Any = None, *, then: Callable[[], object] | None = None, **given: Any) -> None:
        """`World.reset`, and `then` what goes with it: also if an interrupt comes between, but not if it is refused."""
        self._laid = LOST
        before = Moment(self.world)
        try:
            self.world.reset(rows, **given)
            if then is not None:
                then()
        except BaseException:
            if then is not None and before.passed:
                then()
            raise
        self.bind()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self._found}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.bind()


class Moment:
    """The episodes and steps of a world's rows, to tell whether it has moved since. A reset that changes neither leaves
    the world as it was, so it does not matter whether it has happened."""

    def __init__(self, world: World) -> None:
        self._world, self._was = world, (world.stream.copy(), world.i.copy())

    @property
    def passed(self) -> bool:
        """Whether a row has begun an episode or played a step."""
        return not all(map(np.array_equal, self._was, (self._world.stream, self._world.i)))


class Observer(Follower):
    """What the agents of a world see in one layout.

    `live` is the observation of all rows and `aside` what the layout leaves to `info`; both follow the world's memory.
    `bind` must be called after a reset and when `moved`; then `refresh` before it is read, unless `steady` says that
    there is nothing to bring up to date.
    """

    live: Observed
    aside: Arrays
    steady: bool
    _found = ("live", "aside", "_casts", "_fills", "_lasting", "_episodes")

    def __init__(self, world: World, layout: str | None = None) -> None:
        known = layouts(world)
        if layout is not None and (not isinstance(layout, str) or layout not in known):
            raise ConfigError(f"{type(world).__name__} has no layout {layout!r}{did_you_mean(str(layout), known)}")
        self.world = world
        self.layout = layout or known[0]
        self.mask = mask_field(world.fields, world.sizes)
        entries = _entries(world)
        self._looks = any(f.on_demand for f in entries.values())
        if self.layout == "view":
            self._seen = {key: f for key, f in entries.items() if f.primary}
            self._aside = {key: f for key, f in entries.items() if not f.primary}
        else:
            self._seen, self._aside = entries, {}
        if self.mask is not None:
            (self._seen if self.layout == "dict" else self._aside)["action_mask"] = self.mask
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
        """Finds the arrays anew; where rows share instances, each row is shown its own."""
        world = self.world
        shared = not np.array_equal(world.instance_row, np.arange(world.num_instances))
        raw: Arrays = {}
        for f in (*self._seen.values(), *self._aside.values()):
            raw[f.name] = getattr(world, f.name)
            # A copy. It holds until instances are put in anew, which `moved` tells.
            if shared and f.role is Role.INSTANCE:
                raw[f.name] = raw[f.name][world.instance_row]
        self._casts: list[tuple[np.ndarray, np.ndarray]] = []
        self.aside = self._follow(self._aside, raw)
        if self.layout == "flat":
            self.live, fills = _flat(self._seen, raw, world)
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
        """Brings up to date what is not the world's own memory, of all rows or at least of these (int64)."""
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
        """The observation of rows that stand apart by field name (`world.final`)."""
        if self.layout == "flat":
            buffer, fills = _flat(self._seen, arrays, self.world, count)
            for fill in fills:
                fill.all()
            return buffer
        shown = {key: show(f, arrays[f.name]) for key, f in self._seen.items()}
        return next(iter(shown.values())) if self.layout == "view" else shown

    def rows_of(self, arrays: Mapping[str, np.ndarray], count: int) -> list[Any]:
        """The same one by one."""
        seen = self.of(arrays, count)
        if isinstance(seen, dict):
            return [{key: array[r] for key, array in seen.items()} for r in range(count)]
        return list(seen)

    def aside_of(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """What `info` says of rows that stand apart by field name: the mask, and what the layout left out."""
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


def _entries(world: World) -> dict[str, Field]:
    """The observed fields by key, in declaration order; a group's view `<group>_obs` has the group's name as key."""
    names = {f"{group}_obs": group for group in world.groups}
    return {names.get(f.name, f.name): f for f in world.observed if is_finite(f, world.config)}


def _is_choice(f: Field) -> bool:
    return f.index is not None and not f.dims


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


# -- the flat layout --------------------------------------------------------------------------------------------


class _Copied:
    """A piece of the vectors that holds a field's numbers."""

    def __init__(self, piece: np.ndarray, source: np.ndarray) -> None:
        self.target, self.source = piece.reshape(source.shape), source

    def all(self) -> None:
        np.copyto(self.target, self.source, casting="unsafe")

    def some(self, rows: np.ndarray) -> None:
        self.target[rows] = self.source[rows]


class _OneHot:
    """A piece that holds a choice: moves the ones, a seventh of the time that comparing takes."""

    def __init__(self, buffer: np.ndarray, first: int, width: int, source: np.ndarray) -> None:
        buffer[:, first : first + width] = 0
        self.numbers, self.source = buffer.reshape(-1), source
        self.starts = np.arange(len(buffer)) * buffer.shape[1] + first
        self.hot = self.starts

    def all(self) -> None:
        self.numbers[self.hot] = 0
        self.hot = self.starts + self.source
        self.numbers[self.hot] = 1

    def some(self, rows: np.ndarray) -> None:
        self.all()


Fill = _Copied | _OneHot


def _flat_bounds(f: Field, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    low, high = (0, 1) if _is_choice(f) else _bounds(f, sizes)
    width = _width(f, sizes)
    return np.full(width, low, np.float32), np.full(width, high, np.float32)


def _width(f: Field, sizes: Sizes) -> int:
    return sizes[str(f.index)] if _is_choice(f) else math.prod(f.shape(sizes))


def _flat(
    fields: dict[str, Field], arrays: Mapping[str, np.ndarray], world: World, rows: int | None = None
) -> tuple[np.ndarray, list[Fill]]:
    """A vector a row, and the pieces of it with their sources: a choice one-hot, all else in C order."""
    rows = world.num_envs if rows is None else rows
    buffer = np.empty((rows, sum(_width(f, world.sizes) for f in fields.values())), np.float32)
    fills: list[Fill] = []
    first = 0
    for f in fields.values():
        width = _width(f, world.sizes)
        if _is_choice(f):
            fills.append(_OneHot(buffer, first, width, arrays[f.name]))
        else:
            fills.append(_Copied(buffer[:, first : first + width], arrays[f.name]))
        first += width
    return buffer, fills
