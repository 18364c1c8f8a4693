"""Reports: the page has the content of a folder, names unusable files, and sorts tables."""

import json

import numpy as np
import pytest
from PIL import Image

from milkrun.core.errors import ConfigError
from milkrun.replay.columns import decode
from milkrun.replay.report import read_folder, write_report
from tests.replay.browser import Shown, launched
from tests.replay.episodes import tiny

browser = pytest.fixture(launched, scope="module")


def policy(mean, **more):
    return {"mean": mean, "interval_low": mean - 1, "interval_high": mean + 1, **more}


@pytest.fixture
def folder(tmp_path):
    """A folder as left by a demo, an evaluation, a benchmark and two training runs."""
    write = lambda name, content: (tmp_path / name).write_text(json.dumps(content))  # noqa: E731
    Image.fromarray(np.full((400, 800, 3), 200, np.uint8)).save(tmp_path / "CVRP-v0_nearest.png")
    (tmp_path / "CVRP-v0_replay.html").write_text("<!doctype html><title>there</title>")
    write(
        "summary.json",
        {
            "milkrun/CVRP-v0": {
                "rows": 16,
                "steps_per_second": 1e6,
                "policies": {
                    "random": policy(-13.4, picture="none.png"),
                    "nearest": policy(-8.3, picture="CVRP-v0_nearest.png"),
                },
            },
            "milkrun/TSP-v0": {
                "rows": 16,
                "steps_per_second": 2e6,
                "page": "../elsewhere.html",
                "policies": {"random": policy(-7.0)},
            },
            "milkrun/Clutter-v0": {"skipped": "this needs mujoco"},
        },
    )
    rows = [
        {"policy": "a", "mean": -3.0, "gap": 0.5, "seconds": 2.0},
        {"policy": "b", "mean": -2.0, "gap": 0.25, "seconds": 4.0},
    ]
    write("TSP-v0_eval.json", {"world": "milkrun/TSP-v0", "instances": 100, "seed": 0, "policies": rows})
    write(
        "bench.json",
        {
            "title": "Steps",
            "notes": {"rates": "thousands"},
            "machine": {"cpu": "one"},
            "rows": [{"name": "x", "rate": 9.0}, {"name": "y", "rate": 10.0}, {"name": "z"}],
        },
    )
    lines = [{"step": k, "loss": 1 / (k + 1), "seconds": k / 10} for k in range(10_000)]
    (tmp_path / "long.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"step": 10000, "lo')
    other = [
        {"run": "other"},
        {"step": 0, "loss": 2.0, "loss_low": 1.0, "loss_high": 3.0},
        {"step": 5, "loss": float("nan")},
    ]
    (tmp_path / "short.jsonl").write_text("\n".join(map(json.dumps, other)))
    write("episode.json", tiny().data)
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "middle.jsonl").write_text('{"step": 1}\nnot JSON\n{"step": 2}\n')
    return tmp_path


def test_a_folder_is_read_whole(folder):
    """Cards of worlds, tables, curves of runs that share a metric; links and pictures of this folder alone."""
    content = read_folder(folder)
    cvrp, tsp, clutter = content["cards"]
    assert cvrp["page"] == "CVRP-v0_replay.html" and cvrp["picture"].startswith("data:image/webp;base64,")
    assert tsp["page"] is None and tsp["picture"] is None and clutter["said"] == "skipped: this needs mujoco"
    bench, evaluation = sorted(content["tables"], key=lambda table: table["title"] != "Steps")
    assert (bench["columns"], bench["rows"][2]) == (["name", "rate"], ["z", None])
    assert bench["notes"] == ["rates: thousands", "cpu: one"]
    assert evaluation["columns"] == ["policy", "mean return", "gap to best", "seconds"]
    assert evaluation["best"] == {"mean return": "high", "gap to best": "low", "seconds": "low"}
    ignored = dict(content["ignored"])
    assert ignored.pop("broken.json").startswith("cannot be read as JSON: ")
    assert ignored == {
        "episode.json": "it is an episode: milkrun replay makes a page of it",
        "middle.jsonl": "line 2 is not JSON",
    }


def test_a_run_under_way_is_shown_but_for_its_last_line(folder):
    """10,000 lines whole, the broken one left out; a value that is no number is a gap; low and high are a band."""
    (loss,) = read_folder(folder)["curves"]
    long, short = loss["lines"]
    assert (loss["title"], long["name"], short["name"]) == ("loss", "long", "other")
    assert np.array_equal(decode(long["y"]), 1 / np.arange(1, 10_001))
    assert decode(long["seconds"])[-1] == 999.9 and short["seconds"] is None
    assert decode(short["low"])[0] == 1.0 and np.isnan(decode(short["y"])[1])


def test_a_folder_that_is_none_is_refused(tmp_path):
    """The error names it; the report of an empty folder says that it is empty."""
    with pytest.raises(ConfigError, match="there is no such folder"):
        write_report(tmp_path / "none")
    assert write_report(tmp_path) == tmp_path / "index.html"
    assert write_report(tmp_path).read_bytes() == write_report(tmp_path, tmp_path / "other.html").read_bytes()


@pytest.mark.browser
def test_a_report_is_read_and_sorted_in_a_browser(folder, browser):
    """A card a world, a link that works, curves with all their points, tables that sort by a click."""
    shown = Shown(browser, write_report(folder), "", {})
    page = shown.page
    assert shown.ready == "1" and page.locator(".world h2").all_text_contents() == [
        "milkrun/CVRP-v0",
        "milkrun/TSP-v0",
        "milkrun/Clutter-v0",
    ]
    assert page.locator(".world .what").first.text_content() == "Capacitated vehicle routing"
    assert page.locator(".world").first.locator("dd").all_text_contents() == ["-13.4", "-8.3", "1,000,000"]
    assert page.locator(".world b").all_text_contents() == ["-8.3", "-7"]
    assert page.locator(".world img").count() == 1 and page.locator(".world a").count() == 1
    steps, values = shown.ask("() => milkrun.charts[0].data.slice(0, 2).map(a => [a.length, a[0], a[9999]])")
    assert (steps, values) == ([10_000, 0, 9999], [10_000, 1, 1e-4])
    for axis in ("seconds", "step"):
        page.locator("select[aria-label='x axis']").select_option(axis)
    page.locator(".charts input").check()
    bench = page.locator(".sheet", has_text="Steps").first
    rate, first = bench.locator("th button", has_text="rate"), bench.locator("tbody tr td:first-child")
    assert first.all_text_contents() == ["x", "y", "z"]
    rate.click()
    assert first.all_text_contents() == ["y", "x", "z"]
    assert bench.locator("th").nth(1).get_attribute("aria-sort") == "descending"
    rate.click()
    assert first.all_text_contents() == ["x", "y", "z"]  # missing values stay last
    evaluation = page.locator(".sheet", has_text="instances")
    assert evaluation.locator("td.best").all_text_contents() == ["2", "-2", "0.25"]
    assert page.locator(".ignored li").count() == 3
    page.set_viewport_size({"width": 390, "height": 844})
    shown.drawn()
    assert shown.ask("() => document.documentElement.scrollWidth") == 390
    assert shown.faults == []
    with page.expect_navigation():
        page.locator(".world a").click()
    assert page.title() == "there"
    shown.close()


@pytest.mark.browser
def test_names_of_links_begin_with_their_visible_words(tmp_path, browser):
    """Speech control finds a link by its visible words, so its name begins with them; the world distinguishes it from
    others."""
    summary = {"milkrun/TSP-v0": {"policies": {"nearest": {"mean": -4.0}}, "page": "tsp.html"}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "tsp.html").write_text("")
    shown = Shown(browser, write_report(tmp_path), "", {})
    link = shown.page.locator("#cards a")
    assert link.get_attribute("aria-label") == f"{link.text_content()}: milkrun/TSP-v0"
    shown.close()


def test_a_mean_of_nothing_is_not_the_worst(tmp_path):
    """0 is more than -5: the card shows the picture of the policy that has it."""
    for name, shade in (("zero", 250), ("five", 0)):
        Image.fromarray(np.full((40, 40, 3), shade, np.uint8)).save(tmp_path / f"{name}.png")
    policies = {name: policy(mean, picture=f"{name}.png") for name, mean in (("five", -5.0), ("zero", 0.0))}
    pictures = []
    for some in (policies, {"zero": policies["zero"]}):
        (tmp_path / "summary.json").write_text(json.dumps({"milkrun/TSP-v0": {"rows": 1, "policies": some}}))
        pictures.append(read_folder(tmp_path)["cards"][0]["picture"])
    assert pictures[0] == pictures[1]
