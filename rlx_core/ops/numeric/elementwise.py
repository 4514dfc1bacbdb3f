"""Elementwise functions of NumPy that are compositions of rlx's ops."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import f32, f64
from rlx_core.ops import complex
from rlx_core.ops.arguments import flag, number
from rlx_core.ops.arithmetic import (
    abs,
    add,
    divide,
    logaddexp,
    maximum,
    minimum,
    multiply,
    negative,
    remainder,
    subtract,
)
from rlx_core.ops.array_creation import asarray
from rlx_core.ops.array_elementwise import dtype_of
from rlx_core.ops.array_info import finfo
from rlx_core.ops.array_shapes import shape_of
from rlx_core.ops.array_statistics import all
from rlx_core.ops.comparison import (
    equal,
    greater,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_or,
    not_equal,
    signbit,
)
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import full
from rlx_core.ops.linalg import operand
from rlx_core.ops.selection import where
from rlx_core.ops.trigonometry import sin

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike


def floating(x: Any) -> Any:
    """Return `x` in floating point: integers and bools become f32, 64-bit ones f64, as in `mean`."""
    source_dtype = dtype_of(x)
    if source_dtype.is_differentiable:
        return operand(x)
    return cast(operand(x), to=f64 if source_dtype.itemsize == 8 else f32)


@checked_call
def angle(x: ArrayLike) -> Array:
    """The phase in (-π, π], 0 at 0; for a real number π below 0, else 0, and NaN for NaN."""
    if dtype_of(x).is_complex:
        return complex.angle(x)
    x = floating(x)
    return where(isnan(x), x, multiply(cast(less(x, 0), to=dtype_of(x)), math.pi))


@checked_call
def deg2rad(x: ArrayLike) -> Array:
    """Degrees as radians."""
    return multiply(floating(x), math.pi / 180)


@checked_call
def rad2deg(x: ArrayLike) -> Array:
    """Radians as degrees."""
    return multiply(floating(x), 180 / math.pi)


@checked_call
def fmax(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The larger of two numbers; the number if one is NaN."""
    return where(isnan(x1), x2, where(isnan(x2), x1, maximum(x1, x2)))


@checked_call
def fmin(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The smaller of two numbers; the number if one is NaN."""
    return where(isnan(x1), x2, where(isnan(x2), x1, minimum(x1, x2)))


@checked_call
def fmod(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The remainder of a division rounded towards 0, like C's `fmod`: it has the sign of `x1`, also if it is 0.

    `remainder` has the sign of `x2`.
    """
    if dtype_of(x1).is_float or dtype_of(x2).is_float:
        residue = remainder(abs(x1), abs(x2))
        return where(signbit(floating(x1)), negative(residue), residue)
    residue = remainder(x1, x2)
    # Not by absolute values: that of the smallest integer overflows.
    return where(logical_and(not_equal(residue, 0), less(x1, 0) ^ less(x2, 0)), subtract(residue, x2), residue)


@checked_call
def heaviside(x1: ArrayLike, x2: ArrayLike) -> Array:
    """0 below 0, 1 above it, and `x2` at 0; NaN is preserved."""
    x1 = floating(x1)
    return where(isnan(x1), x1, where(equal(x1, 0), x2, where(greater(x1, 0), 1, 0)))


@checked_call
def logaddexp2(x1: ArrayLike, x2: ArrayLike) -> Array:
    """log₂(2^x1 + 2^x2), without overflow."""
    return divide(logaddexp(multiply(floating(x1), math.log(2)), multiply(floating(x2), math.log(2))), math.log(2))


@checked_call
def sinc(x: ArrayLike) -> Array:
    """sin(πx) / πx, and 1 at 0."""
    angle = multiply(floating(x), math.pi)
    is_0 = equal(angle, 0)
    # Both branches are differentiated: the one that is not selected must not divide by 0.
    return where(is_0, 1, divide(sin(angle), where(is_0, 1, angle)))


@checked_call
def isposinf(x: ArrayLike) -> Array:
    """Whether a number is +∞."""
    return logical_and(isinf(x), greater(x, 0))


@checked_call
def isneginf(x: ArrayLike) -> Array:
    """Whether a number is -∞."""
    return logical_and(isinf(x), less(x, 0))


@checked_call
def nan_to_num(
    x: ArrayLike, nan: ArrayLike = 0.0, posinf: ArrayLike | None = None, neginf: ArrayLike | None = None
) -> Array:
    """Numbers in place of NaN and the infinities: by default 0, and the largest and the lowest of the dtype."""
    x = asarray(x)
    source_dtype = dtype_of(x)
    if not source_dtype.is_float:
        return x
    largest = finfo(source_dtype).max
    up, down = (largest if posinf is None else posinf), (-largest if neginf is None else neginf)
    return where(isnan(x), nan, where(isposinf(x), up, where(isneginf(x), down, x)))


@checked_call
def isclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Whether |a - b| <= atol + rtol |b|; equal infinities are close, and NaNs are with `equal_nan`."""
    a, b = floating(a), floating(b)
    # An infinite difference would be within an infinite bound.
    bound = add(number("isclose: atol", atol), multiply(number("isclose: rtol", rtol), abs(b)))
    near = logical_and(isfinite(b), less_equal(abs(subtract(a, b)), bound))
    close = logical_or(equal(a, b), near)
    return logical_or(close, logical_and(isnan(a), isnan(b))) if flag("isclose: equal_nan", equal_nan) else close


@checked_call
def allclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Whether all elements are close, as in `isclose`; a bool scalar."""
    return all(isclose(a, b, rtol, atol, equal_nan))


@checked_call
def array_equal(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Whether both have the same shape and elements; a bool scalar."""
    same = tuple(shape_of(a1)) == tuple(shape_of(a2))
    return all(equal(a1, a2)) if same else full((), False)
