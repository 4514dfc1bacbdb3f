"""Fused ops against the unfused formula in NumPy, for every attribute value."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlx_core.errors import ConfigError, UnknownNameError
from rlx_core.ops.activation import gelu
from rlx_core.ops.fused import (
    FusedMatMulBiasAct,
    fused_matmul_bias_act,
    fused_residual_ln,
    fused_residual_rms_norm,
    fused_swiglu,
)
from rlx_core.ops.normalization import layer_norm, rms_norm

RNG = np.random.default_rng(8)
erf = np.vectorize(math.erf)


def draw(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def numpy_gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + erf(x / math.sqrt(2))) / 2


def test_product_bias_and_activation_in_this_order() -> None:
    x, w, b = draw(2, 3, 4), draw(4, 5), draw(5)
    np.testing.assert_allclose(
        fused_matmul_bias_act(x, w, b, activation="gelu"), numpy_gelu(x @ w + b), rtol=1e-12, atol=1e-15
    )


def test_an_activation_is_a_name_a_function_or_an_op() -> None:
    assert FusedMatMulBiasAct("gelu") == FusedMatMulBiasAct(gelu) == FusedMatMulBiasAct(gelu.op())
    with pytest.raises(UnknownNameError) as caught:
        FusedMatMulBiasAct("gellu")
    assert caught.value.hint == "did you mean `gelu`?"
    with pytest.raises(ConfigError, match="one operand"):
        FusedMatMulBiasAct(FusedMatMulBiasAct())


@pytest.mark.parametrize("has_bias", [False, True])
def test_residual_norms_normalise_the_whole_sum(has_bias: bool) -> None:
    x, residual, gamma, beta, bias = draw(3, 4), draw(3, 4), draw(4), draw(4), draw(4)
    total = x + residual + (bias if has_bias else 0)
    operands = (x, residual, gamma, beta, *([bias] if has_bias else []))
    y, found = fused_residual_ln(*operands, with_sum=True, eps=0.1)
    np.testing.assert_allclose(found, total, rtol=1e-14)
    np.testing.assert_allclose(y, layer_norm(total, gamma, beta, eps=0.1), rtol=1e-12)
    np.testing.assert_allclose(fused_residual_rms_norm(*operands), rms_norm(total, gamma, beta), rtol=1e-12)


@pytest.mark.parametrize("gate_first", [False, True])
def test_swiglu_honours_which_half_is_the_gate(gate_first: bool) -> None:
    packed = draw(3, 8)
    up, gate = (packed[:, 4:], packed[:, :4]) if gate_first else (packed[:, :4], packed[:, 4:])
    np.testing.assert_allclose(fused_swiglu(packed, gate_first=gate_first), gate / (1 + np.exp(-gate)) * up, rtol=1e-12)
