"""Losses against their formulas in f64, at the extremes, and the rows that do not count."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_core.errors import ConfigError, IndexRangeError
from rlx_core.ops.loss import (
    binary_cross_entropy_with_logits,
    mean_squared_error,
    softmax_cross_entropy_backward,
    softmax_cross_entropy_with_logits,
)

RNG = np.random.default_rng(2)


def test_cross_entropy_is_the_negative_log_probability_of_the_label() -> None:
    logits, labels = RNG.normal(size=(5, 4)), np.array([0, 3, 1, 1, 2], np.uint8)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    loss = softmax_cross_entropy_with_logits(logits, labels)
    np.testing.assert_allclose(loss, -np.log(p[np.arange(5), labels]), rtol=1e-12)
    dl = RNG.normal(size=5)
    np.testing.assert_allclose(
        softmax_cross_entropy_backward(logits, labels, dl), (p - np.eye(4)[labels]) * dl[:, None], rtol=1e-12
    )


def test_ignored_rows_count_for_nothing_even_where_their_logits_are_nan() -> None:
    logits, labels = np.array([[1.0, 2.0], [np.nan, np.inf]]), np.array([0, -100])
    loss = softmax_cross_entropy_with_logits(logits, labels, ignore_index=-100)
    np.testing.assert_allclose(loss, [np.log1p(np.e), 0], rtol=1e-14)
    gradient = softmax_cross_entropy_backward(logits, labels, np.ones(2), ignore_index=-100)
    assert np.isfinite(gradient[0]).all()
    assert not gradient[1].any()


def test_extreme_logits_give_finite_losses() -> None:
    logits = np.array([[1e4, -1e4]], np.float32)
    assert softmax_cross_entropy_with_logits(logits, np.array([1])).item() == 2e4
    assert softmax_cross_entropy_with_logits(logits, np.array([0])).item() == 0


def test_a_label_outside_the_classes_is_refused_when_it_runs() -> None:
    with pytest.raises(IndexRangeError, match="2 elements"):
        softmax_cross_entropy_with_logits(np.zeros((1, 2)), np.array([2]))


def test_mean_squared_error_is_the_mean_over_all_elements() -> None:
    a, b = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
    np.testing.assert_allclose(mean_squared_error(a, b), ((a - b) ** 2).mean(), rtol=1e-14)


def test_binary_cross_entropy_matches_its_formula_and_never_overflows() -> None:
    x, t = RNG.normal(size=(3, 4)), RNG.uniform(size=(3, 4))
    p = 1 / (1 + np.exp(-x))
    expected = -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean()
    np.testing.assert_allclose(binary_cross_entropy_with_logits(x, t), expected, rtol=1e-12)
    assert binary_cross_entropy_with_logits(np.array([1e4, -1e4]), np.array([0.0, 0.0])) == 5e3


def test_binary_cross_entropy_is_reduced_as_asked() -> None:
    x, t = np.array([[0.5, -2.0], [3.0, 0.0]]), np.array([[1.0, 0.0], [0.25, 0.5]])
    each = binary_cross_entropy_with_logits(x, t, reduction="none")
    assert each.shape == x.shape
    np.testing.assert_allclose(binary_cross_entropy_with_logits(x, t, reduction="sum"), each.sum(), rtol=1e-12)
    np.testing.assert_allclose(binary_cross_entropy_with_logits(x, t), each.mean(), rtol=1e-12)
    with pytest.raises(ConfigError, match="reduction must be mean, sum or none, not 'max'"):
        binary_cross_entropy_with_logits(x, t, reduction="max")  # type: ignore[arg-type]
