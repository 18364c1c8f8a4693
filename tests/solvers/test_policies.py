"""The policies choose by their rules on instances by hand, and reach the published means."""

from __future__ import annotations

import re

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import ConfigError, RegistryError
from milkrun.routing.cvrp import CVRP
from milkrun.routing.tsp import TSP
from milkrun.solvers import add_policy, evaluate, nearest, policies, policies_for, random_policy, rollout

LINE = {"locs": [[0, 0], [5, 0], [2, 0], [3, 0]]}


def played(cls, instance, policy=nearest, **config):
    """The actions of the policy in one episode of one instance, and its return."""
    nodes = len(next(iter(instance.values())))
    world = milkrun.make(cls.id, num_loc=nodes - cls.depot_apart, autoreset="disabled", **config)
    world.reset(instance={name: np.asarray(value)[None] for name, value in instance.items()})
    rollout(world, policy)
    return world.solution()[0].tolist(), float(world.objective[0])


def test_tsp_goes_to_the_nearest_unvisited_node_and_home_last():
    """From 0 to 2 (2 away), 3 (1), 1 (2) and 5 back."""
    assert played(TSP, LINE) == ([2, 3, 1, 0], -10.0)


def test_a_free_tour_starts_at_node_0():
    """Every node is allowed first; the tour is the same cycle."""
    assert played(TSP, LINE, start="free") == ([0, 2, 3, 1], -10.0)


def test_a_tie_goes_to_the_lower_index():
    """Three nodes are 1 away from the start: 1 is taken; from there 3 is at 1.41 and 2 at 2."""
    actions, _ = played(TSP, {"locs": [[0, 0], [1, 0], [-1, 0], [0, 1]]})
    assert actions == [1, 3, 2, 0]


def test_cvrp_skips_customers_that_do_not_fit():
    """Capacity 10: after the 3 of customer 1 the 8 of customer 2 do not fit; 3 is next, though the depot is nearer."""
    instance = {"locs": [[0, 0], [1, 0], [2, 0], [3, 0]], "demand_units": [0, 3, 8, 6], "capacity": 10}
    assert played(CVRP, instance) == ([1, 3, 0, 2, 0], -10.0)


def test_a_matrix_is_read_from_the_current_node():
    """d(0, 1) = 1 < d(0, 2) = 2, though the way back from 2 is the shorter one."""
    matrix = np.array([[0, 1, 2], [9, 0, 4], [1, 4, 0]], np.float32)
    assert played(TSP, {"dist": matrix}, metric="matrix") == ([1, 2, 0], -6.0)


def test_padding_is_never_chosen():
    """Batched with a larger instance, the small one visits only its two nodes."""
    small = {"locs": np.array([[0, 0], [3, 4]], np.float32)}
    world = TSP.from_instances([small, {"locs": np.asarray(LINE["locs"], np.float32)}], autoreset="disabled")
    rollout(world, nearest)
    assert world.objective.tolist() == [-10.0, -10.0]
    assert world.tour_len.tolist() == [2, 4]


def test_random_uses_the_next_turn_at_each_step():
    """Step k draws `sample_actions(seed, k)`, also in repeated calls; the next episode restarts."""
    world = milkrun.make("milkrun/TSP-v0", num_envs=50, seed=1)
    first = []
    for _ in range(2):
        world.reset()
        for turn in range(3):
            actions = random_policy(4)(world)
            assert (actions == world.sample_actions(4, turn)).all() and (actions == random_policy(4)(world)).all()
            first += [actions] if turn == 0 else []
            world.step(actions)
    assert (first[0] != first[1]).any()


@pytest.mark.parametrize(
    "world_id, options",
    [
        ("milkrun/CVRP-v0", {"num_loc": 7}),
        ("milkrun/TruckDrone-v0", {"max_steps": 9}),
        ("milkrun/TSPKopt-v0", {"moves": "3opt", "num_loc": 9, "max_steps": 5}),
        ("milkrun/Tracking-v0", {"action_mode": "velocity", "max_steps": 4}),
    ],
)
def test_random_draws_the_same_for_a_row_in_any_batch(world_id, options):
    """Rows 3 and 4 of six and alone, for one choice, several, pairs and real numbers; also with a used policy
    object."""
    policy = random_policy(2)
    whole = milkrun.make(world_id, num_envs=6, seed=5, autoreset="disabled", **options)
    some = milkrun.make(world_id, num_envs=2, seed=5, first_row=3, autoreset="disabled", **options)
    for _ in range(2):
        whole.reset()
        some.reset()
        while not whole.done[3:5].any():
            assert (policy(whole)[3:5] == policy(some)).all()
            live = np.flatnonzero(~whole.done)
            whole.step(policy(whole)[live], rows=live)
            some.step(policy(some))


def test_random_is_uniform_among_the_allowed():
    """6,000 first moves among nodes 1, 2, 3: 2,000 each within 4 standard deviations (36.5); node 0 is closed."""
    world = milkrun.make("milkrun/TSP-v0", num_envs=1000, seed=2, num_loc=4)
    world.reset()
    counts = np.bincount(np.concatenate([random_policy(9 + k)(world) for k in range(6)]), minlength=4)
    assert counts[0] == 0
    assert (abs(counts[1:] - 2000) < 146).all()


@pytest.mark.parametrize(
    ("world_id", "policy", "published"),
    [
        ("milkrun/TSP-v0", "nearest", 4.49),
        ("milkrun/CVRP-v0", "nearest", 7.97),
        ("milkrun/CVRP-v0", "random", 13.28),
        ("milkrun/TSP-v0", "random", 0.521405 * 20),
    ],
)
def test_means_of_2000_instances_are_the_published_ones(world_id, policy, published):
    """Sizes of 20, within 4 standard errors (each below 0.4 %) of the values of the literature."""
    world = milkrun.make(world_id, num_envs=1000, num_loc=20)
    result = evaluate(world, policies_for(world_id)[policy](0), 2000, seed=11)
    assert result.standard_error < 0.004 * published
    assert abs(-result.mean - published) < 4 * result.standard_error


def test_random_comes_first_and_then_the_baseline():
    """The nearest customer if all customers are visited; the steepest move if tours are improved."""
    for world_id in milkrun.list_worlds():
        assert next(iter(policies_for(world_id))) == "random"
    for name, second in (("TSP", "nearest"), ("CVRP", "nearest"), ("TSPKopt", "steepest")):
        assert list(policies_for(f"milkrun/{name}-v0")) == ["random", second]


def test_added_policies_extend_those_of_the_class(monkeypatch):
    """Policies added under a family are those of all its worlds. A world with policies under its id does not have those
    of its family, but always those of its class."""
    from milkrun.core import registry

    monkeypatch.setattr(registry, "_worlds", dict(registry._worlds))
    monkeypatch.setattr(policies, "_added", {})
    milkrun.register("tests/Other-v0", "tests.core.toys:Lantern", family="tests", gymnasium=False)
    milkrun.register("tests/Tour-v0", TSP, family="tests", gymnasium=False)
    assert list(policies_for("tests/Other-v0")) == ["random"]
    add_policy("tests", "lazy", lambda seed: nearest)
    assert list(policies_for("tests/Other-v0")) == ["random", "lazy"]
    assert list(policies_for("tests/Tour-v0")) == ["random", "nearest", "lazy"]
    add_policy("tests/Tour-v0", "eager", lambda seed: nearest)
    assert list(policies_for("tests/Tour-v0")) == ["random", "nearest", "eager"]
    with pytest.raises(RegistryError, match="belongs to every world"):
        add_policy("tests", "random", random_policy)


@pytest.mark.parametrize(
    ("policy", "other", "message"),
    [
        (
            "DARP/soonest",
            "TSP",
            "'soonest' is a policy of dial-a-ride: it reads 'current_agent', 'vehicle_finished', "
            "which TSP does not have",
        ),
        ("CVRP/nearest", "TruckDrone", "'nearest' is a policy of a vehicle that drives from node to node: it reads"),
        ("CVRP/nearest", "TSPKopt", "which TSPKopt does not have"),
        ("VRPP/greedy", "CVRP", "'greedy' is a policy of the worlds of profit and waste: it reads 'must_go', "),
        ("SDWCVRP/rolling", "WCVRP", "'rolling' is a policy of the uncertain waste worlds: it reads 'failures', "),
        ("TSPKopt/steepest", "TSP", "'steepest' is a policy of the world that improves a tour, not of TSP"),
        ("TruckDrone/lookahead", "TSP", "this is a policy of the truck-and-drones world, not of TSP"),
        ("TSPD/partition", "TSP", "partition is a policy of the TSP with drone, not of TSP"),
    ],
)
def test_a_policy_of_another_world_is_refused(policy, other, message):
    """The message names the policy, its worlds, and what this world lacks."""
    own, name = policy.split("/")
    world = milkrun.make(f"milkrun/{other}-v0", num_envs=2, seed=1)
    with pytest.raises(ConfigError, match=re.escape(message)):
        evaluate(world, policies_for(f"milkrun/{own}-v0")[name](0), 2)


def test_policies_of_an_unknown_world_are_refused():
    """The message has the nearest name."""
    with pytest.raises(RegistryError, match="CVRP"):
        policies_for("milkrun/CVRQ-v0")


@pytest.mark.parametrize("seed", ["a", 1.5, -1, 2**63, None])
def test_an_invalid_seed_is_refused(seed):
    """By the constructor of the policy, and by `sample_actions`."""
    world = milkrun.make("milkrun/TSP-v0", 2, num_loc=5)
    world.reset()
    for call in (random_policy, world.sample_actions):
        with pytest.raises(ConfigError, match=r"seed .*: must be an integer in 0"):
            call(seed)
    if seed is not None:
        with pytest.raises(ConfigError, match=r"turn=.*: must be an integer"):
            world.sample_actions(0, seed)
