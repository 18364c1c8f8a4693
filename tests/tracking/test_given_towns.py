"""Towns given by the caller: derived fields, error messages, and rows with a common town."""

import numpy as np
import pytest

from milkrun.core.errors import BadInstance, ShapeError
from milkrun.core.fields import Role
from milkrun.tracking import tables
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.instances import DERIVED
from milkrun.tracking.tables import SCENES
from milkrun.tracking.world import Tracking

TOWN = [f.name for f in Tracking.fields.values() if f.role is Role.INSTANCE]


def drawn(num_envs=1, **options):
    world = Tracking(num_envs, config=TrackingConfig(ground_cell=10.0, **options), seed=4, threads=1)
    world.reset()
    return world


@pytest.fixture(scope="module")
def source():
    """Six rows, a scene each."""
    world = drawn(64, scene=SCENES)
    rows = [int(np.flatnonzero(world.scene_id == k)[0]) for k in range(6)]
    return {name: getattr(world, name)[rows].copy() for name in TOWN}


@pytest.fixture(scope="module")
def taker():
    return drawn(6)


def given(taker, values):
    taker.reset(instance=values)
    return taker


def square(half=40.0):
    """A square of four roads, with the minimal set of fields."""
    ring = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (3, 0), (0, 3)]
    corners = [(-half, -half), (half, -half), (half, half), (-half, half)]
    return {"node_xy": np.array([corners]), "edge": np.array([ring])}


def test_missing_fields_are_derived_as_by_the_generator(source, taker):
    """Lengths, directions, zones, successors, guarded nodes, cosines and the tallest box: equal to the bit."""
    world = given(taker, {name: source[name] for name in TOWN if name not in DERIVED})
    for name in TOWN:
        assert getattr(world, name).tobytes() == source[name].tobytes(), name


def test_nodes_and_edges_are_enough():
    """The square's roads are 80 m long; cars wait 7 m before its corners, road_half + 2; nothing is built."""
    world = given(drawn(), square())
    assert (world.n_node[0], world.n_edge[0], world.n_box[0], world.tallest[0]) == (4, 8, 0, 0)
    assert world.edge_len[0, :8].tolist() == [80.0] * 8 and not world.edge_len[0, 8:].any()
    assert world.guarded[0].sum() == 4 and world.road_half[0] == 5
    np.testing.assert_allclose(world.edge_cut[0, :8], 7)
    assert world.edge_ways[0, :8].tolist() == [1] * 8 and world.edge_next[0, :8, 0].tolist() == [2, 7, 4, 1, 6, 3, 0, 5]
    assert not world.ground.any() and world.town_key[0].tolist() == [-1, -1, -1]


def test_junctions_of_a_small_town_by_hand():
    """Two blocks of a city: a square of 80 m with a road through its middle, on which node 6 is only a bend.

    Roads meet at right angles: max(5 + 2, 6 / tan 45 degrees) = 7 m; the bend of node 6 is not guarded and has 2 m.
    """
    nodes = [(-40, -40), (0, -40), (40, -40), (40, 40), (0, 40), (-40, 40), (0, 0)]
    roads = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (1, 6), (6, 4)]
    ways = [way for i, j in roads for way in ((i, j), (j, i))]
    world = given(drawn(), {"node_xy": np.array([nodes], float), "edge": np.array([ways])})
    following = [
        [2, 12],
        [11],
        [4],
        [1, 12],
        [6],
        [3],
        [8, 15],
        [5],
        [10],
        [7, 15],
        [0],
        [9],
        [14],
        [1, 2],
        [7, 8],
        [13],
    ]
    assert [world.edge_next[0, e, : world.edge_ways[0, e]].tolist() for e in range(16)] == following
    assert world.guarded[0, :7].tolist() == [True] * 6 + [False]
    assert world.edge_len[0, :16].tolist() == [40.0] * 4 + [80.0] * 2 + [40.0] * 4 + [80.0] * 2 + [40.0] * 4
    np.testing.assert_allclose(world.edge_cut[0, :12], 7)
    np.testing.assert_allclose(world.edge_cut[0, 12:16], [(7, 2), (2, 7), (2, 7), (7, 2)])


def test_zones_by_the_angle_of_roads():
    """With a half width of 4 m: (4 + 1) / tan(t / 2) = 5 / (sqrt 5 - 2) m, but 0.4 of a short road."""
    nodes = [(0, 0), (100, 0), (100, 50), (-18, -24)]
    roads = [(0, 1), (1, 0), (0, 2), (2, 0), (0, 3), (3, 0)]
    world = given(drawn(), {"node_xy": np.array([nodes], float), "edge": np.array([roads]), "road_half": [4.0]})
    assert world.edge_cut[0, 0, 0] == pytest.approx(21.180339887)  # t = atan(0.5)
    assert world.edge_cut[0, 4, 0] == pytest.approx(12)  # of 30 m


def test_boxes_may_be_given_by_position_and_size():
    """Yaw 0, grey buildings, the tallest 12 m high."""
    boxes = {"box_pos": [[[0, 0, 6.0], [10, 0, 1.0]]], "box_half": [[[2, 2, 6.0], [1, 1, 1.0]]]}
    world = given(drawn(), {**square(), **boxes})
    assert world.n_box[0] == 2 and world.tallest[0] == 12 and world.box_cs[0, :3].tolist() == [[1, 0], [1, 0], [0, 0]]
    assert world.box_kind[0, :3].tolist() == [tables.BUILDING, tables.BUILDING, 0]
    assert (world.box_rgb[0, :2] == 150).all()


def test_the_way_back_is_taken_only_without_another():
    """A single road: its ends are guarded and lead back; on a straight road they have no successor."""
    one = {"node_xy": [[[-50, 0.0], [50, 0.0]]], "edge": [[[0, 1], [1, 0]]]}
    world = given(drawn(), one)
    assert world.edge_next[0, :2, 0].tolist() == [1, 0] and world.guarded[0, :2].all()
    world = given(drawn(curriculum="straight"), one)
    assert not world.edge_ways.any() and not world.guarded.any()


@pytest.mark.parametrize("radius", [0.5, 0.1])
def test_edges_may_be_shorter_than_a_sim_step(radius):
    """A ring of 64 edges of 5 or 1 cm: the world accepts the states that its cars reach."""
    around = 2 * np.pi * np.arange(64) / 64
    ring = {
        "node_xy": radius * np.stack([np.cos(around), np.sin(around)], 1)[None],
        "edge": np.array([[way for k in range(64) for way in ((k, (k + 1) % 64), ((k + 1) % 64, k))]]),
        "instance_row": np.zeros(8, int),
    }
    world, other = (drawn(8, size=16, init_no_done=10**6, control_hz=25) for _ in range(2))
    world.reset(instance=ring)
    for _ in range(60):
        world.step([6] * 8)
        other.load_state_dict(world.state_dict())
    assert world.veh_v[:, 0].max() > 1


def test_the_target_of_a_straight_road_starts_on_its_first_edge():
    """Also if the zone of a given road's far end is longer than half of it: at most at 10 m, where the zone begins."""
    one = {"node_xy": [[[-50, 0.0], [50, 0.0]]], "edge": [[[0, 1], [1, 0]]], "edge_cut": [[[0.0, 90.0], [90.0, 0.0]]]}
    world, other = drawn(curriculum="straight_mono"), drawn(curriculum="straight_mono")
    world.reset(instance=one)
    assert world.veh_s[0, 0] <= 10
    other.load_state_dict(world.state_dict())


def test_rows_may_share_a_town(source):
    """One town in memory for eight rows, and the same bytes as eight copies of it."""
    world, copies = drawn(8), drawn(8)
    town = drawn(8, scene="village").town(3)
    world.reset(instance={**town, "instance_row": np.zeros(8, int)})
    copies.reset(instance={name: np.repeat(array, 8, axis=0) for name, array in town.items()})
    assert world.num_instances == 1 and world.ground.shape[0] == 1
    for f in world.fields.values():
        if f.role is Role.STATE:
            assert getattr(world, f.name).tobytes() == getattr(copies, f.name).tobytes(), f.name
        elif f.role is Role.INSTANCE:
            assert (getattr(copies, f.name) == getattr(world, f.name)).all()


def test_a_returned_town_counts_as_a_given_one():
    """`town(row)` may be changed: it has no key, so it does not count as a drawn one."""
    world = drawn(4, town="row")
    town = world.town(2)
    assert sorted(town) == sorted(TOWN) and town["town_key"].tolist() == [[-1, -1, -1]]
    town["box_rgb"][...] = 7
    assert not (world.box_rgb == 7).all()


def test_a_reset_replaces_a_given_town():
    """A reset without an instance draws the town of the row's key again, also with towns of several episodes."""
    world, other = drawn(town="row"), drawn(town="row")
    world.reset(instance=square())
    world.reset()
    for name in TOWN:
        assert getattr(world, name).tobytes() == getattr(other, name).tobytes()


def at(name, *index, value):
    """A fault: one value of one field."""

    def spoil(town):
        town[name][index] = value

    return spoil


REFUSED = {
    "more boxes than there is room for": (at("n_box", 2, value=169), "row 2: n_box = 169"),
    "more nodes": (at("n_node", 0, value=65), "row 0: n_node = 65"),
    "more edges": (at("n_edge", 1, value=162), "row 1: n_edge = 162"),
    "no road": (at("n_edge", 3, value=0), "row 3: n_edge = 0: a town needs a road"),
    "half a road": (at("n_edge", 3, value=7), "row 3: n_edge = 7: must be even"),
    "an edge to a node beyond the count": (at("edge", 4, 2, 1, value=40), r"row 4: edge\[2, 1\] = 40: points nowhere"),
    "an edge to no node at all": (at("edge", 4, 2, 1, value=-1), r"row 4: edge\[2, 1\] = -1: must be >= 0"),
    "an edge to itself": (at("edge", 0, 0, value=3), r"row 0: edge\[0, 0\] = 3: a road must lead to another node"),
    "another way back": (at("edge", 0, 1, 1, value=7), "edges 2k and 2k \\+ 1 must be each other's reverse"),
    "a successor beyond the count": (at("edge_next", 2, 5, 0, value=150), r"row 2: edge_next\[5, 0\] = 150: points"),
    "a successor that leaves elsewhere": (at("edge_next", 1, 0, 0, value=0), r"edge_next\[0, 0\] = 0: leaves from"),
    "more successors than there are": (at("edge_ways", 1, 0, value=6), r"row 1: edge_next\[0, .\] = 0: leaves from"),
    "a successor behind their number": (at("edge_next", 1, 0, 5, value=3), r"edge_next\[0, 5\] = 3: must be 0 behind"),
    "roads of no width": (at("road_half", 5, value=0.0), "row 5: road_half = 0.0: must be above 0"),
    "a length of 0": (at("edge_len", 5, 1, value=0.0), r"row 5: edge_len\[1\] = 0.0: must be above 0"),
    "a wrong length": (at("edge_len", 5, 1, value=9.0), r"row 5: edge_len\[1\] = 9.0: must be the distance"),
    "a wrong direction": (at("edge_dir", 5, 1, 0, value=0.5), r"row 5: edge_dir\[1, 0\] = 0.5: must be the unit"),
    "zones longer than the edge": (at("edge_cut", 0, 3, 1, value=99.0), r"row 0: edge_cut\[3, .\] = .*longer than"),
    "a box of no size": (at("box_half", 2, 3, 1, value=0.0), r"row 2: box_half\[3, 1\] = 0.0: must be above 0"),
    "a box of negative size": (at("box_half", 2, 3, 1, value=-1.0), r"row 2: box_half\[3, 1\] = -1.0: must be >= 0"),
    "a box at no place": (at("box_pos", 2, 3, 1, value=np.nan), r"row 2: box_pos\[3, 1\] = nan: must be finite"),
    "a node at no place": (at("node_xy", 2, 3, 1, value=np.inf), r"row 2: node_xy\[3, 1\] = inf: must be finite"),
    "another yaw": (at("box_yaw", 0, 0, value=1.0), r"row 0: box_cs\[0, 0\] = 1.0: must be the cosine and sine"),
    "a wrong highest top": (at("tallest", 1, value=99.0), "row 1: tallest = 99.0: must be the highest top"),
    "a box behind the count": (at("box_kind", 4, 167, value=3), r"row 4: box_kind\[167\] = 3: must be 0 behind"),
    "a node behind the count": (at("node_xy", 4, 63, 0, value=3), r"row 4: node_xy\[63, 0\] = 3.0: must be 0 behind"),
    "an edge behind the count": (at("edge_len", 4, 159, value=3), r"row 4: edge_len\[159\] = 3.0: must be 0 behind"),
    "an unknown kind": (at("box_kind", 4, 0, value=9), r"row 4: box_kind\[0\] = 9: must be <= 8"),
    "an unknown scene": (at("scene_id", 4, value=6), "row 4: scene_id = 6: must be <= 5"),
    "half a key": (at("town_key", 4, 1, value=-1), r"row 4: town_key\[1\] = -1: must be a key, or -1 three times"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_an_invalid_town_is_refused_by_row_field_and_value(fault, source, taker):
    """The message names them, and the world is unchanged."""
    town = {name: array.copy() for name, array in source.items()}
    spoil, sentence = REFUSED[fault]
    spoil(town)
    before = {name: getattr(taker, name).tobytes() for name in (*TOWN, "pos", "veh_pose")}
    with pytest.raises(BadInstance, match=sentence):
        taker.reset(instance=town)
    assert before == {name: getattr(taker, name).tobytes() for name in before}


@pytest.mark.parametrize(
    "fault",
    [
        "more edges",
        "no road",
        "an edge to a node beyond the count",
        "an edge to itself",
        "an edge to no node at all",
        "another way back",
        "a node at no place",
    ],
)
def test_it_is_also_refused_with_missing_fields(fault, source, taker):
    """Nothing is derived from invalid roads."""
    town = {name: array.copy() for name, array in source.items() if name not in DERIVED}
    spoil, sentence = REFUSED[fault]
    spoil(town)
    with pytest.raises(BadInstance, match=sentence):
        taker.reset(instance=town)


def test_too_many_roads_at_a_node_are_refused():
    """An edge has six successors at most, so seven roads may meet."""
    places = [(0.0, 0.0), *[(60 * np.cos(t), 60 * np.sin(t)) for t in np.arange(8) * np.pi / 4]]
    star = [pair for k in range(1, 9) for pair in ((0, k), (k, 0))]
    with pytest.raises(BadInstance, match="row 0: edge: 8 roads meet at node 0: at most 7 may"):
        drawn().reset(instance={"node_xy": [places], "edge": [star]})


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"edge": None}, "lacks 'edge'"),
        ({"edge": np.zeros((1, 200, 2), int)}, r"edge must have the shape \(rows, up to 160, 2\), not \(1, 200, 2\)"),
        ({"edge": np.zeros((1, 8, 2))}, "edge must be int16"),
        ({"node_xy": np.zeros((1, 4, 3))}, r"node_xy must have the shape \(rows, up to 64, 2\)"),
        ({"n_box": np.zeros((1, 1), int)}, "n_box must be 1 integers"),
        ({"ground": np.zeros((1, 5, 5), np.uint8)}, "ground must have the shape"),
        ({"ground": np.zeros((1, 24, 24))}, "ground must be uint8"),
        ({"edges": np.zeros((1, 8, 2), int)}, "no instance field 'edges'"),
    ],
)
def test_arrays_of_another_shape_are_refused(change, sentence):
    """The message names the required shape or type."""
    town = {name: array for name, array in {**square(), **change}.items() if array is not None}
    with pytest.raises(ShapeError, match=sentence):
        drawn().reset(instance=town)
