"""The picture of a row of truck and drones: colours of status and windows, placement of names."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.render.canvas import INK, LATE, OPEN, PALETTE, PAPER, SERVED, Canvas
from milkrun.render.painter import _beside, _overlap

PLACES = [[-0.5, 0.5], [0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]]


@pytest.fixture
def world():
    """Four customers: window not open yet, open, closed, and one served; step 10."""
    world = milkrun.make("milkrun/TruckDrone-v0", num_customers=4, num_drones=2, autoreset="disabled")
    world.reset(
        instance={
            "customer_pos": [PLACES],
            "demand": [[0.5] * 4],
            "tw_start": [[20, 5, 0, 0]],
            "tw_end": [[40, 10, 9, 30]],
        }
    )
    for _ in range(10):
        world.step([[0, 0, 0]])
    world.served[0, 3] = True
    return world


def pixel(world, place, dx=0, dy=0):
    """The colour at a place of the map, with an offset in pixels."""
    canvas, scene = Canvas(), world.scene(0)
    canvas.fit(scene.low, scene.high, margin=0.1)
    x, y = canvas.to_px(place)
    return tuple(world.render(0)[int(y) + dy, int(x) + dx].tolist())


def test_customers_by_their_window(world):
    """Hollow before the window, yellow in it, red after it, green when served; measured next to the number in the
    disc."""
    assert [pixel(world, place, dy=5) for place in PLACES] == [PAPER, OPEN, LATE, SERVED]
    words = world.scene(0).marks["customers"].attributes["text"]()
    assert words[0] == "customer 0, window 20 to 40, parcel 0.50"


def test_the_map_covers_all_reachable_places(world):
    """Customers and nodes of the truck define the corners: all motion stays between them."""
    reached = np.array([*PLACES, *world.route_nodes[0]])
    assert np.array_equal([world.scene(0).low, world.scene(0).high], [reached.min(0), reached.max(0)])


@pytest.mark.parametrize(("status", "colour"), [(1, PALETTE[0]), (2, PALETTE[3]), (3, LATE)])
def test_drones_by_status(world, status, colour):
    """An airborne drone has a dot in the colour of its status; on board only the truck is drawn."""
    spot = (0.25, 0.0)
    assert pixel(world, (0, 0), dx=-4, dy=2) == INK
    before = pixel(world, spot)
    world.status[0, 1], world.drone_pos[0, 1] = status, spot
    assert pixel(world, spot) == colour != before


def test_the_gauges_above_the_map_show_the_batteries(world):
    """The second drone's bar of 30 pixels is half full; the first is full."""
    world.battery[0, 1] = 0.5
    line = (world.render(0)[34] == PALETTE[0]).all(axis=1)
    assert line.sum() == 30 + 15


def test_the_picture_has_a_legend_and_the_same_size(world):
    """Below the map, in the colours of customers and drones; 512 pixels square, for any number of drones."""
    below = world.render(0)[470:].reshape(-1, 3)
    dots = [(below == colour).all(axis=1).sum() for colour in (OPEN, SERVED, PALETTE[0], PALETTE[3], LATE)]
    assert min(dots) >= 20 and dots[-1] >= 40  # red has two meanings
    many = milkrun.make("milkrun/TruckDrone-v0", num_drones=9, drone_capacity=9)
    many.reset()
    assert many.render(0).shape == (512, 512, 3)


def test_a_name_is_placed_where_it_hides_nothing():
    """Above if all is free; below if something is above; farther away if all sides are occupied."""
    half = (10, 5)
    assert _beside([], np.array([100.0, 100.0]), 4, half) == (100, 91)
    assert _beside([(100, 90, 5, 5)], np.array([100.0, 100.0]), 4, half) == (100, 109)
    crowd = [(100 + x, 100 + y, 6, 6) for x in (-14, 0, 14) for y in (-9, 0, 9)]
    place = _beside(crowd, np.array([100.0, 100.0]), 4, half)
    assert sum(_overlap((*place, *half), other) for other in crowd) == 0
