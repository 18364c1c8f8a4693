"""`milkrun replay` and `milkrun report`: write HTML pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from milkrun.cli.output import PRESET, SEED, SETTINGS, console, out_folder, read_settings, table, text
from milkrun.core.errors import ConfigError
from milkrun.core.files import file_name

if TYPE_CHECKING:
    from milkrun.render.recorder import EpisodeRecorder
    from milkrun.replay.episode import Episode

Groups = list[list["Episode"]]


def replay(
    what: list[str] = typer.Argument(
        ..., metavar="ID | FILE.json...", help="A world, or files of saved episodes.", show_default=False
    ),
    policies: str | None = typer.Option(
        None,
        "--policies",
        metavar="A,B,C",
        show_default="random and the heuristic to beat",
        help="One to three policies of the world, or methods of `milkrun solve`, side by side.",
    ),
    rows: str = typer.Option(
        "0", "--rows", metavar="R,R,...", help="Rows, each an instance, to choose from on the page."
    ),
    episode: int = typer.Option(0, "--episode", min=0, help="Number of the episode of these rows."),
    seed: int = SEED,
    preset: str | None = PRESET,
    settings: list[str] = SETTINGS,
    out: Path = typer.Option(Path("out"), "--out", help="Folder of the page."),
    as_json: bool = typer.Option(False, "--json", help="Also write each episode as a JSON file."),
) -> None:
    """Write a page that plays episodes: one HTML file for any browser, without network.

    Up to three policies play the same instance side by side, with controls to play, step and scrub. The page shows the
    allowed actions, the reasons why others were not, and figures, lanes, days and piles over time.

    \b
    Examples:
      milkrun replay CVRP-v0 --policies nearest,savings,pyvrp --set num_loc=50 --seed 7 --rows 3
      milkrun replay TruckDrone-v0 --policies greedy,lookahead
      milkrun replay SDWCVRP-v0 --preset week --json
      milkrun replay out/CVRP-v0_replay_nearest_3.json out/CVRP-v0_replay_savings_3.json
    """
    folder = out_folder(out)
    if any(name.endswith(".json") for name in what):
        groups, stem = saved(what), "saved"
    else:
        if len(what) > 1:
            raise ConfigError(f"one world, or files that end in .json: not {', '.join(map(repr, what))}")
        groups = recorded(what[0], policies, read_rows(rows), episode, seed, preset, read_settings(settings))
        stem = world_stem(groups[0][0].world)
    print_episodes(groups)
    page = write(groups, folder / f"{stem}_replay.html")
    if as_json:
        written: list[Path] = []
        for one in (one for group in groups for one in group):
            path = plain = folder / f"{stem}_replay_{file_name(one.policy)}_{one.data['row']}.json"
            while path in written:  # an episode of another seed or world, from a file
                path = plain.with_name(f"{plain.stem}_{len(written) + 1}.json")
            written.append(path)
            one.save(path)
            typer.echo(f"{path}  the episode of {one.policy}")
    typer.echo(f"{page}  {page.stat().st_size / 1000:,.0f} kB: open it in a browser")


def report(
    folder: Path = typer.Argument(
        ..., metavar="FOLDER", help="A folder that demo, eval, bench or training wrote.", show_default=False
    ),
    out: Path | None = typer.Option(
        None, "--out", metavar="FILE", help="The page (default: index.html of the folder).", show_default=False
    ),
) -> None:
    """Write a page of a folder: cards of the demo, tables of evaluations and benchmarks, curves of training runs.

    \b
    Examples:
      milkrun report out
      milkrun report runs --out report.html
    """
    from milkrun.replay.report import write_report

    page = write_report(folder, out)
    typer.echo(f"{page}  {page.stat().st_size / 1000:,.0f} kB: open it in a browser")


def recorded(
    id: str,
    policies: str | None,
    rows: Sequence[int],
    episode: int,
    seed: int,
    preset: str | None,
    settings: dict[str, Any],
) -> Groups:
    """Records episodes of policies: a list for each row."""
    from milkrun.core.registry import world_spec
    from milkrun.replay.record_policies import compare
    from milkrun.solvers import policies_for
    from milkrun.solvers.policies import split_names

    spec = world_spec(id)
    names = list(policies_for(spec.id))[:2] if policies is None else split_names(policies)
    with console(stderr=True).status(text(f"{spec.id}: {', '.join(names)}")):
        return compare(spec.id, names, rows=rows, seed=seed, episode=episode, preset=preset, **settings)


def saved(files: Sequence[str]) -> Groups:
    """Loads episodes from files, grouped by world and instance."""
    from milkrun.replay.episode import Episode

    groups: dict[Any, list[Episode]] = {}
    for file in files:
        one = Episode.load(file)
        groups.setdefault((one.world, one.instance), []).append(one)
    return list(groups.values())


def write(groups: Groups, path: Path, title: str | None = None, source: str | None = None) -> Path:
    """Writes the page of these episodes."""
    from milkrun.replay.page import write_page

    return write_page(groups, path, title=title, source=source)


def watched_by(method: str, world: Any) -> EpisodeRecorder:
    """Wraps the world in a recorder, for the solution of a method."""
    from milkrun.render.recorder import EpisodeRecorder

    return EpisodeRecorder(world, policy=method)


def write_driven(recorder: EpisodeRecorder, path: Path, title: str, file: str) -> None:
    """Writes the page of a solution that was played in the instance of a file, and prints its path."""
    from milkrun.replay.episode import Episode

    groups = [[Episode.of(recording) for recording in recorder.episodes()]]
    typer.echo(f"{write(groups, path, title, file)}  the page that plays it")


def print_episodes(groups: Groups) -> None:
    """Prints return, steps and gap of each episode."""
    right = ("return", "behind the best", "steps")
    shown = table("", "row", "policy", *right, right=right)
    for group in groups:
        best = max(one.objective for one in group)
        for one in group:
            gap = best - one.objective
            # A percentage is meaningless for returns near 0 or of both signs.
            as_share = one.data.get("is_cost", False) and best < 0
            behind = "" if not gap else f"{100 * gap / -best:.1f} %" if as_share else f"{gap:.4f}"
            shown.add_row(str(one.data["row"]), text(one.policy), f"{one.objective:.4f}", behind, f"{one.steps:,}")
    console().print(shown)


def world_stem(id: str) -> str:
    """The prefix of the files of a world."""
    return file_name(id.removeprefix("milkrun/"))


def read_rows(given: str) -> list[int]:
    try:
        rows = [int(part) for part in given.split(",")]
    except ValueError:
        rows = [-1]
    if min(rows) < 0 or len(set(rows)) < len(rows):
        raise ConfigError(f"--rows {given!r}: must be different numbers >= 0, separated by commas")
    return rows
