"""Weighted means, covariances, and integrals along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx_core.errors import ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.dims import Dim
from rlx_core.ir.types import normalize_axis
from rlx_core.ops.activation import sqrt
from rlx_core.ops.arguments import flag
from rlx_core.ops.arithmetic import divide, maximum, multiply, subtract
from rlx_core.ops.array_creation import asarray
from rlx_core.ops.array_elementwise import clip, conj, dtype_of
from rlx_core.ops.array_shapes import Axis, broadcast_to, expand_dims, matrix_transpose, reshape, shape_of
from rlx_core.ops.array_statistics import diff, mean, sum
from rlx_core.ops.linalg import matmul
from rlx_core.ops.movement import narrow
from rlx_core.ops.numeric.elementwise import floating
from rlx_core.ops.rearrange import diagonal

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike


@checked_call
def average(x: ArrayLike, axis: Axis = None, weights: ArrayLike | None = None, keepdims: bool = False) -> Array:
    """The mean over `axis`, with weights of the elements: of the shape of `x`, or a vector along one axis.

    Raises:
        ShapeError: The weights have neither shape.
    """
    if weights is None:
        return mean(x, axis=axis, keepdims=keepdims)
    x, weights = floating(x), floating(weights)
    if tuple(shape_of(weights)) != tuple(shape_of(x)):
        place = normalize_axis(axis, len(shape_of(x))) if isinstance(axis, int) else None
        if place is None or tuple(shape_of(weights)) != (shape_of(x)[place],):
            raise ShapeError(f"average: weights {list(shape_of(weights))} are not those of x {list(shape_of(x))}")
        line: list[Dim] = [1] * len(shape_of(x))
        line[place] = shape_of(x)[place]
        weights = broadcast_to(reshape(weights, line), shape_of(x))
    total = sum(weights, axis=axis, keepdims=keepdims)
    return divide(sum(multiply(x, weights), axis=axis, keepdims=keepdims), total)


@checked_call
def cov(x: ArrayLike, *, rowvar: bool = True, correction: float = 1.0) -> Array:
    """The covariances of variables, which are the rows of `x` `[variables, observations]`, or its columns; `[v, v]`.

    Raises:
        ShapeError: `x` does not have two axes.
    """
    if len(shape_of(x)) != 2:
        raise ShapeError(f"cov: x is [variables, observations], not {list(shape_of(x))}")
    x = floating(x) if flag("cov: rowvar", rowvar) else matrix_transpose(floating(x))
    centred = subtract(x, mean(x, axis=1, keepdims=True))
    count = asarray(shape_of(x)[1], dtype_of(centred).component)
    # NaN if the correction leaves no observations, as in NumPy: 0 divided by 0.
    return divide(matmul(centred, conj(matrix_transpose(centred))), maximum(subtract(count, correction), 0))


@checked_call
def corrcoef(x: ArrayLike, *, rowvar: bool = True) -> Array:
    """The correlations of variables, with the arguments of `cov`: from -1 to 1."""
    covariance = cov(x, rowvar=rowvar)
    deviation = sqrt(diagonal(covariance))
    return clip(divide(divide(covariance, expand_dims(deviation, 1)), expand_dims(deviation, 0)), -1, 1)


@checked_call
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1) -> Array:
    """The integral of `y` along `axis` by the trapezoidal rule.

    Args:
        y: f[.., n, ..].
        x: The coordinates of the points: a vector of n, or of the shape of `y`; without it their distance is `dx`.
        dx: The distance of adjacent points.
        axis: The axis of integration.
    """
    y = floating(y)
    place = normalize_axis(axis, len(shape_of(y)))
    size = shape_of(y)[place]
    sooner, following = (narrow(y, axis=place, start=start, length=size - 1) for start in (0, 1))
    if x is not None:
        x = floating(x)
        if len(shape_of(x)) == 1:
            x = reshape(x, [size if i == place else 1 for i in range(len(shape_of(y)))])
        dx = diff(x, axis=place)
    return sum(multiply(dx, multiply(0.5, sooner + following)), axis=place)
