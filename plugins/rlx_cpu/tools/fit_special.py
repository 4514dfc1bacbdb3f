"""Prints `codegen/scalars/special_coefficients.py`: the polynomials of the gamma family and of the inverse error function.

    python plugins/rlx_cpu/tools/fit_special.py > rlx_core/codegen/scalars/special_coefficients.py

They are fitted as `fit.py` says. Needs mpmath.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import mpmath as mp
from fit import Fit, Function, print_fit, print_title, stored

TINY = mp.mpf(10) ** -25
HALF = mp.mpf("0.5")
CENTRE = mp.mpf(1)
"""Nearer to 0 than the middle of its interval: there the polynomial's roundings count more."""


# --------------------------------------------------------------------------------------------- gamma


def lgamma_shape(t: mp.mpf) -> mp.mpf:
    """ln Γ(r)/((r - 1)(r - 2)) at r = 2 + t."""
    return mp.digamma(2) if abs(t) < TINY else mp.loggamma(2 + t) / ((1 + t) * t)


def lgamma_far(z: mp.mpf) -> mp.mpf:
    """x·(ln Γ(x) - (x - ½) ln x + x - ½ ln 2π) at z = 1/x²."""
    if z < TINY:
        return mp.mpf(1) / 12
    x = 1 / mp.sqrt(z)
    return x * (mp.loggamma(x) - (x - HALF) * mp.log(x) + x - mp.log(2 * mp.pi) / 2)


DIGAMMA_ZERO = mp.findroot(mp.digamma, mp.mpf("1.4616321449683623"))


def digamma_shape(t: mp.mpf) -> mp.mpf:
    """ψ(r)/(r - its zero) at r = 1.5 + t."""
    r = mp.mpf("1.5") + t
    return mp.psi(1, r) if abs(r - DIGAMMA_ZERO) < TINY else mp.digamma(r) / (r - DIGAMMA_ZERO)


def digamma_far(z: mp.mpf) -> mp.mpf:
    """(ln x - 1/(2x) - ψ(x))·x² at z = 1/x²."""
    if z < TINY:
        return mp.mpf(1) / 12
    x = 1 / mp.sqrt(z)
    return (mp.log(x) - HALF / x - mp.digamma(x)) / z


def per(function: Function, term: Function) -> Function:
    """The weight of a polynomial that is multiplied by `term` in `function`, both of 1/x²; 0 at infinity."""
    return lambda z: abs(term(z) / function(1 / mp.sqrt(z))) if z else mp.mpf(0)


# --------------------------------------------------------------------------------------- circular


def sine_shape(s: mp.mpf) -> mp.mpf:
    """sin(πz)/z at s = z²."""
    z = mp.sqrt(s)
    return mp.sin(mp.pi * z) / z if s > TINY else mp.pi


def cotangent_shape(s: mp.mpf) -> mp.mpf:
    """πz·cot(πz)/(1 - 4z²) at s = z², without the zeros at ±½."""
    z = mp.pi * mp.sqrt(s)
    if abs(s - HALF**2) < TINY:
        return mp.pi**2 / 8
    return z * mp.cot(z) / (1 - 4 * s) if s > TINY else mp.mpf(1)


# ----------------------------------------------------------------------------------- inverse error


def erfinv_shape(t: mp.mpf) -> mp.mpf:
    """y/x for x = erf y, with t = -ln(1 - x²) - 1."""
    w = t + CENTRE
    x = mp.sqrt(-mp.expm1(-w)) if w > TINY else mp.mpf(0)
    return mp.erfinv(x) / x if x else mp.sqrt(mp.pi) / 2


def erfinv_far(s: mp.mpf) -> mp.mpf:
    """The y with erfc y = e^(-s²): Halley's steps."""
    q, y = mp.exp(-s * s), s - mp.mpf("0.3")
    for _ in range(60):
        excess = (q - mp.erfc(y)) * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
        step = excess / (1 + y * excess)
        y -= step
        if abs(step) < mp.mpf(10) ** -45:
            break
    return y


def erfinv_from(centre: mp.mpf, t: mp.mpf) -> mp.mpf:
    """The same at s = centre + t."""
    return erfinv_far(centre + t)


def inverse(function: Function) -> Function:
    """The weight of a polynomial that is the function, up to a factor without error."""
    return lambda t: 1 / function(t)


def erfinv_fits() -> Iterator[Fit]:
    """The inverse error function in f64 and in f32: up to 1 - x² = e^-5, and beyond."""
    first = mp.sqrt(-mp.log(1 - mp.sqrt(1 - mp.exp(-5)))) - mp.mpf("0.001")
    for suffix, is_single, degree, centre, last, tail_degree in (
        ("", False, 23, 4, "6.07", 22),
        ("_SINGLE", True, 9, 3, "4.08", 8),
    ):
        prefix, beyond = "f32: " if is_single else "", partial(erfinv_from, mp.mpf(centre))
        says = f"{prefix}y/x for x = erf y, in -ln(1 - x²) - 1 on -1 .. 4"
        yield Fit(f"ERFINV{suffix}", says, erfinv_shape, -CENTRE, 5 - CENTRE, degree, inverse(erfinv_shape), is_single)
        low, high = first - centre, mp.mpf(last) - centre
        says = f"{prefix}the y with erfc y = q, in sqrt(-ln q) - {centre} on {mp.nstr(low, 4)} .. {mp.nstr(high, 4)}"
        yield Fit(f"ERFINV_FAR{suffix}", says, beyond, low, high, tail_degree, inverse(beyond), is_single)


def fits() -> Iterator[Fit]:
    """All of them."""
    zero = mp.mpf(0)
    says = "ln Γ(r)/((r - 1)(r - 2)) in r - 2 on 1.5 .. 2.5"
    yield Fit("LGAMMA", says, lgamma_shape, -HALF, HALF, 19, inverse(lgamma_shape))
    says = "x·(ln Γ(x) - (x - ½) ln x + x - ½ ln 2π) in 1/x² from 3.5 on"
    yield Fit("LGAMMA_FAR", says, lgamma_far, zero, mp.mpf("3.5") ** -2, 9, per(mp.loggamma, mp.sqrt))
    says = "ψ(r)/(r - its zero) in r - 1.5 on 1 .. 2"
    yield Fit("DIGAMMA", says, digamma_shape, -HALF, HALF, 23, inverse(digamma_shape))
    says = "(ln x - 1/(2x) - ψ(x))·x² in 1/x² from 3 on"
    yield Fit("DIGAMMA_FAR", says, digamma_far, zero, mp.mpf(3) ** -2, 11, per(mp.digamma, lambda z: z))
    says = "sin(πz)/z in z² on |z| <= ½"
    yield Fit("SINE_PI", says, sine_shape, zero, HALF**2, 9, inverse(sine_shape))
    says = "πz·cot(πz)/(1 - 4z²) in z² on |z| <= ½"
    yield Fit("COTANGENT_PI", says, cotangent_shape, zero, HALF**2, 14, inverse(cotangent_shape))
    yield from erfinv_fits()


LOW = {
    "ERFINV": "ERFINV_LOW",
    "ERFINV_FAR": "ERFINV_FAR_LOW",
    "ERFINV_SINGLE": "ERFINV_LOW_SINGLE",
    "ERFINV_FAR_SINGLE": "ERFINV_FAR_LOW_SINGLE",
}
"""What is printed of a polynomial besides it: its name, and what the rest of its first coefficient is called."""


def main() -> None:
    """Print the module."""
    print_title("Polynomials of the gamma family and of erfinv, lowest power first; printed by `tools/fit_special.py`.")
    for polynomial in fits():
        exact, coefficients = print_fit(polynomial)
        if polynomial.name in LOW:
            print("\n# What its first coefficient lost when it was rounded.")
            print(f"{LOW[polynomial.name]} = {float(exact[0] - mp.mpf(coefficients[0]))!r}")
    high = stored(DIGAMMA_ZERO, is_single=False)
    print("\n# Where ψ is 0 on the right, in two pieces.")
    print(f"DIGAMMA_ZERO = ({high!r}, {float(DIGAMMA_ZERO - high)!r})")


if __name__ == "__main__":
    main()
