"""Quantised operations of `com.microsoft`, beside ONNX Runtime, whose they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx_graphs import node

from rlx_onnx import load

DRAW = np.random.default_rng(4)
EMPTY = np.zeros(0)
"""An operand that is left out."""


def bytes_of(*size: int, low: int = 0, high: int = 256, dtype: str = "u1") -> np.ndarray:
    return DRAW.integers(low, high, size).astype(dtype)


def signed(*size: int) -> np.ndarray:
    """Factors of unsigned bytes of which ONNX Runtime adds two in 16 bits without saturation, as it does without VNNI."""
    return bytes_of(*size, low=-63, high=64, dtype="i1")


def point(scale: float, zero: int, dtype: str = "u1") -> list[np.ndarray]:
    return [np.array(scale, "f"), np.array(zero, dtype)]


A, B, Y, S = point(0.02, 120), point(0.03, 117), point(0.05, 130), point(0.02, 5, "i1")
PICTURE = bytes_of(2, 3, 4, 4)
CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "add": ("QLinearAdd", [bytes_of(2, 3), *A, bytes_of(3), *B, *Y], {}),
    "add-signed": ("QLinearAdd", [signed(2, 3), *S, signed(3), *point(0.01, -3, "i1"), *point(0.04, 1, "i1")], {}),
    "mul": ("QLinearMul", [bytes_of(2, 3), *A, bytes_of(2, 3), *B, *Y], {}),
    "sigmoid": ("QLinearSigmoid", [bytes_of(2, 3), *A, *point(1 / 256, 0)], {}),
    "leaky-relu": ("QLinearLeakyRelu", [bytes_of(2, 3), *A, *Y], {"alpha": 0.2}),
    "softmax": ("QLinearSoftmax", [bytes_of(3, 5), *A, *point(1 / 256, 0)], {"axis": -1, "opset": 13}),
    "softmax-of-old": ("QLinearSoftmax", [bytes_of(2, 3, 5), *A, *point(1 / 256, 0)], {"axis": 1, "opset": 11}),
    "mean-of-all": ("QLinearGlobalAveragePool", [PICTURE, *A, *Y], {}),
    "mean-of-all-channels-last": ("QLinearGlobalAveragePool", [PICTURE, *A, *Y], {"channels_last": 1}),
    "means": ("QLinearAveragePool", [PICTURE, *A, *Y], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "concat": ("QLinearConcat", [*Y, bytes_of(2, 3), *A, bytes_of(2, 2), *B], {"axis": 1}),
    "where": ("QLinearWhere", [bytes_of(2, 3) > 120, bytes_of(2, 3), *A, bytes_of(2, 3), *B, *Y], {}),
    "gemm": ("QGemm", [bytes_of(3, 4), *A, signed(5, 4), *point(0.01, 0, "i1"), bytes_of(5, dtype="i4"), *Y], {"transB": 1}),
    "gemm-by-column-to-floats": (
        "QGemm",
        [bytes_of(3, 4), *A, signed(4, 2), np.array([0.01, 0.02], "f"), np.array([0, 0], "i1")],
        {"alpha": 1.0},
    ),
    "matmul-to-floats": (
        "MatMulIntegerToFloat",
        [bytes_of(3, 4), signed(4, 2), A[0], np.array([0.01, 0.02], "f"), A[1], EMPTY, np.array([0.5, -1], "f")],
        {},
    ),
    "dynamic-matmul": (
        "DynamicQuantizeMatMul",
        [DRAW.normal(size=(3, 4)).astype("f"), signed(4, 2), *point(0.01, 3, "i1"), np.array([0.5, -1], "f")],
        {},
    ),
}  # fmt: skip


def both(op: str, operands: list[Any], attributes: dict[str, Any], results: int = 1) -> tuple[list[Any], list[Any]]:
    """What rlx and ONNX Runtime give for a node; the first operand that has axes is an input."""
    runtime = pytest.importorskip("onnxruntime")
    names = ["" if each is EMPTY else f"x{i}" for i, each in enumerate(operands)]
    given = next(i for i, each in enumerate(operands) if each.ndim)
    kinds = {n: helper.np_dtype_to_tensor_dtype(each.dtype) for n, each in zip(names, operands, strict=True) if n}
    inputs = [helper.make_tensor_value_info(names[given], kinds[names[given]], operands[given].shape)]
    tensors = [
        numpy_helper.from_array(x, n) for i, (n, x) in enumerate(zip(names, operands, strict=True)) if n and i != given
    ]
    outputs = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(results)]
    nodes = [node(op, names, [each.name for each in outputs], domain="com.microsoft", **attributes)]
    graph = helper.make_graph(nodes, "test", inputs, outputs, tensors)
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=sets, ir_version=8)
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = 1  # threads of the runtime quantise their own rows of a state by their own extremes
    session = runtime.InferenceSession(proto.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    found = load(proto)(operands[given])
    return list(found.values()) if isinstance(found, dict) else [found], session.run(
        None, {names[given]: operands[given]}
    )


@pytest.mark.parametrize("name", CASES)
def test_integers_are_those_of_the_runtime(name: str) -> None:
    op, operands, attributes = CASES[name]
    (found,), (wanted,) = both(op, operands, attributes)

    assert found.dtype == wanted.dtype
    apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max()
    assert apart <= (1 if wanted.dtype.kind in "iu" else 1e-5)  # a half may be rounded to either side
    assert np.unique(wanted).size > 1


@pytest.mark.medium
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_a_recurrent_layer_by_products_of_integers(direction: str, per_column: bool, batch: int) -> None:
    ways, hidden = (2 if direction == "bidirectional" else 1), 6
    x = DRAW.normal(size=(5, batch, 3)).astype("f")
    sizes = (ways, 4 * hidden) if per_column else (ways,)
    points = [DRAW.uniform(0.005, 0.02, sizes).astype("f"), np.zeros(sizes, "i1")]
    bias = DRAW.normal(size=(ways, 8 * hidden)).astype("f")
    weights = [signed(ways, 3, 4 * hidden), signed(ways, hidden, 4 * hidden)]
    states = [DRAW.normal(size=(ways, batch, hidden)).astype("f") for _ in range(2)]
    operands = [x, *weights, bias, EMPTY, *states, EMPTY, *points, *points]

    found, wanted = both("DynamicQuantizeLSTM", operands, {"hidden_size": hidden, "direction": direction}, 3)

    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)
        assert np.abs(want).max() > 0.3
