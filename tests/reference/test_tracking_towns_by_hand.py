"""The judge of tracking towns on one small town made by hand: it passes, and each rule that is then broken is found.

Two blocks of a city: a square of side 80 m with a road through its middle, six houses and a tree at the kerb.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from .tracking_towns import (
    SUN,
    angle_between,
    faults,
    footprint_distance,
    in_shadow,
    law_faults,
    point_to_roads,
    ring_ellipse,
    water_faults,
)

CONFIG = SimpleNamespace(half_extent=60.0, ground_cell=0.5, max_vehicles=16, curriculum=None)
NODES = [(-40, -40), (0, -40), (40, -40), (40, 40), (0, 40), (-40, 40), (0, 0)]
ROADS = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (1, 6), (6, 4)]
# Edge 2k runs along road k, edge 2k + 1 against it. Node 6 is a mere point of the middle road.
NEXT = [[2, 12], [11], [4], [1, 12], [6], [3], [8, 15], [5], [10], [7, 15], [0], [9], [14], [1, 2], [7, 8], [13]]
# x, y, height, half sizes, yaw, kind; the tree is 4 / 0.45 = 8.888889 m high
BOXES = [(x, y, 10, 4, 3, 0.5 * (y == 0), 1) for x in (-20, 20) for y in (-20, 0, 20)]


def near(value, tolerance=1e-9):
    return pytest.approx(value, rel=0, abs=tolerance)


def hull(points):
    """Corners of the convex hull, counter-clockwise (Andrew's monotone chain)."""
    points, chains = sorted(points), []
    for way in (points, points[::-1]):
        chain = []
        for p in way:
            while len(chain) > 1:
                (ax, ay), (bx, by) = chain[-2:]
                if (bx - ax) * (p[1] - ay) - (by - ay) * (p[0] - ax) > 0:
                    break
                chain.pop()
            chain.append(p)
        chains += chain[:-1]
    return chains


def paint(town):
    """The ground as the rules say: kerb, road, dashes, shades by patches, one lamp, shadows by hulls."""
    draw, span = np.random.default_rng(3), np.arange(240) * 0.5 - 59.75
    x, y = np.meshgrid(span, span)
    material = np.zeros((240, 240), np.uint8)
    for radius, code in ((7, 3), (5, 1)):
        for i, j in ROADS:
            (ax, ay), (bx, by) = NODES[i], NODES[j]
            t = np.clip(((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / math.dist((ax, ay), (bx, by)) ** 2, 0, 1)
            material[np.hypot(x - ax - t * (bx - ax), y - ay - t * (by - ay)) <= radius] = code
    material[(np.abs(x) < 0.3) & (np.abs(y) < 40) & (y % 6 < 3)] = 2
    shade = np.kron(draw.integers(0, 4, (60, 60)), np.ones((4, 4), int)).astype(np.uint8)
    lamp = np.hypot(x, y + 20) <= 7
    shadow = np.zeros((240, 240), bool)
    for k in range(8):
        c, s = math.cos(town["box_yaw"][k]), math.sin(town["box_yaw"][k])
        (px, py, pz), (hx, hy, hz) = town["box_pos"][k], town["box_half"][k]
        points = []
        for z in (pz - hz, pz + hz):
            for a, b in ((-hx, -hy), (hx, -hy), (hx, hy), (-hx, hy)):
                points.append((px + c * a - s * b - z * 0.3 / 0.81, py + s * a + c * b - z * 0.5 / 0.81))
        corners = hull(points)
        inside = np.ones((240, 240), bool)
        for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1]):
            inside &= (bx - ax) * (y - ay) - (by - ay) * (x - ax) >= 0
        shadow |= inside
    town["ground"] = material | shade << 4 | shadow.astype(np.uint8) << 6 | lamp.astype(np.uint8) << 7


def small_town():
    town = dict(scene_id=0, n_box=8, n_node=7, n_edge=16, road_half=5.0, tallest=10.0)
    town |= dict(box_pos=np.zeros((12, 3)), box_half=np.zeros((12, 3)), box_yaw=np.zeros(12), box_cs=np.zeros((12, 2)))
    town |= dict(box_rgb=np.zeros((12, 2, 3), np.uint8), box_kind=np.zeros(12, np.int8))
    for k, (x, y, height, hx, hy, yaw, kind) in enumerate(BOXES):
        town["box_pos"][k], town["box_half"][k] = (x, y, height / 2), (hx, hy, height / 2)
        town["box_yaw"][k], town["box_kind"][k] = yaw, kind
    height = 4 / 0.45
    town["box_pos"][6:8] = (-33.5, 10, 2), (-33.5, 10, 0.7 * height)
    town["box_half"][6:8] = (0.2, 0.2, 2), (1.8, 1.8, 0.3 * height)
    town["box_kind"][6:8] = 2, 3
    town["box_cs"][:8] = np.c_[np.cos(town["box_yaw"][:8]), np.sin(town["box_yaw"][:8])]
    town["node_xy"], town["guarded"] = np.zeros((10, 2)), np.arange(10) < 6
    town["node_xy"][:7] = NODES
    town |= dict(edge=np.zeros((20, 2), np.int16), edge_len=np.zeros(20), edge_dir=np.zeros((20, 2)))
    town |= dict(edge_cut=np.zeros((20, 2)), edge_ways=np.zeros(20, np.int8), edge_next=np.zeros((20, 6), np.int16))
    for k, (i, j) in enumerate(ROADS):
        town["edge"][2 * k], town["edge"][2 * k + 1] = (i, j), (j, i)
        length = 80.0 if k in (2, 5) else 40.0
        town["edge_len"][2 * k : 2 * k + 2] = length
        way = np.subtract(NODES[j], NODES[i]) / length
        town["edge_dir"][2 * k], town["edge_dir"][2 * k + 1] = way, -way
    # Roads meet at right angles: max(5 + 2, 6 / tan 45 degrees) = 7 m. The bend of node 6 has 2 m.
    town["edge_cut"][:16] = 7.0
    town["edge_cut"][12], town["edge_cut"][13], town["edge_cut"][14], town["edge_cut"][15] = (
        (7, 2),
        (2, 7),
        (2, 7),
        (7, 2),
    )
    for e, following in enumerate(NEXT):
        town["edge_ways"][e] = len(following)
        town["edge_next"][e, : len(following)] = following
    paint(town)
    return town


TOWN = small_town()


def broken(name=None, index=None, value=None, **fields):
    """The small town with one entry, or with whole fields, replaced."""
    town = {key: np.copy(field) for key, field in TOWN.items()} | fields
    if name is not None:
        town[name][index] = value
    return town


def test_the_small_town_passes():
    """No rule is broken, with 8 boxes and 2 * 16 of vehicles at the least number of 40."""
    assert faults(TOWN, CONFIG) == []


@pytest.mark.parametrize("fields", [{"n_box": 13}, {"n_box": -1}, {"n_node": 11}, {"n_edge": 21}, {"n_edge": 15}])
def test_counts_have_bounds(fields):
    """Counts beyond the slots, and an odd number of edges, are found."""
    assert any(next(iter(fields)) in sentence for sentence in faults(broken(**fields), CONFIG))


@pytest.mark.parametrize(
    "name, index, value",
    [
        ("box_pos", (8, 0), 1.0),
        ("box_rgb", (9, 1, 2), 1),
        ("node_xy", (7, 1), 1.0),
        ("guarded", 9, True),
        ("edge_dir", (16, 0), 1.0),
        ("edge_next", (1, 1), 3),
    ],
)
def test_nothing_stands_behind_the_counts(name, index, value):
    """An entry behind its count that is not 0 is found by its name."""
    (sentence,) = faults(broken(name, index, value), CONFIG)
    assert sentence.startswith(name) and "behind" in sentence


def test_too_few_and_too_many_boxes():
    """8 static boxes with 15 vehicles make 38, with 97 they make 202."""
    for n_veh in (15, 97):
        (sentence,) = faults(TOWN, CONFIG, n_veh=n_veh)
        assert "40..200" in sentence


@pytest.mark.parametrize(
    "name, index, value, words",
    [
        ("box_half", (2, 1), 0.0, "box 2 has half sizes"),
        ("box_cs", (1, 0), 0.999, "box_cs of box 1"),
        ("box_kind", 0, 9, "box 0 is of kind 9"),
        ("box_pos", (0, 2), 5.5, "tallest"),
        ("box_pos", (0, 0), math.nan, "box 0 has a place"),
        ("edge", (3, 1), 0, "edges 2 (1, 2) and 3 (2, 0)"),
        ("edge_len", 5, 79.0, "edge_len of edge 5"),
        ("edge_dir", (5, 1), 1.0, "edge_dir of edge 5"),
        ("edge_next", (0, 1), 1, "edge_next of edge 0 is [1, 2], [2, 12] leave"),
        ("guarded", 6, True, "node 6 with 2 roads (bend 0.000000) is not guarded"),
        ("guarded", 0, False, "node 0 with 2 roads (bend 1.570796) is guarded"),
        ("guarded", 1, False, "node 1 with 3 roads"),
        ("edge_cut", (12, 1), 7.0, "edge_cut of edge 12 at node 6 is 7.0, the rule gives 2.0"),
        ("edge_cut", (4, 0), 6.0, "edge_cut of edge 4 at node 2 is 6.0, the rule gives 7.0"),
    ],
)
def test_a_wrong_number_is_named(name, index, value, words):
    """One wrong entry of boxes or graph is found and named."""
    assert any(words in sentence for sentence in faults(broken(name, index, value), CONFIG))


def test_a_missing_successor_is_found():
    """Edge 0 may not forget one of its two ways on."""
    town = broken("edge_ways", 0, 1)
    town["edge_next"][0] = (2, 0, 0, 0, 0, 0)
    assert faults(town, CONFIG) == ["edge_next of edge 0 is [2], [2, 12] leave its end node 1"]


def two_roads(gap):
    """Nodes 0-1 and, `gap` apart, 2-3: joined by nothing, every node a dead end."""
    town = broken(n_box=0, n_node=4, n_edge=4, tallest=0.0)
    for name in ("box_pos", "box_half", "box_yaw", "box_cs", "box_kind", "node_xy", "guarded"):
        town[name][:] = 0
    for name in ("edge", "edge_len", "edge_dir", "edge_cut", "edge_ways", "edge_next"):
        town[name][:] = 0
    town["node_xy"][:4] = (-20, 0), (20, 0), (-20, gap), (20, gap)
    town["edge"][:4] = (0, 1), (1, 0), (2, 3), (3, 2)
    town["edge_len"][:4], town["edge_dir"][:4, 0] = 40, (1, -1, 1, -1)
    return town


def test_dead_ends_and_lost_nodes_are_found():
    """Of two roads apart all four nodes are dead ends and two cannot be reached."""
    sentences = faults(two_roads(30), CONFIG)
    assert sum("dead end" in sentence for sentence in sentences) == 4
    assert "nodes [2, 3] have no path from node 0" in sentences


def test_a_straight_road_may_end():
    """In the straight curriculum two nodes, one road, no successor, no zone and no box are right."""
    town = two_roads(30)
    for name in ("node_xy", "edge", "edge_len", "edge_dir"):
        town[name][2:] = 0
    town |= dict(n_node=2, n_edge=2)
    town["ground"][:] = 0
    span = np.arange(240) * 0.5 - 59.75
    x, y = np.meshgrid(span, span)
    off = np.hypot(np.maximum(np.abs(x) - 20, 0), y)
    town["ground"][off <= 7], town["ground"][off <= 5] = 3, 1
    straight = SimpleNamespace(**{**vars(CONFIG), "curriculum": "straight"})
    assert faults(town, straight) == [] == law_faults(town, straight)
    assert any("dead end" in sentence for sentence in faults(town, CONFIG))


def test_a_house_on_a_road_is_found():
    """A house of half size 4 with its middle 10.9 m from a road leaves 6.9 m, less than 5 + 2; at 11.1 m it may."""
    for x, wrong in ((29.1, True), (28.9, False)):
        sentences = faults(broken("box_pos", (3, 0), x), CONFIG)
        assert any("box 3 of kind 1 is 6.900000 m" in sentence for sentence in sentences) == wrong


def test_a_trunk_may_stand_nearer_than_a_house_and_a_crown_above_the_road():
    """The tree 6.5 m from the middle of the road passes, at 5.6 m its trunk's side is at 5.4 m: less than 5 + 0.5."""
    town = broken()
    town["box_pos"][6:8, 0] = -34.4
    (sentence,) = [sentence for sentence in faults(town, CONFIG) if "middle of road" in sentence]
    assert sentence == "box 6 of kind 2 is 5.400000 m from the middle of road 5, not 5.5"


def cells(x, y):
    """Index of the cells around a point, 3 m wide."""
    i, j = int((y + 60) * 2), int((x + 60) * 2)
    return slice(i - 3, i + 3), slice(j - 3, j + 3)


@pytest.mark.parametrize(
    "x, y, code, words",
    [
        (20, -40, 4, "a road is not paved"),
        (30, 10, 1, "paved off the roads"),
        (6, 20, 0, "no kerb beside a road"),
        (20, 10, 3, "a kerb far from roads"),
        (20, 42, 2, "marking off the centre line"),
        (20, 10, 7, "the materials [7]"),
        (10, 56, 128, "lamp-lit, but no lamp"),
    ],
)
def test_wrong_ground_is_found(x, y, code, words):
    """3 m of ground with the wrong code are found where cells are sampled closely."""
    town = broken()
    town["ground"][cells(x, y)] = code
    assert any(words in sentence for sentence in faults(town, CONFIG, samples=20000))


def test_a_shadow_without_a_box_is_found():
    """Where no box stands between the ground and the sun the bit must not be set."""
    town = broken()
    town["ground"] |= 64
    assert any("no box stands before the sun" in sentence for sentence in faults(town, CONFIG))


def test_a_shadow_that_is_missing_is_found():
    """Without the shadow bit of one house, whose shadow covers over 100 square metres, the judge says so."""
    town = broken()
    town["ground"][100:160, 20:80] &= 255 - 64
    assert any("the shadow bit is not set" in sentence for sentence in faults(town, CONFIG))


def test_a_shadow_moved_by_two_cells_is_found():
    """A shadow layer shifted by 1 m breaks both rules of shadows."""
    town = broken()
    town["ground"] = town["ground"] & 191 | np.roll(town["ground"] & 64, 2, axis=1)
    assert sum("sun" in sentence for sentence in faults(town, CONFIG)) == 2


def test_one_shade_a_patch():
    """A single cell of another shade than its patch of 2 m is found."""
    town = broken()
    town["ground"][0, 0] ^= 16
    assert faults(town, CONFIG) == ["1 patches of 2 m have material 0 in two shades, the first is (0, 0)"]


def test_boats_swim_and_houses_do_not():
    """With water under house 4 (and no other lake rule in a city) the house is found; a boat on land too."""
    town = broken()
    town["ground"][104:136, 140:180] = 5
    assert any("box 4 of kind 1 stands in the water" in sentence for sentence in faults(town, CONFIG))
    assert "boat 0 is not on the water" in faults(broken("box_kind", 0, 7), CONFIG)


def test_shadows_of_a_post():
    """A post 8.1 m high at the origin shades the ground up to (-3, -5) and not towards the sun."""
    town = dict(n_box=1, box_pos=[(0, 0, 4.05)], box_half=[(0.1, 0.1, 4.05)], box_yaw=[0.0])
    point = np.array([(-1.5, -2.5), (-2.95, -4.95), (-3.2, -5.2), (1.5, 2.5), (0, 0)])
    assert in_shadow(town, point).tolist() == [True, True, False, False, True]
    assert math.hypot(*SUN) == near(1)


def test_distances_to_a_road():
    """From (3, 4) the segment from (0, 0) to (0, 2) is sqrt(13) away, 4 m along and 3 m aside."""
    distance, along, aside = point_to_roads(np.array([(3.0, 4.0)]), np.array([(0.0, 0.0)]), np.array([(0.0, 2.0)]))
    assert (distance[0, 0], along[0, 0], aside[0, 0]) == (near(math.sqrt(13)), near(4), near(3))


def test_distance_of_a_turned_footprint():
    """A square of side 2 turned by 45 degrees at (5, 0) is 5 - sqrt 2 from the y axis; one over it has 0."""
    town = dict(box_pos=[(5, 0, 1), (0.5, 0, 1)], box_half=[(1, 1, 1)] * 2, box_yaw=[math.pi / 4] * 2)
    road = np.array([(0.0, -9.0)]), np.array([(0.0, 9.0)])
    assert footprint_distance(town, 0, *road)[0] == near(5 - math.sqrt(2))
    assert footprint_distance(town, 1, *road)[0] == 0.0


def test_angle_between_ways():
    """East and north-west are 135 degrees apart, whichever comes first."""
    assert angle_between((1, 0), (-1, 1)) == angle_between((-1, 1), (1, 0)) == near(0.75 * math.pi)


def test_the_ring_gives_the_ellipse():
    """24 nodes on semi-axes 52 and 42 give them back, beside an outer square; one moved node gives none."""
    t = np.arange(24) * math.pi / 12
    ring = np.c_[52 * np.cos(t), 42 * np.sin(t)]
    town = dict(n_node=25, node_xy=np.r_[ring, [(105.0, 105.0)]])
    assert ring_ellipse(town) == near((52, 42), 1e-9)
    town["node_xy"][3] *= 1.01
    assert ring_ellipse(town) is None


def lake(aside=0.0):
    """A ring for semi-axes 40 and 30, and ground with the water moved aside."""
    t = np.arange(24) * math.pi / 12
    span = np.arange(240) * 0.5 - 59.75
    x, y = np.meshgrid(span - aside, span)
    ground = np.zeros((240, 240), np.uint8)
    for more, code in ((2.5, 6), (0, 5)):
        ground[(x / (40 + more)) ** 2 + (y / (30 + more)) ** 2 <= 1] = code
    return dict(n_node=24, node_xy=np.c_[52 * np.cos(t), 42 * np.sin(t)], ground=ground)


def test_the_lake_is_twelve_metres_inside_of_its_ring():
    """Water and sand as the ring says pass; moved by one cell they break all rules but that of far sand."""
    assert water_faults(lake(), CONFIG) == []
    assert [sentence.split(":")[0] for sentence in water_faults(lake(0.5), CONFIG)] == [
        "no water in the lake's ellipse",
        "water outside of the lake's ellipse",
        "no sand at the shore",
    ]


def test_a_house_needs_its_roof():
    """In a village a house without a slab of 0.8 m on it, 0.5 m wider, is found."""
    town = broken("box_kind", 7, 6, scene_id=3)
    town["box_half"][0] = (4, 3, 2)
    town["box_pos"][0, 2] = 2
    assert "box 0 of kind 1 has 0 roofs" in law_faults(town, CONFIG)
    town["box_pos"][7], town["box_half"][7] = (-20, -20, 4.4), (4.25, 3.25, 0.4)
    assert not any("box 0" in sentence for sentence in law_faults(town, CONFIG))
    town["box_half"][7, 0] = 4.1
    assert any("box 0 of kind 1 has a roof (box 7) wider by" in sentence for sentence in law_faults(town, CONFIG))


def test_an_overpass_spans_the_middle_of_an_edge():
    """A deck of 8 x 16 x 0.8 m over (-20, -40) along road 0 is right, 1 m further or turned it is found."""
    town = broken("box_kind", 7, 5, scene_id=1, road_half=6.0)
    town["box_pos"][7], town["box_half"][7] = (-20, -40, 5.9), (4, 8, 0.4)
    assert not any("box 7" in sentence for sentence in law_faults(town, CONFIG))
    town["box_pos"][7, 0] = -19
    assert "box 7 of kind 5 is not over the middle of an edge" in law_faults(town, CONFIG)
    town["box_yaw"][7] = 0.3
    assert "box 7 of kind 5 is neither along nor across its road" in law_faults(town, CONFIG)


def test_the_law_of_the_scene():
    """The small town breaks no law of a city but that of its grid of 5 x 5 nodes from -110 to 110."""
    sentences = law_faults(TOWN, CONFIG)
    assert len(sentences) == 3 and all("grid" in sentence for sentence in sentences)


@pytest.mark.parametrize(
    "name, index, value, words",
    [
        ("box_half", (0, 2), 9.5, "box 0 of kind 1 reaches from"),
        ("box_half", (6, 0), 0.3, "is no trunk of 0.4 x 0.4 m"),
        ("box_half", (7, 2), 2.0, "a crown (box 7) that does not reach"),
        ("box_pos", (7, 0), -33.0, "box 6 of kind 2 has 0 crowns"),
        ("box_half", (7, 0), 2.5, "crowns are squares"),
        ("box_kind", 5, 4, "has 1 boxes of kind 4, at most 0"),
        ("box_pos", (6, 0), -33.0, "has 0 crowns"),
        ("road_half", (), 4.0, "road_half of citystreet is 4.0, not 5.0"),
    ],
)
def test_a_box_against_the_law_is_found(name, index, value, words):
    """One wrong size, place or kind is named."""
    assert any(words in sentence for sentence in law_faults(broken(name, index, value), CONFIG))


def test_things_stand_a_metre_apart():
    """A tree moved to 0.9 m from house 0, whose side is at x = -24, is too near; houses of lots may be nearer."""
    town = broken()
    town["box_pos"][6:8, :2] = (-25.1, -20)
    sentences = law_faults(town, CONFIG)
    assert any("boxes 0 and 6 (kinds 1 and 2) are 0.900000 m apart" in sentence for sentence in sentences)
    assert not any("apart" in sentence for sentence in law_faults(broken("box_pos", (1, 1), -13.5), CONFIG))


def test_roads_cross_at_nodes_only():
    """Two roads that cross in the middle without a node are found."""
    town = two_roads(30)
    town["node_xy"][:4] = (-20, -20), (20, 20), (-20, 20), (20, -20)
    assert "roads 0 and 1 cross without a node" in law_faults(town, CONFIG)
