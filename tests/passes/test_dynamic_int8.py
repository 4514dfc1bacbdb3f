"""Dynamic quantisation: which products are converted, what they compute, and what the report says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import ConfigError
from rlx_core.ir.graph import Graph
from rlx_core.ir.interpret import interpret
from rlx_core.ops.linalg import mat_mul
from rlx_core.passes.base import Conversion
from rlx_core.passes.dynamic_int8 import DynamicInt8

from .programs import ops, program, run

CONFIG = {"include": ["dynamic-int8"]}


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def converted(graph: Graph, **options: int) -> tuple[Graph, tuple[Conversion, ...]]:
    result = run(DynamicInt8(**options), graph)
    return result.graph, tuple(result.conversions)


def expected_of(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The product of codes with NumPy: symmetric, one scale for each row of x and each column of w."""
    s, t = np.abs(x).max(-1, keepdims=True) / np.float32(127), np.abs(w).max(0, keepdims=True) / np.float32(127)
    p, q = np.rint(x / s).astype(np.int32), np.rint(w / t).astype(np.int32)
    return (p @ q).astype(np.float32) * s * t


@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 96)])
def test_a_product_is_that_of_codes(shape: tuple[int, ...]) -> None:
    x, w = numbers(*shape), numbers(shape[-1], 80, seed=1)
    compiled = rlx.compile(lambda w, x: x @ w, w, rlx.spec(f"f32{list(shape)}"), config=CONFIG, target="cpu")
    np.testing.assert_array_equal(compiled(x), expected_of(x, w))


def test_bias_and_activation_follow_the_scales() -> None:
    params, x = {"w": numbers(64, 80), "b": numbers(80, seed=1)}, numbers(7, 64, seed=2)
    compiled = rlx.compile(
        lambda p, x: nn.linear(x, p["w"], p["b"], activation="relu"), params, rlx.spec("f32[n, 64]"), config=CONFIG
    )
    np.testing.assert_array_equal(compiled(x), np.maximum(expected_of(x, params["w"]) + params["b"], 0))


def test_rows_of_zeros_and_of_special_numbers() -> None:
    """A row of zeros has the result 0, one with NaN or an infinity is NaN, and no other row changes."""
    x, w = numbers(4, 64), numbers(64, 64, seed=1)
    x[0], x[1, 3], x[2, 5] = 0, np.nan, np.inf
    result = np.asarray(rlx.compile(lambda w, x: x @ w, w, rlx.spec("f32[4, 64]"), config=CONFIG)(x))
    assert not result[0].any()
    assert np.isnan(result[1:3]).all()
    np.testing.assert_array_equal(result[3], expected_of(x[3:], w)[0])


def test_the_default_pipeline_converts_nothing() -> None:
    compiled = rlx.compile(lambda w, x: x @ w, numbers(64, 64), rlx.spec("f32[4, 64]"))
    assert not compiled.report.conversions


KEPT: dict[str, tuple[str, str, str]] = {
    "few terms": ("f32[4, 63]", "f32[63, 64]", "its weight is small, [63, 64]"),
    "few columns": ("f32[4, 64]", "f32[64, 63]", "its weight is small, [64, 63]"),
    "a batch of weights": ("f32[2, 4, 64]", "f32[2, 64, 64]", "no weight that is known when parameters are bound"),
    "another dtype": ("f64[4, 64]", "f64[64, 64]", "its operands are f64"),
    "long sums": ("f32[1, 133145]", "f32[133145, 64]", "i32 does not hold sums of 133145 products of codes"),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_product_that_is_kept_has_its_reason(name: str) -> None:
    x, w, reason = KEPT[name]
    before = program(lambda x, w: mat_mul(x, w), params={"w": w}, x=x)
    after, (entry,) = converted(before)
    assert after is before
    assert entry.reason is not None
    assert reason in entry.reason


def test_a_product_of_two_inputs_is_kept() -> None:
    before = program(lambda x, y: mat_mul(x, y), x="f32[4, 64]", y="f32[64, 64]")
    after, (entry,) = converted(before)
    assert after is before
    assert entry.reason == "its right operand is no weight that is known when parameters are bound"


def test_sums_at_the_limit_are_exact() -> None:
    before = program(lambda x, w: mat_mul(x, w), params={"w": "f32[133144, 1]"}, x="f32[1, 133144]")
    after, _ = converted(before, min_columns=1)
    w = np.ones((133_144, 1), np.float32)
    (result,) = interpret(after, {"x": w.T}, {"w": w})
    assert abs(result.item() / 133_144 - 1) < 1e-6


def test_options_move_the_limits() -> None:
    before = program(lambda x, w: mat_mul(x, w), params={"w": "f32[8, 4]"}, x="f32[4, 8]")
    after, (entry,) = converted(before, min_terms=8, min_columns=4)
    assert entry.reason is None
    assert ops(after).count("matmul") == 1


def test_products_in_bodies_of_loops_are_listed() -> None:
    def chain(w: Any, x: Any) -> Any:
        return rlx.scan(lambda c, each: (c @ each, None), x, w)[0]

    compiled = rlx.compile(chain, numbers(3, 64, 64), rlx.spec("f32[4, 64]"), config={**CONFIG, "cache.disk": False})
    assert [entry.reason is None for entry in compiled.report.conversions] == [False]


def test_the_report_lists_products_with_bytes() -> None:
    params = {"large": numbers(64, 128), "small": numbers(128, 3)}
    compiled = rlx.compile(
        lambda p, x: x @ p["large"] @ p["small"], params, rlx.spec("f32[n, 64]"), config={**CONFIG, "cache.disk": False}
    )
    large, small = compiled.report.conversions
    assert (large.before, large.after, large.reason) == (64 * 128 * 4, 64 * 128 + 128 * 4, None)
    assert small.reason == "its weight is small, [128, 3]"
    text = str(compiled.report)
    assert "rlx.dynamic-int8 converted" in text
    assert "p.large" in text
    assert "24064 B less (32768 B before)" in text
    assert "rlx.dynamic-int8 kept" in text
    assert [entry["kept"] for entry in compiled.report.to_json()["conversions"]] == [None, small.reason]


def test_a_target_without_fast_products_keeps_them() -> None:
    compiled = rlx.compile(
        lambda w, x: x @ w, numbers(64, 64), rlx.spec("f32[4, 64]"),
        config={**CONFIG, "cache.disk": False, "options": {"cpu.tier": "numpy"}}, target="cpu",
    )  # fmt: skip
    (entry,) = compiled.report.conversions
    assert entry.reason == "cpu multiplies f32 faster than i8"


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(ConfigError, match="min-rows"):
        rlx.compile(
            lambda w, x: x @ w,
            numbers(64, 64),
            rlx.spec("f32[4, 64]"),
            config={"include": [{"dynamic-int8": {"min-rows": 4}}]},
        )
