"""What a network sees of a world, derived from the declared fields: no world needs a network of its own.

The world has one agent that picks an entry of a named axis, such as a node. Each field that the agent may see becomes

    node feature       of the instance, for each entry: read once an instance, by an encoder
    matrix             of the instance, for each pair of entries: summaries of it are node features
    place              an index of the axis in the state: the embedding of that entry
    number             of the row: read at every step
    changing feature   of the row, for each entry: read at every step

or is left out, with a reason. Scales are measured on random play. `derive` makes the `Features` of a world; its methods
read a world's arrays. The arrays are numpy's, for training (`milkrun.learn`) and for bindings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from milkrun.core.engine import EngineWorld
from milkrun.core.errors import ConfigError
from milkrun.core.fields import Field, Role, bool_, raw_fields

LONGEST = 64  # numbers of a field that is no feature of an entry
MOST_CHOICES = 32  # of an index that becomes one-hot
EPISODES, SEED = 64, 12345  # of the random play that measures scales
MOST_STEPS = 10_000  # of an episode without max_steps
GROUPS = ("nodes", "matrices", "places", "numbers", "changing")


@dataclass(frozen=True)
class Features:
    """The fields of each kind by name, in the order of their columns, and their scales."""

    axis: str
    nodes: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    changing: tuple[str, ...] = ()
    matrices: tuple[str, ...] = ()
    scale: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """field: (shift, factor); a value becomes (value - shift) * factor"""
    flag: int = 1
    """the number of first entries (depots, a door) that are marked by a feature of their own"""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """field: why no network sees it"""
    roles: Mapping[str, str] = field(default_factory=dict)
    """field: its role and shape in words, for the table"""

    def __str__(self) -> str:
        """The table of `milkrun train --explain`."""
        kinds = {
            "nodes": "node feature",
            "matrices": "matrix",
            "places": "place",
            "numbers": "number",
            "changing": "changing feature",
        }
        lines = [("field", "declared as", "becomes", "mean", "deviation")]
        for group, kind in kinds.items():
            for name in getattr(self, group):
                shift, factor = self.scale.get(name, (0.0, 1.0))
                scaled = (f"{shift:.4g}", f"{1 / factor:.4g}") if name in self.scale else ("", "")
                lines.append((name, self.roles.get(name, ""), kind, *scaled))
        if self.flag:
            marked = "entry 0" if self.flag == 1 else f"entries 0 to {self.flag - 1}"
            lines.append((f"{marked} of {self.axis}", "", "node feature", "", ""))
        lines += [(name, self.roles.get(name, ""), f"left out: {why}", "", "") for name, why in self.left_out.items()]
        widths = [max(len(line[k]) for line in lines) for k in range(5)]
        return "\n".join(
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines
        )

    # -- what is read of a world ----------------------------------------------------------------------------------

    def observe(self, world: Any) -> None:
        """Computes views on demand, once before the reads of a step."""
        if any(world.fields[name].on_demand for name in (*self.numbers, *self.changing)):
            world.observe()

    def read_nodes(self, world: Any, instances: Any = slice(None)) -> np.ndarray:
        """(Q, N, F) float32 of the instances that the world plays, or of some of them."""
        parts = [_columns(self._scaled(world, name, instances), 2) for name in self.nodes]
        for name in self.matrices:
            matrix = self._scaled(world, name, instances)
            parts += [summary(matrix, axis=axis)[:, :, None] for axis in (2, 1) for summary in (np.mean, np.min)]
        if self.flag or not parts:
            count = len(np.arange(world.num_instances)[instances])
            flag = np.zeros((count, world.sizes[self.axis], 1), np.float32)
            flag[:, : self.flag] = 1
            parts.append(flag)
        return np.concatenate(parts, axis=2)

    def read_places(self, world: Any) -> list[np.ndarray]:
        """For each place (R,) int64: an entry, or N for nowhere, as before the first step."""
        n = world.sizes[self.axis]
        if not self.places:
            return [np.full(world.num_envs, n)]
        begun = world.i > 0
        places = [getattr(world, name) for name in self.places]
        return [np.where(begun & (place >= 0), place, n).astype(np.int64) for place in places]

    def read_numbers(self, world: Any) -> np.ndarray | None:
        """(R, M) float32."""
        if not self.numbers:
            return None
        return np.concatenate([_columns(self._number(world, name), 1) for name in self.numbers], axis=1)

    def read_changing(self, world: Any) -> np.ndarray | None:
        """(R, N, X) float32; of a matrix the row of each place, 0 from nowhere."""
        parts = [_columns(self._of_rows(world, name), 2) for name in self.changing]
        for name in self.matrices:
            matrix, n = self._scaled(world, name), world.sizes[self.axis]
            for place in self.read_places(world):
                known = place < n
                row = matrix[world.instance_row, np.where(known, place, 0)]
                parts.append(np.where(known[:, None], row, np.float32(0))[:, :, None])
        return np.concatenate(parts, axis=2) if parts else None

    def widths(self, world: Any) -> dict[str, int]:
        """The numbers of node features, places, numbers and changing features."""
        places = max(1, len(self.places))
        return {
            "nodes": max(1, _count(world, self.nodes, 1) + 4 * len(self.matrices) + bool(self.flag)),
            "places": places,
            "numbers": sum(_number_width(world, name) for name in self.numbers),
            "changing": _count(world, self.changing, 1) + places * len(self.matrices),
        }

    def _scaled(self, world: Any, name: str, chosen: Any = slice(None)) -> np.ndarray:
        shift, factor = self.scale.get(name, (0.0, 1.0))
        values = without_limits(world.fields[name], getattr(world, name)[chosen]).astype(np.float32)
        scaled: np.ndarray = (values - np.float32(shift)) * np.float32(factor)
        return scaled

    def _of_rows(self, world: Any, name: str) -> np.ndarray:
        values = self._scaled(world, name)
        return values[world.instance_row] if world.fields[name].role is Role.INSTANCE else values

    def _number(self, world: Any, name: str) -> np.ndarray:
        width = choices(world.fields[name], world.sizes)
        if not width:
            return self._of_rows(world, name)
        choice = getattr(world, name)
        choice = choice[world.instance_row] if world.fields[name].role is Role.INSTANCE else choice
        return np.asarray(choice[:, None] == np.arange(width), np.float32)


def without_limits(f: Field, values: np.ndarray) -> np.ndarray:
    """The values, with 0 for a limit that is not set."""
    return np.where(np.isfinite(values), values, values.dtype.type(0)) if f.limit else values


def entries_apart(world: Any) -> int:
    """The number of first entries that are no customers: depots, or a door."""
    return int(getattr(world, "first_customer", getattr(world, "depot_apart", True)))


def _columns(values: np.ndarray, leading: int) -> np.ndarray:
    return values.reshape(*values.shape[:leading], -1)


def _count(world: Any, names: tuple[str, ...], leading: int) -> int:
    """The columns of these fields: numbers of one row behind the first `leading` axes."""
    return sum(int(np.prod(world.fields[name].shape(world.sizes)[leading:])) for name in names)


def choices(f: Field, sizes: Mapping[str, int]) -> int:
    """The width of an index that becomes one-hot; 0 for other fields."""
    return sizes[f.index] if f.index is not None and not f.dims else 0


def _number_width(world: Any, name: str) -> int:
    return choices(world.fields[name], world.sizes) or _count(world, (name,), 0)


# -- from declarations ------------------------------------------------------------------------------------------------


def fits(world: Any) -> str:
    """Why no features can be derived from a world; empty if they can."""
    if world.action.kind != "discrete":
        return "several agents act" if world.action.kind == "multi" else "its actions are numbers"
    axis = world.action.n
    if not isinstance(axis, str):
        return "its actions are no entries of a named axis"
    if isinstance(world, EngineWorld):
        return "an engine moves its rows, in whole simulations"
    if world.fields["action_mask"].dims != (axis,) or not world.mask_lists_all:
        return "its mask does not list all actions"
    if not any(axis in f.dims for f in world.fields.values() if f.role in (Role.INSTANCE, Role.STATE, Role.VIEW)):
        return f"no field describes the entries of the axis {axis!r}"
    return ""


def derive(world: Any, *, episodes: int = EPISODES, seed: int = SEED) -> Features:
    """The features of a world, from its declarations and from random episodes of its configuration. The world itself is
    not changed."""
    if why := fits(world):
        raise ConfigError(f"{type(world).__name__}: features cannot be derived, because {why}")
    axis = world.action.n
    views = [f for f in world.observed if f.role is Role.VIEW]
    visible = [*raw_fields(world.fields, world.sizes), *views]
    stated = type(world).policy_sees
    groups: dict[str, list[str]] = {group: [] for group in GROUPS}
    left_out: dict[str, str] = {}
    for f in visible:
        stated_here = stated is not None and not _is_matrix(f, world)
        group = _stated_group(f.name, stated) if stated_here else _group(f, world, bool(views))
        if group in groups:
            groups[group].append(f.name)
        else:
            left_out[f.name] = group
    if stated is not None:
        shown = {f.name for f in visible}
        groups |= {group: [name for name in names if name in shown] for group, names in stated.items()}
    scale = _measure(world, groups, left_out, keep_all=stated is not None, episodes=episodes, seed=seed)
    return Features(
        axis,
        **{group: tuple(names) for group, names in groups.items()},
        scale=scale,
        flag=entries_apart(world),
        left_out=left_out,
        roles={f.name: f"{f.role.value} ({', '.join(map(str, f.dims))})" if f.dims else f.role.value for f in visible},
    )


def _stated_group(name: str, stated: Mapping[str, tuple[str, ...]]) -> str:
    return next((group for group, names in stated.items() if name in names), "not in policy_sees of the class")


def _is_matrix(f: Field, world: Any) -> bool:
    """A number for each pair of entries; a dimension that may be switched off has a name of its own."""
    n = world.sizes[world.action.n]
    return len(f.dims) == 2 and isinstance(f.dims[0], str) and f.shape(world.sizes) == (n, n)


def _is_per_entry(f: Field, world: Any) -> bool:
    """Numbers for each entry; here, too, an optional field has a dimension with a name of its own."""
    first = f.dims[0] if f.dims else 0
    return isinstance(first, str) and world.sizes[first] == world.sizes[world.action.n] and len(f.dims) <= 2


def _group(f: Field, world: Any, has_views: bool) -> str:
    """The group of a field by the first rule that fits, or the reason why it has none."""
    axis, sizes = world.action.n, world.sizes
    is_scalar_index = not f.dims and f.dtype.kind in "iu"
    is_place = f.role is Role.STATE and is_scalar_index and f.bounds(sizes)[1] == sizes[axis] - 1
    if has_views and f.role is Role.STATE and not is_place:
        return "the observed views describe it"
    if _is_matrix(f, world):
        return "matrices" if f.role is Role.INSTANCE else "a matrix that changes"
    if _is_per_entry(f, world):
        return "nodes" if f.role is Role.INSTANCE else "changing"
    if is_place:
        return "places"
    if f.name == "i":
        return "the count of steps"
    if choices(f, sizes) > MOST_CHOICES:
        return f"an index of more than {MOST_CHOICES} values"
    width = int(np.prod(f.shape(sizes)))
    return "numbers" if width <= LONGEST else f"{width} numbers, more than {LONGEST}, without the axis {axis!r}"


def _measure(
    world: Any, groups: dict[str, list[str]], left_out: dict[str, str], *, keep_all: bool, episodes: int, seed: int
) -> dict[str, tuple[float, float]]:
    """Plays random episodes; returns the scale of each field and moves useless fields to `left_out`. With `keep_all`
    fields that never vary stay."""
    play = type(world)(episodes, world.config, seed=seed, autoreset="disabled", threads=1)
    play.reset()
    once = groups["nodes"] + groups["matrices"]
    each_step = groups["numbers"] + groups["changing"]
    seen: dict[str, list[np.ndarray]] = {name: [getattr(play, name).copy()] for name in once}
    seen |= {name: [] for name in each_step}
    # A changing flag that is never True where the mask is (a node that was visited) says what the mask says.
    masked = {name: play.fields[name].dtype == bool_ for name in groups["changing"]}
    on_demand = any(play.fields[name].on_demand for name in each_step)
    live = np.arange(episodes)
    for turn in range(MOST_STEPS + 1):
        if not len(live):
            break
        if turn == MOST_STEPS:
            raise ConfigError(
                f"{type(world).__name__}: an episode of {MOST_STEPS} random steps has not ended: set max_steps"
            )
        if on_demand:
            play.observe()
        for name in each_step:
            array = getattr(play, name)
            array = array[play.instance_row[live]] if play.fields[name].role is Role.INSTANCE else array[live]
            seen[name].append(array.copy())
            if masked.get(name):
                masked[name] = not (array & play.action_mask[live]).any()
        play.step(play.sample_actions(seed)[live], rows=live)
        live = live[~play.done[live]]
    views = {f.name for f in play.observed if f.role is Role.VIEW}
    scale: dict[str, tuple[float, float]] = {}
    for name, parts in seen.items():
        values = np.concatenate([part.ravel() for part in parts]).astype(np.float64)
        is_set = bool(np.isfinite(values).any()) if play.fields[name].limit else bool(np.isfinite(values).all())
        values = without_limits(play.fields[name], values)
        why = ""
        if not is_set:
            why = "not finite in every instance: a limit that is not set"
        elif not keep_all and values.std() < 1e-9 * max(1.0, abs(values.mean())):
            why = "it never varies"
        elif not keep_all and masked.get(name):
            why = "the mask says it"
        if why:
            left_out[name] = why
            for names in groups.values():
                if name in names:
                    names.remove(name)
        elif play.fields[name].dtype != bool_ and name not in views and not choices(play.fields[name], play.sizes):
            deviation = values.std()
            scale[name] = float(values.mean()), float(1 / deviation) if deviation > 0 else 1.0
    return scale
