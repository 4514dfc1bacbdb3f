"""Whether numbers are distributed as they say.

Seeds are fixed, so a test gives the same answer every time. Under another seed, each check of a right generator fails with the
probability `ALARM`; there are some twenty of them.
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
    "truncated": (lambda key, shape: random.truncated_normal(key, -0.5, 2.0, shape), stats.truncnorm(-0.5, 2.0)),
}


@pytest.mark.parametrize(("draw", "wanted"), DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
def test_numbers_follow_their_distribution(draw, wanted):
    x = draw(random.key(11), (N,)).astype(np.float64)
    assert stats.kstest(x, wanted.cdf).pvalue > ALARM
    assert abs(stats.norm.ppf(ALARM / 2)) > abs(x.mean() - wanted.mean()) / (wanted.std() / N**0.5)


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
