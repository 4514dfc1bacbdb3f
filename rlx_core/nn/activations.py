"""Activations that are composed of ops: gates, shrinkage, and functions along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx_core.errors import ConfigError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.types import normalize_axis
from rlx_core.nn.floats import at_least, floats, narrowed
from rlx_core.ops import piecewise
from rlx_core.ops.activation import gelu as _gelu
from rlx_core.ops.activation import gelu_approx, rsqrt, sigmoid, softplus, sqrt, tanh
from rlx_core.ops.arguments import flag, number
from rlx_core.ops.arithmetic import absolute, add, divide, maximum, multiply, negative, square, subtract
from rlx_core.ops.array_norms import vector_norm
from rlx_core.ops.array_search import argmax
from rlx_core.ops.array_shapes import moveaxis, shape_of, split
from rlx_core.ops.array_statistics import mean
from rlx_core.ops.comparison import equal, greater, less_equal
from rlx_core.ops.conversion import cast
from rlx_core.ops.convolution.arguments import Layout, channel_axis
from rlx_core.ops.creation import iota
from rlx_core.ops.linalg import operand
from rlx_core.ops.random.draws import gumbel
from rlx_core.ops.selection import stop_gradient, where
from rlx_core.ops.softmax import softmax
from rlx_core.ops.statistics import as_axes
from rlx_core.ops.structural import reshape
from rlx_core.trees.key import Key

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike

__all__ = [
    "gelu",
    "glu",
    "gumbel_softmax",
    "hard_shrink",
    "leaky_relu",
    "log_sigmoid",
    "normalize",
    "prelu",
    "soft_shrink",
    "soft_sign",
    "softmin",
    "squareplus",
    "standardize",
    "tanh_shrink",
    "threshold",
]


@checked_call
def gelu(x: ArrayLike, *, approximate: bool = False) -> Array:
    """`x · Φ(x)`; `approximate` selects the tanh formula, which is a different function (by up to 5e-4)."""
    return gelu_approx(x) if flag("gelu: approximate", approximate) else _gelu(x)


@checked_call
def leaky_relu(x: ArrayLike, negative_slope: float = 0.01, *, name: str | None = None) -> Array:
    """`x` where it is above 0, and `negative_slope · x` elsewhere."""
    return piecewise.leaky_relu(x, slope=number("leaky_relu: negative_slope", negative_slope), name=name)


@checked_call
def glu(x: ArrayLike, *, axis: int = -1) -> Array:
    """`a · σ(b)` of the two halves of an axis: a gated linear unit, `[.., 2n, ..]` to `[.., n, ..]`.

    Raises:
        ShapeError: The axis does not split into halves.

    >>> glu([[2.0, 0.0]]).tolist()
    [[1.0]]
    """
    result_dtype, (wide,) = floats("glu", x=x)
    size = shape_of(wide)[normalize_axis(axis, len(shape_of(wide)))]
    if isinstance(size, int) and size % 2:
        raise ShapeError(f"glu: an axis of {size} elements has no halves")
    a, b = split(wide, 2, axis=axis)
    return narrowed(multiply(a, sigmoid(b)), result_dtype)


@checked_call
def log_sigmoid(x: ArrayLike) -> Array:
    """`ln σ(x) = -ln(1 + e^-x)`, without underflow or overflow."""
    return negative(softplus(negative(x)))


@checked_call
def soft_sign(x: ArrayLike) -> Array:
    """`x / (1 + |x|)`."""
    result_dtype, (wide,) = floats("soft_sign", x=x)
    return narrowed(divide(wide, add(absolute(wide), 1.0)), result_dtype)


@checked_call
def squareplus(x: ArrayLike, *, b: float = 4.0) -> Array:
    """`(x + √(x² + b)) / 2`: like softplus, without exponentials.

    Source:
        Barron 2021, "Squareplus: a softplus-like algebraic rectifier", arXiv:2112.11687.
    """
    result_dtype, (wide,) = floats("squareplus", x=x)
    bend = at_least("squareplus: b", b)
    return narrowed(multiply(add(wide, sqrt(add(square(wide), bend))), 0.5), result_dtype)


@checked_call
def soft_shrink(x: ArrayLike, *, lambd: float = 0.5) -> Array:
    """`x` moved towards 0 by `lambd`, and 0 where |x| is smaller than that."""
    bound = at_least("soft_shrink: lambd", lambd)
    x = operand(x)
    return where(less_equal(absolute(x), bound), 0, where(greater(x, 0), subtract(x, bound), add(x, bound)))


@checked_call
def hard_shrink(x: ArrayLike, *, lambd: float = 0.5) -> Array:
    """`x`, and 0 where |x| is at most `lambd`."""
    x = operand(x)
    return where(less_equal(absolute(x), at_least("hard_shrink: lambd", lambd)), 0, x)


@checked_call
def tanh_shrink(x: ArrayLike) -> Array:
    """`x - tanh(x)`."""
    result_dtype, (wide,) = floats("tanh_shrink", x=x)
    return narrowed(subtract(wide, tanh(wide)), result_dtype)


@checked_call
def threshold(x: ArrayLike, threshold: float, value: float) -> Array:
    """`x` where it is above `threshold`, and `value` elsewhere; NaN is preserved."""
    bound, other = number("threshold: threshold", threshold), number("threshold: value", value)
    x = operand(x)
    return where(less_equal(x, bound), other, x)


@checked_call
def prelu(x: ArrayLike, weight: ArrayLike, *, layout: Layout = "nchw") -> Array:
    """`x` where it is above 0, and `weight · x` elsewhere, with a learned `weight`.

    Args:
        x: `[n, c, ..]`, or `[n, .., c]` in layout `nhwc`; of any shape for one `weight`.
        weight: A scalar or `[1]` for all elements, or `[c]`.
        layout: The position of the channels.

    Raises:
        ShapeError: `weight` has neither one element nor one per channel.
    """
    result_dtype, (wide, slope) = floats("prelu", x=x, weight=weight)
    shape = tuple(slope.shape)
    if shape not in ((), (1,)):
        axis = channel_axis("prelu", wide, layout)
        if shape != (wide.shape[axis],):
            raise ShapeError(f"prelu: weight must be [], [1] or [{wide.shape[axis]}], not {list(shape)}")
        slope = reshape(slope, tuple(shape[0] if i == axis else 1 for i in range(wide.ndim)))
    elif shape:
        slope = reshape(slope, ())
    return narrowed(where(greater(wide, 0), wide, multiply(slope, wide)), result_dtype)


# ----------------------------------------------------------------------------------- functions of an axis


@checked_call
def softmin(x: ArrayLike, *, axis: int = -1) -> Array:
    """`softmax(-x)`."""
    return softmax(negative(x), axis=axis)


@checked_call
def standardize(x: ArrayLike, *, axis: int | tuple[int, ...] = -1, eps: float = 1e-5) -> Array:
    """Zero mean and unit (biased) variance along `axis`: `(x - mean) / √(var + eps)`."""
    result_dtype, (wide,) = floats("standardize", x=x)
    axes = as_axes(axis)
    centred = subtract(wide, mean(wide, axis=axes, keepdims=True))
    variance = mean(square(centred), axis=axes, keepdims=True)
    return narrowed(multiply(centred, rsqrt(add(variance, at_least("standardize: eps", eps)))), result_dtype)


@checked_call
def normalize(x: ArrayLike, *, axis: int | tuple[int, ...] = -1, p: float = 2.0, eps: float = 1e-12) -> Array:
    """`x` divided by its norm along `axis`, or by `eps` where the norm is smaller.

    Args:
        x: f[..].
        axis: One axis or several.
        p: The order of the norm: 2 is Euclidean, 1 the sum of moduli, inf the largest modulus; see `rlx.linalg.vector_norm`.
        eps: The minimum divisor.
    """
    result_dtype, (wide,) = floats("normalize", x=x)
    norm = vector_norm(wide, axis=as_axes(axis), keepdims=True, ord=number("normalize: p", p))
    return narrowed(divide(wide, maximum(norm, at_least("normalize: eps", eps))), result_dtype)


@checked_call
def gumbel_softmax(
    key: Key, logits: ArrayLike, *, temperature: float = 1.0, hard: bool = False, axis: int = -1
) -> Array:
    """A differentiable sample of categories: softmax of logits plus Gumbel noise, divided by the temperature.

    Args:
        key: One key.
        logits: f[.., n, ..] with n categories along `axis`.
        temperature: Above 0; the lower, the closer the sample is to one category.
        hard: Whether the result is one-hot, with the gradient of the soft sample.
        axis: The axis of the categories.

    Raises:
        ConfigError: The temperature is not above 0.
        DtypeError: `logits` is not floating-point, or `key` is not a random key.

    Source:
        Jang, Gu, Poole 2017, "Categorical reparameterization with Gumbel-softmax", arXiv:1611.01144.
    """
    result_dtype, (wide,) = floats("gumbel_softmax", logits=logits)
    heat = number("gumbel_softmax: temperature", temperature)
    if not heat > 0:
        raise ConfigError(f"gumbel_softmax: temperature must be above 0, not {heat}")
    place = normalize_axis(axis, len(shape_of(wide)))
    noise = gumbel(key, tuple(shape_of(wide)), result_dtype.accumulator)
    soft = softmax(divide(add(wide, noise), heat), axis=place)
    if not flag("gumbel_softmax: hard", hard):
        return narrowed(soft, result_dtype)
    # The value of one_hot and the derivative of soft, exactly: the added term is 0, without any rounding.
    return narrowed(add(_one_at_largest(soft, place), subtract(soft, stop_gradient(soft))), result_dtype)


def _one_at_largest(x: Any, axis: int) -> Any:
    """1 at the first largest element along an axis, 0 elsewhere."""
    shape = tuple(shape_of(x))
    places = iota(axis=len(shape) - 1, shape=(*(1,) * (len(shape) - 1), shape[axis]))
    largest = argmax(x, axis=axis, keepdims=True)
    return cast(equal(moveaxis(places, -1, axis), largest), to=x.dtype)
