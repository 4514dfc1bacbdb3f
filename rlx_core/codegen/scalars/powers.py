"""Powers, and the logarithm in double-length precision, in f64 and in f32; f32 uses the f64 code if a target has f64.

x^y = e^(y·ln x): for the largest products in the range of exponents, ten bits (of f32 seven) are before the point, and the same
number of the logarithm's bits would be missing in the result. So the logarithm is a pair, and the product's rounding error is
multiplied in at the end. Within 2 ulp, also where a language does not fuse products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rlx_core.codegen.scalars import exponential as single
from rlx_core.codegen.scalars import wide_exponential as double
from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.coefficients import LOG_TAIL
from rlx_core.codegen.scalars.floats import Pair, clamped, exact_product, exact_quotient, exact_sum, polynomial
from rlx_core.codegen.scalars.table import Function
from rlx_core.ir.dtypes import DType, f32, f64
from rlx_core.ir.op import Op
from rlx_core.ops import arithmetic
from rlx_core.system.records import frozen


@frozen
class Format:
    """Parameters that depend on the precision and the exponent range of a float.

    Attributes:
        parted: Returns (m - 1, e) of m·2^e.
        exponential: e^x of a pair within `reach`.
        ln2: As a sum of two: the first times an exponent is exact.
        third_low: 1/3 less the nearest number.
        tail: (atanh(s)/s - 1 - s²/3)/s⁴ in s².
        reach: e^x is 0 below the first, infinite above the second, and both beyond the third.
    """

    split: Callable[[Assembler[Any], Any], tuple[Any, Any]]
    exponential: Callable[[Assembler[Any], Pair[Any]], Any]
    ln2: tuple[float, float]
    third_low: float
    tail: tuple[float, ...]
    reach: tuple[float, float, float]


def exponential_of_single(b: Assembler[V], x: Pair[V]) -> V:
    """e^(x + x_lost) of f32."""
    return single.exponential_times(b, *x, b.constant(x[0], 1.0), b.constant(x[0], 0.0))


_FORMATS: Mapping[DType, Format] = {
    f64: Format(
        double.split,
        double.exponential_of,
        (double.LN2_HIGH, double.LN2_LOW),
        1 / 3 / 2**54,
        LOG_TAIL,
        (-750.0, 711.0, 740.0 + 10.0),
    ),
    f32: Format(
        single.parted,
        exponential_of_single,
        (single.LN2_HIGH, single.LN2_LOW),
        -1 / 3 / 2**25,
        tuple(1.0 / k for k in (5, 7, 9, 11, 13)),  # its Taylor series, 7e-10 at its end
        (-104.5, 89.0, 110.0),
    ),
}


def log_pair(b: Assembler[V], x: V) -> Pair[V]:
    """Return ln x in almost double-length precision: ten more bits are needed for products with exponents of hundreds."""
    form = _FORMATS[b.dtype_of(x)]
    f, e = form.split(b, x)
    d, d_lost = exact_sum(b, b.constant(x, 2.0), f)
    s, s_lost = exact_quotient(b, f, (d, d_lost))
    z, z_lost = exact_product(b, s, s)
    z_lost = b.fadd(z_lost, b.fmul(b.fadd(s, s), s_lost))
    third, w = b.constant(x, 1 / 3), b.fmul(z, polynomial(b, z, form.tail))
    inner = b.fadd(third, w)
    inner_lost = b.fadd(b.fadd(b.fsub(third, inner), w), b.constant(x, form.third_low))
    cube, cube_lost = exact_product(b, z, s)
    cube_lost = b.fadd(cube_lost, b.fma(z, s_lost, b.fmul(z_lost, s)))
    q, q_lost = exact_product(b, cube, inner)
    q_lost = b.fadd(q_lost, b.fma(cube, inner_lost, b.fmul(cube_lost, inner)))
    h, lost = exact_sum(b, s, q)
    lost = b.fadd(lost, b.fadd(s_lost, q_lost))
    high, low = form.ln2
    top, remainder = exact_sum(b, b.fmul(e, b.constant(x, high)), b.fadd(h, h))
    remainder = b.fadd(remainder, b.fma(e, b.constant(x, low), b.fadd(lost, lost)))
    return exact_sum(b, top, remainder)


def pow(b: Assembler[V], x: V, y: V) -> V:
    form = _FORMATS[b.dtype_of(x)]
    zero, one, infinity = (b.constant(x, v) for v in (0.0, 1.0, math.inf))
    size = b.fabs(x)
    log_high, log_low = log_pair(b, size)
    p, lost = exact_product(b, y, log_high)
    lost = b.fma(y, log_low, lost)
    least, maximum, limit = form.reach
    is_far = b.fcmp_unordered(">", b.fabs(p), b.constant(x, limit))
    result = form.exponential(b, (clamped(b, p, least, maximum), b.select(is_far, zero, lost)))
    is_zero, is_infinite = b.fcmp_ordered("==", size, zero), b.fcmp_ordered("==", size, infinity)
    is_negative = b.fcmp_ordered("<", y, zero)
    edge = b.select(b.xor(is_zero, is_negative), zero, infinity)
    result = b.select(b.or_(is_zero, is_infinite), edge, result)
    # 1 to an infinite power is 1, and so is -1; NaN to the power 0, and 1 to the power NaN.
    result = b.select(b.fcmp_ordered("==", size, one), b.select(b.fcmp_ordered("==", y, y), one, y), result)
    integral = b.floor(y)
    half = b.fmul(y, b.constant(x, 0.5))
    is_whole = b.fcmp_ordered("==", integral, y)
    is_odd = b.and_(is_whole, b.fcmp_unordered("!=", b.floor(half), half))
    signed = b.copysign(result, x)
    result = b.select(is_odd, signed, result)
    is_finite = b.and_(b.fcmp_ordered("<", x, zero), b.fcmp_ordered(">", x, b.constant(x, -math.inf)))
    result = b.select(b.and_(is_finite, b.not_(is_whole)), b.constant(x, math.nan), result)
    result = b.select(b.fcmp_unordered("uno", x, y), b.fadd(x, y), result)
    return b.select(b.or_(b.fcmp_ordered("==", y, zero), b.fcmp_ordered("==", x, one)), one, result)


DOUBLE: Mapping[tuple[type[Op], DType], Function] = {(arithmetic.pow.op, f64): pow}
SINGLE: Mapping[tuple[type[Op], DType], Function] = {(arithmetic.pow.op, f32): pow}
"""The same in registers of f32."""
