"""Tables of scenes, weathers and cars, and the laws of towns: a scene is data, not code.

Colours are RGB, 0..255; lengths in m, speeds in m/s.
"""

from __future__ import annotations

import numpy as np

SCENES = ("citystreet", "downtown", "lake", "village", "desert", "farmland")
WEATHERS = ("day", "night", "foggy", "snow")
KINDS = ("sedan", "compact", "suv", "van", "bus", "truck", "motorcycle", "pedestrian")
DAY, NIGHT, FOGGY, SNOW = range(4)
PEDESTRIAN = 7

# -- ground -------------------------------------------------------------------------------------------------

(BASE, ASPHALT, MARKING, KERB, GRASS, WATER, SAND, DIRT, CROP_A, CROP_B, CROP_C, PLOUGHED, PLAZA) = range(13)
"""Materials of a cell, bits 0..3."""
SHADOW_BIT, LAMP_BIT = 64, 128
MATERIALS = np.array([
    (0, 0, 0), (70, 70, 74), (225, 225, 215), (165, 162, 155), (88, 135, 70), (50, 95, 140), (214, 190, 140),
    (140, 115, 85), (150, 170, 70), (190, 175, 90), (95, 125, 60), (120, 90, 65), (180, 170, 160),
    (0, 0, 0), (0, 0, 0), (0, 0, 0),
], np.float64)  # fmt: skip
BASES = np.array([(150, 150, 145), (130, 130, 132), (96, 140, 80), (120, 140, 85), (205, 180, 130), (130, 145, 80)],
                 np.float64)  # fmt: skip
"""Colour of material 0 in each scene."""

# -- boxes --------------------------------------------------------------------------------------------------

(BUILDING, TRUNK, CROWN, ROCK, OVERPASS, ROOF, BOAT, OTHER) = range(1, 9)
"""Kinds of boxes. Only walls of buildings have windows."""
WALLS = ((196, 180, 160), (170, 120, 95), (205, 200, 190), (140, 145, 150), (182, 160, 120), (120, 110, 105),
         (215, 195, 150), (160, 170, 178))  # fmt: skip
ROOFS = ((150, 70, 55), (110, 85, 75), (95, 100, 110), (135, 110, 80))
FLAT_ROOFS = ((120, 118, 115), (150, 146, 140), (100, 104, 108), (135, 128, 118))
THINGS = ((90, 65, 45), (50, 100, 45), (60, 118, 50), (70, 110, 60), (80, 125, 70), (150, 125, 95), (165, 140, 105),
          (205, 180, 95), (220, 195, 110), (230, 230, 225), (190, 150, 110), (140, 140, 140),
          (120, 120, 122))  # fmt: skip
TONES_OF_BOXES = np.array([*WALLS, *ROOFS, *FLAT_ROOFS, *THINGS], np.float64)
"""Colours of boxes; a kernel names them by their number."""
WALL_TONES, ROOF_TONES, FLAT_TONES = 0, 8, 12
(BARK, LEAF, LEAF_TOP, CACTUS, CACTUS_TOP, STONE, STONE_TOP, STRAW, STRAW_TOP, HULL, DECK, CONCRETE, CONCRETE_TOP) = (
    range(16, 29)
)

# -- cars ---------------------------------------------------------------------------------------------------

CAR_COLOURS = np.array([
    (200, 30, 30), (235, 235, 235), (25, 25, 28), (175, 178, 182), (35, 70, 170), (30, 120, 60), (230, 200, 40),
    (235, 125, 25), (110, 70, 40), (110, 45, 130),
], np.float64)  # fmt: skip
GLASS = (45, 55, 65)
LENGTH, WIDTH, BODY, CABIN, CABIN_SHARE = range(5)
KIND_SIZES = np.array([
    (4.6, 1.8, 0.65, 0.55, 0.5), (3.4, 1.5, 0.75, 0.5, 0.5), (4.6, 1.9, 0.85, 0.65, 0.55), (5.9, 2.0, 1.0, 1.35, 0.75),
    (12, 2.5, 1.5, 1.4, 0.95), (8, 2.5, 1.1, 2.1, 0.7), (2.1, 0.7, 0.6, 0.6, 0.3), (0.5, 0.5, 0.75, 0.8, 0.9),
], np.float64)  # fmt: skip
"""Length, width, height of the body, height of the cabin, share of the length that the cabin takes."""
FLOOR = 0.25
"""Height of the body's underside."""
KIND_WEIGHTS = np.array(
    [(0.35, 0.15, 0.25, 0.15, 0.05, 0.05, 0, 0)] * 2 + [(0.35, 0.15, 0.25, 0.15, 0, 0.10, 0, 0)] * 4, np.float64
)
"""Probability of each kind in each scene."""
LAMPS = np.array([(255, 250, 220), (190, 20, 20)], np.float64)
"""Colours of a car's front and rear at night."""

# -- scenes -------------------------------------------------------------------------------------------------

GRID, LAKE, VILLAGE, DESERT = range(4)
(ROAD_LAW, SPACING, ROAD_HALF, ASPHALT_SHARE, LOT, FILL, H_LOW, H_HIGH, KERBED, LIT, CARS, V_LOW, V_HIGH, CROPPED) = (
    range(14)
)
SCENE_LAWS = np.array([
    (GRID, 55, 5, 1, 20, 0.9, 6, 18, 1, 1, 16, 8, 16, 0),
    (GRID, 44, 6, 1, 14, 0.85, 10, 30, 1, 1, 16, 6, 14, 0),
    (LAKE, 0, 4, 1, 0, 0, 0, 0, 0, 0, 12, 8, 16, 0),
    (VILLAGE, 0, 3.5, 0.5, 0, 0, 0, 0, 0, 1, 12, 5, 12, 0),
    (DESERT, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 8, 20, 0),
    (GRID, 75, 3, 0, 0, 0, 0, 0, 0, 0, 8, 6, 15, 1),
], np.float64)  # fmt: skip
"""A scene a line, columns as named above: law and spacing of roads, their half width, chance of asphalt; side of a lot
(0: none), share that is built, heights; kerbs, lamps; cars and their speeds; fields."""

HOUSE, TREE, CACTUS_PLANT, ROCK_STONE, BALE, BOAT_HULL, BRIDGE, PLAIN, BARN = range(9)
FREE, KERBSIDE, ON_WATER, IN_ROWS, OVER_ROAD = range(5)
(LAW_SCENE, N_LOW, N_HIGH, WHAT, WHERE, W_LOW, W_HIGH, D_LOW, D_HIGH, LAW_H_LOW, LAW_H_HIGH) = range(11)
BOX_LAWS = np.array([
    (0, 20, 30, TREE, KERBSIDE, 2, 4, 0, 0, 4, 9),
    (1, 1, 3, BRIDGE, OVER_ROAD, 0, 0, 0, 0, 0, 0),
    (1, 6, 12, TREE, KERBSIDE, 2, 4, 0, 0, 4, 9),
    (2, 8, 15, HOUSE, FREE, 6, 9, 6, 9, 3, 5),
    (2, 30, 50, TREE, FREE, 2, 4, 0, 0, 4, 9),
    (2, 3, 6, BOAT_HULL, ON_WATER, 4, 4, 1.6, 1.6, 1, 1),
    (3, 25, 40, HOUSE, FREE, 6, 12, 6, 12, 3, 6),
    (3, 25, 40, TREE, FREE, 2, 4, 0, 0, 4, 9),
    (4, 2, 5, PLAIN, FREE, 6, 10, 6, 10, 3, 6),
    (4, 5, 10, CACTUS_PLANT, FREE, 0.5, 0.5, 0.5, 0.5, 2, 4),
    (4, 30, 60, ROCK_STONE, FREE, 1, 5, 1, 5, 1, 5),
    (5, 5, 10, BARN, FREE, 8, 14, 10, 18, 5, 8),
    (5, 15, 30, TREE, IN_ROWS, 2, 4, 0, 0, 6, 14),
    (5, 10, 20, BALE, FREE, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5),
], np.float64)  # fmt: skip
"""A law of boxes a line: scene, how many, what, where, width, depth and height (full sizes), each from low to high."""
KIND, FIRST_WALL, N_WALLS, FIRST_TOP, N_TOPS, EAVES, TURNED = range(7)
THINGS_BUILT = np.array(
    [
        (BUILDING, WALL_TONES, 8, ROOF_TONES, 4, 0.5, 0),
        (CROWN, LEAF, 1, LEAF_TOP, 1, 0, 1),
        (OTHER, CACTUS, 1, CACTUS_TOP, 1, 0, 0),
        (ROCK, STONE, 1, STONE_TOP, 1, 0, 1),
        (OTHER, STRAW, 1, STRAW_TOP, 1, 0, 0),
        (BOAT, HULL, 1, DECK, 1, 0, 1),
        (OVERPASS, CONCRETE, 1, CONCRETE_TOP, 1, 0, 0),
        (BUILDING, WALL_TONES, 8, FLAT_TONES, 4, 0, 0),
        (OTHER, WALL_TONES, 8, ROOF_TONES, 4, 0.5, 0),
    ],
    np.float64,
)
"""Things that a law may place, HOUSE to BARN, one a line: kind of the box; colours of its walls and of its top, each as
the first and their number; overhang of its roof (0: no roof); random yaw instead of that of the nearest road."""

# -- weather ------------------------------------------------------------------------------------------------

SUN = np.array((0.3, 0.5, 0.81)) / np.linalg.norm((0.3, 0.5, 0.81))
GAIN, AMBIENT, SUN_X, SUN_Y, SUN_Z, FOG, SIGMA, FLAKE_SHARE = range(8)
"""Indices of the field `light`."""
(SIGHT_LOW, SIGHT_HIGH, SKY, NOISE, FLAKE_LAW, SNOW_GROUND, SNOW_ROAD, SNOW_TOP) = 2, 3, 4, 7, 8, 9, 10, 11
WEATHER_LAWS = np.array([
    (1.0, 0.45, 0, 0, 170, 200, 235, 2, 0, 0, 0, 0),
    (0.32, 0.75, 0, 0, 12, 14, 24, 4, 0, 0, 0, 0),
    (0.85, 0.75, 100, 300, 190, 195, 200, 2, 0, 0, 0, 0),
    (0.95, 0.65, 250, 600, 215, 220, 228, 3, 0.01, 0.7, 0.35, 0.6),
], np.float64)  # fmt: skip
"""A weather a line: gain, ambient, range of sight, sky, noise, share of flakes, whiteness of snow on ground, roads and
upward faces of boxes."""
LAMP_GAIN = 0.55
"""Gain of ground lit by a lamp at night, and of cars on it."""
