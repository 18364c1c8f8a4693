"""The random streams: right words (published vectors), right laws (scipy), and independent streams."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numba import njit
from scipy import special, stats

from milkrun.core import rng

N = 200_000
SEED = 20_240_229
KEY = (SEED, 7, 3, 11)
TINY_P = 1e-4
"""Draws are fixed, so a test below this p-value is a defect and not bad luck; a wrong law lands far below 1e-10."""


def many(law):
    """Compile `law(s, i, *parameters)` into a function that returns the draws of many indices, by default 0 .. N-1."""

    @njit
    def fill(out, key, indices, parameters):
        s = rng.stream(*key)
        for j in range(out.shape[0]):
            out[j] = law(s, indices[j], *parameters)

    def draws(*parameters, at=None, dtype=np.float64, key=KEY):
        indices = np.arange(N) if at is None else np.array(at)
        out = np.empty(len(indices), dtype)
        fill(out, key, indices, parameters)
        return out

    return draws


uniforms = many(rng.uniform)
normals = many(rng.normal)
lognormals = many(rng.lognormal)
truncated_normals = many(rng.truncated_normal)
exponentials = many(rng.exponential)
gammas = many(rng.gamma)
betas = many(rng.beta)
integer_draws = many(rng.integers)
choices = many(rng.choice)


@njit
def philox_rows(counters, keys, out):
    for b in range(len(counters)):
        c, k = counters[b], keys[b]
        out[b] = rng.philox(c[0], c[1], c[2], c[3], k[0], k[1])


@njit
def first_words(seeds, rows, episodes, purposes, out):
    for b in range(out.shape[0]):
        s = rng.stream(seeds[b], rows[b], episodes[b], purposes[b])
        w = rng.block(s, 0, 0)
        out[b] = (w[0] << np.uint64(32)) | w[1]


@njit
def fill_uniform(out, key, low, high):
    rng.fill_uniform(rng.stream(*key), out, low, high)


@njit
def fill_integers(out, key, low, high):
    rng.fill_integers(rng.stream(key[0], key[1], key[2], key[3]), out, low, high)


@njit
def uniform_pairs(out, key):
    for k in range(out.shape[0]):
        out[k, 0], out[k, 1] = rng.uniform_pair(rng.stream(key[0], key[1], key[2], key[3]), k)


@njit
def permutations(out, first):
    """A permutation in each row of `out`; with first > 0 the entries before it keep their places."""
    for b in range(len(out)):
        s = rng.stream(SEED, b, 0, 0)
        if first == 0:
            rng.permutation(s, out[b])
        else:
            rng.shuffle_from(s, out[b], first)


@njit
def quantiles(p, out):
    for i in range(len(p)):
        out[i] = rng.normal_quantile(p[i])


@njit
def cdfs(x, out):
    for i in range(len(x)):
        out[i] = rng.normal_cdf(x[i])


def philox_by_the_paper(counter, key):
    """Philox4x32-10 in Python integers, after Salmon et al. 2011, section 4.3."""
    r0, l0, r1, l1 = counter
    k0, k1 = key
    for _ in range(10):
        hi0, lo0 = divmod(r0 * 0xD2511F53, 2**32)
        hi1, lo1 = divmod(r1 * 0xCD9E8D57, 2**32)
        r0, l0, r1, l1 = hi1 ^ l0 ^ k0, lo1, hi0 ^ l1 ^ k1, lo0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return r0, l0, r1, l1


def philox(counters, keys):
    out = np.zeros((len(counters), 4), np.uint64)
    philox_rows(np.array(counters, np.uint64), np.array(keys, np.uint64), out)
    return [tuple(int(word) for word in row) for row in out]


def first_64_bits(varied, n):
    """Of the n streams whose keys differ only in the seed, row, episode or purpose: 0 .. n-1."""
    keys = {name: np.full(n, 5) for name in ("seed", "row", "episode", "purpose")}
    keys[varied] = np.arange(n)
    out = np.empty(n, np.uint64)
    first_words(*keys.values(), out)
    return out


def fits(draws, law):
    return stats.kstest(draws, law.cdf).pvalue > TINY_P


def test_philox_gives_the_published_words():
    """The three philox4x32-10 lines of Random123's kat_vectors."""
    ones = 0xFFFFFFFF
    counters = [(0,) * 4, (ones,) * 4, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)]
    keys = [(0, 0), (ones, ones), (0xA4093822, 0x299F31D0)]
    assert philox(counters, keys) == [
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ]


def test_philox_agrees_with_python_integers():
    """Any counter and key, not only the published ones."""
    given = np.random.default_rng(1).integers(0, 2**32, (500, 6)).tolist()
    expected = [philox_by_the_paper(row[:4], row[4:]) for row in given]
    assert philox([row[:4] for row in given], [row[4:] for row in given]) == expected


@pytest.mark.parametrize("i", [0, 1, 6, 2**32 - 1])
def test_a_draw_is_the_documented_function_of_its_key(i):
    """Two Philox calls make a draw: (row, episode) under the seed, then (block, purpose) under the result."""
    seed, row, episode, purpose = 2**63 - 3, 2**40 + 5, 2**33 + 9, 65_535
    x = philox_by_the_paper((row % 2**32, row >> 32, episode % 2**32, episode >> 32), (seed % 2**32, seed >> 32))
    w = philox_by_the_paper((i >> 1, purpose, x[2], x[3]), x[:2])
    bits = (w[2 * (i & 1)] << 32) | w[2 * (i & 1) + 1]
    assert uniforms(at=[i], key=(seed, row, episode, purpose)) == [(bits >> 11) / 2**53]


@pytest.mark.parametrize("key", ["seed", "row", "episode", "purpose"])
def test_no_two_streams_begin_alike(key):
    """A million neighbouring keys (65,536 purposes) give as many different first 64 bits."""
    n = 65_536 if key == "purpose" else 10**6
    words = np.sort(first_64_bits(key, n))
    assert (words[1:] != words[:-1]).all()


@pytest.mark.parametrize("key", ["seed", "row", "episode", "purpose", "index"])
def test_neighbours_are_uncorrelated(key):
    """Streams of neighbouring keys, and neighbouring draws of one stream, correlate by less than 5 / sqrt(n)."""
    n = 65_536 if key == "purpose" else N
    u = uniforms() if key == "index" else first_64_bits(key, n) / 2.0**64
    for lag in (1, 2, 4, 64):
        assert abs(np.corrcoef(u[:-lag], u[lag:])[0, 1]) < 5 / np.sqrt(n - lag)
        assert abs(np.corrcoef(abs(u[:-lag] - 0.5), abs(u[lag:] - 0.5))[0, 1]) < 5 / np.sqrt(n - lag)
    assert stats.kstest(u, "uniform").pvalue > TINY_P


@pytest.mark.parametrize(
    "draws,parameters",
    [
        (uniforms, ()),
        (normals, ()),
        (truncated_normals, (0.0, 1.0, -1.0, 2.0)),
        (gammas, (0.8, 1.0)),
        (betas, (0.5, 0.5)),
        (integer_draws, (0, 3 * 2**30)),
    ],
)
def test_a_draw_does_not_depend_on_other_draws(draws, parameters):
    """Draw i is the same alone, in any order and among any others, also where neighbours were rejected and redrawn."""
    in_order = draws(*parameters, at=range(300))
    shuffled = np.random.default_rng(2).permutation(300)
    assert (draws(*parameters, at=shuffled) == in_order[shuffled]).all()
    assert draws(*parameters, at=[211]) == in_order[211]
    assert len(np.unique(in_order)) == 300


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 100, 101])
def test_fill_uniform_is_uniform_bit_for_bit(dtype, n):
    """The fast loop gives the addressed draws, rounded once to the dtype of the array."""
    out = np.full(n, np.nan, dtype)
    fill_uniform(out, KEY, -1.5, 2.25)
    expected = (-1.5 + 3.75 * uniforms()[:n]).astype(dtype)
    assert out.tobytes() == expected.tobytes()


def test_fill_uniform_takes_a_strided_view():
    """A column of a coordinate array is filled, and its neighbour left alone."""
    out = np.zeros((11, 2))
    fill_uniform(out[:, 0], KEY, 0.0, 1.0)
    assert out[:, 0].tolist() == uniforms()[:11].tolist()
    assert not out[:, 1].any()


def test_uniform_pair_is_two_neighbouring_draws():
    """Pair k holds the draws 2k and 2k + 1."""
    out = np.empty((50, 2))
    uniform_pairs(out, KEY)
    assert out.ravel().tolist() == uniforms()[:100].tolist()


@pytest.mark.parametrize("n", [0, 1, 3, 4, 50, 403])
@pytest.mark.parametrize("low,high", [(1, 10), (-7, -6), (0, 3 * 2**30)])
def test_fill_integers_is_integers(low, high, n):
    """The fast loop gives the addressed draws, also where a draw was rejected (a quarter of them in the wide range)."""
    out = np.full(n, -99, np.int64)
    fill_integers(out, KEY, low, high)
    assert out.tolist() == integer_draws(low, high, at=range(n)).tolist()


def test_uniform_uses_53_bits():
    """All 53 bits vary, each half of the time."""
    grid = (uniforms() * 2.0**53).astype(np.uint64)
    assert (uniforms() * 2.0**53 == grid).all() and grid.max() < 2**53
    ones = [int(((grid >> np.uint64(bit)) & np.uint64(1)).sum()) for bit in range(53)]
    assert max(abs(count - N / 2) for count in ones) < 5 * np.sqrt(N / 4)


@pytest.mark.parametrize("low,n", [(5, 1), (0, 2), (1, 9), (-50, 100), (-(2**40), 12)])
def test_integers_are_equally_likely(low, n):
    """Each of low .. low + n - 1 comes up equally often, and nothing else does."""
    counts = np.bincount(integer_draws(low, low + n, dtype=np.int64) - low, minlength=n)
    assert len(counts) == n
    assert n == 1 or stats.chisquare(counts).pvalue > TINY_P


@pytest.mark.parametrize("n", [2**31, 3 * 2**30, 2**32 - 1, 2**32])
def test_integers_of_wide_ranges_are_unbiased(n):
    """Without rejection, 3 * 2**30 from 32 bits would favour every third number two to one."""
    x = integer_draws(0, n, dtype=np.int64)
    assert x.min() >= 0 and x.max() < n
    for modulus in (2, 3, 16):
        assert stats.chisquare(np.bincount(x % modulus, minlength=modulus)).pvalue > TINY_P
    assert stats.chisquare(np.bincount(x * 64 // n, minlength=64)).pvalue > TINY_P


@pytest.mark.parametrize("first", [0, 2])
def test_permutations_are_equally_likely(first):
    """All 120 orders of five entries are equally likely; the entries before `first` stay."""
    out = np.tile(np.arange(5 + first, dtype=np.int32), (60_000, 1))
    permutations(out, first)
    assert (out[:, :first] == np.arange(first)).all()
    orders = {order: k for k, order in enumerate(itertools.permutations(range(first, first + 5)))}
    counts = np.bincount([orders[tuple(row)] for row in out[:, first:].tolist()], minlength=120)
    assert stats.chisquare(counts).pvalue > TINY_P


def test_permutation_overwrites_what_was_there():
    """The array need not be prepared, and a single entry or none is no special case."""
    for n in (0, 1, 50):
        out = np.full((1, n), 99, np.int32)
        permutations(out, 0)
        assert sorted(out[0].tolist()) == list(range(n))


@pytest.mark.parametrize("weights", [[1, 0, 2, 0, 5, 0], [0, 0, 3], [1e-300, 1e-300], [0.1] * 10])
def test_choice_follows_the_weights(weights):
    """Indices come up in proportion to their weights, those of weight 0 never."""
    weights = np.array(weights, np.float64)
    counts = np.bincount(choices(weights, dtype=np.int64), minlength=len(weights))
    assert not counts[weights == 0].any()
    share = weights[weights > 0] / weights.sum()
    assert len(share) == 1 or stats.chisquare(counts[weights > 0], N * share).pvalue > TINY_P


def test_choice_among_nothing_says_so():
    """No index is right when every weight is 0, or when there is none."""
    for n in (0, 3):
        assert choices(np.zeros(n), at=[0], dtype=np.int64) == [-1]


def test_normal_quantile_is_accurate_everywhere():
    """It agrees with scipy's ndtri to 1e-14 from p = 1e-300 to 1 - 1e-16, across the seams of its three pieces."""
    tail = np.logspace(-300, -0.31, 20_000)
    seams = np.concatenate([x + np.linspace(-1e-9, 1e-9, 101) * x for x in (0.075, 0.925, np.exp(-25))])
    p = np.concatenate([tail, np.linspace(1e-3, 0.999, 20_000), 1 - np.logspace(-15.99, -1, 5_000), seams])
    out = np.empty_like(p)
    quantiles(p, out)
    np.testing.assert_allclose(out, special.ndtri(p), rtol=1e-14, atol=1e-17)


def test_normal_quantile_at_the_ends():
    """Probability 0 and 1 are infinitely far out, a half is exactly 0, and there is nothing outside."""
    out = np.empty(6)
    quantiles(np.array([0.0, 0.5, 1.0, -0.1, 1.1, np.nan]), out)
    np.testing.assert_array_equal(out, [-np.inf, 0.0, np.inf, np.nan, np.nan, np.nan])


def test_normal_cdf_agrees_with_scipy():
    """Relative, not only absolute, accuracy reaches down to -37 sigmas."""
    x = np.linspace(-37, 10, 5_000)
    out = np.empty_like(x)
    cdfs(x, out)
    np.testing.assert_allclose(out, special.ndtr(x), rtol=5e-13)


def test_normal():
    """Standard normal by Kolmogorov-Smirnov, with skewness 0 and kurtosis 3."""
    x = normals()
    assert fits(x, stats.norm())
    assert abs((x**3).mean()) < 5 * np.sqrt(15 / N) and abs((x**4).mean() - 3) < 5 * np.sqrt(96 / N)


@pytest.mark.parametrize("mu,sigma", [(0.0, 1.0), (-3.0, 0.25), (2.0, 0.0)])
def test_lognormal(mu, sigma):
    """The log of a draw is normal(mu, sigma); sigma 0 gives exp(mu)."""
    x = lognormals(mu, sigma)
    assert fits(np.log(x), stats.norm(mu, sigma)) if sigma else (x == np.exp(mu)).all()


@pytest.mark.parametrize("scale", [1.0, 0.01, 250.0])
def test_exponential(scale):
    """Exponential of mean `scale`, never 0."""
    x = exponentials(scale)
    assert fits(x, stats.expon(scale=scale)) and x.min() > 0


@pytest.mark.parametrize(
    "mu,sigma,low,high",
    [
        (0.0, 1.0, -1.0, 2.0),
        (0.5, 0.2, 0.0, 1.0),
        (0.0, 1.0, 8.0, np.inf),
        (0.0, 1.0, 8.0, 8.05),
        (3.0, 2.0, -np.inf, -60.0),
        (0.0, 1.0, 36.9, np.inf),
        (0.0, 1.0, 37.1, 37.13),
        (-1.0, 0.01, 0.0, 1.0),
        (0.0, 1.0, -np.inf, np.inf),
    ],
)
def test_truncated_normal(mu, sigma, low, high):
    """The law of scipy's truncnorm, also 100 sigmas out, and never a value outside the interval."""
    x = truncated_normals(mu, sigma, low, high)
    assert low <= x.min() and x.max() <= high
    assert fits(x, stats.truncnorm((low - mu) / sigma, (high - mu) / sigma, mu, sigma))


def test_truncated_normal_without_spread():
    """Sigma 0 gives the point of the interval nearest to mu."""
    assert [truncated_normals(mu, 0.0, 0.0, 1.0, at=[0])[0] for mu in (-2.0, 0.3, 1.0, 9.0)] == [0.0, 0.3, 1.0, 1.0]


@pytest.mark.parametrize("shape", [0.01, 0.5, 0.8, 1.0, 5.0, 10.0, 1000.0, 1e8])
def test_gamma(shape):
    """Gamma by Kolmogorov-Smirnov, with its mean and variance; scale 2.5."""
    x = gammas(shape, 2.5)
    law = stats.gamma(shape, scale=2.5)
    assert fits(x, law)
    mean, var, kurtosis = law.stats("mvk")
    assert abs(x.mean() - mean) < 5 * np.sqrt(var / N)
    assert abs(x.var() - var) < 5 * var * np.sqrt((kurtosis + 2) / N)


def test_gamma_of_shape_zero_is_zero():
    """The limit of shape to 0; and a shape that is not a number gives nan instead of rejecting for ever."""
    assert not gammas(0.0, 1.0, at=range(100)).any()
    assert np.isnan(gammas(np.nan, 1.0, at=[0])).all()


@pytest.mark.parametrize("a,b", [(0.5, 0.5), (2.0, 5.0), (0.05, 3.0), (1.0, 1.0), (400.0, 100.0)])
def test_beta(a, b):
    """Beta by Kolmogorov-Smirnov, with its mean; the two gammas behind it are independent or it would fail."""
    x = betas(a, b)
    assert fits(x, stats.beta(a, b))
    assert abs(x.mean() - a / (a + b)) < 5 * stats.beta(a, b).std() / np.sqrt(N)


def test_beta_of_tiny_parameters_is_a_coin():
    """Where both gammas underflow their ratio still stands: 0 or 1, a / (a + b) of the time 1."""
    x = betas(1e-5, 3e-5)
    assert np.isfinite(x).all() and ((x < 1e-9) | (x > 1 - 1e-9)).mean() > 0.99
    assert abs(x.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / N)
