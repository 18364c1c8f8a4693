"""Instances of the prize-collecting TSP: places, prizes, penalties, and the prizes that visits really collect."""

from __future__ import annotations

from milkrun.core.kernels import kernel
from milkrun.core.rng import row_stream, uniform
from milkrun.routing.generators.base import Generator
from milkrun.routing.generators.laws import PENALTY, PRIZE, REAL_PRIZE, draw_places

LARGEST_PRIZE = 4.0  # over the number of customers: half of them collect the prize of 1 that is required


@kernel
def generate(w, b):
    q = w.instance_row[b]
    draw_places(w, b)
    prizes, penalties, real = row_stream(w, b, PRIZE), row_stream(w, b, PENALTY), row_stream(w, b, REAL_PRIZE)
    largest = LARGEST_PRIZE / (w.N - 1)
    w.prize_required[q] = w.required
    for j in range(w.N):
        w.prize[q, j] = largest * uniform(prizes, j - 1) if j > 0 else 0.0
        w.penalty[q, j] = w.largest_penalty * uniform(penalties, j - 1) if j > 0 else 0.0
    for j in range(w.uncertain):
        w.real_prize[q, j] = w.prize[q, j] * 2.0 * uniform(real, j - 1) if j > 0 else 0.0


class PCTSPGenerator(Generator):
    """`locs` (B, n, 2), `depot` (B, 2), `prize` and `penalty` (B, n), `prize_required` (B,); if stochastic also
    `real_prize` (B, n)."""

    world = "milkrun.routing.pctsp:PCTSP"
    keys = ("locs", "prize", "penalty", "real_prize", "prize_required")
