"""`rlx.linalg` beyond what array-api-strict is compared with: factors, derivatives, and what is missing or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError, DtypeError, PluginError, RlxError, ShapeError
from rlx_core.plugins import PluginHost, default_host, set_default_host

RNG = np.random.default_rng(7)
TALL, WIDE = RNG.standard_normal((2, 5, 3)), RNG.standard_normal((3, 5))
DEFICIENT = np.outer([1.0, 2, 3, 4], [1.0, 0, 2])


@pytest.mark.parametrize("x", [TALL, WIDE, DEFICIENT, TALL + 1j * TALL[::-1]])
def test_full_singular_vectors_are_orthonormal_and_give_the_matrix_back(x: np.ndarray) -> None:
    u, s, vh = rlx.linalg.svd(x)
    m, n = x.shape[-2:]
    assert (u.shape[-2:], s.shape[-1], vh.shape[-2:]) == ((m, m), min(m, n), (n, n))
    k = min(m, n)
    np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x, atol=1e-12)
    for q in (u, vh):
        np.testing.assert_allclose(q @ np.conj(np.swapaxes(q, -1, -2)) - np.eye(q.shape[-1]), 0, atol=1e-12)


@pytest.mark.parametrize("x", [TALL, WIDE])
def test_a_complete_q_is_square(x: np.ndarray) -> None:
    q, r = rlx.linalg.qr(x, mode="complete")
    assert (q.shape[-2:], r.shape) == ((x.shape[-2], x.shape[-2]), x.shape)
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    np.testing.assert_allclose(q @ np.swapaxes(q, -1, -2) - np.eye(q.shape[-1]), 0, atol=1e-12)


def test_results_have_the_names_of_the_standard() -> None:
    square = TALL[:, :3]
    assert rlx.linalg.eig(square)._fields == ("eigenvalues", "eigenvectors")
    assert rlx.linalg.eigh(square)._fields == ("eigenvalues", "eigenvectors")
    assert rlx.linalg.qr(square)._fields == ("Q", "R")
    assert rlx.linalg.slogdet(square)._fields == ("sign", "logabsdet")
    assert rlx.linalg.svd(square)._fields == ("U", "S", "Vh")


def test_ranks_are_counted_for_each_matrix() -> None:
    x = np.stack([np.ones((3, 3)), np.eye(3), np.zeros((3, 3))])
    assert rlx.linalg.matrix_rank(x).tolist() == [1, 3, 0]
    assert rlx.linalg.matrix_rank(np.diag([1.0, 0.1, 0.01]), rtol=0.05).tolist() == 2
    assert rlx.linalg.matrix_rank(x, rtol=np.array([0.5, 2.0, 0.5])).tolist() == [1, 0, 0]


def test_norms_of_narrow_floats_are_summed_wide() -> None:
    x = np.full(1000, 300, np.float16)
    assert rlx.linalg.vector_norm(x).dtype == np.float16
    np.testing.assert_allclose(rlx.linalg.vector_norm(x), np.sqrt(1000) * 300, rtol=1e-3)


def test_a_determinant_has_its_gradient() -> None:
    x = TALL[0, :3]
    np.testing.assert_allclose(rlx.grad(rlx.linalg.det)(x), np.linalg.det(x) * np.linalg.inv(x).T, rtol=1e-10)


REFUSED: dict[str, tuple[Callable[[], Any], type[RlxError], str]] = {
    "a vector": (lambda: rlx.linalg.inv(np.ones(3)), ShapeError, "inv: x must have 2 or more axes"),
    "a power of an array": (lambda: rlx.linalg.matrix_power(np.eye(2), np.eye(2)), ConfigError, "n must be an integer"),
    "no square": (lambda: rlx.linalg.matrix_power(np.ones((2, 3)), 2), ShapeError, "2 × 3"),
    "integers": (lambda: rlx.linalg.vector_norm(np.ones(3, np.int32)), DtypeError, "must be float or complex, not i32"),
    "a norm": (lambda: rlx.linalg.matrix_norm(np.ones((2, 2)), ord=3), ShapeError, "not 3"),
    "a mode": (lambda: rlx.linalg.qr(np.ones((2, 2)), mode="r"), ShapeError, "'reduced' or 'complete', not 'r'"),
    "two elements": (lambda: rlx.linalg.cross(np.ones(2), np.ones(3)), ShapeError, "x1 has 2 elements"),
    "a tolerance for each": (lambda: rlx.linalg.pinv(TALL, rtol=np.ones(2)), ShapeError, "one known number"),
    "unknown sizes": (
        lambda: rlx.trace(rlx.linalg.svd, rlx.spec("f32[n, 3]")),
        ShapeError,
        "which one of n and 3 is smaller",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_why(name: str) -> None:
    call, error, says = REFUSED[name]
    with pytest.raises(error, match=says):
        call()


def test_a_missing_package_is_named() -> None:
    before = default_host()
    set_default_host(PluginHost([]))
    try:
        with pytest.raises(PluginError, match=r"linalg\.svd: no installed plugin provides this op") as caught:
            rlx.linalg.svdvals(np.ones((2, 2)))
    finally:
        set_default_host(before)
    assert "rlx-custom-ops" in str(caught.value)


def test_norms_and_solutions_need_no_package() -> None:
    before = default_host()
    set_default_host(PluginHost([]))
    try:
        np.testing.assert_allclose(rlx.linalg.inv(2 * np.eye(3)), np.eye(3) / 2)
        assert rlx.linalg.matrix_norm(np.eye(4)) == 2
    finally:
        set_default_host(before)


@pytest.mark.parametrize("b", [RNG.standard_normal(5), RNG.standard_normal((5, 2))], ids=["a line", "columns"])
def test_least_squares_as_numpy_has_them(b: np.ndarray) -> None:
    a = TALL[0]
    found, expected = rlx.linalg.lstsq(a, b), np.linalg.lstsq(a, b)
    np.testing.assert_allclose(found.x, expected[0], atol=1e-12)
    np.testing.assert_allclose(found.residuals, np.reshape(expected[1], found.residuals.shape), atol=1e-12)
    assert found.rank == expected[2]
    np.testing.assert_allclose(found.singular_values, expected[3], atol=1e-12)
    assert rlx.linalg.lstsq(DEFICIENT, DEFICIENT[:, 0]).rank == 1


@pytest.mark.parametrize(
    ("ord", "axis"),
    [
        (None, None),
        (None, 1),
        (1, 1),
        (np.inf, 0),
        (0, 2),
        (3, -1),
        ("fro", (0, 2)),
        ("nuc", (2, 1)),
        (2, (0, 1)),
        (-1, (1, 2)),
    ],
)
@pytest.mark.parametrize("keepdims", [False, True])
def test_norm_is_numpys(ord: Any, axis: Any, keepdims: bool) -> None:
    found = rlx.linalg.norm(TALL, ord, axis, keepdims)
    np.testing.assert_allclose(found, np.linalg.norm(TALL, ord, axis, keepdims), atol=1e-12)


def test_products_of_several_matrices() -> None:
    factors = [RNG.standard_normal(shape) for shape in ((4, 30), (30, 2), (2, 9), (9,))]
    np.testing.assert_allclose(rlx.linalg.multi_dot(factors), np.linalg.multi_dot(factors), atol=1e-12)
    np.testing.assert_allclose(rlx.linalg.multi_dot([factors[3], factors[3]]), factors[3] @ factors[3])


def test_least_squares_and_norms_that_are_refused() -> None:
    with pytest.raises(ShapeError, match="other numbers of rows"):
        rlx.linalg.lstsq(TALL[0], np.ones(4))
    with pytest.raises(ShapeError, match="over which one or two"):
        rlx.linalg.norm(TALL, 1)
    with pytest.raises(ShapeError, match="2 or more matrices"):
        rlx.linalg.multi_dot([TALL[0]])
