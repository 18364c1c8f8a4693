"""A drone of the tracking benchmark over the real link equals the row of the in-process world to the byte. Every class
of the benchmark plays three episodes of states, rewards, ends and supplements."""

from __future__ import annotations

import socket
import threading
import time
from functools import partial

import numpy as np
import pytest

from milkrun.compat.dat import GE, UAV_VAT, Envs, UAV_VAT_Gymnasium, general_env
from milkrun.core.errors import LinkTimeout, ResetNeeded, WorkerError
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.link import client
from milkrun.tracking.link.client import Link, Patience
from tests.compat.dat_tools import (
    ROW,
    ROWS,
    SECTIONS,
    SEED,
    SMALL,
    by_hand,
    by_turns,
    by_world,
    deeds,
)
from tests.tracking.link_tools import PLENTY, Hosted, until

KEYS = {"SuppleInfo", "reason", "r_c", "r_d", "illegal"}
"""Keys of an in-process info."""
AT_ENDS = {"reset_turn", "terminal_observation", "TimeLimit.truncated"}


@pytest.fixture(scope="module")
def world():
    return {kind: by_world(section) for kind, section in SECTIONS.items()}


@pytest.fixture(scope="module")
def simulator():
    before = set(threading.enumerate())
    with Hosted() as hosted, pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "Patience", partial(Patience, silence=PLENTY))  # even on a busy machine
        yield hosted
        until(lambda: not hosted.server._groups)  # every environment of these tests was closed
    assert set(threading.enumerate()) == before


@pytest.fixture
def linked(simulator, request):
    """The section of a kind, played by that simulator in a separate group."""

    def section(kind="plain", **options):
        group = request.node.name
        link = f"tcp://127.0.0.1:{simulator.port}/{group}"
        return {**SECTIONS[kind], "link": link, "delay": PLENTY, **options}

    return section


@pytest.mark.parametrize("kind", SECTIONS)
def test_alone(world, linked, kind):
    """One environment of a group of three; the others never connect."""
    env, _ = general_env("Benchmark", linked(kind), ROWS, ROW, seed=SEED)
    assert by_hand(env.reset, env.step, deeds(SECTIONS[kind])) == world[kind]
    env.close()


@pytest.mark.parametrize("kind", SECTIONS)
def test_one_of_several_that_do_not_move_together(world, linked, kind):
    """With barrier false each is stepped alone, with steps of another one in between."""
    envs, act = GE(ROWS, linked(kind, barrier=False), seed=SEED), deeds(SECTIONS[kind])
    envs[0].reset()

    def step(action):
        if not envs[0].end_reason:
            envs[0].step(act(0, 1))
        return envs[ROW].step(action)

    assert by_hand(envs[ROW].reset, step, act) == world[kind]
    for env in envs:
        env.close()


@pytest.mark.parametrize(("kind", "ignored"), [("plain", 0), ("plain", 5), ("stacked", 9), ("velocity", [9.0] * 4)])
def test_all_at_once(world, linked, kind, ignored):
    """Through Envs: around an end (r, True), (0.0, False), (r', False). The action of a reset turn has no effect, and a
    time limit is reported though info is a list."""
    with Envs(ROWS, GE(ROWS, linked(kind), seed=SEED)) as envs:
        act, limits = deeds(SECTIONS[kind]), []

        def turn(action):
            actions = np.array([act(0, 5)] * ROWS)
            actions[ROW] = action
            due = envs.terminated[ROW] or envs.truncated[ROW]
            states, rewards, done = envs.step(actions)
            assert (states.dtype, rewards.dtype, done.dtype) == (np.float32, np.float64, bool)
            assert envs.reset_turn[ROW] == due and envs.infos[ROW].get("reset_turn", False) == due
            if done[ROW]:
                reason = envs.env_list[ROW].end_reason
                assert envs.truncated[ROW] == envs.infos[ROW]["TimeLimit.truncated"] == (reason == "time")
                limits.append(reason == "time")
            assert KEYS <= envs.infos[ROW].keys() <= KEYS | AT_ENDS
            return states[ROW], rewards[ROW], done[ROW], envs.infos[ROW]["SuppleInfo"]

        trace = by_turns(lambda: (envs.reset()[ROW], envs.infos[ROW]["SuppleInfo"]), turn, ignored, act)
    assert trace == world[kind]
    ends = [k for k, (_, _, done, _) in enumerate(trace) if done]
    assert any(limits) and trace[ends[0] + 1][1:3] == (0.0, False) and trace[ends[0] + 2][2] is False


def test_rows_that_end_at_different_times(linked):
    """Envs over links and Envs over one world return the same arrays turn by turn; seeds and actions make the rows end
    at different times."""
    section = {"end_reward": True, "RewardType": "default", "done_height": [21.0, 23.0], "start_height": [21.5, 22.5]}
    with (
        Envs(ROWS, GE(ROWS, linked(**section))) as there,
        Envs(ROWS, GE(ROWS, {**SMALL, **section})) as here,
    ):
        assert there.reset(seed=3).tobytes() == here.reset(seed=3).tobytes()
        ended = set()
        for t in range(40):
            actions = [(t + row) % 7 for row in range(ROWS)]
            for one, other in zip(there.step(actions), here.step(actions)):
                assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes())
            assert there.truncated.tolist() == here.truncated.tolist()
            ended.add(tuple((there.terminated | there.truncated).tolist()))
    assert len(ended) > 1


@pytest.mark.parametrize("kind", ["plain", "velocity"])
def test_the_classic_class(world, linked, kind):
    """UAV_VAT, whose reset returns only the state."""
    env = UAV_VAT(ROWS, linked(kind), None, ROW, seed=SEED)

    def step(action):
        state, reward, done, info = env.step(action)
        assert info["TimeLimit.truncated"] == (info["reason"] == "time")
        return state, reward, done, info["SuppleInfo"]

    assert by_hand(lambda: (env.reset(), env.env.SuppleInfo), step, deeds(SECTIONS[kind])) == world[kind]
    env.close()


@pytest.mark.parametrize("kind", SECTIONS)
def test_the_gymnasium_class(world, linked, kind):
    """UAV_VAT_Gymnasium, with the picture buffer as an argument."""
    stack = SECTIONS[kind].get("frame_stack", 0)
    env = UAV_VAT_Gymnasium(ROWS, linked(kind, frame_stack=0), None, ROW, obs_buffer_len=stack, seed=SEED)

    def step(action):
        state, reward, terminated, truncated, info = env.step(action)
        assert not (terminated and truncated) and truncated == (info["reason"] == "time")
        return state, reward, terminated or truncated, info["SuppleInfo"]

    assert by_hand(lambda: (env.reset()[0], env.env.SuppleInfo), step, deeds(SECTIONS[kind])) == world[kind]
    env.close()


def test_attributes_and_spaces_equal_those_in_process(linked):
    """Attributes, spaces, rendered picture, flags of a step; also after a seed."""
    there, here = (general_env("Benchmark", section, ROWS, ROW, seed=SEED)[0] for section in (linked(), SMALL))
    assert there.observation_space == here.observation_space and there.action_space == here.action_space
    for seed in (None, 12, None):
        there.reset(seed=seed), here.reset(seed=seed)
        for t in range(12):
            for env in (there, here):
                env.step(9 if t == 3 else t % 7)
            assert there.render().tobytes() == here.render().tobytes()
            for name in ("curr_step", "truncated", "end_reason", "r_c", "r_d", "process_idx"):
                assert repr(getattr(there, name)) == repr(getattr(here, name)), name
            assert there.now.illegal == here.now.illegal == (t == 3) and there.now.kind == here.now.kind
            if there.end_reason:
                break
    there.close()


def test_all_links_send_before_the_first_is_waited_for(linked, monkeypatch):
    """With barrier no link gets a reply before all have sent their request: sequential calls would deadlock."""
    envs, calls = GE(ROWS, linked(delay=60.0), seed=SEED), []

    def noted(name, source):
        call = getattr(source, name)

        def noting(*args):
            calls.append((name, source.row))
            return call(*args)

        monkeypatch.setattr(source, name, noting)

    for env in envs:
        noted("ask", env._source)
        noted("answer", env._source)
    with Envs(ROWS, envs) as played:
        played.reset()
        played.step([1, 2, 3])
    expected = [*(("ask", row) for row in range(ROWS)), *(("answer", row) for row in range(ROWS))]
    assert calls == expected * 2


def test_a_wrong_action_is_reported_without_a_wait(linked):
    """Otherwise, with barrier, the other environments would wait until `delay` is over. After a reset all play on."""
    with Envs(ROWS, GE(ROWS, linked(delay=600.0), seed=SEED)) as envs:
        envs.reset()
        with pytest.raises(WorkerError, match=r"item 1 failed at its step: .*ShapeError: the action must be an int"):
            envs.step([0, 1.5, 0])
        with pytest.raises(ResetNeeded):
            envs.step([0, 0, 0])
        envs.reset()
        assert envs.step([0, 0, 0])[1].shape == (ROWS,)


def test_environments_that_wait_for_another_wait_together(linked):
    """The third is connected and sends no request: both others get the timeout after one `delay`, not two."""
    envs = GE(ROWS, linked(), seed=SEED)
    for env in envs:
        env._source._link.config = env.config.replace(delay=2.0)
    began = time.monotonic()
    for env in envs[:2]:
        env.send(None)
    for env in envs[:2]:
        with pytest.raises(LinkTimeout, match=r"\(environment [01] of 3 .* waits for environments 2 of the group"):
            env.receive()
    assert time.monotonic() - began < 3.5
    for env in envs:
        env.close()


def test_a_timely_reply_may_be_received_late(linked):
    """`delay` limits the wait, not the time between send and receive."""
    envs = GE(2, linked(delay=PLENTY), seed=SEED)
    link = envs[0]._source._link
    link.config = link.config.replace(delay=0.2)
    envs[0].send(None)
    time.sleep(0.3)  # signs of life arrive meanwhile
    envs[1].send(None)
    assert len(envs[1].receive()) == len(envs[0].receive()) == 2
    for env in envs:
        env.close()


def test_an_interrupt_while_waiting_leaves_the_next_reset(linked, monkeypatch):
    """Ctrl-C in a step: that turn is lost, and the next reset starts the next episode, alone and in Envs."""

    def interrupted(*_):
        raise KeyboardInterrupt

    env, _ = general_env("Benchmark", linked(), ROWS, ROW, seed=SEED)
    with Envs(2, GE(2, linked(link=linked()["link"] + "-of-two"), seed=SEED)) as envs:
        env.reset(), envs.reset()
        for played, action, link in ((env, 0, env), (envs, [0, 0], envs.env_list[1])):
            with monkeypatch.context() as patch:
                patch.setattr(link._source._link, "_receive", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    played.step(action)
        with pytest.raises(ResetNeeded):
            env.step(0)
        here, _ = general_env("Benchmark", SMALL, ROWS, ROW, seed=SEED)
        here.reset()
        assert env.reset()[0].tobytes() == here.reset()[0].tobytes()
        assert envs.reset().shape[0] == 2 and not envs.step([0, 0])[2].any()
    env.close()


def test_clients_of_a_silent_port_wait_only_once():
    """The server there never replies. After the first timeout, the other clients do not wait as long."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        section = {**SMALL, "link": f"tcp://127.0.0.1:{silent.getsockname()[1]}", "delay": 60.0}
        config = TrackingConfig.from_dat(section)
        began = time.monotonic()
        for row in range(8):
            with pytest.raises(LinkTimeout, match="it said nothing for"):
                Link(config, seed=SEED, row=row, count=8, patience=Patience(silence=1.0))
        assert time.monotonic() - began < 5.0
