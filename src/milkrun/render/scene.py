"""What a row looks like, defined once: the `Scene` of a state, and the `Chart` of an episode over time.

A world returns its scene; the canvas behind `render`, figures and replay pages each paint it in their medium. A scene
holds the present state only; recorders find out what changes. All arguments are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from milkrun.core.errors import ConfigError, did_you_mean
from milkrun.render.canvas import FIRST_OF_PALETTE, MEANINGS, PALETTE

COLOURS = tuple(MEANINGS)
"""Colours with a meaning, by their codes 0, 1, ...; a waiting point is hollow."""
POINT_SHAPES, VEHICLE_SHAPES = ("disc", "square"), ("disc", "truck", "drone", "car")
BODY_SHAPES = ("box", "cylinder", "sphere")
DTYPES = {"ring": np.bool_, "faint": np.bool_, "action": np.int64}  # of attributes that are no numbers

Colour: TypeAlias = str | int
Words: TypeAlias = Sequence[str] | Callable[[], Sequence[str]]
Array: TypeAlias = NDArray[Any]


def colour_code(colour: Any) -> int:
    """The code of a colour of COLOURS, or of colour k of the palette."""
    if isinstance(colour, (int, np.integer)) and not isinstance(colour, bool):
        return FIRST_OF_PALETTE + int(colour) % len(PALETTE)
    if colour not in COLOURS:
        raise ConfigError(f"there is no colour {colour!r}{did_you_mean(str(colour), COLOURS)}")
    return COLOURS.index(colour)


class Codes(np.ndarray[Any, Any]):
    """Codes of colours, as `colours` returns them."""


def colours(given: Iterable[Any]) -> Codes:
    """Codes of a list or an array of colours: names, palette indices, or both. Codes are copied."""
    if isinstance(given, Codes):
        return given.copy()
    listed = given.tolist() if isinstance(given, np.ndarray) else list(given)
    known = {colour: colour_code(colour) for colour in set(listed)}
    return np.array([known[colour] for colour in listed], np.uint8).view(Codes)


@dataclass(frozen=True)
class Part:
    """One mark of a scene: its kind, and its attributes by the names of the call's arguments."""

    kind: str
    attributes: dict[str, Any]


class Scene:
    """The present state in the window from `low` to `high`: two numbers each, or three (metres, z up) for bodies.

    Names are unique, and the same at every step.
    """

    def __init__(self, low: ArrayLike, high: ArrayLike) -> None:
        self.low = np.array(low, np.float64)
        self.high = np.array(high, np.float64)
        if self.low.shape not in ((2,), (3,)) or self.high.shape != self.low.shape:
            raise ConfigError(f"a window is 2 or 3 numbers each, not {self.low.shape} and {self.high.shape}")
        if not np.isfinite(self.low + self.high).all():
            raise ConfigError(f"a window must be finite, not from {self.low.tolist()} to {self.high.tolist()}")
        self.marks: dict[str, Part] = {}
        self.images: dict[str, NDArray[np.uint8]] = {}
        self.figures: dict[str, float] = {}
        self.gauges: dict[str, tuple[float, float]] = {}
        self.legends: list[tuple[str, int, str]] = []
        self.tallies: list[tuple[str, int, str]] = []
        self.tally_legends: list[tuple[str, int, str]] = []
        self.floor: Callable[[], NDArray[np.uint8]] | None = None
        self.view: dict[str, Any] | None = None
        self.words: str | None = None

    def points(
        self,
        name: str,
        xy: ArrayLike,
        *,
        shape: str | Sequence[str] = "disc",
        size: ArrayLike | None = None,
        colour: Any = None,
        level: ArrayLike | None = None,
        ring: ArrayLike | None = None,
        label: Words | None = None,
        text: Words | None = None,
        action: ArrayLike | None = None,
    ) -> None:
        """Points at `xy` (n, 2).

        `size` is 0..1; `level` 0..1 fills the disc from below; `ring` marks points that must be visited; `label` is
        short, `text` complete. `action` (n,) is the index in the flat mask, -1 for none; (k, n) where several actions
        lead to a point.
        """
        places = _numbers(name, "xy", xy, (None, 2))
        n = len(places)
        self._add(
            "points",
            name,
            xy=places,
            shape=_shape(name, shape, POINT_SHAPES, n),
            **_attributes(
                name, n, size=size, level=level, ring=ring, colour=colour, label=label, text=text, action=action
            ),
        )

    def route(
        self,
        name: str,
        on: str,
        stops: ArrayLike,
        *,
        cut: int | None = None,
        closed: bool = False,
        open: bool = False,
        paint: bool = True,
        colour: Colour | None = None,
    ) -> None:
        """A route over the points `on`: `stops` are indices in order.

        A trip ends at node `cut`; with `open` its last leg, which leads there, is not drawn. Each trip has its own
        colour unless `colour` is given; with `paint`, visited points take that colour.
        """
        if on not in self.marks or self.marks[on].kind != "points":
            raise ConfigError(f"mark {name!r}: on={on!r} names no points added before it")
        places = np.array(stops, np.int64).reshape(-1)
        count = len(self.marks[on].attributes["xy"])
        if places.size and not (0 <= places.min() and places.max() < count):
            raise ConfigError(f"mark {name!r}, stops: {places.min()}..{places.max()} is not within 0..{count - 1}")
        self._add(
            "route",
            name,
            on=on,
            stops=places,
            cut=cut,
            closed=bool(closed),
            open=bool(open),
            paint=bool(paint),
            colour=None if colour is None else colour_code(colour),
        )

    def vehicle(
        self,
        name: str,
        xy: ArrayLike,
        *,
        shape: str = "disc",
        colour: Colour = "ink",
        label: str | None = None,
        trail: bool = False,
        gauge: float | None = None,
        shown: bool = True,
    ) -> None:
        """Something that moves, along the new stops if there is a route; `gauge` 0..1 is drawn as a bar beside it."""
        self._add(
            "vehicle",
            name,
            xy=_numbers(name, "xy", xy, (2,)),
            shape=_shape(name, shape, VEHICLE_SHAPES),
            colour=colour_code(colour),
            label=label,
            trail=bool(trail),
            shown=bool(shown),
            gauge=None if gauge is None else float(gauge),
        )

    def line(self, name: str, start: ArrayLike, end: ArrayLike, *, colour: Colour = "ink", shown: bool = True) -> None:
        """A dashed line, such as from a vehicle to its destination; among bodies a strip on the ground."""
        self._add(
            "line",
            name,
            start=_numbers(name, "start", start, (2,)),
            end=_numbers(name, "end", end, (2,)),
            colour=colour_code(colour),
            shown=bool(shown),
        )

    def bodies(
        self,
        name: str,
        shape: str | Sequence[str],
        size: ArrayLike,
        pos: ArrayLike,
        quat: ArrayLike | None = None,
        *,
        colour: Any = None,
        faint: ArrayLike | None = None,
        transparent: bool = False,
        label: Words | None = None,
        text: Words | None = None,
        action: ArrayLike | None = None,
        target: int = -1,
    ) -> None:
        """Solid bodies in a window of three numbers.

        `size` (n, 3) is the full size along a body's own axes, a cylinder's axis along z; `pos` (n, 3) is the centre;
        `quat` (n, 4) is w, x, y, z. Body `target` is outlined; bodies out of reach are `faint`.
        """
        centres = _numbers(name, "pos", pos, (None, 3))
        n = len(centres)
        turned = np.tile([1.0, 0, 0, 0], (n, 1)) if quat is None else _numbers(name, "quat", quat, (n, 4))
        self._add(
            "bodies",
            name,
            shape=_shape(name, shape, BODY_SHAPES, n),
            size=_numbers(name, "size", size, (n, 3)),
            pos=centres,
            quat=turned,
            **_attributes(name, n, colour=colour, faint=faint),
            transparent=bool(transparent),
            **_attributes(name, n, label=label, text=text, action=action),
            target=int(target),
        )

    def image(self, name: str, pixels: ArrayLike) -> None:
        """A camera image, uint8 (h, w) or (h, w, 3), shown beside the scene."""
        copy = np.array(pixels, np.uint8)
        if copy.ndim not in (2, 3) or (copy.ndim == 3 and copy.shape[2] != 3) or 0 in copy.shape:
            raise ConfigError(f"image {name!r}: pixels {copy.shape} must be (h, w) or (h, w, 3)")
        _add_unique(self.images, name, copy)

    def figure(self, name: str, value: Any) -> None:
        """A number that is plotted over time."""
        _add_unique(self.figures, name, float(value))

    def gauge(self, name: str, value: Any, high: Any) -> None:
        """A bar, full at `high`."""
        _add_unique(self.gauges, name, (float(value), float(high)))

    def legend(self, text: str, colour: Colour, shape: str = "disc", *, tally: bool = False) -> None:
        """The meaning of a colour or a shape; `tally`: in the tally only."""
        (self.tally_legends if tally else self.legends).append((str(text), colour_code(colour), shape))

    def caption(self, words: str) -> None:
        """The text above a picture, in place of the step and the figures."""
        self.words = words

    def tally(self, text: str, colour: Colour, shape: str = "disc") -> None:
        """Append an event as a sign (disc, ring, square) to the line below a picture.

        Pages leave it out, since they show every step.
        """
        self.tallies.append((str(text), colour_code(colour), shape))

    def ground(self, pixels: Callable[[], NDArray[np.uint8]]) -> None:
        """The ground of the window, uint8 (h, w, 3) from `low` on; called when it is painted."""
        self.floor = pixels

    def camera(self, position: ArrayLike, look_at: ArrayLike, follow: str | None = None) -> None:
        """The view point of a scene of bodies; `follow` names bodies, the first of which stays in the middle."""
        self.view = {
            "position": _numbers("camera", "position", position, (3,)).tolist(),
            "look_at": _numbers("camera", "look_at", look_at, (3,)).tolist(),
            "follow": follow,
        }

    def _add(self, kind: str, name: str, **attributes: Any) -> None:
        _add_unique(
            self.marks, name, Part(kind, {key: value for key, value in attributes.items() if value is not None})
        )


def _add_unique(named: dict[str, Any], name: str, value: Any) -> None:
    if not isinstance(name, str):
        raise ConfigError(f"a name is a text, not {name!r}")
    if name in named:
        raise ConfigError(f"{name!r} is added twice")
    named[name] = value


def _numbers(name: str, key: str, given: ArrayLike, shape: tuple[int | None, ...]) -> NDArray[np.float64]:
    array = np.array(given, np.float64)
    if array.ndim != len(shape) or any(want not in (None, have) for have, want in zip(array.shape, shape, strict=True)):
        wanted = ", ".join("n" if want is None else str(want) for want in shape)
        raise ConfigError(f"mark {name!r}, {key}: the shape {array.shape} must be ({wanted})")
    if not np.isfinite(array).all():
        raise ConfigError(f"mark {name!r}, {key}: it has numbers that are not finite")
    return array


def _shape(name: str, given: str | Sequence[str], known: tuple[str, ...], n: int | None = None) -> str | list[str]:
    listed = [given] if isinstance(given, str) else list(given)
    for word in listed:
        if word not in known:
            raise ConfigError(f"mark {name!r}, shape: {word!r}{did_you_mean(str(word), known)}")
    if isinstance(given, str):
        return given
    if len(listed) != n:
        raise ConfigError(f"mark {name!r}, shape: {len(listed)} of them for {n}")
    return listed


def _attributes(name: str, n: int, **given: Any) -> dict[str, Any]:
    """Attributes of n things, one for all or one each; texts may be callables, see `resolve_texts`."""
    return {
        key: value if callable(value) else _parse_attribute(f"mark {name!r}, {key}", key, value, n)
        for key, value in given.items()
        if value is not None
    }


def _parse_attribute(place: str, key: str, value: Any, n: int) -> Any:
    if key in ("label", "text"):
        words = [str(word) for word in value]
        if len(words) != n:
            raise ConfigError(f"{place}: {len(words)} texts for {n}")
        return words
    if key == "colour":
        found: Any = colour_code(value) if isinstance(value, (str, int, np.integer)) else colours(value)
    else:
        found = np.array(value, DTYPES.get(key, np.float64))
    shape = np.shape(found)
    if key == "action" and (len(shape) not in (1, 2) or shape[-1] != n):
        raise ConfigError(f"{place}: the shape {shape} must be ({n},) or (k, {n})")
    if key != "action" and shape not in ((), (n,)):
        raise ConfigError(f"{place}: the shape {shape} must be ({n},)")
    return found


def resolve_texts(scene: Scene) -> None:
    """Call the texts that are callables and store their results."""
    for name, part in scene.marks.items():
        for key, words in part.attributes.items():
            if callable(words):
                n = len(part.attributes["xy" if part.kind == "points" else "pos"])
                part.attributes[key] = _parse_attribute(f"mark {name!r}, {key}", key, words(), n)


def equal(now: Any, then: Any) -> bool:
    """Whether two values of an attribute are equal."""
    return now is then or bool(np.array_equal(now, then) if isinstance(now, np.ndarray) else now == then)


def texts_of_actions(scene: Scene) -> dict[int, str]:
    """Texts of points and bodies by the actions that lead to them, as indices in the flat mask.

    The scene's texts must have been resolved.
    """
    found: dict[int, str] = {}
    for part in scene.marks.values():
        action, text = (part.attributes.get(key) for key in ("action", "text"))
        if action is not None and text is not None:
            for line in np.atleast_2d(action).tolist():
                for index, words in zip(line, text, strict=True):
                    found.setdefault(index, words)
    return found


# -- an episode in time -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Style:
    """How a kind of bar or mark is drawn, and its name in the legend."""

    words: str
    colour: Colour
    hatched: bool = False

    def __post_init__(self) -> None:
        colour_code(self.colour)  # raises ConfigError for an unknown colour


@dataclass(frozen=True)
class Bar:
    """An activity with a duration in a lane; `at` is the frame from which it is known, None: from the first."""

    lane: str
    kind: str
    t0: float
    t1: float
    label: str = ""
    at: int | None = None


@dataclass(frozen=True)
class Mark:
    """An event without duration."""

    lane: str
    kind: str
    t: float
    label: str = ""
    at: int | None = None


@dataclass(frozen=True)
class Window:
    """The time window of a customer, and the arrival there; `arrival` is None where it was never served."""

    name: str
    opens: float
    closes: float
    arrival: float | None = None
    by: str = ""

    @property
    def late(self) -> float:
        return 0.0 if self.arrival is None else max(0.0, self.arrival - self.closes)


@dataclass(frozen=True, eq=False)
class Heat:
    """A table of shares 0..1, `values` (rows, columns); column k is known from frame `at[k]` on."""

    title: str
    values: Array
    at: Sequence[int]


@dataclass(frozen=True, eq=False)
class Chart:
    """The activities of agents over time, in lanes from top to bottom.

    `clock` is the chart's time at each frame, if it never decreases; `kinds` holds the style of each kind of bar and
    mark.
    """

    lanes: tuple[str, ...]
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...] = ()
    windows: tuple[Window, ...] = ()
    heat: Heat | None = None
    unit: str = "step"
    clock: Array | None = None
    kinds: Mapping[str, Style] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for group, items in (("bar", self.bars), ("mark", self.marks)):
            for one in items:
                if one.lane not in self.lanes:
                    raise ConfigError(f"{one!r} is in the lane {one.lane!r}: the lanes are {_listed(self.lanes)}")
                if one.kind not in self.kinds:
                    raise ConfigError(
                        f"{one!r} is a {group} of the kind {one.kind!r}, which has no style in `kinds`: it has "
                        f"{_listed(self.kinds)}"
                    )

    @property
    def end(self) -> float:
        """The time of the last bar or mark."""
        return max([bar.t1 for bar in self.bars] + [mark.t for mark in self.marks], default=0.0)


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
