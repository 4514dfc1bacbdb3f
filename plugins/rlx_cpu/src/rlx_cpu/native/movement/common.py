"""Block copies by one library function: boxes whose rows are copies or broadcasts, with their layouts as run-time arguments.

Paddings in front of convolutions are many such boxes, and models have dozens of them: a specialised function takes longer to
compile than a padding to run. Boxes with other rows, and large results with nontemporal stores, are specialised.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Final

from rlx_core.codegen.movement.boxes import Axis, Box
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, POINTER, VOID, address, splat
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import counting, index, share
from rlx_cpu.native.movement.mover import is_transposed
from rlx_cpu.native.movement.mover_rows import Rows

OUTER: Final = 2
"""Axes around a row; a box of fewer has some of one step."""

LONG_ROW: Final = 256
"""Bytes of a row from which it takes no longer to call the C library's copy than to have code for the length."""

_HEAD: Final = ("to", "to_offset", "source", "source_offset", "rows", "count", "is_copied")
_AXIS: Final = ("count", "to", "source")
_WORDS: Final = len(_HEAD) + OUTER * len(_AXIS)


@frozen(eq=False)
class CommonMove:
    """Boxes as the argument words of the library function.

    Attributes:
        rows: Total number of rows.
    """

    isa: Isa
    itemsize: int
    words: tuple[int, ...]
    rows: int

    def call(self, b: ir.IRBuilder, name: str, buffers: ir.LlvmValue, part: ir.LlvmValue, parts: ir.LlvmValue) -> None:
        """Move a part's share of every box; `name` is the name of the calling function."""
        function = name_of(self.isa, self.itemsize)
        borrowed = b.module.borrowed(function, common_of(self.isa, b.module.triple, self.itemsize))
        table = b.module.data(f"{name}.boxes", struct.pack(f"<{len(self.words)}q", *self.words))
        b.call(borrowed, [buffers, part, parts, table, index(len(self.words) // _WORDS)])


def common_move(isa: Isa, boxes: Sequence[tuple[Box, int]], operands: int) -> CommonMove | None:
    """Return boxes, with the sizes of their elements, as words; `None` if some of them need specialised code.

    Args:
        operands: Number of addresses that precede those of the results.
    """
    sizes = {itemsize for _, itemsize in boxes}
    if len(sizes) != 1 or not all(_is_plain(box, itemsize) for box, itemsize in boxes):
        return None
    words: list[int] = []
    for box, itemsize in boxes:
        assert box.operand is not None, "zeros are not plain"
        *outer, last = box.axes
        axes = (*(Axis(1, 0, 0) for _ in range(OUTER - len(outer))), *outer)
        words += [8 * (operands + box.result), box.to, 8 * box.operand, box.start]
        words += [prod(axis.count for axis in axes), last.count, int(last.source == itemsize)]
        words += [number for axis in axes for number in (axis.count, axis.to, axis.source)]
    return CommonMove(isa, sizes.pop(), tuple(words), sum(words[_HEAD.index("rows") :: _WORDS]))


def _is_plain(box: Box, itemsize: int) -> bool:
    *outer, last = box.axes
    if box.operand is None or last.to != itemsize or len(outer) > OUTER or is_transposed(box.axes, itemsize):
        return False
    return last.source == 0 or (last.source == itemsize and last.count * itemsize >= LONG_ROW)


def name_of(isa: Isa, itemsize: int) -> str:
    """Return the name of the library function for elements of one size."""
    return f"rlx.move.{isa.vector_bytes}.{itemsize}"


@cache
def common_of(isa: Isa, triple: str, itemsize: int) -> ir.Module:
    """The module of the function for elements of one size."""
    module = ir.Module("move", triple)
    signature = ir.FunctionType(VOID, [POINTER, I64, I64, POINTER, I64])
    b = ir.new_function(module, signature, name_of(isa, itemsize))
    buffers, part, parts, table, boxes = b.function.args
    with counting(b, index(0), boxes) as number:
        words = b.moved(table, b.mul(number, index(8 * _WORDS)))
        head = dict(zip(_HEAD, (_word(b, words, i) for i in range(len(_HEAD))), strict=True))
        to, source = (
            b.moved(b.load(b.moved(buffers, head[side]), typ=POINTER, align=8), head[f"{side}_offset"])
            for side in ("to", "source")
        )
        axes = [[_word(b, words, len(_HEAD) + len(_AXIS) * i + k) for k in range(len(_AXIS))] for i in range(OUTER)]
        with counting(b, *share(b, head["rows"], part, parts)) as row:
            place, read, remaining = to, source, row
            for i, (count, to_step, source_step) in reversed(list(enumerate(axes))):
                position = b.urem(remaining, count) if i else remaining
                place, read = b.moved(place, b.mul(position, to_step)), b.moved(read, b.mul(position, source_step))
                remaining = b.udiv(remaining, count) if i else remaining
            _move_row(b, Rows(b, isa, itemsize), place, read, head["count"], head["is_copied"])
    b.ret_void()
    return module


def _word(b: ir.IRBuilder, words: ir.LlvmValue, number: int) -> ir.LlvmValue:
    return b.load(address(b, words, 8 * number), typ=I64, align=8)


def _move_row(
    b: ir.IRBuilder, rows: Rows, to: ir.LlvmValue, source: ir.LlvmValue, count: ir.LlvmValue, is_copied: ir.LlvmValue
) -> None:
    """Copy a row, or broadcast one element: full vectors, then the remainder."""
    with b.if_else(b.icmp_signed("!=", is_copied, index(0))) as (copied, repeated):
        with copied:
            rows.whole(to, source, count)
        with repeated:
            value = b.load(source, typ=rows.element, align=rows.alignment)
            vector, full_count = splat(b, value, rows.lanes), b.and_(count, index(-rows.lanes))
            with counting(b, index(0), full_count, rows.lanes) as position:
                b.store(vector, b.moved(to, b.mul(position, index(rows.itemsize))), align=rows.alignment)
            with counting(b, full_count, count) as position:
                b.store(value, b.moved(to, b.mul(position, index(rows.itemsize))), align=rows.alignment)
