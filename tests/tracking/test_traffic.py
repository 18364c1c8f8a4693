"""Cars on lanes: the driver model, bends, junctions with one holder, halts, turns, and the cars of an episode."""

from __future__ import annotations

import math

import numpy as np
import pytest

from milkrun.core.check.bench import TOLERANCE, first_difference
from milkrun.core.rng import exponential, stream, uniform
from milkrun.tracking.streams import HALT_TIMES, HALTS
from milkrun.tracking.tables import CAR_COLOURS, KIND_SIZES, SCENE_LAWS, SCENES
from milkrun.tracking.traffic import DT, idm
from tests.tracking.traffic_tools import Traffic, advance, build, curve, gap, make, off_road, overlaps, put

CROSS = [(0, 0), (100, 0), (0, 100), (-100, 0), (0, -100)]
ARMS = [(0, 1), (0, 2), (0, 3), (0, 4)]
"""Edge 2k leads from the middle to arm k + 1 (east, north, west, south), edge 2k + 1 from there to the middle."""

ENTRIES = ("veh_on", "veh_kind", "veh_v0", "veh_v", "veh_s", "veh_pose", "veh_rgb", "veh_edge", "veh_to", "veh_curve")


def crossing(num_envs=1, **options):
    return build(CROSS, ARMS, guarded=range(5), cut=6.0, num_envs=num_envs, **options)


def roll(world, steps):
    assert not world.map_rows(advance, x=steps).any()


@pytest.mark.parametrize(
    "args, wanted",
    [
        ((10.0, 15.0, 20.0, 2.0), 0.268689625),
        ((10.0, 15.0, np.inf, 0.0), 2.407407407),
        ((0.0, 12.0, 30.0, 0.0), 2.986666667),
        ((12.0, 14.0, 15.0, -1.5), -1.159233285),
        ((10.0, 15.0, 15.628376558, 0.0), 0.0),
    ],
)
def test_driver_model(args, wanted):
    """3 (1 - (v/v0)^4 - (s*/gap)^2) with s* = 2 + 1.2 v + v dv / (2 sqrt 12)."""
    assert idm.py_func(*args) == pytest.approx(wanted, abs=2e-9)


def test_two_cars_settle_at_the_gap_of_the_model():
    """Behind a car at 10 m/s a car with desired speed 15 stays (2 + 12) / sqrt(1 - (10/15)^4) = 15.628 m back."""
    world = build([(0, 0), (3000, 0)], [(0, 1)], ends=True)
    put(world, 0, edge=0, s=100, speed=10, v0=10)
    put(world, 1, edge=0, s=40, speed=14, v0=15)
    roll(world, 60_000)
    assert gap(world, 1, 0) == pytest.approx(14 / math.sqrt(1 - (10 / 15) ** 4), abs=0.01)
    assert gap(world, 1, 0) == pytest.approx(15.628376558, abs=0.01)
    assert world.veh_v[0, 1] == pytest.approx(10, abs=1e-3)


def test_a_first_step_by_hand():
    """Accelerations use the state at the start of the step, so not the leader's new speed."""
    world = build([(0, 0), (500, 0)], [(0, 1)], ends=True)
    put(world, 0, edge=0, s=150, speed=8, v0=15)
    put(world, 1, edge=0, s=150 - 4.6 - 20, speed=10, v0=15)
    roll(world, 1)
    assert world.veh_v[0, 0] == pytest.approx(8 + 3 * (1 - (8 / 15) ** 4) * DT, abs=1e-12)
    assert world.veh_v[0, 1] == pytest.approx(10 + 0.268689625 * DT, abs=1e-11)
    assert world.veh_s[0, 1] == pytest.approx(125.4 + world.veh_v[0, 1] * DT, abs=1e-12)
    assert world.veh_pose[0, 1].tolist() == pytest.approx([2 + world.veh_s[0, 1], -2, 0])


def test_no_car_brakes_harder_than_nine():
    """At 10 m/s 3 m behind a standing car: the model alone would brake far harder than 9 m/s2."""
    world = build([(0, 0), (500, 0)], [(0, 1)], ends=True)
    put(world, 0, edge=0, s=150, speed=0)
    put(world, 1, edge=0, s=150 - 4.6 - 3, speed=10)
    roll(world, 1)
    assert world.veh_v[0, 1] == pytest.approx(10 - 9 * DT)


def test_the_length_of_a_curve_is_right_within_a_thousandth():
    """Three-point Gaussian quadrature compared with a polyline: a quarter turn of legs 6 + 2 m."""
    world = build([(-50, 0), (0, 0), (0, 50), (50, 50)], [(0, 1), (1, 2), (2, 3)], cut=6.0, ends=True)
    put(world, 0, edge=0, s=30, speed=5)
    while world.veh_edge[0, 0] == 0:
        roll(world, 1)
    assert world.veh_to[0, 0] == 4
    length = np.hypot(*np.diff(curve(world, 2, 4), axis=0).T).sum()
    assert world.veh_curve[0, 0] == pytest.approx(length, rel=1e-3)


def test_a_car_vanishes_at_the_end_of_a_straight_road():
    """The pose stays at the end of the road, and the follower continues as on a free road."""
    world = build([(0, 0), (100, 0)], [(0, 1)], cut=0.0, ends=True)
    put(world, 0, edge=0, s=99.99, speed=10)
    put(world, 1, edge=0, s=80, speed=5)
    roll(world, 1)
    assert not world.veh_on[0, 0] and world.veh_on[0, 1]
    assert world.veh_pose[0, 0].tolist() == pytest.approx([100, -2, 0])
    speed = world.veh_v[0, 1]
    roll(world, 1)
    assert world.veh_pose[0, 0].tolist() == pytest.approx([100, -2, 0])
    assert world.veh_v[0, 1] - speed == pytest.approx(3 * (1 - (speed / 15) ** 4) * DT)


def test_one_car_at_a_time_crosses_and_the_lowest_number_goes_first():
    """Four cars reach a crossing at once: each passes alone, 0 before 1 before 2 before 3."""
    world = crossing()
    for v, to in enumerate((4, 6, 0, 2)):  # straight on
        put(world, v, edge=2 * v + 1, s=70, speed=8, v0=12, to=to)
    held, inside = [], set()
    for _ in range(2000):
        roll(world, 5)
        holder = int(world.node_owner[0, 0])
        if holder >= 0 and (not held or held[-1] != holder):
            held.append(holder)
        near = np.abs(world.veh_pose[0, :4, :2]).max(axis=1) < 6
        inside |= {tuple(np.flatnonzero(near))}
        assert not overlaps(world)
        if len(held) == 4 and holder < 0:
            break
    assert held == [0, 1, 2, 3]
    assert all(len(cars) <= 1 for cars in inside)


def test_a_closed_line_stops_a_car():
    """It stands s0 = 2 m before its goal, which is 0.5 m before the line, and never crosses."""
    world = crossing()
    put(world, 0, edge=3, s=40, speed=0, v0=12)
    put(world, 1, edge=1, s=30, speed=12, v0=12, to=4)
    world.node_owner[0, 0] = 0
    world.halt_left[0] = 1e6  # the holder does not move
    roll(world, 10_000)
    assert world.node_owner[0, 0] == 0
    assert world.veh_v[0, 1] < 0.01
    assert 88 - world.veh_s[0, 1] - 2.3 == pytest.approx(2.5, abs=0.02)


def test_a_junction_is_not_granted_while_its_exit_is_full():
    """A car stands 6 m beyond the zone: a sedan and s0 need 6.6 m. With 0.7 m more it is granted."""
    for beyond, given in ((6.0, -1), (6.7, 1)):
        world = crossing()
        put(world, 0, edge=4, s=beyond + 2.3, speed=0)
        put(world, 1, edge=1, s=80, speed=3, to=4)
        world.halt_left[0] = 1.0
        roll(world, 1)
        assert world.node_owner[0, 0] == given


def test_a_junction_is_requested_within_braking_distance_and_five_metres():
    """At 8 m/s that is 8 + 5 = 13 m from the front to the line."""
    for left, given in ((13.1, -1), (12.9, 0)):
        world = crossing()
        put(world, 0, edge=1, s=88 - 2.3 - left, speed=8, to=4)
        roll(world, 1)
        assert world.node_owner[0, 0] == given


def test_only_the_first_car_of_a_queue_requests_a_junction():
    """The car behind has the lower number and is near enough; it must not reserve the junction before its leader."""
    world = crossing()
    put(world, 0, edge=1, s=88 - 2.3 - 9.5, speed=7, to=4)
    put(world, 1, edge=1, s=88 - 2.3 - 2.5, speed=0, to=4)
    roll(world, 1)
    assert world.node_owner[0, 0] == 1


def test_a_junction_is_free_again_when_the_rear_has_left():
    world = crossing()
    put(world, 0, edge=1, s=80, speed=6, to=4)
    rear = -1.0
    for _ in range(6000):
        before = rear
        roll(world, 1)
        rear = world.veh_s[0, 0] - 2.3 if world.veh_edge[0, 0] == 4 and not world.veh_turning[0, 0] else -1.0
        if before > -1 and world.node_owner[0, 0] < 0:
            break
    assert before <= 0 < rear


def test_an_edge_too_short_to_wait_on_causes_no_deadlock():
    """A sedan 2.5 m before the line of a 4 m edge has not reached that edge: it requests from the previous one."""
    nodes = [(-60, 0), (-10, 2), (0, 0), (60, 0), (0, 60)]
    world = build(nodes, [(0, 1), (1, 2), (2, 3), (2, 4)], guarded=(0, 2, 3, 4), cut={0: 6, 1: 2, 2: 4.1, 3: 6, 4: 6})
    assert world.edge_len[0, 2] - world.edge_cut[0, 2].sum() < 2.3 + 2.5
    put(world, 0, edge=5, s=40, speed=0, v0=12)
    put(world, 1, edge=0, s=20, speed=10, v0=12)
    world.node_owner[0, 2], world.halt_left[0] = 0, 10.0
    roll(world, 4900)
    assert world.veh_v[0, 1] < 0.01 and world.veh_edge[0, 1] == 0
    roll(world, 5000)
    assert world.veh_edge[0, 1] in (4, 6)


def test_junctions_close_together_do_not_deadlock():
    """A car that cannot stand between two junctions reserves both; otherwise two opposing cars would deadlock."""
    nodes = [(0, 0), (20, 0), (-60, 0), (80, 0), (0, 60), (20, -60)]
    roads = [(0, 1), (0, 2), (1, 3), (0, 4), (1, 5)]
    world = build(nodes, roads, guarded=range(6), cut={0: 7, 1: 7, 2: 6, 3: 6, 4: 6, 5: 6})
    put(world, 0, edge=3, s=35, speed=8, v0=10, to=0)
    put(world, 1, edge=5, s=35, speed=8, v0=10, to=1)
    through = [False, False]
    for _ in range(400):
        roll(world, 20)
        assert not overlaps(world)
        through = [through[0] or world.veh_edge[0, 0] in (4, 8), through[1] or world.veh_edge[0, 1] in (2, 6)]
    assert all(through)


@pytest.mark.parametrize("to, turned", [(6, math.pi / 2), (2, -math.pi / 2), (4, 0.0)])
def test_turns_follow_the_curve_between_the_lanes(to, turned):
    """From the east to the south (left), to the north (right), or straight on. The path is a Bezier curve around the
    crossing of the lanes, the heading follows it without a jump, and every sim step is v dt long."""
    world = crossing()
    put(world, 0, edge=1, s=70, speed=5, v0=9, to=to)
    path, wanted = [world.veh_pose[0, 0].copy()], curve(world, 1, to)
    rates, steps = [], []
    while world.veh_edge[0, 0] == 1:
        roll(world, 1)
        path.append(world.veh_pose[0, 0].copy())
        rates.append(world.veh_rate[0])
        steps.append(np.hypot(*(path[-1] - path[-2])[:2]) / (world.veh_v[0, 0] * DT))
        if world.veh_turning[0, 0]:
            assert np.hypot(*(wanted - path[-1][:2]).T).min() < 0.01
    assert np.hypot(*(path[-1][:2] - wanted[-1])) < 0.03
    assert sum(rates) * DT == pytest.approx(turned, abs=1e-6)
    assert np.abs(rates).max() < (2.5 if turned else 1e-6)  # rad/s
    assert np.abs(np.array(steps) - 1).max() < 0.01


def test_cars_slow_down_for_turns():
    """At a right angle R = c = 6 m: sqrt(4 R) = 4.9 m/s. The car is no faster from the line to the end of its curve."""
    world = crossing()
    put(world, 0, edge=1, s=20, speed=12, v0=14, to=2)
    while world.veh_edge[0, 0] == 1:
        roll(world, 1)
        if world.veh_turning[0, 0]:
            assert 4.4 < world.veh_v[0, 0] < math.sqrt(24) + 0.25


@pytest.mark.parametrize(
    "bend, s, wanted",
    [
        (0.5, 28.7, math.sqrt(320 + 8 * 5)),
        (0.5, 35.0, math.sqrt(320)),
        (0.5, 2.0, 20.0),
        (0.19, 28.7, 20.0),
    ],
)
def test_cars_slow_down_for_bends_but_do_not_wait(bend, s, wanted):
    """A bend of 0.5 rad at the end of 40 m: R = 80 m, vt = sqrt(4 R). The wanted speed is sqrt(vt^2 + 8 x 5) with the
    front 5 m before the bend, and vt beyond it. Far before it, or for a bend below 0.2 rad, no car slows down."""
    nodes = [(-240, 0), (-40, 0), (0, 0), (200 * math.cos(bend), 200 * math.sin(bend))]
    world = build(nodes, [(0, 1), (1, 2), (2, 3)], ends=True)
    put(world, 0, edge=2, s=s, speed=19, v0=20)  # of 36 m between the zones; the car is 4.6 m long
    roll(world, 1)
    assert (world.veh_v[0, 0] - 19) / DT == pytest.approx(3 * (1 - (19 / wanted) ** 4), abs=1e-9)
    roll(world, 1200)
    assert world.veh_edge[0, 0] == 4 and (world.node_owner[0] == -1).all()


def test_leaders_are_seen_through_bends():
    """A car that stands 50 m ahead, after two bends, stops its follower at 2 m."""
    nodes = [(0, 0), (60, 0), (60 + 20 * math.cos(0.4), 20 * math.sin(0.4)), (140, 40)]
    world = build(nodes, [(0, 1), (1, 2), (2, 3)], ends=True)
    put(world, 0, edge=4, s=12, speed=0)
    put(world, 1, edge=0, s=20, speed=14, v0=14)
    world.halt_left[0] = 1e6
    roll(world, 10_000)
    assert world.veh_v[0, 1] < 0.01
    assert gap(world, 1, 0) == pytest.approx(2, abs=0.1)


def test_target_halts_brake_with_four_and_are_drawn_one_by_one():
    """From 10 m/s: 8 after half a second, then it stands. Lengths 0.5 to 2 s; the next halt is drawn at its end."""
    world = build([(0, 0), (3000, 0)], [(0, 1)], ends=True, halt_rate=0.5)
    put(world, 0, edge=0, s=50, speed=10, v0=10)
    put(world, 1, edge=1, s=50, speed=10, v0=10)
    world.next_halt[0], world.sim_step[0] = 0.1, 0
    roll(world, 50)
    assert world.halts[0] == 0 and world.veh_v[0, 0] == pytest.approx(10)
    roll(world, 1)
    world.veh_v[0, 0] = 10
    assert world.halts[0] == 1
    key = [int(word) for word in world.stream[0]]
    length = 0.5 + 1.5 * uniform(stream(*key, HALT_TIMES), 0)
    wait = exponential(stream(*key, HALTS), 1, 2.0)
    assert world.halt_left[0] == pytest.approx(length - DT)
    assert world.next_halt[0] == pytest.approx(0.1 + length + wait)
    roll(world, 100)
    assert world.veh_v[0, 0] == pytest.approx(10 - 4 * 100 * DT)
    assert world.veh_v[0, 1] == pytest.approx(10)


def test_halts_have_the_given_rate():
    """300 targets, 60 s, 0.2 halts a second of driving, 1.25 s each: 60 / (5 + 1.25) = 9.6 on average."""
    world = build([(0, 0), (3000, 0)], [(0, 1)], ends=True, halt_rate=0.2, num_envs=300)
    put(world, 0, edge=0, s=50, speed=10, v0=10)
    world.next_halt[:] = 0
    roll(world, 30_000)
    assert world.halts.mean() == pytest.approx(1 + 60 / 6.25, rel=0.05)


@pytest.mark.parametrize(
    "edge, shares",
    [
        (1, {4: 0.5, 2: 0.25, 6: 0.25}),  # a crossing: straight on is west
        (3, {0: 0.5, 4: 0.5}),  # a junction without a road straight on
        (5, {0: 1.0}),  # only straight on
    ],
)
def test_shares_of_turns(edge, shares):
    """Straight on half of the time, the others share the rest; all of it without another kind."""
    world = crossing(num_envs=4000, seed=3)
    for e, then in ((3, (0, 4)), (5, (0,))):
        world.edge_ways[:, e] = len(then)
        world.edge_next[:, e] = 0
        world.edge_next[:, e, : len(then)] = then
    put(world, 0, edge=edge ^ 1, s=0, speed=5)
    world.veh_edge[:, 0], world.veh_to[:, 0] = edge ^ 1, edge  # turns back, and draws after it
    world.veh_turning[:, 0], world.veh_s[:, 0] = True, 0.9999
    world.node_owner[:, world.edge[0, edge, 0]] = 0
    roll(world, 2)
    assert (world.veh_edge[:, 0] == edge).all() and (world.veh_draws[:, 0] == 1).all()
    for to, share in shares.items():
        assert (world.veh_to[:, 0] == to).mean() == pytest.approx(share, abs=0.025)
    for to in shares:
        row = np.flatnonzero(world.veh_to[:, 0] == to)[0]
        path = curve(world, edge, to)
        assert world.veh_curve[row, 0] == pytest.approx(np.hypot(*np.diff(path, axis=0).T).sum(), rel=1e-3)


def test_interpreted_is_compiled():
    """The same kernels as plain Python, every access checked: equal whole numbers, and floats within the tolerance."""
    for scene in ("downtown", "desert"):
        one, two = (make(2, seed=5, scene=scene, debug=debug) for debug in (False, True))
        for world in (one, two):
            world.halt_left[:] = (0.01, 0.0)
            for _ in range(3):
                assert not world.map_rows(advance, x=10).any()
        for name in (*ENTRIES, "veh_draws", "veh_rate", "node_owner", "next_halt", "halt_left"):
            assert first_difference(name, getattr(one, name), getattr(two, name), TOLERANCE) is None, scene


# -- the cars of an episode ---------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=SCENES)
def fresh(request):
    return make(200, seed=9, scene=request.param)


def test_cars_of_a_scene(fresh):
    """The scene's number, kinds and speeds; the target in the middle; no entries beyond the count."""
    law = SCENE_LAWS[SCENES.index(fresh.config.scene)]
    n = int(law[10])
    assert (fresh.n_veh == n).all() and fresh.veh_on[:, 0].all() and fresh.veh_on[:, :n].mean() > 0.99
    assert (law[11] <= fresh.veh_v0[:, :n]).all() and (fresh.veh_v0[:, :n] <= law[12]).all()
    assert (fresh.veh_v <= fresh.veh_v0).all()
    assert np.abs(fresh.veh_pose[:, 0, :2]).max() <= 55
    assert (fresh.node_owner == -1).all() and (fresh.veh_rate == 0).all() and (fresh.halts == 0).all()
    for name in ENTRIES:
        assert not getattr(fresh, name)[:, n:].any(), name
    kinds = np.bincount(fresh.veh_kind[:, :n].ravel(), minlength=8) / (200 * n)
    assert kinds[:4].tolist() == pytest.approx([0.35, 0.15, 0.25, 0.15], abs=0.05)
    assert kinds[4] > 0 if fresh.config.scene in ("citystreet", "downtown") else kinds[4] == 0
    assert not kinds[6:].any()


def test_cars_start_apart_and_outside_junctions(fresh):
    """Middles 8 m and both half lengths apart, except on opposite lanes; no end in the zone of a guarded node."""
    half = 0.5 * KIND_SIZES[fresh.veh_kind, 0]
    rows = np.arange(200)
    for v in range(int(fresh.n_veh[0])):
        e = fresh.veh_edge[:, v]
        free = fresh.edge_len[rows, e] - fresh.edge_cut[rows, e].sum(1)
        for end, room in ((0, fresh.veh_s[:, v]), (1, free - fresh.veh_s[:, v])):
            guarded = fresh.guarded[rows, fresh.edge[rows, e, end]]
            assert (~fresh.veh_on[:, v] | ~guarded | (room >= half[:, v])).all()
        for o in range(v):
            far = np.hypot(*(fresh.veh_pose[:, v] - fresh.veh_pose[:, o])[:, :2].T)
            both = fresh.veh_on[:, v] & fresh.veh_on[:, o]
            assert (~both | (e == fresh.veh_edge[:, o] ^ 1) | (far >= 8 + half[:, v] + half[:, o])).all()
    assert not overlaps(fresh)
    assert off_road(fresh) == pytest.approx(fresh.road_half / 2)


def test_places_are_uniform_along_the_lanes():
    """On the lane without the target, the next car is uniform: a quarter of them in each quarter."""
    world = make(3000, seed=2, curriculum="straight")
    along = world.veh_s[:, 1][world.veh_edge[:, 1] == 1]
    counts = np.histogram(along, 4, (0, world.edge_len[0, 1] - world.edge_cut[0, 1].sum()))[0]
    assert counts.sum() == len(along) > 1400
    assert counts / len(along) == pytest.approx(np.full(4, 0.25), abs=0.04)


@pytest.mark.parametrize("stage, cars", [("straight_mono", 1), ("straight", 7)])
def test_the_curriculum_starts_before_the_centre(stage, cars):
    """One road, the target 0 to 60 m before its middle and driving; red if it is alone."""
    world = make(300, seed=1, curriculum=stage)
    assert (world.n_veh == cars).all() and (world.veh_v[:, 0] > 0).all()
    x, y, heading = world.veh_pose[:, 0].T
    ahead = -(x * np.cos(heading) + y * np.sin(heading))
    assert ahead.min() >= 0 and ahead.max() <= 60 and ahead.mean() == pytest.approx(30, abs=3)
    assert ((world.veh_rgb[:, 0] == (255, 0, 0)).all(axis=1)).all() == (cars == 1)
    roll(world, 1500)
    assert world.veh_on[:, 0].mean() > 0.99


def test_given_colours_and_kinds_are_used():
    world = make(50, target_rgb=(1, 2, 3), same_colour=1.0, target_kinds=("bus", "motorcycle"))
    assert (world.veh_rgb[:, :16] == (1, 2, 3)).all()
    assert set(world.veh_kind[:, 0]) == {4, 6}
    world = make(100, same_colour=0.0)
    assert {tuple(c) for c in world.veh_rgb[:, :16].reshape(-1, 3)} == {tuple(map(int, c)) for c in CAR_COLOURS}
    assert make(1, max_vehicles=5).n_veh[0] == 5


def test_pedestrians_walk_along_the_road_and_cars_ignore_them():
    """1 to 2 m/s, half the road's width and 1 m from its centre line; no junction is held for them."""
    world = make(40, target_kinds=("pedestrian",), halt_rate=0.0)
    assert (1 <= world.veh_v0[:, 0]).all() and (world.veh_v0[:, 0] <= 2).all()
    assert off_road(world) == pytest.approx(world.road_half + 1)
    for _ in range(30):
        roll(world, 500)
        assert (world.node_owner != 0).all()
    assert world.veh_v[:, 0] == pytest.approx(world.veh_v0[:, 0], abs=1e-6)
    assert (world.veh_draws[:, 0] > 1).mean() > 0.3
    assert not overlaps(world)


def test_cars_can_still_brake_at_the_start(fresh):
    """No car has to brake harder than the maximum of 9 m/s2 in the first second."""
    world = Traffic(200, fresh.config, seed=9)
    world.reset()
    for _ in range(50):
        before = world.veh_v.copy()
        roll(world, 10)
        assert ((before - world.veh_v) <= 9 * 10 * DT + 1e-9).all()
