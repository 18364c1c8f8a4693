"""The interface between the classes of the benchmark and an external simulator: requests and the use of the replies.
The simulator is a script."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

import milkrun
from milkrun.compat.dat import GE, UAV_VAT, Envs, UAV_VAT_Gymnasium, general_env
from milkrun.core.errors import Closed, ConfigError, LinkError, LinkProtocol, ResetNeeded
from milkrun.tracking.moment import Moment
from tests.compat.dat_tools import SMALL

LINKED = {**SMALL, "link": "tcp://127.0.0.1:4000/one", "Other_State": False, "CloudPoint": False}
TIME, CRASH = 10, 1


class Link:
    """A drone that observes the number of its step, gets rewards 1, 2, 5 and then ends: even rows by their time
    limit."""

    log: list = []
    lost = False

    def __init__(self, config, *, seed, row, count):
        self.config, self.row, self.t, self.owed = config, row, 0, None
        self.log.append(("made", seed, row, count))

    def ask_reset(self, seed=None):
        self.log.append(("ask_reset", self.row, seed))
        self.t = 0
        self.owed = Moment(self.picture(), kind="bus", params=np.zeros(60))

    def ask_step(self, action):
        self.log.append(("ask_step", self.row, action))
        self.t += 1
        over = self.t == 3
        cut = over and self.row % 2 == 0
        self.owed = Moment(
            self.picture(),
            (1.0, 2.0, 5.0)[self.t - 1],
            0.25,
            1.0,
            over and not cut,
            cut,
            (TIME if cut else CRASH) if over else 0,
            4 * self.t,
            "bus",
            True,
            params=np.full(60, float(self.t)),
        )

    def answer(self):
        self.log.append(("answer", self.row))
        if self.lost:
            raise LinkError("127.0.0.1:4000: no more")
        owed, self.owed = self.owed, None
        assert owed is not None
        return owed

    def close(self):
        self.log.append(("close", self.row))

    def picture(self):
        return np.full((3, 16, 16), 51 * self.t, np.uint8)


@pytest.fixture(autouse=True)
def scripted(monkeypatch):
    module = ModuleType("milkrun.tracking.link.client")
    module.Link = Link
    monkeypatch.setitem(sys.modules, "milkrun.tracking.link", ModuleType("milkrun.tracking.link"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(Link, "log", [])
    monkeypatch.setattr(Link, "lost", False)


def test_reset_and_step_send_a_request_and_wait():
    """The client normalises states, supplements contain the kind's name, attributes are those of the reply."""
    env, _ = general_env("Benchmark", LINKED, 4, 2, seed=9)
    state, info = env.reset()
    assert state.dtype == np.float32 and not state.any() and info == [[0.0] * 60 + ["bus"]]
    state, reward, done, info = env.step(np.int64(3))
    assert np.unique(state).tolist() == [np.float32(51) / np.float32(255)]
    assert (reward, done, info[0][59:], env.curr_step, env.r_c, env.r_d) == (1.0, False, [1.0, "bus"], 4, 0.25, 1.0)
    assert (env.truncated, env.end_reason) == (False, "")
    env.step(6)
    assert env.step(6)[1:3] == (5.0, True) and (env.truncated, env.end_reason) == (True, "time")
    with pytest.raises(ResetNeeded, match="environment 2 has ended"):
        env.step(6)
    env.reset(seed=5)
    assert np.unique(env.render()).tolist() == [0] and env.render().shape == (16, 16, 3)
    env.close()
    env.close()
    with pytest.raises(Closed):
        env.reset()
    requests = [("ask_reset", 2, None), ("ask_step", 2, 3), ("ask_step", 2, 6), ("ask_step", 2, 6), ("ask_reset", 2, 5)]
    answered = [one for request in requests for one in (request, ("answer", 2))]
    assert Link.log == [("made", 9, 2, 4), *answered, ("close", 2)]


def test_only_links_have_send_and_receive():
    """Envs uses them to send all requests before waiting."""
    env = general_env("Benchmark", LINKED, 1, 0)[0]
    env.send(None, seed=3)
    with pytest.raises(LinkProtocol, match="the last answer"):
        env.send(None)
    assert len(env.receive()) == 2
    with pytest.raises(LinkProtocol, match=r"without a send"):
        env.receive()
    env.send(2)
    assert len(env.receive()) == 4 and not hasattr(env, "batch")
    here = general_env("Benchmark", SMALL, 1, 0)[0]
    assert not hasattr(here, "send") and not hasattr(here, "receive") and not hasattr(here, "batch")


def test_requests_of_a_group_are_sent_before_the_first_reply():
    """GE makes n links with a common seed; Envs steps them in lockstep, with the reset turn after an end."""
    items = GE(2, LINKED)
    assert Link.log == [("made", 0, 0, 2), ("made", 0, 1, 2)]
    Link.log.clear()
    with Envs(2, items) as envs:
        states = envs.reset(seed=4)
        assert states.shape == (2, 3, 16, 16) and states.dtype == np.float32
        assert Link.log == [("ask_reset", 0, 4), ("ask_reset", 1, 5), ("answer", 0), ("answer", 1)]
        turns = [envs.step([1, 2])[1:] for _ in range(2)]
        _, rewards, done = envs.step([1, 2])
        assert (envs.terminated.tolist(), envs.truncated.tolist()) == ([False, True], [True, False])
        assert envs.infos[0]["TimeLimit.truncated"] and envs.infos[1]["SuppleInfo"][0][0] == 3.0
        turns += [(rewards, done), envs.step([1, 2])[1:], envs.step([1, 2])[1:]]
        assert [(r.tolist(), d.tolist()) for r, d in turns] == [
            ([1, 1], [False] * 2),
            ([2, 2], [False] * 2),
            ([5, 5], [True] * 2),
            ([0, 0], [False] * 2),
            ([1, 1], [False] * 2),
        ]
    assert Link.log[-2:] == [("close", 0), ("close", 1)]


def test_a_group_is_made_whole_or_not_at_all(monkeypatch):
    """The third is refused; the first two are closed."""

    class Full(Link):
        def __init__(self, config, *, row, **place):
            if row == 2:
                raise LinkError("busy")
            super().__init__(config, row=row, **place)

    monkeypatch.setattr(sys.modules["milkrun.tracking.link.client"], "Link", Full)
    with pytest.raises(LinkError, match="busy"):
        GE(4, LINKED, seed=1)
    assert Link.log[-2:] == [("close", 0), ("close", 1)]


def test_a_failed_link_requires_a_reset():
    """Its exception is propagated, and the next step is refused."""
    env = general_env("Benchmark", LINKED, 1, 0, seed=1)[0]
    env.reset()
    Link.lost = True
    with pytest.raises(LinkError, match="no more"):
        env.step(0)
    Link.lost = False
    with pytest.raises(ResetNeeded):
        env.step(0)
    assert len(env.reset()) == 2


def test_the_gym_classes_work_over_links():
    """An odd row crashes: terminated, not truncated."""
    classic = UAV_VAT(4, {**LINKED, "link": None, "auto_start": True}, None, 3, seed=2)
    modern = UAV_VAT_Gymnasium(4, LINKED, None, 3, seed=2)
    classic.reset(), modern.reset()
    for _ in range(3):
        *_, done, info = classic.step(0)
        *_, terminated, truncated, modern_info = modern.step(0)
    assert done == 1 and info["TimeLimit.truncated"] is False and info["reason"] == modern_info["reason"] == "crash"
    assert (terminated, truncated) == (True, False)


def test_the_steps_of_a_link_are_logged(tmp_path):
    """Under its index in the group."""
    env = general_env("Benchmark", {**LINKED, "verbose": True, "log_dir": str(tmp_path)}, 2, 1)[0]
    env.reset()
    env.step(3)
    env.close()
    assert (tmp_path / "Agent1.log").read_text() == ("episode 1\nsim_step 4 action 3 reward 1 r_c 0.250000 r_d 1\n")


@pytest.mark.parametrize("options", [{"link": "tcp"}, {"auto_start": True}])
def test_worlds_themselves_refuse_a_link(options):
    """Worlds play in this process only, and the error states it."""
    with pytest.raises(ConfigError, match=r"milkrun\.compat\.dat"):
        milkrun.make("milkrun/Tracking-v0", **options)
    milkrun.make("milkrun/Tracking-v0", preset="published", size=16, ground_cell=10.0).close()
