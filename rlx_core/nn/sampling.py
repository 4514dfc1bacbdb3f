"""Images read at any places: grids of places, and what lies there; and channels in another order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import rlx_core as rlx
from rlx_core.errors import ShapeError
from rlx_core.nn.floats import floats, narrowed
from rlx_core.ops.arguments import choice, flag, listed, whole
from rlx_core.ops.array_elementwise import dtype_of
from rlx_core.ops.convolution.arguments import Layout, spatially

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["affine_grid", "channel_shuffle", "grid_sample"]

Method = Literal["linear", "nearest"]
Outside = Literal["zeros", "border", "reflection"]


def grid_sample(
    x: ArrayLike,
    grid: ArrayLike,
    *,
    method: Method = "linear",
    padding: Outside = "zeros",
    align_corners: bool = False,
    layout: Layout = "nchw",
) -> Array:
    """What lies at the places of a grid: images that are turned, moved or warped.

    Args:
        x: `[n, c, h, w]` or `[n, c, d, h, w]`; channels last in layout `nhwc`.
        grid: `[n, .., 2]` or `[n, .., 3]` with as many axes as x: x, y and z of each place, the last spatial axis first, from -1
            to 1 over the image.
        method: "linear" weights the 4 (or 8) neighbouring cells, "nearest" takes one of them.
        padding: What lies outside of the image: zeros, its border, or its reflection.
        align_corners: Whether -1 and 1 are the middles of the first and the last cell, or their outer edges.
        layout: Where the channels are.

    Returns:
        `[n, c, ..]` of the grid's sizes, in the layout. With "nearest" the grid has derivative 0.

    Raises:
        ConfigError: A word is another.
        DtypeError: An operand is no float.
        ShapeError: There are not two or three spatial axes of known sizes, or the grid does not fit.
    """
    choice("grid_sample: method", method, get_args(Method))
    choice("grid_sample: padding", padding, get_args(Outside))
    is_aligned = flag("grid_sample: align_corners", align_corners)
    of, (images, places) = floats("grid_sample", x=x, grid=grid)

    def sampled(data: Any) -> Any:
        sizes = tuple(data.shape[2:])
        if len(sizes) not in (2, 3) or not all(isinstance(n, int) and n > 0 for n in sizes):
            raise ShapeError(f"grid_sample: x must have 2 or 3 spatial axes of known sizes, not {list(data.shape)}")
        rank = len(sizes)
        if places.ndim != rank + 2 or (places.shape[0], places.shape[-1]) != (data.shape[0], rank):
            raise ShapeError(
                f"grid_sample: grid must be [{data.shape[0]}, .., {rank}] with {rank + 2} axes, not {list(places.shape)}"
            )
        n, c, *_ = data.shape
        wanted = tuple(places.shape[1:-1])
        points = rlx.reshape(places, (n, -1, rank))
        at = [_place(points[..., rank - 1 - i], size, padding, is_aligned) for i, size in enumerate(sizes)]
        flat = rlx.reshape(data, (n, c, -1))
        return rlx.reshape(_read(flat, at, sizes, method), (n, c, *wanted))

    return narrowed(spatially("grid_sample", images, layout, sampled), of)


def affine_grid(theta: ArrayLike, sizes: Sequence[int], *, align_corners: bool = False) -> Array:
    """The grid for `grid_sample` of affine maps: where each cell of the result lies in the image.

    Args:
        theta: f[n, 2, 3], or f[n, 3, 4] for three spatial axes: maps from (x, y, 1), or (x, y, z, 1).
        sizes: Of the result's spatial axes.
        align_corners: As for `grid_sample`.

    Returns:
        f[n, *sizes, 2], or 3.

    Raises:
        ShapeError: theta and the sizes do not fit.

    >>> affine_grid([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], (1, 2))[0, 0].tolist()
    [[-0.5, 0.0], [0.5, 0.0]]
    """
    of, (maps,) = floats("affine_grid", theta=theta)
    wanted = [whole("affine_grid: a size", n, least=1) for n in listed("affine_grid: sizes", sizes)]
    rank = len(wanted)
    if rank not in (2, 3) or maps.ndim != 3 or tuple(maps.shape[1:]) != (rank, rank + 1):
        raise ShapeError(
            f"affine_grid: theta must be [n, d, d + 1] for d = 2 or 3 sizes, not {list(maps.shape)} for {rank}"
        )
    is_aligned = flag("affine_grid: align_corners", align_corners)
    own = dtype_of(maps)
    ends = [1.0 if is_aligned else 1 - 1 / size for size in wanted]
    # One cell alone lies in the middle, whether its corners or its edges count.
    lines = [
        rlx.linspace(-e, e, s, dtype=own) if s > 1 else rlx.zeros(1, dtype=own)
        for e, s in zip(ends, wanted, strict=True)
    ]
    planes = rlx.meshgrid(*lines, indexing="ij")
    points = rlx.stack([rlx.reshape(p, (-1,)) for p in (*reversed(planes), rlx.ones_like(planes[0]))], axis=-1)
    found = rlx.matmul(points, rlx.matrix_transpose(maps))
    return narrowed(rlx.reshape(found, (maps.shape[0], *wanted, rank)), of)


def channel_shuffle(x: ArrayLike, groups: int, *, layout: Layout = "nchw") -> Array:
    """Channels in another order: the first of each group, then the second of each, and so on.

    Args:
        x: `[n, c, ..]`, or `[n, .., c]` in layout `nhwc`.
        groups: A divisor of c.
        layout: Where the channels are.

    Raises:
        ShapeError: The channels do not split into such groups.
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


def _place(g: Any, size: int, padding: Outside, is_aligned: bool) -> Any:
    """A coordinate from -1 to 1 as one of cells, inside of the image unless what is outside is zeros."""
    at = rlx.multiply(rlx.add(g, 1.0), (size - 1) / 2 if is_aligned else size / 2)
    if not is_aligned:
        at = rlx.subtract(at, 0.5)
    if padding == "reflection":
        low, span = (0.0, size - 1.0) if is_aligned else (-0.5, float(size))
        if span == 0:
            at = rlx.multiply(at, 0.0)
        else:  # to and fro with the period of two spans
            gone = rlx.remainder(rlx.subtract(at, low), 2 * span)
            at = rlx.add(rlx.where(rlx.less(gone, span), gone, rlx.subtract(2 * span, gone)), low)
    return at if padding == "zeros" else rlx.clip(at, 0.0, size - 1.0)


def _read(flat: Any, at: Sequence[Any], sizes: Sequence[int], method: Method) -> Any:
    """`[n, c, points]` of `[n, c, cells]` at coordinates `[n, points]`, one for each axis."""
    if method == "nearest":
        return _cell(flat, [rlx.round(a) for a in at], sizes)
    before = [rlx.floor(a) for a in at]
    shares = [rlx.subtract(a, b) for a, b in zip(at, before, strict=True)]
    found = None
    for corner in itertools.product((0, 1), repeat=len(at)):
        cells = [rlx.add(b, float(k)) for b, k in zip(before, corner, strict=True)]
        weight: Any = 1.0
        for share, k in zip(shares, corner, strict=True):
            weight = rlx.multiply(share if k else rlx.subtract(1.0, share), weight)
        part = rlx.multiply(_cell(flat, cells, sizes), rlx.expand_dims(weight, 1))
        found = part if found is None else rlx.add(found, part)
    return found


def _cell(flat: Any, cells: Sequence[Any], sizes: Sequence[int]) -> Any:
    """The cells of whole coordinates, and 0 outside of the image."""
    index: Any = 0
    is_inside: Any = True
    for cell, size in zip(cells, sizes, strict=True):
        is_inside = rlx.logical_and(
            is_inside, rlx.logical_and(rlx.greater_equal(cell, 0.0), rlx.less(cell, float(size)))
        )
    for cell, size in zip(cells, sizes, strict=True):
        known = rlx.where(is_inside, cell, 0.0)
        index = rlx.add(rlx.multiply(index, size), rlx.astype(known, rlx.i64))
    found = rlx.gather(flat, index, axis=2, batch_dims=1)
    return rlx.where(rlx.expand_dims(is_inside, 1), found, 0.0)
