"""VRP-v0 beside its scalar reference, which was written from the rules alone: masks, rewards and states agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import milkrun
from milkrun.routing.vrp import VRP
from tests.reference import vrp as reference
from tests.routing.fleet_cases import RULE_SETS, RULES, SPLIT, UNSERVED_COST, build, draw_vrp, mixed
from tests.routing.test_vrp_reference import BY_HAND, RECTANGLE, SEVERAL_DEPOTS

PLAIN: dict[str, Any] = {"locs": RECTANGLE, "linehaul": [0, 5, 5, 5], "capacity": 10}
AS_GIVEN = ("linehaul", "backhaul", "time_windows", "service_time", "serves", "capacity", "vehicles", "dist")
PER_DEPOT = ("distance_limit", "duration_limit", "fixed_cost", "distance_cost")


def world_of(fields: dict[str, Any], rows: int, **make: Any) -> Any:
    """The world with one instance in all rows, from the keywords of the reference."""
    k = fields["num_depots"]
    one = {name: np.asarray(fields[name]) for name in AS_GIVEN if fields.get(name) is not None}
    one |= {name: np.broadcast_to(np.float32(fields[name]), k) for name in PER_DEPOT if fields.get(name) is not None}
    if fields.get("locs") is not None:
        one["locs"] = np.asarray(fields["locs"], np.float32)
    if "backhaul" in one and not one["backhaul"].any():
        del one["backhaul"]
    if "backhaul" in one:
        one["backhaul_class"] = np.array([fields["backhaul_class"]])
    if {"service_time", "time_windows", *PER_DEPOT[:2]} & set(one):
        one["speed"] = np.array([fields["speed"]])
        make.setdefault("limits", True)
    one |= {name: np.int32(fields[name]) for name in ("n_nodes", "n_depots") if fields.get(name) is not None}
    one["open_route"] = np.asarray(bool(fields.get("open_route")))
    settings = {
        "backhaul_only": fields.get("backhaul_only", True),
        "objective": fields.get("objective", "sum"),
        "unserved_cost": fields.get("unserved_cost", UNSERVED_COST),
        "split": bool(fields.get("split")),
        "autoreset": "disabled",
    }
    return VRP.from_instances([one], rows, **settings, **make)


def play_beside(fields: dict[str, Any], rng: np.random.Generator, episodes: int = 4) -> int:
    """Plays random episodes in world and reference together; the number of steps."""
    world, steps = world_of(fields, episodes), 0
    models = [reference.VRP(**fields) for _ in range(episodes)]
    while not world.done.all():
        actions = np.zeros(episodes, np.int64)
        for b, model in enumerate(models):
            if model.terminated:
                continue
            allowed = set(np.flatnonzero(world.action_mask[b]).tolist())
            assert allowed == model.mask(), (fields, model.tour)
            actions[b] = rng.choice(sorted(allowed))
        live = np.flatnonzero(~world.done)
        world.step(actions[live], rows=live)
        for b in live.tolist():
            assert world.reward[b] == pytest.approx(models[b].step(int(actions[b])), abs=1e-4), (fields, models[b].tour)
            assert world.terminated[b] == models[b].terminated
        steps += 1
    for b, model in enumerate(models):
        assert world.objective[b] == pytest.approx(model.objective, rel=1e-5, abs=1e-4)
        assert world.taken(b) == model.tour
        assert world.unserved[b] == model.unserved
        assert (world.trips[b], world.longest[b]) == (model.trips, pytest.approx(model.longest, rel=1e-5))
    return steps


@pytest.mark.parametrize("name", [*RULE_SETS, *SPLIT])
def test_masks_and_rewards_of_a_rule_set(name):
    """Random play of up to five customers and two depots, row by row beside the reference."""
    rng = np.random.default_rng(7)
    rules = {**RULE_SETS, **SPLIT}[name]
    for n in (1, 3, 5, 5):
        fields, _ = build(reference.VRP, draw_vrp, rng, n, rules)
        assert play_beside(fields, rng) > 0


def test_masks_and_rewards_of_mixed_rules():
    """All rules with probability one half."""
    rng = np.random.default_rng(8)
    for _ in range(20):
        fields, _ = build(reference.VRP, draw_vrp, rng, int(rng.integers(2, 7)), mixed(rng, RULES))
        play_beside(fields, rng)


def test_variant_cvrp_equals_the_cvrp():
    """Without attributes instances, masks, rewards and flags are those of CVRP-v0, bit for bit."""
    one = milkrun.make("milkrun/VRP-v0", 32, num_loc=20, seed=5, autoreset="disabled")
    other = milkrun.make("milkrun/CVRP-v0", 32, num_loc=20, seed=5, autoreset="disabled")
    one.reset()
    other.reset()
    assert np.array_equal(one.locs, other.locs) and np.array_equal(one.linehaul, other.demand_units)
    while not one.done.all():
        assert np.array_equal(one.action_mask, other.action_mask)
        live = np.flatnonzero(~one.done)
        actions = other.sample_actions(3)[live]
        one.step(actions, rows=live)
        other.step(actions, rows=live)
        assert np.array_equal(one.reward, other.reward) and np.array_equal(one.terminated, other.terminated)


def finished(world: Any) -> list[tuple[tuple[int, ...], float]]:
    """The actions and the cost of every masked sequence of row 0, depth first."""
    found, open_states = [], [world.state_dict()]
    while open_states:
        here = open_states.pop()
        for action in np.flatnonzero(here["action_mask"][0]):
            world.load_state_dict(here)
            world.step([action])
            if world.terminated[0]:
                found.append((tuple(world.taken(0)), float(-world.objective[0])))
            else:
                open_states.append(world.state_dict())
    return found


CASES = {
    **{name: ({**PLAIN, **options}, count, best) for name, (options, count, best) in BY_HAND.items()},
    **{
        name: ({**PLAIN, "linehaul": [0, 0, 5, 5, 5], "num_depots": 2, **options}, count, best)
        for name, (options, count, best) in SEVERAL_DEPOTS.items()
    },
}


@pytest.mark.parametrize("name", CASES)
def test_sequences_and_best_costs_by_hand(name):
    """The number of finished sequences and the least cost, as two programs without common code have counted them."""
    options, count, best = CASES[name]
    fields = {"num_depots": 1, "speed": 1.0, "backhaul_class": 1, **options}
    if np.ndim(fields.get("capacity")) == 0:
        fields["capacity"] = [fields["capacity"]] * fields["num_depots"]
    if np.ndim(fields.get("vehicles", [1])) == 0:
        fields["vehicles"] = [fields["vehicles"]] * fields["num_depots"]
    rows = finished(world_of(fields, 1, max_steps=None))
    assert (len(rows), min(cost for _, cost in rows)) == (count, pytest.approx(best, abs=5e-5))


@pytest.mark.parametrize("places", ["locs", "dist"])
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"time_windows": [[0, 100], [0, 100], [0, 6]], "service_time": [0, 1, 0]}, "late: arrives 8, closes 6"),
        ({"time_windows": [[0, 10], [0, 10], [0, 20]], "service_time": [0, 1, 0]}, "late home: returns 13, closes 10"),
        ({"distance_limit": 10.0}, "too far: 12 > 10"),
        ({"duration_limit": 10.0}, "too long: the route would take more than 10"),
    ],
)
def test_the_reason_of_a_customer_that_is_not_in_time(fields, reason, places):
    """After customer 1 at distance 3, customer 2 is 4 farther and 5 from home."""
    way = {"locs": np.array([[0, 0], [3, 0], [3, 4]]), "dist": np.array([[0.0, 3, 5], [3, 0, 4], [5, 4, 0]])}
    one = {places: way[places], **{name: np.array(value) for name, value in fields.items()}}
    world = VRP.from_instances([one], autoreset="disabled")
    world.step([1])
    assert world.action_mask[0].tolist() == [True, False, False]
    assert world.why_illegal(0, 2) == reason
