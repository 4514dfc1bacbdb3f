"""Scalar code of the ops of `comparison` and `bitwise`: comparisons, logic and bits, classification, and selection."""

from __future__ import annotations

from rlx_core.codegen.scalars.assembler import Assembler, Relation, V
from rlx_core.codegen.scalars.conversion import as_bool
from rlx_core.codegen.scalars.table import Row
from rlx_core.ir.dtypes import INTEGERS, DType, bool_
from rlx_core.ir.op import Op
from rlx_core.ops import bitwise, comparison, selection

_INTEGRAL = (bool_, *INTEGERS)

RELATIONS: dict[type[Op], Relation] = {
    comparison.equal.op: "==",
    comparison.not_equal.op: "!=",
    comparison.less.op: "<",
    comparison.less_equal.op: "<=",
    comparison.greater.op: ">",
    comparison.greater_equal.op: ">=",
}


def compare(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    relation = RELATIONS[type(op)]
    if dtypes[0].is_float:
        # Every comparison with NaN is false but `!=`.
        return b.fcmp_unordered("!=", *args) if relation == "!=" else b.fcmp_ordered(relation, *args)
    return (b.icmp_signed if dtypes[0].kind == "int" else b.icmp_unsigned)(relation, *args)


def conjunction(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return b.and_(*args)


def disjunction(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return b.or_(*args)


def difference(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return b.xor(*args)


def invert(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return b.xor(args[0], b.constant(args[0], -1))


def classify(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    (x,) = args
    if not b.dtype_of(x).is_float:
        return b.number(bool_, isinstance(op, comparison.isfinite.op), x)
    if isinstance(op, comparison.isnan.op):
        return b.fcmp_unordered("uno", x, x)
    size, infinity = b.fabs(x), b.constant(x, float("inf"))
    return b.fcmp_ordered("==" if isinstance(op, comparison.isinf.op) else "<", size, infinity)


def sign_bit(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    (x,) = args
    if b.dtype_of(x).is_float:
        x = b.bits(x)
    elif dtypes[0].kind == "uint":
        return b.number(bool_, False, x)
    return b.icmp_signed("<", x, b.constant(x, 0))


def where(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...]) -> V:
    return b.select(as_bool(b, args[0]), args[1], args[2])


ROWS: dict[type[Op], Row] = {
    **dict.fromkeys(RELATIONS, Row(compare)),
    comparison.logical_and.op: Row(conjunction, _INTEGRAL),
    comparison.logical_or.op: Row(disjunction, _INTEGRAL),
    comparison.logical_xor.op: Row(difference, _INTEGRAL),
    bitwise.bitwise_and.op: Row(conjunction, _INTEGRAL),
    bitwise.bitwise_or.op: Row(disjunction, _INTEGRAL),
    bitwise.bitwise_xor.op: Row(difference, _INTEGRAL),
    comparison.logical_not.op: Row(invert, _INTEGRAL),
    bitwise.bitwise_invert.op: Row(invert, _INTEGRAL),
    comparison.isnan.op: Row(classify),
    comparison.isinf.op: Row(classify),
    comparison.isfinite.op: Row(classify),
    comparison.signbit.op: Row(sign_bit),
    selection.Where: Row(where),
}
