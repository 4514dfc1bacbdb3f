"""The number next to another in some float dtype: one step of its bits, which grow with its size.

f16 and bf16 are f32 in registers, where a step of theirs is one of 2^13 or 2^16 steps. f16 begins to be subnormal where f32 does
not, and ends where f32 does not.
"""

from __future__ import annotations

import math

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.conversion import rounded_to
from rlx_core.codegen.scalars.table import Row
from rlx_core.ir.dtypes import FLOATS, DType, bf16, f16
from rlx_core.ir.op import Op
from rlx_core.ops.floating import NextOnGrid

STEPS = {f16: 1 << 13, bf16: 1 << 16}
"""Steps of f32 that are one of a narrow dtype's."""

F16_LARGEST, F16_NORMAL, F16_SMALLEST = 65504.0, 2.0**-14, 2.0**-24


def next_on_grid(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    assert isinstance(op, NextOnGrid), "registered for it"
    a, other = args
    nan, is_above = b.constant(a, math.nan), b.fcmp_ordered(">", other, a)
    value = rounded_to(b, op.grid, a) if op.grid.is_narrow else a
    result = neighbour(b, op.grid, value, is_above)
    result = b.select(b.fcmp_ordered("==", a, other), other, result)
    return b.select(b.fcmp_unordered("uno", a, other), nan, result)


def neighbour(b: Assembler[V], grid: DType, x: V, is_up: V) -> V:
    """The next number above x, or below it, in the dtype whose number x is; an infinity is next to itself."""
    size, pattern, zero = b.fabs(x), b.bits(x), b.constant(x, 0.0)
    is_away = b.xor(b.fcmp_ordered("<", x, zero), is_up)
    step = STEPS.get(grid, 1)
    moved = b.select(is_away, b.constant(pattern, step), b.constant(pattern, -step))
    result = b.from_bits(b.add(pattern, moved), x)
    smallest = b.from_bits(b.constant(pattern, step), x)
    infinity = b.constant(x, math.inf)
    is_infinite = b.fcmp_ordered("==", size, infinity)
    if grid is f16:
        smallest = b.constant(x, F16_SMALLEST)
        # Below the normal numbers, and down to their first, steps are equal.
        is_even = b.fcmp_ordered("<", size, b.constant(x, F16_NORMAL))
        is_first = b.and_(b.fcmp_ordered("==", size, b.constant(x, F16_NORMAL)), b.not_(is_away))
        even = b.fadd(size, b.select(is_away, smallest, b.fneg(smallest)))
        result = b.select(b.or_(is_even, is_first), b.copysign(even, x), result)
        is_beyond = b.fcmp_ordered(">", b.fabs(result), b.constant(x, F16_LARGEST))
        end = b.select(is_away, infinity, b.constant(x, F16_LARGEST))
        result = b.select(is_beyond, b.copysign(end, x), result)
    result = b.select(b.and_(is_infinite, is_away), x, result)
    from_zero = b.select(is_up, smallest, b.fneg(smallest))
    return b.select(b.fcmp_ordered("==", x, zero), from_zero, result)


ROWS: dict[type[Op], Row] = {NextOnGrid: Row(next_on_grid, FLOATS)}
