"""ln |Γ| and its derivatives in f64 as vector code; f32 takes them too.

On the right a polynomial on an interval of length 1 that shifts lead to, and a series in 1/x² beyond; on the left the
reflection formulas, which only vectors with a number there compute. ln |Γ| and ψ are within 3 ulp, the derivative of ψ of order
n within 3 + n/2, but for what cancels beside the zeros on the left: there it is as many ulp of the function on the right, and
for ln |Γ| of 1, as the logarithm of a rounded product is off by what the product lost.
"""

from __future__ import annotations

import math
from functools import partial

from rlx_core.ir.dtypes import FLOATS, DType, f64
from rlx_core.ir.op import Op
from rlx_core.ops import gamma
from rlx_core.ops.special import BERNOULLI
from rlx_cpu.native import functions, ir
from rlx_cpu.native.build import intrinsic
from rlx_cpu.native.floats import Pair, absolute, exact_product, exact_sum, fma, is_nan, polynomial, where_any
from rlx_cpu.native.functions import vector
from rlx_cpu.native.scalar import REASONS, code
from rlx_cpu.native.special_coefficients import (
    COTANGENT_PI,
    DIGAMMA,
    DIGAMMA_FAR,
    DIGAMMA_ZERO,
    LGAMMA,
    LGAMMA_FAR,
    SINE_PI,
)
from rlx_cpu.native.wide_exponential import log, log_pair, number

__all__: list[str] = []

LARGEST = 2.5599833278516383e305
"""ln Γ of the next number is infinite."""

OFFSET, OFFSET_LOW = 0.4189385332046727, 1.6728209650585413e-17
"""(ln 2π - 1)/2 in two pieces."""

LOG_PI, LOG_PI_LOW = 1.1447298858494002, 1.0265951162707826e-17
PI_SQUARED, PI_SQUARED_LOW = 9.869604401089358, 6.265295508739711e-16

ORDERS = 20
"""Orders of derivatives that there is code for: their factorials are exact."""


def phase(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """x less the nearest integer; NaN at infinities."""
    return b.fsub(x, intrinsic(b, "llvm.rint", x))


def cotangent(b: ir.IRBuilder, z: ir.Value, order: int = 0) -> Pair:
    """π·cot(πz) for |z| <= ½ as a pair, right to the last digits beside ±½ too; see `finite` for its order."""
    one, square = number(z, 1.0), b.fmul(z, z)
    # (1 - 4z²)·(1 + rest)/z
    fourfold, fourfold_lost = exact_product(b, *[b.fadd(z, z)] * 2)
    zeros, zeros_lost = exact_sum(b, one, b.fneg(fourfold))
    zeros_lost = b.fsub(zeros_lost, fourfold_lost)
    shape, shape_lost = exact_sum(b, one, b.fmul(square, polynomial(b, square, COTANGENT_PI[1:])))
    top, top_lost = exact_product(b, zeros, shape)
    top_lost = fma(b, zeros, shape_lost, fma(b, zeros_lost, shape, top_lost))
    quotient = b.fdiv(top, z)
    lost = b.fdiv(b.fadd(fma(b, b.fneg(quotient), z, top), top_lost), z)
    return quotient, finite(b, z, lost, order)


def finite(b: ir.IRBuilder, z: ir.Value, lost: ir.Value, order: int) -> ir.Value:
    """What a step to the derivative of π·cot(πz) of an order lost, but 0 next to the pole, where the step may be infinite."""
    next_to = 2.0 ** -(960 // (order + 1))
    return b.select(b.fcmp_ordered("<", absolute(b, z), number(z, next_to)), number(z, 0.0), lost)


# --------------------------------------------------------------------------------------------- ln Γ


@vector(gamma.lgamma.op, f64)
def lgamma(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    is_left = b.fcmp_ordered("<=", x, number(x, -0.5))
    size = absolute(b, x)
    right = lgamma_right(b, b.select(is_left, size, x))

    def reflected() -> ir.Value:
        # Γ(x)·Γ(-x) = -π/(x·sin πx)
        z = phase(b, size)
        sine = absolute(b, b.fmul(z, polynomial(b, b.fmul(z, z), SINE_PI)))
        high, low = log_pair(b, b.fmul(size, sine))
        top, lost = exact_sum(b, number(x, LOG_PI), b.fneg(high))
        inside = b.fadd(b.fsub(top, right), b.fadd(lost, b.fsub(number(x, LOG_PI_LOW), low)))
        # At poles and at -inf.
        return b.select(b.fcmp_unordered("==", z, number(x, 0.0)), number(x, math.inf), inside)

    return where_any(b, is_left, reflected, right)


def lgamma_right(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """ln |Γ(x)| for x > -½."""
    one, zero = number(x, 1.0), number(x, 0.0)
    is_far = b.fcmp_ordered(">=", x, number(x, 3.5))
    below_half, below_one, above_two = (
        b.fcmp_ordered(relation, x, number(x, edge)) for relation, edge in (("<", 0.5), ("<", 1.5), (">=", 2.5))
    )
    # x + 2, x + 1, x or x - 1 is 2 + t with |t| <= ½; what Γ is multiplied by on the way is q, or 1/q.
    shift = b.select(below_half, zero, b.select(below_one, one, b.select(above_two, number(x, 3.0), number(x, 2.0))))
    t = b.select(is_far, zero, b.fsub(x, shift))
    q = b.select(
        below_half, b.fmul(x, b.fadd(x, one)), b.select(below_one, x, b.select(above_two, b.fsub(x, one), one))
    )
    high, low = log_pair(b, absolute(b, b.select(is_far, x, q)))
    sign = b.select(above_two, one, number(x, -1.0))
    # The logarithm and the polynomial cancel, to a third beside 1.5: what each product lost is added at the end.
    zeros, zeros_lost = exact_product(b, t, b.fadd(t, one))
    slope, first = polynomial(b, t, LGAMMA[1:]), number(x, LGAMMA[0])
    shape = fma(b, t, slope, first)
    shape_lost = fma(b, t, slope, b.fsub(first, shape))
    main, main_lost = exact_product(b, zeros, shape)
    main_lost = fma(b, zeros, shape_lost, fma(b, zeros_lost, shape, main_lost))
    total, lost = exact_sum(b, b.fmul(sign, high), main)
    near = b.fadd(total, b.fadd(lost, fma(b, sign, low, main_lost)))
    # (x - ½)·(ln x - 1) + the offset + the series: the factor below ln x, so that nothing overflows too early.
    factor = b.fsub(x, number(x, 0.5))
    less, less_lost = exact_sum(b, high, number(x, -1.0))
    product, product_lost = exact_product(b, factor, less)
    product_lost = fma(b, factor, b.fadd(less_lost, low), product_lost)
    total, lost = exact_sum(b, product, number(x, OFFSET))
    inverse = b.fdiv(one, x)
    series = fma(b, inverse, polynomial(b, b.fmul(inverse, inverse), LGAMMA_FAR), number(x, OFFSET_LOW))
    far = b.fadd(total, b.fadd(lost, b.fadd(product_lost, series)))
    result = b.select(is_far, far, near)
    is_infinite = b.or_(b.fcmp_ordered(">", x, number(x, LARGEST)), b.fcmp_ordered("==", x, zero))
    return b.select(is_nan(b, x), x, b.select(is_infinite, number(x, math.inf), result))


# ------------------------------------------------------------------------------------- derivatives


@vector(gamma.digamma.op, f64)
def digamma(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    is_left = b.fcmp_ordered("<", x, number(x, 0.0))
    right = digamma_right(b, b.select(is_left, b.fneg(x), x), is_left)

    def reflected() -> ir.Value:
        # ψ(x) = ψ(1 - x) - π·cot(πx)
        z = phase(b, x)
        c, lost = cotangent(b, z)
        inside = b.fsub(b.fsub(right, c), lost)
        return b.select(b.fcmp_ordered("==", z, number(x, 0.0)), number(x, math.nan), inside)

    return where_any(b, is_left, reflected, right)


def digamma_right(b: ir.IRBuilder, x: ir.Value, is_next: ir.Value) -> ir.Value:
    """ψ(x) for x >= 0, of -0 infinity; ψ(1 + x) in the lanes of `is_next`, whose sum is rounded only where ψ is flat."""
    one, zero = number(x, 1.0), number(x, 0.0)
    argument = b.select(is_next, b.fadd(x, one), x)
    is_far = b.fcmp_ordered(">=", argument, number(x, 3.0))
    whole = b.select(
        b.fcmp_ordered("<", x, one), zero, b.select(b.fcmp_ordered("<", x, number(x, 2.0)), one, number(x, 2.0))
    )
    # The number less -1, 0 or 1 steps is 1.5 + t with |t| <= ½, and ψ(x + 1) = ψ(x) + 1/x.
    t = b.select(is_far, zero, b.fsub(x, b.fadd(whole, number(x, 0.5))))
    step = b.select(is_next, whole, b.fsub(whole, one))
    is_second = b.fcmp_ordered("==", whole, number(x, 2.0))
    divisor = b.select(is_far, argument, b.select(is_second, b.fsub(x, one), x))
    quotient = b.fdiv(b.select(is_far, one, step), divisor)
    # The distance from the zero, right to the last digit beside it.
    distance = b.fadd(b.fadd(t, number(x, 1.5 - DIGAMMA_ZERO[0])), number(x, -DIGAMMA_ZERO[1]))
    near = fma(b, distance, polynomial(b, t, DIGAMMA), quotient)
    square = b.fmul(quotient, quotient)
    rest = fma(b, square, polynomial(b, square, DIGAMMA_FAR), b.fmul(quotient, number(x, 0.5)))
    return b.select(is_far, b.fsub(log(b, argument), rest), near)


REASONS[gamma.Polygamma] = lambda op: None if op.order <= ORDERS else f"an order of polygamma up to {ORDERS}"


@code(gamma.Polygamma, dtypes=FLOATS)
def polygamma(b: ir.IRBuilder, op: Op, dtypes: tuple[DType, ...], args: tuple[ir.Value, ...]) -> ir.Value:
    """The derivative of ψ of an order, a function of its own for each."""
    assert isinstance(op, gamma.Polygamma), "registered for derivatives"
    name = f"polygamma{op.order}"
    return functions.emitted(b, name, partial(derivative, order=op.order), dtypes[0], f64, args)


def derivative(b: ir.IRBuilder, x: ir.Value, order: int) -> ir.Value:
    """ψₙ(x), by A & S 6.4.7 on the left."""
    is_left = b.fcmp_ordered("<", x, number(x, 0.0))
    right = derivative_right(b, b.select(is_left, b.fsub(number(x, 1.0), x), x), order)

    def reflected() -> ir.Value:
        z = phase(b, x)
        c, c_lost = cotangent(b, z, order)
        square, lost = exact_product(b, c, c)
        lost = fma(b, b.fadd(c, c), c_lost, lost)
        powers = cotangent_slope(order)
        slope = polynomial(b, square, powers)
        correction = b.fmul(lost, polynomial(b, square, [k * a for k, a in enumerate(powers)][1:]))
        slope = b.fadd(slope, finite(b, z, correction, order))
        if order % 2:
            inside, pole = b.fsub(slope, right), math.inf
        else:
            rest = b.fsub(right, finite(b, z, b.fmul(slope, c_lost), order))
            inside, pole = fma(b, b.fneg(slope), c, rest), math.nan
        return b.select(b.fcmp_ordered("==", z, number(x, 0.0)), number(x, pole), inside)

    return where_any(b, is_left, reflected, right)


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


def derivative_right(b: ir.IRBuilder, x: ir.Value, order: int) -> ir.Value:
    """(-1)ⁿ⁺¹ n! ζ(n + 1, x) for x >= 0: terms of the sum, then Euler-Maclaurin (A & S 6.4.11), the smallest first."""
    reach, one, zero, factorial = 8 + order, number(x, 1.0), number(x, 0.0), number(x, float(math.factorial(order)))
    terms, shifted = [], x
    for _ in range(reach):
        is_short = b.fcmp_ordered("<", shifted, number(x, float(reach)))
        term = b.fdiv(factorial, power(b, shifted, order + 1))
        terms.append(b.select(is_short, term, zero))
        shifted = b.select(is_short, b.fadd(shifted, one), shifted)
    inverse = b.fdiv(one, shifted)
    series = [
        bernoulli * math.factorial(2 * k + order - 1) / (math.factorial(2 * k) * math.factorial(order))
        for k, bernoulli in enumerate(BERNOULLI, 1)
    ]
    tail = fma(b, inverse, polynomial(b, b.fmul(inverse, inverse), series), number(x, 0.5))
    # Divisions by powers: a power of the quotient would have its rounding as many times. Two, so that none overflows too early.
    half = order // 2
    main = b.fdiv(b.fdiv(factorial, power(b, shifted, half)), power(b, shifted, order - half))
    total = b.fmul(main, fma(b, inverse, tail, number(x, 1 / order)))
    for term in reversed(terms):
        total = b.fadd(total, term)
    return total if order % 2 else b.fneg(total)


def power(b: ir.IRBuilder, x: ir.Value, exponent: int) -> ir.Value:
    """x^exponent by products."""
    result: ir.Value = number(x, 1.0)
    for _ in range(exponent):
        result = b.fmul(result, x)
    return result
