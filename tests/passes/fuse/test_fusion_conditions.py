"""What holds of every fusion (SPEC 6.2): numbers, outputs, second users, idempotence, names and origins, and near misses.

A row is a program that its pass takes; a near miss is one that differs in one condition and is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlx_core.ops.activation import erf, exp, gelu, rsqrt, silu, sqrt, tanh
from rlx_core.ops.linalg import mat_mul
from rlx_core.ops.movement import Narrow
from rlx_core.ops.normalization import layer_norm, rms_norm
from rlx_core.ops.reduction import Var, max_axes, mean_axes
from rlx_core.ops.selection import where
from rlx_core.ops.softmax import softmax
from rlx_core.ops.structural import expand, reshape, sum_axes, transpose
from rlx_core.passes.dead_code import DeadCode
from rlx_core.passes.fuse.mark_elementwise_regions import MarkElementwiseRegions
from rlx_core.passes.fuse.matmul_bias_act import FuseMatMulBiasAct
from rlx_core.passes.fuse.residual_norm import FuseResidualNorm
from rlx_core.passes.fuse.shared_input_matmul import FuseSharedInputMatMul
from rlx_core.passes.fuse.swiglu import FuseSwiGLU
from rlx_core.passes.recognise.attention import RecogniseAttention
from rlx_core.passes.recognise.gelu import RecogniseGelu
from rlx_core.passes.recognise.norms import RecogniseNorms
from rlx_core.passes.recognise.softmax import RecogniseSoftmax

from ..label_readings import NO_READINGS, READINGS
from ..programs import (
    Row,
    assert_equal_numbers,
    inner_values,
    ops,
    run,
    with_output,
    with_second_user,
)

BIAS, RESIDUAL, SHARED = FuseMatMulBiasAct(), FuseResidualNorm(), FuseSharedInputMatMul()
SWIGLU, REGIONS, ATTENTION = FuseSwiGLU(), MarkElementwiseRegions(), RecogniseAttention()
GELU, NORMS, SOFTMAX = RecogniseGelu(), RecogniseNorms(), RecogniseSoftmax()


def kept(x: Any, op: Callable[..., Any], axis: int = 1) -> Any:
    return op(x, axes=(axis,), keep_dim=True)


def rms(x: Any, axis: int = 1, eps: float = 1e-5) -> Any:
    return x * rsqrt(kept(x * x, mean_axes, axis) + eps)


def centred(x: Any, axis: int = 1) -> Any:
    return x - kept(x, mean_axes, axis)


def attention(q: Any, k: Any, v: Any, hide: Callable[[Any], Any] = lambda s: s) -> Any:
    keys = transpose(k, (*range(k.ndim - 2), k.ndim - 1, k.ndim - 2))
    return mat_mul(softmax(hide(mat_mul(q, keys) * 0.5)), v)


X, W, B, ROWS = "f32[3, 4]", "f32[4, 5]", "f32[5]", {"x": "f32[3, 4]"}
WIDE = {"x": "f64[3, 4]"}  # the constants of a formula are what the dtype holds, and the oracle is f64
MM = {"x": X, "w": W, "b": B}
ATT = {"q": "f32[2, 2, 3, 4]", "k": "f32[2, 2, 5, 4]", "v": "f32[2, 2, 5, 6]"}
SQUARE = {"q": "f32[2, 2, 3, 4]", "k": "f32[2, 2, 3, 4]", "v": "f32[2, 2, 3, 4]"}
RES = {"x": X, "r": X, "g": "f32[4]", "b": "f32[4]"}
QKV = {"w1": "f32[4, 5]", "w2": "f32[4, 2]", "w3": "f32[4, 3]"}
HALVES = {"p": "f32[3, 8]"}


TAKEN = [
    Row("matmul, bias", BIAS, lambda x, w, b: mat_mul(x, w) + b, MM, ("fused_matmul_bias_act",)),
    Row("bias first", BIAS, lambda x, w, b: b + mat_mul(x, w), MM, ("fused_matmul_bias_act",)),
    Row("matmul, bias, gelu", BIAS, lambda x, w, b: gelu(mat_mul(x, w) + b), MM, ("fused_matmul_bias_act",)),
    Row("bias as a row", BIAS, lambda x, w, b: mat_mul(x, w) + b, MM | {"b": "f32[1, 5]"},
        ("reshape", "fused_matmul_bias_act")),
    Row("scalar bias", BIAS, lambda x, w, b: mat_mul(x, w) + b, MM | {"b": "f32[]"}, ("expand", "fused_matmul_bias_act")),
    Row("bias declared last", BIAS, lambda x, w, c: tanh(mat_mul(x, w) + exp(c)), {"x": X, "w": W, "c": B},
        ("exp", "fused_matmul_bias_act")),
    Row("residual, layer norm", RESIDUAL, lambda x, r, g, b: layer_norm(x + r, g, b), RES, ("fused_residual_ln",)),
    Row("residual, rms norm", RESIDUAL, lambda x, r, g, b: rms_norm(x + r, g), RES, ("fused_residual_rms_norm",)),
    Row("residual with a bias", RESIDUAL, lambda x, r, g, b: layer_norm(x + b + r, g), RES, ("fused_residual_ln",)),
    Row("a sum that is read again", RESIDUAL, lambda x, r, g, b: (lambda s: tanh(layer_norm(s, g)) + s)(x + r), RES,
        ("fused_residual_ln", "tanh", "add")),
    Row("queries, keys, values", SHARED, lambda x, w1, w2, w3: (mat_mul(x, w1), mat_mul(x, w2), mat_mul(x, w3)), ROWS,
        ("concat", "matmul", "narrow", "narrow", "narrow"), QKV),
    Row("a second weight declared late", SHARED, lambda x, w1, w2, w3: (exp(mat_mul(x, w1)), mat_mul(x, exp(w2))), ROWS,
        ("exp", "concat", "matmul", "narrow", "narrow", "exp"), QKV),
    Row("halves", SWIGLU, lambda p: Narrow(1, 0, 4)(p) * silu(Narrow(1, 4, 4)(p)), HALVES, ("fused_swiglu",)),
    Row("halves, gate first", SWIGLU, lambda p: Narrow(1, 4, 4)(p) * silu(Narrow(1, 0, 4)(p)), HALVES, ("fused_swiglu",)),
    Row("two products", SWIGLU, lambda x, u, g: silu(mat_mul(x, g)) * mat_mul(x, u), ROWS,
        ("concat", "matmul", "fused_swiglu"), {"u": W, "g": W}),
    Row("softmax", SOFTMAX, lambda x: (lambda e: e / kept(e, sum_axes))(exp(x - kept(x, max_axes))), ROWS, ("softmax",)),
    Row("softmax of columns", SOFTMAX, lambda x: (lambda e: e / expand(kept(e, sum_axes, 0), (3, 4)))(
        exp(x - kept(x, max_axes, 0))), ROWS, ("softmax",)),
    Row("rms norm", NORMS, lambda x, g: rms(x) * g, ROWS | {"g": "f32[4]"}, ("rms_norm",)),
    Row("rms norm over rows", NORMS, lambda x: rms(x, 0), ROWS, ("rms_norm",)),
    Row("layer norm", NORMS, lambda x, g, b: (lambda c: c * rsqrt(kept(c * c, mean_axes) + 1e-5) * g + b)(centred(x)),
        ROWS | {"g": "f32[4]", "b": "f32[4]"}, ("layer_norm",)),
    Row("layer norm as a quotient", NORMS, lambda x: (lambda c: c / sqrt(kept(c ** 2.0, mean_axes) + 1e-5))(centred(x)),
        ROWS, ("layer_norm",)),
    Row("layer norm with a variance", NORMS, lambda x: centred(x) * rsqrt(Var(axes=(1,), keep_dim=True)(x) + 1e-5), ROWS,
        ("layer_norm",)),
    Row("rms norm of a difference", NORMS,
        lambda x, y: (lambda c: c * rsqrt(kept(c * c, mean_axes) + 1e-5))(x - kept(y, mean_axes)),
        {"x": X, "y": X}, ("mean", "sub", "rms_norm")),
    Row("gelu", GELU, lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))), WIDE, ("gelu",)),
    Row("gelu, other order", GELU, lambda x: x * (0.5 * (erf(x * math.sqrt(0.5)) + 1)), WIDE, ("gelu",)),
    Row("gelu of a product", GELU, lambda x: (lambda y: y * (1 + erf(y / math.sqrt(2))) / 2)(x * exp(x)), WIDE,
        ("exp", "mul", "gelu")),
    Row("gelu by tanh", GELU, lambda x: 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3.0))), WIDE,
        ("gelu_approx",)),
    Row("gelu by tanh, x outside", GELU,
        lambda x: 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * x * (1 + 0.044715 * (x * x)))), WIDE, ("gelu_approx",)),
    Row("attention", ATTENTION, attention, ATT, ("attention",)),
    Row("attention without heads", ATTENTION, attention, {"q": "f32[2, 3, 4]", "k": "f32[2, 5, 4]", "v": "f32[2, 5, 4]"},
        ("attention",)),
    Row("attention of matrices", ATTENTION, attention, {"q": "f32[3, 4]", "k": "f32[5, 4]", "v": "f32[5, 6]"},
        ("attention",)),
    Row("attention, biased", ATTENTION, lambda q, k, v, b: attention(q, k, v, lambda s: s + b), ATT | {"b": "f32[2, 1, 1, 5]"},
        ("attention",)),
    Row("attention, masked", ATTENTION, lambda q, k, v, m: attention(q, k, v, lambda s: where(m, s, -math.inf)),
        ATT | {"m": "bool[3, 5]"}, ("reshape", "attention")),
    Row("attention, filled", ATTENTION, lambda q, k, v, m: attention(q, k, v, lambda s: where(m, -1e30, s)),
        ATT | {"m": "bool[2, 1, 3, 5]"}, ("logical_not", "attention")),
    Row("attention, masked without heads", ATTENTION, lambda q, k, v, m: attention(q, k, v, lambda s: where(m, s, -1e30)),
        {"q": "f32[2, 3, 4]", "k": "f32[2, 5, 4]", "v": "f32[2, 5, 4]", "m": "bool[2, 3, 5]"}, ("reshape", "attention")),
    Row("attention, causal", ATTENTION,
        lambda q, k, v: attention(q, k, v, lambda s: where(np.tri(3, dtype=bool), s, -1e30)), SQUARE, ("attention",)),
    Row("attention, capped", ATTENTION, lambda q, k, v: attention(q, k, v, lambda s: tanh(s / 3.0) * 3.0), ATT,
        ("attention",)),
    Row("attention, grouped heads", ATTENTION, lambda q, k, v: attention(q, *(
        reshape(expand(reshape(x, (2, 2, 1, 5, 4)), (2, 2, 3, 5, 4)), (2, 6, 5, 4)) for x in (k, v))),
        {"q": "f32[2, 6, 3, 4]", "k": "f32[2, 2, 5, 4]", "v": "f32[2, 2, 5, 4]"}, ("attention",)),
    Row("attention, heads split and joined", ATTENTION, lambda q, k, v: reshape(transpose(attention(*(
        transpose(reshape(x, (2, x.shape[1], 2, 4)), (0, 2, 1, 3)) for x in (q, k, v))), (0, 2, 1, 3)), (2, 3, 8)),
        {"q": "f32[2, 3, 8]", "k": "f32[2, 5, 8]", "v": "f32[2, 5, 8]"}, ("attention",)),
    *READINGS,
    Row("region", REGIONS, lambda x, b: gelu(x * b + 1.0), {"x": X, "b": "f32[4]"}, ("elementwise_region",)),
    Row("region of two broadcasts", REGIONS, lambda a, b: exp(a + b) * 2.0, {"a": "f32[3, 1]", "b": "f32[1, 4]"},
        ("elementwise_region",)),
    Row("region with a selection", REGIONS, lambda x, m: where(m, x, 0.0) + where(x > 0, 1.0, x), {"x": X, "m": "bool[4]"},
        ("elementwise_region",)),
    Row("region over a middle axis", REGIONS, lambda x, b: tanh(x) - b, {"x": "f32[2, 3, 4]", "b": "f32[2, 1, 4]"},
        ("elementwise_region",)),
]  # fmt: skip

NEAR = [
    Row("a bias of rows", BIAS, lambda x, w, b: mat_mul(x, w) + b, MM | {"b": "f32[3, 1]"}, kind="BiasRankTooHigh"),
    Row("a bias that enlarges", BIAS, lambda x, w, b: mat_mul(x, w) + b, MM | {"b": "f32[2, 3, 5]"}, kind="BiasRankTooHigh"),
    Row("a residual, no bias", BIAS, lambda x, w, b: mat_mul(x, w) + b, MM | {"b": "f32[3, 5]"}),
    Row("norm over two axes", RESIDUAL, lambda x, r: layer_norm(x + r, axes=(0, 1)), {"x": X, "r": X}, kind="AxisNotLast"),
    Row("norm over the first axis", RESIDUAL, lambda x, r: rms_norm(x + r, axes=(0,)), {"x": X, "r": X}, kind="AxisNotLast"),
    Row("an addend of another shape", RESIDUAL, lambda x, r: layer_norm(x + r), {"x": X, "r": "f32[1, 4]"}),
    Row("weights that are inputs", SHARED, lambda x, a, b: (mat_mul(x, a), mat_mul(x, b)), {"x": X, "a": W, "b": W}),
    Row("one bound weight of two", SHARED, lambda x, a, w: (mat_mul(x, a), mat_mul(x, w)), {"x": X, "a": W}, params={"w": W},
        kind="SharedMatmulCount"),
    Row("weights in a batch", SHARED, lambda x, a, b: (mat_mul(x, a), mat_mul(x, b)), {"x": "f32[2, 3, 4]"},
        params={"a": "f32[2, 4, 5]", "b": "f32[2, 4, 5]"}),
    Row("a weight that depends on the product", SHARED, lambda p, w: (lambda y: (y, mat_mul(p, y)))(mat_mul(p, w)), {},
        params={"p": "f32[4, 4]", "w": "f32[4, 4]"}),
    Row("cuts that are no halves", SWIGLU, lambda p: Narrow(1, 0, 3)(p) * silu(Narrow(1, 4, 3)(p)), HALVES, kind="NotFused"),
    Row("halves with a step", SWIGLU, lambda p: Narrow(1, 0, 4, 2)(p) * silu(Narrow(1, 1, 4, 2)(p)), HALVES, kind="NotFused"),
    Row("the same half twice", SWIGLU, lambda p: Narrow(1, 0, 4)(p) * silu(Narrow(1, 0, 4)(p) + 0.0), HALVES),
    Row("halves of the first axis", SWIGLU, lambda p: Narrow(0, 0, 2)(p) * silu(Narrow(0, 2, 2)(p)), {"p": "f32[4, 4]"},
        kind="AxisNotLast"),
    Row("products of two values", SWIGLU, lambda x, z, u, g: silu(mat_mul(x, g)) * mat_mul(z, u), {"x": X, "z": X},
        params={"u": W, "g": W}, kind="SwigluNotSharedInput"),
    Row("weights of two widths", SWIGLU, lambda x, u, g: silu(mat_mul(x, g)) * mat_mul(x, u), ROWS,
        params={"u": "f32[4, 1]", "g": W}, kind="DtypeMismatch"),
    Row("softmax over two axes", SOFTMAX, lambda x: (lambda e: e / kept(e, sum_axes, 0))(exp(x - kept(x, max_axes, 1))), ROWS,
        kind="AxisNotLast"),
    Row("softmax over another sum", SOFTMAX,
        lambda x: exp(x - kept(x, max_axes)) / kept(exp(x), sum_axes), ROWS),
    Row("eps outside the root", NORMS, lambda x: x * (rsqrt(kept(x * x, mean_axes)) + 1e-5), ROWS),
    Row("cubes, not squares", NORMS, lambda x: x * rsqrt(kept(x * x * x * x, mean_axes) + 1e-5), ROWS),
    Row("the unbiased variance", NORMS, lambda x: centred(x) * rsqrt(Var(axes=(1,), keep_dim=True, correction=1)(x) + 1e-5),
        ROWS, kind="NotFused"),
    Row("another square root of two", GELU, lambda x: 0.5 * x * (1 + erf(x / 1.4142)), WIDE),
    Row("another half", GELU, lambda x: 0.5001 * x * (1 + erf(x / math.sqrt(2))), WIDE),
    Row("another cubic", GELU, lambda x: 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.0447 * x**3.0))), WIDE),
    Row("the constants of the other form", GELU, lambda x: 0.5 * x * (1 + tanh(x / math.sqrt(2))), WIDE),
    Row("softmax over queries", ATTENTION,
        lambda q, k, v: mat_mul(softmax(mat_mul(q, transpose(k, (0, 1, 3, 2))), axis=2), v), ATT, kind="AxisNotLast"),
    Row("a fill that does not hide", ATTENTION, lambda q, k, v, m: attention(q, k, v, lambda s: where(m, s, -100.0)),
        ATT | {"m": "bool[3, 5]"}, kind="NotFused"),
    Row("a bias that enlarges the scores", ATTENTION, lambda q, k, v, b: attention(q, k, v, lambda s: s + b),
        ATT | {"b": "f32[3, 2, 2, 3, 5]"}),
    Row("an infinite bias under a finite fill", ATTENTION,
        lambda q, k, v, b, m: attention(q, k, v, lambda s: where(m, s + b, -1e30)),
        ATT | {"b": "f32[3, 5]", "m": "bool[3, 5]"}, kind="NotFused"),
    Row("queries that broadcast", ATTENTION, attention, ATT | {"q": "f32[1, 2, 3, 4]"}, kind="NotFused"),
    Row("dims that are equal by assumption", REGIONS, lambda x, y: tanh(x + y), {"x": "f32[n, 4]", "y": "f32[m, 4]"}),
    Row("another cap outside than inside", SOFTMAX, lambda x: tanh(x / 3.0) * 2.0, ROWS),
    Row("columns of a square as its rows", SOFTMAX, lambda x: (
        lambda e: e / expand(reshape(kept(e, sum_axes, 0), (4, 1)), (4, 4)))(exp(x - kept(x, max_axes, 0))), {"x": "f32[4, 4]"}),
    *NO_READINGS,
    Row("one element-wise op alone", REGIONS, lambda x, w: mat_mul(tanh(x), w), {"x": X, "w": W}),
    Row("a smaller producer", REGIONS, lambda x, b: x + exp(b), {"x": X, "b": "f32[4]"}),
]  # fmt: skip


@pytest.mark.parametrize("row", TAKEN, ids=str)
class TestTaken:
    def test_it_becomes_what_it_should_and_keeps_its_numbers(self, row: Row) -> None:
        graph = row.graph
        result = run([row.each, DeadCode()], graph)
        assert tuple(ops(result.graph)) == row.becomes
        assert_equal_numbers(graph, result.graph)

    def test_running_again_changes_nothing(self, row: Row) -> None:
        once = run(row.each, row.graph).graph
        assert row.each.run(once, run_context()).graph is once

    def test_names_origins_and_the_value_map_survive(self, row: Row) -> None:
        graph = row.graph
        result = row.each.run(graph, run_context())
        assert all(result.values[v] is o for v, o in zip(graph.outputs, result.graph.outputs, strict=True))
        assert list(result.graph.input_types) == list(graph.input_types)
        assert list(result.graph.param_types) == list(graph.param_types)
        new = [n for n in result.graph.nodes if not n.is_leaf]
        assert all(n.origin.source is not None for n in new)
        assert any((n.origin.created_by or "").partition("/")[0].endswith(row.each.name.partition(".")[2]) for n in new)

    @pytest.mark.parametrize("variant", [with_output, with_second_user])
    def test_inner_values_that_are_needed_elsewhere_keep_their_numbers(self, row: Row, variant: Any) -> None:
        graph = row.graph
        for value in inner_values(graph):
            changed = variant(graph, value)
            result = run(row.each, changed)
            assert_equal_numbers(changed, result.graph)
            again = row.each.run(result.graph, run_context())
            assert again.graph is result.graph

    def test_the_target_decides(self, row: Row) -> None:
        """A table that claims something else leaves every program as it is."""
        graph = row.graph
        assert row.each.run(graph, context_claiming()).graph is graph


@pytest.mark.parametrize("row", NEAR, ids=str)
def test_a_near_miss_is_left_alone_and_says_why(row: Row) -> None:
    graph = row.graph
    result = run(row.each, graph)
    assert result.graph is graph
    assert [m.kind for m in result.misses] == ([] if row.kind is None else [row.kind])


def run_context() -> Any:
    from ..programs import NO_TARGET

    return NO_TARGET


def context_claiming() -> Any:
    from rlx_core.ops.products import LoraMatMul
    from rlx_core.passes.engine.base import Context
    from rlx_core.pipeline.backend import Target
    from rlx_core.pipeline.kernels import KernelTable

    table = KernelTable("other")

    @table.register(LoraMatMul)
    def layer(op: Any, *operands: Any, out: Any, workspace: Any) -> None:
        """Never called."""

    return Context(Target("other", table))
