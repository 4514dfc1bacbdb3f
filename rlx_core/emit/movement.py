"""Rows for ops that only move elements and are no single loop kernel: a copy for each operand, into its part of the result."""

from __future__ import annotations

from collections.abc import Iterable

from rlx_core.codegen import Kernel
from rlx_core.codegen.layout import simplified
from rlx_core.codegen.loops import Buffer, Const, Load, Scalar, Store
from rlx_core.codegen.places import Layout, Place
from rlx_core.emit.emitters import Emitted, Language
from rlx_core.emit.table import DeviceTable
from rlx_core.ir.graph import Node
from rlx_core.ir.strides import Strides, dense_strides
from rlx_core.ir.types import normalize_axes
from rlx_core.ops.movement import Concat, Flip, Pad
from rlx_core.ops.selection import OptimizationBarrier
from rlx_core.ops.structural import Reshape
from rlx_core.pipeline.select.kernels import Condition, condition

__all__ = ["movement_rows"]


@condition("a constant around, and nothing cropped")
def is_constant(node: Node) -> bool:
    op = node.op
    assert isinstance(op, Pad), "registered for it alone"
    return op.mode == "constant" and all(isinstance(n, int) and n >= 0 for n in (*op.lo, *op.hi))


def movement_rows(table: DeviceTable, language: Language) -> None:
    """Add the rows in a language."""

    def lacking(node: Node) -> str | None:
        return language.lacking(node.type.dtype)

    is_there = Condition("a dtype that the device has", lambda node: lacking(node) is None, lacking)

    def all_lacking(node: Node) -> str | None:
        return next((said for t in node.types if (said := language.lacking(t.dtype)) is not None), None)

    are_there = Condition("dtypes that the device has", lambda node: all_lacking(node) is None, all_lacking)

    @table.emitter(Concat, when=is_there, name="copies")
    def copies(node: Node, layout: Layout) -> Emitted:
        """A copy for each operand."""
        op, (result,) = node.op, layout.results
        assert isinstance(op, Concat), "registered for it alone"
        axis = op.axis % result.type.rank
        found, start = [], 0
        for number, operand in enumerate(layout.operands):
            assert operand is not None, "operands of a concatenation are required"
            if operand.type.size:
                offset = start * result.strides[axis]
                found.append(language.loop(copy(layout, number, operand, result.strides, offset)))
            start += operand.type.static_shape[axis]
        return joined(found)

    @table.emitter(Flip, when=is_there, name="copy_backwards")
    def copy_backwards(node: Node, layout: Layout) -> Emitted:
        """Read forwards and stored backwards."""
        op, (result,), source = node.op, layout.results, layout.operands[0]
        assert isinstance(op, Flip), "registered for it alone"
        assert source is not None, "the operand is required"
        axes = normalize_axes(op.axes, result.type.rank)
        extents = result.type.static_shape
        strides = tuple(-s if a in axes else s for a, s in enumerate(result.strides))
        offset = sum((extents[a] - 1) * result.strides[a] for a in axes)
        return language.loop(copy(layout, 0, source, strides, offset))

    @table.emitter(Pad, when=(is_there, is_constant), name="fill_and_copy")
    def fill_and_copy(node: Node, layout: Layout) -> Emitted:
        """The padding everywhere, then the elements in their places."""
        op, (result,), source = node.op, layout.results, layout.operands[0]
        assert isinstance(op, Pad), "registered for it alone"
        assert source is not None, "the operand is required"
        gaps = op.gaps(result.type.rank)
        strides = tuple(s * (1 + gap) for s, gap in zip(result.strides, gaps, strict=True))
        offset = sum(low.__index__() * s for low, s in zip(op.lo, result.strides, strict=True))
        parts = [language.loop(padding(layout))]
        if source.type.size:
            parts.append(language.loop(copy(layout, 0, source, strides, offset)))
        return joined(parts)

    @table.emitter(OptimizationBarrier, when=are_there, name="copies_of_all")
    def copies_of_all(node: Node, layout: Layout) -> Emitted:
        """A copy for each operand, into the result of its number."""
        found = []
        for number, (operand, result) in enumerate(zip(layout.operands, layout.results, strict=True)):
            assert operand is not None, "operands of a barrier are required"
            if operand.type.size:
                found.append(language.loop(copy(layout, number, operand, result.strides, 0, result=number)))
        return joined(found)

    @table.emitter(Reshape, when=is_there, name="copy_in_order", priority=-1)
    def copy_in_order(node: Node, layout: Layout) -> Emitted:
        """Elements in their order, for dims that are no loop kernel's and for sizes that are not known yet."""
        source = layout.operands[0]
        assert source is not None, "the operand is required"
        return language.loop(copy(layout, 0, source, dense_strides(source.type), 0))


def copy(layout: Layout, number: int, source: Place, strides: Strides, offset: int, result: int = 0) -> Kernel:
    """The kernel that stores each element of an operand at strides of a result."""
    shape, dtype = source.type.static_shape, source.type.dtype
    load, store = Load(number, dtype, source.strides), Store(len(layout.operands) + result, 0, strides, offset)
    return simplified(Kernel("copy", shape, len(shape), buffers_of(layout), (load,), (store,)))


def padding(layout: Layout) -> Kernel:
    """The kernel that fills the result with the second operand, or with zeros."""
    (result,), value = layout.results, layout.operands[1] if len(layout.operands) > 1 else None
    shape, dtype = result.type.static_shape, result.type.dtype
    number = None if value is None else value.number
    element: Scalar = (
        Load(1, dtype, (0,) * len(shape)) if value is not None and number is None else Const(dtype, number or 0)
    )
    store = Store(len(layout.operands), 0, result.strides)
    return simplified(Kernel("padding", shape, len(shape), buffers_of(layout), (element,), (store,)))


def buffers_of(layout: Layout) -> tuple[Buffer, ...]:
    """Operands, absent ones too, then results."""
    dtype = layout.results[0].type.dtype
    operands = (
        Buffer(f"x{i}", m.type.dtype, alignment=m.alignment) if m else Buffer(f"x{i}", dtype)
        for i, m in enumerate(layout.operands)
    )
    return (*operands, *(Buffer(f"y{i}", m.type.dtype, True, m.alignment) for i, m in enumerate(layout.results)))


def joined(parts: Iterable[Emitted]) -> Emitted:
    """Several kernels as one step."""
    every = list(parts)
    functions = {f.name: f for each in every for f in each.functions}
    return Emitted(tuple(functions.values()), tuple(call for each in every for call in each.calls))
