"""Codes with a scale and a zero point, and products of codes: ONNX's reference evaluator, hand-derived cases, batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import DtypeError, RlxError, ShapeError
from rlx_core.quantization import dequantize_linear, quantize_linear, quantized_conv, quantized_matmul

RNG = np.random.default_rng(0)
DTYPES = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16}


def evaluated(operator: str, *operands: np.ndarray, **attributes: Any) -> np.ndarray:
    """The result of one node by ONNX's reference evaluator."""
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    helper = onnx.helper
    inputs = [
        helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for i, x in enumerate(operands)
    ]
    node = helper.make_node(operator, [f"x{i}" for i in range(len(operands))], ["y"], **attributes)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.UNDEFINED, None)
    model = helper.make_model(
        helper.make_graph([node], "one", inputs, [y]), opset_imports=[helper.make_opsetid("", 21)]
    )
    return ReferenceEvaluator(model).run(None, {f"x{i}": x for i, x in enumerate(operands)})[0]


def codes(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_quantise_and_dequantise_are_those_of_onnx(dtype: str, axis: int | None) -> None:
    x = (RNG.standard_normal((3, 4, 5)) * 40).astype(np.float32)
    x[0, 0, :3] = [0.25, 0.75, 1e9]  # two ties, and saturation
    shape = () if axis is None else x.shape[axis]
    scale = np.full(shape, 0.5, np.float32) * np.exp2(RNG.integers(0, 3, shape)).astype(np.float32)
    zero = np.asarray(RNG.integers(0, 9, shape), DTYPES[dtype])
    attributes = {} if axis is None else {"axis": axis}
    found = quantize_linear(x, scale, zero, axis=axis, dtype=dtype)
    assert found.dtype == DTYPES[dtype]
    assert np.array_equal(found, evaluated("QuantizeLinear", x, scale, zero, **attributes))
    values = dequantize_linear(found, scale, zero, axis=axis)
    assert values.dtype == np.float32
    assert np.array_equal(values, evaluated("DequantizeLinear", np.asarray(found), scale, zero, **attributes))
    batched = rlx.vmap(lambda row: quantize_linear(row, scale, zero, axis=axis, dtype=dtype))(np.stack([x, -x]))
    assert np.array_equal(batched[0], found)
    assert np.array_equal(batched[1], quantize_linear(-x, scale, zero, axis=axis, dtype=dtype))


def test_the_ends_of_the_range() -> None:
    """Halves go to the even integer before the zero point is added; a scale of 0 saturates; NaN has code 0."""
    x = np.float32([np.nan, np.inf, -np.inf, 0.5, 1.5, 2.5, -0.5, 127.5, -128.5, 3e38])
    for call in (quantize_linear, rlx.jit(quantize_linear)):
        assert call(x, np.float32(1)).tolist() == [0, 127, -128, 0, 2, 2, 0, 127, -128, 127]
        assert call(x, np.float32(1), np.int8(1)).tolist()[3:7] == [1, 3, 3, 1]
        assert call(np.float32([-1, 0, 1]), np.float32(0)).tolist() == [-128, 0, 127]
    assert quantize_linear(np.float32([-3, 300]), 1.0, dtype="u8").tolist() == [0, 255]
    assert quantize_linear(np.zeros((0, 2), np.float32), 1.0).shape == (0, 2)
    assert quantize_linear(np.float64([1 / 3]), np.float64(1e-3)).tolist() == [127]
    assert dequantize_linear(np.int8([-128, 127]), np.float16(0.5)).dtype == np.float16


def test_gradients_of_values_reach_scales_and_zero_points() -> None:
    stored, scale, zero = codes((3, 4), np.int8), np.float64([0.5, 2, 1]), np.float64([1, -2, 0.5])
    g = RNG.standard_normal((3, 4))
    d_scale, d_zero = rlx.grad(
        lambda s, z: rlx.sum(dequantize_linear(stored, s, z, axis=0) * rlx.asarray(g)), argnums=(0, 1)
    )(scale, zero)
    # Values are computed in the dtype of the scale, f64.
    np.testing.assert_allclose(d_scale, ((stored - zero[:, None]) * g).sum(1), rtol=1e-12)
    np.testing.assert_allclose(d_zero, -(scale[:, None] * g).sum(1), rtol=1e-12)


def test_tangents_and_batches_of_values_follow_scales() -> None:
    codes, scale, tangent = np.int8([[1, -3], [4, 0]]), np.float32([0.5, 2]), np.float32([0.1, -1])

    def values(scale: Any) -> Any:
        return dequantize_linear(codes, scale, 1, axis=1)

    y, dy = rlx.jvp(values, (scale,), (tangent,))
    assert np.array_equal(y, (codes - 1.0) * scale)
    np.testing.assert_allclose(dy, (codes - 1.0) * tangent, rtol=1e-6)
    assert np.array_equal(rlx.vmap(values)(np.stack([scale, tangent]))[1], values(tangent))


def test_codes_in_the_linear_part_have_the_gradient_of_their_surrogate() -> None:
    """`straight_through` around a segment of integer ops: its value, and the gradient of x."""

    def f(x: Any) -> Any:
        return rlx.straight_through(dequantize_linear(quantize_linear(x, 0.5), 0.5), x)

    x = np.float32([0.3, -1.1, 90])
    value, pull = rlx.vjp(f, x)
    assert value.tolist() == [0.5, -1.0, 63.5]
    assert np.asarray(pull(np.float32([1, 2, 3]))[0]).tolist() == [1, 2, 3]


@pytest.mark.parametrize(("left", "right"), [("i8", "i8"), ("u8", "i8"), ("i8", "u8"), ("u8", "u8")])
@pytest.mark.parametrize("per_column", [False, True])
def test_products_are_those_of_onnx(left: str, right: str, per_column: bool) -> None:
    a, b = codes((2, 5, 40), DTYPES[left]), codes((40, 3), DTYPES[right])
    shape = (3,) if per_column else ()
    scales = np.float32(0.25), np.exp2(RNG.integers(-3, 0, shape)).astype(np.float32), np.float32(16)
    a_zero, b_zero = codes((), DTYPES[left]), codes(shape, DTYPES[right])
    y_zero = np.asarray(3, DTYPES[left])
    multiplier = scales[0] * scales[1] / scales[2]
    points = {"x_zero_point": a_zero, "w_zero_point": b_zero, "out_zero_point": y_zero}

    def call(a: Any, b: Any) -> Any:
        return quantized_matmul(a, b, multiplier=multiplier, dtype=left, **points)

    expected = evaluated("QLinearMatMul", a, scales[0], a_zero, b, scales[1], b_zero, scales[2], y_zero)
    assert np.array_equal(call(a, b), expected)
    assert np.array_equal(rlx.jit(call)(a, b), expected)
    assert np.array_equal(rlx.vmap(call, in_axes=(0, None))(a, b), expected)
    assert np.array_equal(rlx.vmap(call)(a, np.stack([b, b[::-1]]))[1], call(a[1], b[::-1]))
    moved = rlx.jit(
        lambda a, z: quantized_matmul(a, b, multiplier=multiplier, dtype=left, **{**points, "x_zero_point": z})
    )
    assert np.array_equal(moved(a, a_zero), expected)


def test_a_bias_is_added_to_the_sums() -> None:
    a, b, bias = codes((5, 40), np.int8), codes((40, 3), np.int8), codes((3,), np.int16).astype(np.int32)
    sums = a.astype(np.int64) @ b + bias
    expected = np.clip(np.rint(sums.astype(np.float32) * np.float32(1e-3)) - 4, -128, 127)
    assert np.array_equal(quantized_matmul(a, b, bias, multiplier=np.float32(1e-3), out_zero_point=-4), expected)
    wide = quantized_matmul(a, b, bias, multiplier=1.0, dtype="i16")
    assert np.array_equal(wide, np.clip(sums, -(2**15), 2**15 - 1))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("per_channel", [False, True])
def test_convolutions_are_those_of_onnx(groups: int, per_channel: bool) -> None:
    """Cells of the padding contribute 0: with zero points other than 0, which zeros as codes would not."""
    x, w = codes((2, 4, 6, 5), np.uint8), codes((6, 4 // groups, 3, 2), np.int8)
    shape = (6,) if per_channel else ()
    x_scale, y_scale = np.float32(0.25), np.float32(32)
    w_scale = np.exp2(RNG.integers(-3, 0, shape)).astype(np.float32)
    x_zero, w_zero, y_zero = np.uint8(200), codes(shape, np.int8), np.uint8(100)
    bias = codes((6,), np.int16).astype(np.int32)
    expected = evaluated(
        "QLinearConv",
        *(x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias),
        pads=[1, 0, 1, 1],
        strides=[2, 1],
        group=groups,
    )

    def call(x: Any) -> Any:
        return quantized_conv(
            x,
            w,
            bias,
            x_zero_point=x_zero,
            w_zero_point=w_zero,
            out_zero_point=y_zero,
            multiplier=x_scale * w_scale / y_scale,
            dtype="u8",
            stride=(2, 1),
            padding=((1, 1), (0, 1)),
            groups=groups,
        )

    assert np.array_equal(call(x), expected)
    assert np.array_equal(rlx.jit(call)(x), expected)
    assert np.array_equal(rlx.vmap(call)(x[None])[0], expected)


X, W = np.zeros((2, 3), np.int8), np.zeros((3, 4), np.int8)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: quantize_linear(np.ones(3, np.float32), np.ones(3, np.float32)), ShapeError, "scale"),
        (lambda: quantize_linear(np.ones(3, np.float32), np.ones(2, np.float32), axis=0), ShapeError, "scale"),
        (lambda: quantize_linear(np.ones(3, np.float32), 1.0, np.int8([0, 0]), axis=None), ShapeError, "zero_point"),
        (lambda: quantize_linear(np.ones(3, np.float32), 1.0, dtype="i32"), DtypeError, "i8, u8, i16, u16"),
        (lambda: quantize_linear(np.ones(3, np.float32), 1.0, axis=1), RlxError, "axis"),
        (lambda: dequantize_linear(np.ones(3, np.float32), 1.0), DtypeError, "integers"),
        (lambda: quantized_matmul(X.astype(np.float32), W, multiplier=1.0), DtypeError, "x must have codes"),
        (lambda: quantized_matmul(X, W[:2], multiplier=1.0), ShapeError, "contracted"),
        (lambda: quantized_matmul(X, W[0], multiplier=1.0), ShapeError, "rows and columns"),
        (lambda: quantized_matmul(X, W, np.zeros(3, np.int32), multiplier=1.0), ShapeError, "bias"),
        (lambda: quantized_matmul(X, W, multiplier=np.ones(3, np.float32)), ShapeError, "multiplier"),
        (lambda: quantized_matmul(X, W, x_zero_point=np.zeros(2, np.int8), multiplier=1.0), ShapeError, "x_zero_point"),
        (lambda: quantized_conv(X[None], X[None], multiplier=1.0, dtype="f32"), DtypeError, "dtype must be"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
