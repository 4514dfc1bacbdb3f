"""Common parts of all normalisations: the axes of affine operands, the dtype of statistics, and batching.

Statistics and affine arithmetic are computed in the accumulation dtype of `x` (f32 for f16 and bf16) and rounded once. The
variance is the mean of centred squares, never E[x²] - μ², which cancels for data with a large mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Value
from rlx_core.ir.types import Shape, TensorType, expect_dtype, expect_shape, normalize_axes
from rlx_core.ops.activation import rsqrt
from rlx_core.ops.arguments import listed
from rlx_core.ops.conversion import as_dtype
from rlx_core.ops.linalg import pick, reshaped
from rlx_core.ops.reduction import mean_axes
from rlx_core.ops.structural import expand, sum_axes


def wide(x: Value) -> Value:
    """Return `x` in the dtype of its statistics."""
    return as_dtype(x, x.dtype.accumulator)


def affine_prepare(x: Value, *affine: Value | None) -> tuple[Value | None, ...]:
    """Return the operands cast as `x` requires: affine operands keep its dtype or its accumulation dtype."""
    accepted = (x.dtype, x.dtype.accumulator)
    return (x, *(v if v is None or v.dtype in accepted else as_dtype(v, x.dtype.accumulator) for v in affine))


def expect_affine(x: TensorType, shape: Shape, **affine: TensorType | None) -> None:
    """Require a float `x` and affine operands of its dtype or its accumulation dtype, with dims `shape`."""
    expect_dtype("x", x, FLOATS, "float")
    for name, parameter in affine.items():
        if parameter is not None:
            expect_dtype(name, parameter, (x.dtype, x.dtype.accumulator))
            expect_shape(name, parameter, shape)


def dims_at(x: TensorType, axes: Sequence[int]) -> Shape:
    """Return the dims of `x` at `axes`, in ascending order of the axes."""
    return pick(x.shape, normalize_axes(axes, x.rank))


def along(v: Value, ndim: int, axes: Sequence[int]) -> Value:
    """Return `v`, whose axes are `axes` of a tensor with `ndim` axes, in a shape that broadcasts against that tensor; wide."""
    shape: list[Dim] = [1] * ndim
    for axis, size in zip(axes, v.shape, strict=True):
        shape[axis] = size
    return wide(reshaped(v, tuple(shape)))


def sum_to_axes(x: Value, axes: Sequence[int]) -> Value:
    """Return the sum over all axes but `axes`: the cotangent of an operand with these axes."""
    others = tuple(a for a in range(x.ndim) if a not in axes)
    return sum_axes(x, axes=others) if others else x


def mean_over(x: Value, axes: Sequence[int]) -> Value:
    """Return the mean over `axes`, which are kept with size 1."""
    return mean_axes(x, axes=tuple(axes), keep_dim=True)


def standardize(x: Value, axes: Sequence[int], eps: float) -> tuple[Value, Value]:
    """Return `((x - μ)·r, r)` over `axes`, with `r = 1/sqrt(var + eps)` and the biased variance."""
    centred = x - mean_over(x, axes)
    inv_std = rsqrt(mean_over(centred * centred, axes) + eps)
    return centred * inv_std, inv_std


def affine(x_hat: Value, weight: Value | None, bias: Value | None, axes: Sequence[int]) -> Value:
    """Return `x_hat · weight + bias`, both along `axes`, either of them optional."""
    scaled = x_hat if weight is None else x_hat * along(weight, x_hat.ndim, axes)
    return scaled if bias is None else scaled + along(bias, x_hat.ndim, axes)


def as_axes(axes: int | Sequence[int]) -> tuple[int, ...]:
    """Return an axes attribute from one axis or several."""
    return listed("axes", axes) if isinstance(axes, Iterable) else (axes,)


def operands_of(operands: Sequence[Any], count: int) -> list[Any]:
    """Return `count` operands, with `None` for the absent ones at the end."""
    return [*operands, *(None,) * (count - len(operands))]


def batched_norm(
    shifted: Any, axes: Sequence[int], size: Dim, x: Sequence[Value | None], is_batched: Sequence[bool]
) -> Value:
    """Batch a norm with operands `(x, weight?, bias?)`, with weight and bias along `axes`, counted without the batch axis.

    `shifted` is the norm on data with a batch axis in front. A shared affine part is passed to it; a batched one is applied
    after it, to the wide result, so that each example is scaled by its own weight only.
    """
    data, weight, bias = operands_of(x, 3)
    data = data if is_batched[0] else expand(data, (size, *data.shape))
    if not any(is_batched[1:]):
        return shifted(data, weight, bias)
    y = shifted(wide(data))
    own_axes = tuple(a + 1 for a in axes)
    for i, v in enumerate((weight, bias), start=1):
        if v is not None:
            placed = along(v, y.ndim, (0, *own_axes) if is_batched[i] else own_axes)
            y = y * placed if i == 1 else y + placed
    return as_dtype(y, data.dtype)
