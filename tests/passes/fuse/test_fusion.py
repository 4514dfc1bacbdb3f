"""Fusion as a whole: rules that keep their word, random programs, what the target lacks, regions and limits, the report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import VerifyError
from rlx_core.ir.graph import Builder, Graph, building
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp, gelu, relu, tanh
from rlx_core.ops.arithmetic import maximum
from rlx_core.ops.conversion import cast
from rlx_core.ops.linalg import mat_mul
from rlx_core.ops.normalization import layer_norm, rms_norm
from rlx_core.ops.region import ElementwiseRegion
from rlx_core.ops.selection import where
from rlx_core.ops.softmax import softmax
from rlx_core.ops.structural import transpose
from rlx_core.passes.algebra import algebra
from rlx_core.passes.cse import CommonSubexpressions
from rlx_core.passes.dead_code import DeadCode
from rlx_core.passes.engine.apply_rules import pass_of
from rlx_core.passes.engine.base import Context
from rlx_core.passes.engine.fusion_report import assert_fusion_clean, fusion_report
from rlx_core.passes.engine.rule_checks import check_rule
from rlx_core.passes.engine.runner import run_passes
from rlx_core.passes.fuse.mark_elementwise_regions import MarkElementwiseRegions
from rlx_core.passes.fuse.matmul_bias_act import FuseMatMulBiasAct, fuse_matmul_bias_act
from rlx_core.passes.fuse.residual_norm import FuseResidualNorm
from rlx_core.passes.fuse.shared_input_matmul import FuseSharedInputMatMul
from rlx_core.passes.fuse.softmax_cross_entropy import FuseSoftmaxCrossEntropy, fuse_softmax_cross_entropy
from rlx_core.passes.fuse.swiglu import FuseSwiGLU, fuse_swiglu
from rlx_core.passes.fuse.unfuse_regions import ClipRegions, UnfuseRegions
from rlx_core.passes.lower_hir import LowerHir
from rlx_core.passes.recognise.attention import RecogniseAttention, recognise_attention
from rlx_core.passes.recognise.gelu import RecogniseGelu, recognise_gelu
from rlx_core.passes.recognise.norms import RecogniseNorms, recognise_norms
from rlx_core.passes.recognise.softmax import RecogniseSoftmax, recognise_softmax
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.kernels import KernelTable, condition
from rlx_core.pipeline.planning.prepare import split_prepare
from rlx_core.transforms.vjp import vjp_graph

from ..programs import assert_equal_numbers, ops, program, run

RULES = (
    recognise_softmax,
    recognise_norms,
    recognise_gelu,
    recognise_attention,
    fuse_matmul_bias_act,
    fuse_swiglu,
    fuse_softmax_cross_entropy,
)
CLEAN = [CommonSubexpressions(), pass_of(algebra)(), DeadCode()]
FUSIONS = [
    *(RecogniseSoftmax(), RecogniseNorms(), RecogniseGelu(), RecogniseAttention()),
    *(FuseMatMulBiasAct(), FuseResidualNorm(), FuseSwiGLU(), FuseSharedInputMatMul(), FuseSoftmaxCrossEntropy()),
]
ALL = [*CLEAN, *FUSIONS, *CLEAN, MarkElementwiseRegions()]
X = {"x": "f32[3, 4]"}


@pytest.mark.parametrize("rule", [r for s in RULES for r in s], ids=lambda r: r.key)
def test_both_sides_of_every_rule_agree(rule: Any) -> None:
    assert check_rule(rule).fired


# ----------------------------------------------------------------------------------- random programs

# Each makes a value of one type from two; together they hold every pattern, whole and broken.
STEPS = [
    lambda x, y, w, b: mat_mul(x, w) + b,
    lambda x, y, w, b: gelu(mat_mul(x, w) + b),
    lambda x, y, w, b: layer_norm(x + y, b),
    lambda x, y, w, b: rms_norm(x + y + b),
    lambda x, y, w, b: mat_mul(x, w) + mat_mul(x, transpose(w, (1, 0))),
    lambda x, y, w, b: mat_mul(softmax(mat_mul(x, transpose(y, (1, 0))) * 0.5), y),
    lambda x, y, w, b: where(x > y, tanh(x), y * 0.5 + b),
    lambda x, y, w, b: maximum(relu(x - y), 0.25 * x),
    lambda x, y, w, b: cast(cast(x + y, to=spec("f64[]").dtype) * 2.0, to=x.dtype) * 0.25,
    lambda x, y, w, b: (lambda s: layer_norm(s, b) + s)(tanh(x) + y),
]


def generated(seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    builder = Builder(f"generated{seed}")
    values = [builder.input("x", spec("f32[4, 6]"))]
    w, b = builder.param("w", spec("f32[6, 6]")), builder.param("b", spec("f32[6]"))
    with building(builder):
        values.append(exp(values[0] * 0.25))
        for step in rng.integers(0, len(STEPS), int(rng.integers(2, 12))):
            i, j = rng.integers(max(0, len(values) - 3), len(values), 2)
            values.append(STEPS[step](values[i], values[j], w, b))
    some = rng.choice(len(values) - 1, size=2)
    return builder.finish([values[-1], *(values[int(i)] for i in some)])


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_keep_their_numbers(seed: int) -> None:
    graph = generated(seed)
    result = run(ALL, graph)
    # Twelve steps, each with sums of six products: a reordering moves the last bits, and norms enlarge them.
    assert_equal_numbers(graph, result.graph, rtol=1e-8, atol=1e-9)
    again = run(ALL, result.graph)
    assert ops(again.graph) == ops(result.graph)


# ---------------------------------------------------------------------------------------- the target


def target_with(*rows: tuple[type, Any], **options: Any) -> Context:
    table = KernelTable("small")
    for op, when in rows:
        table.register(op, when=() if when is None else when, name=f"{op.name}_kernel")(lambda *a, **k: None)
    return Context(Target("small", table, **options))


def test_an_activation_that_the_kernel_lacks_stays_outside() -> None:
    from rlx_core.ops.fused import FusedMatMulBiasAct

    @condition("relu or nothing after the bias")
    def relu_only(node: Any) -> bool:
        return node.op.activation is None or isinstance(node.op.activation, relu.op)

    context = target_with((FusedMatMulBiasAct, relu_only))
    graph = program(
        lambda x, w, b: (tanh(mat_mul(x, w) + b), relu(mat_mul(x, w) + b)), x="f32[3, 4]", w="f32[4, 5]", b="f32[5]"
    )
    result = run(FuseMatMulBiasAct(), graph, context)
    assert ops(result.graph) == ["fused_matmul_bias_act", "tanh", "fused_matmul_bias_act"]
    assert [m.kind for m in result.misses] == ["NoKernel"]
    assert "needs relu or nothing after the bias" in result.misses[0].reason


def test_regions_are_off_for_a_target_that_does_not_claim_them() -> None:
    graph = program(lambda x: tanh(x) * 2.0, **X)
    assert MarkElementwiseRegions().run(graph, target_with((relu.op, None))).graph is graph
    marked = run(MarkElementwiseRegions(), graph, target_with((ElementwiseRegion, None)))
    assert ops(marked.graph) == ["elementwise_region"]


def test_the_derivative_of_relu_reads_its_result_so_that_the_product_can_have_relu_inside() -> None:
    def make(x: Any, w: Any, b: Any) -> Any:
        return relu(mat_mul(x, w) + b)

    graph = vjp_graph(program(make, x="f32[3, 4]", w="f32[4, 5]", b="f32[5]"), ["b"])
    result = run(FuseMatMulBiasAct(), graph)
    assert ops(result.graph) == ["fused_matmul_bias_act", "gt", "where", "mul", "sum"]
    assert_equal_numbers(graph, result.graph)


# ------------------------------------------------------------------------------------------- regions


def chain(x: Any) -> Any:
    for _ in range(5):
        x = tanh(x) + 1.0
    return x


@pytest.mark.parametrize("steps", [2, 3, 4, 9])
def test_a_region_has_at_most_as_many_steps_as_the_limit(steps: int) -> None:
    graph = program(chain, **X)
    result = run(MarkElementwiseRegions(steps=steps), graph)
    sizes = [len(n.op.steps) for n in result.graph.nodes if isinstance(n.op, ElementwiseRegion)]
    assert max(sizes) <= steps
    assert_equal_numbers(graph, result.graph)


def test_the_limits_are_the_target_s_unless_given() -> None:
    graph = program(chain, **X)
    limited = run(MarkElementwiseRegions(), graph, target_with((ElementwiseRegion, None), region_limits=(4, 8)))
    assert max(len(n.op.steps) for n in limited.graph.nodes if isinstance(n.op, ElementwiseRegion)) == 4


def test_a_region_reads_at_most_as_many_inputs_as_the_limit() -> None:
    graph = program(lambda a, b, c, d: a * b + c * d, a="f32[3]", b="f32[3]", c="f32[3]", d="f32[3]")
    result = run(MarkElementwiseRegions(inputs=3), graph)
    assert all(len(n.op.access) <= 3 for n in result.graph.nodes if isinstance(n.op, ElementwiseRegion))
    assert_equal_numbers(graph, result.graph)


def test_taking_a_region_apart_is_the_inverse_of_making_it() -> None:
    graph = program(lambda x, b: (lambda y: (y, exp(y - b) * y))(tanh(x) + b), x="f32[3, 4]", b="f32[4]")
    marked = run(MarkElementwiseRegions(), graph)
    assert ops(marked.graph) == ["elementwise_region"]
    apart = run(UnfuseRegions(), marked.graph).graph
    assert ops(apart) == ops(graph)
    assert_equal_numbers(graph, apart, rtol=0, atol=0)


def test_only_regions_above_the_limits_are_clipped() -> None:
    graph = program(lambda x: (chain(x), tanh(x) * 3.0), **X)
    marked = run(MarkElementwiseRegions(shares=False), graph).graph
    clipped = run(ClipRegions(steps=4), marked).graph
    assert ops(marked).count("elementwise_region") == 2
    assert ops(clipped).count("elementwise_region") == 1
    assert ClipRegions(steps=10).run(marked, Context()).graph is marked


def test_a_value_with_other_readers_is_a_result_of_the_region_or_stays_outside() -> None:
    graph = program(lambda x, w: (lambda t: (mat_mul(t, w), t * 2.0 + 1.0))(tanh(x)), x="f32[3, 4]", w="f32[4, 4]")
    shared = run(MarkElementwiseRegions(), graph).graph
    assert ops(shared) == ["elementwise_region", "matmul"]
    apart = run(MarkElementwiseRegions(shares=False), graph).graph
    assert ops(apart) == ["tanh", "matmul", "elementwise_region"]


def test_a_region_never_waits_for_itself() -> None:
    """exp(x @ w) needs tanh's result through the product, so the two cannot be one region."""
    graph = program(lambda x, w: (lambda t: exp(mat_mul(t, w)) * t + 1.0)(tanh(x) * 0.5), x="f32[4, 4]", w="f32[4, 4]")
    result = run(MarkElementwiseRegions(), graph)
    assert ops(result.graph) == ["elementwise_region", "matmul", "elementwise_region"]
    assert_equal_numbers(graph, result.graph)


@pytest.mark.parametrize("dtype", ["i32", "f64", "c64", "f16"])
def test_regions_read_their_inputs_by_strides_in_every_dtype(dtype: str) -> None:
    graph = program(lambda a, b, c: (a + b) * c - a, a=f"{dtype}[3, 1]", b=f"{dtype}[1, 4]", c=f"{dtype}[]")
    result = run(MarkElementwiseRegions(), graph)
    assert ops(result.graph) == ["elementwise_region"]
    assert_equal_numbers(graph, result.graph)


# ------------------------------------------------------------------------- work when weights are bound


def test_joined_weights_are_joined_when_they_are_bound() -> None:
    weights = dict.fromkeys(("wq", "wk", "wv"), "f32[4, 5]")
    graph = program(lambda x, **w: tuple(mat_mul(x, v) for v in w.values()), params=weights, **X)
    prepared = split_prepare(run(FuseSharedInputMatMul(), graph).graph, Target("any", KernelTable("any")))
    assert "concat" in ops(prepared.prepare)
    assert "concat" not in ops(prepared.graph)


# -------------------------------------------------------------------------------------------- report


def reported(graph: Graph) -> Any:
    return fusion_report(graph, run_passes([LowerHir(), *CLEAN, *FUSIONS], graph), FUSIONS)


def test_the_report_counts_rules_and_ops() -> None:
    report = reported(program(lambda x, w, b: gelu(mat_mul(x, w) + b), x="f32[3, 4]", w="f32[4, 5]", b="f32[5]"))
    assert report.fired == {"fuse-matmul-bias-act/matmul-bias": 1, "fuse-matmul-bias-act/bias-gelu": 1}
    assert (report.before["rlx.matmul"], report.after["rlx.fused_matmul_bias_act"]) == (1, 1)
    assert "rlx.matmul" not in report.after
    assert_fusion_clean(report)


def test_the_report_names_what_was_in_the_way_and_what_helps() -> None:
    report = reported(program(lambda x, w, b: mat_mul(x, w) + b, x="f32[3, 4]", w="f32[4, 5]", b="f32[3, 1]"))
    (miss,) = report.misses
    assert (miss.pattern, miss.reason) == ("fuse-matmul-bias-act/matmul-bias", "BiasRankTooHigh")
    assert "f32[3, 1]" in miss.label
    assert "one element a column" in miss.hint
    assert "BiasRankTooHigh" in str(report)
    with pytest.raises(VerifyError, match="1 place was nearly fused"):
        assert_fusion_clean(report)
    assert_fusion_clean(report, allowed=["BiasRankTooHigh"])


def test_a_configuration_refuses_what_was_nearly_fused() -> None:
    pytest.importorskip("rlx_cpu", reason="it compiles for the CPU: rlx-cpu is not installed")

    def layer(x: Any, w: Any, b: Any) -> Any:
        return mat_mul(x, w) + b

    def compiled(bias: str, **fusion: Any) -> Any:
        types = [rlx.spec(t) for t in ("f32[3, 4]", "f32[4, 5]", bias)]
        return rlx.compile(layer, *types, config={"fusion": {"assert-clean": True, **fusion}})

    with pytest.raises(VerifyError, match="1 place was nearly fused") as caught:
        compiled("f32[3, 1]")
    assert "fusion.allowed-misses" in str(caught.value.hint)
    compiled("f32[5]")
    compiled("f32[3, 1]", **{"allowed-misses": ["BiasRankTooHigh"]})
    compiled("f32[3, 1]", **{"assert-clean": False})


def test_a_product_that_merely_has_another_reader_is_no_miss() -> None:
    report = reported(
        program(lambda x, w, b: (lambda y: (y + b, tanh(y)))(mat_mul(x, w)), x="f32[3, 4]", w="f32[4, 5]", b="f32[5]")
    )
    assert report.is_clean
