"""Products whose weight is computed from narrower arrays: every layout of codes, every width of panels, packed and in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from harness import EVERY_WIDTH, WIDTHS, kernel
from products import check, random

import rlx_core as rlx
from rlx_core.ir.dtypes import dtype, f32
from rlx_core.ir.graph import Constant
from rlx_core.ops.fused_matmul_prologue import FusedMatMulPrologue
from rlx_cpu.native.llvm.isa import Isa, available
from rlx_cpu.native.machine import assumed, assuming
from rlx_cpu.native.products.gemm_prologue import matmul_prologue
from rlx_cpu.native.products.gemm_sized import ENOUGH_ROWS, FEW_ROWS
from rlx_cpu.native.products.gemm_tiles import tile_for
from rlx_cpu.native.sharing import SHARING

SHIFTS = np.array([0, 4], np.uint8)
BLOCK = 16

Weight = Callable[..., Any]


def widened(w: Any) -> Any:
    return rlx.astype(w, "f32")


def transposed(w: Any) -> Any:
    return rlx.astype(rlx.matrix_transpose(w), "f32")


def scaled(w: Any, scales: Any) -> Any:
    return rlx.astype(w, "f32") * scales


def of_nibbles(codes: Any, scales: Any) -> Any:
    """Codes `[k / 2, n]` and scales `[k / BLOCK, n]`."""
    blocks, n = scales.shape
    pairs = rlx.bitwise_and(rlx.bitwise_right_shift(codes[:, None, :], SHIFTS[None, :, None]), np.uint8(15))
    numbers = rlx.astype(rlx.reshape(pairs, (blocks, BLOCK, n)), "f32") - np.float32(8)
    return rlx.reshape(numbers * scales[:, None, :], (blocks * BLOCK, n))


def of_nibbles_by_column(codes: Any, scales: Any) -> Any:
    """Codes `[n, k / BLOCK, BLOCK / 2]` and scales `[n, k / BLOCK]`, as files of quantised models have them."""
    n, blocks = scales.shape
    pairs = rlx.bitwise_and(rlx.bitwise_right_shift(codes[..., None], SHIFTS), np.uint8(15))
    numbers = rlx.astype(rlx.reshape(pairs, (n, blocks, BLOCK)), "f32") - np.float32(8)
    return rlx.matrix_transpose(rlx.reshape(numbers * scales[..., None], (n, blocks * BLOCK)))


def looked_up(dtype: str) -> Weight:
    """Codes of four bits as indices of sixteen levels; registers have all of these."""
    levels = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype)

    def weight(codes: Any) -> Any:
        return widened(rlx.take(levels, rlx.astype(rlx.bitwise_and(codes, np.uint8(15)), "i32"), out_of_bounds="clip"))

    return weight


def arrays_of(name: str, k: int, n: int) -> tuple[Weight, list[np.ndarray]]:
    rng = np.random.default_rng(k * n)
    blocks = k // BLOCK

    def codes(*shape: int) -> np.ndarray:
        return rng.integers(0, 256, shape).astype("u1")

    cases: dict[str, tuple[Weight, list[np.ndarray]]] = {
        "f16": (widened, [rng.standard_normal((k, n)).astype("f2")]),
        "i8": (widened, [rng.integers(-127, 128, (k, n)).astype("i1")]),
        "u8 by column": (transposed, [codes(n, k)]),
        "i8 and scales": (scaled, [rng.integers(-9, 9, (k, n)).astype("i1"), rng.standard_normal(n).astype("f4")]),
        "4 bits": (of_nibbles, [codes(k // 2, n), rng.standard_normal((blocks, n)).astype("f4")]),
        "4 bits by column": (
            of_nibbles_by_column,
            [codes(n, blocks, BLOCK // 2), rng.standard_normal((n, blocks)).astype("f4")],
        ),
        "levels of i8": (looked_up("i1"), [codes(k, n)]),
        "levels of f32": (looked_up("f4"), [codes(k, n)]),
    }
    return cases[name]


NAMES = ("f16", "i8", "u8 by column", "i8 and scales", "4 bits", "4 bits by column", "levels of i8", "levels of f32")


def fused_op(weight: Weight, m: int, k: int, arrays: list[np.ndarray]) -> tuple[FusedMatMulPrologue, list[np.ndarray]]:
    """The op that the pipeline makes of the product, and its operands after x: the arrays, and constants."""
    specs = [rlx.spec(f"{dtype(a.dtype)}{list(a.shape)}") for a in arrays]
    compiled = rlx.compile(lambda x, *w: x @ weight(*w), rlx.spec(f"f32[{m}, {k}]"), *specs)
    (node,) = (n for n in compiled.executable.lir.graph.nodes if isinstance(n.op, FusedMatMulPrologue))
    op = node.op
    assert isinstance(op, FusedMatMulPrologue)
    sources = list(node.present())[1:]
    inputs = sorted((v for v in sources if not isinstance(v.node.op, Constant)), key=lambda v: v.node.index)
    given = dict(zip(inputs, arrays, strict=True))
    rest = [v.node.op.value.array if isinstance(v.node.op, Constant) else given[v] for v in sources]
    return op, rest


@EVERY_WIDTH
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(1, 64, 48), (3, 32, 37), (17, 96, 5), (70, 32, 130), (2, 96, 1)], ids=str)
@pytest.mark.parametrize("is_bound", [False, True], ids=["in place", "packed"])
def test_a_product_reads_narrow_weights(isa: Isa, name: str, size: tuple[int, int, int], is_bound: bool) -> None:
    m, k, n = size
    weight, arrays = arrays_of(name, k, n)
    op, operands = fused_op(weight, m, k, arrays)
    x, w = random(np.random.default_rng(m), (m, k), "f4"), np.asarray(weight(*arrays))
    bound = range(1, 1 + len(operands)) if is_bound else ()
    made = kernel(matmul_prologue, op, [x, *operands], isa, bound=tuple(bound))
    assert bool(made.emitted.packs) == (is_bound and n > 1), "one column is packed as it is"
    check(made, x, *operands, exact=x.astype("f8") @ w.astype("f8"), single=x @ w)


@pytest.mark.medium
@EVERY_WIDTH
@pytest.mark.parametrize("name", NAMES)
def test_panels_are_computed_in_blocks_of_any_depth(isa: Isa, name: str) -> None:
    m, k, n = 5, 128, 70
    weight, arrays = arrays_of(name, k, n)
    op, operands = fused_op(weight, m, k, arrays)
    x, w = random(np.random.default_rng(2), (m, k), "f4"), np.asarray(weight(*arrays))
    results, depths = [], set()
    for nbytes in (1 << 10, 1 << 12, 1 << 14, 1 << 20):
        products = evolve(assumed().products, load_nbytes=nbytes)
        with assuming(evolve(assumed(), products=products)):
            made = kernel(matmul_prologue, op, [x, *operands], isa, bound=tuple(range(1, 1 + len(operands))))
        check(made, x, *operands, exact=x.astype("f8") @ w.astype("f8"), single=x @ w)
        depths.add(made.emitted.notes["depth"])
        results.append(made(x, *operands)[0])
    assert len(depths) > 1
    assert all(np.array_equal(each, results[0]) for each in results), "blocks change no bit"


@EVERY_WIDTH
def test_all_shared(isa: Isa) -> None:
    weight, arrays = arrays_of("4 bits", 64, 100)
    op, operands = fused_op(weight, 40, 64, arrays)
    x, w = random(np.random.default_rng(3), (40, 64), "f4"), np.asarray(weight(*arrays))
    with assuming(SHARING):
        made = kernel(matmul_prologue, op, [x, *operands], isa)
    check(made, x, *operands, exact=x.astype("f8") @ w.astype("f8"), single=x @ w)


@pytest.mark.medium
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("m", [1, 40])
def test_no_wide_copy_of_a_weight_is_in_memory(name: str, m: int) -> None:
    k = n = 512
    weight, arrays = arrays_of(name, k, n)
    x = random(np.random.default_rng(4), (m, k), "f4")
    compiled = rlx.compile(lambda p, x: rlx.gelu(x @ weight(*p) + 1), arrays, rlx.spec(f"f32[{m}, {k}]"))
    (step,) = compiled.executable.lir.steps
    assert step.kernel == "native_matmul_prologue"
    assert compiled.report.prepared_nbytes == 0
    assert compiled.report.expansions == ()
    wide = rlx.jit(lambda x, w: rlx.gelu(x @ w + 1))(x, np.asarray(weight(*arrays)))
    np.testing.assert_array_equal(np.asarray(compiled(x)), np.asarray(wide))
    op, operands = fused_op(weight, m, k, arrays)
    made = kernel(matmul_prologue, op, [x, *operands], WIDTHS[0], bound=tuple(range(1, 1 + len(operands))))
    narrow = sum(a.nbytes for a in operands)
    assert sum(p.nbytes for p in made.emitted.packs) <= 1.1 * narrow
    assert made.emitted.shared_workspace == 0
    assert made.emitted.workspace <= (1 << 14) + 64 or m > 16


@pytest.mark.parametrize("name", NAMES)
def test_the_option_expands_weights_and_the_report_lists_them(name: str) -> None:
    k = n = 256
    weight, arrays = arrays_of(name, k, n)
    x = random(np.random.default_rng(5), (4, k), "f4")
    config = {"passes": {"fuse-weight-loads": {"weights": "expanded"}}}
    packed, expanded = (
        rlx.compile(lambda p, x: x @ weight(*p), arrays, rlx.spec(f"f32[4, {k}]"), config=c) for c in (None, config)
    )
    np.testing.assert_array_equal(np.asarray(packed(x)), np.asarray(expanded(x)))
    (found,) = expanded.report.expansions
    assert found.after == k * n * 4
    assert found.before <= sum(a.nbytes for a in arrays) + 100
    assert "option passes.fuse-weight-loads.weights" in str(expanded.report)
    assert "expanded" not in str(packed.report)


@pytest.mark.medium
@pytest.mark.parametrize("has_region", [False, True], ids=["alone", "with a region"])
@pytest.mark.parametrize("name", NAMES)
def test_one_code_serves_any_number_of_rows(name: str, has_region: bool) -> None:
    k, n = 64, 72
    weight, arrays = arrays_of(name, k, n)

    def after(y: Any) -> Any:
        return rlx.tanh(y * 0.1) + y if has_region else y

    for_all = rlx.compile(lambda p, x: after(x @ weight(*p)), arrays, rlx.spec(f"f32[rows, {k}]"))
    wide = np.asarray(weight(*arrays))
    of_size = rlx.jit(lambda x, w: after(x @ w))
    for m in (1, 2, 7, 33, 150):
        x = random(np.random.default_rng(m), (m, k), "f4")
        np.testing.assert_array_equal(np.asarray(for_all(x)), np.asarray(of_size(x, wide)))
    assert "1 of 1 steps for all sizes" in str(for_all.report)


def test_panels_for_any_number_of_rows_keep_three_sums_of_one_row_in_flight() -> None:
    """A decoding step multiplies one row; the tiles of many rows have two vectors on AVX2."""
    isa, k, n = available()[0], 64, 960
    weight, arrays = arrays_of("i8", k, n)
    for_all = rlx.compile(lambda p, x: x @ weight(*p), arrays, rlx.spec(f"f32[rows, {k}]"), target="cpu")
    for_all(np.ones((1, k), "f4"))
    (pack,) = (
        pack
        for step in for_all.executable._shared.bound([np.ones((1, k), "f4")]).program.compiled.native.steps.values()
        for pack in step.emitted.packs
    )
    lanes = isa.lanes(f32)
    vectors = [width // lanes for width in pack.sizes]
    assert max(vectors) == tile_for(FEW_ROWS, n, lanes, isa.registers).vectors >= 3
    assert tile_for(FEW_ROWS, n, lanes, isa.registers).vectors > tile_for(ENOUGH_ROWS, n, lanes, isa.registers).vectors
