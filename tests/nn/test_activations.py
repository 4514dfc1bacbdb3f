"""Activations that are written with ops: values by their formulas, the dtype of the result, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn, random
from rlx_core.errors import ConfigError, DtypeError, ShapeError

X = np.linspace(-4, 4, 48).reshape(2, 6, 4)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


FORMULAS = {
    "glu": (nn.glu, lambda x: x[..., :2] * sigmoid(x[..., 2:])),
    "glu axis": (lambda x: nn.glu(x, axis=1), lambda x: x[:, :3] * sigmoid(x[:, 3:])),
    "log_sigmoid": (nn.log_sigmoid, lambda x: np.log(sigmoid(x))),
    "soft_sign": (nn.soft_sign, lambda x: x / (1 + np.abs(x))),
    "squareplus": (nn.squareplus, lambda x: (x + np.sqrt(x * x + 4)) / 2),
    "soft_shrink": (nn.soft_shrink, lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0)),
    "hard_shrink": (lambda x: nn.hard_shrink(x, lambd=1.2), lambda x: x * (np.abs(x) > 1.2)),
    "tanh_shrink": (nn.tanh_shrink, lambda x: x - np.tanh(x)),
    "threshold": (lambda x: nn.threshold(x, 0.3, -7.0), lambda x: np.where(x > 0.3, x, -7.0)),
    "prelu": (lambda x: nn.prelu(x, np.array([0.25], x.dtype)), lambda x: np.where(x > 0, x, x / 4)),
    "prelu of channels": (
        lambda x: nn.prelu(x, np.arange(6, dtype=x.dtype)),
        lambda x: np.where(x > 0, x, x * np.arange(6.0)[:, None]),
    ),
    "prelu channels last": (
        lambda x: nn.prelu(x, np.arange(4, dtype=x.dtype), layout="nhwc"),
        lambda x: np.where(x > 0, x, x * np.arange(4.0)),
    ),
    "softmin": (lambda x: nn.softmin(x, axis=1), lambda x: np.exp(-x) / np.exp(-x).sum(1, keepdims=True)),
    "standardize": (
        nn.standardize,
        lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
    ),
    "normalize": (nn.normalize, lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)),
    "normalize ord=1": (
        lambda x: nn.normalize(x, axis=(0, 1), p=1),
        lambda x: x / np.abs(x).sum((0, 1), keepdims=True),
    ),
}


@pytest.mark.parametrize(("ours", "formula"), FORMULAS.values(), ids=FORMULAS)
def test_an_activation_is_its_formula_and_keeps_the_dtype(ours, formula):
    np.testing.assert_allclose(ours(X), formula(X), rtol=1e-12)
    half = X.astype(np.float16)
    found = ours(half)
    assert found.dtype == np.float16
    np.testing.assert_allclose(
        found, formula(half.astype(np.float64)), rtol=2e-3, atol=1e-7
    )  # f16: half an ulp is 5e-4


def test_what_would_overflow_does_not():
    far = np.float32([-1e4, 1e4])
    assert nn.log_sigmoid(far).tolist() == [-1e4, 0.0]
    assert nn.soft_sign(np.float16([6e4])).tolist() == [1.0]
    assert nn.squareplus(np.float16([6e4])).tolist() == [np.float16(6e4)]


def test_a_vector_of_zeros_is_normalised_to_zeros_and_has_a_gradient():
    zeros = np.zeros(3, np.float32)
    assert nn.normalize(zeros).tolist() == [0, 0, 0]
    assert np.isfinite(rlx.grad(lambda x: rlx.sum(nn.normalize(x)))(zeros)).all()


def test_nan_stays_nan():
    for f in (nn.hard_shrink, nn.soft_shrink, nn.tanh_shrink, lambda x: nn.threshold(x, 0.0, 1.0)):
        assert np.isnan(f(np.float32([np.nan]))).all()


def test_a_hard_sample_is_one_hot_with_the_gradient_of_the_soft_one():
    key, logits = random.key(4), np.random.default_rng(0).normal(size=(50, 3, 2)).astype(np.float32)
    soft, hard = (nn.gumbel_softmax(key, logits, temperature=0.7, hard=h, axis=1) for h in (False, True))
    np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-6)
    assert (hard == (soft == soft.max(1, keepdims=True))).all()
    weights = np.arange(6, dtype=np.float32).reshape(3, 2)
    gradients = [
        rlx.grad(lambda x, h=h: rlx.sum(nn.gumbel_softmax(key, x, temperature=0.7, hard=h, axis=1) * weights))(logits)
        for h in (False, True)
    ]
    assert np.abs(gradients[0]).max() > 0.1
    np.testing.assert_allclose(*gradients, rtol=1e-6)


def test_hard_samples_are_as_frequent_as_their_probabilities():
    p = np.array([0.1, 0.2, 0.7])
    drawn = nn.gumbel_softmax(random.key(1), np.tile(np.log(p), (4000, 1)), hard=True).mean(0)
    assert np.abs(drawn - p).max() < 4 * 0.5 / 4000**0.5


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda: nn.glu(np.ones((2, 3))), ShapeError, "an axis of 3 elements has no halves"),
        (lambda: nn.prelu(X, np.ones(4)), ShapeError, r"weight must be \[\], \[1\] or \[6\], not \[4\]"),
        (lambda: nn.soft_sign([1, 2]), DtypeError, "x must be a float, not i64"),
        (lambda: nn.soft_shrink(X, lambd=-1), ConfigError, "lambd must be at least 0"),
        (lambda: nn.threshold(X, "a", 0.0), ConfigError, "threshold must be a number"),
        (lambda: nn.gumbel_softmax(random.key(0), X, temperature=0), ConfigError, "temperature must be above 0"),
        (lambda: nn.gumbel_softmax(X, X), DtypeError, "key must be a random key"),
    ],
)
def test_what_means_nothing_is_refused(ask, error, says):
    with pytest.raises(error, match=says):
        ask()
