"""Published solutions of TSPLIB and CVRPLIB replay to their published value, to the last digit, in world and checker.

The files are not part of the repository: they are read from the folder MILKRUN_DATA, or `shared/data` beside it. What
is parsed here is the least these tests need.
"""

from __future__ import annotations

import math
import os
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from milkrun.core.errors import IllegalAction
from milkrun.routing import tasks
from milkrun.routing.cvrp import CVRP
from milkrun.routing.tasks.distances import distance_matrix
from milkrun.routing.tsp import TSP

DATA = Path(os.environ.get("MILKRUN_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data") / "routing"

pytestmark = [
    pytest.mark.truth,
    pytest.mark.skipif(not DATA.is_dir(), reason="no instance files: set MILKRUN_DATA to the folder that has routing/"),
]

TSPLIB = {
    "a280": 2579, "att48": 10628, "bayg29": 1610, "berlin52": 7542, "ch150": 6528, "eil101": 629, "eil51": 426,
    "fri26": 937, "gr96": 55209, "kroA100": 21282, "lin105": 14379, "pr1002": 259045, "pr76": 108159, "rd100": 7910,
    "st70": 675, "ulysses16": 6859,
}  # fmt: skip
CVRPLIB = {
    "A-n32-k5": 784, "B-n31-k5": 672, "E-n13-k4": 247, "F-n72-k4": 237, "M-n101-k10": 820, "P-n16-k8": 450,
    "X-n101-k25": 27591, "X-n110-k13": 14971, "X-n120-k6": 13332, "X-n129-k18": 28940, "X-n139-k10": 13590,
    "X-n148-k46": 43448, "X-n157-k13": 16876, "X-n167-k10": 20557, "X-n176-k26": 47812, "X-n186-k15": 24145,
    "X-n195-k51": 44225, "X-n204-k19": 19565, "X-n303-k21": 21736, "X-n502-k39": 69226, "X-n1001-k43": 72355,
}  # fmt: skip


class Problem:
    """A TSPLIB95 text: `key` lines, and sections of numbers."""

    def __init__(self, path):
        self.text = path.read_text()
        self.n = int(self.entry("DIMENSION"))

    def entry(self, key):
        found = re.search(rf"^{key}\s*:\s*(\S+)", self.text, re.MULTILINE)
        return found and found.group(1)

    def numbers(self, section):
        """All numbers between the line `section` and the next word."""
        body = re.split(rf"^{section}\b", self.text, flags=re.MULTILINE)[1]
        return np.array(re.split(r"[A-Z]{2,}", body)[0].split(), float)

    def places(self):
        return self.numbers("NODE_COORD_SECTION").reshape(self.n, 3)[:, 1:]

    def where(self):
        """How far it is: places under the metric `round`, or a matrix."""
        kind = self.entry("EDGE_WEIGHT_TYPE")
        if kind == "EUC_2D":
            return {"locs": self.places()}
        return {"dist": {"EXPLICIT": self.explicit, "ATT": self.pseudo_euclidean, "GEO": self.geographical}[kind]()}

    def explicit(self):
        form = self.entry("EDGE_WEIGHT_FORMAT")
        cells = {
            "LOWER_ROW": np.tril_indices(self.n, -1),
            "LOWER_DIAG_ROW": np.tril_indices(self.n),
            "UPPER_ROW": np.triu_indices(self.n, 1),
        }[form]
        d = np.zeros((self.n, self.n))
        d[cells] = self.numbers("EDGE_WEIGHT_SECTION")
        return d + d.T

    def pseudo_euclidean(self):
        """TSPLIB95, 2.5: the square root of a tenth of the square, rounded up."""
        return np.ceil(distance_matrix(self.places()) / math.sqrt(10))

    def geographical(self):
        """TSPLIB95, 2.4: degrees and minutes as DDD.MM, a sphere of 6378.388 km, pi cut after 3.141592."""
        degrees = np.trunc(self.places())
        latitude, longitude = (3.141592 * (degrees + 5 * (self.places() - degrees) / 3) / 180).T
        q1 = np.cos(np.subtract.outer(longitude, longitude))
        q2 = np.cos(np.subtract.outer(latitude, latitude))
        q3 = np.cos(np.add.outer(latitude, latitude))
        return np.trunc(6378.388 * np.arccos(0.5 * ((1 + q1) * q2 - (1 - q1) * q3)) + 1) * (1 - np.eye(self.n))


def tsplib(name):
    """Instance and optimal tour."""
    problem = Problem(DATA / "tsplib" / f"{name}.tsp")
    listed = (DATA / "tsplib" / f"{name}.opt.tour").read_text().split("TOUR_SECTION")[1]
    return problem.where(), [int(x) - 1 for x in listed.split()[: problem.n]]


def cvrplib(name):
    """Instance and actions of the published routes."""
    problem = Problem(DATA / "cvrplib" / f"{name}.vrp")
    demand = problem.numbers("DEMAND_SECTION").reshape(problem.n, 2)[:, 1].astype(int)
    routes = re.findall(r"^Route\s*#\d+\s*:\s*([\d \t]+)", (DATA / "cvrplib" / f"{name}.sol").read_text(), re.MULTILINE)
    actions = [node for route in routes for node in (*map(int, route.split()), 0)]
    return {**problem.where(), "demand_units": demand, "capacity": int(problem.entry("CAPACITY"))}, actions


def replay(world_class, instances, plans, **options):
    """Plays each plan in the row of its instance, illegal actions raise; the world, and what was paid."""
    metric = "matrix" if "dist" in instances[0] else "round"
    told = {"metric": metric, "illegal": "raise", "autoreset": "disabled", **options}
    world = world_class.from_instances(instances, **told)
    paid = np.zeros(len(plans))
    for turn in range(max(map(len, plans))):
        live = np.array([row for row, plan in enumerate(plans) if turn < len(plan)])
        assert not world.terminated[live].any()
        world.step(np.array([plans[row][turn] for row in live]), rows=live)
        paid[live] -= world.reward[live]
    assert world.terminated.all()
    return world, paid


def batch(instance):
    return {name: np.asarray(value)[None] for name, value in instance.items()}


@pytest.mark.parametrize(("name", "optimum"), TSPLIB.items())
def test_tsplib_tour_replays(name, optimum):
    """From the depot, and in a free world from where the file begins."""
    instance, tour = tsplib(name)
    start = tour.index(0)
    from_depot, paid = replay(TSP, [instance], [tour[start + 1 :] + tour[: start + 1]])
    assert paid == from_depot.tour_length == optimum
    assert replay(TSP, [instance], [tour], start="free")[1] == optimum
    metric = "round" if "locs" in instance else "matrix"
    assert tasks.TSP.get_costs(batch(instance), from_depot.solution(), metric=metric)[0] == optimum


@pytest.mark.parametrize(("name", "optimum"), CVRPLIB.items())
def test_cvrplib_routes_replay(name, optimum):
    """Each stop is legal, and with one unit less room than the fullest truck needs some stop is not."""
    instance, actions = cvrplib(name)
    world, paid = replay(CVRP, [instance], [actions])
    assert paid == world.tour_length == optimum
    metric = "round" if "locs" in instance else "matrix"
    assert tasks.CVRP.get_costs(batch(instance), world.solution(), metric=metric)[0] == optimum
    trips = np.split(np.array(actions), np.flatnonzero(np.array(actions) == 0))
    fullest = max(instance["demand_units"][trip].sum() for trip in trips)
    with pytest.raises(IllegalAction, match="over capacity"):
        replay(CVRP, [{**instance, "capacity": fullest - 1}], [actions])


def test_all_cvrplib_files_in_one_padded_batch():
    """20 files of 16 to 1001 nodes side by side, each row its own size."""
    names = [name for name in CVRPLIB if name != "E-n13-k4"]
    instances, plans = zip(*map(cvrplib, names), strict=True)
    world, paid = replay(CVRP, instances, plans)
    assert world.sizes["N"] == 1001
    assert paid.tolist() == world.tour_length.tolist() == [CVRPLIB[name] for name in names]


def test_cmt6_trips_keep_their_limit():
    """Unrounded 555.43; each of the 50 stops takes 10 of a trip's 200, here as a part of the way to it."""
    instance, actions = cvrplib("CMT6")
    problem = Problem(DATA / "cvrplib" / "CMT6.vrp")
    service, limit = float(problem.entry("SERVICE_TIME")), float(problem.entry("DISTANCE"))
    d = distance_matrix(instance.pop("locs"))
    d[:, 1:] += service * (1 - np.eye(problem.n))[:, 1:]
    instance |= {"dist": d, "max_length": limit}
    _, paid = replay(CVRP, [instance], [actions])
    assert paid - 50 * service == pytest.approx(555.43, abs=0.005)
    ends = np.flatnonzero(np.array(actions) == 0)
    walks = [[0, *trip, 0] for trip in np.split(np.array(actions), ends) if trip.any()]
    longest = max(sum(d[i, j] for i, j in pairwise(walk)) for walk in walks)
    assert longest <= limit
    with pytest.raises(IllegalAction, match="too long"):
        replay(CVRP, [{**instance, "max_length": longest - 0.01}], [actions])
