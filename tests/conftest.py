"""What tests of several folders lean on."""

import os
import signal
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.order import LONGEST

# Threads that wait for work sleep. As they come they spin, which on a machine whose cores all have work, as under two
# test processes, takes the time of whom they wait for. Read when the first compiled code is loaded, so it stands here.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# In a new environment two processes that import the same in the same order both make the bytecode of all of it. The
# second one begins with what the first comes to later.
if os.environ.get("PYTEST_XDIST_WORKER") == "gw1":
    for name in ("sympy", "pandas", "scipy.stats", "matplotlib.pyplot", "ray"):
        if find_spec(name.partition(".")[0]) is not None:
            import_module(name)


@pytest.fixture
def interrupts():
    """Ctrl-C is heard, also where the tests run in the background of a shell, which turns it off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_collection_modifyitems(items):
    """The long files first, where several processes share the tests (with --no-loadscope-reorder)."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = {Path(__file__).parent / f"{name}.py": rank for rank, name in enumerate(LONGEST)}
        items.sort(key=lambda item: place.get(item.path, len(place)))
