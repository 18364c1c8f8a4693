"""The load of the cup: a single flat object of mass m, lifted with 8 m/s2, pulls with a rising fraction of m (g +
8)."""

from __future__ import annotations

import numpy as np
import pytest

from .trays import MUSTARD, PUDDING, SUGAR, heavy, laid, on_floor, tray

RISING = (0.622, 0.794, 0.888, 0.940, 0.968)
LIFT, CARRY = 4, 5


def pulls(world, action: int = 0) -> list[float]:
    """The mean force of every tick of a lift, N."""
    found, stage = [], 0
    while stage != CARRY and not world.done[0] and (stage or not found):
        before = world.env_stage[0]
        world.step([action])
        stage = int(world.env_stage[0])
        if before == LIFT:
            found.append(float(np.linalg.norm(world.force[0], axis=1).mean()))
    return found


def lone(kind: str, **options):
    return laid(on_floor(kind), box_objects=(kind,), **options)


@pytest.mark.parametrize(("kind", "mass"), [(SUGAR, 0.514), (MUSTARD, 0.603), (PUDDING, 0.187)])
def test_the_load_of_a_lift_follows_the_weld(kind, mass):
    """Five ticks of a rising force, then the object is clear."""
    found = pulls(lone(kind, step_mode="tick"))
    assert [force / (mass * 17.81) for force in found] == pytest.approx(RISING, abs=0.015)


def test_a_sleeping_object_pulls_the_same():
    """The second of two boxes: the pile was put to sleep after the first had left."""
    world = laid(on_floor(SUGAR, y=-0.12), on_floor(SUGAR, y=0.12), tray_side=0.5, step_mode="tick")
    pulls(world)
    while world.env_busy[0]:
        world.step([0])
    assert world.asleep[0]
    assert [force / (0.514 * 17.81) for force in pulls(world, 1)] == pytest.approx(RISING, abs=0.015)


def test_the_load_of_an_awake_object_starts_lower():
    """In a settled scene, sleep off: .45 to .52 of the weight in the first tick, then as the others."""
    world = tray(1, box_objects=(SUGAR,), step_mode="tick", sleep=False, seed=1)
    shares = [force / (0.514 * 17.81) for force in pulls(world)]
    assert 0.45 <= shares[0] <= 0.52
    assert shares[1:5] == pytest.approx(RISING[1:], abs=0.015)


@pytest.mark.parametrize(
    ("mass", "force", "lifted"), [(2.2, 40, True), (2.5, 40, False), (1.1, 20, True), (1.25, 20, False)]
)
def test_the_force_limits_the_liftable_mass(mass, force, lifted):
    """m x 17.81 x .968 compared with the limit: 37.9 and 43.1 of 40 N, 19.0 and 21.5 of 20 N."""
    world = lone(heavy(SUGAR, mass), suction_force=force)
    world.step([0])
    assert world.grasped[0, 0] == lifted and world.last_result[0] == (1 if lifted else 2)
    assert world.fails[0, 0] == (not lifted) and world.terminated[0] == lifted


def test_the_load_of_an_object_at_rest_is_its_weight():
    """Continuous mode: gripped, lifted a little, held for a second: m x 9.81 within 1 %."""
    world = laid(on_floor(SUGAR), use_discrete_action=False)

    def steer(z, suction, turns):
        for _ in range(turns):
            step = np.clip((z - world.cup_pos[0, 2]) / 0.02, -1, 1)
            world.step(np.array([[0.0, 0.0, step, suction]], np.float32))

    steer(0.062, -1, 40)
    assert world.cup_pos[0, 2] == pytest.approx(0.062, abs=1e-6) and world.current_suction_object[0] == -1
    steer(0.062, 1, 1)
    assert world.current_suction_object[0] == 0 and world.env_stage[0] == LIFT
    steer(0.2, 1, 30)
    steer(0.2, 1, 50)
    assert np.linalg.norm(world.force[0], axis=1).mean() == pytest.approx(0.514 * 9.81, rel=0.01)
