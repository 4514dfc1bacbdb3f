"""A product and the sums of one of its factors: which pairs become one op, and that only a target that says so has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlx_core.ir.graph import Node
from rlx_core.ops.activation import tanh
from rlx_core.ops.fused_loop import FusedLoop
from rlx_core.ops.linalg import MatMul, mat_mul, reshaped
from rlx_core.ops.structural import sum_axes, transpose
from rlx_core.passes.engine.base import Context
from rlx_core.passes.fuse.matmul_epilogue import FuseMatMulEpilogue
from rlx_core.passes.fuse.product_sums import FIRST, SECOND, FuseProductSums, product_with_sums
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.kernels import KernelTable, condition

from ..programs import assert_equal_numbers, ops, program, run

X, G = {"x": "f32[6, 8]"}, {"g": "f32[6, 4]"}


def turned(x: Any) -> Any:
    return transpose(x, (1, 0))


@condition("both, of matrices")
def is_both(node: Node) -> bool:
    return node.op in (product_with_sums(FIRST), product_with_sums(SECOND))


@pytest.fixture
def context() -> Context:
    """A target whose library makes both."""
    table = KernelTable("library")
    table.register(FusedLoop, name="both", when=is_both)(lambda op, *operands, out, workspace: None)
    return Context(Target("library", table))


TOGETHER: dict[str, tuple[Callable[..., Any], int]] = {
    "rows of the second": (lambda x, g: (mat_mul(turned(x), g), sum_axes(g, axes=(0,))), SECOND),
    "axes from behind": (lambda x, g: (mat_mul(turned(x), g), sum_axes(g, axes=(-2,))), SECOND),
    "the sums first": (lambda x, g: (sum_axes(g, axes=(0,)), mat_mul(turned(x), g)), SECOND),
    "columns of the first": (lambda x, g: (mat_mul(turned(g), x), sum_axes(g, axes=(0,))), FIRST),
    "what the product reads as rows": (
        lambda x, g: (lambda h: (mat_mul(turned(x), reshaped(h, (6, 4))), sum_axes(h, axes=(0, 1))))(
            reshaped(g, (2, 3, 4)) * 2.0
        ),
        SECOND,
    ),
}  # fmt: skip

APART: dict[str, Callable[..., Any]] = {
    "sums over what stays": lambda x, g: (mat_mul(turned(x), g), sum_axes(g, axes=(1,))),
    "sums of everything": lambda x, g: (mat_mul(turned(x), g), sum_axes(g, axes=(0, 1))),
    "an axis that is kept": lambda x, g: (mat_mul(turned(x), g), sum_axes(g, axes=(0,), keep_dim=True)),
    "another array": lambda x, g: (mat_mul(turned(x), g), sum_axes(g * 2.0, axes=(0,))),
    "sums of a vector over nothing": lambda x, g: (
        lambda h: (mat_mul(reshaped(h, (6, 1)), g[:1]), sum_axes(h, axes=()))
    )(g[:, 0]),
    "sums of a number": lambda x, g: (lambda h: (mat_mul(reshaped(h, (1, 1)), g[:1]), sum_axes(h, axes=())))(g[0, 0]),
    "a transpose that moves nothing": lambda x, g: (
        lambda h: (mat_mul(transpose(h, (0, 1)), x[:4]), sum_axes(h, axes=(0,)))
    )(g[:4]),
    "a product of the sums": lambda x, g: mat_mul(turned(x * sum_axes(g, axes=(0,))[0]), g),
    "sums kept wider": lambda x, g: (MatMul(acc_dtype="f64")(turned(x), g), sum_axes(g, axes=(0,))),
    "a stack": lambda x, g: (
        lambda h: (mat_mul(reshaped(x, (2, 4, 6)), reshaped(h, (1, 6, 4))), sum_axes(h, axes=(0,)))
    )(g),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_a_product_and_the_sums_of_a_factor_are_one_op(name: str, context: Context) -> None:
    make, place = TOGETHER[name]
    before = program(make, **X, **G)
    after = run(FuseProductSums(), before, context).graph
    (made,) = (n for n in after.nodes if isinstance(n.op, FusedLoop))
    assert made.op == product_with_sums(place)
    assert not {"matmul", "sum"} & {*ops(after)}
    assert_equal_numbers(before, after)
    assert run(FuseProductSums(), after, context).graph is after


@pytest.mark.parametrize("name", APART)
def test_other_sums_stay_outside(name: str, context: Context) -> None:
    before = program(APART[name], **X, **G)
    assert run(FuseProductSums(), before, context).graph is before


def test_of_two_products_one_has_the_sums(context: Context) -> None:
    both = program(lambda x, g: (mat_mul(turned(x), g), mat_mul(turned(g), x), sum_axes(g, axes=(0,))), **X, **G)
    assert ops(run(FuseProductSums(), both, context).graph).count("fused_loop") == 1


def test_rows_of_a_product_with_its_epilogue_are_added_up_where_the_target_does(context: Context) -> None:
    before = program(lambda x, g: (lambda y: (y, sum_axes(y, axes=(0,))))(tanh(mat_mul(turned(x), g))), **X, **G)
    whole = run((FuseMatMulEpilogue(),), before).graph
    assert run(FuseProductSums(), whole, context).graph is whole
    table = KernelTable("all")
    table.register(FusedLoop, name="all")(lambda op, *operands, out, workspace: None)
    after = run(FuseProductSums(), whole, Context(Target("all", table))).graph
    assert ops(after)[-1] == "fused_loop"
    assert "sum" not in ops(after)
    assert_equal_numbers(before, after)


def test_only_a_target_that_says_so_has_it() -> None:
    make, _ = TOGETHER["rows of the second"]
    before = program(make, **X, **G)
    assert run(FuseProductSums(), before).graph is before
    other = KernelTable("other")
    other.register(MatMul, name="product")(lambda op, *operands, out, workspace: None)
    assert run(FuseProductSums(), before, Context(Target("other", other))).graph is before
