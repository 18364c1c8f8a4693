"""The masks of the classic dial-a-ride world allow all feasible plans, and only these.

The checker is DARPProblem, which schedules whole routes by Bellman-Ford on the raw windows. Marked long: 100,000 random
episodes, 50,000 random routes, 2,000 states. About a tenth of each runs without the mark.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import milkrun
from milkrun.core.kernels import kernel
from milkrun.routing.darp import DARP
from milkrun.routing.darp.schedule import append, keep, recall, set_off
from milkrun.routing.instances import DARPInstance, cordeau
from milkrun.routing.tasks import DARPProblem
from tests.published import published_files

ID = "milkrun/DARP-v0"
PER_NODE = ("window_open", "time_windows", "service_time")
FIELDS = ("locs", "demand", "capacity", *PER_NODE, "max_ride_time", "max_route_duration")

pytestmark = pytest.mark.truth


def drawn(rows, seed=1, **options):
    world = milkrun.make(ID, rows, seed=seed, autoreset="disabled", **options)
    world.reset()
    return world


def files(rows):
    """Cordeau's files, each in as many rows as it takes."""
    instances = [cordeau.load(path) for path in published_files("darp/*.txt")]
    return DARP.from_instances(instances, repeat=-(-rows // len(instances)), autoreset="disabled", seed=2)


def crooked(rows):
    """Instances whose matrix has neither symmetry nor triangle inequality, and whose vehicles differ."""
    law = drawn(rows, seed=3, num_requests=8, num_agents=3, metric="matrix", max_duration=240, style="b")
    rng = np.random.default_rng(3)
    given = {name: getattr(law, name).copy() for name in FIELDS}
    given["dist"] = law.dist * rng.uniform(0.4, 1.0, law.dist.shape)
    given["capacity"] = np.stack([np.full(rows, 6), rng.integers(1, 8, rows), rng.integers(1, 8, rows)], axis=1)
    world = milkrun.make(ID, rows, num_requests=8, num_agents=3, metric="matrix", autoreset="disabled")
    world.reset(instance=given)
    return world


SOURCES = {
    "style a": (30_000, drawn),
    "style b": (30_000, lambda rows: drawn(rows, style="b")),
    "wide": (
        10_000,
        lambda rows: drawn(
            rows, style="b", num_requests=10, num_agents=3, window_width=60, vehicle_capacity=12, max_ride=60.0
        ),
    ),
    "files": (20_000, files),
    "crooked": (10_000, crooked),
}


@pytest.mark.parametrize("share", [0.05, pytest.param(1.0, marks=pytest.mark.long)])
@pytest.mark.parametrize("source", SOURCES)
def test_masked_play_leaves_no_rider_aboard(source, share):
    """No mask is empty before the end, no rider is aboard at the end, every route keeps all limits, the return is the
    cost."""
    rows, make = SOURCES[source]
    world = make(int(share * rows))
    turn = 0
    while len(live := np.flatnonzero(~world.done)):
        assert world.action_mask[live].any(axis=1).all(), turn
        world.step(world.sample_actions(5, turn)[live], rows=live)
        assert not world.illegal.any()
        turn += 1
    assert world.terminated.all() and not world.truncated.any()
    assert not world.current_load.any() and (world.onboard == -1).all()
    assert (world.visited[:, 1::2] == world.visited[:, 2::2]).all()
    extra = {"n_nodes": world.n_nodes, "instance_row": world.instance_row}
    dataset = {name: getattr(world, name) for name in (*FIELDS, *(("dist",) if world.sizes["M"] else ()))}
    cost, parts, _ = DARPProblem.get_costs({**dataset, **extra}, world.solution())
    np.testing.assert_allclose(world.objective, -cost, rtol=1e-6)
    np.testing.assert_allclose(world.distance, parts["distance"], rtol=1e-9)
    assert (parts["unserved"] == world.unserved).all() and (parts["vehicles"] == world.vehicles_used).all()
    assert world.unserved.any() and (world.vehicles_used > 1).any()


# -- the summary of schedules against Bellman-Ford --------------------------------------------------------------------


@kernel
def drives(w, b, _, __):
    """Appends the recorded route of a row, and the way home: 1 if every append succeeds."""
    q = w.instance_row[b]
    set_off(w, q, 0)
    for k in range(w.tour_len[b] + 1):
        node = np.int64(w.tour[b, k]) if k < w.tour_len[b] else 0
        if not append(w, q, 0, node):
            return 0
        keep(w, b, 1)
        w.current_node[b] = node
        recall(w, b, 0)
    return 1


def random_limits(rows, rng):
    """Five requests a row with random windows, limits and stops, most of them infeasible for a route of five."""
    n = 11
    opens = rng.uniform(0, 120, (rows, n)) * (rng.random((rows, n)) < 0.7)
    closes = np.where(rng.random((rows, n)) < 0.2, 1440.0, opens + rng.uniform(2, 160, (rows, n)))
    opens[:, 0], closes[:, 0] = 0.0, rng.uniform(60, 320, rows)
    service = rng.uniform(0, 4, (rows, n)) * (np.arange(n) > 0)
    ride = np.where(rng.random((rows, 5)) < 0.2, np.inf, rng.uniform(10, 90, (rows, 5)))
    return {
        "locs": rng.uniform(-10, 10, (rows, n, 2)).astype(np.float32),
        "demand": np.tile([0, *([1, -1] * 5)], (rows, 1)),
        "capacity": np.full((rows, 1), 9),
        "window_open": opens,
        "time_windows": closes,
        "service_time": service,
        "max_ride_time": ride,
        "max_route_duration": rng.uniform(40, 300, rows),
    }


def random_route(rng, most):
    """A route through some of the requests, each dropoff after its pickup."""
    chosen = rng.permutation(5)[: rng.integers(1, most + 1)]
    key = np.sort(rng.random((len(chosen), 2)), axis=1)
    nodes = np.stack([2 * chosen + 1, 2 * chosen + 2], axis=1)
    return nodes.ravel()[np.argsort(key.ravel())].tolist()


@pytest.mark.parametrize("rows", [5_000, pytest.param(50_000, marks=pytest.mark.long)])
def test_append_decides_as_bellman_ford(rows):
    """Routes of 1 to 5 requests accepted by `append` have a schedule within 2 eps; refused ones have none. Tightened
    windows give the same result as raw ones."""
    rng = np.random.default_rng(rows)
    given = random_limits(rows, rng)
    world = milkrun.make(ID, rows, num_requests=5, num_agents=1, seed=0)
    world.reset()
    arranged = world.arrange_instances(dict(given))
    for name, values in arranged.items():
        getattr(world, name)[:] = values
    routes = [random_route(rng, 5) for _ in range(rows)]
    for b, route in enumerate(routes):
        world.tour[b, : len(route)], world.tour_len[b] = route, len(route)
    tight = world.map_rows(drives, np.int64).astype(bool)
    world.tight_open[:], world.tight_close[:] = given["window_open"], given["time_windows"]
    raw = world.map_rows(drives, np.int64).astype(bool)
    assert (tight == raw).all()
    for b, route in enumerate(routes):
        instance = DARPInstance(name=f"row {b}", **{name: given[name][b] for name in FIELDS})
        found = DARPProblem.schedule(instance, route, tol=2e-4 if tight[b] else 0.0)
        assert (found is not None) == tight[b], (b, route)
    sizes = np.array([len(route) // 2 for route in routes])
    for size in range(1, 6):  # each size has accepted and refused routes
        assert tight[sizes == size].any() and not tight[sizes == size].all()
    assert 0.05 < tight.mean() < 0.95


# -- masks ------------------------------------------------------------------------------------------------------------


def moved(instance, by):
    """The instance with every limit relaxed by `by`, or tightened if negative; the depot opens at the same time."""
    opens = instance.window_open - by * (np.arange(len(instance.locs)) > 0)
    return dataclasses.replace(
        instance,
        window_open=opens,
        time_windows=np.maximum(instance.time_windows + by, opens),
        max_ride_time=instance.max_ride_time + by,
        max_route_duration=instance.max_route_duration + by,
    )


def some_order(instance, route, aboard):
    """Whether some order of dropoffs is feasible. A route without a schedule has none with more stops either."""
    if DARPProblem.schedule(instance, route, tol=0.0) is None:
        return False
    return not aboard or any(some_order(instance, [*route, 2 * r + 2], aboard - {r}) for r in aboard)


def mask_by_orders(world, row, instance):
    """The mask of a row from its route, its riders and the checker."""
    path = world.path(row)
    route = path[len(path) - path[::-1].index(0) :]
    aboard = {(node - 1) // 2 for node in route if node % 2 and node + 1 not in route}
    allowed = np.zeros(world.sizes["N"], bool)
    allowed[0] = bool(route) and not aboard
    room = world.capacity[row, world.current_agent[row]] - sum(world.demand[row, 2 * r + 1] for r in aboard)
    for r in range(world.sizes["R"]):
        if r in aboard:
            allowed[2 * r + 2] = some_order(instance, [*route, 2 * r + 2], aboard - {r})
        elif 2 * r + 1 not in path and world.demand[row, 2 * r + 1] <= room:
            allowed[2 * r + 1] = some_order(instance, [*route, 2 * r + 1], aboard | {r})
    return allowed, len(aboard)


@pytest.mark.parametrize("states", [200, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("style", ["a", "b"])
def test_the_mask_is_what_some_order_of_dropoffs_allows(style, states):
    """States of play that prefers pickups, some with 5 aboard; states within 1e-3 of a limit are left out."""
    rows = states + states // 5
    world = drawn(
        rows,
        num_requests=9,
        style=style,
        vehicle_capacity=5 if style == "a" else 12,
        window_width=150,
        max_ride=75.0,
        seed=8,
    )
    rng = np.random.default_rng(9)
    stops = rng.integers(0, 14, rows)
    for turn in range(13):
        mask = world.action_mask & (np.arange(world.sizes["N"]) % 2 == 1)
        pick = mask.any(axis=1, keepdims=True) & (rng.random((rows, 1)) < 0.8)
        weight = np.where(pick, mask, world.action_mask) * rng.random(mask.shape)
        going = np.flatnonzero((turn < stops) & ~world.done)
        world.step(weight.argmax(axis=1)[going], rows=going)
    compared, aboard = 0, []
    for row in np.flatnonzero(~world.done):
        instance = DARPInstance(name=f"row {row}", **{name: getattr(world, name)[row] for name in FIELDS})
        strict, riders = mask_by_orders(world, row, moved(instance, -1e-3))
        loose, _ = mask_by_orders(world, row, moved(instance, 1e-3))
        if (strict == loose).all():
            assert (world.action_mask[row] == loose).all(), row
            compared += 1
            aboard.append(riders)
    assert compared >= states and max(aboard) >= 5 and np.mean(np.array(aboard) >= 3) > 0.15


@pytest.mark.parametrize("source", ["style a", "style b", "wide", "files"])
def test_masks_are_the_same_without_tightened_windows(source):
    """Tightening forbids nothing: a world whose kernels use the raw windows has the same masks at every step."""
    rows, make = SOURCES[source]
    tight = make(rows // 20)
    raw = milkrun.make(ID, tight.num_envs, config=tight.config, autoreset="disabled")
    raw.load_state_dict(tight.state_dict())
    raw.tight_open[:], raw.tight_close[:] = raw.window_open, raw.time_windows
    assert (tight.tight_open > raw.tight_open + 1).any() and (tight.tight_close < raw.tight_close - 1).any()
    raw.given[:] = True
    raw.reset(rows=np.arange(raw.num_envs))
    together(tight, raw)
    assert (raw.objective == tight.objective).all()


def together(first, second, label=None):
    """Plays two worlds by the same actions, relabelled by `label`; their masks must be equal at every step."""
    label = np.arange(first.sizes["N"]) if label is None else label
    turn = 0
    while len(live := np.flatnonzero(~first.done)):
        assert (first.action_mask == second.action_mask[:, label]).all(), turn
        actions = first.sample_actions(7, turn)[live]
        first.step(actions, rows=live)
        second.step(label[actions], rows=live)
        turn += 1
    assert first.terminated.all() and second.terminated.all()


@pytest.mark.parametrize("style", ["a", "b"])
@pytest.mark.parametrize("change", ["shifted", "faster", "relabelled", "finer clock"])
def test_equivalent_problems_have_equal_masks(style, change):
    """A later day; twice the distance at twice the speed; requests relabelled; time in quarters."""
    rows = 1000
    plain = drawn(rows, style=style, num_requests=10, window_width=40)
    given = {name: getattr(plain, name).copy() for name in FIELDS}
    speed, label, factor = 1.0, np.arange(21), 1.0
    if change == "shifted":
        for name in PER_NODE[:2]:
            given[name] += 4096.0
    elif change == "faster":
        given["locs"], speed, factor = 2 * given["locs"], 2.0, 2.0
    elif change == "finer clock":
        speed = 0.25
        for name in (*PER_NODE, "max_ride_time", "max_route_duration"):
            given[name] *= 4.0
    else:
        order = np.random.default_rng(4).permutation(10)
        label = np.concatenate([[0], np.stack([2 * order + 1, 2 * order + 2], axis=1).ravel()])
        origin = np.argsort(label)
        for name in ("locs", "demand", *PER_NODE):
            given[name] = given[name][:, origin]
        given["max_ride_time"] = given["max_ride_time"][:, np.argsort(order)]
    other = milkrun.make(ID, rows, num_requests=10, speed=speed, autoreset="disabled")
    other.reset(instance=given)
    together(plain, other, label)
    np.testing.assert_allclose(other.distance, factor * plain.distance, rtol=1e-12)
    assert (other.unserved == plain.unserved).all() and (label[plain.solution()] == other.solution()).all()
