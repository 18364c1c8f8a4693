"""An instance of the TSP with drone as data: contents and validation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from milkrun.core.errors import BadInstance, ShapeError
from milkrun.delivery.instances import TSPDInstance

SQUARE = TSPDInstance.of_places("square", [[0, 0], [3, 0], [3, 4]], max_fly=9, no_visit=[1])


def test_an_instance_is_one_row_of_a_world():
    """Its fields have a row axis, and a row without it gives the same problem with unknown factors."""
    row = SQUARE.fields()
    assert {name: array.shape for name, array in row.items()} == {
        "locs": (1, 3, 2),
        "c_truck": (1, 3, 3),
        "c_drone": (1, 3, 3),
        "max_fly": (1,),
        "no_visit": (1, 3),
        "forbid": (1, 3),
    }
    again = TSPDInstance.of_row("again", {name: array[0] for name, array in row.items()})
    assert again == dataclasses.replace(SQUARE, truck_factor=None, drone_factor=None)


def test_arrays_of_an_instance_are_frozen_copies():
    """Neither its own arrays nor those of the constructor can change it."""
    locs = np.zeros((2, 2))
    instance = TSPDInstance.of_places("two", locs)
    locs[0, 0] = 1
    assert instance.locs[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        instance.c_truck[0, 1] = 1


CROOKED = np.array([[0.0, 1, 2], [3, 0, 4], [5, 6, 0]])


@pytest.mark.parametrize(
    ("changed", "error", "sentence"),
    [
        ({"locs": np.zeros((1, 2))}, ShapeError, "square: locs has 1 nodes"),
        ({"c_drone": np.zeros((3, 2))}, ShapeError, r"square: c_drone has shape \(3, 2\)"),
        ({"no_visit": np.zeros(3)}, ShapeError, "square: no_visit has shape .* float64, expected .* of bool"),
        ({"max_fly": np.zeros(3)}, ShapeError, "square: max_fly is .* expected one number"),
        ({"max_fly": None}, ShapeError, "square: max_fly is None, expected one number"),
        ({"max_fly": np.nan}, BadInstance, "square: max_fly is nan, must be >= 0"),
        ({"truck_factor": -1.0}, BadInstance, "square: truck_factor is -1.0, must be >= 0"),
        ({"locs": np.full((3, 2), np.inf)}, BadInstance, "square: node 0: locs is .* must be finite"),
        ({"locs": np.full((3, 2), 1e31)}, BadInstance, r"square: node 0: locs is .* must be within -1e\+30..1e\+30"),
        ({"c_truck": CROOKED * 1e35}, BadInstance, r"square: node 0, 1: c_truck is 1e\+35, must be <= 1e\+34"),
        ({"c_truck": CROOKED - 2}, BadInstance, "square: node 0, 0: c_truck is -2.0, must be finite and >= 0"),
        ({"c_drone": CROOKED + np.eye(3)}, BadInstance, "square: node 0, 0: c_drone is 1.0, must be 0 on the diagonal"),
    ],
)
def test_an_invalid_instance_is_refused(changed, error, sentence):
    """The message has the node and the value."""
    with pytest.raises(error, match=sentence):
        dataclasses.replace(SQUARE, **changed)


def test_costs_may_differ_by_direction():
    """They are kept unchanged."""
    assert dataclasses.replace(SQUARE, c_truck=CROOKED).c_truck.tolist() == CROOKED.tolist()
