"""World, checker and solver use TSPLIB's distance formulas in float64, as C programs compute them.

Every format and metric with decimals, large and negative coordinates. Numbers beyond single precision are refused by
name.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from milkrun.core.errors import BadInstance, FormatError
from milkrun.routing.instances import read, replay, write
from milkrun.solvers import solve
from tests.routing.instance_files import PCVRPTW, SOLOMON, explicit, put

pytestmark = pytest.mark.truth


def nint(x):
    return int(x + 0.5)


def att(dx, dy):
    r = math.sqrt((dx * dx + dy * dy) / 10.0)
    return nint(r) + 1 if nint(r) < r else nint(r)


LAWS = {
    "EUC_2D": lambda dx, dy: nint(math.sqrt(dx * dx + dy * dy)),
    "CEIL_2D": lambda dx, dy: math.ceil(math.sqrt(dx * dx + dy * dy)),
    "MAN_2D": lambda dx, dy: nint(abs(dx) + abs(dy)),
    "MAX_2D": lambda dx, dy: max(nint(abs(dx)), nint(abs(dy))),
    "ATT": att,
    "trunc1": lambda dx, dy: int(10.0 * math.sqrt(dx * dx + dy * dy)),
}
"""The formulas of TSPLIB95, as LKH and Concorde compute them."""


def tsp(name, edge, words):
    rows = "".join(f"{k} {x} {y}\n" for k, (x, y) in enumerate(words, start=1))
    return (
        f"NAME : {name}\nTYPE : TSP\nDIMENSION : {len(words)}\nEDGE_WEIGHT_TYPE : {edge}\n"
        f"NODE_COORD_SECTION\n{rows}EOF\n"
    )


def cvrp(name, edge, words):
    demand = "".join(f"{k} {int(k > 1)}\n" for k in range(1, len(words) + 1))
    text = tsp(name, edge, words).replace("TYPE : TSP", f"TYPE : CVRP\nCAPACITY : {len(words)}")
    return text.replace("EOF\n", f"DEMAND_SECTION\n{demand}DEPOT_SECTION\n1\n-1\nEOF\n")


def solomon(words):
    rows = "".join(f"{k} {x} {y} {int(k > 0)} 0 1600000 0\n" for k, (x, y) in enumerate(words))
    return f"T\n\nVEHICLE\nNUMBER CAPACITY\n9 {len(words)}\n\nCUSTOMER\nCUST NO.\n\n{rows}"


def prized(words):
    nodes = range(1, len(words) + 1)
    text = (
        cvrp("T", "EUC_2D", words)
        .replace("TYPE : CVRP", "TYPE : PCVRPTW")
        .replace(
            "DEPOT_SECTION",
            (
                "TIME_WINDOW_SECTION\n"
                + "".join(f"{k} 0 1600000\n" for k in nodes)
                + "PRIZE_SECTION\n"
                + "".join(f"{k} {1000000 * (k > 1)}\n" for k in nodes)
                + "DEPOT_SECTION"
            ),
        )
    )
    return text


FORMATS = {
    **{f"TSP {edge}": (lambda words, edge=edge: tsp("t", edge, words), edge) for edge in LAWS if edge != "trunc1"},
    **{f"CVRP {e}": (lambda words, edge=e: cvrp("t", edge, words), e) for e in ("EUC_2D", "CEIL_2D", "ATT")},
    "Solomon": (solomon, "trunc1"),
    "PCVRPTW": (prized, "trunc1"),
}
COORDINATES = {
    "tenths": lambda rng: f"{rng.integers(-20, 20) / 10:.1f}",
    "hundredths": lambda rng: f"{rng.integers(0, 100_000) / 100:.2f}",
    "thousandths": lambda rng: f"{rng.integers(-3000, 3000) / 1000:.3f}",
    "halves": lambda rng: f"{rng.integers(0, 40) / 2:.1f}",
    "whole": lambda rng: str(rng.integers(-999, 999)),
    "far": lambda rng: f"{123_456_789 + rng.integers(0, 60) / 10:.1f}",
    "large": lambda rng: str(rng.integers(-60_000, 60_000)),
    "larger": lambda rng: f"{rng.integers(-(10**9), 10**9)}.3",
    "many digits": lambda rng: f"{rng.integers(0, 3)}.{rng.integers(4, 6)}{'0' * 24}{rng.integers(0, 3)}",
}


def exact_cost(law, places, routes):
    """The length of routes, each from node 0 and back."""
    legs = [leg for route in routes for leg in pairwise([0, *route, 0])]
    return sum(LAWS[law](*(p - q for p, q in zip(places[i], places[j]))) for i, j in legs)


def routes_of(solution, tour):
    """The routes in the actions of a solver."""
    nodes, routes = solution.actions[0].tolist(), [[]]
    for node in nodes:
        routes.append([]) if node == 0 else routes[-1].append(node)
    routes = [route for route in routes if route]
    assert not tour or len(routes) == 1
    return routes


@pytest.mark.parametrize("kind", COORDINATES)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("trials", [1, pytest.param(100, marks=pytest.mark.long)])
def test_a_file_plays_the_formula(trials, form, kind, tmp_path):
    """A random tour has the same cost in world, checker and formula; a solver's cost is that of its plan."""
    (text_of, law), tour = FORMATS[form], form.startswith("TSP")
    rng = np.random.default_rng([sum(form.encode()), sum(kind.encode())])
    for trial in range(trials):
        words = [(COORDINATES[kind](rng), COORDINATES[kind](rng)) for _ in range(6)]
        places = [(float(x), float(y)) for x, y in words]
        path = put(tmp_path / f"{trial}", text_of(words))
        try:
            instance = read(path)
        except FormatError as e:
            assert "single precision" in str(e) and kind in ("far", "large", "larger")
            assert max(exact_cost(law, places, [[j]]) for j in range(1, 6)) > 2**20
            continue
        order = [int(j) for j in rng.permutation(5) + 1]
        cost, valid, reason = replay(instance, [[0, *order]] if tour else [order])
        assert (valid, reason) == (True, None)
        scale = instance.scale if instance.kind == "CVRPTW" else 1
        assert round(cost * scale) == exact_cost(law, places, [order])
        assert cost == exact_cost(law, places, [order]) / scale
        if trial == 0:
            found = solve(instance.world_id, instance, "pyvrp", iterations=20)
            paid = exact_cost(law, places, routes_of(found, tour))
            assert instance.published(-found.cost[0]) == pytest.approx(paid / scale, rel=1e-12)
        write(instance, tmp_path / "again")
        assert read(tmp_path / "again") == instance


def test_seven_tenths_are_seven_tenths(tmp_path):
    """One customer at distance .7: 7 tenths there and 7 back, in Solomon's format and with prizes."""
    for text_of, published in ((solomon, 1.4), (prized, 14.0)):
        far = read(put(tmp_path / "far", text_of([("0", "0"), ("0.7", "0")])))
        assert replay(far, [[1]]) == (published, True, None)


@pytest.mark.parametrize("name", ["CMT1", "Golden_1", "tai75a", "Li_21"])
def test_unrounded_distances_are_within_the_tolerance(name, tmp_path):
    """Far from the origin too, where single precision would move a place by eight units."""
    for kind in ("tenths", "hundredths", "far", "larger"):
        rng = np.random.default_rng(sum(kind.encode()))
        words = [(COORDINATES[kind](rng), COORDINATES[kind](rng)) for _ in range(6)]
        places = [(float(x), float(y)) for x, y in words]
        instance = read(put(tmp_path / kind, cvrp(name, "EUC_2D", words)))
        legs = [math.hypot(*(p - q for p, q in zip(places[i], places[j]))) for i, j in pairwise([0, 3, 1, 2, 5, 4, 0])]
        assert replay(instance, [[3, 1, 2, 5, 4]])[0] == pytest.approx(sum(legs), rel=1e-5)
        world = instance.world(illegal="raise")
        for node in (3, 1, 2, 5, 4, 0):
            world.step([node])
        assert -world.objective[0] == pytest.approx(sum(legs), rel=1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            explicit("UPPER_ROW", "16777217 2\n3"),
            "the distance from node 0 to node 1, counted from 0, in EXPLICIT is 167",
        ),
        (
            explicit("UPPER_ROW", "1 2\n20000000.5"),
            "the distance from node 1 to node 2, counted from 0, in EXPLICIT is 2",
        ),
        (
            tsp("t", "MAN_2D", [("0", "0"), ("9e6", "8000001")]),
            "the distance from node 0 to node 1, counted from 0, in",
        ),
        (
            SOLOMON.replace("         100 ", "    20000000 ").replace("30          9", "30    2000000"),
            "the time of a trip can come to 20000",
        ),
        (PCVRPTW.replace("2 21", "2 1677721.7"), "the prize of node 1, counted from 0, is 16777217"),
        (
            PCVRPTW.replace("3 5 0\nDEMAND", "3 900000 0\nDEMAND").replace("1 0 90\n", "1 0 9e9\n"),
            "the time of a trip can come to",
        ),
    ],
)
def test_numbers_beyond_single_precision_are_refused(text, message, tmp_path):
    """Whole numbers beyond 2**24, and clocks and loads that could pass it."""
    path = put(tmp_path / "x", text)
    with pytest.raises(FormatError, match="single precision") as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}: {message}")


def test_large_loads_are_exact_in_the_vrp_and_refused_by_the_cvrpp(tmp_path):
    """The VRP adds loads in whole numbers, the CVRPP in single precision."""
    large = SOLOMON.replace("  3         10", "  3  88888893").replace("4          5", "4   88888888")
    instance = read(put(tmp_path / "x", large))
    assert replay(instance, [[1, 2], [3]]) == (14.8, True, None)  # 5 and 88 888 888 are just the capacity
    assert replay(instance, [[1], [2, 3]])[1] is True
    assert replay(instance, [[1, 2, 3]])[1] is False
    with pytest.raises(BadInstance, match="the load of a trip can come to 88888893; milkrun/CVRPP-v0 holds whole"):
        instance.for_world("CVRPP").world()


def test_a_trip_that_rounding_makes_too_long_is_refused(tmp_path):
    """Three legs of 5592405.09 are 16777215.3, within 2**24; each rounded up, they are 16777218."""
    far = cvrp("t", "CEIL_2D", [("0", "0"), ("5592405", "1000"), ("0", "1000")])
    text = far.replace("TYPE", "DISTANCE : 2e7\nTYPE", 1)
    with pytest.raises(FormatError, match="the length of a trip can come to 16777218: single precision"):
        read(put(tmp_path / "x", text))


def test_a_deadline_that_never_binds_may_be_any_number(tmp_path):
    """Three stops within 10 units of each other come home long before 99999999.9."""
    instance = read(put(tmp_path / "x", SOLOMON.replace("         100 ", "  99999999.9 ")))
    assert replay(instance, [[2], [1], [3]])[1] is True


def test_a_time_of_the_file_is_multiplied_once(tmp_path):
    """10.07 is 100.7 tenths; ten times the float64 nearest to 10.07 would be another number."""
    instance = read(put(tmp_path / "x", SOLOMON.replace("20          30", "10.07    30.03")))
    assert instance.fields["time_windows"][1].tolist() == [100.7, 300.3]
