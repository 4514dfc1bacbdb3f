"""Factors, substitutions and ranks of small matrices on vectors of every width, beside what NumPy finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness import EVERY_WIDTH, kernel

from rlx_core.ops.arithmetic import negative
from rlx_core.ops.solve import DenseSolve
from rlx_cpu.emitters import (
    Elimination,
    Emitted,
    SystemRows,
    constant,
    counting,
    memory_type,
    numerical_rank,
    offset,
    pointer_at,
    starting,
)
from rlx_cpu.native.llvm.isa import Isa, available

DTYPES = pytest.mark.parametrize("dtype", ["f4", "f8"])
SIZES = (1, 2, 3, 4, 7, 8, 16, 31, 32)


def emits(operands: int, k: int, build: Callable[[Elimination, list[Any]], None]) -> Any:
    """An emitter of one matrix with `k` right sides, which is given the addresses of the operands and of the result."""

    def emit(module: Any, node: Any, layout: Any, isa: Any, name: str) -> Emitted:
        a = layout.operands[0].type
        rows = SystemRows.of(isa, a.dtype, a.static_shape[-1], k)
        b, buffers, _, _ = starting(module, name)
        pointers = [pointer_at(b, buffers, i) for i in range(operands + 1)]
        build(Elimination.begin(b, rows, pointer_at(b, buffers, operands + 1)), pointers)
        b.ret_void()
        return Emitted(name, workspace=rows.nbytes, uses_threads=False)

    return emit


def positive(n: int, dtype: str) -> np.ndarray:
    m = np.random.default_rng(n).standard_normal((n, n))
    return (m @ m.T / n + np.eye(n)).astype(dtype)


@pytest.mark.medium
@EVERY_WIDTH
@DTYPES
@pytest.mark.parametrize("is_lower", [True, False])
@pytest.mark.parametrize("is_transposed", [True, False])
@pytest.mark.parametrize("is_unit", [True, False])
def test_substitution_reads_one_triangle(
    is_lower: bool, is_transposed: bool, is_unit: bool, dtype: str, isa: Isa
) -> None:
    def build(system: Elimination, pointers: list[Any]) -> None:
        a, right, x = pointers
        rows = system.rows
        system.read(a, 0, rows.n)
        system.read(right, rows.n, rows.k)
        system.substitute(is_lower=is_lower, is_transposed=is_transposed, is_unit=is_unit)
        system.write(x, rows.n, rows.k)

    for n in SIZES:
        rng = np.random.default_rng(n)
        a, b = rng.uniform(-1, 1, (n, n)) / n + 2 * np.eye(n), rng.standard_normal((n, 3)).astype(dtype)
        triangle = np.tril(a) if is_lower else np.triu(a)
        a = np.where(triangle == 0, np.nan, a).astype(dtype)  # the other one may hold anything
        if is_unit:
            a[np.diag_indices(n)], triangle[np.diag_indices(n)] = np.nan, 1
        (x,) = kernel(emits(2, 3, build), DenseSolve(), [a, b], isa)(a, b)
        matrix = triangle.astype(dtype).astype("f8")
        expected = np.linalg.solve(matrix.T if is_transposed else matrix, b)
        # Higham, "Accuracy and Stability of Numerical Algorithms", theorem 8.5, of matrices with conditions below 4.
        np.testing.assert_allclose(x, expected, rtol=0, atol=8 * n * np.finfo(dtype).eps * np.abs(expected).max())


@EVERY_WIDTH
@DTYPES
def test_cholesky_factors_are_lapacks(dtype: str, isa: Isa) -> None:
    def build(matrix: Elimination, pointers: list[Any]) -> None:
        a, lower = pointers
        is_finite = matrix.read_symmetric(a)
        matrix.factorise()
        matrix.write_transposed(lower, is_finite)

    for n in SIZES:
        a = positive(n, dtype)
        (lower,) = kernel(emits(1, 0, build), negative.op(), [a], isa)(a)
        np.testing.assert_array_equal(lower, np.tril(lower))
        np.testing.assert_allclose(lower, np.linalg.cholesky(a.astype("f8")), rtol=0, atol=8 * n * np.finfo(dtype).eps)


@pytest.mark.medium
def test_a_matrix_that_is_not_finite_has_no_factor() -> None:
    def build(matrix: Elimination, pointers: list[Any]) -> None:
        is_finite = matrix.read_symmetric(pointers[0])
        matrix.factorise()
        matrix.write_transposed(pointers[1], is_finite)

    for place in ((0, 0), (2, 0), (0, 2), (2, 2)):
        for value in (np.nan, np.inf, -np.inf):
            a = positive(3, "f8")
            a[place] = value
            (lower,) = kernel(emits(1, 0, build), negative.op(), [a], available()[0])(a)
            assert np.isnan(lower).all()


@pytest.mark.medium
@DTYPES
def test_numerical_ranks_are_numpys(dtype: str) -> None:
    def build(matrix: Elimination, pointers: list[Any]) -> None:
        b, rows = matrix.b, matrix.rows
        matrix.read(pointers[0], 0, rows.n)
        rank = b.sitofp(numerical_rank(matrix), memory_type(rows.dtype))
        with counting(b, 0, rows.n * rows.n) as i:
            matrix.store(b.fadd(rank, constant(rank.type, 0.0)), offset(b, pointers[1], (i, rows.dtype.itemsize)))

    rng = np.random.default_rng(0)
    largest = {"f4": 1e30, "f8": 1e300}[dtype]
    for n in SIZES:
        found = kernel(emits(1, 0, build), negative.op(), [np.empty((n, n), dtype)], available()[0])
        for rank in {0, 1, n // 2, n - 1, n}:
            for scale in (1, largest, 1 / largest):
                a = (rng.uniform(-1, 1, (n, rank)) @ rng.uniform(-1, 1, (rank, n)) * scale / n).astype(dtype)
                assert found(a)[0][0, 0] == np.linalg.matrix_rank(a)
