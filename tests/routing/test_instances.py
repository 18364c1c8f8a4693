"""Small instance files: meaning of each format, play and writing."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from milkrun.core.errors import BadInstance, ConfigError
from milkrun.render.recorder import EpisodeRecorder
from milkrun.routing.instances import read, read_solution, replay, solution_of, write
from milkrun.solvers import WORLDS, solve
from tests.published import published_file
from tests.routing.instance_files import CVRP, PCVRPTW, SERVED, SOLOMON, SQUARE, TSP, explicit, legs, put


@pytest.fixture
def file(tmp_path):
    """A function that writes a text and returns the path."""
    return lambda text, name="x.vrp": put(tmp_path / name, text)


@pytest.mark.parametrize(
    ("kind", "places", "distance"),
    [
        ("EUC_2D", [(0, 0), (1, 2)], 2),  # 2.236
        ("EUC_2D", [(0, 0), (1.5, 2)], 3),  # 2.5 goes up, not to even
        ("CEIL_2D", [(0, 0), (1, 2)], 3),  # 2.236
        ("MAN_2D", [(0, 0), (1.2, 2.4)], 4),  # 3.6
        ("MAN_2D", [(0, 0), (0.5, 2)], 3),  # 2.5 goes up, not to even
        ("MAX_2D", [(0, 0), (1.2, 2.4)], 2),  # max(1, 2)
        ("ATT", [(0, 0), (10, 20)], 8),  # sqrt(50) = 7.07, rounded to 7 and so up
        ("ATT", [(0, 0), (0, 10)], 4),  # sqrt(10) = 3.16
        ("GEO", [(0.0, 0.0), (0.0, 1.30)], 167),  # 1 degree 30 minutes: 1.5 / 180 * pi * 6378.388 = 166.98
        ("GEO", [(0.0, 0.0), (-1.0, 0.0)], 112),  # one degree south: 111.32, truncated and plus 1
    ],
)
def test_a_distance_of_tsplib(file, kind, places, distance):
    """As driven by the world there and back."""
    world = read(file(legs(kind, places))).world(illegal="raise")
    world.step(np.array([1]))
    assert world.tour_length[0] == distance
    world.step(np.array([0]))
    assert world.objective[0] == -2 * distance


@pytest.mark.parametrize(
    ("kind", "places", "distance"),
    [
        ("EUC_2D", [(226.42, 264.15), (226.42, 235.65)], 28),  # 28.49999999999997: nodes 10 and 9 of tsp225
        ("EUC_2D", [(489.92, 136.15), (532.42, 136.15)], 42),  # 42.49999999999994: nodes 184 and 182
        ("EUC_2D", [(496.92, 271.65), (496.92, 243.15)], 28),  # 28.49999999999997: nodes 126 and 125
        ("EUC_2D", [("92e-2", 0), ("0.042e+1", 0)], 1),  # 0.5
        ("CEIL_2D", [(2.2, 0), (1.2, 0)], 2),  # 1.0000000000000002
        ("MAN_2D", [(1.42, 0), (0.92, 0)], 0),  # 0.4999999999999999
        ("MAX_2D", [(1.42, 0), (0.92, 0)], 0),
    ],
)
@pytest.mark.parametrize("solved", [False, True])
def test_a_near_tie_is_rounded_as_in_float64(file, kind, places, distance, solved):
    """In decimal the distance is exactly a half or an integer; published optima use the formula in doubles. World and
    checker, or solver and checker, there and back."""
    instance = read(file(legs(kind, places)))
    if solved:
        assert solve("TSP", instance, "exact").cost[0] == 2 * distance
    else:
        assert replay(instance, [[0, 1]]) == (2 * distance, True, None)


def test_a_near_tie_in_tenths_is_truncated_as_in_float64(file):
    """10 * (1.2 - 0.9) is 2.999999999999999."""
    near = SOLOMON.replace("    0      0          0", "    0      0.9        0").replace(
        "    1      3          0", "    1      1.2        0"
    )
    world = read(file(near)).world(illegal="raise")
    world.step([1])
    assert world.tour_length[0] == 2


@pytest.mark.parametrize(
    ("form", "numbers", "rows"),
    [
        ("FULL_MATRIX", "9 1 2\n3 9 4\n5 6 9", [[0, 1, 2], [3, 0, 4], [5, 6, 0]]),
        ("FULL_MATRIX", "9 1 2 3\n9 4 5 6 9", [[0, 1, 2], [3, 0, 4], [5, 6, 0]]),
        ("UPPER_ROW", "1 2\n3", [[0, 1, 2], [1, 0, 3], [2, 3, 0]]),
        ("LOWER_ROW", "1\n2 3", [[0, 1, 2], [1, 0, 3], [2, 3, 0]]),
        ("UPPER_DIAG_ROW", "0 1 2 0 3 0", [[0, 1, 2], [1, 0, 3], [2, 3, 0]]),
        ("LOWER_DIAG_ROW", "0 1\n0 2 3\n0", [[0, 1, 2], [1, 0, 3], [2, 3, 0]]),
    ],
)
def test_an_explicit_matrix(file, form, numbers, rows):
    """One stream of numbers; line breaks and the diagonal are ignored."""
    assert read(file(explicit(form, numbers))).dist.tolist() == rows


def test_upper_and_lower_rows_have_different_orders(file):
    """Of four nodes, the third number is d(1, 4) in an upper row and d(2, 3) in a lower one."""
    assert read(file(explicit("UPPER_ROW", "1 2 3 4 5 6", 4))).dist[0].tolist() == [0, 1, 2, 3]
    assert read(file(explicit("LOWER_ROW", "1 2 3 4 5 6", 4))).dist[0].tolist() == [0, 1, 2, 4]


def test_the_author_after_a_type_is_ignored(file):
    """As in TSPLIB's si175, si535 and si1032."""
    assert read(file(TSP.replace("TYPE : TSP", "TYPE : TSP (M.~Hofmeister)"))) == read(file(TSP))


FIXED = TSP.replace("NODE_COORD_SECTION", "FIXED_EDGES_SECTION\n1 3\n-1\nNODE_COORD_SECTION")


def test_a_fixed_edge_is_kept_and_required_of_a_tour(file, tmp_path):
    """The diagonal of the rectangle of 3 by 4: with it a tour has 5 + 4 + 5 + 4 = 18; the perimeter of 14 is
    invalid."""
    instance = read(file(FIXED))
    assert instance.fixed_edges == ((0, 2),)
    assert instance != read(file(TSP))
    assert replay(instance, [[0, 2, 1, 3]]) == (18, True, None)
    assert replay(instance, [[2, 1, 3, 0]]) == (18, True, None)
    said = "the tour lacks the fixed edge between nodes 0 and 2"
    assert replay(instance, [[0, 1, 2, 3]]) == (math.inf, False, said)
    write(instance, tmp_path / "again")
    assert read(tmp_path / "again") == instance


def test_a_problem_with_fixed_edges_is_not_silently_played_without_them(file):
    """World and solver refuse it; on request the edges can be dropped."""
    instance = read(file(FIXED))
    for use in (instance.world, lambda: solve("TSP", instance, "exact")):
        with pytest.raises(ConfigError, match=r"square: its tour must contain 1 fixed edges, .* fixed_edges=\(\)\) is"):
            use()
    assert solve("TSP", dataclasses.replace(instance, fixed_edges=()), "exact").cost[0] == 14


def test_nodes_may_come_in_any_order(file):
    """The first number of a line is the node."""
    shuffled = TSP.replace(SQUARE, "3 3 4\n1 0 0\n4 0 4\n2 3 0\n")
    assert read(file(shuffled)) == read(file(TSP))


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.replace("\n", "\r\n"),
        lambda t: t.replace("\n", "\r"),
        lambda t: "\ufeff" + t,
        lambda t: t.replace(" : ", ":"),
        lambda t: t.replace(" : ", " :\t") + "\n\n",
        lambda t: t.replace("EOF\n", ""),
        lambda t: t.removesuffix("\n"),
        lambda t: t.replace("EOF\n", "EOF\nwhat follows is not read"),
        lambda t: t.replace("3 3 4", " 3\t3.0   4e0 "),
        lambda t: t.replace("NODE_COORD_SECTION", "NODE_COORD_SECTION :"),
        lambda t: t.replace("TYPE : CVRP", "COMMENT : drawn by Gr\u00f6tschel\nTYPE : CVRP").encode("latin-1"),
    ],
)
def test_variants_of_the_format_change_nothing(file, change):
    """Line ends, byte order mark, blanks, no EOF, no last line end, other formats of numbers, old encodings."""
    again = read(file(change(CVRP)))
    assert again == read(file(CVRP))
    assert again.best == 18


@pytest.mark.parametrize(
    ("name", "metric", "length"),
    [
        ("A-n3-k1", "round", 4),
        ("X-n3-k1", "round", 4),
        ("Leuven1", "round", 4),
        ("Lima", "round", 4),
        ("CMT1", "euclid", 2 * math.sqrt(5)),
        ("Golden_1", "euclid", 2 * math.sqrt(5)),
        ("tai75a", "euclid", 2 * 5**0.5),
        ("Li_21", "euclid", 2 * math.sqrt(5)),
    ],
)
def test_the_set_determines_whether_a_cvrp_is_rounded(file, name, metric, length):
    """One customer at (1, 2), at distance 2.236."""
    text = (
        f"NAME : {name}\nTYPE : CVRP\nDIMENSION : 2\nEDGE_WEIGHT_TYPE : EUC_2D\nCAPACITY : 1\n"
        "NODE_COORD_SECTION\n1 0 0\n2 1 2\nDEMAND_SECTION\n1 0\n2 1\nDEPOT_SECTION\n1\n-1\nEOF\n"
    )
    instance = read(file(text))
    assert instance.metric == metric
    assert replay(instance, [[1]]) == (length, True, None)


def test_service_counts_towards_the_trip_limit_and_not_the_cost(file):
    """The rectangle in one trip is 14 long; with three stops of 2 it takes 20."""
    text = CVRP.replace("A-n4-k2", "CMT0").replace("CAPACITY : 10", "CAPACITY : 15\nDISTANCE : 20\nSERVICE_TIME : 2")
    assert replay(read(file(text)), [[1, 2, 3]]) == (14, True, None)
    cost, valid, reason = replay(read(file(text.replace("DISTANCE : 20", "DISTANCE : 19.5"))), [[1, 2, 3]])
    assert (cost, valid, reason) == (math.inf, False, "trip 1 takes 20, max_length 19.5")
    unlimited = read(file(text.replace("DISTANCE : 20\n", "")))
    assert (unlimited.dist, unlimited.service) == (None, 0)
    assert replay(unlimited, [[1, 2, 3]]) == (14, True, None)


@pytest.mark.parametrize("method", WORLDS["CVRP"])
def test_the_cost_of_a_solver_excludes_service(file, method):
    """The rectangle: one trip takes 14 + 3 * 2 = 20 and costs 14. A limit of 19.5 requires two trips, the cheapest to
    customer 1 and back, 6, and over 2 and 3, 12. On a matrix, two stops: 12."""
    if method in ("pyvrp", "ortools"):
        pytest.importorskip(method, reason="needs the extra 'solvers'")
    text = CVRP.replace("A-n4-k2", "CMT0").replace("CAPACITY : 10", "CAPACITY : 15\nDISTANCE : 20\nSERVICE_TIME : 2")
    for change, best in ((text, 14), (text.replace("DISTANCE : 20", "DISTANCE : 19.5"), 18), (SERVED, 12)):
        instance = read(file(change))
        found = solve("CVRP", instance, method, iterations=50)
        assert instance.published(-found.cost[0]) == found.cost[0]
        assert replay(instance, solution_of(instance, found.actions[0]))[0] == pytest.approx(found.cost[0], rel=1e-7)
        assert found.cost[0] == best or (method in ("nearest", "2opt", "oropt") and found.cost[0] == 20)
        world = instance.world(autoreset="disabled", illegal="raise")
        for node in found.actions[0].tolist():
            if not world.terminated[0]:
                world.step([node])
        assert world.terminated[0] and -world.objective[0] == pytest.approx(found.cost[0], rel=1e-6)


def test_a_stop_counts_towards_the_limit_immediately(file):
    """Out to 1 (3 long) with a stop of 2: 5 used; on to 2 and home would take 5 + 4 + 2 + 5, over 3 it is 5 + 5 + 2 +
    4."""
    text = CVRP.replace("CAPACITY : 10", "CAPACITY : 15\nDISTANCE : 15.5\nSERVICE_TIME : 2")
    world = read(file(text)).world(illegal="raise")
    assert world.action_mask[0].tolist() == [False, True, True, True]
    world.step([1])
    assert (world.trip_length[0], world.tour_length[0], world.objective[0]) == (5, 3, -3)
    assert world.action_mask[0].tolist() == [True, False, False, False]
    with pytest.raises(BadInstance, match=r"customer 2: there and back 12 is over max_length = 11\.9"):
        read(file(text.replace("15.5", "11.9"))).world()


def test_service_on_an_explicit_matrix(file):
    """Two customers, 3 + 4 + 5 long, two stops of 1: 14 in total, cost 12."""
    assert replay(read(file(SERVED)), [[1, 2]]) == (12, True, None)
    assert replay(read(file(SERVED.replace("DISTANCE : 14", "DISTANCE : 13"))), [[1, 2]])[1] is False


def test_places_that_float32_would_round_differently_become_a_matrix(file):
    """1.5 - 1e-9 rounds to 1; in float32 it is 1.5, which rounds to 2."""
    instance = read(file(legs("EUC_2D", [(0, 0), (1.499999999, 0)])))
    assert instance.metric == "round"
    assert instance.dist.tolist() == [[0, 1], [1, 0]]
    assert replay(instance, [[0, 1]]) == (2, True, None)
    assert read(file(legs("EUC_2D", [(0, 0), (1.3, 0)]))).dist is None


def test_the_best_value_comes_from_the_file_or_its_solution_file(file):
    """The comment has priority over the solution file in the same folder."""
    assert read(file(CVRP, "a.vrp")).best == 18
    silent = file(CVRP.replace("Optimal value: 18", ""), "b.vrp")
    assert read(silent).best is None
    file("Route #1: 1 2\nRoute #2: 3\nCost 20\n", "b.sol")
    assert read(silent).best == 20


def test_solomon_counts_in_tenths(file):
    """Times are the file's times ten; demands and capacity are unchanged."""
    instance = read(file(SOLOMON, "t.txt"))
    assert (instance.name, instance.kind, instance.n, instance.scale) == ("T4", "CVRPTW", 3, 10)
    assert (instance.metric, instance.vehicles, instance.fields["capacity"]) == ("trunc1", 3, 10)
    assert instance.fields["time_windows"].tolist() == [[0, 1000], [200, 300], [0, 400], [0, 500]]
    assert instance.fields["service_time"].tolist() == [0, 90, 90, 90]
    assert instance.fields["linehaul"].tolist() == [0, 5, 5, 5]
    assert instance.published(-301) == 30.1


def test_prize_collecting_files_count_in_tenths(file):
    """Also prizes; no customer is mandatory; the published cost includes missed prizes and is not divided."""
    instance = read(file(PCVRPTW))
    assert (instance.kind, instance.n, instance.vehicles) == ("PCVRPTW", 2, 2)
    assert instance.fields["prize"].tolist() == [0, 210, 180]
    assert instance.fields["service_time"].tolist() == [0, 90, 90]
    assert not instance.fields["must_go"].any()
    assert instance.published(180 - 100) == 310


@pytest.mark.parametrize(
    "text",
    [
        TSP,
        CVRP,
        SOLOMON,
        PCVRPTW,
        legs("GEO", [(10.3, 2), (-3.05, 1 / 3)]),
        legs("CEIL_2D", [(0, 0), (1e-9, 1.5)]),
        legs("EUC_2D", [(0, 0), (1.499999999, 0)]),
        explicit("UPPER_ROW", "1 2.5\n3"),
        SERVED,
        CVRP.replace("A-n4-k2", "CMT0").replace("CAPACITY : 10", "CAPACITY : 15\nDISTANCE : 20\nSERVICE_TIME : 2.25"),
    ],
)
def test_a_written_file_reads_back_equal(file, tmp_path, text):
    """To the last bit of every number."""
    instance = read(file(text))
    write(instance, tmp_path / "again")
    assert read(tmp_path / "again") == instance


def test_instances_that_differ_are_not_equal(file):
    """In one demand, one place, the name; the best known value is ignored."""
    one = read(file(CVRP))
    assert one == read(file(CVRP.replace("value: 18", "value: 17")))
    for old, new in [("4 5\nDEPOT", "4 4\nDEPOT"), ("3 3 4", "3 3 5"), ("A-n4", "B-n4"), (": 10", ": 9")]:
        assert one != read(file(CVRP.replace(old, new)))


def test_instances_beyond_the_format_are_not_written(file, tmp_path):
    """TSPLIB has no unrounded plane distance, so no file is written."""
    unrounded = dataclasses.replace(read(file(TSP)), metric="euclid")
    with pytest.raises(ConfigError, match="square: a TSP file of that name cannot hold metric 'euclid'"):
        write(unrounded, tmp_path / "no.tsp")
    with pytest.raises(ConfigError, match="T4: a Solomon file needs `locs` and `vehicles`"):
        write(dataclasses.replace(read(file(SOLOMON)), vehicles=None), tmp_path / "no.tsp")
    assert not (tmp_path / "no.tsp").exists()


def test_an_instance_is_read_only(file):
    """Neither its arrays nor its fields can be set."""
    instance = read(file(CVRP))
    with pytest.raises(ValueError, match="read-only"):
        instance.locs[0, 0] = 1
    with pytest.raises(TypeError):
        instance.fields["capacity"] = 1


def test_a_world_plays_an_instance_in_many_rows(file):
    """Three rows share one copy of the rectangle and each has cost 18 for two trips."""
    world = read(file(CVRP)).world(repeat=3, autoreset="disabled", illegal="raise")
    for node in (1, 2, 0, 3, 0):
        world.step(np.full(3, node))
    assert world.objective.tolist() == [-20, -20, -20]
    assert world.locs.shape == (1, 4, 2)
    assert world.terminated.all()


@pytest.mark.parametrize("name", ["R101", "C101", "RC101"])
def test_a_rendered_plan_has_the_published_cost(name):
    """The optimum of Solomon's file in published units: the same number on a page, in a picture and in the file, and
    every stop within its window."""
    instance = read(published_file(f"routing/solomon/{name}.txt"))
    solution = read_solution(published_file(f"routing/solomon/{name}.sol"))
    world = instance.in_published_units().world(autoreset="disabled", illegal="raise")
    recorder = EpisodeRecorder(world)
    for node in (node for route in solution.routes for node in (*route, 0)):
        recorder.step([node])
    cost, valid, _ = replay(instance, solution)
    assert valid and world.terminated[0]
    assert -world.objective[0] == pytest.approx(cost, abs=1e-2) == float(world.tour_length[0])
    chart = recorder.episodes()[-1].chart
    assert len(chart.lanes) == len(solution.routes) and all(w.arrival <= w.closes for w in chart.windows)
