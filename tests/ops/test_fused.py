"""Fused ops against the unfused formula in NumPy, for every attribute value."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlx_core.errors import ConfigError, UnknownNameError
from rlx_core.ops.activation import gelu
from rlx_core.ops.attention import attention
from rlx_core.ops.fused import (
    FusedMatMulBiasAct,
    fused_matmul_bias_act,
    fused_residual_ln,
    fused_residual_rms_norm,
    fused_swiglu,
)
from rlx_core.ops.fused_layers import fused_attention_block, fused_transformer_layer
from rlx_core.ops.normalization import layer_norm, rms_norm
from rlx_core.ops.rope import rope

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


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("has_tables", [False, True])
def test_attention_block_is_project_split_rotate_attend_project(has_bias: bool, has_tables: bool) -> None:
    hidden, qkv_w, out_w = draw(2, 3, 5), draw(5, 16), draw(8, 5)
    qkv_b, out_b = (draw(16), draw(5)) if has_bias else (None, None)
    cos, sin = (draw(3, 1), draw(3, 1)) if has_tables else (None, None)
    mask = np.array([[True, True, False], [True, True, True]])
    packed = hidden @ qkv_w + (qkv_b if has_bias else 0)
    q, k, v = packed[..., :8], packed[..., 8:12], packed[..., 12:]
    if has_tables:
        q, k = rope(q, cos, sin, head_dim=2), rope(k, cos, sin, head_dim=2)
    o = attention(q, k, v, mask, num_heads=4, num_kv_heads=2, head_dim=2)
    y = fused_attention_block(
        hidden, qkv_w, out_w, mask, qkv_b, out_b, cos, sin, num_heads=4, num_kv_heads=2, head_dim=2, mask_kind="custom"
    )
    np.testing.assert_allclose(y, o @ out_w + (out_b if has_bias else 0), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("has_bias", [False, True])
def test_transformer_layer_with_and_without_biases(has_bias: bool) -> None:
    x = draw(2, 3, 4)
    w = {"qkv": draw(4, 12), "out": draw(4, 4), "fc1": draw(4, 6), "fc2": draw(6, 4)}
    g1, b1, g2, b2 = draw(4), draw(4), draw(4), draw(4)
    biases = [draw(12), draw(4), draw(6), draw(4)] if has_bias else [None] * 4
    qkv_b, out_b, fc1_b, fc2_b = (0 if b is None else b for b in biases)
    q, k, v = np.split(x @ w["qkv"] + qkv_b, 3, axis=-1)
    attended = attention(q, k, v, num_heads=2, head_dim=2) @ w["out"] + out_b
    h = layer_norm(attended + x, g1, b1, eps=0.1)
    inner = numpy_gelu(h @ w["fc1"] + fc1_b) @ w["fc2"] + fc2_b
    y = fused_transformer_layer(
        x, w["qkv"], w["out"], g1, b1, w["fc1"], w["fc2"], g2, b2, None, *biases,
        num_heads=2, head_dim=2, intermediate_size=6, activation="gelu", eps1=0.1, eps2=0.2,
    )  # fmt: skip
    np.testing.assert_allclose(y, layer_norm(inner + h, g2, b2, eps=0.2), rtol=1e-11)
