"""A product added to something, as one op with an epilogue: residuals, and the step of a weight by its gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator

from attrs import field

from rlx_core.errors import ConfigError, DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.samples import Rejected, Sample
from rlx_core.ir.types import TensorType, expect_dtype, expect_shape
from rlx_core.ops.kinds import promoted
from rlx_core.ops.linalg import mat_mul
from rlx_core.ops.validators import number

__all__ = ["OPS", "FusedMatMulAdd", "fused_matmul_add"]


@define_op(name="fused_matmul_add")
class FusedMatMulAdd(Op):
    """A product, scaled, added to a tensor of its own shape: `residual + scale·(x·w)`.

    With `scale = -rate` and the transposed input as `x` it is the step of a weight by its gradient.

    Shapes:
        x: f[.., m, k]    w: f[.., k, n]    residual: f[.., m, n]    ->    y: f[.., m, n]

    Attributes:
        scale: What the product is multiplied by, rounded to its dtype.
    """

    scale: float = field(default=1.0, validator=number(-math.inf, is_open=True))

    def prepare(self, x: Value, w: Value, residual: Value) -> tuple[Value | None, ...]:
        return promoted(x, w, residual)

    def infer(self, x: TensorType, w: TensorType, residual: TensorType) -> TensorType:
        expect_dtype("x", x, FLOATS, "float")
        product = mat_mul.op().infer(x, w)
        expect_dtype("residual", residual, (product.dtype,))
        expect_shape("residual", residual, product.shape)
        return product

    def decompose(self, x: Value, w: Value, residual: Value) -> Value:
        product = mat_mul(x, w)
        return residual + (product if self.scale == 1.0 else product * self.scale)

    def cost(self, x: TensorType, w: TensorType, residual: TensorType) -> Dim:
        return 2 * residual.size * x.shape[-1]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in FLOATS:
            yield Sample(f"{d}[3, 4]", f"{d}[4, 5]", f"{d}[3, 5]", scale=-0.5)
        yield Sample("f64[2, 3, 4]", "f64[4, 4]", "f64[2, 3, 4]")
        yield Rejected("f32[3, 4]", "f32[4, 5]", "f32[5]", error=ShapeError, says="residual must be [3, 5]")
        yield Rejected("i32[3, 4]", "i32[4, 5]", "i32[3, 5]", error=DtypeError, says="x must be float")
        yield Rejected("f32[3, 4]", "f32[4, 5]", "f32[3, 5]", scale="big", error=ConfigError, says="scale must be")


fused_matmul_add = op_function(FusedMatMulAdd)

OPS = (FusedMatMulAdd,)
