"""What tests of several folders lean on."""

import gc
import os
import signal
from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.order import IN_BOTH, LONGEST, TESTS, runs_in
from tests.truth_parts import check_part, parts_of

# Threads that wait for work sleep. As they come they spin, which on a machine whose cores all have work, as under two
# test processes, takes the time of whom they wait for. Read when the first compiled code is loaded, so it stands here.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Ray reads this when it is imported: the clusters of tests listen on loopback alone.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

# In a new environment two processes that import the same in the same order both make the bytecode of all of it. The
# second one begins with what the first comes to later.
if os.environ.get("PYTEST_XDIST_WORKER") == "gw1":
    for name in ("sympy", "pandas", "scipy.stats", "matplotlib.pyplot", "ray"):
        if find_spec(name.partition(".")[0]) is not None:
            import_module(name)

# These have numba compile functions of theirs anew in each process, for 5 seconds each: a local search that no test
# uses, and indices of small buffers. Here they stay Python; docs/use-it-with.md is run as users have them.
if "PYTEST_XDIST_WORKER" in os.environ:
    from numba import config

    before, config.DISABLE_JIT = config.DISABLE_JIT, 1
    for name in ("rl4co.envs", "tianshou.data", "tianshou.algorithm"):
        if find_spec(name.partition(".")[0]) is not None:
            import_module(name)
    config.DISABLE_JIT = before


@pytest.fixture
def interrupts():
    """Ctrl-C is heard, also where the tests run in the background of a shell, which turns it off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_addoption(parser):
    """The options of `make test`, whose two runs take their part of the files each, and of `make truth`."""
    parser.addoption("--part", choices=["small", "large"], help="only files that tests/order.py gives this environment")
    parser.addoption("--truth-part", metavar="NAME", help="only files of this part of tests/truth_parts.py")


def pytest_configure(config):
    if name := config.getoption("--truth-part"):
        try:
            check_part(name)
        except ValueError as e:
            raise pytest.UsageError(str(e)) from None


def pytest_ignore_collect(collection_path, config):
    """Files of other parts are not even imported."""
    if not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    part, truth_part = config.getoption("--part"), config.getoption("--truth-part")
    other_part = part and part not in runs_in(collection_path)
    return other_part or (truth_part and truth_part not in parts_of(collection_path)) or None


def pytest_collection_modifyitems(config, items):
    """The long files first, where several processes share the tests (with --no-loadscope-reorder). In the small
    environment those first that compile every world: the other processes then find it compiled."""
    first = LONGEST if "PYTEST_XDIST_WORKER" in os.environ else IN_BOTH if config.getoption("--part") else []
    place = {TESTS / f"{name}.py": rank for rank, name in enumerate(first)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


def pytest_collection_finish():
    """What is loaded and collected by now stays: without this each full collection of garbage looks at all of it, for
    half a second, and the processes that tests fork copy it."""
    gc.freeze()
