"""Complex tensors read as pairs of real numbers along a new last axis, and the reverse.

With these ops real and imaginary parts are slices, so that targets without complex numbers, such as all native code, get them
by views: `Real`, `Imag` and `MakeComplex` decompose into these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dtypes import COMPLEXES, c64, c128, f32, f64
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.strides import Strides
from rlx_core.ir.types import TensorType, expect_dtype, expect_rank
from rlx_core.ops.conversion import linear_jvp, operand_batch
from rlx_core.ops.samples import Rejected, Sample


class Reread(Op):
    """Base of both ops: their results are views."""

    category: ClassVar = "movement"

    jvp = linear_jvp
    batch = operand_batch


@define_op
class ViewAsReal(Reread):
    """The real and the imaginary part of each element, adjacent.

    Shapes:
        z: c[..]    ->    y: f[.., 2]
    """

    def infer(self, z: TensorType) -> TensorType:
        expect_dtype("z", z, COMPLEXES, "complex")
        return TensorType(z.dtype.component, (*z.shape, 2))

    def reference(self, z: np.ndarray) -> np.ndarray:
        return np.stack([z.real, z.imag], axis=-1)

    def vjp(self, g: Value, z: Value, *, y: Value) -> tuple[Value, ...]:
        return (view_as_complex(0.5 * g),)

    def view(self, z: TensorType, strides: Strides, offset: int) -> tuple[int, Strides]:
        return offset, (*strides, z.dtype.component.itemsize)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in COMPLEXES:
            yield Sample(f"{d}[3, 4]")
        yield Sample("c64[]")
        yield Sample("c64[0, 2]")
        yield Rejected("f32[3]", error=DtypeError, says="complex")


view_as_real = op_function(ViewAsReal)


@define_op
class ViewAsComplex(Reread):
    """The complex numbers whose parts are adjacent.

    Shapes:
        x: f[.., 2]    ->    z: c[..]
    """

    def infer(self, x: TensorType) -> TensorType:
        expect_dtype("x", x, (f32, f64), "f32 or f64")
        expect_rank("x", x, 1)
        if x.shape[-1] != 2:
            raise ShapeError(f"the last axis of x must hold 2 parts, not {x.shape[-1]}")
        return TensorType(c64 if x.dtype is f32 else c128, x.shape[:-1])

    def reference(self, x: np.ndarray) -> np.ndarray:
        z = np.empty(x.shape[:-1], np.result_type(x, np.complex64))
        z.real, z.imag = x[..., 0], x[..., 1]
        return z

    def vjp(self, g: Value, x: Value, *, y: Value) -> tuple[Value, ...]:
        return (view_as_real(2 * g),)

    def view(self, x: TensorType, strides: Strides, offset: int) -> tuple[int, Strides] | None:
        width = x.dtype.itemsize
        *outer, inner = strides
        # The parts are adjacent, and each pair is aligned like a complex number.
        is_paired = inner == width and offset % (2 * width) == 0 and all(s % (2 * width) == 0 for s in outer)
        return (offset, tuple(outer)) if is_paired else None

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in (f32, f64):
            yield Sample(f"{d}[3, 4, 2]")
        yield Sample("f32[2]")
        yield Sample("f32[0, 2]")
        yield Rejected("f32[3]", error=ShapeError, says="2 parts, not 3")
        yield Rejected("f32[]", error=ShapeError, says="1 or more axes")
        yield Rejected("f16[2]", error=DtypeError, says="not f16")


view_as_complex = op_function(ViewAsComplex)
