"""The implicit derivative of gamma numbers by their shape parameter, for sampling with rejection.

A sample z of the distribution with cumulative probability P(a, z) changes with a such that P is constant: dz/da = -(∂P/∂a) /
p(z). Both are integrals of t^(a-1) e^-t, so after the division by p(z) only ψ remains of Γ, in the mean of ln t; of the two
sides of z the one whose integrand decreases away from z is used, which preserves precision.

Source:
    Figurnov, Mohamed, Mnih 2018, "Implicit reparameterization gradients", arXiv:1805.08498, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from rlx_core.errors import ShapeError
from rlx_core.ir.apply import op_function
from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Category, Op, Zero, define_op
from rlx_core.ir.rules import CustomDerivative
from rlx_core.ir.types import TensorType, expect_dtype, expect_shape
from rlx_core.ops.activation import exp, expm1, log, log1p, sqrt
from rlx_core.ops.arithmetic import absolute
from rlx_core.ops.array_statistics import sum as total
from rlx_core.ops.gamma import digamma
from rlx_core.ops.random.refusing import undifferentiated
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.structural import joint_batch, reshape

_STEPS: Final = np.linspace(-3.2, 3.7, 64)
_DECAYS: Final = np.exp(-_STEPS)
NODES: Final = np.exp(_STEPS - _DECAYS)
WEIGHTS: Final = NODES * (1 + _DECAYS) * (_STEPS[1] - _STEPS[0])
"""The trapezoidal rule after y = exp(r - e^-r), for functions that fall like e^-y or faster: error at most 4e-8, mostly 1e-12."""

_LARGE: Final = 10.0
"""From here on the series of ln a - ψ(a) is as accurate as the difference, and exact where that cancels."""


def slope_of_logarithm(a: Any, z: Any) -> Any:
    """Return d ln z / da of gamma numbers z with shape parameters a of at least 1."""
    side = where(z < a - 0.5, -1.0, 1.0 + 0 * z)
    half = 0.5 * absolute(z - a)
    width = 1 / (half + sqrt(half * half + z))
    shape = (*z.shape, 1)
    a_, z_, side_, width_ = (reshape(each, shape) for each in (a, z, side, width))
    dtype = z.dtype.numpy
    away = side_ * width_ * NODES.astype(dtype)  # ln(t / z)
    density = exp(away * (a_ - z_) - z_ * (expm1(away) - away))
    is_low = z < 0.5 * a
    ratio = where(is_low, log(where(is_low, z / a, 1)), log1p(where(is_low, 0, (z - a) / a)))
    mean = ratio + _logarithm_less_digamma(a)
    return side * width * total((reshape(mean, shape) + away) * density * WEIGHTS.astype(dtype), axis=-1)


def _logarithm_less_digamma(a: Any) -> Any:
    is_large = a > _LARGE
    few = where(is_large, 1, a)
    inverse = 1 / where(is_large, a, _LARGE)
    square = inverse * inverse
    series = 0.5 * inverse + square * (1 / 12 - square * (1 / 120 - square * (1 / 252)))
    return where(is_large, series, log(few) - digamma(few))


@define_op
class FollowingShape(CustomDerivative, Op):
    """Gamma numbers z sampled with shape parameters a of at least 1: z, whose derivative by a is the implicit one.

    This derivative is not differentiable, and raises an error.

    Shapes:
        z: f[..]    a: like z    ->    y: like z

    Attributes:
        what: The distribution and its parameter, for the message.

    Raises:
        MissingRuleError: When it is differentiated twice.
    """

    category: ClassVar[Category] = "elementwise"
    is_of_meaning: ClassVar[bool] = False
    what: str
    batch = joint_batch

    def infer(self, z: TensorType, a: TensorType) -> TensorType:
        expect_dtype("z", z, FLOATS, "float")
        expect_dtype("a", a, (z.dtype,))
        expect_shape("a", a, z.shape)
        return z

    def reference(self, z: np.ndarray, a: np.ndarray) -> np.ndarray:
        return z.copy()

    def decompose(self, z: Value, a: Value) -> Value:
        return z

    def _slope(self, z: Value, a: Value) -> Value:
        z, a = (undifferentiated(each, what=f"the derivative of {self.what}") for each in (z, a))
        slope: Value = z * slope_of_logarithm(a, z)
        return slope

    def vjp(self, g: Value, z: Value, a: Value, *, y: Value) -> tuple[Value | Zero, ...]:
        return ZERO, g * self._slope(z, a)

    def jvp(self, t: Sequence[Value | Zero], z: Value, a: Value, *, y: Value) -> Value | Zero:
        return ZERO if isinstance(t[1], Zero) else t[1] * self._slope(z, a)

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in FLOATS:
            yield Sample(f"{d}[3, 4]", f"{d}[3, 4]", what="random.gamma: a", is_smooth=False, low=1.0, high=4.0)
        yield Rejected("f32[3]", "f32[4]", what="random.gamma: a", error=ShapeError, says="a must be [3]")


following = op_function(FollowingShape)
