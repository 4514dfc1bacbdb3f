"""NumPy references of functions that NumPy does not have: the error function, its inverse, and the gamma family.

Each takes real arrays of any dtype and computes in float64; the interpreter rounds to the declared dtype once. The methods are
the textbook ones for a few ulp: a rational approximation if one is published, otherwise an asymptotic series, made applicable
by a recurrence and extended to the left half-line by a reflection formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

# ------------------------------------------------------------------------------- error function
# W. J. Cody 1969, "Rational Chebyshev approximations for the error function", Math. Comp. 23, 631-637. Coefficients from the
# highest power down, numerator and denominator of each of the three intervals.

_ERF_P = (
    1.85777706184603153e-1,
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
_ERF_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_MIDDLE_P = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_MIDDLE_Q = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
_TAIL_P = (
    1.63153871373020978e-2,
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
)
_TAIL_Q = (
    1.0,
    2.56852019228982242e0,
    1.87295284992346725e0,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)


def _ratio(p: Sequence[float], q: Sequence[float], x: Float64) -> Float64:
    return np.asarray(np.polyval(p, x) / np.polyval(q, x))


def _small_erf(x: Float64) -> Float64:
    """Return erf on |x| <= 0.46875, where it is nearly linear."""
    return np.asarray(x * _ratio(_ERF_P, _ERF_Q, x * x))


def _large_erfc(x: Float64) -> Float64:
    """Return erfc on x >= 0.46875."""
    middle = _ratio(_MIDDLE_P, _MIDDLE_Q, np.minimum(x, 4.0))
    inverse = 1 / np.maximum(x, 4.0)
    square = inverse * inverse
    tail = inverse * (1 / math.sqrt(math.pi) - square * _ratio(_TAIL_P, _TAIL_Q, square))
    # e^(-x²) through a split of x into sixteenths: the rounding error of x² alone would cause an error of x² ulp. Beyond 27 it
    # is 0.
    near = np.minimum(x, 30.0)
    coarse = np.trunc(near * 16) / 16
    bell = np.exp(-coarse * coarse) * np.exp(-(near - coarse) * (near + coarse))
    return np.asarray(bell * np.where(x <= 4.0, middle, tail))


def erf_array(x: np.ndarray) -> Float64:
    """Return 2/√π · ∫₀ˣ e^(-t²) dt."""
    wide = np.asarray(x, np.float64)
    size = np.abs(wide)
    outer = np.copysign(1 - _large_erfc(np.maximum(size, 0.46875)), wide)
    return np.where(size <= 0.46875, _small_erf(np.clip(wide, -0.5, 0.5)), outer)


def erfc_array(x: np.ndarray) -> Float64:
    """Return 1 - erf x, without cancellation for large x."""
    wide = np.asarray(x, np.float64)
    size = np.abs(wide)
    outer = _large_erfc(np.maximum(size, 0.46875))
    inner = 1 - _small_erf(np.clip(wide, -0.5, 0.5))
    return np.where(size <= 0.46875, inner, np.where(wide > 0, outer, np.where(np.isnan(wide), wide, 2 - outer)))


def erfinv_array(x: np.ndarray) -> Float64:
    """Return y with erf y = x: a closed approximation, then Halley steps, on the complement for x near 1."""
    wide = np.asarray(x, np.float64)
    size = np.abs(wide)
    inside = np.where(size < 1, size, 0.0)
    # S. Winitzki 2008, "A handy approximation for the error function and its inverse": 2e-3 relative.
    bend = np.log1p(-inside) + np.log1p(inside)
    half = 2 / (math.pi * 0.147) + bend / 2
    guess = np.sqrt(np.sqrt(half * half - bend / 0.147) - half)
    y = np.where(inside < 0.1, inside * math.sqrt(math.pi) / 2, guess)
    for _ in range(3):
        excess = np.where(inside < 0.5, erf_array(y) - inside, (1 - inside) - erfc_array(y))
        step = excess / (2 / math.sqrt(math.pi) * np.exp(-y * y))
        y = y - step / (1 + y * step)
    return np.copysign(np.where(size < 1, y, np.where(size == 1, np.inf, np.nan)), wide)


# --------------------------------------------------------------------------------- gamma family


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # Python raises where the function is infinite
        return math.inf


lgamma_array = np.vectorize(_lgamma, otypes=[np.float64])
"""ln |Γ(x)|, infinite at the poles 0, -1, -2, …"""

# B_2, B_4, … B_24 of the Stirling and Euler-Maclaurin series (Abramowitz & Stegun 23.2).
BERNOULLI = (
    1 / 6,
    -1 / 30,
    1 / 42,
    -1 / 30,
    5 / 66,
    -691 / 2730,
    7 / 6,
    -3617 / 510,
    43867 / 798,
    -174611 / 330,
    854513 / 138,
    -236364091 / 2730,
)


def digamma_array(x: np.ndarray) -> Float64:
    """Return ψ(x) = Γ'(x)/Γ(x): -inf at 0, +inf at -0, NaN at the other poles."""
    wide = np.asarray(x, np.float64)
    is_left = wide < 0
    right = np.where(is_left, 1 - wide, wide)  # ψ(x) = ψ(1 - x) - π cot(πx), A & S 6.3.7
    total, shifted = np.zeros_like(right), right
    for _ in range(10):  # ψ(x) = ψ(x + 1) - 1/x until the series below is accurate to the last bit
        is_short = shifted < 10
        total = total - np.where(is_short, 1 / np.where(is_short, shifted, 1), 0)
        shifted = np.where(is_short, shifted + 1, shifted)
    inverse_square = 1 / (shifted * shifted)
    series = sum(b / (2 * k) * inverse_square**k for k, b in enumerate(BERNOULLI, 1))
    positive = total + (np.log(shifted) - 0.5 / shifted - series)
    return np.where(is_left, positive - math.pi * _cotangent(wide), positive)


def _cotangent(x: Float64) -> Float64:
    """Return cot(πx), NaN at integers; the period is reduced first, which preserves precision for large x and near zeros."""
    phase = x - np.round(x)
    size = np.abs(phase)
    beside_zero = np.copysign(np.tan(math.pi * (0.5 - size)), phase)
    return np.where(phase == 0, np.nan, np.where(size > 0.25, beside_zero, 1 / np.tan(math.pi * phase)))


def polygamma_array(order: int, x: np.ndarray) -> Float64:
    """Return the derivative of ψ of `order` at least 1; infinite at the poles."""
    wide = np.asarray(x, np.float64)
    is_left = wide < 0
    right = np.where(is_left, 1 - wide, wide)
    value = _zeta_form(order, right)
    if not is_left.any():
        return value
    # ψₙ(x) = (-1)ⁿ ψₙ(1 - x) - π dⁿ/dxⁿ cot(πx), A & S 6.4.7. With c = cot(πx), d/dx p(c) = -π (1 + c²) p'(c).
    slope = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(order):
        slope = -math.pi * np.polynomial.Polynomial([1.0, 0.0, 1.0]) * slope.deriv()
    at_poles = np.inf if order % 2 else np.nan
    phase = wide - np.round(wide)
    cotangent = _cotangent(wide)
    # A separate Horner's rule: NumPy's begins with 0·x, which is NaN where the cotangent is infinite.
    sloped = reduce(lambda total, c: total * cotangent + c, slope.coef[::-1])
    reflected = (-1) ** order * value - math.pi * sloped
    return np.where(is_left, np.where(phase == 0, at_poles, reflected), value)


def _zeta_form(order: int, x: Float64) -> Float64:
    """Return ψₙ(x) = (-1)ⁿ⁺¹ n! ζ(n + 1, x) on x >= 0, by terms of the sum and then Euler-Maclaurin (A & S 6.4.11)."""
    reach = 12 + order
    total, shifted = np.zeros_like(x), x
    for _ in range(reach):
        is_short = shifted < reach
        total = total + np.where(is_short, math.factorial(order) / np.where(is_short, shifted, 1) ** (order + 1), 0)
        shifted = np.where(is_short, shifted + 1, shifted)
    head = math.factorial(order - 1) / shifted**order + math.factorial(order) / (2 * shifted ** (order + 1))
    tail = sum(
        b * math.factorial(2 * k + order - 1) / math.factorial(2 * k) / shifted ** (2 * k + order)
        for k, b in enumerate(BERNOULLI, 1)
    )
    return np.asarray((-1) ** (order + 1) * (total + (head + tail)))
