"""Rays straight down: the cover of each object, and its grip.

Every object has R = 3 G^2 sample points on its upper surface: G^2 on each of three faces, each weighted by the area
that it represents as seen from above. `hit` is the object that a ray through a point hits first. Cover, grip and mask
follow from `hit` and the pose, by the same kernels for the choice, the mask and the views.
"""

from __future__ import annotations

import math

from milkrun.clutter.options import BASE, RIM
from milkrun.core.kernels import kernel

SKY = 1.0  # m, start of rays
NOWHERE = -1.0  # below everything
UPRIGHT = 1e-9  # sine of a can's lean, below which its side is invisible
HAIR = 1e-9  # m, above any rounding error
NEARLY = 1e-12  # m^2, tolerance at which two grips are equally near to the centre


@kernel
def read_frames(w, b):
    """Writes rotation matrices and extents of all objects of a row into scratch, bit-equal to MuJoCo's matrices."""
    for i in range(w.N):
        p = w.at_qpos + 7 * i
        q0, q1, q2, q3 = unit(w.physics[b, p + 3], w.physics[b, p + 4], w.physics[b, p + 5], w.physics[b, p + 6])
        f = w.frame[i]
        f[0] = q0 * q0 + q1 * q1 - q2 * q2 - q3 * q3
        f[4] = q0 * q0 - q1 * q1 + q2 * q2 - q3 * q3
        f[8] = q0 * q0 - q1 * q1 - q2 * q2 + q3 * q3
        f[1], f[2] = 2.0 * (q1 * q2 - q0 * q3), 2.0 * (q1 * q3 + q0 * q2)
        f[3], f[5] = 2.0 * (q1 * q2 + q0 * q3), 2.0 * (q2 * q3 - q0 * q1)
        f[6], f[7] = 2.0 * (q1 * q3 - q0 * q2), 2.0 * (q2 * q3 + q0 * q1)
        for k in range(3):
            w.extent[i, k] = extent_along(w, i, k)


@kernel(inline=True)
def extent_along(w, i, k):
    """Half the extent of an object along axis k of the world. Needs its frame."""
    f, h = w.frame[i], w.half[i]
    if w.is_can[i]:
        along = f[3 * k + 2]
        return h[0] * math.sqrt(max(0.0, 1.0 - along * along)) + h[2] * abs(along)
    return abs(f[3 * k]) * h[0] + abs(f[3 * k + 1]) * h[1] + abs(f[3 * k + 2]) * h[2]


@kernel
def reach_up(w, b, i):
    """Half the extent of an object along z, as in `read_frames`, from the third row of its frame only."""
    p = w.at_qpos + 7 * i
    q0, q1, q2, q3 = unit(w.physics[b, p + 3], w.physics[b, p + 4], w.physics[b, p + 5], w.physics[b, p + 6])
    f = w.frame[i]
    f[8] = q0 * q0 - q1 * q1 - q2 * q2 + q3 * q3
    f[6], f[7] = 2.0 * (q1 * q3 - q0 * q2), 2.0 * (q2 * q3 + q0 * q1)
    return extent_along(w, i, 2)


@kernel(inline=True)
def unit(q0, q1, q2, q3):
    """Normalises a quaternion as MuJoCo does."""
    norm = math.sqrt(q0 * q0 + q1 * q1 + q2 * q2 + q3 * q3)
    if abs(norm - 1.0) > 1e-15:
        scale = 1.0 / norm
        return q0 * scale, q1 * scale, q2 * scale, q3 * scale
    return q0, q1, q2, q3


@kernel(inline=True)
def in_play(w, b, i):
    """Neither out nor lost."""
    return not (w.grasped[b, i] or w.lost[b, i])


@kernel(inline=True)
def height(w, b, i):
    """z of the centre of an object."""
    return w.physics[b, w.at_qpos + 7 * i + 2]


@kernel(inline=True)
def top_of(w, b, i):
    """Its highest z. Needs `read_frames`."""
    return height(w, b, i) + w.extent[i, 2]


@kernel(inline=True)
def sample(w, i, s):
    """Point s on the upper surface of object i relative to its centre, and z of the normal. Needs `read_frames`."""
    f = w.frame[i]
    face, u, v = face_of(w, s)
    if w.is_can[i] and face > 0:
        return side_point(w, i, face, u, v)
    a, c, d, nz = local_point(w, i, face, u, v)
    x = f[0] * a + f[1] * c + f[2] * d
    y = f[3] * a + f[4] * c + f[5] * d
    z = f[6] * a + f[7] * c + f[8] * d
    return x, y, z, nz


@kernel
def weight_of(w, i, face):
    """Weight of each sample of a face: an equal share of its area as seen from above, m2. Needs `read_frames`."""
    f, h = w.frame[i], w.half[i]
    if w.is_can[i]:
        if face == 0:
            area = math.pi * h[0] * h[0] * abs(f[8])
        else:
            lean = math.sqrt(f[2] * f[2] + f[5] * f[5])
            area = 0.0 if face == 2 or lean < UPRIGHT else 4.0 * h[0] * h[2] * lean
    elif face == 0:
        area = 4.0 * h[1] * h[2] * abs(f[6])
    elif face == 1:
        area = 4.0 * h[0] * h[2] * abs(f[7])
    else:
        area = 4.0 * h[0] * h[1] * abs(f[8])
    return area / (w.G * w.G)


@kernel(inline=True)
def face_of(w, s):
    """The face of a sample and its two indices there, from a table: division would dominate the run time."""
    return w.sample_at[s, 0], w.sample_at[s, 1], w.sample_at[s, 2]


@kernel
def grip_in_object(w, i, s):
    """Sample s in the frame of object i."""
    f = w.frame[i]
    face, u, v = face_of(w, s)
    if w.is_can[i] and face > 0:
        x, y, z, _nz = side_point(w, i, face, u, v)
        return f[0] * x + f[3] * y + f[6] * z, f[1] * x + f[4] * y + f[7] * z, f[2] * x + f[5] * y + f[8] * z
    a, c, d, _nz = local_point(w, i, face, u, v)
    return a, c, d


@kernel(inline=True)
def local_point(w, i, face, u, v):
    """A sample on the upward face of a box or the upward cap of a can, in the object's frame, and z of its normal."""
    h, up = w.half[i], w.frame[i, 6 + face]
    if w.is_can[i]:
        up = w.frame[i, 8]
        side = 1.0 if up >= 0.0 else -1.0
        # The square root makes rings of equal area: each sample represents the same share of the cap.
        r, angle = h[0] * math.sqrt((u + 0.5) / w.G), 2.0 * math.pi * (v + 0.5) / w.G
        return r * math.cos(angle), r * math.sin(angle), side * h[2], side * up
    side = 1.0 if up >= 0.0 else -1.0
    p, q = w.spread[u], w.spread[v]
    if face == 0:
        return side * h[0], p * h[1], q * h[2], side * up
    if face == 1:
        return p * h[0], side * h[1], q * h[2], side * up
    return p * h[0], q * h[1], side * h[2], side * up


@kernel
def side_point(w, i, face, u, v):
    """A sample on the upper half of a can's side, evenly spaced as seen from above; a can has no third face."""
    radius, half = w.half[i, 0], w.half[i, 2]
    ax, ay, az = w.frame[i, 2], w.frame[i, 5], w.frame[i, 8]
    lean = math.sqrt(ax * ax + ay * ay)
    if face == 2 or lean < UPRIGHT:
        return 0.0, 0.0, 0.0, 0.0
    # e is horizontal and normal to the axis, n = a x e is normal to both and points up
    ex, ey = -ay / lean, ax / lean
    nx, ny, nz = -az * ey, az * ex, ax * ey - ay * ex
    c, along = w.spread[u], w.spread[v]
    rise = math.sqrt(1.0 - c * c)
    x = along * half * ax + radius * (c * ex + rise * nx)
    y = along * half * ay + radius * (c * ey + rise * ny)
    z = along * half * az + radius * (rise * nz)
    return x, y, z, rise * nz


@kernel
def height_over(w, b, j, x, y):
    """z at which a ray straight down at (x, y) hits object j, NOWHERE if it misses. Needs `read_frames`."""
    p = w.at_qpos + 7 * j
    vx, vy = x - w.physics[b, p], y - w.physics[b, p + 1]
    if (
        abs(vx) > w.extent[j, 0] + HAIR or abs(vy) > w.extent[j, 1] + HAIR
    ):  # outside of its bounding box, as most rays are
        return NOWHERE
    vz = SKY - w.physics[b, p + 2]
    f, h = w.frame[j], w.half[j]
    near, far = -1e30, 1e30
    first = 0
    if w.is_can[j]:  # the round side: a circle across the axis
        first = 2
        ox, oy = f[0] * vx + f[3] * vy + f[6] * vz, f[1] * vx + f[4] * vy + f[7] * vz
        a = f[6] * f[6] + f[7] * f[7]
        c = ox * ox + oy * oy - h[0] * h[0]
        if a < 1e-18:
            if c > 0.0:
                return NOWHERE
        else:
            # Across the axis the ray is o - t (f[6], f[7]); it hits the circle where a t^2 - 2 m t + c = 0.
            m = ox * f[6] + oy * f[7]
            square = m * m - a * c
            if square < 0.0:
                return NOWHERE
            root = math.sqrt(square)
            near, far = (m - root) / a, (m + root) / a
    # The ray is inside of the object from the last side that it enters to the first that it leaves.
    for k in range(first, 3):  # the flat sides: slabs across the axes
        o = f[k] * vx + f[3 + k] * vy + f[6 + k] * vz
        d = -f[6 + k]
        if abs(d) < 1e-12:
            if abs(o) > h[k]:
                return NOWHERE
        else:
            t1, t2 = (-h[k] - o) / d, (h[k] - o) / d
            near, far = max(near, min(t1, t2)), min(far, max(t1, t2))
    return SKY - near if near <= far else NOWHERE


@kernel(inline=True)
def wall_over(w, x, y):
    """The top of the tray's wall at (x, y), NOWHERE if there is none."""
    ax, ay, outer = abs(x), abs(y), w.half_side + RIM
    if ax <= outer and ay <= outer and (ax > w.half_side or ay > w.half_side):
        return w.wall_top
    return NOWHERE


@kernel
def ground_under(w, x, y):
    """The top of the wall, the tray's base or the floor at (x, y)."""
    outer = w.half_side + RIM
    base = BASE if abs(x) <= outer and abs(y) <= outer else 0.0
    return max(base, wall_over(w, x, y))


@kernel
def first_under(w, b, x, y, but):
    """The object that a ray straight down hits first (-1 none), and its z; ignores `but`. Needs `read_frames`."""
    best, first = ground_under(w, x, y), -1
    for j in range(w.N):
        if j != but and in_play(w, b, j):
            z = height_over(w, b, j, x, y)
            if z > best:
                best, first = z, j
    return first, best


@kernel
def cast(w, b):
    """Computes `hit` of a row: the object that each sample's ray hits first, -1 for a wall or an object out of play."""
    read_frames(w, b)
    for i in range(w.N):
        if in_play(w, b, i):
            place_points(w, b, i)
            for j in range(w.N):
                if j != i and in_play(w, b, j) and may_cover(w, b, j, i):
                    cover_points(w, b, i, j)
            end_points(w, b, i)
        else:
            for s in range(w.R):
                w.hit[b, i, s] = -1


@kernel
def place_points(w, b, i):
    """Writes the samples of an object into scratch: x, y and the highest z hit so far, first its own."""
    for s in range(w.R):
        at = sample(w, i, s)
        for k in range(3):
            w.point[s, k] = w.physics[b, w.at_qpos + 7 * i + k] + at[k]
        w.hit[b, i, s] = i


@kernel
def may_cover(w, b, j, i):
    """Whether the bounding box of j is anywhere above that of i: most pairs need no rays. Needs `read_frames`."""
    p, q = w.at_qpos + 7 * j, w.at_qpos + 7 * i
    return (
        abs(w.physics[b, p] - w.physics[b, q]) <= w.extent[j, 0] + w.extent[i, 0] + HAIR
        and abs(w.physics[b, p + 1] - w.physics[b, q + 1]) <= w.extent[j, 1] + w.extent[i, 1] + HAIR
        and w.physics[b, p + 2] + w.extent[j, 2] >= w.physics[b, q + 2] - w.extent[i, 2] - HAIR
    )


@kernel
def cover_points(w, b, i, j):
    """Replaces hits of i's samples by object j where it is higher."""
    for s in range(w.R):
        over = height_over(w, b, j, w.point[s, 0], w.point[s, 1])
        # `>`: at equal heights the first hit stays, the object itself before all others.
        if over > w.point[s, 2]:
            w.point[s, 2] = over
            w.hit[b, i, s] = j


@kernel
def end_points(w, b, i):
    """Clears samples below a wall, and those of a can's missing or invisible faces."""
    square = w.G * w.G
    for face in range(3):
        absent = w.is_can[i] and weight_of(w, i, face) == 0.0
        for s in range(face * square, (face + 1) * square):
            if absent or wall_over(w, w.point[s, 0], w.point[s, 1]) > w.point[s, 2]:
                w.hit[b, i, s] = -1


@kernel
def covered_share(w, b, i):
    """The share of an object's upper surface covered by others, and its area as seen from above, m2."""
    others, whole, square = 0.0, 0.0, w.G * w.G
    for face in range(3):
        weight = weight_of(w, i, face)
        for s in range(face * square, (face + 1) * square):
            whole += weight
            if w.hit[b, i, s] >= 0 and w.hit[b, i, s] != i:
                others += weight
    return others / whole, whole


@kernel
def grip_sample(w, b, i):
    """The grip: of the visible and sufficiently level samples the nearest to the centre, -1 if there is none."""
    best, nearest, square = -1, 1e30, w.G * w.G
    for face in range(3):
        if may_be_gripped(w, i, face):
            for s in range(face * square, (face + 1) * square):
                if w.hit[b, i, s] == i:
                    x, y, _z, nz = sample(w, i, s)
                    if is_better_grip(w, x, y, nz, nearest):
                        best, nearest = s, x * x + y * y
    return best


@kernel
def has_grip(w, b, i):
    """Whether an object has a grip; stops at the first one."""
    square = w.G * w.G
    for face in range(3):
        if may_be_gripped(w, i, face):
            flat = face == 0 or not w.is_can[i]
            for s in range(face * square, (face + 1) * square):
                if w.hit[b, i, s] == i and (flat or sample(w, i, s)[3] >= w.max_tilt_cos):
                    return True
    return False


@kernel(inline=True)
def may_be_gripped(w, i, face):
    """Whether any point of a face is level enough; a flat face has one normal. Needs `read_frames`."""
    if w.is_can[i]:
        return face == 1 or (face == 0 and abs(w.frame[i, 8]) >= w.max_tilt_cos)
    return abs(w.frame[i, 6 + face]) >= w.max_tilt_cos


@kernel(inline=True)
def is_better_grip(w, x, y, nz, nearest):
    """Whether a visible point is level enough and nearer to the centre than the best so far, `nearest` m2."""
    return nz >= w.max_tilt_cos and x * x + y * y < nearest - NEARLY


@kernel
def top_sample(w, i):
    """The sample nearest to the centre on the most level face: the grip of last resort."""
    face, level, square = 0, -1.0, w.G * w.G
    for k in range(3):
        if w.is_can[i]:
            lean = math.sqrt(w.frame[i, 2] ** 2 + w.frame[i, 5] ** 2)
            up = (abs(w.frame[i, 8]), lean, -1.0)[k]
        else:
            up = abs(w.frame[i, 6 + k])
        if up > level:
            face, level = k, up
    best, nearest = face * square, 1e30
    for s in range(face * square, (face + 1) * square):
        x, y, _z, _nz = sample(w, i, s)
        if x * x + y * y < nearest - NEARLY:
            best, nearest = s, x * x + y * y
    return best


@kernel
def last_resort(w, b):
    """The highest object if none can be gripped, which is then allowed; else -1. Needs `read_frames`."""
    top, highest = -1e30, -1
    for i in range(w.N):
        if in_play(w, b, i):
            if has_grip(w, b, i):
                return -1
            if top_of(w, b, i) > top:
                top, highest = top_of(w, b, i), i
    return highest


@kernel
def mark_allowed(w, b):
    """The mask: objects in play with a grip, or the highest one if there is none.

    During a pick every action is allowed, since it is ignored.
    """
    read_frames(w, b)
    busy = w.env_stage[b] != 0
    for i in range(w.N):
        w.action_mask[b, i] = busy or (in_play(w, b, i) and has_grip(w, b, i))
    if not busy:
        highest = last_resort(w, b)
        if highest >= 0:
            w.action_mask[b, highest] = True
