"""The drawn instances of VRP-v0: shares, limits, windows and capacities by their laws, and valid play of all."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.instances import instances_of
from milkrun.routing.tasks import VRP as Task
from milkrun.routing.vrp import VRPConfig
from milkrun.routing.vrp.config import own_capacity
from milkrun.routing.vrp.generator import VRPGenerator
from milkrun.routing.vrp.variants import MIXTURES, VARIANTS

DERIVED = ("n_nodes", "alone", "has_clock")


def world_of(rows, **options):
    world = milkrun.make("milkrun/VRP-v0", rows, seed=3, threads=1, autoreset="disabled", **options)
    world.reset()
    return world


@pytest.mark.parametrize("law", ["routefinder", "rl4co", "mvmoe"])
@pytest.mark.parametrize("n", [1, 2, 20])
def test_random_play_of_every_variant_is_valid(law, n):
    """All variants and mixtures: no row is without an action, the checker accepts the plan at the cost of the return,
    and no customer is left."""
    for variant in (*VARIANTS, *MIXTURES):
        world = world_of(16, num_loc=n, variant=variant, law=law)
        while not world.done.all():
            live = np.flatnonzero(~world.done)
            assert world.action_mask[live].any(axis=1).all(), variant
            world.step(world.sample_actions(1)[live], rows=live)
        data = {name: array for name, array in instances_of(world).items() if name not in DERIVED}
        data |= {name: data[name][:, 0] for name in ("backhaul_class", "speed") if name in data}
        cost = Task.get_costs(data, world.solution())[0]
        assert not world.truncated.any() and not world.unserved.any(), variant
        assert cost == pytest.approx(-world.objective, rel=1e-4), variant


def test_one_batch_of_all_variants():
    """4,096 rows of `all48` have all 48 names, each attribute in half of the rows."""
    world = world_of(4096, num_loc=20, variant="all48")
    assert set(world.variant_names()) == set(VARIANTS)
    assert (world.n_depots > 1).mean() == pytest.approx(0.5, abs=0.03)
    assert world.open_route.mean() == pytest.approx(0.5, abs=0.03)
    assert world.has_clock.mean() == pytest.approx(0.5, abs=0.03)
    assert np.isfinite(world.distance_limit[:, 0]).mean() == pytest.approx(0.5, abs=0.03)
    assert (world.backhaul_class == 2).mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    ("n", "depots", "mean"),
    [(20, 1, 2.3075), (50, 1, 2.3633), (100, 1, 2.3926), (20, 3, 2.1816), (50, 3, 2.2350), (100, 3, 2.2611)],
)
def test_mean_limit_of_the_law_of_routefinder(n, depots, mean):
    """The means of 20,000 draws by another program."""
    variant = "vrpl" if depots == 1 else "mdvrpl"
    drawn = VRPGenerator(num_loc=n, variant=variant).generate(10_000, seed=1)
    assert drawn["distance_limit"][:, 0].mean() == pytest.approx(mean, abs=0.01)


def test_share_of_backhauls():
    """A fifth of the customers; the law of MVMoE gives exactly a fifth in each row."""
    by_chance = VRPGenerator(num_loc=50, variant="vrpb").generate(10_000, seed=1)["backhaul"] > 0
    assert by_chance.mean() == pytest.approx(0.2, abs=0.002)
    exact = VRPGenerator(num_loc=50, variant="vrpb", law="mvmoe").generate(500, seed=1)["backhaul"] > 0
    assert set(exact.sum(axis=1).tolist()) == {10}


def test_windows_let_everybody_be_served_alone():
    """From every depot: reached before the window closes, and back before the depot closes. The mean width is .19;
    MVMoE's is 1.079 at 50 customers."""
    drawn = VRPGenerator(num_loc=50, variant="mdvrptw").generate(2000, seed=2)
    windows, service = drawn["time_windows"], drawn["service_time"]
    way = np.linalg.norm(drawn["depot"][:, :, None] - drawn["locs"][:, None], axis=3)
    opens, closes = windows[:, None, 3:, 0], windows[:, None, 3:, 1]
    assert (way <= closes + 1e-5).all()
    assert (np.maximum(way, opens) + service[:, None, 3:] + way <= 4.6 + 1e-4).all()
    assert (closes - opens).mean() == pytest.approx(0.19, abs=0.001)
    wide = VRPGenerator(num_loc=50, variant="vrptw", law="mvmoe").generate(2000, seed=2)["time_windows"][:, 1:]
    assert (wide[..., 1] - wide[..., 0]).mean() == pytest.approx(1.079, abs=0.01)


def test_capacities():
    """30 up to 20 customers, then 30 + n / 5, and more slowly above 1,000; MVMoE's are those of the CVRP."""
    assert [own_capacity("routefinder", n) for n in (7, 20, 50, 100, 1000, 2000)] == [30, 30, 40, 50, 230, 260]
    assert [own_capacity("mvmoe", n) for n in (20, 50, 100)] == [30, 40, 50]
    assert VRPConfig(num_loc=50, law="mvmoe").truck == 40


def test_the_base_instance_is_the_same_in_all_variants():
    """A variant only switches attributes off."""
    full = VRPGenerator(num_loc=20, variant="ovrpmbltw").generate(64, seed=5)
    for variant, own in (("cvrp", ()), ("vrptw", ("time_windows", "service_time")), ("ovrpl", ("distance_limit",))):
        one = VRPGenerator(num_loc=20, variant=variant).generate(64, seed=5)
        assert np.array_equal(one["locs"], full["locs"]) and np.array_equal(one["depot"], full["depot"])
        assert np.array_equal(one["linehaul"], full["linehaul"] + full["backhaul"])
        for name in own:
            assert np.array_equal(one[name], full[name])
