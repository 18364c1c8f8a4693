"""Claims of docs/use-it-with.md about other libraries that no block of the page shows."""

import subprocess
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest

import milkrun
from tests.api.worker_envs import Script
from tests.core.toys import Glider, Lantern

SPAWNED = """
import gymnasium
if __name__ == "__main__":
    import milkrun
    envs = gymnasium.vector.AsyncVectorEnv([lambda: gymnasium.make("{id}", num_loc=5)], context="spawn")
    assert envs.reset(seed=0)[0]["action_mask"].shape == (1, 6)
    envs.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("id, known", [("milkrun/CVRP-v0", False), ("milkrun:milkrun/CVRP-v0", True)])
def test_workers_of_other_pools_know_a_world_by_the_id_that_names_its_module(id, known, tmp_path):
    """Their processes have not imported milkrun, whatever the learner's has."""
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED.format(id=id))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert (done.returncode == 0) is known
    assert ("NamespaceNotFound" in done.stderr) is not known


def test_the_joint_action_of_a_batch_is_sampled_with_a_tuple_of_masks():
    """A mask a row; the array itself is refused."""
    envs = gymnasium.make_vec("milkrun/CVRP-v0", num_envs=4, vectorization_mode="vector_entry_point", num_loc=5)
    _, infos = envs.reset(seed=1)
    with pytest.raises(AssertionError, match="tuple"):
        envs.action_space.sample(infos["action_mask"])
    for _ in range(5):
        *_, infos = envs.step(envs.action_space.sample(tuple(infos["action_mask"])))
        assert not infos["illegal"].any()


@pytest.mark.parametrize(
    "mode, counted, stacked", [("next_step", 4, [[1, 3], [2, 0]]), ("same_step", 3, [[0, 0], [2, 0]])]
)
def test_around_aligned_turns_sb3_counts_the_reset_as_a_step(mode, counted, stacked):
    """An episode has 3, which a Monitor inside counts; frames are [episode, t] when the second one has begun."""
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecFrameStack, VecMonitor

    from milkrun.api.sb3 import Async_SubprocVecEnv

    class Still:
        def predict(self, obs, state=None, **kwargs):
            return np.zeros(len(obs), int), state

    def lengths(env):
        result = evaluate_policy(Still(), env, n_eval_episodes=3, return_episode_rewards=True, warn=False)
        env.close()
        assert result[0] == [8, 8, 8]
        return result[1]

    pool = partial(Async_SubprocVecEnv, start_method="fork", autoreset_mode=mode)
    assert lengths(pool([Script])) == [3, counted, counted]
    assert lengths(VecMonitor(pool([Script]))) == [3, counted, counted]
    assert lengths(pool([lambda: Monitor(Script())])) == [3, 3, 3]

    frames = VecFrameStack(pool([Script]), 2)
    obs = frames.reset()
    while obs[0, 2] < 2:
        obs = frames.step([0])[0]
    frames.close()
    assert obs.reshape(2, 2).tolist() == stacked


@pytest.mark.parametrize("masked", [True, False])
def test_tianshou_normalises_observations_without_a_mask(masked):
    """It would put the average of a mask into an array of bools."""
    tianshou = pytest.importorskip("tianshou.env")
    from milkrun.api.tianshou import TianshouVectorEnv

    rows = TianshouVectorEnv((Lantern if masked else Glider)(4, autoreset="disabled"))
    normed = tianshou.VectorEnvNormObs(rows)
    if masked:
        with pytest.raises(TypeError, match="cast ufunc 'divide' output"):
            normed.reset(seed=0)
    else:
        obs, _ = normed.reset(seed=0)
        assert rows.world.wind.std() > 0.1 and np.allclose(obs.mean(axis=0), 0, atol=1e-5)


def test_tianshous_random_warm_up_is_mostly_illegal():
    """It samples the action spaces, which ignore the masks."""
    data = pytest.importorskip("tianshou.data")
    from tests.api.tianshou_tools import Lowest

    rows = milkrun.make("milkrun/CVRP-v0", 8, api="tianshou", num_loc=10)
    for space in rows.action_space:
        space.seed(1)
    policy = Lowest(action_space=rows.action_space[0])
    collector = data.Collector(policy, rows, data.VectorReplayBuffer(800, 8))
    collector.reset(gym_reset_kwargs={"seed": 0})
    collector.collect(n_step=800, random=True)
    assert collector.buffer[:].info.illegal.mean() > 0.5


@pytest.mark.parametrize("library", ["pettingzoo", "rllib"])
def test_an_agent_left_out_idles(library):
    """The truck has released drone_0: then a step without actions is one of STAY and HOVER for all."""
    pytest.importorskip({"rllib": "ray"}.get(library, library))
    if library == "rllib":
        from milkrun.api.rllib import MilkrunMultiAgentEnv

        teams = [MilkrunMultiAgentEnv({"world": "milkrun/TruckDrone-v0"}) for _ in range(2)]
    else:
        from milkrun.api.pettingzoo import parallel_env

        teams = [parallel_env("milkrun/TruckDrone-v0") for _ in range(2)]
    idle = {"truck_0": 0, "drone_0": 0, "drone_1": 0}
    for team, actions in zip(teams, ({}, idle)):
        team.reset(seed=3)
        team.step({**idle, "truck_0": 7})
        team.step(actions)
    left_out, idled = (team.world.state_dict() for team in teams)
    assert left_out.keys() == idled.keys()
    assert all(np.array_equal(left_out[name], idled[name]) for name in idled)
