"""Damaged files are read, or refused by a FormatError that names the file.

Files with other line ends, a byte order mark, additional blanks or no end of the last line read as the same. A failing
case is printed whole and can be repeated by its seed.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from milkrun.core.errors import BadInstance, FormatError, MilkrunError
from milkrun.delivery.instances import load_tspd, load_tspd_solution
from milkrun.routing.instances import Instance, read, read_solution, replay
from milkrun.routing.maps.files import read_map
from tests.delivery.test_tspd_files import INSTANCE, PLAN
from tests.routing.instance_files import (
    CVRP,
    HFVRP,
    MDVRP,
    MDVRPTW,
    ORIENTEERING,
    PCVRPTW,
    RES,
    SCORE,
    SERVED,
    SOLOMON,
    TSP,
    VRPSPD,
    VRPTW,
    explicit,
    legs,
)
from tests.routing.map_files import KM
from tests.routing.test_cordeau import SMALL
from tests.routing.test_instance_faults import ROUTES, TOUR, VRPB

pytestmark = pytest.mark.truth

FILES = {
    "tsp": (TSP, read),
    "geo": (legs("GEO", [(10.3, 2), (-3.05, 1), (4, 5.59)]), read),
    "atsp": (explicit("LOWER_DIAG_ROW", "0 1\n0 2 3\n0"), read),
    "cvrp": (CVRP, read),
    "served": (SERVED, read),
    "solomon": (SOLOMON, read),
    "pcvrptw": (PCVRPTW, read),
    "vrpb": (VRPB, read),
    "vrpspd": (VRPSPD, read),
    "vrptw": (VRPTW, read),
    "mdvrp": (MDVRP, read),
    "mdvrptw": (MDVRPTW, read),
    "hfvrp": (HFVRP, read),
    "op": (ORIENTEERING, read),
    "cordeau": (SMALL, read),
    "routes": (ROUTES, read_solution),
    "headed": ("Instance Name : A-n4-k2\nAuthors: Gröt & Sons\nDate 2026-11-16\n\nSolution\n" + ROUTES, read_solution),
    "tour": (TOUR, read_solution),
    "res": (RES, read_solution),
    "score": (SCORE, read_solution),
    # a last directive without a line end is refused, as its number may be truncated: here a node is last
    "tspd": (
        INSTANCE.removesuffix("#FORBID 3\n").replace("#NOVISIT 2\n", "").replace("3.0 0.0", "#FORBID 3\n3.0 0.0"),
        load_tspd,
    ),
    "plan": (PLAN, load_tspd_solution),
    "map": (KM, read_map),
}
"""A good file of each kind, and its reader."""
WORDS = [
    "nan",
    "inf",
    "-1",
    "0",
    "1",
    "2.5",
    "1e400",
    "-1e-400",
    "1e-99",
    "1e15",
    "99999999999999999999",
    "0x10",
    "१",
    "EOF",
    ":",
    "TYPE : CVRP",
    "DIMENSION : 2",
    "DEMAND_SECTION",
    "EDGE_WEIGHT_SECTION",
    "VEHICLE",
    "CUSTOMER",
    "-",
    "Route #1: 1",
    "Route",
    "Cost 1",
    "TOUR_SECTION",
    "VEHICLES_DEPOT_SECTION",
    "CAPACITY_SECTION",
    "TYPE : HFVRP",
    "VEHICLES : 70",
    "#NOVISIT 1",
    "#MAXFLY x",
    "/*",
    "*/",
    "GEO",
    "EXPLICIT",
    '"',
    ",",
    "1_0",
    "\ufeff",
    "\x85",
    "\u2028",
    "\x00",
    "é",
    "",
    " ",
    "\t",
    "16777217",
    "0.1",
    "1.2",
    "+3",
    "-0",
    "00",
    ".",
]


def restyled(text, rng):
    """The same file in another style."""
    if rng.random() < 0.4:
        text = "\n".join(line + " " * int(rng.integers(3)) for line in text.split("\n"))
    if rng.random() < 0.4:
        text += "\n" * int(rng.integers(1, 4))
    if rng.random() < 0.3:
        text = text.rstrip("\n ")
    raw = text.replace("\n", ["\n", "\r\n", "\r"][rng.integers(3)]).encode()
    return b"\xef\xbb\xbf" + raw if rng.random() < 0.3 else raw


def damaged(text, rng):
    """The file with one to four damages."""
    for _ in range(rng.integers(1, 5)):
        lines = text.split("\n")
        i, j = (int(k) for k in rng.integers(len(lines), size=2))
        words = lines[i].split(" ")
        k = int(rng.integers(len(words)))
        at, end = sorted(int(x) for x in rng.integers(len(text) + 1, size=2))
        match rng.integers(12):
            case 0:
                text = text[:at]
            case 1:
                text += text[at:]
            case 2:
                text = text[:at] + text[min(end, at + 12) :]
            case 3:
                text = text[:at] + str(rng.choice(WORDS)) + text[at:]
            case 4:
                text = text[:at] + chr(int(rng.integers(1, 256))) + text[at + 1 :]
            case 5:
                lines[i], lines[j] = lines[j], lines[i]
                text = "\n".join(lines)
            case 6:
                lines.insert(i, lines[j])
                text = "\n".join(lines)
            case 7:
                lines.pop(i)
                text = "\n".join(lines)
            case 8 | 9:
                words[k] = str(rng.choice(WORDS))
                lines[i] = " ".join(words)
                text = "\n".join(lines)
            case 10:
                words.insert(k, str(rng.choice(WORDS)))
                lines[i] = " ".join(words)
                text = "\n".join(lines)
            case _:
                lines[i] += str(rng.choice([" # note", " // note", "\t/* note */", ";", " 7"]))
                text = "\n".join(lines)
    return restyled(text, rng) if rng.random() < 0.2 else text.encode("utf-8" if rng.random() < 0.8 else "utf-16")


@pytest.mark.parametrize("cases", [30, pytest.param(2000, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_file_is_read_or_refused_by_name(kind, cases, tmp_path):
    """No other exception is raised. An instance that was read becomes a world or is refused."""
    text, reader = FILES[kind]
    path = tmp_path / ("x.csv" if kind == "map" else "x.txt")
    refused = 0
    for seed in range(cases):
        rng = np.random.default_rng([seed, *kind.encode()])
        raw = damaged(text, rng)
        path.write_bytes(raw)
        try:
            found = reader(path)
            if isinstance(found, Instance) and seed % 20 == 0:
                found.world()
        except FormatError as e:
            refused += 1
            assert str(e).startswith(str(path)), (kind, seed, raw, str(e))
        except MilkrunError:
            refused += 1
        except Exception as e:
            raise AssertionError(f"{kind}, seed {seed}: {type(e).__name__}: {e}; the file: {raw!r}") from e
    assert 0.3 * cases < refused


NUMBERS = (
    "0 1 2 3 5 7 12 40 1000 16777217 2147483648 1e9 1e15 1e29 0.5 2.5 1e-20 -1 nan inf 99999999999999999999".split()
)
NUMBER = re.compile(r"(?<![\w.])-?\d+\.?\d*(?![\w.])")
HEAD = re.compile(r"(?m)^(?=[A-Z_]+(?:_SECTION| :))")
PLAYED = ("cvrp", "served", "solomon", "vrpb", "vrpspd", "vrptw", "mdvrp", "mdvrptw", "hfvrp", "op")


def with_other_numbers(text, rng):
    """One to three changes: another number, two numbers exchanged, or a section left out."""
    for _ in range(rng.integers(1, 4)):
        spans = [found.span() for found in NUMBER.finditer(text)]
        i, j = sorted(int(k) for k in rng.integers(len(spans), size=2))
        (a, b), (c, d) = spans[i], spans[j]
        change = rng.integers(10)
        if change < 6:
            text = text[:a] + str(rng.choice(NUMBERS)) + text[b:]
        elif change < 9 and i != j:
            text = text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:]
        elif len(parts := HEAD.split(text)) > 2:
            parts.pop(int(rng.integers(len(parts))))
            text = "".join(parts)
    return text


@pytest.mark.parametrize("cases", [30, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", PLAYED)
def test_other_numbers_are_played_alike_or_refused(kind, cases, tmp_path):
    """Each customer in a route of its own is replayed in all worlds of the kind; `replay` raises if the checker
    disagrees."""
    text, reader = FILES[kind]
    path, refused = tmp_path / "x", 0
    for seed in range(cases):
        changed = with_other_numbers(text, np.random.default_rng([seed, 1, *kind.encode()]))
        path.write_text(changed)
        try:
            found = reader(path)
            first = found.first_customer
            for world in [""] if found.fleet == "enforce" else found.worlds:
                played = found.for_world(world) if world else found
                replay(played, [[j] for j in range(first, first + found.n)])
        except FormatError as e:
            refused += 1
            assert str(e).startswith(str(path)), (kind, seed, changed, str(e))
        except BadInstance:  # a customer that no vehicle can serve alone
            refused += 1
        except Exception as e:
            raise AssertionError(f"{kind}, seed {seed}: {type(e).__name__}: {e}; the file: {changed}") from e
    assert 0.3 * cases < refused < cases


@pytest.mark.parametrize("cases", [10, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", FILES)
def test_line_ends_and_blanks_change_nothing(kind, cases, tmp_path):
    """Line ends, byte order mark, blanks at the end of lines and of the file, no end of the last line."""
    text, reader = FILES[kind]
    path = tmp_path / ("x.csv" if kind == "map" else "x.txt")
    path.write_text(text)
    whole = reader(path)
    for seed in range(cases):
        raw = restyled(text, np.random.default_rng([seed, *kind.encode()]))
        path.write_bytes(raw)
        assert comparable(reader(path)) == comparable(whole), (kind, seed, raw)


def comparable(found):
    """The content of a file in a form that `==` compares."""
    if isinstance(found, Instance):
        return found
    if hasattr(found, "fields") and callable(found.fields):
        return {name: np.asarray(value).tolist() for name, value in found.fields().items()}
    return repr(found)
