"""The exponential of a matrix, by scaling and squaring."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

import rlx_core as rlx
from rlx_core.errors import ShapeError
from rlx_core.ops import Dim, Op, Rejected, Sample, TensorType, Value, define_op, op_function
from rlx_custom_ops.ops.matrices import adjoint, expect_square, finite, free_leading_axes
from rlx_custom_ops.ops.samples import anything, samples_of

__rlx_library__ = True


@define_op(domain="linalg")
class Expm(Op):
    """The matrix exponential, the sum of aᵏ / k!.

    A NaN or an infinity in a matrix makes its exponential NaN; one that is too large overflows to infinities or NaN.

    Shapes:
        a: [..., n, n]    ->    y: [..., n, n]

    Source:
        Higham 2005, "The scaling and squaring method for the matrix exponential revisited", SIAM J. Matrix Anal. 26,
        algorithm 2.3 at degree 13. The derivative along e is the upper right block of exp [[a, e], [0, a]]: Al-Mohy & Higham
        2009, "Computing the Fréchet derivative of the matrix exponential", SIAM J. Matrix Anal. 30, equation 1.4 there
        credited to Najfeld & Havel and Mathias; its transpose is the derivative at aᴴ.
    """

    def infer(self, a: TensorType) -> TensorType:
        expect_square("a", a)
        return a

    def reference(self, a: np.ndarray) -> np.ndarray:
        wide = a.astype(np.result_type(a.dtype, np.float64))
        y = np.empty_like(wide)
        for index in finite(a, y):
            y[index] = exponential(wide[index])
        return y.astype(a.dtype)

    def vjp(self, g: Value, a: Value, *, y: Value) -> tuple[Value, ...]:
        return (derivative_along(adjoint(a), g),)

    def jvp(self, t: Sequence[Any], a: Value, *, y: Value) -> Value:
        return derivative_along(a, t[0])

    batch = free_leading_axes

    def cost(self, a: TensorType) -> Dim:
        return 16 * a.size * a.shape[-1]  # six products and a solve, without squarings

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from samples_of(anything, "3 3", "2 3 3", "2 1 2 2", "1 1", "0 3 3", "0 0")
        yield Rejected("f32[2, 3]", error=ShapeError, says="a must be square")


expm = op_function(Expm)


def derivative_along(a: Any, e: Any) -> Any:
    """The Fréchet derivative of the exponential at `a` along `e`."""
    # It is linear in e. Brought to size 1, e has no say in how often the block is halved and squared: a large cotangent
    # would otherwise cost digits. The size is a constant to derivatives, because the derivative does not depend on it.
    total = rlx.stop_gradient(rlx.sum(rlx.abs(e), axis=(-2, -1), keepdims=True))
    size = rlx.astype(rlx.where(total == 0, 1.0, total), e.dtype)
    n = a.shape[-1]
    block = rlx.concat([rlx.concat([a, e / size], axis=-1), rlx.concat([rlx.zeros_like(a), a], axis=-1)], axis=-2)
    return expm(block)[..., :n, n:] * size


THETA: Final = 5.371920351148152
"""The 1-norm up to which the Padé approximant of degree 13 is exact to rounding in f64 (Higham 2005, table 2.3)."""

PADE: Final = (
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
)
"""The coefficients of its numerator; the denominator has the same with alternating signs."""


def exponential(a: np.ndarray) -> np.ndarray:
    """exp(a) for one finite matrix in f64 or c128."""
    if a.size == 0:
        return a
    norm = float(np.abs(a).sum(axis=0).max())
    # frexp instead of a logarithm: exact at powers of two, and finite for every finite norm.
    halvings = max(0, math.frexp(norm / THETA)[1]) if math.isfinite(norm) else 1025
    a = np.ldexp(a.real, -halvings) + (1j * np.ldexp(a.imag, -halvings) if np.iscomplexobj(a) else 0)
    even, odd = pade(a)
    y: np.ndarray = np.linalg.solve(even - odd, even + odd)
    for _ in range(halvings):
        y = y @ y
    return y


def pade(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The even and the odd part of the approximant's numerator, in six products."""
    b, eye = PADE, np.eye(a.shape[-1], dtype=a.dtype)
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    odd = a @ (a6 @ (b[13] * a6 + b[11] * a4 + b[9] * a2) + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * eye)
    even = a6 @ (b[12] * a6 + b[10] * a4 + b[8] * a2) + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * eye
    return even, odd


OPS = (Expm,)
