"""A product whose left operand is read in place: its rows and its terms may be several axes each.

Windows of a channels-last operand are such rows: `[n, height, width, (k.., c)]` is a view of it, so the product with `[(k..,
c), m]` needs no copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from attrs import field

from rlx_core.errors import AxisError, DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.dtypes import FLOATS, INTEGERS, DType, f32, i32
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, expect_dtype, expect_dtype_of, expect_rank, same_dim
from rlx_core.ops.activation import relu
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.conversion import Cast
from rlx_core.ops.kinds import promoted
from rlx_core.ops.linalg import mat_mul, product_dtype
from rlx_core.ops.piecewise import Round
from rlx_core.ops.region import ElementwiseRegion, RegionStep
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import reshape
from rlx_core.ops.validators import optional_dtype


@define_op(name="folded_matmul")
class FoldedMatMul(Op):
    """The product over the last axes of `x`, merged into one: y[.., n] = Σ x[.., k..]·w[(k..), n], followed by a region.

    Shapes:
        x: f[.., k..]    w: f[Πk, n]    others: further inputs of the region    ->    y: f[.., n], or the region's result

    Attributes:
        axes: The number of axes that are summed over, at least 1; x has more.
        region: The computation on the product, which is its first input; none if `None`.
        acc_dtype: A wider dtype for the sums of integers, as of `MatMul`; x and w are then integers.

    Raises:
        AxisError: x has no further axis.
        ShapeError: w has another number of rows, or the region other dims than the product.
        DtypeError: The factors are not floats, or not integers if there is an `acc_dtype`.
    """

    category: ClassVar = "compute"
    axes: int = 1
    region: ElementwiseRegion | None = field(default=None, kw_only=True)
    acc_dtype: DType | None = field(default=None, converter=optional_dtype, kw_only=True)

    def prepare(self, x: Value, w: Value, *others: Value) -> tuple[Value | None, ...]:
        return (*promoted(x, w), *others)

    def infer(self, x: TensorType, w: TensorType, *others: TensorType) -> TensorType | tuple[TensorType, ...]:
        expect_dtype("x", x, *((FLOATS, "float") if self.acc_dtype is None else (INTEGERS, "integer")))
        expect_dtype_of("w", w, "x", x)
        expect_rank("w", w, 2, 2)
        if not 0 < self.axes < x.rank:
            raise AxisError(f"{self.axes} of the axes of {x} are summed over; at least 1, and not all")
        terms = product(x.shape[x.rank - self.axes :])
        if not same_dim(terms, w.shape[0]):
            raise ShapeError(f"w has {w.shape[0]} rows for {terms} terms")
        result = TensorType(product_dtype(x, w, self.acc_dtype), (*x.shape[: x.rank - self.axes], w.shape[1]))
        if self.region is None:
            if others:
                raise ShapeError(f"without a region there are two operands, not {2 + len(others)}")
            return result
        if result.rank != len(self.region.shape) or not all(map(same_dim, result.shape, self.region.shape)):
            raise ShapeError(f"the product is {result}, and the region {list(self.region.shape)}")
        return self.region.infer(result, *others)

    def decompose(self, x: Value, w: Value, *others: Value) -> Value | tuple[Value, ...]:
        rows = x.shape[: x.ndim - self.axes]
        sums = mat_mul(reshape(x, (product(rows), w.shape[0])), w, acc_dtype=self.acc_dtype)
        y = reshape(sums, (*rows, w.shape[1]))
        return y if self.region is None else self.region(y, *others)

    def cost(self, x: TensorType, w: TensorType, *others: TensorType) -> Dim:
        result = TensorType(product_dtype(x, w, self.acc_dtype), (*x.shape[: x.rank - self.axes], w.shape[1]))
        product_cost = 2 * result.size * w.shape[0]
        return product_cost if self.region is None else product_cost + self.region.cost(result, *others)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ("f16", "bf16", "f32", "f64"):
            yield Sample(f"{d}[2, 3, 4, 2]", f"{d}[8, 5]", axes=2)
        yield Sample("f32[3, 4]", "f32[4, 5]")
        yield Sample("f32[2, 9, 1, 3, 2, 4]", "f32[24, 19]", axes=3)
        yield Sample("f32[2, 3, 0]", "f32[0, 5]")
        biased = ElementwiseRegion(
            shape=(2, 3, 5), access=((15, 5, 1), (0, 0, 1), (15, 5, 1)), results=(0, 1),
            steps=(RegionStep(add.op(), (0, 1)), RegionStep(relu.op(), (3,))),
        )  # fmt: skip
        yield Sample("f64[2, 3, 4, 2]", "f64[8, 5]", "f64[5]", "f64[2, 3, 5]", axes=2, region=biased)
        yield Sample("i16[2, 3, 4, 2]", "i16[8, 5]", axes=2, acc_dtype=i32, low=-255.0, high=255.0)
        scaled = ElementwiseRegion(
            shape=(2, 3, 5), access=((15, 5, 1), (0, 0, 1)), results=(2,),
            steps=(RegionStep(Cast(f32), (0,)), RegionStep(multiply.op(), (2, 1)), RegionStep(Round(), (3,))),
        )  # fmt: skip
        yield Sample(
            "i16[2, 3, 6]", "i16[6, 5]", "f32[5]", region=scaled, acc_dtype=i32, is_smooth=False, low=-255.0, high=255.0
        )
        yield Rejected("f32[2, 4]", "f32[4, 5]", acc_dtype=i32, error=DtypeError, says="integer")
        yield Rejected("i16[2, 4]", "i16[4, 5]", error=DtypeError, says="float")
        yield Rejected("f32[2, 3]", "f32[6, 5]", axes=2, error=AxisError, says="not all")
        yield Rejected("f32[2, 3, 4]", "f32[4, 5]", axes=2, error=ShapeError, says="4 rows for 12 terms")
        yield Rejected("f32[2, 4]", "f32[4, 5]", "f32[5]", "f32[2, 5]", region=biased, error=ShapeError, says="region")


folded_matmul = op_function(FoldedMatMul)
