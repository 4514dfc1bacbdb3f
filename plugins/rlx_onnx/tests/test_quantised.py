"""Products of integers with scales and zero points, and weights too large to be computed while a model is read."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_graphs import model, node

import rlx_core as rlx

ROWS, TERMS, COLUMNS = 5, 70, 1000
DRAW = np.random.default_rng(0)


def codes(dtype: Any, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return DRAW.integers(info.min, info.max + 1, shape).astype(dtype)


A_ZERO = {
    "none": lambda dtype: None,
    "zero": lambda dtype: np.zeros((), dtype),
    "one": lambda dtype: codes(dtype),
    "rows": lambda dtype: codes(dtype, ROWS),
}
B_ZERO = {
    "none": A_ZERO["none"],
    "zero": A_ZERO["zero"],
    "one": A_ZERO["one"],
    "columns": lambda dtype: codes(dtype, COLUMNS),
}


def compiled(nodes: list[Any], x: np.ndarray, tensors: dict[str, np.ndarray], y: str, path: Any) -> Any:
    """The model, and the program."""
    kind = {"uint8": "u8", "int8": "i8", "float32": "f32"}[x.dtype.name]
    made = model(nodes, [f"x: {kind}[{ROWS}, {TERMS}]"], [f"y: {y}[{ROWS}, {COLUMNS}]"], tensors)
    path.write_bytes(made.SerializeToString())
    return made, rlx.load(path).compile(target="cpu")


@pytest.mark.parametrize("b_zero", B_ZERO)
@pytest.mark.parametrize("a_zero", A_ZERO)
@pytest.mark.parametrize("b_dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("a_dtype", [np.int8, np.uint8])
def test_products_of_integers_are_exact(a_dtype: Any, b_dtype: Any, a_zero: str, b_zero: str, tmp_path: Any) -> None:
    x, tensors = codes(a_dtype, ROWS, TERMS), {"b": codes(b_dtype, TERMS, COLUMNS)}
    zeros = {"p": A_ZERO[a_zero](a_dtype), "q": B_ZERO[b_zero](b_dtype)}
    given = {name: zero for name, zero in zeros.items() if zero is not None}
    nodes = [node("MatMulInteger", ["x", "b", *(name if name in given else "" for name in zeros)], ["y"])]
    _, fast = compiled(nodes, x, tensors | given, "i32", tmp_path / "model.onnx")
    left, right = x.astype(np.int32), tensors["b"].astype(np.int32)  # ONNX's reference has no zero points of rows
    expected = (left - np.reshape(given.get("p", 0), (-1, 1))) @ (right - given.get("q", np.int32(0)))
    np.testing.assert_array_equal(fast(x), expected)
    product = next(step.node for step in fast.executable.lir.steps if re.search("matmul", step.node.op.name))
    assert [v.dtype.name for v in product.present()][:2] == ["i8", "i8"], "nothing is widened before the product"


@pytest.mark.parametrize("b_dtype", [np.int8, np.uint8])
def test_results_are_rounded_to_codes(b_dtype: Any, tmp_path: Any) -> None:
    x = codes(np.uint8, ROWS, TERMS)
    tensors = {
        "x_scale": np.float32(0.01), "x_zero": np.uint8(120), "b": codes(b_dtype, TERMS, COLUMNS),
        "b_scale": DRAW.uniform(0.001, 0.01, COLUMNS).astype(np.float32), "b_zero": np.zeros(COLUMNS, b_dtype),
        "y_scale": np.float32(0.1), "y_zero": np.uint8(7),
    }  # fmt: skip
    nodes = [node("QLinearMatMul", ["x", "x_scale", "x_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero"], ["y"])]
    made, fast = compiled(nodes, x, tensors, "u8", tmp_path / "model.onnx")
    np.testing.assert_array_equal(fast(x), *ReferenceEvaluator(made).run(None, {"x": x}))


@pytest.mark.parametrize("b_dtype", [np.int8, np.uint8])
def test_codes_of_a_run_are_multiplied_with_those_of_a_weight(b_dtype: Any, tmp_path: Any) -> None:
    x, scale = DRAW.standard_normal((ROWS, TERMS)).astype(np.float32), np.float32(0.02)
    tensors = {"b": codes(b_dtype, TERMS, COLUMNS), "scale": scale}
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["a", "a_scale", "a_zero"]),
        node("MatMulInteger", ["a", "b", "a_zero"], ["exact"]),
        node("Cast", ["exact"], ["real"], to=1),
        node("Mul", ["a_scale", "scale"], ["unit"]),
        node("Mul", ["real", "unit"], ["y"]),
    ]
    made, fast = compiled(nodes, x, tensors, "f32", tmp_path / "model.onnx")
    np.testing.assert_array_equal(fast(x), *ReferenceEvaluator(made).run(None, {"x": x}))


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("scales", ["tensor", "columns"])
def test_dequantised_factors_are_multiplied_as_codes(op: str, scales: str, tmp_path: Any) -> None:
    """QuantizeLinear and DequantizeLinear around a product: one integer product with the rounding to codes in its epilogue."""
    one = scales == "tensor"
    steps = np.float32(0.004) if one else DRAW.uniform(0.002, 0.006, COLUMNS).astype(np.float32)
    tensors = {
        "w": codes(np.int8, TERMS, COLUMNS), "ws": steps, "wz": np.zeros(np.shape(steps), np.int8),
        "xs": np.float32(0.02), "xz": np.uint8(117), "ys": np.float32(0.05), "yz": np.uint8(120),
        "b": DRAW.normal(size=COLUMNS).astype(np.float32),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=1),
        *([node("Gemm", ["xd", "wd", "b"], ["z"])] if op == "Gemm" else [node("MatMul", ["xd", "wd"], ["z"])]),
        node("QuantizeLinear", ["z", "ys", "yz"], ["y"]),
    ]
    x = DRAW.normal(size=(ROWS, TERMS)).astype(np.float32)
    made, fast = compiled(nodes, x, tensors, "u8", tmp_path / "model.onnx")
    kernels = [step.kernel for step in fast.executable.lir.steps]
    assert kernels.count("native_integer_matmul_epilogue") == 1
    assert len(kernels) == 2, "one loop quantises the activations"
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    difference = np.abs(np.asarray(fast(x)).astype(int) - expected)
    # The reference rounds each of 70 products and sums in f32: a code differs where a value is next to a half.
    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3
