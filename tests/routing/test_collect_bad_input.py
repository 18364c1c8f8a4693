"""Refused input of the profit and waste worlds: class of the error, place and value; the world is unchanged.

Instances have four rows of five customers; trucks hold 2, bins 1. The error on an illegal action has its reason.
"""

from __future__ import annotations

import math
import re
from contextlib import contextmanager

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadInstance, ConfigError, IllegalAction, ShapeError
from milkrun.core.registry import world_spec
from milkrun.solvers import solve
from tests.core.toys import rows_of

NAMES = ("VRPP", "CVRPP", "WCVRP", "CWCVRP", "SCWCVRP", "SDWCVRP")
B, N, T = 4, 6, 3  # rows, nodes, days
RECTANGLE = np.array([[0, 0], [3, 0], [3, 4], [0, 4]], np.float32)
WORLDS: dict = {}


def options_of(name):
    return {"num_loc": N - 1, **({"horizon": T} if name == "SDWCVRP" else {})}


def world_of(name, **options):
    """A world shared by all tests with the same options: none of them may change it."""
    key = name, *sorted(options.items())
    if key not in WORLDS:
        world = milkrun.make(f"milkrun/{name}-v0", num_envs=B, seed=5, **{**options_of(name), **options})
        world.reset()
        world.step(world.sample_actions())
        WORLDS[key] = world
    return WORLDS[key]


def fine(name, **changes):
    """A valid instance for all rows, except for the changes."""
    per_node = np.tile(np.array([0, 0.5, 1, 0.25, 0, 0.75], np.float32), (B, 1))
    good = {"locs": np.linspace(0, 1, B * N * 2).reshape(B, N, 2)}
    if name in ("VRPP", "CVRPP"):
        good["prize"] = 10 * per_node
    if name != "VRPP":
        good["capacity"] = np.full(B, 2.0)
    if name == "CVRPP":
        good["weight"] = per_node
    if name in ("WCVRP", "CWCVRP"):
        good["waste"] = per_node
    if name in NAMES[2:]:
        good["max_waste"] = np.ones(B)
    if name == "SCWCVRP":
        good |= {"expected0": per_node, "real_waste": per_node}
    if name == "SDWCVRP":
        good |= {
            "initial_waste": per_node,
            "daily_fill": np.repeat(per_node[:, None], T, axis=1),
            "fill_mean": per_node,
            "fill_std": per_node,
        }
    return {**good, **changes}


def put(name, field, at, value):
    """A valid instance with one wrong element."""
    array = np.array(fine(name)[field], float)
    array[at] = value
    return fine(name, **{field: array})


@contextmanager
def refused(world, error, *words):
    """Asserts that the block raises `error` with all the words, and that the world is unchanged to the bit."""

    def all_of_it():
        return rows_of(world), world.seed, world.num_instances, world.final_rows.tolist()

    before = all_of_it()
    with pytest.raises(error) as caught:
        yield
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"
    assert all_of_it() == before


# -- instances --------------------------------------------------------------------------------------------------------

LEVELS = [
    ("VRPP", "prize"),
    ("CVRPP", "prize"),
    ("CVRPP", "weight"),
    ("WCVRP", "waste"),
    ("CWCVRP", "waste"),
    ("SCWCVRP", "expected0"),
    ("SCWCVRP", "real_waste"),
    ("SDWCVRP", "initial_waste"),
]


@pytest.mark.parametrize("name", NAMES)
def test_valid_instances_are_played(name):
    """So every refusal below is due to its change; a bin of max_waste and a customer of 0 are valid."""
    world = milkrun.make(f"milkrun/{name}-v0", num_envs=B, seed=5, **options_of(name))
    world.reset(instance=fine(name))
    assert world.action_mask[:, 1:].any(axis=1).all()


@pytest.mark.parametrize(("name", "field"), LEVELS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.5])
def test_amounts_are_finite_and_not_negative(name, field, value):
    """NaN, infinities and negative numbers: row, field, node and value are named."""
    with refused(world_of(name), BadInstance, f"row 2: {field}[3] = {value:g}"):
        world_of(name).reset(seed=9, instance=put(name, field, (2, 3), value))


@pytest.mark.parametrize(("name", "field"), LEVELS)
def test_the_depot_holds_nothing(name, field):
    """Not even a small amount."""
    with refused(world_of(name), BadInstance, f"row 1: {field}[0] = 0.25"):
        world_of(name).reset(instance=put(name, field, (1, 0), 0.25))


@pytest.mark.parametrize(("name", "field"), LEVELS[3:])
def test_no_bin_is_more_than_full(name, field):
    """1.5 in a bin of 1, although it would fit the truck."""
    with refused(world_of(name), BadInstance, f"row 3: {field}[4] = 1.5", "max_waste"):
        world_of(name).reset(instance=put(name, field, (3, 4), 1.5))


def test_no_customer_is_heavier_than_the_truck():
    """CVRPP: 2.5 for a truck of 2."""
    with refused(world_of("CVRPP"), BadInstance, "row 0: weight[5] = 2.5", "capacity 2"):
        world_of("CVRPP").reset(instance=put("CVRPP", "weight", (0, 5), 2.5))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_coordinates_are_finite(name, value):
    """Node and axis are named."""
    with refused(world_of(name), BadInstance, f"row 1: locs[2, 1] = {value:g}", "finite"):
        world_of(name).reset(instance=put(name, "locs", (1, 2, 1), value))


@pytest.mark.parametrize(("name", "field"), LEVELS)
def test_values_beyond_float32_are_named_unrounded(name, field):
    """1e300 is refused as 1e300."""
    with refused(world_of(name), BadInstance, f"row 2: {field}[3] = 1e+300"):
        world_of(name).reset(seed=9, instance=put(name, field, (2, 3), 1e300))


@pytest.mark.parametrize(("name", "field"), LEVELS[2:])
def test_the_content_of_padding_is_ignored(name, field):
    """Nodes from n_nodes on do not exist: 9 in a bin of 1, or for a truck of 2, is allowed there."""
    world = milkrun.make(f"milkrun/{name}-v0", num_envs=B, seed=5, **options_of(name))
    world.reset(instance={**put(name, field, (2, 5), 9.0), "n_nodes": [6, 6, 5, 6]})
    assert not world.action_mask[2, 5]


@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_a_truck_has_a_capacity(name, value):
    """Above 0, in waste worlds at least one full bin."""
    with refused(world_of(name), BadInstance, f"row 2: capacity = {value:g}"):
        world_of(name).reset(instance=put(name, "capacity", (2,), value))


@pytest.mark.parametrize("name", NAMES[2:])
def test_trucks_and_bins(name):
    """A truck smaller than one bin, and bins of capacity 0."""
    with refused(world_of(name), BadInstance, "row 2: capacity = 0.75", "max_waste"):
        world_of(name).reset(instance=put(name, "capacity", (2,), 0.75))
    for value in (0.0, -1.0, math.nan, math.inf):
        with refused(world_of(name), BadInstance, f"row 1: max_waste = {value:g}"):
            world_of(name).reset(instance=put(name, "max_waste", (1,), value))


@pytest.mark.parametrize(("field", "at"), [("daily_fill", (2, 1, 3)), ("fill_mean", (2, 3)), ("fill_std", (2, 3))])
@pytest.mark.parametrize("value", [math.nan, math.inf, -0.5])
def test_days_are_finite_and_not_negative(field, at, value):
    """SDWCVRP names the day and the node."""
    place = str(list(at[1:]))
    with refused(world_of("SDWCVRP"), BadInstance, f"row 2: {field}{place} = {value:g}"):
        world_of("SDWCVRP").reset(instance=put("SDWCVRP", field, at, value))


def test_sensor_noise_is_finite_and_not_negative():
    """In a world with a noisy sensor."""
    world = world_of("SDWCVRP", sensor_sigma=0.2)
    for value in (math.nan, math.inf, -1.0):
        noise = np.ones((B, T, N))
        noise[3, 2, 1] = value
        with refused(world, BadInstance, f"row 3: sensor_noise[2, 1] = {value:g}"):
            world.reset(instance=fine("SDWCVRP", sensor_noise=noise))


FLAGS = np.zeros((B, N), bool)
FLAGS[2, 0] = True


@pytest.mark.parametrize("name", NAMES)
def test_fields_of_all_worlds(name):
    """Limits, sizes, owners, a mandatory depot."""
    world = world_of(name)
    cases = [
        ({"max_length": [9.0, -1.0, 9.0, 9.0]}, BadInstance, ("row 1: max_length = -1",)),
        ({"max_length": [9.0, 9.0, math.nan, 9.0]}, BadInstance, ("row 2: max_length = nan",)),
        ({"n_nodes": [6, 6, 1, 6]}, BadInstance, ("row 2: n_nodes = 1", ">= 2")),
        ({"n_nodes": [6, 7, 6, 6]}, BadInstance, ("row 1: n_nodes = 7", "<= 6")),
        ({"instance_row": [0, 1, 2, 4]}, BadInstance, ("row 3: instance_row = 4", "0..3")),
        ({"instance_row": [0, -1, 2, 3]}, BadInstance, ("row 1: instance_row = -1",)),
        ({"locs": np.zeros((B, N - 1, 2))}, ShapeError, ("locs", "(4, 6, 2)", "(4, 5, 2)")),
        ({"locs": np.zeros((B, N, 2), complex)}, ShapeError, ("locs", "complex")),
        ({"wate": np.zeros((B, N))}, ShapeError, ("'wate'",)),
        ({"dist": np.zeros((B, N, N))}, ShapeError, ("'dist'",)),
    ]
    if name != "SDWCVRP":
        cases.append(({"must_go": FLAGS}, BadInstance, ("row 2: must_go[0] = ",)))
        cases.append(({"must_go": np.zeros((B, N - 1), bool)}, ShapeError, ("must_go", "(4, 6)")))
    for wrong, error, words in cases:
        with refused(world, error, *words):
            world.reset(seed=77, instance=fine(name, **wrong))


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("VRPP", "prize"),
        ("CVRPP", "prize"),
        ("WCVRP", "waste"),
        ("CWCVRP", "waste"),
        ("SCWCVRP", "expected0"),
        ("SCWCVRP", "real_waste"),
        ("SDWCVRP", "initial_waste"),
        ("SDWCVRP", "daily_fill"),
    ],
)
def test_required_fields_may_not_be_left_out(name, field):
    """The message names the missing field."""
    with refused(world_of(name), ShapeError, repr(field)):
        world_of(name).reset(instance={k: v for k, v in fine(name).items() if k != field})


@pytest.mark.parametrize("name", NAMES)
def test_invalid_matrices_are_refused(name):
    """Non-zero diagonal, negative, NaN, not square."""
    world = world_of(name, metric="matrix")
    for at, value, words in (
        ((1, 3, 3), 5.0, ("row 1: dist[3", "diagonal")),
        ((2, 0, 4), -5.0, ("row 2: dist[0, 4] = -5",)),
        ((3, 1, 2), math.nan, ("row 3: dist[1, 2] = nan",)),
        ((0, 1, 2), math.inf, ("row 0: dist[1, 2] = inf",)),
    ):
        dist = np.ones((B, N, N)) - np.eye(N)
        dist[at] = value
        with refused(world, BadInstance, *words):
            world.reset(instance=fine(name, dist=dist))
    with refused(world, ShapeError, "dist", "(4, 6, 6)", "(4, 6, 5)"):
        world.reset(instance=fine(name, dist=np.zeros((B, N, N - 1))))


@pytest.mark.parametrize("name", ["VRPP", "CVRPP"])
def test_invalid_windows_are_refused(name):
    """Closing before opening, NaN, a negative service time, a speed of 0; reach does not matter here."""
    world = world_of(name, time_windows=True)
    windows = np.tile(np.array([0.0, 2.0]), (B, N, 1))
    good = fine(
        name, time_windows=windows, service_time=np.full((B, N), 0.1) * (np.arange(N) > 0), speed=np.ones((B, 1))
    )
    late = windows.copy()
    late[2, 3] = [1.5, 1.25]
    with refused(world, BadInstance, "row 2: time_windows[3", "1.25", "closes before it opens"):
        world.reset(instance={**good, "time_windows": late})
    late[2, 3] = [math.nan, 1]
    with refused(world, BadInstance, "row 2: time_windows[3, 0] = nan"):
        world.reset(instance={**good, "time_windows": late})
    service = good["service_time"].copy()
    service[1, 4] = -0.5
    with refused(world, BadInstance, "row 1: service_time[4] = -0.5"):
        world.reset(instance={**good, "service_time": service})
    for speed in (0.0, -1.0, math.nan):
        with refused(world, BadInstance, "row 3: speed", f"{speed:g}"):
            world.reset(instance={**good, "speed": np.array([[1], [1], [1], [speed]])})


@pytest.mark.parametrize("name", NAMES)
def test_a_customer_out_of_reach_is_no_fault(name):
    """These worlds need not visit all: with a limit below every round trip only the depot is allowed."""
    world = milkrun.make(f"milkrun/{name}-v0", num_envs=B, seed=5, **options_of(name))
    world.reset(instance=fine(name, max_length=np.full(B, 1e-4)))
    assert (world.action_mask == (np.arange(N) == 0)).all()


# -- configurations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [
        ("VRPP", {"prise_weight": 1.0}, ("'prise_weight'", "prize_weight")),
        ("WCVRP", {"prize_weight": 1.0}, ("'prize_weight'",)),
        ("VRPP", {"overflow_weight": 1.0}, ("'overflow_weight'",)),
        ("VRPP", {"capacity": 5.0}, ("'capacity'",)),
        ("CWCVRP", {"horizon": 3}, ("'horizon'",)),
        ("WCVRP", {"recourse": "return"}, ("'recourse'",)),
        ("WCVRP", {"time_windows": True}, ("'time_windows'",)),
        ("VRPP", {"num_loc": 0}, ("num_loc", "0")),
        ("SDWCVRP", {"num_loc": 10_001}, ("num_loc", "10001")),
        ("CVRPP", {"capacity": 99.0}, ("capacity", "99", "100")),
        ("CVRPP", {"vehicle_cap": 99.0}, ("capacity", "99", "100")),
        ("CVRPP", {"weight_law": "units", "capacity": 8.0}, ("capacity", "8", "9")),
        ("CVRPP", {"weight_law": "one", "capacity": 0.5}, ("capacity", "0.5", "1")),
        ("WCVRP", {"capacity": 0.5}, ("capacity", "0.5", "max_waste")),
        ("SDWCVRP", {"max_waste": 100.0, "capacity": 99.0}, ("capacity", "99", "max_waste")),
        ("SCWCVRP", {"max_waste": 0.0}, ("max_waste", "0")),
        ("WCVRP", {"trips": "many"}, ("trips", "many", "single", "multi")),
        ("WCVRP", {"fill_distribution": "gama"}, ("fill_distribution", "gama")),
        ("WCVRP", {"fill_days": 0}, ("fill_days", "0")),
        ("WCVRP", {"must_go": "lookahead"}, ("must_go", "lookahead")),
        ("CWCVRP", {"must_go": "service_level"}, ("must_go", "service_level")),
        ("SCWCVRP", {"must_go_rate": 1.5}, ("must_go_rate", "1.5")),
        ("SCWCVRP", {"noise_distribution": "normal"}, ("noise_distribution", "normal")),
        ("SCWCVRP", {"sigma": -0.1}, ("sigma", "-0.1")),
        ("SCWCVRP", {"recourse": "wait"}, ("recourse", "wait", "round_trip")),
        ("SDWCVRP", {"horizon": 0}, ("horizon", "0")),
        ("SDWCVRP", {"sensor_sigma": -1.0}, ("sensor_sigma", "-1")),
        ("VRPP", {"prize_distribution": "unif"}, ("prize_distribution", "unif")),
        ("VRPP", {"min_prize": 9, "max_prize": 3}, ("min_prize", "9", "3")),
        ("CVRPP", {"weight_law": "two"}, ("weight_law", "two")),
        ("VRPP", {"max_length": -1.0}, ("max_length", "-1")),
        ("VRPP", {"max_length": math.nan}, ("max_length", "nan")),
        ("CVRPP", {"length_weight": math.nan}, ("length_weight", "nan")),
        ("WCVRP", {"depot_type": "centre"}, ("depot_type", "centre")),
        ("WCVRP", {"min_loc": 1.0, "max_loc": 1.0}, ("min_loc", "max_loc")),
        ("WCVRP", {"map_name": "synthetic-town", "loc_distribution": "normal"}, ("map_name", "loc_distribution")),
        ("WCVRP", {"reward": "sparse"}, ("reward", "sparse")),
        ("WCVRP", {"preset": "cf95"}, ("cf95",)),
    ],
)
def test_invalid_configurations_are_refused(name, wrong, words):
    """Keys of other worlds, unknown laws, numbers out of bounds, trucks too small: the message has key and value."""
    with pytest.raises(ConfigError) as caught:
        milkrun.make(f"milkrun/{name}-v0", num_envs=1, **wrong)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("VRPP", "prize_weight"),
        ("CVRPP", "length_weight"),
        ("WCVRP", "waste_weight"),
        ("CWCVRP", "overflow_weight"),
        ("SCWCVRP", "failure_weight"),
        ("SDWCVRP", "lost_weight"),
    ],
)
def test_weights_are_finite(name, weight):
    """An infinite price times 0 is NaN."""
    with pytest.raises(ConfigError, match=f"{weight} = inf"):
        milkrun.make(f"milkrun/{name}-v0", num_envs=1, **{weight: math.inf})


# -- actions ----------------------------------------------------------------------------------------------------------

ONLY_3 = [False, False, False, True]
BINS = {"waste": [0, 0.5, 1, 0.3], "max_waste": 1.0}
PRIZES = {"prize": [0, 10, 10, 1]}
HELD = {"expected0": [0, 0.5, 0.5, 0.3], "real_waste": [0, 0.5, 0.7, 0.3], "max_waste": 1.0, "capacity": 1.0}
WEEK = {
    "initial_waste": [0, 0.5, 1, 0.3],
    "daily_fill": [[0, 0.1, 0, 0]] * 2,
    "fill_mean": [0] * 4,
    "fill_std": [0] * 4,
    "max_waste": 1.0,
    "capacity": 1.0,
}
TIMES = {"time_windows": [[0, 20], [0, 20], [0, 6], [0, 20]], "service_time": [0, 1, 1, 1], "speed": [1.0]}

# world, options, instance, played actions, the illegal one, its reason
REASONS = {
    "visited": ("VRPP", {}, PRIZES, (1,), 1, "visited"),
    "visited bin": ("WCVRP", {}, {**BINS, "capacity": 1.6}, (2,), 2, "visited"),
    "visited today": ("SDWCVRP", {"horizon": 2}, WEEK, (1,), 1, "visited"),
    "too heavy": ("CVRPP", {}, {**PRIZES, "weight": [0, 10, 10, 1], "capacity": 15}, (1,), 2, "over capacity"),
    "too full": ("CWCVRP", {}, {**BINS, "capacity": 1.0}, (1,), 2, "over capacity"),
    "too full as expected": ("SCWCVRP", {}, {**HELD, "expected0": [0, 0.5, 0.6, 0.3]}, (1,), 2, "over capacity"),
    "too full as measured": ("SDWCVRP", {"horizon": 2}, WEEK, (1,), 2, "over capacity"),
    "crowding out": ("WCVRP", {}, {**BINS, "capacity": 1.6, "must_go": ONLY_3}, (1,), 2, "over capacity"),
    "too long": ("VRPP", {}, {**PRIZES, "max_length": 11}, (1,), 2, "too long"),
    "too long at once": ("SCWCVRP", {}, {**HELD, "max_length": 9}, (), 2, "too long"),
    "must-go": ("VRPP", {}, {**PRIZES, "must_go": ONLY_3}, (1,), 0, "depot closed by must-go 3"),
    "must-go at the start": (
        "WCVRP",
        {},
        {**BINS, "capacity": 1.6, "must_go": ONLY_3},
        (),
        0,
        "depot closed by must-go 3",
    ),
    "must-go at the depot": (
        "CWCVRP",
        {},
        {**BINS, "capacity": 1.0, "must_go": ONLY_3},
        (1, 0),
        0,
        "depot closed by must-go 3",
    ),
    "must-go of the morning": ("SDWCVRP", {"horizon": 2, "must_go": "level"}, WEEK, (), 0, "depot closed by must-go 2"),
    "too late": ("VRPP", {"time_windows": True}, {**PRIZES, **TIMES}, (1,), 2, "too late"),
    "too late home": (
        "CVRPP",
        {"time_windows": True},
        {
            **PRIZES,
            **TIMES,
            "weight": [0, 1, 1, 1],
            "capacity": 9,
            "time_windows": [[0, 12], [0, 20], [0, 20], [0, 20]],
        },
        (1,),
        2,
        "too late",
    ),
    "no such node": ("VRPP", {}, PRIZES, (), 4, "out of range 0..3"),
    "below the depot": ("SDWCVRP", {"horizon": 2}, WEEK, (), -1, "out of range 0..3"),
    "padding": ("CWCVRP", {}, {**BINS, "capacity": 1.0, "n_nodes": 3}, (), 3, "out of range 0..2"),
}


def one_row(fields):
    kinds = {"must_go": np.bool_, "n_nodes": np.int32}
    return {
        key: np.asarray(value, kinds.get(key, np.float32))[None] for key, value in {"locs": RECTANGLE, **fields}.items()
    }


@pytest.mark.parametrize("case", REASONS)
def test_an_illegal_action_raises_with_its_reason(case):
    """illegal="raise" names row, action and reason and changes nothing; noop only counts the step."""
    name, options, fields, played, action, reason = REASONS[case]
    for rule in ("raise", "noop"):
        world = milkrun.make(
            f"milkrun/{name}-v0",
            num_envs=1,
            num_loc=3,
            illegal=rule,
            autoreset="disabled",
            **{"length_weight": 1.0, **options},
        )
        world.reset(instance=one_row(fields))
        for step in played:
            world.step([step])
        if rule == "raise":
            with refused(world, IllegalAction, f"row 0: action {action}: {reason}"):
                world.step([action])
            continue
        before = world.state_dict()
        world.step([action])
        after = world.state_dict()
        changed = {key for key in before if not np.array_equal(before[key], after[key])}
        assert changed <= {"i", "reward", "illegal"} and {"i", "illegal"} <= changed
        assert world.i[0] == len(played) + 1 and world.reward[0] == 0 and world.illegal[0]


KM = {"locs": [[0, 0], [3, 0], [3, 4], [0, 4]]}
OWN = {
    "VRPP": {**KM, "prize": [0, 9, 9, 9]},
    "CVRPP": {**KM, "prize": [0, 9, 9, 9], "weight": [0, 1, 1, 1]},
    "WCVRP": {**KM, "waste": [0, 0.9, 0.9, 0.9]},
    "CWCVRP": {**KM, "waste": [0, 0.9, 0.9, 0.9]},
    "SCWCVRP": {**KM, "expected0": [0, 0.9, 0.9, 0.9], "real_waste": [0, 0.9, 0.9, 0.9]},
    "SDWCVRP": {
        **KM,
        "initial_waste": [0, 0.9, 0.9, 0.9],
        "daily_fill": np.zeros((7, 4)),
        "fill_mean": np.zeros(4),
        "fill_std": np.zeros(4),
    },
}
"""A rectangle of 3 km by 4."""


@pytest.mark.parametrize("name", OWN)
def test_places_in_another_unit_have_no_automatic_weight(name):
    """The error names the options; with the price of a kilometre, or the box of the places, the instance is played."""
    world = world_spec(f"milkrun/{name}-v0").load()
    own = {key: np.asarray(value, np.float32) for key, value in OWN[name].items()}
    rule = (
        r"from the depot it is more than twice the side of the box of min_loc = 0 and max_loc = 1, by which "
        "length_weight = 'auto' is set; give length_weight"
    )
    with pytest.raises(BadInstance, match=rf"row 0: locs\[1, 0\] = 3\.0: {rule}"):
        world.from_instances([own])
    assert world.from_instances([own], length_weight=1.0).beta == 1.0
    assert world.from_instances([own], max_loc=4.0).beta == pytest.approx(world.Config(num_loc=3, max_loc=4.0).beta)
    roads = {**own, "dist": np.float32(3) * (1 - np.eye(4, dtype=np.float32))}
    with pytest.raises(BadInstance, match=r"row 0: dist\[0, 1\] = 3\.0: more than twice .* give length_weight"):
        world.from_instances([roads])
    world.from_instances([roads], length_weight=1.0)


@pytest.mark.parametrize("name", ["VRPP", "CVRPP", "WCVRP", "CWCVRP"])
def test_solvers_also_require_the_price_of_a_kilometre(name):
    """`solve` takes the same arrays, in a batch, and the same option."""
    own = {key: np.asarray(value, np.float32)[None] for key, value in OWN[name].items()}
    with pytest.raises(BadInstance, match="give length_weight"):
        solve(name, own, "ls")
    assert np.isfinite(solve(name, own, "ls", length_weight=1.0).cost).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("field", ["locs", "dist"])
def test_lengths_beyond_the_range_of_rewards_are_refused(name, field):
    """1e38 fits single precision, but the reward of such a leg does not."""
    world = world_of(name, **({"metric": "matrix"} if field == "dist" else {}), length_weight=1.0)
    far = np.full((B, N, 2) if field == "locs" else (B, N, N), 1e38, np.float32)
    if field == "dist":
        far *= 1 - np.eye(N, dtype=np.float32)
    with refused(world, BadInstance, f"row 0: {field}[0", "too large; at most 1e+30 is allowed"):
        world.reset(instance=fine(name, **{field: far}))


@pytest.mark.parametrize(
    ("name", "field", "options"),
    [
        ("VRPP", "prize", {"prize_weight": 1e10}),
        ("CVRPP", "prize", {"prize_weight": 1e10}),
        ("SDWCVRP", "daily_fill", {"lost_weight": 1e10}),
        ("VRPP", "locs", {"length_weight": 1e10}),
        ("WCVRP", "locs", {"length_weight": 1e10}),
    ],
)
def test_prices_beyond_the_range_of_rewards_are_refused(name, field, options):
    """1e30 units at 1e10 each are 1e40."""
    (weight,) = options
    world = world_of(name, **{"length_weight": 1.0, **options})
    instance = fine(name)
    instance[field] = np.where(instance[field] != 0, np.float32(1e30), instance[field])
    with refused(world, BadInstance, f"row 0: {field}", f"no finite reward under {weight}"):
        world.reset(instance=instance)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("VRPP", {"prize_weight": 1e30}, "prize_weight = 1e+30 times the largest prize is 1e+32"),
        ("WCVRP", {"waste_weight": 1e25, "max_waste": 1e9}, "length_weight = "),
        (
            "CWCVRP",
            {"waste_weight": 1e25, "max_waste": 1e9, "length_weight": 1},
            "waste_weight = 1e+25 times max_waste",
        ),
        ("SDWCVRP", {"lost_weight": 1e25, "max_waste": 1e9}, "lost_weight = 1e+25 times max_waste is 1e+34"),
        ("VRPP", {"length_weight": 1e20, "max_loc": 1e20}, "length_weight = 1e+20 times a leg of 1e+20 is 1e+40"),
        ("VRPP", {"max_loc": 5e-324}, "length_weight = inf times a leg of "),
    ],
)
def test_options_beyond_the_range_of_rewards_are_refused(name, options, said):
    """Before any instance is drawn."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        milkrun.make(f"milkrun/{name}-v0", **options)


@pytest.mark.parametrize("name", NAMES)
def test_every_masked_action_has_a_reason_of_the_list(name):
    """Along random plays; the error names the first row at fault and no row changes."""
    reasons = ("visited", "over capacity", "too long", "depot closed by must-go", "out of range")
    world = milkrun.make(
        f"milkrun/{name}-v0", num_envs=B, seed=3, num_loc=8, illegal="raise", max_length=2.0, autoreset="disabled"
    )
    world.reset()
    seen = 0
    for turn in range(12):
        rows = np.flatnonzero(~world.terminated)
        actions = world.sample_actions(1, turn)
        for b in rows:
            for closed in (*np.flatnonzero(~world.action_mask[b]), -1, 9, 2**40):
                before = rows_of(world)
                with pytest.raises(IllegalAction, match=f"row {b}: action {closed}: ({'|'.join(reasons)})"):
                    world.step(np.where(np.arange(B) == b, closed, actions)[rows], rows=rows)
                assert rows_of(world) == before
                seen += 1
        world.step(actions[rows], rows=rows)
    assert seen > 50


def test_a_count_of_actions_above_the_length_of_the_record_is_accepted():
    """A loaded state may have a higher count; the record itself is not longer."""
    world = world_of("SDWCVRP")
    world.reset(seed=1)
    saved = world.state_dict()
    saved["tour_len"][:] = world.tour.shape[2] + 40
    world.load_state_dict(saved)
    assert world.solution().shape == world.tour.shape
