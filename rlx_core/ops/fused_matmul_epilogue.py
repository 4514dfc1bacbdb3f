"""A product and the element-wise region after it, as one op: residuals, gates, updates of weights, scales of integer sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from attrs import field

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import FLOATS, INTEGERS, DType, bf16, f16, f32, f64, i32, u8
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, expect_dtype, same_dim
from rlx_core.ops.activation import gelu, tanh
from rlx_core.ops.arithmetic import add, multiply, subtract
from rlx_core.ops.conversion import Cast
from rlx_core.ops.kinds import promoted
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.piecewise import Round
from rlx_core.ops.region import ElementwiseRegion, RegionStep
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.validators import optional_dtype


@define_op(name="fused_matmul_epilogue")
class FusedMatMulEpilogue(Op):
    """A region that reads a product as its first input: `region(x·w, others..)`.

    The product of integers has sums of `acc_dtype`, which the region scales, and may round to codes again; the product of f16 or
    bf16 may have sums of f32, which are then not rounded before the region reads them. With the transposed
    input as `x` and `others[0] - rate·product` as the region it is the update of a weight by its gradient.

    Shapes:
        x: f[.., m, k]    w: f[.., k, n]    others: inputs of the region    ->    y_j: [.., m, n]

    Attributes:
        region: The epilogue; its dims are those of the product.
        acc_dtype: A wider dtype for the sums, as of `MatMul`; x and w are then integers, f16 or bf16.

    Raises:
        ShapeError: The product has other dims than the region.
        DtypeError: The factors are not floats, or not integers, f16 or bf16 if there is an `acc_dtype`.
    """

    category: ClassVar = "compute"
    region: ElementwiseRegion
    acc_dtype: DType | None = field(default=None, converter=optional_dtype)

    @property
    def product(self) -> MatMul:
        """The product that the region reads."""
        return MatMul(acc_dtype=self.acc_dtype)

    def prepare(self, x: Value, w: Value, *others: Value) -> tuple[Value | None, ...]:
        return (*promoted(x, w), *others)

    def infer(self, x: TensorType, w: TensorType, *others: TensorType) -> TensorType | tuple[TensorType, ...]:
        is_plain = self.acc_dtype is None
        expect_dtype("x", x, *((FLOATS, "float") if is_plain else ((*INTEGERS, f16, bf16), "integer, f16 or bf16")))
        product = self.product.infer(x, w)
        shape = self.region.shape
        if product.rank != len(shape) or not all(map(same_dim, product.shape, shape)):
            raise ShapeError(f"the product is {product}, and the region {list(shape)}")
        return self.region.infer(product, *others)

    def decompose(self, x: Value, w: Value, *others: Value) -> Value | tuple[Value, ...]:
        return self.region(self.product(x, w), *others)

    def cost(self, x: TensorType, w: TensorType, *others: TensorType) -> Dim:
        product = self.product.infer(x, w)
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
        scaled = ElementwiseRegion(
            shape=(3, 5), access=(full, (1, 0), row), results=(2,),
            steps=(RegionStep(Cast(f32), (0,)), RegionStep(multiply.op(), (3, 1)), RegionStep(multiply.op(), (4, 2))),
        )  # fmt: skip
        yield Sample(
            "i8[3, 40]", "i8[40, 5]", "f32[3, 1]", "f32[5]", region=scaled, acc_dtype=i32, low=-127.0, high=127.0
        )
        codes = ElementwiseRegion(
            shape=(3, 5), access=(full, one), results=(3,),
            steps=(
                RegionStep(Cast(f32), (0,)), RegionStep(multiply.op(), (2, 1)), RegionStep(Round(), (3,)),
                RegionStep(Cast(u8), (4,)),
            ),
        )  # fmt: skip
        yield Sample("u8[3, 4]", "u8[4, 5]", "f32[]", region=codes, acc_dtype=i32, low=0.0, high=9.0)
        for d, narrow in (("f16", f16), ("bf16", bf16)):
            added = ElementwiseRegion(
                shape=(3, 5), access=(full, full), results=(0, 1),
                steps=(RegionStep(add.op(), (0, 1)), RegionStep(Cast(narrow), (2,))),
            )  # fmt: skip
            yield Sample(f"{d}[3, 40]", f"{d}[40, 5]", "f32[3, 5]", region=added, acc_dtype=f32)
            yield Sample(f"{d}[3, 4]", f"{d}[4, 5]", "f32[]", "f32[3, 5]", region=stepped, acc_dtype=f32)
        yield Rejected("i8[3, 4]", "i8[4, 5]", "f32[]", region=codes, error=DtypeError, says="x must be float")
        yield Rejected(
            "f32[3, 4]", "f32[4, 5]", "f64[]", region=codes, acc_dtype=f64, error=DtypeError, says="x must be integer"
        )
        yield Rejected(
            "f32[2, 4]", "f32[4, 5]", "f32[5]", region=biased, error=ShapeError, says="f32[2, 5], and the region"
        )
        yield Rejected("f32[3, 4]", "f32[5, 5]", "f32[5]", region=biased, error=ShapeError, says="4 != 5")


fused_matmul_epilogue = op_function(FusedMatMulEpilogue)
