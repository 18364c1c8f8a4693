"""The dial-a-ride references against each other, and their fleets, padding and features by hand.

Two judges decide each classic mask, the summary and Bellman-Ford; the rule `deadlines` is a scalar row here and a batch
of torch tensors in bench/. Where two such disagree, one of them has misread the rules.
"""

from __future__ import annotations

import copy
import math
from itertools import pairwise

import numpy as np
import pytest

from .darp import TIME_EPS, DARPModel
from .darp_base import is_pickup
from .darp_deadlines import DARPDeadlinesModel
from .test_darp_by_hand import alone, seed_trace, three, two_on_a_line


def draw(rng, requests, fleet=(3, 3), padding=0, matrix=False, patience=1.0, **options):
    """A classic instance of requests that one vehicle alone could serve: half with a window at the dropoff.

    With more patience windows are wider and rides may last longer.
    """
    horizon = 60.0 * requests / len(fleet) + 60.0
    rows = []
    while len(rows) < requests:
        places = np.round(rng.uniform(-10, 10, (2, 2)), 3)
        out, width = len(rows) % 2 == 0, patience * rng.uniform(2, 25)
        window = rng.uniform(40, horizon - 40)
        opens = [0.0, window] if out else [window, 0.0]
        closes = [1440.0, window + width] if out else [window + width, 1440.0]
        load, service, ride = int(rng.integers(1, 4)), rng.uniform(0, 4, 2), patience * rng.uniform(8, 40)
        if math.dist(*places) + 0.1 <= ride and load <= max(fleet):
            rows.append((places, load, opens, closes, service, ride))
    pad = [0] * padding
    locs = np.concatenate([[[0, 0]], *(row[0] for row in rows), np.zeros((padding, 2))])
    flat = [[x for row in rows for x in row[k]] for k in (2, 3, 4)]
    if matrix:
        straight = np.linalg.norm(locs[:, None] - locs[None], axis=-1)
        options["dist"] = straight * rng.uniform(0.8, 1.0, straight.shape)
    return DARPModel(
        locs,
        [0, *(x for row in rows for x in (row[1], -row[1])), *pad],
        fleet,
        [0, *flat[0], *pad],
        [horizon, *flat[1], *pad],
        [0, *flat[2], *pad],
        [row[5] for row in rows] + [math.inf] * (padding // 2),
        horizon * rng.uniform(0.7, 1.0),
        n_nodes=2 * requests + 1,
        **options,
    )


def near_a_limit(model):
    return model.mask_by_schedule(-1e-3) != model.mask_by_schedule(1e-3)


@pytest.mark.parametrize("matrix", [False, True])
def test_both_judges_give_one_mask_on_random_states(matrix):
    """Whole random episodes; no mask is empty, nobody is stranded, each route has a schedule."""
    rng = np.random.default_rng(5 + matrix)
    states = refused = crowded = full = 0
    for _ in range(150):
        fleet, patience = [((3, 3), 1), ((12,), 6), ((2, 4, 4), 1), ((12, 9), 4)][rng.integers(4)]
        at_most = 2 if fleet == (12, 9) else 8
        model = draw(
            rng, int(rng.integers(2, 7)), fleet, padding=2, matrix=matrix, patience=patience, max_onboard=at_most
        )
        routes = []
        while not model.finished:
            if not near_a_limit(model):
                assert model.mask_by_schedule() == model.action_mask, (vars(model), model.mask_by_schedule())
                states += 1
            reasons = [model.illegal_reason(a) for a in range(model.num_nodes)]
            assert [reason == 0 for reason in reasons] == model.action_mask and model.allowed()
            assert len(model.riding) <= at_most
            refused += reasons.count(8) + reasons.count(9)
            full += reasons.count(7)
            crowded += len(model.riding) >= 3
            pickups = [j for j in model.allowed() if is_pickup(j)]
            action = int(rng.choice(pickups if pickups and rng.random() < 0.7 else model.allowed()))
            routes += [[*model.route.nodes, 0]] if action == 0 else []
            model.step(action)
        assert model.terminated and not model.riding and all(model.vehicle_finished)
        assert all(model.schedule(route, 2 * TIME_EPS) is not None for route in routes)
        driven = sum(model.d[i][j] for route in routes for i, j in pairwise(route))
        assert model.total_distance == pytest.approx(driven, rel=1e-12)
        assert model.unvisited == 2 * model.unserved
    counts = (states, refused, crowded, full)
    assert states > 1000 and refused > 800 and crowded > 30 and full > 30, counts


def test_append_and_bellman_ford_agree_on_random_routes():
    """3 000 routes of 1 to 5 requests in any order that picks up before it sets down."""
    rng = np.random.default_rng(11)
    verdicts = {True: 0, False: 0}
    for _ in range(3000):
        model = draw(rng, int(rng.integers(1, 6)), (99,), patience=rng.choice([1, 3]))
        order = rng.permutation(np.repeat(np.arange((model.num_nodes - 1) // 2), 2)).tolist()
        nodes = [2 * r + 1 + (r in order[:q]) for q, r in enumerate(order)]
        exact = [model.schedule([0, *nodes, 0], slack) is not None for slack in (-1e-3, 1e-3)]
        if exact[0] != exact[1]:
            continue
        route = model._fresh()
        for j in (*nodes, 0):
            route = route and model.append(route, j)
        assert (route is not None) == exact[0], (vars(model), nodes)
        verdicts[exact[0]] += 1
    assert min(verdicts.values()) > 100, verdicts


def test_tightened_windows_cut_nothing_off():
    """With the raw windows in their place the masks of whole random episodes stay the same."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        tight = draw(rng, 4)
        raw = copy.copy(tight)
        raw.tight_open, raw.tight_close = tight.window_open, tight.time_windows
        raw.reset()
        while not tight.finished:
            if not near_a_limit(tight):
                assert raw.mask() == tight.action_mask
            action = int(rng.choice(tight.allowed()))
            tight.step(action)
            raw.step(action)


def test_fleet_of_two_sizes_may_leave_a_vehicle_unused():
    """Seats 2 and 1 differ, so the first may stay at home; seats 2 and 2 do not; who fits nobody is skipped."""
    locs, demand = [(0, 0), (1, 0), (10, 0), (-5, 0), (2, 0)], [0, 2, -2, 1, -1]

    def fleet(*seats):
        return DARPModel(locs, demand, seats, [0] * 5, [100] * 5, [0] * 5, [50, 50], 100)

    assert fleet(2, 2).allowed() == [1, 3]
    model = fleet(2, 1)
    assert model.allowed() == [0, 1, 3]
    model.step(0)
    assert (model.current_agent, model.vehicle_finished, model.allowed()) == (1, [True, False], [3])
    for action in (3, 4, 0):
        model.step(action)
    assert model.terminated and model.vehicles_used == 1 and model.cost == 14 + 200
    small_first = DARPModel(locs[:3], demand[:3], [1, 0, 2], [0] * 3, [100] * 3, [0] * 3, [50], 100)
    assert (small_first.current_agent, small_first.vehicle_finished) == (2, [True, True, False])


def test_padding_is_never_legal_nor_counted():
    """A padded row plays as the true one; its padding is visited from the start and costs nothing."""
    args = ([*[(0, 0), (3, 0), (10, 0)], (0, 0), (0, 0)], [0, 1, -1, 0, 0], [1, 0], [0, 0, 50, 0, 0],
            [100, 100, 60, 0, 0], [0] * 5, [20, math.inf], 100)  # fmt: skip
    padded, true = DARPModel(*args, n_nodes=3, max_steps=12), alone()
    assert padded.visited == [False, False, False, True, True] and padded.vehicle_finished == [False, True]
    assert padded.illegal_reason(3) == 2 and padded.illegal_reason(4) == 2
    for action in (1, 2, 0):
        assert padded.allowed() == true.allowed() == [action]
        assert padded.nodes[:3] == true.nodes and padded.vehicle == true.vehicle
        padded.step(action)
        true.step(action)
        assert padded.reward == true.reward
    assert padded.terminated and padded.cost == 20


def test_features_of_the_one_request_by_hand():
    """After the pickup at 30: 7 of 100 away, earliest 50, latest 60, one rider of eight aboard."""
    model = alone(max_steps=10)
    model.step(1)
    f = np.float32
    assert model.nodes[0] == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, f(0.03), f(0.33), f(0.67), 0]
    assert model.nodes[1] == [f(0.3), 0, 1, 0, f(0.3), f(0.53), 1, 0, 1, 1, 0, f(0.3), f(0.23), 0]
    assert model.nodes[2] == [1, 0, -1, 0, 0.5, f(0.6), 0, 1, 0, 1, f(0.07), 0.5, f(0.1), 1]
    assert model.vehicle == [f(0.3), 1, 0.125, f(0.03), 0, 0, f(0.1)]
    model.step(2)
    assert model.vehicle == [0.5, 0, 0, f(0.1), 0, 1, f(0.2)]
    line = two_on_a_line(21)
    assert (line.nodes[3][0], line.nodes[3][2], three(2).nodes[1][3]) == (-0.5, 0.5, f(1 / 120))


def test_features_of_the_seed_trace_by_hand():
    """After actions 3 and 1 at hour 3 of 48: the dropoffs are 2 and 3 hours away, two riders aboard."""
    model = seed_trace(max_steps=10)
    model.step(3)
    model.step(1)
    f = np.float32
    assert model.nodes[2] == [f(0.6), f(0.8), f(-0.4), 0, 0, f(13 / 48), 0, 1, 0, 1, f(2 / 48), f(5 / 48), f(8 / 48), 1]
    assert model.nodes[4][-5:] == [1, f(3 / 48), f(6 / 48), f(-1 / 48), 0]
    assert model.vehicle == [f(3 / 48), f(0.6), 1, f(3 / 48), 0, 0, f(0.2)]


def deadline_instances(rng, rows, requests, vehicles):
    """The law without those rows whose travel time is nearly a half."""
    locs = rng.uniform(0, 100, (4 * rows, 2 * requests + 1, 2)).astype(np.float32)
    ratio = np.linalg.norm(locs[:, :, None] - locs[:, None], axis=-1) / 25.0
    locs = locs[(np.abs(ratio % 1 - 0.5) > 1e-4).all((1, 2))][:rows]
    load = rng.integers(1, 4, (len(locs), requests))
    pickup = rng.integers(10, 31, (len(locs), requests))
    hours = np.maximum(np.linalg.norm(locs[:, 1::2] - locs[:, 2::2], axis=-1) / 25.0, 1.0)
    ride = rng.integers(np.ceil(hours), np.maximum(np.ceil(2 * hours), np.ceil(hours) + 1) + 1)
    nodes = {"demand": (0, load, -load), "time_windows": (48, pickup, pickup + ride)}
    fields = {"locs": locs, "capacity": np.full((len(locs), vehicles), 5)}
    for name, (depot, at_pickup, at_dropoff) in nodes.items():
        fields[name] = np.empty((len(locs), 2 * requests + 1), np.int64)
        fields[name][:, 0], fields[name][:, 1::2], fields[name][:, 2::2] = depot, at_pickup, at_dropoff
    return fields


SEED_FIELDS = (
    "current_node",
    "current_agent",
    "current_time",
    "current_load",
    "i",
    "visited",
    "picked_up_by_current",
    "vehicle_finished",
    "action_mask",
)


@pytest.mark.parametrize(("requests", "vehicles"), [(5, 2), (10, 5)])
def test_torch_batch_equals_the_scalar_rows(requests, vehicles):
    """150 random legal episodes, every field after every step; ended rows stand still."""
    torch = pytest.importorskip("torch")
    from bench.peers.darp_torch import DARPTorch

    rng = np.random.default_rng(requests)
    fields = deadline_instances(rng, 150, requests, vehicles)
    count = len(fields["locs"])
    rows = [DARPDeadlinesModel(**{name: field[b] for name, field in fields.items()}) for b in range(count)]
    env = DARPTorch()
    state = env.reset(fields)
    assert len(rows) == 150
    while not state["done"].all():
        actions = [int(rng.choice(row.allowed())) for row in rows]
        for row, action in zip(rows, actions, strict=True):
            row.step(action)
        state = env.step(state, torch.tensor(actions))
        for name in SEED_FIELDS:
            ours = np.array([getattr(row, name) for row in rows]).reshape(state[name].shape)
            np.testing.assert_array_equal(state[name].numpy(), ours, err_msg=name)
        # torch's vectorised sqrt may be off by its last bit.
        np.testing.assert_allclose(state["total_distance"].numpy(), [row.total_distance for row in rows], rtol=1e-6)
        np.testing.assert_array_equal(state["done"].numpy()[:, 0], [row.terminated for row in rows])
    np.testing.assert_allclose(env.get_reward(state).numpy(), [-row.cost for row in rows], atol=1e-3)
    assert sum(row.unvisited > 0 for row in rows) > 30
