"""`milkrun list`, `milkrun info` and `milkrun check`: lists worlds, describes one, checks one."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from typing import TYPE_CHECKING, Any

import typer

from milkrun.cli.output import ID, PRESET, SEED, SETTINGS, console, read_settings, table, text
from milkrun.core.errors import MissingExtra, RegistryError, did_you_mean
from milkrun.core.registry import list_worlds, world_spec

if TYPE_CHECKING:
    from milkrun.core.fields import Field


def list_(family: str | None = typer.Option(None, "--family", help="Only this family.", show_default=False)) -> None:
    """List the worlds: id, problem and action.

    Actions are those of the default configuration. `milkrun info ID` shows rules, fields, options and presets.

    \b
    Examples:
      milkrun list
      milkrun list --family routing
    """
    if family is not None and not list_worlds(family):
        families = {world_spec(id).family for id in list_worlds()}
        raise RegistryError(f"no family {family!r}{did_you_mean(family, families)}")
    shown = table("", "id", "problem", "action")
    for id in list_worlds(family):
        spec = world_spec(id)
        try:
            cls = spec.load()
        except MissingExtra as e:
            shown.add_row(spec.id, text(e), "")
            continue
        shown.add_row(spec.id, text(spec.title), _action(cls, cls.size_of(cls.Config())))
    console().print(shown)


def info(id: str = ID) -> None:
    """Show a world: rules, fields, options, presets.

    \b
    Examples:
      milkrun info milkrun/CVRP-v0
      milkrun info tsp
    """
    from milkrun.core.fields import Role, describe
    from milkrun.solvers import policies_for

    spec = world_spec(id)
    cls = spec.load()
    sizes = cls.size_of(cls.Config())
    out = console()
    out.print(f"[bold]{spec.id}[/bold]  {text(spec.title)}\n")
    out.print(text(inspect.getdoc(sys.modules[cls.__module__]) or inspect.getdoc(cls) or ""))
    out.print(f"\nPolicies: {', '.join(policies_for(spec.id))}")
    out.print(f"By default: {', '.join(f'{k} = {v}' for k, v in sizes.items())}; action {_action(cls, sizes)}\n")

    fields = table("Fields (shapes of one row)", "field", "type", "shape", "role", "meaning")
    for f in cls.fields.values():
        if f.role not in (Role.CONSTANT, Role.SCRATCH, Role.KEY):
            fields.add_row(f.name, f.dtype.name, _symbols(f), _role(f), text(describe(f)))
    out.print(fields, "")

    options = table("Options (--set KEY=VALUE, or keywords of milkrun.make)", "option", "default", "allowed", "meaning")
    for f in dataclasses.fields(cls.Config):
        options.add_row(f.name, text(f.default), text(_allowed(f)), text(f.metadata.get("doc", "")))
    out.print(options, "")

    presets = table("Presets (--preset NAME)", "preset", "options")
    for name, values in cls.Config.presets.items():
        presets.add_row(name, text(", ".join(f"{k}={v}" for k, v in values.items())))
    if cls.Config.presets:
        out.print(presets)


def check(
    id: str = ID,
    num_envs: int = typer.Option(16, "--num-envs", min=1, help="Rows to check with."),
    seed: int = SEED,
    preset: str | None = PRESET,
    settings: list[str] = SETTINGS,
) -> None:
    """Check a world with `milkrun.check_world`.

    Masks, bounds, rewards, independence of rows, reproducible resets. Exit code 1 on any finding.

    \b
    Examples:
      milkrun check milkrun/CVRP-v0
      milkrun check CVRP-v0 --set num_loc=5 --set max_length=3
    """
    import milkrun

    spec = world_spec(id)
    world = milkrun.make(spec.id, num_envs, preset=preset, config=read_settings(settings), seed=seed)
    findings = milkrun.check_world(world)
    for finding in findings:
        typer.echo(f"finding: {finding}")
    typer.echo(f"{spec.id}: {f'{len(findings)} findings' if findings else 'no findings'}")
    raise typer.Exit(1 if findings else 0)


def _action(cls: Any, sizes: dict[str, int]) -> str:
    choices = cls.action.nvec(sizes)
    if cls.action.kind == "discrete":
        return f"Discrete({choices[0]})"
    if cls.action.kind == "box":
        return f"Box(-1, 1, {cls.action.shape(sizes)})"
    return f"MultiDiscrete({choices})"


def _symbols(f: Field) -> str:
    return f"({', '.join(map(str, f.dims))})" if f.dims else "scalar"


def _role(f: Field) -> str:
    return f.role.value + (", hidden" if f.hidden else "") + (", not observed" if f.observed is False else "")


def _allowed(option: dataclasses.Field[Any]) -> str:
    """The type, the bounds and the choices of an option."""
    meta = option.metadata
    if meta.get("choices"):
        return " | ".join(map(str, meta["choices"]))
    kind = option.type.__name__ if isinstance(option.type, type) else str(option.type)
    if meta.get("words"):
        kind = kind.replace("str", " | ".join(meta["words"]))
    low, high = meta.get("low"), meta.get("high")
    if low is not None and high is not None:
        kind += f", {low}..{high}"
    elif low is not None:
        kind += f", >= {low}"
    elif high is not None:
        kind += f", <= {high}"
    return kind
