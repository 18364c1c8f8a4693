"""When the physics of a row fails, that row ends, without other effects."""

from __future__ import annotations

import numpy as np
import pytest

from .trays import bits, differing, play, tray


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e12])
@pytest.mark.parametrize("mode", ["pick", "tick", "motion"])
def test_a_broken_row_ends_alone(poison, mode, tmp_path, monkeypatch, capfd):
    """An impossible speed: the row is truncated with physics_error and restored to its start. Other rows keep their
    bits, nothing is printed, no file is written, and all numbers are finite."""
    monkeypatch.chdir(tmp_path)
    options = {"pick": {}, "tick": {"step_mode": "tick"}, "motion": {"use_discrete_action": False}}[mode]
    worlds = [tray(4, threads=2, num_objects_per_type=2, **options) for _ in range(2)]
    for world in worlds:
        if mode == "pick":
            play(world, 1)
        world.at_rest[:] = False
        if mode == "tick":
            world.step([0, 0, 0, 0])
    broken, same = worlds
    broken.obj_vel[2, 4, 1] = poison
    for turn in range(1 if mode == "pick" else 6):
        actions = np.zeros((4, 4), np.float32) if mode == "motion" else same.sample_actions(0, 5 + turn)
        live = np.flatnonzero(~broken.done)
        broken.step(actions[live], rows=live)
        same.step(actions[live], rows=live)
        if turn == 0:
            assert broken.truncated[2] and not broken.terminated[2] and broken.fault[2]
        for b in (0, 1, 3):
            assert differing(bits(same, b), bits(broken, b)) == []
    start = broken.init_pose[2].tobytes()
    assert broken.obj_pose[2].tobytes() == start and not broken.obj_vel[2].any()
    if mode != "motion":  # there was no pick
        n = broken.records[2] - 1
        assert broken.last_result[2] == 4 and broken.events(2)[n]["result"] == "physics_error"
        assert broken.step_count[2] == broken.records[2]
    for name, f in broken.fields.items():
        if f.role.name in ("STATE", "VIEW") and f.dtype.kind == "f":
            assert np.isfinite(getattr(broken, name)).all(), name
    assert all(np.isfinite(array).all() for array in broken.observe().values())
    assert not list(tmp_path.iterdir()) and capfd.readouterr() == ("", "")
    broken.reset(rows=[2])
    broken.step(np.zeros((1, 4), np.float32) if mode == "motion" else [int(broken.action_mask[2].argmax())], rows=[2])
    assert not broken.fault[2] and not broken.truncated[2]


class Spoiling:
    """Wrapper of an engine that writes NaN into row 2 after its first tick, without a warning."""

    def __init__(self, engine, place):
        self._engine = engine
        self._place = place

    def rollout(self, *arguments):
        output = self._engine.rollout(*arguments)
        if self._place is not None:
            self._engine.state[2, self._place] = np.nan
            self._place = None
        return output

    def __getattr__(self, name):
        return getattr(self._engine, name)


@pytest.mark.parametrize("mode", ["pick", "tick", "motion"])
@pytest.mark.parametrize("place", ["pose", "speed", "last speed"])
def test_a_nan_ends_its_row_without_a_warning_of_the_engine(mode, place):
    """In the first pose, and in the first and the last speed."""
    options = {"pick": {}, "tick": {"step_mode": "tick"}, "motion": {"use_discrete_action": False}}[mode]
    world = tray(4, num_objects_per_type=2, **options)
    world.at_rest[:] = False
    at = {"pose": world.at_qpos, "speed": world.at_qvel, "last speed": world.at_warmstart - 1}[place]
    world.engine = Spoiling(world.engine, at)
    world.step(np.zeros((4, 4), np.float32) if mode == "motion" else world.sample_actions(0, 0))
    assert world.fault.tolist() == world.truncated.tolist() == [False, False, True, False]
    assert np.isfinite(world.physics).all() and world.obj_pose[2].tobytes() == world.init_pose[2].tobytes()


def test_a_broken_row_restarts_by_autoreset():
    """Under same_step the row's next episode starts, and plays as without the failure."""
    worlds = [tray(2, num_objects_per_type=2, autoreset="same_step") for _ in range(2)]
    broken, same = worlds
    broken.at_rest[1] = False
    broken.obj_vel[1, 0, 0] = np.nan
    broken.step(broken.sample_actions(0, 0))
    assert broken.final_rows.tolist() == [1] and not broken.fault[1] and broken.step_count[1] == 0
    same.reset(rows=[1])
    action = same.sample_actions(0, 1)
    for world in worlds:
        world.step(action[[1]], rows=[1])
    assert differing(bits(same, 1), bits(broken, 1)) == []
