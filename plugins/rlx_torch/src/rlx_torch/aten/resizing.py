"""Pictures of other sizes, and pictures read at points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rlx_core as rlx
from rlx_core import nn
from rlx_core.ir.dims import Dim
from rlx_torch.aten.context import refuse
from rlx_torch.aten.elementwise import convert
from rlx_torch.aten.normalization import pulled
from rlx_torch.aten.promotion import as_value
from rlx_torch.aten.table import aten


def _resized_sizes(x: Any, sizes: Any, factors: Any) -> tuple[Any, ...]:
    axes = x.ndim - 2
    if sizes is not None:
        return tuple(sizes)
    if not all(isinstance(n, int) for n in x.shape[2:]):
        refuse("sizes instead of factors, where those of x are symbols")
    return tuple(int(n * f) for n, f in zip(x.shape[2:], list(factors)[:axes], strict=True))


def _is_ratio(x: Any, sizes: Sequence[Any], factors: Any) -> bool:
    """Whether a factor says no more than the sizes do; torch computes positions with the factor where it is given."""
    if factors is None:
        return True
    return all(f is None or n * f == size for n, size, f in zip(x.shape[2:], sizes, factors, strict=False))


def _resized(x: Any, sizes: Any, factors: Any, method: Any, coordinates: Any) -> Any:
    wanted = _resized_sizes(x, sizes, factors)
    if not _is_ratio(x, wanted, factors):
        refuse("a factor that gives a whole size, or recompute_scale_factor=True")
    return nn.resize(x, wanted, method=method, coordinates=coordinates)


def _nearest(x: Any, sizes: Any, factors: Any = None) -> Any:
    return _resized(x, sizes, factors, "nearest", "asymmetric")


def _smooth(method: str) -> Any:
    def resize(x: Any, sizes: Any, align_corners: bool, factors: Any = None) -> Any:
        return _resized(x, sizes, factors, method, "align-corners" if align_corners else "half-pixel")

    return resize


def _by_sizes(function: Any) -> Any:
    """The overloads that give one factor an axis apart."""

    def resize(x: Any, sizes: Any, *rest: Any) -> Any:
        aligned = () if function is _nearest else rest[:1]
        scales = rest[len(aligned) :]
        given = None if not scales or all(s is None for s in scales) else list(scales)
        return function(x, sizes, *aligned, given)

    return resize


for _axes, _method in ((1, "linear"), (2, "bilinear"), (3, "trilinear")):
    aten(f"upsample_nearest{_axes}d.vec")(_nearest)
    aten(f"upsample_nearest{_axes}d")(_by_sizes(_nearest))
    aten(f"upsample_{_method}{_axes}d.vec")(_smooth("linear"))
    aten(f"upsample_{_method}{_axes}d")(_by_sizes(_smooth("linear")))
aten("upsample_bicubic2d.vec")(_smooth("cubic"))
aten("upsample_bicubic2d")(_by_sizes(_smooth("cubic")))


@aten("grid_sampler_2d")
def grid_sampler_2d(x: Any, grid: Any, interpolation: int, padding: int, align_corners: bool) -> Any:
    """Pictures read at points: `grid[n, i, j]` is (x, y) in [-1, 1]; bilinear or nearest, zeros or the border outside."""
    if interpolation == 2 or padding == 2:
        refuse("bilinear or nearest interpolation with zeros or border outside")
    height, width = x.shape[2:]
    xs = _unnormalised(grid[..., 0], width, align_corners, padding == 1)
    ys = _unnormalised(grid[..., 1], height, align_corners, padding == 1)
    if interpolation == 1:
        return _picked_cells(x, rlx.round(ys), rlx.round(xs))
    left, top = rlx.floor(xs), rlx.floor(ys)
    found = None
    for down in (0, 1):
        for across in (0, 1):
            column, row = rlx.stop_gradient(left + across), rlx.stop_gradient(top + down)
            share = (1 - rlx.abs(xs - column)) * (1 - rlx.abs(ys - row))
            part = _picked_cells(x, row, column) * rlx.expand_dims(share, axis=1)
            found = part if found is None else found + part
    return found


@aten("grid_sampler_2d_backward")
def grid_sampler_2d_backward(
    g: Any, x: Any, grid: Any, interpolation: int, padding: int, align_corners: bool, mask: Sequence[bool]
) -> Any:
    return pulled(lambda x, grid: grid_sampler_2d(x, grid, interpolation, padding, align_corners), g, (x, grid), mask)


def _unnormalised(at: Any, size: Dim, align_corners: bool, clamped: bool) -> Any:
    n = as_value(size, at.dtype)
    place = (at + 1) * 0.5 * (n - 1) if align_corners else ((at + 1) * n - 1) * 0.5
    return rlx.clip(place, as_value(0, at.dtype), n - 1) if clamped else place


def _picked_cells(x: Any, row: Any, column: Any) -> Any:
    """x[n, :, row[n, i, j], column[n, i, j]], and 0 outside."""
    height, width = x.shape[2:]
    row, column = rlx.stop_gradient(row), rlx.stop_gradient(column)
    inside = rlx.logical_and(_within(row, height), _within(column, width))
    place = convert(row, rlx.i64) * as_value(width, rlx.i64) + convert(column, rlx.i64)
    place = rlx.where(inside, place, as_value(0, rlx.i64))
    flat = rlx.reshape(x, (*x.shape[:2], height * width))
    lines = rlx.reshape(place, (place.shape[0], 1, place.shape[1] * place.shape[2]))
    lines = rlx.broadcast_to(lines, (*x.shape[:2], lines.shape[-1]))
    found = rlx.reshape(rlx.take_along_axis(flat, lines, axis=-1), (*x.shape[:2], *place.shape[1:]))
    return rlx.where(rlx.expand_dims(inside, axis=1), found, as_value(0, x.dtype))


def _within(place: Any, size: Dim) -> Any:
    return rlx.logical_and(
        rlx.greater_equal(place, as_value(0, place.dtype)), rlx.less(place, as_value(size, place.dtype))
    )
