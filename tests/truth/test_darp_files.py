"""Published optima of Cordeau's dial-a-ride files, replayed by the world: cost, masks number by number, clocks.

The numbers do not come from this code: costs are from Cordeau (2006) and Ropke, Cordeau, Laporte (2007), masks from
trying all orders of the dropoffs with Bellman-Ford.
"""

from __future__ import annotations

import csv
import functools
import json

import numpy as np
import pytest

from milkrun.core.errors import IllegalAction, ResetNeeded
from milkrun.routing.darp import DARP
from milkrun.routing.instances import cordeau
from milkrun.routing.tasks import DARPProblem
from tests.published import published_file, published_files

pytestmark = pytest.mark.truth

SUMS = {
    "a2-16": (119, 1553),
    "a2-24": (217, 4761),
    "a3-18": (143, 2358),
    "a3-30": (287, 8538),
    "a4-16": (135, 1991),
    "b2-16": (115, 1926),
    "b2-24": (239, 5405),
    "b3-18": (147, 2284),
    "b3-30": (361, 10344),
    "b4-16": (127, 1584),
    "b4-32": (392, 10784),
}
"""Sums over the replay of each published optimum: legal actions before each step, and their node indices."""
COUNTS = [16, 2, 1, 1, 13, 2, 9, 1, 7, 2, 1, 1, 1, 10, 2, 1, 1, 9, 2, 2, 1, 7, 1, 6, 1, 5, 3, 2, 1, 3, 1, 2, 1, 1]
"""Legal actions before each of the 34 steps of a2-16."""
PRINTED = {
    "a2-16": (294.25, [[10, 5, 26, 21, 14, 30, 15, 31, 7, 16, 23, 32],
                       [12, 6, 28, 22, 4, 11, 27, 20, 3, 19, 13, 29, 9, 8, 25, 24, 2, 18, 1, 17]]),
    "a4-16": (282.68, [[12, 28, 7, 1, 23, 17, 15, 31], [9, 25, 11, 5, 27, 21, 4, 20],
                       [14, 3, 30, 19, 10, 26, 2, 18, 8, 24, 16, 13, 32, 29], [6, 22]]),
    "b2-16": (309.41, [[9, 25, 8, 2, 18, 16, 24, 6, 22, 32, 3, 19, 5, 21, 7, 12, 23, 15, 28, 31, 4, 20],
                       [10, 26, 1, 17, 13, 11, 29, 27, 14, 30]]),
}  # fmt: skip


@functools.cache
def published():
    """By file: the routes in its numbering, and their cost."""
    return json.loads(published_file("darp/solutions.json").read_text())


@functools.cache
def best_known():
    with published_file("darp/best_known.csv").open() as file:
        return {row["name"]: float(row["value"]) for row in csv.DictReader(file)}


@functools.cache
def load(name):
    return cordeau.load(published_file(f"darp/{name}.txt"))


@functools.cache
def all_files():
    return [cordeau.load(path) for path in published_files("darp/*.txt")]


def plan_of(name):
    return DARPProblem.routes_to_actions(published()[name]["routes"], load(name).num_requests).tolist()


def world_of(*names, **options):
    return DARP.from_instances([load(name) for name in names], autoreset="disabled", illegal="raise", **options)


def masks_along(world, row, plan):
    """Plays a plan in one row of a world that raises at illegal actions; the masks before each step."""
    masks = []
    for turn, action in enumerate(plan):
        assert not world.done[row], f"ended before step {turn}"
        masks.append(world.action_mask[row].copy())
        world.step([action], rows=[row])
    assert world.terminated[row] and not world.truncated[row]
    return np.array(masks)


def test_eleven_optima_are_published_with_their_routes():
    """Ensures that no replay is missing; three use the literature's numbering."""
    assert sorted(published()) == sorted(SUMS) and len(SUMS) == 11
    for name, (cost, routes) in PRINTED.items():
        assert published()[name]["routes"] == routes
        assert best_known()[name] == cost
    assert sum(len(one["routes"]) for one in published().values()) == 32


@pytest.mark.parametrize("name", SUMS)
def test_published_optimum_replays_to_its_cost(name):
    """Every action is legal, the last one ends the episode; return and checker give the published value."""
    world, plan = world_of(name), plan_of(name)
    paid = 0.0
    for turn, action in enumerate(plan):
        assert world.action_mask[0, action] and not world.done[0]
        world.step([action])
        paid += float(world.reward_exact[0])
        assert world.terminated[0] == (turn == len(plan) - 1)
    assert not world.truncated[0] and not world.illegal[0]
    assert world.unserved[0] == 0 and world.vehicles_used[0] == len(published()[name]["routes"])
    assert world.objective[0] == pytest.approx(paid, rel=1e-12)
    assert world.objective[0] == pytest.approx(-published()[name]["cost"], abs=1e-3)
    assert world.objective[0] == pytest.approx(-best_known()[name], abs=0.006)
    assert world.distance[0] == world.total_distance[0] == pytest.approx(-world.objective[0], rel=1e-12)
    report = DARPProblem.check(load(name), DARPProblem.actions_to_routes(world.solution()[0]))
    assert report.feasible and report.unserved == 0
    assert report.cost == pytest.approx(-world.objective[0], rel=1e-9)


@pytest.mark.parametrize("name", SUMS)
def test_terminal_reward_is_the_published_cost(name):
    """The reward is zero before the last step."""
    world, plan = world_of(name, reward="terminal"), plan_of(name)
    for action in plan[:-1]:
        world.step([action])
        assert world.reward[0] == 0
    world.step([plan[-1]])
    assert world.reward[0] == pytest.approx(-published()[name]["cost"], abs=1e-3)


def test_a_replay_can_be_illegal():
    """The optimum of a4-16 is illegal in b2-16, and an ended row refuses actions."""
    world = world_of("b2-16")
    with pytest.raises(IllegalAction, match="row 0: action"):
        masks_along(world, 0, plan_of("a4-16"))
    world = world_of("a2-16")
    masks_along(world, 0, plan_of("a2-16"))
    with pytest.raises(ResetNeeded):
        world.step([0])


@pytest.mark.parametrize("name", SUMS)
def test_legal_actions_along_the_optimum(name):
    """Their number, and the sum of their node indices."""
    masks = masks_along(world_of(name), 0, plan_of(name))
    assert (int(masks.sum()), int((masks * np.arange(masks.shape[1])).sum())) == SUMS[name]


def test_legal_actions_of_a2_16_step_by_step():
    """34 counts."""
    assert masks_along(world_of("a2-16"), 0, plan_of("a2-16")).sum(axis=1).tolist() == COUNTS


def test_clocks_of_a2_16():
    """Earliest starts along the first route, the latest departure, and the riders aboard after its tenth stop."""
    world = world_of("a2-16")
    starts = [32, 49, 62.131, 82, 160, 165.2, 180, 199.959, 367, 374.954, 400, 413.492]
    for stop, (action, start) in enumerate(zip(plan_of("a2-16"), starts, strict=False), 1):
        world.step([action])
        assert world.current_time[0] == pytest.approx(start, abs=1e-3)
        assert world.departure_latest[0] == pytest.approx(44.390, abs=1e-3)
        if stop == 10:
            assert world.onboard[0].tolist() == [6, 15] + [-1] * 6
            assert world.onboard_latest[0, :2] == pytest.approx([373.046, 381], abs=1e-3)
            assert world.onboard_elapsed[0, :2] == pytest.approx([7.954, 0], abs=1e-3)
            assert not world.onboard_latest[0, 2:].any() and not world.onboard_elapsed[0, 2:].any()
    assert stop == 12


def test_tightened_windows_of_a2_16():
    """Of the file's requests 1 and 10, and of their dropoffs 17 and 26: nodes 1, 2, 19 and 20; not of the depot."""
    world = world_of("a2-16")
    windows = {1: (369, 399.729), 2: (402, 417), 19: (32, 47), 20: (42.054, 80), 0: (0, 480)}
    for node, (opens, closes) in windows.items():
        assert world.tight_open[0, node] == pytest.approx(opens, abs=1e-3)
        assert world.tight_close[0, node] == pytest.approx(closes, abs=1e-3)


def test_replays_inside_one_padded_world():
    """All files in one batch, up to 72 requests and 8 vehicles: the 11 play as each does alone, the others stay."""
    files = all_files()
    world = DARP.from_instances(files, autoreset="disabled", illegal="raise")
    names = [one.name for one in files]
    assert len(names) >= 24 and world.sizes["R"] >= 72 and world.sizes["V"] >= 8
    before = world.state_dict()
    for name in SUMS:
        row, plan = names.index(name), plan_of(name)
        masks = masks_along(world, row, plan)
        alone = world_of(name)
        own = masks_along(alone, 0, plan)
        nodes = own.shape[1]
        assert (masks[:, :nodes] == own).all() and not masks[:, nodes:].any()
        for field in ("objective", "total_distance", "current_time", "unserved", "vehicles_used", "i"):
            assert getattr(world, field)[row] == getattr(alone, field)[0], field
        assert world.objective[row] == pytest.approx(-published()[name]["cost"], abs=1e-3)
    others = [row for row, name in enumerate(names) if name not in SUMS]
    after = world.state_dict()
    instances = {name for name, field in world.fields.items() if field.role.value == "instance"}
    for field, values in before.items():
        kept = slice(None) if field in instances else others
        assert np.array_equal(values[kept], after[field][kept], equal_nan=True), field


def test_every_pickup_of_every_file_is_legal_at_first():
    """Exactly the n pickups: the vehicles are equal, so none may stay. max_onboard restricts no mask."""
    files = all_files()
    world = DARP.from_instances(files)
    for row, one in enumerate(files):
        pickups = np.zeros(world.sizes["N"], bool)
        pickups[1 : 2 * one.num_requests : 2] = True
        assert (world.action_mask[row] == pickups).all(), one.name
    assert world.mask_is_complete.tolist() == [True] * len(files)


def test_max_onboard_can_bind():
    """Cars of 3 with single riders: max_onboard 2 restricts the mask, 3 does not."""
    for most, complete in ((2, False), (3, True)):
        assert world_of("a2-16", max_onboard=most).mask_is_complete.tolist() == [complete]
