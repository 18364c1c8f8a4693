"""Drawn towns: their rules, the ground, and the keys of their random streams."""

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from milkrun.core.check.bench import TOLERANCE, first_difference
from milkrun.core.fields import Role
from milkrun.tracking import tables
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.tables import SCENES
from milkrun.tracking.world import Tracking

OVER_ROADS = (tables.CROWN, tables.ROOF, tables.OVERPASS)
ROAD_MATERIALS = (tables.ASPHALT, tables.DIRT, tables.MARKING)
TOWN = [f.name for f in Tracking.fields.values() if f.role is Role.INSTANCE]
GRIDS = ("citystreet", "downtown", "farmland")


def towns(num_envs=1, seed=0, threads=1, first_row=0, debug=False, **options):
    """A world with drawn towns, with coarse ground unless the test checks the ground."""
    config = TrackingConfig(**{"ground_cell": 2.0, **options})
    world = Tracking(num_envs, config=config, seed=seed, threads=threads, first_row=first_row, debug=debug)
    world.reset()
    return world


def same(one, other, rows=slice(None), of=slice(None), but=()):
    """The fields in which the towns of two worlds differ."""
    return [
        name
        for name in TOWN
        if name not in but and getattr(one, name)[rows].tobytes() != getattr(other, name)[of].tobytes()
    ]


def corners(world, b):
    """The corners (boxes, 4, 2) of the footprints of row b."""
    n = world.n_box[b]
    c, s = world.box_cs[b, :n, 0, None], world.box_cs[b, :n, 1, None]
    hx, hy = world.box_half[b, :n, :1] * [1, -1, -1, 1], world.box_half[b, :n, 1:2] * [1, 1, -1, -1]
    return world.box_pos[b, :n, None, :2] + np.stack([c * hx - s * hy, s * hx + c * hy], 2)


def to_segments(points, a, b):
    """Distances (..., segments) of points to the segments from a to b."""
    along = b - a
    t = ((points[..., None, :] - a) * along).sum(-1) / (along**2).sum(-1)
    return np.linalg.norm(points[..., None, :] - a - np.clip(t, 0, 1)[..., None] * along, axis=-1)


def to_boxes(world, b, points):
    """Distances (..., boxes) of points to the footprints of row b."""
    n = world.n_box[b]
    d = points[..., None, :] - world.box_pos[b, :n, :2]
    c, s = world.box_cs[b, :n, 0], world.box_cs[b, :n, 1]
    turned = np.stack([d[..., 0] * c + d[..., 1] * s, d[..., 1] * c - d[..., 0] * s], -1)
    return np.linalg.norm(np.maximum(abs(turned) - world.box_half[b, :n, :2], 0), axis=-1)


def roads(world, b):
    """The ends (roads, 2) and (roads, 2) of the centre lines of row b."""
    ends = world.node_xy[b][world.edge[b, : world.n_edge[b] : 2]]
    return ends[:, 0], ends[:, 1]


def off_roads(world, b):
    """Distance of the footprint of each box of row b from the nearest centre line; 0 if they intersect."""
    a, z = roads(world, b)
    n = world.n_box[b]
    least = to_segments(corners(world, b), a, z).min((1, 2))
    least = np.minimum(least, to_boxes(world, b, np.concatenate([a, z])).min(0))
    c, s = world.box_cs[b, :n, 0, None], world.box_cs[b, :n, 1, None]
    d, way = a - world.box_pos[b, :n, None, :2], z - a
    enter, leave = np.zeros((n, len(a))), np.ones((n, len(a)))
    for axis, (x, y) in enumerate(((c, s), (-s, c))):
        start, speed = x * d[..., 0] + y * d[..., 1], x * way[:, 0] + y * way[:, 1] + 1e-300
        t0, t1 = (np.array([-1, 1])[:, None, None] * world.box_half[b, :n, axis, None] - start) / speed
        enter, leave = np.maximum(enter, np.minimum(t0, t1)), np.minimum(leave, np.maximum(t0, t1))
    return np.where((enter < leave).any(1), 0.0, least)


def check_solids(world, b):
    """No solid on a road; objects apart from each other, buildings on their own lots."""
    n = world.n_box[b]
    kind, place = world.box_kind[b, :n], world.box_pos[b, :n, :2]
    low = ~np.isin(kind, OVER_ROADS)
    off = off_roads(world, b)[low] - world.road_half[b]
    assert (off >= np.where(kind[low] == tables.TRUNK, 0.5, 2.0) - 1e-9).all()
    on_lot = (kind == tables.BUILDING) & (world.scene_id[b] < 2)
    whole = np.flatnonzero(~on_lot & ~np.isin(kind, (tables.TRUNK,)))  # for a tree the crown, which is wider
    points = np.concatenate([corners(world, b), place[:, None]], 1)
    apart = to_boxes(world, b, points[whole]).min(1)
    apart[:, whole] = np.minimum(apart[:, whole], apart[:, whole].T)
    apart[(place[whole, None] == place).all(2)] = 99.0  # one object
    assert apart.min(initial=99.0) > 0
    assert apart[np.ix_(kind[whole] != tables.OVERPASS, kind != tables.OVERPASS)].min(initial=99.0) >= 1 - 1e-9
    half = world.box_half[b, :n, :2][on_lot]
    far = abs(place[on_lot, None] - place[on_lot]) - half[:, None] - half
    assert (far.max(2) + 99 * np.eye(on_lot.sum()) > 0).all()


def check_graph(world, b):
    """Every node is reachable from every other, and every edge has a successor other than the way back."""
    edge = world.edge[b, : world.n_edge[b]]
    graph = coo_array((np.ones(len(edge)), edge.T), shape=(world.n_node[b],) * 2)
    assert connected_components(graph, connection="strong")[0] == 1
    assert np.bincount(edge[:, 0], minlength=world.n_node[b]).min() >= 2
    for e, (ways, after) in enumerate(zip(world.edge_ways[b], world.edge_next[b])):
        leaving = [f for f in np.flatnonzero(edge[:, 0] == edge[e, 1]) if f != e ^ 1] if e < len(edge) else []
        assert list(after[:ways]) == leaving


def check_rules(world, scene):
    law = tables.SCENE_LAWS[SCENES.index(scene)]
    total = world.n_box + 2 * law[tables.CARS]
    assert total.min() >= 40 and total.max() <= 200
    for b in range(world.num_envs):
        check_solids(world, b)
        check_graph(world, b)
        n = world.n_box[b]
        assert world.tallest[b] == (world.box_pos[b, :n, 2] + world.box_half[b, :n, 2]).max()
        assert abs(corners(world, b)[world.box_kind[b, :n] != tables.CROWN]).max() <= 120


@pytest.mark.parametrize("scene", SCENES)
def test_a_hundred_towns_keep_the_rules(scene):
    """No solid on a road, objects a metre apart, no dead end, and 40 to 200 boxes."""
    check_rules(towns(100, seed=11, scene=scene), scene)


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES)
def test_a_thousand_towns_keep_the_rules(scene):
    """The same for a thousand."""
    check_rules(towns(1000, seed=12, scene=scene), scene)


@pytest.mark.parametrize("scene", SCENES)
def test_the_counts_of_objects_are_those_of_the_scene(scene):
    """The counts of each kind follow the law; few objects are left out for lack of space."""
    world = towns(100, seed=13, scene=scene)
    laws = [law for law in tables.BOX_LAWS if law[tables.LAW_SCENE] == SCENES.index(scene)]
    for kind in np.unique([tables.THINGS_BUILT[int(law[tables.WHAT]), tables.KIND] for law in laws]):
        if kind == tables.BUILDING and scene in GRIDS:
            continue
        of_kind = [law for law in laws if tables.THINGS_BUILT[int(law[tables.WHAT]), tables.KIND] == kind]
        low, high = (sum(law[column] for law in of_kind) for column in (tables.N_LOW, tables.N_HIGH))
        counts = (world.box_kind == kind).sum(1)
        assert counts.max() <= high and abs(counts.mean() - (low + high) / 2) < 0.1 * (low + high) / 2


def test_a_tree_is_a_trunk_and_a_crown_and_a_house_has_a_roof():
    """The trunk reaches 0.45 of the height and the crown begins at 0.4; a roof lies on the walls, 0.5 m wider."""
    world = towns(scene="village", seed=2)
    kind, low = world.box_kind[0], world.box_pos[0, :, 2] - world.box_half[0, :, 2]
    top = low + 2 * world.box_half[0, :, 2]
    for k in np.flatnonzero(kind == tables.TRUNK):
        assert kind[k + 1] == tables.CROWN and low[k] == 0
        np.testing.assert_allclose([top[k], low[k + 1]], [0.45 * top[k + 1], 0.4 * top[k + 1]])
        assert 4 <= top[k + 1] <= 9 and (world.box_half[0, k, :2] == 0.2).all()
    for k in np.flatnonzero(kind == tables.BUILDING):
        assert kind[k + 1] == tables.ROOF
        np.testing.assert_allclose(world.box_half[0, k + 1, :2], world.box_half[0, k, :2] + 0.5)
        np.testing.assert_allclose([low[k + 1], top[k + 1]], [top[k], top[k] + 0.8])


def test_an_overpass_spans_the_middle_of_a_road():
    """Deck 8 m along the road and 2 m wider than it on either side, its underside at 5.5 m."""
    world = towns(20, scene="downtown")
    for b in range(20):
        a, z = roads(world, b)
        for k in np.flatnonzero(world.box_kind[b] == tables.OVERPASS):
            np.testing.assert_allclose(world.box_half[b, k], [4, 8, 0.4])
            assert world.box_pos[b, k, 2] == pytest.approx(5.9)
            assert np.linalg.norm((a + z) / 2 - world.box_pos[b, k, :2], axis=1).min() < 1e-9


def test_boats_are_on_water_and_all_other_boxes_on_land():
    """The ground under every corner of a boat is water, under all other boxes it is not."""
    world = towns(20, scene="lake", ground_cell=0.5)
    for b in range(20):
        at = ((corners(world, b) + 120) / 0.5).astype(int)
        wet = world.ground[b, at[..., 1], at[..., 0]] & 15 == tables.WATER
        boat = world.box_kind[b, : world.n_box[b]] == tables.BOAT
        assert wet[boat].all() and not wet[~boat].any()


def test_the_number_of_boxes_is_limited_by_the_option():
    """With a low limit a town has that many boxes, and no trunk without its crown."""
    world = towns(8, scene="village", max_boxes=31)
    assert (world.n_box >= 30).all()
    assert (world.box_kind == tables.TRUNK).sum() == (world.box_kind == tables.CROWN).sum()
    assert (world.box_kind == tables.BUILDING).sum() == (world.box_kind == tables.ROOF).sum()


def test_villages_have_12_to_16_nodes_and_no_roads_that_cross():
    """Nodes are 35 m apart, and two roads meet only at nodes."""
    world = towns(100, scene="village", seed=4)
    assert set(world.n_node.tolist()) == {12, 13, 14, 15, 16}
    for b in range(100):
        places = world.node_xy[b, : world.n_node[b]]
        gaps = np.linalg.norm(places[:, None] - places, axis=2) + 1e9 * np.eye(len(places))
        assert gaps.min() >= 35
        a, z = roads(world, b)
        d = z - a

        def left(k, points, a=a, d=d):
            return d[k, 0] * (points[:, 1] - a[k, 1]) > d[k, 1] * (points[:, 0] - a[k, 0])

        parts = np.array([left(k, a) != left(k, z) for k in range(len(a))])
        ends = np.sort(world.edge[b, : world.n_edge[b] : 2], axis=1)
        shared = (ends[:, None, :, None] == ends[None, :, None, :]).any((2, 3))
        assert not (parts & parts.T & ~shared).any()


# -- the ground --------------------------------------------------------------------------------------------------


def centres(world):
    at = (np.arange(world.sizes["G"]) + 0.5) * world.config.ground_cell - world.config.half_extent
    return np.stack(np.meshgrid(at, at), -1)


@pytest.mark.parametrize("scene", SCENES)
def test_the_road_is_where_its_half_width_says(scene):
    """A cell is road or marking if and only if its centre is nearer to a centre line than half the road's width."""
    world = towns(scene=scene, seed=6)
    off = to_segments(centres(world), *roads(world, 0)).min(-1)
    paved = np.isin(world.ground[0] & 15, ROAD_MATERIALS)
    clear = abs(off - world.road_half[0]) > 1e-9
    assert (paved == (off < world.road_half[0]))[clear].all()


@pytest.mark.parametrize("scene", SCENES)
def test_a_cell_is_in_shadow_if_a_box_stands_before_the_sun(scene):
    """The shadow bit is what a ray from the cell's centre to the sun finds."""
    world = towns(scene=scene, seed=7)
    n, rays = world.n_box[0], centres(world).reshape(-1, 1, 2)
    d = rays - world.box_pos[0, :n, :2]
    c, s = world.box_cs[0, :n, 0], world.box_cs[0, :n, 1]
    enter, leave = np.full((*d.shape[:2],), 0.0), np.full((*d.shape[:2],), np.inf)
    starts = [d[..., 0] * c + d[..., 1] * s, d[..., 1] * c - d[..., 0] * s, -world.box_pos[0, :n, 2] + 0 * d[..., 0]]
    x, y, z = tables.SUN
    for axis, (start, way) in enumerate(zip(starts, [c * x + s * y, c * y - s * x, z + 0 * c])):
        half = world.box_half[0, :n, axis]
        t0, t1 = (-half - start) / way, (half - start) / way
        enter, leave = np.maximum(enter, np.minimum(t0, t1)), np.minimum(leave, np.maximum(t0, t1))
    dark = (leave > enter).any(1).reshape(world.ground[0].shape)
    assert dark.any() and ((world.ground[0] & tables.SHADOW_BIT > 0) == dark).all()


def test_shades_are_patches_of_two_metres_for_any_cell_size():
    """Cells of 0.5 m have the shade of their 2 m patch, and so have cells of 2 m."""
    fine, coarse = (towns(scene="village", ground_cell=cell).ground[0] >> 4 & 3 for cell in (0.5, 2.0))
    assert (fine == np.kron(coarse, np.ones((4, 4), int))).all()
    assert abs(np.bincount(coarse.ravel()) / coarse.size - 0.25).max() < 0.02


def test_a_wider_map_has_the_same_town_and_more_land_around_it():
    """half_extent only moves the border."""
    small, wide = (towns(scene="citystreet", half_extent=extent) for extent in (120.0, 150.0))
    assert same(small, wide, but=("ground",)) == []
    inner = wide.ground[0, 15:-15, 15:-15]
    assert (inner & 0xCF == small.ground[0] & 0xCF).mean() > 0.999
    assert (wide.ground[0, :10] & 15 == tables.BASE).all()


def test_dashes_are_three_metres_on_and_three_off():
    """On the square around a lake, whose sides are parallel to the cells: one cell wide, six cells long, six apart."""
    world = towns(scene="lake", ground_cell=0.5)
    marked = world.ground[0, 240:440, 448:452] & 15 == tables.MARKING  # x = 104..106, y = 0..100
    assert marked.any(0).tolist() == [False, True, False, False]
    turns = np.flatnonzero(np.diff(marked[:, 1].astype(int)))
    assert (np.diff(turns) == 6).all() and len(turns) > 20


def test_crossings_stand_before_junctions_of_kerbed_towns():
    """Bars lie from half-width + 1 to + 4 m before a node of three roads, and none before a corner."""
    world = towns(scene="citystreet", ground_cell=0.5, seed=1)
    edge, degree = world.edge[0, : world.n_edge[0]], np.bincount(world.edge[0, : world.n_edge[0], 0])
    for e, (_, n) in enumerate(edge):
        (c, s), off = world.edge_dir[0, e], world.road_half[0] + np.array([0.5, 2.5, 4.5])
        across = np.arange(-4.9, 4.9, 0.1)
        at = world.node_xy[0, n] - off[:, None, None] * [c, s] + across[:, None] * [-s, c]
        cell = np.floor((at + 120) / 0.5).astype(int)
        share = (world.ground[0, cell[..., 1], cell[..., 0]] & 15 == tables.MARKING).mean(1)
        assert share[0] == share[2] == 0
        assert 0.35 < share[1] < 0.65 if degree[n] >= 3 else share[1] == 0


def test_only_lit_scenes_have_lamps_and_these_stand_by_the_road():
    """Lit cells are at most half-width + 1 + 7 m from a road."""
    for scene, law in zip(SCENES, tables.SCENE_LAWS):
        world = towns(scene=scene)
        lit = world.ground[0] & tables.LAMP_BIT > 0
        assert lit.any() == bool(law[tables.LIT])
        if lit.any():
            assert to_segments(centres(world)[lit], *roads(world, 0)).min(1).max() <= world.road_half[0] + 8


def test_fields_are_striped_in_one_crop():
    """A block of farmland is of one material, and about half of it is a shade darker than the patches were."""
    world, bare = towns(scene="farmland", ground_cell=0.5), towns(scene="village", ground_cell=0.5)
    at = centres(world)
    x, y = (np.unique(world.node_xy[0, :16, axis]) for axis in range(2))
    block = (abs(at[..., 0] - (x[1] + x[2]) / 2) < (x[2] - x[1]) / 2 - 4) & (
        abs(at[..., 1] - (y[1] + y[2]) / 2) < (y[2] - y[1]) / 2 - 4
    )
    crop = np.unique(world.ground[0][block] & 15)
    assert len(crop) == 1 and tables.CROP_A <= crop[0] <= tables.PLOUGHED
    before, after = bare.ground[0][block] >> 4 & 3, world.ground[0][block] >> 4 & 3
    assert ((before - after == 0) | (before - after == 1)).all()
    assert 0.4 < (before > after)[before > 0].mean() < 0.6


# -- keys ----------------------------------------------------------------------------------------------------------


def test_a_town_is_drawn_each_episode_once_a_row_or_once_for_all():
    """`town` determines which words of (seed, row, episode) the key has; a fixed town does not depend on the seed
    either."""
    for town, changes, differs in (("episode", True, True), ("row", False, True), ("fixed", False, False)):
        world = towns(2, town=town, town_seed=9)
        first = {name: getattr(world, name).copy() for name in TOWN}
        assert world.town_key.tolist() == {"fixed": [[9, 0, 0]] * 2}.get(town, [[0, 0, 0], [0, 1, 0]])
        world.reset()
        assert (world.ground.tobytes() != first["ground"].tobytes()) == changes
        assert (world.ground[0].tobytes() != world.ground[1].tobytes()) == differs
    assert same(towns(town="fixed", town_seed=9), towns(seed=5, town="fixed", town_seed=9)) == []


def test_a_row_has_its_town_in_any_batch():
    """Row 5 of 8, alone, among threads, or after other episodes: the same bytes."""
    world = towns(8, seed=3, scene=SCENES)
    assert same(world, towns(1, seed=3, first_row=5, scene=SCENES), slice(5, 6)) == []
    assert same(world, towns(8, seed=3, threads=2, scene=SCENES)) == []
    world.reset()
    world.reset()
    world.reset(seed=3)
    assert same(world, towns(8, seed=3, scene=SCENES)) == []


def test_unused_entries_of_a_town_are_zero():
    """Entries beyond the counts keep nothing of larger towns before."""
    world = towns(16, scene=SCENES)
    for _ in range(4):
        world.reset()
    counts = {"box_": world.n_box, "node": world.n_node, "guar": world.n_node, "edge": world.n_edge}
    for name in TOWN:
        for b, n in enumerate(counts.get(name[:4], ())):
            assert not getattr(world, name)[b, n:].any() and getattr(world, name)[b, :n].any()


def test_the_weather_changes_no_town():
    """Weather, cars and start are drawn from other streams."""
    assert same(towns(6, scene=SCENES, weather="day"), towns(6, scene=SCENES, weather="snow", halt_rate=5.0)) == []


def test_a_list_of_scenes_is_drawn_with_the_town():
    """All scenes occur, and each equals the same scene drawn alone."""
    world = towns(64, scene=SCENES, seed=2)
    assert set(world.scene_id.tolist()) == set(range(6))
    b = int(np.flatnonzero(world.scene_id == 4)[0])
    assert same(world, towns(64, scene="desert", seed=2), slice(b, b + 1), slice(b, b + 1)) == []


def test_the_straight_road_goes_through_the_centre_and_ends():
    """One road of 220 m without junctions, boxes or successors, in the scene's colours."""
    world = towns(50, curriculum="straight_mono", scene="village", seed=8)
    assert set(world.n_edge.tolist()) == {2} and set(world.n_box.tolist()) == {0}
    np.testing.assert_allclose(world.node_xy[:, 0], -world.node_xy[:, 1])
    np.testing.assert_allclose(world.edge_len[:, :2], 220)
    assert not world.edge_ways.any() and not world.guarded.any() and not world.tallest.any()
    assert not world.edge_cut.any()
    assert not (world.ground & tables.SHADOW_BIT).any()
    materials = {tables.ASPHALT, tables.DIRT} & set(np.unique(world.ground & 15).tolist())
    assert materials == {tables.ASPHALT, tables.DIRT} and np.ptp(np.arctan2(*world.edge_dir[:, 0].T)) > 5


@pytest.mark.parametrize("scene, curriculum", [*((scene, None) for scene in SCENES), ("downtown", "straight")])
def test_interpreted_and_compiled_towns_are_alike(scene, curriculum):
    """With every access checked: equal whole numbers, and floats within the tolerance."""
    options = {"scene": scene, "curriculum": curriculum, "ground_cell": 10.0, "seed": 21}
    compiled, interpreted = towns(**options), towns(**options, debug=True)
    for name in TOWN:
        assert first_difference(name, getattr(compiled, name), getattr(interpreted, name), TOLERANCE) is None
