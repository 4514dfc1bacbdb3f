"""Softmax against its formula, at the extremes, and along every axis."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_core.ops.softmax import log_softmax, softmax

INF = np.inf


def numpy_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -3])
def test_every_axis_of_distinct_sizes(axis: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    np.testing.assert_allclose(softmax(x, axis=axis), numpy_softmax(x, axis), rtol=1e-13)
    np.testing.assert_allclose(log_softmax(x, axis=axis), np.log(numpy_softmax(x, axis)), rtol=1e-12)


def test_a_row_of_nothing_but_minus_infinity_is_nan_or_zero_as_asked() -> None:
    x = np.array([[-INF, -INF], [-INF, 1.0]])
    assert np.isnan(softmax(x)[0]).all()
    assert softmax(x, empty_row="zero").tolist() == [[0, 0], [0, 1]]


def test_large_logits_neither_overflow_nor_vanish() -> None:
    x = np.array([1e4, 1e4 - 1, -1e4], np.float32)
    np.testing.assert_allclose(softmax(x), numpy_softmax(x.astype(float), 0), rtol=1e-6)  # f32: 2 ulp a step
    np.testing.assert_allclose(log_softmax(x), [-0.31326169, -1.31326169, -20000.313], rtol=1e-6)


def test_half_precision_rounds_once() -> None:
    x = np.linspace(-3, 3, 1000).astype(np.float16)
    exact = numpy_softmax(x.astype(float), 0)
    assert np.abs(softmax(x).astype(float) - exact).max() <= np.spacing(np.float16(exact.max())) / 2 * 1.01
