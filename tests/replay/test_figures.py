"""A figure shows the driven legs and the numbers of its episode."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib._pylab_helpers import Gcf

import milkrun
from milkrun.render.canvas import CUSTOMER
from milkrun.replay.figures import figure_of, save, side_by_side
from milkrun.solvers import nearest, rollout


@pytest.fixture
def two_trips():
    """Trips 0-1-3-0 with 9 units and 0-2-0 with 8, of length 10 in all."""
    world = milkrun.make("milkrun/CVRP-v0", num_loc=3, autoreset="disabled")
    world.reset(instance={"locs": [[[0, 0], [1, 0], [2, 0], [3, 0]]], "demand_units": [[0, 3, 8, 6]], "capacity": [10]})
    rollout(world, nearest)
    return world


def legs(axes):
    return [np.array(line.get_xydata()) for line in axes.lines]


def test_a_cvrp_figure_shows_trips_loads_and_length(two_trips):
    """Five legs in two colours whose lengths add up to 10, and the load of each trip next to its colour."""
    (axes,) = figure_of(two_trips, 0, "by hand").axes
    assert [leg[:, 0].tolist() for leg in legs(axes)] == [[0, 1], [1, 3], [3, 0], [0, 2], [2, 0]]
    colours = [line.get_color() for line in axes.lines]
    assert len(set(colours[:3])) == 1 and len(set(colours[3:])) == 1 and colours[0] != colours[3]
    assert axes.get_title() == "by hand\nlength 10.000, 3 customers, 2 trips"
    assert [label.get_text() for label in axes.get_legend().get_texts()] == ["9", "8"]
    assert axes.get_legend().get_title().get_text() == "load of each trip (capacity 10)"


def test_markers_grow_with_the_demand(two_trips):
    """Areas above the smallest are in proportion to the demands 3, 8, 6."""
    (axes,) = figure_of(two_trips).axes
    areas = axes.collections[0].get_sizes() - 12.0
    assert areas / areas[1] == pytest.approx([3 / 8, 1, 6 / 8])


@pytest.mark.parametrize("start", ["depot", "free"])
def test_a_tsp_figure_is_a_closed_ring(start):
    """As many legs as nodes, each beginning where the last ended, and the tour's length in all."""
    world = milkrun.make("milkrun/TSP-v0", num_envs=1, seed=1, num_loc=9, start=start, autoreset="disabled")
    world.reset()
    rollout(world, nearest)
    (axes,) = figure_of(world).axes
    ring = legs(axes)
    assert len(ring) == 9
    assert all((a[1] == b[0]).all() for a, b in zip(ring, ring[1:] + ring[:1], strict=True))
    assert sum(np.linalg.norm(leg[1] - leg[0]) for leg in ring) == pytest.approx(world.tour_length[0], rel=1e-6)


def test_an_unfinished_tour_shows_its_first_leg_and_hollow_nodes():
    """Two steps from node 0: two legs, and the nodes not visited are white inside."""
    world = milkrun.make("milkrun/TSP-v0", num_envs=1, seed=1, num_loc=6, autoreset="disabled")
    world.reset()
    rollout(world, nearest, max_steps=2)
    (axes,) = figure_of(world).axes
    assert len(legs(axes)) == 2
    assert (legs(axes)[0][0] == world.locs[0, 0]).all()
    white = (axes.collections[0].get_facecolors()[:, :3] == 1.0).all(1)
    assert (white == ~world.visited[0, 1:]).all()  # node 0, where it starts, is a square


def test_without_a_record_the_nodes_are_shown_and_no_legs():
    """Visited ones are grey, and the title leaves the trips out."""
    world = milkrun.make("milkrun/CVRP-v0", num_envs=1, seed=1, num_loc=6, record=False, autoreset="disabled")
    world.reset()
    rollout(world, nearest)
    (axes,) = figure_of(world).axes
    assert legs(axes) == []
    assert np.allclose(axes.collections[0].get_facecolors()[:, :3], np.array(CUSTOMER) / 255)
    assert axes.get_title() == f"length {world.tour_length[0]:.3f}, 6 customers"


def test_a_world_without_a_painter_shows_its_own_picture():
    """The pixels of `render` and the return."""
    pixels = np.random.default_rng(0).integers(0, 255, (8, 8, 3), np.uint8)
    world = SimpleNamespace(render=lambda row: pixels + np.uint8(row), objective=[1.0, -2.5], i=[3, 4])
    (axes,) = figure_of(world, 1).axes
    assert (axes.images[0].get_array() == pixels + 1).all()
    assert axes.get_title() == "return -2.500, 4 steps"


CORNERS = [[[0, 0], [3, 0], [3, 4], [0, 4]]]


def test_a_figure_of_days_sums_what_it_shows():
    """Bins 1 and 2 on the first day, 3 + 4 + 5 = 12 long; bin 3 on the second, there and back: 8, one of three."""
    world = milkrun.make("milkrun/SDWCVRP-v0", num_loc=3, horizon=2, length_weight=0.1, autoreset="disabled")
    world.reset(
        instance={
            "locs": CORNERS,
            "initial_waste": [[0, 0.5, 0.5, 0.3]],
            "capacity": [1.6],
            "max_waste": [1.0],
            "daily_fill": [[[0, 0.3, 0.2, 0.2], [0, 0.1, 0.1, 0.1]]],
            "fill_mean": np.zeros((1, 4)),
            "fill_std": np.zeros((1, 4)),
        }
    )
    for action in (1, 2, 0, 0, 3, 0, 0):
        world.step([action])
    (axes,) = figure_of(world).axes
    assert world.terminated[0] and world.tour_length[0] == 20
    assert sum(np.linalg.norm(leg[1] - leg[0]) for leg in legs(axes)) == pytest.approx(8)
    facts = f"return {world.objective[0]:.3f} in 2 days; day 2, shown: length 8.000, 1 of 3 served"
    assert axes.get_title() == facts
    assert {"day": 2.0, "length, all days": 20.0}.items() <= world.scene(0).figures.items()
    assert "length" not in world.scene(0).figures


def test_a_bin_that_did_not_fit_is_not_served():
    """The truck comes to bin 2, which really holds 0.7 while 0.5 is aboard, goes home and ends: one of three."""
    world = milkrun.make("milkrun/SCWCVRP-v0", num_loc=3, recourse="return", length_weight=0.1, autoreset="disabled")
    world.reset(
        instance={
            "locs": CORNERS,
            "expected0": [[0, 0.5, 0.5, 0.3]],
            "real_waste": [[0, 0.5, 0.7, 0.3]],
            "capacity": [1.0],
            "max_waste": [1.0],
        }
    )
    for action in (1, 2, 0):
        world.step([action])
    (axes,) = figure_of(world).axes
    assert axes.get_title().endswith("length 12.000, 1 of 3 served")


def test_side_by_side_has_one_picture_each_and_touches_no_pyplot(two_trips, tmp_path):
    """Two equal halves, no figure left with pyplot, and the file is the same bytes each time."""
    figure = side_by_side([(two_trips, 0, "left"), (two_trips, 0, "right")], title="both")
    assert [axes.get_title().split("\n")[0] for axes in figure.axes] == ["left", "right"]
    assert Gcf.get_all_fig_managers() == []
    save(figure, tmp_path / "a.png")
    save(side_by_side([(two_trips, 0, "left"), (two_trips, 0, "right")], title="both"), tmp_path / "b.png")
    content = (tmp_path / "a.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert content == (tmp_path / "b.png").read_bytes()
