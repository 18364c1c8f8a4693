"""All masked action sequences of small profit and waste worlds, enumerated by the worlds.

Their best return must be the optimum of an enumeration through the checkers alone. The sequences must be exactly the
plans that the checker accepts: the mask neither allows an invalid plan nor forbids a valid one. The stochastic worlds
are compared with the scalar models of tests/reference.
"""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from milkrun.routing.tasks import CVRPP, CWCVRP, SCWCVRP, SDWCVRP, VRPP, WCVRP
from milkrun.routing.tasks.distances import distance_matrix
from tests.reference.stochastic import SCWCVRPModel, SDWCVRPModel, enumerate_sequences
from tests.truth.test_collect_by_hand import enumerate_all
from tests.truth.test_routing_exhaustive import closed_matrix, sequences_of

pytestmark = pytest.mark.truth

TASKS = {"VRPP": VRPP, "CVRPP": CVRPP, "WCVRP": WCVRP, "CWCVRP": CWCVRP}
WEIGHTS = {
    "VRPP": {"prize_weight": 1.0, "length_weight": 9.0},
    "CVRPP": {"prize_weight": 1.0, "length_weight": 9.0},
    "WCVRP": {"waste_weight": 1.0, "length_weight": 0.7, "overflow_weight": 0.8},
    "CWCVRP": {"waste_weight": 1.0, "length_weight": 0.7, "overflow_weight": 0.8},
}
STOCHASTIC = {"waste_weight": 1.0, "length_weight": 0.7, "overflow_weight": 0.8, "failure_weight": 0.3}


def by_node(rng, count, nodes, draw):
    values = np.asarray(draw((count, nodes)), np.float32)
    values[:, 0] = 0
    return values


def levels(rng, count, nodes):
    """Bins in tenths, a quarter of them full."""
    return by_node(rng, count, nodes, lambda shape: np.minimum(1, rng.integers(0, 14, shape) / 10))


def space(rng, count, nodes, metric, limited):
    """Places, sizes and limits of at most 1.5 times the way to the farthest customer and back."""
    where = {"dist": closed_matrix(rng, count, nodes)} if metric == "matrix" else {}
    where = where or {"locs": rng.random((count, nodes, 2)).astype(np.float32)}
    d = where["dist"].astype(float) if metric == "matrix" else distance_matrix(where["locs"], metric)
    n_nodes = rng.integers(2, nodes + 1, count)
    alone = np.where(np.arange(nodes) < n_nodes[:, None], d[:, 0] + d[:, :, 0], 0).max(axis=1)
    limit = np.where(limited, alone * rng.uniform(0.7, 1.5, count), np.inf)
    return {**where, "n_nodes": n_nodes, "max_length": limit.astype(np.float32)}


def instances(name, rng, count, nodes, metric="euclid", limited=False, mandatory=False):
    """`limited` and `mandatory` may be one flag an instance."""
    one = space(rng, count, nodes, metric, limited)
    must = (rng.random((count, nodes)) < 0.35) & np.reshape(mandatory, (-1, 1))
    must[:, 0] = False
    one["must_go"] = must
    if name in ("VRPP", "CVRPP"):
        one["prize"] = by_node(rng, count, nodes, lambda shape: rng.integers(0, 21, shape) / 2)
    if name == "CVRPP":
        one["weight"] = by_node(rng, count, nodes, lambda shape: rng.integers(0, 9, shape) / 8)
        one["capacity"] = rng.uniform(1, 3, count).astype(np.float32)
    if name in ("WCVRP", "CWCVRP"):
        one["waste"] = levels(rng, count, nodes)
        one["max_waste"] = np.ones(count, np.float32)
        one["capacity"] = (rng.integers(10, 30, count) / 10).astype(np.float32)
    return one


def plans_of(n, width, multi):
    """Every order of every subset of customers 1..n, with every choice of returns if there may be many trips."""
    plans = []
    for size in range(n + 1):
        orders = list(permutations(range(1, n + 1), size))
        orders = np.array(orders, np.int64).reshape(len(orders), size)
        for returns in product((0, 1), repeat=max(size - 1, 0) if multi else 0):
            plan = np.zeros((len(orders), width), np.int64)
            stops = np.cumsum((0, *returns)) if multi and size else 0
            plan[:, np.arange(size) + stops] = orders
            plans.append(plan)
    return np.concatenate(plans)


def candidates(one, width, multi):
    """All plans of all instances, with the instance of each."""
    wanted = {n: plans_of(n, width, multi) for n in set(one["n_nodes"] - 1)}
    plans = np.concatenate([wanted[n] for n in one["n_nodes"] - 1])
    return np.repeat(np.arange(len(one["n_nodes"])), [len(wanted[n]) for n in one["n_nodes"] - 1]), plans


def costs(name, one, owner, plans, **rules):
    """The checker's cost of each plan; inf if the plan breaks a rule."""
    cw = {key.removesuffix("_weight"): value for key, value in WEIGHTS[name].items()}
    return TASKS[name].get_costs({**one, "instance_row": owner}, plans, cw, on_violation="inf", **rules)[0]


def best_of(owner, returns, count):
    best = np.full(count, -np.inf)
    np.maximum.at(best, owner, returns)
    return best


def world_agrees(name, one, nodes, trips):
    """Enumerates by world and by checker; returns the optima and the share of valid plans."""
    count = len(one["n_nodes"])
    settings = {"metric": "matrix" if "dist" in one else "euclid", **WEIGHTS[name]}
    settings |= {"time_windows": True} if "time_windows" in one else {}
    owner, plans, returns = enumerate_all(f"milkrun/{name}-v0", one, num_loc=nodes - 1, trips=trips, **settings)
    whose, tried = candidates(one, plans.shape[1], trips == "multi")
    cost = costs(name, one, whose, tried, trips=trips)
    valid = np.isfinite(cost)
    np.testing.assert_array_equal(sequences_of(owner, plans), sequences_of(whose[valid], tried[valid]))
    np.testing.assert_allclose(returns, -costs(name, one, owner, plans, trips=trips), rtol=0, atol=1e-4)
    optimum = best_of(whose, -cost, count)
    np.testing.assert_allclose(best_of(owner, returns, count), optimum, rtol=0, atol=1e-4)
    return optimum, valid.mean()


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["euclid", "matrix"])
@pytest.mark.parametrize("trips", ["single", "multi"])
@pytest.mark.parametrize("name", TASKS)
def test_masked_sequences_are_the_valid_plans(name, trips, metric):
    """200 instances of 1 to 5 customers for each metric, half of them with a limit, half with mandatory customers."""
    count, nodes = 200, 6
    rng = np.random.default_rng([ord(name[0]), len(name), trips == "multi", metric == "matrix"])
    flags = np.arange(count) % 4
    one = instances(name, rng, count, nodes, metric, limited=flags % 2 == 1, mandatory=flags >= 2)
    optimum, share = world_agrees(name, one, nodes, trips)
    assert 0.02 < share < 0.95
    assert (optimum > 0).sum() > count / 4


def windows(rng, count, nodes):
    """Windows within a day of length 2; some close before any arrival, others open too late; speeds about 1."""
    opens = rng.uniform(0, 1.5, (count, nodes))
    spans = np.stack([opens, opens + rng.uniform(0.1, 0.8, (count, nodes))], axis=-1)
    spans[:, 0] = 0, 2
    service = by_node(rng, count, nodes, lambda shape: rng.uniform(0, 0.4, shape))
    speed = rng.uniform(0.6, 1.6, (count, 1)).astype(np.float32)
    return {"time_windows": spans.astype(np.float32), "service_time": service, "speed": speed}


@pytest.mark.slow
@pytest.mark.parametrize("trips", ["single", "multi"])
@pytest.mark.parametrize("name", ["VRPP", "CVRPP"])
def test_masked_sequences_with_windows_are_the_valid_plans(name, trips):
    """200 instances of 1 to 5 customers, half of them with a limit, half with mandatory customers."""
    count, nodes = 200, 6
    rng = np.random.default_rng([6, len(name), trips == "multi"])
    flags = np.arange(count) % 4
    one = instances(name, rng, count, nodes, limited=flags % 2 == 1, mandatory=flags >= 2)
    optimum, share = world_agrees(name, one | windows(rng, count, nodes), nodes, trips)
    without, larger_share = world_agrees(name, one, nodes, trips)
    assert 0.02 < share < larger_share / 2
    assert (optimum < without - 1e-3).mean() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("trips", ["single", "multi"])
@pytest.mark.parametrize("name", ["CVRPP", "WCVRP", "CWCVRP"])
def test_must_go_forbids_no_feasible_plan(name, trips):
    """The sequences are exactly the plans that visit all mandatory customers and keep the truck's capacity.

    The checker gets no mandatory customers. In a single trip all mandatory customers fit the truck together.
    """
    count, nodes = 200, 5
    rng = np.random.default_rng(17)
    one = instances(name, rng, count, nodes, mandatory=True)
    weight = one["weight" if name == "CVRPP" else "waste"]
    owed = np.where(one["must_go"] & (np.arange(nodes) < one["n_nodes"][:, None]), weight, 0).sum(axis=1)
    if trips == "single":
        one["capacity"] = np.maximum(one["capacity"], owed).astype(np.float32)
    owner, plans, returns = enumerate_all(f"milkrun/{name}-v0", one, num_loc=nodes - 1, trips=trips, **WEIGHTS[name])

    free = {key: value for key, value in one.items() if key != "must_go"}
    whose, tried = candidates(one, plans.shape[1], trips == "multi")
    cost = costs(name, free, whose, tried, trips=trips)
    must = one["must_go"] & (np.arange(nodes) < one["n_nodes"][:, None])
    visits = (tried[:, :, None] == np.arange(nodes)).any(axis=1)
    feasible = np.isfinite(cost) & (visits | ~must[whose]).all(axis=1)
    assert 0.02 < feasible.mean() < np.isfinite(cost).mean() - 0.02
    np.testing.assert_array_equal(sequences_of(owner, plans), sequences_of(whose[feasible], tried[feasible]))
    optimum = best_of(whose[feasible], -cost[feasible], count)
    np.testing.assert_allclose(best_of(owner, returns, count), optimum, rtol=0, atol=1e-4)


@pytest.mark.parametrize("reserve", [True, False])
@pytest.mark.parametrize("trips", ["single", "multi"])
def test_masked_sequences_among_all_words(trips, reserve):
    """All 4^6 words over the nodes of up to 3 customers are tried on WCVRP, not only words in the form of a plan."""
    count, nodes, length = 40, 4, 6
    rng = np.random.default_rng([3, trips == "multi", reserve])
    one = instances("WCVRP", rng, count, nodes, limited=np.arange(count) % 2 == 0, mandatory=True)
    rules = {"trips": trips, "must_go_reserve": reserve}
    owner, plans, _ = enumerate_all("milkrun/WCVRP-v0", one, num_loc=nodes - 1, **WEIGHTS["WCVRP"], **rules)
    words = np.array(list(product(range(nodes), repeat=length)))
    words = words[words[:, -1] == 0]
    tried = np.pad(np.tile(words, (count, 1)), ((0, 0), (0, plans.shape[1] - length)))
    whose = np.repeat(np.arange(count), len(words))
    valid = np.isfinite(costs("WCVRP", one, whose, tried, **rules))
    np.testing.assert_array_equal(sequences_of(owner, plans), sequences_of(whose[valid], tried[valid]))


def expected_and_real(rng, count, nodes):
    """Expected and real waste, drawn independently, for trucks that hold one to two bins."""
    return {
        "expected0": levels(rng, count, nodes),
        "real_waste": levels(rng, count, nodes),
        "max_waste": np.ones(count, np.float32),
        "capacity": (rng.integers(10, 21, count) / 10).astype(np.float32),
    }


def counted_by(model, one, **options):
    """Number of sequences and best return of each instance by the scalar model."""
    rows = [{key: value[q] for key, value in one.items()} for q in range(len(one["n_nodes"]))]
    return np.array([enumerate_sequences(lambda row=row: model(**row, **options)) for row in rows])


def counted_in(owner, returns, count):
    return np.bincount(owner, minlength=count), best_of(owner, returns, count)


@pytest.mark.slow
@pytest.mark.parametrize("trips", ["single", "multi"])
@pytest.mark.parametrize("recourse", ["return", "round_trip"])
def test_scwcvrp_sequences_are_those_of_the_scalar_model(recourse, trips):
    """200 instances of 1 to 4 customers, with limits and mandatory ones; the checker prices every sequence alike."""
    count, nodes = 200, 5
    rng = np.random.default_rng([4, recourse == "return", trips == "multi"])
    flags = np.arange(count) % 4
    one = {
        **instances("SCWCVRP", rng, count, nodes, limited=flags % 2 == 1, mandatory=flags >= 2),
        **expected_and_real(rng, count, nodes),
    }
    rules = {"trips": trips, "recourse": recourse}
    owner, plans, returns = enumerate_all("milkrun/SCWCVRP-v0", one, num_loc=nodes - 1, **STOCHASTIC, **rules)
    numbers, best = counted_in(owner, returns, count)
    theirs = counted_by(SCWCVRPModel, {"locs": one["locs"], **one}, **STOCHASTIC, **rules)
    np.testing.assert_array_equal(numbers, theirs[:, 0])
    np.testing.assert_allclose(best, theirs[:, 1], rtol=0, atol=1e-4)

    assert len(np.unique(sequences_of(owner, plans))) == len(plans)
    cw = {key.removesuffix("_weight"): value for key, value in STOCHASTIC.items()}
    cost, parts, _ = SCWCVRP.get_costs({**one, "instance_row": owner}, plans, cw, **rules)
    np.testing.assert_allclose(returns, -cost, rtol=0, atol=1e-4)
    assert parts["failures"].mean() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recourse", "rule", "noisy"),
    [
        ("return", "none", False),
        ("round_trip", "level", False),
        ("return", "lookahead", True),
        ("round_trip", "service_level", True),
    ],
)
def test_sdwcvrp_sequences_are_those_of_the_scalar_model(recourse, rule, noisy):
    """200 instances of 1 to 3 customers over two days, for each rule of must-go; the checker prices every sequence."""
    count, nodes, days = 200, 4, 2
    rng = np.random.default_rng([5, len(rule)])
    one = space(rng, count, nodes, "euclid", limited=np.arange(count) % 3 == 0)
    one |= {
        "initial_waste": levels(rng, count, nodes),
        "daily_fill": np.stack([levels(rng, count, nodes) / 2 for _ in range(days)], axis=1),
        "fill_mean": levels(rng, count, nodes) / 2,
        "fill_std": levels(rng, count, nodes) / 4,
        "max_waste": np.ones(count, np.float32),
        "capacity": (rng.integers(10, 21, count) / 10).astype(np.float32),
    }
    if noisy:
        one["sensor_noise"] = rng.lognormal(0, 0.4, (count, days, nodes)).astype(np.float32)
    settings = {
        **STOCHASTIC,
        "recourse": recourse,
        "must_go": rule,
        "must_go_level": 0.7,
        "must_go_k": 0.5,
        "lost_weight": 0.5,
    }
    owner, plans, returns = enumerate_all(
        "milkrun/SDWCVRP-v0", one, num_loc=nodes - 1, horizon=days, sensor_sigma=0.4 if noisy else 0.0, **settings
    )
    numbers, best = counted_in(owner, returns, count)
    theirs = counted_by(SDWCVRPModel, one, **settings)
    np.testing.assert_array_equal(numbers, theirs[:, 0])
    np.testing.assert_allclose(best, theirs[:, 1], rtol=0, atol=1e-4)

    cw = {key.removesuffix("_weight"): settings[key] for key in (*STOCHASTIC, "lost_weight")}
    days_apart = plans.reshape(len(plans), days, -1)
    cost, _, _ = SDWCVRP.get_costs({**one, "instance_row": owner}, days_apart, cw, recourse=recourse)
    np.testing.assert_allclose(returns, -cost, rtol=0, atol=1e-4)
