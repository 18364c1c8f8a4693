"""The checker of towns of the tracking world.

`faults` applies to any town, `law_faults` to towns that the generator drew for a scene. Both return messages and
recompute everything from nodes and boxes alone: distances, successors, zones, materials under sampled cells, shadows by
rays towards the sun.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

SCENES = ("citystreet", "downtown", "lake", "village", "desert", "farmland")
CITYSTREET, DOWNTOWN, LAKE, VILLAGE, DESERT, FARMLAND = range(6)
ROAD_HALF = (5.0, 6.0, 4.0, 3.5, 4.0, 3.0)
VEHICLES = (16, 16, 12, 12, 8, 8)
SUN = np.array([0.3, 0.5, 0.81]) / math.sqrt(0.3**2 + 0.5**2 + 0.81**2)

BUILDING, TRUNK, CROWN, ROCK, OVERPASS, ROOF, BOAT, OTHER = range(1, 9)
OVERHEAD = (CROWN, OVERPASS, ROOF)  # may be above a road
ASPHALT, MARKING, KERB, GRASS, WATER, SAND, DIRT, PLAZA = 1, 2, 3, 4, 5, 6, 7, 12
CROPS = (8, 9, 10, 11)
MATERIALS = (
    {0, ASPHALT, MARKING, KERB, GRASS, PLAZA},
    {0, ASPHALT, MARKING, KERB, GRASS, PLAZA},
    {0, ASPHALT, MARKING, WATER, SAND},
    {0, ASPHALT, MARKING, DIRT},
    {0, DIRT},
    {0, DIRT, *CROPS},
)
ROADS = ({ASPHALT}, {ASPHALT}, {ASPHALT}, {ASPHALT, DIRT}, {DIRT}, {DIRT})
KERBED, LAMPED = (CITYSTREET, DOWNTOWN), (CITYSTREET, DOWNTOWN, VILLAGE)

EXACT = 1e-9  # for copied values and values of one formula
BORDER = 1e-6  # metres: a cell centre nearer to a shape's border may belong to it or not
BENT, DASH = 0.6, 0.25  # rad; half the width of a centre dash

Town = Mapping[str, Any]


def faults(town: Town, config: Any, n_veh: int | None = None, samples: int = 2000, seed: int = 0) -> list[str]:
    """A message for every broken rule; about `samples` ground cells of each kind are checked.

    `config` has the attributes half_extent, ground_cell, max_vehicles and curriculum. `n_veh` is the number of vehicles
    of the row, by default that of the scene's law.
    """
    found = _count_faults(town, config)
    if found:
        return found  # indices may be out of bounds
    found = _box_faults(town, config, n_veh) + _graph_faults(town, config)
    if found:
        return found  # the following checks require the graph
    draw = np.random.default_rng(seed)
    return (
        _clearance_faults(town)
        + _ground_faults(town, config, samples, draw)
        + _shadow_faults(town, config, samples, draw)
    )


def is_straight(config: Any) -> bool:
    return config.curriculum in ("straight_mono", "straight")


def _count_faults(town: Town, config: Any) -> list[str]:
    found = []
    scene, side = int(town["scene_id"]), len(town["ground"])
    if not 0 <= scene < len(SCENES):
        return [f"scene_id {scene} is none of 0..5"]
    if side != round(2 * config.half_extent / config.ground_cell) or town["ground"].shape != (side, side):
        return [f"ground has shape {town['ground'].shape}, not 2 * half_extent / ground_cell both ways"]
    groups = {
        "n_box": ("box_pos", "box_half", "box_yaw", "box_cs", "box_rgb", "box_kind"),
        "n_node": ("node_xy", "guarded"),
        "n_edge": ("edge", "edge_len", "edge_dir", "edge_cut", "edge_ways", "edge_next"),
    }
    least = {"n_box": 0, "n_node": 2, "n_edge": 2}
    for count, names in groups.items():
        n, room = int(town[count]), len(town[names[0]])
        if not least[count] <= n <= room:
            found.append(f"{count} is {n}, allowed are {least[count]}..{room}")
            continue
        for name in names:
            if np.any(np.asarray(town[name])[n:]):
                found.append(f"{name} has entries behind {count} = {n} that are not 0")
    n_edge, n_node = int(town["n_edge"]), int(town["n_node"])
    if n_edge % 2:
        found.append(f"n_edge is {n_edge}: roads have two directions")
    if found:
        return found
    edge, ways, following = (np.asarray(town[name])[:n_edge] for name in ("edge", "edge_ways", "edge_next"))
    if np.any((edge < 0) | (edge >= n_node)):
        found.append("edge names a node that is not there")
    if np.any((ways < 0) | (ways > following.shape[1])):
        found.append(f"edge_ways lies outside of 0..{following.shape[1]}")
    else:
        for e in range(n_edge):
            if np.any(following[e, ways[e] :]):
                found.append(f"edge_next of edge {e} has entries behind edge_ways = {ways[e]} that are not 0")
    return found


def _box_faults(town: Town, config: Any, n_veh: int | None) -> list[str]:
    found = []
    n = int(town["n_box"])
    pos, half, yaw, cs = (np.asarray(town[name])[:n] for name in ("box_pos", "box_half", "box_yaw", "box_cs"))
    kind = np.asarray(town["box_kind"])[:n]
    vehicles = min(VEHICLES[int(town["scene_id"])], config.max_vehicles) if n_veh is None else n_veh
    if not is_straight(config) and not 40 <= n + 2 * vehicles <= 200:
        found.append(f"{n} static boxes and 2 * {vehicles} of vehicles are outside of 40..200")
    if is_straight(config) and n:
        found.append(f"a straight road has no static boxes, here are {n}")
    for k in np.flatnonzero(~np.isfinite(np.c_[pos, half, yaw]).all(axis=1)):
        found.append(f"box {k} has a place, size or yaw that is not finite")
    for k in np.flatnonzero(~(half > 0).all(axis=1)):
        found.append(f"box {k} has half sizes {half[k].tolist()}, which must be above 0")
    for k in np.flatnonzero(np.abs(cs - np.c_[np.cos(yaw), np.sin(yaw)]).max(axis=1, initial=0) > EXACT):
        found.append(f"box_cs of box {k} is not the cosine and sine of its yaw")
    for k in np.flatnonzero((kind < BUILDING) | (kind > OTHER)):
        found.append(f"box {k} is of kind {kind[k]}, allowed are 1..8")
    tallest = (pos[:, 2] + half[:, 2]).max(initial=0.0)
    if abs(float(town["tallest"]) - tallest) > EXACT:
        found.append(f"tallest is {float(town['tallest'])}, the highest top is {tallest}")
    return found


def road_ends(town: Town) -> tuple[np.ndarray, np.ndarray]:
    """First and last points of all roads: the even edges."""
    edge = np.asarray(town["edge"])[: int(town["n_edge"]) : 2].astype(int)
    node = np.asarray(town["node_xy"], dtype=float)
    return node[edge[:, 0]], node[edge[:, 1]]


def leaving(town: Town) -> list[list[int]]:
    """The outgoing edges of every node."""
    found: list[list[int]] = [[] for _ in range(int(town["n_node"]))]
    for e in range(int(town["n_edge"])):
        found[int(town["edge"][e, 0])].append(e)
    return found


def _graph_faults(town: Town, config: Any) -> list[str]:
    found = []
    n_node, n_edge = int(town["n_node"]), int(town["n_edge"])
    ends = [(int(i), int(j)) for i, j in np.asarray(town["edge"])[:n_edge]]
    node = np.asarray(town["node_xy"], dtype=float)
    half = float(town["road_half"])
    if not half > 0:
        return [f"road_half is {half}, which must be above 0"]
    for k in range(0, n_edge, 2):
        if ends[k + 1] != ends[k][::-1]:
            found.append(f"edges {k} {ends[k]} and {k + 1} {ends[k + 1]} are not the two directions of a road")
    for e, (i, j) in enumerate(ends):
        if i == j:
            found.append(f"edge {e} joins node {i} with itself")
    if len(set(ends)) < n_edge and not found:
        found.append("two roads join the same nodes")
    if found:
        return found
    for e, (i, j) in enumerate(ends):
        way = node[j] - node[i]
        length = math.hypot(*way)
        if abs(float(town["edge_len"][e]) - length) > EXACT:
            found.append(f"edge_len of edge {e} is {float(town['edge_len'][e])}, its ends are {length} apart")
        elif np.abs(np.asarray(town["edge_dir"][e]) - way / length).max() > EXACT:
            found.append(f"edge_dir of edge {e} is {np.asarray(town['edge_dir'][e]).tolist()}, not from end to end")
    out = leaving(town)
    found += _successor_faults(town, config, ends, out)
    for i in range(n_node):
        if len(out[i]) < 2 and not (is_straight(config) and len(out[i]) == 1):
            found.append(f"node {i} has {len(out[i])} roads: a dead end")
    for name, graph in (("from", ends), ("to", [(j, i) for i, j in ends])):
        lost = sorted(set(range(n_node)) - _reached(graph))
        if lost:
            found.append(f"nodes {lost} have no path {name} node 0")
    if not is_straight(config) and np.abs(node[:n_node]).max() > config.half_extent:
        found.append("a node lies outside of the map")
    return found or _zone_faults(town, ends, out)


def _reached(edges: list[tuple[int, int]]) -> set[int]:
    """Nodes that can be reached from node 0."""
    seen, last = {0}, 0
    while len(seen) > last:
        last = len(seen)
        seen |= {j for i, j in edges if i in seen}
    return seen


def _successor_faults(town: Town, config: Any, ends: list[tuple[int, int]], out: list[list[int]]) -> list[str]:
    found = []
    for e, (_, j) in enumerate(ends):
        expected = sorted(f for f in out[j] if f != e ^ 1)
        if not expected and not is_straight(config):
            expected = [e ^ 1]
        given = sorted(int(f) for f in town["edge_next"][e][: int(town["edge_ways"][e])])
        if given != expected:
            found.append(f"edge_next of edge {e} is {given}, {expected} leave its end node {j}")
    return found


def angle_between(u: np.ndarray, v: np.ndarray) -> float:
    """0..pi."""
    return math.atan2(abs(u[0] * v[1] - u[1] * v[0]), u[0] * v[0] + u[1] * v[1])


def _zone_faults(town: Town, ends: list[tuple[int, int]], out: list[list[int]]) -> list[str]:
    found = []
    node, half = np.asarray(town["node_xy"], dtype=float), float(town["road_half"])

    def zone(i: int, length: float) -> float:
        """Metres of an edge that belong to the node at its end."""
        if len(out[i]) == 1:
            return 0.0
        if not guarded[i]:
            return min(2.0, 0.25 * length)
        return min(max(half + 2, (half + 1) / math.tan(smallest[i] / 2)), 0.4 * length)

    smallest, guarded = {}, {}
    for i, edges in enumerate(out):
        ways = [node[ends[e][1]] - node[i] for e in edges]
        smallest[i] = min((angle_between(u, v) for a, u in enumerate(ways) for v in ways[:a]), default=math.pi)
        bend = math.pi - smallest[i]
        guarded[i] = len(edges) > 2 or (len(edges) == 2 and bend >= BENT)
        sure = len(edges) != 2 or abs(bend - BENT) > EXACT
        if sure and guarded[i] != bool(town["guarded"][i]):
            what = "is" if guarded[i] else "is not"
            found.append(f"node {i} with {len(edges)} roads (bend {bend:.6f}) {what} guarded by the rule")
    for e, ij in enumerate(ends):
        length = math.dist(node[ij[0]], node[ij[1]])
        for side, i in enumerate(ij):
            given, expected = float(town["edge_cut"][e][side]), zone(i, length)
            if abs(given - expected) > 1e-7:
                found.append(f"edge_cut of edge {e} at node {i} is {given}, the rule gives {expected}")
    return found


def point_to_roads(point: np.ndarray, first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(points, roads): distance to the centre line's segment, metres along it from its first end, metres aside."""
    way = last - first
    length = np.hypot(way[:, 0], way[:, 1])
    u = way / length[:, None]
    offset = point[:, None] - first
    along = (offset * u).sum(axis=-1)
    aside = np.abs(offset[..., 0] * u[:, 1] - offset[..., 1] * u[:, 0])
    beyond = np.maximum(np.maximum(-along, along - length), 0.0)
    return np.hypot(aside, beyond), along, aside


def footprint_distance(town: Town, k: int, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Distance of the footprint of box k to segments; 0 if they intersect."""
    c, s = math.cos(float(town["box_yaw"][k])), math.sin(float(town["box_yaw"][k]))
    turn = np.array([[c, -s], [s, c]])  # multiplying a row vector by it gives box axes
    centre, half = np.asarray(town["box_pos"][k][:2], dtype=float), np.asarray(town["box_half"][k][:2], dtype=float)
    p, q = (first - centre) @ turn, (last - centre) @ turn
    way = np.where(q - p == 0.0, 1e-300, q - p)
    middle, width = -p / way, half / np.abs(way)
    meets = np.maximum((middle - width).max(axis=1), 0) <= np.minimum((middle + width).min(axis=1), 1)
    ends = [np.hypot(*np.maximum(np.abs(x) - half, 0.0).T) for x in (p, q)]
    corners = np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)]) * half
    from_corners = point_to_roads(corners, p, q)[0].min(axis=0)
    return np.where(meets, 0.0, np.minimum(from_corners, np.minimum(*ends)))


def is_tree(town: Town, k: int) -> bool:
    """A trunk, or a cactus: a desert's box of half a metre by half a metre."""
    cactus = np.abs(np.asarray(town["box_half"][k][:2]) - 0.25).max() < EXACT
    return int(town["box_kind"][k]) == TRUNK or (int(town["scene_id"]) == DESERT and bool(cactus))


def _clearance_faults(town: Town) -> list[str]:
    found = []
    first, last = road_ends(town)
    for k in range(int(town["n_box"])):
        kind = int(town["box_kind"][k])
        if kind in OVERHEAD:
            continue
        gap = footprint_distance(town, k, first, last)
        r = int(gap.argmin())
        need = float(town["road_half"]) + (0.5 if is_tree(town, k) else 2.0)
        if gap[r] < need - BORDER:
            found.append(f"box {k} of kind {kind} is {gap[r]:.6f} m from the middle of road {r}, not {need}")
    return found


def cell_centres(config: Any, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Points (x, y); the row index is y."""
    return np.stack([j + 0.5, i + 0.5], axis=-1) * config.ground_cell - config.half_extent


def cells_at(town: Town, config: Any, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of the cells under points, at the map's border the outermost."""
    index = np.floor((point + config.half_extent) / config.ground_cell).astype(int)
    index = np.clip(index, 0, len(town["ground"]) - 1)
    return index[..., 1], index[..., 0]


def _report(found: list[str], wrong: np.ndarray, point: np.ndarray, code: np.ndarray, sentence: str) -> None:
    """One message for all sampled cells that break a rule, with the first of them."""
    if wrong.any():
        k = int(np.flatnonzero(wrong)[0])
        where = f"({point[k, 0]:.3f}, {point[k, 1]:.3f})"
        found.append(f"{sentence}: {int(wrong.sum())} sampled cells, the first at {where} with code {int(code[k])}")


def _ground_faults(town: Town, config: Any, samples: int, draw: np.random.Generator) -> list[str]:
    found: list[str] = []
    scene, half = int(town["scene_id"]), float(town["road_half"])
    ground, side = np.asarray(town["ground"]), len(town["ground"])
    first, last = road_ends(town)
    # Anywhere; within a few metres of a road; in the middle of a road, where the dashes are.
    anywhere = cell_centres(config, *draw.integers(0, side, (2, samples)))
    picked = draw.integers(0, len(first), 2 * samples)
    on = first[picked] + draw.random((2 * samples, 1)) * (last - first)[picked]
    on[:samples] += draw.uniform(-1, 1, (samples, 2)) * (half + 3)
    point = np.concatenate([anywhere, on[np.abs(on).max(axis=1) < config.half_extent]])
    i, j = cells_at(town, config, point)
    point, code = cell_centres(config, i, j), ground[i, j].astype(int)
    material, lamp = code & 15, (code & 128) > 0
    distance, along, aside = point_to_roads(point, first, last)
    nearest = distance.min(axis=1)
    length = np.hypot(*(last - first).T)

    strange = sorted(set(np.unique(ground & 15).tolist()) - MATERIALS[scene])
    if strange:
        found.append(f"the ground of {SCENES[scene]} has the materials {strange}")
    paved = ROADS[scene] | ({MARKING} if ASPHALT in ROADS[scene] else set())
    on_road, off_road = nearest < half - BORDER, nearest > half + BORDER
    _report(found, on_road & ~np.isin(material, list(paved)), point, code, "a road is not paved")
    _report(found, off_road & np.isin(material, [ASPHALT, MARKING, DIRT]), point, code, "paved off the roads")
    if scene in KERBED:
        next_to_road = (along > BORDER) & (along < length - BORDER) & (aside < half + 2 - BORDER)
        _report(found, off_road & next_to_road.any(axis=1) & (material != KERB), point, code, "no kerb next to a road")
        _report(found, (nearest > half + 2 + BORDER) & (material == KERB), point, code, "a kerb far from roads")

    dash = (aside <= DASH + BORDER) & (along >= -BORDER) & (along <= length + BORDER)
    allowed = dash.any(axis=1)
    if scene in KERBED:
        degree = np.array([len(edges) for edges in leaving(town)])
        ends = np.asarray(town["edge"])[: int(town["n_edge"]) : 2].astype(int)
        for from_node, node in ((along, ends[:, 0]), (length - along, ends[:, 1])):
            before = (from_node >= half + 1 - BORDER) & (from_node <= half + 4 + BORDER) & (aside <= half + BORDER)
            allowed |= (before & (degree[node] >= 3)).any(axis=1)
    _report(found, (material == MARKING) & ~allowed, point, code, "marking off the centre line and off crossings")

    if scene in LAMPED:
        _report(found, lamp & (nearest > half + 2 + 7), point, code, "lamp-lit, but no lamp can be near")
    elif np.any(ground & 128):
        found.append(f"{SCENES[scene]} has no lamps, but lamp-lit cells")
    if scene == LAKE and not is_straight(config):
        found += water_faults(town, config)
    return found + _patch_faults(town, config) + _wet_faults(town, config)


def ring_ellipse(town: Town) -> tuple[float, float] | None:
    """Semi-axes of the ellipse through the nodes of a lake's ring road; None if there is none."""
    node = np.asarray(town["node_xy"], dtype=float)[: int(town["n_node"])]
    ring = node[np.abs(node).max(axis=1) < 80]  # the outer square is at 105
    if len(ring) < 3:
        return None
    inverse, *_ = np.linalg.lstsq(ring**2, np.ones(len(ring)), rcond=None)
    if (inverse <= 0).any() or np.abs(ring**2 @ inverse - 1).max() > 1e-6:
        return None
    return tuple((1 / np.sqrt(inverse)).tolist())


def water_faults(town: Town, config: Any) -> list[str]:
    """The lake is the ring road's ellipse reduced by 12 m, with 2.5 m of sand around it."""
    axes = ring_ellipse(town)
    if axes is None:
        return ["the nodes of the ring road lie on no ellipse round the centre"]
    a, b = axes[0] - 12, axes[1] - 12
    found: list[str] = []
    if not (30 - BORDER <= a <= 50 + BORDER and 25 - BORDER <= b <= 40 + BORDER):
        found.append(f"the lake has the semi-axes {a:.3f}, {b:.3f}, allowed are 30..50 and 25..40")
    span = np.arange(len(town["ground"]))
    i, j = (index.ravel() for index in np.meshgrid(span, span, indexing="ij"))
    point, code = cell_centres(config, i, j), np.asarray(town["ground"]).ravel().astype(int)

    def inside(margin: float) -> np.ndarray:
        return (point[:, 0] / (a + margin)) ** 2 + (point[:, 1] / (b + margin)) ** 2 < 1

    material = code & 15
    _report(found, inside(-BORDER) & (material != WATER), point, code, "no water in the lake's ellipse")
    _report(found, ~inside(BORDER) & (material == WATER), point, code, "water outside of the lake's ellipse")
    # Measuring 2.5 m along the axes or from the shore differs by less than a metre.
    shore = ~inside(BORDER) & inside(2.5 - BORDER)
    _report(found, shore & (material != SAND), point, code, "no sand at the shore")
    _report(found, ~inside(3.5) & (material == SAND), point, code, "sand far from the water")
    return found


def _patch_faults(town: Town, config: Any) -> list[str]:
    """Cells of one material in a patch of 2 m have one shade; a farmland's stripes cut through patches."""
    wide = round(2 / config.ground_cell)
    ground, side = np.asarray(town["ground"]), len(town["ground"])
    if wide < 2 or abs(wide * config.ground_cell - 2) > EXACT or side % wide:
        return []
    patches = ground.reshape(side // wide, wide, side // wide, wide)
    shade, material = (patches >> 4 & 3).astype(int), patches & 15
    for m in np.unique(ground & 15):
        if int(town["scene_id"]) == FARMLAND and m in CROPS:
            continue
        there = material == m
        most, least = np.where(there, shade, -1).max(axis=(1, 3)), np.where(there, shade, 9).min(axis=(1, 3))
        mixed = (most >= 0) & (most != least)
        if mixed.any():
            i, j = np.argwhere(mixed)[0]
            return [f"{int(mixed.sum())} patches of 2 m have material {m} in two shades, the first is ({i}, {j})"]
    return []


def _wet_faults(town: Town, config: Any) -> list[str]:
    """Boats are on water, all other boxes on land; a cell at the shore counts as both."""
    found = []
    n = int(town["n_box"])
    wet = np.pad((np.asarray(town["ground"]) & 15) == WATER, 1, mode="edge")
    side = len(wet) - 2
    around = np.array([wet[i : i + side, j : j + side] for i in range(3) for j in range(3)])
    all_wet, some_wet = around.all(axis=0), around.any(axis=0)
    for k in range(n):
        kind = int(town["box_kind"][k])
        if kind in OVERHEAD:
            continue
        c, s = math.cos(float(town["box_yaw"][k])), math.sin(float(town["box_yaw"][k]))
        corners = np.array([(0, 0), (-1, -1), (-1, 1), (1, -1), (1, 1)]) * np.asarray(town["box_half"][k][:2])
        points = np.asarray(town["box_pos"][k][:2]) + corners @ np.array([[c, s], [-s, c]])
        i, j = cells_at(town, config, points)
        if kind == BOAT and not some_wet[i, j].all():
            found.append(f"boat {k} is not on the water")
        if kind != BOAT and all_wet[i, j].any():
            found.append(f"box {k} of kind {kind} stands in the water")
    return found


def in_shadow(town: Town, point: np.ndarray, grow: float = 0.0) -> np.ndarray:
    """Whether the line from ground points towards the sun hits a static box, its half sizes enlarged by `grow`."""
    found = np.zeros(len(point), dtype=bool)
    for k in range(int(town["n_box"])):
        c, s = math.cos(float(town["box_yaw"][k])), math.sin(float(town["box_yaw"][k]))
        turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]])
        start = (np.c_[point, np.zeros(len(point))] - np.asarray(town["box_pos"][k], dtype=float)) @ turn
        way = SUN @ turn
        way = np.where(way == 0.0, 1e-300, way)
        # The whole line, not only the ray: the rule also projects the part of a box below the ground.
        middle, width = -start / way, (np.asarray(town["box_half"][k]) + grow) / np.abs(way)
        found |= (middle - width).max(axis=1) <= (middle + width).min(axis=1)
    return found


def _shadow_faults(town: Town, config: Any, samples: int, draw: np.random.Generator) -> list[str]:
    found: list[str] = []
    ground, n, side = np.asarray(town["ground"]), int(town["n_box"]), len(town["ground"])
    if n == 0:
        return ["there is no box, but a shadow"] if np.any(ground & 64) else []
    point = cell_centres(config, *draw.integers(0, side, (2, samples)))
    # Around the shadows, where a wrong polygon would be detected.
    k = draw.integers(0, n, samples)
    pos, half = np.asarray(town["box_pos"], dtype=float)[k], np.asarray(town["box_half"], dtype=float)[k]
    z = pos[:, 2:] + draw.uniform(-1, 1, (samples, 1)) * half[:, 2:]
    close = pos[:, :2] - z * SUN[:2] / SUN[2] + draw.uniform(-1.5, 1.5, (samples, 2)) * half[:, :2].max(axis=1)[:, None]
    point = np.concatenate([point, close[np.abs(close).max(axis=1) < config.half_extent]])
    i, j = cells_at(town, config, point)
    point, code = cell_centres(config, i, j), ground[i, j].astype(int)
    least, most, bit = in_shadow(town, point, -BORDER), in_shadow(town, point, BORDER), (code & 64) > 0
    _report(found, least & ~bit, point, code, "a box stands before the sun, but the shadow bit is not set")
    _report(found, ~most & bit, point, code, "no box stands before the sun, but the shadow bit is set")
    return found


# kind: largest number of boxes; other kinds do not occur
_MOST: tuple[dict[int, int], ...] = (
    {BUILDING: 168, TRUNK: 30, CROWN: 30},
    {BUILDING: 168, TRUNK: 12, CROWN: 12, OVERPASS: 3},
    {BUILDING: 15, ROOF: 15, TRUNK: 50, CROWN: 50, BOAT: 6},
    {BUILDING: 40, ROOF: 40, TRUNK: 40, CROWN: 40},
    {BUILDING: 5, TRUNK: 10, ROCK: 60, OTHER: 10},
    {OTHER: 30, ROOF: 10, TRUNK: 30, CROWN: 30},
)
_HEIGHT = ((6, 18), (10, 30), (3, 5), (3, 6), (3, 6), (5, 8))  # of walls
_SIDES = ((0, 55), (0, 44), (6, 9), (6, 12), (6, 10), (8, 18))
_GAPS = {CITYSTREET: 4, DOWNTOWN: 5, FARMLAND: 3}  # of a grid, one way


def law_faults(town: Town, config: Any) -> list[str]:
    """Violations of the generator's law for the scene: sizes, numbers and positions of boxes and nodes."""
    scene, n = int(town["scene_id"]), int(town["n_box"])
    found = []
    if abs(float(town["road_half"]) - ROAD_HALF[scene]) > EXACT:
        found.append(f"road_half of {SCENES[scene]} is {float(town['road_half'])}, not {ROAD_HALF[scene]}")
    if is_straight(config):
        return found + _straight_faults(town)
    kind = np.asarray(town["box_kind"])[:n]
    for value, count in zip(*np.unique(kind, return_counts=True)):
        if count > _MOST[scene].get(int(value), 0):
            found.append(
                f"{SCENES[scene]} has {count} boxes of kind {value}, at most {_MOST[scene].get(int(value), 0)}"
            )
    for k in range(n):
        found += [f"box {k} of kind {kind[k]} {what}" for what in _shape_faults(town, k)]
    return found + _apart_faults(town) + _road_law_faults(town)


def _straight_faults(town: Town) -> list[str]:
    first, last = road_ends(town)
    aside = point_to_roads(np.zeros((1, 2)), first, last)[2].max()
    return [f"a straight road passes {aside} m off the centre"] if aside > BORDER else []


def _between(x: float, low: float, high: float) -> bool:
    return low - BORDER <= x <= high + BORDER


def _shape_faults(town: Town, k: int) -> list[str]:
    scene, kind = int(town["scene_id"]), int(town["box_kind"][k])
    pos, half = np.asarray(town["box_pos"][k], dtype=float), np.asarray(town["box_half"][k], dtype=float)
    wide, deep, tall = (2 * half).tolist()
    bottom, top = pos[2] - half[2], pos[2] + half[2]
    found = []
    on_ground = abs(bottom) < BORDER
    if kind == BUILDING or (kind == OTHER and scene == FARMLAND and max(wide, deep) > 2):
        low, high = _HEIGHT[scene]
        if not (on_ground and _between(tall, low, high)):
            found.append(f"reaches from {bottom} to {top}, walls are {low}..{high} m high")
        low, high = _SIDES[scene]
        if not (_between(wide, low, high) and _between(deep, low, high)):
            found.append(f"is {wide} x {deep} m, sides are {low}..{high} m")
        if scene == FARMLAND and not (min(wide, deep) <= 14 + BORDER and max(wide, deep) >= 10 - BORDER):
            found.append(f"is {wide} x {deep} m, barns are 8..14 x 10..18 m")
        if scene in (LAKE, VILLAGE, FARMLAND):
            found += _yaw_faults(town, k) + _roof_faults(town, k)
    elif is_tree(town, k) and scene != DESERT:
        found += _tree_faults(town, k)
    elif is_tree(town, k):
        if not (on_ground and _between(tall, 2, 4) and abs(wide - 0.5) < BORDER and abs(deep - 0.5) < BORDER):
            found.append(f"is {wide} x {deep} x {tall} m, cacti are 0.5 x 0.5 x 2..4 m")
    elif kind == ROCK:
        if half.min() < 0.5 - BORDER or half.max() > 2.5 + BORDER:
            found.append(f"has half sizes {half.tolist()}, rocks 0.5..2.5 m")
    elif kind == BOAT:
        if np.abs([wide - 4, deep - 1.6, tall - 1]).max() > BORDER:
            found.append(f"is {wide} x {deep} x {tall} m, boats are 4 x 1.6 x 1 m")
    elif kind == OTHER and scene == FARMLAND:
        if not (on_ground and np.abs([wide - 1.5, deep - 1.5, tall - 1.5]).max() < BORDER):
            found.append(f"is {wide} x {deep} x {tall} m, bales are cubes of 1.5 m on the ground")
    elif kind == OVERPASS:
        found += _overpass_faults(town, k)
    return found


def _yaw_faults(town: Town, k: int) -> list[str]:
    first, last = road_ends(town)
    point = np.asarray(town["box_pos"][k][:2], dtype=float)[None]
    distance = point_to_roads(point, first, last)[0][0]
    yaw = float(town["box_yaw"][k])
    for r in np.flatnonzero(distance <= distance.min() + BORDER):
        way = last[r] - first[r]
        if abs(math.sin(yaw - math.atan2(way[1], way[0]))) < BORDER:
            return []
    return [f"has yaw {yaw}, which is not along the nearest road"]


def _at_same_place(town: Town, k: int, kind: int) -> list[int]:
    n = int(town["n_box"])
    gap = np.abs(np.asarray(town["box_pos"])[:n, :2] - np.asarray(town["box_pos"][k][:2])).max(axis=1)
    return [int(o) for o in np.flatnonzero((gap < BORDER) & (np.asarray(town["box_kind"])[:n] == kind))]


def _roof_faults(town: Town, k: int) -> list[str]:
    """A roof is 0.5 m wider than the walls: in total, or on each side."""
    roofs = _at_same_place(town, k, ROOF)
    if len(roofs) != 1:
        return [f"has {len(roofs)} roofs"]
    pos, half = (np.asarray(town[name], dtype=float) for name in ("box_pos", "box_half"))
    (o,) = roofs
    found = []
    if abs(2 * half[o, 2] - 0.8) > BORDER or abs(pos[o, 2] - half[o, 2] - pos[k, 2] - half[k, 2]) > BORDER:
        found.append(f"has a roof (box {o}) that is no slab of 0.8 m on top of it")
    if abs(float(town["box_yaw"][o]) - float(town["box_yaw"][k])) > EXACT:
        found.append(f"has a roof (box {o}) turned otherwise")
    more = half[o, :2] - half[k, :2]
    if min(np.abs(more - 0.25).max(), np.abs(more - 0.5).max()) > BORDER:
        found.append(f"has a roof (box {o}) wider by {(2 * more).tolist()} m, not 0.5")
    return found


def _tree_faults(town: Town, k: int) -> list[str]:
    scene = int(town["scene_id"])
    pos, half = (np.asarray(town[name], dtype=float) for name in ("box_pos", "box_half"))
    crowns = _at_same_place(town, k, CROWN)
    if len(crowns) != 1:
        return [f"has {len(crowns)} crowns"]
    (o,) = crowns
    found = []
    height = 2 * half[k, 2] / 0.45
    low, high = (6, 14) if scene == FARMLAND else (4, 9)
    if abs(pos[k, 2] - half[k, 2]) > BORDER or np.abs(half[k, :2] - 0.2).max() > BORDER:
        found.append("is no trunk of 0.4 x 0.4 m on the ground")
    if not _between(height, low, high):
        found.append(f"belongs to a tree of {height} m, allowed are {low}..{high}")
    if abs(pos[o, 2] - half[o, 2] - 0.4 * height) > BORDER or abs(pos[o, 2] + half[o, 2] - height) > BORDER:
        found.append(f"has a crown (box {o}) that does not reach from 0.4 to 1 of the tree's height")
    if not (_between(2 * half[o, 0], 2, 4) and abs(half[o, 0] - half[o, 1]) < BORDER):
        found.append(f"has a crown (box {o}) of {(2 * half[o, :2]).tolist()} m, crowns are squares of 2..4 m")
    if scene in (CITYSTREET, FARMLAND):
        first, last = road_ends(town)
        off = point_to_roads(pos[k : k + 1, :2], first, last)[0].ravel() - ROAD_HALF[scene]
        rule = 1.5 if scene == CITYSTREET else 3.0
        # The distance refers to one road, its middle or its side; near a crossing another road may be nearer, within
        # limits.
        if not ((rule - BORDER <= off) & (off <= rule + 0.3)).any():
            found.append(f"stands {off.min()} m off the road's edge, not {rule}")
    return found


def _overpass_faults(town: Town, k: int) -> list[str]:
    first, last = road_ends(town)
    pos, half = np.asarray(town["box_pos"][k], dtype=float), np.asarray(town["box_half"][k], dtype=float)
    found = []
    gap = np.hypot(*((first + last) / 2 - pos[:2]).T)
    r = int(gap.argmin())
    way = last[r] - first[r]
    turn = float(town["box_yaw"][k]) - math.atan2(way[1], way[0])
    if gap[r] > BORDER:
        found.append("is not over the middle of an edge")
    size = half[:2] if abs(math.sin(turn)) < BORDER else half[1::-1]
    if min(abs(math.sin(turn)), abs(math.cos(turn))) > BORDER:
        found.append("is neither along nor across its road")
    if np.abs(2 * np.append(size, half[2]) - (8, 2 * ROAD_HALF[DOWNTOWN] + 4, 0.8)).max() > BORDER:
        found.append(f"has half sizes {half.tolist()}, not 8 m along the road x 16 m x 0.8 m")
    if not _between(5.5 - pos[2], 0, half[2]) and not _between(pos[2] - 5.5, 0, half[2]):
        found.append(f"has its middle at {pos[2]} m, not its middle or its bottom at 5.5 m")
    return found


def _apart_faults(town: Town) -> list[str]:
    """Objects on the ground are 1 m apart, except for buildings of neighbouring lots."""
    scene = int(town["scene_id"])
    kind = np.asarray(town["box_kind"])[: int(town["n_box"])]
    standing = np.flatnonzero(~np.isin(kind, OVERHEAD))
    pos, half = (np.asarray(town[name], dtype=float)[standing] for name in ("box_pos", "box_half"))
    yaw = np.asarray(town["box_yaw"], dtype=float)[standing]
    corner = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])[None] * half[:, None, :2]
    c, s = np.cos(yaw)[:, None], np.sin(yaw)[:, None]
    corner = np.stack([c * corner[..., 0] - s * corner[..., 1], s * corner[..., 0] + c * corner[..., 1]], axis=-1)
    corner += pos[:, None, :2]
    reach = np.hypot(half[:, 0], half[:, 1])
    found = []
    for a, k in enumerate(standing):
        close = np.hypot(*(pos[:, :2] - pos[a, :2]).T) < reach + reach[a] + 1
        if scene in KERBED and kind[k] == BUILDING:
            close &= kind[standing] != BUILDING
        close[a] = False
        others = np.flatnonzero(close)
        if not len(others):
            continue
        sides = corner[others].reshape(-1, 2), np.roll(corner[others], -1, axis=1).reshape(-1, 2)
        gap = footprint_distance(town, int(k), *sides).reshape(-1, 4).min(axis=1)
        for o, metres in zip(standing[others], gap):
            # A box inside another one intersects none of its sides, so the reverse test is needed.
            if metres < 1 - BORDER and (k < o or metres == 0.0):
                found.append(f"boxes {k} and {o} (kinds {kind[k]} and {kind[o]}) are {metres:.6f} m apart, not 1 m")
    return found


def _road_law_faults(town: Town) -> list[str]:
    scene, n_node, n_edge = int(town["scene_id"]), int(town["n_node"]), int(town["n_edge"])
    node = np.asarray(town["node_xy"], dtype=float)[:n_node]
    found = []
    if scene in _GAPS:
        n = _GAPS[scene]
        if (n_node, n_edge) != ((n + 1) ** 2, 4 * n * (n + 1)):
            found.append(
                f"a grid of {n} gaps has {(n + 1) ** 2} nodes and {4 * n * (n + 1)} edges, not {n_node}, {n_edge}"
            )
        for axis in (0, 1):
            lines = np.unique(np.round(node[:, axis], 6))
            if len(lines) != n + 1 or abs(lines[0] + 110) > BORDER or abs(lines[-1] - 110) > BORDER:
                found.append(f"the grid's lines {lines.tolist()} are not {n + 1} from -110 to 110")
                continue
            gap, rest = np.diff(lines), 220 / n
            least, most = ((rest + e) * 220 / (220 - e * (n - 2)) for e in (-4, 4))
            if gap.min() < least - 1e-5 or gap.max() > most + 1e-5:
                found.append(f"the grid's gaps {gap.tolist()} are outside of {least:.3f}..{most:.3f}")
    if scene == LAKE:
        outer = np.abs(np.abs(node).max(axis=1) - 105) < BORDER
        if (n_node, n_edge, int(outer.sum())) != (32, 72, 8):
            found.append(
                f"a lake has 24 + 8 nodes and 72 edges, here are {n_node} (outer {int(outer.sum())}) and {n_edge}"
            )
    if scene == VILLAGE:
        gap = np.hypot(*(node[:, None] - node[None]).T) + 1e9 * np.eye(n_node)
        if not 12 <= n_node <= 16 or np.abs(node).max() > 105 + BORDER or gap.min() < 35 - BORDER:
            found.append(
                f"a village has 12..16 nodes within 105 m, 35 m apart; here are {n_node}, {gap.min():.3f} m apart"
            )
    if scene == DESERT:
        radius = np.hypot(*node.T)
        if (n_node, n_edge) != (25, 52) or radius.max() > 70 * 1.25 + BORDER:
            found.append(f"a desert has 25 nodes within 87.5 m and 52 edges, here are {n_node} and {n_edge}")
    return found + _crossing_faults(town)


def _crossing_faults(town: Town) -> list[str]:
    """Roads meet at nodes only."""
    first, last = road_ends(town)
    ends = np.asarray(town["edge"])[: int(town["n_edge"]) : 2]
    way = last - first

    def side(p: np.ndarray) -> np.ndarray:
        """(road, p): on which side of the road's line a point lies."""
        offset = p[None] - first[:, None]
        return np.sign(way[:, None, 0] * offset[..., 1] - way[:, None, 1] * offset[..., 0])

    apart = side(first) * side(last) < 0
    shared = (ends[:, None, :, None] == ends[None, :, None, :]).any(axis=(2, 3))
    return [f"roads {a} and {b} cross without a node" for a, b in np.argwhere(apart & apart.T & ~shared) if a < b]
