"""The features that are derived from every shipped world, as in `features.txt`.

`PYTHONPATH=. python -m tests.learn.test_features` writes that file anew.
"""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pytest

import milkrun
from milkrun.core.features import GROUPS, derive, fits
from tests import small

TABLES = Path(__file__).with_name("features.txt")
DERIVED = "CVRP CVRPP CWCVRP DARP PCTSP PDP SCWCVRP SDWCVRP TSP VRP VRPP WCVRP".split()


def made(id, rows=1):
    return milkrun.make(id, rows, seed=0, threads=1, autoreset="disabled", **small.options(id))


def shipped():
    return [id for id in milkrun.list_worlds() if id.startswith("milkrun/")]


def table_of(id):
    world = made(id)
    why = fits(world)
    return f"{id}: no features, because {why}" if why else f"{id}\n{derive(world)}"


def is_equal(found, expected):
    """Words are compared exactly, numbers to 0.1 %: their last digit may differ between machines."""
    try:
        return math.isclose(float(found), float(expected), rel_tol=1e-3)
    except ValueError:
        return found == expected


@pytest.mark.parametrize("id", shipped())
def test_the_table_of_a_world_is_the_written_one(id):
    """What a network sees of it, with measured scales, or why nothing can be derived."""
    tables = TABLES.read_text().split("\n\n")
    expected = next(table for table in tables if table.split(maxsplit=1)[0].rstrip(":") == id).split()
    found = table_of(id).split()
    assert len(found) == len(expected)
    assert [pair for pair in zip(found, expected, strict=True) if not is_equal(*pair)] == []


def test_the_file_has_no_other_worlds():
    """One table each, and features of these."""
    tables = TABLES.read_text().rstrip().split("\n\n")
    assert [table.split(maxsplit=1)[0].rstrip(":") for table in tables] == shipped()
    assert [table.split()[0] for table in tables if "no features" not in table] == [f"milkrun/{n}-v0" for n in DERIVED]


@pytest.mark.parametrize("name", DERIVED)
def test_no_network_sees_a_hidden_field(name):
    """Neither as a feature nor among the fields that are left out."""
    world = made(f"milkrun/{name}-v0")
    features = derive(world)
    named = {*features.left_out, *(name for group in GROUPS for name in getattr(features, group))}
    assert named and not [name for name in named if world.fields[name].hidden]


@pytest.mark.parametrize("name", DERIVED)
def test_deriving_does_not_move_the_world(name):
    """Its saved state in the middle of its episodes is the same, to the bit."""
    world = made(f"milkrun/{name}-v0", rows=3)
    world.reset()
    world.step(world.sample_actions(0))
    before = copy.deepcopy(world.state_dict())
    derive(world)
    after = world.state_dict()
    assert before.keys() == after.keys()
    for key, value in before.items():
        np.testing.assert_equal(after[key], value)


if __name__ == "__main__":
    TABLES.write_text("\n\n".join(map(table_of, shipped())) + "\n")
