"""Reads instances and saved states from a caller, validates them field by field, and refuses them with row and reason.

Nothing here writes into a world; a refused instance leaves it as it was.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from milkrun.core.actions import Action
from milkrun.core.errors import BadInstance, ShapeError, did_you_mean
from milkrun.core.fields import Field, Role

RECORD_KINDS = {np.float32: "fiu", np.float64: "fiu", np.int64: "iu", np.bool_: "b"}


class InstanceRules(Protocol):
    """What a world declares of its instances, and the rules that a declaration cannot express."""

    fields: ClassVar[dict[str, Field]]
    action: ClassVar[Action]
    sizes: dict[str, int]

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]: ...
    def check_instances(self, arrays: dict[str, np.ndarray]) -> None: ...
    def _with_role(self, *roles: Role) -> list[Field]: ...


class StateRules(InstanceRules, Protocol):
    """The same of the states of its rows."""

    def check_states(self, arrays: dict[str, np.ndarray]) -> None: ...
    def refuse_faults(self, arrays: Mapping[str, np.ndarray], given: Given) -> None: ...
    @property
    def faults(self) -> Mapping[int, tuple[str, str]]: ...


class Given(NamedTuple):
    """Instance fields with the instance first, and which of them each state row plays (None: its own)."""

    arrays: dict[str, np.ndarray]
    instance_row: np.ndarray | None


def read_instances(world: InstanceRules, instance: Mapping[str, Any], rows: int) -> Given:
    """Validates an instance given for `rows` state rows of `world`."""
    if not isinstance(instance, Mapping) and not hasattr(instance, "keys"):
        raise ShapeError(f"an instance is a mapping of field names to arrays, not a {type(instance).__name__}")
    values = {str(k): _with_rows(str(k), instance[k]) for k in list(instance.keys())}
    owner = values.pop("instance_row", None)
    values = world.arrange_instances(values)
    fields = {f.name: f for f in world.fields.values() if f.role is Role.INSTANCE and 0 not in f.shape(world.sizes)}
    for name in values:
        if name not in fields:
            raise ShapeError(f"{type(world).__name__} has no instance field {name!r}{did_you_mean(name, fields)}")
    if missing := [name for name in fields if name not in values]:
        raise ShapeError(f"the instance lacks {', '.join(repr(m) for m in missing)}")
    count = rows if owner is None else max((len(v) for v in values.values()), default=0)
    arrays = {name: _as_field(f, values[name], count, world.sizes) for name, f in fields.items()}
    for name, array in arrays.items():
        check_values(fields[name], array, world.sizes)
    world.check_instances(arrays)
    return Given(arrays, None if owner is None else owners_of(owner, rows, count))


def instances_of(world: Any, rows: Any = slice(None)) -> dict[str, np.ndarray]:
    """The instances that rows play, one a row, as `reset(instance=...)` takes them."""
    owners = world.instance_row[rows]
    found = {f.name: getattr(world, f.name) for f in world.fields.values() if f.role is Role.INSTANCE}
    return {name: array[owners] for name, array in found.items() if 0 not in array.shape}


def padded(world: Any, name: str, array: np.ndarray, rest: Any = 0) -> np.ndarray:
    """A field of one instance, padded with `rest` to the size of the world."""
    shape = world.fields[name].shape(world.sizes)
    if array.ndim != len(shape) or any(have > want for have, want in zip(array.shape, shape, strict=True)):
        raise ShapeError(f"{name} of an instance has the shape {array.shape}; at most {shape} fits")
    whole = np.full(shape, rest, array.dtype)
    whole[tuple(slice(size) for size in array.shape)] = array
    return whole


def read_saved(world: InstanceRules, saved: Any, rows: int) -> tuple[dict[str, np.ndarray], Given]:
    """Reads what `state_dict` saved of `rows` rows: (fields of the rows, their instances). Validates shapes, dtypes and
    the bounds of instances."""
    if not isinstance(saved, Mapping):
        raise ShapeError(f"a saved state is a mapping of field names to arrays, not a {type(saved).__name__}")
    fields = world._with_role(Role.STATE, Role.MASK, Role.VIEW, Role.KEY, Role.INSTANCE)
    if missing := [f.name for f in fields if f.name not in saved]:
        raise ShapeError(f"the saved state lacks {', '.join(repr(m) for m in missing)}")
    arrays = {f.name: _with_rows(f.name, saved[f.name]) for f in fields}
    own = [f for f in fields if f.role is Role.INSTANCE]
    count = len(arrays[own[0].name]) if own else rows
    for f in fields:
        arrays[f.name] = _as_field(f, arrays[f.name], count if f.role is Role.INSTANCE else rows, world.sizes)
        if f.role is Role.INSTANCE:
            check_values(f, arrays[f.name], world.sizes)
    _check_outcome(arrays)
    owner = owners_of(arrays.pop("instance_row"), rows, count)
    return arrays, Given({f.name: arrays.pop(f.name) for f in own}, owner)


def check_saved(world: StateRules, arrays: dict[str, np.ndarray], given: Given, known: bool = False) -> None:
    """Refuses impossible rows, as `read_saved` returns them: instances (unless they are `known`), then the states that
    play them, by their bounds, by `check_states`, by the kernel `fault`."""
    if not known:
        world.check_instances(given.arrays)
    played = {
        name: array if given.instance_row is None else array[given.instance_row] for name, array in given.arrays.items()
    }
    check_rows(world, {**arrays, **played})
    world.check_states({**arrays, **played})
    world.refuse_faults(arrays, given)


def _check_outcome(arrays: dict[str, np.ndarray]) -> None:
    """Refuses what no step can leave: a reward that is not finite, flags that contradict each other."""
    for name in ("reward", "reward_exact"):
        if name in arrays:
            refuse_where(name, arrays[name], ~np.isfinite(arrays[name]), "must be finite")
    wrong = arrays["done"] != (arrays["terminated"] | arrays["truncated"])
    refuse_where("done", arrays["done"], wrong, "must be terminated or truncated")


def check_rows(world: InstanceRules, arrays: dict[str, np.ndarray]) -> None:
    """Refuses rows that break what is declared. `arrays` has fields of these rows, of right shape and dtype; instance
    fields have what each row plays.

    States lie within their declared bounds, streams are not negative, and live rows have an allowed action for every
    agent. Kernels use all of these as indices.
    """
    for name, array in arrays.items():
        f = world.fields[name]
        if f.role is Role.STATE:
            check_values(f, array, world.sizes)
        elif name == "stream" and (wrong := array < 0).any():
            refuse(name, array, wrong, "must be >= 0")
        elif f.role is Role.MASK:
            ended = [arrays[flag] for flag in ("terminated", "truncated") if flag in arrays]
            live = ~np.logical_or.reduce([*ended, np.zeros(len(array), bool)])
            check_mask(name, array, world.action.nvec(world.sizes), live)


def unlisted_fault(cls: type, code: int) -> str:
    """The end of a sentence about a code of the kernel `fault` that its class does not list."""
    return f"which {cls.__name__}.faults does not list: write faults = {{{code}: (field, rule), ...}}"


def refuse_fault(world: StateRules, row: int, code: int, value_of: Callable[[str], np.ndarray]) -> NoReturn:
    """Raises BadInstance for a row whose state the kernel `fault` refused with this code. `value_of` gives a field of
    that row; a field in braces in the class's `faults` stands for its value."""

    def shown(name: str) -> str:
        return str(value_of(name).tolist())

    if code not in world.faults:
        unlisted = unlisted_fault(type(world), code)
        raise BadInstance(f"row {row}: its state is impossible: the kernel `fault` returns {code}, {unlisted}")
    name, rule = world.faults[code]
    rule = re.sub(r"\{(\w+)\}", lambda found: shown(found[1]), rule)
    value = f" = {shown(name)}" if not world.fields[name].dims else ""
    raise BadInstance(f"row {row}: {name}{value}: {rule}")


def check_mask(name: str, array: np.ndarray, choices: Iterable[int], live: np.ndarray) -> None:
    """Raises BadInstance for the first live row in which an agent has no allowed action."""
    first = 0
    for agent, n in enumerate(choices):
        closed = live & ~array[:, first : first + n].any(axis=1)
        if closed.any():
            at = f"{name}[{first}:{first + n}]" if n < array.shape[1] else name
            raise BadInstance(
                f"row {int(np.flatnonzero(closed)[0])}: {at} is all False: agent {agent} of a row that "
                f"has not ended needs an allowed action"
            )
        first += n


def owners_of(owner: Any, rows: int, count: int) -> np.ndarray:
    """The index of the instance that each row plays, of `count` instances."""
    array = _with_rows("instance_row", owner)
    if array.shape != (rows,) or array.dtype.kind not in "iu":
        raise ShapeError(f"instance_row must be {rows} integers, one a row, not {array.dtype} of shape {array.shape}")
    if rows and not (0 <= array.min() and array.max() < count):
        r = int(np.flatnonzero((array < 0) | (array >= count))[0])
        raise BadInstance(f"row {r}: instance_row = {array[r]}: there are {count} instances, 0..{count - 1}")
    return array.astype(np.int32)


def as_array(name: str, value: Any) -> np.ndarray:
    """`np.asarray`, with a ShapeError for what numpy refuses."""
    try:
        return np.asarray(value)
    except Exception as e:
        raise ShapeError(f"{name}: not an array: {e}") from None


def _with_rows(name: str, value: Any) -> np.ndarray:
    array = as_array(name, value)
    if array.ndim == 0:
        raise ShapeError(f"{name} must have the row as its first axis")
    return array


def _as_field(f: Field, array: np.ndarray, count: int, sizes: dict[str, int]) -> np.ndarray:
    expected = (count, *f.shape(sizes))
    if array.shape != expected:
        raise ShapeError(f"{f.name} must have the shape {expected}, not {array.shape}")
    kinds = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}[f.dtype.kind]
    if array.dtype.kind not in kinds:
        raise ShapeError(f"{f.name} must be {f.dtype.name}; {array.dtype} would lose information")
    if f.dtype.kind in "iu" and array.size:
        span = np.iinfo(f.dtype)
        wrong = (array < span.min) | (array > span.max)
        if wrong.any():
            refuse(f.name, array, wrong, f"must fit {f.dtype.name}")
    with np.errstate(over="ignore"):
        cast = np.ascontiguousarray(array, dtype=f.dtype)
    if f.dtype.kind == "f" and array.dtype.kind == "f":
        wrong = np.isinf(cast) & np.isfinite(array)
        if wrong.any():
            refuse(f.name, array, wrong, f"must be finite in {f.dtype.name}")
    return cast


def check_values(f: Field, array: np.ndarray, sizes: dict[str, int]) -> None:
    """Raises BadInstance for the first element that is out of the bounds declared for its field."""
    if f.dtype.kind == "f":
        wrong = np.isnan(array) if f.limit else ~np.isfinite(array)
        if wrong.any():
            refuse(f.name, array, wrong, "must be a number" if f.limit else "must be finite")
    low, high = f.bounds(sizes)
    if low is not None and (array < low).any():
        refuse(f.name, array, array < low, f"must be >= {low}")
    if high is not None and (array > high).any():
        refuse(f.name, array, array > high, f"must be <= {high}")


def refuse(name: str, array: np.ndarray, wrong: np.ndarray, rule: str) -> None:
    """Raises BadInstance for the first wrong element: row, field, index, value, rule."""
    at = tuple(int(k) for k in np.argwhere(wrong)[0])
    index = f"[{', '.join(map(str, at[1:]))}]" if len(at) > 1 else ""
    raise BadInstance(f"row {at[0]}: {name}{index} = {array[at]}: {rule}")


def refuse_where(name: str, array: np.ndarray, wrong: np.ndarray, rule: str) -> None:
    """`refuse`, if any element is wrong."""
    if wrong.any():
        refuse(name, array, wrong, rule)


@dataclass(frozen=True, eq=False)
class InstanceRecord:
    """A problem as data, read from a file: base class of the instances of each family. Arrays are read-only copies."""

    name: str

    def __eq__(self, other: object) -> bool:
        """Whether all data but the name are equal."""
        if not isinstance(other, type(self)):
            return NotImplemented
        names = [f.name for f in dataclasses.fields(self) if f.name != "name"]
        return all(np.array_equal(getattr(self, a), getattr(other, a)) for a in names)

    def _keep(self, name: str, dtype: type[np.generic], shape: tuple[int, ...]) -> NDArray[Any]:
        """Replaces a given array with a validated read-only copy."""
        given = np.asarray(getattr(self, name))
        if given.shape != shape or given.dtype.kind not in RECORD_KINDS[dtype]:
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
