"""An episode as a value that can be saved, sent and shown: the format `milkrun-episode`, version 1.

docs/replay.md defines the format; a change of meaning raises the version. Files are validated when read, so every
`Episode` can be shown.
"""

from __future__ import annotations

import base64
import importlib
import io
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from milkrun.core.arguments import check_count
from milkrun.core.errors import FormatError, UnknownName, missing_extra, shown
from milkrun.core.files import read_bytes, write_bytes
from milkrun.render.recorder import Recording
from milkrun.render.scene import Chart, colour_code, equal
from milkrun.replay.columns import decode, number, pack, ragged, unragged

FORMAT, VERSION = "milkrun-episode", 1
RESOLUTION = 32768  # steps of coordinates across the window
PRECISION = {"pos": 1e-4, "quat": 1 / 4096, "size": 1e-3, "level": 1e-3, "gauge": 1e-3}
QUALITY, MOST_IMAGES = 80, 300  # of images; in an episode
KEYS: dict[type, tuple[str, ...]] = {
    str: ("world", "title", "policy", "instance", "end"),
    int: ("seed", "row", "episode", "steps", "frames"),
    dict: ("config", "action", "reward", "illegal", "series", "gauges"),
    list: ("agents", "names", "window", "legend", "marks", "illegal_reasons"),
}
"""Required keys of an episode, by type."""
COLUMNS = ("action", "reward", "illegal", "mask", "scores")
HEADER = ("world", "title", "policy", "config", "seed", "row", "episode", "instance")


@dataclass(frozen=True, eq=True)
class Episode:
    """One episode of a policy: a validated JSON object of the format, with accessors for its main parts."""

    data: dict[str, Any]

    @property
    def world(self) -> str:
        return str(self.data["world"])

    @property
    def policy(self) -> str:
        return str(self.data["policy"])

    @property
    def steps(self) -> int:
        return int(self.data["steps"])

    @property
    def frames(self) -> int:
        return int(self.data["frames"])

    @property
    def objective(self) -> float:
        value = self.data["objective"]
        return math.nan if value is None else float(value)

    @property
    def instance(self) -> str:
        return str(self.data["instance"])

    def column(self, key: str) -> np.ndarray:
        """A column by its key: action, reward, illegal, mask, scores."""
        columns = [name for name in COLUMNS if name in self.data]
        if key not in columns:
            raise UnknownName(f"the episode has no column {shown(key)}; it has {', '.join(columns)}")
        return decode(self.data[key], key)

    def figure(self, name: str) -> np.ndarray:
        """A series in time, (T + 1,)."""
        if name not in self.data["series"]:
            raise UnknownName(f"the episode has no figure {shown(name)}; it has {', '.join(self.data['series'])}")
        return decode(self.data["series"][name], f"series {name!r}")

    def why(self, step: int, index: int) -> str:
        """Why an action of the flat mask was masked before a step; empty if it was allowed or not recorded."""
        why = self.data.get("why")
        if not why:
            return ""
        texts = decode(why["index"], "why")
        step = check_count("step", step, 0, len(texts) - 1)
        return str(why["texts"][int(texts[step, check_count("index", index, 0, texts.shape[1] - 1)])])

    def mark(self, name: str, attribute: str, frame: int) -> Any:
        """The value of a mark's attribute at a frame."""
        marks = {mark["name"]: mark for mark in self.data["marks"]}
        if name not in marks:
            raise UnknownName(f"the episode has no mark {shown(name)}; it has {', '.join(marks)}")
        if attribute not in marks[name]:
            raise UnknownName(f"the mark {name!r} has no {shown(attribute)}; it has {', '.join(marks[name])}")
        frame = check_count("frame", frame, 0, self.frames)
        return at_frame(marks[name][attribute], frame, self.frames, f"{name}.{attribute}")

    @classmethod
    def of(cls, recording: Recording) -> Episode:
        """The episode of a recording."""
        return cls(_content(recording))

    def to_json(self) -> str:
        return json.dumps(self.data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, name: str = "episode") -> Episode:
        """Read the text of `to_json`; raises FormatError, which names the invalid key."""
        if not isinstance(text, (str, bytes)):
            raise FormatError(f"{name}: JSON is a text, not a {type(text).__name__}")
        try:
            data = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, UnicodeDecodeError, RecursionError) as error:
            raise FormatError(f"{name}: not JSON: {error}") from None
        try:
            check(data, name)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise FormatError(f"{name}: a part is missing or of another type: {error!r}") from None
        return cls(data)

    def save(self, path: str | os.PathLike[str]) -> None:
        write_bytes(path, self.to_json().encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Episode:
        return cls.from_json(read_bytes(path), Path(path).name)


# -- writing ----------------------------------------------------------------------------------------------------------


def _content(r: Recording) -> dict[str, Any]:
    """The JSON object, keys in the order of the format; empty optional parts are omitted."""
    first, moments, every = r.scenes[0], [r.scenes[frame] for frame in (0, *r.ends)], -(-len(r.scenes) // MOST_IMAGES)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "milkrun": importlib.import_module("milkrun").__version__,
        **{key: _plain(r.header[key]) for key in HEADER},
        "steps": r.steps,
        "frames": r.frames,
        "ends": pack(np.array(r.ends, np.int64), delta=True) if r.frames != r.steps else None,
        "fps": r.header["fps"],
        "is_cost": r.header["is_cost"] or None,
        "end": r.end,
        "objective": number(r.objectives[-1]),
        "action": pack(np.array(r.actions)),
        "reward": pack(np.array(r.rewards)),
        "illegal": pack(np.array(r.illegal, np.uint8)),
        "agents": r.header["agents"],
        "names": r.header["names"],
        "mask": pack(np.stack(r.masks), delta=True) if r.masks else None,
        "why": None if r.mask_reasons is None else _why(r.mask_reasons),
        "illegal_reasons": [list(reason) for reason in r.illegal_reasons],
        "scores": pack(np.stack(r.scores).astype(np.float32)) if r.scores else None,
        "window": [*first.low.tolist(), *first.high.tolist()],
        "camera": first.view,
        "legend": [list(entry) for entry in first.legends],
        "marks": [_mark(r, name) for name in first.marks],
        "series": {
            "return": pack(np.array(r.objectives)),
            **{name: pack(np.array([s.figures[name] for s in moments])) for name in first.figures},
        },
        "gauges": {name: pack(np.array([s.gauges[name] for s in moments])) for name in first.gauges},
        "chart": None if r.chart is None else _chart(r.chart, r.frames),
        "images": [
            {"name": name, "every": every, "frames": [_webp(s.images[name]) for s in r.scenes[::every]]}
            for name in first.images
        ]
        or None,
    }
    return {key: value for key, value in content.items() if value is not None or key in ("fps", "objective")}


def _why(whys: list[list[str]]) -> dict[str, Any]:
    where = _numbered(["", *(text for line in whys for text in line)])
    index = np.array([[where[text] for text in line] for line in whys], np.int64)
    return {"texts": list(where), "index": pack(index, delta=True)}


def _numbered(texts: list[str]) -> dict[str, int]:
    """Distinct texts with their indices, in order of appearance."""
    return {text: k for k, text in enumerate(dict.fromkeys(texts))}


def _mark(r: Recording, name: str) -> dict[str, Any]:
    first, part = r.scenes[0], r.scenes[0].marks[name]
    # In a window without extent all marks lie on one point: any step but 0 works.
    step = float((first.high - first.low).max()) / RESOLUTION or 1.0
    values = {key: [scene.marks[name].attributes[key] for scene in r.scenes] for key in part.attributes}
    return {
        "name": name,
        "kind": part.kind,
        **{key: _in_time(key, over_time, step) for key, over_time in values.items()},
    }


def _in_time(key: str, values: list[Any], step: float) -> Any:
    """An attribute: a constant if it never changes, else with time as first axis."""
    if key == "stops":
        return ragged([value.tolist() for value in values])
    if key == "quat":
        values = _continuous(values)
    first, words = values[0], isinstance(values[0], (str, list))
    scale = step if key in ("xy", "start", "end") else PRECISION.get(key)
    if all(equal(value, first) for value in values):
        if words:
            return first
        return {"const": pack(first, scale=scale)} if np.ndim(first) else np.asarray(first).item()
    if words:
        texts = [json.dumps(value) for value in values]
        where = _numbered(texts)
        return {
            "time": True,
            "texts": [json.loads(text) for text in where],
            "index": pack(np.array([where[text] for text in texts], np.int64), delta=True),
        }
    return {"time": True, **pack(np.stack([np.asarray(value) for value in values]), True, scale)}


def _continuous(quats: list[np.ndarray]) -> list[np.ndarray]:
    """A quaternion and its negative are the same rotation: choose the sign nearer to the frame before."""
    found = quats[:1]
    for q in quats[1:]:
        against = (q * found[-1]).sum(axis=1, keepdims=True) < 0
        found.append(np.where(against, -q, q) if against.any() else q)
    return found


def _chart(chart: Chart, frames: int) -> dict[str, Any]:
    lane = {name: k for k, name in enumerate(chart.lanes)}
    packed: dict[str, Any] = {"lanes": list(chart.lanes), "unit": chart.unit}
    if chart.clock is not None and len(chart.clock) == frames + 1 and (np.diff(chart.clock) >= 0).all():
        packed["clock"] = pack(np.asarray(chart.clock, np.float64))
    packed["kinds"] = {
        kind: {"words": style.words, "colour": colour_code(style.colour), "hatched": style.hatched}
        for kind, style in chart.kinds.items()
    }
    packed["bars"] = [[lane[b.lane], b.kind, number(b.t0), number(b.t1), b.label, b.at or 0] for b in chart.bars]
    packed["marks"] = [[lane[m.lane], m.kind, number(m.t), m.label, m.at or 0] for m in chart.marks]
    packed["windows"] = [
        [w.name, number(w.opens), number(w.closes), None if w.arrival is None else number(w.arrival), w.by]
        for w in chart.windows
    ]
    if chart.heat is not None:
        values = np.asarray(chart.heat.values, np.float32)
        packed["heat"] = {"title": chart.heat.title, "values": pack(values), "at": [int(f) for f in chart.heat.at]}
    return packed


def _webp(pixels: np.ndarray) -> str:
    try:
        from PIL import Image
    except ImportError as error:
        raise missing_extra("Pillow", "cli") from error
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "WEBP", quality=QUALITY, method=4)
    return base64.b64encode(file.getvalue()).decode()


def _plain(value: Any) -> Any:
    """An option of a configuration as a JSON value."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, float):
        return number(value)
    return value if value is None or isinstance(value, (bool, int, str)) else getattr(value, "__name__", shown(value))


# -- reading ----------------------------------------------------------------------------------------------------------


def at_frame(attribute: Any, frame: int, frames: int, place: str) -> Any:
    """An attribute at a frame: an array, number, text or list. Raises FormatError unless it covers all frames."""
    if not isinstance(attribute, dict):
        return attribute
    if "const" in attribute:
        return decode(attribute["const"], place)
    if attribute.get("ragged"):
        lists = unragged(attribute, place)
        if len(lists) != frames + 1:
            raise FormatError(f"{place}: {len(lists)} frames instead of {frames + 1}")
        return lists[frame]
    if "texts" in attribute:
        index = _column(place, attribute["index"], (frames + 1,), len(attribute["texts"]))
        return attribute["texts"][int(index[frame])]
    return _column(place, attribute, (frames + 1,))[frame]


def check(data: Any, name: str) -> None:
    """Raise FormatError unless `data` follows the format; a missing part may raise KeyError or similar."""

    def refuse(key: str, found: Any) -> None:
        raise FormatError(f"{name}: {key}: {found}")

    def column(key: str, value: Any, *shape: int | None, most: float = math.inf) -> np.ndarray:
        return _column(f"{name}: {key}", value, shape, most)

    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else f"a {type(data).__name__}"
        refuse("format", f"must be {FORMAT!r}, not {shown(found)}")
    if data.get("version") != VERSION:
        refuse("version", f"this reads version {VERSION}, not {shown(data.get('version'))}")
    for kind, keys in KEYS.items():
        for key in keys:
            if type(data.get(key)) is not kind:
                refuse(key, f"must be a {kind.__name__}, not {shown(data.get(key))}")
    if type(data.get("objective")) not in (int, float, type(None)):
        refuse("objective", f"must be a number or null, not {shown(data['objective'])}")
    if not isinstance(data.get("is_cost", False), bool):
        refuse("is_cost", f"must be true or false, not {shown(data['is_cost'])}")
    steps, frames = data["steps"], data["frames"]
    if not 0 <= steps <= frames:
        refuse("steps", f"{steps} steps in {frames} frames")
    for key in ("action", "reward", "illegal", "scores"):
        if key in data:
            column(key, data[key], steps)
    if "ends" in data:
        ends = column("ends", data["ends"], steps, most=frames + 1)
        if steps and ((np.diff(ends, prepend=0) < 0).any() or ends[-1] != frames):
            refuse("ends", f"they must rise to {frames}")
    elif steps != frames:
        refuse("ends", f"is missing for {steps} steps in {frames} frames")
    actions = column("mask", data["mask"], steps + 1, None).shape[1] if "mask" in data else 0
    if "why" in data:
        column("why", data["why"]["index"], steps + 1, actions, most=len(data["why"]["texts"]))
    for reason in data["illegal_reasons"]:
        if not (isinstance(reason, list) and len(reason) == 3) or not 0 <= reason[0] < steps:
            refuse("illegal_reasons", f"{shown(reason)} in an episode of {steps} steps")
    for group in ("series", "gauges"):
        for key, value in data[group].items():
            column(f"{group} {key!r}", value, steps + 1)
    for mark in data["marks"]:
        if not isinstance(mark, dict) or not isinstance(mark.get("name"), str) or not isinstance(mark.get("kind"), str):
            refuse("marks", f"{shown(mark)} has no name or no kind")
        for key, value in mark.items():
            at_frame(value, 0, frames, f"{name}: mark {mark['name']!r}, {key}")
    if "chart" in data:
        chart, lanes = data["chart"], len(data["chart"]["lanes"])
        for bar in (*chart["bars"], *chart["marks"]):
            if not 0 <= bar[0] < lanes:
                refuse("chart", f"lane {bar[0]} of {lanes}")
        if "clock" in chart:
            if column("chart, clock", chart["clock"], frames + 1).ndim != 1:
                refuse("chart, clock", f"must have {frames + 1} numbers")
        if "heat" in chart:
            column("chart, heat", chart["heat"]["values"])


def _column(place: str, value: Any, shape: Sequence[int | None], most: float = math.inf) -> np.ndarray:
    """A column, validated: its shape begins with `shape`, and its numbers are below `most`."""
    found = decode(value, place)
    if found.ndim < len(shape) or any(n not in (None, m) for m, n in zip(found.shape, shape, strict=False)):
        raise FormatError(f"{place}: the shape {found.shape} must begin with {tuple(shape)}")
    if found.size and most < math.inf and not (0 <= found.min() and found.max() < most):
        raise FormatError(f"{place}: {found.min()}..{found.max()} is not within 0..{most - 1:g}")
    return found


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not valid JSON")
