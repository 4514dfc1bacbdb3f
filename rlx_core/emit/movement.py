"""Rows for ops that only move elements and are no single loop kernel: a copy or a fill for each box of the results."""

from __future__ import annotations

from rlx_core.codegen.loops import Buffer
from rlx_core.codegen.movement.kernels import kernels_of_movement
from rlx_core.codegen.places import Layout
from rlx_core.emit.emitters import Emitted, Language
from rlx_core.emit.table import DeviceTable
from rlx_core.ir.graph import Node
from rlx_core.ops.movement import Concat, Flip, Pad
from rlx_core.ops.selection import OptimizationBarrier
from rlx_core.ops.structural import Reshape
from rlx_core.pipeline.kernels import Condition, condition


@condition("widths that are numbers")
def has_widths(node: Node) -> bool:
    op = node.op
    assert isinstance(op, Pad), "registered for it alone"
    return all(isinstance(n, int) for n in (*op.lo, *op.hi))


def movement_rows(table: DeviceTable, language: Language) -> None:
    """Add the rows in a language."""

    def lacking(node: Node) -> str | None:
        # Bits are moved and not read, so both parts of a complex number are one word.
        dtypes = (t.dtype.component if t.dtype.is_complex else t.dtype for t in node.types)
        return next((reason for dtype in dtypes if (reason := language.lacking(dtype)) is not None), None)

    are_there = Condition("dtypes that the device has", lambda node: lacking(node) is None, lacking)

    def copies(node: Node, layout: Layout) -> Emitted:
        """A copy, or a fill, for each box of the results."""
        return Emitted.joined(language.loop(kernel) for kernel in kernels_of_movement(node.op, layout))

    table.emitter(Concat, Flip, OptimizationBarrier, when=are_there, name="copies")(copies)
    table.emitter(Pad, when=(are_there, has_widths), completes_parts=True, name="copies_between")(copies)
    # In their order, for dims that are no loop kernel's and for sizes that are not known yet.
    table.emitter(Reshape, when=are_there, name="copy_in_order", priority=-1)(copies)


def buffers_of(layout: Layout) -> tuple[Buffer, ...]:
    """Operands, absent ones too, then results."""
    dtype = layout.results[0].type.dtype
    operands = (
        Buffer(f"x{i}", m.type.dtype, alignment=m.alignment) if m else Buffer(f"x{i}", dtype)
        for i, m in enumerate(layout.operands)
    )
    return (*operands, *(Buffer(f"y{i}", m.type.dtype, True, m.alignment) for i, m in enumerate(layout.results)))
