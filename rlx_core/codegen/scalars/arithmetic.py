"""Scalar code of arithmetic ops: sums, products, extremes, signs and roundings."""

from __future__ import annotations

from rlx_core.codegen.scalars.assembler import Assembler, Relation, V
from rlx_core.codegen.scalars.table import Row
from rlx_core.ir.dtypes import FLOATS, DType, bool_
from rlx_core.ir.op import Op
from rlx_core.ops import activation, arithmetic, floating, piecewise


def add(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return b.fadd(*args) if dtypes[0].is_float else b.add(*args)


def subtract(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return b.fsub(*args) if dtypes[0].is_float else b.sub(*args)


def multiply(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return b.fmul(*args) if dtypes[0].is_float else b.mul(*args)


def divide(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return b.fdiv(*args)


def reciprocal(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return b.fdiv(b.constant(args[0], 1.0), args[0])


def square(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return (b.fmul if dtypes[0].is_float else b.mul)(args[0], args[0])


def negative(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return b.fneg(args[0]) if dtypes[0].is_float else b.neg(args[0])


def larger(b: Assembler[V], dtype: DType, x: V, y: V) -> V:
    """The larger of two; NaN if either is NaN."""
    return _extreme(b, dtype, ">", x, y)


def smaller(b: Assembler[V], dtype: DType, x: V, y: V) -> V:
    """The smaller of two; NaN if either is NaN."""
    return _extreme(b, dtype, "<", x, y)


def of_two(b: Assembler[V], combine: str, dtype: DType, x: V, y: V) -> V:
    """The sum (`sum` or `add`), product (`prod` or `mul`), maximum (`max`) or minimum of two values."""
    if combine in ("sum", "add"):
        return b.fadd(x, y) if dtype.is_float else b.add(x, y)
    if combine in ("prod", "mul"):
        return b.fmul(x, y) if dtype.is_float else b.mul(x, y)
    return (larger if combine == "max" else smaller)(b, dtype, x, y)


def _extreme(b: Assembler[V], dtype: DType, relation: Relation, x: V, y: V) -> V:
    if dtype is bool_:
        return b.or_(x, y) if relation == ">" else b.and_(x, y)
    if not b.dtype_of(x).is_float:
        compare = b.icmp_signed if dtype.kind == "int" else b.icmp_unsigned
        return b.select(compare(relation, x, y), x, y)
    # The first select is one instruction on x86 and gives y if either is NaN; only a NaN in x is then still missing.
    chosen = b.select(b.fcmp_ordered(relation, x, y), x, y)
    return b.select(b.fcmp_unordered("uno", x, x), x, chosen)


def extreme(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    pick = larger if isinstance(op, arithmetic.maximum.op) else smaller
    return pick(b, dtypes[0], *args)


def absolute(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    (x,) = args
    if b.dtype_of(x).is_float:
        return b.fabs(x)
    if dtypes[0].kind != "int":
        return x
    return b.select(b.icmp_signed("<", x, b.constant(x, 0)), b.neg(x), x)


def sign(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    (x,) = args
    zero, one = b.constant(x, 0), b.constant(x, 1)
    if not b.dtype_of(x).is_float:
        compare = b.icmp_signed if dtypes[0].kind == "int" else b.icmp_unsigned
        right = b.select(compare(">", x, zero), one, zero)
        return b.select(compare("<", x, zero), b.constant(x, -1), right)
    signed = b.select(b.fcmp_ordered(">", x, zero), one, b.constant(x, -1.0))
    # 0 and NaN are themselves, but -0 has the sign 0.
    still = b.select(b.fcmp_unordered("uno", x, x), x, zero)
    return b.select(b.fcmp_ordered("!=", x, zero), signed, still)


def copy_sign(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return b.copysign(*args)


def rounded(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    (x,) = args
    if isinstance(op, piecewise.floor.op):
        return b.floor(x)
    if isinstance(op, piecewise.ceil.op):
        return b.ceil(x)
    return b.trunc_float(x) if isinstance(op, piecewise.trunc.op) else b.rint(x)


def root(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return b.sqrt(args[0])


def reciprocal_root(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return b.fdiv(b.constant(args[0], 1.0), b.sqrt(args[0]))


ROWS: dict[type[Op], Row] = {
    arithmetic.add.op: Row(add),
    arithmetic.subtract.op: Row(subtract),
    arithmetic.multiply.op: Row(multiply),
    arithmetic.divide.op: Row(divide, FLOATS),
    arithmetic.reciprocal.op: Row(reciprocal, FLOATS),
    arithmetic.square.op: Row(square),
    arithmetic.negative.op: Row(negative),
    arithmetic.maximum.op: Row(extreme),
    arithmetic.minimum.op: Row(extreme),
    arithmetic.absolute.op: Row(absolute),
    arithmetic.real_sign.op: Row(sign),
    floating.copysign.op: Row(copy_sign, FLOATS),
    piecewise.floor.op: Row(rounded, FLOATS),
    piecewise.ceil.op: Row(rounded, FLOATS),
    piecewise.trunc.op: Row(rounded, FLOATS),
    piecewise.Round: Row(rounded, FLOATS),
    activation.sqrt.op: Row(root, FLOATS),
    activation.rsqrt.op: Row(reciprocal_root, FLOATS),
}
