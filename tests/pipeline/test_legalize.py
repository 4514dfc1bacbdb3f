"""Legalisation: what has a kernel stays, what has none is rewritten or decomposed, and the rest is one error."""

import json

import numpy as np
import pytest

from rlx_core.errors import ConfigError, LegalizeError, NoKernelError
from rlx_core.ir.graph import Builder
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp, gelu, silu
from rlx_core.ops.arithmetic import add, divide, multiply, negative
from rlx_core.ops.structural import reshape, transpose
from rlx_core.pipeline.config.records import DispatchConfig
from rlx_core.pipeline.dispatch import Dispatcher, LegalizationTable, supports
from rlx_core.pipeline.kernels import condition
from rlx_core.pipeline.legalize import legalize

X = spec("f32[4, 8]")


@define_op(domain="test")
class Twice(Op):
    """2x, by way of Thrice, so that it takes two rounds."""

    def infer(self, x):
        return x

    def decompose(self, x):
        return Thrice()(x) - x


@define_op(domain="test")
class Thrice(Op):
    def infer(self, x):
        return x

    def decompose(self, x):
        return x + x + x


@define_op(domain="test")
class Alone(Op):
    """Neither kernel nor decomposition."""

    def infer(self, x):
        return x

    def reference(self, x):
        return x * 5


@define_op(domain="test")
class Endless(Op):
    depth: int = 0

    def infer(self, x):
        return x

    def decompose(self, x):
        return Endless(self.depth + 1)(x)


def program(make):
    b = Builder()
    return b.finish([make(b.input("x", X))])


def ops(graph):
    return [n.op.name for n in graph.nodes if not n.is_leaf]


@pytest.fixture
def full(target_with):
    from rlx_core.ops.arithmetic import subtract

    return target_with(*((f.op, None) for f in (add, subtract, multiply, divide, negative, exp)))


def test_a_legal_graph_passes_unchanged(full):
    graph = program(lambda x: exp(x) + x)
    result = legalize(graph, Dispatcher(full))
    assert result.graph is graph
    report = result.notes["dispatch"]
    assert report.compile_ready
    assert report.rounds == 0
    assert report.by_op == {"rlx.add": {"native": 1}, "rlx.exp": {"native": 1}}


def test_what_has_no_kernel_is_decomposed_one_level_a_round(full):
    graph = program(lambda x: Twice()(x, name="doubled"))
    result = legalize(graph, Dispatcher(full))
    assert ops(result.graph) == ["rlx.add", "rlx.add", "rlx.sub"]
    report = result.notes["dispatch"]
    assert report.rounds == 2
    assert [(r.op, r.means) for r in report.rows][:2] == [("test.twice", "common-ir"), ("test.thrice", "common-ir")]
    x = np.arange(32.0).reshape(4, 8)
    np.testing.assert_array_equal(interpret(result.graph, {"x": x})[0], 2 * x)


def test_names_and_provenance_survive_decomposition(full):
    result = legalize(program(lambda x: Twice()(x, name="doubled")), Dispatcher(full))
    assert result.graph.find("doubled").node is result.graph.outputs[0].node
    assert result.graph.outputs[0].node.origin.created_by == "rlx.legalize"
    assert result.graph.outputs[0].node.origin.source is not None


def test_it_is_idempotent(full):
    once = legalize(program(lambda x: Twice()(x)), Dispatcher(full)).graph
    assert legalize(once, Dispatcher(full)).graph is once


def test_dtypes_and_conditions_of_a_kernel_decide(target_with):
    @condition("a last axis divisible by 16")
    def divisible(node):
        return node.types[0].shape[-1] % 16 == 0

    target = target_with((exp.op, "f32", divisible))
    assert supports(target, exp.op(), [spec("f32[16]")]).means == "native"
    narrow = supports(target, exp.op(), [spec("f32[8]")])
    assert narrow.means == "unsupported"
    assert narrow.refusals[0].reason == "needs a last axis divisible by 16"
    assert supports(target, exp.op(), [spec("f64[16]")]).refusals[0].reason == "takes f32, not f64"


def test_everything_illegal_is_in_one_error_with_what_was_tried(target_with):
    target = target_with((exp.op, "f64"))
    with pytest.raises(LegalizeError) as caught:
        legalize(program(lambda x: exp(Alone()(exp(x)))), Dispatcher(target))
    error = caught.value
    assert isinstance(error, NoKernelError)
    assert error.message == "toy: nothing runs rlx.exp on f32[4, 8] and 2 more"
    assert [f.label for f in error.facts] == ["%1 rlx.exp", "%2 test.alone", "%3 rlx.exp"]
    assert "exp_kernel takes f64, not f32" in str(error)
    assert "no kernel is registered for it" in str(error)
    assert "rlx_kernels" in error.hint


def test_the_host_runs_only_what_the_configuration_allows(full):
    graph = program(lambda x: Alone()(x))
    with pytest.raises(LegalizeError):
        legalize(graph, Dispatcher(full))
    for pattern in ("test.alone", "test.*", "test", "*"):
        report = legalize(graph, Dispatcher(full, DispatchConfig(allow_host=(pattern,)))).notes["dispatch"]
        assert [r.op for r in report.host] == ["test.alone"]


def test_target_rewrites_come_before_decompositions(full):
    table = LegalizationTable("toy.rewrites")

    @table.register(Twice)
    def twice_is_a_sum(op, x):
        return x + x

    result = legalize(program(lambda x: Twice()(x)), Dispatcher(full, tables=(table,)))
    assert ops(result.graph) == ["rlx.add"]
    assert result.notes["dispatch"].rows[0].means == "rewritten"
    assert result.notes["dispatch"].rows[0].reason == "by toy.rewrites"


def test_a_rewrite_that_declines_leaves_the_decomposition(full):
    table = LegalizationTable("toy.rewrites")
    table.register(Twice)(lambda op, x: None)
    result = legalize(program(lambda x: Twice()(x)), Dispatcher(full, tables=(table,)))
    assert ops(result.graph) == ["rlx.add", "rlx.add", "rlx.sub"]


def test_two_rewrites_for_one_op_are_an_error():
    table = LegalizationTable("toy.rewrites")
    table.register(Twice)(lambda op, x: None)
    with pytest.raises(ConfigError, match=r"two rewrites for test\.twice"):
        table.register(Twice)(lambda op, x: x)


class TestPolicies:
    @pytest.fixture
    def both(self, target_with):
        from rlx_core.ops.arithmetic import subtract

        return target_with((Twice, None), *((f.op, None) for f in (add, subtract)))

    def means(self, target, **config):
        result = legalize(program(lambda x: Twice()(x)), Dispatcher(target, DispatchConfig(**config)))
        return result.notes["dispatch"].rows[0].means

    def test_native_kernels_are_preferred(self, both):
        assert self.means(both) == "native"

    def test_force_common_decomposes_what_has_both(self, both):
        assert self.means(both, policy="force-common") == "common-ir"

    def test_an_override_is_for_one_op_or_one_plugin(self, both):
        assert self.means(both, force_common=("test.twice",)) == "common-ir"
        assert self.means(both, force_common=("test",)) == "common-ir"
        assert self.means(both, force_common=("acme",)) == "native"

    def test_native_wins_over_common(self, both):
        assert self.means(both, policy="force-common", force_native=("test.twice",)) == "native"
        assert self.means(both, force_common=("test",), force_native=("test",)) == "native"

    def test_force_native_without_a_kernel_is_an_error(self, full):
        with pytest.raises(LegalizeError, match=r"test\.twice") as caught:
            self.means(full, force_native=("test.twice",))
        assert "force-native" in str(caught.value)


def test_the_bound_of_rounds_is_reported_and_refused(full):
    with pytest.raises(LegalizeError, match=r"test\.endless") as caught:
        legalize(program(lambda x: Endless()(x)), Dispatcher(full))
    assert "rewriting stopped at its bound" in str(caught.value)


def test_dense_views_need_no_kernel(full):
    report = legalize(program(lambda x: exp(reshape(x, (8, 4)))), Dispatcher(full)).notes["dispatch"]
    assert [r.means for r in report.rows] == ["view", "native"]
    assert supports(full, transpose.op((1, 0)), [X]).means == "unsupported"


def test_the_report_is_text_and_json(target_with):
    target = target_with((gelu.op, "f64"), *((f.op, None) for f in (add, multiply)))
    from rlx_core.pipeline.legalize import rewrite

    _, report, _ = rewrite(program(lambda x: silu(x) + x), Dispatcher(target))
    assert not report.compile_ready
    text = str(report)
    assert text.startswith("dispatch on toy: not ready")
    content = json.loads(report.to_json())
    assert content["compile_ready"] is False
    assert content["ops"]["rlx.add"]["native"] >= 1
    assert content["nodes"][0]["source"].endswith(".py:" + content["nodes"][0]["source"].rsplit(":", 1)[1])
