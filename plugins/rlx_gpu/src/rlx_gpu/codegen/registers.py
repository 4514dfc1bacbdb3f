"""Registers of GPU languages: the representation of values, and the C family's syntax of types, literals and instructions."""

from __future__ import annotations

from decimal import Decimal

from rlx_core.ir.dtypes import DType, bool_, i8, i16, i32, i64


def register_dtype(dtype: DType) -> DType:
    """Return the dtype of a value of `dtype` in a register: narrow floats are f32, integers the signed type of their width."""
    if dtype.is_float or dtype is bool_:
        return dtype.accumulator
    return {1: i8, 2: i16, 4: i32, 8: i64}[dtype.itemsize]


def stored_dtype(dtype: DType) -> DType:
    """The register whose bytes a value of `dtype` has in memory: booleans are bytes, narrow floats words of 16 bits."""
    return {1: i8, 2: i16}[dtype.itemsize] if dtype is bool_ or dtype.is_narrow else register_dtype(dtype)


INSTRUCTIONS = {
    "fadd": "{0} + {1}",
    "fsub": "{0} - {1}",
    "fmul": "{0} * {1}",
    "fdiv": "{0} / {1}",
    "fneg": "-{0}",
    "frem": "fmod({0}, {1})",
    "fma": "fma({0}, {1}, {2})",
    "fabs": "fabs({0})",
    "copysign": "copysign({0}, {1})",
    "sqrt": "sqrt({0})",
    "floor": "floor({0})",
    "ceil": "ceil({0})",
    "trunc_float": "trunc({0})",
    "rint": "rint({0})",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "neg": "0 - {0}",
    "udiv": "{0} / {1}",
    "urem": "{0} % {1}",
    "and_": "{0} & {1}",
    "or_": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not_": "~{0}",
    "shl": "{0} << {1}",
    "lshr": "{0} >> {1}",
}
"""Instructions as the C family spells them on `u32`, `u64`, `f32` and `f64`."""

OF_BOOLS = {"and_": "{0} && {1}", "or_": "{0} || {1}", "xor": "{0} != {1}", "not_": "!{0}"}

SIGNED = {"sdiv": "/", "srem": "%", "ashr": ">>"}
"""Operators whose operands are cast to the signed type."""

ORDERED = {"==": "{0} == {1}", "!=": "{0} < {1} || {0} > {1}"}
INVERSE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""C's float comparisons are false for NaN except `!=`; a predicate that is true for NaN is the negated inverse."""


def spelled(dtype: DType) -> str:
    """The type of a register in a prelude: `u32`, `f32`, `bool`."""
    if dtype is bool_:
        return "bool"
    return f"{'f' if dtype.is_float else 'u'}{8 * dtype.itemsize}"


def signed(dtype: DType) -> str:
    """The signed type of the same width."""
    return f"i{8 * dtype.itemsize}"


def exact_numeral(number: float) -> str:
    """A decimal numeral where a short one is exact, else a hexadecimal one."""
    text = repr(number)
    return text if len(text) <= 12 and "e" not in text and Decimal(text) == Decimal(number) else number.hex()
