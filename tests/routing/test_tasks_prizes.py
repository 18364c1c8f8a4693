"""The checkers of PCTSP and OP: tours by hand on a 3 x 4 rectangle with diagonals of 5."""

from __future__ import annotations

import copy
from itertools import permutations

import numpy as np
import pytest

from milkrun.core.errors import ConfigError
from milkrun.routing.tasks import OP, PCTSP
from tests.reference.collect import CollectModel
from tests.routing.fleet_cases import padded

RECTANGLE = np.array([[[0, 0], [3, 0], [3, 4], [0, 4]]], np.float32)


def prizes(**fields: object) -> dict[str, object]:
    rule = {"locs": RECTANGLE, "prize": [[0, 1, 0.4, 0.6]], "penalty": [[0, 2, 1, 5]]}
    return {name: np.array(value) for name, value in (rule | fields).items()}


def test_length_and_penalties():
    """Customer 1 alone: 6 and the penalties 1 + 5; customers 3 and 2: 12 and 2; all: 14."""
    cost, parts, _ = PCTSP.get_costs(prizes(), np.array([[1, 0, 0], [3, 2, 0], [1, 2, 3]]))
    assert cost.tolist() == [12, 14, 14]
    assert parts["length"].tolist() == [6, 12, 14] and parts["penalty"].tolist() == [6, 2, 0]
    assert parts["prize"].tolist() == pytest.approx([1, 1, 2])
    assert PCTSP.get_costs(prizes(), np.array([[1, 0]]), {"penalty": 2.0})[0].item() == 18


@pytest.mark.parametrize(
    ("fields", "actions", "reason"),
    [
        ({}, [2, 0, 0], "the tour collects 0.4 of the 1 required"),
        ({}, [0, 0, 0], "the tour collects 0 of the 1 required"),
        ({}, [1, 0, 2], "customer 2 follows the end of the tour"),
        ({}, [1, 2, 1], "customer 1 is visited 2 times"),
        ({}, [2, 3, 0], None),
        ({"prize_required": [0.2]}, [2, 0, 0], None),
        ({"prize_required": [0.0]}, [0, 0, 0], None),
        ({"prize_required": [9.0]}, [1, 2, 3], None),
        ({"real_prize": [[0, 0.5, 0.6, 0.5]]}, [1, 0, 0], "the tour collects 0.5 of the 1 required"),
        ({"real_prize": [[0, 0.5, 0.6, 0.5]]}, [1, 3, 0], None),
    ],
)
def test_prize_required(fields, actions, reason):
    """Real prizes count, and a tour of all customers needs none."""
    assert PCTSP.check(prizes(**fields), np.array([actions]))[1] == [reason]


def test_padding_has_no_penalty():
    """A row of two customers."""
    small = prizes(n_nodes=[3])
    assert PCTSP.get_costs(small, np.array([[1, 0]]))[0].item() == 6 + 1
    assert PCTSP.check(small, np.array([[1, 3]]))[1] == ["node 3 does not exist, nodes are 0..2"]


def test_prizes_within_the_limit():
    """Of a tour of at most 12 the length costs nothing: 1 and 2 for 1.4, 2 and 3 for 1."""
    dataset = prizes(max_length=[12.0])
    cost, parts, _ = OP.get_costs(dataset, np.array([[1, 2, 0], [2, 3, 0]]))
    assert cost.tolist() == pytest.approx([-1.4, -1]) and parts["length"].tolist() == [12, 12]
    assert OP.check(dataset, np.array([[1, 2, 3]]))[1] == ["trip 1 is 14 long, max_length 12"]
    with pytest.raises(ConfigError, match="trips"):
        OP.check(dataset, np.array([[1, 2, 3]]), trips="multi")


def test_orienteering_is_a_single_trip_without_a_price_of_length():
    """Its plans are those of the reference of VRPP with a length weight of 0."""
    rng = np.random.default_rng(0)
    plans = [(*order, 0) for m in range(5) for order in permutations(range(1, 5), m)]
    for limit in (8.0, 12.0, 16.0):
        locs, prize = rng.integers(0, 6, (5, 2)), [0, *rng.integers(1, 9, 4).tolist()]
        dataset = {"locs": locs[None], "prize": np.array([prize]), "max_length": np.array([limit])}
        cost = OP.get_costs(dataset, padded(plans), on_violation="inf")[0]
        accepted = {plan: -c for plan, c in zip(plans, cost, strict=True) if np.isfinite(c)}
        model = CollectModel(locs.tolist(), gain=prize, max_length=limit, length_weight=0.0)
        assert accepted == {tuple(row.tour): row.collected for row in every_row(model)}


def every_row(model: CollectModel) -> list[CollectModel]:
    """All finished rows of a reference whose mask is a list."""
    if model.finished:
        return [model]
    found = []
    for a in model.allowed():
        after = copy.copy(model)
        after.step(a)
        found += every_row(after)
    return found
