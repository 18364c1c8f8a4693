"""The static boxes of a town: buildings on the lots of a grid, and everything else by one law a line of `BOX_LAWS`.

The work space `footprint` has the thing being placed: its middle, its direction, its half sizes and its yaw.
"""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel
from milkrun.core.rng import integers, uniform
from milkrun.tracking.generator.ground import stamp_between
from milkrun.tracking.generator.roads import to_road
from milkrun.tracking.streams import COUNTS, LOTS, PLACES, SIZES, TONES, between, town_stream
from milkrun.tracking.tables import (
    BARK,
    BRIDGE,
    D_HIGH,
    D_LOW,
    EAVES,
    FILL,
    FIRST_TOP,
    FIRST_WALL,
    FREE,
    GRASS,
    H_HIGH,
    H_LOW,
    IN_ROWS,
    KIND,
    LAW_H_HIGH,
    LAW_H_LOW,
    LAW_SCENE,
    LOT,
    N_HIGH,
    N_LOW,
    N_TOPS,
    N_WALLS,
    ON_WATER,
    OVER_ROAD,
    PLAIN,
    PLAZA,
    ROCK_STONE,
    ROOF,
    TREE,
    TRUNK,
    TURNED,
    W_HIGH,
    W_LOW,
    WHAT,
    WHERE,
)

X, Y, COS, SIN, HX, HY, YAW = range(7)
"""Indices of `footprint`."""
TRIES = 40
"""Maximum of places tried for a thing, which is then omitted."""
IN_A_ROW = 6
"""Trees of a row."""
EDGE = 118.0
"""Limit of things along x and y, m."""
OFF_ROAD, TREE_OFF_ROAD, OFF_BOX = 2.0, 0.5, 1.0
"""Least distance from a road's edge, of trunks from it, and between two things, m."""
TRUNK_HALF = 0.2
SLAB = 0.8
"""Thickness of roofs and decks."""
DECK_Z, DECK_HALF = 5.5, 4.0
"""Underside of an overpass, and half its length along the road."""


@kernel
def put_footprint(w, x, y, yaw):
    w.footprint[X] = x
    w.footprint[Y] = y
    w.footprint[COS] = math.cos(yaw)
    w.footprint[SIN] = math.sin(yaw)
    w.footprint[YAW] = yaw


@kernel
def add_box(w, q, kind, low, high, wall, top, gain):
    """Adds a box on the footprint, from low to high, in two of the listed colours times the gain."""
    k = w.n_box[q]
    w.box_kind[q, k] = kind
    for a in range(2):
        w.box_pos[q, k, a] = w.footprint[X + a]
        w.box_half[q, k, a] = w.footprint[HX + a]
        w.box_cs[q, k, a] = w.footprint[COS + a]
    w.box_pos[q, k, 2] = 0.5 * (low + high)
    w.box_half[q, k, 2] = 0.5 * (high - low)
    w.box_yaw[q, k] = w.footprint[YAW]
    for a in range(3):
        w.box_rgb[q, k, 0, a] = int(gain * w.tones[wall, a])
        w.box_rgb[q, k, 1, a] = int(gain * w.tones[top, a])
    w.tallest[q] = max(w.tallest[q], w.box_pos[q, k, 2] + w.box_half[q, k, 2])
    w.n_box[q] = k + 1


@kernel
def build(w, q, what, h, gain, draw):
    """Adds the one or two boxes of a thing of height h on the footprint; `draw` indexes its colours."""
    s = town_stream(w, q, TONES)
    eaves = w.things[what, EAVES]
    # All boxes of a thing or none, so that no trunk lacks its crown and no house its roof.
    if w.n_box[q] + (2 if what == TREE or eaves > 0.0 else 1) > w.K:
        return
    wall = int(w.things[what, FIRST_WALL]) + integers(s, 2 * draw, 0, int(w.things[what, N_WALLS]))
    top = int(w.things[what, FIRST_TOP]) + integers(s, 2 * draw + 1, 0, int(w.things[what, N_TOPS]))
    hx, hy = w.footprint[HX], w.footprint[HY]
    low, high = 0.0, h
    if what == TREE:
        w.footprint[HX] = TRUNK_HALF
        w.footprint[HY] = TRUNK_HALF
        add_box(w, q, TRUNK, 0.0, 0.45 * h, BARK, BARK, 1.0)
        low = 0.4 * h
    elif what == BRIDGE:
        low, high = DECK_Z, DECK_Z + SLAB
    w.footprint[HX] = hx - eaves
    w.footprint[HY] = hy - eaves
    add_box(w, q, int(w.things[what, KIND]), low, high, wall, wall if eaves > 0.0 else top, gain)
    if eaves > 0.0:
        w.footprint[HX] = hx
        w.footprint[HY] = hy
        add_box(w, q, ROOF, h, h + SLAB, top, top, gain)


# -- lots --------------------------------------------------------------------------------------------------------


@kernel
def build_lots(w, q, lines, half):
    """Divides the blocks of a grid, 2 m off the road, into lots, and builds on most of them."""
    k = 0
    for i in range(lines - 1):
        for j in range(lines - 1):
            x0, x1 = w.line_at[0, j] + half + OFF_ROAD, w.line_at[0, j + 1] - half - OFF_ROAD
            y0, y1 = w.line_at[1, i] + half + OFF_ROAD, w.line_at[1, i + 1] - half - OFF_ROAD
            nx, ny = lots_along(w, q, x1 - x0), lots_along(w, q, y1 - y0)
            dx, dy = (x1 - x0) / nx, (y1 - y0) / ny
            for c in range(nx * ny):
                fill_lot(w, q, x0 + (c % nx) * dx, y0 + (c // nx) * dy, dx, dy, k)
                k += 1


@kernel
def lots_along(w, q, side):
    return max(1, round(side / w.scenes[w.scene_id[q], LOT]))


@kernel
def fill_lot(w, q, x, y, dx, dy, k):
    """Lot k, from (x, y) on: a building, or grass or a plaza."""
    s, scene = town_stream(w, q, LOTS), w.scene_id[q]
    if uniform(s, 5 * k) < w.scenes[scene, FILL]:
        w.footprint[HX] = 0.5 * dx * between(s, 5 * k + 1, 0.6, 0.95)
        w.footprint[HY] = 0.5 * dy * between(s, 5 * k + 2, 0.6, 0.95)
        put_footprint(w, x + 0.5 * dx, y + 0.5 * dy, 0.0)
        build(w, q, PLAIN, between(s, 5 * k + 3, w.scenes[scene, H_LOW], w.scenes[scene, H_HIGH]), 1.0, k)
    else:
        stamp_between(w, q, x, x + dx, y, y + dy, GRASS if uniform(s, 5 * k + 4) < 0.5 else PLAZA)


# -- other things ------------------------------------------------------------------------------------------------


@kernel
def place_things(w, q):
    """Places the things of the scene's laws, as many as each law draws."""
    s = town_stream(w, q, COUNTS)
    for law in range(w.box_laws.shape[0]):
        if int(w.box_laws[law, LAW_SCENE]) == w.scene_id[q]:
            for k in range(integers(s, law, int(w.box_laws[law, N_LOW]), int(w.box_laws[law, N_HIGH]) + 1)):
                place(w, q, law, k)


@kernel
def place(w, q, law, k):
    """Places thing k of a law at the first valid place tried, or omits it."""
    what, where = int(w.box_laws[law, WHAT]), int(w.box_laws[law, WHERE])
    s, spots = town_stream(w, q, SIZES + law), town_stream(w, q, PLACES + law)
    eaves = w.things[what, EAVES]
    hx = 0.5 * between(s, 5 * k, w.box_laws[law, W_LOW], w.box_laws[law, W_HIGH]) + eaves
    hy = 0.5 * between(s, 5 * k + 1, w.box_laws[law, D_LOW], w.box_laws[law, D_HIGH]) + eaves
    h = between(s, 5 * k + 2, w.box_laws[law, LAW_H_LOW], w.box_laws[law, LAW_H_HIGH])
    gain, turn = between(s, 5 * k + 3, 0.8, 1.2), 2.0 * math.pi * uniform(s, 5 * k + 4)
    if what == TREE:
        hy = hx
    elif what == BRIDGE:
        hx, hy = DECK_HALF, w.road_half[q] + 2.0
    if what != TREE and what != ROCK_STONE:
        gain = 1.0
    w.footprint[HX] = hx
    w.footprint[HY] = hy
    r = math.sqrt(hx * hx + hy * hy)
    on_water, over_road = where == ON_WATER, where == OVER_ROAD
    for t in range(TRIES):
        if on_water or where == FREE:
            try_anywhere(w, q, spots, TRIES * k + t, on_water, r)
        else:
            try_road(w, q, spots, k, t, where)
        if w.things[what, TURNED] > 0.0:
            put_footprint(w, w.footprint[X], w.footprint[Y], turn)
        if not over_road and not is_off_roads(w, q, what == TREE):
            continue
        if is_on_right_side(w, on_water, r) and is_off_boxes(w, q, 0.0 if over_road else OFF_BOX):
            build(w, q, what, h, gain, 1000 + 100 * law + k)
            return


@kernel
def try_anywhere(w, q, s, i, on_water, r):
    """Puts the footprint at place i of a law on the map, or in the lake's rectangle, along the nearest road."""
    a, b = (w.lake[0], w.lake[1]) if on_water else (EDGE - r, EDGE - r)
    x, y = between(s, 2 * i, -a, a), between(s, 2 * i + 1, -b, b)
    _, e = to_road(w, q, x, y)
    put_footprint(w, x, y, math.atan2(w.edge_dir[q, e, 1], w.edge_dir[q, e, 0]))


@kernel
def try_road(w, q, s, k, t, where):
    """Puts the footprint at the right side of an edge: along the kerb, next in a row of trees, or across its middle.

    Trees of a row share their draws, so they stand in line unless one of them does not fit.
    """
    i = TRIES * (k // IN_A_ROW if where == IN_ROWS else k) + t
    e = int(uniform(s, 2 * i) * w.n_edge[q])
    length = w.edge_len[q, e]
    ahead, aside = uniform(s, 2 * i + 1) * length, w.road_half[q] + 1.5
    if where == IN_ROWS:
        # Trees are 8 m apart. The first takes a place that leaves room for the others: on an edge longer than 48 m the
        # whole row ends before the edge does.
        first = math.floor(ahead / length * max(1.0, length / 8.0 - IN_A_ROW))
        ahead, aside = 8.0 * (1 + first + k % IN_A_ROW), w.road_half[q] + 3.0
    elif where == OVER_ROAD:
        ahead, aside = 0.5 * length, 0.0
    n = w.edge[q, e, 0]
    c, d = w.edge_dir[q, e, 0], w.edge_dir[q, e, 1]
    x, y = w.node_xy[q, n, 0] + ahead * c + aside * d, w.node_xy[q, n, 1] + ahead * d - aside * c
    put_footprint(w, x, y, math.atan2(d, c))


@kernel
def is_on_right_side(w, on_water, r):
    """Whether a boat is on the water, or another thing off it, with a margin of 1 m."""
    if w.lake[0] == 0.0:
        return True
    off = -r - OFF_BOX if on_water else r + OFF_BOX
    x, y = w.footprint[X] / (w.lake[0] + off), w.footprint[Y] / (w.lake[1] + off)
    return (x * x + y * y < 1.0) == on_water


@kernel
def is_off_roads(w, q, is_tree):
    """Whether the footprint is 2 m off every road. Of a tree only the trunk must be, by 0.5 m: its crown overhangs."""
    half = w.road_half[q]
    if is_tree:
        off, _ = to_road(w, q, w.footprint[X], w.footprint[Y])
        # 1.5 exceeds the sqrt(2) of the trunk's diagonal, so its yaw does not matter.
        return off >= half + TREE_OFF_ROAD + 1.5 * TRUNK_HALF
    for e in range(0, w.n_edge[q], 2):
        n = w.edge[q, e, 0]
        c, s, m = w.edge_dir[q, e, 0], w.edge_dir[q, e, 1], 0.5 * w.edge_len[q, e]
        x, y = w.node_xy[q, n, 0] + m * c, w.node_xy[q, n, 1] + m * s
        # The rectangle covers the road and the discs at its nodes.
        if gap_to(w, x, y, c, s, m + half, half) < OFF_ROAD:
            return False
    return True


@kernel
def is_off_boxes(w, q, least):
    for k in range(w.n_box[q]):
        if (
            gap_to(
                w,
                w.box_pos[q, k, 0],
                w.box_pos[q, k, 1],
                w.box_cs[q, k, 0],
                w.box_cs[q, k, 1],
                w.box_half[q, k, 0],
                w.box_half[q, k, 1],
            )
            < least
        ):
            return False
    return True


@kernel
def gap_to(w, x, y, c, s, hx, hy):
    """The largest gap between the footprint and a rectangle along any of their four axes.

    It never exceeds their distance and is negative where they overlap.
    """
    dx, dy = x - w.footprint[X], y - w.footprint[Y]
    c0, s0, hx0, hy0 = w.footprint[COS], w.footprint[SIN], w.footprint[HX], w.footprint[HY]
    u, v = abs(c * c0 + s * s0), abs(c * s0 - s * c0)  # of the angle between them
    ahead = max(abs(dx * c0 + dy * s0) - hx0 - hx * u - hy * v, abs(dx * c + dy * s) - hx - hx0 * u - hy0 * v)
    aside = max(abs(dy * c0 - dx * s0) - hy0 - hx * v - hy * u, abs(dy * c - dx * s) - hy - hx0 * v - hy0 * u)
    return max(ahead, aside)
