"""The checkers compared with costs by hand and from the literature, and a plan that breaks each rule."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milkrun.core.errors import BadInstance, BadSolution, ConfigError, ShapeError
from milkrun.routing.tasks import CVRP, TSP, BaseProblem
from milkrun.routing.tasks.base import fits
from milkrun.routing.tasks.distances import METRICS, distance, distance_matrix
from tests.published import published_file

# a depot and three customers on a 3 x 4 rectangle
RECTANGLE = np.array([[[0, 0], [3, 0], [3, 4], [0, 4]]], np.float32)


def rectangle(**fields: object) -> dict[str, object]:
    return {"locs": RECTANGLE, **fields}


def cvrp(**fields: object) -> dict[str, object]:
    return rectangle(**{"demand_units": np.array([[0, 5, 5, 5]]), "capacity": np.array([10]), **fields})


# --- length


def test_rectangle_tour_is_14():
    """Around the 3 x 4 rectangle it is 3 + 4 + 3 + 4; across both diagonals 5 + 4 + 5 + 4."""
    cost, parts, nothing = TSP.get_costs({"locs": np.repeat(RECTANGLE, 2, 0)}, np.array([[0, 1, 2, 3], [0, 2, 1, 3]]))
    assert cost.tolist() == parts["length"].tolist() == [14.0, 18.0]
    assert nothing is None


@pytest.mark.parametrize("pi", [[0, 1, 2, 3], [1, 2, 3, 0], [2, 3, 0, 1], [3, 2, 1, 0], [1, 2, 3, 0, 0, 0]])
def test_tsp_tour_is_cyclic(pi):
    """The start of a tour does not matter, so the actions of both start modes are equivalent."""
    assert TSP.get_costs(rectangle(), np.array([pi]))[0].item() == 14.0


def test_depot_tour_starts_and_ends_at_the_depot():
    """0 -> 1 -> 2 -> 0 is 3 + 4 + 5, with or without the depot written out, and padding adds nothing."""
    for pi in ([1, 2], [1, 2, 0], [0, 1, 2, 0, 0, 0]):
        assert BaseProblem.get_tour_length(rectangle(), np.array([pi])).item() == 12.0


def test_empty_tour_is_0():
    """Without customers the cost is 0."""
    assert BaseProblem.get_tour_length(rectangle(), np.zeros((1, 0), int)).item() == 0.0
    assert BaseProblem.get_tour_length(rectangle(), np.zeros((1, 3), int)).item() == 0.0


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("euclid", 2.5), ("manhattan", 3.5), ("round", 3.0), ("ceil", 3.0), ("trunc1", 25.0)],
)
def test_metric(metric, expected):
    """From (0, 0) to (1.5, 2) is 2.5, which rounds up, not to even."""
    assert distance([0, 0], [1.5, 2], metric) == expected


def test_trunc1_truncates_and_ceil_rounds_up():
    """One across and three up, 3.162, is 31 tenths, 3 rounded and 4 rounded up; 5 is always 5."""
    assert [distance([0, 0], [1, 3], m).item() for m in ("trunc1", "round", "ceil")] == [31.0, 3.0, 4.0]
    assert [distance([0, 0], [3, 4], m).item() for m in ("trunc1", "round", "ceil")] == [50.0, 5.0, 5.0]


def test_haversine_lisbon_to_porto():
    """By hand: 274.296 km; one degree on the equator is 111.195 km."""
    assert distance([38.7223, -9.1393], [41.1579, -8.6291], "haversine") == pytest.approx(274.296, abs=5e-4)
    assert distance([0, 10], [0, 11], "haversine") == pytest.approx(111.195, abs=5e-4)
    there_and_back = BaseProblem.get_tour_length({"locs": np.array([[[0, 10], [0, 11]]])}, [[1]], metric="haversine")
    assert there_and_back.item() == pytest.approx(222.390, abs=1e-3)


def test_asymmetric_matrix_is_read_from_row_to_column():
    """0 -> 1 -> 2 -> 0 is 1 + 2 + 4 and the reverse 16 + 32 + 8."""
    dist = np.array([[0, 1, 16], [8, 0, 2], [4, 32, 0]])
    pi = np.array([[0, 1, 2], [0, 2, 1]])
    assert TSP.get_tour_length({"dist": dist[None]}, pi).tolist() == [7, 56]
    assert TSP.get_tour_length({"dist_matrix": np.stack([dist, dist])}, pi).tolist() == [7, 56]
    assert TSP.get_tour_length({"locs": np.zeros((2, 3, 2))}, pi, dist_matrix=dist).tolist() == [7, 56]


def test_matrix_has_priority_unless_a_metric_is_given():
    """A dataset may have both; the matrix is used, the coordinates only on request."""
    data = rectangle(dist=np.ones((1, 4, 4)) - np.eye(4))
    assert TSP.get_tour_length(data, [[0, 1, 2, 3]]).item() == 4.0
    assert TSP.get_tour_length(data, [[0, 1, 2, 3]], metric="euclid").item() == 14.0


def test_matrix_of_width_0_is_no_matrix():
    """A world that needs no matrix declares it with width 0."""
    assert TSP.get_tour_length(rectangle(dist=np.zeros((1, 0, 0))), [[0, 1, 2, 3]]).item() == 14.0


def test_distance_matrix_agrees_with_single_legs():
    """Every entry is the distance from its row to its column."""
    locs = np.array([[0.5, 1], [2, 3], [-1, 0.25]])
    for metric in METRICS[:-1]:
        d = distance_matrix(locs, metric)
        assert d[1, 2] == distance(locs[1], locs[2], metric)
        assert (np.diag(d) == 0).all()


# --- layouts


def test_separate_depot_equals_depot_as_node_0():
    """Both layouts give the same cost and the same validity for the same plan."""
    apart = {
        "depot": RECTANGLE[:, 0],
        "locs": RECTANGLE[:, 1:],
        "demand_units": np.array([[5, 5, 5]]),
        "capacity": np.array([[10]]),
    }
    pi = np.array([[1, 2, 0, 3, 0]])
    assert CVRP.get_costs(apart, pi)[0].item() == CVRP.get_costs(cvrp(), pi)[0].item() == 20.0
    assert CVRP.check(apart, [[1, 2, 3]])[1] == CVRP.check(cvrp(), [[1, 2, 3]])[1] == ["trip 1 carries 15, capacity 10"]


def test_many_solutions_of_one_instance():
    """One instance is used for every row; with `instance_row` each row selects its own."""
    pi = np.array([[0, 1, 2, 3], [0, 2, 1, 3]])
    assert TSP.get_tour_length(rectangle(), pi).tolist() == [14, 18]
    two = {"locs": np.concatenate([RECTANGLE, 10 * RECTANGLE]), "instance_row": np.array([1, 0, 1])}
    assert TSP.get_tour_length(two, np.repeat(pi[:1], 3, 0)).tolist() == [140, 14, 140]


def test_torch_in_torch_out():
    """Tensors and TensorDicts give tensors with numpy's values."""
    torch = pytest.importorskip("torch")
    tensordict = pytest.importorskip("tensordict")
    fields = {key: torch.as_tensor(np.asarray(value)) for key, value in cvrp().items()}
    td = tensordict.TensorDict(fields, batch_size=[1])
    pi = torch.tensor([[1, 2, 0, 3, 0]])
    for dataset in (fields, td):
        cost, parts, _ = CVRP.get_costs(dataset, pi)
        assert isinstance(cost, torch.Tensor)
        assert isinstance(parts["length"], torch.Tensor)
        assert cost.dtype == torch.float64
        assert cost.tolist() == [20.0]
        assert BaseProblem.get_tour_length(dataset, pi).tolist() == [20.0]
        valid, reasons = CVRP.check(dataset, pi)
        assert valid.dtype == torch.bool
        assert (valid.tolist(), reasons) == ([True], [None])
    assert BaseProblem.validate_tours(pi) is True
    assert isinstance(CVRP.get_costs(td, pi.numpy())[0], np.ndarray)


def test_checkers_do_not_import_torch():
    """Users of numpy do not load torch."""
    code = "import sys, milkrun.routing.tasks.tours; sys.exit('torch' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0


# --- validity


@pytest.mark.parametrize(
    ("pi", "valid"),
    [
        ([[1, 2, 0, 3, 0]], True),
        ([[0, 0, 0, 0, 0]], True),
        ([[1, 2, 0, 1, 0]], False),
        ([[3, 1], [2, 2]], False),
        ([[1, -1]], False),
        ([[1.0, 2.0]], False),
        ([[[1, 2], [2, 1]]], True),
    ],
)
def test_validate_tours(pi, valid):
    """Integers >= 0, and no customer twice in a tour; the depot may recur, other tours may have the same customers."""
    assert BaseProblem.validate_tours(np.array(pi)) is valid


@pytest.mark.parametrize(
    ("pi", "reason"),
    [
        ([0, 1, 2, 2], "node 2 is visited 2 times"),
        ([0, 1, 0, 3], "node 0 is visited 2 times"),
        ([0, 1, 2], "node 3 is never visited"),
        ([0, 1, 2, 4], "node 4 does not exist, nodes are 0..3"),
        ([0, 1, 2, -1], "node -1 does not exist, nodes are 0..3"),
        ([0, 1, 2, 3, 1], "node 1 follows the tour, which has 4 nodes"),
    ],
)
def test_tsp_violation(pi, reason):
    """A tour that is no permutation of the nodes is refused with the reason, and has no cost."""
    valid, reasons = TSP.check(rectangle(), np.array([pi]))
    assert (valid.tolist(), reasons) == ([False], [reason])
    with pytest.raises(BadSolution, match=f"^row 0: {re.escape(reason)}$"):
        TSP.get_costs(rectangle(), np.array([pi]))
    assert TSP.get_costs(rectangle(), np.array([pi]), on_violation="inf")[0].tolist() == [np.inf]


@pytest.mark.parametrize(
    ("pi", "reason"),
    [
        ([1, 2, 0, 3, 0], None),
        ([1, 2, 0, 3], None),
        ([1, 0, 2, 0, 3, 0], None),
        ([1, 0, 0, 2, 3, 0], None),
        ([0, 1, 2, 0, 3, 0], None),
        ([1, 2, 3, 0], "trip 1 carries 15, capacity 10"),
        ([0, 0, 1, 2, 3, 0], "trip 1 carries 15, capacity 10"),
        ([1, 0, 2, 3], None),
        ([1, 2, 0, 2, 3], "customer 2 is visited 2 times"),
        ([1, 2, 0, 0, 0], "customer 3 is never visited"),
        ([1, 2, 0, 4], "node 4 does not exist, nodes are 0..3"),
    ],
)
def test_cvrp_validity(pi, reason):
    """Every customer once, 10 a trip; an unclosed last trip and empty trips are allowed."""
    valid, reasons = CVRP.check(cvrp(), np.array([pi]))
    assert (valid.tolist(), reasons) == ([reason is None], [reason])


def test_error_names_row_trip_load_and_capacity():
    """The second row overloads its second trip: 5 first, then 6 + 5 of 10."""
    data = cvrp(demand_units=np.array([[0, 5, 6, 5]]))
    pi = np.array([[1, 0, 2, 0, 3, 0], [1, 0, 2, 3, 0, 0], [1, 1, 0, 2, 0, 3]])
    sentence = re.escape("row 1: trip 2 carries 11, capacity 10 (1 more rows break a rule)")
    with pytest.raises(BadSolution, match=f"^{sentence}$"):
        CVRP.get_costs(data, pi)
    assert CVRP.get_costs(data, pi, on_violation="inf")[0].tolist() == [6 + 10 + 8, np.inf, np.inf]


def test_max_length_bounds_each_trip():
    """0 1 2 0 is 12 long: it fits 12, within the tolerance 11.9999, not 11.9; the second trip, 8, always fits."""
    pi = np.array([[1, 2, 0, 3, 0]])
    assert CVRP.check(cvrp(max_length=np.array([12.0])), pi)[1] == [None]
    assert CVRP.check(cvrp(), pi, max_length=11.9999)[1] == [None]
    assert CVRP.check(cvrp(max_length=np.array([12.0])), pi, max_length=11.9)[1] == ["trip 1 takes 12, max_length 11.9"]
    assert CVRP.check(cvrp(), [[3, 0, 1, 2]], max_length=11.9)[1] == ["trip 2 takes 12, max_length 11.9"]


def test_service_counts_in_max_length_but_not_in_cost():
    """Two stops of 10 on a trip of 12 need 32; the cost stays 12 + 8."""
    data = cvrp(service_time=np.array([[0, 10, 10, 10]]))
    assert CVRP.check(data, [[1, 2, 0, 3]], max_length=31)[1] == ["trip 1 takes 32, max_length 31"]
    assert CVRP.get_costs(data, [[1, 2, 0, 3]], max_length=32)[0].tolist() == [20.0]


def test_float_demand_is_a_share_of_the_vehicle():
    """RL4CO's layout, where `capacity` counts units: three thirds in float32 fill a vehicle, a fourth does not fit."""
    locs = np.zeros((1, 5, 2), np.float32)
    data = {"locs": locs, "demand": np.full((1, 4), 10 / 30, np.float32), "capacity": np.array([[30.0]])}
    assert CVRP.check(data, [[1, 2, 3, 0, 4]])[1] == [None]
    assert CVRP.check(data, [[1, 2, 3, 4, 0]])[1] == ["trip 1 carries 1.333333373, capacity 1"]
    with pytest.raises(BadInstance, match="share of the vehicle"):
        CVRP.check({**data, "demand": np.full((1, 4), 10.0)}, [[1, 2, 3, 0, 4]])


def test_integers_are_exact_at_any_scale():
    """One unit above the capacity is refused, also of a billion."""
    assert fits(10, 10)
    assert not fits(11, 10)
    assert fits(10**9, 10**9)
    assert not fits(10**9 + 1, 10**9)
    assert fits(1.0 + 9e-6, 1.0)
    assert not fits(1.0 + 1.1e-5, 1.0)
    assert fits(1e30, np.inf)


def test_padding_nodes_have_no_customer():
    """With n_nodes 3 a row of width 4 has two customers: node 3 must not be visited, and need not."""
    data = cvrp(n_nodes=np.array([3]))
    assert CVRP.check(data, [[1, 2, 0, 0]])[1] == [None]
    assert CVRP.check(data, [[1, 2, 0, 3]])[1] == ["node 3 does not exist, nodes are 0..2"]
    assert TSP.get_costs(rectangle(n_nodes=np.array([3])), [[1, 2, 0, 0]])[0].tolist() == [12.0]
    assert TSP.get_costs(rectangle(n_nodes=np.array([3])), [[2, 0, 1, 0]])[0].tolist() == [12.0]
    assert TSP.check(rectangle(n_nodes=np.array([3])), [[2, 0, 1, 3]])[1] == ["node 3 does not exist, nodes are 0..2"]


def test_cost_weights():
    """Length is weighted, its raw amount is unchanged; an unknown weight is refused by name."""
    cost, parts, _ = TSP.get_costs(rectangle(), [[0, 1, 2, 3]], {"length": 0.5, "prize": 3.0})
    assert (cost.item(), parts["length"].item()) == (7.0, 14.0)
    with pytest.raises(ConfigError, match="'lenght' is unknown; did you mean 'length'"):
        TSP.get_costs(rectangle(), [[0, 1, 2, 3]], {"lenght": 0.5})


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (cvrp(locs=np.full((1, 4, 2), np.nan)), BadInstance, "instance 0: locs.0. is .*must be finite"),
        (cvrp(demand_units=np.array([[0, 5, -5, 5]])), BadInstance, "demand_units.2. is -5.0, must be finite and >= 0"),
        (cvrp(demand_units=np.array([[1, 5, 5, 5]])), BadInstance, "demand_units.0. is 1.0, must be 0 at the depot"),
        (cvrp(demand_units=np.array([[5, 5]])), ShapeError, "demand_units has shape"),
        (cvrp(capacity=None), BadInstance, "capacity is missing"),
        (cvrp(demand_units=None), ShapeError, "lacks `demand_units`"),
        (cvrp(n_nodes=np.array([5])), BadInstance, "n_nodes is 5, allowed are the whole numbers 2..4"),
        (cvrp(n_nodes=np.array([2.5])), BadInstance, "n_nodes is 2.5, allowed are the whole numbers 2..4"),
        (cvrp(instance_row=np.array([0.5])), ShapeError, "instance_row is of dtype float64, expected integers"),
        (cvrp(capacity=["ten"]), ShapeError, "capacity is a list of dtype <U3, expected numbers"),
        (cvrp(instance_row=np.array([1])), BadInstance, "instance_row is 1, allowed are 0..0"),
        (cvrp(dist=np.ones((1, 4, 4))), BadInstance, "dist.0, 0. is 1.0, must be 0 on the diagonal"),
        (cvrp(dist=np.zeros((1, 3, 3))), ShapeError, "dist has shape"),
        (cvrp(locs=np.zeros((2, 4, 2))), ShapeError, "1 solutions for 2 instances"),
    ],
)
def test_bad_dataset_is_refused(data, error, match):
    """The error names the field, the instance and the allowed values."""
    with pytest.raises(error, match=match):
        CVRP.check(data, np.array([[1, 2, 0, 3]]))


def test_bad_call_is_refused():
    """Plans of the wrong shape or dtype, unknown metrics, limits and modes are refused by name."""
    for pi in ([1, 2, 3], [[1.0, 2.0]], [[True]]):
        with pytest.raises(ShapeError, match=r"expected \(B, L\) integers"):
            CVRP.check(cvrp(), np.array(pi))
    with pytest.raises(ShapeError, match=r"pi is not an array: .*inhomogeneous"):
        CVRP.check(cvrp(), [[1, 2, 3], [1]])
    with pytest.raises(ConfigError, match="cost weight 'length' is nan, must be finite"):
        CVRP.get_costs(cvrp(), [[1, 2, 0, 3]], {"length": float("nan")})
    with pytest.raises(ConfigError, match="'euclidean' is unknown; did you mean 'euclid'"):
        CVRP.check(cvrp(), [[1]], metric="euclidean")
    with pytest.raises(ShapeError, match="needs `dist`"):
        CVRP.check(cvrp(), [[1]], metric="matrix")
    with pytest.raises(ConfigError, match="TSP has no limit 'capacity'"):
        TSP.check(rectangle(), [[1]], capacity=3)
    with pytest.raises(ConfigError, match="on_violation"):
        TSP.get_costs(rectangle(), [[1]], on_violation="ignore")
    with pytest.raises(BadSolution, match="node 9 does not exist"):
        TSP.get_tour_length(rectangle(), [[9]])


# --- comparison with a plain model, one row at a time


def plain_cvrp(locs, demand, capacity, max_length, pi):
    """(valid, length) by a plain model."""
    length = trip = load = here = 0.0
    valid = sorted(c for c in pi if c) == list(range(1, len(locs)))
    here = 0
    for node in [*pi, 0]:
        leg = float(np.hypot(*(locs[here] - locs[node])))
        length, trip, load, here = length + leg, trip + leg, load + demand[node], node
        valid = valid and load <= capacity and (node != 0 or trip <= max_length * (1 + 1e-5))
        if node == 0:
            trip = load = 0
    return valid, length


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_batch_agrees_with_one_row_at_a_time(data):
    """Validity and length of a batch equal those of its single rows by a scalar model."""
    n = data.draw(st.integers(1, 5), "customers")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), "seed"))
    locs, demand = rng.random((8, n + 1, 2)), rng.integers(1, 10, (8, n + 1))
    demand[:, 0] = 0
    pi = rng.integers(0, n + 1, (8, 2 * n))
    for b in range(4):  # half of the rows serve all customers
        pi[b] = rng.permutation(np.r_[1 : n + 1, np.zeros(n, int)])
    dataset = {"locs": locs, "demand_units": demand, "capacity": np.full(8, 15), "max_length": np.full(8, 2.5)}
    expected = [plain_cvrp(locs[b], demand[b], 15, 2.5, pi[b].tolist()) for b in range(8)]
    valid, reasons = CVRP.check(dataset, pi)
    assert valid.tolist() == [v for v, _ in expected]
    assert [r is None for r in reasons] == valid.tolist()
    np.testing.assert_allclose(CVRP.get_tour_length(dataset, pi), [length for _, length in expected], rtol=1e-12)


# --- published solutions


def numbers(text: str, section: str) -> np.ndarray:
    """The rows of numbers that follow the line `section`."""
    body = re.split(rf"^{section}\s*:?\s*$", text, flags=re.MULTILINE)[1]
    rows = re.match(r"(?:\s*[-+.\deE]+(?:[ \t]+[-+.\deE]+)*[ \t]*\n)+", body)
    assert rows is not None
    return np.array([[float(x) for x in line.split()] for line in rows.group().split("\n") if line.split()])


def entry(text: str, key: str) -> float:
    found = re.search(rf"^{key}\s*:\s*(\S+)", text, re.MULTILINE)
    assert found is not None
    return float(found.group(1))


def routes(path: Path) -> np.ndarray:
    """The plan of a CVRPLIB solution file: its routes, separated by 0."""
    found = re.findall(r"^Route\s*#?\d+\s*:\s*([\d \t]+)", path.read_text(), re.MULTILINE)
    return np.array([[node for route in found for node in [*map(int, route.split()), 0]]])


@pytest.mark.parametrize(("name", "optimum"), [("berlin52", 7542), ("eil51", 426), ("pr1002", 259045)])
def test_tsplib_optimum(name, optimum):
    """The published optimal tour has the published length, to the digit."""
    locs = numbers(published_file(f"routing/tsplib/{name}.tsp").read_text(), "NODE_COORD_SECTION")[:, 1:]
    _, listed = published_file(f"routing/tsplib/{name}.opt.tour").read_text().split("TOUR_SECTION")
    tour = [int(x) - 1 for x in listed.split()[: len(locs)]]
    cost, _, _ = TSP.get_costs({"locs": locs[None]}, np.array([tour]), metric="round")
    assert cost.tolist() == [optimum]


@pytest.mark.parametrize(("name", "optimum"), [("A-n32-k5", 784), ("E-n13-k4", 247), ("X-n101-k25", 27591)])
def test_cvrplib_optimum(name, optimum):
    """The published routes are feasible at the published cost; with one unit less capacity they are not."""
    text = published_file(f"routing/cvrplib/{name}.vrp").read_text()
    if "NODE_COORD_SECTION" in text:
        where = {"locs": numbers(text, "NODE_COORD_SECTION")[None, :, 1:]}
    else:  # E-n13-k4 gives its matrix as one stream of numbers, the lower triangle row by row
        n = int(entry(text, "DIMENSION"))
        d = np.zeros((n, n))
        stream = text.split("EDGE_WEIGHT_SECTION")[1].split("DEMAND_SECTION")[0].split()
        d[np.tril_indices(n, -1)] = [float(x) for x in stream]
        where = {"dist": (d + d.T)[None]}
    demand = numbers(text, "DEMAND_SECTION")[None, :, 1].astype(int)
    capacity = int(entry(text, "CAPACITY"))
    dataset = {**where, "demand_units": demand, "capacity": np.array([capacity])}
    pi = routes(published_file(f"routing/cvrplib/{name}.sol"))
    cost, _, _ = CVRP.get_costs(dataset, pi, metric="round" if "locs" in where else None)
    assert cost.tolist() == [optimum]
    fullest = max(demand[0, list(map(int, trip))].sum() for trip in np.split(pi[0], np.flatnonzero(pi[0] == 0)))
    assert CVRP.check(dataset, pi, capacity=fullest)[0].all()
    assert not CVRP.check(dataset, pi, capacity=fullest - 1)[0].any()


def test_cmt6_keeps_its_distance_with_service():
    """CMT6 is published unrounded, 555.43; each stop takes 10 of the trip's 200."""
    text = published_file("routing/cvrplib/CMT6.vrp").read_text()
    locs, demand = numbers(text, "NODE_COORD_SECTION")[None, :, 1:], numbers(text, "DEMAND_SECTION")[None, :, 1]
    service = np.where(np.arange(locs.shape[1]) > 0, entry(text, "SERVICE_TIME"), 0.0)[None]
    dataset = {"locs": locs, "demand_units": demand.astype(int), "service_time": service}
    limits = {"capacity": entry(text, "CAPACITY"), "max_length": entry(text, "DISTANCE")}
    cost, _, _ = CVRP.get_costs(dataset, routes(published_file("routing/cvrplib/CMT6.sol")), **limits)
    assert cost.item() == pytest.approx(555.43, abs=5e-3)


@pytest.mark.parametrize(("name", "optimum"), [("C101", 8273), ("R101", 16377), ("RC207", 9629)])
def test_solomon_length_in_tenths(name, optimum):
    """Solomon's routes are measured in truncated tenths, `trunc1`: 827.3 is 8273."""
    text = published_file(f"routing/solomon/{name}.txt").read_text()
    rows = [line.split() for line in text.split("CUST NO.")[1].splitlines()]
    locs = np.array([[float(x) for x in row[1:3]] for row in rows if len(row) == 7 and row[0].isdigit()])
    pi = routes(published_file(f"routing/solomon/{name}.sol"))
    length = BaseProblem.get_tour_length({"locs": locs[None]}, pi, metric="trunc1")
    assert length.tolist() == [optimum]
