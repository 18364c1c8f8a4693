"""Every sequence of actions and every short plan of tiny problems with a drone: the checker accepts exactly what the
mask allows.

The legal plays of a world are listed once as a tree. Each sequence up to some length, legal or not, is then looked up
in the tree and validated by the checker, which does not use the mask. Replay and checker are compared on plans of
operations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import product

import numpy as np
import pytest

from milkrun.core.errors import BadSolution, MilkrunError
from milkrun.delivery.instances import TSPDInstance
from milkrun.delivery.tasks import TSPDProblem, check_operations, tspd_cost
from milkrun.delivery.tspd import TSPD


@dataclass
class Moment:
    """A state of the only row: the cost of an ended play, and the next state of each legal action."""

    cost: float | None
    after: dict[int, Moment] = field(default_factory=dict)


def tree_of(world):
    """All legal plays from here on."""
    state = world.state_dict()
    if world.terminated[0]:
        return Moment(-float(world.objective[0]))
    found = Moment(None)
    for action in np.flatnonzero(world.action_mask[0]).tolist():
        world.load_state_dict(state)
        world.step([action])
        found.after[action] = tree_of(world)
    return found


def cost_of_play(moment, plan):
    """The cost of a sequence that is a whole legal play followed by zeros; None for any other sequence."""
    for action in plan:
        if moment.cost is not None:
            if action != 0:
                return None
        elif action not in moment.after:
            return None
        else:
            moment = moment.after[action]
    return moment.cost


def whole_plays(moment, plan=()):
    if moment.cost is not None:
        yield plan
    for action, after in moment.after.items():
        yield from whole_plays(after, (*plan, action))


def costs(world, plans):
    fields = (f.name for f in world.fields.values() if f.role.value == "instance")
    data = {name: np.repeat(getattr(world, name), len(plans), axis=0) for name in fields}
    return TSPDProblem.get_costs(data, plans, on_violation="inf")[0]


def edited(plays, choices, rng, count):
    """Plays with an action inserted, removed or replaced, also by an invalid one, followed by zeros."""
    wide = max(map(len, plays)) + 1
    for _ in range(count):
        plan = list(plays[rng.integers(len(plays))])
        at, action = int(rng.integers(len(plan))), int(rng.integers(-1, choices + 1))
        plan[at : at + int(rng.integers(2))] = [action] if rng.integers(3) else []
        yield [*plan, *[0] * (wide - len(plan))]


def agree(world, most, edits):
    tree, choices, counts = tree_of(world), world.sizes["choices"], [0, 0]
    batches = [np.array(list(product(range(choices), repeat=length))) for length in range(1, most + 1)]
    batches.append(np.array(list(edited(list(whole_plays(tree)), choices, np.random.default_rng(0), edits))))
    for plans in batches:
        for plan, cost in zip(plans.tolist(), costs(world, plans).tolist(), strict=True):
            expected = cost_of_play(tree, plan)
            assert np.isfinite(cost) == (expected is not None), (plan, cost, expected)
            assert expected is None or cost == pytest.approx(expected, rel=1e-12), plan
            counts[expected is None] += 1
    return counts


LINE = [[0, 0], [3, 4], [6, 0]]
CASES = {
    "free": {"locs": LINE},
    "two nodes": {"locs": LINE[:2]},
    "a short flight": {"locs": LINE, "max_fly": 5.0},
    "no flight": {"locs": LINE, "max_fly": 1.0},
    "not by drone": {"locs": LINE, "no_visit": [1]},
    "forbidden": {"locs": LINE, "forbid": [2]},
    "forbidden depot": {"locs": LINE, "forbid": [0]},
    "all in one place": {"locs": [[1, 1]] * 3},
}
INSTANCES = {name: partial(TSPDInstance.of_places, name, **fields) for name, fields in CASES.items()}


def begun(instance, **options):
    return TSPD.from_instances([instance], autoreset="disabled", **options)


@pytest.mark.parametrize("name", INSTANCES)
def test_a_sequence_is_accepted_where_the_mask_allows_it(name):
    """A sequence is a whole legal play followed by zeros, or the checker refuses it; both find the same cost."""
    accepted, refused = agree(begun(INSTANCES[name]()), 3, 150)
    assert accepted > 0 and refused > 0


def test_a_padded_instance_gives_the_same_result():
    """Three nodes in a world of five: actions that name padding are refused, launches begin at 5."""
    accepted, refused = agree(begun(INSTANCES["free"](), num_nodes=5), 3, 300)
    assert accepted > 0 and refused > 0


@pytest.mark.long
@pytest.mark.parametrize("name", INSTANCES)
def test_all_sequences_of_six_actions_agree(name):
    """137,256 sequences of three nodes' seven actions, and 3,000 edited plays."""
    agree(begun(INSTANCES[name]()), 6, 3000)


@pytest.mark.long
def test_random_four_nodes_agree():
    """Twenty random problems of four nodes with limits and forbidden nodes: edited plays."""
    rng = np.random.default_rng(1)
    for k in range(20):
        instance = TSPDInstance.of_places(
            f"draw {k}",
            rng.integers(0, 9, (4, 2)),
            1.0,
            float(rng.choice([0.5, 1.0, 2.0])),
            max_fly=float(rng.choice([3.0, 6.0, 9.0, np.inf])),
            no_visit=np.flatnonzero(rng.random(4) < 0.2),
            forbid=np.flatnonzero(rng.random(4) < 0.2),
        )
        agree(begun(instance), 3, 1500)


def replayed(instance, plan):
    try:
        return TSPD.replay(instance, plan)[0]["makespan"]
    except BadSolution:
        return None


def checked(instance, plan):
    try:
        return tspd_cost(instance, plan)
    except BadSolution:
        return None


def agree_on_operations(instance, plans):
    """Both refuse a plan, or find the same cost; returns the numbers of accepted and refused plans."""
    counts = [0, 0]
    for plan in plans:
        cost, makespan = checked(instance, plan), replayed(instance, plan)
        assert (cost is None) == (makespan is None), plan
        assert cost is None or cost == pytest.approx(makespan, rel=1e-12), plan
        counts[cost is None] += 1
    return counts


def all_operations(nodes):
    """Every operation of these nodes with up to two between, also invalid ones."""
    named = range(nodes)
    between = [(), *product(named), *product(named, repeat=2)]
    return [(s, e, f, inside) for s in named for e in named for f in range(-1, nodes) for inside in between]


def test_one_operation_is_replayed_where_the_checker_accepts_it():
    """Every single operation of two nodes: a valid one starts and ends at the depot and covers the other node."""
    accepted, refused = agree_on_operations(INSTANCES["two nodes"](), ([op] for op in all_operations(2)))
    assert accepted == 3 and refused == 81  # by drone from the depot; by truck and back, node listed once or twice


@pytest.mark.parametrize("wrong", [(1, 1, -1, ()), (2, 2, -1, ())])
@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_an_empty_operation_is_allowed_only_at_the_truck(wrong, at):
    """Checker and replay accept an empty operation at the truck's place, and refuse it elsewhere."""
    instance, plan = INSTANCES["free"](), [(0, 1, -1, ()), (1, 2, -1, ()), (2, 0, -1, ())]
    plan.insert(at, wrong)
    there = wrong[0] == (0, 1, 2, 0)[at]
    assert (checked(instance, plan) is not None) == (replayed(instance, plan) is not None) == there


STRANGE = [
    None, 5, (), (0, 1), (0, 1, -1), (0, 1, -1, 2), (0, 1.0, -1, ()), (0, True, -1, ()), (0, 1, -1, (2.5,)),
    (0, 1, None, ()), ("0", 1, -1, ()), (0, 3, -1, ()), (-1, 1, -1, ()), (0, 1, -2, ()), (0, 1, 3, ()),
    (0, 1, -1, (7,)), (0, 1, -1, (-1,)), (0, 10**30, -1, ()), (0, 1, np.nan, ()),
]  # fmt: skip


@pytest.mark.parametrize("operation", STRANGE, ids=repr)
def test_a_malformed_operation_is_refused_by_both(operation):
    """Not four parts, no nodes, or nodes that do not exist: a MilkrunError from checker and replay."""
    instance = INSTANCES["free"]()
    for validate in (check_operations, TSPD.replay):
        with pytest.raises(MilkrunError):
            validate(instance, [operation, (1, 2, -1, ()), (2, 0, -1, ())])


@pytest.mark.parametrize("plan", [None, 5, 1.5], ids=repr)
def test_a_malformed_plan_is_refused_by_both(plan):
    """A plan is a list of operations."""
    for validate in (check_operations, TSPD.replay):
        with pytest.raises(MilkrunError, match="a plan is a list of operations"):
            validate(INSTANCES["free"](), plan)


@pytest.mark.long
@pytest.mark.parametrize("name", ["free", "a short flight", "forbidden"])
def test_plans_of_two_operations_agree(name):
    """Every pair of operations of three nodes that begins at the depot, with at most one node between."""
    singles = [op for op in all_operations(3) if len(op[3]) < 2]
    plans = ([a, b] for a in singles if a[0] == 0 for b in singles if b[0] == a[1])
    accepted, refused = agree_on_operations(INSTANCES[name](), plans)
    assert accepted > 0 and refused > 0
