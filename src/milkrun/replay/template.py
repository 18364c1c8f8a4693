"""One HTML file of a template, scripts and data, safe against its own data, that loads nothing from anywhere.

Every script and style is named to the browser by its hash, data stands in an element that it cannot leave, and the
template is filled in one pass: what was filled in is not searched for places again.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from milkrun.core.errors import ConfigError
from milkrun.core.files import name_of

UPLOT, THREE = "vendor/uPlot.iife.min.js", "vendor/three.iife.min.js"


def asset(name: str) -> str:
    """A file of the page's own, as text."""
    return resources.files("milkrun.replay").joinpath("assets", *name.split("/")).read_text(encoding="utf-8")


def script_json(value: Any) -> str:
    """JSON that may stand in a script element: no text in it can end the element or begin a comment."""
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
    """The page: `own` scripts share one strict function scope, each library is a script of its own before them, and
    before these what they need of the browser."""
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
    # By a function: what it gives is taken as it is, while a text would have its backslashes read.
    return re.sub("@([a-z]+)@", lambda place: parts[place[1]], asset("frame.html"))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def write_whole(path: str | os.PathLike[str], text: str) -> Path:
    """Write a file beside its place and rename it: there is the old file or the new one, never a half."""
    place = Path(name_of(path))
    draft = ""
    try:
        with tempfile.NamedTemporaryFile("wb", dir=place.parent, prefix=f".{place.name}.", delete=False) as file:
            draft = file.name
            file.write(text.encode())
        os.chmod(draft, 0o666 & ~_umask())
        os.replace(draft, place)
    except (OSError, ValueError) as error:
        if draft:
            Path(draft).unlink(missing_ok=True)
        raise ConfigError(f"{place}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
    return place


def _umask() -> int:
    """What new files may not be; it can only be asked by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
