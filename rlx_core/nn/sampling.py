"""Images sampled at arbitrary positions: grids of positions, and interpolation there; and channel shuffling."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any, Literal, get_args

import rlx_core as rlx
from rlx_core.errors import ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import Dim
from rlx_core.nn.floats import floats, narrowed
from rlx_core.ops.arguments import choice, flag, listed, whole
from rlx_core.ops.array_elementwise import dtype_of
from rlx_core.ops.convolution.arguments import Layout, spatially
from rlx_core.ops.creation import size_scalar

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["affine_grid", "channel_shuffle", "grid_sample"]

Method = Literal["linear", "nearest", "cubic"]
Outside = Literal["zeros", "border", "reflection"]


@checked_call
def grid_sample(
    x: ArrayLike,
    grid: ArrayLike,
    *,
    mode: Method = "linear",
    padding_mode: Outside = "zeros",
    align_corners: bool = False,
    layout: Layout = "nchw",
) -> Array:
    """An image interpolated at the positions of a grid, which rotates, moves or warps it.

    Args:
        x: `[n, c, h, w]` or `[n, c, d, h, w]`; channels last in layout `nhwc`.
        grid: `[n, .., 2]` or `[n, .., 3]` with the same number of axes as x: x, y and z of each position, the last spatial axis
            first, from -1 to 1 over the image.
        mode: "linear" weights the 4 (or 8) adjacent cells, "cubic" 16 (or 64) by Keys' polynomials with a = -3/4, and "nearest"
            takes one.
        padding_mode: The values outside of the image: zeros, its border, or its reflection: of the position, and with "cubic"
            that of each cell.
        align_corners: Whether -1 and 1 are the centres of the first and the last cell, or their outer edges.
        layout: The position of the channels.

    Returns:
        `[n, c, ..]` of the grid's sizes, in the layout. With "nearest" the grid has derivative 0.

    Raises:
        ConfigError: A mode or the layout is unknown.
        DtypeError: An operand is not floating-point.
        ShapeError: There are not two or three spatial axes, or the grid does not fit.
    """
    choice("grid_sample: mode", mode, get_args(Method))
    choice("grid_sample: padding_mode", padding_mode, get_args(Outside))
    is_aligned = flag("grid_sample: align_corners", align_corners)
    result_dtype, (images, places) = floats("grid_sample", x=x, grid=grid)

    def sampled(data: Any) -> Any:
        sizes = tuple(data.shape[2:])
        rank = len(sizes)
        if rank not in (2, 3) or 0 in sizes:
            raise ShapeError(f"grid_sample: x must have 2 or 3 spatial axes that are not empty, not {list(data.shape)}")
        if places.ndim != rank + 2 or (places.shape[0], places.shape[-1]) != (data.shape[0], rank):
            raise ShapeError(
                f"grid_sample: grid must be [{data.shape[0]}, .., {rank}] with {rank + 2} axes, not {list(places.shape)}"
            )
        positions = [cell_at(places[..., rank - 1 - i], size, is_aligned) for i, size in enumerate(sizes)]
        return read_cells(data, positions, mode, padding_mode, is_aligned)

    return narrowed(spatially("grid_sample", images, layout, sampled), result_dtype)


@checked_call
def affine_grid(theta: ArrayLike, size: Sequence[int], *, align_corners: bool = False) -> Array:
    """The grid for `grid_sample` of affine maps: the position in the image of each cell of the result.

    Args:
        theta: f[n, 2, 3], or f[n, 3, 4] for three spatial axes: maps from (x, y, 1), or (x, y, z, 1).
        size: The spatial sizes of the result.
        align_corners: As for `grid_sample`.

    Returns:
        f[n, *size, 2], or 3.

    Raises:
        ShapeError: theta and `size` do not fit.

    >>> affine_grid([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], (1, 2))[0, 0].tolist()
    [[-0.5, 0.0], [0.5, 0.0]]
    """
    result_dtype, (maps,) = floats("affine_grid", theta=theta)
    sizes = [whole("affine_grid: a size", n, least=1) for n in listed("affine_grid: size", size)]
    rank = len(sizes)
    if rank not in (2, 3) or maps.ndim != 3 or tuple(maps.shape[1:]) != (rank, rank + 1):
        raise ShapeError(
            f"affine_grid: theta must be [n, d, d + 1] for d = 2 or 3 sizes, not {list(maps.shape)} for {rank}"
        )
    is_aligned = flag("affine_grid: align_corners", align_corners)
    theta_dtype = dtype_of(maps)
    ends = [1.0 if is_aligned else 1 - 1 / cells for cells in sizes]
    # A single cell is at the centre, whether its corners or its edges count.
    lines = [
        rlx.linspace(-e, e, s, dtype=theta_dtype) if s > 1 else rlx.zeros(1, dtype=theta_dtype)
        for e, s in zip(ends, sizes, strict=True)
    ]
    planes = rlx.meshgrid(*lines, indexing="ij")
    points = rlx.stack([rlx.reshape(p, (-1,)) for p in (*reversed(planes), rlx.ones_like(planes[0]))], axis=-1)
    grid = rlx.matmul(points, rlx.matrix_transpose(maps))
    return narrowed(rlx.reshape(grid, (maps.shape[0], *sizes, rank)), result_dtype)


@checked_call
def channel_shuffle(x: ArrayLike, groups: int, *, layout: Layout = "nchw") -> Array:
    """Channels in interleaved order: the first of each group, then the second of each, and so on.

    Args:
        x: `[n, c, ..]`, or `[n, .., c]` in layout `nhwc`.
        groups: A divisor of c.
        layout: The position of the channels.

    Raises:
        ShapeError: The number of channels is not divisible by `groups`.
    """
    parts = whole("channel_shuffle: groups", groups, least=1)

    def shuffled(data: Any) -> Any:
        n, c, *sizes = data.shape
        if not isinstance(c, int) or c % parts:
            raise ShapeError(f"channel_shuffle: {c} channels do not split into {parts} groups")
        split = rlx.reshape(data, (n, parts, c // parts, *sizes))
        return rlx.reshape(rlx.moveaxis(split, 1, 2), tuple(data.shape))

    return spatially("channel_shuffle", x, layout, shuffled)


# --------------------------------------------------------------------------------------- their parts


def cell_at(g: Any, size: Dim, is_aligned: bool) -> Any:
    """Return a coordinate from -1 to 1 in units of cells: 0 is the centre of the first."""
    along = rlx.multiply(rlx.add(g, 1.0), 0.5)
    if is_aligned:
        return rlx.multiply(along, size_scalar(size - 1, dtype_of(g)))
    return rlx.subtract(rlx.multiply(along, size_scalar(size, dtype_of(g))), 0.5)


def read_cells(x: Any, positions: Sequence[Any], method: Method, padding: Outside, is_aligned: bool) -> Any:
    """Return `x` `[n, c, ..]` at positions `[n, ..]`, per spatial axis an array from `cell_at`: `[n, c, ..]` of their sizes."""
    n, c, *sizes = x.shape
    inside = [_within(a, size, padding, is_aligned) for a, size in zip(positions, sizes, strict=True)]
    if method == "nearest":
        taps = [[(rlx.round(a), None)] for a in inside]
    elif method == "linear":
        taps = [_linear_taps(a) for a in inside]
    else:
        taps = [
            [(_within(cell, size, padding, is_aligned), weight) for cell, weight in _cubic_taps(a)]
            for a, size in zip(positions, sizes, strict=True)
        ]
    flat = rlx.reshape(x, (n, c, prod(sizes)))
    result: Any = None
    for corner in itertools.product(*taps):
        part = _cell(flat, [cell for cell, _ in corner], sizes)
        if method != "nearest":
            weights: list[Any] = [weight for _, weight in corner]
            part = rlx.multiply(part, rlx.expand_dims(reduce(rlx.multiply, weights), 1))
        result = part if result is None else rlx.add(result, part)
    return result


def _within(position: Any, size: Dim, padding: Outside, is_aligned: bool) -> Any:
    """Return a position moved into the image, unless the padding is zeros."""
    if padding == "zeros":
        return position
    last = size_scalar(size - 1, dtype_of(position))
    if padding == "reflection":
        # Reflection has the period of two spans; where the span is 0, any position is clipped to the only cell.
        low, span = (0.0, last) if is_aligned else (-0.5, size_scalar(size, dtype_of(position)))
        gone = rlx.remainder(rlx.subtract(position, low), rlx.maximum(rlx.multiply(2.0, span), 1.0))
        position = rlx.add(rlx.where(rlx.less(gone, span), gone, rlx.subtract(rlx.multiply(2.0, span), gone)), low)
    return rlx.clip(position, 0.0, last)


def _linear_taps(position: Any) -> list[tuple[Any, Any]]:
    """Return the two cells around a position, and their weights."""
    before = rlx.floor(position)
    share = rlx.subtract(position, before)
    return [(before, rlx.subtract(1.0, share)), (rlx.add(before, 1.0), share)]


def _cubic_taps(position: Any) -> list[tuple[Any, Any]]:
    """Return the four cells around a position, and their weights.

    Source:
        Keys 1981, "Cubic convolution interpolation for digital image processing", with a = -3/4.
    """
    before = rlx.floor(position)
    share = rlx.subtract(position, before)
    pieces = ((1.25, -2.25, 0.0, 1.0), (-0.75, 3.75, -6.0, 3.0))  # of distances up to 1, and from 1 to 2

    def weight(distance: Any, coefficients: tuple[float, ...]) -> Any:
        total: Any = 0.0
        for each in coefficients:
            total = rlx.add(rlx.multiply(total, distance), each)
        return total

    complement = rlx.subtract(1.0, share)
    distances = ((rlx.add(share, 1.0), 1), (share, 0), (complement, 0), (rlx.add(complement, 1.0), 1))
    return [(rlx.add(before, k - 1.0), weight(d, pieces[which])) for k, (d, which) in enumerate(distances)]


def _cell(flat: Any, cells: Sequence[Any], sizes: Sequence[Any]) -> Any:
    """Return the cells at integer coordinates, and 0 outside of the image."""
    n, c, _ = flat.shape
    index: Any = 0
    is_inside: Any = True
    for cell, size in zip(cells, sizes, strict=True):
        is_inside = rlx.logical_and(
            is_inside, rlx.logical_and(rlx.greater_equal(cell, 0.0), rlx.less(cell, size_scalar(size, dtype_of(cell))))
        )
    for cell, size in zip(cells, sizes, strict=True):
        known = rlx.astype(rlx.where(is_inside, cell, 0.0), rlx.i64)
        index = rlx.add(rlx.multiply(index, size), known)
    values = rlx.gather(flat, rlx.reshape(index, (n, prod(cells[0].shape[1:]))), axis=2, batch_dims=1)
    return rlx.where(rlx.expand_dims(is_inside, 1), rlx.reshape(values, (n, c, *cells[0].shape[1:])), 0.0)
