"""PDP-v0 beside its scalar reference, which was written from the rules alone, its checker, and cases by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadInstance, ConfigError, FormatError
from milkrun.core.instances import instances_of
from milkrun.routing.instances import read, replay, solution_of
from milkrun.routing.pdp import PDP
from milkrun.routing.tasks import PDP as Task
from tests.published import published_file
from tests.reference import pdp as reference
from tests.routing.fleet_cases import PAIR_RULES, PAIRED, UNSERVED_COST, build, dataset, draw_pdp, mixed
from tests.routing.test_fleet_published import LI_LIM, listed_routes, text_of
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


def test_windows_without_end_change_nothing():
    """Windows [0, inf] and infinite limits give the masks and rewards of an instance without, and keep a plan."""
    rng = np.random.default_rng(3)
    fields, _ = build(reference.PDP, draw_pdp, rng, 6, PAIRED["capacity"])
    nodes = len(fields["demand"])
    plain = world_of(fields, 32)
    free = {"time_windows": [(0, np.inf)] * nodes, "distance_limit": np.inf, "duration_limit": np.inf}
    timed = world_of({**fields, **free}, 32)
    assert plain.plan.size == 0 and timed.plan.shape == (32, 6)
    while not plain.done.all():
        assert np.array_equal(plain.action_mask, timed.action_mask)
        live = np.flatnonzero(~plain.done)
        for b in live.tolist():
            assert set(timed.plan[b][timed.plan[b] >= 0]) == set(np.flatnonzero(timed.aboard[b]))
        actions = plain.sample_actions(2)[live]
        plain.step(actions, rows=live)
        timed.step(actions, rows=live)
        assert np.array_equal(plain.reward, timed.reward) and np.array_equal(plain.terminated, timed.terminated)


def test_a_loaded_state_counts_no_search_twice():
    """The mask of a loaded state is derived again; `gave_up` stays."""
    rng = np.random.default_rng(4)
    while True:
        fields, _ = build(reference.PDP, draw_pdp, rng, 6, PAIRED["windows"])
        world = world_of({**fields, "search_limit": 0}, 8)
        for _ in range(5):
            world.step(world.sample_actions(1))
        if world.gave_up.any():
            break
    kept = world.state_dict()
    world.load_state_dict(kept)
    assert np.array_equal(world.gave_up, kept["gave_up"]) and np.array_equal(world.action_mask, kept["action_mask"])


STREET: dict[str, Any] = {"locs": np.array(PAIRS, float), "demand": np.array([0, 2, 3, -2, -3])}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"demand": np.array([0, 2, 3, -2, -2])}, "the delivery must unload what its pickup loads"),
        ({"demand": np.array([0, 0, 3, 0, -3])}, "a pickup loads at least one unit"),
        ({"demand": np.array([1, 2, 3, -2, -3])}, "a depot has none"),
        ({"n_nodes": np.int32(4)}, "leaves a pickup without delivery"),
        ({"capacity": np.array([2])}, "pickup 2 and delivery 4 .* holds less"),
        ({"time_windows": np.array([[0, 30], [0, 2], [0, 9], [0, 30], [0, 30]])}, "pickup 1 .* late at the pickup"),
        ({"time_windows": np.array([[0, 30], [0, 9], [0, 9], [0, 7], [0, 30]])}, "pickup 1 .* late at the delivery"),
        ({"time_windows": np.array([[0, 11], [0, 9], [0, 9], [0, 9], [0, 9]])}, "pickup 1 .* is back late"),
        ({"distance_limit": np.array([17.0])}, "pickup 2 .* too far"),
        ({"duration_limit": np.array([17.0])}, "pickup 2 .* too long"),
    ],
)
def test_a_wrong_instance_is_refused(fields, sentence):
    """Pairs that do not cancel, and pairs that no vehicle can serve: 1 to 3 takes 3 + 5 + 4, 2 to 4 takes 5 + 5 + 8."""
    with pytest.raises(BadInstance, match=sentence):
        PDP.from_instances([{**STREET, **fields}])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"num_loc": 7}, "must be even"),
        ({"vehicles": 3, "most_vehicles": 2}, "most_vehicles = 2 is below vehicles = 3"),
        ({"objective": "max", "fleet_costs": True}, "fleet_costs have no meaning"),
        ({"capacity": 2, "max_demand": 3}, "no vehicle can take it"),
    ],
)
def test_wrong_options_are_refused(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        milkrun.make("milkrun/PDP-v0", **options)


@pytest.mark.parametrize(
    ("fields", "action", "reason"),
    [
        ({}, 4, "its pickup 2 is not visited"),
        ({}, 0, "the goods of delivery 3 are aboard"),
        ({"capacity": np.array([4])}, 2, "load 2 + 3 > 4"),
        ({"time_windows": np.array([[0, 40], [0, 9], [0, 6], [0, 40], [0, 40]])}, 2, "late: arrives 7, closes 6"),
        ({"time_windows": np.array([[0, 40], [0, 9], [0, 9], [0, 9], [0, 40]])}, 2, "would strand delivery 3"),
        (
            {"distance_limit": np.array([19.0])},
            2,
            "no order of the 2 deliveries aboard was found that keeps all windows and limits",
        ),
    ],
)
def test_the_reason_of_a_closed_node(fields, action, reason):
    """After pickup 1 at distance 3: pickup 2 is reached at 7 and delivery 3 via it at 10; the tour of all takes 20."""
    world = PDP.from_instances([{**STREET, "vehicles": np.array([2]), **fields}], autoreset="disabled")
    world.step([1])
    assert not world.action_mask[0, action]
    assert world.why_illegal(0, action) == reason


@pytest.mark.parametrize("preset", ["n20", "mdcpdp", "mpdp"])
def test_random_play_of_a_preset_is_valid(preset):
    """The checker accepts every plan at the cost of the return; with one depot all are served."""
    world = milkrun.make("milkrun/PDP-v0", 64, preset=preset, num_loc=20, seed=3, autoreset="disabled")
    world.reset()
    while not world.done.all():
        live = np.flatnonzero(~world.done)
        world.step(world.sample_actions(1)[live], rows=live)
    data = {name: array for name, array in instances_of(world).items() if name not in ("n_nodes", "alone", "has_clock")}
    cost = Task.get_costs(data, world.solution(), **PDP.task_options(world.config))[0]
    assert cost == pytest.approx(-world.objective, rel=1e-4)
    assert not world.truncated.any() and (preset == "mdcpdp" or not world.unserved.any())


def test_the_fleets_of_mpdp():
    """Uniform in 2..10: each number has a ninth of 9,000 rows, with a standard error of 0.0033."""
    world = milkrun.make("milkrun/PDP-v0", 9000, preset="mpdp", num_loc=2, seed=1)
    world.reset()
    numbers, count = np.unique(world.vehicles, return_counts=True)
    assert numbers.tolist() == list(range(2, 11)) and count / 9000 == pytest.approx(1 / 9, abs=0.015)


def test_places_are_those_of_the_cvrp():
    """The same seed draws the same depot and the same customers."""
    one = milkrun.make("milkrun/PDP-v0", 8, num_loc=20, seed=5)
    other = milkrun.make("milkrun/CVRP-v0", 8, num_loc=20, seed=5)
    one.reset()
    other.reset()
    assert np.array_equal(one.locs, other.locs)


@pytest.mark.parametrize("name", [name for name in LI_LIM if name != "lr2_2_8"])
def test_published_plans_of_li_and_lim(name):
    """Each action of the plan is allowed, the return is minus its length; a route backwards is refused."""
    instance = read(published_file(f"routing2/lilim/{name}.txt"))
    plan = [tuple(route) for route in listed_routes(text_of(f"lilim/{name}.sol"))]  # lc204.sol lacks the last line end
    assert replay(instance, plan) == (pytest.approx(LI_LIM[name][1], abs=5.1e-5), True, None)
    world = instance.world(autoreset="disabled", max_steps=None)
    place = {number: node for node, number in enumerate(instance.numbers)}
    for customers in plan:
        for action in [*(place[j] for j in customers), 0]:
            assert world.action_mask[0, action], world.why_illegal(0, action)
            world.step([action])
    assert world.terminated[0] and (world.trips[0], world.unserved[0]) == (LI_LIM[name][0], 0)
    assert -world.objective[0] == pytest.approx(LI_LIM[name][1], abs=1e-3)
    assert list(solution_of(instance, world.taken(0)).routes) == plan
    backwards = [plan[0][::-1], *plan[1:]]
    assert "comes before its pickup" in replay(instance, backwards)[2]


PAIR_FILE = """2 9 1
0 0 0 0 0 50 0 0 0
1 0 4 -2 0 50 1 3 0
2 3 4 3 0 50 1 0 4
3 3 0 2 0 50 1 0 1
4 0 8 -3 0 50 1 2 0
"""


def read_text(tmp_path, text):
    path = tmp_path / "pairs.txt"
    path.write_text(text)
    return read(path)


def test_a_file_of_pairs(tmp_path):
    """Pickups 2 and 3 become nodes 1 and 2, their deliveries 4 and 1 nodes 3 and 4."""
    instance = read_text(tmp_path, PAIR_FILE)
    assert instance.numbers == (0, 2, 3, 4, 1) and (instance.vehicles, instance.kind) == (2, "PDPTW")
    assert instance.fields["demand"].tolist() == [0, 3, 2, -3, -2]
    assert replay(instance, [[3, 2, 4, 1]]) == (20, True, None)  # 3 + 4 + 5 + 4 + 4
    assert replay(instance, [[3, 2, 4]])[2].startswith("route 1 goes home with the goods of pickup 2")
    assert instance.world().vehicles.tolist() == [[2]]
    one = read_text(tmp_path, PAIR_FILE.replace("2 9 1", "1 9 1", 1)).with_fleet("enforce")
    assert one.world().vehicles.tolist() == [[1]] and one.world_id == "milkrun/PDP-v0"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("2 9 1", "2 2 1", "a pickup of 3 is not within 1..2"),
        ("2 9 1", "2 9 -1", "'-1' is below 0"),
        ("3 3 0 2 0", "3 3 0 1 0", "node 3 loads 1, node 1 unloads 2"),
        ("1 3 0\n", "1 2 0\n", "node 1 names node 2, which does not name node 1"),
        ("1 0 4\n", "1 2 4\n", "node 2 must name its pickup or its delivery"),
        ("0 50 1 0 1\n", "0 50 1 1 0\n", "are no pickup and delivery"),
        ("4 0 8 -3 0 50 1 2 0\n", "", "4 nodes"),
        ("1 0 4 -2 0 50", "1 0 4 -2 60 50", "the window closes at 50, before it opens at 60"),
        ("0 0 0 0 0 50 0", "0 0 0 0 0 50 1", "the depot has no demand"),
    ],
)
def test_a_fault_in_a_file_of_pairs(tmp_path, old, new, sentence):
    """Each fault is a FormatError with the line."""
    assert old in PAIR_FILE
    with pytest.raises(FormatError, match=sentence):
        read_text(tmp_path, PAIR_FILE.replace(old, new, 1))
