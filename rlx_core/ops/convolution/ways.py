"""Lowering of a convolution to simpler ops: products of matrices, or one sum over each window.

Windows copied to the columns of a matrix (im2col) turn nearly all of the work into a product of matrices, at the price of a
copy of the operand for every cell of a window. If a group has few results or a sum few terms, that copy dominates, and one loop
that reads the operand in place is better.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.ir.dims import Dim, floor_quotient, product
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Value
from rlx_core.ops import movement
from rlx_core.ops.conversion import as_dtype
from rlx_core.ops.convolution.geometry import Geometry
from rlx_core.ops.convolution.sliding import sliding_windows
from rlx_core.ops.linalg import mat_mul, swap_last
from rlx_core.ops.movement import narrow, spread_size
from rlx_core.ops.structural import reshape, sum_axes, transpose

FEW_TERMS = 32
"""Number of terms of a sum below which no product of matrices is used."""

FEW_RESULTS = 4
"""Number of results of a group, for each window, below which no product of matrices is used."""


def has_few_terms(w: Value) -> bool:
    """Return whether each result of a convolution with these weights is a short sum."""
    terms = product(w.shape[1:])
    return isinstance(terms, int) and terms < FEW_TERMS


def has_few_results(channels: Dim, groups: Dim) -> bool:
    """Return whether few results read the same window: there are `channels` in total."""
    each = floor_quotient(channels, groups)
    return isinstance(each, int) and each < FEW_RESULTS


def by_matrices(x: Value, w: Value, geometry: Geometry, groups: Dim, acc_dtype: DType | None = None) -> Value:
    """Return a convolution without padding: [m/g, c/g·k] @ [n, g, c/g·k, o]."""
    n, (m, each) = x.shape[0], w.shape[:2]
    counts = geometry.counts(x.shape[2:])
    terms = each * geometry.cells
    columns = x if geometry.is_pointwise else windows_of(x, geometry)
    if groups == 1:
        rows, cells = reshape(w, (m, terms)), reshape(columns, (n, terms, product(counts)))
        product_of_all = mat_mul(rows, cells, acc_dtype=acc_dtype)
        return reshape(product_of_all, (n, m, *counts))
    left = reshape(w, (groups, floor_quotient(m, groups), terms))
    right = reshape(columns, (n, groups, terms, product(counts)))
    return reshape(mat_mul(left, right, acc_dtype=acc_dtype), (n, m, *counts))


def by_sums(x: Value, w: Value, geometry: Geometry, groups: Dim, acc_dtype: DType | None = None) -> Value:
    """Return a convolution without padding as one sum: [n, g, m/g, (c/g, k), o]."""
    n, (m, each) = x.shape[0], w.shape[:2]
    rank, counts, result = geometry.rank, geometry.counts(x.shape[2:]), acc_dtype or x.dtype
    read = reshape(windows_of(x, geometry), (n, groups, 1, each, *geometry.kernel, *counts))
    factors = reshape(w, (groups, floor_quotient(m, groups), each, *geometry.kernel, *(1,) * rank))
    total = sum_axes(
        as_dtype(read, result.accumulator) * as_dtype(factors, result.accumulator), axes=tuple(range(3, 4 + rank))
    )
    return as_dtype(reshape(total, (n, m, *counts)), result)


def weight_by_matrices(x: Value, dy: Value, geometry: Geometry, groups: Dim) -> Value:
    """Return the cotangent of the weights without padding: [g, m/g, n·o] @ [g, n·o, c/g·k]."""
    n, c, *_ = x.shape
    m, rank, counts = dy.shape[1], geometry.rank, dy.shape[2:]
    each = floor_quotient(c, groups)
    terms, places = each * geometry.cells, n * product(counts)
    read = reshape(windows_of(x, geometry), (n, groups, each, *geometry.kernel, *counts))
    rows = transpose(read, (1, 2, *range(3, 3 + rank), 0, *range(3 + rank, 3 + 2 * rank)))
    grouped = reshape(dy, (n, groups, floor_quotient(m, groups), *counts))
    left = reshape(transpose(grouped, (1, 2, 0, *range(3, 3 + rank))), (groups, floor_quotient(m, groups), places))
    return reshape(mat_mul(left, swap_last(reshape(rows, (groups, terms, places)))), (m, each, *geometry.kernel))


def swapped_operands(x: Value, dy: Value, geometry: Geometry, groups: Dim) -> tuple[Value, Value]:
    """Return operands of the convolution whose result, with its first axes swapped, is the cotangent of the weights.

    Examples are its channels, and its dilation is the stride of this one and vice versa.
    """
    n, c = x.shape[:2]
    rank, each = geometry.rank, floor_quotient(c, groups)
    for i, count in enumerate(dy.shape[2:]):
        read = spread_size(count, geometry.stride[i] - 1) + geometry.extents[i] - 1
        x = narrow(x, axis=2 + i, start=0, length=read)
    grouped = reshape(x, (n, groups, each, *x.shape[2:]))
    rows = transpose(grouped, (2, 1, 0, *range(3, 3 + rank)))
    return reshape(rows, (each, groups * n, *x.shape[2:])), transpose(dy, (1, 0, *range(2, 2 + rank)))


def windows_of(x: Value, geometry: Geometry) -> Value:
    return sliding_windows(x, kernel=geometry.kernel, stride=geometry.stride, dilation=geometry.dilation)


def swapped_channels(w: Value, groups: Dim) -> Value:
    """Return `[m, c/g, ..]` as `[c, m/g, ..]`: the weights of the transposed convolution."""
    m, each, *kernel = w.shape
    inner = floor_quotient(m, groups)
    grouped = reshape(w, (groups, inner, each, *kernel))
    swapped = transpose(grouped, (0, 2, 1, *range(3, 3 + len(kernel))))
    return reshape(swapped, (groups * each, inner, *kernel))


def fitted(x: Value, lo: Sequence[Dim], hi: Sequence[Dim], between: Sequence[int] = ()) -> Value:
    """Return the spatial axes with zeros before, after and between their cells; negative numbers slice cells off instead."""
    return movement.fitted(x, (0, 0, *lo), (0, 0, *hi), (0, 0, *between) if between else ())


def merged(x: Value, axis: int, groups: Dim) -> Value:
    """Return `[b, .., c, ..]` with the batch before axis `axis` of the rest, inside each of its groups: `[.., g·b·c/g, ..]`."""
    size, *dims = x.shape
    each = floor_quotient(dims[axis], groups)
    expanded = reshape(x, (size, *dims[:axis], groups, each, *dims[axis + 1 :]))
    inside = transpose(expanded, (*range(1, axis + 2), 0, *range(axis + 2, expanded.ndim)))
    return reshape(inside, (*dims[:axis], groups * size * each, *dims[axis + 1 :]))


def parted(y: Value, axis: int, groups: Dim, size: Dim) -> Value:
    """Return the inverse of `merged`."""
    dims = y.shape
    each = floor_quotient(dims[axis], groups * size)
    expanded = reshape(y, (*dims[:axis], groups, size, each, *dims[axis + 1 :]))
    front = transpose(expanded, (axis + 1, *range(axis + 1), *range(axis + 2, expanded.ndim)))
    return reshape(front, (size, *dims[:axis], groups * each, *dims[axis + 1 :]))
