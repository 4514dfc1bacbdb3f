"""A product whose right operand is computed from narrower data where it is read: dequantised blocks, or a wider dtype."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from attrs import field

from rlx_core.errors import ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.dtypes import FLOATS, f16, f32, f64, i32
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, expect_dtype, expect_dtype_of, expect_rank, same_dim
from rlx_core.ops.activation import relu
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.bitwise import bitwise_and, bitwise_right_shift
from rlx_core.ops.conversion import Cast
from rlx_core.ops.fused_loop import FusedLoop, LoopStep
from rlx_core.ops.linalg import mat_mul
from rlx_core.ops.region import ElementwiseRegion, RegionStep
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import Reshape, Transpose, reshape


@define_op(name="fused_matmul_prologue")
class FusedMatMulPrologue(Op):
    """A product whose right operand is the result of a load: `region(x·w, others..)` with `w = reshape(load(sources..), [k, n])`.

    A backend evaluates the load where it reads `w`, so that `w` is never in memory as a whole.

    Shapes:
        x: f[.., m, k]    sources: inputs of the load    others: further inputs of the region    ->    y: f[.., m, n]

    Attributes:
        load: The computation of w. The last axis of its one result has the columns of w, the other axes together its rows: so
            that every source is read at places that are affine in the axes.
        region: The computation on the product, which is its first input; none if `None`.

    Raises:
        ShapeError: The load's result has another number of rows than x has columns, or the region other dims than the product.
    """

    category: ClassVar = "compute"
    load: FusedLoop
    region: ElementwiseRegion | None = field(default=None, kw_only=True)

    def infer(self, x: TensorType, *operands: TensorType) -> TensorType | tuple[TensorType, ...]:
        expect_dtype("x", x, FLOATS, "float")
        expect_rank("x", x, 2)
        count = self.load.inputs
        w = self.load.infer(*operands[:count])
        if isinstance(w, tuple):
            raise ShapeError(f"the load has {len(w)} results, not 1")
        expect_rank("load", w, 2)
        expect_dtype_of("load", w, "x", x)
        if not same_dim(product(w.shape[:-1]), x.shape[-1]):
            raise ShapeError(f"the load is {w}, with {product(w.shape[:-1])} rows for {x.shape[-1]} columns of x")
        result = x.with_shape((*x.shape[:-1], w.shape[-1]))
        others = operands[count:]
        if self.region is None:
            if others:
                raise ShapeError(f"without a region there are {1 + count} operands, not {1 + len(operands)}")
            return result
        if result.rank != len(self.region.shape) or not all(map(same_dim, result.shape, self.region.shape)):
            raise ShapeError(f"the product is {result}, and the region {list(self.region.shape)}")
        return self.region.infer(result, *others)

    def decompose(self, x: Value, *operands: Value) -> Value | tuple[Value, ...]:
        count = self.load.inputs
        w = self.load(*operands[:count])
        y = mat_mul(x, w if w.ndim == 2 else reshape(w, (x.shape[-1], w.shape[-1])))
        return y if self.region is None else self.region(y, *operands[count:])

    def cost(self, x: TensorType, *operands: TensorType) -> Dim:
        count = self.load.inputs
        w = self.load.infer(*operands[:count])
        assert isinstance(w, TensorType), "a load has one result"
        result = x.with_shape((*x.shape[:-1], w.shape[-1]))
        products = 2 * result.size * x.shape[-1]
        return products if self.region is None else products + self.region.cost(result, *operands[count:])

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for narrow, wide in (("f16", f32), ("bf16", f32), ("i8", f32), ("u8", f32), ("f32", f64), ("i8", f16)):
            yield Sample(f"{wide}[3, 8]", f"{narrow}[8, 5]", load=FusedLoop(1, (LoopStep(Cast(wide), (0,)),), (1,)))
        across = FusedLoop(1, (LoopStep(Transpose((1, 0)), (0,)), LoopStep(Cast(f32), (1,))), (2,))
        yield Sample("f32[2, 3, 8]", "f16[5, 8]", load=across)
        yield Sample("f32[3, 8]", "i8[8, 5]", "f32[5]", load=_scaled())
        yield Sample("f32[3, 16]", "u8[2, 4, 5]", "i32[2, 1]", "i32[]", "f32[2, 5]", load=_of_nibbles(),
                     ranges={"operands1": (0, 5), "operands2": (15, 16)})  # fmt: skip
        biased = ElementwiseRegion(
            shape=(3, 5), access=((5, 1), (0, 1)), results=(1,),
            steps=(RegionStep(add.op(), (0, 1)), RegionStep(relu.op(), (2,))),
        )  # fmt: skip
        yield Sample("f32[3, 8]", "i8[8, 5]", "f32[5]", "f32[5]", load=_scaled(), region=biased)
        yield Rejected("f32[3, 4]", "i8[8, 5]", "f32[5]", load=_scaled(), error=ShapeError, says="8 rows for 4 columns")
        yield Rejected("f32[2, 8]", "i8[8, 5]", "f32[5]", "f32[5]", load=_scaled(), region=biased, error=ShapeError,
                       says="f32[2, 5], and the region")  # fmt: skip
        yield Rejected("f32[3, 8]", "i8[8, 5]", "f32[5]", "f32[5]", load=_scaled(), error=ShapeError, says="3 operands")


def _scaled() -> FusedLoop:
    """The load of `i8[k, n]` times a scale for each column."""
    return FusedLoop(2, (LoopStep(Cast(f32), (0,)), LoopStep(multiply.op(), (2, 1))), (3,))


def _of_nibbles() -> FusedLoop:
    """The load of bytes `[block, 4, n]` of two codes each, in blocks of 8 rows with a scale for each column.

    The other sources are the shifts of both codes and the mask.
    """
    steps = (
        LoopStep(Reshape((2, 4, 1, 5)), (0,)),
        LoopStep(Cast(i32), (4,)),
        LoopStep(bitwise_right_shift.op(), (5, 1)),
        LoopStep(bitwise_and.op(), (6, 2)),
        LoopStep(Cast(f32), (7,)),
        LoopStep(Reshape((2, 1, 1, 5)), (3,)),
        LoopStep(multiply.op(), (8, 9)),
    )
    return FusedLoop(4, steps, (10,))


fused_matmul_prologue = op_function(FusedMatMulPrologue)
