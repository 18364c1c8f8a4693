"""A world and its scalar reference on the same scenes and actions, with a comparison of every field."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.clutter import ClutterRow
from tests.reference.clutter_motion import ClutterMotionRow
from tests.reference.clutter_physics import DEFAULT, TERMS
from tests.reference.clutter_rays import faces

from .trays import tray

EXACT = """grasped lost grasp_order fails step_count tick_count env_stage env_target stage_tick stage_len cup_pos
cup_goal lift_from grip_local is_suction_active current_suction_object at_rest asleep settle_tick pos_at_choice
ticks_at_choice blocked_at_choice result last_result fault physics weld blocked reachable env_busy last_ticks last_lost
success terminated truncated illegal i""".split()
"""Equal to the bit."""
ROUNDED = """pick_load cover exposed exposed_area covered top grip_point grip_offset grip_nz stage_positions
last_disturbance percent_cleared grasp_success disturbance blocked_share lost_share picks_per_hour
objects globals reward""".split()
"""float32 fields, within its rounding."""


def check_near(mine: np.ndarray, theirs: Any, what: str) -> None:
    np.testing.assert_allclose(mine, theirs, 3e-7, 2e-7, err_msg=what)


class Pair:
    """Rows of a world, and a reference for each. `hit` of vertical faces is not compared, as their weight is 0."""

    def __init__(self, rows: int, **options: Any) -> None:
        self.world = tray(rows, **options)
        c = self.world.config
        given = {name: getattr(c, name) for name in [*DEFAULT, *(f"reward_{term}" for term in TERMS)]}
        given["rewards"] = "default"  # the weights define the rewards
        kind = ClutterRow if c.use_discrete_action else ClutterMotionRow
        self.rows = [kind(given) for _ in range(rows)]
        w = self.world
        for b, row in enumerate(self.rows):
            row.reset(w.init_pose[b], w.size[b], w.mass[b], w.suction_limit[b], w.friction_factor[b])
        self.calls = 0
        self.compare()

    def step(self, actions: np.ndarray) -> None:
        """One call for the live rows."""
        live = np.flatnonzero(~self.world.done)
        self.world.step(actions[live], rows=live)
        for b in live:
            self.rows[b].step(actions[b] if actions.ndim > 1 else int(actions[b]))
        self.calls += len(live)
        self.compare()

    def compare(self) -> None:
        w = self.world
        for b, row in enumerate(self.rows):
            where = f"row {b} after {row.i} steps, {row.tick_count} ticks"
            for name in EXACT + ["action_mask"] * ("action_mask" in w.fields):
                mine, theirs = np.asarray(getattr(w, name)[b]), np.asarray(getattr(row, name))
                assert np.array_equal(mine, theirs), f"{name}, {where}: {mine} and {theirs}"
            for name in ROUNDED:
                check_near(getattr(w, name)[b], getattr(row, name), f"{name}, {where}")
            assert abs(w.objective[b] - row.objective) < 1e-5, where
            assert w.rest_count[b] == min(row.rest_count, w.rest_ticks), where  # the world stops counting there
            if not w.env_busy[b]:  # the reference also counts carried objects, the world only whole attempts
                assert abs(w.action_efficiency[b] - row.action_efficiency) < 1e-6, where
            for name, theirs in row.log_fields().items():
                check_near(getattr(w, name)[b, : row.step_count], theirs[: row.step_count], f"{name}, {where}")
            if row.last_ticks:
                check_near(w.last_displacement[b], row.log[-1]["shift"], f"last_displacement, {where}")
            self._compare_hits(b, row, where)

    def _compare_hits(self, b: int, row: ClutterRow, where: str) -> None:
        for i in row.playing():
            levels = [face.nz > 1e-3 and len(face.samples) > 0 for face in faces(row.solid(i), row.G)]
            seen = np.repeat(levels, row.G * row.G)
            mine, theirs = self.world.hit[b, i][seen], row.hit[i][seen]
            assert (mine == theirs).all(), f"hit of object {i}, {where}"
