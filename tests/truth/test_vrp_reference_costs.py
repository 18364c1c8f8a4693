"""Reference costs of all 48 variants: 16 base instances with 20 customers.

Another program made and checked the plans and the random play.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from milkrun.routing.vrp import VRP
from milkrun.routing.vrp.variants import VARIANTS
from milkrun.solvers import solve
from tests.published import published_file

pytestmark = pytest.mark.truth

RANDOM = {
    "cvrp": 12.68, "vrptw": 15.15, "vrpl": 12.73, "ovrp": 10.23, "ovrptw": 9.30, "vrpb": 12.91, "vrpmbtw": 15.15,
    "ovrpbltw": 9.30, "mdcvrp": 14.05, "mdvrptw": 17.08, "mdovrpmbltw": 9.80,
}  # fmt: skip
"""Mean costs of uniformly random allowed actions, by the scalar model of the specification's authors."""


@cache
def reference() -> dict[str, Any]:
    return json.loads(published_file("routing2/reference-n20.json").read_text())


def instances_of(name: str) -> dict[str, np.ndarray]:
    """The 16 base instances with the attributes of a variant."""
    odds, made = VARIANTS[name], []
    for one in reference()["instances"]:
        k = 3 if odds.depots else 1
        at_depots = np.zeros(k)
        demand, back = np.array(one["demand"]), np.array(one["backhaul"]) & (odds.backhaul > 0)
        fields: dict[str, Any] = {
            "locs": np.array([*one["depots"][:k], *one["customers"]]),
            "linehaul": np.concatenate([at_depots, np.where(back, 0, demand)]).astype(int),
            "capacity": np.full(k, one["capacity"]),
            "open_route": np.bool_(odds.open),
        }
        if odds.backhaul:
            fields["backhaul"] = np.concatenate([at_depots, np.where(back, demand, 0)]).astype(int)
            fields["backhaul_class"] = np.array([2 if odds.mixed else 1])
        if odds.windows:
            opens, closes = (np.array(one[f"window_{side}_{k}"]) for side in ("open", "close"))
            windows = np.stack([np.concatenate([at_depots, opens]), np.concatenate([at_depots + 4.6, closes])], 1)
            fields |= {"time_windows": windows, "service_time": np.concatenate([at_depots, one["service"]])}
        if odds.limit:
            fields["distance_limit"] = np.full(k, one[f"limit_{k}"])
        made.append(fields)
    return {name: np.stack([fields[name] for fields in made]) for name in made[0]}


def world_of(name: str, repeat: int = 1) -> Any:
    stacked = instances_of(name)
    rows = [{field: array[q] for field, array in stacked.items()} for q in range(16)]
    return VRP.from_instances(rows, repeat, autoreset="disabled", max_steps=None)


def actions_of(name: str, q: int) -> list[int]:
    """The reference plan of instance q as actions."""
    routes = reference()["variants"][name]["routes"][q]
    actions = [routes[0][0]] if VARIANTS[name].depots else []
    for r, (_, customers) in enumerate(routes):
        actions += [*customers, routes[min(r + 1, len(routes) - 1)][0]]
    return actions


@pytest.mark.parametrize("name", VARIANTS)
def test_reference_plans_are_allowed_and_cost_the_same(name):
    """Each action of each plan is open in the mask; the return is minus the reference cost, to 1e-5."""
    world, plans = world_of(name), [actions_of(name, q) for q in range(16)]
    for step in range(max(map(len, plans))):
        live = np.array([q for q in range(16) if step < len(plans[q])])
        actions = np.array([plans[q][step] for q in live])
        closed = [int(q) for q, a in zip(live, actions, strict=True) if not world.action_mask[q, a]]
        assert not closed, f"{name}, instance {closed[0]}: {world.why_illegal(closed[0], plans[closed[0]][step])}"
        world.step(actions, rows=live)
    assert world.terminated.all() and set(world.variant_names()) == {name}
    assert -world.objective == pytest.approx(np.array(reference()["variants"][name]["cost"]), rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", VARIANTS)
def test_pyvrp_finds_the_reference_costs(name):
    """With 4,000 iterations: the mean within 0.3 %, and no cost below the reference by more than 1e-4."""
    pytest.importorskip("pyvrp", reason="needs the extra 'solvers'")
    cost = solve("VRP", instances_of(name), "pyvrp", iterations=4000).cost
    expected = np.array(reference()["variants"][name]["cost"])
    assert (cost >= expected - 1e-4).all()
    assert cost.mean() <= 1.003 * expected.mean()


@pytest.mark.parametrize("name", RANDOM)
def test_random_play_costs_the_same(name):
    """60 random episodes of each instance: the mean is that of another program within 1.5 %."""
    world = world_of(name, 60)
    assert random_cost(world) == pytest.approx(RANDOM[name], rel=0.015)


def random_cost(world: Any) -> float:
    """The mean cost of uniformly random allowed actions."""
    while not world.done.all():
        live = np.flatnonzero(~world.done)
        world.step(world.sample_actions(3)[live], rows=live)
    return float(-world.objective.mean())
