"""Completes and validates given scenes and saved states."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from milkrun.clutter.model import model_xml
from milkrun.clutter.options import FACTORS
from milkrun.clutter.stages import IDLE, LIFT, SETTLE
from milkrun.core.errors import BadInstance, ShapeError

DRAWN = (
    "scene_id",
    "scene_rot",
    "scene_label",
    "type_id",
    "size",
    "mass",
    "init_pose",
    "suction_limit",
    "friction_factor",
)
DEEPEST = 0.005  # m, deepest overlap of two objects
NORM = 1e-3  # tolerance of a quaternion's length


def arrange(world: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Complete instances from scenes of the bank (optionally turned, with objects exchanged) or from poses alone.

    Missing values are those of the types.
    """
    given = [name for name in ("scene_id", "init_pose") if name in values]
    if not given or all(name in values for name in DRAWN):
        return values
    if len(given) == 2:
        raise BadInstance("scene_id and init_pose: each of them defines the poses: give one, or a whole instance")
    c, n = world.config, world.sizes["N"]
    chosen = np.asarray(values[given[0]])
    if given == ["scene_id"]:
        if chosen.dtype.kind not in "iu" or chosen.ndim != 1:
            raise ShapeError(f"scene_id must be integers (rows,), not {chosen.dtype} {chosen.shape}")
        wrong = (chosen < 0) | (chosen >= world.sizes["Q"])
        if wrong.any():
            b = int(wrong.argmax())
            raise BadInstance(f"row {b}: scene {chosen[b]} is not in the bank, which has 0..{world.sizes['Q'] - 1}")
        world.need_scenes(chosen)
        label = _indices(values, "scene_label", np.tile(np.arange(n, dtype=np.int16), (len(chosen), 1)), n)
        turn = _indices(values, "scene_rot", np.zeros(len(chosen), np.int8), 4)
        values = {**values, "init_pose": _turned(world.bank[chosen[:, None], label], turn)}
    else:
        if chosen.shape[1:] != (n, 7):
            raise ShapeError(f"init_pose must have the shape (rows, {n}, 7), not {chosen.shape}")
        values = {**values, "scene_id": np.full(len(chosen), -1, np.int32)}
    rows = len(chosen)
    defaults = {
        "scene_rot": np.zeros(rows, np.int8),
        "scene_label": np.tile(np.arange(n, dtype=np.int16), (rows, 1)),
        "type_id": np.tile(np.arange(n, dtype=np.int16) // c.num_objects_per_type, (rows, 1)),
        "size": np.tile(np.array([t.size for t in c.types], np.float32), (rows, 1, 1)),
        "mass": np.tile(np.array([t.mass for t in c.types], np.float32), (rows, 1)),
        "suction_limit": np.full(rows, c.suction_force, np.float32),
        "friction_factor": np.ones(rows, np.float32),
    }
    return {**defaults, **values}


def check(world: Any, arrays: dict[str, np.ndarray]) -> None:
    """Raise BadInstance unless sizes match the types, quaternions have length 1, and objects lie in the tray, apart."""
    c, pose = world.config, arrays["init_pose"]
    sizes = np.array([t.size for t in c.types], np.float32)
    types = np.arange(len(sizes)) // c.num_objects_per_type
    _refuse(arrays["type_id"] != types, "type_id must be i // num_objects_per_type")
    _refuse((arrays["size"] != sizes).any(2), "size must be that of its type")
    _refuse(types[arrays["scene_label"]] != types, "scene_label must name an object of the same type")
    _refuse(np.sort(arrays["scene_label"], 1) != np.arange(len(sizes)), "scene_label must name each object once")
    for name, usual, factors, rule in (
        ("mass", [t.mass for t in c.types], c.mass_range, "that of its type, or that by a factor in mass_range"),
        ("friction_factor", 1.0, c.friction_range, "1, or in friction_range"),
        ("suction_limit", c.suction_force, FACTORS, "suction_force by a factor in"),
    ):
        # Factor 1 is always allowed, since it is the default of scenes without given factors.
        low, high = (np.float32(np.array(usual) * end) for end in (min(1.0, factors[0]), max(1.0, factors[1])))
        wrong = ~((low <= arrays[name]) & (arrays[name] <= high))
        _refuse(wrong, f"{name} must be {rule} {factors[0]:g}..{factors[1]:g}")
    _refuse(~np.isfinite(pose).all(2), "init_pose must be finite")
    _refuse(abs(np.linalg.norm(pose[..., 3:], axis=2) - 1) > NORM, f"the quaternion's length must be 1 within {NORM}")
    _refuse(
        (abs(pose[..., :2]) >= c.side / 2).any(2) | (pose[..., 2] < 0),
        f"the centre must lie in the tray, |x| and |y| below {c.side / 2:.4g}",
    )
    known = np.flatnonzero(arrays["scene_id"] >= 0)
    world.need_scenes(arrays["scene_id"][known])
    scenes = world.bank[arrays["scene_id"][known, None], arrays["scene_label"][known]]
    own = _turned(scenes, arrays["scene_rot"][known])
    places, turns = np.split(abs(own - pose[known]), [3], 2)
    turns = np.minimum(
        turns.max(2), abs(own + pose[known])[..., 3:].max(2)
    )  # a quaternion and its negative are the same rotation
    wrong = np.zeros(pose.shape[:2], bool)
    wrong[known] = np.maximum(places.max(2), turns) > 1e-9
    _refuse(wrong, "init_pose is not that of its scene: give poses of your own with scene_id -1")
    _check_overlaps(world, arrays)


def check_states(world: Any, arrays: dict[str, np.ndarray]) -> None:
    """Raise BadInstance for states that kernels cannot handle.

    A running pick has a target, which kernels use as an index; quaternions have length 1; an object is in play, out or
    lost; a row that waits for a choice has an object left.
    """
    stage, grasped, lost = arrays["env_stage"], arrays["grasped"], arrays["lost"]
    busy = (stage != IDLE) | (arrays["current_suction_object"] >= 0)
    _refuse(busy & (arrays["env_target"] < 0), "env_target must be an object while a pick is under way")
    timed = ~np.isin(stage, (IDLE, LIFT, SETTLE))
    _refuse(timed & (arrays["stage_tick"] > arrays["stage_len"]), "stage_tick: the stage would be over by stage_len")
    over = arrays["at_rest"] | (arrays["settle_tick"] >= world.config.settle_max)
    _refuse((stage == SETTLE) & over, "env_stage is settle, but by at_rest or settle_tick the pick is over")
    _refuse(grasped & lost, "both grasped and lost")
    # The argsort of an argsort is the rank of each entry; objects that are not grasped rank last.
    order = np.where(grasped, arrays["grasp_order"], len(grasped[0]))
    ranks = np.where(grasped, np.argsort(np.argsort(order, axis=1, kind="stable"), axis=1), -1)
    _refuse(arrays["grasp_order"] != ranks, "grasp_order must count what is grasped, 0, 1, ..., and be -1 else")
    choosing = ~busy & ~arrays["terminated"] & ~arrays["truncated"]
    _refuse(choosing & (grasped | lost).all(1), "grasped and lost: nothing is left, and the row has not ended")
    if "action_mask" in arrays:
        _refuse(choosing[:, None] & arrays["action_mask"] & (grasped | lost), "action_mask allows what is out of play")
    poses = arrays["physics"][:, world.at_qpos : world.at_qvel].reshape(len(busy), -1, 7)
    _refuse(
        abs(np.linalg.norm(poses[..., 3:], axis=2) - 1) > NORM,
        f"physics: the quaternion's length must be 1 within {NORM}",
    )


def _indices(values: dict[str, Any], name: str, usual: np.ndarray, most: int) -> np.ndarray:
    """A validated index field of a scene, or its default."""
    chosen = np.asarray(values.get(name, usual))
    if chosen.dtype.kind not in "iu" or chosen.shape != usual.shape:
        raise ShapeError(f"{name} must be integers of the shape {usual.shape}, not {chosen.dtype} {chosen.shape}")
    _refuse((chosen < 0) | (chosen >= most), f"{name} must be in 0..{most - 1}")
    return chosen


def _turned(poses: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Poses (rows, N, 7) turned about the middle of the tray, each row by its number of quarters."""
    root = np.sqrt(0.5)
    tables = [1, 0, -1, 0], [0, 1, 0, -1], [1, root, 0, -root], [0, root, 1, root]
    cos, sin, half_cos, half_sin = (np.array(table)[turns][:, None] for table in tables)
    x, y, z, a, b, c, d = np.moveaxis(poses, -1, 0)
    turned = half_cos * a - half_sin * d, half_cos * b - half_sin * c, half_cos * c + half_sin * b
    return np.stack([cos * x - sin * y, sin * x + cos * y, z, *turned, half_cos * d + half_sin * a], -1)


def _check_overlaps(world: Any, arrays: dict[str, np.ndarray]) -> None:
    """Raise BadInstance if objects of given poses overlap each other or the tray, as measured by MuJoCo."""
    given = np.flatnonzero(arrays["scene_id"] < 0)
    if not len(given):
        return
    model = mujoco.MjModel.from_xml_string(model_xml(world.config, cup=False))
    data, first = mujoco.MjData(model), model.ngeom - world.sizes["N"]
    for b in given.tolist():
        data.qpos[:] = arrays["init_pose"][b].ravel()
        mujoco.mj_fwdPosition(model, data)
        for k in range(data.ncon):
            contact = data.contact[k]
            if contact.dist < -DEEPEST:
                pair = sorted(int(g) - first for g in contact.geom)
                other = f"object {pair[0]}" if pair[0] >= 0 else "the tray"
                raise BadInstance(
                    f"row {b}: object {pair[1]} and {other} overlap by {-1000 * contact.dist:.1f} mm, "
                    f"more than {1000 * DEEPEST:.0f}"
                )


def _refuse(wrong: np.ndarray, rule: str) -> None:
    if wrong.any():
        at = np.argwhere(wrong)[0]
        where = f"row {at[0]}" + (f", object {at[1]}" if len(at) > 1 else "")
        raise BadInstance(f"{where}: {rule}")
