"""Broken files: each fault is a FormatError with file, line and section, and no bytes raise another exception."""

from __future__ import annotations

import contextlib
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkrun.core.errors import FormatError
from milkrun.routing.instances import read, read_solution
from tests.routing.instance_files import HFVRP, MDVRP, MDVRPTW, ORIENTEERING, RES, SCORE, VRPSPD, VRPTW

CVRP = """NAME : A-n4-k2
TYPE : CVRP
DIMENSION : 4
EDGE_WEIGHT_TYPE : EUC_2D
CAPACITY : 10
NODE_COORD_SECTION
1 0 0
2 3 0
3 3 4
4 0 4
DEMAND_SECTION
1 0
2 5
3 5
4 5
DEPOT_SECTION
1
-1
EOF
"""
MATRIX = """NAME : t
TYPE : ATSP
DIMENSION : 3
EDGE_WEIGHT_TYPE : EXPLICIT
EDGE_WEIGHT_FORMAT : LOWER_ROW
EDGE_WEIGHT_SECTION
1
2 3
EOF
"""
TSP = """NAME : t
TYPE : TSP
DIMENSION : 3
EDGE_WEIGHT_TYPE : EUC_2D

FIXED_EDGES_SECTION
1 3
-1
NODE_COORD_SECTION
1 0 0
2 3 0
3 3 4
EOF
"""
SOLOMON = """T4

VEHICLE
NUMBER     CAPACITY
  3         10

CUSTOMER
CUST NO.  XCOORD.   YCOORD.    DEMAND   READY TIME  DUE DATE   SERVICE   TIME

    0      0          0          0          0         100          0
    1      3          0          5         20          30          9
    2      3          4          5          0          40          9
"""
PCVRPTW = """NAME : T
TYPE : PCVRPTW
DIMENSION : 2
CAPACITY : 7
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 1 1
DEMAND_SECTION
1 0
2 3
TIME_WINDOW_SECTION
1 0 90
2 5 10
PRIZE_SECTION
1 0
2 21
DEPOT_SECTION
1
-1
EOF
"""
VRPB = """NAME: b
TYPE: VRPB
DIMENSION: 3
CAPACITY: 7
EDGE_WEIGHT_TYPE: EUC_2D
NODE_COORD_SECTION
1 0 0
2 1 1
3 2 2
DEMAND_SECTION
1 0
2 3
3 0
BACKHAUL_SECTION
1 0
2 0
3 4
DEPOT_SECTION
1
EOF
"""
TOUR = "NAME : t\nTYPE : TOUR\nDIMENSION : 3\nTOUR_SECTION\n1\n3\n2\n-1\nEOF\n"
ROUTES = "Route #1: 1 2\nRoute #2: 3\nCost 18\n"


def refusal(reader, folder, text):
    """The reader's error on this text, without the name of the file."""
    path = Path(folder) / "x.vrp"
    path.write_text(text)
    with pytest.raises(FormatError) as refused:
        reader(path)
    said = str(refused.value)
    assert said.startswith(str(path))
    return said[len(str(path)) :]


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        (CVRP, "3 3 4\n", "3 3 nan\n", ", line 9, NODE_COORD_SECTION: 'nan' is not a number"),
        (CVRP, "3 3 4\n", "3 3 inf\n", ", line 9, NODE_COORD_SECTION: 'inf' is not a number"),
        (CVRP, "3 3 4\n", "3 3 1_0\n", ", line 9, NODE_COORD_SECTION: '1_0' is not a number"),
        (CVRP, "3 3 4\n", "3 3 1e999\n", ", line 9, NODE_COORD_SECTION: '1e999' is too large: at most 1e+30"),
        (CVRP, "3 3 4\n", "3 3 -2e30\n", ", line 9, NODE_COORD_SECTION: '-2e30' is too large: at most 1e+30"),
        (CVRP, "3 3 4\n", "3 3\n", ", line 9, NODE_COORD_SECTION: 2 words; a line has 3"),
        (CVRP, "3 3 4\n", "2 3 4\n", ", line 9, NODE_COORD_SECTION: node 2 is also in line 8"),
        (CVRP, "3 3 4\n", "5 3 4\n", ", line 9, NODE_COORD_SECTION: '5' is not within 1..4"),
        (CVRP, "3 3 4\n", "3.5 3 4\n", ", line 9, NODE_COORD_SECTION: '3.5' is not a whole number"),
        (CVRP, "3 3 4\n", "", ", line 9, NODE_COORD_SECTION: 3 lines, but DIMENSION is 4"),
        (CVRP, "DIMENSION : 4", "DIMENSION : -4", ", line 3, DIMENSION: '-4' is not within 2..10001"),
        (CVRP, "DIMENSION : 4", "DIMENSION : 1", ", line 3, DIMENSION: '1' is not within 2..10001"),
        (CVRP, "DIMENSION : 4", "DIMENSION : 4000000000", ", line 3, DIMENSION: '4000000000' is not within 2..10001"),
        (CVRP, "DIMENSION : 4", "DIMENSION : 4.5", ", line 3, DIMENSION: '4.5' is not a whole number"),
        (CVRP, "DIMENSION : 4", "DIMENSION : four", ", line 3, DIMENSION: 'four' is not a number"),
        (CVRP, "DIMENSION : 4\n", "", ", DIMENSION: this key is missing"),
        (CVRP, "DIMENSION", "DIMENSIONS", ", line 3, DIMENSIONS: an unknown key; did you mean 'DIMENSION'"),
        (
            CVRP,
            "CAPACITY : 10",
            "CAPACITY : 9\nCAPACITY : 9",
            ", line 6, CAPACITY: a second time; the first is in line 5",
        ),
        (CVRP, "CAPACITY : 10", "CAPACITY : 0", ", line 5, CAPACITY: '0' is not within 1..1073741824"),
        (CVRP, "CAPACITY : 10", "CAPACITY : 4", ", line 13, DEMAND_SECTION: 5 is not a whole number within 1..4"),
        (
            CVRP,
            "TYPE : CVRP",
            "TYPE : HCP",
            ", line 2, TYPE: 'HCP' is not supported; supported: TSP, ATSP, CVRP, VRPTW, PCVRPTW",
        ),
        (CVRP, "TYPE : CVRP", "TYPE : TSP", ", line 5, CAPACITY: has no meaning in a TSP file"),
        (CVRP, "EUC_2D", "EUC_3D", ", line 4, EDGE_WEIGHT_TYPE: 'EUC_3D' is not supported"),
        (CVRP, "2 5\n", "2 2.5\n", ", line 13, DEMAND_SECTION: 2.5 is not a whole number within 1..10"),
        (CVRP, "2 5\n", "2 -5\n", ", line 13, DEMAND_SECTION: '-5' is below 0"),
        (CVRP, "2 5\n", "2 0\n", ", line 13, DEMAND_SECTION: 0 is not a whole number within 1..10"),
        (CVRP, "1 0\n2 5", "1 1\n2 5", ", line 12, DEMAND_SECTION: the depot has 1, it must be 0"),
        (CVRP, "DEMAND_SECTION", "DEMANDS_SECTION", ", line 11, DEMANDS_SECTION: an unknown section"),
        (CVRP, "DEMAND_SECTION", "PRIZE_SECTION", ", line 11, PRIZE_SECTION: has no meaning in a CVRP file"),
        (CVRP, "DEPOT_SECTION\n1\n-1\n", "", ", DEPOT_SECTION: this section is missing"),
        (
            CVRP,
            "DEPOT_SECTION\n1\n",
            "DEPOT_SECTION\n1\n2\n",
            ", line 16, DEPOT_SECTION: 2 depots; only one is supported",
        ),
        (CVRP, "DEPOT_SECTION\n1\n", "DEPOT_SECTION\n2\n", ", line 17, DEPOT_SECTION: the depot is node 2"),
        (CVRP, "DEPOT_SECTION", "DEMAND_SECTION", ", line 16, DEMAND_SECTION: a second time; the first is in line 11"),
        (CVRP, "NAME : A-n4-k2\n", "hello\n", ", line 1: 'hello' is neither `KEY : value` nor a section"),
        (CVRP, "-1\nEOF\n", "-1", ", line 18, DEPOT_SECTION: the file stops within a line"),
        (CVRP, "3 3 4", "3 3 \x00", ", line 9: byte 0x00: this is not a text file"),
        (TSP, "1 3\n-1", "1 3", ", line 6, FIXED_EDGES_SECTION: no -1 marks the end of the edges"),
        (TSP, "1 3\n-1", "1 3 2\n-1", ", line 6, FIXED_EDGES_SECTION: an edge is two nodes that differ"),
        (TSP, "1 3\n-1", "1 1\n-1", ", line 6, FIXED_EDGES_SECTION: an edge is two nodes that differ"),
        (TSP, "1 3\n-1", "1 9\n-1", ", line 7, FIXED_EDGES_SECTION: '9' is not within 1..3"),
        (MATRIX, "2 3\n", "2\n", ", line 8, EDGE_WEIGHT_SECTION: 2 numbers; LOWER_ROW of DIMENSION 3 has 3"),
        (MATRIX, "2 3\n", "2 3 4\n", ", line 8, EDGE_WEIGHT_SECTION: 4 numbers; LOWER_ROW of DIMENSION 3 has 3"),
        (MATRIX, "2 3\n", "2 -3\n", ", line 8, EDGE_WEIGHT_SECTION: '-3' is below 0"),
        (MATRIX, "LOWER_ROW", "LOWER_COL", ", line 5, EDGE_WEIGHT_FORMAT: 'LOWER_COL' is not supported"),
        (MATRIX, "EXPLICIT", "EUC_2D", ", line 6, EDGE_WEIGHT_SECTION: contradicts EDGE_WEIGHT_TYPE EUC_2D"),
        (SOLOMON, "          9\n    2", "\n    2", ", line 11, CUSTOMER: 6 words; a line has 7"),
        (SOLOMON, "    2      3", "    1      3", ", line 12, CUSTOMER: customer 1 is also in line 11"),
        (SOLOMON, "    2      3", "    7      3", ", line 12, CUSTOMER: '7' is not within 0..2"),
        (
            SOLOMON,
            "20          30",
            "20          19",
            ", line 11, CUSTOMER: the due date 19 is before the ready time 20",
        ),
        (
            SOLOMON,
            "0          5         20",
            "0         11         20",
            ", line 11, CUSTOMER: a demand of 11 is over the",
        ),
        (SOLOMON, "0         100          0", "0         100          1", ", line 10, CUSTOMER: the depot must have"),
        (SOLOMON, "  3         10", "  3", ", line 5, VEHICLE: 1 words; this line has NUMBER and CAPACITY"),
        (SOLOMON, "CUSTOMER\n", "", ", line 7, VEHICLE: after NUMBER, CAPACITY and their values"),
        (PCVRPTW, "2 5 10", "2 5 4", ", line 14, TIME_WINDOW_SECTION: closes at 4 before it opens at 5"),
        (PCVRPTW, "1 0 90", "1 1 90", ", line 13, TIME_WINDOW_SECTION: the depot must open at 0"),
        (
            PCVRPTW,
            "PRIZE_SECTION\n1 0",
            "PRIZE_SECTION\n1 1",
            ", line 16, PRIZE_SECTION: the depot has 1, it must be 0",
        ),
        (PCVRPTW, "2 21", "2 -1", ", line 17, PRIZE_SECTION: '-1' is below 0"),
        (PCVRPTW, "EUC_2D", "CEIL_2D", ", line 5, EDGE_WEIGHT_TYPE: PCVRPTW needs EUC_2D"),
        (PCVRPTW, "EUC_2D", "EXPLICIT", ", line 5, EDGE_WEIGHT_TYPE: PCVRPTW needs EUC_2D"),
        (PCVRPTW, "2 3\n", "2 8\n", ", line 11, DEMAND_SECTION: 8 is not a whole number within 0..7"),
        (
            VRPB,
            "2 0\n3 4",
            "2 1\n3 4",
            ", line 16, BACKHAUL_SECTION: node 2 must have a demand there or here, not both",
        ),
        (VRPB, "2 0\n3 4", "2 0\n3 0", ", line 17, BACKHAUL_SECTION: node 3 must have a demand there or here"),
    ],
)
def test_a_broken_instance_is_refused(tmp_path, text, old, new, said):
    """With the line and the section that are wrong."""
    assert old in text
    whole = tmp_path / "whole.vrp"
    whole.write_text(text)
    read(whole)
    assert refusal(read, tmp_path, text.replace(old, new, 1)).startswith(said)


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        (TOUR, "2\n-1", "-1", ", line 7, TOUR_SECTION: 2 nodes, but DIMENSION is 3"),
        (TOUR, "DIMENSION : 3\n", "DIMENSION : 2\n", ", line 8, TOUR_SECTION: 3 nodes, but DIMENSION is 2"),
        (TOUR, "DIMENSION : 3\nTOUR_SECTION\n1\n3\n2\n-1", "TOUR_SECTION\n1", ", line 3, TOUR_SECTION: neither -1 nor"),
        (TOUR, "3\n2", "x\n2", ", line 6, TOUR_SECTION: 'x' is not a number"),
        (TOUR, "3\n2", "0\n2", ", line 6, TOUR_SECTION: '0' is not within 1..10001"),
        (TOUR, "-1\n", "-1\n4\n", ", line 8, TOUR_SECTION: more follows the -1 that ends the tour"),
        (TOUR, "2\n-1\nEOF\n", "2", ", line 7, TOUR_SECTION: the file stops within a line"),
        (ROUTES, "1 2", "1 x", ", line 1, Route: 'x' is not a number"),
        (ROUTES, "1 2", "1 0", ", line 1, Route: '0' is not within 1..10001"),
        (ROUTES, "Cost 18", "Cost nan", ", line 3, Cost: 'nan' is not a number"),
        (ROUTES, "Cost 18", "Cost 18\nCost 19", ", line 4, Cost: a second cost"),
        (ROUTES, "Cost 18", "Price 18", ", line 3: neither `Route #k: customers` nor `Cost value`"),
        (ROUTES, "Route #1", "Rout #1", ", line 1: neither `Route #k: customers` nor `Cost value`"),
        (ROUTES, "Route #1: 1 2\n", "1 2\nRoute #1: 1 2\n", ", line 1: neither `Route #k: customers` nor `Cost value`"),
        (ROUTES, "\nCost 18\n", "", ", line 2, Route: the file stops within a line"),
        (ROUTES, ROUTES, "", ", Route: the file has no route"),
        (ROUTES, ROUTES, "Cost 18\nRoute #1: 1\n", ", line 2, Route: a route after the cost"),
    ],
)
def test_a_broken_solution_is_refused(tmp_path, text, old, new, said):
    """With the line and the section that are wrong."""
    assert old in text
    assert refusal(read_solution, tmp_path, text.replace(old, new, 1)).startswith(said)


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (read_solution, "Route{}x\n"),
        (read_solution, ROUTES.replace("Cost 18", "Cost{}")),
        (read_solution, "COMMENT : ({}x\n" + TOUR),
        (read_solution, "COMMENT : length{}x\n" + TOUR),
        (read, CVRP.replace("DEMAND_SECTION", "DEMAND_SECTION{}x")),
        (read, CVRP.replace("A-n4-k2", "A{}x")),
        (read, CVRP.replace("TYPE : CVRP", "COMMENT : {}\nTYPE : CVRP")),
        (read, CVRP.replace("3 3 4", "3 3 {}x")),
    ],
)
@pytest.mark.parametrize("word", [" ", "best ", "1"])
def test_a_long_line_takes_no_quadratic_time(tmp_path, reader, text, word):
    """Half a megabyte of blanks, digits or one word would take hours with quadratic parsing."""
    path = tmp_path / "x.vrp"
    path.write_text(text.format(word * 500_000))
    with contextlib.suppress(FormatError):
        reader(path)


DIGITS = "1" * 5000  # int() raises its own error for them


@pytest.mark.parametrize(
    ("reader", "text", "said"),
    [
        (read, CVRP.replace("3 3 4", f"3 3 {DIGITS}"), ", line 9, NODE_COORD_SECTION: '1111"),
        (read, CVRP.replace("3 3 4", f"{DIGITS} 3 4"), ", line 9, NODE_COORD_SECTION: '1111"),
        (read, CVRP.replace("CAPACITY : 10", f"CAPACITY : {DIGITS}"), ", line 5, CAPACITY: '1111"),
        (read, CVRP.replace("4 5\nDEPOT", f"4 {DIGITS}\nDEPOT"), ", line 15, DEMAND_SECTION: '1111"),
        (read, MATRIX.replace("2 3", f"2 {DIGITS}"), ", line 8, EDGE_WEIGHT_SECTION: '1111"),
        (read, SOLOMON.replace("         100 ", f" {DIGITS} "), ", line 10, CUSTOMER: '1111"),
        (read, PCVRPTW.replace("2 21", f"2 {DIGITS}"), ", line 17, PRIZE_SECTION: '1111"),
        (read_solution, ROUTES.replace("1 2", f"1 {DIGITS}"), ", line 1, Route: '1111"),
        (read_solution, ROUTES.replace("18", DIGITS), ", line 3, Cost: '1111"),
        (read_solution, TOUR.replace("3\n2", f"{DIGITS}\n2"), ", line 6, TOUR_SECTION: '1111"),
    ],
)
def test_a_number_of_5000_digits_is_refused_in_its_line(tmp_path, reader, text, said):
    """With a message of the reader."""
    refused = refusal(reader, tmp_path, text)
    assert refused.startswith(said) and refused.endswith("is too large: at most 1e+30")


def test_a_best_value_beyond_float64_is_none(tmp_path):
    """5000 digits in a comment of an instance or a tour would be read as infinity and are ignored."""
    path = tmp_path / "x.vrp"
    path.write_text(CVRP.replace("TYPE : CVRP", f"COMMENT : Best value: {DIGITS}\nTYPE : CVRP"))
    assert read(path).best is None
    path.write_text(f"COMMENT : Length {DIGITS}\n{TOUR}")
    assert read_solution(path).cost is None


def test_text_above_the_routes_is_ignored(tmp_path):
    """As written by SINTEF and others: instance, author, date."""
    path = tmp_path / "x.sol"
    path.write_text("Instance name : C101\nAuthors : A & B\nDate : 2001\nReference 1.2\nSolution\n" + ROUTES)
    assert read_solution(path).routes == ((1, 2), (3,))
    assert read_solution(path).cost == 18


def test_a_broken_solution_does_not_affect_its_instance(tmp_path, caplog):
    """A solution that does not parse gives no best value, and the log has the reason."""
    path = tmp_path / "a.vrp"
    path.write_text(CVRP)
    (tmp_path / "a.sol").write_text("NAME : x\n" + ROUTES)
    assert read(path).best == 18
    (tmp_path / "a.sol").write_text("Route #1: x\n")
    assert read(path).best is None
    assert f"the best known value is not read: {tmp_path / 'a.sol'}, line 1, Route: 'x' is not a number" in caplog.text


@pytest.mark.parametrize("text", ["", "\n\n", ROUTES, TOUR])
def test_a_file_without_an_instance_is_refused(tmp_path, text):
    """An empty file, and solutions."""
    assert re.match(r"(, line \d+)?(, \w+)?: ", refusal(read, tmp_path, text))


@pytest.mark.parametrize("text", [CVRP, MATRIX, PCVRPTW, VRPB])
def test_a_truncated_file_reads_the_same_or_is_refused(tmp_path, text):
    """After each of its bytes; a truncated number is never read as a shorter one."""
    whole, path = tmp_path / "whole", tmp_path / "cut"
    whole.write_text(text)
    complete = []
    for length in range(len(text)):
        path.write_text(text[:length])
        try:
            assert read(path) == read(whole)
            complete.append(length)
        except FormatError as refused:
            assert str(refused).startswith(str(path))
    assert len(text) - 1 in complete  # only the last line end missing
    assert min(complete) >= len(text) - len("1\n-1\nEOF\n")


def test_a_solomon_file_cut_within_a_line_is_refused(tmp_path):
    """The format has no number of customers. So truncation is undetected only between two lines, or after a line of
    full width without its line end."""
    path, read_again = tmp_path / "cut", {}
    for length in range(len(SOLOMON)):
        path.write_text(SOLOMON[:length])
        try:
            read_again[SOLOMON[:length].rstrip(" \n")] = read(path).n
        except FormatError as refused:
            assert str(refused).startswith(str(path))
    lines = SOLOMON.splitlines()
    assert read_again == {"\n".join(lines[:11]): 1, "\n".join(lines): 2}


WORDS = st.sampled_from(
    [
        "nan",
        "-1",
        "0",
        "1",
        "2",
        "3",
        "4",
        "1e400",
        "99999999999999999999",
        "EOF",
        "\n",
        " ",
        ":",
        "TYPE",
        "DIMENSION",
        "DEMAND_SECTION",
        "NODE_COORD_SECTION",
        "VEHICLE",
        "CUSTOMER",
        "Route #1:",
        "Cost",
        "TOUR_SECTION",
        "\r",
        "\t",
        "\ufeff",
        "\u0661",
        "GEO",
        "EXPLICIT",
        "FULL_MATRIX",
        "\x85",
    ]
)


@given(
    text=st.sampled_from(
        [
            CVRP,
            MATRIX,
            SOLOMON,
            PCVRPTW,
            VRPB,
            TOUR,
            ROUTES,
            MDVRP,
            MDVRPTW,
            HFVRP,
            VRPSPD,
            VRPTW,
            ORIENTEERING,
            RES,
            SCORE,
        ]
    ),
    cuts=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 12), WORDS), min_size=1, max_size=4),
)
def test_random_edits_raise_only_format_errors(text, cuts):
    """Random pieces replaced by other words: read, or refused by name."""
    for start, length, word in cuts:
        text = text[:start] + word + text[start + length :]
    read_or_refuse(text.encode())


@given(st.binary(max_size=200), st.sampled_from([b"", CVRP[:60].encode(), SOLOMON[:120].encode(), b"Route #1: "]))
def test_random_bytes_raise_only_format_errors(raw, start):
    """Random bytes, alone and after a valid beginning."""
    read_or_refuse(start + raw)


def read_or_refuse(raw):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_bytes(raw)
        for reader in (read, read_solution):
            try:
                reader(path)
            except FormatError as refused:
                assert str(refused).startswith(str(path))
