"""Values against NumPy and SciPy, on one matrix and on stacks of them, in every dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import rlx_custom_ops as linalg

DTYPES = ("f4", "f8", "c8", "c16")
LEADING = ((), (2,), (2, 3), (0,))


def herm(a: np.ndarray) -> np.ndarray:
    return a.swapaxes(-1, -2).conj()


def close(found: Any, wanted: Any, scale: float = 1.0) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    # Backward stable algorithms on matrices of condition below 100: a hundred roundings of the largest element.
    tolerance = 300 * scale * np.finfo(found.dtype).eps * max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("leading", LEADING, ids=str)
class TestAgainstNumpy:
    def test_cholesky(self, draw: Any, dtype: str, leading: tuple[int, ...]) -> None:
        a = draw(*leading, 4, 4, dtype=dtype)
        a = a @ herm(a) + np.eye(4, dtype=dtype)
        close(linalg.cholesky(a), np.linalg.cholesky(a))

    def test_eigh_has_the_eigenvalues_and_diagonalises(self, draw: Any, dtype: str, leading: tuple[int, ...]) -> None:
        a = draw(*leading, 4, 4, dtype=dtype)
        a = a + herm(a)
        w, v = linalg.eigh(a)
        close(w, np.linalg.eigvalsh(a))
        close(v @ (w[..., None] * herm(v)), a)
        close(herm(v) @ v, np.broadcast_to(np.eye(4), a.shape))

    def test_eig_has_the_eigenvalues_and_diagonalises(self, draw: Any, dtype: str, leading: tuple[int, ...]) -> None:
        a = draw(*leading, 4, 4, dtype=dtype)
        w, v = linalg.eig(a)
        assert w.dtype == v.dtype == np.result_type(a.dtype, np.complex64)
        close(np.sort_complex(w), np.sort_complex(np.linalg.eigvals(a)))
        assert (np.diff(w.real) >= 0).all()
        close(a @ v, v * w[..., None, :])
        close(np.linalg.norm(v, axis=-2), np.ones(w.shape))

    @pytest.mark.parametrize(("m", "n"), [(5, 3), (3, 3), (3, 5)])
    def test_qr_is_the_factorisation_with_a_positive_diagonal(
        self, draw: Any, dtype: str, leading: tuple[int, ...], m: int, n: int
    ) -> None:
        a, k = draw(*leading, m, n, dtype=dtype), min(m, n)
        q, r = linalg.qr(a)
        close(q @ r, a)
        close(herm(q) @ q, np.broadcast_to(np.eye(k), (*leading, k, k)))
        assert np.array_equal(r, np.triu(r))
        diagonal = np.diagonal(r, axis1=-2, axis2=-1)
        assert (diagonal.real > 0).all()
        assert (diagonal.imag == 0).all()

    def test_kron(self, draw: Any, dtype: str, leading: tuple[int, ...]) -> None:
        a, b = draw(*leading, 2, 3, dtype=dtype), draw(4, 2, dtype=dtype)
        wanted = np.empty((*leading, 8, 6), dtype)
        for index in np.ndindex(leading):
            wanted[index] = np.kron(a[index], b)
        close(linalg.kron(a, b), wanted)

    @pytest.mark.parametrize("side", ["right", "left"])
    def test_polar(self, draw: Any, dtype: str, leading: tuple[int, ...], side: Any) -> None:
        a = draw(*leading, 5, 3, dtype=dtype)
        a = a if side == "right" else herm(a)
        u, p = linalg.polar(a, side=side)
        for index in np.ndindex(leading):
            wanted = scipy.linalg.polar(a[index], side=side)
            close(u[index], wanted[0], scale=10)
            close(p[index], wanted[1], scale=10)

    @pytest.mark.parametrize("ord", [None, 1, -1, 2, -2, np.inf, "fro"])
    def test_cond(self, draw: Any, dtype: str, leading: tuple[int, ...], ord: Any) -> None:
        a = draw(*leading, 3, 3, dtype=dtype) + 3 * np.eye(3, dtype=dtype)
        close(linalg.cond(a, ord), np.linalg.cond(a, ord) if a.size else np.empty(leading, a.real.dtype))

    @pytest.mark.parametrize("ord", [None, 1, -1, 2, -2, np.inf, "fro", "nuc"])
    @pytest.mark.parametrize("axis", [(-2, -1), (-1, -2)])
    def test_norm_of_matrices(
        self, draw: Any, dtype: str, leading: tuple[int, ...], ord: Any, axis: tuple[int, int]
    ) -> None:
        a = draw(*leading, 4, 3, dtype=dtype)
        for keepdims in (False, True):
            close(linalg.norm(a, ord, axis, keepdims), np.linalg.norm(a, ord, axis, keepdims))

    @pytest.mark.parametrize(("m", "n"), [(5, 3), (3, 3), (3, 5)])
    def test_svd_has_the_singular_values_and_the_product(
        self, draw: Any, dtype: str, leading: tuple[int, ...], m: int, n: int
    ) -> None:
        a, k = draw(*leading, m, n, dtype=dtype), min(m, n)
        u, s, vh = linalg.svd(a)
        assert s.dtype == a.real.dtype
        close(s, np.linalg.svd(a, compute_uv=False))
        close((u * s[..., None, :]) @ vh, a)
        close(herm(u) @ u, np.broadcast_to(np.eye(k), (*leading, k, k)))

    def test_solve_and_inverse(self, draw: Any, dtype: str, leading: tuple[int, ...]) -> None:
        a = draw(*leading, 4, 4, dtype=dtype) + 3 * np.eye(4, dtype=dtype)
        b = draw(*leading, 4, 2, dtype=dtype)
        close(linalg.solve(a, b), np.linalg.solve(a, b))
        close(linalg.inverse(a), np.linalg.inv(a))

    def test_slogdet_and_logdet(self, draw: Any, dtype: str, leading: tuple[int, ...]) -> None:
        a = draw(*leading, 4, 4, dtype=dtype)
        for found, wanted in zip(linalg.slogdet(a), np.linalg.slogdet(a), strict=True):
            close(found, wanted)
        determinant = np.linalg.det(a)
        with np.errstate(invalid="ignore"):
            wanted = np.log(determinant)  # NaN for negative real ones, the principal branch for complex ones
        close(linalg.logdet(a)[np.isfinite(wanted)], wanted[np.isfinite(wanted)], scale=10)
        assert np.array_equal(np.isnan(linalg.logdet(a)), np.isnan(wanted))

    @pytest.mark.parametrize(("m", "n"), [(5, 3), (3, 3), (3, 5)])
    def test_pinv_and_lstsq(self, draw: Any, dtype: str, leading: tuple[int, ...], m: int, n: int) -> None:
        a, b = draw(*leading, m, n, dtype=dtype), draw(*leading, m, 2, dtype=dtype)
        close(linalg.pinv(a), np.linalg.pinv(a), scale=10)
        close(linalg.lstsq(a, b), np.linalg.pinv(a) @ b, scale=10)

    def test_expm(self, draw: Any, dtype: str, leading: tuple[int, ...]) -> None:
        a = draw(*leading, 4, 4, dtype=dtype)
        close(linalg.expm(a), scipy.linalg.expm(a))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize(("operation", "trans"), [("none", 0), ("transpose", 1), ("adjoint", 2)])
def test_triangular_solve_reads_one_triangle(
    draw: Any, dtype: str, lower: bool, unit: bool, operation: str, trans: int
) -> None:
    a, b = draw(4, 4, dtype=dtype) + 3 * np.eye(4, dtype=dtype), draw(4, 2, dtype=dtype)
    wanted = scipy.linalg.solve_triangular(a, b, trans=trans, lower=lower, unit_diagonal=unit)
    close(linalg.triangular_solve(a, b, lower=lower, operation=operation, unit_diagonal=unit), wanted)
    unread = np.where(
        np.tri(4, k=-int(unit)).astype(bool) if lower else ~np.tri(4, k=int(unit) - 1).astype(bool), a, np.nan
    )
    assert np.isfinite(linalg.triangular_solve(unread, b, lower=lower, operation=operation, unit_diagonal=unit)).all()


SYSTEMS: tuple[Callable[[Any, Any], Any], ...] = (linalg.solve, linalg.triangular_solve, linalg.lstsq)


@pytest.mark.parametrize("function", SYSTEMS, ids=lambda f: f.__name__)
class TestSystems:
    def test_a_vector_is_one_column(self, draw: Any, function: Any) -> None:
        a, b = draw(2, 3, 3) + 3 * np.eye(3), draw(3)
        found = function(a, b)
        assert found.shape == (2, 3)
        close(found, function(a, np.broadcast_to(b[:, None], (2, 3, 1)))[..., 0])

    def test_leading_dims_broadcast(self, draw: Any, function: Any) -> None:
        a, b = draw(2, 1, 3, 3) + 3 * np.eye(3), draw(4, 3, 2)
        found = function(a, b)
        assert found.shape == (2, 4, 3, 2)
        close(found[1, 2], function(a[1, 0], b[2]))

    def test_dtypes_promote(self, draw: Any, function: Any) -> None:
        a, b = (draw(3, 3) + 3 * np.eye(3)).astype("f4"), draw(3, 1, dtype="c16")
        assert function(a, b).dtype == np.complex128


@pytest.mark.parametrize("name", ["cholesky", "inverse", "expm", "eigh", "qr", "svd", "pinv"])
def test_matrices_without_elements_have_results_without_elements(name: str) -> None:
    empty = np.zeros((0, 0))
    found = getattr(linalg, name)(empty)
    assert all(np.asarray(x).size == 0 for x in (found if isinstance(found, tuple) else (found,)))


def test_the_determinant_of_nothing_is_one() -> None:
    assert [float(x) for x in linalg.slogdet(np.zeros((0, 0)))] == [1.0, 0.0]


class TestExpm:
    @pytest.mark.parametrize("norm", [0.0, 1e-300, 1e-12, 5.371, 5.372, 10.8, 40.0, 700.0])
    def test_any_norm(self, draw: Any, norm: float) -> None:
        # Skew-Hermitian: its exponential is unitary, so any error is seen whatever the norm.
        a = draw(4, 4, dtype="c16")
        a = a - herm(a)
        a = a * (norm / np.abs(a).sum(axis=0).max())
        y = linalg.expm(a)
        w, v = np.linalg.eigh(1j * a)
        # The error of squaring grows with the norm: about norm · ε.
        np.testing.assert_allclose(y, (v * np.exp(-1j * w)) @ herm(v), rtol=0, atol=1e-13 * max(1.0, norm))

    def test_matrices_far_from_normal(self) -> None:
        """The norm is large and the exponential is not: squaring costs a relative norm · ε, and no more."""
        found = linalg.expm(np.array([[0.0, 1e6], [0.0, 0.0]]))
        np.testing.assert_allclose(found, [[1.0, 1e6], [0.0, 1.0]], rtol=1e6 * 2**-52)

    def test_what_underflows_is_zero(self) -> None:
        assert np.array_equal(linalg.expm(np.diag([-1e4, -1e4])), np.zeros((2, 2)))

    def test_single_precision_is_computed_to_single_precision(self, draw: Any) -> None:
        a = 3 * draw(5, 5, dtype="f4")
        wanted = scipy.linalg.expm(a.astype("f8"))
        np.testing.assert_allclose(linalg.expm(a), wanted, rtol=0, atol=2**-22 * np.abs(wanted).max())


class TestConventions:
    @pytest.mark.parametrize("function", [linalg.cholesky, linalg.eigh], ids=["cholesky", "eigh"])
    def test_only_the_hermitian_part_counts(self, draw: Any, function: Any) -> None:
        a = draw(3, 3, dtype="c16")
        a = a @ herm(a) + np.eye(3)
        skew = draw(3, 3, dtype="c16")
        found, wanted = function(a + skew - herm(skew)), function(a)
        for x, y in zip(found, wanted, strict=True):
            close(x, y)

    @pytest.mark.parametrize("dtype", ["f8", "c16"])
    def test_vectors_have_a_real_positive_pivot(self, draw: Any, dtype: str) -> None:
        a = draw(6, 5, 5, dtype=dtype)
        for vectors in (linalg.eigh(a)[1], linalg.svd(a)[0]):
            modulus = np.abs(vectors)
            first = np.argmax(modulus >= 0.9 * modulus.max(axis=-2, keepdims=True), axis=-2)
            pivots = np.take_along_axis(vectors, first[..., None, :], axis=-2)
            assert (pivots.real > 0).all()
            np.testing.assert_allclose(pivots.imag, 0, atol=1e-15)  # one rounding of a number below 1

    def test_equal_elements_of_a_vector_do_not_make_its_sign_a_matter_of_rounding(self) -> None:
        _, v = linalg.eigh(np.array([[0.0, 1.0], [1.0, 0.0]]))
        np.testing.assert_allclose(v, np.sqrt(0.5) * np.array([[1, 1], [-1, 1]]), rtol=1e-15)

    def test_logdet_of_a_singular_matrix_is_minus_infinity(self) -> None:
        assert linalg.logdet(np.ones((2, 2))) == -np.inf
        assert [float(x) for x in linalg.slogdet(np.ones((2, 2)))] == [0.0, -np.inf]

    def test_pinv_takes_small_singular_values_for_zero(self) -> None:
        a = np.diag([1.0, 1e-3, 1e-17])
        np.testing.assert_allclose(linalg.pinv(a), np.diag([1.0, 1e3, 0.0]), rtol=1e-12)
        np.testing.assert_allclose(linalg.pinv(a, rtol=1e-2), np.diag([1.0, 0.0, 0.0]), rtol=1e-12)
        assert np.array_equal(linalg.pinv(np.zeros((2, 3))), np.zeros((3, 2)))

    def test_lstsq_gives_the_shortest_solution(self) -> None:
        np.testing.assert_allclose(linalg.lstsq(np.ones((2, 2)), np.array([1.0, 3.0])), [1.0, 1.0], rtol=1e-14)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    @pytest.mark.parametrize("name", ["cholesky", "eigh", "qr", "svd", "expm"])
    def test_a_matrix_that_is_not_finite_gives_nan_and_leaves_the_others_alone(
        self, draw: Any, name: str, bad: float
    ) -> None:
        a = draw(2, 3, 3)
        a = a @ herm(a) + np.eye(3)
        alone = getattr(linalg, name)(a[1])
        a[0, 1, 1] = bad
        found = getattr(linalg, name)(a)
        for x, y in zip(*((r,) if not isinstance(r, tuple) else r for r in (found, alone)), strict=True):
            assert np.isnan(x[0]).all()
            assert np.array_equal(x[1], y)
