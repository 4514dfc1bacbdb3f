"""The gamma family and the inverse error function in f64 against series in long doubles; in f32 see `test_math.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from math import comb, factorial

import numpy as np
import pytest
from harness import WIDTHS
from scipy import special
from ulp import HOST, PI_LOW, TERMS, compiled, errors, long_erf, long_erfc, needs_long_doubles, reflected

import rlx_core as rlx
from rlx_core.codegen.scalars.gamma import ORDERS
from rlx_core.ops import gamma
from rlx_core.ops.activation import erfinv
from rlx_core.ops.special import BERNOULLI, digamma_array, erfinv_array, lgamma_array, polygamma_array

Long = np.ndarray
FAR = 20
"""From here on series in 1/x hold to the last digit of a long double."""

FEW_ULP = 3.0
ISAS = pytest.mark.parametrize("isa", [i.name for i in WIDTHS])

EULER = np.longdouble("0.577215664901532860606512090082402431")


def zeta_rest(k: int) -> np.longdouble:
    """ζ(k) - 1: twenty terms, then Euler-Maclaurin."""
    n = np.arange(2, FAR, dtype=np.longdouble)
    a = np.longdouble(FAR)
    rest = a ** (1 - k) / (k - 1) + a**-k / 2
    for j, b in enumerate(BERNOULLI[:8], 1):
        rest += np.longdouble(b) * comb(2 * j + k - 2, 2 * j - 1) / (2 * j) * a ** (1 - k - 2 * j)
    return (n ** np.longdouble(-k)).sum() + rest


ZETA = [zeta_rest(k) for k in range(2, 70)]


def long_lgamma(x: np.ndarray) -> Long:
    """ln |Γ| by its series around 2, to which whole steps lead, and Stirling's beyond 20."""
    wide = x.astype(np.longdouble)
    steps = np.where(wide < FAR, np.rint(wide) - 2, 0)
    d = np.where(wide < FAR, wide - steps - 2, 0)
    total = np.zeros_like(d)
    for k, zeta in reversed(list(enumerate(ZETA, 2))):
        total = (zeta / k + total) * -d
    total = (total * -1 + (1 - EULER)) * d
    for j in range(int(np.abs(steps).max()) + 1):
        up, down = steps > j, -steps > j
        total = total + np.where(up, np.log(np.where(up, wide - j - 1, 1)), 0)
        total = total - np.where(down, np.log(np.abs(np.where(down, wide + j, 1))), 0)
    far = np.maximum(wide, FAR)
    series = sum(np.longdouble(b) / (2 * k * (2 * k - 1)) * powers(1 / far, 2 * k - 1) for k, b in numbered())
    stirling = (
        (far - np.longdouble("0.5")) * np.log(far) - far + np.log(2 * (np.longdouble(np.pi) + PI_LOW)) / 2 + series
    )
    return np.where(wide < FAR, total, stirling)


def long_polygamma(order: int, x: np.ndarray) -> Long:
    """The derivative of ψ of an order, or ψ itself for 0: by whole steps to numbers beyond 20, where there is a series."""
    wide = x.astype(np.longdouble)
    total, shifted = np.zeros_like(wide), wide
    reach = FAR + order
    for _ in range(reach + int(np.ceil(-min(wide.min(), 0)))):
        is_short = shifted < reach
        total = total + np.where(is_short, powers(1 / np.where(is_short, shifted, 1), order + 1), 0)
        shifted = np.where(is_short, shifted + 1, shifted)
    sign, scale, inverse = (-1) ** (order + 1), np.longdouble(factorial(order)), 1 / shifted
    head = np.log(shifted) if order == 0 else sign * factorial(order - 1) * powers(inverse, order)
    series = sum(
        np.longdouble(b) * factorial(2 * k + order - 1) / factorial(2 * k) * powers(inverse, 2 * k + order)
        for k, b in numbered()
    )
    return head + sign * (scale / 2 * powers(inverse, order + 1) + series + scale * total)


DIGAMMA_ZERO, DIGAMMA_ZERO_LOW = 1.4616321449683622, np.longdouble("9.549995429965697715184199e-17")
BESIDE_ZERO = 0.05
"""How far from its zero ψ is taken by Taylor's series there: a sum that cancels has no digits left."""


def long_digamma(x: np.ndarray) -> Long:
    """ψ, right to the last digits of a long double beside its zero on the right, too."""
    zero, beside = np.array([DIGAMMA_ZERO + DIGAMMA_ZERO_LOW]), np.abs(x - DIGAMMA_ZERO) < BESIDE_ZERO
    distance = np.where(beside, (x - DIGAMMA_ZERO) - DIGAMMA_ZERO_LOW, 0)
    slopes = [long_polygamma(k, zero)[0] / factorial(k) for k in range(1, 16)]
    total = np.zeros_like(distance)
    for slope in reversed(slopes):
        total = (total + slope) * distance
    return np.where(beside, total, long_polygamma(0, x))


def numbered() -> list[tuple[int, float]]:
    """The Bernoulli numbers B₂ₖ with their k."""
    return list(enumerate(BERNOULLI, 1))


def powers(x: Long, exponent: int) -> Long:
    """x^exponent by products: a power of long doubles takes as long as a hundred of them."""
    result = np.ones_like(x)
    for bit in bin(exponent)[2:]:
        result = result * result * (x if bit == "1" else 1)
    return result


def drawn(count: int) -> dict[str, np.ndarray]:
    """Numbers right of 0, more of them beside zeros, and left of it, more of them beside poles and zeros of the cotangent."""
    rng = np.random.default_rng(count)

    def beside(a: np.ndarray | float) -> np.ndarray:
        return a + 10.0 ** rng.uniform(-9, -1, count) * rng.choice([-1, 1], count)

    zeros = [beside(a) for a in (1, DIGAMMA_ZERO, 2)]
    wide = [rng.uniform(8, 1e3, count), 10.0 ** rng.uniform(-300, 10, count)]
    right = [np.arange(0.5, 20, 0.5), rng.uniform(0, 8, count), *wide, *zeros]
    whole = -rng.integers(1, 20, count)
    left = [-rng.uniform(0, 40, 3 * count), beside(whole), beside(whole + 0.5)]
    return {"right": np.concatenate(right), "left": np.concatenate(left)}


FUNCTIONS: dict[str, tuple[Callable, Callable[[np.ndarray], Long]]] = {
    "lgamma": (gamma.lgamma, long_lgamma),
    "digamma": (gamma.digamma, long_digamma),
}


@cache
def known(name: str, side: str) -> tuple[np.ndarray, Long, Long]:
    """(numbers, their function, what roundings of the terms that cancel left of 0 are)."""
    x, meaning = drawn(3000)[side], FUNCTIONS[name][1]
    return x, meaning(x), TERMS * reflected(name, meaning, x)


@needs_long_doubles
@ISAS
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_gamma_family_in_f64_is_within_a_few_ulp_but_for_what_cancels(name: str, side: str, isa: str) -> None:
    x, exact, cancelled = known(name, side)
    off = errors(compiled(FUNCTIONS[name][0], "f64", isa)(x), exact, cancelled)
    worst = int(off.argmax())

    assert off[worst] <= FEW_ULP, f"{name}({x[worst]!r}) is off by {off[worst]:.2f} ulp"


@needs_long_doubles
@ISAS
@pytest.mark.parametrize("order", [1, 2, 3, 7, ORDERS])
def test_derivatives_of_higher_order_lose_half_an_ulp_an_order(order: int, isa: str) -> None:
    rng = np.random.default_rng(order)
    beside_poles = -rng.integers(0, 10, 1000) - 10.0 ** rng.uniform(-9, -1, 1000)
    right = [rng.uniform(0, 60, 3000), 10.0 ** rng.uniform(-14, 10, 1000)]
    x = np.concatenate([*right, -rng.uniform(0, 10, 3000), beside_poles])
    limit = FEW_ULP + order / 2
    meaning = partial(long_polygamma, order)
    # On the left, what the term from the right is off.
    cancelled = limit * 2.0**-52 * reflected("polygamma", meaning, x)
    off = errors(compiled(lambda v: gamma.polygamma(v, order=order), "f64", isa)(x), meaning(x), cancelled)
    worst = int(off.argmax())

    assert off[worst] <= limit, f"polygamma({x[worst]!r}) is off by {off[worst]:.2f} ulp"


def test_an_order_without_native_code_is_left_to_numpy() -> None:
    x = np.array([1.0, 2.0])
    op = gamma.Polygamma(ORDERS + 1)
    fast = rlx.compile(lambda v: op(v), rlx.spec("f64[2]"), host=HOST, target="cpu")

    np.testing.assert_array_equal(fast(x), op.reference(x))
    assert f"an order of polygamma up to {ORDERS}" in str(fast.report)


EDGES = (
    *(0.0, -0.0, -1, -2, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 1e-310, -1e-310),
    *(1e-45, -1e-45, 1e-40, -1e-40),  # subnormal in f32
    *(3.4028235e38, -3.4028235e38, 1.797e308, -1.797e308),
)
OWN_EDGES = {
    # Zeros; the last number with a finite ln Γ, and one beyond.
    "lgamma": (gamma.lgamma, lgamma_array, FEW_ULP, (1, 2, -1e300, 2.5599833278516383e305, 2.56e305)),
    "digamma": (gamma.digamma, digamma_array, FEW_ULP, ()),
    **{
        f"polygamma{n}": (partial(gamma.polygamma, order=n), partial(polygamma_array, n), FEW_ULP + n / 2, ())
        for n in (1, 2, 3, ORDERS)
    },
    "erfinv": (erfinv, erfinv_array, 2.0, (1, 2, 1 - 2**-53, 1 - 2**-24)),
}


@ISAS
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", OWN_EDGES)
def test_edges_are_the_references(name: str, dtype: str, isa: str) -> None:
    function, reference, limit, own = OWN_EDGES[name]
    with np.errstate(all="ignore"):
        x = np.array([*EDGES, *own], np.float32 if dtype == "f32" else np.float64)
        found = compiled(function, dtype, isa)(x)
        off = errors(found, reference(x.astype(np.float64)).astype(np.longdouble))
    worst = int(off.argmax())

    assert off[worst] <= limit, f"{name}({x[worst]!r}) is {found[worst]!r}, off by {off[worst]:.2f} ulp"


@needs_long_doubles
@ISAS
def test_erfinv_in_f64_is_within_two_ulp(isa: str) -> None:
    rng = np.random.default_rng(4)
    count = 10_000 if isa == WIDTHS[0].name else 1000
    x = np.concatenate([rng.uniform(-0.9, 0.9, count), 10.0 ** rng.uniform(-300, -1, count)])
    beyond = 1 - 10.0 ** rng.uniform(-15.9, -1, count)
    run = compiled(erfinv, "f64", isa)
    with np.errstate(all="ignore"):
        # A Newton step from 15 digits has 30.
        y, z = special.erfinv(x).astype(np.longdouble), special.erfinv(beyond).astype(np.longdouble)
        slope = 2 / np.sqrt(np.longdouble(np.pi) + PI_LOW)
        near = y - (long_erf(y) - x) / (slope * np.exp(-y * y))
        complement = np.where(z > 2, long_erfc(np.maximum(z, 2)), 1 - long_erf(np.minimum(z, 2)))
        far = z + (complement - (1 - beyond.astype(np.longdouble))) / (slope * np.exp(-z * z))

    assert errors(run(x), near).max() <= 2.0
    assert errors(run(beyond), far).max() <= 2.0
