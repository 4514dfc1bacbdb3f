"""Norms over features, groups and batches."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlx_core.errors import ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import dtype as as_dtype
from rlx_core.nn.floats import floats, narrowed
from rlx_core.ops import batch_norm as _batch_norm
from rlx_core.ops import normalization
from rlx_core.ops.arguments import number, whole
from rlx_core.ops.arithmetic import add, divide, multiply, pow, square
from rlx_core.ops.array_shapes import pad
from rlx_core.ops.convolution.arguments import Layout, channel_axis, spatially
from rlx_core.ops.creation import ones, zeros
from rlx_core.ops.linalg import operand
from rlx_core.ops.movement import narrow
from rlx_core.ops.statistics import as_axes

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = [
    "batch_norm",
    "batch_norm_inference",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "local_response_norm",
    "rms_norm",
]


@checked_call
def layer_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    axis: int | Sequence[int] = -1,
    eps: float = 1e-5,
) -> Array:
    """Zero mean and unit (biased) variance over `axis`, then `· weight + bias`."""
    return normalization.layer_norm(x, weight, bias, axes=as_axes(axis), eps=eps)


@checked_call
def rms_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    axis: int | Sequence[int] = -1,
    eps: float = 1e-6,
) -> Array:
    """`x` divided by its root mean square along `axis`, then `· weight + bias`."""
    return normalization.rms_norm(x, weight, bias, axes=as_axes(axis), eps=eps)


@checked_call
def group_norm(
    x: ArrayLike,
    num_groups: int,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
) -> Array:
    """Zero mean and unit variance over each group of channels of `[n, c, ..]`, then `· weight + bias` per channel."""
    return normalization.group_norm(
        x, weight, bias, groups=whole("group_norm: num_groups", num_groups, least=1), eps=eps
    )


@checked_call
def instance_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
    layout: Layout = "nchw",
) -> Array:
    """Zero mean and unit (biased) variance over the cells of each channel of each example, then `· weight + bias` per channel.

    Args:
        x: `[n, c, ..]` with at least one spatial axis, or `[n, .., c]` in layout `nhwc`.
        weight, bias: `[c]`; 1 and 0 if absent.
        eps: Added to the variance before the root.
        layout: The position of the channels.

    Raises:
        ShapeError: There is no spatial axis, the number of channels is unknown, or an operand is not `[c]`.
    """
    data = operand(x)
    count = data.shape[channel_axis("instance_norm", data, layout)]
    if data.ndim < 3 or not isinstance(count, int):
        raise ShapeError(
            f"instance_norm: x must have spatial axes and a known number of channels, not {list(data.shape)}"
        )
    return spatially("instance_norm", data, layout, lambda y: group_norm(y, count, weight, bias, eps=eps))


@checked_call
def local_response_norm(
    x: ArrayLike, size: int, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, layout: Layout = "nchw"
) -> Array:
    """`x / (k + alpha · s)^beta`, with s the mean of the squares of `size` adjacent channels, zeros beyond the ends.

    Args:
        x: `[n, c, ..]`, or `[n, .., c]` in layout `nhwc`.
        size: The number of adjacent channels: from `size // 2` before to `(size - 1) // 2` after.
        alpha, beta, k: Parameters of the formula.
        layout: The position of the channels.

    Source:
        Krizhevsky, Sutskever, Hinton 2012, "ImageNet classification with deep convolutional neural networks", section 3.3.
    """
    width = whole("local_response_norm: size", size, least=1)
    result_dtype, (data,) = floats("local_response_norm", x=x)
    axis = channel_axis("local_response_norm", data, layout)
    share, power, base = (
        number(f"local_response_norm: {n}", v) for n, v in (("alpha", alpha), ("beta", beta), ("k", k))
    )
    ends = [(width // 2, (width - 1) // 2) if i == axis else (0, 0) for i in range(data.ndim)]
    squares = pad(square(data), ends)
    near = [narrow(squares, axis=axis, start=i, length=data.shape[axis]) for i in range(width)]
    scale = add(multiply(functools.reduce(add, near), share / width), base)
    return narrowed(divide(data, pow(scale, power)), result_dtype)


@checked_call
def batch_norm(
    x: ArrayLike,
    running_mean: ArrayLike,
    running_var: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
    layout: Layout = "nchw",
) -> tuple[Array, Array, Array]:
    """Each channel normalised with the statistics of the batch, as in training; the running statistics are state, in and out.

    Args:
        x: `[n, c, ..]`, or `[n, .., c]` in layout `nhwc`.
        running_mean, running_var: `[c]`, of all batches before this one.
        weight, bias: `[c]`; 1 and 0 if absent.
        momentum: The fraction by which the running statistics move towards those of this batch, 0 to 1.
        eps: Added to the variance before the root.
        layout: The position of the channels.

    Returns:
        y, normalised with the biased variance; and the updated running statistics, with the unbiased variance.

    Raises:
        ShapeError: A channel has fewer than two elements, or an operand is not `[c]`.

    >>> y, mean, var = batch_norm([[1.0], [3.0]], [0.0], [1.0], momentum=0.5, eps=0.0)
    >>> y.tolist(), mean.tolist(), var.tolist()
    ([[-1.0], [1.0]], [1.0], [1.5])
    """
    axis, data, affine = _channels("batch_norm", x, weight, bias, layout)
    y, _, _, mean, var = _batch_norm.batch_norm(
        data, *affine, running_mean, running_var, axis=axis, eps=eps, momentum=momentum
    )
    return y, mean, var


@checked_call
def batch_norm_inference(
    x: ArrayLike,
    running_mean: ArrayLike,
    running_var: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    layout: Layout = "nchw",
) -> Array:
    """Each channel normalised with given statistics: `(x - mean) / sqrt(var + eps) · weight + bias`; see `batch_norm`."""
    axis, data, affine = _channels("batch_norm_inference", x, weight, bias, layout)
    return _batch_norm.batch_norm_inference(data, *affine, running_mean, running_var, axis=axis, eps=eps)


def _channels(what: str, x: ArrayLike, weight: Any, bias: Any, layout: Layout) -> tuple[int, Any, tuple[Any, Any]]:
    """Return the axis of the channels, x, and the weight and bias, 1 and 0 if absent."""
    data = operand(x)
    axis = channel_axis(what, data, layout)
    count, dtype = data.shape[axis], as_dtype(data.dtype)
    scale = weight if weight is not None else ones((count,), dtype)
    return axis, data, (scale, bias if bias is not None else zeros((count,), dtype))
