"""Windows over spatial axes in ONNX's attributes: padding by name, sizes that round up, cells as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import FormatError
from rlx_core.ir.dims import Dim
from rlx_core.system.records import frozen
from rlx_onnx.walking.node import MOST, OnnxNode

__all__ = ["Windows", "cells", "windows_of"]


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
