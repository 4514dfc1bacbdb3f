"""The number next to another in some float dtype: one step of its bits, which grow with its size.

f16 and bf16 are f32 in registers, where a step of theirs is one of 2^13 or 2^16 steps. f16 begins to be subnormal where f32 does
not, and ends where f32 does not.
"""

from __future__ import annotations

import math

from rlx_core.ir.dtypes import FLOATS, DType, bf16, f16
from rlx_core.ir.op import Op
from rlx_core.ops.floating import NextOnGrid
from rlx_cpu.native import ir, narrow
from rlx_cpu.native.build import constant, integer_like
from rlx_cpu.native.floats import absolute, bits, with_sign
from rlx_cpu.native.scalar import code

__all__: list[str] = []

STEPS = {f16: 1 << 13, bf16: 1 << 16}
"""Steps of f32 that are one of a narrow dtype's."""

F16_LARGEST, F16_NORMAL, F16_SMALLEST = 65504.0, 2.0**-14, 2.0**-24


@code(NextOnGrid, dtypes=FLOATS)
def next_on_grid(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    assert isinstance(op, NextOnGrid), "registered for it"
    a, other = args
    nan, is_above = constant(a.type, math.nan), b.fcmp_ordered(">", other, a)
    held = narrow.rounded_to(b, op.grid, a) if op.grid.is_narrow else a
    found = neighbour(b, op.grid, held, is_above)
    found = b.select(b.fcmp_ordered("==", a, other), other, found)
    return b.select(b.fcmp_unordered("uno", a, other), nan, found)


def neighbour(b: ir.IRBuilder, grid: DType, x: ir.Value, is_up: ir.Value) -> ir.Value:
    """The next number above x, or below it, in the dtype whose number x is; an infinity is next to itself."""
    size, whole, zero = absolute(b, x), integer_like(x.type), constant(x.type, 0.0)
    is_away = b.xor(b.fcmp_ordered("<", x, zero), is_up)
    step = STEPS.get(grid, 1)
    moved = b.select(is_away, constant(whole, step), constant(whole, -step))
    found = b.bitcast(b.add(bits(b, x), moved), x.type)
    smallest = b.bitcast(constant(whole, step), x.type)
    infinity = constant(x.type, math.inf)
    is_infinite = b.fcmp_ordered("==", size, infinity)
    if grid is f16:
        smallest = constant(x.type, F16_SMALLEST)
        # Below the normal numbers, and down to their first, steps are equal.
        is_even = b.fcmp_ordered("<", size, constant(x.type, F16_NORMAL))
        is_first = b.and_(b.fcmp_ordered("==", size, constant(x.type, F16_NORMAL)), b.not_(is_away))
        even = b.fadd(size, b.select(is_away, smallest, b.fneg(smallest)))
        found = b.select(b.or_(is_even, is_first), with_sign(b, even, x), found)
        is_beyond = b.fcmp_ordered(">", absolute(b, found), constant(x.type, F16_LARGEST))
        end = b.select(is_away, infinity, constant(x.type, F16_LARGEST))
        found = b.select(is_beyond, with_sign(b, end, x), found)
    found = b.select(b.and_(is_infinite, is_away), x, found)
    from_zero = b.select(is_up, smallest, b.fneg(smallest))
    return b.select(b.fcmp_ordered("==", x, zero), from_zero, found)
