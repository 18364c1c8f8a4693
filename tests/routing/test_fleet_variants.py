"""The 48 variants of one set of instances: best known plans and random plans, by checker and scalar reference.

The instances follow RouteFinder's law, PyVRP found the plans. The file is in the folder that MILKRUN_DATA names.
"""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from milkrun.routing.tasks import VRP
from tests.published import published_file
from tests.reference import vrp
from tests.routing.fleet_cases import dataset, padded

NAME = re.compile(r"(?P<depots>md)?(?P<open>o)?(?P<plain>c)?vrp(?P<mixed>m)?(?P<back>b)?(?P<limit>l)?(?P<windows>tw)?")
ATTRIBUTES = product(("", "md"), ("", "o"), ("", "b", "mb"), ("", "l"), ("", "tw"))
VARIANTS = [f"{depots}{o if any((o, *rest)) else 'c'}vrp{''.join(rest)}" for depots, o, *rest in ATTRIBUTES]
HORIZON = 4.6


@cache
def reference() -> dict[str, Any]:
    return json.loads(published_file("routing2/reference-n20.json").read_text())


def variant_fields(name: str, instance: dict[str, Any]) -> dict[str, Any]:
    """The fields of a variant: what its name leaves out is switched off."""
    has = NAME.fullmatch(name).groupdict()
    k = 3 if has["depots"] else 1
    back = np.array(instance["backhaul"]) & bool(has["back"])
    demand = np.array(instance["demand"])
    fields: dict[str, Any] = {
        "locs": np.array([*instance["depots"][:k], *instance["customers"]], np.float32),
        "num_depots": k,
        "linehaul": [0] * k + np.where(back, 0, demand).tolist(),
        "backhaul": [0] * k + np.where(back, demand, 0).tolist(),
        "backhaul_class": 2 if has["mixed"] else 1,
        "capacity": [instance["capacity"]] * k,
        "open_route": bool(has["open"]),
    }
    if has["limit"]:
        fields["distance_limit"] = [instance[f"limit_{k}"]] * k
    if has["windows"]:
        windows = zip(instance[f"window_open_{k}"], instance[f"window_close_{k}"], strict=True)
        fields["time_windows"] = [(0.0, HORIZON)] * k + list(windows)
        fields["service_time"] = [0.0] * k + instance["service"]
    return fields


def test_there_are_48_variants():
    """The names of the file are those that the attributes make."""
    assert len(set(VARIANTS)) == 48 and set(VARIANTS) == set(reference()["variants"])


@pytest.mark.truth
@pytest.mark.parametrize("name", VARIANTS)
def test_best_plans_of_a_variant(name):
    """On 16 instances the checker finds the cost to 1e-5, and the mask allows every action."""
    best = reference()["variants"][name]
    for instance, cost, routes in zip(reference()["instances"], best["cost"], best["routes"], strict=True):
        fields = variant_fields(name, instance)
        data = dataset(fields)
        pi = VRP.from_routes(data, routes)
        assert VRP.get_costs(data, pi)[0].item() == pytest.approx(cost, abs=1e-5)
        row = vrp.VRP(**fields)
        for a in pi[0].tolist():
            assert a in row.mask(), (name, row.tour, a)
            row.step(a)
        assert row.terminated and -row.objective == pytest.approx(cost, abs=1e-5)


def random_episodes(name: str, episodes: int, rng: np.random.Generator) -> np.ndarray:
    """Costs of uniformly random allowed actions, (16, episodes), each plan valid by the checker."""
    costs = []
    for instance in reference()["instances"]:
        fields = variant_fields(name, instance)
        rows = [vrp.VRP(**fields) for _ in range(episodes)]
        for row in rows:
            while not row.finished:
                actions = sorted(row.mask())
                row.step(actions[rng.integers(len(actions))])
            assert row.unserved == 0
        cost = VRP.get_costs(dataset(fields), padded([row.tour for row in rows]))[0]
        assert cost == pytest.approx([-row.objective for row in rows], abs=1e-9)
        costs.append(cost)
    return np.array(costs)


@pytest.mark.parametrize("name", VARIANTS)
def test_random_plans_of_a_variant(name):
    """Every random episode of the reference is valid and costs the same by the checker."""
    random_episodes(name, 1, np.random.default_rng(20))
