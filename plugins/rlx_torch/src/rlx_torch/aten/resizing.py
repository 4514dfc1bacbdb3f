"""Pictures of other sizes, and pictures read at points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rlx_core import nn
from rlx_torch.aten.context import refuse
from rlx_torch.aten.normalization import pulled
from rlx_torch.aten.table import aten


def _resized_sizes(x: Any, sizes: Any, factors: Any) -> tuple[Any, ...]:
    axes = x.ndim - 2
    if sizes is not None:
        return tuple(sizes)
    if not all(isinstance(n, int) for n in x.shape[2:]):
        refuse("sizes instead of factors, where those of x are symbols")
    return tuple(int(n * f) for n, f in zip(x.shape[2:], list(factors)[:axes], strict=True))


def _is_ratio(x: Any, sizes: Sequence[Any], factors: Any) -> bool:
    """Return whether a factor is consistent with the sizes; torch computes positions with the factor if it is given."""
    if factors is None:
        return True
    return all(f is None or n * f == size for n, size, f in zip(x.shape[2:], sizes, factors, strict=False))


def _resized(x: Any, sizes: Any, factors: Any, method: Any, coordinates: Any) -> Any:
    required = _resized_sizes(x, sizes, factors)
    if not _is_ratio(x, required, factors):
        refuse("a factor that gives a whole size, or recompute_scale_factor=True")
    return nn.resize(x, required, method=method, coordinates=coordinates)


def _nearest(x: Any, sizes: Any, factors: Any = None) -> Any:
    return _resized(x, sizes, factors, "nearest", "asymmetric")


def _smooth(method: str) -> Any:
    def resize(x: Any, sizes: Any, align_corners: bool, factors: Any = None) -> Any:
        return _resized(x, sizes, factors, method, "align-corners" if align_corners else "half-pixel")

    return resize


def _by_sizes(function: Any) -> Any:
    """Return a handler for the overloads with one factor per axis as separate arguments."""

    def resize(x: Any, sizes: Any, *remaining: Any) -> Any:
        aligned = () if function is _nearest else remaining[:1]
        scales = remaining[len(aligned) :]
        values = None if not scales or all(s is None for s in scales) else list(scales)
        return function(x, sizes, *aligned, values)

    return resize


for _axes, _method in ((1, "linear"), (2, "bilinear"), (3, "trilinear")):
    aten(f"upsample_nearest{_axes}d.vec")(_nearest)
    aten(f"upsample_nearest{_axes}d")(_by_sizes(_nearest))
    aten(f"upsample_{_method}{_axes}d.vec")(_smooth("linear"))
    aten(f"upsample_{_method}{_axes}d")(_by_sizes(_smooth("linear")))
aten("upsample_bicubic2d.vec")(_smooth("cubic"))
aten("upsample_bicubic2d")(_by_sizes(_smooth("cubic")))


_METHODS: Final = ("linear", "nearest", "cubic")
_PADDINGS: Final = ("zeros", "border", "reflection")


@aten("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(x: Any, grid: Any, interpolation: int, padding: int, align_corners: bool) -> Any:
    return nn.grid_sample(
        x, grid, mode=_METHODS[interpolation], padding_mode=_PADDINGS[padding], align_corners=align_corners
    )


@aten("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(
    g: Any, x: Any, grid: Any, interpolation: int, padding: int, align_corners: bool, mask: Sequence[bool]
) -> Any:
    return pulled(lambda x, grid: grid_sampler(x, grid, interpolation, padding, align_corners), g, (x, grid), mask)
