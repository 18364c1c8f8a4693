"""Small files of the VRP's kinds: meaning of each format, fleets, play and writing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from milkrun.core.errors import ConfigError, FormatError
from milkrun.render.recorder import EpisodeRecorder
from milkrun.routing.instances import read, read_solution, replay, solution_of, write, write_solution
from tests.published import published_file
from tests.routing.instance_files import (
    CVRP,
    HFVRP,
    MDVRP,
    MDVRPTW,
    ORIENTEERING,
    PCVRPTW,
    RES,
    SCORE,
    SOLOMON,
    TSP,
    VRPB,
    VRPSPD,
    VRPTW,
    put,
)


@pytest.fixture
def file(tmp_path):
    """A function that writes a text and returns the path."""
    return lambda text, name="x": put(tmp_path / name, text)


# -- several depots -----------------------------------------------------------------------------------------------


def test_a_file_of_several_depots(file):
    """Two depots with two vehicles each: at most 15 long with 10 units, and any length with 8 units.

    The depots are the first nodes; the fleet is enforced.
    """
    instance = read(file(MDVRP))
    assert (instance.kind, instance.n, instance.num_depots, instance.vehicles) == ("MDVRP", 3, 2, 4)
    assert instance.locs.tolist() == [[0, 0], [3, 5], [3, 0], [3, 4], [0, 4]]
    assert instance.fields["capacity"].tolist() == [10, 8]
    assert instance.fields["duration_limit"].tolist() == [15, math.inf]
    assert instance.fields["service_time"].tolist() == [0, 0, 1, 1, 1]
    world = instance.world()
    assert (world.id, world.vehicles.tolist()) == ("milkrun/VRP-v0", [[2, 2]])


def test_a_solution_with_depots(file):
    """Depot 1 serves 3 and 1, 4 + 5 + 3 long; depot 2 serves 2, 1 there and back."""
    solution = read_solution(file(RES, "x.res"))
    assert (solution.routes, solution.depots, solution.ends, solution.cost) == (((3, 1), (2,)), (0, 1), (0, 1), 14)
    instance = read(file(MDVRP))
    assert instance.best == 14
    assert replay(instance, solution) == (14, True, None)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("15 10", "13.9 10", "route 1, whose last customer is 2, takes 14, duration_limit 13.9"),
        ("15 10", "15 9", "route 1 to customer 4 leaves depot 0 with load 10, capacity 9"),
        ("15 10", "14 10", None),
        ("15 10", "0 0", None),
    ],
)
def test_limits_of_a_depot(file, old, new, reason):
    """The first route drives 12 and serves for 2; 0 is no limit."""
    cost = 14 if reason is None else math.inf
    instance = read(file(MDVRP.replace(old, new)))
    assert replay(instance, read_solution(file(RES, "y.res"))) == (cost, reason is None, reason)


def test_a_fleet_that_ends_leaves_no_customer(file):
    """With one vehicle a depot and customer 3 unserved the world would end the episode and charge for it."""
    instance = read(file(MDVRP.replace("2 3 2", "1 3 2", 1)))
    assert replay(instance, [[1], [2]]) == (math.inf, False, "customer 3 is not served")
    assert replay(instance, [[1], [2], [3]]) == (math.inf, False, "route 3 has no vehicle: there are 2")


def test_the_type_before_the_first_line(file):
    """Some copies begin with 2, the type of this kind; others are refused."""
    assert read(file(MDVRP.replace("2 3 2", "2 2 3 2", 1))) == read(file(MDVRP))
    with pytest.raises(FormatError, match="line 1: type 6 is not supported; supported: 2, several depots"):
        read(file(MDVRP.replace("2 3 2", "6 2 3 2", 1)))


def test_several_depots_with_windows(file):
    """Distances are rounded to thousandths and times multiplied by 1000; customers count from 2 in solutions.

    Vehicle 1 is at depot 2 and drives 1 + 1; vehicle 2 at depot 1 drives 1.414 + 3.162 + 4.
    """
    instance = read(file(MDVRPTW))
    assert (instance.n, instance.num_depots, instance.vehicles, instance.scale) == (3, 2, 3, 1000)
    assert (instance.vehicle_depots, instance.first_customer) == ((1, 0, 1), 2)
    assert instance.dist[0, 2:].tolist() == [1414, 5000, 4000]
    assert instance.fields["time_windows"][2:].tolist() == [[5000, 30000], [0, 40000], [0, 50000]]
    assert instance.fields["service_time"].tolist() == [0, 0, 2000, 2000, 2500]
    assert instance.fields["duration_limit"].tolist() == [40000, 40000]
    assert replay(instance, [[3], [2, 4], []]) == (10576, True, None)
    assert replay(instance, [[1]]) == (math.inf, False, "route 1 names 1, which does not exist: 2..4")
    assert instance.world().vehicles.tolist() == [[1, 2]]


def test_a_duration_is_the_least_one(file):
    """Customer 2 opens at 5. If the vehicle leaves at 3.586, it drives 8.576 and serves 4.5 without waiting: 13.076.

    If it left at 0, as it may, the route would take 16.662.
    """
    for limit, valid in (("13.076", True), ("13.075", False)):
        instance = read(file(MDVRPTW.replace("MAX_DURATION : 40", f"MAX_DURATION : {limit}")))
        assert replay(instance, [[3], [2, 4]])[1] is valid


def test_a_file_without_type_and_with_a_matrix():
    """PyVRP's small file: 1944 + 1965 from depot 1, 1427 + 818 + 1594 from depot 2; nothing is scaled."""
    instance = read(published_file("routing2/small/OkSmallMultipleDepots.txt"))
    assert (instance.kind, instance.scale, instance.vehicle_depots) == ("MDVRPTW", 1, (0, 0, 1))
    assert replay(instance, [[2], [], [3, 4]]) == (7748, True, None)


# -- mixed fleets -------------------------------------------------------------------------------------------------


def test_vehicles_that_are_alike_are_one_depot(file):
    """Vehicles 1 and 3 have capacity 10, fixed cost 5 and unit cost 1, vehicle 2 has 5, .5 and 2."""
    instance = read(file(HFVRP))
    assert (instance.num_depots, instance.vehicle_depots, instance.n) == (2, (1, 0, 1), 3)
    assert instance.fields["capacity"].tolist() == [5, 10]
    assert instance.fields["fixed_cost"].tolist() == [0.5, 5]
    assert instance.fields["distance_cost"].tolist() == [2, 1]
    assert instance.locs.tolist() == [[0, 0], [0, 0], [3, 0], [3, 4], [0, 4]]
    assert instance.world().vehicles.tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("routes", "found"),
    [
        ([[1, 2], [3]], (33.5, True, None)),  # 12 + 5 and 2 * 8 + .5
        ([[1, 2], [], [3]], (30, True, None)),  # 12 + 5 and 8 + 5
        ([[3], [1, 2]], (math.inf, False, "route 2 to customer 2 leaves depot 0 with load 10, capacity 5")),
        ([[1], [], [2], [3]], (math.inf, False, "route 4 has no vehicle: there are 3")),
    ],
)
def test_route_k_is_driven_by_vehicle_k(file, routes, found):
    """By hand on a rectangle of 3 by 4."""
    assert replay(read(file(HFVRP)), routes) == found


@pytest.mark.parametrize("cost", ["33.5", "3350000"])
def test_costs_of_mixed_fleets_are_printed_in_two_units(file, cost):
    """As such, or times 1e5."""
    file(f"Route #1: 1 2\nRoute #2: 3\nCost: {cost}\n", "h.sol")
    assert read(file(HFVRP, "h.vrp")).best == 33.5


# -- pickups ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("routes", "cost", "reason"),
    [
        ([[1, 2, 3]], 14, None),
        ([[1, 2], [3]], 20, None),  # all linehauls are served
        ([[3], [1, 2]], math.inf, "route 1 picks up at customer 3 before it delivers, while a linehaul is unserved"),
        ([[1, 3, 2]], math.inf, "linehaul at customer 2 after a backhaul on route 1"),
        ([[1, 3], [2]], 22, None),
    ],
)
def test_linehaul_comes_before_backhaul(file, routes, cost, reason):
    """Deliver 4 at customers 1 and 2, pick up 5 at customer 3; the capacity is 9."""
    text = VRPB.replace("2 5\n3 5", "2 4\n3 4").replace("CAPACITY : 10", "CAPACITY : 9")
    assert replay(read(file(text)), routes) == (cost, reason is None, reason)


@pytest.mark.parametrize(
    ("routes", "cost", "reason"),
    [
        ([[1, 2, 3]], math.inf, "route 1 carries load 12 after customer 3, capacity 10"),  # 10 - 5 + 2 - 3 + 4 - 2 + 6
        ([[1, 2], [3]], 20, None),
        ([[1], [2, 3]], 18, None),
    ],
)
def test_deliveries_and_pickups_at_one_stop(file, routes, cost, reason):
    """Deliver 5, 3, 2 and pick up 2, 4, 6."""
    assert replay(read(file(VRPSPD)), routes) == (cost, reason is None, reason)


def test_the_depot_of_a_file_with_pickups_may_be_missing(file):
    """It is node 1; lines that begin with # are comments."""
    short = VRPSPD.replace("DEPOT_SECTION\n1\n-1\n", "").replace("# deliveries\n", "")
    assert read(file(short)) == read(file(VRPSPD))
    small = read(published_file("routing2/small/SmallVRPSPD.vrp"))
    assert (small.fields["linehaul"].tolist(), small.fields["backhaul"].tolist()) == (
        [0, 1, 0, 16, 18],
        [0, 0, 3, 10, 40],
    )


# -- windows and orienteering -------------------------------------------------------------------------------------


def test_windows_in_sections_are_as_in_solomons_table(file):
    """Also with a section of service times in place of one number."""
    assert read(file(VRPTW)) == read(file(SOLOMON))
    each = VRPTW.replace("SERVICE_TIME : 9\n", "").replace(
        "DEPOT_SECTION", "SERVICE_TIME_SECTION\n1 0\n2 9\n3 9\n4 9\nDEPOT_SECTION"
    )
    assert read(file(each)) == read(file(SOLOMON))


def test_orienteering_counts_the_score_of_the_depot(file):
    """3 + 4 + 5 is the limit of 12: the scores 4 and 5, and 1 at the depot."""
    solution = read_solution(file(SCORE, "o.sol"))
    instance = read(file(ORIENTEERING, "o.oplib"))
    assert (solution.routes, solution.cost, instance.best) == (((1, 2),), 10, 10)
    assert instance.world_id == "milkrun/VRPP-v0"
    assert replay(instance, solution) == (10, True, None)
    assert replay(instance, [[3]]) == (3, True, None)
    assert replay(instance, [[1, 2, 3]]) == (math.inf, False, "trip 1 is 14 long, max_length 12")


# -- fleets and worlds --------------------------------------------------------------------------------------------


def test_a_stated_fleet_is_enforced_on_request(file):
    """One vehicle of capacity 10 does not serve three customers of 5; two do."""
    for vehicles, valid in ((1, False), (2, True)):
        path = file(CVRP.replace("CAPACITY", f"VEHICLES : {vehicles}\nCAPACITY"))
        assert replay(read(path), [[1, 2], [3]]) == (20, True, None)
        enforced = read(path, fleet="enforce")
        assert enforced.world_id == "milkrun/VRP-v0"
        assert replay(enforced, [[1, 2], [3]])[1] is valid
    assert read(file(MDVRP), fleet="ignore").world().vehicles.tolist() == [[3, 3]]


@pytest.mark.parametrize(
    ("text", "fleet", "said"),
    [
        (CVRP, "enforce", "fleet='enforce', but the file states no number of vehicles"),
        (TSP, "enforce", "fleet='enforce', but the file states no number of vehicles"),
        (PCVRPTW, "enforce", "fleet='enforce', but no world limits the vehicles of a PCVRPTW"),
        (CVRP, "all", "fleet is 'all', allowed are 'enforce' and 'ignore'"),
    ],
)
def test_a_fleet_that_cannot_be_enforced_is_refused(file, text, fleet, said):
    """The file states none, or no world has the limit."""
    with pytest.raises(ConfigError, match=said):
        read(file(text), fleet=fleet)


def test_an_instance_plays_in_another_world_of_its_kind(file):
    """Solomon's files in the VRP and, as mandatory customers without prizes, in the CVRPP."""
    instance = read(file(SOLOMON))
    assert [world.rpartition("/")[2] for world in instance.worlds] == ["VRP-v0", "CVRPP-v0"]
    other = instance.for_world("CVRPP")
    assert replay(other, [[1, 2], [3]]) == replay(instance, [[1, 2], [3]]) == (14.8, True, None)
    assert other.arrays()["must_go"].tolist() == [False, True, True, True]
    with pytest.raises(ConfigError, match="T4: milkrun/TSP-v0 plays no CVRPTW file"):
        instance.for_world("TSP")
    with pytest.raises(ConfigError, match="T4: fleet='enforce', but milkrun/CVRPP-v0 has no limit of vehicles"):
        read(file(SOLOMON), fleet="enforce").for_world("CVRPP")


def test_actions_become_routes(file):
    """Trips joined by 0 and padded; a tour from node 0; with several depots in the order of the vehicles."""
    assert solution_of(read(file(CVRP)), [1, 2, 0, 3, 0, 0]).routes == ((1, 2), (3,))
    assert solution_of(read(file(TSP)), [2, 1, 3, 0]).routes == ((0, 2, 1, 3),)
    instance = read(file(MDVRPTW))
    found = solution_of(instance, [0, 2, 4, 1, 3, 1])  # depot 0 serves nodes 2 and 4, depot 1 serves 3
    assert found.routes == ((3,), (2, 4), ())
    assert replay(instance, found) == (10576, True, None)


def test_routes_of_vehicles_are_written_and_read(file, tmp_path):
    """A vehicle without customers has an empty route."""
    write_solution(tmp_path / "d.sol", [[3], [2, 4], []], 10576)
    assert read(file(MDVRPTW, "d.vrp")).best == 10576
    assert replay(read(tmp_path / "d.vrp"), read_solution(tmp_path / "d.sol")) == (10576, True, None)


@pytest.mark.parametrize("text", [VRPB, VRPSPD, VRPTW])
def test_a_written_file_reads_back_equal(file, tmp_path, text):
    """Also if it plays in another world, or with its fleet."""
    instance = read(file(text))
    write(instance, tmp_path / "again")
    assert read(tmp_path / "again") == instance
    if text == VRPTW:
        write(read(file(text), fleet="enforce").for_world("VRP"), tmp_path / "again")
        assert read(tmp_path / "again") == instance


@pytest.mark.parametrize("text", [MDVRP, MDVRPTW, HFVRP, ORIENTEERING])
def test_kinds_without_a_writer_are_refused(file, tmp_path, text):
    """Before anything is written."""
    with pytest.raises(ConfigError, match="files are read, not written"):
        write(read(file(text)), tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_the_timetable_of_several_depots(file):
    """Route 1 leaves depot 0 at 0, waits at customer 2 until 5 and serves until 7; it is at customer 4 by 10.162.

    Route 2 begins at 0 again, at depot 1.
    """
    recorder = EpisodeRecorder(read(file(MDVRPTW)).world(autoreset="disabled", illegal="raise"))
    for action in (0, 2, 4, 1, 3, 1):
        recorder.step([action])
    chart = recorder.episodes()[-1].chart
    bars = [(bar.lane, bar.kind, bar.t0, bar.t1) for bar in chart.bars]
    assert bars == [
        ("route 1", "drive", 0, 1414),
        ("route 1", "wait", 1414, 5000),
        ("route 1", "serve", 5000, 7000),
        ("route 1", "drive", 7000, 10162),
        ("route 1", "serve", 10162, 12662),
        ("route 1", "drive", 12662, 16662),
        ("route 2", "drive", 0, 1000),
        ("route 2", "serve", 1000, 3000),
        ("route 2", "drive", 3000, 4000),
    ]
    assert [(w.name, w.arrival, w.by) for w in chart.windows] == [
        ("customer 2", 1414, "route 1"),
        ("customer 3", 1000, "route 2"),
        ("customer 4", 10162, "route 1"),
    ]


# -- faults -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        (MDVRP, "15 10\n", "15\n", ", line 2: 1 words; the line of a depot's limits has 2: D Q"),
        (MDVRP, "15 10\n", "15 nan\n", ", line 2: 'nan' is not a number"),
        (MDVRP, "15 10\n", "-1 10\n", ", line 2: '-1' is below 0"),
        (MDVRP, "2 3 2\n", "2 4 2\n", ", line 8: 7 lines below the first; 4 customers and 2 depots have 8"),
        (MDVRP, "2 3 2\n", "2 3 64\n", ", line 1: '64' is not within 1..63"),
        (MDVRP, "2 3 4 1 5 1 2 1 2", "2 3 4 1", ", line 5: 4 words; a customer has at least 5: i x y service demand"),
        (MDVRP, "2 3 4 1 5", "3 3 4 1 5", ", line 5: node 3 where node 2 must follow"),
        (MDVRP, "2 3 4 1 5 1 2 1 2", "2 3 4 1 5 1 1 1", ", line 5: 1 1 1: one visit, by any of the 2 depots, is"),
        (MDVRP, "2 3 4 1 5 1 2 1 2", "2 3 4 1 5 2 2 1 2", ", line 5: 2 2 1 2: one visit, by any of the 2 depots"),
        (MDVRP, "2 3 4 1 5", "2 3 4 -1 5", ", line 5: '-1' is below 0"),
        (MDVRP, "2 3 4 1 5", "2 3 4 1 11", ", line 5: a demand of 11 is over the capacity 10"),
        (MDVRP, "5 3 5 0 0 0 0", "5 3 5 0 1 0 0", ", line 8: a depot has its place only: what follows must be 0"),
        (MDVRP, "5 3 5 0 0 0 0\n", "5 3 5", ", line 8: the file stops within a line"),
        (HFVRP, "2 5\n3 10", "2 5", ", line 18, CAPACITY_SECTION: 2 lines, but VEHICLES is 3"),
        (HFVRP, "2 5\n3 10", "1 5\n3 10", ", line 18, CAPACITY_SECTION: vehicle 1 is also in line 17"),
        (HFVRP, "2 5\n3 10", "2 0\n3 10", ", line 18, CAPACITY_SECTION: 0 is not a whole number within 1..1073741824"),
        (HFVRP, "VEHICLES : 3", "VEHICLES : 3\nCAPACITY : 3", ", line 5, CAPACITY: contradicts CAPACITY_SECTION"),
        (HFVRP, "1 500\n", "1 1e10\n", ", line 21, VEHICLES_FIXED_COST_SECTION: 1e+10 is too large: at most 1e+09"),
        (HFVRP, "VEHICLES : 3\n", "", ", VEHICLES: this key is missing"),
        (HFVRP, "2 5\n3 5\n4 5", "2 5\n3 5\n4 11", ", line 15, DEMAND_SECTION: 11 is not a whole number within 0..10"),
        (HFVRP, "TYPE : HFVRP", "TYPE : CVRP", ", line 16, CAPACITY_SECTION: has no meaning in a CVRP file"),
        (HFVRP, "EUC_2D", "GEO", ", line 5, EDGE_WEIGHT_TYPE: HFVRP needs EUC_2D"),
        (
            MDVRPTW,
            "1 2\n2 1\n3 2",
            "1 2\n2 3\n3 2",
            ", line 34, VEHICLES_DEPOT_SECTION: 3 is not a whole number within 1..2",
        ),
        (MDVRPTW, "DEPOT_SECTION\n1\n2\n", "DEPOT_SECTION\n1\n3\n", ", line 38, DEPOT_SECTION: depot 2 is node 3"),
        (MDVRPTW, "4 0 40", "4 41 40", ", line 30, TIME_WINDOW_SECTION: closes at 40 before it opens at 41"),
        (MDVRPTW, "2 0\n3 2\n", "2 1\n3 2\n", ", line 22, SERVICE_TIME_SECTION: the depot has 1, it must be 0"),
        (MDVRPTW, "MAX_DURATION : 40", "MAX_DURATION : -1", ", line 6, VEHICLES_MAX_DURATION: '-1' is below 0"),
        (MDVRPTW, "TYPE : MDVRPTW", "TYPE : HFVRP", ", line 6, VEHICLES_MAX_DURATION: has no meaning in a HFVRP file"),
        (MDVRPTW, "SERVICE_TIME_S", "PRIZE_S", ", line 20, PRIZE_SECTION: has no meaning in a MDVRPTW file"),
        (VRPSPD, "3 4\n4 6", "3 11\n4 6", ", line 20, BACKHAUL_SECTION: 11 is not a whole number within 0..10"),
        (VRPSPD, "LINEHAUL_SECTION", "DEMAND_SECTION", ", line 11, DEMAND_SECTION: has no meaning in a VRPSPD file"),
        (VRPTW, "1 0 100", "1 1 100", ", line 19, TIME_WINDOW_SECTION: the depot must open at 0"),
        (
            VRPTW,
            "DEPOT_SECTION",
            "SERVICE_TIME_SECTION\n1 0\n2 9\n3 9\n4 9\nDEPOT_SECTION",
            ", line 6, SERVICE_TIME: contradicts SERVICE_TIME_SECTION: give one of them",
        ),
        (ORIENTEERING, "COST_LIMIT : 12\n", "", ", COST_LIMIT: this key is missing"),
        (ORIENTEERING, "2 4\n3 5", "2 -4\n3 5", ", line 13, NODE_SCORE_SECTION: '-4' is below 0"),
        (ORIENTEERING, "TYPE : OP", "TYPE : TSP", ", line 4, COST_LIMIT: has no meaning in a TSP file"),
        (RES, "1\t1\t12\t10\t1\t3 1", "1\t1\t12\t10\t1", ", line 3, Route: 5 words; a route has more than 5"),
        (RES, "1\t1\t12\t10\t1\t3 1", "1\t1\t12\t10\t1\t3 0", ", line 3, Route: '0' is not within 1..10001"),
        (SCORE, "1\n2\n3\n-1", "1\n2\n3", ", line 8, NODE_SEQUENCE_SECTION: no -1 marks the end of the tour"),
        (SCORE, "1\n2\n3\n-1", "2\n1\n3\n-1", ", line 8, NODE_SEQUENCE_SECTION: the tour does not begin with node 1"),
        (SCORE, "1\n2\n3\n-1", "1\n2\n-1", ", line 10, NODE_SEQUENCE_SECTION: 2 nodes, but ROUTE_NODES is 3"),
        (SCORE, "1\n2\n3\n-1", "1\n2\n1\n-1", ", line 8, NODE_SEQUENCE_SECTION: the tour visits node 1, the depot, tw"),
    ],
)
def test_a_broken_file_is_refused(file, text, old, new, said):
    """With the line and the section that are wrong."""
    assert old in text
    path = file(text.replace(old, new, 1))
    with pytest.raises(FormatError) as refused:
        (read_solution if text in (RES, SCORE) else read)(path)
    assert str(refused.value).startswith(f"{path}{said}")


@pytest.mark.parametrize("text", [VRPSPD, VRPTW, MDVRPTW, HFVRP, ORIENTEERING, MDVRP])
def test_a_truncated_file_reads_the_same_or_is_refused(file, text):
    """After each of its bytes; a truncated number is never read as a shorter one."""
    whole, complete = read(file(text, "whole")), 0
    for length in range(len(text)):
        try:
            assert read(file(text[:length], "whole")) == whole
            complete += 1
        except FormatError as refused:
            assert "whole" in str(refused)
    assert complete > 0


def test_more_kinds_of_vehicles_than_bits_are_refused(file):
    """64 vehicles of different capacities; 63 are read."""
    for count in (63, 64):
        rows = "".join(f"{k} {10 + k}\n" for k in range(1, count + 1))
        text = HFVRP.partition("CAPACITY_SECTION")[0].replace("VEHICLES : 3", f"VEHICLES : {count}")
        path = file(f"{text}CAPACITY_SECTION\n{rows}DEPOT_SECTION\n1\n-1\nEOF\n")
        if count == 63:
            assert read(path).num_depots == 63
            continue
        with pytest.raises(FormatError, match=r"line 4, VEHICLES: 64 kinds of vehicles, .*; at most 63 are supported"):
            read(path)


def test_numbers_that_single_precision_cannot_hold_are_refused(file):
    """A clock of thousandths beyond 2**24, and a duration beyond it."""
    late = MDVRPTW.replace("1 0 60\n2 0 60", "1 0 60000\n2 0 60000").replace("5 0 50\n", "5 50000 51000\n")
    with pytest.raises(FormatError, match=r"the time of a trip can come to .* thousandths: single precision"):
        read(file(late))
    with pytest.raises(FormatError, match=r"the time of a trip can come to 2000000[0-9]: single"):
        read(file(MDVRP.replace("15 10", "2e7 10").replace("3 0 4 1 5", "3 0 9e6 1 5")))


def test_a_depot_without_vehicles_is_no_node(file):
    """All three vehicles are at depot 2; customers keep the numbers of the file."""
    instance = read(file(MDVRPTW.replace("1 2\n2 1\n3 2", "1 2\n2 2\n3 2")))
    assert (instance.num_depots, instance.first_customer, len(instance.dist)) == (1, 2, 4)
    assert np.isclose(replay(instance, [[3], [2, 4], []])[0], 2000 + 4472 + 3162 + 3162)
