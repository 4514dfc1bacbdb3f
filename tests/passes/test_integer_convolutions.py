"""Convolutions of dequantised codes: where the codes are multiplied, what the program computes then, and what the report says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlx_core.ir.graph import Graph
from rlx_core.ir.interpret import interpret
from rlx_core.ops import piecewise
from rlx_core.ops.activation import relu
from rlx_core.ops.conversion import cast
from rlx_core.ops.convolution.conv import conv
from rlx_core.ops.selection import clip
from rlx_core.ops.structural import reshape
from rlx_core.passes.integer_products import IntegerProducts

from .programs import program, run

DRAW = np.random.default_rng(0)


def codes(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return DRAW.integers(info.min, info.max + 1, shape).astype(dtype)


def dequantised(q: Any, zero: Any, scale: Any) -> Any:
    centred = cast(q, to="f32")
    return (centred if zero is None else centred - (zero if isinstance(zero, float) else cast(zero, to="f32"))) * scale


def quantised(x: Any, scale: float, zero: float, to: str = "u8") -> Any:
    low, high = np.iinfo({"u8": np.uint8, "i8": np.int8}[to]).min, np.iinfo({"u8": np.uint8, "i8": np.int8}[to]).max
    return cast(cast(clip(piecewise.round(x / scale) + zero, float(low), float(high)), to="i32"), to=to)


def converted(before: Graph) -> tuple[Graph, Any]:
    result = run(IntegerProducts(), before)
    return result.graph, result.conversions


SCALES = np.linspace(0.1, 1, 6, dtype=np.float32).reshape(6, 1, 1, 1)

CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "one cell": (lambda x, w: conv(dequantised(x, 117.0, 0.5), dequantised(w, None, SCALES)), (6, 4, 1, 1)),
    "padding is 0": (
        lambda x, w: conv(dequantised(x, 117.0, 0.5), dequantised(w, None, 0.25), lo=(1, 2), hi=(1, 0)), (6, 4, 3, 3),
    ),
    "groups and steps": (
        lambda x, w: conv(dequantised(x, 9.0, 0.5), dequantised(w, 3.0, SCALES), stride=(2, 1), dilation=(1, 2), groups=2),
        (6, 2, 2, 3),
    ),
    "depthwise": (
        lambda x, w: conv(dequantised(x, 117.0, 0.5), dequantised(w, None, 0.25), lo=(1, 1), hi=(1, 1), groups=4),
        (4, 1, 3, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("of", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_codes_are_multiplied(name: str, of: tuple[str, str]) -> None:
    make, shape = CASES[name]
    arrays = {"x": codes(of[0], 2, 4, 6, 7), "w": codes(of[1], *shape)}
    types = {n: f"{a.dtype.kind}{8 * a.dtype.itemsize}{list(a.shape)}" for n, a in arrays.items()}
    before = program(make, **types)
    after, (entry,) = converted(before)
    assert entry.reason is None
    (node,) = [n for n in after.nodes if n.op.name == "rlx.conv"]
    assert [v.dtype.name for v in (*node.present(), *node.results)] == ["i16", "i16", "i32"]
    (exact,) = interpret(before, arrays, mode="wide")
    (result,) = interpret(after, arrays)
    np.testing.assert_allclose(result, exact, rtol=1e-6, atol=1e-6 * np.abs(exact).max())
    assert result.dtype == np.float32


KEPT: dict[str, Callable[..., Any]] = {
    "only one factor": lambda x, w, f: conv(f, dequantised(w, None, 0.5)),
    "a scale for each channel of x": lambda x, w, f: conv(
        dequantised(x, None, np.linspace(0.1, 1, 4, dtype=np.float32).reshape(4, 1, 1)), dequantised(w, None, 0.5)
    ),
    "a scale for each cell of w": lambda x, w, f: conv(
        dequantised(x, None, 0.5), dequantised(w, None, np.linspace(0.1, 1, 3, dtype=np.float32))
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_convolutions_are_kept(name: str) -> None:
    before = program(KEPT[name], x="u8[1, 4, 5, 5]", w="i8[6, 4, 3, 3]", f="f32[1, 4, 5, 5]")
    after, entries = converted(before)
    assert after is before
    assert not entries


def test_sums_that_i32_does_not_hold_are_kept() -> None:
    before = program(
        lambda x, w: conv(dequantised(x, None, 0.5), dequantised(w, None, 0.5)),
        x="u8[1, 33026, 1]",
        w="i8[1, 33026, 1]",
    )
    after, (entry,) = converted(before)
    assert after is before
    assert "33026" in entry.reason


BIAS = np.int32([-30000, -200, 0, 7, 900, 65000])


@pytest.mark.parametrize("rectified", [False, True])
@pytest.mark.parametrize("to", ["u8", "i8"])
def test_bias_and_scales_are_those_of_a_qlinear_conv(to: str, rectified: bool) -> None:
    """`round(f32(sums + bias) · (scales / scale)) + zero point`, as ONNX's QLinearConv computes it."""
    x_scale, scales, y_scale, zero = np.float32(0.02), SCALES / 100, np.float32(0.03), 11.0

    def layer(x: Any, w: Any) -> Any:
        bias = dequantised(BIAS, None, x_scale * scales.reshape(6))
        y = conv(dequantised(x, 117.0, x_scale), dequantised(w, None, scales)) + reshape(bias, (6, 1, 1))
        return quantised(relu(y) if rectified else y, y_scale, zero, to)

    arrays = {"x": codes("uint8", 2, 4, 6, 7), "w": codes("int8", 6, 4, 3, 3)}
    after, _ = converted(program(layer, x="u8[2, 4, 6, 7]", w="i8[6, 4, 3, 3]"))
    assert not any(n.op.name in ("rlx.div", "rlx.round") and n.type.rank == 4 for n in after.nodes)
    (result,) = interpret(after, arrays)
    view = np.lib.stride_tricks.sliding_window_view(arrays["x"].astype(np.int32) - 117, (3, 3), (2, 3))
    sums = np.einsum("nchwij,mcij->nmhw", view, arrays["w"].astype(np.int32)) + BIAS.reshape(6, 1, 1)
    scale = (x_scale * scales.reshape(6, 1, 1)) / y_scale
    y = sums.astype(np.float32) * scale
    limits = np.iinfo(result.dtype)
    expected = np.clip(np.rint(np.maximum(y, 0) if rectified else y) + zero, limits.min, limits.max)
    np.testing.assert_array_equal(result, expected.astype(result.dtype))


def test_a_bias_in_other_units_stays_a_sum_of_floats() -> None:
    def layer(x: Any, w: Any) -> Any:
        bias = dequantised(BIAS, None, np.float32(0.5))
        return conv(dequantised(x, None, 0.25), dequantised(w, None, 0.5)) + reshape(bias, (6, 1, 1))

    before = program(layer, x="u8[2, 4, 6, 7]", w="i8[6, 4, 3, 3]")
    arrays = {"x": codes("uint8", 2, 4, 6, 7), "w": codes("int8", 6, 4, 3, 3)}
    after, _ = converted(before)
    np.testing.assert_allclose(interpret(after, arrays)[0], interpret(before, arrays, mode="wide")[0], rtol=1e-6)


@pytest.mark.parametrize("to", ["u8", "i8"])
def test_roundings_have_the_same_codes(to: str) -> None:
    """Halves, numbers beyond the ends, infinities, NaN: of a float that is rounded to the codes that a convolution reads."""

    def layer(x: Any, w: Any) -> Any:
        y = quantised(x, np.float32(1.0), 7.0, to)
        return y, conv(dequantised(y, 7.0, 0.5), dequantised(w, None, 0.5)), dequantised(y, 7.0, 0.25)

    special = [
        0.5,
        1.5,
        -0.5,
        -2.5,
        1e30,
        -1e30,
        np.inf,
        -np.inf,
        np.nan,
        3e6,
        -0.0,
        247.5,
        248.5,
        -7.5,
        119.5,
        120.5,
        -135.5,
    ]
    x = np.float32([*special, *DRAW.uniform(-300, 300, 64 - len(special))]).reshape(1, 2, 4, 8)
    before = program(layer, x="f32[1, 2, 4, 8]", w="i8[6, 2, 1, 1]")
    after, (entry,) = converted(before)
    assert entry.reason is None
    arrays = {"x": x, "w": codes("int8", 6, 2, 1, 1)}
    for result, expected in zip(interpret(after, arrays), interpret(before, arrays), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_a_residual_is_a_sum_of_scaled_codes() -> None:
    def layer(x: Any, w: Any) -> Any:
        y = quantised(conv(dequantised(x, 3.0, 0.5), dequantised(w, None, 0.5)), np.float32(20.0), 9.0)
        return quantised(dequantised(y, 9.0, 20.0) + dequantised(x, 3.0, 0.5), np.float32(25.0), 8.0)

    before = program(layer, x="u8[1, 4, 5, 5]", w="i8[4, 4, 1, 1]")
    arrays = {"x": codes("uint8", 1, 4, 5, 5), "w": codes("int8", 4, 4, 1, 1)}
    after, _ = converted(before)
    assert not any(n.op.name == "rlx.div" and n.type.rank == 4 for n in after.nodes)
    difference = interpret(after, arrays)[0].astype(int) - interpret(before, arrays)[0]
    assert np.abs(difference).max() <= 1
    assert (difference != 0).mean() < 0.05
