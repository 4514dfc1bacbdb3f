"""Operations of `com.microsoft`, beside ONNX Runtime, whose they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_graphs import node

import rlx_core as rlx
from rlx_onnx import load

DRAW = np.random.default_rng(2)


def drawn(*size: int) -> np.ndarray:
    return DRAW.normal(size=size).astype("f")


EMPTY = np.zeros(0)
"""An operand that is left out."""

ANGLES = np.outer(np.arange(8), 0.3 ** np.arange(2)).astype("f")
CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "gelu": ("Gelu", [drawn(2, 3)], {}),
    "bias-gelu": ("BiasGelu", [drawn(2, 3), drawn(3)], {}),
    "fast-gelu": ("FastGelu", [drawn(2, 3), drawn(3)], {}),
    "quick-gelu": ("QuickGelu", [drawn(2, 3)], {"alpha": 1.5}),
    "fused-matmul": ("FusedMatMul", [drawn(2, 3, 4), drawn(2, 5, 4)], {"transB": 1, "alpha": 0.5}),
    "fused-gemm": ("FusedGemm", [drawn(3, 4), drawn(4, 2), drawn(2)], {"activation": "Relu", "alpha": 2.0}),
    "fused-conv": (
        "FusedConv",
        [drawn(1, 2, 5, 5), drawn(3, 2, 3, 3), drawn(3)],
        {"activation": "Relu", "pads": [1] * 4},
    ),
    "skip-layer-norm": ("SkipLayerNormalization", [drawn(2, 3, 4), drawn(2, 3, 4), drawn(4), drawn(4), drawn(4)], {}),
    "skip-rms-norm": ("SkipSimplifiedLayerNormalization", [drawn(2, 3, 4), drawn(2, 3, 4), drawn(4)], {}),
    "rotary": ("RotaryEmbedding", [drawn(1, 2, 3, 4), np.array([[2, 0, 5]]), np.cos(ANGLES), np.sin(ANGLES)], {}),
    "rotary-pairs": (
        "RotaryEmbedding",
        [drawn(1, 3, 8), np.array([1]), np.cos(ANGLES), np.sin(ANGLES)],
        {"interleaved": 1},
    ),
    "multi-head": ("MultiHeadAttention", [drawn(2, 3, 8), drawn(2, 5, 8), drawn(2, 5, 8), drawn(24)], {"num_heads": 2}),
    "multi-head-causal": (
        "MultiHeadAttention",
        [drawn(2, 4, 8), drawn(2, 4, 8), drawn(2, 4, 8)],
        {"num_heads": 2, "unidirectional": 1},
    ),
    "attention": ("Attention", [drawn(2, 3, 8), drawn(8, 24), drawn(24)], {"num_heads": 2}),
    "eight-bits": (
        "MatMulNBits",
        [drawn(3, 32), DRAW.integers(0, 256, (4, 2, 16)).astype("u1"), drawn(8), EMPTY, EMPTY, drawn(4)],
        {"bits": 8, "block_size": 16, "N": 4, "K": 32},
    ),
    "four-bits": (
        "MatMulNBits",
        [drawn(3, 32), DRAW.integers(0, 256, (4, 2, 8)).astype("u1"), drawn(8)],
        {"bits": 4, "block_size": 16, "N": 4, "K": 32},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_contributed_operations_agree_with_their_runtime(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    op, operands, attributes = CASES[name]
    names = ["" if each is EMPTY else f"x{i}" for i, each in enumerate(operands)]
    inputs = [helper.make_tensor_value_info("x0", TensorProto.FLOAT, operands[0].shape)]
    tensors = [numpy_helper.from_array(each, key) for key, each in zip(names[1:], operands[1:], strict=True) if key]
    nodes = [node(op, names, ["y"], domain="com.microsoft", **attributes)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "test", inputs, outputs, tensors)
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=sets, ir_version=8)
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])

    (wanted,) = session.run(None, {"x0": operands[0]})

    np.testing.assert_allclose(load(proto)(operands[0]), wanted, rtol=1e-4, atol=1e-5)  # f32: sums in another order


def test_weights_of_four_bits_stay_packed() -> None:
    """The program multiplies by codes and scales, and has no copy of the weight in 32 bits."""
    n = k = 256
    codes, scales = DRAW.integers(0, 256, (n, k // 32, 16)).astype("u1"), drawn(n * k // 32)
    graph = helper.make_graph(
        [node("MatMulNBits", ["x", "q", "s"], ["y"], domain="com.microsoft", bits=4, block_size=32, N=n, K=k)],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(codes, "q"), numpy_helper.from_array(scales, "s")],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model, x = load(helper.make_model(graph, opset_imports=sets)), drawn(2, k)
    compiled = rlx.compile(model, rlx.spec(f"f32[2, {k}]"))
    assert [step.node.op.name for step in compiled.executable.lir.steps] == ["rlx.fused_matmul_prologue"]
    assert compiled.report.expansions == ()

    pairs = np.stack([codes & 15, codes >> 4], axis=-1).reshape(n, k // 32, 32).astype("f4") - 8
    weight = (pairs * scales.reshape(n, k // 32, 1)).reshape(n, k)
    np.testing.assert_allclose(compiled(x), x @ weight.T, rtol=1e-4, atol=1e-4)


def test_operations_in_the_wrong_domain_are_found() -> None:
    """ONNX Runtime's optimiser writes this one into ONNX's own domain."""
    graph = helper.make_graph(
        [node("SimplifiedLayerNormalization", ["x", "w"], ["y"], axis=-1)],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(np.ones(3, "f"), "w")],
    )
    x = drawn(2, 3)

    found = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))(x)

    np.testing.assert_allclose(found, x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5), rtol=1e-5)
