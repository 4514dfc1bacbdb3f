"""Whether numbers are distributed as they say.

Seeds are fixed, so a test gives the same answer every time. Under another seed, each check of a right generator fails with the
probability `ALARM`; there are some sixty of them.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rlx_core import random

ALARM = 1e-4
N = 20_000

DISTRIBUTIONS = {
    "uniform": (random.uniform, stats.uniform()),
    "normal": (random.normal, stats.norm()),
    "exponential": (random.exponential, stats.expon()),
    "laplace": (random.laplace, stats.laplace()),
    "gumbel": (random.gumbel, stats.gumbel_r()),
    "cauchy": (random.cauchy, stats.cauchy()),
    "logistic": (random.logistic, stats.logistic()),
    "lognormal": (lambda key, shape: random.lognormal(key, 0.5, shape), stats.lognorm(0.5)),
    "rayleigh": (lambda key, shape: random.rayleigh(key, 2.0, shape), stats.rayleigh(scale=2)),
    "pareto": (lambda key, shape: random.pareto(key, 6.0, shape), stats.pareto(6)),
    "weibull": (lambda key, shape: random.weibull(key, 1.7, 3.0, shape), stats.weibull_min(1.7, scale=3)),
    "triangular": (lambda key, shape: random.triangular(key, -1, 0.5, 2, shape), stats.triang(0.5, -1, 3)),
    "gamma of 0.3": (lambda key, shape: random.gamma(key, 0.3, shape), stats.gamma(0.3)),
    "gamma of 1": (lambda key, shape: random.gamma(key, 1.0, shape), stats.gamma(1)),
    "gamma of 50": (lambda key, shape: random.gamma(key, 50.0, shape), stats.gamma(50)),
    "loggamma": (lambda key, shape: random.loggamma(key, 0.05, shape), stats.loggamma(0.05)),
    "beta": (lambda key, shape: random.beta(key, 0.4, 2.5, shape), stats.beta(0.4, 2.5)),
    "chisquare": (lambda key, shape: random.chisquare(key, 3.0, shape), stats.chi2(3)),
    "t": (lambda key, shape: random.t(key, 5.0, shape), stats.t(5)),
    "dirichlet": (lambda key, n: random.dirichlet(key, np.float32([1, 2, 0.5]), n)[:, 1], stats.beta(2, 1.5)),
    "truncated": (lambda key, shape: random.truncated_normal(key, -0.5, 2.0, shape), stats.truncnorm(-0.5, 2.0)),
}


@pytest.mark.parametrize(("draw", "wanted"), DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
def test_numbers_follow_their_distribution(draw, wanted):
    x = draw(random.key(11), (N,)).astype(np.float64)
    assert stats.kstest(x, wanted.cdf).pvalue > ALARM
    if np.isfinite(wanted.std()):
        assert abs(stats.norm.ppf(ALARM / 2)) > abs(x.mean() - wanted.mean()) / (wanted.std() / N**0.5)


COUNTS = {
    "binomial": (lambda key: random.binomial(key, 30, 0.2, (N,)), stats.binom(30, 0.2)),
    "multinomial": (lambda key: random.multinomial(key, 12, [1, 2, 5], (N,))[:, 1], stats.binom(12, 0.25)),
    "geometric": (lambda key: random.geometric(key, 0.3, (N,)), stats.geom(0.3)),
    **{
        f"poisson of {lam}": (lambda key, lam=lam: random.poisson(key, lam, (N,)), stats.poisson(lam))
        for lam in (0.2, 9.5, 10.0, 37.0, 4000.0)
    },
}


@pytest.mark.parametrize(("draw", "wanted"), COUNTS.values(), ids=COUNTS)
def test_counts_follow_their_distribution(draw, wanted):
    """In classes of which each is expected 20 times at least, and in their mean and variance."""
    drawn = np.asarray(draw(random.key(12)))
    edges = np.unique(wanted.ppf(np.linspace(0, 1, 60)[1:-1]))
    classes = np.diff(np.concatenate([[0], wanted.cdf(edges), [1]]))
    found = np.bincount(np.searchsorted(edges, drawn), minlength=len(classes))
    while (few := np.flatnonzero(classes * N < 20)).size:  # a class that is too small joins its neighbour
        i = max(few[0], 1)
        classes, found = (np.concatenate([v[: i - 1], [v[i - 1] + v[i]], v[i + 1 :]]) for v in (classes, found))
    assert stats.chisquare(found, classes * N).pvalue > ALARM
    assert abs(stats.norm.ppf(ALARM / 2)) > abs(drawn.mean() - wanted.mean()) / (wanted.std() / N**0.5)
    assert abs(drawn.var() / wanted.var() - 1) < 6 * ((2 + wanted.stats("k")) / N) ** 0.5


def test_normal_vectors_have_their_mean_and_covariance():
    """Brought back by the factor of the covariance, they are independent normal numbers."""
    mean, cov = np.float32([1, -2, 0.5]), np.float32([[2, 0.6, -0.4], [0.6, 1, 0.3], [-0.4, 0.3, 0.8]])
    drawn = np.asarray(random.multivariate_normal(random.key(14), mean, cov, (N,)))
    z = np.linalg.solve(np.linalg.cholesky(cov), (drawn - mean).T)
    assert stats.kstest(z.ravel(), stats.norm().cdf).pvalue > ALARM
    bound = abs(stats.norm.ppf(ALARM / 6))
    assert all(abs(z[i] @ z[j]) / N**0.5 < bound for i in range(3) for j in range(i))


def test_signs_are_fair():
    drawn = random.rademacher(random.key(13), (N,))
    assert set(np.unique(drawn)) == {-1, 1}
    assert stats.binomtest(int((drawn == 1).sum()), N).pvalue > ALARM


def test_every_bit_is_fair():
    words = random.bits(random.key(0), (N,))
    for k in range(32):
        assert stats.binomtest(int((words >> k & 1).sum()), N).pvalue > ALARM / 32


def test_integers_and_categories_are_as_likely_as_they_should_be():
    drawn = random.randint(random.key(3), (N,), 0, 7)
    assert stats.chisquare(np.bincount(drawn, minlength=7)).pvalue > ALARM
    p = np.array([0.1, 0.2, 0.3, 0.4])
    drawn = random.categorical(random.key(4), np.log(p).astype(np.float32), shape=(N,))
    assert stats.chisquare(np.bincount(drawn, minlength=4), p * N).pvalue > ALARM


@pytest.mark.slow
def test_streams_of_split_and_folded_keys_are_independent():
    key = random.key(6)
    keys = [key, *random.split(key, 4), *(random.fold_in(key, i) for i in range(4))]
    x = np.stack([random.normal(k, (N,)) for k in keys])
    for i in range(len(keys)):
        for j in range(i):
            assert stats.pearsonr(x[i], x[j]).pvalue > ALARM / 36
            assert stats.ks_2samp(x[i], x[j]).pvalue > ALARM / 36
