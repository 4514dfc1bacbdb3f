"""Small linear systems: LAPACK's solutions for every size, on every vector, by any number of threads, and in loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import EVERY_WIDTH, kernel

import rlx_core as rlx
from rlx_core.ops.solve import BatchedDenseSolve, DenseSolve
from rlx_cpu.native.llvm.isa import Isa, available
from rlx_cpu.native.systems.solve import MAX_SIDES, MAX_UNKNOWNS, emit_solve

DTYPES = pytest.mark.parametrize("dtype", ["f4", "f8"])


def numbers(*shape: int, dtype: str) -> np.ndarray:
    return np.random.default_rng(shape[-1]).standard_normal(shape).astype(dtype)


def expect_solved(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """The backward error of elimination with partial pivoting (Golub & Van Loan, theorem 3.4.1; growth is below 4 here)."""
    columns, found = (v[..., None] if v.ndim == a.ndim - 1 else v for v in (b, x))
    residual = np.abs(a.astype("f8") @ found.astype("f8") - columns)
    scale = np.abs(a) @ np.abs(found) + np.abs(columns)
    assert (residual <= 4 * a.shape[-1] * np.finfo(a.dtype).eps * scale.max(axis=-2, keepdims=True)).all()


@pytest.mark.medium
@EVERY_WIDTH
@DTYPES
def test_every_size_is_solved(dtype: str, isa: Isa) -> None:
    for n in range(1, MAX_UNKNOWNS + 1):
        a, b = numbers(n, n, dtype=dtype), numbers(n, dtype=dtype)
        (x,) = kernel(emit_solve, DenseSolve(), [a, b], isa)(a, b)
        expect_solved(x, a, b)


@EVERY_WIDTH
@DTYPES
@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 2), (4, 5), (7, 16), (32, MAX_SIDES)])
def test_stacks_are_solved_alike_by_any_number_of_threads(n: int, k: int, dtype: str, isa: Isa) -> None:
    a, b = numbers(2, 3, n, n, dtype=dtype), numbers(2, 3, n, k, dtype=dtype)
    made = kernel(emit_solve, BatchedDenseSolve(), [a, b], isa)
    (x,) = made(a, b)
    expect_solved(x, a, b)
    for threads in (2, 3):
        np.testing.assert_array_equal(made(a, b, threads=threads)[0], x)


@DTYPES
def test_rows_change_places_and_a_singular_slice_alone_is_nan(dtype: str) -> None:
    a = np.array([[[0, 1], [2, 0]], [[1, 2], [2, 4]], [[0, 0], [0, 0]], [[np.nan, 1], [1, 1]]], dtype)
    b = np.array([[1, 4]] * 4, dtype)
    (x,) = kernel(emit_solve, BatchedDenseSolve(), [a, b], available()[0])(a, b)
    np.testing.assert_array_equal(x, np.array([[2, 1], *[[np.nan] * 2] * 3], dtype))


def test_larger_systems_and_complex_ones_are_lapacks() -> None:
    for a in (np.eye(MAX_UNKNOWNS + 1), np.eye(3, dtype="c16")):
        solve = rlx.jit(rlx.solve, target="cpu")
        np.testing.assert_allclose(solve(a * 2, a[0]), a[0] / 2)
        assert "lapack_solve" in str(solve.report)


@DTYPES
def test_a_loop_that_solves_is_one_native_step(dtype: str) -> None:
    a, b = numbers(4, 4, dtype=dtype) + 4 * np.eye(4, dtype=dtype), numbers(4, dtype=dtype)

    def steps(a: Any, b: Any) -> Any:
        return rlx.scan(lambda c, _: (rlx.linalg.solve(a, c) + rlx.linalg.inv(a) @ b, None), b, None, length=50)[0]

    fast = rlx.jit(steps, target="cpu")
    expected = b
    for _ in range(50):
        expected = np.linalg.solve(a, expected) + np.linalg.inv(a) @ b
    np.testing.assert_allclose(fast(a, b), expected, rtol=1e-4 if dtype == "f4" else 1e-12)
    report = str(fast.report)
    assert "is driven" not in report
    assert "lapack" not in report


def test_unknown_sizes_of_a_stack_are_solved() -> None:
    types = map(rlx.spec, ("f32[batch, 3, 3]", "f32[batch, 3, 1]"))
    solve = rlx.compile(rlx.linalg.solve, *types, target="cpu")
    for batch in (1, 5):
        a, b = numbers(batch, 3, 3, dtype="f4") + 3 * np.eye(3, dtype="f4"), numbers(batch, 3, 1, dtype="f4")
        expect_solved(np.asarray(solve(a, b)), a, b)
