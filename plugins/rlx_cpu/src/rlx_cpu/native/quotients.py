"""Quotients with remainders, powers and shifts: where machines trap, wrap or disagree, what the ops promise.

An integer divided by 0 gives 0 and the smallest one divided by -1 wraps, so divisors are made safe before they are used: the
instruction would end the process. Lanes that do not exist hold zeros and take the same road.
"""

from __future__ import annotations

from typing import Any

from rlx_core.ir.dtypes import FLOATS, INTEGERS, DType
from rlx_core.ir.op import Op
from rlx_core.ops import arithmetic, bitwise
from rlx_cpu.native import functions, ir
from rlx_cpu.native.build import constant, intrinsic, is_floating, suffix
from rlx_cpu.native.floats import any_lane
from rlx_cpu.native.scalar import code

__all__: list[str] = []

_REAL = (*INTEGERS, *FLOATS)


# ---------------------------------------------------------------------------------------- integers


def whole_quotient(b: ir.IRBuilder, dtype: DType, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(⌊x/y⌋, x - y⌊x/y⌋) of integers, both 0 where y is 0."""
    zero, one = constant(x.type, 0), constant(x.type, 1)
    is_zero = b.icmp_unsigned("==", y, zero)
    if dtype.kind == "uint":
        safe = b.select(is_zero, one, y)
        return b.select(is_zero, zero, b.udiv(x, safe)), b.select(is_zero, zero, b.urem(x, safe))
    is_minus_one = b.icmp_signed("==", y, constant(y.type, -1))
    safe = b.select(b.or_(is_zero, is_minus_one), one, y)
    quotient = b.sdiv(x, safe)
    rest = b.sub(x, b.mul(quotient, safe))
    is_off = b.and_(b.icmp_signed("!=", rest, zero), b.icmp_signed("<", b.xor(rest, safe), zero))
    quotient = b.select(is_off, b.sub(quotient, one), quotient)
    rest = b.select(is_off, b.add(rest, safe), rest)
    quotient = b.select(is_minus_one, b.neg(x), quotient)
    return b.select(is_zero, zero, quotient), b.select(is_zero, zero, rest)


def whole_power(b: ir.IRBuilder, dtype: DType, x: ir.Value, y: ir.Value) -> ir.Value:
    """x^y modulo 2^bits by repeated squaring; a negative exponent gives the exact value truncated toward zero."""
    return b.call(_power_function(b.module, dtype, x.type), [x, y])


def _power_function(module: ir.Module, dtype: DType, type: Any) -> ir.Function:
    """The module's own power function for one type: a loop over the bits of the largest exponent."""
    name = f"rlx.pow.{dtype}.{suffix(type)}"
    found = module.globals.get(name)
    if found is not None:
        return found
    function = ir.Function(module, ir.FunctionType(type, [type, type]), name)
    function.linkage = "internal"
    b = ir.IRBuilder(function.append_basic_block("entry"))
    x, y = function.args
    zero, one, minus_one = (constant(type, n) for n in (0, 1, -1))
    start: ir.Value = y
    is_negative = None
    if dtype.kind == "int":
        is_negative = b.icmp_signed("<", y, zero)
        start = b.select(is_negative, zero, y)
    entry, head, body, done = (b.block, *(function.append_basic_block(n) for n in ("loop", "body", "done")))
    b.branch(head)
    b.position_at_end(head)
    total, base, left = (b.phi(type) for _ in range(3))
    for phi, first in ((total, one), (base, x), (left, start)):
        phi.add_incoming(first, entry)
    b.cbranch(any_lane(b, b.icmp_unsigned("!=", left, zero)), body, done)
    b.position_at_end(body)
    is_odd = b.icmp_unsigned("!=", b.and_(left, one), zero)
    for phi, then in (
        (total, b.select(is_odd, b.mul(total, base), total)),
        (base, b.mul(base, base)),
        (left, b.lshr(left, one)),
    ):
        phi.add_incoming(then, body)
    b.branch(head)
    b.position_at_end(done)
    if is_negative is None:
        b.ret(total)
        return function
    sign = b.select(b.icmp_unsigned("!=", b.and_(y, one), zero), minus_one, one)
    unit = b.select(b.icmp_signed("==", x, minus_one), sign, zero)
    unit = b.select(b.icmp_signed("==", x, one), one, unit)
    b.ret(b.select(is_negative, unit, total))
    return function


# ------------------------------------------------------------------------------------------ floats


def float_quotient(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(⌊x/y⌋, x - y⌊x/y⌋) of floats through the exact remainder, as Python has them."""
    zero, one = constant(x.type, 0.0), constant(x.type, 1.0)
    exact = b.frem(x, y)
    by_zero = b.fcmp_ordered("==", y, zero)
    has_rest = b.fcmp_unordered("!=", exact, zero)
    is_off = b.and_(has_rest, b.xor(b.fcmp_ordered("<", y, zero), b.fcmp_ordered("<", exact, zero)))
    rest = b.select(is_off, b.fadd(exact, y), exact)
    rest = b.select(has_rest, rest, intrinsic(b, "llvm.copysign", zero, y))
    quotient = b.fdiv(b.fsub(x, exact), y)
    quotient = b.select(is_off, b.fsub(quotient, one), quotient)
    near = intrinsic(b, "llvm.floor", quotient)
    near = b.select(b.fcmp_ordered(">", b.fsub(quotient, near), constant(x.type, 0.5)), b.fadd(near, one), near)
    ratio = b.fdiv(x, y)
    near = b.select(b.fcmp_unordered("!=", quotient, zero), near, intrinsic(b, "llvm.copysign", zero, ratio))
    return b.select(by_zero, ratio, near), b.select(by_zero, exact, rest)


# ----------------------------------------------------------------------------------------- the ops


@code(arithmetic.floor_divide.op, arithmetic.remainder.op, dtypes=_REAL)
def quotient_or_rest(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    both = float_quotient(b, *args) if is_floating(args[0].type) else whole_quotient(b, dtypes[0], *args)
    return both[isinstance(op, arithmetic.remainder.op)]


@code(bitwise.bitwise_left_shift.op, bitwise.bitwise_right_shift.op, dtypes=INTEGERS)
def shift(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    x, count = args
    # Unsigned, a negative count is a large one.
    is_inside = b.icmp_unsigned("<", count, constant(count.type, 8 * dtypes[0].itemsize))
    safe = b.select(is_inside, count, constant(count.type, 0))
    if isinstance(op, bitwise.bitwise_left_shift.op):
        return b.select(is_inside, b.shl(x, safe), constant(x.type, 0))
    if dtypes[0].kind == "uint":
        return b.select(is_inside, b.lshr(x, safe), constant(x.type, 0))
    return b.ashr(x, b.select(is_inside, count, constant(count.type, 8 * dtypes[0].itemsize - 1)))


@code(arithmetic.pow.op, dtypes=_REAL)
def power(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    if is_floating(args[0].type):
        return functions.call(b, arithmetic.pow.op, dtypes[0], args)
    return whole_power(b, dtypes[0], *args)
