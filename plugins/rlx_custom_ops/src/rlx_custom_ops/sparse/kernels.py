"""Kernels for target `cpu`: the same calls of SciPy as the references make, into the buffers of the plan."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.pipeline.kernels import KernelTable
from rlx_custom_ops.sparse.ops.least_squares import Lsqr
from rlx_custom_ops.sparse.ops.solve import SparseSolve

kernels = KernelTable("cpu", plugin="sparse")


DTYPES = "f32 f64 c64 c128 i8 i16 i32 i64 u8 u16 u32 u64"


@kernels.register(SparseSolve, dtypes=DTYPES, accepts_strides=True)
def scipy_sparse_solve(op: Any, *operands: np.ndarray, out: np.ndarray, workspace: Any) -> None:
    """SuperLU, or an iteration, in float64."""
    op.solve_into(out, *operands)


@kernels.register(Lsqr, dtypes=DTYPES, accepts_strides=True)
def scipy_sparse_lsqr(op: Any, *operands: np.ndarray, out: np.ndarray, workspace: Any) -> None:
    """LSQR, in float64."""
    op.solve_into(out, *operands)
