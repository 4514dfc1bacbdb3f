"""Activations rounded to i8 in blocks: which products are converted, what they compute, and what the report says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.ir.graph import Graph, Value
from rlx_core.ir.interpret import interpret
from rlx_core.ops.linalg import swap_last
from rlx_core.ops.structural import reshape
from rlx_core.passes.base import Conversion
from rlx_core.passes.quantized_activations import QuantizedActivations, largest
from rlx_core.quantization import QuantizedArray, quantize

from .programs import ops, program, run

CONFIG = {"include": ["quantized-activations"]}

LINEAR = (
    *("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_k", "int4", "int8"),
    *("int4_asymmetric", "int8_asymmetric", "iq4_nl", "iq4_xs", "mxfp4", "tq1_0", "tq2_0"),
)
"""Schemes whose values are codes times scales plus offsets."""

OTHERS = ("nvfp4", "fp4_e2m1", "fp8_e4m3", "fp8_e5m2")


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def dequantised_product(weight: QuantizedArray, x: Any) -> Any:
    return x @ weight.dequantize().T


def converted(graph: Graph, **options: int) -> tuple[Graph, tuple[Conversion, ...]]:
    result = run(QuantizedActivations(**options), graph)
    return result.graph, tuple(result.conversions)


def rounded(x: np.ndarray, block: int) -> np.ndarray:
    """Activations after rounding to 255 codes in blocks."""
    blocks = x.reshape(*x.shape[:-1], -1, block)
    scales = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    return (np.rint(blocks / scales) * scales).reshape(x.shape)


def block_of(compiled: Any) -> int:
    (node,) = (step.node for step in compiled.executable.lir.steps if "block_scaled" in step.node.op.name)
    x, x_scales, *_ = node.present()
    return x.shape[-1] // x_scales.shape[-1]


@pytest.mark.parametrize("scheme", LINEAR)
def test_a_product_is_that_of_rounded_activations_and_the_values_of_a_scheme(scheme: str) -> None:
    weight, x = quantize(numbers(70, 512), scheme), numbers(3, 512, seed=1)
    compiled = rlx.compile(
        dequantised_product, weight, rlx.spec("f32[3, 512]"), config={**CONFIG, "cache.disk": False}, target="cpu"
    )
    (entry,) = compiled.report.conversions
    assert entry.reason is None
    expected = rounded(x, block_of(compiled)).astype("f8") @ np.asarray(weight.dequantize(), "f8").T
    np.testing.assert_allclose(compiled(x), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("scheme", OTHERS)
def test_other_schemes_are_kept(scheme: str) -> None:
    weight, x = quantize(numbers(70, 512), scheme), numbers(3, 512, seed=1)
    spec = rlx.spec("f32[3, 512]")
    kept = rlx.compile(dequantised_product, weight, spec, config={**CONFIG, "cache.disk": False}, target="cpu")
    (entry,) = kept.report.conversions
    assert entry.reason == "its weight is not computed from codes and scales of blocks along the contracted axis"
    np.testing.assert_array_equal(kept(x), rlx.compile(dequantised_product, weight, spec, target="cpu")(x))


@pytest.mark.parametrize("shape", [(7, 64), (2, 3, 64), (1, 1, 64)])
def test_any_number_of_rows_has_the_same_results(shape: tuple[int, ...]) -> None:
    weight, x = quantize(numbers(70, 64), "q4_0"), numbers(*shape, seed=1)
    names = ", ".join("abc"[i] for i in range(len(shape) - 1))
    compiled = rlx.compile(dequantised_product, weight, rlx.spec(f"f32[{names}, 64]"), config=CONFIG, target="cpu")
    one = rlx.compile(dequantised_product, weight, rlx.spec("f32[1, 64]"), config=CONFIG, target="cpu")
    rows = np.concatenate([np.asarray(one(row[None])) for row in x.reshape(-1, 64)])
    np.testing.assert_array_equal(compiled(x), rows.reshape(*shape[:-1], 70))


def test_rows_of_zeros_and_of_special_numbers() -> None:
    """A row of zeros has the result 0, one with NaN or an infinity is NaN, and no other row changes."""
    weight, x = quantize(numbers(64, 64), "q4_1"), numbers(4, 64, seed=1)
    compiled = rlx.compile(dequantised_product, weight, rlx.spec("f32[4, 64]"), config=CONFIG, target="cpu")
    expected = np.array(compiled(x))
    x[0], x[1, 3], x[2, 5] = 0, np.nan, np.inf
    result = np.asarray(compiled(x))
    assert not result[0].any()
    assert np.isnan(result[1:3]).all()
    np.testing.assert_array_equal(result[3], expected[3])


def test_bias_and_activation_follow_the_product() -> None:
    params, x = {"w": quantize(numbers(70, 64), "q4_0"), "b": numbers(70, seed=1)}, numbers(3, 64, seed=2)
    spec = rlx.spec("f32[3, 64]")
    with_bias = rlx.compile(
        lambda p, x: nn.linear(x, p["w"].dequantize().T, p["b"], activation="relu"), params, spec, config=CONFIG,
        target="cpu",
    )  # fmt: skip
    product = rlx.compile(dequantised_product, params["w"], spec, config=CONFIG, target="cpu")
    np.testing.assert_array_equal(with_bias(x), np.maximum(np.asarray(product(x)) + params["b"], 0))
    assert "rlx.block_scaled_matmul" in [step.node.op.name for step in with_bias.executable.lir.steps]


def test_products_of_one_operand_share_its_codes() -> None:
    weights = [quantize(numbers(64, 64, seed=seed), scheme) for seed, scheme in enumerate(("q4_0", "q8_0"))]
    compiled = rlx.compile(
        lambda w, x: dequantised_product(w[0], x) + dequantised_product(w[1], x), weights, rlx.spec("f32[1, 64]"),
        config={**CONFIG, "cache.disk": False}, target="cpu",
    )  # fmt: skip
    codes = {next(s.node.present()) for s in compiled.executable.lir.steps if "block_scaled" in s.node.op.name}
    assert len(codes) == 1


def test_the_default_pipeline_converts_nothing() -> None:
    compiled = rlx.compile(dequantised_product, quantize(numbers(64, 64), "q4_0"), rlx.spec("f32[4, 64]"))
    assert not compiled.report.conversions


def of_bytes(x: Value, w: Value, s: Value) -> Value:
    """A product by codes `[n, k]` with scales `[n, blocks, 1]`."""
    n, k = w.shape
    blocks = reshape(w, (n, s.shape[1], k // s.shape[1]))
    return x @ swap_last(reshape(rlx.astype(blocks, "f32") * s, (n, k)))


KEPT = {
    "few columns": ({"w": "i8[63, 64]", "s": "f32[63, 2, 1]"}, "f32[4, 64]", "its weight is small, [64, 63]"),
    "scales of elements": (
        {"w": "i8[64, 64]", "s": "f32[64, 2, 32]"}, "f32[4, 64]", "its weight is not computed from codes and scales",
    ),
    "wide codes": (
        {"w": "i16[64, 64]", "s": "f32[64, 2, 1]"}, "f32[4, 64]", "its weight is not computed from codes and scales",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_a_product_that_is_kept_has_its_reason(name: str) -> None:
    params, x, reason = KEPT[name]
    before = program(of_bytes, params=params, x=x)
    after, (entry,) = converted(before)
    assert after is before
    assert entry.reason is not None
    assert reason in entry.reason


def test_a_weight_that_is_an_input_is_kept() -> None:
    before = program(of_bytes, x="f32[4, 64]", w="i8[64, 64]", s="f32[64, 2, 1]")
    after, (entry,) = converted(before)
    assert after is before
    assert entry.reason == "its right operand is no weight that is known when parameters are bound"


def test_options_move_the_limit() -> None:
    before = program(of_bytes, params={"w": "i8[4, 64]", "s": "f32[4, 2, 1]"}, x="f32[2, 64]")
    after, (entry,) = converted(before, min_columns=4)
    assert entry.reason is None
    assert "block_scaled_matmul" in ops(after)
    arrays = {"w": np.arange(256, dtype="i1").reshape(4, 64), "s": numbers(4, 2, 1)}
    x = numbers(2, 64, seed=1)
    (result,) = interpret(after, {"x": x}, arrays)
    values = (arrays["w"].reshape(4, 2, 32) * arrays["s"]).reshape(4, 64)
    np.testing.assert_allclose(result, rounded(x, 32) @ values.T, rtol=1e-5, atol=1e-3)


def test_the_report_lists_products_with_bytes() -> None:
    params = {"narrow": quantize(numbers(128, 64), "q4_0"), "wide": numbers(128, 80)}
    compiled = rlx.compile(
        lambda p, x: dequantised_product(p["narrow"], x) @ p["wide"], params, rlx.spec("f32[n, 64]"),
        config={**CONFIG, "cache.disk": False}, target="cpu",
    )  # fmt: skip
    narrow, wide = compiled.report.conversions
    assert (narrow.before, narrow.after, narrow.reason) == (128 * 2 * 18, 128 * 64 // 2 + 128 * 2 * 2, None)
    assert (wide.before, wide.after) == (128 * 80 * 4,) * 2
    assert "p.narrow" in narrow.what
    assert "rlx.quantized-activations kept" in str(compiled.report)


def test_a_target_without_a_kernel_keeps_products() -> None:
    compiled = rlx.compile(
        dequantised_product, quantize(numbers(64, 64), "q4_0"), rlx.spec("f32[4, 64]"),
        config={**CONFIG, "cache.disk": False, "options": {"cpu.tier": "numpy"}}, target="cpu",
    )  # fmt: skip
    (entry,) = compiled.report.conversions
    assert entry.reason is not None
    assert "does not run rlx.block_scaled_matmul" in entry.reason


@pytest.mark.parametrize(
    ("bits", "make"),
    [
        (4, lambda x: rlx.bitwise_and(rlx.bitwise_right_shift(x, np.array([[0], [4]], np.uint8)), np.uint8(15))),
        (5, lambda x: rlx.bitwise_or(rlx.bitwise_and(x, np.uint8(15)), rlx.bitwise_and(x, np.uint8(16)))),
        (6, lambda x: rlx.bitwise_left_shift(rlx.bitwise_and(x, np.uint8(3)), np.uint8(4))),
        (3, lambda x: rlx.where(np.array([True, False]), np.uint8(2), np.uint8(7))),
        (8, lambda x: rlx.bitwise_left_shift(x, np.uint8(1))),
        (8, lambda x: x),
    ],
)
def test_bits_of_codes_are_bounded_by_their_operations(bits: int, make: Any) -> None:
    graph = program(make, x="u8[2, 2]")
    assert largest(graph.outputs[0]).bit_length() == bits
