"""The instance laws of the profit and waste worlds match the published table and scipy's distributions.

Ten thousand instances of twenty customers each: two whole cycles of the laws that differ from customer to customer. A
p-value below 1e-4 on a fixed seed means a wrong law.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from milkrun.routing.generators import get_generator

pytestmark = [pytest.mark.truth, pytest.mark.slow]

INSTANCES, N, DAYS = 10_000, 20, 7
CYCLE = np.arange(N) % 10
UNLIKELY = 1e-4

# law: mean %/day, level and share of full bins with fill_days = 4
TABLE = {
    "gamma1": (25.5, 0.549, 0.171),
    "gamma": (25.5, 0.549, 0.171),
    "gamma2": (19.6, 0.455, 0.117),
    "gamma3": (13.8, 0.338, 0.036),
    "gamma4": (35.0, 0.663, 0.338),
}
SHAPES = {"gamma1": [5] * 5 + [10] * 5, "gamma2": [2] * 5 + [6] * 5, "gamma3": [1] * 5 + [3] * 5, "gamma4": [5, 2] * 5}
SCALES = {"gamma1": [5, 2] * 5, "gamma2": [6, 4] * 5, "gamma3": [8, 6] * 5, "gamma4": [10] * 10}
SPELLS = {"rm_like": (0.45, 0.8, 15.25), "fdf_like": (0.52, 1.8, 7.65)}


def made(name, **options):
    return get_generator(name, num_loc=N, **options).generate(INSTANCES, seed=2024)


def follows(draws, law):
    """The Kolmogorov-Smirnov test finds no difference."""
    return stats.kstest(np.asarray(draws, float), law.cdf).pvalue > UNLIKELY


@pytest.mark.parametrize("law", TABLE)
@pytest.mark.parametrize("name", ["wcvrp", "cwcvrp"])
def test_levels_of_the_table(name, law):
    """Mean level and share of full bins within .005."""
    _, level, full = TABLE[law]
    waste = made(name, fill_distribution=law)["waste"]
    assert waste.shape == (INSTANCES, N) and waste.min() >= 0 and waste.max() == 1
    assert waste.mean(dtype=float) == pytest.approx(level, abs=0.005)
    assert (waste >= 1 - 1e-6).mean() == pytest.approx(full, abs=0.005)


def test_default_levels_are_those_of_gamma1():
    """Of WCVRP, CWCVRP and, as expectation, SCWCVRP; SDWCVRP starts from gamma3."""
    levels = {"wcvrp": "waste", "cwcvrp": "waste", "scwcvrp": "expected_waste", "sdwcvrp": "initial_waste"}
    for name, key in levels.items():
        _, level, full = TABLE["gamma3" if name == "sdwcvrp" else "gamma1"]
        waste = made(name)[key]
        assert waste.mean(dtype=float) == pytest.approx(level, abs=0.005)
        assert (waste >= 1 - 1e-6).mean() == pytest.approx(full, abs=0.005)


@pytest.mark.parametrize("law", SHAPES)
def test_daily_gammas(law):
    """The mean is within 1 %, and each customer's days follow the gamma of its position in the cycle."""
    data = made("sdwcvrp", fill_distribution=law, horizon=DAYS)
    fill = data["daily_fill"].astype(float)
    assert fill.shape == (INSTANCES, DAYS, N)
    assert fill.mean() == pytest.approx(TABLE[law][0] / 100, rel=0.01)
    for j in range(N):
        gamma = stats.gamma(SHAPES[law][j % 10], scale=SCALES[law][j % 10] / 100)
        assert follows(fill[:, j % DAYS, j], gamma), f"customer {j + 1}"
        np.testing.assert_allclose(data["fill_mean"][:, j], gamma.mean(), rtol=1e-6)
        np.testing.assert_allclose(data["fill_std"][:, j], gamma.std(), rtol=1e-6)


def test_daily_spread_of_gamma3():
    """Over all customers 12.1 % of a bin; the means of gamma1's customers are those of the table."""
    fill = made("sdwcvrp", fill_distribution="gamma3")["daily_fill"].astype(float)
    assert fill.std() == pytest.approx(0.121, rel=0.01)
    fill = made("sdwcvrp", fill_distribution="gamma1")["daily_fill"].astype(float)
    wanted = np.array([25, 10, 25, 10, 25, 20, 50, 20, 50, 20])[CYCLE] / 100
    np.testing.assert_allclose(fill.mean(axis=(0, 1)), wanted, rtol=0.01)


@pytest.mark.parametrize(
    ("law", "mean", "spread"), [("rm_like", 5.5, 11.0), ("empirical", 5.5, 11.0), ("fdf_like", 7.2, 10.1)]
)
def test_days_with_and_without_waste(law, mean, spread):
    """A Bernoulli draw, then a gamma; mean within 1 %, spread within 2 %; the stored moments are exact."""
    data = made("sdwcvrp", fill_distribution=law, horizon=DAYS)
    fill = data["daily_fill"].astype(float)
    chance, shape, scale = SPELLS["rm_like" if law == "empirical" else law]
    assert fill.mean() == pytest.approx(mean / 100, rel=0.01)
    assert fill.std() == pytest.approx(spread / 100, rel=0.02)
    assert (np.median(fill) == 0) == (chance < 0.5)
    assert (fill > 0).mean() == pytest.approx(chance, abs=0.003)
    assert follows(fill[:, 0][fill[:, 0] > 0][:50_000], stats.gamma(shape, scale=scale / 100))
    exact = chance * shape * scale / 100
    second = chance * shape * (shape + 1) * (scale / 100) ** 2
    np.testing.assert_allclose(data["fill_mean"], exact, rtol=1e-6)
    np.testing.assert_allclose(data["fill_std"], math.sqrt(second - exact**2), rtol=1e-6)
    days = fill.reshape(-1, N)
    assert abs(np.corrcoef(fill[:, 0].T, fill[:, 1].T) - np.eye(2 * N)).max() < 5.5 / math.sqrt(INSTANCES)
    assert abs(np.corrcoef(days.T) - np.eye(N)).max() < 5.5 / math.sqrt(len(days))


@pytest.mark.parametrize("law", [*SHAPES, "rm_like", "fdf_like", "uniform", "beta", "constant", "dist"])
def test_moments_are_those_of_the_samples(law):
    """Each customer's mean within five standard errors of `fill_mean`, the spread within 4 % of `fill_std`."""
    data = made("sdwcvrp", fill_distribution=law, horizon=DAYS, max_waste=50.0)
    fill, mean, std = (data[key].astype(float) for key in ("daily_fill", "fill_mean", "fill_std"))
    if law in ("constant", "dist"):
        np.testing.assert_allclose(fill, np.broadcast_to(mean[:, None], fill.shape), rtol=1e-6)
        assert not std.any()
        return
    assert (mean == mean[0]).all() and (std == std[0]).all()
    draws = fill.reshape(-1, N)
    assert (abs(draws.mean(axis=0) - mean[0]) < 5 * std[0] / math.sqrt(len(draws))).all()
    np.testing.assert_allclose(draws.std(axis=0), std[0], rtol=0.04)


def test_levels_drawn_directly():
    """Uniform, two-sided beta, constant; `dist` is the share of the largest distance, in hundredths."""
    assert follows(made("wcvrp", fill_distribution="uniform")["waste"][:, 3], stats.uniform())
    assert follows(made("wcvrp", fill_distribution="beta")["waste"][:, 3], stats.beta(0.5, 0.5))
    assert (made("wcvrp", fill_distribution="constant")["waste"] == 0.5).all()
    assert (made("wcvrp", fill_distribution="constant", fill_value=0.25, max_waste=8.0)["waste"] == 2).all()
    data = made("cwcvrp", fill_distribution="dist")
    way = np.sqrt(((data["locs"].astype(float) - data["depot"][:, None]) ** 2).sum(-1))
    wanted = (1 + np.floor(99 * way / way.max(axis=1, keepdims=True))) / 100
    np.testing.assert_allclose(data["waste"], wanted, rtol=1e-6)


def test_level_laws_by_day_are_a_fifth():
    """`daily_scale` .2: uniform days on [0, .2], mean .1; beta days have the spread .2 / sqrt 8."""
    data = made("sdwcvrp", fill_distribution="uniform")
    assert follows(data["daily_fill"][:, 2, 4], stats.uniform(0, 0.2))
    np.testing.assert_allclose(data["fill_mean"], 0.1, rtol=1e-6)
    np.testing.assert_allclose(data["fill_std"], 0.2 / math.sqrt(12), rtol=1e-6)
    data = made("sdwcvrp", fill_distribution="beta", daily_scale=0.4)
    assert follows(data["daily_fill"][:, 2, 4] / 0.4, stats.beta(0.5, 0.5))
    np.testing.assert_allclose(data["fill_std"], 0.4 / math.sqrt(8), rtol=1e-6)


def test_percent_units_are_the_same_draws():
    """max_waste = 100 multiplies levels and days by a hundred."""
    for name, keys in {
        "wcvrp": ("waste",),
        "sdwcvrp": ("initial_waste", "daily_fill", "fill_mean", "fill_std"),
    }.items():
        share, percent = made(name), made(name, max_waste=100.0)
        for key in keys:
            np.testing.assert_allclose(percent[key], 100 * share[key], rtol=1e-6)


def test_age_is_uniform_up_to_fill_days():
    """With days of a constant gamma the level follows the mixture over ages 1, 2, 3 of Gamma(5 A, 5 %), cut at 1."""
    waste = made("wcvrp", fill_distribution="gamma1", fill_days=3)["waste"][:, 0].astype(float)
    for level in (0.1, 0.3, 0.5, 0.7, 0.9):
        share = np.mean([stats.gamma(5 * age, scale=0.05).cdf(level) for age in (1, 2, 3)])
        assert (waste < level).mean() == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / INSTANCES))


def test_prizes_and_weights():
    """U{1..100} with mean 50.5; weights are the prizes, U{1..9} or 1; other laws stay within their bounds."""
    data = made("cvrpp")
    prize = data["prize"]
    assert (prize.min(), prize.max()) == (1, 100) and (prize == np.floor(prize)).all()
    assert prize.mean(dtype=float) == pytest.approx(50.5, rel=0.005)
    assert stats.chisquare(np.bincount(prize.astype(int).ravel())[1:]).pvalue > UNLIKELY
    assert (data["weight"] == prize).all() and (made("vrpp")["prize"] == prize).all()
    units = made("cvrpp", weight_law="units")["weight"].astype(int)
    assert stats.chisquare(np.bincount(units.ravel(), minlength=10)[1:]).pvalue > UNLIKELY
    assert (units.min(), units.max()) == (1, 9)
    assert (made("cvrpp", weight_law="one")["weight"] == 1).all()
    assert (made("vrpp", prize_distribution="const")["prize"] == 100).all()
    assert follows(made("vrpp", prize_distribution="continuous")["prize"][:, 5], stats.uniform(1, 99))
    data = made("vrpp", prize_distribution="dist")
    way = np.sqrt(((data["locs"].astype(float) - data["depot"][:, None]) ** 2).sum(-1))
    assert (data["prize"] == 1 + np.floor(99 * way / way.max(axis=1, keepdims=True))).all()


@pytest.mark.parametrize("name", ["wcvrp", "cwcvrp", "scwcvrp"])
def test_share_of_mandatory_customers(name):
    """One in ten by default, independent of the level; one in four by option; all at .9 and more by the rule of
    levels."""
    data = made(name)
    level = data["demand"]
    assert data["must_go"].mean() == pytest.approx(0.1, abs=0.005)
    assert abs(np.corrcoef(level[:, 0], data["must_go"][:, 0])[0, 1]) < 5 / math.sqrt(INSTANCES)
    assert made(name, must_go_rate=0.25)["must_go"].mean() == pytest.approx(0.25, abs=0.005)
    assert not made(name, must_go="none")["must_go"].any()
    named = made(name, must_go="level")["must_go"]
    far = abs(level - np.float32(0.9)) > 1e-6
    assert (named == (level >= 0.9))[far].all() and 0.15 < named.mean() < 0.35


def test_lognormal_noise_keeps_the_mean():
    """With expectation .2, log(real) is N(log .2 - sigma^2 / 2, sigma^2); mu multiplies; a full bin is the maximum."""
    real = made("scwcvrp", fill_distribution="constant", fill_value=0.2)["real_waste"].astype(float)
    assert real.mean() == pytest.approx(0.2, rel=0.005)
    assert follows(np.log(real[:, 7]), stats.norm(math.log(0.2) - 0.045, 0.3))
    real = made("scwcvrp", fill_distribution="constant", fill_value=0.2, mu=1.5, sigma=0.1, max_waste=10.0)[
        "real_waste"
    ]
    assert follows(np.log(real[:, 7]), stats.norm(math.log(3) - 0.005, 0.1))
    data = made("scwcvrp")
    assert data["real_waste"].max() == 1
    ratio = (data["real_waste"] / data["expected_waste"])[data["expected_waste"] < 0.25]
    assert ratio.mean(dtype=float) == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize(
    ("level", "mu", "sigma"), [(0.2, 1.0, 0.3), (0.9, 1.0, 0.1), (0.5, 1.6, 0.5), (0.02, 1.0, 0.05)]
)
@pytest.mark.parametrize("most", [1.0, 100.0])
def test_truncated_normal_noise(level, mu, sigma, most):
    """scipy's truncnorm on [0, max_waste] around mu times the expectation, sigma in bins."""
    real = made(
        "scwcvrp",
        fill_distribution="constant",
        fill_value=level,
        mu=mu,
        sigma=sigma,
        max_waste=most,
        noise_distribution="truncnorm",
    )["real_waste"].astype(float)
    mean = mu * level
    law = stats.truncnorm(-mean / sigma, (1 - mean) / sigma, loc=mean, scale=sigma)
    assert 0 <= real.min() and real.max() <= most
    assert follows(real[:, 0] / most, law) and follows(real[:, -1] / most, law)


@pytest.mark.parametrize("law", ["lognormal", "truncnorm"])
def test_without_noise_real_waste_is_the_expected_waste(law):
    """sigma = 0: mu times the expectation, at most a full bin."""
    data = made("scwcvrp", sigma=0.0, noise_distribution=law)
    assert (data["real_waste"] == data["expected_waste"]).all()
    data = made("scwcvrp", sigma=0.0, mu=1.3, noise_distribution=law)
    np.testing.assert_allclose(data["real_waste"], np.minimum(1, 1.3 * data["expected_waste"].astype(float)), rtol=1e-6)


def test_sensor_noise_has_mean_one():
    """Its logarithm is N(- sigma^2 / 2, sigma^2), drawn independently for each day."""
    noise = made("sdwcvrp", sensor_sigma=0.4, horizon=DAYS)["sensor_noise"].astype(float)
    assert noise.shape == (INSTANCES, DAYS, N)
    assert noise.mean() == pytest.approx(1, rel=0.003)
    assert follows(np.log(noise[:, 3, 5]), stats.norm(-0.08, 0.4))
    days = noise.reshape(INSTANCES, -1)[:, : 3 * N]
    assert abs(np.corrcoef(days.T) - np.eye(3 * N)).max() < 5.5 / math.sqrt(INSTANCES)


def test_attributes_are_independent():
    """Level, real waste, place and depot of a customer, and the levels of two customers."""
    data = made("scwcvrp", fill_distribution="uniform", noise_distribution="truncnorm")
    z = data["real_waste"][:, 0] - data["expected_waste"][:, 0]
    columns = [*data["locs"][:, 0].T, *data["depot"].T, *data["expected_waste"][:, :2].T, data["must_go"][:, 0]]
    related = np.corrcoef(np.array(columns, float)) - np.eye(len(columns))
    assert abs(related).max() < 5 / math.sqrt(INSTANCES)
    assert abs(np.corrcoef(z, data["locs"][:, 0, 0])[0, 1]) < 5 / math.sqrt(INSTANCES)
