"""A product and the element-wise region after it, as one op: residuals, slopes, gates, and updates of weights by gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rlx_core.errors import ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, expect_dtype, same_dim
from rlx_core.ops.activation import gelu, tanh
from rlx_core.ops.arithmetic import add, multiply, subtract
from rlx_core.ops.kinds import promoted
from rlx_core.ops.linalg import mat_mul
from rlx_core.ops.region import ElementwiseRegion, RegionStep
from rlx_core.ops.samples import Rejected, Sample


@define_op(name="fused_matmul_epilogue")
class FusedMatMulEpilogue(Op):
    """A region that reads a product as its first input: `region(x·w, others..)`.

    With the transposed input as `x` and `others[0] - rate·product` as the region it is the update of a weight by its gradient.

    Shapes:
        x: f[.., m, k]    w: f[.., k, n]    others: inputs of the region    ->    y_j: [.., m, n]

    Attributes:
        region: The epilogue; its dims are those of the product.

    Raises:
        ShapeError: The product has other dims than the region.
    """

    category: ClassVar = "compute"
    region: ElementwiseRegion

    def prepare(self, x: Value, w: Value, *others: Value) -> tuple[Value | None, ...]:
        return (*promoted(x, w), *others)

    def infer(self, x: TensorType, w: TensorType, *others: TensorType) -> TensorType | tuple[TensorType, ...]:
        expect_dtype("x", x, FLOATS, "float")
        product = mat_mul.op().infer(x, w)
        shape = self.region.shape
        if product.rank != len(shape) or not all(map(same_dim, product.shape, shape)):
            raise ShapeError(f"the product is {product}, and the region {list(shape)}")
        return self.region.infer(product, *others)

    def decompose(self, x: Value, w: Value, *others: Value) -> Value | tuple[Value, ...]:
        return self.region(mat_mul(x, w), *others)

    def cost(self, x: TensorType, w: TensorType, *others: TensorType) -> Dim:
        product = mat_mul.op().infer(x, w)
        return 2 * product.size * x.shape[-1] + self.region.cost(product, *others)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        full, row, one = (5, 1), (0, 1), (0, 0)
        stepped = ElementwiseRegion(
            shape=(3, 5), access=(full, one, full), results=(1,),
            steps=(RegionStep(multiply.op(), (0, 1)), RegionStep(subtract.op(), (2, 3))),
        )  # fmt: skip
        for d in ("f16", "bf16", "f32", "f64"):
            yield Sample(f"{d}[3, 4]", f"{d}[4, 5]", f"{d}[]", f"{d}[3, 5]", region=stepped)
        biased = ElementwiseRegion(
            shape=(3, 5), access=(full, row), results=(1, 0),
            steps=(RegionStep(add.op(), (0, 1)), RegionStep(gelu.op(), (2,))),
        )  # fmt: skip
        yield Sample("f64[3, 4]", "f64[4, 5]", "f64[5]", region=biased)
        batched = ElementwiseRegion(
            shape=(2, 3, 5), access=((15, 5, 1),), results=(0,), steps=(RegionStep(tanh.op(), (0,)),)
        )
        yield Sample("f64[2, 3, 4]", "f64[4, 5]", region=batched)
        yield Rejected(
            "f32[2, 4]", "f32[4, 5]", "f32[5]", region=biased, error=ShapeError, says="f32[2, 5], and the region"
        )
        yield Rejected("f32[3, 4]", "f32[5, 5]", "f32[5]", region=biased, error=ShapeError, says="4 != 5")


fused_matmul_epilogue = op_function(FusedMatMulEpilogue)
