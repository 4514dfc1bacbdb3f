"""Every primitive against JAX itself: results, and gradients where there are any."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import UnsupportedError

jax = pytest.importorskip("jax", reason="python -m pip install jax")
jnp = jax.numpy
lax = jax.lax

F = jnp.float32
GENERATOR = np.random.default_rng(7)


def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return np.asarray(GENERATOR.uniform(low, high, shape), np.float32)


def integers(*shape: int, low: int = -9, high: int = 9) -> np.ndarray:
    return GENERATOR.integers(low, high, shape).astype(np.int32)


UNARY: dict[str, tuple[float, float]] = {
    "abs": (-2, 2), "acos": (-0.9, 0.9), "acosh": (1.1, 3), "asin": (-0.9, 0.9), "asinh": (-2, 2), "atan": (-2, 2),
    "atanh": (-0.9, 0.9),
    "cbrt": (0.1, 2),
    "cos": (-2, 2), "cosh": (-2, 2), "digamma": (0.5, 3), "erf": (-2, 2), "erf_inv": (-0.9, 0.9), "erfc": (-2, 2),
    "exp": (-2, 2),
    "exp2": (-2, 2), "expm1": (-2, 2), "lgamma": (0.5, 3), "log": (0.1, 2), "log1p": (-0.5, 2), "logistic": (-2, 2),
    "neg": (-2, 2), "rsqrt": (0.1, 2), "sin": (-2, 2), "sinh": (-2, 2), "sqrt": (0.1, 2), "square": (-2, 2), "tan": (-1, 1),
    "tanh": (-2, 2), "ceil": (-2, 2), "floor": (-2, 2), "sign": (-2, 2), "round": (-2, 2), "is_finite": (-2, 2),
}  # fmt: skip

CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    **{name: (getattr(lax, name), (floats(3, 4, low=low, high=high),)) for name, (low, high) in UNARY.items()},
    "relu": (jax.nn.relu, (floats(3, 4),)),
    "gelu": (partial(jax.nn.gelu, approximate=False), (floats(3, 4),)),
    "softmax": (jax.nn.softmax, (floats(3, 4),)),
    "logsumexp": (jax.nn.logsumexp, (floats(3, 4),)),
    "silu": (jax.nn.silu, (floats(3, 4),)),
    "integer_pow": (lambda x: x**7 + x**-2, (floats(3, low=0.5),)),
    "pow": (lax.pow, (floats(3, low=0.5), floats(3))),
    "atan2": (lax.atan2, (floats(3), floats(3))),
    "div of integers": (lax.div, (integers(20), integers(20, low=1))),
    "div of negative integers": (lax.div, (integers(20), -integers(20, low=1))),
    "rem": (lax.rem, (floats(20), floats(20, low=0.5))),
    "rem of integers": (lax.rem, (integers(20), -integers(20, low=1))),
    "floor_divide": (lambda x, y: x // y, (integers(20), -integers(20, low=1))),
    "clamp": (lambda x: lax.clamp(F(-0.5), x, F(0.75)), (floats(9),)),
    "select": (lambda x, y: jnp.where(x > y, x, y * 2), (floats(9), floats(9))),
    "select_n of three": (lambda w, x: lax.select_n(w, x, 2 * x, 3 * x), (integers(9, low=0, high=3), floats(9))),
    "bits": (lambda x, y: (x & y) | (~x ^ y), (integers(9), integers(9))),
    "shifts": (lambda x: (x << 3, x >> 2, lax.shift_right_logical(x, np.full(9, 2, np.int32))), (integers(9),)),
    "population_count": (lax.population_count, (integers(9),)),
    "logic": (lambda x: jnp.logical_or(x > 0, ~(x < -1)), (floats(9),)),
    "casts": (lambda x: (x.astype(jnp.int32), x.astype(jnp.bfloat16).astype(F), x > 0), (floats(9),)),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 8, 7), (floats(9),)),
    "bitcast": (lambda x: lax.bitcast_convert_type(x, jnp.int32), (floats(9),)),
    "round away": (lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), (np.float32([-1.5, -0.5, 0.5, 1.5, 2.4]),)),
    "complex": (lambda x, y: jnp.abs(lax.complex(x, y) * lax.complex(y, x).conj()), (floats(5), floats(5))),
    "broadcast": (lambda x: jnp.broadcast_to(x[:, None], (3, 5)) * 2, (floats(3),)),
    "transpose": (lambda x: jnp.transpose(x, (2, 0, 1)), (floats(2, 3, 4),)),
    "concatenate": (lambda x, y: jnp.concatenate([x, y, x], 1), (floats(2, 3), floats(2, 1))),
    "split": (lambda x: jnp.split(x, [1, 3], axis=1), (floats(2, 5),)),
    "slices": (lambda x: (x[1:4:2, ::-1], x[-1], x[..., None]), (floats(5, 3),)),
    "pad": (lambda x: lax.pad(x, F(7), [(1, 2, 0), (-1, 0, 2)]), (floats(3, 4),)),
    "pad between alone": (lambda x: lax.pad(x, F(0), [(0, 0, 1)]), (floats(4),)),
    "iota": (lambda x: x + jnp.arange(12, dtype=F).reshape(3, 4) + jnp.eye(3, 4), (floats(3, 4),)),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i, 1), (2, 2)), (floats(5, 4), np.int32(9))),
    "dynamic_update_slice": (lambda x, u: lax.dynamic_update_slice(x, u, (1, 2)), (floats(5, 4), floats(2, 2))),
    "take": (lambda x, i: jnp.take(x, i, axis=1), (floats(3, 5), integers(4, low=0, high=5))),
    "take outside": (lambda x, i: jnp.take(x, i, axis=0), (floats(3, 5), np.int32([0, 2, -1]))),
    "take clamped": (lambda x, i: jnp.take(x, i, axis=0, mode="clip"), (floats(3, 5), np.int32([0, 7]))),
    "index pairs": (lambda x, i, j: x[i, :, j], (floats(3, 2, 5), integers(4, low=0, high=3), integers(4, low=0, high=5))),
    "take_along_axis": (lambda x, i: jnp.take_along_axis(x, i, axis=1), (floats(3, 5), integers(3, 2, low=0, high=5))),
    "at add": (lambda x, i, u: jnp.asarray(x).at[i].add(u), (floats(5, 2), np.int32([1, 1, 9]), floats(3, 2))),
    "at set": (lambda x, u: jnp.asarray(x).at[1:3, 0].set(u), (floats(5, 2), floats(2))),
    "at max": (lambda x, i, u: jnp.asarray(x).at[i].max(u), (floats(5), np.int32([1, 2, 4]), floats(3))),
    "segment_sum": (lambda x, i: jax.ops.segment_sum(x, i, 3), (floats(6, 2), integers(6, low=0, high=3))),
    "totals": (lambda x: (x.sum(0), x.max(1), x.min(), x.prod(0), x.mean(), x.var(1)), (floats(3, 4),)),
    "all and any": (lambda x: ((x > 0).all(0), (x > 0).any(1)), (floats(3, 4),)),
    "sums of integers": (lambda x: (x.sum(0), x.max(1)), (integers(3, 4),)),
    "arguments": (lambda x: (jnp.argmax(x, 1), jnp.argmin(x)), (floats(3, 4),)),
    "running": (lambda x: (jnp.cumsum(x, 1), lax.cummax(x, axis=0), lax.cumsum(x, reverse=True)), (floats(3, 4),)),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, axis=1), (floats(3, 4),)),
    "cumprod": (lambda x: jnp.cumprod(x, 1), (floats(3, 4, low=0.5),)),
    "sort": (lambda x: jnp.sort(x, axis=0), (floats(5, 2),)),
    "argsort": (lambda x: jnp.argsort(x, axis=1), (floats(2, 6),)),
    "lexsort": (lambda x, y: jnp.lexsort((x, y)), (integers(9, high=-6), integers(9, high=-6))),
    "sort with others": (lambda x, y: lax.sort((x, y), num_keys=1), (floats(6), floats(6))),
    "top_k": (lambda x: lax.top_k(x, 3), (floats(2, 6),)),
    "matmul": (lambda x, y: x @ y, (floats(3, 4), floats(4, 2))),
    "batched products": (lambda x, y: jnp.einsum("bij,bkj->bik", x, y), (floats(2, 3, 4), floats(2, 5, 4))),
    "tensordot": (lambda x, y: jnp.tensordot(x, y, ((1, 2), (2, 0))), (floats(2, 3, 4), floats(4, 5, 3))),
    "product in f32": (
        lambda x, y: lax.dot(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), preferred_element_type=F),
        (floats(3, 4), floats(4, 2)),
    ),
    "conv": (lambda x, w: lax.conv_general_dilated(x, w, (2, 1), "SAME"), (floats(2, 3, 7, 6), floats(4, 3, 3, 3))),
    "conv nhwc": (
        lambda x, w: lax.conv_general_dilated(
            x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"), rhs_dilation=(2, 1)
        ),
        (floats(2, 7, 6, 4), floats(3, 2, 4, 3)),
    ),
    "grouped conv": (
        lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME", feature_group_count=2),
        (floats(2, 4, 9), floats(6, 2, 3)),
    ),
    "grouped batch": (
        lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME", batch_group_count=2),
        (floats(4, 3, 9), floats(6, 3, 3)),
    ),
    "conv_transpose": (
        lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")),
        (floats(1, 2, 4, 4), floats(3, 2, 3, 3)),
    ),
    "max_pool": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3), (1, 2, 2), "SAME"), (floats(2, 7, 7),)),
    "avg_pool": (lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2), (1, 2, 2), "VALID") / 4, (floats(2, 6, 6),)),
    "fft": (lambda x: jnp.abs(jnp.fft.rfft(x)) + jnp.fft.irfft(jnp.fft.rfft(x))[..., :5], (floats(2, 8),)),
    "cholesky": (lambda x: jnp.linalg.cholesky(x @ x.T + 3 * jnp.eye(4)), (floats(4, 4),)),
    "eigvalsh": (lambda x: jnp.linalg.eigvalsh(x @ x.T), (floats(4, 4),)),
    "svdvals": (lambda x: jnp.linalg.svd(x, compute_uv=False), (floats(4, 3),)),
    "jit": (jax.jit(lambda x: jnp.sin(x) * 2), (floats(3),)),
    "checkpoint": (jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), (floats(3),)),
    "stop_gradient": (lambda x: x * lax.stop_gradient(x), (floats(3),)),
    "scan": (lambda w, x: lax.scan(lambda c, x: (jnp.tanh(w * c + x), c.sum()), jnp.zeros(3), x), (floats(3), floats(6, 3))),
    "scan in reverse": (lambda x: lax.scan(lambda c, x: (c + x, c * x), F(1), x, reverse=True), (floats(6),)),
    "fori_loop": (lambda x: lax.fori_loop(0, 5, lambda i, c: c * 0.5 + i, x), (floats(3),)),
    "cond": (lambda p, x: lax.cond(p > 0, jnp.sin, jnp.cos, x), (floats(), floats(3))),
    "switch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tan], x), (np.int32(5), floats(3, low=-1, high=1))),
    "associative_scan": (lambda x: lax.associative_scan(jnp.multiply, x), (floats(7, low=0.5),)),
    "vmap": (jax.vmap(lambda x, y: jnp.dot(x, y)), (floats(3, 4), floats(3, 4))),
    "grad": (jax.grad(lambda x: jnp.sum(jnp.tanh(x @ x.T))), (floats(3, 4),)),
    "while_loop": (lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 0.5), (0, x))[1], (floats(4),)),
}  # fmt: skip

SYSTEMS = floats(2, 3, 3) + 3 * np.eye(3, dtype=np.float32)


def signed_qr(x: Any, **said: Any) -> Any:
    """The factors with a diagonal of R that is not negative, whatever the signs that LAPACK chose."""
    q, r = jnp.linalg.qr(x, **said)
    sign = jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1))
    return q[..., : sign.shape[-1]] * sign[..., None, :], r[..., : sign.shape[-1], :] * sign[..., :, None]


def triangular(side: str, lower: bool, turned: bool, unit: bool) -> Callable[..., Any]:
    return partial(
        lax.linalg.triangular_solve, left_side=side == "left", lower=lower, transpose_a=turned, unit_diagonal=unit
    )


CASES |= {
    "qr": (signed_qr, (floats(4, 3),)),
    "qr of many": (signed_qr, (floats(2, 3, 3),)),
    "qr complete": (partial(signed_qr, mode="complete"), (floats(4, 3),)),
    **{
        f"triangular_solve {side} lower={lower} turned={turned} unit={unit}": (
            triangular(side, lower, turned, unit), (SYSTEMS, floats(2, 3, 2) if side == "left" else floats(2, 2, 3)),
        )
        for side in ("left", "right") for lower in (True, False) for turned in (True, False) for unit in (True, False)
    },
    "lu": (lax.linalg.lu, (SYSTEMS,)),
    "tile": (lambda x: jnp.tile(x, (2, 1, 3)), (floats(2, 3),)),
    "lu parts": (jax.scipy.linalg.lu, (SYSTEMS[0],)),
    "subtract at": (lambda x, i, u: jnp.asarray(x).at[i].subtract(u), (floats(5, 2), np.int32([1, 1, 9]), floats(3, 2))),
    "multiply at": (
        lambda x, i, u: jnp.asarray(x).at[i].multiply(u, unique_indices=True),
        (floats(5, 2), np.int32([1, 3, 9]), floats(3, 2)),
    ),
    "approx_max_k": (lambda x: lax.approx_max_k(x, 3), (floats(2, 6),)),
    "approx_min_k": (lambda x: lax.approx_min_k(x, 2, reduction_dimension=0), (floats(5, 3),)),
    "clz": (lax.clz, (np.int32([0, 1, -1, 255, 65536, 2**30]),)),
    "clz of bytes": (lax.clz, (np.uint8([0, 1, 128, 17]),)),
    "gradient of max_pool": (
        jax.grad(lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3), (1, 2, 2), "SAME") ** 2).sum()),
        (floats(2, 7, 7),),
    ),
    "gradient of min_pool": (
        jax.grad(lambda x: lax.reduce_window(x, jnp.inf, lax.min, (2, 2), (1, 2), "VALID").sum()),
        (integers(5, 6, high=4).astype(np.float32),),
    ),
    "solve": (jnp.linalg.solve, (SYSTEMS[0], floats(3))),
    "solve of columns": (jnp.linalg.solve, (SYSTEMS, floats(2, 3, 4))),
    "solve with one matrix": (jnp.linalg.solve, (SYSTEMS[0], floats(2, 3, 4))),
    "solve in batches": (jax.vmap(jnp.linalg.solve, in_axes=(2, None)), (SYSTEMS.transpose(1, 2, 0).copy(), floats(3))),
    "cho_solve": (lambda a, b: jax.scipy.linalg.solve(a @ a.T, b, assume_a="pos"), (SYSTEMS[0], floats(3, 2))),
    "inv": (jnp.linalg.inv, (SYSTEMS,)),
    "det": (jnp.linalg.det, (SYSTEMS,)),
    "expm": (lambda a: jax.scipy.linalg.expm(a / 4), (SYSTEMS[0],)),
    "i0e": (lax.bessel_i0e, (floats(40, low=-20, high=20),)),
    "i1e": (lax.bessel_i1e, (floats(40, low=-20, high=20),)),
    "zeta": (jax.scipy.special.zeta, (floats(20, low=1.2, high=9), floats(20, low=0.2, high=5))),
    "gammainc": (lax.igamma, (floats(20, low=0.2, high=5), floats(20, low=0.2, high=5))),
    "gammaincc": (lax.igammac, (floats(20, low=0.2, high=5), floats(20, low=0.2, high=5))),
    "betainc": (lax.betainc, tuple(floats(20, low=0.2, high=0.9) for _ in range(3))),
    "betainc of what is known": (lambda x: jax.scipy.special.betainc(2.0, 3.5, x), (floats(20, low=0.05, high=0.95),)),
    "mulhi": (lax.mulhi, (np.int32([2**30, -(2**31), 7]), np.int32([12, -(2**31), -9]))),
    "reduce": (lambda x: lax.reduce(x, F(2), lax.mul, (0,)), (floats(3, 4),)),
    "reduce by the largest": (lambda x: lax.reduce(x, np.int32(3), lax.max, (1,)), (integers(3, 4),)),
    "reduce by and": (lambda x: lax.reduce(x > 0, np.bool_(True), lax.bitwise_and, (0,)), (integers(3, 4),)),
    "tridiagonal_solve": (
        lambda low, own, high, b: lax.linalg.tridiagonal_solve(low * (jnp.arange(6) > 0), own + 5, high * (jnp.arange(6) < 5), b),
        (*(floats(2, 6) for _ in range(3)), floats(2, 6, 3)),
    ),
    "equal in total order": (
        lax.eq_to_p.bind,
        (np.float32([0.0, -0.0, np.nan, -np.nan, 1]), np.float32([-0.0, -0.0, np.nan, np.nan, 1])),
    ),
    "total order": (
        lambda x, y: (lax.lt_to_p.bind(x, y), lax.le_to_p.bind(x, y)),
        (np.float32([0.0, -0.0, np.nan, -np.nan, 1, -np.inf]), np.float32([-0.0, 0.0, np.inf, -np.inf, 1, -2])),
    ),
    "pivots": (lambda x: lax.linalg.lu_pivots_to_permutation(lax.linalg.lu(x)[1], 3), (SYSTEMS,)),
    "solve_triangular": (partial(jax.scipy.linalg.solve_triangular, trans=1, lower=True), (SYSTEMS[0], floats(3))),
}  # fmt: skip

WITHOUT_GRADIENT = {
    "while_loop": "without a bound neither side has one in reverse",
    "qr complete": "JAX has none",
    "betainc": "JAX has none by the first operands",
}
"""Cases of floats whose gradient is not compared, and why."""


def model_of(function: Callable[..., Any], args: tuple[np.ndarray, ...]) -> rlx.Model:
    specs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in map(np.asarray, args)]
    return rlx.from_jax(lambda *args: function(*args), *specs)


def close(found: Any, expected: Any) -> None:
    for x, y in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True):
        assert np.asarray(x).dtype == y.dtype
        np.testing.assert_allclose(np.asarray(x, np.complex64), np.asarray(y, np.complex64), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_jax(name: str) -> None:
    function, args = CASES[name]
    close(model_of(function, args)(*args), jax.jit(function)(*args))


OF_FLOATS = [
    n for n, (_, args) in CASES.items() if n not in WITHOUT_GRADIENT and any(x.dtype.kind == "f" for x in args)
]


@pytest.mark.medium
@pytest.mark.parametrize("name", OF_FLOATS)
def test_gradients_are_those_of_jax(name: str) -> None:
    """Of the sum of squares of every float in the result, by every float among the operands."""
    function, args = CASES[name]
    places = tuple(n for n, x in enumerate(args) if x.dtype.kind == "f")

    def loss(leaves: Any, square: Any, total: Any) -> Any:
        parts = [total(square(y)) for y in leaves if str(y.dtype) in ("float32", "f32")]
        return sum(parts[1:], parts[0]) if parts else None

    def of_jax(*args: Any) -> Any:
        return loss(jax.tree_util.tree_leaves(function(*args)), jnp.square, jnp.sum)

    model = model_of(function, args)

    def of_rlx(*args: Any) -> Any:
        return loss(jax.tree_util.tree_leaves(model.function({}, *args)), rlx.square, rlx.sum)

    if of_jax(*args) is not None:  # else nothing of it has a derivative
        close(rlx.grad(of_rlx, argnums=places)(*args), jax.grad(of_jax, argnums=places)(*args))


@pytest.mark.medium
def test_systems_have_derivatives_of_every_order() -> None:
    """JAX makes factors of a matrix that no derivative passes; the solution is one all the same."""
    matrix, b = SYSTEMS[0], floats(3)
    model = model_of(jnp.linalg.solve, (matrix, b))

    def twice(grad: Any, sin: Any, total: Any, solve: Any) -> Any:
        first = grad(lambda a: total(sin(solve(a, b))))
        return grad(lambda a: total(sin(first(a))))(matrix)

    found = twice(rlx.grad, rlx.sin, rlx.sum, lambda a, b: model.function({}, a, b))
    close(found, twice(jax.grad, jnp.sin, jnp.sum, jnp.linalg.solve))


def test_a_reduction_by_another_function_is_named() -> None:
    def reduced(x: Any) -> Any:
        return lax.reduce(x, F(0), lambda a, b: a + 2 * b, (0,))

    with pytest.raises(UnsupportedError, match="reduce by a function of its own"):
        model_of(reduced, (floats(4),))(floats(4))


def test_a_system_without_a_matrix_is_named() -> None:
    def solved(x: Any) -> Any:
        return lax.custom_linear_solve(lambda v: jnp.roll(v, 1) + 3 * v, x, lambda _, b: b, symmetric=True)

    with pytest.raises(UnsupportedError, match="custom_linear_solve with a function in place of a matrix"):
        model_of(solved, (floats(4),))(floats(4))
