"""`solve`: one door to every method, answers judged by the checker, errors in sentences."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import ConfigError
from milkrun.routing.generators import get_generator
from milkrun.solvers import WORLDS, solve

SQUARE = [[0, 0], [3, 0], [3, 4], [0, 4]]
COMPILED = ("nearest", "insertion", "2opt", "oropt", "ls")


def one(**fields):
    return {"locs": np.array([SQUARE], np.float32), **{k: np.array([v]) for k, v in fields.items()}}


@pytest.mark.parametrize("method", [*COMPILED, "exact"])
def test_the_square_by_hand(method):
    """The ring 3-4-5 without its diagonals is 14 long; 18 with demands of 5 and trucks of 10 (1 and 2, then 3: 12 + 8
    is 20; 2 and 3, then 1: 12 + 6 is 18)."""
    assert solve("TSP", one(), method).cost.tolist() == [14.0]
    if method in ("ls", "exact"):
        cvrp = one(demand_units=np.array([0, 5, 5, 5], np.int32), capacity=np.int32(10))
        assert solve("CVRP", cvrp, method).cost.tolist() == [18.0]


@pytest.mark.parametrize("method", ["ls", "exact"])
def test_profit_and_waste_by_hand(method):
    """Prizes 10, 10, 1 at a price of 1: 21 - 14 = 7 all, 20 - 12 = 8 without 3. Waste .5, 1, .3, weights 10, 1,
    10, truck 1.6: 15 - 12 = 3; with customer 3 mandatory 13 - 12 = 1."""
    prize = one(prize=np.array([0, 10, 10, 1], np.float32))
    assert solve("VRPP", prize, method, length_weight=1.0).cost.tolist() == [-8.0]
    weights = {"waste_weight": 10.0, "length_weight": 1.0, "overflow_weight": 10.0}
    bins = one(waste=np.array([0, 0.5, 1, 0.3], np.float32), capacity=np.float32(1.6), max_waste=np.float32(1))
    assert solve("WCVRP", bins, method, **weights).cost[0] == pytest.approx(-3, abs=1e-5)
    bins["must_go"] = np.array([[False, False, False, True]])
    assert solve("WCVRP", bins, method, **weights).cost[0] == pytest.approx(-1, abs=1e-5)


@pytest.mark.parametrize("name", ["CVRP", "VRPP", "CVRPP", "WCVRP", "CWCVRP"])
@pytest.mark.parametrize("method", COMPILED)
def test_plans_play_in_the_world_at_their_cost(name, method):
    """Every action is legal, zeros finish the row, and the return is minus the cost."""
    instances = get_generator(name.lower(), num_loc=15).generate(20, seed=3)
    found = solve(name, instances, method)
    world = milkrun.make(f"milkrun/{name}-v0", num_envs=20, num_loc=15, illegal="raise", autoreset="disabled")
    instances.pop("demand", None)
    world.reset(instance=instances)
    padded = np.pad(found.actions, ((0, 0), (0, 3))).astype(np.int64)
    for k in range(padded.shape[1]):
        live = np.flatnonzero(~world.terminated)
        if len(live):
            world.step(padded[live, k], rows=live)
    assert world.terminated.all()
    np.testing.assert_allclose(-world.objective, found.cost, rtol=1e-4, atol=1e-4)


def test_threads_and_blocks_do_not_change_the_answer():
    """Two workers, and a progress bar, which cuts the batch into pieces."""
    pytest.importorskip("rich", reason="needs the extra 'cli'")
    instances = get_generator("cvrp", num_loc=12).generate(70, seed=5)
    alone = solve("CVRP", instances, "ls")
    both = solve("milkrun/CVRP-v0", instances, "ls", workers=2, progress=True)
    assert (alone.actions == both.actions).all()
    assert not alone.optimal.any()


def test_unknown_and_unfit_methods_are_refused_by_name():
    """The error lists those of the world."""
    with pytest.raises(ConfigError, match="nearest, insertion"):
        solve("TSP", one(), "simplex")
    with pytest.raises(ConfigError, match="not for TSP"):
        solve("TSP", one(), "savings")
    with pytest.raises(ConfigError, match="SCWCVRP-v0 has no solvers"):
        solve("SCWCVRP", one(), "ls")
    assert "savings" in WORLDS["CVRP"] and "ortools" not in WORLDS["VRPP"]


def test_compiled_methods_refuse_windows():
    """And say who knows them."""
    instances = get_generator("vrpp", num_loc=5, time_windows=True).generate(1, seed=1)
    with pytest.raises(ConfigError, match="pyvrp"):
        solve("VRPP", instances, "ls")
