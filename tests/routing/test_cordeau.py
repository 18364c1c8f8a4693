"""Dial-a-ride files: read in every known variant, written unchanged, refused with the line at fault."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milkrun.core.errors import ConfigError, FormatError
from milkrun.routing.instances import cordeau, read
from tests.published import KEPT, published_file

SMALL = """2 2 100 3 30.5
0 1.000 2.000 0 0 0 100
1 3.000 2.000 1 1 10 25
2 -4.125 1.000 2 3 0 1440
3 8.000 -1.000 1 -1 0 1440
4 5.000 5.000 2.250 -3 40 55
5 1.000 2.000 0 0 0 100
"""


def lines(text=SMALL, **changed):
    """The lines of a file by number, some of them changed (`L3="..."`) or removed (`L3=None`)."""
    kept = [changed.get(f"L{k}", line) for k, line in enumerate(text.splitlines(), start=1)]
    return "".join(f"{line}\n" for line in kept if line is not None)


def stored(folder, text, name="small.txt"):
    path = folder / name
    path.write_bytes(text.encode())
    return path


@pytest.fixture
def small(tmp_path):
    return cordeau.load(stored(tmp_path, SMALL))


def with_(instance, **fields):
    return dataclasses.replace(instance, **fields)


# --- reading


def test_a_file_becomes_nodes_in_pairs(small):
    """File nodes 1 and 3 are request 0, hence nodes 1 and 2; 2 and 4 are request 1, hence nodes 3 and 4."""
    assert (small.name, small.num_requests, small.num_agents) == ("small", 2, 2)
    assert small.locs.tolist() == [[1, 2], [3, 2], [8, -1], [-4.125, 1], [5, 5]]
    assert small.demand.tolist() == [0, 1, -1, 3, -3]
    assert small.window_open.tolist() == [0, 10, 0, 0, 40]
    assert small.time_windows.tolist() == [100, 25, 1440, 1440, 55]
    assert small.service_time.tolist() == [0, 1, 1, 2, 2.25]
    assert small.capacity.tolist() == [3, 3]
    assert small.max_ride_time.tolist() == [30.5, 30.5]
    assert small.max_route_duration == 100.0
    assert small.dist is None


def test_fields_are_one_row_of_a_world(small):
    """Every array has a leading axis of one row; the duration is one number a row."""
    fields = small.fields()
    assert {name: (value.shape, value.dtype.name) for name, value in fields.items()} == {
        "locs": ((1, 5, 2), "float32"),
        "demand": ((1, 5), "int64"),
        "capacity": ((1, 2), "int64"),
        "time_windows": ((1, 5), "float64"),
        "window_open": ((1, 5), "float64"),
        "service_time": ((1, 5), "float64"),
        "max_ride_time": ((1, 2), "float64"),
        "max_route_duration": ((1,), "float64"),
    }
    assert with_(small, dist=np.zeros((5, 5))).fields()["dist"].shape == (1, 5, 5)


def test_read_equals_load(tmp_path, small):
    """The common reader recognises such a file by its first line of five numbers."""
    assert read(tmp_path / "small.txt") == small


@pytest.mark.parametrize(
    "text",
    [
        lines(L1="2 4 100 3 30.5"),
        lines(L7=None),
        lines(L2="0 1.000 2.000 0 0 0 1440"),
        SMALL.replace(" ", "\t"),
        SMALL.replace("\n", "\r\n"),
        "\n\n" + SMALL.replace("\n", "\n\n"),
        SMALL.rstrip("\n"),
        lines(L3=None, L4=SMALL.splitlines()[3] + "\n" + SMALL.splitlines()[2]),
    ],
    ids=["nodes counted", "no last depot", "day of the start", "tabs", "CRLF", "blank lines", "cut", "order"],
)
def test_variants_give_the_same_instance(tmp_path, small, text):
    """Known copies differ in form, not in content."""
    assert cordeau.load(stored(tmp_path, text, "variant.txt")) == small


def test_without_a_last_depot_the_first_keeps_its_window(tmp_path):
    """Start window [0, 1440] and no last depot: the day is 1440 long; with a last depot, the day ends with its
    window."""
    for last, close in ((None, 1440), (SMALL.splitlines()[6], 100)):
        text = lines(L2="0 1.000 2.000 0 0 0 1440", L7=last)
        assert cordeau.load(stored(tmp_path, text)).time_windows[0] == close


def test_load_dir_is_by_name(tmp_path):
    """Only `.txt` files are loaded, in the order of their names."""
    for name in ("b.txt", "a.txt", "notes.md"):
        stored(tmp_path, SMALL, name)
    assert [instance.name for instance in cordeau.load_dir(tmp_path)] == ["a", "b"]


# --- writing


def test_save_writes_the_same_numbers(tmp_path, small):
    """The numbers of the file, in its numbering, with both depots."""
    cordeau.save(small, tmp_path / "again.txt")
    words = (tmp_path / "again.txt").read_text().split()
    assert words == SMALL.replace("30.5\n", "30.500\n").split()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"capacity": [3, 4]}, "one capacity"),
        ({"max_ride_time": [30.5, 31.0]}, "one ride time"),
        ({"dist": 1.0 - np.eye(5)}, "no matrix"),
        ({"max_ride_time": [np.inf, np.inf]}, "no infinite time"),
        ({"max_route_duration": np.inf}, "no infinite time"),
        ({"window_open": [0, 10.0001, 0, 0, 40]}, "three decimals"),
    ],
)
def test_save_refuses_instances_beyond_the_format(tmp_path, small, fields, said):
    """The message names the reason, and no file is left."""
    with pytest.raises(ConfigError, match=said):
        cordeau.save(with_(small, **fields), tmp_path / "no.txt")
    assert not (tmp_path / "no.txt").exists()


# --- refusals


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (lines(L1="2 2 100 3"), 1, "4 words; the first line has 5"),
        (lines(L1="2 2 100 3 30 1"), 1, "6 words; the first line has 5"),
        (lines(L1="0 2 100 3 30"), 1, "'0' is not within"),
        (lines(L1="2.5 2 100 3 30"), 1, "'2.5' is not a whole number"),
        (lines(L1="2 x 100 3 30"), 1, "'x' is not a number"),
        (lines(L1="2 2 0 3 30"), 1, "0 is not above 0"),
        (lines(L1="2 2 100 3 -1"), 1, "-1 is not above 0"),
        (lines(L1="2 2 100 0 30"), 1, "'0' is not within"),
        (lines(L1="2 3 100 3 30"), 7, "6 lines below the first"),
        (lines(L4=None, L5=None, L6=None, L7=None), 3, "2 lines below the first"),
        ("1 3 99 1 30\n0 0 0 0 0 0 99\n1 1 0 0 1 0 99\n2 2 0 0 -1 0 99\n3 0 0 0 0 0 99\n", 5, "4 lines below"),
        (lines(L6=None, L7=None), 5, "the depot has service time 1 and load -1"),
        (lines(L7=SMALL.splitlines()[6] + "\n6 0 0 0 0 0 1"), 8, "7 lines below the first"),
        (lines(L4="2 -4.125 1.000 2 3 0"), 4, "6 words; a line has 7"),
        (lines(L4="2 -4.125 1.000 2 3 0 1440 9"), 4, "8 words; a line has 7"),
        (lines(L4="2 -4,125 1.000 2 3 0 1440"), 4, "'-4,125' is not a number"),
        (lines(L4="2 nan 1.000 2 3 0 1440"), 4, "'nan' is not a number"),
        (lines(L4="1 -4.125 1.000 2 3 0 1440"), 4, "node 1 is also in line 3"),
        (lines(L4="6 -4.125 1.000 2 3 0 1440"), 4, "'6' is not within 0..5"),
        (lines(L4="2 -4.125 1.000 -2 3 0 1440"), 4, "service time -2 is below 0"),
        (lines(L4="2 -4.125 1.000 2 3 9 8"), 4, "closes at 8, before it opens at 9"),
        (lines(L4="2 -4.125 1.000 2 0 0 1440"), 4, "pickup 2 has load 0"),
        (lines(L4="2 -4.125 1.000 2 1.5 0 1440"), 4, "'1.5' is not a whole number"),
        (lines(L6="4 5.000 5.000 2.250 -2 40 55"), 6, "dropoff 4 has load -2, not the negative of 3"),
        (lines(L2="0 1.000 2.000 0 1 0 100"), 2, "the depot has service time 0 and load 1"),
        (lines(L7="5 1.000 2.000 3 0 0 100"), 7, "the depot has service time 3 and load 0"),
        (lines(L7="5 1.000 2.001 0 0 0 100"), 7, "the day ends at"),
        (lines(L7="5 1.000 2.000 0 0 1 100"), 7, "must open alike"),
        (lines(L7="5 1.000 2.000 0 0 0 101"), 7, "the end must close no later"),
        (lines(L1="2 2 100 2 30"), 4, "request 2 cannot be served even alone: capacity"),
        (lines(L1="2 2 100 3 5"), 3, "request 1 cannot be served even alone: ride"),
        (lines(L1="2 2 15 3 30"), 3, "request 1 cannot be served even alone: duration"),
        (lines(L6="4 5.000 5.000 2.250 -3 0 10"), 4, "request 2 cannot be served even alone: window"),
    ],
)
def test_a_fault_names_its_line(tmp_path, text, line, said):
    """Errors name the file and the line, counted from 1."""
    path = stored(tmp_path, text)
    with pytest.raises(FormatError, match=re.escape(f"{path}, line {line}: ") + ".*" + re.escape(said)):
        cordeau.load(path)


def test_an_empty_file_is_refused(tmp_path):
    """Without a line number."""
    with pytest.raises(FormatError, match="the file is empty"):
        cordeau.load(stored(tmp_path, "\n \n"))


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, len(SMALL.split()) - 1),
    st.one_of(
        st.sampled_from(["", "0", "-1", "1e30", "1e31", "-1e30", "999999999999", "2 2", "\n", "nan", "inf", "\x00"]),
        st.text(max_size=6),
        st.floats(allow_nan=False).map(repr),
    ),
)
def test_any_replaced_word_is_read_or_refused(tmp_path_factory, which, word):
    """With any text in place of a word, the file is an instance or raises a FormatError."""
    words = re.split(r"(\s+)", SMALL)
    words[2 * which] = word
    path = tmp_path_factory.getbasetemp() / "broken.txt"
    path.write_bytes("".join(words).encode("utf-8", "replace"))
    try:
        instance = cordeau.load(path)
    except FormatError as fault:
        assert str(fault).startswith(str(path))
    else:
        assert instance.num_requests in (1, 2)


# --- the benchmark


def test_all_benchmark_files_load_and_save_unchanged(tmp_path):
    """24 files; a-files have 3 seats and ride limit 30, b-files 6 and 45, T = 60 n / K; every written token is
    equal."""
    instances = cordeau.load_dir(KEPT / "darp")
    assert len(instances) == 24
    for instance in instances:
        seats, ride = (3, 30.0) if instance.name[0] == "a" else (6, 45.0)
        vehicles, n = map(int, re.findall(r"\d+", instance.name))
        assert (instance.num_agents, instance.num_requests) == (vehicles, n)
        assert set(instance.capacity.tolist()) == {seats}
        assert set(instance.max_ride_time.tolist()) == {ride}
        assert instance.max_route_duration == instance.time_windows[0] == 60 * n / vehicles
        cordeau.save(instance, tmp_path / "again.txt")
        first = KEPT / "darp" / f"{instance.name}.txt"
        assert (tmp_path / "again.txt").read_text().split() == first.read_text().split()


def test_a2_16_by_its_lines():
    """Request 1 rides from (-1.198, -5.164) to (6.687, 6.731), there within [402, 417]; request 10 boards at 32..47."""
    instance = cordeau.load(published_file("darp/a2-16.txt"))
    assert instance.locs[[1, 2]].tolist() == np.float32([[-1.198, -5.164], [6.687, 6.731]]).tolist()
    assert (instance.window_open[2], instance.time_windows[2]) == (402, 417)
    assert (instance.window_open[19], instance.time_windows[19]) == (32, 47)
    assert set(instance.service_time[1:].tolist()) == {3.0}


def test_a2_16_in_its_variants(tmp_path):
    """Nodes counted, without the last depot, the start open to 1440: the same instance."""
    text = published_file("darp/a2-16.txt").read_text()
    whole = cordeau.load(published_file("darp/a2-16.txt"))
    rows = text.splitlines()
    counted = "\n".join(["2 32 480 3 30", *rows[1:]])
    cut = "\n".join(rows[:-1])
    longer = "\n".join([rows[0], "0 0.000 0.000 0 0 0 1440", *rows[2:]])
    for k, variant in enumerate((counted, cut, longer)):
        assert cordeau.load(stored(tmp_path, variant, f"{k}.txt")) == whole
