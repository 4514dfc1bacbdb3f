"""Functions of how a float is stored: its sign bit and the number next to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from rlx_core.errors import DtypeError
from rlx_core.ir.apply import OpFunction, op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import FLOATS, DType, f32
from rlx_core.ir.graph import Value
from rlx_core.ir.kinks import Kink
from rlx_core.ir.op import ZERO, Op, Zero, define_op
from rlx_core.ir.types import TensorType, broadcast_shapes, expect_dtype
from rlx_core.ops.arithmetic import real_sign as sign
from rlx_core.ops.kinds import Elementwise, elementwise, elementwise_batch, promoted
from rlx_core.ops.samples import Rejected, Sample

copysign: OpFunction[Elementwise] = elementwise(
    "CopySign",
    np.copysign,
    lambda a, b, y: sign(a) * copysign(1, b),
    ZERO,
    doc="|a| with the sign of b, the sign of -0.0 and NaN too.",
    kinks=(
        Kink(0.0, 1.0, takes="mean", gives=(0.0, 0.0)),
        Kink(0.0, -1.0, takes="mean", gives=(0.0, 0.0)),
        Kink(1.0, 0.0, takes="zero", gives=(1.0, 0.0)),
    ),
)


@define_op
class NextOnGrid(Op):
    """`NextAfter` among the numbers of one dtype, whatever dtype the operands are held in."""

    grid: DType
    category: ClassVar = "elementwise"

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        for name, operand in (("a", a), ("b", b)):
            expect_dtype(name, operand, (self.grid,))
        return a.with_shape(broadcast_shapes(a.shape, b.shape))

    def reference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        # Toward ±inf, not toward b: an oracle may hold b between two numbers of the grid.
        end = np.where(b > a, np.inf, -np.inf).astype(self.grid.numpy)
        neighbour = np.nextafter(a.astype(self.grid.numpy), end).astype(a.dtype)
        return np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(a == b, b, neighbour))

    def vjp(self, g: Value, a: Value, b: Value, *, y: Value) -> tuple[Zero, Zero]:
        return ZERO, ZERO

    def jvp(self, t: Sequence[Value | Zero], a: Value, b: Value, *, y: Value) -> Zero:
        return ZERO

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
        return elementwise_batch(self, size, x, is_batched)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in FLOATS:
            yield Sample(f"{d}[3, 4]", f"{d}[4]", grid=d, is_smooth=False)
        yield Rejected("f64[3]", "f64[3]", grid=f32, error=DtypeError, says="must be one of f32")


next_on_grid = op_function(NextOnGrid)


@define_op
class NextAfter(Op):
    """The number next to a in the direction of b, in the dtype they meet in; b where they are equal."""

    category: ClassVar = "elementwise"

    def prepare(self, a: Value, b: Value) -> tuple[Value | None, ...]:
        return promoted(a, b)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        expect_dtype("a", a, FLOATS, "a float")
        return NextOnGrid(a.dtype).infer(a, b)

    def decompose(self, a: Value, b: Value) -> Value:
        return next_on_grid(a, b, grid=a.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in FLOATS:
            yield Sample(f"{d}[3, 1]", f"{d}[4]", is_smooth=False)
        yield Sample("f32[0]", "f64[]", is_smooth=False)
        yield Rejected("i32[3]", "i32[3]", error=DtypeError, says="must be a float")


nextafter = op_function(NextAfter)

OPS = (copysign.op, NextOnGrid, NextAfter)
