"""The roads of a town: four laws for nodes and roads, and the derived fields for the traffic.

A law only adds nodes and roads. `link` then finds the successors of every edge, the guarded nodes, and the parts of
edges that belong to junctions; it does the same for given towns.
"""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel
from milkrun.core.rng import integers, uniform
from milkrun.tracking.streams import ROAD_COUNT, ROADS, between, town_stream
from milkrun.tracking.tables import DESERT, GRID, LAKE, ROAD_LAW, SPACING

REACH = 110.0
"""Extent of grids and straight roads from the centre, m."""
OUTER = 105.0
"""Half the side of the square round a lake, and of the square with the nodes of a village."""
RING = 24
"""Nodes round a lake."""
LOOP = 20
"""Nodes of a desert's loop."""
APART = 35.0
"""Least distance of two nodes of a village."""
TRIES = 400
"""Maximum of places tried for the nodes of a village."""
SHARP = math.cos(0.7)
"""Cosine of 0.7 rad: the roads added to a village should meet no other at a smaller angle."""
FARTHEST = 1e6
"""Exceeds the square of any distance on the map, m2."""
BEND = -math.cos(0.6)
"""Cosine between two roads that turn by 0.6 rad at their node; less of a turn is a bend, which is not guarded."""


@kernel
def line_count(w, scene):
    """Lines of a grid in each direction; 0 if the roads are no grid."""
    if w.stage < 2 or int(w.scenes[scene, ROAD_LAW]) != GRID:
        return 0
    return round(2.0 * REACH / w.scenes[scene, SPACING]) + 1


@kernel
def lay_roads(w, q):
    """Lays nodes and edges by the law of the town's scene, and derives the rest.

    Also writes the lake's half axes into `lake` (0: no lake) and the lines of a grid into `line_at`.
    """
    w.n_node[q] = 0
    w.n_edge[q] = 0
    w.lake[0] = 0.0
    w.lake[1] = 0.0
    s = town_stream(w, q, ROADS)
    scene = w.scene_id[q]
    law = int(w.scenes[scene, ROAD_LAW])
    if w.stage < 2:
        lay_straight(w, q, s)
    elif law == GRID:
        lay_grid(w, q, s, line_count(w, scene))
    elif law == LAKE:
        lay_shore(w, q, s)
    elif law == DESERT:
        lay_loop(w, q, s)
    else:
        lay_village(w, q, s)
    link(w, q)


@kernel
def add_node(w, q, x, y):
    n = w.n_node[q]
    w.node_xy[q, n, 0] = x
    w.node_xy[q, n, 1] = y
    w.n_node[q] = n + 1


@kernel
def add_road(w, q, i, j):
    """Adds both ways of a road, edges 2k and 2k + 1."""
    e = w.n_edge[q]
    add_way(w, q, e, i, j)
    add_way(w, q, e + 1, j, i)
    w.n_edge[q] = e + 2


@kernel
def add_way(w, q, e, i, j):
    dx = w.node_xy[q, j, 0] - w.node_xy[q, i, 0]
    dy = w.node_xy[q, j, 1] - w.node_xy[q, i, 1]
    length = math.sqrt(dx * dx + dy * dy)
    w.edge[q, e, 0] = i
    w.edge[q, e, 1] = j
    w.edge_len[q, e] = length
    w.edge_dir[q, e, 0] = dx / length
    w.edge_dir[q, e, 1] = dy / length


@kernel
def add_circuit(w, q, first, n):
    """Adds a closed circuit of roads through n consecutive nodes."""
    for k in range(n):
        add_road(w, q, first + k, first + (k + 1) % n)


# -- the laws --------------------------------------------------------------------------------------------------


@kernel
def lay_straight(w, q, s):
    """One road through the centre."""
    heading = 2.0 * math.pi * uniform(s, 0)
    x, y = REACH * math.cos(heading), REACH * math.sin(heading)
    add_node(w, q, -x, -y)
    add_node(w, q, x, y)
    add_road(w, q, 0, 1)


@kernel
def draw_lines(w, s, axis, n):
    """n lines from -REACH to REACH into line_at[axis], their gaps jittered by up to 4 m."""
    gap = 2.0 * REACH / (n - 1)
    total = 0.0
    for k in range(1, n):
        total += gap + between(s, 100 * axis + k, -4.0, 4.0)
        w.line_at[axis, k] = total
    # Scaled so that the last line is at REACH.
    w.line_at[axis, 0] = -REACH
    for k in range(1, n):
        w.line_at[axis, k] = w.line_at[axis, k] / total * (2.0 * REACH) - REACH


@kernel
def lay_grid(w, q, s, n):
    """n lines each way with nodes where they cross, so that no road has a dead end."""
    draw_lines(w, s, 0, n)
    draw_lines(w, s, 1, n)
    for k in range(n * n):
        add_node(w, q, w.line_at[0, k % n], w.line_at[1, k // n])
    for k in range(n * n):
        if k % n + 1 < n:
            add_road(w, q, k, k + 1)
        if k + n < n * n:
            add_road(w, q, k, k + n)


@kernel
def lay_shore(w, q, s):
    """A ring 12 m off an oval lake, a square about it, four spokes between them."""
    w.lake[0] = between(s, 0, 30.0, 50.0)
    w.lake[1] = between(s, 1, 25.0, 40.0)
    for k in range(RING):
        t = 2.0 * math.pi * k / RING
        add_node(w, q, (w.lake[0] + 12.0) * math.cos(t), (w.lake[1] + 12.0) * math.sin(t))
    for k in range(8):
        t = 0.25 * math.pi * k
        # Corners and mid-sides. Rounding makes them exact, so that these roads are parallel to the axes.
        add_node(w, q, OUTER * round(1.2 * math.cos(t)), OUTER * round(1.2 * math.sin(t)))
    add_circuit(w, q, 0, RING)
    add_circuit(w, q, RING, 8)
    for k in range(4):
        add_road(w, q, k * RING // 4, RING + 2 * k)


@kernel
def lay_loop(w, q, s):
    """A wavy loop, and a chord of five nodes across it."""
    p1, p2 = 2.0 * math.pi * uniform(s, 0), 2.0 * math.pi * uniform(s, 1)
    for k in range(LOOP):
        t = 2.0 * math.pi * k / LOOP
        r = 70.0 * (1.0 + 0.15 * math.sin(2.0 * t + p1) + 0.10 * math.sin(3.0 * t + p2))
        add_node(w, q, r * math.cos(t), r * math.sin(t))
    x, y = w.node_xy[q, 0, 0], w.node_xy[q, 0, 1]
    far = LOOP // 2
    dx, dy = w.node_xy[q, far, 0] - x, w.node_xy[q, far, 1] - y
    length = math.sqrt(dx * dx + dy * dy)
    for k in range(1, 6):
        t, aside = k / 6.0, between(s, 1 + k, -6.0, 6.0) / length
        add_node(w, q, x + t * dx - aside * dy, y + t * dy + aside * dx)
    add_circuit(w, q, 0, LOOP)
    add_road(w, q, 0, LOOP)
    for k in range(LOOP, LOOP + 4):
        add_road(w, q, k, k + 1)
    add_road(w, q, LOOP + 4, far)


@kernel
def lay_village(w, q, s):
    """Random nodes and their relative-neighbourhood graph: two are joined if no third is nearer to both."""
    wanted = integers(town_stream(w, q, ROAD_COUNT), 0, 12, 17)
    for t in range(TRIES):
        if w.n_node[q] == wanted:
            break
        x, y = between(s, 2 * t, -OUTER, OUTER), between(s, 2 * t + 1, -OUTER, OUTER)
        if is_apart(w, q, x, y):
            add_node(w, q, x, y)
    n = w.n_node[q]
    for i in range(n):
        for j in range(i + 1, n):
            if are_neighbours(w, q, i, j):
                add_road(w, q, i, j)
    for i in range(n):
        if roads_at(w, q, i) == 1:
            open_dead_end(w, q, i)


@kernel
def is_apart(w, q, x, y):
    for k in range(w.n_node[q]):
        dx, dy = w.node_xy[q, k, 0] - x, w.node_xy[q, k, 1] - y
        if dx * dx + dy * dy < APART * APART:
            return False
    return True


@kernel
def square_gap(w, q, i, j):
    dx = w.node_xy[q, i, 0] - w.node_xy[q, j, 0]
    dy = w.node_xy[q, i, 1] - w.node_xy[q, j, 1]
    return dx * dx + dy * dy


@kernel
def are_neighbours(w, q, i, j):
    d = square_gap(w, q, i, j)
    for k in range(w.n_node[q]):
        if k != i and k != j and max(square_gap(w, q, i, k), square_gap(w, q, j, k)) < d:
            return False
    return True


@kernel
def roads_at(w, q, i):
    count = 0
    for e in range(w.n_edge[q]):
        if w.edge[q, e, 0] == i:
            count += 1
    return count


@kernel
def open_dead_end(w, q, i):
    """Joins node i to its nearest non-neighbour without a crossing and without a sharp angle.

    If every candidate has a sharp angle, it takes the least sharp one.
    """
    best, least = -1, math.inf
    for j in range(w.n_node[q]):
        if j != i and may_join(w, q, i, j):
            cosine = max(sharpest(w, q, i, j), sharpest(w, q, j, i))
            # A sharp angle costs more than any distance, since squared distances are below FARTHEST.
            cost = square_gap(w, q, i, j) if cosine <= SHARP else FARTHEST * (1.0 + cosine)
            if cost < least:
                best, least = j, cost
    if best >= 0:
        add_road(w, q, i, best)


@kernel(inline=True)
def side(w, q, i, j, k):
    """Whether node k lies to the left of the line from i to j."""
    x, y = w.node_xy[q, i, 0], w.node_xy[q, i, 1]
    return (w.node_xy[q, j, 0] - x) * (w.node_xy[q, k, 1] - y) > (w.node_xy[q, j, 1] - y) * (w.node_xy[q, k, 0] - x)


@kernel
def may_join(w, q, i, j):
    """Whether i and j are not joined yet, and a road between them would cross no other."""
    for e in range(0, w.n_edge[q], 2):
        m, n = w.edge[q, e, 0], w.edge[q, e, 1]
        at_i, at_j = m == i or n == i, m == j or n == j
        if at_i and at_j:
            return False
        # Roads with a common end cannot cross.
        if not (at_i or at_j):
            if side(w, q, i, j, m) != side(w, q, i, j, n) and side(w, q, m, n, i) != side(w, q, m, n, j):
                return False
    return True


@kernel
def sharpest(w, q, i, j):
    """Cosine of the smallest angle between a road from i to j and the roads of node i."""
    x, y = w.node_xy[q, j, 0] - w.node_xy[q, i, 0], w.node_xy[q, j, 1] - w.node_xy[q, i, 1]
    most = -1.0
    for e in range(w.n_edge[q]):
        if w.edge[q, e, 0] == i:
            most = max(most, (x * w.edge_dir[q, e, 0] + y * w.edge_dir[q, e, 1]) / math.sqrt(x * x + y * y))
    return most


# -- derived fields --------------------------------------------------------------------------------------------


@kernel
def link(w, q):
    """Derives successors of edges, guarded nodes and zones of junctions from nodes, edges and `road_half`."""
    for e in range(w.n_edge[q]):
        follow(w, q, e)
    for n in range(w.n_node[q]):
        guard(w, q, n)


@kernel
def follow(w, q, e):
    """Writes the edges that may follow e: all that leave from its end, except the way back unless it is the only one.

    The ends of a straight road have no successor.
    """
    m = 0
    # Edges 2k and 2k + 1 are one road: e ^ 1 is the way back.
    for f in range(w.n_edge[q]):
        if w.edge[q, f, 0] == w.edge[q, e, 1] and f != e ^ 1 and m < w.edge_next.shape[2]:
            w.edge_next[q, e, m] = f
            m += 1
    if m == 0 and w.stage == 2:
        w.edge_next[q, e, 0] = e ^ 1
        m = 1
    w.edge_ways[q, e] = m


@kernel
def guard(w, q, n):
    """Writes whether node n is guarded, and its zone at the ends of its roads."""
    roads, closest = 0, -1.0  # cosine of the smallest angle between two of its roads
    for e in range(w.n_edge[q]):
        if w.edge[q, e, 0] == n:
            roads += 1
            for f in range(e):
                if w.edge[q, f, 0] == n:
                    along = w.edge_dir[q, e, 0] * w.edge_dir[q, f, 0] + w.edge_dir[q, e, 1] * w.edge_dir[q, f, 1]
                    closest = max(closest, along)
    bends = roads == 2 and closest < BEND
    ends = roads == 1 and w.stage < 2
    w.guarded[q, n] = not (bends or ends)
    half = w.road_half[q]
    # The root is 1 / tan(t / 2) of the angle t with cosine `closest`.
    zone = max(half + 2.0, (half + 1.0) * math.sqrt((1.0 + closest) / max(1e-9, 1.0 - closest)))
    # Both shares are below 0.5, so the zones at the two ends of an edge always leave a straight part.
    most, share = (zone, 0.4) if w.guarded[q, n] else (0.0 if ends else 2.0, 0.25)
    for e in range(w.n_edge[q]):
        if w.edge[q, e, 0] == n:
            cut = min(most, share * w.edge_len[q, e])
            w.edge_cut[q, e, 0] = cut
            w.edge_cut[q, e ^ 1, 1] = cut


@kernel
def to_road(w, q, x, y):
    """Distance from a place to the nearest centre line, and the edge of that line."""
    least, nearest = 1e30, 0
    for e in range(0, w.n_edge[q], 2):
        n = w.edge[q, e, 0]
        c, s = w.edge_dir[q, e, 0], w.edge_dir[q, e, 1]
        dx, dy = x - w.node_xy[q, n, 0], y - w.node_xy[q, n, 1]
        along = min(max(dx * c + dy * s, 0.0), w.edge_len[q, e])
        dx -= along * c
        dy -= along * s
        if dx * dx + dy * dy < least:
            least, nearest = dx * dx + dy * dy, e
    return math.sqrt(least), nearest
