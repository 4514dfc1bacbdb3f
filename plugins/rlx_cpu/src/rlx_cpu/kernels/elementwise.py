"""Element-wise ops that are NumPy ufuncs, and activations with a dedicated kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.ops.activation import erf, gelu, relu, sigmoid, silu
from rlx_core.ops.kinds import Elementwise
from rlx_cpu.kernels import special
from rlx_cpu.kernels.table import FLOAT, NATIVE, has_ufunc, kernels

CHUNK = 1 << 14
"""Elements of a temporary: 64 KiB of f32 stays in L2."""


@kernels.register(Elementwise, dtypes=NATIVE, when=has_ufunc, in_place=(0, 1), accepts_strides=True, priority=-1)
def ufunc(op: Any, *operands: np.ndarray, out: np.ndarray, workspace: Any) -> None:
    """The ufunc itself, writing into the planned buffer."""
    type(op).meaning(*operands, out=out, casting="unsafe")


@kernels.register(erf.op, dtypes=FLOAT, in_place=(0,), accepts_strides=True)
def error_function(op: Any, x: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """SciPy's erf, which is a ufunc."""
    special.erf(x, out=out)


@kernels.register(relu.op, dtypes=FLOAT, in_place=(0,), accepts_strides=True)
def relu_kernel(op: Any, x: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """max(x, 0), NaN staying NaN."""
    np.maximum(x, x.dtype.type(0), out=out)


@kernels.register(sigmoid.op, dtypes=FLOAT, in_place=(0,), accepts_strides=True)
def sigmoid_kernel(op: Any, x: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """SciPy's logistic function, which does not overflow."""
    special.expit(x, out=out)


@kernels.register(silu.op, dtypes=FLOAT, accepts_strides=True)
def silu_kernel(op: Any, x: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """x · σ(x), the sigmoid taking shape in the result's buffer."""
    special.expit(x, out=out)
    np.multiply(out, x, out=out)


@kernels.register(gelu.op, dtypes=FLOAT, accepts_strides=True)
def gelu_kernel(op: Any, x: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """x · ½·erfc(-x/√2), the distribution taking shape in the result's buffer; 1 + erf would lose the left tail."""
    np.multiply(x, x.dtype.type(-np.sqrt(0.5)), out=out)
    special.erfc(out, out=out)
    np.multiply(out, x, out=out)
    np.multiply(out, x.dtype.type(0.5), out=out)


def gelu_in_place(x: np.ndarray) -> None:
    """`gelu` on a dense buffer, a cache-sized piece at a time."""
    flat = x.reshape(-1)
    half, root = x.dtype.type(0.5), x.dtype.type(-np.sqrt(0.5))
    for start in range(0, flat.size, CHUNK):
        piece = flat[start : start + CHUNK]
        phi = special.erfc(piece * root)
        phi *= half
        piece *= phi


def silu_in_place(x: np.ndarray) -> None:
    """`silu` on a dense buffer, a cache-sized piece at a time."""
    flat = x.reshape(-1)
    for start in range(0, flat.size, CHUNK):
        piece = flat[start : start + CHUNK]
        piece *= special.expit(piece)
