"""Loaded states of truck and drones: reachable ones are accepted, impossible ones are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import milkrun
from milkrun.core.errors import BadInstance
from milkrun.core.fields import Role
from tests.delivery.truckdrone_logs import TWISTS
from tests.states import check

ROLES = (Role.STATE, Role.KEY, Role.INSTANCE, Role.MASK)


def arrays_of(world: Any) -> dict[str, np.ndarray]:
    """Every field of a state, instances row by row."""
    found = {f.name: getattr(world, f.name) for f in world.fields.values() if f.role in ROLES}
    own = {f.name: found[f.name][world.instance_row] for f in world.fields.values() if f.role is Role.INSTANCE}
    return {name: array.copy() for name, array in {**found, **own}.items()}


@pytest.mark.parametrize("mode", ["disabled", "same_step"])
@pytest.mark.parametrize("wild", [False, True], ids=["masked", "unmasked"])
@pytest.mark.parametrize("twist", [*TWISTS, "a standing truck", "given nodes"])
def test_no_reachable_state_is_refused(twist: str, wild: bool, mode: str):
    """Through whole episodes of 16 rows and the starts of the next ones; unmasked play includes illegal numbers."""
    more: dict[str, Any] = {"a standing truck": {"truck_speed": 0.0, "road_graph": True}, "given nodes": {}}
    options = {"episode_length": 60, **(TWISTS | more)[twist]}
    world = milkrun.make("milkrun/TruckDrone-v0", 16, autoreset=mode, seed=7, **options)
    world.reset()
    rng = np.random.default_rng(7)
    if twist == "given nodes":  # node 0 need not be the truck's start
        names = ("customer_pos", "demand", "tw_start", "tw_end")
        nodes = rng.uniform(-1, 1, (16, 6, 2))
        world.reset(instance={**{name: getattr(world, name).copy() for name in names}, "route_nodes": nodes})
    choices = world.action.nvec(world.sizes)
    check(world, arrays_of(world))
    for turn in range(world.config.limit):
        live = np.flatnonzero(~world.done) if mode == "disabled" else np.arange(16)
        drawn = np.stack([rng.integers(-1, n + 1, 16) for n in choices], axis=1)
        actions = np.where(wild & (rng.random((16, 1)) < 0.5), drawn, world.sample_actions(7, turn))
        world.step(actions[live], rows=live)
        check(world, arrays_of(world))


@pytest.fixture(scope="module")
def moment() -> tuple[Any, dict[str, np.ndarray]]:
    """Three rows on roads after four steps: drone 0 carries parcel 0 towards (.8, .8), drone 1 is on board. The truck
    drives from node 0 to node 1 at (.6, 0)."""
    world = milkrun.make("milkrun/TruckDrone-v0", 3, road_graph=True, num_customers=2, autoreset="disabled", seed=1)
    row = {
        "customer_pos": [[0.8, 0.8], [-0.5, 0.5]],
        "demand": [0.5, 0.5],
        "tw_start": [0, 0],
        "tw_end": [99, 99],
        "road": world.ring_road,
    }
    world.reset(instance={name: [value] * 3 for name, value in row.items()})
    for joint in ([7, 0, 0], [2, 2, 0], [2, 2, 0], [2, 2, 0]):
        world.step([joint] * 3)
    assert world.truck_edge[1].tolist() == [0, 1] and world.carrying[1].tolist() == [0, -1] and not world.illegal.any()
    return world, arrays_of(world)


def put(name: str, index: Any, value: Any) -> Any:
    """Changes a field of row 1."""

    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[name][(1, *index) if isinstance(index, tuple) else (1, index)] = value

    return change


def all_of(*changes: Any) -> Any:
    def change(arrays: dict[str, np.ndarray]) -> None:
        for each in changes:
            each(arrays)

    return change


WHOLE = ...
AT_NODE_1 = (put("truck_node", WHOLE, 1), put("truck_target", WHOLE, -1), put("truck_edge", WHOLE, 1))
THERE = (put("truck_pos", WHOLE, 0.0), put("drone_pos", (1, WHOLE), 0.0))
AT_DEPOT = (*THERE, put("truck_node", WHOLE, 0), put("truck_edge", WHOLE, 0))
IMPOSSIBLE = [
    (put("i", WHOLE, 10**15), r"row 1: i = 1000000000000000: an episode has 200 steps"),
    (put("truck_pos", 0, np.nan), r"row 1: truck_pos\[0\] = nan: lies outside the map"),
    (put("drone_pos", (0, 1), 1e9), r"row 1: drone_pos\[0, 1\] = 1000000000.0: lies outside the map"),
    (put("target_pos", (0, 1), -2.0), r"row 1: target_pos\[0, 1\] = -2.0: lies outside the map"),
    (put("truck_vel", 0, 1.5), r"row 1: truck_vel\[0\] = 1.5: is faster than 1.0"),
    (put("drone_vel", (0, 0), np.inf), r"row 1: drone_vel\[0, 0\] = inf: is faster than 2.0"),
    (put("drone_vel", (1, 0), 0.1), r"row 1: drone_vel\[1, 0\] = 0.1: of a drone that is not in the air"),
    (put("battery", 0, 1.5), r"row 1: battery\[0\] = 1.5: must be in 0..1"),
    (put("battery", 1, -0.5), r"row 1: battery\[1\] = -0.5: must be in 0..1"),
    (put("battery", 0, 0.0), r"row 1: battery\[0\] = 0.0: of a drone in the air"),
    (put("battery", 0, np.nan), r"row 1: battery\[0\] = nan: must be in 0..1"),
    (put("drone_pos", (1, 0), 0.9), r"row 1: drone_pos\[1, 0\] = 0.9: of a drone on board"),
    (put("has_target", 1, True), r"row 1: has_target: must be False on board, but is \[True, True\]"),
    (put("arrival_step", 1, 9), r"row 1: arrival_step: must be -1, or a step done, .* to i = 4, but is \[-1, 9\]"),
    (put("served", 1, True), r"row 1: served: is \[False, True\], but arrival_step = \[-1, -1\] says otherwise"),
    (put("arrival_step", 1, 3), r"row 1: served: is \[False, False\], but arrival_step = \[-1, 3\]"),
    (put("lost", 1, True), r"row 1: lost: is \[False, True\]; under the sound rules a parcel is lost while"),
    (all_of(put("status", 0, 3), put("drone_vel", 0, 0.0)), r"row 1: lost: is \[False, False\]; under"),
    (put("carrying", 1, 1), r"row 1: carrying: must be -1 on board, but is \[0, 1\]"),
    (all_of(put("served", 0, True), put("arrival_step", 0, 2)), r"row 1: carrying: is \[0, -1\]: another"),
    (all_of(*AT_DEPOT), r"row 1: truck_target = 1: must be -1 on a node, but truck_node ="),
    (all_of(*AT_NODE_1), r"row 1: truck_node = 1: the truck is not there"),
    (put("truck_edge", 1, 0), r"row 1: truck_edge: must be the truck's node twice, .* but is \[0, 0\]"),
    (put("truck_edge", WHOLE, [1, 3]), r"row 1: truck_pos\[0\] = .*: is not on the"),
    (put("truck_target", WHOLE, 4), r"row 1: truck_target = 4: is no end of the truck's road"),
    (all_of(put("truck_pos", 1, 0.1), put("drone_pos", (1, 1), 0.1)), r"row 1: truck_pos\[0\] = .*: is not on the"),
    (put("road", (0, 1), False), r"row 1: road\[0, 1\] = False: a road leads both ways"),
    (put("action_mask", WHOLE, False), r"row 1: action_mask\[0\] = False: the state allows this action"),
    (put("action_mask", slice(11, 15), False), r"row 1: action_mask\[11\] = False: the state allows this action"),
    (put("action_mask", 5, True), r"row 1: action_mask\[5\] = True: the state does not allow this action"),
    (put("action_mask", 7, True), r"row 1: action_mask\[7\] = True: the state does not allow this action"),
    (put("action_mask", 10, True), r"row 1: action_mask\[10\] = True: the state does not allow this action"),
    (put("action_mask", 14, True), r"row 1: action_mask\[14\] = True: the state does not allow this action"),
    (put("action_mask", 16, True), r"row 1: action_mask\[16\] = True: the state does not allow this action"),
    (put("sum_counts", 3, -1), r"row 1: sum_counts\[3\] = -1: must be in 0..1000"),
    (put("sum_amounts", 0, np.nan), r"row 1: sum_amounts\[0\] = nan: must be >= 0"),
]


@pytest.mark.parametrize(("change", "words"), IMPOSSIBLE, ids=[words for _, words in IMPOSSIBLE])
def test_an_impossible_state_is_refused(moment: Any, change: Any, words: str):
    """One change of row 1: the message names row, field, index, value and rule."""
    world, arrays = moment
    changed = {name: array.copy() for name, array in arrays.items()}
    check(world, changed)
    change(changed)
    with pytest.raises(BadInstance, match=words):
        check(world, changed)


def test_a_reserved_parcel_has_one_carrier():
    """Two airborne drones with parcel 0: refused, but not under reserve=False."""
    for reserve in (True, False):
        world = milkrun.make("milkrun/TruckDrone-v0", reserve=reserve, num_customers=1, autoreset="disabled", seed=1)
        world.reset()
        for joint in ([7, 0, 0], [8, 0, 0]):
            world.step([joint])
        arrays = arrays_of(world)
        arrays["carrying"][:] = 0
        if reserve:
            with pytest.raises(BadInstance, match=r"row 0: carrying: is \[0, 0\]: another drone has this parcel"):
                check(world, arrays)
        else:  # two carriers are allowed; the mask is still that of one
            with pytest.raises(BadInstance, match="action_mask"):
                check(world, arrays)


def test_counters_may_be_left_out(moment: Any):
    """Functional stepping has none."""
    world, arrays = moment
    check(world, {name: array for name, array in arrays.items() if not name.startswith("sum_")})


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(twist=st.sampled_from(sorted(TWISTS)), seed=st.integers(0, 2**31))
def test_an_accepted_state_stays_possible(twist: str, seed: int):
    """Some numbers of a state are replaced by others within their bounds. An accepted state can be played on, masked or
    not, and every following state is also possible."""
    rng = np.random.default_rng(seed)
    world = milkrun.make("milkrun/TruckDrone-v0", 8, autoreset="disabled", seed=seed, **TWISTS[twist])
    world.reset()
    for turn in range(int(rng.integers(25))):
        live = np.flatnonzero(~world.done)
        world.step(world.sample_actions(seed, turn)[live], rows=live)
    saved = world.state_dict()
    fields = [f for f in world.fields.values() if f.role in (Role.STATE, Role.MASK) and saved[f.name].size]
    for _ in range(int(rng.integers(1, 3))):
        f = fields[rng.integers(len(fields))]
        low, high = f.bounds(world.sizes)
        at = tuple(rng.integers(saved[f.name].shape))
        low, high = -5 if low is None else low, 5 if high is None else high
        saved[f.name][at] = rng.integers(low, high + 1) if f.dtype.kind in "ib" else rng.choice([0, -0.5, 0.7, 1, 1.3])
    try:
        world.load_state_dict(saved)
        check(world, arrays_of(world))
    except BadInstance:
        return
    choices = world.action.nvec(world.sizes)
    for turn in range(12):
        live = np.flatnonzero(~(world.terminated | world.truncated))
        drawn = np.stack([rng.integers(-1, n + 1, 8) for n in choices], axis=1)
        actions = np.where(rng.random((8, 1)) < 0.5, drawn, world.sample_actions(seed, turn))
        world.step(actions[live], rows=live)
        check(world, arrays_of(world))
