"""The names of the tracking benchmark: each is that of its own module, which needs its library only when asked for."""

import importlib
import subprocess
import sys

import pytest

from milkrun.api import dat
from milkrun.core.errors import MissingExtra


def test_envs_is_the_class_of_the_family():
    from milkrun.api.parallel.envs import Envs

    assert dat.Envs is Envs


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("Async_SubprocVecEnv", "milkrun.api.sb3"),
        ("ASYNC_SubprocVecEnv", "milkrun.api.sb3"),
        ("SubprocVecEnv_TS", "milkrun.api.tianshou"),
        ("TS_Collector", "milkrun.api.tianshou"),
        ("handles", "milkrun.api.rows"),
    ],
)
def test_a_wrapper_is_that_of_its_binding(name, module):
    """And stands in the list of names."""
    assert getattr(dat, name) is getattr(importlib.import_module(module), name)
    assert name in dat.__all__


def test_importing_envs_brings_no_library():
    """Neither Stable-Baselines3 nor tianshou nor torch."""
    script = (
        "import sys\n"
        "from milkrun.api.dat import Envs\n"
        "print(sorted({'torch', 'stable_baselines3', 'tianshou', 'numba'} & sys.modules.keys()))\n"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("Async_SubprocVecEnv", "stable_baselines3", "sb3"), ("TS_Collector", "tianshou", "tianshou")],
)
def test_a_wrapper_whose_library_is_missing_names_the_extra(name, package, extra, monkeypatch):
    for module in [m for m in sys.modules if m == package or m.startswith((f"{package}.", f"milkrun.api.{extra}"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf'pip install "milkrun\[{extra}\]"'):
        getattr(dat, name)


@pytest.mark.parametrize("name", ["GE", "make_env", "UAV_VAT", "gym_test", "stableparallel_test", "Env"])
def test_what_is_not_here_is_an_attribute_error(name):
    """The tracking world has not come yet; nothing stands in for it."""
    with pytest.raises(AttributeError, match=name):
        getattr(dat, name)
