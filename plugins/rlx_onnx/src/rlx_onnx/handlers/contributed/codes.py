"""Operations of `com.microsoft` on numbers with scales and zero points: what ONNX Runtime quantises and optimises models to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dims import product
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_onnx.handlers.contributed.operations import MICROSOFT
from rlx_onnx.handlers.quantised import dynamic_quantize, matmul_integer, rounded
from rlx_onnx.handlers.recurrent import Product, lstm_by
from rlx_onnx.handlers.windows import average_pool
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles, rows


def _real(x: Any, scale: Any, zero: Any) -> Any:
    """Return the numbers that quantised integers represent."""
    wide = rlx.astype(x, rlx.f32)
    return (wide if zero is None else wide - rlx.astype(zero, rlx.f32)) * scale


def _integers(y: Any, scale: Any, zero: Any, like: Any) -> Any:
    """Numbers as integers with a scale and a zero point; without one, in the dtype of an operand."""
    return rounded(y / scale, rlx.zeros((), dtype=dtype_of(like.dtype)) if zero is None else zero)


def _softmax(node: OnnxNode, x: Any) -> Any:
    axis = node.get("axis", 1 if node.get("opset", 13) < 13 else -1) % x.ndim
    if node.get("opset", 13) >= 13:
        return rlx.softmax(x, axis=axis)
    lines = rlx.reshape(x, (*x.shape[:axis], product(tuple(x.shape[axis:]))))  # older versions: all axes from one on
    return rlx.reshape(rlx.softmax(lines, axis=-1), x.shape)


def _channels_first(node: OnnxNode, x: Any, function: Callable[[OnnxNode, Any], Any]) -> Any:
    if not node.get("channels_last", 0):
        return function(node, x)
    return rlx.moveaxis(function(node, rlx.moveaxis(x, -1, 1)), 1, -1)


def _mean_of_all(node: OnnxNode, x: Any) -> Any:
    return rlx.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


def _reduced(node: OnnxNode, x: Any) -> Any:
    axes = node.get("axes")
    return rlx.mean(x, axis=None if axes is None else tuple(axes), keepdims=bool(node.get("keepdims", 1)))


OF_ONE: dict[str, Callable[[OnnxNode, Any], Any]] = {
    "QLinearSigmoid": lambda node, x: rlx.sigmoid(x),
    "QLinearLeakyRelu": lambda node, x: rlx.leaky_relu(x, node.get("alpha", 0.01)),
    "QLinearSoftmax": _softmax,
    "QLinearAveragePool": lambda node, x: _channels_first(node, x, average_pool),
    "QLinearGlobalAveragePool": lambda node, x: _channels_first(node, x, _mean_of_all),
    "QLinearReduceMean": _reduced,
}


@handles(*OF_ONE, domain=MICROSOFT)
def of_one(node: OnnxNode, x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None) -> Any:
    return _integers(OF_ONE[node.op](node, _real(x, x_scale, x_zero)), y_scale, y_zero, x)


@handles("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def of_two(
    node: OnnxNode,
    a: Any,
    a_scale: Any,
    a_zero: Any,
    b: Any,
    b_scale: Any,
    b_zero: Any,
    y_scale: Any,
    y_zero: Any = None,
) -> Any:
    function = rlx.add if node.op == "QLinearAdd" else rlx.multiply
    return _integers(function(_real(a, a_scale, a_zero), _real(b, b_scale, b_zero)), y_scale, y_zero, a)


rows(
    {
        "QLinearWhere": lambda node, at, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero: _integers(
            rlx.where(at, _real(a, a_scale, a_zero), _real(b, b_scale, b_zero)), y_scale, y_zero, a
        )
    },
    domain=MICROSOFT,
)


@handles("QLinearConcat", domain=MICROSOFT)
def concat(node: OnnxNode, y_scale: Any, y_zero: Any, *operands: Any) -> Any:
    """Operands come in threes: numbers, their scale and their zero point."""
    if not operands or len(operands) % 3:
        raise FormatError(f"{node}: {len(operands)} operands are no threes of numbers, scale and zero point")
    threes = [operands[i : i + 3] for i in range(0, len(operands), 3)]
    joined = rlx.concat([_real(*each) for each in threes], axis=node.get("axis"))
    return _integers(joined, y_scale, y_zero, operands[0])


@handles("QGemm", domain=MICROSOFT)
def gemm(
    node: OnnxNode,
    a: Any,
    a_scale: Any,
    a_zero: Any,
    b: Any,
    b_scale: Any,
    b_zero: Any,
    c: Any = None,
    y_scale: Any = None,
    y_zero: Any = None,
) -> Any:
    """alpha · a · b + c, where c counts in products of both scales; floats where no scale of results is given."""
    a = rlx.matrix_transpose(a) if node.get("transA", 0) else a
    b = rlx.matrix_transpose(b) if node.get("transB", 0) else b
    exact = matmul_integer(node, a, b, a_zero, b_zero)
    unit = node.get("alpha", 1.0) * a_scale * b_scale
    real = rlx.astype(exact if c is None else exact + c, rlx.f32) * unit
    return real if y_scale is None else _integers(real, y_scale, y_zero, a)


@handles("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_to_float(
    node: OnnxNode, a: Any, b: Any, a_scale: Any, b_scale: Any, a_zero: Any = None, b_zero: Any = None, bias: Any = None
) -> Any:
    result = rlx.astype(matmul_integer(node, a, b, a_zero, b_zero), dtype_of(b_scale.dtype)) * (a_scale * b_scale)
    return result if bias is None else result + bias


@handles("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_matmul(node: OnnxNode, a: Any, b: Any, b_scale: Any, b_zero: Any = None, bias: Any = None) -> Any:
    full, scale, zero = dynamic_quantize(node, a)
    return matmul_to_float(node, full, b, scale, b_scale, zero, b_zero, bias)


@handles("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_lstm(
    node: OnnxNode,
    x: Any,
    w: Any,
    r: Any,
    b: Any,
    lengths: Any,
    state: Any,
    cell: Any,
    peepholes: Any,
    w_scale: Any,
    w_zero: Any,
    r_scale: Any,
    r_zero: Any,
) -> Any:
    """An LSTM by products of integers: weights are `[directions, in, 4 · hidden]`, and inputs and states are quantised as
    `DynamicQuantizeLinear` does, inputs over all steps and states in each step."""

    def of(weights: Any, scale: Any, zero: Any) -> Product:
        def product(data: Any) -> Any:
            return dynamic_matmul(node, data, weights, scale, zero)

        return product

    def products(direction: int) -> tuple[Product, Product, Any]:
        size = w.shape[2]
        bias = rlx.zeros((size,), dtype=rlx.f32) if b is None else b[direction, :size] + b[direction, size:]
        quantised_weights = ((w, w_scale, w_zero), (r, r_scale, r_zero))
        of_inputs, of_states = (of(*(each[direction] for each in operands)) for operands in quantised_weights)
        return of_inputs, of_states, bias

    return lstm_by(node, x, r.shape[1], products, lengths, state, cell, peepholes)
