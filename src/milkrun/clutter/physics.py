"""Physics: moves the rows of a pile by MuJoCo's batch, and handles its failures.

MuJoCo's state is a field of the world. Between picks a row depends on its fields only, so that saved rows continue bit
for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, ClassVar

import mujoco
import numpy as np
from mujoco import batch as mjbatch

from milkrun.clutter import bank
from milkrun.clutter.model import model_xml, parking
from milkrun.clutter.options import BASE
from milkrun.clutter.pile import Pile
from milkrun.clutter.stages import IDLE, LIFT, NONE, PHYSICS_ERROR, SUCCESS, after_tick, plan
from milkrun.core.arguments import Rows
from milkrun.core.fields import Field, Role

NO_STAGE = mujoco.mjtStage.mjSTAGE_NONE.value
MOCAP_POS = mujoco.mjtState.mjSTATE_MOCAP_POS.value
ASLEEP = int(mujoco.mjtSleepPolicy.mjSLEEP_INIT)
NO_SENSOR = int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
CHEAPEST_SOLVER = int(mujoco.mjtSolver.mjSOL_CG)
MAY_SLEEP = int(mujoco.mjtSleepPolicy.mjSLEEP_AUTO_ALLOWED)
AWAKE = -(1 + int(mujoco.mjMINAWAKE))  # the sleep counter of an object that has just been woken
ELSEWHERE = 1e-3  # m, a move beyond this makes MuJoCo wake an object
WAKES_AS_TRIED = mujoco.__version__.startswith("4.0.")  # the versions tested; how objects wake is undocumented


class MuJoCoPile(Pile):
    """A pile moved by MuJoCo."""

    seen: ClassVar[Mapping[str, Any]]  # the kernel that casts the rays of given poses
    _model: Any
    _force: np.ndarray
    _each_tick: Callable[[np.ndarray], None] | None = None  # callback with the rows whose pick continues after a tick

    def constants(self) -> dict[str, Any]:
        c, scenes = self.config, bank.made(self.config)
        places = (
            ("qpos", "at_qpos"),
            ("qvel", "at_qvel"),
            ("qacc_warmstart", "at_warmstart"),
            ("eq_active", "at_active"),
            ("mocap_pos", "at_mocap"),
            ("mocap_quat", "at_mocap_quat"),
        )
        ranges = {
            f"{name}_{end}": getattr(c, f"{name}_range")[k]
            for name in ("mass", "friction", "suction")
            for k, end in enumerate(("low", "high"))
        }
        return {
            **{constant: self._offset(field) for field, constant in places},
            **ranges,
            **bank.shapes(c),
            "bank": scenes.poses,
            "bank_hit": scenes.hits,
            "mass_of": [t.mass for t in c.types],
            "parking": parking(c),
            "weld_rest": self._model.eq_data,
            "drop": c.drop,
            "per_type": c.num_objects_per_type,
            "in_turn": c.split == "test",
            "augment": c.augment and c.split != "test",
            "pick_mode": c.step_mode == "pick" and c.use_discrete_action,
            "tick_limit": c.tick_limit,
            "lift_ticks": c.lift_ticks,
            "descend_ticks": c.descend_ticks,
            "tick": c.tick,
            "half_side": c.side / 2,
            "wall_top": BASE + c.wall,
            "cup_far": c.cup_far,
            "cup_high": c.cup_high,
        }

    def connect(self) -> Any:
        bank.log_warnings()
        self._model = mujoco.MjModel.from_xml_string(model_xml(self.config))
        made = mjbatch.Batch(self._model, self.num_envs, self.engine_threads, persistent=True)
        made.expand("eq_data")
        self._disabled = made.expand("opt.disableflags")
        self._flags = int(self._model.opt.disableflags)
        self._warnings = made.warning[:, :, 1]
        if self.config.canonical:
            self._policy = made.expand("tree_sleep_policy")
            self._start = made.expand("qpos0")
            self._solver = made.expand("opt.solver")
            self._iterations = made.expand("opt.iterations")
            self._counters = made.bind("tree_asleep")
            self._reset_once = np.zeros(self.num_envs, bool)
        self._varied: dict[str, np.ndarray] = {}
        if self.config.mass_range != (1.0, 1.0):
            self._varied |= {name: made.expand(name) for name in ("body_mass", "body_inertia")}
        if self.config.friction_range != (1.0, 1.0):
            self._varied["geom_friction"] = made.expand("geom_friction")
        self._force = np.empty((self.num_envs, self.config.substeps, 3))
        return made

    def allocate(self, field: Field, shape: tuple[int, ...]) -> np.ndarray:
        if field.name == "physics":
            return self.engine.state
        if field.name == "weld":
            return self.engine.expand("eq_data")
        return super().allocate(field, shape)

    def place(self, rows: np.ndarray) -> None:
        """Set rows of the engine from their fields.

        Sleep counters are outside of the state, so rows are reset first, with a sleeping pile as the model's start.
        """
        if not len(rows):
            return
        ids = np.sort(rows).astype(np.int32)
        kept = self.physics[ids]
        if self._varied:
            self._vary(ids)
        if self.config.canonical:
            self._reset_engine(ids, self.asleep[ids], kept[:, self.at_qpos : self.at_qvel])
        else:
            self.engine.reset(ids, stage=NO_STAGE)
        self.physics[ids] = kept
        given = ids[self.scene_id[self.instance_row[ids]] < 0]
        if len(given):  # given poses have no hits at the start of an episode
            begun = (self.step_count[given] > 0) | (self.tick_count[given] > 0)
            self.map_rows(self.seen["kernel"], bool, rows=given[~begun].astype(np.int64))

    def _reset_engine(self, ids: np.ndarray, asleep: np.ndarray, poses: np.ndarray) -> None:
        """Reset rows, some of them asleep at these poses.

        For sleeping rows MuJoCo runs a full forward pass to find contacts. The forces that it solves for are unused, so
        the cheapest solver runs without iterations.
        """
        self._policy[ids] = MAY_SLEEP
        due = asleep | ~self._will_be_awake(ids, poses)
        if not due.any():
            return
        ids, asleep, poses = ids[due], asleep[due], poses[due]
        self._reset_once[ids] = True
        sleepers = ids[asleep]
        self._policy[sleepers] = ASLEEP
        self._start[sleepers] = poses[asleep]
        self._solver[sleepers] = CHEAPEST_SOLVER
        self._iterations[sleepers] = 0
        try:
            self.engine.reset(ids, stage=NO_STAGE)
        finally:
            self._solver[sleepers] = self._model.opt.solver
            self._iterations[sleepers] = self._model.opt.iterations

    def _will_be_awake(self, ids: np.ndarray, poses: np.ndarray) -> np.ndarray:
        """Whether rows start awake at these poses without a reset.

        A reset clears 200 kB a row, half of the time of a new episode. It is not needed if all sleep counters are as
        after one, or if all objects sleep and each has moved: MuJoCo wakes them, with the same counters.
        """
        shape = len(ids), self.sizes["N"], 7
        counters, way = self._counters[ids], abs(poses - self._start[ids]).reshape(shape)[:, :, :3].max(2)
        ready = (counters == AWAKE).all(1) | ((counters >= 0) & (way > ELSEWHERE)).all(1)
        known = self._reset_once[ids] & ~self.fault[ids] & ~self._warnings[ids].any(1)
        return ready & known & (WAKES_AS_TRIED and not self._varied)

    def _vary(self, ids: np.ndarray) -> None:
        """Set masses and friction of these rows, and derived values of the engine."""
        played, bodies = self.instance_row[ids], slice(1, 1 + self.sizes["N"])
        if self.config.canonical:
            self._start[ids] = self._model.qpos0
        if "body_mass" in self._varied:
            mass = self.mass[played].astype(np.float64)
            factor = mass / self._model.body_mass[bodies]
            self._varied["body_mass"][ids, bodies] = mass
            self._varied["body_inertia"][ids, bodies] = self._model.body_inertia[bodies] * factor[..., None]
        if "geom_friction" in self._varied:
            sliding = self._model.geom_friction[:, 0] * self.friction_factor[played, None]
            self._varied["geom_friction"][ids, :, 0] = sliding
        self.engine.set_const(ids)

    def advance(self, rows: np.ndarray) -> None:
        recorded = self._each_tick is not None and self.pick_mode
        if recorded:  # no stage is skipped
            self._launcher_layout.put(self._table, "pick_mode", 0)
        try:
            self._advance(rows)
        finally:
            if recorded:
                self._launcher_layout.put(self._table, "pick_mode", 1)

    def _advance(self, rows: np.ndarray) -> None:
        busy = np.sort(rows)
        busy = busy[self.env_stage[busy] != IDLE]
        live = busy
        while len(live):
            self._run_engine(live[self.map_rows(plan, bool, rows=live)], after_tick)
            if not self.pick_mode:
                break
            live = live[self.env_stage[live] != IDLE]
            if self._each_tick is not None and len(live):
                self._each_tick(live)
        self._put_to_sleep(busy)

    def _put_to_sleep(self, busy: np.ndarray) -> None:
        """Set the rows whose pick has ended from their fields."""
        if self.config.canonical:
            self.place(busy[(self.env_stage[busy] == IDLE) & ~self.fault[busy]])

    def _run_engine(self, rows: np.ndarray, after_tick: Any) -> None:
        """Run a tick of the physics, then the kernel `after_tick`; rows in which one of them fails end."""
        if not len(rows):
            return
        # MuJoCo resets a row whose numbers diverge to the model's start and only counts a warning: the state is finite
        # again when `after_tick` runs.
        ids, n, warned = rows.astype(np.int32), len(rows), self._warnings.copy()
        lifting = self.env_stage[ids] == LIFT
        self._disabled[ids] = np.where(lifting, self._flags, self._flags | NO_SENSOR)  # an empty cup has no load
        force, failed = self._force[:n], None
        try:
            self.engine.rollout(
                self.config.substeps, self.path[ids], MOCAP_POS, ("sensordata",), ids, {"sensordata": force}
            )
        except mjbatch.SimulationError as e:
            failed = np.isin(ids, e.ids)
        force[~lifting] = 0.0
        self.force[ids] = force
        if failed is not None or not np.array_equal(self._warnings, warned):
            rose = (self._warnings != warned)[ids].any(1)
            failed = rose if failed is None else failed | rose
            self._give_up(rows[failed])
            rows = rows[~failed]
        sound = self.map_rows(after_tick, bool, rows=rows)
        if not sound.all():
            self._give_up(rows[~sound])

    def _give_up(self, rows: np.ndarray) -> None:
        """End rows whose physics failed, and reset them to their start."""
        poses = self.init_pose[self.instance_row[rows]].reshape(len(rows), -1)
        kept = self.physics[rows]
        kept[:] = 0.0
        kept[:, self.at_qpos : self.at_qvel] = poses
        kept[:, self.at_mocap : self.at_mocap + 3] = self.home_pos
        kept[:, self.at_mocap_quat] = 1.0
        self.physics[rows] = kept
        self.weld[rows] = self.weld_rest
        self.fault[rows] = self.stirred[rows] = True
        self.force[rows] = self.path[rows] = 0.0
        # A carried object is no success: its pick has not ended.
        carried = rows[(self.result[rows] == SUCCESS) & (self.env_target[rows] >= 0)]
        self.grasped[carried, self.env_target[carried]] = False
        self.grasp_order[carried, self.env_target[carried]] = -1
        self.result[rows] = np.where(self.env_target[rows] >= 0, PHYSICS_ERROR, NONE)
        self.env_stage[rows] = IDLE
        self.stage_tick[rows] = 0
        self.stage_len[rows] = 0
        self.at_rest[rows] = True
        self.rest_count[rows] = 0
        self.is_suction_active[rows] = self.asleep[rows] = False
        self.current_suction_object[rows] = -1
        self.place(rows)

    def _offset(self, name: str) -> int:
        """The offset of a field of the physics in a row, in numbers."""
        at, start = (a.__array_interface__["data"][0] for a in (self.engine.bind(name), self.engine.state))
        return int(at - start) // 8

    def step_frames(self, actions: Any, rows: Rows = None) -> Iterator[np.ndarray | None]:
        """Play the picks, then restore the rows to their states at every second tick, and at last to the end."""
        names = [f.name for f in self._with_role(Role.STATE, Role.VIEW)]
        kept: list[tuple[np.ndarray, list[np.ndarray]]] = []
        ticks = count(1)

        def keep(live: np.ndarray) -> None:
            if next(ticks) % 2 == 0:
                kept.append((live, [getattr(self, name)[live] for name in names]))

        self._each_tick = keep
        try:
            self.step(actions, rows)
        finally:
            self._each_tick = None
        played = np.unique(np.concatenate([np.zeros(0, np.int64), *(live for live, _ in kept)]))
        end = [getattr(self, name)[played] for name in names]
        try:
            for live, values in kept:
                for name, value in zip(names, values, strict=True):
                    getattr(self, name)[live] = value
                yield live
        finally:
            for name, value in zip(names, end, strict=True):
                getattr(self, name)[played] = value
        yield None
