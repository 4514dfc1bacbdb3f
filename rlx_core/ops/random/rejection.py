"""Sampling by rejection: gamma numbers and distributions derived from them; Poisson numbers.

A fixed number of tries is made for all elements at once, so that an element depends on its own words alone and the lengths of
loops do not depend on data. The probability that all tries are rejected is below 2^-32; the last one is used then.
"""

from __future__ import annotations

import math
from typing import Any

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import DType, dtype, f32, i32
from rlx_core.ir.graph import Value
from rlx_core.ops.activation import exp, log, log1p, rsqrt, sqrt
from rlx_core.ops.arithmetic import absolute, add, divide, maximum, multiply, negative, square, subtract
from rlx_core.ops.array_shapes import broadcast_to, reshape, shape_of
from rlx_core.ops.array_statistics import max as largest
from rlx_core.ops.array_statistics import sum as total
from rlx_core.ops.comparison import greater, greater_equal, less, less_equal, logical_and, logical_not, logical_or
from rlx_core.ops.conversion import cast
from rlx_core.ops.creation import full
from rlx_core.ops.gamma import lgamma
from rlx_core.ops.movement import narrow
from rlx_core.ops.piecewise import floor
from rlx_core.ops.random.draws import Shape, float_of, inside, normal, unit
from rlx_core.ops.random.gamma_slope import following
from rlx_core.ops.random.inverses import expect_known, shape_for
from rlx_core.ops.random.keys import one_key, split
from rlx_core.ops.selection import stop_gradient, where
from rlx_core.trees.key import Key

__all__ = ["beta", "chisquare", "dirichlet", "gamma", "loggamma", "poisson", "t"]

GAMMA_TRIES = 8
"""Each try is accepted with a probability of at least 0.95 (Marsaglia and Tsang's table)."""

POISSON_TRIES = 20
"""Each try is accepted with a probability of at least 0.7 if the rate is 10 or more (Hörmann's figure 3)."""

FEW = 10.0
"""Below this rate Poisson numbers are looked up in the running sum of their probabilities, which ends at `TERMS`."""

TERMS = 44


@checked_call
def gamma(key: Key, a: Any, shape: Shape | None = None, dtype: DType | str = f32) -> Any:
    """Numbers of the gamma distribution with shape parameter `a` and scale 1.

    Args:
        key: One key.
        a: A number above 0, or an array that broadcasts to `shape`. Its derivative is the implicit one, of first order.
        shape: The shape of the result; the shape of `a` by default.
        dtype: A float dtype. For small `a`, most numbers underflow; see `loggamma`.

    Raises:
        ConfigError: `a` is known, and not above 0.
        MissingRuleError: When it is differentiated by `a` twice.

    Source:
        Marsaglia, Tsang 2000, "A simple method for generating gamma variables", ACM TOMS 26(3).
    """
    result_dtype = float_of("random.gamma", dtype)
    main, boost = _gamma_parts("random.gamma", key, a, shape, result_dtype)
    return cast(multiply(main, exp(boost)), to=result_dtype)


@checked_call
def loggamma(key: Key, a: Any, shape: Shape | None = None, dtype: DType | str = f32) -> Any:
    """The logarithm of the numbers of `gamma`, without underflow for small `a`."""
    result_dtype = float_of("random.loggamma", dtype)
    main, boost = _gamma_parts("random.loggamma", key, a, shape, result_dtype)
    return cast(add(log(main), boost), to=result_dtype)


@checked_call
def beta(key: Key, a: Any, b: Any, shape: Shape | None = None, dtype: DType | str = f32) -> Any:
    """Numbers from 0 to 1 of the beta distribution: x / (x + y) of gamma numbers x and y.

    Args:
        key: One key.
        a, b: Numbers above 0, or arrays that broadcast to `shape`.
        shape: The shape of the result; by default the broadcast shape of the two.
        dtype: A float dtype.

    Raises:
        ConfigError: One of the two is known, and not above 0.
        MissingRuleError: When it is differentiated by one of them twice.
    """
    result_dtype = float_of("random.beta", dtype)
    wide = [expect_known(f"random.beta: {n}", x, result_dtype, above=0) for n, x in (("a", a), ("b", b))]
    result_shape = shape_for("random.beta", shape, *wide)
    x, y = (
        loggamma(k, p, result_shape, result_dtype.accumulator)
        for k, p in zip(_keys("random.beta", key, 2), wide, strict=True)
    )
    largest = maximum(x, y)
    x, y = exp(subtract(x, largest)), exp(subtract(y, largest))
    return cast(divide(x, add(x, y)), to=result_dtype)


@checked_call
def dirichlet(key: Key, alpha: Any, shape: Shape | None = None, dtype: DType | str = f32) -> Any:
    """Probabilities of n categories, with sum 1: gamma numbers divided by their sum.

    Args:
        key: One key.
        alpha: [.., n], above 0.
        shape: The shape of the result without the last axis; that of alpha's rows by default.
        dtype: A float dtype.

    Returns:
        f[*shape, n].

    Raises:
        ConfigError: alpha is known, and not above 0.
        ShapeError: alpha has no axis.
        MissingRuleError: When it is differentiated by alpha twice.
    """
    result_dtype = float_of("random.dirichlet", dtype)
    wide = expect_known("random.dirichlet: alpha", alpha, result_dtype, above=0)
    alpha_shape = tuple(shape_of(wide))
    if not alpha_shape:
        raise ShapeError("random.dirichlet: alpha must be [.., n], not a scalar")
    rows = alpha_shape[:-1] if shape is None else shape_for("random.dirichlet", shape)
    x = loggamma(key, wide, (*rows, alpha_shape[-1]), result_dtype.accumulator)
    x = exp(subtract(x, largest(x, axis=-1, keepdims=True)))
    return cast(divide(x, total(x, axis=-1, keepdims=True)), to=result_dtype)


@checked_call
def chisquare(key: Key, df: Any, shape: Shape | None = None, dtype: DType | str = f32) -> Any:
    """The sum of the squares of `df` normal numbers: twice a gamma number of df / 2.

    Args:
        key: One key.
        df: A number above 0, or an array that broadcasts to `shape`.
        shape: The shape of the result; the shape of `df` by default.
        dtype: A float dtype.

    Raises:
        ConfigError: `df` is known, and not above 0.
        MissingRuleError: When it is differentiated by `df` twice.
    """
    result_dtype = float_of("random.chisquare", dtype)
    half = multiply(expect_known("random.chisquare: df", df, result_dtype, above=0), 0.5)
    return cast(multiply(gamma(key, half, shape, result_dtype.accumulator), 2.0), to=result_dtype)


@checked_call
def t(key: Key, df: Any, shape: Shape | None = None, dtype: DType | str = f32) -> Any:
    """Numbers of Student's t distribution with `df` degrees of freedom: a normal number divided by √(chi-square / df).

    Args:
        key: One key.
        df: A number above 0, or an array that broadcasts to `shape`.
        shape: The shape of the result; the shape of `df` by default.
        dtype: A float dtype.

    Raises:
        ConfigError: `df` is known, and not above 0.
        MissingRuleError: When it is differentiated by `df` twice.
    """
    result_dtype = float_of("random.t", dtype)
    half = multiply(expect_known("random.t: df", df, result_dtype, above=0), 0.5)
    result_shape = shape_for("random.t", shape, half)
    first, second = _keys("random.t", key, 2)
    spread = rsqrt(divide(gamma(second, half, result_shape, result_dtype.accumulator), half))
    return cast(multiply(normal(first, result_shape, result_dtype.accumulator), spread), to=result_dtype)


@checked_call
def poisson(key: Key, lam: Any, shape: Shape | None = None, dtype: DType | str = i32) -> Any:
    """Numbers of the Poisson distribution: the number of events, of which `lam` are expected.

    Args:
        key: One key.
        lam: The rate, from 0 to 1e6; a number, or an array that broadcasts to `shape`.
        shape: The shape of the result; the shape of `lam` by default.
        dtype: An integer dtype, which can represent the results.

    Raises:
        ConfigError: `lam` is known, and out of range.
        DtypeError: The dtype is not an integer dtype.

    Source:
        Hörmann 1993, "The transformed rejection method for generating Poisson random variables", algorithm PTRS.
    """
    result_dtype = _dtype(dtype)
    if not result_dtype.is_integer:
        raise DtypeError(f"random.poisson: dtype must be an integer, not {result_dtype}")
    rate = expect_known("random.poisson: lam", lam, f32, least=0, maximum=1e6)
    result_shape = shape_for("random.poisson", shape, rate)
    first, second, third = (k.words for k in _keys("random.poisson", key, 3))
    is_low = less(rate, FEW)
    low = _poisson_by_inversion(unit(first, result_shape, f32), where(is_low, rate, 1.0))
    u, v = (draw(words, (POISSON_TRIES, *result_shape), f32) for draw, words in ((inside, second), (inside, third)))
    high = _poisson_by_rejection(subtract(u, 0.5), v, where(is_low, FEW, rate))
    return cast(where(is_low, low, high), to=result_dtype)


_dtype = dtype


# --------------------------------------------------------------------------------------- their parts


def _keys(what: str, key: Key, count: int) -> list[Key]:
    one_key(what, key)
    keys = split(key, count)
    return [keys[i] for i in range(count)]


def _gamma_parts(what: str, key: Key, a: Any, shape: Shape | None, dtype: DType) -> tuple[Any, Any]:
    """Return a gamma number of a, or of a + 1 if a is below 1; and the logarithm of its correction factor."""
    wide = expect_known(f"{what}: a", a, dtype, above=0)
    result_shape = shape_for(what, shape, wide)
    main, second, third = _keys(what, key, 3)
    is_small = less(wide, 1.0)
    above = where(is_small, add(wide, 1.0), wide)
    d = subtract(stop_gradient(above), 1 / 3)
    x = normal(main, (GAMMA_TRIES, *result_shape), dtype.accumulator)
    u = inside(second.words, (GAMMA_TRIES, *result_shape), dtype.accumulator)
    root = add(multiply(x, multiply(rsqrt(d), 1 / 3)), 1.0)
    is_positive = greater(root, 0)
    v = where(is_positive, multiply(root, square(root)), 1.0)
    bound = add(multiply(square(x), 0.5), multiply(d, add(subtract(1.0, v), log(v))))
    taken = _first_taken(multiply(d, v), logical_and(is_positive, less(log(u), bound)), GAMMA_TRIES)
    boost = divide(log(inside(third.words, result_shape, dtype.accumulator)), where(is_small, wide, 1.0))
    if isinstance(above, Value):
        taken = following(taken, broadcast_to(above, result_shape), what=f"{what}: a")
    return taken, where(is_small, boost, 0.0)


def _first_taken(x: Any, is_taken: Any, count: int) -> Any:
    """Return the first accepted one of the tries along the first axis, or the last."""
    shape = tuple(shape_of(x))[1:]

    def tried(y: Any, i: int) -> Any:
        return reshape(narrow(y, axis=0, start=i, length=1), shape)

    result = tried(x, count - 1)
    for i in reversed(range(count - 1)):
        result = where(tried(is_taken, i), tried(x, i), result)
    return result


def _poisson_by_inversion(u: Any, rate: Any) -> Any:
    """Return the number of running sums of the probabilities below u, for rates below `FEW`."""
    term = exp(negative(rate))
    passed, counts = term, full(tuple(shape_of(u)), 0.0, dtype=f32)
    for k in range(1, TERMS):
        counts = where(less(u, passed), counts, float(k))
        term = divide(multiply(term, rate), float(k))
        passed = add(passed, term)
    return counts


def _poisson_by_rejection(u: Any, v: Any, rate: Any) -> Any:
    """PTRS, for rates from `FEW` on; u is from (-1/2, 1/2), v from (0, 1), with the tries along the first axis."""
    b = add(multiply(sqrt(rate), 2.53), 0.931)
    a = subtract(multiply(b, 0.02483), 0.059)
    inverse_alpha = add(divide(1.1328, subtract(b, 3.4)), 1.1239)
    v_r = subtract(0.9277, divide(3.6224, subtract(b, 2.0)))
    us = subtract(0.5, absolute(u))
    k = floor(add(multiply(add(divide(multiply(a, 2.0), us), b), u), add(rate, 0.43)))
    is_sure = logical_and(greater_equal(us, 0.07), less_equal(v, v_r))
    is_outside = logical_or(less(k, 0.0), logical_and(less(us, 0.013), greater(v, us)))
    left = log(divide(multiply(v, inverse_alpha), add(divide(a, square(us)), b)))
    is_likely = less_equal(left, _log_poisson(maximum(k, 0.0), rate))
    is_taken = logical_or(is_sure, logical_and(is_likely, logical_not(is_outside)))
    return _first_taken(maximum(k, 0.0), is_taken, POISSON_TRIES)


def _log_poisson(k: Any, rate: Any) -> Any:
    """Return k·ln rate - rate - ln k!, by Stirling's series unless k is small: for large k the terms would cancel."""
    is_small = less(k, 10.0)
    few, many = where(is_small, k, 1.0), where(is_small, 10.0, k)
    exact = subtract(subtract(multiply(few, log(rate)), rate), lgamma(add(few, 1.0)))
    off = divide(subtract(many, rate), rate)
    deviance = multiply(rate, subtract(multiply(add(off, 1.0), log1p(off)), off))
    stirling = add(
        multiply(log(multiply(many, 2 * math.pi)), 0.5), divide(subtract(1 / 12, divide(1 / 360, square(many))), many)
    )
    return where(is_small, exact, negative(add(deviance, stirling)))
