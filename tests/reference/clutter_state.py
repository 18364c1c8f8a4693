"""The fields of one row of the clutter reference, and derived values: views, mask, figures, maps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .clutter_physics import CATALOGUE, TRAY_TOP, WALL, Kind, RowPhysics, Vector, complete, full_extents, norm, rotation
from .clutter_rays import Sample, Sight, Solid, exposure_of, first_hit, top_sample
from .tsp import f32

IDLE, ABOVE, DESCEND, GRIP, LIFT, CARRY, RELEASE, SETTLE = range(8)
NONE, SUCCESS, DROPPED, ILLEGAL, PHYSICS_ERROR = range(5)
UPRIGHT = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


class ClutterState:
    """Attributes have the names of the world's fields. `options` are its options by name, `kinds` further object
    types."""

    def __init__(self, options: Mapping[str, Any], kinds: Mapping[str, Kind] | None = None) -> None:
        known = CATALOGUE | dict(kinds or {})
        self.o = o = complete(options, known)
        self.kinds = [known[name] for name in o["box_objects"] for _ in range(o["num_objects_per_type"])]
        self.N, self.T = len(self.kinds), int(o["max_episode_steps_discrete"])
        self.K, self.G = int(o["substeps"]), int(o["ray_samples"])
        self.side, self.wall = float(o["tray_side"]), float(o["tray_wall"])
        self.time_of_tick = self.K * o["timestep"]
        self.engine = RowPhysics(o, self.kinds)
        self.type_id = [i // o["num_objects_per_type"] for i in range(self.N)]

    def reset(
        self,
        init_pose: np.ndarray,
        size: np.ndarray | None = None,
        mass: np.ndarray | None = None,
        suction_limit: float | None = None,
        friction_factor: float = 1.0,
    ) -> None:
        """Start an episode from these poses (N,7); types and options give the defaults of the other arguments."""
        n, o = self.N, self.o
        self.init_pose = np.array(init_pose, dtype=np.float64).reshape(n, 7)
        sizes = [full_extents(kind) for kind in self.kinds] if size is None else size
        masses = [kind[2] for kind in self.kinds] if mass is None else mass
        self.size = [tuple(f32(x) for x in extents) for extents in sizes]
        self.mass = [f32(m) for m in masses]
        self.suction_limit = f32(o["suction_force"] if suction_limit is None else suction_limit)
        self.friction_factor = f32(friction_factor)
        self.engine.start(self.init_pose, self.mass, self.friction_factor)
        self.grasped, self.lost = [False] * n, [False] * n
        self.grasp_order, self.fails = [-1] * n, [0] * n
        self.i = self.step_count = self.tick_count = self.ticks_at_choice = 0
        self.env_stage, self.env_target = IDLE, -1
        self.stage_tick = self.stage_len = self.settle_tick = 0
        home = o["home_pos"]
        self.cup_pos: Vector = (float(home[0]), float(home[1]), float(home[2]))
        self.cup_goal, self.lift_from = self.cup_pos, 0.0
        self.grip_local: Vector = (0.0, 0.0, 0.0)
        self.is_suction_active, self.current_suction_object = False, -1
        self.at_rest, self.rest_count, self.asleep = True, 0, False
        self.pos_at_choice = [self.centre(i) for i in range(n)]
        self.playing_at_choice = [True] * n
        self.pick_load, self.blocked_at_choice = 0.0, False
        self.result, self.last_result, self.fault = NONE, NONE, False
        self.log: list[dict[str, Any]] = []
        self.reward = self.reward_exact = self.objective = 0.0
        self.terminated = self.truncated = self.illegal = False
        self.last_disturbance, self.last_ticks, self.last_lost = 0.0, 0, 0
        self._seen: tuple[Any, list[Sight]] | None = None
        self.update_views()

    @property
    def physics(self) -> np.ndarray:
        return self.engine.state()

    @property
    def weld(self) -> np.ndarray:
        return np.array(self.engine.model.eq_data)

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated

    def in_play(self, i: int) -> bool:
        return not self.grasped[i] and not self.lost[i]

    def playing(self) -> list[int]:
        return [i for i in range(self.N) if self.in_play(i)]

    def centre(self, i: int) -> Vector:
        x, y, z = self.engine.pose(i)[:3]
        return x, y, z

    def solid(self, i: int) -> Solid:
        x, y, z = full_extents(self.kinds[i])  # the engine's numbers; the field `size` is rounded to float32
        return Solid(self.kinds[i][0], self.centre(i), rotation(self.engine.pose(i)[3:]), (x / 2, y / 2, z / 2))

    def _fixed(self) -> list[Solid]:
        """The tray's base and its walls."""
        half, z = self.side / 2, TRAY_TOP + self.wall / 2
        found = [Solid("box", (0.0, 0.0, 0.01), UPRIGHT, (half + WALL, half + WALL, 0.01))]
        for sign in (-1, 1):
            out = sign * (half + WALL / 2)
            found.append(Solid("box", (out, 0.0, z), UPRIGHT, (WALL / 2, half + WALL, self.wall / 2)))
            found.append(Solid("box", (0.0, out, z), UPRIGHT, (half, WALL / 2, self.wall / 2)))
        return found

    def _solids(self) -> list[Solid | None]:
        return [self.solid(i) if self.in_play(i) else None for i in range(self.N)]

    def sights(self) -> list[Sight]:
        """Visibility of all objects; rays are cast again only after an object has moved or left."""
        now = (self.engine.data.qpos.tobytes(), tuple(self.playing()))
        if self._seen is None or self._seen[0] != now:
            solids, fixed = self._solids(), self._fixed()
            tilt = self.o["max_tilt_cos"]
            self._seen = now, [exposure_of(i, solids, fixed, self.G, tilt) for i in range(self.N)]
        return self._seen[1]

    def emergency(self) -> int:
        """The object allowed if no object in play is reachable; -1 if some is, or none is in play."""
        sights, playing = self.sights(), self.playing()
        if not playing or any(sights[i].grip for i in playing):
            return -1
        return max(playing, key=lambda i: (sights[i].top, -i))

    def grip(self, i: int) -> Sample | None:
        if i == self.emergency():
            return top_sample(self.solid(i), self.G)
        return self.sights()[i].grip

    def covered_by_others(self, i: int) -> float:
        return sum(share for j, share in enumerate(self.sights()[i].cover) if j != i)

    def is_blocked(self, i: int) -> bool:
        return self.in_play(i) and self.covered_by_others(i) >= self.o["blocked_cover"]

    def allowed(self, i: int) -> bool:
        return self.in_play(i) and (self.sights()[i].grip is not None or i == self.emergency())

    def update_views(self) -> None:
        """Recompute every view and the mask."""
        sights, n = self.sights(), self.N
        self.hit = np.array([sight.hit for sight in sights], dtype=np.int16)
        self.cover = np.array([sight.cover for sight in sights], dtype=np.float32)
        self.exposed = np.array([sight.cover[i] for i, sight in enumerate(sights)], dtype=np.float32)
        self.exposed_area = np.array([sight.area for sight in sights], dtype=np.float32)
        self.covered = np.array([self.covered_by_others(i) for i in range(n)], dtype=np.float32)
        self.blocked = [self.is_blocked(i) for i in range(n)]
        self.top = np.array([sight.top for sight in sights], dtype=np.float32)
        self.reachable = [sight.grip is not None for sight in sights]
        grips = [self.grip(i) for i in range(n)]
        points = [np.add(self.centre(i), grip.offset) if grip else (0.0,) * 3 for i, grip in enumerate(grips)]
        self.grip_point = np.array(points, dtype=np.float32)
        self.grip_offset = np.array([math.sqrt(grip.aside()) if grip else 0.0 for grip in grips], dtype=np.float32)
        self.grip_nz = np.array([grip.nz if grip else 0.0 for grip in grips], dtype=np.float32)
        self.env_busy, self.stage_positions = self.env_stage != IDLE, np.array(self.cup_goal, dtype=np.float32)
        self.action_mask = self._mask()
        self.last_displacement = np.array(self.log[-1]["shift"] if self.log else [0.0] * n, dtype=np.float32)
        self._figures()
        self.objects = np.array([self._features(i, grips[i]) for i in range(n)], dtype=np.float32)
        self.globals = np.array(self._globals(), dtype=np.float32)

    def _mask(self) -> list[bool]:
        if self.done:
            return [i == 0 for i in range(self.N)]
        if self.env_stage != IDLE:
            return [True] * self.N
        return [self.allowed(i) for i in range(self.N)]

    def _figures(self) -> None:
        grasped, n = sum(self.grasped), self.N
        legal = [event for event in self.log if event["result"] != ILLEGAL]
        seconds = self.tick_count * self.time_of_tick
        self.success = grasped == n
        self.percent_cleared, self.lost_share = grasped / n, sum(self.lost) / n
        self.grasp_success = _share(sum(event["result"] == SUCCESS for event in legal), len(legal))
        self.action_efficiency = _share(grasped, self.step_count)
        self.disturbance = _share(sum(event["disturbance"] for event in legal), len(legal))
        self.blocked_share = _share(sum(event["blocked"] for event in legal), len(legal))
        self.picks_per_hour = _share(3600 * grasped, seconds)

    def _features(self, i: int, grip: Sample | None) -> list[float]:
        playing, sight, half = self.in_play(i), self.sights()[i], self.side / 2
        x, y, z = self.centre(i)
        r, speed = rotation(self.engine.pose(i)[3:]), self.engine.velocity(i)
        moving = [_clip(x / half, 2), _clip(y / half, 2), _clip(z / 0.3, 2)]
        moving += [r[0][0], r[1][0], r[2][0], r[0][1], r[1][1], r[2][1]]
        moving += [min(1.0, norm(speed[:3])), min(1.0, norm(speed[3:]) / 10)]
        seen = [sight.cover[i], min(1.0, sight.area / 0.02), self.covered_by_others(i), float(self.is_blocked(i))]
        seen += [_clip(sight.top / 0.3, 2), min(1.0, math.sqrt(grip.aside()) / 0.1) if grip else 1.0]
        seen += [grip.nz if grip else 0.0, min(1.0, self.fails[i] / 5)]
        if not playing:
            moving, seen = [0.0] * 11, [0.0] * 8
        flags = [float(playing), float(self.grasped[i]), float(self.lost[i])]
        return [extent / 0.2 for extent in self.size[i]] + moving + flags + seen + [self.mass[i]]

    def _globals(self) -> list[float]:
        n, last = self.N, self.last_result
        counts = [sum(self.grasped) / n, sum(self.lost) / n, len(self.playing()) / n, self.step_count / self.T]
        result = [float(last == SUCCESS), float(last == DROPPED), self.suction_limit / 40]
        return counts + result + [float(self.env_stage != IDLE), self.env_stage / 7] + [p / 0.5 for p in self.cup_pos]

    def log_fields(self) -> dict[str, np.ndarray]:
        """The event log in the form of the world's fields: an entry for each attempt, empty ones -1 (target) and 0."""
        kinds = {"target": np.int16, "result": np.int8, "blocked": np.bool_, "lost": np.int8, "ticks": np.int32}
        found = {f"log_{name}": np.zeros(self.T, dtype=kind) for name, kind in kinds.items()}
        found |= {"log_load": np.zeros(self.T, np.float32), "log_shift": np.zeros((self.T, self.N), np.float32)}
        found["log_target"][:] = -1
        for place, event in enumerate(self.log):
            for name, array in found.items():
                array[place] = event[name.removeprefix("log_")]
        return found

    def maps(self) -> tuple[np.ndarray, np.ndarray]:
        """Height and segmentation images, one ray down through the centre of every pixel."""
        m, solids, fixed = int(self.o["map_size"]), self._solids(), self._fixed()
        height, segmentation = np.zeros((m, m), dtype=np.float32), np.zeros((m, m), dtype=np.int16)
        for row in range(m):
            for column in range(m):
                x, y = (column + 0.5) / m - 0.5, 0.5 - (row + 0.5) / m
                hit_object, z = first_hit(x * self.side, y * self.side, solids, fixed)
                height[row, column], segmentation[row, column] = z / 0.3, hit_object
        return height, segmentation


def _share(part: float, whole: float) -> float:
    return f32(part / whole) if whole else 0.0


def _clip(x: float, bound: float) -> float:
    return min(bound, max(-bound, x))


def straight(start: Sequence[float], goal: Sequence[float], share: float) -> Vector:
    """The point at this fraction of the path."""
    x, y, z = (a + (b - a) * share for a, b in zip(start, goal, strict=True))
    return x, y, z
