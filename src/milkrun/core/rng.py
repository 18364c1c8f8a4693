"""Random streams that run inside kernels: every draw is a pure function of (seed, row, episode, purpose, index).

There is no generator state, so a row replays bit for bit at any batch size, and an additional draw changes no other.
The words come from Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

One purpose serves one distribution: `uniform(s, 3)` and `normal(s, 3)` of the same stream read the same words, so they
are not independent. Give every quantity of a world a purpose of its own. Indices are 0 .. 2**32 - 1. Arguments are not
validated here: a kernel cannot raise, so configurations and generators refuse invalid parameters.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from milkrun.core.kernels import kernel

# Everything below is uint64: of a uint64 and an int64 (also a literal) numba makes an int64, whose top bit is a sign.
_0, _1, _2, _3 = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
_UNIT_SHIFT, _OPEN_SHIFT, _ATTEMPT_SHIFT = np.uint64(64 - 53), np.uint64(64 - 52), np.uint64(16)
_WORD, _LOW, _TWO32 = np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(1 << 32)
_MUL0, _MUL1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL0, _WEYL1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)

_ATTEMPTS, _HALF_ATTEMPTS = 1 << 16, 1 << 15

# Wichura, Algorithm AS 241 (PPND16), Applied Statistics 37 (1988) 477-484: numerators and denominators of the
# centre, the shoulders and the far tails, constant term first.
# fmt: off
_CENTRE = (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
    4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3)
_UNDER_CENTRE = (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
    2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3)
_SHOULDER = (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
    1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4)
_UNDER_SHOULDER = (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
    1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9)
_TAIL = (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
    2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7)
_UNDER_TAIL = (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
    7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15)
# fmt: on
_FAR = -37.0  # sigmas, where the normal cdf (6e-300) nears the smallest float64


class Stream(NamedTuple):
    """The key of one purpose of one episode of one row; made by `stream`, words of 32 bits held in uint64."""

    k0: int
    k1: int
    x2: int
    x3: int
    purpose: int


@kernel(inline=True)
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10 of a counter (four words) and a key (two words), all uint64 below 2**32."""
    for _ in range(10):
        # Both factors are below 2**32, so a product fits 64 bits; its halves are the paper's high and low words.
        # The key is increased before every round but the first. Its increase after the last round has no effect.
        p0, p1 = _MUL0 * c0, _MUL1 * c2
        c0 = (p1 >> _WORD) ^ c1 ^ k0
        c1 = p1 & _LOW
        c2 = (p0 >> _WORD) ^ c3 ^ k1
        c3 = p0 & _LOW
        k0, k1 = (k0 + _WEYL0) & _LOW, (k1 + _WEYL1) & _LOW
    return c0, c1, c2, c3


@kernel
def stream(seed, row, episode, purpose):
    """The stream of a purpose (0 .. 65535); seed, row and episode are int64 >= 0.

    Philox is a bijection of its counter, so two (row, episode) of a seed never get the same four words here, and
    therefore never the same key and counter in a draw.
    """
    r, e, k = np.uint64(row), np.uint64(episode), np.uint64(seed)
    x = philox(r & _LOW, r >> _WORD, e & _LOW, e >> _WORD, k & _LOW, k >> _WORD)
    return Stream(x[0], x[1], x[2], x[3], np.uint64(purpose))


@kernel
def row_stream(w, b, purpose):
    """The stream of a purpose in this episode of row b of a world: what `generate` and `step` draw from."""
    return stream(w.stream[b, 0], w.stream[b, 1], w.stream[b, 2], purpose)


@kernel(inline=True)
def block(s, j, attempt):
    """Four 32-bit words: block j of a stream; each attempt (below 2**16) gives other words, for use after a
    rejection."""
    counter1 = np.uint64(s.purpose) | (np.uint64(attempt) << _ATTEMPT_SHIFT)
    return philox(np.uint64(j) & _LOW, counter1, np.uint64(s.x2), np.uint64(s.x3), np.uint64(s.k0), np.uint64(s.k1))


@kernel(inline=True)
def _halves(s, j, attempt):
    """Block j as two numbers of 64 bits."""
    w = block(s, j, attempt)
    return (w[0] << _WORD) | w[1], (w[2] << _WORD) | w[3]


@kernel
def _bits(s, i):
    """The 64 bits of draw i: half a block."""
    j = np.uint64(i)
    first, second = _halves(s, j >> _1, _0)
    return second if j & _1 else first


@kernel(inline=True)
def _unit(bits):
    """[0, 1) in steps of 2**-53."""
    return np.float64(bits >> _UNIT_SHIFT) * 2.0**-53


@kernel
def _open_unit(bits):
    """The midpoints of 2**52 equal cells of (0, 1): symmetric, never 0 or 1."""
    return (np.float64(bits >> _OPEN_SHIFT) + 0.5) * 2.0**-52


@kernel
def uniform(s, i):
    """Uniform in [0, 1), float64 with 53 random bits."""
    return _unit(_bits(s, i))


@kernel(inline=True)
def uniform_pair(s, k):
    """The draws uniform(s, 2k) and uniform(s, 2k + 1), which share a block."""
    first, second = _halves(s, k, _0)
    return _unit(first), _unit(second)


@kernel
def fill_uniform(s, out, low, high):
    """out[i] = low + (high - low) * uniform(s, i), two draws a block; rounding may reach high, in float32 sooner."""
    n = np.uint64(out.shape[0])
    width = high - low
    for j in range(n >> _1):
        first, second = _halves(s, j, _0)
        out[_2 * j] = low + width * _unit(first)
        out[_2 * j + _1] = low + width * _unit(second)
    if n & _1:
        out[n - _1] = low + width * uniform(s, n - _1)


@kernel
def integers(s, i, low, high):
    """Integer in [low, high), high - low <= 2**32, without bias (Lemire 2019); four draws share a block."""
    j, n = np.uint64(i), np.uint64(np.int64(high) - np.int64(low))
    lane = j & _3
    product = _0
    for attempt in range(_ATTEMPTS):
        w = block(s, j >> _2, attempt)
        word = (w[3] if lane & _1 else w[2]) if lane & _2 else (w[1] if lane & _1 else w[0])
        # The high word of word * n is the draw. It is unbiased unless the low word is below 2**32 mod n, which is
        # smaller than n, so the first comparison mostly saves the division.
        product = word * n
        remainder = product & _LOW
        if remainder >= n or remainder >= (_TWO32 - n) % n:
            break
    return np.int64(low) + np.int64(product >> _WORD)


@kernel
def fill_integers(s, out, low, high):
    """out[i] = integers(s, i, low, high), four draws a block."""
    size, n = out.shape[0], np.uint64(np.int64(high) - np.int64(low))
    threshold = (_TWO32 - n) % n
    for j in range(size // 4):
        w = block(s, j, _0)
        # Attempt 0 of each, as in `integers`. One is rejected with a probability below n / 2**32, so all four are
        # written first, and drawn again only after a rejection.
        p0, p1, p2, p3 = w[0] * n, w[1] * n, w[2] * n, w[3] * n
        out[4 * j] = low + np.int64(p0 >> _WORD)
        out[4 * j + 1] = low + np.int64(p1 >> _WORD)
        out[4 * j + 2] = low + np.int64(p2 >> _WORD)
        out[4 * j + 3] = low + np.int64(p3 >> _WORD)
        if min(min(p0 & _LOW, p1 & _LOW), min(p2 & _LOW, p3 & _LOW)) < threshold:  # one of them is rejected
            for i in range(4 * j, 4 * j + 4):
                out[i] = integers(s, i, low, high)
    for i in range(size - size % 4, size):
        out[i] = integers(s, i, low, high)


@kernel
def shuffle_from(s, out, first):
    """Permute the entries of a 1-d array at positions >= first in place; those before it stay."""
    for j in range(out.shape[0] - 1, first, -1):
        k = integers(s, j - first, first, j + 1)
        out[j], out[k] = out[k], out[j]


@kernel
def permutation(s, out):
    """Write a random permutation of 0 .. n-1 into an integer array of n entries."""
    for j in range(out.shape[0]):
        out[j] = j
    shuffle_from(s, out, 0)


@kernel
def choice(s, i, weights):
    """Index with probability proportional to its weight (>= 0), never one of weight 0; -1 when none is positive."""
    total = 0.0
    for j in range(weights.shape[0]):
        total += weights[j]
    target = uniform(s, i) * total
    below = 0.0
    # If rounding leaves the target at or above the whole sum, the last positive weight is taken.
    chosen = -1
    for j in range(weights.shape[0]):
        if weights[j] > 0.0:
            chosen = j
            below += weights[j]
            if target < below:
                break
    return chosen


@kernel
def _poly(c, t):
    return ((((((c[7] * t + c[6]) * t + c[5]) * t + c[4]) * t + c[3]) * t + c[2]) * t + c[1]) * t + c[0]


@kernel
def normal_quantile(p):
    """The x with normal_cdf(x) = p; -inf at 0, inf at 1, nan outside."""
    q = p - 0.5
    if abs(q) <= 0.425:
        t = 0.180625 - q * q
        return q * _poly(_CENTRE, t) / _poly(_UNDER_CENTRE, t)
    # 1 - p is exact: p is in 0.5..1 there (Sterbenz' lemma).
    tail = p if q < 0.0 else 1.0 - p
    r = math.sqrt(-math.log(tail))
    # At p = 0 and 1 r is inf, where the fractions are inf / inf; outside it is nan. Both stay as they are.
    x = r
    if r <= 5.0:
        x = _poly(_SHOULDER, r - 1.6) / _poly(_UNDER_SHOULDER, r - 1.6)
    elif r < np.inf:
        x = _poly(_TAIL, r - 5.0) / _poly(_UNDER_TAIL, r - 5.0)
    return -x if q < 0.0 else x


@kernel
def normal_cdf(x):
    """P(standard normal <= x), relatively accurate in the lower tail too."""
    return 0.5 * math.erfc(-x * math.sqrt(0.5))


@kernel
def normal(s, i):
    """Standard normal, by inversion: one uniform a draw, at most 8.3 sigmas out."""
    return normal_quantile(_open_unit(_bits(s, i)))


@kernel
def lognormal(s, i, mu, sigma):
    """exp of a normal with mean mu and standard deviation sigma."""
    return math.exp(mu + sigma * normal(s, i))


@kernel
def exponential(s, i, scale):
    """Exponential with mean scale, by inversion; never 0."""
    return -scale * math.log1p(-_open_unit(_bits(s, i)))


@kernel
def _far_tail_quantile(u, a, b):
    """The u-quantile of a normal kept within [a, b], b < _FAR, where the cdf underflows: P(X < x) ~ pdf(x) / |x|."""
    beyond = math.exp(0.5 * (b - a) * (b + a)) * (b / a)  # P(X < a) / P(X < b)
    # With t = x**2 - b**2 it says t = -2 log(v) - log(1 + t / b**2), v being the share of P(X < b) to be reached.
    # b**2 is above 1369, so one round is enough: all further ones move x by less than 1e-6.
    t = -2.0 * math.log(beyond + u * (1.0 - beyond))
    t -= math.log1p(t / (b * b))
    # This is -sqrt(b**2 + t): root and b, nearly equal, are not subtracted from each other.
    return b - t / (math.sqrt(b * b + t) - b)


@kernel
def truncated_normal(s, i, mu, sigma, low, high):
    """Normal(mu, sigma) given that it falls into [low, high] (either may be infinite), by inversion of one uniform."""
    if sigma == 0.0:
        return min(max(mu, low), high)
    u = _open_unit(_bits(s, i))
    a, b = (low - mu) / sigma, (high - mu) / sigma
    # Near 1 the cdf loses precision, so an interval on the right is mirrored to the left.
    side = sigma
    if a + b > 0.0:
        a, b, side = -b, -a, -sigma
    if b < _FAR:
        x = _far_tail_quantile(u, a, b)
    else:
        below = normal_cdf(a)
        x = normal_quantile(below + u * (normal_cdf(b) - below))
    return min(max(mu + side * x, low), high)


@kernel
def _gamma_above_one(s, i, shape, first):
    """Gamma with shape >= 1 (Marsaglia and Tsang 2000): a normal and a uniform from the block of each attempt."""
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    # Attempt `first` itself is left out: `_gamma_parts` takes its uniform from that block.
    for attempt in range(first + 1, first + _HALF_ATTEMPTS):
        first_half, second_half = _halves(s, i, attempt)
        x = normal_quantile(_open_unit(first_half))
        u = _open_unit(second_half)
        v = (1.0 + c * x) ** 3
        # Marsaglia and Tsang's squeeze accepts most draws before a logarithm is needed.
        if v > 0.0 and (u < 1.0 - 0.0331 * x**4 or math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v))):
            return d * v
    return np.nan


@kernel
def _gamma_parts(s, i, shape, first):
    """(g, e) such that g * exp(e) is gamma: below shape 1 the factor uniform ** (1 / shape) underflows, its log not."""
    e = 0.0
    if shape < 1.0:
        half, _ = _halves(s, i, first)
        e = math.log(_open_unit(half)) / shape
        shape += 1.0
    return _gamma_above_one(s, i, shape, first), e


@kernel
def gamma(s, i, shape, scale):
    """Gamma with mean shape * scale; 0 for shape 0. A tiny shape gives true zeros by underflow."""
    g, e = _gamma_parts(s, i, shape, 0)
    return scale * g * math.exp(e)


@kernel
def beta(s, i, a, b):
    """Beta(a, b), a and b > 0, as one gamma's share of two; the second takes the upper half of the attempts."""
    g, e = _gamma_parts(s, i, a, 0)
    h, f = _gamma_parts(s, i, b, _HALF_ATTEMPTS)
    # g exp(e) / (g exp(e) + h exp(f)), divided by g exp(e): for small a and b both may be 0, and 0 / 0 is nan.
    return 1.0 / (1.0 + h / g * math.exp(f - e))
