"""Reductions that NumPy can write into a given buffer."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.ops.reduction import Max, Mean, Min
from rlx_core.ops.structural import Sum
from rlx_cpu.kernels.table import FLOAT, kernels


@kernels.register(Sum, dtypes=f"{FLOAT} i64 c64 c128", accepts_strides=True)
def sum_kernel(op: Any, x: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """NumPy's pairwise sum."""
    np.sum(x, axis=op.axes, keepdims=op.keep_dim, out=out)


@kernels.register(Mean, dtypes=FLOAT, accepts_strides=True)
def mean_kernel(op: Any, x: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """The pairwise sum over the count; NaN for no elements."""
    np.sum(x, axis=op.axes, keepdims=op.keep_dim, out=out)
    np.divide(out, x.dtype.type(x.size // max(out.size, 1)), out=out)


@kernels.register(Max, dtypes=FLOAT, accepts_strides=True)
def max_kernel(op: Any, x: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """The largest element; NaN wins."""
    np.max(x, axis=op.axes, keepdims=op.keep_dim, out=out)


@kernels.register(Min, dtypes=FLOAT, accepts_strides=True)
def min_kernel(op: Any, x: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """The smallest element; NaN wins."""
    np.min(x, axis=op.axes, keepdims=op.keep_dim, out=out)
