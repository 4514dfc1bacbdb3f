"""The cotangents of normalisations' data as ops, so that a backend may have one kernel for each.

They decompose into the closed forms, so they have derivatives to any order. `<·>` is the mean over the normalised axes, `x̂ =
(x - μ)·r`, `r = 1/sqrt(var + eps)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from attrs import field

from rlx_core.errors import ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import exact_quotient, require
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import Shape, TensorType, expect_rank, expect_shape, normalize_axes
from rlx_core.ops.activation import rsqrt
from rlx_core.ops.conversion import as_dtype
from rlx_core.ops.linalg import reshaped
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.statistics import (
    affine_prepare,
    along,
    as_axes,
    dims_at,
    expect_affine,
    mean_over,
    standardize,
    wide,
)
from rlx_core.system.records import frozen


def group_shape(x: TensorType, groups: int) -> Shape:
    """Return `[n, groups, channels of a group, ...]`: the form in which each group is one row, of the axes `group_axes`."""
    expect_rank("x", x, 2)
    if groups < 1 or not require("divides", groups, x.shape[1]):
        raise ShapeError(f"{x.shape[1]} channels do not split into {groups} groups ({x})")
    return (x.shape[0], groups, exact_quotient(x.shape[1], groups), *x.shape[2:])


def group_axes(x: TensorType) -> tuple[int, ...]:
    """Return the axes of a group's row: all but the first two of `group_shape`."""
    return tuple(range(2, x.rank + 1))


class InputGradient(Op):
    """The cotangent of a norm's data: the type of the data."""

    category: ClassVar = "boundary"
    affine_shape: ClassVar[Callable[..., Shape]]
    """The dims that weight must have, from the type of the data."""

    def prepare(self, x: Value, dy: Value, weight: Value | None = None) -> tuple[Value | None, ...]:
        return (*affine_prepare(x, weight)[:1], as_dtype(dy, x.dtype), *affine_prepare(x, weight)[1:])

    def infer(self, x: TensorType, dy: TensorType, weight: TensorType | None = None) -> TensorType:
        expect_affine(x, self.affine_shape(x), weight=weight)
        expect_shape("dy", dy, x.shape)
        return x


@frozen(slots=False)
class AxesInputGradient(InputGradient):
    """The cotangent of the data of a norm whose rows and weight are along `axes`."""

    axes: tuple[int, ...] = field(default=(-1,), converter=as_axes)

    def affine_shape(self, x: TensorType) -> Shape:
        return dims_at(x, self.axes)


@define_op
class LayerNormBackwardInput(AxesInputGradient):
    """The cotangent of x in `LayerNorm`: `r·(γ·dy - <γ·dy> - x̂·<γ·dy·x̂>)`."""

    eps: float = 1e-5

    def decompose(self, x: Value, dy: Value, weight: Value | None = None) -> Value:
        axes = normalize_axes(self.axes, x.ndim)
        x_hat, inv_std = standardize(wide(x), axes, self.eps)
        g = wide(dy) if weight is None else wide(dy) * along(weight, x.ndim, axes)
        return as_dtype(inv_std * (g - mean_over(g, axes) - x_hat * mean_over(g * x_hat, axes)), x.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[3, 8]", "f32[3, 8]", "f32[8]")
        yield Sample("f64[2, 3, 5]", "f64[2, 3, 5]", None, axes=(1,), eps=0.1)
        yield Sample("f16[3, 8]", "f16[3, 8]", "f32[8]")
        yield Rejected("f32[3, 8]", "f32[3, 7]", error=ShapeError, says="dy must be [3, 8]")


layer_norm_backward_input = op_function(LayerNormBackwardInput)


def inverse_rms(x: Value, axes: tuple[int, ...], eps: float) -> Value:
    """Return `r = 1/sqrt(<x²> + eps)` of a wide `x`."""
    return rsqrt(mean_over(x * x, axes) + eps)


@define_op
class RmsNormBackwardInput(AxesInputGradient):
    """The cotangent of x in `RmsNorm`: `r·γ·dy - r³·x·<x·γ·dy>`."""

    eps: float = 1e-6

    def decompose(self, x: Value, dy: Value, weight: Value | None = None) -> Value:
        axes = normalize_axes(self.axes, x.ndim)
        data = wide(x)
        r = inverse_rms(data, axes, self.eps)
        g = wide(dy) if weight is None else wide(dy) * along(weight, x.ndim, axes)
        return as_dtype(r * g - r * r * r * data * mean_over(data * g, axes), x.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[3, 8]", "f32[3, 8]", "f32[8]")
        yield Sample("f64[2, 3, 5]", "f64[2, 3, 5]", None, axes=(0, 1), eps=0.5)
        yield Sample("bf16[3, 8]", "bf16[3, 8]", "bf16[8]")
        yield Rejected("f32[3, 8]", "f32[3, 8]", "f32[3]", error=ShapeError, says="weight must be [8]")


rms_norm_backward_input = op_function(RmsNormBackwardInput)


@define_op
class GroupNormBackwardInput(InputGradient):
    """The cotangent of x in `GroupNorm`: `LayerNorm`'s, with `γ·dy` in place of dy, over each group."""

    groups: int
    eps: float = 1e-5

    def affine_shape(self, x: TensorType) -> Shape:
        group_shape(x, self.groups)
        return x.shape[1:2]

    def decompose(self, x: Value, dy: Value, weight: Value | None = None) -> Value:
        rows = group_shape(x.type, self.groups)
        g = wide(dy) if weight is None else wide(dy) * along(weight, x.ndim, (1,))
        dx = layer_norm_backward_input(
            reshaped(wide(x), rows), reshaped(g, rows), axes=group_axes(x.type), eps=self.eps
        )
        return as_dtype(reshaped(dx, x.shape), x.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[2, 6, 3]", "f32[2, 6, 3]", "f32[6]", groups=3)
        yield Sample("f64[2, 4, 3, 2]", "f64[2, 4, 3, 2]", None, groups=2, eps=0.1)
        yield Sample("f16[2, 4]", "f16[2, 4]", "f16[4]", groups=1)
        yield Rejected("f32[2, 6]", "f32[2, 6]", groups=4, error=ShapeError, says="4 groups")


group_norm_backward_input = op_function(GroupNormBackwardInput)
