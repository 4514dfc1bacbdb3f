"""Arguments of layers with windows: numbers per axis or for all axes, padding as number, pairs or name, and layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

from rlx_core.errors import ConfigError, ShapeError
from rlx_core.ir.dims import Dim
from rlx_core.ops.arguments import choice, whole
from rlx_core.ops.convolution.geometry import MOST_AXES
from rlx_core.ops.linalg import operand
from rlx_core.ops.structural import transpose

Layout = Literal["nchw", "nhwc"]
"""The position of the channels, second or last, for any number of spatial axes."""

Steps: TypeAlias = int | Sequence[int]
Padding: TypeAlias = int | Literal["same", "valid"] | Sequence[int | tuple[int, int]]

_WORDS = ("same", "valid")


def steps(what: str, value: Steps, rank: int) -> tuple[int, ...]:
    """Return one number for each spatial axis, from one for all or a sequence.

    Raises:
        ConfigError: It is not a number or a sequence, or has another length.
    """
    if not isinstance(value, Sequence):
        return (whole(what, value),) * rank
    result = tuple(whole(what, v) for v in value)
    if len(result) != rank:
        raise ConfigError(f"{what} has {len(result)} numbers for {rank} spatial axes")
    return result


def paddings(
    what: str, padding: Padding, sizes: Sequence[Dim], extents: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each spatial axis.

    `same` pads so that there is a window for every `stride` cells, with an odd cell at the end; `valid` does not pad.

    Raises:
        ConfigError: It is an unknown name, not a number or pair, or of another length.
        ShapeError: "same" at a stride above 1 needs a known size.
    """
    rank = len(sizes)
    if isinstance(padding, str):
        choice(f"{what}: padding", padding, _WORDS)
        if padding == "valid":
            return (0,) * rank, (0,) * rank
        totals = [_same(what, *axis) for axis in zip(sizes, extents, strides, strict=True)]
        return tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    if not isinstance(padding, Sequence):
        width = whole(f"{what}: padding", padding)
        return (width,) * rank, (width,) * rank
    if len(padding) != rank:
        raise ConfigError(f"{what}: padding has {len(padding)} entries for {rank} spatial axes")
    pairs = [tuple(p) if isinstance(p, Sequence) and not isinstance(p, str) else (p, p) for p in padding]
    for pair in pairs:
        if len(pair) != 2:
            raise ConfigError(f"{what}: padding of an axis is a number or a pair, not {pair!r}")
    lo, hi = (tuple(whole(f"{what}: padding", p[side]) for p in pairs) for side in (0, 1))
    return lo, hi


def _same(what: str, size: Dim, extent: int, stride: int) -> int:
    if stride == 1:
        return extent - 1
    if not isinstance(size, int):
        raise ShapeError(
            f'{what}: padding "same" at stride {stride} depends on a size that is not known, {size}',
            hint="pass numbers",
        )
    windows = -(-size // stride)
    return max((windows - 1) * stride + extent - size, 0)


def windows(
    what: str, x: Any, kernel: Sequence[int], stride: Steps, padding: Padding, dilation: Steps
) -> dict[str, Any]:
    """Return the attributes of windows over the spatial axes of x, which has its channels second."""
    rank = len(kernel)
    strides, gaps = steps(f"{what}: stride", stride, rank), steps(f"{what}: dilation", dilation, rank)
    extents = [gap * (k - 1) + 1 for k, gap in zip(kernel, gaps, strict=True)]
    lo, hi = paddings(what, padding, x.shape[2:], extents, [max(s, 1) for s in strides])
    return {"stride": strides, "dilation": gaps, "lo": lo, "hi": hi}


def channels_second(what: str, x: Any, layout: Layout) -> Any:
    """Return `x` as `[n, c, ..]`.

    Raises:
        ConfigError: The layout is unknown.
        ShapeError: There are no spatial axes, or more than three.
    """
    choice(f"{what}: layout", layout, get_args(Layout))
    data = operand(x)
    if not 3 <= data.ndim <= 2 + MOST_AXES:
        spatial = "n, c and 1 to 3 spatial axes" if layout == "nchw" else "n, 1 to 3 spatial axes and c"
        raise ShapeError(f"{what}: x must have {spatial}, not {data.ndim} axes")
    return data if layout == "nchw" else transpose(data, (0, data.ndim - 1, *range(1, data.ndim - 1)))


def channel_axis(what: str, data: Any, layout: Layout) -> int:
    """Return the channel axis of a tensor with any number of spatial axes.

    Raises:
        ConfigError: The layout is unknown.
        ShapeError: There are fewer than two axes.
    """
    choice(f"{what}: layout", layout, get_args(Layout))
    if data.ndim < 2:
        raise ShapeError(f"{what}: x must have n and c, not {data.ndim} axes")
    return 1 if layout == "nchw" else int(data.ndim) - 1


def with_layout(y: Any, layout: Layout) -> Any:
    """Return `[n, c, ..]` in a layout."""
    return y if layout == "nchw" else transpose(y, (0, *range(2, y.ndim), 1))


def spatially(what: str, x: Any, layout: Layout, function: Callable[[Any], Any]) -> Any:
    """Apply a function of `[n, c, ..]` in a layout."""
    return with_layout(function(channels_second(what, x, layout)), layout)
