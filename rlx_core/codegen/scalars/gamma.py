"""ln |Γ| and its derivatives as vector code, in f64 and in f32; f32 uses the f64 code if a target has f64.

For positive x, a polynomial on an interval of length 1, reached by shifts, and a series in 1/x² beyond; for negative x the
reflection formulas, which are computed only for vectors with such a number. ln |Γ| and ψ are within 3 ulp, the derivative of ψ
of order n within 3 + n/2, except for cancellation near the zeros at negative x: there the bound is in ulp of the function at
positive x, and for ln |Γ| in ulp of 1, because the error of the logarithm of a rounded product is the product's rounding error.
In registers of f32 it is one ulp more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rlx_core.codegen.scalars import exponential as single
from rlx_core.codegen.scalars import wide_exponential as double
from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.floats import Pair, exact_product, exact_sum, is_nan, polynomial, residue
from rlx_core.codegen.scalars.powers import log_pair
from rlx_core.codegen.scalars.special_coefficients import (
    COTANGENT_PI,
    DIGAMMA,
    DIGAMMA_FAR,
    DIGAMMA_ZERO,
    LGAMMA,
    LGAMMA_FAR,
    SINE_PI,
)
from rlx_core.codegen.scalars.table import Function, Row, called
from rlx_core.ir.dtypes import FLOATS, DType, f32, f64
from rlx_core.ir.op import Op
from rlx_core.ops import gamma
from rlx_core.ops.special import BERNOULLI
from rlx_core.system.records import frozen


@frozen
class GammaFormat:
    """Parameters that depend on the precision and the exponent range of a float; numbers are sums of two where required.

    Attributes:
        log: ln x.
        largest: ln Γ of the next number is infinite.
        offset: (ln 2π - 1)/2.
        log_pi: ln π.
        zero: The zero of ψ for positive x.
        orders: Orders of derivatives that there is code for: their factorials are exact.
    """

    log: Callable[[Assembler[Any], Any], Any]
    largest: float
    offset: tuple[float, float]
    log_pi: tuple[float, float]
    zero: tuple[float, float]
    orders: int


_FORMATS: Mapping[DType, GammaFormat] = {
    f64: GammaFormat(
        double.log,
        2.5599833278516383e305,
        (0.4189385332046727, 1.6728209650585413e-17),
        (1.1447298858494002, 1.0265951162707826e-17),
        DIGAMMA_ZERO,
        20,
    ),
    f32: GammaFormat(
        single.log,
        4.085003108497519e36,
        (0.418938547372818, -1.4168144879533884e-08),
        (1.1447298526763916, 3.317300922844879e-08),
        (1.4616321325302124, 1.243815006546356e-08),
        13,
    ),
}

PI_SQUARED, PI_SQUARED_LOW = 9.869604401089358, 6.265295508739711e-16

ORDERS = _FORMATS[f64].orders


def format_of(b: Assembler[V], x: V) -> GammaFormat:
    return _FORMATS[b.dtype_of(x)]


def phase(b: Assembler[V], x: V) -> V:
    """x less the nearest integer; NaN at infinities."""
    return b.fsub(x, b.rint(x))


def cotangent(b: Assembler[V], z: V) -> Pair[V]:
    """Return π·cot(πz) for |z| <= ½ as a pair, accurate to the last digits also near ±½."""
    one, square = b.constant(z, 1.0), b.fmul(z, z)
    # (1 - 4z²)·(1 + rest)/z
    fourfold, fourfold_lost = exact_product(b, *[b.fadd(z, z)] * 2)
    zeros, zeros_lost = exact_sum(b, one, b.fneg(fourfold))
    zeros_lost = b.fsub(zeros_lost, fourfold_lost)
    shape, shape_lost = exact_sum(b, one, b.fmul(square, polynomial(b, square, COTANGENT_PI[1:])))
    top, top_lost = exact_product(b, zeros, shape)
    top_lost = b.fma(zeros, shape_lost, b.fma(zeros_lost, shape, top_lost))
    quotient = b.fdiv(top, z)
    lost = b.fdiv(b.fadd(residue(b, quotient, z, top), top_lost), z)
    return quotient, finite(b, lost)


def finite(b: Assembler[V], lost: V) -> V:
    """Return a rounding error, or 0 next to the pole, where a step may be infinite and then has no error."""
    return b.select(b.fcmp_ordered("<", b.fabs(lost), b.constant(lost, math.inf)), lost, b.constant(lost, 0.0))


# --------------------------------------------------------------------------------------------- ln Γ


def lgamma(b: Assembler[V], x: V) -> V:
    is_left = b.fcmp_ordered("<=", x, b.constant(x, -0.5))
    size = b.fabs(x)
    right = lgamma_right(b, b.select(is_left, size, x))

    def reflected() -> V:
        # Γ(x)·Γ(-x) = -π/(x·sin πx)
        z = phase(b, size)
        sine = b.fabs(b.fmul(z, polynomial(b, b.fmul(z, z), SINE_PI)))
        high, low = log_pair(b, b.fmul(size, sine))
        log_pi, log_pi_low = (b.constant(x, piece) for piece in format_of(b, x).log_pi)
        top, lost = exact_sum(b, log_pi, b.fneg(high))
        inside = b.fadd(b.fsub(top, right), b.fadd(lost, b.fsub(log_pi_low, low)))
        # At poles and at -inf.
        return b.select(b.fcmp_unordered("==", z, b.constant(x, 0.0)), b.constant(x, math.inf), inside)

    return b.rarely(is_left, reflected, right)


def lgamma_right(b: Assembler[V], x: V) -> V:
    """ln |Γ(x)| for x > -½."""
    one, zero, form = b.constant(x, 1.0), b.constant(x, 0.0), format_of(b, x)
    is_far = b.fcmp_ordered(">=", x, b.constant(x, 3.5))
    below_half, below_one, above_two = (
        b.fcmp_ordered("<", x, b.constant(x, 0.5)),
        b.fcmp_ordered("<", x, b.constant(x, 1.5)),
        b.fcmp_ordered(">=", x, b.constant(x, 2.5)),
    )
    # x + 2, x + 1, x or x - 1 is 2 + t with |t| <= ½; what Γ is multiplied by on the way is q, or 1/q.
    shift = b.select(
        below_half, zero, b.select(below_one, one, b.select(above_two, b.constant(x, 3.0), b.constant(x, 2.0)))
    )
    t = b.select(is_far, zero, b.fsub(x, shift))
    q = b.select(
        below_half, b.fmul(x, b.fadd(x, one)), b.select(below_one, x, b.select(above_two, b.fsub(x, one), one))
    )
    high, low = log_pair(b, b.fabs(b.select(is_far, x, q)))
    sign = b.select(above_two, one, b.constant(x, -1.0))
    # The logarithm and the polynomial cancel, to a third near 1.5: the rounding error of each product is added at the end.
    zeros, zeros_lost = exact_product(b, t, b.fadd(t, one))
    slope, first = polynomial(b, t, LGAMMA[1:]), b.constant(x, LGAMMA[0])
    shape = b.fma(t, slope, first)
    shape_lost = b.fma(t, slope, b.fsub(first, shape))
    main, main_lost = exact_product(b, zeros, shape)
    main_lost = b.fma(zeros, shape_lost, b.fma(zeros_lost, shape, main_lost))
    total, lost = exact_sum(b, b.fmul(sign, high), main)
    near = b.fadd(total, b.fadd(lost, b.fma(sign, low, main_lost)))
    # (x - ½)·(ln x - 1) + the offset + the series: the factor below ln x, so that nothing overflows too early.
    factor = b.fsub(x, b.constant(x, 0.5))
    less, less_lost = exact_sum(b, high, b.constant(x, -1.0))
    product, product_lost = exact_product(b, factor, less)
    product_lost = b.fma(factor, b.fadd(less_lost, low), product_lost)
    total, lost = exact_sum(b, product, b.constant(x, form.offset[0]))
    inverse = b.fdiv(one, x)
    series = b.fma(inverse, polynomial(b, b.fmul(inverse, inverse), LGAMMA_FAR), b.constant(x, form.offset[1]))
    outer = b.fadd(total, b.fadd(lost, b.fadd(product_lost, series)))
    result = b.select(is_far, outer, near)
    is_infinite = b.or_(b.fcmp_ordered(">", x, b.constant(x, form.largest)), b.fcmp_ordered("==", x, zero))
    return b.select(is_nan(b, x), x, b.select(is_infinite, b.constant(x, math.inf), result))


# ------------------------------------------------------------------------------------- derivatives


def digamma(b: Assembler[V], x: V) -> V:
    is_left = b.fcmp_ordered("<", x, b.constant(x, 0.0))
    right = digamma_right(b, b.select(is_left, b.fneg(x), x), is_left)

    def reflected() -> V:
        # ψ(x) = ψ(1 - x) - π·cot(πx)
        z = phase(b, x)
        c, lost = cotangent(b, z)
        inside = b.fsub(b.fsub(right, c), lost)
        return b.select(b.fcmp_ordered("==", z, b.constant(x, 0.0)), b.constant(x, math.nan), inside)

    return b.rarely(is_left, reflected, right)


def digamma_right(b: Assembler[V], x: V, is_next: V) -> V:
    """ψ(x) for x >= 0, of -0 infinity; ψ(1 + x) in the lanes of `is_next`, whose sum is rounded only where ψ is flat."""
    one, zero, form = b.constant(x, 1.0), b.constant(x, 0.0), format_of(b, x)
    argument = b.select(is_next, b.fadd(x, one), x)
    is_far = b.fcmp_ordered(">=", argument, b.constant(x, 3.0))
    integral = b.select(
        b.fcmp_ordered("<", x, one), zero, b.select(b.fcmp_ordered("<", x, b.constant(x, 2.0)), one, b.constant(x, 2.0))
    )
    # The number less -1, 0 or 1 steps is 1.5 + t with |t| <= ½, and ψ(x + 1) = ψ(x) + 1/x.
    t = b.select(is_far, zero, b.fsub(x, b.fadd(integral, b.constant(x, 0.5))))
    step = b.select(is_next, integral, b.fsub(integral, one))
    is_second = b.fcmp_ordered("==", integral, b.constant(x, 2.0))
    divisor = b.select(is_far, argument, b.select(is_second, b.fsub(x, one), x))
    quotient = b.fdiv(b.select(is_far, one, step), divisor)
    # The distance from the zero, accurate to the last digit near it; a difference: a language may add two constants first.
    distance = b.fsub(b.fadd(t, b.constant(x, 1.5 - form.zero[0])), b.constant(x, form.zero[1]))
    near = b.fma(distance, polynomial(b, t, DIGAMMA), quotient)
    square = b.fmul(quotient, quotient)
    series = b.fma(square, polynomial(b, square, DIGAMMA_FAR), b.fmul(quotient, b.constant(x, 0.5)))
    return b.select(is_far, b.fsub(form.log(b, argument), series), near)


def polygamma(b: Assembler[V], op: Op, dtypes: tuple[DType, ...], args: tuple[V, ...], *, form: DType) -> V:
    """Return the derivative of ψ of an order, a separate function for each, in registers of `form`."""
    assert isinstance(op, gamma.Polygamma), "registered for derivatives"
    name = f"polygamma{op.order}"
    return called(b, name, partial(derivative, order=op.order), dtypes[0], form, args)


def derivative(b: Assembler[V], x: V, order: int) -> V:
    """ψₙ(x), by A & S 6.4.7 on the left."""
    is_left = b.fcmp_ordered("<", x, b.constant(x, 0.0))
    right = derivative_right(b, b.select(is_left, b.fsub(b.constant(x, 1.0), x), x), order)

    def reflected() -> V:
        z = phase(b, x)
        c, c_lost = cotangent(b, z)
        square, lost = exact_product(b, c, c)
        lost = b.fma(b.fadd(c, c), c_lost, lost)
        powers = cotangent_slope(order)
        slope = polynomial(b, square, powers)
        correction = b.fmul(lost, polynomial(b, square, [k * a for k, a in enumerate(powers)][1:]))
        slope = b.fadd(slope, finite(b, correction))
        if order % 2:
            inside, pole = b.fsub(slope, right), math.inf
        else:
            remainder = b.fsub(right, finite(b, b.fmul(slope, c_lost)))
            inside, pole = b.fma(b.fneg(slope), c, remainder), math.nan
        return b.select(b.fcmp_ordered("==", z, b.constant(x, 0.0)), b.constant(x, pole), inside)

    return b.rarely(is_left, reflected, right)


def cotangent_slope(order: int) -> list[float]:
    """The derivative of π·cot(πx) of an order in powers of c² with c = π·cot(πx): of its size; of an even order, over c.

    As c' = -(π² + c²), coefficients are an integer and a power of π² each, and have one sign.
    """
    powers = [0, 1]  # of cot(πx)
    for _ in range(order):
        slope = [k * a for k, a in enumerate(powers)][1:]
        powers = [a + c for a, c in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    sizes = [(k, a * PI_SQUARED**k) for k, a in enumerate(reversed(powers[(order + 1) % 2 :: 2]))]
    return [size + size * (k * PI_SQUARED_LOW / PI_SQUARED) for k, size in reversed(sizes)]


def derivative_right(b: Assembler[V], x: V, order: int) -> V:
    """(-1)ⁿ⁺¹ n! ζ(n + 1, x) for x >= 0: terms of the sum, then Euler-Maclaurin (A & S 6.4.11), the smallest first."""
    reach, one, zero, factorial = (
        8 + order,
        b.constant(x, 1.0),
        b.constant(x, 0.0),
        b.constant(x, float(math.factorial(order))),
    )
    half = order // 2
    terms, shifted = [], x
    for k in range(reach):
        is_short = b.fcmp_ordered("<", shifted, b.constant(x, float(reach)))
        # Of a small x the power would be subnormal where the quotient is not infinite yet.
        last = order + 1 if k else half + 1
        term = b.fdiv(factorial if k else b.fdiv(factorial, power(b, x, order - half)), power(b, shifted, last))
        terms.append(b.select(is_short, term, zero))
        shifted = b.select(is_short, b.fadd(shifted, one), shifted)
    inverse = b.fdiv(one, shifted)
    series = [
        bernoulli * math.factorial(2 * k + order - 1) / (math.factorial(2 * k) * math.factorial(order))
        for k, bernoulli in enumerate(BERNOULLI, 1)
    ]
    tail = b.fma(inverse, polynomial(b, b.fmul(inverse, inverse), series), b.constant(x, 0.5))
    # Divisions by powers: a power of the quotient would have its rounding as many times. Two, so that none overflows too early.
    main = b.fdiv(b.fdiv(factorial, power(b, shifted, half)), power(b, shifted, order - half))
    total = b.fmul(main, b.fma(inverse, tail, b.constant(x, 1 / order)))
    for term in reversed(terms):
        total = b.fadd(total, term)
    return total if order % 2 else b.fneg(total)


def power(b: Assembler[V], x: V, exponent: int) -> V:
    """x^exponent by products."""
    result: V = b.constant(x, 1.0)
    for _ in range(exponent):
        result = b.fmul(result, x)
    return result


DOUBLE: Mapping[tuple[type[Op], DType], Function] = {
    (gamma.lgamma.op, f64): lgamma,
    (gamma.digamma.op, f64): digamma,
}
SINGLE: Mapping[tuple[type[Op], DType], Function] = {(op, f32): make for (op, _), make in DOUBLE.items()}
"""The same in registers of f32."""


def reason_against(op: gamma.Polygamma, dtypes: tuple[DType, ...]) -> str | None:
    """Return why there is no code for a derivative of ψ."""
    limit = _FORMATS[f64 if f64 in dtypes else f32].orders
    return None if op.order <= limit else f"an order of polygamma up to {limit}"


ROWS: Mapping[type[Op], Row] = {gamma.Polygamma: Row(partial(polygamma, form=f64), FLOATS, reason_against)}
SINGLE_ROWS: Mapping[type[Op], Row] = {gamma.Polygamma: Row(partial(polygamma, form=f32), FLOATS, reason_against)}
