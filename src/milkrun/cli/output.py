"""Shared by the commands: common options, tables, the values of `--set`, files."""

from __future__ import annotations

import json
import math
import numbers
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from milkrun.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH = 120  # columns where the output is no terminal

ID = typer.Argument(..., metavar="ID", help="A world, e.g. milkrun/CVRP-v0, CVRP-v0 or cvrp.", show_default=False)
PRESET = typer.Option(None, "--preset", help="A named configuration; `milkrun info ID` lists them.", show_default=False)
SETTINGS = typer.Option([], "--set", metavar="KEY=VALUE", help="An option of the configuration; may be repeated.")
ROWS = typer.Option(
    None, "--num-envs", min=1, show_default="512, fewer of slow worlds", help="Rows: worlds played at once."
)
SEED = typer.Option(0, "--seed", min=0, help="Seed of the worlds and of the policy.")

ON = typer.Option(None, "--on", metavar="ray", help="Where to run: ray (default: in this process).", show_default=False)
ADDRESS = typer.Option(
    None,
    "--address",
    metavar="HOST:PORT",
    show_default=False,
    help="With --on ray: a running cluster, or auto (default: start a Ray).",
)
KEEP = typer.Option(
    None,
    "--keep",
    metavar="DIR",
    show_default=False,
    help="With --on ray: a folder for finished shards; the same command continues there.",
)

_WORDS = {"none": None, "null": None, "true": True, "false": False}


def console(*, stderr: bool = False) -> Console:
    """A console: colours on a terminal, plain text of a fixed width elsewhere."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False)
    # Left alone, rich takes 80 columns where there is no terminal, and folds the tables.
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made = Console(stderr=stderr, highlight=False, width=WIDTH)
    return made


def table(title: str, *columns: str, right: tuple[str, ...] = ()) -> Table:
    """An empty table; the columns named in `right` hold numbers."""
    from rich import box
    from rich.table import Table

    made = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False)
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return made


def text(value: object) -> str:
    """Escapes a value for a table cell."""
    from rich.markup import escape

    return escape(str(value))


def read_settings(pairs: list[str]) -> dict[str, Any]:
    """Parses KEY=VALUE pairs: numbers, true, false, none and comma-separated numbers; all else is text."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {pair!r}: must read KEY=VALUE")
        settings[key.strip()] = read_value(value.strip())
    return settings


def read_value(value: str) -> Any:
    if value.lower() in _WORDS:
        return _WORDS[value.lower()]
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    if "," in value:
        several = tuple(read_value(part.strip()) for part in value.strip("()[]").split(","))
        if all(isinstance(part, (int, float)) for part in several):
            return several
    return value


@dataclass
class Timing:
    """The seconds of a method, without those of compiling it once."""

    seconds: float = 0.0
    compiling: float = 0.0

    def figures(self) -> dict[str, float]:
        return {"seconds": self.seconds, "compile_seconds": self.compiling}

    def show(self, rows: Table, method: str) -> None:
        rows.add_row("method", f"{method}, {self.seconds:.2f} s")
        if self.compiling >= 0.01:
            rows.add_row("compiling, once", f"{self.compiling:.2f} s")


@contextmanager
def timed(title: str) -> Iterator[Timing]:
    """Measures a block. Shows the title meanwhile, or "compiling" while the compiler works."""
    from milkrun.core.clock import Clock, listening

    timing = Timing()
    status = console(stderr=True).status(text(title))
    with status, listening(lambda busy: status.update("compiling" if busy else text(title))):
        clock = Clock()
        yield timing
        timing.seconds = clock.seconds
        timing.compiling = clock.compiling


def on_ray(on: str | None, **others: Any) -> bool:
    """Whether the job runs on Ray. Without `--on ray`, options that need it are refused."""
    if on not in (None, "ray"):
        raise ConfigError(f"--on {on}: must be ray, or left out")
    if on is None and (given := [name for name, value in others.items() if value is not None]):
        raise ConfigError(f"--{given[0]} belongs to --on ray")
    return on is not None


def unwatched(world: Any) -> Any:
    """Returns the world itself: for callers that record nothing."""
    return world


def out_folder(path: Path) -> Path:
    """Creates the folder if it is missing; raises if it is not writable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigError(f"cannot write into {str(path)!r}: {e.strerror}") from None
    if not os.access(path, os.W_OK):
        raise ConfigError(f"cannot write into {str(path)!r}: not writable")
    return path


def write_json(path: Path, content: Any) -> None:
    """Writes standard JSON: values without a JSON type (infinity, functions) as text."""
    encoded = json.dumps(_plain(content), indent=2, allow_nan=False) + "\n"
    try:
        path.write_text(encoded)
    except OSError as e:
        raise ConfigError(f"cannot write {str(path)!r}: {e.strerror}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)  # also numpy's
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) else str(float(value))
    return value if isinstance(value, (bool, str, type(None))) else str(value)
