"""WGSL kernels on a Vulkan device: pairs for i64, sub-word stores, NaN by bits, and scalar code that may not be reassociated."""

from __future__ import annotations

import numpy as np
import pytest

from plugins.rlx_gpu.tests.codegen.cases import MACHINES, agree, checked_values, data_of, new_kernels, printed
from plugins.rlx_gpu.tests.codegen.lavapipe import Programs
from rlx_core.codegen import run_kernel
from rlx_core.codegen.faults import Report
from rlx_core.codegen.interpret import outside_of
from rlx_core.codegen.loops import Kernel
from rlx_core.ir.dtypes import i16, i64
from rlx_core.ir.op import Op
from rlx_core.ops.activation import erfc, exp
from rlx_core.ops.arithmetic import floor_divide, multiply, remainder
from rlx_core.ops.arithmetic import pow as power
from rlx_core.ops.batch_norm import BatchNorm
from rlx_core.ops.comparison import greater
from rlx_core.ops.conversion import Cast
from rlx_core.ops.gamma import digamma, lgamma
from rlx_core.ops.indexing import Gather
from rlx_core.ops.softmax import Softmax
from rlx_core.ops.trigonometry import cos, sin, tan
from rlx_gpu.codegen.wgsl import WGSL
from tests.codegen.kernels import kernel

KINDS = {
    "rows": kernel(Softmax(), "f32[3, 70]"),
    "rows of halves": kernel(Softmax(), "f16[5, 40]"),
    "booleans": kernel(greater.op(), "f32[15, 7]", "f32[15, 7]"),
    "numbers of 64 bits": kernel(multiply.op(), "i64[20]", "i64[20]"),
    "from floats to pairs": kernel(Cast(i64), "f32[24]"),
    "from pairs to short words": kernel(Cast(i16), "u64[13]"),
    "an index from data": kernel(Gather(0), "f32[9, 16]", "i64[5]"),
    "exponentials": kernel(exp.op(), "bf16[9]"),
}


def check(one: Kernel, name: str) -> None:
    functions = printed(one, WGSL, MACHINES[name])
    want, got = data_of(one), data_of(one)
    reports = Programs([functions]).run(functions, got)
    checked = checked_values(one, functions)
    outside = [outside_of(one, value, want) for value in checked]
    assert reports == [None if each is None else Report(*each) for each in outside]
    if not any(reports):
        run_kernel(one, want)
        assert list(agree(one, want, got)) == []


@pytest.mark.parametrize("name", ["small", *(pytest.param(n, marks=pytest.mark.slow) for n in ("usual", "parts"))])
def test_every_kind_of_kernel_is_the_interpreters(name: str) -> None:
    for one in KINDS.values():
        check(one, name)


def test_halves_that_are_one_a_row_are_those_of_rows_in_parts_too() -> None:
    """Threads that store parts of a word flip its bits: that none does it for another shows here alone."""
    check(kernel(BatchNorm(), "f16[2, 3, 4]", *["f16[3]"] * 4), "parts")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(12))
@pytest.mark.parametrize("name", MACHINES)
def test_every_sample_is_the_interpreters(name: str, part: int) -> None:
    for one in new_kernels(WGSL, name)[part::12]:
        check(one, name)


@pytest.mark.parametrize("op", [sin.op, cos.op, tan.op], ids=lambda op: op.name)
def test_circular_functions_keep_their_digits_however_large_the_argument_is(op: type[Op]) -> None:
    """Of every size, and next to multiples of π/2; the language promises nothing beyond ±π."""
    rng, multiples = np.random.default_rng(0), np.arange(1.0, 200.0) * np.pi / 2
    x = np.concatenate([2.0 ** rng.uniform(-20, 128, 400), multiples, [16367173 * 2.0**72, np.inf, np.nan]])
    x = (x * rng.choice([-1, 1], x.size)).astype(np.float32)
    one = kernel(op(), f"f32[{x.size}]")
    functions = printed(one, WGSL, MACHINES["usual"])
    data = [x.view(np.uint8), np.zeros(x.nbytes, np.uint8)]
    Programs([functions]).run(functions, data)
    with np.errstate(invalid="ignore"):
        exact = {"rlx.sin": np.sin, "rlx.cos": np.cos, "rlx.tan": np.tan}[op.name](x.astype(np.float64))
    # 4 ulp, of which a division in WGSL may have 2.5.
    np.testing.assert_allclose(data[1].view(np.float32), exact, rtol=4 * 2.0**-23)


@pytest.mark.parametrize("op", [lgamma.op, digamma.op, power.op, erfc.op], ids=lambda op: op.name)
def test_functions_that_need_what_a_product_lost_keep_their_digits_without_fused_products(op: type[Op]) -> None:
    """WGSL leaves open whether `fma` rounds once, and lavapipe rounds twice."""
    rng = np.random.default_rng(1)
    sizes = [np.exp(rng.uniform(-10, 10, 300)), rng.uniform(0.2, 4, 300), np.array([1.0, 2.0, 1.4616321])]
    x = np.concatenate(sizes).astype(np.float32)
    x = np.clip(x, 0, 9) if op is erfc.op else x
    args = [x, rng.uniform(-9, 9, x.size).astype(np.float32)] if op is power.op else [x]
    one = kernel(op(), *[f"f32[{x.size}]"] * len(args))
    functions = printed(one, WGSL, MACHINES["usual"])
    data = [*(a.view(np.uint8) for a in args), np.zeros(x.nbytes, np.uint8)]
    Programs([functions]).run(functions, data)
    reference = op().reference
    assert reference is not None
    with np.errstate(all="ignore"):
        exact = np.asarray(reference(*(a.astype(np.float64) for a in args)))
    usual = np.isfinite(exact) & (np.abs(exact) > 2.0**-126) & (np.abs(exact) < 2.0**128)
    # 4 ulp, and a division in WGSL may have 2.5 more.
    np.testing.assert_allclose(data[-1].view(np.float32)[usual], exact[usual], rtol=6.5 * 2.0**-23)


@pytest.mark.parametrize("op", [multiply.op(), floor_divide.op(), remainder.op()], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["i64", "u64"])
def test_numbers_of_two_words_are_numpys(op: object, dtype: str) -> None:
    """Carries between the words, divisions bit by bit, signs."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 64, (2, 200))
    x, y = (rng.integers(-(2**63), 2**63 - 1, 200) >> n for n in bits)
    y = np.where(y == 0, 3, y)
    one = kernel(op, f"{dtype}[200]", f"{dtype}[200]")  # type: ignore[arg-type]
    data = [*(v.astype(np.int64).view(np.uint8) for v in (x, y)), np.zeros(1600, np.uint8)]
    want = [d.copy() for d in data]
    run_kernel(one, want)
    functions = printed(one, WGSL, MACHINES["usual"])
    Programs([functions]).run(functions, data)
    np.testing.assert_array_equal(data[2].view(np.int64), want[2].view(np.int64))
