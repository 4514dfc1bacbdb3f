"""Distributions that are a function of one uniform number: by the inverse of the distribution, or a scale and an exponent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx_core.errors import ConfigError, DtypeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dtypes import DType, dtype, f32, i32
from rlx_core.ir.graph import Value
from rlx_core.ir.types import broadcast_shapes
from rlx_core.ops.activation import exp, log, log1p, sqrt
from rlx_core.ops.arithmetic import add, divide, maximum, multiply, negative, subtract
from rlx_core.ops.array_shapes import shape_of
from rlx_core.ops.comparison import less
from rlx_core.ops.conversion import cast
from rlx_core.ops.piecewise import floor
from rlx_core.ops.random.draws import Shape, exponential, float_of, inside, normal, parameter, unit
from rlx_core.ops.random.keys import dims, one_key
from rlx_core.ops.selection import clip, where
from rlx_core.ops.trigonometry import tan
from rlx_core.trees.key import Key


@checked_call
def cauchy(key: Key, shape: Shape = (), dtype: DType | str = f32) -> Any:
    """Numbers of the standard Cauchy distribution: tan(π(u - 1/2)), with u from (0, 1)."""
    words, result_dtype = one_key("random.cauchy", key), float_of("random.cauchy", dtype)
    u = inside(words, dims("random.cauchy: shape", shape), result_dtype.accumulator)
    return cast(tan(multiply(subtract(u, 0.5), math.pi)), to=result_dtype)


@checked_call
def logistic(key: Key, shape: Shape = (), dtype: DType | str = f32) -> Any:
    """Numbers of the logistic distribution with mean 0 and scale 1: ln(u / (1 - u)), with u from (0, 1)."""
    words, result_dtype = one_key("random.logistic", key), float_of("random.logistic", dtype)
    u = inside(words, dims("random.logistic: shape", shape), result_dtype.accumulator)
    return cast(subtract(log(u), log1p(negative(u))), to=result_dtype)


@checked_call
def lognormal(key: Key, sigma: Any = 1.0, shape: Shape | None = None, dtype: DType | str = f32) -> Any:
    """Numbers whose logarithm is normal with mean 0 and the standard deviation `sigma`.

    Args:
        key: One key.
        sigma: A number, or an array that broadcasts to `shape`.
        shape: The shape of the result; the shape of `sigma` by default.
        dtype: A float dtype.

    Raises:
        ConfigError: `sigma` is known, and below 0.
    """
    result_dtype = float_of("random.lognormal", dtype)
    wide = expect_known("random.lognormal: sigma", sigma, result_dtype, least=0)
    x = normal(key, shape_for("random.lognormal", shape, wide), result_dtype.accumulator)
    return cast(exp(multiply(x, wide)), to=result_dtype)


@checked_call
def rademacher(key: Key, shape: Shape = (), dtype: DType | str = i32) -> Any:
    """1 or -1 with equal probability; of a signed integer or a float dtype."""
    words, result_dtype = one_key("random.rademacher", key), _dtype(dtype)
    if not (result_dtype.is_float or result_dtype.is_integer) or (
        result_dtype.is_integer and np.iinfo(result_dtype.numpy).min == 0
    ):
        raise DtypeError(f"random.rademacher: dtype must be a signed integer or a float, not {result_dtype}")
    is_low = less(unit(words, dims("random.rademacher: shape", shape), f32), 0.5)
    return subtract(1, multiply(cast(is_low, to=result_dtype), 2))


_dtype = dtype


@checked_call
def rayleigh(key: Key, scale: Any = 1.0, shape: Shape | None = None, dtype: DType | str = f32) -> Any:
    """The length of a vector of two normal numbers with the standard deviation `scale`: scale·√(-2 ln(1 - u)).

    Args:
        key: One key.
        scale: A number, or an array that broadcasts to `shape`.
        shape: The shape of the result; the shape of `scale` by default.
        dtype: A float dtype.

    Raises:
        ConfigError: The scale is known, and below 0.
    """
    result_dtype = float_of("random.rayleigh", dtype)
    wide = expect_known("random.rayleigh: scale", scale, result_dtype, least=0)
    e = exponential(key, shape_for("random.rayleigh", shape, wide), result_dtype.accumulator)
    return cast(multiply(sqrt(multiply(e, 2.0)), wide), to=result_dtype)


@checked_call
def pareto(key: Key, b: Any, shape: Shape | None = None, dtype: DType | str = f32) -> Any:
    """Numbers from 1 on that exceed x with the probability x^-b.

    Args:
        key: One key.
        b: A number above 0, or an array that broadcasts to `shape`.
        shape: The shape of the result; the shape of `b` by default.
        dtype: A float dtype.

    Raises:
        ConfigError: `b` is known, and not above 0.
    """
    result_dtype = float_of("random.pareto", dtype)
    wide = expect_known("random.pareto: b", b, result_dtype, above=0)
    e = exponential(key, shape_for("random.pareto", shape, wide), result_dtype.accumulator)
    return cast(exp(divide(e, wide)), to=result_dtype)


@checked_call
def weibull(
    key: Key, concentration: Any, scale: Any = 1.0, shape: Shape | None = None, dtype: DType | str = f32
) -> Any:
    """Numbers that exceed x with the probability exp(-(x / scale)^concentration).

    Args:
        key: One key.
        concentration: Above 0; 1 is the exponential distribution. A number, or an array that broadcasts to `shape`.
        scale: Above 0; a number, or an array that broadcasts to `shape`.
        shape: The shape of the result; by default the broadcast shape of the two.
        dtype: A float dtype.

    Raises:
        ConfigError: One of the two is known, and not above 0.
    """
    result_dtype = float_of("random.weibull", dtype)
    power = expect_known("random.weibull: concentration", concentration, result_dtype, above=0)
    factor = expect_known("random.weibull: scale", scale, result_dtype, above=0)
    e = exponential(key, shape_for("random.weibull", shape, power, factor), result_dtype.accumulator)
    # If e is 0, with probability 2^-24, the logarithm would be infinite, and so would the derivative by the exponent.
    logarithm = log(maximum(e, float(np.finfo(np.float32).tiny)))
    return cast(multiply(exp(divide(logarithm, power)), factor), to=result_dtype)


@checked_call
def triangular(key: Key, left: Any, mode: Any, right: Any, shape: Shape | None = None, dtype: DType | str = f32) -> Any:
    """Numbers from `left` to `right`, with a density that rises linearly to `mode` and falls linearly after it.

    Args:
        key: One key.
        left, mode, right: Numbers in this order, not all equal; or arrays that broadcast to `shape`.
        shape: The shape of the result; by default the broadcast shape of the three.
        dtype: A float dtype.

    Raises:
        ConfigError: They are numbers in another order.
    """
    words, result_dtype = one_key("random.triangular", key), float_of("random.triangular", dtype)
    ends = (left, mode, right)
    if all(isinstance(x, int | float) for x in ends) and not (left <= mode <= right and left < right):
        raise ConfigError(f"random.triangular: left <= mode <= right must hold, not {left}, {mode}, {right}")
    low, peak, high = (parameter(x, result_dtype.accumulator) for x in ends)
    result_shape = shape_for("random.triangular", shape, low, peak, high)
    u = inside(words, result_shape, result_dtype.accumulator)
    width = subtract(high, low)
    is_left = less(u, divide(subtract(peak, low), width))
    # Each root is of a number above 0 where it is selected, and of 1 elsewhere: its derivative there is finite.
    rising = sqrt(where(is_left, multiply(multiply(u, width), subtract(peak, low)), 1.0))
    falling = sqrt(where(is_left, 1.0, multiply(multiply(subtract(1.0, u), width), subtract(high, peak))))
    return cast(where(is_left, add(low, rising), subtract(high, falling)), to=result_dtype)


@checked_call
def geometric(key: Key, p: Any, shape: Shape | None = None, dtype: DType | str = i32) -> Any:
    """The number of trials up to the first success, which has the probability `p`: from 1 on, ⌊ln u / ln(1 - p)⌋ + 1.

    Args:
        key: One key.
        p: A number above 0 and at most 1, or an array that broadcasts to `shape`.
        shape: The shape of the result; the shape of `p` by default.
        dtype: An integer dtype; results saturate at its largest number.

    Raises:
        ConfigError: `p` is known, and outside of (0, 1].
        DtypeError: The dtype is not an integer dtype.
    """
    words, result_dtype = one_key("random.geometric", key), _dtype(dtype)
    if not result_dtype.is_integer:
        raise DtypeError(f"random.geometric: dtype must be an integer, not {result_dtype}")
    chance = expect_known("random.geometric: p", p, f32, above=0, maximum=1)
    u = inside(words, shape_for("random.geometric", shape, chance), f32)
    # ln 0 is -∞, and a number divided by it is 0: the first trial of a certain success.
    trials = floor(divide(log(u), log1p(negative(chance))))
    limit = float(np.nextafter(np.float32(np.iinfo(result_dtype.numpy).max), np.float32(0)))
    return add(cast(clip(trials, 0.0, limit), to=result_dtype), 1)


# --------------------------------------------------------------------------------------- their parameters


def expect_known(
    what: str, x: Any, dtype: DType, least: float = -math.inf, above: float = -math.inf, maximum: float = math.inf
) -> Any:
    """Return a parameter in the dtype of the computation; a known one is checked against its bounds.

    Raises:
        ConfigError: It is known, and out of bounds.
    """
    value = parameter(x, dtype.accumulator)
    if not isinstance(value, Value) and not ((value >= least) & (value > above) & (value <= maximum)).all():
        lower = f"above {above:g}" if above > -math.inf else f"at least {least:g}"
        raise ConfigError(
            f"{what} must be {lower}{'' if maximum == math.inf else f' and at most {maximum:g}'}, not {x!r}"
        )
    return value


def shape_for(what: str, shape: Shape | None, *parameters: Any) -> Any:
    """Return the requested shape of a sample, or the broadcast shape of the parameters."""
    return dims(f"{what}: shape", broadcast_shapes(*map(shape_of, parameters)) if shape is None else shape)
