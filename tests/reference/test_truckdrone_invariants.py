"""What holds in every episode of the sound truck-and-drones reference: nobody crashes, and the books balance."""

from __future__ import annotations

import random

import numpy as np
import pytest

from .test_truckdrone_by_hand import bits, row
from .truckdrone_presets import CRASHED, FLYING, ONBOARD, RETURNING


@pytest.mark.parametrize("seed", range(24))
def test_no_drone_ever_crashes_under_the_battery_rule(seed):
    """Random rates and actions, masked or not, in turn a truck that flees; and the books balance after every step."""
    draw = random.Random(seed)
    drones = draw.randint(1, 3)
    doors = [(draw.uniform(-0.8, 0.8), draw.uniform(-0.8, 0.8)) for _ in range(draw.randint(1, 8))]
    model = row(
        "default",
        *doors,
        num_drones=drones,
        demand=draw.uniform(0.5, 1),
        window=(0, draw.randint(0, 70)),
        num_route_nodes=draw.randint(2, 7),
        drone_speed=draw.uniform(1.3, 3),
        battery_rate=draw.uniform(0.1, 0.9),
        payload_factor=draw.uniform(0, 1.5),
        hover_rate=draw.uniform(0, 1),
        recovery_threshold=draw.uniform(0.05, 0.2),
        end=draw.choice(["served", "returned", "depot"]),
        reserve=draw.random() < 0.5,
        episode_length=70,
        pickup=draw.choice(["air", "truck"]),
    )
    obedient, flees, complete = seed % 2 == 0, seed % 3 == 0, False
    while not model.done:
        before = (list(model.battery), list(model.drone_pos), list(model.status), list(model.served))
        assert all(any(mask) for mask in model.masks)
        pools = [[a for a, ok in enumerate(mask) if ok or not obedient] for mask in model.masks]
        actions = [draw.choice(pool) for pool in pools]
        air = [p for p, status in zip(model.drone_pos, model.status, strict=True) if status in (FLYING, RETURNING)]
        if flees and air:
            away = [sum((n[0] - x) ** 2 + (n[1] - y) ** 2 for x, y in air) for n in model.route_nodes]
            actions[0] = 1 + away.index(max(away))
        model.step(actions)
        assert CRASHED not in model.status
        assert not obedient or not (any(model.illegal) or any(model.forced))
        for d in range(drones):
            charged = model.battery[d] - before[0][d] + model.battery_used[d]
            assert -1e-12 <= charged <= 0.03 + 1e-12
            assert model.battery[d] > 0 or model.status[d] == ONBOARD
            if before[2][d] != ONBOARD and model.status[d] != ONBOARD:
                assert np.hypot(*np.subtract(model.drone_pos[d], before[1][d])) <= model.drone_speed * 0.1 + 1e-12
        assert all(now or not then for now, then in zip(model.served, before[3], strict=True))
        complete = model.terminated
    kpis = model.kpis()
    paid = -0.1 * kpis["makespan"] + 5 * kpis["served"] - 0.5 * kpis["energy"] - 0.5 * kpis["forced_onsets"]
    paid += -0.1 * kpis["lateness"] + (20 if complete else -10 * (len(doors) - kpis["served"]))
    assert kpis["objective"] == pytest.approx(paid, rel=0, abs=1e-9)
    assert bits(model.truck_mask) == "1" + "0" * (model.N + 2 * drones)
