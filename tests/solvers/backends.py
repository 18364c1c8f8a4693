"""Helpers for the tests of PyVRP and OR-Tools: problems from instances, the checker's cost, every plan."""

from __future__ import annotations

import importlib
from itertools import permutations, product

import numpy as np

import milkrun
from milkrun.core.fields import Role
from milkrun.solvers.problem import of_world

RECTANGLE = np.array([[[0, 0], [3, 0], [3, 4], [0, 4]]], np.float32)
PRIZES = {"prize": [[0, 10, 10, 1]]}
WASTE = {"waste": [[0, 0.5, 1, 0.3]], "max_waste": [1.0]}
THIRD = {"must_go": [[False, False, False, True]]}
PAYS_WASTE = {"waste_weight": 10.0, "length_weight": 1.0, "overflow_weight": 10.0}

BY_HAND = {
    "tsp": ("TSP", {}, {}, 14),
    "cvrp": ("CVRP", {"demand_units": [[0, 5, 5, 5]], "capacity": [10]}, {}, 18),
    "vrpp": ("VRPP", PRIZES, {"length_weight": 1.0}, -8),
    "vrpp, 12 fits 12": ("VRPP", {**PRIZES, "max_length": [12.0]}, {"length_weight": 1.0}, -8),
    "cvrpp": ("CVRPP", {**PRIZES, "weight": [[0, 10, 10, 1]], "capacity": [15.0]}, {"length_weight": 1.0}, -4),
    "wcvrp": ("WCVRP", {**WASTE, "capacity": [1.6]}, PAYS_WASTE, -3),
    "wcvrp, 3 must go": ("WCVRP", {**WASTE, **THIRD, "capacity": [1.6]}, PAYS_WASTE, -1),
    "cwcvrp": ("CWCVRP", {**WASTE, "capacity": [1.0]}, PAYS_WASTE, 0),
}
"""By hand: name, fields in addition to the rectangle, options, cost of the best plan."""


class Case:
    """Instances of a world (fields over nodes, or from a generator), in the form of solvers and checkers."""

    def __init__(self, name, instances, **config):
        given = {key: np.asarray(value) for key, value in instances.items()}
        for key, value in given.items():
            if value.dtype == np.float64:
                given[key] = value.astype(np.float32)
        places = given["dist"] if "dist" in given else given["locs"]
        if "dist" in given:
            config = {"metric": "matrix", **config}
        apart = name != "TSP" and "depot" not in given
        self.world = milkrun.make(f"milkrun/{name}-v0", num_envs=len(places), num_loc=places.shape[1] - apart, **config)
        self.world.reset(instance=given)
        fields = [f.name for f in self.world.fields.values() if f.role is Role.INSTANCE]
        arrays = {name: getattr(self.world, name) for name in fields}
        self.arrays = {name: array for name, array in arrays.items() if 0 not in array.shape}
        self.problem = of_world(self.world, self.arrays)

    def __len__(self):
        return len(self.problem)

    def cost(self, plans, b):
        """The checker's cost, inf if a plan breaks a rule."""
        module, _, name = self.world.task.partition(":")
        task, config = getattr(importlib.import_module(module), name), self.world.config
        weights, modes = None, {}
        if name not in ("TSP", "CVRP"):
            paid = ("waste", config.waste_weight) if "waste" in self.arrays else ("prize", config.prize_weight)
            weights = dict([paid], length=config.beta)
            if "waste" in self.arrays:
                weights["overflow"] = config.overflow_price
            modes = {"trips": config.trips, "must_go_reserve": config.must_go_reserve}
        dataset = {key: value[b : b + 1] for key, value in self.arrays.items()}
        pi = np.asarray(plans, np.int64)
        if name == "TSP":
            pi = np.pad(pi, ((0, 0), (0, 1)))
        return task.get_costs(dataset, pi, weights, metric=config.metric, on_violation="inf", **modes)[0]

    def solve(self, backend, b=0, iterations=1000, seed=0, time_limit=1.0):
        """The plan and its cost; asserts that the plan is valid."""
        actions, proven = backend.solve_one(self.problem, b, time_limit, seed, iterations)
        assert not actions or (actions[0] != 0 and actions[-1] != 0)
        cost = float(self.cost([actions or [0]], b)[0])
        assert np.isfinite(cost), actions
        return actions, cost, proven


def every_plan(customers, multi):
    """Every order of every subset of customers, with every choice of returns if several trips are allowed."""
    plans = [()]
    for count in range(1, customers + 1):
        for order in permutations(range(1, customers + 1), count):
            for cuts in product((False, True), repeat=count - 1) if multi else [(False,) * (count - 1)]:
                plan = [order[0]]
                for cut, node in zip(cuts, order[1:]):
                    plan += [0, node] if cut else [node]
                plans.append(tuple(plan))
    width = max(map(len, plans)) + 1
    return np.array([plan + (0,) * (width - len(plan)) for plan in plans], np.int64)
