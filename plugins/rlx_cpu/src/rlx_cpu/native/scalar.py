"""The scalar ops on registers: a table from op class to LLVM instructions, the same for one lane and for sixteen.

What is missing here has no native kernel, and neither has a formula that contains it; `refusal` says so before a program is
planned. Composed ops are not here: they arrive as their decomposition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx_core.codegen.formula import Read, formula_of
from rlx_core.codegen.loops import Apply, Const
from rlx_core.ir.dtypes import FLOATS, INTEGERS, DType, bf16, bool_, f16, f32
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops import activation, arithmetic, bitwise, comparison, conversion, floating, piecewise, selection
from rlx_cpu.native import functions, ir, narrow
from rlx_cpu.native.build import I1, constant, intrinsic, is_floating, register_type, splat, width
from rlx_cpu.native.idioms import recognised

__all__ = ["DTYPES", "apply", "code", "expression", "refusal"]

Code = Callable[[ir.IRBuilder, Op, "tuple[DType, ...]", "tuple[ir.Value, ...]"], ir.Value]

DTYPES = (bool_, *INTEGERS, *FLOATS)
"""What there is code for; f16 and bf16 are f32 in registers."""

CODE: dict[type[Op], tuple[tuple[DType, ...], Code]] = {}

REASONS: dict[type[Op], Callable[[Any], str | None]] = {}
"""Why there is no code for some attributes of an op that has code, as `refusal` says it."""


def code(*ops: type[Op], dtypes: tuple[DType, ...] = DTYPES) -> Callable[[Code], Code]:
    """Register the decorated function as the code of `ops`, for operands of `dtypes`."""

    def add(emit: Code) -> Code:
        for op in ops:
            CODE[op] = (dtypes, emit)
        return emit

    return add


def refusal(op: Op, dtypes: tuple[DType, ...]) -> str | None:
    """Why there is no code for `op` on operands of these dtypes, or `None` if there is."""
    row = CODE.get(type(op))
    if row is None:
        return f"native code for {op.name.removeprefix('rlx.')}"
    wrong = sorted({d.name for d in dtypes if d not in row[0]})
    if wrong:
        return f"native code for {op.name.removeprefix('rlx.')} on {' '.join(wrong)}"
    reason = REASONS.get(type(op))
    return None if reason is None else reason(op)


def apply(builder: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    """The result of `op` on registers; scalars and vectors may not be mixed.

    What f32 computes of narrow operands stays f32 until it is stored; only a cast to a narrow dtype rounds here.
    """
    return CODE[type(op)][1](builder, op, tuple(d.accumulator for d in dtypes), args)


# ------------------------------------------------------------------------------------- arithmetic

_BINARY: dict[type[Op], tuple[str, str]] = {
    arithmetic.add.op: ("fadd", "add"),
    arithmetic.subtract.op: ("fsub", "sub"),
    arithmetic.multiply.op: ("fmul", "mul"),
}


@code(*_BINARY)
def binary(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    floating_name, whole_name = _BINARY[type(op)]
    return getattr(b, floating_name if is_floating(args[0].type) else whole_name)(*args)


@code(arithmetic.divide.op, dtypes=FLOATS)
def divide(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    return b.fdiv(*args)


@code(arithmetic.reciprocal.op, dtypes=FLOATS)
def reciprocal(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    return b.fdiv(constant(args[0].type, 1.0), args[0])


@code(arithmetic.square.op)
def square(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    return (b.fmul if is_floating(args[0].type) else b.mul)(args[0], args[0])


@code(arithmetic.negative.op)
def negative(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    return b.fneg(args[0]) if is_floating(args[0].type) else b.neg(args[0])


def larger(b: ir.IRBuilder, dtype: DType, x: ir.Value, y: ir.Value) -> ir.Value:
    """The larger of two; NaN if either is NaN."""
    return _extreme(b, dtype, ">", x, y)


def smaller(b: ir.IRBuilder, dtype: DType, x: ir.Value, y: ir.Value) -> ir.Value:
    """The smaller of two; NaN if either is NaN."""
    return _extreme(b, dtype, "<", x, y)


def _extreme(b: ir.IRBuilder, dtype: DType, relation: str, x: ir.Value, y: ir.Value) -> ir.Value:
    if dtype is bool_:
        return b.or_(x, y) if relation == ">" else b.and_(x, y)
    if not is_floating(x.type):
        compare = b.icmp_signed if dtype.kind == "int" else b.icmp_unsigned
        return b.select(compare(relation, x, y), x, y)
    # The first select is one instruction on x86 and gives y if either is NaN; only a NaN in x is then still missing.
    chosen = b.select(b.fcmp_ordered(relation, x, y), x, y)
    return b.select(b.fcmp_unordered("uno", x, x), x, chosen)


@code(arithmetic.maximum.op, arithmetic.minimum.op)
def extreme(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    pick = larger if isinstance(op, arithmetic.maximum.op) else smaller
    return pick(b, dtypes[0], *args)


@code(arithmetic.absolute.op)
def absolute(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    (x,) = args
    if is_floating(x.type):
        return intrinsic(b, "llvm.fabs", x)
    if dtypes[0].kind != "int":
        return x
    return b.select(b.icmp_signed("<", x, constant(x.type, 0)), b.neg(x), x)


@code(arithmetic.real_sign.op)
def sign(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    (x,) = args
    zero, one = constant(x.type, 0), constant(x.type, 1)
    if not is_floating(x.type):
        compare = b.icmp_signed if dtypes[0].kind == "int" else b.icmp_unsigned
        right = b.select(compare(">", x, zero), one, zero)
        return b.select(compare("<", x, zero), constant(x.type, -1), right)
    signed = b.select(b.fcmp_ordered(">", x, zero), one, constant(x.type, -1.0))
    # 0 and NaN are themselves, but -0 has the sign 0.
    still = b.select(b.fcmp_unordered("uno", x, x), x, zero)
    return b.select(b.fcmp_ordered("one", x, zero), signed, still)


@code(floating.copysign.op, dtypes=FLOATS)
def copy_sign(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    return intrinsic(b, "llvm.copysign", *args)


_ROUNDING: dict[type[Op], str] = {
    piecewise.floor.op: "llvm.floor",
    piecewise.ceil.op: "llvm.ceil",
    piecewise.trunc.op: "llvm.trunc",
    piecewise.Round: "llvm.rint",
    activation.sqrt.op: "llvm.sqrt",
}


@code(*_ROUNDING, dtypes=FLOATS)
def one_instruction(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    return intrinsic(b, _ROUNDING[type(op)], *args)


@code(activation.rsqrt.op, dtypes=FLOATS)
def reciprocal_root(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    return b.fdiv(constant(args[0].type, 1.0), intrinsic(b, "llvm.sqrt", *args))


# --------------------------------------------------------------------------- comparison and logic

_RELATIONS: dict[type[Op], str] = {
    comparison.equal.op: "==",
    comparison.not_equal.op: "!=",
    comparison.less.op: "<",
    comparison.less_equal.op: "<=",
    comparison.greater.op: ">",
    comparison.greater_equal.op: ">=",
}


@code(*_RELATIONS)
def compare(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    relation = _RELATIONS[type(op)]
    if is_floating(args[0].type):
        # Every comparison with NaN is false but `!=`.
        return b.fcmp_unordered("!=", *args) if relation == "!=" else b.fcmp_ordered(relation, *args)
    return (b.icmp_signed if dtypes[0].kind == "int" else b.icmp_unsigned)(relation, *args)


_BITS: dict[type[Op], str] = {
    comparison.logical_and.op: "and_",
    comparison.logical_or.op: "or_",
    comparison.logical_xor.op: "xor",
    bitwise.bitwise_and.op: "and_",
    bitwise.bitwise_or.op: "or_",
    bitwise.bitwise_xor.op: "xor",
}

_WHOLE = (bool_, *INTEGERS)


@code(*_BITS, dtypes=_WHOLE)
def bits(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    return getattr(b, _BITS[type(op)])(*args)


@code(comparison.logical_not.op, bitwise.bitwise_invert.op, dtypes=_WHOLE)
def invert(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    return b.xor(args[0], constant(args[0].type, -1))


@code(comparison.isnan.op, comparison.isinf.op, comparison.isfinite.op)
def classify(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    (x,) = args
    if not is_floating(x.type):
        return constant(register_type(bool_, width(x)), isinstance(op, comparison.isfinite.op))
    if isinstance(op, comparison.isnan.op):
        return b.fcmp_unordered("uno", x, x)
    size, infinity = intrinsic(b, "llvm.fabs", x), constant(x.type, float("inf"))
    return b.fcmp_ordered("==" if isinstance(op, comparison.isinf.op) else "<", size, infinity)


@code(comparison.signbit.op)
def sign_bit(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    (x,) = args
    if is_floating(x.type):
        whole = ir.IntType(8 * dtypes[0].itemsize)
        x = b.bitcast(x, whole if width(x) == 1 else ir.VectorType(whole, width(x)))
    elif dtypes[0].kind == "uint":
        return constant(register_type(bool_, width(x)), 0)
    return b.icmp_signed("<", x, constant(x.type, 0))


@code(selection.Where)
def where(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    condition = as_bool(b, args[0])
    return b.select(condition, args[1], args[2])


def as_bool(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """`x != 0`; NaN is not 0."""
    if is_floating(x.type):
        return b.fcmp_unordered("!=", x, constant(x.type, 0))
    element = x.type.element if isinstance(x.type, ir.VectorType) else x.type
    return x if element == I1 else b.icmp_unsigned("!=", x, constant(x.type, 0))


# ------------------------------------------------------------------------------------------- casts


REASONS[conversion.Cast] = lambda op: None if op.to in DTYPES else f"native code for casts to {op.to}"


@code(conversion.Cast)
def cast(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    assert isinstance(op, conversion.Cast)
    return converted(b, args[0], dtypes[0], op.to)


def converted(b: ir.IRBuilder, x: ir.Value, source: DType, to: DType) -> ir.Value:
    """`x` in another dtype, by the rules of `Cast`."""
    if to.is_narrow:
        return narrow.rounded_to(b, to, converted(b, x, source, f32))
    type = register_type(to, width(x))
    if source is to:
        return x
    if to is bool_:
        return as_bool(b, x)
    if source.is_float:
        if to.is_float:
            return b.fpext(x, type) if to.itemsize > source.itemsize else b.fptrunc(x, type)
        # Truncated toward zero, saturated, NaN to 0: just what the intrinsic promises.
        name = f"llvm.fpto{'s' if to.kind == 'int' else 'u'}i.sat"
        return functions.converting(b, name, type, x)
    if to.is_float:
        return b.sitofp(x, type) if source.kind == "int" else b.uitofp(x, type)
    if to.itemsize < source.itemsize and source is not bool_:
        return b.trunc(x, type)
    if to.itemsize == source.itemsize and source is not bool_:
        return x
    return b.sext(x, type) if source.kind == "int" else b.zext(x, type)


# --------------------------------------------------------------------------------- transcendental


def _function(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    return functions.call(b, type(op), dtypes[0], args)


for _op in functions.OPS:
    CODE[_op] = (FLOATS, _function)

for _op in functions.IDIOMS:
    CODE[_op] = ((f16, bf16, f32), _function)


def expression(builder: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value | None:
    """Any op whose meaning is a scalar expression, on registers: what an epilogue applies; `None` if it is none.

    Composed ops are taken apart by their own decomposition, so that GELU is said in one place.
    """
    formula = formula_of(op, tuple(TensorType(d) for d in dtypes))
    if formula is None or formula.rows:
        return None
    lanes, found = max(width(a) for a in args), []
    terms = recognised(formula.terms)
    for term in terms:
        if isinstance(term, Read) and not term.dynamic:
            found.append(splat(builder, args[term.operand], lanes))
        elif isinstance(term, Const):
            found.append(constant(register_type(term.dtype, lanes), term.number))
        elif isinstance(term, Apply):
            held = tuple(formula.terms[a].dtype for a in term.args)
            if refusal(term.op, held) is not None:
                return None
            found.append(apply(builder, term.op, held, tuple(found[a] for a in term.args)))
        else:
            return None
    return found[formula.writes[0].value]
