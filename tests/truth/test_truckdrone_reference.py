"""The truck-and-drones kernel equals the scalar model of `tests/reference`, which was written from the rules alone.

Every output of every transition is compared: discrete values equal, reals to 1e-12, observations to the second-last bit
of a float32. Actions are drawn among the allowed ones or among all, so that both rule sets get forbidden ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import milkrun
from tests.reference.truckdrone import truck_drone
from tests.reference.truckdrone_state import COUNTS, STATE, TruckDroneModel

SIZES = [(2, 3, 5), (3, 7, 6), (1, 1, 2), (5, 15, 5)]
SOUND_TWISTS: list[dict[str, Any]] = [
    {},
    {"battery_rate": 1.0},
    {"battery_rate": 0.1, "pickup": "air", "end": "depot"},
    {"reserve": False, "end": "served", "early": "ignore"},
    {"battery_rule": "off", "battery_rate": 0.9, "recovery_charge": 0.3},
    {"battery_rule": "off", "battery_rate": 0.7, "reserve": False, "pickup": "air", "obs": "v1"},
    {"payload_factor": 1.5, "hover_rate": 1.0, "recovery_threshold": 0.2, "depot_node": False},
    {"drone_speed": 1.3, "episode_length": 60, "battery_margin": 1.4, "time_limit_terminal": True},
]
PUBLISHED_TWISTS: list[dict[str, Any]] = [
    {},
    {"battery_rate": 0.3},
    {"battery_rate": 1.0},
    {"battery_rate": 0.5, "obs": "v2", "episode_length": 50},
    {"battery_rate": 0.6, "obey_mask": True, "max_steps": 40},
]
VIEWS = ("executed", "forced", "conflict", "just_served", "battery_used", "truck_step_dist")
REALS = {"truck_pos", "truck_vel", "drone_pos", "drone_vel", "battery", "target_pos", "battery_used", "truck_step_dist"}
AMOUNTS = ("energy", "truck_distance", "drone_distance")


def build(world: Any, row: int, preset: str, changes: dict[str, Any]) -> TruckDroneModel:
    names = ("customer_pos", "demand", "tw_start", "tw_end", "route_nodes")
    config = {name: value for name, value in changes.items() if name != "num_customers"}
    return truck_drone(preset, {name: getattr(world, name)[row] for name in names}, **config)


def differences(world: Any, row: int, model: TruckDroneModel) -> list[str]:
    """Names of values in which the row and the model differ."""
    wrong = []
    for name in (*STATE, *VIEWS):
        have, want = np.asarray(getattr(world, name)[row]), np.asarray(getattr(model, name))
        same = np.allclose(have, want, rtol=0, atol=1e-12) if name in REALS else np.array_equal(have, want)
        if not same:
            wrong.append(f"{name}: {have.tolist()} is not {want.tolist()}")
    flags = {"action_mask": model.action_mask, "illegal_agents": model.illegal}
    wrong += [name for name, want in flags.items() if getattr(world, name)[row].tolist() != want]
    if abs(world.reward_exact[row] - model.reward_exact) > 1e-12:
        wrong.append(f"reward_exact: {world.reward_exact[row]} is not {model.reward_exact}")
    views = {"truck_obs": [model.truck_obs()], "drone_obs": model.drone_obs(), "state": model.state()}
    for name, want in views.items():
        if not np.allclose(getattr(world, name)[row], np.asarray(want, np.float32), rtol=1.2e-7, atol=1e-12):
            wrong.append(name)
    kpis = model.kpis()
    if world.sum_counts[row].tolist() != [kpis[name] for name in COUNTS]:
        wrong.append(f"sum_counts: {world.sum_counts[row].tolist()} is not {[kpis[name] for name in COUNTS]}")
    if not np.allclose(world.sum_amounts[row], [kpis[name] for name in AMOUNTS], rtol=0, atol=1e-9):
        wrong.append("sum_amounts")
    return wrong


EXACT = tuple(name for name in (*STATE, *VIEWS) if name not in REALS)
ORDERED_REALS = tuple(name for name in (*STATE, *VIEWS) if name in REALS)


def flat(values: list[Any]) -> list[float]:
    """Flattens nested lists of numbers."""
    out: list[float] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            out.extend(flat(value))
        else:
            out.append(value)
    return out


def outputs_of_model(m: TruckDroneModel) -> tuple[list[float], list[float], list[float]]:
    """Discrete values, reals, observations."""
    kpis = m.kpis()
    exact = [getattr(m, name) for name in EXACT] + [m.action_mask, m.illegal, [kpis[name] for name in COUNTS]]
    reals = [getattr(m, name) for name in ORDERED_REALS] + [m.reward_exact, [kpis[name] for name in AMOUNTS]]
    return flat(exact), flat(reals), flat([m.truck_obs(), m.drone_obs(), m.state()])


def outputs_of_world(world: Any, rows: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same for some rows, in the same order."""
    names = (
        (*EXACT, "action_mask", "illegal_agents", "sum_counts"),
        (*ORDERED_REALS, "reward_exact", "sum_amounts"),
        ("truck_obs", "drone_obs", "state"),
    )
    parts = ([getattr(world, name)[rows].reshape(len(rows), -1) for name in group] for group in names)
    exact, reals, seen = (np.concatenate(part, axis=1) for part in parts)
    return exact.astype(np.int64), reals, seen


def agree(world: Any, models: list[TruckDroneModel], rows: list[int]) -> bool:
    """Compares the same values as `differences`, for many rows at once."""
    outputs = [outputs_of_model(models[b]) for b in rows]
    exact, reals, seen = outputs_of_world(world, rows)
    return (
        np.array_equal(exact, np.array([t[0] for t in outputs], np.int64))
        and bool((np.abs(reals - np.array([t[1] for t in outputs])) <= 1e-12).all())
        and np.allclose(seen, np.array([t[2] for t in outputs], np.float32), rtol=1.2e-7, atol=1e-12)
    )


def play(preset: str, size: tuple[int, int, int], twist: dict[str, Any], masked: bool, transitions: int) -> int:
    """Plays rows until `transitions` transitions are compared; returns their number."""
    drones, customers, nodes = size
    changes = {"num_drones": drones, "num_customers": customers, "num_route_nodes": nodes, **twist}
    more = {"drone_capacity": max(3, drones)} if preset == "default" else {}
    rows, compared, episode = min(64, transitions // 20), 0, 0
    world = milkrun.make("milkrun/TruckDrone-v0", rows, preset=preset, autoreset="disabled", **changes, **more)
    rng = np.random.default_rng(drones + 10 * masked)
    choices = world.action.nvec(world.sizes)
    while compared < transitions:
        world.reset(seed=1000 + episode)
        models = [build(world, b, preset, changes) for b in range(rows)]
        episode += 1
        live = list(range(rows))
        assert agree(world, models, live)
        turn = 0
        while live and compared < transitions:
            if masked:
                actions = world.sample_actions(episode, turn)[live]
            else:
                actions = np.stack([rng.integers(-1, n + 1, len(live)) for n in choices], axis=1)
            turn += 1
            world.step(actions, rows=live)
            for a, b in zip(actions.tolist(), live, strict=True):
                models[b].step(a)
            if not agree(world, models, live):
                wrong = {b: found for b in live if (found := differences(world, b, models[b]))}
                raise AssertionError((preset, size, twist, masked, episode, turn, wrong))
            compared += len(live)
            live = [b for b in live if not models[b].done]
    return compared


CASES = [("default", twist) for twist in SOUND_TWISTS] + [("published", twist) for twist in PUBLISHED_TWISTS]


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize(("preset", "twist"), CASES, ids=lambda x: x if isinstance(x, str) else "-".join(x) or "plain")
def test_every_output_equals_the_scalar_model(preset: str, twist: dict[str, Any], masked: bool):
    """Two sizes of each twist, some hundred transitions each."""
    at = CASES.index((preset, twist))
    for size in (SIZES[at % 4], SIZES[(at + 1) % 4]):
        assert play(preset, size, twist, masked, 600) >= 600


@pytest.mark.long
@pytest.mark.parametrize("masked", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize(("preset", "twist"), CASES, ids=lambda x: x if isinstance(x, str) else "-".join(x) or "plain")
def test_a_million_transitions_equal_the_scalar_model(preset: str, twist: dict[str, Any], masked: bool):
    """26 cases of four sizes, 10,000 transitions each."""
    assert sum(play(preset, size, twist, masked, 10_000) for size in SIZES) >= 1_040_000 / 26
