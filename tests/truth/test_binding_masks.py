"""Every mask that a binding returns equals the World's current mask and allows some action."""

import numpy as np
import pytest

import milkrun
from tests.small import functional
from tests.truth.binding_players import PLAYERS, TorchRL
from tests.truth.test_cross_binding import CASES, SEED

pytestmark = pytest.mark.truth
by_player = pytest.mark.parametrize("player_class", PLAYERS, ids=lambda player: player.__name__)
KINDS = {"milkrun/CVRP-v0", "milkrun/SDWCVRP-v0", "milkrun/TSPKopt-v0", "milkrun/TruckDrone-v0"}
by_kind = pytest.mark.parametrize(("id", "options"), [case for case in CASES if case[0] in KINDS], ids=str)


def assert_masks(masks, expected, choices):
    """All masks equal the expected one, which allows an action for every agent of every row."""
    parts = np.split(expected, np.cumsum(choices)[:-1], 1) if expected.shape[1] == sum(choices) else [expected]
    assert all(part.any(1).all() for part in parts)
    assert all(np.array_equal(mask, expected) for mask in masks)


def play(id, options, player_class, rows, turns):
    """Plays turns in which every second row takes any action; returns the number of ended episodes."""
    world = milkrun.make(id, rows, seed=SEED, autoreset="disabled", **options)
    player, generator = player_class(id, rows, SEED, options), np.random.default_rng(2)
    choices, second = np.array(world.action.nvec(world.sizes)), np.arange(rows) % 2 == 1
    world.reset()
    player.begin()
    ends = 0
    for turn in range(turns):
        assert len(player.masks) >= 1
        assert_masks(player.masks, world.action_mask, choices)
        actions = world.sample_actions(5, turn)
        free = second if rows > 1 else np.array([turn % 2 == 1])
        actions[free] = generator.integers(0, choices, (free.sum(), len(choices))).reshape(actions[free].shape)
        world.step(actions)
        result, done = player.turn(actions), world.done.copy()
        if done.any():
            assert len(result.last_masks) >= 1
            assert_masks(result.last_masks, world.action_mask[done], choices)
            world.reset(done)
        ends += done.sum()
    return ends


@by_player
@by_kind
def test_masks_are_the_worlds_and_never_empty(id, options, player_class):
    """Worlds of every kind, 300 steps of rows (100 of one). Half of the actions ignore the mask; finished rows are
    included."""
    rows, turns = (1, 100) if player_class.one_row else (20, 15)
    assert play(id, options, player_class, rows, turns) >= 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("player_class", "id", "options"),
    [(player, *case) for player in PLAYERS for case in CASES if player is not TorchRL or functional(case[0])],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_hundred_thousand_steps(id, options, player_class):
    """The same over 10^5 steps of rows of every world and binding."""
    rows, turns = (1, 100_000) if player_class.one_row else (500, 200)
    assert play(id, options, player_class, rows, turns) >= 1000
