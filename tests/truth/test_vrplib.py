"""vrplib and PyVRP, of the same authors, read the same numbers from a file as we do.

Published and random files; both readers must agree on every number.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import pyvrp
import vrplib

from milkrun.core.registry import named_world
from milkrun.routing.distance import METRICS, legs
from milkrun.routing.instances import read, read_solution, write
from milkrun.routing.tasks.distances import distance_matrix
from milkrun.solvers.given import read_given
from milkrun.solvers.problem import of_world
from tests.published import published_files

pytestmark = pytest.mark.truth

RNG = np.random.default_rng(20)
NODES = 9
PLACES = RNG.integers(0, 100, (NODES, 2))
DEMAND = np.r_[0, RNG.integers(1, 20, NODES - 1)]
WEIGHTS = RNG.integers(1, 100, (NODES, NODES))
WEIGHTS = np.where(np.eye(NODES, dtype=bool), 0, WEIGHTS + WEIGHTS.T)
HEAD = f"NAME : drawn\nTYPE : CVRP\nDIMENSION : {NODES}\nCAPACITY : 40\n"


def listed(section: str, values: np.ndarray) -> str:
    rows = [" ".join(map(str, np.atleast_1d(row))) for row in values]
    return "\n".join([f"{section}_SECTION", *(f"{k} {row}" for k, row in enumerate(rows, 1)), ""])


def cvrp(weights: str) -> str:
    return HEAD + weights + listed("DEMAND", DEMAND) + "DEPOT_SECTION\n1\n-1\nEOF\n"


def explicit(form: str) -> str:
    """The weights of a symmetric matrix in one of TSPLIB's forms."""
    rows = WEIGHTS if form == "FULL_MATRIX" else [WEIGHTS[k, :k] for k in range(1, NODES)]
    lines = "\n".join(" ".join(map(str, row)) for row in rows)
    return f"EDGE_WEIGHT_TYPE : EXPLICIT\nEDGE_WEIGHT_FORMAT : {form}\nEDGE_WEIGHT_SECTION\n{lines}\n"


def test_places_demands_and_capacity_are_the_same(tmp_path):
    """A Euclidean file; our rounded distances also equal vrplib's, rounded to integers as in TSPLIB."""
    path = tmp_path / "drawn.vrp"
    path.write_text(cvrp("EDGE_WEIGHT_TYPE : EUC_2D\n" + listed("NODE_COORD", PLACES)))
    ours, theirs = read(path), vrplib.read_instance(path)
    np.testing.assert_array_equal(ours.locs, theirs["node_coord"])
    np.testing.assert_array_equal(ours.fields["demand_units"], theirs["demand"])
    assert ours.fields["capacity"] == theirs["capacity"] == 40
    world = ours.world()
    world.step([3])
    assert -world.reward[0] == np.floor(theirs["edge_weight"][0, 3] + 0.5)


@pytest.mark.parametrize("form", ["FULL_MATRIX", "LOWER_ROW"])
def test_explicit_distances_are_the_same(tmp_path, form):
    """Every leg of the matrix, for each half that the file may list."""
    path = tmp_path / "drawn.vrp"
    path.write_text(cvrp(explicit(form)))
    np.testing.assert_array_equal(read(path).dist, vrplib.read_instance(path)["edge_weight"])
    np.testing.assert_array_equal(read(path).dist, WEIGHTS)


def test_windows_of_a_solomon_file_are_the_same(tmp_path):
    """Ours are in tenths, as the literature rounds; vrplib's are the file's."""
    opens = RNG.integers(0, 50, NODES)
    rows = np.column_stack([np.arange(NODES), PLACES, DEMAND, opens, opens + 500, RNG.integers(0, 9, NODES)])
    rows[0, 4:] = 0, 2000, 0
    path = tmp_path / "drawn.txt"
    body = "\n".join(" ".join(map(str, row)) for row in rows)
    path.write_text(
        "drawn\n\nVEHICLE\nNUMBER     CAPACITY\n  4         200\n\nCUSTOMER\n"
        f"CUST NO.  XCOORD.  YCOORD.  DEMAND  READY TIME  DUE DATE  SERVICE TIME\n\n{body}\n"
    )
    ours, theirs = read(path), vrplib.read_instance(path, instance_format="solomon")
    np.testing.assert_array_equal(ours.locs, theirs["node_coord"])
    np.testing.assert_array_equal(ours.fields["linehaul"], theirs["demand"])
    np.testing.assert_array_equal(ours.fields["time_windows"], 10 * theirs["time_window"])
    np.testing.assert_array_equal(ours.fields["service_time"], 10 * theirs["service_time"])
    assert (ours.vehicles, ours.fields["capacity"]) == (theirs["vehicles"], theirs["capacity"])


def test_vrplib_reads_files_written_by_us(tmp_path):
    """Both read the same numbers from an instance written by us."""
    first, again = tmp_path / "first.vrp", tmp_path / "again.vrp"
    first.write_text(cvrp("EDGE_WEIGHT_TYPE : EUC_2D\n" + listed("NODE_COORD", PLACES)))
    write(read(first), again)
    one, two = vrplib.read_instance(first), vrplib.read_instance(again)
    assert one.keys() == two.keys()
    for key in one:
        np.testing.assert_array_equal(one[key], two[key])


def test_a_solution_has_the_same_routes_and_cost(tmp_path):
    """CVRPLIB's format: customers counted from 1, without the depot."""
    path = tmp_path / "drawn.sol"
    path.write_text("Route #1: 3 1 2\nRoute #2: 8 5 4\nRoute #3: 6 7\nCost 413\n")
    ours, theirs = read_solution(path), vrplib.read_solution(path)
    assert [list(route) for route in ours.routes] == theirs["routes"]
    assert ours.cost == theirs["cost"] == 413


@pytest.mark.parametrize("path", published_files("routing/cvrplib/*.vrp"), ids=lambda path: path.stem)
def test_both_read_the_same_from_a_file_of_cvrplib(path):
    """Places or the explicit matrix, demands, capacity, limit of a trip."""
    ours, theirs = read(path), vrplib.read_instance(path, compute_edge_weights=False)
    if "edge_weight" in theirs:
        np.testing.assert_array_equal(ours.dist, theirs["edge_weight"])
    else:
        np.testing.assert_array_equal(ours.locs, theirs["node_coord"])
    np.testing.assert_array_equal(ours.fields["demand_units"], theirs["demand"])
    assert (ours.n + 1, ours.fields["capacity"]) == (theirs["dimension"], theirs["capacity"])
    assert ours.fields.get("max_length", np.inf) == theirs.get("distance", np.inf)


@pytest.mark.parametrize("path", published_files("routing/solomon/*.txt"), ids=lambda path: path.stem)
def test_both_read_the_same_from_a_file_of_solomon(path):
    """Places, demands, windows, service, fleet."""
    ours, theirs = read(path), vrplib.read_instance(path, instance_format="solomon", compute_edge_weights=False)
    np.testing.assert_array_equal(ours.locs, theirs["node_coord"])
    np.testing.assert_array_equal(ours.fields["linehaul"], theirs["demand"])
    np.testing.assert_array_equal(ours.fields["time_windows"], 10 * theirs["time_window"])
    np.testing.assert_array_equal(ours.fields["service_time"], 10 * theirs["service_time"])
    assert (ours.vehicles, ours.fields["capacity"]) == (theirs["vehicles"], theirs["capacity"])


def played(instance):
    """All distances as used by world, checker and solvers."""
    world, arrays = read_given(named_world(instance.world_id), instance, {})
    solved = of_world(world, arrays).distances(0)
    if instance.dist is not None:
        return world.dist.dtype.type(instance.dist), instance.dist, solved
    x, y = instance.locs.astype(np.float32).astype(np.float64).T
    driven = legs(METRICS.index(instance.metric), x[:, None], y[:, None], x[None], y[None])
    return driven, distance_matrix(instance.locs, instance.metric), solved


def radians(place):
    """DDD.MM, as TSPLIB95 prints it."""
    degrees = int(place)
    return 3.141592 * (degrees + 5.0 * (place - degrees) / 3.0) / 180.0


def geo(a, b):
    """TSPLIB95's geographical distance in kilometres."""
    (lat_a, lon_a), (lat_b, lon_b) = map(radians, a), map(radians, b)
    q1, q2, q3 = math.cos(lon_a - lon_b), math.cos(lat_a - lat_b), math.cos(lat_a + lat_b)
    return int(6378.388 * math.acos(0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3)) + 1.0)


def att(a, b):
    """TSPLIB95's pseudo-Euclidean distance."""
    r = math.sqrt(((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) / 10.0)
    return int(r + 0.5) + (int(r + 0.5) < r)


def euclid(a, b):
    """TSPLIB95's distance, rounded to the nearest integer."""
    return int(math.sqrt((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) + 0.5)


PLANE = [path for path in published_files("routing/tsplib/*.tsp") if b"EXPLICIT" not in path.read_bytes()]


@pytest.mark.parametrize("path", PLANE, ids=lambda path: path.stem)
def test_distances_of_tsplib_are_the_formulas_of_vrplibs_numbers(path):
    """Entry by entry, for world, checker and solver."""
    instance = read(path)
    law = {"EUC_2D": euclid, "GEO": geo, "ATT": att}[instance.edge]
    places = vrplib.read_instance(path, compute_edge_weights=False)["node_coord"].tolist()
    expected = [[0 if a is b else law(a, b) for b in places] for a in places]
    for dist in played(instance):
        np.testing.assert_array_equal(dist, expected)


@pytest.mark.parametrize("path", published_files("routing/cvrplib/*.vrp"), ids=lambda path: path.stem)
def test_distances_of_cvrplib_are_those_of_pyvrp(path):
    """Entry by entry, for world, checker and solver; CMT's are not rounded and compared within the tolerance of the
    world."""
    instance, rounded = read(path), not path.stem.startswith("CMT")
    theirs = pyvrp.read(path, round_func="round" if rounded else "exact").distance_matrix(0)
    for dist in played(instance):
        np.testing.assert_allclose(dist if rounded else 1000 * dist, theirs, rtol=0, atol=0 if rounded else 1)


@pytest.mark.parametrize(
    "path",
    [*published_files("routing/solomon/*.txt"), *published_files("routing/pcvrptw/*.vrp")],
    ids=lambda path: path.stem,
)
def test_tenths_of_files_with_windows_are_the_truncated_ones_of_vrplib(path):
    """Entry by entry, for world, checker and solver, as DIMACS counts."""
    form = {"instance_format": "solomon"} if path.suffix == ".txt" else {}
    expected = np.trunc(10 * vrplib.read_instance(path, **form)["edge_weight"])
    for dist in played(read(path)):
        np.testing.assert_array_equal(dist, expected)


@pytest.mark.parametrize("path", published_files("routing/*/*.sol"), ids=lambda path: path.stem)
def test_both_read_the_same_from_a_published_solution(path):
    """Every route, and the cost."""
    ours, theirs = read_solution(path), vrplib.read_solution(path)
    assert [list(route) for route in ours.routes] == theirs["routes"]
    assert ours.cost == theirs["cost"]
