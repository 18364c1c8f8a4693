"""Published solutions with time windows replay to their published value, to the last digit, in world and checker.

Solomon's files in the VRP and in the profit world, two prize-collecting ones of Gehring and Homberger's size in the
latter.
"""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from milkrun.routing.instances import read, read_solution, replay
from milkrun.routing.tasks.distances import distance_matrix
from tests.published import published_file

pytestmark = pytest.mark.truth

SOLOMON = {
    "C101": 827.3,
    "C103": 826.3,
    "C105": 827.3,
    "C107": 827.3,
    "C109": 827.3,
    "C201": 589.1,
    "C203": 588.7,
    "C205": 586.4,
    "C207": 585.8,
    "R101": 1637.7,
    "R103": 1208.7,
    "R105": 1355.3,
    "R107": 1064.6,
    "R109": 1146.9,
    "R111": 1048.7,
    "R201": 1143.2,
    "R203": 870.8,
    "R205": 949.8,
    "R207": 794.0,
    "R209": 854.8,
    "R211": 746.7,
    "RC101": 1619.8,
    "RC103": 1258.0,
    "RC105": 1513.7,
    "RC107": 1207.8,
    "RC201": 1261.8,
    "RC203": 923.7,
    "RC205": 1154.0,
    "RC207": 962.9,
}
PCVRPTW = {"C1_10_1": 245391, "RC2_10_1": 195942}


def solomon(name):
    stem = f"routing/solomon/{name}"
    return read(published_file(f"{stem}.txt")), read_solution(published_file(f"{stem}.sol"))


def pcvrptw(name):
    stem = f"routing/pcvrptw/{name}"
    return read(published_file(f"{stem}.vrp")), read_solution(published_file(f"{stem}.sol"))


def with_fields(instance, **fields):
    return dataclasses.replace(instance, fields={**instance.fields, **fields})


def starts(instance, route):
    """When service begins at each stop of a route, in tenths."""
    d = distance_matrix(instance.locs, "trunc1")
    windows, service = instance.fields["time_windows"], instance.fields["service_time"]
    t, begun = 0.0, []
    for i, j in pairwise([0, *route]):
        t = max(t + service[i] + d[i, j], windows[j, 0])
        begun.append(t)
    return np.array(begun)


@pytest.mark.parametrize(("name", "best"), SOLOMON.items())
def test_solomon_routes_replay(name, best):
    """The solution without its last customer is invalid: all must be served."""
    instance, solution = solomon(name)
    assert replay(instance, solution) == (best, True, None)
    assert instance.best == best
    assert replay(instance.for_world("CVRPP"), solution) == (best, True, None)
    *others, last = solution.routes
    cost, valid, reason = replay(instance, [*others, last[:-1]])
    assert (cost, valid) == (np.inf, False)
    assert str(last[-1]) in reason


@pytest.mark.parametrize("name", ["C101", "R101", "RC207"])
def test_a_window_that_closes_a_tenth_too_soon_is_missed(name):
    """The latest punctual start of the solution's first route is punctual to the tenth."""
    instance, solution = solomon(name)
    begun = starts(instance, solution.routes[0])
    stop = solution.routes[0][-1]
    windows = instance.fields["time_windows"].copy()
    windows[stop] = [0, begun[-1]]
    arrival = starts(with_fields(instance, time_windows=windows), solution.routes[0])[-1]
    windows[stop, 1] = arrival
    assert replay(with_fields(instance, time_windows=windows), solution)[1] is True
    windows[stop, 1] = arrival - 1
    assert replay(with_fields(instance, time_windows=windows), solution)[1] is False


@pytest.mark.parametrize(("name", "best"), PCVRPTW.items())
def test_prize_collecting_routes_replay(name, best):
    """The published cost is the length plus the prizes left, both in tenths."""
    instance, solution = pcvrptw(name)
    assert replay(instance, solution) == (best, True, None)
    d = distance_matrix(instance.locs, "trunc1")
    length = sum(d[i, j] for route in solution.routes for i, j in pairwise([0, *route, 0]))
    served = [j for route in solution.routes for j in route]
    assert length + instance.fields["prize"].sum() - instance.fields["prize"][served].sum() == best


@pytest.mark.parametrize("name", PCVRPTW)
def test_no_customer_is_mandatory_if_prizes_are_collected(name):
    """The empty solution is valid and costs every prize; skipping one customer saves its detour and costs its prize."""
    instance, solution = pcvrptw(name)
    assert replay(instance, []) == (instance.fields["prize"].sum(), True, None)
    first, *others = solution.routes
    d = distance_matrix(instance.locs, "trunc1")
    before, gone = (0, *first)[-2], first[-1]
    saved = d[before, gone] + d[gone, 0] - d[before, 0] - instance.fields["prize"][gone]
    assert replay(instance, [first[:-1], *others])[0] == PCVRPTW[name] - saved
