"""`rlx.special`: values against SciPy's, derivatives against differences, ends of the ranges, dtypes, programs and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import rlx_core as rlx
from rlx_core import special
from rlx_core.errors import AbsentNameError, ConfigError, DtypeError

RNG = np.random.default_rng(11)
LINE = np.concatenate([RNG.normal(size=12) * 3, RNG.normal(size=8) * 25, [0.0, 1.0, -1.0, 2.0, 8.0, -8.0]])
SIZES = np.abs(LINE) + 0.125
OTHERS = SIZES[::-1].copy()
SHARES = np.concatenate([RNG.uniform(size=20), 10.0 ** -RNG.uniform(0, 30, 5), [0.5]])
ENDS = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
AT_ENDS = [pair.ravel() for pair in np.meshgrid([0.0, 2.5, np.inf, -1.5, np.nan], [0.0, 2.5, np.inf, np.nan])]

INSIDE: dict[str, tuple[np.ndarray, ...]] = {
    "betaln": (SIZES, OTHERS),
    "betainc": (SIZES, OTHERS, SHARES),
    "digamma": (SIZES,),
    "entr": (SIZES,),
    "erf": (LINE,),
    "erfc": (LINE,),
    "erfcx": (LINE[LINE > -9],),
    "erfinv": (SHARES,),
    "expit": (LINE,),
    "factorial": (LINE[LINE < 40],),
    "gamma": (LINE[np.abs(LINE) < 40],),
    "gammainc": (SIZES, OTHERS),
    "gammaincc": (SIZES, OTHERS),
    "gammaln": (SIZES,),
    "i0": (LINE,),
    "i0e": (LINE,),
    "i1": (LINE,),
    "i1e": (LINE,),
    "kl_div": (SIZES, OTHERS),
    "log_expit": (LINE,),
    "log_ndtr": (LINE,),
    "logit": (SHARES,),
    "ndtr": (LINE,),
    "ndtri": (SHARES,),
    "psi": (SIZES,),
    "rel_entr": (SIZES, OTHERS),
    "xlog1py": (SIZES, OTHERS),
    "xlogy": (SIZES, OTHERS),
    "zeta": (1 + SIZES, OTHERS),
}
"""Operands at which a function is finite and its derivatives exist."""

OUTSIDE: dict[str, tuple[np.ndarray, ...]] = {
    "entr": (ENDS,),
    "erfcx": (ENDS,),
    "gamma": (np.array([0.0, -0.0, np.inf, -1.0, -2.0, np.nan, 200.0]),),
    "gammainc": tuple(AT_ENDS),
    "gammaincc": tuple(AT_ENDS),
    "i0e": (ENDS[[0, 1, 4]],),
    "kl_div": tuple(AT_ENDS),
    "log_ndtr": (ENDS,),
    "logit": (np.array([0.0, 1.0, -0.5, 1.5, np.nan]),),
    "ndtri": (np.array([0.0, 1.0, -0.5, 1.5, np.nan, 5e-324]),),
    "rel_entr": tuple(AT_ENDS),
    "xlogy": tuple(AT_ENDS),
    "zeta": (np.array([1.0, 2.0, 2.0, 2.5, 0.5, np.nan]), np.array([2.0, 0.0, -3.0, -0.5, 1.0, 1.0])),
}

ROUNDINGS = {
    "log_ndtr": 1000,
    "gamma": 300,
    "factorial": 300,
    "gammainc": 1000,
    "gammaincc": 1000,
    "betainc": 1000,
    "betaln": 300,
}
"""How many are allowed where a logarithm, or a square, of some hundred is an exponent; elsewhere it is 200."""


def theirs(name: str) -> Callable[..., np.ndarray]:
    found: Any = getattr(scipy.special, name)
    return found  # type: ignore[no-any-return]


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", INSIDE)
def test_values_are_scipys(name: str, dtype: type) -> None:
    given = [x.astype(dtype) for x in INSIDE[name]]
    found = rlx.jit(getattr(special, name))(*given)
    wanted = theirs(name)(*(x.astype(np.float64) for x in given))
    assert found.dtype == dtype
    least = 1e-290 if dtype is np.float64 else 1e-36  # below, numbers have fewer digits
    allowed = ROUNDINGS.get(name, 200) * np.finfo(dtype).eps
    np.testing.assert_allclose(found, wanted, rtol=allowed, atol=max(least, allowed * 1e-3 * (name == "kl_div")))


@pytest.mark.parametrize("name", OUTSIDE)
def test_ends_and_what_lies_outside_are_scipys(name: str) -> None:
    with np.errstate(all="ignore"):
        wanted = theirs(name)(*OUTSIDE[name])
    np.testing.assert_allclose(getattr(special, name)(*OUTSIDE[name]), wanted, rtol=1e-12)


def test_bessel_functions_end_in_infinity() -> None:
    np.testing.assert_array_equal(special.i0(ENDS), [1, 1, np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(special.i1(ENDS), [0, 0, np.inf, -np.inf, np.nan])


NO_SECOND = {("betainc", 0), ("betainc", 1), ("gammainc", 0), ("gammaincc", 0)}
"""Whose first derivative is a loop, of which there is none in reverse."""


@pytest.mark.medium
@pytest.mark.parametrize("name", INSIDE)
def test_derivatives_agree_with_differences(name: str) -> None:
    near = slice(0, 12)
    given = [np.clip(x[near], -4, 6) if x is LINE else x[near] for x in INSIDE[name]]
    if any(x is SHARES for x in INSIDE[name]):
        given[-1] = np.linspace(0.1, 0.93, 12)

    def function(*x: Any) -> Any:
        return rlx.sum(getattr(special, name)(*x))

    step = 1e-6
    for k, x in enumerate(given):

        def moved(by: float, k: int = k, x: np.ndarray = x) -> list[np.ndarray]:
            return [x + by if i == k else v for i, v in enumerate(given)]

        slope = rlx.grad(function, argnums=k)
        differences = (getattr(special, name)(*moved(step)) - getattr(special, name)(*moved(-step))) / (2 * step)
        found = slope(*given)
        np.testing.assert_allclose(found, differences, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(rlx.jvp(function, given, moved_tangents(given, k))[1], found.sum(), rtol=1e-10)
        if (name, k) not in NO_SECOND:
            second = rlx.grad(lambda *v, slope=slope: rlx.sum(slope(*v)), argnums=k)(*given)
            np.testing.assert_allclose(
                second, (slope(*moved(step)) - slope(*moved(-step))) / (2 * step), rtol=1e-5, atol=1e-6
            )


def moved_tangents(given: list[np.ndarray], k: int) -> list[np.ndarray]:
    return [np.ones_like(v) if i == k else np.zeros_like(v) for i, v in enumerate(given)]


@pytest.mark.medium
def test_further_derivatives_by_parameters_of_loops_are_taken_forwards() -> None:
    def slope(a: Any) -> Any:
        return rlx.grad(lambda a: special.gammainc(a, np.float64(2.0)))(a)

    a, step = np.float64(1.5), 1e-5
    _, second = rlx.jvp(slope, (a,), (np.float64(1.0),))
    np.testing.assert_allclose(second, (slope(a + step) - slope(a - step)) / (2 * step), rtol=1e-6)


@pytest.mark.medium
def test_a_derivative_is_whole_where_the_fraction_ends_exactly() -> None:
    """For whole `a` the fraction has a + 1 levels, and its derivative has more."""
    found = rlx.grad(lambda a: special.gammainc(a, np.float64(5.0)))(np.float64(3.0))
    np.testing.assert_allclose(found, -0.113692838693, rtol=1e-10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_computed_wide(dtype: str) -> None:
    x = np.array([0.5, 1.5, 3.0])
    narrow = rlx.asarray(x, dtype=dtype)
    found = special.gammainc(narrow, 2.0)
    assert str(found.dtype) == dtype
    np.testing.assert_allclose(found.astype(np.float64), scipy.special.gammainc(x, 2.0), rtol=1e-2)


@pytest.mark.medium
def test_operands_broadcast_and_integers_become_floats() -> None:
    a, x = np.arange(1, 4), np.array([[0.5], [2.0]])
    np.testing.assert_allclose(special.gammaincc(a, x), scipy.special.gammaincc(a, x), rtol=1e-12)
    np.testing.assert_allclose(special.zeta(np.array([2, 3])), scipy.special.zeta([2, 3]), rtol=1e-13)


@pytest.mark.medium
def test_they_are_batched_and_empty() -> None:
    x = np.abs(RNG.normal(size=(3, 4)))
    np.testing.assert_allclose(
        rlx.vmap(special.betainc, in_axes=(None, 0, None))(2.0, x, 0.3), scipy.special.betainc(2, x, 0.3)
    )
    assert special.gammainc(np.zeros((0, 2)), 1.0).shape == (0, 2)


def test_polygamma_and_multigammaln() -> None:
    x = np.array([0.7, 2.0, 9.5])
    for n in (0, 1, 3):
        np.testing.assert_allclose(special.polygamma(n, x), scipy.special.polygamma(n, x), rtol=1e-12)
    np.testing.assert_allclose(special.multigammaln(x + 3, 4), scipy.special.multigammaln(x + 3, 4), rtol=1e-13)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: special.ndtr(np.array(1j)), DtypeError, "ndtr: takes real numbers, not c128"),
        (lambda: special.polygamma(-1, 2.0), ConfigError, "n must be at least 0"),
        (lambda: special.multigammaln(2.0, 0), ConfigError, "d must be at least 1"),
        (lambda: special.struve, AbsentNameError, "struve"),
    ],
)
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
