"""Pooling: the largest and the mean of windows, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core import nn
from rlx_core.ir.dims import Dim
from rlx_torch.aten.context import is_read, refuse
from rlx_torch.aten.convolution import Steps, batched, steps
from rlx_torch.aten.elementwise import convert
from rlx_torch.aten.normalization import pulled
from rlx_torch.aten.promotion import as_value, is_float
from rlx_torch.aten.table import aten


def _out_size(n: Any, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> Any:
    """Return how many windows torch counts: with `ceil` also one that begins inside but ends outside."""
    span = dilation * (kernel - 1)
    if not ceil:
        return (n + 2 * padding - span - 1) // stride + 1
    if not isinstance(n, int):
        refuse("ceil_mode=False where sizes are symbols")
    count = -(-(n + 2 * padding - span - 1) // stride) + 1
    return count - 1 if (count - 1) * stride >= n + padding else count


class _Windows:
    """The windows of a pooling layer in rlx's words: at the end, as much padding as the counted windows need."""

    def __init__(
        self, x: Any, kernel: Steps, stride: Steps, padding: Steps, dilation: Steps, ceil: bool, axes: int
    ) -> None:
        self.kernel = steps(kernel, axes)
        self.stride = steps(stride, axes) or self.kernel
        self.dilation = steps(dilation, axes)
        self.ends = []
        self.extra = False
        before = steps(padding, axes)
        for n, k, s, p, d in zip(x.shape[-axes:], self.kernel, self.stride, before, self.dilation, strict=True):
            after = p
            if ceil:
                count = _out_size(n, k, s, p, d, ceil)
                reach = (count - 1) * s + d * (k - 1) + 1
                after = max(reach - n - p, p)
            self.ends.append((p, after))
            self.extra = self.extra or after > p
        self.named: dict[str, Any] = {"stride": self.stride, "padding": tuple(self.ends)}


def _max_pool(axes: int) -> Any:
    def pool(
        x: Any, kernel: Steps, stride: Steps = (), padding: Steps = 0, dilation: Steps = 1, ceil_mode: bool = False
    ) -> Any:
        w = _Windows(x, kernel, stride, padding, dilation, ceil_mode, axes)
        return nn.max_pool(x, w.kernel, dilation=w.dilation, **w.named)

    return batched(pool, axes)


def _max_pool_places(axes: int) -> Any:
    """The largest of each window, and where it is in its channel, counted in row-major order."""
    largest = _max_pool(axes)

    def pool(
        x: Any, kernel: Steps, stride: Steps = (), padding: Steps = 0, dilation: Steps = 1, ceil_mode: bool = False
    ) -> Any:
        values = largest(x, kernel, stride, padding, dilation, ceil_mode)
        w = _Windows(x, kernel, stride, padding, dilation, ceil_mode, axes)
        return values, _first_places(x, values, w)

    return batched(pool, axes)


def _first_places(x: Any, values: Any, w: _Windows) -> Any:
    """Return the first cell of every window that equals the largest, or is NaN."""
    axes = len(w.kernel)
    cells = x.shape[-axes:]
    best: Any = None
    result: Any = None
    for offsets in _each(w.kernel):
        place: Any = as_value(0, rlx.i64)
        inside: Any = as_value(True, rlx.bool_)
        picked = rlx.stop_gradient(x)
        for i, offset in enumerate(offsets):
            axis = x.ndim - axes + i
            line = rlx.arange(values.shape[axis]) * w.stride[i] + (offset * w.dilation[i] - w.ends[i][0])
            last = as_value(cells[i], rlx.i64)
            ok = rlx.logical_and(rlx.greater_equal(line, as_value(0, rlx.i64)), rlx.less(line, last))
            line = rlx.where(ok, line, as_value(0, rlx.i64))
            picked = rlx.take(picked, line, axis=axis)
            shape = (values.shape[axis], *[1] * (axes - 1 - i))
            place = place * last + rlx.reshape(line, shape)
            inside = rlx.logical_and(inside, rlx.reshape(ok, shape))
        hit = rlx.logical_and(rlx.equal(picked, values), inside)
        if x.dtype.kind == "float":
            hit = rlx.logical_or(hit, rlx.logical_and(rlx.isnan(picked), inside))
        place = rlx.broadcast_to(place, values.shape)
        result = place if result is None else rlx.where(rlx.logical_and(hit, rlx.logical_not(best)), place, result)
        best = hit if best is None else rlx.logical_or(best, hit)
    return result


def _each(kernel: Sequence[int]) -> Any:
    return [()] if not kernel else [(i, *remaining) for i in range(kernel[0]) for remaining in _each(kernel[1:])]


for _axes in (1, 2, 3):
    aten(f"max_pool{_axes}d")(_max_pool(_axes))
    aten(f"max_pool{_axes}d_with_indices")(_max_pool_places(_axes))


def _max_pool_backward(axes: int) -> Any:
    def backward(
        g: Any,
        x: Any,
        kernel: Steps,
        stride: Steps,
        padding: Steps,
        dilation: Steps,
        ceil_mode: bool,
        indices: Any,
    ) -> Any:
        lead = x.shape[:-axes]
        cells: Dim = 1
        for n in x.shape[-axes:]:
            cells = cells * n
        flat, places = (rlx.reshape(each, (*lead, -1)) for each in (g, indices))
        zeros = rlx.zeros((*lead, cells), dtype=g.dtype)
        return rlx.reshape(rlx.put_along_axis(zeros, places, flat, axis=-1, mode="add"), x.shape)

    return backward


aten("max_pool2d_with_indices_backward")(_max_pool_backward(2))
aten("max_pool3d_with_indices_backward")(_max_pool_backward(3))


def _avg_pool(axes: int) -> Any:
    def pool(
        x: Any,
        kernel: Steps,
        stride: Steps = (),
        padding: Steps = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        w = _Windows(x, kernel, stride, padding, 1, ceil_mode, axes)
        if divisor_override is None and not (w.extra and count_include_pad):
            return nn.avg_pool(x, w.kernel, count_include_pad=count_include_pad, **w.named)
        full = nn.avg_pool(x, w.kernel, **w.named)
        for k in w.kernel:
            full = full * k
        return full / (divisor_override or _counted_cells(x, w, axes))

    return batched(pool, axes)


def _counted_cells(x: Any, w: _Windows, axes: int) -> Any:
    """Cells of each window that count: those of x and its padding, not what `ceil_mode` reads beyond."""
    counts: Any = as_value(1.0, x.dtype)
    for i, ((before, after), k, s) in enumerate(zip(w.ends, w.kernel, w.stride, strict=True)):
        n = x.shape[x.ndim - axes + i]
        count = (n + before + after - k) // s + 1
        starts = rlx.arange(count) * s
        ends = rlx.minimum(starts + k, as_value(n + 2 * before, rlx.i64))
        counts = counts * rlx.reshape(convert(ends - starts, x.dtype), (count, *[1] * (axes - 1 - i)))
    return counts


for _axes in (1, 2, 3):
    aten(f"avg_pool{_axes}d")(_avg_pool(_axes))


@aten("avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(g: Any, x: Any, *window: Any) -> Any:
    return pulled(lambda x: _avg_pool(len(window[0]))(x, *window), g, (x,))[0]


def _adaptive(function: Any, axes: int) -> Any:
    def pool(x: Any, sizes: Sequence[Any]) -> Any:
        required = tuple(x.shape[i - axes] if size is None else size for i, size in enumerate(steps(sizes, axes)))
        return function(x, required)

    return batched(pool, axes)


for _axes in (1, 2, 3):
    aten(f"adaptive_avg_pool{_axes}d")(_adaptive(nn.adaptive_avg_pool, _axes))
aten("_adaptive_avg_pool2d")(_adaptive(nn.adaptive_avg_pool, 2))
aten("_adaptive_avg_pool3d")(_adaptive(nn.adaptive_avg_pool, 3))


def _adaptive_max(axes: int) -> Any:
    """Return a handler for the largest element of each window and, if it is used, its position in the channel."""

    def pool(x: Any, sizes: Sequence[int]) -> Any:
        required = steps(sizes, axes)
        values = nn.adaptive_max_pool(x, required)
        if not is_read(1):
            return values, None
        cells = x.shape[-axes:]
        if not all(isinstance(n, int) for n in cells):
            refuse("sizes that are known where the places of the largest are needed")
        inside = _windows_of(cells, required)
        flat = rlx.reshape(x, (*x.shape[:-axes], 1, inside.shape[1]))
        hidden = as_value(-math.inf if is_float(x) else rlx.iinfo(x.dtype).min, x.dtype)
        places = rlx.argmax(rlx.where(inside, flat, hidden), axis=-1)
        return values, rlx.reshape(convert(places, rlx.i64), values.shape)

    return batched(pool, axes)


def _windows_of(cells: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    """Return whether a cell is in a window: [windows, cells], both in row-major order."""
    full = np.ones((1, 1), bool)
    for n, m in zip(cells, sizes, strict=True):
        i, position = np.arange(m)[:, None], np.arange(n)
        full = np.kron(full, (position >= i * n // m) & (position < -(-(i + 1) * n // m)))
    return full


def _adaptive_max_backward(axes: int) -> Any:
    return lambda g, x, indices: _max_pool_backward(axes)(g, x, (), (), (), (), False, indices)


for _axes in (2, 3):
    aten(f"adaptive_max_pool{_axes}d")(_adaptive_max(_axes))
    aten(f"adaptive_max_pool{_axes}d_backward")(_adaptive_max_backward(_axes))


def _adaptive_backward(axes: int) -> Any:
    pool = _adaptive(nn.adaptive_avg_pool, axes)
    return lambda g, x: pulled(lambda x: pool(x, g.shape[-axes:]), g, (x,))[0]


aten("_adaptive_avg_pool2d_backward")(_adaptive_backward(2))
aten("_adaptive_avg_pool3d_backward")(_adaptive_backward(3))
