"""Modules under the names they had before."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from milkrun.moved import MOVED


@pytest.mark.parametrize("old", sorted(MOVED))
def test_an_old_module_is_the_new_one_and_says_so(old):
    """The very same module object, which keeps its own name, and a DeprecationWarning that tells where it is now."""
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED[old]}"):
        module = importlib.import_module(old)
    assert module is importlib.import_module(MOVED[old])
    assert (module.__name__, module.__spec__.name) == (MOVED[old], MOVED[old])


def test_the_import_paths_of_published_requirements_are_silent():
    """The multi-agent environment under the path of the public code: one class, whoever asks for it, and no warning."""
    asked = (
        "from milkrun.delivery.vrp.VRP_env import VRPEnv\n"
        "from milkrun.delivery.vrp.scenarios.truck_drone_basic import Scenario\n"
        "import milkrun.api.vrp.VRP_env as new, milkrun.delivery\n"
        "assert VRPEnv is new.VRPEnv is milkrun.delivery.VRPEnv\n"
    )
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning:milkrun", "-c", asked], check=True)


def test_what_never_was_is_still_missing():
    """The finder answers for the names of its tables alone."""
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("milkrun.routing.nowhere")
