"""The dial-a-ride checker: published optima are feasible at their cost, and a route breaks each rule."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milkrun.core.errors import BadSolution
from milkrun.routing.instances import cordeau
from milkrun.routing.tasks import DARPProblem
from tests.published import published_file
from tests.routing.darp_by_hand import ONE, TWO, broken, darp

PUBLISHED = {
    "a2-16": 294.25,
    "a2-24": 431.12,
    "a3-18": 300.48,
    "a3-30": 494.85,
    "a4-16": 282.68,
    "b2-16": 309.41,
    "b2-24": 444.71,
    "b3-18": 301.64,
    "b3-30": 531.44,
    "b4-16": 296.96,
    "b4-32": 494.82,
}


# --- published solutions


def solutions():
    return json.loads(published_file("darp/solutions.json").read_text())


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_optimum_is_feasible_at_its_cost(name):
    """The published routes keep every limit, and have the published cost, to its two decimals."""
    found, instance = solutions()[name], cordeau.load(published_file(f"darp/{name}.txt"))
    with published_file("darp/best_known.csv").open() as file:
        best = {row["name"]: float(row["value"]) for row in csv.DictReader(file)}
    assert best[name] == PUBLISHED[name]
    plan = DARPProblem.routes_to_actions(found["routes"], instance.num_requests)
    report = DARPProblem.check(instance, DARPProblem.actions_to_routes(plan), tol=0.0)
    assert report.violations == []
    assert (report.unserved, report.unvisited) == (0, 0)
    assert report.cost == report.distance == pytest.approx(found["cost"], abs=1e-3)
    assert report.cost == pytest.approx(PUBLISHED[name], abs=0.006)
    cost, parts, _ = DARPProblem.get_costs(instance.fields(), plan[None])
    assert cost.tolist() == parts["distance"].tolist() == [report.cost]
    assert parts["vehicles"].tolist() == [len(found["routes"])]


def test_simple_clocks_break_ride_limits_of_feasible_routes():
    """Leaving at 0 and serving as early as possible, 30 of the 32 published routes break a ride limit."""
    late = total = 0
    for name, found in solutions().items():
        instance = cordeau.load(published_file(f"darp/{name}.txt"))
        plan = DARPProblem.routes_to_actions(found["routes"], instance.num_requests)
        for route in DARPProblem.actions_to_routes(plan):
            clock, here, left, too_long = 0.0, 0, {}, False
            for node in route:
                way = np.linalg.norm(instance.locs[here].astype(float) - instance.locs[node].astype(float))
                clock = max(instance.window_open[node], clock + instance.service_time[here] + way)
                left[node] = clock + instance.service_time[node]
                if node % 2 == 0:
                    too_long |= clock - left[node - 1] > instance.max_ride_time[0] + 1e-3
                here = node
            total += 1
            late += too_long
            assert DARPProblem.schedule(instance, route, tol=0.0) is not None
    assert (late, total) == (30, 32)


def test_schedule_of_a2_16_has_its_known_start():
    """The first three starts of the first route are 32, 49 and 62.131 at the earliest; delays come only from rides."""
    instance = cordeau.load(published_file("darp/a2-16.txt"))
    plan = DARPProblem.routes_to_actions(solutions()["a2-16"]["routes"], 16)
    route = DARPProblem.actions_to_routes(plan)[0]
    starts = DARPProblem.schedule(instance, route)
    assert route[:2] == [19, 9]
    earliest = [32, 49, 62.131, 82, 160, 165.2, 180, 199.959, 367, 374.954, 400, 413.492]
    assert all(b >= e - 1e-3 for b, e in zip(starts[1:-1], earliest, strict=True))
    assert starts[11] == 400.0  # file node 23, the dropoff of 7, boarded at 367
    assert starts[9] == pytest.approx(367.0)


# --- schedules by hand


def test_a_pickup_waits_for_the_ride_limit():
    """Dropoff at 50 at the earliest and a ride of 20 at most: the pickup waits until 30, and the return is at 60."""
    instance = darp(**ONE)
    assert DARPProblem.schedule(instance, [1, 2]) == (0.0, 30.0, 50.0, 60.0)
    report = DARPProblem.check(instance, [[1, 2]])
    assert report.feasible
    assert report.schedule == [(0.0, 30.0, 50.0, 60.0)]
    assert report.ride_times == [{0: 20.0}]
    assert report.waiting == [40.0]
    assert report.duration == [60.0]
    assert report.cost == report.distance == 20.0


def test_the_departure_waits_for_the_duration():
    """The same without a ride limit but 30 for the route: home at 60, so leaving at 30, boarding at 33."""
    instance = darp(**{**ONE, "ride": np.inf, "duration": 30})
    assert DARPProblem.schedule(instance, [1, 2]) == (30.0, 33.0, 50.0, 60.0)


def test_service_counts_for_the_route_and_not_for_the_ride():
    """5 of service at both: pickup from 25 to 30, a ride of 20 until 50, and after 55 another 10 home."""
    instance = darp(**ONE, service=5)
    report = DARPProblem.check(instance, [[1, 2]])
    assert report.schedule == [(0.0, 25.0, 50.0, 65.0)]
    assert report.ride_times == [{0: 20.0}]
    assert report.waiting == [35.0]


def test_speed_and_matrix():
    """At half the speed the way home takes 20; a matrix counts row to column: 0 -> 1 is 4, 1 -> 2 is 5, 2 -> 0 is 6."""
    instance = darp(**ONE)
    assert DARPProblem.schedule(instance, [1, 2], speed=0.5) == (0.0, 30.0, 50.0, 70.0)
    assert DARPProblem.check(instance, [[1, 2]], speed=0.5).distance == 20.0
    matrix = np.array([[0, 4, 9], [9, 0, 5], [6, 9, 0.0]])
    report = DARPProblem.check(darp([3, 10], dist=matrix), [[1, 2]])
    assert (report.distance, report.schedule) == (15.0, [(0.0, 4.0, 9.0, 15.0)])


@pytest.mark.parametrize(("limit", "feasible"), [(21.0, True), (20.9, False)])
def test_ride_limit_decides_whether_a_detour_is_possible(limit, feasible):
    """From 1 to 10 by way of -5 and 2 it is 6 + 7 + 8 = 21; any other order with both aboard is longer."""
    instance = darp(**TWO, ride=limit, duration=100)
    assert (DARPProblem.schedule(instance, [1, 3, 4, 2]) is not None) == feasible
    assert DARPProblem.schedule(instance, [1, 3, 2, 4]) is None
    assert DARPProblem.schedule(instance, [1, 2, 3, 4]) is not None


def test_schedule_refuses_nodes_that_do_not_exist():
    """The depot is no stop either."""
    for route in ([1, 3], [1, 0, 2], [-1]):
        with pytest.raises(BadSolution, match=re.escape("not within 1..2")):
            DARPProblem.schedule(darp(**ONE), route)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_schedule_is_the_least_solution_of_the_linear_program(seed):
    """The sum of start times, minimised by a simplex, has the same optimum or is infeasible too."""
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(seed)
    requests = int(rng.integers(1, 4))
    n = 2 * requests
    opens = rng.integers(0, 50, n)
    instance = darp(
        rng.integers(-9, 10, n).tolist(),
        opens=opens,
        closes=opens + rng.integers(10, 90, n),
        capacity=[9],
        service=rng.integers(0, 4, n),
        ride=rng.integers(9, 50, requests),
        duration=int(rng.integers(40, 150)),
    )
    key = rng.random(n)
    key[1::2], key[::2] = np.maximum(key[::2], key[1::2]), np.minimum(key[::2], key[1::2])
    route = (1 + np.argsort(key)).tolist()
    walk = [0, *route, 0]
    rows, bounds = [], []

    def differ(later, sooner, most):
        row = np.zeros(len(walk))
        row[later], row[sooner] = 1, -1
        rows.append(row)
        bounds.append(most)

    for k in range(len(walk) - 1):
        way = abs(float(instance.locs[walk[k], 0] - instance.locs[walk[k + 1], 0]))
        differ(k, k + 1, -instance.service_time[walk[k]] - way)
    for r in range(requests):
        limit = instance.service_time[2 * r + 1] + instance.max_ride_time[r]
        differ(walk.index(2 * r + 2), walk.index(2 * r + 1), limit)
    differ(len(walk) - 1, 0, instance.max_route_duration)
    windows = [(instance.window_open[node], instance.time_windows[node]) for node in walk]
    best = optimize.linprog(np.ones(len(walk)), np.array(rows), np.array(bounds), bounds=windows)
    starts = DARPProblem.schedule(instance, route)
    assert (starts is not None) == (best.status == 0)
    assert DARPProblem.check(instance, [route]).feasible == (best.status == 0)
    if starts is not None:
        assert starts == pytest.approx(best.x.tolist(), abs=1e-6)


# --- every rule and a route that breaks it


def test_unknown_node():
    """Of 0..4, node 9 and the depot within a route are invalid; the rest is driven: 1 + 9 + 10."""
    assert broken(darp(**TWO), [[1, 9, 2]]) == [(0, 1, 9, "unknown node", 1)]
    assert broken(darp(**TWO), [[1, 2, 0]]) == [(0, 2, 0, "unknown node", 1)]
    assert broken(darp(**TWO), [[-1]]) == [(0, 0, -1, "unknown node", 1)]
    assert DARPProblem.check(darp(**TWO), [[1, 9, 2]]).distance == 20.0


def test_positions_include_invalid_nodes():
    """The dropoff at 10 has position 2 of the given route, 2 too late for its window up to 8."""
    instance = darp([1, 10], closes=[100, 8])
    assert broken(instance, [[1, 7, 2]]) == [(0, 1, 7, "unknown node", 1), (0, 2, 2, "window", 2)]


def test_duplicate():
    """The second vehicle finds no rider; both visits are reported, and the request counts as served once."""
    assert broken(darp(**TWO), [[1, 2], [1, 2]]) == [(1, 0, 1, "duplicate", 1), (1, 1, 2, "duplicate", 1)]
    assert DARPProblem.check(darp(**TWO), [[1, 2], [1, 2]]).unserved == 1


def test_a_second_pickup_does_not_shorten_the_ride():
    """The ride starts at the first pickup: 6 + 7 + 1 + 9 is 3 more than 20."""
    found = broken(darp(**TWO, ride=20), [[1, 3, 4, 1, 2]])
    assert found == [(0, 3, 1, "duplicate", 1), (0, 4, 2, "ride", 3)]


def test_pairing():
    """Pickup by one vehicle and dropoff by another; a pickup without a dropoff."""
    assert broken(darp(**TWO), [[1], [2]]) == [(0, 0, 1, "pairing", 1), (1, 0, 2, "pairing", 1)]
    assert broken(darp(**TWO), [[3, 1, 4]]) == [(0, 1, 1, "pairing", 1)]
    assert DARPProblem.check(darp(**TWO), [[1], [2]]).unserved == 2


def test_precedence():
    """Dropoff before the pickup."""
    assert broken(darp(**TWO), [[3, 4, 2, 1]]) == [(0, 2, 2, "precedence", 1)]


def test_capacity():
    """Loads 2 and 3 on 4 seats are one rider too many at the second pickup, and fit sequentially."""
    instance = darp(**TWO, load=[2, 3], capacity=[4])
    assert broken(instance, [[1, 3, 2, 4]]) == [(0, 1, 3, "capacity", 1)]
    assert broken(instance, [[1, 2, 3, 4]]) == []


def test_window():
    """The way to 10 takes 10, with service 4 at the pickup 14: 2 and 6 too late for a window up to 8."""
    for service, amount in ((0, 2), (4, 6)):
        instance = darp([1, 10], closes=[100, 8], service=[service, 0])
        assert broken(instance, [[1, 2]]) == [(0, 1, 2, "window", amount)]


def test_window_of_the_depot():
    """With the dropoff at 995 at the earliest, the way home of 10 ends 5 after the end of the day at 1000."""
    instance = darp([3, 10], opens=[0, 995], closes=[1000, 999])
    assert broken(instance, [[1, 2]]) == [(0, 2, 0, "window", 5)]


def test_ride_by_distance():
    """Through -5 and 2 it is 21 from 1 to 10; a limit of 20.9 is exceeded by 0.1, at the dropoff."""
    assert broken(darp(**TWO, ride=20.9), [[1, 3, 4, 2]]) == [(0, 3, 2, "ride", 0.1)]
    assert broken(darp(**TWO, ride=20.9), [[1, 3, 2, 4]]) == [(0, 2, 2, "ride", 0.1), (0, 3, 4, "ride", 2.1)]


def test_ride_by_windows():
    """Pickup at 25 at the latest and dropoff at 50 at the earliest is a ride of 25, 5 more than 20."""
    assert broken(darp(**{**ONE, "closes": [25, 60]}), [[1, 2]]) == [(0, 1, 2, "ride", 5)]


def test_rides_that_fit_alone_but_not_together():
    """1 boards by 4 and rides 10, so its dropoff is by 14, after the pickup of 2; the dropoff of 2 at 30 makes 16 for a
    limit of 15.

    All places are at the depot, the order is 1 on, 2 on, 1 off, 2 off.
    """
    windows = {"opens": [0, 0, 0, 30], "closes": [4, 100, 100, 100]}
    assert broken(darp([0, 0, 0, 0], **windows, ride=[10, 15]), [[1, 3, 2, 4]]) == [(0, 3, 4, "ride", 1)]
    assert broken(darp([0, 0, 0, 0], **windows, ride=[10, 16]), [[1, 3, 2, 4]]) == []
    assert broken(darp([0, 0, 0, 0], **windows, ride=[11, 15]), [[1, 3, 2, 4]]) == []


def test_duration_by_distance():
    """3 + 7 + 10 is 1 more than 19, reported at the return."""
    assert broken(darp([3, 10], duration=19), [[1, 2]]) == [(0, 2, 0, "duration", 1)]


def test_duration_by_windows():
    """Arrival at 3 by 10 means departure by 7; dropoff at 50 means home at 60: 53 for a limit of 50."""
    instance = darp([3, 10], opens=[0, 50], closes=[10, 60], duration=50)
    assert broken(instance, [[1, 2]]) == [(0, 2, 0, "duration", 3)]


def test_fleet():
    """One vehicle cannot drive two routes; an empty route needs none."""
    one = darp(**TWO, capacity=[2])
    assert broken(one, [[1, 2], [3, 4]]) == [(1, 0, 3, "fleet", 1)]
    assert broken(one, [[1, 2, 3, 4], []]) == []


def test_missing_requests_are_counted_and_charged():
    """Request 1 is not served: two nodes at 100 each in addition to 20, without a violation."""
    report = DARPProblem.check(darp(**TWO), [[], [1, 2]])
    assert report.feasible
    assert (report.unserved, report.unvisited, report.vehicles) == (1, 2, 1)
    assert report.cost == 220.0
    assert report.schedule == [(), (0.0, 1.0, 10.0, 20.0)]
    assert (report.waiting, report.duration) == ([0.0, 0.0], [0.0, 20.0])
    assert DARPProblem.check(darp(**TWO), [], penalty_unvisited=3.0).cost == 12.0


def test_a_route_without_a_schedule_has_no_times():
    """None and nan, for this route alone; the other has its own."""
    instance = darp(**TWO, closes=[100, 9, 100, 100])
    report = DARPProblem.check(instance, [[1, 2], [3, 4]])
    assert report.schedule == [None, (0.0, 5.0, 12.0, 14.0)]
    assert report.ride_times == [{}, {1: 7.0}]
    assert np.isnan(report.duration[0])
    assert np.isnan(report.waiting[0])


@pytest.mark.parametrize(("over", "tol", "feasible"), [(1.5e-4, None, True), (3e-4, None, False), (1e-5, 0.0, False)])
def test_times_have_a_tolerance(over, tol, feasible):
    """By default 0.0002, for every limit, independent of the scale."""
    options = {} if tol is None else {"tol": tol}
    for limits in ({"closes": [100, 10 - over]}, {"ride": 9 - over}, {"duration": 20 - over}):
        assert DARPProblem.check(darp([1, 10], **limits), [[1, 2]], **options).feasible == feasible
        assert (DARPProblem.schedule(darp([1, 10], **limits), [1, 2], **options) is not None) == feasible


def test_the_checker_imports_no_world_and_no_compiler():
    """It is independent."""
    code = (
        "import sys, milkrun.routing.darp.task.checker; own = 'milkrun.routing.darp.';"
        "kernels = [own + part for part in ('world', 'deadlines', 'base', 'schedule', 'generator')];"
        "sys.exit(any(m in sys.modules for m in ('numba', 'torch', 'milkrun.core.world', *kernels)))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0
