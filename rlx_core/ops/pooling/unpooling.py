"""The inverse of pools: the index of each window's largest cell in the operand, and an operand with these cells alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.dtypes import INTEGERS, i32
from rlx_core.ir.dtypes import dtype as as_dtype
from rlx_core.ops.along_axis import put_along_axis, take_along_axis
from rlx_core.ops.conversion import cast
from rlx_core.ops.convolution.arguments import Layout, Steps, channels_second, spatially, steps, with_layout
from rlx_core.ops.convolution.geometry import Geometry
from rlx_core.ops.creation import dim_value, iota, zeros
from rlx_core.ops.movement import pad
from rlx_core.ops.pooling.positions import extreme_of_nothing, pool_positions
from rlx_core.ops.random.draws import uniform
from rlx_core.ops.reduction import max_axes
from rlx_core.ops.structural import expand, reshape
from rlx_core.trees.key import Key

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike


def cells_of_windows(data: Any, geometry: Geometry, settings: dict[str, Any]) -> Any:
    """Return the index of each window's largest cell among those of a channel of `data`, `i32[n, c, o..]`."""
    padded = data
    if geometry.is_padded:
        kind = as_dtype(data.dtype)
        beaten = np.asarray(extreme_of_nothing(kind, "max"), kind.numpy)
        padded = pad(data, beaten, lo=(0, 0, *geometry.lo), hi=(0, 0, *geometry.hi))
    within = pool_positions(padded, extreme="max", **settings)
    result: Any = 0
    cells_after: Any = 1
    numbers_after = 1
    for axis in reversed(range(geometry.rank)):
        cell = (within // numbers_after) % geometry.kernel[axis]
        window = iota(axis=2 + axis, shape=within.shape, dtype=i32)
        place = window * geometry.stride[axis] + cell * geometry.dilation[axis] - geometry.lo[axis]
        result = result + place * cells_after
        numbers_after *= geometry.kernel[axis]
        size = data.shape[2 + axis]
        cells_after = cells_after * (size if isinstance(size, int) else cast(dim_value(size=size), to=i32))
    return result


@checked_call
def max_unpool(
    x: ArrayLike,
    indices: ArrayLike,
    kernel_size: Steps,
    stride: Steps | None = None,
    padding: Steps = 0,
    *,
    output_size: Sequence[Dim] | None = None,
    layout: Layout = "nchw",
) -> Array:
    """The maxima of `max_pool(..., return_indices=True)` at their original positions, and 0 elsewhere; one per cell is kept.

    Args:
        x: `[n, c, o..]`: the maxima.
        indices: Integers of the shape of x: the index of each among the cells of its channel, in row-major order.
        kernel_size, stride, padding: The arguments of the pool; padding as numbers.
        output_size: The spatial dims of the result; by default the smallest that the windows fit into.
        layout: The position of the channels of all three.

    Raises:
        ShapeError: The indices do not have the shape of x.
        DtypeError: They are not integers.
        IndexRangeError: An index is out of range.

    >>> values, indices = rlx.nn.max_pool([[[1.0, 3.0, 2.0, 0.0]]], 2, return_indices=True)
    >>> max_unpool(values, indices, 2).tolist()
    [[[0.0, 3.0, 2.0, 0.0]]]
    """
    values, positions = (channels_second("max_unpool", each, layout) for each in (x, indices))
    if as_dtype(positions.dtype) not in INTEGERS:
        raise DtypeError(f"max_unpool: indices must be integers, not {as_dtype(positions.dtype)}")
    if tuple(positions.shape) != tuple(values.shape):
        raise ShapeError(f"max_unpool: indices are {list(positions.shape)}, and x is {list(values.shape)}")
    rank = values.ndim - 2
    cells, pads = steps("max_unpool: kernel_size", kernel_size, rank), steps("max_unpool: padding", padding, rank)
    hops = cells if stride is None else steps("max_unpool: stride", stride, rank)
    shape = [(o - 1) * s - 2 * p + k for o, s, p, k in zip(values.shape[2:], hops, pads, cells, strict=True)]
    output_sizes = shape if output_size is None else list(output_size)
    if len(output_sizes) != rank:
        raise ShapeError(f"max_unpool: output_size has {len(output_sizes)} numbers for {rank} spatial axes")
    lead = values.shape[:2]
    nothing = zeros((*lead, product(output_sizes)), dtype=as_dtype(values.dtype))
    flat = (reshape(each, (*lead, product(values.shape[2:]))) for each in (positions, values))
    return with_layout(reshape(put_along_axis(nothing, *flat, axis=2), (*lead, *output_sizes)), layout)


@checked_call
def fractional_max_pool(
    key: Key, x: ArrayLike, kernel_size: Steps, output_size: Steps, *, layout: Layout = "nchw"
) -> Array:
    """The largest cells of windows at random positions, whose number is given by the spatial sizes of the result.

    Each channel of each example has separate windows, which deviate from evenly spaced ones by less than a cell.

    Args:
        key: The key of the positions.
        x: `[n, c, ..]`, or `[n, .., c]` in layout `nhwc`.
        kernel_size: The size of a window.
        output_size: The spatial dims of the result.
        layout: The position of the channels.

    Raises:
        ShapeError: The windows do not fit.

    Source:
        Graham 2014, "Fractional Max-Pooling", arXiv:1412.6071, section 2 (overlapping, pseudorandom).
    """

    def pooled(data: Any) -> Any:
        rank = data.ndim - 2
        cells, output_sizes = (
            steps(f"fractional_max_pool: {name}", value, rank)
            for name, value in (("kernel_size", kernel_size), ("output_size", output_size))
        )
        drawn = uniform(key, (*data.shape[:2], rank))
        for axis, (cell, count) in enumerate(zip(cells, output_sizes, strict=True), 2):
            size = data.shape[axis]
            if not isinstance(size, int) or size < cell + count - 1:
                raise ShapeError(
                    f"fractional_max_pool: {count} windows of {cell} cells do not fit into axis {axis} of {list(data.shape)}"
                )
            data = _pooled_along(data, axis, cell, count, drawn[:, :, axis - 2, None])
        return data

    return spatially("fractional_max_pool", x, layout, pooled)


def _pooled_along(data: Any, axis: int, cell: int, count: int, drawn: Any) -> Any:
    """Return the maxima of windows along one axis; a number from [0, 1) per channel determines their positions."""
    step = 0.0 if count == 1 else (data.shape[axis] - cell) / (count - 1)
    number = iota(axis=2, shape=(*data.shape[:2], count), dtype=i32)
    first = cast((cast(number, to=drawn.dtype) + drawn) * step, to=i32) - cast(drawn * step, to=i32)
    last = number == count - 1
    first = first * (1 - cast(last, to=i32)) + cast(last, to=i32) * (data.shape[axis] - cell)
    width = (*data.shape[:2], count, cell)
    cells = expand(reshape(first, (*width[:3], 1)), width) + iota(axis=3, shape=width, dtype=i32)
    others = [1] * (data.ndim - 3)
    indices = reshape(cells, (*data.shape[:2], *others[: axis - 2], count * cell, *others[axis - 2 :]))
    read = take_along_axis(
        data, expand(indices, (*data.shape[:axis], count * cell, *data.shape[axis + 1 :])), axis=axis
    )
    return max_axes(reshape(read, (*data.shape[:axis], count, cell, *data.shape[axis + 1 :])), axes=(axis + 1,))
