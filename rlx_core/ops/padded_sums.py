"""Sums of padded values, as they occur in the derivatives of slices.

The cotangent of a slice is its cotangent padded with zeros. If slices of one value are disjoint, no addition is needed: the
concatenation of their cotangents is the sum, so that splitting a value and using its parts costs one concatenation in the
backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Value
from rlx_core.ir.types import Shape
from rlx_core.ops.arithmetic import add
from rlx_core.ops.creation import zeros
from rlx_core.ops.movement import Pad, concat
from rlx_core.system.records import frozen


@frozen(eq=False)
class Slab:
    """A value between zeros along one axis: it fills `[start, end)` of `size` cells."""

    source: Value
    part: Value
    axis: int
    start: int
    end: int


def slab_of(value: Value) -> Slab | None:
    """Return `value` as a slab, if it is one: zeros before and after, along one axis, of known widths."""
    node = value.node
    if not isinstance(node.op, Pad) or node.op.mode != "constant" or len(node.operands) != 1 or node.op.between:
        return None
    part, lo, hi = node.operands[0], node.op.lo, node.op.hi
    assert part is not None, "a pad has an operand"
    axes = [i for i, widths in enumerate(zip(lo, hi, strict=True)) if widths != (0, 0)]
    if len(axes) != 1:
        return None
    (axis,) = axes
    start, length, after = lo[axis], part.shape[axis], hi[axis]
    if not (isinstance(start, int) and isinstance(length, int) and isinstance(after, int)) or min(start, after) < 0:
        return None
    return Slab(value, part, axis, start, start + length)


def is_padded(value: Value) -> bool:
    """Return whether `value` is another one padded with zeros, so that a sum of such values may be a concatenation."""
    return slab_of(value) is not None


def sum_of_padded(values: Sequence[Value]) -> Value:
    """Return the sum of padded values of one type; disjoint ones are concatenated."""
    slabs = [s for s in map(slab_of, values) if s is not None]
    assert len(slabs) == len(values), "every value is padded"
    rows: list[list[Slab]] = []
    for slab in slabs:
        row = next((r for r in rows if all(is_apart(slab, other) for other in r)), None)
        if row is None:
            rows.append([slab])
        else:
            row.append(slab)
    return reduce(add, (side_by_side(row) for row in rows))


def is_apart(a: Slab, b: Slab) -> bool:
    return a.axis == b.axis and (a.end <= b.start or b.end <= a.start)


def side_by_side(slabs: Sequence[Slab]) -> Value:
    """Concatenate disjoint slabs to one value, with zeros between them."""
    if len(slabs) == 1:
        return slabs[0].source
    source, axis = slabs[0].source, slabs[0].axis
    parts: list[Value] = []
    filled = 0
    for slab in sorted(slabs, key=lambda s: s.start):
        if slab.start > filled:
            parts.append(gap(source.shape, source.dtype, axis, slab.start - filled))
        parts.append(slab.part)
        filled = slab.end
    size = source.shape[axis].__index__()
    if filled < size:
        parts.append(gap(source.shape, source.dtype, axis, size - filled))
    joined: Value = concat(parts, axis=axis)
    return joined


def gap(shape: Shape, dtype: DType, axis: int, length: int) -> Value:
    result: Value = zeros((*shape[:axis], length, *shape[axis + 1 :]), dtype)
    return result
