"""Pages as files: their content, their size, refused input. test_page tests them in a browser."""

import hashlib
import json
import os
import re
from pathlib import Path

import pytest

from milkrun.core.errors import ConfigError
from milkrun.render import canvas
from milkrun.replay import page
from milkrun.replay.page import write_page
from tests.replay.episodes import pile, tiny

ASSETS = Path(page.__file__).parent / "assets"
SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", re.S)


def data_of(path):
    return json.loads(next(body for how, body in SCRIPT.findall(path.read_text()) if "json" in how))


def test_the_same_episodes_give_the_same_bytes(tmp_path):
    """A page depends on its episodes alone: not on the time, the path or the order of a dict."""
    first = write_page([tiny("a"), tiny("b")], tmp_path / "one.html")
    assert first == tmp_path / "one.html"
    assert first.read_bytes() == write_page([tiny("a"), tiny("b")], str(tmp_path / "two.html")).read_bytes()


def test_a_page_holds_its_episodes_unchanged(tmp_path):
    """A list of lists becomes instances; the data reads back as it was."""
    written = data_of(write_page([[tiny("a"), tiny("b")], [tiny("c", row=3, episode=2)]], tmp_path / "page.html"))
    assert [group["label"] for group in written["groups"]] == ["row 0", "row 3, episode 2"]
    assert written["groups"][0]["episodes"] == [tiny("a").data, tiny("b").data]
    assert (written["title"], written["subtitle"]) == ("Tiny", "Tiny-v0 · seed 0 · 2 instances")
    assert data_of(write_page([tiny()], tmp_path / "page.html", title="Mine"))["title"] == "Mine"
    assert data_of(write_page([tiny()], tmp_path / "page.html", source="a.vrp"))["subtitle"] == "Tiny-v0 · a.vrp"


def test_pages_without_their_data_are_small(tmp_path):
    """160 KB, and 800 KB with bodies, which alone need the 3-D view."""
    for episode, most in ((tiny(), 160_000), (pile("a", 0), 800_000)):
        path = write_page([episode], tmp_path / "page.html")
        data = next(body for how, body in SCRIPT.findall(path.read_text()) if "json" in how)
        assert path.stat().st_size - len(data) <= most
    assert "WebGLRenderer" not in write_page([tiny()], tmp_path / "page.html").read_text()


def test_no_text_leaves_the_element_of_the_data(tmp_path):
    """A name cannot end the script element: the page has as many as without it, and the name reads back."""
    name = "</script><script>alert(1)</script><!--\u2028@title@"
    path = write_page([tiny(word=name)], tmp_path / "page.html", title=name)
    plain = write_page([tiny()], tmp_path / "plain.html")
    assert len(SCRIPT.findall(path.read_text())) == len(SCRIPT.findall(plain.read_text()))
    assert data_of(path)["title"] == name and data_of(path)["groups"][0]["episodes"][0]["agents"][0] == f"truck{name}"


@pytest.mark.parametrize(
    ("episodes", "words"),
    [
        ([], "the list is empty"),
        (None, "a page needs a list of episodes, not a NoneType"),
        ([[3]], "a page shows episodes, as `record` and `compare` return them, not a int"),
        ([[]], "0 policies: 1 to 3"),
        ([tiny(name) for name in "abcd"], "4 policies: 1 to 3"),
        ([tiny("a"), tiny("a")], "'a' is given twice"),
        (
            [tiny("a"), tiny("b", instance="f" * 16)],
            f"instance {'0' * 16} and milkrun/Tiny-v0, row 0, instance {'f' * 16}",
        ),
    ],
)
def test_incomparable_episodes_are_refused(episodes, words, tmp_path):
    """The error has the number, the name, or both instances, and no file is written."""
    with pytest.raises(ConfigError, match=re.escape(words)):
        write_page(episodes, tmp_path / "page.html")
    assert os.listdir(tmp_path) == []


def test_a_page_that_is_too_large_is_refused_by_its_largest_part(tmp_path, monkeypatch):
    """The sentence names the largest part, which can be left out."""
    monkeypatch.setattr(page, "MOST_BYTES", 2**20)
    images = [{"name": "camera", "every": 1, "frames": ["A" * 2**21]}]
    with pytest.raises(ConfigError, match=r"2\.0 MB, above 1; the largest part is images of 'a' in row 0 with 2\.0 MB"):
        write_page([tiny("a", images=images)], tmp_path / "page.html")


def test_a_failed_write_keeps_the_old_page(tmp_path):
    """Atomic: an old page stays intact, the error names a missing folder, and no temporary file remains."""
    (tmp_path / "page.html").mkdir()
    for path in (tmp_path / "page.html", tmp_path / "none" / "page.html"):
        with pytest.raises(ConfigError, match="cannot be written"):
            write_page([tiny()], path)
    assert os.listdir(tmp_path) == ["page.html"]


def test_libraries_are_those_of_their_readme():
    """Their SHA-256, and that both are licensed."""
    listed = dict(re.findall(r"`(\S+\.js)`.*`([0-9a-f]{64})`", (ASSETS / "vendor" / "README.md").read_text()))
    files = list((ASSETS / "vendor").glob("*.js"))
    assert listed == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert {path.name for path in (ASSETS / "vendor").glob("*.LICENSE")} == {"three.LICENSE", "uPlot.LICENSE"}


def test_scripts_are_plain_and_safe():
    """Nothing that a page's policy forbids, or that would turn text into markup; lines of at most 120 characters."""
    for path in ASSETS.glob("*.js"):
        text = path.read_text()
        assert text.startswith("// ") and max(map(len, text.splitlines())) <= 120
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|\beval\b|Function\(|localStorage|fetch\(", text), path


def colours_of(block):
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))


CSS = (ASSETS / "page.css").read_text()
THEMES = {name: colours_of(block) for name, block in re.findall(r":root(\[[^]]*\])? \{(.*?)\n\}", CSS, re.S)}


def luminance(colour):
    shares = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES.values(), ids=["light", "dark"])
def test_text_can_be_read(theme):
    """A contrast of at least 4.5 to 1 of every colour of text on every ground that it stands on (WCAG AA)."""
    pairs = [(text, ground) for text in ("ink", "muted") for ground in ("bg", "card", "soft")]
    pairs += [(text, ground) for text in ("bad", "good") for ground in ("card", "soft")]
    pairs += [("on-accent", "accent"), ("card", "ink"), ("accent", "card")]
    poor = {pair: contrast(*(theme[name] for name in pair)) for pair in pairs}
    assert {pair: ratio for pair, ratio in poor.items() if ratio < 4.5} == {}


def test_black_or_white_can_be_read_on_every_colour():
    """The rule of theme.js: black above a luminance of 0.1791, else white."""
    script = (ASSETS / "theme.js").read_text()
    assert "> .1791" in script
    grounds = {*re.findall(r"#[0-9a-f]{6}", script), *THEMES[""].values(), *THEMES['[data-theme="dark"]'].values()}
    for ground in grounds:
        assert contrast(ground, "#000000" if luminance(ground) > 0.1791 else "#ffffff") >= 4.5


def test_light_colours_are_those_of_the_canvas():
    """A point has the same colour in a page and in `render()`."""
    hexed = ["#{:02x}{:02x}{:02x}".format(*colour) for colour in canvas.PALETTE]
    light = re.search(r"LIGHT = \[(.*?)\]", (ASSETS / "theme.js").read_text(), re.S)[1]
    assert re.findall(r"#[0-9a-f]{6}", light) == hexed
    for name, colour in (("ink", canvas.INK), ("open", canvas.OPEN), ("late", canvas.LATE), ("served", canvas.SERVED)):
        assert THEMES[""][name] == "#{:02x}{:02x}{:02x}".format(*colour)
