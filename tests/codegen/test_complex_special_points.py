"""Complex functions at infinities, NaN and the ends of their ranges, in every mode: C17 Annex G, as NumPy has it."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx

PARTS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 20.5, -30.0, 88.8, -88.8, 710.0, -710.0, 1000.0, -1000.0)

FUNCTIONS = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "tanh", "tan", "sinh", "cosh", "sin", "cos", "sqrt", "log")},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
}


def grid(dtype: type) -> np.ndarray:
    re, im = np.meshgrid(PARTS, PARTS)
    z = np.empty(re.size, dtype)
    z.real, z.imag = re.ravel(), im.ravel()
    return z


def agree(z: np.ndarray, found: np.ndarray, expected: np.ndarray, tolerance: float) -> np.ndarray:
    """Return where parts agree: NaN, infinities, numbers within `tolerance`, and zeros with their signs of finite arguments.

    C leaves the signs of most zeros of other arguments open.
    """
    with np.errstate(all="ignore"):
        is_near = np.isfinite(found) & np.isfinite(expected) & (abs(found - expected) <= tolerance * abs(expected))
    is_equal = (found == expected) & ((np.signbit(found) == np.signbit(expected)) | ~np.isfinite(z))
    return is_near & (expected != 0) | is_equal | (np.isnan(found) & np.isnan(expected))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_points_of_a_complex_function(name: str, dtype: type) -> None:
    z = grid(dtype)
    tolerance = 1e-5 if dtype is np.complex64 else 1e-12  # some 100 and 5,000 ulps: NumPy's own errors at 1000
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name](z)
    function = getattr(rlx, name)

    compiled = np.asarray(rlx.jit(function)(z))

    np.testing.assert_array_equal(compiled, function(z))
    same = agree(z, compiled.real, expected.real, tolerance) & agree(z, compiled.imag, expected.imag, tolerance)
    assert same.all(), [(z[i], compiled[i], expected[i]) for i in np.flatnonzero(~same)[:5]]


@pytest.mark.parametrize(
    ("z", "expected"),
    [
        (complex(-np.inf, np.nan), complex(-1, 0)),
        (complex(-np.inf, np.inf), complex(-1, 0)),
        (complex(np.inf, np.inf), complex(np.inf, np.nan)),
        (complex(-1000, np.nan), complex(np.nan, np.nan)),
        (complex(np.nan, 0), complex(np.nan, 0)),
    ],
)
def test_expm1_has_the_special_values_of_the_array_api(z: complex, expected: complex) -> None:
    """NumPy's are NaN for some of these."""
    np.testing.assert_array_equal(rlx.expm1(np.complex128(z)), expected)


def test_exp_does_not_overflow_before_its_result() -> None:
    assert np.isfinite(rlx.exp(np.complex64(89 + 1j)).real)
    assert np.isfinite(rlx.exp(np.complex128(710 + 1j)).real)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", ["asin", "acos", "atan", "asinh", "acosh", "atanh"])
def test_inverse_functions_at_the_end_of_the_range(name: str, dtype: type) -> None:
    top = np.finfo(dtype).max
    parts = [top, -top, top / 2, 1e9, 2e9, -3.0, 0.0, -0.0]
    z = np.array([complex(x, y) for x in parts for y in parts]).astype(dtype)
    expected = getattr(np, f"arc{name[1:]}")(z.astype(np.clongdouble)).astype(dtype)
    function = getattr(rlx, name)

    eager = np.asarray(function(z))

    np.testing.assert_array_equal(eager.view(np.uint8), np.asarray(rlx.jit(function)(z)).view(np.uint8))
    np.testing.assert_array_equal(eager.view(np.uint8), np.asarray(rlx.compile(lambda: function(z))()).view(np.uint8))
    for found, exact in ((eager.real, expected.real), (eager.imag, expected.imag)):
        np.testing.assert_allclose(found, exact, rtol=1e-5 if dtype is np.complex64 else 1e-13)
