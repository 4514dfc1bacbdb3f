"""Complex arithmetic in real numbers, for targets that compute no complex ones: a table that their plugins offer.

Complex values are stored as they are everywhere, and read as pairs (`ViewAsReal`), which is no work. Each rule takes the parts of
its operands and makes a complex value of the parts of its result; where that is what the next rule takes apart, it takes
the parts themselves, so between two rules nothing is stored as complex.

Products and quotients are NumPy's: the schoolbook product, and Smith's quotient, which does not overflow where the quotient
does not. Logarithms near |z| = 1 are exact to an ulp of 1, and not of themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import evolve

from rlx_core.ir.graph import Constant, Value, ambient_builder
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
from rlx_core.ops.activation import exp, log, sqrt
from rlx_core.ops.arithmetic import absolute, atan2, maximum, minimum
from rlx_core.ops.complex import MakeComplex, make_complex
from rlx_core.ops.conversion import as_dtype
from rlx_core.ops.cumulative import Cumsum
from rlx_core.ops.floating import copysign
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.movement import Concat, concat, narrow
from rlx_core.ops.pairs.pairs import ViewAsComplex, view_as_complex, view_as_real
from rlx_core.ops.selection import where
from rlx_core.ops.structural import expand, reshape
from rlx_core.ops.trigonometry import cos, cosh, sin, sinh
from rlx_core.pipeline.select.dispatch import LegalizationTable

__all__ = ["complex_parts"]

Parts = tuple[Any, Any]
"""The real and the imaginary part."""


def parts(z: Value) -> Parts:
    """The parts of a complex value: those that it was made of, where it was, or slices of what lies in memory."""
    op, operands = z.node.op, z.node.operands
    if isinstance(op, Constant):
        # Values: functions of arrays alone would be computed here and now, and be no nodes.
        array, builder = op.value.array, ambient_builder()
        assert builder is not None, "rules are applied inside a graph"
        return builder.constant(array.real.copy()), builder.constant(array.imag.copy())
    if isinstance(op, MakeComplex):
        return _spread(operands[0], z), _spread(operands[1], z)
    sides = _sides(operands[0]) if isinstance(op, ViewAsComplex) else []
    if sides:
        re, im = sides
        return reshape(re, z.shape), reshape(im, z.shape)
    pairs = view_as_real(z)
    re, im = (reshape(narrow(pairs, axis=z.ndim, start=k, length=1), z.shape) for k in (0, 1))
    return re, im


def _sides(pairs: Value | None) -> list[Value]:
    """The two parts that are put side by side here, each with an axis of 1 for the side; none if it was not so made."""
    if pairs is None or not isinstance(pairs.node.op, Concat) or pairs.node.op.axis % pairs.ndim != pairs.ndim - 1:
        return []
    sides = list(pairs.node.present())
    return sides if [v.shape[-1] for v in sides] == [1, 1] else []


def _spread(part: Any, z: Value) -> Any:
    return part if part.shape == z.shape else expand(part, z.shape)


# ------------------------------------------------------------------------------------------ formulas on parts


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


def modulus(z: Parts) -> Any:
    """√(re² + im²) by the larger part, so that no square overflows; not every language has `hypot`."""
    sides = absolute(z[0]), absolute(z[1])
    larger, smaller = maximum(*sides), minimum(*sides)
    ratio = smaller / where(larger == 0, 1, larger)
    is_infinite = comparison.isinf(sides[0]) | comparison.isinf(sides[1])
    return where(is_infinite, float("inf"), larger * sqrt(1 + ratio * ratio))


def square_root(z: Parts) -> Parts:
    """The root with a real part of at least 0, by the half of it that does not cancel."""
    re, im = z
    root = sqrt(0.5 * (modulus(z) + absolute(re)))
    other = im / where(root == 0, 1, 2 * root)
    return where(re >= 0, root, absolute(other)), where(re >= 0, other, copysign(root, im))


def logarithm(z: Parts) -> Parts:
    return log(modulus(z)), atan2(z[1], z[0])


FORMULAS: Final[dict[Any, Callable[..., Parts]]] = {
    arithmetic.add: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    arithmetic.subtract: lambda a, b: (a[0] - b[0], a[1] - b[1]),
    arithmetic.multiply: product,
    arithmetic.divide: quotient,
    arithmetic.negative: lambda z: (-z[0], -z[1]),
    arithmetic.square: lambda z: product(z, z),
    arithmetic.reciprocal: lambda z: quotient((1.0 + 0 * z[0], 0 * z[0]), z),
    conversion.conjugate: lambda z: (z[0], -z[1]),
    activation.exp: lambda z: (exp(z[0]) * cos(z[1]), exp(z[0]) * sin(z[1])),
    activation.log: logarithm,
    activation.sqrt: square_root,
    trigonometry.sin: lambda z: (sin(z[0]) * cosh(z[1]), cos(z[0]) * sinh(z[1])),
    trigonometry.cos: lambda z: (cos(z[0]) * cosh(z[1]), -(sin(z[0]) * sinh(z[1]))),
    trigonometry.sinh: lambda z: (sinh(z[0]) * cos(z[1]), cosh(z[0]) * sin(z[1])),
    trigonometry.cosh: lambda z: (cosh(z[0]) * cos(z[1]), sinh(z[0]) * sin(z[1])),
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
"""Ops that do to a complex tensor what they do to its parts."""

complex_parts = LegalizationTable("complex-parts")


def _takes_complex(operands: tuple[Value | None, ...]) -> bool:
    return any(v is not None and v.dtype.is_complex for v in operands)


def _formula(rule: Callable[..., Parts]) -> Callable[..., Any]:
    return lambda op, *x: make_complex(*rule(*map(parts, x))) if _takes_complex(x) else None


def _measure(rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda op, *x: rule(*map(parts, x)) if _takes_complex(x) else None


def _each_part(op: Op, *x: Value | None) -> Any:
    if not _takes_complex(x):
        return None
    whole = [parts(v) if v is not None and v.dtype.is_complex else (v, v) for v in x]
    return make_complex(*(op(*(v[k] for v in whole)) for k in (0, 1)))


for _function, _rule in FORMULAS.items():
    complex_parts.register(_function.op)(_formula(_rule))
for _function, _rule in MEASURES.items():
    complex_parts.register(_function.op)(_measure(_rule))
for _op in EACH_PART:
    complex_parts.register(_op)(_each_part)


@complex_parts.register(MakeComplex)
def _made(op: Op, re: Value, im: Value) -> Any:
    """The parts side by side, read as complex."""
    shape = op.infer(re.type, im.type).shape  # type: ignore[misc]
    sides = (v if v.shape == shape else expand(v, shape) for v in (re, im))
    return view_as_complex(concat([reshape(v, (*shape, 1)) for v in sides], axis=len(shape)))


@complex_parts.register(conversion.Cast)
def _cast(op: conversion.Cast, x: Value) -> Any:
    if x.dtype.is_complex:
        re, im = parts(x)
        if not op.to.is_complex:
            return (re != 0) | (im != 0)
        return make_complex(*(as_dtype(v, op.to.component) for v in (re, im)))
    if not op.to.is_complex:
        return None
    re = as_dtype(x, op.to.component)
    return make_complex(re, creation.zeros_like(re))


@complex_parts.register(MatMul)
def _matmul(op: MatMul, a: Value, b: Value) -> Any:
    """Four products of parts."""
    if not a.dtype.is_complex:
        return None
    own = op if op.acc_dtype is None else evolve(op, acc_dtype=op.acc_dtype.component)
    (a_re, a_im), (b_re, b_im) = parts(a), parts(b)
    return make_complex(own(a_re, b_re) - own(a_im, b_im), own(a_re, b_im) + own(a_im, b_re))
