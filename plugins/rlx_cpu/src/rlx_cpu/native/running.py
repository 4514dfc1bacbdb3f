"""The running reductions as rules on registers: what they carry, how an element changes it, and what is shown of it.

A rule is the same for one lane and for sixteen, so a running sum adds in the order of its axis whichever way lanes lie.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from attrs import frozen

from rlx_core.ir.dtypes import DType
from rlx_core.ir.op import Op
from rlx_core.ops.activation import exp, log
from rlx_core.ops.cumulative import CumLogSumExp, Cummax, Cummin, Cumprod, Cumsum, LinearRecurrence
from rlx_cpu.native import functions, ir, scalar
from rlx_cpu.native.build import constant, intrinsic, splat, width

__all__ = ["RULES", "Carry", "Rule"]

Carry: TypeAlias = tuple[ir.Value, ...]
Elements: TypeAlias = tuple[ir.Value, ...]


@frozen
class Rule:
    """One running reduction.

    Attributes:
        start: What is carried before the first element, for a dtype and for an exclusive reduction or not.
        step: What is carried after the elements at one place; the last argument says (as i1) whether it is the first
            place, and is absent where it cannot be.
        show: The result from what is carried.
    """

    start: Callable[[DType, bool], tuple[float, ...]]
    step: Callable[[ir.IRBuilder, DType, Carry, Elements, ir.Value | None], Carry]
    show: Callable[[ir.IRBuilder, DType, Carry], ir.Value]


def carried(b: ir.IRBuilder, dtype: DType, carry: Carry) -> ir.Value:
    """What is carried is what is shown."""
    return carry[0]


def add(b: ir.IRBuilder, dtype: DType, carry: Carry, x: Elements, is_first: ir.Value | None) -> Carry:
    return ((b.fadd if dtype.is_float else b.add)(carry[0], x[0]),)


def multiply(b: ir.IRBuilder, dtype: DType, carry: Carry, x: Elements, is_first: ir.Value | None) -> Carry:
    return ((b.fmul if dtype.is_float else b.mul)(carry[0], x[0]),)


def larger(b: ir.IRBuilder, dtype: DType, carry: Carry, x: Elements, is_first: ir.Value | None) -> Carry:
    return (scalar.larger(b, dtype, carry[0], x[0]),)


def smaller(b: ir.IRBuilder, dtype: DType, carry: Carry, x: Elements, is_first: ir.Value | None) -> Carry:
    return (scalar.smaller(b, dtype, carry[0], x[0]),)


def recur(b: ir.IRBuilder, dtype: DType, carry: Carry, x: Elements, is_first: ir.Value | None) -> Carry:
    """h = a·h + b; at the first place b alone, because a is not read there."""
    (product,) = multiply(b, dtype, carry, x[:1], None)
    (after,) = add(b, dtype, (product,), x[1:], None)
    if is_first is None:
        return (after,)
    return (b.select(splat(b, is_first, width(after)), x[1], after),)


def accumulate(b: ir.IRBuilder, dtype: DType, carry: Carry, x: Elements, is_first: ir.Value | None) -> Carry:
    """The maximum so far, and the sum of exponentials relative to it (to 0 where it is infinite)."""
    peak, total = carry
    after = scalar.larger(b, dtype, peak, x[0])
    base, nothing = finite(b, after), constant(peak.type, -np.inf)
    decay = functions.call(b, exp.op, dtype, (b.fsub(peak, base),))
    decay = b.select(b.fcmp_ordered("==", peak, nothing), constant(peak.type, 0.0), decay)
    own = functions.call(b, exp.op, dtype, (b.fsub(x[0], base),))
    return after, b.fadd(b.fmul(total, decay), own)


def logarithm(b: ir.IRBuilder, dtype: DType, carry: Carry) -> ir.Value:
    peak, total = carry
    shown = b.fadd(functions.call(b, log.op, dtype, (total,)), finite(b, peak))
    is_nothing = b.fcmp_ordered("==", total, constant(total.type, 0.0))
    return b.select(is_nothing, constant(total.type, -np.inf), shown)


def finite(b: ir.IRBuilder, peak: ir.Value) -> ir.Value:
    """The maximum, or 0 where it is infinite: the difference of two infinities is no number."""
    is_infinite = b.fcmp_ordered("==", intrinsic(b, "llvm.fabs", peak), constant(peak.type, np.inf))
    return b.select(is_infinite, constant(peak.type, 0.0), peak)


def _lowest(dtype: DType, is_exclusive: bool) -> tuple[float, ...]:
    return (-np.inf if dtype.is_float else int(np.iinfo(dtype.numpy).min),)


def _highest(dtype: DType, is_exclusive: bool) -> tuple[float, ...]:
    return (np.inf if dtype.is_float else int(np.iinfo(dtype.numpy).max),)


RULES: dict[type[Op], Rule] = {
    # -0 + x is x for every x; but what an exclusive sum shows first is 0.
    Cumsum: Rule(lambda dtype, is_exclusive: (0.0 if is_exclusive or not dtype.is_float else -0.0,), add, carried),
    Cumprod: Rule(lambda dtype, is_exclusive: (1,), multiply, carried),
    Cummax: Rule(_lowest, larger, carried),
    Cummin: Rule(_highest, smaller, carried),
    LinearRecurrence: Rule(lambda dtype, is_exclusive: (0,), recur, carried),
    CumLogSumExp: Rule(lambda dtype, is_exclusive: (-np.inf, 0.0), accumulate, logarithm),
}
