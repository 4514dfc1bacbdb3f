"""Functions of one variable: exponentials, roots, the error function, and the activations built from them.

A function is a primitive if no composition computes it to a few ulp; every other one is a formula (`composed`), written without
overflow or cancellation. If a derivative is infinite or undefined at one point, the row defines its value there (`kinks`); the
rule replaces the operand at that point, not only the result, so that the derivative of the rule is finite too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from rlx_core.ir.apply import op_function
from rlx_core.ir.dtypes import INEXACT
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Kink, define_op, field
from rlx_core.ops.conversion import real
from rlx_core.ops.kinds import Ratio, UnaryFloat, composed, elementwise, indicator, unary_float_samples
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.selection import where
from rlx_core.ops.special import erf_array, erfc_array, erfinv_array
from rlx_core.ops.validators import number

# ------------------------------------------------------------------------------- primitives


def _sqrt_slope(x: Value, y: Value) -> Value:
    return where(x == 0, 0, 0.5 / where(x == 0, 1, y))


def _rsqrt_slope(x: Value, y: Value) -> Value:
    safe = where(x == 0, 1, y)
    return where(x == 0, 0, -0.5 * (safe * safe * safe))


_LOGARITHM: Final[Mapping[str, Any]] = {"accepts": INEXACT, "low": 0.2, "high": 3.0}
_ROOT: Final[Mapping[str, Any]] = {"low": 0.2, "high": 3.0, "kinks": (Kink(0.0, takes="zero", gives=0.0),)}

exp = elementwise("Exp", np.exp, lambda x, y: y, doc="e^x.", accepts=INEXACT)
log = elementwise("Log", np.log, lambda x, y: Ratio(1, x), doc="ln x, principal branch.", **_LOGARITHM)
sqrt = elementwise(
    "Sqrt", np.sqrt, _sqrt_slope, doc="√x, principal branch, with derivative 0 at 0.", accepts=INEXACT, **_ROOT
)
rsqrt = elementwise(
    "Rsqrt",
    lambda x: 1 / np.sqrt(x),
    _rsqrt_slope,
    doc="1/√x, principal branch, with derivative 0 at 0.",
    accepts=INEXACT,
    **_ROOT,
)
cbrt = elementwise(
    "Cbrt",
    np.cbrt,
    lambda x, y: where(x == 0, 0, 1 / (3 * (y * y + indicator(x == 0, x)))),
    doc="∛x, of negative numbers too, with derivative 0 at 0.",
    **_ROOT,
)
exp2 = elementwise("Exp2", np.exp2, lambda x, y: y * math.log(2), doc="2^x.", accepts=INEXACT)
expm1 = elementwise("Expm1", np.expm1, lambda x, y: y + 1, doc="e^x - 1, exact near 0.", accepts=INEXACT)
log2 = elementwise(
    "Log2", np.log2, lambda x, y: Ratio(1 / math.log(2), x), doc="log₂ x, principal branch.", **_LOGARITHM
)
log10 = elementwise(
    "Log10", np.log10, lambda x, y: Ratio(1 / math.log(10), x), doc="log₁₀ x, principal branch.", **_LOGARITHM
)
log1p = elementwise(
    "Log1p", np.log1p, lambda x, y: Ratio(1, 1 + x), doc="ln(1 + x), exact near 0.", accepts=INEXACT, low=-0.5
)
tanh = elementwise("Tanh", np.tanh, lambda x, y: 1 - y * y, doc="tanh x.", accepts=INEXACT)
erf = elementwise(
    "Erf",
    erf_array,
    lambda x, y: 2 / math.sqrt(math.pi) * exp(-(x * x)),
    doc="The error function 2/√π · ∫₀ˣ e^(-t²) dt.",
)
erfc = elementwise(
    "Erfc",
    erfc_array,
    lambda x, y: -2 / math.sqrt(math.pi) * exp(-(x * x)),
    doc="1 - erf x, without cancellation for large x.",
)
erfinv = elementwise(
    "Erfinv",
    erfinv_array,
    lambda x, y: math.sqrt(math.pi) / 2 * exp(y * y),
    doc="The y with erf y = x; infinite at ±1, NaN beyond.",
    low=-0.9,
    high=0.9,
)

# ------------------------------------------------------------------------------ activations


def _sigmoid(x: Value) -> Value:
    # e^-|x| never overflows; both quotients are exact where they are selected. For a complex z, the real part decides.
    is_right = (real(x) if x.dtype.is_complex else x) >= 0
    decay = exp(where(is_right, -x, x))
    return where(is_right, 1, decay) / (1 + decay)


sigmoid = composed("Sigmoid", _sigmoid, lambda x, y: y * (1 - y), doc="σ(x) = 1 / (1 + e^-x).", accepts=INEXACT)


def _normal_cdf(x: Value) -> Value:
    # Through erfc: 1 + erf(x/√2) cancels in the left tail.
    return 0.5 * erfc(x * -math.sqrt(0.5))


def _gelu_slope(x: Value, y: Value) -> Value:
    return _normal_cdf(x) + x * (1 / math.sqrt(2 * math.pi) * exp(-0.5 * (x * x)))


def _gelu_tanh(x: Value) -> Value:
    return tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))


def _gelu_approx_slope(x: Value, y: Value) -> Value:
    # Beyond 10 the Gaussian is 0 in every dtype, but x² may be infinite, so the polynomial gets a clipped x.
    near = where(x > 10, 10, where(x < -10, -10, x))
    t = _gelu_tanh(near)
    du = math.sqrt(2 / math.pi) * (1 + 0.134145 * (near * near))
    return 0.5 * (1 + t) + 0.5 * near * (1 - t * t) * du


def _silu_slope(x: Value, y: Value) -> Value:
    s = sigmoid(x)
    return s * (1 + x * (1 - s))


relu = composed(
    "Relu",
    lambda x: where(x <= 0, 0, x),
    # The result is 0 or NaN where it is not positive, and equals its derivative there.
    lambda x, y: where(y > 0, 1, y),
    doc="max(x, 0); of -0.0 it is 0.0, NaN stays NaN, and the derivative at 0 is 0.",
    kinks=(Kink(0.0, takes="lower", gives=0.0),),
)
gelu = composed("Gelu", lambda x: x * _normal_cdf(x), _gelu_slope, doc="x · Φ(x), Φ the normal distribution function.")
gelu_approx = composed(
    "GeluApprox",
    lambda x: 0.5 * x * (1 + _gelu_tanh(x)),
    _gelu_approx_slope,
    doc="½x (1 + tanh(√(2/π) (x + 0.044715 x³))).",
)
silu = composed("Silu", lambda x: x * sigmoid(x), _silu_slope, doc="x · σ(x).")


@define_op
class Softplus(UnaryFloat):
    """(1/β) ln(1 + e^(βx)), without overflow or cancellation; its derivative is σ(βx)."""

    beta: float = field(default=1.0, validator=number(0, is_open=True))

    def decompose(self, x: Value) -> Value:
        u = x if self.beta == 1 else x * self.beta
        is_right = u > 0
        y = where(is_right, u, 0) + log1p(exp(where(is_right, -u, u)))
        return y if self.beta == 1 else y / self.beta

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        yield from unary_float_samples()
        yield Sample("f32[5]", beta=2.5, low=-30.0, high=30.0)


softplus = op_function(Softplus)
mish = composed("Mish", lambda x: x * tanh(softplus(x)), doc="x · tanh(softplus x).")
