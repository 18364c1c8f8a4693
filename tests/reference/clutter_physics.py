"""The physics of one row of the clutter reference: options, catalogue, the model's XML and one plain `MjData`.

Written from the rules alone. Sizes occur twice on purpose: MuJoCo gets the catalogue's numbers; everything that the
rules compute (samples, boxes, clearances) uses the row's float32 `size`, as in the fields of the world.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

Vector = tuple[float, float, float]
Matrix = tuple[Vector, Vector, Vector]
Kind = tuple[str, tuple[float, ...], float]

CATALOGUE: dict[str, Kind] = {  # shape, extents (cylinder: diameter, height), mass
    "002_master_chef_can": ("cylinder", (0.102, 0.139), 0.414),
    "003_cracker_box": ("box", (0.060, 0.158, 0.210), 0.411),
    "004_sugar_box": ("box", (0.038, 0.089, 0.175), 0.514),
    "005_tomato_soup_can": ("cylinder", (0.066, 0.101), 0.349),
    "006_mustard_bottle": ("box", (0.050, 0.085, 0.175), 0.603),
    "007_tuna_fish_can": ("cylinder", (0.085, 0.033), 0.171),
    "008_pudding_box": ("box", (0.035, 0.110, 0.089), 0.187),
    "009_gelatin_box": ("box", (0.028, 0.085, 0.073), 0.097),
    "010_potted_meat_can": ("box", (0.050, 0.097, 0.082), 0.370),
    "036_wood_block": ("box", (0.085, 0.085, 0.200), 0.729),
    "061_foam_brick": ("box", (0.050, 0.075, 0.050), 0.028),
}

DEFAULT: dict[str, Any] = {
    "box_objects": ("004_sugar_box", "006_mustard_bottle", "008_pudding_box"),
    "num_objects_per_type": 4,
    "max_episode_steps_discrete": 15,
    "max_ticks": None,
    "max_steps": None,
    "step_mode": "pick",
    "use_discrete_action": True,
    "goal_thresh": 0.03,
    "canonical": True,
    "tray_side": None,
    "tray_wall": None,
    "mass_range": (1, 1),
    "friction_range": (1, 1),
    "timestep": 1 / 150,
    "substeps": 3,
    "iterations": 8,
    "ls_iterations": 10,
    "tolerance": 1e-5,
    "sleep": True,
    "sleep_tolerance": 0.02,
    "joint_damping": 0.005,
    "object_friction": 0.6,
    "tray_friction": 1.0,
    "rest_speed": 0.02,
    "rest_spin": 0.3,
    "rest_ticks": 2,
    "settle_max": 60,
    "suction_force": 40.0,
    "max_tilt_cos": 0.5,
    "weld_timeconst": 0.02,
    "weld_torquescale": 0.02,
    "lift_acc": 8.0,
    "lift_height": 0.25,
    "clearance": 0.01,
    "approach": 0.10,
    "cup_speed": 0.5,
    "descend_speed": 0.2,
    "grip_ticks": 5,
    "release_ticks": 5,
    "home_pos": (0.0, 0.0, 0.6),
    "drop_pos": None,
    "ray_samples": 3,
    "blocked_cover": 0.25,
    "map_size": 32,
    "rewards": "default",
}
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "large_scene": {"num_objects_per_type": 6, "max_episode_steps_discrete": 20},
    "small_scene": {"num_objects_per_type": 2, "max_episode_steps_discrete": 8},
    "loose_scene": {"tray_side": 0.55, "tray_wall": 0.12},
    "fast": {"timestep": 0.01, "substeps": 2},
}
TERMS = ("success", "disturb", "blocked", "drop", "lost", "time", "illegal", "clear")
PAYMENTS = {"default": (1, 2, 0.25, 0.5, 1, 0.01, 0.5, 2), "seed": (3, 0, 0, 0, 0, 0, 0, 15)}

TRAY_TOP, WALL, STILL = 0.02, 0.02, (0.0,) * 6
INTEGRATION = int(mujoco.mjtState.mjSTATE_INTEGRATION)


def full_extents(kind: Kind) -> Vector:
    """Box: as given. Cylinder: diameter, diameter, height."""
    shape, extents, _ = kind
    return (extents[0], extents[0], extents[1]) if shape == "cylinder" else (extents[0], extents[1], extents[2])


def complete(options: Mapping[str, Any], kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """The values of all options: given ones, defaults, and derived ones."""
    payment = {f"reward_{term}" for term in TERMS}
    unknown = set(options) - set(DEFAULT) - payment
    if unknown:
        raise ValueError(f"unknown options {sorted(unknown)}")
    o = DEFAULT | dict(options)
    n = len(o["box_objects"]) * o["num_objects_per_type"]
    longest = max(max(full_extents(kinds[name])) for name in o["box_objects"])
    if o["tray_side"] is None:
        o["tray_side"] = max(0.18 + 0.01 * n, 1.15 * longest)
    if o["tray_wall"] is None:
        o["tray_wall"] = min(0.12 + 0.01 * n, 0.26)
    if o["drop_pos"] is None:
        o["drop_pos"] = (0.0, o["tray_side"] / 2 + 0.2, 0.45)
    if o["max_ticks"] is None:
        o["max_ticks"] = 250 * o["max_episode_steps_discrete"]
    for term, weight in zip(TERMS, PAYMENTS[o["rewards"]], strict=True):
        if o.get(f"reward_{term}") is None:
            o[f"reward_{term}"] = weight
    return o


def park_slot(i: int, kind: Kind, first: float = 1.0, apart: float = 0.3) -> tuple[float, ...]:
    """Position and identity quaternion of object i when out of play."""
    return (first + apart * (i % 4), -0.5 + apart * (i // 4), full_extents(kind)[2] / 2, 1.0, 0.0, 0.0, 0.0)


def park_slots(o: Mapping[str, Any], kinds: Sequence[Kind]) -> list[tuple[float, ...]]:
    """Park positions of all objects, farther out and apart for large trays or objects."""
    sizes = [full_extents(kind) for kind in kinds]
    broadest, diagonal = max(max(x, y) for x, y, _ in sizes), max(norm(size) for size in sizes)
    inner = o["tray_side"] / 2 + WALL + diagonal / 2
    if not o["use_discrete_action"]:
        inner = max(inner, 0.6 + diagonal, o["tray_side"] / 2 + diagonal)
        inner = max(inner, *(abs(o[place][k]) + diagonal for place in ("home_pos", "drop_pos") for k in (0, 1)))
    first, apart = max(1.0, inner + broadest / 2), max(0.3, broadest + 0.02)
    return [park_slot(i, kind, first, apart) for i, kind in enumerate(kinds)]


def _text(*numbers: float) -> str:
    return " ".join(repr(float(x)) for x in numbers)


def model_xml(o: Mapping[str, Any], kinds: Sequence[Kind]) -> str:
    """The model of a tray with these objects, elements in the order of the rules."""
    half, wall = o["tray_side"] / 2, o["tray_wall"]
    rough = f'friction="{_text(o["tray_friction"], 0.005, 0.0001)}"'
    smooth = f'friction="{_text(o["object_friction"], 0.005, 0.0001)}"'
    out, height = half + WALL / 2, TRAY_TOP + wall / 2
    world = [
        f'<geom name="floor" type="plane" size="0 0 1" {rough}/>',
        f'<geom name="base" type="box" pos="0 0 0.01" size="{_text(half + WALL, half + WALL, 0.01)}" {rough}/>',
    ]
    for axis in (0, 1):
        for sign in (-1, 1):
            pos = (sign * out, 0.0, height) if axis == 0 else (0.0, sign * out, height)
            size = (WALL / 2, half + WALL, wall / 2) if axis == 0 else (half, WALL / 2, wall / 2)
            name = f"wall_{'xy'[axis]}{'-+'[sign > 0]}"
            world.append(f'<geom name="{name}" type="box" pos="{_text(*pos)}" size="{_text(*size)}" {rough}/>')
    for i, (kind, slot) in enumerate(zip(kinds, park_slots(o, kinds), strict=True)):
        shape, extents, mass = kind
        halves = [x / 2 for x in extents]
        world.append(
            f'<body name="o{i}" pos="{_text(*slot[:3])}"><joint type="free" damping="{_text(o["joint_damping"])}"/>'
            f'<geom name="g{i}" type="{shape}" size="{_text(*halves)}" mass="{_text(mass)}" {smooth}/></body>'
        )
    world.append(f'<body name="cup" mocap="true" pos="{_text(*o["home_pos"])}"><site name="cs"/></body>')
    welds = [
        f'<weld body1="cup" body2="o{i}" relpose="0 0 0 1 0 0 0" solref="{_text(o["weld_timeconst"], 1)}" '
        f'torquescale="{_text(o["weld_torquescale"])}" active="false"/>'
        for i in range(len(kinds))
    ]
    lines = "\n".join
    return f"""<mujoco>
<option timestep="{_text(o["timestep"])}" integrator="implicitfast" solver="Newton" cone="elliptic"
 iterations="{o["iterations"]}" ls_iterations="{o["ls_iterations"]}" tolerance="{_text(o["tolerance"])}"
 sleep_tolerance="{_text(o["sleep_tolerance"])}"><flag sleep="{"enable" if o["sleep"] else "disable"}"/></option>
<worldbody>
{lines(world)}
</worldbody>
<equality>
{lines(welds)}
</equality>
<sensor><force site="cs"/></sensor>
</mujoco>"""


def rotation(q: Sequence[float]) -> Matrix:
    """The rotation matrix of a quaternion, with the sums in MuJoCo's order. The quaternion is normalised first if its
    length differs from 1 by more than 1e-15."""
    w, x, y, z = (float(part) for part in q)
    length = math.sqrt(w * w + x * x + y * y + z * z)
    if abs(length - 1) > 1e-15:
        w, x, y, z = (part * (1 / length) for part in (w, x, y, z))
    return (
        (w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z),
    )


def turned(r: Matrix, v: Sequence[float]) -> Vector:
    """R v."""
    x, y, z = (row[0] * v[0] + row[1] * v[1] + row[2] * v[2] for row in r)
    return x, y, z


def turned_back(r: Matrix, v: Sequence[float]) -> Vector:
    """R^T v."""
    x, y, z = (r[0][k] * v[0] + r[1][k] * v[1] + r[2][k] * v[2] for k in range(3))
    return x, y, z


def plus(p: Sequence[float], q: Sequence[float]) -> Vector:
    return p[0] + q[0], p[1] + q[1], p[2] + q[2]


class RowPhysics:
    """One model and one `MjData`; the state row is `mj_getState` of the integration state."""

    def __init__(self, o: Mapping[str, Any], kinds: Sequence[Kind]) -> None:
        self.o, self.kinds = o, list(kinds)
        self.model = mujoco.MjModel.from_xml_string(model_xml(o, kinds))
        self.data = mujoco.MjData(self.model)
        self.nominal = {
            name: np.array(getattr(self.model, name))
            for name in ("qpos0", "eq_data", "body_mass", "body_inertia", "geom_friction")
        }

    def start(self, poses: np.ndarray, mass: Sequence[float], friction_factor: float) -> None:
        """The row at a reset: these poses, no speed, the cup at home. Factors are used only if drawn."""
        model, o = self.model, self.o
        for name, value in self.nominal.items():
            getattr(model, name)[:] = value
        if tuple(o["mass_range"]) != (1, 1):
            for i, kilograms in enumerate(mass):
                body = model.body(f"o{i}").id
                model.body_inertia[body] *= kilograms / model.body_mass[body]
                model.body_mass[body] = kilograms
        if tuple(o["friction_range"]) != (1, 1):
            model.geom_friction[:, 0] *= friction_factor
        if tuple(o["mass_range"]) != (1, 1) or tuple(o["friction_range"]) != (1, 1):
            mujoco.mj_setConst(model, self.data)
        mujoco.mj_resetData(model, self.data)
        self.data.qpos[:] = np.asarray(poses, dtype=np.float64).ravel()
        self.place(asleep=False)

    def state(self) -> np.ndarray:
        row = np.empty(mujoco.mj_stateSize(self.model, INTEGRATION))
        mujoco.mj_getState(self.model, self.data, row, INTEGRATION)
        return row

    def place(self, asleep: bool) -> None:
        """Restore the row from its fields alone: MuJoCo's data outside of the state is reset."""
        row = self.state()
        policy = mujoco.mjtSleepPolicy
        self.model.tree_sleep_policy[:] = int(policy.mjSLEEP_INIT if asleep else policy.mjSLEEP_AUTO_ALLOWED)
        if asleep:
            self.model.qpos0[:] = self.data.qpos
        mujoco.mj_resetData(self.model, self.data)
        mujoco.mj_setState(self.model, self.data, row, INTEGRATION)

    def put_to_sleep(self) -> None:
        self.data.qvel[:] = 0
        self.data.qacc_warmstart[:] = 0

    def run(self, path: Sequence[Vector]) -> tuple[list[Vector], bool]:
        """One substep for each position of the cup; returns the forces of its sensor, and whether the engine failed."""
        forces, before = [], self._warnings()
        for place in path:
            if self._warnings() == before:
                self.data.mocap_pos[0] = place
                mujoco.mj_step(self.model, self.data)
            x, y, z = (float(f) for f in self.data.sensordata)
            forces.append((x, y, z))
        return forces, self._warnings() != before or not np.isfinite(self.state()).all()

    def _warnings(self) -> int:
        return int(sum(warning.number for warning in self.data.warning))

    def pose(self, i: int) -> tuple[float, ...]:
        return tuple(float(x) for x in self.data.qpos[7 * i : 7 * i + 7])

    def velocity(self, i: int) -> tuple[float, ...]:
        return tuple(float(x) for x in self.data.qvel[6 * i : 6 * i + 6])

    def cup(self) -> Vector:
        x, y, z = (float(p) for p in self.data.mocap_pos[0])
        return x, y, z

    def park(self, i: int) -> None:
        self.data.qpos[7 * i : 7 * i + 7] = park_slots(self.o, self.kinds)[i]
        self.data.qvel[6 * i : 6 * i + 6] = STILL

    def attach(self, i: int, tip: Vector, grip_local: Vector) -> None:
        """Weld the cup to the grip point with the object's orientation, so that nothing jumps."""
        self.data.mocap_pos[0] = tip
        self.data.mocap_quat[0] = self.pose(i)[3:]
        self.model.eq_data[i, 0:3] = grip_local
        self.model.eq_data[i, 3:6] = 0
        self.data.eq_active[i] = 1

    def detach(self, i: int) -> None:
        self.data.eq_active[i] = 0


def norm(v: Sequence[float]) -> float:
    return math.sqrt(sum(x * x for x in v))
