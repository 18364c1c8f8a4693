"""Replay pages: their size, the cost of recording per step, the time until a page is ready and that of a frame.

Tests assert sizes; times depend on the machine and are only measured here. Without a Chromium the columns of the
browser stay blank.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import milkrun
from milkrun.render.recorder import EpisodeRecorder
from milkrun.replay.page import write_page
from milkrun.replay.record_policies import compare
from milkrun.solvers import nearest, rollout
from scripts.browser import find

from .timing import Table

PAGES: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "CVRP, 50 customers": ("CVRP-v0", ["nearest", "savings"], {"num_loc": 50}),
    "CVRP, 1,000 customers": ("CVRP-v0", ["nearest", "savings"], {"num_loc": 1000}),
    "TruckDrone, 10 customers, 3 drones": (
        "TruckDrone-v0",
        ["greedy", "lookahead"],
        {"num_customers": 10, "num_drones": 3},
    ),
    "Clutter": ("Clutter-v0", ["random", "highest"], {}),
}
RECORDED = ("CVRP, 50 customers", "CVRP, 1,000 customers")
PROMISED = {
    "CVRP, 50 customers": {"recording ms a step": 3, "ready ms": 1000},
    "CVRP, 1,000 customers": {"recording ms a step": 8, "ready ms": 2000, "main thread ms a frame": 4},
}
"""Largest promised times; tests assert sizes."""
PLAYED = 3.0  # seconds of play that are measured
COUNT = """() => {
  window.drawn = 0;
  const next = () => { window.drawn++; requestAnimationFrame(next); };
  requestAnimationFrame(next);
}"""


def replay_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """A row per page of two policies on one instance."""
    table = Table(
        "Replay pages of two policies",
        ["page", "page kB", "episode kB", "recording ms a step", "ready ms", "main thread ms a frame"],
        notes={
            "recording": "additional time of a recorded step; CVRP-50 with all reasons",
            "main thread": f"processor time of all its tasks in {PLAYED:g} s of play, a frame of the screen",
            "browser": "Chromium without a GPU, 1280 x 800",
        },
    )
    promised: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="milkrun-") as folder, _browser(folder) as browser:
        for name, (id, policies, config) in PAGES.items():
            if id == "Clutter-v0" and options.quick:
                continue
            groups = compare(f"milkrun/{id}", policies, seed=7, **config)
            page = write_page(groups, Path(folder) / "page.html")
            episode = max(len(e.to_json()) for e in groups[0])
            cells: dict[str, Any] = {"page": name, "page kB": page.stat().st_size / 1000, "episode kB": episode / 1000}
            if name in RECORDED:
                cells["recording ms a step"] = _recording(f"milkrun/{id}", config, 3 if options.quick else 7)
            if browser is not None:
                cells["ready ms"] = median(_ready(browser, page) for _ in range(3 if options.quick else 7))
                cells["main thread ms a frame"] = _frame(browser, page)
            table.add(**cells)
            for what, most in PROMISED.get(name, {}).items():
                if what in cells:
                    promised[f"Replay, {name}: {what} (promised at most {most})"] = cells[what]
            print(", ".join(f"{k} {v:.3g}" if isinstance(v, float) else str(v) for k, v in cells.items()), flush=True)
    return table, promised


def _recording(id: str, config: dict[str, Any], times: int) -> float:
    def seconds(wrap: Any) -> float:
        world = milkrun.make(id, 1, seed=7, autoreset="disabled", threads=1, **config)
        world.reset()
        recorded = wrap(world)
        began = time.perf_counter()
        rollout(recorded, lambda _: nearest(world))
        return (time.perf_counter() - began) / int(world.i[0])

    seconds(EpisodeRecorder)  # compiles
    pairs = [(seconds(EpisodeRecorder), seconds(lambda world: world)) for _ in range(times)]
    return 1e3 * median(recorded - alone for recorded, alone in pairs)


@contextmanager
def _browser(home: str) -> Iterator[Any]:
    path = find()
    if path is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            env={**os.environ, "HOME": home},
            args=["--disable-gpu", "--enable-unsafe-swiftshader"],
        )
        yield browser
        browser.close()


@contextmanager
def _opened(browser: Any, page: Path) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-US", offline=True)
    opened = context.new_page()
    opened.goto(page.as_uri())
    opened.locator("html[data-ready]").wait_for(state="attached")
    yield opened
    context.close()


def _ready(browser: Any, page: Path) -> float:
    began = time.perf_counter()
    with _opened(browser, page):
        return 1e3 * (time.perf_counter() - began)


def _frame(browser: Any, page: Path) -> float:
    """Processor milliseconds of the main thread per frame of the screen while the page plays."""
    with _opened(browser, page) as opened:
        session = opened.context.new_cdp_session(opened)
        session.send(
            "Performance.enable", {"timeDomain": "threadTicks"}
        )  # processor time, since the cores may be shared

        def spent() -> float:
            metrics = session.send("Performance.getMetrics")["metrics"]
            return next(float(m["value"]) for m in metrics if m["name"] == "TaskDuration")

        opened.evaluate(COUNT)
        opened.evaluate("() => window.milkrun.play(true)")
        before, frames = spent(), opened.evaluate("() => window.drawn")
        opened.wait_for_timeout(1000 * PLAYED)
        return 1e3 * (spent() - before) / max(1, opened.evaluate("() => window.drawn") - frames)
