"""The profit and waste worlds equal the scalar models of tests/reference, which were written from the rules alone.

Every field of every row is compared after every step, on masked and on wild actions, and must have the same bits.
Rewards may differ by 1e-5 of what the row has been paid: both add the same terms, each in its own order.
"""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from tests.reference.collect import CollectModel
from tests.reference.stochastic import SCWCVRPModel, SDWCVRPModel
from tests.reference.tsp import distance_table

NODES, ROWS, TURNS = 8, 16, 48
WILD = (-(2**63), -1, NODES, 2**31, 2**63 - 1)

COMMON = (
    "current_node",
    "visited",
    "tour_length",
    "trip_length",
    "trips",
    "collected",
    "i",
    "action_mask",
    "terminated",
    "truncated",
    "illegal",
    "missed_must_go",
    "skipped",
)
FIELDS = {
    "VRPP": COMMON,
    "CVRPP": (*COMMON, "load"),
    "WCVRP": (*COMMON, "load"),
    "CWCVRP": (*COMMON, "load"),
    "SCWCVRP": (*COMMON, "load", "expected_waste", "revealed", "failures"),
    "SDWCVRP": (
        *COMMON[:-2],
        "load",
        "expected_waste",
        "real_waste",
        "failures",
        "day",
        "overflows",
        "lost",
        "must_go",
    ),
}
METRICS = ("euclid", "manhattan", "round", "trunc1", "matrix")


def space(rng, metric, count, padded, limited):
    """Places or a matrix without triangle inequality, sizes, and optionally a limit that is active."""
    scale = {"euclid": 1.0, "trunc1": 1.0}.get(metric, 20.0)
    one = {"instance_row": np.arange(ROWS) % count}
    one["n_nodes"] = rng.integers(2, NODES + 1, count) if padded else np.full(count, NODES)
    if metric == "matrix":
        one["dist"] = (rng.random((count, NODES, NODES)) * (1 - np.eye(NODES))).astype(np.float32)
    else:
        one["locs"] = (scale * rng.random((count, NODES, 2))).astype(np.float32)
    if limited:
        tables = [
            distance_table(metric, *((one[k][q] if k in one else None) for k in ("locs", "dist"))) for q in range(count)
        ]
        reach = np.array([(np.array(d)[0] + np.array(d)[:, 0]).max() for d in tables])
        one["max_length"] = (reach * rng.uniform(0.6, 1.6, count)).astype(np.float32)
    return one


def customers(rng, count, draw):
    values = draw((count, NODES)).astype(np.float32)
    values[:, 0] = 0
    return values


def must_go(rng, count, rate):
    named = rng.random((count, NODES)) < rate
    named[:, 0] = False
    return named


def windows(rng, one, count):
    opens = rng.uniform(0, 2, (count, NODES)).astype(np.float32)
    one["time_windows"] = np.stack([opens, opens + rng.uniform(0.2, 1.5, (count, NODES)).astype(np.float32)], -1)
    one["time_windows"][:, 0] = [0, 4]
    one["service_time"] = customers(rng, count, lambda shape: rng.uniform(0, 0.3, shape))
    one["speed"] = rng.uniform(0.5, 2, (count, 1)).astype(np.float32)


def instance(name, rng, *, metric, padded, limited, timed, rate=0.2, days=3, noisy=False):
    count = ROWS // 2
    one = space(rng, metric, count, padded, limited)
    if name != "SDWCVRP":
        one["must_go"] = must_go(rng, count, rate)
    if name in ("VRPP", "CVRPP"):
        one["prize"] = customers(rng, count, lambda shape: rng.integers(0, 20, shape) / 2)
    if name == "CVRPP":
        one["weight"] = customers(rng, count, lambda shape: rng.integers(0, 10, shape) / 8)
        one["capacity"] = rng.uniform(1.25, 4, count).astype(np.float32)
    if timed:
        windows(rng, one, count)
    if name in ("WCVRP", "CWCVRP", "SCWCVRP", "SDWCVRP"):
        one["max_waste"] = rng.choice([1.0, 2.0], count).astype(np.float32)
        one["capacity"] = (one["max_waste"] * rng.uniform(1, 3, count)).astype(np.float32)

        def level(shape):
            full = one["max_waste"].reshape(-1, *[1] * (len(shape) - 1))
            return np.minimum(full, full * rng.integers(0, 13, shape) / 10)

        if name in ("WCVRP", "CWCVRP"):
            one["waste"] = customers(rng, count, level)
        elif name == "SCWCVRP":
            one |= {"expected0": customers(rng, count, level), "real_waste": customers(rng, count, level)}
        else:
            one |= {key: customers(rng, count, level) for key in ("initial_waste", "fill_mean", "fill_std")}
            one["daily_fill"] = level((count, days, NODES)).astype(np.float32)
            one["daily_fill"][..., 0] = 0
            if noisy:
                one["sensor_noise"] = rng.lognormal(0, 0.4, (count, days, NODES)).astype(np.float32)
    return one


def models(name, one, **options):
    make = {"SCWCVRP": SCWCVRPModel, "SDWCVRP": SDWCVRPModel}.get(name, CollectModel)
    rows = []
    for q in one["instance_row"]:
        given = {k: v[q] for k, v in one.items() if k != "instance_row"}
        given.setdefault("locs", None)
        if "prize" in given:
            given["gain"] = given.pop("prize")
        if "speed" in given:
            given["speed"] = float(given["speed"][0])
        rows.append(make(**given, **options))
    return rows


def choose(model, rng, wild):
    if rng.random() >= wild:
        return int(rng.choice([a for a, allowed in enumerate(model.action_mask) if allowed]))
    return int(rng.integers(0, NODES)) if rng.random() < 0.8 else int(rng.choice(WILD))


def compare(world, rows, paid):
    for name in FIELDS[type(world).__name__]:
        ours = getattr(world, name)
        theirs = np.array([getattr(row, name) for row in rows]).astype(ours.dtype)
        agree = ours == theirs
        assert agree.all(), f"{name} at {np.argwhere(~agree)[0]}: world {ours[~agree]}, model {theirs[~agree]}"
    theirs = np.array([row.reward for row in rows])
    scale = np.maximum(1.0, np.abs(paid))
    assert (np.abs(world.reward - theirs) <= 1e-5 * scale).all(), (world.reward, theirs)


def walk_along(name, one, seed, *, wild, reward="dense", max_steps="auto", world_options=(), **options):
    """Plays the same actions in both; an ended row restarts on the next turn. Counts the raised flags."""
    options = {"length_weight": 0.7, **options}
    world = milkrun.make(
        f"milkrun/{name}-v0",
        num_envs=ROWS,
        num_loc=NODES - 1,
        reward=reward,
        max_steps=max_steps,
        **options,
        **dict(world_options),
    )
    world.reset(instance=one)
    limit = 4 * NODES * (options.get("horizon", 1)) if max_steps == "auto" else max_steps
    settings = {k: v for k, v in options.items() if k != "horizon"}
    rows = models(name, one, max_steps=limit, reward=reward, **settings)
    paid = np.zeros(ROWS)
    compare(world, rows, paid)
    rng = np.random.default_rng(seed)
    seen = dict.fromkeys(("illegal", "terminated", "truncated"), 0)
    for _ in range(TURNS):
        actions = [choose(row, rng, wild) for row in rows]
        world.step(np.array(actions))
        for row, action in zip(rows, actions, strict=True):
            if row.terminated or row.truncated:
                row.reset()
            else:
                row.step(action)
        paid = paid + np.abs(world.reward)
        compare(world, rows, paid)
        for flag in seen:
            seen[flag] += sum(getattr(row, flag) for row in rows)
    return seen


# share of wild actions, reward, max_steps, sizes differ, trips limited, reserve
RUNS = [
    (0.0, "dense", "auto", False, False, True),
    (0.0, "terminal", "auto", True, True, True),
    (0.3, "dense", 9, True, False, False),
    (0.3, "dense", None, False, True, True),
]


@pytest.mark.truth
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("trips", ["single", "multi"])
@pytest.mark.parametrize("name", ["VRPP", "CVRPP", "WCVRP", "CWCVRP"])
def test_collect_worlds_equal_the_scalar_model(name, trips, metric):
    """4 runs of 768 turns each."""
    total = dict.fromkeys(("illegal", "terminated", "truncated"), 0)
    for seed, (wild, reward, max_steps, padded, limited, reserve) in enumerate(RUNS):
        rng = np.random.default_rng([seed, METRICS.index(metric), trips == "multi"])
        one = instance(name, rng, metric=metric, padded=padded, limited=limited, timed=False)
        weights = {"overflow_weight": 3.0} if name in ("WCVRP", "CWCVRP") else {}
        seen = walk_along(
            name,
            one,
            seed,
            wild=wild,
            reward=reward,
            max_steps=max_steps,
            metric=metric,
            trips=trips,
            must_go_reserve=reserve,
            **weights,
        )
        total = {flag: total[flag] + seen[flag] for flag in total}
    assert total["terminated"] > 100 and total["illegal"] > 50, total


@pytest.mark.truth
@pytest.mark.parametrize("trips", ["single", "multi"])
@pytest.mark.parametrize("name", ["VRPP", "CVRPP"])
def test_windows_equal_the_scalar_model(name, trips):
    """8 runs of 768 turns with windows, service times and speeds; trips limited in half of them."""
    total = dict.fromkeys(("illegal", "terminated", "truncated"), 0)
    for seed in range(8):
        rng = np.random.default_rng([seed, 7])
        one = instance(name, rng, metric="euclid", padded=seed % 3 == 0, limited=seed % 2 == 0, timed=True)
        seen = walk_along(
            name, one, seed, wild=0.2, metric="euclid", trips=trips, world_options=[("time_windows", True)]
        )
        total = {flag: total[flag] + seen[flag] for flag in total}
    assert total["terminated"] > 300 and total["illegal"] > 300, total


@pytest.mark.truth
@pytest.mark.parametrize("metric", ["euclid", "matrix"])
@pytest.mark.parametrize("trips", ["single", "multi"])
@pytest.mark.parametrize("recourse", ["return", "round_trip"])
def test_scwcvrp_equals_the_scalar_model(recourse, trips, metric):
    """4 runs of 768 turns; expected and real waste are drawn apart, so that many services fail."""
    failures = 0
    for seed, (wild, reward, max_steps, padded, limited, reserve) in enumerate(RUNS):
        rng = np.random.default_rng([seed, trips == "multi"])
        one = instance("SCWCVRP", rng, metric=metric, padded=padded, limited=limited, timed=False)
        seen = walk_along(
            "SCWCVRP",
            one,
            seed,
            wild=wild,
            reward=reward,
            max_steps=max_steps,
            metric=metric,
            trips=trips,
            recourse=recourse,
            failure_weight=2.0,
            overflow_weight=3.0,
            must_go_reserve=reserve,
        )
        failures += seen["terminated"]
    assert failures > 80


@pytest.mark.truth
@pytest.mark.parametrize("rule", ["none", "level", "lookahead", "service_level"])
@pytest.mark.parametrize("recourse", ["return", "round_trip"])
def test_sdwcvrp_equals_the_scalar_model(recourse, rule):
    """4 runs of 768 turns of three-day episodes, half of them with a noisy sensor."""
    ended = 0
    for seed, (wild, reward, max_steps, padded, limited, reserve) in enumerate(RUNS):
        noisy = seed % 2 == 1
        rng = np.random.default_rng([seed, 3])
        one = instance("SDWCVRP", rng, metric="euclid", padded=padded, limited=limited, timed=False, noisy=noisy)
        seen = walk_along(
            "SDWCVRP",
            one,
            seed,
            wild=wild,
            reward=reward,
            max_steps=max_steps,
            metric="euclid",
            recourse=recourse,
            must_go=rule,
            must_go_level=0.7,
            must_go_k=0.5,
            horizon=3,
            lost_weight=0.5,
            overflow_weight=3.0,
            must_go_reserve=reserve,
            world_options=[("sensor_sigma", 0.4 if noisy else 0.0)],
        )
        ended += seen["terminated"]
    assert ended > 40
