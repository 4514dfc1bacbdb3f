"""Prints `codegen/scalars/coefficients.py`: polynomials of vector functions, interpolated at Chebyshev nodes in 50 digits.

    python plugins/rlx_cpu/tools/fit.py > rlx_core/codegen/scalars/coefficients.py
    python plugins/rlx_cpu/tools/fit.py pieces > plugins/rlx_cpu/src/rlx_cpu/native/scalars/piece_coefficients.py

Interpolation at Chebyshev nodes is within a factor of about two of the best polynomial of its degree, needs no iteration and
gives the same numbers everywhere. The error printed is measured after rounding the coefficients, relative to the whole
function that the polynomial is a part of. Needs mpmath.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Callable, Iterator
from itertools import pairwise

import mpmath as mp
from attrs import frozen

mp.mp.dps = 50
POINTS = 400

Function = Callable[[mp.mpf], mp.mpf]


@frozen
class Fit:
    """One polynomial.

    Attributes:
        name: The constant's name.
        says: What it approximates.
        f: The function of the polynomial's own variable.
        low: Where its interval begins.
        high: Where it ends.
        degree: Of the polynomial.
        weight: What an error of the polynomial is multiplied by to be a relative error of the whole function.
        is_single: Whether coefficients are rounded to f32.
    """

    name: str
    says: str
    f: Function
    low: mp.mpf
    high: mp.mpf
    degree: int
    weight: Function
    is_single: bool = False


def stored(c: mp.mpf, is_single: bool) -> float:
    """The nearest f64 or f32."""
    return struct.unpack("<f", struct.pack("<f", float(c)))[0] if is_single else float(c)


def interpolated(f: Function, low: mp.mpf, high: mp.mpf, degree: int) -> list[mp.mpf]:
    """Coefficients, lowest power first, of the polynomial through the Chebyshev nodes: divided differences, expanded."""
    n = degree + 1
    middle, half = (low + high) / 2, (high - low) / 2
    x = [middle + half * mp.cos(mp.pi * (2 * k + 1) / (2 * n)) for k in range(n)]
    d = [f(v) for v in x]
    for level in range(1, n):
        for i in range(n - 1, level - 1, -1):
            d[i] = (d[i] - d[i - 1]) / (x[i] - x[i - level])
    total = [d[-1]]
    for i in range(n - 2, -1, -1):
        shifted = [mp.mpf(0), *total]
        for k, c in enumerate(total):
            shifted[k] -= x[i] * c
        shifted[0] += d[i]
        total = shifted
    return total


def error(polynomial: Fit, coefficients: list[float]) -> mp.mpf:
    """The largest relative error of the whole function on an even grid."""
    worst = mp.mpf(0)
    for k in range(1, POINTS):
        v = polynomial.low + (polynomial.high - polynomial.low) * k / POINTS
        worst = max(
            worst,
            abs((mp.polyval([mp.mpf(c) for c in reversed(coefficients)], v) - polynomial.f(v)) * polynomial.weight(v)),
        )
    return worst


def odd(function: Function) -> tuple[Function, Function]:
    """(f(√s) - √s)/√s³ and the weight that makes its error relative to f."""
    return (
        lambda s: (function(mp.sqrt(s)) - mp.sqrt(s)) / mp.sqrt(s) ** 3 if s else mp.taylor(function, 0, 3)[3],
        lambda s: mp.sqrt(s) ** 3 / function(mp.sqrt(s)),
    )


def log_rest(z: mp.mpf) -> mp.mpf:
    """(ln((1 + s)/(1 - s))/s - 2)/z with z = s²."""
    s = mp.sqrt(z)
    return ((mp.log1p(s) - mp.log1p(-s)) / s - 2) / z if z else mp.mpf(2) / 3


def log_tail(z: mp.mpf) -> mp.mpf:
    """(atanh(s)/s - 1 - z/3)/z² with z = s²."""
    s = mp.sqrt(z)
    return (mp.atanh(s) / s - 1 - z / 3) / z**2 if z > mp.mpf(10) ** -12 else mp.mpf(1) / 5 + z / 7


def cosine_rest(s: mp.mpf) -> mp.mpf:
    """(cos r - 1 + r²/2)/r⁴ with s = r²."""
    return (mp.cos(mp.sqrt(s)) - 1 + s / 2) / s**2 if s > mp.mpf(10) ** -10 else mp.mpf(1) / 24 - s / 720


ERFC_CENTRE = 4


def erfc_shape(q: mp.mpf) -> mp.mpf:
    """(1 + 2a)·e^(a²)·erfc(a) with q = (a - 4)/(a + 4)."""
    a = ERFC_CENTRE * (1 + q) / (1 - q)
    return (1 + 2 * a) * mp.exp(a * a) * mp.erfc(a)


GELU_CENTRE = mp.mpf("2.5")


def gelu_shape(q: mp.mpf) -> mp.mpf:
    """(u + 2.5)·e^(u²/2)·Φ(-u) with q = (u - 2.5)/(u + 2.5)."""
    u = GELU_CENTRE * (1 + q) / (1 - q)
    return (u + GELU_CENTRE) * mp.exp(u * u / 2) * mp.erfc(u / mp.sqrt(2)) / 2


def fits() -> Iterator[Fit]:
    """All of them."""
    half = mp.log(2) / 2 * mp.mpf("1.001")
    yield Fit(
        "EXP", "(e^r - 1 - r)/r² on |r| <= ln2/2",
        lambda r: (mp.expm1(r) - r) / r**2 if abs(r) > mp.mpf(10) ** -15 else mp.mpf(1) / 2 + r / 6,
        -half, half, 11, lambda r: r**2 / mp.exp(r),
    )  # fmt: skip
    top = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mp.mpf("1.001")
    yield Fit("LOG", "(ln((1 + s)/(1 - s))/s - 2)/s² in s²", log_rest, mp.mpf(0), top, 7, lambda z: z / 2)
    yield Fit("LOG_TAIL", "(atanh(s)/s - 1 - s²/3)/s⁴ in s²", log_tail, mp.mpf(0), top, 7, lambda z: z**2)
    quarter = (mp.pi / 4 * mp.mpf("1.001")) ** 2
    for suffix, degree in ("", 6), ("_SHORT", 3):
        says = f"{'f32: ' if suffix else ''}(sin r - r)/r³ in r² on |r| <= π/4"
        yield Fit(f"SIN{suffix}", says, odd(mp.sin)[0], mp.mpf(0), quarter, degree, odd(mp.sin)[1])
        says = f"{'f32: ' if suffix else ''}(cos r - 1 + r²/2)/r⁴ in r² on |r| <= π/4"
        yield Fit(f"COS{suffix}", says, cosine_rest, mp.mpf(0), quarter, degree, lambda s: s**2)
    for name, function, end, degree in (
        ("SINH", mp.sinh, mp.mpf(1), 8),
        ("TANH", mp.tanh, mp.mpf("0.625"), 11),
        ("ATAN", mp.atan, mp.sqrt(2) - 1, 11),
        ("ASIN", mp.asin, mp.mpf("0.5"), 12),
    ):
        f, weight = odd(function)
        says = f"({name.lower()} x - x)/x³ in x² on |x| <= {mp.nstr(end, 4)}"
        yield Fit(name, says, f, mp.mpf(0), (end * mp.mpf("1.001")) ** 2, degree, weight)
    yield Fit(
        "ERF", "erf(x)/x - 1 in x² on |x| <= 0.85",
        lambda s: mp.erf(mp.sqrt(s)) / mp.sqrt(s) - 1 if s else 2 / mp.sqrt(mp.pi) - 1,
        mp.mpf(0), mp.mpf("0.85") ** 2, 11, lambda s: mp.sqrt(s) / mp.erf(mp.sqrt(s)) if s else mp.mpf(1),
    )  # fmt: skip
    centre = mp.mpf(ERFC_CENTRE)
    first, last = ((a - centre) / (a + centre) for a in (mp.mpf("0.5"), mp.mpf("27.5")))
    says = "(1 + 2a)·e^(a²)·erfc(a) in q = (a - 4)/(a + 4) on 0.5 .. 27.5"
    yield Fit("ERFC", says, erfc_shape, first, last, 21, lambda q: 1 / erfc_shape(q))
    last = (mp.mpf("14.5") - GELU_CENTRE) / (mp.mpf("14.5") + GELU_CENTRE)
    says = "f32: (u + 2.5)·e^(u²/2)·Φ(-u) in q = (u - 2.5)/(u + 2.5) on 0 .. 14.5"
    yield Fit("GELU", says, gelu_shape, mp.mpf(-1), last, 9, lambda q: 1 / gelu_shape(q), is_single=True)
    yield Fit("CBRT", "∛m on 1 .. 8, a first guess", mp.cbrt, mp.mpf(1), mp.mpf(8), 5, lambda m: 1 / mp.cbrt(m))


# ----------------------------------------------------------------------------------------- pieces

PIECES = 16
"""Entries of a register of AVX-512."""

CENTRES = 400
"""Centres tried around the middle of a piece."""


@frozen
class Pieces:
    """A function of u >= 0 by sixteen polynomials.

    Piece k holds where `scale·u + 1` has k as its two exponent bits and its first two mantissa bits: four octaves from 1 to 16,
    each in four equal parts.

    Attributes:
        name: The constants' prefix.
        says: What it approximates.
        f: The function.
        scale: As above; a short f32.
        degree: Of each polynomial.
        size: What errors are relative to, where that is not the function: the larger of two terms that cancel.
    """

    name: str
    says: str
    f: Function
    scale: mp.mpf
    degree: int
    size: Function | None = None

    def edges(self) -> list[mp.mpf]:
        """Where pieces begin, and where the last one ends."""
        ends = [mp.mpf(2) ** octave * (1 + mp.mpf(part) / 4) for octave in range(4) for part in range(4)]
        return [(v - 1) / self.scale for v in (*ends, mp.mpf(16))]


def centred(f: Function, low: mp.mpf, high: mp.mpf) -> mp.mpf:
    """A single near the middle of a piece where the function is all but a single: its constant term is then exact."""
    middle = mp.mpf(stored((low + high) / 2, is_single=True))
    tried = [middle + ((j + 1) // 2) * (-1) ** j * mp.mpf(2) ** -16 for j in range(CENTRES)]
    return min(tried, key=lambda c: abs(f(c) / mp.mpf(stored(f(c), is_single=True)) - 1))


def piece(pieces: Pieces, low: mp.mpf, high: mp.mpf) -> tuple[mp.mpf, list[mp.mpf]]:
    """(the centre, exact coefficients in powers of the distance from it) of one piece."""
    f, degree = pieces.f, pieces.degree
    if low == 0:
        # With the very value and slope at 0, so that small results are relatively right.
        value, slope = mp.taylor(f, 0, 1)
        higher = interpolated(lambda t: (f(t) - value - slope * t) / t**2, low, high, degree - 2)
        return mp.mpf(0), [value, slope, *higher]
    centre = centred(f, low, high)
    higher = interpolated(lambda t: (f(centre + t) - f(centre)) / t, low - centre, high - centre, degree - 1)
    return centre, [f(centre), *higher]


def piece_error(pieces: Pieces, low: mp.mpf, high: mp.mpf, centre: mp.mpf, coefficients: list[float]) -> mp.mpf:
    """The largest relative error of one polynomial on an even grid."""
    powers = [mp.mpf(c) for c in reversed(coefficients)]
    grid = [low + (high - low) * k / 100 for k in range(1, 100)]
    size = pieces.size or pieces.f
    return max(abs((mp.polyval(powers, u - centre) - pieces.f(u)) / size(u)) for u in grid)


def mills(u: mp.mpf) -> mp.mpf:
    """e^(u²/2)·Φ(-u)."""
    return mp.exp(u * u / 2) * mp.erfc(u / mp.sqrt(2)) / 2


def all_pieces() -> Iterator[Pieces]:
    """The functions of f32 that have them."""
    yield Pieces("TANH", "tanh u on 0 .. 9.2", mp.tanh, mp.mpf("1.625"), 5)
    yield Pieces(
        "GELU", "u·e^(u²/2)·Φ(-u) on 0 .. 15",
        lambda u: u * mills(u), mp.mpf(1), 6,
    )  # fmt: skip
    bell = 1 / mp.sqrt(2 * mp.pi)
    yield Pieces(
        "SLOPE", "e^(u²/2)·Φ(-u) - u/√(2π) on 0 .. 15",
        lambda u: mills(u) - u * bell, mp.mpf(1), 6, lambda u: max(mills(u), u * bell),
    )  # fmt: skip


def print_rows(rows: list[list[float]]) -> None:
    """Rows of constants, in lines of four."""
    for row in rows:
        print("    (")
        for first in range(0, len(row), 4):
            print(f"        *({', '.join(repr(c) for c in row[first : first + 4])}),")
        print("    ),")


def print_pieces() -> None:
    """Print the module of piecewise polynomials."""
    print(
        '"""Functions of f32 by sixteen polynomials each, printed by `tools/fit.py`; see `pieces.py` for how they are read.'
    )
    print()
    print(
        "Each has a scale; a row of the pieces' centres; and a row a power, lowest first. Rows are in the order of registers:"
    )
    print("piece k, counted from 0, stands at (k + 12) mod 16, because the exponent of 1 ends in 11.")
    print('"""')
    print()
    print("from __future__ import annotations")
    for pieces in all_pieces():
        edges = pieces.edges()
        rounded, worst = [], mp.mpf(0)
        for low, high in pairwise(edges):
            centre, exact = piece(pieces, low, high)
            coefficients = [stored(c, is_single=True) for c in exact]
            worst = max(worst, piece_error(pieces, low, high, centre, coefficients))
            rounded.append([stored(centre, is_single=True), *coefficients])
        rows = [[rounded[(k - 12) % PIECES][power] for k in range(PIECES)] for power in range(len(rounded[0]))]
        print(f"\n# {pieces.says}: {mp.nstr(worst, 2)}")
        print(f"{pieces.name}_SCALE = {float(pieces.scale)!r}")
        print(f"{pieces.name}_PIECES = (")
        print_rows(rows)
        print(")")
    roots = [stored(mp.mpf(2) ** (mp.mpf(k) / PIECES), is_single=True) for k in range(PIECES)]
    print("\n# 2^(k/16)")
    print("ROOTS = (")
    for first in range(0, PIECES, 4):
        print(f"    *({', '.join(repr(c) for c in roots[first : first + 4])}),")
    print(")")


def print_title(says: str) -> None:
    """Print how a module of polynomials on one interval each begins."""
    print(f'"""{says}')
    print()
    print("The number beside each is the error of the polynomial alone, relative to the whole function.")
    print('"""')
    print()
    print("from __future__ import annotations")


def print_fit(polynomial: Fit) -> tuple[list[mp.mpf], list[float]]:
    """Print one polynomial; returns its coefficients, exact and as they are kept."""
    exact = interpolated(polynomial.f, polynomial.low, polynomial.high, polynomial.degree)
    coefficients = [stored(c, polynomial.is_single) for c in exact]
    print(f"\n# {polynomial.says}: {mp.nstr(error(polynomial, coefficients), 2)}")
    print(f"{polynomial.name} = (")
    for c in coefficients:
        print(f"    {c!r},")
    print(")")
    return exact, coefficients


def main() -> None:
    """Print one of the modules."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", nargs="?", choices=("coefficients", "pieces"), default="coefficients")
    {"coefficients": print_coefficients, "pieces": print_pieces}[parser.parse_args().module]()


def print_coefficients() -> None:
    """Print the module of polynomials on one interval."""
    print_title(
        "Polynomials of the f64 vector functions, lowest power first; printed by `tools/fit.py`, which says how."
    )
    for polynomial in fits():
        exact, coefficients = print_fit(polynomial)
        if polynomial.name == "ERFC":
            print("\n# What the first coefficient lost when it was rounded.")
            print(f"ERFC_LOW = {float(exact[0] - mp.mpf(coefficients[0]))!r}")


if __name__ == "__main__":
    main()
