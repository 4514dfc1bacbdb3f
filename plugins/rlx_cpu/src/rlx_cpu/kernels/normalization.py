"""Softmax and norms along the last axis, computed in the result's buffer."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_core.ops.normalization import LayerNorm, RmsNorm
from rlx_core.ops.softmax import LogSoftmax, Softmax
from rlx_cpu.kernels.table import FLOAT, kernels, last_axis, one_dtype


def softmax_rows(x: np.ndarray, *, is_empty_zero: bool) -> None:
    """Softmax of the last axis in place; with `is_empty_zero` a row of only -inf becomes zeros instead of NaN."""
    peak = x.max(axis=-1, keepdims=True)
    if is_empty_zero:
        np.copyto(peak, 0, where=np.isneginf(peak))
    np.subtract(x, peak, out=x)
    np.exp(x, out=x)
    total = x.sum(axis=-1, keepdims=True)
    if is_empty_zero:
        np.copyto(total, 1, where=total == 0)
    np.divide(x, total, out=x)


@kernels.register(Softmax, dtypes=FLOAT, when=last_axis("axis"), in_place=(0,), accepts_strides=True)
def softmax(op: Softmax, x: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """Shift, exponentiate and divide in the result's buffer."""
    if out is not x:
        np.copyto(out, x)
    if out.size:
        softmax_rows(out, is_empty_zero=op.empty_row == "zero")


@kernels.register(LogSoftmax, dtypes=FLOAT, when=last_axis("axis"), accepts_strides=True)
def log_softmax(op: LogSoftmax, x: np.ndarray, *, out: np.ndarray, workspace: Any) -> None:
    """x - max - log Σ exp, the exponentials taking shape in the result's buffer."""
    if not out.size:
        return
    peak = x.max(axis=-1, keepdims=True)
    np.subtract(x, peak, out=out)
    np.exp(out, out=out)
    peak += np.log(out.sum(axis=-1, keepdims=True))
    np.subtract(x, peak, out=out)


def scaled_and_shifted(out: np.ndarray, gamma: np.ndarray | None, beta: np.ndarray | None) -> None:
    if gamma is not None:
        np.multiply(out, gamma, out=out)
    if beta is not None:
        np.add(out, beta, out=out)


def normalize(x: np.ndarray, gamma: np.ndarray | None, beta: np.ndarray | None, eps: float, out: np.ndarray) -> None:
    """Layer normalisation of the last axis, in two passes; `out` may be `x`."""
    if not out.size:
        return
    np.subtract(x, x.mean(axis=-1, keepdims=True), out=out)
    variance = np.einsum("...i,...i->...", out, out)[..., None] / out.dtype.type(out.shape[-1])
    variance += out.dtype.type(eps)
    np.divide(out, np.sqrt(variance, out=variance), out=out)
    scaled_and_shifted(out, gamma, beta)


@kernels.register(LayerNorm, dtypes=FLOAT, when=(last_axis("axes"), one_dtype), in_place=(0,), accepts_strides=True)
def layer_norm(
    op: LayerNorm, x: np.ndarray, gamma: Any = None, beta: Any = None, *, out: np.ndarray, workspace: Any
) -> None:
    """Mean and variance of each row in two passes."""
    normalize(x, gamma, beta, op.eps, out)


@kernels.register(RmsNorm, dtypes=FLOAT, when=(last_axis("axes"), one_dtype), in_place=(0,), accepts_strides=True)
def rms_norm(
    op: RmsNorm, x: np.ndarray, gamma: Any = None, beta: Any = None, *, out: np.ndarray, workspace: Any
) -> None:
    """The root mean square of each row, then one division."""
    if not out.size:
        return
    square = np.einsum("...i,...i->...", x, x)[..., None] / out.dtype.type(out.shape[-1])
    square += out.dtype.type(op.eps)
    np.divide(x, np.sqrt(square, out=square), out=out)
    scaled_and_shifted(out, gamma, beta)
