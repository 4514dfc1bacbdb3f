"""Numbers of every kind: the same natively as by the interpreter, masks, filtered tokens, and what bad input gets."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import rlx_core as rlx
from rlx_core import nn, random
from rlx_core.errors import ConfigError, DtypeError, MissingRuleError, ShapeError

KEY = random.key(2024)
N = 3000

EXACT = {
    "uniform": lambda key: random.uniform(key, (N,)),
    "uniform f64": lambda key: random.uniform(key, (N,), "f64"),
    "uniform f16": lambda key: random.uniform(key, (N,), "f16"),
    "uniform bf16": lambda key: random.uniform(key, (N,), "bf16"),
    "bits u8": lambda key: random.bits(key, (N,), "u8"),
    "bernoulli": lambda key: random.bernoulli(key, 0.3, (N,)),
    "randint": lambda key: random.randint(key, (N,), -5, 7),
    "randint i64": lambda key: random.randint(key, (N,), -(2**62), 2**63 - 1, "i64"),
    "permutation": lambda key: random.permutation(key, N),
    "rademacher": lambda key: random.rademacher(key, (N,)),
    "choice": lambda key: random.choice(key, N, (50,), replace=False),
}
NEAR = {
    "normal": lambda key: random.normal(key, (N,)),
    "truncated": lambda key: random.truncated_normal(key, -1.0, 2.0, (N,)),
    "exponential": lambda key: random.exponential(key, (N,)),
    "laplace": lambda key: random.laplace(key, (N,)),
    "gumbel": lambda key: random.gumbel(key, (N,)),
    "logistic": lambda key: random.logistic(key, (N,)),
    "rayleigh": lambda key: random.rayleigh(key, 2.0, (N,)),
    "pareto": lambda key: random.pareto(key, 3.0, (N,)),
}


@pytest.mark.parametrize("draw", EXACT.values(), ids=EXACT)
def test_native_integers_and_uniforms_are_the_interpreters(draw):
    np.testing.assert_array_equal(np.asarray(rlx.jit(draw)(KEY)), draw(KEY))


@pytest.mark.parametrize("draw", NEAR.values(), ids=NEAR)
def test_native_numbers_through_a_function_are_within_its_error(draw):
    wanted = draw(KEY)
    # Two functions of at most 2 ulp each, and the last product; where a result crosses 0, of its argument.
    np.testing.assert_allclose(np.asarray(rlx.jit(draw)(KEY)), wanted, rtol=8 * np.finfo(np.float32).eps, atol=1e-6)


PARAMETRIC = {
    "gamma": lambda key, a: random.gamma(key, a),
    "beta": lambda key, a: random.beta(key, a, 2.0),
    "dirichlet": lambda key, a: random.dirichlet(key, a),
    "t": lambda key, a: random.t(key, a),
    "chisquare": lambda key, a: random.chisquare(key, a),
    "poisson": lambda key, a: random.poisson(key, 20 * a),
    "geometric": lambda key, a: random.geometric(key, a / 4),
    "weibull": lambda key, a: random.weibull(key, a, 2.0),
    "triangular": lambda key, a: random.triangular(key, -a, 0.0, a),
    "multivariate_normal": lambda key, a: random.multivariate_normal(key, a, np.eye(5, dtype=np.float32) + 0.2),
    "binomial": lambda key, a: random.binomial(key, 9, a / 4),
    "multinomial": lambda key, a: random.multinomial(key, 20, a),
}


@pytest.mark.medium
@pytest.mark.parametrize("draw", PARAMETRIC.values(), ids=PARAMETRIC)
def test_a_batch_of_keys_draws_what_each_draws_alone(draw):
    keys, a = random.split(KEY, 3), np.linspace(0.2, 3, 15, dtype=np.float32).reshape(3, 5)
    together = np.asarray(rlx.vmap(draw)(keys, a))
    for i in range(3):
        np.testing.assert_allclose(together[i], np.asarray(draw(keys[i], a[i])), rtol=2e-5)


def quantile(a, below, above):
    """Where a gamma number of a has so much below and above, by the side that has digits left."""
    return np.where(below < 0.5, special.gammaincinv(a, below), special.gammainccinv(a, above))


@pytest.mark.medium
@pytest.mark.parametrize("a", [1.0, 1.5, 8.0, 12.0, 1e3])
def test_gamma_numbers_follow_their_shape_as_their_quantiles_do(a):
    """The implicit derivative is that of the quantile which the number is; differences of SciPy's tell it."""
    shapes = np.full(64, a)
    z, slope = rlx.jvp(lambda a: random.gamma(KEY, a, dtype="f64"), (shapes,), (np.ones(64),))
    below, above, h = special.gammainc(a, z), special.gammaincc(a, z), 1e-4 * a
    ends = [quantile(a + k * h, below, above) for k in (-2, -1, 1, 2)]
    np.testing.assert_allclose(slope, (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * h), rtol=2e-7)
    np.testing.assert_allclose(rlx.grad(lambda a: rlx.sum(random.gamma(KEY, a, dtype="f64")))(shapes), slope, rtol=1e-9)
    narrow = rlx.grad(lambda a: rlx.sum(random.gamma(KEY, a)))(shapes.astype(np.float32))
    wide = rlx.grad(lambda a: rlx.sum(random.gamma(KEY, a, dtype="f64")))(shapes)
    assert np.asarray(narrow).mean() == pytest.approx(
        np.asarray(wide).mean(), rel=0.3
    )  # other words, the same distribution


@pytest.mark.medium
@pytest.mark.parametrize(
    ("draw", "at", "slope"),
    [
        (lambda a: random.gamma(KEY, a, (20_000,)), 0.3, 1.0),
        (lambda a: random.loggamma(KEY, a, (20_000,)), 0.5, np.pi**2 / 2),  # the trigamma function
        (lambda a: random.beta(KEY, a, 3.0, (20_000,)), 2.0, 3 / 25),
        (lambda a: random.dirichlet(KEY, rlx.stack([a, np.float32(1), np.float32(2)]), (20_000,))[:, 0], 2.0, 3 / 25),
        (lambda df: random.chisquare(KEY, df, (20_000,)), 3.0, 1.0),
        (lambda df: random.t(KEY, df, (20_000,)) ** 2, 8.0, -2 / 36),
    ],
    ids=["gamma", "loggamma", "beta", "dirichlet", "chisquare", "t"],
)
def test_means_move_as_means_do(draw, at, slope):
    """The derivative of the mean is the mean of the derivatives, within five of its errors."""
    one = np.float32(at)
    slopes = np.asarray(rlx.jvp(draw, (one,), (np.float32(1),))[1])
    assert abs(slopes.mean() - slope) < 5 * slopes.std() / np.sqrt(slopes.size)


def test_a_second_derivative_by_the_shape_is_refused_and_scales_have_derivatives():
    for draw in (random.gamma, random.loggamma, random.chisquare, random.t):
        with pytest.raises(MissingRuleError, match=r"the derivative of .* has no derivative by it"):
            rlx.grad(rlx.grad(lambda a, draw=draw: rlx.sum(draw(KEY, a))))(np.float32(2))
    gradient = rlx.grad(lambda s: rlx.sum(random.rayleigh(KEY, s, (4,))))(np.float32(2))
    np.testing.assert_allclose(gradient, random.rayleigh(KEY, 1.0, (4,)).sum(), rtol=1e-6)


def test_counts_of_trials_add_up():
    assert random.binomial(KEY, 0, 0.5, (3,)).tolist() == [0, 0, 0]
    assert (random.multinomial(KEY, 7, np.float32([[1, 2], [3, 0]]), dtype="i32").sum(-1) == 7).all()
    assert random.multinomial(KEY, 7, np.float32([3, 0]))[1] == 0


def test_normal_vectors_have_derivatives_by_their_mean_and_covariance():
    def drawn(mean, cov):
        return rlx.sum(random.multivariate_normal(KEY, mean, cov, (4,), "f64") ** 2)

    mean, cov = np.array([0.5, -1.0]), np.array([[2.0, 0.3], [0.3, 1.0]])
    of_mean, of_cov = rlx.grad(drawn, argnums=(0, 1))(mean, cov)
    step, both = 1e-6, np.array([[0.4, 0.7], [0.7, -0.2]])
    for found, ends in (
        (of_mean @ mean, [drawn(mean * (1 + s), cov) for s in (step, -step)]),
        ((of_cov * both).sum(), [drawn(mean, cov + s * both) for s in (step, -step)]),
    ):
        np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * step), rtol=1e-6)


def test_certain_and_extreme_parameters_have_their_numbers():
    assert (random.geometric(KEY, 1.0, (100,)) == 1).all()
    assert (random.poisson(KEY, 0.0, (100,)) == 0).all()
    assert (random.geometric(KEY, 1e-30, (100,), "i64") > 10**9).all()
    assert np.isfinite(random.loggamma(KEY, 1e-3, (1000,))).all()
    rows = random.dirichlet(KEY, np.full(4, 1e-3, np.float32), (1000,))
    np.testing.assert_allclose(rows.sum(-1), 1, rtol=1e-5)
    assert random.dirichlet(KEY, np.ones((2, 4), np.float32)).shape == (2, 4)


def test_uniforms_are_scaled_words():
    words = random.bits(KEY, (100,))
    assert (random.uniform(KEY, (100,)) == (words >> 8) * np.float32(2**-24)).all()
    pairs = random.bits(KEY, (200,)).astype(np.float64)
    wanted = ((pairs[::2] // 32) * 2**26 + pairs[1::2] // 64) * 2**-53
    assert (random.uniform(KEY, (100,), "f64") == wanted).all()


def test_dropout_scales_what_it_keeps_and_its_gradient_has_the_same_mask():
    x = np.linspace(1, 2, 2000, dtype=np.float32).reshape(20, 100)

    def total(x):
        return rlx.sum(nn.dropout(x, KEY, 0.25) * x)

    dropped = np.asarray(nn.dropout(x, KEY, 0.25))
    kept = dropped != 0
    assert abs(kept.mean() - 0.75) < 0.04  # four standard deviations
    np.testing.assert_allclose(dropped[kept], x[kept] / 0.75, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(rlx.jit(rlx.grad(total))(x)), 2 * dropped, rtol=1e-6)
    assert (np.asarray(nn.dropout(x, KEY, 0.25, training=False)) == x).all()
    assert not np.asarray(nn.dropout(x, KEY, 1.0)).any()


def test_tokens_that_are_filtered_are_not_drawn():
    logits = np.tile(np.float32([0, 3, 1, 2, -1]), (400, 1))

    def seen(**options):
        return set(np.asarray(random.sample_logits(KEY, logits, **options)).tolist())

    assert seen() == {0, 1, 2, 3, 4}
    assert seen(temperature=0) == seen(top_k=1) == seen(top_p=0.0) == seen(min_p=1.0) == {1}
    assert seen(top_k=2) == {1, 3}
    assert seen(top_p=0.8) == {1, 3}  # probabilities 0.64, 0.23, 0.09, 0.03, 0.01
    assert seen(min_p=0.1) == {1, 2, 3}
    hot = rlx.jit(lambda t: random.sample_logits(KEY, logits, temperature=t))
    assert set(np.asarray(hot(np.float32(0))).tolist()) == {1}


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda: nn.dropout(np.ones(3, np.float32), KEY, 1.5), ConfigError, "rate must be from 0 to 1"),
        (lambda: random.bernoulli(KEY, -0.1), ConfigError, "p must be from 0 to 1"),
        (lambda: random.uniform(KEY, (3,), "i32"), DtypeError, "must be a float"),
        (lambda: random.uniform(KEY, (3,), minval=2, maxval=1), ConfigError, "minval must be at most maxval"),
        (lambda: random.gamma(KEY, 0.0), ConfigError, "a must be above 0, not 0.0"),
        (lambda: random.beta(KEY, 1.0, [-1.0]), ConfigError, "b must be above 0"),
        (lambda: random.poisson(KEY, 1e7), ConfigError, "lam must be at least 0 and at most 1e\\+06"),
        (lambda: random.poisson(KEY, 1.0, dtype="f32"), DtypeError, "dtype must be an integer, not f32"),
        (lambda: random.geometric(KEY, 0.0), ConfigError, "p must be above 0 and at most 1"),
        (lambda: random.rademacher(KEY, (), "u8"), DtypeError, "a signed integer or a float, not u8"),
        (lambda: random.triangular(KEY, 0, 3, 2), ConfigError, "left <= mode <= right must hold"),
        (lambda: random.dirichlet(KEY, 1.0), ShapeError, "not a scalar"),
        (lambda: random.lognormal(KEY, -1), ConfigError, "sigma must be at least 0"),
        (lambda: random.bits(KEY, (3,), "i8"), DtypeError, "must be u8, u16, u32 or u64"),
        (lambda: random.randint(KEY, (3,), 5, 5), ConfigError, "must be a range of i32"),
        (lambda: random.choice(KEY, 3, (4,), replace=False), ConfigError, "4 of 3 cannot be drawn"),
        (lambda: random.choice(KEY, 3, p=np.ones(2)), ShapeError, r"p must be \[3\]"),
        (lambda: random.truncated_normal(KEY, 1.0, 0.0), ConfigError, "lower must be below upper"),
        (lambda: random.filter_logits(np.zeros(3), top_p=1.5), ConfigError, "top_p must be from 0 to 1"),
        (lambda: random.sample_logits(KEY, np.zeros(3), temperature=-1), ConfigError, "at least 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(ask, error, says):
    with pytest.raises(error, match=says):
        ask()
