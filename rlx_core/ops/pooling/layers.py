"""Pools as layers: windows of any size and stride, a given number of windows, or all cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, overload

from rlx_core.errors import ConfigError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import DType, f32, f64
from rlx_core.ir.dtypes import dtype as as_dtype
from rlx_core.ops.arguments import flag, number
from rlx_core.ops.arithmetic import absolute, pow
from rlx_core.ops.conversion import cast
from rlx_core.ops.convolution.arguments import Layout, Padding, Steps, spatially, steps, windows
from rlx_core.ops.convolution.ways import fitted
from rlx_core.ops.pooling import extremes, totals
from rlx_core.ops.pooling.unpooling import cells_of_windows
from rlx_core.ops.reduction import max_axes, mean_axes

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = [
    "avg_pool",
    "global_avg_pool",
    "global_max_pool",
    "lp_pool",
    "max_pool",
    "min_pool",
    "prod_pool",
    "sum_pool",
]


@overload
def max_pool(
    x: ArrayLike,
    kernel_size: Steps,
    stride: Steps | None = None,
    padding: Padding = 0,
    *,
    dilation: Steps = 1,
    ceil_mode: bool = False,
    return_indices: Literal[False] = False,
    layout: Layout = "nchw",
) -> Array: ...
@overload
def max_pool(
    x: ArrayLike,
    kernel_size: Steps,
    stride: Steps | None = None,
    padding: Padding = 0,
    *,
    dilation: Steps = 1,
    ceil_mode: bool = False,
    return_indices: Literal[True],
    layout: Layout = "nchw",
) -> tuple[Array, Array]: ...
@checked_call
def max_pool(
    x: ArrayLike,
    kernel_size: Steps,
    stride: Steps | None = None,
    padding: Padding = 0,
    *,
    dilation: Steps = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    layout: Layout = "nchw",
) -> Any:
    """The largest cell of every window; at a tie the derivative goes to the first one.

    Args:
        x: `[n, c, ..]`, or `[n, .., c]` in layout `nhwc`; one to three spatial axes.
        kernel_size: The size of a window; one number, or one for each spatial axis.
        stride: The distance in cells between windows; `kernel_size` by default.
        padding: As in `conv`; padding is ignored in the maximum.
        dilation: The distance in cells between elements of a window.
        ceil_mode: Whether to add a last window that exceeds the padded axis; it covers the existing cells.
        return_indices: Whether to also return the i32 indices of the cells in their channel, in row-major order, for
            `max_unpool`.
        layout: The position of the channels.

    Raises:
        ShapeError: A window is larger than the padded axis, or padding is at least as wide as a window.
        ConfigError: The padding or the layout is unknown, or a list does not have one entry per axis.

    >>> max_pool([[[1.0, 3.0, 2.0, 0.0]]], 2).tolist()
    [[[3.0, 2.0]]]
    """
    settings = x, kernel_size, stride, padding, dilation, ceil_mode, layout
    values = _pooled("max_pool", extremes.max_pool, *settings)
    is_indexed = flag("max_pool: return_indices", return_indices)
    return (values, _pooled("max_pool", _largest_cells, *settings)) if is_indexed else values


def _largest_cells(data: Any, **settings: Any) -> Any:
    return cells_of_windows(data, extremes.MaxPool(**settings).geometry(settings["kernel"]), settings)


@checked_call
def min_pool(
    x: ArrayLike,
    kernel_size: Steps,
    stride: Steps | None = None,
    padding: Padding = 0,
    *,
    dilation: Steps = 1,
    ceil_mode: bool = False,
    layout: Layout = "nchw",
) -> Array:
    """The smallest cell of every window; arguments as in `max_pool`."""
    return _pooled("min_pool", extremes.min_pool, x, kernel_size, stride, padding, dilation, ceil_mode, layout)


@checked_call
def sum_pool(
    x: ArrayLike,
    kernel_size: Steps,
    stride: Steps | None = None,
    padding: Padding = 0,
    *,
    dilation: Steps = 1,
    ceil_mode: bool = False,
    layout: Layout = "nchw",
) -> Array:
    """The sum of every window; arguments as in `max_pool`."""
    return _pooled("sum_pool", totals.sum_pool, x, kernel_size, stride, padding, dilation, ceil_mode, layout)


@checked_call
def prod_pool(
    x: ArrayLike,
    kernel_size: Steps,
    stride: Steps | None = None,
    padding: Padding = 0,
    *,
    dilation: Steps = 1,
    ceil_mode: bool = False,
    layout: Layout = "nchw",
) -> Array:
    """The product of every window; arguments as in `max_pool`."""
    return _pooled("prod_pool", totals.prod_pool, x, kernel_size, stride, padding, dilation, ceil_mode, layout)


@checked_call
def avg_pool(
    x: ArrayLike,
    kernel_size: Steps,
    stride: Steps | None = None,
    padding: Padding = 0,
    *,
    dilation: Steps = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: Layout = "nchw",
) -> Array:
    """The mean of every window, in which padding counts as zeros unless `count_include_pad` is false.

    The other arguments and the errors are those of `max_pool`.

    >>> avg_pool([[[1.0, 3.0, 2.0, 0.0]]], 2, padding=1, count_include_pad=False).tolist()
    [[[1.0, 2.5, 0.0]]]
    """
    counts = flag("avg_pool: count_include_pad", count_include_pad)
    return _pooled(
        "avg_pool",
        totals.avg_pool,
        x,
        kernel_size,
        stride,
        padding,
        dilation,
        ceil_mode,
        layout,
        count_include_pad=counts,
    )


@checked_call
def lp_pool(
    x: ArrayLike,
    p: float,
    kernel_size: Steps,
    stride: Steps | None = None,
    padding: Padding = 0,
    *,
    dilation: Steps = 1,
    ceil_mode: bool = False,
    layout: Layout = "nchw",
) -> Array:
    """(Σ |x|^p)^(1/p) of every window; p above 0.

    The other arguments and the errors are those of `max_pool`.

    >>> lp_pool([[[3.0, 4.0]]], 2, 2).tolist()
    [[[5.0]]]
    """
    exponent = float(number("lp_pool: p", p))
    if not exponent > 0:
        raise ConfigError(f"lp_pool: p must be above 0, not {p!r}")

    def summed(data: Any, **geometry: Any) -> Any:
        result_dtype, accumulator = averaged_dtypes(data)
        total = totals.sum_pool(pow(absolute(cast(data, to=accumulator)), exponent), **geometry)
        return cast(pow(total, 1 / exponent), to=result_dtype)

    return _pooled("lp_pool", summed, x, kernel_size, stride, padding, dilation, ceil_mode, layout)


@checked_call
def global_avg_pool(x: ArrayLike, *, layout: Layout = "nchw") -> Array:
    """The mean over all spatial axes, which are kept with size 1.

    Raises:
        ShapeError: There are no spatial axes, or more than three.
    """
    return spatially("global_avg_pool", x, layout, lambda data: mean_axes(data, axes=_spatial(data), keep_dim=True))


@checked_call
def global_max_pool(x: ArrayLike, *, layout: Layout = "nchw") -> Array:
    """The largest cell of all spatial axes, which are kept with size 1; ties share the derivative.

    Raises:
        ShapeError: There are no spatial axes, or more than three, or one is empty.
    """
    return spatially("global_max_pool", x, layout, lambda data: max_axes(data, axes=_spatial(data), keep_dim=True))


def _pooled(
    what: str,
    pool: Callable[..., Any],
    x: Any,
    kernel: Steps,
    stride: Steps | None,
    padding: Padding,
    dilation: Steps,
    ceil_mode: bool,
    layout: Layout,
    **more: Any,
) -> Any:
    is_ceiled = flag(f"{what}: ceil_mode", ceil_mode)

    def pooled(data: Any) -> Any:
        cells = steps(f"{what}: kernel_size", kernel, data.ndim - 2)
        geometry = windows(what, data, cells, cells if stride is None else stride, padding, dilation)
        data, settings = ceiled(what, data, cells, {**geometry, **more}) if is_ceiled else (data, {**geometry, **more})
        return pool(data, kernel=cells, **settings)

    return spatially(what, x, layout, pooled)


def ceiled(what: str, data: Any, cells: tuple[int, ...], geometry: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the operand and the attributes of a pool whose last windows may exceed the padded operand.

    A window is added if it begins before the last cell, or in the padding before. Cells beyond the padding are always ignored.
    """
    beyond = []
    for axis, (size, cell) in enumerate(zip(data.shape[2:], cells, strict=True)):
        lo, hi, stride = geometry["lo"][axis], geometry["hi"][axis], geometry["stride"][axis]
        if not isinstance(size, int):
            raise ShapeError(
                f"{what}: ceil_mode depends on sizes that are known, not {size}", hint="pass numbers as padding"
            )
        remaining = lo + size + hi - geometry["dilation"][axis] * (cell - 1) - 1
        count = -(-remaining // max(stride, 1)) + 1
        if (count - 1) * stride >= lo + size:
            count -= 1
        beyond.append(max((count - 1) * stride - remaining, 0))
    if not any(beyond):
        return data, geometry
    wider = tuple(h + b for h, b in zip(geometry["hi"], beyond, strict=True))
    if not geometry.get("count_include_pad"):
        return data, {**geometry, "hi": wider}
    # Padding is averaged as zeros; cells beyond it are ignored.
    none = (0,) * len(cells)
    return fitted(data, geometry["lo"], geometry["hi"]), {
        **geometry,
        "lo": none,
        "hi": tuple(beyond),
        "count_include_pad": False,
    }


def averaged_dtypes(data: Any) -> tuple[DType, DType]:
    """Return the dtype of means of x, which are floats, and the accumulation dtype."""
    result_dtype = as_dtype(data.dtype)
    if not result_dtype.is_differentiable:
        result_dtype = f64 if result_dtype.itemsize == 8 else f32
    return result_dtype, result_dtype.accumulator


def _spatial(data: Any) -> tuple[int, ...]:
    return tuple(range(2, data.ndim))
