"""The camera: a picture of the town and its cars from any pose.

`faces.py` writes the number of the nearest face of each pixel. Here each line is coloured by these numbers (faces,
ground, sky, windows, fog), so hidden faces cost no shading; noise is added last.
"""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import fetch, kernel
from milkrun.core.rng import block, integers, row_stream
from milkrun.tracking.faces import (
    EYE,
    FORWARD,
    GROUND,
    RIGHT,
    SHADED,
    SKY,
    UP,
    cell_at,
    draw_cars,
    draw_static_boxes,
    mark_cars,
)
from milkrun.tracking.streams import FLAKES, FRAME
from milkrun.tracking.tables import (
    AMBIENT,
    BUILDING,
    FLAKE_SHARE,
    FOG,
    GAIN,
    LAMP_BIT,
    LAMP_GAIN,
    NIGHT,
    SHADOW_BIT,
    SIGMA,
    SUN_Z,
)

BAY, STOREY = 2.6, 3.0
"""Windows: one each 2.6 m along a wall and 3 m up."""
PANE_LEFT, PANE_RIGHT, PANE_LOW, PANE_HIGH, PANE_TOP = 0.25, 0.75, 0.30, 0.78, 2.4
"""Extent of a pane, as shares of a bay and of a storey; and the least height from a storey's floor to the top, in m."""
SEAM, SEAM_DARK = 1.5, 0.72
"""Walls get darker over the last 1.5 m above the ground."""
LIT_WINDOW = (255.0, 214.0, 140.0)
CACHE_LINE = 64

_0, _1, _HALF, _SIXTH = np.float32(0), np.float32(1), np.float32(0.5), np.float32(1 / 6)
_255, _QUARTER, _GLASS_RG, _GLASS_B = np.float32(255), np.float32(0.25), np.float32(0.45), np.float32(0.5)
_RED, _GREEN, _BLUE = np.float32(0.299), np.float32(0.587), np.float32(0.114)
_THICKEST, _256TH = np.float32(16), np.float32(1 / 256)

# -- ground -------------------------------------------------------------------------------------------------------


@kernel
def light_ground(w, b):
    """Lit colours of all possible cells."""
    ambient, night = w.light[b, AMBIENT], w.weather_id[b] == NIGHT
    # A cell is one byte, so the 256 colours of ground are computed once a picture.
    for cell in range(256):
        gain = w.light[b, GAIN] * ambient
        if cell & SHADOW_BIT == 0:
            gain += w.light[b, GAIN] * (1.0 - ambient) * max(0.0, w.light[b, SUN_Z])
        if night and cell & LAMP_BIT != 0:
            gain = LAMP_GAIN
        gain *= 0.94 + 0.04 * ((cell >> 4) & 3)
        for a in range(3):
            w.ground_lit[cell, a] = gain * w.palette[b, cell & 15, a]


@kernel
def clear_picture(w):
    """Ground below the horizon, sky above it: the first plane of the z-buffer."""
    # The ground is the plane z = 0, so 1/depth is linear in the pixel, as for any face, and negative above the horizon.
    # A camera in the ground sees no ground.
    m = w.cam
    down, sideways, upwards = 0.0, 0.0, 0.0
    if m[EYE + 2] > 0.0:
        down = -m[FORWARD + 2] / m[EYE + 2]
        sideways = -m[RIGHT + 2] * w.tan_h / m[EYE + 2]
        upwards = -m[UP + 2] * w.tan_v / m[EYE + 2]
    for i in range(w.F):
        q0 = down + upwards * (1.0 - (2 * i + 1) / w.F) + sideways * (1.0 / w.F - 1.0)
        qx = 2.0 * sideways / w.F
        for j in range(w.F):
            q = np.float32(q0 + qx * w.columns[j])
            w.depth_inv[i, j] = q if q > _0 else _0
        for j in range(w.F):
            w.ids[i, j] = GROUND if w.depth_inv[i, j] > _0 else SKY


@kernel
def aim_line(w, i):
    """The ray of the first pixel of line i, and by how much it changes from column to column, into `ray`."""
    u, v = (1.0 / w.F - 1.0) * w.tan_h, (1.0 - (2 * i + 1) / w.F) * w.tan_v
    for a in range(3):
        w.ray[0, a] = w.cam[FORWARD + a] + u * w.cam[RIGHT + a] + v * w.cam[UP + a]
        w.ray[1, a] = 2.0 * w.tan_h / w.F * w.cam[RIGHT + a]


@kernel
def find_cells(w):
    """Writes the ground cells of the line into `spots`, if the fast way applies; False otherwise.

    It applies without roll, when the line has one depth and so equal steps on the ground, and with both ends on the
    map.
    """
    t = -w.cam[EYE + 2] / w.ray[0, 2] / w.cell
    # Here and below `not` also refuses nan: t is 0 / 0 for a camera in the ground that looks along it.
    if w.ray[1, 2] != 0.0 or not t > 0.0:
        return False
    for a in range(2):
        first, step = (w.cam[EYE + a] + w.extent) / w.cell + t * w.ray[0, a], t * w.ray[1, a]
        last = first + step * (w.F - 1)
        if not (min(first, last) >= 0.0 and max(first, last) < w.G):
            return False
        for j in range(w.F):
            w.spots[a, j] = np.int32(first + step * w.columns[j])
    return True


@kernel
def prefetch_ground(w, q):
    """Prefetches the ground that the picture may show, between its far and its near line.

    The towns of a batch exceed the CPU cache; the loads overlap with the drawing of boxes.
    """
    west, east, south, north = w.G, 0, w.G, 0
    for i in range(0, w.F, w.F - 1):
        aim_line(w, i)
        if not find_cells(w):
            return
        for j in range(0, w.F, w.F - 1):
            west, east = min(west, w.spots[0, j]), max(east, w.spots[0, j])
            south, north = min(south, w.spots[1, j]), max(north, w.spots[1, j])
    ground = w.ground[q]
    for y in range(south, north + 1):
        # One step beyond `east`, since cells that do not begin at a cache line may touch one more line. `fetch` accepts
        # indices beyond the map.
        for x in range(west, east + CACHE_LINE, CACHE_LINE):
            fetch(ground, y, x)


@kernel
def colour_ground(w, q, i, first, found):
    """Colours the run of ground that begins at pixel `first` of line i; returns its end."""
    face, j, mark = w.ids[i, first], first, 0
    if face != GROUND:
        mark = SHADOW_BIT if face == SHADED else LAMP_BIT
    while j < w.F and w.ids[i, j] == face:
        if found:
            cell = np.int64(w.ground[q, w.spots[1, j], w.spots[0, j]]) | mark
        else:
            t = -w.cam[EYE + 2] / (w.ray[0, 2] + w.ray[1, 2] * j)
            x = w.cam[EYE] + w.extent + t * (w.ray[0, 0] + w.ray[1, 0] * j)
            y = w.cam[EYE + 1] + w.extent + t * (w.ray[0, 1] + w.ray[1, 1] * j)
            cell = cell_at(w, q, x / w.cell, y / w.cell) | mark
        w.line[0, j] = w.ground_lit[cell, 0]
        w.line[1, j] = w.ground_lit[cell, 1]
        w.line[2, j] = w.ground_lit[cell, 2]
        j += 1
    return j


# -- a line of the picture ----------------------------------------------------------------------------------------


@kernel
def colour_wall(w, b, q, i, first, end):
    """Windows of buildings, and the dark seam that every wall has at its foot, in a run of one wall."""
    face = np.int64(w.ids[i, first])
    box, side = face >> 3, face & 7
    z, rise, turn = w.cam[EYE + 2], w.ray[0, 2], w.ray[1, 2]
    # The camera and the ray in the box's axes: across the wall, and along it, which is y for faces +x -x, x for +y -y.
    c, s, bays = w.box_cs[q, box, 0], w.box_cs[q, box, 1], 1.0 / BAY
    # For +y -y a quarter turn makes the box's y the axis across. The axis along the wall then points to -x, which the
    # sign of `bays` reverts.
    if side >= 2:
        c, s, bays = -s, c, -bays
    ex, ey = w.cam[EYE] - w.box_pos[q, box, 0], w.cam[EYE + 1] - w.box_pos[q, box, 1]
    gap = w.box_half[q, box, side >> 1] * (1.0 if side % 2 == 0 else -1.0) - (c * ex + s * ey)
    across, across_step = c * w.ray[0, 0] + s * w.ray[0, 1], c * w.ray[1, 0] + s * w.ray[1, 1]
    top = -1.0
    if w.box_kind[q, box] == BUILDING:
        top = (w.box_pos[q, box, 2] + w.box_half[q, box, 2] - PANE_TOP) * (1.0 / STOREY)
    else:
        # Along a run the height on the wall is monotonic, so its ends decide whether the seam shows.
        low = gap * (rise + turn * first) / (across + across_step * first)
        if z + min(low, gap * (rise + turn * (end - 1)) / (across + across_step * (end - 1))) >= SEAM:
            return
    # An offset of 64 keeps the numbers of bays positive (on walls of up to 330 m; beyond, windows stay dark at night),
    # so that truncation rounds down and -1 can mean "no pane".
    start, beside = bays * (c * ey - s * ex) + 64.0, bays * (c * w.ray[0, 1] - s * w.ray[0, 0])
    beside_step = bays * (c * w.ray[1, 1] - s * w.ray[1, 0])
    for j in range(first, end):
        t = gap / (across + across_step * w.columns[j])
        h = z + t * (rise + turn * w.columns[j])
        bay, storey = start + t * (beside + beside_step * w.columns[j]), h * (1.0 / STOREY)
        at, level = bay - np.floor(bay), np.floor(storey)
        pane = (at > PANE_LEFT) & (at < PANE_RIGHT) & (storey - level > PANE_LOW) & (storey - level < PANE_HIGH)
        pane = pane & (level < top)
        w.panes[0, j], w.panes[1, j] = bay if pane else -1.0, level
        seam = np.float32(SEAM_DARK + (1.0 - SEAM_DARK) / SEAM * min(SEAM, h))
        w.line[0, j] *= seam * _GLASS_RG if pane else seam
        w.line[1, j] *= seam * _GLASS_RG if pane else seam
        w.line[2, j] *= seam * _GLASS_B if pane else seam
    if w.weather_id[b] == NIGHT and top > 0.0:
        light_windows(w, first, end, box * 83492791 + side * 2654435)


@kernel
def light_windows(w, first, end, wall):
    """At night a quarter of the windows shine, chosen by a hash of the wall and their place in it."""
    for j in range(first, end):
        if w.panes[0, j] >= 0.0:
            mixed = (np.int64(w.panes[0, j]) * 73856093) ^ (np.int64(w.panes[1, j]) * 19349663) ^ wall
            if (mixed >> 7) & 7 < 2:
                for a in range(3):
                    w.line[a, j] = LIT_WINDOW[a]


@kernel
def colour_line(w, b, q, i):
    """Colours of line i without fog, run by run of one face, of ground or of sky."""
    aim_line(w, i)
    found = find_cells(w)
    first = 0
    while first < w.F:
        face = np.int64(w.ids[i, first])
        # GROUND, SHADED and LAMPLIT are the numbers below SKY.
        if face < SKY:
            first = colour_ground(w, q, i, first, found)
            continue
        end = first + 1
        while end < w.F and w.ids[i, end] == face:
            end += 1
        for a in range(3):
            tone = w.lit[face, a] if face >= 0 else np.float32(w.sky[b, a])
            for j in range(first, end):
                w.line[a, j] = tone
        # Static boxes are numbered before the cars; of the eight numbers of a box the first four are its walls.
        if w.details and face >= 0 and face < 8 * w.K and face & 7 < 4:
            colour_wall(w, b, q, i, first, end)
        first = end


@kernel
def fog_line(w, b, i):
    """Blends line i to the sky by f = exp(-beta depth).

    exp(-x) is approximated by (1 - y + y^2/2 - y^3/6)^256, y = x/256, with an error of at most 2e-5 for x <= 16.
    Without a call the loop is vectorised.
    """
    beta = np.float32(w.light[b, FOG])
    red, green, blue = np.float32(w.sky[b, 0]), np.float32(w.sky[b, 1]), np.float32(w.sky[b, 2])
    for j in range(w.F):
        y = min(beta / w.depth_inv[i, j], _THICKEST) * _256TH
        f = _1 - y * (_1 - y * (_HALF - y * _SIXTH))
        f = f * f
        f = f * f
        f = f * f
        f = f * f
        f = f * f
        f = f * f
        f = f * f
        f = f * f
        w.line[0, j] = red + f * (w.line[0, j] - red)
        w.line[1, j] = green + f * (w.line[1, j] - green)
        w.line[2, j] = blue + f * (w.line[2, j] - blue)


@kernel
def make_line(w, b, q, i):
    """Renders line i of the picture."""
    colour_line(w, b, q, i)
    if w.light[b, FOG] > 0.0:
        fog_line(w, b, i)


# -- noise --------------------------------------------------------------------------------------------------------


@kernel
def draw_noise(w, b, step):
    """Draws the random words of a picture's noise, 16 bytes a block, and the table from bytes to noise."""
    s = row_stream(w, b, FRAME)
    blocks = w.S * ((w.S + 15) // 16)
    # Blocks are indexed by the agent step, so a picture always has the same noise, also as one of the last frames.
    for n in range(blocks):
        x = block(s, step * blocks + n, np.uint64(0))
        w.words[4 * n] = x[0]
        w.words[4 * n + 1] = x[1]
        w.words[4 * n + 2] = x[2]
        w.words[4 * n + 3] = x[3]
    for k in range(256):
        w.noise_of[k] = w.light[b, SIGMA] * w.quantiles[k]


@kernel(inline=True)
def noise_at(w, i, j):
    """The noise of a pixel."""
    # Each line of the image begins with a new block; pixel j has byte j & 3 of its word j >> 2.
    word = w.words[4 * i * ((w.S + 15) // 16) + (j >> 2)]
    return w.noise_of[(word >> (8 * (j & 3))) & 255]


@kernel
def drop_flakes(w, b, step, image):
    """Snow flakes: single white pixels."""
    n = math.floor(w.light[b, FLAKE_SHARE] * w.S * w.S + 0.5)
    if n > 0:
        s = row_stream(w, b, FLAKES)
        for k in range(n):
            p = integers(s, step * n + k, 0, w.S * w.S)
            i, j = p // w.S, p % w.S
            for a in range(w.C):
                image[a, i, j] = np.uint8(min(max(_255 + noise_at(w, i, j) + _HALF, _0), _255))


# -- the picture --------------------------------------------------------------------------------------------------


@kernel
def make_samples(w, b, q, i):
    """Renders line i of the picture as the mean of 2 x 2 samples a pixel."""
    for half in range(2):
        make_line(w, b, q, 2 * i + half)
        for a in range(3):
            for j in range(w.S):
                # `fine` keeps the upper half, since `make_line` overwrites `line` for the lower one.
                both = _QUARTER * (w.line[a, 2 * j] + w.line[a, 2 * j + 1])
                w.fine[a, j] = both if half == 0 else w.fine[a, j] + both
    for a in range(3):
        for j in range(w.S):
            w.line[a, j] = w.fine[a, j]


@kernel
def write_line(w, i, image):
    """Writes line i of the image: grey or colour, noise, rounding."""
    if w.grey:
        for j in range(w.S):
            w.line[0, j] = _RED * w.line[0, j] + _GREEN * w.line[1, j] + _BLUE * w.line[2, j]
    for a in range(w.C):
        for j in range(w.S):
            x = w.line[a, j] + w.grain[j] + _HALF
            image[a, i, j] = np.uint8(min(max(x, _0), _255))


@kernel
def camera(w, b, step, image):
    """Renders row b from the aimed camera, with the vehicles in `cars` and the noise of an agent step."""
    q = w.instance_row[b]
    prefetch_ground(w, q)
    clear_picture(w)
    light_ground(w, b)
    if w.details and w.cam[EYE + 2] > 0.0:
        mark_cars(w, b)
    draw_static_boxes(w, b, q)
    draw_cars(w, b, q)
    if w.noise:
        draw_noise(w, b, step)
    for j in range(w.S):
        w.grain[j] = _0
    for i in range(w.S):
        if w.supersample == 2:
            make_samples(w, b, q, i)
        else:
            make_line(w, b, q, i)
        if w.noise:
            for j in range(w.S):
                w.grain[j] = noise_at(w, i, j)
        write_line(w, i, image)
    if w.noise:
        drop_flakes(w, b, step, image)
