"""TS_Collector: it stores the transitions that were played and no reset turns; every environment contributes its
share."""

from functools import partial

import numpy as np
import pytest
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import VectorEnvWrapper

from milkrun.api.gymnasium import MilkrunEnv
from milkrun.api.tianshou import SubprocVecEnv_TS, TianshouVectorEnv, TS_Collector
from milkrun.core.errors import ConfigError, ResetNeeded
from tests.api import worker_envs as envs
from tests.api.tianshou_tools import Counter, lowest, plain
from tests.truth.test_gymnasium_conformance import assert_same

TSP = "milkrun/TSP-v0"


@pytest.fixture
def collector_of():
    """Makes collectors over processes and closes them afterwards."""
    made = []

    def make(env_fns, policy=lowest, **options):
        venv = SubprocVecEnv_TS(env_fns, context="fork")
        made.append(TS_Collector(policy(venv), venv, VectorReplayBuffer(1000, len(venv)), **options))
        made[-1].reset()
        return made[-1]

    yield make
    for collector in made:
        collector.close()


class Slow(envs.Script):
    """The script, the second step of which takes as many turns as `turns`."""

    def __init__(self, turns):
        super().__init__()
        self.turns, self.waited = turns, 0

    def step(self, action):
        if self.t == 1 and self.waited < self.turns:
            self.waited += 1
            return self._look(), 0, False, False, {}
        self.waited = 0
        return super().step(action)


def test_ten_episodes_of_four_are_3_3_2_2(collector_of):
    """Each gives its share though their episodes last 3, 4, 5 and 6 steps; the buffer holds the sum of the lengths, and
    returns are the sums in the buffer."""
    collector = collector_of([partial(Slow, k) for k in range(4)])
    stats = collector.collect(n_episode=10)
    buffer = collector.buffer
    assert [len(part) for part in buffer.buffers] == [3 * 3, 3 * 4, 2 * 5, 2 * 6]
    assert [int(part.done[: len(part)].sum()) for part in buffer.buffers] == [3, 3, 2, 2]
    assert len(buffer) == stats.lens.sum() == stats.n_collected_steps == 43
    assert stats.n_collected_episodes == 10
    assert sorted(stats.lens.tolist()) == [3, 3, 3, 4, 4, 4, 5, 5, 6, 6]
    assert stats.returns.tolist() == [8.0] * 10
    assert buffer[:].rew.sum() == 80
    assert (stats.returns_stat.mean, stats.lens_stat.max) == (8.0, 6)
    assert (collector.collect_step, collector.collect_episode) == (43, 10)


def test_no_reset_turn_is_stored(collector_of):
    """24 transitions of two scripts are four whole episodes each, 1, 2, 5 and nothing between, from start to end."""
    collector = collector_of([envs.Script, partial(envs.Script, "truncated")])
    stats = collector.collect(n_step=24)
    data = collector.buffer[:]
    assert data.rew.tolist() == [1, 2, 5] * 8
    assert data.obs[:, 1].tolist() == [0, 1, 2] * 8
    assert data.obs_next[:, 1].tolist() == [1, 2, 3] * 8
    assert data.obs[:, 0].tolist() == [e for _ in range(2) for e in (1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4)]
    assert data.terminated.tolist() == [False, False, True] * 4 + [False] * 12
    assert data.truncated.tolist() == [False] * 12 + [False, False, True] * 4
    assert "reset_turn" not in data.info
    assert (stats.n_collected_steps, stats.n_collected_episodes) == (24, 8)


def test_it_never_resets_a_row_that_ended(collector_of):
    """Each environment gets a reset, then three steps and one reset in turn, one command per turn."""
    collector = collector_of([envs.Script] * 2)
    collector.collect(n_step=18)
    beat = ["reset", "step", "step", "step"]
    for log in collector.env.get_env_attr("log"):
        assert [entry[0] for entry in log] == (beat * 3)[: len(log)]
        assert len(log) == 12


def test_a_collection_goes_on_where_the_last_one_stopped(collector_of):
    """4 and 8 transitions of two scripts: the second begins in mid-episode, and its episodes have whole returns."""
    collector = collector_of([envs.Script] * 2)
    assert collector.collect(n_step=4).n_collected_episodes == 0
    stats = collector.collect(n_step=8)
    assert (stats.n_collected_steps, stats.returns.tolist(), stats.lens.tolist()) == (8, [8.0, 8.0, 8.0, 8.0], [3] * 4)
    assert collector.buffer[:].rew.tolist() == [1, 2, 5, 1, 2, 5] * 2


def test_it_stops_though_the_next_turn_is_a_reset(collector_of):
    """6 transitions end both scripts; the next collection opens with their reset turns and stores none of them."""
    collector = collector_of([envs.Script] * 2)
    collector.collect(n_step=6)
    collector.collect(n_step=2)
    assert collector.buffer[:].rew.tolist() == [1, 2, 5, 1] * 2
    assert collector.collect_step == 8


def test_after_a_collection_of_episodes_all_environments_are_reset(collector_of):
    """Two episodes of three: the third, longer one is played and not stored; the next collection begins new
    episodes."""
    collector = collector_of([envs.Script, envs.Script, partial(Slow, 1)])
    with pytest.warns(UserWarning, match="n_episode=2"):
        collector.collect(n_episode=2)
    assert [len(part) for part in collector.buffer.buffers] == [3, 3, 0]
    collector.collect(n_step=3)
    assert [part.obs[: len(part), 1].tolist() for part in collector.buffer.buffers] == [[0, 1, 2, 0]] * 2 + [[0]]


def test_hooks_see_transitions_and_episodes(collector_of):
    """The step hook is given what is stored, the episode hook whole episodes, and what it adds is stored."""
    steps, episodes = [], []

    def on_step(action, batch):
        steps.append((len(action.act), batch.rew.tolist(), [info for info in batch.info.env_id]))

    def on_episode(batch):
        episodes.append(batch.rew.tolist())
        return {"to_go": batch.rew[::-1].cumsum()[::-1].copy()}

    hooks = {"on_step_hook": on_step, "on_episode_done_hook": on_episode}
    collector = collector_of([envs.Script, partial(Slow, 1)], **hooks)
    collector.collect(n_episode=4)
    assert steps[:5] == [(2, [1, 1], [0, 1]), (2, [2, 0], [0, 1]), (2, [5, 2], [0, 1]), (1, [5], [1]), (1, [1], [0])]
    assert episodes == [[1, 2, 5], [1, 0, 2, 5], [1, 2, 5], [1, 0, 2, 5]]
    assert collector.buffer[:].to_go.tolist() == [8, 7, 5] * 2 + [8, 7, 7, 5] * 2
    with pytest.raises(ConfigError, match="adds 'to_go'"):
        collector.collect(n_step=8)


def test_hidden_state_begins_with_the_episode(collector_of):
    """A policy that counts turns acts 0, 1, 2 in every episode: the reset turn's count is forgotten."""
    collector = collector_of([envs.Script] * 2, lambda venv: Counter(action_space=venv.action_space[0]))
    collector.collect(n_step=12)
    assert collector.buffer[:].act.tolist() == [0, 1, 2] * 4


def test_random_actions_are_the_action_spaces_own(collector_of):
    """random=True draws from each environment's space."""
    collector = collector_of([envs.Script] * 2)
    collector.env.seed(4)
    collector.collect(n_step=6, random=True)
    theirs = SubprocVecEnv_TS([envs.Script] * 2, context="fork")
    theirs.seed(4)
    assert collector.buffer[:].act.tolist() == [space.sample() for space in theirs.action_space for _ in range(3)]
    theirs.close()


def test_it_stores_what_the_stock_collector_stores(collector_of):
    """Tours of 5 nodes in 3 processes, two episodes each: the same transitions, statistics and masks."""
    flat = [partial(MilkrunEnv, TSP, num_loc=5, layout="flat")] * 3
    ours = collector_of(flat)
    stock = Collector(lowest(ours.env), SubprocVecEnv_TS(flat, context="fork"), VectorReplayBuffer(1000, 3))
    stats = []
    for collector in (ours, stock):
        collector.reset(gym_reset_kwargs={"seed": 5})
        stats.append(collector.collect(n_episode=6))
    for key in ("obs", "act", "rew", "terminated", "truncated", "obs_next"):
        assert_same(plain(ours.buffer[:][key]), plain(stock.buffer[:][key]))
    assert_same(stats[0].returns, stats[1].returns)
    assert_same(stats[0].lens, stats[1].lens)
    assert isinstance(ours.buffer[:].obs, Batch)
    stock.close()


def test_bad_use_is_refused(collector_of):
    """Rows that wait for a reset, a collection before the first reset, two goals at once; wrappers are seen through."""
    with pytest.raises(ConfigError, match="with a TianshouVectorEnv use tianshou's Collector"):
        venv = TianshouVectorEnv(TSP, 2, num_loc=4)
        TS_Collector(lowest(venv), venv)
    collector = collector_of([envs.Script] * 2)
    with pytest.raises(ConfigError, match="give one of them"):
        collector.collect(n_step=4, n_episode=4)
    fresh = TS_Collector(collector.policy, VectorEnvWrapper(collector.env))
    with pytest.raises(ResetNeeded):
        fresh.collect(n_step=4)
    assert fresh.collect(n_step=4, reset_before_collect=True).n_collected_steps == 4
    assert np.all(fresh.buffer[:].rew == [1, 2, 1, 2])
