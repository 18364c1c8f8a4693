"""Solutions: replayed through world and checker, written and read."""

from __future__ import annotations

import math

import numpy as np
import pytest

from milkrun.core.errors import MilkrunError, ShapeError
from milkrun.routing import tasks
from milkrun.routing.instances import read, read_solution, replay, write_solution
from milkrun.routing.instances.replay import agree
from tests.routing.instance_files import CVRP, PCVRPTW, SOLOMON, TSP, put


@pytest.fixture
def file(tmp_path):
    """A function that writes a text and returns the path."""
    return lambda text, name="x.vrp": put(tmp_path / name, text)


@pytest.mark.parametrize(
    ("routes", "reason"),
    [
        ([[1, 2], [3, 4]], "route 2 names 4, which does not exist: 1..3"),
        ([[1, 2], [0, 3]], "route 2 names 0, which does not exist: 1..3"),
        ([[1, 2]], "customer 3 is never visited"),
        ([], "customer 1 is never visited"),
        ([[1, 2], [2, 3]], "customer 2 is visited 2 times"),
        ([[1, 2, 3]], "trip 1 carries 15, capacity 10"),
    ],
)
def test_a_solution_that_breaks_a_rule_is_not_valid(file, routes, reason):
    """Its cost is infinite."""
    assert replay(read(file(CVRP)), routes) == (math.inf, False, reason)


def test_empty_routes_are_skipped(file):
    """Some files of CVRPLIB have them."""
    assert replay(read(file(CVRP)), [[], [1], [], [2, 3], []]) == (6 + 12, True, None)


def test_a_tour_is_one_route(file):
    """From any node, in any direction."""
    instance = read(file(TSP))
    assert replay(instance, [[2, 1, 0, 3]]) == (14, True, None)
    assert replay(instance, [[0, 1], [2, 3]]) == (math.inf, False, "a tour is one route, not 2")
    assert replay(instance, [[0, 1, 2, 3, 0]]) == (math.inf, False, "the tour has 5 stops for 4 nodes")


def test_world_and_checker_that_disagree_raise(file, monkeypatch):
    """A checker that charges 1 less, and one that accepts an overloaded truck."""
    instance = read(file(CVRP))
    monkeypatch.setattr(tasks.CVRP, "get_costs", lambda *a, **k: (np.array([17.0]), {}, None))
    with pytest.raises(MilkrunError, match="objective -18 in the world, -17 in the checker"):
        replay(instance, [[1], [2, 3]])
    monkeypatch.setattr(tasks.CVRP, "check", lambda *a, **k: (np.array([True]), [None]))
    with pytest.raises(MilkrunError, match=r"over capacity: 10 \+ 5 > 10.*the checker 'valid'"):
        replay(instance, [[1, 2, 3]])


def test_agreement_is_to_the_last_digit_of_integers():
    """A million and one is not a million; a seventh of a millionth of 555.43 is within rounding."""
    assert agree(555.4302, 555.43025)
    assert not agree(555.43, 555.44)
    assert agree(1e6, 1e6)
    assert not agree(1_000_001, 1_000_000)


def test_solutions_are_written_and_read(tmp_path):
    """Routes as in CVRPLIB; a tour counts from 1 in its file."""
    write_solution(tmp_path / "a.sol", [[1, 2], [3]], 18)
    assert (tmp_path / "a.sol").read_text() == "Route #1: 1 2\nRoute #2: 3\nCost 18\n"
    assert read_solution(tmp_path / "a.sol").routes == ((1, 2), (3,))
    write_solution(tmp_path / "a.tour", [[0, 2, 1]], 12.5)
    assert "TOUR_SECTION\n1\n3\n2\n-1\nEOF\n" in (tmp_path / "a.tour").read_text()
    again = read_solution(tmp_path / "a.tour")
    assert (again.routes, again.cost) == (((0, 2, 1),), 12.5)


@pytest.mark.parametrize(("name", "routes"), [("a.sol", [[0, 1]]), ("a.tour", [[0], [1]]), ("a.tour", [[-1, 0]])])
def test_solutions_beyond_the_format_are_refused(tmp_path, name, routes):
    """The depot in a route, two tours, a negative node."""
    with pytest.raises(ShapeError):
        write_solution(tmp_path / name, routes)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("routes", "cost", "message"),
    [
        ([[1, 2]], math.inf, "cost is inf, expected a finite number, or None"),
        ([[1, 2]], "18", "cost is '18', expected a finite number, or None"),
        ([[1, 1.7]], 18, "route 1 has 1.7, which is not a node number"),
        ([[1], 2], 18, "route 2 is a int, expected a list of node numbers"),
        ("12", 18, "routes are lists of node numbers, one a route, not a str"),
    ],
)
def test_an_invalid_plan_is_not_written(tmp_path, routes, cost, message):
    """Neither rounded nor partially written."""
    for name in ("a.sol", "a.tour"):
        with pytest.raises(ShapeError, match=message):
            write_solution(tmp_path / name, routes, cost)
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("comment", "cost"),
    [
        ("Length 6528", 6528),
        ("optimal tour for fri26 (937)", 937),
        ("Optimum for eil101.tsp (Length 629)", 629),
        ("Optimum solution for att48", None),
    ],
)
def test_the_length_in_a_tours_comment(file, comment, cost):
    """In the forms of TSPLIB's files."""
    tour = file(f"COMMENT : {comment}\nTYPE : TOUR\nTOUR_SECTION\n1 3 2\n-1\nEOF\n", "t.tour")
    assert read_solution(tour).cost == cost
    assert read_solution(tour).routes == ((0, 2, 1),)


@pytest.mark.parametrize(
    ("routes", "cost"),
    [
        ([[1, 2], [3]], 14.8),  # 30 + 40 + 50 and 14 + 14 tenths; the truck waits at customer 1 until 20
        ([[2, 1], [3]], 14.8),  # at 2 by 5, leaves at 14, at 1 by 18, waits until 20
        ([[1], [2], [3]], 18.8),
    ],
)
def test_windows_are_kept_in_tenths(file, routes, cost):
    """By hand on three customers with windows and 9 of service."""
    assert replay(read(file(SOLOMON)), routes) == (cost, True, None)


@pytest.mark.parametrize(("due", "valid"), [("40", True), ("33", True), ("32.9", False)])
def test_a_late_arrival_is_not_valid(file, due, valid):
    """Served from 20 to 29 at customer 1, the truck is at customer 2 by 33."""
    instance = read(file(SOLOMON.replace("0          40", f"0          {due}")))
    assert replay(instance, [[1, 2], [3]])[1] is valid


def test_the_truck_must_be_home_before_the_depot_closes(file):
    """The truck leaves customer 2 at 42, home is 5 away; with customer 3 alone it would be in time."""
    late = SOLOMON.replace("0         100", "0         46.9")
    assert replay(read(file(late)), [[1, 2], [3]])[1] is False
    assert replay(read(file(late)), [[1], [2], [3]])[1] is True


@pytest.mark.parametrize(
    ("routes", "cost"),
    [
        ([], 390),  # both prizes left
        ([[1]], 28 + 180),  # 14 out, 14 home, and the prize of customer 2
        ([[2]], 100 + 210),
        ([[1, 2]], 105),  # 14 + 41 + 50
    ],
)
def test_missed_prizes_are_charged(file, routes, cost):
    """By hand on two optional customers, in tenths."""
    assert replay(read(file(PCVRPTW)), routes) == (cost, True, None)


def test_an_optional_customer_may_not_be_served_late(file):
    """Customer 1 closes at 10; after customer 2 the truck arrives at 18.1."""
    cost, valid, reason = replay(read(file(PCVRPTW)), [[2, 1]])
    assert (cost, valid) == (math.inf, False)
    assert "customer 1" in reason
