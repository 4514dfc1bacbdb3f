"""Products and solves against NumPy, and what the rules must not do."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_core.errors import ShapeError
from rlx_core.ir.dtypes import i32, i64
from rlx_core.ir.graph import Builder, Graph
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import spec
from rlx_core.ops.einsum import einsum
from rlx_core.ops.linalg import MatMul, dot_general, mat_mul, matmul, outer, tensordot, vecdot
from rlx_core.ops.products import grouped_matmul
from rlx_core.ops.solve import dense_solve, solve
from rlx_core.ops.structural import Transpose
from rlx_core.transforms.vjp import vjp_graph

RNG = np.random.default_rng(7)


def draw(*shape: int, dtype: str = "float64") -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(dtype)


@pytest.mark.parametrize(
    ("a", "b"),
    [((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((4, 2, 3), (3,)), ((3,), (4, 3, 2)), ((4, 2, 3), (3, 2))],
)
def test_matmul_promotes_vectors_as_numpy_does(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = draw(*a), draw(*b)
    np.testing.assert_allclose(matmul(x, y), x @ y, rtol=1e-14)


def test_a_scalar_operand_of_matmul_is_refused() -> None:
    with pytest.raises(ShapeError, match="at least one axis"):
        matmul(2.0, draw(3))


def test_batch_dims_broadcast_as_numpy_broadcasts_them() -> None:
    a, b = draw(2, 1, 3, 4), draw(5, 4, 2)
    np.testing.assert_allclose(mat_mul(a, b), a @ b, rtol=1e-13)


def test_integer_products_are_exact_beyond_the_floats() -> None:
    a = np.array([[2**53 + 1, 1]], np.int64)
    assert mat_mul(a, np.array([[1], [2]], np.int64)).tolist() == [[2**53 + 3]]


def test_int8_products_wrap_unless_an_accumulator_is_asked_for() -> None:
    a, b = np.full((1, 40), 100, np.int8), np.full((40, 1), 100, np.int8)
    assert mat_mul(a, b, acc_dtype=i32).item() == 400_000
    assert mat_mul(a, b).item() == np.int64(400_000).astype(np.int8)


def test_mixed_integers_are_promoted_before_they_are_multiplied() -> None:
    y = mat_mul(np.full((1, 1), -1, np.int8), np.full((1, 1), 255, np.uint8))
    assert (y.dtype, y.item()) == (np.int16, -255)


def test_half_precision_accumulates_wide_and_rounds_once() -> None:
    a, b = np.ones((1, 4096), np.float16), np.ones((4096, 1), np.float16)
    assert mat_mul(a, b).item() == 4096  # a sum held in f16 stops growing at 2048


def test_a_transposed_operand_is_named_in_the_hint() -> None:
    builder = Builder()
    with pytest.raises(ShapeError) as caught:
        mat_mul(builder.input("a", spec("f32[8, 64]")), builder.input("b", spec("f32[32, 64]")))
    assert caught.value.message == "matmul: contracted dims differ (64 != 32)"
    assert caught.value.hint is not None
    assert "f32[64, 32] would fit" in caught.value.hint


def gradient_of_weights(batch: str) -> Graph:
    builder = Builder()
    x, w = builder.input("x", spec(f"f32[{batch}, 5, 3]")), builder.input("w", spec("f32[3, 4]"))
    return vjp_graph(builder.finish([mat_mul(x, w)]), ["w"])


def test_the_gradient_of_a_shared_weight_is_one_product_over_all_rows() -> None:
    backward = gradient_of_weights("7")
    products = [n.type for n in backward.nodes if isinstance(n.op, MatMul)]
    assert max(t.size for t in products) == 7 * 5 * 4  # the forward product; nothing holds [7, 3, 4]


def test_the_gradient_of_a_weight_is_defined_for_an_unknown_batch() -> None:
    assert gradient_of_weights("BATCH").outputs[-1].type == spec("f32[3, 4]")


def test_a_transposed_weight_stays_a_transpose_before_the_product() -> None:
    builder = Builder()
    x, w = builder.input("x", spec("f32[5, 3]")), builder.input("w", spec("f32[4, 3]"))
    graph = builder.finish([x @ w.T])
    assert [type(n.op) for n in graph.nodes[2:]] == [Transpose, MatMul]


def test_dot_general_orders_axes_batch_then_left_then_right() -> None:
    a, b = draw(2, 3, 4, 5), draw(4, 6, 2, 3)
    y = dot_general(a, b, lhs_contracting=(2,), rhs_contracting=(0,), lhs_batch=(1, 0), rhs_batch=(3, 2))
    np.testing.assert_allclose(y, np.einsum("abcd,ceab->bade", a, b), rtol=1e-13)


@pytest.mark.parametrize(
    ("labels", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)]),
        ("ij,jk,kl->li", [(2, 3), (3, 4), (4, 5)]),
        ("ii->i", [(3, 3)]),
        ("iij->j", [(3, 3, 2)]),
        ("i,j", [(2,), (3,)]),
        ("ba", [(2, 3)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("i...->...", [(2, 3, 4)]),
    ],
)
def test_einsum_agrees_with_numpy(labels: str, shapes: list[tuple[int, ...]]) -> None:
    x = [draw(*s) for s in shapes]
    np.testing.assert_allclose(einsum(labels, *x), np.einsum(labels, *x), rtol=1e-12)


def test_the_functions_of_the_array_api_agree_with_numpy() -> None:
    a, b = draw(3, 4), draw(4, 5)
    np.testing.assert_allclose(tensordot(a, b, axes=1), np.tensordot(a, b, axes=1), rtol=1e-13)
    np.testing.assert_allclose(outer(a[0], b[0]), np.outer(a[0], b[0]), rtol=1e-13)
    z, w = draw(2, 3) + 1j * draw(2, 3), draw(2, 3) + 1j * draw(2, 3)
    np.testing.assert_allclose(vecdot(z, w), np.linalg.vecdot(z, w), rtol=1e-13)


def test_grouped_products_use_each_rows_own_expert() -> None:
    x, w, idx = draw(5, 3), draw(4, 3, 2), np.array([3, 0, 0, 2, 3])
    np.testing.assert_allclose(
        grouped_matmul(x, w, idx), np.stack([x[i] @ w[e] for i, e in enumerate(idx)]), rtol=1e-13
    )


@pytest.mark.parametrize(("a", "b"), [((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 1)), ((2, 3, 3), (3,))])
def test_solve_follows_the_array_api(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    matrix, right = draw(*a) + 3 * np.eye(3), draw(*b)
    np.testing.assert_allclose(solve(matrix, right), np.linalg.solve(matrix, right), rtol=1e-11)


def test_a_singular_matrix_gives_nan() -> None:
    assert np.isnan(dense_solve(np.ones((2, 2)), np.ones(2))).all()


def test_accumulator_must_hold_the_products() -> None:
    assert mat_mul(np.ones((1, 1), np.int32), np.ones((1, 1), np.int32), acc_dtype=i64).dtype == np.int64


def test_gradient_with_an_accumulator_comes_back_in_the_operands_dtype() -> None:
    builder = Builder()
    a, b = builder.input("a", spec("f16[2, 3]")), builder.input("b", spec("f16[3, 2]"))
    from_f32 = MatMul(acc_dtype=spec("f32[]").dtype)(a, b)
    backward = vjp_graph(builder.finish([from_f32]), ["a", "b"])
    assert [str(v.type) for v in backward.outputs] == ["f32[2, 2]", "f16[2, 3]", "f16[3, 2]"]
    fed = {"a": np.ones((2, 3)), "b": np.ones((3, 2)), "d_output": np.ones((2, 2))}
    assert interpret(backward, fed)[1].tolist() == [[2, 2, 2]] * 2
