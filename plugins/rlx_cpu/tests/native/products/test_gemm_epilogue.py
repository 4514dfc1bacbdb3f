"""What follows a product in its own kernel: residuals, and regions with several results."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from harness import kernel, products_of
from products import check, check_halves, error_bound, random

from rlx_core.codegen.places import Layout
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import Node
from rlx_core.ops.activation import gelu, relu
from rlx_core.ops.arithmetic import add as plus
from rlx_core.ops.arithmetic import subtract
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.region import ElementwiseRegion, RegionStep
from rlx_core.ops.selection import Where
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa, available
from rlx_cpu.native.products.gemm_epilogue import matmul_epilogue


@products_of("f16", "bf16", "f32")
def test_a_residual_is_added_to_sums_of_several_blocks(isa: Isa, of: str) -> None:
    """Partial sums wait apart: the result may be the residual's own bytes."""
    rng = np.random.default_rng(15)
    subtracted = (RegionStep(subtract.op(), (1, 0)),)
    op = FusedMatMulEpilogue(ElementwiseRegion((21, 35), subtracted, ((35, 1), (35, 1)), (0,)))
    x, w = (random(rng, shape, dtype(of).numpy) for shape in ((21, 2300), (2300, 35)))
    residual = random(rng, (21, 35), dtype(of).numpy)
    made = kernel(matmul_epilogue, op, [x, w, residual], isa)
    exact, single = (np.asarray(op(*(v.astype(t) for v in (x, w, residual)))) for t in (np.float64, np.float32))
    if of == "f32":
        check(made, x, w, residual, exact=exact, single=single)
    else:
        check_halves(made, x, w, residual, exact=exact, single=single)


@pytest.mark.medium
@products_of("f16", "bf16", "f32", "f64")
@pytest.mark.parametrize("is_long", [False, True])
def test_a_region_reads_masks_rows_and_columns_and_gives_several_results(isa: Isa, of: str, is_long: bool) -> None:
    """`s = f(x·w + row)` and `where(mask, column, s)`, on sums in registers and on a tile in memory."""
    rng = np.random.default_rng(17)
    function = RegionStep(gelu.op() if is_long else relu.op(), (4,))
    fed_and_bound = ((), (1,))
    for (m, n, k), bindings in {
        (17, 50, 33): fed_and_bound,
        (40, 33, 1200): fed_and_bound,
        (1, 7, 5): fed_and_bound[:1],
        (9, 1, 3): fed_and_bound[1:],
        (3, 5, 0): fed_and_bound[:1],
    }.items():
        steps = (RegionStep(plus.op(), (0, 1)), function, RegionStep(Where(), (3, 2, 5)))
        whole, row, column = (n, 1), (0, 1), (1, 0)
        op = FusedMatMulEpilogue(ElementwiseRegion((m, n), steps, (whole, row, column, whole), (2, 1)))
        shapes = ((m, k), (k, n), (n,), (m, 1))
        x, w, bias, mark = (random(rng, shape, dtype(of).numpy) for shape in shapes)
        w = (w / np.sqrt(max(k, 1))).astype(w.dtype)
        mask = rng.random((m, n)) > 0.5
        operands = (x, w, bias, mark, mask)
        for bound in bindings:
            made = kernel(matmul_epilogue, op, list(operands), isa, bound=bound)
            found = made(*operands)
            again = made(*operands, threads=3)
            wide, single = (op(*(v if v is mask else v.astype(t) for v in operands)) for t in (np.float64, np.float32))
            for result, other, exact, rough in zip(found, again, wide, single, strict=True):
                np.testing.assert_array_equal(result, other)
                # Twice NumPy's own error and 8 ulp for the function; a rounding to 16 bits at the end.
                unit = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}[of]
                sums = 2.0**-29 if of == "f64" else 1.0
                limit = sums * (2 * error_bound(rough, exact) + 8 * 2.0**-23) + unit * (1 + 2.0**-8) * np.abs(exact)
                assert (np.abs(result.astype(np.float64) - exact) <= limit + 2.0**-25 * sums).all()


@pytest.mark.parametrize(("rows", "place"), [(4, "is_fresh"), (4, "is_held"), (40, "is_held")])
def test_in_a_loop_what_is_new_is_prefetched_and_panels_are_for_several_tiles(rows: int, place: str) -> None:
    """One tile of rows reads panels front to back, which the processor foresees; a round's own part of an array lies afar."""
    added = (RegionStep(plus.op(), (0, 1)),)
    op = FusedMatMulEpilogue(ElementwiseRegion((rows, 64), added, ((64, 1), (64, 1)), (0,)))
    x, w, residual = (np.ones(shape, np.float32) for shape in ((rows, 8), (8, 64), (rows, 64)))

    def inside(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
        a, b, added = layout.operands
        assert b is not None
        assert added is not None
        b, added = evolve(b, is_held=True), evolve(added, is_fresh=place == "is_fresh")
        return matmul_epilogue(module, node, evolve(layout, operands=(a, b, added)), isa, name)

    made = kernel(inside, op, [x, w, residual], available()[0], bound=(1,))
    asked = str(made.module).count('call void @"llvm.prefetch')
    assert (asked > 0) == (place == "is_fresh" or rows > 8)
    assert (made(x, w, residual)[0] == 9).all()
