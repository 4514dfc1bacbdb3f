"""Sparse least squares against dense ones: any shape and rank, damped and from a start, and through derivatives."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError, ShapeError
from rlx_custom_ops.errors import NotConvergedError
from rlx_custom_ops.sparse import Csr, lsqr

RNG = np.random.default_rng(11)


def matrix(m: int, n: int, rank: int | None = None, dtype: str = "f8") -> np.ndarray:
    """About half of the elements, or a product of that rank."""
    a = RNG.normal(size=(m, n)) * (RNG.random((m, n)) < 0.6) + np.eye(m, n)
    a = a if rank is None else RNG.normal(size=(m, rank)) @ RNG.normal(size=(rank, n))
    return (a + (1j * a[::-1] if dtype == "c16" else 0)).astype(dtype)


def sparse(a: np.ndarray) -> Csr:
    rows, columns = np.nonzero(a)
    return Csr.from_coo(a[rows, columns], rows, columns, a.shape)


@pytest.mark.parametrize(("m", "n", "rank"), [(9, 5, None), (5, 9, None), (6, 6, None), (8, 6, 3)])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_it_is_the_shortest_of_the_nearest(m: int, n: int, rank: int | None, dtype: str) -> None:
    a, b = matrix(m, n, rank, dtype), RNG.normal(size=(m, 2)).astype(dtype)
    found = lsqr(sparse(a), b, rtol=1e-14)
    np.testing.assert_allclose(found, np.linalg.lstsq(a, b, rcond=1e-10)[0], atol=1e-9)
    np.testing.assert_allclose(lsqr(sparse(a), b[:, 0], rtol=1e-14), found[:, 0], atol=1e-9)


def test_damping_and_a_start_are_those_of_the_normal_equations() -> None:
    a, b, x0 = matrix(7, 4), RNG.normal(size=7), RNG.normal(size=4)
    wanted = np.linalg.solve(a.T @ a + 0.25 * np.eye(4), a.T @ b + 0.25 * x0)
    np.testing.assert_allclose(lsqr(sparse(a), b, damp=0.5, x0=x0, rtol=1e-14), wanted, atol=1e-10)
    wide, right, start = matrix(3, 6), RNG.normal(size=3), RNG.normal(size=6)
    nearest = start + np.linalg.lstsq(wide, right - wide @ start, rcond=None)[0]
    np.testing.assert_allclose(lsqr(sparse(wide), right, x0=start, rtol=1e-14), nearest, atol=1e-10)


@pytest.mark.medium
@pytest.mark.parametrize("damp", [0.0, 0.7])
def test_gradients_and_batches_in_a_program(damp: float) -> None:
    a, b = matrix(6, 4), RNG.normal(size=(3, 6))
    model = sparse(a)
    rows, columns = np.nonzero(a)

    def loss(data: rlx.Array, b: rlx.Array) -> rlx.Array:
        x = rlx.vmap(lambda b: lsqr(Csr.of(data, model.pattern), b, damp=damp, rtol=1e-14))(b)
        return rlx.sum(rlx.sin(x))

    def dense(data: rlx.Array, b: rlx.Array) -> rlx.Array:
        full = rlx.scatter_nd(np.zeros(a.shape), np.stack([rows, columns], -1), data)
        square = full.T @ full + damp**2 * np.eye(4)
        return rlx.sum(rlx.sin(rlx.linalg.solve(square, full.T @ b.T)))

    data = a[rows, columns]
    for found, wanted in zip(rlx.grad(loss, (0, 1))(data, b), rlx.grad(dense, (0, 1))(data, b), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_what_is_refused() -> None:
    a, b = sparse(matrix(30, 20)), RNG.normal(size=30)
    with pytest.raises(NotConvergedError, match="did not converge: after 1 iterations"):
        lsqr(a, b, maxiter=1)
    with pytest.raises(ShapeError, match=r"b must be \[30\] or \[30, k\], not \[20\]"):
        lsqr(a, b[:20])
    with pytest.raises(ShapeError, match=r"x0 must be \[20\], not \[30\]"):
        lsqr(a, b, x0=b)
    with pytest.raises(ConfigError, match="damp must be at least 0"):
        lsqr(a, b, damp=-1.0)
    assert np.isnan(lsqr(a, np.full(30, np.inf))).all()


def test_the_docstring_is_true() -> None:
    assert doctest.testmod(importlib.import_module("rlx_custom_ops.sparse.ops.least_squares")).failed == 0
