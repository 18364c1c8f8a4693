"""Refused input of the dial-a-ride world: class of the error, place and value; the world is unchanged.

Instances have four rows of three requests and two cars of 3 seats, with a single wrong number.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadInstance, ShapeError
from tests.routing.test_collect_bad_input import refused

ID = "milkrun/DARP-v0"
B, N, R, V = 4, 7, 3, 2
CLASSIC = {"num_requests": R, "num_agents": V, "max_duration": 240.0}
BY_DEADLINES = {"preset": "published", "num_requests": R, "num_agents": V}
LINE = np.array([[0, 0], [3, 0], [10, 0], [-4, 0], [5, 0], [1, 0], [2, 0]], np.float32)
WORLDS: dict = {}


def world_of(**options):
    """A world in mid-episode, shared by all tests with the same options: none of them may change it."""
    key = tuple(sorted(options.items()))
    if key not in WORLDS:
        WORLDS[key] = milkrun.make(ID, B, seed=5, illegal="raise", **options)
        WORLDS[key].reset()
        WORLDS[key].step(WORLDS[key].sample_actions())
    return WORLDS[key]


def fine(rule="classic"):
    """A valid instance for all rows."""
    good = {
        "locs": np.tile(LINE, (B, 1, 1)),
        "demand": np.tile([0, 1, -1, 1, -1, 2, -2], (B, 1)),
        "capacity": np.full((B, V), 3),
    }
    if rule == "deadlines":
        return good | {"time_windows": np.tile([48, 10, 13, 12, 15, 20, 22], (B, 1))}
    return good | {
        "window_open": np.tile([0.0, 0, 20, 0, 0, 0, 0], (B, 1)),
        "time_windows": np.full((B, N), 200.0),
        "service_time": np.tile([0.0, 1, 1, 1, 1, 1, 1], (B, 1)),
        "max_ride_time": np.full((B, R), 30.0),
        "max_route_duration": np.full(B, 150.0),
    }


def put(field, at, value, rule="classic"):
    """A valid instance with one wrong element."""
    array = fine(rule)[field].astype(float if isinstance(value, float) and field != "locs" else fine(rule)[field].dtype)
    array[at] = value
    return {**fine(rule), field: array}


@pytest.mark.parametrize("rule", ["classic", "deadlines"])
def test_valid_instances_are_played(rule):
    """So every refusal below is due to its change; an infinite limit is also valid."""
    world = milkrun.make(ID, B, **(BY_DEADLINES if rule == "deadlines" else CLASSIC))
    world.reset(instance=fine(rule))
    assert world.action_mask.tolist() == [[False, True, False, True, False, True, False]] * B
    if rule == "classic":
        for field, at in (("max_ride_time", (2, 1)), ("max_route_duration", 1), ("time_windows", (3, 5))):
            world.reset(instance=put(field, at, math.inf))


# -- numbers ----------------------------------------------------------------------------------------------------------

NUMBERS = [
    ("locs", (1, 2, 1), math.nan, "row 1: locs[2, 1] = nan: must be finite"),
    ("locs", (2, 0, 0), math.inf, "row 2: locs[0, 0] = inf: must be finite"),
    ("window_open", (2, 3), 200.5, "row 2: time_windows[3] = 200.0: the window closes before it opens"),
    ("window_open", (2, 0), 201.0, "row 2: time_windows[0] = 200.0: the window closes before it opens"),
    ("window_open", (1, 4), math.nan, "row 1: window_open[4] = nan: must be finite"),
    ("window_open", (1, 4), -math.inf, "row 1: window_open[4] = -inf: must be finite"),
    ("time_windows", (1, 2), 19.0, "row 1: time_windows[2] = 19.0: the window closes before it opens"),
    ("time_windows", (0, 4), math.nan, "row 0: time_windows[4] = nan: must be a number"),
    ("time_windows", (3, 0), math.inf, "row 3: time_windows[0] = inf: the depot's must be finite"),
    ("service_time", (3, 6), -0.5, "row 3: service_time[6] = -0.5: must be >= 0"),
    ("service_time", (3, 6), math.inf, "row 3: service_time[6] = inf: must be finite"),
    ("service_time", (2, 0), 1.0, "row 2: service_time[0] = 1.0: the depot has none"),
    ("max_ride_time", (1, 2), 0.0, "row 1: max_ride_time[2] = 0.0: must be above 0"),
    ("max_ride_time", (1, 2), -3.0, "row 1: max_ride_time[2] = -3.0"),
    ("max_ride_time", (0, 1), math.nan, "row 0: max_ride_time[1] = nan: must be a number"),
    ("max_route_duration", (2,), 0.0, "row 2: max_route_duration = 0.0: must be above 0"),
    ("max_route_duration", (2,), -1.0, "row 2: max_route_duration = -1.0"),
    ("max_route_duration", (2,), math.nan, "row 2: max_route_duration = nan: must be a number"),
    ("locs", (1, 2, 1), 1e30, "row 1: locs[2, 1] = 1.0000000150474662e+30: must be within -1e+09..1e+09"),
    ("window_open", (1, 4), -1e30, "row 1: window_open[4] = -1e+30: must be within -1e+09..1e+09"),
    ("time_windows", (3, 0), 1e10, "row 3: time_windows[0] = 10000000000.0: the depot's must be <= 1e+09"),
    ("service_time", (3, 6), 1e30, "row 3: service_time[6] = 1e+30: must be <= 1e+09"),
]
RIDERS = [
    ("demand", (1, 0), 1, "row 1: demand[0] = 1: the depot has no riders"),
    ("demand", (2, 3), 0, "row 2: demand[3] = 0: a pickup takes at least one rider"),
    ("demand", (2, 3), -1, "row 2: demand[3] = -1: a pickup takes at least one rider"),
    ("demand", (3, 4), -2, "row 3: demand[4] = -2: a dropoff is the negative of its pickup"),
    ("demand", (3, 4), 1, "row 3: demand[4] = 1: a dropoff is the negative of its pickup"),
    ("capacity", (1, 1), -1, "row 1: capacity[1] = -1: must be >= 0"),
    ("capacity", (1, 1), 0, "row 1: capacity[1] = 0: must be at least 1"),
    ("capacity", (1, 1), 2**63 - 1, "row 1: capacity[1] = 9223372036854775807: must be <= 1073741824"),
    ("demand", (3, slice(3, 5)), [2**62, -(2**62)], "row 3: demand[3] = 4611686018427387904: must be <= 1073741824"),
]
DEADLINES = [
    ("time_windows", (2, 3), -1, "row 2: time_windows[3] = -1: must be >= 0"),
    ("time_windows", (2, 0), 2**53, "row 2: time_windows[0] = 9007199254740992: the depot's must be <= 1e+09"),
    ("locs", (1, 2, 1), 1e30, "row 1: locs[2, 1] = 1.0000000150474662e+30: must be within -1e+09..1e+09"),
]


@pytest.mark.parametrize(("field", "at", "value", "sentence"), NUMBERS + RIDERS)
def test_invalid_numbers_are_refused(field, at, value, sentence):
    """The message names row, field, node and value."""
    with refused(world_of(**CLASSIC), BadInstance, sentence):
        world_of(**CLASSIC).reset(seed=9, instance=put(field, at, value))


@pytest.mark.parametrize(("field", "at", "value", "sentence"), [NUMBERS[0], NUMBERS[1], *RIDERS, *DEADLINES])
def test_invalid_numbers_are_refused_under_the_rule_by_deadlines(field, at, value, sentence):
    """The same for its fields."""
    with refused(world_of(**BY_DEADLINES), BadInstance, sentence):
        world_of(**BY_DEADLINES).reset(seed=9, instance=put(field, at, value, "deadlines"))


def test_a_place_beyond_the_range_of_clocks_is_refused():
    """At a speed of 1e-6 a distance of 1,000 takes 1e9: twice the allowed time."""
    world = world_of(**BY_DEADLINES, speed=1e-6)
    world.reset(instance=put("locs", (2, 4, 1), 499.0, "deadlines"))
    sentence = "row 2: locs[4] = [   5. 1000.]: is 1.00001e+09 units of time from the depot at the speed 1e-06, at most"
    with refused(world, BadInstance, sentence):
        world.reset(instance=put("locs", (2, 4, 1), 1000.0, "deadlines"))


def test_the_longest_leg_is_counted_exactly():
    """5e8 time units out and 1e9 across: clocks are integers, none negative, and deadlines are kept."""
    far = np.array([[[0, 0], [500, 0], [-500, 0]]], np.float32)
    world = milkrun.make(ID, 1, rule="deadlines", num_requests=1, num_agents=1, speed=1e-6, autoreset="disabled")
    world.reset(
        instance={
            "locs": far,
            "demand": [[0, 1, -1]],
            "capacity": [[1]],
            "time_windows": [[48, 5 * 10**8, 15 * 10**8]],
        }
    )
    clock = []
    for action in (1, 2):
        assert world.action_mask[0].nonzero()[0].tolist() == [action]
        world.step([action])
        clock.append(int(world.current_time[0]))
    # 1e-6 is 9.999999974752427e-07 in float32, and the quotients are the nearest float32
    assert clock == [500000000, 1500000000] and world.terminated[0] and world.objective[0] == -1500


def test_a_row_without_seats_is_refused():
    """No car of the row has a seat."""
    with refused(world_of(**CLASSIC), BadInstance, "row 1: capacity", "= 0: must be at least 1"):
        world_of(**CLASSIC).reset(instance=put("capacity", 1, 0))


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        ((1, 3, 3), 5.0, ("row 1: dist[3", "= 5.0", "diagonal")),
        ((2, 0, 4), -5.0, ("row 2: dist[0, 4] = -5.0",)),
        ((3, 1, 2), math.nan, ("row 3: dist[1, 2] = nan",)),
        ((0, 1, 2), math.inf, ("row 0: dist[1, 2] = inf",)),
        ((0, 1, 2), 1e30, ("row 0: dist[1, 2] = 1e+30", "1e+09")),
    ],
)
def test_invalid_matrices_are_refused(at, value, words):
    """Non-zero diagonal, negative, NaN, infinite."""
    world = world_of(metric="matrix", **CLASSIC)
    dist = np.ones((B, N, N)) - np.eye(N)
    dist[at] = value
    with refused(world, BadInstance, *words):
        world.reset(instance={**fine(), "dist": dist})


@pytest.mark.parametrize(
    ("field", "at", "wrong", "right", "number", "kind"),
    [
        ("demand", (2, slice(3, 5)), [4, -4], [3, -3], 1, "capacity"),
        ("max_ride_time", (2, 1), 8.9, 9.0, 1, "ride"),
        ("max_route_duration", (2,), 21.9, 22.0, 0, "duration"),
        ("time_windows", (2, 3), 3.9, 4.0, 1, "window"),
        ("time_windows", (2, 4), 13.9, 14.0, 1, "window"),
        ("window_open", (2, 4), 194.1, 194.0, 1, "window"),
    ],
)
def test_a_request_that_no_car_can_serve_is_refused(field, at, wrong, right, number, kind):
    """Alone, request 1 takes 4 + 9 + 5 and stops of 1, request 0 takes 3 + 7 + 10 and stops; the day ends at 200."""
    alone = f"request {number} (nodes {2 * number + 1} and {2 * number + 2}) cannot be served even alone: {kind}"
    with refused(world_of(**CLASSIC), BadInstance, "row 2: ", alone):
        world_of(**CLASSIC).reset(instance=put(field, at, wrong))
    milkrun.make(ID, B, **CLASSIC).reset(instance=put(field, at, right))


# -- shapes -----------------------------------------------------------------------------------------------------------

FIELDS = [(CLASSIC, "classic", name) for name in fine()]
FIELDS += [(BY_DEADLINES, "deadlines", name) for name in fine("deadlines")]


@pytest.mark.parametrize(("options", "rule", "field"), FIELDS)
def test_a_missing_field_is_named(options, rule, field):
    """No field has a default."""
    with refused(world_of(**options), ShapeError, repr(field)):
        world_of(**options).reset(instance={k: v for k, v in fine(rule).items() if k != field})


@pytest.mark.parametrize(("options", "rule", "field"), FIELDS)
@pytest.mark.parametrize("change", ["fewer rows", "one axis more", "strings", "complex", "ragged"])
def test_shapes_and_dtypes(options, rule, field, change):
    """Batch sizes that disagree, wrong axes, non-numbers: a MilkrunError names the field."""
    good = fine(rule)[field]
    wrong = {
        "fewer rows": good[:3],
        "one axis more": good[..., None],
        "strings": np.full(good.shape, "far"),
        "complex": good.astype(complex),
        "ragged": [[1], [2, 3]],
    }[change]
    with refused(world_of(**options), ShapeError, field):
        world_of(**options).reset(instance={**fine(rule), field: wrong})


@pytest.mark.parametrize(("options", "rule"), [(CLASSIC, "classic"), (BY_DEADLINES, "deadlines")])
def test_numbers_of_nodes(options, rule):
    """Six nodes in a world of seven, floats for riders, a field of another rule or name."""
    world = world_of(**options)
    even = {name: array[:, : N - 1] if array.shape[1:2] == (N,) else array for name, array in fine(rule).items()}
    with refused(world, ShapeError, "(4, 7", "(4, 6"):
        world.reset(instance=even)
    with refused(world, ShapeError, "demand", "float64"):
        world.reset(instance={**fine(rule), "demand": fine(rule)["demand"].astype(float)})
    for name in ("dist", "demnd"):
        with refused(world, ShapeError, repr(name)):
            world.reset(instance={**fine(rule), name: np.zeros((B, N, N))})


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"n_nodes": [7, 7, 6, 7]}, BadInstance, ("row 2",)),
        ({"n_nodes": [7, 7, 9, 7]}, BadInstance, ("row 2: n_nodes = 9: must be <= 7",)),
        ({"n_nodes": [7, 7, 1, 7]}, BadInstance, ("row 2: n_nodes = 1: must be >= 3",)),
        ({"n_nodes": [7, 7, 5, 7]}, BadInstance, ("row 2: demand[5] = 2: padding has no riders",)),
        ({"n_nodes": [7, 7, 7]}, ShapeError, ("n_nodes",)),
        ({"n_nodes": ["7"] * 4}, ShapeError, ("n_nodes",)),
        ({"instance_row": [0, 1, 2, 4]}, BadInstance, ("row 3: instance_row = 4",)),
        ({"depot": np.zeros((3, 2))}, ShapeError, ("depot",)),
    ],
)
def test_sizes_and_owners(wrong, error, words):
    """Of instances with padding, of shared ones, of the split layout."""
    with refused(world_of(**CLASSIC), error, *words):
        world_of(**CLASSIC).reset(instance={**fine(), **wrong})
