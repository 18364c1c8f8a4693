"""Field: one declared array of a world, and the functions that declare it.

A world declares each array once, as a class attribute. Allocation, the record `w` that kernels see, Gymnasium
spaces, TorchRL specs, TensorDict keys and the table in the docs are derived from these declarations, so no
shape is written twice. The first axis of every field is the row and is never written.

    locs        = instance(float32, "N", 2, doc="coordinates; node 0 is the depot")
    load        = state(int32, low=0, doc="units on the truck")
    action_mask = mask("N")

Dimensions are numbers or names; a world's `sizes(config)` gives names their value. A name of value 0 switches
a field off: it stays in `w` with no elements, so kernels compile once, and shows in no space.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError, did_you_mean

bool_ = np.dtype(np.bool_)
int8, int16, int32, int64 = (np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64))
uint8 = np.dtype(np.uint8)
float32, float64 = np.dtype(np.float32), np.dtype(np.float64)
TYPES = tuple(t.name for t in (bool_, int8, int16, int32, int64, uint8, float32, float64))
"""The dtypes of fields; scratch, which no binding shows, may also be uint32."""


class Role(Enum):
    """The role of a field in the world."""

    INSTANCE = "instance"  # the problem: constant through an episode
    STATE = "state"  # what a step changes
    MASK = "mask"  # what an agent may do, True = allowed
    VIEW = "view"  # computed for agents and reports, never read back by the dynamics
    KEY = "key"  # the identity of a row: its random stream and its instance row; constant through an episode
    CONSTANT = "constant"  # a number or table of the configuration that kernels read; one a world, no row axis
    SCRATCH = "scratch"  # work space of a thread; no row axis, contents mean nothing between calls


@dataclass(frozen=True)
class Field:
    """One declared array, made by the functions below."""

    role: Role
    dtype: np.dtype
    dims: tuple[str | int, ...] = ()
    doc: str = ""
    low: float | str | None = None  # a number, or the name of a size, with a minus for its negative
    high: float | str | None = None
    index: str | None = None  # the values are 0..size-1 of this name: Discrete on the numpy side
    hidden: bool = False  # needed for stepping, but no agent may see it
    observed: bool | None = None  # None: by the rule of the contract (`observed_fields`)
    column: bool = False  # TorchRL shows it as (*batch, 1)
    tally: bool = False  # for reports; the dynamics never depend on it, so functional stepping drops it
    in_info: bool = False  # a view that the info of every step has, not only that of an end
    on_demand: bool = False  # a view that the kernel `observe` computes when `World.observe` is called
    feature: bool = False  # an observed view of the raw fields; TorchRL shows those, and this on request
    primary: bool = False  # the view that is the whole observation under layout "view"
    remade: bool = False  # a mask that a step overwrites without reading it: functional stepping does not copy it
    strided: bool = False  # may lie in foreign memory: kernels must not assume it is contiguous
    limit: bool = False  # +inf is a legal value and means "no limit"; then it is not an observation
    name: str = ""

    def shape(self, sizes: dict[str, int]) -> tuple[int, ...]:
        """The shape of one row."""
        for d in self.dims:
            if isinstance(d, str) and d not in sizes:
                raise ConfigError(f"field {self.name!r} names the size {d!r}, which size_of does not give")
        return tuple(sizes[d] if isinstance(d, str) else d for d in self.dims)

    def bounds(self, sizes: dict[str, int]) -> tuple[float | None, float | None]:
        """(lowest, highest) value as numbers, None where nothing is declared."""
        if self.index is not None:
            return 0, sizes[self.index] - 1
        return self._bound(self.low, sizes), self._bound(self.high, sizes)

    def _bound(self, bound: float | str | None, sizes: dict[str, int]) -> float | None:
        if not isinstance(bound, str):
            return bound
        name = bound.removeprefix("-")
        if name not in sizes:
            raise ConfigError(f"field {self.name!r} is bounded by {bound!r}: a bound is a number or the name of a size")
        return -sizes[name] if bound.startswith("-") else sizes[name]

    @property
    def per_row(self) -> bool:
        return self.role not in (Role.CONSTANT, Role.SCRATCH)

    def __set_name__(self, owner: type, name: str) -> None:
        object.__setattr__(self, "name", name)


def _field(role: Role, dtype: Any, dims: tuple[str | int, ...], options: dict[str, Any]) -> Field:
    if options.get("tally"):
        options.setdefault("observed", False)  # functional stepping drops it
    known = Field.__dataclass_fields__.keys() - {"role", "dtype", "dims", "name"}
    if unknown := [keyword for keyword in options if keyword not in known]:
        raise ConfigError(f"{role.value}() has no keyword {unknown[0]!r}{did_you_mean(unknown[0], known)}")
    with suppress(TypeError):  # refused by `_typed`, which knows the name
        dtype = np.dtype(dtype)
    return Field(role, dtype, dims, **options)


def _typed(owner: str, f: Field) -> Field:
    """The field, if its dtype is one of TYPES."""
    if not isinstance(f.dtype, np.dtype):
        raise ConfigError(
            f"{owner}the field {f.name!r} has the unknown type {f.dtype!r}: it must be one of {', '.join(TYPES)}"
        )
    return f


def instance(dtype: Any, *dims: str | int, **options: Any) -> Any:
    """A field of the problem, from a generator or a file, constant through an episode."""
    return _field(Role.INSTANCE, dtype, dims, options)


def state(dtype: Any, *dims: str | int, **options: Any) -> Any:
    """A field that a step changes."""
    return _field(Role.STATE, dtype, dims, options)


def mask(*dims: str | int, **options: Any) -> Any:
    """The actions allowed now."""
    options.setdefault("doc", "True = allowed")
    return _field(Role.MASK, bool_, dims, options)


def view(dtype: Any, *dims: str | int, **options: Any) -> Any:
    """A field computed for the agent or for `info`, never read back."""
    if options.get("primary") or options.get("feature"):
        options.setdefault("observed", True)
    if options.get("feature"):
        options.setdefault("on_demand", True)
    options.setdefault("observed", False)
    return _field(Role.VIEW, dtype, dims, options)


def key(dtype: Any, *dims: str | int, **options: Any) -> Any:
    """A field that identifies a row. `World` declares them; its subclasses need none."""
    return _field(Role.KEY, dtype, dims, {"hidden": True, **options})


def constant(dtype: Any, *dims: str | int, **options: Any) -> Any:
    """A number of the configuration, or with dimensions a table that all rows read (a map). Kernels read it through
    `w`, so a new value needs no compile."""
    return _field(Role.CONSTANT, dtype, dims, options)


def scratch(dtype: Any, *dims: str | int, **options: Any) -> Any:
    """Work space of a thread (kernels allocate nothing)."""
    return _field(Role.SCRATCH, dtype, dims, options)


def declared_fields(cls: type) -> dict[str, Field]:
    """All fields of a world class in declaration order, those of `World` last."""
    found: dict[str, Field] = {}
    declaring = [c for c in cls.__mro__ if any(isinstance(v, Field) for v in vars(c).values())]
    root = declaring[-1] if declaring else None
    for c in [*reversed(declaring[:-1]), *declaring[-1:]]:
        for name, value in vars(c).items():
            if isinstance(value, Field):
                if c is root and name in found:
                    continue  # a subclass may declare a field of `World` again, e.g. to describe it better
                found[name] = _typed(f"{cls.__name__}: ", value if value.name == name else replace(value, name=name))
    return found


def named(declared: Mapping[str, Any]) -> dict[str, Field]:
    """Named fields from declarations outside a class, for kernels that belong to no world."""
    return {name: _typed("", replace(f, name=name)) for name, f in declared.items()}


def is_finite(f: Field, config: Any) -> bool:
    """Whether the values of a field are finite: a limit that the configuration does not set is infinite."""
    value = getattr(config, f.name, None)
    return not f.limit or (value is not None and math.isfinite(value))


def observed_fields(fields: dict[str, Field], sizes: dict[str, int]) -> list[Field]:
    """The observation: the views declared observed if there are any, else every instance and state field that is
    neither hidden nor declared unobserved nor switched off. Bindings add the mask."""
    present = [f for f in fields.values() if f.per_row and 0 not in f.shape(sizes)]
    views = [f for f in present if f.role is Role.VIEW and f.observed]
    return views or raw_fields(fields, sizes)


def mask_field(fields: Mapping[str, Field], sizes: dict[str, int]) -> Field | None:
    """The mask, or None; a mask of size 0, as where actions are numbers, counts as none."""
    f = fields.get("action_mask")
    return f if f is not None and 0 not in f.shape(sizes) else None


def raw_fields(fields: dict[str, Field], sizes: dict[str, int]) -> list[Field]:
    """The instance and state fields that an agent may see."""
    present = [f for f in fields.values() if f.per_row and 0 not in f.shape(sizes)]
    return [f for f in present if f.role in (Role.INSTANCE, Role.STATE) and not f.hidden and f.observed is not False]


def table_markdown(fields: dict[str, Field]) -> str:
    """The field table of a docs page."""
    lines = ["| field | type | row shape | role | meaning |", "|---|---|---|---|---|"]
    for f in fields.values():
        if f.role in (Role.CONSTANT, Role.SCRATCH):
            continue
        shape = f"({', '.join(str(d) for d in f.dims)})" if f.dims else "scalar"
        role = f.role.value + (", hidden" if f.hidden else "") + (", not observed" if f.observed is False else "")
        lines.append(f"| `{f.name}` | {f.dtype.name} | {shape} | {role} | {describe(f)} |")
    return "\n".join(lines) + "\n"


def describe(f: Field) -> str:
    """Meaning and bounds in one phrase."""
    if f.index is not None:
        span = f"0..{f.index}-1"
    elif f.low is not None and f.high is not None:
        span = f"{f.low}..{f.high}"
    elif f.low is not None:
        span = f">= {f.low}"
    elif f.high is not None:
        span = f"<= {f.high}"
    else:
        span = ""
    if f.limit:
        span = f"{span}; inf = no limit".lstrip("; ")
    return f"{f.doc} ({span})" if span else f.doc
