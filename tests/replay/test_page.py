"""Replay pages in a real browser: pictures, controls and texts agree with the world."""

import base64
import io
import json
import re
import zlib

import numpy as np
import pytest
from PIL import Image

from milkrun.core.registry import list_worlds, make
from milkrun.replay.columns import decode, pack
from milkrun.replay.episode import Episode
from milkrun.replay.page import write_page
from milkrun.replay.record_policies import compare, record
from milkrun.solvers.policies import policies_for
from tests.replay.browser import Shown, launched
from tests.replay.episodes import ROUTE, pile, tiny

pytestmark = pytest.mark.browser
browser = pytest.fixture(launched, scope="module")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def cvrp(folder):
    """Nearest customer first and savings, on one instance of 50 customers, and a second instance."""
    groups = compare("CVRP-v0", ["nearest", "savings"], rows=(3, 4), seed=7, num_loc=50)
    return write_page(groups, folder / "cvrp.html")


@pytest.fixture(scope="module")
def thousand(folder):
    """The first 720 steps of two policies among 1,000 customers."""
    episodes = []
    for name in ("nearest", "random"):
        world = make("CVRP-v0", 1, seed=7, num_loc=1000, autoreset="disabled")
        world.reset()
        episodes += record(world, policies_for(world.id)[name](0), name=name, max_steps=720)
    return write_page(episodes, folder / "thousand.html")


@pytest.fixture(scope="module")
def drones(folder):
    episodes = compare("TruckDrone-v0", ["greedy", "lookahead"], rows=(5,), seed=3, num_customers=10, num_drones=3)
    return write_page(episodes[0], folder / "drones.html")


@pytest.fixture(scope="module")
def piles(folder):
    return write_page([pile("from above", 2), pile("from below", 1)], folder / "pile.html")


@pytest.fixture
def opened(browser):
    """Open a page; after the test it must have no fault."""
    shown = []

    def open_page(path, address="", *, faults=(), **options):
        shown.append((Shown(browser, path, address, options), faults))
        return shown[-1][0]

    yield open_page
    for page, expected in shown:
        page.close()
        assert [fault for fault in page.faults if not any(word in fault for word in expected)] == []


# -- the numbers of a page are the world's ---------------------------------------------------------------------------


def test_a_page_replays_the_world(opened, cvrp):
    """Steps, actions, rewards, masks and figures of two policies, equal to the world's, bit for bit."""
    page = opened(cvrp)
    episodes = page.ask("""() => milkrun.episodes.map(e => {
        const steps = [...Array(e.steps).keys()], allowed = s => e.allowed(s).reduce((a, b) => a + b);
        return { policy: e.policy, steps: e.steps, frames: e.frames, objective: e.objective,
                 actions: steps.map(s => e.action(s)), rewards: steps.map(s => e.reward(s)),
                 allowed: steps.map(allowed), length: e.figure("return", e.steps), last: e.stops("tour", e.frames),
                 place: e.xy("customers", 0) };
    })""")
    nearest, savings = episodes
    assert (nearest["policy"], nearest["steps"], nearest["frames"]) == ("nearest", 57, 57)
    assert nearest["objective"] == nearest["length"] == -14.462911566719413
    assert savings["objective"] == -10.937049662694335
    assert nearest["actions"][:6] == [8, 14, 34, 23, 2, 31] and nearest["actions"][-3:] == [46, 3, 0]
    assert savings["actions"][:6] == [7, 12, 22, 0, 8, 34]
    assert nearest["allowed"][:6] == [50, 50, 49, 48, 47, 46] and nearest["allowed"][38] == 2
    assert (sum(nearest["allowed"]), sum(savings["allowed"])) == (1183, 1345)
    assert sum(nearest["rewards"]) == pytest.approx(nearest["objective"], abs=1e-12)
    assert nearest["last"] == [0, *nearest["actions"]] and nearest["place"] == savings["place"]
    chips = page.page.locator(".chip").all_text_contents()
    assert chips == ["32.2 % behind", "best of these"]
    assert page.page.locator("#ticks .part").get_attribute("title") == "the policies differ from step 1"


def test_panels_show_the_returns_of_the_moment(opened, cvrp):
    """At frame 38 what was collected so far; at the end the objectives."""
    page = opened(cvrp, "#frame=38")
    assert page.page.locator(".value").all_text_contents() == ["-6.996", "-7.235"]
    page.press("End")
    assert page.step() == 57 and page.page.locator(".value").all_text_contents() == ["-14.46", "-10.94"]
    assert page.page.locator(".now").all_text_contents()[0] == "Done after 57 steps, return -14.46."


def test_a_page_says_what_is_allowed_and_why_not(opened, cvrp):
    """The sentence of the step, the reason under the mouse, and the list of choices."""
    page = opened(cvrp, "#frame=38")
    said = page.page.locator(".now").first.text_content()
    assert said == "Step 39: → customer 4, demand 1. 2 of 51 allowed, reward -0.063"
    tip = page.page.locator("#tip")
    read = {
        3: ["customer 3, demand 7", "not allowed: over capacity: 39 + 7 > 40"],
        7: ["customer 7, demand 8", "not allowed: visited"],
        4: ["customer 4, demand 1", "allowed"],
    }
    for customer, lines in read.items():
        page.page.mouse.move(*page.ask("j => milkrun.pixel(0, 'customers', j)", customer))
        assert tip.inner_text().split("\n") == lines
    for key, verdict in (("ArrowRight", "not allowed: visited"), ("ArrowLeft", "allowed")):
        page.press(key)
        page.drawn()
        assert tip.inner_text().split("\n") == ["customer 4, demand 1", verdict]  # the mouse rests
    page.page.locator(".choices summary").first.click()
    items = page.page.locator(".choices").first.locator("li")
    items.first.wait_for()
    assert items.count() == 51
    assert items.nth(3).text_content() == "customer 3, demand 7: not allowed: over capacity: 39 + 7 > 40"
    assert items.nth(4).text_content() == "customer 4, demand 1: allowed (taken)"
    assert said in page.page.locator("#say").text_content()


def test_an_illegal_step_says_its_reason(opened, folder):
    """Several agents: those that had a choice are named, the reason is that of the agent, a red tick marks the step."""
    page = opened(write_page([tiny()], folder / "tiny.html"), "#frame=2")
    assert page.page.locator(".now").text_content() == (
        "Step 3: truck → place 3 · drone → fly. 5 of 6 allowed, reward -1 illegal: drone: no"
    )
    assert page.page.locator("#ticks .bad").get_attribute("title") == "illegal action in step 3"
    assert page.ask("() => [0, 1, 2, 3, 4].map(f => milkrun.episodes[0].stops('tour', f))") == ROUTE
    page.page.mouse.move(*page.ask("() => milkrun.pixel(0, 'places', 1)"))
    tip = page.page.locator("#tip").inner_text().split("\n")
    assert tip == ["place 1", "truck: not allowed: visited", "drone: allowed"]


def test_a_number_that_is_not_finite_is_shown_so(opened, folder):
    """Rewards of infinity and an objective that is none are null in the file; the page shows it and works on."""
    broken = Episode(tiny("a", objective=None).data | {"reward": pack(np.array([-1.0, np.inf, np.nan, -1.0]))})
    page = opened(write_page([broken, tiny("b")], folder / "infinite.html"), "#frame=1")
    assert page.page.locator(".now").first.text_content().endswith("reward not finite")
    assert page.page.locator(".chip").all_text_contents() == ["not finite", "best of these"]
    page.page.locator("select[aria-label='figure over time']").select_option("driven")
    assert page.step() == 1


# -- the clock ---------------------------------------------------------------------------------------------------------


def test_everything_moves_the_same_clock(opened, cvrp):
    """Keys, buttons, scrubber and chart, each to its frame."""
    page = opened(cvrp)
    keys = page.page.keyboard
    for key, step in (
        ("ArrowRight", 1),
        ("Shift+ArrowRight", 11),
        (",", 10),
        (".", 11),
        ("ArrowLeft", 10),
        ("End", 57),
        ("ArrowRight", 57),
        ("Home", 0),
        ("Shift+ArrowLeft", 0),
    ):
        keys.press(key)
        assert page.step() == step, key
    for button, step in (("last", 57), ("back", 56), ("fwd", 57), ("first", 0), ("fwd", 1)):
        page.page.locator(f"#{button}").click()
        assert page.step() == step, button
    over = page.page.locator(".u-over").bounding_box()
    page.page.mouse.click(over["x"] + over["width"] * 10 / 57, over["y"] + 20)
    assert page.step() == 10
    page.page.locator("#seek").fill("33")
    assert page.step() == 33
    assert page.page.locator("#seek").get_attribute("aria-valuetext") == "step 33 of 57"
    speed = page.page.locator("#speed")
    for key, value in (("]", "2"), ("[", "1"), ("[", "0.5")):
        keys.press(key)
        assert speed.input_value() == value
    speed.focus()
    page.press("End")  # a list that has the focus keeps its keys
    assert page.step() == 33 and speed.input_value() == "8"


def test_play_moves_and_pause_stands_on_a_whole_frame(opened, cvrp):
    """Space starts and stops; on a focused button it presses that button instead."""
    page = opened(cvrp)
    page.press("]", "]", " ")
    assert page.page.locator("#play").get_attribute("aria-label") == "pause"
    page.ask("""() => new Promise(done => {
        const look = () => milkrun.frame > 2 ? done() : requestAnimationFrame(look);
        look();
    })""")
    page.press("k")
    stopped = page.ask("() => milkrun.frame")
    assert stopped == int(stopped) >= 2
    page.drawn()
    assert page.ask("() => milkrun.frame") == stopped
    page.page.locator("#first").focus()
    page.press(" ")
    assert page.step() == 0 and page.page.locator("#play").get_attribute("aria-label") == "play"


def test_the_address_remembers_the_moment(opened, cvrp):
    """Kept up to date, read at the start; `end` is the end, and nonsense the beginning."""
    page = opened(cvrp, "#frame=12&instance=1")
    assert page.step() == 12 and page.page.locator("#instance").input_value() == "row 4"
    page.press("ArrowRight", "p")
    page.page.wait_for_url("**/cvrp.html#frame=13&instance=0")
    page.page.reload()
    page.wait_until_ready()
    assert page.step() == 13 and page.page.locator("#instance").input_value() == "row 3"
    for address, step in (("end", 57), ("-3", 0), ("1e3", 0), ("99999", 57), ("<b>", 0)):
        page.page.goto("about:blank")
        page.page.goto(f"{page.url}#frame={address}&instance=7")
        page.wait_until_ready()
        assert page.step() == step


def test_keys_change_what_is_shown(opened, cvrp):
    """N another instance, 2 a panel alone, 0 all, M and L rings and names, D the theme, ? the help."""
    page = opened(cvrp, "#frame=20")
    panels = page.page.locator(".panel")
    page.press("n")
    page.page.wait_for_url("**/cvrp.html#frame=20&instance=1")
    assert page.page.locator("#instance").input_value() == "row 4"
    page.press("2")
    assert [panels.nth(k).is_visible() for k in (0, 1)] == [False, True]
    page.press("0")
    assert panels.nth(0).is_visible()
    for key, name in (("m", "masks"), ("l", "labels")):
        picture = page.page.locator(".stage canvas").first
        page.drawn()
        before = picture.screenshot()
        page.press(key)
        page.drawn()
        assert page.page.locator(f"#{name}").get_attribute("aria-pressed") == "false"
        assert picture.screenshot() != before
    page.press("d")
    assert page.page.locator("html").get_attribute("data-theme") == "dark"
    page.press("?", "End")
    assert page.page.locator("#help").is_visible() and page.step() == 20
    page.press("Escape", "End")
    assert page.step() > 20
    page.press("Control+Home")
    assert page.step() > 20


def test_tab_reaches_every_control_in_order(opened, cvrp):
    """Header, panels, chart, transport, as they stand on the page; each has a name."""
    page = opened(cvrp)
    names = []
    for _ in range(15):
        page.press("Tab")
        names.append(page.ask("() => document.activeElement.ariaLabel ?? document.activeElement.textContent.trim()"))
    assert names == [
        "instance",
        "Allowed",
        "Names",
        "Theme",
        "keyboard",
        "Choices at this step",
        "Choices at this step",
        "figure over time",
        "to the start",
        "one step back",
        "play",
        "one step forward",
        "to the end",
        "current frame",
        "speed",
    ]


def test_lanes_stand_on_one_axis(opened, drones):
    """The line is at the same pixel in both charts, moves with the clock, and a click in a lane goes there."""
    page = opened(drones, "#frame=40")
    lines = page.page.locator(".plot.lanes .nowline")
    charts = [page.page.locator("canvas.lanes").nth(k).bounding_box() for k in (0, 1)]

    def places():
        page.drawn()
        return [lines.nth(k).bounding_box()["x"] - charts[k]["x"] for k in (0, 1)]

    at40 = places()
    assert at40[0] == pytest.approx(at40[1], abs=1)
    page.press("Home")
    at0 = places()
    page.page.mouse.click(charts[0]["x"] + 1 + at0[0] + (at40[0] - at0[0]) * 60 / 40, charts[0]["y"] + 30)
    assert page.step() == 60
    page.press("End")
    assert page.step() == 110
    at110 = places()  # the shorter episode rests at its end, step 80
    assert (at110[1] - at0[1]) / (at110[0] - at0[0]) == pytest.approx(80 / 110, abs=0.01)
    assert page.page.locator(".chip").all_text_contents() == ["14.2 behind", "best of these"]


# -- drawing -----------------------------------------------------------------------------------------------------------


def test_a_frame_does_not_depend_on_the_frames_before(opened, thousand):
    """Stepping from 640 to 700 by halves, or going to 700 at once: fewer than 0.1 % of the pixels differ visibly."""
    page = opened(thousand, faults=("willReadFrequently",))  # the test reads the canvas
    differ = page.ask("""() => {
        const canvases = [...document.querySelectorAll(".stage canvas")];
        const pixels = () => canvases.map(c => c.getContext("2d").getImageData(0, 0, c.width, c.height).data);
        milkrun.show(640);
        for (let f = 640; f <= 700; f += .5) milkrun.show(f);
        const stepped = pixels();
        milkrun.show(0);
        const first = pixels();
        milkrun.show(700);
        const sought = pixels();
        const share = (a, b) => {
            let count = 0;
            for (let k = 0; k < a.length; k += 4) count += [0, 1, 2, 3].some(c => Math.abs(a[k + c] - b[k + c]) > 8);
            return count / (a.length / 4);
        };
        return canvases.map((_, k) => [share(stepped[k], sought[k]), share(stepped[k], first[k])]);
    }""")
    for stepped, moved in differ:
        assert stepped < 0.001 < moved


def test_of_a_thousand_points_few_are_drawn_a_step(opened, thousand):
    """At most 150 on the average of 300 steps, and between two steps no still layer is touched."""
    page = opened(thousand)
    drawn = page.ask("""() => {
        milkrun.show(400);
        const before = milkrun.points_drawn;
        for (let f = 401; f <= 700; f++) milkrun.show(f);
        const points = milkrun.points_drawn.map((n, k) => (n - before[k]) / 300), layers = milkrun.layers_drawn;
        for (let f = 700; f < 701; f += .1) milkrun.show(f);
        return { points, steps: milkrun.layers_drawn.map((n, k) => n - layers[k]) };
    }""")
    assert all(0 < mean <= 150 for mean in drawn["points"]), drawn
    assert drawn["steps"] == [0, 0]


def test_dark_and_calm_and_narrow(opened, cvrp):
    """Themes differ; with reduced motion only whole frames are shown; a telephone needs no sideways scrolling."""
    shots = {}
    for scheme in ("light", "dark"):
        page = opened(cvrp, "#frame=20", color_scheme=scheme, reduced_motion="reduce")
        page.drawn()
        shots[scheme] = page.page.screenshot()
    assert shots["light"] != shots["dark"]
    moments = page.ask("""() => new Promise(done => {
        const seen = [];
        milkrun.play(true);
        const look = () => {
            seen.push(+document.getElementById("seek").value);
            if (new Set(seen).size > 4) { milkrun.play(false); done(seen); } else requestAnimationFrame(look);
        };
        look();
    })""")
    assert all(moment == int(moment) for moment in moments)
    page.page.emulate_media(color_scheme="light")
    page.page.locator('html[data-theme="light"]').wait_for(state="attached")  # the change arrives asynchronously
    page.page.set_viewport_size({"width": 390, "height": 844})
    page.drawn()
    assert page.ask("() => document.documentElement.scrollWidth") == 390
    page.ask("() => { document.getElementById('step').textContent = '1999'; steps.textContent = ' / 2000'; }")
    play, speed = (page.page.locator(name).bounding_box() for name in ("#play", "#speed"))
    assert play["y"] == pytest.approx(speed["y"], abs=4)  # in one line, however long the episode
    transport = page.page.locator("footer").bounding_box()
    assert transport["y"] + transport["height"] <= 844 < page.ask("() => document.documentElement.scrollHeight")


def colours_in(picture, box=None):
    """The pixels of a screenshot, (h, w, 3), or of the box in its middle."""
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)
    if box is None:
        return pixels
    top, left = (side // 2 - box // 2 for side in pixels.shape[:2])
    return pixels[top : top + box, left : left + box]


def test_a_pile_is_seen_from_all_sides(opened, piles):
    """Boxes in light and shade, the target outlined, a line on the ground, another view when turned, in two panels."""
    page = opened(piles, viewport={"width": 1000, "height": 640})
    canvases = page.page.locator(".stage canvas")
    assert canvases.count() == 2
    page.drawn()
    outlined = canvases.first.screenshot()
    dark = (colours_in(outlined).max(axis=2) < 60).sum()  # the outline is nearly black
    assert len(np.unique(colours_in(outlined, 8).reshape(-1, 3), axis=0)) >= 3
    page.press("End")
    page.drawn()
    ended = canvases.first.screenshot()
    assert dark > 50 > (colours_in(ended).max(axis=2) < 60).sum()
    red, green, blue = np.moveaxis(colours_in(outlined) - colours_in(ended), 2, 0)
    yellow = (blue < -60) & (red > -40) & (green > -60)
    assert yellow[len(yellow) * 3 // 4 :].sum() > 100  # the line, before the boxes
    box = canvases.first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.page.mouse.move(x, y)
    assert page.page.locator("#tip").is_hidden()
    page.press("Home")
    page.drawn()
    assert page.page.locator("#tip").inner_text().startswith("box ")  # for a resting pointer
    page.page.mouse.down()
    page.page.mouse.move(x + 90, y, steps=2)
    page.page.mouse.up()
    page.drawn()
    turned = canvases.first.screenshot()
    assert (np.abs(colours_in(turned) - colours_in(outlined)).max(axis=2) > 20).mean() > 0.02
    page.press("r")
    page.drawn()
    again = np.abs(colours_in(canvases.first.screenshot()) - colours_in(outlined)).max(axis=2) > 20
    assert again.mean() < 0.005
    assert page.page.locator("#ticks i").count() == 11


def test_without_webgl_the_rest_works(opened, piles):
    """The panel shows a message; sentences, choices and clock still work."""
    page = opened(
        piles,
        faults=("WebGL",),
        script="""
        const given = HTMLCanvasElement.prototype.getContext;
        HTMLCanvasElement.prototype.getContext = function (kind, ...more) {
            return kind.startsWith("webgl") ? null : given.call(this, kind, ...more);
        };""",
    )
    assert "no WebGL" in page.page.locator(".stage").first.text_content()
    page.press("ArrowRight")
    assert page.step() == 1 and page.page.locator(".now").first.text_content().startswith("Step 2: → box 10")


def test_the_page_of_every_world_opens(opened, folder):
    """Three random steps of each, as instances of one page: no error, no request, a sentence and a picture for each."""
    groups = []
    for id in list_worlds():
        world = make(id, 1, seed=1, autoreset="disabled")
        world.reset()
        groups.append(record(world, policies_for(id)["random"](0), name="random", max_steps=3))
        world.close()
    path = write_page(groups, folder / "worlds.html", title="Every world")
    page = opened(path, viewport={"width": 640, "height": 400})
    for k, (episode,) in enumerate(groups):
        assert page.page.locator(".now").text_content().startswith("Step 1: "), episode.world
        assert page.page.locator(".stage canvas").count() >= 1, episode.world
        page.press("End")
        page.drawn()
        page.press("Home", "n")
        following = (k + 1) % len(groups)
        page.page.wait_for_url(f"**/worlds.html#frame=*&instance={following}")


def test_a_language_that_is_no_tag_costs_nothing(opened, folder):
    """Intl refuses "en-US@posix" while uPlot loads: the chart works all the same."""
    language = """Object.defineProperty(Navigator.prototype, "language", {
        get: () => "en-US@posix", configurable: true });"""
    page = opened(write_page([tiny()], folder / "language.html"), script=language)
    assert page.ready == "1" and page.page.locator(".plot .u-over").count() == 1
    other = opened(write_page([tiny("b")], folder / "german.html"), locale="de-DE")
    assert other.ask("() => navigator.language") == "de-DE"


def test_only_costs_have_a_gap_in_percent(opened, folder):
    """-3 behind -2 is 50 % more cost; 1 behind -0.02, or 3 behind 4, is a difference of 1.02 or 1."""

    def chips(name, best, other, **more):
        episodes = [tiny("a", objective=best, **more), tiny("b", objective=other, **more)]
        return opened(write_page(episodes, folder / name)).page.locator(".chip").all_text_contents()

    assert chips("cost.html", -2.0, -3.0, is_cost=True) == ["best of these", "50.0 % behind"]
    assert chips("near.html", -0.02, -1.04) == ["best of these", "1.02 behind"]
    assert chips("gain.html", 4.0, 3.0) == ["best of these", "1 behind"]


def test_an_address_shows_what_the_camera_follows(opened, folder):
    """A box flies 30 m away in 60 frames, and the camera with it: the picture of the last frame is the same whether the
    page was opened there, came there, or had its view reset."""
    flown = np.zeros((61, 1, 3))
    flown[:, 0, 0] = np.linspace(0, 30, 61)
    camera = {"position": [-3.0, 0.0, 2.0], "look_at": [0.0, 0.0, 0.0], "follow": "drone"}
    box = {
        "name": "drone",
        "kind": "bodies",
        "shape": "box",
        "size": {"const": pack(np.ones((1, 3)))},
        "pos": {"time": True, **pack(flown, True, 1e-4)},
        "quat": {"const": pack(np.array([[1.0, 0, 0, 0]]))},
        "colour": {"const": pack(np.array([16]))},
        "target": -1,
    }
    base = tiny("flown").data | {
        "steps": 60,
        "frames": 60,
        "action": pack(np.zeros(60)),
        "reward": pack(np.zeros(60)),
        "camera": camera,
        "illegal": pack(np.zeros(60, np.uint8)),
        "illegal_reasons": [],
        "agents": ["agent"],
        "names": [[]],
        "window": [-40.0, -40.0, 0.0, 40.0, 40.0, 10.0],
        "marks": [box],
        "gauges": {},
        "series": {"return": pack(np.zeros(61))},
        "scores": None,
    }
    episode = Episode({key: value for key, value in base.items() if key not in ("chart", "why", "mask", "scores")})
    path = write_page([episode], folder / "flown.html")

    def boxed(page):
        page.drawn()
        pixels = colours_in(page.page.locator(".stage canvas").screenshot())
        return (abs(pixels - np.array([0, 114, 178])).max(axis=2) < 90).mean()

    came = opened(path)
    start = boxed(came)
    came.press("End")
    opened_there = opened(path, "#frame=60")
    assert start > 0.005 and boxed(came) == pytest.approx(start, rel=0.3)
    assert boxed(opened_there) == pytest.approx(start, rel=0.3)
    opened_there.press("r")
    assert boxed(opened_there) == pytest.approx(start, rel=0.3)


def test_late_served_and_crashed_differ_by_shape(opened, folder):
    """In the legend, and in the picture of places and a drone: shapes readable without red and green."""
    legend = [["open", 1, "disc"], ["late", 2, "disc"], ["served", 3, "disc"], ["crashed", 2, "drone"]]

    def inked(name, code):
        places = {
            "name": "customers",
            "kind": "points",
            "xy": {"const": pack(np.array([[0.3, 0.5]]))},
            "shape": "disc",
            "colour": {"const": pack(np.array([code]))},
            "size": {"const": pack(np.array([1.0]))},
        }
        drone = {
            "name": "drone",
            "kind": "vehicle",
            "shape": "drone",
            "colour": code,
            "trail": False,
            "shown": True,
            "xy": {"time": True, **pack(np.tile([0.7, 0.5], (5, 1)))},
        }
        page = opened(write_page([tiny(name, marks=[places, drone], legend=legend)], folder / f"{name}.html"))
        shown = [entry.get_attribute("class") for entry in page.page.locator(".legend span").all()]
        assert shown[:4] == [None, "diamond", None, "cross"]
        page.drawn()
        return (colours_in(page.page.locator(".stage").screenshot()) < 245).any(axis=2)

    late, served, open_ = inked("late", 2), inked("served", 3), inked("open", 1)
    half = late.shape[1] // 2
    for side in (slice(0, half), slice(half, None)):
        assert (late[:, side] != served[:, side]).sum() > 10
    assert (served != open_).sum() < 10


def test_scrolling_parts_are_reached_by_keys(opened, drones):
    """Choices, sentences and lanes that are higher than their room: each can be focused, or holds what can."""
    page = opened(drones, viewport={"width": 1000, "height": 600})
    page.page.locator(".choices summary").first.click()
    scrolled, lost = page.ask("""() => {
        const scrolls = e => ["auto", "scroll"].includes(getComputedStyle(e).overflowY)
            && e.scrollHeight > e.clientHeight + 1;
        const found = [...document.querySelectorAll("main *")].filter(scrolls);
        return [found.length, found.filter(e => e.tabIndex < 0 && !e.querySelector("button, a")).map(e => e.outerHTML)];
    }""")
    assert scrolled >= 2 and lost == []


def test_a_chart_that_cannot_start_costs_the_chart_alone(opened, folder):
    """uPlot fails to load, as in an unsupported browser: a sentence is in its place."""
    lost = "Object.defineProperty(window, 'uPlot', { get: () => undefined, set: () => {} });"
    page = opened(write_page([tiny()], folder / "lost.html"), script=lost)
    assert page.ready == "1" and "could not start the chart" in page.page.locator(".plot").first.text_content()
    page.press("ArrowRight")
    assert page.step() == 1


def test_a_world_without_a_scene_shows_its_pictures(opened, folder):
    """The picture of the frame shown, large; without pictures a sentence; the scores of a policy on its choices."""
    files = []
    for shade in range(5):
        kept = io.BytesIO()
        Image.fromarray(np.full((60, 80, 3), 50 * shade, np.uint8)).save(kept, "WEBP", lossless=True)
        files.append(base64.b64encode(kept.getvalue()).decode())
    scores = pack(np.arange(24, dtype=np.float32).reshape(4, 6))
    drawn = tiny("a", marks=[], images=[{"name": "camera", "every": 2, "frames": files[::2]}], scores=scores)
    page = opened(write_page([drawn, tiny("b", marks=[])], folder / "drawn.html"), faults=("willReadFrequently",))
    shade = """() => new Promise(done => {
        const canvas = document.querySelector(".camera.large canvas"), look = () => canvas.dataset.shown === WANTED
            ? done(canvas.getContext("2d").getImageData(40, 30, 1, 1).data[0]) : requestAnimationFrame(look);
        look();
    })"""
    assert page.ask(shade.replace("WANTED", "'0'")) == 0
    page.press("ArrowRight", "ArrowRight", "ArrowRight")
    assert page.ask(shade.replace("WANTED", "'1'")) == 100
    assert "no picture" in page.page.locator(".stage").nth(1).text_content()
    page.page.locator(".choices summary").first.click()
    page.page.locator(".choices li").first.wait_for()
    assert page.page.locator(".score").all_text_contents() == ["18", "19", "20", "21", "22", "23"]


# -- columns -----------------------------------------------------------------------------------------------------------

VECTORS = [
    (
        {
            "dtype": "int16",
            "shape": [3, 2],
            "delta": True,
            "scale": 0.5,
            "offset": 10.0,
            "data": "eNpjYHjBrMNo8ONK3fNmABexBP0=",
        },
        [10, 510, 160, -490, -16374, 16393.5],
    ),
    (
        {"dtype": "uint8", "shape": [3, 2], "bits": 10, "xor": True, "data": "eNr7z8jE8IMZAAgAAf4="},
        [int(bit) for bit in "111111111010111111101010000001"],
    ),
    (
        {"dtype": "float64", "shape": [3], "data": "eNqbNRMEdtozMGzYx/RW58CcUoYOmyfmdQCTwgtH"},
        [0.1, -14.462911566719413, 1e300],
    ),
]


def test_columns_decode_in_the_browser_as_in_python(opened, cvrp):
    """Known vectors, and 200 random arrays of every type and option, come back from the browser unchanged."""
    rng = np.random.default_rng(19)
    columns, arrays = [column for column, _ in VECTORS], [np.array(values) for _, values in VECTORS]
    for _ in range(200):
        shape = (int(rng.integers(1, 9)), *rng.integers(1, 9, rng.integers(0, 3)).tolist())
        dtype = rng.choice(["bool", "uint8", "int16", "int32", "float32", "float64"])
        array = rng.normal(0, 1e8 if dtype == "int32" else 100, shape)
        array = array > 0 if dtype == "bool" else array.clip(0 if dtype == "uint8" else None, None).astype(dtype)
        scale = 0.01 if dtype == "float64" and rng.random() < 0.5 else None
        columns.append(pack(array, bool(rng.random() < 0.5), scale))
        arrays.append(decode(columns[-1]) if scale else array)
        if scale:
            np.testing.assert_allclose(arrays[-1], array, atol=scale / 2 + 1e-9)
    page = opened(cvrp)
    back = page.ask("columns => Promise.all(columns.map(c => milkrun.decode(c)))", json.loads(json.dumps(columns)))
    for found, array in zip(back, arrays, strict=True):
        assert found["data"] == array.astype(np.float64).ravel().tolist()
    lists = {
        "ragged": True,
        "keep": {"shape": [5], "values": [0, 1, 2, 0, 1]},
        "add": {"shape": [5], "values": [1, 1, 1, 1, 0]},
        "flat": {"shape": [4], "values": [0, 4, 2, 0]},
    }
    assert page.ask("v => milkrun.decodeList(v, 4)", lists) == [[0], [0, 4], [0, 4, 2], [0], [0]]


# -- safety ------------------------------------------------------------------------------------------------------------

HOSTILE = "</script><script>window.pwned=1</script><!--<img src=x onerror=window.pwned=2>\u2028&lt;"


def test_hostile_names_are_shown_letter_by_letter(opened, folder):
    """In every text of an episode, and as names of figures that plain objects would stumble over."""
    episode = tiny(f"p{HOSTILE}", word=HOSTILE)
    for key in ("series", "gauges"):
        episode.data[key]["__proto__"] = next(iter(episode.data[key].values()))
        episode.data[key]["constructor"] = next(iter(episode.data[key].values()))
    page = opened(write_page([[episode], [tiny()]], folder / "hostile.html", title=HOSTILE), "#frame=1")
    texts = {
        "h1": HOSTILE,
        ".panel h2": f"p{HOSTILE}",
        ".legend span >> nth=0": f"a place{HOSTILE}",
        ".kinds span >> nth=0": f"drives{HOSTILE}",
    }
    for place, text in texts.items():
        assert page.page.locator(place).first.text_content() == text
    page.page.mouse.move(*page.ask("name => milkrun.pixel(0, name, 1)", f"places{HOSTILE}"))
    assert page.page.locator("#tip div").first.text_content() == f"place 1{HOSTILE}"
    page.page.locator(".choices summary").click()
    page.page.locator(".choices li").first.wait_for()
    assert page.page.locator(".gauge span").all_text_contents() == [
        f"load{HOSTILE} 1 / 4",
        "__proto__ 1 / 4",
        "constructor 1 / 4",
    ]
    figures = page.page.locator("select[aria-label='figure over time']")
    assert figures.locator("option").all_text_contents() == ["return", f"driven{HOSTILE}", "__proto__", "constructor"]
    figures.select_option("__proto__")
    page.press("End")
    page.drawn()
    assert page.ask("() => [window.pwned, document.scripts.length, document.images.length]") == [None, 4, 0]


def test_a_long_name_is_cut_and_whole_in_its_tooltip(opened, folder):
    """After 200 characters; the page does not grow with it."""
    page = opened(write_page([tiny("x" * 10_000)], folder / "long.html"))
    name = page.page.locator(".panel h2")
    assert len(name.text_content()) == 200 and name.get_attribute("title") == "x" * 10_000
    assert page.ask("() => document.documentElement.scrollWidth") == 1280


def test_the_page_policy_refuses_changed_scripts_and_requests(opened, cvrp):
    """A script added later, a request, and a page of whose script one letter was changed."""
    page = opened(cvrp, faults=("Content Security Policy", "TrustedScript", "changed.html"))
    refused = page.ask("""() => {
        const script = document.createElement("script");
        try { script.text = "window.pwned = 3"; } catch (error) { return error.name; }
        document.body.appendChild(script);
        return "taken";
    }""")
    assert refused == "TypeError" and page.ask("() => window.pwned === undefined")
    page.ask("""() => {
        const script = document.createElement("script");
        script.append("window.pwned = 4");
        document.body.append(script);
    }""")
    assert page.ask("() => window.pwned === undefined")
    assert page.ask("() => fetch('data:text/plain,x').then(() => 'loaded', () => 'refused')") == "refused"
    changed = cvrp.with_name("changed.html")
    changed.write_text(cvrp.read_text().replace("// The player: one clock", "// The player: one block"))
    page.page.goto(changed.as_uri())
    assert page.page.locator("html[data-ready]").count() == 0 and page.page.locator(".panel").count() == 0


def damaged(what):
    """A page's data with one thing broken."""
    data = tiny().data
    big = base64.b64encode(zlib.compress(bytes(5000))).decode()
    return {
        "another version": data | {"version": 2},
        "broken base64": data | {"reward": {"dtype": "float64", "shape": [4], "data": "@@@"}},
        "broken zlib": data | {"reward": {"dtype": "float64", "shape": [4], "data": "AAAA"}},
        "too many bytes": data | {"reward": {"dtype": "float64", "shape": [4], "data": big}},
        "too few values": data | {"reward": {"shape": [4], "values": [1]}},
        "an unknown type": data | {"reward": {"dtype": "int64", "shape": [4], "data": big}},
        "a huge shape": data | {"reward": {"dtype": "float64", "shape": [2**30], "data": big}},
        "a list that keeps too much": data
        | {
            "marks": [
                data["marks"][0],
                data["marks"][1]
                | {"stops": data["marks"][1]["stops"] | {"keep": {"shape": [5], "values": [0, 9, 2, 3, 4]}}},
            ]
        },
    }[what]


def test_damaged_data_is_one_sentence(opened, folder):
    """Invalid data: no partial page, no error in the console, and a sentence with the reason."""
    sound = write_page([tiny()], folder / "sound.html").read_text()
    before, _, after = re.split(r'(?<=id="data">)(.*?)(?=</script>)', sound, maxsplit=1, flags=re.S)
    found = {}
    for what in (
        "another version",
        "broken base64",
        "broken zlib",
        "too many bytes",
        "too few values",
        "an unknown type",
        "a huge shape",
        "a list that keeps too much",
    ):
        groups = [{"label": "", "episodes": [damaged(what)]}]
        data = json.dumps({"format": "milkrun-page", "version": 1, "title": "", "subtitle": "", "groups": groups})
        broken = folder / "damaged.html"
        broken.write_text(before + data + after)
        shown = opened(broken)
        assert shown.ready == "error" and shown.page.locator(".panel").count() == 0
        sentence = shown.page.locator("#panels").text_content()
        found[what] = sentence.removeprefix("The data of this page cannot be shown: ")
        shown.close()
    assert found == {
        "another version": "this reads milkrun-episode 1, not milkrun-episode 2.",
        "broken base64": "a column is not base64.",
        "broken zlib": "a column cannot be inflated.",
        "too many bytes": "a column has more than the 32 bytes of its shape.",
        "too few values": "a column of 4 has other values.",
        "an unknown type": "a column has the type int64.",
        "a huge shape": "a column of 8589934592 bytes is above 67108864.",
        "a list that keeps too much": "at moment 1 a list keeps 9 of 1.",
    }
