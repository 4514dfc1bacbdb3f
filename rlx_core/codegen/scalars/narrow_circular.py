"""sin, cos and tan of f32 where registers hold no f64: π/2 is taken away in integers, exactly, however large the argument.

|x| is m·2^e with a whole m of 24 bits. Of |x|·2/π only the remainder by 4 matters, so of the digits of 2/π only those from
2^(1-e) down: 96 of them are enough for each f32. The product is a number of quarters in 64 bits, 62 of them below the point; what
is left of the nearest whole one becomes two floats, and keeps all its digits where they cancel. sin and cos are within 2 ulp, tan
within 3; where a language divides less exactly, tan is by as much.

Source:
    Payne, Hanek 1983, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18(1).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx_core.codegen.scalars.assembler import Assembler, V
from rlx_core.codegen.scalars.circular import unless_zero
from rlx_core.codegen.scalars.table import Function
from rlx_core.codegen.scalars.wide_circular import cosine_of, is_odd, sine_at, sine_of
from rlx_core.ir.dtypes import DType, f32, i64, u32, u64
from rlx_core.ir.op import Op
from rlx_core.ops import trigonometry

TWO_OVER_PI = (0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)
"""The first 224 digits after the point in words, and 32 before it."""

QUARTER = (1.5703125 * 2.0**-62, 4.8382679489661923e-4 * 2.0**-62)
"""π/2 in units of 2^62: eight digits, whose products with a float of 16 digits are exact, and the rest."""


def turned(b: Assembler[V], size: V) -> tuple[V, V, V]:
    """(r, what r lost, n) with size = r + n·π/2, |r| <= π/4, of a float that is not negative; the lower two bits of n count."""
    quarters = quarters_of(b, size)
    n = b.lshr(b.add(quarters, b.constant(quarters, 1 << 61)), b.constant(quarters, 62))
    fraction = b.sub(quarters, b.shl(n, b.constant(n, 62)))
    near = b.bits(b.converted(fraction, i64, f32))
    high = b.from_bits(b.and_(near, b.constant(near, -1 << 8)), size)
    low = b.converted(b.sub(fraction, b.converted(high, f32, i64)), i64, f32)
    first, second = (b.constant(size, number) for number in QUARTER)
    top = b.fmul(high, first)
    more = b.fadd(b.fmul(high, second), b.fmul(low, b.constant(size, sum(QUARTER))))
    r = b.fadd(top, more)
    lost = b.fadd(b.fsub(top, r), more)
    is_turned, zero = b.fcmp_ordered("<=", size, b.constant(size, math.pi / 4)), b.constant(size, 0.0)
    count = b.converted(n, u64, u32)
    pair = b.select(is_turned, size, r), b.select(is_turned, zero, lost)
    return *pair, b.select(is_turned, b.constant(count, 0), count)


def quarters_of(b: Assembler[V], size: V) -> V:
    """size·2/π modulo 4 in units of 2^-62, for a size from 1/2 up."""
    bits = b.bits(size)
    exponent = b.lshr(bits, b.constant(bits, 23))
    mantissa = b.or_(b.and_(bits, b.constant(bits, 0x7FFFFF)), b.constant(bits, 0x800000))
    start = b.sub(exponent, b.constant(bits, 120))
    shift, number = b.and_(start, b.constant(bits, 31)), b.lshr(start, b.constant(bits, 5))
    words = [word_at(b, number, k) for k in range(4)]
    first, second, third = (b.converted(joint(b, words[k], words[k + 1], shift), u32, u64) for k in range(3))
    m, half = b.converted(mantissa, u32, u64), b.number(i64, 32, size)
    upper = b.mul(m, b.or_(b.shl(first, half), second))
    return b.add(upper, b.lshr(b.mul(m, third), half))


def word_at(b: Assembler[V], number: V, k: int) -> V:
    """Word `number + k` of the digits, of a number up to 4."""
    word = b.constant(number, TWO_OVER_PI[k])
    for i in range(1, 5):
        word = b.select(
            b.icmp_unsigned("==", number, b.constant(number, i)), b.constant(number, TWO_OVER_PI[i + k]), word
        )
    return word


def joint(b: Assembler[V], first: V, second: V, shift: V) -> V:
    """32 bits of two words, from bit `shift`, which is below 32."""
    below = b.lshr(b.lshr(second, b.constant(shift, 1)), b.sub(b.constant(shift, 31), shift))
    return b.or_(b.shl(first, shift), below)


def if_finite(b: Assembler[V], x: V, value: V) -> V:
    is_finite = b.fcmp_ordered("<", b.fabs(x), b.constant(x, math.inf))
    return b.select(is_finite, value, b.constant(x, math.nan))


def tangent_at(b: Assembler[V], r: V, lost: V, n: V) -> V:
    """tan(r + lost + n·π/2)."""
    s, c, is_across = b.fadd(*sine_of(b, r, lost)), b.fadd(*cosine_of(b, r, lost)), is_odd(b, n, 1)
    return b.fdiv(b.select(is_across, b.fneg(c), s), b.select(is_across, s, c))


def odd(b: Assembler[V], x: V, function: Callable[[Assembler[V], V, V, V], V]) -> V:
    """A function that changes its sign with x."""
    size = function(b, *turned(b, b.fabs(x)))
    value = b.select(b.fcmp_ordered("<", x, b.constant(x, 0.0)), b.fneg(size), size)
    return if_finite(b, x, unless_zero(b, x, value))


def sin(b: Assembler[V], x: V) -> V:
    return odd(b, x, sine_at)


def cos(b: Assembler[V], x: V) -> V:
    r, lost, n = turned(b, b.fabs(x))
    return if_finite(b, x, sine_at(b, r, lost, b.add(n, b.constant(n, 1))))


def tan(b: Assembler[V], x: V) -> V:
    return odd(b, x, tangent_at)


FUNCTIONS: dict[tuple[type[Op], DType], Function] = {
    (trigonometry.sin.op, f32): sin,
    (trigonometry.cos.op, f32): cos,
    (trigonometry.tan.op, f32): tan,
}
