"""Initialisers of weights: functions of a key and a shape, `nn.init.he_normal(key, (784, 128))`.

`fan_in` is the number of inputs of an output, and `fan_out` the number of outputs of an input: the sizes of `in_axis` and
`out_axis` times those of all other axes. Weights of `nn.linear` are `[in, out]`, which matches the defaults; those of `nn.conv`
are `[out, in, ..]` and take `in_axis=1, out_axis=0`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from rlx_core.errors import ConfigError, ShapeError
from rlx_core.ir.dtypes import DType, f32
from rlx_core.ir.types import normalize_axis
from rlx_core.linalg import diagonal, qr
from rlx_core.nn.floats import at_least, narrowed
from rlx_core.ops import creation
from rlx_core.ops.arguments import choice, number, whole
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.array_shapes import matrix_transpose, moveaxis
from rlx_core.ops.comparison import less
from rlx_core.ops.random import draws
from rlx_core.ops.random.draws import float_of
from rlx_core.ops.random.keys import dims
from rlx_core.ops.selection import where
from rlx_core.ops.structural import reshape
from rlx_core.trees.key import Key

if TYPE_CHECKING:
    from rlx_core.typing import Array

Shape = int | Sequence[int]
Mode = Literal["fan_in", "fan_out", "fan_avg"]
Distribution = Literal["normal", "truncated_normal", "uniform"]

CUT = 0.87962566103423978
"""The standard deviation of a standard normal number truncated at ±2."""


def zeros(key: Key, shape: Shape, dtype: DType | str = f32) -> Array:
    """0 everywhere; the key is not used, and is a parameter so that all initialisers have the same signature."""
    return creation.zeros(dims("init.zeros: shape", shape), dtype=dtype)


def ones(key: Key, shape: Shape, dtype: DType | str = f32) -> Array:
    """1 everywhere; the key is not used."""
    return creation.ones(dims("init.ones: shape", shape), dtype=dtype)


def constant(key: Key, shape: Shape, dtype: DType | str = f32, *, value: float) -> Array:
    """One number everywhere; the key is not used."""
    return creation.full(dims("init.constant: shape", shape), number("init.constant: value", value), dtype=dtype)


def uniform(key: Key, shape: Shape, dtype: DType | str = f32, *, low: float = 0.0, high: float = 0.01) -> Array:
    """Uniform numbers from [low, high)."""
    return draws.uniform(key, shape, dtype, low, high)


def normal(key: Key, shape: Shape, dtype: DType | str = f32, *, stddev: float = 0.01) -> Array:
    """Normal numbers with mean 0."""
    return _scaled(key, shape, dtype, "normal", at_least("init.normal: stddev", stddev))


def truncated_normal(key: Key, shape: Shape, dtype: DType | str = f32, *, stddev: float = 0.01) -> Array:
    """Normal numbers with mean 0, truncated at twice `stddev`, which is the standard deviation before truncation."""
    return _scaled(key, shape, dtype, "truncated_normal", CUT * at_least("init.truncated_normal: stddev", stddev))


def variance_scaling(
    key: Key,
    shape: Shape,
    dtype: DType | str = f32,
    *,
    scale: float = 1.0,
    mode: Mode = "fan_in",
    distribution: Distribution = "truncated_normal",
    in_axis: int = -2,
    out_axis: int = -1,
) -> Array:
    """Numbers with mean 0 and the variance `scale / n`, where n is one of the fans or their mean.

    Args:
        key: One key.
        shape: The shape of the weights, with at least two axes.
        dtype: A float dtype.
        scale: Above 0.
        mode: "fan_in", "fan_out" or "fan_avg".
        distribution: "normal", "truncated_normal" (at two standard deviations) or "uniform".
        in_axis, out_axis: The axes of the inputs and the outputs.

    Raises:
        ConfigError: The scale is not above 0, or `mode` or `distribution` is unknown.
        ShapeError: There are fewer than two axes, or a fan is 0.

    Source:
        He, Zhang, Ren, Sun 2015, arXiv:1502.01852 (scale 2, fan_in); Glorot, Bengio 2010, AISTATS (scale 1, fan_avg);
        LeCun et al. 1998, "Efficient BackProp" (scale 1, fan_in).
    """
    choice("init.variance_scaling: mode", mode, get_args(Mode))
    choice("init.variance_scaling: distribution", distribution, get_args(Distribution))
    if not number("init.variance_scaling: scale", scale) > 0:
        raise ConfigError(f"init.variance_scaling: scale must be above 0, not {scale}")
    fan_in, fan_out = _fans(shape, in_axis, out_axis)
    fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[mode]
    return _scaled(key, shape, dtype, distribution, math.sqrt(scale / max(fan, 1)))


def he_normal(key: Key, shape: Shape, dtype: DType | str = f32, *, in_axis: int = -2, out_axis: int = -1) -> Array:
    """Truncated normal numbers of the variance 2 / fan_in, for relu (Kaiming He)."""
    return _with_fans(key, shape, dtype, 2.0, "fan_in", "truncated_normal", in_axis, out_axis)


def he_uniform(key: Key, shape: Shape, dtype: DType | str = f32, *, in_axis: int = -2, out_axis: int = -1) -> Array:
    """Uniform numbers of the variance 2 / fan_in, for relu (Kaiming He)."""
    return _with_fans(key, shape, dtype, 2.0, "fan_in", "uniform", in_axis, out_axis)


def glorot_normal(key: Key, shape: Shape, dtype: DType | str = f32, *, in_axis: int = -2, out_axis: int = -1) -> Array:
    """Truncated normal numbers of the variance 2 / (fan_in + fan_out) (Xavier Glorot)."""
    return _with_fans(key, shape, dtype, 1.0, "fan_avg", "truncated_normal", in_axis, out_axis)


def glorot_uniform(key: Key, shape: Shape, dtype: DType | str = f32, *, in_axis: int = -2, out_axis: int = -1) -> Array:
    """Uniform numbers of the variance 2 / (fan_in + fan_out) (Xavier Glorot)."""
    return _with_fans(key, shape, dtype, 1.0, "fan_avg", "uniform", in_axis, out_axis)


def lecun_normal(key: Key, shape: Shape, dtype: DType | str = f32, *, in_axis: int = -2, out_axis: int = -1) -> Array:
    """Truncated normal numbers of the variance 1 / fan_in, for tanh and selu."""
    return _with_fans(key, shape, dtype, 1.0, "fan_in", "truncated_normal", in_axis, out_axis)


def lecun_uniform(key: Key, shape: Shape, dtype: DType | str = f32, *, in_axis: int = -2, out_axis: int = -1) -> Array:
    """Uniform numbers of the variance 1 / fan_in, for tanh and selu."""
    return _with_fans(key, shape, dtype, 1.0, "fan_in", "uniform", in_axis, out_axis)


def orthogonal(key: Key, shape: Shape, dtype: DType | str = f32, *, gain: float = 1.0, axis: int = -1) -> Array:
    """A random matrix whose columns, or rows if there are fewer, are orthonormal, times `gain`.

    Args:
        key: One key.
        shape: At least two axes; all but `axis` are the rows of the matrix.
        dtype: A float dtype; the computation is in f32 at least.
        gain: The factor of the result.
        axis: The axis of the columns.

    Raises:
        ShapeError: There are fewer than two axes.
        UnsupportedError: No installed package provides QR; rlx-custom-ops does.

    Source:
        Saxe, McClelland, Ganguli 2014, "Exact solutions to the nonlinear dynamics of learning", arXiv:1312.6120.
    """
    sizes = _sizes("init.orthogonal", shape)
    result_dtype = float_of("init.orthogonal", dtype)
    factor = number("init.orthogonal: gain", gain)
    place = normalize_axis(axis, len(sizes))
    columns, others = sizes[place], [n for i, n in enumerate(sizes) if i != place]
    rows = math.prod(others)
    q, r = qr(draws.normal(key, (max(rows, columns), min(rows, columns)), result_dtype.accumulator))
    # Signs that make the diagonal of R positive make Q uniform over all orthogonal matrices.
    q = multiply(q, where(less(diagonal(r), 0), -1.0, 1.0))
    matrix = q if rows >= columns else matrix_transpose(q)
    return narrowed(multiply(moveaxis(reshape(matrix, (*others, columns)), -1, place), factor), result_dtype)


# --------------------------------------------------------------------------------------- their parts


def _with_fans(
    key: Key,
    shape: Shape,
    dtype: DType | str,
    scale: float,
    mode: Mode,
    distribution: Distribution,
    in_axis: int,
    out_axis: int,
) -> Any:
    return variance_scaling(
        key, shape, dtype, scale=scale, mode=mode, distribution=distribution, in_axis=in_axis, out_axis=out_axis
    )


def _scaled(key: Key, shape: Shape, dtype: DType | str, distribution: Distribution, stddev: float) -> Any:
    """Return random numbers of a standard deviation."""
    result_dtype = float_of("init", dtype)
    wide = result_dtype.accumulator
    if distribution == "normal":
        return narrowed(multiply(draws.normal(key, shape, wide), stddev), result_dtype)
    if distribution == "truncated_normal":
        return narrowed(multiply(draws.truncated_normal(key, -2.0, 2.0, shape, wide), stddev / CUT), result_dtype)
    end = math.sqrt(3) * stddev
    return narrowed(add(multiply(draws.uniform(key, shape, wide), 2 * end), -end), result_dtype)


def _fans(shape: Shape, in_axis: int, out_axis: int) -> tuple[int, int]:
    sizes = _sizes("init.variance_scaling", shape)
    places = [normalize_axis(axis, len(sizes)) for axis in (in_axis, out_axis)]
    if places[0] == places[1]:
        raise ShapeError(f"init.variance_scaling: in_axis and out_axis must be two axes, not {in_axis} and {out_axis}")
    others = math.prod(n for i, n in enumerate(sizes) if i not in places)
    return sizes[places[0]] * others, sizes[places[1]] * others


def _sizes(what: str, shape: Shape) -> tuple[int, ...]:
    sizes = tuple(whole(f"{what}: a size", n, least=0) for n in dims(f"{what}: shape", shape))
    if len(sizes) < 2:
        raise ShapeError(f"{what}: shape must have two axes at least, not {list(sizes)}")
    return sizes
