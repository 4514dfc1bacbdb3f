"""The functions of one variable with their float64 meanings, and errors in units of the last place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from scipy import special

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.ir.apply import OpFunction
from rlx_core.ops import activation, gamma, trigonometry
from rlx_core.ops.special import polygamma_array
from rlx_core.plugins import PluginHost
from rlx_cpu.native.llvm.isa import named

HOST = PluginHost([rlx_cpu.plugin])

Meaning = Callable[[np.ndarray], np.ndarray]


def inverse_error(x: np.ndarray) -> np.ndarray:
    """SciPy's erfinv, with the sign of 0; it is not asked where it is NaN, which it reports one at a time."""
    size = np.abs(x)
    inside = size <= 1
    return np.where(inside, np.copysign(special.erfinv(np.where(inside, size, 0)), x), np.nan)


def log_gamma(x: np.ndarray) -> np.ndarray:
    """SciPy's ln |Γ|, which is infinity at -inf as at every pole."""
    return np.where(np.isinf(x), np.inf, special.gammaln(x))


FUNCTIONS: dict[str, tuple[OpFunction, Meaning]] = {
    "exp": (activation.exp, np.exp),
    "exp2": (activation.exp2, np.exp2),
    "expm1": (activation.expm1, np.expm1),
    "log": (activation.log, np.log),
    "log2": (activation.log2, np.log2),
    "log10": (activation.log10, np.log10),
    "log1p": (activation.log1p, np.log1p),
    "sqrt": (activation.sqrt, np.sqrt),
    "cbrt": (activation.cbrt, np.cbrt),
    "tanh": (activation.tanh, np.tanh),
    "erf": (activation.erf, special.erf),
    "erfc": (activation.erfc, special.erfc),
    "sin": (trigonometry.sin, np.sin),
    "cos": (trigonometry.cos, np.cos),
    "tan": (trigonometry.tan, np.tan),
    "asin": (trigonometry.asin, np.arcsin),
    "acos": (trigonometry.acos, np.arccos),
    "atan": (trigonometry.atan, np.arctan),
    "sinh": (trigonometry.sinh, np.sinh),
    "cosh": (trigonometry.cosh, np.cosh),
    "asinh": (trigonometry.asinh, np.arcsinh),
    "acosh": (trigonometry.acosh, np.arccosh),
    "atanh": (trigonometry.atanh, np.arctanh),
    "erfinv": (activation.erfinv, inverse_error),
    "lgamma": (gamma.lgamma, log_gamma),
    "digamma": (gamma.digamma, special.digamma),
    "trigamma": (gamma.trigamma, partial(polygamma_array, 1)),
}


needs_long_doubles = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 60,
    reason="NumPy's long double, the oracle of f64, is no wider than f64 here (Windows, macOS on ARM); "
    "an oracle in software would do without it",
)

CANCELLING = ("lgamma", "digamma", "trigamma")
"""Functions that reflection leads left of 0, where two terms cancel: beside zeros that no float is."""

TERMS = 2 * 2.0**-52
"""What a term in f64 may be off, relative to its size: two ulp."""


def reflected(name: str, meaning: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    """The size left of 0 of the term that rounding makes wrong, whatever is left of it; 0 elsewhere.

    ψ(x) = ψ(1 - x) - π·cot(πx), and derivatives: the first term, as the cotangent has twice the digits. ln |Γ(x)| =
    -ln Γ(-x) - ln |x·sin(πx)/π|: the first term, and 1 for the logarithm of a product of three roundings, which are absolute
    errors of it.
    """
    is_logarithm = name == "lgamma"
    right = np.abs(meaning(np.where(x < 0, -x if is_logarithm else 1 - x, 1)))
    return np.where((x < 0) & np.isfinite(right), right + float(is_logarithm), 0)


GELU = (activation.gelu, lambda x: x * (0.5 * special.erfc(-x * np.sqrt(0.5))))
"""As one function, which may be off by more than the others: its product of three has as many roundings."""

MEANINGS = {name: meaning for name, (_, meaning) in {**FUNCTIONS, "gelu": GELU}.items()}

CHUNK = 1 << 14
"""Inputs looked at together: few enough that the oracle's intermediates stay in cache, which is ten times as fast."""


def bound(name: str, isa: str) -> float:
    """How many ulp a function of f32 may be off on an instruction set; measured over all floats by `sweep.py`."""
    if name != "gelu":
        return 2.0
    return 2.6 if "avx512f" in named(isa).needs else 3.13


def compiled(function: OpFunction, dtype: str, isa: str) -> Callable[[np.ndarray], np.ndarray]:
    """The function on vectors of any length, as native code for one instruction set and one thread."""
    config = {"options": {"cpu.isa": isa, "cpu.threads": 1}}
    fast = rlx.compile(lambda v: function(v), rlx.spec(f"{dtype}[n]"), host=HOST, target="cpu", config=config)
    return lambda x: np.asarray(fast(x))


def largest_error(name: str, found: np.ndarray, x: np.ndarray, least: float = 0.5) -> tuple[float, int | None]:
    """(the largest error in ulp of results of f32, where in x it is), if it is above `least`, which is half an ulp or more.

    Results that are as near as they can be are told by their bits; errors are worked out for the others.
    """
    meaning = MEANINGS[name]
    worst, where = least, None
    for start in range(0, len(x), CHUNK):
        part, got = x[start : start + CHUNK], found[start : start + CHUNK]
        with np.errstate(all="ignore"):
            wide = part.astype(np.float64)
            exact = meaning(wide)
            other = np.flatnonzero(differ(got, exact.astype(got.dtype), worst))
            if not other.size:
                continue
            # Twice: the meaning reflects as well.
            cancelled = 2 * TERMS * reflected(name, meaning, wide[other]) if name in CANCELLING else 0.0
            off = errors(got[other], exact[other], cancelled)
        largest = int(off.argmax())
        if off[largest] > worst:
            worst, where = float(off[largest]), start + int(other[largest])
    return worst, where


def differ(found: np.ndarray, nearest: np.ndarray, least: float) -> np.ndarray:
    """Where a result of f32 may be off by more than `least` ulp: where it is not the nearest float, or else not its neighbour."""
    reach = np.uint32(least > 1.5)
    return found.view(np.uint32) - nearest.view(np.uint32) + reach > 2 * reach


def errors(found: np.ndarray, exact: np.ndarray, excused: np.ndarray | float = 0.0) -> np.ndarray:
    """|found - exact| in ulp of the result's dtype; infinite where one is NaN and the other is not, or a sign of 0 differs.

    Beyond the largest number the nearest one or infinity is within an ulp. Of a difference `excused` does not count.
    """
    with np.errstate(all="ignore"):
        nearest = exact.astype(found.dtype)
        top = np.finfo(found.dtype).max
        below = np.nextafter(top, found.dtype.type(0))
        # Differences are taken between finite numbers: an infinity stands an ulp beyond the largest one.
        limit = exact.dtype.type(top) + exact.dtype.type(top - below)
        ulp = np.spacing(np.minimum(np.abs(nearest), below)).astype(exact.dtype)
        distance = np.abs(np.clip(found.astype(exact.dtype), -limit, limit) - np.clip(exact, -limit, limit))
        distance = np.maximum(distance - excused, 0) / ulp
    both_nan = np.isnan(found) & np.isnan(exact)
    wrong = (np.isnan(found) != np.isnan(exact)) | (
        (exact == 0) & (found == 0) & (np.signbit(found) != np.signbit(exact))
    )
    return np.where(wrong, np.inf, np.where(both_nan, 0, distance))


def long_erf(x: np.ndarray) -> np.ndarray:
    """erf x for |x| <= 2.5 by a series of positive terms, in long doubles."""
    term = np.asarray(x, np.longdouble)
    square, total = term * term, term
    for n in range(1, 80):
        term = term * 2 * square / (2 * n + 1)
        total = total + term
    return 2 / np.sqrt(np.longdouble(np.pi) + PI_LOW) * np.exp(-square) * total


PI_LOW = np.longdouble(1.2246467991473532e-16)
"""π less its nearest double."""


def long_erfc(x: np.ndarray) -> np.ndarray:
    """erfc x for x >= 2 by its continued fraction, in long doubles."""
    wide = np.asarray(x, np.longdouble)
    coarse = np.asarray(x, np.float32).astype(np.longdouble)
    bell = np.exp(-coarse * coarse) * np.exp(-(wide - coarse) * (wide + coarse))
    total = wide
    for k in range(200, 0, -1):
        total = wide + np.longdouble(k) / 2 / total
    return bell / (np.sqrt(np.longdouble(np.pi) + PI_LOW) * total)
