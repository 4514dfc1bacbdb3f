"""Norms over features, groups and batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx_core.ir.dtypes import dtype as as_dtype
from rlx_core.ops import batch_norm as _batch_norm
from rlx_core.ops import normalization
from rlx_core.ops.convolution.arguments import Layout, channel_axis
from rlx_core.ops.creation import ones, zeros
from rlx_core.ops.linalg import operand
from rlx_core.ops.statistics import as_axes

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["batch_norm", "batch_norm_inference", "group_norm", "layer_norm", "rms_norm"]


def layer_norm(
    x: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    *,
    axes: int | tuple[int, ...] = -1,
    eps: float = 1e-5,
) -> Array:
    """Zero mean and unit (biased) variance over `axes`, then `· gamma + beta`."""
    return normalization.layer_norm(x, gamma, beta, axes=as_axes(axes), eps=eps)


def rms_norm(
    x: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    *,
    axes: int | tuple[int, ...] = -1,
    eps: float = 1e-6,
) -> Array:
    """`x` over its root mean square along `axes`, then `· gamma + beta`."""
    return normalization.rms_norm(x, gamma, beta, axes=as_axes(axes), eps=eps)


def group_norm(
    x: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    *,
    groups: int | None = None,
    eps: float = 1e-5,
) -> Array:
    """Zero mean and unit variance over each group of channels of `[n, c, ..]`, then `· gamma + beta` per channel.

    Raises:
        WrongInputCountError: `groups` is absent: there is no number of groups that would mean the same for all models.
    """
    given: dict[str, Any] = {} if groups is None else {"groups": groups}
    return normalization.group_norm(x, gamma, beta, **given, eps=eps)


def batch_norm(
    x: ArrayLike,
    gamma: ArrayLike | None,
    beta: ArrayLike | None,
    running_mean: ArrayLike,
    running_var: ArrayLike,
    *,
    momentum: float = 0.1,
    eps: float = 1e-5,
    layout: Layout = "nchw",
) -> tuple[Array, Array, Array]:
    """Each channel with the statistics of the batch, as in training; the running statistics are state, in and out.

    Args:
        x: `[n, c, ..]`, or `[n, .., c]` in layout `nhwc`.
        gamma, beta: `[c]`; 1 and 0 if absent.
        running_mean, running_var: `[c]`, of all batches before this one.
        momentum: How far the running statistics move towards those of this batch, 0 to 1.
        eps: Added to the variance before the root.
        layout: Where the channels are.

    Returns:
        y, with the biased variance; and the running statistics to go on with, of which the variance is the unbiased one.

    Raises:
        ShapeError: A channel has fewer than two elements, or an operand is not `[c]`.

    >>> y, mean, var = batch_norm([[1.0], [3.0]], None, None, [0.0], [1.0], momentum=0.5, eps=0.0)
    >>> y.tolist(), mean.tolist(), var.tolist()
    ([[-1.0], [1.0]], [1.0], [1.5])
    """
    axis, data, affine = _channels("batch_norm", x, gamma, beta, layout)
    y, _, _, mean, var = _batch_norm.batch_norm(
        data, *affine, running_mean, running_var, axis=axis, eps=eps, momentum=momentum
    )
    return y, mean, var


def batch_norm_inference(
    x: ArrayLike,
    gamma: ArrayLike | None,
    beta: ArrayLike | None,
    mean: ArrayLike,
    var: ArrayLike,
    *,
    eps: float = 1e-5,
    layout: Layout = "nchw",
) -> Array:
    """Each channel with given statistics: `(x - mean) / sqrt(var + eps) · gamma + beta`; arguments as in `batch_norm`."""
    axis, data, affine = _channels("batch_norm_inference", x, gamma, beta, layout)
    return _batch_norm.batch_norm_inference(data, *affine, mean, var, axis=axis, eps=eps)


def _channels(what: str, x: ArrayLike, gamma: Any, beta: Any, layout: Layout) -> tuple[int, Any, tuple[Any, Any]]:
    """The axis of the channels, x, and gamma and beta, or what stands for them."""
    data = operand(x)
    axis = channel_axis(what, data, layout)
    count, dtype = data.shape[axis], as_dtype(data.dtype)
    given = gamma if gamma is not None else ones((count,), dtype)
    return axis, data, (given, beta if beta is not None else zeros((count,), dtype))
