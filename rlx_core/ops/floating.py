"""Functions of the representation of a number: its bits, its sign bit, and the adjacent float."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from rlx_core.errors import DtypeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import OpFunction, as_array, op_function
from rlx_core.ir.dtypes import FLOATS, INEXACT, INTEGERS, DType, dtype, f32, f64, i8, i16, i32, u32
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Kink, Op, define_op
from rlx_core.ir.types import TensorType, broadcast_shapes, expect_dtype
from rlx_core.ops.arithmetic import real_sign as sign
from rlx_core.ops.conversion import operand_batch, zero_jvp, zero_vjp
from rlx_core.ops.kinds import Elementwise, elementwise, elementwise_batch, promoted
from rlx_core.ops.samples import Rejected, Sample

_dtype = dtype

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
    """`NextAfter` among the numbers of one dtype, independent of the dtype that stores the operands."""

    grid: DType
    category: ClassVar = "elementwise"
    exact_dtypes: ClassVar = INEXACT
    vjp = zero_vjp
    jvp = zero_jvp
    batch = elementwise_batch

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        for name, operand in (("a", a), ("b", b)):
            expect_dtype(name, operand, (self.grid,))
        return a.with_shape(broadcast_shapes(a.shape, b.shape))

    def reference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        # Toward ±inf, not toward b: in an oracle's dtype, b may be between two numbers of the grid.
        end = np.where(b > a, np.inf, -np.inf).astype(self.grid.numpy)
        neighbour = np.nextafter(a.astype(self.grid.numpy), end).astype(a.dtype)
        return np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(a == b, b, neighbour))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in FLOATS:
            yield Sample(f"{d}[3, 4]", f"{d}[4]", grid=d, is_smooth=False)
        yield Rejected("f64[3]", "f64[3]", grid=f32, error=DtypeError, says="must be one of f32")


next_on_grid = op_function(NextOnGrid)


@define_op
class NextAfter(Op):
    """The number next to a in the direction of b, in their promoted dtype; b where they are equal."""

    category: ClassVar = "elementwise"
    exact_dtypes: ClassVar = INEXACT

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


@define_op
class Bitcast(Op):
    """The bits of x as a number of another dtype of the same width. A NaN of f16 or bf16 stays a NaN; its bits may change.

    Attributes:
        of: The dtype of x, independent of the dtype in which an oracle stores it.
        to: The dtype as which the bits are read.
    """

    of: DType
    to: DType
    category: ClassVar = "elementwise"
    exact_dtypes: ClassVar = INEXACT
    vjp = zero_vjp
    jvp = zero_jvp
    batch = operand_batch

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, (self.of,))
        for each in (self.of, self.to):
            if each not in (*INTEGERS, *FLOATS):
                raise DtypeError(f"the bits of {each} are no number", hint="integers and real floats have bits")
        if self.of.itemsize != self.to.itemsize:
            widths = f"{8 * self.of.itemsize} bits and {8 * self.to.itemsize}"
            raise DtypeError(f"{self.of} and {self.to} are not of one width ({widths})")
        return x.with_dtype(self.to)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x).astype(self.of.numpy).view(self.to.numpy)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for source, to in ((f32, i32), (f32, u32), (i32, f32), (f64, dtype("u64")), (dtype("i64"), f64), (u32, i32)):
            yield Sample(f"{source}[3, 4]", of=source, to=to, is_smooth=False)
        for narrow in ("f16", "bf16"):
            yield Sample(f"{narrow}[5]", of=dtype(narrow), to=dtype("u16"), is_smooth=False)
            yield Sample("i16[5]", of=i16, to=dtype(narrow), is_smooth=False, low=0, high=0x7000)  # no NaN: see above
        yield Sample("f32[0]", of=f32, to=u32, is_smooth=False)
        yield Rejected("f32[3]", of=f32, to=i8, error=DtypeError, says="not of one width")
        yield Rejected("bool[3]", of=dtype("bool"), to=i8, error=DtypeError, says="no number")


bits_as = op_function(Bitcast)


@checked_call
def bitcast(x: Any, dtype: Any) -> Any:
    """The bits of the elements of `x` as numbers of another dtype of the same width; it has no derivative.

    Args:
        x: Integers or real floats.
        dtype: Integers or real floats with the same number of bits.

    Raises:
        DtypeError: The widths differ, or one is neither an integer nor a real float.

    >>> rlx.bitcast(np.float32([1, -0.0]), rlx.u32)
    Array([1065353216, 2147483648], dtype=uint32)
    """
    array = x if isinstance(x, Value) else as_array(x)
    return bits_as(array, of=_dtype(array.dtype), to=_dtype(dtype))
