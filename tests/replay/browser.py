"""A Chromium for tests of pages: a browser per process, a new context per test, no network, all faults recorded."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.browser import FOLDER, find

# Software WebGL; nothing that a browser would otherwise fetch for itself.
FLAGS = (
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-gpu",
    "--enable-unsafe-swiftshader",
)
HARMLESS = ("GPU stall due to ReadPixels",)


def launched() -> Iterator[Any]:
    """The browser, as the body of a fixture. Without one tests skip, or fail with MILKRUN_NEED_BROWSER=1."""
    path = find()
    if path is None:
        reason = FOLDER / "reason"
        found = reason.read_text().strip() if reason.exists() else "none was found"
        sentence = f"no Chromium ({found}): run scripts/browser.py, or install one and set MILKRUN_CHROMIUM"
        (pytest.fail if os.environ.get("MILKRUN_NEED_BROWSER") == "1" else pytest.skip)(sentence)
    from playwright.sync_api import sync_playwright

    # Chromium keeps its socket next to its profile; pytest's folders are too long for a socket's path.
    with tempfile.TemporaryDirectory(prefix="milkrun-") as home, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS, env={**os.environ, "HOME": home})
        yield browser
        browser.close()


class Shown:
    """A page in the browser, with its faults: errors, warnings, requests.

    Options are those of a context, and `script`, which is run before the page's own.
    """

    def __init__(self, browser: Any, path: Path, address: str, options: dict[str, Any]) -> None:
        options = {"viewport": {"width": 1280, "height": 800}, "locale": "en-US", "offline": True, **options}
        script = options.pop("script", None)
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        if script:
            self.page.add_init_script(script)
        self.faults: list[str] = []
        self.url = path.resolve().as_uri()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("request", self._requested)
        self.page.goto(self.url + address)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        # Not by wait_for_function, which evaluates text: the page's policy forbids it.
        self.page.locator("html[data-ready]").wait_for(state="attached")

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning") and not any(text in message.text for text in HARMLESS):
            self.faults.append(f"{message.type}: {message.text}")

    def _requested(self, request: Any) -> None:
        if not request.url.startswith(self.url):
            self.faults.append(f"request: {request.url}")

    def ask(self, script: str, argument: Any = None) -> Any:
        return self.page.evaluate(script, argument)

    @property
    def ready(self) -> str | None:
        return self.page.locator("html").get_attribute("data-ready")

    def step(self) -> int:
        """The step that the clock shows, after pending drawing."""
        self.drawn()
        return int(self.page.locator("#step").text_content())

    def drawn(self) -> None:
        """Wait until pending drawing is on the screen."""
        self.ask("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def close(self) -> None:
        self.context.close()


Opener = Callable[..., Shown]
