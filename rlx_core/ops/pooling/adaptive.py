"""Pools with a given number of windows, for any size of the operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_core.errors import ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import dtype as as_dtype
from rlx_core.ops.along_axis import move_axis
from rlx_core.ops.conversion import cast
from rlx_core.ops.convolution.arguments import Layout, Steps, spatially, steps
from rlx_core.ops.indexing import gather
from rlx_core.ops.linalg import mat_mul
from rlx_core.ops.pooling import extremes, totals
from rlx_core.ops.pooling.layers import averaged_dtypes
from rlx_core.ops.reduction import max_axes

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = ["adaptive_avg_pool", "adaptive_max_pool"]


@checked_call
def adaptive_avg_pool(x: ArrayLike, output_size: Steps, *, layout: Layout = "nchw") -> Array:
    """The means of `output_size` windows: window i of m covers cells ⌊i·n/m⌋ to ⌈(i + 1)·n/m⌉.

    Args:
        x: `[n, c, ..]`, or `[n, .., c]` in layout `nhwc`.
        output_size: The spatial sizes of the result; one number, or one for each axis.
        layout: The position of the channels.

    Raises:
        ShapeError: A size is below 1, or a spatial size of x is unknown or 0.

    >>> adaptive_avg_pool([[[1.0, 2.0, 3.0]]], 2).tolist()
    [[[1.5, 2.5]]]
    """

    def along(data: Any, axis: int, first: np.ndarray, last: np.ndarray) -> Any:
        cells = np.arange(data.shape[axis])[:, None]
        inside = (cells >= first) & (cells < last)
        weights = (inside / (last - first)).astype(as_dtype(data.dtype).numpy)
        return move_axis(mat_mul(move_axis(data, axis, data.ndim - 1), weights), data.ndim - 1, axis)

    def averages(data: Any, **geometry: Any) -> Any:
        return totals.avg_pool(data, **geometry)

    def pooled(data: Any) -> Any:
        result_dtype, accumulator = averaged_dtypes(data)
        return cast(
            _adapted("adaptive_avg_pool", cast(data, to=accumulator), output_size, averages, along), to=result_dtype
        )

    return spatially("adaptive_avg_pool", x, layout, pooled)


@checked_call
def adaptive_max_pool(x: ArrayLike, output_size: Steps, *, layout: Layout = "nchw") -> Array:
    """The largest cells of `output_size` windows, with the positions of those of `adaptive_avg_pool`.

    >>> adaptive_max_pool([[[1.0, 2.0, 3.0]]], 2).tolist()
    [[[2.0, 3.0]]]
    """

    def along(data: Any, axis: int, first: np.ndarray, last: np.ndarray) -> Any:
        # A window that is shorter than others repeats its last cell.
        cells = np.minimum(first[:, None] + np.arange((last - first).max()), last[:, None] - 1)
        return max_axes(gather(data, cells, axis=axis, oob="clip"), axes=(axis + 1,))

    return spatially(
        "adaptive_max_pool",
        x,
        layout,
        lambda data: _adapted("adaptive_max_pool", data, output_size, extremes.max_pool, along),
    )


def _adapted(
    what: str,
    data: Any,
    sizes: Steps,
    pool: Callable[..., Any],
    along: Callable[[Any, int, np.ndarray, np.ndarray], Any],
) -> Any:
    """Return the pool of windows of one size if the sizes divide, else of one axis after the other, with first and last cells."""
    output_sizes = steps(f"{what}: output_size", sizes, data.ndim - 2)
    input_sizes = data.shape[2:]
    for n, m in zip(input_sizes, output_sizes, strict=True):
        if not isinstance(n, int) or n < 1 or m < 1:
            raise ShapeError(f"{what}: an axis goes from a known size of at least 1 to another, not from {n} to {m}")
    if all(n % m == 0 for n, m in zip(input_sizes, output_sizes, strict=True)):
        cells = tuple(n // m for n, m in zip(input_sizes, output_sizes, strict=True))
        return pool(data, kernel=cells, stride=cells)
    for axis, (n, m) in enumerate(zip(input_sizes, output_sizes, strict=True), 2):
        if n != m:
            i = np.arange(m)
            data = along(data, axis, i * n // m, -(-(i + 1) * n // m))
    return data
