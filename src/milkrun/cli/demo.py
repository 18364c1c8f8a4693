"""`milkrun demo`, run by `make demo`: plays every world at random and by its heuristic; draws and summarises them."""

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
    pages: bool = typer.Option(True, "--pages/--no-pages", help="Write a page for each world, and index.html."),
) -> None:
    """Roll out every world at random and by its heuristic to beat.

    Prints one table. Writes pictures, summary.json, for each world a page that plays both on one instance, and
    index.html with links to all of them. A world without its extra is skipped. Exit code 1 if a world failed.

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
        played = play_in_processes(ids, folder, num_envs or 0, seed, pages)
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


def play_in_processes(ids: list[str], folder: Path, num_envs: int, seed: int, pages: bool) -> dict[str, Any]:
    """The results of `show_world` from worker processes, one per core, since most of a first run is compiling. A world
    that fails there is missing in the result."""
    waiting: list[str] = []
    found: dict[str, Any] = {}
    sorted_ids = threading.Event()

    def work() -> None:
        command = [sys.executable, "-c", CHILD, str(folder), str(num_envs), str(seed), str(int(pages))]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as child:
            assert child.stdin is not None and child.stdout is not None
            sorted_ids.wait()
            try:
                while waiting:
                    id = waiting.pop(0)
                    child.stdin.write(f"{id}\n")
                    child.stdin.flush()
                    if (result := json.loads(child.stdout.readline() or "null")) is not None:
                        found[id] = result
            except (IndexError, BrokenPipeError):  # another thread took the last world; the process died
                return

    cores = min(os.cpu_count() or 1, len(ids))
    if cores > 1:
        with ThreadPoolExecutor(cores) as pool:
            for _ in range(cores):
                pool.submit(work)
            try:
                waiting += _own_kernels_first(ids)  # imports every world, as the processes do meanwhile
            finally:
                # Also after an error: the threads of the pool wait for this event.
                sorted_ids.set()
    return found


def _own_kernels_first(ids: list[str]) -> list[str]:
    """Sorts worlds by the amount of code to compile, the largest first, so that all cores finish together. Worlds that
    share their compiled code with an earlier one come last."""
    from milkrun.core.hooks import kernels_of
    from milkrun.core.registry import world_spec

    kept: dict[Any, str] = {}
    fields: dict[str, int] = {}
    for id in ids:
        try:
            cls = world_spec(id).load()
        except Exception:  # reported when the world is played
            continue
        # Worlds with the same step kernel share their compiled code.
        kept.setdefault(kernels_of(cls).get("step"), id)
        fields[id] = len(cls.fields)
    return sorted(ids, key=lambda id: (id not in kept.values(), -fields.get(id, 0)))


# The import comes first: it runs while the parent still sorts the worlds. The output of worlds is discarded, since each
# line of stdout is a result.
CHILD = """
import json, os, sys
from pathlib import Path
import milkrun.cli.play
from milkrun.cli.demo import show_world
folder, num_envs, seed, pages = sys.argv[1:]
results, sys.stdout = sys.stdout, open(os.devnull, "w")
for line in sys.stdin:
    try:
        result = show_world(line.strip(), Path(folder), int(num_envs), int(seed), pages == "1")
    except Exception:
        result = None
    print(json.dumps(result), file=results, flush=True)
"""


def show_world(id: str, folder: Path, num_envs: int, seed: int, pages: bool) -> dict[str, Any]:
    """The speed of a world and the summary of each policy. Writes its pictures and its page. 0 rows: `demo_rows`."""
    import milkrun
    from milkrun.cli.bench import needs_observe, speed
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
        "looked_at": needs_observe(world),
        "policies": policies,
        "page": page,
    }


def write_demo_page(id: str, folder: Path, policies: dict[str, Any], seed: int) -> str:
    """Writes the page of a world: its policies on the median instance of the heuristic."""
    from milkrun.cli.replay import world_stem, write
    from milkrun.replay.record_policies import compare

    shown = list(policies.values())[-1]["median"]
    groups = compare(id, list(policies), rows=[shown["row"]], episode=shown["episode"], seed=seed, threads=1)
    return write(groups, folder / f"{world_stem(id)}_replay.html").name


def _cells(id: str, world: dict[str, Any]) -> list[str]:
    from milkrun.cli.bench import WITH_OBSERVE
    from milkrun.solvers.evaluate import Z95

    def mean_text(summary: dict[str, Any]) -> str:
        error = summary["standard_error"]
        return f"{summary['mean']:.3f}" + (f" +- {Z95 * error:.3f}" if error is not None else "")

    best = next((name for name in world["policies"] if name != "random"), None)
    return [
        id + WITH_OBSERVE * world["looked_at"],
        f"{world['rows']:,}",
        f"{world['steps_per_second']:,.0f}",
        mean_text(world["policies"]["random"]),
        mean_text(world["policies"][best]) if best else "none",
        best or "",
    ]
