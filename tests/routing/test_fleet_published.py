"""Published plans have their published costs by the checkers of VRP, PDP and OP.

The files are in the folder that MILKRUN_DATA names, in `routing2`. They are read here by a few lines each, apart from
the readers of `milkrun.routing.instances`.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from milkrun.routing.tasks import OP, PDP, VRP
from milkrun.routing.tasks.distances import distance_matrix
from tests.published import published_file

pytestmark = pytest.mark.truth


def read(name: str) -> str:
    return published_file(f"routing2/{name}").read_text()


def header(text: str, key: str) -> float:
    return float(re.search(rf"^{key}\s*:\s*(\S+)", text, re.MULTILINE).group(1))


def table(text: str, name: str) -> np.ndarray:
    """The rows of numbers of a section, without the first column."""
    found = re.search(rf"^{name}\s*\n((?:\s*\d+\s+[-\d.]+.*\n)+)", text, re.MULTILINE).group(1)
    return np.array([line.split() for line in found.splitlines()], float)[:, 1:]


def listed_routes(text: str) -> list[list[int]]:
    """The customers of each line `Route #1: 3 4`, also of empty ones."""
    return [[int(x) for x in line.split()] for line in re.findall(r"^Route *#?\d+ *:(.*)$", text, re.MULTILINE)]


# --- several depots (Cordeau, Gendreau, Laporte)


def cordeau(name: str) -> dict[str, np.ndarray]:
    """`m n t`, then t lines `D Q` with 0 for no limit, n customers, t depots."""
    lines = [[float(x) for x in line.split()] for line in read(f"mdvrp/{name}").splitlines() if line.strip()]
    m, n, t = (int(x) for x in lines[0][-3:])
    limits, customers, depots = np.array(lines[1 : t + 1]), lines[t + 1 : t + 1 + n], lines[t + 1 + n : 2 * t + 1 + n]
    nodes = np.array([line[1:5] for line in depots + customers])
    nodes[:t, 2:] = 0
    return {
        "locs": nodes[None, :, :2],
        "service_time": nodes[None, :, 2],
        "linehaul": nodes[None, :, 3],
        "capacity": limits[None, :, 1],
        "duration_limit": np.where(limits[:, 0] > 0, limits[:, 0], np.inf)[None],
        "vehicles": np.full((1, t), m),
    }


def cordeau_plan(name: str, depots: int) -> tuple[float, list[tuple[int, list[int]]]]:
    lines = [line.split() for line in read(f"mdvrp/{name}.res").splitlines() if line.strip()]
    routes = [(int(line[0]) - 1, [int(x) - 1 + depots for x in line[5:]]) for line in lines[2:]]
    return float(lines[1][0]), routes


@pytest.mark.parametrize("name", ["p01", "p03", "p05", "p08", "p10", "p12", "p14", "p16", "p18", "p21"])
def test_plans_of_several_depots(name):
    """Fleets, capacities and durations hold; the length is the one in the file, to two decimals."""
    dataset = cordeau(name)
    value, routes = cordeau_plan(name, dataset["capacity"].shape[1])
    cost, parts, _ = VRP.get_costs(dataset, VRP.from_routes(dataset, routes))
    assert cost.item() == pytest.approx(value, abs=0.0051)
    assert (parts["unserved"].item(), parts["trips"].item()) == (0, len(routes))
    if name == "p01":
        assert value == 576.87
    if name == "p08":
        assert value == 4761.29


def test_a_wrong_published_plan_is_refused():
    """The first route of p07.res is 85 59 93 5 with load 117 of 100, as the file itself says."""
    dataset = cordeau("p07")
    depots = dataset["capacity"].shape[1]
    _, routes = cordeau_plan("p07", depots)
    valid, reasons = VRP.check(dataset, VRP.from_routes(dataset, routes))
    first = 85 - 1 + depots
    assert not valid.item()
    assert reasons == [f"route 1 to customer {first} leaves depot 0 with load 117, capacity 100"]


# --- mixed fleets (Pessoa, Sadykov, Uchoa)


@pytest.mark.parametrize(("name", "value"), [("X101-FSMFD", 35170.24), ("X110-HD", 15859.34), ("X148-HVRP", 80285.27)])
def test_plans_of_mixed_fleets(name, value):
    """One depot for each kind of vehicle, costs in hundredths; route k is driven by vehicle k."""
    text = read(f"hfvrp/{name}.vrp")
    costs = ("CAPACITY", "VEHICLES_FIXED_COST", "VEHICLES_UNIT_DISTANCE_COST")
    vehicles = np.full((int(header(text, "VEHICLES")), 3), [0.0, 0.0, 100.0])
    for column, key in enumerate(costs):
        if f"{key}_SECTION" in text:
            vehicles[:, column] = table(text, f"{key}_SECTION")[:, 0]
    kinds, kind, count = np.unique(vehicles, axis=0, return_inverse=True, return_counts=True)
    k, places, demand = len(kinds), table(text, "NODE_COORD_SECTION"), table(text, "DEMAND_SECTION")[:, 0]
    dataset = {
        "locs": np.concatenate([places[:1].repeat(k - 1, axis=0), places])[None],
        "linehaul": np.concatenate([np.zeros(k - 1), demand])[None],
        "capacity": kinds[None, :, 0],
        "fixed_cost": kinds[None, :, 1] / 100,
        "distance_cost": kinds[None, :, 2] / 100,
        "vehicles": count[None],
    }
    driven = enumerate(listed_routes(read(f"hfvrp/{name}.sol")))
    routes = [(int(kind.ravel()[v]), [j + k - 1 for j in customers]) for v, customers in driven]
    assert VRP.get_costs(dataset, VRP.from_routes(dataset, routes))[0].item() == pytest.approx(value, abs=0.0051)


# --- several depots with time windows (Vidal, Crainic, Gendreau, Prins)


@pytest.mark.parametrize(("name", "value"), [("PR11B", 4814803), ("PR17B", 4771155)])
def test_plans_of_several_depots_with_windows(name, value):
    """Distances round(1000 d), all times in thousandths, and a limit on the least duration of a route."""
    text = read(f"mdvrptw/{name}.vrp")
    depot = table(text, "VEHICLES_DEPOT_SECTION")[:, 0].astype(int) - 1
    k = depot.max() + 1
    dataset = {
        "dist": np.round(1000 * distance_matrix(table(text, "NODE_COORD_SECTION")))[None],
        "linehaul": table(text, "DEMAND_SECTION")[None, :, 0],
        "service_time": 1000 * table(text, "SERVICE_TIME_SECTION")[None, :, 0],
        "time_windows": 1000 * table(text, "TIME_WINDOW_SECTION")[None],
        "capacity": np.full((1, k), header(text, "CAPACITY")),
        "duration_limit": np.full((1, k), 1000 * header(text, "VEHICLES_MAX_DURATION")),
        "vehicles": np.bincount(depot)[None],
    }
    listed = listed_routes(read(f"mdvrptw/{name}.sol"))
    routes = list(zip(depot.tolist(), listed, strict=True))  # in numbers of nodes from 0, depots first
    assert VRP.get_costs(dataset, VRP.from_routes(dataset, routes))[0].item() == value


# --- backhauls (Queiroga and others)


@pytest.mark.parametrize(("name", "value"), [("X-n524-50-k125", 154156), ("X-n573-80-k27", 46978)])
def test_plans_with_backhauls(name, value):
    """Linehaul before backhaul, no route of backhauls only; backwards the first route breaks a rule."""
    text = read(f"vrpb/{name}.vrp")
    dataset = {
        "locs": table(text, "NODE_COORD_SECTION")[None],
        "linehaul": table(text, "DEMAND_SECTION")[None, :, 0],
        "backhaul": table(text, "BACKHAUL_SECTION")[None, :, 0],
        "capacity": np.array([[header(text, "CAPACITY")]]),
    }
    routes = [(0, customers) for customers in listed_routes(read(f"vrpb/{name}.sol"))]
    pi = VRP.from_routes(dataset, routes)
    assert VRP.get_costs(dataset, pi, metric="round", backhaul_only=False)[0].item() == value
    backwards = VRP.from_routes(dataset, [(depot, customers[::-1]) for depot, customers in routes])
    (reason,) = VRP.check(dataset, backwards, metric="round")[1]
    assert re.match(r"route \d+ carries load \d+ after customer \d+, capacity|linehaul at customer", reason)


# --- pairs with time windows (Li and Lim)


def li_lim(name: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """A dataset whose deliveries follow the pickups, and the node of each line."""
    lines = np.array([line.split() for line in read(f"lilim/{name}.txt").splitlines()[1:] if line.strip()], float)
    pickups = np.flatnonzero((lines[:, 3] > 0) & (lines[:, 8] > 0))
    order = np.concatenate([[0], pickups, lines[pickups, 8].astype(int)])
    assert sorted(order) == list(range(len(lines)))
    place = np.argsort(order)
    nodes = lines[order]
    dataset = {
        "locs": nodes[None, :, 1:3],
        "demand": nodes[None, :, 3],
        "time_windows": nodes[None, :, 4:6],
        "service_time": nodes[None, :, 6],
        "capacity": np.array([[float(read(f"lilim/{name}.txt").split()[1])]]),
    }
    return dataset, place


LI_LIM = {
    "lc101": (10, 828.9369),
    "lr102": (17, 1487.5704),
    "lrc105": (13, 1637.6244),
    "lc204": (3, 590.5987),
    "lr204": (2, 849.0504),
    "lr2_2_8": (2, 2449.3617),
}


@pytest.mark.parametrize("name", LI_LIM)
def test_plans_of_pairs(name):
    """The number of routes and the total distance."""
    dataset, place = li_lim(name)
    routes = [(0, [int(place[j]) for j in customers]) for customers in listed_routes(read(f"lilim/{name}.sol"))]
    pi = PDP.from_routes(dataset, routes)
    cost, parts, _ = PDP.get_costs(dataset, pi)
    assert (parts["trips"].item(), parts["unserved"].item()) == (LI_LIM[name][0], 0)
    assert cost.item() == pytest.approx(LI_LIM[name][1], abs=5.1e-5)
    backwards = PDP.from_routes(dataset, [(depot, customers[::-1]) for depot, customers in routes])
    assert "comes before its pickup" in PDP.check(dataset, backwards)[1][0]


# --- orienteering


@pytest.mark.parametrize("name", ["eil51-gen1-50", "st70-gen2-50", "eil76-gen3-50", "rd100-gen1-50"])
def test_tours_of_orienteering(name):
    """Score and cost as the file prints them; the score of the depot counts."""
    text, solution = read(f"oplib/{name}.oplib"), read(f"oplib/{name}.sol")
    score = table(text, "NODE_SCORE_SECTION")[None, :, 0]
    dataset = {"locs": table(text, "NODE_COORD_SECTION")[None], "prize": score.copy()}
    dataset["prize"][:, 0] = 0
    listed = re.search(r"NODE_SEQUENCE_SECTION\n([\d\s]+)", solution).group(1).split()
    pi = np.array([[int(j) - 1 for j in listed[1:]]])
    limit = header(text, "COST_LIMIT")
    cost, parts, _ = OP.get_costs(dataset, pi, metric="round", max_length=limit)
    assert -cost.item() + score[0, 0] == header(solution, "ROUTE_SCORE")
    assert parts["length"].item() == header(solution, "ROUTE_COST") <= limit
    assert not OP.check(dataset, pi, metric="round", max_length=parts["length"].item() - 1)[0].item()
