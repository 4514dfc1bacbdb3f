"""The exact remainder of floats, for languages whose `fmod` is x - y·trunc(x/y)."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.codegen.scalars.assembler import Assembler, V


def remainder(b: Assembler[V], x: V, y: V) -> V:
    """`fmod` of two f32 by long division of their significands: exact for every pair.

    Both sizes are whole numbers times a power of two. As on paper: subtract where it fits, double, once for each bit
    between the exponents.
    """
    size, by = b.fabs(x), b.fabs(y)
    (m, e), (n, f) = _parts(b, size), _parts(b, by)
    one = b.constant(m, 1)

    def step(state: Sequence[V]) -> Sequence[V]:
        remaining, left = state
        return b.shl(_reduced(b, remaining, n), one), b.sub(left, one)

    final, _ = b.repeated((m, b.sub(e, f)), lambda s: b.icmp_signed(">", s[1], b.constant(s[1], 0)), step)
    lowered = _scaled(b, _reduced(b, final, n), f, x)
    result = b.copysign(b.select(b.fcmp_ordered("<", size, by), size, lowered), x)
    is_number = b.and_(
        b.fcmp_ordered("<", size, b.constant(x, float("inf"))), b.fcmp_ordered(">", by, b.constant(x, 0.0))
    )
    return b.select(is_number, result, b.constant(x, float("nan")))


def _parts(b: Assembler[V], size: V) -> tuple[V, V]:
    """A significand of 24 bits and the exponent field that belongs to it, below 1 for subnormal numbers."""
    is_small = b.fcmp_ordered("<", size, b.constant(size, 2.0**-126))
    bits = b.bits(b.select(is_small, b.fmul(size, b.constant(size, 2.0**24)), size))
    mantissa = b.or_(b.and_(bits, b.constant(bits, 0x7FFFFF)), b.constant(bits, 0x800000))
    lifted = b.select(is_small, b.constant(bits, 24), b.constant(bits, 0))
    return mantissa, b.sub(b.lshr(bits, b.constant(bits, 23)), lifted)


def _reduced(b: Assembler[V], remaining: V, by: V) -> V:
    return b.select(b.icmp_unsigned(">=", remaining, by), b.sub(remaining, by), remaining)


def _scaled(b: Assembler[V], mantissa: V, exponent: V, like: V) -> V:
    """`whole·2**(exponent - 150)`, which is a float: in two factors, because one may lie below the normal ones."""
    is_low = b.icmp_signed("<=", exponent, b.constant(exponent, 23))
    field = b.sub(exponent, b.select(is_low, b.constant(exponent, 23 - 64), b.constant(exponent, 23)))
    factor = b.from_bits(b.shl(field, b.constant(field, 23)), like)
    scale = b.select(is_low, b.constant(like, 2.0**-64), b.constant(like, 1.0))
    # Below 2**24, so its float is constructed from its bits: 2**23 + whole, less 2**23.
    top = b.icmp_unsigned(">=", mantissa, b.constant(mantissa, 0x800000))
    low = b.and_(mantissa, b.constant(mantissa, 0x7FFFFF))
    half = b.fsub(b.from_bits(b.or_(low, b.constant(low, 0x4B000000)), like), b.constant(like, 2.0**23))
    exact = b.fadd(half, b.select(top, b.constant(like, 2.0**23), b.constant(like, 0.0)))
    return b.fmul(b.fmul(exact, factor), scale)
