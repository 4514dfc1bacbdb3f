"""The rows of products."""

from __future__ import annotations

import pytest

import rlx_core as rlx
from rlx_core.ir.dtypes import DType, f32, i32
from rlx_gpu.rows.products import product_type


@pytest.mark.parametrize(("factors", "sums"), [("i8", i32), ("u8", i32), ("i16", i32), ("bf16", f32), ("f16", f32)])
def test_an_epilogue_reads_sums_of_the_dtype_of_the_op(factors: str, sums: DType) -> None:
    """Sums of bytes were bytes, so that epilogues of quantised products read them modulo 256."""
    types = [rlx.spec(f"{factors}[3, 40]"), rlx.spec(f"{factors}[40, 5]"), rlx.spec("f32[5]")]
    assert product_type(types, sums) == rlx.spec(f"{sums}[3, 5]")
    assert product_type(types).dtype.name == factors
