"""The checkers of WCVRP and CWCVRP: collections by hand, every rule broken once, all plans of small instances."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milkrun.core.errors import BadInstance, BadSolution
from milkrun.routing.tasks import CWCVRP, WCVRP
from milkrun.routing.tasks.distances import distance_matrix
from tests.routing.pencil import Case, tours

# the 3 x 4 rectangle with bins of .5, 1 (full) and .3
RECTANGLE = np.array([[[0, 0], [3, 0], [3, 4], [0, 4]]], np.float32)
WEIGHTS = {"waste": 10.0, "length": 1.0, "overflow": 10.0}
LEFT_3 = "must-go customer 3 is left out, though it could be served"


def bins(**fields: object) -> dict[str, object]:
    return {"locs": RECTANGLE, "waste": np.array([[0, 0.5, 1, 0.3]]), "capacity": np.array([1.6]), **fields}


def words(n: int, width: int) -> np.ndarray:
    return np.array(list(product(range(n + 1), repeat=width)))


# --- costs


def test_waste_length_and_overflow():
    """0 1 2 0 collects 1.5 on 12; 0 1 0 collects .5 on 6 and skips the full bin, as does the empty tour."""
    cost, parts, nothing = WCVRP.get_costs(bins(), [[1, 2], [1, 0], [0, 0]], WEIGHTS)
    assert parts["overflows"].tolist() == [0, 1, 1]
    assert parts["waste"].tolist() == [1.5, 0.5, 0.0]
    assert parts["length"].tolist() == [12.0, 6.0, 0.0]
    assert cost.tolist() == [-3.0, 11.0, 10.0]
    assert (sorted(parts), nothing) == (["length", "overflows", "waste"], None)


def test_a_bin_is_full_within_a_millionth():
    """Of skipped bins of 100, those with 100 and 99.99995 overflow, that with 99.99 does not."""
    data = bins(waste=np.array([[0, 100, 99.99995, 99.99]]), max_waste=np.array([[100.0]]), capacity=200)
    assert WCVRP.get_costs(data, [[0]], WEIGHTS)[1]["overflows"].tolist() == [2]


def test_missing_weights_scale_with_the_bins():
    """Three bins: length .6 sqrt(3) and overflow 10, times max_waste; CWCVRP .55. Rows may have different bins."""
    small = bins(locs=RECTANGLE / 4)
    assert WCVRP.get_costs(small, [[1]])[0].item() == pytest.approx(0.6 * 3**0.5 * 1.5 - 0.5 + 10)
    assert CWCVRP.get_costs(small, [[1]])[0].item() == pytest.approx(0.55 * 3**0.5 * 1.5 - 0.5 + 10)
    two = {
        "locs": np.repeat(RECTANGLE / 4, 2, axis=0),
        "waste": np.array([[0, 0.5, 1, 0.3], [0, 50, 100, 30]]),
        "max_waste": np.array([1.0, 100.0]),
        "capacity": np.array([1.6, 160.0]),
    }
    cost = WCVRP.get_costs(two, [[1], [1]])[0]
    assert cost[1] == pytest.approx(100 * cost[0])


def test_demand_and_vehicle_cap_are_other_names():
    """The published layout with a separate depot gives the same cost."""
    seed = {
        "depot": RECTANGLE[:, 0],
        "locs": RECTANGLE[:, 1:],
        "demand": np.array([[0.5, 1, 0.3]]),
        "vehicle_cap": np.array([[1.6]]),
    }
    assert WCVRP.get_costs(seed, [[1, 2]], WEIGHTS)[0].tolist() == [-3.0]


def test_torch_in_torch_out():
    """Tensors and TensorDicts give tensors with numpy's values."""
    torch = pytest.importorskip("torch")
    tensordict = pytest.importorskip("tensordict")
    fields = {key: torch.as_tensor(np.asarray(value)) for key, value in bins().items()}
    pi = torch.tensor([[1, 2, 0]])
    for dataset in (fields, tensordict.TensorDict(fields, batch_size=[1])):
        cost, parts, _ = WCVRP.get_costs(dataset, pi, WEIGHTS)
        assert (cost.dtype, cost.tolist()) == (torch.float64, [-3.0])
        assert all(isinstance(amount, torch.Tensor) for amount in parts.values())
        assert WCVRP.check(dataset, pi)[0].tolist() == [True]


# --- validity


def test_single_and_many_trips():
    """WCVRP ends at the first return, CWCVRP continues; an option switches between the two."""
    ended = "customer 2 follows the end of the tour"
    assert WCVRP.check(bins(), [[1, 0, 2]])[1] == [ended]
    assert CWCVRP.check(bins(), [[1, 0, 2], [1, 0, 0]])[1] == [None, None]
    assert CWCVRP.check(bins(), [[1, 0, 0, 2]])[1] == [ended]
    assert WCVRP.check(bins(), [[1, 0, 2]], trips="multi")[1] == [None]
    assert CWCVRP.check(bins(), [[1, 0, 2]], trips="single")[1] == [ended]


def test_error_names_row_trip_load_and_capacity():
    """All three bins, 1.8, do not fit a truck of 1.6; the two full trips of the other row do."""
    sentence = re.escape("row 1: trip 2 carries 1.8, capacity 1.6")
    with pytest.raises(BadSolution, match=f"^{sentence}$"):
        CWCVRP.get_costs(bins(waste=np.array([[0, 0.8, 1, 0.6]])), [[1, 3, 0, 2], [3, 0, 1, 2]], WEIGHTS)
    assert WCVRP.get_costs(bins(), [[1, 2, 3]], WEIGHTS, on_violation="inf")[0].tolist() == [np.inf]


def test_many_trips_require_every_must_go_bin():
    """At the depot with an empty truck bin 3 is always feasible, so the tour may not end without it."""
    data = bins(must_go=np.array([[0, 0, 0, 1]]))
    assert CWCVRP.check(data, [[1, 2, 0, 0], [1, 2, 0, 3], [0, 0, 0, 0]])[1] == [LEFT_3, None, LEFT_3]


def test_single_trip_reserves_capacity_for_must_go():
    """Bin 3 needs .3 of 1.6: 1 (.5) leaves enough, 2 (1) also, both together (1.5) do not.

    Without reserve both may be served, and then bin 3 may be skipped; after only one it still fits and is required.
    """
    data = bins(must_go=np.array([[0, 0, 0, 1]]))
    crowded = (
        "with optional customer 2 trip 1 carries 1.5, capacity 1.6, and the must-go customers still to come need 0.3"
    )
    assert WCVRP.check(data, [[1, 2, 0], [1, 3, 0], [1, 0, 0]])[1] == [crowded, None, LEFT_3]
    assert WCVRP.check(data, [[1, 2, 0], [1, 0, 0]], must_go_reserve=False)[1] == [None, LEFT_3]


def test_reserved_capacity_shrinks_with_each_must_go_visit():
    """Bins 1 and 3 are mandatory: 2 fits neither with both, nor after one of them."""
    data = bins(must_go=np.array([[0, 1, 0, 1]]))
    need = "and the must-go customers still to come need"
    assert WCVRP.check(data, [[2, 0, 0], [1, 2, 0], [1, 3, 0]])[1] == [
        f"with optional customer 2 trip 1 carries 1, capacity 1.6, {need} 0.8",
        f"with optional customer 2 trip 1 carries 1.5, capacity 1.6, {need} 0.3",
        None,
    ]
    assert WCVRP.check(data, [[1, 3, 2]], capacity=1.8)[1] == [None]


def test_float32_sums_are_rounded_as_in_the_worlds():
    """2^24 + 1 is no float32: a running sum loses the first 1, so 2^24 + 1 + 1 fits 2^24 + 1.

    Given as float64, the same bins are one unit too heavy and the same trip one unit too long.
    """
    big = 2.0**24
    waste = np.array([[0, big, 1, 1]])
    dist = np.zeros((1, 4, 4))
    dist[0, 0, 1], dist[0, 1, 2], dist[0, 2, 3] = big, 1, 1
    heavy = {"locs": RECTANGLE, "max_waste": big, "capacity": big + 1}
    assert WCVRP.check({**heavy, "waste": waste.astype(np.float32)}, [[1, 2, 3]])[1] == [None]
    assert WCVRP.check({**heavy, "waste": waste}, [[1, 2, 3]])[1] == ["trip 1 carries 16777218, capacity 16777217"]
    far = {"waste": np.array([[0, 0.1, 0.1, 0.1]]), "capacity": 1, "max_length": big + 1}
    assert WCVRP.check({**far, "dist": dist.astype(np.float32)}, [[1, 2, 3]])[1] == [None]
    assert WCVRP.check({**far, "dist": dist}, [[1, 2, 3]])[1] == ["trip 1 is 16777218 long, max_length 16777217"]
    _, parts, _ = WCVRP.get_costs({**far, "dist": dist.astype(np.float32)}, [[1, 2, 3]], WEIGHTS)
    assert parts["length"].tolist() == [big + 2]
    dist[0, 2, 0] = 1  # the way home from 2 is added before rounding
    home = WCVRP.check({**far, "dist": dist.astype(np.float32)}, [[1, 2]])[1]
    assert home == ["trip 1 is 16777218 long, max_length 16777217"]


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (bins(waste=np.array([[0, 0.5, 1.01, 0.3]])), r"row 0: waste\[2\] is 1.01, must be <= max_waste 1"),
        (bins(max_waste=np.array([0.0])), "row 0: max_waste is 0, must be > 0"),
        (bins(waste=np.array([[0, np.nan, 1, 0.3]])), "waste.1. is nan"),
        (bins(capacity=None), "capacity is missing"),
    ],
)
def test_bad_dataset_is_refused(data, match):
    """The error names the field and the rule."""
    with pytest.raises(BadInstance, match=match):
        WCVRP.check(data, [[1]])


def test_padding_bins_do_not_overflow():
    """With n_nodes 2 the full bin 2 is padding."""
    assert WCVRP.get_costs(bins(n_nodes=np.array([2])), [[0]], WEIGHTS)[1]["overflows"].tolist() == [0]


def test_many_plans_on_one_instance():
    """`instance_row` selects the bins of a plan."""
    two = {
        "locs": np.repeat(RECTANGLE, 2, axis=0),
        "waste": np.array([[0, 0.5, 1, 0.3], [0, 0.1, 0.2, 0.3]]),
        "capacity": np.array([1.6, 0.3]),
        "must_go": np.array([[0, 0, 0, 0], [0, 0, 0, 1]]),
        "instance_row": np.array([1, 0, 1]),
    }
    _, parts, _ = WCVRP.get_costs(two, [[3, 0], [1, 2], [3, 0]], WEIGHTS)
    assert parts["waste"].tolist() == [0.3, 1.5, 0.3]
    assert WCVRP.check(two, [[0, 0], [3, 0], [3, 1]])[1] == [LEFT_3, None, "trip 1 carries 0.4, capacity 0.3"]


# --- all plans of small instances


@pytest.mark.parametrize(
    ("problem", "fields", "modes", "count", "best"),
    [
        (WCVRP, {}, {}, 10, 3),
        (WCVRP, {"must_go": np.array([[0, 0, 0, 1]])}, {}, 5, 1),
        (WCVRP, {"must_go": np.array([[0, 0, 0, 1]])}, {"must_go_reserve": False}, 7, 3),
        (CWCVRP, {"capacity": np.array([1.0])}, {}, 22, 0),
    ],
)
def test_rectangle_by_hand(problem, fields, modes, count, best):
    """By hand: the number of valid plans, and the best objective."""
    cost = problem.get_costs(bins(**fields), words(3, 6), WEIGHTS, on_violation="inf", **modes)[0]
    assert (np.isfinite(cost).sum(), -cost.min()) == (count, pytest.approx(best, abs=1e-12))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_valid_plans_are_those_of_the_pencil(data):
    """Of all words over the nodes the checker accepts those that can be built step by step, at the same cost."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), "seed"))
    single, reserve, limited = (data.draw(st.booleans(), name) for name in "single reserve limited".split())
    n = data.draw(st.integers(1, 3), "customers")
    locs = rng.random((n + 1, 2))
    d = distance_matrix(locs)
    waste = np.r_[0, np.minimum(1, rng.uniform(0, 1.4, n))]
    must_go = np.r_[False, rng.random(n) < 0.4]
    capacity, max_length = rng.uniform(1, 2), (2 * d[0].max() * rng.uniform(0.7, 1.5) if limited else np.inf)
    case = Case(
        *(d.tolist(), waste.tolist(), waste.tolist(), waste.tolist(), capacity, max_length),
        *(tuple(np.flatnonzero(must_go)), single, reserve),
    )
    every = words(n, 2 * n)
    dataset = {"locs": locs[None], "waste": waste[None], "must_go": must_go[None], "capacity": capacity}
    modes = {"trips": "single" if single else "multi", "must_go_reserve": reserve}
    cost, parts, _ = WCVRP.get_costs(dataset, every, WEIGHTS, on_violation="inf", max_length=max_length, **modes)
    valid = np.isfinite(cost)
    built = {actions + (0,) * (2 * n - len(actions)): end for actions, end in tours(case)}
    assert set(map(tuple, every[valid].tolist())) == set(built)
    for k in np.flatnonzero(valid):
        end = built[tuple(every[k].tolist())]
        overflows = sum(waste[j] == 1 and j not in end.visited for j in range(1, n + 1))
        assert parts["overflows"][k] == overflows
        assert cost[k] == pytest.approx(end.length + 10 * overflows - 10 * end.collected, abs=1e-9)
