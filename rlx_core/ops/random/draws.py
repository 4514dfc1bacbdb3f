"""Random numbers from keys: bits are converted to uniform numbers, and these by inverse distribution functions.

Element i of a result is computed from word i of the key's stream (for f64 from words 2i and 2i + 1), so the generation fuses
with its consumers, and integers and uniforms are the same on every device. Results of `erfinv` or `log` agree as closely as
these functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from rlx_core.errors import ConfigError, DtypeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import as_array
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import DType, bf16, dtype, f16, f32, f64, i32, i64, u8, u16, u32, u64
from rlx_core.ir.graph import Value
from rlx_core.ir.types import broadcast_shapes
from rlx_core.ops.activation import erf, erfinv, log, log1p
from rlx_core.ops.arguments import number
from rlx_core.ops.arithmetic import absolute, add, multiply, negative, subtract
from rlx_core.ops.array_shapes import shape_of
from rlx_core.ops.bitwise import bitwise_and, bitwise_left_shift, bitwise_or, bitwise_right_shift
from rlx_core.ops.comparison import less
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import scalar
from rlx_core.ops.floating import copysign, nextafter
from rlx_core.ops.random.bits import random_bits
from rlx_core.ops.random.keys import dims, one_key
from rlx_core.ops.selection import clip, stop_gradient, where
from rlx_core.trees.key import Key

__all__ = ["bernoulli", "bits", "exponential", "gumbel", "laplace", "normal", "truncated_normal", "uniform"]

Shape = Dim | Sequence[Dim]

DIGITS: Final = {f16: 11, bf16: 8, f32: 24, f64: 53}
"""Number of random bits of a uniform number of a dtype: all integers of this width are exact in the dtype."""


@checked_call
def bits(key: Key, shape: Shape = (), dtype: DType | str = u32) -> Any:
    """Integers with all bits random.

    Args:
        key: One key.
        shape: The shape of the result.
        dtype: u8, u16, u32 or u64; the narrow ones are the upper bits of those of u32.

    Raises:
        DtypeError: It is another dtype.
    """
    words, result_dtype = one_key("random.bits", key), _dtype(dtype)
    if result_dtype not in (u8, u16, u32, u64):
        raise DtypeError(f"random.bits: dtype must be u8, u16, u32 or u64, not {result_dtype}")
    drawn = random_bits(words, shape=dims("random.bits: shape", shape), dtype=u64 if result_dtype is u64 else u32)
    if result_dtype.itemsize >= 4:
        return drawn
    return cast(bitwise_right_shift(drawn, scalar(32 - 8 * result_dtype.itemsize, u32)), to=result_dtype)


_dtype = dtype


@checked_call
def uniform(key: Key, shape: Shape = (), dtype: DType | str = f32, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Uniform numbers from [minval, maxval).

    Before scaling they are multiples of 2^-24 (f32; 2^-53 in f64, 2^-11 in f16, 2^-8 in bf16). A result that rounds to `maxval`
    is replaced by the number below it. `minval` and `maxval` may be arrays that broadcast to `shape`, and have derivatives.

    Raises:
        DtypeError: The dtype is not floating-point.
        ConfigError: `minval` is above `maxval`.
    """
    words, result_dtype = one_key("random.uniform", key), float_of("random.uniform", dtype)
    y = unit(words, dims("random.uniform: shape", shape), result_dtype)
    if _are_numbers(minval, maxval):
        if not minval <= maxval:
            raise ConfigError(f"random.uniform: minval must be at most maxval, not {minval} and {maxval}")
        if (minval, maxval) == (0, 1):
            return y
    low, high = parameter(minval, result_dtype), parameter(maxval, result_dtype)
    y = add(multiply(y, subtract(high, low)), low)
    return where(less(y, high), y, stop_gradient(nextafter(high, low)))


@checked_call
def normal(key: Key, shape: Shape = (), dtype: DType | str = f32) -> Any:
    """Numbers of the normal distribution with mean 0 and standard deviation 1.

    √2·erfinv(x) of an x that is uniform on (-1, 1) and symmetric: in f32 an odd multiple of 2^-24, which limits results to
    5.42; in f64 of 2^-53, 8.21. Narrow floats are those of f32, rounded.
    """
    words, result_dtype = one_key("random.normal", key), float_of("random.normal", dtype)
    x = _symmetric(words, dims("random.normal: shape", shape), result_dtype.accumulator)
    return cast(multiply(erfinv(x), scalar(math.sqrt(2), result_dtype.accumulator)), to=result_dtype)


@checked_call
def truncated_normal(key: Key, lower: Any, upper: Any, shape: Shape | None = None, dtype: DType | str = f32) -> Any:
    """Numbers of the standard normal distribution between `lower` and `upper`.

    Computed by the inverse of the distribution, which resolves few numbers beyond 4 in f32: use f64 if both bounds are there.

    Args:
        key: One key.
        lower, upper: Numbers, or arrays that broadcast to `shape`.
        shape: The shape of the result; by default the broadcast shape of the bounds.
        dtype: A float dtype.

    Raises:
        ConfigError: `lower` is not below `upper`.
    """
    words, result_dtype = one_key("random.truncated_normal", key), float_of("random.truncated_normal", dtype)
    if _are_numbers(lower, upper) and not lower < upper:
        raise ConfigError(f"random.truncated_normal: lower must be below upper, not {lower} and {upper}")
    wide = result_dtype.accumulator
    low, high = parameter(lower, wide), parameter(upper, wide)
    result_shape = broadcast_shapes(shape_of(low), shape_of(high)) if shape is None else shape
    inverse = scalar(math.sqrt(0.5), wide)
    start, end = (erf(multiply(x, inverse)) for x in (low, high))
    place = inside(words, dims("random.truncated_normal: shape", result_shape), wide)
    x = add(multiply(place, subtract(end, start)), start)
    return cast(clip(multiply(erfinv(x), scalar(math.sqrt(2), wide)), low, high), to=result_dtype)


@checked_call
def exponential(key: Key, shape: Shape = (), dtype: DType | str = f32) -> Any:
    """Numbers of the exponential distribution of rate 1: -ln(1 - u)."""
    words, result_dtype = one_key("random.exponential", key), float_of("random.exponential", dtype)
    u = unit(words, dims("random.exponential: shape", shape), result_dtype.accumulator)
    return cast(negative(log1p(negative(u))), to=result_dtype)


@checked_call
def laplace(key: Key, shape: Shape = (), dtype: DType | str = f32) -> Any:
    """Numbers of the Laplace distribution with mean 0 and scale 1."""
    words, result_dtype = one_key("random.laplace", key), float_of("random.laplace", dtype)
    x = _symmetric(words, dims("random.laplace: shape", shape), result_dtype.accumulator)
    return cast(copysign(log1p(negative(absolute(x))), x), to=result_dtype)


@checked_call
def gumbel(key: Key, shape: Shape = (), dtype: DType | str = f32) -> Any:
    """Numbers of the standard Gumbel distribution: -ln(-ln u), with u from (0, 1)."""
    words, result_dtype = one_key("random.gumbel", key), float_of("random.gumbel", dtype)
    u = inside(words, dims("random.gumbel: shape", shape), result_dtype.accumulator)
    return cast(negative(log(negative(log(u)))), to=result_dtype)


@checked_call
def bernoulli(key: Key, p: Any = 0.5, shape: Shape | None = None) -> Any:
    """True with probability p: whether a uniform number is below it.

    Args:
        key: One key.
        p: A number, or an array that broadcasts to `shape`; traced values are clamped to 0..1.
        shape: The shape of the result; the shape of `p` by default.

    Raises:
        ConfigError: A known probability is outside of 0..1.
    """
    words = one_key("random.bernoulli", key)
    if not isinstance(p, Value):
        known = as_array(p)
        if not ((known >= 0) & (known <= 1)).all():
            raise ConfigError(f"random.bernoulli: p must be from 0 to 1, not {p!r}")
    float_dtype = f64 if not _are_numbers(p) and _dtype(_arrayed(p).dtype) is f64 else f32
    chance = parameter(p, float_dtype)
    result_shape = dims("random.bernoulli: shape", shape_of(chance) if shape is None else shape)
    return less(unit(words, result_shape, float_dtype), chance)


# --------------------------------------------------------------------------------------- their parts


def _whole(words: Any, shape: Sequence[Dim], dtype: DType) -> Any:
    """Return random integers with the number of random bits of a float, as i32 or i64."""
    if dtype is not f64:
        drawn = random_bits(words, shape=shape)
        return cast(bitwise_right_shift(drawn, scalar(32 - DIGITS[dtype], u32)), to=i32)
    drawn = random_bits(words, shape=shape, dtype=u64)
    first = bitwise_and(bitwise_right_shift(drawn, scalar(5, u64)), scalar((1 << 27) - 1, u64))
    second = bitwise_right_shift(drawn, scalar(38, u64))
    return cast(bitwise_or(bitwise_left_shift(first, scalar(26, u64)), second), to=i64)


def unit(words: Any, shape: Sequence[Dim], dtype: DType) -> Any:
    """Return numbers uniform in [0, 1)."""
    return multiply(cast(_whole(words, shape, dtype), to=dtype), scalar(2.0 ** -DIGITS[dtype], dtype))


def _odd(words: Any, shape: Sequence[Dim], dtype: DType, least: int, dropped: int) -> Any:
    """Return the odd integers from `least` on, exact as floats, after some of the random bits are dropped."""
    integer = _whole(words, shape, dtype)
    integer_dtype = i64 if dtype is f64 else i32
    if dropped:
        integer = bitwise_right_shift(integer, scalar(dropped, integer_dtype))
    return cast(add(multiply(integer, scalar(2, integer_dtype)), scalar(least, integer_dtype)), to=dtype)


def _symmetric(words: Any, shape: Sequence[Dim], dtype: DType) -> Any:
    """Return numbers uniform and symmetric in (-1, 1), never 0."""
    return multiply(_odd(words, shape, dtype, 1 - (1 << DIGITS[dtype]), 0), scalar(2.0 ** -DIGITS[dtype], dtype))


def inside(words: Any, shape: Sequence[Dim], dtype: DType) -> Any:
    """Return numbers uniform in (0, 1), with one bit less."""
    return multiply(_odd(words, shape, dtype, 1, 1), scalar(2.0 ** -DIGITS[dtype], dtype))


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(x, int | float) for x in values)


def _arrayed(x: Any) -> Any:
    return x if isinstance(x, Value) else as_array(x)


def parameter(x: Any, dtype: DType) -> Any:
    """Return a number or an array in a dtype."""
    return np.asarray(number("random: a bound", x), dtype.numpy) if _are_numbers(x) else cast(_arrayed(x), to=dtype)


def float_of(what: str, requested: DType | str) -> DType:
    resolved = _dtype(requested)
    if resolved not in DIGITS:
        raise DtypeError(f"{what}: dtype must be a float, not {resolved}")
    return resolved
