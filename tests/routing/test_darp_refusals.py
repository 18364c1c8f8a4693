"""Refusals of the dial-a-ride world besides instances: options, laws without instances, lists of instances, actions.

A refusal is a MilkrunError with the name and the value, and nothing changes.
"""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadInstance, ConfigError, IllegalAction, MilkrunError, ResetNeeded, ShapeError
from milkrun.routing import DARP, DARPConfig, DARPInstance
from milkrun.routing.generators import DARPGenerator, get_generator
from tests.core.toys import rows_of
from tests.routing.darp_by_hand import ONE, TWO, darp

ID = "milkrun/DARP-v0"
SMALL = {"num_requests": 3, "num_agents": 2, "max_duration": 240.0}

# -- options ----------------------------------------------------------------------------------------------------------

OPTIONS = [
    ({"num_request": 3}, ("'num_request'", "num_requests")),
    ({"num_loc": 7}, ("num_loc = 7", "even")),
    ({"num_loc": 0}, ("num_loc = 0",)),
    ({"num_loc": 8.0}, ("num_loc = 8.0",)),
    ({"num_loc": 8, "num_requests": 4}, ("num_loc", "num_requests")),
    ({"num_requests": 0}, ("num_requests", "0")),
    ({"num_agents": 0}, ("num_agents", "0")),
    ({"speed": 1.0, "vehicle_speed": 2.0}, ("vehicle_speed",)),
    ({"speed": 0.0}, ("speed", "0.0")),
    ({"speed": -1.0}, ("speed", "-1.0")),
    ({"speed": math.nan}, ("speed", "nan")),
    ({"rule": "clasic"}, ("rule", "'clasic'", "classic", "deadlines")),
    ({"law": "deadlines"}, ("law", "'deadlines'", "'classic'")),
    ({"style": "c"}, ("style", "'c'", "'a'", "'b'")),
    ({"metric": "manhattan"}, ("metric", "'manhattan'", "matrix")),
    ({"reward": "sparse"}, ("reward", "'sparse'", "dense", "terminal")),
    ({"penalty_unvisited": -1.0}, ("penalty_unvisited", "-1.0")),
    ({"penalty_unvisited": math.nan}, ("penalty_unvisited", "nan")),
    ({"max_onboard": 0}, ("max_onboard", "0", "1..8")),
    ({"max_onboard": 9}, ("max_onboard", "9", "1..8")),
    ({"max_steps": 0}, ("max_steps", "0")),
    ({"max_duration": 59.9}, ("max_duration", "59.9", "60")),
    ({"num_requests": 3, "num_agents": 4}, ("max_duration", "45", "60")),
    ({"vehicle_capacity": 0}, ("vehicle_capacity", "0")),
    ({"max_ride": 0.0}, ("max_ride", "0.0")),
    ({"service": -1.0}, ("service", "-1.0")),
    ({"side": 0.0}, ("side", "0.0")),
    ({"preset": "publishd"}, ("'publishd'", "'published'")),
    ({"preset": "published", "num_loc": 9}, ("num_loc = 9", "even")),
    ({"preset": "published", "law": "classic"}, ("law", "'classic'", "'deadlines'")),
    ({"preset": "published", "min_loc": 5.0, "max_loc": 1.0}, ("min_loc", "5.0", "max_loc", "1.0")),
    ({"preset": "published", "min_demand": 4}, ("min_demand", "4", "max_demand", "3")),
    ({"preset": "published", "min_pickup_tw": 31}, ("min_pickup_tw", "31", "max_pickup_tw", "30")),
    ({"preset": "published", "max_demand": 6}, ("max_demand", "6", "vehicle_capacity", "5")),
    (
        {"preset": "published", "speed": 1e-6, "max_loc": 1e4},
        ("speed = 1e-06", "max_loc = 10000", "1.41421e+10", "5e+08"),
    ),
    ({"preset": "published", "min_loc": -1e6, "max_loc": 1e6, "speed": 1e-3}, ("speed = 0.001", "min_loc = -1e+06")),
    ({"speed": 10**400}, ("speed", "1000000000.0")),
    ({"max_steps": 2**63}, ("max_steps", "9223372036854775808")),
    ({"preset": "published", "metric": "matrix"}, ("metric", "'matrix'", "'euclid'")),
    ({"preset": "published", "reward": "dense"}, ("reward", "'dense'", "'terminal'")),
]
CLASSIC_ONLY = {
    "style": "a",
    "max_onboard": 8,
    "side": 10.0,
    "window_width": 15,
    "open_end": 1440.0,
    "max_duration": 120.0,
    "max_ride": 30.0,
    "service": 3.0,
}
DEADLINES_ONLY = {
    "min_loc": 0.0,
    "max_loc": 100.0,
    "min_demand": 1,
    "max_demand": 3,
    "min_pickup_tw": 10,
    "max_pickup_tw": 30,
    "depot_deadline": 48,
}


@pytest.mark.parametrize(("wrong", "words"), OPTIONS)
def test_invalid_options_are_refused(wrong, words):
    """Unknown, out of range, odd, given twice, or contradicting another: the message names option and value."""
    with pytest.raises(ConfigError) as caught:
        milkrun.make(ID, 1, **wrong)
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)


@pytest.mark.parametrize(
    ("rule", "name", "value"),
    [*(("deadlines", *one) for one in CLASSIC_ONLY.items()), *(("classic", *one) for one in DEADLINES_ONLY.items())],
)
def test_options_of_the_other_rule(rule, name, value):
    """Even with their default value."""
    with pytest.raises(ConfigError, match=f"{name} = .*: no option of the rule '{rule}'"):
        DARPConfig.build(rule=rule, **{name: value})
    with pytest.raises(ConfigError, match=name):
        DARPConfig.preset("published" if rule == "deadlines" else "default").replace(**{name: value})


@pytest.mark.parametrize("impossible", [{"max_ride": 1e-6}, {"open_end": 0.0}, {"side": 1e4}])
def test_a_law_without_feasible_requests_is_refused(impossible):
    """1,000 draws that no car could serve are an error of the options, for the world and for the generator."""
    world = milkrun.make(ID, 2, **impossible)
    with pytest.raises(ConfigError, match="1,000 draws"):
        world.reset()
    with pytest.raises(ResetNeeded):
        world.step([1, 1])
    with pytest.raises(ConfigError, match="1,000 draws"):
        get_generator("darp", **impossible).generate(2, seed=1)


# -- lists of instances -----------------------------------------------------------------------------------------------


def as_mapping(instance, **changes):
    return {**{name: array[0] for name, array in instance.fields().items()}, **changes}


LISTS = [
    ([], ("at least one",)),
    ([as_mapping(darp(**TWO), dmand=[0])], ("'dmand'", "'demand'")),
    ([{"demand": [0, 1, -1]}], ("capacity",)),
    ([darp(**TWO), as_mapping(darp(**TWO), dist=np.zeros((5, 5)))], ("'dist'",)),
    ([as_mapping(darp(**TWO), demand=[0, 1, -1, 1])], ("instance 0", "demand", "(4,)")),
    ([{k: v for k, v in as_mapping(darp(**TWO)).items() if k != "max_ride_time"}], ("'max_ride_time'",)),
    ([as_mapping(darp(**TWO), demand=1)], ("demand",)),
    ([as_mapping(darp(**TWO), capacity=2)], ("capacity",)),
    ([as_mapping(darp(**TWO), locs=[[0, 0], [1, 0], [10, 0]])], ("instance 0", "demand", "(3,)")),
    ([as_mapping(darp(**TWO), service_time=[0, 0, 0])], ("service_time",)),
    ([as_mapping(darp(**TWO), max_ride_time=[50.0])], ("max_ride_time",)),
    ([as_mapping(darp(**TWO), window_open=np.zeros(7))], ("window_open",)),
    ([3], ("DARPInstance",)),
    (as_mapping(darp(**TWO)), ("DARPInstance",)),
]


@pytest.mark.parametrize(("given", "words"), LISTS)
def test_invalid_lists_of_instances_are_refused(given, words):
    """Empty lists, missing, unknown or scalar fields, or fields of another size; only the world adds padding."""
    with pytest.raises(ShapeError) as caught:
        DARP.from_instances(given)
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)


def test_padding_by_the_caller_is_refused():
    """A car without seats, a request that no car takes: the message names the row."""
    with pytest.raises(BadInstance, match=r"instance 1: vehicle 1: capacity is 0, must be at least 1"):
        DARP.from_instances([darp(**TWO), as_mapping(darp(**TWO), capacity=[2, 0])])
    with pytest.raises(BadInstance, match=r"row 1: .*request 0 .*cannot be served even alone: ride"):
        DARP.from_instances([darp(**ONE), darp(**{**ONE, "ride": 6.9})])


def test_no_row_starts_without_an_action():
    """A ride of 9 within 9 - 9e-5 from a pickup with a window of length 0: each limit is broken by less than the
    tolerance, both together by more. The instance is refused or playable, but no live row has an empty mask."""
    edge = DARPInstance(
        name="edge",
        locs=[[0, 0], [1, 0], [10, 0]],
        demand=[0, 1, -1],
        capacity=[1],
        window_open=[0, 50, 0],
        time_windows=[200, 50, 200],
        service_time=[0, 0, 0],
        max_ride_time=[9 - 9e-5],
        max_route_duration=100,
    )
    with contextlib.suppress(BadInstance):
        assert DARP.from_instances([edge]).action_mask[0].any()


@pytest.mark.parametrize("hook", ["_generate_locations", "_generate_depot"])
def test_a_generator_with_hooks_for_places_is_refused(hook):
    """This problem would not call such a hook of other generators."""
    own = type("Placing", (DARPGenerator,), {hook: lambda self, count, seed, first, episode: None})
    with pytest.raises(ConfigError, match=f"Placing has a {hook}: the laws of DARP draw places and times together"):
        own()


def test_lists_are_played_by_the_classic_rule():
    """The rule `deadlines` has no such instances; the error on an instance beyond the requested size names its size."""
    for options in ({"rule": "deadlines"}, {"preset": "published"}):
        with pytest.raises(ConfigError, match="classic"):
            DARP.from_instances([darp(**TWO)], **options)
    with pytest.raises(ShapeError, match=r"\(5, 2\).*\(3, 2\)"):
        DARP.from_instances([darp(**TWO)], num_requests=1)
    with pytest.raises(ConfigError, match="num_envs"):
        DARP.from_instances([darp(**TWO)], repeat=0)
    assert DARP.from_instances([darp(**TWO)], num_loc=10).sizes["R"] == 5


# -- actions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [SMALL, {"preset": "published"}])
def test_invalid_actions_are_refused(options):
    """Floats, booleans, too few, too many axes; and one masked action among four changes no row."""
    world = milkrun.make(ID, 4, seed=5, illegal="raise", **options)
    with pytest.raises(ResetNeeded):
        world.step([1, 1, 1, 1])
    world.reset()
    before = rows_of(world)
    for actions, words in (
        (np.ones(4), ("float64", "(4,)")),
        ([1, 1, 1], ("(3,)", "(4,)")),
        (np.ones((4, 1), int), ("(4, 1)",)),
        (np.ones(4, bool), ("bool",)),
        (["1"] * 4, ("integers",)),
    ):
        with pytest.raises(ShapeError) as caught:
            world.step(actions)
        assert not [word for word in words if word not in str(caught.value)], str(caught.value)
        assert rows_of(world) == before
    nodes = world.sizes["N"]
    for action, why in (
        (nodes, f"out of range 0..{nodes - 1}"),
        (-1, f"out of range 0..{nodes - 1}"),
        (2, "its rider is not aboard"),
        (0, "the vehicle is at the depot"),
    ):
        with pytest.raises(IllegalAction) as caught:
            world.step([1, 1, action, 1])
        assert str(caught.value) == f"row 2: action {action}: {why}" and rows_of(world) == before


def test_explain_requires_a_row_and_an_action():
    """An invalid row or a world before its reset raises a MilkrunError."""
    world = milkrun.make(ID, 2, seed=5, **SMALL)
    with pytest.raises(ResetNeeded):
        world.explain(0, 1)
    world.reset()
    for row in (2, -1):
        with pytest.raises(MilkrunError, match=f"{row}"):
            world.explain(row, 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("current_node", 7),
        ("current_agent", 2),
        ("onboard", 3),
        ("onboard", -2),
        ("tour_len", -1),
        ("current_time", math.nan),
        ("instance_row", 2),
        ("n_nodes", 9),
    ],
)
def test_saved_states_with_invalid_indices_are_refused(field, value):
    """Requests are 0..2: the message names row, field and value."""
    world = milkrun.make(ID, 2, seed=5, **SMALL)
    world.reset()
    world.step([1, 1])
    saved, before = world.state_dict(), rows_of(world)
    saved[field].reshape(2, -1)[1, 0] = value
    with pytest.raises(BadInstance) as caught:
        world.load_state_dict(saved)
    assert "row 1" in str(caught.value) and field in str(caught.value) and rows_of(world) == before
