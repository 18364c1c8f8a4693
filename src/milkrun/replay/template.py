"""Builds a self-contained HTML file from a template, scripts and data; it loads nothing from the network.

Safe against injection by its data: a content security policy lists the hash of every script and style, and data is
escaped inside its element. The template is filled in one pass, so filled-in text is not searched for placeholders.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from milkrun.core.errors import ConfigError
from milkrun.core.files import name_of, replace_file

UPLOT, THREE = "vendor/uPlot.iife.min.js", "vendor/three.iife.min.js"


def asset(name: str) -> str:
    """The text of an asset file."""
    return resources.files("milkrun.replay").joinpath("assets", *name.split("/")).read_text(encoding="utf-8")


def script_json(value: Any) -> str:
    """JSON for a script element: no text in it can end the element or begin a comment."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def whole_page(
    body: str,
    title: str,
    data: str,
    own: Sequence[str],
    libraries: Sequence[str],
    styles: Sequence[str] = ("page.css",),
) -> str:
    """The page with its scripts: `language.js`, each library, then all `own` scripts in one strict function scope."""
    joined = "\n".join(asset(name) for name in own)
    before = [asset(name) for name in ("language.js", *libraries)]
    scripts = [*before, f'(() => {{\n"use strict";\n{joined}\n}})();\n']
    style = "\n".join(asset(name) for name in styles)
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(title),
        "style": style,
        "body": asset(body).rstrip(),
        "data": data,
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    # By a function: `re.sub` would interpret backslashes in a replacement text.
    return re.sub("@([a-z]+)@", lambda place: parts[place[1]], asset("frame.html"))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def write_whole(path: str | os.PathLike[str], text: str) -> Path:
    """Writes a page atomically."""
    place = Path(name_of(path))
    try:
        replace_file(place, text.encode())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{place}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
    return place
