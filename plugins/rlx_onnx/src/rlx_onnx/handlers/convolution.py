"""Convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import FormatError
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.ops.convolution.layers import convolved as convolution
from rlx_core.quantization.products import difference
from rlx_onnx.handlers.windows import windows_of
from rlx_onnx.walking.node import OnnxNode
from rlx_onnx.walking.table import handles


@handles("Conv")
def convolved(node: OnnxNode, x: Any, w: Any, b: Any = None) -> Any:
    """The cross-correlation that a node's attributes say."""
    windows = windows_of(node, x.shape[2:], tuple(w.shape[2:]))
    return nn.conv(
        x,
        w,
        b,
        stride=windows.stride,
        padding=windows.padding,
        dilation=windows.dilation,
        groups=node.get("group", 1),
    )


@handles("ConvTranspose")
def conv_transpose(node: OnnxNode, x: Any, w: Any, b: Any = None) -> Any:
    """Transposed convolution; `output_shape` or `auto_pad` determine the cropping of the result."""
    rank = x.ndim - 2
    kernel = tuple(w.shape[2:])
    stride, dilation = node.get("strides", [1] * rank), node.get("dilations", [1] * rank)
    more = node.get("output_padding", [0] * rank)
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    flat = node.get("pads", [0] * 2 * rank)
    pads = list(zip(flat[:rank], flat[rank:], strict=True))
    auto = node.choice("auto_pad", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    sizes = node.get("output_shape")
    if sizes is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        sizes = [n * s for n, s in zip(x.shape[2:], stride, strict=True)]
    if sizes is not None:
        full = [s * (n - 1) + o + k for n, s, o, k in zip(x.shape[2:], stride, more, spans, strict=True)]
        totals = [f - n for f, n in zip(full, sizes[-rank:], strict=True)]
        pads = [_halves(t, auto) for t in totals]
    # What lies beyond the kernels' reach is written after the fact: rlx pads no further than a stride.
    reach = nn.conv_transpose(
        x, w, stride=tuple(stride), padding=0, dilation=tuple(dilation), groups=node.get("group", 1)
    )
    widths = [(0, 0), (0, 0), *((-low, o - high) for (low, high), o in zip(pads, more, strict=True))]
    result = rlx.pad(reach, widths) if any(any(each) for each in widths) else reach
    return result if b is None else result + rlx.reshape(b, (-1, *(1,) * rank))


def _halves(total: Any, auto: str) -> tuple[Any, Any]:
    if isinstance(total, int) and total < 0:
        return (0, total)
    half = total // 2
    return (half, total - half) if auto == "SAME_UPPER" else (total - half, half)


@handles("DeformConv")
def deform_conv(node: OnnxNode, x: Any, w: Any, offset: Any, b: Any = None, mask: Any = None) -> Any:
    """A convolution whose kernel cells are moved by offsets, read by bilinear interpolation; zeros are around x."""
    if x.ndim != 4:
        node.refuse(f"{x.ndim - 2} spatial axes", "two")
    n, c, height, width = x.shape
    windows = windows_of(node, (height, width), tuple(w.shape[2:]))
    groups, sets = node.get("group", 1), node.get("offset_group", 1)
    k = windows.kernel[0] * windows.kernel[1]
    rows, columns = offset.shape[2:]
    moved = rlx.reshape(offset, (n, sets, k, 2, rows, columns))
    grid = np.meshgrid(
        *(np.arange(m) * s - low for m, s, (low, _) in zip((rows, columns), windows.stride, windows.pads, strict=True)),
        indexing="ij",
    )
    cell = np.meshgrid(
        *(np.arange(m) * d for m, d in zip(windows.kernel, windows.dilation, strict=True)), indexing="ij"
    )
    dtype = dtype_of(x.dtype).numpy
    y = moved[:, :, :, 0] + (grid[0] + cell[0].reshape(-1, 1, 1)).astype(dtype)
    z = moved[:, :, :, 1] + (grid[1] + cell[1].reshape(-1, 1, 1)).astype(dtype)
    data = rlx.reshape(x, (n * sets, c // sets, height * width))
    read = _bilinear(data, rlx.reshape(y, (n * sets, -1)), rlx.reshape(z, (n * sets, -1)), height, width)
    read = rlx.reshape(read, (n, sets, c // sets, k, rows * columns))
    if mask is not None:
        read = read * rlx.reshape(mask, (n, sets, 1, k, rows * columns))
    read = rlx.reshape(read, (n, groups, c // groups * k, rows * columns))
    weights = rlx.reshape(w, (groups, w.shape[0] // groups, -1))
    result = rlx.reshape(rlx.matmul(weights, read), (n, w.shape[0], rows, columns))
    return result if b is None else result + rlx.reshape(b, (-1, 1, 1))


def _bilinear(data: Any, y: Any, z: Any, height: int, width: int) -> Any:
    """`data` `[n, c, cells]` at places `[n, p]`, each from the four cells around it, of which those outside are 0."""
    top, left = rlx.floor(y), rlx.floor(z)
    total: Any = None
    for down, right in ((0, 0), (0, 1), (1, 0), (1, 1)):
        row, column = top + down, left + right
        share = (1 - rlx.abs(y - row)) * (1 - rlx.abs(z - column))
        inside = rlx.logical_and(rlx.logical_and(row >= 0, row < height), rlx.logical_and(column >= 0, column < width))
        at = rlx.astype(rlx.clip(row, 0, height - 1) * width + rlx.clip(column, 0, width - 1), rlx.i64)
        cells = rlx.moveaxis(rlx.gather(rlx.moveaxis(data, 1, 2), at, axis=1, batch_dims=1), 2, 1)
        part = cells * rlx.expand_dims(rlx.where(inside, share, rlx.zeros_like(share)), axis=1)
        total = part if total is None else total + part
    return total


@handles("Col2Im")
def col2im(node: OnnxNode, x: Any, image: Any, block: Any) -> Any:
    """Columns of windows added up where they lie."""
    sizes, kernel = node.ints(1, "image_shape") or [], node.ints(2, "block_shape") or []
    for n in (*sizes, *kernel):
        node.counted(n, "size")
    windows = windows_of(node, sizes, kernel)
    if any(low != high for low, high in windows.pads) or len(sizes) > 3:
        full = [n + low + high for n, (low, high) in zip(sizes, windows.pads, strict=True)]
        result = nn.fold(x, full, kernel, stride=windows.stride, dilation=windows.dilation)
        return result[
            (slice(None), slice(None), *(slice(low, low + n) for n, (low, _) in zip(sizes, windows.pads, strict=True)))
        ]
    return nn.fold(
        x, sizes, kernel, stride=windows.stride, padding=[low for low, _ in windows.pads], dilation=windows.dilation
    )


@handles("ConvInteger")
def conv_integer(node: OnnxNode, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
    """A convolution of integers less their zero points, in i32."""
    return integer_conv(node, x, w, x_zero, w_zero)


def integer_conv(node: OnnxNode, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
    """The sums of products of codes less their zero points, in i32: exact modulo 2^32."""
    if x.ndim < 3:
        raise FormatError(f"{node}: x has {x.ndim} axes")
    if w_zero is not None and w_zero.ndim == 1:
        w_zero = rlx.reshape(w_zero, (-1, *(1,) * (w.ndim - 1)))
    windows = windows_of(node, x.shape[2:], tuple(w.shape[2:]))
    return convolution(
        difference(x, x_zero),
        difference(w, w_zero),
        windows.stride,
        windows.padding,
        windows.dilation,
        node.get("group", 1),
        acc_dtype=rlx.i32,
    )
