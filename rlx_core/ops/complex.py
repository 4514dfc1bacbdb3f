"""Complex numbers: their parts, modulus and phase. `Conjugate` and `Real` are in `conversion.py`.

The cotangent of a complex z is ∂L/∂z̄ of a real L (half of ∂L/∂re + i ∂L/∂im), so in reverse mode there is a factor of 2 or ½
wherever a real value is converted to a complex one or vice versa.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from rlx_core.errors import DtypeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dtypes import COMPLEXES, INEXACT, c64, c128, f32, f64, promote
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Kink, Op, Zero, define_op
from rlx_core.ir.types import TensorType, broadcast_shapes, expect_dtype
from rlx_core.ops.conversion import PartOfComplex, cast, conjugate, linear_jvp, real
from rlx_core.ops.kinds import elementwise_batch
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.structural import expand, sum_to


@define_op
class ComplexAbs(PartOfComplex):
    """The modulus |z|, without overflow; its derivative at 0 is 0."""

    kinks: ClassVar = (Kink(0j, takes="mean", gives=0.0),)

    def reference(self, z: np.ndarray) -> np.ndarray:
        return np.abs(z)

    def vjp(self, g: Value, z: Value, *, y: Value) -> tuple[Value, ...]:
        return (cast(0.5 * g, to=z.dtype) * _direction(z, y),)

    def jvp(self, t: Sequence[Any], z: Value, *, y: Value) -> Value:
        return real(conjugate(_direction(z, y)) * t[0])


complex_abs = op_function(ComplexAbs)


def _direction(z: Value, modulus: Value) -> Value:
    """Return z/|z|, and 0 at 0."""
    return z / cast(where(modulus == 0, 1, modulus), to=z.dtype)


@define_op
class Angle(PartOfComplex):
    """The phase in (-π, π], 0 at 0 (of a negative zero too), where its derivative is 0."""

    kinks: ClassVar = (Kink(0j, takes="zero", gives=0.0),)

    def reference(self, z: np.ndarray) -> np.ndarray:
        return np.where(z == 0, 0, np.angle(z))

    def vjp(self, g: Value, z: Value, *, y: Value) -> tuple[Value, ...]:
        modulus = complex_abs(z)
        rotated = make_complex(0, 0.5 * g / where(modulus == 0, 1, modulus))
        return (rotated * _direction(z, modulus),)

    def jvp(self, t: Sequence[Any], z: Value, *, y: Value) -> Value:
        modulus = complex_abs(z)
        return imag(conjugate(_direction(z, modulus)) * t[0]) / where(modulus == 0, 1, modulus)


angle = op_function(Angle)


@define_op
class Imag(PartOfComplex):
    """The imaginary part."""

    exact_dtypes: ClassVar = COMPLEXES

    def reference(self, z: np.ndarray) -> np.ndarray:
        return np.imag(z).copy()  # a copy, because a view would change with z

    def vjp(self, g: Value, z: Value, *, y: Value) -> tuple[Value, ...]:
        return (make_complex(0, 0.5 * g),)

    jvp = linear_jvp


imag = op_function(Imag)


@define_op
class MakeComplex(Op):
    """re + i·im, in the complex dtype of the promoted float of the parts (f32 for narrower floats and short integers).

    Shapes:
        re: [...]    im: [...]    ->    z: both broadcast
    """

    category: ClassVar = "elementwise"
    exact_dtypes: ClassVar = INEXACT
    batch = elementwise_batch

    def prepare(self, re: Value, im: Value) -> tuple[Value | None, ...]:
        if re.dtype.is_complex or im.dtype.is_complex:
            return re, im  # for `infer` to refuse
        common = promote(re.dtype, im.dtype, f32)
        return tuple(v if v.dtype is common else cast(v, to=common) for v in (re, im))

    def infer(self, re: TensorType, im: TensorType) -> TensorType:
        for name, part in (("re", re), ("im", im)):
            expect_dtype(name, part, (f32, f64), "real")
        if re.dtype is not im.dtype:
            raise DtypeError(f"parts must have one dtype, not {re.dtype} and {im.dtype}")
        return TensorType(c64 if re.dtype is f32 else c128, broadcast_shapes(re.shape, im.shape))

    def reference(self, re: np.ndarray, im: np.ndarray) -> np.ndarray:
        # The parts are assigned, not added: i · inf would put a NaN into the real part.
        z = np.empty(np.broadcast_shapes(re.shape, im.shape), np.result_type(re, np.complex64))
        z.real, z.imag = re, im
        return z

    def vjp(self, g: Value, re: Value, im: Value, *, y: Value) -> tuple[Value, Value]:
        return sum_to(2 * real(g), re.shape), sum_to(2 * imag(g), im.shape)

    def jvp(self, t: Sequence[Any], re: Value, im: Value, *, y: Value) -> Value:
        tangent = make_complex(*(0 if isinstance(x, Zero) else x for x in t))
        return tangent if tangent.shape == y.shape else expand(tangent, y.shape)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield Sample("f32[3, 4]", "f32[3, 4]")
        yield Sample("f64[3, 1]", "f64[4]")
        yield Sample("f16[2]", "f32[2]")
        yield Sample("i64[2]", "f32[2]")
        yield Sample("f32[]", "f32[0]")
        yield Rejected("c64[2]", "f32[2]", error=DtypeError, says="must be real")


make_complex = op_function(MakeComplex)


@define_op
class ComplexNormSq(PartOfComplex):
    """re² + im², the square of the modulus."""

    def reference(self, z: np.ndarray) -> np.ndarray:
        return np.square(np.real(z)) + np.square(np.imag(z))

    def vjp(self, g: Value, z: Value, *, y: Value) -> tuple[Value, ...]:
        return (z * cast(g, to=z.dtype),)

    def jvp(self, t: Sequence[Any], z: Value, *, y: Value) -> Value:
        return 2 * real(conjugate(z) * t[0])


complex_norm_sq = op_function(ComplexNormSq)
