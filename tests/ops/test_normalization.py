"""Norms against formulas in f64, on the data that breaks careless ones."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_core.ops.batch_norm import batch_norm, batch_norm_inference
from rlx_core.ops.normalization import group_norm, layer_norm, layer_norm2d, rms_norm
from rlx_core.ops.normalization_backward import rms_norm_backward_input

RNG = np.random.default_rng(3)


def standardized(x: np.ndarray, axes: tuple[int, ...], eps: float) -> np.ndarray:
    x = x.astype(np.float64)
    return (x - x.mean(axis=axes, keepdims=True)) / np.sqrt(x.var(axis=axes, keepdims=True) + eps)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (3,), (1, 3), (0, -2)])
def test_layer_norm_over_every_axis(axes: tuple[int, ...]) -> None:
    x = RNG.normal(size=(2, 3, 4, 5))
    np.testing.assert_allclose(layer_norm(x, axes=axes, eps=0.1), standardized(x, axes, 0.1), rtol=1e-12)


def test_affine_operands_lie_along_the_normalised_axes() -> None:
    x, gamma, beta = RNG.normal(size=(2, 3, 4)), RNG.normal(size=3), RNG.normal(size=3)
    expected = standardized(x, (1,), 1e-5) * gamma[:, None] + beta[:, None]
    np.testing.assert_allclose(layer_norm(x, gamma, beta, axes=1), expected, rtol=1e-12)


def test_rms_norm_divides_by_the_root_mean_square() -> None:
    x, gamma = RNG.normal(size=(3, 8)), RNG.normal(size=8)
    expected = x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.3) * gamma
    np.testing.assert_allclose(rms_norm(x, gamma, eps=0.3), expected, rtol=1e-13)


def test_the_second_term_of_the_rms_gradient_has_the_cube_of_r() -> None:
    x, dy, eps = RNG.normal(size=(1, 4)), RNG.normal(size=(1, 4)), 2.0  # eps that matters tells r³ from r²
    r = 1 / np.sqrt((x * x).mean() + eps)
    np.testing.assert_allclose(rms_norm_backward_input(x, dy, eps=eps), r * dy - r**3 * x * (x * dy).mean(), rtol=1e-12)


def test_group_norm_keeps_its_digits_on_data_with_a_large_mean() -> None:
    x = (RNG.normal(size=(2, 4, 64)) + 1e4).astype(np.float32)
    expected = standardized(x.reshape(2, 2, -1), (2,), 1e-5).reshape(x.shape)
    # f32 at 1e4 has steps of 1e-3, which unit variance keeps; the mean of 128 costs a step more.
    # E[x²] - μ² would be off by 1e8 · 2⁻²⁴ = 6 in a variance of 1.
    assert np.abs(group_norm(x, groups=2) - expected).max() < 3e-3


def test_group_norm_scales_per_channel() -> None:
    x, gamma, beta = RNG.normal(size=(2, 6, 3, 2)), RNG.normal(size=6), RNG.normal(size=6)
    x_hat = standardized(x.reshape(2, 3, -1), (2,), 1e-5).reshape(x.shape)
    expected = x_hat * gamma[:, None, None] + beta[:, None, None]
    np.testing.assert_allclose(group_norm(x, gamma, beta, groups=3), expected, rtol=1e-12, atol=1e-14)


def test_layer_norm_2d_normalises_channels_at_each_place() -> None:
    x = RNG.normal(size=(2, 3, 4, 5))
    np.testing.assert_allclose(layer_norm2d(x, eps=0.1), standardized(x, (1,), 0.1), rtol=1e-12)


@pytest.mark.parametrize("axis", [1, -1, 0])
def test_batch_norm_uses_biased_and_stores_unbiased_variance(axis: int) -> None:
    x = RNG.normal(size=(4, 4, 4))
    others = tuple(a for a in range(3) if a != axis % 3)
    one, zero = np.ones(4), np.zeros(4)
    y, mean, var, running_mean, running_var = batch_norm(x, one, zero, zero, one, axis=axis, eps=0.1, momentum=0.3)
    np.testing.assert_allclose(y, standardized(x, others, 0.1), rtol=1e-12)
    np.testing.assert_allclose(var, x.var(axis=others), rtol=1e-12)
    np.testing.assert_allclose(running_mean, 0.3 * x.mean(axis=others), rtol=1e-12)
    np.testing.assert_allclose(running_var, 0.7 + 0.3 * x.var(axis=others, ddof=1), rtol=1e-12)
    again = batch_norm_inference(x, one, zero, mean, var, axis=axis, eps=0.1)
    np.testing.assert_allclose(again, y, rtol=1e-12)


def test_a_wide_scale_beside_narrow_data_is_not_rounded_to_it() -> None:
    x = np.array([[1.0, -1.0]], np.float16)
    gamma = np.array([1 + 2**-12, 1], np.float32)  # 2**-12 is lost in f16, and shows after the product with 2048
    y = layer_norm(x, gamma * 2048, eps=0.0)
    assert y.dtype == np.float16
    assert y[0, 0] == np.float16(2048 * (1 + 2**-12))
