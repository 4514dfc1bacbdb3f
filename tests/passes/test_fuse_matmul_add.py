"""A product and what it is added to: where they become one op, where not and why, and the native kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ops.fused_matmul_add import FusedMatMulAdd
from rlx_core.ops.linalg import mat_mul
from rlx_core.ops.structural import transpose
from rlx_core.passes.fuse_matmul_add import FuseMatMulAdd, fuse_matmul_add
from rlx_core.passes.rule_checks import check_rule

from .programs import assert_equal_numbers, inner_values, ops, program, run, with_output, with_second_user

X, W, R = {"x": "f32[6, 4]"}, {"w": "f32[4, 5]"}, {"r": "f32[6, 5]"}

FUSED: dict[str, tuple[Callable[..., Any], float]] = {
    "a residual": (lambda x, w, r: r + mat_mul(x, w), 1.0),
    "a residual on the right": (lambda x, w, r: mat_mul(x, w) + r, 1.0),
    "a step": (lambda x, w, r: r - mat_mul(x, w) * 0.1, -0.1),
    "a step with the rate in front": (lambda x, w, r: r - 0.1 * mat_mul(x, w), -0.1),
    "a difference": (lambda x, w, r: r - mat_mul(x, w), -1.0),
    "a scaled sum": (lambda x, w, r: 2.0 * mat_mul(x, w) + r, 2.0),
    "a transposed gradient": (lambda x, w, r: r - 0.5 * mat_mul(transpose(transpose(x, (1, 0)), (1, 0)), w), -0.5),
}

APART: dict[str, Callable[..., Any]] = {
    "a bias": lambda x, w, r: mat_mul(x, w) + r[0],
    "the product is taken from": lambda x, w, r: mat_mul(x, w) - r,
    "a factor that varies": lambda x, w, r: r - mat_mul(x, w) * r,
    "a product that grows": lambda x, w, r: mat_mul(x[:1], w) + r,
}


@pytest.mark.parametrize("rule", list(fuse_matmul_add), ids=lambda r: r.key)
def test_both_sides_agree(rule: Any) -> None:
    assert check_rule(rule).fired


@pytest.mark.parametrize("name", FUSED)
def test_a_product_takes_in_what_it_is_added_to(name: str) -> None:
    make, scale = FUSED[name]
    before = program(make, **X, **W, **R)
    after = run(FuseMatMulAdd(), before).graph
    (fused,) = [n for n in after.nodes if isinstance(n.op, FusedMatMulAdd)]
    assert np.float32(fused.op.scale) == np.float32(scale)
    assert "matmul" not in ops(after)
    assert_equal_numbers(before, after)


@pytest.mark.parametrize("name", APART)
def test_what_is_no_residual_stays_outside(name: str) -> None:
    before = program(APART[name], **X, **W, **R)
    assert "fused_matmul_add" not in ops(run(FuseMatMulAdd(), before).graph)


@pytest.mark.parametrize("widen", [with_output, with_second_user])
def test_a_product_that_others_read_stays(widen: Callable[..., Any]) -> None:
    whole = program(FUSED["a step"][0], **X, **W, **R)
    for value in inner_values(whole):
        before = widen(whole, value)
        after = run(FuseMatMulAdd(), before).graph
        assert "fused_matmul_add" not in ops(after) or "matmul" in value.node.op.name
        assert_equal_numbers(before, after)


SIZES = [(6, 4, 5), (1, 1, 1), (33, 17, 70), (128, 512, 96), (40, 1024, 24), (5, 0, 3)]


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
@pytest.mark.parametrize("donate", [(), ("r",)])
def test_native_steps_keep_every_bit(m: int, k: int, n: int, donate: tuple[str, ...]) -> None:
    """The epilogue rounds as the two ops do: the product, its multiple, the sum."""
    rng = np.random.default_rng(3)
    x, w, r = (rng.standard_normal(s, np.float32) for s in ((k, m), (k, n), (m, n)))
    step = rlx.jit(lambda x, w, r: r - 0.1 * (x.T @ w), donate=donate)
    plain = rlx.jit(lambda x, w, r: r - 0.1 * (x.T @ w), config={"fusion": {"enabled": False}})
    np.testing.assert_array_equal(step(x, w, r.copy()), plain(x, w, r.copy()))
    names = [s.node.op.name for s in step.executables[0].lir.steps]
    assert names == ["rlx.fused_matmul_add"]
    assert bool(step.executables[0].lir.steps[0].in_place) == bool(donate)


def test_native_residuals_may_be_strided_and_batched() -> None:
    """A residual whose batch axes do not lie like those of the result: its rows are found one by one."""
    rng = np.random.default_rng(4)
    x, w, r = (rng.standard_normal(s, np.float32) for s in ((2, 3, 7, 8), (8, 9), (3, 7, 2, 9)))

    def step(x: Any, w: Any, r: Any) -> Any:
        return rlx.permute_dims(rlx.exp(r), (2, 0, 1, 3)) + 0.5 * (x @ w)

    fused, plain = rlx.jit(step), rlx.jit(lambda *a: step(*a), config={"fusion": {"enabled": False}})
    np.testing.assert_array_equal(fused(x, w, r), plain(x, w, r))
    assert "rlx.fused_matmul_add" in [s.node.op.name for s in fused.executables[0].lir.steps]


def test_a_sum_in_several_blocks_is_stepped_in_place_too() -> None:
    """Beyond 1024 float32 partial sums wait for the next block, which must not be where the residual lies."""
    x, w, r = (np.ones(s, np.float32) for s in ((8, 2100), (2100, 8), (8, 8)))
    step = rlx.jit(lambda x, w, r: r + x @ w, donate=("r",))
    np.testing.assert_array_equal(step(x, w, r), 2101.0)
    (only,) = step.executables[0].lir.steps
    assert only.node.op.name == "rlx.fused_matmul_add"
    assert only.in_place
