"""The clutter reference against numbers worked out by hand: forces, stages, payments, ends, what is seen of a row.

A flat sugar box lies 89 x 175 mm, 38 mm high; alone, its tray is 1.15 x .175 = .20125 wide, so the cup drops objects at
(0, .300625, .45). No world takes part.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="needs milkrun[clutter]")

import mujoco

from .clutter import ClutterRow
from .clutter_physics import CATALOGUE, DEFAULT, PRESETS, full_extents, norm, park_slot
from .clutter_scenes import UP, dropped_pile, laid, on_tray
from .clutter_state import CARRY, DROPPED, IDLE, ILLEGAL, PHYSICS_ERROR, SUCCESS

SUGAR, MUSTARD, PUDDING = DEFAULT["box_objects"]
BLOCK = "036_wood_block"
RISING = (0.622, 0.794, 0.888, 0.940, 0.968)  # force / m(g+8) in the ticks of a lift
ROOM = {"tray_side": 0.5}


def near(value, tolerance=1e-6):
    return pytest.approx(value, rel=0, abs=tolerance)


def alone(name=SUGAR, mass=None, **options):
    """One flat object, of another mass if told."""
    kind = CATALOGUE[name] if mass is None else (*CATALOGUE[name][:2], mass)
    return laid(("thing",), on_tray(kind), kinds={"thing": kind}, **options)


def listen(row):
    """Collects the mean force of every tick in which the engine runs."""
    heard, run = [], row.engine.run

    def noted(path):
        forces, fault = run(path)
        heard.append(sum(norm(force) for force in forces) / len(forces))
        return forces, fault

    row.engine.run = noted
    return heard


def pair(**options):
    """Two flat sugar boxes far from each other."""
    return laid((SUGAR,), on_tray(SUGAR, y=-0.15), on_tray(SUGAR, y=0.15), **ROOM | options)


def play(row, *actions):
    return [row.step(action) for action in actions]


@pytest.mark.parametrize("name", [SUGAR, MUSTARD, PUDDING])
def test_force_of_a_lift(name):
    """A lone flat object pulls with m(g+8) times a rising share and is clear after five ticks."""
    row = alone(name)
    heard = listen(row)
    row.step(0)
    mass = CATALOGUE[name][2]
    assert [force / (mass * 17.81) for force in heard[:5]] == near(list(RISING), 0.015)
    assert row.log[0]["load"] == near(0.968 * mass * 17.81 / 40, 0.015 * mass * 17.81 / 40)
    assert (row.grasped, row.last_result) == ([True], SUCCESS)


def test_force_of_a_sleeping_object():
    """After a first pick the pile sleeps, and what is picked then starts with the same share of its weight."""
    row = pair()
    row.step(0)
    assert row.asleep and (np.array(row.engine.data.tree_asleep) >= 0).all()
    heard = listen(row)
    row.step(1)
    assert [force / (0.514 * 17.81) for force in heard[:5]] == near(list(RISING), 0.015)


@pytest.mark.parametrize(
    ("force", "mass", "result"), [(40, 2.2, SUCCESS), (40, 2.5, DROPPED), (20, 1.1, SUCCESS), (20, 1.25, DROPPED)]
)
def test_the_cup_holds_its_force(force, mass, result):
    """A lift needs up to .968 m 17.81 N: 37.9 with 2.2 kg; 2.5 kg need 41.9 in the fourth tick; half with 20 N."""
    row = alone(mass=mass, suction_force=force)
    row.step(0)
    assert row.last_result == result
    assert row.fails == [int(result == DROPPED)]
    drawn = laid((SUGAR,), on_tray(SUGAR), mass_range=(0.1, 9))
    drawn.reset(np.array([on_tray(SUGAR)]), mass=np.array([mass]), suction_limit=force)
    drawn.step(0)
    assert drawn.last_result == result
    assert drawn.log[0]["load"] == near(row.log[0]["load"])


def test_lengths_of_the_stages():
    """45 ticks of .01 m from .6 to .158, 25 down, 5 to grip, 5 to lift, 47 over .4629 m, 5 to release, 0 to settle.

    The lift ends at .058 + 4 x .1^2 = .098, so the way to the drop is that of (.300625, .352).
    """
    row, stages = alone(step_mode="tick"), []
    while not row.done:
        reward = row.step(0)
        stages.append(row.env_stage)
    ends = [stages.index(stage) + 1 for stage in range(2, 7)]
    assert ends == [45, 70, 75, 80, 127]
    assert (row.tick_count, row.env_stage, row.settle_tick) == (132, IDLE, 52)
    assert reward == near(1 + 2 - 0.01 * 132 * 0.02)
    assert row.cup_pos == near((0, 0.300625, 0.45))


def test_the_cup_goes_straight():
    """After 9 of 45 ticks the cup has gone a fifth of its way; it stands still in GRIP; LIFT rises by 4 t^2."""
    row = alone(step_mode="tick")
    play(row, *[0] * 9)
    assert row.cup_pos == near((0, 0, 0.6 - 0.442 / 5))
    play(row, *[0] * 66)
    assert (row.cup_pos, row.is_suction_active) == (near((0, 0, 0.058)), True)
    play(row, 0, 0)
    assert row.cup_pos == near((0, 0, 0.058 + 4 * 0.04**2))
    assert (row.current_suction_object, row.lift_from) == (0, near(0.058))


def lifted(row):
    """Object 0 has just left the pile, in tick mode."""
    row.step(0)
    while row.env_stage != CARRY:
        row.step(0)
    return row


def test_a_neighbour_delays_clearance():
    """Beside a wood block, .105 high, the bottom must rise by .095 to pass .115, which takes ten ticks.

    A weld of time constant .02 that does not know the cup's speed follows 4t^2 as 4t^2 - .32t + .0098, and a substep on
    by its speed: .089 after nine ticks, .114 after ten.
    """
    poses = on_tray(SUGAR), on_tray(BLOCK, y=0.15)
    row = lifted(laid((SUGAR, BLOCK), *poses, step_mode="tick", **ROOM))
    assert row.tick_count == 45 + 25 + 5 + 10
    assert row.grasped == [True, False]


def test_a_lift_ends_after_thirteen_ticks():
    """What cannot clear a very high neighbour is out after ceil(.25/.02) ticks all the same."""
    tower = ("box", (0.05, 0.05, 0.5), 0.5)
    poses = on_tray(SUGAR), on_tray(tower, y=0.15, q=UP)
    row = lifted(laid((SUGAR, "tower"), *poses, kinds={"tower": tower}, step_mode="tick", **ROOM))
    assert row.tick_count == 45 + 25 + 5 + 13


def test_a_drop_is_paid_and_may_be_tried_again():
    """A drop costs .5 and its time; the object stays in play with one failure; the fifteenth attempt ends it."""
    row = alone(mass=2.5)
    for attempt in range(1, 16):
        reward = row.step(0)
        assert reward == near(-0.5 - 0.01 * row.last_ticks * 0.02)
        assert (row.fails, row.step_count, row.terminated) == ([attempt], attempt, attempt == 15)
    assert not row.success and row.objective == near(-7.5 - 0.0002 * row.tick_count)
    logs = row.log_fields()
    assert logs["log_result"].tolist() == [DROPPED] * 15 and logs["log_ticks"].sum() == row.tick_count
    assert logs["log_load"] == near(np.full(15, 0.940 * 2.5 * 17.81 / 40), 0.0167)
    assert row.action_mask == [True]


def test_payment_of_a_disturbing_pick():
    """Pulling a box from under another pays 1 - 2D - .25 - time, D being how far the upper one's centre moved."""
    row = laid((SUGAR,), on_tray(SUGAR), on_tray(SUGAR, x=0.175 * 0.45, y=0.02, above=0.038), **ROOM)
    before = np.array(row.centre(1))
    assert row.blocked == [True, False]
    reward = row.step(0)
    moved = float(np.linalg.norm(np.array(row.centre(1)) - before))
    assert row.last_result == SUCCESS and moved > 0.03
    assert reward == near(1 - 2 * min(moved, 0.5) - 0.25 - 0.01 * row.last_ticks * 0.02)
    assert (row.last_disturbance, row.disturbance) == (near(moved), near(moved))
    assert row.last_displacement == near(np.array([0, moved]))


def test_small_movements_count_nothing():
    """A neighbour that comes to rest within 2 mm of its place disturbs nothing, though its movement is told."""
    row = laid((SUGAR,), on_tray(SUGAR, y=-0.15), on_tray(SUGAR, y=0.15, above=0.001), **ROOM)
    reward = row.step(0)
    assert 0 < row.last_displacement[1] < 0.002
    assert row.last_disturbance == 0
    assert reward == near(1 - 0.01 * row.last_ticks * 0.02)


def test_clearing_pays_and_ends():
    """Two picks clear the tray: 1 + 1 + 2 less time; 3 + 3 + 15 with the seed's payments; figures follow."""
    row = pair()
    play(row, 1, 0)
    assert (row.terminated, row.success, row.grasp_order) == (True, True, [1, 0])
    assert row.objective == near(4 - 0.0002 * row.tick_count)
    assert row.picks_per_hour == near(7200 / (row.tick_count * 0.02), 1e-3)
    assert (row.percent_cleared, row.grasp_success, row.action_efficiency) == (1, 1, 1)
    paid = pair(rewards="seed")
    assert play(paid, 0, 1) == [3, 18]


def test_clearing_with_the_last_attempt_is_success():
    """The second of two attempts takes the last object: success, not merely the end of the budget."""
    row = pair(max_episode_steps_discrete=2)
    play(row, 0, 1)
    assert row.terminated and row.success


def test_parked_objects():
    """A picked object waits at (1+.3(i%4), -.5+.3(i//4), half height) without speed, out of all views."""
    assert park_slot(5, CATALOGUE[SUGAR]) == near((1.3, -0.2, 0.0875, 1, 0, 0, 0))
    row = lifted(pair(step_mode="tick"))
    assert row.engine.pose(0) == near((1, -0.5, 0.0875, 1, 0, 0, 0), 1e-12)
    assert row.engine.velocity(0) == (0,) * 6
    assert row.objects[0, 3:14].tolist() == [0] * 11 and row.objects[0, 17:25].tolist() == [0] * 8
    assert row.objects[0, 14:17].tolist() == [0, 1, 0]
    assert row.objects[0, [0, 1, 2, 25]] == near(np.array([0.19, 0.445, 0.875, 0.514]))
    while row.env_stage != IDLE:
        row.step(0)
    assert (row.exposed[0], row.top[0], row.action_mask) == (0, 0, [False, True])


def test_an_object_outside_is_lost():
    """A box that stands beside the tray is lost when the pick ends, costs 1, and nothing is left in play: the end."""
    outside = (0.0, 0.4, 0.0445, *on_tray(SUGAR, q=UP)[3:])
    row = laid((SUGAR,), on_tray(SUGAR), outside, **ROOM)
    reward = row.step(0)
    assert (row.lost, row.grasped, row.last_lost) == ([False, True], [True, False], 1)
    assert reward == near(1 - 1 - 0.01 * row.last_ticks * 0.02)
    assert row.last_disturbance == 0
    assert (row.terminated, row.success, row.lost_share) == (True, False, 0.5)
    assert row.engine.pose(1)[:2] == near((1.3, -0.5))


def test_the_border_of_lost():
    """Lost begins beyond side/2 + .02 and above .02 + wall + .25."""
    row = pair(tray_wall=0.1)
    for place, outside in [((0.269, 0, 0.1), False), ((0.271, 0, 0.1), True), ((0, -0.271, 0.1), True)]:
        row.engine.data.qpos[:3] = place
        assert row._is_outside(0) == outside
    for z, outside in [(0.369, False), (0.371, True)]:
        row.engine.data.qpos[:3] = 0, 0, z
        assert row._is_outside(0) == outside


@pytest.mark.parametrize("action", [-1, 2, 0])
def test_illegal_actions_cost_an_attempt(action):
    """Out of range or already taken: nothing moves, no tick passes, .5 is paid, an attempt is used."""
    row = pair(max_episode_steps_discrete=3)
    row.step(0)
    before, ticks = row.physics, row.tick_count
    assert row.step(action) == -0.5
    assert row.illegal and row.last_result == ILLEGAL
    assert (row.step_count, row.tick_count, row.terminated) == (2, ticks, False)
    assert row.physics.tobytes() == before.tobytes()
    assert (row.grasp_success, row.action_efficiency) == (1, 0.5)
    row.step(action)
    assert row.terminated and not row.success


def test_busy_rows_read_no_action():
    """In tick mode a busy row allows everything and flags nothing; its attempt is used when the pick ends."""
    row = pair(step_mode="tick")
    row.step(1)
    assert row.action_mask == [True, True] and row.env_busy
    row.step(99)
    assert (row.illegal, row.env_target, row.step_count) == (False, 1, 0)


def test_ticks_run_out():
    """In tick mode the row is cut off at max_ticks, in pick mode never."""
    row = pair(step_mode="tick", max_ticks=10)
    play(row, *[0] * 10)
    assert (row.truncated, row.terminated, row.action_mask) == (True, False, [True, False])
    whole = pair(max_ticks=10)
    whole.step(0)
    assert not whole.done


@pytest.mark.parametrize("canonical", [True, False])
def test_pick_and_tick_are_the_same(canonical):
    """The same choices in a dropped pile, a pick or a tick at a time, give equal bits and rewards, drops among them."""
    picked, ticked = (
        ClutterRow(PRESETS["small_scene"] | {"step_mode": mode, "canonical": canonical}) for mode in ("pick", "tick")
    )
    poses, draw, results = dropped_pile(picked, 5), np.random.default_rng(1), set()
    picked.reset(poses)
    ticked.reset(poses)
    while not picked.done:
        action = int(draw.choice(np.flatnonzero(picked.action_mask)))
        reward = picked.step(action)
        paid = ticked.step(action)
        while ticked.env_stage != IDLE:
            paid += ticked.step(0)
        assert paid == reward
        assert picked.physics.tobytes() == ticked.physics.tobytes()
        assert (picked.action_mask, picked.log) == (ticked.action_mask, ticked.log)
        results.add(picked.last_result)
    assert results == {SUCCESS, DROPPED}


def test_canonical_rows_continue_from_their_fields():
    """A row laid out anew from its state, asleep as it was, plays the next pick to the same bits."""
    row, copy = (ClutterRow(PRESETS["small_scene"]) for _ in range(2))
    poses = dropped_pile(row, 2)
    row.reset(poses)
    copy.reset(poses)
    row.step(int(np.argmax(row.top)))
    assert row.asleep
    state = row.physics
    mujoco.mj_setState(copy.engine.model, copy.engine.data, state, int(mujoco.mjtState.mjSTATE_INTEGRATION))
    copy.engine.place(asleep=True)
    copy.grasped, copy.at_rest, copy.cup_pos = list(row.grasped), True, row.cup_pos
    action = int(np.argmax(row.top))
    row.step(action)
    copy.step(action)
    assert copy.physics.tobytes() == row.physics.tobytes()


def test_a_failing_engine_truncates(tmp_path, monkeypatch):
    """A speed that is no number ends the pick as physics_error; the row lies as at its reset and shows no NaN."""
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log into the current folder
    row = pair()
    row.engine.data.qvel[0] = math.nan
    row.step(0)
    assert (row.last_result, row.truncated, row.terminated) == (PHYSICS_ERROR, True, False)
    assert row.engine.data.qpos.tobytes() == row.init_pose.tobytes()
    assert np.isfinite(row.objects).all() and np.isfinite(row.physics).all()


def test_what_is_seen_at_the_start():
    """The numbers of one flat box at (.05, -.1) in a tray of .5, and of its row."""
    row = laid((SUGAR,), on_tray(SUGAR, x=0.05, y=-0.1), suction_force=30, **ROOM)
    place, columns = [0.2, -0.4, 0.039 / 0.3], [0, 0, -1, 0, 1, 0]
    seen = [1, 0.015575 / 0.02, 0, 0, 0.058 / 0.3, 0, 1, 0]
    expected = [0.19, 0.445, 0.875, *place, *columns, 0, 0, 1, 0, 0, *seen, 0.514]
    assert row.objects[0] == near(np.array(expected))
    assert row.globals == near(np.array([0, 0, 1, 0, 0, 0, 0.75, 0, 0, 0, 0, 1.2]))


def test_sizes_of_tray_and_state():
    """The tray is .24/.18 for 6 objects, .30/.24 for 12, .36/.26 for 18; a state row has 32N + 20 numbers."""
    sizes = ("small_scene", 6, 0.24, 0.18), ("default", 12, 0.3, 0.24), ("large_scene", 18, 0.36, 0.26)
    for preset, n, side, wall in sizes:
        row = ClutterRow(PRESETS[preset])
        row.reset(np.array([park_slot(i, kind) for i, kind in enumerate(row.kinds)]))
        assert (row.N, row.side, row.wall) == (n, near(side, 1e-12), near(wall, 1e-12))
        assert row.physics.shape == (32 * n + 20,)
    assert full_extents(CATALOGUE["005_tomato_soup_can"]) == (0.066, 0.066, 0.101)
