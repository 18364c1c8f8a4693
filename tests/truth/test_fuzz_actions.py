"""Strange actions, seeds, options and rows through every numpy binding: refused with nothing changed, or valid and
played."""

from argparse import Namespace

import numpy as np
import pytest

import milkrun
from milkrun.compat.parallel.rows import handles
from milkrun.compat.vrp.env_wrappers import VRPDummyVecEnv
from milkrun.compat.vrp.VRP_env import VRPEnv
from milkrun.core.errors import MilkrunError
from milkrun.tracking import Envs
from tests.truth import fuzz_tools as fuzz
from tests.truth.test_cross_binding import SHORT
from tests.truth.test_gymnasium_conformance import WORLDS

ROWS = 3
SMALL = {id: SHORT.get(id, {"num_loc": 6}) for id in WORLDS}
A_FEW = {id: SMALL[id] for id in ("milkrun/CVRP-v0", "milkrun/TruckDrone-v0", "milkrun/TSPKopt-v0")}


class Batch:
    """A binding of several rows; `play` is its step."""

    one_row = one_hot = pairs = False
    api = "gymnasium"
    keywords: dict = {}

    def __init__(self, id, options):
        rows = {} if self.one_row else {"num_envs": ROWS}
        self.env = milkrun.make(id, api=self.api, seed=1, **rows, **self.keywords, **options)
        self.world = self.env.world
        self.pairs = "Kopt" in id
        self.begin()

    def begin(self):
        self.env.reset()

    def play(self, given):
        self.env.step(given)

    def valid(self, turn):
        return self.world.sample_actions(2, turn)

    def seed(self, seed):
        self.env.reset(seed=seed)

    def options(self, options):
        self.env.reset(options=options)


class Vector(Batch):
    keywords = {"copy": False}


class Alone(Batch):
    one_row = True

    def valid(self, turn):
        return super().valid(turn)[0]


class SB3(Batch):
    api = "sb3"

    def seed(self, seed):
        self.env.seed(seed)

    def options(self, options):
        self.env.set_options(options)
        self.env.reset()


class Tianshou(Batch):
    api = "tianshou"

    def seed(self, seed):
        self.env.seed(seed)


class MAPPO(SB3):
    api = "mappo"
    one_hot = True

    def valid(self, turn):
        return super().valid(turn).reshape(ROWS, -1)

    def options(self, options):
        self.env.reset(instance=options)


class ByAgent(Alone):
    """Dicts of agents: the strange input is one agent's action."""

    api = "pettingzoo"

    def valid(self, turn):
        return Batch.valid(self, turn)[0] if not self.world.groups else Batch.valid(self, turn)[0, :1].reshape(())

    def play(self, given):
        self.env.step({self.env.possible_agents[0]: given})


class RLlib(ByAgent):
    api = "rllib"


class Handles(Batch):
    def __init__(self, id, options):
        self.world = milkrun.make(id, ROWS, seed=1, **options)
        self.env = Envs(ROWS, handles(self.world, "flat"))
        self.pairs = "Kopt" in id
        self.begin()

    def options(self, options):
        self.env.reset(seed=[options] * ROWS)


class OneHandle(Handles):
    one_row = True

    def valid(self, turn):
        return super().valid(turn)[0]

    def play(self, given):
        self.env.env_list[0].step(given)


BINDINGS = [Vector, Alone, SB3, Tianshou, MAPPO, ByAgent, RLlib, Handles, OneHandle]


class Lists(Batch):
    """The list interface of truck and drones."""

    one_row = one_hot = True

    def __init__(self):
        self.env = VRPEnv(Namespace(seed=5))
        self.world = self.env.world.batch
        self.env.reset()

    def valid(self, turn):
        return self.world.sample_actions(2, turn)[0]


class ListsInRows(Batch):
    one_hot = True

    def __init__(self):
        self.env = VRPDummyVecEnv([lambda: VRPEnv(Namespace(seed=5))] * ROWS)
        self.env.reset()
        self.world = self.env.envs[0].world.batch

    def valid(self, turn):
        return self.world.sample_actions(2, turn)


def try_strange_inputs(player, rng, count):
    """Tries `count` actions, seeds and options; returns how many were refused."""
    refused = 0
    for turn in range(count):
        if player.world.done.any() and player.world.autoreset == "disabled" and not isinstance(player, ListsInRows):
            player.begin()
        before = fuzz.frozen(player.world)
        kind = rng.random() if hasattr(type(player), "api") and not isinstance(player, (Lists, ListsInRows)) else 1
        if kind < 0.1:
            given, call = fuzz.strange_seed(rng, ROWS), player.seed
        elif kind < 0.2:
            given, call = fuzz.strange_options(rng), player.options
        else:
            valid = np.asarray(player.valid(turn))
            given, call = fuzz.strange_action(rng, valid), player.play
        case = f"{type(player).__name__}: {call.__name__}({given!r})"
        try:
            error = fuzz.error_of(call, given)
        except MilkrunError:
            raise
        except Exception as e:
            raise AssertionError(f"{case} raised {e!r}") from e
        if error is not None:
            refused += 1
            assert fuzz.frozen(player.world) == before, f"{case} was refused but changed the state: {error}"
        elif call == player.play and given is not None:
            assert fuzz.is_fine(given, valid.shape, player.one_hot, player.pairs), f"{case} was accepted"
    return refused


@pytest.mark.parametrize("binding", BINDINGS)
def test_strange_inputs_are_refused_and_change_nothing(binding):
    """A few dozen each on a world of one agent, one of teams and one whose actions are pairs."""
    rng = np.random.default_rng(BINDINGS.index(binding))
    for id, options in A_FEW.items():
        assert try_strange_inputs(binding(id, options), rng, 40) > 15


@pytest.mark.long
@pytest.mark.truth
@pytest.mark.parametrize("id", SMALL)
def test_thousands_of_strange_inputs_are_refused_and_change_nothing(id):
    """A thousand for each binding of each world, 108,000 in all."""
    rng = np.random.default_rng([*SMALL].index(id))
    for binding in BINDINGS:
        assert try_strange_inputs(binding(id, SMALL[id]), rng, 1000) > 400


@pytest.mark.parametrize("count", [60, pytest.param(1500, marks=pytest.mark.long)])
@pytest.mark.parametrize("binding", [Lists, ListsInRows])
def test_lists_of_truck_and_drones_are_read_strictly(binding, count):
    """Mostly one agent's action is the strange one."""
    assert try_strange_inputs(binding(), np.random.default_rng(3), count) > count / 3


APIS = [None, "gymnasium", "sb3", "tianshou", "mappo", "pettingzoo", "rllib"]
KEYWORDS = (
    "num_envs first_row max_steps seed threads autoreset illegal preset config layout seed_rule render_mode copy infos "
    "monitor max_episode_steps num_loc api pad_actions".split()
)


@pytest.mark.parametrize("count", [100, pytest.param(3000, marks=pytest.mark.long)])
@pytest.mark.parametrize("api", APIS)
def test_strange_keywords_are_refused(api, count):
    """Through every entry point; accepted keywords make an environment that resets."""
    rng = np.random.default_rng(APIS.index(api))
    odd = [-1, 0, 2**63, 2**64, -(2**63), 10**30, np.int64(2), np.array([1, 2]), np.array(["a", "b"]), [1], "auto"]
    for _ in range(count):
        name = fuzz.pick(rng, KEYWORDS)
        given = fuzz.pick(rng, [fuzz.strange_scalar(rng), fuzz.pick(rng, odd)])
        keywords = {"api": api, "num_envs": None if api in ("pettingzoo", "rllib") else 2, "num_loc": 4} | {name: given}
        try:
            fuzz.error_of(lambda k=keywords: milkrun.make("milkrun/TSP-v0", **k).reset())
        except Exception as e:
            raise AssertionError(f"make(api={api!r}, {name}={given!r}) raised {e!r}") from e


@pytest.mark.parametrize("indices", [[0, -1], -1, [-3, 2], (1,), np.array([2, 0]), range(2), None, []], ids=repr)
def test_indices_of_sb3_count_from_the_end_too(indices):
    """As in Python's lists and in the tests of Stable-Baselines3."""
    env = milkrun.make("milkrun/TSP-v0", 3, api="sb3", num_loc=4, seed=1)
    env.reset()
    rows = [0, 1, 2] if indices is None else [[0, 1, 2][i] for i in np.atleast_1d(np.array(indices, int))]
    assert [s.tolist() for s in env.get_attr("stream", indices)] == [env.world.stream[b].tolist() for b in rows]
    assert len(env.env_method("action_masks", indices=indices)) == len(rows)
    assert len(env.env_is_wrapped(int, indices)) == len(rows)


@pytest.mark.parametrize(
    "indices", [[0, 3], -4, [0.5], True, [True, False, True], "a", [0, 0], [-1, 2], [[0]], [None], {}, 1j], ids=repr
)
def test_other_indices_of_sb3_are_refused(indices):
    """Out of range, no integers, or one row twice."""
    env = milkrun.make("milkrun/TSP-v0", 3, api="sb3", num_loc=4, seed=1)
    env.reset()
    for call in (
        lambda: env.get_attr("stream", indices),
        lambda: env.env_method("render", indices=indices),
        lambda: env.env_is_wrapped(int, indices),
        lambda: env.set_attr("x", 1, indices),
    ):
        assert fuzz.error_of(call) is not None
