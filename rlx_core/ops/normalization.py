"""Normalisations: layer, RMS, group and channel-wise layer norm.

All centre and scale rows of their data; they differ in which elements form a row. `weight` and `bias` are optional, have the
dims of the normalised axes (of the channel axis for group norms), and the result has the dtype of `x`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from attrs import evolve, field

from rlx_core.errors import AxisError, ConfigError, DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Op, Zero, define_op
from rlx_core.ir.types import Shape, TensorType, expect_rank, normalize_axes
from rlx_core.ops.conversion import as_dtype, per_element
from rlx_core.ops.linalg import reshaped
from rlx_core.ops.normalization_backward import (
    group_axes,
    group_norm_backward_input,
    group_shape,
    inverse_rms,
    layer_norm_backward_input,
    rms_norm_backward_input,
)
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.statistics import (
    affine,
    affine_prepare,
    as_axes,
    batched_norm,
    dims_at,
    expect_affine,
    operands_of,
    standardize,
    sum_to_axes,
    wide,
)
from rlx_core.ops.validators import number, whole
from rlx_core.system.records import frozen


def affine_cotangents(
    operands: Sequence[Value | None], dx: Value, dgamma: Value | None, dbeta: Value | None
) -> tuple[Value | Zero, ...]:
    """Return the cotangents of `(x, weight?, bias?)`, in each operand's dtype, one per given operand."""
    pairs = zip(operands, (dx, dgamma, dbeta), strict=False)
    return tuple(ZERO if v is None or d is None else as_dtype(d, v.dtype) for v, d in pairs)


class NormOp(Op):
    """Base of all norms: data, which determine the dtype, and affine operands with the dims of `affine_shape`."""

    category: ClassVar = "boundary"
    affine_shape: ClassVar[Callable[..., Shape]]
    """The dims that weight and bias must have, from the type of the data."""

    def prepare(self, x: Value, weight: Value | None = None, bias: Value | None = None) -> tuple[Value | None, ...]:
        return affine_prepare(x, weight, bias)

    def infer(self, x: TensorType, weight: TensorType | None = None, bias: TensorType | None = None) -> TensorType:
        expect_affine(x, self.affine_shape(x), weight=weight, bias=bias)
        return x


@frozen(slots=False)
class AxesNorm(NormOp):
    """A norm whose rows and affine operands are along `axes`."""

    axes: tuple[int, ...] = field(default=(-1,), converter=as_axes)

    def affine_shape(self, x: TensorType) -> Shape:
        return dims_at(x, self.axes)

    def batch(self, size: Dim, x: Sequence[Any], is_batched: Sequence[bool]) -> Value:
        axes = normalize_axes(self.axes, x[0].ndim - is_batched[0])
        return batched_norm(evolve(self, axes=tuple(a + 1 for a in axes)), axes, size, x, is_batched)


class ChannelNorm(NormOp):
    """A norm of images, with affine operands along their channels: axis 0 is over images, so a batch is more of them."""

    def batch(self, size: Dim, x: Sequence[Any], is_batched: Sequence[bool]) -> Value:
        def folded(data: Value, *affine_operands: Value | None) -> Value:
            images = reshaped(data, (data.shape[0] * data.shape[1], *data.shape[2:]))
            return reshaped(self(images, *affine_operands), data.shape)

        return batched_norm(folded, (1,), size, x, is_batched)


@define_op
class LayerNorm(AxesNorm):
    """Normalise `axes` to zero mean and unit variance, then scale and shift.

    `y = (x - mean(x)) / sqrt(var(x) + eps) · weight + bias`, with the biased variance.

    Shapes:
        x: f[..., d]    weight?: f[d]    bias?: f[d]    ->    y: f[..., d]

    Attributes:
        axes: The normalised axes; weight and bias have their dims, in ascending order.
        eps: Added to the variance before the root; same units as `x` squared.

    Source:
        Ba, Kiros, Hinton 2016, "Layer Normalization", arXiv:1607.06450, section 3.
    """

    eps: float = field(default=1e-5, validator=number(0))
    cost = per_element(8)

    def decompose(self, x: Value, weight: Value | None = None, bias: Value | None = None) -> Value:
        axes = normalize_axes(self.axes, x.ndim)
        x_hat, _ = standardize(wide(x), axes, self.eps)
        return as_dtype(affine(x_hat, weight, bias, axes), x.dtype)

    def vjp(self, g: Value, *operands: Value | None, y: Value) -> tuple[Value | Zero, ...]:
        x, weight, bias = operands_of(operands, 3)
        axes = normalize_axes(self.axes, x.ndim)
        dx = layer_norm_backward_input(x, g, weight, axes=self.axes, eps=self.eps)
        dgamma = None if weight is None else sum_to_axes(wide(g) * standardize(wide(x), axes, self.eps)[0], axes)
        dbeta = None if bias is None else sum_to_axes(wide(g), axes)
        return affine_cotangents(operands, dx, dgamma, dbeta)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ("f32", "f64", "f16", "bf16"):
            yield Sample(f"{d}[4, 8]", f"{d}[8]", f"{d}[8]")
        yield Sample("bf16[4, 8]", "f32[8]", "f32[8]")
        yield Sample("f32[2, 3, 5]", "f32[5]", None, eps=1e-3)
        yield Sample("f32[2, 3, 5]", None, "f32[3]", axes=(1,), eps=0.1)
        yield Sample("f32[2, 3, 4, 5]", "f32[3, 5]", "f32[3, 5]", axes=(1, -1))
        yield Sample("f32[2, 3]", axes=(0,), eps=0.1)
        yield Sample("f32[0, 3]", "f32[3]")
        yield Rejected("f32[4, 9]", "f32[8]", "f32[9]", error=ShapeError, says="weight must be [9]")
        yield Rejected("i32[4, 9]", error=DtypeError, says="x must be float")
        yield Rejected("f32[4, 9]", axes=(2,), error=AxisError, says="outside")
        yield Rejected("f32[4, 9]", eps=-1.0, error=ConfigError, says="eps must be a number of at least 0, not -1.0")


layer_norm = op_function(LayerNorm)


@define_op
class RmsNorm(AxesNorm):
    """Divide `axes` by their root mean square, then scale and shift: `y = x / sqrt(mean(x²) + eps) · weight + bias`.

    Shapes:
        x: f[..., d]    weight?: f[d]    bias?: f[d]    ->    y: f[..., d]

    Attributes:
        axes: The normalised axes; weight and bias have their dims, in ascending order.
        eps: Added to the mean square before the root; same units as `x` squared.

    Source:
        Zhang, Sennrich 2019, "Root Mean Square Layer Normalization", arXiv:1910.07467, section 4.
    """

    eps: float = field(default=1e-6, validator=number(0))
    cost = per_element(5)

    def decompose(self, x: Value, weight: Value | None = None, bias: Value | None = None) -> Value:
        axes = normalize_axes(self.axes, x.ndim)
        data = wide(x)
        return as_dtype(affine(data * inverse_rms(data, axes, self.eps), weight, bias, axes), x.dtype)

    def vjp(self, g: Value, *operands: Value | None, y: Value) -> tuple[Value | Zero, ...]:
        x, weight, bias = operands_of(operands, 3)
        axes, data = normalize_axes(self.axes, x.ndim), wide(x)
        dx = rms_norm_backward_input(x, g, weight, axes=self.axes, eps=self.eps)
        inverse = inverse_rms(data, axes, self.eps)
        dgamma = None if weight is None else sum_to_axes(wide(g) * data * inverse, axes)
        dbeta = None if bias is None else sum_to_axes(wide(g), axes)
        return affine_cotangents(operands, dx, dgamma, dbeta)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ("f32", "f64", "f16", "bf16"):
            yield Sample(f"{d}[4, 8]", f"{d}[8]", f"{d}[8]")
        yield Sample("bf16[4, 8]", "f32[8]")
        yield Sample("f32[2, 3, 5]", "f32[5]", None, eps=0.5)
        yield Sample("f32[2, 3, 5]", None, "f32[2, 3]", axes=(0, 1), eps=0.5)
        yield Sample("f32[2, 3]", axes=(-2,))
        yield Sample("f32[0, 3]", "f32[3]")
        yield Rejected("f32[4, 9]", "f32[9]", "f32[4]", error=ShapeError, says="bias must be [9]")
        yield Rejected("f32[4, 9]", "i32[9, 1]", error=ShapeError, says="weight must be [9]")
        yield Rejected("c64[4, 9]", error=DtypeError, says="x must be float")


rms_norm = op_function(RmsNorm)


@define_op
class GroupNorm(ChannelNorm):
    """Normalise each group of channels over the channels of the group and all spatial axes; scale and shift per channel.

    Shapes:
        x: f[n, c, ...]    weight?: f[c]    bias?: f[c]    ->    y: f[n, c, ...]

    Attributes:
        groups: The number of groups of channels; divides `c`.
        eps: Added to the biased variance before the root.

    Source:
        Wu, He 2018, "Group Normalization", arXiv:1803.08494, section 3.1.
    """

    groups: int = field(validator=whole(1))
    eps: float = field(default=1e-5, validator=number(0))
    cost = per_element(8)

    def affine_shape(self, x: TensorType) -> Shape:
        group_shape(x, self.groups)
        return x.shape[1:2]

    def decompose(self, x: Value, weight: Value | None = None, bias: Value | None = None) -> Value:
        return as_dtype(affine(self._standardized(x), weight, bias, (1,)), x.dtype)

    def _standardized(self, x: Value) -> Value:
        """Return x̂, wide."""
        x_hat, _ = standardize(reshaped(wide(x), group_shape(x.type, self.groups)), group_axes(x.type), self.eps)
        return reshaped(x_hat, x.shape)

    def vjp(self, g: Value, *operands: Value | None, y: Value) -> tuple[Value | Zero, ...]:
        x, weight, bias = operands_of(operands, 3)
        dx = group_norm_backward_input(x, g, weight, groups=self.groups, eps=self.eps)
        dgamma = None if weight is None else sum_to_axes(wide(g) * self._standardized(x), (1,))
        dbeta = None if bias is None else sum_to_axes(wide(g), (1,))
        return affine_cotangents(operands, dx, dgamma, dbeta)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ("f32", "f64", "f16", "bf16"):
            yield Sample(f"{d}[2, 4, 3]", f"{d}[4]", f"{d}[4]", groups=2)
        yield Sample("f32[2, 6, 3, 2]", "f32[6]", None, groups=3, eps=0.1)
        yield Sample("f32[2, 6, 2]", None, "f32[6]", groups=1)
        yield Sample("f32[2, 4]", groups=2, eps=0.1)
        yield Rejected("f32[2, 5, 3]", groups=2, error=ShapeError, says="5 channels do not split into 2 groups")
        yield Rejected("f32[2, 4, 3]", "f32[3]", groups=2, error=ShapeError, says="weight must be [4]")


group_norm = op_function(GroupNorm)


@define_op
class LayerNorm2d(ChannelNorm):
    """Normalise the channels at each position of an image: `LayerNorm` over axis 1 of `[n, c, h, w]`.

    Shapes:
        x: f[n, c, h, w]    weight?: f[c]    bias?: f[c]    ->    y: f[n, c, h, w]
    """

    eps: float = field(default=1e-6, validator=number(0))

    def affine_shape(self, x: TensorType) -> Shape:
        expect_rank("x", x, 4, 4)
        return x.shape[1:2]

    def decompose(self, x: Value, weight: Value | None = None, bias: Value | None = None) -> Value:
        return layer_norm(x, weight, bias, axes=(1,), eps=self.eps)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[2, 3, 2, 4]", "f32[3]", "f32[3]")
        yield Sample("f16[1, 4, 2, 2]", "f32[4]", None, eps=1e-3)
        yield Sample("f64[2, 3, 2, 2]", eps=0.1)
        yield Rejected("f32[2, 3, 4]", error=ShapeError, says="4 axes, not 3")


layer_norm2d = op_function(LayerNorm2d)
