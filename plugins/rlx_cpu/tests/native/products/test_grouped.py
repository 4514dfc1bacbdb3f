"""Grouped products: every width of vectors, weights in several layouts, and memory that is read for the experts of rows alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness import EVERY_WIDTH, WIDTHS, kernel
from products import check, random

import rlx_core as rlx
from rlx_core.errors import IndexRangeError
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import Constant
from rlx_core.ops.fused_grouped_matmul import FusedGroupedMatMul
from rlx_core.quantization import quantize
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.products.grouped import grouped_matmul

RNG = np.random.default_rng(0)
EXPERTS = 5

Weight = Callable[..., Any]


def arrays_of(name: str, k: int, n: int) -> tuple[Weight, list[np.ndarray]]:
    """A function of the weights, `[EXPERTS, k, n]`, and its arguments."""
    rng = np.random.default_rng(k * n)
    by_row, by_column = (rng.standard_normal((EXPERTS, *shape)).astype("f4") for shape in ((k, n), (n, k)))
    codes = rng.integers(-127, 128, (EXPERTS, n, k)).astype("i1")
    cases: dict[str, tuple[Weight, list[np.ndarray]]] = {
        "f32": (lambda w: w, [by_row]),
        "f32 by column": (rlx.matrix_transpose, [by_column]),
        "f64": (lambda w: w, [by_row.astype("f8")]),
        "f16": (lambda w: rlx.astype(w, "f32"), [by_row.astype("f2")]),
        "i8 and scales": (
            lambda w, s: rlx.matrix_transpose(rlx.astype(w, "f32") * s),
            [codes, rng.standard_normal((EXPERTS, n, 1)).astype("f4")],
        ),
    }
    return cases[name]


NAMES = ("f32", "f32 by column", "f64", "f16", "i8 and scales")


def fused_op(weight: Weight, x: np.ndarray, arrays: list[np.ndarray]) -> tuple[FusedGroupedMatMul, list[np.ndarray]]:
    """The op that the pipeline makes of the product, and its operands between x and the experts."""
    specs = [rlx.spec(f"{dtype(a.dtype)}{list(a.shape)}") for a in (x, np.zeros(len(x), "i4"), *arrays)]
    compiled = rlx.compile(lambda x, idx, *w: rlx.grouped_matmul(x, weight(*w), idx), *specs, target="cpu")
    (node,) = (n for n in compiled.executable.lir.graph.nodes if isinstance(n.op, FusedGroupedMatMul))
    op = node.op
    assert isinstance(op, FusedGroupedMatMul)
    sources = list(node.present())[1:-1]
    inputs = sorted((v for v in sources if not isinstance(v.node.op, Constant)), key=lambda v: v.node.index)
    by_source = dict(zip(inputs, arrays, strict=True))
    return op, [v.node.op.value.array if isinstance(v.node.op, Constant) else by_source[v] for v in sources]


def expected(x: np.ndarray, w: np.ndarray, idx: np.ndarray, of: str) -> np.ndarray:
    return np.stack([x[i].astype(of) @ w[e].astype(of) for i, e in enumerate(idx)])


@EVERY_WIDTH
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(1, 64, 48), (4, 37, 5), (23, 96, 130), (3, 24, 1)], ids=str)
@pytest.mark.parametrize("is_bound", [False, True], ids=["in place", "packed"])
def test_each_row_is_multiplied_by_the_weight_of_its_expert(
    isa: Isa, name: str, size: tuple[int, int, int], is_bound: bool
) -> None:
    m, k, n = size
    weight, arrays = arrays_of(name, k, n)
    x = random(np.random.default_rng(m), (m, k), "f8" if name == "f64" else "f4")
    op, operands = fused_op(weight, x, arrays)
    w = np.asarray(weight(*arrays))
    idx = np.random.default_rng(n).integers(0, EXPERTS, m).astype("i4")
    for experts in (idx, np.sort(idx)):
        bound = range(1, 1 + len(operands)) if is_bound else ()
        made = kernel(grouped_matmul, op, [x, *operands, experts], isa, bound=tuple(bound))
        single = expected(x, w, experts, x.dtype.str)
        check(made, x, *operands, experts, exact=expected(x, w, experts, "f8"), single=single)


@pytest.mark.parametrize("of", ["u8", "i16", "i64", "u64"])
def test_experts_have_any_dtype_of_integers(of: str) -> None:
    weight, arrays = arrays_of("f16", 16, 9)
    x, idx = random(RNG, (4, 16), "f4"), np.array([4, 0, 0, 3], dtype(of).numpy)
    compiled = rlx.compile(
        lambda w, x, i: rlx.grouped_matmul(x, weight(w), i),
        arrays[0],
        rlx.spec("f32[4, 16]"),
        rlx.spec(f"{of}[4]"),
        target="cpu",
    )
    w = np.asarray(weight(*arrays))
    np.testing.assert_allclose(compiled(x, idx), expected(x, w, idx, "f4"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("idx", [[0, 5], [-1, 0], [0, 2**40]], ids=str)
def test_an_expert_outside_is_an_error(idx: list[int]) -> None:
    weight, arrays = arrays_of("i8 and scales", 16, 9)
    x = random(RNG, (2, 16), "f4")
    compiled = rlx.compile(
        lambda p, x, i: rlx.grouped_matmul(x, weight(*p), i),
        arrays,
        rlx.spec("f32[2, 16]"),
        rlx.spec("i64[2]"),
        target="cpu",
    )
    with pytest.raises(IndexRangeError, match=r"grouped_matmul: index -?\d+ is outside an axis of 5 elements"):
        compiled(x, np.int64(idx))
    assert compiled(x, np.int64([0, 4])).shape == (2, 9), "the next call succeeds"


@pytest.mark.medium
def test_one_code_serves_any_number_of_rows() -> None:
    weight, arrays = arrays_of("i8 and scales", 96, 130)
    w = np.asarray(weight(*arrays))
    compiled = rlx.compile(
        lambda p, x, i: rlx.grouped_matmul(x, weight(*p), i), arrays, rlx.spec("f32[m, 96]"), rlx.spec("i64[m]"),
        target="cpu",
    )  # fmt: skip
    for m in (0, 1, 2, 9, 150):
        x, idx = random(RNG, (m, 96), "f4"), np.sort(np.random.default_rng(m).integers(0, EXPERTS, m))
        single = expected(x, w, idx, "f4") if m else np.zeros((0, 130), "f4")
        np.testing.assert_allclose(compiled(x, idx), single, rtol=1e-4, atol=2e-3)  # sums of 96 products of up to 127·4
    assert "1 of 1 steps for all sizes" in str(compiled.report)
    assert compiled.report.prepared_nbytes == 0


def test_rows_and_experts_may_be_views() -> None:
    weight, arrays = arrays_of("f32", 16, 9)
    x, idx = random(RNG, (3, 40), "f4"), np.int64([[4, 9], [0, 9], [1, 9]])
    compiled = rlx.compile(
        lambda p, x, i: rlx.grouped_matmul(x[:, 8:40:2], weight(*p), i[:, 0]),
        arrays,
        rlx.spec("f32[3, 40]"),
        rlx.spec("i64[3, 2]"),
        target="cpu",
    )
    np.testing.assert_allclose(
        compiled(x, idx), expected(x[:, 8:40:2], arrays[0], idx[:, 0], "f4"), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("scheme", ["q4_0", "q8_0", "q4_k", "int8", "nvfp4"])
def test_codes_of_experts_without_rows_are_not_read(scheme: str) -> None:
    """Packed arrays of the other experts are NaN, or codes that are another number; results do not change."""
    weights = RNG.standard_normal((EXPERTS, 40, 256)).astype("f4")
    array = quantize(weights, scheme)
    x, idx = random(RNG, (3, 256), "f4"), np.int32([1, 1, 3])

    def weight(*fields: Any) -> Any:
        return rlx.matrix_transpose(
            type(array)(dict(zip(array.fields, fields, strict=True)), array.scheme).dequantize()
        )

    op, operands = fused_op(weight, x, list(array.fields.values()))
    made = kernel(grouped_matmul, op, [x, *operands, idx], WIDTHS[0], bound=tuple(range(1, 1 + len(operands))))
    (result,) = made(x, *operands, idx)
    np.testing.assert_allclose(
        result, expected(x, np.asarray(array.dequantize()).swapaxes(1, 2), idx, "f4"), rtol=1e-3, atol=1e-3
    )
    changed = [each.copy() for each in operands]
    for each in changed:
        if each.ndim > 1 and len(each) == EXPERTS:
            each[[0, 2, 4]] = 77
    np.testing.assert_array_equal(made(x, *changed, idx)[0], result)
    narrow = sum(each.nbytes for each in operands)
    assert sum(pack.nbytes for pack in made.emitted.packs) <= 1.25 * narrow  # 40 columns are 48
    assert made.emitted.workspace <= 1 << 15
