"""What is read of scenes that a caller gives, and what is refused."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from milkrun.clutter.model import model_xml
from milkrun.clutter.stages import IDLE, LIFT, SETTLE
from milkrun.core.errors import BadInstance, ShapeError

DRAWN = ("scene_id", "scene_rot", "scene_label", "type_id", "size", "mass", "init_pose", "suction_limit",
         "friction_factor")  # fmt: skip
DEEPEST = 0.005  # m that two objects may overlap
NORM = 1e-3  # that a quaternion may be off


def arrange(world: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Scenes of the bank by number, or poses alone, as whole instances; what is not given is as the types say."""
    given = [name for name in ("scene_id", "init_pose") if name in values]
    if not given or all(name in values for name in DRAWN):
        return values
    if len(given) == 2:
        raise BadInstance("scene_id and init_pose: one of them says where objects lie; give one, or a whole instance")
    c, n = world.config, world.sizes["N"]
    chosen = np.asarray(values[given[0]])
    if given == ["scene_id"]:
        if chosen.dtype.kind not in "iu" or chosen.ndim != 1:
            raise ShapeError(f"scene_id must be integers (rows,), not {chosen.dtype} {chosen.shape}")
        wrong = (chosen < 0) | (chosen >= world.sizes["Q"])
        if wrong.any():
            b = int(wrong.argmax())
            raise BadInstance(f"row {b}: scene {chosen[b]} is not in the bank, which has 0..{world.sizes['Q'] - 1}")
        values = {**values, "init_pose": world.bank[chosen]}
    else:
        if chosen.shape[1:] != (n, 7):
            raise ShapeError(f"init_pose must have the shape (rows, {n}, 7), not {chosen.shape}")
        values = {**values, "scene_id": np.full(len(chosen), -1, np.int32)}
    rows = len(chosen)
    defaults = {
        "scene_rot": np.zeros(rows, np.int8), "scene_label": np.tile(np.arange(n, dtype=np.int16), (rows, 1)),
        "type_id": np.tile(np.arange(n, dtype=np.int16) // c.num_objects_per_type, (rows, 1)),
        "size": np.tile(np.array([t.size for t in c.types], np.float32), (rows, 1, 1)),
        "mass": np.tile(np.array([t.mass for t in c.types], np.float32), (rows, 1)),
        "suction_limit": np.full(rows, c.suction_force, np.float32),
        "friction_factor": np.ones(rows, np.float32),
    }  # fmt: skip
    return {**defaults, **values}


def check(world: Any, arrays: dict[str, np.ndarray]) -> None:
    """Sizes as the types have them, quaternions of length 1, objects in the tray and not in each other."""
    c, pose = world.config, arrays["init_pose"]
    sizes = np.array([t.size for t in c.types], np.float32)
    types = np.arange(len(sizes)) // c.num_objects_per_type
    _refuse(arrays["type_id"] != types, "type_id must be i // num_objects_per_type")
    _refuse((arrays["size"] != sizes).any(2), "size must be that of its type")
    _refuse(types[arrays["scene_label"]] != types, "scene_label must name an object of the same type")
    _refuse(np.sort(arrays["scene_label"], 1) != np.arange(len(sizes)), "scene_label must name each object once")
    _refuse(~(arrays["mass"] > 0), "mass must be above 0")
    if c.mass_range == (1.0, 1.0):
        masses = np.array([t.mass for t in c.types], np.float32)
        _refuse(arrays["mass"] != masses, "mass must be that of its type: mass_range is (1, 1), so masses do not vary")
    if c.friction_range == (1.0, 1.0):
        _refuse(arrays["friction_factor"] != 1, "friction_factor must be 1: friction_range is (1, 1)")
    _refuse(~np.isfinite(pose).all(2), "init_pose must be finite")
    _refuse(abs(np.linalg.norm(pose[..., 3:], axis=2) - 1) > NORM, f"the quaternion's length must be 1 within {NORM}")
    _refuse((abs(pose[..., :2]) >= c.side / 2).any(2) | (pose[..., 2] < 0), "the centre must lie in the tray, "
            f"|x| and |y| below {c.side / 2:.4g}")  # fmt: skip
    for name in ("suction_limit", "friction_factor"):
        _refuse(~(arrays[name] > 0), f"{name} must be above 0")
    known = np.flatnonzero(arrays["scene_id"] >= 0)
    scenes = world.bank[arrays["scene_id"][known, None], arrays["scene_label"][known]]
    off = abs(_turned(scenes[..., :2], arrays["scene_rot"][known]) - pose[known, :, :2]).max(2) > 1e-9
    wrong = np.zeros(pose.shape[:2], bool)
    wrong[known] = off | (abs(scenes[..., 2] - pose[known, :, 2]) > 1e-9)
    _refuse(wrong, "init_pose is not that of its scene: give poses of your own with scene_id -1")
    _check_overlaps(world, arrays)


def check_states(world: Any, arrays: dict[str, np.ndarray]) -> None:
    """A pick under way has a target, which kernels index with; quaternions are some turn; objects are in play, out or
    lost, and a row that waits for a choice has something left that it may choose."""
    stage, grasped, lost = arrays["env_stage"], arrays["grasped"], arrays["lost"]
    busy = (stage != IDLE) | (arrays["current_suction_object"] >= 0)
    _refuse(busy & (arrays["env_target"] < 0), "env_target must be an object while a pick is under way")
    timed = ~np.isin(stage, (IDLE, LIFT, SETTLE))
    _refuse(timed & (arrays["stage_tick"] > arrays["stage_len"]), "stage_tick: the stage would be over by stage_len")
    _refuse(grasped & lost, "both grasped and lost")
    # The argsort of an argsort is the rank of each entry; what is not grasped has the highest number, and ranks behind.
    order = np.where(grasped, arrays["grasp_order"], len(grasped[0]))
    ranks = np.where(grasped, np.argsort(np.argsort(order, axis=1, kind="stable"), axis=1), -1)
    _refuse(arrays["grasp_order"] != ranks, "grasp_order must count what is grasped, 0, 1, ..., and be -1 else")
    choosing = ~busy & ~arrays["terminated"] & ~arrays["truncated"]
    _refuse(choosing & (grasped | lost).all(1), "grasped and lost: nothing is left, and the row has not ended")
    if "action_mask" in arrays:
        _refuse(choosing[:, None] & arrays["action_mask"] & (grasped | lost), "action_mask allows what is out of play")
    poses = arrays["physics"][:, world.at_qpos : world.at_qvel].reshape(len(busy), -1, 7)
    _refuse(abs(np.linalg.norm(poses[..., 3:], axis=2) - 1) > NORM, "physics: the quaternion's length must be 1 within "
            f"{NORM}")  # fmt: skip


def _turned(places: np.ndarray, turns: np.ndarray) -> np.ndarray:
    cos, sin = (np.array(values)[turns][:, None] for values in ([1, 0, -1, 0], [0, 1, 0, -1]))
    x, y = places[..., 0], places[..., 1]
    return np.stack([cos * x - sin * y, sin * x + cos * y], -1)


def _check_overlaps(world: Any, arrays: dict[str, np.ndarray]) -> None:
    """Poses that are in no bank: how deep MuJoCo finds objects in each other, or in the tray."""
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
                raise BadInstance(f"row {b}: object {pair[1]} and {other} overlap by {-1000 * contact.dist:.1f} mm, "
                                  f"more than {1000 * DEEPEST:.0f}")


def _refuse(wrong: np.ndarray, rule: str) -> None:
    if wrong.any():
        at = np.argwhere(wrong)[0]
        where = f"row {at[0]}" + (f", object {at[1]}" if len(at) > 1 else "")
        raise BadInstance(f"{where}: {rule}")
