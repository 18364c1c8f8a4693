"""The collection TSP-D-Instances: its published optima have their published cost to the last digit and are found.

A dynamic programme outside this library computed the means and restricted optima.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from milkrun.delivery.instances import load_tspd, load_tspd_solution, write_tspd, write_tspd_solution
from milkrun.delivery.tasks import price_operations, tspd_cost
from milkrun.solvers.tspd import exact, partition, truck_only
from tests.published import published_file, published_files

pytestmark = pytest.mark.truth

OPTIMA = {
    1: (222.858441, 216.437977, 247.741718, 252.289429, 258.239438),
    2: (176.451558, 161.919910, 197.052643, 192.625464, 208.464608),
    3: (156.117447, 134.941282, 168.009520, 167.378656, 189.033239),
}
SPLIT = (199.534380, 188.888682, 226.793414, 219.031605, 239.750694)
TOUR = (266.585364, 263.486319, 280.179269, 292.482385, 308.238682)
SHORTEST = (266.585364, 263.475409, 280.179269, 292.381888, 308.238682)
SIZES = (5, 6, 7, 8, 9)

MAX_RADIUS = {20: 300.042392859, 40: 291.816732819, 60: 291.816732819, 100: 251.686665968, 150: 250.725724899,
              200: 250.725724899}  # fmt: skip
NO_VISIT = {10: 250.725724899, 20: 263.993717449, 30: 278.714906489, 40: 287.600771544, 50: 282.515896592,
            60: 278.254621816, 70: 299.118686030, 80: 296.194441078}  # fmt: skip
UNRESTRICTED = 250.725724899


def names(alpha, n):
    """The ten instances of a size: 1..10 have five nodes, 11..20 six, and so on."""
    kind = "uniform" if alpha == 2 else f"uniform-alpha_{alpha}"
    return [f"{kind}-{k}-n{n}" for k in range(10 * (n - 5) + 1, 10 * (n - 4) + 1)]


@cache
def instance_of(name):
    return load_tspd(published_file(f"delivery/tspd/uniform/{name}.txt"))


def solution_of(name, ending="DP"):
    path = published_file(f"delivery/tspd/uniform/solutions/{name}-{ending}.txt")
    return load_tspd_solution(path, nodes=instance_of(name).num_nodes)


@pytest.mark.parametrize("alpha", OPTIMA)
@pytest.mark.parametrize("n", SIZES)
def test_published_plans_have_their_published_cost(alpha, n):
    """Ten of 150: every operation and their sum."""
    for name in names(alpha, n):
        instance, solution = instance_of(name), solution_of(name)
        assert instance.num_nodes == n
        assert tspd_cost(instance, solution.operations) == pytest.approx(solution.total, abs=1e-9, rel=0), name
        costs = price_operations(instance, solution.operations).cost
        assert costs.tolist() == pytest.approx(solution.op_costs, abs=1e-9, rel=0), name


@pytest.mark.parametrize("alpha", OPTIMA)
@pytest.mark.parametrize("n", SIZES)
def test_published_optima_are_found(alpha, n):
    """Ten of 150: the reported cost, the checker's cost of the plan, and their mean."""
    found = []
    for name in names(alpha, n):
        plan, published = exact(instance_of(name)), solution_of(name).total
        assert plan.cost == pytest.approx(published, abs=1e-9, rel=0), name
        assert tspd_cost(instance_of(name), plan.operations) == pytest.approx(published, abs=1e-9, rel=0), name
        found.append(plan.cost)
    assert np.mean(found) == pytest.approx(OPTIMA[alpha][n - 5], abs=5.1e-7, rel=0)


def test_uniform_1_in_full():
    """Two operations; the drone waits in both, the truck in none."""
    instance, solution = instance_of("uniform-1-n5"), solution_of("uniform-1-n5")
    assert solution.operations == ((0, 4, 3, ()), (4, 0, 1, (2,)))
    assert solution.op_costs == (69.96735027653504, 88.68434403581489)
    assert solution.total == 158.65169431234995
    prices = price_operations(instance, solution.operations)
    assert prices.cost.tolist() == pytest.approx([69.96735027653504, 88.68434403581489], abs=1e-9, rel=0)
    assert prices.drone_wait.tolist() == pytest.approx([0.022559846, 5.257852005], abs=5.1e-10, rel=0)
    assert prices.truck_wait.tolist() == [0, 0]


@pytest.mark.parametrize("n", SIZES)
def test_means_of_tours_and_their_splits(n):
    """The file's tour comes from a solver of rounded distances: up to .833 above the shortest."""
    split, tour, shortest = [], [], []
    for name in names(2, n):
        instance, driven = instance_of(name), solution_of(name, "tsp")
        assert (driven.op_costs, driven.total) == (None, None)
        tour.append(tspd_cost(instance, driven.operations))
        split.append(partition(instance, [op.start for op in driven.operations]).cost)
        shortest.append(truck_only(instance).cost)
    means = [np.mean(split), np.mean(tour), np.mean(shortest)]
    assert means == pytest.approx([SPLIT[n - 5], TOUR[n - 5], SHORTEST[n - 5]], abs=5.1e-7, rel=0)
    above = np.subtract(tour, shortest)
    assert above.min() > -1e-9
    assert above.max() < 0.8335


def restricted(kind):
    return load_tspd(published_file(f"delivery/tspd/restricted/{kind.split('-')[0]}/uniform-51-n10-{kind}.txt"))


@pytest.mark.parametrize(("percent", "optimum"), MAX_RADIUS.items())
def test_optima_under_a_range(percent, optimum):
    """The plan keeps the range, by the checker."""
    instance = restricted(f"maxradius-{percent}")
    operations, cost = exact(instance)
    assert cost == pytest.approx(optimum, abs=5.1e-10, rel=0)
    assert tspd_cost(instance, operations) == pytest.approx(cost, abs=1e-9, rel=0)


def test_more_range_never_costs_more():
    """At 200 percent of the largest distance there is no limit, and the optimum is the unrestricted one."""
    optima = [exact(restricted(f"maxradius-{percent}")).cost for percent in MAX_RADIUS]
    assert (np.diff(optima) <= 1e-9).all()
    assert restricted("maxradius-200").max_fly == np.inf
    assert exact(instance_of("uniform-51-n10")).cost == pytest.approx(UNRESTRICTED, abs=5.1e-10, rel=0)


def test_a_range_is_in_drone_cost():
    """At 100 percent it is the drone's factor times the largest distance."""
    instance = restricted("maxradius-100")
    assert instance.max_fly == pytest.approx(instance.c_drone.max(), abs=1e-9, rel=0)


@pytest.mark.parametrize(("percent", "optimum"), NO_VISIT.items())
def test_optima_with_nodes_out_of_the_drones_reach(percent, optimum):
    """The plan leaves them to the truck, by the checker."""
    instance = restricted(f"novisit-{percent}-rep_1")
    operations, cost = exact(instance)
    assert instance.no_visit.any()
    assert cost == pytest.approx(optimum, abs=5.1e-10, rel=0)
    assert tspd_cost(instance, operations) == pytest.approx(cost, abs=1e-9, rel=0)


def test_every_file_is_written_and_read_back_equal(tmp_path):
    """165 instances, 150 optima, 50 tours, and all files in MILKRUN_DATA."""
    folders = ("uniform", "restricted/maxradius", "restricted/novisit")
    instances = [path for name in folders for path in published_files(f"delivery/tspd/{name}/*.txt")]
    solutions = published_files("delivery/tspd/uniform/solutions/*.txt")
    assert len(instances) >= 165 and len(solutions) >= 200
    for path in instances:
        instance = load_tspd(path)
        write_tspd(instance, tmp_path / path.name)
        assert load_tspd(tmp_path / path.name) == instance, path.name
    for path in solutions:
        solution = load_tspd_solution(path)
        write_tspd_solution(solution, tmp_path / path.name)
        assert load_tspd_solution(tmp_path / path.name) == solution, path.name
