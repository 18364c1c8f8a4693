"""The `milkrun` command. Slow imports are deferred until a command needs them."""

from __future__ import annotations

import sys
import warnings
from typing import Any, NoReturn

from milkrun.core.errors import (
    BadCheckpoint,
    ConfigError,
    FormatError,
    MilkrunError,
    RegistryError,
    UnknownWorld,
    missing_extra,
)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs a command and exits: 0 success, 1 a finding or a failure, 2 wrong usage (an unknown name, a bad option, a
    file that is missing or does not parse), 130 interrupted. Errors are one line on stderr."""
    try:
        code = _run(arguments)
    except UnknownWorld as e:
        _print_error(
            f"error: {e} (packages register their worlds by the entry point milkrun.worlds: docs/add-a-world.md)"
        )
        code = 2
    except (RegistryError, ConfigError, FormatError, BadCheckpoint) as e:
        _print_error(f"error: {e}")
        code = 2
    except MilkrunError as e:
        _print_error(f"error: {e}")
        code = 1
    except MemoryError as e:
        _print_error(f"error: not enough memory: {e or 'fewer rows or smaller ones may fit'}")
        code = 1
    sys.exit(code)


def _run(arguments: list[str] | None) -> int:
    try:
        import rich  # noqa: F401
        import typer
    except ImportError as e:
        raise missing_extra(str(e.name), "cli") from e

    from milkrun.cli.app import app

    usage_error: Any = typer.BadParameter.__base__  # typer exports no public name for it
    with warnings.catch_warnings():
        # `catch_warnings` also restores this function at its end.
        warnings.showwarning = lambda message, *_: _print_error(f"note: {message}")
        try:
            # In standalone mode the app would print errors over several lines and exit.
            return app(arguments, prog_name="milkrun", standalone_mode=False) or 0
        except usage_error as e:
            command = e.ctx.command_path if e.ctx is not None else "milkrun"
            raise ConfigError(f"{e.format_message().rstrip('.')} (see {command} --help)") from None


def _print_error(line: str) -> None:
    print(line, file=sys.stderr)
