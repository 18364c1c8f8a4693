"""Fill laws: the daily fills of the waste worlds and the levels that follow from them, as kernels.

A daily law draws the share of a bin that a day adds. The level of a bin that was last emptied A days ago (A uniform in
1..fill_days) is the sum of A days, at most one. Four laws draw a level directly; as daily laws they are scaled by
`daily_scale`. A map with its own means and deviations replaces the law by a gamma law.
"""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel
from milkrun.core.rng import beta, gamma, integers, row_stream, uniform
from milkrun.routing.distance import travel
from milkrun.routing.generators.laws import AGE, COIN, FILL, MUST, farthest, share_of

FILL_LAWS = ("gamma1", "gamma2", "gamma3", "gamma4", "rm_like", "fdf_like", "uniform", "beta", "constant", "dist")
FILL_ALIASES = {"gamma": "gamma1", "empirical": "rm_like"}
GAMMA1, GAMMA2, GAMMA3, GAMMA4, RM_LIKE, FDF_LIKE, UNIFORM, BETA, CONSTANT, DIST = range(10)

# gamma laws: customer j takes entry (j - 1) mod 10 of a law's shapes, (j - 1) mod 2 of its scales (shares of a bin)
SHAPES = (
    (5.0, 5.0, 5.0, 5.0, 5.0, 10.0, 10.0, 10.0, 10.0, 10.0),
    (2.0, 2.0, 2.0, 2.0, 2.0, 6.0, 6.0, 6.0, 6.0, 6.0),
    (1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0, 3.0),
    (5.0, 2.0, 5.0, 2.0, 5.0, 2.0, 5.0, 2.0, 5.0, 2.0),
)
SCALES = ((0.05, 0.02), (0.06, 0.04), (0.08, 0.06), (0.10, 0.10))
# laws with idle days: chance of a day with waste, shape and scale of that waste
SPELLS = ((0.45, 0.8, 0.1525), (0.52, 1.8, 0.0765))

MUST_GO_LAWS = ("none", "random", "level", "lookahead", "service_level")
NONE, RANDOM, LEVEL, LOOKAHEAD, SERVICE_LEVEL = range(5)


@kernel
def gamma_law(w, j):
    """(shape, scale) of a day's waste of customer j, given a day with waste; (0, mean) for a constant law."""
    if w.F > 0:
        mean, deviation = w.map_mean[w.deck[j]], w.map_std[w.deck[j]]
        if deviation == 0.0:
            return 0.0, mean
        # From mean = shape * scale and variance = shape * scale^2. No division by 0: reading a map refuses a
        # deviation around a mean of 0.
        return (mean / deviation) ** 2, deviation**2 / mean
    if w.fill_law >= RM_LIKE:
        return SPELLS[w.fill_law - RM_LIKE][1], SPELLS[w.fill_law - RM_LIKE][2]
    return SHAPES[w.fill_law][(j - 1) % 10], SCALES[w.fill_law][(j - 1) % 2]


@kernel
def chance_of_waste(w):
    return SPELLS[w.fill_law - RM_LIKE][0] if w.F == 0 and w.fill_law >= RM_LIKE else 1.0


@kernel
def day_of_waste(w, b, purpose, j, index):
    """The share of a bin that one day adds at customer j, by a gamma law; `index` is the number of the draw."""
    shape, scale = gamma_law(w, j)
    if shape == 0.0:
        return scale
    chance = chance_of_waste(w)
    if chance < 1.0 and uniform(row_stream(w, b, COIN + purpose), index) >= chance:
        return 0.0
    return gamma(row_stream(w, b, purpose), index, shape, scale)


@kernel
def level_drawn(w, b, q, purpose, j, index, far):
    """The level of a bin, as its share, by a law that draws levels directly."""
    if w.fill_law == UNIFORM:
        return uniform(row_stream(w, b, purpose), index)
    if w.fill_law == BETA:
        return beta(row_stream(w, b, purpose), index, 0.5, 0.5)
    if w.fill_law == CONSTANT:
        return w.fill_value
    return share_of(travel(w, q, 0, j), far) / 100.0


@kernel
def draws_levels(w):
    return w.F == 0 and w.fill_law >= UNIFORM


@kernel
def draw_levels(w, b, out, r):
    """Levels of all bins, in the unit of `max_waste`, into row r of `out`."""
    q = w.instance_row[b]
    direct = draws_levels(w)
    far = farthest(w, q) if direct and w.fill_law == DIST else 0.0
    ages = row_stream(w, b, AGE)
    out[r, 0] = 0
    for j in range(1, w.N):
        level = 0.0
        if direct:
            level = level_drawn(w, b, q, FILL, j, j, far)
        else:
            # Each bin owns fill_days numbers, used or not, so the age of one does not shift the draws of others.
            for day in range(integers(ages, j, 1, w.fill_days + 1)):
                level += day_of_waste(w, b, FILL, j, j * w.fill_days + day)
        out[r, j] = w.bin_size * min(1.0, level)


@kernel
def daily_moments(w, q, j, far):
    """Mean and standard deviation of a day's waste at customer j, as shares of a bin, exactly."""
    if not draws_levels(w):
        shape, scale = gamma_law(w, j)
        if shape == 0.0:
            return scale, 0.0
        chance = chance_of_waste(w)
        # With p = chance, a day has E X = p shape scale and E X^2 = p shape (1 + shape) scale^2.
        mean = chance * shape * scale
        return mean, math.sqrt(max(0.0, chance * shape * (1.0 + shape) * scale * scale - mean * mean))
    # Variance 1/12 for the uniform law on 0..1, 1/8 for Beta(1/2, 1/2).
    if w.fill_law == UNIFORM:
        return 0.5 * w.daily_scale, math.sqrt(1.0 / 12.0) * w.daily_scale
    if w.fill_law == BETA:
        return 0.5 * w.daily_scale, math.sqrt(1.0 / 8.0) * w.daily_scale
    if w.fill_law == CONSTANT:
        return w.fill_value * w.daily_scale, 0.0
    return share_of(travel(w, q, 0, j), far) / 100.0 * w.daily_scale, 0.0


@kernel
def draw_must_go(w, b, q, level):
    """Mandatory customers by the laws of a single day: none, random, level."""
    s = row_stream(w, b, MUST)
    w.must_go[q, 0] = False
    for j in range(1, w.N):
        must = False
        if w.must_go_law == RANDOM:
            must = uniform(s, j) < w.must_go_rate
        elif w.must_go_law == LEVEL:
            must = level[q, j] >= w.must_go_level * w.bin_size
        w.must_go[q, j] = must
