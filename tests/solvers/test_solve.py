"""`solve`, the entry point to every solver: inputs, results, refusals, and the final check by the checker."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import milkrun
from milkrun.core import registry
from milkrun.core.errors import BadInstance, BadSolution, ConfigError, ShapeError, WorkerError
from milkrun.delivery.instances import TSPDInstance
from milkrun.delivery.tspd.world import TSPD
from milkrun.routing import DARP, tasks
from milkrun.routing.cvrp import CVRP
from milkrun.routing.generators import get_generator
from milkrun.routing.instances import read
from milkrun.routing.tsp_kopt import TSPKopt
from milkrun.solvers import Solution, heuristics, solve, workers
from tests.published import published_file
from tests.solvers.darp_cases import three_requests
from tests.solvers.plays import METHODS, drawn, play


@pytest.mark.parametrize("name", METHODS)
def test_instances_of_a_generator_are_solved(name):
    """Unchanged, with every name that the generator uses."""
    instances = get_generator(name.lower(), num_loc=10).generate(4, seed=1)
    assert np.isfinite(solve(name, instances, "nearest").cost).all()


def test_the_answer_of_a_world_reset_with_the_seed():
    """Fields of a world are also instances, and its rows are those of the generator."""
    world = milkrun.make("milkrun/CVRP-v0", num_envs=6, num_loc=10, seed=4)
    world.reset()
    fields = {name: getattr(world, name) for name in ("locs", "demand_units", "capacity", "max_length", "n_nodes")}
    from_world, from_generator = solve("CVRP", fields), solve("CVRP", drawn("CVRP", 10, 6, seed=4))
    np.testing.assert_array_equal(from_world.actions, from_generator.actions)
    assert isinstance(from_world, Solution)
    assert (from_world.actions.dtype, from_world.cost.dtype, from_world.optimal.dtype) == ("int32", "float64", "bool")


@pytest.mark.parametrize("name", ["tsp", "TSP", "TSPKopt", "milkrun/TSP-v0", "milkrun/TSPKopt-v0"])
def test_names_of_a_world(name):
    """The short name in any letter case, or the id; TSPKopt gets tours from another start."""
    instances = drawn("TSP", 8, 3)
    cost, truth = solve(name, instances, "exact").cost, solve("TSP", instances, "exact").cost
    np.testing.assert_allclose(cost, truth, rtol=1e-14)


def test_tours_are_the_actions_from_node_0():
    """The other nodes in order, then 0, which closes the tour; the world plays them and ends with the last one."""
    instances = drawn("TSP", 9, 5)
    found = solve("TSP", instances)
    assert found.actions.shape == (5, 9)
    assert (found.actions[:, -1] == 0).all()
    np.testing.assert_array_equal(np.sort(found.actions, axis=1), np.tile(np.arange(9), (5, 1)))
    np.testing.assert_allclose(play("TSP", instances, found.actions), -found.cost, rtol=1e-5)


def test_one_instance_for_several_rows():
    """`instance_row` selects the instance of each row."""
    instances = drawn("CVRP", 10, 2)
    single = solve("CVRP", instances, "savings").cost
    shared = solve("CVRP", {**instances, "instance_row": np.array([1, 0, 1])}, "savings").cost
    np.testing.assert_array_equal(shared, single[[1, 0, 1]])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0, 5], "row 1: instance_row = 5: there are 2 instances, 0..1"),
        ([0, -1], "row 1: instance_row = -1: there are 2 instances, 0..1"),
        ([0.5, 1.0], "instance_row must be 2 integers, one a row, not float64"),
        (1, "instance_row must have the row as its first axis"),
        ([], "there is no instance to solve: the batch has 0 rows"),
    ],
)
@pytest.mark.parametrize("name", ["TSP", "CVRP"])
def test_an_invalid_instance_row_is_refused(name, rows, message):
    """Beyond the last one, negative, or not an integer."""
    with pytest.raises((BadInstance, ShapeError), match=re.escape(message)):
        solve(name, {**drawn(name, 4, 2), "instance_row": rows}, "nearest")


@pytest.mark.parametrize("method", ["nearest", "exact", "pyvrp"])
def test_an_empty_batch_is_refused(method):
    """A batch without instances."""
    with pytest.raises(ShapeError, match="there is no instance to solve"):
        solve("VRPP", {name: value[:0] for name, value in drawn("VRPP", 4, 2).items()}, method)


def test_weights_of_the_config_are_those_of_the_cost():
    """Out and back, 2 * 3: prize 10 at 2 each, length at 0.5 each, so 20 - 3."""
    instances = {"locs": np.array([[[0, 0], [3, 0]]], np.float32), "prize": np.array([[0, 10]], np.float32)}
    assert solve("VRPP", instances, prize_weight=2.0, length_weight=0.5).cost.tolist() == [-17.0]
    dear = solve("VRPP", instances, length_weight=2.0)
    assert dear.cost.tolist() == [0.0]
    assert not dear.actions.any()


def test_metric_of_the_config():
    """Manhattan distance: |3| + |4| each way instead of 5."""
    instances = {"locs": np.array([[[0, 0], [3, 4]]], np.float32)}
    assert solve("TSP", instances, "nearest").cost.tolist() == [10.0]
    assert solve("TSP", instances, "nearest", metric="manhattan").cost.tolist() == [14.0]


def test_every_plan_is_checked(monkeypatch):
    """A solver that forgets a customer is detected, with the row and the rule."""
    honest = heuristics.run_heuristic

    def forgetful(*args, **options):
        plans = honest(*args, **options)
        plans[1][plans[1] == 3] = 0
        return plans

    monkeypatch.setattr(heuristics, "run_heuristic", forgetful)
    with pytest.raises(BadSolution, match="row 1: customer 3 is never visited"):
        solve("CVRP", drawn("CVRP", 6, 3), "nearest")


def test_the_error_on_unknown_methods_lists_those_of_the_world():
    """All of them, by name; also for a method of another world."""
    instances = drawn("VRPP", 5, 1)
    for method in ("magic", "savings"):
        with pytest.raises(ConfigError, match="nearest, insertion, 2opt, oropt, ls, exact, pyvrp") as error:
            solve("VRPP", instances, method)
        assert f"{method!r}" in str(error.value)


@pytest.mark.parametrize("name", ["SCWCVRP", "SDWCVRP"])
def test_worlds_with_hidden_information_refer_to_the_rolling_policy(name):
    """A plan made in advance cannot use information that is only revealed later."""
    with pytest.raises(ConfigError, match="rolling"):
        solve(name, get_generator(name.lower(), num_loc=5).generate(1, seed=1))


def test_heuristics_refuse_windows():
    """The message names methods that support them."""
    instances = get_generator("cvrpp", num_loc=5, time_windows=True).generate(1, seed=1)
    instances.pop("demand", None)
    with pytest.raises(ConfigError, match="pyvrp"):
        solve("CVRPP", instances, "ls", time_windows=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "steepest", "method": "insertion"}, "nearest, farthest, random, cheapest"),
        ({"rule": "nearest", "method": "2opt"}, "insertion"),
        ({"time_limit": 0}, "time_limit"),
        ({"time_limit": "1"}, "time_limit='1': must be a finite number"),
        ({"time_limit": float("inf")}, "time_limit=inf"),
        ({"method": ["ls"]}, r"method=\['ls'\] is unknown"),
        ({"iterations": 0.5}, "iterations=0.5"),
        ({"workers": 0}, "workers"),
        ({"bogus": 1}, "bogus"),
    ],
)
def test_invalid_options_are_refused(options, message):
    """Each error names the option."""
    with pytest.raises(ConfigError, match=message):
        solve("TSP", drawn("TSP", 5, 1), **options)


def test_savings_join_several_trips():
    """A single trip has nothing to merge."""
    with pytest.raises(ConfigError, match="single"):
        solve("CWCVRP", drawn("CWCVRP", 5, 1), "savings", trips="single")


def test_instances_must_be_instances():
    """A list, and a mapping without places, are refused."""
    for given in ([1, 2], {"prize": np.ones((1, 4), np.float32)}):
        with pytest.raises(ShapeError):
            solve("VRPP", given)


def test_progress_counts_instances_and_changes_nothing(capsys):
    """A bar that ends at the number of instances, which are solved in chunks."""
    pytest.importorskip("rich", reason="needs the extra 'cli'")
    instances = drawn("TSP", 6, 70)
    solution = solve("TSP", instances, "ls", progress=True)
    assert "70/70" in capsys.readouterr().out
    np.testing.assert_array_equal(solution.actions, solve("TSP", instances, "ls").actions)


@pytest.mark.parametrize(("name", "options"), [("TSP", {}), ("CVRPP", {"length_weight": 9.0, "trips": "multi"})])
def test_exact_answers_come_from_the_given_number_of_processes(name, options, monkeypatch):
    """The same as in this process, which then solves nothing itself."""
    instances = drawn(name, 5, 5)
    alone = solve(name, instances, "exact", **options)

    def refuse(*_):
        raise AssertionError("solved here")

    monkeypatch.setattr(workers, "solve_one", refuse)
    shared = solve(name, instances, "exact", workers=2, **options)
    np.testing.assert_array_equal(shared.actions, alone.actions)
    np.testing.assert_array_equal(shared.cost, alone.cost)
    assert shared.optimal.all() and alone.optimal.all()


def test_failures_of_a_worker_are_raised_here():
    """Its exception, and its death."""
    with pytest.raises(ShapeError, match="at most 9"):
        solve("VRPP", drawn("VRPP", 10, 2), "exact", workers=2)
    with pytest.raises(WorkerError, match=r"instance [01] by exact"):
        workers.solve_each("exact", lambda b: (Deadly(), 0), 2, 2, None)


class Deadly:
    """Ends the worker that unpickles it."""

    def __reduce__(self):
        return os._exit, (3,)


@pytest.mark.truth
@pytest.mark.parametrize(
    ("world", "file", "method", "optimum"),
    [
        ("TSP", "tsplib/berlin52.tsp", "ls", 7542),
        ("TSP", "atsp/ftv33.atsp", "ls", 1286),
        ("CVRP", "cvrplib/A-n32-k5.vrp", "savings", 784),
        ("CVRP", "cvrplib/A-n32-k5.vrp", "ls", 784),
    ],
)
def test_files_within_a_tenth_of_the_optimum(world, file, method, optimum):
    """Published optima of TSPLIB and CVRPLIB, which no heuristic beats; integers stay integers."""
    found = solve(world, read(published_file(f"routing/{file}")), method)
    assert optimum <= found.cost[0] <= 1.1 * optimum
    assert found.cost[0] == round(found.cost[0])


@pytest.mark.parametrize(
    ("name", "drawn", "options", "message"),
    [
        ("CVRP", {}, {"capacity": 50}, "capacity = 50: instance 0 has capacity = 20, which overrides the option"),
        ("CVRP", {}, {"vehicle_cap": 50}, "capacity = 50: instance 0 has capacity = 20"),
        ("CVRP", {}, {"preset": "kool50"}, "capacity = 40: instance 0 has capacity = 20"),
        ("WCVRP", {"max_length": 4.0}, {"max_length": 3.0}, "max_length = 3.0: instance 0 has max_length = 4.0"),
        ("WCVRP", {"max_waste": 100.0}, {"max_waste": 1.0}, "max_waste = 1.0: instance 0 has max_waste = 100.0"),
        ("WCVRP", {"max_waste": 100.0}, {}, "the option max_waste is 1.0, and length_weight = 'auto' depends on it"),
    ],
)
def test_options_that_contradict_the_instances_are_refused(name, drawn, options, message):
    """Ignoring them would solve another problem."""
    instances = get_generator(name.lower(), num_loc=10, **drawn).generate(2, seed=0)
    assert np.isfinite(solve(name, instances, "nearest", **drawn).cost).all()
    with pytest.raises(ConfigError, match=re.escape(message)):
        solve(name, instances, "nearest", **options)


@pytest.mark.parametrize("name", ["CVRP", "cvrp", "CVRP-v0", "milkrun/CVRP-v0"])
def test_a_generator_has_the_names_of_solve(name):
    """The name of the world in any letter case, or its id; all are the generator of one problem."""
    drawn = get_generator(name, num_loc=4).generate(2, seed=1)
    assert (drawn["locs"] == get_generator("cvrp", num_loc=4).generate(2, seed=1)["locs"]).all()
    assert solve(name, drawn, "nearest").cost.shape == (2,)


def test_an_unknown_generator_is_refused_with_the_nearest_name():
    """With its short name."""
    with pytest.raises(ConfigError, match="no generator 'CVPR'; did you mean 'cvrp'"):
        get_generator("CVPR")


# -- custom solvers ---------------------------------------------------------------------------------------------


class OwnCVRP(CVRP):
    """The CVRP with an external solver."""


class UncheckedCVRP(OwnCVRP):
    """The same without a checker: the world itself validates plans."""

    task = ""


def answered(monkeypatch, cls, change):
    """The result of `solve` with a solver that returns the library's answer, changed."""

    def mine(job):
        found = solve("CVRP", job.instances, "savings")
        return change(found.actions.copy(), found.cost.copy(), found.optimal.copy())

    monkeypatch.setattr(cls, "solvers", {"mine": mine}, raising=False)
    monkeypatch.setattr(registry, "_worlds", dict(registry._worlds))
    milkrun.register(f"tests/{cls.__name__}-v0", cls, family="tests", gymnasium=False)
    return solve(cls.__name__, drawn("CVRP", 6, 3), "mine")


def with_twice(actions, cost, optimal):
    actions[1, 1:3] = actions[1, 0]
    return actions, cost, optimal


BAD_ANSWERS = {
    "empty": (lambda a, c, o: (0 * a, 0 * c, ~o), "row 0: customer 1 is never visited", "instance 0: the plan leave"),
    "no plan": (lambda a, c, o: (a[:, :0], 0 * c, ~o), "row 0: customer 1 is never visited", "instance 0: the plan "),
    "understated": (
        lambda a, c, o: (a, c - [0, 5, 0], o),
        "instance 1: the solver states a cost of .*, the checker",
        "instance 1: the solver states a cost of .*, the world",
    ),
    "twice": (with_twice, *2 * ("instance 1: action 1 of the plan, [0-9], is not allowed: ",)),
    "nowhere": (lambda a, c, o: (a + 90, c, o), *2 * ("instance 0: action 0 of the plan, 9[0-9], is not allowed: ",)),
    "none": (lambda a, c, o: None, *2 * ("a solver returns a Solution .*, not a NoneType",)),
    "half": (lambda a, c, o: (a, c), *2 * ("a solver returns a Solution .*, not a tuple",)),
    "few plans": (lambda a, c, o: (a[:2], c[:2], o[:2]), *2 * ("it gives 2 plans for 3 instances",)),
    "few costs": (lambda a, c, o: (a, c[:2], o), *2 * (r"cost has the shape \(2,\), but there are 3 plans",)),
    "floats": (lambda a, c, o: (a + 0.5, c, o), *2 * ("whole numbers, not float64",)),
    "nan": (lambda a, c, o: (a, np.nan * c, o), *2 * ("instance 0: the solver states a cost of nan",)),
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
@pytest.mark.parametrize("cls", [OwnCVRP, UncheckedCVRP], ids=["by the checker", "by the world"])
def test_answers_of_a_custom_solver_are_checked(monkeypatch, cls, case):
    """Incomplete or forbidden plans and wrong costs are refused with world, method and instance."""
    change, *messages = BAD_ANSWERS[case]
    with pytest.raises(BadSolution, match=rf"^{cls.__name__} by 'mine'.*{messages[cls is UncheckedCVRP]}"):
        answered(monkeypatch, cls, change)


@pytest.mark.parametrize("cls", [OwnCVRP, UncheckedCVRP], ids=["by the checker", "by the world"])
def test_a_sound_custom_solver_is_accepted(monkeypatch, cls):
    """Like the library's: the cost is the checker's, also if the solver sums in single precision."""
    truth = solve("CVRP", drawn("CVRP", 6, 3), "savings")
    found = answered(monkeypatch, cls, lambda a, c, o: (a, c.astype(np.float32), o))
    np.testing.assert_array_equal(found.actions, truth.actions)
    np.testing.assert_allclose(found.cost, truth.cost, rtol=1e-15 if cls is OwnCVRP else 1e-6)


@pytest.mark.parametrize(("base", "method"), [(DARP, "insertion"), (TSPD, "partition"), (TSPKopt, "nearest")])
def test_custom_solvers_of_every_world_are_checked(monkeypatch, base, method):
    """Instances of DARP and TSPD are objects, and plans of TSPKopt are tours. Our answer is accepted from a custom
    solver, and refused with a cost understated by 5."""
    locs = np.random.default_rng(1).random((2, 6, 2)).astype(np.float32)
    instances = {DARP: three_requests(2), TSPD: TSPDInstance.of_places("six", locs[0]), TSPKopt: {"locs": locs}}[base]
    less = 0
    own = type(
        "Own",
        (base,),
        {
            "__doc__": "Solved by a custom solver.",
            "__module__": __name__,
            "solvers": {"mine": lambda job: (lambda a, c, o: (a, c - less, o))(*solve(base.id, instances, method))},
        },
    )
    monkeypatch.setattr(registry, "_worlds", dict(registry._worlds))
    milkrun.register("tests/Own-v0", own, family="tests", gymnasium=False)
    np.testing.assert_allclose(solve("Own", instances, "mine").cost, solve(base.id, instances, method).cost)
    less = 5
    with pytest.raises(BadSolution, match=r"Own by .mine., instance 0: the solver states a cost of .*, the checker"):
        solve("Own", instances, "mine")


def test_tours_without_a_task_cannot_be_checked(monkeypatch):
    """An action of TSPKopt changes a tour, so the plan of a solver cannot be played; only a task has its cost."""
    own = type(
        "Own",
        (TSPKopt,),
        {
            "__doc__": "Without a cost function.",
            "__module__": __name__,
            "task": "",
            "solvers": {"mine": lambda job: (np.array([[1, 2, 3, 0]]), np.zeros(1), np.zeros(1, bool))},
        },
    )
    monkeypatch.setattr(registry, "_worlds", dict(registry._worlds))
    milkrun.register("tests/Own-v0", own, family="tests", gymnasium=False)
    with pytest.raises(BadSolution, match="cannot be checked: tests/Own-v0 has no task, and cannot play them"):
        solve("Own", {"locs": np.eye(4, 2, dtype=np.float32)[None]}, "mine")


def test_our_own_solvers_are_checked_once(monkeypatch):
    """They call the checker themselves: a second call would slow down large batches."""
    calls = []
    price = tasks.CVRP.get_costs
    monkeypatch.setattr(tasks.CVRP, "get_costs", lambda *args, **options: calls.append(1) or price(*args, **options))
    solve("CVRP", drawn("CVRP", 6, 3), "savings")
    assert calls == [1]


def test_output_of_a_package_does_not_mix_with_answers():
    """A C library writes to the file descriptor, without Python."""
    code = """
import os
from milkrun.solvers import workers

def solve_one(method, task):
    os.write(1, b"hello")
    print("there")
    return [task], True

workers.solve_one = solve_one
workers.main()
"""
    task = pickle.dumps(("none", 7))
    done = subprocess.run([sys.executable, "-c", code], input=task, capture_output=True, check=True)
    assert pickle.loads(done.stdout) == ([7], True) and b"hello" in done.stderr and b"there" in done.stderr
