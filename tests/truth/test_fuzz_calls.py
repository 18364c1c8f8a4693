"""Strange values for every argument of checkers, solvers and solution files: accepted, or refused by name."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import MilkrunError
from milkrun.routing import tasks
from milkrun.routing.generators import get_generator
from milkrun.routing.instances import read, read_solution, replay, write, write_solution
from milkrun.solvers import RollingHorizon, add_policy, evaluate, exact, nearest, policies_for, rollout, solve
from tests.routing.instance_files import CVRP, TSP, put

pytestmark = [pytest.mark.truth, pytest.mark.filterwarnings("ignore")]

STRANGE = [
    None,
    "x",
    b"abc",
    [],
    {},
    0,
    -1,
    0.5,
    np.nan,
    np.inf,
    -np.inf,
    10**30,
    True,
    1j,
    [[1, 2], [3]],
    [0, 5],
    [0, -1],
    [0.5, 0],
    ["a", "b"],
    np.array([None]),
    np.array([1j, 2]),
    np.zeros(0),
    np.zeros((3, 0)),
    np.zeros((1, 2, 3, 4)),
    object(),
    np.datetime64("2020-01-01"),
    range(3),
    np.array([0, 1], np.uint64),
    np.array([2**63], np.uint64),
]
PROBLEMS = ("TSP", "CVRP", "VRPP", "CVRPP", "WCVRP", "CWCVRP", "SCWCVRP", "SDWCVRP")
FIELDS = (
    "instance_row",
    "n_nodes",
    "max_length",
    "capacity",
    "service_time",
    "time_windows",
    "start_time",
    "must_go",
    "dist",
    "dist_matrix",
    "depot",
    "weight",
    "speed",
    "vehicle_capacity",
    "hidden",
)


def tried(what, call):
    """Makes the call; any exception but a MilkrunError fails the test and prints the argument."""
    try:
        call()
    except MilkrunError as e:
        assert str(e)
    except Exception as e:
        raise AssertionError(f"{what}: {type(e).__name__}: {e}") from e


def instances_of(name):
    made = get_generator("tsp" if name == "TSPKopt" else name.lower(), num_loc=4).generate(2, seed=1)
    return {key: np.asarray(value) for key, value in made.items()}


def some(values, share, seed):
    """All values, or a fixed selection."""
    return [value for value, u in zip(values, np.random.default_rng(seed).random(len(values))) if u < share]


@pytest.mark.parametrize("share", [0.2, pytest.param(1.0, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", PROBLEMS)
def test_checkers(name, share):
    """Every field, limit, mode, weight and plan."""
    checker, data = getattr(tasks, name), instances_of(name)
    pi = np.array([[1, 2, 0, 3, 4, 0]] * 2) if checker.plan_axes == 2 else np.zeros((2, 3, 5), int)
    for k, key in enumerate([*data, *FIELDS]):
        for value in some(STRANGE, share, k):
            given = {**data, key: value}
            tried((name, key, value), lambda given=given: checker.get_costs(given, pi, on_violation="inf"))
    for value in STRANGE:
        for argument in ("metric", "on_violation", "cw_dict", *checker.limits, *checker.modes, "bogus"):
            tried((name, argument, value), lambda a=argument, v=value: checker.get_costs(data, pi, **{a: v}))
        for weight in ("length", "prize", "bogus"):
            tried((name, weight, value), lambda w=weight, v=value: checker.get_costs(data, pi, {w: v}))
        tried((name, "pi", value), lambda v=value: checker.check(data, v))
        tried((name, "tours", value), lambda v=value: checker.validate_tours(v))
        tried((name, "dataset", value), lambda v=value: checker.get_tour_length(v, pi))
        tried((name, "dist_matrix", value), lambda v=value: checker.get_tour_length(data, pi, v))


@pytest.mark.parametrize("share", [0.1, pytest.param(1.0, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["TSP", "CVRP", "VRPP", "CVRPP", "WCVRP", "CWCVRP", "TSPKopt", "DARP"])
def test_solve(name, share):
    """Every field and option."""
    data = instances_of(name)
    for k, key in enumerate([*data, *FIELDS, 3]):
        for value in some(STRANGE, share, k):
            tried((name, key, value), lambda key=key, v=value: solve(name, {**data, key: v}, "insertion"))
    options = ("method", "time_limit", "seed", "rule", "iterations", "metric", "num_loc", "speed", "capacity", "trips")
    for value in some(STRANGE, max(share, 0.3), 99):
        tried((name, "instances", value), lambda v=value: solve(name, v, "insertion"))
        tried(("world", value), lambda v=value: solve(v, data, "insertion"))
        for key in options:
            given = {"method": "insertion", key: value}
            tried((name, key, value), lambda given=given: solve(name, data, **given))


def test_exact_solvers():
    """Matrices, demands and limits."""
    d = np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0]])
    for value in STRANGE:
        for solver in (exact.held_karp, exact.brute_force_tsp):
            tried((solver.__name__, value), lambda s=solver, v=value: s(v))
        for solver in (exact.exact_cvrp, exact.brute_force_cvrp):
            for given in ((value, [0, 1, 1], 2), (d, value, 2), (d, [0, 1, 1], value), (d, [0, 1, 1], 2, value)):
                tried((solver.__name__, value), lambda s=solver, g=given: s(*g))


def test_files_and_solutions(tmp_path):
    """Paths, routes, nodes, costs, instances."""
    instances = [read(put(tmp_path / "a.vrp", CVRP)), read(put(tmp_path / "a.tsp", TSP))]
    for value in STRANGE:
        for name in ("x.sol", "x.tour"):
            path = tmp_path / name
            for routes, cost in ((value, 3), ([value], 3), ([[value]], 3), ([[1, 2]], value)):
                tried((name, routes, cost), lambda p=path, r=routes, c=cost: write_solution(p, r, c))
        if not isinstance(value, int):  # which would be an open file
            for call in (read, read_solution, lambda p: write_solution(p, [[1]]), lambda p: write(instances[0], p)):
                tried(("path", value), lambda c=call, v=value: c(tmp_path / v if isinstance(v, str) else v))
        for instance in instances:
            for routes in (value, [value], [[value]]):
                tried(("replay", routes), lambda i=instance, r=routes: replay(i, r))
            if not (isinstance(value, int) and value > 99):
                tried(("world", value), lambda i=instance, v=value: i.world(repeat=v))
            tried(("published", value), lambda i=instance, v=value: i.published(v))
        tried(("replay", value), lambda v=value: replay(v, [[1]]))
        tried(("write", value), lambda v=value: write(v, tmp_path / "y"))


def test_evaluation():
    """Worlds, policies, counts and seeds; the options of the rolling policy."""
    world = milkrun.make("milkrun/TSP-v0", num_envs=2, num_loc=4, seed=1)
    waste = milkrun.make("milkrun/SDWCVRP-v0", num_envs=2, num_loc=4, seed=1)
    waste.reset()
    for value in STRANGE:
        tried(("policy", value), lambda v=value: evaluate(world, v, 2))
        tried(("actions", value), lambda v=value: evaluate(world, lambda _: v, 2))
        if not (isinstance(value, int) and value > 99):
            tried(("episodes", value), lambda v=value: evaluate(world, nearest, v))
        tried(("seed", value), lambda v=value: evaluate(world, nearest, 2, seed=v))
        tried(("world", value), lambda v=value: evaluate(v, nearest, 2))
        tried(("world", value), lambda v=value: rollout(v, nearest))
        tried(("policy", value), lambda v=value: rollout(world, v))
        tried(("max_steps", value), lambda v=value: rollout(world, nearest, v))
        tried(("id", value), lambda v=value: policies_for(v))
        tried(("owner", value), lambda v=value: add_policy(v, "name", v))
        for option in ("router", "rule", "level", "k", "time_limit", "seed", "workers"):
            if option != "workers" or not isinstance(value, int) or value < 3:
                tried((option, value), lambda o=option, v=value: RollingHorizon(**{o: v})(waste))


def test_policies_of_other_worlds():
    """Each policy in every world: it plays, or its error names its own world and the missing field."""
    for other in milkrun.list_worlds():
        world = milkrun.make(other, num_envs=2, seed=1)
        world.reset()
        for own in milkrun.list_worlds():
            for name, factory in policies_for(own).items():
                tried((own, name, other), lambda f=factory, w=world: w.step(f(0)(w)))
