"""The parts of the pages that come from declarations: tables of worlds, fields, options and presets, and a picture.

Each such part stands between two comments, `<!-- fields milkrun/TSP-v0 -->` and `<!-- end -->`, and is written by

    python -m tests.docs.generated

Do not edit it by hand: `test_docs.py` fails when a page differs from the code.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import milkrun
from milkrun.core.fields import table_markdown
from milkrun.render.canvas import Canvas
from milkrun.solvers import nearest, policies_for, rollout

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PICTURE = ROOT / "docs" / "first-rollout.png"

MOST_PRESETS = 12  # in the table of worlds

_PART = re.compile(r"(<!-- (worlds|fields|options|presets)(?: (\S+))?(?: (\S+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(page: str) -> str:
    """A page with every generated part as the code says it now."""
    return _PART.sub(lambda m: f"{m[1]}\n{_MAKERS[m[2]](*filter(None, [m[3], m[4]]))}\n{m[5]}", page)


def worlds() -> str:
    """Every registered world in a line."""
    lines = ["| id | problem | action, by default | policies | presets |", "|---|---|---|---|---|"]
    for id in milkrun.list_worlds():
        spec = milkrun.world_spec(id)
        policies = ", ".join(policies_for(id))
        presets = list(spec.presets)
        if len(presets) > MOST_PRESETS:
            presets = [*presets[:3], f"and {len(presets) - 3} more"]
        lines.append(f"| `{id}` | {spec.title} | {_action(spec.load())} | {policies} | {', '.join(presets)} |")
    return "\n".join(lines) + "\n"


def fields(world_id: str, preset: str | None = None) -> str:
    """The field table of a world under a preset, as `milkrun.core.fields` writes it."""
    cls = milkrun.world_spec(world_id).load()
    return table_markdown(cls.variant(cls.Config.build(preset)).fields)


def options(world_id: str) -> str:
    """Options, defaults, what is allowed, what they mean."""
    config = milkrun.world_spec(world_id).load().Config
    lines = ["| option | default | allowed | meaning |", "|---|---|---|---|"]
    for f in dataclasses.fields(config):
        lines.append(f"| `{f.name}` | {_code(f.default)} | {_allowed(f)} | {f.metadata['doc']} |")
    return "\n".join(lines) + "\n"


def presets(world_id: str) -> str:
    """What each preset sets."""
    config = milkrun.world_spec(world_id).load().Config
    lines = ["| preset | sets |", "|---|---|"]
    for name, values in config.presets.items():
        lines.append(f"| `{name}` | {', '.join(f'`{key}={value!r}`' for key, value in values.items())} |")
    return "\n".join(lines) + "\n"


def picture() -> Canvas:
    """What `first-rollout.md` shows: row 0 of seed 7 after nearest neighbour."""
    world = milkrun.make("milkrun/CVRP-v0", num_envs=1, seed=7, num_loc=20, autoreset="disabled")
    world.reset()
    rollout(world, nearest)
    canvas = Canvas()
    world.draw(0, canvas)
    return canvas


def _action(cls: Any) -> str:
    """Its Gymnasium space by default."""
    sizes = cls.size_of(cls.Config())
    choices, shape = cls.action.nvec(sizes), cls.action.shape(sizes)
    return {
        "discrete": f"`Discrete({choices[0] if choices else 0})`",
        "multi": f"`MultiDiscrete({choices})`",
        "box": f"`Box(-1, 1, {shape})`",
    }[cls.action.kind]


def _allowed(option: dataclasses.Field[Any]) -> str:
    meta = option.metadata
    words = [f"`{word}`" for word in (*meta["choices"], *meta["words"])]
    kinds = [kind for kind in str(option.type).split(" | ") if kind != "str" or not words]
    kinds = [kind.partition("[")[0].replace("Callable", "function") for kind in kinds]
    low, high = meta["low"], meta["high"]
    if low is not None and high is not None:
        kinds[0] += f" {low}..{high}"
    elif low is not None:
        kinds[0] += f" ≥ {low}"
    return ", ".join([*words, *kinds])


def _code(value: Any) -> str:
    return f"`{value!r}`"


_MAKERS = {"worlds": worlds, "fields": fields, "options": options, "presets": presets}


def main() -> None:
    for page in PAGES:
        page.write_text(fill(page.read_text()))
    picture().to_png(PICTURE)


if __name__ == "__main__":
    main()
