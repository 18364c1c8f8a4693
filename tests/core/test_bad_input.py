"""Bad input raises an error of the library that names place and value, and the world keeps every bit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import milkrun
from milkrun.core.errors import BadInstance, ConfigError, IllegalAction, MilkrunError, ResetNeeded, ShapeError
from milkrun.core.instances import check_rows
from milkrun.core.world import World
from milkrun.routing.cvrp import CVRP
from milkrun.routing.generators import get_generator
from tests.core.toys import Convoy, Glider, rows_of

B, N, TRUCK = 4, 6, 12  # rows, nodes and capacity of the worlds here
fuzz = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def cvrp(**options: Any) -> CVRP:
    world = milkrun.make("milkrun/CVRP-v0", num_envs=B, seed=5, **{"num_loc": N - 1, "capacity": TRUCK, **options})
    world.reset()
    world.step(world.sample_actions())
    return world


def fine(**changes: Any) -> dict[str, Any]:
    """A valid instance for all rows, with these changes."""
    good = {
        "locs": np.linspace(0, 1, B * N * 2).reshape(B, N, 2),
        "demand_units": np.array([[0, 1, 2, 3, 4, 5]] * B),
        "capacity": np.full(B, TRUCK),
    }
    return {**good, **changes}


def put(name: str, at: tuple[int, ...], value: Any) -> dict[str, Any]:
    """A valid instance with one wrong element."""
    array = np.array(fine()[name], dtype=float if isinstance(value, float) else None)
    array[at] = value
    return fine(**{name: array})


@contextmanager
def refused(world: World, error: type[Exception], *words: str) -> Iterator[None]:
    """The block raises `error`, whose text holds all the words, and the world is what it was, to the bit, in place."""

    def all_of_it() -> Any:
        held = {name: id(getattr(world, name)) for name, f in world.fields.items() if f.per_row}
        return rows_of(world), held, world.seed, world.num_instances, world.final_rows.tolist()

    before = all_of_it()
    with pytest.raises(error) as caught:
        yield
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"
    assert all_of_it() == before


@pytest.fixture(scope="module")
def world() -> CVRP:
    """One world for all tests here; none of them may change it."""
    return cvrp()


@pytest.fixture(scope="module")
def strict() -> CVRP:
    return cvrp(illegal="raise")


rows = st.integers(0, B - 1)
nodes = st.integers(0, N - 1)
customers = st.integers(1, N - 1)

# -- values of an instance -------------------------------------------------------------------------------------------


@fuzz
@given(rows, nodes, st.integers(0, 1), st.sampled_from([math.nan, math.inf, -math.inf, 1e300]))
def test_coordinates_are_finite(world, row, node, axis, value):
    """NaN, infinities and what float32 cannot hold: row, node, axis and value are named."""
    with refused(world, BadInstance, f"row {row}: locs[{node}, {axis}] = ", "finite"):
        world.reset(instance=put("locs", (row, node, axis), value))


@fuzz
@given(rows, customers, st.integers(-(2**62), 0) | st.integers(TRUCK + 1, 2**62))
def test_demand_is_between_1_and_the_capacity(world, row, node, value):
    """Negative, zero, over the truck's capacity or beyond int32."""
    with refused(world, BadInstance, f"row {row}: demand_units[{node}] = {value}"):
        world.reset(seed=9, instance=put("demand_units", (row, node), value))


@fuzz
@given(rows, st.integers(-100, 100).filter(bool))
def test_the_depot_demands_nothing(world, row, value):
    """A non-zero entry 0 is refused by row."""
    with refused(world, BadInstance, f"row {row}: demand_units[0] = {value}"):
        world.reset(instance=put("demand_units", (row, 0), value))


TABLE: dict[str, tuple[dict[str, Any], type[Exception], tuple[str, ...]]] = {
    "capacity 0": (put("capacity", (2,), 0), BadInstance, ("row 2: capacity = 0", ">= 1")),
    "capacity beyond int32": (put("capacity", (1,), 2**40), BadInstance, (f"row 1: capacity = {2**40}", "int32")),
    "n_nodes 1": (fine(n_nodes=[6, 6, 1, 6]), BadInstance, ("row 2: n_nodes = 1", ">= 2")),
    "n_nodes 7": (fine(n_nodes=[6, 7, 6, 6]), BadInstance, ("row 1: n_nodes = 7", "<= 6")),
    "instance_row 4": (fine(instance_row=[0, 1, 2, 4]), BadInstance, ("row 3: instance_row = 4", "0..3")),
    "instance_row -1": (fine(instance_row=[0, -1, 2, 3]), BadInstance, ("row 1: instance_row = -1",)),
    "unreachable": (fine(max_length=np.full(B, 0.1)), BadInstance, ("row 0: customer", "max_length")),
    "negative limit": (fine(max_length=[1e9, -1.0, 1e9, 1e9]), BadInstance, ("row 1: max_length = -1",)),
    "NaN limit": (fine(max_length=[1e9, 1e9, math.nan, 1e9]), BadInstance, ("row 2: max_length = nan",)),
    "no capacity": ({k: v for k, v in fine().items() if k != "capacity"}, ShapeError, ("'capacity'",)),
    "unknown key": (fine(demands=np.ones(B)), ShapeError, ("'demands'", "did you mean 'demand_units'")),
    "matrix without the metric": (fine(dist=np.zeros((B, N, N))), ShapeError, ("'dist'",)),
    "empty": ({}, ShapeError, ("locs",)),
    "instance_row only": ({"instance_row": [0] * B}, ShapeError, ("locs",)),
    "a list": ([1, 2], ShapeError, ("mapping",)),
    "a number": (3, ShapeError, ("mapping",)),
    "three rows": ({k: v[:3] for k, v in fine().items()}, ShapeError, ("locs", "(4, 6, 2)", "(3, 6, 2)")),
    "five nodes": (fine(locs=np.zeros((B, 5, 2))), ShapeError, ("locs", "(4, 6, 2)")),
    "capacity a number": (fine(capacity=TRUCK), ShapeError, ("capacity",)),
    "n_nodes a number": (fine(n_nodes=6), ShapeError, ("n_nodes",)),
    "float demand": (fine(demand_units=np.ones((B, N))), ShapeError, ("demand_units", "float64")),
    "bool demand": (fine(demand_units=np.ones((B, N), bool)), ShapeError, ("demand_units", "bool")),
    "complex places": (fine(locs=np.zeros((B, N, 2), complex)), ShapeError, ("locs", "complex")),
    "places as text": (fine(locs=np.zeros((B, N, 2)).astype(str)), ShapeError, ("locs",)),
    "ragged places": (fine(locs=[[1], [2, 3]]), ShapeError, ("locs",)),
    "ragged owners": (fine(instance_row=[[0], [1, 2]]), ShapeError, ("instance_row",)),
    "float owners": (fine(instance_row=[0.0, 1.0, 2.0, 3.0]), ShapeError, ("instance_row", "float64")),
    "three owners": (fine(instance_row=[0, 1, 2]), ShapeError, ("instance_row", "4 integers")),
    "scalar, then owners": ({"capacity": 12, **fine(capacity=12, instance_row=[0] * B)}, ShapeError, ("capacity",)),
    "depot, no places": ({"depot": np.zeros((B, 2))}, ShapeError, ("locs",)),
    "depot flat": (fine(depot=np.zeros(B)), ShapeError, ("depot",)),
    "depot of three rows": (fine(depot=np.zeros((3, 2))), ShapeError, ("depot",)),
    "depot, flat demand": (
        fine(depot=np.zeros((B, 2)), locs=np.zeros((B, 5, 2)), demand_units=np.ones(B, int)),
        ShapeError,
        ("demand_units",),
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_invalid_instances_are_refused(world, case):
    """Each with the error class of the spec and with row, field and value, or key and shape, in the text."""
    instance, error, words = TABLE[case]
    with refused(world, error, *words):
        world.reset(seed=77, instance=instance)


@fuzz
@given(
    st.sampled_from(["locs", "demand_units", "capacity", "n_nodes", "max_length", "instance_row", "depot"]),
    arrays.arrays(
        st.sampled_from([np.int64, np.int8, np.uint64, np.float32, np.float64, np.bool_, np.complex64, "U2", object]),
        arrays.array_shapes(min_dims=0, max_dims=3, max_side=6),
    ),
)
@example("depot", np.zeros((B, 2)))
def test_any_array_for_any_field(world, name, array):
    """Whatever is given, it is played within its bounds or refused by an error of ours, with nothing changed."""
    before = rows_of(world)
    saved = world.state_dict()
    try:
        world.reset(instance=fine(**{name: array}))
    except (BadInstance, ShapeError):
        assert rows_of(world) == before
    else:
        assert np.isfinite(world.locs).all() and (world.demand_units <= TRUCK).all()
        world.load_state_dict(saved)


MATRIX = np.ones((B, N, N)) - np.eye(N)


def test_invalid_matrices_are_refused():
    """Non-zero diagonal, negative, NaN, infinite, not square, of another size; asymmetric is fine."""
    world = cvrp(metric="matrix")
    cases: list[tuple[Any, type[Exception], tuple[str, ...]]] = [
        ((1, 3, 3), BadInstance, ("row 1: dist[3", "diagonal")),
        ((2, 0, 4), BadInstance, ("row 2: dist[0, 4] = -5", ">= 0")),
    ]
    for at, error, words in cases:
        wrong = MATRIX.copy()
        wrong[at] = -5.0 if "-5" in words[0] else 5.0
        with refused(world, error, *words):
            world.reset(instance=fine(dist=wrong))
    for value in (math.nan, math.inf):
        wrong = MATRIX.copy()
        wrong[3, 1, 2] = value
        with refused(world, BadInstance, f"row 3: dist[1, 2] = {value}"):
            world.reset(instance=fine(dist_matrix=wrong))
    for shape in ((B, N, N - 1), (B, N - 1, N - 1), (N, N), (B, N * N)):
        with refused(world, ShapeError, "dist", str((B, N, N)), str(shape)):
            world.reset(instance=fine(dist=np.zeros(shape)))
    lopsided = MATRIX.copy()
    lopsided[:, 0, 1] = 9.0
    world.reset(instance=fine(dist=lopsided))
    world.step([1] * B)
    assert world.reward.tolist() == [-9] * B


GOOD = {"locs": np.zeros((3, 2)), "demand_units": np.array([0, 1, 1]), "capacity": 5}


@pytest.mark.parametrize(
    ("instances", "words"),
    [
        ([], "at least one"),
        ([3], "mapping"),
        ([{**GOOD, "wieght": 1}], "wieght"),
        ([GOOD, {k: v for k, v in GOOD.items() if k != "capacity"}], "capacity"),
        ([{k: v for k, v in GOOD.items() if k != "locs"}], "locs"),
        ([{**GOOD, "locs": np.zeros((9, 2))}], "demand_units"),
        ([{**GOOD, "capacity": -1}], "capacity"),
    ],
)
def test_invalid_lists_of_instances_are_refused(instances, words):
    """from_instances names the field that is missing, unknown or wrong."""
    with pytest.raises((ShapeError, BadInstance), match=words):
        CVRP.from_instances(instances)


# -- rows and seeds --------------------------------------------------------------------------------------------------


@fuzz
@given(st.lists(st.integers(-2, B + 1), max_size=6))
def test_rows_are_unique_and_exist(listed):
    """Any list of distinct existing rows is accepted; any other is refused and names the row or the repetition."""
    world = cvrp()
    outside = [r for r in listed if not 0 <= r < B]
    if not outside and len(set(listed)) == len(listed):
        world.reset(rows=listed)
        assert (world.i == 0).sum() == len(listed)
        return
    with refused(world, ShapeError, f"rows: {outside[0]} is not in 0..3" if outside else "twice"):
        world.reset(rows=listed)
    with refused(world, ShapeError):
        world.step(np.zeros(len(listed), int), rows=listed)
    with refused(world, ShapeError):
        world.state_dict(listed)


@pytest.mark.parametrize(
    "wrong", [2, "ab", [0.0], [None], [[0, 1]], [[0], [1, 2]], [True], np.ones(B + 1, bool), np.ones((B, 1), bool), {1}]
)
def test_invalid_lists_of_rows_are_refused(world, wrong):
    """Numbers, text, floats, nested or ragged lists, bools of another length."""
    for use in (world.reset, world.state_dict):
        with refused(world, ShapeError, "rows"):
            use(rows=wrong)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "7", True, None, math.nan, b"7", {3}])
def test_seeds_are_63_bit_integers(world, seed):
    """Alone (None alone means no seed) and in a list."""
    if seed is not None:
        with refused(world, ConfigError, "seed", "2**63-1"):
            world.reset(seed=seed)
    with refused(world, ConfigError, "seed", "2**63-1"):
        world.reset(seed=[1, 2, seed, 3])


@pytest.mark.parametrize("seeds", [[1, 2, 3], [1] * 5, [], [[1, 2], [3, 4]], [[1], [2, 3], 4, 5]])
def test_one_seed_a_row(world, seeds):
    """Lists of another length or depth."""
    with refused(world, MilkrunError, "seed"):
        world.reset(seed=seeds)
    with refused(world, ShapeError, "2 seeds for 1 rows"):
        world.reset(rows=[1], seed=[1, 2])


# -- actions ---------------------------------------------------------------------------------------------------------


@fuzz
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-1, N), min_size=B, max_size=B))
@example([-1, N, 2**40, -(2**63)])
def test_any_integer_is_legal_by_the_mask_or_illegal(strict, actions):
    """Exactly what the mask forbids, or is not in it, is flagged or raised; the first such row is named."""
    world = cvrp()
    bad = [not (0 <= a < N and world.action_mask[b, a]) for b, a in enumerate(actions)]
    if any(bad):
        first = bad.index(True)
        with refused(strict, IllegalAction, f"row {first}: action {actions[first]}: "):
            strict.step(actions)
    world.step(actions)
    assert world.illegal.tolist() == bad


@fuzz
@given(
    arrays.arrays(
        st.sampled_from([np.int64, np.int8, np.uint64, np.bool_, np.float32, np.complex64, "U2", "M8[s]", object]),
        arrays.array_shapes(min_dims=0, max_dims=2, max_side=5) | st.just((B,)),
    )
)
def test_actions_are_integers_one_a_row(actions):
    """Any array of integers of shape (B,) is stepped; bools, floats, text or another shape are refused."""
    world = cvrp()
    if actions.dtype.kind in "iu" and actions.shape == (B,):
        world.step(actions)
        return
    with refused(world, ShapeError, "actions must be integers of shape (4,)", str(actions.shape)):
        world.step(actions)


@pytest.mark.parametrize("actions", [None, 3, [1, 2], [[1], [2, 3]], [True] * B, [1.0] * B, ["a"] * B, [2**70] * B])
def test_invalid_lists_of_actions_are_refused(world, actions):
    """Lists are read like arrays."""
    with refused(world, ShapeError, "actions"):
        world.step(actions)


def test_numbers_are_given_as_numbers():
    """A box takes floats of its shape: integers, bools and other shapes are refused."""
    world = Glider(2, seed=1)
    world.reset()
    for wrong in (np.zeros((2, 2), int), np.zeros((2, 2), bool), np.zeros(2), np.zeros((2, 3)), np.zeros((1, 2))):
        with refused(world, ShapeError, "actions must be floats of shape (2, 2)"):
            world.step(wrong)


def test_raise_gives_the_reason_of_an_illegal_action():
    """Visited, over capacity, too long, out of range, the depot: under "raise" the error gives the reason."""
    world = CVRP(1, CVRP.Config(num_loc=3, capacity=10, max_length=12.0), illegal="raise")
    world.reset(
        instance={
            "locs": [[[0, 0], [3, 0], [3, 4], [0, 6]]],
            "demand_units": [[0, 5, 6, 5]],
            "capacity": [10],
            "max_length": [12.0],
        }
    )
    for action, reason in ((0, "depot"), (4, "out of range 0..3"), (-1, "out of range 0..3")):
        with refused(world, IllegalAction, f"row 0: action {action}: ", reason):
            world.step([action])
    world.step([1])
    for action, reason in ((1, "visited"), (2, "over capacity: 5 + 6 > 10"), (3, "too long")):
        with refused(world, IllegalAction, f"row 0: action {action}: ", reason):
            world.step([action])


# -- saved states, pictures, generators --------------------------------------------------------------------------------

SAVED = {
    "nothing": lambda s: {},
    "no mapping": lambda s: None,
    "a field missing": lambda s: {k: v for k, v in s.items() if k != "load"},
    "rows missing": lambda s: {k: v[:2] for k, v in s.items()},
    "another shape": lambda s: {**s, "visited": s["visited"][:, :3]},
    "a number": lambda s: {**s, "load": 3},
    "lists": lambda s: {k: v.tolist() for k, v in s.items()},
    "text": lambda s: {**s, "load": np.array(["a"] * B)},
    "fewer instances": lambda s: {**s, "capacity": s["capacity"][:2]},
    "an owner out of range": lambda s: {**s, "instance_row": np.array([0, 1, 2, 99], np.int32)},
    "a node out of range": lambda s: {**s, "current_node": np.full(B, 10**6)},
    "nothing allowed": lambda s: {**s, "action_mask": np.zeros_like(s["action_mask"])},
    "a negative stream": lambda s: {**s, "stream": -s["stream"] - 1},
    "a load over the capacity": lambda s: {**s, "load": s["capacity"] + 1},
}


@pytest.mark.parametrize("case", SAVED)
@pytest.mark.parametrize("some", [False, True])
def test_invalid_saved_states_are_refused(case, some):
    """Kernels trust indices, so a broken file is refused before it is loaded, whole or in part."""
    world = cvrp()
    broken = SAVED[case](world.state_dict())
    with refused(world, MilkrunError):
        world.load_state_dict(broken, rows=[3, 1, 0, 2] if some else None)


def swapped(pos: np.ndarray) -> np.ndarray:
    """With the places of two nodes exchanged."""
    return pos[:, [0, 2, 1, *range(3, pos.shape[1])]]


STATES: dict[str, tuple[str, dict[str, Any], str, Any, str]] = {
    "CVRP": ("CVRP", {"num_loc": 5, "capacity": 9}, "load", lambda a: a + 9, r"row 0: load = \d+: over the capacity 9"),
    "CVRP's padding": ("CVRP", {"num_loc": 5}, "n_nodes", lambda a: a * 0 + 2, r"current_node = [2-5]: is padding"),
    "CVRP's sum": ("CVRP", {"num_loc": 5}, "objective", lambda a: a + 1e9, "objective = 99.*: must be minus tour_len"),
    "CVRP's count": ("CVRP", {"num_loc": 5}, "tour_len", lambda a: a * 0, "visited.* = True: tour_len counts fewer"),
    "a reward": ("CVRP", {}, "reward", lambda a: a - np.inf, "row 0: reward = -inf: must be finite"),
    "its flags": ("CVRP", {}, "done", lambda a: ~a, "row 0: done = True: must be terminated or truncated"),
    "TSP's sum": ("TSP", {}, "objective", lambda a: a * 1.001, "row 0: objective = .*: must be minus tour_length"),
    "VRPP's sum": ("VRPP", {}, "objective", lambda a: a + 1e6, "row 0: objective = .*: is more than was collected"),
    "SDWCVRP's sum": ("SDWCVRP", {}, "objective", lambda a: a + 1e6, "row 0: objective = .*: is more than was coll"),
    "CVRPP": ("CVRPP", {"num_loc": 5}, "load", lambda a: a + 1e6, "row 0: load = .*: over the capacity"),
    "WCVRP": ("WCVRP", {"num_loc": 5}, "load", lambda a: a + 1e6, "row 0: load = .*: over the capacity"),
    "SDWCVRP": ("SDWCVRP", {"num_loc": 5}, "load", lambda a: a + 1e6, "row 0: load = .*: over the capacity"),
    "DARP": ("DARP", {}, "current_load", lambda a: a + 99, r"row 0: current_load = \d+: must be the riders picked up"),
    "TSPKopt": ("TSPKopt", {}, "tour", lambda a: a * 0, r"row 0: tour\[1\] = 0: a tour has every node once"),
    "TSPKopt's N": ("TSPKopt", {"num_loc": 6}, "best_tour", lambda a: np.where(a == 5, 6, a), r"best_tour\[\d\] = 6"),
    "TSPKopt's cost": ("TSPKopt", {}, "cost_current", lambda a: a + 0.1, "cost_current = .*: must be the length"),
    "TSPKopt's best": ("TSPKopt", {}, "cost_best", lambda a: a + 1e6, "cost_best = .*: must be the length of best"),
    "TSPD's sum": ("TSPD", {}, "objective", lambda a: a - 1, "row 0: objective = .*: must be minus the clock"),
    "DARP's count": ("DARP", {}, "tour_len", lambda a: a * 0, "row 0: tour_len = 0: is less than the nodes visited"),
    "TSPKopt's places": ("TSPKopt", {}, "pos", swapped, r"row 0: pos\[1\]"),
    "TSPD": ("TSPD", {}, "left", lambda a: a + 1, r"row 0: left = \d+: must be the nodes not covered"),
    "TSPD's flight": ("TSPD", {}, "launch", lambda a: np.where(a < 0, 0, -1), "row 0: launch = .*: must be -1"),
    "TruckDrone": ("TruckDrone", {}, "battery", lambda a: a + 1, r"row 0: battery\[0\] = 2.0: must be in 0..1"),
}


@pytest.mark.parametrize("case", STATES)
def test_a_state_agrees_with_its_instance(case):
    """Rules between fields: row, field, value and rule are named, and the world does not change."""
    name, options, field, change, words = STATES[case]
    world = milkrun.make(f"milkrun/{name}-v0", 2, seed=1, **options)
    world.reset()
    world.step(world.sample_actions(0, 1))
    saved = world.state_dict()
    world.load_state_dict(saved)
    before = rows_of(world)
    with pytest.raises(BadInstance, match=words):
        world.load_state_dict({**saved, field: change(saved[field]).astype(saved[field].dtype)})
    assert rows_of(world) == before


def test_every_agent_of_a_live_row_is_allowed_something():
    """One drone's part of the mask is all False: named by row and place. A row that has ended is left alone."""
    world = Convoy(2, seed=0)
    world.reset()
    saved = world.state_dict()
    saved["action_mask"][1, 4:6] = False
    with refused(world, BadInstance, "row 1: action_mask[4:6] is all False", "agent 1"):
        world.load_state_dict(saved)
    saved["terminated"][1] = saved["done"][1] = True
    world.load_state_dict(saved)
    assert world.terminated.tolist() == [False, True]


def test_foreign_rows_are_checked_field_by_field():
    """`check_rows` takes any subset of the fields, as an environment on foreign tensors has it, and names the wrong
    row."""
    world = Convoy(2, seed=0)
    world.reset()
    rows = world.state_dict()
    check_rows(world, {name: rows[name] for name in ["at", "action_mask", "i"]})
    rows["i"][1] = -3
    with pytest.raises(BadInstance, match="row 1: i = -3: must be >= 0"):
        check_rows(world, {name: rows[name] for name in ["i"]})
    check_rows(world, {name: rows[name] for name in ["at", "action_mask"]})


@pytest.mark.parametrize("row", [-1, B, "a", 1.5, None])
def test_rendering_an_unknown_row_is_refused(world, row):
    """Row -1 does not exist either."""
    with refused(world, ShapeError, "row"):
        world.render(row)


def test_rendering_before_the_first_reset_is_refused():
    """There is nothing to draw yet."""
    with pytest.raises(ResetNeeded):
        milkrun.make("milkrun/CVRP-v0").render()


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: get_generator("cvpr"), "did you mean 'cvrp'"),
        (lambda: get_generator("cvrp", num_locs=3), "did you mean 'num_loc'"),
        (lambda: get_generator("cvrp", device="cuda"), "cuda"),
        (lambda: get_generator("tsp", seed=-1), "seed"),
        (lambda: get_generator("tsp").generate(-1), "batch_size"),
        (lambda: get_generator("tsp").generate(2.5), "batch_size"),
        (lambda: get_generator("tsp").generate("12"), "batch_size"),
        (lambda: get_generator("tsp").generate(2, seed=2**63), "seed"),
        (lambda: get_generator("tsp").generate(2, seed=1, first=-1), "first"),
        (lambda: get_generator("tsp").generate(2, seed=1, episode=-1), "episode"),
    ],
)
def test_generators_refuse_bad_input(call, word):
    """The error names the wrong argument."""
    with pytest.raises(ConfigError, match=word):
        call()


def test_a_law_that_misbehaves_is_named():
    """A function that returns the wrong shape or NaN: the option and the row are named."""
    for law in (lambda rng, n: rng.random((n, 3)), lambda rng, n: np.full((n, 2), np.nan), lambda rng, n: None):
        world = milkrun.make("milkrun/TSP-v0", 2, loc_distribution=law)
        with pytest.raises(ConfigError, match=r"loc_distribution.*row 0"):
            world.reset()
