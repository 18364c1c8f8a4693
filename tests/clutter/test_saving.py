"""Saved, copied, pickled and forked worlds continue bit for bit."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal

import numpy as np
import pytest

import milkrun

from .trays import CANS, SUGAR, bits, differing, laid, made, on_floor, play, tray

SOME = {"num_objects_per_type": 2, "max_episode_steps_discrete": 8}
VARIED = {"mass_range": (0.5, 1.5), "friction_range": (0.4, 1.6), "suction_range": (0.3, 1.0)}


def pickled(world):
    return pickle.loads(pickle.dumps(world))


def whole(world) -> list[dict[str, bytes]]:
    return [bits(world, b) for b in range(world.num_envs)]


@pytest.mark.parametrize(("rows", "options"), [(50, {}), (8, CANS), (8, VARIED)], ids=["boxes", "cans", "factors"])
def test_restored_rows_play_the_same(rows, options):
    """Three picks after a restore repeat the same bits, for all rows and for rows moved to other indices."""
    world = tray(rows, **SOME, **options)
    play(world, 3)
    saved = world.state_dict()
    play(world, 3, start=3)
    after = whole(world)
    world.load_state_dict(saved)
    play(world, 3, start=3)
    assert [differing(one, other) for one, other in zip(after, whole(world), strict=True)] == [[]] * rows

    other = tray(5, seed=99, **SOME, **options)
    play(other, 1)
    part = {name: array[[6, 2]] for name, array in saved.items()} | {"instance_row": np.arange(2, dtype=np.int32)}
    other.load_state_dict(part, rows=[1, 4])
    world.load_state_dict(saved)
    for turn in range(3):
        actions, live = world.sample_actions(8, turn), [b for b in (6, 2) if not world.done[b]]
        if live:
            world.step(actions[live], rows=live)
            other.step(actions[live], rows=[{6: 1, 2: 4}[b] for b in live])
    assert differing(bits(world, 6), bits(other, 1)) == [] and differing(bits(world, 2), bits(other, 4)) == []


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize("options", [{}, VARIED], ids=["boxes", "factors"])
def test_copies_continue_equally(copied, options):
    """A world on two threads and its copy play the same, independently of each other."""
    world = tray(4, threads=2, **SOME, **options)
    play(world, 2)
    other = copied(world)
    assert whole(other) == whole(world) and other.engine is not world.engine
    before = whole(world)
    play(other, 3, start=2)
    assert whole(world) == before
    play(world, 3, start=2)
    assert [differing(*pair) for pair in zip(whole(world), whole(other), strict=True)] == [[]] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_continues_equally():
    """The child of a world on two threads plays the same bits and ends by itself."""
    world = tray(4, threads=2, **SOME)
    play(world, 2)
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(120)  # if it hangs
        try:
            play(world, 3, start=2)
            os.write(into, pickle.dumps(hash_of(world)))
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as read:
        received = read.read()
    os.waitpid(child, 0)
    play(world, 3, start=2)
    assert received and pickle.loads(received) == hash_of(world)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("held", ["world", "garbage", "array"])
def test_a_forked_child_may_drop_a_world_that_it_never_played(held):
    """The engine's threads do not exist in the child, where ending them would deadlock or abort. If the world is
    already garbage, or only an array of the engine's memory is left, no world object handles this."""
    world = tray(2, threads=2, **SOME)
    play(world, 1)
    kept = [world.physics] if held == "array" else [world]
    if held == "garbage":
        kept.append(kept)
    gc.disable()  # the child collects explicitly
    try:
        del world
        if held == "garbage":
            del kept
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a child that hangs is killed
            signal.alarm(120)
            try:
                if held != "garbage":
                    kept.clear()
                gc.collect()
            finally:
                os._exit(0)
    finally:
        gc.enable()
    assert os.waitpid(child, 0)[1] == 0


def hash_of(world) -> list[int]:
    import zlib

    return [zlib.crc32(b"".join(row.values())) for row in whole(world)]


def test_a_row_saved_during_a_pick_continues_without_sleep():
    """Saved at every twentieth tick, sleep off."""
    world, other = tray(2, step_mode="tick", sleep=False), tray(2, step_mode="tick", sleep=False, seed=8)
    for turn in range(120):
        if turn % 20 == 10:
            other.load_state_dict(world.state_dict())
        live = np.flatnonzero(~world.done)
        world.step(world.sample_actions(0, turn)[live], rows=live)
        if turn >= 10:
            other.step(other.sample_actions(0, turn)[live], rows=live)
            assert whole(world) == whole(other), turn


def test_an_ended_row_of_given_poses_is_restored_unchanged():
    """Truncated by its limit of ticks during the first pick: the mask is also restored, with index 0 alone."""
    world = laid(on_floor(SUGAR, y=-0.12), on_floor(SUGAR, y=0.12), tray_side=0.5, step_mode="tick", max_ticks=3)
    for _ in range(3):
        world.step([1])
    assert world.truncated[0] and world.action_mask[0].tolist() == [True, False]
    before = bits(world, 0)
    world.load_state_dict(world.state_dict())
    assert differing(before, bits(world, 0)) == []
    assert differing(before, bits(copy.deepcopy(world), 0)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "turns"),
    [({}, 4), ({"sleep": False, "step_mode": "tick"}, 30), ({"sleep": False, "use_discrete_action": False}, 30)],
    ids=["picks", "ticks", "motion"],
)
def test_check_world_finds_nothing(options, turns):
    """The library's checker: interpreted kernels, bounds, saving, independent rows, autoreset, threads."""
    world = made(
        8,
        seed=5,
        autoreset="next_step",
        box_objects=(SUGAR,),
        num_objects_per_type=2,
        max_episode_steps_discrete=2,
        max_ticks=60,
        ray_samples=1,
        **options,
    )
    assert milkrun.check_world(world, turns=turns) == []
