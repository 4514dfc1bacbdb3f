"""Arithmetic of two operands, and the functions of one operand that belong to it.

Operands are promoted; integers wrap modulo 2^bits; floats follow IEEE 754. This module has the operations of Python's
operators; `activation.py` has the functions of one variable.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx_core import ops
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import COMPLEXES, FLOATS, INEXACT, INTEGERS, DType, f32, promote
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Kink
from rlx_core.ops.kinds import Ratio, elementwise, is_complex

NUMERIC = (*INTEGERS, *FLOATS, *COMPLEXES)
REAL = (*INTEGERS, *FLOATS)


def _true_division(common: DType) -> DType:
    return promote(common, f32) if common.is_integer else common


def power_array(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a^b; for integers modulo 2^bits, and truncated toward zero if the exponent is negative."""
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    exact = np.power(a, np.where(b < 0, 0, b).astype(b.dtype))
    unit = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0)).astype(a.dtype)
    return np.where(b < 0, unit, exact)


def _power_by_base(a: Value, b: Value, y: Value) -> Value:
    # The exponent is replaced first: at b = 0 the product 0 · a^-1 is NaN for a = 0, and so would its derivative be.
    safe = ops.where(b == 0, 1, b)
    return ops.where(b == 0, 0, safe * pow(a, safe - 1))


def _power_by_exponent(a: Value, b: Value, y: Value) -> Value:
    # This form keeps NaN: its logarithm is NaN.
    has_none = a == 0 if a.dtype.is_complex else a <= 0
    return ops.where(has_none, 0, y * ops.log(ops.where(has_none, 1, a)))


def _chosen(wins: Value, loses: Value, y: Value) -> Value:
    """Return the derivative of an extreme by one operand: 1 where it is the result, 0 elsewhere, ½ at a tie, NaN for NaN."""
    return ops.where(wins, 1, ops.where(loses, 0, ops.where(y == y, 0.5, y)))


_TIE = Kink(1.0, 1.0, takes="mean", gives=(0.5, 0.5))


add = elementwise(
    "Add", np.add, lambda a, b, y: 1, lambda a, b, y: 1, doc="a + b.", accepts=NUMERIC, is_commutative=True
)
subtract = elementwise("Sub", np.subtract, lambda a, b, y: 1, lambda a, b, y: -1, doc="a - b.", accepts=NUMERIC)
multiply = elementwise(
    "Mul",
    np.multiply,
    lambda a, b, y: b,
    lambda a, b, y: a,
    doc="a · b.",
    accepts=NUMERIC,
    is_commutative=True,
)
divide = elementwise(
    "Div",
    np.true_divide,
    lambda a, b, y: Ratio(1, b),
    lambda a, b, y: Ratio(-y, b),
    doc="a / b, the true quotient: integers are cast to the float they meet f32 in.",
    accepts=INEXACT,
    converts=INTEGERS,
    computes_in=_true_division,
    ranges={"b": (1.0, 3.0)},
)
maximum = elementwise(
    "Max",
    np.maximum,
    lambda a, b, y: _chosen(a > b, a < b, y),
    lambda a, b, y: _chosen(a < b, a > b, y),
    doc="The larger of a and b; NaN if either is NaN. At a tie each gets half of the derivative.",
    accepts=REAL,
    kinks=(_TIE,),
)
minimum = elementwise(
    "Min",
    np.minimum,
    lambda a, b, y: _chosen(a < b, a > b, y),
    lambda a, b, y: _chosen(a > b, a < b, y),
    doc="The smaller of a and b; NaN if either is NaN. At a tie each gets half of the derivative.",
    accepts=REAL,
    kinks=(_TIE,),
)
pow = elementwise(
    "Pow",
    power_array,
    _power_by_base,
    _power_by_exponent,
    doc=(
        "a^b. Integers are exact modulo 2^bits; a negative exponent gives the exact value truncated toward zero, and "
        "0 for base 0. The derivative in b is 0 where a is not positive."
    ),
    accepts=NUMERIC,
    ranges={"a": (0.5, 2.0)},
)
negative = elementwise("Neg", np.negative, lambda x, y: -1, doc="-x.", accepts=NUMERIC)
real_sign = elementwise(
    "Sign",
    np.sign,
    ZERO,
    doc="-1, 0 or 1 by the sign of x; NaN stays NaN.",
    accepts=REAL,
    is_smooth=False,
    kinks=(Kink(0.0, takes="zero", gives=0.0),),
)
absolute = elementwise(
    "Abs",
    np.abs,
    lambda x, y: real_sign(x),
    doc="|x|, with derivative 0 at 0.",
    accepts=REAL,
    kinks=(Kink(0.0, takes="mean", gives=0.0),),
)
square = elementwise("Square", np.square, lambda x, y: 2 * x, doc="x².", accepts=NUMERIC)
reciprocal = elementwise(
    "Reciprocal", np.reciprocal, lambda x, y: -(y * y), doc="1/x.", accepts=INEXACT, low=0.5, high=2.0
)


@checked_call
def abs(x: Any) -> Any:
    """|x|; of a complex value its modulus, which is real."""
    return ops.complex_abs(x) if is_complex(x) else absolute(x)


@checked_call
def sign(x: Any) -> Any:
    """-1, 0 or 1 by the sign of x; of a complex value the number of modulus 1 in its direction, 0 of 0."""
    if not is_complex(x):
        return real_sign(x)
    modulus = ops.complex_abs(x)
    return divide(x, ops.where(modulus == 0, 1, modulus))


# Python's signs: the remainder has the sign of b. NumPy gives 0 for an integer divided by 0, and wraps the smallest integer
# divided by -1, as documented.
floor_divide = elementwise(
    "FloorDiv",
    np.floor_divide,
    ZERO,
    ZERO,
    doc="⌊a/b⌋; 0 where an integer is divided by 0.",
    accepts=REAL,
    ranges={"a": (-20, 20), "b": (1, 4)},
    is_smooth=False,
)
remainder = elementwise(
    "Mod",
    np.remainder,
    lambda a, b, y: 1,
    lambda a, b, y: -floor_divide(a, b),
    doc="a - b⌊a/b⌋, with the sign of b; 0 where an integer is divided by 0.",
    accepts=REAL,
    ranges={"a": (-20, 20), "b": (1, 4)},
)


def _safe(y: Value) -> Value:
    """Return a distance to divide by: 1 where it is 0."""
    return ops.where(y == 0, 1, y)


def _over_distance(numerator: Value, a: Value, b: Value) -> Ratio:
    # numerator/(a² + b²) as two quotients: the squares may overflow or underflow where the result does not.
    distance = _safe(hypot(a, b))
    return Ratio(numerator / distance, distance)


def _weight(a: Value, y: Value) -> Value:
    # -inf - -inf is NaN; with y replaced there, e^(a-y) is 0, which is correct.
    return ops.exp(a - ops.where(y == -math.inf, 0, y))


hypot = elementwise(
    "Hypot",
    np.hypot,
    lambda a, b, y: Ratio(a, _safe(y)),
    lambda a, b, y: Ratio(b, _safe(y)),
    doc="√(a² + b²) without overflow, with derivative 0 at the origin.",
    ranges={"a": (0.5, 2.0)},
    kinks=(Kink(0.0, 0.0, takes="mean", gives=(0.0, 0.0)),),
    is_commutative=True,
)
atan2 = elementwise(
    "Atan2",
    np.arctan2,
    lambda a, b, y: _over_distance(b, a, b),
    lambda a, b, y: _over_distance(-a, a, b),
    doc="The angle of the point (b, a), in (-π, π], with derivative 0 at the origin.",
    ranges={"a": (0.5, 2.0)},
    kinks=(Kink(0.0, 0.0, takes="zero", gives=(0.0, 0.0)),),
)
logaddexp = elementwise(
    "LogAddExp",
    np.logaddexp,
    lambda a, b, y: _weight(a, y),
    lambda a, b, y: _weight(b, y),
    doc="ln(e^a + e^b) without overflow.",
    is_commutative=True,
)
