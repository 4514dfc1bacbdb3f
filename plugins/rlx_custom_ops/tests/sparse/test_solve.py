"""Systems: every method against a dense solve, derivatives in programs, and what each refuses."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import IndexRangeError, ShapeError
from rlx_core.plugins import PluginHost
from rlx_core.testing.cases import programs
from rlx_custom_ops import sparse
from rlx_custom_ops.errors import (
    LinearAlgebraError,
    NotConvergedError,
    NotPositiveDefiniteError,
    SingularMatrixError,
)
from rlx_custom_ops.sparse import Csr
from rlx_custom_ops.sparse.kernels import kernels
from rlx_custom_ops.sparse.ops.solve import SparseSolve

SETTINGS: tuple[dict[str, Any], ...] = (
    {"method": "lu"},
    {"method": "cholesky"},
    {"method": "cg"},
    {"method": "cg", "preconditioner": "jacobi"},
    {"method": "bicgstab"},
    {"method": "bicgstab", "preconditioner": "ilu"},
    {"method": "gmres", "restart": 8},
    {"method": "gmres", "preconditioner": "jacobi"},
)


def poisson(side: int, dtype: str = "f8", skew: float = 0.0) -> Csr:
    """The five-point Laplacian of a square of side x side points; `skew` is wind, which makes it unsymmetric."""
    n = side * side
    point = np.arange(n).reshape(side, side)
    right = point[:, :-1].ravel(), point[:, 1:].ravel()
    below = point[:-1].ravel(), point[1:].ravel()
    rows = np.concatenate([np.arange(n), *right, *below])
    columns = np.concatenate([np.arange(n), *right[::-1], *below[::-1]])
    ones = np.ones(len(right[0]))
    data = np.concatenate([np.full(n, 4.0), -ones - skew, -ones + skew, -ones, -ones])
    phase = np.exp(1j * 0.7 * (rows - columns)) if np.dtype(dtype).kind == "c" else 1.0
    return Csr.from_coo((data * phase).astype(dtype), rows, columns, (n, n))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_every_method_solves(settings: dict[str, Any], dtype: str) -> None:
    is_hermitian = settings["method"] in ("cholesky", "cg")
    a = poisson(7, dtype, skew=0.0 if is_hermitian else 0.3)
    b = np.random.default_rng(0).uniform(-1, 1, (49, 2)).astype(dtype)
    x = sparse.solve(a, b, **settings)
    assert x.dtype == b.dtype
    residual = np.linalg.norm(a.todense() @ x - b, axis=0) / np.linalg.norm(b, axis=0)
    # What is asked for by default, doubled, and the rounding of x (condition 30).
    assert (residual < 2 * np.finfo(dtype).eps ** (2 / 3) + 30 * np.finfo(dtype).eps).all()
    np.testing.assert_allclose(sparse.solve(a, b[:, 0], **settings), x[:, 0], rtol=1e-4)


@pytest.mark.parametrize("method", ["cg", "bicgstab", "gmres"])
def test_an_iteration_has_a_function_of_its_name(method: str) -> None:
    a, b = poisson(4), np.ones(16)
    found = getattr(sparse, method)(a, b, preconditioner="jacobi", rtol=1e-12)
    np.testing.assert_allclose(found, np.linalg.solve(a.todense(), b), rtol=1e-9)


@pytest.mark.parametrize("method", ["cg", "bicgstab", "gmres"])
def test_an_iteration_begins_where_it_is_told(method: Any) -> None:
    """At the solution one iteration is enough, where it is not from 0; the result has no derivative by where it began."""
    a, b = poisson(12), np.random.default_rng(0).uniform(-1, 1, (144, 2))
    x = sparse.solve(a, b)
    found = sparse.solve(a, b, x, method=method, maxiter=1, restart=2, rtol=1e-9)
    np.testing.assert_allclose(found, x, rtol=1e-6)
    np.testing.assert_allclose(
        getattr(sparse, method)(a, b[:, 0], x0=x[:, 0], maxiter=1, rtol=1e-9), x[:, 0], rtol=1e-6
    )
    with pytest.raises(NotConvergedError):
        sparse.solve(a, b, method=method, maxiter=1, restart=2, rtol=1e-9)
    slope = rlx.grad(lambda x0: rlx.sum(sparse.solve(a, b, x0, method=method, rtol=1e-9)))(x)
    assert not slope.any()


class TestDerivatives:
    @pytest.mark.parametrize("settings", SETTINGS[:4] + SETTINGS[5:8], ids=str)
    def test_gradients_agree_with_those_of_a_dense_solve(self, cpu: Any, settings: dict[str, Any]) -> None:
        a, b = poisson(3), np.random.default_rng(1).uniform(-1, 1, 9)
        w = np.random.default_rng(2).uniform(-1, 1, 9)
        exact = settings if settings["method"] in ("lu", "cholesky") else {**settings, "rtol": 1e-13}

        def loss(solve: Any, a: Csr, b: Any) -> Any:
            return rlx.sum(w * solve(a, b))

        found = rlx.grad(lambda a, b: loss(lambda a, b: sparse.solve(a, b, **exact), a, b), argnums=(0, 1))(a, b)
        symmetric = settings["method"] in ("cholesky", "cg")
        dense = rlx.grad(
            lambda a, b: loss(
                lambda a, b: rlx.solve((a.todense() + a.T.todense()) / 2 if symmetric else a.todense(), b), a, b
            ),
            argnums=(0, 1),
        )(a, b)
        np.testing.assert_allclose(found[0].data, dense[0].data, atol=1e-10)
        np.testing.assert_allclose(found[1], dense[1], atol=1e-10)

    def test_a_hessian(self, cpu: Any) -> None:
        a, b = poisson(2), np.arange(4.0)

        def loss(scale: Any) -> Any:
            return rlx.sum(sparse.solve(a * scale, b))

        # Σ x / s has the second derivative 2 Σ x / s³.
        np.testing.assert_allclose(rlx.hessian(loss)(np.float64(2.0)), loss(1.0) / 4, rtol=1e-12)

    def test_a_parameter_of_a_boundary_value_problem_is_found(self, cpu: Any) -> None:
        """Newton on the conductivity: the solution of the Poisson problem is fitted to one observed value."""
        a, b = poisson(6), np.ones(36)
        observed = sparse.solve(a * 2.5, b)[14]
        misfit = rlx.jit(rlx.value_and_grad(lambda c: sparse.cg(a * c, b, rtol=1e-12)[14] - observed))
        c = np.float64(1.5)
        for _ in range(8):
            value, slope = misfit(c)
            c = c - value / slope
        np.testing.assert_allclose(c, 2.5, rtol=1e-9)


class TestCompiled:
    def test_a_program_calls_scipy(self, cpu: PluginHost) -> None:
        step = rlx.jit(lambda a, b: sparse.solve(a, b))
        a, b = poisson(4, "f4"), np.ones(16, "f4")
        np.testing.assert_allclose(step(a, b), np.linalg.solve(a.todense(), b), rtol=1e-5)
        assert ("scipy_sparse_solve", "sparse") in {(kernel, plugin) for _, kernel, plugin in step.report.kernels}

    @pytest.mark.parametrize("program", programs((SparseSolve,)), ids=repr)
    def test_the_kernel_is_the_reference(self, program: Any) -> None:
        arrays = program.draw()
        out = np.full(program.node.types[0].static_shape, 7, program.node.types[0].dtype.numpy)
        kernels.choose(program.node).kernel.run(program.node.op, *arrays, out=out, workspace=None)
        np.testing.assert_array_equal(out, program.node.op.reference(*arrays))


class TestRefusals:
    @pytest.mark.parametrize(
        ("a", "settings", "kind", "says"),
        [
            (np.array([[1.0, 1], [1, 1]]), {}, SingularMatrixError, "the matrix is singular"),
            (np.array([[1.0, 0], [0, -1]]), {"method": "cholesky"}, NotPositiveDefiniteError, "not positive definite"),
            (np.array([[1.0, 1], [1, 1]]), {"method": "cholesky"}, NotPositiveDefiniteError, "not positive definite"),
            (np.array([[1.0, 2], [1, 4]]), {"method": "cholesky"}, LinearAlgebraError, "not Hermitian"),
            (np.array([[1.0, 2], [1, 4]]), {"method": "cg"}, LinearAlgebraError, "differ by 1"),
            (np.array([[0.0, 2], [2, 4]]), {"method": "cg", "preconditioner": "jacobi"}, SingularMatrixError, "jacobi"),
            (np.array([[1.0, 1], [1, 1]]), {"method": "gmres"}, NotConvergedError, "the residual of column 0 is"),
            (np.array([[1.0, 1], [1, 1]]), {"method": "bicgstab"}, NotConvergedError, "the residual of column 0 is"),
        ],
    )
    def test_matrices(self, a: np.ndarray, settings: dict[str, Any], kind: type[Exception], says: str) -> None:
        with pytest.raises(kind) as caught:
            sparse.solve(Csr.from_dense(a), np.array([1.0, 2.0]), **settings)
        assert type(caught.value) is kind
        assert says in str(caught.value)

    @pytest.mark.parametrize("method", ["cg", "bicgstab", "gmres"])
    def test_too_few_iterations_say_the_residual(self, method: Any) -> None:
        a, b = poisson(12), np.random.default_rng(0).uniform(-1, 1, 144)
        with pytest.raises(NotConvergedError, match="should be at most") as caught:
            sparse.solve(a, b, method=method, maxiter=1, restart=2)
        assert 0 < caught.value.residual < 10 * np.linalg.norm(b)

    def test_shapes_and_places(self) -> None:
        a = poisson(2)
        with pytest.raises(ShapeError, match=r"b must be \[4\] or \[4, k\], not \[3\]"):
            sparse.solve(a, np.ones(3))
        with pytest.raises(ShapeError, match=r"x0 must be \[4\], as b is, not \[4, 1\]"):
            sparse.solve(a, np.ones(4), np.ones((4, 1)), method="cg")
        with pytest.raises(ShapeError, match="a must be square"):
            sparse.solve(Csr.from_dense(np.ones((2, 3))), np.ones(2))
        with pytest.raises(IndexRangeError, match="row 2 is outside of a matrix of 2 rows"):
            SparseSolve()(np.ones(1), np.array([2]), np.array([0]), np.ones((2, 1)))

    def test_numbers_that_are_not_finite_give_nan(self) -> None:
        a = poisson(2)
        a.data[0] = np.nan
        assert np.isnan(sparse.solve(a, np.ones(4))).all()


@pytest.mark.parametrize("name", ["csr", "ops.solve"])
def test_the_examples_run(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"rlx_custom_ops.sparse.{name}"))
    assert found.attempted > 0
    assert found.failed == 0
