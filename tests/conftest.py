"""Fixtures and hooks for all folders of tests."""

import gc
import os
import signal
from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.order import IN_BOTH, LONGEST, TESTS, runs_in
from tests.truth_parts import check_part, parts_of

# Idle OpenMP threads sleep. By default they spin, which slows the threads that work where two test processes share the
# cores. OpenMP reads this when the first compiled code is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Ray reads this when it is imported: test clusters listen on loopback only.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

# In a new environment both test processes write bytecode. The second imports these packages first, so that they do not
# compile the same files at the same time.
if os.environ.get("PYTEST_XDIST_WORKER") == "gw1":
    for name in ("sympy", "pandas", "scipy.stats", "matplotlib.pyplot", "ray"):
        if find_spec(name.partition(".")[0]) is not None:
            import_module(name)

# These packages compile functions by numba in each process, 5 seconds each: a local search that no test uses, and
# indices of small buffers. Here they stay Python; the code of docs/use-it-with.md runs with compiled ones.
if "PYTEST_XDIST_WORKER" in os.environ:
    from numba import config

    before, config.DISABLE_JIT = config.DISABLE_JIT, 1
    for name in ("rl4co.envs", "tianshou.data", "tianshou.algorithm"):
        if find_spec(name.partition(".")[0]) is not None:
            import_module(name)
    config.DISABLE_JIT = before


@pytest.fixture
def interrupts():
    """Ctrl-C raises KeyboardInterrupt, also where a shell runs the tests in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_addoption(parser):
    """The options of the two runs of `make test`, and of `make truth`."""
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
    """Sorts the long files first where several processes share the tests (with --no-loadscope-reorder); in the small
    environment, the files that compile every world, so that other processes find it in the cache."""
    first = LONGEST if "PYTEST_XDIST_WORKER" in os.environ else IN_BOTH if config.getoption("--part") else []
    place = {TESTS / f"{name}.py": rank for rank, name in enumerate(first)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


def pytest_collection_finish():
    """Excludes all objects made so far from garbage collection: a full collection would take half a second, and forked
    processes would copy their memory."""
    gc.freeze()
