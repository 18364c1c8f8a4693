"""Replays a solution in the world, step by step, and in the checker, which shares no code with it.

If the two results differ, the fault is in Milkrun and an error is raised.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError, IllegalAction, MilkrunError
from milkrun.core.references import refer
from milkrun.core.registry import world_spec
from milkrun.routing.instances.instance import Instance
from milkrun.routing.instances.solutions import Solution, read_routes

Routes = Iterable[Sequence[int]]


def replay(instance: Instance, solution: Solution | Routes) -> tuple[float, bool, str | None]:
    """(cost as published, True, None), or (inf, False, the broken rule).

    `solution` is the result of `read_solution`, or routes of customers in the numbers of the file; for a TSP, one route
    of nodes from 0. With several depots, route k is driven by vehicle k, unless the solution names depots.
    """
    if not isinstance(instance, Instance):
        raise ConfigError(f"replay takes an Instance, not a {type(instance).__name__}")
    given = solution.routes if isinstance(solution, Solution) else solution
    routes = [list(route) for route in read_routes(given)]
    depots = solution.depots if isinstance(solution, Solution) else None
    if wrong := _misnamed(instance, routes) or _without_fixed_edge(instance, routes) or _unserved(instance, routes):
        return math.inf, False, wrong
    found = _depots(instance, routes, depots)
    if isinstance(found, str):
        return math.inf, False, found
    instance = dataclasses.replace(instance, fixed_edges=())
    plan = _actions(instance, _nodes(instance, routes), found)
    played, refused = _play(instance, plan)
    checked, broken = _check(instance, plan)
    if (refused is None) != (broken is None):
        raise MilkrunError(f"{instance.name}: the world says {refused or 'valid'!r}, the checker {broken or 'valid'!r}")
    if broken is not None:
        return math.inf, False, broken
    if isinstance(solution, Solution) and (wrong := _ends_elsewhere(solution)):
        return math.inf, False, wrong
    if not agree(played, checked):
        raise MilkrunError(f"{instance.name}: objective {played:.10g} in the world, {checked:.10g} in the checker")
    return instance.published(checked), True, None


def solution_of(instance: Instance, actions: Sequence[int]) -> Solution:
    """The routes in the actions of a world, in the numbers of the file; with several depots one a vehicle, in order."""
    depots, actions = instance.num_depots, [int(a) for a in actions]
    if instance.numbers:
        actions = [instance.numbers[a] for a in actions]
    if instance.is_tour:
        return Solution(((0, *(node for node in actions if node != 0)),))
    shift, at = instance.first_customer - depots, 0
    driven: list[tuple[int, list[int]]] = [(0, [])]
    for node in actions:
        if node < depots:
            at = node
            driven.append((at, []))
        else:
            driven[-1][1].append(node + shift)
    driven = [(depot, route) for depot, route in driven if route]
    if depots == 1:
        return Solution(tuple(tuple(route) for _, route in driven))
    waiting = {k: [tuple(route) for depot, route in driven if depot == k] for k in range(depots)}
    found = [waiting[depot].pop(0) if waiting[depot] else () for depot in instance.vehicle_depots]
    if any(waiting.values()):
        return Solution(tuple(tuple(r) for _, r in driven), depots=tuple(depot for depot, _ in driven))
    return Solution(tuple(found), depots=instance.vehicle_depots)


def agree(played: float, checked: float) -> bool:
    """Equal within the world's single precision; whole numbers to the last digit while it can hold them."""
    size = max(1.0, abs(checked))
    return abs(played - checked) <= max(min(0.4, 1e-5 * size), 1e-7 * size)


def _misnamed(instance: Instance, routes: list[list[int]]) -> str | None:
    """A fault in the node numbers, if any."""
    tour = instance.is_tour
    if tour and len(routes) != 1:
        return f"a tour is one route, not {len(routes)}"
    if tour and len(routes[0]) > instance.n:  # the checker would read a 0 at the end as padding
        return f"the tour has {len(routes[0])} stops for {instance.n} nodes"
    low = 0 if tour else instance.first_customer
    high = low + instance.n - 1
    for k, route in enumerate(routes, start=1):
        for node in route:
            if not low <= node <= high:
                return f"route {k} names {node}, which does not exist: {low}..{high}"
    return None


def _without_fixed_edge(instance: Instance, routes: list[list[int]]) -> str | None:
    """A fixed edge missing from the tour, if any."""
    driven = {frozenset(leg) for route in routes for leg in zip(route, [*route[1:], *route[:1]])}
    missing = (edge for edge in instance.fixed_edges if frozenset(edge) not in driven)
    return next((f"the tour lacks the fixed edge between nodes {i} and {j}" for i, j in missing), None)


def _unserved(instance: Instance, routes: list[list[int]]) -> str | None:
    """A customer that no route serves, if the fleet is limited: the world would end and charge for it."""
    if instance.fleet != "enforce":
        return None
    first = instance.first_customer
    left = set(range(first, first + instance.n)).difference(*routes)
    return f"customer {min(left)} is not served" if left else None


def _depots(instance: Instance, routes: list[list[int]], named: Sequence[int] | None) -> list[int] | str:
    """The depot of each route, or the reason why there is none."""
    count = instance.num_depots
    if count <= 1:
        return [0] * len(routes)
    if named is None:
        if len(routes) > len(instance.vehicle_depots):
            return f"route {len(instance.vehicle_depots) + 1} has no vehicle: there are {len(instance.vehicle_depots)}"
        return list(instance.vehicle_depots[: len(routes)])
    if len(named) != len(routes):
        return f"{len(named)} depots are named for {len(routes)} routes"
    wrong = [k for k, depot in enumerate(named) if not 0 <= depot < count]
    return f"route {wrong[0] + 1} is of depot {named[wrong[0]] + 1} of {count}" if wrong else list(named)


def _ends_elsewhere(solution: Solution) -> str | None:
    """A route that ends at another depot than its own, if any."""
    pairs = enumerate(zip(solution.depots or (), solution.ends or (), strict=False), start=1)
    said = (
        f"route {k} leaves depot {start + 1} and ends at depot {end + 1}" for k, (start, end) in pairs if start != end
    )
    return next(said, None)


def _nodes(instance: Instance, routes: list[list[int]]) -> list[list[int]]:
    """The routes in the order of the world's nodes, if the file has another one."""
    if not instance.numbers:
        return routes
    place = {number: node for node, number in enumerate(instance.numbers)}
    return [[place[number] for number in route] for route in routes]


def _actions(instance: Instance, routes: list[list[int]], depots: list[int]) -> list[int]:
    """The actions of a plan: customers, and the depot of the next vehicle after each route."""
    if instance.is_tour:
        return routes[0]
    count, shift = instance.num_depots, instance.num_depots - instance.first_customer
    driven = [(depot, route) for depot, route in zip(depots, routes, strict=True) if route]
    following = [depot for depot, _ in driven[1:]] + [depot for depot, _ in driven[-1:]]
    start = [depot for depot, _ in driven[:1]] if count > 1 else []
    return start + [
        a for (_, route), depot in zip(driven, following, strict=True) for a in (*(j + shift for j in route), depot)
    ]


def _play(instance: Instance, plan: list[int]) -> tuple[float, str | None]:
    """The objective in the world, or its reason for refusing the plan."""
    options: dict[str, Any] = {"start": "free"} if instance.is_tour else {}
    world = instance.world(illegal="raise", autoreset="disabled", max_steps=None, record=False, **options)
    for k, node in enumerate(plan):
        if world.terminated[0]:
            return math.inf, f"the episode ends after {k} of {len(plan)} actions"
        try:
            world.step(np.array([node]))
        except IllegalAction as e:
            return math.inf, str(e)
    if not world.terminated[0] and world.action_mask[0, 0] and world.current_node[0] == 0:
        world.step(np.array([0]))  # worlds with prizes end when the vehicle stays at the depot
    if not world.terminated[0]:
        return math.inf, f"the episode has not ended after {len(plan)} actions"
    return float(world.objective[0]), None


def _check(instance: Instance, plan: list[int]) -> tuple[float, str | None]:
    """The objective by the checker, or the broken rule."""
    world = world_spec(instance.world_id).load()
    checker, config = refer(world, "task"), world.Config.build(config=instance.config)
    dataset = {field: np.asarray(value)[None] for field, value in instance.arrays().items()}
    rules, pi = world.task_options(config), np.array([plan or [0]], np.int64)
    valid, reasons = checker.check(dataset, pi, **rules)
    if not valid[0]:
        return math.inf, reasons[0]
    cost, _, _ = checker.get_costs(dataset, pi, world.task_weights(config), **rules)
    return -float(cost[0]), None
