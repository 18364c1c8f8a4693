"""The scalar reference of the tracking drone's view and rewards: gauge, RewardParams, visible, rewards.

One row, plain Python, float64, written from the rules alone. The gauge follows a ray from the window's centre through
the target to the window's edge; the compiled world computes it by another method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]
CRASH_PAY = {"default": 0.0, "E2E": -1.0, "D-VAT": -10.0}
OUT_OF_RANGE = -10.0  # D-VAT as published


def reward_type(config: Any) -> str:
    return "D-VAT" if config.reward == "DVAT" else str(config.reward)


# The camera


def half_tangents(config: Any) -> tuple[float, float]:
    """Of half the horizontal and half the vertical angle of view."""
    width, height = config.camera_px
    across = math.tan(config.hfov / 2)
    return across, across * height / width


def level_axes(yaw: float) -> np.ndarray:
    """Columns forward, left, up of the drone, which never tilts."""
    c, s = math.cos(yaw), math.sin(yaw)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])


def camera_axes(yaw: float, pitch: float) -> np.ndarray:
    """Columns forward, left, up of the camera."""
    c, s = math.cos(pitch), math.sin(pitch)
    return level_axes(yaw) @ np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])


def matrix4(axes: np.ndarray, origin: Sequence[float]) -> np.ndarray:
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = axes, origin
    return pose


def on_ground(origin: np.ndarray, ray: np.ndarray) -> np.ndarray:
    """The intersection of a ray with the plane z = 0."""
    if ray[2] >= 0:
        raise ValueError(f"the ray {ray} does not go down")
    return origin + origin[2] / -ray[2] * ray


def window(pos: Sequence[float], yaw: float, pitch: float, config: Any, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Centre and corners of the scaled picture on the ground."""
    origin, axes = np.array(pos, float), camera_axes(yaw, pitch)
    across, upward = (scale * t for t in half_tangents(config))
    corners = [
        on_ground(origin, axes @ (1, a * across, b * upward))[:2] for a, b in ((1, 1), (-1, 1), (-1, -1), (1, -1))
    ]
    return on_ground(origin, axes[:, 0])[:2], np.array(corners)


def gauge(target: Sequence[float], centre: np.ndarray, corners: np.ndarray) -> float:
    """Distance of the target from the centre: 0 at the centre, 1 on the edge, linear along each ray."""
    cx, cy = centre.tolist()
    rx, ry, scale = float(target[0]) - cx, float(target[1]) - cy, 0.0
    sides = corners.tolist()
    for (px, py), (qx, qy) in zip(sides, sides[1:] + sides[:1]):
        # centre + t ray = p + share (q - p), by Cramer's rule; a ray parallel to a side hits another one
        sx, sy, wx, wy = qx - px, qy - py, px - cx, py - cy
        both = rx * sy - ry * sx
        if abs(both) <= 1e-14 * math.hypot(rx, ry) * math.hypot(sx, sy):
            continue
        t, share = (wx * sy - wy * sx) / both, (wx * ry - wy * rx) / both
        if t > 0 and -1e-9 <= share <= 1 + 1e-9:
            scale = max(scale, 1 / t)
    return scale


def in_picture(target: np.ndarray, pos: np.ndarray, yaw: float, pitch: float, config: Any) -> bool:
    x, y, z = camera_axes(yaw, pitch).T @ (target - pos)
    across, upward = half_tangents(config)
    return bool(x > 0 and abs(y) <= across * x and abs(z) <= upward * x)


def in_box(town: Row, k: int, point: np.ndarray) -> np.ndarray:
    """The point in the axes of static box k."""
    return level_axes(float(town["box_yaw"][k])).T @ (point - town["box_pos"][k])


def sight_is_free(town: Row, start: np.ndarray, end: np.ndarray) -> bool:
    """No static box intersects the line between the two points."""
    for k in range(town["n_box"]):
        a, b, half = in_box(town, k, start), in_box(town, k, end), town["box_half"][k]
        first, last = 0.0, 1.0
        for axis in range(3):
            way = b[axis] - a[axis]
            if way == 0:
                if abs(a[axis]) > half[axis]:
                    first = math.inf
            else:
                t0, t1 = sorted(((-half[axis] - a[axis]) / way, (half[axis] - a[axis]) / way))
                first, last = max(first, t0), min(last, t1)
        if first <= last:
            return False
    return True


def distance_to_boxes(town: Row, point: np.ndarray) -> float:
    """From a point to the nearest static box, 0 inside one."""
    n = int(town["n_box"])
    (dx, dy, dz), yaw = (point - town["box_pos"][:n]).T, town["box_yaw"][:n]
    c, s = np.cos(yaw), np.sin(yaw)
    outside = np.maximum(np.abs(np.c_[c * dx + s * dy, c * dy - s * dx, dz]) - town["box_half"][:n], 0)
    return float(np.sqrt((outside**2).sum(axis=1)).min(initial=math.inf))


# RewardParams


def target_centre(state: Row) -> np.ndarray:
    """On the plane z = 0."""
    return np.array([*state["veh_pose"][0][:2], 0.0])


def target_in_drone_frame(state: Row) -> np.ndarray:
    return level_axes(state["yaw"]).T @ (target_centre(state) - state["pos"])


def target_motion(state: Row) -> int:
    """2 turns left, 3 turns right, 0 stands, 1 goes straight on."""
    if state["veh_rate"] > 0.05:
        return 2
    if state["veh_rate"] < -0.05:
        return 3
    return 0 if state["veh_v"][0] < 0.5 else 1


def reward_params(state: Row, config: Any) -> np.ndarray:
    """The 60 numbers; 49..57 are `rel` of the state."""
    yaw, pitch, pos = float(state["yaw"]), float(state["pitch"]), np.array(state["pos"], float)
    heading, target = float(state["veh_pose"][0][2]), target_centre(state)
    width, height = config.camera_px
    camera = camera_axes(yaw, pitch)
    relative = math.remainder(heading - yaw, 2 * math.pi)
    return np.array(
        [
            width,
            height,
            config.hfov,
            width / 2 / half_tangents(config)[0],
            pitch,
            pos[2],
            state["start"][1],
            *matrix4(camera, pos).ravel(),
            *matrix4(level_axes(heading), target).ravel(),
            *on_ground(pos, camera[:, 0]),
            *target,
            *pos,
            math.pi if relative == -math.pi else relative,
            *state["rel"],
            float(state["crash"]),
            target_motion(state),
        ]
    )


def target_in_camera_frame(params: np.ndarray) -> np.ndarray:
    return params[7:23].reshape(4, 4)[:3, :3].T @ (params[42:45] - params[45:48])


# Rewards


def view(x: float, view_scale: float) -> tuple[float, float]:
    """Continuous and discrete reward of a gauge."""
    return math.tanh(view_scale * (1 - min(x, 1.0)) ** 3), 1.0 if x < 1 else 0.0


def distance(d: float, reach: float, scale: float) -> tuple[float, float]:
    """Continuous and discrete reward of a distance between target and image centre on the ground."""
    near = 1.0 if d < reach else 0.0
    return max(0.0, near - math.tanh(scale * d**3)), near


def e2e(x: float, y: float, w: float, d: float, hfov: float, constants: str) -> float:
    """Target at (x, y) in the drone frame with relative heading w, wanted at (d, 0)."""
    pay = 1 - (math.hypot(x - d, y) / 9 + 2 / hfov * abs(w))
    return pay if constants == "as_published" else max(-1.0, min(1.0, pay))


def centred(side: float, x: float, hfov: float) -> float:
    """1 in the middle of the picture, 0 at its edge and beyond."""
    angle = math.atan(side / x) if x != 0 else math.copysign(math.pi / 2, side) if side != 0 else 0.0
    return max(0.0, 1 - abs(2 / hfov * angle))


def dvat(x: float, y: float, d: float, hfov: float) -> float:
    """D-VAT as coded, in the drone frame."""
    return float(np.cbrt(max(0.0, 1 - abs(x - d)) * centred(y, x, hfov)))


def dvat_published(at: Sequence[float], d: float, hfov: float, speed: float, control: float) -> float:
    """D-VAT as published, in the camera frame, inside its range."""
    x, y, z = at
    product = max(0.0, 1 - abs(x - d)) * centred(y, x, hfov) * centred(z, x, hfov)
    return float(np.cbrt(product)) - 0.4 * speed / (1 + speed) - 0.4 * control / (1 + control)


def out_of_range(params: np.ndarray, d: float, config: Any) -> bool:
    """Published D-VAT alone limits the distance of drone and target."""
    if reward_type(config) != "D-VAT" or config.constants != "as_published":
        return False
    way = math.dist(params[42:45], params[45:48])
    return way < 0.6 * d or way > 6 * d


def reference_distance(params: np.ndarray, config: Any) -> float:
    """d of E2E and D-VAT, from the first agent step of an episode."""
    if config.constants == "as_published":
        if reward_type(config) == "E2E":
            return float(params[5] / math.tan(params[4]))
        if reward_type(config) == "D-VAT":
            return float(target_in_camera_frame(params)[0])
    return float(params[49])


def view_rewards(params: np.ndarray, visible: bool, config: Any) -> tuple[float, float, float]:
    """Gauge, r_c and r_d: rewards of the view, for every reward type."""
    yaw = math.atan2(params[11], params[7])
    centre, corners = window(params[45:48], yaw, params[4], config, config.view_range)
    x = gauge(params[42:44], centre, corners)
    r_c, r_d = view(x, config.view_scale)
    if config.occlusion == "zero" and not visible:
        r_c, r_d = 0.0, 0.0
    return x, r_c, r_d


def pay(params: np.ndarray, d: float, cmd: Sequence[float], visible: bool, config: Any) -> float:
    """The scaled reward of an agent step, without the end reward."""
    return config.reward_scale * unscaled_pay(params, d, cmd, visible, config)


def unscaled_pay(params: np.ndarray, d: float, cmd: Sequence[float], visible: bool, config: Any) -> float:
    kind = reward_type(config)
    if params[58]:
        return CRASH_PAY[kind]
    if kind == "default":
        _, r_c, r_d = view_rewards(params, visible, config)
        if config.reward_kind == "distance":
            off = math.dist(params[42:44], params[39:41])
            r_c, r_d = distance(off, config.distance_range, config.distance_scale)
        return r_d if config.reward_mode == "discrete" else r_c
    if kind == "E2E":
        return e2e(params[49], params[50], params[48], d, config.hfov, config.constants)
    if config.constants != "as_published":
        return dvat(params[49], params[50], d, config.hfov)
    if out_of_range(params, d, config):
        return OUT_OF_RANGE
    control = math.hypot(cmd[0] / 40, cmd[1] / 40, cmd[3] / 2)
    speed = float(np.linalg.norm(params[52:55]))
    return dvat_published(target_in_camera_frame(params), d, config.hfov, speed, control)
