"""Quotients with remainders, powers and shifts: the ops' guarantees where machines trap, wrap or disagree.

An integer divided by 0 gives 0 and the smallest one divided by -1 wraps, so divisors are made safe before they are used: the
instruction would end the process. Masked lanes contain zeros and take the same path.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.table import Row
from rlx_core.ir.dtypes import FLOATS, INTEGERS, DType
from rlx_core.ir.op import Op
from rlx_core.ops import arithmetic, bitwise

_REAL = (*INTEGERS, *FLOATS)


# ---------------------------------------------------------------------------------------- integers


def whole_quotient(b: Assembler[V], dtype: DType, x: V, y: V) -> tuple[V, V]:
    """(⌊x/y⌋, x - y⌊x/y⌋) of integers, both 0 where y is 0."""
    zero, one = b.constant(x, 0), b.constant(x, 1)
    is_zero = b.icmp_unsigned("==", y, zero)
    if dtype.kind == "uint":
        safe = b.select(is_zero, one, y)
        return b.select(is_zero, zero, b.udiv(x, safe)), b.select(is_zero, zero, b.urem(x, safe))
    is_minus_one = b.icmp_signed("==", y, b.constant(y, -1))
    safe = b.select(b.or_(is_zero, is_minus_one), one, y)
    quotient = b.sdiv(x, safe)
    remainder = b.sub(x, b.mul(quotient, safe))
    is_off = b.and_(b.icmp_signed("!=", remainder, zero), b.icmp_signed("<", b.xor(remainder, safe), zero))
    quotient = b.select(is_off, b.sub(quotient, one), quotient)
    remainder = b.select(is_off, b.add(remainder, safe), remainder)
    quotient = b.select(is_minus_one, b.neg(x), quotient)
    return b.select(is_zero, zero, quotient), b.select(is_zero, zero, remainder)


def whole_power(b: Assembler[V], dtype: DType, x: V, y: V) -> V:
    """x^y modulo 2^bits by repeated squaring; a negative exponent gives the exact value truncated toward zero."""
    return b.invoke(f"pow.{dtype}", partial(_squarings, dtype=dtype), (x, y), is_inline=False)


def _squarings(b: Assembler[V], x: V, y: V, dtype: DType) -> V:
    """A loop over the bits of the largest exponent."""
    zero, one, minus_one = (b.constant(x, n) for n in (0, 1, -1))
    start, is_negative = y, None
    if dtype.kind == "int":
        is_negative = b.icmp_signed("<", y, zero)
        start = b.select(is_negative, zero, y)

    def goes_on(state: Sequence[V]) -> V:
        return b.icmp_unsigned("!=", state[2], zero)

    def body(state: Sequence[V]) -> Sequence[V]:
        total, base, left = state
        is_odd = b.icmp_unsigned("!=", b.and_(left, one), zero)
        return b.select(is_odd, b.mul(total, base), total), b.mul(base, base), b.lshr(left, one)

    total, _, _ = b.repeated((one, x, start), goes_on, body)
    if is_negative is None:
        return total
    sign = b.select(b.icmp_unsigned("!=", b.and_(y, one), zero), minus_one, one)
    unit = b.select(b.icmp_signed("==", x, minus_one), sign, zero)
    unit = b.select(b.icmp_signed("==", x, one), one, unit)
    return b.select(is_negative, unit, total)


# ------------------------------------------------------------------------------------------ floats


def float_quotient(b: Assembler[V], x: V, y: V) -> tuple[V, V]:
    """(⌊x/y⌋, x - y⌊x/y⌋) of floats through the exact remainder, as Python has them."""
    zero, one = b.constant(x, 0.0), b.constant(x, 1.0)
    exact = b.frem(x, y)
    by_zero = b.fcmp_ordered("==", y, zero)
    has_rest = b.fcmp_unordered("!=", exact, zero)
    is_off = b.and_(has_rest, b.xor(b.fcmp_ordered("<", y, zero), b.fcmp_ordered("<", exact, zero)))
    remainder = b.select(is_off, b.fadd(exact, y), exact)
    remainder = b.select(has_rest, remainder, b.copysign(zero, y))
    quotient = b.fdiv(b.fsub(x, exact), y)
    quotient = b.select(is_off, b.fsub(quotient, one), quotient)
    near = b.floor(quotient)
    near = b.select(b.fcmp_ordered(">", b.fsub(quotient, near), b.constant(x, 0.5)), b.fadd(near, one), near)
    ratio = b.fdiv(x, y)
    near = b.select(b.fcmp_unordered("!=", quotient, zero), near, b.copysign(zero, ratio))
    return b.select(by_zero, ratio, near), b.select(by_zero, exact, remainder)


# ----------------------------------------------------------------------------------------- the ops


def quotient_or_rest(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    both = float_quotient(b, *args) if dtypes[0].is_float else whole_quotient(b, dtypes[0], *args)
    return both[isinstance(op, arithmetic.remainder.op)]


def shift(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    x, count = args
    # Unsigned, a negative count is a large one.
    is_inside = b.icmp_unsigned("<", count, b.constant(count, 8 * dtypes[0].itemsize))
    safe = b.select(is_inside, count, b.constant(count, 0))
    if isinstance(op, bitwise.bitwise_left_shift.op):
        return b.select(is_inside, b.shl(x, safe), b.constant(x, 0))
    if dtypes[0].kind == "uint":
        return b.select(is_inside, b.lshr(x, safe), b.constant(x, 0))
    return b.ashr(x, b.select(is_inside, count, b.constant(count, 8 * dtypes[0].itemsize - 1)))


def power(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return whole_power(b, dtypes[0], *args)


ROWS: dict[type[Op], Row] = {
    arithmetic.floor_divide.op: Row(quotient_or_rest, _REAL),
    arithmetic.remainder.op: Row(quotient_or_rest, _REAL),
    bitwise.bitwise_left_shift.op: Row(shift, INTEGERS),
    bitwise.bitwise_right_shift.op: Row(shift, INTEGERS),
    arithmetic.pow.op: Row(power, INTEGERS),
}
"""For floats `pow` is a function (`powers.py`)."""
