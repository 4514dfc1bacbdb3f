"""A product and the region behind it: where they become one op, where not and why, and the native kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.ir.graph import Graph
from rlx_core.ops.activation import exp, gelu, relu, tanh
from rlx_core.ops.fused import fused_matmul_bias_act
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.linalg import MatMul, mat_mul
from rlx_core.ops.selection import where
from rlx_core.ops.structural import sum_axes, transpose
from rlx_core.passes.fuse.mark_elementwise_regions import MarkElementwiseRegions
from rlx_core.passes.fuse.matmul_epilogue import FuseMatMulEpilogue

from ..programs import assert_equal_numbers, inner_values, ops, program, run, with_output, with_second_user

PASSES = [MarkElementwiseRegions(), FuseMatMulEpilogue()]
X, W, R = {"x": "f32[6, 4]"}, {"w": "f32[4, 5]"}, {"r": "f32[6, 5]"}


def fused(make: Callable[..., Any], **types: str) -> Graph:
    return run(PASSES, program(make, **types)).graph


FUSED: dict[str, Callable[..., Any]] = {
    "a residual": lambda x, w, r: r + mat_mul(x, w),
    "a residual on the right": lambda x, w, r: mat_mul(x, w) + r,
    "a step": lambda x, w, r: r - 0.1 * mat_mul(x, w),
    "taken from": lambda x, w, r: mat_mul(x, w) - r,
    "a factor that varies": lambda x, w, r: r - mat_mul(x, w) * r,
    "a function": lambda x, w, r: tanh(mat_mul(x, w)),
    "the product twice": lambda x, w, r: (lambda p: p * p + r)(mat_mul(x, w)),
    "a row": lambda x, w, r: mat_mul(x, w) * r[:1],
    "a column": lambda x, w, r: mat_mul(x, w) * r[:, :1],
    "a selection": lambda x, w, r: where(r > 0, mat_mul(x, w), 0.0),
    "several results": lambda x, w, r: (lambda p: (lambda s: (s, s * p))(r + p))(mat_mul(x, w)),
    "a bias": lambda x, w, r: fused_matmul_bias_act(x, w, r[0]) * r,
    "a bias and an activation": lambda x, w, r: fused_matmul_bias_act(x, w, r[0], activation="gelu") * r + r[0],
    "scales of integer sums": lambda x, w, r: MatMul(acc_dtype="i32")(x.astype("i8"), w.astype("i8")).astype("f32") * r[:, :1],
    "x again": lambda x, w, r: mat_mul(x, mat_mul(w, transpose(w, (1, 0)))) + x,
}  # fmt: skip

APART: dict[str, Callable[..., Any]] = {
    "a product that grows": lambda x, w, r: mat_mul(x[:1], w) + r,
    "a sum over rows": lambda x, w, r: sum_axes(mat_mul(x, w), axes=(1,)),
    "a transposed product": lambda x, w, r: transpose(mat_mul(x, w), (1, 0)) * 2.0,
    "integers": lambda x, w, r: mat_mul(x.astype("i32"), w.astype("i32")) + 1,
    "sums kept wider": lambda x, w, r: MatMul(acc_dtype="f64")(x, w) + 1.0,
    "an activation that is no step": lambda x, w, r: nn.softmax(mat_mul(x, w)),
}


@pytest.mark.parametrize("name", FUSED)
def test_a_product_takes_in_what_follows_it(name: str) -> None:
    before = program(FUSED[name], **X, **W, **R)
    after = run(PASSES, before).graph
    found = [n for n in after.nodes if isinstance(n.op, FusedMatMulEpilogue)]
    assert len(found) == 1
    assert not {"elementwise_region", "fused_matmul_bias_act"} & {*ops(after)}
    assert_equal_numbers(before, after)
    assert run(PASSES, after).graph is after


@pytest.mark.parametrize("name", APART)
def test_what_is_no_region_of_the_product_stays_outside(name: str) -> None:
    before = program(APART[name], **X, **W, **R)
    assert "fused_matmul_epilogue" not in ops(run(PASSES, before).graph)


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("widen", [with_output, with_second_user])
def test_a_product_that_others_need_stays(name: str, widen: Callable[..., Any]) -> None:
    whole = program(FUSED[name], **X, **W, **R)
    for value in inner_values(whole):
        before = widen(whole, value)
        after = run(PASSES, before).graph
        assert_equal_numbers(before, after)
        products = [n for n in before.nodes if n.op.name in ("rlx.matmul", "rlx.fused_matmul_bias_act")]
        if value.node is products[-1] and len(before.outputs) > len(whole.outputs) and widen is with_output:
            assert "fused_matmul_epilogue" not in ops(after)


def test_of_two_products_the_last_one_has_the_region() -> None:
    """Everything that the region reads is there by then; the other product is read like any operand."""
    after = fused(lambda x, w, r: mat_mul(x, w) * exp(r) + mat_mul(exp(x), w), **X, **W, **R)
    assert ops(after)[-1] == "fused_matmul_epilogue"
    assert ops(after).count("matmul") == 1
    (last,) = after.nodes[-1:]
    assert last.operands[0] is not None
    assert last.operands[0].node.op.name == "rlx.exp"


def test_what_has_an_effect_is_not_moved_into_a_product(noise: Any, fence: Any) -> None:
    for op in (noise, fence):
        after = fused(lambda x, w, r, op=op: op(mat_mul(x, w)) + r, **X, **W, **R)
        assert "fused_matmul_epilogue" not in ops(after)


def test_unknown_sizes_have_to_be_the_same() -> None:
    same = {"x": "f32[n, 4]", "w": "f32[4, 5]"}
    after = fused(lambda x, w, r: mat_mul(x, w) + r, **same, r="f32[n, 5]")
    assert ops(after) == ["fused_matmul_epilogue"]
    assumed = fused(lambda x, w, r: tanh(mat_mul(x, w) + r), **same, r="f32[m, 5]")
    assert ops(assumed) == ["matmul", "add", "tanh"]


def test_a_dead_region_is_left_to_whoever_sweeps() -> None:
    def make(x: Any, w: Any, r: Any) -> Any:
        gelu(mat_mul(x, w))
        return mat_mul(x, w) + r

    assert ops(fused(make, **X, **W, **R)).count("fused_matmul_epilogue") == 1


# ------------------------------------------------------------------------------------------- native code

OFF = {"fusion": {"enabled": False}}
SIZES = [(6, 4, 5), (1, 1, 1), (33, 17, 70), (128, 512, 96), (40, 1024, 24), (5, 0, 3)]


def steps_of(compiled: Any) -> list[str]:
    return [s.node.op.name.removeprefix("rlx.") for s in compiled.executables[0].lir.steps]


@pytest.mark.medium
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
@pytest.mark.parametrize("donate", [(), ("r",)])
def test_native_steps_keep_every_bit(m: int, k: int, n: int, donate: tuple[str, ...]) -> None:
    """The epilogue rounds as the ops do: the product, its multiple, the sum."""
    rng = np.random.default_rng(3)
    x, w, r = (rng.standard_normal(s, np.float32) for s in ((k, m), (k, n), (m, n)))
    step = rlx.jit(lambda x, w, r: r - 0.1 * (x.T @ w), donate=donate)
    plain = rlx.jit(lambda x, w, r: r - 0.1 * (x.T @ w), config=OFF)
    np.testing.assert_array_equal(step(x, w, r.copy()), plain(x, w, r.copy()))
    assert steps_of(step) == ["fused_matmul_epilogue"]
    assert bool(step.executables[0].lir.steps[0].in_place) == bool(donate)


def momentum(x: Any, dy: Any, m: Any, v: Any, w: Any) -> tuple[Any, Any, Any]:
    g = x.T @ dy
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    return m, v, w - 0.01 * m / (rlx.sqrt(v) + 1e-8)


@pytest.mark.medium
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
@pytest.mark.parametrize("donate", [(), ("w",), ("m", "v", "w")])
def test_a_step_of_adam_is_the_epilogue_of_the_gradient(m: int, k: int, n: int, donate: tuple[str, ...]) -> None:
    """Three results, each in the bytes of what it replaces, and each read before anything is written there."""
    rng = np.random.default_rng(5)
    shapes = ((k, m), (k, n), (m, n), (m, n), (m, n))
    x, dy, first, second, w = (rng.standard_normal(s, np.float32) for s in shapes)
    data = (x, dy, first, np.abs(second), w)
    step, plain = rlx.jit(momentum, donate=donate), rlx.jit(lambda *a: momentum(*a), config=OFF)
    for found, wanted in zip(step(*(a.copy() for a in data)), plain(*data), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert steps_of(step) == ["fused_matmul_epilogue"]
    if donate and k:
        assert len(step.executables[0].lir.steps[0].in_place) == len(donate)


@pytest.mark.medium
def test_the_slope_of_gelu_is_the_epilogue_of_the_cotangents_product() -> None:
    def loss(params: Any, x: Any) -> Any:
        return (nn.gelu(x @ params["up"]) @ params["down"]).sum()

    rng = np.random.default_rng(6)
    params = {"up": rng.standard_normal((16, 48)), "down": rng.standard_normal((48, 16))}
    both, x = rlx.value_and_grad(loss), rng.standard_normal((5, 7, 16))
    fast, plain = rlx.jit(lambda p, x: both(p, x)), rlx.jit(lambda p, x: both(p, x), config=OFF)
    found, wanted = fast(params, x), plain(params, x)
    assert steps_of(fast).count("fused_matmul_epilogue") == 1
    assert "elementwise_region" not in steps_of(fast)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
    for name in params:
        np.testing.assert_allclose(found[1][name], wanted[1][name], rtol=1e-12, atol=1e-12)
    step = 1e-5
    along = {name: rng.standard_normal(p.shape) for name, p in params.items()}
    up, down = (loss({n: p + s * step * along[n] for n, p in params.items()}, x) for s in (1, -1))
    slope = sum(np.vdot(found[1][name], along[name]) for name in params)
    np.testing.assert_allclose(slope, (up - down) / (2 * step), rtol=1e-6)


@pytest.mark.medium
@pytest.mark.parametrize("of", ["f16", "bf16", "f32", "f64"])
def test_masks_rows_columns_and_scalars_are_read_as_they_broadcast(of: str) -> None:
    rng = np.random.default_rng(7)
    shapes = ((2, 3, 7, 8), (8, 19), (19,), (3, 1, 1), (2, 1, 7, 1), (7, 19), ())
    x, w, row, batch, column, whole, one = (rlx.astype(rng.standard_normal(s), of) for s in shapes)
    seen = rng.random((3, 7, 19)) > 0.5

    def step(x: Any, w: Any, *others: Any) -> Any:
        row, batch, column, whole, one, seen = others
        return relu(rlx.where(seen, x @ w, row) * batch + column - whole) * one

    args = (x, w, row, batch, column, whole, one, seen)
    fast, plain = rlx.jit(step), rlx.jit(lambda *a: step(*a), config=OFF)
    assert steps_of((fast(*args), fast)[1]) == ["fused_matmul_epilogue"]
    if of in ("f32", "f64"):
        np.testing.assert_array_equal(fast(*args), plain(*args))
    else:
        exact = step(*(np.asarray(a, np.float64) for a in args[:-1]), seen)
        unit = {"f16": 2.0**-11, "bf16": 2.0**-8}[of]
        # One rounding at the end, of a result below 32; the sums of 8 products are f32.
        assert np.abs(np.asarray(fast(*args), np.float64) - exact).max() <= 32 * unit


@pytest.mark.medium
def test_native_residuals_may_be_strided_and_batched() -> None:
    """A residual whose batch axes do not lie like those of the result: its rows are found one by one."""
    rng = np.random.default_rng(4)
    x, w, r = (rng.standard_normal(s, np.float32) for s in ((2, 3, 7, 8), (8, 9), (3, 7, 2, 9)))

    def step(x: Any, w: Any, r: Any) -> Any:
        return rlx.permute_dims(rlx.exp(r), (2, 0, 1, 3)) + 0.5 * (x @ w)

    made, plain = rlx.jit(step), rlx.jit(lambda *a: step(*a), config=OFF)
    np.testing.assert_array_equal(made(x, w, r), plain(x, w, r))
    assert "fused_matmul_epilogue" in steps_of(made)


def test_a_sum_in_several_blocks_is_stepped_in_place_too() -> None:
    """Beyond 1024 float32 partial sums wait for the next block, which must not be where the residual lies."""
    x, w, r = (np.ones(s, np.float32) for s in ((8, 2100), (2100, 8), (8, 8)))
    step = rlx.jit(lambda x, w, r: r + x @ w, donate=("r",))
    np.testing.assert_array_equal(step(x, w, r), 2101.0)
    (only,) = step.executables[0].lir.steps
    assert only.node.op.name == "rlx.fused_matmul_epilogue"
    assert only.in_place


def test_what_the_kernel_does_not_take_stays_a_loop_and_is_reported() -> None:
    def step(x: Any, w: Any) -> Any:
        return rlx.astype(x @ w, "f64") * 2.0

    x, w = (np.ones(s, np.float32) for s in ((4, 5), (5, 6)))
    made = rlx.jit(step)
    np.testing.assert_array_equal(made(x, w), 10.0)
    assert steps_of(made)[0] == "matmul"
