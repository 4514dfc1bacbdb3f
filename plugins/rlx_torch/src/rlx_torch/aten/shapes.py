"""The same elements in other places: reshaping, moving axes, cutting, joining and padding."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.ir.dims import Dim, holds
from rlx_torch.aten.context import expect, here, refuse
from rlx_torch.aten.elementwise import convert
from rlx_torch.aten.normalization import pulled
from rlx_torch.aten.promotion import as_value, meet
from rlx_torch.aten.table import aten, rows

END = sys.maxsize  # what torch writes for an open end


def at(axis: int, index: Any) -> tuple[Any, ...]:
    """An index of one axis, counted from the front."""
    return (*[slice(None)] * axis, index)


@aten("expand", "expand_copy")
def expand(x: Any, shape: Sequence[Dim], *, implicit: bool = False) -> Any:
    more = len(shape) - x.ndim
    sizes = [x.shape[i - more] if isinstance(size, int) and size == -1 else size for i, size in enumerate(shape)]
    return rlx.broadcast_to(x, tuple(sizes))


@aten("transpose.int", "transpose_copy.int")
def transpose(x: Any, dim0: int, dim1: int) -> Any:
    axes = list(range(x.ndim))
    if axes:
        axes[dim0], axes[dim1] = axes[dim1], axes[dim0]
    return rlx.permute_dims(x, tuple(axes))


rows(
    {
        "t t_copy": lambda x: rlx.matrix_transpose(x) if x.ndim == 2 else x,
        "numpy_T": lambda x: rlx.permute_dims(x, tuple(reversed(range(x.ndim)))),
        "mT": rlx.matrix_transpose,
        "mH adjoint": lambda x: rlx.conj(rlx.matrix_transpose(x)),
        "unsqueeze unsqueeze_copy": lambda x, dim: rlx.expand_dims(x, axis=dim),
        "squeeze squeeze_copy": lambda x: _squeeze(x, range(x.ndim)),
        "squeeze.dim squeeze_copy.dim": lambda x, dim: _squeeze(x, [dim]),
        "squeeze.dims squeeze_copy.dims": lambda x, dim: _squeeze(x, dim),
        "flip": lambda x, dims: rlx.flip(x, axis=tuple(dims)) if dims else x,
        "stack": lambda tensors, dim=0: rlx.stack(meet(*tensors), axis=dim),
        "tril": lambda x, diagonal=0: rlx.tril(x, k=diagonal),
        "triu": lambda x, diagonal=0: rlx.triu(x, k=diagonal),
        "flatten.using_ints": lambda x, start_dim=0, end_dim=-1: _flatten(x, start_dim, end_dim),
        "ravel": lambda x: rlx.reshape(x, (-1,)),
        "unfold": lambda x, dim, size, step: _windows(x, dim, size, step),
        "view reshape _unsafe_view view_copy _reshape_alias reshape_copy": lambda x, shape, *strides: rlx.reshape(
            x, tuple(shape)
        ),
        "view_as reshape_as": lambda x, other: rlx.reshape(x, other.shape),
        "expand_as": lambda x, other: rlx.broadcast_to(x, other.shape),
        "permute permute_copy": lambda x, dims: rlx.permute_dims(x, tuple(d % x.ndim for d in dims)) if x.ndim else x,
        "select.int select_copy.int": lambda x, dim, index: x[at(dim % x.ndim, index)],
        "unbind.int unbind_copy.int": lambda x, dim=0: list(rlx.unstack(x, axis=dim % x.ndim)),
    }
)


def _squeeze(x: Any, dims: Any) -> Any:
    axes = tuple({d % x.ndim for d in dims if holds("==", x.shape[d], 1)} if x.ndim else ())
    return rlx.squeeze(x, axis=axes) if axes else x


def _flatten(x: Any, start: int, end: int) -> Any:
    if not x.ndim:
        return rlx.reshape(x, (1,))
    start, end = start % x.ndim, end % x.ndim
    size: Dim = 1
    for d in x.shape[start : end + 1]:
        size = size * d
    return rlx.reshape(x, (*x.shape[:start], size, *x.shape[end + 1 :]))


def _windows(x: Any, dim: int, size: int, step: int) -> Any:
    if not x.ndim:
        return rlx.reshape(x, (1,))
    dim %= x.ndim
    count = (x.shape[dim] - size) // step + 1
    starts = rlx.reshape(rlx.arange(count), (count, 1)) * step
    places = rlx.add(starts, rlx.arange(size))
    return rlx.moveaxis(rlx.take(x, places, axis=dim), dim + 1, -1)


@aten("cat", "concat")
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Tensors joined; torch ignores those of shape [0]."""
    full = [t for t in tensors if not (t.ndim == 1 and holds("==", t.shape[0], 0))] or list(tensors)[:1]
    values = meet(*tensors)
    return rlx.concat([values[i] for i, t in enumerate(tensors) if any(t is each for each in full)], axis=dim)


@aten("slice.Tensor", "slice_copy.Tensor")
def slice_(x: Any, dim: int = 0, start: Dim | None = None, end: Dim | None = None, step: int = 1) -> Any:
    return x[at(dim % x.ndim, slice(start, None if _is_open(end) else end, step))]


def _is_open(end: Dim | None) -> bool:
    return end is None or (isinstance(end, int) and end >= END)


@aten("narrow", "narrow_copy")
def narrow(x: Any, dim: int, start: Any, length: Dim) -> Any:
    return slice_(x, dim, start, start + length)


@aten("split_with_sizes", "split_with_sizes_copy", "split.sizes")
def split_with_sizes(x: Any, sizes: Sequence[Dim], dim: int = 0) -> list[Any]:
    result, start = [], 0
    for size in sizes:
        result.append(narrow(x, dim, start, size))
        start = start + size  # type: ignore[assignment]
    return result


@aten("split.Tensor", "split_copy.Tensor")
def split(x: Any, size: Dim, dim: int = 0) -> list[Any]:
    n = x.shape[dim]
    if not isinstance(n, int) or not isinstance(size, int):
        return [x] if holds("==", n, size) else refuse("parts of an axis of known size, or split_with_sizes")
    return split_with_sizes(x, [min(size, n - i) for i in range(0, n, size)] if n else [0], dim)


@aten("chunk")
def chunk(x: Any, chunks: int, dim: int = 0) -> list[Any]:
    n = x.shape[dim]
    if not isinstance(n, int):
        expect("divides", chunks, n)
        return split_with_sizes(x, [n // chunks] * chunks, dim)
    return split(x, -(-n // chunks) or 1, dim)


@aten("repeat")
def repeat(x: Any, repeats: Sequence[int]) -> Any:
    x = rlx.reshape(x, (*[1] * (len(repeats) - x.ndim), *x.shape))
    for axis, times in enumerate(repeats):
        if isinstance(times, int) and times == 1:
            continue
        separate = rlx.broadcast_to(rlx.expand_dims(x, axis=axis), (*x.shape[:axis], times, *x.shape[axis:]))
        x = rlx.reshape(separate, (*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :]))
    return x


@aten("repeat_interleave.self_int")
def repeat_interleave(x: Any, repeats: int, dim: int | None = None, *, output_size: Any = None) -> Any:
    if dim is None or not x.ndim:
        x, dim = rlx.reshape(x, (-1,)), 0
    dim %= x.ndim
    separate = rlx.expand_dims(x, axis=dim + 1)
    separate = rlx.broadcast_to(separate, (*x.shape[: dim + 1], repeats, *x.shape[dim + 1 :]))
    return rlx.reshape(separate, (*x.shape[:dim], x.shape[dim] * repeats, *x.shape[dim + 1 :]))


@aten("roll")
def roll(x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    if not dims:
        return rlx.reshape(rlx.roll(rlx.reshape(x, (-1,)), shifts[0], axis=0), x.shape)
    return rlx.roll(x, tuple(shifts), axis=tuple(dims))


@aten("diagonal", "diagonal_copy")
def diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return rlx.diagonal(rlx.moveaxis(x, (dim1, dim2), (-2, -1)), offset=offset)


@aten("diag_embed")
def diag_embed(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    n = x.shape[-1] + abs(offset)
    zeros = rlx.zeros((*x.shape[:-1], n, n), dtype=x.dtype)
    return rlx.moveaxis(set_diagonal(zeros, x, offset), (-2, -1), (dim1 % (x.ndim + 1), dim2 % (x.ndim + 1)))


@aten("diagonal_scatter")
def diagonal_scatter(x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    transposed = rlx.moveaxis(x, (dim1, dim2), (-2, -1))
    return rlx.moveaxis(set_diagonal(transposed, source, offset), (-2, -1), (dim1 % x.ndim, dim2 % x.ndim))


def set_diagonal(x: Any, diagonal: Any, offset: int) -> Any:
    """`x` with a diagonal of each matrix replaced."""
    rows_, columns = rlx.arange(x.shape[-2]), rlx.arange(x.shape[-1])
    on = rlx.equal(rlx.expand_dims(rows_, axis=1) + offset, columns)
    along = rlx.clip(columns if offset < 0 else rows_, 0, diagonal.shape[-1] - 1)
    taken = rlx.take(diagonal, along, axis=-1)
    return rlx.where(on, rlx.expand_dims(taken, axis=-2 if offset < 0 else -1), x)


@aten("as_strided", "as_strided_copy")
def as_strided(x: Any, size: Sequence[Any], stride: Sequence[Any], storage_offset: int | None = None) -> Any:
    """Elements by where they lie, in the order of a dense tensor; another order is not known here."""
    values = here.get().node.args[0].meta.get("val")
    if values is not None and not values.is_contiguous():
        refuse("x.contiguous() before it is seen with strides of its own")
    if not all(isinstance(n, int) for n in (*size, *stride, *x.shape)):
        refuse("sizes and strides that are known")
    place: Any = np.full((1,) * len(size), storage_offset or 0, np.int64)
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        place = place + (np.arange(n) * step).reshape([n if i == axis else 1 for i in range(len(size))])
    return rlx.take(rlx.reshape(x, (-1,)), np.broadcast_to(place, tuple(size)), axis=0)


# ------------------------------------------------------------------------------------ windows written and padded


def window(x: Any, shape: Sequence[Dim]) -> Any:
    """The corner of `x` at the front with the sizes of `shape`."""
    index = tuple(slice(None) if n == m else slice(0, n) for n, m in zip(shape, x.shape, strict=True))
    return x[index]


def insert_window(x: Any, update: Any) -> Any:
    """`x` with its corner at the front overwritten."""
    return rlx.dynamic_update_slice(x, update, [0] * x.ndim) if x.ndim else update


@aten("slice_scatter")
def slice_scatter(x: Any, source: Any, dim: int = 0, start: Any = None, end: Dim | None = None, step: int = 1) -> Any:
    dim %= x.ndim
    if start is None and _is_open(end) and step == 1:
        return rlx.broadcast_to(convert(source, x.dtype), x.shape)
    places = slice_(rlx.arange(x.shape[dim]), 0, start, end, step)
    return rlx.scatter(x, places, rlx.broadcast_to(convert(source, x.dtype), source.shape), axis=dim)


@aten("select_scatter")
def select_scatter(x: Any, source: Any, dim: int, index: Any) -> Any:
    dim %= x.ndim
    place = index if not isinstance(index, int) or index >= 0 else x.shape[dim] + index
    here_ = rlx.equal(rlx.iota(dim, x.shape, rlx.i64), as_value(place, rlx.i64))
    return rlx.where(here_, rlx.expand_dims(convert(source, x.dtype), axis=dim), x)


rows(
    {
        "diagonal_backward": lambda g, sizes, offset, dim1, dim2: diagonal_scatter(
            rlx.zeros(tuple(sizes), dtype=g.dtype), g, offset, dim1, dim2
        ),
        "slice_backward": lambda g, sizes, dim, start, end, step: slice_scatter(
            rlx.zeros(tuple(sizes), dtype=g.dtype), g, dim, start, end, step
        ),
        "select_backward": lambda g, sizes, dim, index: select_scatter(
            rlx.zeros(tuple(sizes), dtype=g.dtype), g, dim, index
        ),
    }
)


# --------------------------------------------------------------------------------------------- padding


def pad_ends(x: Any, pad: Sequence[Any], mode: Any = "constant", value: Any = 0) -> Any:
    """`x` with cells around it, given from the last axis on, as torch gives them."""
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    widths = [*[(0, 0)] * (x.ndim - len(pairs)), *reversed(pairs)]
    if mode == "constant":
        return rlx.pad(x, widths, mode="constant", constant_values=as_value(value, x.dtype))
    return rlx.pad(x, widths, mode=mode)


rows(
    {
        "constant_pad_nd": lambda x, pad, value=0: pad_ends(x, pad, value=value),
        "reflection_pad1d reflection_pad2d reflection_pad3d": lambda x, pad: pad_ends(x, pad, "reflect"),
        "replication_pad1d replication_pad2d replication_pad3d": lambda x, pad: pad_ends(x, pad, "edge"),
    }
)


def _pad_backward(mode: str) -> Any:
    return lambda g, x, pad: pulled(lambda x: pad_ends(x, pad, mode), g, (x,))[0]


for _axes in (1, 2, 3):
    aten(f"reflection_pad{_axes}d_backward")(_pad_backward("reflect"))
    aten(f"replication_pad{_axes}d_backward")(_pad_backward("edge"))

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@aten("pad")
def pad(x: Any, pad: Sequence[Dim], mode: str = "constant", value: float | None = None) -> Any:
    return pad_ends(x, pad, _MODES[mode], value or 0)
