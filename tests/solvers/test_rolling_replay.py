"""The rolling horizon drives its router's plan; after failures the plan is still valid by the checkers."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.routing.tasks import SCWCVRP, SDWCVRP
from milkrun.solvers import RollingHorizon, evaluate, greedy, policies_for, rollout, solve

SC, SD = "milkrun/SCWCVRP-v0", "milkrun/SDWCVRP-v0"


def ended(world_id, policy, rows=24, seed=5, **config):
    """A world played to its end; an action outside the mask would raise."""
    options = {"num_loc": 12, **config}
    world = milkrun.make(world_id, num_envs=rows, seed=seed, autoreset="disabled", illegal="raise", **options)
    world.reset()
    rollout(world, policy)
    assert world.terminated.all()
    return world


@pytest.mark.parametrize("router", ["ls", "insertion"])
def test_without_surprises_the_plan_is_driven_unchanged(router):
    """SCWCVRP with sigma = 0 is the CWCVRP: the return is minus the cost of the router's plan there."""
    world = ended(SC, RollingHorizon(router), sigma=0.0)
    names = ("locs", "n_nodes", "max_waste", "capacity", "must_go")
    instances = {name: getattr(world, name) for name in names} | {"waste": world.expected0}
    found = solve("CWCVRP", instances, router)
    np.testing.assert_allclose(world.objective, -found.cost, rtol=1e-5, atol=1e-5)
    assert world.failures.sum() == 0


def test_a_single_day_without_fill_is_the_same():
    """SDWCVRP of one day without fill is also the CWCVRP."""
    world = milkrun.make(SD, num_envs=8, num_loc=10, horizon=1, autoreset="disabled", illegal="raise")
    world.reset(seed=3)
    still = {name: getattr(world, name).copy() for name in ("locs", "initial_waste", "capacity", "max_waste")}
    nothing = {name: np.zeros((8, 11), np.float32) for name in ("fill_mean", "fill_std")}
    world.reset(instance={**still, **nothing, "daily_fill": np.zeros((8, 1, 11), np.float32)})
    rollout(world, RollingHorizon())
    instances = {"locs": still["locs"], "waste": still["initial_waste"], "capacity": still["capacity"]}
    np.testing.assert_allclose(world.objective, -solve("CWCVRP", instances, "ls").cost, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("trips", ["single", "multi"])
@pytest.mark.parametrize("recourse", ["return", "round_trip"])
def test_failures_do_not_stop_it(recourse, trips):
    """Length is cheap, so trucks are planned full, and bins hold half as much again as expected. Services fail in ten
    of 60 rows and more; still every action is allowed, and the checker agrees."""
    config = {"mu": 1.5, "length_weight": 0.1, "fill_distribution": "gamma3", "recourse": recourse, "trips": trips}
    world = ended(SC, RollingHorizon("insertion"), rows=60, **config)
    assert (world.failures > 0).sum() >= 10
    fields = ("locs", "expected0", "real_waste", "capacity", "must_go", "max_waste")
    dataset = {name: getattr(world, name) for name in fields}
    valid, reasons = SCWCVRP.check(dataset, world.solution(), recourse=recourse, trips=trips)
    assert valid.all(), [r for r in reasons if r][:1]


@pytest.mark.parametrize("must_go", ["none", "random", "lookahead"])
def test_every_rule_of_mandatory_bins_is_kept(must_go):
    """Three days with limited trips: no action is masked by a mandatory bin, and the checker agrees."""
    world = ended(SD, RollingHorizon("insertion"), horizon=3, must_go=must_go, max_length=1.6, sensor_sigma=0.3)
    fields = ("locs", "initial_waste", "daily_fill", "sensor_noise", "capacity", "max_waste", "max_length")
    valid, reasons = SDWCVRP.check({name: getattr(world, name) for name in fields}, world.solution())
    assert valid.all(), [r for r in reasons if r][:1]


@pytest.mark.parametrize("world_id", [SC, SD])
def test_all_autoreset_modes_give_the_same_returns(world_id):
    """The policy recognises a new morning, whether rows wait, restart or stop at their end."""
    config = {"num_loc": 8, "illegal": "raise", **({"horizon": 2} if world_id == SD else {})}
    results = [
        evaluate(milkrun.make(world_id, num_envs=5, autoreset=mode, **config), RollingHorizon("insertion"), 12, seed=8)
        for mode in ("disabled", "next_step", "same_step")
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(other.returns, results[0].returns)


def test_new_instances_get_new_plans():
    """Two instances sequentially in the same world with the same policy; each has its own plan."""
    policy = RollingHorizon()
    world = milkrun.make(SC, num_envs=1, num_loc=2, autoreset="disabled", illegal="raise", length_weight=1.0)
    for full in (1, 2):
        waste = np.zeros((1, 3), np.float32)
        waste[0, full] = 1.0
        locs = np.array([[[0, 0], [1, 0], [0, 1]]], np.float32)
        world.reset(instance={"locs": locs, "expected0": waste, "real_waste": waste})
        rollout(world, policy)
        assert np.trim_zeros(world.solution()[0]).tolist() == [full]


def test_lookahead_of_a_night_is_better():
    """A week of 20 bins, 64 instances: better than greedy on the same instances by more than 4 standard errors."""
    world = milkrun.make(SD, num_envs=64, num_loc=20, illegal="raise")
    gap = evaluate(world, RollingHorizon(), 64, seed=3).returns - evaluate(world, greedy, 64, seed=3).returns
    assert gap.mean() > 4 * gap.std(ddof=1) / 8


@pytest.mark.parametrize("world_id", [SC, SD])
def test_it_is_available_by_name(world_id):
    """Next to greedy and nearest, with the given seed."""
    offered = policies_for(world_id)
    assert list(offered) == ["random", "greedy", "nearest", "rolling"]
    assert offered["rolling"](7).seed == 7
