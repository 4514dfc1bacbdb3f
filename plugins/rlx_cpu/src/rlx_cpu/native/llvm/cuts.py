"""Cuts in generated code: where a piece known only at run time starts, and code for pieces of either size."""

from __future__ import annotations

from collections.abc import Iterator

from rlx_core.codegen.cuts import Cut
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import least, most
from rlx_cpu.native.llvm.simd import index, times
from rlx_cpu.native.llvm.sizes import sized


def start_of(b: ir.IRBuilder, cut: Cut, piece: ir.LlvmValue) -> ir.LlvmValue:
    """`cut.start` of a piece known only at run time."""
    if cut.lines == 1 or cut.many == cut.each:
        return start_in_line(b, cut, piece)
    before = times(b, b.sdiv(piece, sized(b, cut.each)), cut.length)
    return b.add(before, start_in_line(b, cut, _part_of(b, cut, piece)))


def start_in_line(b: ir.IRBuilder, cut: Cut, part: ir.LlvmValue) -> ir.LlvmValue:
    """Return the offset of a block in its line."""
    even = times(b, part, cut.size)
    if cut.many == cut.each:
        return even
    beyond = b.sub(part, sized(b, cut.many))
    return b.sub(even, most(b, beyond, index(0)))


def size_of(b: ir.IRBuilder, cut: Cut, piece: ir.LlvmValue, part: ir.LlvmValue | None = None) -> ir.LlvmValue:
    """`cut.size_of` a piece known only at run time; `part` as for `is_larger`."""
    if len(cut.sizes) == 1 and not cut.most:
        return index(cut.size)
    return b.select(is_larger(b, cut, piece, part), sized(b, cut.size), sized(b, cut.size - 1))


def is_larger(b: ir.IRBuilder, cut: Cut, piece: ir.LlvmValue, part: ir.LlvmValue | None = None) -> ir.LlvmValue:
    """Return whether a piece known only at run time is of the larger size.

    Args:
        part: Index of the block in its line, if available.
    """
    return b.icmp_signed("<", _part_of(b, cut, piece) if part is None else part, sized(b, cut.many))


def by_size(b: ir.IRBuilder, cut: Cut, piece: ir.LlvmValue, part: ir.LlvmValue | None = None) -> Iterator[int]:
    """Run the code built in the loop body for the blocks of each size in turn; a branch if there are two sizes or more.

    Args:
        part: As for `is_larger`.
    """
    if cut.most:
        yield from by_value(b, size_of(b, cut, piece, part), 1, cut.most)
        return
    if len(cut.sizes) == 1:
        yield cut.size
        return
    with b.if_else(is_larger(b, cut, piece, part)) as (larger, smaller):
        with larger:
            yield cut.size
        with smaller:
            yield cut.size - 1


def _part_of(b: ir.IRBuilder, cut: Cut, piece: ir.LlvmValue) -> ir.LlvmValue:
    """Return the index of a block in its line."""
    return piece if cut.lines == 1 else b.srem(piece, sized(b, cut.each))


def by_value(b: ir.IRBuilder, value: ir.LlvmValue, low: int, high: int) -> Iterator[int]:
    """A branch for each number from `low` to `high`, of which the value is one."""
    if low == high:
        yield low
        return
    middle = (low + high + 1) // 2
    with b.if_else(b.icmp_signed("<", value, index(middle))) as (below, above):
        with below:
            yield from by_value(b, value, low, middle - 1)
        with above:
            yield from by_value(b, value, middle, high)


def pieces_of(b: ir.IRBuilder, item: ir.LlvmValue, group: int, pieces: int) -> tuple[ir.LlvmValue, ir.LlvmValue]:
    """The range of pieces that an item of `group` pieces has."""
    low = times(b, item, group)
    high, end = b.add(low, sized(b, group)), sized(b, pieces)
    return low, least(b, high, end)
