"""The checkers of VRP and PDP: costs by hand, every rule broken once, and what they read.

The depot is at (0, 0) and the customers 1, 2, 3 at (3, 0), (3, 4), (0, 4) want 5 units of a vehicle with room for 10.
"""

from __future__ import annotations

import inspect
import re
import sys

import numpy as np
import pytest

from milkrun.core.errors import BadInstance, BadSolution, ConfigError, ShapeError
from milkrun.routing.tasks import PDP, VRP, depots, fleet, pdp, prizes, routes, vrp

RECTANGLE = np.array([[[0, 0], [3, 0], [3, 4], [0, 4]]], np.float32)
TWICE = RECTANGLE[:, [0, 0, 1, 2, 3]]
"""Two depots at one place, so the customers are 2, 3, 4."""
PAIRS = np.array([[[0, 0], [3, 0], [3, 4], [0, 4], [0, 8]]], np.float32)
LATE = [[[0, 20], [0, 12], [9, 10], [0, 16]]]


def one(**fields: object) -> dict[str, object]:
    rule = {"locs": RECTANGLE, "linehaul": [[0, 5, 5, 5]], "capacity": [[10]]}
    return {name: np.array(value) for name, value in (rule | fields).items()}


def two(**fields: object) -> dict[str, object]:
    return one(**({"locs": TWICE, "linehaul": [[0, 0, 5, 5, 5]], "capacity": [[10, 10]]} | fields))


def pairs(**fields: object) -> dict[str, object]:
    rule = {"locs": PAIRS, "demand": [[0, 2, 3, -2, -3]]}
    return {name: np.array(value) for name, value in (rule | fields).items()}


def reason(task, dataset, actions, **options):
    valid, (said,) = task.check(dataset, np.array([actions]), **options)
    assert valid.item() == (said is None)
    return said


# --- costs


def test_cost_of_one_depot():
    """Routes 1 2 and 3: 12 + 8; the last return may be left out, padding and empty routes cost nothing."""
    plans = np.array([[1, 2, 0, 3, 0, 0], [1, 2, 0, 0, 0, 3], [1, 2, 0, 3, 0, 0]])
    cost, parts, nothing = VRP.get_costs(one(), plans)
    assert cost.tolist() == [20, 20, 20] and nothing is None
    assert {name: part.tolist() for name, part in parts.items()} == {
        "length": [20] * 3,
        "cost": [20] * 3,
        "longest": [12] * 3,
        "trips": [2] * 3,
        "unserved": [0] * 3,
    }


def test_cost_of_open_routes():
    """The way home costs nothing: 3 + 4 and 4."""
    assert VRP.get_costs(one(open_route=[True]), np.array([[1, 2, 0, 3, 0]]))[0].item() == 11
    assert VRP.get_tour_length(one(open_route=[True]), np.array([[1, 2, 0, 3, 0]])).item() == 11


def test_cost_of_two_kinds_of_vehicle():
    """Customers 2, 3 by the first kind, 5 + 12, customer 4 by the second, 2 * 8; the vehicles go home to their own."""
    fleet_of_two = two(fixed_cost=[[5, 0]], distance_cost=[[1, 2]])
    cost, parts, _ = VRP.get_costs(fleet_of_two, np.array([[0, 2, 3, 1, 4, 1]]))
    assert (cost.item(), parts["length"].item()) == (33, 20)


def test_longest_route():
    """The vehicle with customers 1 and 2 drives 12, the other one 8."""
    assert VRP.get_costs(one(), np.array([[1, 2, 0, 3, 0]]), objective="max")[0].item() == 12


def test_a_vehicle_goes_home_to_its_own_depot():
    """From (3, 4) to (0, 0), whatever depot the next vehicle leaves: 3 + 4 + 5, then from (3, 5) to (0, 4) and back."""
    apart = two(locs=np.array([[[0, 0], [3, 5], [3, 0], [3, 4], [0, 4]]], np.float32))
    cost = VRP.get_costs(apart, np.array([[0, 2, 3, 1, 4, 1]]))[0].item()
    assert cost == pytest.approx(12 + 2 * 10**0.5)


def test_cost_of_an_unserved_customer():
    """A fleet of one leaves customer 3: its price is in the dataset or the call, without one there is no cost."""
    small = one(vehicles=[[1]], locs=RECTANGLE / 8)
    plan = np.array([[1, 2, 0]])
    assert VRP.get_costs(small, plan)[0].item() == 1.5 + 10
    assert VRP.get_costs(small, plan, unserved_cost=3.0)[0].item() == 4.5
    assert VRP.get_costs({**small, "unserved_cost": np.array([4.0])}, plan)[0].item() == 5.5
    with pytest.raises(ConfigError, match="`unserved_cost` is not given"):
        VRP.get_costs(one(vehicles=[[1]]), plan)


# --- rules


BROKEN = {
    "twice": (one(), [1, 2, 1, 0, 3, 0], {}, "customer 1 is served 2 times"),
    "missed": (one(), [1, 2, 0], {}, "customer 3 is not served"),
    "unknown": (one(), [1, 2, 0, 4, 0], {}, "node 4 does not exist, nodes are 0..3"),
    "load": (one(), [1, 2, 3, 0], {}, "route 1 to customer 1 leaves depot 0 with load 15, capacity 10"),
    "load on the way": (
        one(linehaul=[[0, 0, 5, 5]], backhaul=[[0, 5, 0, 0]], backhaul_class=[2]),
        [1, 2, 3, 0],
        {},
        "route 1 carries load 15 after customer 1, capacity 10",
    ),
    "order": (
        one(linehaul=[[0, 5, 5, 0]], backhaul=[[0, 0, 0, 5]]),
        [1, 0, 3, 2, 0],
        {},
        "linehaul at customer 2 after a backhaul on route 2",
    ),
    "begins": (
        one(linehaul=[[0, 5, 5, 0]], backhaul=[[0, 0, 0, 5]]),
        [3, 0, 1, 2, 0],
        {"backhaul_only": False},
        "route 1 picks up at customer 3 before it delivers, while a linehaul is unserved",
    ),
    "late": (
        one(time_windows=[[[0, 20], [0, 12], [9, 10], [0, 8]]], service_time=[[0, 1, 1, 1]], capacity=[[15]]),
        [1, 2, 3, 0],
        {},
        "late at customer 3 on route 1: arrives 13, closes 8",
    ),
    "late home": (
        one(time_windows=[[[0, 17], *LATE[0][1:]]], service_time=[[0, 1, 1, 1]], capacity=[[15]]),
        [1, 2, 3, 0],
        {},
        "late home on route 1 after customer 3: arrives 18, depot 0 closes 17",
    ),
    "distance": (
        one(distance_limit=[[11]]),
        [3, 0, 1, 2, 0],
        {},
        "route 2, whose last customer is 2, is 12 long, distance_limit 11",
    ),
    "duration": (
        one(time_windows=LATE, service_time=[[0, 1, 1, 1]], capacity=[[15]], duration_limit=[[16]]),
        [1, 2, 3, 0],
        {},
        "route 1, whose last customer is 3, takes 17, duration_limit 16",
    ),
    "duration with waiting": (
        one(
            time_windows=[[[0, 20], [0, 3], [9, 10], [0, 16]]],
            service_time=[[0, 1, 1, 1]],
            capacity=[[15]],
            duration_limit=[[17]],
        ),
        [1, 2, 3, 0],
        {},
        "route 1, whose last customer is 3, takes 18, duration_limit 17",
    ),
    "permission": (two(serves=[[0, 0, 1, 2, 3]]), [1, 2, 0, 3, 0, 4, 0], {}, "depot 1 may not serve customer 2"),
    "fleet": (two(vehicles=[[1, 1]]), [0, 2, 0, 3, 1, 4, 1], {}, "depot 0 sends 2 vehicles, it has 1"),
    "no depot": (two(), [2, 3, 0, 4, 0], {}, "the plan begins with customer 2, expected a depot"),
    "padding depot": (two(n_depots=[1]), [2, 3, 1, 4, 1], {}, "depot 1 does not exist, depots are 0..0"),
    "fleet is not at its end": (one(vehicles=[[2]]), [1, 2, 0], {}, "customer 3 is not served"),
    "delivery first": (pairs(), [3, 1, 2, 4, 0], {}, "delivery 3 comes before its pickup 1 on route 1"),
    "delivery elsewhere": (
        pairs(),
        [1, 2, 4, 0, 3, 0],
        {},
        "route 2 brings delivery 3, whose pickup 1 it does not serve",
    ),
    "goods aboard": (pairs(), [1, 2, 4, 0], {}, "route 1 goes home with the goods of pickup 1, whose delivery is 3"),
    "load of pairs": (
        pairs(capacity=[[3]]),
        [1, 2, 3, 4, 0],
        {},
        "route 1 carries load 5 after customer 2, capacity 3",
    ),
    "missed pair": (pairs(), [1, 3, 0], {}, "customer 2 is not served"),
    "split, full": (
        one(linehaul=[[0, 12, 3, 3]], capacity=[[9]]),
        [1, 2, 0, 1, 3, 2, 0],
        {"split": True},
        "route 1 has delivered its load of 9 before customer 2",
    ),
    "split, twice": (
        one(linehaul=[[0, 12, 3, 3]], capacity=[[9]]),
        [1, 0, 1, 2, 3, 0, 1, 0],
        {"split": True},
        "customer 1 is visited again after it was served",
    ),
    "split, rest": (
        one(linehaul=[[0, 12, 3, 3]], capacity=[[9]]),
        [1, 0, 2, 3, 0],
        {"split": True},
        "customer 1 is not served",
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_broken_rule(rule):
    """The first reason, with the route, the node and the numbers."""
    dataset, actions, options, expected = BROKEN[rule]
    assert reason(PDP if "demand" in dataset else VRP, dataset, actions, **options) == expected


KEPT = {
    "class 2": (one(linehaul=[[0, 5, 5, 0]], backhaul=[[0, 0, 0, 5]], backhaul_class=[2]), [1, 0, 3, 2, 0], {}),
    "begins after all linehauls": (
        one(linehaul=[[0, 5, 5, 0]], backhaul=[[0, 0, 0, 5]]),
        [1, 2, 0, 3, 0],
        {"backhaul_only": False},
    ),
    "open, after the depot has closed": (
        one(time_windows=[[[0, 10], *LATE[0][1:]]], service_time=[[0, 1, 1, 1]], capacity=[[15]], open_route=[True]),
        [1, 2, 3, 0],
        {},
    ),
    "exact distance": (one(distance_limit=[[12]]), [3, 0, 1, 2, 0], {}),
    "least duration": (
        one(time_windows=LATE, service_time=[[0, 1, 1, 1]], capacity=[[15]], duration_limit=[[17]]),
        [1, 2, 3, 0],
        {},
    ),
    "one of two depots": (two(n_depots=[1]), [2, 3, 0, 4, 0], {}),
    "limit of the call": (one(), [1, 2, 3, 0], {"capacity": 15}),
    "split": (one(linehaul=[[0, 12, 3, 3]], capacity=[[9]]), [1, 0, 1, 2, 3, 0], {"split": True}),
    "split, fleet at its end": (
        one(linehaul=[[0, 12, 3, 3]], capacity=[[9]], vehicles=[[1]]),
        [1, 0],
        {"split": True},
    ),
    "fleet at its end": (one(vehicles=[[1]]), [1, 2, 0], {}),
    "fleet of the right depot at its end": (two(vehicles=[[1, 1]], serves=[[0, 0, 1, 1, 1]]), [0, 2, 3, 0], {}),
    "backhaul behind an unserved linehaul": (
        two(linehaul=[[0, 0, 5, 5, 0]], backhaul=[[0, 0, 0, 0, 5]], vehicles=[[1, 1]], serves=[[0, 0, 1, 1, 2]]),
        [0, 2, 0],
        {"backhaul_only": False},
    ),
}


@pytest.mark.parametrize("rule", KEPT)
def test_kept_rule(rule):
    """Plans at the edge of a rule are valid."""
    dataset, actions, options = KEPT[rule]
    assert reason(VRP, dataset, actions, **options) is None


@pytest.mark.parametrize(("limit", "expected"), [(8.9, "takes 9, duration_limit 8.9"), (9, None)])
def test_waiting_counts_in_the_duration(limit, expected):
    """Depot 0 lets vehicles leave until 3: at 6 one is at (3, 0), which opens at 12. The other route takes 5 + 3."""
    windows = [[[0, 3], [12, 12], [0, 99], [0, 99]]]
    late = one(time_windows=windows, open_route=[True], duration_limit=[[limit]])
    said = reason(VRP, late, [2, 3, 0, 1, 0])
    assert said == (expected and f"route 2, whose last customer is 1, {expected}")


def test_rows_of_one_instance():
    """Several plans of an instance, several instances, and rows that share instances."""
    plans = np.array([[1, 2, 0, 3, 0], [1, 2, 3, 0, 0]])
    assert VRP.check(one(), plans)[0].tolist() == [True, False]
    both = {name: np.concatenate([value, value]) for name, value in one().items()} | {
        "capacity": np.array([[10], [15]])
    }
    assert VRP.check(both, plans)[0].tolist() == [True, True]
    assert VRP.check({**both, "instance_row": np.array([1, 0])}, plans)[0].tolist() == [True, False]


def test_padding_needs_no_service():
    """Row 1 has two customers."""
    sizes = {**{name: np.repeat(value, 2, axis=0) for name, value in one().items()}, "n_nodes": np.array([4, 3])}
    assert VRP.check(sizes, np.array([[1, 2, 0, 3], [1, 2, 0, 0]]))[0].tolist() == [True, True]
    assert VRP.check(sizes, np.array([[1, 2, 0, 0], [1, 2, 0, 3]]))[1] == [
        "customer 3 is not served",
        "node 3 does not exist, nodes are 0..2",
    ]


def test_layout_with_depots_apart():
    """Fields of customers only, with one depot and with two."""
    single = {"depot": RECTANGLE[:, 0], "locs": RECTANGLE[:, 1:], "linehaul": [[5, 5, 5]], "capacity": [10]}
    assert VRP.get_costs(single, np.array([[1, 2, 0, 3]]))[0].item() == 20
    double = {
        "depot": TWICE[:, :2],
        "locs": TWICE[:, 2:],
        "linehaul": [[5, 5, 5]],
        "capacity": [[10, 10]],
        "time_windows": [[[0, 3], [0, 9], [0, 9]]],
    }
    assert VRP.get_costs(double, np.array([[0, 2, 3, 1, 4, 1]]))[0].item() == 20


def test_a_customer_served_in_part_is_unserved():
    """The only vehicle brings 9 of 12 units: three customers are left."""
    small = one(linehaul=[[0, 12, 3, 3]], capacity=[[9]], vehicles=[[1]])
    cost, parts, _ = VRP.get_costs(small, np.array([[1, 0]]), split=True, unserved_cost=1.0)
    assert (cost.item(), parts["unserved"].item()) == (6 + 3, 3)


def test_routes_and_plans():
    """A plan of routes, and the routes of a plan; with several depots the first entry is a depot."""
    routes = [(0, [2, 3]), (1, [4])]
    assert VRP.from_routes(two(), routes).tolist() == [[0, 2, 3, 1, 4, 1]]
    assert VRP.to_routes(two(), np.array([[0, 2, 3, 1, 4, 1, 0, 0]])) == [routes]
    assert VRP.from_routes(one(), [(0, [1, 2]), (0, []), (0, [3])]).tolist() == [[1, 2, 0, 3, 0]]
    assert VRP.to_routes(one(), np.array([[1, 2, 0, 3], [3, 0, 0, 0]])) == [[(0, [1, 2]), (0, [3])], [(0, [3])]]
    assert VRP.from_routes(one(), []).shape == (1, 0)


def test_valid_tours():
    """Depots recur, customers only where deliveries are split."""
    assert VRP.validate_tours(np.array([[1, 2, 0, 3, 0]]))
    assert VRP.validate_tours(np.array([[1, 2, 3, 1, 4, 1]]), num_depots=2)
    assert not VRP.validate_tours(np.array([[1, 2, 0, 2]]))
    assert VRP.validate_tours(np.array([[1, 2, 0, 2]]), split=True)
    assert not VRP.validate_tours(np.array([[1, -2, 0, 2]]), split=True)


# --- bad input


BAD = {
    "class": (VRP, one(backhaul_class=[3]), BadInstance, "backhaul_class is 3, must be 1 or 2"),
    "both": (VRP, one(backhaul=[[0, 1, 0, 0]]), BadInstance, "customer 1 has linehaul and backhaul"),
    "depot": (VRP, one(linehaul=[[1, 5, 5, 5]]), BadInstance, r"linehaul\[0\] is 1.0, must be 0 at a depot"),
    "negative": (VRP, one(linehaul=[[0, 5, -5, 5]]), BadInstance, re.escape("linehaul[2] is -5, must be >= 0")),
    "limit": (VRP, one(distance_limit=[[np.nan]]), BadInstance, "distance_limit"),
    "depots": (VRP, two(n_depots=[3]), BadInstance, "n_depots is 3, allowed are 1..2"),
    "widths": (VRP, one(vehicles=[[1, 1]], capacity=[[1, 1, 1]]), ShapeError, "vehicles is for 2 depots"),
    "speed": (VRP, one(speed=[0.0]), BadInstance, "speed is 0, must be > 0"),
    "windows": (VRP, one(time_windows=[[[0, 9], [5, 4], [0, 9], [0, 9]]]), BadInstance, "must not close before"),
    "pairs": (
        PDP,
        pairs(demand=[[0, 2, 3, -2, -2]]),
        BadInstance,
        "demand of pickup 2 and of its delivery is 3 and -2",
    ),
    "odd": (PDP, {"locs": RECTANGLE}, BadInstance, "3 customers are no pairs"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_instance(what):
    """Errors name the field, the value and the rule."""
    task, dataset, error, message = BAD[what]
    with pytest.raises(error, match=message):
        task.check(dataset, np.array([[1, 2, 0]]))


def test_split_has_no_backhaul():
    """And unknown options of a call are refused by name."""
    with pytest.raises(BadInstance, match="split deliveries and backhaul exclude"):
        VRP.check(one(backhaul=[[0, 1, 0, 0]], linehaul=[[0, 0, 5, 5]]), np.array([[1, 2, 0]]), split=True)
    with pytest.raises(ConfigError, match="did you mean"):
        VRP.check(one(), np.array([[1, 2, 0]]), backhaul_onl=True)
    with pytest.raises(BadSolution, match="row 0: customer 3 is not served"):
        VRP.get_costs(one(), np.array([[1, 2, 0]]))


@pytest.mark.parametrize("module", [depots, routes, fleet, vrp, pdp, prizes])
def test_checkers_import_no_world(module):
    """Only errors, checkers and numpy."""
    imported = re.findall(r"^from (\S+) import", inspect.getsource(sys.modules[module.__name__]), re.MULTILINE)
    own = {name for name in imported if name.startswith("milkrun")}
    assert own <= {"milkrun.core.errors"} | {name for name in own if name.startswith("milkrun.routing.tasks.")}
