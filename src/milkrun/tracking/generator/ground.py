"""The ground of a town: polygons and ovals stamped into cells, a road, field or shadow at a time.

Shapes are stamped with an `ink`: a material, or a mark that keeps the material. A cell belongs to a shape when its
centre does; a centre on the border belongs to the shape above and to the right of it.
"""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel
from milkrun.core.rng import integers, uniform
from milkrun.tracking.shapes import put_turned, span, sweep
from milkrun.tracking.streams import CROPS, FIELDS, SHADES, between, town_stream
from milkrun.tracking.tables import (
    ASPHALT,
    CROP_A,
    KERB,
    KERBED,
    LAMP_BIT,
    LIT,
    MARKING,
    SAND,
    SHADOW_BIT,
    SUN,
    WATER,
)

DARKER = 16
"""The ink that removes a shade. Materials are below it, the bits of shadows and lamps above."""
PATCH = 2.0
"""Side of a patch of one shade, m."""
WORD = 16
"""Patches whose shades, of two bits each, come from one random word of 32 bits."""
WORDS = 32
"""Words reserved for a line of patches, enough for more than 800 m."""
SHADOW_X, SHADOW_Y = float(-SUN[0] / SUN[2]), float(-SUN[1] / SUN[2])
"""Displacement of the shadow of a point one metre above the ground."""
DASH = 3.0
"""Length of a centre dash, and of the gap after it, m."""
LAMP_GAP, LAMP_REACH = 25.0, 7.0
"""Distance between lamps along a road, and radius of their light, m."""


@kernel
def stamp_line(w, q, i, lo, hi, ink):
    """Inks the cells of line i from lo to hi, in cells."""
    # A cell is a byte: 4 bits of material, 2 of shade, then shadow and lamp. A material replaces another, a mark is
    # added, DARKER decrements the shade if possible. One formula does all three, so the loop has no branch.
    keep = 0xF0 if ink < DARKER else 0xFF
    less = DARKER if ink == DARKER else 0
    put = 0 if ink == DARKER else ink
    for j in range(max(0, math.ceil(lo)), min(w.G, math.ceil(hi))):
        cell = w.ground[q, i, j]
        w.ground[q, i, j] = ((cell - min(cell & 0x30, less)) & keep) | put


@kernel
def stamp(w, q, px, py, n, ink):
    """Inks a convex polygon; its corners, in m, are converted to cells in place."""
    low, top = 1e30, -1e30
    for k in range(n):
        # The centre of cell i is at i + 0.5. Shifted by a half, centres are integers and `ceil` finds the first inside.
        px[k] = (px[k] + w.extent) / w.cell - 0.5
        py[k] = (py[k] + w.extent) / w.cell - 0.5
        low, top = min(low, py[k]), max(top, py[k])
    for i in range(max(0, math.ceil(low)), min(w.G, math.ceil(top))):
        lo, hi = span(px, py, n, i)
        stamp_line(w, q, i, lo, hi, ink)


@kernel
def stamp_oval(w, q, x, y, a, b, ink):
    """Inks an ellipse with half axes a and b along x and y."""
    x, y = (x + w.extent) / w.cell - 0.5, (y + w.extent) / w.cell - 0.5
    a, b = a / w.cell, b / w.cell
    for i in range(max(0, math.ceil(y - b)), min(w.G, math.ceil(y + b))):
        rise = (i - y) / b
        reach = a * math.sqrt(max(0.0, 1.0 - rise * rise))
        stamp_line(w, q, i, x - reach, x + reach, ink)


@kernel
def stamp_between(w, q, x0, x1, y0, y1, ink):
    """Inks a rectangle along the axes."""
    put_turned(w, 0.5 * (x0 + x1), 0.5 * (y0 + y1), 1.0, 0.0, 0.5 * (x1 - x0), 0.5 * (y1 - y0))
    stamp(w, q, w.poly_x, w.poly_y, 4, ink)


@kernel
def stamp_strip(w, q, e, begin, end, aside, half, ink):
    """Inks a strip along an edge: from begin to end, its middle line `aside` to the left, `2 half` wide."""
    n = w.edge[q, e, 0]
    c, s = w.edge_dir[q, e, 0], w.edge_dir[q, e, 1]
    ahead = 0.5 * (begin + end)
    x = w.node_xy[q, n, 0] + ahead * c - aside * s
    y = w.node_xy[q, n, 1] + ahead * s + aside * c
    put_turned(w, x, y, c, s, 0.5 * (end - begin), half)
    stamp(w, q, w.poly_x, w.poly_y, 4, ink)


# -- layers, in the order of stamping ----------------------------------------------------------------------------


@kernel
def shade_ground(w, q):
    """Base material everywhere, in a random shade for each patch of 2 m, independent of the cell size."""
    s = town_stream(w, q, SHADES)
    drawn = -1
    for i in range(w.G):
        line = int((i + 0.5) * w.cell / PATCH)
        if line == drawn:
            for j in range(w.G):
                w.ground[q, i, j] = w.ground[q, i - 1, j]
            continue
        drawn = line
        at, word = -1, 0
        for j in range(w.G):
            column = int((j + 0.5) * w.cell / PATCH)
            if column // WORD != at:
                at = column // WORD
                word = integers(s, line * WORDS + at, 0, 1 << 32)
            w.ground[q, i, j] = ((word >> (2 * (column % WORD))) & 3) << 4


@kernel
def sow_fields(w, q, lines, half):
    """Fills every block of a grid with a crop or ploughed earth, with darker stripes."""
    s, crops = town_stream(w, q, FIELDS), town_stream(w, q, CROPS)
    k = 0
    for i in range(lines - 1):
        for j in range(lines - 1):
            x0, x1 = w.line_at[0, j] + half, w.line_at[0, j + 1] - half
            y0, y1 = w.line_at[1, i] + half, w.line_at[1, i + 1] - half
            stamp_between(w, q, x0, x1, y0, y1, CROP_A + integers(crops, k, 0, 4))
            period, upright = between(s, 2 * k, 2.0, 4.0), uniform(s, 2 * k + 1) < 0.5
            t, end = (x0, x1) if upright else (y0, y1)
            while t < end:
                stop = min(end, t + 0.5 * period)
                if upright:
                    stamp_between(w, q, t, stop, y0, y1, DARKER)
                else:
                    stamp_between(w, q, x0, x1, t, stop, DARKER)
                t += period
            k += 1


@kernel
def fill_lake(w, q):
    """Inks the lake, and 2.5 m of sand round it."""
    if w.lake[0] > 0.0:
        stamp_oval(w, q, 0.0, 0.0, w.lake[0] + 2.5, w.lake[1] + 2.5, SAND)
        stamp_oval(w, q, 0.0, 0.0, w.lake[0], w.lake[1], WATER)


@kernel
def pave(w, q, half, ink):
    """Inks all roads, `2 half` wide, with a disc at every node."""
    for e in range(0, w.n_edge[q], 2):
        stamp_strip(w, q, e, 0.0, w.edge_len[q, e], 0.0, half, ink)
    for n in range(w.n_node[q]):
        stamp_oval(w, q, w.node_xy[q, n, 0], w.node_xy[q, n, 1], half, half, ink)


@kernel
def pave_roads(w, q, material):
    """Inks kerbs, roads, their markings and the light of lamps."""
    scene, half = w.scene_id[q], w.road_half[q]
    kerbed, lit = w.scenes[scene, KERBED] > 0.0, w.scenes[scene, LIT] > 0.0
    if kerbed:
        pave(w, q, half + 2.0, KERB)
    pave(w, q, half, material)
    for e in range(0, w.n_edge[q], 2):
        if material == ASPHALT:
            dash(w, q, e, half + 5.0 if kerbed else half + 1.0)
        if kerbed:
            cross(w, q, e, half)
            cross(w, q, e + 1, half)
        if lit:
            light_road(w, q, e, half + 1.0)


@kernel
def dash(w, q, e, off):
    """Inks the dashes of an edge's centre line, which end `off` m before guarded nodes."""
    t = off if w.guarded[q, w.edge[q, e, 0]] else 0.5 * DASH
    end = w.edge_len[q, e] - (off if w.guarded[q, w.edge[q, e, 1]] else 0.5 * DASH)
    while t + DASH <= end:
        stamp_strip(w, q, e, t, t + DASH, 0.0, 0.25, MARKING)
        t += 2.0 * DASH


@kernel
def cross(w, q, e, half):
    """Inks a pedestrian crossing before the end node of edge e, where three roads or more meet."""
    if w.edge_ways[q, e] < 2:
        return
    length = w.edge_len[q, e]
    for k in range(int(2.0 * half)):
        stamp_strip(w, q, e, length - half - 4.0, length - half - 1.0, k + 0.5 - half, 0.25, MARKING)


@kernel
def light_road(w, q, e, aside):
    """Inks the light of lamps on alternate sides of an edge."""
    n = w.edge[q, e, 0]
    c, s = w.edge_dir[q, e, 0], w.edge_dir[q, e, 1]
    t = 0.5 * LAMP_GAP
    while t < w.edge_len[q, e]:
        x, y = w.node_xy[q, n, 0] + t * c - aside * s, w.node_xy[q, n, 1] + t * s + aside * c
        stamp_oval(w, q, x, y, LAMP_REACH, LAMP_REACH, LAMP_BIT)
        t += LAMP_GAP
        aside = -aside


@kernel
def cast_shadows(w, q):
    """Inks the shadows of boxes: the hull of each footprint, displaced by the shadows of its bottom and its top."""
    for k in range(w.n_box[q]):
        put_turned(
            w,
            w.box_pos[q, k, 0],
            w.box_pos[q, k, 1],
            w.box_cs[q, k, 0],
            w.box_cs[q, k, 1],
            w.box_half[q, k, 0],
            w.box_half[q, k, 1],
        )
        low, top = w.box_pos[q, k, 2] - w.box_half[q, k, 2], w.box_pos[q, k, 2] + w.box_half[q, k, 2]
        n = sweep(w, 4, low * SHADOW_X, low * SHADOW_Y, top * SHADOW_X, top * SHADOW_Y)
        stamp(w, q, w.hull_x, w.hull_y, n, SHADOW_BIT)
