"""Published plans have their published costs, in the world action by action and by the checkers.

The files are in `tests/data/routing2`, larger ones in the folder that MILKRUN_DATA names. Those of PDP are read here by
a few lines, since no reader has them.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from milkrun.routing.instances import read, read_solution, replay
from milkrun.routing.tasks import OP, PDP
from tests.published import published_file

pytestmark = pytest.mark.truth

MDVRP = {
    "p01": 576.87,
    "p03": 664.03,
    "p05": 756.47,
    "p08": 4761.29,
    "p10": 3946.35,
    "p12": 1318.95,
    "p14": 1360.12,
    "p16": 2584.53,
    "p18": 3988.39,
    "p21": 6102.86,
}
HFVRP = {
    "X101-FSMFD": 35170.24,
    "X106-FSMD": 31566.26,
    "X110-HD": 15859.34,
    "X125-HVRP": 95096.96,
    "X139-HD": 16803.06,
    "X143-FSMF": 11021.57,
    "X148-HVRP": 80285.27,
    "X214-HVRP": 15988.66,
    "X223-HVRP": 72263.64,
    "X261-HD": 28581.76,
    "X266-HD": 70383.53,
}
MDVRPTW = {
    "PR11B": 4814803,
    "PR12B": 6004834,
    "PR13B": 7201765,
    "PR17B": 4771155,
    "PR18B": 6443442,
    "PR21B": 4822337,
}
VRPB = {
    "X-n524-50-k125": 154156,
    "X-n524-66-k129": 154446,
    "X-n536-50-k49": 54534,
    "X-n536-80-k77": 77741,
    "X-n548-66-k33": 61340,
    "X-n561-66-k28": 34343,
    "X-n573-50-k22": 40187,
    "X-n573-80-k27": 46978,
}
OPLIB = {"eil51-gen1-50": 29, "st70-gen2-50": 2285, "eil76-gen3-50": 2467, "rd100-gen1-50": 61}
KEPT = ("X110-HD", "X125-HVRP", "X148-HVRP", "X223-HVRP", "PR17B")
"""Those of the larger sets that are part of the repository."""


def in_part(values):
    """Parameters (name, value); files outside the repository are read in the long tests."""
    return [pytest.param(*one, marks=() if one[0] in KEPT else pytest.mark.long) for one in values.items()]


def load(folder, name, ending=".vrp", plan=".sol"):
    stem = f"routing2/{folder}/{name}"
    return read(published_file(f"{stem}{ending}")), read_solution(published_file(f"{stem}{plan}"))


def with_fields(instance, **fields):
    return dataclasses.replace(instance, fields={**instance.fields, **fields})


# --- several depots (Cordeau, Gendreau, Laporte)


@pytest.mark.parametrize(("name", "value"), MDVRP.items())
def test_plans_of_several_depots(name, value):
    """Fleets, capacities and durations hold; the length is the one in the file, to two decimals."""
    instance, solution = load("mdvrp", name, "", ".res")
    cost, valid, reason = replay(instance, solution)
    assert (valid, reason) == (True, None)
    assert cost == pytest.approx(value, abs=0.0051)
    assert instance.best == solution.cost == value
    *others, last = solution.routes
    shorter = dataclasses.replace(solution, routes=(*others, last[:-1]))
    assert replay(instance, shorter) == (np.inf, False, f"customer {last[-1]} is not served")


def test_a_wrong_published_plan_is_refused():
    """The first route of p07.res is 85 59 93 5 with load 117 of 100, as the file itself says."""
    instance, solution = load("mdvrp", "p07", "", ".res")
    node = 85 - 1 + instance.num_depots
    said = f"route 1 to customer {node} leaves depot 0 with load 117, capacity 100"
    assert replay(instance, solution) == (np.inf, False, said)


def test_a_wrong_published_plan_has_a_second_fault():
    """A vehicle of p07.res leaves depot 4 and ends at depot 2; 99.19, as the file says, is the length of that way."""
    instance, solution = load("mdvrp", "p07", "", ".res")
    wrong = [k for k, pair in enumerate(zip(solution.depots, solution.ends, strict=True)) if pair[0] != pair[1]]
    assert [solution.routes[k] for k in wrong] == [(70, 20, 66, 65, 71, 35, 34, 78)]
    roomy = with_fields(instance, capacity=np.full(4, 117))
    assert replay(roomy, solution) == (np.inf, False, "route 12 leaves depot 4 and ends at depot 2")
    assert replay(roomy, dataclasses.replace(solution, ends=None))[1] is True


def test_one_vehicle_less_is_not_enough():
    """p01 has four vehicles at each depot, of which its plan uses three at the third depot."""
    instance, solution = load("mdvrp", "p01", "", ".res")
    used = np.bincount(solution.depots)
    assert used.max() <= 4 and instance.vehicles == 16
    fewer = dataclasses.replace(instance, vehicle_depots=tuple(np.repeat(np.arange(4), used - (used == used.max()))))
    most = int(used.argmax())
    assert replay(fewer, solution) == (
        np.inf,
        False,
        f"depot {most} sends {used[most]} vehicles, it has {used[most] - 1}",
    )
    assert replay(fewer.with_fleet("ignore"), solution)[1] is True


# --- mixed fleets (Pessoa, Sadykov, Uchoa)


@pytest.mark.parametrize(("name", "value"), in_part(HFVRP))
def test_plans_of_mixed_fleets(name, value):
    """Costs are in hundredths, and route k is driven by vehicle k. Some files print the cost times 1e5."""
    instance, solution = load("hfvrp", name)
    cost, valid, reason = replay(instance, solution)
    assert (valid, reason) == (True, None)
    assert cost == pytest.approx(value, abs=0.0051)
    assert instance.best == pytest.approx(value, abs=0.01)  # some are computed with distances of three decimals
    assert solution.cost in (instance.best, pytest.approx(instance.best * 1e5))


# --- several depots with time windows (Vidal, Crainic, Gendreau, Prins)


@pytest.mark.parametrize(("name", "value"), in_part(MDVRPTW))
def test_plans_of_several_depots_with_windows(name, value):
    """Distances round(1000 d), times in thousandths, a limit on the least duration of a route: to the last digit.

    With a capacity one unit below the largest load the plan is invalid.
    """
    instance, solution = load("mdvrptw", name)
    assert replay(instance, solution) == (value, True, None)
    assert instance.best == value
    nodes = [np.array(route, int) + instance.num_depots - instance.first_customer for route in solution.routes]
    fullest = max(instance.fields["linehaul"][route].sum() for route in nodes)
    tight = with_fields(instance, capacity=np.full(instance.num_depots, fullest - 1))
    cost, valid, reason = replay(tight, solution)
    assert (cost, valid) == (np.inf, False)
    assert f"with load {fullest}, capacity {fullest - 1}" in reason


# --- backhauls (Queiroga and others)


def check_backhauls(instance, solution, value):
    assert replay(instance, solution) == (value, True, None)
    cost, valid, reason = replay(instance, [route[::-1] for route in solution.routes])
    assert (cost, valid) == (np.inf, False)
    assert re.match(r"route \d+ carries load \d+ after customer \d+, capacity|linehaul at customer", reason)


@pytest.mark.parametrize(("name", "value"), in_part(VRPB))
def test_plans_with_backhauls(name, value):
    """Linehaul before backhaul, no route of backhauls only; backwards the first route breaks a rule."""
    check_backhauls(*load("vrpb", name), value)


@pytest.mark.parametrize("name", ["X-n536-50-k49", "X-n561-66-k28"])
def test_plans_with_backhauls_of_the_repository(name):
    """The same of the two files in another folder."""
    stem = f"routing/vrpb/{name}"
    instance, solution = read(published_file(f"{stem}.vrp")), read_solution(published_file(f"{stem}.sol"))
    check_backhauls(instance, solution, VRPB[name])


# --- services and windows, one depot


def test_cmt6_in_the_vrp():
    """Its 50 stops of 10 count in the duration, 200 at most, and not in the cost; the CVRP is its first world."""
    stem = "routing/cvrplib/CMT6"
    instance, solution = read(published_file(f"{stem}.vrp")), read_solution(published_file(f"{stem}.sol"))
    assert (instance.world_id, instance.for_world("VRP").world_id) == ("milkrun/CVRP-v0", "milkrun/VRP-v0")
    cost, valid, _ = replay(instance.for_world("VRP"), solution)
    assert valid and cost == pytest.approx(555.43, abs=0.005)
    assert cost == replay(instance, solution)[0]
    assert instance.for_world("VRP").world().duration_limit.tolist() == [[200]]


@pytest.mark.parametrize("name", ["C101", "R101", "RC105"])
def test_the_fleet_of_solomons_files_is_enforced_on_request(name):
    """25 vehicles are enough for the optimum; with one less than it uses there is no vehicle for its last route."""
    stem = f"routing/solomon/{name}"
    instance, solution = read(published_file(f"{stem}.txt")), read_solution(published_file(f"{stem}.sol"))
    assert (instance.fleet, instance.vehicles) == ("ignore", 25)
    enforced = read(published_file(f"{stem}.txt"), fleet="enforce")
    assert replay(enforced, solution) == (instance.best, True, None)
    few = dataclasses.replace(enforced, vehicles=len(solution.routes) - 1)
    sends = f"depot 0 sends {len(solution.routes)} vehicles, it has {len(solution.routes) - 1}"
    assert replay(few, solution) == (np.inf, False, sends)


# --- pairs with time windows (Li and Lim)


def text_of(name: str) -> str:
    return published_file(f"routing2/{name}").read_text()


def listed_routes(text: str) -> list[list[int]]:
    """The customers of each line `Route #1: 3 4`, also of empty ones."""
    return [[int(x) for x in line.split()] for line in re.findall(r"^Route *#?\d+ *:(.*)$", text, re.MULTILINE)]


def li_lim(name: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """A dataset whose deliveries follow the pickups, and the node of each line."""
    lines = np.array([line.split() for line in text_of(f"lilim/{name}.txt").splitlines()[1:] if line.strip()], float)
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
        "capacity": np.array([[float(text_of(f"lilim/{name}.txt").split()[1])]]),
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
    routes = [(0, [int(place[j]) for j in customers]) for customers in listed_routes(text_of(f"lilim/{name}.sol"))]
    pi = PDP.from_routes(dataset, routes)
    cost, parts, _ = PDP.get_costs(dataset, pi)
    assert (parts["trips"].item(), parts["unserved"].item()) == (LI_LIM[name][0], 0)
    assert cost.item() == pytest.approx(LI_LIM[name][1], abs=5.1e-5)
    backwards = PDP.from_routes(dataset, [(depot, customers[::-1]) for depot, customers in routes])
    assert "comes before its pickup" in PDP.check(dataset, backwards)[1][0]


# --- orienteering


@pytest.mark.parametrize(("name", "value"), in_part(OPLIB))
def test_tours_of_orienteering(name, value):
    """The score as the file prints it, that of the depot included; a limit below the length is broken."""
    instance, solution = load("oplib", name, ".oplib")
    assert replay(instance, solution) == (value, True, None)
    assert instance.best == solution.cost == value
    dataset = {field: np.asarray(array)[None] for field, array in instance.arrays().items()}
    pi = np.array([solution.routes[0]])
    cost, parts, _ = OP.get_costs(dataset, pi, metric="round")
    assert -cost.item() + instance.depot_score == value
    assert parts["length"].item() <= instance.fields["max_length"]
    short = parts["length"].item() - 1
    assert not OP.check(dataset, pi, metric="round", max_length=short)[0].item()
    assert replay(with_fields(instance, max_length=short), solution)[1] is False
