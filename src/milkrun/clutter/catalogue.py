"""The catalogue of object types: boxes and cans with the published sizes and masses of the YCB set.

A type is a primitive shape, for which rays and contacts are exact. `register_object_type` adds more types.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from milkrun.core.errors import ConfigError, did_you_mean

SHAPES = ("box", "cylinder")
LARGEST = sys.float_info.max  # m or kg; a Python int may be larger
LEAST = 2e-15  # kg and kg m2: MuJoCo wants masses and inertias above 1e-15, its mjMINVAL
HEAVIEST = 1e12  # kg; times the largest factor, a million, it is still a valid bound of observations


class ObjectType(NamedTuple):
    """A kind of object. Full extents in m along its own axes; a cylinder stands on its third one."""

    shape: str
    size: tuple[float, float, float]
    mass: float  # kg

    @property
    def least(self) -> float:
        """The smallest of its mass and moments of inertia, by which the engine divides."""
        mass, (x, y, z) = float(self.mass), map(float, self.size)
        if self.shape == "cylinder":
            return min(mass, mass * x * x / 8, mass * (x * x / 16 + z * z / 12))
        low, middle, _high = sorted((x, y, z))
        return min(mass, mass * (low * low + middle * middle) / 12)


def _can(diameter: float, height: float, mass: float) -> ObjectType:
    return ObjectType("cylinder", (diameter, diameter, height), mass)


def _box(x: float, y: float, z: float, mass: float) -> ObjectType:
    return ObjectType("box", (x, y, z), mass)


CATALOGUE: dict[str, ObjectType] = {
    "002_master_chef_can": _can(0.102, 0.139, 0.414),
    "003_cracker_box": _box(0.060, 0.158, 0.210, 0.411),
    "004_sugar_box": _box(0.038, 0.089, 0.175, 0.514),
    "005_tomato_soup_can": _can(0.066, 0.101, 0.349),
    "006_mustard_bottle": _box(0.050, 0.085, 0.175, 0.603),  # a box in place of the bottle's curved sides
    "007_tuna_fish_can": _can(0.085, 0.033, 0.171),
    "008_pudding_box": _box(0.035, 0.110, 0.089, 0.187),
    "009_gelatin_box": _box(0.028, 0.085, 0.073, 0.097),
    "010_potted_meat_can": _box(0.050, 0.097, 0.082, 0.370),
    "036_wood_block": _box(0.085, 0.085, 0.200, 0.729),
    "061_foam_brick": _box(0.050, 0.075, 0.050, 0.028),
}
"""Calli et al., "The YCB object and model set" (ICAR 2015): published extents and masses."""


def register_object_type(name: str, shape: str, size: tuple[float, ...], mass: float) -> None:
    """Add a type: `size` is (x, y, z) of a box or (diameter, height) of a cylinder, in m; `mass` in kg. Idempotent."""
    if not isinstance(name, str) or not name:
        raise ConfigError(f"an object type needs a name, not {name!r}")
    if shape not in SHAPES:
        raise ConfigError(f"object type {name!r}: the shape {shape!r} is unknown{did_you_mean(str(shape), SHAPES)}")
    wanted = 3 if shape == "box" else 2
    numbers = [*size, mass] if isinstance(size, (tuple, list)) else [mass]
    if len(numbers) != wanted + 1 or not all(isinstance(x, (int, float)) and 0 < x <= LARGEST for x in numbers):
        spelled = "(x, y, z)" if shape == "box" else "(diameter, height)"
        raise ConfigError(
            f"object type {name!r}: size {size!r}, mass {mass!r}: a {shape} has {spelled} and a mass, "
            "all finite and above 0"
        )
    made = _box(*numbers) if shape == "box" else _can(*numbers)
    if made.least < LEAST or mass > HEAVIEST:
        raise ConfigError(
            f"object type {name!r}: size {size!r}, mass {mass!r}: the mass must be at most {HEAVIEST:g} "
            f"kg; it and the moments of inertia, here down to {made.least:.3g}, at least {LEAST:g}"
        )
    if CATALOGUE.setdefault(name, made) != made:
        raise ConfigError(f"object type {name!r} is in the catalogue already, with other numbers")


def object_type(name: str) -> ObjectType:
    """The type of this name."""
    if name not in CATALOGUE:
        raise ConfigError(f"no object type {name!r}{did_you_mean(name, CATALOGUE)}")
    return CATALOGUE[name]
