"""A keyboard interrupt that is caught: the call it met has happened whole or not at all, and play goes on."""

from functools import partial

import numpy as np
import pytest

import milkrun
from milkrun.compat.parallel.rows import handles
from milkrun.tracking import Envs
from tests.api.interrupt_tools import assert_whole_or_not_at_all

SMALL = {"num_loc": 3, "seed": 5}
NAME = "milkrun/CVRP-v0"


EVERY = pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
"""At every ninth line, and where there is time at every line."""


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


STEPS = {
    "gymnasium, one row": (dict(api="gymnasium"), alone),
    "gymnasium, next_step": (dict(api="gymnasium", num_envs=4), in_batch),
    "gymnasium, next_step, no copy": (dict(api="gymnasium", num_envs=4, copy=False), in_batch),
    "gymnasium, same_step, flat": (dict(api="gymnasium", num_envs=4, autoreset="same_step", layout="flat"), in_batch),
    "sb3": (dict(api="sb3", num_envs=4, infos="fresh"), in_batch),
    "sb3, flat": (dict(api="sb3", num_envs=4, layout="flat"), in_batch),
    "tianshou": (dict(api="tianshou", num_envs=4), of_live_rows),
    "mappo": (dict(api="mappo", num_envs=4), in_team),
    "pettingzoo": (dict(api="pettingzoo"), by_agent),
    "rllib": (dict(api="rllib"), by_agent),
}


def begun(name, turns):
    """The environment after so many turns."""
    keywords, step = STEPS[name]
    env = milkrun.make(NAME, **keywords, **SMALL)
    env.reset()
    for turn in range(turns):
        step(env, turn)
    return env, step


def followed(step, env, turns=3):
    """What is seen when play goes on: some turns, and how a new episode looks."""
    given = [step(env, 90 + turn) for turn in range(turns) if not (env.world.num_envs == 1 and env.world.done[0])]
    return given, getattr(env, "agents", None), env.reset(), env.world.state_dict()


@EVERY
@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_whole_or_not_at_all(name, every):
    """CVRP of three customers, where rows end and others are to begin anew."""
    env, step = begun(name, 5)
    if env.world.num_envs == 1 and env.world.done[0]:
        env.reset()
    assert_whole_or_not_at_all(env, lambda e: step(e, 50), partial(followed, step), every)


@EVERY
@pytest.mark.parametrize("name", STEPS)
def test_a_reset_is_whole_or_not_at_all(name, every):
    """With a seed, after which the next episodes are other ones, be it given with the reset or before."""
    env, step = begun(name, 2)
    call = seeded
    if name.startswith(("sb3", "mappo", "tianshou")):
        env.seed(11)
        call = type(env).reset
    assert_whole_or_not_at_all(env, call, lambda e: (followed(step, e, 1), e.reset()), every)


@EVERY
def test_a_reset_to_given_instances_is_whole_or_not_at_all(every):
    """The observation of a flat layout holds the instance, which stands in arrays that are laid anew."""
    env, step = begun("gymnasium, same_step, flat", 2)
    other = milkrun.make(NAME, 1, num_loc=3, seed=77)
    other.reset()
    given = {f: getattr(other, f) for f in ("locs", "demand_units", "capacity")} | {"instance_row": np.zeros(4, int)}
    assert_whole_or_not_at_all(env, lambda e: e.reset(options={"instance": given}), partial(followed, step), every)


@EVERY
@pytest.mark.parametrize("call", ["step", "reset"])
def test_envs_of_a_world_are_whole_or_not_at_all(call, every):
    """Its handles in one call: the turn after an end is still the reset."""
    play = Envs(4, handles(milkrun.make(NAME, 4, **SMALL), "flat"))
    play.reset()
    world = play.env_list[0].world
    for turn in range(5):
        play.step(world.sample_actions(3, turn))

    def step(e, turn):
        return e.step(e.env_list[0].world.sample_actions(3, turn)), e.reset_turn, e.infos

    def following(e):
        return [step(e, 90 + turn) for turn in range(3)]

    act = partial(step, turn=50) if call == "step" else lambda e: e.reset(seed=11)
    assert_whole_or_not_at_all(play, act, following, every)
