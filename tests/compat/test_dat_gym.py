"""UAV_VAT with and without the package gym, the registered id, environment factories, and the smoke tests."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from functools import partial
from types import ModuleType

import gymnasium
import numpy as np
import pytest

from milkrun.compat.dat import (
    UAV_VAT,
    UAV_VAT_Gymnasium,
    gym_test,
    make_env,
    stableparallel_test,
    test_tianshou_env,
)
from milkrun.core.errors import MissingExtra
from tests.compat.dat_tools import SMALL

OPTIONS = {"conf_path": SMALL, "seed": 3}


def gym_package(make):
    """A stub of the old package with the functions that its users call."""
    gym, envs, registration = ModuleType("gym"), ModuleType("gym.envs"), ModuleType("gym.envs.registration")
    gym.Env = type("Env", (), {"reward_range": (0, 0)})
    gym.make, registration.register = make, lambda id, entry_point: registry.__setitem__(id, entry_point)
    registry: dict = {}
    gym.registry = registry
    return {"gym": gym, "gym.envs": envs, "gym.envs.registration": registration}


def test_without_gym_it_is_a_plain_class_with_the_same_attributes():
    """Spaces are Gymnasium's; a reset returns only the state, a step four results."""
    env = UAV_VAT(**OPTIONS)
    assert UAV_VAT.__bases__ == (object,) or "gym" in sys.modules
    assert "rgb_array" in env.metadata["render.modes"] and env.spec is None and env.reward_range[0] == -np.inf
    state = env.reset()
    assert env.observation_space.contains(state)
    _, reward, done, info = env.step(2)
    assert (type(reward), type(done)) == (float, int)
    assert info.keys() == {"SuppleInfo", "reason", "r_c", "r_d", "illegal", "TimeLimit.truncated"}
    assert env.render().shape == (16, 16, 3)
    env.close()


GYM = {
    "__init__.py": """
import importlib
from gym import spaces
class Env:
    reward_range = (0, 0)
registry = {}
def make(id, disable_env_checker=None, **options):
    module, name = registry[id].split(":")
    env = getattr(importlib.import_module(module), name)(**options)
    for space in (env.action_space, env.observation_space):
        assert isinstance(space, spaces.Space), f"{type(space)} does not inherit from gym.spaces.Space"
    return env
""",
    "spaces.py": """
class Space: pass
class Discrete(Space):
    def __init__(self, n): self.n, self.shape = n, ()
class Box(Space):
    def __init__(self, low, high, dtype): self.low, self.high, self.dtype, self.shape = low, high, low.dtype, low.shape
""",
    "envs/__init__.py": "",
    "envs/registration.py": """
import gym
def register(id, entry_point):
    gym.registry[id] = entry_point
""",
}
"""The part of gym 0.26 for a single environment, with the check of spaces in its `make`."""
PLAY = """
import gym, gymnasium
from gym.envs.registration import register
from milkrun.compat.dat import UAV_VAT, gym_test, make_env
from milkrun.api.workers import Workers

if __name__ == "__main__":
    register(id="UAVVAT-v0", entry_point="milkrun.compat.dat:UAV_VAT")
    env = gym.make("UAVVAT-v0", conf_path={"State_size": 16, "verbose": False}, seed=3)
    assert isinstance(env, gym.Env) and isinstance(env, UAV_VAT) and env.reward_range[0] == -float("inf")
    assert env.action_space.n == 7 and env.observation_space.shape == env.reset().shape == (3, 16, 16)
    assert (env.observation_space.low.max(), env.observation_space.high.min()) == (0.0, 1.0)
    flown = gym.make("UAVVAT-v0", conf_path={"State_size": 16, "verbose": False, "action_mode": "velocity"})
    assert isinstance(flown.action_space, gym.spaces.Box) and flown.action_space.shape == (4,)
    played = gym_test(steps=30)
    assert played["steps"] == 30
    workers = Workers([make_env(1, 0, True, conf_path={"State_size": 16, "verbose": False})])
    assert workers.action_spaces == [gymnasium.spaces.Discrete(7)]
    assert workers.observation_spaces == [gymnasium.spaces.Box(0.0, 1.0, (3, 16, 16))]
    workers.close()
"""


def test_with_gym_it_is_a_gym_environment(tmp_path):
    """gym's `make` returns it with gym's spaces, also one of four floats; worker processes use Gymnasium's."""
    for name, text in GYM.items():
        file = tmp_path / "gym" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    script = tmp_path / "play.py"
    script.write_text(PLAY)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "UAV_VAT is made without it" not in done.stdout


def test_gym_test_reports_if_it_runs_without_gym(monkeypatch, capsys, tmp_path):
    """If gym is missing or makes environments of another kind, the packaged configuration is played directly."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "gym", None)
    played = []
    monkeypatch.setattr(
        "milkrun.compat.dat.smoke.make_env",
        lambda *place, **options: played.append(options) or partial(UAV_VAT, conf_path=SMALL, seed=3),
    )
    assert gym_test(5)["steps"] == 5
    monkeypatch.setitem(sys.modules, "gym", gym_package(lambda id: UAV_VAT_Gymnasium(**OPTIONS))["gym"])
    assert gym_test(5)["steps"] == 5
    said = capsys.readouterr().out
    assert said.count("UAV_VAT is made without it") == 2 and "more than the state" in said
    assert played == [{}, {}]


def test_gymnasium_knows_the_id():
    """As UAV_VAT_Gymnasium, played through Gymnasium's wrappers without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make("UAVVAT-v0", **OPTIONS)
        env.reset(seed=1)
        *_, truncated, info = env.step(3)
    assert isinstance(env.unwrapped, UAV_VAT_Gymnasium) and truncated is False and info["reason"] == ""
    env.close()


def test_registering_the_id_again_only_overrides_it():
    """The original's line with Gymnasium's `register`: its usual warning, no error."""
    spec = gymnasium.registry["UAVVAT-v0"]
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            gymnasium.register(id="UAVVAT-v0", entry_point="milkrun.compat.dat:UAV_VAT")
        assert len(said) <= 1 and all("Overriding" in str(one.message) for one in said)
        assert gymnasium.registry["UAVVAT-v0"].entry_point == "milkrun.compat.dat:UAV_VAT"
    finally:
        gymnasium.registry["UAVVAT-v0"] = spec


def test_factories_can_be_pickled():
    """A pickled factory makes the same environment; both kinds; with SB3's Monitor around it."""
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.monitor import Monitor

    states = []
    for gym in (True, False):
        made = pickle.loads(pickle.dumps(make_env(4, 2, gym, **OPTIONS)))()
        assert type(made) is (UAV_VAT if gym else UAV_VAT_Gymnasium) and made.env.process_idx == 2
        states.append(made.reset() if gym else made.reset()[0])
    np.testing.assert_array_equal(*states)
    watched = make_env(4, 2, False, True, **OPTIONS)()
    assert isinstance(watched, Monitor) and isinstance(watched.unwrapped, UAV_VAT_Gymnasium)


def test_videos_have_the_rate_of_the_steps():
    """50 a second by the section or the simulator's file; otherwise the packaged 125, also for the class."""
    for kind in (UAV_VAT, UAV_VAT_Gymnasium):
        slow = kind(1, {**SMALL, "Control_Frequence": 50}), kind(1, SMALL, {"Control_Frequence": 50})
        assert [env.metadata["render_fps"] for env in (*slow, kind(1, SMALL), kind)] == [50, 50, 125, 125]


def test_ppo_learns_from_any_number_of_steps():
    """67 is a prime above the largest batch, 64: only batches of one would divide it, which PPO refuses. So it plays 68
    turns, each a step or the reset after an end."""
    pytest.importorskip("stable_baselines3")
    found = stableparallel_test(n_envs=1, gym=False, steps=67, **OPTIONS)
    assert found["steps"] + found["episodes"] in (68, 69)  # 69: the last turn was an end


def test_the_simulators_file_overrides_the_section():
    """In both classes; unsupported keys are listed."""
    file = {"Train_Total_Steps": 8, "Socket_Ip": "127.0.0.1"}
    for env in (UAV_VAT(1, SMALL, file), UAV_VAT_Gymnasium(1, SMALL, file)):
        assert (env.config.max_sim_steps, env.config.size) == (8, 16) and env.config.ignored == ("Socket_Ip",)
        assert env.env.config == env.config


@pytest.mark.parametrize(
    ("package", "extra", "call"),
    [
        ("stable_baselines3", "sb3", lambda: stableparallel_test(1)),
        ("stable_baselines3", "sb3", lambda: make_env(1, 0, False, True, **OPTIONS)()),
        ("tianshou", "tianshou", lambda: test_tianshou_env()),
    ],
)
def test_the_error_on_a_missing_package_names_its_extra(package, extra, call, monkeypatch):
    """All other functions work without the package."""
    for name in [m for m in sys.modules if m == package or m.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"\.\[{extra}\]"):
        call()
    assert make_env(1, 0, **OPTIONS)().reset().shape == (3, 16, 16)
