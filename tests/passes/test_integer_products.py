"""Products of dequantised codes: where the codes are multiplied, what the program computes then, and what the report says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ir.graph import Graph
from rlx_core.ir.interpret import interpret
from rlx_core.ops.conversion import cast
from rlx_core.ops.linalg import mat_mul
from rlx_core.ops.structural import reshape, transpose
from rlx_core.passes.integer_products import IntegerProducts

from .programs import program, run

DRAW = np.random.default_rng(0)


def codes(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return DRAW.integers(info.min, info.max + 1, shape).astype(dtype)


def dequantised(q: Any, zero: Any, scale: Any) -> Any:
    centred = cast(q, to="f32")
    return (centred if zero is None else centred - (zero if isinstance(zero, float) else cast(zero, to="f32"))) * scale


def converted(before: Graph) -> tuple[Graph, Any]:
    result = run(IntegerProducts(), before)
    return result.graph, result.conversions


CASES: dict[str, tuple[Callable[..., Any], dict[str, np.ndarray]]] = {
    "one scale": (lambda x, w, s: mat_mul(dequantised(x, None, s), dequantised(w, None, 0.25)), {"s": np.float32(0.5)}),
    "columns": (
        lambda x, w, t: mat_mul(dequantised(x, 117.0, 0.5), dequantised(w, None, t)),
        {"t": np.linspace(0.1, 1, 6, dtype=np.float32)},
    ),
    "zero points": (
        lambda x, w, p, q, t: mat_mul(dequantised(x, p, 0.5), dequantised(w, q, t)),
        {"p": codes("uint8"), "q": codes("int8", 6), "t": np.linspace(0.1, 1, 6, dtype=np.float32)},
    ),
    "a transposed weight": (
        lambda x, v, q, t: mat_mul(
            dequantised(x, 3.0, 0.5), transpose(dequantised(v, reshape(q, (6, 1)), reshape(t, (6, 1))), (1, 0))
        ),
        {"v": codes("int8", 6, 40), "q": codes("int8", 6), "t": np.linspace(0.1, 1, 6, dtype=np.float32)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("of", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_codes_are_multiplied(name: str, of: tuple[str, str], batch: tuple[int, ...]) -> None:
    make, arrays = CASES[name]
    arrays = {"x": codes(of[0], *batch, 3, 40), **({} if "v" in arrays else {"w": codes(of[1], 40, 6)}), **arrays}
    if "p" in arrays:
        arrays["p"], arrays["q"] = codes(of[0]), codes(of[1], 6)
    types = {n: f"{a.dtype.kind}{8 * a.dtype.itemsize}{list(a.shape)}" for n, a in arrays.items()}
    before = program(make, **types)
    after, (entry,) = converted(before)
    assert entry.reason is None
    products = [n for n in after.nodes if n.op.name == "rlx.matmul"]
    assert [[v.dtype.name for v in n.present()] for n in products] == [["i8", "i8"]]
    (exact,) = interpret(before, arrays, mode="wide")
    (result,) = interpret(after, arrays)
    np.testing.assert_allclose(result, exact, rtol=1e-6, atol=1e-6 * np.abs(exact).max())
    assert result.dtype == np.float32


KEPT: dict[str, Callable[..., Any]] = {
    "only one factor": lambda x, w, f: mat_mul(f, dequantised(w, None, 0.5)),
    "scales of terms": lambda x, w, f: mat_mul(dequantised(x, None, f[0]), dequantised(w, None, 0.5)),
    "scales of rows of the weight": lambda x, w, f: mat_mul(
        dequantised(x, None, 0.5), dequantised(w, None, reshape(f[0], (40, 1)))
    ),
    "a zero point between codes": lambda x, w, f: mat_mul(dequantised(x, 0.5, 0.5), dequantised(w, None, 0.5)),
    "a zero point outside of codes": lambda x, w, f: mat_mul(dequantised(x, 300.0, 0.5), dequantised(w, None, 0.5)),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_other_products_stay(name: str) -> None:
    before = program(KEPT[name], x="u8[3, 40]", w="i8[40, 6]", f="f32[3, 40]")
    after, entries = converted(before)
    assert after is before
    assert not entries


def test_long_sums_stay_with_a_reason() -> None:
    before = program(
        lambda x, w: mat_mul(dequantised(x, None, 0.5), dequantised(w, None, 0.5)), x="u8[1, 33026]", w="i8[33026, 1]"
    )
    after, (entry,) = converted(before)
    assert after is before
    assert entry.reason == "i32 does not hold sums of 33026 products of codes"


def test_the_default_pipeline_makes_one_kernel_of_a_quantised_layer() -> None:
    """Scaling, bias and rounding to the codes of the next layer follow on the sums; the values are those without the pass."""
    quantise, dequantise = rlx.quantization.quantize_linear, rlx.quantization.dequantize_linear
    params = {
        "w": codes("int8", 300, 80),
        "t": DRAW.uniform(0.5, 1.5, 80).astype(np.float32) / 300,
        "b": DRAW.normal(size=80).astype(np.float32),
    }
    x = codes("uint8", 5, 300)

    def layer(p: Any, x: Any) -> Any:
        y = dequantise(x, 0.02, 117) @ dequantise(p["w"], p["t"], axis=1) + p["b"]
        return quantise(y, 0.03, 120, dtype="u8")

    compiled = rlx.compile(layer, params, rlx.spec("u8[5, 300]"), config={"cache.disk": False}, target="cpu")
    assert [step.kernel for step in compiled.executable.lir.steps][-1] == "native_integer_matmul_epilogue"
    (entry,) = compiled.report.conversions
    assert str(entry).endswith("product u8[5, 300] @ i8[300, 80]")
    sums = (x.astype(np.int64) - 117) @ params["w"].astype(np.int64)
    scale = np.float32(0.02) * params["t"]
    expected = np.clip(np.rint((sums.astype(np.float32) * scale + params["b"]) / np.float32(0.03)) + 120, 0, 255)
    np.testing.assert_array_equal(compiled(x), expected.astype(np.uint8))
