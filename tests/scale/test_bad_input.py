"""Invalid arguments are refused by name before a Ray is started, and only calls that need Ray load it."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from milkrun import scale
from milkrun.core.errors import ConfigError, MilkrunError, MissingExtra, RegistryError, ScaleError
from milkrun.scale import cluster
from milkrun.scale.solve import _split
from milkrun.solvers import add_policy, nearest, policies
from tests.scale.helpers import WORLDS

CVRP = "milkrun/CVRP-v0"


def evaluate(**changes):
    return scale.evaluate(**{"world_id": CVRP, "policy": "nearest", "episodes": 10, "config": WORLDS[CVRP], **changes})


@pytest.fixture(autouse=True)
def no_ray(monkeypatch):
    """No call here may start Ray."""

    def started(*_):
        raise AssertionError("Ray was started")

    monkeypatch.setattr(cluster, "_local_ray", started)


@pytest.mark.parametrize(
    "changes, error, words",
    [
        ({"world_id": "milkrun/CVPR-v0"}, RegistryError, "did you mean"),
        ({"policy": "nearst"}, ConfigError, "has no policy 'nearst'; did you mean 'nearest'"),
        ({"policy": ("random", {"sed": 1})}, ConfigError, "policy 'random' has no option 'sed'; did you mean 'seed'"),
        ({"policy": "tests.nowhere:f"}, ConfigError, "there is no module 'tests.nowhere'"),
        ({"policy": "tests.scale.helpers:slow"}, ConfigError, "has no 'slow'; did you mean 'slowly'"),
        ({"policy": lambda world: nearest(world)}, ConfigError, "is not importable: give 'package.module:function'"),
        ({"policy": "__main__:f"}, ConfigError, "a worker has another __main__"),
        ({"policy": 3}, ConfigError, "must be the name of a policy"),
        ({"policy": ("nearest", {"seed": 1})}, ConfigError, "has no option 'seed'"),
        ({"episodes": 0}, ConfigError, "episodes=0: must be an integer >= 1"),
        ({"rows": 0}, ConfigError, "rows=0: must be an integer >= 1"),
        ({"shard_rows": 0}, ConfigError, "shard_rows=0: must be an integer >= 1"),
        ({"seed": -1}, ConfigError, "seed -1"),
        ({"retries": -1}, ConfigError, "retries=-1"),
        ({"threads": 0}, ConfigError, "threads=0"),
        ({"cpus_per_shard": 0}, ConfigError, "cpus_per_shard=0: must be a number above 0"),
        ({"progress": "yes"}, ConfigError, "progress='yes'"),
        ({"config": {"num_lok": 3}}, ConfigError, "no option 'num_lok'"),
        ({"address": "nowhere"}, ConfigError, "must be None .*'auto' or 'host:port'"),
        ({"address": 3}, ConfigError, "address=3"),
        ({"keep": __file__}, ConfigError, "is a file: give a folder"),
        ({"keep": "/proc/nowhere"}, ConfigError, "cannot be written"),
        ({"keep": 3}, ConfigError, "a path is a str"),
    ],
)
def test_invalid_arguments_are_named(changes, error, words):
    """Value and remedy, as a MilkrunError."""
    with pytest.raises(error, match=words) as caught:
        evaluate(**changes)
    assert isinstance(caught.value, MilkrunError)


def test_a_policy_of_this_process_alone_is_refused(monkeypatch):
    """`add_policy` affects this process only."""
    monkeypatch.setattr(policies, "_added", {})
    add_policy(CVRP, "mine", lambda seed: nearest)
    with pytest.raises(ConfigError, match="was added in this process only"):
        evaluate(policy="mine")


def test_an_unreachable_address_is_named_in_time():
    """A port on which nothing listens: in far less than fifteen seconds."""
    began = time.monotonic()
    with pytest.raises(ScaleError, match=r"address='127\.0\.0\.1:9': nothing listens there"):
        evaluate(address="127.0.0.1:9")
    assert time.monotonic() - began < 15


def test_without_ray_the_extra_is_named(monkeypatch):
    """Before a folder is made."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[scale\]"'):
        evaluate()


def test_solve_and_generate_refuse_invalid_arguments_too(tmp_path):
    """With the messages of the local calls."""
    with pytest.raises(ConfigError, match="method='pyvpr'"):
        scale.solve("CVRP", {}, "pyvpr")
    with pytest.raises(MilkrunError, match="there is no instance to solve"):
        scale.solve("CVRP", [])
    with pytest.raises(ConfigError, match="instances=0"):
        scale.generate(CVRP, 0, tmp_path / "x")
    with pytest.raises(ConfigError, match="on='moon'"):
        scale.generate(CVRP, 5, tmp_path / "x", on="moon")
    assert not list(tmp_path.iterdir())


def test_a_plan_has_shards_and_memory():
    """2,500 rows in shards of 1,024 are three; 25 bytes an episode are gathered; ten workers need one round."""
    plan = scale.plan(CVRP, "nearest", 10_000, 2_500, config=WORLDS[CVRP], workers=10)
    assert (plan.shards, plan.caller_bytes, plan.workers) == (3, 250_000, 10)
    assert plan.shard_seconds > 0 and plan.worker_bytes > 1024 * 8
    assert plan.seconds == pytest.approx(plan.shard_seconds + 0.01)
    assert str(plan).startswith("3 shards of ")


def test_milkrun_loads_no_ray():
    """Nor do the calls that start none, the command line and the plan among them."""
    code = """
import sys, milkrun, milkrun.cli.app, milkrun.cli.demo, milkrun.cli.play, milkrun.scale
milkrun.scale.plan("milkrun/CVRP-v0", "nearest", 10, config={"num_loc": 5})
assert "ray" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_instances_that_are_solved_again_are_these():
    """Four rows play two instances: one task each, with its own; a number or a single row is that of all."""
    given = {"locs": np.arange(20.0).reshape(2, 5, 2), "n_nodes": [5, 4], "capacity": 3, "instance_row": [0, 1, 1, 0]}
    tasks = _split(given)
    assert [int(task["n_nodes"][0]) for task in tasks] == [5, 4, 4, 5]
    assert [task["locs"].tolist() for task in tasks] == [given["locs"][[b]].tolist() for b in (0, 1, 1, 0)]
    assert {task["capacity"].tolist() for task in tasks} == {3}
    with pytest.raises(MilkrunError, match="instance_row = 2: there are 2 instances"):
        _split({**given, "instance_row": [0, 2]})
