"""Layers that change the sizes of images: by resampling, or by exchanging channels and cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx_core.errors import ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ops.arguments import flag, whole
from rlx_core.ops.convolution.arguments import Layout, Steps, spatially, steps
from rlx_core.ops.resize.places import Coordinates, Method
from rlx_core.ops.resize.resample import resize as resize_op
from rlx_core.ops.structural import reshape, transpose

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["pixel_shuffle", "pixel_unshuffle", "resize"]


@checked_call
def resize(
    x: ArrayLike,
    size: Steps,
    *,
    method: Method = "nearest",
    coordinates: Coordinates = "half-pixel",
    sharpness: float = -0.75,
    antialias: bool = False,
    layout: Layout = "nchw",
) -> Array:
    """The spatial axes resampled to other sizes; see `Resize`.

    Args:
        x: `[n, c, ..]`, or `[n, .., c]` in layout `nhwc`; one to three spatial axes.
        size: The spatial sizes of the result; one number, or one for each axis.
        method: "nearest", "linear" (bilinear, trilinear) or "cubic".
        coordinates: "half-pixel" (cells are areas, as in image libraries), "align-corners" (the first and last cells
            coincide) or "asymmetric" (cell i is at i·n/m).
        sharpness: The slope of the cubic kernel; -0.75 in most libraries, -0.5 in some, and with `antialias` in most.
        antialias: Whether, when downsampling, all cells covered by a cell of the result are averaged.
        layout: The position of the channels.

    Raises:
        ShapeError: A size is below 1, or a size of x is unknown.
        ConfigError: The method or the coordinates are unknown, or `antialias` is set for "nearest".
        DtypeError: Integers cannot be interpolated; `nearest` takes them.

    >>> resize([[[1.0, 2.0]]], 4, method="linear").tolist()
    [[[1.0, 1.25, 1.75, 2.0]]]
    """

    is_smooth = flag("resize: antialias", antialias)

    def resized(data: Any) -> Any:
        output_sizes = steps("resize: size", size, data.ndim - 2)
        return resize_op(
            data, sizes=output_sizes, method=method, coordinates=coordinates, sharpness=sharpness, antialias=is_smooth
        )

    return spatially("resize", x, layout, resized)


@checked_call
def pixel_shuffle(x: ArrayLike, upscale_factor: int, *, layout: Layout = "nchw") -> Array:
    """Channels as cells: `[n, c·f^d, l..]` to `[n, c, l·f..]` for a factor of f, the first spatial axis outermost in a channel.

    Raises:
        ShapeError: f^d does not divide the number of channels.
    """
    times = whole("pixel_shuffle: upscale_factor", upscale_factor, least=1)

    def shuffled(data: Any) -> Any:
        rank = data.ndim - 2
        n, channels, *sizes = data.shape
        if not isinstance(channels, int) or channels % times**rank:
            raise ShapeError(f"pixel_shuffle: {channels} channels are no multiple of {times**rank}")
        expanded = reshape(data, (n, channels // times**rank, *(times,) * rank, *sizes))
        between = (axis for i in range(rank) for axis in (2 + rank + i, 2 + i))
        return reshape(transpose(expanded, (0, 1, *between)), (n, channels // times**rank, *(s * times for s in sizes)))

    return spatially("pixel_shuffle", x, layout, shuffled)


@checked_call
def pixel_unshuffle(x: ArrayLike, downscale_factor: int, *, layout: Layout = "nchw") -> Array:
    """Cells as channels, the inverse of `pixel_shuffle`.

    Raises:
        ShapeError: The factor does not divide a spatial axis.
    """
    times = whole("pixel_unshuffle: downscale_factor", downscale_factor, least=1)

    def gathered(data: Any) -> Any:
        rank = data.ndim - 2
        n, channels, *sizes = data.shape
        for size in sizes:
            if not isinstance(size, int) or size % times:
                raise ShapeError(f"pixel_unshuffle: {size} cells are no multiple of {times}")
        expanded = reshape(data, (n, channels, *(part for s in sizes for part in (s // times, times))))
        order = (*range(3, 3 + 2 * rank, 2), *range(2, 2 + 2 * rank, 2))
        return reshape(transpose(expanded, (0, 1, *order)), (n, channels * times**rank, *(s // times for s in sizes)))

    return spatially("pixel_unshuffle", x, layout, gathered)
