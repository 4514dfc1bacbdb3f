"""Windows over spatial axes in ONNX's attributes: padding by name, sizes that round up, cells as arrays; and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import FormatError
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.system.records import frozen
from rlx_onnx.handlers.reductions import extremes
from rlx_onnx.walking.node import MOST, OnnxNode
from rlx_onnx.walking.table import handles


@frozen
class Windows:
    """The geometry of windows.

    Attributes:
        kernel, stride, dilation: One number for each spatial axis.
        pads: Padding of each axis, before and after.
        extra: Additional cells after each axis, for a last window that begins inside.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[tuple[Any, Any], ...]
    extra: tuple[int, ...]

    @property
    def padding(self) -> list[tuple[Any, Any]]:
        """Padding with the further cells."""
        return [(low, high + more) for (low, high), more in zip(self.pads, self.extra, strict=True)]


def windows_of(node: OnnxNode, sizes: Sequence[Dim], kernel: Sequence[int]) -> Windows:
    """The windows of a node over axes of these sizes.

    Raises:
        FormatError: Its attributes do not fit one another.
    """
    rank = len(sizes)
    stride = tuple(node.get("strides", [1] * rank))
    dilation = tuple(node.get("dilations", [1] * rank))
    flat = node.get("pads", [0] * 2 * rank)
    if len(kernel) != rank or len(stride) != rank or len(dilation) != rank or len(flat) != 2 * rank:
        raise FormatError(f"{node}: kernel, strides, dilations and pads are not those of {rank} axes")
    if max((*map(abs, (*kernel, *stride, *dilation, *flat)), 0)) > MOST:
        raise FormatError(f"{node}: kernel, strides, dilations and pads are numbers of cells")
    if min((*kernel, *stride, *dilation, 1)) < 1:
        raise FormatError(f"{node}: kernel, strides and dilations are at least 1")
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    auto = node.choice("auto_pad", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    if auto == "NOTSET":
        pads: list[tuple[Any, Any]] = list(zip(flat[:rank], flat[rank:], strict=True))
    elif auto == "VALID":
        pads = [(0, 0)] * rank
    else:
        pads = [_same(node, n, span, s, auto) for n, span, s in zip(sizes, spans, stride, strict=True)]
    extra = [0] * rank
    if node.get("ceil_mode", 0):
        extra = [_extra(node, n, p, span, s) for n, p, span, s in zip(sizes, pads, spans, stride, strict=True)]
    return Windows(tuple(kernel), stride, dilation, tuple(pads), tuple(extra))


def _same(node: OnnxNode, size: Dim, span: int, stride: int, how: str) -> tuple[Any, Any]:
    """Padding with which there are ⌈size / stride⌉ windows."""
    if not isinstance(size, int) and stride != 1:
        node.refuse(f"auto_pad={how} with strides on an axis of {size}", "pads as numbers, or a size that is known")
    total: Any = max((-(-size // stride) - 1) * stride + span - size, 0) if isinstance(size, int) else span - 1
    narrow = total // 2
    return (narrow, total - narrow) if how == "SAME_UPPER" else (total - narrow, narrow)


def _extra(node: OnnxNode, size: Dim, pads: tuple[Any, Any], span: int, stride: int) -> int:
    """Cells after the padding that a last window needs, which begins inside the axis or before it."""
    if not isinstance(size, int):
        return node.refuse(f"ceil_mode on an axis of {size}", "a size that is known")
    capacity = size + sum(pads) - span
    more = -capacity % stride
    begins = capacity + more
    return more if more and begins < size + pads[0] else 0


def cells(x: Any, windows: Windows, fill: Any) -> Any:
    """The cells of every window: `[n, c, ..]` to `[n, c, windows.., cells]`, `fill` around the edges."""
    rank = len(windows.kernel)
    if np.prod(windows.kernel, dtype=float) > MOST:
        raise FormatError(f"a kernel of {list(windows.kernel)} cells is larger than any")
    data = rlx.pad(x, [(0, 0), (0, 0), *windows.padding], constant_values=fill)
    for i in range(rank):
        axis = 2 + i
        count = (data.shape[axis] - windows.dilation[i] * (windows.kernel[i] - 1) - 1) // windows.stride[i] + 1
        places = np.arange(count)[:, None] * windows.stride[i] + np.arange(windows.kernel[i]) * windows.dilation[i]
        data = rlx.moveaxis(rlx.take(data, places, axis=axis), axis + 1, data.ndim)
    return rlx.reshape(data, (*data.shape[: 2 + rank], -1))


# --------------------------------------------------------------------------------------------- pooling


def _windows(node: OnnxNode, x: Any) -> Windows:
    if "kernel_shape" not in node:
        raise FormatError(f"{node}: it has no kernel_shape")
    return windows_of(node, x.shape[2:], node.get("kernel_shape"))


@handles("MaxPool")
def max_pool(node: OnnxNode, x: Any) -> Any:
    """The largest cell of every window, and where it lies in the whole of x."""
    windows = _windows(node, x)
    dtype = dtype_of(x.dtype)
    if node.count == 1 and dtype.is_float and len(windows.kernel) <= 3:
        return nn.max_pool(x, windows.kernel, windows.stride, windows.padding, dilation=windows.dilation)
    seen = cells(x, windows, np.array(extremes(dtype.numpy)[0], dtype.numpy))
    result = rlx.max(seen, axis=-1)
    if node.count == 1:
        return result
    if not all(isinstance(n, int) for n in x.shape):
        node.refuse("Indices of sizes that are not known", "sizes that are numbers")
    numbers = np.arange(int(np.prod(x.shape))).reshape(x.shape)
    if node.get("storage_order", 0):
        spatial = np.arange(int(np.prod(x.shape[2:]))).reshape(x.shape[2:], order="F")
        channels = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * (x.ndim - 2))
        numbers = spatial + channels * spatial.size
    where = cells(numbers if isinstance(x, np.ndarray) else rlx.asarray(numbers), windows, np.array(-1))
    first = rlx.expand_dims(rlx.argmax(seen, axis=-1), axis=-1)
    return result, rlx.squeeze(rlx.take_along_axis(where, first, axis=-1), axis=-1)


@handles("AveragePool")
def average_pool(node: OnnxNode, x: Any) -> Any:
    """The mean of every window; with `count_include_pad`, in which padding counts as zeros."""
    windows = _windows(node, x)
    with_pads = bool(node.get("count_include_pad", 0))
    if not any(windows.extra) or not with_pads:
        # Without padding counted, cells after the end are left out like any.
        return nn.avg_pool(
            x,
            windows.kernel,
            windows.stride,
            windows.padding,
            dilation=windows.dilation,
            count_include_pad=with_pads,
        )
    ones = np.ones(
        (1, 1, *(n + low + high for n, (low, high) in zip(x.shape[2:], windows.pads, strict=True))), np.float32
    )
    inside = Windows(
        windows.kernel, windows.stride, windows.dilation, tuple((0, 0) for _ in windows.pads), windows.extra
    )
    counts = rlx.sum(cells(ones, inside, np.float32(0)), axis=-1)
    means = nn.avg_pool(
        x, windows.kernel, windows.stride, windows.padding, dilation=windows.dilation, count_include_pad=True
    )
    return rlx.astype(means * (float(np.prod(windows.kernel)) / counts), dtype_of(x.dtype))


@handles("LpPool")
def lp_pool(node: OnnxNode, x: Any) -> Any:
    windows = _windows(node, x)
    return nn.lp_pool(
        x, float(node.get("p", 2)), windows.kernel, windows.stride, windows.padding, dilation=windows.dilation
    )


@handles("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(node: OnnxNode, x: Any) -> Any:
    axes = tuple(range(2, x.ndim))
    if node.op == "GlobalAveragePool":
        return rlx.mean(x, axis=axes, keepdims=True)
    if node.op == "GlobalMaxPool":
        return rlx.max(x, axis=axes, keepdims=True)
    p = float(node.get("p", 2))
    return rlx.pow(rlx.sum(rlx.pow(rlx.abs(x), p), axis=axes, keepdims=True), 1 / p)


@handles("MaxUnpool")
def max_unpool(node: OnnxNode, x: Any, where: Any, sizes: Any = None) -> Any:
    """Zeros with the elements of x at the positions returned by MaxPool."""
    rank = x.ndim - 2
    kernel = node.get("kernel_shape")
    stride, flat = node.get("strides", [1] * rank), node.get("pads", [0] * 2 * rank)
    default_sizes = [
        (n - 1) * s + k - low - high
        for n, s, k, low, high in zip(x.shape[2:], stride, kernel, flat[:rank], flat[rank:], strict=True)
    ]
    values = node.ints(2, "output_shape")
    full = (*x.shape[:2], *default_sizes) if values is None else tuple(values)
    # Places are counted in the array that was pooled; a larger result holds that array at its beginning.
    flat_size = int(np.prod((*x.shape[:2], *default_sizes)))
    zeros = rlx.zeros((flat_size,), dtype=dtype_of(x.dtype))
    result = rlx.scatter(zeros, rlx.reshape(where, (-1,)), rlx.reshape(x, (-1,)))
    result = rlx.reshape(result, (*x.shape[:2], *default_sizes))
    widths = [(0, n - m) for n, m in zip(full, result.shape, strict=True)]
    return rlx.pad(result, widths) if any(high for _, high in widths) else result
