"""Convolutions as layers: for any number of spatial axes, in either layout, with a bias."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx_core.errors import ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import product
from rlx_core.ir.dtypes import DType
from rlx_core.ops.arguments import listed, whole
from rlx_core.ops.convolution import conv as ops
from rlx_core.ops.convolution.arguments import (
    Layout,
    Padding,
    Steps,
    channels_second,
    paddings,
    steps,
    windows,
    with_layout,
)
from rlx_core.ops.convolution.sliding import overlap_add, sliding_windows
from rlx_core.ops.convolution.transposed import conv_transpose as transposed_op
from rlx_core.ops.convolution.ways import fitted
from rlx_core.ops.linalg import operand
from rlx_core.ops.structural import reshape

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["conv", "conv_transpose", "fold", "unfold"]


@checked_call
def conv(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    stride: Steps = 1,
    padding: Padding = 0,
    dilation: Steps = 1,
    groups: int = 1,
    layout: Layout = "nchw",
) -> Array:
    """The convolution of x with a kernel, over one to three spatial axes, plus a bias; see `Conv`.

    As usual in machine learning the kernel is not flipped: this is cross-correlation.

    Args:
        x: `[n, c, ..]`, or `[n, .., c]` in layout `nhwc`.
        weight: `[m, c/groups, k..]` in either layout.
        bias: `[m]`, or none.
        stride: The distance in cells between windows; one number, or one for each spatial axis.
        padding: Zeros at both ends of every axis, one number or one entry per axis, which may be a pair; "same" for one window
            for every `stride` cells, "valid" for none.
        dilation: The distance in cells between elements of the kernel.
        groups: The number of independent groups of channels; `groups=c` is a depthwise convolution.
        layout: The position of the channels, "nchw" or "nhwc", for any number of spatial axes.

    Returns:
        `[n, m, ..]`, or `[n, .., m]`.

    Raises:
        ShapeError: The kernel is larger than the padded axis, groups do not divide the channels, a stride is below 1, or the
            operands do not fit.
        ConfigError: The padding or the layout is unknown, or a list does not have one entry per axis.

    >>> conv([[[1.0, 2.0, 3.0, 4.0]]], [[[1.0, 1.0]]], stride=2).tolist()
    [[[3.0, 7.0]]]
    """
    y = convolved(x, weight, stride, padding, dilation, groups, layout)
    return _biased("conv", y, bias, layout)


def convolved(
    x: Any,
    weight: Any,
    stride: Steps = 1,
    padding: Padding = 0,
    dilation: Steps = 1,
    groups: int = 1,
    layout: Layout = "nchw",
    acc_dtype: DType | None = None,
) -> Any:
    """Return a convolution without bias, `[n, m, ..]` in either layout of x; `acc_dtype` as of `Conv`, the others of `conv`."""
    data, weights = channels_second("conv", x, layout), _weights("conv", x, weight)
    steps_of = windows("conv", data, _kernel(weights), stride, padding, dilation)
    return ops.conv(data, weights, **steps_of, groups=whole("conv: groups", groups), acc_dtype=acc_dtype)


@checked_call
def conv_transpose(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    stride: Steps = 1,
    padding: Padding = 0,
    output_padding: Steps = 0,
    dilation: Steps = 1,
    groups: int = 1,
    layout: Layout = "nchw",
) -> Array:
    """The transpose of a convolution as a layer: every cell of x adds a scaled kernel to the result; see `ConvTranspose`.

    Args:
        x: `[n, m, ..]`, or `[n, .., m]` in layout `nhwc`.
        weight: `[m, c/groups, k..]` in either layout: the weights of the convolution that it transposes.
        bias: `[c]`, or none.
        stride, dilation, groups, layout: As in `conv`.
        padding: Cells that are removed at both ends; "same" for `stride` cells of the result per cell of x.
        output_padding: Additional cells at the end of every axis; below the stride or the dilation.

    Returns:
        `[n, c, ..]`, or `[n, .., c]`.

    Raises:
        ShapeError, ConfigError: As in `conv`, or an axis of the result would be empty.

    >>> conv_transpose([[[1.0, 2.0]]], [[[1.0, 10.0, 100.0]]], stride=2).tolist()
    [[[1.0, 10.0, 102.0, 20.0, 200.0]]]
    """
    what = "conv_transpose"
    data, weights = channels_second(what, x, layout), _weights(what, x, weight)
    kernel = _kernel(weights)
    strides, gaps = (steps(f"{what}: {n}", v, len(kernel)) for n, v in (("stride", stride), ("dilation", dilation)))
    extents = [gap * (k - 1) + 1 for k, gap in zip(kernel, gaps, strict=True)]
    more = steps(f"{what}: output_padding", output_padding, len(kernel))
    if padding == "same":
        cut = [e + m - s for e, m, s in zip(extents, more, strides, strict=True)]
        if min(cut) < 0:
            raise ShapeError(
                f'{what}: padding "same" cuts off cells, and strides {list(strides)} are beyond the kernel'
            )
        padding = [(c // 2, c - c // 2) for c in cut]
    lo, hi = paddings(what, padding, data.shape[2:], extents, strides)
    y = transposed_op(
        data,
        weights,
        stride=strides,
        dilation=gaps,
        lo=lo,
        hi=hi,
        output_padding=more,
        groups=whole(f"{what}: groups", groups),
    )
    return _biased(what, y, bias, layout)


@checked_call
def unfold(x: ArrayLike, kernel_size: Steps, *, stride: Steps = 1, padding: Padding = 0, dilation: Steps = 1) -> Array:
    """The windows of `[n, c, ..]` as columns: `[n, c·cells, windows]`, the cells of a channel adjacent.

    Args:
        x: `[n, c, ..]`, one to three spatial axes.
        kernel_size: The size of a window; one number, or one for each spatial axis.
        stride, padding, dilation: As in `conv`.

    Raises:
        ShapeError: A window is larger than the padded axis.
    """
    data = channels_second("unfold", x, "nchw")
    sizes = steps("unfold: kernel_size", kernel_size, data.ndim - 2)
    geometry = windows("unfold", data, sizes, stride, padding, dilation)
    padded = fitted(data, geometry["lo"], geometry["hi"])
    columns = sliding_windows(padded, kernel=sizes, stride=geometry["stride"], dilation=geometry["dilation"])
    rank = len(sizes)
    return reshape(columns, (data.shape[0], data.shape[1] * product(sizes), product(columns.shape[2 + rank :])))


@checked_call
def fold(
    x: ArrayLike,
    output_size: Steps,
    kernel_size: Steps,
    *,
    stride: Steps = 1,
    padding: Padding = 0,
    dilation: Steps = 1,
) -> Array:
    """Columns from `unfold` accumulated where they were read: `[n, c·cells, windows]` to `[n, c, output_size..]`.

    Args:
        x: `[n, c·cells, windows]`.
        output_size: The spatial sizes of the result, a sequence.
        kernel_size, stride, padding, dilation: Those of `unfold`.

    Raises:
        ShapeError: x does not have the dims of the windows of these sizes.
    """
    data = operand(x)
    output_sizes = (
        (output_size,)
        if isinstance(output_size, int)
        else tuple(whole("fold: output_size", n) for n in listed("fold: output_size", output_size))
    )
    rank = len(output_sizes)
    cells = steps("fold: kernel_size", kernel_size, rank)
    strides, gaps = steps("fold: stride", stride, rank), steps("fold: dilation", dilation, rank)
    extents = [gap * (k - 1) + 1 for k, gap in zip(cells, gaps, strict=True)]
    lo, hi = paddings("fold", padding, output_sizes, extents, [max(s, 1) for s in strides])
    whole_sizes = tuple(low + n + high for low, n, high in zip(lo, output_sizes, hi, strict=True))
    settings: dict[str, Any] = {"stride": strides, "dilation": gaps}
    counts = ops.Conv(**settings).geometry(cells).counts(whole_sizes)
    channels = data.shape[1] if data.ndim == 3 else 0
    if data.ndim != 3 or channels % product(cells) or data.shape[2] != product(counts):
        raise ShapeError(
            f"fold: x must be [n, c·{product(cells)}, {product(counts)}] for {list(counts)} windows, not {list(data.shape)}"
        )
    expanded = reshape(data, (data.shape[0], channels // product(cells), *cells, *counts))
    summed = overlap_add(expanded, sizes=whole_sizes, stride=strides, dilation=gaps)
    return fitted(summed, tuple(-n for n in lo), tuple(-n for n in hi))


def _weights(what: str, x: Any, w: Any) -> Any:
    weights = operand(w)
    rank = operand(x).ndim
    if weights.ndim != rank:
        raise ShapeError(f"{what}: weight must have {rank} axes as x has, not {weights.ndim}")
    return weights


def _kernel(weights: Any) -> tuple[int, ...]:
    sizes = tuple(weights.shape[2:])
    if not all(isinstance(k, int) for k in sizes):
        raise ShapeError(f"the sizes of a kernel must be known, not {list(sizes)}")
    return sizes


def _biased(what: str, y: Any, b: Any, layout: Layout) -> Any:
    """Return `y`, which has its channels second, in the layout and with its bias."""
    if b is None:
        return with_layout(y, layout)
    bias = operand(b)
    if tuple(bias.shape) != (y.shape[1],):
        raise ShapeError(f"{what}: bias must be [{y.shape[1]}], not {list(bias.shape)}")
    if layout == "nchw":
        return y + reshape(bias, (y.shape[1], *(1,) * (y.ndim - 2)))
    return with_layout(y, layout) + bias
