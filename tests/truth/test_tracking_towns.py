"""Towns of the tracking world pass their checker, which derives every rule from nodes and boxes alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from milkrun.core.fields import Role
from milkrun.tracking import TrackingConfig
from milkrun.tracking.config import SCENES
from milkrun.tracking.world import Tracking
from tests.reference.tracking_towns import faults, law_faults

pytestmark = pytest.mark.truth


def faults_of_towns(count: int, seed: int, samples: int, **options: Any) -> Counter[str]:
    """Counts the faults of `count` towns by message."""
    config = TrackingConfig(size=16, **options)
    world: Any = Tracking(count, config, seed=seed, autoreset="disabled")
    world.reset()
    names = [f.name for f in world.fields.values() if f.role is Role.INSTANCE]
    found: Counter[str] = Counter()
    for b in range(count):
        town = {name: getattr(world, name)[b] for name in names}
        wrong = faults(town, config, n_veh=int(world.n_veh[b]), samples=samples, seed=seed) + law_faults(town, config)
        found.update(f"seed {seed} row {b}: {sentence}" for sentence in wrong)
    return found


@pytest.mark.parametrize("scene", SCENES)
def test_towns_keep_their_rules(scene):
    """20 towns: boxes, graph, zones, clearances, ground and shadows in sampled cells, and the scene's law."""
    assert faults_of_towns(20, seed=11, samples=300, scene=scene) == {}


@pytest.mark.parametrize("curriculum", ["straight_mono", "straight"])
@pytest.mark.parametrize("scene", SCENES)
def test_straight_stages_keep_their_rules(scene, curriculum):
    """One road without boxes in the scene's look, open at both ends."""
    assert faults_of_towns(3, seed=12, samples=300, scene=scene, curriculum=curriculum) == {}


def test_towns_of_other_maps_keep_their_rules():
    """A coarse ground, a wider map, and scenes drawn from a list."""
    assert faults_of_towns(6, seed=13, samples=300, scene=SCENES, ground_cell=2.0, half_extent=130.0) == {}


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES)
def test_a_thousand_towns_keep_their_rules(scene):
    """1,000 towns, and 40 of each straight stage."""
    found: Counter[str] = Counter()
    for part in range(10):
        found += faults_of_towns(100, seed=100 + part, samples=300, scene=scene)
    for curriculum in ("straight_mono", "straight"):
        found += faults_of_towns(40, seed=99, samples=300, scene=scene, curriculum=curriculum)
    assert found == {}


@pytest.mark.parametrize("scene", SCENES)
def test_the_checker_finds_faults_of_a_spoilt_town(scene):
    """A box moved onto a road, a zone made longer, a shadow wiped out: each is found."""
    config = TrackingConfig(size=16, scene=scene)
    world: Any = Tracking(1, config, seed=14, autoreset="disabled")
    world.reset()
    names = [f.name for f in world.fields.values() if f.role is Role.INSTANCE]
    for spoil in (move_box, widen_zone, wipe_shadows):
        town = {name: getattr(world, name)[0].copy() for name in names}
        assert faults(town, config, n_veh=int(world.n_veh[0]), samples=300) == []
        spoil(town)
        assert faults(town, config, n_veh=int(world.n_veh[0]), samples=300)


def move_box(town: dict[str, Any]) -> None:
    k = int(np.flatnonzero(np.isin(town["box_kind"], (1, 2, 4, 8)))[0])
    a, b = town["edge"][0]
    town["box_pos"][k, :2] = (town["node_xy"][a] + town["node_xy"][b]) / 2


def widen_zone(town: dict[str, Any]) -> None:
    town["edge_cut"][1, 0] += 1e-3


def wipe_shadows(town: dict[str, Any]) -> None:
    town["ground"] &= 0xBF
