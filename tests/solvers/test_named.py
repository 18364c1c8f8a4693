"""One list of names: policies and methods of `solve` are interchangeable."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import ConfigError
from milkrun.core.instances import instances_of
from milkrun.solvers import evaluate, random_policy, rollout, solve
from milkrun.solvers.named import choose_player, players_of

CASES = [
    ("milkrun/TSP-v0", "insertion", {"num_loc": 8}),
    ("milkrun/CVRP-v0", "savings", {"num_loc": 8}),
    ("milkrun/CVRP-v0", "pyvrp", {"num_loc": 5}),
    ("milkrun/VRPP-v0", "ls", {"num_loc": 8}),
    ("milkrun/CWCVRP-v0", "ls", {"num_loc": 8}),
    ("milkrun/DARP-v0", "insertion", {"num_requests": 4}),
    ("milkrun/TSPD-v0", "exact", {"num_nodes": 6}),
]


@pytest.mark.parametrize(("world_id", "method", "options"), CASES)
def test_a_played_method_returns_its_cost(world_id, method, options):
    """Two episodes of each of three rows: every return is minus the cost of `solve` for that instance."""
    world = milkrun.make(world_id, 3, seed=4, **options)
    result = evaluate(world, method, 6, seed=7)
    again = milkrun.make(world_id, 3, seed=7, autoreset="disabled", **options)
    for episode in range(2):
        again.reset()
        names = again.solver_options
        known = again.config.as_dict()
        known = known if names is None else {name: known[name] for name in names if known[name] is not None}
        cost = solve(world_id, instances_of(again), method, seed=7, **known).cost
        np.testing.assert_allclose(result.returns[3 * episode : 3 * episode + 3], -cost, rtol=1e-5, atol=1e-5)
    assert not result.illegal.any()


def test_a_policy_by_its_name_is_that_policy():
    """The policy has the seed of the evaluation."""
    world = milkrun.make("milkrun/CVRP-v0", 8, num_loc=6)
    by_name, itself = evaluate(world, "random", 8, seed=3), evaluate(world, random_policy(3), 8, seed=3)
    assert (by_name.returns == itself.returns).all()
    assert (evaluate(world, "nearest", 8, seed=3).returns > by_name.returns).mean() > 0.5


def test_a_new_instance_under_the_same_seed_gets_a_new_plan():
    """One policy plays two instances sequentially, both as episode 0 of the same row."""
    world = milkrun.make("milkrun/TSP-v0", 1, seed=1, num_loc=4, autoreset="disabled")
    policy = choose_player(world.id, "exact")[1](0)
    square = np.array([[0, 0], [0, 1], [1, 1], [1, 0]], float)
    for order in ([0, 1, 2, 3], [0, 2, 1, 3]):
        world.reset(seed=1, instance={"locs": square[None, order]})
        rollout(world, policy)
        assert world.objective[0] == pytest.approx(-4)


@pytest.mark.parametrize(("world_id", "policy"), [("milkrun/CVRP-v0", "random"), ("milkrun/VRPP-v0", "greedy")])
def test_a_policy_solves_instances_as_it_plays_them(world_id, policy):
    """The answer of `solve` is the policy's route, with the checker's cost."""
    world = milkrun.make(world_id, 4, seed=2, num_loc=6, autoreset="disabled")
    world.reset()
    given = instances_of(world)
    found = solve(world_id, given, policy, seed=5, **world.config.as_dict())
    world.reset(instance=given)
    rollout(world, policy)
    assert found.cost.shape == (4,) and not found.optimal.any()
    if policy != "random":  # its draws depend on the seeds of the rows
        np.testing.assert_allclose(found.cost, -world.objective, rtol=1e-5)


def test_a_solution_that_is_no_list_of_actions_is_not_played():
    """A tour is no list of 2-opt moves (regression)."""
    assert "exact" not in players_of("milkrun/TSPKopt-v0")
    with pytest.raises(ConfigError, match="'exact' returns solutions of milkrun/TSPKopt-v0, not actions"):
        choose_player("milkrun/TSPKopt-v0", "exact")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: choose_player("milkrun/CVRP-v0", "savigns"), "did you mean 'savings'"),
        (lambda: evaluate(milkrun.make("milkrun/CVRP-v0", 2), "highest", 2), "has no policy or method 'highest'"),
        (lambda: solve("milkrun/CVRP-v0", {}, "gready"), "method='gready' is unknown"),
        (lambda: evaluate(milkrun.make("milkrun/DARP-v0", rule="deadlines"), "insertion", 2), "DARPDeadlines has no"),
    ],
)
def test_unknown_names_are_refused_with_the_available_ones(call, said):
    """Also a method that the world has only under its other rule."""
    with pytest.raises(ConfigError, match=said):
        call()
