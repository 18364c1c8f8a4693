"""A drone of the tracking benchmark is equal to the byte in every class and process. Three episodes of states, rewards,
ends and supplements are compared with those of the world itself."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from milkrun.api.workers import Aligned, Workers
from milkrun.compat.dat import GE, UAV_VAT, Envs, UAV_VAT_Gymnasium, general_env, make_env
from tests.compat.dat_tools import (
    ROW,
    ROWS,
    SECTIONS,
    SEED,
    SMALL,
    action_at,
    by_hand,
    by_turns,
    by_world,
    deeds,
    flat,
    lone,
    without_supplements_at_resets,
)


@pytest.fixture(scope="module")
def world():
    return {kind: by_world(section) for kind, section in SECTIONS.items()}


def test_the_trace_has_ends_and_differs_between_rows(world):
    """Three ends, at least one reward that is not 0, more than one state."""
    trace = world["plain"]
    assert sum(done for *_, done, _ in trace) == 3 and len({state for state, *_ in trace}) > 20
    assert any(reward for _, reward, *_ in trace) and trace != by_world(SMALL, row=0)


@pytest.mark.parametrize("kind", SECTIONS)
def test_alone(world, kind):
    """A separate environment, as the original builds one in each process."""
    env, process = general_env("Benchmark", SECTIONS[kind], ROWS, ROW, seed=SEED)
    assert process(3) == 3
    assert by_hand(env.reset, env.step, deeds(SECTIONS[kind])) == world[kind]


@pytest.mark.parametrize("kind", SECTIONS)
def test_a_handle_among_others(world, kind):
    """Stepped alone, with steps of another one in between."""
    envs = GE(ROWS, SECTIONS[kind], seed=SEED)
    envs[0].reset()

    def step(action):
        if not envs[0].end_reason:
            envs[0].step(deeds(SECTIONS[kind])(0, 1))
        return envs[ROW].step(action)

    assert by_hand(envs[ROW].reset, step, deeds(SECTIONS[kind])) == world[kind]


@pytest.mark.parametrize(("kind", "ignored"), [("plain", 0), ("plain", 5), ("stacked", 9), ("velocity", [9.0] * 4)])
def test_all_rows_at_once(world, kind, ignored):
    """Through Envs; the action of a row that is being reset has no effect. Rewards are float64, states float32."""
    with Envs(num_envs=ROWS, env_list=GE(ROWS, SECTIONS[kind], seed=SEED)) as envs:
        act = deeds(SECTIONS[kind])

        def turn(action):
            actions = np.array([act(0, 5)] * ROWS)
            actions[ROW] = action
            due = envs.terminated[ROW] or envs.truncated[ROW]
            states, rewards, done = envs.step(actions)
            assert (states.dtype, rewards.dtype, done.dtype) == (np.float32, np.float64, bool)
            assert envs.reset_turn[ROW] == due and envs.infos[ROW].get("reset_turn", False) == due
            return states[ROW], rewards[ROW], done[ROW], envs.infos[ROW]["SuppleInfo"]

        trace = by_turns(lambda: (envs.reset()[ROW], envs.infos[ROW]["SuppleInfo"]), turn, ignored, act)
    assert trace == world[kind]
    ends = [k for k, (_, _, done, _) in enumerate(trace) if done]
    assert trace[ends[0] + 1][1:3] == (0.0, False) and trace[ends[0] + 2][2] is False


def test_the_classic_class(world):
    """UAV_VAT, whose reset returns only the state."""
    env = UAV_VAT(ROWS, SMALL, None, ROW, seed=SEED)

    def step(action):
        state, reward, done, info = env.step(action)
        return state, reward, done, info["SuppleInfo"]

    assert by_hand(lambda: (env.reset(), env.env.SuppleInfo), step) == world["plain"]


@pytest.mark.parametrize("kind", SECTIONS)
def test_the_gymnasium_class(world, kind):
    """UAV_VAT_Gymnasium, with the picture buffer as an argument. It closes with its world."""
    stack = SECTIONS[kind].get("frame_stack", 0)
    env = UAV_VAT_Gymnasium(ROWS, {**SECTIONS[kind], "frame_stack": 0}, None, ROW, obs_buffer_len=stack, seed=SEED)

    def step(action):
        state, reward, terminated, truncated, info = env.step(action)
        assert not (terminated and truncated) and truncated == (info["reason"] == "time")
        return state, reward, terminated or truncated, info["SuppleInfo"]

    assert by_hand(lambda: (env.reset()[0], env.env.SuppleInfo), step, deeds(SECTIONS[kind])) == world[kind]


def test_in_other_processes(world):
    """All three kinds in workers, stepped in lockstep. Each reports its time limit, also BenchEnv_Multi, whose info is
    a list."""
    makers = [make_env(ROWS, ROW, gym, conf_path=SMALL, seed=SEED) for gym in (True, False)]
    pool = Aligned(Workers([*makers, partial(lone, SMALL)]))
    try:
        seen = []

        def begin():
            obs, _ = pool.reset()
            seen.append([(obs[k].tobytes(), 0.0, False, b"") for k in range(3)])
            return obs[0], []

        def turn(action):
            obs, rewards, terminated, truncated, infos = pool.step(np.full(3, action))
            assert truncated.tolist() == [infos[1].get("reason") == "time"] * 3
            supplements = [b"" if "reset_turn" in info else flat(info["SuppleInfo"]) for info in infos]
            done = terminated | truncated
            seen.append([(obs[k].tobytes(), rewards[k].item(), done[k].item(), supplements[k]) for k in range(3)])
            return obs[0], rewards[0], done[0], []

        by_turns(begin, turn, 4)
    finally:
        pool.close()
    expected = without_supplements_at_resets(world["plain"])
    for kind in range(3):
        assert [turn[kind] for turn in seen] == expected


def test_seeds_at_a_reset_are_the_callers():
    """reset(seed=s) starts the first episode of row 0 of seed s; Envs seeds environment i with s + i."""
    first = general_env("Benchmark", SMALL, 1, 0, seed=12)[0].reset()[0].tobytes()
    env = general_env("Benchmark", SMALL, ROWS, ROW, seed=SEED)[0]
    env.reset()
    assert env.reset(seed=12)[0].tobytes() == first
    classic = UAV_VAT(ROWS, SMALL, None, ROW)
    assert classic.seed(12) == [12]
    assert classic.reset().tobytes() == first != classic.reset().tobytes()
    assert UAV_VAT_Gymnasium(ROWS, SMALL, None, ROW).reset(seed=12)[0].tobytes() == first
    with Envs(ROWS, GE(ROWS, SMALL, seed=SEED)) as envs:
        assert envs.reset(seed=10)[2].tobytes() == first
        assert action_at(0, 0) == 0  # it changes the state
        assert envs.step([0] * ROWS)[0][2].tobytes() != first


def test_separate_environments_in_envs_report_a_time_limit():
    """Their info is a list, so Envs reads the time limit from the environment."""
    short = {**SMALL, "max_sim_steps": 8, "init_no_done": 48}
    items = [general_env("Benchmark", short, 2, i, seed=1)[0] for i in (0, 1)]
    with Envs(2, items) as envs:
        envs.reset()
        envs.step([6, 6])
        _, _, done = envs.step([6, 6])
        assert done.tolist() == envs.truncated.tolist() == [True, True] and not envs.terminated.any()
        assert [info["TimeLimit.truncated"] for info in envs.infos] == [True, True]
        _, rewards, done = envs.step([1, 1])
        assert (rewards.tolist(), done.tolist()) == ([0.0, 0.0], [False, False])
