"""Products of integers: they wrap in their own width, or are summed in a wider one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import EVERY_WIDTH, kernel

from rlx_core.ir.dtypes import dtype, i32, i64
from rlx_core.ops.linalg import MatMul
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.products.gemm_integer import integer_matmul

INTEGER_DTYPES = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]


@EVERY_WIDTH
@pytest.mark.parametrize("of", INTEGER_DTYPES)
def test_integer_products_wrap_in_their_own_width(isa: Isa, of: str) -> None:
    rng = np.random.default_rng(17)
    of_numpy = dtype(of).numpy
    limits = np.iinfo(of_numpy)
    for m, n, k, is_transposed in (
        (5, 70, 9, False),
        (4, 64, 300, True),
        (1, 3, 2, True),
        (0, 3, 2, False),
        (2, 3, 0, False),
    ):
        a, b = (rng.integers(limits.min, limits.max, shape, of_numpy, endpoint=True) for shape in ((m, k), (n, k)))
        b = b.T if is_transposed else np.ascontiguousarray(b.T)
        made = kernel(integer_matmul, MatMul(), [a, b], isa)
        with np.errstate(over="ignore"):
            expected = a @ b
        for threads in (1, 3):
            assert np.array_equal(made(a, b, threads=threads)[0], expected)


@EVERY_WIDTH
@pytest.mark.parametrize(("of", "wider"), [("i8", i32), ("u8", i32), ("i32", i64)])
def test_integer_products_may_be_summed_in_a_wider_dtype(isa: Isa, of: str, wider: Any) -> None:
    rng = np.random.default_rng(18)
    limits = np.iinfo(dtype(of).numpy)
    a, b = (rng.integers(limits.min, limits.max, shape, dtype(of).numpy) for shape in ((2, 3, 9, 31), (3, 31, 21)))
    (found,) = kernel(integer_matmul, MatMul(acc_dtype=wider), [a, b], isa)(a, b)
    assert np.array_equal(found, a.astype(wider.numpy) @ b.astype(wider.numpy))
