"""The dial-a-ride checker on batches: routes of plans, vehicles of routes, and refused data."""

from __future__ import annotations

import re

import numpy as np
import pytest

from milkrun.core.errors import BadInstance, BadSolution, ConfigError, ShapeError
from milkrun.routing.tasks import DARPProblem
from tests.routing.darp_by_hand import TWO, darp


def batch(*instances, **more):
    rows = [instance.fields() for instance in instances]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]} | more


def test_costs_of_a_batch():
    """A row that serves both, 1 + 9 + 10 and 5 + 7 + 2, and one with the penalty for request 1."""
    plans = np.array([[1, 2, 0, 3, 4, 0], [1, 2, 0, 0, 0, 0]])
    cost, parts, nothing = DARPProblem.get_costs(batch(darp(**TWO), darp(**TWO)), plans)
    assert cost.tolist() == [34.0, 220.0]
    assert {name: amount.tolist() for name, amount in parts.items()} == {
        "distance": [34.0, 20.0],
        "unvisited": [0, 2],
        "unserved": [0, 1],
        "vehicles": [2, 1],
    }
    assert nothing is None
    weighed = DARPProblem.get_costs(batch(darp(**TWO)), plans, {"length": 2.0}, penalty_unvisited=1.0)[0]
    assert weighed.tolist() == [68.0, 42.0]


def test_many_plans_of_one_instance():
    """`instance_row` selects the instance of each plan."""
    data = batch(darp(**TWO), darp([3, 11, 3, 11]), instance_row=np.array([1, 0, 1]))
    cost = DARPProblem.get_costs(data, np.array([[1, 2], [1, 2], [1, 3]]), on_violation="inf")[0]
    assert cost.tolist() == [222.0, 220.0, np.inf]


def test_a_broken_row_raises_or_costs_inf():
    """The message names row, vehicle, position, node and rule."""
    data = batch(darp(**TWO), darp(**TWO))
    plans = np.array([[1, 2, 0, 3, 4, 0], [2, 1, 0, 3, 4, 0]])
    with pytest.raises(BadSolution, match=re.escape("row 1: vehicle 0, position 0, node 2: precedence by 1")):
        DARPProblem.get_costs(data, plans)
    assert DARPProblem.get_costs(data, plans, on_violation="inf")[0].tolist() == [34.0, np.inf]


@pytest.mark.parametrize(
    ("capacity", "plan", "valid"),
    [
        ([1, 2], [1, 3, 2, 4, 0], True),  # the first vehicle has one seat and is skipped
        ([1, 2], [0, 1, 3, 2, 4, 0], True),  # it is left unused by an action
        ([1, 2], [0, 0, 1, 3, 2, 4, 0], False),  # both are
        ([2, 2], [0, 1, 3, 2, 4, 0], False),  # an equal one may not be left unused before the other
        ([2, 2, 1], [0, 1, 3, 2, 4, 0], True),  # but before the smaller one
        ([2, 1, 1], [1, 2, 0, 0, 3, 4, 0], False),
        ([2, 1], [1, 3, 2, 4, 0], True),
        ([2, 1], [0, 1, 3, 2, 4, 0], False),
        ([1, 1], [1, 3, 2, 4, 0], False),
        ([1, 0, 1], [1, 2, 0, 3, 4, 0], True),  # padding between is ignored
        ([1, 0, 0], [1, 2, 0, 3, 4, 0], False),
        ([0, 2], [0, 1, 2, 0], False),  # and does not count as a 0 for an unused vehicle
    ],
)
def test_routes_are_assigned_to_vehicles(capacity, plan, valid):
    """Both requests aboard need two seats; each route goes to the next vehicle that fits, in order."""
    data = batch(darp(**TWO)) | {"capacity": np.array([capacity])}
    cost = DARPProblem.get_costs(data, np.array([plan]), on_violation="inf")[0]
    assert np.isfinite(cost[0]) == valid


@pytest.mark.parametrize(
    ("fields", "plan", "said"),
    [
        ({"places": [1, 10], "closes": [100, 8]}, [1, 2], "position 1, node 2: window by 2"),
        ({"places": [1, 10, -5, 2], "ride": 20.5}, [1, 3, 4, 2], "position 3, node 2: ride by 0.5"),
        (
            {"places": [3, 10], "opens": [0, 50], "closes": [25, 60], "ride": 20},
            [1, 2],
            "position 1, node 2: ride by 5",
        ),
        ({"places": [3, 10], "service": [1, 2], "duration": 19}, [1, 2], "position 2, node 0: duration by 4"),
        ({"places": [1, 10, -5, 2], "capacity": [1, 1]}, [1, 3, 4, 2], "position 1, node 3: capacity by 1"),
    ],
)
def test_every_limit_of_a_dataset_is_checked(fields, plan, said):
    """A row of a batch gets the same error as a single instance."""
    with pytest.raises(BadSolution, match=re.escape(f"row 0: vehicle 0, {said}")):
        DARPProblem.get_costs(batch(darp(**fields)), np.array([[*plan, 0]]))


def test_requests_aboard_at_once_are_counted():
    """Two of one rider each in two seats: one more than `max_onboard` = 1."""
    data, plan = batch(darp(**TWO)), np.array([[1, 3, 2, 4, 0]])
    assert np.isfinite(DARPProblem.get_costs(data, plan, max_onboard=2)[0]).all()
    with pytest.raises(BadSolution, match=re.escape("row 0: vehicle 0, position 1, node 3: onboard by 1")):
        DARPProblem.get_costs(data, plan, max_onboard=1)


def test_padding_is_neither_driven_nor_charged():
    """Three real nodes of five: no penalty for the others, and a visit there is an unknown node."""
    data = {name: value.copy() for name, value in batch(darp(**TWO)).items()}
    data["demand"][0, 3:] = 0
    data["n_nodes"] = np.array([3], np.int32)
    cost, parts, _ = DARPProblem.get_costs(data, np.array([[1, 2, 0]]))
    assert (cost.tolist(), parts["unserved"].tolist()) == ([20.0], [0])
    with pytest.raises(BadSolution, match="node 3: unknown node"):
        DARPProblem.get_costs(data, np.array([[1, 2, 0, 3, 4, 0]]))


def test_places_are_driven_in_float32():
    """A pickup at 0.1 is at 0.100000001490116 in a world, so there and back is twice that, for any given dtype."""
    data = batch(darp([0.1, 0])) | {"locs": np.array([[[0, 0], [0.1, 0], [0, 0]]])}
    assert DARPProblem.get_costs(data, np.array([[1, 2, 0]]))[0].tolist() == [2 * float(np.float32(0.1))]


def test_torch_in_torch_out():
    """Plans and data of torch give costs of torch, the same numbers."""
    torch = pytest.importorskip("torch")
    data = {name: torch.from_numpy(value.copy()) for name, value in batch(darp(**TWO)).items()}
    cost, parts, _ = DARPProblem.get_costs(data, torch.tensor([[1, 2, 0, 3, 4, 0]]))
    assert isinstance(cost, torch.Tensor)
    assert (cost.tolist(), parts["vehicles"].tolist()) == ([34.0], [2])


def test_a_matrix_in_the_dataset_is_driven():
    """Every leg takes 5 with the matrix, and the distance of the coordinates with metric euclid."""
    data = batch(darp(**TWO, dist=5.0 - 5.0 * np.eye(5)))
    plan = np.array([[1, 2, 0]])
    assert DARPProblem.get_costs(data, plan)[1]["distance"].tolist() == [15.0]
    assert DARPProblem.get_costs(data, plan, metric="euclid")[1]["distance"].tolist() == [20.0]


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"window_open": None}, ShapeError, "lacks `window_open`"),
        ({"max_route_duration": None}, ShapeError, "lacks `max_route_duration`"),
        ({"max_ride_time": np.ones((1, 3))}, ShapeError, "max_ride_time has shape (1, 3)"),
        ({"demand": np.zeros((1, 5))}, ShapeError, "demand has dtype float64"),
        ({"locs": np.zeros((1, 4, 2))}, ShapeError, "4 nodes"),
        ({"demand": np.array([[0, 1, -1, 2, -1]])}, BadInstance, "demand[4] is -1, must be the negative"),
        ({"demand": np.array([[0, 1, -1, 0, 0]])}, BadInstance, "demand[3] is 0, must be at least 1"),
        ({"demand": np.array([[1, 1, -1, 1, -1]])}, BadInstance, "demand[0] is 1, must be 0"),
        ({"time_windows": np.full((1, 5), np.nan)}, BadInstance, "time_windows[0] is nan"),
        ({"service_time": np.full((1, 5), -1.0)}, BadInstance, "service_time[0] is -1.0"),
        ({"max_ride_time": np.zeros((1, 2))}, BadInstance, "max_ride_time[0] is 0.0"),
        ({"max_route_duration": np.array([np.nan])}, BadInstance, "max_route_duration[] is nan"),
        ({"capacity": np.array([[-1, 2]])}, BadInstance, "capacity[0] is -1"),
        ({"capacity": np.array([[2, 2**40]])}, BadInstance, "capacity[1] is 1099511627776, must be within"),
        ({"locs": np.full((1, 5, 2), 1e30)}, BadInstance, "locs[0, 0] is 1e+30, must be within -1e+09..1e+09"),
        ({"window_open": np.full((1, 5), -1e30)}, BadInstance, "window_open[0] is -1e+30, must be within"),
        ({"max_route_duration": np.array([None])}, ShapeError, "max_route_duration is a ndarray of dtype object"),
    ],
)
def test_bad_datasets_are_refused(changed, error, said):
    """Among them numbers that would make every comparison false."""
    data = {name: value for name, value in (batch(darp(**TWO)) | changed).items() if value is not None}
    with pytest.raises(error, match=re.escape(said)):
        DARPProblem.get_costs(data, np.array([[1, 2, 0]]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rule": "deadlins"}, "rule 'deadlins' is unknown; did you mean 'deadlines'?"),
        ({"speed": 0.0}, "speed is 0.0"),
        ({"speed": "1"}, "speed is 1, must be a number within 1e-06..1e+09"),
        ({"speed": 1e-300}, "speed is 1e-300, must be a number within 1e-06..1e+09"),
        ({"penalty_unvisited": np.nan}, "penalty_unvisited is nan, must be finite and >= 0"),
        ({"rule": ["deadlines"]}, "rule ['deadlines'] is unknown"),
        ({"on_violation": "warn"}, "on_violation is 'warn'"),
        ({"metric": "manhattan"}, "metric is 'manhattan'"),
        ({"rule": "deadlines", "metric": "matrix"}, "metric is 'matrix', allowed is 'euclid'"),
        ({"cw_dict": {"lenght": 1.0}}, "did you mean 'length'"),
    ],
)
def test_bad_options_are_refused(options, said):
    """No option is ignored."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        DARPProblem.get_costs(batch(darp(**TWO)), np.array([[1, 2, 0]]), **options)


def test_plans_are_integers():
    """Floats and a single row are refused as a batch of plans; a route is a flat list."""
    for plan in (np.array([[1.0, 2.0]]), np.array([1, 2])):
        with pytest.raises(ShapeError, match="pi has shape"):
            DARPProblem.get_costs(batch(darp(**TWO)), plan)
    with pytest.raises(ShapeError, match="a route is a list of node numbers"):
        DARPProblem.check(darp(**TWO), [[1.0, 2.0]])


# --- plans and routes


def test_routes_and_actions():
    """File nodes 1, 2 are pickups and 3, 4 their dropoffs, hence nodes 1, 3 and 2, 4; every route ends by 0."""
    assert DARPProblem.routes_to_actions([[1, 3], [2, 4]], 2).tolist() == [1, 2, 0, 3, 4, 0]
    assert DARPProblem.routes_to_actions([[1, 3], [2, 4]], 2, "node").tolist() == [1, 3, 0, 2, 4, 0]
    assert DARPProblem.routes_to_actions([[], []], 2).tolist() == []
    assert DARPProblem.actions_to_routes([1, 2, 0, 3, 4, 0, 0, 0]) == [[1, 2], [3, 4]]
    assert DARPProblem.actions_to_routes([0, 1, 2, 0, 0, 3, 4]) == [[], [1, 2], [], [3, 4]]
    assert DARPProblem.actions_to_routes(np.array([0, 0])) == []


def test_an_unused_vehicle_takes_no_action():
    """With equal vehicles any of them may stay unused."""
    routes = [[], [1, 2], [], [3, 4]]
    assert DARPProblem.routes_to_actions(routes, 2, "node").tolist() == [1, 2, 0, 3, 4, 0]


def test_routes_to_actions_refuses_invalid_input():
    """Nodes beyond the instance, and unknown numberings."""
    with pytest.raises(BadSolution, match=re.escape("route 1: node 5 does not exist, nodes are 1..4")):
        DARPProblem.routes_to_actions([[1], [5]], 2)
    with pytest.raises(ConfigError, match="numbering is 'line'"):
        DARPProblem.routes_to_actions([[1]], 2, "line")


@pytest.mark.parametrize(
    ("pi", "valid"),
    [
        ([[1, 2, 0, 3, 4, 0]], True),
        ([[1, 3, 0, 0]], True),
        ([[0, 0]], True),
        ([[1, 2, 1, 0]], False),
        ([[2, 1, 0, 0]], False),
        ([[1, 0, 2, 0]], False),
        ([[1, 2, 0], [4, 3, 0]], False),
        ([[-1, 2, 0]], False),
        ([[1.0, 2.0]], False),
    ],
)
def test_validate_tours(pi, valid):
    """No node twice, and no dropoff by a vehicle without the pickup before."""
    assert DARPProblem.validate_tours(np.array(pi)) == valid
