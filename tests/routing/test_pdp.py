"""PDP-v0 beside its scalar reference, which was written from the rules alone, its checker, and cases by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from milkrun.routing.pdp import PDP
from milkrun.routing.tasks import PDP as Task
from tests.reference import pdp as reference
from tests.routing.fleet_cases import PAIR_RULES, PAIRED, UNSERVED_COST, build, dataset, draw_pdp, mixed
from tests.routing.test_vrp import PER_DEPOT, finished
from tests.routing.test_vrp_reference import PAIRS

AS_GIVEN = ("demand", "time_windows", "service_time", "capacity", "vehicles", "dist")
BY_HAND: dict[str, Any] = {"locs": PAIRS, "num_depots": 1, "demand": [0, 2, 3, -2, -3], "vehicles": [4]}
EARLY = {
    "time_windows": [(0, 30), (0, 10), (5, 10), (0, 15), (0, 16)],
    "service_time": [0, 1, 1, 1, 1],
    "vehicles": [2],
}


def world_of(fields: dict[str, Any], rows: int, **make: Any) -> Any:
    """The world with one instance in all rows, from the keywords of the reference."""
    k = fields["num_depots"]
    one = {name: np.asarray(fields[name]) for name in AS_GIVEN if fields.get(name) is not None}
    one |= {name: np.broadcast_to(np.float32(fields[name]), k) for name in PER_DEPOT if fields.get(name) is not None}
    if fields.get("locs") is not None:
        one["locs"] = np.asarray(fields["locs"], np.float32)
    if {"service_time", "time_windows", *PER_DEPOT[:2]} & set(one):
        one["speed"] = np.array([fields.get("speed", 1.0)])
        make.setdefault("limits", True)
    one |= {name: np.int32(fields[name]) for name in ("n_nodes", "n_depots") if fields.get(name) is not None}
    one["open_route"] = np.asarray(bool(fields.get("open_route")))
    settings = {
        "objective": fields.get("objective", "sum"),
        "unserved_cost": fields.get("unserved_cost", UNSERVED_COST),
        "search_limit": fields.get("search_limit", 2000),
        "max_steps": None,
        "autoreset": "disabled",
    }
    return PDP.from_instances([one], rows, **settings, **make)


def play_beside(fields: dict[str, Any], rng: np.random.Generator, episodes: int = 4) -> tuple[int, int]:
    """Plays random episodes in world and reference, and checks the plans; the numbers of steps and of refused nodes."""
    world, steps = world_of(fields, episodes), 0
    models = [reference.PDP(**fields) for _ in range(episodes)]
    while not world.done.all():
        actions = np.zeros(episodes, np.int64)
        live = np.flatnonzero(~world.done)
        for b in live.tolist():
            allowed = set(np.flatnonzero(world.action_mask[b]).tolist())
            assert allowed, "an empty mask"
            assert allowed == models[b].mask(), (fields, models[b].tour)
            assert world.gave_up[b] == models[b].gave_up, (fields, models[b].tour)
            actions[b] = rng.choice(sorted(allowed))
        world.step(actions[live], rows=live)
        for b in live.tolist():
            assert world.reward[b] == pytest.approx(models[b].step(int(actions[b])), abs=1e-4), (fields, models[b].tour)
            assert world.terminated[b] == models[b].terminated
        steps += len(live)
    for b, model in enumerate(models):
        assert world.objective[b] == pytest.approx(model.objective, rel=1e-5, abs=1e-4)
        assert world.taken(b) == model.tour
        assert world.unserved[b] == model.unserved
        assert (world.trips[b], world.longest[b]) == (model.trips, pytest.approx(model.longest, rel=1e-5))
        cost = Task.get_costs(dataset(fields), np.array([world.taken(b)]), objective=fields["objective"])[0]
        assert cost[0] == pytest.approx(-world.objective[b], rel=1e-5, abs=1e-4)
    return steps, int(world.gave_up.sum())


@pytest.mark.parametrize("name", PAIRED)
def test_masks_and_rewards_of_a_rule_set(name):
    """Random play of up to five pairs and two depots, row by row beside the reference."""
    rng = np.random.default_rng(7)
    for pairs in (1, 2, 3, 5):
        fields, _ = build(reference.PDP, draw_pdp, rng, pairs, PAIRED[name])
        assert play_beside(fields, rng)[0] > 0


def test_masks_and_rewards_of_mixed_rules():
    """All rules with probability one half."""
    rng = np.random.default_rng(8)
    for _ in range(20):
        fields, _ = build(reference.PDP, draw_pdp, rng, int(rng.integers(2, 6)), mixed(rng, PAIR_RULES))
        play_beside(fields, rng)


@pytest.mark.parametrize("search_limit", [0, 1, 5])
def test_a_short_search_refuses_nodes_and_is_never_empty(search_limit):
    """With a limit of 0, 1 and 5 the masks and the number of refused nodes are the reference's, and plans are valid."""
    rng, refused = np.random.default_rng(9), 0
    for name in ("windows", "duration, windows", "fleet, windows", "distance", "windows, capacity, open") * 4:
        fields, _ = build(reference.PDP, draw_pdp, rng, 6, PAIRED[name])
        refused += play_beside({**fields, "search_limit": search_limit}, rng)[1]
    assert refused > 0


CASES = {
    "one vehicle": ({"vehicles": [1]}, 6, 20),
    "fleet of 2": ({"vehicles": [2]}, 8, 20),
    "one vehicle that holds 3": ({"vehicles": [1], "capacity": [3]}, 2, 24),
    "fleet of 2, windows": (EARLY, 2, 30),
}


@pytest.mark.parametrize("name", CASES)
def test_sequences_and_best_costs_by_hand(name):
    """The number of finished sequences and the least cost, as two programs without common code have counted them."""
    options, count, best = CASES[name]
    rows = finished(world_of({**BY_HAND, **options}, 1))
    assert (len(rows), min(cost for _, cost in rows)) == (count, pytest.approx(best, abs=5e-5))
