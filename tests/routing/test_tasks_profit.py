"""The checkers of VRPP and CVRPP: tours by hand, every rule broken once, and all plans of small instances."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milkrun.core.errors import BadInstance, BadSolution, ConfigError, ShapeError
from milkrun.routing.tasks import CVRPP, VRPP, BaseProblem, default_weights
from milkrun.routing.tasks.distances import distance_matrix
from tests.routing.pencil import Case, tours

# a depot and three customers on a 3 x 4 rectangle, diagonals of 5; prizes 10, 10, 1
RECTANGLE = np.array([[[0, 0], [3, 0], [3, 4], [0, 4]]], np.float32)
LENGTH = {"length": 1.0}


def profit(**fields: object) -> dict[str, object]:
    return {"locs": RECTANGLE, "prize": np.array([[0, 10, 10, 1]]), "capacity": np.array([15.0]), **fields}


def words(n: int, width: int) -> np.ndarray:
    return np.array(list(product(range(n + 1), repeat=width)))


# --- costs


def test_prizes_and_length():
    """0 1 2 0 collects 20 on a length of 12; all three 21 on 14; the empty tour 0 on 0."""
    cost, parts, nothing = VRPP.get_costs(profit(), np.array([[1, 2, 0], [1, 2, 3], [0, 0, 0]]), LENGTH)
    assert cost.tolist() == [-8.0, -7.0, 0.0]
    assert parts["profit"].tolist() == [20.0, 21.0, 0.0]
    assert parts["length"].tolist() == [12.0, 14.0, 0.0]
    assert (list(parts), nothing) == (["profit", "length"], None)


def test_seed_example():
    """A published call: a length weight of 0.1 on the generator's layout, where `demand` is the prize."""
    dataset = {
        "depot": RECTANGLE[:, 0],
        "locs": RECTANGLE[:, 1:],
        "demand": np.array([[10, 10, 1]]),
        "capacity": np.array([[np.inf]]),
    }
    cost, parts, none = VRPP.get_costs(dataset, np.array([[1, 2, 0]]), {"length": 0.1})
    assert cost.item() == pytest.approx(-(20 - 1.2))
    assert (parts["profit"].item(), parts["length"].item(), none) == (20.0, 12.0, None)
    assert BaseProblem.validate_tours(np.array([[1, 2, 0]]))
    assert BaseProblem.get_tour_length(dataset, np.array([[1, 2, 0]]), dist_matrix=None).item() == 12.0


def test_missing_weights_are_the_defaults():
    """Three customers: VRPP weighs length 60 sqrt(3), CVRPP 40 sqrt(3), both a prize 1; a prize weight counts alone."""
    pi, small = np.array([[1, 0]]), profit(locs=RECTANGLE / 4)
    assert VRPP.get_costs(small, pi)[0].item() == pytest.approx(60 * 3**0.5 * 1.5 - 10)
    assert CVRPP.get_costs(small, pi)[0].item() == pytest.approx(40 * 3**0.5 * 1.5 - 10)
    assert VRPP.get_costs(profit(), pi, {"length": 1, "prize": 2})[0].item() == 6 - 20


@pytest.mark.parametrize(
    "dataset",
    [
        profit(),
        {**profit(), "dist": distance_matrix(RECTANGLE)},
        {**profit(locs=RECTANGLE / 4), "metric": "trunc1"},
        {**profit(locs=RECTANGLE / 4), "metric": "haversine"},
    ],
)
def test_lengths_in_another_unit_have_no_default_weight(dataset):
    """Distances of 3 and 4, tenths, kilometres: the default is the price of the unit square's side."""
    metric = dataset.pop("metric", None)
    with pytest.raises(ConfigError, match=r"weight .length. is not given, and its default is for places in"):
        VRPP.get_costs(dataset, [[1, 0]], {"prize": 1}, metric=metric)
    VRPP.get_costs(dataset, [[1, 0]], {"length": 1}, metric=metric)


def test_default_weights():
    """The auto rules at n = 25, where the root is 5, in a box of side 2, bins of 100."""
    assert default_weights("VRPP", 25) == {"prize": 1.0, "length": 300.0}
    assert default_weights("cvrpp", 25, side=2.0) == {"prize": 1.0, "length": 100.0}
    assert default_weights("WCVRP", 25) == {"waste": 1.0, "length": 3.0, "overflow": 10.0}
    assert default_weights("wcvrp", 25, 2.0, 100.0) == {"waste": 1.0, "length": 150.0, "overflow": 1000.0}
    assert default_weights("CWCVRP", 25) == {"waste": 1.0, "length": 2.75, "overflow": 10.0}
    assert default_weights("SCWCVRP", 25) == {"waste": 1.0, "length": 2.75, "overflow": 10.0, "failure": 1.0}
    assert default_weights("SDWCVRP", 25)["lost"] == 0.0
    assert default_weights("tsp", 25) == default_weights("CVRP", 25) == {"length": 1.0}
    with pytest.raises(ConfigError, match="problem 'vrppp' is unknown; did you mean"):
        default_weights("vrppp", 25)


# --- validity


@pytest.mark.parametrize(
    ("pi", "reason"),
    [
        ([1, 2, 3, 0], None),
        ([1, 2, 3], None),
        ([0, 0, 0, 0], None),
        ([1, 2, 1, 0], "customer 1 is visited twice"),
        ([1, 0, 2, 0], "customer 2 follows the end of the tour"),
        ([0, 1, 2, 0], "customer 1 follows the end of the tour"),
        ([1, 4, 0, 0], "node 4 does not exist, nodes are 0..3"),
    ],
)
def test_single_trip(pi, reason):
    """The first return ends the tour, also one before the first customer."""
    assert VRPP.check(profit(), np.array([pi]))[1] == [reason]


@pytest.mark.parametrize(
    ("pi", "reason"),
    [
        ([1, 0, 2, 0, 3, 0], None),
        ([1, 0, 2, 3], None),
        ([1, 0, 0, 2], "customer 2 follows the end of the tour"),
        ([0, 1, 2, 0], "customer 1 follows the end of the tour"),
        ([1, 0, 2, 0, 1], "customer 1 is visited twice"),
    ],
)
def test_many_trips(pi, reason):
    """With several trips the depot at the depot ends the tour."""
    assert VRPP.check(profit(), np.array([pi]), trips="multi")[1] == [reason]


def test_capacity_bounds_each_trip():
    """Without weights the prizes are the weights: 20 do not fit 15, but one by one they do; of weight 1 each, two fit
    2."""
    assert CVRPP.check(profit(), [[1, 2]])[1] == ["trip 1 carries 20, capacity 15"]
    assert CVRPP.check(profit(), [[1, 3, 0, 2]], trips="multi")[1] == [None]
    assert CVRPP.check(profit(), [[3, 0, 1, 2]], trips="multi")[1] == ["trip 2 carries 20, capacity 15"]
    light = profit(weight=np.array([[0, 1, 1, 1]]), capacity=None, vehicle_cap=np.array([[2.0]]))
    assert CVRPP.check(light, [[1, 2, 0], [1, 2, 3]])[1] == [None, "trip 1 carries 3, capacity 2"]
    assert CVRPP.check(light, [[1, 2, 3]], capacity=3)[1] == [None]
    assert VRPP.check(profit(), [[1, 2, 3]])[1] == [None]


def test_error_names_row_trip_load_and_capacity():
    """Raised for the first invalid row, or a cost of inf."""
    sentence = re.escape("row 1: trip 1 carries 20, capacity 15")
    with pytest.raises(BadSolution, match=f"^{sentence}$"):
        CVRPP.get_costs(profit(), [[1, 3], [1, 2]], LENGTH)
    cost, parts, _ = CVRPP.get_costs(profit(), [[1, 3], [1, 2]], LENGTH, on_violation="inf")
    assert cost.tolist() == [12 - 11, np.inf]
    assert (parts["profit"].tolist(), parts["length"].tolist()) == ([11.0, 10.0], [12.0, 3.0])


def test_max_length_bounds_each_trip():
    """0 1 2 0 is 12, which fits 12 but not 11.9; in two trips it is 6 and 10."""
    assert VRPP.check(profit(max_length=np.array([12.0])), [[1, 2]])[1] == [None]
    assert VRPP.check(profit(), [[1, 2]], max_length=11.9)[1] == ["trip 1 is 12 long, max_length 11.9"]
    assert VRPP.check(profit(), [[1, 0, 2]], max_length=10, trips="multi")[1] == [None]
    assert VRPP.check(profit(), [[1, 0, 2]], max_length=9, trips="multi")[1] == ["trip 2 is 10 long, max_length 9"]


# --- must-go


def test_must_go_customer_must_be_visited():
    """Customer 3 is mandatory: a tour without it is invalid."""
    data = profit(must_go=np.array([[False, False, False, True]]))
    left = "must-go customer 3 is left out, though it could be served"
    assert VRPP.check(data, [[0, 0, 0], [1, 2, 0], [3, 0, 0], [1, 3, 0]])[1] == [left, left, None, None]
    assert VRPP.check(data, [[1, 0, 2], [1, 0, 3]], trips="multi")[1] == [left, None]


def test_must_go_out_of_reach_may_be_skipped():
    """From 2 (7 driven) on to 3 and home is 7 + 3 + 4 = 14: with limit 13 the truck may go home after 1 and 2.

    From 1 it is 3 + 5 + 4 = 12, so it may not; with several trips a new trip takes 8.
    """
    data = profit(must_go=np.array([[0, 0, 0, 1]]), max_length=np.array([13.0]))
    left = "must-go customer 3 is left out, though it could be served"
    assert VRPP.check(data, [[1, 2, 0], [1, 0, 0]])[1] == [None, left]
    assert VRPP.check(data, [[1, 2, 0, 0]], trips="multi")[1] == [left]
    assert VRPP.check(data, [[1, 2, 0]], max_length=7.9)[1] == ["trip 1 is 12 long, max_length 7.9"]
    assert VRPP.check(data, [[1, 0, 0, 0]], max_length=7.9, trips="multi")[1] == [None]


def test_optional_customer_leaves_capacity_for_must_go():
    """Of 15, customer 2 needs 10: after 1, another 10, it does not fit; after 3, of 1, it does.

    Without reserve, 1 may be served first, and then 2, which no longer fits, may be skipped.
    """
    data = profit(must_go=np.array([[0, 0, 1, 0]]))
    crowded = "with optional customer 1 trip 1 carries 10, capacity 15, and the must-go customers still to come need 10"
    assert CVRPP.check(data, [[1, 0], [3, 2], [2, 3]])[1] == [crowded, None, None]
    assert CVRPP.check(data, [[1, 0]], must_go_reserve=False)[1] == [None]
    assert CVRPP.check(data, [[1, 0, 2]], trips="multi")[1] == [None]


def test_no_capacity_is_reserved_for_customers_out_of_reach():
    """Customer 2 is 10 there and back: with max_length 9 it does not prevent the end."""
    data = profit(must_go=np.array([[0, 0, 1, 0]]), max_length=np.array([9.0]))
    assert CVRPP.check(data, [[1, 0]])[1] == [None]


# --- windows


def windows(**fields: object) -> dict[str, object]:
    """Customer 1 opens at 5, customer 2 closes at 10, the depot at 20; a service takes 1."""
    spans = np.array([[[0, 20], [5, 9], [0, 10], [0, 99]]], float)
    return profit(time_windows=spans, service_time=np.array([[0, 1, 1, 1]]), **fields)


def test_waiting_and_lateness():
    """At 1 the truck waits from 3 to 5, leaves at 6 and is at 2 at 10, exactly in time; it leaves at 11 and is home at
    16.

    0 2 1: at 2 from 5 to 6, at 1 by 10, closed since 9. 0 1 2 3: at 3 by 14, leaves at 15, is home by 19.
    """
    late = "customer 1 is reached at 10, closed since 9"
    assert VRPP.check(windows(), [[1, 2, 0], [2, 1, 0], [1, 2, 3]])[1] == [None, late, None]
    assert VRPP.get_costs(windows(), [[1, 2, 0]], LENGTH)[0].item() == -8.0


def test_depot_closes():
    """0 1 2 3 is home at 19, too late for 18; each trip starts at 0, so 3 alone, home at 9, is in time."""
    spans = np.array([[[0, 18], [5, 9], [0, 10], [0, 99]]], float)
    data = windows() | {"time_windows": spans}
    assert VRPP.check(data, [[1, 2, 3]])[1] == ["the depot is reached at 19, closed since 18"]
    assert VRPP.check(data, [[1, 2, 0, 3]], trips="multi")[1] == [None]


def test_speed():
    """At half the speed 2 is reached at 10 directly, at 3/.5 + 1 + 4/.5 = 15 after 1."""
    data = windows(speed=np.array([0.5]))
    assert VRPP.check(data, [[2, 0], [1, 2]])[1] == [
        "the depot is reached at 21, closed since 20",
        "customer 2 is reached at 15, closed since 10",
    ]


def test_start_and_end_time_are_windows():
    """The published names, for customers only: a depot without a window never closes."""
    data = profit(
        start_time=np.array([[5, 0, 0]]), end_time=np.array([[9, 10, 99]]), service_time=np.array([[1, 1, 1]])
    )
    late = "customer 1 is reached at 10, closed since 9"
    assert CVRPP.check(data, [[2, 1, 0], [1, 2, 3]], capacity=30)[1] == [late, None]
    both = profit(time_windows=np.array([[[5, 9], [0, 10], [0, 99]]]), service_time=np.array([[1, 1, 1]]))
    assert CVRPP.check(both, [[2, 1, 0], [1, 2, 3]], capacity=30)[1] == [late, None]


def test_closed_must_go_customer_may_be_skipped():
    """After 2 it is too late for 1, before it is not; a mandatory 1 must also respect the depot's closing time."""
    data = windows(must_go=np.array([[0, 1, 0, 0]]))
    left = "must-go customer 1 is left out, though it could be served"
    assert VRPP.check(data, [[2, 0], [0, 0]])[1] == [None, left]
    spans = np.array([[[0, 8.9], [5, 9], [0, 10], [0, 99]]])  # home from 1 at 5 + 1 + 3
    assert VRPP.check(data | {"time_windows": spans}, [[0, 0]])[1] == [None]


# --- refusals


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (profit(prize=np.array([[0, 1, -1, 1]])), BadInstance, "prize.2. is -1.0"),
        (profit(prize=None), ShapeError, "lacks `prize`"),
        (profit(capacity=None), BadInstance, "row 0: capacity is missing or NaN, must be > 0"),
        (profit(capacity=np.array([0.0])), BadInstance, "row 0: capacity is 0, must be > 0"),
        (profit(time_windows=np.array([[[0, 9], [5, 4], [0, 1], [0, 1]]])), BadInstance, "close before it opens"),
        (profit(time_windows=np.zeros((1, 2, 2))), ShapeError, "start_time has shape"),
        (windows(speed=np.array([0.0])), BadInstance, "speed is 0, must be > 0"),
        (profit(must_go=np.array([[1, 0, 0, 0]])), BadInstance, "must_go.0. is 1.0, must be 0 at the depot"),
    ],
)
def test_bad_dataset_is_refused(data, error, match):
    """The error names the field."""
    with pytest.raises(error, match=match):
        CVRPP.check(data, np.array([[1, 0]]))


def test_bad_mode_is_refused():
    """Unknown modes, and limits of other problems."""
    with pytest.raises(ConfigError, match="trips is 'two', allowed are 'single' and 'multi'"):
        VRPP.check(profit(), [[1]], trips="two")
    with pytest.raises(ConfigError, match="VRPP has no limit 'trip'; did you mean 'trips'"):
        VRPP.check(profit(), [[1]], trip="multi")
    with pytest.raises(ConfigError, match="VRPP has no limit 'capacity'"):
        VRPP.check(profit(), [[1]], capacity=3)


def test_padding_nodes_have_no_customer():
    """With n_nodes 3 customer 3 is padding: it may not be visited, and need not be though it is marked must-go."""
    data = profit(n_nodes=np.array([3]), must_go=np.array([[0, 0, 0, 1]]))
    assert VRPP.check(data, [[1, 2], [1, 3]])[1] == [None, "node 3 does not exist, nodes are 0..2"]


# --- all plans of small instances


@pytest.mark.parametrize(
    ("problem", "limits", "count", "best"),
    [
        (VRPP, {}, 16, 8),
        (VRPP, {"max_length": 12}, 10, 8),
        (CVRPP, {}, 8, 4),
    ],
)
def test_rectangle_by_hand(problem, limits, count, best):
    """By hand: the number of valid plans, and the best objective."""
    cost = problem.get_costs(profit(), words(3, 4), LENGTH, on_violation="inf", **limits)[0]
    assert (np.isfinite(cost).sum(), -cost.min()) == (count, best)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_valid_plans_are_those_of_the_pencil(data):
    """Of all words over the nodes the checker accepts those that can be built step by step, at the same cost."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), "seed"))
    single, reserve, timed, limited = (
        data.draw(st.booleans(), name) for name in "single reserve timed limited".split()
    )
    n = data.draw(st.integers(1, 3), "customers")
    locs = rng.random((n + 1, 2))
    d = distance_matrix(locs)
    prize, weight = np.r_[0, rng.integers(1, 100, n)], np.r_[0, rng.random(n)]
    must_go = np.r_[False, rng.random(n) < 0.4]
    capacity, max_length = rng.uniform(1, 2), (2 * d[0].max() * rng.uniform(0.7, 1.5) if limited else np.inf)
    opens = rng.uniform(0, 1, n + 1) * (np.arange(n + 1) > 0)
    spans = np.stack([opens, opens + rng.uniform(0, 1.5, n + 1)], axis=1)
    spans[0, 1] = rng.uniform(1, 3)
    speed = rng.uniform(0.8, 2)
    case = Case(
        *(d.tolist(), prize.tolist(), weight.tolist(), weight.tolist(), capacity, max_length),
        *(tuple(np.flatnonzero(must_go)), single, reserve),
        **({"windows": spans.tolist(), "service": 0.1, "speed": speed} if timed else {}),
    )
    dataset = {"locs": locs[None], "prize": prize[None], "weight": weight[None], "must_go": must_go[None]}
    if timed:
        dataset |= {"time_windows": spans[None], "service_time": np.full((1, n), 0.1), "speed": speed}
    every = words(n, 2 * n)
    modes = {"trips": "single" if single else "multi", "must_go_reserve": reserve}
    limits = {"capacity": capacity, "max_length": max_length, **modes}
    cost, parts, _ = CVRPP.get_costs(dataset, every, {"length": 3.0}, on_violation="inf", **limits)
    valid, reasons = CVRPP.check(dataset, every, **limits)
    assert (valid == np.isfinite(cost)).all()
    assert [reason is None for reason in reasons] == valid.tolist()
    built = {actions + (0,) * (2 * n - len(actions)): end for actions, end in tours(case)}
    assert set(map(tuple, every[valid].tolist())) == set(built)
    ends = [built[tuple(word)] for word in every[valid].tolist()]
    np.testing.assert_allclose(parts["profit"][valid], [end.collected for end in ends])
    np.testing.assert_allclose(parts["length"][valid], [end.length for end in ends], rtol=1e-12)
    np.testing.assert_allclose(cost[valid], [3.0 * end.length - end.collected for end in ends], rtol=1e-9, atol=1e-9)
