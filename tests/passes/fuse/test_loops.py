"""Fused loops: what joins, what does not and why, and that the numbers stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.codegen import formula_of
from rlx_core.codegen.cost import STEP, cost_of, units
from rlx_core.ir.graph import Graph, ops_inside
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp, rsqrt, tanh
from rlx_core.ops.arithmetic import maximum, multiply
from rlx_core.ops.fused_loop import ABSENT, FusedLoop, LoopStep
from rlx_core.ops.indexing import gather
from rlx_core.ops.linalg import mat_mul
from rlx_core.ops.normalization import layer_norm, rms_norm
from rlx_core.ops.reduction import mean_axes
from rlx_core.ops.softmax import softmax
from rlx_core.ops.structural import Sum, sum_axes, transpose
from rlx_core.passes.engine.base import Context
from rlx_core.passes.engine.bound_values import bound_nodes
from rlx_core.passes.fuse.loops import FuseLoops
from rlx_core.passes.fuse.mark_elementwise_regions import MarkElementwiseRegions
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.kernels import KernelTable

from ..programs import assert_equal_numbers, inner_values, ops, program, run, with_output, with_second_user

X, W = "f32[64, 32]", "f32[32]"

JOIN = {
    "a sum before a norm": (lambda x, w: layer_norm(x + x * w, w), ["fused_loop"]),
    "a norm before a sum": (lambda x, w: rms_norm(x, w) + x, ["fused_loop"]),
    "arithmetic before and after a reduction": (lambda x, w: tanh(sum_axes(x * w, axes=(1,))), ["fused_loop"]),
    "two reductions, one of the other": (lambda x, w: sum_axes(exp(x - mean_axes(x, axes=(1,), keep_dim=True)), axes=(1,)),
        ["fused_loop"]),
    "a reduction's view": (lambda x, w: x * rsqrt(mean_axes(x * x, axes=(1,))).reshape((64, 1)), ["fused_loop"]),
    "the columns' sums and an update with them": (lambda x, w: w - sum_axes(x, axes=(0,)) * 0.1, ["fused_loop"]),
}  # fmt: skip

APART = {
    "reductions over different axes": lambda x, w: sum_axes(sum_axes(x, axes=(1,)), axes=(0,)),
    "a product": lambda x, w: mat_mul(x, transpose(x, (1, 0))),
    "one node alone": lambda x, w: softmax(x),
}


@pytest.mark.parametrize("name", JOIN)
def test_neighbouring_loops_join(name: str) -> None:
    make, expected = JOIN[name]
    before = program(make, x=X, w=W)
    after = run(FuseLoops(), before).graph
    assert [o for o in ops(after) if o not in ("reshape", "expand")] == expected
    assert_equal_numbers(before, after)
    assert run(FuseLoops(), after).graph is after, "a second time changes nothing"


def test_numbers_behind_the_sums_of_columns_do_not_keep_loops_apart() -> None:
    """They are one for all columns: the hard swish behind a depthwise convolution, with its scale and shift."""

    def scaled(x: Any, a: Any, b: Any, c: Any) -> Any:
        y = sum_axes(x, axes=(0,)) * a + b
        return (y * maximum(y + c, a) * b + c) * a - b

    before = program(scaled, x="f32[9, 960, 240]", a="f32[1, 1]", b="f32[1, 1]", c="f32[1, 1]")
    marked = run(MarkElementwiseRegions(), before).graph
    after = run(FuseLoops(), marked).graph
    assert [o for o in ops(after) if o not in ("reshape", "expand")] == ["fused_loop"]


@pytest.mark.parametrize("name", APART)
def test_what_is_no_single_loop_stays(name: str) -> None:
    before = program(APART[name], x=X, w=W)
    assert "fused_loop" not in ops(run(FuseLoops(), before).graph)


@pytest.mark.parametrize("name", JOIN)
@pytest.mark.parametrize("widen", [with_output, with_second_user])
def test_inner_values_that_others_read_stay_right(name: str, widen: Callable[[Graph, Any], Graph]) -> None:
    """Each intermediate value in turn is also an output, or has a second user."""
    whole = program(JOIN[name][0], x=X, w=W)
    for value in inner_values(whole):
        before = widen(whole, value)
        assert_equal_numbers(before, run(FuseLoops(), before).graph)


def test_a_value_read_around_the_loop_keeps_it_apart() -> None:
    """The product reads the sum and gives what the norm reads: one loop of sum and norm would need its own result."""

    def make(x: Any, w: Any) -> Any:
        total = x + w
        return layer_norm(total + mat_mul(total, transpose(x, (1, 0)) @ x), w)

    before = program(make, x=X, w=W)
    after = run(FuseLoops(), before).graph
    assert ops(after).count("matmul") == 2
    assert ops(after)[0] == "add"
    assert_equal_numbers(before, after)


def test_dear_work_is_not_repeated_for_every_row() -> None:
    """exp of a vector, once; inside the loop over rows it would be computed 4096 times."""
    before = program(lambda x, w: sum_axes(x * exp(tanh(exp(w))), axes=(1,)), x="f32[4096, 32]", w=W)
    after = run(FuseLoops(), before).graph
    (loop,) = [n for n in after.nodes if isinstance(n.op, FusedLoop) and n.types[0].shape == (4096,)]
    assert not any(step.op == exp.op() for step in loop.op.steps)


def test_wide_work_is_not_left_to_one_thread() -> None:
    before = program(lambda x: sum_axes(tanh(x), axes=(0, 1)), x="f32[512, 512]")
    assert ops(run(FuseLoops(), before).graph) == ["tanh", "sum"]
    assert ops(run(FuseLoops(), program(lambda x: sum_axes(tanh(x), axes=(0, 1)), x="f32[8, 8]")).graph) == [
        "fused_loop"
    ]


def test_what_is_known_once_parameters_are_bound_stays_out_of_loops_that_run() -> None:
    """`exp w` is computed when `w` is bound; inside the loop it would be computed in every run, at every row."""
    before = program(lambda x, w: rms_norm(x * exp(w) + tanh(w * 2.0), w), params={"w": W}, x=X)
    after = run(FuseLoops(), run(MarkElementwiseRegions(), before).graph).graph

    assert_equal_numbers(before, after)
    waiting = [n for n in after.nodes if n not in bound_nodes(after) and not n.is_leaf]
    assert [type(n.op) for n in waiting] == [FusedLoop]
    (loop,) = waiting
    assert not {type(op) for op in ops_inside(loop.op)} & {exp.op, tanh.op}


def test_limits_and_siblings_are_options() -> None:
    chain = program(lambda x, w: layer_norm(tanh(x * w) + x, w), x=X, w=W)
    assert "fused_loop" not in ops(run(FuseLoops(inputs=1), chain).graph)
    assert len(ops(run(FuseLoops(steps=2), chain).graph)) == 2
    beside = program(lambda x: (sum_axes(x, axes=(1,)), mean_axes(x, axes=(1,))), x="f32[128, 64]")
    assert ops(run(FuseLoops(siblings=False), beside).graph) == ["sum", "mean"]
    assert ops(run(FuseLoops(), beside).graph) == ["fused_loop"]


def test_only_kernels_made_from_meaning_join() -> None:
    """An op that a target runs by a kernel of its own keeps it."""

    def table(is_generated: bool) -> Context:
        kernels = KernelTable("toy")
        for op in (multiply.op, Sum, FusedLoop):
            kernels.register(op, name=f"k_{op.__name__}", is_generated=is_generated)(lambda *a, **k: None)
        return Context(Target("toy", kernels=kernels))

    before = program(lambda x, w: sum_axes(x * w, axes=(1,)), x=X, w=W)
    assert ops(run(FuseLoops(), before, table(True)).graph) == ["fused_loop"]
    assert ops(run(FuseLoops(), before, table(False)).graph) == ["mul", "sum"]


def test_unknown_sizes_join_as_known_ones_do() -> None:
    before = program(lambda x, w: layer_norm(x + x * w, w), x="f32[n, 32]", w=W)
    assert ops(run(FuseLoops(), before).graph) == ["fused_loop"]


def test_the_cost_model_knows_rows_from_points() -> None:
    """A factor of each row is computed once a row; a factor of each column at every point."""
    steps = (LoopStep(exp.op(), (1,)), LoopStep(multiply.op(), (0, 2)), LoopStep(Sum((1,)), (3,)))
    op = FusedLoop(inputs=2, steps=steps, results=(4,))
    a_row = formula_of(op, (spec("f32[256, 64]"), spec("f32[256, 1]")))
    a_column = formula_of(op, (spec("f32[256, 64]"), spec("f32[64]")))
    assert a_row is not None
    assert a_column is not None
    assert STEP < cost_of(a_row) < cost_of(a_column)
    assert units(a_row) == 256


LOOPS = {
    "updates in place": lambda x, w, i: (x - 0.1 * tanh(x), w - 0.1 * sum_axes(x, axes=(0,))),
    "a table's rows, normalised": lambda x, w, i: rms_norm(gather(x, i, axis=0), w),
    "absent operands": lambda x, w, i: layer_norm(x * w, None, w) * 2.0,
}


@pytest.mark.parametrize("name", LOOPS)
def test_native_loops_agree_with_no_fusion(name: str) -> None:
    """Sums may be added up in another order: n·2⁻²⁴ relative for n = 64 terms near 1, twice over."""
    rng = np.random.default_rng(0)
    data = (rng.standard_normal((64, 32), np.float32), rng.standard_normal(32, np.float32), rng.integers(0, 64, 16))
    fused = rlx.jit(lambda x, w, i: LOOPS[name](x, w, i), donate=("x",))
    plain = rlx.jit(lambda x, w, i: LOOPS[name](x, w, i), config={"fusion": {"enabled": False}})
    left, right = (rlx_leaves(f(*(a.copy() for a in data))) for f in (fused, plain))
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=2 * 64 * 2.0**-24, atol=1e-5)


def rlx_leaves(result: Any) -> list[np.ndarray]:
    return list(result) if isinstance(result, tuple) else [result]


def test_an_absent_operand_has_a_number_of_its_own() -> None:
    before = program(lambda x, w: layer_norm(x * w, None, w), x=X, w=W)
    (loop,) = [n for n in run(FuseLoops(), before).graph.nodes if isinstance(n.op, FusedLoop)]
    assert ABSENT in loop.op.steps[-1].reads
