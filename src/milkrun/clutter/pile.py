"""Pile: the fields that both action modes share: tray, objects, picks, observations.

`physics.py` moves the rows, `stages.py` has the rules of a pick, `world.py` and `motion.py` define the actions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np

from milkrun.clutter import bank, instances, picture
from milkrun.clutter.generator import scene_drawn
from milkrun.clutter.log import events
from milkrun.clutter.model import model_xml
from milkrun.clutter.observations import CUP, FAR, FEATURES, GLOBALS, PULL, TALL
from milkrun.clutter.options import BASE, ClutterConfig
from milkrun.clutter.stages import ABOVE_WALL
from milkrun.core.engine import EngineWorld
from milkrun.core.fields import (
    bool_,
    constant,
    float32,
    float64,
    instance,
    int8,
    int16,
    int32,
    int64,
    scratch,
    state,
    uint8,
    view,
)
from milkrun.render.scene import Scene

ANCHOR = mujoco.mjNEQDATA  # count of numbers of a weld


class Pile(EngineWorld):
    """A tray of objects on MuJoCo's batch; base of `Clutter` and `ClutterMotion`."""

    Config = ClutterConfig
    demo_rows = 16
    policies = {name: f"milkrun.solvers.clutter:{name}" for name in ("highest", "exposed", "lowest", "oracle")}
    run_details = "milkrun.cli.details:CLUTTER"

    scene_id = instance(int32, low=-1, high="last scene", doc="scene of the bank; -1: poses that were given")
    scene_rot = instance(int8, low=0, high=3, doc="quarter turns of the scene")
    scene_label = instance(int16, "N", index="N", doc="which object of the scene stands here, of the same type")
    type_id = instance(int16, "N", index="types", doc="type of the object, in box_objects")
    size = instance(float32, "N", 3, low=0, doc="full extents, m")
    mass = instance(float32, "N", low=0, doc="kg")
    init_pose = instance(float64, "N", 7, doc="place and quaternion at the start")
    suction_limit = instance(float32, low=0, doc="what the cup can hold, N")
    friction_factor = instance(float32, low=0, doc="factor on the friction of the objects")

    physics = state(float64, "S", strided=True, hidden=True, doc="the engine's own row: poses, speeds, weld, cup")
    weld = state(float64, "N", "E", strided=True, hidden=True, doc="where the cup holds each object")
    grasped = state(bool_, "N", observed=False, doc="out by success")
    lost = state(bool_, "N", observed=False, doc="left the tray otherwise")
    grasp_order = state(int16, "N", low=-1, high="last object", observed=False, doc="order of success, -1 else")
    fails = state(uint8, "N", observed=False, doc="failed attempts on it")
    hit = state(int16, "N", "R", low=-1, high="last object", observed=False, doc="what each sample's ray meets first")
    step_count = state(int32, low=0, high="T", observed=False, doc="attempts used, illegal ones too")
    tick_count = state(int32, low=0, observed=False, doc="ticks of the episode")
    env_stage = state(
        int8,
        low=0,
        high=7,
        observed=False,
        doc="0 idle, 1 above, 2 descend, 3 grip, 4 lift, 5 carry, 6 release, 7 settle",
    )
    env_target = state(int16, low=-1, high="last object", observed=False, doc="object being picked, -1 none")
    stage_tick = state(int16, low=0, observed=False, doc="ticks spent in the stage")
    stage_len = state(int16, low=0, observed=False, doc="its length in ticks")
    cup_pos = state(float64, 3, observed=False, doc="tip of the cup")
    cup_goal = state(float64, 3, observed=False, doc="where it goes in this stage")
    lift_from = state(float64, observed=False, doc="its height when the lift began")
    path = state(float64, "K", 3, hidden=True, doc="of the cup in the substeps of a tick")
    force = state(float64, "K", 3, hidden=True, doc="on the cup in the substeps of a tick")
    grip_local = state(float64, 3, observed=False, doc="grip in the frame of the target")
    is_suction_active = state(bool_, observed=False, doc="the cup holds")
    current_suction_object = state(int16, low=-1, high="last object", observed=False, doc="what it holds, -1 nothing")
    at_rest = state(bool_, observed=False, doc="the pile is still")
    rest_count = state(int8, low=0, high=100, observed=False, doc="quiet ticks in a row")
    asleep = state(bool_, observed=False, doc="the pile was put to sleep as it lies")
    settle_tick = state(int16, low=0, observed=False, doc="ticks since the lift ended")
    stirred = state(bool_, observed=False, doc="objects moved in the last call")
    pos_at_choice = state(float64, "N", 3, observed=False, doc="centres when the pick was chosen")
    ticks_at_choice = state(int32, low=0, observed=False, doc="ticks then")
    lost_at_choice = state(int16, low=0, high="N", observed=False, doc="objects lost then")
    blocked_at_choice = state(bool_, observed=False, doc="the target was blocked then")
    pick_load = state(float32, low=0, observed=False, doc="largest load of this pick, share of suction_limit")
    result = state(
        int8, low=0, high=4, observed=False, doc="of the pick: 0 none, 1 success, 2 dropped, 3 illegal, 4 physics_error"
    )
    last_result = state(int8, low=0, high=4, observed=False, doc="of the last one that ended")
    fault = state(bool_, observed=False, doc="the physics failed")
    picks = state(int32, low=0, observed=False, doc="picks that ended")
    sum_disturbance = state(float64, low=0, observed=False, doc="of these, m")
    sum_blocked = state(int32, low=0, observed=False, doc="of blocked objects")
    records = state(int32, low=0, high="T", observed=False, doc="attempts in the log")
    log_target = state(int16, "T", tally=True, doc="log: object, -1 none")
    log_result = state(int8, "T", tally=True, doc="log: result")
    log_blocked = state(bool_, "T", tally=True, doc="log: it was blocked")
    log_lost = state(int16, "T", tally=True, doc="log: objects lost")
    log_ticks = state(int32, "T", tally=True, doc="log: ticks it took")
    log_load = state(float32, "T", tally=True, doc="log: largest load")
    log_shift = state(float32, "T", "N", tally=True, doc="log: how far each object moved, m")

    exposed = view(float32, "N", low=0, high=1.001, doc="share of its upper surface that is seen")
    exposed_area = view(float32, "N", low=0, doc="that area as seen from above, m2")
    covered = view(float32, "N", low=0, high=1.001, doc="share that other objects cover")
    blocked = view(bool_, "N", doc="covered to blocked_cover or more")
    top = view(float32, "N", doc="highest z")
    grip_point = view(float32, "N", 3, doc="where the cup would land")
    grip_offset = view(float32, "N", low=0, doc="its level distance to the centre")
    grip_nz = view(float32, "N", low=0, high=1.001, doc="z of the normal there")
    reachable = view(bool_, "N", doc="there is such a place")
    env_busy = view(bool_, doc="a pick is under way")
    stage_positions = view(float32, 3, doc="where the cup goes in this stage")
    last_displacement = view(float32, "N", low=0, doc="how far each object moved in the pick that ended, m")
    last_disturbance = view(float32, low=0, in_info=True, doc="how far others moved in the pick that ended, m")
    last_ticks = view(int32, low=0, in_info=True, doc="ticks it took")
    last_lost = view(int16, low=0, in_info=True, doc="objects it lost")
    success = view(bool_, doc="all objects are out")
    percent_cleared = view(float32, low=0, high=1, doc="share of objects out")
    grasp_success = view(float32, low=0, high=1, doc="successes a legal attempt")
    action_efficiency = view(float32, low=0, high=1, doc="successes an attempt")
    disturbance = view(float32, low=0, doc="m that others moved in a legal attempt")
    blocked_share = view(float32, low=0, high=1, doc="legal attempts on blocked objects")
    lost_share = view(float32, low=0, high=1, doc="share of objects lost")
    picks_per_hour = view(float32, low=0, doc="successes an hour of simulated time")
    objects = view(float32, "N", FEATURES, low="-reach", high="reach", observed=True, doc="numbers of each object")
    cover = view(float32, "N", "N", low=0, high=1.001, observed=True, doc="share of i under j; of i under i: seen")
    globals = view(
        float32,
        GLOBALS,
        low="-span",
        high="span",
        observed=True,
        doc="progress, last result, suction, stage, place of the cup",
    )
    height = view(
        float32, "M", "M", low=0, high="ceiling", observed=True, on_demand=True, doc="height of what is seen / 0.3 m"
    )
    segmentation = view(
        int16, "M", "M", low=-1, high="last object", observed=True, on_demand=True, doc="which object is seen, -1 none"
    )

    frame = scratch(float64, "N", 9)
    extent = scratch(float64, "N", 3)
    point = scratch(float64, "R", 3)
    share = scratch(float64, "N")
    number = scratch(int64, "N")

    # Tables of the configuration that kernels read.
    bank = constant(float64, "Q", "N", 7)
    bank_hit = constant(int16, "Q", "N", "R")
    half = constant(float64, "N", 3)
    is_can = constant(bool_, "N")
    sample_at = constant(int64, "R", 3)
    spread = constant(float64, "G")
    mass_of = constant(float64, "N")
    parking = constant(float64, "N", 7)
    weld_rest = constant(float64, "N", "E")
    home_pos = constant(float64, 3)
    drop = constant(float64, 3)
    # Offsets in a row of the physics.
    at_qpos = constant(int64)
    at_qvel = constant(int64)
    at_warmstart = constant(int64)
    at_active = constant(int64)
    at_mocap = constant(int64)
    at_mocap_quat = constant(int64)
    # Options and values derived from them.
    per_type = constant(int64)
    in_turn = constant(int64)
    augment = constant(int64)
    mass_low = constant(float64)
    mass_high = constant(float64)
    friction_low = constant(float64)
    friction_high = constant(float64)
    suction_low = constant(float64)
    suction_high = constant(float64)
    suction_force = constant(float64)
    pick_mode = constant(int64)
    canonical = constant(int64)
    tick_limit = constant(int64)
    lift_ticks = constant(int64)
    descend_ticks = constant(int64)
    grip_ticks = constant(int64)
    release_ticks = constant(int64)
    rest_ticks = constant(int64)
    settle_max = constant(int64)
    tick = constant(float64)
    timestep = constant(float64)
    half_side = constant(float64)
    wall_top = constant(float64)
    cup_far = constant(float64)
    cup_high = constant(float64)
    lift_acc = constant(float64)
    approach = constant(float64)
    clearance = constant(float64)
    cup_speed = constant(float64)
    lift_height = constant(float64)
    max_tilt_cos = constant(float64)
    blocked_cover = constant(float64)
    goal_thresh = constant(float64)
    rest_speed = constant(float64)
    rest_spin = constant(float64)
    reward_success = constant(float64)
    reward_disturb = constant(float64)
    reward_blocked = constant(float64)
    reward_drop = constant(float64)
    reward_lost = constant(float64)
    reward_time = constant(float64)
    reward_illegal = constant(float64)
    reward_clear = constant(float64)

    @classmethod
    def size_of(cls, config: ClutterConfig) -> dict[str, int]:
        # S is the size of MuJoCo's mjSTATE_INTEGRATION. For each object 7 of its pose, 6 each of speed, warm start and
        # two kinds of applied force, 1 of its weld; beside them the time, the cup's pose, forces on cup and world: 20.
        n, heaviest = config.total_objects_per_env, max(t.mass for t in config.types)
        reach = max(2.0, heaviest * max(1.0, config.mass_range[1]), max(max(t.size) for t in config.types) / 0.2)
        # In `globals` the suction and the place of the cup may exceed 1.
        span = max(1.0, config.suction_force * max(1.0, config.suction_range[1]) / PULL, config.cup_most / CUP)
        return {
            "span": math.ceil(span),
            "ceiling": math.ceil(max(FAR, (BASE + config.wall + ABOVE_WALL) / TALL)),
            "N": n,
            "S": 32 * n + 20,
            "E": ANCHOR,
            "G": config.ray_samples,
            "R": 3 * config.ray_samples**2,
            "K": config.substeps,
            "T": config.max_episode_steps_discrete,
            "M": config.map_size if config.maps else 0,
            "Q": bank.scenes_of(config),
            "types": config.num_object_types,
            "last object": n - 1,
            "last scene": bank.scenes_of(config) - 1,
            "reach": -int(-reach // 1),
        }

    # -- public interface ------------------------------------------------------------------------------------

    @property
    def batch(self) -> Any:
        """MuJoCo's batch of the rows, for experts."""
        return self.engine

    @property
    def model_xml(self) -> str:
        """The MJCF description of a row."""
        return model_xml(self.config)

    @property
    def obj_pose(self) -> np.ndarray:
        """(B, N, 7) places and quaternions, a view."""
        return self._of_objects(self.at_qpos, 7)

    @property
    def obj_vel(self) -> np.ndarray:
        """(B, N, 6) speeds and spins, a view."""
        return self._of_objects(self.at_qvel, 6)

    def _of_objects(self, start: int, width: int) -> np.ndarray:
        n = self.sizes["N"]
        found = self.physics[:, start : start + width * n]
        strides = found.strides[0], width * found.strides[1], found.strides[1]
        return np.lib.stride_tricks.as_strided(found, (self.num_envs, n, width), strides)

    def events(self, row: int = 0) -> list[dict[str, Any]]:
        """The attempts of a row's episode so far, one record per attempt."""
        self.check_row(row)
        return events(self, row)

    def need_scenes(self, scenes: np.ndarray) -> None:
        """Add missing ones of these scenes to the tables `bank` and `bank_hit`."""
        due = np.unique(scenes[~bank.is_made(self.bank[scenes])])
        if len(due):
            found = bank.scenes(self.config, due)
            self.bank_hit[due] = found.hits
            self.bank[due] = found.poses

    def _draw_rows(self, rows: np.ndarray) -> None:
        self.need_scenes(self.map_rows(scene_drawn, rows=rows))
        super()._draw_rows(rows)

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        return instances.arrange(self, values)

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        instances.check(self, arrays)

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        instances.check_states(self, arrays)

    figure_fields = (
        "success",
        "percent_cleared",
        "grasp_success",
        "action_efficiency",
        "disturbance",
        "blocked_share",
        "lost_share",
        "picks_per_hour",
    )

    def figures(self, last: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"success_rate" if name == "success" else name: last[name] for name in self.figure_fields}

    def scene(self, row: int) -> Scene:
        self.check_row(row)
        return picture.scene(self, row)

    @property
    def fps(self) -> float:  # type: ignore[override]
        """A frame every second tick of a pick, or every step that is a tick."""
        return 1.0 / (self.config.tick * (2 if self.pick_mode else 1))

    @property
    def render_fps(self) -> float:  # type: ignore[override]
        """A pick takes as long as it takes; a tick is so much of a second."""
        return EngineWorld.render_fps if self.pick_mode else 1.0 / self.config.tick
