"""Tiles of rows one after the other, and where each lies, counted on from the one before: a division would take as long as some
tiles do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rlx_core.codegen.cuts import Cut
from rlx_core.ir.dims import Dim
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import Variable
from rlx_cpu.native.llvm.cuts import start_in_line
from rlx_cpu.native.llvm.simd import counting, index, times
from rlx_cpu.native.llvm.sizes import sized


@frozen(eq=False)
class RowTile:
    """A tile of rows.

    Attributes:
        number: Index among all tiles; `part` is the index in its line.
        row: Index of its first row among all rows; `within` is the index in its line.
        line: Its line; `None` if all rows are one line.
        turn: Number of tiles since the first, modulo the number that share the prefetching; `None` without sharing.
    """

    number: ir.LlvmValue
    part: ir.LlvmValue
    row: ir.LlvmValue
    within: ir.LlvmValue
    line: ir.LlvmValue | None
    turn: ir.LlvmValue | None


@contextmanager
def row_tiles(b: ir.IRBuilder, cut: Cut, tiles: tuple[ir.LlvmValue, ir.LlvmValue], sharers: Dim) -> Iterator[RowTile]:
    """A loop over a range of the tiles of a partition; the code built inside is its body.

    Args:
        sharers: Number of tiles that share the prefetching; 0 for none.
    """
    turns = None if sharers == 0 else Variable.of(b, index(0))
    parts = lines = None
    if cut.lines != 1:
        each = sized(b, cut.each)
        parts, lines = Variable.of(b, b.srem(tiles[0], each)), Variable.of(b, b.sdiv(tiles[0], each))
    with counting(b, *tiles) as tile:
        turn = None if turns is None else turns.value(b)
        if parts is None or lines is None:
            start = start_in_line(b, cut, tile)
            yield RowTile(tile, tile, start, start, None, turn)
        else:
            part, line = parts.value(b), lines.value(b)
            within = start_in_line(b, cut, part)
            yield RowTile(tile, part, b.add(times(b, line, cut.length), within), within, line, turn)
            is_next = _increment(b, parts, part, sized(b, cut.each))
            lines.set(b, b.select(is_next, b.add(line, index(1)), line))
        if turns is not None and turn is not None:
            _increment(b, turns, turn, sized(b, sharers))


def _increment(b: ir.IRBuilder, counter: Variable, value: ir.LlvmValue, end: ir.LlvmValue) -> ir.LlvmValue:
    """Set a counter to `value + 1`, modulo `end`; return whether it wrapped to 0."""
    following = b.add(value, index(1))
    is_over = b.icmp_signed("==", following, end)
    counter.set(b, b.select(is_over, index(0), following))
    return is_over
