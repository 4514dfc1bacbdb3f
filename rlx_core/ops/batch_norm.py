"""Batch normalisation: with given statistics (inference), and with the statistics of the batch (training).

Every operand but x has the channel axis alone; its cotangent is a sum over all other axes, in the accumulation dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from attrs import evolve, field

from rlx_core.errors import AxisError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, normalize_axis
from rlx_core.ops.activation import rsqrt
from rlx_core.ops.conversion import as_dtype, per_element
from rlx_core.ops.creation import size_scalar
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.statistics import affine_prepare, along, expect_affine, mean_over, sum_to_axes, wide
from rlx_core.ops.structural import expand, reshape, transpose
from rlx_core.ops.validators import number

POSITIVE = (0.5, 2.0)


class ChannelOp(Op):
    """Base of both ops: a channel axis, and operands along it."""

    category: ClassVar = "boundary"
    axis: int
    eps: float

    def prepare(self, x: Value, *vectors: Value) -> tuple[Value | None, ...]:
        return affine_prepare(x, *vectors)

    def channel(self, x: Value | TensorType) -> int:
        """Return the channel axis, counted from the front."""
        return normalize_axis(self.axis, x.rank if isinstance(x, TensorType) else x.ndim)

    def placed(self, x: Value, *vectors: Value) -> list[Value]:
        """Return vectors over the channels, wide, in a shape that broadcasts against x."""
        return [along(v, x.ndim, (self.channel(x),)) for v in vectors]

    def inverse_std(self, var: Value) -> Value:
        return rsqrt(var + self.eps)

    def expect(self, x: TensorType, **vectors: TensorType) -> None:
        """Require float data, and vectors over its channels."""
        expect_affine(x, (x.shape[self.channel(x)],), **vectors)

    def vector(self, x: TensorType) -> TensorType:
        """Return the type of a statistic of the channels: wide, because it is a sum over all other axes."""
        return TensorType(x.dtype.accumulator, (x.shape[self.channel(x)],))


@define_op
class BatchNormInference(ChannelOp):
    """Normalise with given statistics: `y = (x - mean) / sqrt(var + eps) · weight + bias` in each channel.

    Shapes:
        x: f[.., c, ..]    weight, bias, mean, var: f[c]    ->    y: the type of x
    """

    axis: int = 1
    eps: float = field(default=1e-5, validator=number(0))
    cost = per_element(4)

    def infer(
        self, x: TensorType, weight: TensorType, bias: TensorType, mean: TensorType, var: TensorType
    ) -> TensorType:
        self.expect(x, weight=weight, bias=bias, mean=mean, var=var)
        return x

    def decompose(self, x: Value, weight: Value, bias: Value, mean: Value, var: Value) -> Value:
        g, b, m, v = self.placed(x, weight, bias, mean, var)
        return as_dtype((wide(x) - m) * self.inverse_std(v) * g + b, x.dtype)

    def vjp(
        self, g: Value, x: Value, weight: Value, bias: Value, mean: Value, var: Value, *, y: Value
    ) -> tuple[Value, ...]:
        dy, channel, r = wide(g), self.channel(x), self.inverse_std(wide(var))
        w, m, v = self.placed(x, weight, mean, var)
        dbeta, along_x = sum_to_axes(dy, (channel,)), sum_to_axes(dy * (wide(x) - m), (channel,))
        slope = wide(weight) * r
        return (
            as_dtype(dy * w * self.inverse_std(v), x.dtype),
            as_dtype(along_x * r, weight.dtype),
            as_dtype(dbeta, bias.dtype),
            as_dtype(-(dbeta * slope), mean.dtype),
            as_dtype(along_x * slope * (r * r) * -0.5, var.dtype),
        )

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        data = x[0] if is_batched[0] else expand(x[0], (size, *x[0].shape))
        axis = normalize_axis(self.axis, data.ndim - 1)
        if not any(is_batched[1:]):
            return evolve(self, axis=axis + 1)(data, *x[1:])
        # Examples with separate statistics are further channels: [b, .., c, ..] as [.., b·c, ..].
        vectors = [v if b else expand(v, (size, *v.shape)) for v, b in zip(x[1:], is_batched[1:], strict=True)]
        to_front = (*range(1, axis + 1), 0, *range(axis + 1, data.ndim))
        moved = transpose(data, to_front)
        channels = size * moved.shape[axis + 1]
        merged = reshape(moved, (*moved.shape[:axis], channels, *moved.shape[axis + 2 :]))
        y = evolve(self, axis=axis)(merged, *(reshape(v, (channels,)) for v in vectors))
        back = tuple(to_front.index(i) for i in range(data.ndim))
        return transpose(reshape(y, moved.shape), back)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ("f32", "f64", "f16", "bf16"):
            yield Sample(f"{d}[2, 3, 4]", *[f"{d}[3]"] * 4, ranges={"var": POSITIVE})
        yield Sample("f16[2, 3]", *["f32[3]"] * 4, ranges={"var": POSITIVE})
        yield Sample("f32[2, 4, 3]", *["f32[3]"] * 4, axis=-1, eps=0.1, ranges={"var": POSITIVE})
        yield Sample("f32[3, 2]", *["f32[3]"] * 4, axis=0, ranges={"var": POSITIVE})
        yield Rejected("f32[2, 3, 4]", *["f32[4]"] * 4, error=ShapeError, says="weight must be [3]")
        yield Rejected("f32[3]", *["f32[3]"] * 4, error=AxisError, says="outside")


batch_norm_inference = op_function(BatchNormInference)


@define_op
class BatchNorm(ChannelOp):
    """Normalise each channel with the statistics of the batch, and move the running statistics towards them.

    `y` and `var` use the biased variance; `running_var' = (1 - momentum)·running_var + momentum·var·n/(n - 1)`, with n the
    elements of a channel, and the same without the factor for the mean.

    Shapes:
        x: f[.., c, ..]    the others: f[c]    ->    y, mean, var, running_mean', running_var'

    Attributes:
        axis: The channel axis.
        eps: Added to the variance before the root.
        momentum: The fraction by which the running statistics move, 0 to 1.

    Raises:
        ShapeError: A channel has fewer than two elements, so that no unbiased variance exists.

    Source:
        Ioffe, Szegedy 2015, "Batch Normalization", arXiv:1502.03167, algorithms 1 and 2.
    """

    axis: int = 1
    eps: float = field(default=1e-5, validator=number(0))
    momentum: float = field(default=0.1, validator=number(0))
    cost = per_element(8)

    def infer(
        self, x: TensorType, weight: TensorType, bias: TensorType, running_mean: TensorType, running_var: TensorType
    ) -> tuple[TensorType, ...]:
        self.expect(x, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var)
        count = self._count(x)
        if isinstance(count, int) and count < 2:
            raise ShapeError(f"a channel of {x} has {count} elements, and statistics need 2")
        return x, self.vector(x), self.vector(x), running_mean, running_var

    def decompose(
        self, x: Value, weight: Value, bias: Value, running_mean: Value, running_var: Value
    ) -> tuple[Value, ...]:
        channel, data = self.channel(x), wide(x)
        others = tuple(a for a in range(x.ndim) if a != channel)
        mean = mean_over(data, others)
        centred = data - mean
        var = mean_over(centred * centred, others)
        g, b = self.placed(x, weight, bias)
        y = centred * self.inverse_std(var) * g + b
        mean, var = (reshape(s, (x.shape[channel],)) for s in (mean, var))
        count = self._count(x.type)
        correction = size_scalar(count, var.dtype) / size_scalar(count - 1, var.dtype)
        moved_mean = wide(running_mean) * (1 - self.momentum) + mean * self.momentum
        moved_var = wide(running_var) * (1 - self.momentum) + var * correction * self.momentum
        running = (as_dtype(moved_mean, running_mean.dtype), as_dtype(moved_var, running_var.dtype))
        return as_dtype(y, x.dtype), mean, var, *running

    def vjp(
        self,
        g: Sequence[Any],
        x: Value,
        weight: Value,
        bias: Value,
        running_mean: Value,
        running_var: Value,
        *,
        y: Sequence[Value],
    ) -> tuple[Value, ...]:
        # Closed form: after the sums that weight and bias need, one pass over g and x; the derived rule takes several.
        dy, d_mean, d_var, d_running_mean, d_running_var = map(wide, g)
        channel, count = self.channel(x), self._count(x.type)
        n, one_less = (size_scalar(size, y[2].dtype) for size in (count, count - 1))
        data, r = wide(x), self.inverse_std(y[2])
        centred = data - self.placed(x, y[1])[0]
        dbeta, along_x = sum_to_axes(dy, (channel,)), sum_to_axes(dy * centred, (channel,))
        slope = wide(weight) * r
        of_mean = d_mean + d_running_mean * self.momentum
        of_var = d_var + d_running_var * (n / one_less * self.momentum)
        per_x = (slope * r * r * along_x - 2.0 * of_var) / n
        # x itself instead of x - mean, which then need not be saved: the accuracy is the same, because a mean is rounded like
        # x.
        by_dy, shift, by_x = self.placed(x, slope, (slope * dbeta - of_mean) / n - y[1] * per_x, per_x)
        return (
            as_dtype(dy * by_dy - shift - data * by_x, x.dtype),
            as_dtype(along_x * r, weight.dtype),
            as_dtype(dbeta, bias.dtype),
            as_dtype(d_running_mean * (1 - self.momentum), running_mean.dtype),
            as_dtype(d_running_var * (1 - self.momentum), running_var.dtype),
        )

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ("f32", "f64", "f16", "bf16"):
            yield Sample(f"{d}[2, 3, 4]", *[f"{d}[3]"] * 4, ranges={"running_var": POSITIVE})
        yield Sample("f64[5, 3]", *["f64[3]"] * 4, axis=-1, eps=0.1, momentum=0.3, ranges={"running_var": POSITIVE})
        yield Rejected("f32[1, 3]", *["f32[3]"] * 4, error=ShapeError, says="1 elements")
        yield Rejected("f32[2, 3]", *["f32[2]"] * 4, error=ShapeError, says="weight must be [3]")

    def _count(self, x: TensorType) -> Dim:
        channel = self.channel(x)
        return product([d for i, d in enumerate(x.shape) if i != channel])


batch_norm = op_function(BatchNorm)
