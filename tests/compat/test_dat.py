"""Names of the tracking benchmark: each comes from its own module, whose library is imported only on access."""

import importlib
import subprocess
import sys

import pytest

import milkrun.tracking
from milkrun.compat import dat
from milkrun.core.errors import ConfigError, MissingExtra


def test_envs_is_the_class_of_the_family():
    from milkrun.compat.parallel.envs import Envs

    assert dat.Envs is Envs


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("Async_SubprocVecEnv", "milkrun.api.sb3"),
        ("ASYNC_SubprocVecEnv", "milkrun.api.sb3"),
        ("SubprocVecEnv_TS", "milkrun.api.tianshou"),
        ("TS_Collector", "milkrun.api.tianshou"),
        ("handles", "milkrun.compat.parallel.rows"),
    ],
)
def test_a_wrapper_is_the_class_of_its_binding(name, module):
    """And is in the list of names."""
    assert getattr(dat, name) is getattr(importlib.import_module(module), name)
    assert name in dat.__all__


def test_importing_envs_imports_no_library():
    """Neither Stable-Baselines3 nor tianshou nor torch."""
    script = (
        "import sys\n"
        "from milkrun.compat.dat import Envs\n"
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
    with pytest.raises(MissingExtra, match=rf'pip install -e "\.\[{extra}\]"'):
        getattr(dat, name)


OWN = {
    "BenchEnv_Multi": "bench_env",
    "GE": "constructors",
    "UAV_VAT": "gym_env",
    "UAV_VAT_Gymnasium": "gymnasium_env",
    "general_env": "constructors",
    "gym_test": "smoke",
    "make_env": "constructors",
    "process_frame": "frames",
    "stableparallel_test": "smoke",
    "test_tianshou_env": "smoke",
}


def test_the_names_of_the_original_are_here():
    """Each comes from its own file; the list of names holds exactly these."""
    for name, module in OWN.items():
        assert getattr(dat, name) is getattr(importlib.import_module(f"milkrun.compat.dat.{module}"), name)
        assert name in dat.__all__
    with pytest.raises(AttributeError, match="GEE"):
        dat.GEE  # noqa: B018


def test_the_family_exports_the_five_that_need_no_other_library():
    """`milkrun.tracking` exports them lazily by name: they are the same objects."""
    for name in ("BenchEnv_Multi", "general_env", "process_frame", "GE", "Envs"):
        assert getattr(milkrun.tracking, name) is getattr(dat, name) and name in milkrun.tracking.__all__


def test_importing_the_family_imports_no_library():
    """Neither numba nor torch nor gym nor msgpack; nor does `import milkrun.compat.dat`."""
    heavy = {"torch", "gym", "msgpack", "numba", "stable_baselines3", "tianshou", "Box2D"}
    script = f"import sys, milkrun.tracking, milkrun.compat.dat; print(sorted({heavy} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert found == "[]\n"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: dat.general_env("Benchmark", {"State_siz": 84}), "no option 'State_siz'; did you mean 'State_size'"),
        (lambda: dat.general_env("Benchmark", {"weather": "hail"}), "must be of day, night, foggy, snow$"),
        (
            lambda: dat.general_env("Benchmark", {"Benchmark": {}, "LunarLandr": {}}),
            "given configuration: has no section",
        ),
        (lambda: dat.general_env("benchmark"), "LunarLander-v3; did you mean 'Benchmark'"),
        (lambda: dat.UAV_VAT(1, None, 5), "an env_config must be a path or a mapping, not 5"),
        (lambda: dat.Envs(2, 3), "env_list is a int: must be a list of 2 environments"),
    ],
)
def test_errors_name_the_valid_choices(call, says):
    """With the original's names, and each choice once."""
    with pytest.raises(ConfigError, match=says):
        call()
