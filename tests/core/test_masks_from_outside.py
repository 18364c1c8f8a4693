"""Masks that contradict their state: a saved state with one is refused, and no step trusts one as an index."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadInstance
from milkrun.core.hooks import kernels_of
from tests import small

WORLDS = milkrun.list_worlds()
MARKED = [id for id in WORLDS if "derive_mask" in kernels_of(milkrun.world_spec(id).load())]
ENGINES = {"milkrun/Clutter-v0", "milkrun/Tracking-v0"}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "milkrun/TSP-v0": [{"num_loc": 6}, {"num_loc": 6, "start": "free"}],
    "milkrun/TSPKopt-v0": [{"num_loc": 6}, {"num_loc": 6, "action_mode": "node"}, {"num_loc": 6, "moves": "3opt"}],
    "milkrun/DARP-v0": [{"num_requests": 4}, {"num_requests": 4, "rule": "deadlines"}],
    "milkrun/SDWCVRP-v0": [{"num_loc": 6, "max_steps": 40}],
    "milkrun/TruckDrone-v0": [{"num_customers": 4}, {"preset": "published", "num_customers": 4}],
}
CASES = [(id, options) for id in MARKED for options in OPTIONS.get(id, [{}])]


def in_play(world_id: str, options: dict[str, Any], steps: int, **more: Any) -> Any:
    """Rows some steps into an episode."""
    world = milkrun.make(world_id, 3, seed=2, autoreset="disabled", **options, **more)
    world.reset()
    for _ in range(steps):
        live = np.flatnonzero(~world.done)
        world.step(world.sample_actions()[live], rows=live)
    return world


def test_every_compiled_world_derives_its_mask():
    """Only the worlds around an engine compute their masks elsewhere."""
    assert {*WORLDS} - {*MARKED} == ENGINES


@pytest.mark.parametrize(("world_id", "options"), CASES, ids=str)
@pytest.mark.parametrize("steps", [0, 3])
def test_a_saved_mask_that_contradicts_its_state_is_refused(world_id, options, steps):
    """Each flag of a live row in turn, opened or closed: row and action are named, and the world stays as it was."""
    world = in_play(world_id, options, steps)
    (row, *_) = np.flatnonzero(~world.done).tolist()
    saved = world.state_dict()
    world.load_state_dict(saved)
    for action in range(saved["action_mask"].shape[1]):
        wrong = {**saved, "action_mask": saved["action_mask"].copy()}
        wrong["action_mask"][row, action] ^= True
        with pytest.raises(BadInstance, match=rf"row {row}: action_mask\[\d+"):
            world.load_state_dict(wrong)
    for name, array in world.state_dict().items():
        np.testing.assert_array_equal(array, saved[name])


def test_a_saved_mask_of_an_ended_row_is_no_matter():
    """It is never read."""
    world = in_play("milkrun/TSP-v0", {"num_loc": 3}, 3)
    assert world.done.all()
    saved = world.state_dict()
    saved["action_mask"][:] = True
    world.load_state_dict(saved)
    assert world.action_mask.all()


@pytest.mark.parametrize("world_id", WORLDS)
def test_no_step_indexes_outside_its_row_whatever_the_mask_says(world_id):
    """All flags True, any action, in the interpreter, which refuses indices that are out of range. A row that ends up
    without an allowed action may be refused; nothing else may."""
    for options in OPTIONS.get(world_id, [small.options(world_id)]):
        world = in_play(world_id, options, 0, debug=True)
        rng = np.random.default_rng(0)
        widths = world.action.nvec(world.sizes)
        for _ in range(small.turns(world_id, 40, 3)):
            if world.done.any():
                world.reset()
            world.action_mask[:] = True
            actions = np.stack([rng.integers(0, width, 3) for width in widths], axis=1)
            try:
                world.step(actions if len(widths) > 1 else actions[:, 0])
            except milkrun.core.errors.KernelFault as error:
                assert "leaves action_mask all False" in str(error)
                world.reset()


@cache
def padded_tours():
    """Rows of 5 nodes in a world of 8."""
    world = milkrun.make("milkrun/TSPKopt-v0", 2, seed=1, num_loc=8, autoreset="disabled")
    places = np.random.default_rng(3).random((2, 8, 2))
    world.reset(instance={"locs": places, "n_nodes": [5, 5]})
    return world


@pytest.mark.parametrize("action", [7 * 8 + 7, 2 * 8 + 6, 6 * 8 + 1, 0 * 8 + 4])
def test_a_move_of_padding_is_illegal_whatever_the_mask_says(action):
    """Positions from 5 on hold no node of the tour, and (0, 4) would reverse all nodes but the first."""
    world = padded_tours()
    before = world.tour.copy()
    world.action_mask[:] = True
    world.step([action, action])
    assert world.illegal.all() and (world.reward == 0).all()
    np.testing.assert_array_equal(world.tour, before)
