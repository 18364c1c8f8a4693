"""The rewards of the tracking world as plain numpy functions of the 60 RewardParams.

They need no world, so clients of foreign simulators, analyses and tests can use them. `params` is an array (..., 60),
one line a moment; results have the shape (...). `reward_kernels.py` has the compiled versions.

| entries of `params` | meaning |
|---|---|
| 0, 1, 2, 3 | width and height of the image, horizontal field of view, focal length in pixels |
| 4, 5, 6 | pitch of the camera, height of the drone, direction drawn at the start |
| 7..22, 23..38 | pose of the camera and of the target in the world, 4 x 4 by rows; axes forward, left, up |
| 39..41, 42..44, 45..47 | point of the ground in the middle of the image, centre of the target, camera |
| 48 | heading of the target less yaw of the drone |
| 49..51, 52..54, 55..57 | target in the drone's axes, its velocity and its acceleration there |
| 58, 59 | crash; motion of the target: 0 stands, 1 straight on, 2 turns left, 3 turns right |
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from milkrun.core.errors import ShapeError

Floats = NDArray[np.float64]

CODED, PUBLISHED = "as_coded", "as_published"


def gauge(params: ArrayLike, *, view_range: float = 0.7) -> Floats:
    """The factor by which the window must grow about its middle to reach the target, on the ground; below 1: inside.

    The window is the picture shrunk to `view_range` about its centre; on the ground it is a quadrilateral.
    """
    p = _params(params)
    pose = p[..., 7:23].reshape(*p.shape[:-1], 4, 4)
    tan_h = np.tan(p[..., 2] / 2) * view_range
    tan_v = tan_h * p[..., 1] / p[..., 0]
    middle = _on_ground(pose, 0 * tan_h, 0 * tan_v)
    off = p[..., 42:44] - middle
    corners = [_on_ground(pose, i * tan_h, j * tan_v) - middle for i, j in ((1, 1), (1, -1), (-1, -1), (-1, 1))]
    shares = []
    for here, there in zip(corners, corners[1:] + corners[:1]):
        side = there - here
        outward = np.stack([side[..., 1], -side[..., 0]], -1)
        shares.append((outward * off).sum(-1) / (outward * here).sum(-1))
    return np.maximum(np.max(shares, axis=0), 0.0)


def scores(
    params: ArrayLike,
    *,
    view_range: float = 0.7,
    view_scale: float = 4.0,
    occlusion: str = "ignore",
    visible: ArrayLike = True,
) -> tuple[Floats, Floats]:
    """r_c, which falls from 1 in the middle of the window to 0 at its edge, and r_d, 1 inside.

    With `occlusion="zero"` both are 0 where the target is not `visible`.
    """
    x = gauge(params, view_range=view_range)
    inside = x < 1
    if occlusion == "zero":
        inside = inside & np.asarray(visible, bool)
    return np.where(inside, np.tanh(view_scale * (1 - np.minimum(x, 1)) ** 3), 0.0), inside.astype(np.float64)


def view(
    params: ArrayLike,
    *,
    mode: str = "continuous",
    view_range: float = 0.7,
    view_scale: float = 4.0,
    occlusion: str = "ignore",
    visible: ArrayLike = True,
    scale: float = 1.0,
) -> Floats:
    """The default reward: r_c (`mode="continuous"`) or r_d ("discrete") times `scale`; 0 on a crash."""
    r_c, r_d = scores(params, view_range=view_range, view_scale=view_scale, occlusion=occlusion, visible=visible)
    return np.where(_crash(params), 0.0, r_d if mode == "discrete" else r_c) * scale


def distance(
    params: ArrayLike,
    *,
    mode: str = "continuous",
    distance_range: float = 7.0,
    distance_scale: float = 0.01,
    scale: float = 1.0,
) -> Floats:
    """The default reward of `reward_kind="distance"`, 0 on a crash.

    It falls with the metres on the ground from the middle of the image to the target.
    """
    p = _params(params)
    off = np.hypot(p[..., 42] - p[..., 39], p[..., 43] - p[..., 40])
    near = (off < distance_range).astype(np.float64)
    paid = near if mode == "discrete" else np.maximum(0.0, near - np.tanh(distance_scale * off**3))
    return np.where(_crash(p), 0.0, paid) * scale


def e2e(params: ArrayLike, d_ref: ArrayLike, *, constants: str = CODED, scale: float = 1.0) -> Floats:
    """Luo et al. 2018: the target ahead at the distance `d_ref`, headed as the drone; -1 on a crash.

    As coded the reward is clipped to -1..1.
    """
    p = _params(params)
    off = np.hypot(p[..., 49] - np.asarray(d_ref, np.float64), p[..., 50])
    paid = 1 - (off / 9 + 2 / p[..., 2] * np.abs(p[..., 48]))
    if constants == CODED:
        paid = np.clip(paid, -1, 1)
    return np.where(_crash(p), -1.0, paid) * scale


def dvat(
    params: ArrayLike,
    d_ref: ArrayLike,
    cmd: ArrayLike = (0.0, 0.0, 0.0, 0.0),
    *,
    constants: str = CODED,
    scale: float = 1.0,
) -> Floats:
    """Dionigi et al. 2024: the target at the distance `d_ref` in the middle of the picture; -10 on a crash.

    As published distances are along the optical axis, relative speed and the command `cmd` (..., 4: vx, vy, vz, wz)
    cost up to 0.4 each, and a target `out_of_range` gives -10.
    """
    p, d, u = _params(params), np.asarray(d_ref, np.float64), np.asarray(cmd, np.float64)
    lost = _crash(p)
    if constants == CODED:
        x = p[..., 49]
        paid = np.cbrt(np.maximum(0, 1 - np.abs(x - d)) * _centred(p, p[..., 50], x))
    else:
        x, up = _along_axis(p)
        across = _centred(p, p[..., 50], x) * _centred(p, up, x)
        speed = np.linalg.norm(p[..., 52:55], axis=-1)
        effort = np.linalg.norm(u[..., [0, 1, 3]] / (40.0, 40.0, 2.0), axis=-1)
        paid = np.cbrt(np.maximum(0, 1 - np.abs(x - d)) * across)
        paid = paid - 0.4 * speed / (1 + speed) - 0.4 * effort / (1 + effort)
        lost = lost | out_of_range(p, d)
    return np.where(lost, -10.0, paid) * scale


def reference(params: ArrayLike, *, reward: str = "default", constants: str = CODED) -> Floats:
    """`d_ref`, from the params of the first step of an episode: the distance that E2E and D-VAT hold."""
    p = _params(params)
    if constants == PUBLISHED and reward == "E2E":
        return p[..., 5] / np.tan(p[..., 4])
    if constants == PUBLISHED and reward in ("D-VAT", "DVAT"):
        return _along_axis(p)[0]
    return p[..., 49]


def out_of_range(params: ArrayLike, d_ref: ArrayLike) -> NDArray[np.bool_]:
    """Whether the target is nearer than 0.6 or farther than 6 `d_ref`, where D-VAT as published ends an episode."""
    away, d = np.linalg.norm(_params(params)[..., 49:52], axis=-1), np.asarray(d_ref, np.float64)
    return (away < 0.6 * d) | (away > 6 * d)


def _params(params: ArrayLike) -> Floats:
    p = np.asarray(params, np.float64)
    if p.shape[-1:] != (60,):
        raise ShapeError(f"params must have 60 numbers along their last axis, not the shape {p.shape}")
    return p


def _crash(params: ArrayLike) -> NDArray[np.bool_]:
    return _params(params)[..., 58] != 0


def _on_ground(pose: Floats, left: Any, up: Any) -> Floats:
    """Where the ray through a point of the picture, given by the tangents of its angles, meets the ground."""
    ray = pose[..., :3, 0] + left[..., None] * pose[..., :3, 1] + up[..., None] * pose[..., :3, 2]
    return pose[..., :2, 3] - ray[..., :2] * (pose[..., 2, 3] / ray[..., 2])[..., None]


def _along_axis(p: Floats) -> tuple[Floats, Floats]:
    """The target along the optical axis, and up from it."""
    c, s = np.cos(p[..., 4]), np.sin(p[..., 4])
    return c * p[..., 49] - s * p[..., 51], s * p[..., 49] + c * p[..., 51]


def _centred(p: Floats, across: Floats, along: Floats) -> Floats:
    """1 on the axis, 0 from the edge of the horizontal field of view on; at `along` 0 the angle is a right one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        angle = np.where((along == 0) & (across == 0), 0.0, np.arctan(across / along))
    return np.maximum(0, 1 - np.abs(2 / p[..., 2] * angle))
