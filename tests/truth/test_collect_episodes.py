"""100,000 random masked episodes of each profit and waste world, validated by the checkers.

Every episode terminates, keeps every rule of the checker and returns minus the checker's cost, with dense and with
terminal rewards. Half of the episodes have trips limited to 2.5, in a unit square.
"""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.sampling import random_step
from milkrun.routing import tasks

pytestmark = [pytest.mark.truth, pytest.mark.slow]

SIZES, EPISODES = (1, 2, 7, 20, 50), 10_000
FIELDS = {
    "VRPP": ("prize",),
    "CVRPP": ("prize", "weight", "capacity"),
    "WCVRP": ("waste", "max_waste", "capacity"),
    "CWCVRP": ("waste", "max_waste", "capacity"),
    "SCWCVRP": ("expected0", "real_waste", "max_waste", "capacity"),
    "SDWCVRP": ("initial_waste", "daily_fill", "max_waste", "capacity"),
}


def played(name, rows, seed, reward, **options):
    """One random masked episode a row."""
    world = milkrun.make(f"milkrun/{name}-v0", num_envs=rows, seed=seed, reward=reward, autoreset="disabled", **options)
    world.reset()
    world.play_out(random_step, seed)
    assert world.terminated.all() and not world.truncated.any() and not world.illegal.any()
    return world


def compare_with_checker(name, rows, seed, fields=(), rules=(), **options):
    """Plays the same episodes with both rewards and compares them with the checker; returns the dense world and the
    parts."""
    dense, terminal = (played(name, rows, seed, reward, **options) for reward in ("dense", "terminal"))
    pi = dense.solution()
    np.testing.assert_array_equal(pi, terminal.solution())
    dataset = {key: getattr(dense, key) for key in ("locs", "max_length", *FIELDS[name], *fields)}
    if name != "SDWCVRP":
        dataset["must_go"] = dense.must_go
    task = getattr(tasks, name)
    valid, reasons = task.check(dataset, pi, **dict(rules))
    assert valid.all(), next(why for why in reasons if why)
    cost, parts, _ = task.get_costs(dataset, pi, **dict(rules))
    slack = 1e-4 * np.maximum(1, abs(cost))
    for paid in (dense.objective, terminal.objective, terminal.reward):
        assert (abs(paid + cost) <= slack).all()
    assert (abs(dense.objective - terminal.objective) <= slack).all()
    np.testing.assert_allclose(dense.tour_length, parts["length"].reshape(rows, -1).sum(axis=1), rtol=1e-5)
    return dense, parts


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("max_length", [None, 2.5])
@pytest.mark.parametrize("name", ["VRPP", "CVRPP", "WCVRP", "CWCVRP"])
def test_return_is_the_checkers_cost(name, max_length, n):
    """10,000 episodes each by the default rule of trips; only few are empty."""
    world, _ = compare_with_checker(name, EPISODES, n, num_loc=n, max_length=max_length)
    assert (world.tour_length > 0).mean() > 0.4


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("recourse", "max_length"), [("return", None), ("round_trip", None), ("return", 2.5)])
def test_scwcvrp_return_is_the_checkers_cost(recourse, max_length, n):
    """10,000 episodes each; if a truck holds less than all bins, some services fail, as often as the world counts."""
    world, parts = compare_with_checker(
        "SCWCVRP", EPISODES, n, rules={"recourse": recourse}, num_loc=n, recourse=recourse, max_length=max_length
    )
    np.testing.assert_array_equal(world.failures, parts["failures"])
    assert (world.failures.sum() > 0) == (n > 2)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("recourse", "sigma"), [("return", 0.0), ("round_trip", 0.3)])
def test_sdwcvrp_return_is_the_checkers_cost(recourse, sigma, n):
    """12,000 weeks each, 2,000 at n = 50, 100,000 in all; `lost`, overflows and failures are the checker's."""
    fields = ("sensor_noise",) if sigma else ()
    world, parts = compare_with_checker(
        "SDWCVRP",
        2_000 if n == 50 else 12_000,
        n,
        fields,
        {"recourse": recourse},
        num_loc=n,
        recourse=recourse,
        sensor_sigma=sigma,
        must_go="level" if sigma else "none",
    )
    for part in ("overflows", "failures"):
        np.testing.assert_array_equal(getattr(world, part), parts[part].sum(axis=1))
    np.testing.assert_allclose(world.lost, parts["lost"].sum(axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(world.collected, parts["waste"].sum(axis=1), rtol=1e-4, atol=1e-5)
