"""Derivatives where the laws do not look: degenerate and nearly degenerate matrices, scales, and identities known on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
import rlx_custom_ops as linalg
from rlx_core.ops import matmul, matrix_transpose, real
from rlx_core.ops import sum as total
from rlx_custom_ops.errors import SingularMatrixError

EXACT = 1e-9  # float64 through a few dozen operations on matrices of condition below 100


@pytest.fixture(autouse=True)
def compiled(cpu: Any) -> None:
    """Gradients of functions are compiled, so there must be a backend."""


def gradient(function: Callable[[Any], Any], a: np.ndarray) -> np.ndarray:
    return np.asarray(rlx.grad(function)(a))


def differences(function: Callable[[Any], Any], a: np.ndarray, along: np.ndarray, step: float = 1e-5) -> float:
    return float(np.real(function(a + step * along) - function(a - step * along)) / (2 * step))


class TestIdentities:
    """Gradients that a textbook has in closed form."""

    def test_logdet_has_the_inverse_transposed(self, draw: Any) -> None:
        a = draw(4, 4) + 3 * np.eye(4)
        np.testing.assert_allclose(gradient(linalg.logdet, a), np.linalg.inv(a).T, rtol=EXACT)

    @pytest.mark.medium
    def test_a_sum_of_eigenvalues_has_the_identity(self, draw: Any) -> None:
        np.testing.assert_allclose(gradient(lambda a: total(linalg.eigh(a)[0]), draw(4, 4)), np.eye(4), atol=EXACT)

    def test_the_nuclear_norm_has_the_polar_factor(self, draw: Any) -> None:
        a = draw(4, 3)
        u, _, vh = np.linalg.svd(a, full_matrices=False)
        np.testing.assert_allclose(gradient(lambda a: total(linalg.svd(a)[1]), a), u @ vh, atol=EXACT)

    @pytest.mark.medium
    def test_the_trace_of_the_stretch_is_the_nuclear_norm(self, draw: Any) -> None:
        """Also where singular values are equal: only their sums are divided by."""
        for a in (draw(4, 3), 2.0 * np.eye(4)[:, :3]):
            u, _ = linalg.polar(a)
            found = gradient(lambda a: total(linalg.polar(a)[1] * np.eye(3)), a)
            np.testing.assert_allclose(found, u, atol=EXACT)

    @pytest.mark.parametrize("ord", [None, 1, 2, -2, np.inf, "fro"])
    def test_a_condition_number(self, draw: Any, ord: Any) -> None:
        a, t = draw(3, 3) + 3 * np.eye(3), draw(3, 3)
        found = gradient(lambda a: linalg.cond(a, ord), a)
        expected = differences(lambda a: linalg.cond(a, ord), a, t)
        np.testing.assert_allclose(np.sum(found * t), expected, rtol=1e-7)

    def test_the_trace_of_the_exponential_has_the_exponential_transposed(self, draw: Any) -> None:
        a = draw(4, 4)
        found = gradient(lambda a: total(linalg.expm(a) * np.eye(4)), a)
        np.testing.assert_allclose(found, linalg.expm(a).T, rtol=EXACT)

    def test_cholesky_gives_the_gradient_of_logdet(self, draw: Any) -> None:
        a = draw(4, 4)
        a = a @ a.T + np.eye(4)
        found = gradient(lambda a: 2.0 * total(rlx.log(rlx.diag(linalg.cholesky(a)))), a)
        np.testing.assert_allclose(found, np.linalg.inv(a), rtol=EXACT, atol=EXACT)

    def test_second_derivative_of_logdet(self, draw: Any) -> None:
        a, t = draw(4, 4) + 3 * np.eye(4), draw(4, 4)
        inverse = np.linalg.inv(a)
        found = rlx.hvp(linalg.logdet, (a,), (t,))
        np.testing.assert_allclose(found, -(inverse @ t @ inverse).T, rtol=EXACT, atol=EXACT)

    def test_third_derivative_of_a_scalar_exponential(self) -> None:
        third = rlx.grad(lambda a: total(rlx.grad(lambda a: total(rlx.grad(lambda a: total(linalg.expm(a)))(a)))(a)))
        np.testing.assert_allclose(third(np.array([[0.3]])), [[np.exp(0.3)]], rtol=EXACT)


class TestDegenerateEigenvalues:
    A = np.diag([1.0, 1.0, 3.0])

    def test_every_gradient_is_finite(self) -> None:
        for pick in (0, 1):
            assert np.isfinite(gradient(lambda a, pick=pick: total(linalg.eigh(a)[pick]), self.A)).all()

    def test_a_loss_of_the_space_has_its_exact_gradient(self, draw: Any) -> None:
        """The projection on the space of the two equal eigenvalues does not depend on the basis in it."""
        weights = draw(3, 3)

        def loss(a: Any) -> Any:
            basis = linalg.eigh(a)[1][:, :2]
            return total(weights * matmul(basis, matrix_transpose(basis)))

        found, along = gradient(loss, self.A), draw(3, 3)
        # Differences of a function whose curvature is about 1 / gap²: h² · 1 and ε / h, both below 1e-9.
        assert np.sum(found * along) == pytest.approx(differences(loss, self.A, along), abs=1e-8)

    def test_a_function_of_the_matrix_lacks_the_term_of_the_pair_and_no_other(self, draw: Any) -> None:
        """The documented limit: a² written as v w² vᴴ, whose gradient is known."""
        weights = draw(3, 3)

        def square(a: Any) -> Any:
            w, v = linalg.eigh(a)
            return total(weights * matmul(v * (w * w), matrix_transpose(v)))

        wanted = self.A @ weights.T + weights.T @ self.A
        wanted = (wanted + wanted.T) / 2
        wanted[0, 1] = wanted[1, 0] = 0
        np.testing.assert_allclose(gradient(square, self.A), wanted, atol=EXACT)

    @pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6])
    def test_close_eigenvalues_are_not_taken_for_equal(self, gap: float) -> None:
        """Perturbation theory to first order: the vectors turn by t / gap."""
        a, t = np.diag([1.0, 1.0 + gap, 3.0]), np.zeros((3, 3))
        t[0, 1] = t[1, 0] = 1.0
        _, (t_w, t_v) = rlx.jvp(linalg.eigh, (a,), (t,))
        np.testing.assert_allclose(t_w, 0, atol=1e-12)
        # The gap itself is known to ε / gap.
        assert t_v[0, 1] == pytest.approx(1 / gap, rel=4 * 2**-52 / gap)
        assert t_v[1, 0] == pytest.approx(-1 / gap, rel=4 * 2**-52 / gap)

    def test_equal_to_rounding_is_equal(self, draw: Any) -> None:
        """Without the tolerance these would be noise divided by noise, about 1."""
        u = np.linalg.qr(draw(4, 4))[0]
        a, weights = u @ u.T, draw(4, 4)
        assert not gradient(lambda a: total(weights * linalg.eigh(a)[1]), a).any()

    @pytest.mark.medium
    def test_second_derivatives_are_finite(self, draw: Any) -> None:
        found = rlx.hvp(lambda a: total(linalg.eigh(a)[0] ** 2), (self.A,), (draw(3, 3),))
        assert np.isfinite(found).all()


class TestDegenerateSingularValues:
    @pytest.mark.medium
    @pytest.mark.parametrize(
        "a",
        [np.eye(3), np.zeros((3, 3)), np.diag([2.0, 1.0, 0.0]), np.ones((4, 2)), np.ones((2, 4))],
        ids=["equal", "zero", "one is 0", "tall of rank 1", "wide of rank 1"],
    )
    def test_every_gradient_is_finite(self, a: np.ndarray) -> None:
        for pick in range(3):
            assert np.isfinite(gradient(lambda a, pick=pick: total(linalg.svd(a)[pick]), a)).all()

    @pytest.mark.medium
    def test_a_loss_of_the_space_has_its_exact_gradient(self, draw: Any) -> None:
        a, weights, along = np.diag([3.0, 3.0, 1.0]), draw(3, 3), draw(3, 3)

        def loss(a: Any) -> Any:
            basis = linalg.svd(a)[0][:, :2]
            return total(weights * matmul(basis, matrix_transpose(basis)))

        assert np.sum(gradient(loss, a) * along) == pytest.approx(differences(loss, a, along), abs=1e-8)

    @pytest.mark.medium
    def test_close_singular_values_are_not_taken_for_equal(self) -> None:
        """A symmetric perturbation turns both bases by t / gap."""
        gap = 1e-5
        a, t = np.diag([1.0 + gap, 1.0]), np.array([[0.0, 1.0], [1.0, 0.0]])
        _, (t_u, _, _) = rlx.jvp(linalg.svd, (a,), (t,))
        assert abs(t_u[1, 0]) == pytest.approx(1 / gap, rel=1e-9)


class TestOtherEdges:
    @pytest.mark.medium
    def test_pinv_has_a_gradient_where_the_rank_is_low_and_stays(self, draw: Any) -> None:
        """Along directions that keep the rank, the rule is the derivative."""
        left, right, weights = draw(4, 2), draw(2, 3), draw(3, 4)
        d_left, d_right = draw(4, 2), draw(2, 3)

        def loss(a: Any) -> Any:
            return total(weights * linalg.pinv(a, rtol=1e-10))

        step = 1e-5
        ahead, behind = ((left + s * step * d_left) @ (right + s * step * d_right) for s in (1, -1))
        slope = float(loss(ahead) - loss(behind)) / (2 * step)
        found = np.sum(gradient(loss, left @ right) * (d_left @ right + left @ d_right))
        assert found == pytest.approx(slope, rel=1e-6)  # h² times a third derivative of about 1e4

    @pytest.mark.medium
    def test_pinv_has_a_gradient_where_singular_values_are_equal(self, draw: Any) -> None:
        a, weights, along = 2 * np.eye(3), draw(3, 3), draw(3, 3)

        def loss(a: Any) -> Any:
            return total(weights * linalg.pinv(a))

        assert np.sum(gradient(loss, a) * along) == pytest.approx(differences(loss, a, along), abs=1e-8)

    @pytest.mark.medium
    @pytest.mark.parametrize("scale", [1e-200, 1e-8, 1e8, 1e200])
    def test_the_size_of_a_cotangent_costs_no_digits_of_the_exponentials_gradient(
        self, draw: Any, scale: float
    ) -> None:
        a = draw(4, 4)
        plain = gradient(lambda a: total(linalg.expm(a)), a)
        scaled = gradient(lambda a: scale * total(linalg.expm(a)), a)
        np.testing.assert_allclose(scaled / scale, plain, rtol=1e-12)

    def test_a_cotangent_of_zero_gives_zero(self, draw: Any) -> None:
        assert not gradient(lambda a: 0.0 * total(linalg.expm(a)), draw(3, 3)).any()

    @pytest.mark.medium
    def test_the_gradient_of_a_singular_determinant_raises(self) -> None:
        with pytest.raises(SingularMatrixError, match="solve"):
            gradient(linalg.logdet, np.ones((2, 2)))

    @pytest.mark.medium
    def test_the_gradient_of_qr_of_dependent_columns_raises(self) -> None:
        a = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
        with pytest.raises(SingularMatrixError, match="triangular_solve"):
            gradient(lambda a: total(linalg.qr(a)[0]), a)

    @pytest.mark.medium
    def test_complex_vectors_have_the_derivative_of_their_phase_convention(self, draw: Any) -> None:
        """Against differences of the vectors themselves, not of something that their phase leaves alone."""
        a, t = draw(3, 3, dtype="c16"), draw(3, 3, dtype="c16")
        _, (_, t_v) = rlx.jvp(linalg.eigh, (a,), (t,))
        step = 1e-6
        slope = (linalg.eigh(a + step * t)[1] - linalg.eigh(a - step * t)[1]) / (2 * step)
        np.testing.assert_allclose(t_v, slope, atol=1e-7)  # h² and ε / h at gaps of about 0.5

    def test_the_cotangent_of_a_complex_matrix_is_that_of_its_conjugate(self, draw: Any) -> None:
        """L = Re tr(expm a) has ∂L/∂ā = expm(a)ᴴ / 2."""
        a = draw(3, 3, dtype="c16")
        found = gradient(lambda a: real(total(linalg.expm(a) * np.eye(3))), a)
        np.testing.assert_allclose(found, linalg.expm(a).conj().T / 2, rtol=EXACT, atol=EXACT)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["cholesky", "inverse", "expm", "logdet", "pinv"])
def test_per_example_gradients(draw: Any, name: str) -> None:
    """vmap of a gradient is the stack of the gradients."""
    a = draw(3, 4, 4)
    a = a @ a.swapaxes(-1, -2) + np.eye(4)

    def loss(a: Any) -> Any:
        return total(getattr(linalg, name)(a))

    found = rlx.vmap(rlx.grad(loss))(a)
    np.testing.assert_allclose(found, np.stack([gradient(loss, x) for x in a]), rtol=EXACT, atol=EXACT)
