"""Every sequence of actions of tiny dial-a-ride problems: the checker accepts a plan if and only if the mask allows it.

The legal plays of a world are listed once as a tree. Each sequence of nodes up to some length, legal or not, is then
looked up in the tree and validated by the checker, which does not use the mask.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import product

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadInstance
from milkrun.routing.darp import DARP
from milkrun.routing.tasks import DARPProblem
from tests.routing.darp_by_hand import darp


@dataclass
class Moment:
    """A state of the only row: whether it has ended, whether the vehicle is home, and the next state of each legal
    action."""

    ended: bool
    home: bool
    cost: float
    after: dict[int, Moment] = field(default_factory=dict)

    @property
    def stops(self):
        """The active vehicle is home, or may go there."""
        return self.ended or self.home or 0 in self.after


def tree_of(world):
    """All legal plays from here on."""
    state = world.state_dict()
    ended = bool(world.terminated[0])
    found = Moment(ended, int(world.current_node[0]) == 0, -float(world.objective[0]))
    for action in [] if ended else np.flatnonzero(world.action_mask[0]).tolist():
        world.load_state_dict(state)
        world.step([action])
        found.after[action] = tree_of(world)
    return found


def cost_of_episode(moment, plan):
    """Rule `deadlines`: the cost of a plan followed by zeros; None if the mask forbids one of its actions."""
    actions = iter(plan)
    while not moment.ended:
        action = next(actions, 0)
        if action not in moment.after:
            return None
        moment = moment.after[action]
    return None if any(actions) else moment.cost


def is_legal_start(moment, plan):
    """Rule classic: whether the mask allows a plan up to its last stop, with a 0 for each vehicle that stays unused."""
    now = [moment]
    for action in np.trim_zeros(plan, "b"):
        for one in now:  # grows during the iteration
            if one.home and 0 in one.after and not one.ended:
                now.append(one.after[0])
        now = [one.after[action] for one in now if action in one.after]
    return any(one.stops for one in now)


def sequences(nodes, most):
    for length in range(1, most + 1):
        yield length, np.array(list(product(range(nodes), repeat=length)))


def costs(world, plans):
    fields = {f.name: getattr(world, f.name) for f in world.fields.values() if f.role.value == "instance"}
    data = {**fields, "instance_row": np.zeros(len(plans), np.int32)}
    return DARPProblem.get_costs(data, plans, on_violation="inf", **world.task_options(world.config))[0]


def edited(plans, nodes, rng, count):
    """Plans with a node inserted, removed or replaced, also by an invalid one."""
    for _ in range(count):
        plan = list(plans[rng.integers(len(plans))])
        at, node = int(rng.integers(len(plan))), int(rng.integers(-1, nodes + 1))
        plan[at : at + int(rng.integers(2))] = [node] if rng.integers(3) else []
        yield plan or [0]


def whole_plays(moment, plan=()):
    if moment.ended:
        yield plan
    for action, after in moment.after.items():
        yield from whole_plays(after, (*plan, action))


def agree(world, most, compare):
    """Compares all sequences up to a length, and edited whole plays; returns the numbers of accepted and refused
    ones."""
    tree, nodes, counts = tree_of(world), world.sizes["N"], [0, 0]
    batches = [plans for _, plans in sequences(nodes, most)]
    rng = np.random.default_rng(0)
    changed = list(edited(list(whole_plays(tree)), nodes, rng, 150))
    wide = max(map(len, changed))
    batches.append(np.array([[*plan, *[0] * (wide - len(plan))] for plan in changed]))
    for plans in batches:
        for plan, cost in zip(plans.tolist(), costs(world, plans).tolist(), strict=True):
            compare(tree, plan, cost)
            counts[not np.isfinite(cost)] += 1
    return counts


def compare_deadlines(tree, plan, cost):
    expected = cost_of_episode(tree, plan)
    assert np.isfinite(cost) == (expected is not None), (plan, cost, expected)
    if expected is not None:
        assert cost == pytest.approx(expected, rel=1e-6), plan


def compare_classic(tree, plan, cost):
    assert np.isfinite(cost) == is_legal_start(tree, plan), (plan, cost)
    played = cost_of_episode(tree, plan)
    if played is not None:
        assert cost == pytest.approx(played, rel=1e-9), plan


def deadlines_world(places, deadlines, capacity, load=1, speed=1.0):
    loads = np.broadcast_to(load, len(places) // 2)
    demand = [0, *np.stack([loads, -loads], axis=1).ravel().tolist()]
    world = milkrun.make(
        "milkrun/DARP-v0",
        rule="deadlines",
        num_requests=len(places) // 2,
        num_agents=len(capacity),
        speed=speed,
        autoreset="disabled",
    )
    world.reset(
        instance={
            "locs": [[[0, 0], *([x, 0] for x in places)]],
            "demand": [demand],
            "capacity": [capacity],
            "time_windows": [[100, *deadlines]],
        }
    )
    return world


DEADLINES = {
    "in time": partial(deadlines_world, [1, 10, -5, 2], [50] * 4, [2, 2]),
    "one seat": partial(deadlines_world, [1, 10, -5, 2], [50] * 4, [1, 1]),
    "one vehicle": partial(deadlines_world, [1, 10, -5, 2], [50] * 4, [2]),
    "a rider is stranded": partial(deadlines_world, [1, 10, -5, 2], [50, 10, 30, 12], [2, 2]),
    "no request is reached": partial(deadlines_world, [4, 10, -5, 2], [3, 10, 4, 12], [2, 2]),
    "the second vehicle takes no request": partial(deadlines_world, [1, 10, -5, 2], [50] * 4, [2, 1], load=2),
    "no vehicle moves": partial(deadlines_world, [0, 0, 0, 0], [0] * 4, [1, 1]),
    "one request, three vehicles": partial(deadlines_world, [3, 1], [3, 5], [1, 2, 1]),
}


@pytest.mark.parametrize("name", DEADLINES)
def test_under_deadlines_a_plan_is_accepted_where_the_mask_allows_it(name):
    """A sequence followed by zeros is a legal episode, or the checker refuses it; both find the same cost."""
    accepted, refused = agree(DEADLINES[name](), 4, compare_deadlines)
    assert accepted > 0 and refused > 0


def test_under_deadlines_no_vehicle_may_stay_that_could_take_a_request():
    """The vehicle at the depot reaches a pickup in time: neither a 0 nor padding nor the end of a plan lets it stay."""
    world = DEADLINES["in time"]()
    for plan in ([0], [0, 0, 0], [1, 2, 0], [1, 2], [1, 2, 0, 0]):
        assert costs(world, np.array([plan])).tolist() == [np.inf], plan
    assert costs(DEADLINES["no request is reached"](), np.array([[0]])).tolist() == [400.0]


def classic_world(capacity=(2, 2), max_onboard=8, **fields):
    instance = darp(capacity=capacity, **fields)
    return DARP.from_instances([instance], autoreset="disabled", max_onboard=max_onboard)


LINE = {"places": [1, 10, -5, 2]}
CLASSIC = {
    "at any time": partial(classic_world, **LINE),
    "a ride limit": partial(classic_world, **LINE, ride=20.9),
    "windows": partial(classic_world, **LINE, opens=[0, 20, 0, 0], closes=[30, 40, 12, 30]),
    "one seat": partial(classic_world, (1, 1), **LINE),
    "unequal vehicles": partial(classic_world, (1, 2), **LINE),
    "the small one last": partial(classic_world, (2, 1), **LINE),
    "three vehicles": partial(classic_world, (1, 2, 1), **LINE, load=[1, 2]),
    "a vehicle too small": partial(classic_world, (1, 2, 2), **LINE, load=2),
    "one request at once": partial(classic_world, **LINE, max_onboard=1),
    "a short day": partial(classic_world, **LINE, duration=22, service=1, ride=12),
    "one request": partial(classic_world, (1, 2, 1), places=[3, 10]),
}


@pytest.mark.parametrize("name", CLASSIC)
def test_under_classic_a_plan_is_accepted_where_the_mask_allows_it(name):
    """Routes in order, each by a vehicle that may drive it; a plan may stop early with its last vehicle at home."""
    accepted, refused = agree(CLASSIC[name](), 4, compare_classic)
    assert accepted > 0 and refused > 0


def test_under_classic_equal_vehicles_may_not_be_left_unused():
    """A 0 at the depot is legal only before a vehicle of another capacity."""
    assert costs(CLASSIC["at any time"](), np.array([[0, 1, 2, 0]])).tolist() == [np.inf]
    assert costs(CLASSIC["unequal vehicles"](), np.array([[0, 1, 2, 0]])).tolist() == [220.0]


@pytest.mark.long
@pytest.mark.parametrize(("worlds", "compare"), [(DEADLINES, compare_deadlines), (CLASSIC, compare_classic)])
def test_all_plans_of_six_nodes_agree(worlds, compare):
    """The same problems, every sequence of up to six nodes: 19,530 of two requests."""
    for name in worlds:
        agree(worlds[name](), 6, compare)


@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
def test_random_tiny_problems_agree(block):
    """Sixty random problems of two requests on a line under each rule, all sequences of up to five nodes."""
    rng = np.random.default_rng(block)
    for _ in range(15):
        places, capacity = rng.integers(-6, 7, 4).tolist(), rng.integers(1, 4, rng.integers(1, 4)).tolist()
        load = rng.integers(1, 4, 2).tolist()
        agree(deadlines_world(places, rng.integers(0, 25, 4).tolist(), capacity, load), 5, compare_deadlines)
        opens = rng.integers(0, 15, 4)
        fields = {
            "places": places,
            "opens": opens,
            "closes": opens + rng.integers(5, 40, 4),
            "load": load,
            "ride": float(rng.integers(8, 30)),
            "duration": float(rng.integers(30, 90)),
        }
        try:
            world = classic_world(capacity, int(rng.integers(1, 3)), **fields)
        except BadInstance:
            continue
        agree(world, 5, compare_classic)
