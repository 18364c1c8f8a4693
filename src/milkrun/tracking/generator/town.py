"""A town from its key: scene, roads, ground, boxes and their shadows, in that order.

All draws are keyed by the town, not by the row, so a town may outlive an episode or be shared by all rows.
"""

from __future__ import annotations

from milkrun.core.kernels import clear_row, kernel
from milkrun.core.rng import integers, uniform
from milkrun.tracking.generator.boxes import build_lots, place_things
from milkrun.tracking.generator.ground import cast_shadows, fill_lake, pave_roads, shade_ground, sow_fields
from milkrun.tracking.generator.roads import lay_roads, line_count
from milkrun.tracking.streams import SCENE, SURFACE, town_stream
from milkrun.tracking.tables import ASPHALT, ASPHALT_SHARE, CROPPED, DIRT, LOT, ROAD_HALF

EPISODE, ROW, FIXED = range(3)
"""Values of `town_mode`: a new town for each episode, one for each row, the same for all."""


@kernel
def generate(w, b):
    """Draws the town of row b's instance, unless it was drawn with the same key already."""
    q = w.instance_row[b]
    if not take_key(w, b, q):
        return
    clear_town(w, q)
    scene = w.scene_list[integers(town_stream(w, q, SCENE), 0, 0, w.n_scenes)]
    half, lines = w.scenes[scene, ROAD_HALF], line_count(w, scene)
    w.scene_id[q] = scene
    w.road_half[q] = half
    lay_roads(w, q)
    shade_ground(w, q)
    if w.scenes[scene, CROPPED] > 0.0:
        sow_fields(w, q, lines, half)
    if w.scenes[scene, LOT] > 0.0:
        build_lots(w, q, lines, half)
    fill_lake(w, q)
    asphalt = uniform(town_stream(w, q, SURFACE), 0) < w.scenes[scene, ASPHALT_SHARE]
    pave_roads(w, q, ASPHALT if asphalt else DIRT)
    if w.stage == 2:
        place_things(w, q)
        cast_shadows(w, q)


@kernel
def take_key(w, b, q):
    """Sets the key of row b's town; False: the town was drawn with it already."""
    # A new world has keys of 0, which may be the right ones (town_seed 0), so a town exists only if it has edges.
    fixed, known = w.town_mode == FIXED, w.n_edge[q] > 0
    for k in range(3):
        word = w.stream[b, k]
        if fixed:
            word = w.town_seed if k == 0 else 0
        elif k == 2 and w.town_mode == ROW:
            word = 0
        known = known and w.town_key[q, k] == word
        w.town_key[q, k] = word
    return not known


@kernel
def clear_town(w, q):
    """Clears the fields of the last town, so that entries behind the new counts are 0."""
    w.n_box[q] = 0
    w.tallest[q] = 0.0
    clear_row(w.box_pos, q)
    clear_row(w.box_half, q)
    clear_row(w.box_yaw, q)
    clear_row(w.box_cs, q)
    clear_row(w.box_rgb, q)
    clear_row(w.box_kind, q)
    clear_row(w.node_xy, q)
    clear_row(w.guarded, q)
    clear_row(w.edge, q)
    clear_row(w.edge_len, q)
    clear_row(w.edge_dir, q)
    clear_row(w.edge_cut, q)
    clear_row(w.edge_ways, q)
    clear_row(w.edge_next, q)
