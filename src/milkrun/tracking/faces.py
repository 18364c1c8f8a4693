"""Faces of boxes in the camera's picture: where the camera stands, and which face is nearest in each pixel.

Faces towards the camera are clipped, projected and filled with their number and 1/depth where they are nearest (a
z-buffer). Ground that cars shade, or light at night, is numbered too. `camera.py` colours the numbers. Pixel (i, j) of
a picture of F x F is the ray forward + u right + v up, u = ((2j+1)/F - 1) tan_h, v = (1 - (2i+1)/F) tan_v; depth is
measured along forward.
"""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.tracking.shapes import put_rectangle, sweep
from milkrun.tracking.tables import (
    AMBIENT,
    BODY,
    CABIN,
    CABIN_SHARE,
    FLOOR,
    GAIN,
    GLASS,
    LAMP_BIT,
    LAMP_GAIN,
    LENGTH,
    NIGHT,
    SNOW_TOP,
    SUN_X,
    SUN_Y,
    SUN_Z,
    WIDTH,
)

EYE, FORWARD, RIGHT, UP = 0, 3, 6, 9
"""Indices of the camera's place and axes in the scratch `cam`."""
SKY, GROUND, SHADED, LAMPLIT = -1, -2, -3, -4
"""Numbers of pixels without a face; the last two are ground shaded by a car or lit by its headlights."""
FACE_CORNERS = np.array([(1, 3, 7, 5), (2, 0, 4, 6), (3, 2, 6, 7), (0, 1, 5, 4), (4, 5, 7, 6), (0, 2, 3, 1)])
"""Faces +x -x +y -y +z -z of a box: their corners, counter-clockwise seen from outside; bits 0, 1, 2 of a corner's
number say whether it is at the upper end of x, y, z."""
BEAM_NEAR, BEAM_FAR, BEAM_WIDER = 0.3, 9.0, 1.6
"""Headlights light the ground from 0.3 to 9 m before a car, 1.6 m wider on either side at the far end."""


# -- where the camera is ------------------------------------------------------------------------------------------


@kernel
def aim(w, x, y, z, yaw, pitch, roll):
    """Puts the camera at a place and writes its axes into scratch. Roll > 0 leans it to its right."""
    c, s, cp, sp = math.cos(yaw), math.sin(yaw), math.cos(pitch), math.sin(pitch)
    cr, sr = math.cos(roll), math.sin(roll)
    m = w.cam
    m[EYE], m[EYE + 1], m[EYE + 2] = x, y, z
    m[FORWARD], m[FORWARD + 1], m[FORWARD + 2] = cp * c, cp * s, -sp
    m[RIGHT], m[RIGHT + 1], m[RIGHT + 2] = cr * s - sr * sp * c, -cr * c - sr * sp * s, -sr * cp
    m[UP], m[UP + 1], m[UP + 2] = cr * sp * c + sr * s, cr * sp * s - sr * c, cr * cp


@kernel(inline=True)
def along(m, axis, x, y, z):
    """The component of a vector along an axis of the camera."""
    return x * m[axis] + y * m[axis + 1] + z * m[axis + 2]


# -- polygons -----------------------------------------------------------------------------------------------------


@kernel
def put_corner(w, k, x, y, z):
    """Writes corner k of a polygon, a point of the world, in camera axes. True: it lies before the near plane."""
    m = w.cam
    x, y, z = x - m[EYE], y - m[EYE + 1], z - m[EYE + 2]
    w.clipped[k, 0] = along(m, RIGHT, x, y, z)
    w.clipped[k, 1] = along(m, UP, x, y, z)
    w.clipped[k, 2] = along(m, FORWARD, x, y, z)
    return w.clipped[k, 2] < w.near


@kernel
def clip_near(w, n):
    """Clips the polygon `clipped` at the near plane (Sutherland and Hodgman); returns the number of its corners."""
    # Entries 0 to 7 of `corner` are the corners of the box, which its next faces still need.
    for k in range(n):
        for a in range(3):
            w.corner[8 + k, a] = w.clipped[k, a]
    m = 0
    last = 8 + n - 1
    for k in range(8, 8 + n):
        before, after = w.corner[last, 2] - w.near, w.corner[k, 2] - w.near
        if (before < 0.0) != (after < 0.0):
            share = before / (before - after)
            for a in range(3):
                w.clipped[m, a] = w.corner[last, a] + share * (w.corner[k, a] - w.corner[last, a])
            m += 1
        if after >= 0.0:
            for a in range(3):
                w.clipped[m, a] = w.corner[k, a]
            m += 1
        last = k
    return m


@kernel
def outline(w, n):
    """Projects the polygon `clipped` (counter-clockwise) and writes its ends in each line into `left` and `right`.

    Returns its first line and the line after its last. A side that runs down the picture is a left one, since the
    polygon is counter-clockwise; each side takes one division.
    """
    half = 0.5 * w.F
    sx, sy = half / w.tan_h, half / w.tan_v
    least, most = 1e30, -1e30
    for k in range(n):
        q = 1.0 / w.clipped[k, 2]
        x = half - 0.5 + w.clipped[k, 0] * q * sx
        w.poly_x[k] = x
        w.poly_y[k] = half - 0.5 - w.clipped[k, 1] * q * sy
        least, most = min(least, x), max(most, x)
    top, end = w.F, 0
    if most < 0.0 or least > w.F - 1.0:
        return top, end
    # A side has the lines from its smaller y up to but excluding its larger y. Left and right sides of a convex polygon
    # share the first and the last corner, so both arrays are written in every line from `top` to `end`.
    x0, y0 = w.poly_x[n - 1], w.poly_y[n - 1]
    for k in range(n):
        x1, y1 = w.poly_x[k], w.poly_y[k]
        first, last = max(0, math.ceil(min(y0, y1))), min(w.F, math.ceil(max(y0, y1)))
        if first < last:
            top, end = min(top, first), max(end, last)
            slope = (x1 - x0) / (y1 - y0)
            if y1 > y0:
                for i in range(first, last):
                    w.left[i] = x0 + (i - y0) * slope
            else:
                for i in range(first, last):
                    w.right[i] = x0 + (i - y0) * slope
        x0, y0 = x1, y1
    return top, end


@kernel
def fill_face(w, n, face, q0, qx, qy):
    """Writes 1/depth = q0 + qx j + qy i and the number of the face where the polygon is nearer than the z-buffer."""
    top, end = outline(w, n)
    # Both arrays are written in every pixel, and `columns` holds the floats 0, 1, ..., so the inner loop has neither
    # branch nor conversion and is vectorised.
    for i in range(top, end):
        q = q0 + qy * i
        for j in range(max(0, math.ceil(w.left[i])), min(w.F - 1, math.floor(w.right[i])) + 1):
            near = np.float32(q + qx * w.columns[j])
            nearest = near > w.depth_inv[i, j]
            w.depth_inv[i, j] = near if nearest else w.depth_inv[i, j]
            w.ids[i, j] = face if nearest else w.ids[i, j]


@kernel
def mark_ground(w, n, mark):
    """Writes `mark` into the ground pixels that a polygon covers.

    It runs before any box is drawn, when the picture has ground and sky only: numbers that are not below SKY are sky.
    """
    top, end = outline(w, n)
    for i in range(top, end):
        for j in range(max(0, math.ceil(w.left[i])), min(w.F - 1, math.floor(w.right[i])) + 1):
            w.ids[i, j] = mark if w.ids[i, j] < SKY else SKY


# -- boxes --------------------------------------------------------------------------------------------------------


@kernel
def draw_box(w, number, x, y, z, hx, hy, hz, c, s):
    """Draws the faces of an upright box (yaw of cosine c, sine s) towards the camera; False: out of sight."""
    m = w.cam
    dx, dy, dz = x - m[EYE], y - m[EYE + 1], z - m[EYE + 2]
    right, up, ahead = along(m, RIGHT, dx, dy, dz), along(m, UP, dx, dy, dz), along(m, FORWARD, dx, dy, dz)
    radius2 = hx * hx + hy * hy + hz * hz
    # Distance of the centre beyond the side planes of the picture, measured across the camera. The planes are inclined,
    # so the bounding sphere reaches sqrt(1 + tan^2) times its radius in that direction. Squares save two roots a box.
    beside, above = abs(right) - ahead * w.tan_h, abs(up) - ahead * w.tan_v
    if beside > 0.0 and beside * beside > radius2 * (1.0 + w.tan_h * w.tan_h):
        return False
    if above > 0.0 and above * above > radius2 * (1.0 + w.tan_v * w.tan_v):
        return False
    # The half axes of the box in camera axes, rows of `axes`; then the same test for the box instead of its sphere.
    for a in range(3):
        row = RIGHT + 3 * a if a < 2 else FORWARD
        w.axes[0, a] = hx * (c * m[row] + s * m[row + 1])
        w.axes[1, a] = hy * (c * m[row + 1] - s * m[row])
        w.axes[2, a] = hz * m[row + 2]
    th, tv = math.copysign(w.tan_h, right), math.copysign(w.tan_v, up)
    wide, high, deep = 0.0, 0.0, 0.0
    for k in range(3):
        wide += abs(w.axes[k, 0] - th * w.axes[k, 2])
        high += abs(w.axes[k, 1] - tv * w.axes[k, 2])
        deep += abs(w.axes[k, 2])
    if beside > wide or above > high or ahead + deep < w.near:
        return False
    for k in range(8):
        px, py, pz = 1.0 if k & 1 else -1.0, 1.0 if k & 2 else -1.0, 1.0 if k & 4 else -1.0
        w.corner[k, 0] = right + px * w.axes[0, 0] + py * w.axes[1, 0] + pz * w.axes[2, 0]
        w.corner[k, 1] = up + px * w.axes[0, 1] + py * w.axes[1, 1] + pz * w.axes[2, 1]
        w.corner[k, 2] = ahead + px * w.axes[0, 2] + py * w.axes[1, 2] + pz * w.axes[2, 2]
    draw_faces(w, 8 * number, 0, hx, -(c * dx + s * dy), ahead - deep < w.near)
    draw_faces(w, 8 * number + 2, 1, hy, s * dx - c * dy, ahead - deep < w.near)
    draw_faces(w, 8 * number + 4, 2, hz, -dz, ahead - deep < w.near)
    return True


@kernel
def draw_faces(w, face, axis, half, eye, clips):
    """Of the two faces across an axis of the box, numbers `face` and face + 1, draws the one towards the camera.

    `eye`: coordinate of the camera on that axis.
    """
    # A camera between the planes of the two faces sees neither.
    if not abs(eye) > half:
        return
    side = 0 if eye > 0.0 else 1
    for k in range(4):
        for a in range(3):
            w.clipped[k, a] = w.corner[FACE_CORNERS[2 * axis + side, k], a]
    n = clip_near(w, 4) if clips else 4
    if n < 3:
        return
    # The plane n.p = d of the face gives 1/depth = n.(u, v, 1) / d, which is linear in the pixel. The normal is the
    # half axis, as long as `half`; so d is the distance of the plane times `half`.
    d = (half - abs(eye)) * half * (1.0 if side == 0 else -1.0)
    step_u, step_v = 2.0 * w.tan_h / w.F, -2.0 * w.tan_v / w.F
    qx, qy = w.axes[axis, 0] / d * step_u, w.axes[axis, 1] / d * step_v
    q0 = w.axes[axis, 2] / d - (0.5 * w.F - 0.5) * (qx + qy)
    fill_face(w, n, face + side, q0, qx, qy)


@kernel
def light_box(w, b, number, c, s, lamplit):
    """Writes the lit colours of the faces of a box with the colours of walls and top in `paint`."""
    ambient = w.light[b, AMBIENT]
    for face in range(6):
        sign = 1.0 if face % 2 == 0 else -1.0
        facing = w.light[b, SUN_Z]
        if face < 2:
            facing = c * w.light[b, SUN_X] + s * w.light[b, SUN_Y]
        elif face < 4:
            facing = c * w.light[b, SUN_Y] - s * w.light[b, SUN_X]
        gain = w.light[b, GAIN] * (ambient + (1.0 - ambient) * max(0.0, sign * facing))
        if lamplit:
            gain = LAMP_GAIN
        for a in range(3):
            w.lit[8 * number + face, a] = gain * w.paint[1 if face == 4 else 0, a]


@kernel
def draw_static_boxes(w, b, q):
    """Draws and lights the static boxes in sight."""
    snow = w.weathers[w.weather_id[b], SNOW_TOP]
    for k in range(w.n_box[q]):
        c, s = w.box_cs[q, k, 0], w.box_cs[q, k, 1]
        if draw_box(
            w,
            k,
            w.box_pos[q, k, 0],
            w.box_pos[q, k, 1],
            w.box_pos[q, k, 2],
            w.box_half[q, k, 0],
            w.box_half[q, k, 1],
            w.box_half[q, k, 2],
            c,
            s,
        ):
            for a in range(3):
                w.paint[0, a] = w.box_rgb[q, k, 0, a]
                w.paint[1, a] = w.box_rgb[q, k, 1, a] * (1.0 - snow) + 255.0 * snow
            light_box(w, b, k, c, s, False)


@kernel
def out_of_sight(w, x, y, reach):
    """Whether a place on the ground and its surroundings within `reach` are out of the picture, as most cars are."""
    dx, dy, dz = x - w.cam[EYE], y - w.cam[EYE + 1], -w.cam[EYE + 2]
    ahead = along(w.cam, FORWARD, dx, dy, dz)
    beside = abs(along(w.cam, RIGHT, dx, dy, dz)) - ahead * w.tan_h
    above = abs(along(w.cam, UP, dx, dy, dz)) - ahead * w.tan_v
    # 1 + tan exceeds the sqrt(1 + tan^2) of `draw_box`, which decides near the border.
    return ahead + reach < w.near or max(beside, above) > reach * (1.0 + max(w.tan_h, w.tan_v))


@kernel(inline=True)
def cell_at(w, q, x, y):
    """The cell of the ground at x, y counted in cells; outside of the map it is 0."""
    if x >= 0.0 and y >= 0.0 and x < w.G and y < w.G:
        return np.int64(w.ground[q, np.int64(y), np.int64(x)])
    return 0


@kernel
def draw_cars(w, b, q):
    """Draws two boxes for each vehicle: the body in its colour, and the cabin of glass with a roof in that colour.

    No snow lies on vehicles, so a target keeps its colour.
    """
    night = w.weather_id[b] == NIGHT
    for v in range(w.n_veh[b]):
        if w.cars[v, 3] == 0.0:
            continue
        kind, number = w.veh_kind[b, v], w.K + 2 * v
        x, y = w.cars[v, 0], w.cars[v, 1]
        body, cabin = 0.5 * w.kinds[kind, BODY], 0.5 * w.kinds[kind, CABIN]
        length, width = 0.5 * w.kinds[kind, LENGTH], 0.5 * w.kinds[kind, WIDTH]
        if out_of_sight(w, x, y, length + width + 2.0 * (body + cabin) + FLOOR):
            continue
        c, s = math.cos(w.cars[v, 2]), math.sin(w.cars[v, 2])
        for a in range(3):
            w.paint[0, a] = w.veh_rgb[b, v, a]
            w.paint[1, a] = w.veh_rgb[b, v, a]
        lamplit = night and cell_at(w, q, (x + w.extent) / w.cell, (y + w.extent) / w.cell) & LAMP_BIT != 0
        if draw_box(w, number, x, y, FLOOR + body, length, width, body, c, s):
            light_box(w, b, number, c, s, lamplit)
            if night:
                for a in range(3):
                    w.lit[8 * number, a] = w.lamps[0, a]
                    w.lit[8 * number + 1, a] = w.lamps[1, a]
        z = FLOOR + 2.0 * body + cabin
        if draw_box(w, number + 1, x, y, z, length * w.kinds[kind, CABIN_SHARE], 0.9 * width, cabin, c, s):
            for a in range(3):
                w.paint[0, a] = GLASS[a]
            light_box(w, b, number + 1, c, s, lamplit)


@kernel
def mark_cars(w, b):
    """Marks the shadow of every vehicle on the ground, or at night the ground lit by its headlights."""
    night = w.weather_id[b] == NIGHT
    for v in range(w.n_veh[b]):
        if w.cars[v, 3] == 0.0:
            continue
        kind = w.veh_kind[b, v]
        x, y, yaw = w.cars[v, 0], w.cars[v, 1], w.cars[v, 2]
        length, width = 0.5 * w.kinds[kind, LENGTH], 0.5 * w.kinds[kind, WIDTH]
        height = FLOOR + w.kinds[kind, BODY] + w.kinds[kind, CABIN]
        # The length of a shadow is height times the cotangent of the sun's elevation, less than height / SUN_Z.
        if out_of_sight(w, x, y, length + width + max(height / w.light[b, SUN_Z], BEAM_FAR + BEAM_WIDER)):
            continue
        if night:
            n = put_beam(w, x, y, yaw, length, width)
        else:
            n = put_rectangle(w, x, y, yaw, length, width)
            slant = -height / w.light[b, SUN_Z]
            n = sweep(w, n, 0.0, 0.0, slant * w.light[b, SUN_X], slant * w.light[b, SUN_Y])
        clips = False
        for k in range(n):
            if put_corner(w, k, w.hull_x[k], w.hull_y[k], 0.0):
                clips = True
        if clips:
            n = clip_near(w, n)
        if n >= 3:
            mark_ground(w, n, LAMPLIT if night else SHADED)


@kernel
def put_beam(w, x, y, yaw, length, width):
    """The corners of the ground that headlights light, counter-clockwise, into hull_*; their number."""
    c, s = math.cos(yaw), math.sin(yaw)
    for k in range(4):
        far = k == 1 or k == 2
        ahead = length + (BEAM_FAR if far else BEAM_NEAR)
        aside = (width + (BEAM_WIDER if far else 0.0)) * (-1.0 if k < 2 else 1.0)
        w.hull_x[k] = x + c * ahead - s * aside
        w.hull_y[k] = y + s * ahead + c * aside
    return 4
