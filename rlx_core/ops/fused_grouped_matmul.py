"""A grouped product whose weights are computed from narrower data where they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.dtypes import FLOATS, INTEGERS, f32
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import TensorType, expect_dtype, expect_dtype_of, expect_rank, expect_shape, same_dim
from rlx_core.ops.arithmetic import multiply
from rlx_core.ops.conversion import Cast
from rlx_core.ops.fused_loop import FusedLoop, LoopStep
from rlx_core.ops.products import grouped_mat_mul
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.structural import Reshape, Transpose, reshape


@define_op(name="fused_grouped_matmul")
class FusedGroupedMatMul(Op):
    """A grouped product by the result of a load: `y[i] = x[i]·w[idx[i]]` with `w = reshape(load(sources..), [e, k, n])`.

    A backend evaluates the load for the experts that rows have, where it reads their weights. Rows of one expert that are
    neighbours are multiplied together.

    Shapes:
        x: f[m, k]    sources: inputs of the load    idx: int[m]    ->    y: f[m, n]

    Attributes:
        load: The computation of w. The first axis of its one result counts experts, the last has the columns of w, and the
            others together are its rows.

    Raises:
        ShapeError: The load's result has another number of rows than x has columns.
        IndexRangeError (at run time): An expert is outside `0..e-1`.
    """

    category: ClassVar = "compute"
    load: FusedLoop

    def weights(self, *sources: TensorType) -> TensorType:
        """Return the type of the load's result."""
        w = self.load.infer(*sources)
        if isinstance(w, tuple):
            raise ShapeError(f"the load has {len(w)} results, not 1")
        return w

    def infer(self, x: TensorType, *operands: TensorType) -> TensorType:
        expect_dtype("x", x, FLOATS, "float")
        expect_rank("x", x, 2, 2)
        if len(operands) != self.load.inputs + 1:
            raise ShapeError(f"there are {self.load.inputs + 2} operands, not {1 + len(operands)}")
        *sources, idx = operands
        w = self.weights(*sources)
        expect_rank("load", w, 3)
        expect_dtype_of("load", w, "x", x)
        if not same_dim(product(w.shape[1:-1]), x.shape[1]):
            raise ShapeError(f"the load is {w}, with {product(w.shape[1:-1])} rows for {x.shape[1]} columns of x")
        expect_dtype("idx", idx, INTEGERS, "an integer")
        expect_shape("idx", idx, x.shape[:1])
        return x.with_shape((x.shape[0], w.shape[-1]))

    def decompose(self, x: Value, *operands: Value) -> Value:
        *sources, idx = operands
        w = self.load(*sources)
        y: Value = grouped_mat_mul(x, reshape(w, (w.shape[0], x.shape[1], w.shape[-1])), idx)
        return y

    def cost(self, x: TensorType, *operands: TensorType) -> Dim:
        return 2 * x.size * self.weights(*operands[:-1]).shape[-1]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        cast = FusedLoop(1, (LoopStep(Cast(f32), (0,)),), (1,))
        across = FusedLoop(1, (LoopStep(Transpose((0, 2, 1)), (0,)), LoopStep(Cast(f32), (1,))), (2,))
        scaled = FusedLoop(
            2,
            (
                LoopStep(Cast(f32), (0,)),
                LoopStep(multiply.op(), (2, 1)),
                LoopStep(Transpose((0, 2, 1)), (3,)),
                LoopStep(Reshape((3, 2, 4, 5)), (4,)),
            ),
            (5,),
        )
        for narrow in ("f16", "bf16", "i8", "f32"):
            yield Sample("f32[4, 8]", f"{narrow}[3, 8, 5]", "i64[4]", load=cast, ranges={"operands1": (0, 2)})
        yield Sample("f32[5, 8]", "f16[3, 5, 8]", "i32[5]", load=across, ranges={"operands1": (0, 2)})
        yield Sample("f32[6, 8]", "i8[3, 5, 8]", "f32[3, 5, 1]", "i64[6]", load=scaled, ranges={"operands2": (0, 2)})
        yield Sample("f32[0, 8]", "i8[3, 8, 5]", "i64[0]", load=cast)
        yield Rejected("f32[4, 7]", "i8[3, 8, 5]", "i64[4]", load=cast, error=ShapeError, says="8 rows for 7 columns")
        yield Rejected("f32[4, 8]", "i8[3, 8, 5]", "i64[3]", load=cast, error=ShapeError, says="idx must be [4]")
        yield Rejected("f32[4, 8]", "i8[3, 8, 5]", "f32[4]", load=cast, error=DtypeError, says="idx must be an integer")
        yield Rejected("f32[4, 8]", "i8[3, 8, 5]", load=cast, error=ShapeError, says="there are 3 operands, not 2")


fused_grouped_matmul = op_function(FusedGroupedMatMul)
