"""Reads given towns: derived fields that are missing are computed, and invalid towns are refused.

A town needs `node_xy` and `edge`, and for boxes `box_pos` and `box_half`. Arrays may be as short as the town needs.
Derived fields are computed by the kernels of the generator.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from milkrun.core.errors import BadInstance, ShapeError
from milkrun.core.fields import Field
from milkrun.core.instances import check_values, refuse_where
from milkrun.core.kernels import kernel
from milkrun.tracking import tables
from milkrun.tracking.generator.roads import add_way, link

BOXES = ("box_pos", "box_half", "box_yaw", "box_cs", "box_rgb", "box_kind")
NODES = ("node_xy", "guarded")
EDGES = ("edge", "edge_len", "edge_dir", "edge_cut", "edge_ways", "edge_next")
COUNTED = {"n_box": BOXES, "n_node": NODES, "n_edge": EDGES}
"""Fields of which only the first `n_...` entries are used."""
SOURCES = ("n_node", "node_xy", "n_edge", "edge", "road_half", "n_box", "box_pos", "box_half", "box_yaw")
DERIVED = ("guarded", "edge_len", "edge_dir", "edge_cut", "edge_ways", "edge_next", "box_cs", "tallest")
"""Optional fields, which are derived from the sources."""
NEAR = 1e-6
"""Tolerance of given derived numbers."""
GREY = 150
"""Default colour of boxes."""


# -- missing fields ----------------------------------------------------------------------------------------------


def arrange_towns(world: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Completes the given fields to whole instances; given values are not changed."""
    if any(name not in world.fields for name in values):
        return values  # the caller refuses unknown names
    for name in ("node_xy", "edge"):
        if name not in values:
            raise ShapeError(f"the instance lacks {name!r}")
    fields, rows = world.fields, len(values["node_xy"])
    values = {
        **values,
        **{
            name: _filled(fields[name], values[name], world.sizes)
            for names in COUNTED.values()
            for name in names
            if name in values
        },
        **_counts(values),
    }
    for name in ("scene_id", *COUNTED):
        if name in values and (values[name].shape != (rows,) or values[name].dtype.kind not in "iu"):
            raise ShapeError(f"{name} must be {rows} integers, one a row")
    values.setdefault("scene_id", np.full(rows, tables.SCENES.index(world.config.scenes[0])))
    values.setdefault("n_box", np.zeros(rows, np.int64))
    # Clipped for the table lookup only; an invalid scene is refused later by its bounds.
    scene = np.clip(values["scene_id"], 0, len(tables.SCENES) - 1)
    built = np.arange(world.sizes["K"]) < _column(values["n_box"])
    values = {
        "town_key": np.full((rows, 3), -1),
        "road_half": tables.SCENE_LAWS[scene, tables.ROAD_HALF],
        "box_kind": np.where(built, tables.BUILDING, 0),
        "box_rgb": np.where(built[:, :, None, None], GREY, np.zeros((2, 3), np.int64)),
        **{
            name: np.zeros((rows, *fields[name].shape(world.sizes)), fields[name].dtype)
            for name in ("ground", "box_pos", "box_half", "box_yaw")
        },
        **values,
    }
    if any(name not in values for name in DERIVED):
        values = {**_derived(world, values, rows), **values}
    return values


def _filled(f: Field, array: np.ndarray, sizes: dict[str, int]) -> np.ndarray:
    """The given entries, padded with zeros."""
    most, *rest = f.shape(sizes)
    if array.ndim != len(rest) + 2 or list(array.shape[2:]) != rest or array.shape[1] > most:
        expected = ", ".join(["rows", f"up to {most}", *map(str, rest)])
        raise ShapeError(f"{f.name} must have the shape ({expected}), not {array.shape}")
    whole = np.zeros((len(array), most, *rest), array.dtype)
    whole[:, : array.shape[1]] = array
    return whole


def _counts(values: dict[str, Any]) -> dict[str, np.ndarray]:
    """Missing counts: the numbers of entries."""
    return {
        count: np.full(len(values[names[0]]), values[names[0]].shape[1])
        for count, names in COUNTED.items()
        if count not in values and names[0] in values
    }


def _derived(world: Any, values: dict[str, Any], rows: int) -> dict[str, np.ndarray]:
    """Fields derived from nodes, edges and boxes, computed by the generator's kernels in a temporary world."""
    sketch = type(world)(rows, config=world.config, threads=1)
    for name in SOURCES:
        f, array = world.fields[name], values[name]
        expected, kinds = (rows, *f.shape(world.sizes)), "iu" if f.dtype.kind == "i" else "fiu"
        if array.shape != expected or array.dtype.kind not in kinds:
            raise ShapeError(f"{name} must be {f.dtype.name} {expected}, not {array.dtype} {array.shape}")
        check_values(f, array, world.sizes)
        getattr(sketch, name)[...] = array
    # Kernels do not check indices, so invalid ones are refused first.
    _check_ends(world, {name: getattr(sketch, name) for name in SOURCES})
    sketch.map_rows(derive)
    return {name: getattr(sketch, name) for name in DERIVED}


@kernel
def derive(w, b, x, y):
    """Lengths, directions and junctions of the roads of row b; cosine and sine of its boxes, and the highest top."""
    for e in range(w.n_edge[b]):
        add_way(w, b, e, w.edge[b, e, 0], w.edge[b, e, 1])
    link(w, b)
    w.tallest[b] = 0.0
    for k in range(w.n_box[b]):
        w.box_cs[b, k, 0] = math.cos(w.box_yaw[b, k])
        w.box_cs[b, k, 1] = math.sin(w.box_yaw[b, k])
        w.tallest[b] = max(w.tallest[b], w.box_pos[b, k, 2] + w.box_half[b, k, 2])
    return 0


# -- validation --------------------------------------------------------------------------------------------------


def check_towns(world: Any, arrays: dict[str, np.ndarray]) -> None:
    """Validates towns; raises BadInstance with the first wrong row, field and value."""
    _check_ends(world, arrays)
    _check_roads(arrays)
    _check_boxes(arrays)
    for count, names in COUNTED.items():
        for name in names:
            array = arrays[name]
            behind = np.arange(array.shape[1]) >= _column(arrays[count])
            behind = behind.reshape(*behind.shape, *[1] * (array.ndim - 2))
            refuse_where(name, array, behind & (array != 0), f"must be 0 behind the first {count}")
    key = arrays["town_key"]
    refuse_where("town_key", key, (key < 0) & (key >= 0).any(1, keepdims=True), "must be a key, or -1 three times")


def _check_ends(world: Any, arrays: dict[str, np.ndarray]) -> None:
    """Validates that roads are pairs of opposite edges between two nodes."""
    n_edge, edge = arrays["n_edge"], arrays["edge"]
    refuse_where("n_edge", n_edge, n_edge < 2, "a town needs a road: two edges")
    refuse_where("n_edge", n_edge, n_edge % 2 > 0, "must be even: edges 2k and 2k + 1 are the two ways of a road")
    used = (np.arange(edge.shape[1]) < _column(n_edge))[:, :, None]
    most = arrays["n_node"][:, None, None]
    refuse_where("edge", edge, used & (edge >= most), "points nowhere: nodes are 0..n_node-1")
    refuse_where("edge", edge, used & (edge == edge[:, :, ::-1]), "a road must lead to another node")
    back = edge.reshape(len(edge), -1, 2, 2)[:, :, ::-1, ::-1].reshape(edge.shape)
    refuse_where("edge", edge, used & (edge != back), "edges 2k and 2k + 1 must be each other's reverse")
    most = world.fields["edge_next"].shape(world.sizes)[1] + 1
    for b, row in enumerate(edge):
        roads = np.bincount(row[: n_edge[b], 0])
        if roads.max() > most:
            raise BadInstance(f"row {b}: edge: {roads.max()} roads meet at node {roads.argmax()}: at most {most} may")


def _check_roads(arrays: dict[str, np.ndarray]) -> None:
    """Validates lengths, directions, zones and successors of edges."""
    edge, length, n_edge = arrays["edge"], arrays["edge_len"], arrays["n_edge"]
    used = np.arange(edge.shape[1]) < _column(n_edge)
    refuse_where("road_half", arrays["road_half"], ~(arrays["road_half"] > 0), "must be above 0")
    b = np.arange(len(edge))[:, None]
    ends = arrays["node_xy"][b[:, :, None], edge]
    way = ends[:, :, 1] - ends[:, :, 0]
    far = np.hypot(way[..., 0], way[..., 1])
    refuse_where("edge_len", length, used & ~(length > 0), "must be above 0")
    refuse_where("edge_len", length, used & (abs(length - far) > NEAR), "must be the distance of the edge's nodes")
    off = abs(arrays["edge_dir"] * length[:, :, None] - way) > NEAR * (1 + far[:, :, None])
    refuse_where("edge_dir", arrays["edge_dir"], used[:, :, None] & off, "must be the unit vector along the edge")
    cut = arrays["edge_cut"]
    # Subtracted in the order of `straight`, so that rounding cannot make its result negative.
    long = used & (length - cut[:, :, 0] - cut[:, :, 1] < 0)
    refuse_where("edge_cut", cut, long[:, :, None] & (cut > 0), "both zones together are longer than the edge")
    ways, following = arrays["edge_ways"], arrays["edge_next"]
    named = (np.arange(following.shape[2]) < ways[:, :, None]) & used[:, :, None]
    refuse_where(
        "edge_next", following, named & (following >= n_edge[:, None, None]), "points nowhere: edges are 0..n_edge-1"
    )
    starts = edge[b[:, :, None], np.where(named, following, 0), 0]
    refuse_where("edge_next", following, named & (starts != edge[:, :, 1:]), "leaves from another node")
    refuse_where("edge_next", following, ~named & (following != 0), "must be 0 behind the first edge_ways")


def _check_boxes(arrays: dict[str, np.ndarray]) -> None:
    """Validates sizes and derived fields of boxes."""
    half, cs, yaw, tallest = (arrays[name] for name in ("box_half", "box_cs", "box_yaw", "tallest"))
    built = np.arange(half.shape[1]) < _column(arrays["n_box"])
    refuse_where("box_half", half, built[:, :, None] & ~(half > 0), "must be above 0")
    wrong = abs(cs - np.stack([np.cos(yaw), np.sin(yaw)], 2)) > NEAR
    refuse_where("box_cs", cs, built[:, :, None] & wrong, "must be the cosine and sine of box_yaw")
    tops = np.where(built, arrays["box_pos"][:, :, 2] + half[:, :, 2], 0.0).max(1, initial=0.0)
    refuse_where("tallest", tallest, abs(tallest - tops) > NEAR, "must be the highest top of a box, 0 without boxes")


def _column(counts: Any) -> np.ndarray:
    return np.asarray(counts)[:, None]
