"""Files of the TSP with drone: reading, writing, and errors with line and word."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milkrun.core.errors import BadInstance, ConfigError, FormatError
from milkrun.delivery.instances import (
    Operation,
    Solution,
    TSPDInstance,
    load_tspd,
    load_tspd_solution,
    write_tspd,
    write_tspd_solution,
)

INSTANCE = """/*The speed of the Truck*/
2.0
/*The speed of
the Drone*/ .5
/*Number of Nodes*/
4
0 0 depot
#MAXFLY 7.25
3.0 0.0 loc1
3.0 4.0 loc2
0.0 4e0 loc3
#NOVISIT 2
#FORBID 3
"""
PLAN = """/* Number of Operations */
4
/* Start	End	Fly	#Internal	Locations...*/
0	0	-1	0	/* Operation cost : 0.0*/
0	2	1	0	/* Operation cost : 10.0*/
2	4	0	1	3	/* Operation cost : 12.5*/
4	0	5	0	/* Operation cost : 1.0E1*/
/* Total cost : 32.5 */
"""


def lines(text, **changed):
    """The lines of a file by number, some of them changed (`L3="..."`) or removed (`L3=None`)."""
    kept = [changed.get(f"L{k}", line) for k, line in enumerate(text.splitlines(), start=1)]
    return "".join(f"{line}\n" for line in kept if line is not None)


@pytest.fixture
def stored(tmp_path):
    def store(text):
        path = tmp_path / "small.txt"
        path.write_bytes(text.encode())
        return path

    return store


# --- reading


def test_an_instance_is_read(stored):
    """Comments may span lines, directives may be anywhere; a # inside a line begins a name."""
    instance = load_tspd(stored(lines(INSTANCE, L10="3.0 4.0 #2")))
    assert instance.name == "small"
    assert instance.locs.tolist() == [[0, 0], [3, 0], [3, 4], [0, 4]]
    assert (instance.truck_factor, instance.drone_factor, instance.max_fly) == (2.0, 0.5, 7.25)
    assert instance.no_visit.tolist() == [False, False, True, False]
    assert instance.forbid.tolist() == [False, False, False, True]


def test_factors_are_costs_per_distance(stored):
    """A rectangle of 3 by 4 with diagonal 5: the truck pays 2 per distance, the drone .5."""
    instance = load_tspd(stored(INSTANCE))
    assert instance.c_truck.tolist() == [[0, 6, 10, 8], [6, 0, 8, 10], [10, 8, 0, 6], [8, 10, 6, 0]]
    assert instance.c_drone.tolist() == [[0, 1.5, 2.5, 2], [1.5, 0, 2, 2.5], [2.5, 2, 0, 1.5], [2, 2.5, 1.5, 0]]


@pytest.mark.parametrize("line", ["#MAXFLY Infinity", None])
def test_without_limit_a_flight_may_be_any_length(stored, line):
    """With Java's word for infinity, or without a limit."""
    assert load_tspd(stored(lines(INSTANCE, L8=line))).max_fly == np.inf


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_of_other_systems_and_a_byte_order_mark(tmp_path, end):
    """The same instance."""
    plain, strange = tmp_path / "plain.txt", tmp_path / "strange.txt"
    plain.write_bytes(INSTANCE.encode())
    strange.write_bytes(b"\xef\xbb\xbf" + INSTANCE.replace("\n", end).encode())
    assert load_tspd(strange) == load_tspd(plain)


def test_a_plan_is_read(stored):
    """The empty operation and its cost are dropped; a drone node of 0 or -1 means none; Java writes 1.0E1."""
    solution = load_tspd_solution(stored(PLAN), nodes=6)
    operations = (Operation(0, 2, 1, ()), Operation(2, 4, -1, (3,)), Operation(4, 0, 5, ()))
    assert solution == Solution(operations, (10.0, 12.5, 10.0), 32.5)


def test_costs_are_optional(stored):
    """None for all operations if one has none; costs belong to the previous operation, also on the next line."""
    assert load_tspd_solution(stored(lines(PLAN, L5="0 2 1 0"))).op_costs is None
    below = lines(PLAN, L5="0 2 1 0\n/* Operation cost : 9 */", L8=None)
    assert load_tspd_solution(stored(below)).op_costs == (9.0, 12.5, 10.0)
    assert load_tspd_solution(stored(below)).total is None


# --- refusals

INSTANCE_FAULTS = [
    ({"L2": "fast"}, 2, "'fast' is not a number"),
    ({"L2": "nan"}, 2, "'nan' is not a number"),
    ({"L2": "-1.0"}, 2, "'-1.0' is not within 0..1e+30"),
    ({"L4": "the Drone*/ -.5"}, 4, "'-.5' is not within 0..1e+30"),
    ({"L4": "the Drone*/ Infinity"}, 4, "'Infinity' is not a number"),
    ({"L6": "4.5"}, 6, "'4.5' is not a whole number"),
    ({"L6": "1"}, 6, "'1' is not within 2..10001"),
    ({"L6": "10002"}, 6, "'10002' is not within 2..10001"),
    ({"L6": "9" * 5000}, 6, f"'{'9' * 37}...' is not within 2..10001"),
    ({"L6": "5"}, 11, "the file ends before the x of node 4; line 6 counts '5'"),
    ({"L6": "3"}, 11, "'0.0' is left over; line 6 counts '3'"),
    ({"L9": "3.0 loc1"}, 9, "'loc1' is not a number"),
    ({"L9": "3.0 1e31 loc1"}, 9, "'1e31' is not within -1e+30..1e+30"),
    ({"L11": "0.0 4.0"}, 11, "the file ends before the name of node 3; line 6 counts '4'"),
    ({"L11": "0.0 4.0 loc3 loc4"}, 11, "'loc4' is left over; line 6 counts '4'"),
    ({"L8": "#MAXFLY"}, 8, "'#MAXFLY' has no value"),
    ({"L8": "#MAXFLY far"}, 8, "'far' is not a number"),
    ({"L8": "#MAXFLY -1"}, 8, "'-1' is not within 0..1e+30"),
    ({"L8": "#MAXFLY 1 2"}, 8, "'2' is left over; #MAXFLY has one value"),
    ({"L8": "#MAXFLIGHT 1"}, 8, "'#MAXFLIGHT' is no directive; did you mean '#MAXFLY'?"),
    ({"L12": "#MAXFLY 9"}, 12, "'#MAXFLY' is given a second time; the first is in line 8"),
    ({"L12": "#NOVISIT 4"}, 12, "'4' is not within 0..3"),
    ({"L12": "#NOVISIT two"}, 12, "'two' is not a whole number"),
    ({"L13": "#FORBID -1"}, 13, "'-1' is not within 0..3"),
    ({"L5": "/*Number of Nodes"}, 5, "'/*Number' opens a comment that never closes"),
]


@pytest.mark.parametrize(("changed", "line", "sentence"), INSTANCE_FAULTS)
def test_a_broken_instance_names_file_line_and_word(stored, changed, line, sentence):
    """Each fault is the first one in a file that is otherwise sound."""
    path = stored(lines(INSTANCE, **changed))
    with pytest.raises(BadInstance, match=f"^{re.escape(f'{path}, line {line}: {sentence}')}$"):
        load_tspd(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/* " * 200_000 + "\n1\n", "'/*' opens a comment that never closes"),
        ("1" * 200_000 + "x\n", "is not a number"),
    ],
)
def test_a_long_text_takes_no_quadratic_time(stored, text, said):
    """A naive parser would search each opened comment to the end of the file, and try each digit with all that
    follow."""
    with pytest.raises(BadInstance, match=re.escape(said)):
        load_tspd(stored(text))


def test_a_directive_without_a_line_end_is_refused_as_truncated(stored):
    """#FORBID 3 may be a truncated #FORBID 31."""
    path = stored(INSTANCE.rstrip("\n"))
    with pytest.raises(FormatError, match="line 13: '3' may be cut"):
        load_tspd(path)


PLAN_FAULTS = [
    ({"L2": "four"}, 2, "'four' is not a whole number"),
    ({"L2": "-1"}, 2, "'-1' is not within 0..20002"),
    ({"L2": "5"}, 7, "the file ends before the start of operation 4; line 2 counts '5'"),
    ({"L2": "3"}, 7, "'4' is left over; line 2 counts '3'"),
    ({"L2": "#4"}, 2, "'#4' is a directive, which has no meaning in a plan"),
    ({"L5": "0 2 x 0"}, 5, "'x' is not a whole number"),
    ({"L5": "0 2 -2 0"}, 5, "'-2' is not within -1..5"),
    ({"L5": "0 6 1 0"}, 5, "'6' is not within 0..5"),
    ({"L5": "0 2 6 0"}, 5, "'6' is not within -1..5"),
    ({"L6": "2 4 -1 1 6"}, 6, "'6' is not within 0..5"),
    ({"L6": "2 4 -1 -1"}, 6, "'-1' is not within 0..10001"),
    ({"L7": "4 0 5 1"}, 7, "the file ends before an internal node of operation 3; line 7 counts '1'"),
    ({"L4": "1 1 -1 0"}, 4, "'1' does not chain: the plan starts at 0"),
    ({"L6": "3 4 -1 1 3"}, 6, "'3' does not chain: the operation before ended at 2"),
    ({"L7": "4 3 5 0"}, 7, "'3' is where the plan ends, which must be 0"),
    ({"L7": "4 0 1 0"}, 7, "'1' is covered twice by the drone, the first time in line 5"),
    ({"L6": "2 4 -1 0"}, 7, "the plan ends with node 3 uncovered"),
    ({"L7": "4 0 -1 0"}, 7, "the plan ends with node 5 uncovered"),
    ({"L5": None, "L6": None, "L7": None, "L2": "1"}, 4, "the plan has no operation that covers a node"),
    ({"L6": "2 4 -1 1 3 /* Operation cost : much */"}, 6, "'much' is not a number"),
    ({"L8": "/* Total cost : NaN */"}, 8, "'NaN' is not a number"),
    ({"L8": "/* Total cost : 32.5"}, 8, "'/*' opens a comment that never closes"),
]


@pytest.mark.parametrize(("changed", "line", "sentence"), PLAN_FAULTS)
def test_a_broken_plan_names_file_line_and_word(stored, changed, line, sentence):
    """Each fault is the first one in a file that is otherwise sound, for an instance of six nodes."""
    path = stored(lines(PLAN, **changed))
    with pytest.raises(BadInstance, match=f"^{re.escape(f'{path}, line {line}: {sentence}')}$"):
        load_tspd_solution(path, nodes=6)


def test_without_a_number_of_nodes_the_last_named_one_is_the_last(stored):
    """A gap below it is an uncovered node; a node beyond it is unknown."""
    assert load_tspd_solution(stored(lines(PLAN, L7="4 0 -1 0"))).operations[-1] == (4, 0, -1, ())
    with pytest.raises(FormatError, match="line 7: the plan ends with node 3 uncovered"):
        load_tspd_solution(stored(lines(PLAN, L6="2 4 -1 0")))
    with pytest.raises(FormatError, match=r"line 5: '10001' is not within 0\.\.10000"):
        load_tspd_solution(stored(lines(PLAN, L5="0 10001 1 0")))


@pytest.mark.parametrize("load", [load_tspd, load_tspd_solution])
def test_a_missing_or_empty_file_is_refused(tmp_path, load):
    """By its name."""
    with pytest.raises(FormatError, match=r"absent\.txt: cannot be read"):
        load(tmp_path / "absent.txt")
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(FormatError, match=r"empty\.txt, line 1: the file ends before the (truck|number)"):
        load(tmp_path / "empty.txt")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_edits_raise_only_format_errors(data):
    """Lines truncated, duplicated or replaced by random bytes: read, or refused with a FormatError."""
    text = data.draw(st.sampled_from([INSTANCE, PLAN]))
    pieces = [*text.splitlines(), "/*", "*/", "#", "-1", "1e999", "\x00"]
    kept = data.draw(st.lists(st.sampled_from(pieces), max_size=14))
    noise = data.draw(st.binary(max_size=5))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "noise.txt"
        path.write_bytes("\n".join(kept).encode() + noise)
        for load in (load_tspd, load_tspd_solution):
            try:
                load(path)
            except FormatError as e:
                assert str(e).startswith(f"{path}, line ")


# --- writing


def test_an_instance_is_written_and_read_back_equal(stored, tmp_path):
    """To the last bit of its numbers, restrictions included."""
    instance = TSPDInstance.of_places(
        "thirds", [[1 / 3, 0.1], [2, -1e-7], [1e22, 5]], 1.1, 1 / 7, max_fly=0.1 + 0.2, no_visit=[0, 2], forbid=[1]
    )
    write_tspd(instance, tmp_path / "thirds.txt")
    again = load_tspd(tmp_path / "thirds.txt")
    assert again == instance
    assert again.name == "thirds"
    assert again != dataclasses.replace(instance, max_fly=0.3)


def test_costs_that_no_factor_explains_are_not_written(tmp_path):
    """A file has only coordinates and two factors."""
    instance = TSPDInstance.of_places("square", [[0, 0], [3, 0], [3, 4]])
    roads = instance.c_truck.copy()
    roads[1, 2] += 1
    for other in ({"c_truck": roads}, {"drone_factor": None}):
        with pytest.raises(ConfigError, match="times the distance"):
            write_tspd(dataclasses.replace(instance, **other), tmp_path / "square.txt")
    assert not (tmp_path / "square.txt").exists()


@pytest.mark.parametrize("found", [((0.1 + 0.2, 1e-9), 1 / 3), (None, 2.0), (None, None)])
def test_a_plan_is_written_and_read_back_equal(tmp_path, found):
    """With costs, with only their sum, without costs."""
    solution = Solution((Operation(0, 3, 1, (4, 2)), Operation(3, 0)), *found)
    write_tspd_solution(solution, tmp_path / "plan.txt")
    assert load_tspd_solution(tmp_path / "plan.txt") == solution
