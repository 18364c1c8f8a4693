"""Tracking worlds of roads and cars alone, hand-made towns, and an independent check for overlapping cars."""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.core.rng import integers
from milkrun.tracking.cars import place_cars
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.generator.roads import lay_roads
from milkrun.tracking.generator.town import clear_town, take_key
from milkrun.tracking.streams import SCENE, town_stream
from milkrun.tracking.tables import KIND_SIZES, PEDESTRIAN, ROAD_HALF
from milkrun.tracking.traffic import drive
from milkrun.tracking.world import Tracking

TOO_FAST, OVER_LINE = 1, 2


@kernel
def lay(w, b):
    """Only the roads of a drawn town."""
    q = w.instance_row[b]
    take_key(w, b, q)
    clear_town(w, q)
    scene = w.scene_list[integers(town_stream(w, q, SCENE), 0, 0, w.n_scenes)]
    w.scene_id[q] = scene
    w.road_half[q] = w.scenes[scene, ROAD_HALF]
    lay_roads(w, q)


@kernel
def start(w, b):
    w.sim_step[b] = 0
    place_cars(w, b, w.instance_row[b])
    for a in range(w.A):
        w.action_mask[b, a] = True


@kernel
def play(w, b, action):
    for _ in range(w.n_sub):
        drive(w, b, w.instance_row[b])
        w.sim_step[b] += 1


@kernel
def see(w, b):
    pass


class Traffic(Tracking):
    """A tracking world without a drone."""

    id = "test/Traffic-v0"


Traffic.bind(generate=lay, reset=start, step=play, idle=play, observe=see)


@kernel
def advance(w, b, x, y):
    """Plays x sim steps. Returns 0, or the first violation: its code + 10 * vehicle + 1000 * sim step."""
    q = w.instance_row[b]
    for _ in range(x):
        drive(w, b, q)
        w.sim_step[b] += 1
        for v in range(w.n_veh[b]):
            e = w.veh_edge[b, v]
            node = w.edge[q, e, 1]
            where = 10 * v + 1000 * w.sim_step[b]
            if w.veh_v[b, v] < 0.0 or w.veh_v[b, v] > w.veh_v0[b, v] + 0.1:
                return where + TOO_FAST
            held = not w.guarded[q, node] or w.node_owner[b, node] == v or w.veh_kind[b, v] == PEDESTRIAN
            front = w.edge_cut[q, e, 0] + w.veh_s[b, v] + 0.5 * w.kinds[w.veh_kind[b, v], 0]
            over = w.veh_turning[b, v] or front > w.edge_len[q, e] - w.edge_cut[q, e, 1] + 1e-9
            if w.veh_on[b, v] and over and not held:
                return where + OVER_LINE
    return 0


def make(num_envs=1, *, seed=0, debug=False, threads=None, **options):
    """A world after its reset."""
    config = TrackingConfig.build(**{"size": 16, "ground_cell": 10.0, "max_sim_steps": 10**7, **options})
    world = Traffic(num_envs, config, seed=seed, debug=debug, threads=threads)
    world.reset()
    return world


def build(nodes, roads, half=4.0, guarded=(), cut=2.0, num_envs=1, ends=False, **options):
    """A world on one road graph, without cars. `cut` is the zone at every end, or a dict by node. With `ends` a dead
    end has no successor, otherwise the way back."""
    world = make(num_envs, **options)
    for name in ("node_xy", "guarded", "edge", "edge_len", "edge_dir", "edge_cut", "edge_ways", "edge_next"):
        getattr(world, name)[:] = 0
    world.n_node[:], world.n_edge[:], world.road_half[:] = len(nodes), 2 * len(roads), half
    world.node_xy[:, : len(nodes)] = nodes
    world.guarded[:, list(guarded)] = True
    ways = [way for i, j in roads for way in ((i, j), (j, i))]
    for e, (i, j) in enumerate(ways):
        line = np.subtract(nodes[j], nodes[i])
        length = float(np.hypot(*line))
        zones = [cut[n] if isinstance(cut, dict) else cut for n in (i, j)]
        then = [f for f, (k, _) in enumerate(ways) if k == j and f != e ^ 1]
        if not then and not ends:
            then = [e ^ 1]
        world.edge[:, e], world.edge_len[:, e], world.edge_dir[:, e], world.edge_cut[:, e] = (
            (i, j),
            length,
            line / length,
            zones,
        )
        world.edge_ways[:, e] = len(then)
        world.edge_next[:, e, : len(then)] = then
    for name in ("n_veh", "veh_on", "veh_turning", "veh_draws", "veh_v", "veh_s", "veh_rate", "halts", "halt_left"):
        getattr(world, name)[:] = 0
    world.node_owner[:], world.next_halt[:] = -1, 1e9
    return world


def put(world, v, edge, s, speed, v0=15.0, to=None, kind=0):
    """Puts a car on a straight part of a hand-made town, in every row. The length of its curve is measured along it."""
    q = 0
    then = int(world.edge_next[q, edge, 0]) if to is None else to
    then = edge if world.edge_ways[q, edge] == 0 else then
    world.n_veh[:] = np.maximum(world.n_veh, v + 1)
    world.veh_on[:, v], world.veh_turning[:, v], world.veh_kind[:, v] = True, False, kind
    world.veh_edge[:, v], world.veh_to[:, v], world.veh_s[:, v] = edge, then, s
    world.veh_v[:, v], world.veh_v0[:, v] = speed, v0
    path = curve(world, edge, then)
    world.veh_curve[:, v] = 0.0 if then == edge else np.hypot(*np.diff(path, axis=0).T).sum()
    forward = world.edge_dir[q, edge]
    world.veh_pose[:, v, :2] = lane(world, edge, world.edge_cut[q, edge, 0] + s)
    world.veh_pose[:, v, 2] = math.atan2(forward[1], forward[0])


def lane(world, edge, m):
    """A point of a lane, m metres along its edge."""
    x, y = world.edge_dir[0, edge]
    right = 0.5 * world.road_half[0] * np.array([y, -x])
    return world.node_xy[0, world.edge[0, edge, 0]] + m * world.edge_dir[0, edge] + right


def curve(world, e, f, points=2001):
    """Points of the path from edge e to edge f: a Bezier curve around the intersection of the lanes."""
    p0 = lane(world, e, world.edge_len[0, e] - world.edge_cut[0, e, 1])
    p2 = lane(world, f, world.edge_cut[0, f, 0])
    across = np.column_stack([world.edge_dir[0, e], -world.edge_dir[0, f]])
    p1 = 0.5 * (p0 + p2)
    if abs(np.linalg.det(across)) > 1e-6:
        p1 = p0 + np.linalg.solve(across, p2 - p0)[0] * world.edge_dir[0, e]
    u = np.linspace(0, 1, points)[:, None]
    return (1 - u) ** 2 * p0 + 2 * u * (1 - u) * p1 + u**2 * p2


def gap(world, follower, leader, row=0):
    """Gap between the bumpers of two cars on one straight line."""
    far = np.hypot(*(world.veh_pose[row, leader, :2] - world.veh_pose[row, follower, :2]))
    return far - 0.5 * KIND_SIZES[world.veh_kind[row, [follower, leader]], 0].sum()


def corners(pose, length, width):
    """The corners of rectangles, (n, 4, 2)."""
    forward = np.stack([np.cos(pose[:, 2]), np.sin(pose[:, 2])], -1)
    left = np.stack([-forward[:, 1], forward[:, 0]], -1)
    a, b = 0.5 * length[:, None] * forward, 0.5 * width[:, None] * left
    return pose[:, None, :2] + np.stack([a + b, a - b, -a - b, b - a], 1)


def overlaps(world):
    """(row, i, j) of every two cars whose rectangles overlap: no side of either separates them."""
    length, width = KIND_SIZES[world.veh_kind, 0], KIND_SIZES[world.veh_kind, 1]
    there = world.veh_on & (world.veh_kind != PEDESTRIAN)
    place, reach = world.veh_pose[:, :, :2], 0.5 * np.hypot(length, width)
    first, second = np.triu_indices(there.shape[1], 1)
    apart = np.square(place[:, first] - place[:, second]).sum(-1)
    near = there[:, first] & there[:, second] & (apart < (reach[:, first] + reach[:, second]) ** 2)
    row, pair = np.nonzero(near)
    i, j = first[pair], second[pair]
    boxes = [corners(world.veh_pose[row, v], length[row, v], width[row, v]) for v in (i, j)]
    parted = np.zeros(len(row), bool)
    for sides in boxes:
        for k in (0, 1):
            normal = sides[:, k] - sides[:, k + 1]
            one, other = (np.einsum("nkd,nd->nk", box, normal) for box in boxes)
            parted |= (one.max(1) <= other.min(1)) | (other.max(1) <= one.min(1))
    return list(zip(row[~parted], i[~parted], j[~parted]))


def off_road(world, v=0):
    """Distance of each row's vehicle v from the nearest centre line."""
    least = np.full(world.num_envs, np.inf)
    place = world.veh_pose[:, v, :2]
    rows = np.arange(world.num_envs)
    for e in range(0, int(world.n_edge.max()), 2):
        from_start = place - world.node_xy[rows, world.edge[:, e, 0]]
        m = np.clip((from_start * world.edge_dir[:, e]).sum(1), 0, world.edge_len[:, e])
        far = np.hypot(*(from_start - m[:, None] * world.edge_dir[:, e]).T)
        least = np.where(e < world.n_edge, np.minimum(least, far), least)
    return least
