"""Movement as loop kernels: every box of a result is a copy of uninterpreted bits."""

from __future__ import annotations

from collections.abc import Iterator

from rlx_core.codegen.loops import Buffer, Const, Kernel, Load, Scalar, Store
from rlx_core.codegen.movement.boxes import Box, simplified
from rlx_core.codegen.movement.tilings import boxes_of
from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.dtypes import DType, i8, i16, i32, i64
from rlx_core.ir.op import Op
from rlx_core.ir.strides import WIDEST

_WORDS = {1: i8, 2: i16, 4: i32, 8: i64, 16: i64}
"""Elements by their size; those of 16 bytes are two words."""


def kernels_of_movement(op: Op, layout: Layout) -> tuple[Kernel, ...]:
    """The kernels that write the results of an op that has boxes, in any order; buffers are all operands, then all results."""
    return tuple(_kernels(boxes_of(op, layout), layout))


def _kernels(boxes: list[Box], layout: Layout) -> Iterator[Kernel]:
    operands = len(layout.operands)
    for box in boxes:
        result = layout.results[box.result]
        size = result.type.dtype.itemsize
        word = _WORDS[size]
        axes = [(a.count, a.to, a.source) for a in simplified(box, size).axes]
        if size > word.itemsize:
            axes.append((size // word.itemsize, word.itemsize, word.itemsize))
        extents, to, source = (tuple(column) for column in zip(*axes, strict=True))
        place = None if box.operand is None else layout.operands[box.operand]
        value: Scalar
        if place is None:
            value = Const(word, 0)
        elif place.literal is not None and size == word.itemsize:
            value = Const(word, int.from_bytes(place.literal, "little", signed=True))
        else:
            assert box.operand is not None, "what is read is an operand"
            value = Load(box.operand, word, source, box.start)
        buffers = (
            *(
                Buffer(f"x{i}", _word_of(p), alignment=p.alignment if p else WIDEST)
                for i, p in enumerate(layout.operands)
            ),
            *(Buffer(f"y{i}", _word_of(p), i == box.result, p.alignment) for i, p in enumerate(layout.results)),
        )
        store = Store(operands + box.result, 0, to, box.to)
        yield Kernel("move", extents, len(extents), buffers, (value,), (store,))


def _word_of(place: Place | None) -> DType:
    return i32 if place is None else _WORDS[place.type.dtype.itemsize]
