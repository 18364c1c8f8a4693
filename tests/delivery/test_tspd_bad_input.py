"""Refused input of the TSP with a drone: messages name row, field, index and value, and nothing changes."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadInstance, ConfigError, ShapeError
from milkrun.delivery.instances import TSPDInstance
from milkrun.delivery.tspd import TSPD, TSPDConfig
from tests.core.toys import rows_of
from tests.delivery.tspd_by_hand import line

ID = "milkrun/TSPD-v0"
PLACES = np.array([[[0, 0], [3, 0], [3, 4]], [[0, 0], [6, 0], [6, 8]]], float)


def changed(array, at, value):
    array = np.array(array)
    array[at] = value
    return array


COSTS = np.sqrt(((PLACES[:, :, None] - PLACES[:, None]) ** 2).sum(-1))
WORLD = {"locs": PLACES, "c_truck": COSTS, "c_drone": COSTS}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"locs": changed(PLACES, (1, 2, 0), np.nan)}, "row 1: locs[2, 0] = nan: must be finite"),
        ({"c_truck": changed(COSTS, (0, 1, 2), -1)}, "row 0: c_truck[1, 2] = -1.0: must be >= 0"),
        ({"c_drone": changed(COSTS, (1, 2, 1), np.inf)}, "row 1: c_drone[2, 1] = inf: must be finite"),
        ({"c_drone": changed(COSTS, (1, 2, 1), np.nan)}, "row 1: c_drone[2, 1] = nan: must be finite"),
        (
            {"c_truck": changed(COSTS, (1, 2, 2), 4)},
            "row 1: c_truck[2, 2] = 4.0: the cost from a node to itself is 0",
        ),
        (
            {"c_drone": changed(COSTS, (0, 1, 1), 2)},
            "row 0: c_drone[1, 1] = 2.0: the cost from a node to itself is 0",
        ),
        ({"locs": changed(PLACES, (1, 2, 0), 1e31)}, "row 1: locs[2, 0] = 1e+31: must be within -1e+30..1e+30"),
        ({"c_truck": changed(COSTS, (0, 1, 2), 1e35)}, "row 0: c_truck[1, 2] = 1e+35: must be <= 1e+34"),
        ({"c_drone": changed(COSTS, (1, 0, 1), 1e300)}, "row 1: c_drone[0, 1] = 1e+300: must be <= 1e+34"),
        ({"max_fly": np.array([3.0, -2.0])}, "row 1: max_fly = -2.0: must be >= 0"),
        ({"max_fly": np.array([np.nan, 1.0])}, "row 0: max_fly = nan: must be a number"),
        ({"n_nodes": np.array([3, 1])}, "row 1: n_nodes = 1: must be >= 2"),
        ({"n_nodes": np.array([4, 3])}, "row 0: n_nodes = 4: must be <= 3"),
    ],
)
def test_invalid_values_are_refused(given, sentence):
    """In two instances of three nodes; the world is unchanged."""
    world = milkrun.make(ID, 2, seed=7, num_nodes=3)
    world.reset()
    before = rows_of(world)
    with pytest.raises(BadInstance) as caught:
        world.reset(instance={**WORLD, **given})
    assert str(caught.value) == sentence
    assert rows_of(world) == before


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"locs": PLACES[:, :2]}, "locs must have the shape (2, 3, 2), not (2, 2, 2)"),
        ({"c_truck": COSTS[:, :, :2]}, "c_truck must have the shape (2, 3, 3), not (2, 3, 2)"),
        ({"c_drone": COSTS[0]}, "c_drone must have the shape (2, 3, 3), not (3, 3)"),
        ({"forbid": np.zeros((2, 4), bool)}, "forbid must have the shape (2, 3), not (2, 4)"),
        ({"forbid": np.zeros((2, 3), int)}, "forbid must be bool; int64 would lose information"),
        ({"no_visit": np.zeros((2, 3))}, "no_visit must be bool; float64 would lose information"),
        ({"n_nodes": np.array([3.0, 3.0])}, "n_nodes must be int32; float64 would lose information"),
        ({"max_fly": 3.0}, "max_fly must have the row as its first axis"),
        ({"range": np.zeros(2)}, "TSPD has no instance field 'range'"),
    ],
)
def test_invalid_arrays_are_refused(given, sentence):
    """Shapes, dtypes and names of the given fields, not of derived ones."""
    world = milkrun.make(ID, 2, seed=7, num_nodes=3)
    with pytest.raises(ShapeError) as caught:
        world.reset(instance={**WORLD, **given})
    assert str(caught.value).startswith(sentence)


def test_an_instance_needs_places_or_both_costs():
    """Costs are derived from places; one kind of cost does not determine the other."""
    world = milkrun.make(ID, 2, num_nodes=3)
    world.reset(instance={"locs": PLACES})
    world.reset(instance={"c_truck": COSTS, "c_drone": COSTS})
    with pytest.raises(ShapeError, match="lacks 'locs', 'c_drone'"):
        world.reset(instance={"c_truck": COSTS})


def test_derived_fields_cannot_be_given():
    """`fly_on` is recomputed, so instances saved from one world and restricted in another stay consistent."""
    world = milkrun.make(ID, 2, num_nodes=3)
    shut = np.array([[False, True, False], [False, False, False]])
    world.reset(instance={**WORLD, "forbid": shut, "fly_on": np.full((2, 3), 99.0)})
    assert world.fly_on.tolist() == [[5, 3, 5], [6, 6, 8]]


@pytest.mark.parametrize(
    ("instances", "sentence"),
    [
        ([], "from_instances needs at least one instance"),
        ([{"c_truck": COSTS[0]}], "instance 0 must be a TSPDInstance or a mapping with `locs`, or with `c_truck` and"),
        ([line(), 3], "instance 1 must be a TSPDInstance or a mapping"),
        ([{"locs": PLACES}], "instance 0: locs has the shape (2, 3, 2), not (2, 2)"),
        ([{"locs": PLACES[0]}, line()], "'forbid' is given in some instances and not in others"),
        ([{"locs": PLACES[0], "demand": np.zeros(3)}], "instance 0: TSPD has no instance field 'demand'"),
        ([{"locs": PLACES[0], "no_visit": np.zeros(4, bool)}], "instance 0: no_visit has the shape (4,), not (3,)"),
        ([{"locs": PLACES[0], "forbid": np.zeros(2, bool)}], "instance 0: forbid has the shape (2,), not (3,)"),
    ],
)
def test_invalid_lists_of_instances_are_refused(instances, sentence):
    """Empty lists, half of the costs, a row axis, different fields, unknown ones, too many nodes."""
    with pytest.raises(ShapeError) as caught:
        TSPD.from_instances(instances)
    assert sentence in str(caught.value)


def test_an_instance_larger_than_the_world_is_refused():
    """Four nodes in a world of three."""
    with pytest.raises(ShapeError, match=r"locs of an instance has the shape \(4, 2\); at most \(3, 2\) fits"):
        TSPD.from_instances([line()], num_nodes=3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"num_nodes": 1}, "TSPDConfig.num_nodes = 1: must be in 2..1000"),
        ({"num_nodes": 2.5}, "TSPDConfig.num_nodes = 2.5: must be int"),
        ({"alpha": 0}, "TSPDConfig.alpha = 0: must be in 0.001..1000.0"),
        ({"alpha": float("nan")}, "TSPDConfig.alpha = nan"),
        ({"max_fly": -1.0}, "TSPDConfig.max_fly = -1.0: must be >= 0"),
        ({"max_fly": 1e31}, "TSPDConfig.max_fly = 1e+31: must be <= 1e+30, or inf"),
        ({"max_fly": 10**400}, "must be >= 0, within 64 bits"),
        ({"law": "unifrom"}, "did you mean 'uniform'?"),
        ({"preset": "alpha4"}, "TSPDConfig has no preset 'alpha4'"),
        ({"num_loc": 5}, "TSPDConfig has no option 'num_loc'"),
    ],
)
def test_invalid_options_are_refused(options, sentence):
    """By name and value."""
    with pytest.raises(ConfigError) as caught:
        milkrun.make(ID, 1, **options)
    assert sentence in str(caught.value)


def test_a_file_of_options_keeps_an_infinite_limit(tmp_path):
    """max_fly = inf is written to a JSON file and read back."""
    TSPDConfig(alpha=3.0).to_json(tmp_path / "tspd.json")
    assert TSPDConfig.from_json(tmp_path / "tspd.json") == TSPDConfig(alpha=3.0)


def test_a_file_instance_is_used_unchanged():
    """It keeps its own factors, not the world's alpha."""
    one = TSPDInstance.of_places("three", PLACES[0], truck_factor=2.0, drone_factor=0.25, forbid=[2])
    world = TSPD.from_instances([one], alpha=3.0)
    assert (world.c_truck[0] == 2 * COSTS[0]).all() and (world.c_drone[0] == COSTS[0] / 4).all()
    assert world.forbid[0].tolist() == [False, False, True]


def test_places_without_a_row_axis_are_refused_by_name():
    """The message does not name derived fields."""
    world = milkrun.make("milkrun/TSPD-v0", 3, num_nodes=4)
    with pytest.raises(ShapeError, match=r"locs must have the shape \(rows, 4, 2\), not \(4, 2\)"):
        world.reset(instance={"locs": np.zeros((4, 2))})
