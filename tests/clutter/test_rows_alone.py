"""A row of the clutter world depends only on its key and actions."""

from __future__ import annotations

import numpy as np
import pytest

from .trays import bits, config, differing, made, play, tray

FIXED = {"num_objects_per_type": 2, "seed": 7}


def fifth_row(rows: int, threads: int, first_row: int = 0, **options):
    """Row 5 of seed 7 in its episode 2, after three picks."""
    world = made(rows, threads=threads, first_row=first_row, **FIXED | options)
    b = 5 - first_row
    for _ in range(3):
        world.reset()
    assert world.stream[b].tolist() == [7, 5, 2]
    picks(world, b)
    return world, b


def picks(world, b: int, turns: int = 3) -> None:
    """The same choices in row b in every batch: its second allowed object; other rows choose at random."""
    for turn in range(turns):
        actions = world.sample_actions(world.num_envs, turn)
        allowed = np.flatnonzero(world.action_mask[b])
        actions[b] = allowed[min(1, len(allowed) - 1)]
        live = np.flatnonzero(~world.done)
        world.step(actions[live], rows=live)


@pytest.fixture(scope="module")
def alone():
    world, b = fifth_row(1, 1, first_row=5)
    return bits(world, b)


@pytest.mark.parametrize(("rows", "threads"), [(8, 1), (8, 2), (33, 2)])
def test_batch_and_threads_change_no_bit(alone, rows, threads):
    """Row (7, 5, 2) alone, among 8 and among 33, on one thread and on two."""
    world, b = fifth_row(rows, threads)
    assert differing(alone, bits(world, b)) == []


def test_maps_change_no_bit(alone):
    """The same for the images, which are computed on demand."""
    world, b = fifth_row(8, 1, maps=True, map_size=8)
    world.observe()
    both = set(alone) - {"height", "segmentation"}
    assert differing({name: alone[name] for name in both}, bits(world, b, both)) == []


def test_history_changes_no_bit(alone):
    """Earlier picks, resets of other rows and of itself have no effect."""
    world = tray(8, **FIXED)
    play(world, 2, seed=9)
    world.reset(rows=[0, 5])
    play(world, 1, seed=8)
    world.reset(rows=[5, 6])
    assert world.stream[5].tolist() == [7, 5, 2]
    picks(world, 5)
    assert differing(alone, bits(world, 5)) == []


def test_a_partial_reset_leaves_the_others_alone():
    """Rows 1 and 4 are reset: the others are unchanged to the byte, and continue unchanged."""
    world, same = tray(6, num_objects_per_type=2), tray(6, num_objects_per_type=2)
    for w in (world, same):
        play(w, 2)
    before = [bits(world, b) for b in range(6)]
    world.reset(rows=[4, 1])
    others = [0, 2, 3, 5]
    assert all(differing(before[b], bits(world, b)) == [] for b in others)
    assert (world.step_count[[1, 4]] == 0).all() and (world.grasped[[1, 4]] == 0).all()
    for w in (world, same):
        live = [b for b in others if not w.done[b]]
        w.step(w.sample_actions(4, 9)[live], rows=live)
    assert all(differing(bits(same, b), bits(world, b)) == [] for b in others)


def test_other_rows_do_not_affect_a_row():
    """In all rows but 3 the objects are thrown far away with an active cup: row 3 plays the same bits."""
    world, same = tray(5, num_objects_per_type=2, threads=2), tray(5, num_objects_per_type=2)
    others = [0, 1, 2, 4]
    world.obj_pose[others, :, :3] = 1e3
    world.obj_vel[others] = 50.0
    world.physics[others, world.at_active : world.at_active + 6] = 1.0
    world.is_suction_active[others] = True
    for turn in range(3):
        action = same.sample_actions(0, turn)
        world.step(action, rows=np.arange(5)) if turn == 0 else world.step(action[[3]], rows=[3])
        same.step(action[[3]], rows=[3])
    assert differing(bits(same, 3), bits(world, 3)) == []


def test_keys_of_scenes():
    """Scene k of a bank does not depend on the size of the bank."""
    from milkrun.clutter import bank

    few, many = bank.settled(config(bank_seed=5), range(2)), bank.settled(config(bank_seed=5), range(1, 4))
    assert few[1].tobytes() == many[0].tobytes()


def test_objects_with_unchanged_poses_also_start_awake():
    """A new episode restores one object and finds the others asleep at equal poses. The next pick equals that of a new
    world. MuJoCo itself only wakes objects with changed poses."""
    played, fresh = (tray(2, autoreset="disabled", tray_side=0.55, tray_wall=0.12) for _ in range(2))
    played.step(played.top.argmax(1))
    assert played.asleep.all()
    poses = np.where(played.grasped[..., None], played.init_pose, played.obj_pose)
    for world in (played, fresh):
        world.reset(instance={"init_pose": poses})
        world.at_rest[:] = False  # the physics runs from the first tick on
        world.step(world.top.argmax(1))
    assert played.physics.tobytes() == fresh.physics.tobytes()
    assert played.objects.tobytes() == fresh.objects.tobytes()
