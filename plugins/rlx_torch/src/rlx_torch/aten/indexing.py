"""Elements read and written at indices: gathers, scatters, embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.ir.dims import Dim, product
from rlx_core.ops import scatter_add
from rlx_torch.aten.context import expect_unread, on_host, refuse
from rlx_torch.aten.elementwise import convert
from rlx_torch.aten.promotion import as_value, is_complex, is_float
from rlx_torch.aten.shapes import insert_window, window
from rlx_torch.aten.table import aten, rows


@aten("embedding")
def embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    """Rows of a table; the row `padding_idx` is read like any other and gets no derivative."""
    result = rlx.take(weight, indices, axis=0)
    if padding_idx < 0:
        return result
    hidden = rlx.expand_dims(rlx.equal(indices, as_value(padding_idx, indices.dtype)), axis=-1)
    return rlx.where(hidden, rlx.stop_gradient(result), result)


@aten("embedding_dense_backward")
def embedding_dense_backward(g: Any, indices: Any, count: Dim, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    flat = rlx.reshape(indices, (-1,))
    rows_ = rlx.reshape(g, (flat.shape[0], g.shape[-1]))
    keep = rlx.not_equal(flat, as_value(padding_idx, flat.dtype))
    if scale_grad_by_freq:
        ones = rlx.ones(flat.shape, dtype=g.dtype)
        times = rlx.take(scatter_add(ones, flat, count), flat, axis=0)
        rows_ = rows_ / rlx.expand_dims(times, axis=-1)
    rows_ = rlx.where(rlx.expand_dims(keep, axis=-1), rows_, rlx.zeros_like(rows_))
    return scatter_add(rows_, flat, count)


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(x: Any, indices: Sequence[Any]) -> Any:
    """Advanced indexing; with masks, the number of elements is data-dependent."""
    if any(map(_is_mask, indices)):
        return on_host(_selected, x, *indices, instead="torch.where(mask, x, other), or an index of integers")
    return x[tuple(slice(None) if i is None else _place(i) for i in indices)]


def _is_mask(i: Any) -> bool:
    return i is not None and i.dtype in (rlx.bool_, rlx.u8)


def _selected(x: np.ndarray, *indices: np.ndarray | None) -> np.ndarray:
    masks = (i.astype(bool) if i is not None and i.dtype == np.uint8 else i for i in indices)
    return x[tuple(slice(None) if i is None else i for i in masks)]


@aten("nonzero")
def nonzero(x: Any) -> Any:
    """Positions of the elements that are not 0, a row each."""
    return on_host(np.argwhere, x, instead="torch.where(condition, a, b), whose size is known before it runs")


@aten("masked_select")
def masked_select(x: Any, mask: Any) -> Any:
    def select(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
        x, mask = np.broadcast_arrays(x, mask)
        return x[mask]

    return on_host(select, x, mask, instead="torch.where(mask, x, other), whose size is known before it runs")


def _expect_places(indices: Sequence[Any]) -> None:
    if any(map(_is_mask, indices)):
        refuse("torch.where(mask, x, other), whose size is known, or an index of integers")


def _place(i: Any) -> Any:
    return i if i.dtype == rlx.i64 else rlx.astype(i, rlx.i64)


@aten("index_put", "_unsafe_index_put")
def index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """`x` with values written, or added, at index tuples; a mask over leading axes is a choice between the two."""
    values = convert(values, x.dtype)
    arguments = [i for i in indices if i is not None]
    if len(arguments) == 1 and arguments[0].dtype == rlx.bool_:
        return _masked_put(x, indices, arguments[0], values, accumulate)
    _expect_places(indices)
    axes = [axis for axis, i in enumerate(indices) if i is not None]
    others = [axis for axis in range(x.ndim) if axis not in axes]
    places = rlx.broadcast_arrays(*(_place(i) for i in arguments))
    count = places[0].ndim
    # The result of reading has the indexed axes in front, or where the only run of them stands.
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    front = axes[0] if together else 0
    shape = [x.shape[axis] for axis in others]
    shape[front:front] = places[0].shape
    values = rlx.broadcast_to(values, tuple(shape))
    values = rlx.moveaxis(values, tuple(range(front, front + count)), tuple(range(count)))
    sizes = [x.shape[axis] for axis in axes]
    where = rlx.stack([_counted(p, n) for p, n in zip(places, sizes, strict=True)], axis=-1)
    transposed = rlx.permute_dims(x, (*axes, *others))
    written = rlx.scatter_nd(transposed, where, values, mode="add" if accumulate else "set")
    back = sorted(range(x.ndim), key=lambda axis: (*axes, *others)[axis])
    return rlx.permute_dims(written, tuple(back))


def _masked_put(x: Any, indices: Sequence[Any], mask: Any, values: Any, accumulate: bool) -> Any:
    before = next(axis for axis, i in enumerate(indices) if i is not None)
    after = x.ndim - before - mask.ndim
    if values.ndim > after or (values.ndim and before):
        refuse("one value for all that the mask selects")
    mask = rlx.reshape(mask, (*[1] * before, *mask.shape, *[1] * after))
    return rlx.where(mask, x + values if accumulate else values, x)


def _counted(place: Any, size: Dim) -> Any:
    """An index counted from the front."""
    size = as_value(size, place.dtype)
    return rlx.where(rlx.less(place, as_value(0, place.dtype)), place + size, place)


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    if not x.ndim:
        return as_value(value, x.dtype)
    index = rlx.reshape(index, (-1,))
    shape = [index.shape[0] if axis == dim % x.ndim else n for axis, n in enumerate(x.shape)]
    return _at_vector(x, dim, index, rlx.broadcast_to(as_value(value, x.dtype), tuple(shape)), "set")


def _at_vector(x: Any, dim: int, index: Any, source: Any, mode: Any) -> Any:
    if not x.ndim:
        return rlx.reshape(_at_vector(rlx.reshape(x, (1,)), 0, index, rlx.reshape(source, (-1,)), mode), ())
    index = rlx.reshape(index, (-1,))
    if source.ndim < x.ndim:
        source = rlx.expand_dims(source, axis=dim % x.ndim)
    return rlx.scatter(x, _counted(index, x.shape[dim]), source, mode=mode, axis=dim % x.ndim)


@aten("gather")
def gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    """Elements along one axis; the other axes have the sizes of the index."""
    if not x.ndim or not index.ndim:
        flat = rlx.take(rlx.reshape(x, (-1,)), rlx.reshape(index, (-1,)), axis=0)
        return rlx.reshape(flat, index.shape)
    if x.ndim != index.ndim:  # torch takes an index without elements, whatever its rank
        return rlx.zeros(index.shape, dtype=x.dtype)
    dim %= x.ndim
    shape = [n if axis == dim else m for axis, (n, m) in enumerate(zip(x.shape, index.shape, strict=True))]
    return rlx.take_along_axis(window(x, shape), index, axis=dim)


def _put(x: Any, dim: int, index: Any, source: Any, mode: Any) -> Any:
    """`x` with an update at each index of one axis, in the corner of `x` that the index covers."""
    if not x.ndim or not index.ndim:
        flat = _put(rlx.reshape(x, (-1,)), 0, *_flat(index, source), mode)
        return rlx.reshape(flat, x.shape)
    dim %= x.ndim
    source = window(convert(source, x.dtype), index.shape)
    shape = [n if axis == dim else m for axis, (n, m) in enumerate(zip(x.shape, index.shape, strict=True))]
    corner = window(x, shape)
    put = rlx.put_along_axis(corner, index, source, axis=dim, mode=mode)
    return put if corner is x or tuple(shape) == tuple(x.shape) else insert_window(x, put)


def _flat(index: Any, source: Any) -> tuple[Any, Any]:
    return rlx.reshape(index, (-1,)), rlx.reshape(source, (-1,))


def _filled(index: Any, value: Any, dtype: Any) -> Any:
    return rlx.broadcast_to(as_value(value, dtype), index.shape)


_SAME = {"add": "sum", "multiply": "prod"}
_MODES = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


@aten("scatter_reduce.two")
def scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    if not x.ndim:
        lifted = (rlx.reshape(each, (1,)) for each in (x, index, src))
        x, index, src = lifted
        return rlx.reshape(scatter_reduce(x, 0, index, src, reduce, include_self=include_self), ())
    dim %= x.ndim
    hit = rlx.not_equal(counts := _counts(x, dim, index), as_value(0, counts.dtype))
    start = x if include_self else rlx.where(hit, as_value(_identity(reduce, x.dtype), x.dtype), x)
    result = _put(start, dim, index, src, _MODES[reduce])
    if reduce != "mean":
        return result
    parts = rlx.maximum(counts + int(include_self), as_value(1, counts.dtype))
    full = convert(parts, x.dtype)
    return result / full if is_float(x) or is_complex(x) else rlx.floor_divide(result, full)


@aten("index_reduce")
def index_reduce(x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    if not x.ndim:
        return scatter_reduce(x, 0, index, rlx.reshape(source, ()), reduce, include_self=include_self)
    axis = dim % x.ndim
    places = rlx.reshape(index, [-1 if k == axis else 1 for k in range(x.ndim)])
    return scatter_reduce(x, axis, rlx.broadcast_to(places, source.shape), source, reduce, include_self=include_self)


rows(
    {
        "scatter.src": lambda x, dim, index, src: _put(x, dim, index, src, "set"),
        "scatter.value": lambda x, dim, index, value: _put(x, dim, index, _filled(index, value, x.dtype), "set"),
        "scatter.reduce": lambda x, dim, index, src, reduce: scatter_reduce(x, dim, index, src, _SAME[reduce]),
        "scatter.value_reduce": lambda x, dim, index, value, reduce: scatter_reduce(
            x, dim, index, _filled(index, value, x.dtype), _SAME[reduce]
        ),
        "scatter_add": lambda x, dim, index, src: _put(x, dim, index, src, "add"),
        "index_copy": lambda x, dim, index, source: _at_vector(x, dim, index, source, "set"),
        "bincount": lambda x, weights=None, minlength=0: refuse(
            "torch.zeros(n).scatter_add(0, x, ones), whose size is known"
        ),
        "index_select": lambda x, dim, index: x if not x.ndim else rlx.take(x, rlx.reshape(index, (-1,)), axis=dim),
        "index_add": lambda x, dim, index, source, *, alpha=1: _at_vector(
            x, dim, index, (source if alpha == 1 else source * as_value(alpha, source.dtype)), "add"
        ),
    }
)


def _counts(x: Any, dim: int, index: Any) -> Any:
    """Return how many updates meet each element."""
    zeros = rlx.zeros(x.shape, dtype=rlx.i32)
    return _put(zeros, dim, index, rlx.ones(index.shape, dtype=rlx.i32), "add")


def _identity(reduce: str, dtype: Any) -> Any:
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if dtype == rlx.bool_:
        return reduce == "amin"
    limits = (rlx.iinfo if dtype.kind in ("int", "uint") else rlx.finfo)(dtype)
    extreme = float("inf") if dtype.kind == "float" else limits.max
    return (limits.min if dtype.kind != "float" else -extreme) if reduce == "amax" else extreme


@aten("masked_scatter")
def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """The elements under a mask replaced by the first of the source, in row-major order."""
    mask = rlx.broadcast_to(mask, x.shape)
    flat = rlx.reshape(convert(mask, rlx.i64), (-1,))
    places = rlx.maximum(rlx.cumulative_sum(flat, axis=0) - 1, as_value(0, rlx.i64))
    taken = rlx.take(rlx.reshape(convert(source, x.dtype), (-1,)), places, axis=0, out_of_bounds="clip")
    return rlx.where(mask, rlx.reshape(taken, x.shape), x)


@aten("masked_scatter_backward")
def masked_scatter_backward(g: Any, mask: Any, sizes: Sequence[Dim]) -> Any:
    mask = rlx.reshape(rlx.broadcast_to(mask, g.shape), (-1,))
    places = rlx.maximum(rlx.cumulative_sum(convert(mask, rlx.i64), axis=0) - 1, as_value(0, rlx.i64))
    taken = rlx.where(mask, rlx.reshape(g, (-1,)), as_value(0, g.dtype))
    return rlx.reshape(scatter_add(taken, places, product(sizes), oob="fill"), tuple(sizes))


@aten("take")
def take(x: Any, index: Any) -> Any:
    flat = rlx.reshape(x, (-1,))
    return rlx.take(flat, _counted(index, flat.shape[0]), axis=0)


@aten("put")
def put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    flat = rlx.reshape(x, (-1,))
    places = rlx.reshape(_counted(index, flat.shape[0]), (-1,))
    updates = rlx.reshape(source, (-1,))
    return rlx.reshape(rlx.scatter(flat, places, updates, mode="add" if accumulate else "set"), x.shape)


@aten("one_hot")
def one_hot(x: Any, num_classes: int = -1) -> Any:
    if num_classes < 0:
        refuse("a number of classes")
    return rlx.one_hot(x, num_classes, dtype=rlx.i64)


# ---------------------------------------------------------------------------------- bags of embeddings


@aten("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Sums (mode 0), means (1) or largest (2) of rows of a table, one for each bag of indices from an offset to the next."""
    bags = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]
    n = indices.shape[0]
    starts = convert(offsets[:bags] if include_last_offset else offsets, rlx.i64)
    begun = rlx.greater_equal(rlx.reshape(rlx.arange(n), (n, 1)), starts)
    bag = rlx.sum(convert(begun, rlx.i64), axis=1) - 1
    mask = rlx.not_equal(indices, as_value(padding_idx, indices.dtype))
    result = rlx.take(weight, indices, axis=0)
    if per_sample_weights is not None:
        result = result * rlx.expand_dims(per_sample_weights, axis=-1)
    lost = as_value(-math.inf if mode == 2 else 0, result.dtype)
    result = rlx.where(rlx.expand_dims(mask, axis=-1), result, lost)
    counts = scatter_add(convert(mask, result.dtype), bag, bags)
    sizes = scatter_add(convert(mask, rlx.i64), bag, bags)
    some = rlx.expand_dims(rlx.greater(counts, as_value(0, counts.dtype)), axis=-1)
    if mode == 2:
        expect_unread(3, instead="mode='mean' or 'sum' where a gradient is needed, or rlx.grad of the module")
        start = rlx.broadcast_to(lost, (bags, weight.shape[1]))
        y = rlx.where(some, rlx.scatter(start, bag, result, mode="max"), as_value(0, result.dtype))
    else:
        y = scatter_add(result, bag, bags)
        if mode == 1:
            y = y / rlx.expand_dims(rlx.maximum(counts, as_value(1, counts.dtype)), axis=-1)
    return y, bag, sizes, rlx.zeros((bags,), dtype=rlx.i64)


@aten("_embedding_bag_backward")
def embedding_bag_backward(
    g: Any, indices: Any, offsets: Any, bag: Any, sizes: Any, largest: Any, count: Any, scale_grad_by_freq: bool,
    mode: int, sparse: bool, per_sample_weights: Any, padding_idx: int = -1,
) -> Any:  # fmt: skip
    if mode == 2 or scale_grad_by_freq:
        refuse("mode='mean' or 'sum', without scale_grad_by_freq")
    if mode == 1:
        g = g / rlx.expand_dims(convert(rlx.maximum(sizes, as_value(1, sizes.dtype)), g.dtype), axis=-1)
    rows_ = rlx.take(g, bag, axis=0)
    if per_sample_weights is not None:
        rows_ = rows_ * rlx.expand_dims(per_sample_weights, axis=-1)
    mask = rlx.expand_dims(rlx.not_equal(indices, as_value(padding_idx, indices.dtype)), axis=-1)
    return scatter_add(rlx.where(mask, rows_, as_value(0, g.dtype)), indices, count)
