"""Operands rearranged into panels, which the inner loop reads front to back: in the kernel here, ahead of time in `packs.py`.

A panel of B holds `[k, columns]`, columns rounded up to whole vectors and filled with zeros; a tile of A holds `[k, rows]`.
Both forms of B are the same bytes, so the kernel that reads them does not know who made them.
"""

from __future__ import annotations

from llvmlite import ir

from rlx_cpu.native.build import I32
from rlx_cpu.native.gemm_tiles import Blocks
from rlx_cpu.native.simd import Simd, counting, index, offset

__all__ = ["pack_columns", "pack_panel", "pack_rows", "packed_nbytes"]


def packed_nbytes(blocks: Blocks, k: int, itemsize: int) -> int:
    """Bytes of one matrix B in panels."""
    return blocks.columns * k * itemsize


def pack_panel(
    b: ir.IRBuilder,
    simd: Simd,
    source: ir.Value,
    packed: ir.Value,
    *,
    depth: int | ir.Value,
    vectors: int,
    strides: tuple[int, int],
    column: ir.Value,
    columns: int,
) -> None:
    """Copy `[depth, vectors · lanes]` of B into a panel.

    Args:
        source: The element at the panel's first column, first row.
        strides: In bytes, along k and along n.
        column: The panel's first column.
        columns: Columns of B in all; those beyond become zeros.
    """
    by_k, by_n = strides
    width = vectors * simd.lanes * simd.itemsize
    starts = [b.add(column, index(j * simd.lanes)) for j in range(vectors)]
    if by_n == simd.itemsize:
        is_whole = columns % simd.lanes == 0
        inside = [None if is_whole else simd.below(b, start, columns) for start in starts]
        with counting(b, 0, depth) as k:
            left, place = offset(b, source, (k, by_k)), offset(b, packed, (k, width))
            line = [simd.load(b, offset(b, left, j * simd.nbytes), inside[j]) for j in range(vectors)]
            for j, value in enumerate(line):
                simd.store(b, value, offset(b, place, j * simd.nbytes), align=simd.nbytes)
        return
    for j, start in enumerate(starts):
        left = offset(b, source, j * simd.lanes * by_n)
        place = offset(b, packed, j * simd.nbytes)
        if by_k == simd.itemsize:
            pack_columns(b, simd, left, place, depth=depth, stride=by_n, width=width, start=start, columns=columns)
        else:
            with counting(b, 0, depth) as k:
                value = _gather(b, simd, offset(b, left, (k, by_k)), by_n, start, columns)
                simd.store(b, value, offset(b, place, (k, width)), align=simd.nbytes)


def pack_columns(
    b: ir.IRBuilder,
    simd: Simd,
    source: ir.Value,
    packed: ir.Value,
    *,
    depth: int | ir.Value,
    stride: int,
    width: int,
    start: ir.Value,
    columns: int | ir.Value,
) -> None:
    """One vector of columns of a B whose columns are contiguous: square blocks transposed in registers.

    Args:
        stride: Bytes from a column to the next.
        width: Bytes from a row of the panel to the next.
        start: The number of the first column; those from `columns` on become zeros.
    """
    lanes, itemsize = simd.lanes, simd.itemsize
    total = index(depth) if isinstance(depth, int) else depth
    bound = index(columns) if isinstance(columns, int) else columns
    even = b.and_(total, index(-lanes))
    is_full = b.icmp_signed("<=", b.add(start, index(lanes)), bound)
    last = b.sub(b.sub(bound, index(1)), start)
    with counting(b, 0, even, lanes) as k:
        rows = []
        for lane in range(lanes):
            # A column beyond the last is read as the last one, and zeroed below.
            nearest = b.select(b.icmp_signed("<", index(lane), last), index(lane), last)
            rows.append(simd.load(b, offset(b, source, (nearest, stride), (k, itemsize))))
        shown = b.or_(simd.splat(b, is_full), b.icmp_signed("<", simd.positions(b, start), simd.splat(b, bound)))
        for i, value in enumerate(simd.transposed(b, rows)):
            kept = b.select(shown, value, simd.zero)
            simd.store(b, kept, offset(b, packed, (b.add(k, index(i)), width)), align=simd.nbytes)
    with counting(b, even, total) as k:
        value = _gather(b, simd, offset(b, source, (k, itemsize)), stride, start, bound)
        simd.store(b, value, offset(b, packed, (k, width)), align=simd.nbytes)


def pack_rows(
    b: ir.IRBuilder, simd: Simd, source: ir.Value, packed: ir.Value, *, steps: int, rows: int, strides: tuple[int, int]
) -> None:
    """Copy `[rows, steps]` of A into a tile, `rows` elements a step of k.

    Args:
        strides: In bytes, along m and along k.
    """
    by_m, by_k = strides
    width = rows * simd.itemsize
    for k in range(steps):
        left, place = offset(b, source, k * by_k), offset(b, packed, k * width)
        if by_m == simd.itemsize:
            kind = ir.VectorType(simd.element, rows)
            b.store(b.load(left, typ=kind, align=simd.itemsize), place, align=simd.itemsize)
        else:
            for i, value in enumerate([simd.load_scalar(b, offset(b, left, i * by_m)) for i in range(rows)]):
                b.store(value, offset(b, place, i * simd.itemsize), align=simd.itemsize)


def _gather(
    b: ir.IRBuilder, simd: Simd, source: ir.Value, stride: int, start: ir.Value, columns: int | ir.Value
) -> ir.Value:
    """One vector of elements `stride` bytes apart; zeros from column `columns` on, which are not touched."""
    bound = index(columns) if isinstance(columns, int) else columns
    last = b.sub(b.sub(bound, index(1)), start)
    value: ir.Value = ir.Constant(simd.vector, ir.Undefined)
    for lane in range(simd.lanes):
        nearest = b.select(b.icmp_signed("<", index(lane), last), index(lane), last)
        element = simd.load_scalar(b, offset(b, source, (nearest, stride)))
        value = b.insert_element(value, element, ir.Constant(I32, lane))
    shown = b.icmp_signed("<", simd.positions(b, start), simd.splat(b, bound))
    return b.select(shown, value, simd.zero)
