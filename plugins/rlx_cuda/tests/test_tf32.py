"""`cuda.tf32`: which products are rounded to ten bits of mantissa, by which rows, and that nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.plugins import PluginHost

TF32 = {"options": {"cuda.tf32": True}}
RNG = np.random.default_rng(11)


def on(host: PluginHost, f: Any, config: Any = TF32) -> Any:
    return rlx.jit(f, target="cuda", host=host, config=config)


def kept(x: np.ndarray) -> np.ndarray:
    """What TF32 keeps of f32: to the nearest, ties away from zero."""
    return ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)


def test_factors_of_f32_are_rounded_and_what_follows_is_not(host: PluginHost) -> None:
    x, w, b = (RNG.normal(size=shape).astype(np.float32) for shape in ((20, 30), (30, 25), (25,)))
    f = on(host, lambda x, w, b: rlx.tanh(x @ w + b))
    rounded = kept(x).astype(np.float64) @ kept(w) + b
    np.testing.assert_allclose(f(x, w, b), np.tanh(rounded), rtol=2e-5, atol=2e-6)
    assert np.abs(np.tanh(rounded) - np.tanh(x.astype(np.float64) @ w + b)).max() > 1e-4
    assert "product_epilogue_tf32" in str(f.report)


def test_without_the_option_nothing_is_rounded(host: PluginHost) -> None:
    x, w = (RNG.normal(size=shape).astype(np.float32) for shape in ((20, 30), (30, 25)))
    f = on(host, rlx.matmul, None)
    np.testing.assert_allclose(f(x, w), x.astype(np.float64) @ w, rtol=2e-5, atol=2e-5)
    assert "tf32" not in str(f.report)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_what_is_not_f32_is_multiplied_as_ever(host: PluginHost, dtype: Any) -> None:
    x, w = (RNG.integers(-4, 5, shape).astype(dtype) for shape in ((20, 30), (30, 25)))
    f = on(host, rlx.matmul)
    np.testing.assert_array_equal(f(x, w), x @ w)
    assert "tf32" not in str(f.report)


def test_a_number_that_is_none_or_infinite_stays_so(host: PluginHost) -> None:
    x = np.float32([[np.nan, 1], [np.inf, 1], [np.finfo(np.float32).max, 0]] + [[1, 1]] * 13)
    found = on(host, rlx.matmul)(x, np.eye(2, dtype=np.float32))
    assert np.isnan(found[0]).all()
    assert np.isinf(found[1, 0])
    assert np.isinf(found[2, 0]), "of the largest numbers the nearest with ten bits is none"
    np.testing.assert_array_equal(found[3:], 1)


@pytest.mark.medium
def test_attention_and_its_gradient_are_rounded(host: PluginHost) -> None:
    q, k, v = (RNG.normal(size=(2, 33, 48)).astype(np.float32) for _ in range(3))

    def loss(q: Any, k: Any, v: Any) -> Any:
        return rlx.sum(rlx.square(nn.attention(q, k, v, num_heads=2, is_causal=True)))

    gradients = rlx.grad(loss, argnums=(0, 1, 2))
    f, exact = on(host, gradients), on(host, gradients, None)
    for a, b in zip(f(q, k, v), exact(q, k, v), strict=True):
        wanted = np.asarray(b)
        np.testing.assert_allclose(a, wanted, atol=4e-3 * np.abs(wanted).max())
    assert "attention_units_tf32" in str(f.report)
    assert "attention_backward_units_tf32" in str(f.report)
    assert "attention_backward_tiles" in str(exact.report)
