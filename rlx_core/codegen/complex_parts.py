"""Complex arithmetic as real arithmetic on parts: formulas for targets whose registers hold no complex number.

Products and quotients are NumPy's: the schoolbook product, and Smith's quotient, which does not overflow where the quotient
does not. Functions of infinite and large numbers are C's, but for what C leaves open; where |z| is 1 but for less than the
rounding of its parts, logarithms are exact to an ulp of 1 and not of themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from attrs import evolve

from rlx_core.ir.op import Op
from rlx_core.ops import (
    activation,
    arithmetic,
    comparison,
    complex,
    conversion,
    creation,
    dynamic,
    indexing,
    movement,
    reduction,
    scatter,
    selection,
    structural,
    trigonometry,
)
from rlx_core.ops.activation import exp, log, log1p, sqrt
from rlx_core.ops.arithmetic import absolute, atan2, maximum, minimum
from rlx_core.ops.conversion import as_dtype
from rlx_core.ops.cumulative import Cumsum
from rlx_core.ops.floating import copysign
from rlx_core.ops.selection import where
from rlx_core.ops.trigonometry import cos, cosh, sin, sinh

Parts = tuple[Any, Any]
"""The real and the imaginary part."""


def product(a: Parts, b: Parts) -> Parts:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def quotient(a: Parts, b: Parts) -> Parts:
    """Smith 1962, "Algorithm 116: Complex division": the smaller part of the divisor over the larger one first."""
    c, d = b
    is_real_larger = absolute(c) >= absolute(d)
    is_zero = (c == 0) & (d == 0)
    larger, smaller = where(is_real_larger, c, d), where(is_real_larger, d, c)
    ratio = where(is_zero, 0, smaller / where(is_zero, 1, larger))
    divisor = larger + smaller * ratio
    re = where(is_real_larger, a[0] + a[1] * ratio, a[0] * ratio + a[1])
    im = where(is_real_larger, a[1] - a[0] * ratio, a[1] * ratio - a[0])
    return re / divisor, im / divisor


def ordered(z: Parts) -> Parts:
    """The sizes of both parts, the larger one first."""
    sides = absolute(z[0]), absolute(z[1])
    return maximum(*sides), minimum(*sides)


def modulus(z: Parts) -> Any:
    """√(re² + im²) by the larger part, so that no square overflows; not every language has `hypot`."""
    larger, smaller = ordered(z)
    ratio = smaller / where(larger == 0, 1, larger)
    is_infinite = comparison.isinf(z[0]) | comparison.isinf(z[1])
    return where(is_infinite, float("inf"), larger * sqrt(1 + ratio * ratio))


def quartered(z: Parts) -> tuple[Parts, Any]:
    """z, or a quarter of it where its modulus could overflow; and where that is."""
    is_large = ordered(z)[0] > 1e30
    re, im = (where(is_large, 0.25 * part, part) for part in z)
    return (re, im), is_large


def square_root(z: Parts) -> Parts:
    """The root with a real part of at least 0, by the half of it that does not cancel."""
    (re, im), is_large = quartered(z)
    is_infinite = comparison.isinf(im)
    root = sqrt(0.5 * (modulus((re, im)) + absolute(re)))
    root = where(is_infinite, float("inf"), where(is_large, 2 * root, root))
    other = where(is_infinite, im, z[1] / where(root == 0, 1, 2 * root))
    return where(re >= 0, root, absolute(other)), where(re >= 0, other, copysign(root, im))


def logarithm(z: Parts) -> Parts:
    """Return log(z); near |z| = 1 it is computed from |z|² - 1."""
    few, is_large = quartered(z)
    size = modulus(few)
    larger, smaller = ordered(few)
    near = 0.5 * log1p((larger - 1) * (larger + 1) + smaller * smaller)
    away = where(is_large, log(size) + math.log(4), log(size))
    return where((size > 0.7) & (size < 1.5), near, away), atan2(z[1], z[0])


_LARGE_EXPONENT: Final = 80.0
"""An exponent below which e^x overflows in no dtype of complex parts."""


def times(a: Any, b: Any) -> Any:
    """a · b, of which a factor of 0 makes 0 even if the other one is not finite: C's rules for functions of complex numbers."""
    product = a * b
    zero = where(a == 0, a * copysign(1.0, b), b * copysign(1.0, a))
    return where(comparison.isfinite(product) | ((a != 0) & (b != 0)), product, zero)


def exponential(z: Parts, power: Callable[[Any], Any] = exp, scale: float = 1.0) -> Parts:
    """power(re) (cos(scale·im) + i sin(scale·im)), by default e^z; by two factors where a power overflows before a part does.

    Source:
        C17, Annex G.6.3.1: e^-∞ is 0 whatever the angle is, and an infinite or NaN angle makes NaN of every finite size.
    """
    re, im = z
    angle = im if scale == 1.0 else scale * im
    is_large = re > _LARGE_EXPONENT
    half = power(where(is_large, 0.5 * re, re))
    remaining = where(is_large, half, 1)
    # Of an infinite angle sine and cosine are NaN, which a size of 0 by underflow must not hide.
    is_undefined = ~comparison.isfinite(im) & comparison.isfinite(re)
    parts = (times(times(half, part), remaining) for part in (cos(angle), sin(angle)))
    first, second = (where(is_undefined, math.nan, part) for part in parts)
    return where((re == math.inf) & ~comparison.isfinite(im), math.inf, first), second


def unbounded(part: Any, size: Any, angle: Any) -> Any:
    """A part of a hyperbolic function that is infinite where the argument's size is, though the angle is no number."""
    return where(comparison.isinf(size) & ~comparison.isfinite(angle), math.inf, part)


FORMULAS: Final[dict[Any, Callable[..., Parts]]] = {
    arithmetic.add: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    arithmetic.subtract: lambda a, b: (a[0] - b[0], a[1] - b[1]),
    arithmetic.multiply: product,
    arithmetic.divide: quotient,
    arithmetic.negative: lambda z: (-z[0], -z[1]),
    arithmetic.square: lambda z: product(z, z),
    arithmetic.reciprocal: lambda z: quotient((1.0 + 0 * z[0], 0 * z[0]), z),
    conversion.conjugate: lambda z: (z[0], -z[1]),
    activation.exp: exponential,
    activation.log: logarithm,
    activation.sqrt: square_root,
    trigonometry.sin: lambda z: (times(sin(z[0]), cosh(z[1])), unbounded(times(cos(z[0]), sinh(z[1])), z[1], z[0])),
    trigonometry.cos: lambda z: (unbounded(times(cos(z[0]), cosh(z[1])), z[1], z[0]), -times(sin(z[0]), sinh(z[1]))),
    trigonometry.sinh: lambda z: (unbounded(times(sinh(z[0]), cos(z[1])), z[0], z[1]), times(cosh(z[0]), sin(z[1]))),
    trigonometry.cosh: lambda z: (unbounded(times(cosh(z[0]), cos(z[1])), z[0], z[1]), times(sinh(z[0]), sin(z[1]))),
}
"""Functions of complex numbers → the parts of their results."""

MEASURES: Final[dict[Any, Callable[..., Any]]] = {
    conversion.real: lambda z: z[0],
    complex.imag: lambda z: z[1],
    complex.complex_abs: modulus,
    complex.complex_norm_sq: lambda z: z[0] * z[0] + z[1] * z[1],
    complex.angle: lambda z: where((z[0] == 0) & (z[1] == 0), 0, atan2(z[1], z[0])),
    comparison.equal: lambda a, b: (a[0] == b[0]) & (a[1] == b[1]),
    comparison.not_equal: lambda a, b: (a[0] != b[0]) | (a[1] != b[1]),
    comparison.isfinite: lambda z: comparison.isfinite(z[0]) & comparison.isfinite(z[1]),
    comparison.isinf: lambda z: comparison.isinf(z[0]) | comparison.isinf(z[1]),
    comparison.isnan: lambda z: comparison.isnan(z[0]) | comparison.isnan(z[1]),
}
"""Functions from complex numbers to others → their results."""

EACH_PART: Final[tuple[type[Op], ...]] = (
    structural.Reshape,
    structural.Expand,
    structural.Transpose,
    structural.Sum,
    reduction.Mean,
    Cumsum,
    movement.Narrow,
    movement.Concat,
    movement.Pad,
    movement.Flip,
    creation.Full,
    indexing.Gather,
    indexing.ScatterAdd,
    scatter.Scatter,
    selection.Where,
    selection.StopGradient,
    dynamic.DynamicSlice,
    dynamic.DynamicUpdateSlice,
)
"""Ops that do to a complex tensor what they do to its parts, see `of_parts`."""


def of_parts(op: Any) -> tuple[Any, Any]:
    """Return the ops that an op of `EACH_PART` applies to the real and to the imaginary parts."""
    if isinstance(op, indexing.Gather):
        return evolve(op, fill=op.fill.real), evolve(op, fill=op.fill.imag)
    return op, op


def converted(op: conversion.Cast, x: Any) -> Any:
    """A cast from or to complex numbers: `x` is parts where it is complex, and so is what comes of it."""
    if isinstance(x, tuple):
        re, im = x
        return (
            (as_dtype(re, op.to.component), as_dtype(im, op.to.component))
            if op.to.is_complex
            else (re != 0) | (im != 0)
        )
    re = as_dtype(x, op.to.component)
    return re, creation.zeros_like(re)
