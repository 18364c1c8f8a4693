"""Runs the code and the commands of the pages, and compares their generated parts with the code.

A page is one program: all its `python` blocks, in order, in a separate process, each at its lines in the page, so that
a traceback has the line of the page. On some pages each block stands alone and begins with the names of an empty
script. A page asserts its claims, so a page that is no longer true fails here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import milkrun
from tests.docs.generated import PAGES, PICTURE, ROOT, fill, picture

OPTIONAL = {
    "torch": r"torch|rl4co",
    "rl4co": r"rl4co",
    "matplotlib": r"milkrun\.replay",
    "ray": r"rllib",
    "stable_baselines3": r"sb3|baselines3|stableparallel",
    "tianshou": r"tianshou",
    "pettingzoo": r"pettingzoo",
    "msgpack": r"tcp://|\"auto_start\": True",
}
"""Optional packages, and the pattern by which a program is known to need each."""
FROM_DAT = ROOT / "docs" / "from-dat.md"
ALONE = [ROOT / "README.md", ROOT / "docs" / "use-it-with.md", FROM_DAT]
"""Pages whose blocks stand alone."""
FEWER = {
    FROM_DAT: """
import numba
numba.config.DISABLE_JIT, jit = 1, numba.config.DISABLE_JIT
import tianshou.data
numba.config.DISABLE_JIT = jit
from milkrun.compat.dat import smoke
gym_test, stableparallel_test, test_tianshou_env = smoke.gym_test, smoke.stableparallel_test, smoke.test_tianshou_env
small = {"conf_path": {"size": 36, "ground_cell": 2.0, "max_vehicles": 4, "max_sim_steps": 60}, "seed": 1}
smoke.gym_test = lambda: gym_test(100, **small)
smoke.stableparallel_test = lambda n_envs, gym: stableparallel_test(n_envs // 8, gym, 64, **small)
smoke.test_tianshou_env = lambda args: test_tianshou_env(type(args)(n_envs=args.n_envs // 2, steps=40), **small)
"""
}
"""Code run before pages whose calls take minutes: it makes the same calls short; tianshou is not compiled."""
KINDS = {"python": "run", "console": "commands", "text": "shown", "bibtex": "shown", "mermaid": "shown"}
FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>[^\n`]*)$", re.MULTILINE)

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, kind: str) -> list[tuple[int, list[str]]]:
    """(number of its first line, lines) of each block of a kind."""
    lines = page.read_text().splitlines()
    fences = [i for i, line in enumerate(lines) if line.startswith("```")]
    return [(a + 1, lines[a + 1 : b]) for a, b in zip(fences[::2], fences[1::2]) if lines[a] == f"```{kind}"]


def program(page: Path) -> str:
    """The page with everything but its python blocks blanked."""
    lines = [""] * len(page.read_text().splitlines())
    for first, block in blocks(page, "python"):
        lines[first : first + len(block)] = block
    return "\n".join(lines) + "\n"


def one_by_one(page: Path) -> str:
    """A program that runs each block as its own `__main__`, all in one process, since packages take long to load."""
    parts = ["\n" * first + "\n".join(block) + "\n" for first, block in blocks(page, "python")]
    return (
        "import sys, types\n"
        f"for part in {parts!r}:\n"
        "    sys.modules['__main__'] = main = types.ModuleType('__main__')\n"
        f"    exec(compile(part, {str(page)!r}, 'exec'), vars(main))\n"
    )


def environment() -> dict[str, str]:
    """Environment variables with which a child imports the same milkrun."""
    return {**os.environ, "PYTHONPATH": str(Path(milkrun.__file__).parents[1])}


def run(command: list[str], folder: Path, seconds: float = 540) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder."""
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=seconds)


class Forks:
    """Runs programs as `run` does, in forks of a process that has loaded the large packages; see page_process.py."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def run(self, arguments: list[str], folder: Path) -> tuple[int, str]:
        """The exit code and the output. A process that does not answer is ended, and the next call starts another."""
        if self.process is None:
            command = [sys.executable, str(Path(__file__).with_name("page_process.py"))]
            self.process = subprocess.Popen(
                command,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        said = folder / "said.txt"
        try:
            print(json.dumps([str(folder), str(said), arguments]), file=self.process.stdin, flush=True)
            code = int(self.process.stdout.readline())
        except BaseException:
            self.close()
            raise
        return code, said.read_text()

    def close(self) -> None:
        """Ends the process and its children."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()
            self.process = None


@pytest.fixture(scope="module")
def forks():
    forks = Forks()
    yield forks
    forks.close()


def missing_packages(source: str) -> list[str]:
    """Optional packages that a program needs and this environment lacks."""
    return [name for name, sign in OPTIONAL.items() if re.search(sign, source) and find_spec(name) is None]


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "python")], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_code_of_a_page_runs(page, tmp_path, forks):
    """Without a failed assertion."""
    if page in ALONE:
        play(page, tmp_path, FEWER.get(page, ""))
    else:
        code, said = forks.run([written(program(page), page, tmp_path)], tmp_path)
        assert code == 0, said


@pytest.mark.long
@pytest.mark.timeout(3700)
@pytest.mark.parametrize("page", FEWER, ids=lambda page: page.name)
def test_the_code_of_a_page_runs_as_written(page, tmp_path):
    """With all environments and steps of the page."""
    play(page, tmp_path, seconds=3600)


def play(page, tmp_path, first="", seconds=540):
    """Runs the blocks of a page that stand alone, after `first`, in a new process, since some start processes."""
    script = written(first + one_by_one(page), page, tmp_path)
    done = run([sys.executable, "-W", "error::DeprecationWarning:__main__", script], tmp_path, seconds)
    assert done.returncode == 0, done.stderr


def written(source: str, page: Path, folder: Path) -> str:
    """The path of a script; skips the test if a package that it needs is not installed."""
    if absent := missing_packages(source):
        pytest.skip(f"{page.name} needs {', '.join(absent)}")
    script = folder / f"{page.stem.replace('-', '_').lower()}.py"
    script.write_text(source)
    return str(script)


@pytest.mark.parametrize("page", ALONE, ids=lambda page: page.name)
def test_a_block_that_stands_alone_makes_its_worlds_known(page):
    """Gymnasium knows a world after `import milkrun`, in this very block, or by an id that begins with `milkrun:`."""
    for first, block in blocks(page, "python"):
        source = "\n".join(block)
        makes = re.search(r"gymnasium\.make\w*\(\s*[\"']milkrun/", source)
        assert not makes or re.search(r"^(import|from) milkrun\b", source, re.MULTILINE), f"{page.name}, line {first}"


@pages
def test_every_block_is_of_a_known_kind(page):
    """A block spelt `py`, or indented, would silently never be run."""
    opening = list(FENCE.finditer(page.read_text()))[::2]
    assert {fence["kind"] for fence in opening} <= KINDS.keys()
    assert not any(fence["indent"] for fence in opening)


def commands() -> list[str]:
    lines = [line for page in PAGES for _, block in blocks(page, "console") for line in block]
    shown = {line.removeprefix("$ ").partition("  #")[0].strip() for line in lines if line.startswith("$ milkrun ")}
    return sorted(shown)


@pytest.mark.skipif(find_spec("typer") is None, reason="needs the extra 'cli'")
@pytest.mark.parametrize("command", commands())
def test_a_command_shown_works(command, tmp_path, forks):
    """`bench` and `demo`, which take long, and `simulate`, which waits, only parse their options."""
    words = shlex.split(command)[1:]
    if words[0] in ("bench", "demo", "simulate"):
        words.append("--help")
    code, said = forks.run(["-m", "milkrun", *words], tmp_path)
    assert code == 0, said


def test_every_make_target_shown_exists():
    """In commands and in running text, `make demo` and the like."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {word for page in PAGES for word in re.findall(r"(?:`|\$ )make ([a-z]+)", page.read_text())}
    assert {"demo", "test"} <= shown <= targets


@pages
def test_generated_parts_are_up_to_date(page):
    """If not: python -m tests.docs.generated."""
    assert fill(page.read_text()) == page.read_text()


def test_picture_is_up_to_date():
    """Within the rounding of a machine: no pixel differs by more than 3 % of its range."""
    image = pytest.importorskip("matplotlib.image", reason="needs the extra 'cli' to read a PNG")
    stored = image.imread(PICTURE)[..., :3]
    assert np.abs(stored - picture().pixels / 255).max() < 0.03


def test_every_registered_world_has_a_page():
    """Under the lower-case name of its id, with its field table and in the menu."""
    menu = (ROOT / "mkdocs.yml").read_text()
    for id in milkrun.list_worlds():
        name = f"worlds/{milkrun.world_spec(id).name.lower()}.md"
        assert f"<!-- fields {id} -->" in (ROOT / "docs" / name).read_text()
        assert name in menu


@pytest.mark.parametrize("page", [p for p in PAGES if p != FROM_DAT], ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page):
    """As `core/world.py`: a path from the root of the repository, the package or the tests; from-dat.md names DAT's."""
    named = set(re.findall(r"`([\w-]+/[\w/.-]+\.(?:py|md))`", page.read_text()))
    folders = (ROOT, ROOT / "src" / "milkrun", ROOT / "tests", ROOT / "src")
    assert [name for name in sorted(named) if not any((folder / name).exists() for folder in folders)] == []


@pages
def test_no_page_names_a_place_outside_the_repository(page):
    """Neither a folder of a machine nor working papers; mkdocs checks links between pages."""
    text = page.read_text()
    assert not re.search(r"(?<![\w.:/])/(work|root|home|tmp|usr|opt|mnt|Users)\b", text)
    assert not re.search(r"(?<!\]\()\.\./|\bshared/|\bspecs?/|\bseeds/", text)


def test_links_of_the_readme_lead_somewhere():
    """Those of the other pages are checked by mkdocs."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="needs the extra 'docs'")
def test_the_site_builds_without_a_warning(tmp_path):
    """mkdocs --strict: every link and anchor leads somewhere. (--quiet would hide the warnings from --strict.)"""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = run(command, ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "worlds" / "cvrp" / "index.html").exists()
