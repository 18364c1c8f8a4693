"""The dial-a-ride checker under rule `deadlines`: deadlines alone, on an integer clock."""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.core.errors import BadSolution, ConfigError
from milkrun.routing.tasks import DARPProblem
from tests.routing.darp_by_hand import TWO, broken, darp


def trace(**changed):
    """Two requests on a plane; at speed 25 the clock along 3, 1, 2 shows 2, 3, 5."""
    fields = {
        "locs": np.array([[[0, 0], [30, 40], [60, 80], [0, 50], [100, 0]]], np.float32),
        "demand": np.array([[0, 2, -2, 1, -1]]),
        "time_windows": np.array([[48, 10, 13, 12, 5]]),
        "capacity": np.array([[5, 5]]),
    }
    return {**fields, **changed}


def sentence(data, plan):
    with pytest.raises(BadSolution) as found:
        DARPProblem.get_costs(data, np.array([plan]), rule="deadlines")
    return str(found.value)


def test_by_deadlines_trace_costs_331():
    """50 + 31.6228 + 50 + 100 home in an emergency with a rider aboard; only that dropoff stays unvisited: + 100."""
    for plan in ([3, 1, 2, 0, 0], [3, 1, 2, 0], [3, 1, 2]):
        cost, parts, _ = DARPProblem.get_costs(trace(), np.array([plan]), rule="deadlines")
        assert cost[0] == pytest.approx(331.6228, abs=1e-4)
        assert parts["distance"][0] == pytest.approx(231.6228, abs=1e-4)
        assert [int(parts[name][0]) for name in ("unvisited", "unserved", "vehicles")] == [1, 1, 1]


def test_by_deadlines_depot_with_riders_is_for_emergencies():
    """From (60, 80) to (100, 0) takes 89.4 / 25, rounded 4: with deadline 9 the dropoff is still possible, with 8
    not."""
    late, due = (trace(time_windows=np.array([[48, 10, 13, 12, at]])) for at in (8, 9))
    cost = DARPProblem.get_costs(late, np.array([[3, 1, 2, 0]]), rule="deadlines")[0]
    assert cost == pytest.approx(331.6228, abs=1e-4)
    assert sentence(due, [3, 1, 2, 0]) == "row 0: vehicle 0, position 0, node 3: pairing by 1"


def test_by_deadlines_last_way_home_is_free():
    """After all requests the return is not charged: 50 + 31.6228 + 50 + 89.4427."""
    due = trace(time_windows=np.array([[0, 10, 13, 12, 9]]))
    for plan in ([3, 1, 2, 4, 0], [3, 1, 2, 4]):
        cost = DARPProblem.get_costs(due, np.array([plan]), rule="deadlines")[0]
        assert cost[0] == pytest.approx(221.0655, abs=1e-4)


@pytest.mark.parametrize(("way", "clock"), [(62.5, 2), (37.5, 2), (87.5, 4), (12.5, 0), (12.6, 1)])
def test_by_deadlines_travel_rounds_half_to_even(way, clock):
    """2.5 and 1.5 are 2, 3.5 is 4, 0.5 is 0 and 0.504 is 1; a deadline one earlier is missed by 1."""
    instance = darp([way, way], closes=[clock, 100])
    assert broken(instance, [[1, 2]], rule="deadlines") == []
    assert DARPProblem.check(instance, [[1, 2]], rule="deadlines").schedule == [(0.0, clock, clock)]
    sooner = darp([way, way], opens=-1, closes=[clock - 1, 100])
    assert broken(sooner, [[1, 2]], rule="deadlines") == [(0, 0, 1, "window", 1)]


def test_by_deadlines_rules_and_plans_that_break_them():
    """Each kind once: too late, too many, unknown, twice, reversed, with another vehicle, beyond the fleet."""
    assert sentence(trace(), [3, 4]) == "row 0: vehicle 0, position 1, node 4: window by 1"
    full = trace(capacity=np.array([[2, 2]]))
    assert sentence(full, [3, 1, 2, 0]) == "row 0: vehicle 0, position 1, node 1: capacity by 1"
    assert sentence(trace(), [1, 2, 5]) == "row 0: vehicle 0, position 2, node 5: unknown node by 1"
    assert sentence(trace(), [1, 2, 0, 1]) == "row 0: vehicle 1, position 0, node 1: duplicate by 1"
    assert sentence(trace(), [2, 1]) == "row 0: vehicle 0, position 0, node 2: precedence by 1"
    assert sentence(trace(), [1, 0, 2]) == "row 0: vehicle 0, position 0, node 1: pairing by 1"
    assert sentence(trace(), [2]) == "row 0: vehicle 0, position 0, node 2: pairing by 1"
    one = trace(capacity=np.array([[5]]))
    assert sentence(one, [1, 2, 0, 3, 0]) == "row 0: vehicle 1, position 0, node 3: fleet by 1"
    assert sentence(trace(), [0, 1, 2, 0]) == "row 0: vehicle 1, position 0, node 1: fleet by 1"


def test_by_deadlines_vehicles_that_could_go_may_not_stay():
    """At the depot both pickups are reachable in time. If only request 1 is left, with its dropoff due at 5, vehicle 1
    may stay only if that pickup, 2 away, is due before."""
    for plan, vehicle in (([0], 0), ([0, 0], 0), ([1, 2, 0], 1), ([1, 2], 1), ([1, 2, 0, 0, 0], 1)):
        assert sentence(trace(), plan) == f"row 0: vehicle {vehicle}, position 0, node 0: idle by 1"
    gone = trace(time_windows=np.array([[48, 10, 13, 1, 5]]))
    cost, parts, _ = DARPProblem.get_costs(gone, np.array([[1, 2, 0]]), rule="deadlines")
    assert cost[0] == pytest.approx(400.0) and parts["unserved"][0] == 1  # 50 + 50 + 100 home, two nodes left


def test_by_deadlines_vehicles_start_at_0_and_empty():
    """The second vehicle's clock shows 2 and 4 at the other request; opening times and depot deadlines are ignored."""
    report = DARPProblem.check(
        darp([50, 100, 50, 100], opens=90, closes=[100, 100, 100, 100], load=2), [[1, 2], [3, 4]], rule="deadlines"
    )
    assert report.feasible
    assert report.schedule == [(0.0, 2.0, 4.0, 8.0), (0.0, 2.0, 4.0)]
    assert report.distance == 300.0


def test_by_deadlines_reads_the_split_layout():
    """Separate depot, all other fields over customers: the same cost."""
    whole = trace()
    split = {name: whole[name][:, 1:] for name in ("locs", "demand", "time_windows")}
    split |= {"depot": whole["locs"][:, 0], "capacity": whole["capacity"]}
    for data in (whole, split):
        cost = DARPProblem.get_costs(data, np.array([[3, 1, 2, 0]]), rule="deadlines")[0]
        assert cost[0] == pytest.approx(331.6228, abs=1e-4)


def test_by_deadlines_has_no_matrix():
    """It uses straight lines."""
    with pytest.raises(ConfigError, match="has a matrix"):
        DARPProblem.check(darp(**TWO, dist=np.zeros((5, 5))), [[1, 2]], rule="deadlines")
