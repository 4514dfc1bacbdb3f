"""Products through BLAS and systems of equations through LAPACK: library calls, straight into the planned buffer.

Transposed operands are passed as they lie.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.ops.linalg import MatMul
from rlx_core.ops.solve import BatchedDenseSolve, DenseSolve
from rlx_cpu.kernels.table import BLAS, LIBRARY, kernels, one_dtype


@kernels.register(MatMul, dtypes=BLAS, when=one_dtype, accepts_strides=True, tier=LIBRARY)
def matmul(op: Any, a: np.ndarray, b: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """BLAS on the last two axes, NumPy's loop over the others."""
    product(a, b, out)


@kernels.register(DenseSolve, BatchedDenseSolve, dtypes=BLAS, accepts_strides=True, tier=LIBRARY, name="lapack_solve")
def solve(op: Any, a: np.ndarray, b: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """LAPACK's LU with pivoting, slice by slice."""
    np.copyto(out, op.reference(a, b))


def product(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """`a @ b` into `out`."""
    is_plain = a.flags.c_contiguous and out.flags.c_contiguous and a.size and out.size
    if b.ndim == 2 and a.ndim > 2 and is_plain:
        # One product of all rows instead of one per batch: weights are shared. A strided `out` would be reshaped into a copy.
        np.matmul(a.reshape(-1, a.shape[-1]), b, out=out.reshape(-1, out.shape[-1]))
    else:
        np.matmul(a, b, out=out)
