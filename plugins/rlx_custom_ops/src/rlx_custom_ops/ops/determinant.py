"""Determinants, by their sign and logarithm: the number itself overflows for matrices of a few hundred rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ShapeError
from rlx_core.ops import ZERO, Dim, Op, Rejected, Sample, TensorType, Value, define_op, op_function
from rlx_custom_ops.ops.matrices import adjoint, expect_square, free_leading_axes, real_part, real_type
from rlx_custom_ops.ops.samples import samples_of, well_conditioned
from rlx_custom_ops.ops.solve import inverse, solve

__rlx_library__ = True


@define_op(domain="linalg")
class Slogdet(Op):
    """The sign of the determinant (of modulus 1 for complex matrices) and the logarithm of its modulus.

    A singular matrix has sign 0 and logarithm -inf; there is no derivative there, and asking for it raises.

    Shapes:
        a: [..., n, n]    ->    sign: [...]    log_modulus: real [...]

    Raises:
        SingularMatrixError: When a derivative runs, if `a` has no inverse.

    Source:
        The derivatives: Giles 2008, "An extended collection of matrix derivative results", section 2.2.4.
    """

    def infer(self, a: TensorType) -> tuple[TensorType, TensorType]:
        expect_square("a", a)
        leading = a.shape[:-2]
        return TensorType(a.dtype, leading), real_type(a, *leading)

    def reference(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sign, log_modulus = np.linalg.slogdet(a)
        return np.asarray(sign), np.asarray(log_modulus)

    def vjp(self, g: Any, a: Value, *, y: tuple[Value, Value]) -> tuple[Value, ...]:
        g_sign, g_log = g
        sign = y[0]
        if not a.dtype.is_complex:
            return (matrices_of(g_log) * adjoint(inverse(a)),)
        # d log det = tr(a⁻¹ da), of which the logarithm of the modulus is the real part and the phase the imaginary one.
        phase_slope = rlx.imag(g_sign * rlx.conjugate(sign))
        scale = rlx.make_complex(0.5 * g_log, phase_slope)
        return (matrices_of(scale) * adjoint(inverse(a)),)

    def jvp(self, t: Sequence[Any], a: Value, *, y: tuple[Value, Value]) -> Any:
        trace = rlx.sum(rlx.diag(solve(a, t[0])), axis=-1)
        if not a.dtype.is_complex:
            return ZERO, trace
        return y[0] * rlx.make_complex(0, rlx.imag(trace)), real_part(trace)

    batch = free_leading_axes

    def cost(self, a: TensorType) -> Dim:
        return a.size * a.shape[-1]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(well_conditioned, "3 3", "2 3 3", "2 1 2 2", "1 1", "0 3 3")
        yield Rejected("f32[2, 3]", error=ShapeError, says="a must be square")


slogdet = op_function(Slogdet)


@define_op(domain="linalg")
class Logdet(Op):
    """The logarithm of the determinant: NaN where a real one is negative, -inf where it is 0.

    For complex matrices it is the principal branch, with the imaginary part in (-π, π].

    Shapes:
        a: [..., n, n]    ->    y: [...]

    Raises:
        SingularMatrixError: When a derivative runs, if `a` has no inverse.
    """

    def infer(self, a: TensorType) -> TensorType:
        expect_square("a", a)
        return TensorType(a.dtype, a.shape[:-2])

    def decompose(self, a: Value) -> Any:
        sign, log_modulus = slogdet(a)
        if a.dtype.is_complex:
            return rlx.make_complex(log_modulus, rlx.angle(sign))
        return rlx.where(sign < 0, float("nan"), log_modulus)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(positive_determinant, "3 3", "2 3 3", "2 1 2 2", "0 3 3")
        yield Rejected("f32[2, 3]", error=ShapeError, says="a must be square")


logdet = op_function(Logdet)


def positive_determinant(rng: np.random.Generator, shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
    """Well-conditioned matrices, of real ones those with a positive determinant."""
    a = well_conditioned(rng, shape, is_complex)
    if not is_complex:
        a[..., 0] *= np.sign(np.linalg.det(a))[..., None]
    return a


def matrices_of(x: Any) -> Any:
    """A number for each matrix as one that scales it."""
    return rlx.expand_dims(x, (-1, -2))


OPS = (Slogdet, Logdet)
