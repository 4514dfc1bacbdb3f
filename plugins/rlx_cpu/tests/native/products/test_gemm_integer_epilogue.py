"""Products of integers with the region after them: the bits of the product followed by the region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness import integers_of, kernel

import rlx_core as rlx
from rlx_core.ir.dtypes import dtype, f32, i8, i32, i64, u8
from rlx_core.ir.graph import Builder, as_results
from rlx_core.ir.types import spec
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.conversion import Cast
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.piecewise import Round
from rlx_core.ops.region import ElementwiseRegion, RegionStep
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.products.gemm_epilogue import integer_matmul_epilogue, reason_at_integers

SCALED = (
    RegionStep(Cast(f32), (0,)),
    RegionStep(multiply.op(), (4, 1)),
    RegionStep(multiply.op(), (5, 2)),
    RegionStep(add.op(), (6, 3)),
)
"""`f32(sums) · rows · columns + bias`."""

CODES = (*SCALED, RegionStep(Round(), (7,)), RegionStep(Cast(i8), (8,)), RegionStep(Cast(u8), (8,)))


def numbers(of: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng, limits = np.random.default_rng(seed), np.iinfo(dtype(of).numpy)
    return rng.integers(limits.min, limits.max, shape, dtype(of).numpy, endpoint=True)


def floats(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)


def op_of(m: int, n: int, steps: tuple[RegionStep, ...], *results: int) -> FusedMatMulEpilogue:
    access = ((n, 1), (1, 0), (0, 1), (0, 1))
    return FusedMatMulEpilogue(ElementwiseRegion((m, n), steps, access, results), i32)


@integers_of("i8", "u8", "i16")
@pytest.mark.parametrize("results", [(3,), (5,), (6, 3), (3, 5), (1,)])
def test_scales_and_codes_are_computed_on_the_sums(isa: Isa, of: str, results: tuple[int, ...]) -> None:
    """Sizes that fill no tile, sums that wait for the next block of K, panels of every kind."""
    for m, n, k, bound in ((5, 19, 7, ()), (1, 33, 130, (1,)), (13, 40, 2501, (1,)), (33, 17, 1300, ())):
        a, b = numbers(of, (m, k)), numbers(of, (k, n), seed=2)
        rows, columns, bias = floats(m, 1) / 1e4, floats(n, seed=2) / k, floats(n, seed=3)
        with np.errstate(over="ignore"):
            sums = a.astype(np.int32) @ b.astype(np.int32)
        first = sums.astype(np.float32) * rows
        values = first * columns + bias
        rounded = np.rint(values)
        expected = {
            1: first, 3: values, 5: np.clip(rounded, -128, 127).astype(np.int8), 6: np.clip(rounded, 0, 255).astype(np.uint8),
        }  # fmt: skip
        made = kernel(
            integer_matmul_epilogue, op_of(m, n, CODES, *results), [a, b, rows, columns, bias], isa, bound=bound
        )
        for threads in (1, 3):
            found = made(a, b, rows, columns, bias, threads=threads)
            for each, result in zip(found, results, strict=True):
                assert each.dtype == expected[result].dtype
                np.testing.assert_array_equal(each, expected[result], err_msg=f"{m, n, k, bound, result}")


FORMULAS: dict[str, Callable[..., Any]] = {
    "dequantised": lambda s, r, c, x: rlx.astype(s, "f32") * r * c,
    "gelu": lambda s, r, c, x: rlx.gelu(rlx.astype(s, "f32") * r * c + x[0]),
    "residual": lambda s, r, c, x: rlx.astype(s, "f32") * r * c + x,
    "halves": lambda s, r, c, x: rlx.astype(rlx.astype(s, "f32") * r, "f16"),
    "requantised": lambda s, r, c, x: rlx.astype(rlx.clip(rlx.round(rlx.astype(s, "f32") * c) + 3, 0, 255), "u8"),
    "sums too": lambda s, r, c, x: (s + 7, rlx.astype(s + 7, "f32") * c),
    "selected": lambda s, r, c, x: rlx.where(x > 1, rlx.astype(s, "f32"), x),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("sizes", ["", "n"])
def test_a_fused_program_has_the_bits_of_the_unfused_one(name: str, sizes: str) -> None:
    w = {"w": numbers("i8", (96, 50)), "c": floats(50) / 1e4}

    def program(p: Any, a: Any, r: Any, x: Any) -> Any:
        return FORMULAS[name](rlx.matmul(a, p["w"], acc_dtype=i32), r, p["c"], x)

    rows = sizes or "7"
    specs = [rlx.spec(f"{t}") for t in (f"i8[2, {rows}, 96]", f"f32[2, {rows}, 1]", f"f32[2, {rows}, 50]")]
    arrays = numbers("i8", (2, 7, 96), seed=5), floats(2, 7, 1), floats(2, 7, 50, seed=6)
    fused, apart = (rlx.compile(program, w, *specs, config={"fusion.enabled": on}) for on in (True, False))
    results, expected = (as_results(each(*arrays)) for each in (fused, apart))
    kernels = [step.kernel for step in fused.executable.lir.steps]
    assert kernels.count("native_integer_matmul_epilogue") == 1 or sizes
    assert "native_integer_matmul_epilogue" not in [step.kernel for step in apart.executable.lir.steps]
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize(
    ("types", "steps", "acc", "reason"),
    [
        (("i32[2, 4]", "i32[4, 3]"), (RegionStep(Cast(f32), (0,)),), i32, "not i32 with sums in i32"),
        (("i8[2, 4]", "i8[4, 3]"), (RegionStep(Cast(f32), (0,)),), i64, "not i8 with sums in i64"),
        (("i8[2, 4]", "i8[4, 3]"), (RegionStep(Cast(dtype("f64")), (0,)),), i32, "results that are one of f32"),
        (
            ("i8[2, 4]", "i8[4, 3]", "i64[3]"),
            (RegionStep(Cast(f32), (0,)), RegionStep(Cast(f32), (1,))),
            i32,
            "not i64",
        ),
    ],
)
def test_refusals_have_reasons(types: tuple[str, ...], steps: Any, acc: Any, reason: str) -> None:
    builder = Builder("product")
    access = ((3, 1), (0, 1))[: len(types) - 1]
    op = FusedMatMulEpilogue(ElementwiseRegion((2, 3), steps, access, (0,)), acc)
    (result,) = builder.emit(op, [builder.input(f"x{i}", spec(t)) for i, t in enumerate(types)])
    assert reason in (reason_at_integers(result.node) or "")
