"""The interpreter of the loop language holds values as registers do."""

from __future__ import annotations

import numpy as np

from rlx_core.codegen import run_kernel
from rlx_core.codegen.loops import Kernel
from rlx_core.ir.dtypes import bf16, f16, f32
from rlx_core.ops.conversion import Cast
from rlx_core.ops.fused import FusedSwiGLU
from rlx_core.ops.structural import Sum

from .kernels import kernel


def run(one: Kernel, x: np.ndarray) -> np.ndarray:
    result = one.buffers[-1]
    data = [x.view(np.uint8), np.zeros(one.grid_size * result.dtype.itemsize, np.uint8)]
    run_kernel(one, data)
    return data[1].view(result.dtype.numpy)


def test_narrow_floats_are_rounded_where_they_are_stored_and_not_before() -> None:
    """With a wider result, not at all: what is one op has one rounding, of bf16 one in 2^8."""
    up, gate = x = np.array([0.226, 0.742], bf16.numpy)
    exact = float(up) * float(gate) / (1 + np.exp(-float(gate)))
    found = run(kernel(FusedSwiGLU(cast_to=f32), "bf16[1, 2]"), x)
    assert abs(found[0] - exact) < 1e-6


def test_a_cast_to_a_narrow_float_rounds_and_overflows() -> None:
    x = np.array([1 + 2**-9, 65520.0], np.float32)
    assert run(kernel(Cast(f16), "f32[2]"), x).tolist() == [x[0], np.inf]
    assert run(kernel(Cast(bf16), "f32[2]"), x).astype(np.float32).tolist() == [1.0, 65536.0]


def test_sums_of_narrow_floats_are_held_in_f32() -> None:
    """In bf16 a one is half of the last digit of 256, and adds nothing."""
    x = np.concatenate([[256.0], np.ones(8)]).astype(bf16.numpy)
    assert run(kernel(Sum(axes=(0,)), "bf16[9]"), x)[0] == 264
