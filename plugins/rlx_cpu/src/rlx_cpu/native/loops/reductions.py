"""Reductions in registers: accumulators, the element that they start from, and the fixed tree that ends them."""

from __future__ import annotations

from typing import Any

from rlx_core.codegen.loops import Reduce
from rlx_core.codegen.scalars.arithmetic import of_two
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32, shuffled
from rlx_cpu.native.llvm.ir.numbers import constant, width

UNROLL = 4
"""Independent accumulators of a reduction along lanes: additions take 3 to 4 cycles and two can start in each."""


def identity(reduce: Reduce, type: Any) -> ir.LlvmConstant:
    """Return the identity element of a reduction."""
    dtype = reduce.dtype
    if reduce.combine in ("sum", "prod"):
        return constant(type, int(reduce.combine == "prod"))
    is_max = reduce.combine == "max"
    if dtype.is_float:
        return constant(type, float("-inf") if is_max else float("inf"))
    if dtype.kind == "bool":
        return constant(type, not is_max)
    bits = 8 * dtype.itemsize
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.kind == "int" else (0, (1 << bits) - 1)
    return constant(type, low if is_max else high)


def combined(b: ir.IRBuilder, reduce: Reduce, x: ir.LlvmValue, y: ir.LlvmValue) -> ir.LlvmValue:
    """Two partial results of a reduction as one."""
    return of_two(b, reduce.combine, reduce.dtype, x, y)


def over_lanes(b: ir.IRBuilder, reduce: Reduce, total: ir.LlvmValue) -> ir.LlvmValue:
    """All lanes combined into one, halves on halves."""
    lanes = width(total)
    while lanes > 1:
        half = lanes // 2
        undefined = ir.LlvmConstant(total.type, ir.Undefined)
        low, high = (shuffled(b, total, undefined, range(start, start + half)) for start in (0, half))
        if half == 1:
            low, high = (b.extract_element(x, ir.LlvmConstant(I32, 0)) for x in (low, high))
        total = combined(b, reduce, low, high)
        lanes = half
    return total
