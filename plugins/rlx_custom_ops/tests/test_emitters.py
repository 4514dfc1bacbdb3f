"""Machine code for small matrices: the references' factors for every size, and loops that are native."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import rlx_core as rlx
from rlx_custom_ops import lu, slogdet
from rlx_custom_ops.emitters import MAX_SMALL
from rlx_custom_ops.ops.determinant import Slogdet
from rlx_custom_ops.ops.lu import Lu

DTYPES = pytest.mark.parametrize("dtype", ["f4", "f8"])
SIZES = (1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32)


def compiled(f: Any, name: str) -> Any:
    """A jitted function, of which a call checks that a kernel is in its report."""
    jitted = rlx.jit(f, target="cpu")

    def call(*arrays: np.ndarray) -> Any:
        results = jitted(*arrays)
        assert name in str(jitted.report)
        return results

    return call


@DTYPES
@pytest.mark.parametrize("n", SIZES)
def test_factors_are_the_references(n: int, dtype: str) -> None:
    a = np.random.default_rng(n).standard_normal((2, n, n)).astype(dtype)
    expected, pivots, permutation = Lu().reference(a)
    found = compiled(lu, "linalg.native_factors")(a)
    np.testing.assert_array_equal(found[1], pivots)
    np.testing.assert_array_equal(found[2], permutation)
    np.testing.assert_allclose(found[0], expected, atol=1e3 * np.finfo(dtype).eps, rtol=1e3 * np.finfo(dtype).eps)


@DTYPES
@pytest.mark.parametrize("n", SIZES)
def test_determinants_are_the_references(n: int, dtype: str) -> None:
    a = np.random.default_rng(n).standard_normal((3, n, n)).astype(dtype)
    a[2, 0] = 0
    sign, log_modulus = compiled(slogdet, "linalg.native_determinant")(a)
    expected = Slogdet().reference(a.astype("f8"))
    np.testing.assert_array_equal(sign, expected[0])
    np.testing.assert_allclose(log_modulus, expected[1], rtol=1e3 * np.finfo(dtype).eps, atol=1e3 * np.finfo(dtype).eps)


def test_larger_and_complex_matrices_are_lapacks() -> None:
    compiled(slogdet, "lapack_getrf")(np.eye(MAX_SMALL + 1))
    compiled(lu, "lapack_getrf_packed")(np.eye(2, dtype="c16"))


def test_no_elements_and_no_matrices() -> None:
    for shape in ((2, 0, 0), (0, 3, 3)):
        sign, log_modulus = rlx.jit(slogdet, target="cpu")(np.zeros(shape, "f4"))
        np.testing.assert_array_equal(sign, np.ones(shape[:1]))
        np.testing.assert_array_equal(log_modulus, np.zeros(shape[:1]))


def test_a_loop_of_determinants_is_one_native_step() -> None:
    def steps(a: Any) -> Any:
        return rlx.scan(lambda c, _: (rlx.linalg.det(a + 0.01 * c), None), a[0, 0], None, length=20)[0]

    a = np.random.default_rng(0).standard_normal((4, 4))
    expected = a[0, 0]
    for _ in range(20):
        expected = np.linalg.det(a + 0.01 * expected)
    fast = rlx.jit(steps, target="cpu")
    np.testing.assert_allclose(fast(a), expected, rtol=1e-10)
    assert "1 of 1 steps native" in str(fast.report)
