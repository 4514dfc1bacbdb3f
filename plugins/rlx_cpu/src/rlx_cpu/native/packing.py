"""Operands rearranged into panels, which the inner loop reads front to back: in the kernel here, ahead of time in `packs.py`.

A panel of B holds words `[k, columns]`, columns rounded up to whole vectors and filled with zeros; a tile of A holds
`[k, rows]`, or `[rows, k]` where rows are only made into words. The last word of an odd number of halves is filled up with 0.
"""

from __future__ import annotations

from llvmlite import ir

from rlx_cpu.native.build import I32
from rlx_cpu.native.simd import counting, index, offset
from rlx_cpu.native.words import Words

__all__ = ["copy_row", "pack_columns", "pack_panel", "pack_rows"]


def pack_panel(
    b: ir.IRBuilder,
    words: Words,
    source: ir.Value,
    packed: ir.Value,
    *,
    depth: int,
    vectors: int,
    strides: tuple[int, int],
    column: ir.Value,
    columns: int,
) -> None:
    """Copy `[depth, vectors · lanes]` of B into a panel.

    Args:
        source: The element at the panel's first column, first row.
        depth: Elements along k.
        strides: In bytes, along k and along n.
        column: The panel's first column.
        columns: Columns of B in all; those beyond become zeros.
    """
    simd, (by_k, by_n) = words.simd, strides
    width = vectors * words.nbytes
    starts = [b.add(column, index(j * simd.lanes)) for j in range(vectors)]
    whole = depth // words.per_word
    if by_n == words.stored.itemsize:
        is_full = columns % simd.lanes == 0
        inside = [None if is_full else simd.below(b, start, columns) for start in starts]
        for low, high, is_whole in ((0, whole, True), (whole, words.count(depth), False)):
            if low == high:
                continue
            with counting(b, low, high) as k:
                left, place = offset(b, source, (k, by_k * words.per_word)), offset(b, packed, (k, width))
                line = [
                    words.across(b, offset(b, left, j * words.stored.nbytes), by_k, inside[j], is_whole=is_whole)
                    for j in range(vectors)
                ]
                for j, value in enumerate(line):
                    simd.store(b, value, offset(b, place, j * simd.nbytes), align=simd.nbytes)
        return
    for j, start in enumerate(starts):
        left = offset(b, source, j * simd.lanes * by_n)
        place = offset(b, packed, j * simd.nbytes)
        if by_k == words.stored.itemsize:
            pack_columns(b, words, left, place, depth=depth, stride=by_n, width=width, start=start, columns=columns)
        else:
            _gather_steps(b, words, left, place, (0, depth), strides, width, start, columns)


def pack_columns(
    b: ir.IRBuilder,
    words: Words,
    source: ir.Value,
    packed: ir.Value,
    *,
    depth: int,
    stride: int,
    width: int,
    start: ir.Value,
    columns: int,
) -> None:
    """One vector of columns of a B whose columns are contiguous: square blocks transposed in registers.

    Args:
        stride: Bytes from a column to the next.
        width: Bytes from a row of the panel to the next.
        start: The number of the first column; those from `columns` on become zeros.
    """
    simd, by_k = words.simd, words.stored.itemsize
    lanes, bound = simd.lanes, index(columns)
    whole = depth // words.per_word
    even = whole - whole % lanes
    is_full = b.icmp_signed("<=", b.add(start, index(lanes)), bound)
    last = b.sub(b.sub(bound, index(1)), start)
    with counting(b, 0, even, lanes) as k:
        rows = []
        for lane in range(lanes):
            # A column beyond the last is read as the last one, and zeroed below.
            nearest = b.select(b.icmp_signed("<", index(lane), last), index(lane), last)
            rows.append(words.along(b, offset(b, source, (nearest, stride), (k, by_k * words.per_word))))
        shown = b.or_(simd.splat(b, is_full), b.icmp_signed("<", simd.positions(b, start), simd.splat(b, bound)))
        for i, value in enumerate(simd.transposed(b, rows)):
            kept = b.select(shown, value, simd.zero)
            simd.store(b, kept, offset(b, packed, (b.add(k, index(i)), width)), align=simd.nbytes)
    _gather_steps(b, words, source, packed, (even * words.per_word, depth), (by_k, stride), width, start, columns)


def pack_rows(
    b: ir.IRBuilder,
    words: Words,
    source: ir.Value,
    packed: ir.Value,
    *,
    steps: int,
    rows: int,
    strides: tuple[int, int],
    is_whole: bool = True,
) -> None:
    """Copy `[rows, steps]` of A into a tile, `rows` words a step of k.

    Args:
        steps: In words.
        strides: In bytes, along m and along k.
        is_whole: Whether the words are.
    """
    by_m, by_k = strides
    width = rows * words.itemsize
    for k in range(steps):
        left, place = offset(b, source, k * by_k * words.per_word), offset(b, packed, k * width)
        if by_m == words.stored.itemsize:
            b.store(words.some(b, left, by_k, rows, is_whole=is_whole), place, align=words.itemsize)
        else:
            found = [words.scalar(b, offset(b, left, i * by_m), by_k, is_whole=is_whole) for i in range(rows)]
            for i, value in enumerate(found):
                b.store(value, offset(b, place, i * words.itemsize), align=words.itemsize)


def copy_row(
    b: ir.IRBuilder, words: Words, source: ir.Value, place: ir.Value, low: ir.Value, high: ir.Value, *, by_k: int
) -> None:
    """A row's elements from `low` to `high` as words in a row, starting at `place`; `low` is the first of a word.

    Args:
        source: The row's element 0.
        by_k: Bytes from an element to the next.
    """
    simd, per_word = words.simd, words.per_word
    whole = b.sdiv(b.sub(high, low), index(per_word))
    left = offset(b, source, (low, by_k))
    done: ir.Value = index(0)
    if by_k == words.stored.itemsize:
        done = b.and_(whole, index(-simd.lanes))
        with counting(b, 0, done, simd.lanes) as k:
            value = words.along(b, offset(b, left, (k, by_k * per_word)))
            simd.store(b, value, offset(b, place, (k, words.itemsize)))
    with counting(b, done, whole) as k:
        value = words.scalar(b, offset(b, left, (k, by_k * per_word)), by_k)
        b.store(value, offset(b, place, (k, words.itemsize)), align=words.itemsize)
    if per_word > 1:
        with b.if_then(b.icmp_signed("<", b.mul(whole, index(per_word)), b.sub(high, low))):
            value = words.scalar(b, offset(b, left, (whole, by_k * per_word)), by_k, is_whole=False)
            b.store(value, offset(b, place, (whole, words.itemsize)), align=words.itemsize)


def _gather_steps(
    b: ir.IRBuilder,
    words: Words,
    source: ir.Value,
    packed: ir.Value,
    steps: tuple[int, int],
    strides: tuple[int, int],
    width: int,
    start: ir.Value,
    columns: int,
) -> None:
    """Elements of k from one to another, gathered a vector a word; the first is the first of a word."""
    by_k = strides[0]
    low, whole, high = steps[0] // words.per_word, steps[1] // words.per_word, words.count(steps[1])
    for first, end, is_whole in ((low, whole, True), (whole, high, False)):
        if first == end:
            continue
        with counting(b, first, end) as k:
            left = offset(b, source, (k, by_k * words.per_word))
            value = _gather(b, words, left, strides, start, columns, is_whole=is_whole)
            words.simd.store(b, value, offset(b, packed, (k, width)), align=words.nbytes)


def _gather(
    b: ir.IRBuilder,
    words: Words,
    source: ir.Value,
    strides: tuple[int, int],
    start: ir.Value,
    columns: int,
    *,
    is_whole: bool,
) -> ir.Value:
    """One vector of words of columns apart; zeros from column `columns` on, which are not touched."""
    simd, (by_k, by_n), bound = words.simd, strides, index(columns)
    last = b.sub(b.sub(bound, index(1)), start)
    value: ir.Value = ir.Constant(simd.vector, ir.Undefined)
    for lane in range(simd.lanes):
        nearest = b.select(b.icmp_signed("<", index(lane), last), index(lane), last)
        found = words.scalar(b, offset(b, source, (nearest, by_n)), by_k, is_whole=is_whole)
        value = b.insert_element(value, found, ir.Constant(I32, lane))
    shown = b.icmp_signed("<", simd.positions(b, start), simd.splat(b, bound))
    return b.select(shown, value, simd.zero)
