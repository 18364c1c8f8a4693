"""The purposes of the tracking world's random streams, one for each quantity, so that laws draw independently.

Streams of the town are keyed by `town_key`, all others by the row's own key.
"""

from __future__ import annotations

from milkrun.core.kernels import kernel
from milkrun.core.rng import stream, uniform

# of the town
SCENE, ROADS, ROAD_COUNT, SURFACE, LOTS, COUNTS, TONES, SHADES, FIELDS, CROPS = range(1, 11)
PLACES, SIZES = 100, 200
"""Each law of boxes has its own purposes: these plus its number in the table."""

# of the episode
WEATHER, SIGHT, PALETTE, KINDS, COLOURS, SPEEDS, LANES, TURNS, HALTS, HALT_TIMES = range(20, 30)
START, BIASES, WIND, FRAME, FLAKES, SAME = range(30, 36)


@kernel
def town_stream(w, q, purpose):
    """The stream of a purpose in the town being drawn."""
    return stream(w.town_key[q, 0], w.town_key[q, 1], w.town_key[q, 2], purpose)


@kernel
def between(s, i, low, high):
    """Draw i of a stream, uniform from low to high."""
    return low + (high - low) * uniform(s, i)
