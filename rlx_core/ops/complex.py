"""Complex numbers: their parts, modulus and phase. `Conjugate` and `Real` are among the structural ops.

The cotangent of a complex z is ∂L/∂z̄ of a real L (half of ∂L/∂re + i ∂L/∂im), so a factor of 2 or ½ stands wherever a real
meets a complex value in reverse mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from rlx_core.errors import DtypeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import COMPLEXES
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Op, Zero, define_op
from rlx_core.ir.samples import Rejected, Sample
from rlx_core.ir.types import TensorType, expect_dtype
from rlx_core.ops.kinds import elementwise_batch
from rlx_core.ops.selection import where
from rlx_core.ops.structural import cast, conjugate, real


class PartOfComplex(Op):
    """What the ops from a complex value to a real one share."""

    category: ClassVar = "elementwise"

    def infer(self, z: TensorType) -> TensorType:
        expect_dtype("z", z, COMPLEXES, "complex")
        return z.with_dtype(z.dtype.component)

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Any:
        return elementwise_batch(self, size, x, is_batched)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in COMPLEXES:
            yield Sample(f"{d}[3, 4]")
        yield Sample("c64[]")
        yield Sample("c64[0, 2]")
        yield Rejected("f32[3]", error=DtypeError, says="complex")


@define_op
class ComplexAbs(PartOfComplex):
    """The modulus |z|, without overflow; its derivative at 0 is 0."""

    def reference(self, z: np.ndarray) -> np.ndarray:
        return np.abs(z)

    def vjp(self, g: Value, z: Value, *, y: Value) -> tuple[Value, ...]:
        return (cast(0.5 * g, to=z.dtype) * _direction(z, y),)

    def jvp(self, t: Sequence[Value | Zero], z: Value, *, y: Value) -> Value | Zero:
        return ZERO if isinstance(t[0], Zero) else real(conjugate(_direction(z, y)) * t[0])


complex_abs = op_function(ComplexAbs)


def _direction(z: Value, modulus: Value) -> Value:
    """z/|z|, and 0 at 0."""
    safe = where(modulus == 0, 1, modulus)
    return z / cast(safe, to=z.dtype)


OPS = (ComplexAbs,)
