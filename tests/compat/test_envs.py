"""`Envs` over environments of any kind: turns, ends, seeds, threads, links, compared with Gymnasium's."""

import gc
import subprocess
import sys
import threading

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from milkrun.core.errors import ConfigError, ShapeError
from milkrun.tracking import Envs
from tests.api.worker_envs import Classic, Script
from tests.tracking.items import Link, Meets, Pair, Supplements, scripts, threads


@pytest.mark.parametrize("kind", ["gymnasium", "classic", "mixed", "supplements", "links"])
def test_the_turn_after_an_end_is_a_reset_turn(kind):
    """Rewards 1, 2, 5, 0, 1, 2, 5, 0; done on the third and seventh turn; states are those of [episode, step]."""
    with Envs(2, scripts(kind)) as envs:
        assert envs.reset().tolist() == [[1, 0], [1, 0]]
        states, rewards, done = zip(*(envs.step(np.array([0, 1])) for _ in range(8)))
    for i in range(2):
        assert [r[i] for r in rewards] == [1, 2, 5, 0, 1, 2, 5, 0]
        assert [d[i] for d in done] == [False, False, True, False] * 2
        first, second = [[1, 1], [1, 2], [1, 3], [2, 0]], [[2, 1], [2, 2], [2, 3], [3, 0]]
        assert [s[i].tolist() for s in states] == first + second
    assert (states[0].dtype, rewards[0].dtype, done[0].dtype) == (np.float32, np.float64, bool)


@pytest.mark.parametrize("kind", ["gymnasium", "classic", "mixed"])
def test_terminations_and_truncations_are_reported_in_infos(kind):
    """The first environment is terminated, the second truncated; the end turn has the last observation."""
    with Envs(2, scripts(kind)) as envs:
        envs.reset()
        assert not envs.terminated.any() and not envs.reset_turn.any()
        for _ in range(3):
            assert not any("terminal_observation" in info or "reset_turn" in info for info in envs.infos)
            states, _, done = envs.step([0, 0])
        states[:] = -1  # owned by the caller
        assert (envs.terminated.tolist(), envs.truncated.tolist()) == ([True, False], [False, True])
        assert done.tolist() == [True, True]
        assert [info["terminal_observation"].tolist() for info in envs.infos] == [[1, 3], [1, 3]]
        assert [info["TimeLimit.truncated"] for info in envs.infos] == [False, True]
        envs.step([0, 0])
        assert envs.reset_turn.tolist() == [True, True] and not (envs.terminated | envs.truncated).any()
        assert [info["reset_turn"] for info in envs.infos] == [True, True]
        envs.step([0, 0])
        assert not envs.reset_turn.any() and not any("reset_turn" in info for info in envs.infos)


def test_infos_are_passed_on():
    """Unchanged contents in new dicts; a list of supplements gets a key."""
    script, supplements = Script(), Supplements()
    with Envs(2, [script, supplements]) as envs:
        envs.reset()
        assert envs.infos == [{"episode": 1}, {"SuppleInfo": [0]}]
        envs.step([0, 0])
        assert envs.infos == [{"t": 1}, {"SuppleInfo": [1]}]


def test_an_environment_keeps_its_own_info():
    """An environment that returns the same dict repeatedly does not find our keys in it."""
    script, own = Script(), {"weather": "fog"}
    step = script.step
    script.step = lambda action: (*step(action)[:4], own)
    with Envs(1, [script]) as envs:
        envs.reset()
        for _ in range(3):
            envs.step([0])
        assert envs.infos[0].keys() == {"weather", "terminal_observation", "TimeLimit.truncated"}
        envs.step([0])
        envs.step([0])
        assert envs.infos == [own] == [{"weather": "fog"}]


def test_an_explicit_reset_clears_the_pending_reset():
    """After the end an explicit reset starts episode 2, and the next call is its first step, not another reset."""
    items = scripts("gymnasium")
    with Envs(2, items) as envs:
        envs.reset()
        for _ in range(3):
            envs.step([0, 0])
        assert envs.reset().tolist() == [[2, 0], [2, 0]]
        assert envs.infos == [{"episode": 2}, {"episode": 2}]
        states, rewards, done = envs.step([1, 1])
        assert (states.tolist(), rewards.tolist(), done.tolist()) == ([[2, 1], [2, 1]], [1, 1], [False, False])
    begin, step = ("reset", None, None), ("step", 0)
    assert items[0].log == [begin, step, step, step, begin, ("step", 1)]


def test_the_ignored_action_reaches_no_environment():
    """On its reset turn an environment gets a reset and not the action; the others step."""
    items = [Script(), Script()]
    with Envs(2, items) as envs:
        envs.reset()
        items[1].t = 1  # one step ahead, so it ends first
        for action in (0, 1, 2):
            _, rewards, done = envs.step([action, action])
        assert (rewards.tolist(), done.tolist()) == ([5, 0], [True, False])
    begin = ("reset", None, None)
    assert items[0].log == [begin, ("step", 0), ("step", 1), ("step", 2)]
    assert items[1].log == [begin, ("step", 0), ("step", 1), begin]


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1"])
def test_equal_to_gymnasium(id):
    """300 turns of five environments equal SyncVectorEnv(NEXT_STEP): states, rewards and ends to the bit."""
    limit = {"max_episode_steps": 40}
    sync = SyncVectorEnv([lambda: gymnasium.make(id, **limit)] * 5, autoreset_mode=AutoresetMode.NEXT_STEP)
    sync.action_space.seed(4)
    ends = 0
    with Envs(5, env_mk=gymnasium.make, env_mk_args=[id, *limit.values()]) as envs:
        assert envs.action_space == sync.single_action_space
        assert envs.observation_space == sync.single_observation_space
        theirs, ours = sync.reset(seed=7)[0], envs.reset(seed=7)
        assert ours.tobytes() == theirs.tobytes() and ours.dtype == theirs.dtype
        for _ in range(300):
            actions = sync.action_space.sample()
            theirs, rewards2, terminated, truncated, _ = sync.step(actions)
            ours, rewards, done = envs.step(actions)
            assert ours.tobytes() == theirs.tobytes()
            assert rewards.tobytes() == rewards2.tobytes()
            assert (envs.terminated.tolist(), envs.truncated.tolist()) == (terminated.tolist(), truncated.tolist())
            assert done.tolist() == (terminated | truncated).tolist()
            ends += done.sum()
    assert ends >= 30


def test_each_kind_of_environment_gets_its_seed():
    """An int is offset by the index, a list has one for each; a classic environment gets its seed before its reset."""
    items = [Script(), Classic({}), Script()]
    with Envs(3, items) as envs:
        envs.reset(seed=10)
        envs.reset(seed=[5, 6, 7])
        envs.reset()
        with pytest.raises(ShapeError, match="2 seeds for 3"):
            envs.reset(seed=[1, 2])
        with pytest.raises(ConfigError, match="-1"):
            envs.reset(seed=-1)
    assert items[0].log == [("reset", seed, None) for seed in (10, 5, None)]
    assert items[1].seeds == [11, 6]
    assert items[2].log == [("reset", seed, None) for seed in (12, 7, None)]


def test_all_links_send_before_the_first_receive():
    """A turn of three links, one at its end: reset and steps are sent first, then all replies are received."""
    log = []
    links = [Link(name, log) for name in "abc"]
    with Envs(3, links) as envs:
        envs.reset(seed=20)
        received = [("receive", name) for name in "abc"]
        assert log == [("send", "a", None, 20), ("send", "b", None, 21), ("send", "c", None, 22), *received]
        links[1].script.t = 2
        envs.step([0, 1, 2])
        log.clear()
        states, rewards, _ = envs.step([2, 1, 0])
        assert log == [("send", "a", 2), ("send", "b", None), ("send", "c", 0), *received]
        assert (states.tolist(), rewards.tolist()) == ([[1, 2], [2, 0], [1, 2]], [2, 0, 2])
    assert threads() == []


def test_all_step_concurrently_each_in_its_own_thread():
    """Four environments that wait for each other inside step; each always runs in one thread, never the caller's."""
    barrier = threading.Barrier(4)
    items = [Meets(barrier) for _ in range(4)]
    with Envs(4, items) as envs:
        envs.reset()
        for _ in range(20):
            envs.step([0] * 4)
        assert len(threads()) == 4
    seen = set.union(*(item.seen for item in items))
    assert [len(item.seen) for item in items] == [1] * 4 and len(seen) == 4
    assert threading.get_ident() not in seen
    assert threads() == []


def test_threads_end_with_an_object_that_was_not_closed():
    """Its threads end at garbage collection."""
    envs = Envs(3, [Script() for _ in range(3)])
    envs.reset()
    alive = threads()
    assert len(alive) == 3
    del envs
    gc.collect()
    for thread in alive:
        thread.join(timeout=300)
    assert threads() == []


def test_states_of_any_structure():
    """A dict of a tuple (number, list) and a string."""
    with Envs(2, [Pair(), Pair()]) as envs:
        envs.reset()
        states, *_ = envs.step([0, 0])
        number, pair = states["at"]
        assert number.tolist() == [1, 1] and pair.tolist() == [[1, 0.5], [1, 0.5]]
        assert states["word"].tolist() == ["on", "on"]
        for _ in range(2):
            envs.step([0, 0])
        last = envs.infos[1]["terminal_observation"]
        assert last["at"][0] == 3 and last["at"][1].tolist() == [1, 0.5] and last["word"] == "on"


def test_env_mk_is_called_for_each():
    """With its arguments, num_envs times."""
    with Envs(num_envs=3, env_mk=Script, env_mk_args=["truncated"]) as envs:
        envs.reset()
        for _ in range(3):
            envs.step([0] * 3)
        assert envs.truncated.tolist() == [True] * 3 and len({id(env) for env in envs.env_list}) == len(envs) == 3


def test_it_needs_numpy_alone():
    """Importing it imports neither the compiler nor torch nor another library's wrappers."""
    script = (
        "import sys\n"
        "from milkrun.compat.parallel.envs import Envs\n"
        "assert not {'numba', 'torch', 'stable_baselines3', 'tianshou'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
