"""Report pages: the results of a demo, evaluations, benchmarks and training runs in a folder, as one HTML file.

It reads `summary.json` of the demo (a card per world), `*_eval.json` of `milkrun eval` and files of `bench` (tables),
and `*.jsonl` of training. These have a JSON object per line with `step`, numeric metrics and optional `seconds`; the
first line may be {"run": name, ...}. A metric `m` is drawn with a band if `m_low` and `m_high` exist. The page lists
unusable files with the reason.

The page holds {"format": "milkrun-report", "version": 1, "title", "cards", "tables": [{"title", "columns", "rows",
"best", "notes"}], "curves": [{"title", "x", "lines": [{"name", "x", "y", "low", "high", "seconds"}]}], "ignored":
[[file, reason]]}. `best` maps columns to the better direction, "high" or "low"; lines hold columns as in episodes.
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError
from milkrun.core.files import file_name, name_of
from milkrun.core.registry import list_worlds, world_spec
from milkrun.replay.columns import pack
from milkrun.replay.template import UPLOT, script_json, whole_page, write_whole

SCRIPTS = ("words.js", "data.js", "theme.js", "report.js")
STYLES = ("page.css", "report.css")
PAGE = re.compile(r"[A-Za-z0-9_.-]+\.html", re.ASCII)
WIDTH = 320  # pixels of a thumbnail
MOST_BYTES = 16 * 2**20

Read = dict[str, Any]


class Unusable(Exception):
    """A file cannot be shown; the message is the reason."""


def write_report(folder: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Write the report of a folder without its subfolders, by default as its `index.html`."""
    place = Path(name_of(folder))
    if not place.is_dir():
        raise ConfigError(f"{place}: there is no such folder")
    content = read_folder(place)
    data = script_json(content)
    if len(data) > MOST_BYTES:
        size = f"{len(data) / 2**20:.1f} MB, above {MOST_BYTES // 2**20}"
        raise ConfigError(f"the data of the report has {size}: move some .jsonl files out of the folder")
    page = whole_page("report.html", content["title"], data, SCRIPTS, [UPLOT], STYLES)
    return write_whole(place / "index.html" if path is None else path, page)


def read_folder(folder: Path) -> Read:
    """The content of a folder's report."""
    cards: list[Read] = []
    tables: list[Read] = []
    runs: list[Read] = []
    ignored: list[list[str]] = []
    for file in sorted(path for path in folder.iterdir() if path.suffix in (".json", ".jsonl") and path.is_file()):
        try:
            if file.suffix == ".jsonl":
                runs.append(_run(file))
            elif file.name == "summary.json":
                cards += _cards(_json(file), folder)
            else:
                tables.append(_table(_json(file), file.name))
        except Unusable as reason:
            ignored.append([file.name, str(reason)])
    title = f"Report of {folder.resolve().name or folder}"
    return {
        "format": "milkrun-report",
        "version": 1,
        "title": title,
        "cards": cards,
        "tables": tables,
        "curves": _curves(runs),
        "ignored": ignored,
    }


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Unusable(f"cannot be read as JSON: {error}") from None


# -- cards ------------------------------------------------------------------------------------------------------------


def _cards(summary: Any, folder: Path) -> list[Read]:
    if not isinstance(summary, dict) or not all(isinstance(world, dict) for world in summary.values()):
        raise Unusable("it is no summary of the demo: it has no worlds")
    return [_card(id, world, folder) for id, world in summary.items()]


def _card(id: str, world: Read, folder: Path) -> Read:
    stem, title = file_name(id.removeprefix("milkrun/")), world_spec(id).title if id in list_worlds() else ""
    if reason := world.get("skipped") or world.get("failed"):
        return {"world": id, "title": title, "said": f"{'skipped' if 'skipped' in world else 'failed'}: {reason}"}
    policies = world.get("policies")
    if not isinstance(policies, dict) or not all(isinstance(p, dict) and "mean" in p for p in policies.values()):
        raise Unusable(f"it is no summary of the demo: {id} has no policies with a mean")
    best: Read = max(policies.values(), key=_mean_or_least, default={})
    return {
        "world": id,
        "title": title,
        "speed": _finite(world.get("steps_per_second")),
        "rows": _finite(world.get("rows")),
        "policies": [
            {
                "name": name,
                "mean": _finite(p["mean"]),
                "low": _finite(p.get("interval_low")),
                "high": _finite(p.get("interval_high")),
            }
            for name, p in policies.items()
        ],
        "picture": _thumbnail(folder, best.get("picture")),
        "page": _link(folder, world.get("page") or f"{stem}_replay.html"),
    }


def _link(folder: Path, name: Any) -> str | None:
    """The name if it is an existing page of the same folder, else None."""
    return name if isinstance(name, str) and PAGE.fullmatch(name) and (folder / name).is_file() else None


def _thumbnail(folder: Path, name: Any) -> str | None:
    """A small copy of a picture of the folder as a data URL; None without the picture or Pillow."""
    if not isinstance(name, str) or Path(name).name != name or not (folder / name).is_file():
        return None
    try:
        from PIL import Image
    except ImportError:
        return None
    try:
        with Image.open(folder / name) as picture:
            small = picture.convert("RGB")
            small.thumbnail((WIDTH, WIDTH))
            file = io.BytesIO()
            small.save(file, "WEBP", quality=80)
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"


# -- tables -----------------------------------------------------------------------------------------------------------

EVALUATION = {
    "policy": "policy",
    "mean": "mean return",
    "interval_low": "95 % from",
    "interval_high": "to",
    "gap": "gap to best",
    "best_share": "best on (share)",
    "mean_length": "mean steps",
    "seconds": "seconds",
}


def _table(content: Any, name: str) -> Read:
    if isinstance(content, dict) and isinstance(content.get("policies"), list) and "instances" in content:
        rows = _rows(content["policies"])
        keys = [key for key in EVALUATION if any(key in row for row in rows)]
        best = {"mean": "high", "gap": "low", "best_share": "high", "seconds": "low"}
        return {
            "title": f"{content.get('world', name)}, {content['instances']} instances, seed {content.get('seed')}",
            "columns": [EVALUATION[key] for key in keys],
            "rows": _cells(rows, keys),
            "best": {EVALUATION[key]: way for key, way in best.items() if key in keys},
            "notes": [],
        }
    if isinstance(content, dict) and isinstance(content.get("rows"), list) and isinstance(content.get("title"), str):
        rows = _rows(content["rows"])
        keys = list(dict.fromkeys(key for row in rows for key in row))
        groups = [part for part in (content.get("notes"), content.get("machine")) if isinstance(part, dict)]
        notes = [f"{key}: {value}" for part in groups for key, value in part.items()]
        return {"title": content["title"], "columns": keys, "rows": _cells(rows, keys), "best": {}, "notes": notes}
    if isinstance(content, dict) and content.get("format") == "milkrun-episode":
        raise Unusable("it is an episode: milkrun replay makes a page of it")
    raise Unusable("it is neither a summary of the demo, an evaluation, nor a table of bench")


def _rows(given: list[Any]) -> list[Read]:
    if not given or not all(isinstance(row, dict) for row in given):
        raise Unusable("its table has no rows")
    return given


def _cells(rows: list[Read], keys: list[str]) -> list[list[float | str | None]]:
    return [[_cell(row.get(key)) for key in keys] for row in rows]


def _cell(value: Any) -> float | str | None:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _mean_or_least(policy: Read) -> float:
    mean = _finite(policy["mean"])
    return -math.inf if mean is None else mean


def _finite(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


# -- curves -----------------------------------------------------------------------------------------------------------


def _run(file: Path) -> Read:
    """A training run: its name, and its points with the metrics of each step."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise Unusable(f"cannot be read: {error.strerror}") from None
    lines = [line for line in lines if line.strip()]
    name, points = file.stem, []
    for k, line in enumerate(lines):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            if k == len(lines) - 1:  # a running training is writing its last line
                break
            raise Unusable(f"line {k + 1} is not JSON") from None
        if not isinstance(entry, dict):
            raise Unusable(f"line {k + 1} is no object")
        if k == 0 and "run" in entry and "step" not in entry:
            name = str(entry["run"])
        elif _finite(entry.get("step")) is None:
            raise Unusable(f"line {k + 1} has no step")
        else:
            points.append(entry)
    if not points:
        raise Unusable("it has no line with a step")
    return {"name": name, "points": points}


def _curves(runs: list[Read]) -> list[Read]:
    """A chart per metric, with a line per run that has it."""
    lines: dict[str, list[Read]] = {}
    for run in runs:
        points = run["points"]
        keys = dict.fromkeys(k for point in points for k, v in point.items() if isinstance(v, (int, float)))
        bands = {key for key in keys for m in keys if key in (f"{m}_low", f"{m}_high")}
        for metric in [key for key in keys if key not in ("step", "seconds") and key not in bands]:
            held = [point for point in points if metric in point]

            def column(key: str, held: list[Read] = held) -> Read | None:
                values = np.array([math.nan if (v := _finite(p.get(key))) is None else v for p in held])
                return None if np.isnan(values).all() else pack(values)

            if (y := column(metric)) is not None:
                line = {
                    "name": run["name"],
                    "x": column("step"),
                    "y": y,
                    "low": column(f"{metric}_low"),
                    "high": column(f"{metric}_high"),
                    "seconds": column("seconds"),
                }
                lines.setdefault(metric, []).append(line)
    return [{"title": metric, "x": "step", "lines": found} for metric, found in lines.items()]
