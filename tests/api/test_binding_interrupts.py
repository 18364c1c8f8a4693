"""A keyboard interrupt inside a call of a binding: the world and the binding are as before or after the call, or raise
ResetNeeded."""

import copy

import numpy as np
import pytest
import torch
from tensordict import TensorDict

import milkrun
from milkrun.compat.parallel.rows import handles
from milkrun.core.errors import ResetNeeded
from milkrun.tracking import Envs
from tests.api.interrupt_tools import call_until, plain

SMALL = {"num_loc": 3, "seed": 5}
NAME = "milkrun/CVRP-v0"

EVERY = pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.long)])
"""At every eleventh line, and where there is time at every line."""


def draw(env, turn):
    return env.world.sample_actions(3, turn)


def in_batch(env, turn):
    return env.step(draw(env, turn))


def alone(env, turn):
    return env.step(draw(env, turn)[0])


def by_agent(env, turn):
    return env.step({"agent_0": int(draw(env, turn)[0])})


def in_team(env, turn):
    return env.step(draw(env, turn)[:, None])


def of_live_rows(env, turn):
    live = np.flatnonzero(~env.world.done)
    given = env.step(draw(env, turn)[live], live)
    ended = np.flatnonzero(env.world.done)
    return given, env.reset(ended) if len(ended) else None


def seeded(env):
    return env.reset(seed=11)


def seeded_before(env):
    env.seed(11)
    return env.reset()


STEPS = {
    "gymnasium, one row": (dict(api="gymnasium"), alone, seeded),
    "gymnasium, next_step": (dict(api="gymnasium", num_envs=4), in_batch, seeded),
    "gymnasium, next_step, no copy": (dict(api="gymnasium", num_envs=4, copy=False), in_batch, seeded),
    "gymnasium, same_step, flat": (
        dict(api="gymnasium", num_envs=4, autoreset="same_step", layout="flat"),
        in_batch,
        seeded,
    ),
    "sb3": (dict(api="sb3", num_envs=4, infos="fresh"), in_batch, seeded_before),
    "sb3, flat": (dict(api="sb3", num_envs=4, layout="flat"), in_batch, seeded_before),
    "tianshou": (dict(api="tianshou", num_envs=4), of_live_rows, seeded_before),
    "mappo": (dict(api="mappo", num_envs=4), in_team, seeded_before),
    "pettingzoo": (dict(api="pettingzoo"), by_agent, seeded),
    "rllib": (dict(api="rllib"), by_agent, seeded),
}


def begun(name, turns):
    """The environment after so many turns."""
    keywords, step, _ = STEPS[name]
    env = milkrun.make(NAME, **keywords, **SMALL)
    env.reset()
    for turn in range(turns):
        step(env, turn)
    return env


def turns_of(env, step, count=2):
    """The results of some turns, and the state that they lead to."""
    given = [step(env, 90 + turn) for turn in range(count) if not (env.world.num_envs == 1 and env.world.done[0])]
    return plain((given, getattr(env, "agents", None), env.world.state_dict()))


def strike_everywhere(base, call, step, reset, every, turns=turns_of):
    """Interrupts a call in copies of an environment at regular steps of its lines. The next turns equal those after the
    whole call or after no call, or the environment raises ResetNeeded until it is reset."""
    whole = copy.deepcopy(base)
    call(whole)
    wanted = [turns(copy.deepcopy(base), step), turns(whole, step)]
    assert wanted[0] != wanted[1], "the call changes nothing: this would prove nothing"
    fresh = copy.deepcopy(base)
    begun = plain(reset(fresh)), turns(fresh, step)
    line, came = 1, True
    while came:
        env = copy.deepcopy(base)
        came, _ = call_until(lambda e=env: call(e), line)
        try:
            found = turns(env, step)
        except ResetNeeded:
            pass
        else:
            assert found in wanted, f"interrupted at line {line} of the call"
        assert (plain(reset(env)), turns(env, step)) == begun, f"plays otherwise after an interrupt at line {line}"
        line += every


@EVERY
@pytest.mark.parametrize("name", STEPS)
def test_an_interrupted_step(name, every):
    """CVRP of three customers, where rows end and others are about to begin."""
    _, step, reset = STEPS[name]
    env = begun(name, 5)
    if env.world.num_envs == 1 and env.world.done[0]:
        env.reset()
    strike_everywhere(env, lambda e: step(e, 50), step, reset, every)


@EVERY
@pytest.mark.parametrize("name", STEPS)
def test_an_interrupted_reset(name, every):
    """With a seed, given with the reset or before."""
    _, step, reset = STEPS[name]
    env, call = begun(name, 2), reset
    if reset is seeded_before:
        env.seed(11)
        call = type(env).reset
    strike_everywhere(env, call, step, reset, every)


@EVERY
def test_an_interrupted_reset_to_given_instances(every):
    """The observation of a flat layout holds the instance, which stands in arrays that are replaced."""
    other = milkrun.make(NAME, 1, num_loc=3, seed=77)
    other.reset()
    given = {f: getattr(other, f) for f in ("locs", "demand_units", "capacity")} | {"instance_row": np.zeros(4, int)}
    env = begun("gymnasium, same_step, flat", 2)
    strike_everywhere(env, lambda e: e.reset(options={"instance": given}), in_batch, seeded, every)


@EVERY
@pytest.mark.parametrize("call", ["step", "reset"])
def test_interrupted_envs_of_a_world(call, every):
    """Its handles in one call: the turn after an end is still the reset."""
    play = Envs(4, handles(milkrun.make(NAME, 4, **SMALL), "flat"))
    play.reset()
    for turn in range(5):
        play.step(play.env_list[0].world.sample_actions(3, turn))

    def step(e, turn):
        return e.step(e.env_list[0].world.sample_actions(3, turn)), e.reset_turn, e.infos

    def turns(e, step):
        return plain([step(e, 90 + turn) for turn in range(3)])

    act = (lambda e: step(e, 50)) if call == "step" else seeded
    strike_everywhere(play, act, step, seeded, every, turns)


def in_place(env, turn):
    """A step of the rows as they stand in the world of the environment."""
    actions = torch.from_numpy(env._owner.world.sample_actions(3, turn))
    return env.step(TensorDict({"action": actions}, [2]))["next"].to_dict()


def in_place_turns(env, step):
    return plain([step(env, 90 + turn) for turn in range(2)])


def seeded_in_place(env):
    env.set_seed(11)
    return env.reset().to_dict()


@EVERY
@pytest.mark.parametrize("call", ["step", "reset", "reset of a row"])
def test_an_interrupted_torchrl_environment_in_place(call, every):
    """The tensors that stay through an episode are those of the episode that is played."""
    base = milkrun.make("milkrun/TSP-v0", 2, api="torchrl", stepping="inplace", num_loc=6, seed=5)
    base.reset()
    in_place(base, 1)
    row = TensorDict({"_reset": torch.tensor([[True], [False]])}, [2])
    calls = {
        "step": lambda e: in_place(e, 50),
        "reset": lambda e: e.reset(),
        "reset of a row": lambda e: e.reset(row.clone()),
    }
    strike_everywhere(base, calls[call], in_place, seeded_in_place, every, in_place_turns)
