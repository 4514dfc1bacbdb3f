"""The base of batch norms, and the cotangents of the inference form as ops: one kernel each, if a backend has one.

Every operand but x has the channel axis alone; its cotangent is a sum over all other axes, in the accumulation dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rlx_core.errors import ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, expect_dtype, expect_shape, normalize_axis
from rlx_core.ops.activation import rsqrt
from rlx_core.ops.conversion import as_dtype
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.statistics import along, expect_affine, sum_to_axes, wide

POSITIVE = (0.5, 2.0)


class ChannelOp(Op):
    """Base of these ops: a channel axis, and operands along it."""

    category: ClassVar = "boundary"
    axis: int
    eps: float

    def channel(self, x: Value | TensorType) -> int:
        """Return the channel axis, counted from the front."""
        return normalize_axis(self.axis, x.rank if isinstance(x, TensorType) else x.ndim)

    def placed(self, x: Value, *vectors: Value) -> list[Value]:
        """Return vectors over the channels, wide, in a shape that broadcasts against x."""
        return [along(v, x.ndim, (self.channel(x),)) for v in vectors]

    def inverse_std(self, var: Value) -> Value:
        return rsqrt(var + self.eps)

    def expect(self, x: TensorType, dy: TensorType | None = None, **vectors: TensorType) -> None:
        """Require float data, vectors over its channels, and a cotangent of the same dims."""
        expect_affine(x, (x.shape[self.channel(x)],), **vectors)
        if dy is not None:
            expect_dtype("dy", dy, (x.dtype,))
            expect_shape("dy", dy, x.shape)

    def vector(self, x: TensorType) -> TensorType:
        """Return the type of a cotangent along the channels: wide, because it is a sum over all other axes."""
        return TensorType(x.dtype.accumulator, (x.shape[self.channel(x)],))


@define_op
class BatchNormInferenceBackwardX(ChannelOp):
    """The cotangent of x in `BatchNormInference`: `dy·weight·r` with `r = 1/sqrt(var + eps)`."""

    axis: int = 1
    eps: float = 1e-5

    def infer(self, dy: TensorType, weight: TensorType, var: TensorType) -> TensorType:
        self.expect(dy, weight=weight, var=var)
        return dy

    def decompose(self, dy: Value, weight: Value, var: Value) -> Value:
        g, v = self.placed(dy, weight, var)
        return as_dtype(wide(dy) * g * self.inverse_std(v), dy.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[2, 3, 4]", "f32[3]", "f32[3]", ranges={"var": POSITIVE})
        yield Sample("bf16[2, 3]", "f32[3]", "f32[3]", axis=-1, eps=0.1, ranges={"var": POSITIVE})


batch_norm_inference_backward_x = op_function(BatchNormInferenceBackwardX)


@define_op
class BatchNormInferenceBackwardGamma(ChannelOp):
    """The cotangent of weight in `BatchNormInference`: `Σ dy·(x - mean)·r` over all axes but the channels."""

    axis: int = 1
    eps: float = 1e-5

    def infer(self, x: TensorType, dy: TensorType, mean: TensorType, var: TensorType) -> TensorType:
        self.expect(x, dy, mean=mean, var=var)
        return self.vector(x)

    def decompose(self, x: Value, dy: Value, mean: Value, var: Value) -> Value:
        m, v = self.placed(x, mean, var)
        return sum_to_axes(wide(dy) * (wide(x) - m) * self.inverse_std(v), (self.channel(x),))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[2, 3, 4]", "f32[2, 3, 4]", "f32[3]", "f32[3]", ranges={"var": POSITIVE})
        yield Rejected("f32[2, 3]", "f32[3, 2]", "f32[3]", "f32[3]", error=ShapeError, says="dy must be [2, 3]")


batch_norm_inference_backward_gamma = op_function(BatchNormInferenceBackwardGamma)


@define_op
class BatchNormInferenceBackwardBeta(ChannelOp):
    """The cotangent of bias in `BatchNormInference`: `Σ dy` over all axes but the channels."""

    axis: int = 1
    eps: float = 1e-5

    def infer(self, dy: TensorType) -> TensorType:
        self.expect(dy)
        return self.vector(dy)

    def decompose(self, dy: Value) -> Value:
        return sum_to_axes(wide(dy), (self.channel(dy),))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[2, 3, 4]")
        yield Sample("f16[2, 3]", axis=0)


batch_norm_inference_backward_beta = op_function(BatchNormInferenceBackwardBeta)


@define_op
class BatchNormInferenceBackwardMean(ChannelOp):
    """The cotangent of mean in `BatchNormInference`: `-Σ dy·weight·r` over all axes but the channels."""

    axis: int = 1
    eps: float = 1e-5

    def infer(self, dy: TensorType, weight: TensorType, var: TensorType) -> TensorType:
        self.expect(dy, weight=weight, var=var)
        return self.vector(dy)

    def decompose(self, dy: Value, weight: Value, var: Value) -> Value:
        return -(sum_to_axes(wide(dy), (self.channel(dy),)) * wide(weight) * self.inverse_std(wide(var)))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[2, 3, 4]", "f32[3]", "f32[3]", ranges={"var": POSITIVE})


batch_norm_inference_backward_mean = op_function(BatchNormInferenceBackwardMean)


@define_op
class BatchNormInferenceBackwardVar(ChannelOp):
    """The cotangent of var in `BatchNormInference`: `-½ Σ dy·weight·(x - mean)·r³` over all axes but the channels."""

    axis: int = 1
    eps: float = 1e-5

    def infer(self, x: TensorType, dy: TensorType, weight: TensorType, mean: TensorType, var: TensorType) -> TensorType:
        self.expect(x, dy, weight=weight, mean=mean, var=var)
        return self.vector(x)

    def decompose(self, x: Value, dy: Value, weight: Value, mean: Value, var: Value) -> Value:
        (m,) = self.placed(x, mean)
        r = self.inverse_std(wide(var))
        total = sum_to_axes(wide(dy) * (wide(x) - m), (self.channel(x),))
        return total * wide(weight) * (r * r * r) * -0.5

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[2, 3, 4]", "f32[2, 3, 4]", *["f32[3]"] * 3, ranges={"var": POSITIVE})


batch_norm_inference_backward_var = op_function(BatchNormInferenceBackwardVar)


OPS: tuple[type[Op], ...] = (
    BatchNormInferenceBackwardX,
    BatchNormInferenceBackwardGamma,
    BatchNormInferenceBackwardBeta,
    BatchNormInferenceBackwardMean,
    BatchNormInferenceBackwardVar,
)
