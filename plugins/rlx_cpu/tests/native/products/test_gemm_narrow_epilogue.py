"""Products of f16 and bf16 with the region after them, which reads their sums in f32: nothing is rounded in between."""

from __future__ import annotations

import numpy as np
import pytest
from harness import EVERY_WIDTH, kernel

import rlx_core as rlx
from rlx_core.ir.dtypes import DType, bf16, f16, f32
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.conversion import Cast
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.region import ElementwiseRegion, RegionStep
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.products.gemm_epilogue import narrow_matmul_epilogue

NARROW = pytest.mark.parametrize("narrow", [f16, bf16], ids=str)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def op_of(m: int, n: int, narrow: DType, *results: int) -> FusedMatMulEpilogue:
    """A residual in f32, a scale for each row in the narrow dtype, and the sum rounded to it."""
    steps = (
        RegionStep(add.op(), (0, 1)),
        RegionStep(Cast(f32), (2,)),
        RegionStep(multiply.op(), (3, 4)),
        RegionStep(Cast(narrow), (5,)),
    )
    return FusedMatMulEpilogue(ElementwiseRegion((m, n), steps, ((n, 1), (n, 1), (1, 0)), results), f32)


@EVERY_WIDTH
@NARROW
@pytest.mark.parametrize("results", [(0,), (2,), (3, 0), (0, 3), (3,)])
def test_a_region_reads_exact_sums(isa: Isa, narrow: DType, results: tuple[int, ...]) -> None:
    """Sums of these integers are exact in f32, and above 256 and 2048 not in bf16 and f16."""
    for m, n, k, bound in ((5, 19, 7, ()), (1, 33, 130, (1,)), (13, 40, 2501, (1,)), (33, 17, 1300, ())):
        a, b = numbers(m, k).astype(narrow.numpy), numbers(k, n, seed=1).astype(narrow.numpy)
        residual, scale = numbers(m, n, seed=2) / 8, numbers(m, 1, seed=3).astype(narrow.numpy)
        first = a.astype(np.float32) @ b.astype(np.float32) + residual
        scaled = first * scale.astype(np.float32)
        with np.errstate(over="ignore"):
            expected = {0: first, 2: scaled, 3: scaled.astype(narrow.numpy)}
        code = kernel(narrow_matmul_epilogue, op_of(m, n, narrow, *results), [a, b, residual, scale], isa, bound=bound)
        for threads in (1, 3):
            actual = code(a, b, residual, scale, threads=threads)
            for each, result in zip(actual, results, strict=True):
                assert each.dtype == expected[result].dtype
                np.testing.assert_array_equal(each, expected[result], err_msg=f"{m, n, k, bound, result}")


@NARROW
@pytest.mark.parametrize("sizes", ["", "n"])
def test_a_residual_and_a_rounding_are_one_kernel(narrow: DType, sizes: str) -> None:
    def layer(w, x, residual):
        return rlx.matmul(x, w, acc_dtype=rlx.f32) + residual

    w, x, residual = (
        numbers(48, 24).astype(narrow.numpy),
        numbers(6, 48, seed=1).astype(narrow.numpy),
        numbers(6, 24, seed=2),
    )
    rows = sizes or 6
    compiled = rlx.compile(layer, w, rlx.spec(f"{narrow}[{rows}, 48]"), rlx.spec(f"f32[{rows}, 24]"), target="cpu")
    expected = x.astype(np.float32) @ w.astype(np.float32) + residual
    np.testing.assert_array_equal(np.asarray(compiled(x, residual)), expected)
    assert [step.kernel for step in compiled.executable.lir.steps] == ["native_narrow_matmul_epilogue"]
