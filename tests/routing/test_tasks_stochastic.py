"""The checkers of SCWCVRP and SDWCVRP: failures, recourse, nights, by hand and for all plans of small instances."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import milkrun
from milkrun.core.errors import BadInstance, BadSolution, ConfigError, ShapeError
from milkrun.core.instances import instances_of
from milkrun.routing.tasks import CWCVRP, SCWCVRP, SDWCVRP, BaseProblem
from milkrun.routing.tasks.distances import distance_matrix
from tests.routing.pencil import Case, tours

# the 3 x 4 rectangle; bin 2 holds .7, expected .5
RECTANGLE = np.array([[[0, 0], [3, 0], [3, 4], [0, 4]]], np.float32)
WEIGHTS = {"waste": 10.0, "length": 1.0, "overflow": 10.0, "failure": 2.0, "lost": 100.0}


def surprise(**fields: object) -> dict[str, object]:
    expected, real = np.array([[0, 0.5, 0.5, 0.3]]), np.array([[0, 0.5, 0.7, 0.3]])
    return {"locs": RECTANGLE, "expected0": expected, "real_waste": real, "capacity": np.array([1.0]), **fields}


def two_days(**fields: object) -> dict[str, object]:
    """Bins of .5, 1 and .3; the nights add .3 .2 .2 and .3 .3 .6."""
    fill = np.array([[[0, 0.3, 0.2, 0.2], [0, 0.3, 0.3, 0.6]]])
    first = np.array([[0, 0.5, 1, 0.3]])
    return {"locs": RECTANGLE, "initial_waste": first, "daily_fill": fill, "capacity": np.array([1.6]), **fields}


def words(n: int, width: int) -> np.ndarray:
    return np.array(list(product(range(n + 1), repeat=width)))


def pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Every plan of `first` on day 0 with every plan of `second` on day 1."""
    return np.stack([np.repeat(first, len(second), axis=0), np.tile(second, (len(first), 1))], axis=1)


# --- SCWCVRP


def test_failure_sends_the_truck_home():
    """By hand: rewards 2, -11, 2, 0, -4. Bin 2 fails after bin 1 and is collected on the next trip, with bin 3."""
    cost, parts, _ = SCWCVRP.get_costs(surprise(), [[1, 2, 2, 3, 0]], WEIGHTS)
    assert cost.item() == pytest.approx(-(2 - 11 + 2 + 0 - 4))
    assert parts["failures"].tolist() == [1]
    assert parts["waste"].item() == pytest.approx(1.5)
    assert parts["length"].tolist() == [3 + 4 + 5 + 5 + 3 + 4]
    assert parts["overflows"].tolist() == [0]
    assert SCWCVRP.expand(surprise(), [[1, 2, 2, 3, 0]]).tolist() == [[1, 2, 0, 2, 3, 0]]


def test_round_trip_returns_for_the_rest():
    """By hand: rewards 2, -9, 0, -4. Full at 2, the truck empties, returns, and has capacity for 3."""
    cost, parts, _ = SCWCVRP.get_costs(surprise(), [[1, 2, 3, 0]], WEIGHTS, recourse="round_trip")
    assert cost.item() == pytest.approx(-(2 - 9 + 0 - 4))
    assert (parts["failures"].tolist(), parts["length"].tolist()) == ([1], [3 + 4 + 5 + 5 + 3 + 4])
    driven = SCWCVRP.expand(surprise(), [[1, 2, 3, 0]], recourse="round_trip")
    assert driven.tolist() == [[1, 2, 0, 2, 3, 0]]
    assert BaseProblem.get_tour_length(surprise(), driven).tolist() == parts["length"].tolist()


def test_round_trip_continues_with_the_rest_of_the_bin():
    """After bin 1 (.5) and half of bin 2 the truck carries .2: bin 3 (.9) does not fit."""
    data = surprise(expected0=np.array([[0, 0.5, 0.5, 0.9]]), real_waste=np.array([[0, 0.5, 0.7, 0.9]]))
    assert SCWCVRP.check(data, [[1, 2, 3]], recourse="round_trip")[1] == ["trip 2 carries 1.1, capacity 1"]
    assert SCWCVRP.check(data, [[1, 2, 0, 3]], recourse="round_trip")[1] == [None]


@pytest.mark.parametrize(
    ("pi", "reason"),
    [
        ([1, 2, 0, 0, 0], None),
        ([1, 2, 3, 2, 0], None),
        ([1, 2, 3, 0, 2], None),
        ([1, 2, 0, 3, 0], "customer 3 follows the end of the tour"),
        ([1, 2, 2, 2, 0], "customer 2 is visited twice"),
        ([1, 1, 0, 0, 0], "customer 1 is visited twice"),
        ([1, 2, 2, 0, 1], "customer 1 is visited twice"),
        ([1, 3, 2, 0, 0], "trip 1 carries 1.3, capacity 1"),
    ],
)
def test_plan_after_a_failure(pi, reason):
    """2 after 1 fails and ends at the depot: 0 then ends the episode, a customer starts the next trip."""
    assert SCWCVRP.check(surprise(), np.array([pi]))[1] == [reason]


def test_failure_ends_a_single_trip():
    """No action may follow, and the must-go bin is no longer required; the round trip continues."""
    real = np.array([[0, 0.5, 1.0, 0.3]])
    data = surprise(must_go=np.array([[0, 0, 0, 1]]), capacity=np.array([1.4]), real_waste=real)
    ended = "customer 3 follows the end of the tour"
    left = "must-go customer 3 is left out, though it could be served"
    assert SCWCVRP.check(data, [[1, 2, 0], [1, 2, 3], [1, 0, 0]], trips="single")[1] == [None, ended, left]
    assert SCWCVRP.check(data, [[1, 2, 3]], trips="single", recourse="round_trip")[1] == [None]


def test_a_failed_customer_stays_revealed():
    """Bin 2 was expected to fit with bin 3 (.4) and .5, but holds .7. Once revealed, it may not be tried again."""
    real = np.array([[0, 0.5, 0.7, 0.4]])
    data = surprise(expected0=np.array([[0, 0.5, 0.5, 0.4]]), real_waste=real)
    assert SCWCVRP.check(data, [[3, 2, 2, 0]])[1] == [None]
    assert SCWCVRP.check(data, [[1, 2, 3, 2]])[1] == ["trip 2 carries 1.1, capacity 1"]


def test_overflow_depends_on_real_waste():
    """Bin 2 is full, for any expectation; failed and not served, it overflows."""
    data = surprise(real_waste=np.array([[0, 0.5, 1.0, 0.3]]))
    _, parts, _ = SCWCVRP.get_costs(data, [[1, 2, 0], [1, 2, 2]], WEIGHTS)
    assert parts["overflows"].tolist() == [1, 0]


def test_max_length_counts_the_forced_return():
    """1, 2 and the forced way home are 12, bin 3 is a trip of 8; after a round trip to 2, 5 + 3 + 4 is another 12."""
    assert SCWCVRP.check(surprise(), [[1, 2, 3]], max_length=12)[1] == [None]
    assert SCWCVRP.check(surprise(), [[1, 2, 3]], max_length=11)[1] == ["trip 1 is 12 long, max_length 11"]
    assert SCWCVRP.check(surprise(), [[3, 0, 1, 2]], max_length=11.9)[1] == ["trip 2 is 12 long, max_length 11.9"]
    assert SCWCVRP.check(surprise(), [[1, 2, 3]], max_length=12, recourse="round_trip")[1] == [None]
    far = surprise(locs=np.array([[[0, 0], [3, 0], [3, 4], [0, 9]]]))
    long = [f"trip 2 is {5 + 34**0.5 + 9:.10g} long, max_length 12"]
    assert SCWCVRP.check(far, [[1, 2, 3]], max_length=12, recourse="round_trip")[1] == long


def test_matrix_may_differ_by_direction():
    """Home from 2 is 10, back to it 100, immediately or on the next trip: 1 + 4 + 10 + 100 + 10."""
    d = np.zeros((1, 3, 3))
    d[0, 0, 1], d[0, 1, 2], d[0, 2, 0], d[0, 0, 2] = 1, 4, 10, 100
    d[0, 2, 1], d[0, 1, 0] = 50, 20
    data = {"dist": d, "expected0": np.array([[0.5, 0.5]]), "real_waste": np.array([[0.5, 0.7]]), "capacity": 1}
    free = {"length": 0}
    assert SCWCVRP.get_costs(data, [[1, 2]], free, recourse="round_trip")[1]["length"].item() == 1 + 4 + 10 + 100 + 10
    assert SCWCVRP.get_costs(data, [[1, 2, 2]], free)[1]["length"].item() == 1 + 4 + 10 + 100 + 10


@pytest.mark.parametrize("trips", ["single", "multi"])
@pytest.mark.parametrize("recourse", ["return", "round_trip"])
@pytest.mark.parametrize(("name", "task"), [("SCWCVRP", SCWCVRP), ("SDWCVRP", SDWCVRP)])
def test_the_route_of_a_picture_equals_that_of_the_checker(name, task, recourse, trips):
    """Ways home from bins that did not fit, and back again: random plays of 120 rows, on the last day if there are
    several. The checker computes the loads independently."""
    noise = {"sigma": 0.6} if name == "SCWCVRP" else {"horizon": 3, "sensor_sigma": 0.8, "daily_scale": 0.6}
    world = milkrun.make(
        f"milkrun/{name}-v0",
        120,
        seed=3,
        num_loc=8,
        capacity=1.0,
        recourse=recourse,
        trips=trips,
        autoreset="disabled",
        **noise,
    )
    world.reset()
    while not world.terminated.all():
        live = np.flatnonzero(~world.terminated)
        world.step(world.sample_actions()[live], rows=live)
    assert world.failures.sum() > 10
    driven = task.expand(instances_of(world), world.solution(), recourse=recourse, trips=trips)
    last = driven[:, -1] if name == "SDWCVRP" else driven

    def without_the_end(nodes):
        return " ".join(map(str, nodes)).rstrip(" 0")

    for row in range(120):
        assert without_the_end(world.driven(row)[1:]) == without_the_end(np.trim_zeros(last[row], "f").tolist())


def test_each_customer_may_recur_once():
    """A bin may fail once, so two visits are valid and three are not; in other problems two are invalid."""
    assert SCWCVRP.validate_tours(np.array([[1, 2, 2, 3, 0]]))
    assert not SCWCVRP.validate_tours(np.array([[2, 2, 2, 3, 0]]))
    assert not SCWCVRP.validate_tours(np.array([[1, -1]]))
    assert SDWCVRP.validate_tours(np.array([[[1, 2, 2], [2, 0, 0]]]))
    assert not CWCVRP.validate_tours(np.array([[1, 2, 2, 3, 0]]))


def test_generator_layout_and_hidden_fields():
    """Separate customers, `expected_waste` for `expected0`, hidden fields under `hidden`; also as tensors."""
    apart = {
        "depot": RECTANGLE[:, 0],
        "locs": RECTANGLE[:, 1:],
        "expected_waste": np.array([[0.5, 0.5, 0.3]]),
        "hidden": {"real_waste": np.array([[0.5, 0.7, 0.3]])},
        "vehicle_cap": np.array([[1.0]]),
    }
    assert SCWCVRP.get_costs(apart, [[1, 2, 2, 3, 0]], WEIGHTS)[0].item() == pytest.approx(11)
    torch = pytest.importorskip("torch")
    tensordict = pytest.importorskip("tensordict")
    hidden = tensordict.TensorDict({"real_waste": torch.tensor([[0.5, 0.7, 0.3]])}, batch_size=[1])
    fields = {key: torch.as_tensor(value) for key, value in apart.items() if key != "hidden"}
    td = tensordict.TensorDict({**fields, "hidden": hidden}, batch_size=[1])
    pi = torch.tensor([[1, 2, 2, 3, 0]])
    cost, parts, _ = SCWCVRP.get_costs(td, pi, WEIGHTS)
    assert cost.item() == pytest.approx(11, abs=1e-6)
    assert isinstance(parts["failures"], torch.Tensor)
    assert torch.equal(SCWCVRP.expand(td, pi), torch.tensor([[1, 2, 0, 2, 3, 0]]))


def test_a_plan_uses_the_initial_expectation():
    """A world's `expected_waste` changes as bins are revealed; a plan starts from its `expected0`."""
    data = surprise(expected_waste=np.array([[0, 0.5, 0.7, 0.3]]))
    assert SCWCVRP.get_costs(data, [[1, 2, 2, 3]], WEIGHTS)[1]["failures"].tolist() == [1]


@pytest.mark.parametrize("recourse", ["return", "round_trip"])
def test_rows_are_independent(recourse):
    """Four plans on two instances, three of which fail at different steps, have the same cost as alone."""
    rng = np.random.default_rng(3)
    locs = rng.random((2, 5, 2))
    expected, real = np.full((2, 4), 0.0), rng.uniform(0.6, 1, (2, 4))
    own = np.array([1, 0, 1, 0])
    pi = np.array([[1, 0, 2, 3], [4, 0, 0, 0], [2, 3, 0, 0], [1, 2, 3, 0]])
    both = {"locs": locs, "expected0": expected, "real_waste": real, "capacity": 1.0, "instance_row": own}
    cost, parts, _ = SCWCVRP.get_costs(both, pi, WEIGHTS, recourse=recourse)
    assert (parts["failures"] > 0).tolist() == [True, False, True, True]
    for b, q in enumerate(own):
        alone = {"locs": locs[[q]], "expected0": expected[[q]], "real_waste": real[[q]], "capacity": 1.0}
        single = SCWCVRP.get_costs(alone, pi[[b]], WEIGHTS, recourse=recourse)
        assert cost[b] == single[0].item()
        assert all(parts[name][b] == single[1][name].item() for name in parts)


def test_expand_pads_and_refuses():
    """Rows of different length are padded with 0; a plan that breaks a rule has no route."""
    assert SCWCVRP.expand(surprise(), [[1, 2, 2, 3], [3, 0, 0, 0], [0, 0, 0, 0]]).tolist() == [
        [1, 2, 0, 2, 3, 0],
        [3, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
    ]
    with pytest.raises(BadSolution, match=r"row 0: trip 1 carries 1\.3, capacity 1"):
        SCWCVRP.expand(surprise(), [[1, 3, 2, 0]])
    with pytest.raises(ConfigError, match="recourse is 'home', allowed are 'return' and 'round_trip'"):
        SCWCVRP.expand(surprise(), [[1]], recourse="home")


@pytest.mark.parametrize(("recourse", "count"), [("return", 37), ("round_trip", 32)])
def test_surprise_by_hand(recourse, count):
    """By hand: the number of valid plans; the best one is empty."""
    cost = SCWCVRP.get_costs(surprise(), words(3, 7), WEIGHTS, on_violation="inf", recourse=recourse)[0]
    assert (np.isfinite(cost).sum(), cost.min()) == (count, 0.0)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_valid_plans_are_those_of_the_pencil(data):
    """Of all words over the nodes the checker accepts those that can be built step by step, at the same cost."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), "seed"))
    names = "single reserve limited round_trip".split()
    single, reserve, limited, round_trip = (data.draw(st.booleans(), name) for name in names)
    n = data.draw(st.integers(1, 3), "customers")
    locs = rng.random((n + 1, 2))
    d = distance_matrix(locs)
    expected, real = (np.r_[0, np.minimum(1, rng.uniform(0, most, n))] for most in (0.7, 1.4))
    must_go = np.r_[False, rng.random(n) < 0.4]
    capacity, max_length = rng.uniform(1, 1.5), (2 * d[0].max() * rng.uniform(0.7, 1.5) if limited else np.inf)
    case = Case(
        *(d.tolist(), real.tolist(), real.tolist(), expected.tolist(), capacity, max_length),
        *(tuple(np.flatnonzero(must_go)), single, reserve, round_trip),
    )
    width = 2 * n
    dataset = {"locs": locs[None], "expected0": expected[None], "real_waste": real[None], "must_go": must_go[None]}
    modes = {"trips": "single" if single else "multi", "must_go_reserve": reserve}
    modes |= {"recourse": "round_trip" if round_trip else "return"}
    limits = {"capacity": capacity, "max_length": max_length, **modes}
    every = words(n, width)
    cost, parts, _ = SCWCVRP.get_costs(dataset, every, WEIGHTS, on_violation="inf", **limits)
    valid = np.isfinite(cost)
    built = {actions + (0,) * (width - len(actions)): end for actions, end in tours(case)}
    assert set(map(tuple, every[valid].tolist())) == set(built)
    driven = SCWCVRP.expand(dataset, every[valid], **limits)
    np.testing.assert_allclose(BaseProblem.get_tour_length(dataset, driven), parts["length"][valid], atol=1e-12)
    for k in np.flatnonzero(valid):
        end = built[tuple(every[k].tolist())]
        overflows = sum(real[j] == 1 and j not in end.visited for j in range(1, n + 1))
        assert (parts["failures"][k], parts["overflows"][k]) == (end.failures, overflows)
        earned = 10 * end.collected - end.length - 10 * overflows - 2 * end.failures
        assert cost[k] == pytest.approx(-earned, abs=1e-9)


# --- SDWCVRP


def test_two_days_by_hand():
    """By hand: actions 1, 2, 0, 0 | 0 give 2, 6, -5, 0 | -10, as bin 3 overflows in the second night."""
    pi = np.array([[[1, 2, 0, 0], [0, 0, 0, 0]]])
    cost, parts, nothing = SDWCVRP.get_costs(two_days(), pi, WEIGHTS | {"lost": 0.0})
    assert cost.item() == pytest.approx(-(2 + 6 - 5 + 0 - 10))
    assert parts["waste"].tolist() == [[1.5, 0.0]]
    assert parts["length"].tolist() == [[12.0, 0.0]]
    assert parts["overflows"].tolist() == [[0, 1]]
    assert parts["failures"].tolist() == [[0, 0]]
    np.testing.assert_allclose(parts["lost"], [[0.0, 0.1]], atol=1e-12)
    assert nothing is None
    assert SDWCVRP.get_costs(two_days(), pi, WEIGHTS)[0].item() == pytest.approx(7 + 100 * 0.1)


def test_nights_fill_bins_and_lose_the_excess():
    """Without service, bins of .5 1 .3 become .8 1 .5 with .2 lost, then 1 1 1 with .1 + .3 + .1 lost."""
    _, parts, _ = SDWCVRP.get_costs(two_days(), np.zeros((1, 2, 1), int), WEIGHTS)
    np.testing.assert_allclose(parts["lost"], [[0.2, 0.5]], atol=1e-12)
    assert parts["overflows"].tolist() == [[1, 3]]


def test_missing_weights_are_the_defaults():
    """Length .55 sqrt(3), overflow 10, failure 1, lost 0; summed over all days."""
    small = {**two_days(), "locs": two_days()["locs"] / 4}
    cost = SDWCVRP.get_costs(small, [[[1, 2], [0, 0]]])[0]
    assert cost.item() == pytest.approx(0.55 * 3**0.5 * 3 - 1.5 + 10)


def test_customers_return_every_day():
    """On day 1 bin 1 holds the fill of the night, .3; twice on one day is invalid."""
    _, parts, _ = SDWCVRP.get_costs(two_days(), [[[1, 0], [1, 0]]], WEIGHTS)
    np.testing.assert_allclose(parts["waste"], [[0.5, 0.3]], atol=1e-12)
    assert SDWCVRP.check(two_days(), [[[0, 0], [1, 1]]])[1] == ["day 1: customer 1 is visited twice"]
    assert SDWCVRP.check(two_days(), [[[0, 0, 0], [1, 0, 2]]], trips="single")[1] == [
        "day 1: customer 2 follows the end of the tour"
    ]
    assert SDWCVRP.check(two_days(), [[[1, 2, 3], [0, 0, 0]]])[1] == ["day 0: trip 1 carries 1.8, capacity 1.6"]
    assert SDWCVRP.check(two_days(), [[[1, 0], [9, 0]]])[1] == ["node 9 does not exist, nodes are 0..3"]


def test_noisy_sensor_makes_services_fail():
    """Bins 1 and 2 hold .5 and 1 of a truck of 1.2; the sensor reads half, so 2 after 1 fails and comes next."""
    noise = np.array([[[0, 0.5, 0.5, 0.5], [0, 4, 4, 4]]])
    data = two_days(sensor_noise=noise, capacity=np.array([1.2]))
    pi = np.array([[[1, 2, 2], [0, 0, 0]]])
    _, parts, _ = SDWCVRP.get_costs(data, pi, WEIGHTS)
    assert (parts["failures"].tolist(), parts["length"].tolist()) == ([[1, 0]], [[3 + 4 + 5 + 10.0, 0.0]])
    assert SDWCVRP.expand(data, pi).tolist() == [[[1, 2, 0, 2, 0], [0, 0, 0, 0, 0]]]
    round_trip = SDWCVRP.expand(data, pi[:, :, :2], recourse="round_trip")
    assert round_trip.tolist() == [[[1, 2, 0, 2, 0], [0, 0, 0, 0, 0]]]
    # day 1: bin 1 really loads .8, and the .5 of bin 3, read fourfold, count as a full bin
    assert SDWCVRP.check(data, [[[0, 0], [1, 3]]])[1] == ["day 1: trip 1 carries 1.8, capacity 1.2"]


def test_mass_balance():
    """Initial waste + fills = collected + lost + left; here nothing is left, as all is emptied on the last day."""
    fill = np.array([[[0, 0.3, 0.2, 0.2], [0, 0.0, 0.0, 0.0]]])
    data = two_days(daily_fill=fill, capacity=np.array([3.0]))
    _, parts, _ = SDWCVRP.get_costs(data, [[[1, 0, 0], [1, 2, 3]]], WEIGHTS)
    assert parts["waste"].sum() + parts["lost"].sum() == pytest.approx(1.8 + 0.7)


def test_one_day_without_fill_is_cwcvrp():
    """On every word: the same validity and cost, also with a single day."""
    waste = np.array([[0, 0.5, 1, 0.3]])
    known = {"locs": RECTANGLE, "waste": waste, "capacity": np.array([1.0])}
    daily = {"locs": RECTANGLE, "initial_waste": waste, "daily_fill": np.zeros((1, 1, 3)), "capacity": np.array([1.0])}
    every = words(3, 6)
    one = CWCVRP.get_costs(known, every, WEIGHTS, on_violation="inf")[0]
    other = SDWCVRP.get_costs(daily, every[:, None], WEIGHTS, on_violation="inf")[0]
    assert np.isfinite(one).sum() == 22
    np.testing.assert_array_equal(one, other)


def test_two_days_have_1330_plans():
    """By hand: the number of valid plans; the best objective is 3."""
    day = words(3, 6)
    weights = WEIGHTS | {"lost": 0.0}
    first = day[SDWCVRP.check(two_days(), pairs(day, day[:1]))[0]]
    assert len(first) == 34
    cost = SDWCVRP.get_costs(two_days(), pairs(first, day), weights, on_violation="inf")[0]
    assert (np.isfinite(cost).sum(), -cost.min()) == (1330, pytest.approx(3))


def test_length_and_layout():
    """Each day has its length; customers may be separate, hidden fields nested; padding does not fill."""
    assert SDWCVRP.get_tour_length(two_days(), [[[1, 2], [3, 0]]]).tolist() == [[12.0, 8.0]]
    apart = {
        "depot": RECTANGLE[:, 0],
        "locs": RECTANGLE[:, 1:],
        "initial_waste": np.array([[0.5, 1, 0.3]]),
        "hidden": {"daily_fill": np.array([[[0.3, 0.2, 0.2], [0.3, 0.3, 0.6]]])},
        "capacity": np.array([1.6]),
    }
    pi = np.array([[[1, 2], [3, 0]]])
    assert SDWCVRP.get_costs(apart, pi, WEIGHTS)[0] == SDWCVRP.get_costs(two_days(), pi, WEIGHTS)[0]
    _, parts, _ = SDWCVRP.get_costs(two_days(n_nodes=np.array([3])), np.zeros((1, 2, 1), int), WEIGHTS)
    np.testing.assert_allclose(parts["lost"], [[0.2, 0.4]], atol=1e-12)
    assert parts["overflows"].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (two_days(daily_fill=None), ShapeError, "lacks `daily_fill`"),
        (
            two_days(daily_fill=np.zeros((1, 3, 4))),
            ShapeError,
            r"daily_fill has shape \(1, 3, 4\), expected \(1, 2, 4\)",
        ),
        (two_days(daily_fill=np.full((1, 2, 4), -0.1)), BadInstance, r"daily_fill\[0, 0\] is -0.1"),
        (two_days(initial_waste=np.array([[0, 2, 0, 0]])), BadInstance, r"initial_waste\[1\] is 2"),
    ],
)
def test_bad_days_are_refused(data, error, match):
    """The error names field and rule; a plan without days is also refused."""
    with pytest.raises(error, match=match):
        SDWCVRP.check(data, np.zeros((1, 2, 1), int))
    with pytest.raises(ShapeError, match=r"expected \(B, T, L\) integers"):
        SDWCVRP.check(two_days(), [[1, 2]])
    with pytest.raises(ShapeError, match=r"expected \(B, L\) integers"):
        SCWCVRP.check(surprise(), [[[1, 2]]])
