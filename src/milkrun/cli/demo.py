"""`milkrun demo`, the job of `make demo`: every world at random and by its heuristic; a table, pictures, a summary."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import typer

from milkrun.cli.output import SEED, console, out_folder, table, text, write_json


def demo(
    out: Path = typer.Option(Path("out"), "--out", help="Folder of the pictures and the summary."),
    num_envs: int | None = typer.Option(
        None,
        "--num-envs",
        min=1,
        show_default="1,024, fewer of slow worlds",
        help="Rows of each world; each plays one episode.",
    ),
    seed: int = SEED,
    pages: bool = typer.Option(True, "--pages/--no-pages", help="Write a page a world, and index.html."),
) -> None:
    """Roll out every world at random and by its heuristic to beat.

    Prints one table, writes pictures, summary.json, a page of each world that plays both on one instance, and
    index.html, from which all are reached, into the output folder. Exit code 1 if a world failed; a world whose extra
    is not installed is left out and says so.

    \b
    Examples:
      milkrun demo
      milkrun demo --out pictures --seed 7
    """
    from milkrun.core.errors import MissingExtra
    from milkrun.core.registry import list_worlds

    folder = out_folder(out)
    start = time.perf_counter()
    ids = list_worlds()
    typer.echo(f"Rolling out {len(ids)} worlds on one thread each; the first run compiles them.")
    summary: dict[str, Any] = {}
    failed: list[str] = []
    numbers = ("rows", "steps/s", "random return", "heuristic return")
    shown = table("", "world", *numbers, "heuristic", right=numbers)
    with console(stderr=True).status("") as status:
        status.update("playing")
        played = play_apart(ids, folder, num_envs or 0, seed, pages)
        for id in ids:
            status.update(text(id))
            try:
                summary[id] = played[id] if id in played else show_world(id, folder, num_envs or 0, seed, pages)
                shown.add_row(*_cells(id, summary[id]))
            except MissingExtra as e:
                summary[id] = {"skipped": str(e)}
                shown.add_row(id, "", "", "", "", text(f"skipped: {e}"))
            except Exception as e:
                failed.append(id)
                reason = f"{type(e).__name__}: {str(e).partition(chr(10))[0]}"
                summary[id] = {"failed": reason}
                shown.add_row(id, "", "", "", "", text(f"failed: {reason}"))
    write_json(folder / "summary.json", summary)
    console().print("", shown, "")
    typer.echo("return: mean over the episodes, one a row, +- its 95 % interval; higher is better.")
    typer.echo("steps/s: steps of single rows, choosing random actions included.")
    typer.echo(
        f"Done in {time.perf_counter() - start:.0f} s. Look into {folder}: for each world and policy a picture "
        "of its best and its median episode, and all figures in summary.json."
    )
    if pages:
        from milkrun.replay.report import write_report

        typer.echo(f"Open {write_report(folder)} in a browser: every world, and a page that plays it.")
    if failed:
        typer.echo(f"failed: {', '.join(failed)}; `milkrun run ID` shows where", err=True)
    raise typer.Exit(1 if failed else 0)


def play_apart(ids: list[str], folder: Path, num_envs: int, seed: int, pages: bool) -> dict[str, Any]:
    """What `show_world` says of worlds that are played in processes of their own, one a core, each taking the next:
    most of a first run is compiling. A world that fails there is not among them."""
    waiting: list[str] = []
    found: dict[str, Any] = {}
    in_order = threading.Event()

    def work() -> None:
        command = [sys.executable, "-c", CHILD, str(folder), str(num_envs), str(seed), str(int(pages))]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as child:
            assert child.stdin is not None and child.stdout is not None
            in_order.wait()
            try:
                while waiting:
                    id = waiting.pop(0)
                    child.stdin.write(f"{id}\n")
                    child.stdin.flush()
                    if (answer := json.loads(child.stdout.readline() or "null")) is not None:
                        found[id] = answer
            except (IndexError, BrokenPipeError):  # another took the last one; the process died
                return

    cores = min(os.cpu_count() or 1, len(ids))
    if cores > 1:
        with ThreadPoolExecutor(cores) as pool:
            for _ in range(cores):
                pool.submit(work)
            try:
                waiting += _own_kernels_first(ids)  # which imports every world, as the processes do meanwhile
            finally:
                # Also after an error: the pool ends only when its threads do, and these wait for this.
                in_order.set()
    return found


def _own_kernels_first(ids: list[str]) -> list[str]:
    """Those with the most to compile come first, so that the cores are done together; the worlds that share all their
    compiled code with one before them come last, when it is there."""
    from milkrun.core.hooks import kernels_of
    from milkrun.core.registry import world_spec

    kept: dict[Any, str] = {}
    fields: dict[str, int] = {}
    for id in ids:
        try:
            cls = world_spec(id).load()
        except Exception:  # the error comes when the world is to be played
            continue
        # Worlds with the same step kernel share their compiled code: the first of them stands for all.
        kept.setdefault(kernels_of(cls).get("step"), id)
        fields[id] = len(cls.fields)
    return sorted(ids, key=lambda id: (id not in kept.values(), -fields.get(id, 0)))


# The import comes first: it goes on while the parent still puts the worlds in order. What a world prints goes nowhere,
# since a line of the output is an answer.
CHILD = """
import json, os, sys
from pathlib import Path
import milkrun.cli.play
from milkrun.cli.demo import show_world
folder, num_envs, seed, pages = sys.argv[1:]
answers, sys.stdout = sys.stdout, open(os.devnull, "w")
for line in sys.stdin:
    try:
        answer = show_world(line.strip(), Path(folder), int(num_envs), int(seed), pages == "1")
    except Exception:
        answer = None
    print(json.dumps(answer), file=answers, flush=True)
"""


def show_world(id: str, folder: Path, num_envs: int, seed: int, pages: bool) -> dict[str, Any]:
    """Speed of a world and the summary of each of its policies; its pictures, and its page, go into the folder. With 0
    rows, as many as the world says."""
    import milkrun
    from milkrun.cli.bench import looks_at, speed
    from milkrun.cli.play import play
    from milkrun.core.registry import world_spec
    from milkrun.solvers import policies_for, random_policy

    num_envs = num_envs or world_spec(id).load().demo_rows
    # One thread: parallel kernels would double the compile time of a first run.
    policies = {
        name: play(id, name, folder, num_envs=num_envs, episodes=num_envs, seed=seed, threads=1, in_detail=False)
        for name in list(policies_for(id))[:2]  # random, and the heuristic to beat
    }
    world = milkrun.make(id, num_envs, seed=seed, autoreset="disabled", threads=1)
    per_second = speed(world, random_policy(seed), 0.2)[1]
    page = write_demo_page(id, folder, policies, seed) if pages else None
    return {
        "rows": num_envs,
        "steps_per_second": per_second,
        "looked_at": looks_at(world),
        "policies": policies,
        "page": page,
    }


def write_demo_page(id: str, folder: Path, policies: dict[str, Any], seed: int) -> str:
    """The page of a world: its policies on the instance where the last of them, the heuristic, was in the middle."""
    from milkrun.cli.replay import world_stem, write
    from milkrun.replay.record_policies import compare

    shown = list(policies.values())[-1]["median"]
    groups = compare(id, list(policies), rows=[shown["row"]], episode=shown["episode"], seed=seed, threads=1)
    return write(groups, folder / f"{world_stem(id)}_replay.html").name


def _cells(id: str, world: dict[str, Any]) -> list[str]:
    from milkrun.cli.bench import LOOKED_AT
    from milkrun.solvers.evaluate import Z95

    def spoken(summary: dict[str, Any]) -> str:
        error = summary["standard_error"]
        return f"{summary['mean']:.3f}" + (f" +- {Z95 * error:.3f}" if error is not None else "")

    best = next((name for name in world["policies"] if name != "random"), None)
    return [
        id + LOOKED_AT * world["looked_at"],
        f"{world['rows']:,}",
        f"{world['steps_per_second']:,.0f}",
        spoken(world["policies"]["random"]),
        spoken(world["policies"][best]) if best else "none",
        best or "",
    ]
