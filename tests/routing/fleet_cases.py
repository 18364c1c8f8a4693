"""Small random instances of VRP, PDP and PCTSP, and the agreement of checker and scalar reference on all their plans.

The reference builds plans action by action from its mask; the checker judges finished plans. Both are written from the
rules, share no code, and agree on every plan only if the mask is sound and complete.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from milkrun.routing.tasks import PCTSP, PDP, VRP
from tests.reference import pctsp, pdp, vrp
from tests.reference.fleet import finished_rows

UNSERVED_COST = 25.0
PLAN_FIELDS = ("locs", "dist", "linehaul", "backhaul", "demand", "serves", "time_windows", "service_time")
DEPOT_FIELDS = ("capacity", "vehicles", "distance_limit", "duration_limit", "fixed_cost", "distance_cost")
ROW_FIELDS = ("backhaul_class", "speed", "open_route", "n_depots", "n_nodes", "unserved_cost")

RULE_SETS: dict[str, set[str]] = {
    "capacity": set(),
    "open": {"open"},
    "distance": {"distance"},
    "distance, open": {"distance", "open"},
    "duration": {"duration"},
    "duration, windows": {"duration", "windows"},
    "duration, windows, open": {"duration", "windows", "open"},
    "windows": {"windows"},
    "windows, open, speed": {"windows", "open", "speed"},
    "backhaul": {"backhaul"},
    "mixed backhaul": {"backhaul", "mixed"},
    "both at a stop": {"backhaul", "mixed", "both"},
    "both, visits": {"backhaul", "mixed", "both", "visits"},
    "linehaul begins": {"backhaul", "begins"},
    "linehaul begins, mixed": {"backhaul", "begins", "mixed", "both", "visits"},
    "depots": {"depots"},
    "depots, distance": {"depots", "distance"},
    "depots, windows, backhaul": {"depots", "windows", "backhaul", "mixed"},
    "depots, linehaul begins": {"depots", "backhaul", "begins", "serves", "visits"},
    "kinds": {"depots", "kinds"},
    "serves": {"depots", "serves"},
    "fleet": {"fleet"},
    "fleet, depots, serves": {"fleet", "depots", "serves"},
    "fleet, windows, backhaul": {"fleet", "windows", "backhaul", "mixed"},
    "fleet, linehaul begins": {"fleet", "depots", "serves", "backhaul", "begins"},
    "longest route": {"fleet", "max"},
    "matrix": {"matrix", "distance", "windows"},
}
RULES = sorted(set().union(*RULE_SETS.values()))
SPLIT = {
    "split": {"split"},
    "split, distance": {"split", "distance"},
    "split, depots, windows": {"split", "depots", "windows"},
    "split, fleet": {"split", "fleet"},
}
PAIRED: dict[str, set[str]] = {
    "pairs": set(),
    "capacity": {"load"},
    "windows": {"windows"},
    "windows, capacity, open": {"windows", "load", "open"},
    "distance": {"distance"},
    "duration, windows": {"duration", "windows"},
    "depots, windows": {"depots", "windows"},
    "depots, kinds, load": {"depots", "kinds", "load"},
    "fleet, windows": {"fleet", "windows"},
    "fleet, longest": {"fleet", "max", "depots"},
}
PAIR_RULES = sorted(set().union(*PAIRED.values()))


def mixed(rng: np.random.Generator, names: list[str]) -> set[str]:
    """Each rule with probability one half, without those that exclude each other."""
    rules = {name for name in names if rng.random() < 0.5}
    if "max" in rules:
        rules -= {"kinds"}
    if "backhaul" not in rules:
        rules -= {"begins", "mixed", "both"}
    if "mixed" not in rules:
        rules -= {"both"}
    if "depots" not in rules:
        rules -= {"serves", "kinds"}
    return rules


# --- instances


def draw(rng: np.random.Generator, n: int, rules: set[str]) -> dict[str, Any]:
    """Fields of an instance with `n` customers; many are whole numbers, so that limits are met exactly."""
    k = 2 if "depots" in rules else 1
    locs = rng.integers(0, 7, (k + n, 2)).astype(np.float32)
    fields: dict[str, Any] = {"locs": locs, "num_depots": k}
    if rng.random() < 0.3:
        locs[:k] = locs[0]
    apart = np.sqrt(((locs[:, None] - locs[None]).astype(float) ** 2).sum(axis=2))
    if "matrix" in rules:
        apart = close_triangles(apart + rng.integers(0, 4, apart.shape))
        fields |= {"dist": apart.astype(np.float32), "metric": "matrix", "locs": None}
    fields["speed"] = float(rng.choice([0.5, 2.0])) if "speed" in rules else 1.0
    fields["open_route"] = "open" in rules
    far = max(min(apart[d, j] + ("open" not in rules) * apart[j, d] for d in range(k)) for j in range(k, k + n))
    if "distance" in rules:
        fields["distance_limit"] = [math.floor(far * rng.uniform(1.0, 1.8)) + 1.0 for _ in range(k)]
    if "duration" in rules:
        fields["duration_limit"] = [math.floor(far / fields["speed"] * rng.uniform(1.0, 2.2)) + 3.0 for _ in range(k)]
    if "windows" in rules or "duration" in rules:
        fields["service_time"] = [0] * k + rng.integers(0, 3, n).tolist()
    if "windows" in rules:
        opens = rng.integers(0, 12, n)
        closes = opens + rng.integers(0, rng.choice([4, 20]), n)
        soonest = 3 if "open" in rules else 14  # an open route only leaves before its depot closes
        depots = [(int(rng.integers(0, 3)), int(rng.integers(soonest, 34))) for _ in range(k)]
        fields["time_windows"] = [*depots, *zip(opens.tolist(), closes.tolist(), strict=True)]
    if "fleet" in rules:
        fields["vehicles"] = rng.integers(1, 3, k).tolist()
    if "kinds" in rules:
        fields["fixed_cost"] = rng.integers(0, 8, k).astype(float).tolist()
        fields["distance_cost"] = rng.choice([0.5, 1.0, 2.0], k).tolist()
    return fields


def close_triangles(d: np.ndarray) -> np.ndarray:
    """The shortest paths through all nodes: a matrix that keeps the triangle inequality."""
    d = d.copy()
    np.fill_diagonal(d, 0)
    for i in range(len(d)):
        d = np.minimum(d, d[:, i : i + 1] + d[i : i + 1])
    return d


def draw_vrp(rng: np.random.Generator, n: int, rules: set[str]) -> dict[str, Any]:
    fields = draw(rng, n, rules)
    k = fields["num_depots"]
    fields["capacity"] = rng.integers(6, 12, k).tolist()
    amount = rng.integers(0 if "visits" in rules else 1, 7, n)
    back = rng.random(n) < 0.5 if "backhaul" in rules else np.zeros(n, bool)
    second = np.where(rng.random(n) < 0.6, rng.integers(1, 7, n), 0) if "both" in rules else np.zeros(n, int)
    fields["linehaul"] = [0] * k + np.where(back, second, amount).tolist()
    fields["backhaul"] = [0] * k + np.where(back, amount, 0).tolist()
    fields["backhaul_class"] = 2 if "mixed" in rules else 1
    fields["backhaul_only"] = "begins" not in rules
    fields["objective"] = "max" if "max" in rules else "sum"
    fields["unserved_cost"] = UNSERVED_COST
    if "serves" in rules:
        fields["serves"] = [0] * k + rng.integers(1, 4, n).tolist()
    if "split" in rules:
        fields["split"] = True
        fields["capacity"] = [int(rng.integers(3, 5))] * k
    return fields


def draw_pdp(rng: np.random.Generator, pairs: int, rules: set[str]) -> dict[str, Any]:
    fields = draw(rng, 2 * pairs, rules)
    k = fields["num_depots"]
    for limit in ("distance_limit", "duration_limit"):
        if limit in fields:
            fields[limit] = [x * 1.6 for x in fields[limit]]
    if "windows" in rules:
        windows = fields["time_windows"]
        first = k + pairs
        if rng.random() < 0.5:  # deliveries later
            fields["time_windows"] = windows[:first] + [(a, b + 10) for a, b in windows[first:]]
        else:  # pickups at any time: many goods are aboard together, and their order matters
            closes = rng.integers(6, 20, pairs).tolist()
            fields["time_windows"] = [(0, 50)] * first + [(int(rng.integers(0, 4)), b) for b in closes]
    amount = rng.integers(1, 5, pairs)
    fields["demand"] = [0] * k + amount.tolist() + (-amount).tolist()
    fields["capacity"] = rng.integers(4, 7, k).tolist() if "load" in rules else None
    fields.setdefault("vehicles", [2 * pairs] * k)
    fields["objective"] = "max" if "max" in rules else "sum"
    fields["unserved_cost"] = UNSERVED_COST
    return fields


def build(
    model: Any, draw_fields: Any, rng: np.random.Generator, n: int, rules: set[str]
) -> tuple[dict[str, Any], Any]:
    """An instance in which every customer can be served alone, and its reference."""
    for _ in range(500):
        fields = draw_fields(rng, n, rules)
        if rng.random() < 0.3:
            fields = with_padding(fields, rng)
        try:
            return fields, model(**fields)
        except ValueError:
            continue
    raise AssertionError(f"no instance of {sorted(rules)} with {n} customers")


def with_padding(fields: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Two nodes after the last that nothing may visit, and sometimes no depot but the first."""
    k = fields["num_depots"]
    padded = fields | {"n_nodes": len(fields["linehaul"] if "linehaul" in fields else fields["demand"])}
    pads = {"locs": (9.0, 9.0), "time_windows": (0, 1)}
    for name in PLAN_FIELDS:
        if name == "dist" or fields.get(name) is None:
            continue
        padded[name] = [*np.asarray(fields[name]).tolist(), *[pads.get(name, 1)] * 2]
    if fields.get("dist") is not None:
        padded["dist"] = np.pad(fields["dist"], ((0, 2), (0, 2)))
    if "backhaul" in fields:
        padded["backhaul"] = [*fields["backhaul"], 0, 0]
    if k > 1 and rng.random() < 0.5:
        padded["n_depots"] = 1
    return padded


def dataset(fields: dict[str, Any]) -> dict[str, Any]:
    """The same instance for the checker: a batch of one."""
    found = {name: np.array([fields[name]]) for name in PLAN_FIELDS if fields.get(name) is not None}
    k = fields["num_depots"]
    for name in DEPOT_FIELDS:
        if fields.get(name) is not None:
            found[name] = np.broadcast_to(np.array(fields[name]), (1, k))
    return found | {name: np.array([fields[name]]) for name in ROW_FIELDS if fields.get(name) is not None}


# --- plans


@cache
def all_plans(n: int, k: int, used: int, words: int = 0) -> tuple[tuple[int, ...], ...]:
    """Every way to serve some of `n` customers by routes from the first `used` of `k` depots, as actions.

    Customers do not recur; or, with `words`, they do in plans of at most so many visits.
    """
    nodes = range(k, k + n)
    orders = (
        [order for m in range(1, words + 1) for order in product(nodes, repeat=m)]
        if words
        else [order for m in range(1, n + 1) for order in permutations(nodes, m)]
    )
    return tuple(plan for order in orders for plan in with_depots(order, used))


def depots_of(fields: dict[str, Any]) -> tuple[int, int]:
    """The number of depots in the arrays, and of those that the row has."""
    return fields["num_depots"], fields.get("n_depots", fields["num_depots"])


def with_depots(order: tuple[int, ...], k: int) -> Iterator[tuple[int, ...]]:
    """All partitions of an order into routes, with a depot for each."""
    for cuts in product((False, True), repeat=len(order) - 1):
        routes = 1 + sum(cuts)
        for depots in product(range(k), repeat=routes):
            plan = [depots[0]] if k > 1 else []
            r = 0
            for node, cut in zip(order, (*cuts, False), strict=True):
                plan.append(node)
                if cut:
                    r += 1
                    plan.append(depots[r])
            yield (*plan, depots[-1])


@cache
def paired_plans(pairs: int, k: int, used: int) -> tuple[tuple[int, ...], ...]:
    """Every plan that serves all or some pairs, each within a route and the pickup first."""
    found: list[tuple[int, ...]] = []

    def extend(plan: list[int], depot: int, aboard: frozenset[int], left: frozenset[int], at_depot: bool) -> None:
        for j in left:
            extend([*plan, j], depot, aboard | {j + pairs}, left - {j}, False)
        for j in aboard:
            extend([*plan, j], depot, aboard - {j}, left, False)
        if not aboard and not at_depot:
            found.append((*plan, depot))
            for following in range(used) if left else ():
                extend([*plan, following], following, aboard, left, True)

    for first in range(used):
        extend([first] if used > 1 else [], first, frozenset(), frozenset(range(k, k + pairs)), True)
    return tuple(found)


def padded(plans: Any) -> np.ndarray:
    width = max(map(len, plans))
    return np.array([[*plan, *[0] * (width - len(plan))] for plan in plans])


# --- agreement


def agree(task: Any, fields: dict[str, Any], model: Any, plans: Any, limited: bool, **modes: Any) -> int:
    """Asserts that checker and reference accept the same plans at the same costs; their number.

    A limited fleet may leave customers. The mask leaves none that its last vehicle could still serve, the checker asks
    only that the fleet is at its end; so of such plans the mask has some.
    """
    data = dataset(fields)
    cost, parts, _ = task.get_costs(data, padded(plans), on_violation="inf", **modes)
    accepted = {plan: c for plan, c in zip(plans, cost, strict=True) if np.isfinite(c)}
    complete = {plan for plan, c, u in zip(plans, cost, parts["unserved"], strict=True) if np.isfinite(c) and u == 0}
    finished = {tuple(row.tour): row for row in finished_rows(model)}
    assert finished
    if not limited:
        assert all(row.unserved == 0 for row in finished.values()), "an unlimited fleet leaves customers"
        assert complete == set(accepted), "the checker accepts that an unlimited fleet leaves customers"
    said = dict(zip(plans, task.check(data, padded(plans), **modes)[1], strict=True))
    wrong = {plan: said.get(plan, "unknown plan") for plan in finished if plan not in accepted}
    assert not wrong, f"the checker refuses finished rows of {fields}: {wrong}"
    missing = complete - {plan for plan, row in finished.items() if row.unserved == 0}
    assert not missing, f"the mask misses valid plans of {fields}: {missing}"
    for plan, row in finished.items():
        assert accepted[plan] == pytest.approx(-row.earned, abs=1e-9) == -row.objective, plan
    for plan in _with_one_more(finished):
        assert plan not in accepted, f"a last vehicle went home before it served all it could: {plan}"
    if complete:
        best = min(accepted[plan] for plan in complete)
        assert best == pytest.approx(min(-row.earned for row in finished.values() if row.unserved == 0))
    return len(finished)


def _with_one_more(finished: dict[tuple[int, ...], Any]) -> Iterator[tuple[int, ...]]:
    """The plans that leave customers, with one of those at the end of the last route."""
    for plan, row in finished.items():
        for j in row.customers:
            if not row.visited[j]:
                yield (*plan[:-1], j, plan[-1])


def vrp_agrees(rng: np.random.Generator, n: int, rules: set[str]) -> int:
    fields, model = build(vrp.VRP, draw_vrp, rng, n, rules)
    modes = {"objective": fields["objective"], "backhaul_only": fields["backhaul_only"]}
    return agree(VRP, fields, model, all_plans(n, *depots_of(fields)), "fleet" in rules, **modes)


def split_agrees(rng: np.random.Generator, n: int, rules: set[str], visits: int) -> int:
    """Of all plans with at most so many visits."""
    fields, model = build(vrp.VRP, draw_vrp, rng, n, rules)
    data, plans = dataset(fields), all_plans(n, *depots_of(fields), visits)
    cost, parts, _ = VRP.get_costs(data, padded(plans), on_violation="inf", split=True)
    accepted = {plan: c for plan, c in zip(plans, cost, strict=True) if np.isfinite(c)}
    complete = {plan for plan, c, u in zip(plans, cost, parts["unserved"], strict=True) if np.isfinite(c) and u == 0}
    rows = {tuple(row.tour): row for row in finished_rows(model)}
    short = {plan: row for plan, row in rows.items() if sum(a >= fields["num_depots"] for a in plan) <= visits}
    assert {plan for plan, row in short.items() if row.unserved == 0} == complete, fields
    assert set(short) <= set(accepted) and (set(accepted) == complete or "fleet" in rules), fields
    assert all(accepted[plan] == pytest.approx(-row.earned) for plan, row in short.items())
    return len(short)


def pdp_agrees(rng: np.random.Generator, pairs: int, rules: set[str]) -> int:
    fields, model = build(pdp.PDP, draw_pdp, rng, pairs, rules)
    structured = paired_plans(pairs, *depots_of(fields))
    plans = all_plans(2 * pairs, *depots_of(fields)) if pairs <= 2 else structured
    assert set(structured) <= set(plans)
    return agree(PDP, fields, model, plans, "fleet" in rules, objective=fields["objective"])


def pctsp_agrees(rng: np.random.Generator, n: int) -> int:
    fields = {
        "locs": rng.integers(0, 7, (n + 1, 2)),
        "prize": [0, *(rng.integers(0, 9, n) / 8).tolist()],
        "penalty": [0, *(rng.integers(0, 9, n) / 2).tolist()],
        "prize_required": float(rng.choice([0.0, 0.5, 1.0, 1.5])),
    }
    if rng.random() < 0.5:
        fields["real_prize"] = [0, *(rng.integers(0, 9, n) / 8).tolist()]
    plans = [(*order, 0) for m in range(n + 1) for order in permutations(range(1, n + 1), m)]
    data = {name: np.array([value]) for name, value in fields.items()}
    cost = PCTSP.get_costs(data, padded(plans), on_violation="inf")[0]
    accepted = {plan: c for plan, c in zip(plans, cost, strict=True) if np.isfinite(c)}
    finished = {tuple(row.tour): -row.earned for row in finished_rows(pctsp.PCTSP(**fields))}
    assert set(finished) == set(accepted), fields
    assert all(accepted[plan] == pytest.approx(c, abs=1e-9) for plan, c in finished.items())
    return len(finished)
