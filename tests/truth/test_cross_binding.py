"""The same stream keys and actions give the same episodes through every binding.

The reference is a bare World whose ended rows are reset by the test. Everything is compared to the bit.
"""

import numpy as np
import pytest

import milkrun
from milkrun.core.fields import Role
from tests import small
from tests.truth.binding_players import PLAYERS, TorchRL, row_of
from tests.truth.test_gymnasium_conformance import WORLDS

pytestmark = pytest.mark.truth
SEED, ROWS, EPISODES = 11, 7, 3
TEAM = {"num_customers": 2, "num_route_nodes": 3, "episode_length": 12}
SHORT = {
    "milkrun/SDWCVRP-v0": {"num_loc": 6, "horizon": 2},
    "milkrun/TSPD-v0": {"num_nodes": 7},
    "milkrun/TSPKopt-v0": {"num_loc": 6, "max_steps": 12},
    "milkrun/TruckDrone-v0": TEAM,
    **small.SMALL,
}
"""Options with episodes of about ten steps; all other worlds take `num_loc`."""
CASES = [(id, SHORT.get(id, {"num_loc": 6})) for id in WORLDS]
CASES += [
    ("milkrun/TruckDrone-v0", {**TEAM, "preset": "published"}),
    ("milkrun/DARP-v0", {"num_loc": 6, "preset": "published"}),
    ("milkrun/CVRP-v0", {"num_loc": 8, "max_steps": 9}),
]
OF_THE_STEP = {"reward", "terminated", "truncated", "illegal"}


def assert_bits(ours, theirs, what):
    """The same numbers in any shape and dtype."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.size == theirs.size, what
    assert ours.reshape(theirs.shape).tobytes() == theirs.astype(ours.dtype).tobytes(), what


class Measure:
    """The World, and the expected observation of a row in each kind of view."""

    def __init__(self, id, rows, options):
        self.world = milkrun.make(id, rows, seed=SEED, autoreset="disabled", **options)
        self.space = milkrun.make(id, api="gymnasium", layout="dict", **options).observation_space
        self.team = {f"{group}_obs": group for group in self.world.groups}

    def seen(self):
        """Observations by name, as in a library's dict; infinite values (no limit) are left out."""
        named = {self.team.get(name, name): array for name, array in self.world.observe().items()}
        assert named.keys() >= self.space.keys()
        assert all(np.isinf(named[name]).all() for name in named.keys() - self.space.keys())
        return {name: named[name] for name in self.space}

    def flat(self, row):
        """All numbers concatenated, an index as a one-hot vector; without the mask."""
        shown = [(array[row], self.space[name]) for name, array in self.seen().items() if name != "action_mask"]
        parts = [np.eye(space.n)[value] if hasattr(space, "n") else np.ravel(value) for value, space in shown]
        return np.concatenate(parts).astype(np.float32)

    def agents(self, row):
        """A vector for each agent, and the state."""
        if not self.team:
            return [self.flat(row)], self.flat(row)
        seen = self.seen()
        return [vector for group in self.team.values() for vector in seen[group][row]], seen["state"][row]

    def assert_row(self, kind, look, row):
        """`look` is the current observation of row `row`."""
        if kind == "flat":
            assert_bits(look, self.flat(row), "flat")
        elif kind == "agents":
            vectors, state = self.agents(row)
            shown, share = look if isinstance(look, tuple) else (look, None)
            assert len(shown) == len(vectors)
            for mine, theirs in zip(shown, vectors):
                assert_bits(np.ravel(mine)[: theirs.size], theirs, "agent")
                assert not np.ravel(mine)[theirs.size :].any()
            for mine in () if share is None else share:
                assert_bits(mine, state, "state")
        else:
            names = self.seen() if kind == "dict" else {name: getattr(self.world, name) for name in look}
            assert look.keys() == names.keys()
            for name, array in names.items():
                assert_bits(look[name], array[row], name)

    def assert_inside(self, world):
        """The state of the World inside a binding equals this one's, except for the flags and the reward of the
        step."""
        for name, field in self.world.fields.items():
            if field.role in (Role.INSTANCE, Role.STATE, Role.MASK, Role.KEY) and name not in OF_THE_STEP:
                assert getattr(world, name).tobytes() == getattr(self.world, name).tobytes(), name


def rows_shown(player):
    if player.kind == "agents":
        obs, share = player.look
        return [(obs[b], share[b]) if share is not None else obs[b] for b in range(len(obs))]
    return [row_of(player.look, b) for b in range(player.rows)]


def actions_of(world, turn, generator):
    """Allowed actions; every fourth turn one row gets any action."""
    actions = world.sample_actions(3, turn)
    if turn % 4 == 3:
        choices = world.action.nvec(world.sizes)
        actions[turn % len(actions)] = generator.integers(0, choices).reshape(actions.shape[1:])
    return actions


@pytest.mark.parametrize(
    ("player_class", "id", "options"),
    [(player, *case) for player in PLAYERS for case in CASES if player is not TorchRL or small.functional(case[0])],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_three_episodes_a_row_are_those_of_the_world(id, options, player_class):
    """Seven rows (one, for libraries of single rows), legal and illegal actions. Rewards, ends, all observations, final
    observations and the whole state are compared."""
    rows = 1 if player_class.one_row else ROWS
    measure, player = Measure(id, rows, options), player_class(id, rows, SEED, options)
    world, generator = measure.world, np.random.default_rng(1)
    world.reset()
    player.begin()
    episodes, turn = np.zeros(rows, int), 0
    while episodes.min() < EPISODES:
        for b, look in enumerate(rows_shown(player)):
            measure.assert_row(player.kind, look, b)
        if player.world is not None:
            measure.assert_inside(player.world)
        actions = actions_of(world, turn, generator)
        turn += 1
        assert turn < 1000
        world.step(actions)
        result = player.turn(actions)
        assert_bits(world.reward, result.reward, "reward")
        assert result.done.tolist() == world.done.tolist()
        assert [flags.tolist() for flags in result.ends] == [world.terminated.tolist(), world.truncated.tolist()]
        ended = np.flatnonzero(world.done)
        for b, look in zip(ended, result.last, strict=True):
            measure.assert_row(player.kind, look, b)
        episodes += world.done
        if len(ended):
            world.reset(ended)
    assert world.stream[:, 2].min() >= EPISODES
