"""Functions of one variable: exponentials, roots, the error function, and the activations built from them.

A function is a primitive when nothing simpler computes it to a few ulp; every other one is its formula (`composed`), written
so that it neither overflows nor cancels. Where a derivative is infinite or undefined at one point the row says what is taken
there; the rule replaces the operand at that point, not only the result, so that its own derivative is finite too.
"""

from __future__ import annotations

import math

import numpy as np

from rlx_core.ir.dtypes import COMPLEXES, FLOATS
from rlx_core.ir.graph import Value
from rlx_core.ops.kinds import Ratio, composed, elementwise, indicator
from rlx_core.ops.selection import where
from rlx_core.ops.special import erf_array, erfc_array
from rlx_core.ops.structural import real

FLOATING = (*FLOATS, *COMPLEXES)

# ------------------------------------------------------------------------------- primitives


def _sqrt_slope(x: Value, y: Value) -> Value:
    return where(x == 0, 0, 0.5 / where(x == 0, 1, y))


def _rsqrt_slope(x: Value, y: Value) -> Value:
    safe = where(x == 0, 1, y)
    return where(x == 0, 0, -0.5 * (safe * safe * safe))


exp = elementwise("Exp", np.exp, lambda x, y: y, doc="e^x.", accepts=FLOATING)
log = elementwise(
    "Log", np.log, lambda x, y: Ratio(1, x), doc="ln x, principal branch.", accepts=FLOATING, low=0.2, high=3.0
)
sqrt = elementwise(
    "Sqrt",
    np.sqrt,
    _sqrt_slope,
    doc="√x, principal branch, with derivative 0 at 0.",
    accepts=FLOATING,
    low=0.2,
    high=3.0,
)
rsqrt = elementwise(
    "Rsqrt",
    lambda x: 1 / np.sqrt(x),
    _rsqrt_slope,
    doc="1/√x, principal branch, with derivative 0 at 0.",
    accepts=FLOATING,
    low=0.2,
    high=3.0,
)
tanh = elementwise("Tanh", np.tanh, lambda x, y: 1 - y * y, doc="tanh x.", accepts=FLOATING)
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

# ------------------------------------------------------------------------------ activations


def _sigmoid(x: Value) -> Value:
    # e^-|x| never overflows; both quotients are exact where they are chosen. A complex z is judged by its real part.
    is_right = (real(x) if x.dtype.is_complex else x) >= 0
    decay = exp(where(is_right, -x, x))
    return where(is_right, 1, decay) / (1 + decay)


sigmoid = composed("Sigmoid", _sigmoid, lambda x, y: y * (1 - y), doc="σ(x) = 1 / (1 + e^-x).", accepts=FLOATING)


def _normal_cdf(x: Value) -> Value:
    # Through erfc: 1 + erf(x/√2) cancels in the left tail.
    return 0.5 * erfc(x * -math.sqrt(0.5))


def _gelu_slope(x: Value, y: Value) -> Value:
    return _normal_cdf(x) + x * (1 / math.sqrt(2 * math.pi) * exp(-0.5 * (x * x)))


def _gelu_tanh(x: Value) -> Value:
    return tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))


def _gelu_approx_slope(x: Value, y: Value) -> Value:
    t = _gelu_tanh(x)
    du = math.sqrt(2 / math.pi) * (1 + 0.134145 * (x * x))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du


def _silu_slope(x: Value, y: Value) -> Value:
    s = sigmoid(x)
    return s * (1 + x * (1 - s))


relu = composed(
    "Relu",
    lambda x: where(x <= 0, 0, x),
    lambda x, y: indicator(x > 0, x),
    doc="max(x, 0); NaN stays NaN, and the derivative at 0 is 0.",
)
gelu = composed("Gelu", lambda x: x * _normal_cdf(x), _gelu_slope, doc="x · Φ(x), Φ the normal distribution function.")
gelu_approx = composed(
    "GeluApprox",
    lambda x: 0.5 * x * (1 + _gelu_tanh(x)),
    _gelu_approx_slope,
    doc="½x (1 + tanh(√(2/π) (x + 0.044715 x³))).",
)
silu = composed("Silu", lambda x: x * sigmoid(x), _silu_slope, doc="x · σ(x).")

OPS = tuple(f.op for f in (exp, log, sqrt, rsqrt, tanh, erf, erfc, sigmoid, relu, gelu, gelu_approx, silu))
