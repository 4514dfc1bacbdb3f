"""The sparse matrix against SciPy's and against dense ones, and as a pytree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import rlx_core as rlx
from rlx_core.errors import IndexRangeError, ShapeError
from rlx_custom_ops.sparse import Csr, Pattern

DTYPES = ("f4", "f8", "c8", "c16")


def drawn(m: int, n: int, dtype: str = "f8", seed: int = 0, density: float = 0.4) -> Any:
    rng = np.random.default_rng(seed)
    dense = rng.uniform(-1, 1, (m, n)) + 1j * rng.uniform(-1, 1, (m, n))
    dense = dense * (rng.uniform(size=(m, n)) < density)
    return sp.csr_array(dense.astype(dtype) if np.dtype(dtype).kind == "c" else dense.real.astype(dtype))


def close(found: Any, wanted: Any) -> None:
    found = found.todense() if isinstance(found, Csr) else found
    wanted = wanted.toarray() if sp.issparse(wanted) else wanted
    assert np.asarray(found).shape == np.asarray(wanted).shape
    eps = np.finfo(np.asarray(found).dtype).eps
    np.testing.assert_allclose(found, wanted, rtol=0, atol=30 * eps)  # sums of at most 7 products below 2


@pytest.mark.parametrize("dtype", DTYPES)
class TestAgainstScipy:
    A, B = staticmethod(lambda dtype: drawn(6, 7, dtype)), staticmethod(lambda dtype: drawn(7, 5, dtype, seed=1))

    def test_products_with_vectors_and_matrices(self, dtype: str) -> None:
        a, rng = self.A(dtype), np.random.default_rng(2)
        own = Csr.from_scipy(a)
        for shape in ((7,), (7, 3), (7, 0)):
            x = rng.uniform(-1, 1, shape).astype(dtype)
            close(own @ x, a @ x)
        for shape in ((6,), (2, 6)):
            x = rng.uniform(-1, 1, shape).astype(dtype)
            close(x @ own, x @ a.toarray())

    def test_a_product_of_sparse_matrices(self, dtype: str) -> None:
        a, b = self.A(dtype), self.B(dtype)
        found = Csr.from_scipy(a) @ Csr.from_scipy(b)
        wanted = a @ b
        close(found, wanted)
        assert found.pattern.size == wanted.nnz  # elements that may be there, and no others

    def test_sums_differences_and_multiples(self, dtype: str) -> None:
        a, b = self.A(dtype), drawn(6, 7, dtype, seed=3)
        own, other = Csr.from_scipy(a), Csr.from_scipy(b)
        close(own + other, a + b)
        close(own - other, a - b)
        close(own + own, 2 * a)
        close(0.5 * own, 0.5 * a)

    def test_transposes_and_the_diagonal(self, dtype: str) -> None:
        a = self.A(dtype)
        own = Csr.from_scipy(a)
        close(own.T, a.T)
        close(own.H, a.conj().T)
        close(own.diagonal(), a.diagonal())

    def test_there_and_back(self, dtype: str) -> None:
        a = self.A(dtype)
        own = Csr.from_scipy(a)
        assert own.to_scipy().dtype == a.dtype
        close(own, own.to_scipy())
        assert Csr.from_dense(a.toarray()).pattern == own.pattern
        close(Csr.from_dense(a.toarray(), own.pattern), a)


def test_elements_of_one_place_are_added_up() -> None:
    a = Csr.from_coo(np.array([1.0, 2.0, 4.0]), [1, 0, 1], [0, 1, 0], (2, 2))
    np.testing.assert_array_equal(a.todense(), [[0, 2], [5, 0]])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (3, 3)])
def test_a_matrix_may_have_no_elements(shape: tuple[int, int]) -> None:
    a = Csr.from_dense(np.zeros(shape))
    assert (a @ np.ones(shape[1])).tolist() == [0] * shape[0]
    assert (a @ a.T).shape == (shape[0], shape[0])
    assert a.todense().shape == shape


class TestRefusals:
    @pytest.mark.parametrize(
        ("indices", "indptr", "kind", "says"),
        [
            ([0, 3], [0, 1, 2], IndexRangeError, "column 3 is outside of 3 columns"),
            ([0, -1], [0, 1, 2], IndexRangeError, "column -1 is outside"),
            ([0, 1], [0, 2], ShapeError, "indptr of 2 rows has 3 elements, not 2"),
            ([0, 1], [0, 1, 3], ShapeError, "indptr must ascend from 0 to the number of elements (2)"),
            ([0, 1], [0, 3, 2], ShapeError, "must ascend"),
            ([1, 0], [0, 2, 2], ShapeError, "the columns of each row must ascend"),
            ([1, 1], [0, 2, 2], ShapeError, "each of them once"),
            ([0.0, 1.0], [0, 1, 2], ShapeError, "indices must be integers on one axis"),
        ],
    )
    def test_a_pattern_that_is_none(self, indices: Any, indptr: Any, kind: type[Exception], says: str) -> None:
        with pytest.raises(kind) as caught:
            Csr(np.ones(2), indices, indptr, (2, 3))
        assert says in str(caught.value)

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (lambda a: a @ np.ones(3), "[2, 2] @ [3]"),
            (lambda a: a @ Csr.from_dense(np.ones((3, 2))), "2 != 3"),
            (lambda a: a + Csr.from_dense(np.ones((3, 2))), "have one shape"),
            (lambda a: a * np.ones(2), "only a number scales"),
            (lambda a: Csr(np.ones(3), a.indices, a.indptr, a.shape), "data must be [4], not [3]"),
            (lambda a: Csr.from_dense(np.ones(3)), "2 axes"),
            (lambda a: Csr.from_coo(np.ones(2), [0], [0], (1, 1)), "one length"),
        ],
    )
    def test_operands_that_do_not_fit(self, call: Callable[[Csr], Any], says: str) -> None:
        with pytest.raises(ShapeError) as caught:
            call(Csr.from_dense(np.ones((2, 2))))
        assert says in str(caught.value)


class TestAsAPytree:
    def test_programs_take_and_return_matrices(self, cpu: Any) -> None:
        a, b = Csr.from_scipy(drawn(4, 4)), Csr.from_scipy(drawn(4, 4, seed=1))
        found = rlx.jit(lambda a, b: (a @ b).T + 2.0 * a)(a, b)
        assert isinstance(found, Csr)
        close(found, (a.todense() @ b.todense()).T + 2 * a.todense())

    def test_another_pattern_is_another_program(self, cpu: Any) -> None:
        step = rlx.jit(lambda a, x: a @ x)
        x = np.ones(3)
        for columns in ([0, 1, 2], [2, 1, 0], [0, 1, 2]):
            a = Csr.from_coo(np.array([1.0, 2.0, 3.0]), [0, 1, 2], columns, (3, 3))
            np.testing.assert_array_equal(step(a, x), [1, 2, 3])
            np.testing.assert_array_equal(step(a, np.arange(3.0)), np.array([1, 2, 3]) * columns)

    def test_a_gradient_is_a_matrix_of_the_same_pattern(self, cpu: Any) -> None:
        a, x = Csr.from_scipy(drawn(4, 3)), np.array([1.0, 2.0, 3.0])
        found = rlx.grad(lambda a: rlx.sum((a @ x) ** 2))(a)
        assert found.pattern == a.pattern
        wanted = np.outer(2 * (a.todense() @ x), x)
        close(found, np.where(a.todense() != 0, wanted, 0))

    def test_the_gradient_of_a_product_of_sparse_matrices(self, cpu: Any) -> None:
        a, b, w = Csr.from_scipy(drawn(4, 3)), Csr.from_scipy(drawn(3, 4, seed=1)), drawn(4, 4, density=1).toarray()
        found = rlx.grad(lambda a, b: rlx.sum((a @ b).todense() * w), argnums=1)(a, b)
        close(found, np.where(b.todense() != 0, a.todense().T @ w, 0))

    def test_batches_of_elements(self, cpu: Any) -> None:
        a, x = Csr.from_scipy(drawn(4, 3)), np.ones((2, 3))
        stacked = Csr.of(np.stack([a.data, 3 * a.data]), a.pattern)
        found = rlx.vmap(lambda a, x: a @ x)(stacked, x)
        close(found, np.stack([a.todense() @ x[0], 3 * a.todense() @ x[1]]))


def test_patterns_are_compared_by_content() -> None:
    one, other = (Pattern([0, 1], [0, 1, 2], (2, 2)) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Pattern([0, 0], [0, 1, 2], (2, 2))
    assert one != Pattern([0, 1], [0, 1, 2], (2, 3))
