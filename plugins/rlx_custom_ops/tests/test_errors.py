"""What the ops refuse when a program runs: a typed error that names the matrix, from references and kernels alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
import rlx_custom_ops as linalg
from rlx_core.errors import RlxError
from rlx_custom_ops.errors import LinearAlgebraError, NotPositiveDefiniteError, SingularMatrixError, no_convergence

EYE = np.eye(2)
INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])
SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])
TRIANGULAR = np.array([[1.0, 0.0], [1.0, 0.0]])


def at(index: tuple[int, ...], bad: np.ndarray) -> np.ndarray:
    """A stack of identities with one other matrix in it."""
    stack = np.tile(EYE, (2, 3, 1, 1))
    stack[index] = bad
    return stack


Case = tuple[Callable[..., Any], np.ndarray, type[LinearAlgebraError], str]
CASES: dict[str, Case] = {
    "cholesky": (linalg.cholesky, INDEFINITE, NotPositiveDefiniteError, "leading minor of order 2 (of 2)"),
    "cholesky of -1": (linalg.cholesky, -EYE, NotPositiveDefiniteError, "leading minor of order 1 (of 2)"),
    "triangular_solve": (
        lambda a: linalg.triangular_solve(a, np.ones((2, 1))),
        TRIANGULAR,
        SingularMatrixError,
        "element 1 of its diagonal (of 2) is exactly 0",
    ),
    "solve": (lambda a: linalg.solve(a, np.ones((2, 1))), SINGULAR, SingularMatrixError, "numerical rank is 1 of 2"),
    "inverse": (linalg.inverse, np.zeros((2, 2)), SingularMatrixError, "numerical rank is 0 of 2"),
}


@pytest.mark.parametrize("how", ["reference", "kernel"])
@pytest.mark.parametrize("name", CASES)
class TestEveryRefusal:
    def run(self, how: str, function: Callable[..., Any], a: np.ndarray, request: pytest.FixtureRequest) -> Any:
        if how == "reference":
            return function(a)
        request.getfixturevalue("cpu")
        return rlx.jit(function)(a)

    def test_one_matrix(self, how: str, name: str, request: pytest.FixtureRequest) -> None:
        function, bad, kind, says = CASES[name]
        with pytest.raises(kind, match="the matrix is ") as caught:
            self.run(how, function, bad, request)
        assert says in caught.value.message

    def test_a_matrix_of_a_batch_is_named_by_its_index(
        self, how: str, name: str, request: pytest.FixtureRequest
    ) -> None:
        function, bad, kind, says = CASES[name]
        with pytest.raises(kind) as caught:
            self.run(how, function, at((1, 2), bad), request)
        assert "the matrix at batch index [1, 2] is" in caught.value.message
        assert says in caught.value.message
        assert [str(f.value) for f in caught.value.facts if f.label == "batch index"] == ["[1, 2]"]


def test_errors_are_of_rlx_and_of_numpy() -> None:
    for kind in (RlxError, np.linalg.LinAlgError):
        with pytest.raises(kind):
            linalg.cholesky(INDEFINITE)


def test_the_error_of_an_iteration_names_the_matrix_too() -> None:
    assert (
        "eigh: the iteration for the matrix at batch index [3] did not converge" in no_convergence("eigh", (3,)).message
    )


def test_the_pages_of_the_errors_say_what_happens() -> None:
    """The matrices in the docstrings do what is said of them."""
    with pytest.raises(SingularMatrixError):
        linalg.solve([[1.0, 2.0], [2.0, 4.0]], [1.0, 1.0])
    np.testing.assert_allclose(linalg.lstsq([[1.0, 2.0], [2.0, 4.0]], [1.0, 1.0]), [0.12, 0.24], rtol=1e-12)
    assert np.isfinite(linalg.cholesky([[2.0, 1.0], [1.0, 2.0]])).all()


def test_wrong_shapes_are_reported_at_the_callers_line() -> None:
    with pytest.raises(RlxError, match="a must be square") as caught:
        rlx.trace(lambda a: linalg.cholesky(a), np.ones((2, 3)))
    assert "test_errors.py" in str(caught.value)


def test_leading_dims_that_do_not_broadcast_are_refused() -> None:
    with pytest.raises(RlxError, match="do not broadcast"):
        linalg.solve(np.ones((2, 3, 3)), np.ones((4, 3, 1)))


@pytest.mark.parametrize("value", ["conjugate", 1])
def test_an_unknown_operation_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="operation"):
        linalg.triangular_solve(EYE, EYE, operation=value)
